//! The process dies before and after every call; then somebody goes on, as in life: the client asks
//! again, the sweeper comes by.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::{CrashSweep, Faults, Swept};
use std::sync::Arc;
use std::time::Duration;
use ticket_holds::{BookingStatus, Creation, Expiry, OfficeError, Realization, Tickets};
use venue::{PRICE, Venue, event, held, lapsed_alone, open, open_alone};

in_both_realizations!(
    every_crash_point_of_reserve_recovers,
    every_crash_point_of_a_reservation_nobody_repeats_recovers,
    every_crash_point_of_confirm_recovers,
    every_crash_point_of_cancel_recovers,
    every_crash_point_of_a_sweep_recovers,
    every_crash_point_of_extending_recovers,
    every_crash_point_of_a_purchase_recovers,
    every_crash_point_of_a_purchase_nobody_repeats_recovers,
    every_crash_point_of_cancelling_what_was_bought_gives_the_money_back,
    every_crash_point_of_holding_admissions_recovers,
    every_crash_point_of_create_event_recovers,
    lost_requests_lost_answers_and_throttling_change_no_outcome,
);

/// As many points as calls, before and after each.
fn points(swept: &Swept, calls: usize) {
    assert_eq!(swept.points.len(), 2 * calls, "{:?}", swept.points);
}

/// How many calls it takes, with those of the lease layer.
fn calls(realization: Realization, dynamodb: usize, redis: usize) -> usize {
    match realization {
        Realization::Pure => dynamodb,
        Realization::Leased => dynamodb + redis,
    }
}

async fn all_is_well(venue: Arc<Venue>, user: &str, status: BookingStatus) -> Result<(), String> {
    venue.invariants().await?;
    let there = venue.status(user).await;
    if there == Some(status) {
        Ok(())
    } else {
        Err(format!("{user}'s booking is {there:?}"))
    }
}

async fn every_crash_point_of_reserve_recovers(realization: Realization) {
    let reserve = |venue: Arc<Venue>| async move { venue.reserve("alice", &[1, 2]).await };
    let swept = CrashSweep::of(move || open(realization))
        .action("alice", reserve)
        .recovery(reserve)
        .check(|venue| all_is_well(venue, "alice", BookingStatus::InProgress))
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 2));
}

/// Alice never comes back. Ten minutes later the seat is Bob's, and a sweeper has nothing to mend.
async fn every_crash_point_of_a_reservation_nobody_repeats_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || open_alone(realization))
        .action("alice", |venue: Arc<Venue>| async move {
            venue.reserve("alice", &[1]).await
        })
        .recovery(|venue| async move {
            venue.hold_time_passes().await;
            venue.hold("bob", &[1]).await;
            for (_, ended) in venue.office.expire_due().await {
                ended.unwrap();
            }
        })
        .check(|venue| async move {
            if let Some(status) = venue.status("alice").await
                && status != BookingStatus::Expired
            {
                return Err(format!("Alice's booking is {status:?}"));
            }
            all_is_well(venue, "bob", BookingStatus::InProgress).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 2));
}

async fn every_crash_point_of_confirm_recovers(realization: Realization) {
    let confirm = |venue: Arc<Venue>| async move { venue.confirm("alice").await };
    let swept = CrashSweep::of(move || held(realization))
        .action("alice", confirm)
        .recovery(confirm)
        .check(|venue| all_is_well(venue, "alice", BookingStatus::Confirmed))
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 1));
}

async fn every_crash_point_of_cancel_recovers(realization: Realization) {
    let cancel = |venue: Arc<Venue>| async move {
        let id = venue.id("alice");
        venue.office.cancel(&id).await.unwrap()
    };
    let swept = CrashSweep::of(move || held(realization))
        .action("alice", cancel)
        .recovery(cancel)
        .check(|venue| async move {
            venue.hold("bob", &[1]).await;
            all_is_well(venue, "alice", BookingStatus::Cancelled).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 3, 2));
}

