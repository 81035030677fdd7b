//! What the READMEs say is so: their commands work as written, and their generated parts are
//! current. `EXPECTORATE=overwrite cargo test -p tests` rewrites those parts.
//!
//! Commands are the lines of `sh` and `bash` blocks, and the lines after `$ ` in `console` blocks:
//!
//! - `cargo run …` is run from the root of the workspace and must end well. With
//!   `# runs until Ctrl-C` after it, it must print a line, and end well when it is interrupted.
//! - `cargo test …` would run this test again: its packages, targets, features and filters must exist.
//! - With `ARCHETYPES_BACKEND=docker` or `aws` before it a command needs an engine or an account:
//!   it is checked like `cargo test`, and not run.
//! - `curl …` must ask this machine. It is sent to the server that the README starts, and what may change
//!   something is sent twice: a client that got no answer sends the same again, and is not refused for it.
//! - `docker …` needs an engine. `.ci/run` must be there.
//!
//! Any other command fails here until somebody teaches this test what it means.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tests::{File, Tree};

/// A command as it stands in a README.
#[derive(Debug, PartialEq, Eq)]
struct Written {
    line: usize,
    text: String,
}

/// The commands in the code blocks of a Markdown text.
fn commands(markdown: &str) -> Vec<Written> {
    let mut found = Vec::new();
    let mut language: Option<String> = None;
    let mut open: Option<Written> = None;
    for (line, text) in (1..).zip(markdown.lines()) {
        let text = text.trim();
        if let Some(fence) = text.strip_prefix("```") {
            language = match language {
                Some(_) => None,
                None => Some(fence.to_owned()),
            };
            continue;
        }
        let begun = open.take();
        let text = match (begun.is_some(), language.as_deref()) {
            (true, Some(_)) | (false, Some("sh" | "bash")) => text,
            (false, Some("console")) => match text.strip_prefix("$ ") {
                Some(text) => text,
                None => continue,
            },
            _ => continue,
        };
        let mut command = begun.unwrap_or(Written {
            line,
            text: String::new(),
        });
        let (text, goes_on) = match text.strip_suffix('\\') {
            Some(text) => (text, true),
            None => (text, false),
        };
        command.text.push_str(text);
        if goes_on {
            open = Some(command);
        } else if !command.text.is_empty() && !command.text.starts_with('#') {
            found.push(command);
        }
    }
    found
}

/// The words of a command as a shell reads them, and its comment.
fn words(text: &str) -> (Vec<String>, Option<String>) {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(end), _) if c == end => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => {
                return (words, Some(chars.as_str().trim().to_owned()));
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    (words, None)
}

/// What to do about a command.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// Run it with these variables; it ends by itself, or when it is interrupted.
    Run {
        variables: Vec<(String, String)>,
        arguments: Vec<String>,
        until_interrupted: bool,
    },
    /// Only see that what these arguments of cargo name exists.
    Check(Vec<String>),
    /// Nothing to do here.
    Elsewhere,
    /// This file must exist.
    Exists(String),
}

fn meaning(text: &str) -> Result<Meaning, String> {
    let (words, comment) = words(text);
    let is_variable = |word: &&String| {
        let name = word.split_once('=').map(|(name, _)| name);
        name.is_some_and(|name| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_uppercase() || c == '_')
        })
    };
    let variables: Vec<(String, String)> = words
        .iter()
        .take_while(is_variable)
        .filter_map(|word| word.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let words = &words[variables.len()..];
    let plain: Vec<_> = words.iter().map(String::as_str).collect();
    if words
        .iter()
        .any(|word| ["|", "&&", "||", ";", ">", "&"].contains(&word.as_str()))
    {
        return Err("one command in a line: this test does not know pipes and lists".to_owned());
    }
    let away =
        |(name, value): &(String, String)| name == "ARCHETYPES_BACKEND" && value != "embedded";
    match plain.as_slice() {
        ["cargo", "run", ..] if variables.iter().any(away) => {
            Ok(Meaning::Check(words[1..].to_vec()))
        }
        ["cargo", "run", ..] => Ok(Meaning::Run {
            variables,
            arguments: words[1..].to_vec(),
            until_interrupted: comment.is_some_and(|comment| comment == "runs until Ctrl-C"),
        }),
        ["cargo", "test", ..] => Ok(Meaning::Check(words[1..].to_vec())),
        ["curl", arguments @ ..] => {
            let addresses: Vec<_> = arguments
                .iter()
                .filter(|word| {
                    word.contains("://")
                        || word.starts_with("localhost")
                        || word.starts_with("127.")
                })
                .collect();
            let local = |address: &str| {
                let host = address.rsplit("://").next().unwrap_or_default();
                ["127.0.0.1", "localhost"].iter().any(|local| {
                    host.strip_prefix(local)
                        .is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
                })
            };
            match !addresses.is_empty() && addresses.iter().all(|address| local(address)) {
                true => Ok(Meaning::Elsewhere),
                false => Err("curl must ask 127.0.0.1 or localhost".to_owned()),
            }
        }
        ["docker", ..] => Ok(Meaning::Elsewhere),
        [".ci/run"] => Ok(Meaning::Exists(".ci/run".to_owned())),
        _ => Err("teach this test the command".to_owned()),
    }
}

