//! Random stories over all features, in bad weather, with an oracle that says what may be true after each step.
//! Messages are made from the rows: any may come at any time, again, late or never.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Faults, Weaken, World};
use cloud::{Millis, TEST_EPOCH};
use futures::FutureExt;
use office::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use scheduler::change_job::Change;
use scheduler::domain::{ExecutionState, ExecutionStatus, JobDefinitionState, JobStatus};
use scheduler::queue::Message;
use scheduler::{Claimed, Finish, Misfire, NewJob, Overlap, Run, Schedule, SchedulerError, items};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;

#[derive(Debug, Clone)]
enum Step {
    Scan,
    Sweep,
    /// Living workers breathe meanwhile.
    Pass {
        minutes: i64,
    },
    /// The next fire time comes, and a scanner is there.
    Due,
    /// A message about one of the rows comes.
    Deliver {
        which: usize,
    },
    /// A run ends, well or not.
    End {
        which: usize,
        well: bool,
    },
    /// Its worker dies.
    Die {
        which: usize,
    },
    Change(Change),
    /// The plan has the time of one of the rows again.
    Replan {
        which: usize,
    },
    /// The last change is sent again.
    Again,
    Redrive,
}

#[derive(Debug, Clone)]
struct Tale {
    schedule: Schedule,
    overlap: Overlap,
    misfire: Misfire,
    steps: Vec<Step>,
}

fn schedules() -> impl Strategy<Value = Schedule> {
    prop_oneof![
        (0..120_i64).prop_map(|minutes| Schedule::Once {
            at: TEST_EPOCH + minutes * MINUTE
        }),
        Just(Schedule::Every { every_ms: HOUR }),
        Just(Schedule::Cron {
            expression: "*/50 * * * *".to_owned(),
            time_zone: "Europe/Berlin".to_owned()
        }),
    ]
}

fn tales() -> impl Strategy<Value = Tale> {
    let change = prop_oneof![
        3 => Just(Change::Pause),
        4 => Just(Change::Resume),
        1 => Just(Change::Cancel),
        2 => schedules().prop_map(Change::Reschedule),
    ];
    let step = prop_oneof![
        3 => Just(Step::Scan),
        5 => Just(Step::Due),
        1 => Just(Step::Sweep),
        6 => (1..60_i64).prop_map(|minutes| Step::Pass { minutes }),
        10 => (0..4_usize).prop_map(|which| Step::Deliver { which }),
        5 => (0..3_usize, proptest::bool::weighted(0.35)).prop_map(|(which, well)| Step::End { which, well }),
        1 => (0..3_usize).prop_map(|which| Step::Die { which }),
        2 => change.prop_map(Step::Change),
        1 => (0..4_usize).prop_map(|which| Step::Replan { which }),
        1 => Just(Step::Again),
        1 => Just(Step::Redrive),
    ];
    let overlap = prop_oneof![
        Just(Overlap::AllowAll),
        Just(Overlap::Skip),
        Just(Overlap::QueueOne)
    ];
    let misfire = prop_oneof![
        Just(Misfire::RunAll),
        Just(Misfire::RunLast),
        Just(Misfire::SkipMissed)
    ];
    let steps = proptest::collection::vec(step, 15..40);
    (schedules(), overlap, misfire, steps).prop_map(|(schedule, overlap, misfire, steps)| Tale {
        schedule,
        overlap,
        misfire,
        steps,
    })
}

/// What may be true.
struct Oracle {
    /// As the last answer said.
    job: JobDefinitionState,
    /// When its plan began.
    since: Millis,
    /// The runs of workers that live.
    living: Vec<Run>,
    /// Which attempts began.
    begun: BTreeSet<(String, u32)>,
    completed: BTreeSet<String>,
    /// It was never rescheduled, and is to fire once.
    once: bool,
    last: Option<(Change, String)>,
}

