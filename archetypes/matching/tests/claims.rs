//! The promises of the README, one test each, by their sentences.
#![allow(clippy::unwrap_used)]

mod town;

use chaos::{Conflicts, Deaf, Faults, Says, race};
use cloud::Clock;
use cloud::item::{n, s};
use cloud::tap::{Request, Service, Verdict};
use matching::accept::TooLate;
use matching::domain::{Tariff, assignment_id};
use matching::request_ride::BadQuote;
use matching::{
    Accepting, AssignmentStatus, Cancelling, Cascade, Dispatch, DispatchError, DriverStatus,
    Expiry, Moving, NewQuote, NewRide, Point, Proposing, Realization, Rejecting, Requested,
    RideStatus, Rules, Shift, Starting, TripStatus,
};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use town::{
    ComesBack, Halfway, Slow, Town, broken, driving, empty_alone, matched, north, offered,
    open_alone, pickup, requested, rules,
};

in_both_realizations!(
    a_driver_has_at_most_one_active_ride,
    a_ride_has_at_most_one_accepted_assignment,
    every_request_ends_matched_cancelled_or_no_drivers,
    a_late_yes_never_wins,
    a_driver_is_available_again_after_every_path_that_ends_an_offer,
    one_driver_is_asked_at_a_time,
    the_soonest_is_asked_first_not_the_nearest,
    who_refused_is_not_asked_again,
    a_ride_makes_no_more_offers_than_the_cap,
    a_ride_waits_for_drivers_to_come_and_then_ends,
    stale_drivers_are_never_candidates,
    busy_drivers_are_never_candidates,
    an_offer_that_is_over_blocks_nobody_though_no_sweeper_runs,
    the_fare_stays_what_was_quoted,
    one_quote_is_for_one_ride_of_its_rider_in_time,
    a_trip_moves_only_forward,
    the_rider_may_cancel_at_every_point,
    the_driver_may_cancel_at_every_point,
    a_ride_that_is_given_back_finds_another_driver,
    a_trip_that_nobody_starts_is_started_by_a_sweeper,
    a_driver_who_is_needed_cannot_go_home,
    each_ride_id_is_one_ride,
    a_lost_answer_is_resolved_by_asking,
    a_conflict_with_another_transaction_is_tried_again,
    due_rides_are_found_by_a_sparse_index,
    a_stale_index_only_delays,
    one_ride_that_cannot_be_tended_keeps_no_other,
    bad_input_is_refused_before_any_write,
    only_the_one_who_was_asked_may_answer,
    a_batch_is_matched_in_the_least_total_time,
    a_batch_makes_the_offers_of_a_sweep_under_the_same_guards,
    what_fails_beside_a_conflict_decides_nothing,
    a_batch_asks_the_next_when_the_chosen_driver_is_busy,
    a_ride_ends_though_the_map_cannot_be_read,
    a_sweeper_whose_clock_is_ahead_wipes_no_map,
    a_ride_looks_past_a_crowd_of_busy_drivers,
    a_shard_that_cannot_be_read_keeps_no_other,
    a_late_end_of_a_shift_does_not_forget_the_next,
);

/// What was told does not matter here; the tables do.
fn ignore<T>(_told: T) {}

/// So many rides and drivers, all at once, drivers who say yes to everything: each has one.
async fn a_driver_has_at_most_one_active_ride(realization: Realization) {
    let town = Arc::new(open_alone(realization).await);
    let rides: Vec<_> = (0..10).map(|n| format!("rider-{n}")).collect();
    for rider in &rides {
        town.request(rider).await;
    }
    let (shared, riders) = (Arc::clone(&town), rides.clone());
    let told = race(10, move |racer| {
        let (town, rider) = (Arc::clone(&shared), riders[racer].clone());
        async move {
            let ride = town.ride(&rider);
            match town.dispatch.next_candidate(&ride).await.unwrap() {
                Cascade::Offered(offer) => {
                    let yes = town
                        .dispatch
                        .accept(&offer.driver_id, &offer.assignment_id)
                        .await;
                    yes.unwrap() == Accepting::Accepted
                }
                _ => false,
            }
        }
    })
    .await;
    assert_eq!(told.iter().filter(|yes| **yes).count(), 3, "{told:?}");
    let rides: Vec<_> = rides.iter().map(|rider| town.ride(rider)).collect();
    let drivers = ["near", "far", "farther"].map(|name| town.driver(name));
    let state = town.invariants_of(&rides, &drivers).await.unwrap();
    let busy = |d: &&matching::DriverState| d.status == DriverStatus::Assigned;
    assert_eq!(state.drivers.iter().filter(busy).count(), 3);
}

/// Ten matchers of one ride, and every driver who is asked says yes.
async fn a_ride_has_at_most_one_accepted_assignment(realization: Realization) {
    let town = Arc::new(requested(realization).await);
    let shared = Arc::clone(&town);
    let told = race(10, move |_| {
        let town = Arc::clone(&shared);
        async move {
            let ride = town.ride("alice");
            match town.dispatch.next_candidate(&ride).await.unwrap() {
                Cascade::Offered(o) => {
                    let yes = town.dispatch.accept(&o.driver_id, &o.assignment_id).await;
                    Some(yes.unwrap())
                }
                _ => None,
            }
        }
    })
    .await;
    let yes = told.iter().filter(|t| **t == Some(Accepting::Accepted));
    assert_eq!(yes.count(), 1, "{told:?}");
    let state = town.invariants().await.unwrap();
    assert_eq!(state.offers.len(), 1);
}

