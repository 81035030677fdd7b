//! Start an upload session, or resume one; say which chunks are missing.
//!
//! The documents check which chunks exist and upload the others. Between that check and the version
//! that relies on it, the collector may delete what was found. So a chunk that is found is *pinned*: the
//! session's id goes into the chunk's item, if the chunk is still there and the session still open, and
//! the collector leaves alone what an open session pins. Only then is it not missing.

use crate::create_folder::check_actor;
use crate::domain::{
    Actor, BadInput, ChunkHash, ChunkRef, EntryId, Manifest, SESSION_LASTS, SessionStatus,
    UploadRequest, UploadSession, check_id,
};
use crate::items::{item_with, manifest_key};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{AttributeValue, ConditionCheck, TransactWriteItem, Update};
use cloud::item::{n, s};
use cloud::{CloudError, Guard, Guarded, Millis, Transaction};

/// An upload that can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The session.
    pub session: UploadSession,
    /// The chunks to be uploaded, each once.
    pub missing: Vec<ChunkRef>,
    /// Whether it was begun before.
    pub resumed: bool,
}

/// Only a chunk that is there can be relied on.
const PRESENT_GUARD: &str = "attribute_exists(#hash)";
/// Only an open session's pins hold. One that was ended must not pin: nobody would take it out again.
const OPEN_GUARD: &str = "#status = :open";
const PIN_UPDATE: &str = "ADD pins :session";

/// A session that is resumed has its time again, unless it was ended.
const EXTEND_GUARD: &str = "#status = :open";
const EXTEND_UPDATE: &str = "SET expires_at = :expires";

/// Chunks in one transaction: a hundred items, one of them the session.
const PINS_AT_ONCE: usize = 99;

impl FileSync {
    /// Starts an upload. If this device of this user has begun to upload the same content and not
    /// finished, goes on with that.
    pub async fn start_upload(
        &self,
        actor: &Actor,
        device: &str,
        request: &UploadRequest,
    ) -> Result<Started, FileSyncError> {
        check_actor(actor)?;
        check_id("the device", device)?;
        request.validate()?;
        let manifest = Manifest {
            chunks: request.chunks.clone(),
        };
        let resume_key = resume_key(actor, device, &request.fingerprint);
        if let Some(session) = self.half_uploaded(actor, &resume_key, &manifest).await? {
            let key = session.manifest_key.clone();
            if let Some(started) = self.go_on(actor, session, &manifest).await? {
                // Whoever began it may have died before this. The same bytes: the hash was compared.
                self.put_object(&key, manifest.encode()).await?;
                return Ok(started);
            }
        }
        let session = self
            .open(actor, device, request, &manifest, &resume_key)
            .await?;
        let missing = self.pin(&actor.tenant, &session, &manifest).await?;
        // Nobody else knows the session yet, so nobody ended it.
        let missing = missing.ok_or(FileSyncError::Contended)?;
        Ok(Started {
            session,
            missing,
            resumed: false,
        })
    }

    /// Resumes an upload by its session.
    pub async fn resume_upload(
        &self,
        actor: &Actor,
        session_id: &str,
    ) -> Result<Started, FileSyncError> {
        check_actor(actor)?;
        let session = self.own_session(actor, session_id).await?;
        if session.status != SessionStatus::Open {
            return Err(FileSyncError::NotFound("upload"));
        }
        let manifest = match self
            .read_manifest(&session.manifest_key, &session.manifest_hash)
            .await
        {
            Ok(manifest) => manifest,
            // A collection that has ended the session meanwhile has taken its manifest.
            Err(fault) => {
                let session = self.own_session(actor, session_id).await?;
                return Err(match session.status {
                    SessionStatus::Open => fault.into(),
                    _ => FileSyncError::NotFound("upload"),
                });
            }
        };
        let started = self.go_on(actor, session, &manifest).await?;
        started.ok_or(FileSyncError::NotFound("upload"))
    }

