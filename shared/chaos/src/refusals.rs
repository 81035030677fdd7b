//! Answers that the embedded services never give by themselves, and one that hides what a test looks for.

use cloud::tap::{Plan, Request, Verdict};
use futures::future::BoxFuture;
use serde_json::json;
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
