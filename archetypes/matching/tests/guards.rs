//! Every clause of every guard is taken away once: then some order of calls breaks an invariant, and
//! this is how; or none does, and this says which other lock is on that door.
//!
//! `Weaken` makes a clause always true on its way out, so the code under test is the code that
//! ships.
#![allow(clippy::unwrap_used)]

mod town;

use chaos::{Interleave, Weaken};
use matching::accept::TooLate;
use matching::cell_index::CellIndex;
use matching::domain::DriverLocationState;
use matching::locations::LocationIndex;
use matching::request_ride::BadQuote;
use matching::{
    Accepting, Dispatch, DispatchError, DriverStatus, Moving, NewRide, Proposing, Realization,
    RideStatus, Rules, Shift, TripStatus,
};
use std::sync::Arc;
use town::{
    Slow, Told, Town, accepter, both_requested, canceller, checked, driving, expirer, giver_back,
    matched, mover, north, offered, open_alone, proposer, rejecter, requested, rules, starter,
};

in_both_realizations!(
    without_its_status_one_driver_is_asked_by_two_rides,
    without_its_status_a_cancelled_ride_is_proposed,
    without_the_seen_count_the_offers_identity_still_holds,
    without_its_identity_an_offer_is_still_made_once_by_the_rides_count,
    without_count_and_identity_two_matchers_ask_two_drivers,
    without_the_offers_own_status_ride_and_driver_still_hold,
    without_the_rides_guard_offer_and_driver_still_hold,
    without_the_drivers_guard_offer_and_ride_still_hold,
    without_all_three_a_yes_comes_after_the_expiry,
    without_the_time_a_late_yes_wins,
    without_its_driver_an_offer_is_still_answered_only_by_the_one_asked,
    without_the_end_of_the_offer_a_sweeper_still_looks_at_the_ride,
    without_its_status_a_cancellation_leaves_an_offer_behind,
    without_the_check_a_trip_begins_for_a_ride_that_is_cancelled,
    without_its_status_a_trip_with_its_rider_is_given_back,
    without_its_status_a_ride_that_is_over_starts,
    without_its_identity_a_trip_starts_again_from_the_beginning,
    without_its_status_a_trip_moves_backwards,
    without_its_driver_a_trip_is_moved_by_a_stranger,
    without_its_status_a_driver_on_a_ride_comes_online_again,
    without_its_status_a_driver_goes_home_from_an_offer,
);

type Actors = Interleave<Town, Told>;

fn under(actors: Actors, weaken: impl IntoIterator<Item = Weaken>) -> (Actors, Vec<Arc<Weaken>>) {
    let weaken: Vec<_> = weaken.into_iter().map(Arc::new).collect();
    let mut actors = checked(actors);
    for weaken in &weaken {
        let weaken = Arc::clone(weaken);
        actors = actors.under(move || Arc::clone(&weaken));
    }
    (actors, weaken)
}

/// Some order must break, in these words.
async fn breaks(actors: Actors, weaken: impl IntoIterator<Item = Weaken>, says: &str) {
    let (actors, weaken) = under(actors, weaken);
    let broken = actors.run().await.unwrap_err();
    assert!(broken.why.contains(says), "{broken}");
    assert!(weaken.iter().all(|weaken| weaken.applied() > 0));
}

/// No order breaks: something else holds the same door.
async fn still_holds(actors: Actors, weaken: impl IntoIterator<Item = Weaken>, ends: usize) {
    let (actors, weaken) = under(actors, weaken);
    let explored = actors.run().await.unwrap();
    assert!(weaken.iter().all(|weaken| weaken.applied() > 0));
    assert_eq!(explored.seen.len(), ends, "{:?}", explored.seen);
}

/// Weakens until it is dropped.
fn weak(town: &Town, weaken: Weaken) -> (Arc<Weaken>, impl Drop + use<>) {
    let weaken = Arc::new(weaken);
    let installed = town.dispatch.cloud().tap().install(weaken.clone());
    (weaken, installed)
}

fn on(table: &str, clause: &str) -> [Weaken; 1] {
    [Weaken::guard_on(table).without(clause)]
}

// Propose.

