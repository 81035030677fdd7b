//! The process dies before and after every call; then somebody goes on, as in life: the client asks
//! again, the sweeper comes by.
#![allow(clippy::unwrap_used)]

mod town;

use chaos::{CrashSweep, Faults, Swept};
use matching::{
    AssignmentStatus, Cascade, DriverStatus, Realization, Rejecting, RideStatus, TripStatus,
};
use std::sync::Arc;
use town::{Town, driving, empty_alone, matched, north, offered, open_alone, requested, rules};

in_both_realizations!(
    every_crash_point_of_a_request_recovers,
    every_crash_point_of_a_request_nobody_repeats_recovers,
    every_crash_point_of_propose_recovers,
    every_crash_point_of_accept_recovers,
    every_crash_point_of_an_accept_nobody_repeats_recovers,
    every_crash_point_of_reject_recovers,
    every_crash_point_of_a_reject_nobody_repeats_recovers,
    every_crash_point_of_expire_recovers,
    every_crash_point_of_the_cascade_recovers,
    every_crash_point_of_giving_up_recovers,
    every_crash_point_of_cancelling_an_offer_recovers,
    every_crash_point_of_cancelling_a_trip_recovers,
    every_crash_point_of_giving_a_ride_back_recovers,
    every_crash_point_of_starting_recovers,
    every_crash_point_of_completing_recovers,
    every_crash_point_of_a_shift_recovers,
    every_crash_point_of_a_whole_sweep_recovers,
    every_crash_point_of_a_batch_recovers,
    lost_requests_lost_answers_and_throttling_change_no_outcome,
);

/// As many points as calls, before and after each.
fn points(swept: &Swept, calls: usize) {
    assert_eq!(swept.points.len(), 2 * calls, "{:?}", swept.points);
}

/// How many calls it takes, with those of Redis.
fn calls(realization: Realization, dynamodb: usize, redis: usize) -> usize {
    match realization {
        Realization::Cells => dynamodb,
        Realization::Geo => dynamodb + redis,
    }
}

async fn ride_is(town: Arc<Town>, rider: &str, status: RideStatus) -> Result<(), String> {
    town.invariants().await?;
    let there = town.ride_status(rider).await;
    match there == status {
        true => Ok(()),
        false => Err(format!("{rider}'s ride is {there:?}")),
    }
}

/// Time passes and sweepers come by until nothing is due; near says yes to what it is asked.
async fn life_goes_on(town: &Town) {
    for _ in 0..15 {
        town.sweep().await;
        for rider in ["alice", "bob"] {
            let Some(ride) = town.dispatch.ride(&town.ride(rider)).await.unwrap() else {
                continue;
            };
            if let (RideStatus::Matching, Some(driver), Some(offer)) =
                (ride.status, &ride.driver_id, &ride.current_assignment)
                && *driver == town.driver("near")
            {
                town.dispatch.accept(driver, offer).await.unwrap();
            }
        }
        town.pass(5_000).await;
    }
}

async fn every_crash_point_of_a_request_recovers(realization: Realization) {
    let ask = |town: Arc<Town>| async move {
        town.dispatch
            .quote_fare(&town.new_quote("alice"))
            .await
            .unwrap();
        let new = town.new_ride("alice");
        town.dispatch.request_ride(&new).await.unwrap()
    };
    let swept = CrashSweep::of(move || open_alone(realization))
        .action("alice", ask)
        .recovery(ask)
        .check(|town| ride_is(town, "alice", RideStatus::Open))
        .run()
        .await
        .unwrap();
    points(&swept, 3);
}

/// The server dies after the request and before anybody looked for a driver. A sweeper does.
async fn every_crash_point_of_a_request_nobody_repeats_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || open_alone(realization))
        .action("alice", |town: Arc<Town>| async move {
            town.request("alice").await;
            town.dispatch
                .next_candidate(&town.ride("alice"))
                .await
                .unwrap()
        })
        .recovery(|town| async move { life_goes_on(&town).await })
        .check(|town| async move {
            town.invariants().await?;
            // Never requested, or matched: nothing is forgotten in between.
            match town.beside().ride(&town.ride("alice")).await.unwrap() {
                None => Ok(()),
                Some(ride) if ride.status == RideStatus::Matched => Ok(()),
                Some(ride) => Err(format!("the ride is {:?}", ride.status)),
            }
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 7, 1));
}

async fn every_crash_point_of_propose_recovers(realization: Realization) {
    let propose = |town: Arc<Town>| async move { town.propose("alice", "near").await };
    let swept = CrashSweep::of(move || requested(realization))
        .action("matcher", propose)
        .recovery(propose)
        .check(|town| async move {
            assert_eq!(town.see_driver("near").await.status, DriverStatus::Offered);
            ride_is(town, "alice", RideStatus::Matching).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 1));
}