/// Twelve rides, six drivers who do what they like, riders who give up, sweepers. It ends.
async fn every_request_ends_matched_cancelled_or_no_drivers(realization: Realization) {
    for seed in 0..3 {
        let mut random = StdRng::seed_from_u64(seed);
        let town = empty_alone(realization).await;
        let names: Vec<_> = (0..6).map(|n| format!("driver-{n}")).collect();
        for (number, name) in names.iter().enumerate() {
            town.online(name, north(80.0 * number as f64)).await;
        }
        let riders: Vec<_> = (0..12).map(|n| format!("rider-{n}")).collect();
        for rider in &riders {
            town.request(rider).await;
        }
        let mut ends = Vec::new();
        for round in 0.. {
            assert!(round < 200, "seed {seed}: it does not end");
            town.sweep().await;
            let mut open = 0;
            for rider in &riders {
                let ride = town.see_ride(rider).await;
                match (ride.status, &ride.driver_id, &ride.current_assignment) {
                    (RideStatus::Open, ..) => open += 1,
                    (RideStatus::Matching, Some(driver), Some(offer)) => {
                        open += 1;
                        match random.random_range(0..10) {
                            0..2 => ignore(town.dispatch.accept(driver, offer).await.unwrap()),
                            2..5 => ignore(town.dispatch.reject(driver, offer).await.unwrap()),
                            5 => ignore(town.dispatch.cancel_ride(&ride.ride_id).await.unwrap()),
                            _ => {}
                        }
                    }
                    // Some drivers think again.
                    (RideStatus::Matched, Some(driver), Some(offer))
                        if ride.due_at.is_some() && random.random_range(0..4) == 0 =>
                    {
                        open += 1;
                        let told = town.dispatch.cancel_assignment(driver, offer).await;
                        told.unwrap();
                    }
                    _ => {}
                }
            }
            if open == 0 {
                break;
            }
            let clock = town.dispatch.cloud().clock();
            clock.advance(Duration::from_millis(random.random_range(500..9_000)));
            for (number, name) in names.iter().enumerate() {
                let at = north(80.0 * number as f64);
                let driver = town.driver(name);
                town.dispatch.report_location(&driver, at).await.unwrap();
            }
        }
        let rides: Vec<_> = riders.iter().map(|rider| town.ride(rider)).collect();
        let drivers: Vec<_> = names.iter().map(|name| town.driver(name)).collect();
        let state = town.invariants_of(&rides, &drivers).await.unwrap();
        for ride in state.rides {
            let over = matches!(
                ride.status,
                RideStatus::Matched | RideStatus::Cancelled | RideStatus::NoDrivers
            );
            assert!(over, "seed {seed}: {ride:?}");
            if !ends.contains(&ride.status) {
                ends.push(ride.status);
            }
        }
        assert_eq!(ends.len(), 3, "seed {seed}: every end is seen: {ends:?}");
    }
}

async fn a_late_yes_never_wins(realization: Realization) {
    let town = offered(realization).await;
    town.offer_time_passes().await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let yes = || async { town.dispatch.accept(&near, &first).await.unwrap() };
    // Nobody has written down that it is over.
    assert_eq!(yes().await, Accepting::Refused(TooLate::Expired));
    // Somebody has, and the next driver has been asked.
    town.sweep().await;
    assert_eq!(
        town.see_ride("alice").await.driver_id,
        Some(town.driver("far"))
    );
    assert_eq!(yes().await, Accepting::Refused(TooLate::Expired));
    // The next driver has said yes.
    let (far, second) = (town.driver("far"), town.nth("alice", 2));
    let told = town.dispatch.accept(&far, &second).await.unwrap();
    assert_eq!(told, Accepting::Accepted);
    assert_eq!(yes().await, Accepting::Refused(TooLate::Expired));
    town.invariants().await.unwrap();
}

async fn a_driver_is_available_again_after_every_path_that_ends_an_offer(realization: Realization) {
    for path in [
        "reject",
        "expire",
        "cancel",
        "withdraw",
        "give back",
        "complete",
    ] {
        let town = offered(realization).await;
        let (near, offer) = (town.driver("near"), town.nth("alice", 1));
        let dispatch = &town.dispatch;
        assert_eq!(town.see_driver("near").await.status, DriverStatus::Offered);
        if matches!(path, "cancel" | "give back" | "complete") {
            dispatch.accept(&near, &offer).await.unwrap();
            assert_eq!(town.see_driver("near").await.status, DriverStatus::Assigned);
        }
        match path {
            "reject" => ignore(dispatch.reject(&near, &offer).await.unwrap()),
            "expire" => {
                town.offer_time_passes().await;
                let told = dispatch.expire_offer(&town.ride("alice")).await.unwrap();
                assert_eq!(told, Expiry::Expired);
            }
            "cancel" | "withdraw" => {
                ignore(dispatch.cancel_ride(&town.ride("alice")).await.unwrap());
            }
            "give back" => ignore(dispatch.cancel_assignment(&near, &offer).await.unwrap()),
            _ => {
                town.start("near").await;
                for to in [
                    TripStatus::Arrived,
                    TripStatus::PickedUp,
                    TripStatus::InProgress,
                    TripStatus::Completed,
                ] {
                    assert_eq!(town.advance("near", to).await, Moving::Moved);
                }
            }
        }
        let driver = town.see_driver("near").await;
        assert_eq!(driver.status, DriverStatus::Available, "{path}");
        // And really: the next ride asks, and no lock is in its way.
        town.request("bob").await;
        town.offer("bob", "near").await;
        town.invariants().await.unwrap();
    }
}

/// Never "ask many and take the first".
async fn one_driver_is_asked_at_a_time(realization: Realization) {
    let town = requested(realization).await;
    let ride = town.ride("alice");
    let mut asked = Vec::new();
    for name in ["near", "far", "farther"] {
        let told = town.dispatch.next_candidate(&ride).await.unwrap();
        let Cascade::Offered(offer) = told else {
            panic!("{told:?}");
        };
        assert_eq!(offer.driver_id, town.driver(name));
        asked.push(offer.assignment_id.clone());
        // While one is asked, nobody else is.
        let again = town.dispatch.next_candidate(&ride).await.unwrap();
        assert_eq!(again, Cascade::Elsewhere(RideStatus::Matching));
        town.invariants().await.unwrap();
        let driver = &offer.driver_id;
        town.dispatch
            .reject(driver, &offer.assignment_id)
            .await
            .unwrap();
    }
    let offers = town
        .dispatch
        .offers_of(&town.see_ride("alice").await)
        .await
        .unwrap();
    let ids: Vec<_> = offers.iter().map(|o| o.assignment_id.clone()).collect();
    assert_eq!(ids, asked);
}

/// One is 400 m away around a corner, the other 450 m straight on. Streets decide.
async fn the_soonest_is_asked_first_not_the_nearest(realization: Realization) {
    let town = empty_alone(realization).await;
    let corner = {
        let up = north(290.0);
        let degrees = 290.0 / (111_195.0 * pickup().lat_degrees().to_radians().cos());
        Point::degrees(up.lat_degrees(), up.lon_degrees() + degrees).unwrap()
    };
    town.online("corner", corner).await;
    town.online("straight", north(450.0)).await;
    town.request("alice").await;
    let ride = town.see_ride("alice").await;
    let view = town.dispatch.find_nearby(ride.pickup, &ride.refused_by, 9);
    let view = view.await.unwrap();
    let [first, second] = view.candidates.as_slice() else {
        panic!("{view:?}");
    };
    assert_eq!(first.driver_id, town.driver("straight"));
    assert!(first.pickup_s < second.pickup_s);
    assert!(
        first.distance_m > second.distance_m,
        "the nearest is second"
    );
    town.dispatch.next_candidate(&ride.ride_id).await.unwrap();
    let asked = town.see_ride("alice").await.driver_id;
    assert_eq!(asked, Some(town.driver("straight")));
}

