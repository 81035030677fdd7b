//! What no order of delivered calls shows: services that hang or refuse, a stuck neighbour, clocks that differ, text
//! at its limits. Late copies are in `late.rs`.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Conflicts, Says, Stuck, Trouble, TroubleSweep, World};
use cloud::tap::{Call, Plan, Request, Verdict};
use cloud::{Backend, Clock, CloudError, Ids, Options, Patience, TEST_EPOCH, as_actor};
use futures::future::BoxFuture;
use office::cast::{due_office, two_due};
use office::*;
use scheduler::change_job::Change;
use scheduler::domain::{ExecutionState, ExecutionStatus, JobStatus};
use scheduler::queue::Message;
use scheduler::service::{Settings, run_until};
use scheduler::tables::SHARDS;
use scheduler::{
    Finish, Handler, Misfire, NewJob, Overlap, Run, Schedule, SchedulerError, Worked, Worker, items,
};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

const DAY: cloud::Millis = 24 * HOUR;

/// Holds the first call of these shapes until it is told to go on.
struct Hold {
    shapes: [&'static str; 2],
    reached: Notify,
    go: Notify,
    met: AtomicUsize,
}

impl Hold {
    fn first(shapes: [&'static str; 2]) -> Arc<Self> {
        Arc::new(Self {
            shapes,
            reached: Notify::new(),
            go: Notify::new(),
            met: AtomicUsize::new(0),
        })
    }
}

impl Plan for Hold {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let shape = request.shape();
        let is_it = self.shapes.iter().any(|it| shape.starts_with(it));
        let hit = is_it && self.met.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            if hit {
                self.reached.notify_one();
                self.go.notified().await;
            }
            Verdict::Pass
        })
    }
}

fn throttled() -> Verdict {
    let kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException";
    Verdict::Answer {
        status: 400,
        body: json!({"__type": kind, "message": "x"}),
    }
}

/// An answer that the SDK does not ask again after.
fn refused() -> Verdict {
    let kind = "com.amazon.coral.service#AccessDeniedException";
    Verdict::Answer {
        status: 400,
        body: json!({"__type": kind, "message": "x"}),
    }
}

// Changes of plan.

/// The pause has decided that the run has not begun; its write is under way while the run begins and ends.
#[tokio::test]
async fn a_one_off_that_is_paused_while_it_begins_runs_once() {
    for created in [500, HOUR] {
        let office = with_job(once("job", created)).await;
        let hold = Hold::first(["UpdateItem jobs if", "TransactWriteItems [Update jobs if"]);
        let plan = office.cloud().tap().install(hold.clone());
        let pausing = office.scheduler.change_job("acme/job", &Change::Pause, "p");
        let rest = async {
            hold.reached.notified().await;
            office.advance(created);
            office.scan().await;
            office.work_all("w").await;
            hold.go.notify_one();
        };
        let (paused, ()) = tokio::join!(pausing, rest);
        drop(plan);
        assert!(
            matches!(paused, Err(SchedulerError::NotNow { .. })),
            "{paused:?}"
        );
        office.advance(5 * SECOND);
        let resumed = office
            .scheduler
            .change_job("acme/job", &Change::Resume, "r");
        assert!(resumed.await.is_err());
        office.live(2).await;
        assert_eq!(office.starts(), [(id("job", created), 1)]);
    }
}

/// One runs, one waits; the plan changes. The turn of the one that waits is the new plan's.
#[tokio::test]
async fn after_a_change_of_plan_nobody_waits_whom_the_plan_no_longer_has() {
    let desk = two_due(Overlap::QueueOne).await;
    let run = desk.claim("one").await;
    assert_eq!(desk.try_claim("other", true).await, "waits");
    let scheduler = &desk.office.scheduler;
    let hourly = Change::Reschedule(Schedule::Every { every_ms: HOUR });
    let job = scheduler.change_job("acme/job", &hourly, "r").await;
    let fire = job.unwrap().next_fire_time.unwrap();
    desk.office.advance(HOUR);
    desk.office.scan().await;
    let worker = desk.office.worker("w");
    while let Some(message) = desk.office.receive().await {
        desk.office.handle(&worker, &message).await;
    }
    scheduler.complete(&run).await.unwrap();
    desk.office.work_all("w").await;
    let waited = desk.office.status(&id("job", 2 * HOUR)).await;
    let new = items::execution_id(fire, "acme/job");
    let new = desk.office.status(&new).await;
    assert_eq!(
        (waited, new),
        (ExecutionStatus::Cancelled, ExecutionStatus::Completed)
    );
    desk.office.invariants("job").await.unwrap();
}

/// One runs, and the next one waits for its turn.
async fn one_waits(misfire: Misfire) -> (Desk, Run) {
    let mut desk = desk(NewJob {
        overlap: Overlap::QueueOne,
        misfire,
        ..every("job", HOUR)
    })
    .await;
    let run = desk.claim("one").await;
    desk.office.advance(HOUR);
    desk.office.scan().await;
    desk.second = desk.office.receive().await;
    assert_eq!(desk.try_claim("other", true).await, "waits");
    (desk, run)
}

/// The plan has the time of the one that waits again: its row is planned anew, in one write.
#[tokio::test]
async fn a_run_that_waits_is_planned_anew_by_a_reschedule_to_its_time() {
    let (desk, run) = one_waits(Misfire::RunAll).await;
    let scheduler = desk.office.scheduler.clone().keeping_the_queue_at(0);
    let at = cloud::TEST_EPOCH + 2 * HOUR;
    let same = Change::Reschedule(Schedule::Once { at });
    let job = scheduler.change_job("acme/job", &same, "r").await.unwrap();
    assert_eq!(job.next_fire_time, Some(at));
    desk.office.invariants("job").await.unwrap();
    assert_eq!(scheduler.complete(&run).await.unwrap(), Finish::Done);
    desk.office.scan().await;
    desk.office.work_all("w").await;
    assert_eq!(desk.office.completions(), [id("job", 2 * HOUR)]);
    desk.office.invariants("job").await.unwrap();
}

/// The place was handed to one that has not begun. The plan puts another one at its time, which is skipped as
/// missed, or called off by a pause, before it begins: the place is free.
#[tokio::test]
async fn a_place_is_given_back_though_its_holder_is_planned_anew() {
    for misfire in [Misfire::SkipMissed, Misfire::RunAll] {
        let (desk, run) = one_waits(misfire).await;
        let office = &desk.office;
        office.advance(2 * MINUTE);
        let scheduler = office.scheduler.clone().keeping_the_queue_at(0);
        assert_eq!(scheduler.complete(&run).await.unwrap(), Finish::Done);
        let change = async |change, id| scheduler.change_job("acme/job", &change, id).await;
        let at = cloud::TEST_EPOCH + 2 * HOUR;
        let same = Change::Reschedule(Schedule::Once { at });
        change(same, "a").await.unwrap();
        office.invariants("job").await.unwrap();
        if misfire == Misfire::RunAll {
            change(Change::Pause, "b").await.unwrap();
        }
        office.scan().await;
        office.work_all("w").await;
        let row = office.execution(&id("job", 2 * HOUR)).await;
        assert!(row.completed_at.is_some() && row.attempt == 0, "{row:?}");
        if misfire == Misfire::RunAll {
            office.advance(SECOND);
            change(Change::Resume, "c").await.unwrap();
        }
        let hourly = Change::Reschedule(Schedule::Every { every_ms: HOUR });
        change(hourly, "d").await.unwrap();
        office.advance(HOUR);
        office.scan().await;
        office.work_all("w").await;
        assert_eq!(office.completions().len(), 1, "{misfire:?}");
        office.invariants("job").await.unwrap();
    }
}