/// Row 13 with the code that ships. The lock is not there to help: it is lost.
async fn without_its_status_one_driver_is_asked_by_two_rides(realization: Realization) {
    let asks = |rider: &'static str| {
        move |town: Arc<Town>| async move {
            let ride = town
                .dispatch
                .ride(&town.ride(rider))
                .await
                .unwrap()
                .unwrap();
            let near = town.candidate("near");
            Told::Propose(town.dispatch.propose_unlocked(&ride, &near).await.unwrap())
        }
    };
    let actors = Interleave::of(move || both_requested(realization))
        .actor("one", asks("alice"))
        .actor("other", asks("bob"));
    breaks(
        actors,
        on("drivers", "#status = :available"),
        "has the offers",
    )
    .await;
}

async fn without_its_status_a_cancelled_ride_is_proposed(realization: Realization) {
    let actors = Interleave::of(move || requested(realization));
    let actors = canceller(proposer(actors, "matcher", "alice", "near"), "alice");
    let says = "the sweeper does not know what to do";
    breaks(actors, on("rides", "#status = :open"), says).await;
}

/// One matcher has read the ride; another asks, and is refused; the first goes on.
async fn without_the_seen_count_the_offers_identity_still_holds(realization: Realization) {
    let actors = Interleave::of(move || requested(realization));
    let actors = proposer(actors, "one", "alice", "far").actor("other", |town| async move {
        let told = town.propose("alice", "near").await;
        let (near, offer) = (town.driver("near"), town.nth("alice", 1));
        let _ = town.dispatch.reject(&near, &offer).await;
        Told::Propose(told)
    });
    still_holds(actors, on("rides", "offers_made = :seen"), 3).await;
}

async fn without_its_identity_an_offer_is_still_made_once_by_the_rides_count(
    realization: Realization,
) {
    let actors = two_matchers(realization);
    let weaken = on("assignments", "attribute_not_exists(assignment_id)");
    still_holds(actors, weaken, 2).await;
}

async fn without_count_and_identity_two_matchers_ask_two_drivers(realization: Realization) {
    let weaken = [
        Weaken::guard_on("assignments").without("attribute_not_exists(assignment_id)"),
        Weaken::guard_on("rides").without("#status = :open AND offers_made = :seen"),
    ];
    breaks(two_matchers(realization), weaken, "and says (Offered").await;
}

fn two_matchers(realization: Realization) -> Actors {
    let actors = Interleave::of(move || requested(realization));
    let actors = proposer(actors, "one", "alice", "near");
    proposer(actors, "other", "alice", "far")
}

// Accept, reject, expire: three items that change together are three locks on one door.

const THE_OFFER: (&str, &str) = ("assignments", "#status = :proposed");
const THE_RIDE: (&str, &str) = (
    "rides",
    "#status = :matching AND current_assignment = :assignment",
);
const THE_DRIVER: (&str, &str) = (
    "drivers",
    "#status = :offered AND assignment_id = :assignment",
);

fn yes_and_expiry(realization: Realization) -> Actors {
    let actors = accepter(Interleave::of(move || offered(realization)), "near");
    expirer(actors, "sweeper")
}

async fn without_the_offers_own_status_ride_and_driver_still_hold(realization: Realization) {
    let (table, clause) = THE_OFFER;
    still_holds(yes_and_expiry(realization), on(table, clause), 2).await;
}

async fn without_the_rides_guard_offer_and_driver_still_hold(realization: Realization) {
    let (table, clause) = THE_RIDE;
    still_holds(yes_and_expiry(realization), on(table, clause), 2).await;
}

async fn without_the_drivers_guard_offer_and_ride_still_hold(realization: Realization) {
    let (table, clause) = THE_DRIVER;
    still_holds(yes_and_expiry(realization), on(table, clause), 2).await;
}

/// With none of them the yes arrives after the expiry, and matches a ride that is OPEN.
async fn without_all_three_a_yes_comes_after_the_expiry(realization: Realization) {
    let weaken = [THE_OFFER, THE_RIDE, THE_DRIVER];
    let weaken = weaken.map(|(table, clause)| Weaken::guard_on(table).without(clause));
    breaks(
        yes_and_expiry(realization),
        weaken,
        "and says (Assigned, None)",
    )
    .await;
}

