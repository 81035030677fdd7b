//! Reclaim stalled work: lost messages, dead workers, URLs that were written down and never sent.
//!
//! The documents leave this to the visibility timeout, which brings back a message, and only if there was
//! one. While a URL is on its way, `lane_at` is the moment by which it should have gone on. Past it,
//! whoever comes by sends another message: a URL that did go on takes no notice. Queues may be lost as a
//! whole, and are rebuilt from here.

use crate::domain::{GRACE_MS, Status, UrlMetadataState};
use crate::items::{settled, status};
use crate::{Crawler, CrawlerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard, Item, Millis};
use futures::StreamExt;
use futures::future::join_all;
use std::time::Duration;

/// What was done about a URL that was stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// It has a message in the frontier again.
    ToFetch,
    /// It has a message in the parse queue again.
    ToParse,
    /// It went on by itself, or somebody else saw to it.
    Before,
}

/// It is stuck where it was seen stuck: any step, and any other sweeper, changes one of these.
const GUARD: &str = "#status = :seen AND lane_at = :due";

const LATER: &str = "SET lane_at = :later";

/// The longest that a stuck URL waits for the next look.
const PATIENCE_MS: Millis = 900_000;

/// How many URLs are seen to at once.
pub(crate) const AT_ONCE: usize = 16;

/// How many URLs of a lane one sweep sees to. What it has seen to goes to the end of the lane.
const MOST: i32 = 1_000;

/// How long one URL, or one lane, may take before the sweeper goes on without it.
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) async fn patient<T, E: From<CloudError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let gone_on = |_| Err(CloudError::Unknown("no answer in time".into()).into());
    tokio::time::timeout(PATIENCE, work)
        .await
        .unwrap_or_else(gone_on)
}

/// When to look again: as long from now as it has been late so far. A frontier with a long line must not
/// be made longer by a message for everybody in it every thirty seconds.
fn later(url: &UrlMetadataState, now: Millis) -> Millis {
    let late = (now - url.not_before).clamp(GRACE_MS, PATIENCE_MS);
    now.max(url.not_before) + late
}

impl Crawler {
    /// Sees to everything in these shards that is overdue. Gives each URL, and each lane that could not be
    /// read, with what became of it. One that fails or hangs does not keep the others.
    pub async fn sweep_stalled(
        &self,
        shards: impl IntoIterator<Item = u32>,
    ) -> Vec<(String, Result<Swept, CrawlerError>)> {
        let lanes = shards.into_iter().map(|shard| async move {
            let lane = format!("watch-{shard}");
            let found = patient(self.lane(&lane, Some(self.now()), Some(MOST))).await;
            (lane, found)
        });
        let mut done = Vec::new();
        let mut overdue = Vec::new();
        for (lane, found) in join_all(lanes).await {
            match found {
                Ok(found) => overdue.extend(found),
                Err(fault) => done.push((lane, Err(fault.into()))),
            }
        }
        let sweeps = overdue.into_iter().map(|url_hash| async move {
            let swept = patient(self.sweep(&url_hash)).await;
            (url_hash, swept)
        });
        let sweeps = futures::stream::iter(sweeps).buffer_unordered(AT_ONCE);
        done.extend(sweeps.collect::<Vec<_>>().await);
        done
    }

    /// The URLs in a lane, up to a time, all of them or the first few. An index: it may be behind.
    pub async fn lane(
        &self,
        lane: &str,
        until: Option<Millis>,
        most: Option<i32>,
    ) -> Result<Vec<String>, CloudError> {
        let mut found = Vec::new();
        let mut from = None;
        loop {
            let page = self.lane_page(lane, until, most, from).await?;
            found.extend(page.0);
            from = page.1;
            if from.is_none() || most.is_some_and(|most| found.len() >= most as usize) {
                return Ok(found);
            }
        }
    }

    /// One page of a lane, and where the next one begins.
    pub(crate) async fn lane_page(
        &self,
        lane: &str,
        until: Option<Millis>,
        most: Option<i32>,
        from: Option<Item>,
    ) -> Result<(Vec<String>, Option<Item>), CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("url_metadata"))
            .index_name("lanes")
            .key_condition_expression("lane = :lane AND lane_at <= :until")
            .expression_attribute_values(":lane", s(lane))
            .expression_attribute_values(":until", n(until.unwrap_or(Millis::MAX / 2)))
            .set_limit(most)
            .set_exclusive_start_key(from)
            .send()
            .await
            .map_err(CloudError::from)?;
        let hashes = query.items().iter().filter_map(|item| item.get("url_hash"));
        let hashes = hashes.filter_map(|hash| hash.as_s().ok()).cloned();
        Ok((hashes.collect(), query.last_evaluated_key))
    }

    /// Sees to one URL, if it is overdue.
    pub async fn sweep(&self, url_hash: &str) -> Result<Swept, CrawlerError> {
        let now = self.now();
        // The index said so a moment ago; the item decides.
        let Some(url) = self.read_url(url_hash).await? else {
            return Ok(Swept::Before);
        };
        let to_fetch = match url.status {
            Status::Discovered | Status::Fetching | Status::Retrying => true,
            Status::Fetched | Status::Parsing => false,
            Status::Parsed | Status::Failed => return Ok(Swept::Before),
        };
        if url.lane_at > now {
            return Ok(Swept::Before);
        }
        let later = later(&url, now);
        let moved = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(url_hash))
                .update_expression(LATER)
                .condition_expression(GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":seen", status(url.status))
                .expression_attribute_values(":due", n(url.lane_at))
                .expression_attribute_values(":later", n(later))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        if let Guard::Failed(old) = moved {
            let old: Option<UrlMetadataState> = old.as_ref().map(from_item).transpose()?;
            // Our own write, whose answer was lost; or that of one who came by in the same millisecond,
            // and then there are two messages, which is no harm.
            let as_written = UrlMetadataState {
                lane_at: later,
                ..url.clone()
            };
            if old != Some(as_written) {
                return Ok(Swept::Before);
            }
        }
        if to_fetch {
            self.send_frontier(url_hash, url.not_before).await?;
            return Ok(Swept::ToFetch);
        }
        let key = url.raw_blob_key.unwrap_or_default();
        self.enqueue_parse(url_hash, &key).await?;
        Ok(Swept::ToParse)
    }
}
