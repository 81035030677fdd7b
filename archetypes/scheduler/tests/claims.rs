//! One test for each promise of the README.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{LoseAnswer, Tokenless, World};
use chrono::{DateTime, TimeZone, Utc};
use chrono_tz::Tz;
use cloud::tap::{Call, Plan, Request, Verdict};
use cloud::{Backend, Clock, Ids, Millis, Options, TEST_EPOCH};
use futures::future::BoxFuture;
use office::cast::{due_office, two_due};
use office::*;
use proptest::prelude::*;
use scheduler::change_job::Change;
use scheduler::domain::{BACKOFF_CAP_MS, ExecutionStatus, JobStatus, backoff};
use scheduler::fairness::{Candidate, Room, Turns, fair_order};
use scheduler::queue::{MAX_RECEIVES, Message};
use scheduler::redrive::Redriven;
use scheduler::tables::SHARDS;
use scheduler::{
    Claimed, Finish, Handler, Misfire, NewJob, Overlap, Run, Schedule, Scheduler, SchedulerError,
    Worked, Worker,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

// Once, and on time.

#[tokio::test]
async fn each_job_and_fire_time_completes_exactly_once_if_workers_live() {
    let office = Arc::new(open().await);
    for job in 0..12 {
        let job = NewJob::new(
            format!("job-{job}"),
            "acme",
            Schedule::Every { every_ms: HOUR },
        );
        office.scheduler.create_job(job).await.unwrap();
    }
    for _ in 0..2 {
        office.advance(HOUR);
        // Three scanners and six workers at once, and every message twice.
        let scans = chaos::race(3, {
            let office = Arc::clone(&office);
            move |_| {
                let office = Arc::clone(&office);
                async move { office.scan().await.len() }
            }
        });
        scans.await;
        chaos::race(6, {
            let office = Arc::clone(&office);
            move |n| {
                let office = Arc::clone(&office);
                async move {
                    office.work_all(&format!("worker-{n}")).await;
                }
            }
        })
        .await;
    }
    let mut done = office.completions();
    done.sort();
    let mut expected: Vec<_> = (0..12)
        .flat_map(|job| [1, 2].map(|hour| id(&format!("job-{job}"), hour * HOUR)))
        .collect();
    expected.sort();
    assert_eq!(done, expected);
    for job in 0..12 {
        office.invariants(&format!("job-{job}")).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_starts_before_its_time_whatever_the_queue_does() {
    let office = with_job(once("job", 20 * SECOND)).await;
    let execution = office.execution(&id("job", 20 * SECOND)).await;
    assert_eq!(
        execution.status,
        ExecutionStatus::Enqueued,
        "created inside the lookahead"
    );
    let early = Message {
        says: Some((&execution).into()),
        receipt: "early".to_owned(),
    };
    let worker = office.worker("w");
    let recording = office.cloud().tap().record();
    assert_eq!(office.handle(&worker, &early).await, Worked::TooEarly);
    let calls = recording.take();
    let hidden = &calls.last().unwrap().request.body;
    assert_eq!(hidden["VisibilityTimeout"], 20, "until its time, no longer");
    assert!(office.starts().is_empty());
    office.advance(20 * SECOND);
    assert_eq!(office.handle(&worker, &early).await, Worked::Completed);
}

#[tokio::test]
async fn a_stale_attempt_changes_nothing() {
    let mut desk = desk(once("job", HOUR)).await;
    desk.run = Some(desk.claim("first").await);
    assert_eq!(desk.office.execution(&id("job", HOUR)).await.attempt, 1);
    desk.office.advance(MINUTE);
    let second = desk.claim("second").await;
    let before = desk.office.execution(&id("job", HOUR)).await;
    assert_eq!(
        (before.attempt, before.lease_owner.as_deref()),
        (2, Some("second"))
    );
    let scheduler = &desk.office.scheduler;
    let stale = desk.begun();
    assert_eq!(scheduler.complete(stale).await.unwrap(), Finish::Stale);
    assert_eq!(scheduler.fail(stale, "no").await.unwrap().0, Finish::Stale);
    assert_eq!(scheduler.heartbeat(stale).await.unwrap(), Finish::Stale);
    assert_eq!(scheduler.give_back(stale).await.unwrap(), Finish::Stale);
    assert_eq!(desk.office.execution(&id("job", HOUR)).await, before);
    assert_eq!(scheduler.complete(&second).await.unwrap(), Finish::Done);
}

#[tokio::test]
async fn cancelled_before_start_never_starts() {
    let desk = desk(every("job", HOUR)).await;
    let scheduler = &desk.office.scheduler;
    scheduler
        .change_job("acme/job", &Change::Cancel, "c")
        .await
        .unwrap();
    // Its message is there, the next one is planned, and both end without a start.
    assert_eq!(desk.work("w").await, "calledoff");
    desk.office.advance(HOUR);
    desk.office.scan().await;
    desk.office.work_all("w").await;
    assert!(desk.office.starts().is_empty());
    let all = desk.office.invariants("job").await.unwrap();
    assert_eq!(all.len(), 2);
    assert!(
        all.values()
            .all(|status| *status == ExecutionStatus::Cancelled),
        "{all:?}"
    );
}

#[tokio::test]
async fn a_cancelled_job_is_not_tried_again() {
    let desk = desk(once("job", HOUR)).await;
    desk.office.diary.lock().unwrap().fails = 1;
    assert_eq!(desk.work("w").await, "retrying");
    let scheduler = &desk.office.scheduler;
    scheduler
        .change_job("acme/job", &Change::Cancel, "c")
        .await
        .unwrap();
    desk.office.live(3).await;
    assert_eq!(desk.office.starts().len(), 1);
    assert_eq!(
        desk.office.status(&id("job", HOUR)).await,
        ExecutionStatus::Cancelled
    );
}

#[tokio::test]
async fn the_series_goes_on_without_drift() {
    let office = with_job(every("job", HOUR)).await;
    for hour in 1..=5 {
        // Late by a while, every time.
        office.advance(HOUR);
        if hour == 1 {
            office.advance(17 * SECOND);
        }
        office.scan().await;
        office.work_all("w").await;
        office.invariants("job").await.unwrap();
    }
    let expected: Vec<_> = (1..=5).map(|hour| id("job", hour * HOUR)).collect();
    assert_eq!(office.completions(), expected);
}

#[tokio::test]
async fn what_is_created_inside_the_lookahead_enqueues_itself() {
    let office = open().await;
    let recording = office.cloud().tap().record();
    office
        .scheduler
        .create_job(once("job", 10 * SECOND))
        .await
        .unwrap();
    let sent: Vec<_> = recording
        .take()
        .into_iter()
        .filter(|call| call.request.operation == "SendMessage")
        .collect();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].request.body["DelaySeconds"], 10);
    // A job that fires every second has several of its fire times there.
    office
        .scheduler
        .create_job(every("fast", SECOND))
        .await
        .unwrap();
    let all = office.invariants("fast").await.unwrap();
    let ahead = all
        .values()
        .filter(|status| **status == ExecutionStatus::Enqueued)
        .count();
    assert_eq!(ahead, 10);
    office.scan().await;
    let all = office.invariants("fast").await.unwrap();
    let ahead = all
        .values()
        .filter(|status| **status == ExecutionStatus::Enqueued)
        .count();
    assert_eq!(ahead, 30, "as many seconds as the lookahead has");
}

#[tokio::test]
async fn the_lookahead_never_exceeds_what_sqs_can_delay() {
    let office = open().await;
    let refused = office
        .scheduler
        .clone()
        .looking_ahead(900_001)
        .err()
        .unwrap();
    assert_eq!(
        refused.to_string(),
        "the lookahead in ms must be between 0 and 900000, not 900001"
    );
    let far = office.scheduler.clone().looking_ahead(900_000).unwrap();
    let recording = office.cloud().tap().record();
    far.create_job(once("near", 900 * SECOND)).await.unwrap();
    far.create_job(once("far", 901 * SECOND)).await.unwrap();
    let calls = recording.take();
    let delays: Vec<_> = calls
        .iter()
        .filter(|call| call.request.operation == "SendMessage")
        .map(|call| call.request.body["DelaySeconds"].as_i64().unwrap())
        .collect();
    assert_eq!(delays, [900]);
    assert_eq!(
        office.status(&id("far", 901 * SECOND)).await,
        ExecutionStatus::Pending
    );
}

// Workers die, messages get lost, answers get lost.

#[tokio::test]
async fn a_dead_workers_run_is_taken_over_when_its_lease_expires() {
    let desk = desk(once("job", HOUR)).await;
    desk.claim("dead").await;
    assert_eq!(desk.work("early").await, "held");
    desk.office.advance(30 * SECOND);
    assert_eq!(desk.work("heir").await, "completed");
    assert_eq!(desk.office.starts(), [(id("job", HOUR), 2)]);
}

#[tokio::test]
async fn a_lost_message_is_sent_again() {
    let office = due_office(once("job", HOUR)).await;
    office.scan().await;
    // Received by somebody who is never seen again.
    office.receive().await.unwrap();
    assert!(office.sweep().await.is_empty(), "not yet");
    office.advance(31 * SECOND);
    assert_eq!(office.sweep().await, [id("job", HOUR)]);
    office.work_all("w").await;
    assert_eq!(office.completions(), [id("job", HOUR)]);
    assert!(office.sweep().await.is_empty());
}

/// A line that is longer than the sweeper's patience does not grow by it without end.
#[tokio::test]
async fn a_long_wait_in_the_queue_is_answered_with_fewer_and_fewer_messages() {
    let office = due_office(once("job", HOUR)).await;
    office.scan().await;
    let shard = cloud::item::shard_of("acme/job", SHARDS);
    let mut sent = 0;
    // An hour in which no worker comes, and a sweeper every ten seconds.
    for _ in 0..360 {
        office.advance(10 * SECOND);
        sent += office.scheduler.sweep_stale([shard]).await.len();
    }
    assert!((5..=10).contains(&sent), "{sent} messages");
    office.work_all("w").await;
    assert_eq!(office.completions(), [id("job", HOUR)]);
}

#[tokio::test]
async fn the_last_attempt_of_a_dead_worker_fails_and_is_buried() {
    let desk = desk(NewJob {
        max_attempts: 1,
        ..once("job", HOUR)
    })
    .await;
    desk.claim("dead").await;
    desk.office.advance(MINUTE);
    assert_eq!(desk.work("heir").await, "gaveup");
    let execution = desk.office.execution(&id("job", HOUR)).await;
    assert_eq!(execution.status, ExecutionStatus::Failed);
    assert_eq!(execution.reason.as_deref(), Some("the worker died"));
    assert!(
        desk.office
            .scheduler
            .receive_dead()
            .await
            .unwrap()
            .is_some()
    );
    desk.office.invariants("job").await.unwrap();
}

/// The embedded store can be kept on disk; queues are not.
#[tokio::test]
async fn lost_queues_are_rebuilt_from_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(TEST_EPOCH);
    let options = Options {
        backend: Backend::Embedded,
        data: Some(folder.path().to_owned()),
        prefix: None,
        clock: clock.clone(),
        ids: Ids::Uuid,
    };
    let office = open_on(cloud::connect_with(options.clone()).await.unwrap()).await;
    for job in ["job", "begun"] {
        office.scheduler.create_job(once(job, 0)).await.unwrap();
    }
    let begun = office.receive().await.unwrap();
    assert!(matches!(
        office.scheduler.claim(&begun, "dead").await.unwrap(),
        Claimed::Run(_)
    ));
    drop(office);
    let mut again = cloud::connect_with(options.clone()).await;
    for _ in 0..100 {
        if again.is_ok() {
            break;
        }
        // The servers of the first end with its last connection.
        cloud::item::pause(4).await;
        again = cloud::connect_with(options.clone()).await;
    }
    let office = open_on(again.unwrap()).await;
    assert!(office.receive().await.is_none(), "the queue is new");
    clock.advance(Duration::from_secs(90));
    office.sweep().await;
    office.work_all("w").await;
    let mut done = office.completions();
    done.sort();
    assert_eq!(done, [id("begun", 0), id("job", 0)]);
}

