//! What a workload costs: per second, on the hottest key, and in a month.
//!
//! Nothing here is a guess about the code: units are those that DynamoDB reported for the calls of
//! the walk, and bytes are those of the items it wrote. What is declared is only the workload: how
//! often each action happens, how uneven the keys are, how long items are kept.

use crate::archetype::{Archetype, Share};
use crate::cost::{Cost, Requests, dollars, number};
use crate::terminal::{Align, Look, grid};
use crate::transcript::{Step, Transcript};
use anyhow::{Result, ensure};
use capacity::limits::{PARTITION_RCU_PER_SECOND, PARTITION_WCU_PER_SECOND};
use capacity::price::HOURS_PER_MONTH;
use capacity::{Bill, FreeTier, GB, Money, OnDemand, Prices, Provisioned, Units};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A workload at a rate: per second, on the hottest key, and per month.
#[derive(Debug, Clone)]
pub struct Estimate {
    /// Units of rate per second.
    pub rate: f64,
    /// What the rate counts.
    pub unit: &'static str,
    /// Each action of the mix.
    pub lines: Vec<Line>,
    /// Each table and index that has traffic.
    pub partitions: Vec<Partition>,
    /// Bytes stored once the oldest item is as old as items get.
    pub stored_bytes: u64,
    /// Bytes in S3 by then.
    pub object_bytes: u64,
    /// How long items and objects are kept.
    pub kept_days: u32,
    /// The month, paid by the request.
    pub on_demand: Bill,
    /// The month, provisioned for [`UTILISATION`].
    pub provisioned: Bill,
    /// The month's requests to SQS, S3 and streams, the same either way.
    pub requests: Money,
    /// The month's storage in S3, the same either way.
    pub objects: Money,
}

/// An action of the mix, averaged over the steps that took it.
#[derive(Debug, Clone)]
pub struct Line {
    /// The share it comes from.
    pub share: Share,
    /// How many steps of the walk the average is over.
    pub steps: usize,
    /// Times per second.
    pub per_second: f64,
    /// Read units each.
    pub read: f64,
    /// Write units each, those that are charged and not reported included.
    pub write: f64,
}

/// A table or global index, per second. A local index lives in its table's partitions and counts
/// there.
#[derive(Debug, Clone)]
pub struct Partition {
    /// The table or `table/index`.
    pub resource: String,
    /// Read units per second, all keys.
    pub read: f64,
    /// Write units per second, all keys.
    pub write: f64,
    /// Read units per second on the hottest key.
    pub hot_read: f64,
    /// Write units per second on the hottest key.
    pub hot_write: f64,
    /// Why that key is hot.
    pub why: &'static str,
}

/// Provisioned capacity is bought with room above the load: auto scaling's usual target.
pub const UTILISATION: f64 = 0.7;

const SECONDS_PER_MONTH: f64 = (HOURS_PER_MONTH * 3_600) as f64;

impl Partition {
    /// The part of one partition's limit that the hottest key takes, by the dimension that is
    /// fuller: 1.0 is the limit.
    pub fn load(&self) -> f64 {
        let write = self.hot_write / PARTITION_WCU_PER_SECOND as f64;
        write.max(self.hot_read / PARTITION_RCU_PER_SECOND as f64)
    }

    /// What that means, in words. `rate` and `unit` say when it would be full.
    pub fn verdict(&self, rate: f64, unit: &str) -> String {
        let load = self.load();
        if load == 0.0 {
            return "spread evenly, no hot key".into();
        }
        let full = format!("full at {} {unit}/s", number(whole(rate / load)));
        if load > 1.0 {
            format!("over the limit by {load:.1}×: shard the key, or take load off it; {full}")
        } else if load > 0.8 {
            format!("close to the limit; {full}")
        } else {
            format!("fits; {full}")
        }
    }
}

/// From ten on, decimals would only pretend to be exact.
fn whole(value: f64) -> f64 {
    if value >= 10.0 { value.round() } else { value }
}

