//! The shape of the tree. Each rule is a function from the text of the tree to complaints, each
//! with file and line; one test holds it against the tree, another against a planted violation.
#![allow(clippy::unwrap_used)]

use tests::{File, Tree};

type Rule = fn(&Tree) -> Vec<String>;

#[track_caller]
fn holds(rule: Rule) {
    let complaints = rule(&Tree::read());
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// The rule finds something in the first tree, at the expected place, and nothing in the second.
#[track_caller]
fn finds(rule: Rule, at: &str, wrong: &[(&str, &str)], right: &[(&str, &str)]) {
    let found = rule(&Tree::of(wrong));
    assert!(found.len() == 1 && found[0].starts_with(at), "{found:#?}");
    let found = rule(&Tree::of(right));
    assert!(found.is_empty(), "{found:#?}");
}

// The shape of an archetype.

const SOURCES: [&str; 5] = ["lib", "tables", "domain", "walkthrough", "main"];
const TESTS: [&str; 5] = ["claims", "interleavings", "crashes", "naive", "walkthrough"];

/// A reader who knows one archetype finds everything in the next. A file may become a folder.
fn shape(tree: &Tree) -> Vec<String> {
    let mut missing = Vec::new();
    for name in tree.archetypes() {
        let mut need = |choices: [String; 2]| {
            if choices.iter().all(|path| tree.file(path).is_none()) {
                missing.push(format!(
                    "{}:1: is missing: every archetype has it",
                    choices[0]
                ));
            }
        };
        let readme = format!("archetypes/{name}/README.md");
        need([readme.clone(), readme]);
        for file in SOURCES {
            let stem = format!("archetypes/{name}/src/{file}");
            need([format!("{stem}.rs"), format!("{stem}/mod.rs")]);
        }
        for file in TESTS {
            let stem = format!("archetypes/{name}/tests/{file}");
            need([format!("{stem}.rs"), format!("{stem}/main.rs")]);
        }
    }
    missing
}

#[test]
fn every_archetype_has_the_files_of_the_design() {
    holds(shape);
}

#[test]
fn a_missing_file_is_found() {
    let mut files = vec![("archetypes/a/README.md", "")];
    files.extend(
        ["lib", "tables", "domain", "walkthrough"].map(|file| match file {
            "lib" => ("archetypes/a/src/lib.rs", ""),
            "tables" => ("archetypes/a/src/tables.rs", ""),
            "domain" => ("archetypes/a/src/domain/mod.rs", ""),
            _ => ("archetypes/a/src/walkthrough.rs", ""),
        }),
    );
    files.extend([
        ("archetypes/a/tests/claims/main.rs", ""),
        ("archetypes/a/tests/interleavings.rs", ""),
        ("archetypes/a/tests/crashes.rs", ""),
        ("archetypes/a/tests/naive.rs", ""),
        ("archetypes/a/tests/walkthrough.rs", ""),
    ]);
    let mut whole = files.clone();
    whole.push(("archetypes/a/src/main.rs", ""));
    finds(shape, "archetypes/a/src/main.rs:1:", &files, &whole);
}

/// The `main` of an archetype hands over to the walkthrough. What is more belongs into a module
/// that a test can reach.
fn short_main(tree: &Tree) -> Vec<String> {
    let mains = tree
        .rust("archetypes", "src")
        .filter(|file| file.path.ends_with("/src/main.rs"));
    mains
        .filter_map(|file| {
            let is_code = |line: &str| !line.trim().is_empty() && !line.trim().starts_with("//");
            let code = file.text.lines().filter(|line| is_code(line)).count();
            (code > 8).then(|| file.at(1, &format!("{code} lines of code: at most 8")))
        })
        .collect()
}

#[test]
fn the_main_of_an_archetype_is_a_few_lines() {
    holds(short_main);
}

#[test]
fn a_long_main_is_found() {
    let long = "let x = 1;\n".repeat(9);
    finds(
        short_main,
        "archetypes/a/src/main.rs:1:",
        &[("archetypes/a/src/main.rs", &long)],
        &[(
            "archetypes/a/src/main.rs",
            "//! One.\n\nfn main() {\n    a::run();\n}\n",
        )],
    );
}

// Who may know whom.

/// The names of what a Cargo.toml depends on, with lines: keys in any section of dependencies,
/// and packages and paths given there.
fn dependencies(manifest: &File) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut inside = false;
    for (number, line) in manifest.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(section) = line.strip_prefix('[') {
            let section = section.trim_end_matches(']');
            inside = section.ends_with("dependencies");
            if let Some((kind, name)) = section.rsplit_once('.')
                && kind.ends_with("dependencies")
            {
                inside = true;
                found.push((number, name.trim_matches('"').to_owned()));
            }
        } else if inside && let Some((key, value)) = line.split_once('=') {
            let key = key.split('.').next().unwrap_or_default();
            found.push((number, key.trim().trim_matches('"').to_owned()));
            for quoted in value.split('"').skip(1).step_by(2) {
                found.push((
                    number,
                    quoted.rsplit('/').next().unwrap_or_default().to_owned(),
                ));
            }
        }
    }
    found
}