#[tokio::test]
async fn a_lost_answer_is_recognized_as_ones_own_success() {
    for (shape, overlap) in [
        (
            "TransactWriteItems [Put jobs if, Put executions if]",
            Overlap::AllowAll,
        ),
        (
            "TransactWriteItems [Update executions if, Update jobs if]",
            Overlap::AllowAll,
        ),
        (
            "TransactWriteItems [Update executions if, ConditionCheck jobs if]",
            Overlap::AllowAll,
        ),
        ("UpdateItem executions if", Overlap::AllowAll),
        (
            "TransactWriteItems [Update executions if, Update jobs if]",
            Overlap::Skip,
        ),
    ] {
        let office = open().await;
        let plan = Arc::new(LoseAnswer::to_first(move |call| call.shape() == shape));
        let tap = office.cloud().tap();
        let installed = (tap.install(Arc::new(Tokenless)), tap.install(plan.clone()));
        office
            .scheduler
            .create_job(NewJob {
                overlap,
                ..once("job", 0)
            })
            .await
            .unwrap();
        let message = office.receive().await.unwrap();
        let worker = office.worker("w");
        assert_eq!(
            office.handle(&worker, &message).await,
            Worked::Completed,
            "{shape}"
        );
        drop(installed);
        assert!(plan.seen() > 1, "{shape} was never sent again");
        assert_eq!(office.starts(), [(id("job", 0), 1)], "{shape}");
        office.invariants("job").await.unwrap();
    }
}

/// Another transaction is in the way, once for each kind of write.
#[derive(Default)]
struct Conflicts {
    met: std::sync::Mutex<Vec<String>>,
}

impl Plan for Conflicts {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let mut verdict = Verdict::Pass;
        let shape = request.shape();
        let mut met = self.met.lock().unwrap();
        if request.operation == "TransactWriteItems" && !met.contains(&shape) {
            verdict = chaos::conflict(request);
            met.push(shape);
        }
        Box::pin(async move { verdict })
    }
}

#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again() {
    let office = open().await;
    let plan = Arc::new(Conflicts::default());
    let installed = office.cloud().tap().install(plan.clone());
    let job = NewJob {
        overlap: Overlap::Skip,
        ..every("job", HOUR)
    };
    office.scheduler.create_job(job).await.unwrap();
    office.advance(HOUR);
    office.scan().await;
    office.work_all("w").await;
    office
        .scheduler
        .change_job("acme/job", &Change::Pause, "p")
        .await
        .unwrap();
    office
        .scheduler
        .change_job("acme/job", &Change::Resume, "r")
        .await
        .unwrap();
    drop(installed);
    assert_eq!(plan.met.lock().unwrap().len(), 5, "{:?}", plan.met);
    assert_eq!(office.completions(), [id("job", HOUR)]);
    office.invariants("job").await.unwrap();
}

// Leases.

