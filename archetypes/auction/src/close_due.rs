//! Close what is due: find auctions past their end through the sparse index, close each.
//!
//! The index is eventually consistent, so what it says is a hint: the closing reads the base item
//! and its guard decides. Any number of these may run at once.

use crate::close_auction::Closing;
use crate::tables::DUE_SHARDS;
use crate::{AuctionError, AuctionHouse};
use cloud::item::{all_items, n, s};
use cloud::{CloudError, Millis};
use futures::StreamExt;
use futures::future::join_all;
use std::time::Duration;

const DUE: &str = "due_shard = :shard AND end_time <= :now";

/// How many auctions are closed at once.
const AT_ONCE: usize = 16;

/// How long one auction, or one shard of the index, may take before the sweeper goes on without it.
/// Dropping a closing is what a crash does to it: the next sweep tries again.
const PATIENCE: Duration = Duration::from_secs(2);

impl AuctionHouse {
    /// Closes every auction that is over. Returns each with what became of it, and each shard of
    /// the index that could not be read. One that fails or hangs does not keep the others open.
    pub async fn close_due(&self) -> Vec<(String, Result<Closing, AuctionError>)> {
        let mut looked_at = Vec::new();
        let mut due = Vec::new();
        for (shard, found) in self.due_auctions(self.now()).await {
            match found {
                Ok(found) => due.extend(found),
                Err(fault) => looked_at.push((shard, Err(fault.into()))),
            }
        }
        let closings = due.into_iter().map(|auction_id| async move {
            let closing = patient(self.close_auction(&auction_id)).await;
            (auction_id, closing)
        });
        let closings = futures::stream::iter(closings).buffer_unordered(AT_ONCE);
        looked_at.extend(closings.collect::<Vec<_>>().await);
        looked_at
    }

    /// The auctions that each shard of the index says are over.
    pub async fn due_auctions(
        &self,
        now: Millis,
    ) -> Vec<(String, Result<Vec<String>, CloudError>)> {
        let shards = (0..DUE_SHARDS).map(|shard| async move {
            let shard = format!("due-{shard}");
            let found = patient(self.due_in(&shard, now)).await;
            (shard, found)
        });
        join_all(shards).await
    }

    async fn due_in(&self, shard: &str, now: Millis) -> Result<Vec<String>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("auctions"))
            .index_name("due")
            .key_condition_expression(DUE)
            .expression_attribute_values(":shard", s(shard))
            .expression_attribute_values(":now", n(now));
        let found = all_items(query).await?;
        let id = |item: &cloud::Item| item.get("auction_id")?.as_s().ok().cloned();
        Ok(found.iter().filter_map(id).collect())
    }
}

async fn patient<T, E: From<CloudError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let gone_on = |_| Err(CloudError::Unknown("no answer in time".into()).into());
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(gone_on)
}
