//! What a network and a distributed store do now and then, by seed.

use crate::story::lock;
use cloud::tap::{Call, Outcome, Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// DynamoDB answers that it is too much.
    Throttle,
    /// The request never arrives.
    LostRequest,
    /// The request is carried out, the answer is lost.
    LostAnswer,
    /// An index, or a table that is read without asking for consistency, answers as it did before.
    StaleRead,
    /// A queue delivers what it delivered before.
    DuplicateDelivery,
}

impl Fault {
    /// In the order they are tried: at most one befalls a call.
    const ALL: [Self; 5] = [
        Self::Throttle,
        Self::LostRequest,
        Self::LostAnswer,
        Self::StaleRead,
        Self::DuplicateDelivery,
    ];
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Throttle => "throttled",
            Self::LostRequest => "request lost",
            Self::LostAnswer => "answer lost",
            Self::StaleRead => "stale read",
            Self::DuplicateDelivery => "duplicate delivery",
        })
    }
}

/// A plan that lets each kind of fault happen with its own probability, zero unless told.
///
/// The same seed and the same sequence of calls give the same faults. Calls that run at once have
/// no sequence, so there the seed only makes runs alike.
///
/// The SDK sends a call again after a throttle or a loss, up to three times in all, as in life;
/// with a probability of one, every attempt fails. Its budget for retries is shared by the whole
/// process and refilled by calls that succeed (a few dozen timeouts exhaust it), so a test that
/// loses much should stand in a test binary of its own, or not care who retries.
#[derive(Debug)]
pub struct Faults {
    chances: BTreeMap<Fault, f64>,
    spared: Vec<Arc<str>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    random: StdRng,
    injected: BTreeMap<Fault, usize>,
    /// What an index last answered, by request.
    answers: HashMap<String, Value>,
    /// What was delivered, by queue.
    deliveries: HashMap<String, Vec<Value>>,
}

impl Faults {
    /// No faults yet, but the seed for them.
    pub fn seeded(seed: u64) -> Self {
        Self {
            chances: BTreeMap::new(),
            spared: Vec::new(),
            state: Mutex::new(State {
                random: StdRng::seed_from_u64(seed),
                injected: BTreeMap::new(),
                answers: HashMap::new(),
                deliveries: HashMap::new(),
            }),
        }
    }

    fn chance(mut self, fault: Fault, probability: f64) -> Self {
        assert!(
            (0.0..=1.0).contains(&probability),
            "a probability is between 0 and 1, not {probability}"
        );
        self.chances.insert(fault, probability);
        self
    }

    /// DynamoDB answers `ProvisionedThroughputExceededException`; the call is not carried out.
    pub fn throttle(self, probability: f64) -> Self {
        self.chance(Fault::Throttle, probability)
    }

    /// A call to any service never arrives.
    pub fn lose_request(self, probability: f64) -> Self {
        self.chance(Fault::LostRequest, probability)
    }

    /// A call to any service is carried out, and its answer is lost.
    pub fn lose_answer(self, probability: f64) -> Self {
        self.chance(Fault::LostAnswer, probability)
    }

    /// A read of an index or a table, unless it asks to be consistent, is answered as the same read was
    /// before, or with nothing if this is the first.
    pub fn stale_read(self, probability: f64) -> Self {
        self.chance(Fault::StaleRead, probability)
    }

    /// A queue that delivered before delivers one of those batches again, with its old receipt
    /// handles, even if the messages have been deleted.
    pub fn duplicate_delivery(self, probability: f64) -> Self {
        self.chance(Fault::DuplicateDelivery, probability)
    }

    /// Nothing befalls the calls of this actor.
    pub fn sparing(mut self, actor: &str) -> Self {
        self.spared.push(actor.into());
        self
    }

    /// How many faults of each kind there were, so that a test knows that it met some.
    pub fn injected(&self) -> BTreeMap<Fault, usize> {
        lock(&self.state).injected.clone()
    }

