//! A copy of a write lands late: after later calls of anybody, also after the death of its sender.
//!
//! A network may delay a request. The SDK times out and sends it again; the retry is answered, life goes
//! on, and then the first sending arrives and is carried out once more. Or the sender dies while its only
//! sending is under way, its client or its successor does the work again, and then the dead one's write
//! arrives. A guarded write refuses its late copy. An unconditional one turns back the clock.

use crate::story::{lock, numbered, or_panic, told};
use crate::{Tokenless, World};
use cloud::as_actor;
use cloud::tap::{Call, LateCopy, Outcome, Plan, Request, Verdict};
use futures::future::BoxFuture;
use std::fmt;
use std::future::{pending, poll_fn};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

type Setup<W> = Box<dyn Fn() -> BoxFuture<'static, W> + Send + Sync>;
type Act<W> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, ()> + Send + Sync>;
type Check<W> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Tells a short story again and again, each time with a late copy of one of its writes, landing after one
/// of its later calls.
///
/// ```no_run
/// # use chaos::LateCopies;
/// # use cloud::Cloud;
/// # async fn fresh() -> Cloud { cloud::connect_for_tests().await.unwrap() }
/// # async fn open(_: &Cloud) {}
/// # async fn close(_: &Cloud) {}
/// # async fn still_closed(_: &Cloud) -> Result<(), String> { Ok(()) }
/// # async fn test() {
/// LateCopies::of(fresh)
///     .act("opener", |cloud| async move { open(&cloud).await })
///     .act("closer", |cloud| async move { close(&cloud).await })
///     .check(|cloud| async move { still_closed(&cloud).await })
///     .run()
///     .await
///     .unwrap();
/// # }
/// ```
///
/// The acts run one after the other. Two sweeps are made:
/// - *sent again*: the write is carried out, and its copy lands after that call or any later one;
/// - *sender died*: the act dies with the write under way, is begun again as its client or successor would
///   do, and the write lands after any call from then on.
///
/// Transactions lose the token by which DynamoDB recognizes a copy for ten minutes, since a copy may be
/// later than that, and a second process has another token.
pub struct LateCopies<W> {
    setup: Setup<W>,
    acts: Vec<(&'static str, Act<W>)>,
    check: Option<Check<W>>,
    about: Box<dyn Fn(&Request) -> bool + Send + Sync>,
    patience: Duration,
}

/// Every late copy was harmless.
#[derive(Debug, Clone)]
pub struct Harmless {
    /// Each write and where its copy landed: `call 2 (PutItem bids if) of alice lands after call 5`.
    pub landings: Vec<String>,
}

/// A late copy that did harm, or the reason why the sweep could not be made.
#[derive(Clone)]
pub struct Harmed {
    /// Which copy landed where.
    pub point: String,
    /// What the check said.
    pub why: String,
    /// The calls as they happened, the copy among them.
    pub calls: Vec<String>,
    /// How many landings did no harm before this one.
    pub harmless: usize,
}

/// How often a story is told again that did not come as far as before.
const TOLD_AGAIN: usize = 5;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    SentAgain,
    SenderDies,
}