fn own_name(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or_default()
}

/// Each archetype is studied, built and changed alone; what two of them share is in `shared/`,
/// which knows none of them.
fn no_archetype_below(tree: &Tree) -> Vec<String> {
    let archetypes = tree.archetypes();
    let mut found = Vec::new();
    for folder in ["archetypes", "shared"] {
        for manifest in tree
            .under(folder)
            .filter(|file| file.path.ends_with("/Cargo.toml"))
        {
            for (line, name) in dependencies(manifest) {
                if archetypes.contains(name.as_str()) && name != own_name(&manifest.path) {
                    found.push(manifest.at(line, &format!("depends on the archetype {name}")));
                }
            }
        }
    }
    found
}

#[test]
fn archetypes_do_not_depend_on_each_other_nor_shared_on_them() {
    holds(no_archetype_below);
}

#[test]
fn a_dependency_on_an_archetype_is_found() {
    for dependency in [
        "[dependencies]\nb.workspace = true\n",
        "[dev-dependencies]\nb = { workspace = true }\n",
        "[dependencies]\nx = { path = \"../b\" }\n",
        "[dependencies]\nx = { package = \"b\", workspace = true }\n",
        "[target.'cfg(unix)'.dependencies]\n\"b\" = \"1\"\n",
    ] {
        for user in ["archetypes/a", "shared/s"] {
            let manifest = format!("{user}/Cargo.toml");
            finds(
                no_archetype_below,
                &format!("{manifest}:2: depends on the archetype b"),
                &[(&manifest, dependency), ("archetypes/b/README.md", "")],
                &[
                    (&manifest, "[dependencies]\nbb = \"1\" # not b\n"),
                    ("archetypes/b/README.md", ""),
                ],
            );
        }
    }
    let table = [
        (
            "shared/s/Cargo.toml",
            "[dependencies.b]\nworkspace = true\n",
        ),
        ("archetypes/b/README.md", ""),
    ];
    assert_eq!(no_archetype_below(&Tree::of(&table)).len(), 1);
}

/// Where a text names a crate, in the forms that mean a crate and nothing else:
///
/// - `-p NAME` and `archetypes/NAME`;
/// - `NAME archetype` and `NAME crate`, with or without backticks;
/// - a path `NAME::` outside quotes, unless the text's own crate has a module of that name;
/// - the name in backticks, if it has a hyphen.
///
/// Most names are ordinary words (scheduler, matching, payments), and may be those of tables and
/// states: a bare word, or such a word in backticks, is not a mention.
fn mentions(line: &str, name: &str, has_module: bool) -> bool {
    let path = name.replace('-', "_");
    let mut forms = vec![
        format!("-p {name}"),
        format!("--package {name}"),
        format!("archetypes/{name}"),
        format!("{name} archetype"),
        format!("{name} crate"),
        format!("{name}` archetype"),
        format!("{name}` crate"),
    ];
    if name.contains('-') {
        forms.push(format!("`{name}`"));
    }
    let code = |(at, _): (usize, &str)| line[..at].matches('"').count().is_multiple_of(2);
    let by_path = format!("{path}::");
    let by_path =
        !has_module && has_whole(line, &by_path) && line.match_indices(&by_path).any(code);
    by_path || forms.iter().any(|form| has_whole(line, form))
}

/// Whether `form` stands in the line, not as part of a longer word.
fn has_whole(line: &str, form: &str) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    line.match_indices(form).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + form.len()..].chars().next();
        let (first, last) = (form.chars().next(), form.chars().next_back());
        let cut = |outer: Option<char>, inner: Option<char>| {
            outer.is_some_and(in_word) && inner.is_some_and(in_word)
        };
        !cut(before, first) && !cut(after, last)
    })
}

