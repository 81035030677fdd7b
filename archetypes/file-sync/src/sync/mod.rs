//! Sync: a directory here and a folder of the store become alike.
//!
//! A round reads the store's changes to their end, scans the directory, and decides for every path by
//! comparing three trees ([`plan`]): the store's, the directory's, and what the two last agreed on. Rounds
//! follow until one finds nothing to do. A round may be cut off anywhere: whatever it had done is found
//! by the next one, because content that is already there is recognized and taken as it is.
//!
//! [`tree`] reads the store's changes, [`send`] publishes what changed here, [`rename`] moves there what was
//! renamed here, [`fetch`] gets what changed there.

pub mod fetch;
pub mod plan;
pub mod rename;
pub mod send;
pub mod tree;

use crate::chunking::{Chunker, Sizes};
use crate::domain::{Actor, EntryId, Kind, check_id, conflict_name};
use crate::local::scan::{Scan, scan};
use crate::local::state::{KnownFile, RemoteEntry};
use crate::local::{DeviceState, Folder, Found, Known, LocalError, RelPath};
use crate::{Created, Deletion, FileSync, FileSyncError, Taken};
use cloud::CloudError;
use indicatif::ProgressBar;
use plan::{Here, Step, decide};
use reqwest_middleware::ClientWithMiddleware;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tree::Tree;

/// Why something was not synced.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The directory said no.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The store said no, or nothing.
    #[error(transparent)]
    Store(#[from] FileSyncError),
    /// A chunk could not be sent or fetched.
    #[error("a chunk could not be {0}; it is tried again in the next sync")]
    Transfer(&'static str),
    /// A chunk that is not what it is called.
    #[error("refused: chunk {0} of the store does not have the content that its name promises")]
    Tampered(crate::ChunkHash),
    /// The name is taken by one that differs in case or composition only.
    #[error("there is '{0}' in the store already: on other devices the two would be one file")]
    Collision(String),
    /// A folder is where a file should be, or the other way round.
    #[error("there is a file where a folder should be, or a folder where a file should be")]
    OtherKind,
    /// Synced with another remote before.
    #[error("this directory is synced with {is}, not with {asked}")]
    OtherRemote {
        /// What it is synced with.
        is: String,
        /// What was asked for.
        asked: String,
    },
    /// Another device's directory.
    #[error("this directory is the device '{is}', not '{asked}'")]
    OtherDevice {
        /// Its name.
        is: String,
        /// What was asked for.
        asked: String,
    },
    /// The folder that this was synced with is gone, or this is another store.
    #[error(
        "this store does not have the folder that the directory was synced with. Is it the right store? To begin anew with it, remove '.file-sync' in the directory, which loses no file"
    )]
    RemoteGone,
}

impl SyncError {
    /// A name that is taken in the store.
    fn taken(taken: Taken, path: &RelPath) -> Self {
        if taken.name == path.name() {
            // Somebody made the same file a moment ago: the next round meets it.
            return LocalError::Busy(path.to_string()).into();
        }
        Self::Collision(taken.name)
    }

    /// Whether the store could not be reached, or did not answer.
    fn is_outage(&self) -> bool {
        matches!(
            self,
            Self::Transfer(_)
                | Self::Store(FileSyncError::Fault(
                    CloudError::Unknown(_) | CloudError::Throttled(_)
                ))
        )
    }

    /// Whether it may be otherwise after another look.
    fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Local(LocalError::Busy(_) | LocalError::NotAFolder(_))
                | Self::Store(FileSyncError::NotFound(_) | FileSyncError::Contended)
                | Self::OtherKind
        )
    }
}

/// How a device syncs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How large chunks are. The same for all devices, or they share no chunks.
    pub sizes: Sizes,
    /// How many chunks are under way at once. So many are in memory.
    pub transfers: usize,
    /// How often a call is made again when no answer comes.
    pub attempts: u32,
    /// How long it waits before the second attempt; twice as long before each after that.
    pub pause: Duration,
    /// How long the store may say nothing. Without a limit, one that accepts and never answers would hold this device
    /// and the lock of its directory.
    pub stall: Duration,
    /// Whether files are on disk before they have their names.
    pub durable: bool,
    /// Where progress is shown.
    pub progress: ProgressBar,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sizes: Sizes::DEFAULT,
            transfers: 8,
            attempts: 5,
            pause: Duration::from_millis(100),
            stall: Duration::from_secs(60),
            durable: true,
            progress: ProgressBar::hidden(),
        }
    }
}

