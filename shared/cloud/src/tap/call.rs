//! One call, as the tap saw it.

use crate::names::Names;
use serde::Serialize;
use serde_json::{Map, Value};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The service a call went to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Service {
    /// DynamoDB.
    DynamoDb,
    /// DynamoDB Streams.
    Streams,
    /// SQS.
    Sqs,
    /// S3.
    S3,
    /// Redis.
    Redis,
    /// Somebody else's HTTP server: a page, a card processor, a webhook.
    Http,
}

/// A call about to leave.
#[derive(Debug, Clone)]
pub struct Request {
    /// Grows with every call on this tap.
    pub number: u64,
    /// Who makes it: see [`super::as_actor`].
    pub actor: Arc<str>,
    /// Where it goes.
    pub service: Service,
    /// `PutItem`, `SendMessage`, `PutObject`, `SET`, `POST`.
    pub operation: String,
    /// What it touches. One entry, or one for each part of a transaction or batch.
    pub targets: Vec<Target>,
    /// The request body as JSON (DynamoDB, Streams, SQS), the path (S3), the arguments (Redis),
    /// query, headers and body (HTTP).
    pub body: Value,
}

/// One item, index, queue, object, key or address that a call touches.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Target {
    /// `Put`, `Update`, `Delete`, `ConditionCheck` or `Get` inside a transaction or batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verb: Option<String>,
    /// Table, `table/index`, queue, bucket or key pattern, without the prefix; host and path.
    pub resource: String,
    /// The key: `auction_id=auction-0001`, or the key condition of a query with its values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The condition with its placeholders filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The update expression with its placeholders filled in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update: Option<String>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It was done.
    Ok,
    /// The condition was false; nothing was written.
    ConditionFailed,
    /// The transaction was cancelled; a reason for each part, `None` for those not to blame.
    Cancelled(Vec<String>),
    /// Too much for the partition.
    Throttled,
    /// Another transaction held the item.
    Conflict,
    /// The service refused: code and message.
    Error(String),
    /// No answer came: lost, timed out, or the process was killed.
    NoAnswer(String),
}

impl Outcome {
    /// The HTTP status it comes with: DynamoDB refuses with 400, whatever the reason.
    pub(super) fn status(&self) -> u16 {
        match self {
            Self::Ok => 200,
            _ => 400,
        }
    }
}

/// Capacity that one table or index charged for one call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Consumed {
    /// Table or `table/index`, without the prefix.
    pub resource: String,
    /// Read units.
    pub read: f64,
    /// Write units.
    pub write: f64,
}

/// A call and what became of it.
#[derive(Debug, Clone)]
pub struct Call {
    /// What was asked.
    pub request: Request,
    /// What came back.
    pub outcome: Outcome,
    /// The JSON answer, where there was one.
    pub response: Option<Value>,
    /// The capacity DynamoDB reports. A failed condition is charged too, but not reported.
    pub consumed: Vec<Consumed>,
    /// Its place among the calls of this tap in the order in which they left. A recording has them in the
    /// order of their answers; of calls made at once, only the first order is the same in every run.
    pub left: u64,
    /// From leaving the tap to the answer; the time a call was held is not in it.
    pub duration: Duration,
}

impl Call {
    pub(super) fn new(
        request: Request,
        outcome: Outcome,
        response: Option<Value>,
        left: u64,
        duration: Duration,
        names: &Names,
    ) -> Self {
        let consumed = response
            .as_ref()
            .map(|body| consumed(&request.operation, body, names))
            .unwrap_or_default();
        Self {
            request,
            outcome,
            response,
            consumed,
            left,
            duration,
        }
    }

    /// Read units over all tables and indexes.
    pub fn read_units(&self) -> f64 {
        self.consumed.iter().map(|c| c.read).sum()
    }

    /// Write units over all tables and indexes.
    pub fn write_units(&self) -> f64 {
        self.consumed.iter().map(|c| c.write).sum()
    }

    /// The call in one line without its data, as actions declare it: see [`Request::shape`].
    pub fn shape(&self) -> String {
        self.request.shape()
    }
}

impl Request {
    /// The call in one line without its data: `GetItem auctions`, `Query auctions/due`,
    /// `TransactWriteItems [Update auctions if, Put bids if]`. `if` marks a guarded part.
    pub fn shape(&self) -> String {
        let part = |target: &Target| {
            let verb = target
                .verb
                .as_ref()
                .map_or(String::new(), |verb| format!("{verb} "));
            let guard = if target.condition.is_some() {
                " if"
            } else {
                ""
            };
            format!("{verb}{}{guard}", target.resource)
        };
        let parts: Vec<_> = self.targets.iter().map(part).collect();
        match self.targets.first() {
            Some(target) if target.verb.is_some() => {
                format!("{} [{}]", self.operation, parts.join(", "))
            }
            _ => format!("{} {}", self.operation, parts.join(", "))
                .trim_end()
                .to_owned(),
        }
    }

