//! Answers that the embedded services never give by themselves, and one that hides what a test looks for.

use cloud::tap::{Plan, Request, Verdict};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};

/// A plan that says the same to the same call.
#[derive(Debug)]
pub struct Says<F>(pub F);

impl<F: Fn(&Request) -> Verdict + Send + Sync> Plan for Says<F> {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = (self.0)(request);
        Box::pin(async { verdict })
    }
}

/// A plan under which every write is made and no answer to one arrives, however often the SDK asks.
#[derive(Debug)]
pub struct Deaf;

impl Plan for Deaf {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let lost = request.is_write();
        Box::pin(async move {
            if lost {
                Verdict::LoseAnswer
            } else {
                Verdict::Pass
            }
        })
    }
}

/// A plan that loses one answer: to the so-manieth of the calls it is about. What was asked for is done, and
/// the SDK asks again. Install [`Tokenless`] before it.
pub struct LoseAnswer {
    number: usize,
    about: Box<dyn Fn(&Request) -> bool + Send + Sync>,
    seen: AtomicUsize,
}

impl LoseAnswer {
    /// The answer to the first call that this is true of.
    pub fn to_first(about: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        Self {
            number: 1,
            about: Box::new(about),
            seen: AtomicUsize::new(0),
        }
    }

    /// The answer to the call of this number, counted from 1.
    pub fn to_call(number: usize) -> Self {
        Self {
            number,
            ..Self::to_first(|_| true)
        }
    }

    /// How many of these calls were made, the lost one and its repetitions among them.
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }

    /// Whether it came to that.
    pub fn was_lost(&self) -> bool {
        self.seen() >= self.number
    }
}

impl Plan for LoseAnswer {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let lost =
            (self.about)(request) && self.seen.fetch_add(1, Ordering::SeqCst) + 1 == self.number;
        Box::pin(async move {
            if lost {
                Verdict::LoseAnswer
            } else {
                Verdict::Pass
            }
        })
    }
}

/// A plan that takes away the token by which DynamoDB, for ten minutes, knows a transaction that is sent
/// again. Where an answer is lost, a test would otherwise test the token.
#[derive(Debug)]
pub struct Tokenless;

impl Plan for Tokenless {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let mut body = request.body.clone();
        let taken = body
            .as_object_mut()
            .and_then(|body| body.remove("ClientRequestToken"));
        Box::pin(async move {
            match taken {
                Some(_) => Verdict::Rewrite(body),
                None => Verdict::Pass,
            }
        })
    }
}

/// A plan that cancels so many transactions because of a conflict with another one. DynamoDB does
/// so by itself; the embedded one runs transactions one after the other.
#[derive(Debug)]
pub struct Conflicts {
    operation: &'static str,
    left: AtomicUsize,
}

impl Conflicts {
    /// The first so many of `TransactWriteItems`, `TransactGetItems`, or of a single write, which is
    /// refused too while a transaction has its item.
    pub fn on(operation: &'static str, times: usize) -> Self {
        Self {
            operation,
            left: AtomicUsize::new(times),
        }
    }

    /// How many are still to come.
    pub fn left(&self) -> usize {
        self.left.load(Ordering::SeqCst)
    }
}

impl Plan for Conflicts {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let less = |left: usize| left.checked_sub(1);
        let hit = request.operation == self.operation
            && self
                .left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok();
        let verdict = if hit {
            conflict(request)
        } else {
            Verdict::Pass
        };
        Box::pin(async move { verdict })
    }
}

/// What DynamoDB says to a call whose items another transaction has at that moment.
pub fn conflict(request: &Request) -> Verdict {
    // The last item only, the one that is easily forgotten.
    let mut reasons = vec![json!({"Code": "None"}); request.targets.len().max(1)];
    if let Some(last) = reasons.last_mut() {
        *last = json!({"Code": "TransactionConflict"});
    }
    let body = if request.operation.starts_with("Transact") {
        json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": "Transaction cancelled, please refer cancellation reasons for specific reasons [None, TransactionConflict]",
            "CancellationReasons": reasons,
        })
    } else {
        json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
            "message": "Transaction is ongoing for the item",
        })
    };
    Verdict::Answer { status: 400, body }
}

