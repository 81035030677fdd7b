//! The rules, pure: states, transitions and decisions. `now` is an argument, times are epoch
//! milliseconds, and no type of any SDK comes in.

use crate::misfire::{self, Misfire};
use crate::overlap::{self, Overlap, Place};
use crate::schedule::Schedule;
use cloud::text::NotAnId;
use cloud::{CloudError, Millis};
use serde::{Deserialize, Serialize};

/// The longest id that a client gives, in bytes.
pub const MAX_ID: usize = 200;
/// The longest parameters, in bytes: far from the 400 KB of an item.
pub const MAX_PARAMETERS: usize = 64 * 1024;
/// The most attempts.
pub const MAX_ATTEMPTS: u32 = 100;
/// The shortest lease: below it heartbeats would be most of the work.
pub const MIN_LEASE_MS: Millis = 1_000;
/// The longest lease: SQS hides a message for twelve hours at most.
pub const MAX_LEASE_MS: Millis = 12 * 3_600_000;
/// The widest catch-up window: a year.
pub const MAX_CATCH_UP_MS: Millis = 365 * 86_400_000;
/// The first pause before a retry; it doubles with each.
pub const BACKOFF_BASE_MS: Millis = 2_000;
/// The longest pause, and the longest that SQS can delay a message.
pub const BACKOFF_CAP_MS: Millis = 900_000;
/// How long after its moment a message is given up for lost, and a worker for dead.
pub const GRACE_MS: Millis = 30_000;

/// What a job is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum JobStatus {
    /// It has a next fire time.
    Active,
    /// It has none until it is resumed.
    Paused,
    /// It was called off; nothing of it starts any more.
    Cancelled,
    /// Its last fire time was dispatched.
    Finished,
}

/// What is to be done, when, and under which rules.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobDefinitionState {
    /// Identity: `tenant/name`. No tenant can name another one's job.
    pub job_id: String,
    /// Whose job: what fairness is between.
    pub tenant_id: String,
    /// Which handler runs it.
    pub kind: String,
    /// How many bytes the handler is told. They are an item of their own, which no dispatch writes.
    pub parameters_bytes: usize,
    /// When it fires.
    pub schedule: Schedule,
    /// When it was to fire at first: what a second call to create it is compared with.
    pub first_schedule: Schedule,
    /// Where intervals are counted from: when it was created, or rescheduled while active.
    pub anchor: Millis,
    /// What happens when it fires while it runs.
    pub overlap: Overlap,
    /// What happens to fire times that were missed.
    pub misfire: Misfire,
    /// How far back missed fire times are made up for.
    pub catch_up_ms: Millis,
    /// How often an execution is tried.
    pub max_attempts: u32,
    /// How long a worker has it without a sign of life.
    pub lease_ms: Millis,
    /// How long one attempt may take in all.
    pub timeout_ms: Millis,
    /// What it is doing.
    pub status: JobStatus,
    /// Grows with every change of plan. What was planned under an older one never starts.
    pub schedule_version: u64,
    /// The execution that is materialized and not yet dispatched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_fire_time: Option<Millis>,
    /// Who has the one place to run, if there is only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_execution: Option<String>,
    /// Who comes next, if one may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_execution: Option<String>,
    /// The last change of plan, by the id its maker gave it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_id: Option<String>,
    /// Which change that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_kind: Option<String>,
    /// When it was created.
    pub created_at: Millis,
}

/// Where an execution is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ExecutionStatus {
    /// Materialized; its time is to come.
    Pending,
    /// Dispatched: there is, or will be, a message for it.
    Enqueued,
    /// Its time has come, and another execution of its job runs (overlap: queue one).
    Waiting,
    /// A worker has it, under a lease.
    InProgress,
    /// An attempt failed; another one follows.
    Retrying,
    /// Done.
    Completed,
    /// Given up; in the dead-letter queue.
    Failed,
    /// Called off before it started, or between attempts.
    Cancelled,
    /// Its time passed: missed, or while another one ran.
    Skipped,
}

