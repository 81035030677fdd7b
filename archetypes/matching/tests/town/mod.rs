//! A town to try things in, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

use chaos::{Interleave, World};
use cloud::item::{from_item, n, s};
use cloud::tap::{Call, Plan, Request, Verdict};
use cloud::{Clock, Cloud, Item};
use futures::future::BoxFuture;
use matching::accept::TooLate;
use matching::domain::{Candidate, RideRequestState, assignment_id, pickup_s};
use matching::{
    Accepting, AssignmentStatus, Cancelling, Cascade, Dispatch, DriverAssignmentState, DriverState,
    DriverStatus, Expiry, FareQuote, Moving, NewQuote, NewRide, Point, Proposing, Realization,
    Rejecting, Requested, RideStatus, Rules, Shift, Starting, TripExecutionState, TripStatus,
};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Runs a test in both realizations: the promises are the same.
#[macro_export]
macro_rules! in_both_realizations {
    ($($name:ident),+ $(,)?) => {
        chaos::on_each! {
            [geo: matching::Realization::Geo, cells: matching::Realization::Cells]
            { $($name),+ }
        }
    };
}

/// Everybody who may have a ride here; each has one.
const RIDERS: [&str; 4] = ["alice", "bob", "carol", "dave"];
const DRIVERS: [&str; 4] = ["near", "far", "farther", "off"];

/// Where riders wait: in the middle of an H3 cell, so that a small search is one query.
pub fn pickup() -> Point {
    let berlin = Point::degrees(52.52, 13.405).unwrap();
    let middle = h3o::LatLng::from(matching::cell_index::cell_of(berlin).unwrap());
    Point::degrees(middle.lat(), middle.lng()).unwrap()
}

pub fn north(metres: f64) -> Point {
    let pickup = pickup();
    let degrees = metres / 111_195.0;
    Point::degrees(pickup.lat_degrees() + degrees, pickup.lon_degrees()).unwrap()
}

/// Rules for tests: a small circle, so that few cells are asked.
pub fn rules() -> Rules {
    Rules {
        radius_m: 620.0,
        ..Rules::default()
    }
}

/// A town with drivers, and a second view of it by somebody whose clock is ahead.
pub struct Town {
    pub dispatch: Dispatch,
    /// The same seen with a clock by which every offer is over: clocks never agree.
    pub late: Dispatch,
    pub id: String,
    pub realization: Realization,
}

impl World for Town {
    fn cloud(&self) -> &Cloud {
        self.dispatch.cloud()
    }
}

/// Three drivers on their shift, one not.
pub async fn open(realization: Realization) -> Town {
    open_on(cloud::connect_for_tests().await.unwrap(), realization).await
}

/// On tables and keys that no other test uses, on any backend: for whoever searches or sweeps.
pub async fn open_alone(realization: Realization) -> Town {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    open_on(cloud, realization).await
}

pub async fn open_on(cloud: Cloud, realization: Realization) -> Town {
    let town = empty_on(cloud, realization).await;
    for (name, metres) in [("near", 100.0), ("far", 300.0), ("farther", 600.0)] {
        town.online(name, north(metres)).await;
    }
    town
}

/// Nobody on a shift.
pub async fn empty_alone(realization: Realization) -> Town {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    empty_on(cloud, realization).await
}

async fn empty_on(cloud: Cloud, realization: Realization) -> Town {
    cloud.create_tables(matching::tables::TABLES).await.unwrap();
    let later = Clock::manual(cloud.now() + rules().offer_ms + 1);
    Town {
        late: Dispatch::with_rules(cloud.with_clock(later), realization, rules()),
        dispatch: Dispatch::with_rules(cloud.clone(), realization, rules()),
        id: cloud.ids().next("town"),
        realization,
    }
}

/// Alice wants a ride.
pub async fn requested(realization: Realization) -> Town {
    let town = open_alone(realization).await;
    town.request("alice").await;
    town
}

/// Alice and Bob want a ride.
pub async fn both_requested(realization: Realization) -> Town {
    let town = requested(realization).await;
    town.request("bob").await;
    town
}

/// Near has been asked for Alice.
pub async fn offered(realization: Realization) -> Town {
    let town = requested(realization).await;
    town.offer("alice", "near").await;
    town
}

