//! States as items and items as states, their keys, and the one read that decisions begin with.

use crate::domain::{ExecutionState, ExecutionStatus, JobDefinitionState};
use crate::tables::SHARDS;
use crate::{ATTEMPTS, Scheduler, SchedulerError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemOutput;
use aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder;
use aws_sdk_dynamodb::types::AttributeValue;
use chrono::{DateTime, Utc};
use cloud::item::{from_item, pause, s, shard_of};
use cloud::{CloudError, Guard, Guarded, Item, Millis};
use serde::{Deserialize, Serialize};

/// How long what has ended is kept: thirty days, in seconds.
pub const KEPT_SECONDS: i64 = 30 * 86_400;

/// `1767225600000#acme/job-0001`: thirteen digits, so that ids sort by time.
pub fn execution_id(execution_time: Millis, job_id: &str) -> String {
    format!("{execution_time:013}#{job_id}")
}

/// The time and the job of an execution id.
pub fn parts_of(execution_id: &str) -> Option<(Millis, &str)> {
    let (time, job_id) = execution_id.split_once('#')?;
    let time = time.parse().ok()?;
    (!job_id.is_empty() && self::execution_id(time, job_id) == execution_id)
        .then_some((time, job_id))
}

/// Whether the time of an execution has come.
pub(crate) fn is_due(execution_id: &str, now: Millis) -> bool {
    parts_of(execution_id).is_some_and(|(time, _)| time <= now)
}

/// `2026-01-01T00:00#3`: the minute spreads over time, the shard within the minute.
pub fn bucket(execution_time: Millis, job_id: &str) -> String {
    let minute = DateTime::<Utc>::from_timestamp_millis(execution_time).unwrap_or_default();
    let shard = shard_of(job_id, SHARDS);
    format!("{}#{shard}", minute.format("%Y-%m-%dT%H:%M"))
}

/// The key under which the due index shows what is still to be dispatched.
pub fn start_lane(job_id: &str) -> String {
    format!("start-{}", shard_of(job_id, SHARDS))
}

/// The key under which it shows what was dispatched and has not ended.
pub fn watch_lane(job_id: &str) -> String {
    format!("watch-{}", shard_of(job_id, SHARDS))
}

/// The key under which it shows what has failed and is in the dead-letter queue, as long as SQS keeps it.
pub fn dead_lane(job_id: &str) -> String {
    format!("dead-{}", shard_of(job_id, SHARDS))
}

/// When what ends now may be deleted.
pub(crate) fn expires_at(now: Millis) -> i64 {
    now / 1_000 + KEPT_SECONDS
}

/// The key of an execution's item. It follows from the id: whoever has a message has the key.
pub(crate) fn key(execution_id: &str) -> Result<Item, CloudError> {
    let (time, job_id) = parts_of(execution_id)
        .ok_or_else(|| CloudError::Corrupt(format!("'{execution_id}' is no execution id")))?;
    Ok(Item::from([
        ("bucket".to_owned(), s(bucket(time, job_id))),
        ("execution_id".to_owned(), s(execution_id)),
    ]))
}

/// A status as its attribute.
pub(crate) fn status(status: ExecutionStatus) -> AttributeValue {
    let name = serde_json::to_value(status).ok();
    s(name
        .as_ref()
        .and_then(|name| name.as_str())
        .unwrap_or_default())
}

/// Makes a single guarded write, again while a transaction has its item.
pub(crate) async fn guarded_update(
    update: UpdateItemFluentBuilder,
) -> Result<Guard<UpdateItemOutput>, CloudError> {
    let mut attempt = 0;
    loop {
        match update.clone().send().await.guarded() {
            Err(CloudError::Conflict(_)) if attempt < ATTEMPTS => pause(attempt).await,
            written => return written,
        }
        attempt += 1;
    }
}

/// What the handler of a job is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ParametersState {
    /// Whose.
    pub job_id: String,
    /// What.
    pub parameters: String,
}

impl ExecutionState {
    /// The execution of `job` at `fire`, as it is planned.
    pub fn planned(job: &JobDefinitionState, fire: Millis) -> Self {
        Self {
            bucket: bucket(fire, &job.job_id),
            execution_id: execution_id(fire, &job.job_id),
            job_id: job.job_id.clone(),
            tenant_id: job.tenant_id.clone(),
            execution_time: fire,
            status: ExecutionStatus::Pending,
            attempt: 0,
            attempt_limit: job.max_attempts,
            schedule_version: job.schedule_version,
            not_before: fire,
            due_at: Some(fire),
            due_shard: Some(start_lane(&job.job_id)),
            sent_by: None,
            lease_owner: None,
            lease_expires_at: None,
            started_at: None,
            completed_at: None,
            reason: None,
            expires_at: None,
        }
    }
}

impl Scheduler {
    /// An execution and its job, in one call: what dispatching and claiming are decided on.
    /// Consistent, so that "no such execution" is true; a stale read would only cost another
    /// round, since the guards decide.
    pub(crate) async fn read_both(
        &self,
        execution_id: &str,
    ) -> Result<Option<(JobDefinitionState, ExecutionState)>, CloudError> {
        let Some((_, job_id)) = parts_of(execution_id) else {
            return Ok(None);
        };
        let job_key = Item::from([("job_id".to_owned(), s(job_id))]);
        let keys = vec![
            ("jobs", vec![job_key]),
            ("executions", vec![key(execution_id)?]),
        ];
        let mut found = self.cloud.read_batch(keys, true).await?;
        let mut take = |table| found.remove(table).and_then(|mut items| items.pop());
        let (job, execution) = (take("jobs"), take("executions"));
        match (job, execution) {
            (Some(job), Some(execution)) => Ok(Some((from_item(&job)?, from_item(&execution)?))),
            _ => Ok(None),
        }
    }

    /// One execution. Consistent.
    pub async fn read_execution(
        &self,
        execution_id: &str,
    ) -> Result<Option<ExecutionState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(execution_id)?))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// One job. Consistent.
    pub async fn read_job(&self, job_id: &str) -> Result<Option<JobDefinitionState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("jobs"))
            .key("job_id", s(job_id))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// What the handler of a job is told. Written with the job, and never again.
    pub async fn read_parameters(&self, job: &JobDefinitionState) -> Result<String, CloudError> {
        if job.parameters_bytes == 0 {
            return Ok(String::new());
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("parameters"))
            .key("job_id", s(&job.job_id))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        let parameters = found.item.as_ref().map(from_item::<ParametersState>);
        let missing = || CloudError::Corrupt(format!("'{}' lacks its parameters", job.job_id));
        Ok(parameters.ok_or_else(missing)??.parameters)
    }

    /// A job that must be there.
    pub async fn known_job(&self, job_id: &str) -> Result<JobDefinitionState, SchedulerError> {
        let job = self.read_job(job_id).await?;
        job.ok_or_else(|| SchedulerError::UnknownJob(job_id.to_owned()))
    }
}