/// Row 14 with the code that ships: nobody has ended the offer yet.
async fn without_the_time_a_late_yes_wins(realization: Realization) {
    let town = offered(realization).await;
    town.offer_time_passes().await;
    let (near, offer) = (town.driver("near"), town.nth("alice", 1));
    let told = town.dispatch.accept(&near, &offer).await.unwrap();
    assert_eq!(told, Accepting::Refused(TooLate::Expired));
    let clause = "offer_expires_at > :now";
    let (weaken, _weak) = weak(&town, Weaken::guard_on("assignments").without(clause));
    let told = town.dispatch.accept(&near, &offer).await.unwrap();
    assert_eq!((told, weaken.applied()), (Accepting::Accepted, 1));
    let late = town.see_offer("alice", 1).await.offer_expires_at;
    assert!(late < town.dispatch.cloud().now());
}

/// Far says yes to what near was asked: far's own item says that nobody asked.
async fn without_its_driver_an_offer_is_still_answered_only_by_the_one_asked(
    realization: Realization,
) {
    let town = offered(realization).await;
    let clause = "driver_id = :driver";
    let (weaken, _weak) = weak(&town, Weaken::guard_on("assignments").without(clause));
    let (far, offer) = (town.driver("far"), town.nth("alice", 1));
    let told = town.dispatch.accept(&far, &offer).await;
    assert!(matches!(told, Err(DispatchError::NotYours(_))), "{told:?}");
    assert_eq!(weaken.applied(), 1);
    town.invariants().await.unwrap();
}

/// A second lock: the ride bears the same time, which never changes while the offer lives.
async fn without_the_end_of_the_offer_a_sweeper_still_looks_at_the_ride(realization: Realization) {
    let weaken = on("assignments", "offer_expires_at <= :now");
    still_holds(yes_and_expiry(realization), weaken, 2).await;
    let town = offered(realization).await;
    let clause = "offer_expires_at <= :now";
    let (_, _weak) = weak(&town, Weaken::guard_on("assignments").without(clause));
    let told = town.dispatch.expire_offer(&town.ride("alice")).await;
    assert!(matches!(told.unwrap(), matching::Expiry::NotDue { .. }));
}

// Cascade.

/// A matcher has found nobody and the time is over; meanwhile a driver comes, takes the ride and
/// gives it back, which gives it new time. The matcher's end must not be written.
#[tokio::test]
async fn without_the_seen_count_a_search_with_time_left_is_given_up() {
    let order_breaks = |weakened: bool| async move {
        let setup = || async {
            let town = town::empty_alone(Realization::Cells).await;
            town.request("alice").await;
            town.pass(rules().search_ms).await;
            town
        };
        let actors = Interleave::of(setup)
            .actor("matcher", |town: Arc<Town>| async move {
                let ride = town.ride("alice");
                Told::Cascade(town.dispatch.next_candidate(&ride).await.unwrap())
            })
            .actor("near", |town: Arc<Town>| async move {
                let beside = town.beside();
                // One call for the explorer; what follows is told apart by nothing else.
                town.dispatch.ride(&town.ride("alice")).await.unwrap();
                let near = town.driver("near");
                beside.go_online(&near, north(100.0)).await.unwrap();
                let ride = beside.ride(&town.ride("alice")).await.unwrap().unwrap();
                if ride.status == RideStatus::Open {
                    let asked = beside.propose(&ride, &town.candidate("near")).await;
                    if let Proposing::Proposed(offer) = asked.unwrap() {
                        let id = &offer.assignment_id;
                        beside.accept(&near, id).await.unwrap();
                        beside.cancel_assignment(&near, id).await.unwrap();
                    }
                }
                Told::Nothing
            })
            .check(|town, _| async move {
                let ride = town.see_ride("alice").await;
                let early = ride.search_until > town.dispatch.cloud().now();
                match (ride.status, early) {
                    (RideStatus::NoDrivers, true) => Err("given up with time left".into()),
                    (status, _) => Ok(format!("{status:?}")),
                }
            });
        let weaken = Arc::new(Weaken::guard_on("rides").without("offers_made = :seen"));
        match weakened {
            true => actors.under(move || Arc::clone(&weaken)).run().await,
            false => actors.run().await,
        }
    };
    assert!(order_breaks(false).await.is_ok());
    let broken = order_breaks(true).await.unwrap_err();
    assert_eq!(broken.why, "given up with time left");
}