fn has_module(tree: &Tree, krate: &str, name: &str) -> bool {
    let name = name.replace('-', "_");
    let ends = [
        format!("/{name}.rs"),
        format!("/{name}/mod.rs"),
        format!("/{name}/main.rs"),
    ];
    tree.under(krate)
        .any(|file| ends.iter().any(|end| file.path.ends_with(end)))
}

/// A crate whose texts name a sibling was copied from it, or cannot be read without it.
fn no_sibling_named(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for own in tree.archetypes() {
        let krate = format!("archetypes/{own}");
        for other in tree.archetypes().into_iter().filter(|other| *other != own) {
            let has_module = has_module(tree, &krate, other);
            for file in tree.under(&krate) {
                for (line, text) in file.lines() {
                    if mentions(text, other, has_module) {
                        found.push(file.at(line, &format!("names the archetype {other}")));
                    }
                }
            }
        }
    }
    found
}

#[test]
fn no_archetype_names_another() {
    holds(no_sibling_named);
}

#[test]
fn a_named_sibling_is_found() {
    for named in [
        "Run `cargo test -p jobs`.",
        "See archetypes/jobs/README.md.",
        "as the jobs archetype does",
        "as in the `jobs` crate",
        "use jobs::tables;",
    ] {
        let path = "archetypes/a/src/lib.rs";
        finds(
            no_sibling_named,
            "archetypes/a/src/lib.rs:2: names the archetype jobs",
            &[
                (path, &format!("//! A.\n{named}\n")),
                ("archetypes/jobs/README.md", ""),
            ],
            &[
                (
                    path,
                    "jobs are queued in `jobs`; my_jobs::x, -p jobs-more, archetypes/jobs2\n",
                ),
                ("archetypes/a/src/keys.rs", "let key = \"jobs::7\";\n"),
                (
                    "archetypes/jobs/README.md",
                    "the jobs archetype, -p jobs, jobs::run\n",
                ),
            ],
        );
    }
    // With a hyphen, backticks are enough; a module of one's own may bear any name.
    finds(
        no_sibling_named,
        "archetypes/a/README.md:1: names the archetype big-jobs",
        &[
            ("archetypes/a/README.md", "like `big-jobs`"),
            ("archetypes/big-jobs/README.md", ""),
        ],
        &[
            ("archetypes/a/src/big_jobs.rs", "//! Big jobs."),
            ("archetypes/a/src/lib.rs", "pub use big_jobs::Job;"),
            ("archetypes/big-jobs/README.md", ""),
        ],
    );
}

/// What is shared knows no archetype; a command that shows how to use it may name one.
fn shared_names_none(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for name in tree.archetypes() {
        let examples = ["run", "test", "tree"].map(|verb| format!("cargo {verb} -p {name}"));
        for file in tree.under("shared") {
            for (line, text) in file.lines() {
                let mut text = text.to_owned();
                for example in &examples {
                    text = text.replace(example, "");
                }
                if mentions(&text, name, false) {
                    found.push(file.at(line, &format!("names the archetype {name}")));
                }
            }
        }
    }
    found
}

#[test]
fn nothing_shared_names_an_archetype_but_in_a_command() {
    holds(shared_names_none);
}

#[test]
fn an_archetype_named_in_shared_is_found() {
    finds(
        shared_names_none,
        "shared/s/src/lib.rs:1: names the archetype jobs",
        &[
            ("shared/s/src/lib.rs", "//! Calls jobs::run."),
            ("archetypes/jobs/README.md", ""),
        ],
        &[
            (
                "shared/s/src/lib.rs",
                "//! As in `cargo test -p jobs --features s/x`.",
            ),
            ("archetypes/jobs/README.md", ""),
        ],
    );
}

// What code says.

/// A reader who opens a file learns first what it is for.
fn documented(tree: &Tree) -> Vec<String> {
    let sources = tree
        .rust("archetypes", "src")
        .chain(tree.rust("shared", "src"));
    sources
        .filter_map(|file| {
            let first = file
                .text
                .lines()
                .find(|line| !line.trim().is_empty())
                .unwrap_or_default();
            let docs = first.starts_with("//!") || first.starts_with("#![doc = include_str!(");
            (!docs).then(|| file.at(1, "does not begin with //! docs"))
        })
        .collect()
}

#[test]
fn every_module_begins_with_what_it_is_for() {
    holds(documented);
}

