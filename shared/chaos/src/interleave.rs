//! Every order of the calls of two or three actions.
//!
//! Between two calls an action is alone with itself; what others can see are its calls. So two
//! actions that run at once are one of the orders of their calls, and those can be listed: hold
//! every call at the tap, release one, wait until everybody is held again or done, release the
//! next. How many calls an action makes may depend on the order (a lost race retries), so orders
//! are not listed beforehand. They are found depth-first: each run repeats the choices of the one
//! before up to the last choice that had another option, and takes that.

use crate::World;
use crate::story::{MakePlan, ask, lock, numbered, or_panic, slipped, tell, told};
use cloud::as_actor;
use cloud::tap::{Call, Plan, Request, Verdict};
use futures::future::BoxFuture;
use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::str::FromStr;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::oneshot;

type Setup<W> = Box<dyn Fn() -> BoxFuture<'static, W> + Send + Sync>;
type Act<W, T> = Box<dyn Fn(Arc<W>) -> BoxFuture<'static, T> + Send + Sync>;
type Moment<W> = Box<dyn Fn(&W) + Send + Sync>;
type Outcomes<T> = Vec<(&'static str, T)>;
type Check<W, T> =
    Box<dyn Fn(Arc<W>, Outcomes<T>) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// How long an actor that makes several calls at once may take to come up with another one before
/// the next choice. Longer than the SDK pauses before it sends a call again (5 ms).
const GRACE: Duration = Duration::from_millis(10);

/// Runs actions in every order of their calls, each order on a fresh world.
///
/// ```no_run
/// # use chaos::Interleave;
/// # use cloud::Cloud;
/// # async fn fresh() -> Cloud { cloud::connect_for_tests().await.unwrap() }
/// # async fn buy(_: &Cloud) -> bool { true }
/// # async fn stock(_: &Cloud) -> i64 { 0 }
/// # async fn test() {
/// let explored = Interleave::of(fresh)
///     .actor("alice", |cloud| async move { buy(&cloud).await })
///     .actor("bob", |cloud| async move { buy(&cloud).await })
///     .check(|cloud, outcomes| async move {
///         match stock(&cloud).await {
///             0.. => Ok(format!("{outcomes:?}")),
///             oversold => Err(format!("the stock is {oversold}")),
///         }
///     })
///     .run()
///     .await
///     .unwrap();
/// assert!(explored.seen.len() > 1, "both can win");
/// # }
/// ```
///
/// A call belongs to an actor by the name it carries, so work that an actor hands to
/// `tokio::spawn`, or that names itself with `as_actor`, is not held; nor is anything that passes
/// beside the tap. A call that passes the tap unheld fails the run, since "every order" would be
/// untrue; it is marked `(not held)` in [`Broken::calls`]. Tell who else may call with [`Self::beside`].
/// Time goes on while a call is held, so an actor should not put a timeout of its own around one.
pub struct Interleave<W, T> {
    setup: Setup<W>,
    actors: Vec<(&'static str, Part<W, T>)>,
    beside: Vec<&'static str>,
    late_answers: bool,
    under: Vec<MakePlan>,
    check: Option<Check<W, T>>,
    at_most: usize,
    patience: Duration,
}

/// What stands in an order: somebody's calls, or a moment.
enum Part<W, T> {
    Acts(Act<W, T>),
    Happens(Moment<W>),
}

/// The order in which calls were released: the actor of each, as in `alice alice closer alice`.
/// When an actor has several calls waiting at once, `alice#2` is the second of them.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Schedule(Vec<String>);

/// All orders held.
#[derive(Debug, Clone, Default)]
pub struct Explored {
    /// How many orders there are.
    pub schedules: usize,
    /// In how many of them each thing happened, by the label the check gave. "Always" is the
    /// check's business; this is for "sometimes", without which "always" may be empty.
    pub seen: BTreeMap<String, usize>,
}

/// An order that broke, or the reason why orders cannot be explored. Prints as a story.
#[derive(Clone)]
pub struct Broken {
    /// The order up to where it broke.
    pub schedule: Schedule,
    /// What the check said, or which actor panicked or hung.
    pub why: String,
    /// The calls as they happened.
    pub calls: Vec<String>,
    /// How many orders held before this one.
    pub explored: usize,
}

/// A call that waits to be released.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Waiting {
    label: String,
    shape: String,
}

/// One choice on the path of the current run.
struct Choice {
    chosen: usize,
    options: Vec<Waiting>,
}

/// One run and how it ended.
struct Played {
    schedule: Schedule,
    calls: Vec<String>,
    verdict: Result<String, String>,
}

impl<W: World, T: Send + 'static> Interleave<W, T> {
    /// Begins with how a fresh world is made. Its calls are not held.
    pub fn of<F, Fut>(setup: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = W> + Send + 'static,
    {
        Self {
            setup: Box::new(move || Box::pin(setup())),
            actors: Vec::new(),
            beside: Vec::new(),
            late_answers: false,
            under: Vec::new(),
            check: None,
            at_most: 20_000,
            patience: Duration::from_secs(10),
        }
    }

    /// Adds somebody who acts. Where there is a choice, those added first go first.
    ///
    /// # Panics
    /// If the name is taken, or could not stand in a schedule (empty, with spaces or `#`).
    pub fn actor<F, Fut>(mut self, name: &'static str, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = T> + Send + 'static,
    {
        self.enter(
            name,
            Part::Acts(Box::new(move |world| Box::pin(act(world)))),
        );
        self
    }

    /// Adds something that happens at once, at every place in the order: the clock moves past a lease, a
    /// message becomes visible. A clock that stands still hides what happens between a decision and its
    /// write. It makes no calls and returns nothing to the check.
    ///
    /// # Panics
    /// As for [`Self::actor`].
    pub fn moment(
        mut self,
        name: &'static str,
        happens: impl Fn(&W) + Send + Sync + 'static,
    ) -> Self {
        self.enter(name, Part::Happens(Box::new(happens)));
        self
    }

    /// Calls under this name pass unheld and do not fail the run: a worker of the world's own, whose
    /// calls cannot meet the actors'.
    pub fn beside(mut self, name: &'static str) -> Self {
        self.beside.push(name);
        self
    }

    /// Holds answers too: a call is then two steps, its effect and its answer, and others may act and time
    /// may pass between them. Worth its many more orders where an action reads the clock after an answer.
    pub fn late_answers(mut self) -> Self {
        self.late_answers = true;
        self
    }

    fn enter(&mut self, name: &'static str, part: Part<W, T>) {
        let unfit = |c: char| c.is_whitespace() || c == '#';
        assert!(
            !name.is_empty() && !name.contains(unfit),
            "'{name}' cannot be an actor: a schedule is actors separated by spaces"
        );
        assert!(
            self.actors.iter().all(|(other, _)| *other != name),
            "there is an actor '{name}' already"
        );
        self.actors.push((name, part));
    }

    /// What must hold after every order, from the world and what each actor returned (in the order
    /// they were added): a label for what happened, or what broke. A panic counts as broken.
    /// Its calls are not held.
    pub fn check<F, Fut>(mut self, check: F) -> Self
    where
        F: Fn(Arc<W>, Outcomes<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<String, String>> + Send + 'static,
    {
        self.check = Some(Box::new(move |world, outcomes| {
            Box::pin(check(world, outcomes))
        }));
        self
    }

    /// Also asks this plan about every call, once the call is released. Made anew for each order
    /// if it has a state, such as [`crate::Faults`]; otherwise return clones of one `Arc`.
    pub fn under<P: Plan + 'static>(
        mut self,
        plan: impl Fn() -> Arc<P> + Send + Sync + 'static,
    ) -> Self {
        self.under.push(Box::new(move || plan()));
        self
    }

    /// Fails when there are more orders than this (20,000 unless told): exhaustive is the claim,
    /// and a part of the orders does not support it.
    pub fn at_most(mut self, schedules: usize) -> Self {
        self.at_most = schedules;
        self
    }

    /// How long an actor may neither make a call nor finish (ten seconds unless told).
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Runs every order. Stops at the first that breaks.
    pub async fn run(&self) -> Result<Explored, Broken> {
        let mut explored = Explored::default();
        let mut path: Vec<Choice> = Vec::new();
        loop {
            let mut depth = 0;
            let choose = |options: Vec<Waiting>| {
                depth += 1;
                match path.get(depth - 1) {
                    Some(choice) if choice.options == options => Ok(choice.chosen),
                    Some(choice) => Err(diverged(&choice.options, &options)),
                    None => {
                        path.push(Choice { chosen: 0, options });
                        Ok(0)
                    }
                }
            };
            let mut played = self.play(choose).await;
            if let Some(missing) = path.get(depth).filter(|_| played.verdict.is_ok()) {
                played.verdict = Err(diverged(&missing.options, &[]));
            }
            let label = played.result(explored.schedules)?;
            *explored.seen.entry(label).or_default() += 1;
            explored.schedules += 1;
            // Back to the last choice that had another option.
            while path
                .pop_if(|choice| choice.chosen + 1 == choice.options.len())
                .is_some()
            {}
            let Some(choice) = path.last_mut() else {
                return Ok(explored);
            };
            choice.chosen += 1;
            if explored.schedules >= self.at_most {
                return Err(Broken {
                    schedule: Schedule::default(),
                    why: format!(
                        "there are more than {} orders, so they were not all run: take fewer \
                         calls or actors, or raise `.at_most`",
                        self.at_most
                    ),
                    calls: Vec::new(),
                    explored: explored.schedules,
                });
            }
        }
    }

    /// Runs one given order and gives the check's label for it. The schedule must be whole.
    pub async fn replay(&self, schedule: &Schedule) -> Result<String, Broken> {
        let mut steps = schedule.0.iter();
        let choose = |options: Vec<Waiting>| match steps.next() {
            Some(step) => {
                (options.iter().position(|waiting| waiting.label == *step)).ok_or_else(|| {
                    format!(
                        "the schedule says {step}, but waiting are {}",
                        list(&options)
                    )
                })
            }
            None => Err(format!(
                "the schedule ends here, but waiting are {}",
                list(&options)
            )),
        };
        let mut played = self.play(choose).await;
        if let Some(step) = steps.next().filter(|_| played.verdict.is_ok()) {
            played.verdict = Err(format!(
                "the schedule says {step}, but everybody has finished"
            ));
        }
        played.result(0)
    }

    /// One run on a fresh world.
    async fn play(&self, choose: impl FnMut(Vec<Waiting>) -> Result<usize, String>) -> Played {
        let world = Arc::new((self.setup)().await);
        let stage = Arc::new(Stage {
            actors: self.actors.iter().map(|(name, _)| *name).collect(),
            beside: self.beside.clone(),
            late_answers: self.late_answers,
            under: self.under.iter().map(|plan| plan()).collect(),
            seen: Mutex::default(),
        });
        let mut schedule = Schedule::default();
        let installed = world.cloud().tap().install(stage.clone());
        let ended = self.act(&world, &stage, &mut schedule, choose).await;
        drop(installed);
        let calls = std::mem::take(&mut lock(&stage.seen).calls);
        let verdict = match (ended, &self.check) {
            (Err(why), _) => Err(why),
            (Ok(_), None) => Ok("finished".to_owned()),
            (Ok(outcomes), Some(check)) => {
                let judged = or_panic(as_actor("check", check(world, outcomes))).await;
                judged.unwrap_or_else(|panic| Err(format!("the check panicked: {panic}")))
            }
        };
        Played {
            schedule,
            calls,
            verdict,
        }
    }

    async fn act(
        &self,
        world: &Arc<W>,
        stage: &Arc<Stage>,
        schedule: &mut Schedule,
        mut choose: impl FnMut(Vec<Waiting>) -> Result<usize, String>,
    ) -> Result<Outcomes<T>, String> {
        let mut cast = Cast(Vec::new());
        for (at, (name, part)) in self.actors.iter().enumerate() {
            // Each enters when the one before it is held, so that what they do before their first
            // call (take an id, read the clock) has one order too.
            let work: BoxFuture<'_, Result<Option<T>, String>> = match part {
                Part::Acts(act) => {
                    let acting = as_actor(*name, act(Arc::clone(world)));
                    Box::pin(or_panic(async move { Some(acting.await) }))
                }
                Part::Happens(happens) => {
                    let stage = Arc::clone(stage);
                    Box::pin(or_panic(async move {
                        stage
                            .hold(at, Stage::moment(at), format!("— {name} —"))
                            .await;
                        happens(world);
                        stage.happened(at, name);
                        None
                    }))
                }
            };
            cast.0.push(Member {
                name,
                work: Some(work),
                outcome: None,
            });
            cast.settle(stage, self.patience).await?;
        }
        loop {
            let options = stage.waiting();
            if options.is_empty() {
                break;
            }
            let labels: Vec<String> = options.iter().map(|option| option.label.clone()).collect();
            let chosen = choose(options)?;
            schedule.0.push(labels[chosen].clone());
            stage.release(chosen);
            cast.settle(stage, self.patience).await?;
        }
        let (slip, loose) = {
            let seen = lock(&stage.seen);
            (seen.slipped.clone(), seen.loose.clone())
        };
        if let Some(line) = slip {
            return Err(slipped(&line));
        }
        if let Some(line) = loose {
            return Err(format!(
                "a call was not held, so not every order was run: {line}. Give the work to an \
                 actor (spawned work loses its name), or say with `.beside(…)` whose calls may pass"
            ));
        }
        let outcomes = cast.0.into_iter();
        Ok(outcomes
            .filter_map(|member| Some((member.name, member.outcome?)))
            .collect())
    }
}

impl Played {
    fn result(self, explored: usize) -> Result<String, Broken> {
        let Self {
            schedule,
            calls,
            verdict,
        } = self;
        verdict.map_err(|why| Broken {
            schedule,
            why,
            calls,
            explored,
        })
    }
}

fn list(options: &[Waiting]) -> String {
    let lines: Vec<String> = options
        .iter()
        .map(|waiting| format!("{} ({})", waiting.label, waiting.shape))
        .collect();
    if lines.is_empty() {
        "none".to_owned()
    } else {
        lines.join(", ")
    }
}

fn diverged(before: &[Waiting], now: &[Waiting]) -> String {
    format!(
        "the same choices led elsewhere, so orders cannot be enumerated. The run before had {} \
         waiting here, this one has {}. Look for random ids, the system clock, or state that \
         outlives a world",
        list(before),
        list(now)
    )
}

/// The actors of one run. They are polled by the explorer itself and not spawned: so the explorer
/// never looks at an actor that is in the middle of something, whatever runtime it is on.
struct Cast<'a, T>(Vec<Member<'a, T>>);

