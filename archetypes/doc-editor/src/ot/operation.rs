//! What an operation is, and what it does to a text.

use smallvec::SmallVec;

/// The most characters a text may have: far more than any document, and small enough that no sum of
/// lengths overflows.
pub const MAX_LEN: usize = 1 << 30;

/// One step of the walk over a text. Lengths count characters (Unicode scalar values) and are never zero.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Run {
    /// Keep this many characters.
    Retain(usize),
    /// Insert this text here.
    Insert(String),
    /// Delete this many characters.
    Delete(usize),
}

/// Why an operation cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OtError {
    /// The operation was made for another text.
    #[error("the operation is for a text of {operation} characters, this text has {text}")]
    WrongText {
        /// How long a text the operation expects.
        operation: usize,
        /// How long the text is.
        text: usize,
    },
    /// The second operation does not start where the first one ended.
    #[error(
        "cannot compose: the first operation leaves {first} characters, the second expects {second}"
    )]
    NotConsecutive {
        /// What the first leaves.
        first: usize,
        /// What the second expects.
        second: usize,
    },
    /// The two operations were not made on the same text.
    #[error("cannot transform: one operation expects {left} characters, the other {right}")]
    NotConcurrent {
        /// What the one expects.
        left: usize,
        /// What the other expects.
        right: usize,
    },
    /// A run of no characters, which no operation contains.
    #[error("a run of an operation is empty")]
    EmptyRun,
    /// Longer than [`MAX_LEN`].
    #[error("an operation spans more than {MAX_LEN} characters")]
    TooLong,
}

/// An edit of a whole text: runs that keep, insert and delete, from the first character to the last.
///
/// Always canonical: no empty runs, no two neighbours of one kind, an insert before the delete next to it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Operation {
    runs: SmallVec<[Run; 4]>,
    base_len: usize,
    target_len: usize,
}

impl Operation {
    /// The operation on the empty text that leaves it empty. Add runs to it.
    #[inline]
    pub fn new() -> Self {
        Self::default()
    }

    /// Then keeps `n` characters.
    #[inline]
    pub fn retain(mut self, n: usize) -> Self {
        self.push_retain(n);
        self
    }

    /// Then inserts `text`.
    #[inline]
    pub fn insert(mut self, text: &str) -> Self {
        self.push_insert(text, text.chars().count());
        self
    }

    /// Then deletes `n` characters.
    #[inline]
    pub fn delete(mut self, n: usize) -> Self {
        self.push_delete(n);
        self
    }

    #[inline]
    pub(super) fn push_retain(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        self.base_len += n;
        self.target_len += n;
        match self.runs.last_mut() {
            Some(Run::Retain(last)) => *last += n,
            _ => self.runs.push(Run::Retain(n)),
        }
    }

    /// `chars` is how many characters `text` has: the caller mostly knows.
    #[inline]
    pub(super) fn push_insert(&mut self, text: &str, chars: usize) {
        if text.is_empty() {
            return;
        }
        self.target_len += chars;
        match self.runs.as_mut_slice() {
            [.., Run::Insert(last)] | [.., Run::Insert(last), Run::Delete(_)] => {
                last.push_str(text);
            }
            [.., last @ Run::Delete(_)] => {
                let delete = std::mem::replace(last, Run::Insert(with_room(text)));
                self.runs.push(delete);
            }
            _ => self.runs.push(Run::Insert(with_room(text))),
        }
    }

    #[inline]
    pub(super) fn push_delete(&mut self, n: usize) {
        if n == 0 {
            return;
        }
        self.base_len += n;
        match self.runs.last_mut() {
            Some(Run::Delete(last)) => *last += n,
            _ => self.runs.push(Run::Delete(n)),
        }
    }

    /// The runs, in order.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether it changes nothing.
    pub fn is_noop(&self) -> bool {
        matches!(self.runs.as_slice(), [] | [Run::Retain(_)])
    }

    /// How many characters the text has that it is for.
    pub fn base_len(&self) -> usize {
        self.base_len
    }

    /// How many characters it leaves.
    pub fn target_len(&self) -> usize {
        self.target_len
    }

    /// How many bytes of text it brings: what an operation costs to keep, beside a few numbers.
    pub fn inserted_bytes(&self) -> usize {
        let bytes = |run: &Run| match run {
            Run::Insert(text) => text.len(),
            Run::Retain(_) | Run::Delete(_) => 0,
        };
        self.runs.iter().map(bytes).sum()
    }

    /// The text after this operation. Takes time in proportion to the text: for many operations see
    /// [`Text`](super::Text).
    pub fn apply(&self, text: &str) -> Result<String, OtError> {
        self.fits(text.chars().count())?;
        let mut after = String::with_capacity(text.len() + self.inserted_bytes());
        let mut rest = text;
        for run in &self.runs {
            match run {
                Run::Retain(n) => {
                    let (kept, tail) = split_chars(rest, *n);
                    after.push_str(kept);
                    rest = tail;
                }
                Run::Insert(new) => after.push_str(new),
                Run::Delete(n) => rest = split_chars(rest, *n).1,
            }
        }
        Ok(after)
    }

    /// The operation that takes this one back, given the text it was applied to.
    pub fn invert(&self, before: &str) -> Result<Operation, OtError> {
        self.fits(before.chars().count())?;
        let mut rest = before;
        let mut back = Operation::new();
        for run in &self.runs {
            match run {
                Run::Retain(n) => {
                    rest = split_chars(rest, *n).1;
                    back.push_retain(*n);
                }
                Run::Insert(new) => back.push_delete(new.chars().count()),
                Run::Delete(n) => {
                    let (lost, tail) = split_chars(rest, *n);
                    back.push_insert(lost, *n);
                    rest = tail;
                }
            }
        }
        Ok(back)
    }

    /// Where a cursor at `position` of the text before is in the text after.
    ///
    /// A cursor stands between two characters. Text inserted exactly there ends up behind it, unless the
    /// operation is by the cursor's `own` writer, who goes on after what was typed. A cursor inside
    /// deleted text moves to where the text was, behind what replaced it.
    pub fn transform_cursor(&self, position: usize, own: bool) -> usize {
        let position = position.min(self.base_len);
        let (mut old, mut new) = (0, 0);
        for run in &self.runs {
            match run {
                Run::Retain(n) if position < old + n => return new + (position - old),
                Run::Retain(n) => {
                    old += n;
                    new += n;
                }
                Run::Insert(text) if position > old || own => new += text.chars().count(),
                Run::Insert(_) => return new,
                Run::Delete(n) if position < old + n => return new,
                Run::Delete(n) => old += n,
            }
        }
        new
    }

    pub(super) fn fits(&self, text: usize) -> Result<(), OtError> {
        if self.base_len == text {
            return Ok(());
        }
        Err(OtError::WrongText {
            operation: self.base_len,
            text,
        })
    }
}

/// A text with room for the keys that are typed next: an allocator gives no less anyway.
#[inline]
fn with_room(text: &str) -> String {
    let mut roomy = String::with_capacity(text.len().max(24));
    roomy.push_str(text);
    roomy
}

/// The first `n` characters, and the rest; everything if there are not as many.
#[inline]
pub(super) fn split_chars(text: &str, n: usize) -> (&str, &str) {
    // One letter, one byte, is what most keystrokes are.
    let end = match text.as_bytes().get(..n) {
        Some(head) if head.is_ascii() => n,
        _ => text.char_indices().nth(n).map_or(text.len(), |(at, _)| at),
    };
    text.split_at(end)
}
