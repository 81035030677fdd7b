//! The synced directory, opened once. Everything in it is reached from that handle, name by name, without
//! following links: a link that somebody swaps in while we work is not a way out either, because no path
//! is ever resolved by the system.
//!
//! A file is replaced by writing a new one aside, syncing it to disk and *swapping* the two. The swap gives
//! back what was really there, and only if that is the file we knew is it thrown away. A plain rename
//! after a check would lose what is written between the two.

use super::path::{BadPath, OWN_FOLDER, RelPath};
use super::state::KnownFile;
use crate::chunking::{Chunked, Chunker};
use crate::domain::ChunkHash;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::CStr;
use std::fs::{File, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Why something local was not done.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A name that is not used.
    #[error(transparent)]
    BadPath(#[from] BadPath),
    /// On the way there is something else than a folder.
    #[error("'{0}' goes through a link or a file: links are never followed")]
    NotAFolder(String),
    /// Something else than a file is there.
    #[error("'{0}' is not a plain file: it is not synced")]
    NotAFile(String),
    /// Not within reach of a rename.
    #[error("'{0}' is on another file system: it is not synced")]
    Elsewhere(String),
    /// Written to while it was read.
    #[error("'{0}' is being written to; it is synced when that has ended")]
    Busy(String),
    /// Two at once on one directory.
    #[error("{0} is being synced by another process")]
    InUse(PathBuf),
    /// The state cannot be read.
    #[error(
        "{path} cannot be read as the state of a device ({why}): remove it to begin anew, which loses no file"
    )]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The file system said no.
    #[error("{path}: {source}")]
    Io {
        /// What for.
        path: String,
        /// What it said.
        source: io::Error,
    },
}

impl LocalError {
    fn at(path: &str, error: impl Into<io::Error>) -> Self {
        let path = path.to_owned();
        let source = error.into();
        Self::Io { path, source }
    }
}

/// What tells that a file is still the one we read, without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// Bytes.
    pub size: u64,
    /// When it was last written to, in nanoseconds.
    pub modified: i64,
    /// When it was last written to or renamed or its time set, in nanoseconds. Nobody can set this one:
    /// tools that write into a file and put its old time back are seen all the same.
    #[serde(default)]
    pub changed: i64,
    /// Which file it is.
    pub inode: u64,
}

/// What a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A plain file.
    File(Stamp),
    /// A folder.
    Folder,
    /// A link, a pipe, a device: not synced.
    Other,
    /// On another file system: nothing can be swapped into it whole, and what is not there may only not be
    /// mounted.
    Elsewhere,
}

impl Kind {
    /// What this is, for a directory on that file system.
    fn on(file_system: u64, stat: &Stat) -> Self {
        match file_system_of(stat) == file_system {
            true => Self::of(stat),
            false => Self::Elsewhere,
        }
    }

    fn of(stat: &Stat) -> Self {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Self::File(Stamp::of(stat)),
            FileType::Directory => Self::Folder,
            _ => Self::Other,
        }
    }
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    fn of(stat: &Stat) -> Self {
        let nanoseconds = |seconds: i64, rest: i64| {
            let whole = seconds.saturating_mul(1_000_000_000);
            whole.saturating_add(rest)
        };
        Self {
            size: stat.st_size as u64,
            modified: nanoseconds(stat.st_mtime as i64, stat.st_mtime_nsec as i64),
            changed: nanoseconds(stat.st_ctime as i64, stat.st_ctime_nsec as i64),
            inode: stat.st_ino as u64,
        }
    }
}

/// Files are dated by the system's clock, so this is the one clock they can be compared with.
pub fn now() -> i64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// What came of putting a file into its place.
#[derive(Debug, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Done {
        /// Its stamp.
        stamp: Stamp,
        /// When the stamp was taken.
        seen: i64,
        /// In the last moment something else was there: it was kept under this name.
        kept: Option<RelPath>,
    },
    /// What is there is not what we knew: nothing was touched.
    Changed,
}

/// The synced directory.
pub struct Folder {
    root: OwnedFd,
    file_system: u64,
    own: Arc<OwnedFd>,
    shown: PathBuf,
    durable: bool,
    next: AtomicU64,
    _lock: File,
}

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC)
    // A pipe must not hold us up.
    .union(OFlags::NONBLOCK);