#[tokio::test]
async fn a_heartbeat_moves_lease_and_visibility_together() {
    let desk = desk(NewJob {
        lease_ms: 45_000,
        ..once("job", HOUR)
    })
    .await;
    let recording = desk.office.cloud().tap().record();
    let run = desk.claim("w").await;
    desk.office.advance(40 * SECOND);
    let beat = desk.office.scheduler.heartbeat(&run).await.unwrap();
    assert_eq!(beat, Finish::Done);
    let calls = recording.take();
    let hidden: Vec<_> = calls
        .iter()
        .filter(|call| call.request.operation == "ChangeMessageVisibility")
        .map(|call| call.request.body["VisibilityTimeout"].as_i64().unwrap())
        .collect();
    assert_eq!(hidden, [45, 45], "at the claim, and at the heartbeat");
    let execution = desk.office.execution(&id("job", HOUR)).await;
    assert_eq!(execution.lease_expires_at, Some(desk.office.now() + 45_000));
    // Past the first lease, inside the second: nobody takes it.
    desk.office.advance(20 * SECOND);
    assert_eq!(desk.work("other").await, "held");
}

/// A handler that never ends.
struct Endless;

impl Handler for Endless {
    fn run<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn a_worker_told_to_stop_gives_back_what_it_has() {
    let desk = desk(NewJob {
        max_attempts: 1,
        ..once("job", HOUR)
    })
    .await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let scheduler = desk.office.scheduler.clone();
    let endless =
        Worker::new(scheduler, "endless", Arc::new(Endless)).until(stopped.clone(), stopped);
    let (worked, ()) = tokio::join!(endless.handle(&desk.message), async {
        while desk.office.status(&id("job", HOUR)).await != ExecutionStatus::InProgress {}
        stop.send_replace(true);
    });
    assert_eq!(worked.unwrap(), Worked::GivenBack);
    // Somebody else begins at once, without waiting for any lease, and with an attempt of its own.
    let again = desk.office.scheduler.receive(5).await.unwrap().unwrap();
    let worker = desk.office.worker("other");
    assert_eq!(desk.office.handle(&worker, &again).await, Worked::Completed);
    assert_eq!(desk.office.starts(), [(id("job", HOUR), 2)]);
}

#[tokio::test]
async fn an_attempt_that_takes_too_long_has_failed() {
    let desk = desk(NewJob {
        timeout_ms: 1_000,
        ..once("job", HOUR)
    })
    .await;
    let scheduler = desk.office.scheduler.clone();
    let endless = Worker::new(scheduler, "endless", Arc::new(Endless));
    let worked = endless.handle(&desk.message).await.unwrap();
    assert!(matches!(worked, Worked::Retrying { .. }), "{worked:?}");
    let reason = desk.office.execution(&id("job", HOUR)).await.reason;
    assert_eq!(reason.as_deref(), Some("it took longer than 1000 ms"));
}

// Retry, failure, redrive.

#[tokio::test]
async fn a_failed_attempt_is_made_again_after_a_growing_pause() {
    let desk = desk(NewJob {
        max_attempts: 5,
        ..once("job", HOUR)
    })
    .await;
    desk.office.diary.lock().unwrap().fails = 1;
    let recording = desk.office.cloud().tap().record();
    let worker = desk.office.worker("w");
    let worked = desk.office.handle(&worker, &desk.message).await;
    let Worked::Retrying { at } = worked else {
        panic!("{worked:?}")
    };
    let pause = at - desk.office.now();
    assert!((1_000..2_000).contains(&pause), "{pause}");
    let calls = recording.take();
    let sent = calls
        .iter()
        .find(|call| call.request.operation == "SendMessage")
        .unwrap();
    assert_eq!(
        sent.request.body["DelaySeconds"].as_i64(),
        Some(pause / 1_000)
    );
    // The old message, delivered once more, is too early for the new attempt.
    desk.office.live(3).await;
    assert_eq!(
        desk.office.starts(),
        [(id("job", HOUR), 1), (id("job", HOUR), 2)]
    );
    assert_eq!(desk.office.completions(), [id("job", HOUR)]);
}

proptest! {
    #[test]
    fn a_pause_doubles_is_capped_and_lies_in_its_upper_half(attempt in 1u32..200, job in "[a-z]{1,8}") {
        let whole = (2_000_i64 << (attempt - 1).min(30)).min(BACKOFF_CAP_MS);
        let pause = backoff(&job, attempt);
        prop_assert!((whole / 2..=whole).contains(&pause), "{pause} of {whole}");
        prop_assert_eq!(pause, backoff(&job, attempt));
    }
}

#[test]
fn what_failed_together_does_not_come_back_together() {
    let pauses: std::collections::BTreeSet<_> = (0..100)
        .map(|job| backoff(&id(&format!("job-{job}"), 0), 5))
        .collect();
    assert!(pauses.len() > 80, "{}", pauses.len());
}

#[tokio::test]
async fn after_the_last_attempt_it_is_failed_in_the_dead_letter_queue_and_can_be_redriven() {
    let office = due_office(NewJob {
        max_attempts: 2,
        ..once("job", HOUR)
    })
    .await;
    office.diary.lock().unwrap().fails = 3;
    office.live(4).await;
    let execution = office.execution(&id("job", HOUR)).await;
    assert_eq!(execution.status, ExecutionStatus::Failed);
    assert_eq!(execution.reason.as_deref(), Some("told to fail"));
    assert_eq!(office.starts().len(), 2);
    let redriven = office.scheduler.redrive(10).await;
    let runnable = Redriven::Runnable {
        execution_id: id("job", HOUR),
    };
    assert_eq!(redriven, [runnable]);
    // Attempt 3 fails, attempt 4 does not: two more, and the fence goes on counting.
    office.live(4).await;
    assert_eq!(office.completions(), [id("job", HOUR)]);
    assert_eq!(office.execution(&id("job", HOUR)).await.attempt, 4);
    assert!(office.scheduler.redrive(10).await.is_empty());
}

#[tokio::test]
async fn a_message_nobody_can_read_ends_in_the_dead_letter_queue() {
    let office = open().await;
    let cloud = office.cloud().beside_tap();
    let url = cloud
        .sqs()
        .get_queue_url()
        .queue_name(cloud.names().queue("runnable"));
    let url = url.send().await.unwrap().queue_url.unwrap();
    // Nonsense, and an id that does not name its own job.
    for body in [
        "nonsense",
        r#"{"execution_id":"1#a","job_id":"b","execution_time":1}"#,
    ] {
        cloud
            .sqs()
            .send_message()
            .queue_url(&url)
            .message_body(body)
            .send()
            .await
            .unwrap();
    }
    let worker = office.worker("w");
    let mut poison = 0;
    while let Some(message) = office.receive().await {
        assert_eq!(worker.handle(&message).await.unwrap(), Worked::Poison);
        poison += 1;
    }
    assert_eq!(poison, 2 * MAX_RECEIVES);
    let mut redriven = office.scheduler.redrive(1).await;
    for _ in 0..100 {
        if !redriven.is_empty() {
            break;
        }
        cloud::item::pause(5).await;
        redriven = office.scheduler.redrive(1).await;
    }
    assert_eq!(redriven, [Redriven::Poison]);
}

// Overlap.

#[tokio::test]
async fn skip_means_at_most_one_running() {
    let desk = two_due(Overlap::Skip).await;
    let run = desk.claim("one").await;
    assert_eq!(desk.try_claim("other", true).await, "skipped");
    // Also while the first one pauses between two attempts, and when its worker is dead.
    desk.office.scheduler.fail(&run, "no").await.unwrap();
    desk.office.advance(HOUR);
    desk.office.scan().await;
    let third = desk.office.receive().await.unwrap();
    let worker = desk.office.worker("third");
    let mut worked = desk.office.handle(&worker, &third).await;
    // The retry's message and the third fire time's come in any order.
    if worked == Worked::Completed {
        let next = desk.office.receive().await.unwrap();
        worked = desk.office.handle(&worker, &next).await;
        assert_eq!(worked, Worked::Completed);
    } else {
        assert_eq!(worked, Worked::Skipped);
    }
    let all = desk.office.invariants("job").await.unwrap();
    assert_eq!(all[&id("job", 2 * HOUR)], ExecutionStatus::Skipped);
    let skipped = desk.office.execution(&id("job", 2 * HOUR)).await;
    let expected = format!("{} was running", id("job", HOUR));
    assert_eq!(skipped.reason, Some(expected));
}

#[tokio::test]
async fn queue_one_lets_one_wait_and_skips_the_rest() {
    let desk = two_due(Overlap::QueueOne).await;
    let run = desk.claim("one").await;
    assert_eq!(desk.try_claim("other", true).await, "waits");
    desk.office.advance(HOUR);
    desk.office.scan().await;
    let worker = desk.office.worker("w");
    let third = desk.office.receive().await.unwrap();
    assert_eq!(desk.office.handle(&worker, &third).await, Worked::Skipped);
    assert_eq!(
        desk.office.scheduler.complete(&run).await.unwrap(),
        Finish::Done
    );
    desk.office.work_all("w").await;
    assert_eq!(desk.office.completions(), [id("job", 2 * HOUR)]);
    let all = desk.office.invariants("job").await.unwrap();
    assert_eq!(all[&id("job", 3 * HOUR)], ExecutionStatus::Skipped);
}

/// However it ends, the place is given back: here by those who find that it is over.
#[tokio::test]
async fn a_place_is_given_back_by_who_is_called_off_and_by_who_is_given_up() {
    let desk = two_due(Overlap::QueueOne).await;
    let run = desk.claim("one").await;
    assert_eq!(desk.try_claim("other", true).await, "waits");
    let scheduler = &desk.office.scheduler;
    scheduler
        .change_job("acme/job", &Change::Cancel, "c")
        .await
        .unwrap();
    // The first ends and hands the place to the second, which finds that it is called off.
    assert_eq!(scheduler.complete(&run).await.unwrap(), Finish::Done);
    desk.office.work_all("w").await;
    let all = desk.office.invariants("job").await.unwrap();
    assert_eq!(all[&id("job", 2 * HOUR)], ExecutionStatus::Cancelled);
    let job = scheduler.known_job("acme/job").await.unwrap();
    assert_eq!((job.running_execution, job.waiting_execution), (None, None));

    let job = NewJob {
        max_attempts: 1,
        overlap: Overlap::Skip,
        ..once("job", HOUR)
    };
    let desk = office::desk(job).await;
    desk.claim("dead").await;
    desk.office.advance(MINUTE);
    assert_eq!(desk.work("heir").await, "gaveup");
    desk.office.invariants("job").await.unwrap();
    let job = desk.office.scheduler.known_job("acme/job").await.unwrap();
    assert_eq!(job.running_execution, None);
}

#[tokio::test]
async fn a_redriven_execution_waits_until_the_place_is_free() {
    let job = NewJob {
        max_attempts: 1,
        overlap: Overlap::Skip,
        ..every("job", HOUR)
    };
    let office = due_office(job).await;
    office.diary.lock().unwrap().fails = 1;
    office.scan().await;
    office.work_all("w").await;
    assert_eq!(
        office.status(&id("job", HOUR)).await,
        ExecutionStatus::Failed
    );
    // The next one has the place.
    office.advance(HOUR);
    office.scan().await;
    let message = office.receive().await.unwrap();
    let Claimed::Run(run) = office.scheduler.claim(&message, "next").await.unwrap() else {
        panic!("it should begin");
    };
    office.scheduler.redrive(1).await;
    let redriven = office.receive().await.unwrap();
    let worker = office.worker("w");
    assert_eq!(office.handle(&worker, &redriven).await, Worked::Held);
    office.scheduler.complete(&run).await.unwrap();
    assert_eq!(office.handle(&worker, &redriven).await, Worked::Completed);
}

// Changes of plan.

#[tokio::test]
async fn a_paused_job_starts_nothing_and_a_resumed_one_goes_on() {
    let office = with_job(every("job", HOUR)).await;
    let change = async |change, id| office.scheduler.change_job("acme/job", &change, id).await;
    change(Change::Pause, "p").await.unwrap();
    office.advance(3 * HOUR + MINUTE);
    office.scan().await;
    office.work_all("w").await;
    assert!(office.starts().is_empty());
    let job = change(Change::Resume, "r").await.unwrap();
    assert_eq!(
        job.next_fire_time,
        Some(TEST_EPOCH + 4 * HOUR),
        "in step with before"
    );
    office.advance(HOUR);
    office.scan().await;
    office.work_all("w").await;
    assert_eq!(office.completions(), [id("job", 4 * HOUR)]);
    // Before its time it is as if nothing had been.
    change(Change::Pause, "p2").await.unwrap();
    let job = change(Change::Resume, "r2").await.unwrap();
    assert_eq!(job.next_fire_time, Some(TEST_EPOCH + 5 * HOUR));
    office.invariants("job").await.unwrap();
}

#[tokio::test]
async fn a_rescheduled_job_follows_its_new_schedule_only() {
    let office = with_job(every("job", HOUR)).await;
    office.advance(HOUR / 2);
    let other = Change::Reschedule(Schedule::Every { every_ms: 2 * HOUR });
    office
        .scheduler
        .change_job("acme/job", &other, "r")
        .await
        .unwrap();
    office.advance(4 * HOUR + MINUTE);
    for _ in 0..3 {
        office.scan().await;
        office.work_all("w").await;
    }
    // RUN_LAST: of the two that passed meanwhile, the last; and nothing of the old schedule.
    assert_eq!(office.completions(), [id("job", HOUR / 2 + 4 * HOUR)]);
    let all = office.invariants("job").await.unwrap();
    assert_eq!(all[&id("job", HOUR)], ExecutionStatus::Cancelled);
}

/// A run is dispatched and due, and no worker has begun it.
#[tokio::test]
async fn a_change_of_plan_calls_off_a_recurring_run_that_is_due_and_does_not_bring_it_back() {
    let hourly = Schedule::Every { every_ms: HOUR };
    for changes in [
        vec![Change::Pause, Change::Resume],
        vec![Change::Reschedule(hourly)],
    ] {
        let desk = desk(NewJob {
            misfire: Misfire::RunAll,
            ..every("job", HOUR)
        })
        .await;
        for (number, change) in changes.iter().enumerate() {
            let (scheduler, id) = (&desk.office.scheduler, format!("c-{number}"));
            let changed = scheduler.change_job("acme/job", change, &id);
            changed.await.unwrap();
        }
        assert_eq!(desk.work("w").await, "calledoff");
        desk.office.live(3).await;
        assert!(desk.office.starts().is_empty(), "{changes:?}");
        assert_eq!(
            desk.office.status(&id("job", HOUR)).await,
            ExecutionStatus::Cancelled
        );
    }
}

#[tokio::test]
async fn a_change_of_plan_sent_again_is_not_made_again() {
    let office = with_job(every("job", HOUR)).await;
    let other = Change::Reschedule(Schedule::Every { every_ms: 2 * HOUR });
    let first = office
        .scheduler
        .change_job("acme/job", &other, "r")
        .await
        .unwrap();
    office.advance(MINUTE);
    let again = office
        .scheduler
        .change_job("acme/job", &other, "r")
        .await
        .unwrap();
    assert_eq!(
        (first.schedule_version, first.anchor),
        (again.schedule_version, again.anchor)
    );
    // What a job's status does not allow is refused in words.
    office
        .scheduler
        .change_job("acme/job", &Change::Cancel, "c")
        .await
        .unwrap();
    let refused = office
        .scheduler
        .change_job("acme/job", &Change::Resume, "x")
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the job is Cancelled: it cannot be resumed"
    );
    let unknown = office
        .scheduler
        .change_job("acme/none", &Change::Cancel, "x")
        .await
        .unwrap_err();
    assert_eq!(unknown.to_string(), "there is no job 'acme/none'");
}

