//! The command line, as somebody types it. The embedded store is for one process at a time, so two
//! directories are synced by two runs, one after the other.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

struct Desk {
    room: TempDir,
}

impl Desk {
    fn new() -> Self {
        let room = tempfile::tempdir().unwrap();
        for name in ["store", "laptop", "phone"] {
            fs::create_dir(room.path().join(name)).unwrap();
        }
        Self { room }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.room.path().join(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_file-sync"));
        for name in ["ARCHETYPES_BACKEND", "ARCHETYPES_DATA", "ARCHETYPES_PREFIX"] {
            command.env_remove(name);
        }
        command.args(arguments).arg("--data").arg(self.at("store"));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// It works, and says this.
    fn says(&self, arguments: &[&str]) -> String {
        let (well, said, complaints) = told(&self.run(arguments));
        assert!(well, "{arguments:?}: {said}{complaints}");
        assert!(!said.contains('\u{1b}') && !complaints.contains('\u{1b}'));
        said
    }

    fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.says(&[arguments, &["--json"]].concat())).unwrap()
    }

    fn sync(&self, device: &str) -> String {
        let directory = self.at(device);
        let directory = directory.to_str().unwrap();
        self.says(&["sync", directory, "--remote", "photos", "--device", device])
    }
}

fn told(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap()
}

#[test]
fn two_directories_become_alike_through_the_store() {
    let desk = Desk::new();
    fs::write(desk.at("laptop/one.txt"), "one").unwrap();
    fs::create_dir(desk.at("laptop/2026")).unwrap();
    fs::write(desk.at("laptop/2026/two.txt"), "two").unwrap();
    let said = desk.sync("laptop");
    assert!(said.contains("published     2026/two.txt"), "{said}");
    let said = desk.sync("phone");
    assert!(said.contains("fetched       one.txt"), "{said}");
    assert_eq!(read(&desk.at("phone/2026/two.txt")), "two");

    // Edited in both, in a way that cannot be merged.
    fs::write(desk.at("laptop/one.txt"), "one, by the laptop").unwrap();
    fs::write(desk.at("phone/one.txt"), "one, by the phone").unwrap();
    desk.sync("laptop");
    let said = desk.sync("phone");
    let copy = "one (conflicted copy of phone).txt";
    assert!(said.contains(copy), "{said}");
    desk.sync("laptop");
    for device in ["laptop", "phone"] {
        assert_eq!(read(&desk.at(device).join("one.txt")), "one, by the laptop");
        assert_eq!(read(&desk.at(device).join(copy)), "one, by the phone");
    }
    assert!(desk.sync("laptop").contains("nothing to do"));

    // What the store has, for people and for scripts.
    assert!(desk.says(&["ls"]).contains("photos/"));
    let said = desk.says(&["ls", "photos"]);
    assert!(
        said.contains("2026/") && said.contains("v2") && said.contains(copy),
        "{said}"
    );
    let listed = desk.json(&["ls", "photos"]);
    assert_eq!(listed.as_array().unwrap().len(), 3);
    let said = desk.says(&["log", "photos/one.txt"]);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(
        said.starts_with("  v2") && said.contains("me on laptop"),
        "{said}"
    );

    // An old version, and a deleted file, come back.
    let said = desk.says(&["restore", "photos/one.txt", "--version", "1"]);
    assert!(said.contains("as version 3"), "{said}");
    fs::remove_file(desk.at("phone/2026/two.txt")).unwrap();
    desk.sync("phone");
    assert_eq!(read(&desk.at("phone/one.txt")), "one");
    assert!(
        desk.says(&["ls", "--deleted"])
            .contains("photos/2026/two.txt")
    );
    assert_eq!(
        desk.json(&["log", "photos/2026/two.txt"])
            .as_array()
            .unwrap()
            .len(),
        1
    );
    desk.says(&["restore", "photos/2026/two.txt"]);
    desk.sync("phone");
    assert_eq!(read(&desk.at("phone/2026/two.txt")), "two");

    // Others see what is shared with them, and only as long as it is.
    let bob = &["ls", "--shared", "--user", "bob"];
    assert_eq!(desk.says(bob), "");
    let said = desk.says(&["share", "photos/2026", "--with", "bob"]);
    assert!(said.contains("bob may read 'photos/2026'"), "{said}");
    assert!(desk.says(bob).contains("2026 of me"));
    desk.says(&["share", "photos/2026", "--with", "bob", "--revoke"]);
    assert_eq!(desk.says(bob), "");

    let collected = desk.json(&["gc", "--dry-run"]);
    assert_eq!(collected["dry_run"], true);
    assert_eq!(collected["deleted_chunks"].as_array().unwrap().len(), 0);
    assert!(collected["reachable"].as_u64().unwrap() >= 4, "{collected}");
    assert!(desk.says(&["gc"]).contains("deleted 0 chunks"));
}