/// What a sync did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Published: new and changed files.
    pub published: Vec<String>,
    /// Fetched: new and changed files.
    pub fetched: Vec<String>,
    /// Folders made in the store.
    pub made_there: Vec<String>,
    /// Folders made here.
    pub made_here: Vec<String>,
    /// Renamed or moved in the store, as they were here.
    pub moved: Vec<(String, String)>,
    /// Deleted in the store.
    pub deleted_there: Vec<String>,
    /// Deleted here.
    pub deleted_here: Vec<String>,
    /// Edits that met another: the file, and the name of the copy.
    pub conflicts: Vec<(String, String)>,
    /// What got another name here because something else is in its place.
    pub renamed: Vec<(String, String)>,
    /// What was not synced, and why.
    pub problems: Vec<(String, String)>,
    /// Chunks sent.
    pub chunks_sent: u64,
    /// Bytes of them.
    pub bytes_sent: u64,
    /// Chunks fetched.
    pub chunks_fetched: u64,
    /// Bytes of them.
    pub bytes_fetched: u64,
    /// Bytes that were found here, and not fetched.
    pub bytes_reused: u64,
    /// How many rounds it took.
    pub rounds: usize,
    /// Whether the last round found nothing more to do.
    pub settled: bool,
}

impl Report {
    /// Whether anything was done.
    pub fn is_idle(&self) -> bool {
        self.published.is_empty()
            && self.fetched.is_empty()
            && self.made_there.is_empty()
            && self.made_here.is_empty()
            && self.moved.is_empty()
            && self.deleted_there.is_empty()
            && self.deleted_here.is_empty()
            && self.conflicts.is_empty()
            && self.renamed.is_empty()
    }
}

/// After so many rounds somebody else is at work, and the next sync may go on.
const MOST_ROUNDS: usize = 12;
/// After so many files in a row that the store did not answer for, the run ends.
const MOST_OUTAGES: usize = 3;
/// After so many steps the state is saved.
const SAVE_EVERY: usize = 64;

/// A directory, and what it is synced with.
pub struct Device {
    store: FileSync,
    actor: Actor,
    settings: Settings,
    http: ClientWithMiddleware,
    folder: Arc<Folder>,
    chunker: Chunker,
    state: DeviceState,
    report: Report,
}

/// Work that may take its time, on a thread for such.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        Err(failed) => std::panic::resume_unwind(failed.into_panic()),
    }
}