struct Member<'a, T> {
    name: &'static str,
    work: Option<BoxFuture<'a, Result<Option<T>, String>>>,
    outcome: Option<T>,
}

impl<T> Cast<'_, T> {
    /// Lets every actor go on until it can no further.
    fn poll(&mut self, context: &mut Context<'_>) -> Result<(), String> {
        for member in &mut self.0 {
            let Some(work) = &mut member.work else {
                continue;
            };
            if let Poll::Ready(ended) = work.as_mut().poll(context) {
                member.work = None;
                let panicked = |text| format!("{} panicked: {text}", member.name);
                member.outcome = ended.map_err(panicked)?;
            }
        }
        Ok(())
    }

    fn is_settled(&self, stage: &Stage) -> bool {
        let seen = lock(&stage.seen);
        let held = |at: usize| seen.held.iter().any(|held| held.actor == at);
        let mut members = self.0.iter().enumerate();
        seen.in_flight.is_empty() && members.all(|(at, member)| member.work.is_none() || held(at))
    }

    /// Waits until every actor is held or has finished.
    async fn settle(&mut self, stage: &Stage, patience: Duration) -> Result<(), String> {
        let settled = tokio::time::timeout(patience, self.settled(stage)).await;
        settled.unwrap_or_else(|_| {
            let seen = lock(&stage.seen);
            let members = self.0.iter().enumerate();
            let stuck: Vec<&str> = members
                .filter(|(_, member)| member.work.is_some())
                .filter(|(at, _)| seen.held.iter().all(|held| held.actor != *at))
                .map(|(_, member)| member.name)
                .collect();
            Err(format!(
                "{} neither made a call nor finished for {patience:?}: waiting for something \
                 that no call brings, such as a lock another actor holds?",
                stuck.join(", ")
            ))
        })
    }

    async fn settled(&mut self, stage: &Stage) -> Result<(), String> {
        loop {
            poll_fn(|context| match self.poll(context) {
                Ok(()) if !self.is_settled(stage) => Poll::Pending,
                result => Poll::Ready(result),
            })
            .await?;
            // An actor that makes one call at a time is settled now. One that joins several may
            // have a branch that was woken and not yet polled, or that pauses before a retry.
            let before = lock(&stage.seen).changes;
            for _ in 0..3 {
                tokio::task::yield_now().await;
                poll_fn(|context| Poll::Ready(self.poll(context))).await?;
            }
            if lock(&stage.seen).several {
                let mut grace = pin!(tokio::time::sleep(GRACE));
                poll_fn(|context| match self.poll(context) {
                    Ok(()) => grace.as_mut().poll(context).map(Ok),
                    Err(panic) => Poll::Ready(Err(panic)),
                })
                .await?;
            }
            if lock(&stage.seen).changes == before && self.is_settled(stage) {
                return Ok(());
            }
        }
    }
}

