//! Dies before and after every call; then life goes on; then the invariants must hold.
#![allow(clippy::unwrap_used)]

mod shelf;

use chaos::{CrashSweep, Faults, Tokenless};
use shelf::{Shelf, empty, with_rust, with_tagged};
use std::sync::Arc;
use tagging::items::Edge;

/// The invariants, these contents with "rust", and each change published once.
async fn tagged(shelf: Arc<Shelf>, expected: &[&str]) -> Result<(), String> {
    let end = shelf.invariants().await?;
    let ids = shelf.ids().await;
    if ids != expected {
        return Err(format!("{ids:?} are tagged, not {expected:?}"));
    }
    let changes: u64 = end.edges.values().map(|edge| edge.version).sum();
    let events = shelf.events().await;
    if events.len() as u64 != changes {
        return Err(format!("{changes} changes, {events:?} published"));
    }
    Ok(())
}

#[tokio::test]
async fn every_crash_point_of_attach_recovers() {
    let attach = |shelf: Arc<Shelf>| async move { shelf.attach("photo", "rust").await };
    let swept = CrashSweep::of(|| with_rust(2))
        .action("tagger", attach)
        // The client does what clients do: it asks again.
        .recovery(attach)
        .check(|shelf| tagged(shelf, &["photo"]))
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 6, "{:?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_attaching_again_recovers() {
    let setup = || async {
        let shelf = with_tagged(2, &["photo"]).await;
        shelf.detach("photo", "rust").await;
        shelf.later();
        shelf
    };
    let attach = |shelf: Arc<Shelf>| async move { shelf.attach("photo", "rust").await };
    let swept = CrashSweep::of(setup)
        .action("tagger", attach)
        .recovery(attach)
        .check(|shelf| tagged(shelf, &["photo"]))
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 8, "{:?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_detach_recovers() {
    let detach = |shelf: Arc<Shelf>| async move { shelf.detach("photo", "rust").await };
    let swept = CrashSweep::of(|| with_tagged(2, &["other", "photo"]))
        .action("tagger", detach)
        .recovery(detach)
        .check(|shelf| tagged(shelf, &["other"]))
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 6, "{:?}", swept.points);
}

/// Nobody asks again: half done must be as good as not begun.
#[tokio::test]
async fn whoever_dies_while_attaching_or_detaching_and_is_never_seen_again_leaves_nothing_torn() {
    for attaches in [true, false] {
        CrashSweep::of(|| with_tagged(2, &["there"]))
            .action("tagger", move |shelf: Arc<Shelf>| async move {
                if attaches {
                    shelf.attach("photo", "rust").await;
                } else {
                    shelf.detach("there", "rust").await;
                }
            })
            .check(|shelf| async move {
                let end = shelf.invariants().await?;
                let changes: u64 = end.edges.values().map(|edge| edge.version).sum();
                match shelf.events().await.len() as u64 == changes {
                    true => Ok(()),
                    false => Err("an event is missing, or there is one too many".into()),
                }
            })
            .run()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn every_crash_point_of_create_tag_recovers() {
    let create = |shelf: Arc<Shelf>| async move { shelf.create("rust", 2).await };
    let swept = CrashSweep::of(empty)
        .action("curator", create)
        .recovery(create)
        .check(|shelf| async move {
            shelf.attach("photo", "rust").await;
            tagged(shelf, &["photo"]).await
        })
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 2, "{:?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_repair_recovers() {
    let setup = || async {
        let shelf = with_tagged(1, &["a", "b"]).await;
        shelf.lose_row("a", "rust").await;
        let edge = shelf.edge("b", "rust").await;
        shelf
            .plant_row(&Edge {
                created_at: 5,
                ..edge
            })
            .await;
        shelf.miscount("b", 4).await;
        shelf
    };
    let repair = |shelf: Arc<Shelf>| async move { shelf.repair().await };
    let swept = CrashSweep::of(setup)
        .action("repairer", repair)
        .recovery(repair)
        .check(|shelf| tagged(shelf, &["b", "a"]))
        .run()
        .await
        .unwrap();
    assert!(swept.points.len() > 30, "{:?}", swept.points);
}

/// Thirty seeds of bad weather over the same story. A client that gets no answer asks again until it
/// gets one.
#[tokio::test]
async fn lost_requests_lost_answers_and_throttling_change_no_outcome() {
    let mut injected = 0;
    for seed in 0..30 {
        let shelf = Arc::new(with_rust(2).await);
        let tap = shelf.tagging.cloud().tap();
        let tokenless = tap.install(Arc::new(Tokenless));
        let faults = Arc::new(
            Faults::seeded(seed)
                .throttle(0.15)
                .lose_request(0.15)
                .lose_answer(0.15),
        );
        let weather = tap.install(faults.clone());
        for id in ["a", "b", "c"] {
            while shelf.try_attach(id, "rust").await.is_err() {}
            shelf.later();
        }
        while shelf.try_detach("b", "rust").await.is_err() {}
        while shelf.try_attach("b", "rust").await.is_err() {}
        while shelf.try_detach("a", "rust").await.is_err() {}
        drop((weather, tokenless));
        injected += faults.injected().values().sum::<usize>();
        let done = tagged(Arc::clone(&shelf), &["b", "c"]).await;
        assert_eq!(done, Ok(()), "seed {seed}");
        assert_eq!(
            shelf.events().await.len(),
            6,
            "seed {seed}: each change once"
        );
    }
    assert!(
        injected > 100,
        "only {injected} faults: this proves nothing"
    );
}
