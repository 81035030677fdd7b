//! The story: one evening with locations and a lock in Redis, the same with DynamoDB alone; then
//! what goes beyond the documents.

use crate::api::SERVE;
use crate::domain::{Candidate, DriverStatus, RideRequestState, TripStatus};
use crate::simulate::SIMULATE;
use crate::tables::{ACTIONS, MACHINES, TABLES};
use crate::{
    Accepting, Cancelling, Cascade, Dispatch, DriverAssignmentState, Expiry, Moving, NewQuote,
    NewRide, Point, Proposing, Realization, Rejecting, Requested, RideStatus, Shift, Starting,
};
use anyhow::{Context, Result, bail};
use cloud::Cloud;
use std::time::Duration;
use walkthrough::{Archetype, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "matching",
        title: "Matching: assignment",
        question: "How does one driver get one ride, and every ride an answer?",
        tables: TABLES,
        resources: &[],
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: &[SERVE, SIMULATE],
    }
}

/// A busy evening, for each ride that is requested: drivers report all the time, a quarter of the
/// offers come to nothing.
const WORKLOAD: Workload = Workload {
    unit: "rides",
    mix: &[
        share("quote fare", 2.0),
        share("request ride", 1.0),
        share("report location", 100.0).when("cells"),
        share("next candidate", 1.3).when("cells"),
        share("accept driver assignment", 1.0).when("cells"),
        share("reject driver assignment", 0.2).when("cells"),
        share("expire driver offer", 0.1).when("cells"),
        share("start trip", 1.0),
        share("advance / complete trip", 3.0).when("on the way"),
        share("advance / complete trip", 1.0).when("completed"),
    ],
    skew: &[
        Skew {
            resource: "rides/due",
            action: "",
            hottest: 0.25,
            why: "four shards",
        },
        Skew {
            resource: "driver_locations/by_cell",
            action: "",
            hottest: 0.02,
            why: "one cell of fifty around the station",
        },
    ],
    kept_days: 30,
};

/// A place in the town of the story, in metres from the station.
fn at(north: f64, east: f64) -> Result<Point> {
    let degree = 111_195.0;
    Ok(Point::degrees(
        52.524_5 + north / degree,
        13.41 + east / (degree * 0.608_6),
    )?)
}

/// Who asks for a ride, from the station.
async fn ride(
    dispatch: &Dispatch,
    cloud: &Cloud,
    rider: &str,
    pickup: Point,
) -> Result<RideRequestState> {
    let quote = NewQuote {
        fare_id: cloud.ids().next("fare"),
        rider_id: rider.into(),
        pickup,
        destination: at(3_000.0, 1_000.0)?,
    };
    dispatch.quote_fare(&quote).await?;
    let new = NewRide {
        ride_id: cloud.ids().next("ride"),
        rider_id: rider.into(),
        fare_id: quote.fare_id,
    };
    requested(dispatch.request_ride(&new).await?)
}

fn requested(told: Requested) -> Result<RideRequestState> {
    match told {
        Requested::Requested(ride) => Ok(ride),
        other => bail!("no ride was made: {other:?}"),
    }
}

fn offered(told: Cascade) -> Result<DriverAssignmentState> {
    match told {
        Cascade::Offered(offer) => Ok(offer),
        other => bail!("nobody was asked: {other:?}"),
    }
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    story.section(
        "With Redis",
        "Where drivers are is written every few seconds and searched by distance: that is in Redis, \
         with the time of every report beside it, because GEO never forgets. What a driver is doing \
         is in DynamoDB, because that is what two rides fight about.",
    );
    let dispatch = Dispatch::new(cloud.clone(), Realization::Geo);
    an_evening(story, &dispatch, &cloud).await?;
    two_rides_one_driver(story, &dispatch, &cloud).await?;

    story.section(
        "With DynamoDB alone",
        "The same promise, kept by another index: each driver's item carries the H3 cell it is in, \
         and a search asks for the cells that its circle touches, ring by ring until a whole ring \
         lies outside.",
    );
    let dispatch = Dispatch::new(cloud.clone(), Realization::Cells);
    with_cells(story, &dispatch, &cloud).await?;

    story.section(
        "A second of rides at once",
        "Ivan and Judy ask in the same second. Ivan's soonest driver is the only one near Judy. Asked \
         one after the other, Ivan would get that driver and Judy would wait.",
    );
    let dispatch = Dispatch::new(cloud.clone(), Realization::Geo);
    a_batch(story, &dispatch, &cloud).await
}