    /// An open session for this content, if the index knows one. The index is a hint: the session
    /// itself says whether it is open and made of the same chunks.
    async fn half_uploaded(
        &self,
        actor: &Actor,
        resume_key: &str,
        manifest: &Manifest,
    ) -> Result<Option<UploadSession>, FileSyncError> {
        let found = self
            .dynamodb()
            .query()
            .table_name(self.table("upload_sessions"))
            .index_name("by_fingerprint")
            .key_condition_expression("resume_key = :key")
            .expression_attribute_values(":key", s(resume_key))
            .limit(1)
            .send()
            .await
            .map_err(CloudError::from)?;
        let session_id = found
            .items()
            .first()
            .and_then(|item| item.get("session_id"));
        let Some(Ok(session_id)) = session_id.map(AttributeValue::as_s) else {
            return Ok(None);
        };
        let session = self.read_session(&actor.tenant, session_id).await?;
        let hash = ChunkHash::of(&manifest.encode());
        let fits = |session: &UploadSession| {
            session.status == SessionStatus::Open && session.manifest_hash == hash
        };
        Ok(session.filter(fits))
    }

    /// Gives an open session its time again, and says until when; none if it was ended meanwhile.
    pub(crate) async fn extend(
        &self,
        tenant: &str,
        session_id: &str,
    ) -> Result<Option<Millis>, FileSyncError> {
        let expires_at = self.now() + SESSION_LASTS;
        let extended = self
            .dynamodb()
            .update_item()
            .table_name(self.table("upload_sessions"))
            .key("tenant_shard", s(self.session_shard(tenant, session_id)))
            .key("session_id", s(session_id))
            .update_expression(EXTEND_UPDATE)
            .condition_expression(EXTEND_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":expires", n(expires_at))
            .send()
            .await
            .guarded()?;
        Ok(match extended {
            Guard::Passed(_) => Some(expires_at),
            Guard::Failed(_) => None,
        })
    }

    /// Gives an open session its time again and looks what is missing; none if it was ended meanwhile.
    async fn go_on(
        &self,
        actor: &Actor,
        session: UploadSession,
        manifest: &Manifest,
    ) -> Result<Option<Started>, FileSyncError> {
        let extended = self.extend(&actor.tenant, &session.session_id).await?;
        let Some(expires_at) = extended else {
            return Ok(None);
        };
        let missing = self.pin(&actor.tenant, &session, manifest).await?;
        Ok(missing.map(|missing| Started {
            session: UploadSession {
                expires_at,
                ..session
            },
            missing,
            resumed: true,
        }))
    }

    /// First the session, then the manifest: whoever dies in between leaves a session that ends, and not
    /// an object that nobody knows. A client is told of a session only when both are there.
    async fn open(
        &self,
        actor: &Actor,
        device: &str,
        request: &UploadRequest,
        manifest: &Manifest,
        resume_key: &str,
    ) -> Result<UploadSession, FileSyncError> {
        let now = self.now();
        let session_id = self.cloud.ids().next("session");
        let bytes = manifest.encode();
        let session = UploadSession {
            manifest_key: manifest_key(&actor.tenant, &session_id),
            manifest_hash: ChunkHash::of(&bytes),
            session_id,
            user: actor.user.clone(),
            device: device.to_owned(),
            fingerprint: request.fingerprint,
            size: request.size,
            chunk_count: manifest.chunks.len() as u64,
            new_entry_id: EntryId(self.cloud.ids().next("entry")),
            status: SessionStatus::Open,
            started_at: now,
            expires_at: now + SESSION_LASTS,
            target: None,
            published_entry: None,
            published_version: None,
            as_copy: None,
            published_at: None,
        };
        let keys = [
            (
                "tenant_shard",
                self.session_shard(&actor.tenant, &session.session_id),
            ),
            ("resume_key", resume_key.to_owned()),
        ];
        self.dynamodb()
            .put_item()
            .table_name(self.table("upload_sessions"))
            .set_item(Some(item_with(&session, &keys)?))
            .send()
            .await
            .map_err(CloudError::from)?;
        self.put_object(&session.manifest_key, bytes).await?;
        Ok(session)
    }

