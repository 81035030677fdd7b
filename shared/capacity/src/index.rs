//! What a write costs in a secondary index.
//!
//! An index is charged for the change to the entry it stores, not for the item that changed:
//!
//! | entry before | entry after              | charge                        |
//! |--------------|--------------------------|-------------------------------|
//! | none         | none                     | nothing                       |
//! | none         | some                     | one write of the new entry    |
//! | some         | none                     | one write of the old entry    |
//! | some         | the same                 | nothing                       |
//! | some         | same key, other contents | one write of the larger entry |
//! | some         | another key              | a delete and an insert        |
//!
//! The last row is the one that bills forget. A status that is an index key costs two writes there at
//! every step, on top of the write to the table, while a sparse index costs one to enter and one to
//! leave. A transaction doubles the table's units and leaves these as they are.

use serde_json::{Map, Value};

use crate::size::{NotAnItem, item_size};
use crate::units::{Units, write_units};

/// A secondary index, as far as its cost depends on it.
#[derive(Debug, Clone, Copy)]
pub struct Index<'a> {
    /// The table's key attributes. Every index carries them, so that an entry points at its item.
    pub table_key: &'a [&'a str],
    /// The index's own key attributes. An item that lacks one of them is not in the index.
    pub key: &'a [&'a str],
    /// What else the entry holds.
    pub projection: Projection<'a>,
}

/// Which attributes an index entry holds besides the two keys.
#[derive(Debug, Clone, Copy)]
pub enum Projection<'a> {
    /// None: the cheapest to keep, and an update of anything else costs nothing here.
    KeysOnly,
    /// These.
    Include(&'a [&'a str]),
    /// All: every write to the item is a write to the index too.
    All,
}

impl Index<'_> {
    /// The units this index consumes when an item goes from `old` to `new` (`None`: no item).
    ///
    /// Both are whole items in DynamoDB's JSON, as in [`item_size`].
    pub fn write_units(
        &self,
        old: Option<&Value>,
        new: Option<&Value>,
    ) -> Result<Units, NotAnItem> {
        let old = old.map(|item| self.entry(item)).transpose()?.flatten();
        let new = new.map(|item| self.entry(item)).transpose()?.flatten();
        Ok(match (old, new) {
            (None, None) => Units::ZERO,
            (Some(entry), None) | (None, Some(entry)) => write_units(0, entry.size),
            (Some(old), Some(new)) if old.attributes == new.attributes => Units::ZERO,
            (Some(old), Some(new)) if self.same_key(&old, &new) => write_units(old.size, new.size),
            (Some(old), Some(new)) => write_units(old.size, 0) + write_units(0, new.size),
        })
    }

    /// The size of the item's entry here, or `None` if it has none. What a query of this index reads.
    pub fn entry_size(&self, item: &Value) -> Result<Option<u64>, NotAnItem> {
        Ok(self.entry(item)?.map(|entry| entry.size))
    }

    fn entry(&self, item: &Value) -> Result<Option<Entry>, NotAnItem> {
        // Sized first, so that a malformed item is refused whatever the index shows of it.
        item_size(item)?;
        if self.key.iter().any(|name| item.get(*name).is_none()) {
            return Ok(None);
        }
        let attributes: Map<_, _> = item
            .as_object()
            .into_iter()
            .flatten()
            .filter(|(name, _)| self.shows(name))
            .map(|(name, value)| (name.clone(), in_set_order(value)))
            .collect();
        let attributes = Value::Object(attributes);
        let size = item_size(&attributes)?;
        Ok(Some(Entry { attributes, size }))
    }

    fn shows(&self, name: &str) -> bool {
        let projected = match self.projection {
            Projection::KeysOnly => false,
            Projection::Include(names) => names.contains(&name),
            Projection::All => true,
        };
        projected || self.key.contains(&name) || self.table_key.contains(&name)
    }

    fn same_key(&self, old: &Entry, new: &Entry) -> bool {
        let same = |name: &&str| old.attributes.get(*name) == new.attributes.get(*name);
        self.key.iter().all(same)
    }
}

/// What an index stores of one item.
struct Entry {
    attributes: Value,
    size: u64,
}

/// Sets have no order, so the same elements listed otherwise are no change and cost nothing.
fn in_set_order(value: &Value) -> Value {
    match value {
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(tag, content)| {
                    let mut content = in_set_order(content);
                    if let ("SS" | "NS" | "BS", Value::Array(elements)) =
                        (tag.as_str(), &mut content)
                    {
                        elements.sort_by(|a, b| a.as_str().cmp(&b.as_str()));
                    }
                    (tag.clone(), content)
                })
                .collect(),
        ),
        Value::Array(elements) => Value::Array(elements.iter().map(in_set_order).collect()),
        _ => value.clone(),
    }
}
