//! A guard is worth what breaks without it. Each test takes one away, and shows what.
//!
//! The order is forced: somebody slow has decided, and is held before its write; somebody fast does all
//! that it does; then the slow one goes on. With the guard, all holds. Without it, it does not.
//!
//! Not for real AWS: these rewrite requests on their way, which its signature forbids.
#![allow(clippy::unwrap_used)]

mod drive;

use chaos::{Weaken, World};
use cloud::tap::{Plan, Request, Verdict};
use drive::client::*;
use drive::*;
use file_sync::domain::{DELETED_KEPT, SESSION_KEPT, SESSION_LASTS};
use file_sync::{Deletion, Entry, EntryId, FileSync, Permission, Publication, Target};
use futures::future::BoxFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Holds one call: of this operation, the n-th on this table. A transaction has several; any counts.
struct Hold {
    operation: &'static str,
    table: &'static str,
    left: AtomicUsize,
    arrived: Notify,
    go: Notify,
}

impl Plan for Hold {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let mut targets = request.targets.iter();
            let meant = request.operation == self.operation
                && targets.any(|target| target.resource == self.table);
            if meant && self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
                self.arrived.notify_one();
                self.go.notified().await;
            }
            Verdict::Pass
        })
    }
}

/// Where the slow one is held: before its first transaction on this table.
type At = (&'static str, &'static str);

fn writing(table: &'static str) -> At {
    ("TransactWriteItems", table)
}

/// The same order twice: with the guard all holds, and without it the check says why not.
async fn needed(
    weaken: impl Fn() -> Weaken,
    why: &str,
    setup: impl AsyncFn() -> Desk,
    at: At,
    slow: impl AsyncFn(&Desk) -> String,
    fast: impl AsyncFn(&Desk),
    check: impl AsyncFn(&Desk, &str) -> Result<(), String>,
) {
    for guarded in [true, false] {
        let desk = setup().await;
        let hold = Arc::new(Hold {
            operation: at.0,
            table: at.1,
            left: AtomicUsize::new(1),
            arrived: Notify::new(),
            go: Notify::new(),
        });
        let weaken = Arc::new(weaken());
        let tap = desk.cloud().tap();
        let held = tap.install(hold.clone());
        let weakened = (!guarded).then(|| tap.install(weaken.clone()));
        let told = {
            let mut slow = pin!(slow(&desk));
            tokio::select! {
                told = &mut slow => panic!("it was not held: {told}"),
                () = hold.arrived.notified() => {}
            }
            fast(&desk).await;
            hold.go.notify_one();
            slow.await
        };
        drop((held, weakened));
        let judged = check(&desk, &told).await;
        if guarded {
            assert_eq!(judged, Ok(()), "with the guard ({told})");
        } else {
            assert!(weaken.applied() > 0, "the guard was not met");
            let broken = judged.expect_err("it holds without the guard");
            assert!(broken.contains(why), "{broken} ({told})");
        }
    }
}

/// What must hold after any change of the namespace.
async fn holds(desk: &Desk, _: &str) -> Result<(), String> {
    desk.drive.invariants().await
}

fn root() -> EntryId {
    EntryId::root()
}

fn on(table: &'static str, clause: &'static str) -> impl Fn() -> Weaken {
    move || Weaken::guard_on(table).without(clause)
}

/// Only in conditions that also have this in them: several stand on one table.
fn of(table: &'static str, mark: &'static str, clause: &'static str) -> impl Fn() -> Weaken {
    move || Weaken::guard_on(table).containing(mark).without(clause)
}

// What people do. The slow one is seen by the tap, the fast one is not.

async fn creates(sync: &FileSync, desk: &Desk, parent: &EntryId, name: &str) -> String {
    let alice = desk.drive.alice();
    let done = sync.create_folder(&alice, "laptop", parent, name).await;
    format!("{done:?}")
}

async fn renames(sync: &FileSync, desk: &Desk, thing: usize, to: &EntryId, name: &str) -> String {
    let (alice, id) = (desk.drive.alice(), desk.id(thing));
    let done = sync.rename_or_move(&alice, "laptop", &id, to, name).await;
    format!("{done:?}")
}

