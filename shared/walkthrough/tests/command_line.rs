//! The command line, as a user meets it: the toy's own binary is run.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::process::{Command, Output, Stdio};

fn toy() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_toy"));
    for name in ["ARCHETYPES_BACKEND", "ARCHETYPES_DATA", "ARCHETYPES_PREFIX"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

fn run(args: &[&str]) -> Output {
    toy().args(args).output().unwrap()
}

fn out(args: &[&str]) -> String {
    let output = run(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The exit code and what it complained.
fn complaint(args: &[&str]) -> (i32, String) {
    let output = run(args);
    (
        output.status.code().unwrap(),
        String::from_utf8(output.stderr).unwrap(),
    )
}

#[test]
fn without_a_command_it_walks() {
    assert_eq!(out(&[]), out(&["walk"]));
    let text = out(&[]);
    assert!(text.starts_with("Toy: a counter with a limit\n"), "{text}");
    assert!(text.contains("nothing scanned"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn json_is_json_and_nothing_else() {
    for args in [
        &["--json"][..],
        &["walk", "--json"],
        &["actions", "--json"],
        &["tables", "--json"],
        &["cost", "--json"],
        &["cloudformation"],
    ] {
        let text = out(args);
        serde_json::from_str::<serde_json::Value>(&text)
            .unwrap_or_else(|error| panic!("{args:?}: {error}"));
    }
}

#[test]
fn html_writes_a_page_and_keeps_quiet_on_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("walk.html");
    assert_eq!(out(&["walk", "--html", file.to_str().unwrap()]), "");
    assert!(
        std::fs::read_to_string(&file)
            .unwrap()
            .starts_with("<!doctype html>")
    );
    // A folder that is not there is made; a file is no folder.
    let below = dir.path().join("new/walk.html");
    assert_eq!(out(&["walk", "--html", below.to_str().unwrap()]), "");
    assert!(below.is_file());
    let below_a_file = file.join("walk.html");
    let (code, complaint) = complaint(&["walk", "--html", below_a_file.to_str().unwrap()]);
    assert_eq!(code, 1);
    assert!(
        complaint.starts_with("error: cannot write ") && complaint.lines().count() == 1,
        "{complaint}"
    );
}

#[test]
fn wrong_usage_ends_with_2_and_says_what_is_wrong() {
    for (args, words) in [
        (&["cost", "--rate", "0"][..], "the rate must be above 0"),
        (&["cost", "--rate", "-5"], "the rate must be above 0"),
        (&["cost", "--rate", "many"], "not a number"),
        (&["--backend", "moon"], "embedded"),
        (&["fly"], "fly"),
        (&["walk", "--step", "--json"], "--json"),
        (&["--json", "tables"], "go behind the command"),
        (&["--prefix", "A b", "walk"], "lower-case"),
    ] {
        let (code, complaint) = complaint(args);
        assert_eq!(code, 2, "{args:?}: {complaint}");
        assert!(complaint.contains(words), "{args:?}: {complaint}");
    }
}

#[test]
fn a_backend_that_is_not_there_ends_with_1_and_says_what_to_do() {
    let output = toy()
        .args(["walk"])
        .env("ARCHETYPES_BACKEND", "moon")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let complaint = String::from_utf8(output.stderr).unwrap();
    assert!(
        complaint.starts_with("error: there is no backend 'moon': use embedded, docker or aws"),
        "{complaint}"
    );
}

#[test]
fn help_names_every_command_and_option() {
    let help = out(&["--help"]);
    for word in [
        "walk",
        "actions",
        "tables",
        "cost",
        "cloudformation",
        "teardown",
        "count",
        "--backend",
        "--data",
        "--prefix",
        "--step",
    ] {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn cost_says_units_the_hottest_key_and_dollars() {
    let text = out(&["cost", "--rate", "500"]);
    for words in [
        "500 counts a second",
        "increment",
        "fits; full at 1,000 counts/s",
        "on demand",
        "provisioned, 70% used",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

#[test]
fn actions_and_tables_are_listed_for_people() {
    let actions = out(&["actions"]);
    assert!(
        actions.contains("increment → CounterState, EventState\n  abstract  overwrite, guarded"),
        "{actions}"
    );
    let tables = out(&["tables"]);
    assert!(tables.contains("  index     by-status (global): status, counter_id; keys only. Which counters are full?"), "{tables}");
}

#[test]
fn an_archetypes_own_command_has_tables_and_its_arguments() {
    assert_eq!(out(&["count", "--most", "2"]), "counted: true\n");
    let (code, complaint) = complaint(&["count", "--most", "x"]);
    assert_eq!(
        (code, complaint.as_str()),
        (1, "error: invalid digit found in string\n")
    );
}

#[test]
fn a_walk_leaves_the_kept_store_alone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    // Counted ids would meet those of the first walk.
    out(&["walk", "--data", data]);
    out(&["walk", "--data", data]);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn teardown_removes_only_what_has_a_name() {
    assert!(out(&["teardown"]).contains("nothing to remove"));
    let (code, complaint) = complaint(&["teardown", "--backend", "aws"]);
    assert_eq!(code, 1);
    assert!(complaint.contains("teardown needs --prefix"), "{complaint}");
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().to_str().unwrap();
    out(&["count", "--data", data]);
    assert_eq!(
        out(&["teardown", "--data", data]),
        "removed archetypes-counters, archetypes-events\n"
    );
}

#[test]
fn steps_wait_for_enter_and_go_on_at_the_end_of_the_input() {
    assert_eq!(out(&["--step"]), out(&[]));
    let mut child = toy()
        .arg("--step")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // One prompt, then one Enter, then the next prompt: it waits each time.
    let mut stdin = child.stdin.take().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    for _ in 0..2 {
        let mut prompt = [0; "\n  Enter for the next step ".len()];
        stderr.read_exact(&mut prompt).unwrap();
        assert_eq!(prompt, *b"\n  Enter for the next step ");
        assert!(child.try_wait().unwrap().is_none());
        stdin.write_all(b"\n").unwrap();
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), out(&[]));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for args in [&["walk"][..], &["cloudformation"], &["cost"]] {
        let mut child = toy()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "", "{args:?}");
        assert!(output.status.success(), "{args:?}");
    }
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_a_waiting_walk_with_130() {
    let mut child = toy()
        .arg("--step")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut prompt = [0; 10];
    child
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut prompt)
        .unwrap();
    let sent = Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// A DynamoDB outside the toy's process, which it meets as the aws backend.
struct Store {
    runtime: tokio::runtime::Runtime,
    address: String,
}

impl Store {
    fn new() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let database = dynoxide::Database::memory().unwrap();
        runtime.spawn(dynoxide::server::serve_on(listener, database));
        Self { runtime, address }
    }

    fn toy(&self) -> Command {
        let mut command = toy();
        command
            .env("AWS_ENDPOINT_URL", &self.address)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .args(["--backend", "aws"]);
        command
    }

    fn tables(&self) -> Vec<String> {
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(aws_sdk_dynamodb::config::BehaviorVersion::latest())
            .region(aws_sdk_dynamodb::config::Region::new("us-east-1"))
            .credentials_provider(aws_sdk_dynamodb::config::Credentials::new(
                "test", "test", None, None, "test",
            ))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(&self.address)
            .build();
        let listing = aws_sdk_dynamodb::Client::from_conf(config)
            .list_tables()
            .send();
        self.runtime
            .block_on(listing)
            .unwrap()
            .table_names
            .unwrap_or_default()
    }
}

#[test]
fn a_walk_elsewhere_leaves_nothing_behind() {
    let store = Store::new();
    let walked = store.toy().arg("walk").output().unwrap();
    assert!(
        walked.status.success(),
        "{}",
        String::from_utf8_lossy(&walked.stderr)
    );
    assert_eq!(
        String::from_utf8(walked.stdout).unwrap(),
        out(&[]),
        "and it is the same walk"
    );
    assert!(store.tables().is_empty());
}

#[cfg(unix)]
#[test]
fn ctrl_c_removes_what_a_walk_created() {
    let store = Store::new();
    let mut child = store
        .toy()
        .args(["walk", "--step"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut prompt = [0; 10];
    child
        .stderr
        .as_mut()
        .unwrap()
        .read_exact(&mut prompt)
        .unwrap();
    assert_eq!(store.tables().len(), 2);
    Command::new("kill")
        .args(["-INT", &child.id().to_string()])
        .status()
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(store.tables().is_empty());
}

#[test]
fn what_has_a_given_prefix_stays_until_teardown() {
    let store = Store::new();
    let run = |args: &[&str]| {
        let output = store.toy().args(args).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    run(&["count"]);
    assert!(
        store.tables().is_empty(),
        "without a prefix nobody would find them again"
    );
    run(&["count", "--prefix", "mine"]);
    assert_eq!(store.tables(), ["mine-counters", "mine-events"]);
    run(&["walk", "--prefix", "mine"]);
    assert_eq!(
        store.tables(),
        ["mine-counters", "mine-events"],
        "a walk has tables of its own"
    );
    assert_eq!(
        run(&["teardown", "--prefix", "mine"]),
        "removed mine-counters, mine-events\n"
    );
    assert!(store.tables().is_empty());
}