/// Near has said yes to Alice.
pub async fn matched(realization: Realization) -> Town {
    let town = offered(realization).await;
    let (near, offer) = (town.driver("near"), town.nth("alice", 1));
    let told = town.dispatch.accept(&near, &offer);
    assert_eq!(told.await.unwrap(), Accepting::Accepted);
    town
}

/// Near is on the way to Alice, and got this far.
pub async fn driving(realization: Realization, to: TripStatus) -> Town {
    let town = matched(realization).await;
    town.start("near").await;
    for next in [
        TripStatus::Arrived,
        TripStatus::PickedUp,
        TripStatus::InProgress,
        TripStatus::Completed,
    ] {
        if next <= to {
            assert_eq!(town.advance("near", next).await, Moving::Moved);
        }
    }
    town
}

impl Town {
    pub fn driver(&self, name: &str) -> String {
        format!("{}-{name}", self.id)
    }

    pub fn ride(&self, rider: &str) -> String {
        format!("{}-{rider}", self.id)
    }

    pub fn nth(&self, rider: &str, offer: u32) -> String {
        assignment_id(&self.ride(rider), offer)
    }

    pub async fn online(&self, name: &str, at: Point) {
        let told = self.dispatch.go_online(&self.driver(name), at).await;
        assert_eq!(told.unwrap(), Shift::Online);
    }

    pub fn new_quote(&self, rider: &str) -> NewQuote {
        NewQuote {
            fare_id: format!("{}-fare-{rider}", self.id),
            rider_id: rider.into(),
            pickup: pickup(),
            destination: north(4_000.0),
        }
    }

    pub fn new_ride(&self, rider: &str) -> NewRide {
        NewRide {
            ride_id: self.ride(rider),
            rider_id: rider.into(),
            fare_id: format!("{}-fare-{rider}", self.id),
        }
    }

    /// A ride that must be made.
    pub async fn request(&self, rider: &str) -> RideRequestState {
        let quote = self.new_quote(rider);
        self.dispatch.quote_fare(&quote).await.unwrap();
        match self
            .dispatch
            .request_ride(&self.new_ride(rider))
            .await
            .unwrap()
        {
            Requested::Requested(ride) => ride,
            other => panic!("{rider} got no ride: {other:?}"),
        }
    }

    pub fn candidate(&self, name: &str) -> Candidate {
        let metres = match name {
            "near" => 100.0,
            "far" => 300.0,
            _ => 600.0,
        };
        Candidate {
            driver_id: self.driver(name),
            pickup_s: pickup_s(north(metres), pickup()),
            distance_m: metres,
            seen_at: self.dispatch.cloud().now(),
            over: None,
        }
    }

    /// A proposal, to whichever driver.
    pub async fn propose(&self, rider: &str, name: &str) -> Proposing {
        let ride = self
            .dispatch
            .ride(&self.ride(rider))
            .await
            .unwrap()
            .unwrap();
        if ride.status != RideStatus::Open {
            return Proposing::Overtaken;
        }
        let candidate = self.candidate(name);
        self.dispatch.propose(&ride, &candidate).await.unwrap()
    }

    /// One that must be made.
    pub async fn offer(&self, rider: &str, name: &str) -> DriverAssignmentState {
        match self.propose(rider, name).await {
            Proposing::Proposed(offer) => offer,
            other => panic!("{name} was not asked: {other:?}"),
        }
    }

    /// A driver who looks free, and whose last offer can never be ended: what no code of this crate
    /// writes.
    pub async fn online_but_never_free(&self, name: &str, at: Point) {
        self.online(name, at).await;
        let cloud = self.dispatch.cloud().beside_tap();
        cloud
            .dynamodb()
            .put_item()
            .table_name(cloud.names().table("drivers"))
            .item("driver_id", s(self.driver(name)))
            .item("status", s("OFFERED"))
            .item("assignment_id", s(format!("{}-nowhere.1", self.id)))
            .item("offer_expires_at", n(0))
            .send()
            .await
            .unwrap();
    }

    pub async fn start(&self, name: &str) -> Starting {
        let id = self.nth("alice", 1);
        let started = self.dispatch.start_trip(&self.driver(name), &id).await;
        started.unwrap()
    }

