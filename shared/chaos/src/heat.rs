//! What one partition key may take in a second.
//!
//! A partition serves 1,000 write units and 3,000 read units a second, and the items of one
//! partition key live on one partition (until DynamoDB splits them by sort key, which takes
//! minutes and is not to be counted on). So these are the limits of one key, in a table and in
//! each global index, whatever capacity the table has. The emulators know nothing of it.

use crate::faults::throttled;
use crate::story::lock;
use cloud::Clock;
use cloud::tables::{Billing, Index, Scope, Table};
use cloud::tap::call::plain;
use cloud::tap::{Call, Outcome, Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fmt;
use std::sync::Mutex;

/// Which of the two limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Capacity {
    /// Read units.
    Read,
    /// Write units.
    Write,
}

/// A key and what it took.
#[derive(Debug, Clone, PartialEq)]
pub struct HotKey {
    /// Table, or `table/index`.
    pub resource: String,
    /// The value of the partition key.
    pub key: String,
    /// Reads or writes.
    pub capacity: Capacity,
    /// Units consumed since the plan was made.
    pub units: f64,
    /// How often it was the reason to throttle.
    pub throttled: usize,
}

/// A plan that throttles keys that are too hot: a token bucket for each partition key value of
/// each table and global index, refilled by the clock.
///
/// What a call costs is known only when it is answered. So a bucket admits calls while anything
/// is in it, is charged what DynamoDB reports, and may go into debt: as on AWS, where a burst
/// passes and is paid for afterwards.
///
/// What it answers:
/// - a single call gets `ProvisionedThroughputExceededException` with the throttling reason
///   `…KeyRangeThroughputExceeded`; the SDK sends it again, and each attempt counts in
///   [`Heat::throttled`];
/// - a transaction gets `TransactionCanceledException` whose reason for the hot items is
///   `ThrottlingError` (on-demand tables) or `ProvisionedThroughputExceeded` (provisioned ones),
///   which the SDK does not send again;
/// - a batch with any hot key is throttled whole. AWS would do the rest of it and hand the hot
///   items back as `UnprocessedItems`.
///
/// What it cannot know and leaves out: a scan, which has no key; and the index key of an item
/// that is changed by an update which does not set it, or deleted. Several items of one table in
/// a transaction or batch are charged to their keys in equal parts, because DynamoDB reports
/// their cost per table. A write whose condition failed is not reported at all: it is charged one
/// unit, in a transaction two for each item.
#[derive(Debug)]
pub struct Heat {
    tables: HashMap<&'static str, Table>,
    clock: Clock,
    reads_per_second: f64,
    writes_per_second: f64,
    burst_seconds: f64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    buckets: HashMap<Touch, Bucket>,
    throttled: usize,
}

/// One bucket that a call draws from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Touch {
    resource: String,
    key: String,
    capacity: Capacity,
}

#[derive(Debug)]
struct Bucket {
    level: f64,
    filled_at: i64,
    units: f64,
    throttled: usize,
}

/// One part of a request: what it does to which table or index.
struct Part<'a> {
    resource: &'a str,
    /// The item or the key, as attributes.
    item: &'a Value,
    /// Where its expressions stand.
    expressions: &'a Value,
    capacity: Capacity,
    /// Whether it can change what indexes hold.
    changes: bool,
}

impl Heat {
    /// Limits for the keys of these tables and their indexes; other tables are not limited.
    pub fn new(tables: &[Table], clock: Clock) -> Self {
        Self {
            tables: tables.iter().map(|table| (table.name, *table)).collect(),
            clock,
            reads_per_second: 3_000.0,
            writes_per_second: 1_000.0,
            burst_seconds: 1.0,
            state: Mutex::default(),
        }
    }

    /// Another limit for reads (3,000 units unless told).
    pub fn reads_per_second(mut self, units: f64) -> Self {
        self.reads_per_second = units;
        self
    }

    /// Another limit for writes (1,000 units unless told).
    pub fn writes_per_second(mut self, units: f64) -> Self {
        self.writes_per_second = units;
        self
    }

    /// How many seconds' worth a rested key may take at once (one unless told).
    pub fn burst_seconds(mut self, seconds: f64) -> Self {
        self.burst_seconds = seconds;
        self
    }

    /// How many calls were throttled.
    pub fn throttled(&self) -> usize {
        lock(&self.state).throttled
    }

    /// The keys that took most, hottest first.
    pub fn hottest(&self, at_most: usize) -> Vec<HotKey> {
        let state = lock(&self.state);
        let mut keys: Vec<HotKey> = state
            .buckets
            .iter()
            .map(|(touch, bucket)| HotKey {
                resource: touch.resource.clone(),
                key: touch.key.clone(),
                capacity: touch.capacity,
                units: bucket.units,
                throttled: bucket.throttled,
            })
            .collect();
        // Equals by name, so that the list is the same every time.
        keys.sort_by(|a, b| {
            (b.units.total_cmp(&a.units)).then_with(|| {
                (&a.resource, &a.key, a.capacity).cmp(&(&b.resource, &b.key, b.capacity))
            })
        });
        keys.truncate(at_most);
        keys
    }