impl<W: World> LateCopies<W> {
    /// Begins with how a fresh world is made.
    pub fn of<F, Fut>(setup: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = W> + Send + 'static,
    {
        Self {
            setup: Box::new(move || Box::pin(setup())),
            acts: Vec::new(),
            check: None,
            about: Box::new(|_| true),
            patience: Duration::from_secs(10),
        }
    }

    /// What happens next in the story. What it returns is ignored: a late copy may well change an answer,
    /// and the check looks at what is kept.
    pub fn act<F, Fut>(mut self, name: &'static str, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        let act: Act<W> = Box::new(move |world| {
            let work = act(world);
            Box::pin(async move {
                work.await;
            })
        });
        self.acts.push((name, act));
        self
    }

    /// What must hold at the end, wherever a copy landed, and also without one.
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.check = Some(Box::new(move |world| Box::pin(check(world))));
        self
    }

    /// Only copies of these writes.
    pub fn only(mut self, about: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Self {
        self.about = Box::new(about);
        self
    }

    /// Lets every write of the story come late. Stops at the first that does harm.
    pub async fn run(&self) -> Result<Harmless, Harmed> {
        let plain = self.tell(None, 0, 0).await?;
        let mut landings = Vec::new();
        for k in plain.writes.iter().copied() {
            for fate in [Fate::SentAgain, Fate::SenderDies] {
                // A retry may be all that is left to call, so the story's end counts as a place too.
                let (mut after, mut without) = (0, 0);
                loop {
                    let told = self.tell(Some((k, fate)), after, landings.len()).await?;
                    let Some(point) = told.point else {
                        // A story may make fewer calls this time. It is told again.
                        if without == TOLD_AGAIN {
                            return Err(Harmed {
                                point: "without a late copy".to_owned(),
                                why: format!("the story no longer makes its call {k}"),
                                calls: told.calls,
                                harmless: landings.len(),
                            });
                        }
                        without += 1;
                        continue;
                    };
                    landings.push(point);
                    if told.over {
                        break;
                    }
                    (after, without) = (after + 1, 0);
                }
            }
        }
        if landings.is_empty() {
            return Err(Harmed {
                point: "without a late copy".to_owned(),
                why: "the story makes no write at the tap, so nothing was shown: work that is \
                      spawned or passes beside the tap is not seen"
                    .to_owned(),
                calls: plain.calls,
                harmless: 0,
            });
        }
        Ok(Harmless { landings })
    }

    /// The story once, with the copy of write `k` landing `after` so many calls that follow it.
    async fn tell(
        &self,
        late: Option<(usize, Fate)>,
        after: usize,
        harmless: usize,
    ) -> Result<Told, Harmed> {
        let world = Arc::new((self.setup)().await);
        let mail = Arc::new(Mail {
            late,
            after,
            actors: self.acts.iter().map(|(name, _)| *name).collect(),
            copy: LateCopy::default(),
            seen: Mutex::default(),
        });
        let about = &self.about;
        let tap = world.cloud().tap();
        let installed = [tap.install(Arc::new(Tokenless)), tap.install(mail.clone())];
        let mut ended = Ok(());
        for (name, act) in &self.acts {
            for _ in 0..2 {
                let work = Box::pin(or_panic(as_actor(*name, act(Arc::clone(&world)))));
                let run = tokio::time::timeout(self.patience, until_death(work, &mail)).await;
                ended = run.unwrap_or_else(|_| {
                    Err(format!("{name} did not finish in {:?}", self.patience))
                });
                if !std::mem::take(&mut lock(&mail.seen).died) || ended.is_err() {
                    break;
                }
            }
            if ended.is_err() {
                break;
            }
        }
        drop(installed);
        let over = lock(&mail.seen).landed.is_none();
        if over && let Some(outcome) = mail.copy.deliver().await {
            lock(&mail.seen).land(outcome);
        }
        let (calls, point, writes, landed) = {
            let mut seen = lock(&mail.seen);
            let kept = seen.kept.as_ref();
            let point = kept.map(|what| format!("{what} lands {after} calls later"));
            let writes = seen
                .requests
                .iter()
                .filter(|(_, request)| request.is_write() && about(request))
                .map(|(k, _)| *k)
                .collect();
            let calls = std::mem::take(&mut seen.calls);
            (calls, point, writes, seen.landed.take())
        };
        let harmed = |why| Harmed {
            point: point.clone().unwrap_or("without a late copy".to_owned()),
            why,
            calls: calls.clone(),
            harmless,
        };
        ended.map_err(&harmed)?;
        if late.is_some() && point.is_some() {
            match landed {
                None => return Err(harmed("no copy of this call could be made".to_owned())),
                Some(Outcome::NoAnswer(why)) => {
                    return Err(harmed(format!("the copy did not land: {why}")));
                }
                Some(_) => {}
            }
        }
        if let Some(check) = &self.check {
            let judged = or_panic(as_actor("check", check(world))).await;
            let judged = judged.unwrap_or_else(|panic| Err(format!("the check panicked: {panic}")));
            judged.map_err(&harmed)?;
        }
        Ok(Told {
            point,
            calls,
            writes,
            over,
        })
    }
}