/// The plan that holds the calls of the actors.
struct Stage {
    actors: Vec<&'static str>,
    beside: Vec<&'static str>,
    late_answers: bool,
    under: Vec<Arc<dyn Plan>>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    held: Vec<Held>,
    /// Released and not yet answered: the call's number and its actor.
    in_flight: HashMap<u64, usize>,
    /// Counts arrivals and answers, to tell whether anything moved.
    changes: u64,
    /// Whether an actor was seen to make several calls at once.
    several: bool,
    /// A call of an actor that was never held.
    slipped: Option<String>,
    /// A call of none of the actors.
    loose: Option<String>,
    calls: Vec<String>,
}

struct Held {
    actor: usize,
    number: u64,
    shape: String,
    release: oneshot::Sender<()>,
}

impl Stage {
    fn actor(&self, request: &Request) -> Option<usize> {
        self.actors.iter().position(|name| **name == *request.actor)
    }

    /// The calls that wait, in the order of the actors and, for one actor, of their numbers.
    fn waiting(&self) -> Vec<Waiting> {
        let mut seen = lock(&self.seen);
        seen.held.sort_by_key(|held| (held.actor, held.number));
        let nth = |at: usize, held: &Held| {
            1 + seen.held[..at]
                .iter()
                .filter(|other| other.actor == held.actor)
                .count()
        };
        let label = |at: usize, held: &Held| match nth(at, held) {
            1 => self.actors[held.actor].to_owned(),
            nth => format!("{}#{nth}", self.actors[held.actor]),
        };
        let held = seen.held.iter().enumerate();
        held.map(|(at, held)| Waiting {
            label: label(at, held),
            shape: held.shape.clone(),
        })
        .collect()
    }