async fn every_crash_point_of_a_sweep_recovers(realization: Realization) {
    let sweep = |venue: Arc<Venue>| async move {
        for (_, ended) in venue.late.expire_due().await {
            ended.unwrap();
        }
    };
    let swept = CrashSweep::of(move || lapsed_alone(realization))
        .action("sweeper", sweep)
        .recovery(sweep)
        .check(|venue| all_is_well(venue, "alice", BookingStatus::Expired))
        .run()
        .await
        .unwrap();
    // Four shards of the index, the booking, its tickets unless the lease layer leaves them, the
    // end.
    let calls = if realization == Realization::Pure {
        7
    } else {
        6
    };
    points(&swept, calls);
}

async fn every_crash_point_of_extending_recovers(realization: Realization) {
    let extend = |venue: Arc<Venue>| async move {
        let id = venue.id("alice");
        venue.office.extend_hold(&id).await.unwrap()
    };
    let swept = CrashSweep::of(move || held(realization))
        .action("alice", extend)
        .recovery(extend)
        .check(|venue| async move {
            let booking = venue.booking("alice").await.unwrap();
            assert!(booking.was_extended);
            // Once: a repeated request does not extend it again.
            let lasts = booking.hold_expires_at - booking.created_at;
            assert_eq!(lasts, 900_000);
            all_is_well(venue, "alice", BookingStatus::InProgress).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 2, 1));
}

async fn every_crash_point_of_a_purchase_recovers(realization: Realization) {
    let pay = |venue: Arc<Venue>| async move { venue.purchase("alice").await };
    let swept = CrashSweep::of(move || held(realization))
        .action("alice", pay)
        .recovery(pay)
        .check(|venue| async move {
            assert_eq!(venue.charge("alice").await, "CAPTURED");
            all_is_well(venue, "alice", BookingStatus::Confirmed).await
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 5, 1));
}

/// Alice never comes back. The sweeper captures what was confirmed, and gives the rest back.
async fn every_crash_point_of_a_purchase_nobody_repeats_recovers(realization: Realization) {
    let swept = CrashSweep::of(move || lapsed_alone(realization))
        .action("alice", |venue: Arc<Venue>| async move {
            venue.purchase("alice").await
        })
        .recovery(|venue| async move {
            venue.hold_time_passes().await;
            for (_, swept) in venue.office.sweep(&venue.cards).await {
                swept.unwrap();
            }
        })
        .check(|venue| async move {
            venue.invariants().await?;
            let status = venue.status("alice").await.unwrap();
            let charge = venue.charge("alice").await;
            match (status, charge.as_str()) {
                (BookingStatus::Confirmed, "CAPTURED")
                | (BookingStatus::Expired, "VOIDED" | "NONE") => Ok(()),
                _ => Err(format!("the booking is {status:?}, the payment {charge}")),
            }
        })
        .run()
        .await
        .unwrap();
    points(&swept, calls(realization, 5, 1));
}

async fn every_crash_point_of_cancelling_what_was_bought_gives_the_money_back(
    realization: Realization,
) {
    let swept = CrashSweep::of(move || async move {
        let venue = lapsed_alone(realization).await;
        venue.purchase("alice").await;
        venue
    })
    .action("alice", |venue: Arc<Venue>| async move {
        let id = venue.id("alice");
        venue.office.cancel(&id).await.unwrap();
        let booking = venue.office.booking(&id).await.unwrap().unwrap();
        venue.office.settle(&venue.cards, &booking).await.unwrap();
    })
    .recovery(|venue| async move {
        // Her client asks again; the money is the sweeper's to see to.
        let id = venue.id("alice");
        venue.office.cancel(&id).await.unwrap();
        for (_, swept) in venue.office.sweep(&venue.cards).await {
            swept.unwrap();
        }
    })
    .check(|venue| async move {
        assert_eq!(venue.charge("alice").await, "REFUNDED");
        all_is_well(venue, "alice", BookingStatus::Cancelled).await
    })
    .run()
    .await
    .unwrap();
    // Cancel takes three calls, settling four: the booking, void, refund, the booking.
    points(&swept, calls(realization, 7, 2));
}