async fn who_refused_is_not_asked_again(realization: Realization) {
    let town = requested(realization).await;
    let ride = town.ride("alice");
    town.offer("alice", "near").await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    town.dispatch.reject(&near, &first).await.unwrap();
    town.dispatch.next_candidate(&ride).await.unwrap();
    town.offer_time_passes().await;
    town.sweep().await;
    // Near said no, far said nothing; farther says yes and thinks again.
    let (farther, third) = (town.driver("farther"), town.nth("alice", 3));
    let told = town.dispatch.accept(&farther, &third).await.unwrap();
    assert_eq!(told, Accepting::Accepted);
    town.dispatch
        .cancel_assignment(&farther, &third)
        .await
        .unwrap();
    let told = town.dispatch.next_candidate(&ride).await.unwrap();
    assert!(
        matches!(told, Cascade::Waiting(_)),
        "nobody is left: {told:?}"
    );
    let state = town.invariants().await.unwrap();
    assert!(
        state
            .drivers
            .iter()
            .all(|d| d.status == DriverStatus::Available)
    );
    // Another ride asks them all the same.
    town.request("bob").await;
    let told = town
        .dispatch
        .next_candidate(&town.ride("bob"))
        .await
        .unwrap();
    assert!(matches!(told, Cascade::Offered(_)), "{told:?}");
}

async fn a_ride_makes_no_more_offers_than_the_cap(realization: Realization) {
    let town = open_alone(realization).await;
    let capped = Rules {
        max_offers: 2,
        ..rules()
    };
    let cloud = town.dispatch.cloud().clone();
    let dispatch = Dispatch::with_rules(cloud, realization, capped);
    town.request("alice").await;
    let ride = town.ride("alice");
    for _ in 0..2 {
        let told = dispatch.next_candidate(&ride).await.unwrap();
        let Cascade::Offered(offer) = told else {
            panic!("{told:?}");
        };
        let driver = &offer.driver_id;
        dispatch.reject(driver, &offer.assignment_id).await.unwrap();
    }
    // A third driver is free, and there is time.
    let told = dispatch.next_candidate(&ride).await.unwrap();
    assert_eq!(told, Cascade::NoDrivers);
    assert_eq!(town.ride_status("alice").await, RideStatus::NoDrivers);
    town.invariants().await.unwrap();
}

async fn a_ride_waits_for_drivers_to_come_and_then_ends(realization: Realization) {
    let town = empty_alone(realization).await;
    for rider in ["alice", "bob"] {
        let created = town.request(rider).await.created_at;
        let told = town
            .dispatch
            .next_candidate(&town.ride(rider))
            .await
            .unwrap();
        assert_eq!(told, Cascade::Waiting(created + rules().retry_ms));
    }
    town.pass(rules().retry_ms).await;
    town.online("near", north(100.0)).await;
    let told = town.sweep().await;
    assert!(told.iter().any(|told| matches!(told, Cascade::Offered(_))));
    assert!(told.iter().any(|told| matches!(told, Cascade::Waiting(_))));
    let (mut rounds, mut ended) = (0, None);
    while ended.is_none() {
        rounds += 1;
        assert!(rounds < 100);
        town.pass(1_000).await;
        town.sweep().await;
        for rider in ["alice", "bob"] {
            if town.ride_status(rider).await == RideStatus::NoDrivers {
                ended = Some(town.dispatch.cloud().now());
            }
        }
    }
    // Not before its time.
    let waited = ended.unwrap() - town.see_ride("bob").await.created_at;
    assert!(waited >= rules().search_ms, "{waited}");
    town.invariants().await.unwrap();
}

async fn stale_drivers_are_never_candidates(realization: Realization) {
    let town = requested(realization).await;
    let clock = town.dispatch.cloud().clock();
    clock.advance(Duration::from_millis(rules().fresh_ms as u64));
    let far = town.driver("far");
    town.dispatch
        .report_location(&far, north(300.0))
        .await
        .unwrap();
    let ride = town.see_ride("alice").await;
    let view = town.dispatch.find_nearby(ride.pickup, &ride.refused_by, 9);
    let found: Vec<_> = view
        .await
        .unwrap()
        .candidates
        .into_iter()
        .map(|c| c.driver_id)
        .collect();
    assert_eq!(found, [far]);
}

async fn busy_drivers_are_never_candidates(realization: Realization) {
    let town = matched(realization).await;
    town.request("bob").await;
    town.offer("bob", "far").await;
    town.online("off", north(10.0)).await;
    town.dispatch.go_offline(&town.driver("off")).await.unwrap();
    let nobody = Default::default();
    let view = town.dispatch.find_nearby(pickup(), &nobody, 9);
    let found = view.await.unwrap().candidates;
    let found: Vec<_> = found.into_iter().map(|c| c.driver_id).collect();
    assert_eq!(found, [town.driver("farther")]);
}

async fn an_offer_that_is_over_blocks_nobody_though_no_sweeper_runs(realization: Realization) {
    let town = offered(realization).await;
    town.offer_time_passes().await;
    town.request("bob").await;
    let told = town
        .dispatch
        .next_candidate(&town.ride("bob"))
        .await
        .unwrap();
    let Cascade::Offered(offer) = told else {
        panic!("{told:?}");
    };
    assert_eq!(offer.driver_id, town.driver("near"));
    // Bob's matcher has ended Alice's offer on the way, and her ride goes on.
    assert_eq!(town.ride_status("alice").await, RideStatus::Open);
    let alice = town.see_offer("alice", 1).await;
    assert_eq!(alice.status, AssignmentStatus::Expired);
    town.invariants().await.unwrap();
}

async fn the_fare_stays_what_was_quoted(realization: Realization) {
    let town = open_alone(realization).await;
    let quote = town.new_quote("alice");
    let quoted = town.dispatch.quote_fare(&quote).await.unwrap().amount;
    let surge = Rules {
        tariff: Tariff {
            surge_percent: 250,
            ..Tariff::default()
        },
        ..rules()
    };
    let cloud = town.dispatch.cloud().clone();
    let dear = Dispatch::with_rules(cloud, realization, surge);
    let told = dear.request_ride(&town.new_ride("alice")).await.unwrap();
    let Requested::Requested(ride) = told else {
        panic!("{told:?}");
    };
    assert_eq!(ride.fare, quoted);
    assert_eq!(dear.quote_fare(&quote).await.unwrap().amount, quoted);
    let other = NewQuote {
        fare_id: format!("{}-2", quote.fare_id),
        ..quote
    };
    let now = dear.quote_fare(&other).await.unwrap().amount;
    assert_eq!(now, quoted * 250 / 100);
    town.invariants().await.unwrap();
}

