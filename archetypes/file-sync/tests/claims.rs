//! One test for each claim of the README, under the sentence of the claim.
#![allow(clippy::unwrap_used)]

mod drive;

use chaos::{Conflicts, Deaf, LoseAnswer, Tokenless, World};
use cloud::tap::Request;
use drive::*;
use file_sync::chunking::Chunked;
use file_sync::domain::{DELETED_KEPT, SESSION_KEPT, SESSION_LASTS};
use file_sync::{
    Actor, BadInput, ChangeKind, ChunkHash, ChunkRef, Confirmed, Created, Deletion, EntryId,
    EntryStatus, FileSyncError, Manifest, Moved, Permission, Publication, Target, UploadRequest,
};
use std::sync::Arc;
use std::time::Duration;

const ROOT: fn() -> EntryId = EntryId::root;

fn later(drive: &Drive, millis: i64) {
    let clock = drive.sync.cloud().clock();
    clock.advance(Duration::from_millis(millis as u64));
}

// Content.

#[tokio::test]
async fn every_reachable_version_reassembles_byte_for_byte() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive
        .file(&alice, &ROOT(), "a.txt", &["one ", "two ", "one "])
        .await;
    let file = drive.edit(&alice, &file, &["one ", "three "]).await;
    let file = drive.edit(&alice, &file, &[]).await;
    drive.invariants().await.unwrap();
    let id = &file.entry_id;
    assert_eq!(drive.content(&alice, id, Some(1)).await, "one two one ");
    assert_eq!(drive.content(&alice, id, Some(2)).await, "one three ");
    assert_eq!(drive.content(&alice, id, None).await, "");
}

#[tokio::test]
async fn a_chunk_is_stored_once_in_a_tenant_and_only_what_is_missing_is_asked_for() {
    let drive = open().await;
    let alice = drive.alice();
    drive
        .file(&alice, &ROOT(), "a.txt", &["one ", "two "])
        .await;
    let again = request(&["one ", "two ", "three "]);
    let started = drive
        .sync
        .start_upload(&drive.bob(), "phone", &again)
        .await
        .unwrap();
    assert_eq!(started.missing, [chunk("three ")]);
    assert_eq!(drive.chunks().await.len(), 2);
}

#[tokio::test]
async fn a_manifest_larger_than_an_item_is_published_and_read() {
    let drive = open().await;
    let alice = drive.alice();
    // 12,000 chunks are 432 KB of manifest; an item takes 400. They are one and the same chunk, so that
    // only the manifest is large.
    let pieces = vec!["x"; 12_000];
    let file = drive.file(&alice, &ROOT(), "large.bin", &pieces).await;
    let plan = drive
        .sync
        .download(&alice, &file.entry_id, None)
        .await
        .unwrap();
    assert!(plan.manifest.encode().len() > 400 * 1024);
    assert_eq!(plan.manifest.chunks.len(), 12_000);
    assert_eq!(file.size, 12_000);
}

// Uploading.

