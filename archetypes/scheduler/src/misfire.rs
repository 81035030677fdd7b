//! Misfire: what becomes of fire times that passed while nobody was there. Beyond the documents.
//!
//! After an outage the scanner finds one overdue execution for each job, not all that were missed:
//! the next one is materialized only when this one is dispatched. So the question is asked one
//! fire time at a time, and the answer says which one comes next. What is outside the catch-up
//! window is jumped over in one step, however many fire times it held.
//!
//! It is asked again when a worker is about to begin: a dispatch may be in time, up to the lookahead before
//! it, and no worker may come for days.

use crate::domain::{ExecutionState, JobDefinitionState};
use cloud::Millis;
use serde::{Deserialize, Serialize};

/// A fire time that is dispatched, or begins, this late was missed; before, it is only late.
pub const MISSED_AFTER_MS: Millis = 60_000;

/// What to do about fire times that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Misfire {
    /// Run each of them that is inside the catch-up window.
    RunAll,
    /// Run the last of them, if it is inside the window.
    #[default]
    RunLast,
    /// Run none of them.
    SkipMissed,
}

/// What becomes of one fire time, and which comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fate {
    /// Whether it runs.
    pub runs: bool,
    /// The fire time after it.
    pub next: Option<Millis>,
}

/// Whether it was dispatched and is too late to begin: no worker came in time. It counts from when it might
/// have begun, so that one that waited for its turn is not missed.
///
/// A later fire time is no reason here, under RUN_LAST either: its run stands behind the same line of messages,
/// and behind a line that stays long each run would be skipped for the next.
pub fn is_missed(job: &JobDefinitionState, execution: &ExecutionState, now: Millis) -> bool {
    let late = execution.not_before < now - MISSED_AFTER_MS;
    late && match job.misfire {
        Misfire::SkipMissed => true,
        Misfire::RunAll | Misfire::RunLast => execution.execution_time < now - job.catch_up_ms,
    }
}

/// Decides about the fire time `fire`, found at `now`.
pub fn fate(job: &JobDefinitionState, fire: Millis, now: Millis) -> Fate {
    let after = |time| job.schedule.next_after(job.anchor, time);
    let run = Fate {
        runs: true,
        next: after(fire),
    };
    if fire >= now - MISSED_AFTER_MS {
        return run;
    }
    let skip = |next| Fate { runs: false, next };
    let window = now - job.catch_up_ms;
    match job.misfire {
        Misfire::RunAll if fire >= window => run,
        Misfire::RunAll => skip(after(window - 1)),
        Misfire::RunLast => match job.schedule.last_between(job.anchor, window, now) {
            Some(last) if last > fire => skip(Some(last)),
            Some(_) => run,
            None => skip(after(now)),
        },
        Misfire::SkipMissed => skip(after(now)),
    }
}
