//! Rename or move: the entry's item, its name's item and the folders' counts, in one transaction.
//! Content is not touched.

use crate::create_folder::check_actor;
use crate::domain::{
    Actor, BadInput, ChangeKind, Entry, EntryId, EntryStatus, Kind, check_id, check_name, folded,
};
use crate::namespace::{Committed, Draft, Parts, Taken, taken};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::CloudError;
use cloud::item::{n, s};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moved {
    /// It is there, under that name.
    Moved(Entry),
    /// The name belongs to something else.
    NameTaken(Taken),
    /// A folder cannot be put into itself, nor into what is in it.
    IntoItself,
    /// The folder is in somebody else's namespace.
    OtherOwner,
}

/// The entry is where it was and called what it was, and so is what its line of the feed tells.
const MOVE_GUARD: &str =
    "#status = :live AND #parent = :old_parent AND #name = :old_name AND #version = :version";
const MOVE_UPDATE: &str = "SET #parent = :parent, #name = :name, updated_at = :now";

/// How often it is decided again. Each time, somebody else changed the entry or a folder.
const ATTEMPTS: u32 = 100;

impl FileSync {
    /// Renames an entry, or moves it, or both.
    pub async fn rename_or_move(
        &self,
        actor: &Actor,
        device: &str,
        entry: &EntryId,
        parent: &EntryId,
        name: &str,
    ) -> Result<Moved, FileSyncError> {
        check_actor(actor)?;
        check_id("the device", device)?;
        check_name(name)?;
        if entry.is_root() {
            return Err(BadInput::Root("moved").into());
        }
        let operation = self.cloud.ids().next("operation");
        for _ in 0..ATTEMPTS {
            let reached = self.reach_to_write(actor, entry).await?;
            let was = reached.entry;
            if was.status != EntryStatus::Live {
                return Err(FileSyncError::NotFound("file or folder"));
            }
            if was.parent == *parent && was.name == name {
                return Ok(Moved::Moved(was));
            }
            let elsewhere = was.parent != *parent;
            let seen = self.seen_or_read(actor, &was.owner, reached.seen).await?;
            let mut place = None;
            // A guest needs the folder for a new name as well: which names are free there is known to
            // those who may see it.
            if elsewhere || reached.grant.is_some() {
                let to = self.reach_place(actor, parent).await?;
                if to.owner != was.owner {
                    return Ok(Moved::OtherOwner);
                }
                // The way up from there is true for as long as nothing goes to another folder: the
                // commit takes place only if nothing has since `seen` was read.
                if elsewhere && was.kind == Kind::Folder {
                    let way = self.way_up(&actor.tenant, parent).await?;
                    if way.iter().any(|above| above.entry_id == was.entry_id) {
                        return Ok(Moved::IntoItself);
                    }
                }
                place = Some(to);
            }
            let after = Entry {
                parent: parent.clone(),
                name: name.to_owned(),
                updated_at: self.now(),
                ..was.clone()
            };
            let tenant = &actor.tenant;
            let mut parts = Parts::default().with("entry", self.move_entry(tenant, &was, &after)?);
            parts = if !elsewhere && folded(&was.name) == folded(name) {
                parts.with("spelling", self.respell_name(tenant, &after)?)
            } else {
                parts
                    .with("released", self.release_name(tenant, &was)?)
                    .with("name", self.claim_name(tenant, &after)?)
            };
            if elsewhere {
                parts = parts
                    .with_some("left", self.leave_folder(tenant, &was.parent)?)
                    .with_some("folder", self.enter_folder(tenant, parent)?);
            }
            parts = parts.with_some("share", self.still_shared(tenant, &reached.grant)?);
            // A transaction names an item once: a second share is checked if it is another one.
            let other = place.and_then(|place| place.grant).filter(|share| {
                let same = |first: &crate::Share| first.entry_id == share.entry_id;
                !reached.grant.as_ref().is_some_and(same)
            });
            parts = parts.with_some("other share", self.still_shared(tenant, &other)?);
            let draft = Draft {
                kind: ChangeKind::Moved,
                looked_up: elsewhere && was.kind == Kind::Folder || reached.grant.is_some(),
                entry: after,
                device: device.to_owned(),
                operation: operation.clone(),
                moves: elsewhere,
            };
            match self.commit(seen, &draft, parts).await? {
                Committed::Yes => return Ok(Moved::Moved(draft.entry)),
                Committed::Refused(cancelled) => match taken(&cancelled)? {
                    // It has that name itself by now: by somebody else, or by an attempt of this call.
                    Some(taken) if taken.entry_id == *entry => {}
                    Some(taken) => return Ok(Moved::NameTaken(taken)),
                    None => {}
                },
                Committed::Rearranged => {}
            }
        }
        Err(FileSyncError::Contended)
    }

    fn move_entry(
        &self,
        tenant: &str,
        was: &Entry,
        after: &Entry,
    ) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, &was.entry_id)))
            .key("entry_id", s(was.entry_id.as_str()))
            .update_expression(MOVE_UPDATE)
            .condition_expression(MOVE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#parent", "parent")
            .expression_attribute_names("#name", "name")
            .expression_attribute_names("#version", "version")
            .expression_attribute_values(":live", s("LIVE"))
            .expression_attribute_values(":old_parent", s(was.parent.as_str()))
            .expression_attribute_values(":old_name", s(&was.name))
            .expression_attribute_values(":version", n(was.version))
            .expression_attribute_values(":parent", s(after.parent.as_str()))
            .expression_attribute_values(":name", s(&after.name))
            .expression_attribute_values(":now", n(after.updated_at))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}
