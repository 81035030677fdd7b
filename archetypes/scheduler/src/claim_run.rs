//! Claim run and mark in progress: a message, then a guarded write that makes it a lease.
//!
//! The documents claim only PENDING and RETRYING: a worker that dies in between takes its job with
//! it, since the message that comes back is refused for ever. Here a lease that has expired can be
//! taken. `attempt` grows with each claim and is the fencing token: whoever lost the lease without
//! noticing can no longer write.

use crate::domain::{Claim, ExecutionState, ExecutionStatus, GRACE_MS, JobDefinitionState};
use crate::items::{expires_at, key, status, watch_lane};
use crate::overlap::{Overlap, Release};
use crate::queue::{Message, VISIBILITY_SECONDS};
use crate::{ATTEMPTS, Scheduler, SchedulerError, domain};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsOutput;
use aws_sdk_dynamodb::types::{
    ConditionCheck, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Millis, Transaction};

/// A run that a worker has.
#[derive(Debug, Clone)]
pub struct Run {
    /// What is to be done.
    pub job: JobDefinitionState,
    /// The execution, as it is since the claim: `attempt` is the fence.
    pub execution: ExecutionState,
    /// Who has it.
    pub owner: String,
    /// What the handler is told.
    pub parameters: String,
    /// The message it came with.
    pub message: Message,
}

/// What became of a claim.
#[derive(Debug, Clone)]
pub enum Claimed {
    /// It is ours: run it.
    Run(Box<Run>),
    /// The message says nothing new.
    Echo,
    /// Its time has not come.
    TooEarly {
        /// When it comes.
        at: Millis,
    },
    /// Somebody has it.
    Held {
        /// Until then, without a sign of life.
        until: Millis,
    },
    /// It was called off.
    CalledOff,
    /// Another execution of the job runs, or it is too late; this one is skipped.
    Skipped,
    /// Another execution of the job runs; this one waits for its end.
    Waits,
    /// The worker of its last attempt died: it has failed.
    GaveUp,
}

/// It is free to be taken: its time has come, and nobody has it, or somebody whose lease has
/// expired. And it is as it was when this was decided: each claim changes `attempt`, and a new plan
/// that puts another one in its place changes `schedule_version`.
const GUARD: &str = "attempt = :seen AND schedule_version = :plan AND not_before <= :now \
     AND (#status IN (:enqueued, :retrying) \
     OR (#status = :in_progress AND lease_expires_at <= :now))";

const START: &str = "SET #status = :in_progress, attempt = :attempt, lease_owner = :me, \
     lease_expires_at = :until, due_shard = :watch, due_at = :due, \
     started_at = if_not_exists(started_at, :now)";
const END: &str = "SET #status = :to, reason = :why, completed_at = :now, expires_at = :expires \
     REMOVE due_shard, due_at";
const GIVE_UP: &str = "SET #status = :to, reason = :why, completed_at = :now, \
     expires_at = :expires, due_at = :due";
const WAIT: &str = "SET #status = :to REMOVE due_shard, due_at";

/// A first attempt belongs to the plan of its time; a later one only must not be called off.
const PLAN_GUARD: &str = "schedule_version = :version";
const AGAIN_GUARD: &str = "#status <> :cancelled";
/// The same, and the job's one place is free, or ours since an earlier attempt.
const PLACE_PLAN_GUARD: &str = "schedule_version = :version \
     AND (attribute_not_exists(running_execution) OR running_execution = :id)";
const PLACE_AGAIN_GUARD: &str = "#status <> :cancelled \
     AND (attribute_not_exists(running_execution) OR running_execution = :id)";
const TAKE_PLACE: &str = "SET running_execution = :id";

/// Who was seen running still is: otherwise there is no reason to stand back.
const RUNNING_GUARD: &str = "running_execution = :running";
/// And the plan still has who is to wait: a change of plan calls off who waits, and it might come later.
const WAITING_GUARD: &str = "running_execution = :running \
     AND attribute_not_exists(waiting_execution) AND schedule_version = :version";
const TAKE_TURN: &str = "SET waiting_execution = :id";

