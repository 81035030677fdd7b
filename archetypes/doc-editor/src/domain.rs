//! The rules, pure: who comes after whom, and what an edit is by the time its turn comes.
//!
//! A document is a text and the one order of operations that led to it. Everybody types against the
//! version they have seen; [`Canon::decide`] rewrites what they typed against all that came between,
//! and gives it the next version. The store then says whether that version was still free.

use crate::ot::{Operation, OtError, Run, Text};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many operations a text is the result of. Version 0 is the text a document began with.
pub type Version = u64;

/// The most bytes that an operation may take as JSON: well below the 400 KB of an item, since an
/// operation may grow while it is rewritten.
pub const MAX_OPERATION_BYTES: usize = 64 * 1024;

/// The most bytes that a rewritten operation may take. What else is in its item is small.
pub const MAX_STORED_BYTES: usize = 380 * 1024;

/// The most characters a document may have.
pub const MAX_DOCUMENT_CHARS: usize = 1_000_000;

/// Whoever is further behind than this reads the document again: rewriting would cost more.
pub const MAX_BEHIND: u64 = 1_000;

/// One edit as a client sends it. `(client_id, sequence)` is its identity, however often it is sent
/// and against whichever version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Which document.
    pub document_id: String,
    /// Which window. A new one for each: it counts its own edits.
    pub client_id: String,
    /// The client's own number of this edit, from 1.
    pub sequence: u64,
    /// The version that the operation was made on.
    pub base: Version,
    /// What was typed.
    pub operation: Operation,
    /// The version that this takes back, if it does.
    pub undoes: Option<Version>,
}

/// One operation of the one order: what everybody applies, as they apply it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The version it makes.
    pub version: Version,
    /// What it does to the text of the version before.
    pub operation: Operation,
    /// Whose it is.
    pub client_id: String,
    /// Their number of it.
    pub sequence: u64,
    /// The version that it takes back, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undoes: Option<Version>,
}

/// Wrong input. Nothing was read or written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// An id that could not stand in a key.
    #[error("the {what} must be 1 to 64 letters, digits, '-', '_' or '.', not '{given}'")]
    Id {
        /// Which id.
        what: &'static str,
        /// What was given.
        given: String,
    },
    /// A title that is none.
    #[error("a title has 1 to 200 characters, not {0}")]
    Title(usize),
    /// A name that is none.
    #[error("a name has 1 to 60 characters, not {0}")]
    Name(usize),
    /// A count that begins with one.
    #[error("a sequence is a number from 1 to 999999999999, not {0}")]
    Sequence(u64),
    /// Too much in one operation.
    #[error("one operation takes at most {MAX_OPERATION_BYTES} bytes, not {0}: send it in parts")]
    TooLarge(usize),
    /// Too much to begin with.
    #[error("a document begins with at most {MAX_OPERATION_BYTES} bytes of text, not {0}")]
    Text(usize),
}

/// Why an edit gets no version. An answer, not a fault: sent again it is the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Refusal {
    /// What came between is no longer kept, or too much.
    #[error("version {base} is too far behind {version}: load the document again")]
    TooFarBehind {
        /// What the edit was made on.
        base: Version,
        /// Where the document is.
        version: Version,
    },
    /// Made on a version that nobody has made yet.
    #[error("the edit is for version {base}, and the document is at {version}")]
    FromTheFuture {
        /// What the edit was made on.
        base: Version,
        /// Where the document is.
        version: Version,
    },
    /// The text of that version has another length.
    #[error("the edit is not for the text of version {base}: {why}")]
    OtherText {
        /// What the edit says it was made on.
        base: Version,
        /// What the engine said.
        why: String,
    },
    /// The document would become too long.
    #[error("a document has at most {MAX_DOCUMENT_CHARS} characters, this would make it {0}")]
    Full(usize),
    /// Rewritten, it no longer fits an item.
    #[error(
        "rewritten it takes {0} bytes, at most {MAX_STORED_BYTES} can be kept: load the document again"
    )]
    Grown(usize),
    /// There is no edit of one's own to take back.
    #[error("there is nothing of yours to take back")]
    NothingToUndo,
}

