//! A crate pays only for the services it uses: what it never asks `cloud` for, it does not build.
#![allow(clippy::unwrap_used)]

use std::process::Command;
use tests::Tree;

/// How code asks for a service, and the package that is then built.
const SERVICES: [(&str, &str); 5] = [
    (".s3()", "aws-sdk-s3"),
    (".sqs()", "aws-sdk-sqs"),
    (".streams()", "aws-sdk-dynamodbstreams"),
    // Shared, made anew, or for subscribing.
    (".redis", "redis"),
    (".http(", "reqwest-middleware"),
];

/// Every package that is built for this one and its tests.
fn built_for(package: &str) -> Vec<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    let output = Command::new(cargo)
        .args([
            "tree",
            "-p",
            package,
            "-e",
            "normal,build,dev",
            "--prefix",
            "none",
        ])
        .args(["--format", "{p}", "--offline", "--locked"])
        .current_dir(tests::root())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree -p {package}: {errors}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// Which packages of services these sources have no use for.
fn unused(sources: &[&str]) -> Vec<&'static str> {
    let asked = |call: &str| sources.iter().any(|text| text.contains(call));
    SERVICES
        .into_iter()
        .filter(|(call, _)| !asked(call))
        .map(|(_, package)| package)
        .collect()
}

#[test]
fn an_archetype_builds_no_service_it_does_not_use() {
    let tree = Tree::read();
    for name in tree.archetypes() {
        let folder = format!("archetypes/{name}/src");
        let built = built_for(name);
        let sources: Vec<_> = tree.under(&folder).map(|file| file.text.as_str()).collect();
        for package in unused(&sources) {
            let complaint = format!(
                "archetypes/{name}/Cargo.toml:1: builds {package}, and nothing in src uses it"
            );
            assert!(!built.iter().any(|built| built == package), "{complaint}");
        }
    }
}

#[test]
fn a_service_that_is_built_is_seen() {
    let built = built_for("tests");
    for (_, package) in SERVICES {
        assert!(built.iter().any(|built| built == package), "{package}");
    }
    let sources = ["cloud.s3().put_object()", "cloud.redis().await"];
    assert_eq!(
        unused(&sources),
        [
            "aws-sdk-sqs",
            "aws-sdk-dynamodbstreams",
            "reqwest-middleware"
        ]
    );
}
