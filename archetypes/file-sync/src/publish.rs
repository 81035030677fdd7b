//! Publish: build the version from its manifest, and advance the head to it.
//!
//! The documents' `UpdateItem head → new version` loses an edit when two devices began with the same
//! version. Here the head moves only from the version the edit began with; if it has moved on, the
//! edit becomes a file of its own beside the other, a conflict copy. Version, head, the end of the
//! session and the line of the feed are one transaction: whoever is told "published" finds it in the
//! head, in the history, or in a copy.

use crate::access::Place;
use crate::create_folder::check_actor;
use crate::domain::{
    Actor, BadInput, ChangeKind, ChunkRef, Entry, EntryId, EntryStatus, FileVersion, Kind,
    Manifest, SessionStatus, Target, UploadSession, check_name, conflict_name,
};
use crate::items::{item_with, version_key};
use crate::namespace::{Committed, Draft, Parts, Taken, taken};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use cloud::item::{n, s};
use cloud::{CloudError, Millis};

/// What became of an upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Publication {
    /// It is the head now, or was when it was first published.
    Published {
        /// The file.
        entry: Entry,
        /// Which version of it this is.
        version: u64,
    },
    /// Somebody else's edit, or deletion, came first: this is a file of its own now.
    ConflictCopy {
        /// The copy.
        entry: Entry,
        /// The file it was an edit of.
        of: EntryId,
    },
    /// A new file, but the name belongs to something else.
    NameTaken(Taken),
    /// Chunks are not there yet.
    Incomplete {
        /// Which ones.
        missing: Vec<ChunkRef>,
    },
    /// The session was ended; nothing of it holds. Start again.
    Expired,
    /// This session has been published already, as something else.
    UsedFor(String),
}

/// A session is published once, and only while its pins hold.
const SESSION_GUARD: &str = "#status = :open";
const SESSION_UPDATE: &str = "SET #status = :published, #target = :target, \
     published_entry = :entry, published_version = :version, as_copy = :as_copy, \
     published_at = :now REMOVE resume_key";

/// The head is still the version that the edit began with. Name and folder stand here because the
/// line of the feed tells them: it must not tell what is no longer so.
const HEAD_GUARD: &str =
    "#version = :base AND #status = :live AND #parent = :parent AND #name = :name";
const HEAD_UPDATE: &str =
    "SET #version = :next, #size = :size, fingerprint = :fingerprint, updated_at = :now";

/// How often it is decided again. Each time, somebody else changed the entry.
const ATTEMPTS: u32 = 200;

impl FileSync {
    /// Publishes an upload. Sent again, it gets the outcome that it had.
    pub async fn publish(
        &self,
        actor: &Actor,
        session_id: &str,
        target: &Target,
    ) -> Result<Publication, FileSyncError> {
        check_actor(actor)?;
        if let Target::New { name, .. } = target {
            check_name(name)?;
        }
        let mut session = self.own_session(actor, session_id).await?;
        if let Some(before) = self.before(actor, &session, target).await? {
            return Ok(before);
        }
        let missing = match self
            .read_manifest(&session.manifest_key, &session.manifest_hash)
            .await
        {
            Ok(manifest) => self.unpinned(actor, &session, &manifest).await,
            Err(fault) => Err(fault.into()),
        };
        if !matches!(&missing, Ok(missing) if missing.is_empty()) {
            // Something is not there. Perhaps because a collection has ended the session meanwhile.
            session = self.own_session(actor, session_id).await?;
            if let Some(before) = self.before(actor, &session, target).await? {
                return Ok(before);
            }
            let missing = missing?;
            return Ok(Publication::Incomplete { missing });
        }
        // What this session pins stays as long as it is open. The transaction says that it is.
        let mut copies = 1;
        for _ in 0..ATTEMPTS {
            let tried = match target {
                Target::New { parent, name } => {
                    let place = self.reach_place(actor, parent).await?;
                    self.publish_new(actor, &session, target, place, name, None)
                        .await?
                }
                Target::Existing {
                    entry,
                    base_version,
                } => {
                    let base = *base_version;
                    self.publish_edit(actor, &session, target, entry, base, copies)
                        .await?
                }
            };
            match tried {
                Tried::Done(publication) => return Ok(*publication),
                Tried::Again => {}
                Tried::NextName => copies += 1,
                Tried::SessionEnded => {
                    session = self.own_session(actor, session_id).await?;
                    if let Some(before) = self.before(actor, &session, target).await? {
                        return Ok(before);
                    }
                }
            }
        }
        Err(FileSyncError::Contended)
    }

