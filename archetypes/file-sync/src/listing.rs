//! Looking: a folder's entries, one entry, a file's history.

use crate::create_folder::check_actor;
use crate::domain::{Actor, Entry, EntryId, EntryStatus, FileVersion, Kind};
use crate::items::folder_key;
use crate::namespace::NameRow;
use crate::{FileSync, FileSyncError};
use cloud::item::{all_items, from_item, s};
use std::collections::HashMap;

impl FileSync {
    /// What is in a folder, by name.
    pub async fn list(&self, actor: &Actor, folder: &EntryId) -> Result<Vec<Entry>, FileSyncError> {
        check_actor(actor)?;
        let mut owner = actor.user.clone();
        if !folder.is_root() {
            let reached = self.reach(actor, folder).await?.entry;
            if reached.kind != Kind::Folder || reached.status != EntryStatus::Live {
                return Err(FileSyncError::NotFound("folder"));
            }
            owner = reached.owner;
        }
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("names"))
            .key_condition_expression("folder = :folder")
            .expression_attribute_values(":folder", s(folder_key(&actor.tenant, &owner, folder)))
            .consistent_read(true);
        let mut ids = Vec::new();
        for item in all_items(query).await? {
            let row: NameRow = from_item(&item)?;
            ids.push(row.entry_id);
        }
        let entries = self.read_entries(&actor.tenant, &ids).await?;
        let mut entries: HashMap<_, _> = entries
            .into_iter()
            .map(|entry| (entry.entry_id.clone(), entry))
            .collect();
        let each = ids.iter().filter_map(|id| entries.remove(id));
        // Between the two reads it may have gone elsewhere.
        let here = |entry: &Entry| entry.status == EntryStatus::Live && entry.parent == *folder;
        Ok(each.filter(here).collect())
    }

    /// One entry; a tombstone, too.
    pub async fn view_entry(&self, actor: &Actor, entry: &EntryId) -> Result<Entry, FileSyncError> {
        check_actor(actor)?;
        Ok(self.reach(actor, entry).await?.entry)
    }

    /// A file's versions, the newest first. A tombstone has its versions still.
    pub async fn log(
        &self,
        actor: &Actor,
        entry: &EntryId,
    ) -> Result<Vec<FileVersion>, FileSyncError> {
        check_actor(actor)?;
        let entry = self.reach(actor, entry).await?.entry;
        let mut versions = self.read_versions(&actor.tenant, &entry.entry_id).await?;
        versions.reverse();
        Ok(versions)
    }
}