/// The same by a dispatch, whose plan was made by a clock that is behind: it plans the fire time after that.
#[tokio::test]
async fn a_dispatch_plans_no_run_in_the_place_of_one_that_has_the_place() {
    let (desk, run) = one_waits(Misfire::RunAll).await;
    let office = &desk.office;
    assert_eq!(office.scheduler.complete(&run).await.unwrap(), Finish::Done);
    let behind = Clock::manual(office.now() - 2 * SECOND);
    let behind = office.scheduler.on(office.cloud().with_clock(behind));
    let often = Change::Reschedule(Schedule::Every { every_ms: SECOND });
    let behind = behind.keeping_the_queue_at(0);
    behind.change_job("acme/job", &often, "r").await.unwrap();
    let first = id("job", 2 * HOUR - SECOND);
    behind.enqueue(&first).await.unwrap();
    let job = office.scheduler.known_job("acme/job").await.unwrap();
    let after = cloud::TEST_EPOCH + 2 * HOUR + SECOND;
    assert_eq!(job.next_fire_time, Some(after));
    office.invariants("job").await.unwrap();
}

#[tokio::test]
async fn a_change_id_used_for_another_change_is_refused() {
    let office = with_job(every("job", HOUR)).await;
    let change = async |change: &Change| office.scheduler.change_job("acme/job", change, "x").await;
    change(&Change::Pause).await.unwrap();
    let two_hours = Change::Reschedule(Schedule::Every { every_ms: 2 * HOUR });
    for other in [&Change::Resume, &Change::Cancel, &two_hours] {
        let refused = change(other).await;
        assert!(
            matches!(refused, Err(SchedulerError::IdTaken(_))),
            "{other:?}: {refused:?}"
        );
    }
    assert_eq!(
        change(&Change::Pause).await.unwrap().status,
        JobStatus::Paused
    );
    let rescheduled = office.scheduler.change_job("acme/job", &two_hours, "y");
    rescheduled.await.unwrap();
    let three_hours = Change::Reschedule(Schedule::Every { every_ms: 3 * HOUR });
    let refused = office
        .scheduler
        .change_job("acme/job", &three_hours, "y")
        .await;
    assert!(matches!(refused, Err(SchedulerError::IdTaken(_))));
}

// Missed, or only late.

#[tokio::test]
async fn a_resumed_one_off_that_is_dispatched_late_is_not_missed() {
    let office = with_job(once("job", HOUR)).await;
    let change = async |scheduler: &scheduler::Scheduler, change, id| {
        scheduler.change_job("acme/job", &change, id).await.unwrap()
    };
    change(&office.scheduler, Change::Pause, "p").await;
    office.advance(2 * DAY);
    // The queue is full while it is resumed, and for a minute more.
    let full = office.scheduler.clone().keeping_the_queue_at(0);
    let fire = change(&full, Change::Resume, "r").await.next_fire_time;
    office.advance(61 * SECOND);
    office.scan().await;
    office.work_all("w").await;
    let row = items::execution_id(fire.unwrap(), "acme/job");
    let row = office.execution(&row).await;
    assert_eq!(row.status, ExecutionStatus::Completed, "{:?}", row.reason);
}

/// Dispatched in time, and then no worker for two days: the policy decides again when it is to begin.
#[tokio::test]
async fn what_was_dispatched_in_time_and_begins_late_is_missed_too() {
    for (misfire, catch_up_ms, runs) in [
        (Misfire::SkipMissed, DAY, false),
        (Misfire::RunLast, 3 * DAY, true),
        (Misfire::RunLast, DAY, false),
        (Misfire::RunAll, DAY, false),
        (Misfire::RunAll, 3 * DAY, true),
    ] {
        let office = with_job(NewJob {
            misfire,
            catch_up_ms,
            overlap: Overlap::Skip,
            ..once("job", 500)
        })
        .await;
        office.advance(2 * DAY);
        office.scan().await;
        office.sweep().await;
        office.work_all("w").await;
        let row = office.execution(&id("job", 500)).await;
        let expected = match runs {
            true => ExecutionStatus::Completed,
            false => ExecutionStatus::Skipped,
        };
        assert_eq!(row.status, expected, "{misfire:?} {catch_up_ms}");
        assert_eq!(office.starts().len(), usize::from(runs));
        office.invariants("job").await.unwrap();
    }
}

/// The line is two minutes long, and stays so: each run begins with a later one behind it. RUN_LAST runs it.
#[tokio::test]
async fn a_line_that_stays_long_skips_no_run_for_the_next() {
    let step = 30 * SECOND;
    let office = with_job(every("job", step)).await;
    for round in 1..=20 {
        office.advance(step);
        office.scan().await;
        if round > 5 {
            let row = office.execution(&id("job", (round - 5) * step)).await;
            let delivered = Message {
                says: Some((&row).into()),
                receipt: "made from the row".to_owned(),
            };
            let worked = office.handle(&office.worker("w"), &delivered).await;
            assert_eq!(worked, Worked::Completed, "round {round}");
        }
    }
    assert_eq!(office.completions().len(), 15);
}

/// The same where the line stands in the table: it is ten steps long, and stays so. A run that is skipped for a later
/// one leaves it its place in the line.
#[tokio::test]
async fn a_line_in_the_table_that_stays_long_skips_no_run_for_the_next() {
    for misfire in [Misfire::RunAll, Misfire::RunLast] {
        let office = open().await;
        let scheduler = office.scheduler.clone().keeping_the_queue_at(1);
        let blind = office.scheduler.clone().keeping_the_queue_at(0);
        for number in 0..10 {
            let old = once(&format!("old-{number}"), number);
            blind.create_job(old).await.unwrap();
        }
        let job = NewJob {
            misfire,
            ..every("job", MINUTE)
        };
        blind.create_job(job).await.unwrap();
        for number in 1..=60 {
            office.advance(10 * SECOND);
            let new = once(&format!("new-{number}"), number * 10 * SECOND);
            blind.create_job(new).await.unwrap();
            let room = scheduler.room().await.unwrap();
            scheduler.scan_due(0..SHARDS, room).await;
            office.work_all("w").await;
        }
        let done = office.completions();
        let of_job = done.iter().filter(|id| id.ends_with("#acme/job")).count();
        assert!(done.len() == 60 && of_job > 2, "{misfire:?}: {of_job}");
    }
}

