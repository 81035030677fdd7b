//! Every order of the calls of two or three actions, each on a fresh cloud.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Explored, Interleave, World};
use office::cast::*;
use office::*;
use scheduler::change_job::Change;
use scheduler::domain::ExecutionStatus;
use scheduler::{Claimed, Enqueued, NewJob, Overlap, Schedule};
use std::sync::Arc;

async fn explore_desks(actors: Desks) -> Explored {
    desks_end_well(actors).run().await.unwrap()
}

async fn explore_offices(actors: Offices) -> Explored {
    offices_end_well(actors).run().await.unwrap()
}

async fn explore_shortly(actors: Desks) -> Explored {
    shortly(actors).run().await.unwrap()
}

#[track_caller]
fn assert_ends(explored: &Explored, ends: &[&str]) {
    let seen: Vec<_> = explored.seen.keys().map(String::as_str).collect();
    assert_eq!(seen, ends, "{explored:?}");
}

// Scanners.

#[tokio::test]
async fn two_scanners_enqueue_an_execution_once_and_materialize_the_next_once() {
    let actors = scanner(scanner(due(every("job", HOUR)), "one"), "other");
    let explored = actors
        .check(|office, told| async move {
            let mut messages = 0;
            while office.receive().await.is_some() {
                messages += 1;
            }
            if messages != 1 {
                return Err(format!("{messages} messages"));
            }
            let all = office.invariants("job").await?;
            if all.len() != 2 {
                return Err(format!("{all:?}"));
            }
            Ok(label(&told))
        })
        .run()
        .await
        .unwrap();
    assert_ends(
        &explored,
        &["one before, other sent", "one sent, other before"],
    );
}

/// A message from before the plan changed finds a row that is PENDING again. Whoever started it
/// there would end the series: dispatching is what materializes the next one.
#[tokio::test]
async fn a_worker_with_an_old_message_starts_nothing_that_was_not_dispatched() {
    let setup = || async {
        let desk = desk(every("job", HOUR)).await;
        // Undispatched: as if it had been replaced by one of a newer plan.
        let scheduler = &desk.office.scheduler;
        let beside = desk.office.cloud().beside_tap();
        beside
            .dynamodb()
            .update_item()
            .table_name(beside.names().table("executions"))
            .key(
                "bucket",
                cloud::item::s(desk.office.execution(&id("job", HOUR)).await.bucket),
            )
            .key("execution_id", cloud::item::s(id("job", HOUR)))
            .update_expression("SET #status = :pending, due_shard = :lane, due_at = :due")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":pending", cloud::item::s("PENDING"))
            .expression_attribute_values(
                ":lane",
                cloud::item::s(scheduler::items::start_lane("acme/job")),
            )
            .expression_attribute_values(":due", cloud::item::n(desk.office.now()))
            .send()
            .await
            .unwrap();
        let _ = scheduler;
        desk
    };
    let actors: Desks = worker(Interleave::of(setup), "worker");
    let actors = actors.actor("scanner", |desk| async move {
        let found = desk
            .office
            .scheduler
            .enqueue(&id("job", HOUR))
            .await
            .unwrap();
        assert!(matches!(found, Enqueued::Sent { .. }), "{found:?}");
        "sent".to_owned()
    });
    let explored = actors
        .check(|desk, told| async move {
            let office = &desk.office;
            office.work_all("life").await;
            let done = office.completions();
            if done != [id("job", HOUR)] {
                return Err(format!("{done:?}"));
            }
            Ok(label(&told))
        })
        .run()
        .await
        .unwrap();
    assert_ends(
        &explored,
        &[
            "worker completed, scanner sent",
            "worker echo, scanner sent",
        ],
    );
}

#[tokio::test]
async fn a_dispatch_and_a_pause_leave_nothing_that_starts_later() {
    let actors = scanner(due(every("job", HOUR)), "scanner");
    let explored = explore_offices(office_changer(actors, "pauser", Change::Pause)).await;
    assert_ends(
        &explored,
        &[
            "scanner calledoff, pauser done",
            "scanner sent, pauser done",
        ],
    );
}

#[tokio::test]
async fn a_dispatch_and_a_reschedule_leave_one_plan() {
    let other = Schedule::Every { every_ms: 2 * HOUR };
    let actors = scanner(due(every("job", HOUR)), "scanner");
    let actors = office_changer(actors, "planner", Change::Reschedule(other));
    let explored = explore_offices(actors).await;
    assert_ends(
        &explored,
        &[
            "scanner calledoff, planner done",
            "scanner sent, planner done",
        ],
    );
}