    /// Whether it can change anything.
    pub fn is_write(&self) -> bool {
        match self.service {
            Service::Streams => false,
            Service::DynamoDb => {
                !matches!(
                    self.operation.as_str(),
                    "GetItem" | "Query" | "Scan" | "BatchGetItem" | "TransactGetItems"
                ) && !self.operation.starts_with("Describe")
                    && !self.operation.starts_with("List")
            }
            Service::Sqs => {
                !self.operation.starts_with("Get") && !self.operation.starts_with("List")
            }
            Service::S3 => !["Get", "Head", "List"]
                .iter()
                .any(|read| self.operation.starts_with(read)),
            Service::Http => !matches!(self.operation.as_str(), "GET" | "HEAD" | "OPTIONS"),
            Service::Redis => !matches!(
                self.operation.as_str(),
                "GET"
                    | "MGET"
                    | "EXISTS"
                    | "TTL"
                    | "PTTL"
                    | "ZRANGE"
                    | "ZREVRANGE"
                    | "ZSCORE"
                    | "ZCARD"
                    | "GEOSEARCH"
                    | "GEOPOS"
                    | "HGET"
                    | "HGETALL"
                    | "SMEMBERS"
                    | "PING"
            ),
        }
    }

    /// Reads a DynamoDB, Streams or SQS request out of its JSON body.
    pub(super) fn from_json(service: Service, operation: &str, body: Value, names: &Names) -> Self {
        Self {
            number: 0,
            actor: super::current_actor(),
            service,
            operation: operation.to_owned(),
            targets: json_targets(service, operation, &body, names),
            body,
        }
    }

    /// Puts another body in its place. What a recording shows is what was sent.
    pub(super) fn rewrite(&mut self, body: Value, names: &Names) {
        if !matches!(self.service, Service::S3 | Service::Redis | Service::Http) {
            self.targets = json_targets(self.service, &self.operation, &body, names);
        }
        self.body = body;
    }
}

impl Target {
    /// A target of which only the name is known.
    pub(super) fn of(resource: &str) -> Self {
        Self {
            verb: None,
            resource: resource.to_owned(),
            key: None,
            condition: None,
            update: None,
        }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DynamoDb => "DynamoDB",
            Self::Streams => "DynamoDB Streams",
            Self::Sqs => "SQS",
            Self::S3 => "S3",
            Self::Redis => "Redis",
            Self::Http => "HTTP",
        })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::ConditionFailed => f.write_str("condition failed"),
            Self::Cancelled(reasons) => write!(f, "cancelled [{}]", reasons.join(", ")),
            Self::Throttled => f.write_str("throttled"),
            Self::Conflict => f.write_str("conflict"),
            Self::Error(text) => write!(f, "error: {text}"),
            Self::NoAnswer(text) => write!(f, "no answer: {text}"),
        }
    }
}

/// `number actor: shape → outcome`, for schedules that people read.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} → {}",
            self.request.actor,
            self.shape(),
            self.outcome
        )
    }
}

/// What a JSON service answered, by HTTP status and body.
pub(super) fn outcome(status: u16, body: &Value) -> Outcome {
    if (200..300).contains(&status) {
        return Outcome::Ok;
    }
    let kind = text(body, "__type").unwrap_or_default();
    let code = kind.rsplit('#').next().unwrap_or_default();
    match code {
        "ConditionalCheckFailedException" => Outcome::ConditionFailed,
        "TransactionCanceledException" => Outcome::Cancelled(
            body.get("CancellationReasons")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(|reason| text(reason, "Code").unwrap_or_else(|| "None".into()))
                .collect(),
        ),
        "ProvisionedThroughputExceededException" | "ThrottlingException" => Outcome::Throttled,
        "TransactionConflictException" | "TransactionInProgressException" => Outcome::Conflict,
        _ => {
            let message = text(body, "message").or_else(|| text(body, "Message"));
            Outcome::Error(format!("{status} {code} {}", message.unwrap_or_default()))
        }
    }
}

fn text(value: &Value, field: &str) -> Option<String> {
    value.get(field).and_then(Value::as_str).map(str::to_owned)
}

