//! Everything at once: a scanner, a sweeper and some workers in one process, until told to stop.

use crate::Scheduler;
use crate::claim_run::Run;
use crate::fairness::Room;
use crate::scan_due::patient;
use crate::tables::SHARDS;
use crate::worker::{Handler, Worker};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::fmt::Display;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How much runs at once, and how often somebody looks.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Workers: so many runs at once.
    pub workers: usize,
    /// How often a scanner comes by.
    pub scan_every: Duration,
    /// How often a sweeper comes by.
    pub sweep_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            workers: 8,
            scan_every: Duration::from_millis(500),
            sweep_every: Duration::from_secs(5),
        }
    }
}

/// How long a run may take to end by itself when the process is told to stop. Then it is given
/// back. The command line ends a process one second after Ctrl-C.
const DRAIN: Duration = Duration::from_millis(600);

/// And how long giving back may take.
const GIVE_BACK: Duration = Duration::from_millis(300);

/// Runs until `stop` ends. Then nothing new is begun, what ends soon ends, and the rest is given
/// back: another process may begin it at once.
pub async fn run_until(
    scheduler: Scheduler,
    handler: Arc<dyn Handler>,
    settings: Settings,
    stop: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let (giving_back, give_back) = watch::channel(false);
    let mut workers = JoinSet::new();
    workers.spawn(scan_until(scheduler.clone(), settings, stopped.clone()));
    workers.spawn(sweep_until(scheduler.clone(), settings, stopped.clone()));
    for _ in 0..settings.workers {
        let id = scheduler.cloud().ids().next("worker");
        let worker = Worker::new(scheduler.clone(), id, Arc::clone(&handler));
        let worker = worker.until(stopped.clone(), give_back.clone());
        workers.spawn(work_until(worker, scheduler.clone(), stopped.clone()));
    }
    stop.await;
    stopping.send_replace(true);
    let drained = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        giving_back.send_replace(true);
        let given_back = async { while workers.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(GIVE_BACK, given_back).await;
    }
}

async fn work_until(worker: Worker, scheduler: Scheduler, mut stop: watch::Receiver<bool>) {
    loop {
        // A message that arrives in the same moment is not lost: it is back when it is visible.
        let received = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            received = alive("receiving", scheduler.receive(5)) => received,
        };
        let well = match received {
            Some(Ok(Some(message))) => {
                said("working", alive("working", worker.handle(&message)).await)
            }
            Some(Ok(None)) => true,
            failed => said("receiving", failed),
        };
        if !well {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// The work of one round. A panic in it ends the round and not the loop: what a crash leaves behind is found,
/// and so is what a panic leaves.
async fn alive<T>(what: &str, work: impl Future<Output = T>) -> Option<T> {
    let done = AssertUnwindSafe(work).catch_unwind().await;
    done.inspect_err(|_| eprintln!("{what}: it panicked")).ok()
}

/// Says what failed; whether all went well.
fn said<T, E: Display>(what: &str, done: Option<Result<T, E>>) -> bool {
    if let Some(Err(error)) = &done {
        eprintln!("{what}: {error}");
    }
    matches!(done, Some(Ok(_)))
}

/// Waits, unless told to stop: then false.
async fn goes_on(stop: &mut watch::Receiver<bool>, pause: Duration) -> bool {
    tokio::select! {
        _ = stop.wait_for(|stop| *stop) => false,
        () = tokio::time::sleep(pause) => true,
    }
}

/// A failure is said and tried again: nothing is lost by it.
async fn scan_until(scheduler: Scheduler, settings: Settings, mut stop: watch::Receiver<bool>) {
    loop {
        alive("scanning", scan(&scheduler)).await;
        if !goes_on(&mut stop, settings.scan_every).await {
            return;
        }
    }
}

async fn scan(scheduler: &Scheduler) {
    let room = match patient(scheduler.room()).await {
        Ok(room) => room,
        Err(error) => return eprintln!("scanning: {error}"),
    };
    if room == Room::from(0) {
        return;
    }
    for (what, outcome) in scheduler.scan_due(0..SHARDS, room).await {
        if let Err(error) = outcome {
            eprintln!("dispatching {what}: {error}");
        }
    }
}

async fn sweep_until(scheduler: Scheduler, settings: Settings, mut stop: watch::Receiver<bool>) {
    loop {
        let swept = alive("sweeping", scheduler.sweep_stale(0..SHARDS)).await;
        for (what, outcome) in swept.unwrap_or_default() {
            if let Err(error) = outcome {
                eprintln!("sweeping {what}: {error}");
            }
        }
        if !goes_on(&mut stop, settings.sweep_every).await {
            return;
        }
    }
}

/// The kinds of job that `serve` knows: enough to try the command line with.
///
/// - `echo` prints its parameters;
/// - `fail` fails its first N attempts, N being its parameters;
/// - `sleep` takes N milliseconds.
pub struct BuiltIn;

impl Handler for BuiltIn {
    fn run<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let parameters = run.parameters.as_str();
            let number = || {
                let parsed = parameters.parse::<u32>();
                parsed.map_err(|_| format!("'{parameters}' is not a number"))
            };
            match run.job.kind.as_str() {
                "echo" => {
                    println!("{} {parameters}", run.execution.execution_id);
                    Ok(())
                }
                "fail" if run.execution.attempt <= number()? => {
                    Err(format!("attempt {} was to fail", run.execution.attempt))
                }
                "fail" => Ok(()),
                "sleep" => {
                    tokio::time::sleep(Duration::from_millis(number()?.into())).await;
                    Ok(())
                }
                other => Err(format!("there is no handler for '{other}'")),
            }
        })
    }
}
