//! Fetching what changed there: chunks that are here already are taken from here, all others come from the
//! store, and each is looked at before it is written.

use super::{Device, SyncError};
use crate::Address;
use crate::chunking::{Chunked, placed};
use crate::domain::{ChunkHash, ChunkRef, EntryId};
use crate::local::folder::{Folder, Part};
use crate::local::scan::Scan;
use crate::local::state::{KnownFile, RemoteEntry};
use crate::local::{DeviceState, Found, Known, Put, RelPath};
use futures::{StreamExt, stream};
use std::collections::HashMap;
use std::os::unix::fs::FileExt;

/// Where chunks are here: in which files, at which offset. Hints: files change.
#[derive(Debug, Default)]
pub struct Sources(HashMap<ChunkHash, Vec<(RelPath, u64)>>);

impl Sources {
    /// In what was agreed on and in what was found.
    pub fn of(state: &DeviceState, scan: &Scan) -> Self {
        let mut sources = Self::default();
        for (path, known) in &state.agreed {
            if let Some(file) = known.file() {
                sources.add(path, &file.chunks);
            }
        }
        for (path, found) in &scan.found {
            if let Found::Changed { content, .. } = found {
                sources.add(path, &content.chunks);
            }
        }
        sources
    }

    fn add(&mut self, path: &RelPath, chunks: &[ChunkRef]) {
        for (at, chunk) in placed(chunks) {
            let places = self.0.entry(chunk.hash).or_default();
            // A chunk of zeros may be everywhere.
            if places.len() < 4 {
                places.push((path.clone(), at));
            }
        }
    }

    /// The chunk, if some file here still has it.
    fn read(&self, folder: &Folder, chunk: &ChunkRef) -> Option<Vec<u8>> {
        let places = self.0.get(&chunk.hash)?;
        places.iter().find_map(|(path, at)| {
            let (file, _) = folder.read(path).ok()?;
            let mut bytes = vec![0; chunk.length as usize];
            file.read_exact_at(&mut bytes, *at).ok()?;
            (ChunkRef::of(&bytes) == *chunk).then_some(bytes)
        })
    }
}

impl Device {
    /// Fetches a version of a file into its place: over `known`, or where nothing is.
    pub(super) async fn fetch(
        &mut self,
        path: &RelPath,
        id: &EntryId,
        entry: &RemoteEntry,
        known: Option<KnownFile>,
        sources: &mut Sources,
    ) -> Result<(), SyncError> {
        let version = entry.version;
        let download = self
            .retry(|| self.store.download(&self.actor, id, Some(version)))
            .await?;
        let content = Chunked::of(download.manifest.chunks);
        if let Some(parent) = path.parent() {
            self.folder.make_folder(&parent)?;
        }
        let mut part = self.folder.part()?;
        // The same chunk may come again in the same file.
        let mut written: HashMap<ChunkHash, u64> = HashMap::new();
        let mut at = 0;
        for batch in content.chunks.chunks(2 * self.settings.transfers) {
            let found = self.gather(id, version, batch, &part, &written, sources);
            let found = found.await?;
            for chunk in batch {
                let bytes = found
                    .get(&chunk.hash)
                    .ok_or(SyncError::Transfer("fetched"))?;
                part.write(bytes)?;
                written.entry(chunk.hash).or_insert(at);
                at += u64::from(chunk.length);
            }
            self.show(path, at, content.size);
        }
        let (place, fingerprint) = (path.clone(), content.fingerprint);
        let put = self
            .on_thread(move |folder, chunker| {
                folder.put(&place, part, &fingerprint, known.as_ref(), chunker)
            })
            .await?;
        match put {
            Put::Done { stamp, seen, kept } => {
                sources.add(path, &content.chunks);
                let file = KnownFile {
                    entry: id.clone(),
                    version,
                    fingerprint,
                    chunks: content.chunks,
                    stamp,
                    seen,
                };
                self.state.agreed.insert(path.clone(), Known::File(file));
                self.report.fetched.push(path.to_string());
                if let Some(kept) = kept {
                    let names = (path.to_string(), kept.to_string());
                    self.report.renamed.push(names);
                }
            }
            // Changed since the scan: the next round meets it as an edit.
            Put::Changed => {}
        }
        Ok(())
    }