fn json_targets(service: Service, operation: &str, body: &Value, names: &Names) -> Vec<Target> {
    match service {
        Service::DynamoDb => dynamodb_targets(operation, body, names),
        Service::Sqs => {
            let url = text(body, "QueueUrl").or_else(|| text(body, "QueueName"));
            let queue = url.as_deref().and_then(|url| url.rsplit('/').next());
            vec![Target::of(names.logical(queue.unwrap_or_default()))]
        }
        // A stream's ARN holds its table: arn:aws:dynamodb:region:account:table/NAME/stream/…
        // GetRecords has only an iterator, which does not name it on every backend.
        _ => text(body, "StreamArn")
            .and_then(|arn| Some(Target::of(names.logical(arn.split('/').nth(1)?))))
            .into_iter()
            .collect(),
    }
}

fn dynamodb_targets(operation: &str, body: &Value, names: &Names) -> Vec<Target> {
    match operation {
        "TransactWriteItems" | "TransactGetItems" => body
            .get("TransactItems")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .flat_map(|part| part.iter())
            .map(|(verb, part)| dynamodb_target(Some(verb), part, names))
            .collect(),
        "BatchWriteItem" | "BatchGetItem" => body
            .get("RequestItems")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .flat_map(|(table, requests)| batch_targets(names.logical(table), requests))
            .collect(),
        "ListTables" => Vec::new(),
        _ => vec![dynamodb_target(None, body, names)],
    }
}

fn batch_targets(table: &str, requests: &Value) -> Vec<Target> {
    let one = |verb: &str, key: Option<String>| Target {
        verb: Some(verb.to_owned()),
        key,
        ..Target::of(table)
    };
    match requests {
        Value::Array(writes) => writes
            .iter()
            .filter_map(Value::as_object)
            .flat_map(|write| write.iter())
            .map(|(verb, write)| {
                one(
                    verb.trim_end_matches("Request"),
                    write.get("Key").map(key_text),
                )
            })
            .collect(),
        reads => reads
            .get("Keys")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .map(|key| one("Get", Some(key_text(key))))
            .collect(),
    }
}

fn dynamodb_target(verb: Option<&str>, part: &Value, names: &Names) -> Target {
    let table = text(part, "TableName").unwrap_or_default();
    let table = names.logical(&table);
    let expression = |field: &str| text(part, field).map(|text| filled(&text, part));
    Target {
        verb: verb.map(str::to_owned),
        resource: match text(part, "IndexName") {
            Some(index) => format!("{table}/{index}"),
            None => table.to_owned(),
        },
        key: part
            .get("Key")
            .map(key_text)
            .or_else(|| expression("KeyConditionExpression")),
        condition: expression("ConditionExpression"),
        update: expression("UpdateExpression"),
    }
}

/// `{"auction_id":{"S":"a-1"}}` as `auction_id=a-1`.
fn key_text(key: &Value) -> String {
    let pairs = key.as_object().into_iter().flatten();
    let pairs: Vec<_> = pairs
        .map(|(name, value)| format!("{name}={}", plain(value)))
        .collect();
    pairs.join(", ")
}

