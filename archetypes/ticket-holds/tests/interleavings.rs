//! Every order of the calls of two or three who meet at one seat.
//!
//! `late` actors have a clock by which Alice's hold is over, the others one by which it is not:
//! clocks never agree, and the guards must hold all the same.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::Interleave;
use std::collections::BTreeSet;
use std::time::Duration;
use ticket_holds::lease::TAKING_MS;
use ticket_holds::tables::due_shard;
use ticket_holds::{Cancelling, Expiry, Realization, Rejection, Reserved};
use venue::{
    Told, Venue, buyer, canceller, checked, confirmer, expirer, extender, forget, held, lapsed,
    lapsed_alone, late_reserver, open, payer, paying, reserver, seat,
};

in_both_realizations!(
    of_two_reservers_one_holds,
    the_same_booking_sent_twice_at_once_is_one_booking,
    overlapping_seats_are_held_by_one_of_two_all_or_none,
    an_expired_seat_goes_to_the_next_whatever_the_sweeper_does,
    a_hold_is_confirmed_or_expired_never_both,
    a_hold_is_confirmed_or_displaced_never_both,
    a_sweep_and_a_reserver_leave_one_holder,
    two_sweepers_expire_once,
    a_hold_is_cancelled_or_expired_never_both,
    a_confirmation_and_a_cancellation_leave_no_seat_behind,
    an_extension_and_a_late_reserver_leave_one_holder,
    a_hold_is_extended_or_expired_never_both,
    the_last_admissions_go_to_one_of_two,
);

/// Runs every order; these ends, and no others, must be seen.
async fn explore(actors: Interleave<Venue, Told>, ends: &[&str]) {
    let explored = checked(actors).run().await.unwrap();
    let seen: BTreeSet<_> = explored.seen.keys().map(String::as_str).collect();
    let ends: BTreeSet<_> = ends.iter().copied().collect();
    assert_eq!(seen, ends, "in {} orders", explored.schedules);
}

async fn of_two_reservers_one_holds(realization: Realization) {
    let actors = reserver(Interleave::of(move || open(realization)), "alice", &[1]);
    let actors = reserver(actors, "bob", &[1]);
    let ends = [
        "alice holds, bob is told held",
        "alice is told held, bob holds",
    ];
    explore(actors, &ends).await;
}

async fn the_same_booking_sent_twice_at_once_is_one_booking(realization: Realization) {
    let actors = reserver(Interleave::of(move || open(realization)), "alice", &[1]);
    let actors = reserver(actors, "alice-again", &[1]);
    let ends = [
        "alice holds, alice-again held before",
        "alice held before, alice-again holds",
    ];
    explore(actors, &ends).await;
}

async fn overlapping_seats_are_held_by_one_of_two_all_or_none(realization: Realization) {
    let actors = reserver(Interleave::of(move || open(realization)), "alice", &[1, 2]);
    let actors = reserver(actors, "bob", &[3, 2]);
    let ends = [
        "alice holds, bob is told held",
        "alice is told held, bob holds",
    ];
    explore(actors, &ends).await;
}

async fn an_expired_seat_goes_to_the_next_whatever_the_sweeper_does(realization: Realization) {
    let actors = late_reserver(Interleave::of(move || lapsed(realization)), "bob", &[1]);
    explore(expirer(actors, "sweeper"), &["bob holds, sweeper expires"]).await;
}

async fn a_hold_is_confirmed_or_expired_never_both(realization: Realization) {
    let actors = confirmer(Interleave::of(move || lapsed(realization)), "alice");
    let ends = [
        "alice confirms, sweeper finds it over",
        "alice is too late, sweeper expires",
    ];
    explore(expirer(actors, "sweeper"), &ends).await;
}

async fn a_hold_is_confirmed_or_displaced_never_both(realization: Realization) {
    let actors = confirmer(Interleave::of(move || lapsed(realization)), "alice");
    let ends = [
        "alice confirms, bob is told sold",
        "alice is displaced, bob holds",
    ];
    explore(late_reserver(actors, "bob", &[1]), &ends).await;
}

async fn a_sweep_and_a_reserver_leave_one_holder(realization: Realization) {
    let actors = late_reserver(
        Interleave::of(move || lapsed_alone(realization)),
        "bob",
        &[1],
    );
    // One shard of the index, and what it says is due. It may already show Bob's hold, which is not.
    let actors = actors.actor("sweeper", |venue| async move {
        let shard = due_shard(&venue.id("alice"));
        let now = venue.late.cloud().now();
        let (due, _) = venue.late.due_in(&shard, now, None).await.unwrap();
        let mut expired = None;
        for booking_id in due {
            let ended = venue.late.expire_hold(&booking_id).await.unwrap();
            if let Expiry::Expired(_) = ended {
                expired = Some(ended);
            }
        }
        Told::Expire(expired.unwrap())
    });
    explore(actors, &["bob holds, sweeper expires"]).await;
}

