//! The rules, pure: names, identities, buckets, positions. `now` is an argument, and no type of any
//! SDK comes in.

use cloud::Millis;
use cloud::item::shard_of;
use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization;

/// The longest tag name, in characters, once normalized.
pub const MAX_NAME: usize = 64;
/// The longest tenant or content id, in characters.
pub const MAX_ID: usize = 128;
/// The most buckets a tag may have. Every view of it reads them all.
pub const MAX_BUCKETS: u32 = 64;
/// How many tags a content may have, if nobody says otherwise.
pub const DEFAULT_CAP: u32 = 50;
/// The largest page of a view.
pub const MAX_PAGE: usize = 100;

/// The last moment that a position can hold: thirteen digits, in the year 2286.
const LAST_MOMENT: Millis = 9_999_999_999_999;

/// What people write, and what is compared. Two spellings of one word are one tag.
///
/// The comparison is Unicode's own for identifiers: compatibility forms are unified, case is folded,
/// what is not seen is dropped. `#Ｒust`, `RUST` and `rust` are one tag, and so are `Straße` and
/// `STRASSE`. White space becomes one space; a leading `#` is how people say "tag", not part of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TagName {
    shown: String,
    normalized: String,
}

impl TagName {
    /// The name that this text stands for.
    pub fn new(text: &str) -> Result<Self, BadInput> {
        let shown = text.trim().to_owned();
        if shown.chars().any(char::is_control) {
            return Err(BadInput::ControlCharacter);
        }
        let normalized = normalize(&shown);
        let length = normalized.chars().count();
        if !(1..=MAX_NAME).contains(&length) {
            let (what, most) = ("a tag's name", MAX_NAME);
            return Err(BadInput::Length { what, most, length });
        }
        Ok(Self { shown, normalized })
    }

    /// As it was written.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// As it is compared, stored and looked up.
    pub fn normalized(&self) -> &str {
        &self.normalized
    }
}

/// What a text is compared as; also the beginning of one, for autocomplete.
pub fn normalize(text: &str) -> String {
    // Folding can make something to compose, composing something to fold: until nothing changes.
    let mut now = one_pass(text);
    loop {
        let next = one_pass(&now);
        if next == now {
            return now;
        }
        now = next;
    }
}

fn one_pass(text: &str) -> String {
    let composed: String = text.nfkc().collect();
    let folded = caseless::default_case_fold_str(&composed);
    let seen = folded.nfkc().filter(|char| !is_ignorable(*char));
    let words: String = seen.collect();
    let words: Vec<_> = words.split_whitespace().collect();
    let words = words.join(" ");
    words.trim_start_matches('#').trim_start().to_owned()
}

/// Unicode's Default_Ignorable_Code_Point: soft hyphens, joiners, marks of direction, variations.
fn is_ignorable(char: char) -> bool {
    matches!(u32::from(char),
        0x00AD | 0x034F | 0x061C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180F
        | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF
        | 0xFFA0 | 0xFFF0..=0xFFF8 | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

/// Whose tags these are. Part of every key, so that tenants cannot meet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantId(String);

/// What is tagged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContentId(String);

impl TenantId {
    /// Checks the id.
    pub fn new(id: &str) -> Result<Self, BadInput> {
        identity("a tenant's id", id).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl ContentId {
    /// Checks the id.
    pub fn new(id: &str) -> Result<Self, BadInput> {
        identity("a content's id", id).map(Self)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Ids stand in keys with `#` between them, so they hold none: no two pairs make one key.
fn identity(what: &'static str, id: &str) -> Result<String, BadInput> {
    let (length, most) = (id.chars().count(), MAX_ID);
    if !(1..=most).contains(&length) {
        return Err(BadInput::Length { what, most, length });
    }
    if let Some(char) = id
        .chars()
        .find(|char| !char.is_ascii_graphic() || *char == '#')
    {
        return Err(BadInput::Character { what, char });
    }
    Ok(id.to_owned())
}

/// Which bucket of a tag a content's row is in: always the same for the same number of buckets, and
/// any of them with the same chance.
pub fn bucket_of(tag_id: &str, content_id: &str, buckets: u32) -> u32 {
    shard_of(&format!("{tag_id}#{content_id}"), buckets.max(1))
}

/// A place in the order of a view: newest first, and by content id among those of one moment. No two
/// contents of a tag have the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// When the tag was attached.
    pub created_at: Millis,
    /// To what.
    pub content_id: String,
}

impl Position {
    /// The sort key of the index: text that DynamoDB sorts as the view is ordered.
    pub fn key(&self) -> String {
        let until_last = LAST_MOMENT - self.created_at.clamp(0, LAST_MOMENT);
        format!("{until_last:013}#{}", self.content_id)
    }
}

impl Ord for Position {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.created_at, &self.content_id).cmp(&(self.created_at, &other.content_id))
    }
}

impl PartialOrd for Position {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// What is wrong with what came in. Found before the first call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// Empty or too long.
    #[error("{what} must have between 1 and {most} characters, not {length}")]
    Length {
        /// Which text.
        what: &'static str,
        /// How long it may be.
        most: usize,
        /// How long it was.
        length: usize,
    },
    /// A character that an id may not have.
    #[error("{what} is of printable ASCII without '#' and spaces; {char:?} is not")]
    Character {
        /// Which id.
        what: &'static str,
        /// The first one.
        char: char,
    },
    /// A line break, a tab, a bell.
    #[error("a tag's name has no control characters")]
    ControlCharacter,
    /// None, or more than every view could read.
    #[error("a tag has between 1 and {MAX_BUCKETS} buckets, not {0}")]
    Buckets(u32),
    /// None, or too many.
    #[error("a page has between 1 and {MAX_PAGE} contents, not {0}")]
    PageSize(usize),
    /// Not one of ours, or made for another question.
    #[error("this cursor is not one that this view of this tag gave out")]
    Cursor,
    /// Anything else, in words.
    #[error("{0}")]
    Other(&'static str),
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn name(text: &str) -> String {
        TagName::new(text).unwrap().normalized().to_owned()
    }

    #[test]
    fn spellings_of_one_word_are_one_tag() {
        for text in [
            "Rust",
            " #rust ",
            "RUST",
            "Ｒｕｓｔ",
            "ru\u{00AD}st",
            "##rust",
        ] {
            assert_eq!(name(text), "rust", "{text:?}");
        }
        assert_eq!(name("Straße"), name("STRASSE"));
        assert_eq!(name("Cafe\u{301}"), name("CAFÉ"));
        assert_eq!(name("ice   cream"), "ice cream");
        assert_eq!(name("C#"), "c#");
        assert_ne!(name("C"), name("C#"));
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for text in ["", "   ", "#", "\u{200B}", &"x".repeat(65), "a\u{7}b"] {
            assert!(TagName::new(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_two_pairs_of_ids_make_one_key() {
        assert!(TenantId::new("a#b").is_err());
        assert!(ContentId::new("").is_err());
        assert!(ContentId::new("photo 1").is_err());
        assert!(ContentId::new("photo-1").is_ok());
    }

    #[test]
    fn keys_sort_as_positions_do() {
        let at = |created_at, content_id: &str| Position {
            created_at,
            content_id: content_id.into(),
        };
        let ordered = [at(1_000, "a"), at(1_000, "b"), at(999, "a"), at(0, "z")];
        assert!(ordered.is_sorted());
        assert!(ordered.map(|position| position.key()).is_sorted());
    }
}
