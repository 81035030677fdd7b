//! A city to measure in: drivers, riders and their moods by seed, on a clock that is turned by hand.
//!
//! Nothing is made up about the service: every request, offer, answer and step of a trip is the real
//! call. Only people are simulated. What a rider wants and how a driver answers an offer depends on
//! the seed and on the ride alone, so that two ways of matching meet the same day.

use crate::domain::{CITY_SPEED_MPS, DriverAssignmentState, Point, Rules, TripStatus, street_m};
use crate::tables::TABLES;
use crate::{Accepting, Cancelling, Cascade, Dispatch, Moving, NewQuote, NewRide, Realization};
use crate::{Requested, RideStatus};
use anyhow::{Result, ensure};
use capacity::{Prices, Units};
use cloud::tap::{Call, Plan, Request, Service, Verdict};
use cloud::{Clock, Cloud, Millis, TEST_EPOCH};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use indicatif::ProgressBar;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Half the side of the city, in metres.
pub const HALF_M: f64 = 5_000.0;

/// How often a driver's phone says where it is, in seconds: just often enough to stay on the map. In
/// life it would be every four.
const REPORT_EVERY: u64 = 25;

/// From the driver's arrival to the rider in the car, in seconds.
const BOARDING: u64 = 20;

/// What to simulate.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Today {
    /// How many drivers.
    pub drivers: usize,
    /// For how long.
    pub minutes: u64,
    /// How many rides are requested each minute.
    pub rides_per_minute: f64,
    /// Everything follows from it.
    pub seed: u64,
    /// For how many seconds a batch collects.
    pub collect_s: u64,
}

/// How drivers are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Choice {
    /// The soonest for each ride, as it comes.
    Greedy,
    /// Collected for a moment, then the least total pickup time.
    Batched,
}

impl Choice {
    /// As people write it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Greedy => "greedy",
            Self::Batched => "batched",
        }
    }
}

/// A place in metres from the middle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spot {
    /// East.
    pub x: f64,
    /// North.
    pub y: f64,
}

const MIDDLE: (f64, f64) = (52.52, 13.405);
const METRES_PER_DEGREE: f64 = 111_195.0;

impl Spot {
    /// The place on the Earth.
    pub fn point(self) -> Point {
        let east = METRES_PER_DEGREE * MIDDLE.0.to_radians().cos();
        let degrees = (
            MIDDLE.0 + self.y / METRES_PER_DEGREE,
            MIDDLE.1 + self.x / east,
        );
        Point {
            lat: (degrees.0 * 1e6).round() as i32,
            lon: (degrees.1 * 1e6).round() as i32,
        }
    }

    /// Where in the city a place on the Earth is.
    pub fn of(lat: f64, lon: f64) -> Self {
        let east = METRES_PER_DEGREE * MIDDLE.0.to_radians().cos();
        Self {
            x: (lon - MIDDLE.1) * east,
            y: (lat - MIDDLE.0) * METRES_PER_DEGREE,
        }
    }

    /// Anywhere, more likely in the middle.
    fn random(random: &mut StdRng) -> Self {
        let mut one = || {
            let sum: f64 = (0..2).map(|_| random.random_range(-1.0..1.0)).sum();
            sum / 2.0 * HALF_M
        };
        Self { x: one(), y: one() }
    }

    /// One second along the streets: first east–west, then north–south.
    fn towards(&mut self, to: Self) -> bool {
        let mut left = CITY_SPEED_MPS;
        for (here, there) in [(&mut self.x, to.x), (&mut self.y, to.y)] {
            let step = (there - *here).clamp(-left, left);
            *here += step;
            left -= step.abs();
        }
        *self == to
    }
}

/// A ride as the day brings it, whoever drives.
#[derive(Debug, Clone)]
struct Wish {
    at: u64,
    pickup: Spot,
    destination: Spot,
    /// Gives up so many seconds after the request, unless the driver is there.
    patience: Option<u64>,
}

