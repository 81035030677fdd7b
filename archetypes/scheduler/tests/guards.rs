//! A guard is worth what breaks without it. Each test takes one away and shows what.
//!
//! Not for real AWS: these rewrite requests on their way, which its signature forbids.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Interleave, Weaken, World, breaks};
use cloud::tap::{Plan, Request, Verdict};
use cloud::{Millis, as_actor};
use futures::future::BoxFuture;
use office::cast::*;
use office::*;
use scheduler::change_job::Change;
use scheduler::domain::{ExecutionStatus, JobStatus};
use scheduler::queue::Message;
use scheduler::{Claimed, Finish, NewJob, Overlap, Schedule, Scheduler, SchedulerError};
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

// Creating and materializing.

#[tokio::test]
async fn without_its_guard_creating_again_revives_a_cancelled_job() {
    let office = with_job(every("job", HOUR)).await;
    office
        .scheduler
        .change_job("acme/job", &Change::Cancel, "c")
        .await
        .unwrap();
    let weaken = Arc::new(Weaken::guard_on("jobs").containing("attribute_not_exists(job_id)"));
    let installed = office.cloud().tap().install(weaken.clone());
    office.advance(HOUR / 2);
    office
        .scheduler
        .create_job(every("job", HOUR))
        .await
        .unwrap();
    drop(installed);
    assert!(weaken.applied() > 0);
    let job = office.scheduler.known_job("acme/job").await.unwrap();
    assert_eq!(job.status, JobStatus::Active, "it was cancelled");
}

#[tokio::test]
async fn without_its_guard_materializing_again_runs_a_fire_time_twice() {
    let again = Change::Reschedule(Schedule::Once {
        at: cloud::TEST_EPOCH,
    });
    let office = with_job(once("job", 0)).await;
    office.work_all("w").await;
    let refused = office.scheduler.change_job("acme/job", &again, "a").await;
    assert!(
        matches!(refused, Err(SchedulerError::AlreadyRan)),
        "{refused:?}"
    );
    let weaken = Arc::new(Weaken::guard_on("executions").containing("attribute_not_exists"));
    let installed = office.cloud().tap().install(weaken.clone());
    office
        .scheduler
        .change_job("acme/job", &again, "b")
        .await
        .unwrap();
    drop(installed);
    assert!(weaken.applied() > 0);
    office.work_all("w").await;
    let broken = office.invariants("job").await.unwrap_err();
    assert!(broken.contains("started twice"), "{broken}");
}

// Dispatching.

#[tokio::test]
async fn without_the_status_two_scanners_both_send() {
    let actors = scanner(scanner(due(once("job", HOUR)), "one"), "other");
    let checked = actors.check(|office, told| async move {
        let mut messages = 0;
        while office.receive().await.is_some() {
            messages += 1;
        }
        match messages {
            1 => Ok(label(&told)),
            _ => Err(format!("{messages} messages")),
        }
    });
    let weaken = Weaken::guard_on("executions").without("#status = :pending");
    breaks(checked, weaken, "2 messages").await;
}

#[tokio::test]
async fn without_the_status_a_slow_scanner_sets_a_run_back() {
    let actors = scanner(due(once("job", HOUR)), "one");
    let actors = actors.actor("two", |office| async move {
        office.scheduler.enqueue(&id("job", HOUR)).await.unwrap();
        office.work_all("worker").await.to_string()
    });
    let weaken = Weaken::guard_on("executions").without("#status = :pending");
    breaks(offices_end_well(actors), weaken, "completed").await;
}

#[tokio::test]
async fn without_the_plan_a_dispatch_overrides_a_pause() {
    let actors = scanner(due(every("job", HOUR)), "scanner");
    let actors = office_changer(actors, "pauser", Change::Pause);
    let weaken = Weaken::guard_on("jobs").without("schedule_version = :version");
    let checked = actors.check(|office, told| async move {
        let job = office.scheduler.known_job("acme/job").await.unwrap();
        // A paused job has no next fire time; this one would show one that never comes.
        match (job.status, job.next_fire_time) {
            (JobStatus::Paused, Some(next)) => Err(format!("paused, and fires at {next}")),
            _ => Ok(label(&told)),
        }
    });
    breaks(checked, weaken, "paused, and fires at").await;
}