/// One run of a job at one fire time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutionState {
    /// The minute and the shard: `2026-01-01T00:00#3`.
    pub bucket: String,
    /// `execution_time#job_id`: a job fires at a time once.
    pub execution_id: String,
    /// Of which job.
    pub job_id: String,
    /// Whose.
    pub tenant_id: String,
    /// The future constraint: not before this.
    pub execution_time: Millis,
    /// Where it is.
    pub status: ExecutionStatus,
    /// How many attempts were begun: the fencing token.
    pub attempt: u32,
    /// The last attempt that may be begun.
    pub attempt_limit: u32,
    /// The job's plan that it belongs to.
    pub schedule_version: u64,
    /// When it may start: its time, or the time of the next attempt.
    pub not_before: Millis,
    /// When somebody must look at it again. Absent once there is nothing left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Millis>,
    /// Which key of the due index it is under; absent with `due_at`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_shard: Option<String>,
    /// The dispatch that enqueued it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent_by: Option<String>,
    /// Who has it, or had it last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_owner: Option<String>,
    /// Until when, without a sign of life.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Millis>,
    /// When its first attempt began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Millis>,
    /// When it ended, however it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Millis>,
    /// Why it was tried again, failed, skipped or called off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Epoch seconds after which it may be deleted; only once it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

impl ExecutionState {
    /// Whether this execution was planned before the job's plan changed, or the job was called off.
    /// What has started goes on through a change of plan, but not through a cancellation.
    pub fn is_called_off(&self, job: &JobDefinitionState) -> bool {
        let started = self.attempt > 0;
        job.status == JobStatus::Cancelled
            || !started && self.schedule_version != job.schedule_version
    }
}

/// What a dispatcher does with an execution that it found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Dispatch {
    /// Enqueue it, and materialize the next one.
    Enqueue {
        /// The next fire time.
        next: Option<Millis>,
    },
    /// It was missed: skip it, and materialize the next one.
    Skip {
        /// The next fire time.
        next: Option<Millis>,
    },
    /// The plan changed.
    CallOff,
    /// It is past that.
    Before,
}

/// Decides about an execution that is due, or will be soon.
pub fn dispatch(job: &JobDefinitionState, execution: &ExecutionState, now: Millis) -> Dispatch {
    if execution.status != ExecutionStatus::Pending {
        return Dispatch::Before;
    }
    if execution.is_called_off(job) {
        return Dispatch::CallOff;
    }
    let fate = misfire::fate(job, execution.execution_time, now);
    match fate.runs {
        true => Dispatch::Enqueue { next: fate.next },
        false => Dispatch::Skip { next: fate.next },
    }
}

/// What a worker does with an execution that it got a message for. Whether it is time, and whether
/// somebody else has it, is not decided here: the guard of the write looks at the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// Take it.
    Start,
    /// The message says nothing new: drop it.
    Echo,
    /// The plan changed.
    CallOff,
    /// The last attempt ended without a word: its worker is dead.
    GiveUp,
    /// It was dispatched in time, and it is too late to begin.
    Missed,
    /// Another execution of the job runs, and this one, which has run before, comes back later.
    Busy,
    /// Another execution of the job runs, and the job skips.
    Skip {
        /// Who runs.
        running: String,
    },
    /// Another execution of the job runs, and one may wait.
    Wait {
        /// Who runs.
        running: String,
    },
}

/// Decides what a message for this execution means.
pub fn claim(job: &JobDefinitionState, execution: &ExecutionState, now: Millis) -> Claim {
    match execution.status {
        ExecutionStatus::Enqueued | ExecutionStatus::Retrying | ExecutionStatus::InProgress => {}
        // PENDING too: dispatching it also materializes the next one, so it must come first.
        _ => return Claim::Echo,
    }
    if execution.is_called_off(job) {
        return Claim::CallOff;
    }
    if execution.attempt >= execution.attempt_limit {
        return Claim::GiveUp;
    }
    if execution.attempt == 0 && misfire::is_missed(job, execution, now) {
        return Claim::Missed;
    }
    match overlap::place(job, &execution.execution_id) {
        Place::Free => Claim::Start,
        // Redriven: what has begun is neither skipped nor in the way of what is new.
        _ if execution.attempt > 0 => Claim::Busy,
        Place::Skip { running } => Claim::Skip { running },
        Place::Wait { running } => Claim::Wait { running },
    }
}

/// What follows an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another attempt, not before this.
    Retry {
        /// Epoch ms.
        at: Millis,
    },
    /// No more.
    Fail,
}

/// Decides what follows a failed attempt.
pub fn after_failure(execution: &ExecutionState, now: Millis) -> AfterFailure {
    if execution.attempt >= execution.attempt_limit {
        return AfterFailure::Fail;
    }
    AfterFailure::Retry {
        at: now + backoff(&execution.execution_id, execution.attempt),
    }
}

