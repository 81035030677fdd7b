//! Restore a version: a new version with the old one's content. Nothing is undone, so nothing is lost.
//! A deleted file comes back with it, into its folder if that is still there, else to the top, under its
//! name if that is still free.

use crate::create_folder::check_actor;
use crate::domain::{
    Actor, ChangeKind, Entry, EntryId, EntryStatus, FileVersion, check_id, conflict_name,
};
use crate::namespace::{Committed, Draft, Parts, taken};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::CloudError;
use cloud::item::{n, s};

/// The entry is what it was when it was looked at: in particular not purged, for then its versions are
/// going.
const RESTORE_GUARD: &str =
    "#status = :status AND #version = :version AND #parent = :parent AND #name = :name";
const RESTORE_UPDATE: &str = "SET #status = :live, #version = :next, #size = :size, \
     fingerprint = :fingerprint, #parent = :new_parent, #name = :new_name, updated_at = :now \
     REMOVE deleted_at";

/// How often it is decided again. Each time, somebody else changed the entry.
const ATTEMPTS: u32 = 100;

impl FileSync {
    /// Makes an older version the head again, as a new version. Gives the entry afterwards.
    pub async fn restore_version(
        &self,
        actor: &Actor,
        device: &str,
        entry: &EntryId,
        version: u64,
    ) -> Result<Entry, FileSyncError> {
        check_actor(actor)?;
        check_id("the device", device)?;
        let operation = self.cloud.ids().next("operation");
        let mut names = 0;
        let mut to_the_top = false;
        for _ in 0..ATTEMPTS {
            let reached = self.reach_to_write(actor, entry).await?;
            let was = reached.entry;
            let old = self.read_version(&actor.tenant, entry, version).await?;
            let old = old.ok_or(FileSyncError::NotFound("version"))?;
            let deleted = was.status == EntryStatus::Deleted;
            if !deleted && was.version == version {
                return Ok(was);
            }
            // A guest brings back what was in a folder they may write to. Elsewhere they would learn
            // which names are taken, or write to where they see nothing.
            let mut grant = reached.grant;
            if deleted && grant.is_some() {
                let place = self.reach_place(actor, &was.parent).await?;
                if place.owner != was.owner {
                    return Err(FileSyncError::NotFound("folder"));
                }
                grant = place.grant;
            }
            let seen = self.seen_or_read(actor, &was.owner, reached.seen).await?;
            let now = self.now();
            let mut after = Entry {
                status: EntryStatus::Live,
                version: was.version + 1,
                size: old.size,
                fingerprint: Some(old.fingerprint),
                updated_at: now,
                deleted_at: None,
                ..was.clone()
            };
            // Only what takes a place and a name anew may get another: somebody else may have brought it
            // back meanwhile, and then it has both.
            if deleted && to_the_top {
                after.parent = EntryId::root();
            }
            if deleted && names > 0 {
                after.name = conflict_name(&was.name, device, names);
            }
            let tenant = &actor.tenant;
            let restored = FileVersion {
                version: after.version,
                created_at: now,
                created_by: actor.user.clone(),
                device: device.to_owned(),
                session_id: None,
                restored_from: Some(version),
                ..old
            };
            let mut parts = Parts::default()
                .with("version", self.put_version(tenant, &restored)?)
                .with("entry", self.revive(tenant, &was, &after)?);
            if deleted {
                parts = parts
                    .with("name", self.claim_name(tenant, &after)?)
                    .with_some("folder", self.enter_folder(tenant, &after.parent)?);
            }
            parts = parts.with_some("share", self.still_shared(tenant, &grant)?);
            let draft = Draft {
                kind: ChangeKind::Restored,
                moves: after.parent != was.parent,
                entry: after,
                device: device.to_owned(),
                operation: operation.clone(),
                looked_up: grant.is_some(),
            };
            match self.commit(seen, &draft, parts).await? {
                Committed::Yes => return Ok(draft.entry),
                Committed::Refused(cancelled) if cancelled.failed("folder").is_some() => {
                    // Not for guests: they find out above.
                    to_the_top = grant.is_none();
                }
                Committed::Refused(cancelled) => {
                    names += u32::from(taken(&cancelled)?.is_some());
                }
                Committed::Rearranged => {}
            }
        }
        Err(FileSyncError::Contended)
    }

    fn revive(
        &self,
        tenant: &str,
        was: &Entry,
        after: &Entry,
    ) -> Result<TransactWriteItem, CloudError> {
        let status = match was.status {
            EntryStatus::Live => "LIVE",
            _ => "DELETED",
        };
        let fingerprint = after.fingerprint.map(|hash| hash.to_string());
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, &was.entry_id)))
            .key("entry_id", s(was.entry_id.as_str()))
            .update_expression(RESTORE_UPDATE)
            .condition_expression(RESTORE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#version", "version")
            .expression_attribute_names("#parent", "parent")
            .expression_attribute_names("#name", "name")
            .expression_attribute_names("#size", "size")
            .expression_attribute_values(":status", s(status))
            .expression_attribute_values(":live", s("LIVE"))
            .expression_attribute_values(":version", n(was.version))
            .expression_attribute_values(":parent", s(was.parent.as_str()))
            .expression_attribute_values(":name", s(&was.name))
            .expression_attribute_values(":next", n(after.version))
            .expression_attribute_values(":size", n(after.size))
            .expression_attribute_values(":fingerprint", s(fingerprint.unwrap_or_default()))
            .expression_attribute_values(":new_parent", s(after.parent.as_str()))
            .expression_attribute_values(":new_name", s(&after.name))
            .expression_attribute_values(":now", n(after.updated_at))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}