/// An execution that waited for its turn was not missed, however long the other one ran.
#[tokio::test]
async fn one_that_waited_for_its_turn_is_not_missed() {
    let desk = two_due(Overlap::QueueOne).await;
    let run = desk.claim("one").await;
    assert_eq!(desk.try_claim("other", true).await, "waits");
    // The third is due meanwhile, and is skipped for the one that waits.
    desk.office.advance(HOUR);
    desk.office.scan().await;
    desk.office.work_all("w").await;
    desk.office.scheduler.complete(&run).await.unwrap();
    desk.office.work_all("w").await;
    assert_eq!(desk.office.completions(), [id("job", 2 * HOUR)]);
}

// The last word of a worker, and its lease.

#[tokio::test]
async fn a_conflict_at_the_end_does_not_run_it_again() {
    for fails in [0, 1] {
        let office = with_job(once("job", 0)).await;
        office.diary.lock().unwrap().fails = fails;
        let message = office.receive().await.unwrap();
        let plan = Arc::new(Conflicts::on("UpdateItem", 1));
        let installed = office.cloud().tap().install(plan.clone());
        let worked = office.handle(&office.worker("w"), &message).await;
        assert_eq!(plan.left(), 0);
        drop(installed);
        assert_eq!(worked == Worked::Completed, fails == 0, "{worked:?}");
        office.live(3).await;
        assert_eq!(office.starts().len() as u32, 1 + fails);
    }
}

/// The SDK gives up after three; the worker does not while it has the lease.
#[tokio::test]
async fn throttling_at_the_end_does_not_run_it_again() {
    for overlap in [Overlap::AllowAll, Overlap::Skip] {
        let office = with_job(NewJob {
            overlap,
            ..once("job", 0)
        })
        .await;
        let message = office.receive().await.unwrap();
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let plan = Says(move |request: &Request| {
            let ends = request.body.to_string().contains("COMPLETED");
            match ends && count.fetch_add(1, Ordering::SeqCst) < 7 {
                true => throttled(),
                false => Verdict::Pass,
            }
        });
        let installed = office.cloud().tap().install(Arc::new(plan));
        let worked = office.handle(&office.worker("w"), &message).await;
        drop(installed);
        assert_eq!(worked, Worked::Completed, "{overlap:?}");
        assert!(seen.load(Ordering::SeqCst) > 7);
        office.live(3).await;
        assert_eq!(office.starts().len(), 1);
    }
}

/// A handler has a second, its lease half a minute: the last word has as long as the lease.
#[tokio::test]
async fn the_last_word_may_take_longer_than_the_handler() {
    let office = open_by_the_clock().await;
    let at = office.now();
    let job = NewJob {
        timeout_ms: SECOND,
        ..NewJob::new("job", "acme", Schedule::Once { at })
    };
    office.scheduler.create_job(job).await.unwrap();
    let message = office.receive().await.unwrap();
    let begun = Instant::now();
    let plan = Says(move |request: &Request| {
        let ends = request.body.to_string().contains("COMPLETED");
        match ends && begun.elapsed() < Duration::from_millis(1_500) {
            true => throttled(),
            false => Verdict::Pass,
        }
    });
    let _plan = office.cloud().tap().install(Arc::new(plan));
    let worked = office.worker("w").handle(&message).await;
    assert_eq!(worked.unwrap(), Worked::Completed);
}

/// The handler is done at once, and DynamoDB takes no completion for two leases and a half. Heartbeats go on, so that
/// another worker is told who has the run.
#[tokio::test]
async fn a_last_word_that_takes_longer_than_the_lease_keeps_it() {
    let office = open_by_the_clock().await;
    let at = office.now();
    let job = NewJob {
        lease_ms: 1_000,
        timeout_ms: 10_000,
        ..NewJob::new("job", "acme", Schedule::Once { at })
    };
    office.scheduler.create_job(job).await.unwrap();
    let message = office.receive().await.unwrap();
    let begun = Instant::now();
    let plan = Says(move |request: &Request| {
        let ends = request.body.to_string().contains("COMPLETED");
        match ends && begun.elapsed() < Duration::from_millis(2_500) {
            true => throttled(),
            false => Verdict::Pass,
        }
    });
    let _plan = office.cloud().tap().install(Arc::new(plan));
    let (worker, other) = (office.worker("w"), office.worker("other"));
    let (worked, beside) = tokio::join!(worker.handle(&message), async {
        while begun.elapsed() < Duration::from_millis(1_500) {
            cloud::item::pause(6).await;
        }
        other.handle(&message).await
    });
    assert_eq!(beside.unwrap(), Worked::Held);
    assert_eq!(worked.unwrap(), Worked::Completed);
    assert_eq!(office.starts(), [(items::execution_id(at, "acme/job"), 1)]);
}

/// By the machine's clock: what takes real time.
async fn open_by_the_clock() -> Office {
    let options = Options {
        backend: Backend::Embedded,
        data: None,
        prefix: None,
        clock: Clock::System,
        ids: Ids::Uuid,
    };
    open_on(cloud::connect_with(options).await.unwrap()).await
}

/// Takes longer than the leases of the tests that use it.
struct Lasts;

impl Handler for Lasts {
    fn run<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_millis(2_500) {
                cloud::item::pause(6).await;
            }
            Ok(())
        })
    }
}

/// SQS refuses to hide messages, or hangs, for longer than a lease; the row can be extended all the time.
#[tokio::test]
async fn a_heartbeat_that_cannot_hide_its_message_keeps_its_lease() {
    for hangs in [false, true] {
        let office = open_by_the_clock().await;
        let now = office.now();
        let job = NewJob {
            lease_ms: 1_500,
            ..NewJob::new("job", "acme", Schedule::Once { at: now })
        };
        office.scheduler.create_job(job).await.unwrap();
        let message = office.receive().await.unwrap();
        let _plan = office.cloud().tap().install(Arc::new(NeverHides { hangs }));
        let worker = Worker::new(office.scheduler.clone(), "w", Arc::new(Lasts));
        let worked = worker.handle(&message).await.unwrap();
        assert_eq!(worked, Worked::Completed, "hangs: {hangs}");
    }
}

/// A heartbeat that fails is made again a third of the lease later: there is time for one of these, and not for two.
#[tokio::test]
async fn a_worker_outlives_one_missed_heartbeat_and_not_two() {
    for (missed, expected) in [(1, Worked::Completed), (2, Worked::Stale)] {
        let office = open_by_the_clock().await;
        let now = office.now();
        // Ends before the handler does.
        let job = NewJob {
            lease_ms: 2_000,
            ..NewJob::new("job", "acme", Schedule::Once { at: now })
        };
        office.scheduler.create_job(job).await.unwrap();
        let message = office.receive().await.unwrap();
        let seen = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&seen);
        let plan = Says(move |request: &Request| {
            let update = request.body["UpdateExpression"].as_str();
            let beats = update.is_some_and(|it| it.starts_with("SET lease_expires_at"));
            match beats && count.fetch_add(1, Ordering::SeqCst) < missed {
                true => refused(),
                false => Verdict::Pass,
            }
        });
        let _plan = office.cloud().tap().install(Arc::new(plan));
        let worker = Worker::new(office.scheduler.clone(), "w", Arc::new(Lasts));
        let worked = worker.handle(&message).await.unwrap();
        assert_eq!(worked, expected, "{missed} missed");
        assert!(seen.load(Ordering::SeqCst) >= missed);
    }
}