async fn deletes(sync: &FileSync, desk: &Desk, thing: usize) -> String {
    let (alice, id) = (desk.drive.alice(), desk.id(thing));
    let done = sync.delete_entry(&alice, "laptop", &id, None).await;
    format!("{done:?}")
}

async fn restores(sync: &FileSync, desk: &Desk, thing: usize) -> String {
    let (alice, id) = (desk.drive.alice(), desk.id(thing));
    let done = sync.restore_version(&alice, "laptop", &id, 1).await;
    format!("{done:?}")
}

/// Publishes the session that the device has noted.
async fn publishes(sync: &FileSync, desk: &Desk, target: &Target) -> String {
    let (alice, session) = (desk.drive.alice(), desk.noted().unwrap());
    let done = sync.publish(&alice, &session, target).await;
    format!("{done:?}")
}

async fn collects(sync: &FileSync, desk: &Desk) -> String {
    format!(
        "{:?}",
        sync.garbage_collect(&desk.drive.tenant, false).await
    )
}

/// A file at the top; two folders, with one more file in the first; and an edit, ready to be published.
async fn desk() -> Desk {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive.file(&alice, &root(), "x", &["first"]).await;
    let one = drive.folder(&alice, &root(), "one").await;
    let two = drive.folder(&alice, &root(), "two").await;
    let inner = drive.file(&alice, &one.entry_id, "inner", &["inner"]).await;
    drive.file(&alice, &one.entry_id, "other", &["other"]).await;
    let edit = drive.upload(&alice, "laptop", &["edit"]).await;
    let desk = Desk::at(drive, vec![file, one, two, inner]);
    desk.note(&edit);
    desk
}

const FILE: usize = 0;
const ONE_FOLDER: usize = 1;
const TWO_FOLDER: usize = 2;
const INNER: usize = 3;

fn edit(desk: &Desk) -> Target {
    edit_of(&desk.things[FILE])
}

// The feed.