async fn every_crash_point_of_holding_admissions_recovers(realization: Realization) {
    let reserve = |venue: Arc<Venue>| async move {
        let new = venue.new_admissions("alice", 4);
        venue.office.reserve_admissions(&new).await.unwrap()
    };
    let swept = CrashSweep::of(move || open(realization))
        .action("alice", reserve)
        .recovery(reserve)
        .check(|venue| all_is_well(venue, "alice", BookingStatus::InProgress))
        .run()
        .await
        .unwrap();
    points(&swept, 2);
}

/// 250 seats are three transactions. The organizer dies among them and does not come back: nothing is on sale
/// until a sweeper has made the rest.
async fn every_crash_point_of_create_event_recovers(realization: Realization) {
    let hall = |venue: &Venue| {
        let mut hall = event(&format!("{}-hall", venue.event_id));
        hall.sections[0].tickets = Tickets::Seats(250);
        hall
    };
    let swept = CrashSweep::of(move || open_alone(realization))
        .action("organizer", move |venue: Arc<Venue>| async move {
            let _ = venue.office.create_event(&hall(&venue)).await;
        })
        .recovery(move |venue| async move {
            let hall = hall(&venue);
            let announced = venue.beside().event(&hall.event_id).await;
            let mut first = venue.new_booking("alice", &[1]);
            first.event_id = hall.event_id.clone();
            let early = venue.office.reserve(&first).await;
            let floor = venue.office.admissions_left(&hall.event_id, "Floor").await;
            assert_eq!(announced.is_ok(), early.is_ok(), "{early:?}");
            assert_eq!(announced.is_ok(), floor.is_ok(), "{floor:?}");
            venue.office.cloud().clock().advance(Duration::from_secs(2));
            for (_, pass) in venue.office.create_due().await.unwrap() {
                assert_eq!(pass.unwrap(), Creation::OnSale);
            }
            // Only what was never announced is left to its organizer.
            if let Err(OfficeError::UnknownEvent(_)) = announced {
                venue.office.create_event(&hall).await.unwrap();
            }
        })
        .check(move |venue| async move {
            let hall = hall(&venue);
            let map = venue.office.seat_map(&hall.event_id, "A").await.unwrap();
            assert_eq!(map.seats.len(), 250);
            assert!(map.seats.iter().all(|seat| seat.price == PRICE));
            assert!(venue.office.create_due().await.unwrap().is_empty());
            Ok(())
        })
        .run()
        .await
        .unwrap();
    points(&swept, 4);
}

/// Twenty seeds of bad weather over a hold, a competitor, a purchase and a sweep. A client that gets
/// no answer sends the same again until it gets one.
async fn lost_requests_lost_answers_and_throttling_change_no_outcome(realization: Realization) {
    let mut injected = 0;
    for seed in 0..20 {
        let venue = open_alone(realization).await;
        let faults = Arc::new(
            Faults::seeded(seed)
                .throttle(0.1)
                .lose_request(0.15)
                .lose_answer(0.15),
        );
        let weather = venue.office.cloud().tap().install(faults.clone());
        for (user, seats) in [("alice", [1, 2]), ("bob", [2, 3]), ("carol", [3, 4])] {
            let new = venue.new_booking(user, &seats);
            while venue.office.reserve(&new).await.is_err() {}
        }
        let (booking, payment) = (venue.id("alice"), venue.payment_id("alice"));
        let office = &venue.office;
        while office
            .purchase(&venue.cards, &booking, &payment, "card")
            .await
            .is_err()
        {}
        while !matches!(
            venue.late.expire_hold(&venue.id("carol")).await,
            Ok(Expiry::Expired(_) | Expiry::Over(_))
        ) {}
        drop(weather);
        injected += faults.injected().values().sum::<usize>();
        venue.invariants().await.unwrap();
        assert_eq!(venue.status("alice").await, Some(BookingStatus::Confirmed));
        assert_eq!(venue.status("bob").await, None, "seed {seed}");
        assert_eq!(venue.status("carol").await, Some(BookingStatus::Expired));
        assert_eq!(venue.charge("alice").await, "CAPTURED", "seed {seed}");
    }
    assert!(
        injected > 100,
        "only {injected} faults: this proves nothing"
    );
}
