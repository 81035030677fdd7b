//! Cancel, pause, resume, reschedule: a change of plan is one guarded step. Beyond the documents.
//!
//! Each of them moves `schedule_version` on the job. Executions carry the version they were planned
//! under, and a first attempt begins only if it is still the job's: so none of these has to find
//! and write the executions that it calls off, however many are on their way. Whoever meets one
//! later, scanner or worker, marks it CANCELLED. Two runs are looked at all the same: the one that waits for its
//! turn, and the only one of a job that fires once.

use crate::domain::{ExecutionStatus, JobDefinitionState, JobStatus, aside, text};
use crate::items::{execution_id, expires_at, key, status};
use crate::schedule::Schedule;
use crate::{ATTEMPTS, Scheduler, SchedulerError};
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, TransactWriteItem, Update};
use cloud::item::{n, pause, s, to_item};
use cloud::{CloudError, Millis, Transaction};

/// The plan is as it was read, and so is who waits. A dispatch of the last fire time leaves the version as
/// it is, and moves the status.
const GUARD: &str = "schedule_version = :seen AND #status = :was \
     AND attribute_not_exists(waiting_execution)";
const WAITED_GUARD: &str = "schedule_version = :seen AND #status = :was \
     AND waiting_execution = :waiting";

const STOP: &str = "SET #status = :to, schedule_version = :version, change_id = :change, \
     change_kind = :kind, anchor = :anchor, #schedule = :schedule \
     REMOVE next_fire_time, waiting_execution";
const GO_ON: &str = "SET #status = :to, schedule_version = :version, change_id = :change, \
     change_kind = :kind, anchor = :anchor, #schedule = :schedule, next_fire_time = :next \
     REMOVE waiting_execution";
/// And the one place, from a run that was handed it and has not begun: the plan puts another one at its time. Left
/// with it, that one might end without a start, and keep the place for ever. That it has not begun, the guard of
/// [`materialize`](crate::materialize) says.
const TAKEN_BACK: &str = ", running_execution";

/// The one run of a job that fires once has not begun. Between reading that and writing, it may.
const NOT_BEGUN: &str = "attempt = :none AND #status IN (:pending, :enqueued)";

/// Who waits for its turn belongs to the old plan. Left waiting, it would take a turn of the new one.
const WAITS: &str = "#status = :waiting";
const CALL_OFF: &str = "SET #status = :cancelled, reason = :why, completed_at = :now, \
     expires_at = :expires";

/// A change of plan. Each carries an id that its maker gave it: sent again, it is not made again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// For good. What has not started never starts; what runs runs to the end of its attempt.
    Cancel,
    /// Nothing new starts until it is resumed. What has started goes on.
    Pause,
    /// From now on it fires again. What it missed meanwhile it was meant to miss.
    Resume,
    /// Another schedule from now on; a paused job stays paused.
    Reschedule(Schedule),
}

impl Change {
    fn participle(&self) -> &'static str {
        match self {
            Self::Cancel => "cancelled",
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Reschedule(_) => "rescheduled",
        }
    }

    /// Whether this is the last change that was made of the job.
    fn is_made(&self, job: &JobDefinitionState) -> bool {
        let same = job.change_kind.as_deref() == Some(self.participle());
        same && match self {
            Self::Reschedule(schedule) => job.schedule == *schedule,
            _ => true,
        }
    }
}

