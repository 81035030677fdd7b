//! Mark parsed: the last step, when the text is stored and every link is in the frontier.

use crate::claim_parse::ParseRun;
use crate::domain::{AfterFailure, Status, UrlMetadataState, after_failure};
use crate::items::{failed_lane, parsed_lane, settled, status};
use crate::mark_fetched::{Finish, shortened};
use crate::{Crawler, CrawlerError};
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use cloud::item::{from_item, n, s};
use cloud::{Guard, Millis};

/// What became of a parser's last word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// It is PARSED.
    Done,
    /// Somebody else has a later claim, or it has ended.
    Stale,
    /// Still ours, but a shorter way to it was found: its links are to be expanded again.
    Shortened(Box<UrlMetadataState>),
}

/// The fence: still being parsed, by this claim: no two claims have one fence.
const FENCE: &str = "#status = :parsing AND fence = :fence";
/// The same, and what its links were expanded with is still so.
const PARSED_GUARD: &str = "#status = :parsing AND fence = :fence \
     AND #depth = :depth AND redirects = :redirects";

const PARSED: &str = "SET #status = :to, text_blob_key = :text, links = :links, parsed_at = :now, \
     lane = :lane, lane_at = :fetched_at";
/// A message that comes again does not shorten the pause.
const RETRY: &str = "SET #status = :to, reason = :why, not_before = :due, lane_at = :due";
/// The store failed, not the page: the attempt is not counted, the wait is.
const WAIT: &str = "SET #status = :to, reason = :why, not_before = :due, lane_at = :due \
     ADD parse_attempts :minus_one, waits :one";
const FAIL: &str = "SET #status = :to, reason = :why, lane = :lane, lane_at = :now";

impl Crawler {
    /// Mark parsed.
    pub async fn mark_parsed(
        &self,
        run: &ParseRun,
        text_blob_key: &str,
        links: u32,
    ) -> Result<Parsed, CrawlerError> {
        let now = self.now();
        let write = self
            .dynamodb()
            .update_item()
            .table_name(self.table("url_metadata"))
            .key("url_hash", s(&run.url.url_hash))
            .update_expression(PARSED)
            .condition_expression(PARSED_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#depth", "depth")
            .expression_attribute_values(":parsing", status(Status::Parsing))
            .expression_attribute_values(":fence", n(run.url.fence))
            .expression_attribute_values(":depth", n(run.url.depth))
            .expression_attribute_values(":redirects", n(run.url.redirects))
            .expression_attribute_values(":to", status(Status::Parsed))
            .expression_attribute_values(":text", s(text_blob_key))
            .expression_attribute_values(":links", n(links))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":lane", s(parsed_lane(&run.url.url_hash)))
            .expression_attribute_values(":fetched_at", n(run.url.fetched_at.unwrap_or(now)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let old = match settled!(write)? {
            Guard::Passed(_) => return Ok(Parsed::Done),
            Guard::Failed(None) => return Ok(Parsed::Stale),
            Guard::Failed(Some(old)) => from_item::<UrlMetadataState>(&old)?,
        };
        let ours = old.lease_owner.as_ref() == Some(&run.owner) && old.fence == run.url.fence;
        Ok(match old.status {
            // An answer was lost: what stands there is what we wrote.
            Status::Parsed if ours => Parsed::Done,
            Status::Parsing if ours => Parsed::Shortened(Box::new(old)),
            _ => Parsed::Stale,
        })
    }

    /// The attempt failed: it is FETCHED again, and the sweeper sends it after a pause; or it is over.
    pub async fn parse_failed(&self, run: &ParseRun, why: &str) -> Result<Finish, CrawlerError> {
        let now = self.now();
        let why = (":why", s(shortened(why)));
        match after_failure(run.url.parse_attempts, now) {
            AfterFailure::Retry { at } => {
                let values = vec![why, (":due", n(at))];
                self.end_parse(run, Status::Fetched, RETRY, values).await
            }
            AfterFailure::GiveUp => {
                let lane = (":lane", s(failed_lane(&run.url.url_hash)));
                let values = vec![why, lane, (":now", n(now))];
                self.end_parse(run, Status::Failed, FAIL, values).await
            }
        }
    }

    /// The worker could not go on, through no fault of the page: it is FETCHED again, and the sweeper
    /// sends it.
    pub async fn parse_later(
        &self,
        run: &ParseRun,
        why: &str,
        at: Millis,
    ) -> Result<Finish, CrawlerError> {
        let values = vec![
            (":why", s(shortened(why))),
            (":due", n(at)),
            (":minus_one", n(-1)),
            (":one", n(1)),
        ];
        self.end_parse(run, Status::Fetched, WAIT, values).await
    }

    async fn end_parse(
        &self,
        run: &ParseRun,
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
            .expression_attribute_values(":parsing", status(Status::Parsing))
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
        let ours = old.status == to
            && old.lease_owner.as_ref() == Some(&run.owner)
            && old.fence == run.url.fence;
        Ok(if ours { Finish::Done } else { Finish::Stale })
    }
}
