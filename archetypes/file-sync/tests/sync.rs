//! What a device promises, one by one.
#![allow(clippy::unwrap_used)]

mod devices;

use chaos::{Faults, Says, Tokenless};
use cloud::item::{n, s};
use cloud::tap::{Request, Verdict};
use devices::{AtCall, Devices, settings};
use file_sync::bench::noise;
use file_sync::chunking::{Chunker, Sizes};
use file_sync::sync::{Device, Settings, SyncError};
use file_sync::{Created, EntryId, FileSync, Kind, tables};
use std::fs;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::sync::Notify;

/// Syncs until a call is reached, and dies there.
async fn dies_at(devices: &Devices, device: usize, plan: impl FnOnce(AtCallMaker) -> AtCall) {
    let dead = Arc::new(Notify::new());
    let tell = Arc::clone(&dead);
    let plan = plan(Box::new(move |number, before| {
        AtCall::new(number, before, true, move || tell.notify_one())
    }));
    let _installed = devices.cloud.tap().install(Arc::new(plan));
    tokio::select! {
        report = devices.try_sync(device) => panic!("it lived: {report:?}"),
        () = dead.notified() => {}
    }
}

type AtCallMaker = Box<dyn FnOnce(usize, bool) -> AtCall>;

#[tokio::test]
async fn what_is_written_here_is_there_after_a_sync() {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "one");
    devices.write(0, "dir/b.txt", "two");
    devices.write(0, "nothing", "");
    fs::create_dir(devices.at(0, "empty")).unwrap();
    let sent = devices.sync(0).await;
    assert_eq!(sent.published, ["a.txt", "dir/b.txt", "nothing"]);
    assert_eq!(sent.made_there, ["dir", "empty"]);
    assert_eq!(devices.sync(1).await.made_here, ["dir", "empty"]);
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.tree(1).len(), 5);
    // And back.
    devices.write(1, "a.txt", "three");
    fs::remove_file(devices.at(1, "dir/b.txt")).unwrap();
    fs::remove_dir(devices.at(1, "dir")).unwrap();
    fs::remove_dir(devices.at(1, "empty")).unwrap();
    devices.sync(1).await;
    devices.sync(0).await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.tree(0).len(), 2);
    assert!(devices.sync(0).await.is_idle() && devices.sync(1).await.is_idle());
}

/// Some tools write into a file and put its old time back.
#[tokio::test]
async fn an_edit_that_leaves_size_and_time_as_they_were_is_not_overwritten() {
    let devices = Devices::new().await;
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
    let write = |content: &str| {
        let path = devices.at(0, "a.txt");
        let mut file = fs::OpenOptions::new();
        let mut file = file
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        file.write_all(content.as_bytes()).unwrap();
        file.set_modified(long_ago).unwrap();
    };
    write("first one");
    devices.settle().await;
    devices.write(1, "a.txt", "by the phone");
    devices.sync(1).await;
    write("other one");
    let report = devices.sync(0).await;
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    devices.settle().await;
    let copy = "a (conflicted copy of laptop).txt";
    assert_eq!(devices.read(1, copy), "other one");
    assert_eq!(devices.read(1, "a.txt"), "by the phone");
}

#[tokio::test]
async fn another_store_is_not_taken_for_one_without_changes() {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "one");
    devices.sync(0).await;
    let elsewhere = Devices::new().await;
    let refused = Device::open(
        elsewhere.store(),
        devices.actor.clone(),
        None,
        "files",
        devices.directories[0].path(),
        settings(),
    );
    let told = refused.await.err().unwrap();
    assert!(matches!(told, SyncError::RemoteGone), "{told}");
}

