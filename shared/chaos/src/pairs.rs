//! Every pair of a crate's actions, in every order of their calls.
//!
//! Two actions that were each tested alone meet in production: a sweeper and the action it mends, a recount
//! and a merge, two of the same sweeper. Twelve actions make 78 pairs, too many to think of by hand.

use crate::{Broken, Interleave, World};
use futures::future::BoxFuture;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

type Setup<W> = Arc<dyn Fn() -> BoxFuture<'static, W> + Send + Sync>;
type Act<W> = Arc<dyn Fn(Arc<W>) -> BoxFuture<'static, ()> + Send + Sync>;
type Check<W> = Arc<dyn Fn(Arc<W>) -> BoxFuture<'static, Result<String, String>> + Send + Sync>;

/// Runs every action beside every other and beside itself, each pair with [`Interleave`].
///
/// ```no_run
/// # use chaos::Pairs;
/// # use cloud::Cloud;
/// # async fn fresh() -> Cloud { cloud::connect_for_tests().await.unwrap() }
/// # async fn sweep(_: &Cloud) {}
/// # async fn repair(_: &Cloud) {}
/// # async fn consistent(_: &Cloud) -> Result<(), String> { Ok(()) }
/// # async fn test() {
/// let met = Pairs::of(fresh)
///     .action("sweep", |cloud| async move { sweep(&cloud).await })
///     .action("repair", |cloud| async move { repair(&cloud).await })
///     .check(|cloud| async move { consistent(&cloud).await })
///     .run()
///     .await
///     .unwrap();
/// assert_eq!(met.orders.len(), 3);
/// # }
/// ```
///
/// An action beside itself is two processes that do the same. The world must hold something for every
/// action to do: a sweeper that finds nothing meets nothing, so an action that writes in no order fails
/// the run, unless [`Self::reading`] says that it only reads.
pub struct Pairs<W> {
    setup: Setup<W>,
    actions: Vec<Action<W>>,
    check: Option<Check<W>>,
    at_most: usize,
}

struct Action<W> {
    name: &'static str,
    again: &'static str,
    act: Act<W>,
    writes: bool,
}

/// All pairs held.
#[derive(Debug, Clone, Default)]
pub struct Met {
    /// How many orders each pair has, by their names: `repair × sweep`.
    pub orders: BTreeMap<String, usize>,
    /// In how many orders of each pair each thing came of it, by what the check gave.
    pub seen: BTreeMap<String, BTreeMap<String, usize>>,
}

/// A pair that broke, with the order that broke it.
#[derive(Clone)]
pub struct BrokenPair {
    /// The pair: `repair × sweep`.
    pub pair: String,
    /// The order and what it broke; none if an action had nothing to do.
    pub broken: Option<Broken>,
}

impl<W: World> Pairs<W> {
    /// Begins with how a fresh world is made.
    pub fn of<F, Fut>(setup: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = W> + Send + 'static,
    {
        Self {
            setup: Arc::new(move || Box::pin(setup())),
            actions: Vec::new(),
            check: None,
            at_most: 5_000,
        }
    }

    /// An action that writes. Its answer is ignored: the check looks at what is kept.
    pub fn action<F, Fut>(self, name: &'static str, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        self.with(name, act, true)
    }

    /// An action that only reads, or that has nothing to do in this world.
    pub fn reading<F, Fut>(self, name: &'static str, act: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        self.with(name, act, false)
    }

    fn with<F, Fut>(mut self, name: &'static str, act: F, writes: bool) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future + Send + 'static,
    {
        let act: Act<W> = Arc::new(move |world| {
            let work = act(world);
            Box::pin(async move {
                work.await;
            })
        });
        // A schedule tells actors by name, so the second of a pair of equals needs one of its own.
        let again = Box::leak(format!("{name}-again").into_boxed_str());
        self.actions.push(Action {
            name,
            again,
            act,
            writes,
        });
        self
    }

    /// What must hold after every order of every pair. What it gives is counted in [`Met::seen`]: a pair that
    /// always ends the same may never have met.
    pub fn check<F, Fut, L>(mut self, check: F) -> Self
    where
        F: Fn(Arc<W>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<L, String>> + Send + 'static,
        L: fmt::Debug,
    {
        self.check = Some(Arc::new(move |world| {
            let holds = check(world);
            Box::pin(async move { Ok(format!("{:?}", holds.await?)) })
        }));
        self
    }

    /// Fails when a pair has more orders than this (5,000 unless told).
    pub fn at_most(mut self, schedules: usize) -> Self {
        self.at_most = schedules;
        self
    }

    /// Runs every pair. Stops at the first order that breaks.
    ///
    /// # Panics
    /// Without a check or without two actions.
    pub async fn run(&self) -> Result<Met, BrokenPair> {
        assert!(self.actions.len() > 1, "one action makes no pair");
        let mut met = Met::default();
        for (place, one) in self.actions.iter().enumerate() {
            self.has_something_to_do(one).await?;
            for other in &self.actions[place..] {
                let pair = format!("{} × {}", one.name, other.name);
                let explored = self.race(one, other).run().await;
                let explored = explored.map_err(|broken| BrokenPair {
                    pair: pair.clone(),
                    broken: Some(broken),
                })?;
                met.orders.insert(pair.clone(), explored.schedules);
                met.seen.insert(pair, explored.seen);
            }
        }
        Ok(met)
    }

    async fn has_something_to_do(&self, action: &Action<W>) -> Result<(), BrokenPair> {
        if !action.writes {
            return Ok(());
        }
        let world = Arc::new((self.setup)().await);
        let recording = world.cloud().tap().record();
        (action.act)(world.clone()).await;
        if recording.take().iter().any(|call| call.request.is_write()) {
            return Ok(());
        }
        Err(BrokenPair {
            pair: action.name.to_owned(),
            broken: None,
        })
    }

    fn race(&self, one: &Action<W>, other: &Action<W>) -> Interleave<W, ()> {
        let Some(check) = self.check.clone() else {
            panic!("what must hold? Say it with `.check(…)`");
        };
        let (setup, first, second) = (self.setup.clone(), one.act.clone(), other.act.clone());
        let second_name = if one.name == other.name {
            other.again
        } else {
            other.name
        };
        Interleave::of(move || setup())
            .actor(one.name, move |world| first(world))
            .actor(second_name, move |world| second(world))
            .at_most(self.at_most)
            .check(move |world, _| check(world))
    }
}

impl fmt::Display for BrokenPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.broken {
            Some(broken) => write!(f, "{}: {broken}", self.pair),
            None => write!(
                f,
                "{} writes nothing in this world, so it meets nothing: give it something to do, or \
                 add it with `.reading(…)`",
                self.pair
            ),
        }
    }
}

impl fmt::Debug for BrokenPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for BrokenPair {}
