//! A drive to try things on, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

pub mod client;

use chaos::World;
use cloud::item::{all_items, from_item, s};
use cloud::{Cloud, Item};
use file_sync::chunking::Chunked;
use file_sync::domain::{fingerprint, folded};
use file_sync::items::ContentChunk;
use file_sync::{
    Actor, Change, ChunkHash, ChunkRef, Confirmed, Created, Entry, EntryId, EntryStatus, FileSync,
    FileVersion, Kind, Publication, Shards, Target, UploadRequest,
};
use std::collections::{BTreeMap, BTreeSet};

/// One shard of each: every order of calls is run, so there should be few.
pub const ONE: Shards = Shards {
    entries: 1,
    chunks: 1,
    sessions: 1,
};

/// A store with a tenant of its own.
pub struct Drive {
    pub sync: FileSync,
    pub tenant: String,
}

impl World for Drive {
    fn cloud(&self) -> &Cloud {
        self.sync.cloud()
    }
}

pub async fn open() -> Drive {
    open_on(cloud::connect_for_tests().await.unwrap()).await
}

pub async fn open_on(cloud: Cloud) -> Drive {
    let (tables, bucket) = (
        cloud.create_tables(file_sync::tables::TABLES),
        cloud.create_bucket(file_sync::tables::BUCKET),
    );
    let (tables, bucket) = futures::join!(tables, bucket);
    tables.unwrap();
    bucket.unwrap();
    another_on(cloud)
}

/// Another tenant on a cloud that has the tables.
pub fn another_on(cloud: Cloud) -> Drive {
    Drive {
        tenant: cloud.ids().next("tenant"),
        sync: FileSync::with_shards(cloud, ONE),
    }
}

/// The upload of these pieces, each a chunk.
pub fn request(pieces: &[&str]) -> UploadRequest {
    let chunks = pieces.iter().map(|piece| chunk(piece)).collect();
    UploadRequest::from(&Chunked::of(chunks))
}

pub fn chunk(piece: &str) -> ChunkRef {
    ChunkRef::of(piece.as_bytes())
}

pub fn new(name: &str) -> Target {
    new_in(&EntryId::root(), name)
}

pub fn new_in(parent: &EntryId, name: &str) -> Target {
    Target::New {
        parent: parent.clone(),
        name: name.to_owned(),
    }
}

pub fn edit_of(entry: &Entry) -> Target {
    Target::Existing {
        entry: entry.entry_id.clone(),
        base_version: entry.version,
    }
}

impl Drive {
    pub fn actor(&self, user: &str) -> Actor {
        Actor::new(&self.tenant, user)
    }

    pub fn alice(&self) -> Actor {
        self.actor("alice")
    }

    pub fn bob(&self) -> Actor {
        self.actor("bob")
    }

    /// The same, beside the tap: looking and setting up is not part of any story.
    pub fn beside(&self) -> FileSync {
        FileSync::with_shards(self.sync.cloud().beside_tap(), ONE)
    }

    /// Puts bytes where the client of a session would put this chunk.
    pub async fn stage(&self, session_id: &str, hash: &ChunkHash, bytes: &str) {
        let cloud = self.sync.cloud().beside_tap();
        cloud
            .s3()
            .put_object()
            .bucket(cloud.names().bucket(file_sync::tables::BUCKET))
            .key(format!(
                "{}/staging/{session_id}/{}",
                self.tenant,
                hash.in_key()
            ))
            .body(bytes.as_bytes().to_vec().into())
            .send()
            .await
            .unwrap();
    }

    /// Uploads what is missing of these pieces; the session is ready to be published.
    pub async fn upload(&self, actor: &Actor, device: &str, pieces: &[&str]) -> String {
        let sync = self.beside();
        let started = sync.start_upload(actor, device, &request(pieces)).await;
        let started = started.unwrap();
        let id = started.session.session_id;
        for missing in &started.missing {
            let piece = pieces.iter().find(|piece| chunk(piece) == *missing);
            self.stage(&id, &missing.hash, piece.unwrap()).await;
        }
        let hashes: Vec<_> = started.missing.iter().map(|chunk| chunk.hash).collect();
        let confirmed = sync.confirm_chunks(actor, &id, &hashes).await.unwrap();
        assert!(
            confirmed
                .iter()
                .all(|(_, outcome)| *outcome == Confirmed::Present)
        );
        id
    }

    /// A new file, published.
    pub async fn file(
        &self,
        actor: &Actor,
        parent: &EntryId,
        name: &str,
        pieces: &[&str],
    ) -> Entry {
        let id = self.upload(actor, "laptop", pieces).await;
        let published = self
            .beside()
            .publish(actor, &id, &new_in(parent, name))
            .await
            .unwrap();
        let Publication::Published { entry, .. } = published else {
            panic!("{published:?}");
        };
        entry
    }

    /// A new version of a file, published.
    pub async fn edit(&self, actor: &Actor, entry: &Entry, pieces: &[&str]) -> Entry {
        let id = self.upload(actor, "laptop", pieces).await;
        let published = self.beside().publish(actor, &id, &edit_of(entry)).await;
        let Publication::Published { entry, .. } = published.unwrap() else {
            panic!("not published");
        };
        entry
    }

