//! Close what is due: find auctions past their end through the sparse index, close each.
//!
//! The index is eventually consistent, so what it says is a hint: the closing reads the base item
//! and its guard decides. Any number of these may run at once.

use crate::close_auction::Closing;
use crate::tables::DUE_SHARDS;
use crate::{AuctionError, AuctionHouse};
use cloud::item::{n, s};
use cloud::{CloudError, Millis};
use futures::StreamExt;

const DUE: &str = "due_shard = :shard AND end_time <= :now";

/// How many auctions are closed at once. As many may hang before the others have to wait.
const AT_ONCE: usize = 16;

impl AuctionHouse {
    /// Closes every auction that is over. Returns those that were looked at, with what became of
    /// them: one that cannot be closed, or whose calls hang, does not keep the others open.
    pub async fn close_due(
        &self,
    ) -> Result<Vec<(String, Result<Closing, AuctionError>)>, CloudError> {
        let due = self.due_auctions(self.now()).await?;
        let closings = due.into_iter().map(|auction_id| async move {
            let closing = self.close_auction(&auction_id).await;
            (auction_id, closing)
        });
        let done = futures::stream::iter(closings).buffer_unordered(AT_ONCE);
        Ok(done.collect().await)
    }

    /// The auctions that the index says are over, all shards, all pages.
    pub async fn due_auctions(&self, now: Millis) -> Result<Vec<String>, CloudError> {
        let mut found = Vec::new();
        for shard in 0..DUE_SHARDS {
            let mut pages = self
                .dynamodb()
                .query()
                .table_name(self.table("auctions"))
                .index_name("due")
                .key_condition_expression(DUE)
                .expression_attribute_values(":shard", s(format!("due-{shard}")))
                .expression_attribute_values(":now", n(now))
                .into_paginator()
                .items()
                .send();
            while let Some(item) = pages.next().await {
                let item = item.map_err(CloudError::from)?;
                let id = item.get("auction_id").and_then(|id| id.as_s().ok());
                found.extend(id.cloned());
            }
        }
        Ok(found)
    }
}