impl Oracle {
    fn begins(&mut self, run: Run, now: Millis, misfire: Misfire) {
        let execution = &run.execution;
        let id = execution.execution_id.clone();
        assert!(execution.execution_time <= now, "{id} before its time");
        assert!(
            self.begun.insert((id.clone(), execution.attempt)),
            "attempt {} of {id} began twice",
            execution.attempt
        );
        let lives = self
            .living
            .iter()
            .any(|run| run.execution.execution_id == id);
        assert!(!lives, "{id} was taken from a living worker");
        assert!(!self.completed.contains(&id), "{id} had its run");
        assert_ne!(self.job.status, JobStatus::Cancelled, "{id}");
        if execution.attempt == 1 {
            assert_ne!(self.job.status, JobStatus::Paused, "{id}");
            assert_eq!(
                execution.schedule_version, self.job.schedule_version,
                "{id}"
            );
            let late = now - execution.not_before;
            assert!(
                misfire != Misfire::SkipMissed || late <= MINUTE,
                "{id} was missed"
            );
        }
        if self.job.overlap != Overlap::AllowAll {
            assert!(self.living.is_empty(), "{id} beside {:?}", self.living);
        }
        self.living.push(run);
    }

    fn changed(&mut self, job: JobDefinitionState, now: Millis) {
        if job.schedule_version != self.job.schedule_version {
            self.since = now;
        }
        self.job = job;
    }
}

/// A client, a worker or a loop that gets no answer asks again. What the rules say is an answer.
async fn until_answered<T>(
    mut ask: impl AsyncFnMut() -> Result<T, SchedulerError>,
) -> Result<T, SchedulerError> {
    for _ in 0..60 {
        match ask().await {
            Err(SchedulerError::Fault(_) | SchedulerError::Contended) => {}
            answered => return answered,
        }
    }
    panic!("no answer in sixty tries");
}

fn message(execution: &ExecutionState) -> Message {
    Message {
        says: Some(execution.into()),
        receipt: "made from the row".to_owned(),
    }
}

/// The latest rows, beside the weather.
async fn rows(office: &Office) -> Vec<ExecutionState> {
    let beside = office.scheduler.on(office.cloud().beside_tap());
    beside.executions_of("acme/job", 1_000).await.unwrap()
}

async fn play(
    tale: &Tale,
    seed: u64,
    without: Option<Arc<Weaken>>,
) -> (Oracle, BTreeMap<String, ExecutionStatus>) {
    let office = open().await;
    let scheduler = &office.scheduler;
    let _weakened = without.map(|guard| office.cloud().tap().install(guard));
    let faults = Faults::seeded(seed).throttle(0.04);
    let faults = faults.lose_request(0.04).lose_answer(0.04);
    let weather = office.cloud().tap().install(Arc::new(faults));
    let new = NewJob {
        overlap: tale.overlap,
        misfire: tale.misfire,
        catch_up_ms: 300 * 24 * HOUR,
        lease_ms: 2 * HOUR,
        max_attempts: 2,
        parameters: "good morning".to_owned(),
        ..NewJob::new("job", "acme", tale.schedule.clone())
    };
    let job = until_answered(async || scheduler.create_job(new.clone()).await).await;
    let mut oracle = Oracle {
        job: job.unwrap(),
        since: office.now(),
        living: Vec::new(),
        begun: BTreeSet::new(),
        completed: BTreeSet::new(),
        once: matches!(tale.schedule, Schedule::Once { .. }),
        last: None,
    };
    for (number, step) in tale.steps.iter().enumerate() {
        let step = match step.clone() {
            Step::Replan { which } => {
                let rows = rows(&office).await;
                let at = rows[which % rows.len()].execution_time;
                Step::Change(Change::Reschedule(Schedule::Once { at }))
            }
            other => other,
        };
        match step.clone() {
            Step::Scan => {
                scheduler.scan_due(0..4, 1_000).await;
            }
            Step::Sweep => {
                scheduler.sweep_stale(0..4).await;
            }
            Step::Pass { minutes } => pass(&office, &oracle, minutes * MINUTE).await,
            Step::Due => {
                let beside = scheduler.on(office.cloud().beside_tap());
                let job = beside.known_job("acme/job").await.unwrap();
                let left = job.next_fire_time.map_or(0, |next| next - office.now());
                pass(&office, &oracle, left.clamp(0, HOUR)).await;
                scheduler.scan_due(0..4, 1_000).await;
            }
            Step::Deliver { which } => deliver(&office, &mut oracle, tale, which).await,
            Step::End { which, well } if !oracle.living.is_empty() => {
                let run = oracle.living.remove(which % oracle.living.len());
                let finish = match well {
                    true => until_answered(async || scheduler.complete(&run).await).await,
                    false => until_answered(async || scheduler.fail(&run, "no").await)
                        .await
                        .map(|(finish, _)| finish),
                };
                assert_eq!(finish.unwrap(), Finish::Done, "it lived");
                if well {
                    let id = run.execution.execution_id;
                    assert!(oracle.completed.insert(id), "completed twice");
                }
            }
            Step::Die { which } if !oracle.living.is_empty() => {
                oracle.living.remove(which % oracle.living.len());
            }
            Step::End { .. } | Step::Die { .. } => {}
            Step::Change(change) => {
                let id = format!("change-{number}");
                let make = async || scheduler.change_job("acme/job", &change, &id).await;
                match until_answered(make).await {
                    Ok(job) => {
                        oracle.once &= !matches!(change, Change::Reschedule(_));
                        if job.change_id.as_ref() == Some(&id) {
                            oracle.last = Some((change.clone(), id));
                        }
                        oracle.changed(job, office.now());
                    }
                    Err(SchedulerError::NotNow { .. } | SchedulerError::AlreadyRan) => {}
                    Err(other) => panic!("{change:?}: {other}"),
                }
            }
            Step::Again => {
                if let Some((change, id)) = oracle.last.clone() {
                    let make = async || scheduler.change_job("acme/job", &change, &id).await;
                    let again = until_answered(make).await.unwrap();
                    assert_eq!(again.schedule_version, oracle.job.schedule_version);
                    let other = match change {
                        Change::Pause => Change::Cancel,
                        _ => Change::Pause,
                    };
                    let refused = scheduler.change_job("acme/job", &other, &id);
                    let told = refused.await;
                    let right = matches!(
                        told,
                        Err(SchedulerError::IdTaken(_) | SchedulerError::Fault(_))
                    );
                    assert!(right, "{told:?}");
                }
            }
            // Without overlap a redriven run comes back without a place: see the claims.
            Step::Redrive if tale.overlap == Overlap::AllowAll => {
                for row in rows(&office).await {
                    let redrive = async || scheduler.redrive_one(&row.execution_id).await;
                    until_answered(redrive).await.unwrap();
                }
            }
            Step::Redrive | Step::Replan { .. } => {}
        }
        office
            .invariants("job")
            .await
            .unwrap_or_else(|why| panic!("after step {number}, {step:?}: {why}"));
    }
    drop(weather);
    let all = ends_as_it_must(&office, &mut oracle, tale).await;
    (oracle, all)
}