/// Whether what a `cargo run` or `cargo test` names is in the tree.
fn check(arguments: &[String], tree: &Tree) -> Result<(), String> {
    let verb = arguments.first().map(String::as_str).unwrap_or_default();
    let mut packages = Vec::new();
    let mut targets = Vec::new();
    let mut filters = Vec::new();
    let mut rest = arguments.iter().skip(1).map(String::as_str);
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{word} needs a value"));
        match word {
            "-p" | "--package" => packages.push(value()?),
            "--test" => targets.push(value()?),
            "--features" => {
                for feature in value()?.split(',') {
                    has_feature(feature, tree)?;
                }
            }
            "--" => break,
            "-q" | "--quiet" | "--release" | "--locked" | "--offline" | "--workspace" | "--lib"
            | "--doc" => {}
            flag if flag.starts_with('-') => {
                return Err(format!("teach this test the flag {flag}"));
            }
            filter if verb == "test" => filters.push(filter),
            other => return Err(format!("'{other}' belongs after --")),
        }
    }
    // What follows `--` goes to the tests, which take filters too, or to the program.
    if verb == "test" {
        filters.extend(rest.filter(|word| !word.starts_with('-')));
    }
    let mut folders = Vec::new();
    for package in &packages {
        let mut all = tree.packages();
        let found = all.find(|(_, name)| name == package);
        folders.push(found.ok_or(format!("there is no package {package}"))?.0);
    }
    if packages.is_empty() {
        folders = tree.packages().map(|(folder, _)| folder).collect();
    }
    let of_package = |file: &&File| {
        folders
            .iter()
            .any(|folder| file.path.starts_with(&format!("{folder}/")))
    };
    let rust: Vec<_> = tree
        .files
        .iter()
        .filter(|file| file.path.ends_with(".rs"))
        .filter(of_package)
        .collect();
    for target in &targets {
        let ends = [
            format!("/tests/{target}.rs"),
            format!("/tests/{target}/main.rs"),
        ];
        if !rust
            .iter()
            .any(|file| ends.iter().any(|end| file.path.ends_with(end)))
        {
            return Err(format!("there is no test target {target}"));
        }
    }
    let in_target = |file: &&&File| {
        let mut places = targets
            .iter()
            .map(|target| [format!("/tests/{target}.rs"), format!("/tests/{target}/")]);
        targets.is_empty()
            || places.any(|[one, folder]| file.path.ends_with(&one) || file.path.contains(&folder))
    };
    for filter in filters {
        let name = filter.rsplit("::").next().unwrap_or_default();
        let is_test = |file: &&File| test_names(&file.text).any(|test| test.contains(name));
        if !rust.iter().filter(in_target).any(is_test) {
            return Err(format!("no test has '{filter}' in its name"));
        }
    }
    Ok(())
}

/// The functions under a `#[test]` or `#[tokio::test]`.
fn test_names(text: &str) -> impl Iterator<Item = &str> {
    let mut marked = false;
    text.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("#[test") || line.starts_with("#[tokio::test") {
            marked = true;
            return None;
        }
        let (_, after) = line.split_once("fn ").filter(|_| marked)?;
        marked = false;
        after.split('(').next()
    })
}

