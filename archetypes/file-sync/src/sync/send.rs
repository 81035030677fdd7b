//! Publishing what changed here: the chunks that the store does not have, then the version.

use super::{Device, Settings, SyncError};
use crate::chunking::Chunked;
use crate::domain::{
    ChunkHash, ChunkRef, EntryId, FileVersion, Target, UploadRequest, conflict_name,
};
use crate::local::scan::Scan;
use crate::local::state::{KnownFile, RemoteEntry};
use crate::local::{Found, Known, LocalError, RelPath, Stamp};
use crate::{Address, Confirmed, FileSyncError, Publication};
use futures::{StreamExt, stream};
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

/// The slowest line that a chunk gets through, in bytes a second. A slower one counts as a store that hangs.
const SLOWEST_LINE: usize = 64 * 1024;

/// How often an upload is begun anew because it took so long that the store gave it up.
const MOST_STARTS: usize = 3;

/// How long a chunk may take on its way. What is under way beside it shares its line.
fn time_to_send(length: usize, settings: &Settings) -> Duration {
    let shared = length * settings.transfers;
    settings.stall + Duration::from_secs((shared / SLOWEST_LINE) as u64)
}

/// What was published after the version that a device remembers.
enum Before {
    /// This very content, as this version. 0: as a conflict copy.
    This(u64),
    /// Only versions of this device, up to this one.
    Ours(u64),
    /// Somebody else's, too.
    Others,
}

impl Device {
    /// Publishes the file at this path: as new, over the version it was made from, or, if the head has moved
    /// on, as the conflict copy that the store makes of it.
    pub(super) async fn send(
        &mut self,
        path: &RelPath,
        scan: &Scan,
        there: Option<(EntryId, RemoteEntry)>,
    ) -> Result<(), SyncError> {
        let Some(Found::Changed {
            content,
            stamp,
            seen,
        }) = scan.found.get(path)
        else {
            return Ok(());
        };
        let known = |entry: EntryId, version: u64| {
            Known::File(KnownFile {
                entry,
                version,
                fingerprint: content.fingerprint,
                chunks: content.chunks.clone(),
                stamp: *stamp,
                seen: *seen,
            })
        };
        let target = match &there {
            None => Target::New {
                parent: self.parent_there(path).await?,
                name: path.name().to_owned(),
            },
            Some((id, entry)) => {
                let base = self.known_file(path).filter(|known| known.entry == *id);
                let mut base = base.map_or(0, |known| known.version);
                if base != entry.version {
                    match self.published_before(path, id, base, content).await? {
                        // It is in the store, and a crash came before we wrote that down. What came
                        // after it is fetched in the next round.
                        Before::This(version) => {
                            self.state
                                .agreed
                                .insert(path.clone(), known(id.clone(), version));
                            return Ok(());
                        }
                        Before::Ours(version) => base = version,
                        Before::Others => {}
                    }
                }
                Target::Existing {
                    entry: id.clone(),
                    base_version: base,
                }
            }
        };
        let published = self.upload(path, content, *stamp, &target).await?;
        match published {
            Publication::Published { entry, version } => {
                self.state.entry_is(&entry);
                self.state
                    .agreed
                    .insert(path.clone(), known(entry.entry_id, version));
                self.report.published.push(path.to_string());
                Ok(())
            }
            Publication::ConflictCopy { entry, of } => {
                self.state.entry_is(&entry);
                // What is here is safe in the copy. The head takes its place, in the next round.
                self.state.agreed.insert(path.clone(), known(of, 0));
                self.report.conflicts.push((path.to_string(), entry.name));
                Ok(())
            }
            Publication::NameTaken(taken) => Err(SyncError::taken(taken, path)),
            Publication::Incomplete { .. } | Publication::Expired | Publication::UsedFor(_) => {
                Err(SyncError::Transfer("sent"))
            }
        }
    }

    /// What has been published since the version we remember. A crash may have come before we wrote it down.
    async fn published_before(
        &self,
        path: &RelPath,
        id: &EntryId,
        base: u64,
        content: &Chunked,
    ) -> Result<Before, SyncError> {
        let log = self.retry(|| self.store.log(&self.actor, id)).await?;
        let later: Vec<_> = log.iter().filter(|one| one.version > base).collect();
        let same = later
            .iter()
            .find(|one| one.fingerprint == content.fingerprint);
        if let Some(same) = same {
            return Ok(Before::This(same.version));
        }
        let Some(entry) = self.state.entries.get(id) else {
            return Ok(Before::Others);
        };
        let copies: HashSet<String> = (1..10)
            .map(|count| conflict_name(path.name(), &self.state.device, count))
            .collect();
        let copied = self.state.entries.values().any(|other| {
            other.parent == entry.parent
                && other.fingerprint == Some(content.fingerprint)
                && copies.contains(&other.name)
        });
        if copied {
            return Ok(Before::This(0));
        }
        // Uploaded from this directory over the version that was agreed on, all of them: what is here was
        // made from the last one. Without such a version it may have been made from anything.
        let ours = |one: &&FileVersion| {
            let here = one.device == self.state.device && one.created_by == self.actor.user;
            here && one.session_id.is_some()
        };
        match later.first() {
            Some(last) if base > 0 && later.iter().all(ours) => Ok(Before::Ours(last.version)),
            _ => Ok(Before::Others),
        }
    }

