//! `bench`: how fast is chunking, against the crates it is made of, and how much is sent for a small edit?

use crate::chunking::{Chunker, Sizes};
use crate::commands::say;
use crate::domain::Actor;
use crate::sync::{Device, Settings};
use crate::{ChunkRef, FileSync};
use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::Cloud;
use serde::Serialize;
use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Measure chunking and hashing against the raw crates, and what a small edit sends; with --data, the file stays there",
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
        .arg(number("size", "MIB", "512", "How much is chunked"))
        .arg(number(
            "runs",
            "N",
            "10",
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

/// What was measured. Rates are bytes a second, by the clock on the wall.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Bytes chunked.
    pub bytes: u64,
    /// FastCDC alone, on one core.
    pub fastcdc: f64,
    /// SHA-256 alone, on one core.
    pub sha2: f64,
    /// Ours, which reads, cuts and hashes, on one core.
    pub one_core: f64,
    /// The cores that all of ours has.
    pub cores: usize,
    /// Ours on all of them.
    pub all_cores: f64,
    /// Ours on all cores, divided by their number, against the slower of the two raw crates.
    pub of_slower: f64,
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
        return say(&format!("{:#}\n", serde_json::to_value(&measured)?));
    }
    let rate = |bytes: f64| format!("{:.2} GB/s", bytes / 1e9);
    let megabytes = |bytes: u64| format!("{:.2} MB", bytes as f64 / 1e6);
    let plural = if measured.edit_chunks == 1 { "" } else { "s" };
    let slower = measured.fastcdc.min(measured.sha2);
    say(&format!(
        "raw fastcdc   {} on one core\n\
         raw sha2      {} on one core\n\
         chunk + hash  {} on one core, {:.2} of the slower of the two\n\
         \x20             {} on {} cores, {:.2} for each\n\
         small edit    one byte inserted into {}: {} sent in {} chunk{plural}, {:.2} % of the file; \
         {} fetched by another device\n",
        rate(measured.fastcdc),
        rate(measured.sha2),
        rate(measured.one_core),
        measured.one_core / slower,
        rate(measured.all_cores),
        measured.cores,
        measured.of_slower,
        megabytes(measured.file_bytes),
        megabytes(measured.edit_bytes),
        measured.edit_chunks,
        100.0 * measured.edit_bytes as f64 / measured.file_bytes as f64,
        megabytes(measured.fetch_bytes)
    ))
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
    let all = Chunker::new(Sizes::DEFAULT);
    let one = Chunker {
        threads: 1,
        ..all.clone()
    };
    let bytes = noise(size);
    let cuts = || all.sizes.cuts(&bytes);
    let chunks: Vec<&[u8]> = cuts()
        .map(|cut| &bytes[cut.offset..cut.offset + cut.length])
        .collect();
    let ours = |chunker: &Chunker| -> Result<f64> {
        let mut found = None;
        let took = seconds(|| found = chunker.chunk(&bytes[..]).ok());
        let found = found.map_or(0, |found| found.chunks.len());
        ensure!(found == chunks.len(), "chunks differ from the raw crate's");
        Ok(took)
    };
    // The best of several: whatever else the machine does only adds. In turns, so that a noisy moment
    // befalls all of them.
    let mut best = [f64::MAX; 4];
    for _ in 0..runs {
        let took = [
            seconds(|| cuts().count()),
            seconds(|| {
                for chunk in &chunks {
                    black_box(ChunkRef::of(chunk));
                }
            }),
            ours(&one)?,
            ours(&all)?,
        ];
        for (best, took) in best.iter_mut().zip(took) {
            *best = best.min(took);
        }
    }
    let [fastcdc, sha2, one_core, all_cores] = best.map(|seconds| size as f64 / seconds);
    let cores = all.threads;
    let (file_bytes, edit_bytes, edit_chunks, fetch_bytes) = small_edit(cloud, edit).await?;
    Ok(Measured {
        bytes: size as u64,
        fastcdc,
        sha2,
        one_core,
        cores,
        all_cores,
        of_slower: all_cores / cores as f64 / fastcdc.min(sha2),
        file_bytes,
        edit_bytes,
        edit_chunks,
        fetch_bytes,
    })
}

/// Two devices through the store: one inserts a byte in the middle of a file, the other gets it.
async fn small_edit(cloud: Cloud, size: usize) -> Result<(u64, u64, u64, u64)> {
    // Its own tenant, or the store would have the chunks already.
    let actor = Actor::new(cloud.ids().next("bench"), "bench");
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
