//! The promises that span crates, as tests.
//!
//! - `tests/conformance`: how a backend must behave, one test for each behaviour;
//! - `tests/tidy.rs`: the shape of the tree, as rules over its text;
//! - `tests/edges.rs`: ids and refusals, the same for every server;
//! - `tests/features.rs`: a crate builds only the services it uses;
//! - `tests/readme.rs`: the commands of the READMEs work, and their generated parts are current.
//!
//! Here is only the tree as text, which the last three read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the workspace is.
pub fn root() -> PathBuf {
    // As it is now, not as it was compiled: two clones may share one target directory.
    let here = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let here = here.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    here.parent()
        .expect("this crate is a member of the workspace")
        .to_owned()
}

/// A text file: its path from the root with forward slashes, and what it says.
#[derive(Debug, Clone)]
pub struct File {
    /// `archetypes/NAME/src/lib.rs`
    pub path: String,
    /// All of it.
    pub text: String,
}

impl File {
    /// The lines with their numbers, from one.
    pub fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        (1..).zip(self.text.lines())
    }

    /// A complaint that a terminal can jump to.
    pub fn at(&self, line: usize, complaint: &str) -> String {
        format!("{}:{line}: {complaint}", self.path)
    }
}

/// The text files of the workspace. Rules are functions of it, so that they can be tried on a
/// planted one.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    /// In the order of their paths.
    pub files: Vec<File>,
}

impl Tree {
    /// What is on disk: the members, and the files at the root.
    pub fn read() -> Self {
        let root = root();
        let mut paths = Vec::new();
        collect(&root, false, &mut paths);
        for members in ["archetypes", "shared", "tests"] {
            collect(&root.join(members), true, &mut paths);
        }
        paths.sort();
        let files = paths.into_iter().filter_map(|path| {
            // What is not UTF-8 is an image or the like: no rule is about it.
            let text = std::fs::read_to_string(&path).ok()?;
            let path = path.strip_prefix(&root).ok()?;
            let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
            Some(File {
                path: parts.join("/"),
                text,
            })
        });
        Self {
            files: files.collect(),
        }
    }

    /// A planted one.
    pub fn of(files: &[(&str, &str)]) -> Self {
        let file = |&(path, text): &(&str, &str)| File {
            path: path.into(),
            text: text.into(),
        };
        Self {
            files: files.iter().map(file).collect(),
        }
    }

    /// The names of the archetypes: the folders of `archetypes/`.
    pub fn archetypes(&self) -> BTreeSet<&str> {
        let inside = self
            .files
            .iter()
            .filter_map(|file| file.path.strip_prefix("archetypes/"));
        inside
            .filter_map(|path| Some(path.split_once('/')?.0))
            .collect()
    }

    /// The file with this path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The files in this folder and below.
    pub fn under(&self, folder: &str) -> impl Iterator<Item = &File> {
        let folder = format!("{folder}/");
        self.files
            .iter()
            .filter(move |file| file.path.starts_with(&folder))
    }

    /// The Rust files in this folder of every crate of a kind: `rust("archetypes", "src")`.
    pub fn rust(&self, kind: &str, folder: &str) -> impl Iterator<Item = &File> {
        self.files.iter().filter(move |file| {
            let mut parts = file.path.split('/');
            parts.next() == Some(kind)
                && parts.next().is_some()
                && parts.next() == Some(folder)
                && file.path.ends_with(".rs")
        })
    }

    /// The folders of the packages, with their names.
    pub fn packages(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(|file| {
            let folder = file.path.strip_suffix("/Cargo.toml")?;
            let name = file
                .text
                .lines()
                .find_map(|line| line.strip_prefix("name = "))?;
            Some((folder, name.trim().trim_matches('"')))
        })
    }
}

fn collect(folder: &Path, deep: bool, paths: &mut Vec<PathBuf>) {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            let skipped = name.to_string_lossy().starts_with('.')
                || ["target", "node_modules"].iter().any(|skip| name == *skip);
            if deep && !skipped {
                collect(&path, deep, paths);
            }
        } else {
            paths.push(path);
        }
    }
}
