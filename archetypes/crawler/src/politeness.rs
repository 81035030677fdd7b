//! A host's turn: one request at a time, and a pause after it, for any number of workers.
//!
//! One number, `next_allowed_at`, is both the lease and the pause. Taking the turn moves it to where the
//! turn would be over; releasing it moves it back to the end of the pause. Who dies with the turn keeps
//! everybody away until then. `turn_ends_at` is only a hint for those who wait: a turn that is taken
//! ends any moment, a pause at its time.
//!
//! A fence cannot stop a request that is already on its way to somebody else's server. So a request is
//! shorter than a turn, and nobody begins one that could outlast it.

use crate::Crawler;
use crate::domain::{
    DomainPolicyState, FetchDecision, MAX_RETRY_AFTER_MS, REQUEST_MS, TURN_MS, delay, wait_for,
};
use crate::items::settled;
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard, Millis};
use std::time::Duration;

/// How soon a write that must not be forgotten is made again, after pauses that double six times; and how often:
/// about as long as a turn lasts.
const TRY_AGAIN_MS: u64 = 50;
const MAX_TRIES: u32 = 14;

/// A turn that was taken for itself, not with a URL: for a robots.txt.
#[derive(Debug, Clone)]
pub struct Turn {
    /// The host as it is since.
    pub host: DomainPolicyState,
    /// What releasing it is recognized by.
    pub turn_id: String,
    /// The request must be over by then.
    pub ends_at: Millis,
}

/// The host is new, or nobody has its turn and the pause is over.
const GUARD: &str = "attribute_not_exists(origin) OR next_allowed_at <= :now";
const TAKE: &str = "SET next_allowed_at = if_not_exists(crawl_delay_ms, :none) + :over, \
     turn_id = :turn, turn_ends_at = :ends, pages = if_not_exists(pages, :none)";

/// Only the worker that has the turn ends it, and once: a late release would open the host while another
/// worker is at it, and a second one would take back the pause that the host has asked for.
const RELEASE_GUARD: &str = "turn_id = :turn AND attribute_exists(turn_ends_at)";
const RELEASE: &str = "SET next_allowed_at = :next REMOVE turn_ends_at";

impl Crawler {
    /// Takes a host's turn, or says what to wait for. `turn_id` is new for each taking.
    pub async fn take_turn(
        &self,
        origin: &str,
        turn_id: &str,
    ) -> Result<Result<Turn, FetchDecision>, CloudError> {
        let now = self.now();
        let taken = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("domain_policies"))
                .key("origin", s(origin))
                .update_expression(TAKE)
                .condition_expression(GUARD)
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":over", n(now + TURN_MS + self.rules.delay_ms))
                .expression_attribute_values(":turn", s(turn_id))
                .expression_attribute_values(":ends", n(now + TURN_MS))
                .expression_attribute_values(":none", n(0))
                .return_values(ReturnValue::AllNew)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        let item = match taken {
            Guard::Passed(output) => output.attributes,
            Guard::Failed(item) => item,
        };
        let host = item.ok_or_else(|| CloudError::corrupt("a turn without its host"))?;
        let host: DomainPolicyState = from_item(&host)?;
        // Ours, also when the answer to an earlier try was lost.
        if host.turn_id == turn_id {
            return Ok(Ok(Turn {
                host,
                turn_id: turn_id.to_owned(),
                ends_at: now + TURN_MS,
            }));
        }
        Ok(Err(wait_for(&host, now)))
    }

    /// Whether a request that begins now would be over before the turn is.
    pub fn has_time(&self, turn_ends_at: Millis) -> bool {
        self.now() + REQUEST_MS <= turn_ends_at
    }

    /// Ends a turn. What the host asked for would be forgotten if this were not written, so it is tried again
    /// for as long as the turn lasts. Without it the host is left alone until the turn is over.
    pub async fn leave_alone(
        &self,
        host: &DomainPolicyState,
        turn_id: &str,
        ends_at: Millis,
        retry_after_ms: Option<Millis>,
    ) -> Result<(), CloudError> {
        let release = || self.release_turn(host, turn_id, retry_after_ms);
        match retry_after_ms {
            Some(_) => self.while_it_lasts(ends_at, release).await,
            None => release().await,
        }
    }

    /// Writes what must not be forgotten, again while the turn lasts and the store has no room or gives no
    /// answer.
    pub(crate) async fn while_it_lasts<T, Fut>(
        &self,
        ends_at: Millis,
        write: impl Fn() -> Fut,
    ) -> Result<T, CloudError>
    where
        Fut: Future<Output = Result<T, CloudError>>,
    {
        let mut tries = 1;
        loop {
            match write().await {
                Err(
                    CloudError::Throttled(_) | CloudError::Unknown(_) | CloudError::Conflict(_),
                ) if self.now() < ends_at && tries < MAX_TRIES => {
                    let pause = TRY_AGAIN_MS << (tries - 1).min(6);
                    tokio::time::sleep(Duration::from_millis(pause)).await;
                    tries += 1;
                }
                other => return other,
            }
        }
    }

    /// Ends a turn: the host is left alone for its delay, or for as long as it asked.
    pub async fn release_turn(
        &self,
        host: &DomainPolicyState,
        turn_id: &str,
        retry_after_ms: Option<Millis>,
    ) -> Result<(), CloudError> {
        let pause = delay(self.rules.delay_ms, host.crawl_delay_ms);
        let asked = retry_after_ms.unwrap_or(0).min(MAX_RETRY_AFTER_MS);
        settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("domain_policies"))
                .key("origin", s(&host.origin))
                .update_expression(RELEASE)
                .condition_expression(RELEASE_GUARD)
                .expression_attribute_values(":turn", s(turn_id))
                .expression_attribute_values(":next", n(self.now() + pause.max(asked)))
        )?;
        // A turn that is no longer ours has nothing to release.
        Ok(())
    }
}