    fn rate(&self, capacity: Capacity) -> f64 {
        match capacity {
            Capacity::Read => self.reads_per_second,
            Capacity::Write => self.writes_per_second,
        }
    }

    /// The bucket, filled up to now.
    fn bucket<'s>(&self, state: &'s mut State, touch: &Touch) -> &'s mut Bucket {
        let (rate, now) = (self.rate(touch.capacity), self.clock.now());
        let full = rate * self.burst_seconds;
        let bucket = state.buckets.entry(touch.clone()).or_insert(Bucket {
            level: full,
            filled_at: now,
            units: 0.0,
            throttled: 0,
        });
        let seconds = (now - bucket.filled_at).max(0) as f64 / 1_000.0;
        bucket.level = full.min(bucket.level + rate * seconds);
        bucket.filled_at = now;
        bucket
    }

    fn decide(&self, request: &Request) -> Verdict {
        let parts = parts(request);
        let mut state = lock(&self.state);
        let mut hot: Vec<(usize, Touch)> = Vec::new();
        for (at, part) in parts.iter().enumerate() {
            for touch in self.touches(part) {
                let bucket = self.bucket(&mut state, &touch);
                if bucket.level <= 0.0 {
                    bucket.throttled += 1;
                    hot.push((at, touch));
                }
            }
        }
        if hot.is_empty() {
            return Verdict::Pass;
        }
        state.throttled += 1;
        if request.operation.starts_with("Transact") {
            return self.cancelled(&parts, &hot);
        }
        let reasons: Vec<_> = hot.iter().map(|(_, touch)| touch.reason()).collect();
        throttled(&reasons)
    }

    fn cancelled(&self, parts: &[Part<'_>], hot: &[(usize, Touch)]) -> Verdict {
        let reasons: Vec<Value> = (0..parts.len())
            .map(|at| {
                let Some((_, touch)) = hot.iter().find(|(part, _)| *part == at) else {
                    return json!({"Code": "None"});
                };
                let on_demand = self
                    .table(&touch.resource)
                    .is_some_and(|(table, _)| table.billing == Billing::OnDemand);
                let (code, message) = if on_demand {
                    (
                        "ThrottlingError",
                        "Throughput exceeds the current capacity of your table or index. DynamoDB \
                         is automatically scaling your table or index so please try again shortly. \
                         If exceptions persist, check if you have a hot key: \
                         https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html",
                    )
                } else {
                    (
                        "ProvisionedThroughputExceeded",
                        "The level of configured provisioned throughput for the table was \
                         exceeded. Consider increasing your provisioning level with the \
                         UpdateTable API.",
                    )
                };
                json!({"Code": code, "Message": message})
            })
            .collect();
        let codes: Vec<&str> = reasons
            .iter()
            .filter_map(|reason| reason["Code"].as_str())
            .collect();
        let message = format!(
            "Transaction cancelled, please refer cancellation reasons for specific reasons [{}]",
            codes.join(", ")
        );
        Verdict::Answer {
            status: 400,
            body: json!({
                "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                "Message": message,
                "CancellationReasons": reasons,
            }),
        }
    }

    fn charge(&self, call: &Call) {
        let parts = parts(&call.request);
        let touches: Vec<Touch> = parts.iter().flat_map(|part| self.touches(part)).collect();
        let mut state = lock(&self.state);
        let mut draw = |resource: &str, capacity: Capacity, units: f64| {
            let shared: Vec<&Touch> = touches
                .iter()
                .filter(|touch| touch.resource == resource && touch.capacity == capacity)
                .collect();
            for touch in &shared {
                let share = units / shared.len() as f64;
                let bucket = self.bucket(&mut state, touch);
                bucket.level -= share;
                bucket.units += share;
            }
        };
        for consumed in &call.consumed {
            // A local index lives in the partitions of its table.
            let resource = match self.table(&consumed.resource) {
                Some((table, Some(index))) if index.scope == Scope::Local => table.name,
                _ => &consumed.resource,
            };
            for (capacity, units) in [
                (Capacity::Read, consumed.read),
                (Capacity::Write, consumed.write),
            ] {
                if units > 0.0 {
                    draw(resource, capacity, units);
                }
            }
        }
        let each = match &call.outcome {
            Outcome::ConditionFailed => 1.0,
            Outcome::Cancelled(reasons)
                if reasons.iter().any(|r| r == "ConditionalCheckFailed") =>
            {
                2.0
            }
            _ => return,
        };
        let mut names: Vec<&str> = parts.iter().map(|part| part.resource).collect();
        names.sort_unstable();
        for table in names.chunk_by(|a, b| a == b) {
            draw(table[0], Capacity::Write, each * table.len() as f64);
        }
    }

    /// The table and, for `table/index`, the index.
    fn table(&self, resource: &str) -> Option<(&Table, Option<&Index>)> {
        let (table, index) = match resource.split_once('/') {
            Some((table, index)) => (table, Some(index)),
            None => (resource, None),
        };
        let table = self.tables.get(table)?;
        let index = index.and_then(|name| table.indexes.iter().find(|index| index.name == name));
        Some((table, index))
    }

    /// The buckets a part draws from: its own, and for a write those of the global indexes.
    fn touches(&self, part: &Part<'_>) -> Vec<Touch> {
        let Some((table, index)) = self.table(part.resource) else {
            return Vec::new();
        };
        let touch = |resource: &str, attribute: &str| {
            let key = part.value(attribute)?;
            Some(Touch {
                resource: resource.to_owned(),
                key,
                capacity: part.capacity,
            })
        };
        let own = match index {
            Some(index) if index.scope == Scope::Global => {
                touch(part.resource, index.partition.name())
            }
            _ => touch(table.name, table.partition.name()),
        };
        let global = |index: &&Index| part.changes && index.scope == Scope::Global;
        let indexes = table.indexes.iter().filter(global);
        let indexed = indexes.filter_map(|index| {
            touch(
                &format!("{}/{}", table.name, index.name),
                index.partition.name(),
            )
        });
        own.into_iter().chain(indexed).collect()
    }
}