/// It published its edit and died before it wrote that down; then the file was edited again.
#[tokio::test]
async fn a_device_that_died_does_not_conflict_with_itself() {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "one");
    devices.sync(0).await;
    let state = devices.at(0, ".file-sync/state.json");
    let before = fs::read(&state).unwrap();
    devices.write(0, "a.txt", "two");
    devices.sync(0).await;
    fs::write(&state, before).unwrap();
    devices.write(0, "a.txt", "three");
    let report = devices.sync(0).await;
    assert!(report.conflicts.is_empty(), "{report:?}");
    devices.settle().await;
    assert_eq!(devices.tree(1), devices.tree(0));
    assert_eq!(devices.read(1, "a.txt"), "three");
    // With somebody else's edit in between it is a conflict.
    let before = fs::read(&state).unwrap();
    devices.write(0, "a.txt", "four");
    devices.sync(0).await;
    devices.sync(1).await;
    devices.write(1, "a.txt", "five");
    devices.sync(1).await;
    fs::write(&state, before).unwrap();
    devices.write(0, "a.txt", "six");
    let report = devices.sync(0).await;
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
}

/// The versions of each file that the store has, by name.
async fn versions(devices: &Devices) -> Vec<(String, usize)> {
    let store = FileSync::new(devices.cloud.beside_tap());
    let root = store.list(&devices.actor, &EntryId::root()).await.unwrap();
    let mut waiting = vec![root[0].entry_id.clone()];
    let mut found = Vec::new();
    while let Some(folder) = waiting.pop() {
        for entry in store.list(&devices.actor, &folder).await.unwrap() {
            match entry.kind {
                Kind::Folder => waiting.push(entry.entry_id),
                Kind::File => {
                    let log = store.log(&devices.actor, &entry.entry_id).await.unwrap();
                    found.push((entry.name, log.len()));
                }
            }
        }
    }
    found.sort();
    found
}

fn rename(devices: &Devices, device: usize, from: &str, to: &str) {
    let to = devices.at(device, to);
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::rename(devices.at(device, from), to).unwrap();
}

/// Two versions of one file on both devices, and then another name for it here.
async fn renamed() -> Devices {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "one");
    devices.sync(0).await;
    devices.write(0, "a.txt", "two");
    devices.settle().await;
    rename(&devices, 0, "a.txt", "dir/b.txt");
    devices
}

#[tokio::test]
async fn a_file_that_is_renamed_here_keeps_its_history_there() {
    let devices = renamed().await;
    let report = devices.sync(0).await;
    let moved = ("a.txt".to_owned(), "dir/b.txt".to_owned());
    assert_eq!(report.moved, [moved]);
    assert!(report.published.is_empty() && report.deleted_there.is_empty());
    assert_eq!(versions(&devices).await, [("b.txt".to_owned(), 2)]);
    let fetched = devices.sync(1).await;
    assert_eq!((fetched.bytes_fetched, fetched.bytes_reused), (0, 3));
    assert_eq!(devices.tree(0), devices.tree(1));
    // Only its case: a name that nothing else could have beside it.
    rename(&devices, 0, "dir/b.txt", "dir/B.txt");
    assert_eq!(devices.sync(0).await.moved.len(), 1);
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(versions(&devices).await, [("B.txt".to_owned(), 2)]);
}

#[tokio::test]
async fn a_rename_here_and_an_edit_there_both_count() {
    let devices = renamed().await;
    devices.write(1, "a.txt", "three");
    devices.sync(1).await;
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.read(0, "dir/b.txt"), "three");
    assert_eq!(versions(&devices).await, [("b.txt".to_owned(), 3)]);
}

#[tokio::test]
async fn a_rename_that_dies_at_any_call_is_made_once() {
    let devices = renamed().await;
    let recording = devices.cloud.tap().record();
    devices.sync(0).await;
    let calls = recording.take().len();
    assert!(calls > 5, "{calls}");
    for number in 1..=calls {
        for before in [true, false] {
            let devices = renamed().await;
            dies_at(&devices, 0, |at| at(number, before)).await;
            devices.settle().await;
            assert_eq!(devices.tree(0), devices.tree(1));
            let found = versions(&devices).await;
            assert_eq!(found, [("b.txt".to_owned(), 2)], "{number}, {before}");
        }
    }
}

