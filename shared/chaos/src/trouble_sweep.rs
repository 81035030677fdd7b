//! Every call of an action meets every kind of trouble that a service can make of it.
//!
//! An action that waits for ever, that gives up at the first conflict, or that takes a refusal for an
//! answer is wrong in a way no order of delivered calls shows.

use crate::World;
use crate::faults::throttled;
use crate::refusals::conflict;
use crate::story::{lock, numbered, or_panic, told};
use cloud::as_actor;
use cloud::tap::{Call, Outcome, Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use serde_json::Value;
use std::collections::HashSet;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What a service does to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// Another transaction has the item: once, on any write, single ones too, and on a transactional read.
    Conflict,
    /// DynamoDB throttles this call and its retries until the SDK gives up.
    Throttled,
    /// From this call on the service accepts and never answers. Nothing is carried out.
    Hangs,
    /// From this call on the service carries out what it is asked and never answers.
    HangsAfter,
    /// This call and its retries never arrive, and then the service is there again. The caller is told "unknown".
    Lost,
    /// This call is carried out, with its retries, and no answer to them arrives. Then the service is there again,
    /// and can be asked what happened.
    LostAnswer,
    /// S3 answers 503 SlowDown to this call and its retries.
    SlowDown,
    /// S3 answers 500 InternalError to this call and its retries.
    InternalError,
    /// S3 answers 400 RequestTimeout once.
    RequestTimeout,
    /// S3 answers 403 AccessDenied once.
    AccessDenied,
}

