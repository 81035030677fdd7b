//! Garbage collect: what no version reaches and no open upload relies on goes.
//!
//! The order of the reads is the whole argument. A collection
//!
//! 1. takes a new **epoch**. Its number is in the guard of all it writes, so an earlier collection that
//!    is still under way can write nothing any more;
//! 2. reads all upload sessions, and ends those whose time is over. Those that have ended *by now* are
//!    the **ended** ones. Whoever is not among them may still publish;
//! 3. purges what was deleted long ago;
//! 4. **marks**: reads all versions, then their manifests. A version that is not seen here is published
//!    later, hence by a session that is not among the ended;
//! 5. **sweeps**: a chunk that is not marked, and that only ended sessions pin, is condemned, if its pins
//!    are still exactly those. Whoever pins it afterwards finds it gone, and uploads it again.
//!
//! A chunk that a later version will rely on is pinned by its session before that session publishes, and
//! only a collection takes pins out, and only those of ended sessions. So at step 5 that pin is either
//! there, and the chunk stays, or not yet there, and will find no chunk.
//!
//! To be condemned is to lose the item and to get a line in `garbage`, in one transaction. The blob is
//! deleted after that. Its name is never used again, so there is nothing to lose there, however late
//! and however often that happens.

use crate::domain::{
    ChunkHash, ChunkRef, DELETED_KEPT, Entry, EntryStatus, FileVersion, SESSION_KEPT,
    SessionStatus, UploadSession, check_id,
};
use crate::items::{ContentChunk, version_key};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{
    AttributeValue, ConditionCheck, Delete, Put, ReturnValue, TransactWriteItem, Update,
};
use cloud::item::{all_items, from_item, n, s};
use cloud::{CloudError, Item, Millis, Transaction};
use std::collections::{BTreeSet, HashSet};

/// What a collection did or, in a dry run, would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collection {
    /// Whether nothing was written.
    pub dry_run: bool,
    /// Its number; 0 for a dry run.
    pub epoch: u64,
    /// How many chunks some version reaches.
    pub reachable: u64,
    /// How many chunks are kept only because an open upload relies on them.
    pub pinned: u64,
    /// The chunks that went.
    pub condemned: Vec<ChunkRef>,
    /// Uploads that took too long, and were ended.
    pub expired: Vec<String>,
    /// Files that were deleted long ago, and are gone now with all their versions.
    pub purged: Vec<crate::EntryId>,
    /// Objects that were deleted: blobs, staged uploads, manifests.
    pub objects: u64,
}

impl Collection {
    /// How many bytes the condemned chunks have.
    pub fn bytes(&self) -> u64 {
        self.condemned
            .iter()
            .map(|chunk| u64::from(chunk.length))
            .sum()
    }
}

/// This is the latest collection.
const EPOCH_GUARD: &str = "epoch = :epoch";

/// The session is still open, and nobody has given it more time since its time was read.
const EXPIRE_GUARD: &str = "#status = :open AND expires_at = :seen";
const EXPIRE_UPDATE: &str = "SET #status = :expired REMOVE resume_key";

/// The chunk's pins are those that were looked at, all of ended sessions.
const PINS_GUARD: &str = "pins = :pins";
const UNPINNED_GUARD: &str = "attribute_not_exists(pins)";
const UNPIN_UPDATE: &str = "DELETE pins :ended";

/// Still the tombstone that was looked at: nobody has restored it, for only a tombstone says when.
const PURGE_GUARD: &str = "deleted_at = :seen";
const PURGE_UPDATE: &str = "SET #status = :purged";

impl FileSync {
    /// Collects one tenant's garbage. A dry run says what would happen now, and writes nothing.
    pub async fn garbage_collect(
        &self,
        tenant: &str,
        dry_run: bool,
    ) -> Result<Collection, FileSyncError> {
        let (mut done, gone) = self.condemn_unneeded(tenant, dry_run).await?;
        if !dry_run {
            self.clear_away(tenant, &gone, &mut done).await?;
        }
        Ok(done)
    }

