//! Every guard is needed: without it, some order of calls breaks an invariant, and this is how.
//!
//! `Weaken` makes a condition always true on its way out, so the code under test is the code that ships.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Interleave, Weaken, breaks};
use doc_editor::{DocumentService, EditOutcome, Settings};
use office::{Desk, SETTINGS, TEXT, checked, compactor, desk, east, insert, new, west};
use std::sync::Arc;

#[tokio::test]
async fn without_the_version_two_owners_write_one_place() {
    let actors = checked(west(east(Interleave::of(desk), "ann"), "ben"));
    let weaken = Weaken::guard_on("documents").without("version = :seen");
    breaks(actors, weaken, "was told version 1, which is another's").await;
}

/// Whoever sends its edit again as it was is found in the log as well, between its base and the head. Not so a
/// client that has loaded the document since, and sends what it did not know to be in it.
#[tokio::test]
async fn without_its_identity_a_retry_is_appended_twice() {
    let desk = desk().await;
    desk.east
        .submit_edit(&desk.edit("ann", 1, "a"))
        .await
        .unwrap();
    desk.invariants().await.unwrap();
    let reloaded = desk.edit_on("ann", 1, 1, insert(0, "a", TEXT.len() + 1));
    let settings = Settings {
        held: 0,
        ..SETTINGS
    };
    let node = DocumentService::with(desk.east.cloud().clone(), settings);
    assert_eq!(
        node.submit_edit(&reloaded).await.unwrap(),
        EditOutcome::Before(1)
    );
    let weaken = Arc::new(Weaken::guard_on("edits"));
    let weak = desk.east.cloud().tap().install(weaken.clone());
    let again = node.submit_edit(&reloaded).await.unwrap();
    drop(weak);
    assert!(weaken.applied() > 0);
    assert!(matches!(again, EditOutcome::Applied(_)), "{again:?}");
    assert_eq!(desk.text().await, "aaone two");
    let broken = desk.invariants().await.unwrap_err();
    assert_eq!(broken, "an edit is in the order twice");
}

/// A snapshot was made from the pointer that was read. Without that guard a slow keeper puts the pointer back,
/// below what a faster one has pruned.
#[tokio::test]
async fn without_the_pointer_a_slow_keeper_moves_it_back() {
    let due = || async { desk().await.typed(4).await };
    let actors =
        compactor(Interleave::of(due), "slow").actor("others", |desk: Arc<Desk>| async move {
            // More is typed, and two more snapshots are made, on another node.
            let node = DocumentService::with(desk.east.cloud().beside_tap(), SETTINGS);
            desk.east.read_document(&desk.id).await.unwrap();
            for sequence in 5..=12 {
                desk.types(&node, "typist", sequence, "z").await;
                node.compact(&desk.id).await.unwrap();
            }
            office::Told::Compacted(doc_editor::Compaction::NotDue)
        });
    let weaken = Weaken::guard_on("documents").without("snapshot_version = :seen");
    breaks(checked(actors), weaken, "the log is [6").await;
}

#[tokio::test]
async fn without_its_guard_creating_again_sets_a_document_back() {
    let desk = desk().await.typed(2).await;
    desk.invariants().await.unwrap();
    let weaken = Arc::new(Weaken::guard_on("documents"));
    let weak = desk.east.cloud().tap().install(weaken.clone());
    desk.east.create_document(&new(&desk.id)).await.unwrap();
    drop(weak);
    assert!(weaken.applied() > 0);
    assert!(desk.invariants().await.is_err());
}