#[tokio::test]
async fn a_dispatch_and_a_cancellation_leave_nothing_planned() {
    let actors = scanner(due(every("job", HOUR)), "scanner");
    let actors = office_changer(actors, "canceller", Change::Cancel);
    let explored = explore_offices(actors).await;
    assert_ends(
        &explored,
        &[
            "scanner calledoff, canceller done",
            "scanner sent, canceller done",
        ],
    );
}

#[tokio::test]
async fn two_changes_of_plan_are_made_one_after_the_other() {
    let actors = office_changer(due(every("job", HOUR)), "pauser", Change::Pause);
    let other = Schedule::Every { every_ms: 2 * HOUR };
    let actors = office_changer(actors, "planner", Change::Reschedule(other.clone()));
    let explored = actors
        .check(move |office, told| {
            let other = other.clone();
            async move {
                office.invariants("job").await?;
                let job = office.scheduler.known_job("acme/job").await.unwrap();
                if (job.schedule_version, &job.schedule) != (3, &other) {
                    return Err(format!("{job:?}"));
                }
                Ok(format!(
                    "{}, next {}",
                    label(&told),
                    job.next_fire_time.is_some()
                ))
            }
        })
        .run()
        .await
        .unwrap();
    assert_ends(&explored, &["pauser done, planner done, next false"]);
}

#[tokio::test]
async fn a_job_created_twice_at_once_is_one_job() {
    let create = |office: Arc<Office>| async move {
        let created = office.scheduler.create_job(once("job", 0)).await;
        created.map_or_else(|error| error.to_string(), |_| "created".to_owned())
    };
    let actors: Offices = Interleave::of(open);
    let explored = explore_offices(actors.actor("one", create).actor("other", create)).await;
    assert_ends(&explored, &["one created, other created"]);
    assert!(explored.schedules > 10, "{explored:?}");
}

#[tokio::test]
async fn a_creation_inside_the_lookahead_and_a_scanner_send_it_once_or_the_row_tells() {
    let actors: Offices = Interleave::of(open);
    let actors = actors.actor("creator", |office| async move {
        office.scheduler.create_job(once("job", 0)).await.unwrap();
        "created".to_owned()
    });
    let actors = actors.actor("scanner", |office| async move {
        let found = office.scheduler.enqueue(&id("job", 0)).await.unwrap();
        match found {
            Enqueued::Sent { .. } => "sent".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    });
    let explored = explore_offices(actors).await;
    assert_ends(
        &explored,
        &[
            "creator created, scanner before",
            "creator created, scanner sent",
        ],
    );
}

// Workers.

#[tokio::test]
async fn one_message_delivered_to_two_workers_is_completed_once() {
    let actors = worker(worker(desks(once("job", HOUR)), "one"), "other");
    let explored = explore_desks(actors).await;
    assert_ends(
        &explored,
        &[
            "one completed, other echo",
            "one completed, other held",
            "one echo, other completed",
            "one held, other completed",
        ],
    );
}

#[tokio::test]
async fn of_three_workers_one_begins() {
    let actors = claimer(desks(once("job", HOUR)), "one");
    let actors = claimer(claimer(actors, "two"), "three");
    let explored = explore_shortly(actors).await;
    assert_ends(
        &explored,
        &[
            "one begins 1, two held, three held",
            "one held, two begins 1, three held",
            "one held, two held, three begins 1",
        ],
    );
    assert_eq!(explored.schedules, 90);
}

/// Two who dispatch, and one who takes what it finds in the queue, or nothing.
#[tokio::test]
async fn two_scanners_and_a_worker_begin_it_once() {
    let actors = scanner(scanner(due(once("job", HOUR)), "one"), "other");
    let actors = actors.actor("worker", |office| async move {
        let Some(message) = office.receive().await else {
            return "finds nothing".to_owned();
        };
        match office.scheduler.claim(&message, "worker").await.unwrap() {
            Claimed::Run(run) => format!("begins {}", run.execution.attempt),
            other => format!("{other:?}").to_lowercase(),
        }
    });
    let explored = actors
        .check(|office, told| async move {
            office.invariants("job").await?;
            Ok(label(&told))
        })
        .run()
        .await
        .unwrap();
    assert_ends(
        &explored,
        &[
            "one before, other sent, worker begins 1",
            "one before, other sent, worker finds nothing",
            "one sent, other before, worker begins 1",
            "one sent, other before, worker finds nothing",
        ],
    );
}

#[tokio::test]
async fn two_sweepers_and_a_worker_run_it_once() {
    let setup = || async {
        let desk = desk(once("job", HOUR)).await;
        // The message in hand is late: the row says that it was lost.
        desk.office.advance(5 * MINUTE);
        desk
    };
    let sweeper = |actors: Desks, name: &'static str| {
        actors.actor(name, |desk| async move {
            let swept = desk.office.scheduler.sweep(&id("job", HOUR)).await.unwrap();
            format!("{swept:?}").to_lowercase()
        })
    };
    let actors = sweeper(sweeper(Interleave::of(setup), "one"), "other");
    let explored = explore_shortly(claimer(actors, "worker")).await;
    assert_ends(
        &explored,
        &[
            "one before, other before, worker begins 1",
            "one before, other sent, worker begins 1",
            "one sent, other before, worker begins 1",
        ],
    );
}