async fn every_crash_point_of_accept_recovers(realization: Realization) {
    let accept = |town: Arc<Town>| async move {
        let (near, offer) = (town.driver("near"), town.nth("alice", 1));
        town.dispatch.accept(&near, &offer).await.unwrap()
    };
    let swept = CrashSweep::of(move || offered(realization))
        .action("near", accept)
        .recovery(accept)
        .check(|town| async move {
            assert_eq!(town.see_driver("near").await.status, DriverStatus::Assigned);
            ride_is(town, "alice", RideStatus::Matched).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 1, 1));
}

/// The phone dies with the answer on its way, or before. Either the match was made, and a sweeper
/// starts the trip, or it was not, and the next driver is asked.
async fn every_crash_point_of_an_accept_nobody_repeats_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || offered(realization))
        .action("near", |town: Arc<Town>| async move {
            let (near, offer) = (town.driver("near"), town.nth("alice", 1));
            town.dispatch.accept(&near, &offer).await.unwrap()
        })
        .recovery(|town| async move {
            town.offer_time_passes().await;
            town.sweep().await;
        })
        .check(|town| async move {
            town.invariants().await?;
            let ride = town.see_ride("alice").await;
            let trip = town.beside().trip(&town.nth("alice", 1)).await.unwrap();
            match (ride.status, trip) {
                (RideStatus::Matched, Some(trip)) if trip.status == TripStatus::EnRoute => Ok(()),
                (RideStatus::Matching, None) if ride.driver_id == Some(town.driver("far")) => {
                    Ok(())
                }
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 1, 1));
}

async fn every_crash_point_of_reject_recovers(realization: Realization) {
    let reject = |town: Arc<Town>| async move {
        let (near, offer) = (town.driver("near"), town.nth("alice", 1));
        town.dispatch.reject(&near, &offer).await.unwrap()
    };
    let swept = CrashSweep::of(move || offered(realization))
        .action("near", reject)
        .recovery(reject)
        .check(|town| async move {
            assert_eq!(
                town.see_driver("near").await.status,
                DriverStatus::Available
            );
            // Nothing keeps another ride from asking near, not even a lock.
            town.request("bob").await;
            town.offer("bob", "near").await;
            ride_is(town, "alice", RideStatus::Open).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 1, 1));
}

/// The server dies with the no, or right after it: the next candidate is asked all the same.
async fn every_crash_point_of_a_reject_nobody_repeats_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || offered(realization))
        .action("near", |town: Arc<Town>| async move {
            let (near, offer) = (town.driver("near"), town.nth("alice", 1));
            let told = town.dispatch.reject(&near, &offer).await.unwrap();
            assert_eq!(told, Rejecting::Rejected);
            town.dispatch
                .next_candidate(&town.ride("alice"))
                .await
                .unwrap()
        })
        .recovery(|town| async move {
            town.offer_time_passes().await;
            town.sweep().await;
        })
        .check(|town| async move {
            let ride = town.see_ride("alice").await;
            let asked = ride.driver_id.clone();
            assert!(
                asked == Some(town.driver("far")) || asked == Some(town.driver("farther")),
                "{asked:?}"
            );
            assert!(ride.refused_by.contains(&town.driver("near")));
            ride_is(town, "alice", RideStatus::Matching).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 5, 2));
}

async fn every_crash_point_of_expire_recovers(realization: Realization) {
    let expire = |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        town.late.expire_offer(&ride).await.unwrap()
    };
    let swept = CrashSweep::of(move || offered(realization))
        .action("sweeper", expire)
        .recovery(expire)
        .check(|town| async move {
            assert_eq!(
                town.see_driver("near").await.status,
                DriverStatus::Available
            );
            let offer = town.see_offer("alice", 1).await;
            assert_eq!(offer.status, AssignmentStatus::Expired);
            ride_is(town, "alice", RideStatus::Open).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 1));
}

async fn every_crash_point_of_the_cascade_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || requested(realization))
        .action("matcher", |town: Arc<Town>| async move {
            let ride = town.ride("alice");
            let told = town.dispatch.next_candidate(&ride).await.unwrap();
            assert!(matches!(told, Cascade::Offered(_)), "{told:?}");
        })
        // Nobody repeats it. The ride was due from the beginning.
        .recovery(|town| async move {
            town.pass(rules().take_over_ms).await;
            town.sweep().await;
        })
        .check(|town| async move {
            assert_eq!(town.see_driver("near").await.status, DriverStatus::Offered);
            ride_is(town, "alice", RideStatus::Matching).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 4, 1));
}