/// A plan that mixes the reasons of the first cancelled transaction: where a bit of the mask is set, the item
/// at that place is told to be in a conflict, whatever else is true of it. DynamoDB reports each item by
/// itself; of two that changed, it may bring back one and say "conflict" of the other.
#[derive(Debug)]
pub struct Mixed {
    mask: u32,
    done: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl Mixed {
    /// A conflict at every place whose bit is set.
    pub fn at(mask: u32) -> Self {
        Self {
            mask,
            done: std::sync::Arc::default(),
        }
    }

    /// Whether a transaction was cancelled, and so mixed.
    pub fn was_mixed(&self) -> bool {
        self.done.load(Ordering::SeqCst)
    }
}

impl Plan for Mixed {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let (mask, done) = (self.mask, std::sync::Arc::clone(&self.done));
        let verdict = if request.operation == "TransactWriteItems" {
            Verdict::Amend(cloud::tap::Amend(std::sync::Arc::new(
                move |answer: &Value| {
                    let mut answer = answer.clone();
                    let reasons = answer.get_mut("CancellationReasons")?.as_array_mut()?;
                    if done.swap(true, Ordering::SeqCst) {
                        return None;
                    }
                    for (place, reason) in reasons.iter_mut().enumerate() {
                        if mask & (1 << place) != 0 {
                            *reason = json!({"Code": "TransactionConflict"});
                        }
                    }
                    Some(answer)
                },
            )))
        } else {
            Verdict::Pass
        };
        Box::pin(async { verdict })
    }
}

/// A plan under which one neighbour is stuck: every call that names it fails or hangs, and all others pass.
/// A loop over many must get on with the others.
#[derive(Debug)]
pub struct Stuck {
    id: String,
    hangs: bool,
    met: AtomicUsize,
}

impl Stuck {
    /// Every call that names this id hangs.
    pub fn hanging(id: &str) -> Self {
        Self {
            id: id.to_owned(),
            hangs: true,
            met: AtomicUsize::new(0),
        }
    }

    /// DynamoDB refuses every call that names this id, as it would one whose item is too large.
    pub fn failing(id: &str) -> Self {
        Self {
            hangs: false,
            ..Self::hanging(id)
        }
    }

    /// How many calls named it.
    pub fn met(&self) -> usize {
        self.met.load(Ordering::SeqCst)
    }
}

impl Plan for Stuck {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let named = names(&request.body, &self.id)
            || request
                .targets
                .iter()
                .any(|t| t.resource.contains(&self.id));
        self.met.fetch_add(usize::from(named), Ordering::SeqCst);
        Box::pin(async move {
            match (named, self.hangs) {
                (false, _) => Verdict::Pass,
                (true, true) => std::future::pending().await,
                (true, false) => Verdict::Answer {
                    status: 400,
                    body: json!({
                        "__type": "com.amazon.coral.validate#ValidationException",
                        "message": "Item size has exceeded the maximum allowed size",
                    }),
                },
            }
        })
    }
}

/// Whether the id stands in the text, by itself or as a part: `a` in `ride#a`, not in `table`.
fn has_word(text: &str, id: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
    text.match_indices(id).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let after = text[at + id.len()..].chars().next();
        !before.is_some_and(joins) && !after.is_some_and(joins)
    })
}

/// Whether any text in a body has this id.
fn names(body: &Value, id: &str) -> bool {
    match body {
        Value::String(text) => has_word(text, id),
        Value::Array(parts) => parts.iter().any(|part| names(part, id)),
        Value::Object(parts) => parts.values().any(|part| names(part, id)),
        _ => false,
    }
}
