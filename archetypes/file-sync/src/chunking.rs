//! Chunk file and fingerprint file: cut where the content says so, hash each chunk, in bounded memory.
//!
//! **Content-defined cuts** (FastCDC, the 2020 form): a cut depends on the bytes before it and on nothing
//! else, so one byte put in front of a file moves the first cut or two and leaves all others. Blocks of
//! fixed size would all shift, and all be sent again.
//!
//! **SHA-256 per chunk.** BLAKE3 is faster where a CPU has no SHA instructions. But S3 verifies SHA-256
//! by itself (`x-amz-checksum-sha256`), so the name of a chunk is a checksum that the store checks, and
//! nobody has to fetch a chunk to find out whether it is what it is called.
//!
//! **The fingerprint of a file is the hash of its list of chunks**, not a second hash over all bytes:
//! equal lists are equal files, the second hash could not be computed in parallel, and the cost is nothing.
//! The same bytes cut by other [`Sizes`] have another fingerprint; that costs a version, never an answer.
//!
//! **Memory**: one thread reads and cuts, others hash what was cut. The bytes live in a fixed number of
//! buffers that go round, so a file of any size takes as much memory as one of 30 MB.

use crate::domain::{ChunkHash, ChunkRef};
use fastcdc::v2020::FastCDC;
use sha2::{Digest, Sha256};
use std::io::{self, Read};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

/// How large chunks are. Even numbers, or FastCDC would round them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// No chunk but the last is smaller.
    pub min: usize,
    /// Cuts become likely from here on.
    pub average: usize,
    /// No chunk is larger.
    pub max: usize,
}

impl Sizes {
    /// 128 KiB, 256 KiB, 1 MiB.
    ///
    /// Small chunks send less for a small edit, and cost a request and an item each. At 256 KiB the
    /// requests for a file cost about what S3 takes for keeping it a month ($0.02 per GB); at 64 KiB four
    /// times as much; at 4 MiB one changed byte sends 4 MiB. The minimum is half the average because
    /// FastCDC does not look at the bytes below it: cutting is then faster than hashing.
    pub const DEFAULT: Self = Self {
        min: 128 << 10,
        average: 256 << 10,
        max: 1 << 20,
    };

    /// As small as FastCDC allows: for tests, whose files are small.
    pub const TINY: Self = Self {
        min: 64,
        average: 256,
        max: 1024,
    };

    fn cutter<'a>(&self, bytes: &'a [u8]) -> FastCDC<'a> {
        FastCDC::new(bytes, self.min, self.average, self.max)
    }
}

/// What a file consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunked {
    /// In the order of the file.
    pub chunks: Vec<ChunkRef>,
    /// Their hash.
    pub fingerprint: ChunkHash,
    /// The bytes in all.
    pub size: u64,
}

impl Chunked {
    /// These chunks, fingerprinted.
    pub fn of(chunks: Vec<ChunkRef>) -> Self {
        Self {
            fingerprint: fingerprint(&chunks),
            size: chunks.iter().map(|chunk| u64::from(chunk.length)).sum(),
            chunks,
        }
    }

    /// Every chunk with the offset it begins at.
    pub fn placed(&self) -> impl Iterator<Item = (u64, &ChunkRef)> {
        placed(&self.chunks)
    }
}

/// Every chunk with the offset it begins at.
pub fn placed(chunks: &[ChunkRef]) -> impl Iterator<Item = (u64, &ChunkRef)> {
    chunks.iter().scan(0, |at, chunk| {
        let begins = *at;
        *at += u64::from(chunk.length);
        Some((begins, chunk))
    })
}

/// The hash over a list of chunks: of their names and lengths, in order.
pub fn fingerprint(chunks: &[ChunkRef]) -> ChunkHash {
    let mut hasher = Sha256::new();
    // So that a list of chunks is never mistaken for a chunk with the same bytes.
    hasher.update(b"file-sync list of chunks\n");
    for chunk in chunks {
        hasher.update(chunk.hash.0);
        hasher.update(chunk.length.to_be_bytes());
    }
    ChunkHash(hasher.finalize().into())
}

/// How to chunk: sizes, helpers, and a way to stop.
#[derive(Debug, Clone)]
pub struct Chunker {
    /// How large chunks are.
    pub sizes: Sizes,
    /// How many threads hash. Zero: the one that reads does all, as it does for small files anyway.
    pub workers: usize,
    /// Set it, and chunking ends with [`io::ErrorKind::Interrupted`].
    pub stop: Arc<AtomicBool>,
    /// The most buffers that any file had at once, for those who want to know.
    pub most_buffers: Arc<AtomicUsize>,
}