/// Time passes, and living workers breathe.
async fn pass(office: &Office, oracle: &Oracle, ms: Millis) {
    office.advance(ms);
    for run in &oracle.living {
        let beat = until_answered(async || office.scheduler.heartbeat(run).await).await;
        assert_eq!(beat.unwrap(), Finish::Done, "it lives");
    }
}

/// A message about one of the latest rows comes to a worker that has nothing to do.
async fn deliver(office: &Office, oracle: &mut Oracle, tale: &Tale, which: usize) {
    let rows = rows(office).await;
    // Any row, but most often one that may begin.
    let open = |row: &&ExecutionState| {
        row.due_shard
            .as_ref()
            .is_some_and(|it| it.contains("watch"))
    };
    let open: Vec<_> = rows.iter().filter(open).collect();
    let row = match open.is_empty() || which % 4 == 3 {
        true => &rows[which % rows.len()],
        false => open[which % open.len()],
    };
    deliver_this(office, oracle, tale, row).await;
}

async fn deliver_this(office: &Office, oracle: &mut Oracle, tale: &Tale, row: &ExecutionState) {
    let owner = office.cloud().ids().next("worker");
    let message = message(row);
    let claim = async || office.scheduler.claim(&message, &owner).await;
    if let Claimed::Run(run) = until_answered(claim).await.unwrap() {
        assert_eq!(run.parameters, "good morning");
        oracle.begins(*run, office.now(), tale.misfire);
    }
}