    fn decide(&self, request: &Request) -> Verdict {
        if self.spared.contains(&request.actor) || is_setup(request) {
            return Verdict::Pass;
        }
        let mut state = lock(&self.state);
        for fault in Fault::ALL {
            // Always drawn, so that one kind's dice do not depend on another's probability.
            let draw = state.random.random::<f64>();
            if draw >= self.chances.get(&fault).copied().unwrap_or(0.0) {
                continue;
            }
            let verdict = match fault {
                Fault::Throttle => match request.service {
                    Service::DynamoDb => throttled(&[]),
                    _ => continue,
                },
                Fault::LostRequest => Verdict::LoseRequest,
                Fault::LostAnswer => Verdict::LoseAnswer,
                Fault::StaleRead => match stale_read(request) {
                    Some(body) => {
                        let earlier = state.answers.get(&body).cloned();
                        ok(earlier.unwrap_or_else(|| nothing_yet(request)))
                    }
                    None => continue,
                },
                Fault::DuplicateDelivery => {
                    let earlier = receive(request)
                        .and_then(|queue| state.deliveries.get(queue))
                        .cloned();
                    match earlier {
                        Some(batches) => {
                            let which = state.random.random_range(0..batches.len());
                            ok(batches[which].clone())
                        }
                        None => continue,
                    }
                }
            };
            *state.injected.entry(fault).or_default() += 1;
            return verdict;
        }
        Verdict::Pass
    }
}

impl Plan for Faults {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = self.decide(request);
        Box::pin(async move { verdict })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        if let (Outcome::Ok, Some(response)) = (&call.outcome, &call.response) {
            let mut state = lock(&self.state);
            if let Some(body) = stale_read(&call.request) {
                state.answers.insert(body, response.clone());
            }
            if let Some(queue) = receive(&call.request) {
                let messages = response.get("Messages").and_then(Value::as_array);
                let known = state
                    .deliveries
                    .get(queue)
                    .is_some_and(|all| all.contains(response));
                if messages.is_some_and(|messages| !messages.is_empty()) && !known {
                    let batches = state.deliveries.entry(queue.to_owned()).or_default();
                    batches.push(response.clone());
                }
            }
        }
        Box::pin(async {})
    }
}

/// Making and describing tables and queues is not what is tested.
fn is_setup(request: &Request) -> bool {
    let word = request.operation.as_str();
    match request.service {
        Service::DynamoDb => !matches!(
            word,
            "GetItem"
                | "PutItem"
                | "UpdateItem"
                | "DeleteItem"
                | "Query"
                | "Scan"
                | "BatchGetItem"
                | "BatchWriteItem"
                | "TransactGetItems"
                | "TransactWriteItems"
        ),
        Service::Sqs => !word.contains("Message"),
        Service::S3 => word.contains("Bucket"),
        Service::Streams | Service::Redis | Service::Http => false,
    }
}

/// The request, if it is eventually consistent and so may be stale: of an index or of a table. A batch is, if it
/// reads no table consistently.
fn stale_read(request: &Request) -> Option<String> {
    let consistent = |read: &Value| read.get("ConsistentRead") == Some(&Value::Bool(true));
    let may_lag = match request.operation.as_str() {
        "Query" | "Scan" | "GetItem" => !consistent(&request.body),
        "BatchGetItem" => !tables_of_batch(request).any(|(_, read)| consistent(read)),
        _ => false,
    };
    (request.service == Service::DynamoDb && may_lag).then(|| request.body.to_string())
}

fn tables_of_batch(request: &Request) -> impl Iterator<Item = (&String, &Value)> {
    let tables = request.body.get("RequestItems").and_then(Value::as_object);
    tables.into_iter().flatten()
}

/// What a replica answers that has not heard of any write.
fn nothing_yet(request: &Request) -> Value {
    match request.operation.as_str() {
        "GetItem" => json!({}),
        "BatchGetItem" => {
            let empty = tables_of_batch(request).map(|(table, _)| (table.clone(), json!([])));
            json!({"Responses": empty.collect::<serde_json::Map<_, _>>(), "UnprocessedKeys": {}})
        }
        _ => json!({"Items": [], "Count": 0, "ScannedCount": 0}),
    }
}

/// The queue, if it asks for messages.
fn receive(request: &Request) -> Option<&str> {
    let asks = request.service == Service::Sqs && request.operation == "ReceiveMessage";
    let target = request.targets.first().filter(|_| asks)?;
    Some(&target.resource)
}

fn ok(body: Value) -> Verdict {
    Verdict::Answer { status: 200, body }
}

/// DynamoDB's answer to too much: reason and resource for each limit that was hit.
pub(crate) fn throttled(reasons: &[(String, String)]) -> Verdict {
    let reasons: Vec<Value> = reasons
        .iter()
        .map(|(reason, resource)| json!({"reason": reason, "resource": resource}))
        .collect();
    Verdict::Answer {
        status: 400,
        body: json!({
            "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            "message": "The level of configured provisioned throughput for the table was exceeded. \
                        Consider increasing your provisioning level with the UpdateTable API.",
            "ThrottlingReasons": reasons,
        }),
    }
}