/// An attribute value without its type: `{"S":"OPEN"}` as `OPEN`.
pub fn plain(value: &Value) -> String {
    let Some((kind, inner)) = value.as_object().and_then(|typed| typed.iter().next()) else {
        return value.to_string();
    };
    match (kind.as_str(), inner) {
        ("NULL", _) => "null".into(),
        ("L", Value::Array(list)) => {
            format!(
                "[{}]",
                list.iter().map(plain).collect::<Vec<_>>().join(", ")
            )
        }
        ("M", Value::Object(map)) => {
            let pairs: Vec<_> = map
                .iter()
                .map(|(k, v)| format!("{k}: {}", plain(v)))
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        (_, Value::String(text)) => text.clone(),
        (_, other) => other.to_string(),
    }
}

/// A value that is read, not computed with: a stored document would hide the rest of its line.
fn short(value: String) -> String {
    match value.char_indices().nth(100) {
        Some((end, _)) => format!("{}…", &value[..end]),
        None => value,
    }
}

/// The expression with `#names` and `:values` replaced by what they stand for.
fn filled(expression: &str, part: &Value) -> String {
    let empty = Map::new();
    let table = |field| part.get(field).and_then(Value::as_object).unwrap_or(&empty);
    let (names, values) = (
        table("ExpressionAttributeNames"),
        table("ExpressionAttributeValues"),
    );
    let mut out = String::with_capacity(expression.len());
    let mut rest = expression;
    while let Some(start) = rest.find(['#', ':']) {
        out.push_str(&rest[..start]);
        let length = rest[start + 1..]
            .find(|c: char| !c.is_alphanumeric() && c != '_')
            .map_or(rest.len() - start, |end| end + 1);
        let word = &rest[start..start + length];
        match (names.get(word), values.get(word)) {
            (Some(name), _) => out.push_str(name.as_str().unwrap_or(word)),
            (_, Some(value)) => out.push_str(&short(plain(value))),
            _ => out.push_str(word),
        }
        rest = &rest[start + length..];
    }
    out.push_str(rest);
    out
}

fn consumed(operation: &str, body: &Value, names: &Names) -> Vec<Consumed> {
    let reads = matches!(
        operation,
        "GetItem" | "Query" | "Scan" | "BatchGetItem" | "TransactGetItems"
    );
    let entries = match body.get("ConsumedCapacity") {
        Some(Value::Array(list)) => list.iter().collect(),
        Some(one @ Value::Object(_)) => vec![one],
        _ => Vec::new(),
    };
    let mut found = Vec::new();
    for entry in entries {
        let table = text(entry, "TableName").unwrap_or_default();
        let table = names.logical(&table);
        let mut push = |resource: String, units: &Value| {
            let units = units
                .get("CapacityUnits")
                .and_then(Value::as_f64)
                .unwrap_or(0.0);
            if units > 0.0 {
                found.push(Consumed {
                    resource,
                    read: if reads { units } else { 0.0 },
                    write: if reads { 0.0 } else { units },
                });
            }
        };
        match entry.get("Table") {
            Some(base) => {
                push(table.to_owned(), base);
                for kind in ["GlobalSecondaryIndexes", "LocalSecondaryIndexes"] {
                    let indexes = entry.get(kind).and_then(Value::as_object);
                    for (index, units) in indexes.into_iter().flatten() {
                        push(format!("{table}/{index}"), units);
                    }
                }
            }
            None => push(table.to_owned(), entry),
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request(operation: &str, body: Value) -> Request {
        Request::from_json(Service::DynamoDb, operation, body, &Names::new("x-"))
    }

    #[test]
    fn a_conditions_placeholders_are_filled_in() {
        let seen = request(
            "UpdateItem",
            json!({
                "TableName": "x-auctions",
                "Key": {"auction_id": {"S": "a-1"}},
                "ConditionExpression": "#status = :open AND end_time > :now",
                "UpdateExpression": "SET best = :best",
                "ExpressionAttributeNames": {"#status": "status"},
                "ExpressionAttributeValues": {
                    ":open": {"S": "OPEN"}, ":now": {"N": "17"}, ":best": {"N": "5"}
                },
            }),
        );
        let target = &seen.targets[0];
        assert_eq!(target.key.as_deref(), Some("auction_id=a-1"));
        assert_eq!(
            target.condition.as_deref(),
            Some("status = OPEN AND end_time > 17")
        );
        assert_eq!(target.update.as_deref(), Some("SET best = 5"));
        assert_eq!(seen.shape(), "UpdateItem auctions if");
    }

    #[test]
    fn a_transactions_shape_names_every_part_and_its_guard() {
        let seen = request(
            "TransactWriteItems",
            json!({"TransactItems": [
                {"Update": {"TableName": "x-auctions", "Key": {}, "ConditionExpression": "a = b"}},
                {"Put": {"TableName": "x-bids", "Item": {}}},
            ]}),
        );
        assert_eq!(
            seen.shape(),
            "TransactWriteItems [Update auctions if, Put bids]"
        );
    }

    #[test]
    fn the_capacity_of_an_index_is_told_apart_from_its_tables() {
        let body = json!({"ConsumedCapacity": {
            "TableName": "x-auctions", "CapacityUnits": 3.0,
            "Table": {"CapacityUnits": 1.0},
            "GlobalSecondaryIndexes": {"due": {"CapacityUnits": 2.0}},
        }});
        let found = consumed("UpdateItem", &body, &Names::new("x-"));
        let found: Vec<_> = found
            .iter()
            .map(|c| (c.resource.as_str(), c.write))
            .collect();
        assert_eq!(found, [("auctions", 1.0), ("auctions/due", 2.0)]);
    }

    #[test]
    fn a_cancelled_transaction_keeps_the_order_of_its_reasons() {
        let body = json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "CancellationReasons": [{"Code": "None"}, {"Code": "ConditionalCheckFailed"}],
        });
        let reasons = vec!["None".to_owned(), "ConditionalCheckFailed".to_owned()];
        assert_eq!(outcome(400, &body), Outcome::Cancelled(reasons));
    }
}
