//! Cancel, pause, resume, reschedule: a change of plan is one guarded step. Beyond the documents.
//!
//! Each of them moves `schedule_version` on the job. Executions carry the version they were planned
//! under, and a first attempt begins only if it is still the job's: so none of these has to find
//! and write the executions that it calls off, however many are on their way. Whoever meets one
//! later, scanner or worker, marks it CANCELLED.

use crate::domain::{JobDefinitionState, JobStatus, text};
use crate::items::execution_id;
use crate::schedule::Schedule;
use crate::{ATTEMPTS, Scheduler, SchedulerError};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{n, pause, s, to_item};
use cloud::{CloudError, Guard, Guarded, Millis, Transaction};

/// Nobody has changed the plan since it was read.
const GUARD: &str = "schedule_version = :seen";

const STOP: &str = "SET #status = :to, schedule_version = :version, change_id = :change \
     REMOVE next_fire_time";
const GO_ON: &str = "SET #status = :to, schedule_version = :version, change_id = :change, \
     anchor = :anchor, next_fire_time = :next, #schedule = :schedule";
const LATER: &str = "SET schedule_version = :version, change_id = :change, #schedule = :schedule";

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
        if let Change::Reschedule(schedule) = change {
            schedule.validate(self.now())?;
        }
        // A time at which it has run, by a clock that is ahead of ours.
        let mut taken = None;
        for attempt in 0..ATTEMPTS {
            let seen = self.known_job(job_id).await?;
            if seen.change_id.as_deref() == Some(change_id) {
                return self.changed(seen).await;
            }
            let Some(mut job) = planned(&seen, change, change_id, self.now())? else {
                return Ok(seen);
            };
            if let Some(taken) = taken.filter(|taken| job.next_fire_time <= Some(*taken)) {
                let later = job.schedule.next_after(job.anchor, taken);
                job.next_fire_time = Some(later.ok_or(SchedulerError::AlreadyRan)?);
            }
            match self.commit_change(&seen, &job).await {
                Ok(Committed::Yes) => return self.changed(job).await,
                Ok(Committed::Changed) => {}
                Ok(Committed::Taken) => taken = job.next_fire_time,
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(SchedulerError::Contended)
    }

    /// The plan is made; what falls inside the lookahead enqueues itself, as at creation.
    async fn changed(&self, job: JobDefinitionState) -> Result<JobDefinitionState, SchedulerError> {
        if let Some(fire) = job.next_fire_time {
            self.enqueue_ahead(&execution_id(fire, &job.job_id)).await?;
        }
        Ok(job)
    }

    async fn commit_change(
        &self,
        seen: &JobDefinitionState,
        job: &JobDefinitionState,
    ) -> Result<Committed, CloudError> {
        let id = job.change_id.clone().unwrap_or_default();
        let Some(next) = job.next_fire_time else {
            let update = self
                .dynamodb()
                .update_item()
                .table_name(self.table("jobs"))
                .key("job_id", s(&job.job_id))
                .condition_expression(GUARD)
                .expression_attribute_values(":seen", n(seen.schedule_version))
                .expression_attribute_values(":version", n(job.schedule_version))
                .expression_attribute_values(":change", s(id))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            let update = if job.status == seen.status {
                update
                    .update_expression(LATER)
                    .expression_attribute_names("#schedule", "schedule")
                    .expression_attribute_values(":schedule", schedule(job)?)
            } else {
                update
                    .update_expression(STOP)
                    .expression_attribute_names("#status", "status")
                    .expression_attribute_values(":to", s(word(job.status)))
            };
            return match update.send().await.guarded()? {
                Guard::Passed(_) => Ok(Committed::Yes),
                Guard::Failed(_) => Ok(Committed::Changed),
            };
        };
        let plan = Update::builder()
            .table_name(self.table("jobs"))
            .key("job_id", s(&job.job_id))
            .update_expression(GO_ON)
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#schedule", "schedule")
            .expression_attribute_values(":seen", n(seen.schedule_version))
            .expression_attribute_values(":version", n(job.schedule_version))
            .expression_attribute_values(":change", s(id))
            .expression_attribute_values(":to", s(word(job.status)))
            .expression_attribute_values(":anchor", n(job.anchor))
            .expression_attribute_values(":next", n(next))
            .expression_attribute_values(":schedule", schedule(job)?)
            .build()
            .map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().update(plan).build(),
            self.materialize(job, next)?,
        ];
        match self.cloud.transact(&["job", "next"], items).await? {
            Transaction::Committed(_) => Ok(Committed::Yes),
            Transaction::Cancelled(cancelled) => match cancelled.failed("job") {
                Some(_) => Ok(Committed::Changed),
                None => Ok(Committed::Taken),
            },
        }
    }
}

enum Committed {
    Yes,
    /// Somebody else changed the plan.
    Changed,
    /// There is an execution at that time, and it has had its run.
    Taken,
}

/// The job as the change makes it; none if there is nothing to change.
fn planned(
    seen: &JobDefinitionState,
    change: &Change,
    change_id: &str,
    now: Millis,
) -> Result<Option<JobDefinitionState>, SchedulerError> {
    let mut job = JobDefinitionState {
        schedule_version: seen.schedule_version + 1,
        change_id: Some(change_id.to_owned()),
        next_fire_time: None,
        ..seen.clone()
    };
    let refused = Err(SchedulerError::NotNow {
        status: seen.status,
        wanted: change.participle(),
    });
    match (change, seen.status) {
        (Change::Cancel, JobStatus::Cancelled) | (Change::Pause, JobStatus::Paused) => {
            return Ok(None);
        }
        (Change::Resume, JobStatus::Active) => return Ok(None),
        (Change::Cancel, _) => job.status = JobStatus::Cancelled,
        (Change::Pause, JobStatus::Active) => job.status = JobStatus::Paused,
        // Its one execution is on its way, and has not begun: its time has not come.
        (Change::Pause, JobStatus::Finished) if matches!(seen.schedule, Schedule::Once { at } if at > now) =>
        {
            job.status = JobStatus::Paused;
        }
        (Change::Resume, JobStatus::Paused) => {
            job.status = JobStatus::Active;
            // What was once to be, and passed while it was paused, is due now.
            job.next_fire_time = match &seen.schedule {
                Schedule::Once { at } => Some((*at).max(now)),
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
        _ => return refused,
    }
    Ok(Some(job))
}

fn schedule(
    job: &JobDefinitionState,
) -> Result<aws_sdk_dynamodb::types::AttributeValue, CloudError> {
    Ok(aws_sdk_dynamodb::types::AttributeValue::M(to_item(
        &job.schedule,
    )?))
}

fn word(status: JobStatus) -> &'static str {
    match status {
        JobStatus::Active => "ACTIVE",
        JobStatus::Paused => "PAUSED",
        JobStatus::Cancelled => "CANCELLED",
        JobStatus::Finished => "FINISHED",
    }
}
