//! Mark completed, mark retrying, mark failed: only by whoever has the current attempt.

use crate::claim_run::Run;
use crate::domain::{AfterFailure, ExecutionState, ExecutionStatus, GRACE_MS};
use crate::items::{dead_lane, expires_at, guarded_update, key, status};
use crate::overlap::Overlap;
use crate::{ATTEMPTS, Scheduler, SchedulerError, domain};
use aws_sdk_dynamodb::types::{
    AttributeValue, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Guard, Item, Millis, Transaction};
use std::time::Duration;

/// What became of a worker's last word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// It stands in the row.
    Done,
    /// The lease was lost: somebody else has a later attempt, or it has ended. Nothing was changed.
    Stale,
}

/// The fence: still running, and by this attempt of this worker.
const FENCE: &str = "#status = :in_progress AND lease_owner = :me AND attempt = :attempt";

/// Without `due_shard` the execution leaves the index of what is due.
const COMPLETE: &str = "SET #status = :to, completed_at = :now, expires_at = :expires \
     REMOVE due_shard, due_at";
const RETRY: &str = "SET #status = :to, not_before = :at, due_at = :due, reason = :why";
/// It stays in the index until it is in the dead-letter queue.
const FAIL: &str = "SET #status = :to, completed_at = :now, expires_at = :expires, \
     due_at = :due, reason = :why";
const GIVE_BACK: &str = "SET #status = :to, not_before = :at, due_at = :due, reason = :why, \
     attempt_limit = attempt_limit + :one";

/// Only what has failed is buried, and only the failure that was seen: it may have been redriven and
/// have failed again. What a redrive has taken out of the index, since its job was cancelled, stays out of it.
const BURY_GUARD: &str = "#status = :failed AND attempt = :attempt AND attribute_exists(due_shard)";
const BURY: &str = "SET due_shard = :dead";

/// One way to end an attempt.
struct Ending {
    to: ExecutionStatus,
    update: &'static str,
    values: Vec<(&'static str, AttributeValue)>,
    /// Whether the execution ends, or only the attempt.
    for_good: bool,
}

/// How long the dead-letter queue may take. Less than a sweeper has for one execution.
const DEAD_PATIENCE: Duration = Duration::from_secs(1);

impl Scheduler {
    /// It is done. The message goes last: as long as it is there, nothing is forgotten.
    pub async fn complete(&self, run: &Run) -> Result<Finish, SchedulerError> {
        let now = self.now();
        let ending = Ending {
            to: ExecutionStatus::Completed,
            update: COMPLETE,
            values: vec![(":now", n(now)), (":expires", n(expires_at(now)))],
            for_good: true,
        };
        let finish = Box::pin(self.end(run, &ending, now)).await?;
        self.hint(self.delete(&run.message)).await;
        Ok(finish)
    }

    /// The attempt failed: another one after a pause, or, after the last, the dead-letter queue.
    pub async fn fail(
        &self,
        run: &Run,
        why: &str,
    ) -> Result<(Finish, AfterFailure), SchedulerError> {
        let now = self.now();
        let after = domain::after_failure(&run.execution, now);
        let why = (":why", s(why.chars().take(1_000).collect::<String>()));
        let ending = match after {
            AfterFailure::Retry { at } => Ending {
                to: ExecutionStatus::Retrying,
                update: RETRY,
                values: vec![(":at", n(at)), (":due", n(at + GRACE_MS)), why],
                for_good: false,
            },
            AfterFailure::Fail => Ending {
                to: ExecutionStatus::Failed,
                update: FAIL,
                values: vec![
                    (":now", n(now)),
                    (":expires", n(expires_at(now))),
                    (":due", n(now + GRACE_MS)),
                    why,
                ],
                for_good: true,
            },
        };
        let finish = Box::pin(self.end(run, &ending, now)).await?;
        if finish == Finish::Done {
            match after {
                AfterFailure::Retry { at } => self.hint(self.send(&run.execution, at)).await,
                AfterFailure::Fail => self.hint(self.bury(&run.execution)).await,
            }
        }
        self.hint(self.delete(&run.message)).await;
        Ok((finish, after))
    }

