//! `bench`: how fast is the engine, next to the `operational-transform` crate? Both replay the same
//! keystrokes in the same run, and must end in the same text. Nothing but processor and memory is measured:
//! no store, no network.

use crate::ot::{Operation, Text};
use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::Cloud;
use operational_transform::OperationSeq;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::io::IsTerminal;
use std::time::Instant;

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Replay a generated editing trace through the engine and through the operational-transform crate",
    args: bench_args,
    run: |_: Cloud, args| Box::pin(bench(args)),
};

fn bench_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("keystrokes")
                .long("keystrokes")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=2_000_000))
                .default_value("250000")
                .help("How many keystrokes each trace has"),
        )
        .arg(
            Arg::new("seed")
                .long("seed")
                .value_name("N")
                .value_parser(value_parser!(u64))
                .default_value("1")
                .help("Another seed types another text"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

/// One key: at `at`, take `delete` characters away and put `insert` there.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    at: usize,
    delete: usize,
    insert: Option<char>,
}

/// What the writers typed. In each round every one of them edits their own copy of the text as the round
/// before left it; then the copies are brought together.
#[derive(Debug, Clone)]
pub struct Trace {
    rounds: Vec<[Vec<Key>; 2]>,
}

impl Trace {
    /// One writer, one key a round.
    pub fn sequential(keystrokes: usize, seed: u64) -> Self {
        let mut typist = Typist::new(seed);
        let mut len = 0;
        let mut rounds = Vec::with_capacity(keystrokes);
        for _ in 0..keystrokes {
            let key = typist.press(len);
            len = len - key.delete + usize::from(key.insert.is_some());
            rounds.push([vec![key], Vec::new()]);
        }
        Self { rounds }
    }

    /// Two writers, up to eight keys each in a round.
    pub fn two_writers(keystrokes: usize, seed: u64) -> Result<Self> {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut typists = [Typist::new(seed + 1), Typist::new(seed + 2)];
        let (mut len, mut left) = (0, keystrokes);
        let mut rounds = Vec::new();
        while left > 0 {
            let mut pressed = [Vec::new(), Vec::new()];
            for (keys, typist) in pressed.iter_mut().zip(&mut typists) {
                let burst = chance.random_range(1..=8usize).min(left);
                left -= burst;
                let mut own = len;
                for _ in 0..burst {
                    let key = typist.press(own);
                    own = own - key.delete + usize::from(key.insert.is_some());
                    keys.push(key);
                }
            }
            // Where everybody is now depends on what both deleted, so the engine is asked. This is not timed.
            let (first, second) = (
                burst::<Ours>(len, &pressed[0])?,
                burst::<Ours>(len, &pressed[1])?,
            );
            let (first_after, second_after) = first.transform(&second)?;
            let [one, other] = &mut typists;
            one.cursor = second_after.transform_cursor(one.cursor, false);
            other.cursor = first_after.transform_cursor(other.cursor, false);
            len = second_after.target_len();
            rounds.push(pressed);
        }
        Ok(Self { rounds })
    }

    /// How many keys were pressed.
    pub fn keystrokes(&self) -> usize {
        self.rounds.iter().flatten().map(Vec::len).sum()
    }
}

/// Somebody who types words, takes three keys of ten back (as people do who write a paper), and now and then
/// goes elsewhere in the text.
struct Typist {
    chance: StdRng,
    cursor: usize,
}

impl Typist {
    fn new(seed: u64) -> Self {
        Self {
            chance: StdRng::seed_from_u64(seed),
            cursor: 0,
        }
    }

    fn press(&mut self, len: usize) -> Key {
        self.cursor = match self.chance.random_range(0..1000) {
            0..2 => self.chance.random_range(0..=len),
            2..20 => (self.cursor + self.chance.random_range(0..200)).saturating_sub(100),
            _ => self.cursor,
        }
        .min(len);
        let at = self.cursor;
        match self.chance.random_range(0..100) {
            0..25 if at > 0 => {
                self.cursor -= 1;
                Key {
                    at: at - 1,
                    delete: 1,
                    insert: None,
                }
            }
            25..30 if at < len => Key {
                at,
                delete: 1,
                insert: None,
            },
            _ => {
                self.cursor += 1;
                Key {
                    at,
                    delete: 0,
                    insert: Some(self.letter()),
                }
            }
        }
    }

    fn letter(&mut self) -> char {
        const LETTERS: &[u8] = b"etaoinshrdlucmfwypvbgkqjxz";
        match self.chance.random_range(0..200) {
            0..34 => ' ',
            34..36 => '\n',
            36 => 'é',
            37 => '漢',
            _ => {
                // The smaller of two: the frequent letters come first.
                let (a, b) = (
                    self.chance.random_range(0..LETTERS.len()),
                    self.chance.random_range(0..LETTERS.len()),
                );
                LETTERS[a.min(b)] as char
            }
        }
    }
}

/// What both libraries can do.
trait Engine {
    type Operation;
    type Document: Default;

    fn press(len: usize, key: &Key) -> Self::Operation;
    fn len_after(operation: &Self::Operation) -> usize;
    fn compose(first: &Self::Operation, second: &Self::Operation) -> Result<Self::Operation>;
    fn transform(
        one: &Self::Operation,
        other: &Self::Operation,
    ) -> Result<(Self::Operation, Self::Operation)>;
    fn apply(document: &mut Self::Document, operation: &Self::Operation) -> Result<()>;
    fn text(document: &Self::Document) -> String;
}

struct Ours;

impl Engine for Ours {
    type Operation = Operation;
    type Document = Text;

    fn press(len: usize, key: &Key) -> Operation {
        let operation = Operation::new().retain(key.at);
        let mut bytes = [0; 4];
        match key.insert {
            Some(letter) => operation.insert(letter.encode_utf8(&mut bytes)),
            None => operation,
        }
        .delete(key.delete)
        .retain(len - key.at - key.delete)
    }

    fn len_after(operation: &Operation) -> usize {
        operation.target_len()
    }

    fn compose(first: &Operation, second: &Operation) -> Result<Operation> {
        Ok(first.compose(second)?)
    }

    fn transform(one: &Operation, other: &Operation) -> Result<(Operation, Operation)> {
        Ok(one.transform(other)?)
    }

    fn apply(document: &mut Text, operation: &Operation) -> Result<()> {
        Ok(document.apply(operation)?)
    }

    fn text(document: &Text) -> String {
        document.to_string()
    }
}

/// The `operational-transform` crate. Its document is a string.
struct Theirs;

impl Engine for Theirs {
    type Operation = OperationSeq;
    type Document = String;

    fn press(len: usize, key: &Key) -> OperationSeq {
        let mut operation = OperationSeq::default();
        operation.retain(key.at as u64);
        let mut bytes = [0; 4];
        if let Some(letter) = key.insert {
            operation.insert(letter.encode_utf8(&mut bytes));
        }
        operation.delete(key.delete as u64);
        operation.retain((len - key.at - key.delete) as u64);
        operation
    }

    fn len_after(operation: &OperationSeq) -> usize {
        operation.target_len()
    }

    fn compose(first: &OperationSeq, second: &OperationSeq) -> Result<OperationSeq> {
        Ok(first.compose(second)?)
    }

    fn transform(one: &OperationSeq, other: &OperationSeq) -> Result<(OperationSeq, OperationSeq)> {
        Ok(one.transform(other)?)
    }

    fn apply(document: &mut String, operation: &OperationSeq) -> Result<()> {
        *document = operation.apply(document)?;
        Ok(())
    }

    fn text(document: &String) -> String {
        document.clone()
    }
}

/// A writer's keys of one round as one operation.
fn burst<E: Engine>(len: usize, keys: &[Key]) -> Result<E::Operation> {
    let nothing = Key {
        at: 0,
        delete: 0,
        insert: None,
    };
    let (first, rest) = keys.split_first().unwrap_or((&nothing, &[]));
    let mut all = E::press(len, first);
    for key in rest {
        let next = E::press(E::len_after(&all), key);
        all = E::compose(&all, &next)?;
    }
    Ok(all)
}

/// Everything an engine does for a trace: make an operation of each key, compose each writer's keys, rewrite
/// one writer's for the other's, and apply both, unless only the operations are wanted.
fn replay<E: Engine>(trace: &Trace, with_document: bool) -> Result<E::Document> {
    let mut document = E::Document::default();
    let mut len = 0;
    for [first, second] in &trace.rounds {
        let mut operation = burst::<E>(len, first)?;
        if with_document {
            E::apply(&mut document, &operation)?;
        }
        if !second.is_empty() {
            let concurrent = burst::<E>(len, second)?;
            operation = E::transform(&operation, &concurrent)?.1;
            if with_document {
                E::apply(&mut document, &operation)?;
            }
        }
        len = E::len_after(&operation);
    }
    Ok(document)
}

/// One trace, replayed by both.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Which trace, and what was done with it.
    pub trace: &'static str,
    /// Keys pressed.
    pub keystrokes: usize,
    /// What the engine took, in nanoseconds for each key.
    pub engine_ns: f64,
    /// What the crate took.
    pub crate_ns: f64,
    /// How many times as fast the engine is.
    pub ratio: f64,
}

