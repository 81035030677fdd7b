//! Every order of the calls of two or three actions, each on a fresh cloud. Those who meet here are on nodes of
//! their own: on one node a lock keeps them apart, and only the guards stand between two.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Explored, Interleave};
use doc_editor::{DocumentService, Settings};
use office::{Desk, SETTINGS, Told, checked, cold_desk, compactor, desk, east, reader, west};
use std::sync::Arc;

async fn explore(actors: Interleave<Desk, Told>) -> Explored {
    checked(actors).run().await.unwrap()
}

/// Each of these happened in some order.
fn sometimes(explored: &Explored, ends: &[&str]) {
    for end in ends {
        assert!(
            explored.seen.contains_key(*end),
            "{end}: {:?}",
            explored.seen
        );
    }
}

#[tokio::test]
async fn two_owners_never_both_advance() {
    let explored = explore(west(east(Interleave::of(desk), "ann"), "ben")).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(ends, ["ann 1, ben 2", "ann 2, ben 1"]);
}

#[tokio::test]
async fn two_nodes_that_have_to_load_first_append_both_edits() {
    let explored = explore(west(east(Interleave::of(cold_desk), "ann"), "ben")).await;
    sometimes(&explored, &["ann 1, ben 2", "ann 2, ben 1"]);
    assert!(explored.schedules >= 70, "{}", explored.schedules);
}

#[tokio::test]
async fn the_same_edit_sent_to_two_nodes_is_one_operation() {
    let actors = west(east(Interleave::of(desk), "ann"), "ann-again");
    let explored = explore(actors).await;
    assert_eq!(
        explored.seen.keys().collect::<Vec<_>>(),
        ["ann 1, ann-again 1"]
    );
}

async fn due() -> Desk {
    desk().await.typed(4).await
}

/// A snapshot is due, and the one before it is not the first: something is pruned.
async fn due_again() -> Desk {
    let desk = due().await;
    desk.east.compact(&desk.id).await.unwrap();
    for sequence in 5..=8 {
        desk.types(&desk.east, "typist", sequence, "y").await;
    }
    desk.west.load_document(&desk.id).await.unwrap();
    desk
}

#[tokio::test]
async fn an_edit_and_a_compaction_both_stand() {
    let explored = explore(compactor(west(Interleave::of(due_again), "ann"), "keeper")).await;
    sometimes(&explored, &["ann 9, keeper made 8", "ann 9, keeper made 9"]);
}

#[tokio::test]
async fn two_compactions_move_the_pointer_once() {
    // One operation is enough for a snapshot here: there are many orders, and each makes a document.
    let one = || async {
        let desk = cold_desk().await;
        desk.east
            .submit_edit(&desk.edit("ann", 1, "a"))
            .await
            .unwrap();
        desk
    };
    let keeper = |desk: Arc<Desk>| async move {
        let settings = Settings {
            snapshot_every: 1,
            ..SETTINGS
        };
        let node = DocumentService::with(desk.east.cloud().clone(), settings);
        Told::Compacted(node.compact(&desk.id).await.unwrap())
    };
    let actors = Interleave::of(one)
        .actor("keeper", keeper)
        .actor("other", keeper);
    let explored = explore(actors).await;
    assert!(explored.schedules >= 200, "{}", explored.schedules);
    sometimes(
        &explored,
        &[
            "keeper made 1, other made 1",
            "keeper made 1, other NotDue",
            "keeper NotDue, other made 1",
        ],
    );
    assert_eq!(explored.seen.len(), 3, "{:?}", explored.seen);
}

#[tokio::test]
async fn whoever_loads_while_the_log_is_pruned_sees_a_whole_document() {
    let explored = explore(compactor(
        reader(Interleave::of(due_again), "reader"),
        "keeper",
    ))
    .await;
    sometimes(&explored, &["reader saw 8, keeper made 8"]);
    assert!(explored.schedules >= 50, "{}", explored.schedules);
}

#[tokio::test]
async fn whoever_loads_while_somebody_types_sees_one_version_or_the_other() {
    let explored = explore(west(reader(Interleave::of(desk), "reader"), "ann")).await;
    sometimes(&explored, &["reader saw 0, ann 1", "reader saw 1, ann 1"]);
}