    pub async fn folder(&self, actor: &Actor, parent: &EntryId, name: &str) -> Entry {
        let created = self
            .beside()
            .create_folder(actor, "laptop", parent, name)
            .await
            .unwrap();
        let Created::Folder(entry) = created else {
            panic!("{created:?}");
        };
        entry
    }

    /// The bytes of a version, from the store, as text.
    pub async fn content(&self, actor: &Actor, entry: &EntryId, version: Option<u64>) -> String {
        let plan = self.beside().download(actor, entry, version).await.unwrap();
        let mut bytes = Vec::new();
        for chunk in &plan.manifest.chunks {
            bytes.extend(self.blob(&chunk.hash).await.unwrap());
        }
        String::from_utf8(bytes).unwrap()
    }

    /// The bytes of a chunk, if it is there.
    pub async fn blob(&self, hash: &ChunkHash) -> Option<Vec<u8>> {
        let chunks = self.chunks().await;
        let chunk = chunks.iter().find(|chunk| chunk.hash == *hash)?;
        self.object(&chunk.blob_key).await
    }

    pub async fn object(&self, key: &str) -> Option<Vec<u8>> {
        let cloud = self.sync.cloud().beside_tap();
        let bucket = cloud.names().bucket(file_sync::tables::BUCKET);
        let got = cloud.s3().get_object().bucket(bucket).key(key).send().await;
        Some(got.ok()?.body.collect().await.unwrap().to_vec())
    }

    /// The keys of all objects of the tenant.
    pub async fn objects(&self) -> BTreeSet<String> {
        let cloud = self.sync.cloud().beside_tap();
        let bucket = cloud.names().bucket(file_sync::tables::BUCKET);
        let list = cloud.s3().list_objects_v2().bucket(bucket);
        let listed = list
            .prefix(format!("{}/", self.tenant))
            .send()
            .await
            .unwrap();
        let keys = listed.contents().iter();
        keys.map(|object| object.key.clone().unwrap()).collect()
    }

    async fn items(&self, table: &str, key: &str, value: &str) -> Vec<Item> {
        let cloud = self.sync.cloud().beside_tap();
        let query = cloud
            .dynamodb()
            .query()
            .table_name(cloud.names().table(table))
            .key_condition_expression("#key = :key")
            .expression_attribute_names("#key", key)
            .expression_attribute_values(":key", s(value))
            .consistent_read(true);
        all_items(query).await.unwrap()
    }

    async fn shard(&self, table: &str) -> Vec<Item> {
        self.items(table, "tenant_shard", &format!("{}#0", self.tenant))
            .await
    }

    pub async fn entries(&self) -> Vec<Entry> {
        let items = self.shard("entries").await;
        items.iter().map(|item| from_item(item).unwrap()).collect()
    }

    pub async fn entry(&self, id: &EntryId) -> Entry {
        let entries = self.entries().await;
        entries
            .into_iter()
            .find(|entry| entry.entry_id == *id)
            .unwrap()
    }

    pub async fn versions(&self) -> Vec<FileVersion> {
        let items = self.shard("versions").await;
        items.iter().map(|item| from_item(item).unwrap()).collect()
    }

    pub async fn sessions(&self) -> Vec<file_sync::UploadSession> {
        let items = self.shard("upload_sessions").await;
        items.iter().map(|item| from_item(item).unwrap()).collect()
    }

    pub async fn chunks(&self) -> Vec<ContentChunk> {
        let items = self.shard("chunks").await;
        let read = |item: &Item| {
            let mut plain = item.clone();
            let pins = plain.remove("pins");
            let pins = pins.and_then(|pins| pins.as_ss().ok().cloned());
            ContentChunk {
                pins: pins.unwrap_or_default().into_iter().collect(),
                ..from_item(&plain).unwrap()
            }
        };
        items.iter().map(read).collect()
    }

    pub async fn garbage(&self) -> usize {
        self.items("garbage", "tenant", &self.tenant).await.len()
    }

    pub async fn feed(&self, user: &str) -> Vec<Change> {
        let namespace = format!("{}#{user}", self.tenant);
        let items = self.items("changes", "namespace", &namespace).await;
        items.iter().map(|item| from_item(item).unwrap()).collect()
    }

    /// Everything that must hold, however the story went.
    pub async fn invariants(&self) -> Result<(), String> {
        self.versions_reassemble().await?;
        self.namespace_is_a_tree().await?;
        self.feed_tells_all().await
    }