    /// The bytes of some chunks: from here if possible, from the store if not.
    async fn gather(
        &mut self,
        id: &EntryId,
        version: u64,
        chunks: &[ChunkRef],
        part: &Part,
        written: &HashMap<ChunkHash, u64>,
        sources: &Sources,
    ) -> Result<HashMap<ChunkHash, Vec<u8>>, SyncError> {
        let mut found = HashMap::new();
        let mut missing: Vec<ChunkRef> = Vec::new();
        for chunk in chunks {
            if found.contains_key(&chunk.hash) || missing.contains(chunk) {
                continue;
            }
            let again = written.get(&chunk.hash).and_then(|at| {
                let mut bytes = vec![0; chunk.length as usize];
                part.file().read_exact_at(&mut bytes, *at).ok()?;
                (ChunkRef::of(&bytes) == *chunk).then_some(bytes)
            });
            match again.or_else(|| sources.read(&self.folder, chunk)) {
                Some(bytes) => {
                    self.report.bytes_reused += u64::from(chunk.length);
                    found.insert(chunk.hash, bytes);
                }
                None => missing.push(*chunk),
            }
        }
        let mut pause = self.settings.pause;
        let mut tampered = None;
        for attempt in 0..self.settings.attempts {
            if missing.is_empty() {
                return Ok(found);
            }
            if attempt > 0 {
                self.wait(&mut pause).await;
            }
            let hashes: Vec<ChunkHash> = missing.iter().map(|chunk| chunk.hash).collect();
            let addresses = self
                .retry(|| {
                    self.store
                        .download_addresses(&self.actor, id, version, &hashes)
                })
                .await?;
            let by_hash: HashMap<ChunkHash, ChunkRef> =
                missing.iter().map(|chunk| (chunk.hash, *chunk)).collect();
            let gets = addresses
                .into_iter()
                .filter_map(|address| Some((*by_hash.get(&address.hash)?, address)));
            let got: Vec<_> = stream::iter(gets)
                .map(|(chunk, address)| self.get_chunk(chunk, address))
                .buffer_unordered(self.settings.transfers)
                .collect()
                .await;
            for got in got {
                match got {
                    Ok((chunk, bytes)) => {
                        self.report.chunks_fetched += 1;
                        self.report.bytes_fetched += u64::from(chunk.length);
                        found.insert(chunk.hash, bytes);
                    }
                    Err(SyncError::Tampered(hash)) => tampered = Some(hash),
                    Err(_) => {}
                }
            }
            missing.retain(|chunk| !found.contains_key(&chunk.hash));
        }
        match (missing.is_empty(), tampered) {
            (true, _) => Ok(found),
            (false, Some(hash)) => Err(SyncError::Tampered(hash)),
            (false, None) => Err(SyncError::Transfer("fetched")),
        }
    }

    /// One chunk from the store, if it is what it is called.
    async fn get_chunk(
        &self,
        chunk: ChunkRef,
        address: Address,
    ) -> Result<(ChunkRef, Vec<u8>), SyncError> {
        let lost = || SyncError::Transfer("fetched");
        let mut request = self.http.get(&address.url);
        for (name, value) in &address.headers {
            request = request.header(name, value);
        }
        let stall = self.settings.stall;
        let answer = tokio::time::timeout(stall, request.send()).await;
        let mut answer = answer.map_err(|_| lost())?.map_err(|_| lost())?;
        if !answer.status().is_success() {
            return Err(lost());
        }
        let mut bytes = Vec::with_capacity(chunk.length as usize);
        loop {
            let more = tokio::time::timeout(stall, answer.chunk()).await;
            let Some(more) = more.map_err(|_| lost())?.map_err(|_| lost())? else {
                break;
            };
            // More than was promised is wrong already; do not read on.
            if bytes.len() + more.len() > chunk.length as usize {
                return Err(SyncError::Tampered(chunk.hash));
            }
            bytes.extend_from_slice(&more);
        }
        match ChunkRef::of(&bytes) == chunk {
            true => Ok((chunk, bytes)),
            false => Err(SyncError::Tampered(chunk.hash)),
        }
    }
}
