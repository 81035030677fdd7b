//! Create a folder. A file's entry is created when its first version is published: there is never a
//! file without content for others to see.

use crate::domain::{Actor, ChangeKind, Entry, EntryId, EntryStatus, Kind, check_id, check_name};
use crate::items::item_with;
use crate::namespace::{Committed, Draft, Parts, Taken, taken};
use crate::{FileSync, FileSyncError};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// It is there.
    Folder(Entry),
    /// The name belongs to something else.
    NameTaken(Taken),
}

/// How often it is decided again when a guest's way to the folder changed.
const ATTEMPTS: u32 = 20;

impl FileSync {
    /// Creates a folder.
    pub async fn create_folder(
        &self,
        actor: &Actor,
        device: &str,
        parent: &EntryId,
        name: &str,
    ) -> Result<Created, FileSyncError> {
        check_actor(actor)?;
        check_id("the device", device)?;
        check_name(name)?;
        let operation = self.cloud.ids().next("operation");
        let entry_id = EntryId(self.cloud.ids().next("entry"));
        for _ in 0..ATTEMPTS {
            let place = self.reach_place(actor, parent).await?;
            let seen = self.seen_or_read(actor, &place.owner, place.seen.clone());
            let seen = seen.await?;
            let entry = Entry {
                entry_id: entry_id.clone(),
                owner: place.owner.clone(),
                parent: parent.clone(),
                name: name.to_owned(),
                kind: Kind::Folder,
                status: EntryStatus::Live,
                version: 0,
                size: 0,
                fingerprint: None,
                children: 0,
                updated_at: self.now(),
                deleted_at: None,
            };
            let parts = Parts::default()
                .with("entry", self.put_entry(&actor.tenant, &entry)?)
                .with("name", self.claim_name(&actor.tenant, &entry)?)
                .with_some("folder", self.enter_folder(&actor.tenant, parent)?)
                .with_some("share", self.still_shared(&actor.tenant, &place.grant)?);
            let draft = Draft {
                kind: ChangeKind::Created,
                entry,
                device: device.to_owned(),
                operation: operation.clone(),
                moves: false,
                looked_up: place.grant.is_some(),
            };
            match self.commit(seen, &draft, parts).await? {
                Committed::Yes => return Ok(Created::Folder(draft.entry)),
                Committed::Refused(cancelled) => match taken(&cancelled)? {
                    // By this very call: an attempt of its own was made after all.
                    Some(taken) if taken.entry_id == entry_id => {
                        return Ok(Created::Folder(draft.entry));
                    }
                    Some(taken) => return Ok(Created::NameTaken(taken)),
                    None => {}
                },
                Committed::Rearranged => {}
            }
        }
        Err(FileSyncError::Contended)
    }

    /// A new entry. Its id is new, so there is nothing to guard against.
    pub(crate) fn put_entry(
        &self,
        tenant: &str,
        entry: &Entry,
    ) -> Result<aws_sdk_dynamodb::types::TransactWriteItem, cloud::CloudError> {
        let keys = [("tenant_shard", self.entry_shard(tenant, &entry.entry_id))];
        self.put("entries", item_with(entry, &keys)?)
    }
}

/// Checks who asks: both become parts of keys.
pub(crate) fn check_actor(actor: &Actor) -> Result<(), FileSyncError> {
    check_id("the tenant", &actor.tenant)?;
    check_id("the user", &actor.user)?;
    Ok(())
}
