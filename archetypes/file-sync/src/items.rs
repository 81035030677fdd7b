//! Keys, states as items, objects, and the reads that decisions begin with.

use crate::domain::{Actor, ChunkHash, Entry, EntryId, FileVersion, Manifest, UploadSession};
use crate::tables::BUCKET;
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use cloud::item::{all_items, from_item, s, shard_of, to_item};
use cloud::{CloudError, Item, Millis};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// ContentChunk as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentChunk {
    /// SHA-256 of the bytes.
    pub hash: ChunkHash,
    /// How many bytes.
    pub length: u32,
    /// Where the bytes are.
    pub blob_key: String,
    /// Since when.
    pub stored_at: Millis,
    /// The uploads that rely on it.
    #[serde(skip)]
    pub pins: BTreeSet<String>,
}

impl ContentChunk {
    pub(crate) fn read(item: &Item) -> Result<Self, CloudError> {
        let mut item = item.clone();
        let pins = match item.remove("pins") {
            Some(AttributeValue::Ss(pins)) => pins.into_iter().collect(),
            _ => BTreeSet::new(),
        };
        Ok(Self {
            pins,
            ..from_item(&item)?
        })
    }
}

/// A state and where it is kept.
pub(crate) fn item_with(
    state: &impl Serialize,
    keys: &[(&str, String)],
) -> Result<Item, CloudError> {
    let mut item = to_item(state)?;
    for (name, value) in keys {
        item.insert((*name).to_owned(), s(value));
    }
    Ok(item)
}

/// The key of a user's namespace.
pub(crate) fn namespace_key(tenant: &str, owner: &str) -> String {
    format!("{tenant}#{owner}")
}

/// The key under which a folder's names are.
pub(crate) fn folder_key(tenant: &str, owner: &str, folder: &EntryId) -> String {
    if folder.is_root() {
        format!("{tenant}#{owner}#root")
    } else {
        format!("{tenant}#{folder}")
    }
}

/// The sort key of a version. Padded: 10 comes after 9.
pub(crate) fn version_key(entry: &EntryId, version: u64) -> String {
    format!("{entry}#{version:010}")
}

/// Where an upload's manifest is. One upload, one name: nobody else ever writes or deletes it.
pub(crate) fn manifest_key(tenant: &str, session_id: &str) -> String {
    format!("{tenant}/manifests/{session_id}")
}

/// Where a client puts a chunk: only to be looked at, never to be read by anybody else.
pub(crate) fn staging_key(tenant: &str, session_id: &str, hash: &ChunkHash) -> String {
    format!("{tenant}/staging/{session_id}/{}", hash.in_key())
}

/// Where a chunk is kept. A name is used once: a chunk that is deleted and uploaded again has
/// another, so whoever still deletes the old one deletes nothing that is needed.
pub(crate) fn blob_key(tenant: &str, session_id: &str, hash: &ChunkHash) -> String {
    format!("{tenant}/blobs/{session_id}/{}", hash.in_key())
}

impl FileSync {
    pub(crate) fn entry_shard(&self, tenant: &str, entry: &EntryId) -> String {
        format!("{tenant}#{}", shard_of(entry.as_str(), self.shards.entries))
    }

    pub(crate) fn chunk_shard(&self, tenant: &str, hash: &ChunkHash) -> String {
        format!("{tenant}#{}", u32::from(hash.0[0]) % self.shards.chunks)
    }

    pub(crate) fn session_shard(&self, tenant: &str, session_id: &str) -> String {
        format!("{tenant}#{}", shard_of(session_id, self.shards.sessions))
    }

