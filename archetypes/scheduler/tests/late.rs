//! Late copies: each write of a story arrives once more, after any later call, also after its sender's death.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::LateCopies;
use cloud::TEST_EPOCH;
use office::cast::two_due;
use office::*;
use scheduler::change_job::Change;
use scheduler::domain::{ExecutionStatus, JobStatus};
use scheduler::queue::Message;
use scheduler::{NewJob, Overlap};
use std::sync::Arc;

/// Works on the message of this execution until it has ended: a worker that died is waited for.
async fn worked_off(office: &Office, execution_id: &str) {
    for round in 0..4 {
        let execution = office.execution(execution_id).await;
        if execution.completed_at.is_some() {
            return;
        }
        let message = Message {
            says: Some((&execution).into()),
            receipt: "a copy".to_owned(),
        };
        let worker = office.worker(&format!("worker-{round}"));
        worker.handle(&message).await.unwrap();
        office.advance(MINUTE);
    }
}

#[tokio::test]
async fn a_late_copy_of_a_plan_or_a_run_changes_nothing() {
    let change = |change: Change, change_id: &'static str| {
        move |office: Arc<Office>| {
            let change = change.clone();
            async move {
                let changed = office.scheduler.change_job("acme/job", &change, change_id);
                changed.await.unwrap();
            }
        }
    };
    let harmless = LateCopies::of(open)
        .act("client", |office: Arc<Office>| async move {
            let job = NewJob {
                parameters: "good morning".to_owned(),
                overlap: Overlap::Skip,
                ..every("job", HOUR)
            };
            office.scheduler.create_job(job).await.unwrap();
        })
        .act("scanner", |office: Arc<Office>| async move {
            let left = TEST_EPOCH + HOUR - office.now();
            office.advance(left.max(0));
            office.scheduler.enqueue(&id("job", HOUR)).await.unwrap();
        })
        .act("sweeper", |office: Arc<Office>| async move {
            office.advance(MINUTE / 2);
            office.scheduler.sweep(&id("job", HOUR)).await.unwrap();
        })
        .act("worker", |office: Arc<Office>| async move {
            worked_off(&office, &id("job", HOUR)).await;
        })
        .act("pauser", change(Change::Pause, "p"))
        .act("resumer", change(Change::Resume, "r"))
        .act("canceller", change(Change::Cancel, "c"))
        .check(|office| async move {
            let all = office.invariants("job").await?;
            let job = office.scheduler.known_job("acme/job").await.unwrap();
            match (all[&id("job", HOUR)], job.status) {
                (ExecutionStatus::Completed, JobStatus::Cancelled) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert!(harmless.landings.len() > 60, "{}", harmless.landings.len());
}

#[tokio::test]
async fn a_late_copy_of_a_failure_or_a_redrive_changes_nothing() {
    let failing = || async {
        let job = NewJob {
            max_attempts: 1,
            ..once("job", 0)
        };
        let office = with_job(job).await;
        office.diary.lock().unwrap().fails = 1;
        office
    };
    let harmless = LateCopies::of(failing)
        .act("worker", |office: Arc<Office>| async move {
            worked_off(&office, &id("job", 0)).await;
        })
        .act("sweeper", |office: Arc<Office>| async move {
            office.scheduler.sweep(&id("job", 0)).await.unwrap();
        })
        .act("operator", |office: Arc<Office>| async move {
            office.scheduler.redrive_one(&id("job", 0)).await.unwrap();
        })
        .act("again", |office: Arc<Office>| async move {
            worked_off(&office, &id("job", 0)).await;
        })
        .check(|office| async move {
            match office.invariants("job").await?[&id("job", 0)] {
                ExecutionStatus::Completed => Ok(()),
                // The worker of the one attempt died, and whoever came next gave it up.
                ExecutionStatus::Failed => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert!(harmless.landings.len() > 20, "{}", harmless.landings.len());
}

/// One runs, breathes and ends; the other waits, is handed the place, and runs.
#[tokio::test]
async fn a_late_copy_of_a_turn_or_a_heartbeat_changes_nothing() {
    let harmless = LateCopies::of(|| async {
        let mut desk = two_due(Overlap::QueueOne).await;
        desk.run = Some(desk.claim("one").await);
        desk
    })
    .act("other", |desk: Arc<Desk>| async move {
        desk.try_claim("other", true).await;
    })
    .act("one", |desk: Arc<Desk>| async move {
        for _ in 0..3 {
            desk.office.advance(10 * SECOND);
            desk.office.scheduler.heartbeat(desk.begun()).await.unwrap();
        }
    })
    .act("end", |desk: Arc<Desk>| async move {
        let lease = desk.office.execution(&id("job", HOUR)).await;
        let kept = lease.lease_expires_at >= Some(desk.office.now() + 20 * SECOND);
        assert!(kept, "a late heartbeat has shortened the lease");
        desk.office.scheduler.complete(desk.begun()).await.unwrap();
    })
    .act("turn", |desk: Arc<Desk>| async move {
        worked_off(&desk.office, &id("job", 2 * HOUR)).await;
    })
    .check(|desk| async move {
        let all = desk.office.invariants("job").await?;
        match (all[&id("job", HOUR)], all[&id("job", 2 * HOUR)]) {
            (ExecutionStatus::Completed, ExecutionStatus::Completed) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .run()
    .await
    .unwrap();
    assert!(harmless.landings.len() > 20, "{}", harmless.landings.len());
}