    /// Every version that is kept reassembles byte for byte into what it was said to be.
    pub async fn versions_reassemble(&self) -> Result<(), String> {
        let chunks: BTreeMap<_, _> = self
            .chunks()
            .await
            .into_iter()
            .map(|chunk| (chunk.hash, chunk))
            .collect();
        for version in self.versions().await {
            let of = format!("version {} of {}", version.version, version.entry_id);
            let manifest = self.object(&version.manifest_key).await;
            let manifest = manifest.ok_or(format!("{of} has no manifest"))?;
            let manifest = file_sync::Manifest::decode(&manifest).ok_or("no manifest")?;
            let mut size = 0;
            for chunk in &manifest.chunks {
                let missing = || format!("{of} lacks {:?}", chunk.hash);
                let found = chunks.get(&chunk.hash).ok_or_else(missing)?;
                let bytes = self.object(&found.blob_key).await.ok_or_else(missing)?;
                if ChunkRef::of(&bytes) != *chunk {
                    return Err(format!("{of} has other bytes in {:?}", chunk.hash));
                }
                size += bytes.len() as u64;
            }
            if fingerprint(&manifest.chunks) != version.fingerprint || size != version.size {
                return Err(format!("{of} is not what it was said to be"));
            }
        }
        Ok(())
    }

    /// Live entries have their name and a live folder, folders count right, nothing is in a circle, and
    /// the head is a version.
    pub async fn namespace_is_a_tree(&self) -> Result<(), String> {
        let entries: BTreeMap<_, _> = self
            .entries()
            .await
            .into_iter()
            .map(|entry| (entry.entry_id.clone(), entry))
            .collect();
        let versions: BTreeSet<_> = self
            .versions()
            .await
            .into_iter()
            .map(|version| (version.entry_id, version.version))
            .collect();
        let mut count: BTreeMap<EntryId, u64> = BTreeMap::new();
        let mut names: BTreeMap<(String, String), EntryId> = BTreeMap::new();
        let mut folders = BTreeSet::new();
        for entry in entries.values() {
            let who = format!("{} '{}'", entry.entry_id, entry.name);
            if entry.kind == Kind::File
                && !versions.contains(&(entry.entry_id.clone(), entry.version))
            {
                return Err(format!("the head of {who} is no version"));
            }
            let folder = match entry.parent.is_root() {
                true => format!("{}#{}#root", self.tenant, entry.owner),
                false => format!("{}#{}", self.tenant, entry.parent),
            };
            folders.insert(folder.clone());
            if entry.status != EntryStatus::Live {
                continue;
            }
            if !entry.parent.is_root() {
                *count.entry(entry.parent.clone()).or_default() += 1;
                let parent = entries.get(&entry.parent);
                if parent.is_none_or(|parent| parent.status != EntryStatus::Live) {
                    return Err(format!("{who} is nowhere: its folder is gone"));
                }
            }
            let key = (folder, folded(&entry.name));
            if let Some(other) = names.insert(key, entry.entry_id.clone()) {
                return Err(format!("{who} has the name of {other}"));
            }
            let mut at = entry;
            for step in 0.. {
                if at.parent.is_root() {
                    break;
                }
                if step > entries.len() {
                    return Err(format!("{who} is in a circle"));
                }
                at = &entries[&at.parent];
            }
        }
        for entry in entries.values() {
            let children = count.get(&entry.entry_id).copied().unwrap_or(0);
            if entry.children != children {
                return Err(format!(
                    "{} says {} children and has {children}",
                    entry.entry_id, entry.children
                ));
            }
        }
        for folder in folders {
            for row in self.items("names", "folder", &folder).await {
                let text = |name: &str| row[name].as_s().unwrap().clone();
                let key = (folder.clone(), text("folded"));
                let has = names.remove(&key).map(|id| id.0);
                if has != Some(text("entry_id")) {
                    return Err(format!("the name {key:?} is kept for nobody"));
                }
            }
        }
        match names.into_iter().next() {
            None => Ok(()),
            Some((key, id)) => Err(format!("{id} is not found by its name {key:?}")),
        }
    }

    /// Feeds have no gaps, and whoever has read one to its end knows every entry as it is.
    pub async fn feed_tells_all(&self) -> Result<(), String> {
        let entries = self.entries().await;
        let owners: BTreeSet<_> = entries.iter().map(|entry| entry.owner.clone()).collect();
        for owner in owners {
            let feed = self.feed(&owner).await;
            let numbers: Vec<_> = feed.iter().map(|change| change.sequence).collect();
            let expected: Vec<_> = (1..=numbers.len() as u64).collect();
            if numbers != expected {
                return Err(format!("the feed of {owner} is {numbers:?}"));
            }
            let namespace = format!("{}#{owner}", self.tenant);
            let counter = self.items("namespaces", "namespace", &namespace).await;
            let counter = counter
                .first()
                .map(|item| item["sequence"].as_n().unwrap().clone());
            if counter.as_deref().unwrap_or("0") != numbers.len().to_string() {
                return Err(format!("the counter of {owner} is {counter:?}"));
            }
            let mut told: BTreeMap<EntryId, Entry> = BTreeMap::new();
            for change in feed {
                told.insert(change.entry.entry_id.clone(), change.entry);
            }
            for entry in entries.iter().filter(|entry| entry.owner == owner) {
                // A folder's count changes without a line of its own.
                let like = |entry: &Entry| Entry {
                    children: 0,
                    ..entry.clone()
                };
                let last = told.get(&entry.entry_id).map(like);
                if entry.status != EntryStatus::Purged && last.as_ref() != Some(&like(entry)) {
                    return Err(format!("the feed ends with {last:?}, but it is {entry:?}"));
                }
            }
        }
        Ok(())
    }
}