/// Of a file that went on both sides, one side's deletion is not the other's.
#[tokio::test]
async fn a_file_that_is_renamed_here_and_deleted_there_stays() {
    let devices = renamed().await;
    fs::remove_file(devices.at(1, "a.txt")).unwrap();
    devices.sync(1).await;
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.read(1, "dir/b.txt"), "two");
    // Renamed on both, it has both names.
    let devices = renamed().await;
    rename(&devices, 1, "a.txt", "c.txt");
    devices.sync(1).await;
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.read(1, "dir/b.txt"), "two");
    assert_eq!(devices.read(0, "c.txt"), "two");
}

/// A device that cuts elsewhere has other fingerprints for the same bytes. That is no edit.
#[tokio::test]
async fn devices_that_cut_in_other_places_agree_on_the_same_bytes() {
    let devices = Devices::new().await;
    let other = || Settings {
        sizes: Sizes {
            min: 128,
            average: 512,
            max: 2048,
        },
        ..settings()
    };
    let sync = async |device: usize| {
        let settings = [settings(), other()][device].clone();
        let mut opened = devices.open_with(device, settings).await.unwrap();
        opened.sync().await.unwrap()
    };
    devices.write(0, "file", noise(20_000));
    sync(0).await;
    sync(1).await;
    for device in [0, 1, 0, 1] {
        let report = sync(device).await;
        assert!(report.is_idle(), "{device}: {report:?}");
    }
    // An edit is one, and a deletion goes through.
    devices.write(1, "file", noise(20_001));
    sync(1).await;
    sync(0).await;
    assert_eq!(devices.tree(0), devices.tree(1));
    fs::remove_file(devices.at(0, "file")).unwrap();
    sync(0).await;
    sync(1).await;
    assert_eq!(devices.tree(1).len(), 0);
}

/// Both versions of "g.txt" are the laptop's, and it has never seen "f.txt": it is not made from them.
#[tokio::test]
async fn a_new_file_is_not_taken_for_an_edit_of_what_has_its_name_by_now() {
    let devices = Devices::new().await;
    devices.write(0, "g.txt", "important");
    devices.settle().await;
    rename(&devices, 1, "g.txt", "f.txt");
    devices.sync(1).await;
    devices.write(0, "f.txt", "another");
    let report = devices.sync(0).await;
    assert_eq!(report.conflicts.len(), 1, "{report:?}");
    devices.settle().await;
    assert_eq!(devices.read(1, "f.txt"), "important");
    assert_eq!(
        devices.read(1, "f (conflicted copy of laptop).txt"),
        "another"
    );
}

/// The same for a laptop that has lost its state, whose versions they all are.
#[tokio::test]
async fn a_device_that_lost_its_state_overwrites_nothing() {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "one");
    devices.sync(0).await;
    devices.write(0, "a.txt", "two");
    devices.settle().await;
    fs::remove_dir_all(devices.at(0, ".file-sync")).unwrap();
    devices.write(0, "a.txt", "three");
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.read(0, "a.txt"), "two");
    assert_eq!(
        devices.read(0, "a (conflicted copy of laptop).txt"),
        "three"
    );
}

#[tokio::test]
async fn a_folder_whose_file_could_not_be_deleted_does_not_come_back() {
    let devices = Devices::new().await;
    devices.write(0, "dir/a.txt", "one");
    devices.settle().await;
    fs::remove_dir_all(devices.at(0, "dir")).unwrap();
    {
        let down = Says(|request: &Request| {
            let deletion = request.shape().contains("Delete names");
            match deletion && request.body.to_string().contains("a.txt") {
                true => Verdict::LoseRequest,
                false => Verdict::Pass,
            }
        });
        let _down = devices.cloud.tap().install(Arc::new(down));
        let report = devices.try_sync(0).await.unwrap();
        assert_eq!(report.problems.len(), 1, "{report:?}");
    }
    devices.settle().await;
    assert!(devices.tree(0).is_empty() && devices.tree(1).is_empty());
}

