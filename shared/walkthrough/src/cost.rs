//! What a step costs, and what a workload of such steps costs in a month.
//!
//! Nothing here is a guess about the code: units are those that DynamoDB reported for the calls of
//! the walk, and bytes are those of the items it wrote. What is declared is only the workload: how
//! often each action happens, how uneven the keys are, how long items are kept.

use crate::archetype::{Archetype, Share};
use crate::images::Image;
use crate::terminal::{Align, Look, grid};
use crate::transcript::{Change, Step, Transcript};
use anyhow::{Context, Result, ensure};
use capacity::limits::{PARTITION_RCU_PER_SECOND, PARTITION_WCU_PER_SECOND};
use capacity::price::{HOURS_PER_MONTH, sqs_requests};
use capacity::{
    Bill, FreeTier, GB, Money, OnDemand, Prices, Provisioned, Units, item_size,
    refused_write_units, storage_bytes,
};
use cloud::tables::{Projection, Table};
use cloud::tap::{Call, Outcome, Service};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::iter::Sum;

/// What a step, or several, cost.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cost {
    /// By table and `table/index`.
    pub charges: BTreeMap<String, Charge>,
    /// Requests that other services bill.
    pub requests: Requests,
    /// Bytes on the storage bill, indexes included: added, or freed if negative.
    pub stored: i64,
}

/// What one table or index charged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Charge {
    /// Read units, reported.
    pub read: Units,
    /// Write units, reported.
    pub write: Units,
    /// Write units of refused writes: charged, not reported, worked out from the item's size.
    pub refused: Units,
}

/// Requests that are billed one by one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Requests {
    /// SQS, each 64 KB begun.
    pub sqs: u64,
    /// `GetRecords` on a stream.
    pub stream: u64,
    /// S3 PUT, COPY, POST and LIST.
    pub s3_put: u64,
    /// S3 GET and HEAD.
    pub s3_get: u64,
}

impl Requests {
    fn count(&mut self, call: &Call) {
        let request = &call.request;
        match (request.service, request.operation.as_str()) {
            (Service::Sqs, _) => self.sqs += sqs_requests(request.body.to_string().len() as u64),
            (Service::Streams, "GetRecords") => self.stream += 1,
            (Service::S3, operation) if operation.starts_with("Delete") => {}
            (Service::S3, operation)
                if operation.starts_with("Get") || operation.starts_with("Head") =>
            {
                self.s3_get += 1;
            }
            (Service::S3, _) => self.s3_put += 1,
            _ => {}
        }
    }

