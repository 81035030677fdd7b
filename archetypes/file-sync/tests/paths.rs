//! A wrong path never leaves the directory, and what was not seen is never overwritten.
#![allow(clippy::unwrap_used)]

use file_sync::chunking::{Chunked, Chunker, Sizes};
use file_sync::domain::EntryId;
use file_sync::local::folder::now;
use file_sync::local::scan::scan;
use file_sync::local::state::KnownFile;
use file_sync::local::{
    BadPath, DeviceState, Folder, Found, Known, LocalError, Put, RelPath, Stamp,
};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use tempfile::TempDir;

fn chunker() -> Chunker {
    Chunker::new(Sizes::TINY)
}

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

/// A directory to sync, in a room with things that are none of its business.
struct Room {
    room: TempDir,
}

impl Room {
    fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        fs::create_dir_all(room.path().join("dir")).unwrap();
        fs::create_dir_all(room.path().join("outside")).unwrap();
        fs::write(room.path().join("outside/secret"), "secret").unwrap();
        Self { room }
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.room.path().join("dir").join(name)
    }

    fn open(&self) -> Folder {
        Folder::open(&self.room.path().join("dir"), true, &chunker()).unwrap()
    }

    /// Nothing outside was read, written, made or removed.
    fn nothing_left_it(&self) {
        let outside = self.room.path().join("outside");
        let names: Vec<_> = fs::read_dir(&outside).unwrap().collect();
        assert_eq!(names.len(), 1);
        assert_eq!(
            fs::read_to_string(outside.join("secret")).unwrap(),
            "secret"
        );
        assert_eq!(fs::read_dir(self.room.path()).unwrap().count(), 2);
    }

    fn known(&self, name: &str) -> KnownFile {
        let (content, stamp, seen) = self.unlocked().chunk(&path(name), &chunker()).unwrap();
        known(content, stamp, seen)
    }

    /// The same directory under another name, so that its lock is another.
    fn unlocked(&self) -> Folder {
        let room = self.room.path().join("dir");
        Folder::open(&room, true, &chunker()).unwrap()
    }
}

fn known(content: Chunked, stamp: Stamp, seen: i64) -> KnownFile {
    KnownFile {
        entry: EntryId::from("entry"),
        version: 1,
        fingerprint: content.fingerprint,
        chunks: content.chunks,
        stamp,
        seen,
    }
}

fn put(
    folder: &Folder,
    at: &RelPath,
    text: &str,
    over: Option<&KnownFile>,
) -> Result<Put, LocalError> {
    let content = chunker().chunk(text.as_bytes()).unwrap();
    let mut part = folder.part()?;
    part.write(text.as_bytes())?;
    folder.put(at, part, &content.fingerprint, over, &chunker())
}

#[test]
fn a_wrong_path_never_leaves_the_directory() {
    type Is = fn(&BadPath) -> bool;
    let outside: Is = |bad| matches!(bad, BadPath::Outside(_));
    let absolute: Is = |bad| matches!(bad, BadPath::Absolute(_));
    let empty: Is = |bad| matches!(bad, BadPath::Empty(_));
    let character: Is = |bad| matches!(bad, BadPath::Character { .. });
    let reserved: Is = |bad| matches!(bad, BadPath::Reserved(_));
    let ending: Is = |bad| matches!(bad, BadPath::Ending(_));
    let own: Is = |bad| matches!(bad, BadPath::Own(_));
    let long: Is = |bad| matches!(bad, BadPath::Long(_));
    let cases: &[(&str, Is)] = &[
        ("..", outside),
        ("../outside/secret", outside),
        ("a/../../outside/secret", outside),
        ("a/..", outside),
        ("/etc/passwd", absolute),
        ("//server/share", absolute),
        ("\\\\server\\share", absolute),
        ("C:\\windows", absolute),
        ("c:file", absolute),
        ("", empty),
        (".", empty),
        ("a//b", empty),
        ("a/", empty),
        ("./a", empty),
        ("a\0b", character),
        ("a\nb", character),
        ("..\\outside", character),
        ("a\\..\\b", character),
        ("file:stream", character),
        ("what?", character),
        ("CON", reserved),
        ("con.txt", reserved),
        ("a/Aux", reserved),
        ("nul.tar.gz", reserved),
        ("COM1", reserved),
        ("lpt9.log", reserved),
        ("COM¹", reserved),
        ("name.", ending),
        ("name ", ending),
        ("...", ending),
        (".file-sync", own),
        (".file-sync/state.json", own),
        (".FILE-SYNC/state.json", own),
        (&"x".repeat(256), long),
    ];
    for (wrong, is) in cases {
        let bad = RelPath::new(wrong).unwrap_err();
        assert!(is(&bad), "{wrong}: {bad:?}");
        assert!(!bad.to_string().is_empty());
    }
    for right in [
        "a",
        "a/b/c.txt",
        "..a",
        "a..b",
        ".hidden",
        "com10",
        "console",
        "ä/日本",
        "a b",
    ] {
        assert_eq!(RelPath::new(right).unwrap().as_str(), right);
    }
    let within = RelPath::within(Some(&path("a")), "../b").unwrap_err();
    assert!(matches!(within, BadPath::Character { character: '/', .. }));
}