async fn http_put(address: &file_sync::Address, bytes: &'static str) -> u16 {
    let mut put = reqwest::Client::new().put(&address.url).body(bytes);
    for (name, value) in &address.headers {
        put = put.header(name, value);
    }
    put.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn chunks_go_straight_to_s3_and_come_straight_from_it() {
    let drive = open().await;
    let alice = drive.alice();
    let started = drive
        .sync
        .start_upload(&alice, "laptop", &request(&["hello"]))
        .await
        .unwrap();
    let id = started.session.session_id;
    let hash = chunk("hello").hash;
    let addresses = drive
        .sync
        .upload_addresses(&alice, &id, &[hash])
        .await
        .unwrap();
    assert_eq!(http_put(&addresses[0], "hello").await, 200);
    let confirmed = drive
        .sync
        .confirm_chunks(&alice, &id, &[hash])
        .await
        .unwrap();
    assert_eq!(confirmed, [(hash, Confirmed::Present)]);
    let published = drive
        .sync
        .publish(&alice, &id, &new("hello.txt"))
        .await
        .unwrap();
    let Publication::Published { entry, version } = published else {
        panic!()
    };
    let id = &entry.entry_id;
    let addresses = drive
        .sync
        .download_addresses(&alice, id, version, &[hash])
        .await
        .unwrap();
    let got = reqwest::get(&addresses[0].url).await.unwrap();
    assert_eq!(got.text().await.unwrap(), "hello");
}

#[tokio::test]
async fn a_tampered_chunk_is_refused_on_upload() {
    let drive = open().await;
    let alice = drive.alice();
    let started = drive
        .sync
        .start_upload(&alice, "laptop", &request(&["hello"]))
        .await
        .unwrap();
    let id = &started.session.session_id;
    let hash = chunk("hello").hash;
    let addresses = drive
        .sync
        .upload_addresses(&alice, id, &[hash])
        .await
        .unwrap();
    // The store itself refuses: the checksum is in the address.
    assert_ne!(http_put(&addresses[0], "hacked").await, 200);
    // And if it had not, as some stores keep what they refuse:
    drive.stage(id, &hash, "hacked").await;
    let confirmed = drive
        .sync
        .confirm_chunks(&alice, id, &[hash])
        .await
        .unwrap();
    assert_eq!(confirmed, [(hash, Confirmed::WrongContent)]);
    assert!(drive.chunks().await.is_empty(), "it does not count");
    let published = drive
        .sync
        .publish(&alice, id, &new("hello.txt"))
        .await
        .unwrap();
    let missing = vec![chunk("hello")];
    assert_eq!(published, Publication::Incomplete { missing });
    // The right bytes are taken after all.
    drive.stage(id, &hash, "hello").await;
    let confirmed = drive
        .sync
        .confirm_chunks(&alice, id, &[hash])
        .await
        .unwrap();
    assert_eq!(confirmed, [(hash, Confirmed::Present)]);
}

#[tokio::test]
async fn what_a_client_uploads_after_the_check_changes_nothing() {
    let drive = open().await;
    let alice = drive.alice();
    let id = drive.upload(&alice, "laptop", &["hello"]).await;
    drive.stage(&id, &chunk("hello").hash, "hacked").await;
    drive
        .sync
        .publish(&alice, &id, &new("hello.txt"))
        .await
        .unwrap();
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn a_chunk_that_was_never_uploaded_does_not_count() {
    let drive = open().await;
    let alice = drive.alice();
    let started = drive
        .sync
        .start_upload(&alice, "laptop", &request(&["hello"]))
        .await
        .unwrap();
    let id = &started.session.session_id;
    let hash = chunk("hello").hash;
    let confirmed = drive
        .sync
        .confirm_chunks(&alice, id, &[hash])
        .await
        .unwrap();
    assert_eq!(confirmed, [(hash, Confirmed::NotUploaded)]);
    let published = drive
        .sync
        .publish(&alice, id, &new("hello.txt"))
        .await
        .unwrap();
    assert!(matches!(published, Publication::Incomplete { .. }));
}

#[tokio::test]
async fn an_upload_resumes_by_session_or_by_fingerprint_and_sends_only_the_rest() {
    let drive = open().await;
    let alice = drive.alice();
    let wanted = request(&["one ", "two ", "three "]);
    let started = drive
        .sync
        .start_upload(&alice, "laptop", &wanted)
        .await
        .unwrap();
    let id = started.session.session_id;
    drive.stage(&id, &chunk("two ").hash, "two ").await;
    drive
        .sync
        .confirm_chunks(&alice, &id, &[chunk("two ").hash])
        .await
        .unwrap();
    let rest = [chunk("one "), chunk("three ")];

    let again = drive
        .sync
        .start_upload(&alice, "laptop", &wanted)
        .await
        .unwrap();
    assert!(again.resumed);
    assert_eq!(
        (again.session.session_id.as_str(), &again.missing[..]),
        (id.as_str(), &rest[..])
    );
    let again = drive.sync.resume_upload(&alice, &id).await.unwrap();
    assert_eq!(again.missing, rest);
    // Another device of hers, and another user, begin for themselves.
    let other = drive
        .sync
        .start_upload(&alice, "phone", &wanted)
        .await
        .unwrap();
    assert!(!other.resumed);
    let other = drive.sync.resume_upload(&drive.bob(), &id).await;
    assert!(matches!(other, Err(FileSyncError::NotFound(_))));
}

#[tokio::test]
async fn publishing_again_gets_the_first_outcome() {
    let drive = open().await;
    let alice = drive.alice();
    let id = drive.upload(&alice, "laptop", &["hello"]).await;
    let first = drive
        .sync
        .publish(&alice, &id, &new("hello.txt"))
        .await
        .unwrap();
    let again = drive
        .sync
        .publish(&alice, &id, &new("hello.txt"))
        .await
        .unwrap();
    assert_eq!(first, again);
    let other = drive
        .sync
        .publish(&alice, &id, &new("other.txt"))
        .await
        .unwrap();
    assert!(
        matches!(other, Publication::UsedFor(_)),
        "one upload, one publication"
    );
    assert_eq!(drive.versions().await.len(), 1);
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn a_publication_whose_answer_was_lost_is_a_success() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive.file(&alice, &ROOT(), "a.txt", &["one"]).await;
    let id = drive.upload(&alice, "laptop", &["two"]).await;
    let _tokenless = drive.cloud().tap().install(Arc::new(Tokenless));
    let transaction = |request: &Request| request.operation == "TransactWriteItems";
    let lost = Arc::new(LoseAnswer::to_first(transaction));
    let _installed = drive.cloud().tap().install(lost.clone());
    let published = drive
        .sync
        .publish(&alice, &id, &edit_of(&file))
        .await
        .unwrap();
    assert!(
        matches!(published, Publication::Published { version: 2, .. }),
        "it is no conflict with itself: {published:?}"
    );
    assert!(lost.seen() > 1, "it was sent again");
    assert_eq!(drive.versions().await.len(), 2);
    drive.invariants().await.unwrap();
}

/// DynamoDB cancels a transaction while another one has one of its items. Whoever comes again gets through:
/// with an upload that pins what is there and stores what is not, a publication, and a collection.
#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again() {
    let drive = open().await;
    let alice = drive.alice();
    drive.file(&alice, &ROOT(), "a.txt", &["one"]).await;
    let in_the_way = || {
        let conflicts = Arc::new(Conflicts::on("TransactWriteItems", 2));
        (drive.cloud().tap().install(conflicts.clone()), conflicts)
    };
    let (plan, pinning) = in_the_way();
    let pieces = ["one", "two"];
    let started = drive
        .sync
        .start_upload(&alice, "laptop", &request(&pieces))
        .await
        .unwrap();
    assert_eq!(
        (started.missing.as_slice(), pinning.left()),
        (&[chunk("two")][..], 0)
    );
    drop(plan);
    let id = &started.session.session_id;
    drive.stage(id, &chunk("two").hash, "two").await;
    let (plan, storing) = in_the_way();
    let confirmed = drive
        .sync
        .confirm_chunks(&alice, id, &[chunk("two").hash])
        .await
        .unwrap();
    assert_eq!((confirmed[0].1, storing.left()), (Confirmed::Present, 0));
    drop(plan);
    let (plan, publishing) = in_the_way();
    let published = drive.sync.publish(&alice, id, &new("b.txt")).await.unwrap();
    assert!(matches!(
        published,
        Publication::Published { version: 1, .. }
    ));
    assert_eq!(publishing.left(), 0);
    drop(plan);
    drive.upload(&alice, "laptop", &["never published"]).await;
    later(&drive, SESSION_LASTS);
    let (_plan, collecting) = in_the_way();
    let done = drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert_eq!((done.condemned.len(), collecting.left()), (1, 0));
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn a_publication_that_gets_no_answer_at_all_is_looked_up() {
    let drive = open().await;
    let alice = drive.alice();
    let id = drive.upload(&alice, "laptop", &["hello"]).await;
    let deaf = drive.cloud().tap().install(Arc::new(Deaf));
    let published = drive
        .sync
        .publish(&alice, &id, &new("hello.txt"))
        .await
        .unwrap();
    assert!(matches!(
        published,
        Publication::Published { version: 1, .. }
    ));
    drop(deaf);
    assert_eq!(drive.entries().await.len(), 1);
    drive.invariants().await.unwrap();
}

// The head.

#[tokio::test]
async fn the_head_moves_only_from_the_version_the_edit_began_with() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive.file(&alice, &ROOT(), "a.txt", &["base"]).await;
    drive.edit(&alice, &file, &["first"]).await;
    // The phone has not seen that.
    let id = drive.upload(&alice, "phone", &["second"]).await;
    let published = drive
        .sync
        .publish(&alice, &id, &edit_of(&file))
        .await
        .unwrap();
    let Publication::ConflictCopy { entry: copy, of } = published.clone() else {
        panic!()
    };
    assert_eq!(of, file.entry_id);
    assert_eq!(copy.name, "a (conflicted copy of phone).txt");
    assert_eq!(drive.content(&alice, &file.entry_id, None).await, "first");
    assert_eq!(drive.content(&alice, &copy.entry_id, None).await, "second");
    let again = drive
        .sync
        .publish(&alice, &id, &edit_of(&file))
        .await
        .unwrap();
    assert_eq!(again, published, "and told again");
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn conflict_copies_of_one_device_are_counted() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive.file(&alice, &ROOT(), "a.txt", &["base"]).await;
    drive.edit(&alice, &file, &["first"]).await;
    for (content, name) in [
        ("second", "a (conflicted copy of phone).txt"),
        ("third", "a (conflicted copy of phone 2).txt"),
    ] {
        let id = drive.upload(&alice, "phone", &[content]).await;
        let published = drive
            .sync
            .publish(&alice, &id, &edit_of(&file))
            .await
            .unwrap();
        let Publication::ConflictCopy { entry, .. } = published else {
            panic!()
        };
        assert_eq!(entry.name, name);
    }
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn an_edit_of_a_deleted_file_comes_back_as_a_copy() {
    let drive = open().await;
    let alice = drive.alice();
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["base"])
        .await;
    let deleted = drive
        .sync
        .delete_entry(&alice, "laptop", &file.entry_id, Some(1))
        .await;
    assert!(matches!(deleted.unwrap(), Deletion::Deleted(_)));
    let deleted = drive
        .sync
        .delete_entry(&alice, "laptop", &folder.entry_id, None)
        .await;
    assert!(matches!(deleted.unwrap(), Deletion::Deleted(_)));
    let id = drive.upload(&alice, "phone", &["edited"]).await;
    let published = drive
        .sync
        .publish(&alice, &id, &edit_of(&file))
        .await
        .unwrap();
    let Publication::ConflictCopy { entry, .. } = published else {
        panic!()
    };
    assert_eq!(
        entry.parent,
        ROOT(),
        "its folder is gone, so it is at the top"
    );
    assert_eq!(drive.content(&alice, &entry.entry_id, None).await, "edited");
    drive.invariants().await.unwrap();
}

// The namespace.

#[tokio::test]
async fn a_name_is_used_once_in_a_folder_whatever_its_case_or_composition() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive
        .file(&alice, &ROOT(), "R\u{e9}sum\u{e9}.txt", &["cv"])
        .await;
    let id = drive.upload(&alice, "phone", &["other"]).await;
    let published = drive
        .sync
        .publish(&alice, &id, &new("RE\u{301}SUME\u{301}.TXT"))
        .await
        .unwrap();
    let Publication::NameTaken(taken) = published else {
        panic!("{published:?}")
    };
    assert_eq!(taken.entry_id, file.entry_id);
    assert_eq!(
        taken.to_string(),
        "there is 'R\u{e9}sum\u{e9}.txt' already, and names must differ in more than case or accents' composition"
    );
    let created = drive
        .sync
        .create_folder(&alice, "phone", &ROOT(), "r\u{e9}sum\u{e9}.TXT")
        .await;
    assert!(matches!(created.unwrap(), Created::NameTaken(_)));
    // The session is still good, under another name.
    let published = drive
        .sync
        .publish(&alice, &id, &new("other.txt"))
        .await
        .unwrap();
    let Publication::Published { entry, .. } = published else {
        panic!()
    };
    let moved = drive
        .sync
        .rename_or_move(
            &alice,
            "phone",
            &entry.entry_id,
            &ROOT(),
            "r\u{e9}sum\u{e9}.txt",
        )
        .await
        .unwrap();
    assert!(matches!(moved, Moved::NameTaken(_)));
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn renaming_and_moving_leave_identity_versions_and_chunks() {
    let drive = open().await;
    let alice = drive.alice();
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive.file(&alice, &ROOT(), "a.txt", &["text"]).await;
    let (versions, chunks) = (drive.versions().await, drive.chunks().await);
    let sync = &drive.sync;
    for (parent, name) in [
        (ROOT(), "b.txt"),
        (folder.entry_id.clone(), "b.txt"),
        (folder.entry_id.clone(), "B.txt"),
        (ROOT(), "A.txt"),
    ] {
        let moved = sync
            .rename_or_move(&alice, "laptop", &file.entry_id, &parent, name)
            .await;
        let Moved::Moved(entry) = moved.unwrap() else {
            panic!("{name}")
        };
        assert_eq!((&entry.parent, entry.name.as_str()), (&parent, name));
        drive.invariants().await.unwrap();
    }
    assert_eq!(drive.versions().await, versions);
    assert_eq!(drive.chunks().await, chunks);
    let listed = sync.list(&alice, &ROOT()).await.unwrap();
    let names: Vec<_> = listed.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["A.txt", "Papers"]);
}

