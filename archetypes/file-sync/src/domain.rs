//! The rules, pure: names, manifests, states, and what one thing means to another. `now` is an
//! argument, and no type of any SDK comes in.

use crate::local::BadPath;
use caseless::Caseless;
use cloud::Millis;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;
use unicode_normalization::UnicodeNormalization;

/// How long an upload session holds what it relies on, unless it is resumed.
pub const SESSION_LASTS: Millis = 24 * 3_600_000;
/// How long a published session is remembered, so that a lost answer can be asked for.
pub const SESSION_KEPT: Millis = 24 * 3_600_000;
/// How long a deleted file can be restored.
pub const DELETED_KEPT: Millis = 30 * 24 * 3_600_000;
/// How long an address for one chunk is good.
pub const ADDRESS_LASTS: Millis = 15 * 60_000;
/// The longest name, in bytes: what file systems take.
pub const MAX_NAME: usize = 255;
/// The largest chunk that is taken.
pub const MAX_CHUNK: u32 = 16 * 1024 * 1024;
/// The most chunks of one file: 36 MB of manifest, some terabyte of file.
pub const MAX_CHUNKS: usize = 1_000_000;

/// Who asks. Everything in here has been authenticated by somebody else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Actor {
    /// The account whose storage this is. Nothing is shared, and nothing is known, across it.
    pub tenant: String,
    /// The person.
    pub user: String,
}

impl Actor {
    /// An actor.
    pub fn new(tenant: impl Into<String>, user: impl Into<String>) -> Self {
        Self {
            tenant: tenant.into(),
            user: user.into(),
        }
    }
}

/// A file or folder, wherever it is and whatever it is called.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct EntryId(pub String);

impl EntryId {
    /// The top folder of whoever asks. It has no item, no name and no end.
    pub fn root() -> Self {
        Self("root".into())
    }

    /// Whether this is the top folder.
    pub fn is_root(&self) -> bool {
        self.0 == "root"
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for EntryId {
    fn from(id: &str) -> Self {
        Self(id.to_owned())
    }
}

/// SHA-256 of some bytes: of a chunk, of a manifest, of a list of chunks (a file's fingerprint). As text, 64
/// hexadecimal digits.
///
/// Why SHA-256 and not BLAKE3: see [`crate::chunking`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChunkHash(pub [u8; 32]);

impl ChunkHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// As S3 writes it.
    pub fn base64(&self) -> String {
        use base64::Engine;
        base64::engine::general_purpose::STANDARD.encode(self.0)
    }

    /// As part of an object's key: shorter than the digits, and without the slash of [`Self::base64`].
    pub fn in_key(&self) -> String {
        use base64::Engine;
        base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(self.0)
    }

    /// What [`Self::in_key`] wrote.
    pub(crate) fn from_key(text: &str) -> Option<Self> {
        use base64::Engine;
        let bytes = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text);
        Some(Self(bytes.ok()?.try_into().ok()?))
    }
}

impl fmt::Display for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ChunkHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}…", &self.to_string()[..8])
    }
}

impl FromStr for ChunkHash {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        let wrong = || BadInput::Hash(text.to_owned());
        if text.len() != 64 || !text.is_ascii() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (at, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for ChunkHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ChunkHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// One chunk of a file: what it is and how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChunkRef {
    /// The hash of its bytes.
    pub hash: ChunkHash,
    /// How many bytes.
    pub length: u32,
}

impl ChunkRef {
    /// The reference to these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self {
            hash: ChunkHash::of(bytes),
            length: bytes.len() as u32,
        }
    }
}

/// ChunkManifestState: what a file's content is made of, in order. Immutable.
///
/// It is an object in S3, 36 bytes for each chunk: an item of 400 KB would end at some ten
/// thousand chunks, and in hexadecimal JSON at five.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The chunks, in the order of the file.
    pub chunks: Vec<ChunkRef>,
}

/// Bytes of one chunk in a manifest: the hash, and the length in big endian.
const MANIFEST_RECORD: usize = 36;

impl Manifest {
    /// How many bytes the file has.
    pub fn size(&self) -> u64 {
        self.chunks
            .iter()
            .map(|chunk| u64::from(chunk.length))
            .sum()
    }

