//! Recrawl: what was parsed is fetched again, with the validators of the last time. If it has not changed,
//! the host says so (304) and sends nothing. A page that failed in an earlier recrawl is tried again: one bad
//! day of its host must not take it out for ever.

use crate::domain::{GRACE_MS, Status, UrlMetadataState};
use crate::items::{settled, status, watch_lane};
use crate::sweep_stalled::{AT_ONCE, patient};
use crate::{Crawler, CrawlerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard, Millis};
use futures::StreamExt;
use futures::future::join_all;

/// It is still as it was read, by that fetch: of two that come at once, one opens it.
const GUARD: &str = "#status = :as_read AND fence = :fence";
/// Attempts begin anew; the fence does not.
const REOPEN: &str = "SET #status = :discovered, fetch_attempts = :none, waits = :none, \
     not_before = :now, lane = :watch, lane_at = :due";

impl Crawler {
    /// Opens everything again that was fetched before `older_than`, in these shards. Gives each URL, and each
    /// lane that could not be read to its end, with whether it was opened. One that fails or hangs does not keep the
    /// others.
    pub async fn recrawl(
        &self,
        shards: impl IntoIterator<Item = u32>,
        older_than: Millis,
    ) -> Vec<(String, Result<bool, CrawlerError>)> {
        let lanes = shards
            .into_iter()
            .flat_map(|shard| ["parsed", "failed"].map(|lane| format!("{lane}-{shard}")));
        let lanes = lanes.map(|lane| async move {
            let mut found = Vec::new();
            let read = self.read_lane(&lane, older_than, &mut found).await;
            (lane, found, read)
        });
        let mut done = Vec::new();
        let mut old = Vec::new();
        for (lane, found, read) in join_all(lanes).await {
            old.extend(found);
            if let Err(fault) = read {
                done.push((lane, Err(fault.into())));
            }
        }
        let reopened = old.into_iter().map(|url_hash| async move {
            let opened = patient(self.reopen(&url_hash, older_than)).await;
            (url_hash, opened)
        });
        let reopened = futures::stream::iter(reopened).buffer_unordered(AT_ONCE);
        done.extend(reopened.collect::<Vec<_>>().await);
        done
    }

    /// Everything in a lane, however long it is: each page of it may take its time.
    async fn read_lane(
        &self,
        lane: &str,
        until: Millis,
        found: &mut Vec<String>,
    ) -> Result<(), CloudError> {
        let mut from = None;
        loop {
            let page = patient(self.lane_page(lane, Some(until), None, from)).await?;
            found.extend(page.0);
            from = page.1;
            if from.is_none() {
                return Ok(());
            }
        }
    }

    /// Opens one URL again. False if it was never fetched, is on its way, or has ended since.
    pub async fn reopen(&self, url_hash: &str, older_than: Millis) -> Result<bool, CrawlerError> {
        let now = self.now();
        let Some(url) = self.read_url(url_hash).await? else {
            return Ok(false);
        };
        let old = url.fetched_at.is_some_and(|at| at <= older_than);
        let ended = match url.status {
            Status::Parsed => true,
            Status::Failed => url.lane_at <= older_than,
            _ => false,
        };
        if !ended || !old {
            return Ok(false);
        }
        let opened = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(url_hash))
                .update_expression(REOPEN)
                .condition_expression(GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":as_read", status(url.status))
                .expression_attribute_values(":fence", n(url.fence))
                .expression_attribute_values(":discovered", status(Status::Discovered))
                .expression_attribute_values(":none", n(0))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":watch", s(watch_lane(url_hash)))
                .expression_attribute_values(":due", n(now + GRACE_MS))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        if let Guard::Failed(item) = opened {
            let item = item.ok_or_else(|| CloudError::corrupt("a refusal without its item"))?;
            let item: UrlMetadataState = from_item(&item)?;
            // Our own write, whose answer was lost; or that of one who came by in the same
            // millisecond, and then there are two messages, which is no harm.
            let ours = item.status == Status::Discovered
                && item.fence == url.fence
                && item.not_before == now;
            if !ours {
                return Ok(false);
            }
        }
        self.send_frontier(url_hash, now).await?;
        Ok(true)
    }
}