/// Dropped with the sync: a scan on its thread then ends as well.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Device {
    /// Opens a directory for syncing with the folder `remote` of this user. The first time the folder is
    /// made if it is not there, and the device gets a name if none is given.
    pub async fn open(
        store: FileSync,
        actor: Actor,
        device: Option<&str>,
        remote: &str,
        directory: &Path,
        settings: Settings,
    ) -> Result<Self, SyncError> {
        if let Some(device) = device {
            check_id("the device", device).map_err(FileSyncError::from)?;
        }
        let chunker = Chunker::new(settings.sizes);
        // What a crash left may be large, and is read.
        let (directory, durable) = (directory.to_owned(), settings.durable);
        let cutter = chunker.clone();
        let folder = blocking(move || Folder::open(&directory, durable, &cutter)).await?;
        let asked = format!("{} of {}, tenant {}", remote, actor.user, actor.tenant);
        let saved = DeviceState::load(&folder)?;
        let client = reqwest::Client::builder().connect_timeout(settings.stall);
        let client = client.build().expect("a client as by default");
        let http = store.cloud().http(client);
        let mut opened = Self {
            http,
            chunker,
            folder: Arc::new(folder),
            state: DeviceState::new("", &asked, EntryId::root()),
            report: Report::default(),
            store,
            actor,
            settings,
        };
        match saved {
            Some(state) if state.remote != asked => {
                let is = state.remote;
                return Err(SyncError::OtherRemote { is, asked });
            }
            Some(state) => {
                if let Some(asked) = device.filter(|device| *device != state.device) {
                    return Err(SyncError::OtherDevice {
                        is: state.device,
                        asked: asked.to_owned(),
                    });
                }
                opened.state = state;
                // Another store would have no changes after our cursor, and look as if all were well.
                let root = &opened.state.root;
                let seen = opened.retry(|| opened.store.view_entry(&opened.actor, root));
                match seen.await {
                    Err(SyncError::Store(FileSyncError::NotFound(_))) => {
                        return Err(SyncError::RemoteGone);
                    }
                    seen => seen?,
                };
            }
            None => {
                // Short: it becomes part of the names of conflict copies.
                let id = opened.store.cloud().ids().next("device");
                let end = id.rsplit('-').next().unwrap_or(&id);
                let fresh = format!("device-{}", &end[end.len().saturating_sub(8)..]);
                let device = device.unwrap_or(&fresh);
                let root = opened.remote_root(device, remote).await?;
                opened.state = DeviceState::new(device, &asked, root);
                opened.state.save(&opened.folder)?;
            }
        }
        Ok(opened)
    }

    /// What the device remembers.
    pub fn state(&self) -> &DeviceState {
        &self.state
    }

    /// Saves what it remembers: for whoever stops a sync before it does so itself.
    pub fn save(&self) -> Result<(), SyncError> {
        Ok(self.state.save(&self.folder)?)
    }

    fn show(&self, path: &RelPath, done: u64, total: u64) {
        let megabytes = |bytes: u64| bytes as f64 / 1e6;
        self.settings.progress.set_message(format!(
            "{path}: {:.1} of {:.1} MB",
            megabytes(done),
            megabytes(total)
        ));
    }

    /// The folder of the store: found by its name, or made.
    async fn remote_root(&self, device: &str, remote: &str) -> Result<EntryId, SyncError> {
        let root = EntryId::root();
        let made = self
            .retry(|| self.store.create_folder(&self.actor, device, &root, remote))
            .await?;
        match made {
            Created::Folder(entry) => Ok(entry.entry_id),
            Created::NameTaken(taken) if taken.name != remote => {
                Err(SyncError::Collision(taken.name))
            }
            Created::NameTaken(taken) => {
                let entry = self
                    .retry(|| self.store.view_entry(&self.actor, &taken.entry_id))
                    .await?;
                match entry.kind {
                    Kind::Folder => Ok(entry.entry_id),
                    Kind::File => Err(SyncError::OtherKind),
                }
            }
        }
    }

    /// Makes the call again when no answer came, or the answer was to come again. Every call that a device
    /// makes may be made again: it carries an identity, or finds what it did the first time (the folder is
    /// there, the file is deleted already).
    async fn retry<T, F>(&self, call: impl Fn() -> F) -> Result<T, SyncError>
    where
        F: Future<Output = Result<T, FileSyncError>>,
    {
        let mut pause = self.settings.pause;
        let mut attempt = 1;
        loop {
            match call().await {
                Err(
                    FileSyncError::Contended
                    | FileSyncError::Fault(
                        CloudError::Unknown(_) | CloudError::Throttled(_) | CloudError::Conflict(_),
                    ),
                ) if attempt < self.settings.attempts => self.wait(&mut pause).await,
                answer => return Ok(answer?),
            }
            attempt += 1;
        }
    }

    async fn wait(&self, pause: &mut Duration) {
        if !pause.is_zero() {
            tokio::time::sleep(*pause).await;
        }
        *pause *= 2;
    }

    /// Work on files, on a thread where it may take its time.
    async fn on_thread<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder, &Chunker) -> T + Send + 'static,
    ) -> T {
        let folder = Arc::clone(&self.folder);
        let chunker = Chunker {
            stop: Arc::default(),
            ..self.chunker.clone()
        };
        let _stop = StopOnDrop(Arc::clone(&chunker.stop));
        blocking(move || work(&folder, &chunker)).await
    }

    /// Makes directory and store alike. What goes wrong with one file is told and ends nothing; an error
    /// is what concerns all of them.
    pub async fn sync(&mut self) -> Result<Report, SyncError> {
        self.report = Report::default();
        for round in 1..=MOST_ROUNDS {
            self.report.rounds = round;
            self.read_changes().await?;
            if !self.state.entries.contains_key(&self.state.root) {
                return Err(SyncError::RemoteGone);
            }
            let again = self.round().await?;
            self.state.save(&self.folder)?;
            if !again {
                self.report.settled = true;
                break;
            }
        }
        Ok(std::mem::take(&mut self.report))
    }

    /// One round; says whether another is worth it.
    async fn round(&mut self) -> Result<bool, SyncError> {
        self.settings.progress.set_message("looking for changes");
        let agreed = self.state.agreed.clone();
        let (scan, whole) = self
            .on_thread(move |folder, chunker| {
                let scan = scan(folder, &agreed, chunker);
                let whole = scan.is_whole(folder);
                (scan, whole)
            })
            .await;
        for (path, stamp, seen) in &scan.refreshed {
            if let Some(Known::File(known)) = self.state.agreed.get_mut(path) {
                known.stamp = *stamp;
                known.seen = *seen;
            }
        }
        let tree = self.state.tree();
        // Problems are those of the last round: earlier ones may have passed.
        self.report.problems.clear();
        let told = |(path, error): &(String, LocalError)| (path.clone(), error.to_string());
        self.report.problems.extend(scan.problems.iter().map(told));
        for (name, bad) in &tree.problems {
            self.report
                .problems
                .push((name.clone(), format!("in the store: {bad}")));
        }
        let mut steps = self.steps(&scan, &tree);
        let mut again = false;
        if !whole {
            // Somebody was moving things. What was not found is looked for once more before it is deleted.
            let all = steps.len();
            steps.retain(|(step, _)| !step.deletes_there());
            again = steps.len() < all;
        }
        // Within a kind of step: folders before what is in them, and the other way round for deleting.
        steps.sort_by(|(a, path_a), (b, path_b)| match a.cmp(b) {
            std::cmp::Ordering::Equal if *a >= Step::DeleteThere => path_b.cmp(path_a),
            std::cmp::Ordering::Equal => path_a.cmp(path_b),
            different => different,
        });
        self.settings.progress.set_length(steps.len() as u64);
        self.settings.progress.set_position(0);
        let mut outages = 0;
        let mut sources = None;
        for (count, (step, path)) in steps.into_iter().enumerate() {
            self.settings.progress.set_message(path.to_string());
            let done = self.step(step, &path, &scan, &tree, &mut sources).await;
            self.settings.progress.inc(1);
            match done {
                Ok(did) => {
                    again |= did;
                    outages = 0;
                }
                Err(error) => {
                    again |= error.may_pass();
                    outages = if error.is_outage() { outages + 1 } else { 0 };
                    self.report
                        .problems
                        .push((path.to_string(), error.to_string()));
                    if outages >= MOST_OUTAGES {
                        self.state.save(&self.folder)?;
                        return Err(error);
                    }
                }
            }
            if (count + 1) % SAVE_EVERY == 0 {
                self.state.save(&self.folder)?;
            }
        }
        Ok(again)
    }

    fn steps(&self, scan: &Scan, tree: &Tree) -> Vec<(Step, RelPath)> {
        let paths: BTreeSet<&RelPath> = scan
            .found
            .keys()
            .chain(self.state.agreed.keys())
            .chain(tree.by_path.keys())
            .collect();
        let mut steps = Vec::new();
        for path in paths {
            let here = match scan.found.get(path) {
                _ if scan.is_unclear(path) => Here::Unclear,
                None => Here::Nothing,
                Some(Found::Folder) => Here::Folder,
                Some(Found::Same) => Here::Same,
                Some(Found::Changed { content, .. }) => Here::Changed(content.fingerprint),
            };
            let there = self.state.there(tree, path);
            let there = there.as_ref().map(|(id, entry)| (id, entry));
            let step = decide(here, self.state.agreed.get(path), there);
            if step != Step::Leave {
                steps.push((step, path.clone()));
            }
        }
        self.with_renames(steps, scan, tree)
    }

    /// Does one thing; says whether that may leave more to do.
    async fn step(
        &mut self,
        step: Step,
        path: &RelPath,
        scan: &Scan,
        tree: &Tree,
        sources: &mut Option<fetch::Sources>,
    ) -> Result<bool, SyncError> {
        let there = self.state.there(tree, path);
        match (step, there) {
            (Step::Leave, _) => return Ok(false),
            (Step::Forget, _) => {
                self.state.agreed.remove(path);
            }
            (Step::Agree, Some((id, entry))) => self.agree(path, &id, &entry, scan),
            (Step::StepAside, _) => self.step_aside(path).await?,
            (Step::MakeFolderThere, _) => {
                self.folder_there(path).await?;
            }
            (Step::MakeFolderHere, Some((entry, _))) => {
                let here = path.clone();
                self.on_thread(move |folder, _| folder.make_folder(&here))
                    .await?;
                self.state
                    .agreed
                    .insert(path.clone(), Known::Folder { entry });
                self.report.made_here.push(path.to_string());
            }
            (Step::MoveThere(from), _) => self.move_there(&from, path, scan).await?,
            (Step::PublishNew, there) => self.send(path, scan, there).await?,
            (Step::Publish | Step::PublishConflict, Some(there)) => {
                self.send(path, scan, Some(there)).await?;
            }
            (Step::Fetch, Some((id, entry))) => {
                let sources = sources.get_or_insert_with(|| fetch::Sources::of(&self.state, scan));
                let known = match scan.found.get(path) {
                    Some(Found::Same) => self.known_file(path),
                    _ => None,
                };
                self.fetch(path, &id, &entry, known, sources).await?;
            }
            (Step::DeleteThere, Some((id, _))) => self.delete_there(path, &id).await?,
            (Step::DeleteHere, _) => self.delete_here(path).await?,
            (Step::DeleteFolderThere, Some((id, _))) => {
                let file_here = matches!(scan.found.get(path), Some(Found::Changed { .. }));
                return self.delete_folder_there(path, &id, file_here).await;
            }
            (Step::DeleteFolderHere, _) => self.delete_folder_here(path).await?,
            (Step::ClearFolderHere, _) => {
                let here = path.clone();
                let gone = self
                    .on_thread(move |folder, _| folder.remove_folder(&here))
                    .await?;
                if !gone {
                    self.step_aside(path).await?;
                }
                self.forget_below(path);
            }
            // The store's entry was decided on a moment ago, in this round.
            (_, None) => return Err(SyncError::OtherKind),
        }
        Ok(true)
    }

    fn known_file(&self, path: &RelPath) -> Option<KnownFile> {
        self.state.agreed.get(path).and_then(Known::file).cloned()
    }

    fn forget_below(&mut self, path: &RelPath) {
        self.state
            .agreed
            .retain(|other, _| other != path && !other.is_in(path));
    }

    /// Here and there it is the same already.
    fn agree(&mut self, path: &RelPath, id: &EntryId, entry: &RemoteEntry, scan: &Scan) {
        let known = match (scan.found.get(path), self.known_file(path)) {
            (Some(Found::Folder), _) => Known::Folder { entry: id.clone() },
            (
                Some(Found::Changed {
                    content,
                    stamp,
                    seen,
                }),
                _,
            ) => Known::File(KnownFile {
                entry: id.clone(),
                version: entry.version,
                fingerprint: content.fingerprint,
                chunks: content.chunks.clone(),
                stamp: *stamp,
                seen: *seen,
            }),
            (_, Some(known)) => Known::File(KnownFile {
                entry: id.clone(),
                version: entry.version,
                ..known
            }),
            (_, None) => return,
        };
        self.state.agreed.insert(path.clone(), known);
    }

    /// What is here gets another name, as a conflict copy does: something of another kind comes here.
    async fn step_aside(&mut self, path: &RelPath) -> Result<(), SyncError> {
        for count in 1..1_000 {
            let name = conflict_name(path.name(), &self.state.device, count);
            let to = RelPath::within(path.parent().as_ref(), &name).map_err(LocalError::BadPath)?;
            let (from, there) = (path.clone(), to.clone());
            if self
                .on_thread(move |folder, _| folder.rename(&from, &there))
                .await?
            {
                self.report.renamed.push((path.to_string(), to.to_string()));
                self.forget_below(path);
                return Ok(());
            }
        }
        Err(SyncError::OtherKind)
    }

    /// The store's folder that a path is in.
    async fn parent_there(&mut self, path: &RelPath) -> Result<EntryId, SyncError> {
        match path.parent() {
            Some(parent) => self.folder_there(&parent).await,
            None => Ok(self.state.root.clone()),
        }
    }

    /// The store's folder for a path, made if it is not there, with those it is in.
    async fn folder_there(&mut self, path: &RelPath) -> Result<EntryId, SyncError> {
        let mut parent = self.state.root.clone();
        for folder in path.ancestors().chain([path.clone()]) {
            if let Some((id, entry)) = self.state.child(&parent, folder.name()) {
                if entry.kind != Kind::Folder {
                    return Err(SyncError::OtherKind);
                }
                parent = id.clone();
            } else {
                let device = self.state.device.clone();
                let made = self
                    .retry(|| {
                        self.store
                            .create_folder(&self.actor, &device, &parent, folder.name())
                    })
                    .await?;
                parent = match made {
                    Created::Folder(entry) => {
                        self.report.made_there.push(folder.to_string());
                        self.state.entry_is(&entry);
                        entry.entry_id
                    }
                    Created::NameTaken(taken) if taken.name == folder.name() => {
                        // Made a moment ago, by another device or by us without an answer.
                        let entry = self
                            .retry(|| self.store.view_entry(&self.actor, &taken.entry_id))
                            .await?;
                        if entry.kind != Kind::Folder {
                            return Err(SyncError::OtherKind);
                        }
                        self.state.entry_is(&entry);
                        entry.entry_id
                    }
                    Created::NameTaken(taken) => return Err(SyncError::Collision(taken.name)),
                };
            }
            let known = Known::Folder {
                entry: parent.clone(),
            };
            self.state.agreed.insert(folder, known);
        }
        Ok(parent)
    }

    async fn delete_there(&mut self, path: &RelPath, id: &EntryId) -> Result<(), SyncError> {
        let base = self.known_file(path).map(|known| known.version);
        let device = self.state.device.clone();
        let deletion = self
            .retry(|| self.store.delete_entry(&self.actor, &device, id, base))
            .await?;
        match deletion {
            Deletion::Deleted(entry) => {
                self.state.entry_is(&entry);
                self.state.agreed.remove(path);
                self.report.deleted_there.push(path.to_string());
            }
            Deletion::Already => {
                self.state.entries.remove(id);
                self.state.agreed.remove(path);
            }
            // Edited there meanwhile: the edit wins, and is fetched in the next round.
            Deletion::Changed(entry) => self.state.entry_is(&entry),
            Deletion::NotEmpty { .. } => return Err(SyncError::OtherKind),
        }
        Ok(())
    }

    async fn delete_here(&mut self, path: &RelPath) -> Result<(), SyncError> {
        let Some(known) = self.known_file(path) else {
            return Ok(());
        };
        let here = path.clone();
        let gone = self
            .on_thread(move |folder, chunker| folder.remove(&here, &known, chunker))
            .await?;
        // Otherwise it was changed since the scan, and the next round publishes it.
        if gone {
            self.state.agreed.remove(path);
            self.report.deleted_here.push(path.to_string());
        }
        Ok(())
    }

    async fn delete_folder_there(
        &mut self,
        path: &RelPath,
        id: &EntryId,
        file_here: bool,
    ) -> Result<bool, SyncError> {
        let device = self.state.device.clone();
        let deletion = self
            .retry(|| self.store.delete_entry(&self.actor, &device, id, None))
            .await?;
        match deletion {
            Deletion::Deleted(_) | Deletion::Already => {
                self.state.entries.remove(id);
                self.state.agreed.remove(path);
                self.report.deleted_there.push(path.to_string());
            }
            // What was in it could not be deleted, and why was told. The next sync tries again.
            Deletion::NotEmpty { .. } if self.state.agreed.keys().any(|one| one.is_in(path)) => {
                return Ok(false);
            }
            // Somebody put something in: the folder comes back here.
            Deletion::NotEmpty { .. } | Deletion::Changed(_) => {
                if file_here {
                    self.step_aside(path).await?;
                }
                self.state.agreed.remove(path);
            }
        }
        Ok(true)
    }

    async fn delete_folder_here(&mut self, path: &RelPath) -> Result<(), SyncError> {
        // Something new in it was published in this round, and made it anew.
        if let Some((id, entry)) = self.state.there(&self.state.tree(), path)
            && entry.kind == Kind::Folder
        {
            self.state
                .agreed
                .insert(path.clone(), Known::Folder { entry: id });
            return Ok(());
        }
        let here = path.clone();
        let gone = self
            .on_thread(move |folder, _| folder.remove_folder(&here))
            .await?;
        // Otherwise there is something new in it: the folder is new as well.
        self.state.agreed.remove(path);
        if gone {
            self.report.deleted_here.push(path.to_string());
        }
        Ok(())
    }
}