/// DynamoDB answers one heartbeat with nothing, and the SDK would wait for it longer than the lease. SQS hangs or
/// not.
#[tokio::test]
async fn a_worker_outlives_a_heartbeat_that_hangs_also_beside_an_sqs_that_hangs() {
    for sqs_hangs in [false, true] {
        let office = open_by_the_clock().await;
        let now = office.now();
        let job = NewJob {
            lease_ms: 2_000,
            ..NewJob::new("job", "acme", Schedule::Once { at: now })
        };
        office.scheduler.create_job(job).await.unwrap();
        let message = office.receive().await.unwrap();
        let tap = office.cloud().tap();
        let _silent = sqs_hangs.then(|| tap.install(Arc::new(NeverHides { hangs: true })));
        let hangs = Arc::new(OneBeatHangs(AtomicUsize::new(0)));
        let _plan = tap.install(hangs.clone());
        let worker = Worker::new(office.scheduler.clone(), "w", Arc::new(Lasts));
        let worked = worker.handle(&message).await.unwrap();
        assert_eq!(worked, Worked::Completed, "SQS hangs: {sqs_hangs}");
        assert!(hangs.0.load(Ordering::SeqCst) > 1);
    }
}

struct OneBeatHangs(AtomicUsize);

impl Plan for OneBeatHangs {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let update = request.body["UpdateExpression"].as_str();
        let beats = update.is_some_and(|it| it.starts_with("SET lease_expires_at"));
        let hangs = beats && self.0.fetch_add(1, Ordering::SeqCst) == 0;
        Box::pin(async move {
            match hangs {
                true => std::future::pending().await,
                false => Verdict::Pass,
            }
        })
    }
}

struct NeverHides {
    hangs: bool,
}

impl Plan for NeverHides {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let hides = request.operation == "ChangeMessageVisibility";
        Box::pin(async move {
            match (hides, self.hangs) {
                (false, _) => Verdict::Pass,
                (true, true) => std::future::pending().await,
                (true, false) => Verdict::Answer {
                    status: 403,
                    body: json!({"__type": "com.amazonaws.sqs#RequestThrottled", "message": "x"}),
                },
            }
        })
    }
}

/// Panics at the first calls of a kind.
struct Panics {
    /// How its shape begins, and what its body has.
    at: (&'static str, &'static str),
    left: AtomicUsize,
}

impl Plan for Panics {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let (shape, has) = self.at;
        let is_it = request.shape().starts_with(shape) && request.body.to_string().contains(has);
        let hit = is_it
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
        Box::pin(async move {
            assert!(!hit, "made by this test");
            Verdict::Pass
        })
    }
}

/// Says that it was run.
struct Tells(Arc<Notify>);

impl Handler for Tells {
    fn run<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        self.0.notify_one();
        Box::pin(async { Ok(()) })
    }
}

/// Wherever a worker, the scanner or the sweeper panics, the process goes on with the next message.
#[tokio::test]
async fn a_panic_ends_no_loop() {
    for at in [
        ("ReceiveMessage", ""),
        // Only a claim reads them.
        ("GetItem parameters", ""),
        ("BatchGetItem", ""),
        ("Query executions/due", "start-"),
        ("GetQueueAttributes", ""),
    ] {
        let office = open_by_the_clock().await;
        let blind = office.scheduler.clone().keeping_the_queue_at(0);
        // A worker that panics leaves its message hidden, and goes on with another one.
        for n in 0..4 {
            let job = NewJob {
                parameters: "good morning".to_owned(),
                ..NewJob::new(
                    format!("job-{n}"),
                    "acme",
                    Schedule::Once { at: office.now() },
                )
            };
            blind.create_job(job).await.unwrap();
        }
        goes_on_after_panics(&office, at).await;
    }
}

/// What is dispatched, and has lost its message, only the sweeper finds.
#[tokio::test]
async fn a_panic_does_not_end_the_sweeping() {
    let office = open_by_the_clock().await;
    let before = Clock::manual(office.now() - 5 * MINUTE);
    let before = office.scheduler.on(office.cloud().with_clock(before));
    let at = before.cloud().now();
    let job = NewJob::new("job", "acme", Schedule::Once { at });
    before.create_job(job).await.unwrap();
    office.receive().await.unwrap();
    goes_on_after_panics(&office, ("Query executions/due", "watch-")).await;
}

/// Three panics at these calls, and then something is run.
async fn goes_on_after_panics(office: &Office, at: (&'static str, &'static str)) {
    let panics = Arc::new(Panics {
        at,
        left: AtomicUsize::new(3),
    });
    let _plan = office.cloud().tap().install(panics.clone());
    let settings = Settings {
        workers: 1,
        scan_every: Duration::from_millis(20),
        sweep_every: Duration::from_millis(20),
    };
    let done = Arc::new(Notify::new());
    let running = run_until(
        office.scheduler.clone(),
        Arc::new(Tells(Arc::clone(&done))),
        settings,
        done.notified(),
    );
    let ran = tokio::time::timeout(Duration::from_secs(20), running).await;
    assert!(ran.is_ok(), "after a panic in {at:?} nothing ran");
    assert_eq!(panics.left.load(Ordering::SeqCst), 0, "{at:?}");
}

// Text from outside.

/// SQS takes XML's characters and no others. What it does not take is refused before the first write.
#[tokio::test]
async fn every_id_that_is_taken_is_one_that_sqs_takes() {
    let office = open().await;
    let odd = (0..=0x20)
        .chain(0x7f..0xa0)
        .chain([0xd7ff, 0xe000, 0xfdd0, 0xfeff, 0xfffd, 0xfffe, 0xffff])
        .chain([0x1_0000, 0x1_fffe, 0x10_ffff]);
    let (mut taken, mut refused) = (0, 0);
    for odd in odd.filter_map(char::from_u32) {
        let recording = office.cloud().tap().record();
        let created = office
            .scheduler
            .create_job(once(&format!("j{odd}b"), 0))
            .await;
        let calls = recording.take();
        let sent = calls
            .iter()
            .filter(|call| call.request.operation == "SendMessage");
        match created {
            Ok(_) => {
                assert_eq!(sent.count(), 1, "{odd:?}");
                let message = office.receive().await.unwrap();
                let worked = office.handle(&office.worker("w"), &message).await;
                assert_eq!(worked, Worked::Completed, "{odd:?}");
                taken += 1;
            }
            Err(SchedulerError::BadInput(_)) => {
                assert!(calls.is_empty(), "{odd:?}");
                refused += 1;
            }
            Err(other) => panic!("{odd:?}: {other}"),
        }
    }
    assert!(taken > 5 && refused > 60, "{taken} {refused}");
}

/// Fails, and says why.
struct Fails(String);

impl Handler for Fails {
    fn run<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err(self.0.clone()) })
    }
}