/// What a ride came to.
#[derive(Debug, Clone)]
pub struct Ride {
    /// From where.
    pub pickup: Spot,
    /// When it was requested, in seconds.
    pub requested: u64,
    /// When a driver said yes.
    pub matched: Option<u64>,
    /// The estimate of the offer that was accepted.
    pub pickup_s: Option<u32>,
    /// When the driver was there.
    pub arrived: Option<u64>,
    /// How it ended, or where it was when the day did.
    pub end: RideStatus,
    /// Whether it was driven to its destination.
    pub completed: bool,
    offers: u64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Doing {
    Idle,
    ToPickup(usize),
    Boarding(usize, u64),
    ToDestination(usize),
}

struct Cab {
    id: String,
    at: Spot,
    doing: Doing,
    assignment: Option<String>,
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Figures {
    /// How drivers were chosen.
    pub matching: Choice,
    /// How many rides were requested.
    pub requests: usize,
    /// How many found a driver.
    pub matched: usize,
    /// In percent of those that did not give up.
    pub match_rate_percent: f64,
    /// Nobody was found.
    pub no_drivers: usize,
    /// The rider gave up.
    pub cancelled: usize,
    /// Driven to the end within the day.
    pub completed: usize,
    /// Offers made.
    pub offers: u64,
    /// From the request to a yes, in seconds.
    pub wait_for_a_yes_s: Spread,
    /// From the yes to the pickup, as estimated for the offer, in seconds.
    pub pickup_s: Spread,
    /// From the request to the driver at the door, in seconds.
    pub wait_for_the_car_s: Spread,
    /// The sum of all pickup times, in hours.
    pub total_pickup_hours: f64,
    /// Calls to DynamoDB.
    pub dynamodb_calls: u64,
    /// Calls to Redis.
    pub redis_calls: u64,
    /// Read units.
    pub rcu: f64,
    /// Write units.
    pub wcu: f64,
    /// What a thousand requests cost in DynamoDB, on demand, in dollars. Redis is not billed by the
    /// call.
    pub dollars_per_thousand: f64,
    /// How long the machine took, in seconds.
    pub took_s: f64,
}

/// Half of them, 95 of 100, and the mean.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Spread {
    /// The mean.
    pub mean: f64,
    /// Half are no longer.
    pub p50: u64,
    /// 95 of 100 are no longer.
    pub p95: u64,
}

impl Spread {
    fn of(mut values: Vec<u64>) -> Self {
        if values.is_empty() {
            return Self::default();
        }
        values.sort_unstable();
        let percentile = |part: usize| values[(values.len() * part / 100).min(values.len() - 1)];
        Self {
            mean: values.iter().sum::<u64>() as f64 / values.len() as f64,
            p50: percentile(50),
            p95: percentile(95),
        }
    }
}

/// A day that was simulated.
pub struct Day {
    /// What was measured.
    pub figures: Figures,
    /// Every ride.
    pub rides: Vec<Ride>,
    /// Where the drivers are at the end, and whether they are busy.
    pub cabs: Vec<(Spot, bool)>,
}

/// Counts what passes the tap.
#[derive(Default)]
struct Meter {
    dynamodb: AtomicU64,
    redis: AtomicU64,
    half_reads: AtomicU64,
    half_writes: AtomicU64,
}

impl Plan for Meter {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        let calls = match call.request.service {
            Service::Redis => &self.redis,
            _ => &self.dynamodb,
        };
        calls.fetch_add(1, Ordering::Relaxed);
        let halves = |units: f64| (units * 2.0).round() as u64;
        let (reads, writes) = (halves(call.read_units()), halves(call.write_units()));
        self.half_reads.fetch_add(reads, Ordering::Relaxed);
        self.half_writes.fetch_add(writes, Ordering::Relaxed);
        Box::pin(async {})
    }
}