async fn one_quote_is_for_one_ride_of_its_rider_in_time(realization: Realization) {
    let town = requested(realization).await;
    let ask = |ride: NewRide| {
        let dispatch = town.dispatch.clone();
        async move { dispatch.request_ride(&ride).await.unwrap() }
    };
    let mut second = town.new_ride("alice");
    second.ride_id.push_str("-2");
    assert_eq!(
        ask(second.clone()).await,
        Requested::Refused(BadQuote::Used)
    );
    second.rider_id = "bob".into();
    assert_eq!(ask(second).await, Requested::Refused(BadQuote::NotYours));
    let quote = town.new_quote("bob");
    town.dispatch.quote_fare(&quote).await.unwrap();
    town.pass(rules().quote_ms).await;
    let late = ask(town.new_ride("bob")).await;
    assert_eq!(late, Requested::Refused(BadQuote::Expired));
    let unknown = town.dispatch.request_ride(&town.new_ride("carol")).await;
    assert!(matches!(unknown, Err(DispatchError::UnknownFare(_))));
}

async fn a_trip_moves_only_forward(realization: Realization) {
    let way = [
        TripStatus::EnRoute,
        TripStatus::Arrived,
        TripStatus::PickedUp,
        TripStatus::InProgress,
        TripStatus::Completed,
    ];
    for (place, at) in way.iter().enumerate() {
        for (wanted, to) in way.iter().enumerate().skip(1) {
            let town = driving(realization, *at).await;
            let told = town.advance("near", *to).await;
            let expected = if wanted == place + 1 {
                Moving::Moved
            } else if wanted <= place {
                Moving::Before(*at)
            } else {
                Moving::Refused(*at)
            };
            assert_eq!(told, expected, "{at:?} → {to:?}");
            town.invariants().await.unwrap();
        }
    }
    let town = driving(realization, TripStatus::Arrived).await;
    town.dispatch
        .cancel_ride(&town.ride("alice"))
        .await
        .unwrap();
    let told = town.advance("near", TripStatus::PickedUp).await;
    assert_eq!(told, Moving::Refused(TripStatus::Cancelled));
    let told = town.start("near").await;
    assert!(matches!(told, Starting::Before(trip) if trip.status == TripStatus::Cancelled));
}

async fn the_rider_may_cancel_at_every_point(realization: Realization) {
    let cancel = |town: Town| async move {
        let told = town
            .dispatch
            .cancel_ride(&town.ride("alice"))
            .await
            .unwrap();
        town.invariants().await.unwrap();
        let again = town.dispatch.cancel_ride(&town.ride("alice")).await;
        (told, again.unwrap(), town)
    };
    let cancelled = Cancelling::Cancelled(RideStatus::Cancelled);
    let over = Cancelling::Over(RideStatus::Cancelled);
    let points = [
        requested(realization).await,
        offered(realization).await,
        matched(realization).await,
        driving(realization, TripStatus::EnRoute).await,
        driving(realization, TripStatus::Arrived).await,
        driving(realization, TripStatus::PickedUp).await,
        driving(realization, TripStatus::InProgress).await,
    ];
    for town in points {
        let (told, again, town) = cancel(town).await;
        assert_eq!((&told, &again), (&cancelled, &over));
        for name in ["near", "far", "farther"] {
            let driver = town.see_driver(name).await;
            assert_eq!(driver.status, DriverStatus::Available);
        }
    }
    let done = driving(realization, TripStatus::Completed).await;
    let (told, again, _) = cancel(done).await;
    assert_eq!(
        (told, again),
        (Cancelling::Completed, Cancelling::Completed)
    );
}

async fn the_driver_may_cancel_at_every_point(realization: Realization) {
    let points = [
        (offered(realization).await, RideStatus::Open),
        (matched(realization).await, RideStatus::Open),
        (
            driving(realization, TripStatus::EnRoute).await,
            RideStatus::Open,
        ),
        (
            driving(realization, TripStatus::Arrived).await,
            RideStatus::Open,
        ),
        (
            driving(realization, TripStatus::PickedUp).await,
            RideStatus::Cancelled,
        ),
        (
            driving(realization, TripStatus::InProgress).await,
            RideStatus::Cancelled,
        ),
    ];
    for (town, after) in points {
        let (near, offer) = (town.driver("near"), town.nth("alice", 1));
        let told = town
            .dispatch
            .cancel_assignment(&near, &offer)
            .await
            .unwrap();
        assert_eq!(told, Cancelling::Cancelled(after));
        assert_eq!(town.ride_status("alice").await, after);
        assert_eq!(
            town.see_driver("near").await.status,
            DriverStatus::Available
        );
        town.invariants().await.unwrap();
        let again = town
            .dispatch
            .cancel_assignment(&near, &offer)
            .await
            .unwrap();
        assert!(
            matches!(
                again,
                Cancelling::Over(_) | Cancelling::Refused(TooLate::Rejected)
            ),
            "{again:?}"
        );
    }
    let town = driving(realization, TripStatus::Completed).await;
    let (near, offer) = (town.driver("near"), town.nth("alice", 1));
    let told = town
        .dispatch
        .cancel_assignment(&near, &offer)
        .await
        .unwrap();
    assert_eq!(told, Cancelling::Completed);
}

async fn a_ride_that_is_given_back_finds_another_driver(realization: Realization) {
    let town = driving(realization, TripStatus::Arrived).await;
    // Long after the search had its time.
    town.pass(20 * 60_000).await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    town.dispatch
        .cancel_assignment(&near, &first)
        .await
        .unwrap();
    town.sweep().await;
    let (far, second) = (town.driver("far"), town.nth("alice", 2));
    let told = town.dispatch.accept(&far, &second).await.unwrap();
    assert_eq!(told, Accepting::Accepted);
    let told = town.dispatch.start_trip(&far, &second).await.unwrap();
    assert!(matches!(told, Starting::Started(_)));
    town.invariants().await.unwrap();
    // The first trip is over, and stays so.
    assert_eq!(
        town.advance("near", TripStatus::PickedUp).await,
        Moving::Refused(TripStatus::Cancelled)
    );
}

async fn a_trip_that_nobody_starts_is_started_by_a_sweeper(realization: Realization) {
    let town = matched(realization).await;
    assert!(town.sweep().await.is_empty(), "the driver has a moment");
    town.pass(rules().start_ms).await;
    town.sweep().await;
    let trip = town.beside().trip(&town.nth("alice", 1)).await.unwrap();
    assert_eq!(trip.unwrap().status, TripStatus::EnRoute);
    let told = town.start("near").await;
    assert!(matches!(told, Starting::Before(_)), "{told:?}");
    assert!(town.sweep().await.is_empty(), "nothing is due any more");
}

