//! Text from outside: one rule for the ids that clients make.

/// Why a text is no id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAnId {
    /// Empty or too long.
    #[error("must have between 1 and {most} bytes, not {length}")]
    Length {
        /// How many bytes it may have.
        most: usize,
        /// How many it has.
        length: usize,
    },
    /// Two ids that look the same are not the same.
    #[error("must not begin or end with white space")]
    Space,
    /// One that no log, header or page shows.
    #[error("must not contain the character {0:?}")]
    Character(char),
}

/// Checks an id that a client made: of 1 to `most` bytes, since that is how DynamoDB measures keys, without
/// control characters and noncharacters, and without white space at its ends.
pub fn id(text: &str, most: usize) -> Result<(), NotAnId> {
    let length = text.len();
    if !(1..=most).contains(&length) {
        return Err(NotAnId::Length { most, length });
    }
    let unfit = |c: &char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    if let Some(unfit) = text.chars().find(unfit) {
        return Err(NotAnId::Character(unfit));
    }
    if text.trim() != text {
        return Err(NotAnId::Space);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_visible_and_short() {
        for good in ["b-1", "a b", "Jörg", "#", "0123456789"] {
            assert_eq!(id(good, 10), Ok(()), "{good:?}");
        }
        let length = |length| NotAnId::Length { most: 10, length };
        for (bad, why) in [
            ("", length(0)),
            ("01234567890", length(11)),
            ("ääääää", length(12)),
            ("\0", NotAnId::Character('\0')),
            ("a\n", NotAnId::Character('\n')),
            ("a\u{7f}b", NotAnId::Character('\u{7f}')),
            ("a\u{85}b", NotAnId::Character('\u{85}')),
            ("a\u{ffff}", NotAnId::Character('\u{ffff}')),
            (" ", NotAnId::Space),
            ("a ", NotAnId::Space),
            ("\u{3000}a", NotAnId::Space),
        ] {
            assert_eq!(id(bad, 10), Err(why), "{bad:?}");
        }
    }
}
