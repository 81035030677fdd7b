//! Dies before and after every call; then life goes on; then the invariants must hold.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{CrashSweep, Faults, Tokenless};
use doc_editor::{Compaction, DocumentService};
use office::{Desk, SETTINGS, cold_desk, desk, new};
use std::sync::Arc;

#[tokio::test]
async fn every_crash_point_of_submit_edit_recovers() {
    let swept = CrashSweep::of(cold_desk)
        .action("server", |desk: Arc<Desk>| async move {
            desk.east.submit_edit(&desk.edit("ann", 1, "a")).await
        })
        // The client reconnects, to another node, and sends the same edit again.
        .recovery(|desk: Arc<Desk>| async move {
            desk.west
                .submit_edit(&desk.edit("ann", 1, "a"))
                .await
                .unwrap()
        })
        .check(|desk| async move {
            let all = desk.invariants().await?;
            match all.as_slice() {
                [entry] if entry.client_id == "ann" => Ok(()),
                other => Err(format!("expected one operation, found {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(
        swept.points.len(),
        8,
        "three reads and a write: {:?}",
        swept.points
    );
}

#[tokio::test]
async fn an_acknowledged_edit_is_never_lost_at_any_crash_point_of_another() {
    // Ben's edit is acknowledged; then Ann's node dies, wherever it is; then everything is loaded again.
    let swept = CrashSweep::of(|| async {
        let desk = desk().await;
        let told = desk
            .west
            .submit_edit(&desk.edit("ben", 1, "b"))
            .await
            .unwrap();
        assert_eq!(told.version(), Some(1));
        desk
    })
    .action("server", |desk: Arc<Desk>| async move {
        desk.east.submit_edit(&desk.edit("ann", 1, "a")).await
    })
    .check(|desk| async move {
        let all = desk.invariants().await?;
        let ben = all.first().is_some_and(|entry| entry.client_id == "ben");
        let text = desk.text().await;
        if ben && text.starts_with('b') && all.len() <= 2 {
            return Ok(());
        }
        Err(format!("{text:?} after {all:?}"))
    })
    .run()
    .await
    .unwrap();
    assert_eq!(
        swept.points.len(),
        6,
        "refused, a read, a write: {:?}",
        swept.points
    );
}

async fn due_again() -> Desk {
    let desk = desk().await.typed(4).await;
    desk.east.compact(&desk.id).await.unwrap();
    for sequence in 5..=8 {
        // Long enough for an object of its own.
        desk.types(&desk.east, "typist", sequence, &"y".repeat(60))
            .await;
    }
    desk
}

#[tokio::test]
async fn every_crash_point_of_a_compaction_recovers() {
    let compact = |desk: Arc<Desk>| async move {
        let node = DocumentService::with(desk.east.cloud().clone(), SETTINGS);
        node.compact(&desk.id).await
    };
    let swept = CrashSweep::of(due_again)
        .action("keeper", compact)
        // Nobody notices at first: people go on typing. The next one does what is left.
        .recovery(move |desk: Arc<Desk>| async move {
            for sequence in 9..=12 {
                desk.types(&desk.west, "typist", sequence, "z").await;
            }
            compact(desk).await.unwrap()
        })
        .check(|desk| async move {
            desk.invariants().await?;
            let node = desk.fresh();
            let document = node.read_document(&desk.id).await.unwrap().unwrap();
            // What a dead one left below the base is gone.
            let below = node
                .read_log(&desk.id, 0, Some(document.base_version))
                .await
                .unwrap();
            if document.snapshot_version == 12 && below.is_empty() {
                return Ok(());
            }
            Err(format!("{document:?}, below the base {}", below.len()))
        })
        .run()
        .await
        .unwrap();
    assert!(swept.points.len() >= 16, "{:?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_create_document_recovers() {
    let create = |desk: Arc<Desk>| async move {
        let id = format!("{}-second", desk.id);
        desk.east.create_document(&new(&id)).await
    };
    let swept = CrashSweep::of(cold_desk)
        .action("author", create)
        .recovery(create)
        .check(|desk| async move {
            let second = Desk {
                id: format!("{}-second", desk.id),
                east: desk.east.clone(),
                west: desk.west.clone(),
            };
            second.invariants().await?;
            second.types(&second.west, "ann", 1, "!").await;
            second.invariants().await.map(|_| ())
        })
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 2, "{:?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_an_undo_recovers() {
    let undo = |desk: Arc<Desk>| async move { desk.east.undo(&desk.id, "ann", 9).await };
    CrashSweep::of(|| async {
        let desk = desk().await;
        desk.east
            .submit_edit(&desk.edit("ann", 1, "a"))
            .await
            .unwrap();
        desk.east
            .submit_edit(&desk.edit("ann", 2, "b"))
            .await
            .unwrap();
        desk.west.load_document(&desk.id).await.unwrap();
        desk
    })
    .action("server", undo)
    .recovery(|desk: Arc<Desk>| async move { desk.west.undo(&desk.id, "ann", 9).await.unwrap() })
    .check(|desk| async move {
        desk.invariants().await?;
        match desk.text().await.as_str() {
            "aone two" => Ok(()),
            other => Err(format!("undone once, it is {other:?}")),
        }
    })
    .run()
    .await
    .unwrap();
}

/// A dozen seeds of bad weather. A client that gets no answer sends the same again, to the other node.
#[tokio::test]
async fn lost_requests_lost_answers_and_throttling_change_no_outcome() {
    let mut injected = 0;
    for seed in 0..12 {
        let desk = desk().await;
        let faults = Faults::seeded(seed)
            .throttle(0.1)
            .lose_request(0.1)
            .lose_answer(0.15);
        let faults = Arc::new(faults);
        let tap = desk.east.cloud().tap();
        let weather = [
            tap.install(Arc::new(Tokenless)),
            tap.install(faults.clone()),
        ];
        for sequence in 1..=6 {
            for client in ["ann", "ben"] {
                let edit = desk.edit(client, sequence, "a");
                let mut nodes = [&desk.east, &desk.west].into_iter().cycle();
                let mut sent = 0;
                while nodes.next().unwrap().submit_edit(&edit).await.is_err() {
                    sent += 1;
                    assert!(sent < 100, "seed {seed}: {client} {sequence} never arrives");
                }
            }
        }
        while desk.west.compact(&desk.id).await.is_err() {}
        drop(weather);
        injected += faults.injected().values().sum::<usize>();
        let all = desk.invariants().await.unwrap();
        assert_eq!(all.len(), 12, "seed {seed}");
        let compacted = desk.east.compact(&desk.id).await.unwrap();
        assert_eq!(compacted, Compaction::NotDue, "seed {seed}");
    }
    assert!(injected > 30, "only {injected} faults: this proves nothing");
}
