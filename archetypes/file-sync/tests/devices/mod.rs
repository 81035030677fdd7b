//! Two devices, a store between them, and directories to look into.
#![allow(dead_code, clippy::unwrap_used)]

use cloud::Cloud;
use cloud::tap::{Call, Plan, Request, Verdict};
use file_sync::chunking::{Chunker, Sizes};
use file_sync::sync::{Device, Report, Settings, SyncError};
use file_sync::{Actor, ChunkHash, FileSync, tables};
use futures::future::BoxFuture;
use indicatif::ProgressBar;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tempfile::TempDir;

/// A cloud with the tables and the bucket.
pub async fn cloud() -> Cloud {
    let cloud = cloud::connect_for_tests().await.unwrap();
    cloud.create_tables(tables::TABLES).await.unwrap();
    cloud.create_bucket(tables::BUCKET).await.unwrap();
    cloud
}

/// Small chunks, no pauses, nothing synced to disk, one call at a time: the same in every run.
pub fn settings() -> Settings {
    Settings {
        sizes: Sizes::TINY,
        transfers: 1,
        attempts: 6,
        pause: Duration::ZERO,
        stall: Duration::from_secs(60),
        durable: false,
        progress: ProgressBar::hidden(),
    }
}

/// What a directory holds: files with their content, folders without.
pub type Tree = BTreeMap<String, Option<Vec<u8>>>;

/// Two directories that are to be alike.
pub struct Devices {
    pub cloud: Cloud,
    pub actor: Actor,
    pub directories: [TempDir; 2],
}

impl Devices {
    pub fn on(cloud: &Cloud, tenant: &str) -> Self {
        Self {
            cloud: cloud.clone(),
            actor: Actor::new(tenant, "ann"),
            directories: [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()],
        }
    }

    pub async fn new() -> Self {
        Self::on(&cloud().await, "tenant")
    }

    pub fn store(&self) -> FileSync {
        FileSync::new(self.cloud.clone())
    }

    pub fn at(&self, device: usize, path: &str) -> PathBuf {
        self.directories[device].path().join(path)
    }

    pub fn write(&self, device: usize, path: &str, content: impl AsRef<[u8]>) {
        let at = self.at(device, path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        fs::write(at, content).unwrap();
    }

    pub fn read(&self, device: usize, path: &str) -> String {
        fs::read_to_string(self.at(device, path)).unwrap()
    }

    pub async fn open(&self, device: usize) -> Result<Device, SyncError> {
        self.open_with(device, settings()).await
    }

    pub async fn open_with(&self, device: usize, settings: Settings) -> Result<Device, SyncError> {
        let name = ["laptop", "phone"][device];
        let directory = self.directories[device].path();
        Device::open(
            self.store(),
            self.actor.clone(),
            Some(name),
            "files",
            directory,
            settings,
        )
        .await
    }

    /// As one run of the command does it.
    pub async fn try_sync(&self, device: usize) -> Result<Report, SyncError> {
        self.open(device).await?.sync().await
    }

    /// A sync that leaves nothing undone.
    pub async fn sync(&self, device: usize) -> Report {
        let report = self.try_sync(device).await.unwrap();
        assert!(report.problems.is_empty() && report.settled, "{report:#?}");
        report
    }

    /// Until both have nothing to do.
    pub async fn settle(&self) {
        for _ in 0..8 {
            let reports = [self.sync(0).await, self.sync(1).await];
            if reports.iter().all(Report::is_idle) {
                return;
            }
        }
        panic!("they go on and on");
    }

    pub fn tree(&self, device: usize) -> Tree {
        let mut tree = Tree::new();
        walk(self.directories[device].path(), "", &mut tree);
        tree
    }

    /// Half-written files.
    pub fn leftovers(&self, device: usize) -> usize {
        let names = fs::read_dir(self.at(device, ".file-sync")).unwrap();
        let aside = names.filter(|entry| {
            let name = entry.as_ref().unwrap().file_name();
            let name = name.to_str().unwrap();
            name.starts_with("part-") || name.starts_with("swap-")
        });
        aside.count()
    }

    /// Everything that any version of any file, also of deleted ones, has as its content.
    pub async fn history(&self) -> BTreeSet<ChunkHash> {
        let store = FileSync::new(self.cloud.beside_tap());
        let mut cursor = 0;
        let mut files = BTreeSet::new();
        loop {
            let page = store.changes(&self.actor, "auditor", cursor).await.unwrap();
            let changed = page.changes.iter().map(|change| &change.entry);
            files.extend(
                changed
                    .filter(|entry| entry.kind == file_sync::Kind::File)
                    .map(|entry| entry.entry_id.clone()),
            );
            cursor = page.cursor;
            if !page.more {
                break;
            }
        }
        let mut contents = BTreeSet::new();
        for file in &files {
            let log = store.log(&self.actor, file).await.unwrap();
            contents.extend(log.iter().map(|version| version.fingerprint));
        }
        contents
    }
}

fn walk(at: &Path, prefix: &str, tree: &mut Tree) {
    for entry in fs::read_dir(at).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if name == ".file-sync" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            walk(&entry.path(), &format!("{name}/"), tree);
            tree.insert(name, None);
        } else {
            tree.insert(name, Some(fs::read(entry.path()).unwrap()));
        }
    }
}

pub fn fingerprint(content: &[u8]) -> ChunkHash {
    Chunker::new(Sizes::TINY)
        .chunk(content)
        .unwrap()
        .fingerprint
}

/// Does something at the n-th call: before it leaves, or after it was carried out.
pub struct AtCall {
    left: AtomicUsize,
    before: bool,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// Whether the call then hangs for ever, as for a process that is dead.
    dies: bool,
    /// Only calls of which this is a part of the description count.
    only: &'static str,
}

impl AtCall {
    pub fn new(
        number: usize,
        before: bool,
        dies: bool,
        act: impl FnOnce() + Send + 'static,
    ) -> Self {
        Self {
            left: AtomicUsize::new(number),
            before,
            act: Mutex::new(Some(Box::new(act))),
            dies,
            only: "",
        }
    }

    pub fn only(mut self, operation: &'static str) -> Self {
        self.only = operation;
        self
    }

    fn counts(&self, request: &Request) -> bool {
        request.operation.contains(self.only)
    }

    async fn reached(&self) {
        let act = self.act.lock().unwrap().take();
        if let Some(act) = act {
            act();
            if self.dies {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Counts down; whether this call is the one.
    fn is_it(&self) -> bool {
        let count = |left: usize| left.checked_sub(1);
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, count)
            .is_ok_and(|was| was == 1)
    }
}

impl Plan for AtCall {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if self.before && self.counts(request) && self.is_it() {
                self.reached().await;
            }
            Verdict::Pass
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if !self.before && self.counts(&call.request) && self.is_it() {
                self.reached().await;
            }
        })
    }
}

/// How many different chunks a content has.
pub fn chunks(content: &[u8]) -> u64 {
    let chunked = Chunker::new(Sizes::TINY).chunk(content).unwrap();
    let hashes: BTreeSet<ChunkHash> = chunked.chunks.iter().map(|chunk| chunk.hash).collect();
    hashes.len() as u64
}
