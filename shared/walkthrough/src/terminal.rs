//! The story as one reads it: on a terminal while it happens, or as plain text.

use crate::cost::dollars;
use crate::transcript::{Change, Entry, SeenCall, Step, Transcript};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use cloud::tap::{Outcome, Service};
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::process::{Command, Stdio};

/// Width and colours.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Characters in a line.
    pub width: usize,
    /// Whether there are colours.
    pub colour: bool,
}

/// Lines longer than this are hard to read, however wide the terminal is.
const WIDEST: usize = 100;

impl Look {
    /// As committed transcripts are: a hundred characters, no colours.
    pub const PLAIN: Self = Self {
        width: WIDEST,
        colour: false,
    };

    /// What standard output can show. No colours into a file or pipe, nor with `NO_COLOR`.
    pub fn of_stdout() -> Self {
        if !io::stdout().is_terminal() {
            return Self::PLAIN;
        }
        let set = |name: &str| std::env::var(name).is_ok_and(|value| !value.is_empty());
        let dumb = std::env::var("TERM").is_ok_and(|term| term == "dumb");
        Self {
            width: terminal_width().unwrap_or(80).clamp(40, WIDEST),
            colour: !set("NO_COLOR") && !dumb,
        }
    }

    fn paint(&self, style: Style, text: &str) -> String {
        if self.colour {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }

    pub(crate) fn strong(&self, text: &str) -> String {
        self.paint(Style::new().bold(), text)
    }

    pub(crate) fn quiet(&self, text: &str) -> String {
        self.paint(Style::new().dimmed(), text)
    }

    fn in_colour(&self, colour: AnsiColor, text: &str) -> String {
        self.paint(Style::new().fg_color(Some(colour.into())), text)
    }
}

/// `COLUMNS` if somebody set it, else what the terminal says.
fn terminal_width() -> Option<usize> {
    let told = std::env::var("COLUMNS")
        .ok()
        .and_then(|columns| columns.parse().ok());
    told.or_else(|| {
        let size = Command::new("stty")
            .arg("size")
            .stdin(Stdio::from(std::fs::File::open("/dev/tty").ok()?))
            .stderr(Stdio::null())
            .output()
            .ok()?;
        let size = String::from_utf8(size.stdout).ok()?;
        size.split_whitespace().nth(1)?.parse().ok()
    })
    .filter(|width| *width > 0)
}

/// Stands for a space at which no line is broken.
const TIED: char = '\u{a0}';

/// Words in lines of at most `width` characters; a longer word stands alone.
pub(crate) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split([' ', '\t']).filter(|word| !word.is_empty()) {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines
        .into_iter()
        .map(|line| line.replace(TIED, " "))
        .collect()
}

/// Prose, indented.
fn prose(out: &mut String, text: &str, indent: usize, look: &Look) {
    for line in wrapped(text, look.width.saturating_sub(indent).max(20)) {
        let _ = writeln!(out, "{:indent$}{line}", "");
    }
}

/// Text that goes on under itself, two characters further in.
fn hanging(out: &mut String, first: &str, text: &str, indent: usize, look: &Look) {
    let room = look.width.saturating_sub(indent + 2).max(20);
    for (at, line) in wrapped(text, room).iter().enumerate() {
        match at {
            0 => {
                let _ = writeln!(out, "{first}{line}");
            }
            _ => {
                let _ = writeln!(out, "{:width$}{line}", "", width = indent + 2);
            }
        }
    }
}

const MARGIN: usize = 5;
const LABEL: usize = 10;
const BODY: usize = MARGIN + LABEL;

/// A label in its column, once.
fn label(name: &str, look: &Look) -> String {
    let padded = format!("{name:LABEL$}");
    format!("{:MARGIN$}{}", "", look.quiet(&padded))
}

/// The whole story.
pub fn text(transcript: &Transcript, look: &Look) -> String {
    let mut out = opening(transcript, look);
    for entry in &transcript.entries {
        out.push_str(&show(entry, look));
    }
    out.push_str(&closing(transcript, look));
    out
}

fn opening(transcript: &Transcript, look: &Look) -> String {
    let mut out = format!("{}\n", look.strong(&transcript.title));
    prose(&mut out, &transcript.question, 0, look);
    out
}

fn closing(transcript: &Transcript, look: &Look) -> String {
    let cost = transcript.cost();
    let steps = transcript.steps().count();
    let calls: usize = transcript.steps().map(Step::call_count).sum();
    let line = format!(
        "{steps} steps, {calls} calls, {}. Every declared action was walked, every call was \
         declared, and nothing scanned.",
        cost.text()
    );
    let mut out = format!("\n{}\n", look.quiet(&"─".repeat(look.width)));
    prose(&mut out, &line, 0, look);
    out
}

fn show(entry: &Entry, look: &Look) -> String {
    let mut out = String::from("\n");
    match entry {
        Entry::Section { title, text } => {
            let rest = look.width.saturating_sub(title.chars().count() + 4);
            let rule = format!("── {title} {}", "─".repeat(rest));
            let _ = writeln!(
                out,
                "\n{}",
                look.paint(
                    Style::new().bold().fg_color(Some(AnsiColor::Cyan.into())),
                    &rule
                )
            );
            if !text.is_empty() {
                out.push('\n');
                prose(&mut out, text, 0, look);
            }
        }
        Entry::Say(text) => prose(&mut out, text, 0, look),
        Entry::Check(claim) => {
            out.clear();
            let mark = look.in_colour(AnsiColor::Green, "✓");
            hanging(
                &mut out,
                &format!("{:MARGIN$}{mark} ", ""),
                claim,
                MARGIN,
                look,
            );
        }
        Entry::Step(step) => show_step(&mut out, step, look),
    }
    out
}

fn show_step(out: &mut String, step: &Step, look: &Look) {
    let way = if step.when.is_empty() {
        String::new()
    } else {
        format!(" ({})", step.when)
    };
    let _ = writeln!(
        out,
        "{} {} {}",
        look.strong(&format!("{:>3} ", step.number)),
        look.strong(&step.action),
        look.quiet(&format!("→ {}{way}", step.entities.join(", ")))
    );
    prose(out, &step.why, MARGIN, look);
    out.push('\n');
    for (name, text) in [
        ("abstract", &step.abstract_layer),
        ("concrete", &step.concrete_layer),
    ] {
        hanging(out, &label(name, look), text, BODY, look);
    }
    for (at, call) in step.calls.iter().enumerate() {
        out.push_str(&label(if at == 0 { "calls" } else { "" }, look));
        show_call(out, call, look);
    }
    if step.calls.is_empty() {
        let _ = writeln!(out, "{}none", label("calls", look));
    }
    if step.changes.is_empty() {
        let _ = writeln!(out, "{}nothing changed", label("", look));
    }
    for (at, change) in step.changes.iter().enumerate() {
        let first = label(if at == 0 { "changed" } else { "" }, look);
        let (mark, text) = change_text(change);
        let mark = match mark {
            "+" => look.in_colour(AnsiColor::Green, "+ "),
            "-" => look.in_colour(AnsiColor::Red, "- "),
            _ => String::new(),
        };
        hanging(out, &format!("{first}{mark}"), &text, BODY, look);
    }
    let mut cost = format!(
        "{} · {} per million",
        step.cost.text(),
        dollars(step.cost.dollars_per_million())
    );
    if step.cost.charges.len() > 1 {
        let each = step.cost.charges.iter().map(|(resource, charge)| {
            let reads = (charge.read.as_halves() > 0).then(|| format!("{} RCU", charge.read));
            let written = charge.write + charge.refused;
            let writes = (written.as_halves() > 0).then(|| format!("{written} WCU"));
            let both: Vec<_> = [reads, writes].into_iter().flatten().collect();
            format!("{resource} {}", both.join(" "))
        });
        let _ = write!(cost, " · {}", each.collect::<Vec<_>>().join(", "));
    }
    hanging(out, &label("cost", look), &cost, BODY, look);
}

fn show_call(out: &mut String, call: &SeenCall, look: &Look) {
    let times = if call.times > 1 {
        format!(" ×{}", call.times)
    } else {
        String::new()
    };
    let actor = if call.actor == "main" {
        String::new()
    } else {
        format!("{}: ", call.actor)
    };
    let head = call_head(call);
    let plain = format!("{actor}{head}{times} → {}", call.outcome);
    if plain.chars().count() + BODY > look.width {
        hanging(out, "", &plain, BODY, look);
    } else {
        let outcome = match &call.outcome {
            Outcome::Ok => look.in_colour(AnsiColor::Green, "ok"),
            other => look.in_colour(AnsiColor::Yellow, &other.to_string()),
        };
        let (head, arrow) = (look.strong(&head), look.quiet("→"));
        let _ = writeln!(out, "{actor}{head}{times} {arrow} {outcome}");
    }
    for (depth, word, text) in call_lines(call) {
        let indent = BODY + 2 + 2 * depth;
        let word = if word.is_empty() {
            String::new()
        } else {
            look.quiet(&format!("{word:<5}"))
        };
        hanging(
            out,
            &format!("{:indent$}{word}", ""),
            &text,
            indent + 3,
            look,
        );
    }
}

/// The first line of a call: `UpdateItem auctions`, or `TransactWriteItems` alone.
pub(crate) fn call_head(call: &SeenCall) -> String {
    match (call.service, call.targets.as_slice()) {
        (Service::Redis, _) => format!("Redis {}", call.operation),
        (_, [one]) if one.verb.is_none() => {
            let key = one
                .key
                .as_ref()
                .map_or(String::new(), |key| format!(" {key}"));
            format!("{} {}{key}", call.operation, one.resource)
        }
        _ => call.operation.clone(),
    }
}

/// The other lines of a call: how far in, a word before it, and the text.
pub(crate) fn call_lines(call: &SeenCall) -> Vec<(usize, &'static str, String)> {
    if call.service == Service::Redis {
        // The arguments say it all, its NX included.
        return call
            .detail
            .iter()
            .map(|detail| (0, "", detail.clone()))
            .collect();
    }
    let mut lines = Vec::new();
    for target in &call.targets {
        let depth = usize::from(target.verb.is_some());
        if let Some(verb) = &target.verb {
            let key = target
                .key
                .as_ref()
                .map_or(String::new(), |key| format!(" {key}"));
            lines.push((0, "", format!("{verb} {}{key}", target.resource)));
        }
        for (word, text) in [("do", &target.update), ("if", &target.condition)] {
            lines.extend(text.iter().map(|text| (depth, word, text.clone())));
        }
    }
    lines.extend(call.detail.iter().map(|detail| (0, "with", detail.clone())));
    lines
}

/// How much of a value a line has room for.
const LONGEST_VALUE: usize = 80;

pub(crate) fn short(value: &str) -> String {
    match value.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value.to_owned(),
    }
}

