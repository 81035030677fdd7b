//! `CrashSweep`, on a toy table.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use chaos::{CrashSweep, Weaken};
use cloud::{Cloud, Guarded};
use std::sync::Arc;
use std::time::Duration;

/// Two writes that belong together: moves one from `a` to `b`.
async fn transfer(cloud: &Cloud) {
    toy::write(cloud, "a", 0).await.unwrap();
    toy::write(cloud, "b", 1).await.unwrap();
}

async fn one_in_a() -> Cloud {
    let cloud = toy::empty().await;
    toy::write(&cloud, "a", 1).await.unwrap();
    toy::write(&cloud, "b", 0).await.unwrap();
    cloud
}

async fn nothing_is_lost(cloud: Arc<Cloud>) -> Result<(), String> {
    let (a, b) = (toy::peek(&cloud, "a").await, toy::peek(&cloud, "b").await);
    match a.zip(b) {
        Some((a, b)) if a + b == 1 => Ok(()),
        _ => Err(format!("a is {a:?} and b is {b:?}")),
    }
}

#[tokio::test]
async fn crash_sweep_finds_a_two_step_write_without_recovery() {
    let lost = CrashSweep::of(one_in_a)
        .action("mover", |cloud| async move { transfer(&cloud).await })
        .check(nothing_is_lost)
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.point, "died after call 1 (PutItem counters)");
    assert_eq!(lost.why, "a is Some(0) and b is Some(0)");
    assert_eq!(
        lost.calls,
        ["mover: PutItem counters → ok", "— the process dies here —"]
    );
    assert_eq!(lost.survived, 1);
    let story = format!("{lost:?}");
    assert!(
        story.starts_with("died after call 1 (PutItem counters): a is Some(0)"),
        "{story}"
    );
}

#[tokio::test]
async fn a_recovery_that_finishes_the_work_survives_every_death() {
    let swept = CrashSweep::of(one_in_a)
        .action("mover", |cloud| async move { transfer(&cloud).await })
        .recovery(|cloud| async move {
            if toy::read(&cloud, "a").await.unwrap() == Some(0) {
                toy::write(&cloud, "b", 1).await.unwrap();
            }
        })
        .check(nothing_is_lost)
        .run()
        .await
        .unwrap();
    assert_eq!(
        swept.points,
        [
            "before call 1: PutItem counters",
            "after call 1: PutItem counters",
            "before call 2: PutItem counters",
            "after call 2: PutItem counters",
        ]
    );
}

#[tokio::test]
async fn the_dead_run_no_more_code() {
    // The action would repair what it finds broken, if it could still run.
    let lost = CrashSweep::of(one_in_a)
        .action("mover", |cloud: Arc<Cloud>| async move {
            if toy::write(&cloud, "a", 0).await.is_err()
                || toy::write(&cloud, "b", 1).await.is_err()
            {
                toy::write(&cloud.beside_tap(), "a", 1).await.unwrap();
            }
        })
        .check(nothing_is_lost)
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.point, "died after call 1 (PutItem counters)");
}

#[tokio::test]
async fn an_action_that_is_wrong_without_a_crash_is_told_so() {
    let wrong = CrashSweep::of(one_in_a)
        .action("thief", |cloud: Arc<Cloud>| async move {
            toy::peek(&cloud, "a").await
        })
        .check(|_| async { Err("never right".to_owned()) })
        .run()
        .await
        .unwrap_err();
    assert_eq!(
        (wrong.point.as_str(), wrong.why.as_str()),
        ("without a crash", "never right")
    );
}