#[tokio::test]
async fn without_its_status_a_search_goes_on_for_a_ride_that_is_cancelled() {
    let setup = || async {
        let town = town::empty_alone(Realization::Cells).await;
        town.request("alice").await;
        town
    };
    let actors = town::matcher(Interleave::of(setup), "matcher");
    let says = "the sweeper does not know what to do";
    let weaken = on("rides", "#status = :open");
    breaks(canceller(actors, "alice"), weaken, says).await;
}

// Cancel.

async fn without_its_status_a_cancellation_leaves_an_offer_behind(realization: Realization) {
    let actors = Interleave::of(move || requested(realization));
    let actors = canceller(proposer(actors, "matcher", "alice", "near"), "alice");
    let weaken = on("rides", "#status = :from");
    breaks(actors, weaken, "is Cancelled with 1 open offers").await;
}

async fn without_the_check_a_trip_begins_for_a_ride_that_is_cancelled(realization: Realization) {
    let actors = starter(Interleave::of(move || matched(realization)), "near");
    let actors = canceller(actors, "alice");
    // The same words guard the start of a trip; only the check is meant.
    let weaken = [Weaken::guard_on("trips")
        .containing("attribute_not_exists(assignment_id)")
        .without("attribute_not_exists(assignment_id)")];
    breaks(actors, weaken, "EnRoute, the match Cancelled").await;
}

/// The driver gives it back while the rider gets in: the ride would look for another driver, for
/// somebody who sits in a car.
async fn without_its_status_a_trip_with_its_rider_is_given_back(realization: Realization) {
    let setup = move || driving(realization, TripStatus::Arrived);
    let actors = mover(Interleave::of(setup), "phone", TripStatus::PickedUp);
    let (actors, weaken) = under(giver_back(actors, "near"), on("trips", "#status = :from"));
    // The driver's side reads ARRIVED; the rider gets in; the driver's side writes.
    let order = match realization {
        Realization::Cells => "near near phone near",
        Realization::Geo => "near near phone near near",
    };
    let end = actors.replay(&order.parse().unwrap()).await.unwrap();
    assert!(weaken[0].applied() > 0);
    assert_eq!(end, "phone moves, near gives it back");
}

// Trips.

async fn without_its_status_a_ride_that_is_over_starts(realization: Realization) {
    let actors = starter(Interleave::of(move || matched(realization)), "near");
    let clause = "#status = :matched AND current_assignment = :assignment AND driver_id = :driver";
    let actors = canceller(actors, "alice");
    breaks(actors, on("rides", clause), "EnRoute, the match Cancelled").await;
}

async fn without_its_identity_a_trip_starts_again_from_the_beginning(realization: Realization) {
    let town = driving(realization, TripStatus::Arrived).await;
    let clause = "attribute_not_exists(assignment_id)";
    let (weaken, _weak) = weak(&town, Weaken::guard_on("trips").without(clause));
    town.start("near").await;
    assert_eq!(weaken.applied(), 1);
    let trip = town.beside().trip(&town.nth("alice", 1)).await.unwrap();
    assert_eq!(trip.unwrap().status, TripStatus::EnRoute, "it had arrived");
}

async fn without_its_status_a_trip_moves_backwards(realization: Realization) {
    let town = driving(realization, TripStatus::InProgress).await;
    // Sent again, late.
    let told = town.advance("near", TripStatus::Arrived).await;
    assert_eq!(told, Moving::Before(TripStatus::InProgress));
    let (weaken, _weak) = weak(&town, Weaken::guard_on("trips").without("#status = :from"));
    town.advance("near", TripStatus::Arrived).await;
    assert_eq!(weaken.applied(), 1);
    let trip = town.beside().trip(&town.nth("alice", 1)).await.unwrap();
    assert_eq!(trip.unwrap().status, TripStatus::Arrived);
}

async fn without_its_driver_a_trip_is_moved_by_a_stranger(realization: Realization) {
    let town = driving(realization, TripStatus::EnRoute).await;
    let (far, id) = (town.driver("far"), town.nth("alice", 1));
    let told = town.dispatch.advance_trip(&far, &id, TripStatus::Arrived);
    assert!(matches!(
        told.await,
        Err(matching::DispatchError::NotYours(_))
    ));
    let (weaken, _weak) = weak(
        &town,
        Weaken::guard_on("trips").without("driver_id = :driver"),
    );
    assert_eq!(
        town.advance("far", TripStatus::Arrived).await,
        Moving::Moved
    );
    assert_eq!(weaken.applied(), 1);
}

