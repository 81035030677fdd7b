//! What to do about one path: a comparison of three trees, pure.
//!
//! | here \ in the store | nothing | as agreed | changed |
//! | --- | --- | --- | --- |
//! | nothing, as agreed | | | fetch |
//! | nothing, was there | forget | delete there | fetch: an edit wins over a deletion |
//! | as agreed | delete here | | fetch |
//! | changed | publish as new: an edit wins over a deletion | publish | publish: the store makes it a conflict copy |

use crate::domain::{ChunkHash, EntryId, Kind};
use crate::local::state::RemoteEntry;
use crate::local::{Known, RelPath};

/// What the scan found at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Here {
    /// Nothing.
    Nothing,
    /// It could not be read: leave it alone.
    Unclear,
    /// A folder.
    Folder,
    /// The file that was agreed on.
    Same,
    /// A file with this content, which is not the agreed one.
    Changed(ChunkHash),
}

/// What to do. In the order in which a round does them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Nothing.
    Leave,
    /// A file here, a folder there: the file gets another name.
    StepAside,
    /// Both are gone.
    Forget,
    /// Both have it already.
    Agree,
    /// Make the folder in the store.
    MakeFolderThere,
    /// Make the folder here.
    MakeFolderHere,
    /// It was at this path before: rename or move it in the store. Two paths decide on this, not one: see
    /// [`super::rename`].
    MoveThere(RelPath),
    /// Publish it as a new file.
    PublishNew,
    /// Publish it over the version it was made from.
    Publish,
    /// Publish it though the head has moved on: it becomes a conflict copy.
    PublishConflict,
    /// Fetch the head.
    Fetch,
    /// Delete the file in the store.
    DeleteThere,
    /// Delete the file here.
    DeleteHere,
    /// Delete the folder in the store, if it is empty.
    DeleteFolderThere,
    /// Delete the folder here, if it is empty.
    DeleteFolderHere,
    /// A folder here, a file there: the folder goes if it is empty, or gets another name.
    ClearFolderHere,
}

impl Step {
    /// Whether it takes something away for other devices, because it is not here.
    pub fn deletes_there(&self) -> bool {
        matches!(self, Self::DeleteThere | Self::DeleteFolderThere)
    }
}