    /// The half of a collection that decides: afterwards no item names what nobody needs. Gives the
    /// sessions that have ended and pin nothing any more, as they were read.
    pub async fn condemn_unneeded(
        &self,
        tenant: &str,
        dry_run: bool,
    ) -> Result<(Collection, Vec<UploadSession>), FileSyncError> {
        check_id("the tenant", tenant)?;
        let now = self.now();
        let mut done = Collection {
            dry_run,
            ..Collection::default()
        };
        if !dry_run {
            done.epoch = self.new_epoch(tenant).await?;
        }
        let mut sessions = self.sessions(tenant).await?;
        let ended = self.end_sessions(tenant, &sessions, now, &mut done).await?;
        self.purge(tenant, now, &mut done).await?;
        let marked = self.mark(tenant, &done).await?;
        let still_pinned = self.sweep(tenant, &ended, &marked, &mut done).await?;
        sessions.retain(|session| {
            let id = &session.session_id;
            ended.contains(id) && !still_pinned.contains(id)
        });
        Ok((done, sessions))
    }

    /// The half that only clears away: objects that nothing names, whenever and however often.
    pub async fn clear_away(
        &self,
        tenant: &str,
        ended: &[UploadSession],
        done: &mut Collection,
    ) -> Result<(), FileSyncError> {
        self.empty(tenant, done).await?;
        for session in ended {
            self.tidy(tenant, session, self.now(), done).await?;
        }
        Ok(())
    }

    /// Counts the epoch up. No guard: whoever comes later has the higher number, and that is all.
    async fn new_epoch(&self, tenant: &str) -> Result<u64, FileSyncError> {
        let counted = self
            .dynamodb()
            .update_item()
            .table_name(self.table("collections"))
            .key("tenant", s(tenant))
            .update_expression("ADD epoch :one")
            .expression_attribute_values(":one", n(1))
            .return_values(ReturnValue::UpdatedNew)
            .send()
            .await
            .map_err(CloudError::from)?;
        let epoch = counted.attributes.and_then(|mut new| new.remove("epoch"));
        let epoch = epoch.and_then(|epoch| epoch.as_n().ok()?.parse().ok());
        Ok(epoch.ok_or_else(|| CloudError::Corrupt("an epoch is no number".into()))?)
    }

    async fn sessions(&self, tenant: &str) -> Result<Vec<UploadSession>, CloudError> {
        let mut sessions = Vec::new();
        for shard in 0..self.shards.sessions {
            for item in self.of_shard("upload_sessions", tenant, shard).await? {
                sessions.push(from_item(&item)?);
            }
        }
        Ok(sessions)
    }