// Shifts, places.

async fn without_its_status_a_driver_on_a_ride_comes_online_again(realization: Realization) {
    let town = matched(realization).await;
    let near = town.driver("near");
    let told = town.dispatch.go_online(&near, north(100.0)).await.unwrap();
    assert_eq!(told, Shift::Busy(DriverStatus::Assigned));
    let clause = "attribute_not_exists(driver_id) OR #status = :offline";
    let (_, _weak) = weak(&town, Weaken::guard_on("drivers").without(clause));
    town.dispatch.go_online(&near, north(100.0)).await.unwrap();
    let broken = town.invariants().await.err().unwrap();
    assert!(broken.contains("says (Available"), "{broken}");
}

async fn without_its_status_a_driver_goes_home_from_an_offer(realization: Realization) {
    let town = offered(realization).await;
    let near = town.driver("near");
    let clause = "#status = :available";
    let (_, _weak) = weak(&town, Weaken::guard_on("drivers").without(clause));
    let told = town.dispatch.go_offline(&near).await.unwrap();
    assert_eq!(told, Shift::Offline);
    let broken = town.invariants().await.err().unwrap();
    assert!(broken.contains("says (Offline"), "{broken}");
}

#[tokio::test]
async fn without_the_seen_time_an_old_place_overwrites_a_new_one() {
    let town = open_alone(Realization::Cells).await;
    let index = CellIndex::new(town.dispatch.cloud().clone());
    let at = |metres: f64, seen_at| DriverLocationState {
        driver_id: town.driver("near"),
        at: north(metres),
        seen_at,
    };
    let now = town.dispatch.cloud().now();
    assert!(index.report(&at(10.0, now + 2)).await.unwrap());
    assert!(!index.report(&at(500.0, now + 1)).await.unwrap(), "older");
    let clause = "seen_at <= :seen_at";
    let (_, _weak) = weak(&town, Weaken::guard_on("driver_locations").without(clause));
    assert!(index.report(&at(500.0, now + 1)).await.unwrap());
    let near = index.nearby(north(0.0), 100.0, now).await.unwrap();
    assert!(near.is_empty(), "it is at 10 m, and the index says 500");
}

/// A late end of a shift takes the place of the next one away.
#[tokio::test]
async fn without_its_time_a_late_end_of_a_shift_forgets_the_next() {
    let town = open_alone(Realization::Cells).await;
    let (index, now) = (town.dispatch.locations(), town.dispatch.cloud().now());
    let back = DriverLocationState {
        driver_id: town.driver("near"),
        at: north(0.0),
        seen_at: now + 1,
    };
    index.report(&back).await.unwrap();
    index.forget(&back.driver_id, now).await.unwrap();
    let found = || index.nearby(north(0.0), 10.0, now);
    assert_eq!(found().await.unwrap(), std::slice::from_ref(&back));
    let clause = "seen_at <= :seen_until";
    let (_, _weak) = weak(&town, Weaken::guard_on("driver_locations").without(clause));
    index.forget(&back.driver_id, now).await.unwrap();
    assert!(found().await.unwrap().is_empty(), "online, and nowhere");
}

// Requests and quotes.

/// One id for two rides: the second wipes out the first, and its driver drives for nobody.
#[tokio::test]
async fn without_its_identity_a_ride_overwrites_another() {
    let town = offered(Realization::Cells).await;
    let mut quote = town.new_quote("alice");
    quote.fare_id = format!("{}-again", quote.fare_id);
    town.dispatch.quote_fare(&quote).await.unwrap();
    let again = NewRide {
        fare_id: quote.fare_id.clone(),
        ..town.new_ride("alice")
    };
    let told = town.dispatch.request_ride(&again).await;
    assert!(matches!(told, Err(matching::DispatchError::IdTaken(_))));
    let clause = "attribute_not_exists(ride_id)";
    let (_, _weak) = weak(&town, Weaken::guard_on("rides").without(clause));
    town.dispatch.request_ride(&again).await.unwrap();
    let broken = town.invariants().await.err().unwrap();
    assert!(broken.contains("made 1 offers, and says 0"), "{broken}");
}

