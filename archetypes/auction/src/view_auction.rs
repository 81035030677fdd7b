//! View auction: what anybody may see of it.

use crate::domain::{Amount, NewBid, Rejection, Status, Window, decide, minimum_bid};
use crate::{AuctionError, AuctionHouse};
use cloud::Millis;
use serde::Serialize;

/// The public face of an auction. The reserve and the leader's maximum are not in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AuctionView {
    /// Identity.
    pub auction_id: String,
    /// What is sold.
    pub item_id: String,
    /// Who sells.
    pub seller_id: String,
    /// What people read.
    pub title: String,
    /// ISO 4217 code.
    pub currency: String,
    /// Open or closed.
    pub status: Status,
    /// When it ends.
    pub end_time: Millis,
    /// The price now; none before the first bid.
    pub best_amount: Option<Amount>,
    /// Who leads.
    pub best_bidder_id: Option<String>,
    /// The least the next bid must offer; none once it is closed.
    pub minimum_bid: Option<Amount>,
    /// Whether the price reached the reserve (true if there is none and there is a bid).
    pub reserve_met: bool,
    /// The fixed price, while it is on offer.
    pub buy_now_price: Option<Amount>,
    /// Accepted bids so far.
    pub sequence: u64,
}

impl From<&Window> for AuctionView {
    fn from(window: &Window) -> Self {
        let Window { auction, best } = window;
        let open = auction.status == Status::Open;
        Self {
            auction_id: auction.auction_id.clone(),
            item_id: auction.item_id.clone(),
            seller_id: auction.seller_id.clone(),
            title: auction.title.clone(),
            currency: auction.currency.clone(),
            status: auction.status,
            end_time: auction.end_time,
            best_amount: best.amount,
            best_bidder_id: best.bidder_id.clone(),
            minimum_bid: open.then(|| minimum_bid(window)),
            reserve_met: best
                .amount
                .is_some_and(|price| price >= auction.reserve_price.unwrap_or(0)),
            buy_now_price: auction.buy_now_price.filter(|_| open && best.sequence == 0),
            sequence: best.sequence,
        }
    }
}

impl AuctionHouse {
    /// Reads the auction.
    pub async fn view_auction(&self, auction_id: &str) -> Result<AuctionView, AuctionError> {
        let window = self.known_window(auction_id).await?;
        Ok((&window).into())
    }

    /// Says what would become of a bid, and writes nothing. What a form shows while one types:
    /// by the time the bid is placed it may no longer be true.
    pub async fn validate_bid(&self, bid: &NewBid) -> Result<Result<(), Rejection>, AuctionError> {
        let window = self.window_for(bid).await?;
        Ok(decide(&window, bid, self.now()).map(|_| ()))
    }
}