    /// All items of a shard. Consistent: what is not seen here is taken for not there.
    async fn of_shard(
        &self,
        table: &str,
        tenant: &str,
        shard: u32,
    ) -> Result<Vec<Item>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table(table))
            .key_condition_expression("tenant_shard = :shard")
            .expression_attribute_values(":shard", s(format!("{tenant}#{shard}")))
            .consistent_read(true);
        all_items(query).await
    }

    /// Ends what took too long. Gives the sessions that have ended by now.
    async fn end_sessions(
        &self,
        tenant: &str,
        sessions: &[UploadSession],
        now: Millis,
        done: &mut Collection,
    ) -> Result<BTreeSet<String>, FileSyncError> {
        let mut ended = BTreeSet::new();
        for session in sessions {
            let open = session.status == SessionStatus::Open;
            if open && session.expires_at > now {
                continue;
            }
            if open {
                if !done.dry_run && !self.expire(tenant, session, done.epoch).await? {
                    continue;
                }
                done.expired.push(session.session_id.clone());
            }
            ended.insert(session.session_id.clone());
        }
        Ok(ended)
    }

    async fn expire(
        &self,
        tenant: &str,
        session: &UploadSession,
        epoch: u64,
    ) -> Result<bool, FileSyncError> {
        let update = Update::builder()
            .table_name(self.table("upload_sessions"))
            .key(
                "tenant_shard",
                s(self.session_shard(tenant, &session.session_id)),
            )
            .key("session_id", s(&session.session_id))
            .update_expression(EXPIRE_UPDATE)
            .condition_expression(EXPIRE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":expired", s("EXPIRED"))
            .expression_attribute_values(":seen", n(session.expires_at))
            .build()
            .map_err(CloudError::bug)?;
        let update = TransactWriteItem::builder().update(update).build();
        let failed = self.fenced(tenant, epoch, vec![update]).await?;
        Ok(failed.is_empty())
    }

    /// Writes, if this is still the latest collection. Gives the places whose condition was false: then
    /// nothing was written.
    async fn fenced(
        &self,
        tenant: &str,
        epoch: u64,
        items: Vec<TransactWriteItem>,
    ) -> Result<Vec<usize>, FileSyncError> {
        let check = ConditionCheck::builder()
            .table_name(self.table("collections"))
            .key("tenant", s(tenant))
            .condition_expression(EPOCH_GUARD)
            .expression_attribute_values(":epoch", n(epoch))
            .build()
            .map_err(CloudError::bug)?;
        let mut all = vec![TransactWriteItem::builder().condition_check(check).build()];
        all.extend(items);
        match self.transact_in_turn(&["epoch", "item"], all).await? {
            Transaction::Committed(_) => Ok(Vec::new()),
            Transaction::Cancelled(cancelled) if cancelled.failed("epoch").is_some() => {
                Err(FileSyncError::Superseded)
            }
            // The epoch has the first place.
            Transaction::Cancelled(cancelled) => {
                Ok(cancelled.places.iter().map(|place| place - 1).collect())
            }
        }
    }

    /// Removes what was deleted long ago. First the entry is PURGED, so that nobody restores it; then its
    /// manifests and versions go, then itself. Whoever died on the way is followed by the next.
    async fn purge(
        &self,
        tenant: &str,
        now: Millis,
        done: &mut Collection,
    ) -> Result<(), FileSyncError> {
        for shard in 0..self.shards.entries {
            for item in self.of_shard("entries", tenant, shard).await? {
                let entry: Entry = from_item(&item)?;
                let old = entry.deleted_at.is_some_and(|at| at + DELETED_KEPT <= now);
                match entry.status {
                    EntryStatus::Purged => {}
                    EntryStatus::Deleted if old => {
                        if !done.dry_run && !self.make_purged(tenant, &entry, done.epoch).await? {
                            continue;
                        }
                    }
                    _ => continue,
                }
                if !done.dry_run {
                    done.objects += self.remove_versions(tenant, &entry).await?;
                }
                done.purged.push(entry.entry_id);
            }
        }
        Ok(())
    }

    /// Fenced, too: what an earlier collection purges is purged before this one looks at entries, so no
    /// manifest goes that this one still wants to read.
    async fn make_purged(
        &self,
        tenant: &str,
        entry: &Entry,
        epoch: u64,
    ) -> Result<bool, FileSyncError> {
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, &entry.entry_id)))
            .key("entry_id", s(entry.entry_id.as_str()))
            .update_expression(PURGE_UPDATE)
            .condition_expression(PURGE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":purged", s("PURGED"))
            .expression_attribute_values(":seen", n(entry.deleted_at.unwrap_or_default()))
            .build()
            .map_err(CloudError::bug)?;
        let update = TransactWriteItem::builder().update(update).build();
        let failed = self.fenced(tenant, epoch, vec![update]).await?;
        Ok(failed.is_empty())
    }

    /// No guards: nobody writes to a purged entry, and whoever else purges it does the same.
    async fn remove_versions(&self, tenant: &str, entry: &Entry) -> Result<u64, FileSyncError> {
        let versions = self.read_versions(tenant, &entry.entry_id).await?;
        let manifests: BTreeSet<_> = versions
            .iter()
            .map(|one| one.manifest_key.clone())
            .collect();
        let objects = manifests.len() as u64;
        self.delete_objects(manifests.into_iter().collect()).await?;
        let shard = self.entry_shard(tenant, &entry.entry_id);
        for version in &versions {
            self.dynamodb()
                .delete_item()
                .table_name(self.table("versions"))
                .key("tenant_shard", s(&shard))
                .key(
                    "version_key",
                    s(version_key(&entry.entry_id, version.version)),
                )
                .send()
                .await
                .map_err(CloudError::from)?;
        }
        self.dynamodb()
            .delete_item()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(&shard))
            .key("entry_id", s(entry.entry_id.as_str()))
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(objects)
    }

    /// Every chunk that some version reaches. A manifest that cannot be read ends the collection: what it
    /// lists is not known, and nothing is deleted on a guess.
    async fn mark(
        &self,
        tenant: &str,
        done: &Collection,
    ) -> Result<HashSet<ChunkHash>, FileSyncError> {
        let purged: HashSet<_> = done.purged.iter().collect();
        let mut read = HashSet::new();
        let mut marked = HashSet::new();
        for shard in 0..self.shards.entries {
            for item in self.of_shard("versions", tenant, shard).await? {
                let version: FileVersion = from_item(&item)?;
                if purged.contains(&version.entry_id) || !read.insert(version.manifest_key.clone())
                {
                    continue;
                }
                let manifest = self
                    .read_manifest(&version.manifest_key, &version.manifest_hash)
                    .await?;
                marked.extend(manifest.chunks.iter().map(|chunk| chunk.hash));
            }
        }
        Ok(marked)
    }

    /// Condemns what is not marked and not held; takes the pins of ended sessions out of the rest. Gives
    /// the sessions whose pins could not be taken out this time.
    async fn sweep(
        &self,
        tenant: &str,
        ended: &BTreeSet<String>,
        marked: &HashSet<ChunkHash>,
        done: &mut Collection,
    ) -> Result<BTreeSet<String>, FileSyncError> {
        let mut still_pinned = BTreeSet::new();
        for shard in 0..self.shards.chunks {
            let (mut condemn, mut unpin) = (Vec::new(), Vec::new());
            for item in self.of_shard("chunks", tenant, shard).await? {
                let chunk = ContentChunk::read(&item)?;
                let held = chunk.pins.iter().any(|pin| !ended.contains(pin));
                let reached = marked.contains(&chunk.hash);
                done.reachable += u64::from(reached);
                done.pinned += u64::from(held && !reached);
                match reached || held {
                    false => condemn.push(chunk),
                    true if chunk.pins.iter().any(|pin| ended.contains(pin)) => unpin.push(chunk),
                    true => {}
                }
            }
            if done.dry_run {
                done.condemned.extend(condemn.iter().map(reference));
                continue;
            }
            for chunks in condemn.chunks(AT_ONCE / 2) {
                let kept = self.condemn(tenant, chunks.to_vec(), done).await?;
                still_pinned.extend(kept.into_iter().flat_map(|chunk| chunk.pins));
            }
            for chunks in unpin.chunks(AT_ONCE) {
                self.unpin(tenant, chunks, ended, done.epoch).await?;
            }
        }
        Ok(still_pinned)
    }

    /// Condemns these, each if its pins are still those that were read. Gives those that were pinned
    /// again meanwhile.
    async fn condemn(
        &self,
        tenant: &str,
        mut chunks: Vec<ContentChunk>,
        done: &mut Collection,
    ) -> Result<Vec<ContentChunk>, FileSyncError> {
        let mut kept = Vec::new();
        while !chunks.is_empty() {
            let mut items = Vec::new();
            for chunk in &chunks {
                items.push(self.forget(tenant, chunk)?);
                items.push(self.throw_away(tenant, chunk, done.epoch)?);
            }
            let failed = self.fenced(tenant, done.epoch, items).await?;
            if failed.is_empty() {
                done.condemned.extend(chunks.iter().map(reference));
                break;
            }
            let mut at = 0;
            chunks.retain(|chunk| {
                let again = failed.contains(&(2 * at));
                at += 1;
                if again {
                    kept.push(chunk.clone());
                }
                !again
            });
        }
        Ok(kept)
    }

    fn forget(&self, tenant: &str, chunk: &ContentChunk) -> Result<TransactWriteItem, CloudError> {
        let delete = Delete::builder()
            .table_name(self.table("chunks"))
            .key("tenant_shard", s(self.chunk_shard(tenant, &chunk.hash)))
            .key("hash", s(chunk.hash.to_string()));
        let delete = if chunk.pins.is_empty() {
            delete.condition_expression(UNPINNED_GUARD)
        } else {
            let pins = chunk.pins.iter().cloned().collect();
            delete
                .condition_expression(PINS_GUARD)
                .expression_attribute_values(":pins", AttributeValue::Ss(pins))
        };
        let delete = delete.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    fn throw_away(
        &self,
        tenant: &str,
        chunk: &ContentChunk,
        epoch: u64,
    ) -> Result<TransactWriteItem, CloudError> {
        let put = Put::builder()
            .table_name(self.table("garbage"))
            .item("tenant", s(tenant))
            .item("blob_key", s(&chunk.blob_key))
            .item("epoch", n(epoch))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    async fn unpin(
        &self,
        tenant: &str,
        chunks: &[ContentChunk],
        ended: &BTreeSet<String>,
        epoch: u64,
    ) -> Result<(), FileSyncError> {
        let mut items = Vec::new();
        for chunk in chunks {
            let pins = chunk.pins.intersection(ended).cloned().collect();
            let update = Update::builder()
                .table_name(self.table("chunks"))
                .key("tenant_shard", s(self.chunk_shard(tenant, &chunk.hash)))
                .key("hash", s(chunk.hash.to_string()))
                .update_expression(UNPIN_UPDATE)
                .expression_attribute_values(":ended", AttributeValue::Ss(pins))
                .build()
                .map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
        }
        self.fenced(tenant, epoch, items).await?;
        Ok(())
    }

    /// Deletes the blobs that nothing names any more, whoever condemned them.
    async fn empty(&self, tenant: &str, done: &mut Collection) -> Result<(), FileSyncError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("garbage"))
            .key_condition_expression("tenant = :tenant")
            .expression_attribute_values(":tenant", s(tenant))
            .consistent_read(true);
        for item in all_items(query).await? {
            let Some(Ok(blob_key)) = item.get("blob_key").map(AttributeValue::as_s) else {
                continue;
            };
            self.delete_object(blob_key).await?;
            self.dynamodb()
                .delete_item()
                .table_name(self.table("garbage"))
                .key("tenant", s(tenant))
                .key("blob_key", s(blob_key))
                .send()
                .await
                .map_err(CloudError::from)?;
            done.objects += 1;
        }
        Ok(())
    }

    /// Removes what an ended session leaves behind: staged bytes, blobs that never became a chunk's and,
    /// if it was not published, its manifest. Then, once nobody asks any more, itself.
    async fn tidy(
        &self,
        tenant: &str,
        session: &UploadSession,
        now: Millis,
        done: &mut Collection,
    ) -> Result<(), FileSyncError> {
        let id = &session.session_id;
        let published = session.status == SessionStatus::Published;
        if published && session.published_at.unwrap_or(now) + SESSION_KEPT > now {
            return Ok(());
        }
        let mut gone = self
            .objects_under(&format!("{tenant}/staging/{id}/"))
            .await?;
        let blobs = self.objects_under(&format!("{tenant}/blobs/{id}/")).await?;
        let hash = |key: &String| ChunkHash::from_key(key.rsplit('/').next()?);
        let hashes: Vec<_> = blobs.iter().filter_map(hash).collect();
        let chunks = self.read_chunks(tenant, &hashes).await?;
        let named: HashSet<_> = chunks.values().map(|chunk| &chunk.blob_key).collect();
        gone.extend(blobs.into_iter().filter(|blob| !named.contains(blob)));
        done.objects += gone.len() as u64;
        if !published {
            gone.push(session.manifest_key.clone());
            // It is open in what was read: ended just now, hence not tidied before.
            done.objects += u64::from(session.status == SessionStatus::Open);
        }
        self.delete_objects(gone).await?;
        // An address that was handed out shortly before the end still takes bytes, and somebody slow may
        // still write a blob: the session is remembered until that is over, and all is removed again.
        if !published && session.expires_at + SESSION_KEPT > now {
            return Ok(());
        }
        let delete = Delete::builder()
            .table_name(self.table("upload_sessions"))
            .key("tenant_shard", s(self.session_shard(tenant, id)))
            .key("session_id", s(id))
            .build()
            .map_err(CloudError::bug)?;
        let delete = TransactWriteItem::builder().delete(delete).build();
        self.fenced(tenant, done.epoch, vec![delete]).await?;
        Ok(())
    }

    async fn objects_under(&self, prefix: &str) -> Result<Vec<String>, CloudError> {
        let list = self.cloud.s3().list_objects_v2().bucket(self.bucket());
        let mut pages = list.prefix(prefix).into_paginator().send();
        let mut keys = Vec::new();
        while let Some(page) = pages.next().await {
            keys.extend(page?.contents().iter().filter_map(|one| one.key.clone()));
        }
        Ok(keys)
    }
}

/// Chunks in one transaction: a hundred items, one of them the epoch.
const AT_ONCE: usize = 98;

fn reference(chunk: &ContentChunk) -> ChunkRef {
    ChunkRef {
        hash: chunk.hash,
        length: chunk.length,
    }
}