#[tokio::test]
async fn two_edits_of_one_file_are_both_kept() {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "old");
    devices.settle().await;
    devices.write(0, "a.txt", "laptop's");
    devices.write(1, "a.txt", "phone's");
    devices.sync(0).await;
    let report = devices.sync(1).await;
    let copy = "a (conflicted copy of phone).txt";
    assert_eq!(report.conflicts, [("a.txt".into(), copy.into())]);
    devices.settle().await;
    for device in 0..2 {
        assert_eq!(devices.read(device, "a.txt"), "laptop's");
        assert_eq!(devices.read(device, copy), "phone's");
    }
}

#[tokio::test]
async fn two_new_files_of_one_name_are_both_kept_unless_they_are_alike() {
    let devices = Devices::new().await;
    for device in 0..2 {
        devices.write(device, "same", "same");
        devices.write(device, "other", format!("of {device}"));
    }
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    let names: Vec<String> = devices.tree(0).into_keys().collect();
    assert_eq!(names, ["other", "other (conflicted copy of phone)", "same"]);
}

#[tokio::test]
async fn an_edit_wins_over_a_deletion() {
    for (deletes, edits) in [(0, 1), (1, 0)] {
        for edit_first in [true, false] {
            let devices = Devices::new().await;
            devices.write(0, "dir/a.txt", "old");
            devices.settle().await;
            fs::remove_dir_all(devices.at(deletes, "dir")).unwrap();
            devices.write(edits, "dir/a.txt", "new");
            let order = if edit_first {
                [edits, deletes]
            } else {
                [deletes, edits]
            };
            for device in order {
                devices.sync(device).await;
            }
            devices.settle().await;
            for device in 0..2 {
                assert_eq!(devices.read(device, "dir/a.txt"), "new");
            }
        }
    }
}

#[tokio::test]
async fn a_device_fetches_only_the_chunks_it_lacks() {
    let devices = Devices::new().await;
    let mut content = noise(20_000);
    devices.write(0, "file", &content);
    let first = devices.sync(0).await;
    assert_eq!(first.bytes_sent, 20_000);
    assert_eq!(devices.sync(1).await.bytes_fetched, 20_000);
    // Not where it is cut: that is decided by 64 bytes, which is a quarter of a tiny chunk.
    let chunked = Chunker::new(Sizes::TINY).chunk(&content[..]).unwrap();
    let (at, _) = chunked.placed().nth(30).unwrap();
    content.insert(at as usize + 10, b'!');
    devices.write(0, "file", &content);
    let sent = devices.sync(0).await;
    assert!((1..=3).contains(&sent.chunks_sent), "{sent:?}");
    let fetched = devices.sync(1).await;
    assert_eq!(fetched.bytes_fetched, sent.bytes_sent);
    assert_eq!(fetched.bytes_fetched + fetched.bytes_reused, 20_001);
    // A file of the same content, under another name and in another folder, costs nothing.
    fs::create_dir(devices.at(0, "dir")).unwrap();
    fs::rename(devices.at(0, "file"), devices.at(0, "dir/renamed")).unwrap();
    let sent = devices.sync(0).await;
    assert_eq!((sent.bytes_sent, sent.moved.len()), (0, 1));
    let fetched = devices.sync(1).await;
    assert_eq!((fetched.bytes_fetched, fetched.bytes_reused), (0, 20_001));
    assert_eq!(fs::read(devices.at(1, "dir/renamed")).unwrap(), content);
    assert!(!devices.at(1, "file").exists());
}