async fn two_sweepers_expire_once(realization: Realization) {
    let actors = expirer(Interleave::of(move || lapsed(realization)), "one");
    let ends = [
        "one expires, other finds it over",
        "one finds it over, other expires",
    ];
    explore(expirer(actors, "other"), &ends).await;
}

async fn a_hold_is_cancelled_or_expired_never_both(realization: Realization) {
    let actors = canceller(Interleave::of(move || lapsed(realization)), "alice");
    let ends = [
        "alice cancels, sweeper finds it over",
        "alice finds it over, sweeper expires",
    ];
    explore(expirer(actors, "sweeper"), &ends).await;
}

async fn a_confirmation_and_a_cancellation_leave_no_seat_behind(realization: Realization) {
    let actors = confirmer(Interleave::of(move || lapsed(realization)), "alice");
    let ends = [
        // Cancelling a hold, or what was just bought: the seat is free in both.
        "alice confirms, canceller cancels",
        "alice is too late, canceller cancels",
    ];
    explore(canceller(actors, "canceller"), &ends).await;
}

async fn an_extension_and_a_late_reserver_leave_one_holder(realization: Realization) {
    let actors = extender(Interleave::of(move || lapsed(realization)), "alice");
    let ends = [
        "alice extends, bob is told held",
        "alice cannot extend, bob holds",
    ];
    explore(late_reserver(actors, "bob", &[1]), &ends).await;
}

async fn a_hold_is_extended_or_expired_never_both(realization: Realization) {
    let actors = extender(Interleave::of(move || lapsed(realization)), "alice");
    let ends = [
        "alice extends, sweeper finds it not due",
        "alice cannot extend, sweeper expires",
    ];
    explore(expirer(actors, "sweeper"), &ends).await;
}

async fn the_last_admissions_go_to_one_of_two(realization: Realization) {
    let nearly_full = move || async move {
        let venue = open(realization).await;
        venue.hold_admissions("carol", 7).await;
        venue
    };
    let asks = |name: &'static str| {
        move |venue: std::sync::Arc<Venue>| async move {
            let new = venue.new_admissions(name, 3);
            Told::Reserve(venue.office.reserve_admissions(&new).await.unwrap())
        }
    };
    let actors = Interleave::of(nearly_full).actor("alice", asks("alice"));
    let ends = ["alice holds, bob is told no", "alice is told no, bob holds"];
    explore(actors.actor("bob", asks("bob")), &ends).await;
}

/// Alice confirms while her time runs out for everybody else: the three of the issue at once.
#[tokio::test]
async fn confirmer_reserver_and_sweeper_leave_one_owner_or_one_holder() {
    let actors = confirmer(Interleave::of(|| lapsed(Realization::Pure)), "alice");
    let actors = expirer(late_reserver(actors, "bob", &[1]), "sweeper");
    let ends = [
        "alice confirms, bob is told sold, sweeper finds it over",
        "alice is displaced, bob holds, sweeper expires",
        "alice is too late, bob holds, sweeper expires",
    ];
    explore(actors, &ends).await;
}

/// Redis forgets everything at any moment, with every clock in agreement: nobody loses a hold.
#[tokio::test]
async fn when_redis_forgets_at_any_moment_nobody_loses_a_hold() {
    let actors = Interleave::of(|| async {
        let venue = open(Realization::Leased).await;
        venue.hold("alice", &[1]).await;
        venue
    });
    let actors =
        confirmer(reserver(actors, "bob", &[1]), "alice").actor("redis", |venue| async move {
            forget(&venue, venue.office.cloud()).await;
            Told::Nothing
        });
    let ends = [
        "bob is told held, alice confirms, redis is done",
        "bob is told sold, alice confirms, redis is done",
    ];
    explore(actors, &ends).await;
}

/// Redis forgets between two who both took the lease: both believe that they hold the seat, and one
/// does.
#[tokio::test]
async fn when_redis_forgets_between_two_reservers_one_holds() {
    let actors = reserver(Interleave::of(|| open(Realization::Leased)), "alice", &[1]);
    let actors = reserver(actors, "bob", &[1]).actor("redis", |venue| async move {
        forget(&venue, venue.office.cloud()).await;
        Told::Nothing
    });
    let ends = [
        "alice holds, bob is told held, redis is done",
        "alice is told held, bob holds, redis is done",
    ];
    explore(actors, &ends).await;
}