    /// Notes a call that was carried out.
    fn note(&self, line: String, is_actors: bool, call: &Call) {
        let may_pass = self.beside.iter().any(|name| **name == *call.request.actor);
        let mut seen = lock(&self.seen);
        seen.changes += 1;
        if !is_actors && !may_pass {
            seen.loose.get_or_insert_with(|| line.clone());
        }
        if is_actors && seen.in_flight.remove(&call.request.number).is_none() {
            seen.slipped.get_or_insert_with(|| line.clone());
        }
        seen.calls.push(line);
    }

    /// Waits until this call or moment is released.
    async fn hold(&self, actor: usize, number: u64, shape: String) {
        let (release, released) = oneshot::channel();
        {
            let mut seen = lock(&self.seen);
            seen.changes += 1;
            seen.several |= seen.held.iter().any(|held| held.actor == actor)
                || seen.in_flight.values().any(|other| *other == actor);
            seen.held.push(Held {
                actor,
                number,
                shape,
                release,
            });
        }
        let mut place = Place {
            stage: self,
            number: Some(number),
        };
        let _ = released.await;
        place.number = None;
    }

    /// The number of the moment `actor` is: no call has it.
    fn moment(actor: usize) -> u64 {
        u64::MAX - actor as u64
    }

    /// Notes that a moment came.
    fn happened(&self, actor: usize, name: &str) {
        let mut seen = lock(&self.seen);
        seen.changes += 1;
        seen.in_flight.remove(&Self::moment(actor));
        seen.calls.push(format!("— {name} —"));
    }