#[tokio::test]
async fn a_folder_never_goes_into_itself() {
    let drive = open().await;
    let alice = drive.alice();
    let a = drive.folder(&alice, &ROOT(), "a").await;
    let b = drive.folder(&alice, &a.entry_id, "b").await;
    let c = drive.folder(&alice, &b.entry_id, "c").await;
    for below in [&a, &b, &c] {
        let moved = drive
            .sync
            .rename_or_move(&alice, "laptop", &a.entry_id, &below.entry_id, "a2")
            .await;
        assert_eq!(moved.unwrap(), Moved::IntoItself);
    }
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn only_an_empty_folder_and_only_the_version_that_was_seen_is_deleted() {
    let drive = open().await;
    let alice = drive.alice();
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["text"])
        .await;
    let sync = &drive.sync;
    let deleted = sync
        .delete_entry(&alice, "laptop", &folder.entry_id, None)
        .await
        .unwrap();
    assert_eq!(deleted, Deletion::NotEmpty { children: 1 });
    let edited = drive.edit(&alice, &file, &["more"]).await;
    let deleted = sync
        .delete_entry(&alice, "phone", &file.entry_id, Some(1))
        .await
        .unwrap();
    assert_eq!(
        deleted,
        Deletion::Changed(edited),
        "the phone has not seen the edit"
    );
    let deleted = sync
        .delete_entry(&alice, "phone", &file.entry_id, Some(2))
        .await
        .unwrap();
    assert!(matches!(deleted, Deletion::Deleted(_)));
    let deleted = sync
        .delete_entry(&alice, "phone", &file.entry_id, Some(2))
        .await
        .unwrap();
    assert_eq!(deleted, Deletion::Already);
    let deleted = sync
        .delete_entry(&alice, "laptop", &folder.entry_id, None)
        .await
        .unwrap();
    assert!(matches!(deleted, Deletion::Deleted(_)));
    let created = sync
        .create_folder(&alice, "laptop", &folder.entry_id, "sub")
        .await;
    assert!(matches!(created, Err(FileSyncError::NotFound("folder"))));
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn every_version_of_a_live_or_deleted_file_can_be_restored() {
    let drive = open().await;
    let alice = drive.alice();
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["one"])
        .await;
    let id = &file.entry_id;
    drive.edit(&alice, &file, &["two"]).await;
    let sync = &drive.sync;
    let restored = sync.restore_version(&alice, "laptop", id, 1).await.unwrap();
    assert_eq!((restored.version, restored.status), (3, EntryStatus::Live));
    assert_eq!(drive.content(&alice, id, None).await, "one");
    // Deleted, its name taken and its folder gone: it comes back all the same.
    sync.delete_entry(&alice, "laptop", id, Some(3))
        .await
        .unwrap();
    sync.delete_entry(&alice, "laptop", &folder.entry_id, None)
        .await
        .unwrap();
    drive.file(&alice, &ROOT(), "A.TXT", &["another"]).await;
    let restored = sync.restore_version(&alice, "laptop", id, 2).await.unwrap();
    assert_eq!(restored.parent, ROOT());
    assert_eq!(restored.name, "a (conflicted copy of laptop).txt");
    assert_eq!(drive.content(&alice, id, None).await, "two");
    let log = sync.log(&alice, id).await.unwrap();
    let told: Vec<_> = log
        .iter()
        .map(|one| (one.version, one.restored_from))
        .collect();
    assert_eq!(told, [(4, Some(2)), (3, Some(1)), (2, None), (1, None)]);
    let unknown = sync.restore_version(&alice, "laptop", id, 9).await;
    assert!(matches!(unknown, Err(FileSyncError::NotFound("version"))));
    drive.invariants().await.unwrap();
}

