//! What a walk leaves behind: plain data, the same every time, without durations.

use crate::archetype::Archetype;
use crate::cost::Cost;
use crate::{html, terminal};
use cloud::tap::call::plain;
use cloud::tap::{Call, Consumed, Outcome, Service, Target};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// A walk, from its first section to its last check.
#[derive(Debug, Clone)]
pub struct Transcript {
    /// The archetype's name.
    pub archetype: String,
    /// Its title.
    pub title: String,
    /// The question it answers.
    pub question: String,
    /// What was told and done, in order.
    pub entries: Vec<Entry>,
}

/// One thing that was told or done.
#[derive(Debug, Clone)]
pub enum Entry {
    /// A new part of the story.
    Section {
        /// Its title.
        title: String,
        /// Its opening.
        text: String,
    },
    /// Prose.
    Say(String),
    /// A claim that held.
    Check(String),
    /// An action that was run.
    Step(Box<Step>),
}

/// One action that was run: what it declares, and what it did.
#[derive(Debug, Clone)]
pub struct Step {
    /// Counts from one.
    pub number: usize,
    /// The action.
    pub action: String,
    /// The entities it declares.
    pub entities: Vec<String>,
    /// Why it is done, here in the story.
    pub why: String,
    /// The abstract layer.
    pub abstract_layer: String,
    /// The concrete layer.
    pub concrete_layer: String,
    /// Which of its declared ways it went.
    pub when: String,
    /// The calls it made; equal neighbours are one.
    pub calls: Vec<SeenCall>,
    /// The items that are not as they were.
    pub changes: Vec<Change>,
    /// What it cost.
    pub cost: Cost,
}

/// A call as it is shown: like [`cloud::tap::Call`], without what differs from run to run.
#[derive(Debug, Clone)]
pub struct SeenCall {
    /// How many times in a row.
    pub times: usize,
    /// Who made it; `main` unless the story says otherwise.
    pub actor: String,
    /// The service.
    pub service: Service,
    /// `PutItem`, `SendMessage`, `PUBLISH`.
    pub operation: String,
    /// The call in one line, as actions declare it.
    pub shape: String,
    /// What it touched, conditions filled in. Keys are there for puts too.
    pub targets: Vec<Target>,
    /// What else is worth showing: a command's arguments, a message's body.
    pub detail: Option<String>,
    /// What came back.
    pub outcome: Outcome,
    /// Capacity as DynamoDB reported it, of all times together.
    pub consumed: Vec<Consumed>,
    /// Write units of a refused write: charged, not reported.
    pub refused: f64,
}

/// An item that is not as it was.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    /// Its table.
    pub table: String,
    /// Its key: `auction_id=auction-0001`.
    pub key: String,
    /// The item before, in DynamoDB's JSON; none if it is new.
    pub before: Option<Value>,
    /// The item after; none if it was deleted.
    pub after: Option<Value>,
}

/// An attribute before and after, without its type; `None` where it was absent.
pub type AttributeChange = (String, Option<String>, Option<String>);

impl Change {
    /// `new`, `changed` or `deleted`.
    pub fn kind(&self) -> &'static str {
        match (&self.before, &self.after) {
            (None, _) => "new",
            (_, None) => "deleted",
            _ => "changed",
        }
    }

    /// The attributes that differ, by name. Of a new or deleted item all but its key.
    pub fn attributes(&self) -> Vec<AttributeChange> {
        let empty = Map::new();
        let object = |item: &'_ Option<Value>| item.as_ref().and_then(Value::as_object).cloned();
        let before = object(&self.before).unwrap_or_else(|| empty.clone());
        let after = object(&self.after).unwrap_or(empty);
        let in_key = |name: &str| {
            let starts = |part: &str| {
                part.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with('='))
            };
            self.key.split(", ").any(starts)
        };
        let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
        names
            .into_iter()
            .filter(|name| before.get(*name) != after.get(*name) && !in_key(name))
            .map(|name| {
                (
                    name.clone(),
                    before.get(name).map(plain),
                    after.get(name).map(plain),
                )
            })
            .collect()
    }
}

