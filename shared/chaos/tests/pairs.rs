//! `Pairs`, on a toy table, with planted bugs.
#![allow(clippy::unwrap_used)]

mod toy;

use chaos::Pairs;
use cloud::Cloud;
use std::sync::Arc;

/// Reads, then writes one more without looking: fine alone, and it loses an update beside another.
async fn blindly(cloud: Arc<Cloud>) {
    let seen = toy::read(&cloud, "a").await.unwrap().unwrap();
    toy::write(&cloud, "a", seen + 1).await.unwrap();
}

/// The same under a guard, tried again when it was overtaken.
async fn guarded(cloud: Arc<Cloud>) {
    loop {
        let seen = toy::read(&cloud, "a").await.unwrap().unwrap();
        if toy::swap(&cloud, "a", seen, seen + 1).await.unwrap() {
            return;
        }
    }
}

async fn counted_twice(cloud: Arc<Cloud>) -> Result<i64, String> {
    match toy::peek(&cloud, "a").await {
        Some(2) => Ok(2),
        other => Err(format!("the counter is at {other:?}")),
    }
}

#[tokio::test]
async fn every_pair_is_run_in_every_order_and_an_action_meets_itself() {
    let met = Pairs::of(toy::zero)
        .action("one", guarded)
        .action("two", guarded)
        .check(counted_twice)
        .run()
        .await
        .unwrap();
    let pairs: Vec<_> = met.orders.keys().map(String::as_str).collect();
    assert_eq!(pairs, ["one × one", "one × two", "two × two"]);
    assert!(met.orders.values().all(|orders| *orders == 6), "{met:?}");
    assert!(met.seen.values().all(|seen| seen["2"] == 6), "{met:?}");
}

#[tokio::test]
async fn an_action_that_breaks_another_is_found() {
    let broken = Pairs::of(toy::zero)
        .action("guarded", guarded)
        .action("blind", blindly)
        .check(counted_twice)
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.pair, "guarded × blind");
    assert!(broken.to_string().contains("the counter is at Some(1)"));
}

/// Takes the counter from zero to one, or from one to two, without looking again.
async fn one_step(cloud: Arc<Cloud>) {
    let seen = toy::read(&cloud, "a").await.unwrap().unwrap();
    if seen == 0 {
        toy::write(&cloud, "a", 1).await.unwrap();
    } else {
        toy::write(&cloud, "a", 7).await.unwrap();
    }
}

#[tokio::test]
async fn an_action_that_breaks_only_itself_is_found() {
    let broken = Pairs::of(toy::zero)
        .reading("look", |cloud| async move { toy::read(&cloud, "a").await })
        .action("step", one_step)
        .check(|cloud| async move {
            match toy::peek(&cloud, "a").await {
                Some(0 | 1) => Ok(()),
                other => Err(format!("the counter is at {other:?}")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.pair, "step × step");
}

#[tokio::test]
async fn an_action_with_nothing_to_do_is_found() {
    let broken = Pairs::of(toy::zero)
        .action("idle", |cloud| async move { toy::read(&cloud, "a").await })
        .action("guarded", guarded)
        .check(|_| async { Ok(()) })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.pair, "idle");
    assert!(broken.to_string().contains("writes nothing"), "{broken}");
}