/// Nobody drives in this town. The ride waits, and ends.
async fn every_crash_point_of_giving_up_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || async move {
        let town = empty_alone(realization).await;
        town.request("alice").await;
        town
    })
    .action("matcher", |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        let told = town.dispatch.next_candidate(&ride).await.unwrap();
        assert!(matches!(told, Cascade::Waiting(_)), "{told:?}");
        town.pass(rules().search_ms).await;
        let told = town.dispatch.next_candidate(&ride).await.unwrap();
        assert_eq!(told, Cascade::NoDrivers);
    })
    .recovery(|town| async move { life_goes_on(&town).await })
    .check(|town| ride_is(town, "alice", RideStatus::NoDrivers))
    .run()
    .await
    .unwrap();
    points(&swept, 6);
}

async fn every_crash_point_of_cancelling_an_offer_recovers(realization: Realization) {
    let cancel = |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        town.dispatch.cancel_ride(&ride).await.unwrap()
    };
    let swept = CrashSweep::of(move || offered(realization))
        .action("alice", cancel)
        .recovery(cancel)
        .check(|town| async move {
            assert_eq!(
                town.see_driver("near").await.status,
                DriverStatus::Available
            );
            ride_is(town, "alice", RideStatus::Cancelled).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 1));
}

async fn every_crash_point_of_cancelling_a_trip_recovers(realization: Realization) {
    let cancel = |town: Arc<Town>| async move {
        let ride = town.ride("alice");
        town.dispatch.cancel_ride(&ride).await.unwrap()
    };
    let swept = CrashSweep::of(move || driving(realization, TripStatus::Arrived))
        .action("alice", cancel)
        .recovery(cancel)
        .check(|town| async move {
            assert_eq!(
                town.see_driver("near").await.status,
                DriverStatus::Available
            );
            ride_is(town, "alice", RideStatus::Cancelled).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 3, 1));
}

/// The driver gives it back and is gone. The ride finds another.
async fn every_crash_point_of_giving_a_ride_back_recovers(realization: Realization) {
    let give_back = |town: Arc<Town>| async move {
        let (near, offer) = (town.driver("near"), town.nth("alice", 1));
        town.dispatch
            .cancel_assignment(&near, &offer)
            .await
            .unwrap()
    };
    let swept = CrashSweep::of(move || driving(realization, TripStatus::EnRoute))
        .action("near", give_back)
        .recovery(move |town| async move {
            give_back(Arc::clone(&town)).await;
            town.sweep().await;
        })
        .check(|town| async move {
            let ride = town.see_ride("alice").await;
            assert_eq!(ride.driver_id, Some(town.driver("far")));
            ride_is(town, "alice", RideStatus::Matching).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 3, 1));
}

/// The driver's app dies between its yes and the start. A sweeper starts the trip.
async fn every_crash_point_of_starting_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || matched(realization))
        .action(
            "near",
            |town: Arc<Town>| async move { town.start("near").await },
        )
        .recovery(|town| async move {
            town.pass(rules().start_ms).await;
            town.sweep().await;
        })
        .check(|town| async move {
            let trip = town.beside().trip(&town.nth("alice", 1)).await.unwrap();
            assert_eq!(trip.unwrap().status, TripStatus::EnRoute);
            ride_is(town, "alice", RideStatus::Matched).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, 1);
}

