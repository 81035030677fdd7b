//! Every order of the calls of two or three actions, each in a fresh world.
#![allow(clippy::unwrap_used)]

mod drive;

use chaos::{Explored, Interleave, World};
use cloud::item::{n, s};
use drive::*;
use file_sync::domain::SESSION_LASTS;
use file_sync::{
    Confirmed, Created, Deletion, EntryId, FileSync, FileSyncError, Moved, Permission, Publication,
    Target,
};
use std::time::Duration;

const ROOT: fn() -> EntryId = EntryId::root;

/// What an actor was told, in a word or two.
type Told = String;

/// After every order the invariants hold. The label is what everybody was told.
fn checked(actors: Interleave<Drive, Told>) -> Interleave<Drive, Told> {
    actors.check(|drive, told| async move {
        drive.invariants().await?;
        let told = told.iter().map(|(who, told)| format!("{who} {told}"));
        Ok(told.collect::<Vec<_>>().join(", "))
    })
}

async fn explore(actors: Interleave<Drive, Told>) -> Explored {
    checked(actors).run().await.unwrap()
}

#[track_caller]
fn ends(explored: &Explored, expected: &[&str]) {
    let seen: Vec<_> = explored.seen.keys().map(String::as_str).collect();
    assert_eq!(seen, expected);
}

fn word(published: Result<Publication, FileSyncError>) -> Told {
    match published {
        Ok(Publication::Published { version, .. }) => format!("made version {version}"),
        Ok(Publication::ConflictCopy { .. }) => "made a copy".into(),
        Ok(Publication::NameTaken(_)) => "found the name taken".into(),
        Ok(Publication::Incomplete { .. }) => "lacks chunks".into(),
        Ok(Publication::Expired) => "came too late".into(),
        Ok(Publication::UsedFor(_)) => "had published something else".into(),
        Err(FileSyncError::NotFound(_)) => "found nothing".into(),
        Err(error) => panic!("{error}"),
    }
}

/// Each order in a tenant of its own, all on one cloud: for worlds without objects, whose keys tell tenants
/// apart. Nothing is shared between tenants, and making tables for every order takes time.
async fn each<F, Fut>(setup: F) -> Interleave<Drive, Told>
where
    F: Fn(Drive) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Drive> + Send + 'static,
{
    let cloud = open().await.cloud().clone();
    Interleave::of(move || setup(another_on(cloud.clone())))
}

/// A drive with one file, and a session of each device that is ready to publish an edit of it.
async fn two_edits() -> Drive {
    let drive = open().await;
    let alice = drive.alice();
    drive.file(&alice, &ROOT(), "a.txt", &["base"]).await;
    // Of nothing, so that fewer calls are about chunks: every order of all of them is run.
    for device in ["laptop", "phone"] {
        drive.upload(&alice, device, &[]).await;
    }
    drive
}

async fn publish_edit(sync: &FileSync, drive: &Drive, device: &str) -> Told {
    let sessions = drive.sessions().await;
    let session = sessions.iter().find(|session| {
        session.device == device && session.status == file_sync::SessionStatus::Open
    });
    let session = session.unwrap().session_id.clone();
    let file = drive.entries().await.remove(0);
    let target = Target::Existing {
        entry: file.entry_id,
        base_version: 1,
    };
    word(sync.publish(&drive.alice(), &session, &target).await)
}

#[tokio::test]
async fn of_two_edits_of_one_version_one_is_the_head_and_the_other_a_copy() {
    // The phone publishes in one go, at every place between two calls of the laptop. Whoever loses decides
    // again after the other is done, so no other order gives anything else.
    let actors = Interleave::of(two_edits)
        .actor("laptop", |drive| async move {
            publish_edit(&drive.sync, &drive, "laptop").await
        })
        .actor("phone", |drive| async move {
            turn(&drive).await;
            publish_edit(&drive.beside(), &drive, "phone").await
        });
    let explored = explore(actors).await;
    ends(
        &explored,
        &[
            "laptop made a copy, phone made version 2",
            "laptop made version 2, phone made a copy",
        ],
    );
}