/// What to do about a path.
pub fn decide(here: Here, agreed: Option<&Known>, there: Option<(&EntryId, &RemoteEntry)>) -> Step {
    let known = agreed.and_then(Known::file);
    let same_entry = |id: &EntryId| agreed.is_some_and(|agreed| agreed.entry() == id);
    let same_version = |id: &EntryId, entry: &RemoteEntry| {
        known.is_some_and(|known| known.entry == *id && known.version == entry.version)
    };
    let is_folder = |entry: &RemoteEntry| entry.kind == Kind::Folder;
    match (here, there) {
        (Here::Unclear, _) => Step::Leave,

        (Here::Nothing, None) if agreed.is_some() => Step::Forget,
        (Here::Nothing, None) => Step::Leave,
        (Here::Nothing, Some((id, entry))) if is_folder(entry) => {
            match known.is_none() && same_entry(id) {
                true => Step::DeleteFolderThere,
                false => Step::MakeFolderHere,
            }
        }
        (Here::Nothing, Some((id, entry))) => match same_version(id, entry) {
            true => Step::DeleteThere,
            false => Step::Fetch,
        },

        (Here::Folder, None) => match agreed {
            Some(Known::Folder { .. }) => Step::DeleteFolderHere,
            _ => Step::MakeFolderThere,
        },
        (Here::Folder, Some((id, entry))) if is_folder(entry) => {
            match known.is_none() && same_entry(id) {
                true => Step::Leave,
                false => Step::Agree,
            }
        }
        // A file was replaced by a folder, here or there.
        (Here::Folder, Some((id, entry))) => match same_version(id, entry) {
            true => Step::DeleteThere,
            false => Step::ClearFolderHere,
        },

        (Here::Same, None) => Step::DeleteHere,
        (Here::Same, Some((_, entry))) if is_folder(entry) => Step::DeleteHere,
        (Here::Same, Some((id, entry))) => {
            let content = known.map(|known| known.fingerprint);
            if same_version(id, entry) {
                Step::Leave
            } else if content.is_some() && content == entry.fingerprint {
                Step::Agree
            } else {
                Step::Fetch
            }
        }

        (Here::Changed(_), None) => Step::PublishNew,
        (Here::Changed(_), Some((id, entry))) if is_folder(entry) => {
            // A folder was replaced by a file: what was in it goes first.
            match known.is_none() && same_entry(id) {
                true => Step::DeleteFolderThere,
                false => Step::StepAside,
            }
        }
        (Here::Changed(content), Some((id, entry))) => {
            if entry.fingerprint == Some(content) {
                Step::Agree
            } else if same_version(id, entry) {
                Step::Publish
            } else {
                Step::PublishConflict
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::Stamp;
    use crate::local::state::KnownFile;

    fn content(word: &str) -> ChunkHash {
        ChunkHash::of(word.as_bytes())
    }

    fn file(version: u64, word: &str) -> RemoteEntry {
        RemoteEntry {
            parent: EntryId::root(),
            name: "name".into(),
            kind: Kind::File,
            version,
            fingerprint: Some(content(word)),
        }
    }

    fn folder() -> RemoteEntry {
        RemoteEntry {
            kind: Kind::Folder,
            version: 0,
            fingerprint: None,
            ..file(0, "")
        }
    }

    fn known(id: &str, version: u64, word: &str) -> Known {
        Known::File(KnownFile {
            entry: EntryId::from(id),
            version,
            fingerprint: content(word),
            chunks: Vec::new(),
            stamp: Stamp {
                size: 0,
                modified: 0,
                changed: 0,
                inode: 0,
            },
            seen: 0,
        })
    }

    #[test]
    fn every_pair_of_changes_has_its_step() {
        let id = EntryId::from("a");
        let other = EntryId::from("b");
        let one = known("a", 1, "one");
        let made = Known::Folder { entry: id.clone() };
        let (first, second) = (file(1, "one"), file(2, "two"));
        let folder = folder();
        let changed = Here::Changed(content("mine"));
        let cases = [
            (Here::Nothing, None, None, Step::Leave),
            (Here::Nothing, None, Some((&id, &first)), Step::Fetch),
            (changed, None, None, Step::PublishNew),
            (changed, None, Some((&id, &first)), Step::PublishConflict),
            (Here::Nothing, Some(&one), None, Step::Forget),
            (
                Here::Nothing,
                Some(&one),
                Some((&id, &first)),
                Step::DeleteThere,
            ),
            (Here::Nothing, Some(&one), Some((&id, &second)), Step::Fetch),
            (
                Here::Nothing,
                Some(&one),
                Some((&other, &first)),
                Step::Fetch,
            ),
            (Here::Same, Some(&one), None, Step::DeleteHere),
            (Here::Same, Some(&one), Some((&id, &first)), Step::Leave),
            (Here::Same, Some(&one), Some((&id, &second)), Step::Fetch),
            (Here::Same, Some(&one), Some((&other, &first)), Step::Agree),
            (changed, Some(&one), None, Step::PublishNew),
            (changed, Some(&one), Some((&id, &first)), Step::Publish),
            (
                changed,
                Some(&one),
                Some((&id, &second)),
                Step::PublishConflict,
            ),
            (
                Here::Changed(content("two")),
                Some(&one),
                Some((&id, &second)),
                Step::Agree,
            ),
            (Here::Unclear, Some(&one), None, Step::Leave),
            (Here::Folder, None, None, Step::MakeFolderThere),
            (
                Here::Nothing,
                None,
                Some((&id, &folder)),
                Step::MakeFolderHere,
            ),
            (Here::Folder, None, Some((&id, &folder)), Step::Agree),
            (Here::Folder, Some(&made), Some((&id, &folder)), Step::Leave),
            (Here::Folder, Some(&made), None, Step::DeleteFolderHere),
            (
                Here::Nothing,
                Some(&made),
                Some((&id, &folder)),
                Step::DeleteFolderThere,
            ),
            (Here::Nothing, Some(&made), None, Step::Forget),
            (changed, None, Some((&id, &folder)), Step::StepAside),
            (
                changed,
                Some(&made),
                Some((&id, &folder)),
                Step::DeleteFolderThere,
            ),
            (
                Here::Same,
                Some(&one),
                Some((&other, &folder)),
                Step::DeleteHere,
            ),
            (
                Here::Folder,
                Some(&one),
                Some((&id, &first)),
                Step::DeleteThere,
            ),
            (
                Here::Folder,
                None,
                Some((&id, &first)),
                Step::ClearFolderHere,
            ),
        ];
        for (here, agreed, there, expected) in cases {
            let step = decide(here, agreed, there);
            assert_eq!(step, expected, "{here:?}, {agreed:?}, {there:?}");
        }
    }
}
