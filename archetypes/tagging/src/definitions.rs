//! A memory of definitions, for those who attach: one read of a viral tag's definition for each attach
//! would make that one item as hot as the buckets were to be cold.
//!
//! An old definition does no harm here. Its B may be too small: then the row goes to a bucket that
//! readers look at anyway. The tag may have been merged: then the gate of the bucket says so, after the
//! attach. Readers never use it: a B that is too small would hide rows from them.

use crate::domain::{TagName, TenantId};
use crate::items::{TagDefinition, tag_key};
use crate::{Tagging, TaggingError};
use cloud::Millis;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// How many definitions are remembered before all are forgotten.
const ROOM: usize = 10_000;

/// What was read, and when.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    keep_for: Millis,
    known: Arc<Mutex<HashMap<String, (Millis, TagDefinition)>>>,
}

impl Tagging {
    /// The same service, with attaches that take a definition from memory for so long.
    pub fn remembering_definitions(self, keep_for: Millis) -> Self {
        let definitions = Definitions {
            keep_for,
            known: Arc::default(),
        };
        Self {
            definitions,
            ..self
        }
    }

    /// The tag that a name stands for, as it was not longer ago than allowed.
    pub(crate) async fn resolve_to_write(
        &self,
        tenant: &TenantId,
        name: &TagName,
    ) -> Result<TagDefinition, TaggingError> {
        let Definitions { keep_for, known } = &self.definitions;
        if *keep_for == 0 {
            return self.resolve(tenant, name).await;
        }
        let (now, key) = (self.now(), tag_key(tenant.as_str(), name.normalized()));
        let lock = || known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((read_at, definition)) = lock().get(&key)
            && now - read_at < *keep_for
        {
            return Ok(definition.clone());
        }
        let definition = self.resolve(tenant, name).await?;
        let mut known = lock();
        if known.len() >= ROOM {
            known.clear();
        }
        known.insert(key, (now, definition.clone()));
        Ok(definition)
    }
}
