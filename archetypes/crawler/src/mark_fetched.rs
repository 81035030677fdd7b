//! Mark fetch complete, and the other ends of a fetch: only by whoever has the current claim.

use crate::claim_fetch::FetchRun;
use crate::domain::{AfterFailure, GRACE_MS, MAX_WAITS, Status, UrlMetadataState, after_failure};
use crate::items::{failed_lane, settled, status, watch_lane};
use crate::{Crawler, CrawlerError};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use cloud::item::{from_item, n, s};
use cloud::{Guard, Millis};

/// What became of a worker's last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It stands in the row.
    Done,
    /// The lease was lost: somebody else has a later claim, or it has ended. Nothing was changed.
    Stale,
}

/// What was fetched.
#[derive(Debug, Clone)]
pub struct Fetched {
    /// HTTP status.
    pub http_status: u16,
    /// The hash of the content.
    pub content_hash: String,
    /// Where its bytes are.
    pub raw_blob_key: String,
    /// How they are to be read.
    pub content_type: String,
    /// For the next time.
    pub etag: Option<String>,
    /// For the next time.
    pub last_modified: Option<String>,
    /// Where it redirects, if it does.
    pub redirect_to: Option<String>,
}

/// The fence: still being fetched, and by this claim: no two claims have one fence.
const FENCE: &str = "#status = :fetching AND fence = :fence";

/// What the answer did not have is removed: [`Crawler::mark_fetched`] adds both.
const FETCHED: &str = "SET #status = :to, http_status = :http, content_hash = :hash, \
     raw_blob_key = :key, content_type = :type, fetched_at = :now, not_before = :now, \
     parse_attempts = :none, waits = :none, lane = :lane, lane_at = :due";
const RETRY: &str = "SET #status = :to, reason = :why, not_before = :at, lane_at = :due";
/// The host said "later": the attempt is not counted, the wait is.
const WAIT: &str = "SET #status = :to, reason = :why, not_before = :at, lane_at = :due \
     ADD fetch_attempts :minus_one, waits :one";
const FAIL: &str = "SET #status = :to, reason = :why, lane = :lane, lane_at = :now";

/// What comes after a fetch that did not work out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// Another attempt.
    Retry {
        /// When.
        at: Millis,
    },
    /// It was the last one.
    GiveUp,
}

impl Crawler {
    /// Mark fetched. The parse message is another call, and the sweeper's if nobody makes it.
    pub async fn mark_fetched(
        &self,
        run: &FetchRun,
        fetched: &Fetched,
    ) -> Result<Finish, CrawlerError> {
        let now = self.now();
        let mut values = vec![
            (":http", n(fetched.http_status)),
            (":hash", s(&fetched.content_hash)),
            (":key", s(&fetched.raw_blob_key)),
            (":type", s(&fetched.content_type)),
            (":now", n(now)),
            (":none", n(0)),
            (":lane", s(watch_lane(&run.url.url_hash))),
            (":due", n(now + GRACE_MS)),
        ];
        let (mut set, mut remove) = (FETCHED.to_owned(), " REMOVE reason".to_owned());
        for (name, placeholder, value) in [
            ("etag", ":etag", &fetched.etag),
            ("last_modified", ":modified", &fetched.last_modified),
            ("redirect_to", ":redirect", &fetched.redirect_to),
        ] {
            match value {
                Some(value) => {
                    set.push_str(&format!(", {name} = {placeholder}"));
                    values.push((placeholder, s(value)));
                }
                None => remove.push_str(&format!(", {name}")),
            }
        }
        let update = set + &remove;
        self.end_fetch(run, Status::Fetched, &update, values).await
    }

    /// The attempt failed: another one after a pause, or none. The reason stands in the row.
    pub async fn fetch_failed(
        &self,
        run: &FetchRun,
        why: &str,
    ) -> Result<(Finish, After), CrawlerError> {
        let now = self.now();
        match after_failure(run.url.fetch_attempts, now) {
            AfterFailure::Retry { at } => {
                let values = retry_values(why, at);
                let ended = self.end_fetch(run, Status::Retrying, RETRY, values).await?;
                if ended == Finish::Done {
                    self.send_frontier(&run.url.url_hash, at).await?;
                }
                Ok((ended, After::Retry { at }))
            }
            AfterFailure::GiveUp => Ok((self.give_up_fetch(run, why).await?, After::GiveUp)),
        }
    }

    /// The host wants to be asked later, or the worker has to go. That uses up no attempt, but a host
    /// that always says "later" is given up in the end.
    pub async fn fetch_later(
        &self,
        run: &FetchRun,
        why: &str,
        at: Millis,
    ) -> Result<(Finish, After), CrawlerError> {
        if run.url.waits >= MAX_WAITS {
            let why = format!("{why}, {MAX_WAITS} times");
            return Ok((self.give_up_fetch(run, &why).await?, After::GiveUp));
        }
        let mut values = retry_values(why, at);
        values.extend([(":minus_one", n(-1)), (":one", n(1))]);
        let ended = self.end_fetch(run, Status::Retrying, WAIT, values).await?;
        if ended == Finish::Done {
            self.send_frontier(&run.url.url_hash, at).await?;
        }
        Ok((ended, After::Retry { at }))
    }

    /// There is no use in trying again.
    pub async fn give_up_fetch(&self, run: &FetchRun, why: &str) -> Result<Finish, CrawlerError> {
        let values = vec![
            (":why", s(shortened(why))),
            (":lane", s(failed_lane(&run.url.url_hash))),
            (":now", n(self.now())),
        ];
        self.end_fetch(run, Status::Failed, FAIL, values).await
    }

    /// Writes the end of a fetch under the fence.
    async fn end_fetch(
        &self,
        run: &FetchRun,
        to: Status,
        update: &str,
        values: Vec<(&str, AttributeValue)>,
    ) -> Result<Finish, CrawlerError> {
        let mut write = self
            .dynamodb()
            .update_item()
            .table_name(self.table("url_metadata"))
            .key("url_hash", s(&run.url.url_hash))
            .update_expression(update)
            .condition_expression(FENCE)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":fetching", status(Status::Fetching))
            .expression_attribute_values(":fence", n(run.url.fence))
            .expression_attribute_values(":to", status(to))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for (name, value) in values {
            write = write.expression_attribute_values(name, value);
        }
        let old = match settled!(write)? {
            Guard::Passed(_) => return Ok(Finish::Done),
            Guard::Failed(None) => return Ok(Finish::Stale),
            Guard::Failed(Some(old)) => from_item::<UrlMetadataState>(&old)?,
        };
        // An answer was lost: what stands there is what we wrote.
        let ours = old.status == to
            && old.lease_owner.as_ref() == Some(&run.owner)
            && old.fence == run.url.fence;
        Ok(if ours { Finish::Done } else { Finish::Stale })
    }
}

fn retry_values(why: &str, at: Millis) -> Vec<(&'static str, AttributeValue)> {
    vec![
        (":why", s(shortened(why))),
        (":at", n(at)),
        (":due", n(at + GRACE_MS)),
    ]
}

/// A reason has an end.
pub(crate) fn shortened(why: &str) -> String {
    why.chars().take(300).collect()
}