#[tokio::test]
async fn an_edit_and_a_rename_both_count_and_the_feed_tells_both() {
    let actors = Interleave::of(two_edits)
        .actor("laptop", |drive| async move {
            publish_edit(&drive.sync, &drive, "laptop").await
        })
        .actor("phone", |drive| async move {
            rename(&drive, 0, &ROOT(), "b.txt").await
        });
    let explored = checked(actors)
        .check(|drive, told| async move {
            drive.invariants().await?;
            let file = &drive.entries().await[0];
            match (file.version, file.name.as_str()) {
                (2, "b.txt") => Ok(format!("{told:?}")),
                other => Err(format!("the file is {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert!(explored.schedules > 10, "{}", explored.schedules);
}

#[tokio::test]
async fn an_edit_and_a_deletion_lose_nothing() {
    let actors = Interleave::of(two_edits)
        .actor("laptop", |drive| async move {
            publish_edit(&drive.sync, &drive, "laptop").await
        })
        .actor("phone", |drive| async move {
            let file = drive.entries().await.remove(0).entry_id;
            let deleted = drive
                .sync
                .delete_entry(&drive.alice(), "phone", &file, Some(1))
                .await;
            match deleted.unwrap() {
                Deletion::Deleted(_) => "deleted it".into(),
                Deletion::Changed(_) => "saw that it changed".into(),
                other => panic!("{other:?}"),
            }
        });
    let explored = explore(actors).await;
    ends(
        &explored,
        &[
            "laptop made a copy, phone deleted it",
            "laptop made version 2, phone saw that it changed",
        ],
    );
}

#[tokio::test]
async fn the_same_publication_sent_twice_at_once_is_one() {
    let actors = Interleave::of(two_edits)
        .actor("laptop", |drive| async move {
            publish_edit(&drive.sync, &drive, "laptop").await
        })
        .actor("again", |drive| async move {
            let sessions = drive.sessions().await;
            let session = sessions.iter().rfind(|session| session.device == "laptop");
            let id = session.unwrap().session_id.clone();
            let target = Target::Existing {
                entry: drive.entries().await.remove(0).entry_id,
                base_version: 1,
            };
            turn(&drive).await;
            word(drive.beside().publish(&drive.alice(), &id, &target).await)
        });
    let explored = explore(actors).await;
    ends(&explored, &["laptop made version 2, again made version 2"]);
}

async fn rename(drive: &Drive, which: usize, parent: &EntryId, name: &str) -> Told {
    let entry = drive.entries().await.remove(which).entry_id;
    let moved = drive
        .sync
        .rename_or_move(&drive.alice(), "laptop", &entry, parent, name)
        .await;
    match moved.unwrap() {
        Moved::Moved(_) => "moved".into(),
        Moved::NameTaken(_) => "found the name taken".into(),
        Moved::IntoItself => "would be in itself".into(),
        Moved::OtherOwner => panic!("another owner"),
    }
}

/// Two folders at the top.
async fn two_folders(drive: Drive) -> Drive {
    for name in ["a", "b"] {
        drive.folder(&drive.alice(), &ROOT(), name).await;
    }
    drive
}

#[tokio::test]
async fn two_folders_that_are_moved_into_each_other_never_make_a_circle() {
    let actors = each(two_folders)
        .await
        .actor("one", |drive| async move {
            let into = drive.entries().await.remove(1).entry_id;
            rename(&drive, 0, &into, "a").await
        })
        .actor("other", |drive| async move {
            let into = drive.entries().await.remove(0).entry_id;
            rename(&drive, 1, &into, "b").await
        });
    let explored = explore(actors).await;
    ends(
        &explored,
        &[
            "one moved, other would be in itself",
            "one would be in itself, other moved",
        ],
    );
}

#[tokio::test]
async fn two_entries_never_get_one_name() {
    let actors = each(two_folders)
        .await
        .actor("one", |drive| async move {
            rename(&drive, 0, &ROOT(), "New").await
        })
        .actor("other", |drive| async move {
            let made = drive
                .sync
                .create_folder(&drive.alice(), "phone", &ROOT(), "NEW")
                .await;
            match made.unwrap() {
                Created::Folder(_) => "created".into(),
                Created::NameTaken(_) => "found the name taken".into(),
            }
        });
    let explored = explore(actors).await;
    ends(
        &explored,
        &[
            "one found the name taken, other created",
            "one moved, other found the name taken",
        ],
    );
}

#[tokio::test]
async fn nothing_is_put_into_a_folder_that_is_deleted_meanwhile() {
    let actors = each(two_folders)
        .await
        .actor("deleter", |drive| async move {
            let folder = drive.entries().await.remove(0).entry_id;
            let deleted = drive
                .sync
                .delete_entry(&drive.alice(), "laptop", &folder, None)
                .await;
            match deleted.unwrap() {
                Deletion::Deleted(_) => "deleted it".into(),
                Deletion::NotEmpty { .. } => "found something in it".into(),
                other => panic!("{other:?}"),
            }
        })
        .actor("creator", |drive| async move {
            let folder = drive.entries().await.remove(0).entry_id;
            let made = drive
                .sync
                .create_folder(&drive.alice(), "phone", &folder, "sub")
                .await;
            match made {
                Ok(Created::Folder(_)) => "created".into(),
                Err(FileSyncError::NotFound(_)) => "found no folder".into(),
                other => panic!("{other:?}"),
            }
        });
    let explored = explore(actors).await;
    ends(
        &explored,
        &[
            "deleter deleted it, creator found no folder",
            "deleter found something in it, creator created",
        ],
    );
}

#[tokio::test]
async fn a_guest_whose_share_is_taken_back_publishes_before_that_or_not_at_all() {
    let shared = || async {
        let drive = open().await;
        let alice = drive.alice();
        let file = drive.file(&alice, &ROOT(), "a.txt", &["base"]).await;
        let sync = drive.beside();
        let share = sync.share(&alice, &file.entry_id, "bob", Permission::Write);
        share.await.unwrap();
        drive.upload(&drive.bob(), "phone", &["his"]).await;
        drive
    };
    let actors = Interleave::of(shared)
        .actor("bob", |drive| async move {
            let sessions = drive.sessions().await;
            let session = sessions.iter().find(|session| session.user == "bob");
            let target = Target::Existing {
                entry: drive.entries().await.remove(0).entry_id,
                base_version: 1,
            };
            let id = &session.unwrap().session_id;
            word(drive.sync.publish(&drive.bob(), id, &target).await)
        })
        .actor("alice", |drive| async move {
            let file = drive.entries().await.remove(0).entry_id;
            let taken = drive.sync.unshare(&drive.alice(), &file, "bob").await;
            assert!(taken.unwrap());
            let seen = drive.beside().view_entry(&drive.alice(), &file).await;
            format!("took it back at version {}", seen.unwrap().version)
        });
    // Whatever Alice sees right after she took it back is final.
    let explored = actors
        .check(|drive, told| async move {
            drive.invariants().await?;
            let version = drive.entries().await[0].version;
            let at = format!("took it back at version {version}");
            match told[1].1 == at {
                true => Ok(told[0].1.clone()),
                false => Err(format!("{told:?}, and now it is version {version}")),
            }
        })
        .run()
        .await
        .unwrap();
    ends(&explored, &["found nothing", "made version 2"]);
}

// Uploading, publishing and collecting. A collection reads and writes some ten times, an upload some
// fifteen: all orders of all calls are millions. So, first, each step of an upload against the half of a
// collection that decides, call by call; then the whole upload, step by step, against whole
// collections, call by call.

/// A drive where the chunk "old" is there and nobody needs it, nor knows who brought it.
async fn unneeded() -> Drive {
    let drive = open().await;
    let cloud = drive.cloud().beside_tap();
    let blob_key = format!(
        "{}/blobs/session-of-old/{}",
        drive.tenant,
        chunk("old").hash.in_key()
    );
    let blob = cloud.s3().put_object().key(&blob_key);
    blob.bucket(cloud.names().bucket(file_sync::tables::BUCKET))
        .body(b"old".to_vec().into())
        .send()
        .await
        .unwrap();
    let item = cloud.dynamodb().put_item();
    item.table_name(cloud.names().table("chunks"))
        .item("tenant_shard", s(format!("{}#0", drive.tenant)))
        .item("hash", s(chunk("old").hash.to_string()))
        .item("length", n(3))
        .item("blob_key", s(blob_key))
        .item("stored_at", n(cloud.now()))
        .send()
        .await
        .unwrap();
    drive
}

async fn collect(sync: &FileSync, drive: &Drive) -> Told {
    match sync.garbage_collect(&drive.tenant, false).await {
        Ok(done) => format!("took {}", done.condemned.len()),
        Err(FileSyncError::Superseded) => "was overtaken".into(),
        Err(error) => panic!("{error}"),
    }
}

/// Adds one who collects, call by call to the end.
fn collector(actors: Interleave<Drive, Told>) -> Interleave<Drive, Told> {
    actors.actor("collector", |drive| async move {
        collect(&drive.sync, &drive).await
    })
}

/// Adds one who decides what is not needed, call by call, and clears it away in one go.
fn decider(actors: Interleave<Drive, Told>) -> Interleave<Drive, Told> {
    actors.actor("collector", |drive| async move {
        let decided = drive.sync.condemn_unneeded(&drive.tenant, false).await;
        let (mut done, gone) = decided.unwrap();
        let beside = drive.beside();
        let cleared = beside.clear_away(&drive.tenant, &gone, &mut done).await;
        cleared.unwrap();
        format!("took {}", done.condemned.len())
    })
}

/// After every order: a version that was published reassembles, and what an open upload was told it need
/// not send is there.
async fn all_orders(actors: Interleave<Drive, Told>) -> Explored {
    actors
        .check(|drive, told| async move {
            drive.versions_reassemble().await?;
            let label = told.iter().map(|(who, told)| format!("{who} {told}"));
            let label = label.collect::<Vec<_>>().join(", ");
            if label.contains("lacks 1") && drive.blob(&chunk("old").hash).await.is_none() {
                return Err("what it was told it need not send is gone".into());
            }
            Ok(label)
        })
        .run()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_chunk_that_an_upload_finds_is_kept_for_it_or_was_not_found() {
    let actors = Interleave::of(unneeded).actor("uploader", |drive| async move {
        let request = request(&["old", "new"]);
        let started = drive
            .sync
            .start_upload(&drive.alice(), "laptop", &request)
            .await;
        format!("lacks {}", started.unwrap().missing.len())
    });
    let explored = all_orders(decider(actors)).await;
    ends(
        &explored,
        &[
            "uploader lacks 1, collector took 0",
            "uploader lacks 2, collector took 1",
        ],
    );
    assert!(explored.schedules > 400, "{}", explored.schedules);
}

/// One call that is held; then the step itself, beside the tap, which nobody sees the middle of.
async fn turn(drive: &Drive) {
    let (alice, nobody) = (drive.alice(), EntryId::from("nobody"));
    let found = drive.sync.view_entry(&alice, &nobody).await;
    found.unwrap_err();
}

fn of_laptop(sessions: &[file_sync::UploadSession]) -> String {
    let session = sessions.iter().find(|session| session.device == "laptop");
    session.unwrap().session_id.clone()
}

/// An upload that is ready to be published, and so old that a collector may end it.
async fn ready() -> Drive {
    let drive = unneeded().await;
    drive
        .upload(&drive.alice(), "laptop", &["old", "new"])
        .await;
    let clock = drive.cloud().clock();
    clock.advance(Duration::from_millis(SESSION_LASTS as u64));
    drive
}

const PUBLISHED_OR_EXPIRED: [&str; 2] = [
    "uploader came too late, collector took 2",
    "uploader made version 1, collector took 0",
];

#[tokio::test]
async fn a_session_is_published_or_expired_and_never_both_at_any_call_of_a_collection() {
    let actors = Interleave::of(ready).actor("uploader", |drive| async move {
        let id = of_laptop(&drive.sessions().await);
        turn(&drive).await;
        word(
            drive
                .beside()
                .publish(&drive.alice(), &id, &new("a.txt"))
                .await,
        )
    });
    ends(&all_orders(decider(actors)).await, &PUBLISHED_OR_EXPIRED);
}

#[tokio::test]
async fn a_session_is_published_or_expired_and_never_both_at_any_call_of_a_publication() {
    let actors = Interleave::of(ready)
        .actor("uploader", |drive| async move {
            let id = of_laptop(&drive.sessions().await);
            word(drive.sync.publish(&drive.alice(), &id, &new("a.txt")).await)
        })
        .actor("collector", |drive| async move {
            turn(&drive).await;
            collect(&drive.beside(), &drive).await
        });
    ends(&all_orders(actors).await, &PUBLISHED_OR_EXPIRED);
}

/// An upload that has sent "old" because it was missing then. By now somebody else has brought it, whom
/// nobody remembers.
async fn sent() -> Drive {
    let drive = unneeded().await;
    let (alice, sync) = (drive.alice(), drive.beside());
    let table = drive.cloud().names().table("chunks");
    let key = [
        ("tenant_shard".to_owned(), s(format!("{}#0", drive.tenant))),
        ("hash".to_owned(), s(chunk("old").hash.to_string())),
    ];
    let dynamodb = drive.cloud().beside_tap().dynamodb().clone();
    let taken = dynamodb
        .delete_item()
        .table_name(&table)
        .set_key(Some(key.into()))
        .return_values(aws_sdk_dynamodb::types::ReturnValue::AllOld)
        .send()
        .await
        .unwrap();
    let started = sync
        .start_upload(&alice, "laptop", &request(&["old"]))
        .await;
    let id = started.unwrap().session.session_id;
    drive.stage(&id, &chunk("old").hash, "old").await;
    let put = dynamodb.put_item().table_name(&table);
    put.set_item(taken.attributes).send().await.unwrap();
    drive
}

/// The same, so long ago that a collector may end it.
async fn sent_long_ago() -> Drive {
    let drive = sent().await;
    let clock = drive.cloud().clock();
    clock.advance(Duration::from_millis(SESSION_LASTS as u64));
    drive
}

/// Confirms what was sent through `sync`, then publishes in one go.
async fn confirm_and_publish(sync: &FileSync, drive: &Drive) -> Told {
    let (alice, old) = (drive.alice(), [chunk("old").hash]);
    let id = of_laptop(&drive.sessions().await);
    match sync.confirm_chunks(&alice, &id, &old).await {
        Err(FileSyncError::NotFound("upload")) => return "was ended".into(),
        // Ended as well, and what was sent is cleared away.
        Ok(confirmed) if confirmed[0].1 == Confirmed::NotUploaded => {}
        confirmed => assert_eq!(confirmed.unwrap()[0].1, Confirmed::Present),
    }
    word(drive.beside().publish(&alice, &id, &new("a.txt")).await)
}

fn confirmed_at_once(actors: Interleave<Drive, Told>) -> Interleave<Drive, Told> {
    actors.actor("uploader", |drive| async move {
        turn(&drive).await;
        confirm_and_publish(&drive.beside(), &drive).await
    })
}

fn confirmed_by_calls(actors: Interleave<Drive, Told>) -> Interleave<Drive, Told> {
    let actors = actors.actor("uploader", |drive| async move {
        confirm_and_publish(&drive.sync, &drive).await
    });
    actors.actor("collector", |drive| async move {
        turn(&drive).await;
        let beside = drive.beside();
        let decided = beside.condemn_unneeded(&drive.tenant, false).await;
        let (mut done, gone) = decided.unwrap();
        turn(&drive).await;
        let cleared = beside.clear_away(&drive.tenant, &gone, &mut done).await;
        cleared.unwrap();
        format!("took {}", done.condemned.len())
    })
}

const KEPT_OR_STORED_ANEW: [&str; 2] = [
    "uploader made version 1, collector took 0",
    "uploader made version 1, collector took 1",
];

#[tokio::test]
async fn a_chunk_that_is_confirmed_is_there_at_any_call_of_a_collection() {
    let actors = decider(confirmed_at_once(Interleave::of(sent)));
    ends(&all_orders(actors).await, &KEPT_OR_STORED_ANEW);
    let actors = decider(confirmed_at_once(Interleave::of(sent_long_ago)));
    ends(
        &all_orders(actors).await,
        &[
            "uploader made version 1, collector took 0",
            "uploader was ended, collector took 1",
        ],
    );
}

#[tokio::test]
async fn a_chunk_that_is_confirmed_is_there_at_any_call_of_its_confirmation() {
    let actors = confirmed_by_calls(Interleave::of(sent));
    ends(&all_orders(actors).await, &KEPT_OR_STORED_ANEW);
    let actors = confirmed_by_calls(Interleave::of(sent_long_ago));
    ends(
        &all_orders(actors).await,
        &[
            "uploader came too late, collector took 1",
            "uploader made version 1, collector took 0",
            "uploader was ended, collector took 1",
        ],
    );
}

fn whole_upload(actors: Interleave<Drive, Told>) -> Interleave<Drive, Told> {
    actors.actor("uploader", |drive| async move {
        let (alice, sync) = (drive.alice(), drive.beside());
        let pieces = ["old", "new"];
        turn(&drive).await;
        let started = sync.start_upload(&alice, "laptop", &request(&pieces)).await;
        let started = started.unwrap();
        let id = started.session.session_id;
        turn(&drive).await;
        let hashes: Vec<_> = started.missing.iter().map(|chunk| chunk.hash).collect();
        for missing in &started.missing {
            let piece = pieces.iter().find(|piece| chunk(piece) == *missing);
            drive.stage(&id, &missing.hash, piece.unwrap()).await;
        }
        sync.confirm_chunks(&alice, &id, &hashes).await.unwrap();
        turn(&drive).await;
        word(sync.publish(&alice, &id, &new("a.txt")).await)
    })
}

#[tokio::test]
async fn no_reachable_chunk_is_deleted_under_any_interleaving_of_upload_publish_and_collection() {
    let actors = whole_upload(Interleave::of(unneeded));
    let explored = all_orders(collector(actors)).await;
    ends(
        &explored,
        &[
            "uploader made version 1, collector took 0",
            "uploader made version 1, collector took 1",
        ],
    );
    assert!(explored.schedules > 80, "{}", explored.schedules);
}

#[tokio::test]
async fn two_collections_at_once_take_nothing_that_is_needed() {
    // One collects call by call. The upload, and the other collection, are there in one go each.
    let actors = Interleave::of(unneeded).actor("uploader", |drive| async move {
        let alice = drive.alice();
        turn(&drive).await;
        let id = drive.upload(&alice, "laptop", &["old", "new"]).await;
        word(drive.beside().publish(&alice, &id, &new("a.txt")).await)
    });
    let actors = actors
        .actor("collector", |drive| async move {
            match drive.sync.condemn_unneeded(&drive.tenant, false).await {
                Ok((done, _)) => format!("took {}", done.condemned.len()),
                Err(FileSyncError::Superseded) => "was overtaken".into(),
                Err(error) => panic!("{error}"),
            }
        })
        .actor("other", |drive| async move {
            turn(&drive).await;
            collect(&drive.beside(), &drive).await
        });
    let explored = all_orders(actors).await;
    let overtaken = |end: &&String| end.contains("was overtaken");
    assert!(
        explored.seen.keys().any(|end| overtaken(&end)),
        "{explored:?}"
    );
}