#[test]
fn a_link_at_any_place_of_a_path_is_never_followed() {
    let room = Room::new();
    symlink(room.room.path().join("outside"), room.at("link")).unwrap();
    symlink("../outside", room.at("relative")).unwrap();
    fs::create_dir(room.at("a")).unwrap();
    symlink("../../outside", room.at("a/deep")).unwrap();
    symlink("../outside/secret", room.at("secret")).unwrap();
    // Even one that stays inside: whoever made it may make it lead elsewhere.
    symlink("a", room.at("inside")).unwrap();
    let folder = room.open();
    for through in ["link", "relative", "a/deep", "inside"] {
        let file = path(&format!("{through}/secret"));
        let refusals = [
            folder.read(&file).map(drop).unwrap_err(),
            folder
                .make_folder(&path(&format!("{through}/new")))
                .unwrap_err(),
            put(&folder, &file, "overwritten", None)
                .map(drop)
                .unwrap_err(),
            folder.list(Some(&path(through))).map(drop).unwrap_err(),
            folder
                .remove_folder(&path(&format!("{through}/new")))
                .map(drop)
                .unwrap_err(),
            folder.rename(&file, &path("stolen")).map(drop).unwrap_err(),
        ];
        for refusal in refusals {
            assert!(matches!(refusal, LocalError::NotAFolder(_)), "{refusal}");
        }
    }
    let refusal = folder.read(&path("secret")).map(drop).unwrap_err();
    assert!(matches!(refusal, LocalError::NotAFile(_)), "{refusal}");
    // A file where a link is: the link stays, and what it leads to.
    assert_eq!(
        put(&folder, &path("secret"), "mine", None).unwrap(),
        Put::Changed
    );
    let found = scan(&folder, &BTreeMap::new(), &chunker());
    assert_eq!(
        found.found.keys().map(RelPath::as_str).collect::<Vec<_>>(),
        ["a"]
    );
    assert_eq!(
        found.problems.len(),
        5,
        "each link is told: {:?}",
        found.problems
    );
    room.nothing_left_it();
}

/// What goes from a folder that was not yet listed to one that was, no listing has. It is not deleted.
#[test]
fn a_scan_that_something_moved_under_is_known_to_have_missed_it() {
    let room = Room::new();
    for name in ["early", "late"] {
        fs::create_dir(room.at(name)).unwrap();
    }
    fs::write(room.at("late/x"), "x").unwrap();
    // Long ago: two changes within a tick of the clock leave one time.
    for name in ["early", "late", ""] {
        let folder = fs::File::open(room.at(name)).unwrap();
        folder.set_modified(std::time::UNIX_EPOCH).unwrap();
    }
    let folder = room.open();
    let found = scan(&folder, &BTreeMap::new(), &chunker());
    assert!(found.found.contains_key(&path("late/x")) && found.is_whole(&folder));
    fs::rename(room.at("late/x"), room.at("early/x")).unwrap();
    assert!(!found.is_whole(&folder));
    let found = scan(&folder, &BTreeMap::new(), &chunker());
    assert!(found.is_whole(&folder));
    fs::remove_dir(room.at("late")).unwrap();
    assert!(!found.is_whole(&folder));
}