    /// The worker has to go and cannot finish: somebody else may begin at once, and the attempt is
    /// not counted against the job.
    pub async fn give_back(&self, run: &Run) -> Result<Finish, SchedulerError> {
        let now = self.now();
        let ending = Ending {
            to: ExecutionStatus::Retrying,
            update: GIVE_BACK,
            values: vec![
                (":at", n(run.execution.not_before)),
                (":due", n(now + GRACE_MS)),
                (":why", s("the worker was stopped")),
                (":one", n(1)),
            ],
            for_good: false,
        };
        let finish = Box::pin(self.end(run, &ending, now)).await?;
        self.hint(self.hide(&run.message, now)).await;
        Ok(finish)
    }

    /// Writes the end of an attempt under the fence, with whatever must change together with it.
    async fn end(&self, run: &Run, ending: &Ending, now: Millis) -> Result<Finish, SchedulerError> {
        // Overlapping runs leave nothing behind on the job, and one plain write is half the price.
        if run.job.overlap == Overlap::AllowAll || !ending.for_good {
            let mut update = self
                .dynamodb()
                .update_item()
                .table_name(self.table("executions"))
                .set_key(Some(key(&run.execution.execution_id)?))
                .update_expression(ending.update)
                .condition_expression(FENCE)
                .expression_attribute_names("#status", "status")
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            for (name, value) in ending.values(run) {
                update = update.expression_attribute_values(name, value);
            }
            return match guarded_update(update).await? {
                Guard::Passed(_) => Ok(Finish::Done),
                Guard::Failed(old) => Ok(ending.refused(run, old.as_ref())?),
            };
        }
        for attempt in 0..ATTEMPTS {
            let job = self.known_job(&run.job.job_id).await?;
            let mut update = Update::builder()
                .table_name(self.table("executions"))
                .set_key(Some(key(&run.execution.execution_id)?))
                .update_expression(ending.update)
                .condition_expression(FENCE)
                .expression_attribute_names("#status", "status")
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            for (name, value) in ending.values(run) {
                update = update.expression_attribute_values(name, value);
            }
            let update = update.build().map_err(CloudError::bug)?;
            let mut release = self.release(&job, &run.execution, now)?;
            let mut names = vec!["execution"];
            let mut items = vec![TransactWriteItem::builder().update(update).build()];
            names.extend(&release.names);
            items.append(&mut release.items);
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    self.send_released(&release).await;
                    return Ok(Finish::Done);
                }
                Ok(Transaction::Cancelled(cancelled)) => {
                    // Otherwise somebody has begun to wait: look at the job again.
                    if let Some(old) = cancelled.failed("execution") {
                        let finish = ending.refused(run, old)?;
                        if finish == Finish::Done {
                            self.send_released(&release).await;
                        }
                        return Ok(finish);
                    }
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(SchedulerError::Contended)
    }

    /// Puts what has failed into the dead-letter queue, and then from the lane of what is watched into that of
    /// the dead, where a redrive finds it though SQS lose the queue. A worker that dies in between leaves it to the
    /// sweeper, which buries it: twice in the queue, never not. A queue that is gone or hangs keeps nothing in the
    /// sweeper's way: the row is moved all the same.
    pub async fn bury(&self, execution: &ExecutionState) -> Result<(), CloudError> {
        let _ = tokio::time::timeout(DEAD_PATIENCE, self.send_dead(execution)).await;
        let bury = self
            .dynamodb()
            .update_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(&execution.execution_id)?))
            .update_expression(BURY)
            .condition_expression(BURY_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":failed", status(ExecutionStatus::Failed))
            .expression_attribute_values(":attempt", n(execution.attempt))
            .expression_attribute_values(":dead", s(dead_lane(&execution.job_id)));
        guarded_update(bury).await.map(|_| ())
    }
}

impl Ending {
    fn values(&self, run: &Run) -> Vec<(&'static str, AttributeValue)> {
        let mut values = self.values.clone();
        values.extend([
            (":to", status(self.to)),
            (":in_progress", status(ExecutionStatus::InProgress)),
            (":me", s(&run.owner)),
            (":attempt", n(run.execution.attempt)),
        ]);
        values
    }

    /// What the refusal means: an answer that was lost, or a lease.
    fn refused(&self, run: &Run, old: Option<&Item>) -> Result<Finish, CloudError> {
        let Some(old) = old else {
            return Ok(Finish::Stale);
        };
        let old: ExecutionState = from_item(old)?;
        let ours = old.status == self.to
            && old.lease_owner.as_ref() == Some(&run.owner)
            && old.attempt == run.execution.attempt;
        Ok(if ours { Finish::Done } else { Finish::Stale })
    }
}