// After an outage.

async fn after_an_outage(misfire: Misfire, catch_up_ms: Millis) -> (Vec<String>, Office) {
    let office = with_job(NewJob {
        misfire,
        catch_up_ms,
        ..every("job", HOUR)
    })
    .await;
    office.advance(10 * HOUR + 30 * MINUTE);
    for _ in 0..12 {
        office.scan().await;
        office.work_all("w").await;
    }
    office.invariants("job").await.unwrap();
    (office.completions(), office)
}

#[tokio::test]
async fn run_all_makes_up_for_the_catch_up_window() {
    let (done, office) = after_an_outage(Misfire::RunAll, 3 * HOUR).await;
    let expected: Vec<_> = (8..=10).map(|hour| id("job", hour * HOUR)).collect();
    assert_eq!(done, expected);
    // One row says that it was missed; six more were jumped over in the same step.
    let all = office.invariants("job").await.unwrap();
    assert_eq!(all[&id("job", HOUR)], ExecutionStatus::Skipped);
    assert_eq!(all.len(), 5, "{all:?}");
}

#[tokio::test]
async fn run_last_runs_the_last_one_missed_if_it_is_inside_the_window() {
    let (done, _) = after_an_outage(Misfire::RunLast, 3 * HOUR).await;
    assert_eq!(done, [id("job", 10 * HOUR)]);
    let (done, office) = after_an_outage(Misfire::RunLast, 10 * MINUTE).await;
    assert!(done.is_empty());
    let job = office.scheduler.known_job("acme/job").await.unwrap();
    assert_eq!(job.next_fire_time, Some(TEST_EPOCH + 11 * HOUR));
}

