//! The wire form, that of ot.js: `[5, "abc", -3]` keeps five characters, inserts three, deletes three.
//! What is read is checked and made canonical; it may come from anybody.

use super::{MAX_LEN, Operation, OtError, Run};
use serde::de::{Error, SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

impl Serialize for Operation {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut runs = serializer.serialize_seq(Some(self.runs().len()))?;
        for run in self.runs() {
            match run {
                Run::Retain(n) => runs.serialize_element(&(*n as i64))?,
                Run::Insert(text) => runs.serialize_element(text.as_str())?,
                Run::Delete(n) => runs.serialize_element(&-(*n as i64))?,
            }
        }
        runs.end()
    }
}

impl<'de> Deserialize<'de> for Operation {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Runs)
    }
}

struct Runs;

impl<'de> Visitor<'de> for Runs {
    type Value = Operation;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of counts to keep, texts to insert and negative counts to delete")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut runs: A) -> Result<Operation, A::Error> {
        let mut operation = Operation::new();
        while let Some(WireRun(run)) = runs.next_element()? {
            let (base, target) = (operation.base_len(), operation.target_len());
            let room = MAX_LEN - base.max(target);
            match run {
                Run::Retain(n) if n <= room => operation.push_retain(n),
                Run::Delete(n) if n <= room => operation.push_delete(n),
                Run::Insert(text) => {
                    let n = text.chars().count();
                    if n > room {
                        return Err(A::Error::custom(OtError::TooLong));
                    }
                    operation.push_insert(&text, n);
                }
                Run::Retain(_) | Run::Delete(_) => return Err(A::Error::custom(OtError::TooLong)),
            }
        }
        Ok(operation)
    }
}

struct WireRun(Run);

impl<'de> Deserialize<'de> for WireRun {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Asks for whatever is there: JSON and DynamoDB's own format both say what it is.
        deserializer.deserialize_any(OneRun).map(WireRun)
    }
}

struct OneRun;

impl Visitor<'_> for OneRun {
    type Value = Run;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number other than zero, or a text that is not empty")
    }

    fn visit_i64<E: Error>(self, n: i64) -> Result<Run, E> {
        let length = usize::try_from(n.unsigned_abs()).map_err(|_| E::custom(OtError::TooLong))?;
        match n {
            0 => Err(E::custom(OtError::EmptyRun)),
            1.. => Ok(Run::Retain(length)),
            _ => Ok(Run::Delete(length)),
        }
    }

    fn visit_u64<E: Error>(self, n: u64) -> Result<Run, E> {
        let n = i64::try_from(n).map_err(|_| E::custom(OtError::TooLong))?;
        self.visit_i64(n)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Run, E> {
        if text.is_empty() {
            return Err(E::custom(OtError::EmptyRun));
        }
        Ok(Run::Insert(text.into()))
    }
}