/// What `bench` prints.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The traces.
    pub measured: Vec<Measured>,
    /// Bytes of the text at the end of the sequential trace.
    pub document_bytes: usize,
    /// Bytes the engine has set aside for it.
    pub engine_bytes: usize,
    /// Bytes of the operations that made it, as JSON: nobody keeps these in memory.
    pub log_bytes: usize,
}

/// How long a replay takes, and what it leaves.
fn timed<E: Engine>(trace: &Trace, with_document: bool) -> Result<(f64, E::Document)> {
    let start = Instant::now();
    let document = std::hint::black_box(replay::<E>(trace, with_document)?);
    Ok((start.elapsed().as_nanos() as f64, document))
}

/// In turns, several times, and the fastest run of each counts: other work on the machine only adds.
fn compare(trace: &Trace, name: &'static str, with_document: bool) -> Result<(Measured, Text)> {
    let (mut best_ours, ours) = timed::<Ours>(trace, with_document)?;
    // Copying the whole text for each key takes long; once is enough to see that.
    let (mut best_theirs, theirs) = timed::<Theirs>(trace, with_document)?;
    for _ in 0..if with_document { 0 } else { 9 } {
        best_ours = best_ours.min(timed::<Ours>(trace, with_document)?.0);
        best_theirs = best_theirs.min(timed::<Theirs>(trace, with_document)?.0);
    }
    let keys = trace.keystrokes() as f64;
    let (engine_ns, crate_ns) = (best_ours / keys, best_theirs / keys);
    ensure!(
        Ours::text(&ours) == Theirs::text(&theirs),
        "the two ended in different texts"
    );
    let measured = Measured {
        trace: name,
        keystrokes: trace.keystrokes(),
        engine_ns,
        crate_ns,
        ratio: crate_ns / engine_ns,
    };
    Ok((measured, ours))
}