/// How many bytes an operation takes as JSON: on the wire and in its item.
pub fn encoded_bytes(operation: &Operation) -> usize {
    serde_json::to_string(operation).map_or(usize::MAX, |text| text.len())
}

/// An id that can stand in a key, beside others, separated by `#` or `:`.
pub fn valid_id(what: &'static str, id: &str) -> Result<(), BadInput> {
    let fit = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if (1..=64).contains(&id.len()) && id.chars().all(fit) {
        return Ok(());
    }
    let given = id.chars().take(80).collect();
    Err(BadInput::Id { what, given })
}

impl Edit {
    /// Whether it can be looked at.
    pub fn validate(&self) -> Result<(), BadInput> {
        valid_id("document id", &self.document_id)?;
        valid_id("client id", &self.client_id)?;
        if !(1..=999_999_999_999).contains(&self.sequence) {
            return Err(BadInput::Sequence(self.sequence));
        }
        match encoded_bytes(&self.operation) {
            0..=MAX_OPERATION_BYTES => Ok(()),
            bytes => Err(BadInput::TooLarge(bytes)),
        }
    }
}

/// What is to be done with an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Append this, if its version is still free.
    Append(Entry),
    /// It was appended before, as this version.
    Before(Version),
    /// It was made on a version that this canon has not heard of: catch up first.
    Behind,
    /// It was made before what is held here: the entries of the versions `after < v <= until` are needed.
    Older {
        /// The first version that is needed is the one after this.
        after: Version,
        /// The last that is needed.
        until: Version,
    },
    /// No.
    Refused(Refusal),
}

/// A document as somebody holds it who orders or follows edits: the text, its version, and the operations
/// that led there last. A cache: losing it costs a read, and an old one is found out by the store.
#[derive(Debug, Clone)]
pub struct Canon {
    version: Version,
    text: Text,
    recent: VecDeque<Entry>,
    /// How many operations are held: memory follows the document, not its history.
    holds: usize,
}

