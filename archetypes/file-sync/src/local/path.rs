//! Paths inside a synced directory. A path from the store is a wish of some other device, or of an
//! attacker who wrote to it: it is taken apart and looked at before it is used for anything.

use crate::domain::MAX_NAME;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The folder for the device's own things, in every synced directory. Never synced.
pub const OWN_FOLDER: &str = ".file-sync";

/// A path inside the directory: plain names with `/` between them. Only [`RelPath::new`] makes one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RelPath(String);

/// Why a path is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// `/etc/passwd`, `C:\…`.
    #[error("'{0}' is an absolute path: only paths inside the directory are synced")]
    Absolute(String),
    /// `..` somewhere.
    #[error("'{0}' leads out of the directory")]
    Outside(String),
    /// `a//b`, `.` or nothing at all.
    #[error("'{0}' has a name that is empty or '.'")]
    Empty(String),
    /// A character that some system cannot have in a name.
    #[error("'{path}' has {character:?} in a name: not every device can have that")]
    Character {
        /// The path.
        path: String,
        /// The character.
        character: char,
    },
    /// `CON`, `aux.txt`.
    #[error("'{0}' has a name that means a device on Windows")]
    Reserved(String),
    /// `name.` and `name `, which Windows takes for `name`.
    #[error("'{0}' has a name that ends with a dot or a space: Windows drops it")]
    Ending(String),
    /// More than a file system takes.
    #[error("'{0}' has a name of more than 255 bytes")]
    Long(String),
    /// Where the device keeps its own things.
    #[error("'{0}' is where the device keeps its own things")]
    Own(String),
    /// Not UTF-8.
    #[error("'{0}' is no UTF-8: not every device can show that name")]
    Unreadable(String),
}

impl RelPath {
    /// This path, if it is a plain one.
    pub fn new(path: &str) -> Result<Self, BadPath> {
        let whole = || path.to_owned();
        let mut letters = path.chars();
        let drive =
            letters.next().is_some_and(|c| c.is_ascii_alphabetic()) && letters.next() == Some(':');
        if path.starts_with(['/', '\\']) || drive {
            return Err(BadPath::Absolute(whole()));
        }
        for name in path.split('/') {
            plain(name, path)?;
        }
        if path
            .split('/')
            .next()
            .is_some_and(|first| first.eq_ignore_ascii_case(OWN_FOLDER))
        {
            return Err(BadPath::Own(whole()));
        }
        Ok(Self(whole()))
    }

    /// The path of something in this folder; `None` is the directory itself.
    pub fn within(folder: Option<&Self>, name: &str) -> Result<Self, BadPath> {
        // A name with a slash in it would be a path.
        if let Some(character) = name.chars().find(|c| *c == '/') {
            let path = name.to_owned();
            return Err(BadPath::Character { path, character });
        }
        match folder {
            Some(folder) => Self::new(&format!("{folder}/{name}")),
            None => Self::new(name),
        }
    }

    /// The names it consists of.
    pub fn names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/')
    }

    /// The last name.
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&self.0, |(_, name)| name)
    }

    /// The folder it is in, if that is not the directory itself.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.to_owned()))
    }

    /// The folders it is in, outermost first.
    pub fn ancestors(&self) -> impl Iterator<Item = Self> {
        let ends = self.0.match_indices('/').map(|(at, _)| at);
        ends.map(|at| Self(self.0[..at].to_owned()))
    }

    /// Whether it is inside this folder.
    pub fn is_in(&self, folder: &Self) -> bool {
        self.0
            .strip_prefix(&folder.0)
            .is_some_and(|rest| rest.starts_with('/'))
    }

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Beside it, with ` (words)` before the ending: `a/report (words).txt`.
    pub fn beside(&self, words: &str) -> Result<Self, BadPath> {
        let name = self.name();
        // A dot at the beginning is no ending.
        let (stem, ending) = match name.rfind('.') {
            Some(dot) if dot > 0 => name.split_at(dot),
            _ => (name, ""),
        };
        let room = MAX_NAME.saturating_sub(words.len() + ending.len() + 3);
        let stem = &stem[..stem.floor_char_boundary(room)];
        let name = format!("{} ({words}){ending}", stem.trim_end());
        Self::within(self.parent().as_ref(), &name)
    }
}

/// Whether a name is one that every device can have. The store takes no other, and a device that meets one
/// anyway does not use it.
pub(crate) fn plain(name: &str, path: &str) -> Result<(), BadPath> {
    let whole = || path.to_owned();
    match name {
        "" | "." => return Err(BadPath::Empty(whole())),
        ".." => return Err(BadPath::Outside(whole())),
        _ => {}
    }
    let forbidden = |c: &char| c.is_control() || r#"/\<>:"|?*"#.contains(*c);
    if let Some(character) = name.chars().find(forbidden) {
        let path = whole();
        return Err(BadPath::Character { path, character });
    }
    if name.ends_with(['.', ' ']) {
        return Err(BadPath::Ending(whole()));
    }
    if name.len() > MAX_NAME {
        return Err(BadPath::Long(whole()));
    }
    let stem = name.split('.').next().unwrap_or(name).trim_end();
    let port = |prefix: &str| {
        let number = stem.get(prefix.len()..).unwrap_or_default();
        stem.get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
            && number.chars().count() == 1
            && number.chars().all(|c| "123456789¹²³".contains(c))
    };
    let reserved = ["CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$"];
    if reserved.iter().any(|word| stem.eq_ignore_ascii_case(word)) || port("COM") || port("LPT") {
        return Err(BadPath::Reserved(whole()));
    }
    Ok(())
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for RelPath {
    type Error = BadPath;

    fn try_from(path: String) -> Result<Self, BadPath> {
        Self::new(&path)
    }
}

impl From<RelPath> for String {
    fn from(path: RelPath) -> Self {
        path.0
    }
}