#[tokio::test]
async fn without_the_plan_on_the_execution_calling_off_ends_the_new_series() {
    let paused = || async {
        let office = due_office(every("job", 2 * HOUR)).await;
        office
            .scheduler
            .change_job("acme/job", &Change::Pause, "p")
            .await
            .unwrap();
        office
    };
    let actors: Offices = Interleave::of(paused).actor("scanner", |office| async move {
        let found = office
            .scheduler
            .enqueue(&id("job", 2 * HOUR))
            .await
            .unwrap();
        format!("{found:?}").to_lowercase()
    });
    let actors = office_changer(actors, "resumer", Change::Resume);
    let weaken = Weaken::guard_on("executions").without("schedule_version = :version");
    breaks(offices_end_well(actors), weaken, "is planned").await;
}

// Claiming.

#[tokio::test]
async fn without_its_guard_two_workers_both_complete() {
    let actors = worker(worker(desks(once("job", HOUR)), "one"), "other");
    let weaken = Weaken::guard_on("executions").containing("attempt = :seen");
    breaks(desks_end_well(actors), weaken, "completed twice").await;
}

#[tokio::test]
async fn without_the_lease_a_living_worker_loses_its_run() {
    let actors = worker(worker(desks(once("job", HOUR)), "one"), "other");
    let checked = actors.check(|_, told| async move {
        match told.iter().any(|(_, did)| did == "stale") {
            true => Err("taken from a living worker".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("executions").without("lease_expires_at <= :now");
    breaks(checked, weaken, "taken from a living worker").await;
}

/// Two whose clocks are ahead, one more than the other: both see the lease of the first expired,
/// and the later one also that of the earlier.
#[tokio::test]
async fn without_the_attempt_two_owners_have_the_same_fence() {
    let actors = taker(claimed(once("job", HOUR))).actor("third", |desk| async move {
        let ahead = cloud::Clock::manual(desk.office.now() + 2 * HOUR);
        let later = desk
            .office
            .scheduler
            .on(desk.office.cloud().with_clock(ahead));
        let worker = desk.office.worker_on("third", &later);
        word(&desk.office.handle(&worker, &desk.message).await)
    });
    let weaken = Weaken::guard_on("executions").without("attempt = :seen");
    breaks(desks_end_well(actors), weaken, "started twice").await;
}

/// Lets something happen between what `w` reads and what it writes about it.
struct Between {
    act: Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync>,
    done: AtomicBool,
}

impl Plan for Between {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async {
            let moment = &*request.actor == "w" && request.operation == "TransactWriteItems";
            if moment && !self.done.swap(true, Ordering::SeqCst) {
                (self.act)().await;
            }
            Verdict::Pass
        })
    }
}

/// What `w` is told when `act` happens between its read and its write, without this clause or with.
async fn claim_between<F: Future<Output = ()> + Send + 'static>(
    office: &Office,
    message: &Message,
    without: Option<&str>,
    act: impl Fn() -> F + Send + Sync + 'static,
) -> Claimed {
    let tap = office.cloud().tap();
    let between = Between {
        // On a stack of its own: it happens in the middle of another call.
        act: Box::new(move || {
            let acting = tokio::spawn(as_actor("other", act()));
            Box::pin(async { acting.await.unwrap() })
        }),
        done: AtomicBool::new(false),
    };
    let _between = tap.install(Arc::new(between));
    let weaken = without.map(|clause| Arc::new(Weaken::guard_on("executions").without(clause)));
    let _weaken = weaken.clone().map(|weaken| tap.install(weaken));
    let claimed = as_actor("w", office.scheduler.claim(message, "w")).await;
    assert!(weaken.is_none_or(|weaken| weaken.applied() > 0));
    claimed.unwrap()
}

/// A lease has expired, and while somebody takes it over its owner says that the attempt failed:
/// the next one has a time of its own.
#[tokio::test]
async fn without_the_time_an_attempt_begins_before_it() {
    for without in [None, Some("not_before <= :now")] {
        let office = with_job(once("job", 0)).await;
        let message = office.receive().await.unwrap();
        let Claimed::Run(run) = office.scheduler.claim(&message, "slow").await.unwrap() else {
            panic!("nobody else is there");
        };
        office.advance(5 * MINUTE);
        let scheduler = office.scheduler.clone();
        let claimed = claim_between(&office, &message, without, move || {
            let (scheduler, run) = (scheduler.clone(), run.clone());
            async move {
                scheduler.fail(&run, "it failed").await.unwrap();
            }
        })
        .await;
        match (without, claimed) {
            (None, Claimed::TooEarly { .. }) => {}
            (Some(_), Claimed::Run(run)) => assert!(run.execution.attempt == 2),
            (_, other) => panic!("{without:?}: {other:?}"),
        }
    }
}

/// A worker is about to call off what an old plan had, and a new plan puts one in its place.
#[tokio::test]
async fn without_the_plan_a_run_of_the_new_plan_is_called_off() {
    for without in [None, Some("schedule_version = :plan")] {
        let office = with_job(once("job", 10 * SECOND)).await;
        let execution = office.execution(&id("job", 10 * SECOND)).await;
        let message = Message {
            says: Some((&execution).into()),
            receipt: "old".to_owned(),
        };
        office.advance(20 * SECOND);
        let reschedule = |scheduler: Scheduler, after: Millis, change_id: &'static str| async move {
            let at = cloud::TEST_EPOCH + after;
            let change = Change::Reschedule(Schedule::Once { at });
            let changed = scheduler.change_job("acme/job", &change, change_id).await;
            changed.unwrap();
        };
        reschedule(office.scheduler.clone(), HOUR, "away").await;
        let scheduler = office.scheduler.clone();
        let claimed = claim_between(&office, &message, without, move || {
            reschedule(scheduler.clone(), 10 * SECOND, "and back")
        })
        .await;
        match (without, claimed) {
            (None, Claimed::Run(_)) => {}
            (Some(_), Claimed::CalledOff) => {
                let status = office.status(&id("job", 10 * SECOND)).await;
                assert_eq!(status, ExecutionStatus::Cancelled, "it is lost");
            }
            (_, other) => panic!("{without:?}: {other:?}"),
        }
    }
}