const FOLDER: OFlags = READ.union(OFlags::DIRECTORY);

impl Folder {
    /// Opens the directory, takes it for this process, and clears away what a crash left.
    ///
    /// Without `durable` nothing is synced to disk: a crash of the machine, not of the process, may then
    /// lose what was written last. For tests.
    pub fn open(path: &Path, durable: bool, chunker: &Chunker) -> Result<Self, LocalError> {
        let shown = path.display().to_string();
        let failed = |error: Errno| LocalError::at(&shown, error);
        // The directory itself may be reached through links: the user named it.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?;
        match rustix::fs::mkdirat(&root, OWN_FOLDER, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(failed(error)),
        }
        let own = rustix::fs::openat(&root, OWN_FOLDER, FOLDER, Mode::empty())
            .map_err(|error| refused(OWN_FOLDER, error))?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = rustix::fs::openat(&own, "lock", flags, Mode::RUSR | Mode::WUSR);
        let lock = File::from(lock.map_err(failed)?);
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(LocalError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(LocalError::at(&shown, error)),
        }
        let folder = Self {
            file_system: file_system_of(&rustix::fs::fstat(&root).map_err(failed)?),
            root,
            own: Arc::new(own),
            shown: path.to_owned(),
            durable,
            next: AtomicU64::new(0),
            _lock: lock,
        };
        folder.clear_away(chunker)?;
        Ok(folder)
    }

    /// Where it is, for messages.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// The folder that holds this path, reached name by name.
    fn parent(&self, path: &RelPath) -> Result<OwnedFd, LocalError> {
        let names: Vec<&str> = path.names().collect();
        self.reach(&names[..names.len() - 1], path.as_str())
    }

    fn reach(&self, names: &[&str], path: &str) -> Result<OwnedFd, LocalError> {
        let open = |at: &OwnedFd, name: &str| {
            rustix::fs::openat(at, name, FOLDER, Mode::empty()).map_err(|e| refused(path, e))
        };
        let mut at = open(&self.root, ".")?;
        for name in names {
            at = open(&at, name)?;
        }
        Ok(at)
    }

    /// Opens a plain file for reading.
    pub fn read(&self, path: &RelPath) -> Result<(File, Stamp), LocalError> {
        let parent = self.parent(path)?;
        open_file(&parent, path.name(), path.as_str())
    }

    /// Chunks a file. The stamp and the time are from before it was read, and still true after.
    pub fn chunk(
        &self,
        path: &RelPath,
        chunker: &Chunker,
    ) -> Result<(Chunked, Stamp, i64), LocalError> {
        for _ in 0..3 {
            let seen = now();
            let (mut file, stamp) = self.read(path)?;
            let chunked = chunker
                .chunk(&mut file)
                .map_err(|error| LocalError::at(path.as_str(), error))?;
            let after = rustix::fs::fstat(&file).map_err(|e| LocalError::at(path.as_str(), e))?;
            if Stamp::of(&after) == stamp && chunked.size == stamp.size {
                return Ok((chunked, stamp, seen));
            }
        }
        Err(LocalError::Busy(path.to_string()))
    }

    /// Whether a file that has this stamp has the content we knew, however it was cut.
    pub fn still_is(
        &self,
        path: &RelPath,
        stamp: Stamp,
        known: &KnownFile,
        chunker: &Chunker,
    ) -> bool {
        self.read(path).is_ok_and(|(file, now)| {
            now == stamp && chunker.is(&file, &known.chunks).unwrap_or(false)
        })
    }

    fn open_folder(&self, path: Option<&RelPath>) -> Result<OwnedFd, LocalError> {
        let names: Vec<&str> = path.map_or(Vec::new(), |path| path.names().collect());
        self.reach(&names, path.map_or(".", RelPath::as_str))
    }

    /// What tells that no name came to a folder, or left it.
    pub fn stamp_of_folder(&self, path: Option<&RelPath>) -> Result<Stamp, LocalError> {
        stamp_of_folder(&self.open_folder(path)?, path.map_or(".", RelPath::as_str))
    }