#[test]
fn a_module_without_docs_is_found() {
    finds(
        documented,
        "shared/s/src/deep/b.rs:1:",
        &[("shared/s/src/deep/b.rs", "use std::fmt;\n")],
        &[
            ("shared/s/src/b.rs", "//! B.\nuse std::fmt;\n"),
            (
                "archetypes/a/src/lib.rs",
                "#![doc = include_str!(\"../README.md\")]\n",
            ),
            ("archetypes/a/tests/claims.rs", "use std::fmt;\n"),
        ],
    );
}

/// Lines of code with one of these words, each beginning a word or a path of its own.
fn lines_with<'a>(
    files: impl Iterator<Item = &'a File>,
    words: &[&str],
    complaint: &str,
) -> Vec<String> {
    let mut found = Vec::new();
    for file in files {
        for (line, text) in file
            .lines()
            .filter(|(_, text)| !text.trim().starts_with("//"))
        {
            for word in words.iter().filter(|word| has_whole(text, word)) {
                found.push(file.at(line, &format!("{word} {complaint}")));
            }
        }
    }
    found
}

/// A scan reads, and pays for, the whole table. Every question an archetype asks has a key.
fn no_scan(tree: &Tree) -> Vec<String> {
    let words = [".scan()", "operation::scan"];
    lines_with(
        tree.rust("archetypes", "src"),
        &words,
        "reads the whole table: ask by a key",
    )
}

#[test]
fn no_archetype_scans() {
    holds(no_scan);
}

#[test]
fn a_scan_is_found() {
    finds(
        no_scan,
        "archetypes/a/src/list.rs:2:",
        &[("archetypes/a/src/list.rs", "db\n    .scan()\n    .send()")],
        &[(
            "archetypes/a/src/list.rs",
            "// never .scan()\nnumbers.iter().scan(0, add)",
        )],
    );
}

/// What is committed is finished, and every test runs.
fn finished(tree: &Tree) -> Vec<String> {
    let words = [
        concat!("#[", "ignore"),
        concat!("todo", "!("),
        concat!("unimplemented", "!("),
        concat!("dbg", "!("),
    ];
    let rust = tree.files.iter().filter(|file| file.path.ends_with(".rs"));
    lines_with(rust, &words, "is not for committed code")
}

#[test]
fn nothing_is_ignored_or_left_to_do() {
    holds(finished);
}

#[test]
fn an_ignored_test_and_a_gap_are_found() {
    for gap in [
        concat!("#[", "ignore]"),
        concat!("todo", "!()"),
        concat!("dbg", "!(x)"),
    ] {
        finds(
            finished,
            "shared/s/tests/claims.rs:1:",
            &[("shared/s/tests/claims.rs", gap)],
            &[(
                "shared/s/tests/claims.rs",
                "#[test]\nfn ignored_bids_are_kept() {}",
            )],
        );
    }
}

/// `now` is turned by hand. What SQS itself makes wait is asked for with `wait_time_seconds`.
fn no_sleep(tree: &Tree) -> Vec<String> {
    let words = ["sleep(", "sleep_until("];
    lines_with(
        tree.rust("archetypes", "tests"),
        &words,
        "in a test: turn the clock by hand",
    )
}

#[test]
fn no_test_of_an_archetype_sleeps() {
    holds(no_sleep);
}

#[test]
fn a_sleeping_test_is_found() {
    for sleep in [
        "std::thread::sleep(second);",
        "tokio::time::sleep(second).await;",
        "sleep(second)",
    ] {
        finds(
            no_sleep,
            "archetypes/a/tests/claims.rs:1:",
            &[("archetypes/a/tests/claims.rs", sleep)],
            &[(
                "archetypes/a/tests/claims.rs",
                "cloud.clock().advance(1_000); over_sleep(1);",
            )],
        );
    }
}

/// A reader came for the conditions: they stand in the use-case file, whole. So what is given as
/// an expression is a literal, or a constant of the same file.
fn conditions_in_view(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in tree.rust("archetypes", "src") {
        for (at, call) in file.text.match_indices("condition_expression(") {
            let given = file.text[at + call.len()..]
                .trim_start()
                .trim_start_matches(['&', '*']);
            let word = given
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .next();
            let word = word.unwrap_or_default();
            let literal =
                given.starts_with('"') || given.starts_with("r\"") || given.starts_with("r#");
            let built = given.starts_with("format!(") || given.starts_with("concat!(");
            let constant = file.text.contains(&format!("const {word}:"));
            if !literal && !built && !constant {
                let line = file.text[..at].lines().count();
                found.push(file.at(line, &format!("the condition '{word}' is not in this file")));
            }
        }
    }
    found
}

