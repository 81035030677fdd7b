//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod town;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use chaos::Interleave;
use cloud::{Guarded, Transaction};
use matching::domain::DriverLocationState;
use matching::geo_index::GeoIndex;
use matching::locations::LocationIndex;
use matching::{AssignmentStatus, Cascade, Dispatch, Realization, RideStatus};
use std::sync::Arc;
use town::{Told, Town, both_requested, north, offered, open_alone, pickup, rules};

/// The documents' propose: "creating assignment row with status=PROPOSED, driver_id, ride_id,
/// offer_expires_at". The driver is nowhere in it.
async fn naive_propose(town: &Town, rider: &str, offer: u32, driver: &str) {
    let cloud = town.dispatch.cloud();
    cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("assignments"))
        .item("assignment_id", S(town.nth(rider, offer)))
        .item("ride_id", S(town.ride(rider)))
        .item("driver_id", S(town.driver(driver)))
        .item("status", S("PROPOSED".into()))
        .item("pickup_s", N("60".into()))
        .item("proposed_at", N("0".into()))
        .item(
            "offer_expires_at",
            N((cloud.now() + rules().offer_ms).to_string()),
        )
        .send()
        .await
        .unwrap();
}

/// The documents' accept: "moving assignment PROPOSED -> ACCEPTED and ride OPEN/MATCHING -> MATCHED".
async fn naive_accept(dispatch: &Dispatch, ride_id: &str, assignment_id: &str) -> bool {
    let cloud = dispatch.cloud();
    let update = |table: &str, key: &str, id: &str, to: &str, guard: &str| {
        Update::builder()
            .table_name(cloud.names().table(table))
            .key(key, S(id.into()))
            .update_expression("SET #status = :to")
            .condition_expression(guard)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":to", S(to.into()))
    };
    let assignment = update(
        "assignments",
        "assignment_id",
        assignment_id,
        "ACCEPTED",
        "#status = :proposed",
    )
    .expression_attribute_values(":proposed", S("PROPOSED".into()));
    let ride = update(
        "rides",
        "ride_id",
        ride_id,
        "MATCHED",
        "#status = :open OR #status = :matching",
    )
    .expression_attribute_values(":open", S("OPEN".into()))
    .expression_attribute_values(":matching", S("MATCHING".into()));
    let items = [assignment, ride].map(|update| {
        TransactWriteItem::builder()
            .update(update.build().unwrap())
            .build()
    });
    let accepted = cloud.transact(&["assignment", "ride"], items.into()).await;
    matches!(accepted.unwrap(), Transaction::Committed(_))
}

/// Two rides propose one driver; the driver's phone says yes to both.
fn naive_two_rides() -> Interleave<Town, bool> {
    let asks = |rider: &'static str| {
        move |town: Arc<Town>| async move {
            naive_propose(&town, rider, 1, "near").await;
            naive_accept(&town.dispatch, &town.ride(rider), &town.nth(rider, 1)).await
        }
    };
    Interleave::of(|| both_requested(Realization::Cells))
        .actor("alice", asks("alice"))
        .actor("bob", asks("bob"))
        .check(|town, _| async move {
            let mut rides = Vec::new();
            for rider in ["alice", "bob"] {
                let offer = town.see_offer(rider, 1).await;
                let near = offer.driver_id == town.driver("near");
                if near && town.ride_status(rider).await == RideStatus::Matched {
                    rides.push(rider);
                }
            }
            match rides.as_slice() {
                [] | [_] => Ok("one ride".into()),
                _ => Err(format!("near is matched with {}", rides.join(" and "))),
            }
        })
}

#[tokio::test]
async fn row_13_a_naive_accept_gives_one_driver_two_rides() {
    let order = "alice bob alice bob".parse().unwrap();
    let broken = naive_two_rides().replay(&order).await.unwrap_err();
    assert_eq!(broken.why, "near is matched with alice and bob");
    // Nobody has to think of that order: there is none in which it holds.
    let found = naive_two_rides().run().await.unwrap_err();
    assert_eq!((found.why, found.explored), (broken.why, 0));
    // The same with the driver as the third item.
    let town = both_requested(Realization::Cells).await;
    town.offer("alice", "near").await;
    let second = town.propose("bob", "near").await;
    assert_eq!(second, matching::Proposing::DriverBusy);
}