#[tokio::test]
async fn without_its_mark_one_quote_pays_for_two_rides() {
    let rides = |weakened: bool| async move {
        let setup = || async {
            let town = open_alone(Realization::Cells).await;
            let quote = town.new_quote("alice");
            town.dispatch.quote_fare(&quote).await.unwrap();
            town
        };
        let asks = |suffix: &'static str| {
            move |town: Arc<Town>| async move {
                let mut new = town.new_ride("alice");
                new.ride_id.push_str(suffix);
                Told::Request(town.dispatch.request_ride(&new).await.unwrap())
            }
        };
        let actors = Interleave::of(setup)
            .actor("one", asks("-1"))
            .actor("other", asks("-2"))
            .check(|_, told| async move {
                let made = |(_, told): &&(_, Told)| {
                    matches!(told, Told::Request(matching::Requested::Requested(_)))
                };
                match told.iter().filter(made).count() {
                    1 => Ok("one ride".into()),
                    more => Err(format!("{more} rides by one quote")),
                }
            });
        let clause = "attribute_not_exists(ride_id)";
        let weaken = Arc::new(Weaken::guard_on("fares").without(clause));
        match weakened {
            true => actors.under(move || Arc::clone(&weaken)).run().await,
            false => actors.run().await,
        }
    };
    assert!(rides(false).await.is_ok());
    assert_eq!(rides(true).await.unwrap_err().why, "2 rides by one quote");
}

#[tokio::test]
async fn without_the_time_a_slow_request_uses_a_quote_that_is_over() {
    let ask = |weakened: bool| async move {
        let cloud = cloud::connect_alone_for_tests().await.unwrap();
        let town = town::open_on(cloud.clone(), Realization::Cells).await;
        let short = Rules {
            quote_ms: 10_000,
            ..rules()
        };
        let dispatch = Dispatch::with_rules(cloud.clone(), Realization::Cells, short);
        dispatch.quote_fare(&town.new_quote("alice")).await.unwrap();
        let clause = "quote_expires_at > :now";
        let _weak = weakened.then(|| weak(&town, Weaken::guard_on("fares").without(clause)));
        let slow = Arc::new(Slow::after(&town, "GetItem"));
        let _slow = cloud.tap().install(slow);
        let told = dispatch.request_ride(&town.new_ride("alice")).await;
        told.unwrap()
    };
    let refused = matching::Requested::Refused(BadQuote::Expired);
    assert_eq!(ask(false).await, refused);
    assert!(matches!(ask(true).await, matching::Requested::Requested(_)));
}

#[tokio::test]
async fn without_its_identity_a_quote_changes_under_its_ride() {
    let town = requested(Realization::Cells).await;
    let mut dear = rules();
    dear.tariff.surge_percent = 300;
    let later = Dispatch::with_rules(town.dispatch.cloud().clone(), Realization::Cells, dear);
    let quote = town.new_quote("alice");
    let same = later.quote_fare(&quote).await.unwrap();
    assert_eq!(same.amount, town.see_ride("alice").await.fare);
    let clause = "attribute_not_exists(fare_id)";
    let (_, _weak) = weak(&town, Weaken::guard_on("fares").without(clause));
    later.quote_fare(&quote).await.unwrap();
    let broken = town.invariants().await.err().unwrap();
    assert!(broken.contains("and the quote says"), "{broken}");
}

// Reject has the locks of accept; one pair shows that it shares them.

#[tokio::test]
async fn without_all_three_a_no_comes_after_the_expiry() {
    let weaken = [
        THE_OFFER,
        (
            "rides",
            "#status = :from AND current_assignment = :assignment",
        ),
        ("drivers", "#status = :from AND assignment_id = :assignment"),
    ];
    let weaken = weaken.map(|(table, clause)| Weaken::guard_on(table).without(clause));
    let actors = rejecter(Interleave::of(|| offered(Realization::Cells)), "near");
    let (actors, weaken) = under(expirer(actors, "sweeper"), weaken);
    let explored = actors.run().await.unwrap();
    assert!(weaken.iter().all(|weaken| weaken.applied() > 0));
    // Both say that they ended it.
    let both = "near rejects, sweeper expires";
    assert!(explored.seen.contains_key(both), "{:?}", explored.seen);
}