fn has_feature(feature: &str, tree: &Tree) -> Result<(), String> {
    let (package, name) = feature
        .split_once('/')
        .ok_or(format!("say of which package: {feature}"))?;
    let mut packages = tree.packages();
    let folder = packages
        .find(|(_, of)| *of == package)
        .map(|(folder, _)| folder);
    let manifest = folder.and_then(|folder| tree.file(&format!("{folder}/Cargo.toml")));
    let line = format!("{name} = [");
    let there =
        manifest.is_some_and(|manifest| manifest.text.lines().any(|have| have.starts_with(&line)));
    there
        .then_some(())
        .ok_or(format!("there is no feature {feature}"))
}

/// Long enough to build what is to be run.
const LIMIT: Duration = Duration::from_secs(600);

fn end_of(child: &mut Child, limit: Duration) -> Option<ExitStatus> {
    let started = Instant::now();
    while started.elapsed() < limit {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    None
}

/// Cargo at the root of the workspace, as somebody would run it who just cloned it.
fn cargo(variables: &[(String, String)], arguments: &[String]) -> Command {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| env!("CARGO").to_owned());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(tests::root());
    for name in ["ARCHETYPES_BACKEND", "ARCHETYPES_DATA", "ARCHETYPES_PREFIX"] {
        command.env_remove(name);
    }
    command.envs(variables.iter().map(|(name, value)| (name, value)));
    command
}

/// Runs a command to its end, which must be a good one, and comes by itself or by a signal.
fn run(mut command: Command, until: Option<&str>) -> Result<(), String> {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| error.to_string())?;

    let (first, printed) = mpsc::channel();
    let out = BufReader::new(child.stdout.take().unwrap());
    let out = std::thread::spawn(move || {
        for line in out.lines().map_while(Result::ok) {
            let _ = first.send(line);
        }
    });
    let mut errors = child.stderr.take().unwrap();
    let errors = std::thread::spawn(move || {
        let mut text = Vec::new();
        let _ = errors.read_to_end(&mut text);
        String::from_utf8_lossy(&text).into_owned()
    });

    let mut complaint = None;
    let status = if let Some(signal) = until {
        let up = printed.recv_timeout(LIMIT).is_ok();
        match end_of(&mut child, Duration::from_millis(200)) {
            Some(status) => {
                complaint = Some("ended by itself".to_owned());
                Some(status)
            }
            None => {
                if !up {
                    complaint = Some("printed nothing".to_owned());
                }
                // `cargo run` becomes the program it runs, so this reaches the program.
                let interrupt = Command::new("kill")
                    .args(["-s", signal, &child.id().to_string()])
                    .status();
                assert!(interrupt.unwrap().success());
                end_of(&mut child, Duration::from_secs(30))
            }
        }
    } else {
        end_of(&mut child, LIMIT)
    };
    match status {
        None => {
            complaint.get_or_insert("did not end in time".to_owned());
            child.kill().unwrap();
            child.wait().unwrap();
        }
        Some(status) if !status.success() => complaint = Some(status.to_string()),
        Some(_) => {}
    }
    let Some(complaint) = complaint else {
        return Ok(());
    };
    out.join().unwrap();
    let errors = errors.join().unwrap();
    let lines: Vec<_> = errors.lines().collect();
    let tail = lines[lines.len().saturating_sub(10)..].join("\n  ");
    Err(format!("{complaint}\n  {tail}"))
}

