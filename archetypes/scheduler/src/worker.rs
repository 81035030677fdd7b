//! A worker: receives, claims, runs the handler under a lease, and says what came of it.
//!
//! One worker has one run at a time; a process has as many workers as it likes, each with a name of
//! its own, since the name is what a lost answer is recognized by.

use crate::claim_run::{Claimed, Run};
use crate::domain::AfterFailure;
use crate::finish_run::Finish;
use crate::queue::Message;
use crate::{Scheduler, SchedulerError};
use cloud::{CloudError, Millis};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What a job does. It may be run twice for one fire time, after a crash or a lost lease: whatever
/// it changes elsewhere, it changes under the execution's id and its `attempt`.
pub trait Handler: Send + Sync {
    /// Runs it. An error is a failed attempt.
    fn run<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), String>>;
}

impl<F> Handler for F
where
    F: for<'a> Fn(&'a Run) -> BoxFuture<'a, Result<(), String>> + Send + Sync,
{
    fn run<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        self(run)
    }
}

/// What a worker did with a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Worked {
    /// The job is done.
    Completed,
    /// The attempt failed; another one follows.
    Retrying {
        /// When.
        at: Millis,
    },
    /// The last attempt failed.
    Failed,
    /// Somebody else took over meanwhile; what this one did counts for nothing.
    Stale,
    /// Told to stop; somebody else will do it.
    GivenBack,
    /// Nothing to do: done, called off, or not dispatched.
    Echo,
    /// Hidden until its time.
    TooEarly,
    /// Hidden until the lease of whoever has it ends.
    Held,
    /// It was called off, and now says so.
    CalledOff,
    /// Another execution of the job runs.
    Skipped,
    /// The same, and this one is next.
    Waits,
    /// The worker of the last attempt died.
    GaveUp,
    /// Nobody can read it. SQS moves it to the dead-letter queue when it has come often enough.
    Poison,
}

/// The part of the last second that a worker waits for itself: SQS counts whole ones.
const LAST_MILE_MS: Millis = 1_000;

/// How long the messages that follow a last word may take.
const LAST_WORD: Duration = Duration::from_secs(5);

/// The longest pause between two tries to say what came of a run.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Receives and runs.
#[derive(Clone)]
pub struct Worker {
    scheduler: Scheduler,
    id: String,
    handler: Arc<dyn Handler>,
    draining: watch::Receiver<bool>,
    giving_back: watch::Receiver<bool>,
}

impl Worker {
    /// A worker under a name that no other worker has.
    pub fn new(scheduler: Scheduler, id: impl Into<String>, handler: Arc<dyn Handler>) -> Self {
        let (_, never) = watch::channel(false);
        Self {
            scheduler,
            id: id.into(),
            handler,
            draining: never.clone(),
            giving_back: never,
        }
    }

    /// The same, beginning nothing when `draining` turns true, and giving back what it has when
    /// `giving_back` does.
    pub fn until(
        self,
        draining: watch::Receiver<bool>,
        giving_back: watch::Receiver<bool>,
    ) -> Self {
        Self {
            draining,
            giving_back,
            ..self
        }
    }

    /// Receives one message, waiting up to `seconds`, and works on it. None if none came.
    pub async fn work(&self, seconds: i32) -> Result<Option<Worked>, SchedulerError> {
        match self.scheduler.receive(seconds).await? {
            Some(message) => self.handle(&message).await.map(Some),
            None => Ok(None),
        }
    }