    async fn upload(
        &mut self,
        path: &RelPath,
        content: &Chunked,
        stamp: Stamp,
        target: &Target,
    ) -> Result<Publication, SyncError> {
        let (file, now) = self.folder.read(path)?;
        if now != stamp {
            return Err(LocalError::Busy(path.to_string()).into());
        }
        let file = Arc::new(file);
        let request = UploadRequest::from(content);
        let mut offsets: HashMap<ChunkHash, u64> = HashMap::new();
        for (at, chunk) in content.placed() {
            offsets.entry(chunk.hash).or_insert(at);
        }
        let mut published = Publication::Expired;
        for _ in 0..MOST_STARTS {
            let device = self.state.device.clone();
            // An upload that was interrupted goes on: only what is still missing is sent.
            let started = self
                .retry(|| self.store.start_upload(&self.actor, &device, &request))
                .await?;
            let session = started.session.session_id;
            let mut missing = started.missing;
            for _ in 0..MOST_STARTS {
                let sent = self.send_chunks(path, &file, &offsets, &session, missing);
                match sent.await {
                    // Ended meanwhile: nothing of it holds.
                    Err(SyncError::Store(FileSyncError::NotFound("upload"))) => break,
                    sent => sent?,
                }
                published = self
                    .retry(|| self.store.publish(&self.actor, &session, target))
                    .await?;
                match &published {
                    // The collector took what nobody had pinned.
                    Publication::Incomplete { missing: left } => missing = left.clone(),
                    Publication::Expired => break,
                    _ => return Ok(published),
                }
            }
        }
        Ok(published)
    }

    /// Sends chunks until the store has made sure of all of them.
    async fn send_chunks(
        &mut self,
        path: &RelPath,
        file: &Arc<File>,
        offsets: &HashMap<ChunkHash, u64>,
        session: &str,
        mut missing: Vec<ChunkRef>,
    ) -> Result<(), SyncError> {
        let mut pause = self.settings.pause;
        let total = missing.iter().map(|chunk| u64::from(chunk.length)).sum();
        let mut done = 0;
        for attempt in 0..self.settings.attempts {
            if missing.is_empty() {
                return Ok(());
            }
            if attempt > 0 {
                self.wait(&mut pause).await;
            }
            let mut left = Vec::new();
            for batch in missing.chunks(2 * self.settings.transfers) {
                let hashes: Vec<ChunkHash> = batch.iter().map(|chunk| chunk.hash).collect();
                let addresses = self
                    .retry(|| self.store.upload_addresses(&self.actor, session, &hashes))
                    .await?;
                let by_hash: HashMap<ChunkHash, &ChunkRef> =
                    batch.iter().map(|chunk| (chunk.hash, chunk)).collect();
                let sends = addresses.into_iter().filter_map(|address| {
                    let chunk = **by_hash.get(&address.hash)?;
                    let at = *offsets.get(&address.hash)?;
                    Some((address, chunk, at))
                });
                let sent: Vec<Result<(), SyncError>> = stream::iter(sends)
                    .map(|(address, chunk, at)| self.send_chunk(path, file, address, chunk, at))
                    .buffer_unordered(self.settings.transfers)
                    .collect()
                    .await;
                // A file that changed is not published; what did not arrive is asked for below.
                let mut told = sent.into_iter().filter_map(Result::err);
                if let Some(error) = told.find(|error| !error.is_outage()) {
                    return Err(error);
                }
                let confirmed = self
                    .retry(|| self.store.confirm_chunks(&self.actor, session, &hashes))
                    .await?;
                for (hash, confirmed) in confirmed {
                    let Some(chunk) = by_hash.get(&hash) else {
                        continue;
                    };
                    match confirmed {
                        Confirmed::Present => {
                            self.report.chunks_sent += 1;
                            self.report.bytes_sent += u64::from(chunk.length);
                            done += u64::from(chunk.length);
                        }
                        Confirmed::NotUploaded | Confirmed::WrongContent => left.push(**chunk),
                    }
                }
                self.show(path, done, total);
            }
            missing = left;
        }
        match missing.is_empty() {
            true => Ok(()),
            false => Err(SyncError::Transfer("sent")),
        }
    }

    async fn send_chunk(
        &self,
        path: &RelPath,
        file: &Arc<File>,
        address: Address,
        chunk: ChunkRef,
        at: u64,
    ) -> Result<(), SyncError> {
        let file = Arc::clone(file);
        let read = self
            .on_thread(move |_, _| {
                let mut bytes = vec![0; chunk.length as usize];
                file.read_exact_at(&mut bytes, at).ok()?;
                // Written to since it was scanned: this is not the file that was to be sent.
                (ChunkRef::of(&bytes) == chunk).then_some(bytes)
            })
            .await;
        let bytes = read.ok_or_else(|| LocalError::Busy(path.to_string()))?;
        let mut request = self.http.put(&address.url).body(bytes);
        for (name, value) in &address.headers {
            request = request.header(name, value);
        }
        let limit = time_to_send(chunk.length as usize, &self.settings);
        match tokio::time::timeout(limit, request.send()).await {
            Ok(Ok(answer)) if answer.status().is_success() => Ok(()),
            _ => Err(SyncError::Transfer("sent")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight chunks of a mebibyte take 128 s at half a megabit a second.
    #[test]
    fn a_slow_line_has_time_for_all_chunks_that_share_it() {
        let settings = Settings::default();
        assert_eq!((settings.transfers, settings.sizes.max), (8, 1 << 20));
        assert!(time_to_send(1 << 20, &settings) > Duration::from_secs(8 * 16));
        assert!(time_to_send(1_000, &settings) <= settings.stall);
    }
}
