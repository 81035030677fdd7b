//! What a device remembers of a directory: what the store said, up to which change, and what the directory
//! was when the two last agreed. With the directory itself these are three trees, and every decision of a
//! sync is a comparison of the three.
//!
//! The state may be older than the truth (a crash comes before it is saved), never newer. So it is only
//! ever used as what was once true: a file that has its content already is taken as it is.

use super::folder::{Folder, LocalError, Stamp};
use super::path::{OWN_FOLDER, RelPath};
use crate::domain::{ChunkHash, ChunkRef, Entry, EntryId, Kind};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A file as it was when directory and store agreed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownFile {
    /// Which entry of the namespace.
    pub entry: EntryId,
    /// Which version. 0: what is here became a conflict copy elsewhere; whatever the head is, it is newer.
    pub version: u64,
    /// The content.
    pub fingerprint: ChunkHash,
    /// What it consists of: where chunks can be had without asking for them.
    pub chunks: Vec<ChunkRef>,
    /// The file that had this content.
    pub stamp: Stamp,
    /// When the stamp was taken.
    pub seen: i64,
}

/// Two writes within this time may leave the same time on a file: some file systems count in seconds.
const TICK: i64 = 2_000_000_000;

impl KnownFile {
    /// Whether a file with this stamp must have this content. If it was written to shortly before it was
    /// looked at, it may have been written to again without a trace, and must be read.
    pub fn is_sure(&self, stamp: Stamp) -> bool {
        let last = stamp.modified.max(stamp.changed);
        stamp == self.stamp && last.saturating_add(TICK) < self.seen
    }
}

/// What directory and store agreed on, for one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// A folder, and its entry.
    Folder {
        /// Which entry of the namespace.
        entry: EntryId,
    },
    /// A file.
    File(KnownFile),
}

impl Known {
    /// Which entry of the namespace.
    pub fn entry(&self) -> &EntryId {
        match self {
            Self::Folder { entry } => entry,
            Self::File(file) => &file.entry,
        }
    }

    /// The file, if it is one.
    pub fn file(&self) -> Option<&KnownFile> {
        match self {
            Self::Folder { .. } => None,
            Self::File(file) => Some(file),
        }
    }
}

/// An entry as the store's changes have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteEntry {
    /// The folder it is in.
    pub parent: EntryId,
    /// Its name there.
    pub name: String,
    /// What it is.
    pub kind: Kind,
    /// The head of a file.
    pub version: u64,
    /// The content of that version.
    pub fingerprint: Option<ChunkHash>,
}

impl From<&Entry> for RemoteEntry {
    fn from(entry: &Entry) -> Self {
        Self {
            parent: entry.parent.clone(),
            name: entry.name.clone(),
            kind: entry.kind,
            version: entry.version,
            fingerprint: entry.fingerprint,
        }
    }
}

/// Everything a device remembers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceState {
    /// Of this form.
    pub format: u32,
    /// The device.
    pub device: String,
    /// What it is synced with, in words: another remote is another state.
    pub remote: String,
    /// The folder of the store that is synced.
    pub root: EntryId,
    /// How far it has read the changes.
    pub cursor: u64,
    /// The store, as of that cursor.
    pub entries: BTreeMap<EntryId, RemoteEntry>,
    /// The agreement, by path.
    pub agreed: BTreeMap<RelPath, Known>,
}

const STATE: &str = "state.json";
const FORMAT: u32 = 1;

impl DeviceState {
    /// Nothing known.
    pub fn new(device: &str, remote: &str, root: EntryId) -> Self {
        Self {
            format: FORMAT,
            device: device.to_owned(),
            remote: remote.to_owned(),
            root,
            cursor: 0,
            entries: BTreeMap::new(),
            agreed: BTreeMap::new(),
        }
    }

    /// What was saved last, if anything.
    pub fn load(folder: &Folder) -> Result<Option<Self>, LocalError> {
        let Some(bytes) = folder.read_own(STATE)? else {
            return Ok(None);
        };
        let wrong = |why: String| LocalError::State {
            path: folder.shown().join(OWN_FOLDER).join(STATE),
            why,
        };
        let state: Self =
            serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
        if state.format != FORMAT {
            return Err(wrong(format!("its format is {}", state.format)));
        }
        Ok(Some(state))
    }

    /// Saves it, whole or not at all.
    pub fn save(&self, folder: &Folder) -> Result<(), LocalError> {
        let bytes = serde_json::to_vec(self).map_err(|error| LocalError::State {
            path: folder.shown().join(OWN_FOLDER).join(STATE),
            why: error.to_string(),
        })?;
        folder.write_own(STATE, &bytes)
    }
}