// The feed.

#[tokio::test]
async fn a_device_that_was_away_reads_every_change_once_in_order_in_pages() {
    let drive = open().await;
    let alice = drive.alice();
    for name in ["a", "b", "c", "d", "e"] {
        drive.folder(&alice, &ROOT(), name).await;
    }
    let (mut cursor, mut names, mut pages) = (0, Vec::new(), 0);
    loop {
        let page = drive
            .sync
            .changes_page(&alice, "phone", cursor, 2)
            .await
            .unwrap();
        names.extend(page.changes.iter().map(|change| change.entry.name.clone()));
        cursor = page.cursor;
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!((cursor, pages), (5, 3));
    let page = drive.sync.changes(&alice, "phone", cursor).await.unwrap();
    assert!(page.changes.is_empty() && !page.more && page.cursor == 5);
    assert_eq!(drive.sync.device_cursor(&alice, "phone").await.unwrap(), 5);
    // A question from before, that comes late, does not put it back.
    drive.sync.changes(&alice, "phone", 2).await.unwrap();
    assert_eq!(drive.sync.device_cursor(&alice, "phone").await.unwrap(), 5);
    assert_eq!(drive.sync.device_cursor(&alice, "laptop").await.unwrap(), 0);
}

#[tokio::test]
async fn the_feed_tells_every_kind_of_change() {
    let drive = open().await;
    let alice = drive.alice();
    let file = drive.file(&alice, &ROOT(), "a.txt", &["one"]).await;
    let id = &file.entry_id;
    drive.edit(&alice, &file, &["two"]).await;
    drive
        .sync
        .rename_or_move(&alice, "laptop", id, &ROOT(), "b.txt")
        .await
        .unwrap();
    drive
        .sync
        .delete_entry(&alice, "laptop", id, None)
        .await
        .unwrap();
    drive
        .sync
        .restore_version(&alice, "laptop", id, 1)
        .await
        .unwrap();
    let feed = drive.sync.changes(&alice, "phone", 0).await.unwrap();
    let kinds: Vec<_> = feed.changes.iter().map(|change| change.kind).collect();
    use ChangeKind::*;
    assert_eq!(kinds, [Created, Updated, Moved, Deleted, Restored]);
    drive.invariants().await.unwrap();
}

// Sharing.

#[tokio::test]
async fn without_a_share_there_is_nothing_to_see() {
    let drive = open().await;
    let (alice, bob) = (drive.alice(), drive.bob());
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["secret"])
        .await;
    let (hers, nobodys) = (file.entry_id.clone(), EntryId::from("entry-of-nobody"));
    let sync = &drive.sync;
    let id = drive.upload(&bob, "phone", &["mine"]).await;
    // For what is hers and for what does not exist, the very same words.
    let mut told = Vec::new();
    for entry in [&hers, &nobodys] {
        let edit = Target::Existing {
            entry: entry.clone(),
            base_version: 1,
        };
        let hash = [chunk("secret").hash];
        told.push([
            format!("{:?}", sync.view_entry(&bob, entry).await),
            format!("{:?}", sync.download(&bob, entry, None).await),
            format!("{:?}", sync.download_addresses(&bob, entry, 1, &hash).await),
            format!("{:?}", sync.log(&bob, entry).await),
            format!("{:?}", sync.list(&bob, entry).await),
            format!("{:?}", sync.publish(&bob, &id, &edit).await),
            format!(
                "{:?}",
                sync.rename_or_move(&bob, "phone", entry, &ROOT(), "x")
                    .await
            ),
            format!("{:?}", sync.delete_entry(&bob, "phone", entry, None).await),
            format!("{:?}", sync.restore_version(&bob, "phone", entry, 1).await),
            format!(
                "{:?}",
                sync.share(&bob, entry, "eve", Permission::Read).await
            ),
            format!("{:?}", sync.unshare(&bob, entry, "eve").await),
        ]);
    }
    assert_eq!(told[0], told[1]);
    assert!(
        told[0].iter().all(|told| told.contains("NotFound")),
        "{told:?}"
    );
    let created = sync
        .create_folder(&bob, "phone", &folder.entry_id, "x")
        .await;
    assert!(matches!(created, Err(FileSyncError::NotFound(_))));
    assert!(sync.shared_with_me(&bob).await.unwrap().is_empty());
    assert!(
        sync.changes(&bob, "phone", 0)
            .await
            .unwrap()
            .changes
            .is_empty()
    );
}

