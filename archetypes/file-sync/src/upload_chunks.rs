//! Upload missing chunks, straight to S3, and make sure of them before they count.
//!
//! A client says what a chunk's hash is. If that were believed, one wrong or hostile client would give
//! everybody else in the tenant bytes that they did not write. So:
//!
//! 1. the address that a chunk is uploaded to carries its SHA-256, and S3 refuses other bytes;
//! 2. it is the address of a *staging* key, that nobody reads from;
//! 3. the bytes are read back, hashed, and *these* bytes are written to the chunk's own key, which no
//!    client has an address for. Only then does the chunk get its item.
//!
//! The second and third are needed where a store keeps what it refused (the embedded one does), and
//! against somebody who uploads again, with other bytes, after the check.

use crate::create_folder::check_actor;
use crate::domain::{ADDRESS_LASTS, Actor, ChunkHash, MAX_CHUNK, SESSION_LASTS, SessionStatus};
use crate::items::{blob_key, staging_key};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use aws_sdk_s3::presigning::{PresignedRequest, PresigningConfig};
use aws_sdk_s3::types::{Delete, ObjectIdentifier};
use cloud::item::{n, s};
use cloud::{CloudError, Transaction};
use futures::{StreamExt, TryStreamExt, stream};
use std::time::Duration;

/// Where one chunk is to be sent, or fetched from, for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// Which chunk.
    pub hash: ChunkHash,
    /// Where.
    pub url: String,
    /// What has to be sent along: the signature covers it.
    pub headers: Vec<(String, String)>,
}

/// What became of a chunk that was said to be uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Confirmed {
    /// It is there, it is what it should be, and this session pins it.
    Present,
    /// Nothing was uploaded.
    NotUploaded,
    /// Something was uploaded that is not this chunk. It is gone again.
    WrongContent,
}

/// The chunk is there and pinned, whoever stored it first. No condition: if it is there already, it
/// keeps the blob it has; ours is then one that nothing names, and goes when the session does.
const STORE_UPDATE: &str = "SET blob_key = if_not_exists(blob_key, :blob), \
     #length = if_not_exists(#length, :length), stored_at = if_not_exists(stored_at, :now) \
     ADD pins :session";

/// Chunks in one transaction: a hundred items, one of them the session.
const AT_ONCE: usize = 99;
/// How many chunks are verified at the same time: each is held in memory while it is.
const PARALLEL: usize = 4;

impl FileSync {
    /// Addresses to upload these chunks to. Each takes the one content that has this hash. Whoever asks is
    /// still at work: when half its time is over, the session gets it again, so an upload may take days.
    pub async fn upload_addresses(
        &self,
        actor: &Actor,
        session_id: &str,
        hashes: &[ChunkHash],
    ) -> Result<Vec<Address>, FileSyncError> {
        check_actor(actor)?;
        let session = self.own_session(actor, session_id).await?;
        if session.status != SessionStatus::Open {
            return Err(FileSyncError::NotFound("upload"));
        }
        let half_over = self.now() + SESSION_LASTS / 2 > session.expires_at;
        if half_over && self.extend(&actor.tenant, session_id).await?.is_none() {
            return Err(FileSyncError::NotFound("upload"));
        }
        let mut addresses = Vec::new();
        for hash in hashes {
            let put = self
                .signer
                .put_object()
                .bucket(self.bucket())
                .key(staging_key(&actor.tenant, session_id, hash))
                .checksum_sha256(hash.base64());
            let signed = put
                .presigned(for_a_while()?)
                .await
                .map_err(CloudError::from)?;
            addresses.push(Address {
                hash: *hash,
                url: signed.uri().to_owned(),
                headers: headers_of(&signed),
            });
        }
        Ok(addresses)
    }

    /// Looks at what was uploaded, and lets it count if it is what it should be. The same call again
    /// gets the same answer.
    pub async fn confirm_chunks(
        &self,
        actor: &Actor,
        session_id: &str,
        hashes: &[ChunkHash],
    ) -> Result<Vec<(ChunkHash, Confirmed)>, FileSyncError> {
        check_actor(actor)?;
        let session = self.own_session(actor, session_id).await?;
        if session.status != SessionStatus::Open {
            return Err(FileSyncError::NotFound("upload"));
        }
        let mut distinct = hashes.to_vec();
        distinct.sort();
        distinct.dedup();
        let mut outcomes = std::collections::HashMap::new();
        for hashes in distinct.chunks(AT_ONCE) {
            let there = self.read_chunks(&actor.tenant, hashes).await?;
            let pinned = |hash: &ChunkHash| {
                let chunk = there.get(hash);
                chunk.is_some_and(|chunk| chunk.pins.contains(session_id))
            };
            let (done, todo): (Vec<_>, Vec<_>) = hashes.iter().copied().partition(pinned);
            outcomes.extend(done.into_iter().map(|hash| (hash, Confirmed::Present)));
            let verified: Vec<Verified> = stream::iter(todo)
                .map(|hash| self.verify(&actor.tenant, session_id, hash))
                .buffered(PARALLEL)
                .try_collect()
                .await?;
            let good = verified
                .iter()
                .filter_map(|one| Some((one.hash, one.length?)));
            let good: Vec<_> = good.collect();
            if !good.is_empty() && !self.store(&actor.tenant, session_id, &good).await? {
                return Err(FileSyncError::NotFound("upload"));
            }
            // Staged bytes have served. What is forgotten here goes when the session does.
            let staged = verified.iter().filter(|one| one.staged).map(|one| one.hash);
            self.unstage(&actor.tenant, session_id, staged.collect())
                .await?;
            outcomes.extend(verified.iter().map(|one| (one.hash, one.outcome())));
        }
        let outcome = |hash: &ChunkHash| Some((*hash, *outcomes.get(hash)?));
        Ok(hashes.iter().filter_map(outcome).collect())
    }