/// A sweeper buries a failure that has been redriven since, and has failed again.
#[tokio::test]
async fn without_the_attempt_a_failure_is_buried_that_is_not_in_the_dead_letter_queue() {
    for weak in [false, true] {
        let office = with_job(NewJob {
            max_attempts: 1,
            ..once("job", 0)
        })
        .await;
        office.diary.lock().unwrap().fails = 9;
        office.live(1).await;
        let first = office.execution(&id("job", 0)).await;
        office.scheduler.redrive(1).await;
        // The second failure, whose worker died before it could bury it.
        office.live_without_burying().await;
        let again = office.execution(&id("job", 0)).await;
        assert_eq!((again.status, again.attempt), (ExecutionStatus::Failed, 2));
        let watched = |lane: Option<String>| lane.is_some_and(|lane| lane.starts_with("watch-"));
        assert!(watched(again.due_shard));
        let weaken = Arc::new(Weaken::guard_on("executions").without("attempt = :attempt"));
        let _plan = weak.then(|| office.cloud().tap().install(weaken.clone()));
        // The stalled sweeper of the first failure goes on.
        office.scheduler.bury(&first).await.unwrap();
        let lane = office.execution(&id("job", 0)).await.due_shard;
        assert_eq!(watched(lane), !weak, "whether anybody will look after it");
    }
}