/// The documents' actions, from the request to the end of the trip.
async fn an_evening(story: &mut Story, dispatch: &Dispatch, cloud: &Cloud) -> Result<()> {
    let station = at(0.0, 0.0)?;
    let dora = story
        .step(
            "go online",
            "Dora begins her shift, 200 m north of the station.",
            async { Ok(dispatch.go_online("dora", at(200.0, 0.0)?).await?) },
        )
        .await?;
    story.check(dora == Shift::Online, "Dora is AVAILABLE, and on the map")?;
    dispatch.go_online("emil", at(500.0, 0.0)?).await?;
    // 380 m by the crow, 540 m by the streets.
    dispatch.go_online("fritz", at(270.0, 270.0)?).await?;
    story
        .step("report location", "Emil's phone, some seconds later. Place and time in one script; an older report would change nothing.", async {
            cloud.clock().advance(Duration::from_secs(4));
            Ok(dispatch.report_location("emil", at(480.0, 0.0)?).await?)
        })
        .await?;
    let quote = NewQuote {
        fare_id: cloud.ids().next("fare"),
        rider_id: "alice".into(),
        pickup: station,
        destination: at(3_000.0, 1_000.0)?,
    };
    let fare = story
        .step(
            "quote fare",
            "Alice wants to know the price. It is worked out once, and hers for five minutes.",
            async { Ok(dispatch.quote_fare(&quote).await?) },
        )
        .await?;
    let alice = story
        .step("request ride", "And she asks for the ride. It takes the quoted amount over, and is due from the beginning: if the server dies now, a sweeper finds it.", async {
            let new = NewRide {
                ride_id: cloud.ids().next("ride"),
                rider_id: "alice".into(),
                fare_id: fare.fare_id.clone(),
            };
            requested(dispatch.request_ride(&new).await?)
        })
        .await?;
    story.check(
        alice.status == RideStatus::Open && alice.fare == fare.amount,
        "the ride is OPEN, at the price that was quoted",
    )?;
    let view = story
        .step("find nearby drivers", "Who could drive? GEO finds three, all seen lately, all AVAILABLE. The estimated pickup time ranks them, and streets have corners: Fritz is nearer than Emil, and later.", async {
            Ok(dispatch.find_nearby(alice.pickup, &alice.refused_by, 4).await?)
        })
        .await?;
    let names: Vec<_> = view
        .candidates
        .iter()
        .map(|c| c.driver_id.as_str())
        .collect();
    story.check(
        names == ["dora", "emil", "fritz"],
        "Dora, Emil, Fritz, in this order",
    )?;
    let first: &Candidate = view.candidates.first().context("nobody")?;
    let told = story
        .step("propose driver", "Dora is asked, and nobody else. Offer, ride and driver change together, so that no other ride can ask her.", async {
            Ok(dispatch.propose(&alice, first).await?)
        })
        .await?;
    let Proposing::Proposed(offer) = told else {
        bail!("Dora was not asked: {told:?}");
    };
    story.check(
        offer.offer_expires_at == cloud.now() + 15_000,
        "she has fifteen seconds",
    )?;
    let told = story
        .step("reject driver assignment", "Dora says no. She is AVAILABLE in the same moment, the ride is OPEN and remembers her.", async {
            Ok(dispatch.reject("dora", &offer.assignment_id).await?)
        })
        .await?;
    story.check(told == Rejecting::Rejected, "the offer is REJECTED")?;
    let second = story
        .step("next candidate", "The server that got the no takes the next step: read the ride, search without Dora, ask Emil.", async {
            offered(dispatch.next_candidate(&alice.ride_id).await?)
        })
        .await?;
    story.check(second.driver_id == "emil", "Emil is asked")?;
    cloud.clock().advance(Duration::from_secs(16));
    for (name, place) in [("dora", at(200.0, 0.0)?), ("fritz", at(270.0, 270.0)?)] {
        dispatch.report_location(name, place).await?;
    }
    let told = dispatch.accept("emil", &second.assignment_id).await?;
    story.check(
        matches!(told, Accepting::Refused(_)),
        "Emil says yes after sixteen seconds. No sweeper has come yet, and it is too late all the same",
    )?;
    let told = story
        .step(
            "expire driver offer",
            "The sweeper finds the ride by its time, reads it, and ends the offer.",
            async {
                let due = dispatch.due_rides(cloud.now()).await?;
                let ride_id = due.first().context("nothing is due")?;
                Ok(dispatch.expire_offer(ride_id).await?)
            },
        )
        .await?;
    story.check(
        told == Expiry::Expired,
        "EXPIRED; Emil is AVAILABLE, the ride OPEN",
    )?;
    let third = offered(dispatch.next_candidate(&alice.ride_id).await?)?;
    let told = story
        .step("accept driver assignment", "Fritz says yes. The offer is in time, the ride waits for this very offer, Fritz is kept for it: three guards, one transaction.", async {
            Ok(dispatch.accept(&third.driver_id, &third.assignment_id).await?)
        })
        .await?;
    story.check(
        told == Accepting::Accepted,
        "the ride is MATCHED, Fritz is ASSIGNED",
    )?;
    let told = story
        .step(
            "start trip",
            "The trip binds Fritz to the ride. If his phone died here, a sweeper would start it.",
            async { Ok(dispatch.start_trip("fritz", &third.assignment_id).await?) },
        )
        .await?;
    story.check(matches!(told, Starting::Started(_)), "EN_ROUTE")?;
    cloud.clock().advance(Duration::from_secs(80));
    let told = story
        .step(
            "advance / complete trip",
            "His phone says where the trip is, not \"next\": sent twice, it moves once.",
            async {
                let to = TripStatus::Arrived;
                Ok(dispatch
                    .advance_trip("fritz", &third.assignment_id, to)
                    .await?)
            },
        )
        .await?;
    story.check(told == Moving::Moved, "ARRIVED")?;
    for to in [TripStatus::PickedUp, TripStatus::InProgress] {
        dispatch
            .advance_trip("fritz", &third.assignment_id, to)
            .await?;
        cloud.clock().advance(Duration::from_secs(60));
    }
    let told = story
        .step(
            "advance / complete trip",
            "The last step sets him free, in the same transaction.",
            async {
                let to = TripStatus::Completed;
                Ok(dispatch
                    .advance_trip("fritz", &third.assignment_id, to)
                    .await?)
            },
        )
        .await?;
    let fritz = dispatch.driver("fritz").await?;
    story.check(
        told == Moving::Moved && fritz.is_some_and(|d| d.status == DriverStatus::Available),
        "COMPLETED, and Fritz is AVAILABLE",
    )
}