#[tokio::test]
async fn skip_missed_runs_none_of_them() {
    let (done, office) = after_an_outage(Misfire::SkipMissed, 3 * HOUR).await;
    assert!(done.is_empty());
    let job = office.scheduler.known_job("acme/job").await.unwrap();
    assert_eq!(job.next_fire_time, Some(TEST_EPOCH + 11 * HOUR));
}

#[tokio::test]
async fn a_job_that_fires_once_is_not_forgotten_in_an_outage() {
    let office = with_job(once("job", HOUR)).await;
    office.advance(20 * HOUR);
    office.scan().await;
    office.work_all("w").await;
    assert_eq!(office.completions(), [id("job", HOUR)]);
}

// Fairness.

/// One tenant has 300 executions due, the other five, a little later.
async fn flooded() -> Office {
    let office = open().await;
    let creating = (0..305).map(|n| {
        let scheduler = office.scheduler.clone();
        async move {
            let (tenant, at) = if n < 300 {
                ("flood", HOUR)
            } else {
                ("calm", HOUR + SECOND)
            };
            let job = NewJob {
                tenant_id: tenant.to_owned(),
                ..once(&format!("{tenant}-{n}"), at)
            };
            scheduler.create_job(job).await.unwrap();
        }
    });
    futures::future::join_all(creating).await;
    office.advance(HOUR + MINUTE / 2);
    office
}

/// How many of the first so many completions are the calm tenant's.
fn calm_among(office: &Office, first: usize) -> usize {
    let done = office.completions();
    done.iter()
        .take(first)
        .filter(|id| id.contains("#calm"))
        .count()
}

#[tokio::test]
async fn a_flood_of_one_tenant_does_not_starve_another() {
    let office = flooded().await;
    for _ in 0..2 {
        // As much as there is room for, then work.
        let scheduler = office.scheduler.clone().keeping_the_queue_at(20);
        let room = scheduler.room().await.unwrap();
        assert_eq!(room, Room::from(20));
        scheduler.scan_due(0..SHARDS, room).await;
        assert_eq!(scheduler.room().await.unwrap(), Room::from(0));
        office.work_all("w").await;
    }
    assert_eq!(office.completions().len(), 40);
    assert_eq!(calm_among(&office, 20), 5);
}

/// The queue is full, and takes one message at a time. Each tenant has every so many-th of them, however old the
/// others' backlog is.
#[tokio::test]
async fn tenants_take_turns_from_scan_to_scan_while_the_queue_is_full() {
    let office = open().await;
    let blind = office.scheduler.clone().keeping_the_queue_at(0);
    let create = async |tenant: &str, number: i64| {
        let job = NewJob {
            tenant_id: tenant.to_owned(),
            ..once(&format!("{tenant}-{number}"), number)
        };
        blind.create_job(job).await.unwrap();
    };
    for number in 0..10 {
        create("flood", number).await;
        create("crowd", number).await;
    }
    office.advance(SECOND);
    create("calm", SECOND).await;
    let mut tenants = Vec::new();
    for _ in 0..9 {
        let scanned = office.scheduler.scan_due(0..SHARDS, 1).await;
        let (_, job) = scheduler::items::parts_of(&scanned[0].0).unwrap();
        tenants.push(job.split('/').next().unwrap().to_owned());
    }
    let turns = [
        "calm", "crowd", "flood", "crowd", "flood", "crowd", "flood", "crowd", "flood",
    ];
    assert_eq!(tenants, turns);
}

/// A thousand retries that wait for their time are in nobody's way: what is due is dispatched.
#[tokio::test]
async fn messages_that_wait_for_their_time_take_nobodys_room() {
    let office = open().await;
    let scheduler = office.scheduler.clone().keeping_the_queue_at(3);
    let scheduler = scheduler.looking_ahead(900_000).unwrap();
    for n in 0..5 {
        let near = once(&format!("near-{n}"), 10 * MINUTE);
        scheduler.create_job(near).await.unwrap();
    }
    scheduler.scan_due(0..SHARDS, 5).await;
    let room = scheduler.room().await.unwrap();
    assert_eq!(room, Room { due: 3, near: 0 });
    let due = with_due(&scheduler, "job").await;
    let scanned = scheduler.scan_due(0..SHARDS, room).await;
    let ids: Vec<_> = scanned.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [due]);
}

/// One place is one message, be it for what is due or for what is near; and what is due has it first.
#[tokio::test]
async fn a_scan_sends_no_more_than_there_is_room_for_and_what_is_due_first() {
    let office = open().await;
    let scheduler = office.scheduler.clone().keeping_the_queue_at(0);
    for number in 0..3 {
        for (name, at) in [("due", SECOND), ("near", 20 * SECOND)] {
            let job = once(&format!("{name}-{number}"), at);
            scheduler.create_job(job).await.unwrap();
        }
    }
    office.advance(SECOND);
    let sent = async |room: usize| {
        let scanned = scheduler.scan_due(0..SHARDS, room).await;
        let due = scanned.iter().filter(|(id, _)| id.contains("due"));
        (due.count(), scanned.len())
    };
    assert_eq!(sent(2).await, (2, 2));
    assert_eq!(sent(2).await, (1, 2));
}

/// The first in the line are of jobs that were paused. They take no place from the one behind them.
#[tokio::test]
async fn a_dispatch_that_sends_nothing_takes_nobodys_place() {
    let office = open().await;
    let blind = office.scheduler.clone().keeping_the_queue_at(0);
    for number in 0..3 {
        let name = format!("paused-{number}");
        blind.create_job(every(&name, MINUTE)).await.unwrap();
        let name = whole(&name);
        let paused = blind.change_job(&name, &Change::Pause, "p");
        paused.await.unwrap();
    }
    office.advance(2 * MINUTE);
    let last = with_due(&office.scheduler, "job").await;
    office.scheduler.scan_due(0..SHARDS, 1).await;
    assert_eq!(office.status(&last).await, ExecutionStatus::Enqueued);
}