    /// Every chunk once, in the order of its first use.
    pub fn distinct(&self) -> Vec<ChunkRef> {
        let mut met = std::collections::HashSet::new();
        let each = self.chunks.iter().copied();
        each.filter(|chunk| met.insert(chunk.hash)).collect()
    }

    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.chunks.len() * MANIFEST_RECORD);
        for chunk in &self.chunks {
            bytes.extend(chunk.hash.0);
            bytes.extend(chunk.length.to_be_bytes());
        }
        bytes
    }

    /// From bytes; none if they are no manifest.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(MANIFEST_RECORD) {
            return None;
        }
        let record = |record: &[u8]| {
            let (hash, length) = record.split_at(32);
            Some(ChunkRef {
                hash: ChunkHash(hash.try_into().ok()?),
                length: u32::from_be_bytes(length.try_into().ok()?),
            })
        };
        let chunks = bytes.chunks_exact(MANIFEST_RECORD).map(record);
        Some(Self {
            chunks: chunks.collect::<Option<_>>()?,
        })
    }
}

/// A file or a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// It has children.
    Folder,
    /// It has versions.
    File,
}

/// Where an entry is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EntryStatus {
    /// It has a name.
    Live,
    /// A tombstone: no name any more, but all versions; it can be restored.
    Deleted,
    /// Too old to be restored; its versions are being removed.
    Purged,
}

/// NamespaceEntryState, and for a file FileHeadState beside it: which version is current.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Identity. Renaming and moving leave it.
    pub entry_id: EntryId,
    /// Whose namespace it is in.
    pub owner: String,
    /// The folder it is in.
    pub parent: EntryId,
    /// What it is called, as it was typed.
    pub name: String,
    /// File or folder.
    pub kind: Kind,
    /// Live, a tombstone, or going.
    pub status: EntryStatus,
    /// FileHeadState: the current version, counted from 1; 0 for a folder.
    pub version: u64,
    /// The size of the current version.
    pub size: u64,
    /// The fingerprint of the current version: SHA-256 over the list of its chunks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<ChunkHash>,
    /// How many live entries a folder holds.
    pub children: u64,
    /// When any of this last changed.
    pub updated_at: Millis,
    /// When it was deleted, while it is a tombstone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Millis>,
}

/// FileVersionState: one content of one file. Immutable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileVersion {
    /// Of which file.
    pub entry_id: EntryId,
    /// Which one, counted from 1.
    pub version: u64,
    /// Where its manifest is.
    pub manifest_key: String,
    /// SHA-256 of the manifest.
    pub manifest_hash: ChunkHash,
    /// How many chunks it lists.
    pub chunk_count: u64,
    /// How many bytes the file has.
    pub size: u64,
    /// SHA-256 over the list of its chunks, as the client said.
    pub fingerprint: ChunkHash,
    /// When it was published.
    pub created_at: Millis,
    /// By whom.
    pub created_by: String,
    /// On which device.
    pub device: String,
    /// By which upload; none for a restored one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// Which older version this one brought back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored_from: Option<u64>,
}

/// What happened to an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum ChangeKind {
    /// It is new.
    Created,
    /// It has a new version.
    Updated,
    /// It is called otherwise, or is elsewhere.
    Moved,
    /// It is gone.
    Deleted,
    /// An old version came back; perhaps the entry, too.
    Restored,
}

/// One line of the change feed: what happened, and the entry as it was afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its place in the feed, from 1, without gaps.
    pub sequence: u64,
    /// What happened.
    #[serde(rename = "change")]
    pub kind: ChangeKind,
    /// The entry afterwards.
    pub entry: Entry,
    /// Which device did it.
    pub device: String,
    /// When.
    pub changed_at: Millis,
}

/// A part of the change feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedPage {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// What to hand in the next time, once these are applied.
    pub cursor: u64,
    /// Whether there is more already.
    pub more: bool,
}

/// Where an upload is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum SessionStatus {
    /// Its pins hold.
    Open,
    /// It became a version.
    Published,
    /// It took too long; its pins hold nothing any more.
    Expired,
}