/// Replays all traces through both, and checks that they end in the same texts.
pub fn measure(keystrokes: usize, seed: u64) -> Result<Report> {
    let sequential = Trace::sequential(keystrokes, seed);
    let two = Trace::two_writers(keystrokes, seed)?;
    let (one_writer, document) = compare(&sequential, "one writer", true)?;
    let (two_writers, _) = compare(&two, "two writers", true)?;
    let (operations, _) = compare(&two, "two writers, operations only", false)?;
    let mut log_bytes = 0;
    let mut len = 0;
    for [keys, _] in &sequential.rounds {
        let operation = burst::<Ours>(len, keys)?;
        len = operation.target_len();
        log_bytes += serde_json::to_string(&operation)?.len();
    }
    Ok(Report {
        measured: vec![one_writer, two_writers, operations],
        document_bytes: document.len_bytes(),
        engine_bytes: document.capacity_bytes(),
        log_bytes,
    })
}

async fn bench(args: ArgMatches) -> Result<()> {
    let keystrokes = args.get_one::<u32>("keystrokes").copied().unwrap_or(1) as usize;
    let seed = args.get_one::<u64>("seed").copied().unwrap_or(1);
    if std::io::stderr().is_terminal() {
        eprintln!(
            "replaying; nearly all of the time is that of the other crate, which copies the text for each key"
        );
    }
    let report = tokio::task::spawn_blocking(move || measure(keystrokes, seed)).await??;
    if args.get_flag("json") {
        println!("{:#}", serde_json::to_value(&report)?);
        return Ok(());
    }
    println!("{keystrokes} keystrokes, time for each");
    println!(
        "{:<30} {:>12} {:>24} {:>8}",
        "", "engine", "operational-transform", "ratio"
    );
    for row in &report.measured {
        println!(
            "{:<30} {:>9.0} ns {:>21.0} ns {:>8.1}",
            row.trace, row.engine_ns, row.crate_ns, row.ratio
        );
    }
    println!(
        "memory: {} bytes for a text of {}; the operations that made it are {} bytes of JSON",
        report.engine_bytes, report.document_bytes, report.log_bytes
    );
    Ok(())
}