async fn a_driver_who_is_needed_cannot_go_home(realization: Realization) {
    let town = offered(realization).await;
    let near = town.driver("near");
    let leave = || async { town.dispatch.go_offline(&near).await.unwrap() };
    assert_eq!(leave().await, Shift::Busy(DriverStatus::Offered));
    let offer = town.nth("alice", 1);
    town.dispatch.accept(&near, &offer).await.unwrap();
    assert_eq!(leave().await, Shift::Busy(DriverStatus::Assigned));
    town.dispatch
        .cancel_ride(&town.ride("alice"))
        .await
        .unwrap();
    assert_eq!(leave().await, Shift::Offline);
    assert_eq!(leave().await, Shift::Offline, "sent again");
    let stranger = town.dispatch.go_offline("nobody").await;
    assert!(matches!(stranger, Err(DispatchError::UnknownDriver(_))));
}

async fn each_ride_id_is_one_ride(realization: Realization) {
    let town = offered(realization).await;
    let again = town.dispatch.request_ride(&town.new_ride("alice")).await;
    let Requested::Before(ride) = again.unwrap() else {
        panic!("it was requested before");
    };
    assert_eq!(ride.status, RideStatus::Matching, "as it stands now");
    let taken = NewRide {
        fare_id: format!("{}-fare-bob", town.id),
        rider_id: "bob".into(),
        ..town.new_ride("alice")
    };
    town.dispatch
        .quote_fare(&town.new_quote("bob"))
        .await
        .unwrap();
    let told = town.dispatch.request_ride(&taken).await;
    assert!(matches!(told, Err(DispatchError::IdTaken(_))));
}

/// Every write is made and no answer to one arrives: each asks by the identity it carried.
async fn a_lost_answer_is_resolved_by_asking(realization: Realization) {
    let town = open_alone(realization).await;
    town.dispatch
        .quote_fare(&town.new_quote("alice"))
        .await
        .unwrap();
    let dispatch = town.dispatch.clone();
    let deaf = || dispatch.cloud().tap().install(Arc::new(Deaf));
    let told = {
        let _deaf = deaf();
        dispatch
            .request_ride(&town.new_ride("alice"))
            .await
            .unwrap()
    };
    let Requested::Before(ride) = told else {
        panic!("{told:?}");
    };
    let told = {
        let _deaf = deaf();
        let near = town.candidate("near");
        dispatch.propose_unlocked(&ride, &near).await.unwrap()
    };
    assert!(matches!(told, Proposing::Proposed(_)), "{told:?}");
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let told = {
        let _deaf = deaf();
        dispatch.reject(&near, &first).await.unwrap()
    };
    assert_eq!(told, Rejecting::Before);
    town.offer("alice", "far").await;
    let (far, second) = (town.driver("far"), town.nth("alice", 2));
    let _deaf = deaf();
    let told = dispatch.accept(&far, &second).await.unwrap();
    assert_eq!(told, Accepting::Before);
    let told = dispatch.start_trip(&far, &second).await.unwrap();
    assert!(matches!(told, Starting::Before(_)), "{told:?}");
    for to in [
        TripStatus::Arrived,
        TripStatus::PickedUp,
        TripStatus::InProgress,
        TripStatus::Completed,
    ] {
        let told = dispatch.advance_trip(&far, &second, to).await.unwrap();
        assert_eq!(told, Moving::Before(to));
    }
    drop(_deaf);
    town.invariants().await.unwrap();
    assert_eq!(town.see_driver("far").await.status, DriverStatus::Available);
    town.request("bob").await;
    town.offer("bob", "near").await;
    let bobs = town.nth("bob", 1);
    town.dispatch.accept(&near, &bobs).await.unwrap();
    let _deaf = deaf();
    let told = dispatch.cancel_assignment(&near, &bobs).await.unwrap();
    assert_eq!(told, Cancelling::Over(RideStatus::Open));
    let told = dispatch.cancel_ride(&town.ride("bob")).await.unwrap();
    assert_eq!(told, Cancelling::Over(RideStatus::Cancelled));
    drop(_deaf);
    town.invariants().await.unwrap();
}

async fn a_conflict_with_another_transaction_is_tried_again(realization: Realization) {
    let town = requested(realization).await;
    let dispatch = town.dispatch.clone();
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let plan = Arc::new(Conflicts::on("PutItem", 2));
    let installed = dispatch.cloud().tap().install(plan.clone());
    dispatch.quote_fare(&town.new_quote("alice")).await.unwrap();
    assert_eq!(plan.left(), 0);
    drop(installed);
    let conflicts = |operation| {
        let plan = Arc::new(Conflicts::on(operation, 2));
        let installed = dispatch.cloud().tap().install(plan.clone());
        (plan, installed)
    };
    let (plan, installed) = conflicts("TransactWriteItems");
    town.offer("alice", "near").await;
    assert_eq!(plan.left(), 0);
    drop(installed);
    let (plan, installed) = conflicts("TransactWriteItems");
    let told = dispatch.accept(&near, &first).await.unwrap();
    assert_eq!((told, plan.left()), (Accepting::Accepted, 0));
    drop(installed);
    let (plan, installed) = conflicts("TransactWriteItems");
    town.start("near").await;
    assert_eq!(plan.left(), 0);
    drop(installed);
    let (plan, installed) = conflicts("UpdateItem");
    assert_eq!(
        town.advance("near", TripStatus::Arrived).await,
        Moving::Moved
    );
    assert_eq!(plan.left(), 0);
    drop(installed);
    let (plan, installed) = conflicts("TransactWriteItems");
    let told = dispatch.cancel_assignment(&near, &first).await.unwrap();
    assert_eq!(
        (told, plan.left()),
        (Cancelling::Cancelled(RideStatus::Open), 0)
    );
    drop(installed);
    town.offer("alice", "far").await;
    let (plan, installed) = conflicts("TransactWriteItems");
    let (far, second) = (town.driver("far"), town.nth("alice", 2));
    let told = dispatch.reject(&far, &second).await.unwrap();
    assert_eq!((told, plan.left()), (Rejecting::Rejected, 0));
    drop(installed);
    let (plan, installed) = conflicts("UpdateItem");
    let told = dispatch.go_offline(&near).await.unwrap();
    assert_eq!((told, plan.left()), (Shift::Offline, 0));
    drop(installed);
    town.offer("alice", "farther").await;
    town.offer_time_passes().await;
    let (plan, installed) = conflicts("TransactWriteItems");
    let told = dispatch.expire_offer(&town.ride("alice")).await.unwrap();
    assert_eq!((told, plan.left()), (Expiry::Expired, 0));
    drop(installed);
    let (plan, installed) = conflicts("TransactWriteItems");
    let told = dispatch.cancel_ride(&town.ride("alice")).await.unwrap();
    assert_eq!(
        (told, plan.left()),
        (Cancelling::Cancelled(RideStatus::Cancelled), 0)
    );
    drop(installed);
    town.invariants().await.unwrap();
}