    /// Releases one of the calls that [`Self::waiting`] gave.
    fn release(&self, chosen: usize) {
        let mut seen = lock(&self.seen);
        let held = seen.held.remove(chosen);
        seen.in_flight.insert(held.number, held.actor);
        // The other end is alive: a call that is given up removes itself.
        let _ = held.release.send(());
    }
}

impl Plan for Stage {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let Some(actor) = self.actor(request) else {
                return Verdict::Pass;
            };
            self.hold(actor, request.number, request.shape()).await;
            ask(&self.under, request).await
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut line = told(call);
            let actor = self.actor(&call.request);
            if actor.is_some() {
                tell(&self.under, call).await;
            } else {
                line.push_str("  (not held)");
            }
            let number = call.request.number;
            self.note(line, actor.is_some(), call);
            if let Some(actor) = actor.filter(|_| self.late_answers) {
                let shape = format!("answer to {}", call.shape());
                self.hold(actor, number, shape).await;
                let mut seen = lock(&self.seen);
                seen.changes += 1;
                seen.in_flight.remove(&number);
            }
        })
    }
}

/// Where a held call stands. An actor may give it up (a timeout, a `select!`); then it is gone.
struct Place<'a> {
    stage: &'a Stage,
    number: Option<u64>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let mut seen = lock(&self.stage.seen);
            seen.held.retain(|held| held.number != number);
            seen.in_flight.remove(&number);
            seen.changes += 1;
        }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

impl fmt::Debug for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl FromStr for Schedule {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(Self(text.split_whitespace().map(str::to_owned).collect()))
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        write!(
            f,
            "\n  after {} orders that held, in the order \"{}\":",
            self.explored, self.schedule
        )?;
        numbered(f, &self.calls)
    }
}

/// The story, so that `unwrap` in a test tells it.
impl fmt::Debug for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Broken {}