async fn every_crash_point_of_completing_recovers(realization: Realization) {
    let drive = |town: Arc<Town>| async move {
        for to in [TripStatus::InProgress, TripStatus::Completed] {
            town.advance("near", to).await;
        }
    };
    let swept = CrashSweep::of(move || driving(realization, TripStatus::PickedUp))
        .action("near", drive)
        .recovery(drive)
        .check(|town| async move {
            let trip = town.beside().trip(&town.nth("alice", 1)).await.unwrap();
            assert_eq!(trip.unwrap().status, TripStatus::Completed);
            assert_eq!(
                town.see_driver("near").await.status,
                DriverStatus::Available
            );
            ride_is(town, "alice", RideStatus::Matched).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, 2);
}

/// A driver who is half online is not on the map, one who is half gone is not asked.
async fn every_crash_point_of_a_shift_recovers(realization: Realization) {
    let shift = |town: Arc<Town>| async move {
        let off = town.driver("off");
        town.dispatch.go_online(&off, north(50.0)).await.unwrap();
        town.dispatch.go_offline(&off).await.unwrap()
    };
    let swept = CrashSweep::of(move || requested(realization))
        .action("off", shift)
        .recovery(shift)
        .check(|town| async move {
            assert_eq!(town.see_driver("off").await.status, DriverStatus::Offline);
            let ride = town.ride("alice");
            let told = town.dispatch.next_candidate(&ride).await.unwrap();
            let Cascade::Offered(offer) = told else {
                return Err(format!("{told:?}"));
            };
            assert_eq!(offer.driver_id, town.driver("near"));
            town.invariants().await.map(|_| ())
        })
        .run()
        .await
        .unwrap();
    points(&swept, 4);
}

/// One sweep that ends an offer, asks the next, and starts a trip.
async fn every_crash_point_of_a_whole_sweep_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || async move {
        let town = offered(realization).await;
        town.request("bob").await;
        town.offer("bob", "far").await;
        let (far, offer) = (town.driver("far"), town.nth("bob", 1));
        town.dispatch.accept(&far, &offer).await.unwrap();
        town.offer_time_passes().await;
        town
    })
    .action(
        "sweeper",
        |town: Arc<Town>| async move { town.sweep().await },
    )
    .recovery(|town| async move {
        town.sweep().await;
    })
    .check(|town| async move {
        let trip = town.beside().trip(&town.nth("bob", 1)).await.unwrap();
        assert_eq!(trip.unwrap().status, TripStatus::EnRoute);
        let alice = town.see_ride("alice").await;
        assert_eq!(alice.driver_id, Some(town.driver("farther")));
        ride_is(town, "alice", RideStatus::Matching).await
    })
    .run()
    .await
    .unwrap();
    // Four shards; Alice: the ride three times, the end, the search, statuses, the offer; Bob: the
    // ride, the trip.
    points(&swept, calls(realization, 13, 2));
}

async fn every_crash_point_of_a_batch_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || async move {
        let town = requested(realization).await;
        town.request("bob").await;
        town.pass(rules().take_over_ms).await;
        town
    })
    .action("matcher", |town: Arc<Town>| async move {
        town.dispatch.match_batch().await.unwrap()
    })
    .recovery(|town| async move {
        town.dispatch.match_batch().await.unwrap();
    })
    .check(|town| async move {
        assert_eq!(town.ride_status("bob").await, RideStatus::Matching);
        ride_is(town, "alice", RideStatus::Matching).await
    })
    .run()
    .await
    .unwrap();
    // Four shards; each ride, its search, its statuses, its offer.
    points(&swept, calls(realization, 12, 2));
}

/// Seeds of bad weather over a request, a no, a yes, a trip and a rider who gives up. Whoever gets
/// no answer sends the same again until there is one.
async fn lost_requests_lost_answers_and_throttling_change_no_outcome(realization: Realization) {
    let mut injected = 0;
    for seed in 0..8 {
        let town = open_alone(realization).await;
        let faults = Arc::new(
            Faults::seeded(seed)
                .throttle(0.1)
                .lose_request(0.15)
                .lose_answer(0.15),
        );
        let weather = town.dispatch.cloud().tap().install(faults.clone());
        let dispatch = &town.dispatch;
        for rider in ["alice", "bob"] {
            let (quote, ride) = (town.new_quote(rider), town.new_ride(rider));
            while dispatch.quote_fare(&quote).await.is_err() {}
            while dispatch.request_ride(&ride).await.is_err() {}
        }
        let alice = town.ride("alice");
        while town.see_ride("alice").await.status != RideStatus::Matching {
            let _ = dispatch.next_candidate(&alice).await;
        }
        let near = town.driver("near");
        while dispatch.reject(&near, &town.nth("alice", 1)).await.is_err() {}
        while town.see_ride("alice").await.offers_made < 2 {
            let _ = dispatch.next_candidate(&alice).await;
        }
        let (far, second) = (town.driver("far"), town.nth("alice", 2));
        while dispatch.accept(&far, &second).await.is_err() {}
        while dispatch.start_trip(&far, &second).await.is_err() {}
        for to in [
            TripStatus::Arrived,
            TripStatus::PickedUp,
            TripStatus::InProgress,
            TripStatus::Completed,
        ] {
            while dispatch.advance_trip(&far, &second, to).await.is_err() {}
        }
        while dispatch.cancel_ride(&town.ride("bob")).await.is_err() {}
        drop(weather);
        injected += faults.injected().values().sum::<usize>();
        town.invariants().await.unwrap();
        assert_eq!(town.ride_status("alice").await, RideStatus::Matched);
        assert_eq!(town.ride_status("bob").await, RideStatus::Cancelled);
        let trip = town.beside().trip(&second).await.unwrap().unwrap();
        assert_eq!(trip.status, TripStatus::Completed, "seed {seed}");
    }
    assert!(injected > 50, "only {injected} faults: this proves nothing");
}
