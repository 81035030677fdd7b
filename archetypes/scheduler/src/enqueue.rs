//! Enqueue execution: materialize the claimable run.
//!
//! One transaction marks this execution ENQUEUED, writes the next one, and says so on the job;
//! only then the message is sent. Who dies before the transaction has done nothing, who dies after
//! it leaves an ENQUEUED row without a message, which [`sweep_stale`](crate::sweep_stale) finds.
//! The documents send without marking, and so send twice or, beside a window, never.

use crate::domain::{Dispatch, ExecutionState, ExecutionStatus, GRACE_MS, JobDefinitionState};
use crate::items::{execution_id, expires_at, guarded_update, key, status, watch_lane};
use crate::scan_due::patient;
use crate::{ATTEMPTS, Scheduler, SchedulerError, domain};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Millis, Transaction};

/// What became of dispatching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// It is in the queue.
    Sent {
        /// The next execution, if it is inside the lookahead too.
        next: Option<String>,
    },
    /// It was missed too long ago.
    Skipped {
        /// The next execution, if it is inside the lookahead.
        next: Option<String>,
    },
    /// The job's plan changed, and this is no longer part of it.
    CalledOff,
    /// Somebody else was there before, or it is not there.
    Before,
}

/// Nobody has dispatched it, and it was not replaced by one of a newer plan.
const EXECUTION_GUARD: &str = "#status = :pending AND schedule_version = :version";

/// The plan is still the one that the next execution was computed from.
const JOB_GUARD: &str = "schedule_version = :version";

const ENQUEUE: &str = "SET #status = :to, due_shard = :watch, due_at = :due, sent_by = :dispatch";
const SKIP: &str = "SET #status = :to, reason = :why, completed_at = :now, expires_at = :expires, \
     sent_by = :dispatch REMOVE due_shard, due_at";

const CALL_OFF: &str = "SET #status = :cancelled, reason = :why, completed_at = :now, \
     expires_at = :expires REMOVE due_shard, due_at";

const NEXT: &str = "SET next_fire_time = :next";
const NO_NEXT: &str = "SET #status = :finished REMOVE next_fire_time";

/// How many executions of one job are dispatched in one go. More of them are inside the lookahead
/// of a job that fires every second; the next scan takes them.
const AHEAD: usize = 10;

impl Scheduler {
    /// Dispatches an execution, and what follows it, as far as the lookahead goes. An execution
    /// that lies beyond it is left to the scanner, and so is one for which the queue has no room: a
    /// tenant that creates jobs by the thousand does not fill it past the others. What cannot be done in
    /// time is left to the scanner too: the plan stands, whatever SQS does.
    pub(crate) async fn enqueue_ahead(&self, execution_id: &str) {
        let _ = patient(self.try_ahead(execution_id)).await;
    }

    async fn try_ahead(&self, execution_id: &str) -> Result<(), SchedulerError> {
        let mut near = self.inside_lookahead(execution_id);
        if near.is_none() || self.room().await?.due == 0 {
            return Ok(());
        }
        for _ in 0..AHEAD {
            let Some(execution_id) = near.take() else {
                break;
            };
            if let Enqueued::Sent { next } | Enqueued::Skipped { next } =
                self.enqueue(&execution_id).await?
            {
                near = next;
            }
        }
        Ok(())
    }

