//! What a step costs: the units DynamoDB reported for its calls, those it charges without a
//! report, the requests other services bill, and the bytes it left behind.

use crate::archetype::Archetype;
use crate::images::Image;
use crate::transcript::{Change, Step};
use anyhow::{Context, Result};
use capacity::price::sqs_requests;
use capacity::{Money, Prices, Units, item_size, refused_write_units, storage_bytes};
use cloud::tables::{Projection, Table};
use cloud::tap::{Call, Outcome, Request, Service};
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
            // The bucket's owner pays for requests to its presigned addresses.
            (Service::Http, "PUT" | "POST") if is_presigned(request) => self.s3_put += 1,
            (Service::Http, "GET" | "HEAD") if is_presigned(request) => self.s3_get += 1,
            _ => {}
        }
    }

    pub(crate) fn each(&self) -> [(&'static str, u64, Money); 4] {
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

    pub(crate) fn price(&self) -> Money {
        self.each()
            .into_iter()
            .map(|(_, count, price)| price * count)
            .sum()
    }
}

fn is_presigned(request: &Request) -> bool {
    let query = request.body["query"].as_str();
    query.is_some_and(|query| query.contains("X-Amz-Signature="))
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
        if at > 0
            && (digits.len() - at).is_multiple_of(3)
            && digit.is_ascii_digit()
            && !out.ends_with('-')
        {
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
    }
}
