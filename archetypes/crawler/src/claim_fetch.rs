//! Mark URL fetching: a message becomes a lease, and the host's turn with it.
//!
//! The documents mark only what is DISCOVERED or RETRYING: a worker that dies in FETCHING takes the URL
//! with it, since the message that comes back is refused for ever. Here a lease that has expired can be
//! taken. `fence` grows with each claim: whoever lost the lease without noticing can no longer write.
//!
//! The lease on the URL and the turn of its host are one transaction: nobody holds a page while waiting
//! for the host, and waiting uses up no attempts.

use crate::domain::{
    DomainPolicyState, FetchDecision, GRACE_MS, LEASE_MS, Status, TURN_MS, UrlMetadataState, delay,
    fetch_decision, is_first, wait_for,
};
use crate::items::{failed_lane, settled, status, watch_lane};
use crate::queue::{Message, UrlFrontierState};
use crate::{ATTEMPTS, Crawler, CrawlerError};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Guard, Millis, Transaction};

/// URLFetchRunState: a URL that a worker has, and its host's turn.
#[derive(Debug, Clone)]
pub struct FetchRun {
    /// The URL, as it is since the claim: `fence` is the fence.
    pub url: UrlMetadataState,
    /// Its host, as it was before.
    pub host: DomainPolicyState,
    /// Who has it.
    pub owner: String,
    /// The turn: what releasing it is recognized by.
    pub turn_id: String,
    /// The request must be over by then.
    pub turn_ends_at: Millis,
}

/// What became of a claim.
#[derive(Debug, Clone)]
pub enum ClaimedFetch {
    /// It is ours: fetch it.
    Run(Box<FetchRun>),
    /// The message says nothing new.
    Echo,
    /// Somebody has it.
    Held {
        /// Until then.
        until: Millis,
    },
    /// Its time has not come, or its host's.
    TooEarly {
        /// When it comes.
        at: Millis,
    },
    /// Somebody is at its host.
    Busy {
        /// The end of their turn, if they died of it.
        until: Millis,
    },
    /// Nobody knows yet what its host allows.
    NeedsRobots {
        /// The host.
        origin: String,
    },
    /// It will not be fetched, and the row says why.
    Failed {
        /// Why.
        reason: String,
    },
}

/// It is as it was when this was decided: each claim changes `fence`, each end of a run the status. Who
/// may take what, and when, is [`fetch_decision`]; the documents' `status IN {DISCOVERED, RETRYING}` is a
/// part of it.
const GUARD: &str = "fence = :seen AND #status = :was";

const START: &str = "SET #status = :fetching, fence = :fence, lease_owner = :me, \
     lease_expires_at = :until, lane = :watch, lane_at = :due ADD fetch_attempts :one";

/// The host's turn is free, and it has pages left. Its rules need no guard of their own: they change only in
/// a turn that was taken after they expired, so `next_allowed_at` is then past `:now`.
const HOST_GUARD: &str = "next_allowed_at <= :now AND pages < :most";
/// A URL that has been fetched before is counted already.
const HOST_AGAIN_GUARD: &str = "next_allowed_at <= :now";

/// Taking the turn closes the host until the turn would be over, and the pause after it: who dies with
/// it keeps everybody away for so long, and no longer.
const TAKE_TURN: &str = "SET next_allowed_at = :over, turn_id = :turn, \
     turn_ends_at = :ends ADD pages :count";

/// Giving up leaves the fence as it is, and so does the seed that opens the URL again. Its time is new then: a late
/// copy does not give it up once more.
const FAIL_GUARD: &str = "fence = :seen AND #status = :was AND not_before = :as_read";
const FAIL: &str = "SET #status = :failed, reason = :why, lane = :lane, lane_at = :now";