/// Prices the archetype's workload at `rate` units per second, from what its walk consumed.
pub fn estimate(archetype: &Archetype, transcript: &Transcript, rate: f64) -> Result<Estimate> {
    ensure!(
        rate > 0.0 && rate.is_finite(),
        "the rate must be a number above 0, not {rate}"
    );
    let workload = archetype.workload;
    let mut lines = Vec::new();
    let (mut stored_per_second, mut objects_per_second) = (0.0, 0.0);
    let mut requests = [0.0; 4];
    let mut partitions: BTreeMap<String, Partition> = BTreeMap::new();
    for share in workload.mix {
        let taken = |step: &&Step| {
            step.action == share.action && (share.when.is_empty() || step.when == share.when)
        };
        let steps: Vec<&Step> = transcript.steps().filter(taken).collect();
        ensure!(
            !steps.is_empty(),
            "the workload counts '{}' when '{}', and the walk never went that way",
            share.action,
            share.when
        );
        let cost: Cost = steps.iter().map(|step| &step.cost).sum();
        let count = steps.len() as f64;
        let per_second = rate * share.per_unit;
        lines.push(Line {
            share: *share,
            steps: steps.len(),
            per_second,
            read: cost.read().as_f64() / count,
            write: (cost.write() + cost.refused()).as_f64() / count,
        });
        stored_per_second += per_second * cost.stored as f64 / count;
        objects_per_second += per_second * share.object_bytes as f64;
        for (sum, (_, each, _)) in std::iter::zip(&mut requests, cost.requests.each()) {
            *sum += per_second * each as f64 / count;
        }
        for (charged, charge) in &cost.charges {
            let resource = archetype.partitioned_as(charged);
            let on = |resource: &str, action: &str| {
                let skews = workload.skew.iter();
                skews
                    .clone()
                    .find(|skew| skew.resource == resource && skew.action == action)
            };
            let on = |resource| on(resource, share.action).or_else(|| on(resource, ""));
            let skew = on(charged).or_else(|| on(resource));
            let read = per_second * charge.read.as_f64() / count;
            let write = per_second * (charge.write + charge.refused).as_f64() / count;
            let hottest = skew.map_or(0.0, |skew| skew.hottest);
            let entry = partitions
                .entry(resource.to_owned())
                .or_insert_with(|| Partition {
                    resource: resource.to_owned(),
                    read: 0.0,
                    write: 0.0,
                    hot_read: 0.0,
                    hot_write: 0.0,
                    why: "",
                });
            entry.read += read;
            entry.write += write;
            entry.hot_read += read * hottest;
            entry.hot_write += write * hottest;
            if entry.why.is_empty() {
                entry.why = skew.map_or("", |skew| skew.why);
            }
        }
    }
    let partitions: Vec<Partition> = partitions.into_values().collect();
    let prices = Prices::CURRENT;
    let days = f64::from(workload.kept_days) * 86_400.0;
    let stored_bytes = (stored_per_second * days).max(0.0) as u64;
    let object_bytes = (objects_per_second * days) as u64;
    let month =
        |per_second: f64| Units::halves((per_second * 2.0 * SECONDS_PER_MONTH).round() as u64);
    let total = |of: fn(&Partition) -> f64| partitions.iter().map(of).sum::<f64>();
    let bought = |of: fn(&Partition) -> f64| -> u64 {
        partitions
            .iter()
            .map(|partition| (of(partition) / UTILISATION).ceil() as u64)
            .sum()
    };
    let on_demand = OnDemand {
        reads: month(total(|p| p.read)),
        writes: month(total(|p| p.write)),
        stored_bytes,
    };
    let provisioned = Provisioned {
        reads_per_second: bought(|p| p.read),
        writes_per_second: bought(|p| p.write),
        stored_bytes,
    };
    let [sqs, stream, s3_put, s3_get] =
        requests.map(|each| (each * SECONDS_PER_MONTH).round() as u64);
    Ok(Estimate {
        rate,
        unit: workload.unit,
        lines,
        stored_bytes,
        object_bytes,
        kept_days: workload.kept_days,
        on_demand: prices.monthly_on_demand(&on_demand, FreeTier::Ignored),
        provisioned: prices.monthly_provisioned(&provisioned, FreeTier::Ignored),
        requests: Requests {
            sqs,
            stream,
            s3_put,
            s3_get,
        }
        .price(),
        objects: prices.monthly_s3(0, 0, object_bytes),
        partitions,
    })
}

impl Estimate {
    /// Read units per second over everything.
    pub fn read(&self) -> f64 {
        self.partitions.iter().map(|partition| partition.read).sum()
    }

    /// Write units per second over everything.
    pub fn write(&self) -> f64 {
        self.partitions
            .iter()
            .map(|partition| partition.write)
            .sum()
    }

    fn total(&self, bill: &Bill) -> Money {
        bill.total() + self.requests + self.objects
    }

    /// The key that is nearest to its partition's limit.
    pub fn hottest(&self) -> Option<&Partition> {
        self.partitions
            .iter()
            .max_by(|one, other| one.load().total_cmp(&other.load()))
    }