/// What the third item is for.
async fn two_rides_one_driver(story: &mut Story, dispatch: &Dispatch, cloud: &Cloud) -> Result<()> {
    story.section(
        "Two rides, one driver",
        "Bob and Carol ask, and Dora is the soonest for both. Each ride for itself is fine; only the \
         driver's own item can say no.",
    );
    for (name, place) in [("dora", at(200.0, 0.0)?), ("emil", at(480.0, 0.0)?)] {
        dispatch.report_location(name, place).await?;
    }
    let bob = ride(dispatch, cloud, "bob", at(0.0, 0.0)?).await?;
    let carol = ride(dispatch, cloud, "carol", at(10.0, 0.0)?).await?;
    let view = dispatch
        .find_nearby(carol.pickup, &carol.refused_by, 4)
        .await?;
    let dora = view.candidates.first().context("nobody")?.clone();
    dispatch.propose(&bob, &dora).await?;
    let told = story
        .step("propose driver", "Carol's server saw Dora free a moment ago. The lock tells it for one command that somebody asks her already.", async {
            Ok(dispatch.propose(&carol, &dora).await?)
        })
        .await?;
    story.check(
        told == Proposing::Locked,
        "Carol's ride will ask somebody else",
    )?;
    let mut redis = cloud.beside_tap().redis().await?;
    let lock = dispatch.lock_key("dora");
    let _: i64 = redis::cmd("DEL").arg(lock).query_async(&mut redis).await?;
    let told = story
        .step("propose driver", "Redis fails over and forgets the lock. Now Carol's server takes it, and DynamoDB says no: Dora is OFFERED to Bob.", async {
            Ok(dispatch.propose(&carol, &dora).await?)
        })
        .await?;
    story.check(
        told == Proposing::DriverBusy,
        "the lock is a shortcut; the guard decides",
    )?;
    let told = story
        .step(
            "cancel ride",
            "Bob changes his mind while Dora thinks. Ride, offer and driver end together.",
            async { Ok(dispatch.cancel_ride(&bob.ride_id).await?) },
        )
        .await?;
    story.check(
        told == Cancelling::Cancelled(RideStatus::Cancelled),
        "the offer is WITHDRAWN, Dora is AVAILABLE",
    )?;
    dispatch.cancel_ride(&carol.ride_id).await?;
    let told = story
        .step(
            "go offline",
            "Emil goes home. Nobody waits for him, so he may.",
            async { Ok(dispatch.go_offline("emil").await?) },
        )
        .await?;
    story.check(told == Shift::Offline, "and he is off the map")
}