/// A job that became due while nobody scanned.
async fn with_due(scheduler: &Scheduler, job_id: &str) -> String {
    let blind = scheduler.clone().keeping_the_queue_at(0);
    let now = scheduler.cloud().now();
    let schedule = Schedule::Once { at: now };
    let job = NewJob::new(job_id, "acme", schedule);
    blind.create_job(job).await.unwrap();
    scheduler::items::execution_id(now, &whole(job_id))
}

/// A tenant that creates jobs by the thousand for now fills the queue no further than a scan would.
#[tokio::test]
async fn creating_many_jobs_for_now_leaves_the_rest_to_the_scanner() {
    let office = open().await;
    let scheduler = office.scheduler.clone().keeping_the_queue_at(3);
    for n in 0..8 {
        scheduler
            .create_job(once(&format!("job-{n}"), 0))
            .await
            .unwrap();
    }
    let (waiting, all) = scheduler.messages().await.unwrap();
    assert_eq!((waiting, all), (3, 3));
    // Nothing is lost by it.
    for _ in 0..4 {
        office.work_all("w").await;
        let room = scheduler.room().await.unwrap();
        scheduler.scan_due(0..SHARDS, room).await;
    }
    assert_eq!(office.completions().len(), 8);
}

/// A handler that panics has failed an attempt, and its worker lives on.
#[tokio::test]
async fn a_handler_that_panics_fails_its_attempt_and_nothing_else() {
    struct Panics;
    impl Handler for Panics {
        fn run<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), String>> {
            Box::pin(async move {
                assert!(run.execution.attempt > 1, "the first attempt panics");
                Ok(())
            })
        }
    }
    let office = with_job(once("job", 0)).await;
    let worker = Worker::new(office.scheduler.clone(), "w", Arc::new(Panics));
    let message = office.receive().await.unwrap();
    let worked = worker.handle(&message).await.unwrap();
    assert!(matches!(worked, Worked::Retrying { .. }), "{worked:?}");
    let retried = office.execution(&id("job", 0)).await;
    assert_eq!(retried.reason.as_deref(), Some("the handler panicked"));
    office.advance(MINUTE);
    let worked = worker.handle(&message).await.unwrap();
    assert_eq!(worked, Worked::Completed);
}

/// Loses every request to hide a message, and counts them.
#[derive(Default)]
struct NeverHides(AtomicUsize);

impl Plan for NeverHides {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let mut verdict = Verdict::Pass;
        if request.operation == "ChangeMessageVisibility" {
            self.0.fetch_add(1, Ordering::SeqCst);
            verdict = Verdict::LoseRequest;
        }
        Box::pin(async move { verdict })
    }
}

/// The row is the lease: that the message could not be hidden as long is no reason to let go.
#[tokio::test]
async fn a_run_is_not_let_go_because_its_message_could_not_be_hidden() {
    let office = with_job(NewJob {
        lease_ms: 2 * MINUTE,
        ..once("job", 0)
    })
    .await;
    let message = office.receive().await.unwrap();
    let lost = Arc::new(NeverHides::default());
    let _plan = office.cloud().tap().install(lost.clone());
    let worked = office.handle(&office.worker("w"), &message).await;
    assert_eq!(worked, Worked::Completed);
    assert!(lost.0.load(Ordering::SeqCst) > 0, "nothing was lost");
}

/// The SDK sends the write again, and it fails its own guard: that is our own success.
#[tokio::test]
async fn a_redrive_whose_answer_is_lost_knows_its_own_work() {
    let office = with_job(NewJob {
        max_attempts: 1,
        ..once("job", 0)
    })
    .await;
    office.diary.lock().unwrap().fails = 1;
    office.live(1).await;
    let update = |call: &Request| call.shape() == "UpdateItem executions if";
    let lost = Arc::new(LoseAnswer::to_first(update));
    let tap = office.cloud().tap();
    let plan = (tap.install(Arc::new(Tokenless)), tap.install(lost.clone()));
    let redriven = office.scheduler.redrive(1).await;
    drop(plan);
    assert!(lost.seen() > 1, "it was never sent again");
    let execution_id = id("job", 0);
    assert_eq!(redriven, [Redriven::Runnable { execution_id }]);
    office.work_all("w").await;
    assert_eq!(office.completions().len(), 1);
}

/// What was paused until its time had passed is due when it is resumed.
#[tokio::test]
async fn a_one_off_job_can_be_paused_until_it_begins_and_is_due_when_it_is_resumed() {
    let office = with_job(once("job", 10 * SECOND)).await;
    // It is in the queue already, and its job has nothing more to plan.
    let change = async |change, change_id: &str| {
        let scheduler = &office.scheduler;
        scheduler
            .change_job("acme/job", &change, change_id)
            .await
            .unwrap()
    };
    let paused = change(Change::Pause, "c1").await;
    assert_eq!(paused.status, JobStatus::Paused);
    office.advance(3 * 24 * HOUR);
    office.work_all("w").await;
    assert!(office.starts().is_empty());
    let resumed = change(Change::Resume, "c2").await;
    assert_eq!(resumed.next_fire_time, Some(office.now()));
    office.live(2).await;
    assert_eq!(office.completions().len(), 1);
    office.invariants("job").await.unwrap();
}

/// The same without taking turns: whoever is due first is first, and the calm tenant is last.
#[tokio::test]
async fn without_turns_the_flood_comes_first() {
    let office = flooded().await;
    let mut found = Vec::new();
    for shard in 0..SHARDS {
        let lane = format!("start-{shard}");
        found.extend(office.scheduler.due(&lane, office.now()).await.unwrap());
    }
    found.sort_by_key(|candidate| candidate.due_at);
    for candidate in found.iter().take(40) {
        office
            .scheduler
            .enqueue(&candidate.execution_id)
            .await
            .unwrap();
    }
    office.work_all("w").await;
    assert_eq!(office.completions().len(), 40);
    assert_eq!(calm_among(&office, 40), 0);
}

#[test]
fn tenants_take_turns_and_what_is_due_comes_before_what_is_near() {
    let candidate = |name: &str, tenant: &str, due_at| Candidate {
        execution_id: name.to_owned(),
        tenant_id: tenant.to_owned(),
        due_at,
    };
    let found = vec![
        candidate("a1", "a", 1),
        candidate("a2", "a", 2),
        candidate("a3", "a", 3),
        candidate("near-b", "b", 90),
        candidate("near-c", "c", 80),
        candidate("b1", "b", 4),
        candidate("b2", "b", 5),
    ];
    let order = |turns: &Turns| -> Vec<_> {
        let ordered = fair_order(found.clone(), 10, turns).into_iter();
        ordered.map(|one| one.execution_id).collect()
    };
    let mut turns = Turns::default();
    assert_eq!(
        order(&turns),
        ["a1", "b1", "a2", "b2", "a3", "near-b", "near-c"]
    );
    // Each turn begins after the tenant who was served last, be it gone or there.
    turns.served(false, "a");
    turns.served(true, "bb");
    assert_eq!(
        order(&turns),
        ["b1", "a1", "b2", "a2", "a3", "near-c", "near-b"]
    );
}

// What it costs.

fn scanned_units(calls: &[Call]) -> f64 {
    calls.iter().map(Call::read_units).sum()
}

#[tokio::test]
async fn the_cost_of_a_scan_does_not_grow_with_finished_executions() {
    let office = open().await;
    let cost = async || {
        let recording = office.cloud().tap().record();
        office.scan().await;
        office.sweep().await;
        scanned_units(&recording.take())
    };
    let empty = cost().await;
    assert_eq!(empty, 4.0, "eight empty queries, half a unit each");
    for round in 0..3 {
        for job in 0..40 {
            office
                .scheduler
                .create_job(once(&format!("job-{round}-{job}"), 0))
                .await
                .unwrap();
        }
        office.work_all("w").await;
        assert_eq!(cost().await, empty, "after {} executions", 40 * (round + 1));
    }
    assert_eq!(office.completions().len(), 120);
    // And it does read what is there.
    for job in 0..200 {
        office
            .scheduler
            .create_job(once(&format!("later-{job}"), HOUR))
            .await
            .unwrap();
    }
    office.advance(HOUR);
    let recording = office.cloud().tap().record();
    let mut found = 0;
    for shard in 0..SHARDS {
        found += office
            .scheduler
            .due(&format!("start-{shard}"), office.now())
            .await
            .unwrap()
            .len();
    }
    assert_eq!(found, 200);
    assert!(scanned_units(&recording.take()) > empty / 2.0);
}

