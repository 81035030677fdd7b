//! Dies before and after every call; then life goes on, with every message delivered twice; then
//! the invariants must hold, and nothing may be lost.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{CrashSweep, Faults, Swept};
use office::*;
use scheduler::change_job::Change;
use scheduler::domain::{ExecutionStatus, JobStatus};
use scheduler::{NewJob, Overlap, Worked};
use std::sync::Arc;

/// After the crash and some rounds of life, this execution has completed, once.
async fn completed(office: &Office, execution_id: &str) -> Result<(), String> {
    ends_well(office, "job", 4).await?;
    match office.status(execution_id).await {
        // Whoever died after the row was written did not live to write it down.
        ExecutionStatus::Completed => Ok(()),
        other => Err(format!("{execution_id} is {other:?}")),
    }
}

fn assert_points(swept: &Swept, calls: usize) {
    assert_eq!(swept.points.len(), 2 * calls, "{:#?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_create_job_recovers() {
    let create =
        |office: Arc<Office>| async move { office.scheduler.create_job(once("job", 0)).await };
    let swept = CrashSweep::of(open)
        .action("client", create)
        // The client does what clients do: it asks again.
        .recovery(|office| async move {
            office.scheduler.create_job(once("job", 0)).await.unwrap();
            office.live(3).await;
        })
        .check(|office| async move { completed(&office, &id("job", 0)).await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 5);
}

/// Even if the client never asks again: what was created runs.
#[tokio::test]
async fn a_client_that_dies_while_creating_leaves_a_whole_job_or_none() {
    let swept = CrashSweep::of(open)
        .action("client", |office| async move {
            office.scheduler.create_job(once("job", 0)).await
        })
        .recovery(|office| async move { office.live(3).await })
        .check(|office| async move {
            match office.scheduler.read_job("acme/job").await.unwrap() {
                Some(_) => completed(&office, &id("job", 0)).await,
                None => Ok(()),
            }
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 5);
}

async fn due(job: NewJob) -> Office {
    let office = with_job(job).await;
    office.advance(HOUR);
    office
}

#[tokio::test]
async fn every_crash_point_of_scan_and_enqueue_recovers_and_the_series_goes_on() {
    let shard = cloud::item::shard_of("acme/job", scheduler::tables::SHARDS);
    let swept = CrashSweep::of(|| due(every("job", HOUR)))
        .action("scanner", move |office| async move {
            office.scheduler.scan_due([shard], 10).await;
        })
        .recovery(|office| async move { office.live(3).await })
        .check(|office| async move {
            completed(&office, &id("job", HOUR)).await?;
            let next = office.status(&id("job", 2 * HOUR)).await;
            match next {
                ExecutionStatus::Pending => Ok(()),
                other => Err(format!("the next one is {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 4);
}

/// Dies at every call of a worker that receives, claims, runs and completes; the same with one place
/// for all runs of the job.
async fn sweep_worker(overlap: Overlap) -> Swept {
    let setup = move || async move {
        let office = due(NewJob {
            overlap,
            ..every("job", HOUR)
        })
        .await;
        office.scan().await;
        office
    };
    CrashSweep::of(setup)
        .action("worker", |office| async move {
            let message = office.receive().await.unwrap();
            let worker = office.worker("worker");
            // Written down before the last call, since the dead write nothing: see below.
            office.handle(&worker, &message).await
        })
        .recovery(|office| async move { office.live(4).await })
        .check(|office| async move {
            let all = office.invariants("job").await?;
            match all[&id("job", HOUR)] {
                ExecutionStatus::Completed => {}
                other => return Err(format!("it is {other:?}")),
            }
            // Begun at most twice: by the dead and by who came after.
            match office.starts().len() {
                1 | 2 => Ok(()),
                starts => Err(format!("{starts} starts")),
            }
        })
        .run()
        .await
        .unwrap()
}

#[tokio::test]
async fn every_crash_point_of_claim_and_complete_recovers() {
    // Receive, read, claim, complete, delete.
    assert_points(&sweep_worker(Overlap::AllowAll).await, 5);
}

#[tokio::test]
async fn every_crash_point_of_claim_and_complete_recovers_with_one_place() {
    // Receive, read, claim, read, complete, delete.
    assert_points(&sweep_worker(Overlap::Skip).await, 6);
}

#[tokio::test]
async fn every_crash_point_of_a_retry_recovers() {
    let setup = || async {
        let office = due(once("job", HOUR)).await;
        office.diary.lock().unwrap().fails = 1;
        office.scan().await;
        office
    };
    let swept = CrashSweep::of(setup)
        .action("worker", |office| async move {
            let message = office.receive().await.unwrap();
            let worker = office.worker("worker");
            let worked = office.handle(&worker, &message).await;
            assert!(matches!(worked, Worked::Retrying { .. }), "{worked:?}");
        })
        .recovery(|office| async move { office.live(4).await })
        .check(|office| async move { completed(&office, &id("job", HOUR)).await })
        .run()
        .await
        .unwrap();
    // Receive, read, claim, retry, send, delete.
    assert_points(&swept, 6);
}

#[tokio::test]
async fn every_crash_point_of_the_last_failure_leaves_it_failed_and_in_the_dead_letter_queue() {
    let setup = || async {
        let office = due(NewJob {
            max_attempts: 1,
            ..once("job", HOUR)
        })
        .await;
        office.diary.lock().unwrap().fails = 9;
        office.scan().await;
        office
    };
    let swept = CrashSweep::of(setup)
        .action("worker", |office| async move {
            let message = office.receive().await.unwrap();
            let worker = office.worker("worker");
            office.handle(&worker, &message).await
        })
        .recovery(|office| async move { office.live(4).await })
        .check(|office| async move {
            let all = office.invariants("job").await?;
            if all[&id("job", HOUR)] != ExecutionStatus::Failed {
                return Err(format!("{all:?}"));
            }
            let lane = office.execution(&id("job", HOUR)).await.due_shard;
            if !lane.is_some_and(|lane| lane.starts_with("dead-")) {
                return Err("it is not buried".to_owned());
            }
            let dead = office.scheduler.receive_dead().await.unwrap();
            let says = dead.and_then(|dead| dead.says);
            match says.is_some_and(|says| says.execution_id == id("job", HOUR)) {
                true => Ok(()),
                false => Err("it is not in the dead-letter queue".to_owned()),
            }
        })
        .run()
        .await
        .unwrap();
    // Receive, read, claim, fail, send, bury, delete.
    assert_points(&swept, 7);
}

#[tokio::test]
async fn every_crash_point_of_a_handover_starts_the_one_that_waits() {
    let setup = || async {
        let job = NewJob {
            overlap: Overlap::QueueOne,
            ..every("job", HOUR)
        };
        let mut desk = desk(job).await;
        desk.run = Some(desk.claim("one").await);
        desk.office.advance(HOUR);
        desk.office.scan().await;
        let second = desk.office.receive().await.unwrap();
        let worker = desk.office.worker("other");
        // The lease of the first has run out by now, but nobody has taken it: it has the place.
        assert_eq!(desk.office.handle(&worker, &second).await, Worked::Waits);
        desk
    };
    let swept = CrashSweep::of(setup)
        .action("worker", |desk| async move { desk.complete().await })
        .recovery(|desk| async move { desk.office.live(4).await })
        .check(|desk| async move {
            let all = desk.office.invariants("job").await?;
            for at in [HOUR, 2 * HOUR] {
                if all[&id("job", at)] != ExecutionStatus::Completed {
                    return Err(format!("{all:?}"));
                }
            }
            Ok(())
        })
        .run()
        .await
        .unwrap();
    // Read, end and hand over, read, send, delete.
    assert_points(&swept, 5);
}

#[tokio::test]
async fn every_crash_point_of_a_sweep_recovers() {
    let setup = || async {
        let office = due(once("job", HOUR)).await;
        office.scan().await;
        // The queue is lost: the message is received by somebody who is never seen again.
        office.receive().await.unwrap();
        office.advance(5 * MINUTE);
        office
    };
    let swept = CrashSweep::of(setup)
        .action("sweeper", |office| async move {
            office.scheduler.sweep(&id("job", HOUR)).await
        })
        .recovery(|office| async move { office.live(3).await })
        .check(|office| async move { completed(&office, &id("job", HOUR)).await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 3);
}

#[tokio::test]
async fn every_crash_point_of_a_redrive_recovers() {
    let setup = || async {
        let office = due(NewJob {
            max_attempts: 1,
            ..once("job", HOUR)
        })
        .await;
        office.diary.lock().unwrap().fails = 1;
        office.live(1).await;
        assert_eq!(
            office.status(&id("job", HOUR)).await,
            ExecutionStatus::Failed
        );
        office
    };
    let swept = CrashSweep::of(setup)
        .action("operator", |office| async move {
            office.scheduler.redrive(1).await.len()
        })
        .recovery(|office| async move {
            // Whoever died with the message in hand has hidden it for a while; the operator asks
            // again when it is back. Here the row is asked in its place.
            if office.status(&id("job", HOUR)).await == ExecutionStatus::Failed {
                return;
            }
            office.live(3).await;
        })
        .check(|office| async move {
            match office.status(&id("job", HOUR)).await {
                // Then the message must still be there for the next operator.
                ExecutionStatus::Failed => match office.scheduler.dead_messages().await.unwrap() {
                    1 => Ok(()),
                    left => Err(format!("{left} dead messages are left")),
                },
                _ => completed(&office, &id("job", HOUR)).await,
            }
        })
        .run()
        .await
        .unwrap();
    // Receive, read, mark, send, delete.
    assert_points(&swept, 5);
}

#[tokio::test]
async fn every_crash_point_of_a_resume_leaves_a_job_that_can_be_resumed_or_fires() {
    let setup = || async {
        let office = with_job(every("job", HOUR)).await;
        office
            .scheduler
            .change_job("acme/job", &Change::Pause, "pause")
            .await
            .unwrap();
        office
    };
    let resume = |office: Arc<Office>| async move {
        office
            .scheduler
            .change_job("acme/job", &Change::Resume, "resume")
            .await
            .unwrap();
    };
    let swept = CrashSweep::of(setup)
        .action("user", resume)
        .recovery(move |office| async move {
            resume(Arc::clone(&office)).await;
            office.advance(HOUR);
            office.live(2).await;
        })
        .check(|office| async move {
            let job = office.scheduler.known_job("acme/job").await.unwrap();
            if (job.status, job.schedule_version) != (JobStatus::Active, 3) {
                return Err(format!("{job:?}"));
            }
            completed(&office, &id("job", HOUR)).await
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 2);
}

#[tokio::test]
async fn lost_requests_lost_answers_stale_indexes_and_repeated_messages_lose_no_job() {
    for seed in 0..4 {
        let office = open().await;
        let faults = Faults::seeded(seed)
            .throttle(0.03)
            .lose_request(0.03)
            .lose_answer(0.05)
            .stale_read(0.2)
            .duplicate_delivery(0.2);
        let faults = Arc::new(faults.sparing("check"));
        office.diary.lock().unwrap().fails = 1;
        let installed = office.cloud_tap().install(faults.clone());
        // The client asks until it is answered; everybody else comes by again anyway.
        while office
            .scheduler
            .create_job(every("job", HOUR))
            .await
            .is_err()
        {}
        office.advance(HOUR);
        let shard = cloud::item::shard_of("acme/job", scheduler::tables::SHARDS);
        for _ in 0..12 {
            let _ = office.scheduler.scan_due([shard], 10).await;
            let _ = office.scheduler.sweep_stale([shard]).await;
            let worker = office.worker("worker");
            for _ in 0..4 {
                let Ok(Some(message)) = office.scheduler.receive(0).await else {
                    continue;
                };
                for _ in 0..2 {
                    if let Ok(worked) = worker.handle(&message).await {
                        office.written(&message, worked);
                    }
                }
            }
            office.advance(MINUTE);
        }
        drop(installed);
        let injected = faults.injected();
        assert!(injected.len() >= 4, "seed {seed} met {injected:?}");
        office.live(4).await;
        let all = office.invariants("job").await.unwrap();
        let status = all[&id("job", HOUR)];
        assert_eq!(status, ExecutionStatus::Completed, "seed {seed}: {all:?}");
        assert!(
            all.contains_key(&id("job", 2 * HOUR)),
            "seed {seed}: the series ended: {all:?}"
        );
    }
}