/// `auctions auction_id=auction-0001: best_amount 100 → 120, version 3 → 4`, and its mark.
pub(crate) fn change_text(change: &Change) -> (&'static str, String) {
    let absent = "(absent)".to_owned();
    let each = change
        .attributes()
        .into_iter()
        .map(|(name, before, after)| {
            let (before, after) = (before.map(|it| short(&it)), after.map(|it| short(&it)));
            match change.kind() {
                "new" => format!("{name} {}", after.unwrap_or_default()),
                _ => format!(
                    "{name} {} → {}",
                    before.unwrap_or(absent.clone()),
                    after.unwrap_or(absent.clone())
                ),
            }
        });
    // A line may break between attributes, and inside one only where it is long.
    let tied = |text: String| match text.chars().count() {
        0..=45 => text.replace(' ', &TIED.to_string()),
        _ => text,
    };
    let each: Vec<_> = each.map(tied).collect();
    let item = format!("{} {}", change.table, change.key);
    match change.kind() {
        "deleted" => ("-", item),
        _ if each.is_empty() => ("+", item),
        "new" => ("+", format!("{item}: {}", each.join(", "))),
        _ => ("", format!("{item}: {}", each.join(", "))),
    }
}

/// Where a column's text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Align {
    /// At the left.
    Left,
    /// At the right, for numbers.
    Right,
}