#[tokio::test]
async fn nothing_ever_scans_and_no_status_change_is_written_to_the_index_of_a_job() {
    let office = open().await;
    let recording = office.cloud().tap().record();
    office.scheduler.create_job(once("job", 0)).await.unwrap();
    let created = recording.take();
    office.sweep().await;
    office.work_all("w").await;
    let listed = office
        .scheduler
        .executions_of("acme/job", 10)
        .await
        .unwrap();
    assert_eq!(listed[0].status, ExecutionStatus::Completed);
    let calls = recording.take();
    let on = |calls: &[Call], index: &str| -> f64 {
        let all = calls.iter().flat_map(|call| &call.consumed);
        all.filter(|consumed| consumed.resource == index)
            .map(|consumed| consumed.write)
            .sum()
    };
    assert!(on(&created, "executions/by_job") > 0.0);
    assert_eq!(on(&calls, "executions/by_job"), 0.0);
    assert!(
        on(&calls, "executions/due") > 0.0,
        "that one moves with the status"
    );
    assert!(
        created
            .iter()
            .chain(&calls)
            .all(|call| call.request.operation != "Scan")
    );
}

#[tokio::test]
async fn executions_of_one_minute_are_spread_over_keys() {
    let office = open().await;
    let mut buckets = std::collections::BTreeSet::new();
    for job in 0..40 {
        let job = format!("job-{job}");
        office.scheduler.create_job(once(&job, HOUR)).await.unwrap();
        buckets.insert(office.execution(&id(&job, HOUR)).await.bucket);
    }
    let expected: Vec<_> = (0..SHARDS)
        .map(|shard| format!("2026-01-01T01:00#{shard}"))
        .collect();
    assert_eq!(buckets.into_iter().collect::<Vec<_>>(), expected);
}

// Input.

#[tokio::test]
async fn creating_twice_creates_once_and_another_job_under_the_id_is_refused() {
    let office = open().await;
    let first = office
        .scheduler
        .create_job(every("job", HOUR))
        .await
        .unwrap();
    office.advance(MINUTE);
    let again = office
        .scheduler
        .create_job(every("job", HOUR))
        .await
        .unwrap();
    assert_eq!(first, again);
    // Also after its plan has changed.
    let other = Change::Reschedule(Schedule::Every { every_ms: 2 * HOUR });
    office
        .scheduler
        .change_job("acme/job", &other, "r")
        .await
        .unwrap();
    office
        .scheduler
        .create_job(every("job", HOUR))
        .await
        .unwrap();
    let taken = office
        .scheduler
        .create_job(every("job", 3 * HOUR))
        .await
        .unwrap_err();
    assert!(matches!(taken, SchedulerError::IdTaken(_)), "{taken:?}");
    office.invariants("job").await.unwrap();
}

#[tokio::test]
async fn bad_input_is_refused_before_any_write() {
    let office = open().await;
    let cron = |expression: &str, time_zone: &str| Schedule::Cron {
        expression: expression.to_owned(),
        time_zone: time_zone.to_owned(),
    };
    let with = |schedule| NewJob::new("job", "acme", schedule);
    let good = || every("job", HOUR);
    let recording = office.cloud().tap().record();
    for (job, why) in [
        (
            with(Schedule::Every { every_ms: 999 }),
            "between one second and ten years, not 999 ms",
        ),
        (with(Schedule::Once { at: -1 }), "-1 is not a time"),
        (
            with(cron("nonsense", "UTC")),
            "'nonsense' is not a cron expression",
        ),
        (
            with(cron("0 9 * * *", "Mars/Base")),
            "'Mars/Base' is not a time zone",
        ),
        (with(cron("0 0 30 2 *", "UTC")), "'0 0 30 2 *' never fires"),
        (
            NewJob {
                job_id: String::new(),
                ..good()
            },
            "job_id must have between 1 and 200",
        ),
        (
            NewJob {
                job_id: "x".repeat(201),
                ..good()
            },
            "not 201",
        ),
        (
            NewJob {
                tenant_id: String::new(),
                ..good()
            },
            "tenant_id must have",
        ),
        (
            NewJob {
                parameters: "x".repeat(70_000),
                ..good()
            },
            "at most 65536 bytes, not 70000",
        ),
        (
            NewJob {
                max_attempts: 0,
                ..good()
            },
            "max_attempts must be between 1 and 100, not 0",
        ),
        (
            NewJob {
                lease_ms: 10,
                ..good()
            },
            "lease_ms must be between 1000 and 43200000, not 10",
        ),
        (
            NewJob {
                catch_up_ms: -1,
                ..good()
            },
            "catch_up_ms must be",
        ),
    ] {
        let refused = office.scheduler.create_job(job).await.unwrap_err();
        assert!(
            matches!(refused, SchedulerError::BadInput(_)),
            "{refused:?}"
        );
        assert!(refused.to_string().contains(why), "{refused}");
    }
    assert!(recording.take().is_empty(), "nothing was even asked");
}

// Schedules.

fn cron(expression: &str, time_zone: &str) -> Schedule {
    Schedule::Cron {
        expression: expression.to_owned(),
        time_zone: time_zone.to_owned(),
    }
}

/// The first fire times after this local time, as UTC.
fn fires(
    schedule: &Schedule,
    zone: Tz,
    from: (i32, u32, u32, u32, u32),
    count: usize,
) -> Vec<String> {
    let (year, month, day, hour, minute) = from;
    let from = zone
        .with_ymd_and_hms(year, month, day, hour, minute, 0)
        .unwrap();
    let mut at = from.timestamp_millis();
    let mut all = Vec::new();
    for _ in 0..count {
        at = schedule.next_after(0, at).unwrap();
        let utc = DateTime::<Utc>::from_timestamp_millis(at).unwrap();
        all.push(utc.format("%m-%dT%H:%M").to_string());
    }
    all
}

#[test]
fn cron_follows_the_wall_clock_of_its_zone_through_the_year() {
    let nine = cron("0 9 * * *", "Europe/Berlin");
    let winter = fires(&nine, Tz::Europe__Berlin, (2026, 1, 10, 0, 0), 1);
    let summer = fires(&nine, Tz::Europe__Berlin, (2026, 7, 10, 0, 0), 1);
    assert_eq!(
        (winter, summer),
        (
            vec!["01-10T08:00".to_owned()],
            vec!["07-10T07:00".to_owned()]
        )
    );
    let weekdays = cron("30 8 * * MON-FRI", "America/New_York");
    // Friday, then Monday, on the day after the clocks changed.
    let around = fires(&weekdays, Tz::America__New_York, (2026, 3, 6, 0, 0), 2);
    assert_eq!(around, ["03-06T13:30", "03-09T12:30"]);
}

#[test]
fn a_fixed_time_that_the_clocks_jump_over_fires_right_after_the_jump() {
    // 2026-03-29, 02:00 becomes 03:00 in Berlin.
    let half_past_two = cron("30 2 * * *", "Europe/Berlin");
    let around = fires(&half_past_two, Tz::Europe__Berlin, (2026, 3, 28, 0, 0), 3);
    assert_eq!(around, ["03-28T01:30", "03-29T01:00", "03-30T00:30"]);
}