/// UploadSessionState: an upload that may be interrupted and resumed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UploadSession {
    /// Identity.
    pub session_id: String,
    /// Whose upload it is.
    pub user: String,
    /// From which device.
    pub device: String,
    /// SHA-256 over the list of its chunks.
    pub fingerprint: ChunkHash,
    /// How many bytes.
    pub size: u64,
    /// How many chunks, counted with repetition.
    pub chunk_count: u64,
    /// Where the manifest is.
    pub manifest_key: String,
    /// SHA-256 of the manifest.
    pub manifest_hash: ChunkHash,
    /// The id of the entry, should this upload make one: chosen at the start, so that a publication
    /// that is sent again makes no second one.
    pub new_entry_id: EntryId,
    /// Open, published or expired.
    pub status: SessionStatus,
    /// When it was started.
    pub started_at: Millis,
    /// When it may be ended by the collector.
    pub expires_at: Millis,
    /// What it was published as: the target, as text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What became of it: the entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_entry: Option<EntryId>,
    /// What became of it: the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_version: Option<u64>,
    /// What became of it: whether it is a conflict copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_copy: Option<bool>,
    /// When.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published_at: Option<Millis>,
}

/// The hash over a list of chunks: of their names and lengths, in order.
pub fn fingerprint(chunks: &[ChunkRef]) -> ChunkHash {
    let mut hasher = Sha256::new();
    // So that a list of chunks is never mistaken for a chunk with the same bytes.
    hasher.update(b"file-sync list of chunks\n");
    for chunk in chunks {
        hasher.update(chunk.hash.0);
        hasher.update(chunk.length.to_be_bytes());
    }
    ChunkHash(hasher.finalize().into())
}

/// What a client says at the start of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadRequest {
    /// SHA-256 over the list of its chunks.
    pub fingerprint: ChunkHash,
    /// How many bytes the file has.
    pub size: u64,
    /// Its chunks, in order.
    pub chunks: Vec<ChunkRef>,
}

impl UploadRequest {
    /// Checks what can be checked without reading anything.
    pub fn validate(&self) -> Result<(), BadInput> {
        if self.chunks.len() > MAX_CHUNKS {
            return Err(BadInput::TooManyChunks(self.chunks.len()));
        }
        if let Some(chunk) = self
            .chunks
            .iter()
            .find(|chunk| chunk.length == 0 || chunk.length > MAX_CHUNK)
        {
            return Err(BadInput::ChunkLength(chunk.length));
        }
        let mut lengths = std::collections::HashMap::new();
        for chunk in &self.chunks {
            let first = *lengths.entry(chunk.hash).or_insert(chunk.length);
            if first != chunk.length {
                return Err(BadInput::TwoLengths(chunk.hash));
            }
        }
        let sum = self
            .chunks
            .iter()
            .map(|chunk| u64::from(chunk.length))
            .sum();
        if sum != self.size {
            return Err(BadInput::SizeMismatch {
                size: self.size,
                sum,
            });
        }
        // Devices that have this fingerprint already will not fetch the file.
        if self.fingerprint != fingerprint(&self.chunks) {
            return Err(BadInput::Fingerprint(self.fingerprint));
        }
        Ok(())
    }
}

/// Where a new version is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A new file.
    New {
        /// In this folder.
        parent: EntryId,
        /// Under this name.
        name: String,
    },
    /// A file that is there.
    Existing {
        /// Which one.
        entry: EntryId,
        /// The version that the edit began with. If the head has moved on, the edit becomes a
        /// conflict copy.
        base_version: u64,
    },
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::New { parent, name } => write!(f, "new {parent}/{name}"),
            Self::Existing {
                entry,
                base_version,
            } => write!(f, "{entry} after {base_version}"),
        }
    }
}

/// What somebody with whom an entry is shared may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Permission {
    /// Look and download.
    Read,
    /// Also change.
    Write,
}

/// ShareRelationState: an entry, and for a folder all that is in it, for one more user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// What is shared.
    pub entry_id: EntryId,
    /// With whom.
    pub user: String,
    /// What they may do.
    pub permission: Permission,
    /// Who shared it.
    pub granted_by: String,
    /// When.
    pub granted_at: Millis,
}

