//! Create job: the definition and its first execution, together or not at all.

use crate::domain::{BadInput, JobDefinitionState, JobStatus, aside, job_id};
use crate::items::{ParametersState, execution_id};
use crate::misfire::Misfire;
use crate::overlap::Overlap;
use crate::schedule::Schedule;
use crate::{ATTEMPTS, Scheduler, SchedulerError};
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use cloud::item::{from_item, pause, to_item};
use cloud::{CloudError, Item, Millis, Transaction};
use serde::{Deserialize, Serialize};

/// What a user says. Everything but the identity and the schedule has a default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewJob {
    /// The job's name among its tenant's jobs, made by the tenant's client: a retry creates nothing twice.
    pub job_id: String,
    /// Whose job. Not what a body says: the API knows it from elsewhere.
    #[serde(skip)]
    pub tenant_id: String,
    /// When it fires.
    pub schedule: Schedule,
    /// Which handler runs it.
    #[serde(default = "default_kind")]
    pub kind: String,
    /// What the handler is told.
    #[serde(default)]
    pub parameters: String,
    /// What happens when it fires while it runs.
    #[serde(default)]
    pub overlap: Overlap,
    /// What happens to fire times that were missed.
    #[serde(default)]
    pub misfire: Misfire,
    /// How far back missed fire times are made up for: a day, unless told.
    #[serde(default = "default_catch_up")]
    pub catch_up_ms: Millis,
    /// How often an execution is tried: three times, unless told.
    #[serde(default = "default_attempts")]
    pub max_attempts: u32,
    /// How long a worker has it without a sign of life: thirty seconds, unless told.
    #[serde(default = "default_lease")]
    pub lease_ms: Millis,
    /// How long one attempt may take in all: an hour, unless told.
    #[serde(default = "default_timeout")]
    pub timeout_ms: Millis,
}

fn default_kind() -> String {
    "echo".to_owned()
}

fn default_catch_up() -> Millis {
    86_400_000
}

fn default_attempts() -> u32 {
    3
}

fn default_lease() -> Millis {
    30_000
}

fn default_timeout() -> Millis {
    3_600_000
}

impl NewJob {
    /// A job with the defaults.
    pub fn new(name: impl Into<String>, tenant_id: &str, schedule: Schedule) -> Self {
        Self {
            job_id: name.into(),
            tenant_id: tenant_id.to_owned(),
            schedule,
            kind: default_kind(),
            parameters: String::new(),
            overlap: Overlap::default(),
            misfire: Misfire::default(),
            catch_up_ms: default_catch_up(),
            max_attempts: default_attempts(),
            lease_ms: default_lease(),
            timeout_ms: default_timeout(),
        }
    }
}

/// One job for one id, for ever.
const GUARD: &str = "attribute_not_exists(job_id)";

impl Scheduler {
    /// Creates a job with its first execution. What falls inside the lookahead is put into the
    /// queue right here: the scanner may have passed. The same call again is answered as the first
    /// was, and finishes what the first left.
    pub async fn create_job(&self, new: NewJob) -> Result<JobDefinitionState, SchedulerError> {
        let now = self.now();
        let mut job = JobDefinitionState {
            job_id: job_id(&new.tenant_id, &new.job_id)?,
            tenant_id: new.tenant_id,
            kind: new.kind,
            parameters_bytes: new.parameters.len(),
            first_schedule: new.schedule.clone(),
            schedule: new.schedule,
            anchor: now,
            overlap: new.overlap,
            misfire: new.misfire,
            catch_up_ms: new.catch_up_ms,
            max_attempts: new.max_attempts,
            lease_ms: new.lease_ms,
            timeout_ms: new.timeout_ms,
            status: JobStatus::Active,
            schedule_version: 1,
            next_fire_time: None,
            running_execution: None,
            waiting_execution: None,
            change_id: None,
            change_kind: None,
            created_at: now,
        };
        // A cron expression comes from outside and may take a while.
        let job = aside(move || {
            job.validate()?;
            job.next_fire_time = job.schedule.first(now);
            Ok::<_, BadInput>(job)
        })
        .await??;
        let job = self.commit_create(job, new.parameters).await?;
        if let Some(fire) = job.next_fire_time {
            self.enqueue_ahead(&execution_id(fire, &job.job_id)).await;
        }
        Ok(job)
    }

    async fn commit_create(
        &self,
        job: JobDefinitionState,
        parameters: String,
    ) -> Result<JobDefinitionState, SchedulerError> {
        let fire = job.next_fire_time.ok_or(SchedulerError::AlreadyRan)?;
        for attempt in 0..ATTEMPTS {
            let put = Put::builder()
                .table_name(self.table("jobs"))
                .set_item(Some(to_item(&job)?))
                .condition_expression(GUARD)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .build()
                .map_err(CloudError::bug)?;
            let mut items = vec![
                TransactWriteItem::builder().put(put).build(),
                self.materialize(&job, fire)?,
            ];
            if !parameters.is_empty() {
                items.push(self.put_parameters(&job, &parameters)?);
            }
            let names = ["job", "execution", "parameters"];
            let written = self.cloud.transact(&names, items).await;
            match written {
                Ok(Transaction::Committed(_)) => return Ok(job),
                Ok(Transaction::Cancelled(cancelled)) => match cancelled.failed("job") {
                    Some(old) => {
                        let there = from_item(old.unwrap_or(&Item::new()))?;
                        return self.already_there(job, parameters, there).await;
                    }
                    // What another creation has written came back, and of the job only a conflict.
                    None => pause(attempt).await,
                },
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // Ask by the identity it carried.
                Err(fault) => match self.read_job(&job.job_id).await? {
                    Some(there) => return self.already_there(job, parameters, there).await,
                    None => return Err(fault.into()),
                },
            }
        }
        Err(SchedulerError::Contended)
    }

    fn put_parameters(
        &self,
        job: &JobDefinitionState,
        parameters: &str,
    ) -> Result<TransactWriteItem, CloudError> {
        let state = ParametersState {
            job_id: job.job_id.clone(),
            parameters: parameters.to_owned(),
        };
        let put = Put::builder()
            .table_name(self.table("parameters"))
            .set_item(Some(to_item(&state)?))
            .condition_expression(GUARD)
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// The id is taken. If what stands there was created by the same words, an answer was lost and this
    /// is our own success; if it is another job, the id was used twice.
    async fn already_there(
        &self,
        wanted: JobDefinitionState,
        parameters: String,
        there: JobDefinitionState,
    ) -> Result<JobDefinitionState, SchedulerError> {
        let words = |job: &JobDefinitionState| {
            (
                job.tenant_id.clone(),
                (job.kind.clone(), job.parameters_bytes),
                job.first_schedule.clone(),
                (job.overlap, job.misfire, job.catch_up_ms),
                (job.max_attempts, job.lease_ms, job.timeout_ms),
            )
        };
        if words(&there) == words(&wanted) && self.read_parameters(&there).await? == parameters {
            Ok(there)
        } else {
            Err(SchedulerError::IdTaken(wanted.job_id))
        }
    }
}