impl Today {
    /// What riders want today.
    fn wishes(&self) -> Vec<Wish> {
        let mut random = StdRng::seed_from_u64(self.seed);
        let mut wishes = Vec::new();
        let mut at = 0.0;
        loop {
            // The time between two requests that know nothing of each other.
            let gap: f64 = -(1.0 - random.random::<f64>()).ln() * 60.0 / self.rides_per_minute;
            at += gap;
            if at >= (self.minutes * 60) as f64 {
                return wishes;
            }
            let pickup = Spot::random(&mut random);
            let mut destination = Spot::random(&mut random);
            while street_m(pickup.point(), destination.point()) < 800.0 {
                destination = Spot::random(&mut random);
            }
            wishes.push(Wish {
                at: at as u64,
                pickup,
                destination,
                patience: random
                    .random_bool(0.05)
                    .then(|| random.random_range(10..300)),
            });
        }
    }

    /// How a driver answers the n-th offer of a ride: after so many seconds yes or no, or not.
    fn answer(&self, ride: usize, offer: u64) -> Option<(u64, bool)> {
        let mixed = self.seed ^ ((ride as u64) << 20) ^ (offer << 50);
        let mut random = StdRng::seed_from_u64(mixed);
        let after = random.random_range(2..9);
        match random.random_range(0..100) {
            0..80 => Some((after, true)),
            80..93 => Some((after, false)),
            _ => None,
        }
    }
}

impl Today {
    /// The rules of the city.
    pub fn rules(&self) -> Rules {
        Rules {
            take_over_ms: self.collect_s as Millis * 1_000,
            search_ms: 120_000,
            ..Rules::default()
        }
    }
}

struct Simulation<'a> {
    plan: &'a Today,
    choice: Choice,
    dispatch: Dispatch,
    realization: Realization,
    run: String,
    now: u64,
    wishes: Vec<Wish>,
    rides: Vec<Ride>,
    cabs: Vec<Cab>,
    /// Which driver is which.
    by_id: HashMap<String, usize>,
    /// What happens when: answers and riders who give up.
    agenda: BTreeMap<u64, Vec<Event>>,
}

enum Event {
    Answer {
        ride: usize,
        offer: DriverAssignmentState,
        yes: bool,
    },
    GiveUp(usize),
}

/// Runs a day. The cloud's own clock is not used: the day has its own.
pub async fn simulate(
    cloud: &Cloud,
    plan: &Today,
    choice: Choice,
    realization: Realization,
    bar: &ProgressBar,
) -> Result<Day> {
    ensure!(
        plan.drivers > 0 && plan.minutes > 0,
        "a city needs drivers and time"
    );
    let started = std::time::Instant::now();
    let clock = Clock::manual(TEST_EPOCH);
    let cloud = cloud.with_clock(clock.clone());
    cloud.create_tables(TABLES).await?;
    let meter = std::sync::Arc::new(Meter::default());
    let metering = cloud.tap().install(meter.clone());
    let mut random = StdRng::seed_from_u64(plan.seed.wrapping_add(1));
    // Two days on one cloud do not meet.
    let run = cloud.ids().next("city");
    let cabs: Vec<_> = (0..plan.drivers)
        .map(|number| Cab {
            id: format!("{run}-cab-{number:04}"),
            at: Spot::random(&mut random),
            doing: Doing::Idle,
            assignment: None,
        })
        .collect();
    let mut city = Simulation {
        plan,
        choice,
        dispatch: Dispatch::with_rules(cloud.clone(), realization, plan.rules()),
        realization,
        run,
        now: 0,
        wishes: plan.wishes(),
        rides: Vec::new(),
        by_id: (0..)
            .zip(&cabs)
            .map(|(n, cab)| (cab.id.clone(), n))
            .collect(),
        cabs,
        agenda: BTreeMap::new(),
    };
    city.open().await?;
    for second in 0..plan.minutes * 60 {
        city.now = second;
        city.second().await?;
        clock.advance(Duration::from_secs(1));
        bar.inc(1);
    }
    drop(metering);
    let mut day = city.close().await?;
    let units = |halves: &AtomicU64| Units::halves(halves.load(Ordering::Relaxed));
    let (reads, writes) = (units(&meter.half_reads), units(&meter.half_writes));
    let figures = &mut day.figures;
    figures.dynamodb_calls = meter.dynamodb.load(Ordering::Relaxed);
    figures.redis_calls = meter.redis.load(Ordering::Relaxed);
    figures.rcu = reads.as_f64();
    figures.wcu = writes.as_f64();
    let dollars = Prices::CURRENT.on_demand(reads, writes).as_pico_dollars() as f64 / 1e12;
    figures.dollars_per_thousand = dollars / figures.requests.max(1) as f64 * 1_000.0;
    figures.took_s = started.elapsed().as_secs_f64();
    Ok(day)
}