    /// The names in a folder; `None` is the directory itself. Those that are no UTF-8 come as an error. The
    /// stamp is from before they were read.
    pub fn list(&self, path: Option<&RelPath>) -> Result<(Stamp, Vec<(Listed, Kind)>), LocalError> {
        let shown = path.map_or(".", RelPath::as_str);
        let folder = self.open_folder(path)?;
        let failed = |error: Errno| LocalError::at(shown, error);
        let stamp = stamp_of_folder(&folder, shown)?;
        let mut found = Vec::new();
        for entry in Dir::read_from(&folder).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let raw = entry.file_name();
            let own = path.is_none() && raw.to_bytes().eq_ignore_ascii_case(OWN_FOLDER.as_bytes());
            if own || [&b"."[..], b".."].contains(&raw.to_bytes()) {
                continue;
            }
            // Gone since it was listed: not there.
            if let Some(kind) = self.look(&folder, raw).map_err(failed)? {
                let name = raw.to_str().map(str::to_owned);
                let name = name.map_err(|_| raw.to_string_lossy().into_owned());
                found.push((name, kind));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok((stamp, found))
    }

    fn look(&self, folder: &OwnedFd, name: &CStr) -> Result<Option<Kind>, Errno> {
        match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Kind::on(self.file_system, &stat))),
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Makes a folder and those it is in. It may be there already.
    pub fn make_folder(&self, path: &RelPath) -> Result<(), LocalError> {
        let mut at = self.reach(&[], path.as_str())?;
        for name in path.names() {
            match rustix::fs::mkdirat(&at, name, Mode::from_raw_mode(0o777)) {
                Ok(()) => self.settle(&at, path.as_str())?,
                Err(Errno::EXIST) => {}
                Err(error) => return Err(LocalError::at(path.as_str(), error)),
            }
            at = rustix::fs::openat(&at, name, FOLDER, Mode::empty())
                .map_err(|error| refused(path.as_str(), error))?;
        }
        Ok(())
    }

    /// Removes a folder if nothing is in it; says whether it is gone.
    pub fn remove_folder(&self, path: &RelPath) -> Result<bool, LocalError> {
        let parent = match self.parent(path) {
            Ok(parent) => parent,
            Err(error) if is_missing(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        match rustix::fs::unlinkat(&parent, path.name(), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Ok(false),
            Err(error) => Err(LocalError::at(path.as_str(), error)),
        }
    }

    /// Gives what is there another name, unless that is taken; says whether it did.
    pub fn rename(&self, from: &RelPath, to: &RelPath) -> Result<bool, LocalError> {
        let (at, to_at) = (self.parent(from)?, self.parent(to)?);
        match rename_if_free(&at, from.name(), &to_at, to.name()) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(false),
            Err(error) => Err(LocalError::at(from.as_str(), error)),
        }
    }

    /// A file aside, to be written and then [`put`](Self::put) into its place. Gone when dropped.
    pub fn part(&self) -> Result<Part, LocalError> {
        let name = self.aside("part");
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*self.own, &name, flags, Mode::from_raw_mode(0o666))
            .map_err(|error| LocalError::at(&name, error))?;
        Ok(Part {
            own: Arc::clone(&self.own),
            name,
            file: File::from(file),
        })
    }