#[tokio::test]
async fn a_tampered_chunk_is_refused_on_download() {
    let devices = Devices::new().await;
    devices.write(0, "good", "good");
    devices.write(0, "bad", noise(900));
    devices.sync(0).await;
    // Somebody with access to the bucket writes other bytes of the same length.
    let s3 = devices.cloud.beside_tap().s3().clone();
    let bucket = devices.cloud.names().bucket(tables::BUCKET);
    let listed = s3.list_objects_v2().bucket(&bucket).send().await.unwrap();
    let mut tampered = 0;
    for object in listed.contents() {
        let key = object.key().unwrap();
        let bytes = s3
            .get_object()
            .bucket(&bucket)
            .key(key)
            .send()
            .await
            .unwrap();
        let mut bytes = bytes.body.collect().await.unwrap().to_vec();
        // Manifests are refused by their own hash; this is about chunks.
        let chunk = noise(900).windows(bytes.len()).any(|part| part == bytes);
        if chunk && bytes.len() > 60 {
            bytes[7] ^= 1;
            let put = s3.put_object().bucket(&bucket).key(key);
            put.body(bytes.into()).send().await.unwrap();
            tampered += 1;
        }
    }
    assert!(tampered > 0);
    let report = devices.try_sync(1).await.unwrap();
    assert_eq!(
        report.fetched,
        ["good"],
        "one bad file does not end the run"
    );
    let [(path, why)] = &report.problems[..] else {
        panic!("{report:?}");
    };
    assert!(path == "bad" && why.contains("refused"), "{why}");
    assert!(!devices.at(1, "bad").exists());
    assert_eq!(devices.leftovers(1), 0);
}

#[tokio::test]
async fn an_interrupted_upload_goes_on_where_it_was() {
    let devices = Devices::new().await;
    devices.write(0, "file", noise(5_000));
    let chunks = devices::chunks(&noise(5_000));
    assert!(chunks > 6, "{chunks}");
    // Dies when four batches of two chunks each are uploaded and confirmed.
    dies_at(&devices, 0, |at| at(9, true).only("PUT")).await;
    let report = devices.sync(0).await;
    assert_eq!(report.chunks_sent, chunks - 8);
    devices.sync(1).await;
    assert_eq!(devices.tree(0), devices.tree(1));
}

#[tokio::test]
async fn an_interrupted_fetch_leaves_nothing_half_written() {
    let devices = Devices::new().await;
    devices.write(0, "file", noise(5_000));
    devices.sync(0).await;
    dies_at(&devices, 1, |at| at(3, false).only("GET")).await;
    assert_eq!(devices.leftovers(1), 0);
    assert!(!devices.at(1, "file").exists());
    devices.sync(1).await;
    assert_eq!(devices.tree(0), devices.tree(1));
}

#[tokio::test]
async fn an_edit_during_a_fetch_is_not_overwritten() {
    let devices = Devices::new().await;
    devices.write(0, "file", "old");
    devices.settle().await;
    devices.write(0, "file", "new");
    devices.sync(0).await;
    // As long as what was there, in the same tick of the clock perhaps, after the scan.
    let at = devices.at(1, "file");
    let plan = AtCall::new(1, true, false, move || fs::write(at, "odd").unwrap()).only("GET");
    let installed = devices.cloud.tap().install(Arc::new(plan));
    let report = devices.sync(1).await;
    drop(installed);
    assert_eq!(report.conflicts.len(), 1);
    devices.settle().await;
    for device in 0..2 {
        assert_eq!(devices.read(device, "file"), "new");
        assert_eq!(
            devices.read(device, "file (conflicted copy of phone)"),
            "odd"
        );
    }
}

#[tokio::test]
async fn answers_that_are_lost_make_no_second_version_and_no_copy() {
    let devices = Devices::new().await;
    devices.sync(0).await;
    let faults = Arc::new(Faults::seeded(7).lose_answer(0.25));
    for content in ["one", "two", "three"] {
        devices.write(0, "dir/file", content);
        let _tokenless = devices.cloud.tap().install(Arc::new(Tokenless));
        let _installed = devices.cloud.tap().install(faults.clone());
        let mut settings = settings();
        settings.attempts = 50;
        let mut device = devices.open_with(0, settings).await.unwrap();
        let report = device.sync().await.unwrap();
        assert_eq!(report.published, ["dir/file"]);
        assert!(report.conflicts.is_empty());
    }
    assert!(faults.injected().values().sum::<usize>() > 5);
    let device = devices.open(0).await.unwrap();
    let state = device.state();
    let (id, entry) = state
        .entries
        .iter()
        .find(|(_, entry)| entry.name == "file")
        .unwrap();
    assert_eq!(entry.version, 3);
    let log = devices.store().log(&devices.actor, id).await.unwrap();
    assert_eq!(log.len(), 3);
}