/// Authorized, confirmed, captured; expired and given back: never captured and expired.
#[tokio::test]
async fn captured_money_implies_confirmed_whenever_the_sweeper_comes() {
    let actors = payer(Interleave::of(|| paying(Realization::Pure)));
    let actors = actors.actor("sweeper", |venue| async move {
        let id = venue.id("alice");
        let expiry = venue.late.expire_hold(&id).await.unwrap();
        if let Expiry::Expired(_) = expiry {
            let booking = venue.booking("alice").await.unwrap();
            venue.late.settle(&venue.cards, &booking).await.unwrap();
        }
        Told::Expire(expiry)
    });
    let ends = [
        "alice confirms, sweeper finds it over",
        "alice is too late, sweeper expires",
    ];
    explore(actors, &ends).await;
}

/// A cancellation that meets a payment: whatever was taken goes back.
#[tokio::test]
async fn money_goes_back_whenever_the_cancellation_comes() {
    let actors = payer(Interleave::of(|| paying(Realization::Pure)));
    let actors = actors.actor("canceller", |venue| async move {
        let cancelled = venue.office.cancel(&venue.id("alice")).await.unwrap();
        let Cancelling::Cancelled(booking) = &cancelled else {
            panic!("nobody else ends it: {cancelled:?}");
        };
        venue.office.settle(&venue.cards, booking).await.unwrap();
        let charge = venue.charge("alice").await;
        assert!(charge == "VOIDED" || charge == "REFUNDED", "{charge}");
        Told::Cancel(cancelled)
    });
    let ends = [
        "alice confirms, canceller cancels",
        "alice is too late, canceller cancels",
    ];
    explore(actors, &ends).await;
}

/// The sweeper comes between "a processor will be asked" and the question: what arrives too late is
/// refused by the processor, since its id was given back before.
#[tokio::test]
async fn an_authorization_that_arrives_after_its_hold_has_ended_is_refused() {
    let actors = buyer(Interleave::of(|| lapsed(Realization::Pure)), "alice");
    let actors = checked(actors.actor("sweeper", |venue| async move {
        let expiry = venue.late.expire_hold(&venue.id("alice")).await.unwrap();
        let booking = venue.booking("alice").await.unwrap();
        venue.late.settle(&venue.cards, &booking).await.unwrap();
        assert_eq!(venue.charge("alice").await, "VOIDED");
        Told::Expire(expiry)
    }));
    let order = "alice sweeper sweeper sweeper sweeper sweeper alice alice";
    let end = actors.replay(&order.parse().unwrap()).await.unwrap();
    assert_eq!(end, "alice pays nothing, sweeper expires");
}

/// Whatever the order, a seat that is free is had by the next buyer within seconds.
#[tokio::test]
async fn a_cancellation_beside_its_reservation_leaves_no_lease_of_a_free_seat() {
    let race = Interleave::of(|| held(Realization::Leased));
    let race = canceller(reserver(race, "alice-again", &[1]), "canceller");
    let race = race.check(|venue, _| async move {
        venue.invariants().await?;
        let clock = venue.office.cloud().clock();
        clock.advance(Duration::from_millis(TAKING_MS as u64));
        let told = venue.reserve("bob", &[1]).await;
        match told {
            Reserved::Held(_) => Ok("bob has it".into()),
            told => Err(format!("it is free, and bob was told {told:?}")),
        }
    });
    let explored = race.run().await.unwrap();
    assert!(explored.schedules > 50, "{}", explored.schedules);
}

/// Whatever the order, the lease says in the end that the seat is sold.
#[tokio::test]
async fn a_purchase_beside_its_reservation_leaves_the_lease_sold() {
    let race = Interleave::of(|| held(Realization::Leased));
    let race = confirmer(reserver(race, "alice-again", &[1]), "alice");
    let race = race.check(|venue, _| async move {
        venue.invariants().await?;
        let recording = venue.office.cloud().tap().record();
        let told = venue.reserve("bob", &[1]).await;
        let sold = Reserved::Rejected(Rejection::Sold { seat: seat(1) });
        match told == sold && recording.calls().len() == 1 {
            true => Ok("bob is told sold".into()),
            false => Err(format!("bob was told {told:?}")),
        }
    });
    let explored = race.run().await.unwrap();
    assert!(explored.schedules >= 20, "{}", explored.schedules);
}