impl SeenCall {
    /// `key` tells an item's key from a put's body, which the tap does not.
    pub(crate) fn new(call: &Call, keys: &[String], refused: f64, cloud: &cloud::Cloud) -> Self {
        let request = &call.request;
        let mut targets = request.targets.clone();
        for (target, key) in std::iter::zip(&mut targets, keys) {
            target.key = Some(key.clone());
        }
        Self {
            times: 1,
            actor: request.actor.to_string(),
            service: request.service,
            operation: request.operation.clone(),
            shape: request.shape(),
            targets,
            detail: detail(call, cloud),
            outcome: call.outcome.clone(),
            consumed: call.consumed.clone(),
            refused,
        }
    }

    /// Takes `other` in if it says the same, as polling does.
    fn absorbs(&mut self, other: &Self) -> bool {
        let same = self.actor == other.actor
            && self.shape == other.shape
            && self.targets == other.targets
            && self.detail == other.detail
            && self.outcome == other.outcome;
        if same {
            self.times += other.times;
            self.consumed.extend(other.consumed.iter().cloned());
            self.refused += other.refused;
        }
        same
    }

    /// Equal neighbours become one call that was made several times.
    pub(crate) fn collapsed(calls: Vec<Self>) -> Vec<Self> {
        let mut out: Vec<Self> = Vec::new();
        for call in calls {
            if !out.last_mut().is_some_and(|last| last.absorbs(&call)) {
                out.push(call);
            }
        }
        out
    }

    fn json(&self) -> Value {
        json!({
            "times": self.times,
            "actor": self.actor,
            "service": self.service,
            "operation": self.operation,
            "shape": self.shape,
            "targets": self.targets,
            "detail": self.detail,
            "outcome": self.outcome.to_string(),
            "consumed": self.consumed,
            "refused_write_units": self.refused,
        })
    }
}