async fn due_rides_are_found_by_a_sparse_index(realization: Realization) {
    let town = requested(realization).await;
    let due = |at: i64| {
        let dispatch = town.beside();
        async move { dispatch.due_rides(at).await.unwrap() }
    };
    let now = town.dispatch.cloud().now();
    let alice = vec![town.ride("alice")];
    assert!(due(now).await.is_empty());
    assert_eq!(due(now + rules().take_over_ms).await, alice, "open");
    town.offer("alice", "near").await;
    assert!(due(now + rules().offer_ms - 1).await.is_empty());
    assert_eq!(due(now + rules().offer_ms).await, alice, "offered");
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    town.dispatch.accept(&near, &first).await.unwrap();
    assert_eq!(due(now + rules().start_ms).await, alice, "matched");
    town.start("near").await;
    assert!(due(i64::MAX / 2).await.is_empty(), "on the way");
}

/// Reads of the index that show what was: the sweeper finds nothing, or what is over, and does no
/// harm.
async fn a_stale_index_only_delays(realization: Realization) {
    let town = offered(realization).await;
    let faults = Arc::new(Faults::seeded(7).stale_read(0.5));
    let weather = town.dispatch.cloud().tap().install(faults.clone());
    town.offer_time_passes().await;
    let mut sweeps = 0;
    while town.see_ride("alice").await.offers_made < 2 {
        sweeps += 1;
        assert!(sweeps < 100);
        town.sweep().await;
        // With cells the map may be stale too: then the ride waits a little.
        if town.see_ride("alice").await.status == RideStatus::Open {
            town.pass(rules().retry_ms).await;
        }
    }
    let (far, second) = (town.driver("far"), town.nth("alice", 2));
    if town.see_ride("alice").await.driver_id == Some(far.clone()) {
        town.dispatch.accept(&far, &second).await.unwrap();
    }
    for _ in 0..5 {
        town.sweep().await;
    }
    drop(weather);
    town.invariants().await.unwrap();
    assert!(faults.injected().values().sum::<usize>() > 0);
}

async fn one_ride_that_cannot_be_tended_keeps_no_other(realization: Realization) {
    let town = requested(realization).await;
    // What no code of this crate writes.
    let cloud = town.dispatch.cloud().beside_tap();
    for number in 0..8 {
        cloud
            .dynamodb()
            .put_item()
            .table_name(cloud.names().table("rides"))
            .item("ride_id", s(format!("{}-broken-{number}", town.id)))
            .item("due_shard", s(format!("due-{}", number % 4)))
            .item("due_at", n(0))
            .send()
            .await
            .unwrap();
    }
    town.pass(rules().take_over_ms).await;
    let swept = town.dispatch.sweep().await.unwrap();
    assert_eq!(
        swept.iter().filter(|(_, tended)| tended.is_err()).count(),
        8
    );
    assert_eq!(town.ride_status("alice").await, RideStatus::Matching);
    // A driver whose last offer was such a ride's is passed over.
    let near = town.driver("near");
    let offer = town.nth("alice", 1);
    town.dispatch.reject(&near, &offer).await.unwrap();
    cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("drivers"))
        .item("driver_id", s(&near))
        .item("status", s("OFFERED"))
        .item("assignment_id", s(format!("{}-broken-0.1", town.id)))
        .item("offer_expires_at", n(0))
        .send()
        .await
        .unwrap();
    town.request("bob").await;
    let told = town
        .dispatch
        .next_candidate(&town.ride("bob"))
        .await
        .unwrap();
    assert!(matches!(&told, Cascade::Offered(offer) if offer.driver_id == town.driver("far")));
}

async fn bad_input_is_refused_before_any_write(realization: Realization) {
    let town = open_alone(realization).await;
    let dispatch = &town.dispatch;
    let recording = dispatch.cloud().tap().record();
    let long = "x".repeat(201);
    for id in ["", long.as_str()] {
        let mut quote = town.new_quote("alice");
        quote.fare_id = id.into();
        assert!(matches!(
            dispatch.quote_fare(&quote).await,
            Err(DispatchError::BadInput(_))
        ));
        let mut ride = town.new_ride("alice");
        ride.ride_id = id.into();
        assert!(matches!(
            dispatch.request_ride(&ride).await,
            Err(DispatchError::BadInput(_))
        ));
        let shift = dispatch.go_online(id, pickup()).await;
        assert!(matches!(shift, Err(DispatchError::BadInput(_))));
        assert!(matches!(
            dispatch.accept(id, "r.1").await,
            Err(DispatchError::BadInput(_))
        ));
    }
    let nowhere = Point {
        lat: 91_000_000,
        lon: 0,
    };
    let shift = dispatch.report_location("driver", nowhere).await;
    assert!(matches!(shift, Err(DispatchError::BadInput(_))));
    let back = dispatch.advance_trip("driver", "r.1", TripStatus::Cancelled);
    assert!(matches!(back.await, Err(DispatchError::BadInput(_))));
    let wide = Rules {
        radius_m: 60_000.0,
        ..rules()
    };
    let wide = Dispatch::with_rules(dispatch.cloud().clone(), realization, wide);
    let view = wide.find_nearby(pickup(), &Default::default(), 1).await;
    assert!(matches!(view, Err(DispatchError::BadInput(_))));
    assert!(Point::degrees(f64::NAN, 0.0).is_err());
    assert!(recording.take().is_empty());
}

async fn only_the_one_who_was_asked_may_answer(realization: Realization) {
    let town = offered(realization).await;
    let (far, first) = (town.driver("far"), town.nth("alice", 1));
    let yes = town.dispatch.accept(&far, &first).await;
    assert!(matches!(yes, Err(DispatchError::NotYours(_))));
    let no = town.dispatch.reject(&far, &first).await;
    assert!(matches!(no, Err(DispatchError::NotYours(_))));
    let back = town.dispatch.cancel_assignment(&far, &first).await;
    assert!(matches!(back, Err(DispatchError::NotYours(_))));
    let nothing = assignment_id(&town.ride("alice"), 7);
    let yes = town.dispatch.accept(&far, &nothing).await;
    assert!(matches!(yes, Err(DispatchError::UnknownAssignment(_))));
    town.invariants().await.unwrap();
}

