//! Finds what is in the directory, and reads only what may have changed.

use super::folder::{Folder, Kind, LocalError, Stamp, is_missing};
use super::path::{BadPath, RelPath};
use super::state::{Known, KnownFile};
use crate::chunking::{Chunked, Chunker};
use std::collections::BTreeMap;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// A folder.
    Folder,
    /// The file that was agreed on.
    Same,
    /// Another file, or other content.
    Changed {
        /// Its content.
        content: Chunked,
        /// Its stamp.
        stamp: Stamp,
        /// When the stamp was taken.
        seen: i64,
    },
}

/// What was found.
#[derive(Debug, Default)]
pub struct Scan {
    /// By path. A folder comes before what is in it.
    pub found: BTreeMap<RelPath, Found>,
    /// Stamps that became sure: the content is as known, the file was read to know it.
    pub refreshed: Vec<(RelPath, Stamp, i64)>,
    /// What is not synced, and why.
    pub problems: Vec<(String, LocalError)>,
    /// How many files had to be read.
    pub files_read: usize,
    /// The folders, as they were before they were listed.
    folders: Vec<(Option<RelPath>, Stamp)>,
}

/// Scans the directory. What cannot be read is told, and ends nothing.
///
/// A path with a problem is *not* in what was found, and must not be taken for deleted: see
/// [`Scan::is_unclear`].
pub fn scan(folder: &Folder, agreed: &BTreeMap<RelPath, Known>, chunker: &Chunker) -> Scan {
    let mut scan = Scan::default();
    let mut waiting: Vec<Option<RelPath>> = vec![None];
    while let Some(here) = waiting.pop() {
        let listed = match folder.list(here.as_ref()) {
            Ok((stamp, listed)) => {
                scan.folders.push((here.clone(), stamp));
                listed
            }
            // Gone since it was listed.
            Err(error) if is_missing(&error) => continue,
            Err(error) => {
                scan.problem(shown(here.as_ref()), error);
                continue;
            }
        };
        for (name, kind) in listed {
            let path = match name {
                Ok(name) => RelPath::within(here.as_ref(), &name),
                Err(unreadable) => Err(BadPath::Unreadable(unreadable)),
            };
            match (path, kind) {
                (Err(error), _) => scan.problem(error_path(&error), error.into()),
                (Ok(path), Kind::Folder) => {
                    waiting.push(Some(path.clone()));
                    scan.found.insert(path, Found::Folder);
                }
                (Ok(path), Kind::Elsewhere) => {
                    let elsewhere = LocalError::Elsewhere(path.to_string());
                    scan.problem(path.to_string(), elsewhere);
                }
                (Ok(path), Kind::Other) => {
                    scan.problem(path.to_string(), LocalError::NotAFile(path.to_string()));
                }
                (Ok(path), Kind::File(stamp)) => {
                    let known = agreed.get(&path).and_then(Known::file);
                    scan.file(folder, path, stamp, known, chunker);
                }
            }
        }
    }
    scan
}

fn shown(path: Option<&RelPath>) -> String {
    path.map_or_else(|| ".".to_owned(), RelPath::to_string)
}

fn error_path(error: &BadPath) -> String {
    match error {
        BadPath::Absolute(path)
        | BadPath::Outside(path)
        | BadPath::Empty(path)
        | BadPath::Character { path, .. }
        | BadPath::Reserved(path)
        | BadPath::Ending(path)
        | BadPath::Long(path)
        | BadPath::Own(path)
        | BadPath::Unreadable(path) => path.clone(),
    }
}

impl Scan {
    fn problem(&mut self, path: String, error: LocalError) {
        self.problems.push((path, error));
    }

    fn file(
        &mut self,
        folder: &Folder,
        path: RelPath,
        stamp: Stamp,
        known: Option<&KnownFile>,
        chunker: &Chunker,
    ) {
        if known.is_some_and(|known| known.is_sure(stamp)) {
            self.found.insert(path, Found::Same);
            return;
        }
        self.files_read += 1;
        match folder.chunk(&path, chunker) {
            Ok((content, stamp, seen)) => {
                let same = known.is_some_and(|known| {
                    known.fingerprint == content.fingerprint
                        || known.stamp.size == content.size
                            && folder.still_is(&path, stamp, known, chunker)
                });
                let found = match same {
                    true => {
                        self.refreshed.push((path.clone(), stamp, seen));
                        Found::Same
                    }
                    false => Found::Changed {
                        content,
                        stamp,
                        seen,
                    },
                };
                self.found.insert(path, found);
            }
            Err(error) if is_missing(&error) => {}
            Err(error) => self.problem(path.to_string(), error),
        }
    }

    /// Whether every folder is as it was when it was listed. If not, something may have gone from where it was
    /// not yet looked for to where that was over: what was not found may be there all the same.
    pub fn is_whole(&self, folder: &Folder) -> bool {
        let still = |(path, stamp): &(Option<RelPath>, Stamp)| {
            let now = folder.stamp_of_folder(path.as_ref());
            now.is_ok_and(|now| now == *stamp)
        };
        self.folders.iter().all(still)
    }

    /// Whether it is not known what is at this path: it could not be read, or something on the way to it
    /// could not.
    pub fn is_unclear(&self, path: &RelPath) -> bool {
        self.problems.iter().any(|(unclear, _)| {
            let rest = path.as_str().strip_prefix(unclear.as_str());
            unclear == "." || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }
}