/// The pause before the next attempt: doubling, capped, and somewhere in its upper half, so that
/// what failed together does not come back together. Where, is hashed from the identity: the same
/// decision made again is the same pause, and no test needs to know the dice.
pub fn backoff(execution_id: &str, attempt: u32) -> Millis {
    let doublings = attempt.saturating_sub(1).min(30);
    let pause = (BACKOFF_BASE_MS << doublings).min(BACKOFF_CAP_MS);
    let dice = cloud::item::shard_of(&format!("{execution_id}/{attempt}"), 1_000);
    pause / 2 + pause / 2 * Millis::from(dice) / 1_000
}

/// What is wrong with what came in. Found before anything is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// Not an id.
    #[error("{what} {why}")]
    Id {
        /// Which id.
        what: &'static str,
        /// Why not.
        why: NotAnId,
    },
    /// Too long.
    #[error("the parameters must have at most {MAX_PARAMETERS} bytes, not {0}")]
    Parameters(usize),
    /// Outside what a number may be.
    #[error("{what} must be between {least} and {most}, not {given}")]
    Range {
        /// Which number.
        what: &'static str,
        /// The least.
        least: i64,
        /// The most.
        most: i64,
        /// What it was.
        given: i64,
    },
    /// No point in time.
    #[error("{0} is not a time in epoch milliseconds between 1970 and 2286")]
    Time(Millis),
    /// Too short or too long.
    #[error("an interval must be between one second and ten years, not {0} ms")]
    Every(Millis),
    /// Not cron.
    #[error("'{0}' is not a cron expression: {1}")]
    Cron(String, String),
    /// No such place.
    #[error("'{0}' is not a time zone such as Europe/Berlin")]
    TimeZone(String),
    /// Such as the 30th of February.
    #[error("'{0}' never fires")]
    NeverFires(String),
}

impl JobDefinitionState {
    /// Checks a job that is about to be created.
    pub fn validate(&self) -> Result<(), BadInput> {
        text("kind", &self.kind)?;
        if self.parameters_bytes > MAX_PARAMETERS {
            return Err(BadInput::Parameters(self.parameters_bytes));
        }
        let attempts = i64::from(self.max_attempts);
        range("max_attempts", 1, MAX_ATTEMPTS.into(), attempts)?;
        range("lease_ms", MIN_LEASE_MS, MAX_LEASE_MS, self.lease_ms)?;
        range("timeout_ms", MIN_LEASE_MS, MAX_LEASE_MS, self.timeout_ms)?;
        range("catch_up_ms", 0, MAX_CATCH_UP_MS, self.catch_up_ms)?;
        self.schedule.validate(self.anchor)
    }
}

fn range(what: &'static str, least: i64, most: i64, given: i64) -> Result<(), BadInput> {
    if (least..=most).contains(&given) {
        return Ok(());
    }
    Err(BadInput::Range {
        what,
        least,
        most,
        given,
    })
}

/// The id of a tenant's job: `tenant/name`.
pub fn job_id(tenant_id: &str, name: &str) -> Result<String, BadInput> {
    text("job_id", name)?;
    tenant(tenant_id)?;
    Ok(format!("{tenant_id}/{name}"))
}

/// Whose job this id is of.
pub(crate) fn tenant_of(job_id: &str) -> &str {
    job_id.split_once('/').map_or(job_id, |(tenant, _)| tenant)
}

/// Checks the id of a tenant. The first slash of a job's id is where its tenant ends.
pub fn tenant(tenant_id: &str) -> Result<(), BadInput> {
    let what = "tenant_id";
    text(what, tenant_id)?;
    if tenant_id.contains('/') {
        let why = NotAnId::Character('/');
        return Err(BadInput::Id { what, why });
    }
    Ok(())
}

/// Checks an id that a client made.
pub fn text(what: &'static str, text: &str) -> Result<(), BadInput> {
    cloud::text::id(text, MAX_ID).map_err(|why| BadInput::Id { what, why })
}

/// Decides about an execution; beside the async workers if its job follows cron: a rare expression takes
/// milliseconds.
pub(crate) async fn decided<T: Send + 'static>(
    decide: fn(&JobDefinitionState, &ExecutionState, Millis) -> T,
    job: &JobDefinitionState,
    execution: &ExecutionState,
    now: Millis,
) -> Result<T, CloudError> {
    if !matches!(job.schedule, Schedule::Cron { .. }) {
        return Ok(decide(job, execution, now));
    }
    let (job, execution) = (job.clone(), execution.clone());
    aside(move || decide(&job, &execution, now)).await
}

/// Thinks on a thread that no request waits for.
pub(crate) async fn aside<T: Send + 'static>(
    think: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CloudError> {
    let thought = tokio::task::spawn_blocking(think).await;
    thought.map_err(|panicked| CloudError::Other(panicked.to_string()))
}