#[tokio::test]
async fn without_its_guard_two_first_changes_have_one_number() {
    let empty = async || Desk::at(open().await, Vec::new());
    let guard = of(
        "namespaces",
        "attribute_not_exists",
        "attribute_not_exists(namespace)",
    );
    needed(
        guard,
        "the feed ends with None",
        empty,
        writing("namespaces"),
        async |desk: &Desk| creates(&desk.drive.sync, desk, &root(), "a").await,
        async |desk: &Desk| drop(creates(&desk.drive.beside(), desk, &root(), "b").await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_number_that_was_seen_a_line_of_the_feed_is_overwritten() {
    needed(
        on("namespaces", "#sequence = :seen"),
        "the feed ends with None",
        desk,
        writing("namespaces"),
        async |desk: &Desk| creates(&desk.drive.sync, desk, &root(), "a").await,
        async |desk: &Desk| drop(creates(&desk.drive.beside(), desk, &root(), "b").await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_its_guard_a_cursor_goes_back() {
    let asks = async |sync: &FileSync, desk: &Desk, cursor| {
        let page = sync.changes(&desk.drive.alice(), "laptop", cursor).await;
        format!("{:?}", page.unwrap().cursor)
    };
    needed(
        || Weaken::guard_on("devices"),
        "it had applied 3, and is said to be at 1",
        desk,
        ("UpdateItem", "devices"),
        async |desk: &Desk| asks(&desk.drive.sync, desk, 1).await,
        async |desk: &Desk| drop(asks(&desk.drive.beside(), desk, 3).await),
        async |desk: &Desk, _: &str| {
            let sync = desk.drive.beside();
            let at = sync
                .device_cursor(&desk.drive.alice(), "laptop")
                .await
                .unwrap();
            match at {
                3 => Ok(()),
                at => Err(format!("it had applied 3, and is said to be at {at}")),
            }
        },
    )
    .await;
}

// Names and folders.

#[tokio::test]
async fn without_its_guard_two_have_one_name() {
    needed(
        || Weaken::guard_on("names"),
        "has the name of",
        desk,
        writing("names"),
        async |desk: &Desk| creates(&desk.drive.sync, desk, &root(), "A").await,
        async |desk: &Desk| drop(creates(&desk.drive.beside(), desk, &root(), "a").await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_its_guard_something_is_put_into_a_folder_that_is_gone() {
    needed(
        || Weaken::guard_on("entries"),
        "its folder is gone",
        desk,
        writing("entries"),
        async |desk: &Desk| creates(&desk.drive.sync, desk, &desk.id(TWO_FOLDER), "a").await,
        async |desk: &Desk| drop(deletes(&desk.drive.beside(), desk, TWO_FOLDER).await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_count_a_folder_is_deleted_that_something_came_into() {
    needed(
        on("entries", "children = :none"),
        "its folder is gone",
        desk,
        writing("entries"),
        async |desk: &Desk| deletes(&desk.drive.sync, desk, TWO_FOLDER).await,
        async |desk: &Desk| {
            drop(creates(&desk.drive.beside(), desk, &desk.id(TWO_FOLDER), "a").await);
        },
        holds,
    )
    .await;
}

/// Two folders, each to be put into the other. No item of one move is in the other but the folders'
/// counts, which say nothing against it: the number of moves does.
#[tokio::test]
async fn without_the_number_that_was_seen_two_moves_make_a_circle() {
    needed(
        on("namespaces", "#sequence = :seen"),
        "is in a circle",
        desk,
        writing("namespaces"),
        async |desk: &Desk| {
            renames(
                &desk.drive.sync,
                desk,
                ONE_FOLDER,
                &desk.id(TWO_FOLDER),
                "one",
            )
            .await
        },
        async |desk: &Desk| {
            let (sync, to) = (desk.drive.beside(), desk.id(ONE_FOLDER));
            drop(renames(&sync, desk, TWO_FOLDER, &to, "two").await);
        },
        holds,
    )
    .await;
}

// Renaming and moving.

async fn renames_x(desk: &Desk) -> String {
    renames(&desk.drive.sync, desk, FILE, &root(), "slow").await
}

async fn another_renames_x(desk: &Desk) {
    drop(renames(&desk.drive.beside(), desk, FILE, &root(), "fast").await);
}

async fn another_moves_x(desk: &Desk) {
    drop(renames(&desk.drive.beside(), desk, FILE, &desk.id(TWO_FOLDER), "x").await);
}

async fn another_deletes_x(desk: &Desk) {
    drop(deletes(&desk.drive.beside(), desk, FILE).await);
}

async fn another_edits_x(desk: &Desk) {
    let told = publishes(&desk.drive.beside(), desk, &edit(desk)).await;
    assert!(told.starts_with("Ok(Published"), "{told}");
}

#[tokio::test]
async fn without_the_status_what_was_deleted_is_renamed() {
    let guard = of("entries", ":old_name", "#status = :live");
    let why = "is kept for nobody";
    let at = writing("entries");
    needed(guard, why, desk, at, renames_x, another_deletes_x, holds).await;
}

#[tokio::test]
async fn without_the_folder_what_was_moved_is_moved_from_where_it_is_not() {
    let guard = on("entries", "#parent = :old_parent");
    let why = "says 1 children and has 0";
    let at = writing("entries");
    needed(guard, why, desk, at, renames_x, another_moves_x, holds).await;
}

#[tokio::test]
async fn without_the_name_what_was_renamed_keeps_a_name_too_many() {
    let guard = on("entries", "#name = :old_name");
    let why = "is kept for nobody";
    let at = writing("entries");
    needed(guard, why, desk, at, renames_x, another_renames_x, holds).await;
}

#[tokio::test]
async fn without_the_version_the_feed_tells_of_a_rename_with_an_old_content() {
    let guard = of("entries", ":old_name", "#version = :version");
    let why = "the feed ends with";
    let at = writing("entries");
    needed(guard, why, desk, at, renames_x, another_edits_x, holds).await;
}

// Deleting.

async fn deletes_x(desk: &Desk) -> String {
    deletes(&desk.drive.sync, desk, FILE).await
}

async fn deletes_inner(desk: &Desk) -> String {
    deletes(&desk.drive.sync, desk, INNER).await
}

#[tokio::test]
async fn without_the_status_what_was_deleted_is_deleted_again() {
    needed(
        of("entries", ":none", "#status = :live"),
        "says 0 children and has 1",
        desk,
        writing("entries"),
        deletes_inner,
        async |desk: &Desk| drop(deletes(&desk.drive.beside(), desk, INNER).await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_version_an_edit_is_deleted_that_nobody_looked_at() {
    let guard = of("entries", ":none", "#version = :version");
    let why = "the feed ends with";
    let at = writing("entries");
    needed(guard, why, desk, at, deletes_x, another_edits_x, holds).await;
}

#[tokio::test]
async fn without_the_folder_what_was_moved_is_deleted_where_it_is_not() {
    needed(
        of("entries", ":none", "#parent = :parent"),
        "children and has",
        desk,
        writing("entries"),
        deletes_inner,
        async |desk: &Desk| {
            let (sync, to) = (desk.drive.beside(), desk.id(TWO_FOLDER));
            drop(renames(&sync, desk, INNER, &to, "inner").await);
        },
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_name_what_was_renamed_is_deleted_and_keeps_its_name() {
    let guard = of("entries", ":none", "#name = :name");
    let why = "is kept for nobody";
    let at = writing("entries");
    needed(guard, why, desk, at, deletes_x, another_renames_x, holds).await;
}

// Restoring.

/// The same, and the file has a second version.
async fn edited() -> Desk {
    let mut desk = desk().await;
    let alice = desk.drive.alice();
    let edited = desk
        .drive
        .edit(&alice, &desk.things[FILE], &["second"])
        .await;
    desk.things[FILE] = edited;
    desk
}

async fn restores_x(desk: &Desk) -> String {
    restores(&desk.drive.sync, desk, FILE).await
}

#[tokio::test]
async fn without_the_status_what_was_deleted_is_restored_without_a_name() {
    let guard = of("entries", ":status", "#status = :status");
    let why = "is not found by its name";
    let at = writing("entries");
    needed(guard, why, edited, at, restores_x, another_deletes_x, holds).await;
}

#[tokio::test]
async fn without_the_version_a_restoration_overwrites_an_edit() {
    needed(
        of("entries", ":status", "#version = :version"),
        r#"the edit ["edit"] is lost"#,
        edited,
        writing("entries"),
        restores_x,
        another_edits_x,
        async |desk: &Desk, _: &str| {
            desk.kept(&["edit"]).await?;
            desk.drive.invariants().await
        },
    )
    .await;
}

#[tokio::test]
async fn without_the_folder_a_restoration_takes_back_a_move() {
    let guard = of("entries", ":status", "#parent = :parent");
    let why = "says 1 children and has 0";
    let at = writing("entries");
    needed(guard, why, edited, at, restores_x, another_moves_x, holds).await;
}

#[tokio::test]
async fn without_the_name_a_restoration_takes_back_a_rename() {
    let guard = of("entries", ":status", "#name = :name");
    let why = "is kept for nobody";
    let at = writing("entries");
    needed(guard, why, edited, at, restores_x, another_renames_x, holds).await;
}

// Publishing.

async fn publishes_edit(desk: &Desk) -> String {
    publishes(&desk.drive.sync, desk, &edit(desk)).await
}

#[tokio::test]
async fn without_its_guard_a_session_is_published_twice() {
    needed(
        || Weaken::guard_on("upload_sessions"),
        "is kept for nobody",
        desk,
        writing("upload_sessions"),
        async |desk: &Desk| publishes(&desk.drive.sync, desk, &new("slow")).await,
        async |desk: &Desk| drop(publishes(&desk.drive.beside(), desk, &new("fast")).await),
        async |desk: &Desk, told: &str| {
            desk.drive.invariants().await?;
            // Whoever comes second is told what the session was used for, and not that it was his.
            match told.contains("UsedFor") {
                true => Ok(()),
                false => Err(told.to_owned()),
            }
        },
    )
    .await;
}

#[tokio::test]
async fn without_its_guard_a_session_is_published_whose_chunks_are_gone() {
    let late = async || {
        let desk = desk().await;
        desk.later(SESSION_LASTS);
        desk
    };
    needed(
        || Weaken::guard_on("upload_sessions"),
        "has no manifest",
        late,
        writing("upload_sessions"),
        publishes_edit,
        async |desk: &Desk| drop(collects(&desk.drive.beside(), desk).await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_base_one_of_two_edits_is_lost() {
    needed(
        on("entries", "#version = :base"),
        r#"the edit ["theirs"] is lost"#,
        desk,
        writing("entries"),
        publishes_edit,
        async |desk: &Desk| {
            let alice = desk.drive.alice();
            drop(
                desk.drive
                    .edit(&alice, &desk.things[FILE], &["theirs"])
                    .await,
            );
        },
        async |desk: &Desk, _: &str| {
            desk.kept(&["edit"]).await?;
            desk.kept(&["theirs"]).await?;
            desk.drive.invariants().await
        },
    )
    .await;
}

#[tokio::test]
async fn without_the_status_an_edit_goes_into_a_file_that_is_deleted() {
    let guard = of("entries", ":base", "#status = :live");
    let why = "the feed ends with";
    let at = writing("entries");
    needed(
        guard,
        why,
        desk,
        at,
        publishes_edit,
        another_deletes_x,
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_folder_the_feed_tells_of_an_edit_where_the_file_is_not() {
    let guard = of("entries", ":base", "#parent = :parent");
    let why = "the feed ends with";
    let at = writing("entries");
    needed(guard, why, desk, at, publishes_edit, another_moves_x, holds).await;
}

#[tokio::test]
async fn without_the_name_the_feed_tells_of_an_edit_under_an_old_name() {
    let guard = of("entries", ":base", "#name = :name");
    let why = "the feed ends with";
    let at = writing("entries");
    needed(
        guard,
        why,
        desk,
        at,
        publishes_edit,
        another_renames_x,
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_its_guard_a_guest_writes_when_the_share_is_taken_back() {
    let shared = async || {
        let desk = desk().await;
        let (alice, bob, sync) = (desk.drive.alice(), desk.drive.bob(), desk.drive.beside());
        let file = desk.id(FILE);
        let share = sync.share(&alice, &file, "bob", Permission::Write);
        share.await.unwrap();
        desk.note(&desk.drive.upload(&bob, "phone", &["guest"]).await);
        desk
    };
    needed(
        || Weaken::guard_on("shares"),
        "a guest wrote after the end",
        shared,
        writing("shares"),
        async |desk: &Desk| {
            let (bob, session) = (desk.drive.bob(), desk.noted().unwrap());
            let done = desk.drive.sync.publish(&bob, &session, &edit(desk)).await;
            format!("{done:?}")
        },
        async |desk: &Desk| {
            let (alice, sync) = (desk.drive.alice(), desk.drive.beside());
            assert!(sync.unshare(&alice, &desk.id(FILE), "bob").await.unwrap());
        },
        async |_: &Desk, told: &str| match told.contains("NotFound") {
            true => Ok(()),
            false => Err(format!("a guest wrote after the end: {told}")),
        },
    )
    .await;
}

// Uploading and collecting.

/// A chunk that nothing needs and nothing pins any more: of a file that was deleted long ago.
async fn unneeded() -> Desk {
    let drive = open().await;
    let (alice, sync) = (drive.alice(), drive.beside());
    let gone = drive.file(&alice, &root(), "gone", &["chunk"]).await;
    let desk = Desk::at(drive, vec![gone]);
    desk.days_pass().await.unwrap();
    let deleted = sync.delete_entry(&alice, "laptop", &desk.id(0), None).await;
    assert!(matches!(deleted, Ok(Deletion::Deleted(_))));
    desk.later(DELETED_KEPT);
    desk
}

/// A chunk that nothing needs, pinned by an upload that was abandoned.
async fn abandoned() -> Desk {
    let drive = open().await;
    let session = drive.upload(&drive.alice(), "laptop", &["chunk"]).await;
    let desk = Desk::at(drive, Vec::new());
    desk.note(&session);
    desk.later(SESSION_LASTS);
    desk
}

/// Somebody else needs that very chunk.
async fn another_needs_it(desk: &Desk) {
    let alice = desk.drive.alice();
    let session = desk.drive.upload(&alice, "phone", &["chunk"]).await;
    let done = desk
        .drive
        .beside()
        .publish(&alice, &session, &new("again"))
        .await;
    assert!(
        matches!(done, Ok(Publication::Published { .. })),
        "{done:?}"
    );
}

async fn collects_slowly(desk: &Desk) -> String {
    collects(&desk.drive.sync, desk).await
}

async fn another_collects(desk: &Desk) {
    let told = collects(&desk.drive.beside(), desk).await;
    assert!(told.starts_with("Ok("), "{told}");
}

async fn ends_well(desk: &Desk, _: &str) -> Result<(), String> {
    desk.ends_well().await
}

#[tokio::test]
async fn without_its_guard_a_chunk_is_pinned_that_is_gone() {
    needed(
        || Weaken::guard_on("chunks"),
        "it was said to be there",
        unneeded,
        writing("chunks"),
        async |desk: &Desk| {
            let (alice, request) = (desk.drive.alice(), request(&["chunk"]));
            let started = desk
                .drive
                .sync
                .start_upload(&alice, "phone", &request)
                .await;
            format!("{} missing", started.unwrap().missing.len())
        },
        another_collects,
        async |desk: &Desk, told: &str| {
            let objects = desk.drive.objects().await;
            let there = objects.iter().any(|key| key.contains("/blobs/"));
            match told == "0 missing" && !there {
                true => Err("it was said to be there".to_owned()),
                false => Ok(()),
            }
        },
    )
    .await;
}

#[tokio::test]
async fn without_the_pins_that_were_seen_a_chunk_goes_that_an_upload_relies_on() {
    let guard = || Weaken::guard_on("chunks").containing("pins = :pins");
    let at = writing("chunks");
    needed(
        guard,
        "lacks",
        abandoned,
        at,
        collects_slowly,
        another_needs_it,
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_its_guard_a_chunk_goes_that_was_pinned_just_now() {
    let guard = || Weaken::guard_on("chunks").containing("attribute_not_exists(pins)");
    let at = writing("chunks");
    needed(
        guard,
        "lacks",
        unneeded,
        at,
        collects_slowly,
        another_needs_it,
        holds,
    )
    .await;
}

/// Staged bytes, and a session that is over for longer than it is remembered.
async fn forgotten() -> Desk {
    let drive = open().await;
    let (alice, sync) = (drive.alice(), drive.beside());
    let started = sync
        .start_upload(&alice, "laptop", &request(&["chunk"]))
        .await;
    let session = started.unwrap().session.session_id;
    drive.stage(&session, &chunk("chunk").hash, "chunk").await;
    let desk = Desk::at(drive, Vec::new());
    desk.note(&session);
    desk.later(SESSION_LASTS + SESSION_KEPT);
    desk
}

#[tokio::test]
async fn without_its_guard_a_session_that_is_gone_pins_a_chunk_for_ever() {
    needed(
        || Weaken::guard_on("upload_sessions"),
        "pinned for ever",
        forgotten,
        writing("upload_sessions"),
        async |desk: &Desk| {
            let (alice, session) = (desk.drive.alice(), desk.noted().unwrap());
            let hashes = [chunk("chunk").hash];
            let done = desk
                .drive
                .sync
                .confirm_chunks(&alice, &session, &hashes)
                .await;
            format!("{done:?}")
        },
        another_collects,
        // The blob that was written too late is what the days that a session is remembered are for; here
        // they are over, so only what the tables say is looked at.
        async |desk: &Desk, _: &str| {
            desk.days_pass().await?;
            match desk.drive.chunks().await.first() {
                None => Ok(()),
                Some(chunk) => Err(format!("pinned for ever by {:?}", chunk.pins)),
            }
        },
    )
    .await;
}

#[tokio::test]
async fn without_its_guard_resuming_a_session_that_is_gone_leaves_half_of_one() {
    needed(
        || Weaken::guard_on("upload_sessions"),
        "the collector stumbles",
        forgotten,
        ("UpdateItem", "upload_sessions"),
        async |desk: &Desk| {
            let (alice, session) = (desk.drive.alice(), desk.noted().unwrap());
            format!(
                "{:?}",
                desk.drive.sync.resume_upload(&alice, &session).await
            )
        },
        another_collects,
        async |desk: &Desk, _: &str| desk.days_pass().await,
    )
    .await;
}

#[tokio::test]
async fn without_the_status_a_published_session_is_ended() {
    needed(
        of("upload_sessions", "expires_at", "#status = :open"),
        "has no manifest",
        abandoned,
        writing("upload_sessions"),
        collects_slowly,
        async |desk: &Desk| drop(publishes(&desk.drive.beside(), desk, &new("a")).await),
        holds,
    )
    .await;
}

#[tokio::test]
async fn without_the_time_that_was_seen_a_resumed_session_is_ended() {
    needed(
        on("upload_sessions", "expires_at = :seen"),
        "it was resumed, and then: Ok(Expired)",
        abandoned,
        writing("upload_sessions"),
        collects_slowly,
        async |desk: &Desk| {
            let (alice, session) = (desk.drive.alice(), desk.noted().unwrap());
            desk.drive
                .beside()
                .resume_upload(&alice, &session)
                .await
                .unwrap();
        },
        async |desk: &Desk, _: &str| {
            let told = publishes(&desk.drive.beside(), desk, &new("a")).await;
            match told.starts_with("Ok(Published") {
                true => desk.ends_well().await,
                false => Err(format!("it was resumed, and then: {told}")),
            }
        },
    )
    .await;
}

/// A tombstone that is old enough to be purged.
async fn tombstone() -> Desk {
    unneeded().await
}

async fn view(desk: &Desk) -> Option<Entry> {
    let entries = desk.drive.entries().await;
    entries.into_iter().find(|one| one.entry_id == desk.id(0))
}

#[tokio::test]
async fn without_its_guard_a_file_is_purged_that_was_restored() {
    needed(
        on("entries", "deleted_at = :seen"),
        "it was restored, and is gone",
        tombstone,
        writing("entries"),
        collects_slowly,
        async |desk: &Desk| drop(restores(&desk.drive.beside(), desk, 0).await),
        async |desk: &Desk, _: &str| match view(desk).await {
            Some(_) => desk.drive.invariants().await,
            None => Err("it was restored, and is gone".to_owned()),
        },
    )
    .await;
}

#[tokio::test]
async fn without_the_time_a_file_is_purged_that_was_deleted_just_now() {
    needed(
        on("entries", "deleted_at = :seen"),
        "it was deleted just now, and cannot be restored",
        tombstone,
        writing("entries"),
        collects_slowly,
        async |desk: &Desk| {
            let sync = desk.drive.beside();
            drop(restores(&sync, desk, 0).await);
            drop(deletes(&sync, desk, 0).await);
        },
        async |desk: &Desk, _: &str| match view(desk).await {
            Some(_) => desk.drive.invariants().await,
            None => Err("it was deleted just now, and cannot be restored".to_owned()),
        },
    )
    .await;
}

/// The first collector has marked, and then sleeps. An upload that it took for open is published; a second
/// collector sees that it has ended, and takes its pins out, since the version reaches its chunks. Now the
/// first one wakes: its marks do not have the version, and the chunk has no pins.
#[tokio::test]
async fn without_the_epoch_a_collector_that_slept_deletes_what_was_published() {
    let open = async || {
        let drive = open().await;
        let session = drive.upload(&drive.alice(), "laptop", &["chunk"]).await;
        let desk = Desk::at(drive, Vec::new());
        desk.note(&session);
        desk
    };
    needed(
        || Weaken::guard_on("collections"),
        "lacks",
        open,
        ("Query", "chunks"),
        collects_slowly,
        async |desk: &Desk| {
            drop(publishes(&desk.drive.beside(), desk, &new("a")).await);
            another_collects(desk).await;
        },
        ends_well,
    )
    .await;
}