#[tokio::test]
async fn a_cancellation_comes_before_the_start_or_after_it_and_never_between() {
    let actors = worker(desks(once("job", HOUR)), "worker");
    let actors = changer(actors, "canceller", Change::Cancel);
    let checked = actors.check(|desk, told| async move {
        ends_well(&desk.office, "job", 2).await?;
        let started = !desk.office.starts().is_empty();
        let called_off = desk.office.status(&id("job", HOUR)).await == ExecutionStatus::Cancelled;
        if started == called_off {
            return Err(format!("started {started}, called off {called_off}"));
        }
        Ok(label(&told))
    });
    let explored = checked.run().await.unwrap();
    assert_ends(
        &explored,
        &[
            "worker calledoff, canceller done",
            "worker completed, canceller done",
        ],
    );
}

#[tokio::test]
async fn a_pause_comes_before_the_start_or_after_it() {
    let actors = worker(desks(every("job", HOUR)), "worker");
    let explored = explore_desks(changer(actors, "pauser", Change::Pause)).await;
    assert_ends(
        &explored,
        &[
            "worker calledoff, pauser done",
            "worker completed, pauser done",
        ],
    );
}

#[tokio::test]
async fn a_completion_and_a_claim_of_the_expired_lease_complete_it_once() {
    let actors = taker(claimed(once("job", HOUR)));
    let explored = actors
        .actor("first", |desk| async move { desk.complete().await })
        .check(|desk, told| async move {
            ends_well(&desk.office, "job", 2).await?;
            Ok(label(&told))
        })
        .run()
        .await
        .unwrap();
    assert_ends(
        &explored,
        &[
            "second completed, first stale",
            "second echo, first completed",
        ],
    );
}

#[tokio::test]
async fn a_failure_and_a_claim_of_the_expired_lease_leave_one_attempt_in_charge() {
    let explored = taker(claimed(once("job", HOUR)))
        .actor("first", |desk| async move {
            let failed = desk
                .office
                .scheduler
                .fail(desk.begun(), "no")
                .await
                .unwrap();
            format!("{:?}", failed.0).to_lowercase()
        })
        .check(|desk, told| async move {
            ends_well(&desk.office, "job", 3).await?;
            Ok(label(&told))
        })
        .run()
        .await
        .unwrap();
    // If the failure came first, the pause before the next attempt has passed by the other's clock.
    assert_ends(
        &explored,
        &[
            "second completed, first done",
            "second completed, first stale",
        ],
    );
}

#[tokio::test]
async fn a_heartbeat_and_a_claim_of_the_expired_lease_leave_one_owner() {
    let explored = taker(claimed(once("job", HOUR)))
        .actor("first", |desk| async move {
            // By the same clock as the other's: a worker that was asleep.
            let beat = desk.late.heartbeat(desk.begun()).await.unwrap();
            format!("{beat:?}").to_lowercase()
        })
        .check(|desk, told| async move {
            let status = desk.office.status(&id("job", HOUR)).await;
            desk.office.invariants("job").await?;
            Ok(format!("{}, {status:?}", label(&told)))
        })
        .run()
        .await
        .unwrap();
    assert_ends(
        &explored,
        &[
            "second completed, first stale, Completed",
            "second held, first done, InProgress",
        ],
    );
}