    fn aside(&self, word: &str) -> String {
        format!("{word}-{}", self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// Puts a finished file into its place: over `known` and nothing else, or, without `known`, where
    /// nothing is.
    pub fn put(
        &self,
        path: &RelPath,
        mut part: Part,
        content: &ChunkHash,
        known: Option<&KnownFile>,
        chunker: &Chunker,
    ) -> Result<Put, LocalError> {
        let failed = |error: Errno| LocalError::at(path.as_str(), error);
        let parent = self.parent(path)?;
        if let Some(known) = known {
            match open_file(&parent, path.name(), path.as_str()) {
                Ok((old, stamp)) if same(&old, stamp, known, chunker) => {
                    // It stays as readable and as executable as it was.
                    let stat = rustix::fs::fstat(&old).map_err(failed)?;
                    let mode = Mode::from_raw_mode(stat.st_mode);
                    rustix::fs::fchmod(&part.file, mode).map_err(failed)?;
                }
                Ok(_) | Err(LocalError::NotAFile(_)) => return Ok(Put::Changed),
                Err(error) if is_missing(&error) => return Ok(Put::Changed),
                Err(error) => return Err(error),
            }
        }
        if self.durable {
            part.file
                .sync_all()
                .map_err(|error| LocalError::at(path.as_str(), error))?;
        }
        // Before it has its name, so that nobody can have written to it.
        let seen = now();
        let stamp = Stamp::of(&rustix::fs::fstat(&part.file).map_err(failed)?);
        let done = |kept| Put::Done { stamp, seen, kept };
        let Some(known) = known else {
            return match rename_if_free(&self.own, &part.name, &parent, path.name()) {
                Ok(()) => {
                    part.name.clear();
                    self.settle(&parent, path.as_str())?;
                    Ok(done(None))
                }
                Err(Errno::EXIST | Errno::NOTEMPTY) => Ok(Put::Changed),
                Err(error) => Err(failed(error)),
            };
        };
        // After a crash the name says what may be thrown away: see `clear_away`.
        let swap = self.aside(&format!("swap-{}-{content}", known.fingerprint));
        rustix::fs::renameat(&*self.own, &part.name, &*self.own, &swap).map_err(failed)?;
        part.name = swap;
        match swap_names(&self.own, &part.name, &parent, path.name()) {
            Ok(true) => {}
            Ok(false) => {
                // This file system cannot swap: what we checked a moment ago has to do.
                rustix::fs::renameat(&*self.own, &part.name, &parent, path.name())
                    .map_err(failed)?;
                part.name.clear();
                self.settle(&parent, path.as_str())?;
                return Ok(done(None));
            }
            Err(error) => {
                // Not swapped: what is aside is ours.
                rustix::fs::unlinkat(&*self.own, &part.name, AtFlags::empty()).map_err(failed)?;
                return match error {
                    Errno::NOENT => Ok(Put::Changed),
                    error => Err(failed(error)),
                };
            }
        }
        self.settle(&parent, path.as_str())?;
        let swapped = std::mem::take(&mut part.name);
        let kept = self.throw_away(&swapped, path, |file| chunker.is(file, &known.chunks))?;
        Ok(done(kept))
    }

    /// Removes a file if it is the one we knew. `false`: it is not, and nothing was touched.
    pub fn remove(
        &self,
        path: &RelPath,
        known: &KnownFile,
        chunker: &Chunker,
    ) -> Result<bool, LocalError> {
        let failed = |error: Errno| LocalError::at(path.as_str(), error);
        let parent = match self.parent(path) {
            Ok(parent) => parent,
            Err(error) if is_missing(&error) => return Ok(true),
            Err(error) => return Err(error),
        };
        match open_file(&parent, path.name(), path.as_str()) {
            Ok((old, stamp)) if same(&old, stamp, known, chunker) => {}
            Ok(_) | Err(LocalError::NotAFile(_)) => return Ok(false),
            Err(error) if is_missing(&error) => return Ok(true),
            Err(error) => return Err(error),
        }
        // Taken aside first: what was really there is looked at when nobody finds it by name any more.
        let gone = self.aside(&format!("swap-{}-", known.fingerprint));
        match rustix::fs::renameat(&parent, path.name(), &*self.own, &gone) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(true),
            Err(error) => return Err(failed(error)),
        }
        self.settle(&parent, path.as_str())?;
        let kept = self.throw_away(&gone, path, |file| chunker.is(file, &known.chunks))?;
        Ok(kept.is_none())
    }

    /// Throws away a file that was taken aside, if its content is known elsewhere: it is read, for its stamp
    /// changed when it was taken. Anything else goes back to its name, or beside it.
    fn throw_away(
        &self,
        aside: &str,
        path: &RelPath,
        is_known: impl FnOnce(&File) -> io::Result<bool>,
    ) -> Result<Option<RelPath>, LocalError> {
        let failed = |error: Errno| LocalError::at(path.as_str(), error);
        let known_content = match open_file(&self.own, aside, path.as_str()) {
            Ok((file, _)) => match is_known(&file) {
                Ok(is_known) => is_known,
                // Stopped, and not read: it stays aside, and the next start looks at it.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    return Err(LocalError::at(path.as_str(), error));
                }
                Err(_) => false,
            },
            // A folder or a link was put there in the last moment.
            Err(LocalError::NotAFile(_)) => false,
            Err(error) => return Err(error),
        };
        if known_content {
            rustix::fs::unlinkat(&*self.own, aside, AtFlags::empty()).map_err(failed)?;
            return Ok(None);
        }
        for number in 0..1_000 {
            let kept = match number {
                0 => path.clone(),
                1 => path.beside("changed while syncing")?,
                _ => path.beside(&format!("changed while syncing {number}"))?,
            };
            let parent = match self.parent(&kept) {
                Ok(parent) => parent,
                // Its folder is gone as well.
                Err(_) => self.reach(&[], kept.as_str())?,
            };
            match rename_if_free(&self.own, aside, &parent, kept.name()) {
                Ok(()) => return Ok(Some(kept)),
                Err(Errno::EXIST | Errno::NOTEMPTY) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(LocalError::Busy(path.to_string()))
    }

    /// What a crash left: half-written files go. A file that was taken aside goes if its name says that its
    /// content is known elsewhere, and comes back if not.
    fn clear_away(&self, chunker: &Chunker) -> Result<(), LocalError> {
        let failed = |error: Errno| LocalError::at(OWN_FOLDER, error);
        for entry in Dir::read_from(&*self.own).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let Ok(name) = entry.file_name().to_str() else {
                continue;
            };
            if name.starts_with("part-") {
                rustix::fs::unlinkat(&*self.own, name, AtFlags::empty()).map_err(failed)?;
            } else if let Some(contents) = name.strip_prefix("swap-") {
                let contents: Vec<ChunkHash> = contents
                    .split('-')
                    .filter_map(|hash| hash.parse().ok())
                    .collect();
                let home = RelPath::new("recovered file")?;
                self.throw_away(name, &home, |file| {
                    Ok(contents.contains(&chunker.chunk(file)?.fingerprint))
                })?;
            }
        }
        Ok(())
    }

    /// Whether there is anything aside: half-written or swapped out. For tests.
    pub fn leftovers(&self) -> Result<usize, LocalError> {
        let failed = |error: Errno| LocalError::at(OWN_FOLDER, error);
        let names = Dir::read_from(&*self.own).map_err(failed)?;
        let aside = names.filter_map(Result::ok).filter(|entry| {
            let name = entry.file_name().to_bytes();
            name.starts_with(b"part-") || name.starts_with(b"swap-")
        });
        Ok(aside.count())
    }

    /// A file of the device's own, if it is there.
    pub fn read_own(&self, name: &str) -> Result<Option<Vec<u8>>, LocalError> {
        match open_file(&self.own, name, name) {
            Ok((mut file, _)) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes)
                    .map_err(|error| LocalError::at(name, error))?;
                Ok(Some(bytes))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Replaces a file of the device's own, whole or not at all.
    pub fn write_own(&self, name: &str, bytes: &[u8]) -> Result<(), LocalError> {
        let mut part = self.part()?;
        part.write(bytes)?;
        if self.durable {
            let synced = part.file.sync_all();
            synced.map_err(|error| LocalError::at(name, error))?;
        }
        rustix::fs::renameat(&*self.own, &part.name, &*self.own, name)
            .map_err(|error| LocalError::at(name, error))?;
        part.name.clear();
        self.settle(&self.own, name)
    }

    /// A rename is on disk when its folder is.
    fn settle(&self, folder: &OwnedFd, path: &str) -> Result<(), LocalError> {
        match self.durable {
            true => rustix::fs::fsync(folder).map_err(|error| LocalError::at(path, error)),
            false => Ok(()),
        }
    }
}

/// A name, or what can be shown of it.
pub type Listed = Result<String, String>;

/// A file that is being written, aside.
pub struct Part {
    own: Arc<OwnedFd>,
    /// Empty when the file has another place.
    name: String,
    file: File,
}

impl Part {
    /// Writes what comes next.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), LocalError> {
        let written = self.file.write_all(bytes);
        written.map_err(|error| LocalError::at(&self.name, error))
    }

    /// What was written, for reading it again.
    pub fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.name.is_empty() && !self.name.starts_with("swap-") {
            let _ = rustix::fs::unlinkat(&*self.own, &self.name, AtFlags::empty());
        }
    }
}

