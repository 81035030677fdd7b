//! Two answers that the embedded services never give by themselves, and one that hides what a test looks for.

use cloud::tap::{Plan, Request, Verdict};
use futures::future::BoxFuture;
use serde_json::json;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    let reasons = vec![json!({"Code": "TransactionConflict"}); request.targets.len()];
    let body = if request.operation.starts_with("Transact") {
        json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, None]",
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