#[tokio::test]
async fn names_that_would_be_one_elsewhere_are_told_and_end_nothing() {
    let devices = Devices::new().await;
    devices.write(0, "README", "one");
    devices.write(0, "Readme", "two");
    devices.write(0, "caf\u{e9}", "composed");
    devices.write(0, "cafe\u{301}", "decomposed");
    devices.write(0, "aux.txt", "reserved");
    devices.write(0, "z", "last");
    let report = devices.try_sync(0).await.unwrap();
    assert_eq!(report.published.len(), 3, "{report:?}");
    assert!(report.published.contains(&"z".to_owned()));
    let told: Vec<&str> = report.problems.iter().map(|(_, why)| &why[..]).collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert_eq!(
        told.iter()
            .filter(|why| why.contains("would be one file"))
            .count(),
        2
    );
    // Renamed, it is synced like any other.
    fs::rename(devices.at(0, "Readme"), devices.at(0, "Please read me")).unwrap();
    let report = devices.try_sync(0).await.unwrap();
    assert_eq!(report.published, ["Please read me"]);
    assert_eq!(report.problems.len(), 2);
}

#[tokio::test]
async fn a_name_from_the_store_that_cannot_be_here_is_told_and_stays_there() {
    let devices = Devices::new().await;
    devices.write(0, "good", "good");
    devices.sync(0).await;
    let root = devices.open(0).await.unwrap().state().root.clone();
    let store = devices.store();
    // The store takes no such names. Whoever gets at its tables may put them there all the same.
    for (name, bad) in [("one", "NUL"), ("two", "a:b")] {
        let made = store
            .create_folder(&devices.actor, "other", &root, name)
            .await;
        assert!(matches!(made.unwrap(), Created::Folder(_)));
        let feed = store.changes(&devices.actor, "auditor", 0).await.unwrap();
        devices
            .cloud
            .dynamodb()
            .update_item()
            .table_name(devices.cloud.names().table("changes"))
            .key("namespace", s("tenant#ann"))
            .key("sequence", n(feed.cursor))
            .update_expression("SET #entry.#name = :bad")
            .expression_attribute_names("#entry", "entry")
            .expression_attribute_names("#name", "name")
            .expression_attribute_values(":bad", s(bad))
            .send()
            .await
            .unwrap();
    }
    let report = devices.try_sync(1).await.unwrap();
    assert_eq!(report.problems.len(), 2, "{report:?}");
    assert_eq!(report.fetched, ["good"]);
    assert_eq!(devices.tree(1).len(), 1);
    let report = devices.try_sync(1).await.unwrap();
    assert!(report.is_idle(), "and it is not deleted there: {report:?}");
}

#[tokio::test]
async fn a_file_and_a_folder_of_one_name_are_both_kept() {
    let devices = Devices::new().await;
    devices.write(0, "thing", "a file");
    devices.write(1, "thing/inside", "a folder");
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    let all: Vec<Vec<u8>> = devices.tree(0).into_values().flatten().collect();
    assert!(all.contains(&b"a file".to_vec()) && all.contains(&b"a folder".to_vec()));
}

#[tokio::test]
async fn a_file_that_became_a_folder_becomes_one_there() {
    let devices = Devices::new().await;
    devices.write(0, "a", "file");
    devices.write(0, "b/inside", "folder");
    devices.settle().await;
    fs::remove_file(devices.at(0, "a")).unwrap();
    devices.write(0, "a/inside", "now a folder");
    fs::remove_dir_all(devices.at(0, "b")).unwrap();
    devices.write(0, "b", "now a file");
    devices.settle().await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.read(1, "a/inside"), "now a folder");
    assert_eq!(devices.read(1, "b"), "now a file");
    assert_eq!(devices.tree(1).len(), 3);
}

