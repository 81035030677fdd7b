//! Cutting and hashing: what is sent after an edit, and how much memory it takes.
#![allow(clippy::unwrap_used)]

use file_sync::chunking::{Chunked, Chunker, Sizes};
use file_sync::domain::{ChunkHash, ChunkRef, fingerprint};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};
use std::collections::HashSet;
use std::io::{self, Read};
use std::sync::atomic::Ordering;

fn random(seed: u64, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

fn chunked(bytes: &[u8]) -> Chunked {
    Chunker::new(Sizes::DEFAULT).chunk(bytes).unwrap()
}

/// What a store that has `old` still needs for `new`: how many chunks, how many bytes.
fn to_send(old: &Chunked, new: &Chunked) -> (usize, u64) {
    let known: HashSet<ChunkHash> = old.chunks.iter().map(|chunk| chunk.hash).collect();
    let missing: HashSet<&ChunkRef> = new
        .chunks
        .iter()
        .filter(|chunk| !known.contains(&chunk.hash))
        .collect();
    let bytes = missing.iter().map(|chunk| u64::from(chunk.length)).sum();
    (missing.len(), bytes)
}

#[test]
fn one_byte_inserted_into_a_64_mb_file_sends_a_few_chunks_at_most() {
    let mut bytes = random(1, 64 << 20);
    let before = chunked(&bytes);
    assert!(before.chunks.len() > 100, "{}", before.chunks.len());
    for at in [0, 30 << 20, bytes.len()] {
        bytes.insert(at, b'!');
        let after = chunked(&bytes);
        bytes.remove(at);
        let (chunks, sent) = to_send(&before, &after);
        assert!((1..=3).contains(&chunks), "{chunks} chunks at {at}");
        assert!(sent < 3 << 20, "{sent} bytes at {at}");
        assert_eq!(after.size, before.size + 1);
    }
}

#[test]
fn what_follows_a_long_insertion_is_cut_as_before_after_a_few_chunks() {
    let bytes = random(5, 32 << 20);
    let before = chunked(&bytes);
    let places = 20;
    let sent: usize = (0..places)
        .map(|place| {
            let mut after = bytes.clone();
            let at = place * bytes.len() / places;
            after.splice(at..at, random(6 + place as u64, 100_000));
            to_send(&before, &chunked(&after)).0
        })
        .sum();
    let mean = sent as f64 / places as f64;
    assert!((1.0..5.0).contains(&mean), "{mean} chunks");
}

#[test]
fn blocks_of_a_fixed_size_would_all_be_sent_again() {
    let fixed = |bytes: &[u8]| {
        let blocks = bytes.chunks(256 << 10).map(ChunkRef::of);
        Chunked::of(blocks.collect())
    };
    let mut bytes = random(2, 8 << 20);
    let before = fixed(&bytes);
    bytes.insert(0, b'!');
    let (chunks, _) = to_send(&before, &fixed(&bytes));
    assert_eq!(chunks, before.chunks.len() + 1);
}

/// Gives as much as it likes, as pipes and slow disks do.
struct Dribble<'a> {
    bytes: &'a [u8],
    random: SmallRng,
}

impl Read for Dribble<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let most = self.random.random_range(1..5_000).min(room.len());
        self.bytes.read(&mut room[..most])
    }
}

#[test]
fn cuts_are_those_of_fastcdc_on_the_whole_file() {
    let sizes = Sizes::TINY;
    // Around the size of a batch, where a cut could be made too early.
    let batch = Chunker::new(sizes).batch_size();
    let around = (batch - 2..batch + 3).chain([0, 1, 63, 64, 65, 100_000, 300_001]);
    for (seed, length) in around.enumerate() {
        let bytes = random(seed as u64, length);
        let whole = sizes.cuts(&bytes);
        let expected: Vec<ChunkRef> = whole
            .map(|cut| ChunkRef::of(&bytes[cut.offset..cut.offset + cut.length]))
            .collect();
        for threads in [0, 1, 2, 5] {
            let mut chunker = Chunker::new(sizes);
            chunker.threads = threads;
            let source = Dribble {
                bytes: &bytes,
                random: SmallRng::seed_from_u64(seed as u64),
            };
            let found = chunker.chunk(source).unwrap();
            assert_eq!(found.chunks, expected, "{length} bytes, {threads} threads");
            assert_eq!(found.size, length as u64);
            assert_eq!(found.fingerprint, fingerprint(&expected));
        }
    }
}

#[test]
fn files_are_alike_in_their_fingerprint_only_if_they_are_alike() {
    let bytes = random(3, 200_000);
    let tiny = |bytes: &[u8]| Chunker::new(Sizes::TINY).chunk(bytes).unwrap();
    assert_eq!(tiny(&bytes), tiny(&bytes));
    let mut other = bytes.clone();
    other[100_000] ^= 1;
    assert_ne!(tiny(&bytes).fingerprint, tiny(&other).fingerprint);
    let mut turned = tiny(&bytes).chunks;
    turned.reverse();
    assert_ne!(fingerprint(&turned), tiny(&bytes).fingerprint);
    assert!(tiny(&[]).chunks.is_empty() && tiny(&[]).size == 0);
    assert_ne!(tiny(&[]).fingerprint, tiny(&[0]).fingerprint);
}

#[test]
fn where_a_chunk_begins_follows_from_those_before_it() {
    let bytes = random(4, 20_000);
    let found = Chunker::new(Sizes::TINY).chunk(&bytes[..]).unwrap();
    for (at, chunk) in found.placed() {
        let at = at as usize;
        let end = at + chunk.length as usize;
        assert_eq!(ChunkHash::of(&bytes[at..end]), chunk.hash);
    }
}

/// Fails after a while.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        room.fill(1);
        Ok(room.len())
    }
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_has_no_chunks() {
    for reads in [0, 1, 5] {
        let failed = Chunker::new(Sizes::TINY).chunk(Failing(reads));
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
    let chunker = Chunker::new(Sizes::TINY);
    chunker.stop.store(true, Ordering::Relaxed);
    let stopped = chunker.chunk(io::repeat(1)).unwrap_err();
    assert_eq!(stopped.kind(), io::ErrorKind::Interrupted);
}
