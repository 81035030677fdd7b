//! Dies before and after every call; then life goes on; then every version must reassemble, the namespace
//! must be a tree, the feed must tell all of it, nothing that was acknowledged may be lost, and after some
//! days nothing may be left over.
#![allow(clippy::unwrap_used)]

mod drive;

use chaos::{CrashSweep, LoseAnswer, Swept, Tokenless, World};
use drive::client::*;
use drive::*;
use file_sync::domain::{DELETED_KEPT, SESSION_LASTS};
use file_sync::{
    Created, Deletion, Entry, EntryId, EntryStatus, FileSyncError, Moved, Permission, Publication,
    Target,
};
use std::sync::Arc;

fn root() -> EntryId {
    EntryId::root()
}

fn assert_points(swept: &Swept, calls: usize) {
    assert_eq!(swept.points.len(), 2 * calls, "{:#?}", swept.points);
}

/// Says so, instead of panicking.
fn expect(holds: bool, what: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what.into()) }
}

// The stories. Each is an act, which may be interrupted anywhere and is then done again by whoever began
// it, and what must be true in the end.

/// A file whose first chunk the next one shares.
async fn one_file() -> Desk {
    let drive = open().await;
    let alice = drive.alice();
    let old = drive
        .file(&alice, &root(), "old.txt", &["shared ", "old"])
        .await;
    Desk::at(drive, vec![old])
}

const NEW: &[&str] = &["shared ", "new"];

async fn new_file_is_there(desk: &Desk) -> Result<(), String> {
    let entries = desk.drive.entries().await;
    let named: Vec<_> = entries.iter().filter(|one| one.name == "new.txt").collect();
    expect(
        named.len() == 1,
        format!("{} are called new.txt", named.len()),
    )?;
    desk.kept(NEW).await?;
    desk.ends_well().await
}

/// An edit of it that is uploaded, and only has to be published.
async fn ready_to_edit() -> Desk {
    let desk = one_file().await;
    let alice = desk.drive.alice();
    desk.note(&desk.drive.upload(&alice, "laptop", EDIT).await);
    desk
}

fn edit(desk: &Desk) -> Target {
    edit_of(&desk.things[0])
}

const EDIT: &[&str] = &["shared ", "edited"];

async fn edit_is_the_head(desk: &Desk) -> Result<(), String> {
    let head = desk.drive.entry(&desk.id(0)).await;
    let fits = head.version == 2 && head.fingerprint == Some(request(EDIT).fingerprint);
    expect(fits, format!("the head is {head:?}"))?;
    expect(desk.drive.entries().await.len() == 1, "it was copied")?;
    desk.ends_well().await
}

/// The same, of a file that somebody else has edited since.
async fn edited_meanwhile() -> Desk {
    let desk = ready_to_edit().await;
    let alice = desk.drive.alice();
    desk.drive.edit(&alice, &desk.things[0], &["theirs"]).await;
    desk
}

async fn both_edits_are_there(desk: &Desk) -> Result<(), String> {
    let entries = desk.drive.entries().await;
    expect(entries.len() == 2, format!("{} files", entries.len()))?;
    desk.kept(&["theirs"]).await?;
    desk.kept(EDIT).await?;
    desk.ends_well().await
}

/// Two folders, and a third in the first.
async fn folders() -> Desk {
    let drive = open().await;
    let alice = drive.alice();
    let one = drive.folder(&alice, &root(), "one").await;
    let two = drive.folder(&alice, &root(), "two").await;
    let inner = drive.folder(&alice, &one.entry_id, "inner").await;
    Desk::at(drive, vec![one, two, inner])
}

async fn creates(desk: &Desk) -> Result<(), FileSyncError> {
    let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
    // Whoever is told that the name is taken looks what has it: the folder, if it was asked for before.
    match sync
        .create_folder(&alice, "laptop", &desk.id(0), "new")
        .await?
    {
        Created::Folder(_) => Ok(()),
        Created::NameTaken(taken) => {
            let there = sync.view_entry(&alice, &taken.entry_id).await?;
            assert_eq!((there.name.as_str(), &there.parent), ("new", &desk.id(0)));
            Ok(())
        }
    }
}