/// Alice's soonest driver is the only one near Bob. Greedy gives the driver to Alice, and Bob waits;
/// a batch gives Alice the next.
async fn a_batch_is_matched_in_the_least_total_time(realization: Realization) {
    let mut totals = Vec::new();
    for batched in [false, true] {
        let town = empty_alone(realization).await;
        // Alice waits at 0, Bob at 400 m north; drivers at 150 m north, and at 200 m south.
        town.online("between", north(150.0)).await;
        town.online("south", north(-200.0)).await;
        town.request("alice").await;
        let quote = NewQuote {
            pickup: north(400.0),
            ..town.new_quote("bob")
        };
        town.dispatch.quote_fare(&quote).await.unwrap();
        town.dispatch
            .request_ride(&town.new_ride("bob"))
            .await
            .unwrap();
        town.pass(rules().take_over_ms).await;
        let told: Vec<_> = match batched {
            true => town.dispatch.match_batch().await.unwrap(),
            false => town.dispatch.sweep().await.unwrap(),
        };
        let mut total = 0;
        for (_, told) in told {
            let told = told.unwrap();
            let Cascade::Offered(offer) = told else {
                panic!("{told:?}");
            };
            total += offer.pickup_s;
        }
        totals.push(total);
        town.invariants_of(
            &[town.ride("alice"), town.ride("bob")],
            &[town.driver("between"), town.driver("south")],
        )
        .await
        .unwrap();
    }
    // 150 + 600 by greed, if Alice is first; 200 + 250 together.
    let [greedy, batched] = totals.as_slice() else {
        panic!("{totals:?}");
    };
    assert!(batched <= greedy, "{totals:?}");
    assert_eq!(
        *batched,
        (200_f64 / 7.0).ceil() as u32 + (250_f64 / 7.0).ceil() as u32
    );
}

async fn a_batch_makes_the_offers_of_a_sweep_under_the_same_guards(realization: Realization) {
    let town = Arc::new(open_alone(realization).await);
    for rider in ["alice", "bob", "carol", "dave"] {
        town.request(rider).await;
    }
    town.pass(rules().take_over_ms).await;
    let shared = Arc::clone(&town);
    // Four batches and sweeps at once.
    race(4, move |racer| {
        let town = Arc::clone(&shared);
        async move {
            match racer % 2 {
                0 => ignore(town.dispatch.match_batch().await.unwrap()),
                _ => ignore(town.dispatch.sweep().await.unwrap()),
            }
        }
    })
    .await;
    let state = town.invariants().await.unwrap();
    let asked = state
        .rides
        .iter()
        .filter(|r| r.status == RideStatus::Matching);
    assert_eq!(asked.count(), 3, "three drivers, three offers");
    // The next batch ends what is over, and goes on.
    town.offer_time_passes().await;
    town.dispatch.match_batch().await.unwrap();
    let state = town.invariants().await.unwrap();
    let expired = state
        .offers
        .iter()
        .filter(|o| o.status == AssignmentStatus::Expired);
    assert_eq!(expired.count(), 3);
    assert!(state.offers.len() > 3, "and others have been asked");
}

/// While a yes is being committed, the same yes again finds the offer in use, and ride and driver
/// already written. It is the driver's, and must not be told otherwise; so with a no and an arrival.
async fn what_fails_beside_a_conflict_decides_nothing(realization: Realization) {
    let halfway = |town: &Town| {
        let plan = Arc::new(Halfway(2.into()));
        let installed = town.dispatch.cloud().tap().install(plan.clone());
        (plan, installed)
    };
    let town = matched(realization).await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let (_, installed) = halfway(&town);
    let told = town.dispatch.accept(&near, &first).await.unwrap();
    assert_eq!(told, Accepting::Before);
    drop(installed);

    let town = driving(realization, TripStatus::Completed).await;
    let (plan, installed) = halfway(&town);
    let told = town.advance("near", TripStatus::Completed).await;
    assert_eq!(told, Moving::Before(TripStatus::Completed));
    assert_eq!(plan.0.load(Ordering::SeqCst), 0);
    drop(installed);

    // Not yet committed, or never: then it is tried again.
    let town = offered(realization).await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let (plan, installed) = halfway(&town);
    let told = town.dispatch.reject(&near, &first).await.unwrap();
    assert_eq!(told, Rejecting::Rejected);
    assert_eq!(plan.0.load(Ordering::SeqCst), 0);
    drop(installed);
    let (_, installed) = halfway(&town);
    let told = town.dispatch.reject(&near, &first).await.unwrap();
    assert_eq!(told, Rejecting::Before);
    drop(installed);
    town.offer("alice", "far").await;
    let (far, second) = (town.driver("far"), town.nth("alice", 2));
    let (plan, _installed) = halfway(&town);
    let told = town.dispatch.accept(&far, &second).await.unwrap();
    assert_eq!(told, Accepting::Accepted);
    assert_eq!(plan.0.load(Ordering::SeqCst), 0);
    town.invariants().await.unwrap();
}

async fn a_batch_asks_the_next_when_the_chosen_driver_is_busy(realization: Realization) {
    let town = open_alone(realization).await;
    town.online_but_never_free("stuck", north(10.0)).await;
    town.request("alice").await;
    town.pass(rules().take_over_ms).await;
    let told = town.dispatch.match_batch().await.unwrap();
    let [(_, Ok(Cascade::Offered(offer)))] = told.as_slice() else {
        panic!("{told:?}");
    };
    assert_eq!(offer.driver_id, town.driver("near"));
}

async fn a_ride_ends_though_the_map_cannot_be_read(realization: Realization) {
    for batched in [false, true] {
        let town = requested(realization).await;
        let down = Says(|request: &Request| match request.service {
            Service::Redis => Verdict::LoseRequest,
            _ if request.body["IndexName"] == "by_cell" => broken(),
            _ => Verdict::Pass,
        });
        let _down = town.dispatch.cloud().tap().install(Arc::new(down));
        let sweep = || async {
            let mut told = match batched {
                true => town.dispatch.match_batch().await.unwrap(),
                false => town.dispatch.sweep().await.unwrap(),
            };
            assert_eq!(told.len(), 1);
            told.remove(0).1
        };
        town.pass(rules().take_over_ms).await;
        let told = sweep().await;
        assert!(matches!(told, Err(DispatchError::Fault(_))), "{told:?}");
        assert_eq!(town.ride_status("alice").await, RideStatus::Open);
        town.pass(rules().search_ms).await;
        assert_eq!(sweep().await.unwrap(), Cascade::NoDrivers);
        assert_eq!(town.ride_status("alice").await, RideStatus::NoDrivers);
    }
}