#[test]
fn every_condition_stands_where_it_is_used() {
    holds(conditions_in_view);
}

#[test]
fn a_condition_from_elsewhere_is_found() {
    let path = "archetypes/a/src/bid.rs";
    for elsewhere in ["rules::GUARD", "build(x)", "GUARD"] {
        let wrong = format!("put\n    .condition_expression({elsewhere})");
        let right = "const GUARD: &str = \"a < :b\";\nput.condition_expression(GUARD)\n.condition_expression(\n    \"a\")";
        finds(
            conditions_in_view,
            "archetypes/a/src/bid.rs:2:",
            &[(path, &wrong)],
            &[(path, right)],
        );
    }
}

const NAMELESS: [&str; 6] = ["common", "util", "utils", "helper", "helpers", "misc"];

/// A name that says nothing collects what belongs elsewhere.
fn telling_names(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for file in &tree.files {
        let mut parts = file.path.split('/');
        let stem = |part: &str| part.split('.').next().unwrap_or_default().to_owned();
        if parts.any(|part| NAMELESS.contains(&stem(part).as_str())) {
            found.push(file.at(1, "is called what everything could be called"));
        }
        for (line, text) in file.lines().filter(|_| file.path.ends_with(".rs")) {
            let declared = text.trim().trim_start_matches("pub ").strip_prefix("mod ");
            let name = declared.map(|name| name.trim_end_matches([' ', '{', ';']));
            if name.is_some_and(|name| NAMELESS.contains(&name)) {
                found.push(file.at(line, "a module is called what everything could be called"));
            }
        }
    }
    found
}

#[test]
fn nothing_is_called_common_util_or_helpers() {
    holds(telling_names);
}

#[test]
fn a_name_that_says_nothing_is_found() {
    let right = [("shared/s/src/commons.rs", "mod utility;\nlet common = 1;")];
    finds(
        telling_names,
        "shared/s/src/util.rs:1:",
        &[("shared/s/src/util.rs", "")],
        &right,
    );
    finds(
        telling_names,
        "tests/helpers/x.rs:1:",
        &[("tests/helpers/x.rs", "")],
        &right,
    );
    let inline = [("shared/s/src/lib.rs", "//! S.\npub mod common {\n}")];
    finds(telling_names, "shared/s/src/lib.rs:2:", &inline, &right);
}

// The study sheets.

const HEADINGS: [&str; 9] = [
    "What it is for",
    "Entities",
    "Tables",
    "Actions",
    "Invariants",
    "What breaks without each guard",
    "Limits and numbers to quote",
    "Left out on purpose",
    "Interview questions",
];

fn readmes(tree: &Tree) -> impl Iterator<Item = (&str, &File)> {
    tree.archetypes()
        .into_iter()
        .filter_map(|name| Some((name, tree.file(&format!("archetypes/{name}/README.md"))?)))
}

/// The lines outside code blocks.
fn prose(file: &File) -> impl Iterator<Item = (usize, &str)> {
    let mut code = false;
    file.lines().filter(move |(_, line)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    })
}

/// Nine sheets with one order can be read side by side.
fn same_headings(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (_, file) in readmes(tree) {
        let has: Vec<_> = prose(file)
            .filter_map(|(line, text)| Some((line, text.strip_prefix("## ")?.trim())))
            .collect();
        let last = file.text.lines().count().max(1);
        for at in 0..has.len().max(HEADINGS.len()) {
            let (line, is) = has.get(at).copied().unwrap_or((last, "nothing"));
            let want = HEADINGS.get(at).copied().unwrap_or("nothing");
            if is != want {
                found.push(file.at(
                    line,
                    &format!("the heading should be '{want}', and is '{is}'"),
                ));
                break;
            }
        }
    }
    found
}

#[test]
fn every_readme_has_the_same_headings_in_the_same_order() {
    holds(same_headings);
}

#[test]
fn a_wrong_heading_is_found() {
    let sheet = |headings: &[&str]| {
        let sections = headings
            .iter()
            .map(|heading| format!("## {heading}\n\n```\n## no\n```\n"));
        format!("# A\n\n{}", sections.collect::<String>())
    };
    let right = sheet(&HEADINGS);
    let right = [("archetypes/a/README.md", right.as_str())];
    let mut swapped = HEADINGS;
    swapped.swap(1, 2);
    for (line, wrong) in [
        (8, sheet(&swapped)),
        (42, sheet(&HEADINGS[..8])),
        (48, sheet(&[&HEADINGS[..], &["More"]].concat())),
    ] {
        let at = format!("archetypes/a/README.md:{line}:");
        finds(
            same_headings,
            &at,
            &[("archetypes/a/README.md", &wrong)],
            &right,
        );
    }
}