impl Simulation<'_> {
    async fn open(&mut self) -> Result<()> {
        let cabs = self.cabs.iter().map(|cab| {
            let (dispatch, id, at) = (self.dispatch.clone(), cab.id.clone(), cab.at.point());
            async move { dispatch.go_online(&id, at).await }
        });
        let cabs = futures::stream::iter(cabs.collect::<Vec<_>>());
        cabs.buffer_unordered(8).try_collect::<Vec<_>>().await?;
        Ok(())
    }

    fn ride_id(&self, ride: usize) -> String {
        format!("{}-ride-{ride:05}", self.run)
    }

    async fn second(&mut self) -> Result<()> {
        self.drive().await?;
        self.report().await?;
        for event in self.agenda.remove(&self.now).unwrap_or_default() {
            match event {
                Event::Answer { ride, offer, yes } => self.answered(ride, offer, yes).await?,
                Event::GiveUp(ride) => self.give_up(ride).await?,
            }
        }
        while self.rides.len() < self.wishes.len() && self.wishes[self.rides.len()].at <= self.now {
            self.request().await?;
        }
        let tended = match self.choice {
            Choice::Greedy => self.dispatch.sweep().await?,
            Choice::Batched => self.dispatch.match_batch().await?,
        };
        for (ride_id, step) in tended {
            let own = ride_id.strip_prefix(&format!("{}-ride-", self.run));
            // On a cloud that others use there are other rides.
            if let Some(ride) = own.and_then(|number| number.parse().ok()) {
                self.stepped(ride, step?);
            }
        }
        Ok(())
    }

    /// Everybody moves for a second; who gets somewhere says so.
    async fn drive(&mut self) -> Result<()> {
        for number in 0..self.cabs.len() {
            let cab = &mut self.cabs[number];
            let reached = match cab.doing {
                Doing::Idle => None,
                Doing::ToPickup(ride) => {
                    let there = cab.at.towards(self.wishes[ride].pickup);
                    there.then_some((
                        TripStatus::Arrived,
                        Doing::Boarding(ride, self.now + BOARDING),
                    ))
                }
                Doing::Boarding(ride, until) => (self.now >= until)
                    .then_some((TripStatus::PickedUp, Doing::ToDestination(ride))),
                Doing::ToDestination(ride) => {
                    let there = cab.at.towards(self.wishes[ride].destination);
                    there.then_some((TripStatus::Completed, Doing::Idle))
                }
            };
            let Some((status, next)) = reached else {
                continue;
            };
            let (id, at) = (cab.id.clone(), cab.at.point());
            let assignment = cab.assignment.clone().unwrap_or_default();
            let before = std::mem::replace(&mut cab.doing, next);
            self.moved(&id, &assignment, status).await?;
            match (status, before) {
                (TripStatus::Arrived, Doing::ToPickup(ride)) => {
                    self.rides[ride].arrived = Some(self.now);
                }
                (TripStatus::PickedUp, _) => {
                    self.moved(&id, &assignment, TripStatus::InProgress).await?;
                }
                (TripStatus::Completed, Doing::ToDestination(ride)) => {
                    self.rides[ride].completed = true;
                    self.cabs[number].assignment = None;
                    self.dispatch.report_location(&id, at).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn moved(&self, driver: &str, assignment: &str, to: TripStatus) -> Result<()> {
        let moved = self.dispatch.advance_trip(driver, assignment, to).await?;
        ensure!(
            moved == Moving::Moved,
            "{assignment} did not get to {to:?}: {moved:?}"
        );
        Ok(())
    }

    async fn report(&self) -> Result<()> {
        let due = |(number, _): &(u64, &Cab)| (number + self.now).is_multiple_of(REPORT_EVERY);
        let reports = (0..).zip(&self.cabs).filter(due).map(|(_, cab)| {
            let (dispatch, id, at) = (self.dispatch.clone(), cab.id.clone(), cab.at.point());
            async move { dispatch.report_location(&id, at).await }
        });
        let reports = futures::stream::iter(reports.collect::<Vec<_>>());
        reports.buffer_unordered(8).try_collect::<Vec<_>>().await?;
        Ok(())
    }

    async fn request(&mut self) -> Result<()> {
        let ride = self.rides.len();
        let wish = self.wishes[ride].clone();
        let (ride_id, rider_id) = (self.ride_id(ride), format!("rider-{ride}"));
        let quote = NewQuote {
            fare_id: format!("{ride_id}-fare"),
            rider_id: rider_id.clone(),
            pickup: wish.pickup.point(),
            destination: wish.destination.point(),
        };
        self.dispatch.quote_fare(&quote).await?;
        let new = NewRide {
            ride_id: ride_id.clone(),
            rider_id,
            fare_id: quote.fare_id,
        };
        let requested = self.dispatch.request_ride(&new).await?;
        ensure!(
            matches!(requested, Requested::Requested(_)),
            "{requested:?}"
        );
        self.rides.push(Ride {
            pickup: wish.pickup,
            requested: self.now,
            matched: None,
            pickup_s: None,
            arrived: None,
            end: RideStatus::Open,
            completed: false,
            offers: 0,
        });
        if let Some(patience) = wish.patience {
            self.at(self.now + patience, Event::GiveUp(ride));
        }
        if self.choice == Choice::Greedy {
            let step = self.dispatch.next_candidate(&ride_id).await?;
            self.stepped(ride, step);
        }
        Ok(())
    }

    fn at(&mut self, when: u64, event: Event) {
        self.agenda.entry(when).or_default().push(event);
    }

    /// Somebody was asked: the answer comes in a while, or not.
    fn stepped(&mut self, ride: usize, step: Cascade) {
        match step {
            Cascade::Offered(offer) => {
                let number = self.rides[ride].offers;
                self.rides[ride].offers += 1;
                if let Some((after, yes)) = self.plan.answer(ride, number) {
                    let answer = Event::Answer { ride, offer, yes };
                    self.at(self.now + after, answer);
                }
            }
            Cascade::NoDrivers => self.rides[ride].end = RideStatus::NoDrivers,
            Cascade::Waiting(_) | Cascade::Elsewhere(_) => {}
        }
    }

    async fn answered(
        &mut self,
        ride: usize,
        offer: DriverAssignmentState,
        yes: bool,
    ) -> Result<()> {
        let (driver, id) = (&offer.driver_id, &offer.assignment_id);
        if !yes {
            self.dispatch.reject(driver, id).await?;
            if self.choice == Choice::Greedy {
                let step = self.dispatch.next_candidate(&self.ride_id(ride)).await?;
                self.stepped(ride, step);
            }
            return Ok(());
        }
        // The rider may have given up meanwhile.
        if self.dispatch.accept(driver, id).await? == Accepting::Accepted {
            self.dispatch.start_trip(driver, id).await?;
            let Some(number) = self.by_id.get(driver) else {
                return Ok(());
            };
            let cab = &mut self.cabs[*number];
            cab.doing = Doing::ToPickup(ride);
            cab.assignment = Some(id.clone());
            let ride = &mut self.rides[ride];
            ride.matched = Some(self.now);
            ride.pickup_s = Some(offer.pickup_s);
            ride.end = RideStatus::Matched;
        }
        Ok(())
    }

    /// A rider who has waited long enough, unless the driver is there.
    async fn give_up(&mut self, ride: usize) -> Result<()> {
        if self.rides[ride].arrived.is_some() {
            return Ok(());
        }
        let told = self.dispatch.cancel_ride(&self.ride_id(ride)).await?;
        if let Cancelling::Cancelled(_) = told {
            self.rides[ride].end = RideStatus::Cancelled;
            for cab in &mut self.cabs {
                if cab.doing == Doing::ToPickup(ride) {
                    cab.doing = Doing::Idle;
                    cab.assignment = None;
                }
            }
        }
        Ok(())
    }

    /// The day ends: what is still open is cancelled, and everybody goes home, so that the next day
    /// on this cloud begins with nobody.
    async fn go_home(&self, beside: &Dispatch) -> Result<()> {
        let unfinished = (0..).zip(&self.rides).filter(|(_, ride)| !ride.completed);
        let cancels = unfinished.map(|(number, _)| {
            let (beside, id) = (beside.clone(), self.ride_id(number));
            async move { beside.cancel_ride(&id).await }
        });
        let cancels = futures::stream::iter(cancels.collect::<Vec<_>>());
        cancels.buffer_unordered(8).try_collect::<Vec<_>>().await?;
        let ends = self.cabs.iter().map(|cab| {
            let (beside, id) = (beside.clone(), cab.id.clone());
            async move { beside.go_offline(&id).await }
        });
        let ends = futures::stream::iter(ends.collect::<Vec<_>>());
        ends.buffer_unordered(8).try_collect::<Vec<_>>().await?;
        Ok(())
    }

    /// Counts, and sees that what was simulated is what the tables say.
    async fn close(self) -> Result<Day> {
        let beside = Dispatch::with_rules(
            self.dispatch.cloud().beside_tap(),
            self.realization,
            self.plan.rules(),
        );
        let mut drivers = BTreeSet::new();
        for (number, ride) in self.rides.iter().enumerate() {
            let id = self.ride_id(number);
            let there = beside.ride(&id).await?;
            let there = there.ok_or_else(|| anyhow::anyhow!("{id} is gone"))?;
            let open = matches!(there.status, RideStatus::Open | RideStatus::Matching);
            ensure!(
                there.status == ride.end || (open && ride.end == RideStatus::Open),
                "{id} is {:?} in the table and {:?} in the city",
                there.status,
                ride.end
            );
            if ride.end == RideStatus::Matched && !ride.completed {
                ensure!(
                    drivers.insert(there.driver_id),
                    "one driver has two rides, one of them {id}"
                );
            }
        }
        let rides = &self.rides;
        let with = |end| rides.iter().filter(|ride| ride.end == end).count();
        let matched = with(RideStatus::Matched);
        let ended = matched + with(RideStatus::NoDrivers);
        let spread = |of: &dyn Fn(&Ride) -> Option<u64>| {
            let done = rides.iter().filter(|ride| ride.end == RideStatus::Matched);
            Spread::of(done.filter_map(of).collect())
        };
        let pickups = rides
            .iter()
            .filter(|ride| ride.end == RideStatus::Matched)
            .filter_map(|ride| ride.pickup_s);
        let figures = Figures {
            matching: self.choice,
            requests: rides.len(),
            matched,
            match_rate_percent: 100.0 * matched as f64 / ended.max(1) as f64,
            no_drivers: with(RideStatus::NoDrivers),
            cancelled: with(RideStatus::Cancelled),
            completed: rides.iter().filter(|ride| ride.completed).count(),
            offers: rides.iter().map(|ride| ride.offers).sum(),
            wait_for_a_yes_s: spread(&|ride| Some(ride.matched? - ride.requested)),
            pickup_s: spread(&|ride| ride.pickup_s.map(u64::from)),
            wait_for_the_car_s: spread(&|ride| Some(ride.arrived? - ride.requested)),
            total_pickup_hours: f64::from(pickups.sum::<u32>()) / 3_600.0,
            dynamodb_calls: 0,
            redis_calls: 0,
            rcu: 0.0,
            wcu: 0.0,
            dollars_per_thousand: 0.0,
            took_s: 0.0,
        };
        self.go_home(&beside).await?;
        let cabs = self
            .cabs
            .iter()
            .map(|cab| (cab.at, cab.doing != Doing::Idle));
        Ok(Day {
            figures,
            cabs: cabs.collect(),
            rides: self.rides,
        })
    }
}
