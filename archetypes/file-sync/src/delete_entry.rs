//! Delete an entry: a tombstone. The name is free, the versions stay, and can be restored until the
//! collector purges what was deleted long ago.

use crate::create_folder::check_actor;
use crate::domain::{Actor, BadInput, ChangeKind, Entry, EntryId, EntryStatus, Kind, check_id};
use crate::namespace::{Committed, Draft, Parts};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::CloudError;
use cloud::item::{n, s};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deletion {
    /// It is a tombstone now.
    Deleted(Entry),
    /// It was one already.
    Already,
    /// A folder with something in it.
    NotEmpty {
        /// How much.
        children: u64,
    },
    /// The file is not what whoever deletes it has seen: an edit that nobody looked at would go.
    Changed(Entry),
}

/// It is still what was looked at: the same version, the same name, and nothing in it. A folder that
/// went while something came into it would leave that nowhere.
const DELETE_GUARD: &str = "#status = :live AND #version = :version AND #parent = :parent \
     AND #name = :name AND children = :none";
const DELETE_UPDATE: &str = "SET #status = :deleted, updated_at = :now, deleted_at = :now";

/// How often it is decided again. Each time, somebody else changed the entry.
const ATTEMPTS: u32 = 100;

impl FileSync {
    /// Deletes a file or an empty folder; a file only if its head is `base_version`, when that is
    /// given.
    pub async fn delete_entry(
        &self,
        actor: &Actor,
        device: &str,
        entry: &EntryId,
        base_version: Option<u64>,
    ) -> Result<Deletion, FileSyncError> {
        check_actor(actor)?;
        check_id("the device", device)?;
        if entry.is_root() {
            return Err(BadInput::Root("deleted").into());
        }
        let operation = self.cloud.ids().next("operation");
        for _ in 0..ATTEMPTS {
            let reached = self.reach_to_write(actor, entry).await?;
            let was = reached.entry;
            if was.status != EntryStatus::Live {
                return Ok(Deletion::Already);
            }
            if was.kind == Kind::File && base_version.is_some_and(|base| base != was.version) {
                return Ok(Deletion::Changed(was));
            }
            if was.children > 0 {
                let children = was.children;
                return Ok(Deletion::NotEmpty { children });
            }
            let seen = self.seen_or_read(actor, &was.owner, reached.seen).await?;
            let now = self.now();
            let after = Entry {
                status: EntryStatus::Deleted,
                updated_at: now,
                deleted_at: Some(now),
                ..was.clone()
            };
            let tenant = &actor.tenant;
            let parts = Parts::default()
                .with("entry", self.bury(tenant, &after)?)
                .with("released", self.release_name(tenant, &was)?)
                .with_some("left", self.leave_folder(tenant, &was.parent)?)
                .with_some("share", self.still_shared(tenant, &reached.grant)?);
            let draft = Draft {
                kind: ChangeKind::Deleted,
                entry: after,
                device: device.to_owned(),
                operation: operation.clone(),
                moves: false,
                looked_up: reached.grant.is_some(),
            };
            if let Committed::Yes = self.commit(seen, &draft, parts).await? {
                return Ok(Deletion::Deleted(draft.entry));
            }
        }
        Err(FileSyncError::Contended)
    }

    fn bury(&self, tenant: &str, after: &Entry) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, &after.entry_id)))
            .key("entry_id", s(after.entry_id.as_str()))
            .update_expression(DELETE_UPDATE)
            .condition_expression(DELETE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#version", "version")
            .expression_attribute_names("#parent", "parent")
            .expression_attribute_names("#name", "name")
            .expression_attribute_values(":live", s("LIVE"))
            .expression_attribute_values(":deleted", s("DELETED"))
            .expression_attribute_values(":version", n(after.version))
            .expression_attribute_values(":parent", s(after.parent.as_str()))
            .expression_attribute_values(":name", s(&after.name))
            .expression_attribute_values(":none", n(0))
            .expression_attribute_values(":now", n(after.updated_at))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}