    fn each(&self) -> [(&'static str, u64, Money); 4] {
        let prices = Prices::CURRENT;
        [
            ("SQS requests", self.sqs, prices.sqs_request),
            ("stream reads", self.stream, prices.stream_read),
            ("S3 puts", self.s3_put, prices.s3_put),
            ("S3 gets", self.s3_get, prices.s3_get),
        ]
    }

    /// `2 SQS requests, 1 S3 puts`; empty if there are none.
    pub fn text(&self) -> String {
        let some = self.each().into_iter().filter(|(_, count, _)| *count > 0);
        some.map(|(name, count, _)| format!("{count} {name}"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    fn price(&self) -> Money {
        self.each()
            .into_iter()
            .map(|(_, count, price)| price * count)
            .sum()
    }
}

impl Cost {
    pub(crate) fn of(
        calls: &[Call],
        met: &HashMap<u64, Vec<Image>>,
        changes: &[Change],
        archetype: &Archetype,
    ) -> Result<Self> {
        let mut cost = Self::default();
        for call in calls {
            for consumed in &call.consumed {
                let charge = cost.charges.entry(consumed.resource.clone()).or_default();
                charge.read += Units::try_from(consumed.read)?;
                charge.write += Units::try_from(consumed.write)?;
            }
            let images = met
                .get(&call.request.number)
                .map(Vec::as_slice)
                .unwrap_or_default();
            for (table, units) in refused_by_table(call, images)? {
                cost.charges.entry(table).or_default().refused += units;
            }
            cost.requests.count(call);
        }
        for change in changes {
            let Some(table) = archetype.table(&change.table) else {
                continue;
            };
            let bytes =
                |item: &Option<Value>| item.as_ref().map_or(Ok(0), |item| stored(table, item));
            cost.stored += bytes(&change.after)? - bytes(&change.before)?;
        }
        Ok(cost)
    }

    /// Read units, reported.
    pub fn read(&self) -> Units {
        self.charges.values().map(|charge| charge.read).sum()
    }

    /// Write units, reported.
    pub fn write(&self) -> Units {
        self.charges.values().map(|charge| charge.write).sum()
    }

    /// Write units of refused writes: charged, not reported.
    pub fn refused(&self) -> Units {
        self.charges.values().map(|charge| charge.refused).sum()
    }

    /// A million of these, on demand, at current prices.
    pub fn dollars_per_million(&self) -> Money {
        let capacity = Prices::CURRENT.on_demand(self.read(), self.write() + self.refused());
        (capacity + self.requests.price()) * 1_000_000
    }

    /// `1 RCU, 2 WCU`.
    pub fn text(&self) -> String {
        let mut text = format!("{} RCU, {} WCU", self.read(), self.write());
        if self.refused() > Units::ZERO {
            let _ = write!(text, " + {} WCU (charged, not reported)", self.refused());
        }
        let requests = self.requests.text();
        if !requests.is_empty() {
            let _ = write!(text, ", {requests}");
        }
        text
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let charges = self.charges.iter().map(|(resource, charge)| {
            let charge = json!({
                "read_units": charge.read.as_f64(),
                "write_units": charge.write.as_f64(),
                "refused_write_units": charge.refused.as_f64(),
            });
            (resource.clone(), charge)
        });
        json!({
            "read_units": self.read().as_f64(),
            "write_units": self.write().as_f64(),
            "refused_write_units": self.refused().as_f64(),
            "by_resource": charges.collect::<serde_json::Map<_, _>>(),
            "sqs_requests": self.requests.sqs,
            "stream_reads": self.requests.stream,
            "s3_puts": self.requests.s3_put,
            "s3_gets": self.requests.s3_get,
            "stored_bytes": self.stored,
            "dollars_per_million": format!("{:.2}", self.dollars_per_million()).trim_start_matches('$'),
        })
    }
}

impl<'a> Sum<&'a Cost> for Cost {
    fn sum<I: Iterator<Item = &'a Cost>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            for (resource, charge) in &one.charges {
                let into = sum.charges.entry(resource.clone()).or_default();
                into.read += charge.read;
                into.write += charge.write;
                into.refused += charge.refused;
            }
            sum.requests.sqs += one.requests.sqs;
            sum.requests.stream += one.requests.stream;
            sum.requests.s3_put += one.requests.s3_put;
            sum.requests.s3_get += one.requests.s3_get;
            sum.stored += one.stored;
            sum
        })
    }
}

/// What a refused write was charged, by table: every part of it, since all were looked at.
fn refused_by_table(call: &Call, images: &[Image]) -> Result<Vec<(String, Units)>> {
    let times = match &call.outcome {
        Outcome::ConditionFailed => 1,
        Outcome::Cancelled(reasons)
            if reasons
                .iter()
                .any(|reason| reason == "ConditionalCheckFailed") =>
        {
            2
        }
        _ => return Ok(Vec::new()),
    };
    let size = |item: &Option<Value>| item.as_ref().map_or(Ok(0), item_size);
    let part = |image: &Image| {
        let units = refused_write_units(size(&image.item)?, size(&image.touched.put)?);
        Ok((image.touched.table.clone(), units * times))
    };
    images.iter().map(part).collect()
}

pub(crate) fn refused(call: &Call, images: &[Image]) -> Result<Units> {
    Ok(refused_by_table(call, images)?
        .into_iter()
        .map(|(_, units)| units)
        .sum())
}

/// Bytes an item takes on the storage bill, with its entries in the indexes.
fn stored(table: &Table, item: &Value) -> Result<i64> {
    let table_key: Vec<_> = table.key_names().collect();
    let mut bytes = storage_bytes(item_size(item)?);
    for index in table.indexes {
        let key: Vec<_> = [Some(index.partition), index.sort]
            .iter()
            .flatten()
            .map(|key| key.name())
            .collect();
        let entry = capacity::Index {
            table_key: &table_key,
            key: &key,
            projection: match index.projection {
                Projection::KeysOnly => capacity::Projection::KeysOnly,
                Projection::Include(names) => capacity::Projection::Include(names),
                Projection::All => capacity::Projection::All,
            },
        };
        bytes += entry.entry_size(item)?.map_or(0, storage_bytes);
    }
    Ok(bytes as i64)
}

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
    /// How long items are kept.
    pub kept_days: u32,
    /// The month, paid by the request.
    pub on_demand: Bill,
    /// The month, provisioned for [`UTILISATION`].
    pub provisioned: Bill,
    /// The month's requests to SQS, S3 and streams, the same either way.
    pub requests: Money,
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

/// A table or index, per second.
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
        let full = format!("full at {} {unit}/s", number(rate / load));
        if load > 1.0 {
            format!("over the limit by {load:.1}×: shard the key, or take load off it; {full}")
        } else if load > 0.8 {
            format!("close to the limit; {full}")
        } else {
            format!("fits; {full}")
        }
    }
}

