//! Items before and after a step, read beside the tap.
//!
//! Before a write leaves, the items it names are read on a second set of clients. So a step shows
//! what changed without the calls that found it out, and a refused write can be priced: DynamoDB
//! charges it by the size of the item that stood in the way, but does not report it.

use crate::archetype::Archetype;
use crate::transcript::Change;
use anyhow::{Context, Result, anyhow, ensure};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;
use aws_smithy_types::base64;
use cloud::Cloud;
use cloud::tap::{Call, Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// One part of a write: the item it names and, for a put, what it would be.
#[derive(Debug, Clone)]
pub(crate) struct Touched {
    pub table: String,
    /// In DynamoDB's JSON.
    pub key: Value,
    pub put: Option<Value>,
}

/// An item as it was when a write was about to touch it.
#[derive(Debug, Clone)]
pub(crate) struct Image {
    pub touched: Touched,
    pub item: Option<Value>,
}

/// The plan that looks at items before each write, for one step.
pub(crate) struct Images {
    archetype: Archetype,
    cloud: Cloud,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// By the number of the call, in the order the calls left.
    before: Vec<(u64, Vec<Image>)>,
    failed: Option<anyhow::Error>,
}

impl Images {
    pub fn new(archetype: Archetype, cloud: &Cloud) -> Self {
        Self {
            archetype,
            cloud: cloud.beside_tap(),
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look(&self, request: &Request) -> Result<Vec<Image>> {
        let mut images = Vec::new();
        for touched in touched(request, &self.archetype, &self.cloud)? {
            let item = self.read(&touched).await?;
            images.push(Image { touched, item });
        }
        Ok(images)
    }

    async fn read(&self, touched: &Touched) -> Result<Option<Value>> {
        let got = self
            .cloud
            .dynamodb()
            .get_item()
            .table_name(self.cloud.names().table(&touched.table))
            .set_key(Some(from_json(&touched.key)?))
            .consistent_read(true)
            .send()
            .await
            .map_err(cloud::CloudError::from)
            .with_context(|| format!("reading an item of {} beside the tap", touched.table))?;
        got.item.as_ref().map(to_json).transpose()
    }

    /// What each write met, by the call's number.
    pub fn met(&self) -> HashMap<u64, Vec<Image>> {
        self.seen().before.iter().cloned().collect()
    }

    /// Every touched item that is not as it was, in the order they were first touched.
    pub async fn changes(&self) -> Result<Vec<Change>> {
        let before = {
            let mut seen = self.seen();
            if let Some(error) = seen.failed.take() {
                return Err(error);
            }
            let mut first: Vec<Image> = Vec::new();
            for image in seen.before.iter().flat_map(|(_, images)| images) {
                let known = |other: &&Image| {
                    other.touched.table == image.touched.table
                        && other.touched.key == image.touched.key
                };
                if first.iter().find(known).is_none() {
                    first.push(image.clone());
                }
            }
            first
        };
        let mut changes = Vec::new();
        for image in before {
            let after = self.read(&image.touched).await?;
            for item in [&image.item, &after].into_iter().flatten() {
                declared(&self.archetype, &image.touched.table, item)?;
            }
            if image.item != after {
                changes.push(Change {
                    key: self
                        .archetype
                        .key_text(&image.touched.table, &image.touched.key),
                    table: image.touched.table,
                    before: image.item,
                    after,
                });
            }
        }
        Ok(changes)
    }
}

impl Plan for Images {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if request.service == Service::DynamoDb && request.is_write() {
                match self.look(request).await {
                    Ok(images) => self.seen().before.push((request.number, images)),
                    Err(error) => {
                        self.seen().failed.get_or_insert(error);
                    }
                }
            }
            // Looking on changes nothing: the step fails afterwards, the call goes its way.
            Verdict::Pass
        })
    }
}

impl Archetype {
    /// `auction_id=auction-0001`, partition key first.
    pub(crate) fn key_text(&self, table: &str, key: &Value) -> String {
        let names = self
            .table(table)
            .into_iter()
            .flat_map(|table| table.key_names());
        let part = |name| {
            Some(format!(
                "{name}={}",
                cloud::tap::call::plain(key.get(name)?)
            ))
        };
        names.filter_map(part).collect::<Vec<_>>().join(", ")
    }
}

