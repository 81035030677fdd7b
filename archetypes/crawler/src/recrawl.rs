//! Recrawl: what was parsed is fetched again, with the validators of the last time. If it has not changed,
//! the host says so (304) and sends nothing. A page that failed in an earlier recrawl is tried again: one bad
//! day of its host must not take it out for ever.

use crate::domain::{GRACE_MS, Status, UrlMetadataState};
use crate::items::{settled, status, watch_lane};
use crate::{Crawler, CrawlerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard, Millis};

/// It is still as it was read, by that fetch: of two that come at once, one opens it.
const GUARD: &str = "#status = :as_read AND fence = :fence";
/// Attempts begin anew; the fence does not.
const REOPEN: &str = "SET #status = :discovered, fetch_attempts = :none, waits = :none, \
     not_before = :now, lane = :watch, lane_at = :due";

impl Crawler {
    /// Opens everything again that was fetched before `older_than`, in these shards. Gives how many.
    pub async fn recrawl(
        &self,
        shards: impl IntoIterator<Item = u32>,
        older_than: Millis,
    ) -> Result<usize, CrawlerError> {
        let mut opened = 0;
        for shard in shards {
            for lane in ["parsed", "failed"] {
                let lane = format!("{lane}-{shard}");
                for url_hash in self.lane(&lane, Some(older_than), None).await? {
                    opened += usize::from(self.reopen(&url_hash, older_than).await?);
                }
            }
        }
        Ok(opened)
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