async fn with_cells(story: &mut Story, dispatch: &Dispatch, cloud: &Cloud) -> Result<()> {
    story
        .step("go online", "Gerda begins her shift.", async {
            Ok(dispatch.go_online("gerda", at(300.0, 0.0)?).await?)
        })
        .await?;
    dispatch.go_online("hans", at(600.0, 0.0)?).await?;
    story
        .step(
            "report location",
            "Her phone reports. DynamoDB moves her between cells in the index by itself.",
            async {
                cloud.clock().advance(Duration::from_secs(4));
                Ok(dispatch.report_location("gerda", at(280.0, 0.0)?).await?)
            },
        )
        .await?;
    let dave = ride(dispatch, cloud, "dave", at(0.0, 0.0)?).await?;
    let view = story
        .step(
            "find nearby drivers",
            "A circle of three kilometres touches these cells, and no others have to be asked.",
            async {
                Ok(dispatch
                    .find_nearby(dave.pickup, &dave.refused_by, 4)
                    .await?)
            },
        )
        .await?;
    let gerda = view.candidates.first().context("nobody")?;
    story.check(gerda.driver_id == "gerda", "Gerda first, then Hans")?;
    let told = story
        .step(
            "propose driver",
            "Without a lock: the same transaction.",
            async { Ok(dispatch.propose(&dave, gerda).await?) },
        )
        .await?;
    let Proposing::Proposed(first) = told else {
        bail!("Gerda was not asked: {told:?}");
    };
    story
        .step("accept driver assignment", "Gerda says yes …", async {
            Ok(dispatch.accept("gerda", &first.assignment_id).await?)
        })
        .await?;
    dispatch.start_trip("gerda", &first.assignment_id).await?;
    let told = story
        .step("cancel assignment", "… and has a flat tyre on the way. Before the pickup that is a reassignment: the ride is OPEN again, with time to search.", async {
            Ok(dispatch.cancel_assignment("gerda", &first.assignment_id).await?)
        })
        .await?;
    story.check(
        told == Cancelling::Cancelled(RideStatus::Open),
        "Gerda is AVAILABLE, her trip CANCELLED, and Dave's ride looks for another",
    )?;
    let second = story
        .step(
            "next candidate",
            "Hans is asked. Gerda is not: the ride remembers her.",
            async { offered(dispatch.next_candidate(&dave.ride_id).await?) },
        )
        .await?;
    story.check(second.driver_id == "hans", "Hans is asked")?;
    story
        .step("reject driver assignment", "Hans says no.", async {
            Ok(dispatch.reject("hans", &second.assignment_id).await?)
        })
        .await?;
    let told = story
        .step(
            "next candidate",
            "Nobody is left by now. Somebody may come: the ride waits, and says until when.",
            async { Ok(dispatch.next_candidate(&dave.ride_id).await?) },
        )
        .await?;
    story.check(
        matches!(told, Cascade::Waiting(_)),
        "it is looked at again in five seconds",
    )?;
    dispatch.go_online("ida", at(100.0, 0.0)?).await?;
    let third = offered(dispatch.next_candidate(&dave.ride_id).await?)?;
    cloud.clock().advance(Duration::from_secs(16));
    dispatch.report_location("ida", at(100.0, 0.0)?).await?;
    story
        .step(
            "expire driver offer",
            "Ida came, was asked, and did not answer.",
            async {
                let due = dispatch.due_rides(cloud.now()).await?;
                let ride_id = due.first().context("nothing is due")?;
                Ok(dispatch.expire_offer(ride_id).await?)
            },
        )
        .await?;
    story.check(
        third.driver_id == "ida",
        "Ida will not be asked again for this ride",
    )?;
    cloud.clock().advance(Duration::from_secs(60));
    let told = dispatch.next_candidate(&dave.ride_id).await?;
    story.check(
        told == Cascade::NoDrivers,
        "the minute is over: NO_DRIVERS, and Dave knows",
    )?;

    let erin = ride(dispatch, cloud, "erin", at(0.0, 0.0)?).await?;
    dispatch.report_location("ida", at(100.0, 0.0)?).await?;
    let offer = offered(dispatch.next_candidate(&erin.ride_id).await?)?;
    dispatch.accept("ida", &offer.assignment_id).await?;
    dispatch.start_trip("ida", &offer.assignment_id).await?;
    let told = story
        .step("cancel ride", "Erin gives up while Ida is on the way to her. Four items end together, the trip where it was read.", async {
            Ok(dispatch.cancel_ride(&erin.ride_id).await?)
        })
        .await?;
    story.check(
        told == Cancelling::Cancelled(RideStatus::Cancelled),
        "ride, match and trip are CANCELLED, Ida is AVAILABLE",
    )?;
    story
        .step("go offline", "Ida has had enough.", async {
            Ok(dispatch.go_offline("ida").await?)
        })
        .await?;
    Ok(())
}

/// Beyond the documents.
async fn a_batch(story: &mut Story, dispatch: &Dispatch, cloud: &Cloud) -> Result<()> {
    // A town of its own, far from the first: nobody else is near.
    let place = |north: f64| at(20_000.0 + north, 0.0);
    dispatch.go_online("karl", place(300.0)?).await?;
    dispatch.go_online("lena", place(-400.0)?).await?;
    ride(dispatch, cloud, "ivan", place(0.0)?).await?;
    ride(dispatch, cloud, "judy", place(800.0)?).await?;
    cloud.clock().advance(Duration::from_secs(2));
    let told = story
        .step("match batch", "The rides of a moment on one table: two rides, two drivers, the least total pickup time. Each pair is then proposed under the same guards as ever.", async {
            Ok(dispatch.match_batch().await?)
        })
        .await?;
    let mut total = 0;
    for (_, step) in told {
        total += offered(step?)?.pickup_s;
    }
    // Karl for Judy: 500 m; Lena for Ivan: 400 m. Greedy: 300 m and 1,200 m.
    story.check(
        total < 140,
        "Karl drives to Judy and Lena to Ivan: 130 s together, where greed takes 215 s",
    )
}