async fn folder_is_there(desk: &Desk) -> Result<(), String> {
    let entries = desk.drive.entries().await;
    let new = entries.iter().filter(|one| one.name == "new").count();
    expect(new == 1, format!("{new} folders"))?;
    desk.ends_well().await
}

async fn moves(desk: &Desk) -> Result<(), FileSyncError> {
    let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
    let (inner, two) = (desk.id(2), desk.id(1));
    let moved = sync
        .rename_or_move(&alice, "laptop", &inner, &two, "moved")
        .await?;
    assert!(matches!(moved, Moved::Moved(_)), "{moved:?}");
    Ok(())
}

async fn it_is_moved(desk: &Desk) -> Result<(), String> {
    let inner = desk.drive.entry(&desk.id(2)).await;
    let there = inner.parent == desk.id(1) && inner.name == "moved";
    expect(there, format!("it is {inner:?}"))?;
    desk.ends_well().await
}

async fn deletes(desk: &Desk) -> Result<(), FileSyncError> {
    let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
    let gone = sync
        .delete_entry(&alice, "laptop", &desk.id(2), None)
        .await?;
    assert!(
        matches!(gone, Deletion::Deleted(_) | Deletion::Already),
        "{gone:?}"
    );
    Ok(())
}

async fn it_is_deleted(desk: &Desk) -> Result<(), String> {
    let inner = desk.drive.entry(&desk.id(2)).await;
    expect(
        inner.status == EntryStatus::Deleted,
        format!("it is {inner:?}"),
    )?;
    desk.ends_well().await
}

/// A file that was deleted, and whose name and folder are gone: the restored one is to be elsewhere.
async fn deleted_with_its_folder() -> Desk {
    let drive = open().await;
    let (alice, sync) = (drive.alice(), drive.beside());
    let folder = drive.folder(&alice, &root(), "folder").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["first"])
        .await;
    for gone in [&file, &folder] {
        let deleted = sync
            .delete_entry(&alice, "laptop", &gone.entry_id, None)
            .await;
        assert!(matches!(deleted, Ok(Deletion::Deleted(_))));
    }
    drive.file(&alice, &root(), "a.txt", &["another"]).await;
    Desk::at(drive, vec![file])
}

async fn restores(desk: &Desk) -> Result<(), FileSyncError> {
    let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
    let restored = sync
        .restore_version(&alice, "laptop", &desk.id(0), 1)
        .await?;
    assert_eq!(restored.status, EntryStatus::Live);
    Ok(())
}

async fn it_is_restored(desk: &Desk) -> Result<(), String> {
    let alice = desk.drive.alice();
    let file = desk.drive.entry(&desk.id(0)).await;
    expect(file.status == EntryStatus::Live, format!("it is {file:?}"))?;
    let content = desk.drive.content(&alice, &file.entry_id, None).await;
    expect(content == "first", content)?;
    desk.ends_well().await
}

async fn shares(desk: &Desk) -> Result<(), FileSyncError> {
    let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
    sync.share(&alice, &desk.id(0), "bob", Permission::Write)
        .await?;
    Ok(())
}

async fn bob_sees(desk: &Desk) -> Vec<Entry> {
    let seen = desk
        .drive
        .beside()
        .shared_with_me(&desk.drive.bob())
        .await
        .unwrap();
    seen.into_iter().map(|(_, entry)| entry).collect()
}

async fn it_is_shared(desk: &Desk) -> Result<(), String> {
    expect(bob_sees(desk).await.len() == 1, "bob sees nothing")?;
    desk.ends_well().await
}

async fn shared() -> Desk {
    let desk = one_file().await;
    let alice = desk.drive.alice();
    let share = desk.drive.beside();
    share
        .share(&alice, &desk.id(0), "bob", Permission::Write)
        .await
        .unwrap();
    desk
}

async fn unshares(desk: &Desk) -> Result<(), FileSyncError> {
    let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
    sync.unshare(&alice, &desk.id(0), "bob").await?;
    Ok(())
}

async fn it_is_not_shared(desk: &Desk) -> Result<(), String> {
    expect(bob_sees(desk).await.is_empty(), "bob still sees it")?;
    desk.ends_well().await
}