    /// What became of a session that is no longer open.
    async fn before(
        &self,
        actor: &Actor,
        session: &UploadSession,
        target: &Target,
    ) -> Result<Option<Publication>, FileSyncError> {
        match session.status {
            SessionStatus::Open => return Ok(None),
            SessionStatus::Expired => return Ok(Some(Publication::Expired)),
            SessionStatus::Published => {}
        }
        let was = session.target.clone().unwrap_or_default();
        if was != target.to_string() {
            return Ok(Some(Publication::UsedFor(was)));
        }
        let (Some(id), Some(version)) = (&session.published_entry, session.published_version)
        else {
            let corrupt = format!("session {} has no outcome", session.session_id);
            return Err(CloudError::Corrupt(corrupt).into());
        };
        // As it is now, if this user may still see it: a guest whose share was taken back may not.
        let entry = self.reach(actor, id).await?.entry;
        Ok(Some(match target {
            Target::Existing { entry: of, .. } if session.as_copy == Some(true) => {
                let of = of.clone();
                Publication::ConflictCopy { entry, of }
            }
            _ => Publication::Published { entry, version },
        }))
    }

    /// The chunks that this session does not pin. One that it pins is there, and stays.
    async fn unpinned(
        &self,
        actor: &Actor,
        session: &UploadSession,
        manifest: &Manifest,
    ) -> Result<Vec<ChunkRef>, FileSyncError> {
        let mut missing = Vec::new();
        for chunks in manifest.distinct().chunks(100) {
            let hashes: Vec<_> = chunks.iter().map(|chunk| chunk.hash).collect();
            let there = self.read_chunks(&actor.tenant, &hashes).await?;
            for chunk in chunks {
                match there.get(&chunk.hash) {
                    Some(found) if found.length != chunk.length => {
                        return Err(BadInput::TwoLengths(chunk.hash).into());
                    }
                    Some(found) if found.pins.contains(&session.session_id) => {}
                    _ => missing.push(*chunk),
                }
            }
        }
        Ok(missing)
    }

    /// An edit of a file that was there: its head moves, or a copy is made.
    async fn publish_edit(
        &self,
        actor: &Actor,
        session: &UploadSession,
        target: &Target,
        entry: &EntryId,
        base: u64,
        copies: u32,
    ) -> Result<Tried, FileSyncError> {
        let reached = self.reach_to_write(actor, entry).await?;
        if reached.entry.kind != Kind::File {
            return Err(FileSyncError::NotFound("file"));
        }
        if reached.entry.version != base || reached.entry.status != EntryStatus::Live {
            // Beside the original; if there is no folder any more that this user may write to, at the top.
            let place = match self.reach_place(actor, &reached.entry.parent).await {
                Err(FileSyncError::NotFound(_) | FileSyncError::ReadOnly) => {
                    self.reach_place(actor, &EntryId::root()).await
                }
                place => place,
            }?;
            let name = conflict_name(&reached.entry.name, &session.device, copies);
            return self
                .publish_new(actor, session, target, place, &name, Some(entry))
                .await;
        }
        let owner = reached.entry.owner.clone();
        let seen = self
            .seen_or_read(actor, &owner, reached.seen.clone())
            .await?;
        let now = self.now();
        let after = Entry {
            version: base + 1,
            size: session.size,
            fingerprint: Some(session.fingerprint),
            updated_at: now,
            ..reached.entry.clone()
        };
        let parts = Parts::default()
            .with(
                "session",
                self.end_session(actor, session, target, &after, false)?,
            )
            .with(
                "version",
                self.put_version(&actor.tenant, &version_of(session, &after, now))?,
            )
            .with(
                "head",
                self.advance_head(&actor.tenant, &reached.entry, &after)?,
            )
            .with_some("share", self.still_shared(&actor.tenant, &reached.grant)?);
        let draft = Draft {
            kind: ChangeKind::Updated,
            entry: after,
            device: session.device.clone(),
            // Not the session: whoever else publishes it, as something else, must not be taken for this.
            operation: self.cloud.ids().next("operation"),
            moves: false,
            looked_up: reached.grant.is_some(),
        };
        match self.commit(seen, &draft, parts).await? {
            Committed::Yes => Ok(Tried::done(Publication::Published {
                version: draft.entry.version,
                entry: draft.entry,
            })),
            Committed::Refused(cancelled) if cancelled.failed("session").is_some() => {
                Ok(Tried::SessionEnded)
            }
            Committed::Refused(_) | Committed::Rearranged => Ok(Tried::Again),
        }
    }