#[tokio::test]
async fn another_tenant_does_not_learn_that_a_chunk_exists() {
    let drive = open().await;
    drive
        .file(&drive.alice(), &ROOT(), "a.txt", &["known"])
        .await;
    let stranger = Actor::new(drive.cloud().ids().next("tenant"), "alice");
    let started = drive
        .sync
        .start_upload(&stranger, "laptop", &request(&["known"]))
        .await
        .unwrap();
    assert_eq!(started.missing, [chunk("known")], "as if nobody had it");
    let id = &started.session.session_id;
    let confirmed = drive
        .sync
        .confirm_chunks(&stranger, id, &[chunk("known").hash])
        .await;
    assert_eq!(confirmed.unwrap()[0].1, Confirmed::NotUploaded);
}

#[tokio::test]
async fn a_hash_alone_opens_nothing() {
    let drive = open().await;
    let (alice, bob) = (drive.alice(), drive.bob());
    drive.file(&alice, &ROOT(), "a.txt", &["secret"]).await;
    let own = drive.file(&bob, &ROOT(), "b.txt", &["mine"]).await;
    let hash = chunk("secret").hash;
    let addresses = drive
        .sync
        .download_addresses(&bob, &own.entry_id, 1, &[hash])
        .await;
    assert!(matches!(
        addresses,
        Err(FileSyncError::BadInput(BadInput::NotItsChunk(_)))
    ));
}

