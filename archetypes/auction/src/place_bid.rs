//! Place bid: append the bid and replace the best, together or not at all.
//!
//! Read, decide, write under a guard that says: *still open, and still exactly what I decided
//! on*. If the guard fails, the answer brings the item as it is, and the decision is made
//! again on that. Every failure means that somebody else's bid was accepted, so the house as a
//! whole always gets on.

use crate::domain::{Accepted, BadInput, NewBid, Rejection, Window, decide};
use crate::items::{BidState, BidStatus, best_values};
use crate::{AuctionError, AuctionHouse, Layout};
use aws_sdk_dynamodb::types::{
    ConditionCheck, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Guard, Guarded, Item, Transaction};

/// What became of a bid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BidOutcome {
    /// It counts.
    Accepted {
        /// Its place among the accepted bids.
        sequence: u64,
        /// Whether it led when it was accepted.
        leading: bool,
        /// The price it made.
        price: i64,
    },
    /// It does not, and why.
    Rejected(Rejection),
}

/// The window is still open, and still what the decision was made on.
///
/// `bid_sequence` counts accepted bids. Price and end move only together with it, so an equal one
/// means that both are as they were read, and neither needs a clause of its own. `status` does:
/// closing moves no sequence.
const ONE_ITEM_GUARD: &str = "#status = :open AND bid_sequence = :seen";

const ONE_ITEM_UPDATE: &str = "SET bid_sequence = :sequence, best_bid_id = :bid, \
     best_bidder_id = :bidder, best_amount = :amount, best_max_amount = :max, \
     second_max_amount = :second, end_time = :end";

/// The same guard over two items. A condition cannot read another item, so each item checks its
/// own half, and the transaction makes them one. The end needs its clause here: when only the best
/// has changed, only the best comes back, and an end that moved with it would stay unseen.
const AUCTION_GUARD: &str = "#status = :open AND end_time = :seen_end";
const BEST_GUARD: &str = "bid_sequence = :seen";

const MOVE_END_UPDATE: &str = "SET end_time = :end";
const BEST_UPDATE: &str = "SET bid_sequence = :sequence, best_bid_id = :bid, \
     best_bidder_id = :bidder, best_amount = :amount, best_max_amount = :max, second_max_amount = :second";

/// A bid is written once. This is the identity that makes every retry safe.
const BID_GUARD: &str = "attribute_not_exists(bid_id)";

/// How often a bid is decided again before its bidder is told to come back. Each time, somebody
/// else's bid was accepted.
const ATTEMPTS: u32 = 100;