/// A handler may say as much as it likes, more than an item has room for: its first thousand characters are kept, and
/// the attempt fails like any other.
#[tokio::test]
async fn of_the_reason_of_a_failure_a_thousand_characters_are_kept() {
    for (letter, length) in [
        ("x", 420_000),
        ("\u{1f600}", 105_000),
        ("x", 1_001),
        ("x", 1_000),
        ("x", 1),
        ("x", 0),
    ] {
        let office = with_job(NewJob {
            max_attempts: 2,
            ..once("job", 0)
        })
        .await;
        let message = office.receive().await.unwrap();
        let fails = Arc::new(Fails(letter.repeat(length)));
        let worker = Worker::new(office.scheduler.clone(), "w", fails);
        let worked = worker.handle(&message).await.unwrap();
        assert!(matches!(worked, Worked::Retrying { .. }), "{worked:?}");
        let kept = letter.repeat(length.min(1_000));
        let reason = office.execution(&id("job", 0)).await.reason;
        assert!(reason.as_ref() == Some(&kept), "{length}");
        office.advance(MINUTE);
        assert_eq!(worker.handle(&message).await.unwrap(), Worked::Failed);
        let row = office.execution(&id("job", 0)).await;
        assert!(row.reason == Some(kept), "{length}");
        assert_eq!(row.due_shard, Some(items::dead_lane("acme/job")));
    }
}

fn cron(expression: &str, time_zone: &str) -> Schedule {
    Schedule::Cron {
        expression: expression.to_owned(),
        time_zone: time_zone.to_owned(),
    }
}

/// Each of these made croner look at every day until the year 5000.
#[test]
fn a_cron_that_never_fires_is_refused_cheaply() {
    for expression in [
        "0 0 31 4,6,9,11 *",
        "0 0 30 2 *",
        "0 0 31 2,4,6,9,11 *",
        "* * * 31 2 *",
    ] {
        for zone in ["UTC", "Africa/Casablanca"] {
            let begun = Instant::now();
            let refused = cron(expression, zone).validate(TEST_EPOCH).unwrap_err();
            let took = begun.elapsed();
            assert_eq!(refused.to_string(), format!("'{expression}' never fires"));
            assert!(took < Duration::from_millis(300), "{expression}: {took:?}");
        }
    }
    // The rarest that fires.
    for (expression, fires) in [("0 0 29 2 *", 2028), ("0 0 0 1 1 * 2030", 2030)] {
        let begun = Instant::now();
        let schedule = cron(expression, "Africa/Casablanca");
        schedule.validate(TEST_EPOCH).unwrap();
        let next = schedule.next_after(TEST_EPOCH, TEST_EPOCH).unwrap();
        let next = chrono::DateTime::from_timestamp_millis(next + DAY).unwrap();
        assert_eq!(chrono::Datelike::year(&next), fires);
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(300), "{expression}: {took:?}");
    }
    // What fires later than twelve years from now never fires.
    assert!(cron("0 0 0 1 1 * 2038", "UTC").validate(TEST_EPOCH).is_ok());
    assert!(
        cron("0 0 0 1 1 * 2039", "UTC")
            .validate(TEST_EPOCH)
            .is_err()
    );
}

#[test]
fn a_cron_with_an_empty_place_in_a_list_is_refused() {
    for expression in [",1 * * * *", "1,,2 * * * *", "1, * * * *", "* * , * *"] {
        let refused = cron(expression, "UTC").validate(TEST_EPOCH);
        assert!(refused.is_err(), "{expression}");
    }
    let long = format!("{} * * * *", vec!["1"; 200].join(","));
    let refused = cron(&long, "UTC").validate(TEST_EPOCH).unwrap_err();
    assert!(refused.to_string().len() < 300, "{refused}");
}

// Cost.

/// What a dispatch, a claim and a completion write does not grow with what the handler is told.
#[tokio::test]
async fn parameters_cost_nothing_where_they_are_not_needed() {
    let mut units = Vec::new();
    for length in [0, 64 * 1024] {
        let office = with_job(NewJob {
            parameters: "x".repeat(length),
            overlap: Overlap::Skip,
            ..every("job", HOUR)
        })
        .await;
        office.advance(HOUR);
        let recording = office.cloud().tap().record();
        office.scan().await;
        office.work_all("w").await;
        let calls = recording.take();
        units.push(calls.iter().map(Call::write_units).sum::<f64>());
        assert_eq!(office.completions().len(), 1);
    }
    assert_eq!(units[0], units[1]);
}

// Neighbours.

/// One execution, and one shard of the index, hang. The others are dispatched and swept meanwhile.
#[tokio::test]
async fn a_stuck_execution_and_a_stuck_shard_delay_no_other() {
    let office = open().await;
    let (stuck, shard) = ("acme/job-0", cloud::item::shard_of("acme/job-0", SHARDS));
    let hangs = (shard + 1) % SHARDS;
    let mut others = Vec::new();
    for n in 0..24 {
        let name = format!("job-{n}");
        office
            .scheduler
            .create_job(once(&name, HOUR))
            .await
            .unwrap();
        let of = cloud::item::shard_of(&whole(&name), SHARDS);
        if n > 0 && of != hangs {
            others.push(id(&name, HOUR));
        }
    }
    assert!(others.len() > 10);
    office.advance(HOUR);
    for lane in ["start", "watch"] {
        let hanging = [stuck.to_owned(), format!("{lane}-{hangs}")];
        let hanging = hanging.map(|it| Arc::new(Stuck::hanging(&it)));
        let tap = office.cloud().tap();
        let plans: Vec<_> = hanging.iter().map(|it| tap.install(it.clone())).collect();
        let begun = Instant::now();
        let did: Vec<_> = match lane {
            "start" => {
                let found = office.scheduler.scan_due(0..SHARDS, 100).await;
                found
                    .into_iter()
                    .map(|(id, did)| (id, did.is_ok()))
                    .collect()
            }
            _ => {
                let found = office.scheduler.sweep_stale(0..SHARDS).await;
                found
                    .into_iter()
                    .map(|(id, did)| (id, did.is_ok()))
                    .collect()
            }
        };
        assert!(begun.elapsed() < Duration::from_secs(10), "{lane}");
        drop(plans);
        for other in &others {
            assert!(
                did.contains(&(other.clone(), true)),
                "{lane} {other}: {did:?}"
            );
        }
        let failed = did.iter().filter(|(_, well)| !well).count();
        assert_eq!(failed, 2, "{did:?}");
        assert!(hanging.iter().all(|it| it.met() > 0));
        // All are dispatched, and their messages are lost, for the sweeper to find.
        office.scan().await;
        while office.receive().await.is_some() {}
        office.advance(MINUTE);
    }
}

/// SQS loses the dead-letter queue. What has failed is found in the table, and gets another chance.
#[tokio::test]
async fn what_is_dead_is_found_without_the_dead_letter_queue() {
    let job = NewJob {
        max_attempts: 1,
        ..once("job", HOUR)
    };
    let office = desk(job).await;
    let office = Office { ..office.office };
    office.advance(MINUTE);
    office.sweep().await;
    office.diary.lock().unwrap().fails = 1;
    office.work_all("w").await;
    assert_eq!(
        office.status(&id("job", HOUR)).await,
        ExecutionStatus::Failed
    );
    while let Some(message) = office.scheduler.receive_dead().await.unwrap() {
        drop(message);
    }
    let redriven = office.scheduler.redrive(10).await;
    assert_eq!(redriven.len(), 1, "{redriven:?}");
    office.work_all("w").await;
    assert_eq!(office.completions(), [id("job", HOUR)]);
    assert!(office.scheduler.redrive(10).await.is_empty());
    office.invariants("job").await.unwrap();
}