    /// Pins what is there, and says what is not; none if the session is no longer open.
    async fn pin(
        &self,
        tenant: &str,
        session: &UploadSession,
        manifest: &Manifest,
    ) -> Result<Option<Vec<ChunkRef>>, FileSyncError> {
        let mut missing = Vec::new();
        for chunks in manifest.distinct().chunks(PINS_AT_ONCE) {
            let hashes: Vec<_> = chunks.iter().map(|chunk| chunk.hash).collect();
            let there = self.read_chunks(tenant, &hashes).await?;
            let mut to_pin: Vec<&ChunkRef> = Vec::new();
            for chunk in chunks {
                match there.get(&chunk.hash) {
                    None => missing.push(*chunk),
                    Some(found) if found.length != chunk.length => {
                        return Err(BadInput::TwoLengths(chunk.hash).into());
                    }
                    Some(found) if found.pins.contains(&session.session_id) => {}
                    Some(_) => to_pin.push(chunk),
                }
            }
            while !to_pin.is_empty() {
                let hashes: Vec<_> = to_pin.iter().map(|chunk| chunk.hash).collect();
                match self.pin_all(tenant, session, &hashes).await? {
                    Pinned::All => to_pin.clear(),
                    Pinned::Ended => return Ok(None),
                    // The collector was faster. It is missing then, and the others are tried again.
                    Pinned::Gone(gone) => {
                        let (lost, left): (Vec<_>, Vec<_>) = to_pin
                            .into_iter()
                            .partition(|chunk| gone.contains(&chunk.hash));
                        missing.extend(lost);
                        to_pin = left;
                    }
                }
            }
        }
        Ok(Some(missing))
    }

    async fn pin_all(
        &self,
        tenant: &str,
        session: &UploadSession,
        hashes: &[ChunkHash],
    ) -> Result<Pinned, FileSyncError> {
        let mut items = vec![self.still_open(tenant, &session.session_id)?];
        for hash in hashes {
            let update = Update::builder()
                .table_name(self.table("chunks"))
                .key("tenant_shard", s(self.chunk_shard(tenant, hash)))
                .key("hash", s(hash.to_string()))
                .update_expression(PIN_UPDATE)
                .condition_expression(PRESENT_GUARD)
                .expression_attribute_names("#hash", "hash")
                .expression_attribute_values(
                    ":session",
                    AttributeValue::Ss(vec![session.session_id.clone()]),
                )
                .build()
                .map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
        }
        match self.transact_in_turn(&["session", "chunk"], items).await? {
            Transaction::Committed(_) => Ok(Pinned::All),
            Transaction::Cancelled(cancelled) if cancelled.failed("session").is_some() => {
                Ok(Pinned::Ended)
            }
            // The session has the first place.
            Transaction::Cancelled(cancelled) => {
                let places = cancelled.places.iter();
                Ok(Pinned::Gone(
                    places.map(|place| hashes[place - 1]).collect(),
                ))
            }
        }
    }

    /// The session is open while this is written: `session` in a refusal.
    pub(crate) fn still_open(
        &self,
        tenant: &str,
        session_id: &str,
    ) -> Result<TransactWriteItem, CloudError> {
        let check = ConditionCheck::builder()
            .table_name(self.table("upload_sessions"))
            .key("tenant_shard", s(self.session_shard(tenant, session_id)))
            .key("session_id", s(session_id))
            .condition_expression(OPEN_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().condition_check(check).build())
    }
}

enum Pinned {
    All,
    /// These are not there any more.
    Gone(Vec<ChunkHash>),
    /// The session was ended.
    Ended,
}

/// Who uploads what from where.
fn resume_key(actor: &Actor, device: &str, fingerprint: &ChunkHash) -> String {
    let Actor { tenant, user } = actor;
    format!("{tenant}#{user}#{device}#{fingerprint}")
}