/// The documents' expiry: "sets assignment PROPOSED -> EXPIRED, keeps ride in MATCHING/open for next
/// proposal". Found by a scan over offer_expires_at, which is left out here.
async fn naive_expire(town: &Town) {
    let cloud = town.dispatch.cloud();
    cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("assignments"))
        .key("assignment_id", S(town.nth("alice", 1)))
        .update_expression("SET #status = :expired")
        .condition_expression("#status = :proposed AND offer_expires_at <= :now")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":proposed", S("PROPOSED".into()))
        .expression_attribute_values(":expired", S("EXPIRED".into()))
        .expression_attribute_values(":now", N(cloud.now().to_string()))
        .send()
        .await
        .guarded()
        .unwrap();
}

/// The offer to near is over, and the service has gone on to far. The worker that should write
/// EXPIRED is late, and near says yes, late too.
fn naive_late_yes() -> Interleave<Town, Told> {
    let setup = || async {
        let town = town::requested(Realization::Cells).await;
        naive_propose(&town, "alice", 1, "near").await;
        town.offer_time_passes().await;
        naive_propose(&town, "alice", 2, "far").await;
        town
    };
    Interleave::of(setup)
        .actor("near", |town| async move {
            naive_accept(&town.dispatch, &town.ride("alice"), &town.nth("alice", 1)).await;
            Told::Nothing
        })
        .actor("worker", |town| async move {
            naive_expire(&town).await;
            Told::Nothing
        })
        .check(|town, _| async move {
            let (first, second) = (
                town.see_offer("alice", 1).await,
                town.see_offer("alice", 2).await,
            );
            match (first.status, second.status) {
                (AssignmentStatus::Accepted, AssignmentStatus::Proposed) => {
                    Err("near's late yes took the ride that far has been asked for".into())
                }
                _ => Ok("the late yes was refused".into()),
            }
        })
}

#[tokio::test]
async fn row_14_a_naive_late_yes_wins_after_the_reassignment() {
    let broken = naive_late_yes()
        .replay(&"near worker".parse().unwrap())
        .await
        .unwrap_err();
    let why = "near's late yes took the ride that far has been asked for";
    assert_eq!(broken.why, why);
    let held = naive_late_yes()
        .replay(&"worker near".parse().unwrap())
        .await;
    assert_eq!(held.unwrap(), "the late yes was refused");
    // The same moment with the guards that look at the time and at the ride's current offer: the
    // worker may be as late as it likes.
    let town = offered(Realization::Cells).await;
    town.offer_time_passes().await;
    let (near, first) = (town.driver("near"), town.nth("alice", 1));
    let told = town.dispatch.accept(&near, &first).await.unwrap();
    assert!(matches!(told, matching::Accepting::Refused(_)), "{told:?}");
}

/// The documents' geo index: GEOADD, GEOSEARCH, and nothing that forgets.
async fn naive_nearby(town: &Town) -> Vec<String> {
    let cloud = town.dispatch.cloud();
    let mut redis = cloud.redis().await.unwrap();
    let mut search = redis::cmd("GEOSEARCH");
    search.arg(&GeoIndex::new(cloud.clone()).keys()[0]);
    search.arg("FROMLONLAT");
    search
        .arg(pickup().lon_degrees())
        .arg(pickup().lat_degrees());
    search.arg("BYRADIUS").arg(900).arg("m").arg("ASC");
    search.query_async(&mut redis).await.unwrap()
}

#[tokio::test]
async fn row_15_a_naive_index_proposes_a_driver_whose_phone_died() {
    let town = open_alone(Realization::Geo).await;
    town.request("alice").await;
    // Near's phone dies. Two hours later everybody else still reports.
    let clock = town.dispatch.cloud().clock();
    clock.advance(std::time::Duration::from_secs(7_200));
    for name in ["far", "farther"] {
        let driver = town.driver(name);
        let at = north(if name == "far" { 300.0 } else { 600.0 });
        town.dispatch.report_location(&driver, at).await.unwrap();
    }
    let found = naive_nearby(&town).await;
    assert_eq!(found.first(), Some(&town.driver("near")), "a dead phone");
    // The same moment, with the last-seen set.
    let told = town
        .dispatch
        .next_candidate(&town.ride("alice"))
        .await
        .unwrap();
    let Cascade::Offered(offer) = told else {
        panic!("{told:?}");
    };
    assert_eq!(offer.driver_id, town.driver("far"));
    // And pruned, the map forgets the phone altogether.
    assert_eq!(town.dispatch.prune_locations().await.unwrap(), 1);
    let found = naive_nearby(&town).await;
    assert_eq!(found.first(), Some(&town.driver("far")));
    let index = GeoIndex::new(town.dispatch.cloud().clone());
    let late = DriverLocationState {
        driver_id: town.driver("near"),
        at: north(100.0),
        seen_at: clock.now(),
    };
    assert!(index.report(&late).await.unwrap(), "and it can come back");
}
