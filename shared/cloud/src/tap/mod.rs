//! The one seam every call passes: where it is seen, priced, held, failed or ordered.
//!
//! Archetype code holds plain SDK clients and never sees this. Beneath them, the HTTP connector
//! ([`http`]), the Redis connection ([`redis`]) and a middleware of outgoing HTTP ([`outgoing`])
//! ask the tap before a call leaves and tell it what came back. With no [`Recording`] and no [`Plan`]
//! the question is one atomic load.

pub mod call;
pub(crate) mod http;
#[cfg(feature = "http")]
pub(crate) mod outgoing;
#[cfg(feature = "redis")]
pub(crate) mod redis;

pub use call::{Call, Consumed, Outcome, Request, Service, Target};

use crate::names::Names;
use futures::future::BoxFuture;
use serde_json::Value;
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

tokio::task_local! {
    static ACTOR: Arc<str>;
}

/// Runs `work` so that its calls carry the name of who made them.
pub async fn as_actor<F: Future>(name: impl Into<Arc<str>>, work: F) -> F::Output {
    ACTOR.scope(name.into(), work).await
}

/// Who is making calls here: the innermost [`as_actor`], or `main`.
pub fn current_actor() -> Arc<str> {
    ACTOR.try_with(Arc::clone).unwrap_or_else(|_| "main".into())
}

/// What a [`Plan`] decides about a call before it leaves.
#[derive(Debug, Clone)]
pub enum Verdict {
    /// Let it pass.
    Pass,
    /// Send this body in its place: a weakened guard, a changed limit.
    /// Not for real AWS, whose signature covers the body.
    Rewrite(Value),
    /// Send this body in its place, and let that befall it. For drivers that ask plans beneath them.
    RewriteAnd(Value, Box<Verdict>),
    /// Do not send it; this is the answer. For throttling and stale reads.
    Answer {
        /// HTTP status.
        status: u16,
        /// JSON body.
        body: Value,
    },
    /// It never arrives. The caller sees a timeout, and the SDK sends it again as in life.
    LoseRequest,
    /// It arrives and is carried out, but the answer is lost. The caller sees a timeout.
    LoseAnswer,
    /// The process is dead before the call: not sent, not retried.
    Kill,
    /// The process dies after the call was carried out.
    KillAfter,
    /// A copy of it stays on the way, to be delivered later: see [`LateCopy`].
    Keep {
        /// Where the copy is kept.
        copy: LateCopy,
        /// Whether this sending arrives too. If not, the caller sees a timeout.
        arrives: bool,
    },
    /// It is carried out, and this is made of the JSON answer, which keeps its status. For answers that
    /// DynamoDB may give and the embedded one never does.
    Amend(Amend),
}

/// Makes another answer of an answer; none leaves it as it is.
#[derive(Clone)]
pub struct Amend(pub Arc<Amends>);

type Amends = dyn Fn(&Value) -> Option<Value> + Send + Sync;

impl std::fmt::Debug for Amend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Amend")
    }
}

/// A request that is still on its way when its retry has long been answered, or its sender is dead.
/// Clones are the same request.
#[derive(Clone, Default)]
pub struct LateCopy(Arc<Mutex<Option<Sending>>>);

type Sending = BoxFuture<'static, Outcome>;

impl LateCopy {
    /// Delivers the copy, past all plans and recordings. None if there is none, or no more.
    pub async fn deliver(&self) -> Option<Outcome> {
        let copy = self.lock().take();
        match copy {
            Some(copy) => Some(copy.await),
            None => None,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Sending>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for LateCopy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LateCopy")
    }
}

/// Decides about calls. `before` may wait as long as it likes: that is how calls are held.
pub trait Plan: Send + Sync {
    /// Asked before the call leaves.
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict>;

    /// Told after the answer came, or did not.
    fn after<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

/// The tap of one cloud. Clones are the same tap.
#[derive(Clone)]
pub struct Tap {
    inner: Arc<Inner>,
}

struct Inner {
    names: Names,
    /// How many recordings and plans there are. Zero means off.
    users: AtomicUsize,
    next: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    recordings: Vec<(u64, Vec<Call>)>,
    plans: Vec<(u64, Arc<dyn Plan>)>,
}

impl std::fmt::Debug for Tap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tap").field("on", &self.is_on()).finish()
    }
}

