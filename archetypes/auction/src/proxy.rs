//! Proxy bids: the bidder names a maximum, the house bids for them. Beyond the documents.
//!
//! The price is what the second-best needs plus one step, never above the best's own maximum:
//! `min(highest max, second max + increment)`. A plain bid is a proxy bid that offers its
//! maximum at once.

use crate::domain::{Amount, AuctionState, BestBidState, NewBid};
use crate::increments;

/// Who leads after a valid bid, how far they go, how far the best of the others went, and at
/// which price. Gives the best without its number, and whether the newcomer leads.
pub fn meet(auction: &AuctionState, best: &BestBidState, bid: &NewBid) -> (BestBidState, bool) {
    let newcomer_max = bid.offer.max();
    let own = best.bidder_id.as_ref() == Some(&bid.bidder_id);
    let leader_max = best.max_amount.unwrap_or(0);
    // On a tie the earlier one keeps the lead.
    let leads = newcomer_max > leader_max;
    let mut after = if leads {
        BestBidState {
            bid_id: Some(bid.bid_id.clone()),
            bidder_id: Some(bid.bidder_id.clone()),
            max_amount: Some(newcomer_max),
            // Nobody bids against themselves: who raises their own maximum beats nobody new.
            second_max_amount: if own {
                best.second_max_amount
            } else {
                leader_max
            },
            ..best.clone()
        }
    } else {
        BestBidState {
            second_max_amount: newcomer_max,
            ..best.clone()
        }
    };
    let pays_at_once = if leads { bid.offer.at_once() } else { 0 };
    after.amount = Some(price(auction, &after).max(pays_at_once));
    (after, leads)
}

fn price(auction: &AuctionState, best: &BestBidState) -> Amount {
    let max = best.max_amount.unwrap_or(0);
    let asked = match best.second_max_amount {
        0 => auction.starting_price,
        second => max.min(second + increments::above(second)),
    };
    // The reserve counts as one more bidder: whoever can reach it is taken there at once.
    let reserve = auction.reserve_price.filter(|reserve| max >= *reserve);
    asked
        .max(reserve.unwrap_or(0))
        .max(best.amount.unwrap_or(0))
}