/// Whether this is the file we knew: by its stamp if that can be trusted, by its content if not.
fn same(file: &File, stamp: Stamp, known: &KnownFile, chunker: &Chunker) -> bool {
    known.is_sure(stamp)
        || stamp.size == known.stamp.size && chunker.is(file, &known.chunks).unwrap_or(false)
}

#[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
fn file_system_of(stat: &Stat) -> u64 {
    stat.st_dev as u64
}

fn stamp_of_folder(folder: &OwnedFd, path: &str) -> Result<Stamp, LocalError> {
    let stat = rustix::fs::fstat(folder).map_err(|error| LocalError::at(path, error))?;
    Ok(Stamp::of(&stat))
}

fn open_file(folder: &OwnedFd, name: &str, path: &str) -> Result<(File, Stamp), LocalError> {
    let file = match rustix::fs::openat(folder, name, READ, Mode::empty()) {
        Ok(file) => file,
        // A link, or a socket.
        Err(Errno::LOOP | Errno::NXIO) => return Err(LocalError::NotAFile(path.to_owned())),
        Err(error) => return Err(LocalError::at(path, error)),
    };
    let stat = rustix::fs::fstat(&file).map_err(|error| LocalError::at(path, error))?;
    match Kind::of(&stat) {
        Kind::File(stamp) => Ok((File::from(file), stamp)),
        _ => Err(LocalError::NotAFile(path.to_owned())),
    }
}