#[test]
fn without_data_the_store_is_kept_and_never_inside_the_directory() {
    let desk = Desk::new();
    fs::write(desk.at("laptop/one.txt"), "one").unwrap();
    let run = |directory: &Path, data: Option<&Path>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_file-sync"));
        for name in ["ARCHETYPES_BACKEND", "ARCHETYPES_DATA", "ARCHETYPES_PREFIX"] {
            command.env_remove(name);
        }
        command.env("XDG_DATA_HOME", desk.at("store"));
        command
            .arg("sync")
            .arg(directory)
            .args(["--remote", "photos"]);
        if let Some(data) = data {
            command.arg("--data").arg(data);
        }
        told(&command.output().unwrap())
    };
    let (well, said, complaints) = run(&desk.at("laptop"), None);
    assert!(well && said.contains("published"), "{said}{complaints}");
    let (well, said, complaints) = run(&desk.at("phone"), None);
    assert!(
        well && said.contains("fetched       one.txt"),
        "{said}{complaints}"
    );
    // Another store is not taken for this one.
    let (well, said, complaints) = run(&desk.at("laptop"), Some(&desk.at("other")));
    assert!(
        !well && complaints.contains("Is it the right store?"),
        "{said}{complaints}"
    );
    let (well, said, complaints) = run(&desk.at("laptop"), Some(&desk.at("laptop/store")));
    assert!(
        !well && complaints.contains("neither may be in the other"),
        "{said}{complaints}"
    );
}

#[test]
fn what_no_path_leads_to_is_reached_by_its_id() {
    let desk = Desk::new();
    fs::write(desk.at("laptop/one.txt"), "one").unwrap();
    desk.sync("laptop");
    fs::remove_file(desk.at("laptop/one.txt")).unwrap();
    desk.sync("laptop");
    fs::write(desk.at("laptop/one.txt"), "another").unwrap();
    desk.sync("laptop");
    // Its path is another file's now.
    let gone = desk.json(&["ls", "--deleted"]);
    assert_eq!(gone[0]["path"], "photos/one.txt");
    let id = gone[0]["entry_id"].as_str().unwrap();
    assert!(desk.says(&["ls", "--deleted"]).contains(&format!("[{id}]")));
    let said = desk.says(&["restore", "--entry", id]);
    assert!(
        said.contains("one (conflicted copy of command-line).txt"),
        "{said}"
    );
    // A guest has no paths at all.
    desk.says(&["share", "photos", "--with", "bob"]);
    let shared = desk.json(&["ls", "--shared", "--user", "bob"]);
    let id = shared[0]["entry_id"].as_str().unwrap();
    let said = desk.says(&["ls", "--entry", id, "--user", "bob"]);
    assert!(said.contains("one.txt  ["), "{said}");
    let (well, _, complaints) = told(&desk.run(&["ls", "--entry", id, "--user", "eve"]));
    assert!(
        !well && complaints.contains("there is no file or folder here"),
        "{complaints}"
    );
}