    pub async fn advance(&self, name: &str, to: TripStatus) -> Moving {
        let (driver, id) = (self.driver(name), self.nth("alice", 1));
        let moved = self.dispatch.advance_trip(&driver, &id, to);
        moved.await.unwrap()
    }

    /// The service beside the tap: for looking without being seen.
    pub fn beside(&self) -> Dispatch {
        let cloud = self.dispatch.cloud().beside_tap();
        Dispatch::with_rules(cloud, self.realization, rules())
    }

    pub async fn see_ride(&self, rider: &str) -> RideRequestState {
        let ride = self.beside().ride(&self.ride(rider)).await;
        ride.unwrap().unwrap()
    }

    pub async fn see_driver(&self, name: &str) -> DriverState {
        let driver = self.beside().driver(&self.driver(name)).await;
        driver.unwrap().unwrap()
    }

    pub async fn see_offer(&self, rider: &str, offer: u32) -> DriverAssignmentState {
        let found = self.beside().assignment(&self.nth(rider, offer)).await;
        found.unwrap().unwrap()
    }

    pub async fn ride_status(&self, rider: &str) -> RideStatus {
        self.see_ride(rider).await.status
    }

    /// So much time passes, and drivers go on saying where they are.
    pub async fn pass(&self, millis: i64) {
        let clock = self.dispatch.cloud().clock();
        clock.advance(Duration::from_millis(millis as u64));
        for (name, metres) in [("near", 100.0), ("far", 300.0), ("farther", 600.0)] {
            let (beside, id) = (self.beside(), self.driver(name));
            if beside.driver(&id).await.unwrap().is_some() {
                beside.report_location(&id, north(metres)).await.unwrap();
            }
        }
    }

    /// The time of an offer passes.
    pub async fn offer_time_passes(&self) {
        self.pass(rules().offer_ms + 1).await;
    }

    pub async fn sweep(&self) -> Vec<Cascade> {
        let swept = self.dispatch.sweep().await.unwrap();
        let ended = swept.into_iter().map(|(_, ended)| ended.unwrap());
        ended.collect()
    }

    /// Every lock is gone: expired, failed over, flushed.
    pub async fn redis_forgets_locks(&self, cloud: &Cloud) {
        let mut redis = cloud.redis().await.unwrap();
        let mut del = redis::cmd("DEL");
        for name in DRIVERS {
            del.arg(self.dispatch.lock_key(&self.driver(name)));
        }
        let _: i64 = del.query_async(&mut redis).await.unwrap();
    }

    async fn items<T: serde::de::DeserializeOwned>(
        &self,
        table: &str,
        key: &str,
        ids: &[String],
    ) -> Vec<T> {
        let cloud = self.dispatch.cloud().beside_tap();
        let mut all = Vec::new();
        for ids in ids.chunks(100) {
            let keys = ids.iter().map(|id| Item::from([(key.to_owned(), s(id))]));
            let found = cloud.read_batch(vec![(table, keys.collect())], true).await;
            let mut found = found.unwrap();
            let found = found.remove(table).unwrap_or_default();
            all.extend(found.iter().map(|item| from_item::<T>(item).unwrap()));
        }
        all
    }

    /// Everything that must hold, however the story went.
    pub async fn invariants(&self) -> Result<State, String> {
        self.invariants_of(
            &RIDERS.map(|rider| self.ride(rider)),
            &DRIVERS.map(|d| self.driver(d)),
        )
        .await
    }