/// The items a DynamoDB write names, from its body.
pub(crate) fn touched(
    request: &Request,
    archetype: &Archetype,
    cloud: &Cloud,
) -> Result<Vec<Touched>> {
    let one = |table: &str, part: &Value| -> Result<Touched> {
        let table = cloud.names().logical(table);
        let declared = archetype.table(table).ok_or_else(|| {
            anyhow!(
                "{} writes to the table '{table}', which {} does not declare",
                request.operation,
                archetype.name
            )
        })?;
        let put = part.get("Item").cloned();
        let source = part.get("Key").or(part.get("Item"));
        let mut key = Map::new();
        for name in declared.key_names() {
            let value = source.and_then(|source| source.get(name));
            let value =
                value.with_context(|| format!("{} on {table} has no {name}", request.operation))?;
            key.insert(name.to_owned(), value.clone());
        }
        Ok(Touched {
            table: table.to_owned(),
            key: Value::Object(key),
            put,
        })
    };
    let table_of = |part: &Value| part["TableName"].as_str().unwrap_or_default().to_owned();
    let body = &request.body;
    match request.operation.as_str() {
        "PutItem" | "UpdateItem" | "DeleteItem" => Ok(vec![one(&table_of(body), body)?]),
        "TransactWriteItems" => {
            let parts = body["TransactItems"].as_array().into_iter().flatten();
            let parts = parts.filter_map(Value::as_object).flat_map(Map::values);
            parts.map(|part| one(&table_of(part), part)).collect()
        }
        "BatchWriteItem" => {
            let tables = body["RequestItems"].as_object().into_iter().flatten();
            let mut all = Vec::new();
            for (table, writes) in tables {
                let writes = writes.as_array().into_iter().flatten();
                for write in writes.filter_map(Value::as_object).flat_map(Map::values) {
                    all.push(one(table, write)?);
                }
            }
            Ok(all)
        }
        // Tables are made beside the tap; what else may come here (PartiQL) hides its key in text.
        other => Err(anyhow!(
            "{other} cannot be shown: use the calls that name their item"
        )),
    }
}

/// Fails if an item has an attribute that its table does not declare: the documentation would
/// have drifted from the data.
pub(crate) fn declared(archetype: &Archetype, table: &str, item: &Value) -> Result<()> {
    let Some(table) = archetype.table(table) else {
        return Ok(());
    };
    for name in item.as_object().into_iter().flat_map(Map::keys) {
        ensure!(
            table
                .attributes
                .iter()
                .any(|attribute| attribute.name == name),
            "an item of {} has the attribute '{name}', which the table does not declare",
            table.name
        );
    }
    Ok(())
}

/// [`declared`] for every item that a read brought.
pub(crate) fn declared_in_answer(archetype: &Archetype, call: &Call, cloud: &Cloud) -> Result<()> {
    let (Service::DynamoDb, Some(answer)) = (call.request.service, &call.response) else {
        return Ok(());
    };
    let target = call.request.targets.first();
    let table = target.map_or("", |target| {
        target.resource.split('/').next().unwrap_or_default()
    });
    match call.request.operation.as_str() {
        "GetItem" => declared(archetype, table, &answer["Item"]),
        "Query" => {
            let mut items = answer["Items"].as_array().into_iter().flatten();
            items.try_for_each(|item| declared(archetype, table, item))
        }
        "TransactGetItems" => {
            let items = answer["Responses"].as_array().into_iter().flatten();
            let mut pairs = std::iter::zip(&call.request.targets, items);
            pairs.try_for_each(|(target, got)| declared(archetype, &target.resource, &got["Item"]))
        }
        "BatchGetItem" => {
            for (table, items) in answer["Responses"].as_object().into_iter().flatten() {
                for item in items.as_array().into_iter().flatten() {
                    declared(archetype, cloud.names().logical(table), item)?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// An SDK item in DynamoDB's JSON, where its parts have an order.
fn to_json(item: &cloud::Item) -> Result<Value> {
    let pairs = item
        .iter()
        .map(|(name, value)| Ok((name.clone(), value_to_json(value)?)));
    Ok(Value::Object(pairs.collect::<Result<_>>()?))
}

fn value_to_json(value: &AttributeValue) -> Result<Value> {
    let bytes = |blob: &Blob| base64::encode(blob.as_ref());
    Ok(match value {
        AttributeValue::S(text) => json!({"S": text}),
        AttributeValue::N(number) => json!({"N": number}),
        AttributeValue::B(blob) => json!({"B": bytes(blob)}),
        AttributeValue::Bool(truth) => json!({"BOOL": truth}),
        AttributeValue::Null(_) => json!({"NULL": true}),
        // A set has no order of its own; without one, two equal sets would differ.
        AttributeValue::Ss(set) => json!({"SS": sorted(set.clone())}),
        AttributeValue::Ns(set) => json!({"NS": sorted(set.clone())}),
        AttributeValue::Bs(set) => json!({"BS": sorted(set.iter().map(bytes).collect())}),
        AttributeValue::L(list) => {
            json!({"L": list.iter().map(value_to_json).collect::<Result<Vec<_>>>()?})
        }
        AttributeValue::M(map) => json!({"M": to_json(map)?}),
        other => return Err(anyhow!("an attribute of a kind unknown here: {other:?}")),
    })
}

fn sorted(mut set: Vec<String>) -> Vec<String> {
    set.sort();
    set
}

/// A key in DynamoDB's JSON as the SDK wants it. Keys are strings, numbers or bytes.
fn from_json(key: &Value) -> Result<cloud::Item> {
    let pairs = key.as_object().into_iter().flatten();
    pairs
        .map(|(name, value)| {
            let text = |kind: &str| value.get(kind).and_then(Value::as_str);
            let typed = match (text("S"), text("N"), text("B")) {
                (Some(text), ..) => AttributeValue::S(text.to_owned()),
                (_, Some(number), _) => AttributeValue::N(number.to_owned()),
                (.., Some(bytes)) => AttributeValue::B(Blob::new(base64::decode(bytes)?)),
                _ => return Err(anyhow!("{value} cannot be a key")),
            };
            Ok((name.clone(), typed))
        })
        .collect()
}
