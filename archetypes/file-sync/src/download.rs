//! Download: from the entry to its head, from the head to the version, from the version to the
//! manifest, and from there to an address for each chunk that the device does not have.

use crate::create_folder::check_actor;
use crate::domain::{
    Actor, BadInput, ChunkHash, Entry, EntryId, EntryStatus, FileVersion, Kind, Manifest,
};
use crate::upload_chunks::{Address, for_a_while, headers_of};
use crate::{FileSync, FileSyncError};
use cloud::CloudError;
use std::collections::HashSet;

/// What a file is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Download {
    /// The file.
    pub entry: Entry,
    /// The version.
    pub version: FileVersion,
    /// Its chunks.
    pub manifest: Manifest,
}

impl FileSync {
    /// The plan of a download: the current version, or an older one. A deleted file has no current
    /// version, but its older ones can be asked for.
    pub async fn download(
        &self,
        actor: &Actor,
        entry: &EntryId,
        version: Option<u64>,
    ) -> Result<Download, FileSyncError> {
        check_actor(actor)?;
        let entry = self.reach(actor, entry).await?.entry;
        if entry.kind != Kind::File || version.is_none() && entry.status != EntryStatus::Live {
            return Err(FileSyncError::NotFound("file"));
        }
        let number = version.unwrap_or(entry.version);
        let version = self
            .read_version(&actor.tenant, &entry.entry_id, number)
            .await?;
        let version = version.ok_or(FileSyncError::NotFound("version"))?;
        let manifest = self
            .read_manifest(&version.manifest_key, &version.manifest_hash)
            .await?;
        Ok(Download {
            entry,
            version,
            manifest,
        })
    }

    /// Addresses to fetch these chunks of a version from. Only chunks of that version: a hash alone
    /// opens nothing.
    pub async fn download_addresses(
        &self,
        actor: &Actor,
        entry: &EntryId,
        version: u64,
        hashes: &[ChunkHash],
    ) -> Result<Vec<Address>, FileSyncError> {
        let plan = self.download(actor, entry, Some(version)).await?;
        let own: HashSet<_> = plan
            .manifest
            .chunks
            .iter()
            .map(|chunk| chunk.hash)
            .collect();
        if let Some(other) = hashes.iter().find(|hash| !own.contains(hash)) {
            return Err(BadInput::NotItsChunk(*other).into());
        }
        let mut distinct = hashes.to_vec();
        distinct.sort();
        distinct.dedup();
        let there = self.read_chunks(&actor.tenant, &distinct).await?;
        let mut addresses = Vec::new();
        for hash in hashes {
            let chunk = there.get(hash).ok_or_else(|| {
                CloudError::Corrupt(format!("{hash} is part of a version, and not there"))
            })?;
            let get = self
                .signer
                .get_object()
                .bucket(self.bucket())
                .key(&chunk.blob_key);
            let signed = get
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
}