/// One of each that a collection has to do with: a file that stays; one that was deleted long ago; an
/// upload that was abandoned with staged bytes; chunks that several of them share.
async fn garbage() -> Desk {
    let drive = open().await;
    let (alice, sync) = (drive.alice(), drive.beside());
    let kept = drive
        .file(&alice, &root(), "kept.txt", &["shared ", "kept"])
        .await;
    let gone = drive
        .file(&alice, &root(), "gone.txt", &["shared ", "gone"])
        .await;
    let deleted = sync
        .delete_entry(&alice, "laptop", &gone.entry_id, None)
        .await;
    assert!(matches!(deleted, Ok(Deletion::Deleted(_))));
    let abandoned = drive
        .upload(&alice, "laptop", &["shared ", "abandoned"])
        .await;
    drive
        .stage(&abandoned, &chunk("staged").hash, "staged")
        .await;
    let desk = Desk::at(drive, vec![kept, gone]);
    desk.later(DELETED_KEPT);
    desk
}

async fn collects(desk: &Desk) -> Result<(), FileSyncError> {
    desk.drive
        .sync
        .garbage_collect(&desk.drive.tenant, false)
        .await?;
    Ok(())
}

async fn only_garbage_is_gone(desk: &Desk) -> Result<(), String> {
    let entries = desk.drive.entries().await;
    expect(
        entries == [desk.drive.entry(&desk.id(0)).await],
        "more is gone, or less",
    )?;
    let chunks = desk.drive.chunks().await;
    expect(chunks.len() == 2, format!("{} chunks", chunks.len()))?;
    desk.ends_well().await
}

// Dying.

/// Dies everywhere in an act, which is then done again, once more even if it had ended.
macro_rules! sweep {
    ($setup:expr, $act:expr, $check:expr) => {
        CrashSweep::of($setup)
            .action("act", |desk: Arc<Desk>| async move { $act(&desk).await })
            .recovery(|desk| async move { $act(&desk).await.unwrap() })
            .check(|desk| async move { $check(&desk).await })
            .run()
            .await
            .unwrap()
    };
}

/// The same for an upload, whose client goes on with the session it has written down.
macro_rules! sweep_upload {
    ($setup:expr, $pieces:expr, $target:expr, $outcome:pat, $check:expr) => {
        CrashSweep::of($setup)
            .action("client", |desk: Arc<Desk>| async move {
                desk.goes_on($pieces, &$target(&desk)).await
            })
            .recovery(|desk| async move {
                let told = desk.asks_again($pieces, &$target(&desk)).await;
                assert!(matches!(told, $outcome), "{told:?}");
                assert_eq!(desk.asks_again($pieces, &$target(&desk)).await, told);
            })
            .check(|desk| async move { $check(&desk).await })
            .run()
            .await
            .unwrap()
    };
}

/// Start: look, session, manifest, chunks, pin. Send: session, PUT. Confirm: session, chunks, read, write,
/// store, tidy. Publish: session, manifest, chunks, counter, commit.
const UPLOAD: usize = 5 + 2 + 6 + 5;
/// Session, manifest, chunks, the entry, counter, commit.
const PUBLISH: usize = 6;

#[tokio::test]
async fn every_crash_point_of_an_upload_makes_one_file() {
    let swept = sweep_upload!(
        one_file,
        NEW,
        (|_: &Desk| new("new.txt")),
        Publication::Published { version: 1, .. },
        new_file_is_there
    );
    assert_points(&swept, UPLOAD);
}

#[tokio::test]
async fn every_crash_point_of_an_edit_advances_the_head_once() {
    let swept = sweep_upload!(
        ready_to_edit,
        EDIT,
        edit,
        Publication::Published { version: 2, .. },
        edit_is_the_head
    );
    assert_points(&swept, PUBLISH);
}

#[tokio::test]
async fn every_crash_point_of_a_late_edit_makes_one_conflict_copy() {
    let swept = sweep_upload!(
        edited_meanwhile,
        EDIT,
        edit,
        Publication::ConflictCopy { .. },
        both_edits_are_there
    );
    assert_points(&swept, PUBLISH);
}