impl Tap {
    pub(crate) fn new(names: Names) -> Self {
        Self {
            inner: Arc::new(Inner {
                names,
                users: AtomicUsize::new(0),
                next: AtomicU64::new(0),
                state: Mutex::default(),
            }),
        }
    }

    /// Whether anybody records or plans.
    pub fn is_on(&self) -> bool {
        self.inner.users.load(Ordering::Relaxed) > 0
    }

    /// Records every call until the recording is dropped.
    #[must_use = "the recording ends when it is dropped"]
    pub fn record(&self) -> Recording {
        let id = self.join(|state, id| state.recordings.push((id, Vec::new())));
        Recording {
            tap: self.clone(),
            id,
        }
    }

    /// Puts a plan in charge until the returned guard is dropped. Several plans are asked in the
    /// order they were installed. One that rewrites a call hands it on rewritten; the first that
    /// neither passes nor rewrites decides.
    #[must_use = "the plan is removed when this is dropped"]
    pub fn install(&self, plan: Arc<dyn Plan>) -> Installed {
        let id = self.join(|state, id| state.plans.push((id, plan)));
        Installed {
            tap: self.clone(),
            id,
        }
    }

    fn join(&self, add: impl FnOnce(&mut State, u64)) -> u64 {
        let id = self.inner.next.fetch_add(1, Ordering::Relaxed);
        add(&mut self.state(), id);
        self.inner.users.fetch_add(1, Ordering::Relaxed);
        id
    }

    fn leave(&self, remove: impl FnOnce(&mut State)) {
        self.inner.users.fetch_sub(1, Ordering::Relaxed);
        remove(&mut self.state());
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn plans(&self) -> Vec<Arc<dyn Plan>> {
        let state = self.state();
        state
            .plans
            .iter()
            .map(|(_, plan)| Arc::clone(plan))
            .collect()
    }

    pub(crate) fn names(&self) -> &Names {
        &self.inner.names
    }

    /// Carries one call past the plans and the recordings. `send` makes the real call, with
    /// another body if a plan rewrote it; `T` is the transport's own answer.
    ///
    /// This is the whole seam: the transports differ only in the closures. `again` makes a second
    /// sending of the same request, where its body can be had twice.
    pub(crate) async fn pass<T, E, S>(
        &self,
        mut request: Request,
        send: impl FnOnce(Option<Value>) -> S,
        again: impl FnOnce(Option<Value>) -> Option<BoxFuture<'static, Result<T, E>>>,
        read: fn(&T) -> (Outcome, Option<Value>),
        answer: impl FnOnce(u16, Value) -> Result<T, E>,
        fail: fn(Failure) -> E,
    ) -> Result<T, E>
    where
        S: Future<Output = Result<T, E>>,
        T: 'static,
        E: std::fmt::Display + 'static,
    {
        request.number = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let plans = self.plans();
        let mut verdict = Verdict::Pass;
        let mut rewritten = None;
        for plan in &plans {
            verdict = plan.before(&request).await;
            if let Verdict::RewriteAnd(body, then) = verdict {
                request.rewrite(body.clone(), self.names());
                rewritten = Some(body);
                verdict = *then;
            }
            match &verdict {
                Verdict::Pass => {}
                Verdict::Rewrite(body) => {
                    request.rewrite(body.clone(), self.names());
                    rewritten = Some(body.clone());
                }
                _ => break,
            }
        }
        let left = self.inner.next.fetch_add(1, Ordering::Relaxed);
        let started = Instant::now();
        let mut keeps = None;
        let result = match verdict {
            Verdict::Pass | Verdict::Rewrite(_) | Verdict::RewriteAnd(..) => send(rewritten).await,
            Verdict::Keep { copy, arrives } => {
                *copy.lock() = again(rewritten.clone()).map(|sending| {
                    let delivered = async move {
                        match sending.await {
                            Ok(answer) => read(&answer).0,
                            Err(error) => Outcome::NoAnswer(error.to_string()),
                        }
                    };
                    Box::pin(delivered) as Sending
                });
                if arrives {
                    send(rewritten).await
                } else {
                    Err(fail(Failure::RequestLost))
                }
            }
            Verdict::Amend(Amend(amend)) => {
                let result = send(rewritten).await;
                let given = result.as_ref().ok().map(read);
                match given {
                    Some((outcome, Some(body))) => match amend(&body) {
                        Some(other) => answer(outcome.status(), other),
                        None => result,
                    },
                    _ => result,
                }
            }
            Verdict::Answer { status, body } => answer(status, body),
            Verdict::LoseRequest => Err(fail(Failure::RequestLost)),
            Verdict::Kill => Err(fail(Failure::Killed)),
            Verdict::LoseAnswer => {
                keeps = Some(Failure::AnswerLost);
                send(rewritten).await
            }
            Verdict::KillAfter => {
                keeps = Some(Failure::KilledAfter);
                send(rewritten).await
            }
        };
        let (mut outcome, response) = match &result {
            Ok(answer) => read(answer),
            Err(error) => (Outcome::NoAnswer(error.to_string()), None),
        };
        if let Some(failure) = &keeps {
            outcome = Outcome::NoAnswer(failure.to_string());
        }
        let took = started.elapsed();
        let call = Call::new(request, outcome, response, left, took, self.names());
        for plan in &plans {
            plan.after(&call).await;
        }
        for (_, calls) in &mut self.state().recordings {
            calls.push(call.clone());
        }
        match keeps {
            Some(failure) => Err(fail(failure)),
            None => result,
        }
    }
}

/// Why the tap itself let a call fail.
#[derive(Debug, Clone, Copy, thiserror::Error)]
pub(crate) enum Failure {
    #[error("the request was lost")]
    RequestLost,
    #[error("the answer was lost")]
    AnswerLost,
    #[error("the process is dead")]
    Killed,
    #[error("the process died after this call")]
    KilledAfter,
}

impl Failure {
    /// A lost message is a timeout, which the SDK retries. A dead process retries nothing.
    pub(crate) fn is_timeout(self) -> bool {
        matches!(self, Self::RequestLost | Self::AnswerLost)
    }
}

/// A recording of calls, from [`Tap::record`] until it is dropped.
#[derive(Debug)]
pub struct Recording {
    tap: Tap,
    id: u64,
}

impl Recording {
    /// The calls so far.
    pub fn calls(&self) -> Vec<Call> {
        let state = self.tap.state();
        let mine = state.recordings.iter().find(|(id, _)| *id == self.id);
        mine.map(|(_, calls)| calls.clone()).unwrap_or_default()
    }

