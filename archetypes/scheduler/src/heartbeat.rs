//! Heartbeat: a long job says that it lives. Lease and visibility move together.

use crate::claim_run::Run;
use crate::domain::{ExecutionStatus, GRACE_MS};
use crate::finish_run::Finish;
use crate::items::{key, status};
use crate::{Scheduler, SchedulerError};
use cloud::item::{n, s};
use cloud::{Guard, Guarded};

/// Who has lost the lease does not get it back by breathing.
const FENCE: &str = "#status = :in_progress AND lease_owner = :me AND attempt = :attempt";

const EXTEND: &str = "SET lease_expires_at = :until, due_at = :due";

impl Scheduler {
    /// Extends the lease by its length from now. First the row, then the message: if only the first
    /// is done, the message comes back early, finds the lease alive and is hidden again. The other
    /// way round, a lease could expire while nobody is told.
    pub async fn heartbeat(&self, run: &Run) -> Result<Finish, SchedulerError> {
        let until = self.now() + run.job.lease_ms;
        let extended = self
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
            .send()
            .await
            .guarded()?;
        match extended {
            Guard::Failed(_) => Ok(Finish::Stale),
            Guard::Passed(_) => {
                self.hide(&run.message, until).await?;
                Ok(Finish::Done)
            }
        }
    }
}