/// The weather is fair, every message comes, workers work: each run that was planned is accounted for.
async fn ends_as_it_must(
    office: &Office,
    oracle: &mut Oracle,
    tale: &Tale,
) -> BTreeMap<String, ExecutionStatus> {
    let scheduler = &office.scheduler;
    for run in std::mem::take(&mut oracle.living) {
        assert_eq!(scheduler.complete(&run).await.unwrap(), Finish::Done);
        assert!(oracle.completed.insert(run.execution.execution_id));
    }
    for round in 0..6 {
        if round > 0 {
            office.advance(2 * HOUR + MINUTE / 2);
        }
        for _ in 0..4 {
            office.scan().await;
            for row in rows(office).await {
                deliver_this(office, oracle, tale, &row).await;
                for run in std::mem::take(&mut oracle.living) {
                    assert_eq!(scheduler.complete(&run).await.unwrap(), Finish::Done);
                    assert!(oracle.completed.insert(run.execution.execution_id));
                }
            }
        }
    }
    let now = office.now();
    let all = office.invariants("job").await.unwrap();
    for (id, status) in &all {
        let (time, _) = items::parts_of(id).unwrap();
        let ahead = time + MINUTE > now;
        match status {
            ExecutionStatus::Completed => assert!(oracle.completed.contains(id), "{id}"),
            ExecutionStatus::Failed | ExecutionStatus::Skipped | ExecutionStatus::Cancelled => {}
            ExecutionStatus::Pending | ExecutionStatus::Enqueued if ahead => {}
            other => panic!("{id} is {other:?} for ever"),
        }
    }
    for id in &oracle.completed {
        assert_eq!(all[id], ExecutionStatus::Completed, "{id}");
    }
    // A job that was only ever to fire once has run once for each time that it was planned to.
    if oracle.once {
        assert!(oracle.completed.len() <= 1, "{:?}", oracle.completed);
    }
    // No fire time of the last plan is missing.
    let job = scheduler.known_job("acme/job").await.unwrap();
    if job.status == JobStatus::Active && tale.misfire == Misfire::RunAll {
        let mut fire = job.schedule.next_after(job.anchor, oracle.since);
        while let Some(time) = fire.filter(|time| *time <= now) {
            let id = items::execution_id(time, "acme/job");
            assert!(all.contains_key(&id), "{id} is missing: {all:?}");
            fire = job.schedule.next_after(job.anchor, time);
        }
    }
    all
}

/// The same stories in each run.
fn told() -> impl Iterator<Item = (u64, Tale)> {
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    (0..40).map(move |seed| (seed, tales().new_tree(&mut runner).unwrap().current()))
}

#[tokio::test]
async fn random_stories_agree_with_the_oracle() {
    let mut ends: BTreeMap<String, usize> = BTreeMap::new();
    let (mut retried, mut replanned) = (0, 0);
    for (seed, tale) in told() {
        println!("seed {seed}: {tale:?}");
        let (oracle, all) = play(&tale, seed, None).await;
        for status in all.values() {
            *ends.entry(format!("{status:?}")).or_default() += 1;
        }
        retried += oracle
            .begun
            .iter()
            .filter(|(_, attempt)| *attempt > 1)
            .count();
        replanned += usize::from(oracle.job.schedule_version > 1);
    }
    println!("{ends:?}, {retried} retried, {replanned} replanned");
    for end in ["Completed", "Skipped", "Cancelled", "Failed"] {
        assert!(ends.contains_key(end), "{ends:?}");
    }
    assert!(retried > 5 && replanned > 5, "{retried} {replanned}");
}

/// A guard is taken away, and within a few stories the oracle complains of what it prevents: of a lease that is not
/// looked at, and of a fire time that is planned though it has had its run.
#[tokio::test]
async fn without_a_guard_the_oracle_complains() {
    let guard = || Weaken::guard_on("executions");
    for (weaken, stories, complaint) in [
        (
            guard().without("lease_expires_at <= :now"),
            0..5,
            "was taken from a living worker",
        ),
        (
            guard().containing("attribute_not_exists(execution_id)"),
            16..26,
            "began twice",
        ),
    ] {
        let weaken = Arc::new(weaken);
        let mut complaints = Vec::new();
        for (seed, tale) in told().filter(|(seed, _)| stories.contains(seed)) {
            let playing = play(&tale, seed, Some(weaken.clone()));
            if let Err(panic) = AssertUnwindSafe(playing).catch_unwind().await {
                let told = panic.downcast_ref::<&str>().map(ToString::to_string);
                complaints.extend(told.or_else(|| panic.downcast_ref::<String>().cloned()));
            }
        }
        assert!(weaken.applied() > 0, "the guard was not met");
        let found = complaints.iter().any(|it| it.contains(complaint));
        assert!(found, "{complaints:?}");
    }
}