impl AuctionHouse {
    /// Places a bid. Sent again with the same `bid_id`, it gets its first outcome, whatever has
    /// happened since.
    pub async fn place_bid(&self, bid: &NewBid) -> Result<BidOutcome, AuctionError> {
        // Always the time before the call that brings the window. Taken after it, a slow read would
        // find an auction over whose end somebody has moved meanwhile, and say so for ever.
        let mut now = self.now();
        let mut window = self.window_for(bid).await?;
        for attempt in 0..ATTEMPTS {
            let accepted = match decide(&window, bid, now) {
                Ok(accepted) => accepted,
                Err(why) => return self.keep_rejected(&BidState::rejected(bid, why, now)).await,
            };
            let row = BidState::accepted(bid, &accepted, now);
            now = self.now();
            match self.commit_bid(&window, &accepted, &row).await {
                Ok(Committed::Yes) => return Ok(row.outcome()?),
                Ok(Committed::Before(first)) => return first_outcome(&row, &first),
                Ok(Committed::Overtaken(current)) => window = *current,
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    now = self.now();
                    window = self.window_for(bid).await?;
                }
                Err(fault) => return self.ask(&row, fault).await,
            }
        }
        Err(AuctionError::Contended)
    }

    /// What became of a bid, if it arrived. Consistent: an absent bid had not been written.
    pub async fn bid_outcome(
        &self,
        auction_id: &str,
        bid_id: &str,
    ) -> Result<Option<BidOutcome>, CloudError> {
        let row = self.read_bid(auction_id, bid_id).await?;
        row.map(|row| row.outcome()).transpose()
    }

    async fn read_bid(
        &self,
        auction_id: &str,
        bid_id: &str,
    ) -> Result<Option<BidState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("bids"))
            .key("bid_id", s(bid_id))
            .key("auction_id", s(auction_id))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// A write gave a fault in place of an answer, and may have been made, by this attempt or by an
    /// earlier one of the SDK's. Ask by the identity it carried; never bid again under another.
    pub(crate) async fn ask(
        &self,
        ours: &BidState,
        fault: CloudError,
    ) -> Result<BidOutcome, AuctionError> {
        match self.read_bid(&ours.auction_id, &ours.bid_id).await? {
            Some(first) => first_outcome(ours, &first),
            None => Err(fault.into()),
        }
    }

    /// Checks the input, then reads what it is about.
    pub(crate) async fn window_for(&self, bid: &NewBid) -> Result<Window, AuctionError> {
        bid.validate()?;
        let window = self.known_window(&bid.auction_id).await?;
        if bid.currency != window.auction.currency {
            let (wanted, given) = (window.auction.currency, bid.currency.clone());
            return Err(BadInput::CurrencyMismatch { wanted, given }.into());
        }
        Ok(window)
    }

    /// Writes the bid and the best it makes, if the window is still the one decided on.
    async fn commit_bid(
        &self,
        window: &Window,
        accepted: &Accepted,
        row: &BidState,
    ) -> Result<Committed, CloudError> {
        let bid = TransactWriteItem::builder().put(self.put_bid(row)?).build();
        let (names, items): (&[&'static str], _) = match self.layout {
            Layout::OneItem => (
                &["window", "bid"],
                vec![self.update_window(window, accepted)?, bid],
            ),
            Layout::SeparateBest => (
                &["auction", "best", "bid"],
                vec![
                    self.check_auction(window, accepted)?,
                    self.update_best(window, accepted)?,
                    bid,
                ],
            ),
        };
        let written = self.cloud.transact(names, items).await?;
        let cancelled = match written {
            Transaction::Committed(_) => return Ok(Committed::Yes),
            Transaction::Cancelled(cancelled) => cancelled,
        };
        if let Some(old) = cancelled.failed("bid") {
            return Ok(Committed::Before(from_item(old.unwrap_or(&Item::new()))?));
        }
        // One of two items may have failed its condition while the other was in a conflict. Only the
        // first comes back, and the second may have changed too: an end that moved would stay unseen.
        if !cancelled.is_whole() {
            return Err(CloudError::Conflict("a part of the window".into()));
        }
        // Decide again on what came back with the refusal: no second read.
        let mut current = window.clone();
        if let Some(Some(item)) = cancelled.failed("window") {
            current = crate::items::window(item, item)?;
        }
        if let Some(Some(item)) = cancelled.failed("auction") {
            current.auction = from_item(item)?;
        }
        if let Some(Some(item)) = cancelled.failed("best") {
            current.best = from_item(item)?;
        }
        Ok(Committed::Overtaken(Box::new(current)))
    }

    /// One item: window and best in one guarded update.
    fn update_window(&self, seen: &Window, to: &Accepted) -> Result<TransactWriteItem, CloudError> {
        let mut update = Update::builder()
            .table_name(self.table("auctions"))
            .key("auction_id", s(&seen.auction.auction_id))
            .update_expression(ONE_ITEM_UPDATE)
            .condition_expression(ONE_ITEM_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":seen", n(seen.best.sequence))
            .expression_attribute_values(":end", n(to.end_time))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for (name, value) in best_values(&to.best) {
            update = update.expression_attribute_values(name, value);
        }
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// Separate best, first half: the auction is only checked, unless its end moves.
    fn check_auction(&self, seen: &Window, to: &Accepted) -> Result<TransactWriteItem, CloudError> {
        let (table, id) = (self.table("auctions"), s(&seen.auction.auction_id));
        let seen_end = seen.auction.end_time;
        let item = TransactWriteItem::builder();
        if to.end_time == seen_end {
            let check = ConditionCheck::builder()
                .table_name(table)
                .key("auction_id", id)
                .condition_expression(AUCTION_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":open", s("OPEN"))
                .expression_attribute_values(":seen_end", n(seen_end))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            return Ok(item
                .condition_check(check.build().map_err(CloudError::bug)?)
                .build());
        }
        let update = Update::builder()
            .table_name(table)
            .key("auction_id", id)
            .update_expression(MOVE_END_UPDATE)
            .condition_expression(AUCTION_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":seen_end", n(seen_end))
            .expression_attribute_values(":end", n(to.end_time))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        Ok(item
            .update(update.build().map_err(CloudError::bug)?)
            .build())
    }

    /// Separate best, second half.
    fn update_best(&self, seen: &Window, to: &Accepted) -> Result<TransactWriteItem, CloudError> {
        let mut update = Update::builder()
            .table_name(self.table("best_bids"))
            .key("auction_id", s(&seen.auction.auction_id))
            .update_expression(BEST_UPDATE)
            .condition_expression(BEST_GUARD)
            .expression_attribute_values(":seen", n(seen.best.sequence))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for (name, value) in best_values(&to.best) {
            update = update.expression_attribute_values(name, value);
        }
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// The bid's row.
    pub(crate) fn put_bid(&self, row: &BidState) -> Result<Put, CloudError> {
        Put::builder()
            .table_name(self.table("bids"))
            .set_item(Some(to_item(row)?))
            .condition_expression(BID_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(CloudError::bug)
    }

    /// Keeps a rejected bid for audit. It was right when it was decided: a price never falls, a
    /// closed auction never reopens, and an end is compared with a time before it was read.
    pub(crate) async fn keep_rejected(&self, row: &BidState) -> Result<BidOutcome, AuctionError> {
        for attempt in 0..ATTEMPTS {
            let written = self
                .dynamodb()
                .put_item()
                .table_name(self.table("bids"))
                .set_item(Some(to_item(row)?))
                .condition_expression(BID_GUARD)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .send()
                .await
                .guarded();
            match written {
                Ok(Guard::Passed(_)) => return Ok(row.outcome()?),
                Ok(Guard::Failed(old)) => {
                    return first_outcome(row, &from_item(&old.unwrap_or_default())?);
                }
                // A transaction has the row: the same bid, sent at the same time.
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return self.ask(row, fault).await,
            }
        }
        Err(AuctionError::Contended)
    }
}

enum Committed {
    Yes,
    /// This bid was decided before; its row.
    Before(BidState),
    /// Somebody was faster; the window as it is now.
    Overtaken(Box<Window>),
}

impl BidState {
    /// The outcome that a bid's row tells.
    pub fn outcome(&self) -> Result<BidOutcome, CloudError> {
        if self.status == BidStatus::Rejected {
            return Ok(BidOutcome::Rejected(self.rejection()?));
        }
        match (self.sequence, self.leading, self.price_after) {
            (Some(sequence), Some(leading), Some(price)) => Ok(BidOutcome::Accepted {
                sequence,
                leading,
                price,
            }),
            _ => Err(CloudError::Corrupt(format!(
                "bid {} has no outcome",
                self.bid_id
            ))),
        }
    }
}

/// The outcome of a bid that was sent before. A row under our id that we did not send is another
/// bid that took our identity.
pub(crate) fn first_outcome(ours: &BidState, first: &BidState) -> Result<BidOutcome, AuctionError> {
    let sent = |row: &BidState| (row.bidder_id.clone(), row.kind, row.amount);
    if sent(ours) != sent(first) {
        return Err(AuctionError::IdTaken(ours.bid_id.clone()));
    }
    Ok(first.outcome()?)
}
