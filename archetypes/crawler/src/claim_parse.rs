//! Claim parse run: what was fetched becomes a second lease, with the same fence.

use crate::domain::{
    GRACE_MS, LEASE_MS, LONGEST_BACKOFF_MS, MAX_ATTEMPTS, Status, UrlMetadataState,
};
use crate::items::{failed_lane, settled, status, watch_lane};
use crate::queue::{Message, UrlParseRunState};
use crate::{ATTEMPTS, Crawler, CrawlerError};
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard, Item, Millis};

/// URLParseRunState, once it is claimed: a URL that a worker parses.
#[derive(Debug, Clone)]
pub struct ParseRun {
    /// The URL, as it is since the claim.
    pub url: UrlMetadataState,
    /// Who has it.
    pub owner: String,
}

/// What became of a claim.
#[derive(Debug, Clone)]
pub enum ClaimedParse {
    /// It is ours: parse it.
    Run(Box<ParseRun>),
    /// The message says nothing new.
    Echo,
    /// Somebody has it.
    Held {
        /// Until then.
        until: Millis,
    },
    /// The last attempt did not work out, and its pause is not over.
    TooEarly {
        /// When it is.
        at: Millis,
    },
    /// Parsers died of it, again and again.
    Failed,
}

/// It is as it was when this was decided: each claim changes `fence`, each end of a run the status.
const GUARD: &str = "fence = :seen AND #status = :was";
/// A lease that has run out is taken over as it was read: each claim and each heartbeat moves its end.
const TAKE_OVER_GUARD: &str = "#status = :was AND lease_expires_at = :ended";

const START: &str = "SET #status = :parsing, fence = :fence, lease_owner = :me, \
     lease_expires_at = :until, lane = :watch, lane_at = :due ADD parse_attempts :one";
/// The heartbeat: still being parsed, by this claim. A copy that lands late ends no later than its original.
const KEEP_GUARD: &str = "#status = :parsing AND fence = :fence AND lease_expires_at < :until";
const KEEP: &str = "SET lease_expires_at = :until, lane_at = :due";

const FAIL: &str = "SET #status = :failed, reason = :why, lane = :lane, lane_at = :now";

/// A parse that did not work out has a pause before the next one. A page that was never parsed has none: its
/// `not_before` is by the clock of its fetcher. Nor has one whose pause is longer than any, by a clock that was wrong.
fn is_put_off(url: &UrlMetadataState, now: Millis) -> bool {
    let was_tried = url.parse_attempts > 0 || url.waits > 0;
    was_tried && (1..=LONGEST_BACKOFF_MS).contains(&(url.not_before - now))
}

impl Crawler {
    /// Claims what a message is about, for `owner`.
    pub async fn claim_parse(
        &self,
        message: &Message<UrlParseRunState>,
        owner: &str,
    ) -> Result<ClaimedParse, CrawlerError> {
        let Some(says) = &message.says else {
            return Ok(ClaimedParse::Echo);
        };
        for _ in 0..ATTEMPTS {
            let now = self.now();
            let Some(url) = self.read_url(&says.url_hash).await? else {
                return Ok(ClaimedParse::Echo);
            };
            match (url.status, url.lease_expires_at) {
                (Status::Fetched, _) if is_put_off(&url, now) => {
                    return Ok(ClaimedParse::TooEarly { at: url.not_before });
                }
                (Status::Fetched, _) => {}
                (Status::Parsing, Some(until)) if until > now => {
                    return Ok(ClaimedParse::Held { until });
                }
                (Status::Parsing, _) => {}
                _ => return Ok(ClaimedParse::Echo),
            }
            let gives_up = url.parse_attempts >= MAX_ATTEMPTS;
            let update = self
                .dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(&url.url_hash))
                .update_expression(if gives_up { FAIL } else { START })
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":was", status(url.status))
                // With the depth it has at this moment: a shorter way may just have been found.
                .return_values(ReturnValue::AllNew)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            let update = match url.lease_expires_at {
                Some(ended) if url.status == Status::Parsing => update
                    .condition_expression(TAKE_OVER_GUARD)
                    .expression_attribute_values(":ended", n(ended)),
                _ => update
                    .condition_expression(GUARD)
                    .expression_attribute_values(":seen", n(url.fence)),
            };
            let update = match gives_up {
                true => update
                    .expression_attribute_values(":failed", status(Status::Failed))
                    .expression_attribute_values(":why", s("the parser died, again and again"))
                    .expression_attribute_values(":lane", s(failed_lane(&url.url_hash)))
                    .expression_attribute_values(":now", n(now)),
                false => update
                    .expression_attribute_values(":parsing", status(Status::Parsing))
                    .expression_attribute_values(":fence", n(url.fence + 1))
                    .expression_attribute_values(":me", s(owner))
                    .expression_attribute_values(":until", n(now + LEASE_MS))
                    .expression_attribute_values(":watch", s(watch_lane(&url.url_hash)))
                    .expression_attribute_values(":due", n(now + LEASE_MS + GRACE_MS))
                    .expression_attribute_values(":one", n(1)),
            };
            let run = |item: Option<Item>| {
                let item = item.ok_or_else(|| CloudError::corrupt("a claim without its item"))?;
                let owner = owner.to_owned();
                let url = from_item(&item)?;
                Ok::<_, CloudError>(ClaimedParse::Run(Box::new(ParseRun { url, owner })))
            };
            match settled!(update)? {
                Guard::Passed(_) if gives_up => return Ok(ClaimedParse::Failed),
                Guard::Passed(output) => return Ok(run(output.attributes)?),
                Guard::Failed(None) => return Ok(ClaimedParse::Echo),
                Guard::Failed(Some(old)) => {
                    let row: UrlMetadataState = from_item(&old)?;
                    // An answer was lost: what stands there is what we wrote.
                    let ours = row.status == Status::Parsing
                        && row.lease_owner.as_deref() == Some(owner)
                        && row.fence == url.fence + 1;
                    if ours {
                        return Ok(run(Some(old))?);
                    }
                }
            }
        }
        Err(CrawlerError::Contended)
    }
}

impl Crawler {
    /// The heartbeat of a parser: makes the lease last, once half of it has passed. False if the lease was
    /// lost.
    pub async fn keep_parse(&self, run: &mut ParseRun) -> Result<bool, CrawlerError> {
        let now = self.now();
        let until = now + LEASE_MS;
        let ends = run.url.lease_expires_at.unwrap_or(now);
        if ends - now > LEASE_MS / 2 {
            return Ok(true);
        }
        let kept = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(&run.url.url_hash))
                .update_expression(KEEP)
                .condition_expression(KEEP_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":parsing", status(Status::Parsing))
                .expression_attribute_values(":fence", n(run.url.fence))
                .expression_attribute_values(":until", n(until))
                .expression_attribute_values(":due", n(until + GRACE_MS))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        if let Guard::Failed(old) = kept {
            let old: Option<UrlMetadataState> = old.as_ref().map(from_item).transpose()?;
            // Our own write, whose answer was lost.
            let ours = |old: UrlMetadataState| {
                old.status == Status::Parsing
                    && old.fence == run.url.fence
                    && old.lease_expires_at >= Some(until)
            };
            if !old.is_some_and(ours) {
                return Ok(false);
            }
        }
        run.url.lease_expires_at = Some(until);
        Ok(true)
    }
}