#[test]
fn a_link_that_is_swapped_in_later_is_not_followed_either() {
    let room = Room::new();
    fs::create_dir(room.at("a")).unwrap();
    fs::write(room.at("a/secret"), "mine").unwrap();
    let known = room.known("a/secret");
    let folder = room.open();
    let mut part = folder.part().unwrap();
    part.write(b"new").unwrap();
    let content = chunker().chunk(&b"new"[..]).unwrap();
    // Between the scan and the moment a file gets its place.
    fs::rename(room.at("a"), room.at("b")).unwrap();
    symlink("../outside", room.at("a")).unwrap();
    let refused = folder.put(
        &path("a/secret"),
        part,
        &content.fingerprint,
        Some(&known),
        &chunker(),
    );
    assert!(
        matches!(refused, Err(LocalError::NotAFolder(_))),
        "{refused:?}"
    );
    let refused = folder.remove(&path("a/secret"), &known, &chunker());
    assert!(
        matches!(refused, Err(LocalError::NotAFolder(_))),
        "{refused:?}"
    );
    assert_eq!(folder.leftovers().unwrap(), 0);
    room.nothing_left_it();
}

#[test]
fn the_devices_own_folder_is_no_way_out_either() {
    let room = Room::new();
    symlink("../outside", room.at(".file-sync")).unwrap();
    let refused = Folder::open(&room.room.path().join("dir"), true, &chunker());
    assert!(matches!(refused.map(drop), Err(LocalError::NotAFolder(_))));
    room.nothing_left_it();
}

#[test]
fn a_file_is_replaced_whole_and_stays_as_executable_as_it_was() {
    let room = Room::new();
    fs::write(room.at("run"), "old").unwrap();
    fs::set_permissions(room.at("run"), fs::Permissions::from_mode(0o750)).unwrap();
    let known = room.known("run");
    let folder = room.open();
    let done = put(&folder, &path("run"), "new", Some(&known)).unwrap();
    let Put::Done {
        stamp, kept: None, ..
    } = done
    else {
        panic!("{done:?}");
    };
    assert_eq!(fs::read_to_string(room.at("run")).unwrap(), "new");
    let metadata = fs::metadata(room.at("run")).unwrap();
    assert_eq!(metadata.mode() & 0o777, 0o750);
    assert_eq!((metadata.ino(), metadata.len()), (stamp.inode, stamp.size));
    assert_eq!(folder.leftovers().unwrap(), 0);
}

#[test]
fn an_unscanned_local_change_is_never_overwritten() {
    let room = Room::new();
    fs::write(room.at("file"), "old").unwrap();
    let known = room.known("file");
    let folder = room.open();
    // As long, and perhaps at the same tick of the clock.
    fs::write(room.at("file"), "odd").unwrap();
    assert_eq!(
        put(&folder, &path("file"), "new", Some(&known)).unwrap(),
        Put::Changed
    );
    assert!(!folder.remove(&path("file"), &known, &chunker()).unwrap());
    assert_eq!(fs::read_to_string(room.at("file")).unwrap(), "odd");
    // A file where none was known.
    assert_eq!(
        put(&folder, &path("file"), "new", None).unwrap(),
        Put::Changed
    );
    // None, where one was known: somebody removed it, and that is a change, too.
    fs::remove_file(room.at("file")).unwrap();
    assert_eq!(
        put(&folder, &path("file"), "new", Some(&known)).unwrap(),
        Put::Changed
    );
    assert!(!room.at("file").exists());
    // A folder.
    fs::create_dir(room.at("file")).unwrap();
    assert_eq!(
        put(&folder, &path("file"), "new", Some(&known)).unwrap(),
        Put::Changed
    );
    assert_eq!(
        put(&folder, &path("file"), "new", None).unwrap(),
        Put::Changed
    );
    assert!(!folder.remove(&path("file"), &known, &chunker()).unwrap());
    assert_eq!(folder.leftovers().unwrap(), 0);
}

#[test]
fn a_file_aside_that_nobody_knows_comes_back_after_a_crash() {
    let room = Room::new();
    fs::write(room.at("file.txt"), "old").unwrap();
    let known = room.known("file.txt");
    // Swapped out, and the process died before it looked at what it had swapped out.
    fs::write(room.at("file.txt"), "odd").unwrap();
    let aside = format!("swap-{0}-{0}-9", known.fingerprint);
    fs::rename(room.at("file.txt"), room.at(".file-sync").join(aside)).unwrap();
    let folder = room.open();
    assert_eq!(
        fs::read_to_string(room.at("recovered file")).unwrap(),
        "odd"
    );
    assert_eq!(folder.leftovers().unwrap(), 0);
}