    pub async fn invariants_of(
        &self,
        rides: &[String],
        drivers: &[String],
    ) -> Result<State, String> {
        let rides: Vec<RideRequestState> = self.items("rides", "ride_id", rides).await;
        // Those it says it made, and one that it should not have.
        let offers: Vec<_> = rides
            .iter()
            .flat_map(|ride| (1..=ride.offers_made + 1).map(|n| assignment_id(&ride.ride_id, n)))
            .collect();
        let state = State {
            drivers: self.items("drivers", "driver_id", drivers).await,
            offers: self.items("assignments", "assignment_id", &offers).await,
            trips: self.items("trips", "assignment_id", &offers).await,
            rides,
        };
        state
            .drivers
            .iter()
            .try_for_each(|driver| state.driver(driver))?;
        state.rides.iter().try_for_each(|ride| state.ride(ride))?;
        state.trips.iter().try_for_each(|trip| state.trip(trip))?;
        let fares: Vec<_> = state
            .rides
            .iter()
            .map(|ride| ride.fare_id.clone())
            .collect();
        let fares: Vec<FareQuote> = self.items("fares", "fare_id", &fares).await;
        for ride in &state.rides {
            let fare = fares.iter().find(|fare| fare.fare_id == ride.fare_id);
            ensure(
                fare.is_some_and(|fare| {
                    fare.amount == ride.fare && fare.ride_id.as_ref() == Some(&ride.ride_id)
                }),
                || {
                    format!(
                        "{} costs {}, and the quote says {fare:?}",
                        ride.ride_id, ride.fare
                    )
                },
            )?;
        }
        Ok(state)
    }
}

/// All items at the end of a story.
pub struct State {
    pub rides: Vec<RideRequestState>,
    pub drivers: Vec<DriverState>,
    pub offers: Vec<DriverAssignmentState>,
    pub trips: Vec<TripExecutionState>,
}

impl State {
    fn trip_of(&self, offer: &DriverAssignmentState) -> Option<TripStatus> {
        let of = |trip: &&TripExecutionState| trip.assignment_id == offer.assignment_id;
        self.trips.iter().find(of).map(|trip| trip.status)
    }

    /// At most one open offer and one ride for each driver, and the driver's own item says which.
    fn driver(&self, driver: &DriverState) -> Result<(), String> {
        let name = &driver.driver_id;
        let theirs = |offer: &&DriverAssignmentState| offer.driver_id == *name;
        let open: Vec<_> = self
            .offers
            .iter()
            .filter(theirs)
            .filter(|offer| offer.status == AssignmentStatus::Proposed)
            .collect();
        let rides: Vec<_> = self
            .offers
            .iter()
            .filter(theirs)
            .filter(|offer| offer.status == AssignmentStatus::Accepted)
            .filter(|offer| self.trip_of(offer) != Some(TripStatus::Completed))
            .collect();
        let ids = |offers: &[&DriverAssignmentState]| {
            let ids: Vec<_> = offers.iter().map(|o| o.assignment_id.as_str()).collect();
            ids.join(" and ")
        };
        ensure(rides.len() <= 1, || {
            format!("{name} has the rides {}", ids(&rides))
        })?;
        ensure(open.len() <= 1, || {
            format!("{name} has the offers {}", ids(&open))
        })?;
        let says = (driver.status, driver.assignment_id.as_deref());
        let is = match (open.as_slice(), rides.as_slice()) {
            ([offer], []) => (DriverStatus::Offered, Some(offer.assignment_id.as_str())),
            ([], [ride]) => (DriverStatus::Assigned, Some(ride.assignment_id.as_str())),
            ([], []) if driver.status == DriverStatus::Offline => (DriverStatus::Offline, None),
            ([], []) => (DriverStatus::Available, None),
            _ => return Err(format!("{name} has an offer and a ride")),
        };
        ensure(says == is, || {
            format!("{name} is {is:?}, and says {says:?}")
        })?;
        ensure(
            driver.offer_expires_at == open.first().map(|offer| offer.offer_expires_at),
            || format!("{name} does not know when the offer ends"),
        )
    }