    /// A file that was not there.
    async fn publish_new(
        &self,
        actor: &Actor,
        session: &UploadSession,
        target: &Target,
        place: Place,
        name: &str,
        conflict_of: Option<&EntryId>,
    ) -> Result<Tried, FileSyncError> {
        let seen = self.seen_or_read(actor, &place.owner, place.seen.clone());
        let seen = seen.await?;
        let now = self.now();
        let entry = Entry {
            entry_id: session.new_entry_id.clone(),
            owner: place.owner.clone(),
            parent: place.folder.clone(),
            name: name.to_owned(),
            kind: Kind::File,
            status: EntryStatus::Live,
            version: 1,
            size: session.size,
            fingerprint: Some(session.fingerprint),
            children: 0,
            updated_at: now,
            deleted_at: None,
        };
        let tenant = &actor.tenant;
        let conflict = conflict_of.is_some();
        let parts = Parts::default()
            .with(
                "session",
                self.end_session(actor, session, target, &entry, conflict)?,
            )
            .with(
                "version",
                self.put_version(tenant, &version_of(session, &entry, now))?,
            )
            .with("entry", self.put_entry(tenant, &entry)?)
            .with("name", self.claim_name(tenant, &entry)?)
            .with_some("folder", self.enter_folder(tenant, &place.folder)?)
            .with_some("share", self.still_shared(tenant, &place.grant)?);
        let draft = Draft {
            kind: ChangeKind::Created,
            entry,
            device: session.device.clone(),
            // Not the session: whoever else publishes it, as something else, must not be taken for this.
            operation: self.cloud.ids().next("operation"),
            moves: false,
            looked_up: place.grant.is_some(),
        };
        let cancelled = match self.commit(seen, &draft, parts).await? {
            Committed::Yes => {
                let entry = draft.entry;
                return Ok(Tried::done(match conflict_of {
                    Some(of) => Publication::ConflictCopy {
                        entry,
                        of: of.clone(),
                    },
                    None => Publication::Published { entry, version: 1 },
                }));
            }
            Committed::Rearranged => return Ok(Tried::Again),
            Committed::Refused(cancelled) => cancelled,
        };
        if cancelled.failed("session").is_some() {
            return Ok(Tried::SessionEnded);
        }
        match taken(&cancelled)? {
            // An earlier copy of this device has the name; the next one is counted.
            Some(_) if conflict => Ok(Tried::NextName),
            Some(taken) => Ok(Tried::done(Publication::NameTaken(taken))),
            None => Ok(Tried::Again),
        }
    }

    fn end_session(
        &self,
        actor: &Actor,
        session: &UploadSession,
        target: &Target,
        entry: &Entry,
        conflict: bool,
    ) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("upload_sessions"))
            .key(
                "tenant_shard",
                s(self.session_shard(&actor.tenant, &session.session_id)),
            )
            .key("session_id", s(&session.session_id))
            .update_expression(SESSION_UPDATE)
            .condition_expression(SESSION_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#target", "target")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":published", s("PUBLISHED"))
            .expression_attribute_values(":target", s(target.to_string()))
            .expression_attribute_values(":entry", s(entry.entry_id.as_str()))
            .expression_attribute_values(":version", n(entry.version))
            .expression_attribute_values(":as_copy", AttributeValue::Bool(conflict))
            .expression_attribute_values(":now", n(entry.updated_at))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// A version is written once: its number is the head's next, which the head's guard gives away once.
    pub(crate) fn put_version(
        &self,
        tenant: &str,
        version: &FileVersion,
    ) -> Result<TransactWriteItem, CloudError> {
        let keys = [
            ("tenant_shard", self.entry_shard(tenant, &version.entry_id)),
            (
                "version_key",
                version_key(&version.entry_id, version.version),
            ),
        ];
        self.put("versions", item_with(version, &keys)?)
    }

    fn advance_head(
        &self,
        tenant: &str,
        seen: &Entry,
        after: &Entry,
    ) -> Result<TransactWriteItem, CloudError> {
        let fingerprint = after.fingerprint.map(|hash| hash.to_string());
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, &seen.entry_id)))
            .key("entry_id", s(seen.entry_id.as_str()))
            .update_expression(HEAD_UPDATE)
            .condition_expression(HEAD_GUARD)
            .expression_attribute_names("#version", "version")
            .expression_attribute_names("#status", "status")
            .expression_attribute_names("#parent", "parent")
            .expression_attribute_names("#name", "name")
            .expression_attribute_names("#size", "size")
            .expression_attribute_values(":base", n(seen.version))
            .expression_attribute_values(":live", s("LIVE"))
            .expression_attribute_values(":parent", s(seen.parent.as_str()))
            .expression_attribute_values(":name", s(&seen.name))
            .expression_attribute_values(":next", n(after.version))
            .expression_attribute_values(":size", n(after.size))
            .expression_attribute_values(":fingerprint", s(fingerprint.unwrap_or_default()))
            .expression_attribute_values(":now", n(after.updated_at))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}

enum Tried {
    Done(Box<Publication>),
    /// Something it was decided on has changed.
    Again,
    /// The name of the copy is taken.
    NextName,
    /// Published or expired meanwhile.
    SessionEnded,
}

impl Tried {
    fn done(publication: Publication) -> Self {
        Self::Done(Box::new(publication))
    }
}

/// The version that a session becomes.
fn version_of(session: &UploadSession, entry: &Entry, now: Millis) -> FileVersion {
    FileVersion {
        entry_id: entry.entry_id.clone(),
        version: entry.version,
        manifest_key: session.manifest_key.clone(),
        manifest_hash: session.manifest_hash,
        chunk_count: session.chunk_count,
        size: session.size,
        fingerprint: session.fingerprint,
        created_at: now,
        created_by: session.user.clone(),
        device: session.device.clone(),
        session_id: Some(session.session_id.clone()),
        restored_from: None,
    }
}