#[tokio::test]
async fn a_share_gives_a_folder_and_all_that_is_in_it_for_reading_or_writing() {
    let drive = open().await;
    let (alice, bob) = (drive.alice(), drive.bob());
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let sub = drive.folder(&alice, &folder.entry_id, "2026").await;
    let file = drive.file(&alice, &sub.entry_id, "a.txt", &["text"]).await;
    let sync = &drive.sync;
    sync.share(&alice, &folder.entry_id, "bob", Permission::Read)
        .await
        .unwrap();
    let shared = sync.shared_with_me(&bob).await.unwrap();
    assert_eq!(shared[0].1.name, "Papers");
    assert_eq!(drive.content(&bob, &file.entry_id, None).await, "text");
    assert_eq!(sync.list(&bob, &sub.entry_id).await.unwrap().len(), 1);
    let created = sync.create_folder(&bob, "phone", &sub.entry_id, "x").await;
    assert!(matches!(created, Err(FileSyncError::ReadOnly)));
    let shared = sync
        .share(&bob, &file.entry_id, "eve", Permission::Read)
        .await;
    assert!(matches!(shared, Err(FileSyncError::NotOwner)));

    sync.share(&alice, &folder.entry_id, "bob", Permission::Write)
        .await
        .unwrap();
    let id = drive.upload(&bob, "phone", &["edited"]).await;
    let published = sync.publish(&bob, &id, &edit_of(&file)).await.unwrap();
    assert!(matches!(
        published,
        Publication::Published { version: 2, .. }
    ));
    // His late edit is beside hers, in the folder that both see.
    let id = drive.upload(&bob, "phone", &["late"]).await;
    let published = sync.publish(&bob, &id, &edit_of(&file)).await.unwrap();
    let Publication::ConflictCopy { entry, .. } = published else {
        panic!()
    };
    assert_eq!(
        (entry.owner.as_str(), &entry.parent),
        ("alice", &sub.entry_id)
    );
    let moved = sync
        .rename_or_move(&bob, "phone", &file.entry_id, &folder.entry_id, "b.txt")
        .await
        .unwrap();
    assert!(matches!(moved, Moved::Moved(_)));
    // Out of what is shared there is no way, and into his own there is none either.
    let moved = sync
        .rename_or_move(&bob, "phone", &file.entry_id, &ROOT(), "b.txt")
        .await;
    assert_eq!(moved.unwrap(), Moved::OtherOwner);
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn the_late_edit_of_a_guest_who_sees_one_file_only_goes_to_the_guest() {
    let drive = open().await;
    let (alice, bob) = (drive.alice(), drive.bob());
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["text"])
        .await;
    drive
        .sync
        .share(&alice, &file.entry_id, "bob", Permission::Write)
        .await
        .unwrap();
    drive.edit(&alice, &file, &["hers"]).await;
    let id = drive.upload(&bob, "phone", &["his"]).await;
    let published = drive
        .sync
        .publish(&bob, &id, &edit_of(&file))
        .await
        .unwrap();
    let Publication::ConflictCopy { entry, .. } = published else {
        panic!()
    };
    assert_eq!((entry.owner.as_str(), &entry.parent), ("bob", &ROOT()));
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn revocation_ends_access_at_once_also_for_uploads_that_were_begun() {
    let drive = open().await;
    let (alice, bob) = (drive.alice(), drive.bob());
    let folder = drive.folder(&alice, &ROOT(), "Papers").await;
    let file = drive
        .file(&alice, &folder.entry_id, "a.txt", &["text"])
        .await;
    let sync = &drive.sync;
    sync.share(&alice, &folder.entry_id, "bob", Permission::Write)
        .await
        .unwrap();
    let id = drive.upload(&bob, "phone", &["his"]).await;
    assert!(sync.unshare(&alice, &folder.entry_id, "bob").await.unwrap());
    let hash = [chunk("text").hash];
    let addresses = sync
        .download_addresses(&bob, &file.entry_id, 1, &hash)
        .await;
    assert!(matches!(addresses, Err(FileSyncError::NotFound(_))));
    let published = sync.publish(&bob, &id, &edit_of(&file)).await;
    assert!(matches!(published, Err(FileSyncError::NotFound(_))));
    let published = sync
        .publish(&bob, &id, &new_in(&folder.entry_id, "b.txt"))
        .await;
    assert!(matches!(published, Err(FileSyncError::NotFound(_))));
    assert!(sync.shared_with_me(&bob).await.unwrap().is_empty());
    assert!(!sync.unshare(&alice, &folder.entry_id, "bob").await.unwrap());
    // What he uploaded is his: he can publish it where he may.
    let published = sync.publish(&bob, &id, &new("b.txt")).await.unwrap();
    assert!(matches!(published, Publication::Published { .. }));
}

// Collecting.

#[tokio::test]
async fn unreachable_chunks_go_and_reachable_ones_stay() {
    let drive = open().await;
    let alice = drive.alice();
    let kept = drive
        .file(&alice, &ROOT(), "kept.txt", &["shared ", "kept"])
        .await;
    let gone = drive
        .file(&alice, &ROOT(), "gone.txt", &["shared ", "gone"])
        .await;
    let abandoned = drive.upload(&alice, "laptop", &["abandoned"]).await;
    drive
        .sync
        .delete_entry(&alice, "laptop", &gone.entry_id, None)
        .await
        .unwrap();

    // A tombstone can be restored, an upload can be resumed: nothing goes yet.
    let early = drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert!(early.condemned.is_empty() && early.pinned == 1, "{early:?}");
    assert_eq!(drive.chunks().await.len(), 4);

    later(&drive, DELETED_KEPT);
    let planned = drive
        .sync
        .garbage_collect(&drive.tenant, true)
        .await
        .unwrap();
    let before = (
        drive.chunks().await,
        drive.objects().await,
        drive.sessions().await,
    );
    let done = drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert_eq!(before.0.len(), 4, "a dry run writes nothing");
    let mut hashes: Vec<_> = done.condemned.iter().map(|chunk| chunk.hash).collect();
    hashes.sort();
    let mut expected = [chunk("gone").hash, chunk("abandoned").hash];
    expected.sort();
    assert_eq!(hashes, expected);
    assert_eq!(
        (planned.condemned, planned.expired, planned.purged),
        (
            done.condemned.clone(),
            done.expired.clone(),
            done.purged.clone(),
        )
    );
    assert_eq!(done.expired, [abandoned]);
    assert_eq!(done.purged, std::slice::from_ref(&gone.entry_id));
    assert_eq!(done.bytes(), "gone".len() as u64 + "abandoned".len() as u64);
    let publish = drive.sync.view_entry(&alice, &gone.entry_id).await;
    assert!(matches!(publish, Err(FileSyncError::NotFound(_))));
    assert_eq!(
        drive.content(&alice, &kept.entry_id, None).await,
        "shared kept"
    );
    drive.invariants().await.unwrap();

    // In the store is what the tables name, and nothing else.
    assert_eq!(drive.garbage().await, 0);
    assert!(drive.sessions().await.is_empty());
    let mut named: Vec<_> = drive
        .chunks()
        .await
        .into_iter()
        .map(|chunk| chunk.blob_key)
        .collect();
    named.extend(
        drive
            .versions()
            .await
            .into_iter()
            .map(|version| version.manifest_key),
    );
    named.sort();
    assert_eq!(drive.objects().await.into_iter().collect::<Vec<_>>(), named);
    assert!(
        drive
            .chunks()
            .await
            .iter()
            .all(|chunk| chunk.pins.is_empty())
    );
}

#[tokio::test]
async fn a_published_session_is_remembered_for_a_day_and_then_tidied_away() {
    let drive = open().await;
    let alice = drive.alice();
    let id = drive.upload(&alice, "laptop", &["hello"]).await;
    drive.stage(&id, &chunk("hello").hash, "left over").await;
    let first = drive
        .sync
        .publish(&alice, &id, &new("a.txt"))
        .await
        .unwrap();
    drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert_eq!(
        drive
            .sync
            .publish(&alice, &id, &new("a.txt"))
            .await
            .unwrap(),
        first
    );
    later(&drive, SESSION_KEPT);
    drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert!(drive.sessions().await.is_empty());
    assert_eq!(drive.objects().await.len(), 2, "a manifest and a chunk");
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn an_upload_that_takes_days_is_not_ended_while_it_goes_on() {
    let drive = open().await;
    let (alice, sync) = (drive.alice(), &drive.sync);
    let pieces = ["one", "two", "three", "four"];
    let started = sync.start_upload(&alice, "laptop", &request(&pieces)).await;
    let id = started.unwrap().session.session_id;
    for piece in pieces {
        later(&drive, SESSION_LASTS * 3 / 4);
        let hash = [chunk(piece).hash];
        sync.upload_addresses(&alice, &id, &hash).await.unwrap();
        drive.stage(&id, &hash[0], piece).await;
        sync.confirm_chunks(&alice, &id, &hash).await.unwrap();
        let done = sync.garbage_collect(&drive.tenant, false).await.unwrap();
        assert!(done.expired.is_empty() && done.condemned.is_empty());
    }
    let published = sync.publish(&alice, &id, &new("a.txt")).await.unwrap();
    assert!(matches!(published, Publication::Published { .. }));
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn an_expired_session_is_refused_and_one_that_is_resumed_is_not_expired() {
    let drive = open().await;
    let alice = drive.alice();
    let abandoned = drive.upload(&alice, "laptop", &["one"]).await;
    let resumed = drive.upload(&alice, "phone", &["two"]).await;
    later(&drive, SESSION_LASTS);
    drive.sync.resume_upload(&alice, &resumed).await.unwrap();
    let done = drive
        .sync
        .garbage_collect(&drive.tenant, true)
        .await
        .unwrap();
    assert_eq!(done.expired, std::slice::from_ref(&abandoned));
    let done = drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert_eq!(done.expired, std::slice::from_ref(&abandoned));
    let published = drive
        .sync
        .publish(&alice, &abandoned, &new("one.txt"))
        .await;
    assert_eq!(published.unwrap(), Publication::Expired);
    let published = drive
        .sync
        .publish(&alice, &resumed, &new("two.txt"))
        .await
        .unwrap();
    assert!(matches!(published, Publication::Published { .. }));
    // The same content again is uploaded again, under a new name in the store.
    drive.file(&alice, &ROOT(), "one.txt", &["one"]).await;
    drive.invariants().await.unwrap();
}

#[tokio::test]
async fn many_chunks_are_pinned_confirmed_condemned_and_unpinned() {
    let drive = open().await;
    let alice = drive.alice();
    // More than one transaction of each.
    let texts: Vec<_> = (0..210).map(|n| format!("chunk {n} ")).collect();
    let pieces: Vec<_> = texts.iter().map(String::as_str).collect();
    let file = drive.file(&alice, &ROOT(), "many.txt", &pieces).await;
    assert_eq!(
        drive.content(&alice, &file.entry_id, None).await,
        texts.concat()
    );
    let again = drive
        .sync
        .start_upload(&drive.bob(), "phone", &request(&pieces))
        .await
        .unwrap();
    assert!(again.missing.is_empty());
    later(&drive, SESSION_LASTS);
    drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert!(
        drive
            .chunks()
            .await
            .iter()
            .all(|chunk| chunk.pins.is_empty())
    );
    drive
        .sync
        .delete_entry(&alice, "laptop", &file.entry_id, None)
        .await
        .unwrap();
    later(&drive, DELETED_KEPT);
    let done = drive
        .sync
        .garbage_collect(&drive.tenant, false)
        .await
        .unwrap();
    assert_eq!(done.condemned.len(), 210);
    assert!(drive.chunks().await.is_empty() && drive.objects().await.is_empty());
}

#[tokio::test]
async fn a_manifest_that_cannot_be_read_ends_a_collection_before_anything_is_deleted() {
    let drive = open().await;
    let alice = drive.alice();
    drive.file(&alice, &ROOT(), "a.txt", &["kept"]).await;
    let version = drive.versions().await.remove(0);
    let cloud = drive.cloud().beside_tap();
    let bucket = cloud.names().bucket(file_sync::tables::BUCKET);
    let put = cloud
        .s3()
        .put_object()
        .bucket(bucket)
        .key(&version.manifest_key);
    put.body(Manifest::default().encode().into())
        .send()
        .await
        .unwrap();
    later(&drive, SESSION_KEPT);
    let done = drive.sync.garbage_collect(&drive.tenant, false).await;
    assert!(matches!(done, Err(FileSyncError::Fault(_))), "{done:?}");
    assert_eq!(drive.chunks().await.len(), 1);
}

// Input.

#[tokio::test]
async fn bad_input_is_refused_in_words_and_nothing_is_written() {
    let drive = open().await;
    let alice = drive.alice();
    let recording = drive.cloud().tap().record();
    let sync = &drive.sync;
    let long = "x".repeat(256);
    for (name, why) in [
        ("", "'' has a name that is empty or '.'"),
        ("..", "'..' leads out of the directory"),
        (
            "a/b",
            "'a/b' has '/' in a name: not every device can have that",
        ),
        (
            "a\\b",
            "'a\\b' has '\\\\' in a name: not every device can have that",
        ),
        (
            "a\0",
            "'a\0' has '\\0' in a name: not every device can have that",
        ),
        ("CON", "'CON' has a name that means a device on Windows"),
        (
            "name.",
            "'name.' has a name that ends with a dot or a space: Windows drops it",
        ),
    ] {
        let refused = sync
            .create_folder(&alice, "laptop", &ROOT(), name)
            .await
            .unwrap_err();
        assert_eq!(refused.to_string(), why);
        let refused = sync
            .publish(&alice, "session", &new(name))
            .await
            .unwrap_err();
        assert_eq!(refused.to_string(), why);
        let id = EntryId::from("entry");
        let refused = sync
            .rename_or_move(&alice, "laptop", &id, &ROOT(), name)
            .await;
        assert_eq!(refused.unwrap_err().to_string(), why);
    }
    assert!(
        sync.create_folder(&alice, "laptop", &ROOT(), &long)
            .await
            .is_err()
    );
    assert!(
        sync.create_folder(&alice, "lap top", &ROOT(), "a")
            .await
            .is_err()
    );
    let stranger = Actor::new("a#b", "alice");
    let refused = sync
        .create_folder(&stranger, "laptop", &ROOT(), "a")
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the tenant 'a#b' must be 1 to 64 letters, digits, '.', '_', '@' or '-', and not only dots"
    );
    let torn = UploadRequest {
        size: 7,
        ..request(&["hello"])
    };
    let refused = sync
        .start_upload(&alice, "laptop", &torn)
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the chunks have 5 bytes together, the file has 7"
    );
    let root = sync
        .delete_entry(&alice, "laptop", &ROOT(), None)
        .await
        .unwrap_err();
    assert_eq!(root.to_string(), "the top folder cannot be deleted");
    let own = sync
        .share(&alice, &EntryId::from("entry"), "alice", Permission::Read)
        .await;
    assert_eq!(own.unwrap_err().to_string(), "'alice' owns it already");
    assert!("zz".parse::<ChunkHash>().is_err());
    assert!(recording.take().is_empty(), "no call was made");
}

/// Bob may write to what is shared with him. Where it is, he sees nothing: not which names are taken, and
/// nothing he does goes there.
#[tokio::test]
async fn a_guest_neither_learns_nor_changes_anything_outside_the_share() {
    let drive = open().await;
    let (alice, bob, sync) = (drive.alice(), drive.bob(), &drive.sync);
    let photos = drive.folder(&alice, &ROOT(), "photos").await;
    drive.file(&alice, &ROOT(), "Taxes", &["secret"]).await;
    sync.share(&alice, &photos.entry_id, "bob", Permission::Write)
        .await
        .unwrap();
    for name in ["taxes", "free"] {
        let moved = sync
            .rename_or_move(&bob, "phone", &photos.entry_id, &ROOT(), name)
            .await
            .unwrap();
        assert_eq!(moved, Moved::OtherOwner, "{name}");
    }
    // In a folder that is not shared with him, neither.
    let outer = drive.folder(&alice, &ROOT(), "outer").await;
    let inner = drive.folder(&alice, &outer.entry_id, "inner").await;
    drive.file(&alice, &outer.entry_id, "Taxes", &["too"]).await;
    sync.share(&alice, &inner.entry_id, "bob", Permission::Write)
        .await
        .unwrap();
    for name in ["taxes", "free"] {
        let moved = sync
            .rename_or_move(&bob, "phone", &inner.entry_id, &outer.entry_id, name)
            .await;
        assert!(matches!(moved, Err(FileSyncError::NotFound("folder"))));
    }
    // What was in a folder that is gone comes back for its owner, at the top.
    let sub = drive.folder(&alice, &photos.entry_id, "sub").await;
    let file = drive.file(&alice, &sub.entry_id, "x", &["x"]).await;
    for gone in [&file.entry_id, &sub.entry_id] {
        sync.delete_entry(&alice, "laptop", gone, None)
            .await
            .unwrap();
    }
    let restored = sync.restore_version(&bob, "phone", &file.entry_id, 1).await;
    assert!(matches!(restored, Err(FileSyncError::NotFound("folder"))));
    // A file that was shared by itself comes back for its owner only, whether its name is taken or not.
    let single = drive.file(&alice, &ROOT(), "single", &["x"]).await;
    sync.share(&alice, &single.entry_id, "bob", Permission::Write)
        .await
        .unwrap();
    sync.delete_entry(&alice, "laptop", &single.entry_id, None)
        .await
        .unwrap();
    let restored = sync
        .restore_version(&bob, "phone", &single.entry_id, 1)
        .await;
    assert!(matches!(restored, Err(FileSyncError::NotFound("folder"))));
    // In the folder that is shared with him he may do both.
    let inside = drive.file(&alice, &photos.entry_id, "in", &["y"]).await;
    sync.rename_or_move(&bob, "phone", &inside.entry_id, &photos.entry_id, "renamed")
        .await
        .unwrap();
    sync.delete_entry(&bob, "phone", &inside.entry_id, None)
        .await
        .unwrap();
    let back = sync
        .restore_version(&bob, "phone", &inside.entry_id, 1)
        .await
        .unwrap();
    assert_eq!(
        (back.name.as_str(), back.parent),
        ("renamed", photos.entry_id)
    );
    let back = sync
        .restore_version(&alice, "laptop", &file.entry_id, 1)
        .await
        .unwrap();
    assert!(back.parent.is_root());
    drive.invariants().await.unwrap();
}

/// The upload of a chunk that is said to have 500 bytes.
fn lie_about(piece: &str) -> UploadRequest {
    let chunk = ChunkRef {
        length: 500,
        ..chunk(piece)
    };
    UploadRequest::from(&Chunked::of(vec![chunk]))
}

/// Devices that have the fingerprint do not fetch the file: with another file's they would keep what they
/// have, for ever.
#[tokio::test]
async fn a_fingerprint_that_is_not_that_of_the_chunks_is_refused() {
    let drive = open().await;
    let mut lie = request(&["other"]);
    lie.fingerprint = request(&["hello"]).fingerprint;
    let refused = drive.sync.start_upload(&drive.bob(), "phone", &lie).await;
    assert!(matches!(
        refused,
        Err(FileSyncError::BadInput(BadInput::Fingerprint(_)))
    ));
}

#[tokio::test]
async fn ids_of_64_characters_work_and_dots_alone_do_not() {
    let drive = open().await;
    let longest = "t".repeat(64);
    let drive = Drive {
        tenant: longest.clone(),
        ..drive
    };
    let user = drive.actor(&longest);
    let file = drive.file(&user, &ROOT(), "a.txt", &["hello"]).await;
    let content = drive.content(&user, &file.entry_id, None).await;
    assert_eq!(content, "hello");
    drive.invariants().await.unwrap();
    for dots in [".", "..", "..."] {
        let refused = drive.sync.list(&Actor::new(dots, "alice"), &ROOT()).await;
        let told = refused.unwrap_err().to_string();
        assert!(told.contains("not only dots"), "{told}");
    }
}

#[tokio::test]
async fn a_client_that_lies_about_a_length_is_refused() {
    let drive = open().await;
    let alice = drive.alice();
    drive.file(&alice, &ROOT(), "a.txt", &["hello"]).await;
    let lie = lie_about("hello");
    let refused = drive.sync.start_upload(&drive.bob(), "phone", &lie).await;
    assert!(matches!(
        refused,
        Err(FileSyncError::BadInput(BadInput::TwoLengths(_)))
    ));
    // Or about one that is not there yet: it is found when it is.
    let lie = lie_about("other");
    let started = drive
        .sync
        .start_upload(&alice, "laptop", &lie)
        .await
        .unwrap();
    let id = &started.session.session_id;
    drive.stage(id, &chunk("other").hash, "other").await;
    drive
        .sync
        .confirm_chunks(&alice, id, &[chunk("other").hash])
        .await
        .unwrap();
    let refused = drive.sync.publish(&alice, id, &new("b.txt")).await;
    assert!(matches!(
        refused,
        Err(FileSyncError::BadInput(BadInput::TwoLengths(_)))
    ));
}