#[tokio::test]
async fn an_upload_that_nobody_goes_on_with_leaves_a_file_or_nothing() {
    let swept = CrashSweep::of(one_file)
        .action("client", |desk: Arc<Desk>| async move {
            desk.sends(NEW, &new("new.txt")).await
        })
        .check(|desk| async move {
            desk.ends_well().await?;
            let files = desk.drive.entries().await.len();
            let chunks = desk.drive.chunks().await.len();
            expect(
                files + 1 == chunks,
                format!("{files} files, {chunks} chunks"),
            )
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, UPLOAD);
}

#[tokio::test]
async fn a_client_that_comes_back_when_its_session_is_over_begins_again() {
    let swept = CrashSweep::of(one_file)
        .action("client", |desk: Arc<Desk>| async move {
            desk.sends(NEW, &new("new.txt")).await
        })
        .recovery(|desk| async move {
            // Its pins hold nothing any more, and the collector has been there.
            desk.later(SESSION_LASTS);
            collects(&desk).await.unwrap();
            let told = desk.asks_again(NEW, &new("new.txt")).await;
            match &told {
                Publication::Published { .. } => {}
                // It was published after all, longer ago than sessions are remembered.
                Publication::NameTaken(taken) => {
                    let there = desk.drive.entry(&taken.entry_id).await;
                    assert_eq!(there.fingerprint, Some(request(NEW).fingerprint));
                }
                other => panic!("{other:?}"),
            }
        })
        .check(|desk| async move { new_file_is_there(&desk).await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, UPLOAD);
}

#[tokio::test]
async fn every_crash_point_of_a_new_folder_makes_one() {
    // Folder, counter, commit.
    assert_points(&sweep!(folders, creates, folder_is_there), 3);
}

#[tokio::test]
async fn every_crash_point_of_a_move_leaves_it_in_one_place() {
    // Entry, counter, folder, the way up, commit.
    assert_points(&sweep!(folders, moves, it_is_moved), 5);
}

#[tokio::test]
async fn every_crash_point_of_a_deletion_leaves_a_tombstone() {
    assert_points(&sweep!(folders, deletes, it_is_deleted), 3);
}

#[tokio::test]
async fn every_crash_point_of_a_restoration_brings_the_file_back() {
    // Three times entry, version, counter, commit: the folder is gone, then the name is taken.
    let swept = sweep!(deleted_with_its_folder, restores, it_is_restored);
    assert_points(&swept, 12);
}

#[tokio::test]
async fn every_crash_point_of_sharing_and_taking_back_is_one_or_the_other() {
    assert_points(&sweep!(one_file, shares, it_is_shared), 2);
    assert_points(&sweep!(shared, unshares, it_is_not_shared), 2);
}

#[tokio::test]
async fn every_crash_point_of_a_collection_deletes_all_garbage_and_nothing_of_the_upload_that_follows()
 {
    const AGAIN: &[&str] = &["shared ", "gone", "abandoned"];
    let swept = CrashSweep::of(garbage)
        .action("collector", |desk: Arc<Desk>| async move {
            collects(&desk).await
        })
        // Somebody uploads what was being deleted; then the next collector comes.
        .recovery(|desk| async move {
            let told = desk.asks_again(AGAIN, &new("again.txt")).await;
            assert!(matches!(told, Publication::Published { .. }), "{told:?}");
            collects(&desk).await.unwrap();
        })
        .check(|desk| async move {
            desk.kept(AGAIN).await?;
            let files = desk.drive.entries().await.len();
            expect(files == 2, format!("{files} files"))?;
            desk.ends_well().await
        })
        .run()
        .await
        .unwrap();
    assert!(swept.points.len() >= 2 * 20, "{:#?}", swept.points);
}

#[tokio::test]
async fn a_device_that_died_while_asking_reads_the_same_changes_again() {
    let swept = CrashSweep::of(folders)
        .action("device", |desk: Arc<Desk>| async move {
            desk.drive
                .sync
                .changes(&desk.drive.alice(), "laptop", 1)
                .await
        })
        .recovery(|desk| async move {
            let (sync, alice) = (&desk.drive.sync, desk.drive.alice());
            let page = sync.changes(&alice, "laptop", 1).await.unwrap();
            let numbers: Vec<_> = page.changes.iter().map(|change| change.sequence).collect();
            assert_eq!((numbers, page.cursor, page.more), (vec![2, 3], 3, false));
        })
        .check(|desk| async move {
            let (sync, alice) = (desk.drive.beside(), desk.drive.alice());
            let cursor = sync.device_cursor(&alice, "laptop").await.unwrap();
            expect(cursor == 1, format!("the cursor is {cursor}"))
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 2);
}

// Lost answers.

/// Every answer is lost once, call by call, and the SDK sends the call again: without the token by which
/// DynamoDB would know it. Whoever is told of a fault asks again. How many calls there were.
async fn each_answer_lost(
    setup: impl AsyncFn() -> Desk,
    act: impl AsyncFn(&Desk) -> Result<(), FileSyncError>,
    check: impl AsyncFn(&Desk) -> Result<(), String>,
) -> usize {
    for lost in 1.. {
        let desk = setup().await;
        let plan = Arc::new(LoseAnswer::to_call(lost));
        {
            let tap = desk.cloud().tap();
            let _plans = (tap.install(Arc::new(Tokenless)), tap.install(plan.clone()));
            let mut told = act(&desk).await;
            for _ in 0..3 {
                if let Err(FileSyncError::Fault(_)) = told {
                    told = act(&desk).await;
                }
            }
            told.unwrap();
        }
        let judged = check(&desk).await;
        assert!(judged.is_ok(), "call {lost}: {judged:?}");
        if !plan.was_lost() {
            return lost - 1;
        }
    }
    unreachable!()
}

#[tokio::test]
async fn an_upload_whose_every_answer_is_lost_once_makes_one_file() {
    let act = async |desk: &Desk| {
        let told = desk.asks_again(NEW, &new("new.txt")).await;
        assert!(
            matches!(told, Publication::Published { version: 1, .. }),
            "{told:?}"
        );
        Ok(())
    };
    let calls = each_answer_lost(one_file, act, new_file_is_there).await;
    assert_eq!(calls, UPLOAD);
}

#[tokio::test]
async fn an_edit_whose_every_answer_is_lost_once_advances_the_head_once() {
    let act = async |desk: &Desk| {
        let told = desk.asks_again(EDIT, &edit(desk)).await;
        assert!(
            matches!(told, Publication::Published { version: 2, .. }),
            "{told:?}"
        );
        Ok(())
    };
    let calls = each_answer_lost(ready_to_edit, act, edit_is_the_head).await;
    assert_eq!(calls, PUBLISH);
}

#[tokio::test]
async fn a_late_edit_whose_every_answer_is_lost_once_makes_one_copy() {
    let act = async |desk: &Desk| {
        let told = desk.asks_again(EDIT, &edit(desk)).await;
        assert!(matches!(told, Publication::ConflictCopy { .. }), "{told:?}");
        Ok(())
    };
    let calls = each_answer_lost(edited_meanwhile, act, both_edits_are_there).await;
    assert_eq!(calls, PUBLISH);
}

#[tokio::test]
async fn folders_moves_deletions_and_restorations_survive_every_lost_answer() {
    assert_eq!(each_answer_lost(folders, creates, folder_is_there).await, 3);
    assert_eq!(each_answer_lost(folders, moves, it_is_moved).await, 5);
    assert_eq!(each_answer_lost(folders, deletes, it_is_deleted).await, 3);
    let restored = each_answer_lost(deleted_with_its_folder, restores, it_is_restored);
    assert_eq!(restored.await, 12);
}

#[tokio::test]
async fn sharing_and_collecting_survive_every_lost_answer() {
    assert_eq!(each_answer_lost(one_file, shares, it_is_shared).await, 2);
    assert_eq!(
        each_answer_lost(shared, unshares, it_is_not_shared).await,
        2
    );
    // What was not heard of is taken for not done; the next collection does the rest.
    let collects_twice = async |desk: &Desk| {
        collects(desk).await?;
        desk.drive
            .beside()
            .garbage_collect(&desk.drive.tenant, false)
            .await?;
        Ok(())
    };
    let calls = each_answer_lost(garbage, collects_twice, only_garbage_is_gone).await;
    assert!(calls >= 20, "{calls}");
}
