//! A client that remembers its session, as devices do, and what must be left when all is over.
#![allow(dead_code, clippy::unwrap_used)]

use super::*;
use file_sync::FileSyncError;
use file_sync::domain::{SESSION_KEPT, SESSION_LASTS};
use std::sync::Mutex;
use std::time::Duration;

/// A drive, somebody at it, and what they have in hand.
pub struct Desk {
    pub drive: Drive,
    /// What was there before the story began.
    pub things: Vec<Entry>,
    /// The session that the device has written down, as soon as it was told of it.
    journal: Mutex<Option<String>>,
    http: reqwest::Client,
}

impl World for Desk {
    fn cloud(&self) -> &Cloud {
        self.drive.cloud()
    }
}

impl Desk {
    pub fn at(drive: Drive, things: Vec<Entry>) -> Self {
        Self {
            drive,
            things,
            journal: Mutex::default(),
            http: reqwest::Client::new(),
        }
    }

    /// The id of what was there before the story began.
    pub fn id(&self, thing: usize) -> EntryId {
        self.things[thing].entry_id.clone()
    }

    pub fn later(&self, millis: i64) {
        let clock = self.cloud().clock();
        clock.advance(Duration::from_millis(millis as u64));
    }

    pub fn note(&self, session_id: &str) {
        *self.journal.lock().unwrap() = Some(session_id.to_owned());
    }

    pub fn noted(&self) -> Option<String> {
        self.journal.lock().unwrap().clone()
    }

    /// What a client does with a file: start, send what is missing, publish.
    pub async fn sends(
        &self,
        pieces: &[&'static str],
        target: &Target,
    ) -> Result<Publication, FileSyncError> {
        let (sync, alice) = (&self.drive.sync, self.drive.alice());
        let request = request(pieces);
        let started = sync.start_upload(&alice, "laptop", &request).await?;
        let id = started.session.session_id;
        self.note(&id);
        self.carry(&id, &started.missing, pieces).await?;
        sync.publish(&alice, &id, target).await
    }

    async fn carry(
        &self,
        id: &str,
        missing: &[ChunkRef],
        pieces: &[&'static str],
    ) -> Result<(), FileSyncError> {
        let (sync, alice) = (&self.drive.sync, self.drive.alice());
        if missing.is_empty() {
            return Ok(());
        }
        let hashes: Vec<_> = missing.iter().map(|chunk| chunk.hash).collect();
        let http = self.cloud().http(self.http.clone());
        for address in sync.upload_addresses(&alice, id, &hashes).await? {
            let piece = pieces
                .iter()
                .find(|piece| chunk(piece).hash == address.hash);
            // A client sends it again when it hears nothing.
            for _ in 0..3 {
                let mut put = http.put(&address.url).body(*piece.unwrap());
                for (name, value) in &address.headers {
                    put = put.header(name, value);
                }
                if put
                    .send()
                    .await
                    .is_ok_and(|answer| answer.status().is_success())
                {
                    break;
                }
            }
        }
        let confirmed = sync.confirm_chunks(&alice, id, &hashes).await?;
        for (hash, outcome) in confirmed {
            assert_eq!(outcome, Confirmed::Present, "{hash:?}");
        }
        Ok(())
    }

    /// The client that was interrupted goes on with the session it knows, or by the file's fingerprint.
    pub async fn asks_again(&self, pieces: &[&'static str], target: &Target) -> Publication {
        let mut last = None;
        for _ in 0..5 {
            match self.goes_on(pieces, target).await {
                Ok(Publication::Expired) | Err(FileSyncError::NotFound("upload")) => {
                    *self.journal.lock().unwrap() = None;
                }
                Ok(publication) => return publication,
                Err(fault) => last = Some(fault),
            }
        }
        panic!("never answered: {last:?}");
    }

    /// Publishes the session that it knows, or whatever has to be done first.
    pub async fn goes_on(
        &self,
        pieces: &[&'static str],
        target: &Target,
    ) -> Result<Publication, FileSyncError> {
        let (sync, alice) = (&self.drive.sync, self.drive.alice());
        let Some(id) = self.noted() else {
            return self.sends(pieces, target).await;
        };
        let tried = sync.publish(&alice, &id, target).await?;
        let Publication::Incomplete { .. } = tried else {
            return Ok(tried);
        };
        let started = sync.resume_upload(&alice, &id).await?;
        self.carry(&id, &started.missing, pieces).await?;
        sync.publish(&alice, &id, target).await
    }

    /// Whether some version has this content.
    pub async fn kept(&self, pieces: &[&str]) -> Result<(), String> {
        let fingerprint = request(pieces).fingerprint;
        let versions = self.drive.versions().await;
        match versions.iter().any(|one| one.fingerprint == fingerprint) {
            true => Ok(()),
            false => Err(format!("the edit {pieces:?} is lost")),
        }
    }

    /// Days pass, the collector comes by; then all holds, and nothing is left over.
    pub async fn ends_well(&self) -> Result<(), String> {
        self.days_pass().await?;
        self.drive.invariants().await?;
        self.drive.nothing_is_left_over().await
    }

    pub async fn days_pass(&self) -> Result<(), String> {
        self.later(SESSION_LASTS + SESSION_KEPT);
        let sync = self.drive.beside();
        let collected = sync.garbage_collect(&self.drive.tenant, false).await;
        let stumbled = |error: FileSyncError| format!("the collector stumbles: {error}");
        collected.map_err(stumbled)?;
        Ok(())
    }
}

impl Drive {
    /// Once no upload is under way and the collector was there: what versions reach, and nothing else.
    pub async fn nothing_is_left_over(&self) -> Result<(), String> {
        let none = |what: &str, left: Vec<String>| match left.is_empty() {
            true => Ok(()),
            false => Err(format!("{what} for ever: {left:?}")),
        };
        let sessions = self.sessions().await.into_iter();
        none("sessions", sessions.map(|one| one.session_id).collect())?;
        none("garbage", vec!["blobs".into(); self.garbage().await])?;
        let mut named = BTreeSet::new();
        let mut reached = BTreeSet::new();
        for version in self.versions().await {
            let manifest = self.object(&version.manifest_key).await.unwrap_or_default();
            let manifest = file_sync::Manifest::decode(&manifest).unwrap();
            reached.extend(manifest.chunks.iter().map(|chunk| chunk.hash));
            named.insert(version.manifest_key);
        }
        for chunk in self.chunks().await {
            if !chunk.pins.is_empty() {
                return Err(format!("pinned for ever by {:?}", chunk.pins));
            }
            if !reached.contains(&chunk.hash) {
                return Err(format!("{:?} is kept for nobody, for ever", chunk.hash));
            }
            named.insert(chunk.blob_key);
        }
        let objects = self.objects().await;
        none("objects", objects.difference(&named).cloned().collect())
    }
}