    pub(crate) async fn read_entry(
        &self,
        tenant: &str,
        entry: &EntryId,
    ) -> Result<Option<Entry>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, entry)))
            .key("entry_id", s(entry.as_str()))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// Entries by their ids, those that are there, in any order.
    pub(crate) async fn read_entries(
        &self,
        tenant: &str,
        ids: &[EntryId],
    ) -> Result<Vec<Entry>, CloudError> {
        let mut entries = Vec::new();
        for ids in ids.chunks(100) {
            let keys = ids.iter().map(|id| {
                Item::from([
                    ("tenant_shard".into(), s(self.entry_shard(tenant, id))),
                    ("entry_id".into(), s(id.as_str())),
                ])
            });
            let read = self
                .cloud
                .read_batch(vec![("entries", keys.collect())], true);
            for item in read.await?.remove("entries").unwrap_or_default() {
                entries.push(from_item(&item)?);
            }
        }
        Ok(entries)
    }

    pub(crate) async fn read_version(
        &self,
        tenant: &str,
        entry: &EntryId,
        version: u64,
    ) -> Result<Option<FileVersion>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("versions"))
            .key("tenant_shard", s(self.entry_shard(tenant, entry)))
            .key("version_key", s(version_key(entry, version)))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// All versions of a file, the oldest first.
    pub(crate) async fn read_versions(
        &self,
        tenant: &str,
        entry: &EntryId,
    ) -> Result<Vec<FileVersion>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("versions"))
            .key_condition_expression("tenant_shard = :shard AND begins_with(version_key, :entry)")
            .expression_attribute_values(":shard", s(self.entry_shard(tenant, entry)))
            .expression_attribute_values(":entry", s(format!("{entry}#")))
            .consistent_read(true);
        all_items(query).await?.iter().map(from_item).collect()
    }

    pub(crate) async fn read_session(
        &self,
        tenant: &str,
        session_id: &str,
    ) -> Result<Option<UploadSession>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("upload_sessions"))
            .key("tenant_shard", s(self.session_shard(tenant, session_id)))
            .key("session_id", s(session_id))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// The session of this user; anybody else's is not there.
    pub(crate) async fn own_session(
        &self,
        actor: &Actor,
        session_id: &str,
    ) -> Result<UploadSession, FileSyncError> {
        let session = self.read_session(&actor.tenant, session_id).await?;
        session
            .filter(|session| session.user == actor.user)
            .ok_or(FileSyncError::NotFound("upload"))
    }

    /// Those of these chunks that are present, by hash. Consistent: not uploading rests on it.
    pub(crate) async fn read_chunks(
        &self,
        tenant: &str,
        hashes: &[ChunkHash],
    ) -> Result<HashMap<ChunkHash, ContentChunk>, CloudError> {
        let mut chunks = HashMap::new();
        for hashes in hashes.chunks(100) {
            let keys = hashes.iter().map(|hash| {
                Item::from([
                    ("tenant_shard".into(), s(self.chunk_shard(tenant, hash))),
                    ("hash".into(), s(hash.to_string())),
                ])
            });
            let read = self
                .cloud
                .read_batch(vec![("chunks", keys.collect())], true);
            for item in read.await?.remove("chunks").unwrap_or_default() {
                let chunk = ContentChunk::read(&item)?;
                chunks.insert(chunk.hash, chunk);
            }
        }
        Ok(chunks)
    }

    pub(crate) fn bucket(&self) -> String {
        self.cloud.names().bucket(BUCKET)
    }

    pub(crate) async fn put_object(&self, key: &str, bytes: Vec<u8>) -> Result<(), CloudError> {
        let put = self.cloud.s3().put_object().bucket(self.bucket()).key(key);
        put.body(ByteStream::from(bytes)).send().await?;
        Ok(())
    }

    /// An object's bytes; none if there is no such object, and nothing of one larger than `most`.
    pub(crate) async fn get_object(
        &self,
        key: &str,
        most: u64,
    ) -> Result<Option<Vec<u8>>, CloudError> {
        let get = self.cloud.s3().get_object().bucket(self.bucket()).key(key);
        let object = match get.send().await {
            Ok(object) => object,
            Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if object
            .content_length()
            .is_some_and(|length| length as u64 > most)
        {
            return Ok(Some(Vec::new()));
        }
        let body = object.body.collect().await;
        let body = body.map_err(|error| CloudError::Unknown(error.to_string()))?;
        Ok(Some(body.into_bytes().to_vec()))
    }

    pub(crate) async fn delete_object(&self, key: &str) -> Result<(), CloudError> {
        let delete = self.cloud.s3().delete_object().bucket(self.bucket());
        delete.key(key).send().await?;
        Ok(())
    }

    /// A manifest, as it was when it was written.
    pub(crate) async fn read_manifest(
        &self,
        key: &str,
        hash: &ChunkHash,
    ) -> Result<Manifest, CloudError> {
        let bytes = self.get_object(key, u64::MAX).await?;
        let bytes = bytes.filter(|bytes| ChunkHash::of(bytes) == *hash);
        bytes
            .and_then(|bytes| Manifest::decode(&bytes))
            .ok_or_else(|| CloudError::Corrupt(format!("the manifest {key} is not what it was")))
    }
}
