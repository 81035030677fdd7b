//! Orders of calls with more in them: time that passes between a decision and its write, repairs beside each other
//! and beside what they mend.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Interleave, Pairs};
use cloud::Ids;
use office::cast::*;
use office::*;
use scheduler::change_job::Change;
use scheduler::queue::Message;
use scheduler::{Misfire, NewJob, Overlap, Schedule, items};
use std::sync::Arc;

// Time passes between a decision and its write.

/// The lease ends somewhere between the calls of its owner and those of who takes it over.
#[tokio::test]
async fn a_lease_that_ends_between_any_two_calls_leaves_one_completion() {
    let actors = completer(claimed(once("job", HOUR)));
    let actors = actors.actor("second", |desk: Arc<Desk>| async move {
        // As a worker does: it reads the clock after it has received.
        desk.office.receive().await;
        desk.work("second").await
    });
    let actors = actors.moment("the-lease-ends", |desk: &Desk| {
        desk.office.advance(31 * SECOND);
    });
    let explored = desks_end_well(actors).run().await.unwrap();
    for end in [
        "first completed, second echo",
        "first stale, second completed",
    ] {
        assert!(explored.seen.contains_key(end), "{:?}", explored.seen);
    }
}

/// A heartbeat keeps the lease, or comes too late: its owner is told which.
#[tokio::test]
async fn a_heartbeat_beside_the_end_of_its_lease_is_told_the_truth() {
    let actors = claimed(once("job", HOUR)).actor("first", |desk: Arc<Desk>| async move {
        let beat = desk.office.scheduler.heartbeat(desk.begun()).await.unwrap();
        format!("{beat:?}").to_lowercase()
    });
    let actors = actors.actor("second", |desk: Arc<Desk>| async move {
        desk.office.receive().await;
        desk.try_claim("second", false).await
    });
    let actors = actors.moment("the-lease-ends", |desk: &Desk| {
        desk.office.advance(31 * SECOND);
    });
    let explored = actors
        .check(|desk, told| async move {
            desk.office.invariants("job").await?;
            let owner = desk.office.execution(&id("job", HOUR)).await.lease_owner;
            match (told[0].1.as_str(), owner.as_deref()) {
                // Told that it lives, it may lose the lease later; told that it does not, it has.
                ("done", _) | ("stale", Some("second")) => Ok(label(&told)),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    for end in ["first done, second held", "first stale, second begins 2"] {
        assert!(explored.seen.contains_key(end), "{:?}", explored.seen);
    }
}

/// The fire time passes while a pause and a worker meet: it runs once, before the pause or after the resumption.
#[tokio::test]
async fn a_fire_time_that_passes_between_a_pause_and_a_start_is_run_once() {
    let setup = || async {
        let mut desk = desk(once("other", HOUR)).await;
        let office = &desk.office;
        let at = office.now() + 10 * SECOND;
        let job = NewJob::new("job", "acme", Schedule::Once { at });
        office.scheduler.create_job(job).await.unwrap();
        let execution = items::execution_id(at, "acme/job");
        desk.message.says = Some((&office.execution(&execution).await).into());
        desk
    };
    let actors = changer(Interleave::of(setup), "pauser", Change::Pause);
    let actors = worker(actors, "worker").moment("the-time-comes", |desk: &Desk| {
        desk.office.advance(10 * SECOND);
    });
    let explored = actors
        .check(|desk, told| async move {
            desk.office.invariants("job").await?;
            let paused = told[0].1 == "done";
            if paused != desk.office.starts().is_empty() && told[1].1 != "tooearly" {
                return Err(format!("{told:?}, {:?}", desk.office.starts()));
            }
            if paused {
                let resume = Change::Resume;
                let resumed = desk.office.scheduler.change_job("acme/job", &resume, "r");
                resumed.await.unwrap();
            }
            desk.office.live(2).await;
            match desk
                .office
                .starts()
                .iter()
                .filter(|(id, _)| id.ends_with("/job"))
                .count()
            {
                1 => Ok(label(&told)),
                starts => Err(format!("{starts} starts after {told:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert!(explored.seen.len() > 1, "{:?}", explored.seen);
}

/// A minute passes somewhere in a dispatch and a start: what is missed is skipped, and says so.
#[tokio::test]
async fn a_run_that_becomes_too_late_between_two_calls_runs_or_is_skipped() {
    let job = || NewJob {
        misfire: Misfire::SkipMissed,
        ..every("job", HOUR)
    };
    let actors = scanner(due(job()), "scanner")
        .actor("worker", |office: Arc<Office>| async move {
            let execution = office.scheduler.read_execution(&id("job", HOUR)).await;
            let message = Message {
                says: execution.unwrap().as_ref().map(Into::into),
                receipt: "a copy".to_owned(),
            };
            word(&office.handle(&office.worker("worker"), &message).await)
        })
        .moment("a-minute-passes", |office: &Office| {
            office.advance(61 * SECOND)
        });
    let explored = offices_end_well(actors).run().await.unwrap();
    for end in ["worker completed", "worker skipped"] {
        let seen = explored.seen.keys().any(|seen| seen.contains(end));
        assert!(seen, "{:?}", explored.seen);
    }
}

// Maintenance beside what it mends, and beside itself.

#[tokio::test]
async fn every_pair_of_repairs_and_what_they_repair_leaves_the_table_whole() {
    let setup = || async {
        let office = due_office(NewJob {
            overlap: Overlap::Skip,
            ..every("job", HOUR)
        })
        .await;
        office.scan().await;
        office.receive().await.unwrap();
        // Another one has failed, and its worker died before it was buried.
        let dead = NewJob {
            max_attempts: 1,
            ..NewJob::new("dead", "acme", Schedule::Once { at: office.now() })
        };
        office.diary.lock().unwrap().fails = 1;
        office.scheduler.create_job(dead).await.unwrap();
        office.work_all("w").await;
        office.diary.lock().unwrap().fails = 0;
        let failed = office.execution(&id("dead", HOUR)).await;
        office.advance(MINUTE);
        office.unbury(&failed).await;
        office
    };
    let met = Pairs::of(setup)
        .action("sweep", |office: Arc<Office>| async move {
            office.scheduler.sweep(&id("job", HOUR)).await.unwrap();
        })
        .action("work", |office: Arc<Office>| async move {
            let execution = office.scheduler.read_execution(&id("job", HOUR)).await;
            let message = Message {
                says: execution.unwrap().as_ref().map(Into::into),
                receipt: "a copy".to_owned(),
            };
            let worker = Ids::Uuid.next("worker");
            office.handle(&office.worker(&worker), &message).await;
        })
        .action("cancel", |office: Arc<Office>| async move {
            let cancel = Change::Cancel;
            let cancelled = office.scheduler.change_job("acme/job", &cancel, "c");
            cancelled.await.unwrap();
        })
        .action("bury", |office: Arc<Office>| async move {
            office.scheduler.sweep(&id("dead", HOUR)).await.unwrap();
        })
        .action("redrive", |office: Arc<Office>| async move {
            office
                .scheduler
                .redrive_one(&id("dead", HOUR))
                .await
                .unwrap();
        })
        .check(|office| async move {
            office.invariants("dead").await?;
            office.invariants("job").await.map(|_| ())
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 15);
}