impl Canon {
    /// The document at this version.
    pub fn new(version: Version, text: &str, holds: usize) -> Self {
        Self {
            version,
            text: Text::from(text),
            recent: VecDeque::new(),
            holds,
        }
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its text.
    pub fn text(&self) -> &Text {
        &self.text
    }

    /// How many operations are held.
    pub fn held(&self) -> usize {
        self.recent.len()
    }

    /// The oldest version whose followers can be served from what is held.
    fn first(&self) -> Version {
        self.version - self.recent.len() as u64
    }

    /// The entries after a version, if they are all held.
    pub fn entries_after(&self, version: Version) -> Option<Vec<Entry>> {
        let newer = |entry: &&Entry| entry.version > version;
        (version >= self.first()).then(|| self.recent.iter().filter(newer).cloned().collect())
    }

    /// What is to be done with an edit. `older` is what an earlier [`Decision::Older`] asked for.
    pub fn decide(&self, edit: &Edit, older: &[Entry]) -> Decision {
        let same =
            |entry: &&Entry| entry.client_id == edit.client_id && entry.sequence == edit.sequence;
        if let Some(before) = older.iter().chain(&self.recent).find(same) {
            return Decision::Before(before.version);
        }
        let (base, version) = (edit.base, self.version);
        if base > version {
            return Decision::Behind;
        }
        if version - base > MAX_BEHIND {
            return Decision::Refused(Refusal::TooFarBehind { base, version });
        }
        let between: Vec<&Entry> = older
            .iter()
            .filter(|entry| entry.version <= self.first())
            .chain(&self.recent)
            .filter(|entry| entry.version > base)
            .collect();
        if (between.len() as u64) < version - base {
            let (after, until) = (base, self.first());
            return Decision::Older { after, until };
        }
        let other = |why: OtError| {
            let why = why.to_string();
            Decision::Refused(Refusal::OtherText { base, why })
        };
        // What is in the order stands first where two insert at one place. Every replica says the same.
        let mut operation = edit.operation.clone();
        for entry in between {
            operation = match entry.operation.transform(&operation) {
                Ok((_, rewritten)) => rewritten,
                Err(why) => return other(why),
            };
        }
        if operation.base_len() != self.text.len() {
            let (operation, text) = (operation.base_len(), self.text.len());
            return other(OtError::WrongText { operation, text });
        }
        if operation.target_len() > MAX_DOCUMENT_CHARS {
            return Decision::Refused(Refusal::Full(operation.target_len()));
        }
        let bytes = encoded_bytes(&operation);
        if bytes > MAX_STORED_BYTES {
            return Decision::Refused(Refusal::Grown(bytes));
        }
        Decision::Append(Entry {
            version: version + 1,
            operation,
            client_id: edit.client_id.clone(),
            sequence: edit.sequence,
            undoes: edit.undoes,
        })
    }

    /// Takes the next entry in. One that is not the next, or does not fit, is refused: the caller's copy is
    /// then of no use.
    pub fn advance(&mut self, entry: Entry) -> Result<(), NotNext> {
        if entry.version != self.version + 1 {
            return Err(NotNext);
        }
        self.text.apply(&entry.operation).map_err(|_| NotNext)?;
        self.version = entry.version;
        self.recent.push_back(entry);
        while self.recent.len() > self.holds {
            self.recent.pop_front();
        }
        Ok(())
    }

    /// Takes in all entries that are new; known ones are passed over.
    pub fn follow(&mut self, entries: impl IntoIterator<Item = Entry>) -> Result<(), NotNext> {
        for entry in entries {
            if entry.version > self.version {
                self.advance(entry)?;
            }
        }
        Ok(())
    }
}

/// An entry is missing between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an operation is missing")]
pub struct NotNext;

/// An operation as several that may each be sent: the first on the same text, each other on what the one
/// before leaves.
pub fn split(operation: &Operation) -> Vec<Operation> {
    if encoded_bytes(operation) <= MAX_OPERATION_BYTES {
        return vec![operation.clone()];
    }
    // One step for each deletion and each piece of an insertion …
    let mut steps = Vec::new();
    let (mut at, mut length) = (0, operation.base_len());
    for run in operation.runs() {
        match run {
            Run::Retain(n) => at += n,
            Run::Delete(n) => {
                let step = Operation::new().retain(at).delete(*n);
                length -= n;
                steps.push(step.retain(length - at));
            }
            Run::Insert(text) => {
                for piece in pieces(text) {
                    let step = Operation::new().retain(at).insert(&piece);
                    steps.push(step.retain(length - at));
                    let chars = piece.chars().count();
                    (at, length) = (at + chars, length + chars);
                }
            }
        }
    }
    // … and as many of them in one operation as it may take.
    let mut parts: Vec<(Operation, usize)> = Vec::new();
    for step in steps {
        let bytes = encoded_bytes(&step);
        if let Some((last, size)) = parts.last_mut()
            && *size + bytes <= MAX_OPERATION_BYTES
            && let Ok(both) = last.compose(&step)
        {
            (*last, *size) = (both, *size + bytes);
        } else {
            parts.push((step, bytes));
        }
    }
    parts.into_iter().map(|(part, _)| part).collect()
}

/// Text in pieces that fit an operation, however much JSON has to escape.
fn pieces(text: &str) -> Vec<String> {
    const MOST: usize = MAX_OPERATION_BYTES - 1_024;
    let mut pieces = vec![String::new()];
    let mut size = 0;
    for char in text.chars() {
        let bytes = match char {
            '"' | '\\' => 2,
            c if c < ' ' => 6,
            c => c.len_utf8(),
        };
        if size + bytes > MOST {
            pieces.push(String::new());
            size = 0;
        }
        size += bytes;
        if let Some(last) = pieces.last_mut() {
            last.push(char);
        }
    }
    pieces
}