    /// At most one open offer and one match for each ride, and the ride's own item says which.
    fn ride(&self, ride: &RideRequestState) -> Result<(), String> {
        let name = &ride.ride_id;
        let offers: Vec<_> = self.offers.iter().filter(|o| o.ride_id == *name).collect();
        let with = |status| {
            let found = offers.iter().filter(move |offer| offer.status == status);
            found.collect::<Vec<_>>()
        };
        let open = with(AssignmentStatus::Proposed);
        let yes = with(AssignmentStatus::Accepted);
        ensure(yes.len() <= 1, || {
            format!("{name} was accepted {} times", yes.len())
        })?;
        ensure(open.len() <= 1, || {
            format!("{name} has {} open offers", open.len())
        })?;
        ensure(offers.len() == ride.offers_made as usize, || {
            format!(
                "{name} made {} offers, and says {}",
                offers.len(),
                ride.offers_made
            )
        })?;
        let current = ride.current_assignment.as_ref();
        let bound = [open.first(), yes.first()].into_iter().flatten().next();
        let fits = match ride.status {
            RideStatus::Matching => open.len() == 1 && yes.is_empty(),
            RideStatus::Matched => yes.len() == 1 && open.is_empty(),
            _ => open.is_empty() && yes.is_empty(),
        };
        ensure(fits, || {
            format!(
                "{name} is {:?} with {} open offers and {} yes",
                ride.status,
                open.len(),
                yes.len()
            )
        })?;
        if let Some(bound) = bound {
            let says = (current, ride.driver_id.as_ref());
            ensure(
                says == (Some(&bound.assignment_id), Some(&bound.driver_id)),
                || format!("{name} is bound to {bound:?}, and says {says:?}"),
            )?;
        }
        if let (RideStatus::Matching, [open]) = (ride.status, open.as_slice()) {
            ensure(ride.due_at == Some(open.offer_expires_at), || {
                format!("{name} does not know when its offer ends")
            })?;
        }
        if ride.status != RideStatus::Cancelled {
            let no: BTreeSet<_> = offers
                .iter()
                .filter(|o| {
                    !matches!(
                        o.status,
                        AssignmentStatus::Proposed | AssignmentStatus::Accepted
                    )
                })
                .map(|offer| offer.driver_id.clone())
                .collect();
            ensure(ride.refused_by == no, || {
                format!(
                    "{name} was refused by {no:?}, and remembers {:?}",
                    ride.refused_by
                )
            })?;
        }
        let begun = yes.first().is_some_and(|yes| self.trip_of(yes).is_some());
        let due = match ride.status {
            RideStatus::Open | RideStatus::Matching => true,
            RideStatus::Matched => !begun,
            _ => false,
        };
        ensure(
            ride.due_shard.is_some() == due && ride.due_at.is_some() == due,
            || format!("the sweeper does not know what to do about {name}: {ride:?}"),
        )
    }

    fn trip(&self, trip: &TripExecutionState) -> Result<(), String> {
        let name = &trip.assignment_id;
        let offer = self
            .offers
            .iter()
            .find(|offer| offer.assignment_id == *name);
        let offer = offer.ok_or_else(|| format!("the trip {name} is nobody's"))?;
        ensure(offer.driver_id == trip.driver_id, || {
            format!("{name} has two drivers")
        })?;
        let fits = match offer.status {
            AssignmentStatus::Accepted => trip.status != TripStatus::Cancelled,
            AssignmentStatus::Cancelled => trip.status == TripStatus::Cancelled,
            _ => false,
        };
        ensure(fits, || {
            format!(
                "the trip {name} is {:?}, the match {:?}",
                trip.status, offer.status
            )
        })
    }
}

fn ensure(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}

/// What an actor was told, whatever it did.
#[derive(Debug, Clone, PartialEq)]
pub enum Told {
    Propose(Proposing),
    Accept(Accepting),
    Reject(Rejecting),
    Expire(Expiry),
    Cancel(Cancelling),
    Start(Starting),
    Move(Moving),
    Cascade(Cascade),
    Shift(Shift),
    Request(Requested),
    Nothing,
}