struct Told {
    point: Option<String>,
    calls: Vec<String>,
    writes: Vec<usize>,
    /// The copy landed when everything else was over.
    over: bool,
}

/// Runs an act until it ends or its process is dead.
async fn until_death(
    mut work: BoxFuture<'_, Result<(), String>>,
    mail: &Mail,
) -> Result<(), String> {
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(ended) => Poll::Ready(ended),
        Poll::Pending if lock(&mail.seen).died => Poll::Ready(Ok(())),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// The plan that keeps a copy of one write and delivers it later.
struct Mail {
    late: Option<(usize, Fate)>,
    after: usize,
    actors: Vec<&'static str>,
    copy: LateCopy,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    count: usize,
    requests: Vec<(usize, Request)>,
    /// The write whose copy is under way, its number at the tap, and how many calls came after it.
    kept: Option<String>,
    number: Option<u64>,
    later: usize,
    /// What became of the copy.
    landed: Option<Outcome>,
    died: bool,
    calls: Vec<String>,
}

impl Seen {
    fn land(&mut self, outcome: Outcome) {
        let what = self.kept.clone().unwrap_or_default();
        self.calls
            .push(format!("— the late copy of {what} lands here: {outcome} —"));
        self.landed = Some(outcome);
    }
}

impl Mail {
    fn acts(&self, request: &Request) -> bool {
        self.actors.iter().any(|name| **name == *request.actor)
    }
}

impl Plan for Mail {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = if self.acts(request) {
            let mut seen = lock(&self.seen);
            seen.count += 1;
            let k = seen.count;
            seen.requests.push((k, request.clone()));
            let fate = self
                .late
                .filter(|(late, _)| *late == k)
                .map(|(_, fate)| fate);
            match fate {
                Some(fate) => {
                    seen.kept = Some(format!(
                        "call {k} ({}) of {}",
                        request.shape(),
                        request.actor
                    ));
                    seen.number = Some(request.number);
                    Verdict::Keep {
                        copy: self.copy.clone(),
                        arrives: fate == Fate::SentAgain,
                    }
                }
                None => Verdict::Pass,
            }
        } else {
            Verdict::Pass
        };
        Box::pin(async { verdict })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if !self.acts(&call.request) {
                return;
            }
            let (lands, dies) = {
                let mut seen = lock(&self.seen);
                seen.calls.push(told(call));
                let is_it = seen.number == Some(call.request.number);
                let dies = is_it && matches!(self.late, Some((_, Fate::SenderDies)));
                if dies {
                    seen.calls.push("— the sender dies here —".to_owned());
                    seen.died = true;
                }
                // The copy of a dead sender cannot land before its own sending.
                let counts = seen.kept.is_some() && !dies && seen.landed.is_none();
                let lands = counts && seen.later == self.after;
                seen.later += usize::from(counts);
                (lands, dies)
            };
            if lands && let Some(outcome) = self.copy.deliver().await {
                lock(&self.seen).land(outcome);
            }
            if dies {
                pending::<()>().await;
            }
        })
    }
}

impl fmt::Display for Harmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.point, self.why)?;
        write!(
            f,
            "\n  after {} late copies that did no harm:",
            self.harmless
        )?;
        numbered(f, &self.calls)
    }
}

/// The story, so that `unwrap` in a test tells it.
impl fmt::Debug for Harmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Harmed {}