#[test]
fn what_a_crash_left_is_cleared_away() {
    let room = Room::new();
    fs::write(room.at("file"), "old").unwrap();
    let known = room.known("file");
    let new = chunker().chunk(&b"new"[..]).unwrap().fingerprint;
    drop(room.open());
    let own = room.at(".file-sync");
    fs::write(own.join("part-3"), "half of").unwrap();
    // Died before the swap, died after it.
    fs::write(
        own.join(format!("swap-{}-{new}-4", known.fingerprint)),
        "new",
    )
    .unwrap();
    fs::write(
        own.join(format!("swap-{}-{new}-5", known.fingerprint)),
        "old",
    )
    .unwrap();
    let folder = room.open();
    assert_eq!(folder.leftovers().unwrap(), 0);
    assert_eq!(
        fs::read_dir(room.room.path().join("dir")).unwrap().count(),
        2
    );
    // A file that is still being written when its writer is dropped.
    let part = folder.part().unwrap();
    assert_eq!(folder.leftovers().unwrap(), 1);
    drop(part);
    assert_eq!(folder.leftovers().unwrap(), 0);
}

#[test]
fn one_process_at_a_time_syncs_a_directory() {
    let room = Room::new();
    let _first = room.open();
    let second = Folder::open(&room.room.path().join("dir"), true, &chunker());
    assert!(matches!(second.map(drop), Err(LocalError::InUse(_))));
}

#[test]
fn a_state_is_saved_whole_and_a_broken_one_is_told() {
    let room = Room::new();
    let folder = room.open();
    assert_eq!(DeviceState::load(&folder).unwrap(), None);
    let mut state = DeviceState::new("laptop", "photos", EntryId::from("folder"));
    fs::write(room.at("file"), "old").unwrap();
    let (content, stamp, seen) = folder.chunk(&path("file"), &chunker()).unwrap();
    let known = Known::File(known(content, stamp, seen));
    state.agreed.insert(path("file"), known);
    state.save(&folder).unwrap();
    assert_eq!(DeviceState::load(&folder).unwrap(), Some(state));
    fs::write(room.at(".file-sync/state.json"), "{").unwrap();
    let told = DeviceState::load(&folder).unwrap_err().to_string();
    assert!(told.contains("remove it to begin anew"), "{told}");
}

#[test]
fn a_scan_reads_only_what_may_have_changed() {
    let room = Room::new();
    for name in ["a", "b", "c"] {
        fs::write(room.at(name), name).unwrap();
    }
    let folder = room.open();
    let first = scan(&folder, &BTreeMap::new(), &chunker());
    assert_eq!((first.found.len(), first.files_read), (3, 3));
    let agree = |later: i64| -> BTreeMap<RelPath, Known> {
        let files = first.found.iter().map(|(path, found)| {
            let Found::Changed {
                content,
                stamp,
                seen,
            } = found
            else {
                panic!("{found:?}");
            };
            let file = known(content.clone(), *stamp, *seen + later);
            (path.clone(), Known::File(file))
        });
        files.collect()
    };
    // Written to and looked at in one breath: it may have been written to again.
    let second = scan(&folder, &agree(0), &chunker());
    assert_eq!((second.files_read, second.refreshed.len()), (3, 3));
    assert!(second.found.values().all(|found| *found == Found::Same));
    // Looked at a while after it was written to: its stamp would differ.
    let third = scan(&folder, &agree(10_000_000_000), &chunker());
    assert_eq!(third.files_read, 0);
    fs::write(room.at("b"), "other").unwrap();
    let fourth = scan(&folder, &agree(10_000_000_000), &chunker());
    assert_eq!(fourth.files_read, 1);
    assert!(matches!(fourth.found[&path("b")], Found::Changed { .. }));
    assert!(now() > 0);
}

#[test]
fn what_cannot_be_synced_is_told_and_not_taken_for_deleted() {
    use std::os::unix::ffi::OsStrExt;
    let room = Room::new();
    fs::write(room.at("good"), "good").unwrap();
    fs::write(room.at("aux.txt"), "reserved").unwrap();
    fs::write(room.at("a:b"), "stream").unwrap();
    let unreadable = std::ffi::OsStr::from_bytes(b"caf\xe9");
    fs::write(
        room.room.path().join("dir").join(Path::new(unreadable)),
        "latin",
    )
    .unwrap();
    let folder = room.open();
    let found = scan(&folder, &BTreeMap::new(), &chunker());
    assert_eq!(found.found.len(), 1);
    let told: Vec<String> = found
        .problems
        .iter()
        .map(|(_, error)| error.to_string())
        .collect();
    assert_eq!(told.len(), 3, "{told:?}");
    assert!(told.iter().any(|text| text.contains("Windows")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("UTF-8")), "{told:?}");
    assert!(!found.is_unclear(&path("good")));
}