    /// Dispatches one execution.
    pub async fn enqueue(&self, execution_id: &str) -> Result<Enqueued, SchedulerError> {
        // The identity of this dispatch: a refusal that brings it back is our own success.
        let dispatch = self.cloud.ids().next("dispatch");
        // A fire time that had its run under an older plan; the one after it is next.
        let mut taken = None;
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let Some((job, execution)) = self.read_both(execution_id).await? else {
                return Ok(Enqueued::Before);
            };
            let dispatch_it = domain::decided(domain::dispatch, &job, &execution, now).await?;
            let (runs, next) = match dispatch_it {
                Dispatch::Enqueue { next } => (true, next),
                Dispatch::Skip { next } => (false, next),
                Dispatch::CallOff => {
                    self.call_off(&execution, now).await?;
                    return Ok(Enqueued::CalledOff);
                }
                Dispatch::Before => return Ok(Enqueued::Before),
            };
            let next = match taken.filter(|taken| next.is_some_and(|next| next <= *taken)) {
                Some(taken) => job.schedule.next_after(job.anchor, taken),
                None => next,
            };
            // The one that has the place, handed over under an older plan: another in its stead would have it unbegun.
            let holder = next.map(|next| self::execution_id(next, &job.job_id));
            if holder.is_some() && holder == job.running_execution {
                taken = next;
                continue;
            }
            let committed = self
                .commit_dispatch(&job, &execution, (runs, next), now, &dispatch)
                .await;
            match committed {
                Ok(Committed::Yes) => {}
                Ok(Committed::Before) => return Ok(Enqueued::Before),
                Ok(Committed::NextTaken) => {
                    taken = next;
                    continue;
                }
                Ok(Committed::Changed) => continue,
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            }
            let next = next.map(|next| self::execution_id(next, &job.job_id));
            let next = next.and_then(|next| self.inside_lookahead(&next));
            if !runs {
                return Ok(Enqueued::Skipped { next });
            }
            self.hint(self.send(&execution, execution.not_before)).await;
            return Ok(Enqueued::Sent { next });
        }
        Err(SchedulerError::Contended)
    }

    /// Ends an execution that the plan no longer has. If the guard fails, somebody else did, or a
    /// newer plan has put one in its place: either way there is nothing left to do here.
    async fn call_off(&self, execution: &ExecutionState, now: Millis) -> Result<(), CloudError> {
        let call_off = self
            .dynamodb()
            .update_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(&execution.execution_id)?))
            .update_expression(CALL_OFF)
            .condition_expression(EXECUTION_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":pending", s("PENDING"))
            .expression_attribute_values(":version", n(execution.schedule_version))
            .expression_attribute_values(":cancelled", s("CANCELLED"))
            .expression_attribute_values(":why", s("the plan changed"))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":expires", n(expires_at(now)));
        guarded_update(call_off).await.map(|_| ())
    }

    fn inside_lookahead(&self, execution_id: &str) -> Option<String> {
        let (time, _) = crate::items::parts_of(execution_id)?;
        (time <= self.now() + self.lookahead_ms).then(|| execution_id.to_owned())
    }

    async fn commit_dispatch(
        &self,
        job: &JobDefinitionState,
        execution: &ExecutionState,
        (runs, next): (bool, Option<Millis>),
        now: Millis,
        dispatch: &str,
    ) -> Result<Committed, CloudError> {
        let mark = Update::builder()
            .table_name(self.table("executions"))
            .set_key(Some(key(&execution.execution_id)?))
            .condition_expression(EXECUTION_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":pending", s("PENDING"))
            .expression_attribute_values(":version", n(execution.schedule_version))
            .expression_attribute_values(":dispatch", s(dispatch))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let mark = if runs {
            mark.update_expression(ENQUEUE)
                .expression_attribute_values(":to", status(ExecutionStatus::Enqueued))
                .expression_attribute_values(":watch", s(watch_lane(&job.job_id)))
                .expression_attribute_values(
                    ":due",
                    n(execution.execution_time.max(now) + GRACE_MS),
                )
        } else {
            mark.update_expression(SKIP)
                .expression_attribute_values(":to", status(ExecutionStatus::Skipped))
                .expression_attribute_values(":why", s("missed"))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":expires", n(expires_at(now)))
        };
        let plan = Update::builder()
            .table_name(self.table("jobs"))
            .key("job_id", s(&job.job_id))
            .condition_expression(JOB_GUARD)
            .expression_attribute_values(":version", n(job.schedule_version));
        let plan = match next {
            Some(next) => plan
                .update_expression(NEXT)
                .expression_attribute_values(":next", n(next)),
            None => plan
                .update_expression(NO_NEXT)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":finished", s("FINISHED")),
        };
        let part = TransactWriteItem::builder;
        let mut names = vec!["execution", "job"];
        let mut items = vec![
            part()
                .update(mark.build().map_err(CloudError::bug)?)
                .build(),
            part()
                .update(plan.build().map_err(CloudError::bug)?)
                .build(),
        ];
        if let Some(next) = next {
            names.push("next");
            items.push(self.materialize(job, next)?);
        }
        let cancelled = match self.cloud.transact(&names, items).await? {
            Transaction::Committed(_) => return Ok(Committed::Yes),
            Transaction::Cancelled(cancelled) => cancelled,
        };
        if let Some(old) = cancelled.failed("execution") {
            let old: Option<ExecutionState> = old.map(from_item).transpose()?;
            return Ok(match old {
                Some(old) if old.sent_by.as_deref() == Some(dispatch) => Committed::Yes,
                Some(old) if old.status == ExecutionStatus::Pending => Committed::Changed,
                _ => Committed::Before,
            });
        }
        match (cancelled.failed("job"), cancelled.failed("next")) {
            // A conflict may hide that the job has changed too.
            (None, Some(_)) if cancelled.is_whole() => Ok(Committed::NextTaken),
            _ => Ok(Committed::Changed),
        }
    }
}

enum Committed {
    Yes,
    /// Somebody else dispatched it.
    Before,
    /// The job's plan changed.
    Changed,
    /// There is an execution at the next fire time, and it has had its run.
    NextTaken,
}