    /// Reads what was staged and, if it has the hash, writes those very bytes to the chunk's own key.
    async fn verify(
        &self,
        tenant: &str,
        session_id: &str,
        hash: ChunkHash,
    ) -> Result<Verified, CloudError> {
        let staged = staging_key(tenant, session_id, &hash);
        let bytes = self.get_object(&staged, u64::from(MAX_CHUNK)).await?;
        let Some(bytes) = bytes else {
            return Ok(Verified {
                hash,
                staged: false,
                length: None,
            });
        };
        let right = !bytes.is_empty() && ChunkHash::of(&bytes) == hash;
        let length = right.then_some(bytes.len() as u32);
        if right {
            let key = blob_key(tenant, session_id, &hash);
            self.put_object(&key, bytes).await?;
        }
        Ok(Verified {
            hash,
            staged: true,
            length,
        })
    }

    /// Lets verified chunks count, if the session is still open.
    async fn store(
        &self,
        tenant: &str,
        session_id: &str,
        chunks: &[(ChunkHash, u32)],
    ) -> Result<bool, FileSyncError> {
        let mut items = vec![self.still_open(tenant, session_id)?];
        for (hash, length) in chunks {
            let update = Update::builder()
                .table_name(self.table("chunks"))
                .key("tenant_shard", s(self.chunk_shard(tenant, hash)))
                .key("hash", s(hash.to_string()))
                .update_expression(STORE_UPDATE)
                .expression_attribute_names("#length", "length")
                .expression_attribute_values(":blob", s(blob_key(tenant, session_id, hash)))
                .expression_attribute_values(":length", n(length))
                .expression_attribute_values(":now", n(self.now()))
                .expression_attribute_values(
                    ":session",
                    AttributeValue::Ss(vec![session_id.to_owned()]),
                )
                .build()
                .map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
        }
        let stored = self.transact_in_turn(&["session", "chunk"], items).await?;
        Ok(matches!(stored, Transaction::Committed(_)))
    }

    async fn unstage(
        &self,
        tenant: &str,
        session_id: &str,
        hashes: Vec<ChunkHash>,
    ) -> Result<(), FileSyncError> {
        let keys = hashes
            .iter()
            .map(|hash| staging_key(tenant, session_id, hash));
        self.delete_objects(keys.collect()).await?;
        Ok(())
    }

    /// Deletes objects, a thousand at a time. Those that are gone already are no error.
    pub(crate) async fn delete_objects(&self, keys: Vec<String>) -> Result<(), CloudError> {
        for keys in keys.chunks(1_000) {
            let each = keys
                .iter()
                .map(|key| ObjectIdentifier::builder().key(key).build());
            let each = each
                .collect::<Result<Vec<_>, _>>()
                .map_err(CloudError::bug)?;
            let delete = Delete::builder()
                .set_objects(Some(each))
                .quiet(true)
                .build();
            let delete = delete.map_err(CloudError::bug)?;
            let request = self.cloud.s3().delete_objects().bucket(self.bucket());
            let done = request.delete(delete).send().await?;
            if let Some(error) = done.errors().first() {
                let why = error.message().unwrap_or("an object could not be deleted");
                return Err(CloudError::Other(why.to_owned()));
            }
        }
        Ok(())
    }
}

/// What was found under a staging key.
struct Verified {
    hash: ChunkHash,
    /// Whether there was anything.
    staged: bool,
    /// How long it is, if it is what it should be.
    length: Option<u32>,
}

impl Verified {
    fn outcome(&self) -> Confirmed {
        match (self.staged, self.length) {
            (_, Some(_)) => Confirmed::Present,
            (true, None) => Confirmed::WrongContent,
            (false, None) => Confirmed::NotUploaded,
        }
    }
}

/// What a device must send with a presigned request: its signature covers them.
pub(crate) fn headers_of(signed: &PresignedRequest) -> Vec<(String, String)> {
    let headers = signed.headers();
    headers
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// How long addresses are good.
pub(crate) fn for_a_while() -> Result<PresigningConfig, CloudError> {
    PresigningConfig::expires_in(Duration::from_millis(ADDRESS_LASTS as u64))
        .map_err(CloudError::bug)
}
