//! Chunk file and fingerprint file: cut where the content says so, hash each chunk, in bounded memory.
//!
//! **Content-defined cuts** (FastCDC, the 2020 form): a cut depends on the bytes before it and on nothing
//! else, so one byte put in front of a file moves the first cut or two and leaves all others. Blocks of
//! fixed size would all shift, and all be sent again.
//!
//! **SHA-256 per chunk.** BLAKE3 is several times faster. But S3 knows SHA-256: a presigned address can
//! carry it (`x-amz-checksum-sha256`), so the name of a chunk is a checksum that the store checks.
//!
//! **The fingerprint of a file is the hash of its list of chunks**, not a second hash over all bytes:
//! equal lists are equal files, the second hash could not be computed in parallel, and the cost is nothing.
//! The same bytes cut by other [`Sizes`] have another fingerprint, so what is known is compared along its own
//! cuts ([`Chunker::is`]).
//!
//! **Memory**: threads take turns to read and cut a few megabytes, and each hashes what it has cut while the
//! next one reads. So a file of any size takes [`Chunker::memory`]: 4 MiB for each core, and 1 MiB more. No
//! byte is handed from one thread to another, and no core waits while there is something to hash.

use crate::domain::{ChunkHash, ChunkRef, UploadRequest, fingerprint};
use fastcdc::v2020::{FastCDC, Normalization};
use std::io::{self, Read};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// 256 KiB, then a cut every 64 KiB on average, 1 MiB at most.
    ///
    /// Small chunks send less for a small edit, and cost a request and an item each. At 256 KiB the
    /// requests for a file cost about what S3 takes for keeping it a month ($0.02 per GB); at 64 KiB four
    /// times as much; at 4 MiB one changed byte sends 4 MiB.
    ///
    /// FastCDC does not look at the bytes below the minimum, so cutting costs a fifth of what it would
    /// cost without one, and hashing is nearly all there is to do. The price is paid by those who insert a
    /// lot at once: what follows is cut as before after three or four chunks, and would be after two with a
    /// minimum of half the average. One byte inserted sends one chunk either way, or two if it was at a cut.
    pub const DEFAULT: Self = Self {
        min: 256 << 10,
        average: 256 << 10,
        max: 1 << 20,
    };

    /// As small as FastCDC allows: for tests, whose files are small.
    pub const TINY: Self = Self {
        min: 64,
        average: 256,
        max: 1024,
    };

    /// Where these bytes are cut.
    pub fn cuts<'a>(&self, bytes: &'a [u8]) -> FastCDC<'a> {
        // Level 2: above the average, a cut is four times as likely as the average alone would have it.
        FastCDC::with_level(
            bytes,
            self.min,
            self.average,
            self.max,
            Normalization::Level2,
        )
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

