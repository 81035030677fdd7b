//! Heartbeat: a long job says that it lives. Lease and visibility move together.

use crate::claim_run::Run;
use crate::domain::{ExecutionState, ExecutionStatus, GRACE_MS};
use crate::finish_run::Finish;
use crate::items::{guarded_update, key, status};
use crate::{Scheduler, SchedulerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::Guard;
use cloud::item::{from_item, n, s};
use std::time::Duration;

/// A worker that has lost the lease does not get it back by breathing. A heartbeat that arrives late does not
/// shorten it.
const FENCE: &str = "#status = :in_progress AND lease_owner = :me AND attempt = :attempt \
     AND lease_expires_at < :until";

const EXTEND: &str = "SET lease_expires_at = :until, due_at = :due";

impl Scheduler {
    /// Extends the lease by its length from now. First the row, then the message: if only the first
    /// is done, the message comes back early, finds the lease alive and is hidden again. The other
    /// way round, a lease could expire while nobody is told.
    pub async fn heartbeat(&self, run: &Run) -> Result<Finish, SchedulerError> {
        let extended = self.extend_lease(run).await?;
        if extended == Finish::Done {
            self.keep_hidden(run).await;
        }
        Ok(extended)
    }

    /// The row's part of a heartbeat.
    pub(crate) async fn extend_lease(&self, run: &Run) -> Result<Finish, SchedulerError> {
        let until = self.now() + run.job.lease_ms;
        let extend = self
            .dynamodb()
            .update_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(&run.execution.execution_id)?))
            .update_expression(EXTEND)
            .condition_expression(FENCE)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":in_progress", status(ExecutionStatus::InProgress))
            .expression_attribute_values(":me", s(&run.owner))
            .expression_attribute_values(":attempt", n(run.execution.attempt))
            .expression_attribute_values(":until", n(until))
            .expression_attribute_values(":due", n(until + GRACE_MS))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        if let Guard::Failed(old) = guarded_update(extend).await? {
            let old: Option<ExecutionState> = old.as_ref().map(from_item).transpose()?;
            let ours = old.is_some_and(|old| {
                old.status == ExecutionStatus::InProgress
                    && old.lease_owner.as_ref() == Some(&run.owner)
                    && old.attempt == run.execution.attempt
            });
            if !ours {
                return Ok(Finish::Stale);
            }
        }
        Ok(Finish::Done)
    }

    /// Hides the message as long as the lease lasts. That may fail or hang: the row is the lease. It is given up
    /// before the next heartbeat is due.
    pub(crate) async fn keep_hidden(&self, run: &Run) {
        let until = self.now() + run.job.lease_ms;
        let moment = Duration::from_millis(run.job.lease_ms as u64 / 9);
        let hiding = self.hint(self.hide(&run.message, until));
        let _ = tokio::time::timeout(moment, hiding).await;
    }
}
