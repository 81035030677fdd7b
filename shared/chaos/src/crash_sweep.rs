//! The process dies before and after every call of an action.
//!
//! Dying is the future being dropped: no code of the action runs any more, nothing is caught,
//! nothing is cleaned up, and no error is seen by anybody. Before the k-th call means that it
//! never left; after it means that it was carried out and nobody learned of it.

use crate::World;
use crate::story::{MakePlan, ask, lock, numbered, or_panic, slipped, tell, told};
use cloud::as_actor;
use cloud::tap::{Call, Plan, Request, Verdict};
use futures::future::BoxFuture;
use std::collections::HashSet;
use std::fmt;
use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

type Setup<W> = Box<dyn Fn() -> BoxFuture<'static, W> + Send + Sync>;
type Act<W> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, ()> + Send + Sync>;
type Check<W> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Kills an action at every point, lets life go on, and checks.
///
/// ```no_run
/// # use chaos::CrashSweep;
/// # use cloud::Cloud;
/// # async fn fresh() -> Cloud { cloud::connect_for_tests().await.unwrap() }
/// # async fn pay(_: &Cloud) {}
/// # async fn sweep(_: &Cloud) {}
/// # async fn missing(_: &Cloud) -> Option<String> { None }
/// # async fn test() {
/// CrashSweep::of(fresh)
///     .action("payer", |cloud| async move { pay(&cloud).await })
///     .recovery(|cloud| async move { sweep(&cloud).await })
///     .check(|cloud| async move { missing(&cloud).await.map_or(Ok(()), Err) })
///     .run()
///     .await
///     .unwrap();
/// # }
/// ```
///
/// The k-th call is the k-th attempt at the tap: what the SDK sends again counts again.
/// Work that the action hands to `tokio::spawn` carries no name and survives.
pub struct CrashSweep<W> {
    setup: Setup<W>,
    action: Option<(&'static str, Act<W>)>,
    recovery: Option<Act<W>>,
    check: Option<Check<W>>,
    under: Vec<MakePlan>,
    at_most: usize,
    patience: Duration,
}

/// Everything was survived.
#[derive(Debug, Clone)]
pub struct Swept {
    /// Where it died, in order: `before call 1: GetItem auctions`, `after call 1: GetItem auctions`.
    pub points: Vec<String>,
}

/// A death that was not survived, or the reason why the sweep could not be made.
#[derive(Clone)]
pub struct NotRecovered {
    /// Where it died: `died after call 2 (PutItem bids if)`, or `without a crash`.
    pub point: String,
    /// What the check said, or what panicked or hung.
    pub why: String,
    /// The calls of the action and of the recovery.
    pub calls: Vec<String>,
    /// How many deaths were survived before this one.
    pub survived: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum When {
    Before,
    After,
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Before => "before",
            Self::After => "after",
        })
    }
}

impl<W: World> CrashSweep<W> {
    /// Begins with how a fresh world is made.
    pub fn of<F, Fut>(setup: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = W> + Send + 'static,
    {
        Self {
            setup: Box::new(move || Box::pin(setup())),
            action: None,
            recovery: None,
            check: None,
            under: Vec::new(),
            at_most: 1_000,
            patience: Duration::from_secs(10),
        }
    }

    /// The action that dies. What it returns is ignored: whoever is dead returns nothing.
    pub fn action<F, Fut>(mut self, name: &'static str, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        self.action = Some((name, ignoring(act)));
        self
    }

    /// What life does afterwards: the client asks again, the sweeper comes by. May be left out.
    pub fn recovery<F, Fut>(mut self, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        self.recovery = Some(ignoring(act));
        self
    }

    /// What must hold after the recovery, wherever it died, and also when it did not die.
    /// A panic counts as broken.
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.check = Some(Box::new(move |world| Box::pin(check(world))));
        self
    }