impl Scheduler {
    /// Claims what a message is about, for `owner`: a name that nobody else claims under at the
    /// same time.
    pub async fn claim(&self, message: &Message, owner: &str) -> Result<Claimed, SchedulerError> {
        let Some(says) = &message.says else {
            return Ok(Claimed::Echo);
        };
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let Some((job, execution)) = self.read_both(&says.execution_id).await? else {
                return Ok(Claimed::Echo);
            };
            let decided = domain::decided(domain::claim, &job, &execution, now).await?;
            match decided {
                Claim::Echo => return Ok(Claimed::Echo),
                // Nobody has to write to learn that it is too early; the guard is for who thinks it
                // is not.
                _ if execution.not_before > now => {
                    let at = execution.not_before;
                    return Ok(Claimed::TooEarly { at });
                }
                Claim::Busy => {
                    let until = now + job.lease_ms;
                    return Ok(Claimed::Held { until });
                }
                _ => {}
            }
            // Before the claim: a worker that cannot read them takes no lease.
            let parameters = match decided {
                Claim::Start => self.read_parameters(&job).await?,
                _ => String::new(),
            };
            let (release, written) = self
                .commit_claim(&job, &execution, &decided, owner, now)
                .await?;
            match written {
                Ok(Transaction::Committed(_)) => {}
                Ok(Transaction::Cancelled(cancelled)) => match cancelled.failed("execution") {
                    // The job changed: decide again.
                    None => continue,
                    Some(old) => {
                        let old: Option<ExecutionState> = old.map(from_item).transpose()?;
                        match refused(old.as_ref(), &execution, owner, now) {
                            Refused::Ours => {}
                            Refused::Answer(answer) => return Ok(answer),
                            Refused::Changed => continue,
                        }
                    }
                },
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            }
            return match decided {
                Claim::Start => {
                    let begun = ExecutionState {
                        status: ExecutionStatus::InProgress,
                        attempt: execution.attempt + 1,
                        lease_owner: Some(owner.to_owned()),
                        lease_expires_at: Some(now + job.lease_ms),
                        started_at: execution.started_at.or(Some(now)),
                        ..execution
                    };
                    let run = Run {
                        job,
                        execution: begun,
                        owner: owner.to_owned(),
                        parameters,
                        message: message.clone(),
                    };
                    self.hide_begun(&run).await;
                    Ok(Claimed::Run(Box::new(run)))
                }
                Claim::Echo | Claim::Busy => Ok(Claimed::Echo),
                Claim::Skip { .. } => Ok(Claimed::Skipped),
                Claim::Wait { .. } => Ok(Claimed::Waits),
                Claim::CallOff => {
                    self.send_released(&release).await;
                    Ok(Claimed::CalledOff)
                }
                Claim::Missed => {
                    self.send_released(&release).await;
                    Ok(Claimed::Skipped)
                }
                Claim::GiveUp => {
                    self.send_released(&release).await;
                    self.hint(self.bury(&execution)).await;
                    Ok(Claimed::GaveUp)
                }
            };
        }
        Err(SchedulerError::Contended)
    }

    /// The row says that it is ours; now the message says so too. The row is the lease: a message that comes
    /// back early is told that a worker has it.
    async fn hide_begun(&self, run: &Run) {
        if run.job.lease_ms != Millis::from(VISIBILITY_SECONDS) * 1_000 {
            self.keep_hidden(run).await;
        }
    }

    async fn commit_claim(
        &self,
        job: &JobDefinitionState,
        execution: &ExecutionState,
        decided: &Claim,
        owner: &str,
        now: Millis,
    ) -> Result<
        (
            Release,
            Result<Transaction<TransactWriteItemsOutput>, CloudError>,
        ),
        CloudError,
    > {
        let mark = Update::builder()
            .table_name(self.table("executions"))
            .set_key(Some(key(&execution.execution_id)?))
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":seen", n(execution.attempt))
            .expression_attribute_values(":plan", n(execution.schedule_version))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":enqueued", status(ExecutionStatus::Enqueued))
            .expression_attribute_values(":retrying", status(ExecutionStatus::Retrying))
            .expression_attribute_values(":in_progress", status(ExecutionStatus::InProgress))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let end = |to, why: &str| {
            mark.clone()
                .expression_attribute_values(":to", status(to))
                .expression_attribute_values(":why", s(why))
                .expression_attribute_values(":expires", n(expires_at(now)))
        };
        let mark = match decided {
            Claim::Start => {
                let until = now + job.lease_ms;
                mark.update_expression(START)
                    .expression_attribute_values(":attempt", n(execution.attempt + 1))
                    .expression_attribute_values(":me", s(owner))
                    .expression_attribute_values(":until", n(until))
                    .expression_attribute_values(":watch", s(watch_lane(&job.job_id)))
                    .expression_attribute_values(":due", n(until + GRACE_MS))
            }
            Claim::Wait { .. } => mark
                .update_expression(WAIT)
                .expression_attribute_values(":to", status(ExecutionStatus::Waiting)),
            Claim::Skip { running } => {
                let why = format!("{running} was running");
                end(ExecutionStatus::Skipped, &why).update_expression(END)
            }
            Claim::Missed => end(ExecutionStatus::Skipped, "missed").update_expression(END),
            Claim::GiveUp => end(ExecutionStatus::Failed, "the worker died")
                .update_expression(GIVE_UP)
                .expression_attribute_values(":due", n(now + GRACE_MS)),
            Claim::CallOff | Claim::Echo | Claim::Busy => {
                end(ExecutionStatus::Cancelled, "the plan changed").update_expression(END)
            }
        };
        let mark = mark.build().map_err(CloudError::bug)?;
        let mut release = Release::default();
        let mut names = vec!["execution"];
        let mut items = vec![TransactWriteItem::builder().update(mark).build()];
        match decided {
            Claim::Start if job.overlap == Overlap::AllowAll => {
                names.push("job");
                items.push(self.check_plan(job, execution)?);
            }
            Claim::Start => {
                names.push("job");
                items.push(self.take_place(job, execution)?);
            }
            Claim::Skip { running } | Claim::Wait { running } => {
                names.push("job");
                let waits = matches!(decided, Claim::Wait { .. });
                items.push(self.stand_back(job, execution, running, waits)?);
            }
            Claim::CallOff | Claim::Missed | Claim::GiveUp | Claim::Echo | Claim::Busy => {
                release = self.release(job, execution, now)?;
                names.extend(&release.names);
                items.append(&mut release.items);
            }
        }
        Ok((release, self.cloud.transact(&names, items).await))
    }

    /// The job is only looked at: nothing of it changes when its runs may overlap.
    fn check_plan(
        &self,
        job: &JobDefinitionState,
        execution: &ExecutionState,
    ) -> Result<TransactWriteItem, CloudError> {
        let check = ConditionCheck::builder()
            .table_name(self.table("jobs"))
            .key("job_id", s(&job.job_id));
        let check = match execution.attempt {
            0 => check
                .condition_expression(PLAN_GUARD)
                .expression_attribute_values(":version", n(execution.schedule_version)),
            _ => check
                .condition_expression(AGAIN_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":cancelled", s("CANCELLED")),
        };
        let check = check.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }

    /// The same, and the one place is taken.
    fn take_place(
        &self,
        job: &JobDefinitionState,
        execution: &ExecutionState,
    ) -> Result<TransactWriteItem, CloudError> {
        let take = Update::builder()
            .table_name(self.table("jobs"))
            .key("job_id", s(&job.job_id))
            .update_expression(TAKE_PLACE)
            .expression_attribute_values(":id", s(&execution.execution_id));
        let take = match execution.attempt {
            0 => take
                .condition_expression(PLACE_PLAN_GUARD)
                .expression_attribute_values(":version", n(execution.schedule_version)),
            _ => take
                .condition_expression(PLACE_AGAIN_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":cancelled", s("CANCELLED")),
        };
        let take = take.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(take).build())
    }

    fn stand_back(
        &self,
        job: &JobDefinitionState,
        execution: &ExecutionState,
        running: &str,
        waits: bool,
    ) -> Result<TransactWriteItem, CloudError> {
        let (table, id) = (self.table("jobs"), s(&job.job_id));
        let item = TransactWriteItem::builder();
        if waits {
            let turn = Update::builder()
                .table_name(table)
                .key("job_id", id)
                .update_expression(TAKE_TURN)
                .condition_expression(WAITING_GUARD)
                .expression_attribute_values(":running", s(running))
                .expression_attribute_values(":version", n(execution.schedule_version))
                .expression_attribute_values(":id", s(&execution.execution_id));
            return Ok(item.update(turn.build().map_err(CloudError::bug)?).build());
        }
        let check = ConditionCheck::builder()
            .table_name(table)
            .key("job_id", id)
            .condition_expression(RUNNING_GUARD)
            .expression_attribute_values(":running", s(running));
        let check = check.build().map_err(CloudError::bug)?;
        Ok(item.condition_check(check).build())
    }
}