fn refused(path: &str, error: Errno) -> LocalError {
    match error {
        Errno::LOOP | Errno::NOTDIR | Errno::MLINK => LocalError::NotAFolder(path.to_owned()),
        error => LocalError::at(path, error),
    }
}

/// Whether nothing is there.
pub fn is_missing(error: &LocalError) -> bool {
    matches!(error, LocalError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn rename_if_free(at: &OwnedFd, from: &str, to_at: &OwnedFd, to: &str) -> Result<(), Errno> {
    use rustix::fs::RenameFlags;
    match rustix::fs::renameat_with(at, from, to_at, to, RenameFlags::NOREPLACE) {
        Err(error) if cannot(error) => link_if_free(at, from, to_at, to),
        done => done,
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn rename_if_free(at: &OwnedFd, from: &str, to_at: &OwnedFd, to: &str) -> Result<(), Errno> {
    link_if_free(at, from, to_at, to)
}

/// A second name is only given where none is; that is as old as Unix. Not for folders.
fn link_if_free(at: &OwnedFd, from: &str, to_at: &OwnedFd, to: &str) -> Result<(), Errno> {
    rustix::fs::linkat(at, from, to_at, to, AtFlags::empty())?;
    rustix::fs::unlinkat(at, from, AtFlags::empty())
}

/// Swaps two names; `false` if this system or file system cannot.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn swap_names(at: &OwnedFd, one: &str, other_at: &OwnedFd, other: &str) -> Result<bool, Errno> {
    use rustix::fs::RenameFlags;
    match rustix::fs::renameat_with(at, one, other_at, other, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(error) if cannot(error) => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn swap_names(_: &OwnedFd, _: &str, _: &OwnedFd, _: &str) -> Result<bool, Errno> {
    Ok(false)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn cannot(error: Errno) -> bool {
    [Errno::INVAL, Errno::NOSYS, Errno::OPNOTSUPP, Errno::NOTSUP].contains(&error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_on_another_file_system_is_not_synced() -> io::Result<()> {
        let stat = rustix::fs::stat("/")?;
        let here = file_system_of(&stat);
        assert_eq!(Kind::on(here, &stat), Kind::Folder);
        assert_eq!(Kind::on(here + 1, &stat), Kind::Elsewhere);
        Ok(())
    }
}
