//! The store's tree, as its change feed tells it, seen from the folder that is synced.

use super::{Device, SyncError};
use crate::domain::{Change, Entry, EntryId, EntryStatus, Kind};
use crate::local::state::RemoteEntry;
use crate::local::{BadPath, DeviceState, RelPath};
use std::collections::{BTreeMap, HashMap};

/// The store's entries by path, and those that cannot have one here.
#[derive(Debug, Default)]
pub struct Tree {
    /// By path.
    pub by_path: BTreeMap<RelPath, EntryId>,
    /// What cannot be here, and why.
    pub problems: Vec<(String, BadPath)>,
}

impl DeviceState {
    /// Takes in one change. Changes come in order, and the same may come again.
    pub fn take_in(&mut self, change: &Change) {
        self.entry_is(&change.entry);
        self.cursor = self.cursor.max(change.sequence);
    }

    /// An entry is now like this.
    pub fn entry_is(&mut self, entry: &Entry) {
        let id = entry.entry_id.clone();
        match entry.status {
            EntryStatus::Live => self.entries.insert(id, RemoteEntry::from(entry)),
            EntryStatus::Deleted | EntryStatus::Purged => self.entries.remove(&id),
        };
    }

    /// The tree below the folder that is synced.
    pub fn tree(&self) -> Tree {
        let mut children: HashMap<&EntryId, Vec<(&EntryId, &RemoteEntry)>> = HashMap::new();
        for (id, entry) in &self.entries {
            children.entry(&entry.parent).or_default().push((id, entry));
        }
        let mut tree = Tree::default();
        let mut waiting: Vec<(Option<RelPath>, &EntryId)> = vec![(None, &self.root)];
        while let Some((path, folder)) = waiting.pop() {
            // Taken out, so that a circle, which no store should have, ends.
            for (id, entry) in children.remove(folder).unwrap_or_default() {
                match RelPath::within(path.as_ref(), &entry.name) {
                    Ok(below) => {
                        if entry.kind == Kind::Folder {
                            waiting.push((Some(below.clone()), id));
                        }
                        tree.by_path.insert(below, id.clone());
                    }
                    Err(bad) => tree.problems.push((entry.name.clone(), bad)),
                }
            }
        }
        tree
    }

    /// What the store has at a path.
    pub fn there(&self, tree: &Tree, path: &RelPath) -> Option<(EntryId, RemoteEntry)> {
        let id = tree.by_path.get(path)?;
        Some((id.clone(), self.entries.get(id)?.clone()))
    }

    /// What is in a folder of the store under this name.
    pub fn child(&self, folder: &EntryId, name: &str) -> Option<(&EntryId, &RemoteEntry)> {
        let found =
            |(_, entry): &(&EntryId, &RemoteEntry)| entry.parent == *folder && entry.name == name;
        self.entries.iter().find(found)
    }
}

impl Device {
    /// Reads the changes to their end. Only then is the tree one that really was.
    pub(super) async fn read_changes(&mut self) -> Result<(), SyncError> {
        loop {
            let cursor = self.state.cursor;
            let page = self
                .retry(|| self.store.changes(&self.actor, &self.state.device, cursor))
                .await?;
            for change in &page.changes {
                self.state.take_in(change);
            }
            self.state.cursor = self.state.cursor.max(page.cursor);
            if !page.more {
                return Ok(());
            }
        }
    }
}
