//! Buy now: the first buyer at the fixed price ends the auction. Beyond the documents.
//!
//! Four states change at once: the auction closes, the best is the purchase, the bid is recorded,
//! the winner is written. It shows that a transaction carries a whole transition, not only pairs.

use crate::domain::{
    Accepted, AuctionWinnerState, BadInput, BestBidState, NewBid, Offer, Rejection, Window,
    is_running,
};
use crate::items::{BidKind, BidState, best_values};
use crate::place_bid::{BidOutcome, first_outcome};
use crate::{AuctionError, AuctionHouse, Layout};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Item, Millis, Transaction};

/// Still open, and nobody has bid: `:none` is 0. The end cannot have moved without a bid.
const ONE_ITEM_GUARD: &str = "#status = :open AND bid_sequence = :none";
const ONE_ITEM_UPDATE: &str = "SET #status = :closed, closed_at = :now, final_sequence = :final, \
     bid_sequence = :sequence, best_bid_id = :bid, best_bidder_id = :bidder, \
     best_amount = :amount, best_max_amount = :max, second_max_amount = :second REMOVE due_shard";

/// The same over two items.
const AUCTION_GUARD: &str = "#status = :open";
const AUCTION_UPDATE: &str =
    "SET #status = :closed, closed_at = :now, final_sequence = :final REMOVE due_shard";
const BEST_GUARD: &str = "bid_sequence = :none";
const BEST_UPDATE: &str = "SET bid_sequence = :sequence, best_bid_id = :bid, \
     best_bidder_id = :bidder, best_amount = :amount, best_max_amount = :max, second_max_amount = :second";

/// How often a purchase that was cancelled looks again.
const ATTEMPTS: u32 = 100;

impl AuctionHouse {
    /// Buys at the fixed price. `bid_id` makes a retry safe, as for any bid.
    pub async fn buy_now(
        &self,
        auction_id: &str,
        bid_id: &str,
        bidder_id: &str,
    ) -> Result<BidOutcome, AuctionError> {
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let window = self.known_window(auction_id).await?;
            let Some(price) = window.auction.buy_now_price else {
                return Err(BadInput::Prices("this auction has no buy_now_price").into());
            };
            let bid = NewBid {
                auction_id: auction_id.to_owned(),
                bid_id: bid_id.to_owned(),
                bidder_id: bidder_id.to_owned(),
                offer: Offer::Exactly(price),
                currency: window.auction.currency.clone(),
            };
            bid.validate()?;
            if let Some(why) = refusal(&window, &bid, now) {
                let row = BidState {
                    kind: BidKind::BuyNow,
                    ..BidState::rejected(&bid, why, now)
                };
                return self.keep_rejected(&row).await;
            }
            let best = BestBidState {
                sequence: 1,
                bid_id: Some(bid.bid_id.clone()),
                bidder_id: Some(bid.bidder_id.clone()),
                amount: Some(price),
                max_amount: Some(price),
                second_max_amount: 0,
            };
            let accepted = Accepted {
                best,
                end_time: window.auction.end_time,
                leading: true,
            };
            let row = BidState {
                kind: BidKind::BuyNow,
                ..BidState::accepted(&bid, &accepted, now)
            };
            match self.commit_purchase(&accepted.best, &row).await {
                Ok(Some(first)) => return first_outcome(&row, &first),
                Ok(None) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return self.ask(&row, fault).await,
            }
        }
        Err(AuctionError::Contended)
    }

    /// The row of the purchase, this one's or the first one's under the same id; none if the
    /// window has changed.
    async fn commit_purchase(
        &self,
        best: &BestBidState,
        row: &BidState,
    ) -> Result<Option<BidState>, CloudError> {
        let now = row.created_at;
        let winner = AuctionWinnerState {
            auction_id: row.auction_id.clone(),
            winning_bid_id: row.bid_id.clone(),
            bidder_id: row.bidder_id.clone(),
            winning_amount: row.amount,
            closed_at: now,
        };
        let update = |table| {
            Update::builder()
                .table_name(self.table(table))
                .key("auction_id", s(&row.auction_id))
        };
        let auction = update("auctions")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":closed", s("CLOSED"))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":final", n(2));
        let with_best = |mut update: aws_sdk_dynamodb::types::builders::UpdateBuilder| {
            update = update.expression_attribute_values(":none", n(0));
            for (name, value) in best_values(best) {
                update = update.expression_attribute_values(name, value);
            }
            update
        };
        let updates = match self.layout {
            Layout::OneItem => vec![
                with_best(auction)
                    .update_expression(ONE_ITEM_UPDATE)
                    .condition_expression(ONE_ITEM_GUARD),
            ],
            Layout::SeparateBest => vec![
                auction
                    .update_expression(AUCTION_UPDATE)
                    .condition_expression(AUCTION_GUARD),
                with_best(update("best_bids"))
                    .update_expression(BEST_UPDATE)
                    .condition_expression(BEST_GUARD),
            ],
        };
        let part = TransactWriteItem::builder;
        let mut items = Vec::new();
        let mut names = Vec::new();
        for (update, name) in std::iter::zip(updates, ["auction", "best"]) {
            items.push(
                part()
                    .update(update.build().map_err(CloudError::bug)?)
                    .build(),
            );
            names.push(name);
        }
        items.push(part().put(self.put_bid(row)?).build());
        items.push(part().put(self.put_winner(&winner)?).build());
        names.extend(["bid", "winner"]);
        let written = self.cloud.transact(&names, items).await?;
        match written {
            Transaction::Committed(_) => Ok(Some(row.clone())),
            Transaction::Cancelled(cancelled) => cancelled
                .failed("bid")
                .map(|old| from_item(old.unwrap_or(&Item::new())))
                .transpose(),
        }
    }
}

fn refusal(window: &Window, bid: &NewBid, now: Millis) -> Option<Rejection> {
    if !is_running(&window.auction, now) {
        Some(Rejection::Over)
    } else if window.auction.seller_id == bid.bidder_id {
        Some(Rejection::OwnItem)
    } else if window.best.sequence > 0 {
        Some(Rejection::NotForBuyNow)
    } else {
        None
    }
}