#[tokio::test]
async fn a_worker_and_a_sweeper_of_a_dead_one_run_it_once() {
    let explored = taker(claimed(once("job", HOUR)))
        .actor("sweeper", |desk| async move {
            let swept = desk.late.sweep(&id("job", HOUR)).await.unwrap();
            format!("{swept:?}").to_lowercase()
        })
        .check(|desk, told| async move {
            ends_well(&desk.office, "job", 3).await?;
            Ok(label(&told))
        })
        .run()
        .await
        .unwrap();
    assert_ends(
        &explored,
        &[
            "second completed, sweeper before",
            "second completed, sweeper sent",
        ],
    );
}

// One place for all executions of a job.

#[tokio::test]
async fn with_skip_one_of_two_executions_begins() {
    let explored = explore_shortly(starts(Overlap::Skip)).await;
    assert_ends(
        &explored,
        &["one begins 1, other skipped", "one skipped, other begins 1"],
    );
}

#[tokio::test]
async fn with_skip_an_execution_is_skipped_or_begins_after_the_other_has_ended() {
    let explored = explore_desks(end_and_start(Overlap::Skip)).await;
    assert_ends(
        &explored,
        &[
            "one completed, other completed",
            "one completed, other skipped",
        ],
    );
}

#[tokio::test]
async fn with_queue_one_one_of_two_executions_begins_and_the_other_waits() {
    let explored = explore_shortly(starts(Overlap::QueueOne)).await;
    assert_ends(
        &explored,
        &["one begins 1, other waits", "one waits, other begins 1"],
    );
}

/// That the one that waits is not forgotten is what the rounds of life after each order show.
#[tokio::test]
async fn with_queue_one_the_one_that_waits_runs_after_the_other_has_ended() {
    let explored = explore_desks(end_and_start(Overlap::QueueOne)).await;
    assert_ends(
        &explored,
        &[
            "one completed, other completed",
            "one completed, other waits",
        ],
    );
}

/// One ends and hands the place to the one that waits, while a change of plan has the time of that one again.
#[tokio::test]
async fn a_handover_and_a_reschedule_to_the_time_of_the_one_that_waits_leave_the_place_free() {
    let waits = Interleave::of(|| async {
        let mut desk = two_due(Overlap::QueueOne).await;
        desk.run = Some(desk.claim("one").await);
        assert_eq!(desk.try_claim("other", true).await, "waits");
        desk
    });
    let actors = completer(waits).actor("planner", |desk| async move {
        let at = cloud::TEST_EPOCH + 2 * HOUR;
        let same = Change::Reschedule(Schedule::Once { at });
        let scheduler = desk.office.scheduler.clone().keeping_the_queue_at(0);
        let job = scheduler.change_job("acme/job", &same, "planner").await;
        match job.unwrap().running_execution {
            Some(_) => "beside it".to_owned(),
            None => "alone".to_owned(),
        }
    });
    let explored = explore_desks(actors).await;
    assert_ends(
        &explored,
        &[
            "first completed, planner alone",
            "first completed, planner beside it",
        ],
    );
}

#[tokio::test]
async fn with_allow_all_both_begin() {
    let explored = explore_shortly(starts(Overlap::AllowAll)).await;
    assert_ends(&explored, &["one begins 1, other begins 1"]);
    assert_eq!(explored.schedules, 6);
}

#[tokio::test]
async fn two_redrives_of_one_failure_make_it_run_again_once() {
    let setup = || async {
        let office = open().await;
        office.diary.lock().unwrap().fails = 1;
        let job = NewJob {
            max_attempts: 1,
            ..once("job", 0)
        };
        office.scheduler.create_job(job).await.unwrap();
        office.work_all("w").await;
        assert_eq!(office.status(&id("job", 0)).await, ExecutionStatus::Failed);
        office
    };
    let by_queue = |office: Arc<Office>| async move {
        let redriven = office.scheduler.redrive_queue(1).await;
        format!("{}", redriven.len())
    };
    let by_table = |office: Arc<Office>| async move {
        let redriven = office.scheduler.redrive_one(&id("job", 0)).await;
        redriven.unwrap().to_string()
    };
    let actors: Offices = Interleave::of(setup);
    let actors = actors.actor("one", by_queue).actor("other", by_queue);
    let explored = explore_offices(actors).await;
    assert_ends(&explored, &["one 0, other 1", "one 1, other 0"]);
    let actors: Offices = Interleave::of(setup);
    let actors = actors.actor("queue", by_queue).actor("table", by_table);
    let explored = explore_offices(actors).await;
    assert_ends(&explored, &["queue 1, table false", "queue 1, table true"]);
}