impl Scheduler {
    /// Changes the plan of a job.
    pub async fn change_job(
        &self,
        job_id: &str,
        change: &Change,
        change_id: &str,
    ) -> Result<JobDefinitionState, SchedulerError> {
        text("change_id", change_id)?;
        let now = self.now();
        if let Change::Reschedule(schedule) = change.clone() {
            aside(move || schedule.validate(now)).await??;
        }
        // A time at which it has run, by a clock that is ahead of ours.
        let mut taken = None;
        for attempt in 0..ATTEMPTS {
            let seen = self.known_job(job_id).await?;
            if seen.change_id.as_deref() == Some(change_id) {
                return match change.is_made(&seen) {
                    true => Ok(self.changed(seen).await),
                    false => Err(SchedulerError::IdTaken(change_id.to_owned())),
                };
            }
            let (before, change, id, now) = (
                seen.clone(),
                change.clone(),
                change_id.to_owned(),
                self.now(),
            );
            let planned = aside(move || planned(&before, &change, &id, now, taken)).await??;
            let Some(job) = planned else {
                return Ok(seen);
            };
            match self.commit_change(&seen, &job, now).await {
                Ok(Committed::Yes) => return Ok(self.changed(job).await),
                Ok(Committed::Changed) => {}
                Ok(Committed::Taken) => taken = job.next_fire_time,
                Ok(Committed::Begun) => return Err(not_now(&seen, "paused")),
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(SchedulerError::Contended)
    }

    /// The plan is made; what falls inside the lookahead enqueues itself, as at creation.
    async fn changed(&self, job: JobDefinitionState) -> JobDefinitionState {
        if let Some(fire) = job.next_fire_time {
            self.enqueue_ahead(&execution_id(fire, &job.job_id)).await;
        }
        job
    }

    async fn commit_change(
        &self,
        seen: &JobDefinitionState,
        job: &JobDefinitionState,
        now: Millis,
    ) -> Result<Committed, CloudError> {
        let plan = Update::builder()
            .table_name(self.table("jobs"))
            .key("job_id", s(&job.job_id))
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#schedule", "schedule")
            .expression_attribute_values(":seen", n(seen.schedule_version))
            .expression_attribute_values(":was", s(word(seen.status)))
            .expression_attribute_values(":version", n(job.schedule_version))
            .expression_attribute_values(":change", s(job.change_id.clone().unwrap_or_default()))
            .expression_attribute_values(":kind", s(job.change_kind.clone().unwrap_or_default()))
            .expression_attribute_values(":to", s(word(job.status)))
            .expression_attribute_values(":anchor", n(job.anchor))
            .expression_attribute_values(":schedule", AttributeValue::M(to_item(&job.schedule)?));
        let plan = match &seen.waiting_execution {
            None => plan.condition_expression(GUARD),
            Some(waiting) => plan
                .condition_expression(WAITED_GUARD)
                .expression_attribute_values(":waiting", s(waiting)),
        };
        let plan = match job.next_fire_time {
            None => plan.update_expression(STOP),
            Some(next) => plan
                .update_expression(match job.running_execution == seen.running_execution {
                    true => GO_ON.to_owned(),
                    false => format!("{GO_ON}{TAKEN_BACK}"),
                })
                .expression_attribute_values(":next", n(next)),
        };
        let part = TransactWriteItem::builder;
        let plan = plan.build().map_err(CloudError::bug)?;
        let mut names = vec!["job"];
        let mut items = vec![part().update(plan).build()];
        if let Some(next) = job.next_fire_time {
            names.push("next");
            items.push(self.materialize(job, next)?);
        }
        let waiting = seen.waiting_execution.as_ref();
        let next = job
            .next_fire_time
            .map(|fire| execution_id(fire, &job.job_id));
        // The one that waits is called off, unless the new plan has its time: then its row is written once, planned
        // anew.
        if let Some(waiting) = waiting
            && next.as_ref() != Some(waiting)
        {
            names.push("waiting");
            items.push(part().update(self.call_off_waiting(waiting, now)?).build());
        }
        if let Some(only) = only_run(seen, job)
            && waiting != Some(&only)
        {
            names.push("begun");
            items.push(part().condition_check(self.not_begun(&only)?).build());
        }
        match self.cloud.transact(&names, items).await? {
            Transaction::Committed(_) => Ok(Committed::Yes),
            // A conflict may hide that the job has changed too.
            Transaction::Cancelled(cancelled) if !cancelled.is_whole() => Ok(Committed::Changed),
            Transaction::Cancelled(cancelled) => {
                let failed = |name| cancelled.failed(name).is_some();
                Ok(match (failed("job"), failed("next"), failed("begun")) {
                    (false, true, _) => Committed::Taken,
                    (false, _, true) => Committed::Begun,
                    _ => Committed::Changed,
                })
            }
        }
    }

    fn call_off_waiting(&self, waiting: &str, now: Millis) -> Result<Update, CloudError> {
        Update::builder()
            .table_name(self.table("executions"))
            .set_key(Some(key(waiting)?))
            .update_expression(CALL_OFF)
            .condition_expression(WAITS)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":waiting", status(ExecutionStatus::Waiting))
            .expression_attribute_values(":cancelled", status(ExecutionStatus::Cancelled))
            .expression_attribute_values(":why", s("the plan changed"))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":expires", n(expires_at(now)))
            .build()
            .map_err(CloudError::bug)
    }