    /// For people.
    pub fn text(&self, look: &Look) -> String {
        let prices = Prices::CURRENT;
        let mut out = String::new();
        let mut part = |title: &str, rows: Vec<Vec<String>>, align: &[Align]| {
            let _ = write!(
                out,
                "{}\n\n{}\n",
                look.strong(title),
                grid(&rows, align, look)
            );
        };
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();

        let mut rows = vec![words(&[
            "action",
            "per second",
            "RCU",
            "WCU",
            "RCU/s",
            "WCU/s",
        ])];
        for line in &self.lines {
            let name = match line.share.when {
                "" => line.share.action.to_owned(),
                when => format!("{} ({when})", line.share.action),
            };
            let (reads, writes) = (line.read * line.per_second, line.write * line.per_second);
            let mut row = vec![name];
            row.extend([line.per_second, line.read, line.write, reads, writes].map(number));
            rows.push(row);
        }
        let mut row = words(&["total", "", "", ""]);
        row.extend([number(self.read()), number(self.write())]);
        rows.push(row);
        let title = format!("{} {} a second", number(self.rate), self.unit);
        part(
            &title,
            rows,
            &[
                Align::Left,
                Align::Right,
                Align::Right,
                Align::Right,
                Align::Right,
                Align::Right,
            ],
        );

        let mut rows = vec![words(&[
            "table or index",
            "RCU/s",
            "WCU/s",
            "load",
            "verdict",
        ])];
        for partition in &self.partitions {
            let mut row = vec![partition.resource.clone()];
            row.extend([partition.hot_read, partition.hot_write].map(number));
            row.push(format!("{:.0}%", partition.load() * 100.0));
            row.push(partition.verdict(self.rate, self.unit));
            rows.push(row);
        }
        let title = format!(
            "The hottest partition key of each, which has {} RCU/s and {} WCU/s",
            number(PARTITION_RCU_PER_SECOND as f64),
            number(PARTITION_WCU_PER_SECOND as f64)
        );
        part(
            &title,
            rows,
            &[
                Align::Left,
                Align::Right,
                Align::Right,
                Align::Right,
                Align::Left,
            ],
        );
        for partition in self
            .partitions
            .iter()
            .filter(|partition| !partition.why.is_empty())
        {
            let _ = writeln!(out, "  {}: {}", partition.resource, partition.why);
        }
        if self
            .partitions
            .iter()
            .any(|partition| !partition.why.is_empty())
        {
            out.push('\n');
        }

        let in_s3 = self.object_bytes > 0;
        let mut row = words(&["", "reads", "writes", "storage", "requests"]);
        row.extend(in_s3.then(|| "S3 storage".to_owned()));
        row.push("total".to_owned());
        let mut rows = vec![row];
        let provisioned = format!("provisioned, {:.0}% used", UTILISATION * 100.0);
        for (name, bill) in [
            ("on demand", &self.on_demand),
            (&provisioned, &self.provisioned),
        ] {
            let mut row = vec![name.to_owned()];
            row.extend([bill.reads, bill.writes, bill.storage, self.requests].map(dollars));
            row.extend(in_s3.then(|| dollars(self.objects)));
            row.push(dollars(self.total(bill)));
            rows.push(row);
        }
        let right = Align::Right;
        let objects = if in_s3 {
            format!(", {} in S3", bytes(self.object_bytes))
        } else {
            String::new()
        };
        let _ = write!(
            out,
            "{}\n\n{}",
            look.strong(&format!(
                "A month, with {} stored{objects} ({} days)",
                bytes(self.stored_bytes),
                self.kept_days
            )),
            grid(
                &rows,
                &[Align::Left, right, right, right, right, right, right][..rows[0].len()],
                look
            )
        );
        let _ = writeln!(
            out,
            "\n{}",
            look.quiet(&format!(
                "Units per action are measured in the walk. Prices: {}, {}, free tier not taken off.",
                prices.region, prices.as_of
            ))
        );
        out
    }

    /// For scripts.
    pub fn json(&self) -> Value {
        let bill = |bill: &Bill| {
            let plain = |money: Money| format!("{money:.2}").trim_start_matches('$').to_owned();
            json!({
                "reads": plain(bill.reads),
                "writes": plain(bill.writes),
                "storage": plain(bill.storage),
                "requests": plain(self.requests),
                "s3_storage": plain(self.objects),
                "total": plain(self.total(bill)),
            })
        };
        let lines = self.lines.iter().map(|line| {
            json!({
                "action": line.share.action,
                "when": line.share.when,
                "steps_measured": line.steps,
                "per_second": line.per_second,
                "read_units": line.read,
                "write_units": line.write,
                "read_units_per_second": line.read * line.per_second,
                "write_units_per_second": line.write * line.per_second,
            })
        });
        let partitions = self.partitions.iter().map(|partition| {
            json!({
                "resource": partition.resource,
                "read_units_per_second": partition.read,
                "write_units_per_second": partition.write,
                "hottest_read_units_per_second": partition.hot_read,
                "hottest_write_units_per_second": partition.hot_write,
                "load": partition.load(),
                "over_the_limit": partition.load() > 1.0,
                "verdict": partition.verdict(self.rate, self.unit),
                "why": partition.why,
            })
        });
        json!({
            "rate": self.rate,
            "unit": self.unit,
            "actions": lines.collect::<Vec<_>>(),
            "read_units_per_second": self.read(),
            "write_units_per_second": self.write(),
            "partitions": partitions.collect::<Vec<_>>(),
            "hottest": self.hottest().map(|partition| &partition.resource),
            "stored_bytes": self.stored_bytes,
            "object_bytes": self.object_bytes,
            "dollars_per_month": {
                "on_demand": bill(&self.on_demand),
                "provisioned": bill(&self.provisioned),
            },
            "prices": {"region": Prices::CURRENT.region, "as_of": Prices::CURRENT.as_of},
        })
    }
}

fn bytes(count: u64) -> String {
    let units = [
        ("TB", GB * 1_024),
        ("GB", GB),
        ("MB", GB / 1_024),
        ("KB", 1_024),
    ];
    match units.iter().find(|(_, size)| count >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", count as f64 / *size as f64),
        None => format!("{count} bytes"),
    }
}