    /// Also asks this plan about every call of the action and of the recovery, but not of the
    /// check. Made anew for each crash point.
    pub fn under<P: Plan + 'static>(
        mut self,
        plan: impl Fn() -> Arc<P> + Send + Sync + 'static,
    ) -> Self {
        self.under.push(Box::new(move || plan()));
        self
    }

    /// Fails when the action makes more calls than this (1,000 unless told): it may never end.
    pub fn at_most(mut self, calls: usize) -> Self {
        self.at_most = calls;
        self
    }

    /// How long the action may take (ten seconds unless told).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Dies everywhere. Stops at the first death that was not survived.
    ///
    /// # Panics
    /// If there is no action.
    pub async fn run(&self) -> Result<Swept, NotRecovered> {
        let mut points = Vec::new();
        for k in 1..=self.at_most {
            for when in [When::Before, When::After] {
                match self.die(k, when, points.len()).await? {
                    Some(shape) => points.push(format!("{when} call {k}: {shape}")),
                    None if points.is_empty() => {
                        return Err(NotRecovered {
                            point: "without a crash".to_owned(),
                            why: "the action makes no call at the tap under its name, so it never \
                                  died: work that is spawned or passes beside the tap is not seen"
                                .to_owned(),
                            calls: Vec::new(),
                            survived: 0,
                        });
                    }
                    None if when == When::Before => return Ok(Swept { points }),
                    None => {
                        return Err(NotRecovered {
                            point: format!("at call {k}"),
                            why: "this call was made in the run before and not in this one, so \
                                  points cannot be enumerated: look for random ids or the \
                                  system clock"
                                .to_owned(),
                            calls: Vec::new(),
                            survived: points.len(),
                        });
                    }
                }
            }
        }
        Err(NotRecovered {
            point: "without a crash".to_owned(),
            why: format!(
                "the action makes more than {} calls: does it end?",
                self.at_most
            ),
            calls: Vec::new(),
            survived: points.len(),
        })
    }

    /// One death, and the shape of the call it died at; none if the action ended before.
    async fn die(
        &self,
        k: usize,
        when: When,
        survived: usize,
    ) -> Result<Option<String>, NotRecovered> {
        let (name, act) = self.action.as_ref().expect("a sweep has an action");
        let world = Arc::new((self.setup)().await);
        let death = Arc::new(Death {
            actor: name,
            k,
            when,
            under: self.under.iter().map(|plan| plan()).collect(),
            seen: Mutex::default(),
        });
        let installed = world.cloud().tap().install(death.clone());
        let work = Box::pin(or_panic(as_actor(*name, act(Arc::clone(&world)))));
        let ended = tokio::time::timeout(self.patience, until_death(work, &death)).await;
        drop(installed);

        let (died_at, mut calls, slip) = {
            let mut seen = lock(&death.seen);
            (
                seen.died_at.clone(),
                std::mem::take(&mut seen.calls),
                seen.slipped.clone(),
            )
        };
        let point = match &died_at {
            Some(shape) => format!("died {when} call {k} ({shape})"),
            None => "without a crash".to_owned(),
        };
        let failed = |why, calls| NotRecovered {
            point,
            why,
            calls,
            survived,
        };
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(panic)) => return Err(failed(format!("{name} panicked: {panic}"), calls)),
            Err(_) => {
                let why = format!(
                    "{name} neither finished nor came to call {k} in {:?}",
                    self.patience
                );
                return Err(failed(why, calls));
            }
        }
        if let Some(line) = slip {
            return Err(failed(slipped(&line), calls));
        }

        if let Some(recovery) = &self.recovery {
            let tap = world.cloud().tap();
            let under = death.under.iter().map(|plan| tap.install(Arc::clone(plan)));
            let _installed: Vec<_> = under.collect();
            let recording = tap.record();
            let recovered = or_panic(as_actor("recovery", recovery(Arc::clone(&world)))).await;
            calls.extend(recording.take().iter().map(told));
            if let Err(panic) = recovered {
                return Err(failed(format!("the recovery panicked: {panic}"), calls));
            }
        }
        if let Some(check) = &self.check {
            let judged = or_panic(as_actor("check", check(world))).await;
            let judged = judged.unwrap_or_else(|panic| Err(format!("the check panicked: {panic}")));
            judged.map_err(|why| failed(why, calls))?;
        }
        Ok(died_at)
    }
}

fn ignoring<W, F, Fut>(act: F) -> Act<W>
where
    W: World,
    F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
    Fut: Future + Send + 'static,
{
    Box::new(move |world| {
        let work = act(world);
        Box::pin(async move {
            work.await;
        })
    })
}

/// Runs the action until it ends or is dead. Death comes inside the action's own poll, so looking
/// after each poll is enough. Calls of other branches that had left by then are answered first:
/// they reach the service in any case, and the world is to be the same in every run.
async fn until_death(
    mut work: BoxFuture<'_, Result<(), String>>,
    death: &Death,
) -> Result<(), String> {
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(ended),
        Poll::Pending => {
            let seen = lock(&death.seen);
            if seen.died_at.is_some() && seen.in_flight.is_empty() {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        }
    })
    .await
}

/// The plan that kills at the k-th call of one actor.
struct Death {
    actor: &'static str,
    k: usize,
    when: When,
    under: Vec<Arc<dyn Plan>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// How many calls left or were about to.
    count: usize,
    /// The number of the call that is the last one.
    last: Option<u64>,
    in_flight: HashSet<u64>,
    died_at: Option<String>,
    slipped: Option<String>,
    calls: Vec<String>,
}

impl Seen {
    fn die(&mut self, shape: String) {
        self.calls.push("— the process dies here —".to_owned());
        self.died_at = Some(shape);
    }
}

impl Plan for Death {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if *request.actor != *self.actor {
                return Verdict::Pass;
            }
            let alive = {
                let mut seen = lock(&self.seen);
                let mut alive = seen.died_at.is_none();
                if alive {
                    seen.count += 1;
                    if seen.count == self.k {
                        seen.last = Some(request.number);
                        if self.when == When::Before {
                            seen.die(request.shape());
                            alive = false;
                        }
                    }
                }
                if alive {
                    seen.in_flight.insert(request.number);
                }
                alive
            };
            if !alive {
                pending::<()>().await;
            }
            ask(&self.under, request).await
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if *call.request.actor != *self.actor {
                return;
            }
            tell(&self.under, call).await;
            let dead = {
                let mut seen = lock(&self.seen);
                let line = told(call);
                if !seen.in_flight.remove(&call.request.number) {
                    seen.slipped.get_or_insert_with(|| line.clone());
                }
                seen.calls.push(line);
                if self.when == When::After && seen.last == Some(call.request.number) {
                    seen.die(call.shape());
                }
                seen.died_at.is_some()
            };
            if dead {
                pending::<()>().await;
            }
        })
    }
}

impl fmt::Display for NotRecovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.point, self.why)?;
        write!(f, "\n  after {} deaths that were survived:", self.survived)?;
        numbered(f, &self.calls)
    }
}

/// The story, so that `unwrap` in a test tells it.
impl fmt::Debug for NotRecovered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NotRecovered {}