/// DynamoDB Streams numbers its records with 21 to 40 digits, made from the time.
fn is_sequence_number(word: &str) -> bool {
    word.len() > 20 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The part of a call that targets do not show and that is the same in every run: no receipt
/// handles, no iterators, no tokens.
fn detail(call: &Call, cloud: &cloud::Cloud) -> Option<String> {
    let body = &call.request.body;
    match call.request.service {
        Service::Redis => {
            let commands = body.as_array()?.iter().map(|command| {
                let words = command.as_array().into_iter().flatten();
                let words = words.filter_map(Value::as_str);
                // A script is shown by its name, the digest; its text has line breaks.
                let words = words.map(|word| match word.lines().count() {
                    0 | 1 if is_sequence_number(word) => "(sequence number)".to_owned(),
                    // The embedded streams put the table's whole name into the ids of shards.
                    0 | 1 => word.replace(cloud.names().prefix(), ""),
                    _ => "(script)".to_owned(),
                });
                words.collect::<Vec<_>>().join(" ")
            });
            Some(commands.collect::<Vec<_>>().join("; "))
        }
        Service::Sqs => {
            let fields = [
                "MessageBody",
                "DelaySeconds",
                "MessageGroupId",
                "VisibilityTimeout",
                "WaitTimeSeconds",
                "MaxNumberOfMessages",
            ];
            let shown = fields.iter().filter_map(|field| {
                let value = body.get(field)?;
                let text = value
                    .as_str()
                    .map_or_else(|| value.to_string(), str::to_owned);
                Some(format!("{field}={text}"))
            });
            let mut shown: Vec<_> = shown.collect();
            if let Some(entries) = body.get("Entries").and_then(Value::as_array) {
                shown.push(format!("{} entries", entries.len()));
            }
            (!shown.is_empty()).then(|| shown.join(", "))
        }
        Service::Streams => body
            .get("ShardIteratorType")
            .and_then(Value::as_str)
            .map(str::to_owned),
        Service::S3 => None,
        Service::Http => {
            let mut shown = Vec::new();
            let said = |field: &str| body.get(field).and_then(Value::as_str);
            shown.extend(said("query").and_then(unsigned));
            let headers = body.get("headers").and_then(Value::as_object);
            for (name, value) in headers.into_iter().flatten() {
                shown.push(format!("{name}: {}", value.as_str().unwrap_or_default()));
            }
            shown.extend(body.get("json").map(Value::to_string));
            (!shown.is_empty()).then(|| shown.join(", "))
        }
        Service::DynamoDb => {
            let mut shown = Vec::new();
            if body.get("ConsistentRead") == Some(&Value::Bool(true)) {
                shown.push("a consistent read".to_owned());
            }
            if body.get("ScanIndexForward") == Some(&Value::Bool(false)) {
                shown.push("backwards".into());
            }
            if let Some(limit) = body.get("Limit") {
                shown.push(format!("limit {limit}"));
            }
            (!shown.is_empty()).then(|| shown.join(", "))
        }
    }
}

/// The query of an address without what signs it: a signature and its date differ in every run, and are
/// nobody else's business.
fn unsigned(query: &str) -> Option<String> {
    let parts = query.split('&').filter(|part| !part.starts_with("X-Amz-"));
    let parts: Vec<_> = parts.collect();
    (!parts.is_empty()).then(|| format!("?{}", parts.join("&")))
}

impl Step {
    fn json(&self) -> Value {
        let changes: Vec<_> = self
            .changes
            .iter()
            .map(|change| {
                json!({
                    "table": change.table,
                    "key": change.key,
                    "kind": change.kind(),
                    "before": change.before,
                    "after": change.after,
                })
            })
            .collect();
        json!({
            "kind": "step",
            "number": self.number,
            "action": self.action,
            "entities": self.entities,
            "why": self.why,
            "abstract": self.abstract_layer,
            "concrete": self.concrete_layer,
            "when": self.when,
            "calls": self.calls.iter().map(SeenCall::json).collect::<Vec<_>>(),
            "changes": changes,
            "cost": self.cost.json(),
        })
    }

    /// How many calls it made.
    pub fn call_count(&self) -> usize {
        self.calls.iter().map(|call| call.times).sum()
    }
}

impl Transcript {
    pub(crate) fn new(archetype: &Archetype) -> Self {
        Self {
            archetype: archetype.name.to_owned(),
            title: archetype.title.to_owned(),
            question: archetype.question.to_owned(),
            entries: Vec::new(),
        }
    }

    /// The steps, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Step(step) => Some(&**step),
            _ => None,
        })
    }

    /// What all steps cost together.
    pub fn cost(&self) -> Cost {
        self.steps().map(|step| &step.cost).sum()
    }

    /// The story as plain text: no colours, lines of a hundred characters, the same every time.
    pub fn text(&self) -> String {
        terminal::text(self, &terminal::Look::PLAIN)
    }

    /// Everything, as JSON.
    pub fn json(&self) -> Value {
        let entry = |entry: &Entry| match entry {
            Entry::Section { title, text } => {
                json!({"kind": "section", "title": title, "text": text})
            }
            Entry::Say(text) => json!({"kind": "say", "text": text}),
            Entry::Check(claim) => json!({"kind": "check", "claim": claim}),
            Entry::Step(step) => step.json(),
        };
        json!({
            "archetype": self.archetype,
            "title": self.title,
            "question": self.question,
            "entries": self.entries.iter().map(entry).collect::<Vec<_>>(),
            "cost": self.cost().json(),
        })
    }

    /// One page that needs nothing from elsewhere.
    pub fn html(&self, archetype: &Archetype) -> String {
        html::page(self, archetype)
    }
}
