//! Close what is due: find auctions past their end through the sparse index, close each.
//!
//! The index is eventually consistent, so what it says is a hint: the closing reads the base item
//! and its guard decides. Any number of these may run at once.

use crate::close_auction::Closing;
use crate::tables::DUE_SHARDS;
use crate::{AuctionError, AuctionHouse};
use cloud::item::{n, s};
use cloud::{CloudError, Item, Millis};
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use std::panic::AssertUnwindSafe;
use std::time::Duration;

const DUE: &str = "due_shard = :shard AND end_time <= :now";

/// How many auctions one sweep closes at once.
const AT_ONCE: usize = 16;

/// How long one auction, or one page of the index, may take before the sweeper goes on without it.
/// Dropping a closing is what a crash does to it: the next sweep tries again.
const PATIENCE: Duration = Duration::from_secs(2);

/// A page of the index: its auctions, and where the next one begins.
type Page = (Vec<String>, Option<Item>);

impl AuctionHouse {
    /// Closes every auction that is over, a page of the index at a time. Returns each with what became of it, and
    /// each shard of the index that could not be read to its end. One that fails or hangs does not keep the
    /// others open.
    pub async fn close_due(&self) -> Vec<(String, Result<Closing, AuctionError>)> {
        self.close_due_in(due_shards()).await
    }

    /// The same for some shards of the index. Their first pages are waited for together.
    pub async fn close_due_in(
        &self,
        shards: impl IntoIterator<Item = String>,
    ) -> Vec<(String, Result<Closing, AuctionError>)> {
        let now = self.now();
        let mut looked_at = Vec::new();
        let mut shards: Vec<_> = shards.into_iter().map(|shard| (shard, None)).collect();
        while !shards.is_empty() {
            let pages = shards.drain(..).map(|(shard, from)| async move {
                let page = patient(self.due_page(&shard, now, from)).await;
                (shard, page)
            });
            let mut due = Vec::new();
            for (shard, page) in join_all(pages).await {
                match page {
                    Ok((found, next)) => {
                        due.extend(found);
                        shards.extend(next.map(|from| (shard, Some(from))));
                    }
                    Err(fault) => looked_at.push((shard, Err(fault.into()))),
                }
            }
            let closings = due.into_iter().map(|auction_id| async move {
                let closing = AssertUnwindSafe(patient(self.close_auction(&auction_id)));
                let closing = closing.catch_unwind().await;
                let panicked = |_| Err(CloudError::Other("it panicked".into()).into());
                (auction_id, closing.unwrap_or_else(panicked))
            });
            let closings = futures::stream::iter(closings).buffer_unordered(AT_ONCE);
            looked_at.extend(closings.collect::<Vec<_>>().await);
        }
        looked_at
    }

    /// The auctions that one shard of the index says are over: a page of them.
    pub async fn due_page(
        &self,
        shard: &str,
        now: Millis,
        from: Option<Item>,
    ) -> Result<Page, CloudError> {
        let page = self
            .dynamodb()
            .query()
            .table_name(self.table("auctions"))
            .index_name("due")
            .key_condition_expression(DUE)
            .expression_attribute_values(":shard", s(shard))
            .expression_attribute_values(":now", n(now))
            .set_exclusive_start_key(from)
            .send()
            .await
            .map_err(CloudError::from)?;
        let id = |item: &Item| item.get("auction_id")?.as_s().ok().cloned();
        let found = page.items().iter().filter_map(id).collect();
        Ok((found, page.last_evaluated_key))
    }
}

/// The keys of the index, each with a part of the open auctions.
pub fn due_shards() -> impl Iterator<Item = String> {
    (0..DUE_SHARDS).map(|shard| format!("due-{shard}"))
}

async fn patient<T, E: From<CloudError>>(work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let gone_on = |_| Err(CloudError::Unknown("no answer in time".into()).into());
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(gone_on)
}