impl Trouble {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Conflict,
        Self::Throttled,
        Self::Hangs,
        Self::HangsAfter,
        Self::Lost,
        Self::LostAnswer,
        Self::SlowDown,
        Self::InternalError,
        Self::RequestTimeout,
        Self::AccessDenied,
    ];

    /// Whether it can befall this call.
    fn fits(self, request: &Request) -> bool {
        match self {
            Self::Conflict => {
                let in_conflict = request.is_write() || request.operation == "TransactGetItems";
                request.service == Service::DynamoDb && in_conflict
            }
            Self::Throttled => request.service == Service::DynamoDb,
            Self::Hangs | Self::HangsAfter | Self::Lost | Self::LostAnswer => true,
            Self::SlowDown | Self::InternalError | Self::RequestTimeout | Self::AccessDenied => {
                request.service == Service::S3
            }
        }
    }

    /// How many sendings of one call it befalls: the SDK makes three of what may be tried again.
    fn times(self) -> usize {
        match self {
            Self::Throttled
            | Self::SlowDown
            | Self::InternalError
            | Self::Lost
            | Self::LostAnswer => 3,
            _ => 1,
        }
    }

    /// The answer that makes it.
    pub fn answer(self, request: &Request) -> Verdict {
        let s3 = |status, code: &str| Verdict::Answer {
            status,
            body: Value::String(format!(
                "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>{code}</Code>\
                 <Message>made by chaos</Message></Error>"
            )),
        };
        match self {
            Self::Conflict => conflict(request),
            Self::Throttled => throttled(&[]),
            Self::SlowDown => s3(503, "SlowDown"),
            Self::InternalError => s3(500, "InternalError"),
            Self::RequestTimeout => s3(400, "RequestTimeout"),
            Self::AccessDenied => s3(403, "AccessDenied"),
            Self::Lost => Verdict::LoseRequest,
            Self::LostAnswer => Verdict::LoseAnswer,
            Self::Hangs | Self::HangsAfter => Verdict::Pass,
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

type Setup<W> = Box<dyn Fn() -> BoxFuture<'static, W> + Send + Sync>;
type Act<W, T> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, T> + Send + Sync>;
type Recovery<W> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, ()> + Send + Sync>;
type Answers<T> = Box<dyn Fn(Trouble, &Request, &T) -> Result<(), String> + Send + Sync>;
type Check<W> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, Result<(), String>> + Send + Sync>;

/// Runs an action once for each of its calls and each kind of trouble.
///
/// The world's cloud should have a short patience (`cloud.with_patience(Patience::SHORT)`), or a hanging
/// service takes as long as it does in life.
pub struct TroubleSweep<W, T> {
    setup: Setup<W>,
    action: Option<(&'static str, Act<W, T>)>,
    answers: Option<Answers<T>>,
    recovery: Option<Recovery<W>>,
    check: Option<Check<W>>,
    troubles: Vec<Trouble>,
    /// Each of them was asked for by name, so each must befall something.
    named: bool,
    reads: bool,
    within: Duration,
}

/// Every trouble was survived.
#[derive(Debug, Clone)]
pub struct Weathered {
    /// Each trouble and the call it befell: `Hangs from call 2: PutItem bids if`.
    pub points: Vec<String>,
}

/// A trouble that was not survived.
#[derive(Clone)]
pub struct NotWeathered {
    /// Which trouble, at which call.
    pub point: String,
    /// What the check said, or that the action did not end.
    pub why: String,
    /// The calls as they happened.
    pub calls: Vec<String>,
    /// How many were survived before this one.
    pub survived: usize,
}

impl<W: World, T: Send + 'static> TroubleSweep<W, T> {
    /// Begins with how a fresh world is made.
    pub fn of<F, Fut>(setup: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = W> + Send + 'static,
    {
        Self {
            setup: Box::new(move || Box::pin(setup())),
            action: None,
            answers: None,
            recovery: None,
            check: None,
            troubles: Trouble::ALL.to_vec(),
            named: false,
            reads: false,
            within: Duration::from_secs(5),
        }
    }

    /// The action that meets trouble.
    pub fn action<F, Fut>(mut self, name: &'static str, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        self.action = Some((name, Box::new(move |world| Box::pin(act(world)))));
        self
    }

    /// What the action may answer, by the trouble and the call it befell: a conflict that it could have
    /// tried again is no reason to fail.
    pub fn answers(
        mut self,
        answers: impl Fn(Trouble, &Request, &T) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        self.answers = Some(Box::new(answers));
        self
    }

    /// What life does when the trouble is over: the client asks again, the sweeper comes by.
    pub fn recovery<F, Fut>(mut self, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        self.recovery = Some(Box::new(move |world| {
            let work = act(world);
            Box::pin(async move {
                work.await;
            })
        }));
        self
    }

    /// What must hold after the recovery.
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), String>> + Send + 'static,
    {
        self.check = Some(Box::new(move |world| Box::pin(check(world))));
        self
    }

    /// Only these troubles. One that befalls nothing fails the sweep.
    pub fn troubles(mut self, troubles: &[Trouble]) -> Self {
        self.troubles = troubles.to_vec();
        self.named = true;
        self
    }

    /// The action only reads. Without this, one that writes nothing when left alone fails the sweep: it was refused
    /// at its first read, and showed nothing.
    pub fn reading(mut self) -> Self {
        self.reads = true;
        self
    }

    /// How long the action may take, whatever befalls it (five seconds unless told).
    pub fn within(mut self, within: Duration) -> Self {
        self.within = within;
        self
    }

    /// Makes all the trouble there is. Stops at the first that is not survived.
    ///
    /// # Panics
    /// If there is no action.
    pub async fn run(&self) -> Result<Weathered, NotWeathered> {
        let mut points = Vec::new();
        for trouble in &self.troubles {
            let before = points.len();
            for k in 1.. {
                match self.befall(*trouble, k, points.len()).await? {
                    Befell::Hit(shape) => points.push(format!("{trouble} at call {k}: {shape}")),
                    Befell::Unfit => {}
                    Befell::Nothing { wrote, calls } if !wrote && !self.reads && k > 1 => {
                        let why = "left alone, the action writes nothing: it is refused at a read, or it \
                                   only reads and the sweep should say `reading`";
                        return Err(vacuous(why, calls));
                    }
                    Befell::Nothing { .. } => break,
                }
            }
            if self.named && points.len() == before {
                let why = format!("nothing befell the action: {trouble} fits none of its calls");
                return Err(vacuous(&why, Vec::new()));
            }
        }
        if points.is_empty() {
            let why = "nothing befell the action: it makes no such call at the tap under its name";
            return Err(vacuous(why, Vec::new()));
        }
        Ok(Weathered { points })
    }

    /// One trouble at call `k`.
    async fn befall(
        &self,
        trouble: Trouble,
        k: usize,
        survived: usize,
    ) -> Result<Befell, NotWeathered> {
        let (name, act) = self.action.as_ref().expect("a sweep has an action");
        let world = Arc::new((self.setup)().await);
        let making = Arc::new(Making {
            trouble,
            k,
            actor: name,
            seen: Mutex::default(),
        });
        let installed = world.cloud().tap().install(making.clone());
        let work = or_panic(as_actor(*name, act(Arc::clone(&world))));
        let ended = tokio::time::timeout(self.within, work).await;
        drop(installed);
        let (hit, wrote, calls) = {
            let mut seen = lock(&making.seen);
            let calls = std::mem::take(&mut seen.calls);
            (seen.hit.clone(), seen.wrote, calls)
        };
        let Some(hit) = hit else {
            return Ok(Befell::Nothing { wrote, calls });
        };
        let (shape, fits) = (hit.shape(), trouble.fits(&hit));
        let failed = |why| NotWeathered {
            point: format!("{trouble} at call {k} ({shape})"),
            why,
            calls: calls.clone(),
            survived,
        };
        let told = match ended {
            Ok(Ok(told)) => told,
            Ok(Err(panic)) => return Err(failed(format!("{name} panicked: {panic}"))),
            Err(_) => {
                let why = format!("{name} still waits after {:?}", self.within);
                return Err(failed(why));
            }
        };
        if !fits {
            return Ok(Befell::Unfit);
        }
        if let Some(answers) = &self.answers {
            answers(trouble, &hit, &told).map_err(&failed)?;
        }
        if let Some(recovery) = &self.recovery {
            let recovered = or_panic(as_actor("recovery", recovery(Arc::clone(&world)))).await;
            recovered.map_err(|panic| failed(format!("the recovery panicked: {panic}")))?;
        }
        if let Some(check) = &self.check {
            let judged = or_panic(as_actor("check", check(world))).await;
            let judged = judged.unwrap_or_else(|panic| Err(format!("the check panicked: {panic}")));
            judged.map_err(&failed)?;
        }
        Ok(Befell::Hit(shape))
    }
}

/// What came of one trouble at one call.
enum Befell {
    /// It befell the call of this shape, and was survived.
    Hit(String),
    /// There is such a call, and the trouble does not fit it.
    Unfit,
    /// There is no such call, so the action was left alone.
    Nothing { wrote: bool, calls: Vec<String> },
}

fn vacuous(why: &str, calls: Vec<String>) -> NotWeathered {
    NotWeathered {
        point: "without trouble".to_owned(),
        why: why.to_owned(),
        calls,
        survived: 0,
    }
}

/// The plan that makes one trouble.
struct Making {
    trouble: Trouble,
    k: usize,
    actor: &'static str,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    count: usize,
    hit: Option<Request>,
    befallen: usize,
    hanging: HashSet<u64>,
    wrote: bool,
    calls: Vec<String>,
}

impl Making {
    fn decide(&self, request: &Request) -> (Verdict, bool) {
        if *request.actor != *self.actor {
            return (Verdict::Pass, false);
        }
        let mut seen = lock(&self.seen);
        seen.count += 1;
        if seen.count == self.k {
            seen.hit = Some(request.clone());
        }
        let Some(hit) = &seen.hit else {
            return (Verdict::Pass, false);
        };
        if !self.trouble.fits(hit) {
            return (Verdict::Pass, false);
        }
        let hangs = matches!(self.trouble, Trouble::Hangs | Trouble::HangsAfter);
        if hangs && request.service == hit.service {
            seen.calls
                .push(format!("{}: {} → …", request.actor, request.shape()));
            seen.hanging.insert(request.number);
            return (Verdict::Pass, self.trouble == Trouble::Hangs);
        }
        let same = request.shape() == hit.shape() && seen.befallen < self.trouble.times();
        if hangs || !same {
            return (Verdict::Pass, false);
        }
        seen.befallen += 1;
        (self.trouble.answer(request), false)
    }
}

impl Plan for Making {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let (verdict, hangs) = self.decide(request);
        Box::pin(async move {
            if hangs {
                pending::<()>().await;
            }
            verdict
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            if *call.request.actor != *self.actor {
                return;
            }
            let hangs = {
                let mut seen = lock(&self.seen);
                let hangs = seen.hanging.contains(&call.request.number);
                if !hangs {
                    seen.wrote |= call.request.is_write() && call.outcome == Outcome::Ok;
                    seen.calls.push(told(call));
                }
                hangs
            };
            if hangs {
                pending::<()>().await;
            }
        })
    }
}

impl fmt::Display for NotWeathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.point, self.why)?;
        write!(
            f,
            "\n  after {} troubles that were survived:",
            self.survived
        )?;
        numbered(f, &self.calls)
    }
}

/// The story, so that `unwrap` in a test tells it.
impl fmt::Debug for NotWeathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for NotWeathered {}