async fn a_sweeper_whose_clock_is_ahead_wipes_no_map(realization: Realization) {
    let town = requested(realization).await;
    let cloud = town.dispatch.cloud();
    let ahead = Clock::manual(cloud.now() + 10 * 60_000);
    let ahead = Dispatch::with_rules(cloud.with_clock(ahead), realization, rules());
    assert_eq!(ahead.prune_locations().await.unwrap(), 0);
    let told = town.dispatch.next_candidate(&town.ride("alice")).await;
    assert!(matches!(told, Ok(Cascade::Offered(_))), "{told:?}");
}

async fn a_ride_looks_past_a_crowd_of_busy_drivers(realization: Realization) {
    let town = open_alone(realization).await;
    for number in 0..20 {
        let name = format!("stuck-{number}");
        town.online_but_never_free(&name, north(10.0)).await;
    }
    town.request("alice").await;
    let told = town.dispatch.next_candidate(&town.ride("alice")).await;
    let Ok(Cascade::Offered(offer)) = told else {
        panic!("{told:?}");
    };
    assert_eq!(offer.driver_id, town.driver("near"));
}

/// All shards but Alice's: she is tended, and the sweeper says what it could not read.
async fn a_shard_that_cannot_be_read_keeps_no_other(realization: Realization) {
    for batched in [false, true] {
        let town = requested(realization).await;
        let hers = town.see_ride("alice").await.due_shard.unwrap();
        let down = Says(move |request: &Request| {
            let shard = &request.body["ExpressionAttributeValues"][":shard"]["S"];
            match shard.as_str() {
                Some(shard) if shard != hers => broken(),
                _ => Verdict::Pass,
            }
        });
        let _down = town.dispatch.cloud().tap().install(Arc::new(down));
        town.pass(rules().take_over_ms).await;
        match batched {
            true => assert!(town.dispatch.match_batch().await.is_err()),
            false => assert!(town.dispatch.sweep().await.is_err()),
        }
        assert_eq!(town.ride_status("alice").await, RideStatus::Matching);
    }
}

async fn a_late_end_of_a_shift_does_not_forget_the_next(realization: Realization) {
    let town = requested(realization).await;
    let back = Arc::new(ComesBack::after_going(&town, "near"));
    let installed = town.dispatch.cloud().tap().install(back);
    let told = town.dispatch.go_offline(&town.driver("near")).await;
    assert_eq!(told.unwrap(), Shift::Offline);
    drop(installed);
    let told = town.dispatch.next_candidate(&town.ride("alice")).await;
    let Ok(Cascade::Offered(offer)) = told else {
        panic!("{told:?}");
    };
    assert_eq!(offer.driver_id, town.driver("near"));
}

// The lock.

/// A ride that comes second to a driver costs DynamoDB nothing when there is a lock.
#[tokio::test]
async fn a_second_proposal_costs_dynamodb_nothing_when_there_is_a_lock() {
    let town = offered(Realization::Geo).await;
    let ride = town.request("bob").await;
    let recording = town.dispatch.cloud().tap().record();
    let near = town.candidate("near");
    let told = town.dispatch.propose(&ride, &near).await.unwrap();
    assert_eq!(told, Proposing::Locked);
    let calls = recording.take();
    let shapes: Vec<_> = calls.iter().map(|call| call.shape()).collect();
    assert_eq!(shapes, [format!("EVAL offer:{}", town.driver("near"))]);
}

/// Somebody died and left a lock on every driver. They are asked last, and asked.
#[tokio::test]
async fn a_lock_that_was_left_behind_decides_nothing() {
    let town = requested(Realization::Geo).await;
    let mut redis = town.dispatch.cloud().redis().await.unwrap();
    for name in ["near", "far", "farther"] {
        let mut set = redis::cmd("SET");
        set.arg(town.dispatch.lock_key(&town.driver(name)));
        let _: () = set.arg("a dead one").query_async(&mut redis).await.unwrap();
    }
    let ride = town.ride("alice");
    let told = town.dispatch.next_candidate(&ride).await.unwrap();
    let Cascade::Offered(offer) = told else {
        panic!("{told:?}");
    };
    assert_eq!(offer.driver_id, town.driver("near"));
}

/// A lock is let go only by the offer that has it.
#[tokio::test]
async fn a_lock_is_released_only_by_the_offer_that_has_it() {
    let town = offered(Realization::Geo).await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let key = town.dispatch.lock_key(&near);
    let redis = town.dispatch.cloud().redis().await.unwrap();
    let mut other = redis.clone();
    let holder = || {
        let (mut redis, key) = (redis.clone(), key.clone());
        async move {
            let get: Option<String> = redis::cmd("GET")
                .arg(key)
                .query_async(&mut redis)
                .await
                .unwrap();
            get
        }
    };
    assert_eq!(holder().await, Some(first.clone()));
    let _: () = redis::cmd("SET")
        .arg(&key)
        .arg("another")
        .query_async(&mut other)
        .await
        .unwrap();
    town.dispatch.reject(&near, &first).await.unwrap();
    assert_eq!(holder().await.as_deref(), Some("another"));
}

/// A matcher that is slow between its search and its offer: the offer's time begins with the offer.
#[tokio::test]
async fn an_offer_lasts_from_when_it_is_made() {
    let town = requested(Realization::Cells).await;
    let slow = Arc::new(Slow::after(&town, "BatchGetItem"));
    let _slow = town.dispatch.cloud().tap().install(slow);
    let told = town
        .dispatch
        .next_candidate(&town.ride("alice"))
        .await
        .unwrap();
    let Cascade::Offered(offer) = told else {
        panic!("{told:?}");
    };
    let now = town.dispatch.cloud().now();
    assert_eq!(offer.offer_expires_at, now + rules().offer_ms);
}

/// The order in which sweeps and matchers come does not matter for who is asked.
#[tokio::test]
async fn the_order_in_which_drivers_report_does_not_matter() {
    let mut random = StdRng::seed_from_u64(1);
    for _ in 0..5 {
        let town = empty_alone(Realization::Geo).await;
        let mut names = [("near", 100.0), ("far", 300.0), ("farther", 600.0)];
        names.shuffle(&mut random);
        for (name, metres) in names {
            town.online(name, north(metres)).await;
        }
        town.request("alice").await;
        town.dispatch
            .next_candidate(&town.ride("alice"))
            .await
            .unwrap();
        let asked = town.see_ride("alice").await.driver_id;
        assert_eq!(asked, Some(town.driver("near")));
    }
}
