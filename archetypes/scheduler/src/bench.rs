//! `bench`: how late do runs start, and how many a second? Measured, on whatever backend is chosen.

use crate::claim_run::Run;
use crate::create_job::NewJob;
use crate::schedule::Schedule;
use crate::service::{Settings, run_until};
use crate::worker::Handler;
use crate::{QUEUE_DEPTH, Scheduler, SchedulerError};
use anyhow::Result;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::{Cloud, Millis};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Run executions, and print how late they start (p50, p99) and how many a second",
    args: bench_args,
    run: |cloud, args| Box::pin(bench(cloud, args)),
};

fn bench_args(command: Command) -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..=1_000_000))
            .default_value(default)
            .help(help)
    };
    command
        .arg(number("executions", "2000", "How many"))
        .arg(number("rate", "100", "How many are due each second"))
        .arg(number("workers", "16", "So many runs at once"))
        .arg(
            Arg::new("at-once")
                .long("at-once")
                .action(ArgAction::SetTrue)
                .conflicts_with("rate")
                .help("All are due at the same moment: what counts then is how many a second"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// How many executions.
    pub executions: usize,
    /// How many were due each second; none if all at once.
    pub due_per_second: Option<u32>,
    /// Workers.
    pub workers: usize,
    /// Half of them started no later than this after their time.
    pub late_p50_ms: Millis,
    /// 99 of 100 did.
    pub late_p99_ms: Millis,
    /// The latest.
    pub late_max_ms: Millis,
    /// From the first fire time to the last end.
    pub seconds: f64,
    /// Executions per second over that time.
    pub per_second: f64,
    /// How often each was started: once, if nobody died.
    pub starts: usize,
}

#[derive(Clone)]
struct Stopwatch {
    cloud: Cloud,
    late: Arc<Mutex<Vec<Millis>>>,
    wanted: usize,
    all: Arc<Notify>,
    bar: ProgressBar,
}

impl Handler for Stopwatch {
    fn run<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        let late = self.cloud.now() - run.execution.execution_time;
        let mut all = self.late.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(late);
        self.bar.set_position(all.len() as u64);
        if all.len() == self.wanted {
            self.all.notify_one();
        }
        Box::pin(async { Ok(()) })
    }
}

async fn bench(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let number = |name| args.get_one::<u32>(name).copied().unwrap_or(1);
    let rate = (!args.get_flag("at-once")).then(|| number("rate"));
    let bar = ProgressBar::new(u64::from(number("executions")));
    if args.get_flag("json") || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(ProgressStyle::with_template(
        "{bar:40} {pos}/{len} started, {elapsed}",
    )?);
    let executions = number("executions") as usize;
    let measured = measure(cloud, executions, rate, number("workers") as usize, bar).await?;
    if args.get_flag("json") {
        println!("{:#}", serde_json::to_value(&measured)?);
        return Ok(());
    }
    let due = match measured.due_per_second {
        Some(rate) => format!("{rate} due each second"),
        None => "all due at once".to_owned(),
    };
    println!(
        "{} executions, {due}, {} workers",
        measured.executions, measured.workers
    );
    println!(
        "start - due   p50 {} ms   p99 {} ms   max {} ms",
        measured.late_p50_ms, measured.late_p99_ms, measured.late_max_ms
    );
    println!(
        "throughput    {:.0} executions/s over {:.1} s",
        measured.per_second, measured.seconds
    );
    Ok(())
}

/// Creates so many jobs that fire once, and runs them. Jobs are created in the order they are due,
/// beginning some seconds before the first: creating is a part of the load.
pub async fn measure(
    cloud: Cloud,
    executions: usize,
    rate: Option<u32>,
    workers: usize,
    bar: ProgressBar,
) -> Result<Measured> {
    let scheduler = Scheduler::connect(cloud.clone())
        .await?
        .looking_ahead(5_000)?;
    let scheduler = scheduler.keeping_the_queue_at(executions.max(QUEUE_DEPTH));
    let ahead = match rate {
        Some(_) => 3_000,
        // Time to create them all before the moment comes.
        None => 3_000 + executions as Millis * 5,
    };
    let first = cloud.now() + ahead;
    let watch = Stopwatch {
        cloud: cloud.clone(),
        late: Arc::default(),
        wanted: executions,
        all: Arc::default(),
        bar: bar.clone(),
    };
    let all = Arc::clone(&watch.all);
    let creating = async {
        let jobs = (0..executions).map(|at| {
            let fires = rate.map_or(0, |rate| at as Millis * 1_000 / Millis::from(rate));
            let schedule = Schedule::Once { at: first + fires };
            let tenant = format!("tenant-{}", at % 10);
            let job = NewJob::new(cloud.ids().next("job"), &tenant, schedule);
            let scheduler = scheduler.clone();
            async move { scheduler.create_job(job).await.map(|_| ()) }
        });
        let creating = futures::stream::iter(jobs).buffer_unordered(8);
        creating.try_collect::<Vec<()>>().await?;
        Ok::<(), SchedulerError>(())
    };
    let ended = Arc::new(Mutex::new(None));
    let stop = {
        let ended = Arc::clone(&ended);
        async move {
            all.notified().await;
            *ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    };
    let settings = Settings {
        workers,
        scan_every: Duration::from_millis(250),
        ..Settings::default()
    };
    let started = Instant::now();
    let running = run_until(scheduler.clone(), Arc::new(watch.clone()), settings, stop);
    let ((), created) = tokio::join!(running, creating);
    created?;
    bar.finish_and_clear();
    let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
    let lasted = ended
        .unwrap_or(started)
        .duration_since(started)
        .as_secs_f64();
    let seconds = (lasted - ahead as f64 / 1_000.0).max(0.001);
    let mut late = watch
        .late
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    late.sort_unstable();
    let percentile = |part: usize| late[(late.len() * part / 100).min(late.len() - 1)];
    Ok(Measured {
        executions,
        due_per_second: rate,
        workers,
        late_p50_ms: percentile(50),
        late_p99_ms: percentile(99),
        late_max_ms: percentile(100),
        seconds,
        per_second: executions as f64 / seconds,
        starts: late.len(),
    })
}