impl Plan for Heat {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = self.decide(request);
        Box::pin(async move { verdict })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        self.charge(call);
        Box::pin(async {})
    }
}

impl Touch {
    /// Why it was throttled and what, as DynamoDB says it.
    fn reason(&self) -> (String, String) {
        let (table, index) = match self.resource.split_once('/') {
            Some((table, index)) => (table, Some(index)),
            None => (self.resource.as_str(), None),
        };
        let kind = if index.is_some() { "Index" } else { "Table" };
        let arn = format!("arn:aws:dynamodb:us-east-1:000000000000:table/{table}");
        (
            format!("{kind}{}KeyRangeThroughputExceeded", self.capacity),
            index.map_or(arn.clone(), |index| format!("{arn}/index/{index}")),
        )
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "Read",
            Self::Write => "Write",
        })
    }
}

impl Part<'_> {
    /// The value of an attribute, where the request tells it: in the item or key, in what an
    /// update sets, or in the key condition of a query.
    fn value(&self, attribute: &str) -> Option<String> {
        if let Some(value) = self.item.get(attribute) {
            return Some(plain(value));
        }
        ["KeyConditionExpression", "UpdateExpression"]
            .iter()
            .find_map(|field| self.equated(field, attribute))
    }

    /// The value in `attribute = :value`.
    fn equated(&self, field: &str, attribute: &str) -> Option<String> {
        let text = self.expressions.get(field)?.as_str()?;
        let text = text.replace(['(', ')', ','], " ").replace('=', " = ");
        let words: Vec<&str> = text.split_whitespace().collect();
        let name = |word: &str| {
            let names = self.expressions.get("ExpressionAttributeNames");
            names.and_then(|names| names.get(word)?.as_str()) == Some(attribute)
                || word == attribute
        };
        let values = self.expressions.get("ExpressionAttributeValues")?;
        words.windows(3).find_map(|window| match window {
            [left, "=", right] if name(left) => values.get(*right).map(plain),
            _ => None,
        })
    }
}

/// The parts of a data call that have keys; none for everything else.
fn parts(request: &Request) -> Vec<Part<'_>> {
    if request.service != Service::DynamoDb {
        return Vec::new();
    }
    let capacity = match request.operation.as_str() {
        "GetItem" | "Query" | "BatchGetItem" | "TransactGetItems" => Capacity::Read,
        "PutItem" | "UpdateItem" | "DeleteItem" | "BatchWriteItem" | "TransactWriteItems" => {
            Capacity::Write
        }
        _ => return Vec::new(),
    };
    let bodies: Vec<(&Value, &Value)> = match request.operation.as_str() {
        "TransactWriteItems" | "TransactGetItems" => objects(request.body.get("TransactItems"))
            .map(|part| (attributes(part), part))
            .collect(),
        "BatchWriteItem" => tables(request)
            .flat_map(|requests| objects(Some(requests)))
            .map(|write| (attributes(write), write))
            .collect(),
        "BatchGetItem" => tables(request)
            .filter_map(|reads| reads.get("Keys")?.as_array())
            .flatten()
            .map(|key| (key, &Value::Null))
            .collect(),
        _ => vec![(attributes(&request.body), &request.body)],
    };
    // The tap lists the targets of a request in the order of its parts.
    std::iter::zip(&request.targets, bodies)
        .map(|(target, (item, expressions))| Part {
            resource: &target.resource,
            item,
            expressions,
            capacity,
            changes: capacity == Capacity::Write
                && target.verb.as_deref() != Some("ConditionCheck"),
        })
        .collect()
}

/// The values of the one-field objects in a list: `[{"Put": …}, {"Update": …}]`.
fn objects(list: Option<&Value>) -> impl Iterator<Item = &Value> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(Value::as_object)
        .flat_map(|object| object.values())
}

fn tables(request: &Request) -> impl Iterator<Item = &Value> {
    let tables = request.body.get("RequestItems").and_then(Value::as_object);
    tables.into_iter().flat_map(|tables| tables.values())
}

fn attributes(part: &Value) -> &Value {
    part.get("Item")
        .or_else(|| part.get("Key"))
        .unwrap_or(&Value::Null)
}
