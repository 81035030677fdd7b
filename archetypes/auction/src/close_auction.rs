//! Close auction and commit winner: one step, by anybody, any number of times.
//!
//! The documents close first and write the winner afterwards; whoever dies between leaves an
//! auction CLOSED without a winner. Here both are one transaction, and its guard names everything
//! the winner was computed from, so that a bid in the last moment makes the closer look again.

use crate::domain::{AuctionWinnerState, Status, Window, winner};
use crate::{AuctionError, AuctionHouse, Layout};
use aws_sdk_dynamodb::types::{ConditionCheck, Put, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Millis, Transaction};

/// What became of closing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Closing {
    /// This call closed it.
    Closed(Option<AuctionWinnerState>),
    /// It was closed before, with this result.
    Before(Option<AuctionWinnerState>),
    /// It is not over yet: its end is later, or was moved.
    NotDue {
        /// When it ends.
        end_time: Millis,
    },
}

/// Still open, and everything the winner was computed from is unchanged: the end that has passed,
/// and the best at that number of bids.
const ONE_ITEM_GUARD: &str = "#status = :open AND end_time = :end AND bid_sequence = :seen";

/// The same over two items.
const AUCTION_GUARD: &str = "#status = :open AND end_time = :end";
const BEST_GUARD: &str = "bid_sequence = :seen";

/// Without `due_shard` the auction leaves the index of what is due.
const CLOSE: &str =
    "SET #status = :closed, closed_at = :now, final_sequence = :final REMOVE due_shard";

/// How often a closer looks again. Each time, a bid came in or another closer was faster.
const ATTEMPTS: u32 = 100;

impl AuctionHouse {
    /// Closes an auction whose end has passed, and writes its winner if there is one.
    pub async fn close_auction(&self, auction_id: &str) -> Result<Closing, AuctionError> {
        for attempt in 0..ATTEMPTS {
            let window = self.known_window(auction_id).await?;
            if window.auction.status == Status::Closed {
                return Ok(Closing::Before(self.read_winner(auction_id).await?));
            }
            let now = self.now();
            if window.auction.end_time > now {
                let end_time = window.auction.end_time;
                return Ok(Closing::NotDue { end_time });
            }
            let winner = winner(&window, now);
            match self.commit_close(&window, winner.as_ref(), now).await {
                Ok(true) => return Ok(Closing::Closed(winner)),
                Ok(false) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(AuctionError::Contended)
    }

    async fn commit_close(
        &self,
        window: &Window,
        winner: Option<&AuctionWinnerState>,
        now: Millis,
    ) -> Result<bool, CloudError> {
        let auction_id = &window.auction.auction_id;
        let update = Update::builder()
            .table_name(self.table("auctions"))
            .key("auction_id", s(auction_id))
            .update_expression(CLOSE)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":closed", s("CLOSED"))
            .expression_attribute_values(":end", n(window.auction.end_time))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":final", n(window.best.sequence + 1));
        let part = TransactWriteItem::builder;
        let mut items = Vec::new();
        let mut names = vec!["auction"];
        match self.layout {
            Layout::OneItem => {
                let update = update
                    .condition_expression(ONE_ITEM_GUARD)
                    .expression_attribute_values(":seen", n(window.best.sequence));
                items.push(
                    part()
                        .update(update.build().map_err(CloudError::bug)?)
                        .build(),
                );
            }
            Layout::SeparateBest => {
                let update = update.condition_expression(AUCTION_GUARD);
                items.push(
                    part()
                        .update(update.build().map_err(CloudError::bug)?)
                        .build(),
                );
                let best = ConditionCheck::builder()
                    .table_name(self.table("best_bids"))
                    .key("auction_id", s(auction_id))
                    .condition_expression(BEST_GUARD)
                    .expression_attribute_values(":seen", n(window.best.sequence));
                items.push(
                    part()
                        .condition_check(best.build().map_err(CloudError::bug)?)
                        .build(),
                );
                names.push("best");
            }
        }
        if let Some(winner) = winner {
            items.push(part().put(self.put_winner(winner)?).build());
            names.push("winner");
        }
        let written = self.cloud.transact(&names, items).await?;
        Ok(matches!(written, Transaction::Committed(_)))
    }

    /// The winner's row. It needs no guard of its own: it is written only together with the one
    /// step from OPEN to CLOSED.
    pub(crate) fn put_winner(&self, winner: &AuctionWinnerState) -> Result<Put, CloudError> {
        Put::builder()
            .table_name(self.table("auction_winners"))
            .set_item(Some(to_item(winner)?))
            .build()
            .map_err(CloudError::bug)
    }

    /// Who won, if anybody did.
    pub async fn read_winner(
        &self,
        auction_id: &str,
    ) -> Result<Option<AuctionWinnerState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("auction_winners"))
            .key("auction_id", s(auction_id))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }
}
