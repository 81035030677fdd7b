//! Names of what the suite creates: one prefix for everything, so that it can be found and removed.

use std::sync::Arc;

/// Puts the prefix of this cloud before the names that the archetypes use.
/// Archetype code says `auctions`; the account sees `archetypes-x7k2-auctions`.
#[derive(Clone, Debug)]
pub struct Names {
    prefix: Arc<str>,
}

impl Names {
    pub(crate) fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    /// The prefix itself, ending in a hyphen.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The real name of a table.
    pub fn table(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The real name of a queue.
    pub fn queue(&self, name: &str) -> String {
        self.table(name)
    }

    /// The real name of a bucket.
    pub fn bucket(&self, name: &str) -> String {
        self.table(name)
    }

    /// The real name of a Redis key or channel.
    pub fn key(&self, name: &str) -> String {
        self.table(name)
    }

    /// The name without the prefix, as archetypes and transcripts say it.
    pub fn logical<'a>(&self, real: &'a str) -> &'a str {
        real.strip_prefix(&*self.prefix).unwrap_or(real)
    }
}