enum Refused {
    /// An answer was lost: what stands there is what we wrote.
    Ours,
    /// The guard said no, and this is why.
    Answer(Claimed),
    /// It is no longer what was decided on.
    Changed,
}

/// Reads the refusal: the item as it is says why.
fn refused(
    old: Option<&ExecutionState>,
    seen: &ExecutionState,
    owner: &str,
    now: Millis,
) -> Refused {
    let Some(old) = old else {
        return Refused::Answer(Claimed::Echo);
    };
    let ours = old.lease_owner.as_deref() == Some(owner) && old.attempt == seen.attempt + 1;
    match old.status {
        ExecutionStatus::InProgress if ours => Refused::Ours,
        ExecutionStatus::Enqueued | ExecutionStatus::Retrying if old.not_before > now => {
            Refused::Answer(Claimed::TooEarly { at: old.not_before })
        }
        ExecutionStatus::InProgress if old.lease_expires_at.is_some_and(|until| until > now) => {
            Refused::Answer(Claimed::Held {
                until: old.lease_expires_at.unwrap_or(now),
            })
        }
        ExecutionStatus::Enqueued | ExecutionStatus::Retrying | ExecutionStatus::InProgress => {
            Refused::Changed
        }
        _ => Refused::Answer(Claimed::Echo),
    }
}