impl Told {
    fn word(&self) -> &'static str {
        match self {
            Self::Propose(Proposing::Proposed(_)) => "proposes",
            Self::Propose(Proposing::DriverBusy) => "finds the driver busy",
            Self::Propose(Proposing::Locked) => "finds the lock taken",
            Self::Propose(Proposing::Overtaken) => "is overtaken",
            Self::Accept(Accepting::Accepted) => "accepts",
            Self::Accept(Accepting::Before) => "accepted before",
            Self::Accept(Accepting::Refused(TooLate::Withdrawn | TooLate::Cancelled)) => {
                "is told cancelled"
            }
            Self::Accept(Accepting::Refused(_)) => "is too late",
            Self::Reject(Rejecting::Rejected) => "rejects",
            Self::Reject(Rejecting::Before) => "rejected before",
            Self::Reject(Rejecting::Refused(_)) => "has nothing to reject",
            Self::Expire(Expiry::Expired) => "expires",
            Self::Expire(Expiry::NotDue { .. }) => "finds it not due",
            Self::Expire(Expiry::Over(_)) => "finds it over",
            Self::Cancel(Cancelling::Cancelled(RideStatus::Open)) => "gives it back",
            Self::Cancel(Cancelling::Cancelled(_)) => "cancels",
            Self::Cancel(Cancelling::Over(_)) => "finds it over",
            Self::Cancel(Cancelling::Completed) => "finds it completed",
            Self::Cancel(Cancelling::Refused(_)) => "has nothing to cancel",
            Self::Start(Starting::Started(_)) => "starts",
            Self::Start(Starting::Before(_)) => "started before",
            Self::Start(Starting::NotMatched) => "cannot start",
            Self::Move(Moving::Moved) => "moves",
            Self::Move(Moving::Before(_)) => "moved before",
            Self::Move(Moving::Refused(_)) => "cannot move",
            Self::Cascade(Cascade::Offered(_)) => "offers",
            Self::Cascade(Cascade::Waiting(_)) => "waits",
            Self::Cascade(Cascade::NoDrivers) => "gives up",
            Self::Cascade(Cascade::Elsewhere(_)) => "finds it elsewhere",
            Self::Shift(Shift::Offline) => "goes home",
            Self::Shift(Shift::Online) => "comes",
            Self::Shift(Shift::Busy(_)) => "must stay",
            Self::Request(Requested::Requested(_)) => "requests",
            Self::Request(Requested::Before(_)) => "requested before",
            Self::Request(Requested::Refused(_)) => "is refused",
            Self::Nothing => "is done",
        }
    }
}

/// After every order the invariants must hold, and what each actor was told must be what stands in
/// the tables.
pub fn checked(actors: Interleave<Town, Told>) -> Interleave<Town, Told> {
    actors.check(|town, told| async move {
        let state = town.invariants().await?;
        let count = |wanted: fn(&Told) -> bool| told.iter().filter(|(_, t)| wanted(t)).count();
        for (what, times) in [
            (
                "accepted",
                count(|t| matches!(t, Told::Accept(Accepting::Accepted))),
            ),
            (
                "expired",
                count(|t| matches!(t, Told::Expire(Expiry::Expired))),
            ),
            (
                "rejected",
                count(|t| matches!(t, Told::Reject(Rejecting::Rejected))),
            ),
            (
                "cancelled",
                count(|t| {
                    matches!(
                        t,
                        Told::Cancel(Cancelling::Cancelled(RideStatus::Cancelled))
                    )
                }),
            ),
        ] {
            if times > 1 {
                return Err(format!("one offer or ride was {what} twice"));
            }
        }
        // A yes that was told counts, unless somebody then cancelled it.
        let accepted = count(|t| matches!(t, Told::Accept(Accepting::Accepted))) == 1;
        let cancelled = count(|t| matches!(t, Told::Cancel(Cancelling::Cancelled(_)))) > 0;
        let matches = |ride: &&RideRequestState| ride.status == RideStatus::Matched;
        let matched = state.rides.iter().filter(matches).count();
        let refused = count(|t| matches!(t, Told::Accept(Accepting::Refused(_)))) > 0;
        if accepted && !cancelled && matched != 1 {
            return Err(format!("a yes was told, and {matched} rides are MATCHED"));
        }
        if refused && !accepted && matched > 0 {
            return Err("a no was told, and the ride is MATCHED".into());
        }
        let words: Vec<_> = told
            .iter()
            .map(|(who, told)| format!("{who} {}", told.word()))
            .collect();
        Ok(words.join(", "))
    })
}

type Actors = Interleave<Town, Told>;

/// Adds one who asks a driver for a rider.
pub fn proposer(
    actors: Actors,
    name: &'static str,
    rider: &'static str,
    driver: &'static str,
) -> Actors {
    actors.actor(name, move |town| async move {
        Told::Propose(town.propose(rider, driver).await)
    })
}

/// Adds near, who says yes to Alice's first offer, and by whose clock there is time.
pub fn accepter(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        let (driver, offer) = (town.driver("near"), town.nth("alice", 1));
        Told::Accept(town.dispatch.accept(&driver, &offer).await.unwrap())
    })
}