#[test]
fn the_commands_of_the_readmes_work_as_written() {
    let tree = Tree::read();
    let mut readmes = vec!["README.md".to_owned()];
    readmes.extend(
        tree.archetypes()
            .iter()
            .map(|name| format!("archetypes/{name}/README.md")),
    );
    let mut complaints = Vec::new();
    let mut done = BTreeSet::new();
    for path in readmes {
        let Some(readme) = tree.file(&path) else {
            complaints.push(format!("{path}:1: there is no README"));
            continue;
        };
        for Written { line, text } in commands(&readme.text) {
            if !done.insert(text.clone()) {
                continue;
            }
            let result = meaning(&text).and_then(|meaning| match meaning {
                Meaning::Run {
                    variables,
                    arguments,
                    until_interrupted,
                } => run(
                    cargo(&variables, &arguments),
                    until_interrupted.then_some("INT"),
                ),
                Meaning::Check(arguments) => check(&arguments, &tree),
                Meaning::Elsewhere => Ok(()),
                Meaning::Exists(file) => match tests::root().join(&file).exists() {
                    true => Ok(()),
                    false => Err(format!("there is no {file}")),
                },
            });
            if let Err(why) = result {
                complaints.push(readme.at(line, &format!("{text}\n  {why}")));
            }
        }
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// A request as curl would make it.
#[derive(Debug, PartialEq, Eq)]
struct Asked {
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

fn asked(text: &str) -> Option<Asked> {
    let (words, _) = words(text);
    let mut words = words.into_iter();
    if words.next()? != "curl" {
        return None;
    }
    let (mut method, mut path, mut headers, mut body) = (None, None, Vec::new(), None);
    while let Some(word) = words.next() {
        match word.as_str() {
            "-X" => method = words.next(),
            "-H" => {
                let header = words.next()?;
                let (name, value) = header.split_once(": ")?;
                headers.push((name.to_owned(), value.to_owned()));
            }
            "-d" => body = words.next(),
            _ if word.starts_with('-') => {}
            _ => {
                let address = word.rsplit("://").next()?;
                path = Some(address[address.find('/')?..].to_owned());
            }
        }
    }
    let with_body = if body.is_some() { "POST" } else { "GET" };
    if body.is_some() && !headers.iter().any(|(name, _)| name == "content-type") {
        let form = "application/x-www-form-urlencoded";
        headers.push(("content-type".to_owned(), form.to_owned()));
    }
    Some(Asked {
        method: method.unwrap_or_else(|| with_body.to_owned()),
        path: path?,
        headers,
        body,
    })
}

impl Asked {
    async fn send(&self, http: &reqwest::Client, base: &str) -> Result<(), String> {
        let method = self.method.parse().map_err(|_| "an odd method")?;
        let mut request = http.request(method, format!("{base}{}", self.path));
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        if let Some(body) = &self.body {
            request = request.body(body.clone());
        }
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let status = answer.status();
        let kind = answer.headers().get("content-type").cloned();
        if kind.is_some_and(|kind| kind == "text/event-stream") {
            // It has no end.
            return Ok(());
        }
        let text = answer.text().await.map_err(|error| error.to_string())?;
        match status.is_success() {
            true => Ok(()),
            false => Err(format!("{status} {text}")),
        }
    }
}

/// Sends the requests of a README to its server, and gives what went wrong.
async fn converse(requests: &[Written], base: &str) -> Vec<String> {
    let http = reqwest::Client::new();
    let mut wrong = Vec::new();
    for Written { line, text } in requests {
        let Some(asked) = asked(text) else {
            wrong.push(format!("{line}: {text}: not a request"));
            continue;
        };
        if let Err(why) = asked.send(&http, base).await {
            wrong.push(format!("{line}: {text}\n  {why}"));
        }
        // It may say 200 where the first said 201, and what goes on by itself may have gone on.
        if asked.method != "GET"
            && let Err(why) = asked.send(&http, base).await
        {
            wrong.push(format!("{line}: {text}\n  sent again: {why}"));
        }
    }
    wrong
}

#[tokio::test]
async fn the_requests_of_the_readmes_can_be_sent_twice() {
    let tree = Tree::read();
    let mut complaints = Vec::new();
    for name in tree.archetypes() {
        let path = format!("archetypes/{name}/README.md");
        let readme = tree.file(&path).unwrap();
        let (requests, others): (Vec<_>, Vec<_>) = commands(&readme.text)
            .into_iter()
            .partition(|command| command.text.starts_with("curl"));
        if requests.is_empty() {
            continue;
        }
        let serve = others.iter().find(|it| it.text.contains("-- serve"));
        let Some(Ok(Meaning::Run { arguments, .. })) = serve.map(|it| meaning(&it.text)) else {
            complaints.push(readme.at(requests[0].line, "no server is started for this"));
            continue;
        };
        let mut serve = cargo(&[], &arguments);
        serve.args(["--listen", "127.0.0.1:0"]);
        let serve = serve.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut server = serve.stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(server.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let base = lines.find_map(|line| {
            let at = line.find("http://127.0.0.1:")?;
            let address = line[at..].split_whitespace().next()?;
            Some(address.trim_end_matches('/').to_owned())
        });
        // The server must not block on a full pipe.
        std::thread::spawn(move || lines.count());
        match base {
            None => complaints.push(readme.at(requests[0].line, "the server did not start")),
            Some(base) => {
                let wrong = converse(&requests, &base).await;
                complaints.extend(wrong.iter().map(|why| format!("{path}:{why}")));
            }
        }
        server.kill().unwrap();
        server.wait().unwrap();
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn requests_are_read_as_curl_reads_them() {
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let read = asked(r#"curl -s -H 'merchant-id: shop' localhost:8080/a?b=c -d '{"a": 1}'"#);
    let form = header("content-type", "application/x-www-form-urlencoded");
    assert_eq!(
        read.unwrap(),
        Asked {
            method: "POST".to_owned(),
            path: "/a?b=c".to_owned(),
            headers: vec![header("merchant-id", "shop"), form],
            body: Some(r#"{"a": 1}"#.to_owned()),
        }
    );
    let read = asked("curl -s -X PUT http://127.0.0.1:8080/x").unwrap();
    assert_eq!((read.method.as_str(), read.path.as_str()), ("PUT", "/x"));
    assert_eq!(asked("cargo run"), None);
}

#[test]
fn commands_are_read_from_shell_blocks_only() {
    let markdown = "\
`cargo run` here is prose

```sh
# a comment
cargo run -p a -- \\
    serve   # runs until Ctrl-C

cargo test -p a
```
```console
$ cargo run -p b
what it prints
```
```rust
cargo::run();
```
  ```bash
  curl localhost:1
  ```
";
    let found = commands(markdown);
    let found: Vec<_> = found
        .iter()
        .map(|command| (command.line, command.text.as_str()))
        .collect();
    assert_eq!(
        found,
        [
            (5, "cargo run -p a -- serve   # runs until Ctrl-C"),
            (8, "cargo test -p a"),
            (11, "cargo run -p b"),
            (18, "curl localhost:1"),
        ]
    );
}

#[test]
fn words_are_split_as_a_shell_does() {
    let (words, comment) = words(r#"X=1 curl -d '{"a": 1}' "b # c" d#e  # the end"#);
    assert_eq!(words, ["X=1", "curl", "-d", r#"{"a": 1}"#, "b # c", "d#e"]);
    assert_eq!(comment.as_deref(), Some("the end"));
}

#[test]
fn each_command_has_one_meaning() {
    let owned = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    let run = |variables: &[(&str, &str)], arguments: &[&str], until_interrupted| {
        let variables = variables
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Ok(Meaning::Run {
            variables: variables.collect(),
            arguments: owned(arguments),
            until_interrupted,
        })
    };
    assert_eq!(
        meaning("cargo run -p a"),
        run(&[], &["run", "-p", "a"], false)
    );
    assert_eq!(
        meaning("A=1 cargo run -p a # tells it"),
        run(&[("A", "1")], &["run", "-p", "a"], false)
    );
    assert_eq!(
        meaning("cargo run -p a -- serve # runs until Ctrl-C"),
        run(&[], &["run", "-p", "a", "--", "serve"], true)
    );
    for away in ["docker", "aws"] {
        let text = format!("ARCHETYPES_BACKEND={away} cargo run -p a");
        assert_eq!(
            meaning(&text),
            Ok(Meaning::Check(owned(&["run", "-p", "a"])))
        );
    }
    assert_eq!(
        meaning("EXPECTORATE=overwrite cargo test -p tests"),
        Ok(Meaning::Check(owned(&["test", "-p", "tests"])))
    );
    assert_eq!(meaning("docker compose up -d"), Ok(Meaning::Elsewhere));
    assert_eq!(
        meaning("curl -X POST http://127.0.0.1:8080/x -d '{}'"),
        Ok(Meaning::Elsewhere)
    );
    assert_eq!(
        meaning(".ci/run"),
        Ok(Meaning::Exists(".ci/run".to_owned()))
    );
    for wrong in [
        "curl https://example.com",
        "curl http://localhost.example.com",
        "rm -rf target",
        "cargo publish",
        "cargo run -p a | head",
        "cargo run -p a && cargo run -p b",
        "",
    ] {
        assert!(meaning(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn what_a_command_names_must_exist() {
    let tree = Tree::of(&[
        ("archetypes/a/Cargo.toml", "[package]\nname = \"a\"\n"),
        (
            "archetypes/a/tests/claims.rs",
            "#[tokio::test]\nasync fn a_bid_is_kept() {}\nfn not_a_test() {}\n",
        ),
        (
            "shared/s/Cargo.toml",
            "[package]\nname = \"s\"\n[features]\ndocker = []\n",
        ),
        ("shared/s/tests/other.rs", "#[test]\nfn elsewhere() {}\n"),
    ]);
    let check = |text: &str| check(&words(text).0, &tree);
    for right in [
        "test",
        "test -p a",
        "test -p a a_bid",
        "test -p a --test claims -- --nocapture a_bid_is_kept",
        "test -p a --features s/docker",
        "test elsewhere",
        "run -p a -- serve --port 1",
    ] {
        assert_eq!(check(right), Ok(()), "{right}");
    }
    for wrong in [
        "test -p b",
        "test -p a a_bit",
        "test -p a not_a_test",
        "test -p a elsewhere",
        "test -p a --test other",
        "test -p a -- a_bit",
        "test -p a --features s/none",
        "test -p a --frobnicate",
        "run -p a serve",
        "run -p b",
    ] {
        assert!(check(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_command_that_ends_badly_is_told() {
    let words = ["run", "-p", "no-such-package", "--offline"].map(str::to_owned);
    let failed = run(cargo(&[], &words), None).unwrap_err();
    assert!(failed.contains("no-such-package"), "{failed}");
    assert_eq!(run(cargo(&[], &["--version".to_owned()]), None), Ok(()));

    // TERM, because a shell that was started in the background ignores INT.
    let shell = |script: &str| {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    };
    let server = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    assert_eq!(run(shell(server), Some("TERM")), Ok(()));
    for (script, complaint) in [
        ("echo ready", "ended by itself"),
        ("exit 0", "ended by itself"),
        ("echo ready; exec sleep 30", "signal: 15"),
        (
            "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done",
            "exit status: 3",
        ),
    ] {
        let told = run(shell(script), Some("TERM")).unwrap_err();
        assert!(told.starts_with(complaint), "{script}: {told}");
    }
}

// The generated parts.

/// Every archetype, in the one place outside its own folder that lists it.
fn archetypes() -> Vec<walkthrough::Archetype> {
    vec![
        auction::archetype(),
        crawler::archetype(),
        doc_editor::archetype(),
        file_sync::archetype(),
        matching::archetype(),
        payments::archetype(),
        scheduler::archetype(),
        tagging::archetype(),
        ticket_holds::archetype(),
    ]
}

#[test]
fn every_archetype_is_listed_here() {
    let listed: BTreeSet<_> = archetypes()
        .into_iter()
        .map(|archetype| archetype.name)
        .collect();
    assert_eq!(listed, Tree::read().archetypes());
}

#[tokio::test]
async fn the_generated_parts_of_the_readmes_are_current() {
    for archetype in archetypes() {
        let path = tests::root()
            .join("archetypes")
            .join(archetype.name)
            .join("README.md");
        let readme = std::fs::read_to_string(&path).unwrap();
        for part in ["tables", "actions"] {
            let begins = format!("<!-- generated:{part}");
            assert!(
                readme.contains(&begins),
                "{}:1: has no {begins} -->",
                path.display()
            );
        }
        let transcript = walkthrough::walk_for_tests(&archetype).await.unwrap();
        let filled = walkthrough::readme::filled(&readme, &archetype, &transcript);
        expectorate::assert_contents(&path, &filled.unwrap());
    }
}

// The excerpts.

/// Every `<!-- excerpt:PATH -->` with the code block after it: the path, and what it quotes.
fn excerpts(markdown: &str) -> Vec<(&str, &str)> {
    let parts = markdown.split("<!-- excerpt:").skip(1);
    parts
        .filter_map(|part| {
            let (path, rest) = part.split_once(" -->")?;
            let quoted = rest.split("```").nth(1)?.strip_prefix("text\n")?;
            Some((path, quoted))
        })
        .collect()
}

#[test]
fn what_a_readme_quotes_stands_in_the_file_it_quotes() {
    let tree = Tree::read();
    let readme = tree.file("README.md").unwrap();
    let found = excerpts(&readme.text);
    assert!(!found.is_empty(), "README.md quotes nothing");
    for (path, quoted) in found {
        let source = std::fs::read_to_string(tests::root().join(path)).unwrap();
        assert!(quoted.lines().count() > 5, "{path}: a quotation of nothing");
        assert!(source.contains(quoted), "{path} does not say:\n{quoted}");
    }
}

#[test]
fn an_excerpt_is_the_block_after_its_mark() {
    let text = "a\n<!-- excerpt:x/y.txt -->\n```text\nquoted\n```\nb\n```text\nnot\n```\n";
    assert_eq!(excerpts(text), [("x/y.txt", "quoted\n")]);
}
