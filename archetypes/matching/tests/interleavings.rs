//! Every order of the calls of two or three who meet at one ride or one driver.
//!
//! `late` actors have a clock by which an offer is over, the others one by which it is not: clocks
//! never agree, and the guards must hold all the same.
#![allow(clippy::unwrap_used)]

mod town;

use chaos::Interleave;
use matching::{Cascade, Realization, TripStatus};
use std::collections::BTreeSet;
use std::sync::Arc;
use town::{
    Told, Town, accepter, both_requested, canceller, checked, driving, expirer, giver_back,
    matched, matcher, mover, offered, proposer, rejecter, requested, starter,
};

in_both_realizations!(
    of_two_rides_that_want_one_driver_one_asks,
    of_two_matchers_of_one_ride_one_asks,
    one_driver_accepts_one_of_two_rides,
    an_offer_is_accepted_or_expired_never_both,
    an_offer_is_accepted_and_the_ride_cancelled_in_some_order,
    an_offer_is_rejected_or_expired_never_both,
    an_offer_is_accepted_or_rejected_never_both,
    the_same_yes_sent_twice_is_one_match,
    the_same_no_sent_twice_is_one_rejection,
    an_offer_is_withdrawn_or_expired_never_both,
    two_sweepers_expire_once,
    a_late_yes_never_wins_against_the_next_offer,
    a_ride_is_proposed_or_cancelled_and_leaves_no_driver_behind,
    a_driver_goes_home_or_is_asked_never_both,
    an_expiry_and_a_proposal_elsewhere_leave_the_driver_with_one,
);

// No location and no lock has a say in these: one realization is enough.
chaos::on_each! {
    [trips: matching::Realization::Cells] {
        a_trip_that_starts_while_the_rider_cancels_is_cancelled_too,
        a_trip_that_starts_while_the_driver_gives_it_back_is_cancelled_too,
        a_trip_is_completed_or_cancelled_never_both,
        a_pickup_and_a_driver_who_gives_back_leave_no_rider_behind,
        rider_and_driver_who_both_cancel_end_it_once,
        a_step_of_a_trip_that_is_sent_twice_moves_it_once,
        a_request_that_is_sent_twice_at_once_is_one_ride,
    }
}

/// Runs every order; these ends, and no others, must be seen.
async fn explore(actors: Interleave<Town, Told>, ends: &[&str]) {
    let explored = checked(actors).run().await.unwrap();
    let seen: BTreeSet<_> = explored.seen.keys().map(String::as_str).collect();
    let ends: BTreeSet<_> = ends.iter().copied().collect();
    assert_eq!(seen, ends, "in {} orders", explored.schedules);
}