    fn not_begun(&self, execution_id: &str) -> Result<ConditionCheck, CloudError> {
        ConditionCheck::builder()
            .table_name(self.table("executions"))
            .set_key(Some(key(execution_id)?))
            .condition_expression(NOT_BEGUN)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":none", n(0))
            .expression_attribute_values(":pending", status(ExecutionStatus::Pending))
            .expression_attribute_values(":enqueued", status(ExecutionStatus::Enqueued))
            .build()
            .map_err(CloudError::bug)
    }
}

/// The run that a pause must come before: the only one, once it is dispatched.
fn only_run(seen: &JobDefinitionState, job: &JobDefinitionState) -> Option<String> {
    match (seen.status, job.status, &seen.schedule) {
        (JobStatus::Finished, JobStatus::Paused, Schedule::Once { at }) => {
            Some(execution_id(*at, &job.job_id))
        }
        _ => None,
    }
}

fn not_now(seen: &JobDefinitionState, wanted: &'static str) -> SchedulerError {
    SchedulerError::NotNow {
        status: seen.status,
        wanted,
    }
}

enum Committed {
    Yes,
    /// Somebody else changed the plan.
    Changed,
    /// There is an execution at that time, and it has had its run.
    Taken,
    /// The one run that there is has begun.
    Begun,
}

/// The job as the change makes it; none if there is nothing to change.
fn planned(
    seen: &JobDefinitionState,
    change: &Change,
    change_id: &str,
    now: Millis,
    taken: Option<Millis>,
) -> Result<Option<JobDefinitionState>, SchedulerError> {
    let mut job = JobDefinitionState {
        schedule_version: seen.schedule_version + 1,
        change_id: Some(change_id.to_owned()),
        change_kind: Some(change.participle().to_owned()),
        next_fire_time: None,
        waiting_execution: None,
        ..seen.clone()
    };
    match (change, seen.status) {
        (Change::Cancel, JobStatus::Cancelled) | (Change::Pause, JobStatus::Paused) => {
            return Ok(None);
        }
        (Change::Resume, JobStatus::Active) => return Ok(None),
        (Change::Cancel, _) => job.status = JobStatus::Cancelled,
        (Change::Pause, JobStatus::Active) => job.status = JobStatus::Paused,
        // Its one execution is on its way: whether it has begun, the write decides.
        (Change::Pause, JobStatus::Finished) if matches!(seen.schedule, Schedule::Once { .. }) => {
            job.status = JobStatus::Paused;
        }
        (Change::Resume, JobStatus::Paused) => {
            job.status = JobStatus::Active;
            // What was once to be, and passed while it was paused, is to be now.
            if let Schedule::Once { at } = &mut job.schedule {
                *at = (*at).max(now);
            }
            job.next_fire_time = match &job.schedule {
                Schedule::Once { at } => Some(*at),
                schedule => schedule.next_after(seen.anchor, now),
            };
        }
        (Change::Reschedule(schedule), JobStatus::Paused) => job.schedule = schedule.clone(),
        (Change::Reschedule(schedule), JobStatus::Active | JobStatus::Finished) => {
            job.schedule = schedule.clone();
            job.anchor = now;
            job.status = JobStatus::Active;
            job.next_fire_time = schedule.first(now);
        }
        _ => return Err(not_now(seen, change.participle())),
    }
    if let Some(taken) = taken.filter(|taken| job.next_fire_time <= Some(*taken)) {
        let later = job.schedule.next_after(job.anchor, taken);
        job.next_fire_time = Some(later.ok_or(SchedulerError::AlreadyRan)?);
    }
    let next = job
        .next_fire_time
        .map(|fire| execution_id(fire, &job.job_id));
    job.running_execution = job
        .running_execution
        .filter(|holder| Some(holder) != next.as_ref());
    Ok(Some(job))
}

fn word(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Active => "ACTIVE",
        JobStatus::Paused => "PAUSED",
        JobStatus::Cancelled => "CANCELLED",
        JobStatus::Finished => "FINISHED",
    }
}
