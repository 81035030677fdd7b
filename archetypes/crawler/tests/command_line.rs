//! The command line, as somebody types it.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_crawler"));
    for name in ["ARCHETYPES_BACKEND", "ARCHETYPES_DATA", "ARCHETYPES_PREFIX"] {
        command.env_remove(name);
    }
    command.args(arguments).output().unwrap()
}

fn told(output: &Output) -> (bool, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (
        output.status.success(),
        text(&output.stdout),
        text(&output.stderr),
    )
}

#[test]
fn a_crawl_writes_what_it_found_and_the_report_draws_it() {
    let out = tempfile::tempdir().unwrap();
    let dir = out.path().to_str().unwrap();
    let crawl = [
        "crawl",
        "http://site.test/",
        "--demo",
        "--depth",
        "2",
        "--delay",
        "0",
        "--out",
        dir,
    ];
    let (well, said, complaints) = told(&run(&crawl));
    assert!(well, "{complaints}");
    assert!(
        said.contains("parsed") && said.contains("disallowed by robots.txt"),
        "{said}"
    );
    assert!(
        !said.contains('\u{1b}'),
        "no colours where nobody sees them"
    );
    let json = std::fs::read_to_string(out.path().join("crawl.json")).unwrap();
    let crawled: Value = serde_json::from_str(&json).unwrap();
    let urls = crawled["urls"].as_array().unwrap();
    assert!(urls.len() > 10, "{}", urls.len());
    let home = urls
        .iter()
        .find(|url| url["url"] == "http://site.test/")
        .unwrap();
    assert!(home["links"].as_array().unwrap().len() > 4);
    let file = home["files"][0].as_str().unwrap();
    assert!(
        std::fs::read_to_string(out.path().join(file))
            .unwrap()
            .contains("<h1>")
    );

    let (well, said, complaints) = told(&run(&["report", dir]));
    assert!(well && said.contains("report.html"), "{said}{complaints}");
    let page = std::fs::read_to_string(out.path().join("report.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("http://site.test/"));
    assert_eq!(
        page.matches("<title>").count(),
        urls.len() + 1,
        "a dot for each URL"
    );
}

#[test]
fn scripts_get_json() {
    let crawl = [
        "crawl",
        "http://site.test/",
        "--demo",
        "--depth",
        "0",
        "--delay",
        "0",
        "--json",
    ];
    let (well, said, complaints) = told(&run(&crawl));
    assert!(well, "{complaints}");
    let crawled: Value = serde_json::from_str(&said).unwrap();
    assert_eq!(crawled["finished"], true);
    assert_eq!(crawled["urls"][0]["status"], "PARSED");
    let (well, said, complaints) =
        told(&run(&["bench", "--pages", "20", "--hosts", "2", "--json"]));
    assert!(well, "{complaints}");
    let measured: Value = serde_json::from_str(&said).unwrap();
    assert!(measured["pages_per_second"].as_f64().unwrap() > 0.0);
    let share = measured["store_share"].as_f64().unwrap();
    assert!((0.0..=1.0).contains(&share), "{share}");
}

#[test]
fn wrong_input_gets_a_clear_word() {
    for (arguments, word) in [
        (&["crawl", "site.test"][..], "is not a URL"),
        (&["crawl", "ftp://site.test/"], "is not http or https"),
        (
            &["crawl", "http://127.0.0.1:9/"],
            "forbidden address: loopback",
        ),
        (
            &["crawl", "http://169.254.169.254/"],
            "forbidden address: link-local",
        ),
        #[cfg(not(feature = "https"))]
        (&["crawl", "https://site.test/"], "--features https"),
        (&["crawl"], "required"),
        (
            &["crawl", "http://site.test/", "--depth", "deep"],
            "invalid value",
        ),
        (
            &["crawl", "http://site.test/", "--allow", "nowhere"],
            "invalid value",
        ),
        (
            &["report", "no/such/dir"],
            "crawl with --out no/such/dir first",
        ),
    ] {
        let (well, said, complaints) = told(&run(arguments));
        assert!(!well, "{arguments:?}: {said}");
        assert!(complaints.contains(word), "{arguments:?}: {complaints}");
    }
}

#[test]
fn what_it_can_do_is_listed() {
    let (well, said, _) = told(&run(&["--help"]));
    assert!(well);
    for command in ["crawl", "report", "site", "bench", "walk"] {
        assert!(said.contains(command), "{command}");
    }
    let (well, said, _) = told(&run(&["crawl", "--help"]));
    assert!(
        well && said.contains("--allow") && said.contains("--delay"),
        "{said}"
    );
}
