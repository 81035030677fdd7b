//! Heat: what B buys and what it costs. `cargo run -p tagging -- heat`
//!
//! One viral tag, more attaches than it can take, and B = 1, 2, 4, 8, 16. The limits are those of one
//! partition key (`chaos::Heat`), scaled down by fifty so that it runs in seconds; what is printed is
//! scaled up again. Time is a clock that is turned by a second at a time, so the figures are the same
//! on every machine.

use crate::domain::{ContentId, TagName, TenantId};
use crate::tables::TABLES;
use crate::{Attached, Tagging, TaggingError};
use anyhow::{Context, Result, ensure};
use chaos::{Capacity, Heat};
use clap::{Arg, ArgAction, ArgMatches, Command};
use cloud::tables::Table;
use cloud::{Backend, Cloud, CloudError};
use futures::future::BoxFuture;
use serde::Serialize;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// The subcommand.
pub const HEAT: walkthrough::Command = walkthrough::Command {
    name: "heat",
    about: "Heat one viral tag: attaches per second, throttles and read cost for B = 1, 2, 4, 8, 16",
    args: heat_args,
    run,
};

/// How many buckets are tried.
pub const BUCKETS: [u32; 5] = [1, 2, 4, 8, 16];

/// The limits are this many times smaller than DynamoDB's, and so is the load.
const SCALE: u32 = 50;

/// What a partition key takes in a second, in write units and in read units.
const WRITES: f64 = 1_000.0;
const READS: f64 = 3_000.0;

/// How many attaches are tried in each second, before scaling: more than 16 buckets take.
const OFFERED: u32 = 12_000;

/// How many seconds are counted, after one that uses up what a rested key has saved.
const SECONDS: u32 = 2;

/// How many contents a page of the view has.
const PAGE: usize = 20;

/// What came of one B.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Heated {
    /// B.
    pub buckets: u32,
    /// Attaches each second that were made.
    pub attaches_per_second: u32,
    /// Attaches each second that were throttled.
    pub throttled_per_second: u32,
    /// Write units each second on the hottest key of the index.
    pub hottest_key_units: u32,
    /// Queries for the first page of the view.
    pub queries_per_page: usize,
    /// Read units for it.
    pub read_units_per_page: f64,
}

/// Heats one B, on a cloud whose clock is turned by hand.
pub async fn heat(cloud: &Cloud, buckets: u32) -> Result<Heated> {
    let tenant = TenantId::new("acme")?;
    let viral = TagName::new(&format!("viral in {buckets}"))?;
    // Whoever serves a viral tag does not read its definition for every attach.
    let tagging = Tagging::new(cloud.clone(), b"heat").remembering_definitions(3_600_000);
    tagging.create_tag(&tenant, &viral, buckets).await?;

    let scale = f64::from(SCALE);
    let heat = Heat::new(TABLES, cloud.clock().clone())
        .writes_per_second(WRITES / scale)
        .reads_per_second(READS / scale);
    let heat = Arc::new(heat);
    let installed = cloud.tap().install(heat.clone());
    let (mut made, mut throttled) = (0, 0);
    let mut units_before = 0.0;
    for second in 0..=SECONDS {
        if second == 1 {
            (made, throttled) = (0, 0);
            units_before = hottest(&heat);
        }
        for number in 0..OFFERED / SCALE {
            let content = ContentId::new(&format!("content-{second}-{number}"))?;
            match tagging.attach(&tenant, &content, &viral).await {
                Ok(Attached::Now(_)) => made += 1,
                Err(TaggingError::Fault(CloudError::Throttled(_))) => throttled += 1,
                other => anyhow::bail!("an attach ended as {other:?}"),
            }
        }
        cloud.clock().advance(Duration::from_secs(1));
    }
    let units = hottest(&heat) - units_before;
    drop(installed);

    let recording = cloud.tap().record();
    let page = tagging.view(&tenant, &viral, PAGE, None).await?;
    ensure!(
        page.contents.len() == PAGE,
        "a page of {}",
        page.contents.len()
    );
    let calls = recording.take();
    let queries = calls
        .iter()
        .filter(|call| call.request.operation == "Query");
    let read = calls
        .iter()
        .flat_map(|call| &call.consumed)
        .map(|consumed| consumed.read);
    Ok(Heated {
        buckets,
        attaches_per_second: made * SCALE / SECONDS,
        throttled_per_second: throttled * SCALE / SECONDS,
        hottest_key_units: (units * scale / f64::from(SECONDS)).round() as u32,
        queries_per_page: queries.count(),
        read_units_per_page: read.sum(),
    })
}

/// What the hottest key of the index has taken so far.
fn hottest(heat: &Heat) -> f64 {
    let keys = heat.hottest(usize::MAX);
    let of_index = |key: &&chaos::HotKey| {
        key.resource == "content_tag_by_tag" && key.capacity == Capacity::Write
    };
    keys.iter().find(of_index).map_or(0.0, |key| key.units)
}

/// Heats every B, each on a store of its own.
pub async fn heat_all() -> Result<Vec<Heated>> {
    let mut all = Vec::new();
    for buckets in BUCKETS {
        let cloud = cloud::connect_for_tests().await?;
        ensure!(
            cloud.backend() == Backend::Embedded,
            "heat measures what chaos::Heat limits, on the embedded backend: leave ARCHETYPES_BACKEND unset"
        );
        // Nobody follows, and a stream that nobody reads slows the store down.
        let tables: Vec<Table> = TABLES
            .iter()
            .map(|table| Table {
                stream: None,
                ..*table
            })
            .collect();
        cloud.create_tables(&tables).await?;
        let heated = heat(&cloud, buckets).await;
        all.push(heated.with_context(|| format!("B = {buckets}"))?);
    }
    Ok(all)
}

/// The figures as a table, and as bars.
pub fn report(all: &[Heated]) -> String {
    let mut text = String::from(
        "| B | attaches/s | throttled/s | units/s on the hottest key | queries for a page | read units for a page |\n\
         | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for row in all {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {:.1} |",
            row.buckets,
            row.attaches_per_second,
            row.throttled_per_second,
            row.hottest_key_units,
            row.queries_per_page,
            row.read_units_per_page,
        );
    }
    text.push_str("\n```text\nattaches per second\n");
    bars(&mut text, all, |row| f64::from(row.attaches_per_second), 0);
    text.push_str("\nread units for a page of 20\n");
    bars(&mut text, all, |row| row.read_units_per_page, 1);
    text.push_str("```\n");
    text
}

/// One bar for each B, the longest 50 characters long.
fn bars(text: &mut String, all: &[Heated], value: fn(&Heated) -> f64, decimals: usize) {
    let most = all.iter().map(value).fold(0.0, f64::max);
    for row in all {
        let length = if most > 0.0 {
            (value(row) / most * 50.0).round() as usize
        } else {
            0
        };
        let bar = "█".repeat(length);
        let _ = writeln!(
            text,
            "B = {:>2}  {bar} {:.decimals$}",
            row.buckets,
            value(row)
        );
    }
}

fn heat_args(command: Command) -> Command {
    command.arg(
        Arg::new("json")
            .long("json")
            .action(ArgAction::SetTrue)
            .help("Print the figures as JSON"),
    )
}

fn run(_cloud: Cloud, matches: ArgMatches) -> BoxFuture<'static, Result<()>> {
    Box::pin(async move {
        let all = heat_all().await?;
        if matches.get_flag("json") {
            println!("{}", serde_json::to_string_pretty(&all)?);
        } else {
            print!("{}", report(&all));
        }
        Ok(())
    })
}