/// Rows in columns; the first row is the header.
pub(crate) fn grid(rows: &[Vec<String>], align: &[Align], look: &Look) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..align.len()).map(width).collect();
    let mut out = String::new();
    for (at, row) in rows.iter().enumerate() {
        let mut line = String::from("  ");
        for ((cell, width), align) in row.iter().zip(&widths).zip(align) {
            let _ = match align {
                Align::Left => write!(line, "{cell:<width$}  "),
                Align::Right => write!(line, "{cell:>width$}  "),
            };
        }
        let line = line.trim_end();
        let _ = writeln!(
            out,
            "{}",
            if at == 0 {
                look.quiet(line)
            } else {
                line.to_owned()
            }
        );
    }
    out
}

/// Standard output that notices when nobody reads any more, instead of panicking.
pub(crate) struct Live {
    look: Look,
    wait: bool,
    failed: Option<io::Error>,
}

impl Live {
    pub fn new(look: Look, wait: bool) -> Self {
        Self {
            look,
            wait,
            failed: None,
        }
    }

    fn print(&mut self, text: &str) {
        if self.failed.is_none() {
            let mut out = io::stdout().lock();
            self.failed = out
                .write_all(text.as_bytes())
                .and_then(|()| out.flush())
                .err();
        }
    }

    pub fn begin(&mut self, transcript: &Transcript) {
        self.print(&opening(transcript, &self.look));
    }

    pub fn show(&mut self, entry: &Entry) {
        self.print(&show(entry, &self.look));
    }

    pub fn end(&mut self, transcript: &Transcript) {
        self.print(&closing(transcript, &self.look));
    }

    /// Fails once printing has failed, so that a story nobody reads comes to its end.
    pub fn still_heard(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), |error| Err(error.into()))
    }

    /// Waits for Enter between two steps. At the end of the input it goes on without waiting, so
    /// that the same command works in a script.
    pub async fn before_step(&mut self, number: usize) -> Result<()> {
        self.still_heard()?;
        if self.wait && number > 1 {
            let mut err = io::stderr();
            let _ = write!(err, "\n{}", self.look.quiet("  Enter for the next step "));
            let _ = err.flush();
            let read = tokio::task::spawn_blocking(|| io::stdin().read_line(&mut String::new()));
            if read.await?? == 0 {
                self.wait = false;
                let _ = writeln!(err);
            }
        }
        Ok(())
    }
}