#[tokio::test]
async fn what_is_dead_is_found_though_the_dead_letter_queue_is_gone() {
    let job = NewJob {
        max_attempts: 1,
        ..once("job", 0)
    };
    let office = with_job(job).await;
    let dead = scheduler::queue::QUEUES
        .iter()
        .find(|queue| queue.name == "queue dead");
    (dead.unwrap().remove)(office.cloud().beside_tap())
        .await
        .unwrap();
    office.diary.lock().unwrap().fails = 1;
    office.work_all("w").await;
    let row = office.execution(&id("job", 0)).await;
    let lane = row.due_shard.clone().unwrap_or_default();
    assert!(lane.starts_with("dead-"), "{row:?}");
    let redriven = office.scheduler.redrive(10).await;
    assert_eq!(redriven.len(), 1, "{redriven:?}");
    office.work_all("w").await;
    assert_eq!(office.completions(), [id("job", 0)]);
}

/// The first in the lanes of the dead are of cancelled jobs, as many as a redrive takes.
#[tokio::test]
async fn cancelled_jobs_hide_no_other_from_a_redrive() {
    let office = open().await;
    let names: Vec<_> = (0..8).map(|number| format!("job-{number}")).collect();
    office.diary.lock().unwrap().fails = 1;
    for name in &names {
        let job = NewJob {
            max_attempts: 1,
            ..once(name, 0)
        };
        office.scheduler.create_job(job).await.unwrap();
        office.work_all("w").await;
    }
    for name in &names[1..] {
        office
            .scheduler
            .change_job(&whole(name), &Change::Cancel, "c")
            .await
            .unwrap();
    }
    while office.scheduler.receive_dead().await.unwrap().is_some() {}
    let redriven = office.scheduler.redrive(1).await;
    assert_eq!(redriven.len(), 1, "{redriven:?}");
}

/// A job that had failed a thousand times was cancelled: more rows than a page of the lane has. Another job of the
/// shard failed later. The first redrive finds it, and the next one has nothing to read.
#[tokio::test]
async fn cancelled_jobs_hide_no_other_beyond_a_page_of_the_dead() {
    let office = open().await;
    let shard = cloud::item::shard_of("acme/job", SHARDS);
    let of_shard = |name: &String| cloud::item::shard_of(&whole(name), SHARDS) == shard;
    let other = (0..).map(|number| format!("other-{number}"));
    let other = other.into_iter().find(of_shard).unwrap();
    let job = office.scheduler.create_job(every("job", MINUTE));
    let job = job.await.unwrap();
    let beside = office.cloud().beside_tap();
    let rows = (1..=1_000).map(|number| {
        let planned = ExecutionState::planned(&job, TEST_EPOCH - number * MINUTE);
        let row = ExecutionState {
            status: ExecutionStatus::Failed,
            attempt: 1,
            due_shard: Some(items::dead_lane(&job.job_id)),
            completed_at: Some(planned.execution_time),
            ..planned
        };
        let put = beside.dynamodb().put_item();
        let put = put.table_name(beside.names().table("executions"));
        put.set_item(Some(cloud::item::to_item(&row).unwrap()))
            .send()
    });
    for put in futures::future::join_all(rows).await {
        put.unwrap();
    }
    let cancelled = office
        .scheduler
        .change_job("acme/job", &Change::Cancel, "c");
    cancelled.await.unwrap();
    office.diary.lock().unwrap().fails = 1;
    let last = NewJob {
        max_attempts: 1,
        ..once(&other, 0)
    };
    office.scheduler.create_job(last).await.unwrap();
    office.work_all("w").await;
    while office.scheduler.receive_dead().await.unwrap().is_some() {}
    let redriven = office.scheduler.redrive(1).await;
    assert_eq!(redriven.len(), 1, "{redriven:?}");
    let lane = items::dead_lane("acme/job");
    let left = office.scheduler.due(&lane, cloud::Millis::MAX).await;
    assert_eq!(left.unwrap(), []);
}

// Every call meets every trouble.

impl Office {
    /// The same, waiting for what hangs no longer than a test can.
    fn impatient(self) -> Self {
        let cloud = self.cloud().with_patience(Patience::SHORT);
        Self {
            scheduler: self.scheduler.on(cloud),
            ..self
        }
    }

    /// The same when the trouble is over: on a busy machine a call may take longer than what hangs is waited for.
    fn patient(&self) -> Self {
        let cloud = self.cloud().with_patience(Patience::DEFAULT);
        Self {
            scheduler: self.scheduler.on(cloud),
            diary: Arc::clone(&self.diary),
        }
    }
}

/// A conflict is tried again; of the others the caller learns what kind of fault it was.
fn is_told<T: std::fmt::Debug>(
    trouble: Trouble,
    told: &Result<T, SchedulerError>,
) -> Result<(), String> {
    match (trouble, told) {
        (_, Ok(_))
        | (Trouble::Throttled, Err(SchedulerError::Fault(CloudError::Throttled(_))))
        | (
            Trouble::Hangs | Trouble::HangsAfter | Trouble::Lost | Trouble::LostAnswer,
            Err(SchedulerError::Fault(CloudError::Unknown(_)) | SchedulerError::Contended),
        ) => Ok(()),
        (_, Err(error)) => Err(format!("it was told {error:?}")),
    }
}