/// The tests a line refers to: backticked `file.rs::test_name`, with or without `tests/` before.
fn references(line: &str) -> Vec<(&str, &str)> {
    let quoted = line.split('`').skip(1).step_by(2);
    quoted
        .filter_map(|text| text.split_once(".rs::"))
        .map(|(file, test)| (file.strip_prefix("tests/").unwrap_or(file), test))
        .collect()
}

/// A proof that is named is there.
fn named_tests_exist(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (name, file) in readmes(tree) {
        for (line, text) in file.lines() {
            for (stem, test) in references(text) {
                let choices =
                    ["tests", "src"].map(|folder| format!("archetypes/{name}/{folder}/{stem}.rs"));
                let function = format!("fn {test}(");
                let there = choices.iter().filter_map(|path| tree.file(path));
                if !there
                    .into_iter()
                    .any(|file| has_whole(&file.text, &function))
                {
                    found.push(file.at(line, &format!("there is no test {stem}.rs::{test}")));
                }
            }
        }
    }
    found
}

#[test]
fn every_test_a_readme_names_exists() {
    holds(named_tests_exist);
}

#[test]
fn a_test_that_is_not_there_is_found() {
    let claims = ("archetypes/a/tests/claims.rs", "async fn it_holds() {}");
    let right = (
        "archetypes/a/README.md",
        "`tests/claims.rs::it_holds` and `claims.rs::it_holds`",
    );
    for wrong in ["\n`tests/claims.rs::it_hold`", "\n`naive.rs::it_holds`"] {
        finds(
            named_tests_exist,
            "archetypes/a/README.md:2: there is no test",
            &[("archetypes/a/README.md", wrong), claims],
            &[right, claims],
        );
    }
}

/// An invariant is a list item or a row of a table under "Invariants", with its further lines.
/// One without a test is a wish.
fn invariants_are_proven(tree: &Tree) -> Vec<String> {
    let mut found = Vec::new();
    for (_, file) in readmes(tree) {
        let section: Vec<_> = prose(file)
            .skip_while(|(_, text)| text.trim() != "## Invariants")
            .skip(1)
            .take_while(|(_, text)| !text.starts_with("## "))
            .collect();
        let is_rule = |text: &str| {
            text.starts_with('|') && text.chars().all(|c| matches!(c, '|' | '-' | ':' | ' '))
        };
        let mut items: Vec<(usize, String)> = Vec::new();
        for (at, (line, text)) in section.iter().enumerate() {
            let heads = section.get(at + 1).is_some_and(|(_, next)| is_rule(next));
            let numbered = text
                .split_once(". ")
                .is_some_and(|(n, _)| n.parse::<u32>().is_ok());
            let row = text.starts_with('|') && !is_rule(text) && !heads;
            if row || numbered || text.starts_with("- ") || text.starts_with("* ") {
                items.push((*line, (*text).to_owned()));
            } else if text.starts_with(' ')
                && let Some((_, item)) = items.last_mut()
            {
                item.push_str(text);
            }
        }
        if items.is_empty() {
            found.push(file.at(1, "lists no invariants"));
        }
        for (line, item) in items {
            if references(&item).is_empty() {
                found.push(file.at(
                    line,
                    "an invariant without its test (`claims.rs::its_name`)",
                ));
            }
        }
    }
    found
}

#[test]
fn every_invariant_names_the_test_that_proves_it() {
    holds(invariants_are_proven);
}

#[test]
fn an_invariant_without_a_test_is_found() {
    let right = "## Invariants\n\n| it | test |\n| --- | :-: |\n| a | `claims.rs::a` |\n\n- b\n  `claims.rs::b`\n\n## Next\n- c\n";
    let right = [("archetypes/a/README.md", right)];
    for (line, wrong) in [
        (
            5,
            "## Invariants\n\n| it | test |\n| --- | --- |\n| a | b |\n",
        ),
        (2, "## Invariants\n- a\n- b `claims.rs::b`\n"),
        (1, "## Invariants\n\nNone.\n## Next\n- c\n"),
    ] {
        let at = format!("archetypes/a/README.md:{line}:");
        finds(
            invariants_are_proven,
            &at,
            &[("archetypes/a/README.md", wrong)],
            &right,
        );
    }
}