#[test]
fn a_watch_goes_on_until_it_is_interrupted() {
    let desk = Desk::new();
    fs::write(desk.at("laptop/one.txt"), "one").unwrap();
    let directory = desk.at("laptop");
    let directory = directory.to_str().unwrap();
    let watch = [
        "sync", directory, "--remote", "photos", "--watch", "--every", "1",
    ];
    let mut watching = desk.command(&watch).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let mut until = |word: &str| {
        let said = lines
            .by_ref()
            .find(|line| line.as_ref().unwrap().contains(word));
        said.unwrap().unwrap();
    };
    until("published     one.txt");
    // The store is this process's now: another is told so.
    let (well, _, complaints) = told(&desk.run(&["ls"]));
    assert!(
        !well && complaints.contains("in use by another process"),
        "{complaints}"
    );
    fs::write(desk.at("laptop/two.txt"), "two").unwrap();
    until("published     two.txt");
    let pid = watching.id().to_string();
    let killed = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(killed.success());
    assert!(watching.wait().unwrap().success());
    let left: Vec<_> = fs::read_dir(desk.at("laptop/.file-sync"))
        .unwrap()
        .collect();
    assert_eq!(left.len(), 2, "the lock and the state: {left:?}");
    assert!(desk.says(&["ls", "photos"]).contains("two.txt"));
}

#[test]
fn what_is_not_synced_is_told_and_the_rest_is() {
    let desk = Desk::new();
    fs::write(desk.at("laptop/aux"), "reserved").unwrap();
    fs::write(desk.at("laptop/good"), "good").unwrap();
    let directory = desk.at("laptop");
    let directory = directory.to_str().unwrap();
    let (well, said, complaints) = told(&desk.run(&["sync", directory, "--remote", "photos"]));
    assert!(!well, "{said}");
    assert!(said.contains("published     good"), "{said}");
    assert!(complaints.contains("not synced: aux:"), "{complaints}");
    assert!(complaints.contains("error: 1 not synced"), "{complaints}");
}

#[test]
fn wrong_input_gets_a_clear_word() {
    let desk = Desk::new();
    let directory = desk.at("laptop");
    let directory = directory.to_str().unwrap();
    for (arguments, word) in [
        (
            &["sync", "no/such/dir", "--remote", "x"][..],
            "is not a directory",
        ),
        (&["sync", directory], "--remote"),
        (&["sync", directory, "--remote", "a/b"], "has '/' in a name"),
        (
            &["sync", directory, "--remote", "x", "--device", "a b"],
            "1 to 64 letters",
        ),
        (
            &["sync", directory, "--remote", "x", "--user", ""],
            "1 to 64 letters",
        ),
        (&["ls", "nowhere"], "there is no 'nowhere' in the store"),
        (&["log", "nowhere"], "there is no 'nowhere' in the store"),
        (
            &["restore", "nowhere"],
            "there is no 'nowhere' in the store",
        ),
        (&["restore", "nowhere", "--version", "0"], "invalid value"),
        (&["share", "nowhere"], "--with"),
        (&["bench", "--size", "0"], "invalid value"),
    ] {
        let (well, said, complaints) = told(&desk.run(arguments));
        assert!(!well, "{arguments:?}: {said}");
        assert!(complaints.contains(word), "{arguments:?}: {complaints}");
    }
}

#[test]
fn a_bench_prints_what_it_measured() {
    let desk = Desk::new();
    let measured = desk.json(&["bench", "--size", "8", "--runs", "1", "--edit", "4"]);
    let number = |name: &str| measured[name].as_f64().unwrap();
    for rate in ["fastcdc", "sha2", "one_core", "all_cores", "of_slower"] {
        assert!(number(rate) > 0.0, "{measured}");
    }
    assert_eq!(number("bytes"), 8.0 * 1024.0 * 1024.0);
    assert!(number("edit_chunks") <= 3.0, "{measured}");
    assert!(
        number("edit_bytes") < number("file_bytes") / 2.0,
        "{measured}"
    );
    assert_eq!(number("fetch_bytes"), number("edit_bytes"), "{measured}");
}

#[test]
fn what_it_can_do_is_listed() {
    let desk = Desk::new();
    let said = desk.says(&["--help"]);
    for command in [
        "sync", "ls", "log", "restore", "share", "gc", "bench", "walk",
    ] {
        assert!(said.contains(command), "{command}");
    }
    let said = desk.says(&["sync", "--help"]);
    assert!(
        said.contains("--watch") && said.contains("--remote"),
        "{said}"
    );
}