#[tokio::test]
async fn calls_under_way_when_the_process_dies_are_carried_out() {
    let swept = CrashSweep::of(toy::empty)
        .action("joiner", |cloud: Arc<Cloud>| async move {
            let _ = tokio::join!(toy::write(&cloud, "x", 1), toy::write(&cloud, "y", 1));
        })
        .check(|cloud| async move {
            // Of two that leave together, the first has left before the second one's death.
            let (x, y) = (toy::peek(&cloud, "x").await, toy::peek(&cloud, "y").await);
            if y.is_some() && x.is_none() {
                Err("y without x".to_owned())
            } else {
                Ok(())
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 4);
}

#[tokio::test]
async fn panics_of_action_recovery_and_check_name_the_point() {
    let sweep = || CrashSweep::of(one_in_a);
    let panicked = sweep()
        .action("mover", |cloud| async move {
            toy::read(&cloud, "a").await.unwrap();
            panic!("at the end")
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(
        (panicked.point.as_str(), panicked.why.as_str()),
        ("without a crash", "mover panicked: at the end")
    );
    let panicked = sweep()
        .action("mover", |cloud| async move { transfer(&cloud).await })
        .recovery(|_| async { panic!("clumsy") })
        .run()
        .await
        .unwrap_err();
    assert!(
        panicked.point.starts_with("died before call 1"),
        "{panicked}"
    );
    assert_eq!(panicked.why, "the recovery panicked: clumsy");
    let panicked = sweep()
        .action("mover", |cloud| async move { transfer(&cloud).await })
        .check(|_| async { panic!("strict") })
        .run()
        .await
        .unwrap_err();
    assert_eq!(panicked.why, "the check panicked: strict");
}

#[tokio::test]
async fn an_action_that_does_not_end_is_an_error() {
    let endless = CrashSweep::of(toy::zero)
        .action("reader", |cloud: Arc<Cloud>| async move {
            loop {
                toy::read(&cloud, "a").await.unwrap();
            }
        })
        .at_most(3)
        .run()
        .await
        .unwrap_err();
    assert!(endless.why.contains("more than 3 calls"), "{endless}");
    let stuck = CrashSweep::of(toy::zero)
        .action("sleeper", |_| std::future::pending::<()>())
        .patience(Duration::from_millis(50))
        .run()
        .await
        .unwrap_err();
    assert!(
        stuck
            .why
            .starts_with("sleeper neither finished nor came to call 1"),
        "{stuck}"
    );
}

#[tokio::test]
async fn crash_sweep_under_a_weakened_guard_finds_what_the_guard_prevents() {
    // The client asks again after a crash; only the guard keeps the second time from counting.
    let sweep = || {
        CrashSweep::of(toy::zero)
            .action("client", |cloud: Arc<Cloud>| async move {
                count_once(&cloud).await
            })
            .recovery(|cloud| async move { count_once(&cloud).await })
            .check(|cloud| async move {
                match toy::peek(&cloud, "a").await {
                    Some(1) => Ok(()),
                    other => Err(format!("counted once, and the counter is at {other:?}")),
                }
            })
    };
    assert_eq!(sweep().run().await.unwrap().points.len(), 2);
    let weaken = Arc::new(Weaken::guard_on("counters"));
    let plan = Arc::clone(&weaken);
    let broken = sweep()
        .under(move || Arc::clone(&plan))
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.point, "died after call 1 (UpdateItem counters if)");
    assert_eq!(broken.why, "counted once, and the counter is at Some(2)");
    assert!(weaken.applied() > 0);
}

/// From zero to one, if nobody did.
async fn count_once(cloud: &Cloud) {
    let counted = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S("a".into()))
        .update_expression("SET amount = amount + :one")
        .condition_expression("amount = :zero")
        .expression_attribute_values(":one", N("1".into()))
        .expression_attribute_values(":zero", N("0".into()));
    let _ = counted.send().await.guarded().unwrap();
}

#[tokio::test]
async fn an_action_that_never_dies_under_its_name_has_shown_nothing() {
    let vacuous = CrashSweep::of(one_in_a)
        .action("spawner", |cloud: Arc<Cloud>| async move {
            let work = async move { transfer(&cloud).await };
            tokio::spawn(work).await.unwrap();
        })
        .run()
        .await
        .unwrap_err();
    assert!(vacuous.why.contains("it never died"), "{}", vacuous.why);
}