    /// The calls so far, leaving none behind: what one step made.
    pub fn take(&self) -> Vec<Call> {
        let mut state = self.tap.state();
        let mine = state.recordings.iter_mut().find(|(id, _)| *id == self.id);
        mine.map(|(_, calls)| std::mem::take(calls))
            .unwrap_or_default()
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let id = self.id;
        self.tap
            .leave(|state| state.recordings.retain(|(other, _)| *other != id));
    }
}

/// A plan in charge, from [`Tap::install`] until this is dropped.
#[derive(Debug)]
pub struct Installed {
    tap: Tap,
    id: u64,
}

impl Drop for Installed {
    fn drop(&mut self) {
        let id = self.id;
        self.tap
            .leave(|state| state.plans.retain(|(other, _)| *other != id));
    }
}

/// The plan that lets calls through until the `k`-th (counting from one) and is then dead:
/// that call and all after it fail at once, unsent. With `actor`, only that actor's calls count.
#[derive(Debug)]
pub struct KillFrom {
    k: u64,
    actor: Option<Arc<str>>,
    seen: AtomicU64,
}

impl KillFrom {
    /// Dead from the `k`-th call on.
    pub fn call(k: u64) -> Self {
        Self {
            k,
            actor: None,
            seen: AtomicU64::new(0),
        }
    }

    /// Counts and kills only the calls of this actor.
    pub fn of(mut self, actor: &str) -> Self {
        self.actor = Some(actor.into());
        self
    }
}

impl Plan for KillFrom {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let mine = self
            .actor
            .as_ref()
            .is_none_or(|actor| *actor == request.actor);
        let dead = mine && self.seen.fetch_add(1, Ordering::SeqCst) + 1 >= self.k;
        Box::pin(async move { if dead { Verdict::Kill } else { Verdict::Pass } })
    }
}