impl From<&Chunked> for UploadRequest {
    fn from(file: &Chunked) -> Self {
        Self {
            fingerprint: file.fingerprint,
            size: file.size,
            chunks: file.chunks.clone(),
        }
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

/// How to chunk: sizes, threads, and a way to stop.
#[derive(Debug, Clone)]
pub struct Chunker {
    /// How large chunks are.
    pub sizes: Sizes,
    /// How many threads take turns. One, or none: whoever calls does all, as for small files anyway.
    pub threads: usize,
    /// Set it, and chunking ends with [`io::ErrorKind::Interrupted`].
    pub stop: Arc<AtomicBool>,
}

impl Chunker {
    /// These sizes, and a thread for each core.
    pub fn new(sizes: Sizes) -> Self {
        Self {
            sizes,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            stop: Arc::default(),
        }
    }

    /// How much a thread reads in its turn: four of the largest chunks.
    pub fn batch_size(&self) -> usize {
        4 * self.sizes.max
    }

    /// The most bytes of a file that are in memory: a batch for each thread, and what one leaves to the next.
    pub fn memory(&self) -> usize {
        self.threads.max(1) * self.batch_size() + self.sizes.max
    }

    /// Chunks what it reads, to the end.
    pub fn chunk(&self, source: impl Read + Send) -> io::Result<Chunked> {
        let mut turn = Turn {
            source,
            chunker: self,
            left: Vec::new(),
            taken: 0,
            ended: false,
        };
        let mut first = self.empty_batch();
        turn.take(&mut first)?;
        // Most files are small; threads would cost more than they do.
        let helpers = if turn.ended {
            0
        } else {
            self.threads.max(1) - 1
        };
        let turn = Mutex::new(turn);
        let mut done = std::thread::scope(|scope| -> io::Result<Vec<Hashed>> {
            let helpers: Vec<_> = (0..helpers)
                .map(|_| scope.spawn(|| take_turns(&turn, self.empty_batch())))
                .collect();
            let mut done = vec![first.hash()];
            let own = take_turns(&turn, first);
            let theirs = helpers.into_iter().map(|helper| {
                let ended = helper.join();
                ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            for hashed in std::iter::once(own).chain(theirs) {
                done.extend(hashed?);
            }
            Ok(done)
        })?;
        done.sort_unstable_by_key(|hashed| hashed.number);
        let chunks = done.into_iter().flat_map(|hashed| hashed.chunks);
        Ok(Chunked::of(chunks.collect()))
    }

    /// Whether this is what those chunks make, whoever cut them: devices may cut in other places.
    pub fn is(&self, mut source: impl Read, chunks: &[ChunkRef]) -> io::Result<bool> {
        let mut bytes = Vec::new();
        for chunk in chunks {
            if self.stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            bytes.resize(chunk.length as usize, 0);
            match source.read_exact(&mut bytes) {
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(false),
                read => read?,
            }
            if ChunkRef::of(&bytes) != *chunk {
                return Ok(false);
            }
        }
        Ok(source.read(&mut [0])? == 0)
    }

    fn empty_batch(&self) -> Batch {
        Batch {
            number: 0,
            bytes: vec![0; self.batch_size()],
            cuts: Vec::new(),
        }
    }
}

/// Whole chunks that follow each other in the file.
struct Batch {
    /// Its place among the batches of the file.
    number: usize,
    bytes: Vec<u8>,
    cuts: Vec<Range<usize>>,
}

/// The same, hashed.
struct Hashed {
    number: usize,
    chunks: Vec<ChunkRef>,
}

impl Batch {
    fn hash(&self) -> Hashed {
        let pieces = self.cuts.iter().map(|cut| &self.bytes[cut.clone()]);
        Hashed {
            number: self.number,
            chunks: pieces.map(ChunkRef::of).collect(),
        }
    }
}

/// What only one thread does at a time: to read on and to cut.
struct Turn<'a, R> {
    source: R,
    chunker: &'a Chunker,
    /// What was read behind the last cut.
    left: Vec<u8>,
    /// Batches so far.
    taken: usize,
    ended: bool,
}

/// How much is read at once: what stays in the CPU's caches. Larger copies go past them.
const READ: usize = 64 << 10;

impl<R: Read> Turn<'_, R> {
    /// Reads and cuts the next batch. `false`: there is none.
    fn take(&mut self, batch: &mut Batch) -> io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        // Whatever fails, nobody goes on behind it.
        self.ended = true;
        if self.chunker.stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        batch.number = self.taken;
        self.taken += 1;
        batch.bytes[..self.left.len()].copy_from_slice(&self.left);
        let mut length = self.left.len();
        let at_end = loop {
            let end = (length + READ).min(batch.bytes.len());
            match self.source.read(&mut batch.bytes[length..end]) {
                // Nothing for nothing says only that the batch is full.
                Ok(0) => break length < end,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        };
        let read = &batch.bytes[..length];
        let sizes = &self.chunker.sizes;
        batch.cuts.clear();
        for cut in sizes.cuts(read) {
            // A cut within what is in view is a cut whatever comes. One at its end may only be the end
            // of the view.
            if !at_end && cut.offset + cut.length == length && cut.length < sizes.max {
                break;
            }
            batch.cuts.push(cut.offset..cut.offset + cut.length);
        }
        let whole = batch.cuts.last().map_or(0, |cut| cut.end);
        self.left.clear();
        self.left.extend_from_slice(&read[whole..]);
        self.ended = at_end;
        Ok(true)
    }
}

fn take_turns(turn: &Mutex<Turn<'_, impl Read>>, mut batch: Batch) -> io::Result<Vec<Hashed>> {
    let mut done = Vec::new();
    loop {
        // A statement of its own: the turn ends with it, before anything is hashed.
        let more = turn
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take(&mut batch)?;
        if !more {
            return Ok(done);
        }
        done.push(batch.hash());
    }
}