/// With a lock before it, the loser may be told by the lock.
fn or_locked(
    realization: Realization,
    ends: &[&'static str],
    locked: &[&'static str],
) -> Vec<&'static str> {
    let mut all = ends.to_vec();
    if realization == Realization::Geo {
        all.extend(locked);
    }
    all
}

async fn of_two_rides_that_want_one_driver_one_asks(realization: Realization) {
    let actors = Interleave::of(move || both_requested(realization));
    let actors = proposer(actors, "one", "alice", "near");
    let ends: &[&str] = match realization {
        Realization::Cells => &[
            "one proposes, other finds the driver busy",
            "one finds the driver busy, other proposes",
        ],
        Realization::Geo => &[
            "one proposes, other finds the lock taken",
            "one finds the lock taken, other proposes",
        ],
    };
    explore(proposer(actors, "other", "bob", "near"), ends).await;
}

async fn of_two_matchers_of_one_ride_one_asks(realization: Realization) {
    let actors = Interleave::of(move || requested(realization));
    let actors = proposer(actors, "one", "alice", "near");
    let ends = [
        "one proposes, other is overtaken",
        "one is overtaken, other proposes",
    ];
    explore(proposer(actors, "other", "alice", "far"), &ends).await;
}

/// The documents' hole: two rides propose one driver, and both are accepted. Here each of two asks
/// and, if it could ask, the driver says yes to it.
async fn one_driver_accepts_one_of_two_rides(realization: Realization) {
    let asks = |rider: &'static str| {
        move |town: Arc<Town>| async move {
            town.propose(rider, "near").await;
            let (driver, offer) = (town.driver("near"), town.nth(rider, 1));
            match town.dispatch.accept(&driver, &offer).await {
                Ok(told) => Told::Accept(told),
                Err(matching::DispatchError::UnknownAssignment(_)) => Told::Nothing,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let actors = Interleave::of(move || both_requested(realization))
        .actor("one", asks("alice"))
        .actor("other", asks("bob"));
    let ends = ["one accepts, other is done", "one is done, other accepts"];
    explore(actors, &ends).await;
}

async fn an_offer_is_accepted_or_expired_never_both(realization: Realization) {
    let actors = accepter(Interleave::of(move || offered(realization)), "near");
    let ends = [
        "near accepts, sweeper finds it over",
        "near is too late, sweeper expires",
    ];
    explore(expirer(actors, "sweeper"), &ends).await;
}

async fn an_offer_is_accepted_and_the_ride_cancelled_in_some_order(realization: Realization) {
    let actors = accepter(Interleave::of(move || offered(realization)), "near");
    // Cancelling an offer, or what was just matched: the driver is free in both.
    let ends = [
        "near accepts, alice cancels",
        "near is told cancelled, alice cancels",
    ];
    explore(canceller(actors, "alice"), &ends).await;
}

async fn an_offer_is_rejected_or_expired_never_both(realization: Realization) {
    let actors = rejecter(Interleave::of(move || offered(realization)), "near");
    let ends = [
        "near rejects, sweeper finds it over",
        "near has nothing to reject, sweeper expires",
    ];
    explore(expirer(actors, "sweeper"), &ends).await;
}

/// Two phones, one driver.
async fn an_offer_is_accepted_or_rejected_never_both(realization: Realization) {
    let actors = accepter(Interleave::of(move || offered(realization)), "yes");
    let ends = [
        "yes accepts, no has nothing to reject",
        "yes is too late, no rejects",
    ];
    explore(rejecter(actors, "no"), &ends).await;
}

async fn the_same_yes_sent_twice_is_one_match(realization: Realization) {
    let actors = accepter(Interleave::of(move || offered(realization)), "one");
    let ends = [
        "one accepts, again accepted before",
        "one accepted before, again accepts",
    ];
    explore(accepter(actors, "again"), &ends).await;
}

async fn the_same_no_sent_twice_is_one_rejection(realization: Realization) {
    let actors = rejecter(Interleave::of(move || offered(realization)), "one");
    let ends = [
        "one rejects, again rejected before",
        "one rejected before, again rejects",
    ];
    explore(rejecter(actors, "again"), &ends).await;
}

async fn an_offer_is_withdrawn_or_expired_never_both(realization: Realization) {
    let actors = canceller(Interleave::of(move || offered(realization)), "alice");
    let ends = [
        "alice cancels, sweeper finds it over",
        "alice cancels, sweeper expires",
    ];
    explore(expirer(actors, "sweeper"), &ends).await;
}

async fn two_sweepers_expire_once(realization: Realization) {
    let actors = expirer(Interleave::of(move || offered(realization)), "one");
    let ends = [
        "one expires, other finds it over",
        "one finds it over, other expires",
    ];
    explore(expirer(actors, "other"), &ends).await;
}

/// The sweeper ends the offer and asks the next driver; the first driver's yes is on its way.
async fn a_late_yes_never_wins_against_the_next_offer(realization: Realization) {
    let actors = accepter(Interleave::of(move || offered(realization)), "near");
    let actors = actors.actor("sweeper", |town| async move {
        let told = town.late.expire_offer(&town.ride("alice")).await.unwrap();
        town.propose("alice", "far").await;
        Told::Expire(told)
    });
    let ends = [
        "near accepts, sweeper finds it over",
        "near is too late, sweeper expires",
    ];
    explore(actors, &ends).await;
}

async fn a_ride_is_proposed_or_cancelled_and_leaves_no_driver_behind(realization: Realization) {
    let actors = Interleave::of(move || requested(realization));
    let actors = proposer(actors, "matcher", "alice", "near");
    let ends = [
        "matcher proposes, alice cancels",
        "matcher is overtaken, alice cancels",
    ];
    explore(canceller(actors, "alice"), &ends).await;
}

async fn a_trip_that_starts_while_the_rider_cancels_is_cancelled_too(realization: Realization) {
    let actors = starter(Interleave::of(move || matched(realization)), "near");
    let ends = [
        "near starts, alice cancels",
        "near cannot start, alice cancels",
    ];
    explore(canceller(actors, "alice"), &ends).await;
}

async fn a_trip_that_starts_while_the_driver_gives_it_back_is_cancelled_too(
    realization: Realization,
) {
    let actors = starter(Interleave::of(move || matched(realization)), "sweeper");
    let ends = [
        "sweeper starts, near gives it back",
        "sweeper cannot start, near gives it back",
    ];
    explore(giver_back(actors, "near"), &ends).await;
}

async fn a_trip_is_completed_or_cancelled_never_both(realization: Realization) {
    let setup = move || driving(realization, TripStatus::InProgress);
    let actors = mover(Interleave::of(setup), "near", TripStatus::Completed);
    let ends = [
        "near moves, alice finds it completed",
        "near cannot move, alice cancels",
    ];
    explore(canceller(actors, "alice"), &ends).await;
}

/// Before the pickup the ride goes on with somebody else; after it there is nobody to pick up.
async fn a_pickup_and_a_driver_who_gives_back_leave_no_rider_behind(realization: Realization) {
    let setup = move || driving(realization, TripStatus::Arrived);
    let actors = mover(Interleave::of(setup), "phone", TripStatus::PickedUp);
    let ends = [
        "phone moves, near cancels",
        "phone cannot move, near gives it back",
    ];
    explore(giver_back(actors, "near"), &ends).await;
}

async fn rider_and_driver_who_both_cancel_end_it_once(realization: Realization) {
    let setup = move || driving(realization, TripStatus::EnRoute);
    let actors = giver_back(Interleave::of(setup), "near");
    let ends = [
        "near gives it back, alice cancels",
        "near finds it over, alice cancels",
    ];
    explore(canceller(actors, "alice"), &ends).await;
}

async fn a_step_of_a_trip_that_is_sent_twice_moves_it_once(realization: Realization) {
    let setup = move || driving(realization, TripStatus::InProgress);
    let actors = mover(Interleave::of(setup), "one", TripStatus::Completed);
    let ends = [
        "one moves, again moved before",
        "one moved before, again moves",
    ];
    explore(mover(actors, "again", TripStatus::Completed), &ends).await;
}

/// The server that got a no and the sweeper both take the next step, each with a search of its own.
#[tokio::test]
async fn two_matchers_of_one_cascade_make_one_offer() {
    let actors = matcher(Interleave::of(|| requested(Realization::Cells)), "server");
    // Both may be told "offers": it is the same offer to the same driver, made once.
    let ends = [
        "server offers, sweeper offers",
        "server offers, sweeper finds it elsewhere",
        "server finds it elsewhere, sweeper offers",
    ];
    explore(matcher(actors, "sweeper"), &ends).await;
}

async fn a_driver_goes_home_or_is_asked_never_both(realization: Realization) {
    let actors = Interleave::of(move || requested(realization));
    let actors = proposer(actors, "matcher", "alice", "near").actor("near", |town| async move {
        let near = town.driver("near");
        Told::Shift(town.dispatch.go_offline(&near).await.unwrap())
    });
    let ends = [
        "matcher proposes, near must stay",
        "matcher finds the driver busy, near goes home",
    ];
    explore(actors, &ends).await;
}

/// Alice's offer to near is over by Bob's clock: his matcher ends it itself, while a sweeper does.
async fn an_expiry_and_a_proposal_elsewhere_leave_the_driver_with_one(realization: Realization) {
    let setup = move || async move {
        let town = offered(realization).await;
        town.request("bob").await;
        town
    };
    let actors = Interleave::of(setup).actor("matcher", |town: Arc<Town>| async move {
        let ride = town
            .dispatch
            .ride(&town.ride("bob"))
            .await
            .unwrap()
            .unwrap();
        let mut near = town.candidate("near");
        near.over = Some(town.nth("alice", 1));
        Told::Propose(town.late.propose(&ride, &near).await.unwrap())
    });
    let ends = or_locked(
        realization,
        &[
            "matcher proposes, sweeper expires",
            "matcher proposes, sweeper finds it over",
        ],
        // The sweeper has ended the offer and not let go of the lock yet.
        &["matcher finds the lock taken, sweeper expires"],
    );
    explore(expirer(actors, "sweeper"), &ends).await;
}

async fn a_request_that_is_sent_twice_at_once_is_one_ride(realization: Realization) {
    let setup = move || async move {
        let town = town::open_alone(realization).await;
        let quote = town.new_quote("alice");
        town.dispatch.quote_fare(&quote).await.unwrap();
        town
    };
    let asks = |town: Arc<Town>| async move {
        let new = town.new_ride("alice");
        Told::Request(town.dispatch.request_ride(&new).await.unwrap())
    };
    let actors = Interleave::of(setup)
        .actor("alice", asks)
        .actor("again", asks);
    let ends = [
        "alice requests, again requested before",
        "alice requested before, again requests",
    ];
    explore(actors, &ends).await;
}

/// A yes, an expiry and a cancellation at once.
#[tokio::test]
async fn yes_expiry_and_cancellation_leave_everybody_where_they_say() {
    let actors = accepter(Interleave::of(|| offered(Realization::Cells)), "near");
    let actors = canceller(expirer(actors, "sweeper"), "alice");
    let ends = [
        "near accepts, sweeper finds it over, alice cancels",
        "near is too late, sweeper expires, alice cancels",
        "near is told cancelled, sweeper finds it over, alice cancels",
    ];
    explore(actors, &ends).await;
}

/// Redis forgets every lock at any moment: two rides ask, one is answered.
#[tokio::test]
async fn when_redis_forgets_a_lock_the_guard_decides() {
    let actors = Interleave::of(|| both_requested(Realization::Geo));
    let actors = proposer(actors, "one", "alice", "near");
    let actors = proposer(actors, "other", "bob", "near").actor("redis", |town| async move {
        town.redis_forgets_locks(town.dispatch.cloud()).await;
        Told::Nothing
    });
    let ends = [
        "one proposes, other finds the driver busy, redis is done",
        "one proposes, other finds the lock taken, redis is done",
        "one finds the driver busy, other proposes, redis is done",
        "one finds the lock taken, other proposes, redis is done",
    ];
    explore(actors, &ends).await;
}

/// What the whole service does about a yes that comes while the sweeper sweeps.
#[tokio::test]
async fn a_yes_and_a_whole_sweep_leave_one_driver_asked_or_matched() {
    let actors = accepter(Interleave::of(|| offered(Realization::Geo)), "near");
    let actors = actors.actor("sweeper", |town| async move {
        let told = town.late.tend(&town.ride("alice")).await.unwrap();
        if let Cascade::Offered(next) = &told {
            // Asked the next, never the same again.
            assert_ne!(next.driver_id, town.driver("near"));
        }
        Told::Cascade(told)
    });
    let explored = checked(actors).run().await.unwrap();
    let seen: Vec<_> = explored.seen.keys().map(String::as_str).collect();
    assert_eq!(
        seen,
        [
            "near accepts, sweeper finds it elsewhere",
            "near is too late, sweeper offers"
        ]
    );
}