#[tokio::test]
async fn a_folder_that_moves_in_the_store_moves_here_without_being_fetched() {
    let devices = Devices::new().await;
    devices.write(0, "dir/file", noise(3_000));
    devices.settle().await;
    let state = devices.open(0).await.unwrap().state().clone();
    let (dir, _) = state.child(&state.root, "dir").unwrap();
    let store = devices.store();
    let moved = store.rename_or_move(&devices.actor, "web", dir, &state.root, "moved");
    moved.await.unwrap();
    let report = devices.sync(1).await;
    assert_eq!((report.bytes_fetched, report.bytes_reused), (0, 3_000));
    devices.settle().await;
    let names: Vec<String> = devices.tree(0).into_keys().collect();
    assert_eq!(names, ["moved", "moved/file"]);
    assert_eq!(devices.tree(0), devices.tree(1));
}

#[tokio::test]
async fn a_device_without_its_state_begins_anew_and_loses_nothing() {
    let devices = Devices::new().await;
    devices.write(0, "same", "same");
    devices.write(0, "edited", "old");
    devices.settle().await;
    fs::remove_dir_all(devices.at(1, ".file-sync")).unwrap();
    devices.write(1, "edited", "new");
    let report = devices.sync(1).await;
    assert!(
        report.conflicts.len() == 1 && report.published.is_empty(),
        "{report:?}"
    );
    devices.settle().await;
    assert_eq!(devices.read(0, "edited (conflicted copy of phone)"), "new");
}

#[tokio::test]
async fn a_directory_is_one_device_and_has_one_remote() {
    let devices = Devices::new().await;
    devices.sync(0).await;
    let open = |device: &'static str, remote: &'static str| {
        let (store, actor) = (devices.store(), devices.actor.clone());
        let directory = devices.directories[0].path().to_owned();
        async move {
            let opened = Device::open(store, actor, Some(device), remote, &directory, settings());
            opened.await.map(drop).unwrap_err()
        }
    };
    let refused = open("laptop", "other").await;
    assert!(
        matches!(refused, SyncError::OtherRemote { .. }),
        "{refused}"
    );
    let refused = open("tablet", "files").await;
    assert!(
        matches!(refused, SyncError::OtherDevice { .. }),
        "{refused}"
    );
    let refused = open("not a name", "files").await;
    assert!(refused.to_string().contains("1 to 64 letters"), "{refused}");
    // The remote is deleted: nothing here is.
    devices.write(0, "file", "precious");
    let root = devices.open(0).await.unwrap().state().root.clone();
    let deleted = devices
        .store()
        .delete_entry(&devices.actor, "web", &root, None)
        .await;
    deleted.unwrap();
    let refused = devices.try_sync(0).await.unwrap_err();
    assert!(matches!(refused, SyncError::RemoteGone), "{refused}");
    assert_eq!(devices.read(0, "file"), "precious");
    assert_ne!(root, EntryId::root());
}

/// Says this to each request, and then nothing.
async fn store_that_stalls(says: &'static [u8]) -> String {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = server.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            stream.write_all(says).await.unwrap();
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn a_store_that_accepts_and_never_answers_holds_no_device() {
    let devices = Devices::new().await;
    devices.write(0, "a.txt", "one");
    devices.sync(0).await;
    devices.write(1, "b.txt", "two");
    for says in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\no"] {
        let store = devices.store();
        let store = store.with_addresses_on(&store_that_stalls(says).await);
        let settings = Settings {
            stall: Duration::from_millis(200),
            attempts: 2,
            ..settings()
        };
        let directory = devices.directories[1].path();
        let actor = devices.actor.clone();
        let device = Device::open(store, actor, Some("phone"), "files", directory, settings);
        let mut device = device.await.unwrap();
        let sync = tokio::time::timeout(Duration::from_secs(20), device.sync()).await;
        let report = sync.expect("the device still waits").unwrap();
        assert_eq!(report.problems.len(), 2, "{report:?}");
    }
    // The lock of the directory is free, and nothing was lost.
    devices.sync(1).await;
    devices.sync(0).await;
    assert_eq!(devices.tree(0), devices.tree(1));
    assert_eq!(devices.tree(1).len(), 2);
}