impl Chunker {
    /// These sizes, and a hashing thread for each core.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            stop: Arc::default(),
            most_buffers: Arc::default(),
        }
    }

    /// The size of a buffer: four of the largest chunks.
    pub fn buffer_size(&self) -> usize {
        4 * self.sizes.max
    }

    /// How many buffers there may be: one for each who hashes, one to read into, one that waits.
    pub fn buffers(&self) -> usize {
        self.workers + 2
    }

    /// Chunks what it reads, to the end.
    pub fn chunk(&self, mut source: impl Read) -> io::Result<Chunked> {
        let (home, returned) = channel();
        let mut pool = Pool {
            size: self.buffer_size(),
            left: self.buffers(),
            home,
            returned,
            allocated: 0,
        };
        let mut first = pool.take(&[])?;
        let ended = first.fill(&mut source, &self.stop)?;
        let chunks = if ended {
            // Most files are small; threads would cost more than they do.
            let cuts = self.sizes.cutter(first.bytes());
            cuts.map(|cut| first.piece(cut.offset, cut.length))
                .collect()
        } else {
            self.in_parallel(source, first, &mut pool)?
        };
        self.most_buffers
            .fetch_max(pool.allocated, Ordering::Relaxed);
        Ok(Chunked::of(chunks))
    }

    fn in_parallel(
        &self,
        mut source: impl Read,
        mut buffer: Buffer,
        pool: &mut Pool,
    ) -> io::Result<Vec<ChunkRef>> {
        let (jobs, waiting) = channel::<Job>();
        let waiting = Mutex::new(waiting);
        let mut chunks = Vec::new();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..self.workers)
                .map(|_| scope.spawn(|| hash_all(&waiting)))
                .collect();
            let mut count = 0;
            let mut ended = false;
            let cut_all = |chunks: &mut Vec<(usize, ChunkRef)>| -> io::Result<()> {
                loop {
                    let full = Arc::new(buffer);
                    let mut done = 0;
                    for cut in self.sizes.cutter(full.bytes()) {
                        let left = full.length - cut.offset;
                        // A cut is certain only with a whole largest chunk in view: what is to
                        // come could still move it.
                        if !ended && left < self.sizes.max {
                            break;
                        }
                        done = cut.offset + cut.length;
                        let job = Job {
                            number: count,
                            buffer: Arc::clone(&full),
                            at: cut.offset,
                            length: cut.length,
                        };
                        count += 1;
                        if self.workers == 0 {
                            chunks.push(job.hash());
                        } else if jobs.send(job).is_err() {
                            return Err(io::Error::other("a hashing thread ended early"));
                        }
                    }
                    if ended {
                        return Ok(());
                    }
                    buffer = pool.take(&full.bytes()[done..])?;
                    drop(full);
                    ended = buffer.fill(&mut source, &self.stop)?;
                }
            };
            let mut own = Vec::new();
            // Takes what it holds with it, the sender of jobs too: that is how the workers end.
            let cut = { cut_all }(&mut own);
            drop(jobs);
            for worker in workers {
                match worker.join() {
                    Ok(theirs) => own.extend(theirs),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            own.sort_unstable_by_key(|(number, _)| *number);
            chunks.extend(own.into_iter().map(|(_, chunk)| chunk));
            cut
        })?;
        Ok(chunks)
    }
}

/// A chunk that was cut and waits to be hashed. It keeps its buffer from going round.
struct Job {
    number: usize,
    buffer: Arc<Buffer>,
    at: usize,
    length: usize,
}

impl Job {
    fn hash(self) -> (usize, ChunkRef) {
        (self.number, self.buffer.piece(self.at, self.length))
    }
}

fn hash_all(waiting: &Mutex<Receiver<Job>>) -> Vec<(usize, ChunkRef)> {
    let mut done = Vec::new();
    loop {
        let job = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match job {
            Ok(job) => done.push(job.hash()),
            Err(_) => return done,
        }
    }
}

/// Bytes that were read; goes back to its pool when the last chunk in it is hashed.
struct Buffer {
    room: Vec<u8>,
    length: usize,
    home: Sender<Vec<u8>>,
}

impl Buffer {
    fn bytes(&self) -> &[u8] {
        &self.room[..self.length]
    }

    fn piece(&self, at: usize, length: usize) -> ChunkRef {
        ChunkRef::of(&self.room[at..at + length])
    }

    /// Reads until it is full or the source ends; says whether it ended.
    fn fill(&mut self, source: &mut impl Read, stop: &AtomicBool) -> io::Result<bool> {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        while self.length < self.room.len() {
            match source.read(&mut self.room[self.length..]) {
                Ok(0) => return Ok(true),
                Ok(read) => self.length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // Nobody there: the pool is gone, and so may the buffer be.
        let _ = self.home.send(std::mem::take(&mut self.room));
    }
}

struct Pool {
    size: usize,
    left: usize,
    home: Sender<Vec<u8>>,
    returned: Receiver<Vec<u8>>,
    allocated: usize,
}

impl Pool {
    /// A buffer that begins with these bytes. Waits for one to come back when all are out.
    fn take(&mut self, begin: &[u8]) -> io::Result<Buffer> {
        let room = match self.returned.try_recv() {
            Ok(room) => room,
            Err(_) if self.left > 0 => {
                self.left -= 1;
                self.allocated += 1;
                vec![0; self.size]
            }
            Err(_) => self
                .returned
                .recv()
                .map_err(|_| io::Error::other("the buffers are gone"))?,
        };
        let mut buffer = Buffer {
            room,
            length: begin.len(),
            home: self.home.clone(),
        };
        buffer.room[..begin.len()].copy_from_slice(begin);
        Ok(buffer)
    }
}