#[tokio::test]
async fn without_the_plan_a_paused_job_starts() {
    let actors = claimer(desks(every("job", HOUR)), "worker");
    let actors = changer(actors, "pauser", Change::Pause);
    let checked = actors.check(|desk, told| async move {
        match told[0].1.as_str() {
            "begins 1" if desk.before("pauser", "worker") => {
                Err("began after the pause".to_owned())
            }
            _ => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("jobs").without("schedule_version = :version");
    breaks(checked, weaken, "began after the pause").await;
}

#[tokio::test]
async fn without_the_status_of_the_job_a_cancelled_one_is_tried_again() {
    let failed_once = || async {
        let desk = desk(once("job", HOUR)).await;
        desk.office.diary.lock().unwrap().fails = 1;
        assert_eq!(desk.work("w").await, "retrying");
        desk.office.advance(MINUTE);
        desk
    };
    let actors = claimer(Interleave::of(failed_once), "worker");
    let actors = changer(actors, "canceller", Change::Cancel);
    let checked = actors.check(|desk, told| async move {
        match told[0].1.as_str() {
            "begins 2" if desk.before("canceller", "worker") => {
                Err("began after the cancellation".to_owned())
            }
            _ => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("jobs").without("#status <> :cancelled");
    breaks(checked, weaken, "began after the cancellation").await;
}

#[tokio::test]
async fn without_the_place_two_executions_run_at_once() {
    let weaken = Weaken::guard_on("jobs").without("attribute_not_exists(running_execution)");
    breaks(shortly(starts(Overlap::Skip)), weaken, "has the place").await;
}

#[tokio::test]
async fn without_who_runs_one_is_skipped_though_nobody_ran() {
    let begun = || async {
        let mut desk = two_due(Overlap::Skip).await;
        desk.run = Some(desk.claim("one").await);
        desk
    };
    let actors = Interleave::of(begun)
        .actor("one", |desk| async move {
            let did = desk.complete().await;
            desk.through("one");
            did
        })
        .actor("other", |desk| async move {
            let did = desk.try_claim("other", true).await;
            desk.through("other");
            did
        });
    let checked = actors.check(|desk, told| async move {
        match told[1].1.as_str() {
            "skipped" if desk.before("one", "other") => Err("skipped after the end".to_owned()),
            _ => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("jobs").containing("running_execution = :running");
    breaks(checked, weaken, "skipped after the end").await;
}

#[tokio::test]
async fn without_who_runs_one_waits_for_ever() {
    let weaken = Weaken::guard_on("jobs").containing("running_execution = :running");
    let actors = desks_end_well(end_and_start(Overlap::QueueOne));
    breaks(actors, weaken, "Waiting for ever").await;
}

#[tokio::test]
async fn without_who_waits_the_end_forgets_them() {
    let weaken = Weaken::guard_on("jobs")
        .containing("running_execution = :me")
        .without("attribute_not_exists(waiting_execution)");
    let actors = desks_end_well(end_and_start(Overlap::QueueOne));
    breaks(actors, weaken, "Waiting for ever").await;
}

// Ending.

#[tokio::test]
async fn without_the_fence_a_stale_attempt_completes() {
    let actors = completer(taker(claimed(once("job", HOUR))));
    let weaken = Weaken::guard_on("executions").containing("lease_owner = :me");
    breaks(desks_end_well(actors), weaken, "completed twice").await;
}

/// Owner and attempt each hold what the other holds: an attempt has one owner. The owner is there to
/// be recognized by when an answer was lost; this shows that the attempt alone is a fence.
#[tokio::test]
async fn without_the_owner_the_attempt_still_fences() {
    let weaken = Arc::new(Weaken::guard_on("executions").without("lease_owner = :me"));
    let under = Arc::clone(&weaken);
    let actors = completer(taker(claimed(once("job", HOUR))));
    let explored = desks_end_well(actors)
        .under(move || Arc::clone(&under))
        .run()
        .await
        .unwrap();
    assert!(weaken.applied() > 0);
    assert_eq!(explored.seen.len(), 2, "{:?}", explored.seen);
}

#[tokio::test]
async fn without_the_status_a_failed_run_is_completed_afterwards() {
    let mut desk = desk(NewJob {
        max_attempts: 1,
        ..once("job", HOUR)
    })
    .await;
    desk.run = Some(desk.claim("w").await);
    let scheduler = &desk.office.scheduler;
    scheduler.fail(desk.begun(), "too slow").await.unwrap();
    assert_eq!(
        scheduler.complete(desk.begun()).await.unwrap(),
        Finish::Stale
    );
    let weaken = Arc::new(Weaken::guard_on("executions").without("#status = :in_progress"));
    let installed = desk.office.cloud().tap().install(weaken.clone());
    assert_eq!(
        scheduler.complete(desk.begun()).await.unwrap(),
        Finish::Done
    );
    drop(installed);
    assert!(weaken.applied() > 0);
    let status = desk.office.status(&id("job", HOUR)).await;
    assert_eq!(
        status,
        ExecutionStatus::Completed,
        "and it is in the dead-letter queue"
    );
}

#[tokio::test]
async fn without_the_fence_a_dead_worker_breathes_on_anothers_lease() {
    let actors = taker(claimed(once("job", HOUR))).actor("first", |desk| async move {
        let beat = desk.late.heartbeat(desk.begun()).await.unwrap();
        format!("{beat:?}").to_lowercase()
    });
    let checked = actors.check(|_, told| async move {
        match (told[0].1.as_str(), told[1].1.as_str()) {
            ("completed", "done") => Err("a heartbeat of nobody".to_owned()),
            _ => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("executions").containing("lease_owner = :me");
    breaks(checked, weaken, "a heartbeat of nobody").await;
}

// Repairing.

#[tokio::test]
async fn without_what_was_seen_two_sweepers_both_send() {
    let lost = || async {
        let desk = desk(once("job", HOUR)).await;
        desk.office.advance(5 * MINUTE);
        desk
    };
    let sweeper = |actors: Desks, name: &'static str| {
        actors.actor(name, |desk| async move {
            let swept = desk.office.scheduler.sweep(&id("job", HOUR)).await.unwrap();
            format!("{swept:?}").to_lowercase()
        })
    };
    let actors = sweeper(sweeper(Interleave::of(lost), "one"), "other");
    let checked = actors.check(|_, told| async move {
        let sent = told.iter().filter(|(_, did)| did == "sent").count();
        match sent {
            0 | 1 => Ok(label(&told)),
            _ => Err(format!("{sent} messages")),
        }
    });
    let weaken = Weaken::guard_on("executions").without("due_at = :due");
    breaks(checked, weaken, "2 messages").await;
}

/// It has failed and is not buried; one buries it while another, who has the message already, makes
/// it run again.
#[tokio::test]
async fn without_its_guard_burying_hides_what_runs_again() {
    let failed = || async {
        let office = due_office(NewJob {
            max_attempts: 1,
            ..once("job", HOUR)
        })
        .await;
        office.scan().await;
        office.diary.lock().unwrap().fails = 1;
        office.work_all("w").await;
        // As if its worker had died between the message and the mark.
        let buried = office.execution(&id("job", HOUR)).await;
        office.unbury(&buried).await;
        office.advance(5 * MINUTE);
        office
    };
    let actors: Offices = Interleave::of(failed)
        .actor("sweeper", |office| async move {
            let swept = office.scheduler.sweep(&id("job", HOUR)).await.unwrap();
            format!("{swept:?}").to_lowercase()
        })
        .actor("operator", |office| async move {
            office.scheduler.redrive(1).await.len().to_string()
        });
    let weaken = Weaken::guard_on("executions").containing("#status = :failed");
    let checked = actors.check(|office, told| async move {
        office.invariants("job").await?;
        Ok(label(&told))
    });
    breaks(checked, weaken, "nobody will look at it").await;
}

#[tokio::test]
async fn without_its_guard_a_second_redrive_runs_it_twice() {
    let failed = || async {
        let office = due_office(NewJob {
            max_attempts: 1,
            ..once("job", HOUR)
        })
        .await;
        office.diary.lock().unwrap().fails = 1;
        office.scan().await;
        office.work_all("w").await;
        let buried = office.execution(&id("job", HOUR)).await;
        office.unbury(&buried).await;
        office.advance(5 * MINUTE);
        // Buried twice: two messages for one failure.
        office.sweep().await;
        office
    };
    let actors: Offices = Interleave::of(failed)
        .actor("one", |office| async move {
            office.scheduler.redrive(1).await;
            let message = office.receive().await.unwrap();
            let worker = office.worker("worker");
            word(&office.handle(&worker, &message).await)
        })
        .actor("other", |office| async move {
            office.scheduler.redrive(1).await.len().to_string()
        });
    let weaken = Weaken::guard_on("executions").containing("#status = :failed AND attempt");
    let weaken = Arc::new(weaken);
    let under = Arc::clone(&weaken);
    let actors = offices_end_well(actors).under(move || Arc::clone(&under));
    // The other reads that it has failed; one makes it run again, and it runs to its end; then the
    // other makes it run again.
    let order = "other other one one one one one one one one one one other other other";
    let broken = actors.replay(&order.parse().unwrap()).await.unwrap_err();
    assert!(weaken.applied() > 0);
    assert!(broken.why.contains("was completed and is"), "{broken:?}");
}

async fn failed_office() -> Office {
    let office = due_office(NewJob {
        max_attempts: 1,
        ..once("job", HOUR)
    })
    .await;
    office.diary.lock().unwrap().fails = 1;
    office.scan().await;
    office.work_all("w").await;
    office
}

/// Its job is cancelled. One operator has read that before, and makes it run again; the other one sees that it is
/// cancelled, and takes it out of the lane.
#[tokio::test]
async fn without_the_lane_what_runs_again_is_taken_out_of_the_index() {
    let operator = |actors: Offices, name: &'static str| {
        actors.actor(name, |office| async move {
            let redriven = office.scheduler.redrive_one(&id("job", HOUR)).await;
            redriven.unwrap().to_string()
        })
    };
    let actors = operator(operator(Interleave::of(failed_office), "one"), "other");
    let actors = office_changer(actors, "canceller", Change::Cancel);
    let checked = actors.check(|office, told| async move {
        office.invariants("job").await?;
        Ok(label(&told))
    });
    let weaken = Weaken::guard_on("executions").containing("due_shard = :dead");
    breaks(checked, weaken, "nobody will look at it").await;
}

/// What was taken out of the lane is buried once more, by a write that was long on its way.
#[tokio::test]
async fn without_the_lane_a_late_burial_puts_it_half_into_the_index() {
    let office = failed_office().await;
    let failed = office.execution(&id("job", HOUR)).await;
    let scheduler = &office.scheduler;
    let cancelled = scheduler.change_job("acme/job", &Change::Cancel, "c");
    cancelled.await.unwrap();
    let redriven = scheduler.redrive_one(&failed.execution_id).await;
    assert!(!redriven.unwrap());
    scheduler.bury(&failed).await.unwrap();
    office.invariants("job").await.unwrap();
    let weaken = Arc::new(Weaken::guard_on("executions").without("attribute_exists(due_shard)"));
    let installed = office.cloud().tap().install(weaken.clone());
    scheduler.bury(&failed).await.unwrap();
    drop(installed);
    assert!(weaken.applied() > 0);
    let broken = office.invariants("job").await.unwrap_err();
    assert!(broken.contains("half in the index"), "{broken}");
}

#[tokio::test]
async fn without_the_version_one_of_two_changes_is_lost() {
    let other = Schedule::Every { every_ms: 2 * HOUR };
    let actors = office_changer(due(every("job", HOUR)), "pauser", Change::Pause);
    let actors = office_changer(actors, "planner", Change::Reschedule(other));
    let checked = actors.check(|office, told| async move {
        let job = office.scheduler.known_job("acme/job").await.unwrap();
        match job.schedule_version {
            3 => Ok(label(&told)),
            version => Err(format!("two changes, version {version}")),
        }
    });
    let weaken = Weaken::guard_on("jobs").without("schedule_version = :seen");
    breaks(checked, weaken, "two changes, version 2").await;
}

/// A one-off is paused while it begins: the pause is confirmed, and the run goes on.
#[tokio::test]
async fn without_looking_at_the_run_a_one_off_is_paused_that_has_begun() {
    let actors = claimer(desks(once("job", HOUR)), "worker");
    let actors = changer(actors, "pauser", Change::Pause);
    let checked = actors.check(|desk, told| async move {
        desk.office.invariants("job").await?;
        let begun = told[0].1.starts_with("begins");
        match begun && told[1].1 == "done" {
            true => Err("paused, though it has begun".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("executions")
        .containing("attempt = :none AND #status IN (:pending, :enqueued)");
    breaks(checked, weaken, "though it has begun").await;
}

/// The only run is dispatched while a pause is under way: the version stays, the status does not.
#[tokio::test]
async fn without_the_status_a_pause_takes_no_notice_of_a_dispatch() {
    let checked = office_changer(
        scanner(due(once("job", HOUR)), "scanner"),
        "pauser",
        Change::Pause,
    )
    .actor("worker", |office: Arc<Office>| async move {
        let row = office
            .scheduler
            .read_execution(&id("job", HOUR))
            .await
            .unwrap();
        let message = Message {
            says: row.as_ref().map(Into::into),
            receipt: "a copy".to_owned(),
        };
        word(&office.handle(&office.worker("worker"), &message).await)
    })
    .check(|office, told| async move {
        let job = office.scheduler.known_job("acme/job").await.unwrap();
        match office.starts().len() == 1 && job.status == JobStatus::Paused {
            true => Err("paused, though it has begun".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("jobs").without("#status = :was");
    breaks(checked, weaken, "though it has begun").await;
}

/// The plan changes while somebody is about to wait under the old one.
#[tokio::test]
async fn without_the_plan_one_waits_whom_the_plan_no_longer_has() {
    let begun = Interleave::of(|| async {
        let mut desk = two_due(Overlap::QueueOne).await;
        desk.run = Some(desk.claim("one").await);
        desk
    });
    let waiting = begun.actor("other", |desk: Arc<Desk>| async move {
        desk.try_claim("other", true).await
    });
    let actors = changer(waiting, "pauser", Change::Pause);
    let checked = actors.check(|desk, told| async move {
        let job = desk.office.scheduler.known_job("acme/job").await.unwrap();
        match job.waiting_execution {
            Some(waits) => Err(format!("{waits} waits for ever")),
            None => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("jobs").without("schedule_version = :version");
    breaks(checked, weaken, "waits for ever").await;
}

/// A heartbeat that arrives late would give back a part of the lease.
#[tokio::test]
async fn without_the_time_a_late_heartbeat_shortens_the_lease() {
    for weak in [false, true] {
        let desk = desk(once("job", HOUR)).await;
        let office = &desk.office;
        let run = desk.claim("w").await;
        office.advance(10 * SECOND);
        let late = office.scheduler.on(office
            .cloud()
            .with_clock(cloud::Clock::manual(office.now())));
        office.advance(10 * SECOND);
        office.scheduler.heartbeat(&run).await.unwrap();
        let weaken = Arc::new(Weaken::guard_on("executions").without("lease_expires_at < :until"));
        let _plan = weak.then(|| office.cloud().tap().install(weaken.clone()));
        late.heartbeat(&run).await.unwrap();
        let lease = office.execution(&id("job", HOUR)).await.lease_expires_at;
        let kept = lease == Some(office.now() + 30 * SECOND);
        assert_eq!(kept, !weak);
    }
}
