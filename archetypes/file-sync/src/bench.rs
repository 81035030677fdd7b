//! `bench`: how fast is chunking, against the crates it is made of, and how much is sent for a small edit?

use crate::chunking::{Chunker, Sizes};
use crate::domain::Actor;
use crate::sync::{Device, Settings};
use crate::{ChunkRef, FileSync};
use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::Cloud;
use fastcdc::v2020::FastCDC;
use serde::Serialize;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Measure chunking and hashing against the raw crates, and what a small edit sends",
    args: bench_args,
    run: |cloud, args| Box::pin(bench(cloud, args)),
};

fn bench_args(command: Command) -> Command {
    let number = |name: &'static str, value, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_parser(value_parser!(u32).range(1..=4096))
            .default_value(default)
            .help(help)
    };
    command
        .arg(number("size", "MIB", "256", "How much is chunked"))
        .arg(number(
            "runs",
            "N",
            "5",
            "How often each is measured; the best counts",
        ))
        .arg(number(
            "edit",
            "MIB",
            "64",
            "The file that one byte is inserted into",
        ))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Bytes chunked.
    pub bytes: u64,
    /// Cores used by ours. The raw crates use one each.
    pub cores: usize,
    /// Chunking and hashing, bytes a second.
    pub ours: f64,
    /// FastCDC alone on one core.
    pub fastcdc: f64,
    /// SHA-256 alone on one core.
    pub sha2: f64,
    /// Ours against the slower of the two.
    pub of_slower: f64,
    /// Ours against what the cores could do at best: each byte is cut once and hashed once, and one
    /// core cuts.
    pub of_ideal: f64,
    /// The file that was edited.
    pub file_bytes: u64,
    /// What the edit sent.
    pub edit_bytes: u64,
    /// In how many chunks.
    pub edit_chunks: u64,
    /// What fetching the edit on another device took.
    pub fetch_bytes: u64,
}

async fn bench(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let number = |name| args.get_one::<u32>(name).copied().unwrap_or(1) as usize;
    let measured = measure(
        cloud,
        number("size") << 20,
        number("runs"),
        number("edit") << 20,
    )
    .await?;
    if args.get_flag("json") {
        println!("{:#}", serde_json::to_value(&measured)?);
        return Ok(());
    }
    let rate = |bytes: f64| format!("{:.2} GB/s", bytes / 1e9);
    let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    println!(
        "chunk + hash  {} on {} cores",
        rate(measured.ours),
        measured.cores
    );
    println!("raw fastcdc   {} on one core", rate(measured.fastcdc));
    println!("raw sha2      {} on one core", rate(measured.sha2));
    println!(
        "that is       {:.2} of the slower of the two, {:.2} of what the cores could do at best",
        measured.of_slower, measured.of_ideal
    );
    println!(
        "small edit    one byte inserted into {}: {} sent in {} chunks, {:.2} % of the file; {} fetched by another device",
        megabytes(measured.file_bytes),
        megabytes(measured.edit_bytes),
        measured.edit_chunks,
        100.0 * measured.edit_bytes as f64 / measured.file_bytes as f64,
        megabytes(measured.fetch_bytes)
    );
    Ok(())
}

/// Bytes that no chunker finds easy, the same in every run.
pub fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = vec![0; length];
    for eight in bytes.chunks_mut(8) {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        eight.copy_from_slice(&state.to_le_bytes()[..eight.len()]);
    }
    bytes
}

fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed().as_secs_f64().max(f64::MIN_POSITIVE)
}

/// Measures all of it.
pub async fn measure(cloud: Cloud, size: usize, runs: usize, edit: usize) -> Result<Measured> {
    let sizes = Sizes::DEFAULT;
    let mut chunker = Chunker::new(sizes);
    let cores = chunker.workers;
    // The thread that reads and cuts has one of the cores.
    chunker.workers = cores.saturating_sub(1).max(1);
    let bytes = noise(size);
    let cuts = || FastCDC::new(&bytes, sizes.min, sizes.average, sizes.max);
    let chunks: Vec<&[u8]> = cuts()
        .map(|cut| &bytes[cut.offset..cut.offset + cut.length])
        .collect();
    let (mut ours, mut fastcdc, mut sha2) = (f64::MAX, f64::MAX, f64::MAX);
    // In turns, so that a noisy moment befalls all of them.
    for _ in 0..runs {
        fastcdc = fastcdc.min(seconds(|| cuts().count()));
        sha2 = sha2.min(seconds(|| {
            for chunk in &chunks {
                black_box(ChunkRef::of(chunk));
            }
        }));
        let mut found = None;
        ours = ours.min(seconds(|| found = chunker.chunk(&bytes[..]).ok()));
        let found = found.map_or(0, |found| found.chunks.len());
        ensure!(found == chunks.len(), "chunks differ from the raw crate's");
    }
    let [ours, fastcdc, sha2] = [ours, fastcdc, sha2].map(|best| size as f64 / best);
    let shared = cores as f64 / (1.0 / fastcdc + 1.0 / sha2);
    let (file_bytes, edit_bytes, edit_chunks, fetch_bytes) = small_edit(cloud, edit).await?;
    Ok(Measured {
        bytes: size as u64,
        cores,
        ours,
        fastcdc,
        sha2,
        of_slower: ours / fastcdc.min(sha2),
        of_ideal: ours / shared.min(fastcdc),
        file_bytes,
        edit_bytes,
        edit_chunks,
        fetch_bytes,
    })
}

/// Two devices through the store: one inserts a byte in the middle of a file, the other gets it.
async fn small_edit(cloud: Cloud, size: usize) -> Result<(u64, u64, u64, u64)> {
    let id = cloud.ids().next("bench");
    // Its own tenant, or the store would have the chunks already. A short name: s3s-fs makes file names
    // of keys, and those have an end.
    let tenant = format!("bench-{}", &id[id.len().saturating_sub(8)..]);
    let actor = Actor::new(tenant, "bench");
    let (one, two) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let mut here = open(&cloud, &actor, "one", one.path()).await?;
    let mut there = open(&cloud, &actor, "two", two.path()).await?;
    let mut bytes = noise(size);
    std::fs::write(one.path().join("file"), &bytes)?;
    here.sync().await?;
    there.sync().await?;
    bytes.insert(size / 2, b'!');
    std::fs::write(one.path().join("file"), &bytes)?;
    let sent = here.sync().await?;
    let fetched = there.sync().await?;
    let problems = [&sent.problems[..], &fetched.problems[..]].concat();
    ensure!(problems.is_empty(), "not synced: {problems:?}");
    ensure!(
        std::fs::read(two.path().join("file"))? == bytes,
        "the directories differ"
    );
    Ok((
        bytes.len() as u64,
        sent.bytes_sent,
        sent.chunks_sent,
        fetched.bytes_fetched,
    ))
}

async fn open(cloud: &Cloud, actor: &Actor, name: &str, directory: &Path) -> Result<Device> {
    let store = FileSync::new(cloud.clone());
    let settings = Settings::default();
    let opened = Device::open(
        store,
        actor.clone(),
        Some(name),
        "bench",
        directory,
        settings,
    );
    Ok(opened.await?)
}