    /// Works on one message, however often it has been delivered before.
    pub async fn handle(&self, message: &Message) -> Result<Worked, SchedulerError> {
        let mut claimed = self.scheduler.claim(message, &self.id).await?;
        if let Claimed::TooEarly { at } = claimed {
            let left = at - self.scheduler.now();
            if (0..=LAST_MILE_MS).contains(&left) {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(left as u64)) => {
                        claimed = self.scheduler.claim(message, &self.id).await?;
                    }
                    () = told(&self.draining) => {}
                }
            }
        }
        let worked = match claimed {
            Claimed::Run(run) => return Box::pin(self.run(&run)).await,
            Claimed::TooEarly { at } => {
                self.scheduler.hint(self.scheduler.hide(message, at)).await;
                return Ok(Worked::TooEarly);
            }
            Claimed::Held { until } => {
                self.scheduler
                    .hint(self.scheduler.hide(message, until))
                    .await;
                return Ok(Worked::Held);
            }
            Claimed::Echo if message.says.is_none() => {
                let now = self.scheduler.now();
                self.scheduler.hint(self.scheduler.hide(message, now)).await;
                return Ok(Worked::Poison);
            }
            Claimed::Echo => Worked::Echo,
            Claimed::CalledOff => Worked::CalledOff,
            Claimed::Skipped => Worked::Skipped,
            Claimed::Waits => Worked::Waits,
            Claimed::GaveUp => Worked::GaveUp,
        };
        self.scheduler.hint(self.scheduler.delete(message)).await;
        Ok(worked)
    }

    async fn run(&self, run: &Run) -> Result<Worked, SchedulerError> {
        let timeout = Duration::from_millis(run.job.timeout_ms as u64);
        // A handler that panics has failed, and takes nobody with it.
        let handled = AssertUnwindSafe(async { self.handler.run(run).await }).catch_unwind();
        let mut lost = pin!(self.lose_lease(run));
        let ended = tokio::select! {
            // What is done is done, whatever else is true at the same moment.
            biased;
            ended = tokio::time::timeout(timeout, handled) => ended,
            () = &mut lost => return Ok(Worked::Stale),
            () = told(&self.giving_back) => {
                return Ok(match self.scheduler.give_back(run).await? {
                    Finish::Done => Worked::GivenBack,
                    Finish::Stale => Worked::Stale,
                });
            }
        };
        let failed = match ended {
            Ok(Ok(Ok(()))) => None,
            Ok(Ok(Err(why))) => Some(why),
            Ok(Err(_)) => Some("the handler panicked".to_owned()),
            Err(_) => Some(format!("it took longer than {} ms", run.job.timeout_ms)),
        };
        // The work is done; it would be done again for want of a word. So it is said until it is heard, with
        // heartbeats beside it: a handler may be given less time than its lease has.
        let mut word = Box::pin(self.last_word(run, failed.as_deref()));
        let lease = Duration::from_millis(run.job.lease_ms as u64);
        tokio::select! {
            biased;
            worked = &mut word => worked,
            // Also when the word is in the row and only its messages are on their way.
            () = lost => match tokio::time::timeout(LAST_WORD, word).await {
                Ok(worked) => worked,
                Err(_) => Ok(Worked::Stale),
            },
            () = tokio::time::sleep(timeout.max(lease)) => Err(SchedulerError::Contended),
        }
    }

    /// Says what came of a run, again and again as long as that may help.
    async fn last_word(&self, run: &Run, failed: Option<&str>) -> Result<Worked, SchedulerError> {
        let mut pause = Duration::from_millis(10);
        loop {
            let said = match failed {
                None => self
                    .scheduler
                    .complete(run)
                    .await
                    .map(|finish| match finish {
                        Finish::Done => Worked::Completed,
                        Finish::Stale => Worked::Stale,
                    }),
                Some(why) => self.scheduler.fail(run, why).await.map(|said| match said {
                    (Finish::Stale, _) => Worked::Stale,
                    (Finish::Done, AfterFailure::Retry { at }) => Worked::Retrying { at },
                    (Finish::Done, AfterFailure::Fail) => Worked::Failed,
                }),
            };
            match said {
                Err(
                    SchedulerError::Contended
                    | SchedulerError::Fault(
                        CloudError::Throttled(_) | CloudError::Conflict(_) | CloudError::Unknown(_),
                    ),
                ) => tokio::time::sleep(pause).await,
                said => return said,
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Extends the lease three times in its length; ends when it is lost. A heartbeat that fails, or has no answer by
    /// two thirds of the time to the next one, is made again with that: there is time for one more, since the lease ends
    /// as the third would be due.
    async fn lose_lease(&self, run: &Run) {
        let pace = Duration::from_millis((run.job.lease_ms / 3) as u64);
        let mut beats = tokio::time::interval(pace);
        beats.tick().await;
        let mut expires = run.execution.lease_expires_at.unwrap_or_default();
        let left = |expires: Millis| {
            let left = expires - self.scheduler.now();
            Duration::from_millis(left.max(0) as u64)
        };
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep(left(expires)) => return,
                _ = beats.tick() => {}
            }
            let now = self.scheduler.now();
            let limit = left(expires).min(pace * 2 / 3);
            match tokio::time::timeout(limit, self.scheduler.extend_lease(run)).await {
                Ok(Ok(Finish::Done)) => {
                    expires = now + run.job.lease_ms;
                    self.scheduler.keep_hidden(run).await;
                }
                Ok(Ok(Finish::Stale) | Err(SchedulerError::Fault(CloudError::Corrupt(_)))) => {
                    return;
                }
                Ok(Err(_)) | Err(_) => {}
            }
        }
    }
}

/// Ends when told.
async fn told(stop: &watch::Receiver<bool>) {
    let mut stop = stop.clone();
    let told = stop.wait_for(|stop| *stop).await.is_ok();
    if !told {
        // Nobody is left who could tell.
        std::future::pending::<()>().await;
    }
}
