#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`], [`queue`].
//! The documents' use cases: [`create_job`], [`materialize`], [`scan_due`], [`enqueue`],
//! [`claim_run`], [`finish_run`], [`worker`].
//! Beyond the documents, each skippable: [`schedule`] (cron and time zones), [`sweep_stale`] (what
//! got lost), [`heartbeat`], [`overlap`], [`misfire`], [`fairness`], [`change_job`] (cancel, pause,
//! resume, reschedule), [`redrive`], [`view`], [`api`], [`service`] (everything at once),
//! [`client`] (the command line), [`bench`]. The story that shows it all: [`walkthrough`].

pub mod api;
pub mod bench;
pub mod change_job;
pub mod claim_run;
pub mod client;
pub mod create_job;
pub mod domain;
pub mod enqueue;
pub mod fairness;
pub mod finish_run;
pub mod heartbeat;
pub mod items;
pub mod materialize;
pub mod misfire;
pub mod overlap;
pub mod queue;
pub mod redrive;
pub mod scan_due;
pub mod schedule;
pub mod service;
pub mod sweep_stale;
pub mod tables;
pub mod view;
pub mod walkthrough;
pub mod worker;

pub use claim_run::{Claimed, Run};
pub use create_job::NewJob;
pub use enqueue::Enqueued;
pub use finish_run::Finish;
pub use misfire::Misfire;
pub use overlap::Overlap;
pub use schedule::Schedule;
pub use walkthrough::archetype;

pub use worker::{Handler, Worked, Worker};

use cloud::{Cloud, CloudError, Millis};
use domain::{BadInput, JobStatus};
use std::sync::{Arc, Mutex};

/// How far ahead of its time an execution is put into the queue, unless told.
pub const LOOKAHEAD_MS: Millis = 30_000;

/// As far as SQS can delay a message, and so as far as anybody may look ahead.
pub const MAX_LOOKAHEAD_MS: Millis = 900_000;

/// How many messages the queue may hold before the backlog waits in the table, unless told: what is
/// in the queue has its order, what is in the table can be chosen fairly.
pub const QUEUE_DEPTH: usize = 1_000;

/// How often a step that was overtaken is decided again. Each time, somebody else got on.
pub(crate) const ATTEMPTS: u32 = 100;

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct Scheduler {
    cloud: Cloud,
    queues: queue::Queues,
    lookahead_ms: Millis,
    queue_depth: usize,
    turns: Arc<Mutex<fairness::Turns>>,
}

impl Scheduler {
    /// A scheduler on this cloud. Tables and queues must be there: `archetype().create(&cloud)`.
    pub async fn connect(cloud: Cloud) -> Result<Self, CloudError> {
        let queues = queue::Queues::find(&cloud).await?;
        Ok(Self {
            cloud,
            queues,
            lookahead_ms: LOOKAHEAD_MS,
            queue_depth: QUEUE_DEPTH,
            turns: Arc::default(),
        })
    }

    /// The same, with a queue that is kept this short.
    pub fn keeping_the_queue_at(self, queue_depth: usize) -> Self {
        Self {
            queue_depth,
            ..self
        }
    }

    /// The same, looking this far ahead.
    ///
    /// # Errors
    /// Beyond what SQS can delay: such a message would be refused, or come too early.
    pub fn looking_ahead(self, lookahead_ms: Millis) -> Result<Self, BadInput> {
        if !(0..=MAX_LOOKAHEAD_MS).contains(&lookahead_ms) {
            return Err(BadInput::Range {
                what: "the lookahead in ms",
                least: 0,
                most: MAX_LOOKAHEAD_MS,
                given: lookahead_ms,
            });
        }
        Ok(Self {
            lookahead_ms,
            ..self
        })
    }

    /// The same scheduler on another view of its cloud: another clock, or beside the tap.
    pub fn on(&self, cloud: Cloud) -> Self {
        Self {
            cloud,
            ..self.clone()
        }
    }

    /// The cloud it runs on.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    fn now(&self) -> Millis {
        self.cloud.now()
    }

    fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        self.cloud.dynamodb()
    }

    fn table(&self, name: &str) -> String {
        self.cloud.names().table(name)
    }
}

/// Why a use case gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum SchedulerError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// No such job.
    #[error("there is no job '{0}'")]
    UnknownJob(String),
    /// The id belongs to something else.
    #[error("the id '{0}' is already used for something else")]
    IdTaken(String),
    /// The job's status does not allow it.
    #[error("the job is {status:?}: it cannot be {wanted}")]
    NotNow {
        /// What it is.
        status: JobStatus,
        /// What was asked for.
        wanted: &'static str,
    },
    /// Every time that was asked for has had its run.
    #[error("the job has already run at the time it would fire at")]
    AlreadyRan,
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again")]
    Contended,
    /// A fault below; for an unknown outcome, ask with the same id.
    #[error(transparent)]
    Fault(#[from] CloudError),
}