/// Prices the archetype's workload at `rate` units per second, from what its walk consumed.
pub fn estimate(archetype: &Archetype, transcript: &Transcript, rate: f64) -> Result<Estimate> {
    ensure!(
        rate > 0.0 && rate.is_finite(),
        "the rate must be a number above 0, not {rate}"
    );
    let workload = archetype.workload;
    let mut lines = Vec::new();
    let mut stored_per_second = 0.0;
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
        for (sum, (_, each, _)) in std::iter::zip(&mut requests, cost.requests.each()) {
            *sum += per_second * each as f64 / count;
        }
        for (resource, charge) in &cost.charges {
            let on = |action: &str| {
                workload
                    .skew
                    .iter()
                    .find(|skew| skew.resource == resource && skew.action == action)
            };
            let skew = on(share.action).or_else(|| on(""));
            let read = per_second * charge.read.as_f64() / count;
            let write = per_second * (charge.write + charge.refused).as_f64() / count;
            let hottest = skew.map_or(0.0, |skew| skew.hottest);
            let entry = partitions
                .entry(resource.clone())
                .or_insert_with(|| Partition {
                    resource: resource.clone(),
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

        let mut rows = vec![words(&[
            "", "reads", "writes", "storage", "requests", "total",
        ])];
        let provisioned = format!("provisioned, {:.0}% used", UTILISATION * 100.0);
        for (name, bill) in [
            ("on demand", &self.on_demand),
            (&provisioned, &self.provisioned),
        ] {
            let mut row = vec![name.to_owned()];
            row.extend([bill.reads, bill.writes, bill.storage, self.requests].map(dollars));
            row.push(dollars(bill.total() + self.requests));
            rows.push(row);
        }
        let right = Align::Right;
        let _ = write!(
            out,
            "{}\n\n{}",
            look.strong(&format!(
                "A month, with {} stored ({} days)",
                bytes(self.stored_bytes),
                self.kept_days
            )),
            grid(
                &rows,
                &[Align::Left, right, right, right, right, right],
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
                "total": plain(bill.total() + self.requests),
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
            "dollars_per_month": {
                "on_demand": bill(&self.on_demand),
                "provisioned": bill(&self.provisioned),
            },
            "prices": {"region": Prices::CURRENT.region, "as_of": Prices::CURRENT.as_of},
        })
    }
}

/// The units of several steps of one kind: `1 RCU, 2 WCU`, or the range where they differ.
pub(crate) fn range(steps: &[&Step]) -> Result<String> {
    let first = steps.first().context("no steps")?;
    let texts: Vec<String> = steps.iter().map(|step| step.cost.text()).collect();
    if texts.iter().all(|text| *text == texts[0]) {
        return Ok(first.cost.text());
    }
    let span = |of: fn(&Cost) -> Units, unit: &str| {
        let all = || steps.iter().map(|step| of(&step.cost));
        let (least, most) = (
            all().min().unwrap_or_default(),
            all().max().unwrap_or_default(),
        );
        if least == most {
            format!("{least} {unit}")
        } else {
            format!("{least}–{most} {unit}")
        }
    };
    let mut text = format!("{}, {}", span(Cost::read, "RCU"), span(Cost::write, "WCU"));
    if steps.iter().any(|step| step.cost.refused() > Units::ZERO) {
        let _ = write!(
            text,
            " + {} (charged, not reported)",
            span(Cost::refused, "WCU")
        );
    }
    Ok(text)
}

/// A number with as many decimals as it needs, at most two, and commas.
pub(crate) fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let fraction = fraction.trim_end_matches('0');
    let whole = commas(whole);
    if fraction.is_empty() {
        whole
    } else {
        format!("{whole}.{fraction}")
    }
}

fn commas(digits: &str) -> String {
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 && digit.is_ascii_digit() && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

pub(crate) fn dollars(money: Money) -> String {
    let text = format!("{money:.2}");
    let (whole, cents) = text
        .trim_start_matches('$')
        .split_once('.')
        .unwrap_or((&text, "00"));
    format!("${}.{cents}", commas(whole))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_commas() {
        assert_eq!(number(1_234_567.0), "1,234,567");
        assert_eq!(number(0.5), "0.5");
        assert_eq!(number(999.999), "1,000");
        assert_eq!(number(-1_234.5), "-1,234.5");
        assert_eq!(dollars(Money::cents(123_456_789)), "$1,234,567.89");
        assert_eq!(bytes(3 * GB / 2), "1.5 GB");
    }
}