pub fn rejecter(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        let (driver, offer) = (town.driver("near"), town.nth("alice", 1));
        Told::Reject(town.dispatch.reject(&driver, &offer).await.unwrap())
    })
}

/// Adds one who ends Alice's offer, and by whose clock it is over.
pub fn expirer(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        Told::Expire(town.late.expire_offer(&ride).await.unwrap())
    })
}

/// Adds Alice, who gives up.
pub fn canceller(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        Told::Cancel(town.dispatch.cancel_ride(&ride).await.unwrap())
    })
}

/// Adds near, who gives Alice's ride back.
pub fn giver_back(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        let (driver, offer) = (town.driver("near"), town.nth("alice", 1));
        let told = town.dispatch.cancel_assignment(&driver, &offer).await;
        Told::Cancel(told.unwrap())
    })
}

pub fn starter(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        Told::Start(town.start("near").await)
    })
}

pub fn mover(actors: Actors, name: &'static str, to: TripStatus) -> Actors {
    actors.actor(name, move |town: Arc<Town>| async move {
        Told::Move(town.advance("near", to).await)
    })
}

/// Adds one who takes the next step for Alice's ride.
pub fn matcher(actors: Actors, name: &'static str) -> Actors {
    actors.actor(name, |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        Told::Cascade(town.dispatch.next_candidate(&ride).await.unwrap())
    })
}

/// A plan under which the time of an offer passes after the first call of this operation.
pub struct Slow {
    clock: Clock,
    after: &'static str,
    done: AtomicBool,
}

impl Slow {
    pub fn after(town: &Town, operation: &'static str) -> Self {
        Self {
            clock: town.dispatch.cloud().clock().clone(),
            after: operation,
            done: AtomicBool::new(false),
        }
    }
}

impl Plan for Slow {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async {
            if call.request.operation == self.after && !self.done.swap(true, Ordering::SeqCst) {
                let time = Duration::from_millis(rules().offer_ms as u64 + 1);
                self.clock.advance(time);
            }
        })
    }
}

/// A fault of DynamoDB that no SDK tries again.
pub fn broken() -> Verdict {
    Verdict::Answer {
        status: 400,
        body: json!({
            "__type": "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException",
            "message": "Requested resource not found",
        }),
    }
}

/// A plan that answers so many transactions as DynamoDB does while another one is being committed: it
/// still has the first item, and the others are written.
pub struct Halfway(pub AtomicUsize);

impl Plan for Halfway {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let less = |left: usize| left.checked_sub(1);
        let (order, left) = (Ordering::SeqCst, &self.0);
        let hit = request.operation == "TransactWriteItems"
            && left.fetch_update(order, order, less).is_ok();
        let mut reasons = vec![json!({"Code": "ConditionalCheckFailed"}); request.targets.len()];
        if let Some(first) = reasons.first_mut() {
            *first = json!({"Code": "TransactionConflict"});
        }
        let verdict = match hit {
            false => Verdict::Pass,
            true => Verdict::Answer {
                status: 400,
                body: json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                    "Message": "Transaction cancelled, please refer cancellation reasons for specific reasons [TransactionConflict, ConditionalCheckFailed]",
                    "CancellationReasons": reasons,
                }),
            },
        };
        Box::pin(async { verdict })
    }
}

/// A plan under which a driver comes back a moment after the end of a shift was written.
pub struct ComesBack {
    beside: Dispatch,
    driver: String,
    done: AtomicBool,
}

impl ComesBack {
    pub fn after_going(town: &Town, name: &str) -> Self {
        Self {
            beside: town.beside(),
            driver: town.driver(name),
            done: AtomicBool::new(false),
        }
    }
}

impl Plan for ComesBack {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async {
            if call.request.operation == "UpdateItem" && !self.done.swap(true, Ordering::SeqCst) {
                self.beside
                    .cloud()
                    .clock()
                    .advance(Duration::from_millis(1));
                let back = self.beside.go_online(&self.driver, north(100.0)).await;
                assert_eq!(back.unwrap(), Shift::Online);
            }
        })
    }
}