/// After the trouble and some rounds of life, each job here has had its run, once.
async fn each_ran_once(office: Arc<Office>) -> Result<(), String> {
    let all = office.patient().invariants("job").await?;
    let due = all.iter().filter(|(id, _)| {
        let (time, _) = items::parts_of(id).unwrap();
        time <= TEST_EPOCH + HOUR
    });
    for (id, status) in due {
        if *status != ExecutionStatus::Completed {
            return Err(format!("{id} is {status:?}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_creation_meets_every_trouble_and_the_job_runs_once() {
    let create = |office: Arc<Office>| async move {
        let job = NewJob {
            parameters: "good morning".to_owned(),
            ..once("job", 0)
        };
        office.scheduler.create_job(job).await
    };
    TroubleSweep::of(|| async { open().await.impatient() })
        .action("client", create)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |office| async move {
            create(Arc::clone(&office)).await.unwrap();
            office.patient().live(3).await;
            assert_eq!(office.starts().len(), 1);
        })
        .check(each_ran_once)
        .run()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_dispatch_meets_every_trouble_and_the_series_goes_on() {
    let dispatch =
        |office: Arc<Office>| async move { office.scheduler.enqueue(&id("job", HOUR)).await };
    TroubleSweep::of(|| async { due_office(every("job", HOUR)).await.impatient() })
        .action("scanner", dispatch)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(|office| async move {
            office.patient().live(3).await;
            assert_eq!(office.starts().len(), 1);
        })
        .check(each_ran_once)
        .run()
        .await
        .unwrap();
}

/// The worker of a short lease: a service that hangs ends its tries in a second.
async fn a_worker_meets_every_trouble(overlap: Overlap, fails: u32) {
    let setup = move || async move {
        let job = NewJob {
            overlap,
            parameters: "good morning".to_owned(),
            lease_ms: 1_000,
            timeout_ms: 1_000,
            ..every("job", HOUR)
        };
        let office = due_office(job).await;
        office.scan().await;
        office.diary.lock().unwrap().fails = fails;
        office.impatient()
    };
    TroubleSweep::of(setup)
        .action("worker", |office: Arc<Office>| async move {
            let due = id("job", HOUR);
            let execution = office.scheduler.read_execution(&due);
            let execution = as_actor("beside", execution).await.unwrap().unwrap();
            let message = Message {
                says: Some((&execution).into()),
                receipt: "a copy".to_owned(),
            };
            office.worker("worker").handle(&message).await
        })
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(|office| async move { office.patient().live(4).await })
        .check(move |office| async move {
            // A conflict and throttling are lived through; what hangs costs the lease.
            let starts = office.starts().len() as u32;
            if !(1..=2 + fails).contains(&starts) {
                return Err(format!("{starts} starts"));
            }
            each_ran_once(office).await
        })
        .run()
        .await
        .unwrap();
}

/// Beside each other, since most of the time they wait for what hangs.
#[tokio::test]
async fn a_worker_meets_every_trouble_and_what_it_lives_through_is_run_once() {
    let all = [Overlap::AllowAll, Overlap::QueueOne]
        .into_iter()
        .flat_map(|overlap| [0, 1].map(|fails| a_worker_meets_every_trouble(overlap, fails)));
    futures::future::join_all(all).await;
}

#[tokio::test]
async fn conflicts_and_throttling_never_run_a_handler_twice() {
    for overlap in [Overlap::AllowAll, Overlap::QueueOne] {
        let setup = move || async move {
            let office = due_office(NewJob {
                overlap,
                ..every("job", HOUR)
            })
            .await;
            office.scan().await;
            office
        };
        TroubleSweep::of(setup)
            .troubles(&[Trouble::Conflict, Trouble::Throttled])
            .action("worker", |office: Arc<Office>| async move {
                let message = office.receive().await.unwrap();
                office.worker("worker").handle(&message).await
            })
            .answers(|trouble, _, told| is_told(trouble, told))
            .recovery(|office| async move { office.patient().live(4).await })
            .check(|office| async move {
                match office.starts().len() {
                    1 => each_ran_once(office).await,
                    starts => Err(format!("{starts} starts")),
                }
            })
            .run()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_change_of_plan_meets_every_trouble_and_is_made_once() {
    for change in [
        Change::Pause,
        Change::Cancel,
        Change::Reschedule(Schedule::Every { every_ms: 2 * HOUR }),
    ] {
        let change_it = move |office: Arc<Office>| {
            let change = change.clone();
            async move {
                let changed = office.scheduler.change_job("acme/job", &change, "c");
                changed.await
            }
        };
        // One runs, one waits: the change calls it off.
        let again = change_it.clone();
        TroubleSweep::of(|| async {
            let desk = two_due(Overlap::QueueOne).await;
            desk.claim("one").await;
            assert_eq!(desk.try_claim("other", true).await, "waits");
            desk.office.impatient()
        })
        .action("client", change_it)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |office| {
            let again = again(office);
            async move { again.await.unwrap() }
        })
        .check(|office| async move {
            let all = office.invariants("job").await?;
            let job = office.scheduler.known_job("acme/job").await.unwrap();
            match (all[&id("job", 2 * HOUR)], job.schedule_version) {
                (ExecutionStatus::Cancelled, 2) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    }
}

#[tokio::test]
async fn a_sweep_and_a_redrive_meet_every_trouble() {
    let sweep = |office: Arc<Office>| async move {
        let swept = office.scheduler.sweep(&id("job", HOUR)).await;
        swept.map(|_| ()).map_err(SchedulerError::from)
    };
    TroubleSweep::of(|| async {
        let office = due_office(every("job", HOUR)).await;
        office.scan().await;
        office.receive().await.unwrap();
        office.advance(MINUTE);
        office.impatient()
    })
    .action("sweeper", sweep)
    .answers(|trouble, _, told| is_told(trouble, told))
    .recovery(|office| async move { office.patient().live(4).await })
    .check(each_ran_once)
    .run()
    .await
    .unwrap();
    let redrive = |office: Arc<Office>| async move {
        let redriven = office.scheduler.redrive_one(&id("job", HOUR)).await;
        redriven.map(|_| ())
    };
    TroubleSweep::of(|| async {
        let job = NewJob {
            max_attempts: 1,
            ..once("job", HOUR)
        };
        let office = due_office(job).await;
        office.diary.lock().unwrap().fails = 1;
        office.live(1).await;
        office.impatient()
    })
    .action("operator", redrive)
    .answers(|trouble, _, told| is_told(trouble, told))
    .recovery(move |office| async move {
        redrive(Arc::clone(&office)).await.unwrap();
        office.patient().live(4).await;
    })
    .check(each_ran_once)
    .run()
    .await
    .unwrap();
}

// Clocks that differ.

/// Whether a worker whose clock is ahead gets the run of one that lives. The lease has thirty seconds, a heartbeat is
/// due every ten, and between two that succeed so many are missed.
async fn is_taken(ahead: cloud::Millis, missed: usize) -> bool {
    let desk = desk(once("job", HOUR)).await;
    let office = &desk.office;
    let run = desk.claim("owner").await;
    let theirs = Clock::manual(office.now() + ahead);
    let other = office
        .scheduler
        .on(office.cloud().with_clock(theirs.clone()));
    let other = office.worker_on("other", &other);
    let mut taken = false;
    for beat in 1..=6 {
        let worked = office.handle(&other, &desk.message).await;
        taken |= worked == Worked::Completed;
        office.advance(10 * SECOND);
        theirs.advance(Duration::from_secs(10));
        let worked = office.handle(&other, &desk.message).await;
        taken |= worked == Worked::Completed;
        if beat % (missed + 1) == 0 {
            office.scheduler.heartbeat(&run).await.unwrap();
        }
    }
    // However the clocks differ, the row completes once.
    let finish = office.scheduler.complete(&run).await.unwrap();
    assert_eq!(finish == Finish::Stale, taken);
    assert_eq!(
        office.status(&id("job", HOUR)).await,
        ExecutionStatus::Completed
    );
    taken
}

/// The other one's clock is ahead, or the owner's is behind: the same.
#[tokio::test]
async fn a_living_worker_keeps_its_run_while_clocks_differ_by_less_than_two_thirds_of_a_lease() {
    for (ahead, taken) in [
        (-HOUR, false),
        (19 * SECOND, false),
        (21 * SECOND, true),
        (31 * SECOND, true),
    ] {
        assert_eq!(is_taken(ahead, 0).await, taken, "ahead by {ahead} ms");
    }
}

#[tokio::test]
async fn beside_a_missed_heartbeat_clocks_may_differ_by_a_third_of_a_lease() {
    for (ahead, taken) in [
        (-HOUR, false),
        (9 * SECOND, false),
        (11 * SECOND, true),
        (21 * SECOND, true),
    ] {
        assert_eq!(is_taken(ahead, 1).await, taken, "ahead by {ahead} ms");
    }
}

/// A scanner's clock only says when a message is sent: what begins early or is missed, the worker's clock says.
#[tokio::test]
async fn a_scanner_whose_clock_is_off_by_less_than_a_minute_changes_nothing() {
    for off in [-50 * SECOND, 50 * SECOND] {
        let office = with_job(NewJob {
            misfire: Misfire::SkipMissed,
            ..every("job", HOUR)
        })
        .await;
        office.advance(HOUR);
        let theirs = office.cloud().with_clock(Clock::manual(office.now() + off));
        let scanner = office.scheduler.on(theirs);
        scanner.scan_due(0..SHARDS, 10).await;
        office.scan().await;
        office.work_all("w").await;
        assert_eq!(office.completions(), [id("job", HOUR)], "{off}");
        office.invariants("job").await.unwrap();
    }
}

/// What becomes of a run that is on time, where this clock is the scanner's or the worker's.
async fn on_time_by(
    scanner: bool,
    off: cloud::Millis,
    misfire: Misfire,
    every_ms: cloud::Millis,
) -> ExecutionStatus {
    let office = with_job(NewJob {
        misfire,
        ..every("job", every_ms)
    })
    .await;
    office.advance(every_ms);
    let theirs = office.cloud().with_clock(Clock::manual(office.now() + off));
    let theirs = office.scheduler.on(theirs);
    if scanner {
        theirs.scan_due(0..SHARDS, 10).await;
    }
    office.scan().await;
    if !scanner {
        let message = office.receive().await.unwrap();
        let worker = office.worker_on("theirs", &theirs);
        office.handle(&worker, &message).await;
    }
    office.work_all("w").await;
    office.invariants("job").await.unwrap();
    office.status(&id("job", every_ms)).await
}

#[tokio::test]
async fn a_clock_that_is_ahead_by_more_than_a_minute_takes_for_missed_what_is_on_time() {
    use ExecutionStatus::{Completed, Skipped};
    for (misfire, every_ms, scanner, worker) in [
        (Misfire::SkipMissed, HOUR, Skipped, Skipped),
        // The last one runs: by that clock another one is due, or none.
        (Misfire::RunLast, MINUTE, Skipped, Completed),
        (Misfire::RunLast, HOUR, Completed, Completed),
        (Misfire::RunAll, MINUTE, Completed, Completed),
    ] {
        let ahead = 61 * SECOND;
        let became = (
            on_time_by(true, ahead, misfire, every_ms).await,
            on_time_by(false, ahead, misfire, every_ms).await,
        );
        assert_eq!(became, (scanner, worker), "{misfire:?} {every_ms}");
    }
}

/// SQS delays the message of a scanner that is behind until the time has come by that clock.
#[tokio::test]
async fn a_scanner_that_is_behind_by_more_than_a_minute_makes_late_what_it_dispatches() {
    for (misfire, expected) in [
        (Misfire::SkipMissed, ExecutionStatus::Skipped),
        (Misfire::RunLast, ExecutionStatus::Completed),
    ] {
        let job = NewJob {
            misfire,
            ..every("job", HOUR)
        };
        let office = with_job(job).await;
        // It looks thirty seconds ahead.
        office.advance(HOUR + 31 * SECOND);
        let behind = Clock::manual(office.now() - 61 * SECOND);
        let behind = office.scheduler.on(office.cloud().with_clock(behind));
        let recording = office.cloud().tap().record();
        behind.scan_due(0..SHARDS, 10).await;
        let calls = recording.take();
        let mut delays = calls.iter().map(|call| &call.request.body["DelaySeconds"]);
        assert!(delays.any(|delay| *delay == json!(30)), "{calls:?}");
        office.advance(30 * SECOND);
        let delayed = Message {
            says: Some((&office.execution(&id("job", HOUR)).await).into()),
            receipt: "made from the row".to_owned(),
        };
        office.handle(&office.worker("w"), &delayed).await;
        assert_eq!(office.status(&id("job", HOUR)).await, expected);
        // Beside another scanner nothing is late.
        let became = on_time_by(true, -61 * SECOND, misfire, HOUR).await;
        assert_eq!(became, ExecutionStatus::Completed);
    }
}

/// A worker that is behind hides a message until the time has come by its clock.
#[tokio::test]
async fn a_worker_that_is_behind_by_more_than_a_minute_makes_late_what_it_receives() {
    for (misfire, expected) in [
        (Misfire::SkipMissed, Worked::Skipped),
        (Misfire::RunLast, Worked::Completed),
    ] {
        let desk = desk(NewJob {
            misfire,
            ..every("job", HOUR)
        })
        .await;
        let (office, message) = (&desk.office, &desk.message);
        let behind = Clock::manual(office.now() - 61 * SECOND);
        let behind = office.scheduler.on(office.cloud().with_clock(behind));
        let recording = office.cloud().tap().record();
        let worker = office.worker_on("behind", &behind);
        let worked = office.handle(&worker, message).await;
        assert_eq!(worked, Worked::TooEarly);
        let hidden = recording.take().pop().unwrap().request;
        assert_eq!(hidden.body["VisibilityTimeout"], 61, "{hidden:?}");
        office.advance(61 * SECOND);
        let worked = office.handle(&office.worker("w"), message).await;
        assert_eq!(worked, expected, "{misfire:?}");
    }
}

// The real loops.

/// One job hangs, whoever asks for it; the scanner, the sweeper and the workers run all others meanwhile.
#[tokio::test]
async fn a_stuck_job_keeps_no_other_from_running() {
    let office = open_by_the_clock().await.impatient();
    let at = office.now();
    let blind = office.scheduler.clone().keeping_the_queue_at(0);
    for n in 0..12 {
        let job = NewJob::new(format!("job-{n}"), "acme", Schedule::Once { at });
        blind.create_job(job).await.unwrap();
    }
    let stuck = Arc::new(Stuck::hanging("acme/job-0"));
    let _plan = office.cloud().tap().install(stuck.clone());
    let left = Arc::new((AtomicUsize::new(11), Notify::new()));
    let settings = Settings {
        workers: 2,
        scan_every: Duration::from_millis(20),
        sweep_every: Duration::from_millis(20),
    };
    let counts = Arc::new(Counts(Arc::clone(&left)));
    let running = run_until(
        office.scheduler.clone(),
        counts,
        settings,
        left.1.notified(),
    );
    let ran = tokio::time::timeout(Duration::from_secs(15), running).await;
    assert!(ran.is_ok(), "{:?} did not run", left.0);
    assert!(stuck.met() > 0);
}

/// Counts down.
struct Counts(Arc<(AtomicUsize, Notify)>);

impl Handler for Counts {
    fn run<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        if self.0.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.1.notify_one();
        }
        Box::pin(async { Ok(()) })
    }
}