impl Crawler {
    /// Claims what a message is about, for `owner`: a name that nobody else claims under at the same
    /// time.
    pub async fn claim_fetch(
        &self,
        message: &Message<UrlFrontierState>,
        owner: &str,
    ) -> Result<ClaimedFetch, CrawlerError> {
        let Some(says) = &message.says else {
            return Ok(ClaimedFetch::Echo);
        };
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let Some(url) = self.read_url(&says.url_hash).await? else {
                return Ok(ClaimedFetch::Echo);
            };
            // What is over or held is known without asking about the host.
            let alone = fetch_decision(&url, None, crate::domain::Verdict::Allowed, 0, now);
            let host = match &alone {
                FetchDecision::NeedsRobots => self.read_policy(&url.origin).await?,
                _ => None,
            };
            let decision = match &host {
                None => alone,
                Some(host) => {
                    let verdict = self.robots_verdict(host, &url).await?;
                    let most = self.rules.pages_per_host;
                    fetch_decision(&url, Some(host), verdict, most, now)
                }
            };
            match (decision, host) {
                (FetchDecision::Echo, _) => return Ok(ClaimedFetch::Echo),
                (FetchDecision::Held { until }, _) => return Ok(ClaimedFetch::Held { until }),
                (FetchDecision::TooEarly { at }, _) => return Ok(ClaimedFetch::TooEarly { at }),
                (FetchDecision::Busy { until }, _) => return Ok(ClaimedFetch::Busy { until }),
                (FetchDecision::NeedsRobots, _) | (FetchDecision::Start, None) => {
                    let origin = url.origin;
                    return Ok(ClaimedFetch::NeedsRobots { origin });
                }
                (FetchDecision::Fail(reason), _) => {
                    if self.fail_unfetched(&url, &reason, now).await? {
                        return Ok(ClaimedFetch::Failed { reason });
                    }
                }
                (FetchDecision::Start, Some(host)) => {
                    match self.start(&url, host, owner, now).await {
                        Ok(Some(claimed)) => return Ok(claimed),
                        Ok(None) => {}
                        Err(CloudError::Conflict(_)) => pause(attempt).await,
                        Err(fault) => return Err(fault.into()),
                    }
                }
            }
        }
        Err(CrawlerError::Contended)
    }

    /// The transaction. None if what it was decided on has changed.
    async fn start(
        &self,
        url: &UrlMetadataState,
        host: DomainPolicyState,
        owner: &str,
        now: Millis,
    ) -> Result<Option<ClaimedFetch>, CloudError> {
        let (fence, until) = (url.fence + 1, now + LEASE_MS);
        let turn_id = format!("{}#{fence}#{owner}", url.url_hash);
        let turn_ends_at = now + TURN_MS;
        let over = turn_ends_at + delay(self.rules.delay_ms, host.crawl_delay_ms);
        let mark = Update::builder()
            .table_name(self.table("url_metadata"))
            .key("url_hash", s(&url.url_hash))
            .update_expression(START)
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":seen", n(url.fence))
            .expression_attribute_values(":was", status(url.status))
            .expression_attribute_values(":fetching", status(Status::Fetching))
            .expression_attribute_values(":fence", n(fence))
            .expression_attribute_values(":me", s(owner))
            .expression_attribute_values(":until", n(until))
            .expression_attribute_values(":watch", s(watch_lane(&url.url_hash)))
            .expression_attribute_values(":due", n(until + GRACE_MS))
            .expression_attribute_values(":one", n(1))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(CloudError::bug)?;
        let turn = Update::builder()
            .table_name(self.table("domain_policies"))
            .key("origin", s(&url.origin))
            .update_expression(TAKE_TURN)
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":over", n(over))
            .expression_attribute_values(":turn", s(&turn_id))
            .expression_attribute_values(":ends", n(turn_ends_at))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let turn = match is_first(url) {
            true => turn
                .condition_expression(HOST_GUARD)
                .expression_attribute_values(":most", n(self.rules.pages_per_host))
                .expression_attribute_values(":count", n(1)),
            false => turn
                .condition_expression(HOST_AGAIN_GUARD)
                .expression_attribute_values(":count", n(0)),
        };
        let turn = turn.build().map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().update(mark).build(),
            TransactWriteItem::builder().update(turn).build(),
        ];
        let run = || {
            ClaimedFetch::Run(Box::new(FetchRun {
                url: UrlMetadataState {
                    status: Status::Fetching,
                    fence,
                    fetch_attempts: url.fetch_attempts + 1,
                    lease_owner: Some(owner.to_owned()),
                    lease_expires_at: Some(until),
                    ..url.clone()
                },
                host: host.clone(),
                owner: owner.to_owned(),
                turn_id: turn_id.clone(),
                turn_ends_at,
            }))
        };
        let cancelled = match self.cloud.transact(&["url", "host"], items).await? {
            Transaction::Committed(_) => return Ok(Some(run())),
            Transaction::Cancelled(cancelled) => cancelled,
        };
        if let Some(old) = cancelled.failed("url") {
            let Some(old) = old else {
                return Ok(Some(ClaimedFetch::Echo));
            };
            let old: UrlMetadataState = from_item(old)?;
            // An answer was lost: what stands there is what we wrote.
            let ours = old.status == Status::Fetching
                && old.lease_owner.as_deref() == Some(owner)
                && old.fence == fence;
            // Otherwise it is no longer what this was decided on: decide again.
            return Ok(ours.then(run));
        }
        let old = cancelled.failed("host").flatten();
        let old: Option<DomainPolicyState> = old.map(from_item).transpose()?;
        // Another one was faster; or the host's pages are used up: decide again.
        let old = old.filter(|old| old.next_allowed_at > now);
        Ok(old.map(|old| match wait_for(&old, now) {
            FetchDecision::Busy { until } => ClaimedFetch::Busy { until },
            _ => ClaimedFetch::TooEarly {
                at: old.next_allowed_at,
            },
        }))
    }

    /// Gives up a URL that nobody has. False if it is no longer what this was decided on.
    async fn fail_unfetched(
        &self,
        url: &UrlMetadataState,
        reason: &str,
        now: Millis,
    ) -> Result<bool, CloudError> {
        let failed = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(&url.url_hash))
                .update_expression(FAIL)
                .condition_expression(FAIL_GUARD)
                .expression_attribute_values(":as_read", n(url.not_before))
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":seen", n(url.fence))
                .expression_attribute_values(":was", status(url.status))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":failed", status(Status::Failed))
                .expression_attribute_values(":why", s(reason))
                .expression_attribute_values(":lane", s(failed_lane(&url.url_hash)))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        Ok(match failed {
            Guard::Passed(_) => true,
            Guard::Failed(None) => false,
            Guard::Failed(Some(old)) => {
                let old: UrlMetadataState = from_item(&old)?;
                old.status == Status::Failed
                    && old.fence == url.fence
                    && old.reason.as_deref() == Some(reason)
            }
        })
    }
}