#[test]
fn a_fixed_time_that_comes_twice_fires_once() {
    // 2026-10-25, 03:00 becomes 02:00 in Berlin.
    let half_past_two = cron("30 2 * * *", "Europe/Berlin");
    let around = fires(&half_past_two, Tz::Europe__Berlin, (2026, 10, 24, 0, 0), 3);
    assert_eq!(around, ["10-24T00:30", "10-25T00:30", "10-26T01:30"]);
}

/// Several fixed times are fixed times.
#[test]
fn several_fixed_times_behave_like_one() {
    let two = cron("30 2,14 * * *", "Europe/Berlin");
    let spring = fires(&two, Tz::Europe__Berlin, (2026, 3, 29, 0, 0), 3);
    assert_eq!(spring, ["03-29T01:00", "03-29T12:30", "03-30T00:30"]);
    let autumn = fires(&two, Tz::Europe__Berlin, (2026, 10, 25, 0, 0), 3);
    assert_eq!(autumn, ["10-25T00:30", "10-25T13:30", "10-26T01:30"]);
    let range = cron("0 1-3 * * *", "Europe/Berlin");
    let autumn = fires(&range, Tz::Europe__Berlin, (2026, 10, 25, 0, 30), 4);
    assert_eq!(
        autumn,
        ["10-24T23:00", "10-25T00:00", "10-25T02:00", "10-26T00:00"]
    );
}

/// After an outage of a job that fires every second of one month, or of one day in a month, or of a part of each day:
/// what comes next is asked for a few dozen times, and not for each of the hundreds of thousands that were missed. A
/// dispatch has two seconds.
#[test]
fn the_last_of_many_missed_fire_times_is_found_without_walking_over_them() {
    let day = 24 * HOUR;
    for (expression, now, days, expected) in [
        ("* * * * 1 *", 35 * day, 1, None),
        ("* * * * 1 *", 35 * day, 10, Some(31 * day - SECOND)),
        ("* * * 1 * *", 20 * day, 40, Some(day - SECOND)),
        ("* * 0-9 * * *", 17 * HOUR, 1, Some(10 * HOUR - SECOND)),
        ("* * * * * *", 300 * day, 365, Some(300 * day)),
    ] {
        let burst = cron(expression, "UTC");
        let (now, since) = (TEST_EPOCH + now, TEST_EPOCH + now - days * day);
        let expected = expected.map(|after: Millis| TEST_EPOCH + after);
        assert_eq!(burst.last_between(TEST_EPOCH, since, now), expected);
        let mut asked = 0;
        let last = scheduler::schedule::last_of(since.max(TEST_EPOCH + 1), now, |after| {
            asked += 1;
            burst.next_after(TEST_EPOCH, after)
        });
        assert_eq!(last, expected);
        assert!(asked <= 30, "{expression}: {asked}");
    }
}

#[test]
fn a_wildcard_follows_the_clock_through_both_changes() {
    let hourly = cron("0 * * * *", "Europe/Berlin");
    let spring = fires(&hourly, Tz::Europe__Berlin, (2026, 3, 29, 0, 30), 3);
    assert_eq!(spring, ["03-29T00:00", "03-29T01:00", "03-29T02:00"]);
    let autumn = fires(&hourly, Tz::Europe__Berlin, (2026, 10, 25, 0, 30), 4);
    assert_eq!(
        autumn,
        ["10-24T23:00", "10-25T00:00", "10-25T01:00", "10-25T02:00"]
    );
}

/// From within the hour that comes twice, what comes next is ahead.
#[test]
fn a_schedule_can_begin_in_the_hour_that_comes_twice() {
    let second = TEST_EPOCH + 297 * 24 * HOUR + HOUR + HOUR / 6;
    let at = DateTime::<Utc>::from_timestamp_millis(second).unwrap();
    assert_eq!(
        at.with_timezone(&Tz::Europe__Berlin).to_string(),
        "2026-10-25 02:10:00 CET"
    );
    let fires = |expression| {
        let next = cron(expression, "Europe/Berlin")
            .next_after(0, second)
            .unwrap();
        DateTime::<Utc>::from_timestamp_millis(next)
            .unwrap()
            .format("%m-%dT%H:%M")
            .to_string()
    };
    assert_eq!(fires("*/15 * * * *"), "10-25T01:15");
    assert_eq!(fires("30 2 * * *"), "10-26T01:30", "it has fired today");
    assert_eq!(fires("0 3 * * *"), "10-25T02:00");
}

/// What an expression with a wildcard means, minute by minute, by looking at the clock.
fn by_looking(minute: u32, zone: Tz, from: Millis, until: Millis) -> Vec<Millis> {
    use chrono::Timelike;
    let minutes = (from / MINUTE + 1..=until / MINUTE).map(|at| at * MINUTE);
    let shows = |at: &Millis| {
        let time = DateTime::<Utc>::from_timestamp_millis(*at).unwrap();
        time.with_timezone(&zone).minute() == minute
    };
    minutes.filter(shows).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_wildcard_fires_whenever_the_clock_shows_it(
        minute in 0u32..60,
        change in prop::sample::select(vec![
            (Tz::Europe__Berlin, "2026-03-29"), (Tz::Europe__Berlin, "2026-10-25"),
            (Tz::America__New_York, "2026-03-08"), (Tz::America__New_York, "2026-11-01"),
            (Tz::Australia__Lord_Howe, "2026-04-05"), (Tz::Australia__Lord_Howe, "2026-10-04"),
            (Tz::Asia__Kolkata, "2026-05-05"),
        ]),
        begin in 0i64..1_440,
    ) {
        let (zone, day) = change;
        let day = DateTime::parse_from_rfc3339(&format!("{day}T00:00:00Z")).unwrap();
        let from = day.timestamp_millis() - 24 * HOUR + begin * MINUTE;
        let until = from + 24 * HOUR;
        let schedule = cron(&format!("{minute} * * * *"), zone.name());
        let mut at = from;
        let mut fired = Vec::new();
        while let Some(next) = schedule.next_after(0, at).filter(|next| *next <= until) {
            fired.push(next);
            at = next;
        }
        prop_assert_eq!(&fired, &by_looking(minute, zone, from, until));
    }

    #[test]
    fn a_fixed_time_fires_once_a_day_and_the_last_one_is_found_again(
        minute in 0u32..60,
        hour in 0u32..24,
        days in 0i64..700,
        zone in prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]),
    ) {
        let schedule = cron(&format!("{minute} {hour} * * *"), zone);
        let tz: Tz = zone.parse().unwrap();
        let mut at = TEST_EPOCH + days * 24 * HOUR;
        let mut day = None;
        for _ in 0..30 {
            at = schedule.next_after(0, at).unwrap();
            let time = DateTime::<Utc>::from_timestamp_millis(at).unwrap();
            let date = time.with_timezone(&tz).date_naive();
            if let Some(day) = day {
                prop_assert_eq!(date, day, "{} {}", minute, hour);
            }
            day = date.succ_opt();
        }
        prop_assert_eq!(schedule.last_between(0, at - 3 * 24 * HOUR, at + 1_500), Some(at));
    }
}

#[tokio::test]
async fn a_cron_job_runs_by_its_zone() {
    let office = open().await;
    // The epoch of tests is 01:00 in Berlin.
    let job = NewJob::new("job", "acme", cron("30 1 * * *", "Europe/Berlin"));
    office.scheduler.create_job(job).await.unwrap();
    for day in 0..2 {
        office.advance(if day == 0 { HOUR / 2 } else { 24 * HOUR });
        office.scan().await;
        office.work_all("w").await;
    }
    assert_eq!(
        office.completions(),
        [id("job", HOUR / 2), id("job", 24 * HOUR + HOUR / 2)]
    );
    office.invariants("job").await.unwrap();
}