/// What is wrong with what came in. Found before anything is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// Not a name that every device can have.
    #[error(transparent)]
    Name(#[from] BadPath),
    /// Not 64 hexadecimal digits.
    #[error("'{0}' is not a SHA-256 in 64 hexadecimal digits")]
    Hash(String),
    /// An id of a tenant, user or device.
    #[error(
        "{what} '{id}' must be 1 to 64 letters, digits, '.', '_', '@' or '-', and not only dots"
    )]
    Id {
        /// Whose.
        what: &'static str,
        /// What it was.
        id: String,
    },
    /// Empty or too large.
    #[error("a chunk has between 1 and {MAX_CHUNK} bytes, not {0}")]
    ChunkLength(u32),
    /// The same bytes cannot have two lengths.
    #[error("chunk {0} is said to have two lengths")]
    TwoLengths(ChunkHash),
    /// The fingerprint is that of another list.
    #[error("{0} is not the fingerprint of these chunks")]
    Fingerprint(ChunkHash),
    /// More than a manifest takes.
    #[error("a file has at most {MAX_CHUNKS} chunks, not {0}")]
    TooManyChunks(usize),
    /// The chunks do not make the file.
    #[error("the chunks have {sum} bytes together, the file has {size}")]
    SizeMismatch {
        /// What the file was said to have.
        size: u64,
        /// What its chunks have.
        sum: u64,
    },
    /// The hash is no chunk of this version.
    #[error("{0} is no chunk of this version")]
    NotItsChunk(ChunkHash),
    /// The top folder cannot be renamed, moved, deleted or shared.
    #[error("the top folder cannot be {0}")]
    Root(&'static str),
    /// Sharing with oneself.
    #[error("'{0}' owns it already")]
    OwnEntry(String),
}

/// Checks an id that becomes part of a key.
pub fn check_id(what: &'static str, id: &str) -> Result<(), BadInput> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    // `..` in an object's key is the way to another bucket where keys are paths.
    let dots = id.chars().all(|c| c == '.');
    if (1..=64).contains(&id.len()) && id.chars().all(fits) && !dots {
        return Ok(());
    }
    Err(BadInput::Id {
        what,
        id: id.to_owned(),
    })
}

/// Checks a name. What one device can write, every device must be able to.
pub fn check_name(name: &str) -> Result<(), BadInput> {
    Ok(crate::local::path::plain(name, name)?)
}

/// What names must differ in: case does not count, nor how an accent is composed. On half of all
/// devices `Résumé.txt` and `RÉSUMÉ.TXT` are one file.
pub fn folded(name: &str) -> String {
    name.nfd().default_case_fold().nfc().collect()
}

/// The name of a conflict copy: the same for the same device and count, and never the original.
pub fn conflict_name(name: &str, device: &str, count: u32) -> String {
    let counted = match count {
        0 | 1 => String::new(),
        count => format!(" {count}"),
    };
    let mark = format!(" (conflicted copy of {device}{counted})");
    let (stem, extension) = split_extension(name);
    let room = MAX_NAME.saturating_sub(mark.len() + extension.len());
    let end = (0..=room.min(stem.len()))
        .rev()
        .find(|end| stem.is_char_boundary(*end))
        .unwrap_or(0);
    format!("{}{mark}{extension}", &stem[..end])
}

/// `report.pdf` as `report` and `.pdf`. What begins with its only dot has no extension.
fn split_extension(name: &str) -> (&str, &str) {
    match name.rfind('.') {
        Some(at) if at > 0 && name.len() - at <= 16 => name.split_at(at),
        _ => (name, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_or_composition_only_fold_alike() {
        assert_eq!(
            folded("R\u{e9}sum\u{e9}.TXT"),
            folded("re\u{301}sume\u{301}.txt")
        );
        assert_eq!(folded("STRASSE"), folded("straße"));
        assert_ne!(folded("resume"), folded("résumé"));
    }

    #[test]
    fn a_conflict_copy_keeps_the_extension_and_fits() {
        assert_eq!(
            conflict_name("report.pdf", "laptop", 1),
            "report (conflicted copy of laptop).pdf"
        );
        assert_eq!(
            conflict_name(".profile", "laptop", 2),
            ".profile (conflicted copy of laptop 2)"
        );
        let long = "ä".repeat(126) + ".txt";
        let copy = conflict_name(&long, "laptop", 1);
        assert!(copy.len() <= MAX_NAME && copy.ends_with(".txt"));
    }

    #[test]
    fn a_hash_reads_as_it_was_written() {
        let hash = ChunkHash::of(b"a");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(ChunkHash::from_key(&hash.in_key()), Some(hash));
        assert_eq!(ChunkHash::from_key("a"), None);
    }

    #[test]
    fn a_manifest_reads_as_it_was_written() {
        let manifest = Manifest {
            chunks: vec![ChunkRef::of(b"a"), ChunkRef::of(b"bc"), ChunkRef::of(b"a")],
        };
        assert_eq!(Manifest::decode(&manifest.encode()), Some(manifest.clone()));
        assert_eq!(manifest.size(), 4);
        assert_eq!(manifest.distinct().len(), 2);
        assert_eq!(Manifest::decode(&[0; 35]), None);
    }
}
