//! The README's invariants, one test each.
#![allow(clippy::unwrap_used)]

mod venue;

use aws_sdk_dynamodb::types::AttributeValue::S;
use chaos::{Capacity, Conflicts, Deaf, Faults, Heat, race};
use cloud::CloudError;
use cloud::tap::{Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use ticket_holds::domain::{BadInput, EXTENSION_MS, HOLD_MS, MAX_SEATS, Payment, TicketStatus};
use ticket_holds::purchase::Cards;
use ticket_holds::sandbox_cards::DECLINED_CARD;
use ticket_holds::seat_changes::SKEW_MS;
use ticket_holds::section_views::WINDOW_MS;
use ticket_holds::tables::DUE_SHARDS;
use ticket_holds::{
    BookingStatus, BoxOffice, Cancelling, Confirming, Expiry, Extension, NewBooking, NewEvent,
    NewSection, OfficeError, Over, Purchase, Realization, Rejection, Reserved, Rules, Seat,
    Tickets,
};
use venue::{
    ADMISSIONS, SEATS, SlowWrite, Venue, create, event, held, lapsed, open, open_alone, patient,
    paying, seat,
};

in_both_realizations!(
    at_most_one_booking_of_a_ticket_is_confirmed_also_when_redis_loses_everything,
    a_ticket_is_sold_if_and_only_if_exactly_one_confirmed_booking_names_it,
    a_hold_never_outlives_its_expiry_as_seen_by_a_reserver,
    an_expired_hold_blocks_nobody_though_no_sweeper_runs,
    the_displaced_booking_can_never_confirm,
    several_seats_are_held_all_or_none,
    more_seats_than_one_transaction_holds_are_refused_in_words,
    two_hundred_buyers_of_fifty_seats_buy_each_once,
    each_booking_id_is_one_booking,
    a_booking_id_used_for_something_else_is_refused,
    a_lost_answer_is_resolved_by_asking,
    a_conflict_with_another_transaction_is_tried_again,
    a_confirmation_slower_than_the_hold_is_refused,
    one_user_has_no_more_than_the_limit,
    an_expired_hold_makes_room_for_its_own_user,
    a_hold_is_extended_once,
    a_cancelled_seat_is_on_sale_at_once,
    admissions_are_never_oversold_and_no_counter_is_hot,
    the_last_admissions_are_gathered_from_several_counters,
    captured_money_implies_confirmed,
    nothing_is_charged_before_the_booking_is_confirmed,
    a_declined_card_leaves_the_hold_for_another,
    a_booking_that_is_being_paid_for_is_not_confirmed_for_free,
    a_cancelled_purchase_is_refunded,
    one_payment_pays_for_one_booking,
    a_payment_is_given_back_only_with_the_end_of_its_booking,
    a_resent_booking_is_not_refused_by_its_own_hold,
    a_confirmation_is_not_refused_by_its_own_twin,
    changes_bring_the_seats_that_changed_as_they_are_now,
    due_holds_are_found_by_a_sparse_index,
    a_stale_index_only_delays_an_expiry,
    one_booking_that_cannot_be_ended_keeps_no_other,
    ttl_only_cleans_up_what_has_ended,
    nothing_ever_scans,
    creating_an_event_twice_creates_it_once,
    bad_input_is_refused_before_any_write,
);

async fn at_most_one_booking_of_a_ticket_is_confirmed_also_when_redis_loses_everything(
    realization: Realization,
) {
    let venue = open(realization).await;
    venue.hold("alice", &[1]).await;
    venue.redis_forgets().await;
    // The lease is gone, the hold is not: DynamoDB arbitrates.
    let told = venue.reserve("bob", &[1]).await;
    assert!(
        matches!(told, Reserved::Rejected(Rejection::Held { .. })),
        "{told:?}"
    );
    // Bob's refusal left no lease behind that would be in Alice's way.
    assert!(matches!(
        venue.confirm("alice").await,
        Confirming::Confirmed(_)
    ));
    venue.redis_forgets().await;
    let told = venue.reserve("carol", &[1]).await;
    assert_eq!(told, Reserved::Rejected(Rejection::Sold { seat: seat(1) }));
    venue.invariants().await.unwrap();
}

/// A day at the office: everything happens to somebody.
async fn a_ticket_is_sold_if_and_only_if_exactly_one_confirmed_booking_names_it(
    realization: Realization,
) {
    let venue = open_alone(realization).await;
    venue.hold("alice", &[1, 2]).await;
    venue.hold("bob", &[3]).await;
    venue.confirm("alice").await;
    venue.invariants().await.unwrap();
    venue.hold_time_passes().await;
    venue.hold("carol", &[3, 4]).await;
    venue.invariants().await.unwrap();
    venue.office.expire_due().await;
    venue.purchase("carol").await;
    venue.invariants().await.unwrap();
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    venue.hold("dave", &[2]).await;
    venue.confirm("dave").await;
    let bookings = venue.invariants().await.unwrap();
    let status = |booking: &ticket_holds::BookingState| (booking.user_id.clone(), booking.status);
    let mut end: Vec<_> = bookings.iter().map(status).collect();
    end.sort_by(|one, other| one.0.cmp(&other.0));
    let expected = [
        ("alice", BookingStatus::Cancelled),
        ("bob", BookingStatus::Expired),
        ("carol", BookingStatus::Confirmed),
        ("dave", BookingStatus::Confirmed),
    ];
    assert_eq!(
        end,
        expected.map(|(user, status)| (user.to_owned(), status))
    );
}

async fn a_hold_never_outlives_its_expiry_as_seen_by_a_reserver(realization: Realization) {
    let venue = open(realization).await;
    let hold = venue.hold("alice", &[1]).await;
    assert_eq!(hold.hold_expires_at, venue.office.cloud().now() + HOLD_MS);
    let clock = venue.office.cloud().clock();
    clock.advance(Duration::from_millis(HOLD_MS as u64 - 1));
    venue.redis_forgets().await;
    let told = venue.reserve("bob", &[1]).await;
    let until = hold.hold_expires_at;
    assert_eq!(
        told,
        Reserved::Rejected(Rejection::Held {
            seat: seat(1),
            until
        })
    );
    let seen = venue
        .office
        .view_seat(&venue.event_id, &seat(1))
        .await
        .unwrap();
    assert_eq!(
        (seen.status, seen.held_until),
        (TicketStatus::Held, Some(until))
    );
    // One millisecond later it holds nothing.
    clock.advance(Duration::from_millis(1));
    let seen = venue
        .office
        .view_seat(&venue.event_id, &seat(1))
        .await
        .unwrap();
    assert_eq!(
        (seen.status, seen.held_until),
        (TicketStatus::Available, None)
    );
    assert!(matches!(
        venue.confirm("alice").await,
        Confirming::Refused(Over::Expired)
    ));
    venue.hold("bob", &[1]).await;
    venue.invariants().await.unwrap();
}

async fn an_expired_hold_blocks_nobody_though_no_sweeper_runs(realization: Realization) {
    let venue = open(realization).await;
    for user in ["alice", "bob", "carol", "dave"] {
        venue.hold(user, &[1, 2]).await;
        venue.hold_time_passes().await;
    }
    assert_eq!(venue.ticket(1).await.fence, 4);
    venue.invariants().await.unwrap();
}

async fn the_displaced_booking_can_never_confirm(realization: Realization) {
    let venue = lapsed(realization).await;
    // By Bob's clock Alice's time is over, by hers it is not.
    let bob = venue.new_booking("bob", &[1]);
    let told = venue.late.reserve(&bob).await.unwrap();
    assert!(matches!(told, Reserved::Held(_)), "{told:?}");
    let displaced = Over::Displaced { seat: seat(1) };
    let refused = Confirming::Refused(displaced.clone());
    assert_eq!(venue.confirm("alice").await, refused);
    let extended = venue.office.extend_hold(&venue.id("alice")).await;
    assert_eq!(extended.unwrap(), Extension::Refused(displaced));
    // Not after Bob is gone either, when the seat is free again.
    venue.late.cancel(&venue.id("bob")).await.unwrap();
    assert_eq!(venue.confirm("alice").await, refused);
    // Her card is given back when her booking ends, not before: only then can nobody confirm it.
    let told = venue.purchase("alice").await;
    assert!(matches!(told, Purchase::Refused(_)), "{told:?}");
    assert_eq!(venue.charge("alice").await, "AUTHORIZED");
    venue.late.expire_hold(&venue.id("alice")).await.unwrap();
    let booking = venue.booking("alice").await.unwrap();
    venue.late.settle(&venue.cards, &booking).await.unwrap();
    assert_eq!(venue.charge("alice").await, "VOIDED");
    venue.invariants().await.unwrap();
}

async fn several_seats_are_held_all_or_none(realization: Realization) {
    let venue = open(realization).await;
    venue.hold("alice", &[3]).await;
    let told = venue.reserve("bob", &[1, 2, 3, 4]).await;
    assert!(
        matches!(&told, Reserved::Rejected(Rejection::Held { seat, .. }) if seat.number == 3),
        "{told:?}"
    );
    // Neither in DynamoDB nor in Redis is anything left of it.
    venue.hold("carol", &[1, 2, 4]).await;
    assert!(matches!(
        venue.confirm("carol").await,
        Confirming::Confirmed(_)
    ));
    // One of three is sold.
    let told = venue.reserve("dave", &[3, 4]).await;
    assert!(matches!(told, Reserved::Rejected(_)), "{told:?}");
    venue.invariants().await.unwrap();
}

fn row(venue: &Venue, user: &str, seats: std::ops::RangeInclusive<u32>) -> NewBooking {
    NewBooking {
        booking_id: format!("{}-row-{user}", venue.event_id),
        event_id: format!("{}-hall", venue.event_id),
        user_id: user.into(),
        seats: seats.map(seat).collect(),
    }
}

/// An event with so many seats, and an office without a limit for each user.
async fn hall(venue: &Venue, seats: u32) -> BoxOffice {
    let rules = Rules {
        per_user_limit: 1_000,
        ..Rules::default()
    };
    let cloud = venue.office.cloud().clone();
    let office = patient(BoxOffice::with_rules(cloud, venue.realization, rules));
    let section = NewSection {
        name: "A".into(),
        tickets: Tickets::Seats(seats),
        price: 1,
    };
    let event = NewEvent {
        event_id: format!("{}-hall", venue.event_id),
        name: "Hall".into(),
        sections: vec![section],
    };
    create(&office, &event).await;
    office
}

async fn more_seats_than_one_transaction_holds_are_refused_in_words(realization: Realization) {
    let venue = open(realization).await;
    let office = hall(&venue, 100).await;
    let refused = office
        .reserve(&row(&venue, "alice", 1..=99))
        .await
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "99 seats: one booking takes at most 98, since all or none is one transaction of 100 items"
    );
    // And 98 are a transaction of exactly 100 items, at every step.
    let most = row(&venue, "alice", 1..=MAX_SEATS as u32);
    let Reserved::Held(booking) = office.reserve(&most).await.unwrap() else {
        panic!("98 seats were refused");
    };
    let told = office.confirm(&booking.booking_id).await.unwrap();
    assert!(matches!(told, Confirming::Confirmed(_)));
    let told = office.cancel(&booking.booking_id).await.unwrap();
    assert!(matches!(told, Cancelling::Cancelled(_)));
    let again = row(&venue, "bob", 1..=98);
    let again = NewBooking {
        booking_id: format!("{}-second", again.booking_id),
        ..again
    };
    assert!(matches!(
        office.reserve(&again).await.unwrap(),
        Reserved::Held(_)
    ));
}

async fn two_hundred_buyers_of_fifty_seats_buy_each_once(realization: Realization) {
    let venue = open(realization).await;
    let office = hall(&venue, 50).await;
    let event_id = format!("{}-hall", venue.event_id);
    let bought = race(200, {
        let (office, event_id) = (office.clone(), event_id.clone());
        move |buyer| {
            let new = NewBooking {
                booking_id: format!("{event_id}-buyer-{buyer}"),
                event_id: event_id.clone(),
                user_id: format!("buyer-{buyer}"),
                seats: vec![seat(buyer as u32 % 50 + 1)],
            };
            let office = office.clone();
            async move {
                match office.reserve(&new).await.unwrap() {
                    Reserved::Held(_) => {}
                    Reserved::Rejected(_) => return None,
                    Reserved::Before(booking) => panic!("{booking:?}"),
                }
                match office.confirm(&new.booking_id).await.unwrap() {
                    Confirming::Confirmed(booking) => Some(booking),
                    other => panic!("{other:?}"),
                }
            }
        }
    })
    .await;
    let sold: Vec<_> = bought
        .iter()
        .flatten()
        .map(|b| b.lines[0].seat.clone())
        .collect();
    let once: BTreeSet<_> = sold.iter().collect();
    assert_eq!((sold.len(), once.len()), (50, 50));
    let map = office.seat_map(&event_id, "A").await.unwrap();
    assert!(
        map.seats
            .iter()
            .all(|seat| seat.status == TicketStatus::Sold)
    );
}

async fn each_booking_id_is_one_booking(realization: Realization) {
    let venue = Arc::new(open(realization).await);
    let told = race(8, {
        let venue = Arc::clone(&venue);
        move |_| {
            let venue = Arc::clone(&venue);
            async move { venue.reserve("alice", &[1, 2]).await }
        }
    })
    .await;
    let held = told.iter().filter(|told| matches!(told, Reserved::Held(_)));
    assert_eq!(held.count(), 1);
    assert!(
        told.iter()
            .all(|told| !matches!(told, Reserved::Rejected(_))),
        "{told:?}"
    );
    venue.invariants().await.unwrap();
    // Whatever became of it, that is what a late repetition is told; and no lease is left.
    for status in [BookingStatus::Confirmed, BookingStatus::Cancelled] {
        match status {
            BookingStatus::Confirmed => drop(venue.confirm("alice").await),
            _ => drop(venue.office.cancel(&venue.id("alice")).await.unwrap()),
        }
        let Reserved::Before(there) = venue.reserve("alice", &[1, 2]).await else {
            panic!("it was made again");
        };
        assert_eq!(there.status, status);
    }
    venue.hold("bob", &[1, 2]).await;
    venue.invariants().await.unwrap();
}

async fn a_booking_id_used_for_something_else_is_refused(realization: Realization) {
    let venue = open(realization).await;
    venue.hold("alice", &[1]).await;
    let first = venue.new_booking("alice", &[1]);
    for other in [
        NewBooking {
            user_id: "mallory".into(),
            ..first.clone()
        },
        NewBooking {
            seats: vec![seat(2)],
            ..first.clone()
        },
        NewBooking {
            seats: vec![seat(1), seat(2)],
            ..first.clone()
        },
    ] {
        let error = venue.office.reserve(&other).await.unwrap_err();
        assert!(matches!(error, OfficeError::IdTaken(_)), "{error}");
    }
    let admissions = venue.new_admissions("alice", 1);
    let error = venue.office.reserve_admissions(&admissions).await;
    assert!(matches!(error, Err(OfficeError::IdTaken(_))), "{error:?}");
    venue.invariants().await.unwrap();
    // The refused attempts left the seats to others.
    venue.hold("bob", &[2]).await;
}

async fn a_lost_answer_is_resolved_by_asking(realization: Realization) {
    let venue = open(realization).await;
    let deaf = venue.office.cloud().tap().install(Arc::new(Deaf));
    let told = venue.reserve("alice", &[1]).await;
    assert!(matches!(told, Reserved::Before(_)), "{told:?}");
    let told = venue.confirm("alice").await;
    assert!(matches!(told, Confirming::Before(_)), "{told:?}");
    let new = venue.new_admissions("bob", 2);
    let told = venue.office.reserve_admissions(&new).await.unwrap();
    assert!(matches!(told, Reserved::Before(_)), "{told:?}");
    drop(deaf);
    venue.invariants().await.unwrap();
}

async fn a_conflict_with_another_transaction_is_tried_again(realization: Realization) {
    let venue = open(realization).await;
    let conflicts = || {
        let plan = Arc::new(Conflicts::on("TransactWriteItems", 2));
        (plan.clone(), venue.office.cloud().tap().install(plan))
    };
    let (plan, _in_charge) = conflicts();
    venue.hold("alice", &[1]).await;
    assert_eq!(plan.left(), 0);
    drop(_in_charge);
    let (plan, _in_charge) = conflicts();
    let extended = venue.office.extend_hold(&venue.id("alice")).await.unwrap();
    assert!(matches!(extended, Extension::Until(_)));
    assert_eq!(plan.left(), 0);
    drop(_in_charge);
    let (plan, _in_charge) = conflicts();
    assert!(matches!(
        venue.confirm("alice").await,
        Confirming::Confirmed(_)
    ));
    assert_eq!(plan.left(), 0);
    drop(_in_charge);
    let (plan, _in_charge) = conflicts();
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    assert_eq!(plan.left(), 0);
    drop(_in_charge);
    venue.hold("bob", &[1]).await;
    let (plan, _in_charge) = conflicts();
    venue.late.expire_hold(&venue.id("bob")).await.unwrap();
    assert_eq!(plan.left(), 0);
    drop(_in_charge);
    let (plan, _in_charge) = conflicts();
    venue.hold_admissions("carol", 2).await;
    assert_eq!(plan.left(), 0);
    drop(_in_charge);
    // A single write is refused too while a transaction has its item.
    venue.hold("dave", &[4]).await;
    let plan = Arc::new(Conflicts::on("UpdateItem", 2));
    let _in_charge = venue.office.cloud().tap().install(plan.clone());
    let told = venue.purchase("dave").await;
    assert!(matches!(told, Purchase::Bought(_)), "{told:?}");
    assert_eq!(plan.left(), 0);
    venue.invariants().await.unwrap();
}

async fn a_confirmation_slower_than_the_hold_is_refused(realization: Realization) {
    let venue = held(realization).await;
    let slow = Arc::new(SlowWrite::of(&venue));
    let _plan = venue.office.cloud().tap().install(slow);
    assert_eq!(
        venue.confirm("alice").await,
        Confirming::Refused(Over::Expired)
    );
    venue.invariants().await.unwrap();
}

async fn one_user_has_no_more_than_the_limit(realization: Realization) {
    let venue = open(realization).await;
    let rules = Rules {
        per_user_limit: 3,
        ..Rules::default()
    };
    let office = patient(BoxOffice::with_rules(
        venue.office.cloud().clone(),
        realization,
        rules,
    ));
    let ask = |n: usize, seats: &[u32]| NewBooking {
        booking_id: format!("{}-{n}", venue.event_id),
        user_id: "alice".into(),
        ..venue.new_booking("alice", seats)
    };
    // Sixteen at once, for one of four seats each: three of them.
    let held = race(16, {
        let (office, asks) = (
            office.clone(),
            (0..16)
                .map(|n| ask(n, &[n as u32 % SEATS + 1]))
                .collect::<Vec<_>>(),
        );
        move |n| {
            let (office, ask) = (office.clone(), asks[n].clone());
            async move { matches!(office.reserve(&ask).await.unwrap(), Reserved::Held(_)) }
        }
    })
    .await;
    let held = held.into_iter().filter(|held| *held).count();
    assert_eq!(held, 3);
    let allowance = office.allowance(&venue.event_id, "alice").await.unwrap();
    assert_eq!(
        (allowance.tickets_taken, allowance.counted_bookings.len()),
        (3, 3)
    );
    // Admissions count too, and what is confirmed goes on counting.
    let confirmed = allowance.counted_bookings.first().unwrap();
    office.confirm(confirmed).await.unwrap();
    let mut floor = venue.new_admissions("alice", 1);
    floor.booking_id = format!("{}-floor", venue.event_id);
    let told = office.reserve_admissions(&floor).await.unwrap();
    assert_eq!(
        told,
        Reserved::Rejected(Rejection::OverLimit { limit: 3, taken: 3 })
    );
    let four = office.reserve(&ask(99, &[1, 2, 3, 4])).await.unwrap_err();
    assert_eq!(four.to_string(), "4 tickets: at most 3 for each user");
}

async fn an_expired_hold_makes_room_for_its_own_user(realization: Realization) {
    let venue = open(realization).await;
    let rules = Rules {
        per_user_limit: 2,
        ..Rules::default()
    };
    let office = patient(BoxOffice::with_rules(
        venue.office.cloud().clone(),
        realization,
        rules,
    ));
    venue.hold("alice", &[1, 2]).await;
    let mut second = venue.new_booking("bob", &[3]);
    second.user_id = "alice".into();
    let told = office.reserve(&second).await.unwrap();
    assert_eq!(
        told,
        Reserved::Rejected(Rejection::OverLimit { limit: 2, taken: 2 })
    );
    // No sweeper comes; she asks again when her first hold is over.
    venue.hold_time_passes().await;
    let told = office.reserve(&second).await.unwrap();
    assert!(matches!(told, Reserved::Held(_)), "{told:?}");
    assert_eq!(venue.status("alice").await, Some(BookingStatus::Expired));
    let allowance = office.allowance(&venue.event_id, "alice").await.unwrap();
    assert_eq!(allowance.tickets_taken, 1);
}

async fn a_hold_is_extended_once(realization: Realization) {
    let venue = open(realization).await;
    let hold = venue.hold("alice", &[1]).await;
    let until = hold.hold_expires_at + EXTENSION_MS;
    let extend = || venue.office.extend_hold(&hold.booking_id);
    assert_eq!(extend().await.unwrap(), Extension::Until(until));
    assert_eq!(extend().await.unwrap(), Extension::Before(until));
    // The first ten minutes are over; she still has it, and can buy it.
    let clock = venue.office.cloud().clock();
    clock.advance(Duration::from_millis(HOLD_MS as u64 + 1));
    assert_eq!(
        venue.office.expire_hold(&hold.booking_id).await.unwrap(),
        Expiry::NotDue { until }
    );
    let told = venue.reserve("bob", &[1]).await;
    assert!(
        matches!(told, Reserved::Rejected(Rejection::Held { .. })),
        "{told:?}"
    );
    venue.invariants().await.unwrap();
    assert!(matches!(
        venue.confirm("alice").await,
        Confirming::Confirmed(_)
    ));
    assert_eq!(extend().await.unwrap(), Extension::Refused(Over::Confirmed));
}

async fn a_cancelled_seat_is_on_sale_at_once(realization: Realization) {
    let venue = open(realization).await;
    venue.hold("alice", &[1]).await;
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    venue.hold("bob", &[1]).await;
    venue.confirm("bob").await;
    venue.office.cancel(&venue.id("bob")).await.unwrap();
    venue.hold("carol", &[1]).await;
    // Cancelling again changes nothing of what is Carol's now.
    let again = venue.office.cancel(&venue.id("bob")).await.unwrap();
    assert_eq!(again, Cancelling::Over(BookingStatus::Cancelled));
    assert!(matches!(
        venue.confirm("carol").await,
        Confirming::Confirmed(_)
    ));
    venue.invariants().await.unwrap();
}

async fn admissions_are_never_oversold_and_no_counter_is_hot(realization: Realization) {
    let venue = open(realization).await;
    let big = NewEvent {
        event_id: format!("{}-festival", venue.event_id),
        name: "Festival".into(),
        sections: vec![NewSection {
            name: "Floor".into(),
            tickets: Tickets::Admissions(60),
            price: 1,
        }],
    };
    venue.office.create_event(&big).await.unwrap();
    let heat = Arc::new(Heat::new(
        ticket_holds::tables::TABLES,
        venue.office.cloud().clock().clone(),
    ));
    let measuring = venue.office.cloud().tap().install(heat.clone());
    let told = race(80, {
        let (office, event_id) = (venue.office.clone(), big.event_id.clone());
        move |buyer| {
            let new = ticket_holds::NewAdmissions {
                booking_id: format!("{event_id}-buyer-{buyer}"),
                event_id: event_id.clone(),
                user_id: format!("buyer-{buyer}"),
                section: "Floor".into(),
                count: 1,
            };
            let office = office.clone();
            async move { office.reserve_admissions(&new).await.unwrap() }
        }
    })
    .await;
    let lines: Vec<_> = told
        .iter()
        .filter_map(|told| match told {
            Reserved::Held(booking) => Some(&booking.lines[0]),
            _ => None,
        })
        .collect();
    assert_eq!(lines.len(), 60);
    let counters: BTreeSet<_> = lines.iter().map(|line| &line.seat).collect();
    assert_eq!(counters.len(), 10, "all of them take a part");
    drop(measuring);
    // Of all that was written to tickets, the hottest partition key took less than a quarter.
    let keys: Vec<_> = heat
        .hottest(usize::MAX)
        .into_iter()
        .filter(|key| key.resource == "tickets" && key.capacity == Capacity::Write)
        .map(|key| key.units)
        .collect();
    let (hottest, all) = (keys[0], keys.iter().sum::<f64>());
    assert!(keys.len() == 10 && hottest < all / 4.0, "{keys:?}");
    let sold_out = |told: &&Reserved| matches!(told, Reserved::Rejected(Rejection::SoldOut { .. }));
    assert_eq!(told.iter().filter(sold_out).count(), 20);
}

async fn the_last_admissions_are_gathered_from_several_counters(realization: Realization) {
    let venue = open(realization).await;
    // Twelve over ten counters: no counter has more than two.
    let alice = venue.hold_admissions("alice", 8).await;
    assert!(alice.lines.len() >= 4, "{:?}", alice.lines);
    venue.hold_admissions("bob", 4).await;
    let new = venue.new_admissions("carol", 1);
    let told = venue.office.reserve_admissions(&new).await.unwrap();
    assert_eq!(told, Reserved::Rejected(Rejection::SoldOut { left: 0 }));
    // Confirmed they stay taken; ended, they come back to where they came from.
    venue.confirm("bob").await;
    venue.invariants().await.unwrap();
    venue.hold_time_passes().await;
    venue.office.expire_hold(&alice.booking_id).await.unwrap();
    venue.invariants().await.unwrap();
    venue.hold_admissions("carol", 8).await;
    venue.office.cancel(&venue.id("bob")).await.unwrap();
    venue.hold_admissions("dave", ADMISSIONS - 8).await;
    venue.invariants().await.unwrap();
}

async fn captured_money_implies_confirmed(realization: Realization) {
    let venue = open_alone(realization).await;
    for (user, number) in [("alice", 1), ("bob", 2), ("carol", 3)] {
        venue.hold(user, &[number]).await;
    }
    let told = venue.purchase("alice").await;
    assert!(matches!(told, Purchase::Bought(_)), "{told:?}");
    assert_eq!(venue.charge("alice").await, "CAPTURED");
    assert_eq!(venue.purchase("alice").await, told, "sent again");
    venue.hold_time_passes().await;
    assert_eq!(
        venue.purchase("bob").await,
        Purchase::Refused(Over::Expired)
    );
    assert_eq!(venue.charge("bob").await, "NONE");
    venue.invariants().await.unwrap();
}

async fn nothing_is_charged_before_the_booking_is_confirmed(realization: Realization) {
    let venue = held(realization).await;
    let recording = venue.office.cloud().tap().record();
    venue.purchase("alice").await;
    let calls = recording.calls();
    let writes: Vec<_> = calls
        .iter()
        .filter(|call| call.request.service == Service::DynamoDb)
        .map(|call| call.shape())
        .collect();
    let order = [
        "UpdateItem bookings if",
        "PutItem sandbox_charges if",
        "TransactWriteItems [Update bookings if, Update tickets if]",
        "UpdateItem sandbox_charges if",
        "UpdateItem bookings if",
    ];
    assert_eq!(
        writes, order,
        "said, authorized, confirmed, captured, settled"
    );
}

async fn a_declined_card_leaves_the_hold_for_another(realization: Realization) {
    let venue = held(realization).await;
    let id = venue.id("alice");
    let pay = |payment, card| venue.office.purchase(&venue.cards, &id, payment, card);
    let first = format!("{id}-first");
    assert_eq!(
        pay(&first, DECLINED_CARD).await.unwrap(),
        Purchase::Declined
    );
    // The same again is declined again, whatever the card says now.
    assert_eq!(pay(&first, "card").await.unwrap(), Purchase::Declined);
    venue.invariants().await.unwrap();
    let second = format!("{id}-second");
    let told = pay(&second, "card").await.unwrap();
    assert!(matches!(told, Purchase::Bought(_)), "{told:?}");
    venue.invariants().await.unwrap();
}

async fn a_booking_that_is_being_paid_for_is_not_confirmed_for_free(realization: Realization) {
    let venue = paying(realization).await;
    let refused = Confirming::Refused(Over::PaymentUnderWay);
    assert_eq!(venue.confirm("alice").await, refused);
    let id = venue.id("alice");
    let other = venue
        .office
        .purchase(&venue.cards, &id, "another", "card")
        .await;
    assert_eq!(other.unwrap(), Purchase::Refused(Over::PaymentUnderWay));
    let told = venue.purchase("alice").await;
    assert!(matches!(told, Purchase::Bought(_)), "{told:?}");
    venue.invariants().await.unwrap();
}

async fn a_cancelled_purchase_is_refunded(realization: Realization) {
    let venue = open_alone(realization).await;
    venue.hold("alice", &[1]).await;
    venue.purchase("alice").await;
    let told = venue.office.cancel(&venue.id("alice")).await.unwrap();
    let Cancelling::Cancelled(booking) = told else {
        panic!("{told:?}");
    };
    assert_eq!(booking.payment, Some(Payment::Open));
    // The sweeper sees to it, as soon as it comes by.
    let swept = venue.office.sweep(&venue.cards).await;
    assert_eq!(swept.len(), 1);
    assert_eq!(venue.charge("alice").await, "REFUNDED");
    assert!(venue.office.sweep(&venue.cards).await.is_empty());
    venue.invariants().await.unwrap();
}

async fn one_payment_pays_for_one_booking(realization: Realization) {
    let venue = open_alone(realization).await;
    for (user, number) in [("alice", 1), ("bob", 2)] {
        venue.hold(user, &[number]).await;
        let id = venue.id(user);
        let paid = venue
            .office
            .purchase(&venue.cards, &id, "the-same-id", "card")
            .await;
        assert!(matches!(paid.unwrap(), Purchase::Bought(_)));
    }
    // Alice's refund is not Bob's.
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    venue.office.sweep(&venue.cards).await;
    let charge = async |user: &str| {
        let key = venue.booking(user).await.unwrap().charge_key().unwrap();
        venue.cards.charge(&key).await.unwrap().unwrap().status
    };
    assert_eq!(charge("alice").await, "REFUNDED");
    assert_eq!(charge("bob").await, "CAPTURED");
    venue.invariants().await.unwrap();
}

/// A card that is asked for so long that the hold is over when the answer comes, by this clock.
struct SlowCard(ticket_holds::sandbox_cards::SandboxCards, cloud::Clock);

impl Cards for SlowCard {
    fn authorize<'a>(
        &'a self,
        key: &'a str,
        amount: i64,
        card: &'a str,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async move {
            let answer = self.0.authorize(key, amount, card).await;
            self.1.advance(Duration::from_millis(HOLD_MS as u64 + 1));
            answer
        })
    }

    fn capture<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, CloudError>> {
        self.0.capture(key)
    }

    fn give_back<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        self.0.give_back(key)
    }
}

/// The same payment is made by two processes: one authorized and died, the other finds that it is
/// too late. It gives the money back, and with that the first one's way on is closed.
async fn a_payment_is_given_back_only_with_the_end_of_its_booking(realization: Realization) {
    let venue = paying(realization).await;
    let cloud = venue.office.cloud();
    let clock = cloud::Clock::manual(cloud.now());
    let slow = SlowCard(venue.cards.clone(), clock.clone());
    let office = patient(BoxOffice::new(cloud.with_clock(clock), realization));
    let (booking, payment) = (venue.id("alice"), venue.payment_id("alice"));
    let late = office.purchase(&slow, &booking, &payment, "card").await;
    assert_eq!(late.unwrap(), Purchase::Refused(Over::Expired));
    assert_eq!(venue.charge("alice").await, "VOIDED");
    assert_eq!(venue.status("alice").await, Some(BookingStatus::Expired));
    // By the first one's clock there is still time.
    let told = venue.office.confirm_paid(&booking, &payment).await.unwrap();
    assert_eq!(told, Confirming::Refused(Over::Expired));
    venue.invariants().await.unwrap();
}

/// Answers one call with what a table looked like to it at two moments.
struct Torn {
    operation: &'static str,
    answer: Value,
    status: u16,
    done: AtomicBool,
}

impl Plan for Torn {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let hit = request.operation == self.operation && !self.done.swap(true, Ordering::SeqCst);
        Box::pin(async move {
            if !hit {
                return Verdict::Pass;
            }
            Verdict::Answer {
                status: self.status,
                body: self.answer.clone(),
            }
        })
    }
}

/// Seat 1 as DynamoDB writes it down.
async fn seat_in_json(venue: &Venue) -> Value {
    let ticket = venue.ticket(1).await;
    json!({
        "block_id": {"S": ticket.block_id}, "seat": {"S": ticket.seat},
        "price": {"N": ticket.price.to_string()}, "fence": {"N": ticket.fence.to_string()},
        "status": {"S": match ticket.status { TicketStatus::Sold => "SOLD", _ => "HELD" }},
        "booking_id": {"S": ticket.booking_id.unwrap()},
        "hold_expires_at": {"N": ticket.hold_expires_at.unwrap_or_default().to_string()},
    })
}

/// A batch is no snapshot: it may bring the ticket of our first attempt without its booking.
async fn a_resent_booking_is_not_refused_by_its_own_hold(realization: Realization) {
    let venue = held(realization).await;
    let table = venue.office.cloud().names().table("tickets");
    let torn = Torn {
        operation: "BatchGetItem",
        status: 200,
        answer: json!({"Responses": {table: [seat_in_json(&venue).await]}, "UnprocessedKeys": {}}),
        done: AtomicBool::new(false),
    };
    let plan = venue.office.cloud().tap().install(Arc::new(torn));
    let told = venue.reserve("alice", &[1]).await;
    assert!(matches!(told, Reserved::Before(_)), "{told:?}");
    drop(plan);
    // And its lease is still there.
    let recording = venue.office.cloud().tap().record();
    venue.reserve("bob", &[1]).await;
    assert_eq!(recording.calls().len(), 1);
}

/// A twin has sold the ticket to us, and its booking was in conflict when we came.
async fn a_confirmation_is_not_refused_by_its_own_twin(realization: Realization) {
    let venue = held(realization).await;
    let booking = venue.booking("alice").await.unwrap();
    venue.confirm("alice").await;
    let torn = Torn {
        operation: "TransactWriteItems",
        status: 400,
        answer: json!({
            "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
            "Message": "Transaction cancelled",
            "CancellationReasons": [
                {"Code": "TransactionConflict"},
                {"Code": "ConditionalCheckFailed", "Item": seat_in_json(&venue).await},
            ],
        }),
        done: AtomicBool::new(false),
    };
    // What this call read before the twin's sale.
    let item = json!({"Item": booking_in_json(&booking)});
    let read = Torn {
        operation: "GetItem",
        status: 200,
        answer: item,
        done: AtomicBool::new(false),
    };
    let _torn = venue.office.cloud().tap().install(Arc::new(torn));
    let _read = venue.office.cloud().tap().install(Arc::new(read));
    let told = venue.confirm("alice").await;
    assert!(matches!(told, Confirming::Before(_)), "{told:?}");
}

fn booking_in_json(booking: &ticket_holds::BookingState) -> Value {
    let line = &booking.lines[0];
    json!({
        "booking_id": {"S": booking.booking_id}, "event_id": {"S": booking.event_id},
        "user_id": {"S": booking.user_id}, "status": {"S": "IN_PROGRESS"},
        "total": {"N": booking.total.to_string()},
        "hold_expires_at": {"N": booking.hold_expires_at.to_string()},
        "created_at": {"N": booking.created_at.to_string()},
        "lines": {"L": [{"M": {
            "block_id": {"S": line.block_id}, "seat": {"S": line.seat},
            "fence": {"N": line.fence.unwrap().to_string()},
            "count": {"N": "1"}, "price": {"N": line.price.to_string()},
        }}]},
    })
}

/// Built once, in one realization: it takes 200 transactions, and 200 more to hold every seat. What the README says
/// about section views is printed here.
#[tokio::test]
async fn the_map_of_twenty_thousand_seats_is_read_by_query_pages() {
    let venue = open(Realization::Pure).await;
    let event_id = format!("{}-arena", venue.event_id);
    let arena = NewEvent {
        event_id: event_id.clone(),
        name: "Arena".into(),
        sections: vec![NewSection {
            name: "West".into(),
            tickets: Tickets::Seats(20_000),
            price: 80_00,
        }],
    };
    // Fifty passes of 396 seats and a last one.
    assert_eq!(create(&venue.office, &arena).await, 51);
    let cloud = venue.office.cloud();
    let recording = cloud.tap().record();
    let units = || {
        let calls = recording.take();
        let pages = calls
            .iter()
            .filter(|call| call.request.operation == "Query");
        let units: f64 = calls.iter().map(|call| call.read_units()).sum();
        (pages.count(), units)
    };
    let status = |map: &ticket_holds::view_seats::SeatMap, status| {
        map.seats
            .iter()
            .filter(|seat| seat.status == status)
            .count()
    };
    let map = venue.office.seat_map(&event_id, "West").await.unwrap();
    assert_eq!(map.seats.len(), 20_000);
    assert_eq!(status(&map, TicketStatus::Available), 20_000);
    let (pages, before) = units();
    assert!(pages > 1, "a page is a megabyte");
    // Every seat is held, as fast as the section's key takes it.
    let rules = Rules {
        per_user_limit: 98,
        ..Rules::default()
    };
    let office = BoxOffice::with_rules(cloud.clone(), Realization::Pure, rules);
    let clock = cloud.clock();
    let heat = Arc::new(Heat::new(ticket_holds::tables::TABLES, clock.clone()));
    let measuring = cloud.tap().install(heat.clone());
    let seats: Vec<Seat> = map
        .seats
        .iter()
        .map(|it| it.seat.parse().unwrap())
        .collect();
    let mut pace = 0.0;
    for (round, seats) in seats.chunks(98).enumerate() {
        let new = NewBooking {
            booking_id: format!("{event_id}-booking-{round:04}"),
            event_id: event_id.clone(),
            user_id: format!("user-{round}"),
            seats: seats.to_vec(),
        };
        let told = office.reserve(&new).await.unwrap();
        assert!(matches!(told, Reserved::Held(_)), "{told:?}");
        if round == 0 {
            let key =
                |key: &chaos::HotKey| key.resource == "tickets" && key.capacity == Capacity::Write;
            let hottest = heat.hottest(usize::MAX).into_iter().find(key).unwrap();
            pace = hottest.units;
        }
        clock.advance(Duration::from_millis(pace as u64));
    }
    assert_eq!(heat.throttled(), 0);
    drop(measuring);
    units();
    let since = clock.now() - WINDOW_MS;
    let window = office.seat_changes(&event_id, "West", since).await.unwrap();
    let (_, changes) = units();
    let map = office.seat_map(&event_id, "West").await.unwrap();
    assert_eq!(status(&map, TicketStatus::Held), 20_000);
    let (_, held) = units();
    println!(
        "the map of 20,000 seats: {before} read units before the sale, {held} once every seat was held"
    );
    println!(
        "the changes of fifteen seconds: {} seats, {changes} read units",
        window.seats.len()
    );
    let servers = |units: f64| (3_000.0 / units).floor() as u32;
    let (most, fewest) = (servers(before), servers(held + changes));
    println!("a key bears {most} servers before the sale, {fewest} at its height");
    assert!((15..=21).contains(&most) && (5..=6).contains(&fewest));
    // A little more or less with the length of ids.
    assert!((140.0..200.0).contains(&before), "{before}");
    assert!((300.0..400.0).contains(&held), "{held}");
    // A seat's first hold costs three units: 333 a second.
    assert!(
        (4_800..=5_000).contains(&window.seats.len()),
        "{}",
        window.seats.len()
    );
    assert!((140.0..200.0).contains(&changes), "{changes}");
}

async fn changes_bring_the_seats_that_changed_as_they_are_now(realization: Realization) {
    let venue = open(realization).await;
    let cloud = venue.office.cloud();
    let changes = |since| venue.office.seat_changes(&venue.event_id, "A", since);
    let first = changes(0).await.unwrap();
    assert!(first.seats.is_empty(), "nothing has changed since the map");
    venue.hold("alice", &[1]).await;
    venue.hold("bob", &[2]).await;
    venue.confirm("bob").await;
    let second = changes(first.as_of).await.unwrap();
    let mut seen: Vec<_> = second
        .seats
        .iter()
        .map(|s| (s.seat.as_str(), s.status))
        .collect();
    seen.sort_by_key(|seen| seen.0);
    assert_eq!(
        seen,
        [("A-1", TicketStatus::Held), ("A-2", TicketStatus::Sold)]
    );
    // A little later only what changed since; and a writer whose clock is behind is not missed.
    cloud
        .clock()
        .advance(Duration::from_millis(2 * SKEW_MS as u64));
    let third = changes(second.as_of + SKEW_MS + 1).await.unwrap();
    assert!(third.seats.is_empty(), "{third:?}");
    let behind = cloud::Clock::manual(cloud.now() - SKEW_MS + 1);
    let behind = patient(BoxOffice::new(cloud.with_clock(behind), realization));
    let told = behind.reserve(&venue.new_booking("carol", &[3])).await;
    assert!(matches!(told.unwrap(), Reserved::Held(_)));
    let fourth = changes(third.as_of).await.unwrap();
    assert_eq!(fourth.seats.len(), 1);
    assert_eq!(fourth.seats[0].seat, "A-3");
    // Applied to the map it was read with, the changes give the map as it is.
    let mut kept = venue.office.seat_map(&venue.event_id, "A").await.unwrap();
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    for changed in changes(fourth.as_of).await.unwrap().seats {
        let seat = kept.seats.iter_mut().find(|seat| seat.seat == changed.seat);
        *seat.unwrap() = changed;
    }
    let now = venue.office.seat_map(&venue.event_id, "A").await.unwrap();
    assert_eq!(kept.seats, now.seats);
}

async fn due_holds_are_found_by_a_sparse_index(realization: Realization) {
    let venue = open(realization).await;
    let hold = venue.hold("alice", &[1]).await;
    venue.hold("bob", &[2]).await;
    venue.confirm("bob").await;
    let mine = [venue.id("alice"), venue.id("bob")];
    let due = async |at| {
        let mut found = Vec::new();
        for shard in 0..DUE_SHARDS {
            let shard = format!("due-{shard}");
            let page = venue.office.due_in(&shard, at, None).await;
            found.extend(page.unwrap().0);
        }
        found.retain(|id| mine.contains(id));
        found
    };
    assert!(due(hold.hold_expires_at - 1).await.is_empty());
    assert_eq!(due(hold.hold_expires_at).await, [venue.id("alice")]);
    venue.late.expire_hold(&hold.booking_id).await.unwrap();
    // What is done has left the index, however long one waits.
    assert!(due(hold.hold_expires_at * 2).await.is_empty());
}

async fn a_stale_index_only_delays_an_expiry(realization: Realization) {
    let venue = open_alone(realization).await;
    venue.hold("alice", &[1]).await;
    let stale = Arc::new(Faults::seeded(1).stale_read(1.0));
    let plan = venue.office.cloud().tap().install(stale);
    assert!(venue.late.expire_due().await.is_empty());
    // Nobody waits for it.
    venue.redis_forgets().await;
    let told = venue.late.reserve(&venue.new_booking("bob", &[1])).await;
    assert!(matches!(told.unwrap(), Reserved::Held(_)));
    drop(plan);
    assert_eq!(venue.late.expire_due().await.len(), 1);
    // What it still shows when it is over does no harm.
    let again = venue.late.expire_hold(&venue.id("alice")).await.unwrap();
    assert_eq!(again, Expiry::Over(BookingStatus::Expired));
    venue.invariants().await.unwrap();
}

async fn one_booking_that_cannot_be_ended_keeps_no_other(realization: Realization) {
    let venue = open_alone(realization).await;
    for (user, number) in [("alice", 1), ("bob", 2), ("carol", 3)] {
        venue.hold(user, &[number]).await;
    }
    // An item that no longer reads as a booking.
    let cloud = venue.office.cloud();
    cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("bookings"))
        .key("booking_id", S(venue.id("bob")))
        .update_expression("REMOVE user_id")
        .send()
        .await
        .unwrap();
    let swept = venue.late.expire_due().await;
    assert_eq!(swept.len(), 3);
    for (id, ended) in swept {
        assert_eq!(ended.is_err(), id == venue.id("bob"), "{id}: {ended:?}");
    }
}

async fn ttl_only_cleans_up_what_has_ended(realization: Realization) {
    let venue = open_alone(realization).await;
    for (user, number) in [("alice", 1), ("bob", 2), ("carol", 3), ("dave", 4)] {
        venue.hold(user, &[number]).await;
    }
    venue.confirm("alice").await;
    venue.office.cancel(&venue.id("bob")).await.unwrap();
    venue.late.expire_hold(&venue.id("carol")).await.unwrap();
    let cloud = venue.office.cloud();
    for (user, purged) in [
        ("alice", false),
        ("bob", true),
        ("carol", true),
        ("dave", false),
    ] {
        let found = cloud
            .dynamodb()
            .get_item()
            .table_name(cloud.names().table("bookings"))
            .key("booking_id", S(venue.id(user)))
            .consistent_read(true)
            .send()
            .await
            .unwrap();
        let item = found.item.unwrap();
        assert_eq!(item.contains_key("purge_at"), purged, "{user}");
    }
}

async fn nothing_ever_scans(realization: Realization) {
    let venue = open_alone(realization).await;
    let recording = venue.office.cloud().tap().record();
    venue.hold("alice", &[1]).await;
    venue.reserve("bob", &[1]).await;
    venue.purchase("alice").await;
    venue.hold_admissions("carol", 3).await;
    venue.office.extend_hold(&venue.id("carol")).await.unwrap();
    venue.office.seat_map(&venue.event_id, "A").await.unwrap();
    venue
        .office
        .seat_changes(&venue.event_id, "A", 0)
        .await
        .unwrap();
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    venue.late.sweep(&venue.cards).await;
    let calls = recording.calls();
    assert!(calls.len() > 20);
    assert!(calls.iter().all(|call| call.request.operation != "Scan"));
}

async fn creating_an_event_twice_creates_it_once(realization: Realization) {
    let venue = open(realization).await;
    venue.hold("alice", &[1]).await;
    venue.confirm("alice").await;
    let same = event(&venue.event_id);
    venue.office.create_event(&same).await.unwrap();
    let mut other = same;
    other.name = "Another".into();
    let refused = venue.office.create_event(&other).await.unwrap_err();
    assert!(matches!(refused, OfficeError::IdTaken(_)), "{refused}");
    venue.invariants().await.unwrap();
}

async fn bad_input_is_refused_before_any_write(realization: Realization) {
    let venue = open(realization).await;
    let recording = venue.office.cloud().tap().record();
    let good = venue.new_booking("alice", &[1]);
    let long = "x".repeat(201);
    let wrong = [
        (
            NewBooking {
                seats: vec![],
                ..good.clone()
            },
            "at least one ticket",
        ),
        (
            NewBooking {
                seats: vec![seat(1), seat(1)],
                ..good.clone()
            },
            "A-1 is named twice",
        ),
        (
            NewBooking {
                seats: vec![seat(0)],
                ..good.clone()
            },
            "'A-0' is not a seat",
        ),
        (
            NewBooking {
                booking_id: String::new(),
                ..good.clone()
            },
            "booking_id must have",
        ),
        (
            NewBooking {
                user_id: long.clone(),
                ..good.clone()
            },
            "user_id must have",
        ),
        (
            NewBooking {
                event_id: "a#b".into(),
                ..good.clone()
            },
            "must not contain '#'",
        ),
        (
            NewBooking {
                seats: (1..=9).map(seat).collect(),
                ..good.clone()
            },
            "9 tickets: at most 8 for each user",
        ),
    ];
    for (new, says) in wrong {
        let error = venue.office.reserve(&new).await.unwrap_err();
        assert!(matches!(error, OfficeError::BadInput(_)), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    for text in [
        "", "A", "A-", "-1", "A-x", "A-0", "A-100000", "A#-1", "A-03", "A-+3",
    ] {
        assert!(
            matches!(text.parse::<Seat>(), Err(BadInput::Seat(_))),
            "{text}"
        );
    }
    assert_eq!(
        "Upper-Left-12".parse::<Seat>().unwrap().section,
        "Upper-Left"
    );
    let none = venue.new_admissions("alice", 0);
    assert!(venue.office.reserve_admissions(&none).await.is_err());
    let paid = venue
        .office
        .purchase(&venue.cards, "b", &long, "card")
        .await;
    assert!(matches!(paid, Err(OfficeError::BadInput(_))));
    let events = [
        (
            NewEvent {
                sections: vec![],
                ..event("e")
            },
            "between 1 and 200 sections",
        ),
        (
            NewEvent {
                name: String::new(),
                ..event("e")
            },
            "the name must have",
        ),
    ];
    for (event, says) in events {
        let error = venue.office.create_event(&event).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    let mut twice = event("e");
    twice.sections[1].name = "A".into();
    let mut free = event("e");
    free.sections[0].price = -1;
    let mut empty = event("e");
    empty.sections[0].tickets = Tickets::Seats(0);
    for (event, says) in [
        (twice, "'A' is named twice"),
        (free, "not -1"),
        (empty, "between 1 and 99999 tickets, not 0"),
    ] {
        let error = venue.office.create_event(&event).await.unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    assert!(recording.calls().is_empty());
    // What only a read can tell.
    let unknown = venue.new_booking("alice", &[SEATS + 1]);
    let error = venue.office.reserve(&unknown).await.unwrap_err();
    assert_eq!(error.to_string(), "there is no seat 'A-5'");
    for id in ["", "nobody", &long] {
        let error = venue.office.confirm(id).await.unwrap_err();
        assert!(matches!(error, OfficeError::UnknownBooking(_)), "{error}");
    }
    let error = venue.office.seat_map("nowhere", "A").await.unwrap_err();
    assert_eq!(error.to_string(), "there is no event 'nowhere'");
    let error = venue
        .office
        .seat_map(&venue.event_id, "Floor")
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the section 'Floor' has no numbered seats"
    );
    let writes = recording.calls();
    let writes = writes.iter().filter(|call| call.request.is_write());
    // The lease layer asks Redis first, and takes its lease back.
    assert!(writes.clone().all(|call| call.request.operation == "EVAL"));
    venue.hold("bob", &[1]).await;
}

/// What leases are for: the refusal of a competitor never reaches DynamoDB.
#[tokio::test]
async fn a_competing_reserver_costs_dynamodb_nothing_when_there_are_leases() {
    for (realization, expected) in [
        (
            Realization::Pure,
            vec!["BatchGetItem [Get bookings, Get tickets]"],
        ),
        (Realization::Leased, vec!["EVAL"]),
    ] {
        let venue = open(realization).await;
        venue.hold("alice", &[1]).await;
        let recording = venue.office.cloud().tap().record();
        let told = venue.reserve("bob", &[1]).await;
        assert!(
            matches!(told, Reserved::Rejected(Rejection::Held { .. })),
            "{told:?}"
        );
        let calls = recording.calls();
        let shapes: Vec<_> = calls
            .iter()
            .map(|call| match call.request.service {
                Service::Redis => call.request.operation.clone(),
                _ => call.shape(),
            })
            .collect();
        assert_eq!(shapes, expected);
    }
}

/// Redis answers nothing.
struct NoRedis;

impl Plan for NoRedis {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let gone = request.service == Service::Redis;
        Box::pin(async move {
            if gone {
                Verdict::LoseRequest
            } else {
                Verdict::Pass
            }
        })
    }
}

#[tokio::test]
async fn an_office_goes_on_when_redis_does_not_answer() {
    let venue = open(Realization::Leased).await;
    let _plan = venue.office.cloud().tap().install(Arc::new(NoRedis));
    venue.hold("alice", &[1]).await;
    let told = venue.reserve("bob", &[1]).await;
    assert!(
        matches!(told, Reserved::Rejected(Rejection::Held { .. })),
        "{told:?}"
    );
    venue.office.extend_hold(&venue.id("alice")).await.unwrap();
    assert!(matches!(
        venue.confirm("alice").await,
        Confirming::Confirmed(_)
    ));
    let map = venue.office.seat_map(&venue.event_id, "A").await.unwrap();
    assert_eq!(map.seats[0].status, TicketStatus::Sold);
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    venue.hold("carol", &[1]).await;
    venue.invariants().await.unwrap();
}

/// Whoever lost a lease cannot delete the next one's.
#[tokio::test]
async fn a_lease_is_released_only_by_the_booking_that_has_it() {
    let venue = open(Realization::Leased).await;
    venue.hold("alice", &[1]).await;
    venue.hold_time_passes().await;
    venue.hold("bob", &[1]).await;
    // Alice gives up what is no longer hers.
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    let recording = venue.office.cloud().tap().record();
    let told = venue.reserve("carol", &[1]).await;
    assert!(
        matches!(told, Reserved::Rejected(Rejection::Held { .. })),
        "{told:?}"
    );
    assert_eq!(recording.calls().len(), 1, "Bob's lease is still there");
    assert!(matches!(
        venue.confirm("bob").await,
        Confirming::Confirmed(_)
    ));
    venue.invariants().await.unwrap();
}

/// A client that comes back after its time takes no new lease for an old hold.
#[tokio::test]
async fn a_hold_that_is_over_takes_no_lease_when_it_is_sent_again() {
    let venue = open(Realization::Leased).await;
    venue.hold("alice", &[1]).await;
    venue.hold_time_passes().await;
    let told = venue.reserve("alice", &[1]).await;
    assert!(matches!(told, Reserved::Before(_)), "{told:?}");
    venue.hold("bob", &[1]).await;
    venue.invariants().await.unwrap();
}

/// A hold that could not be read, and nobody who asks again.
#[tokio::test]
async fn a_reservation_that_fails_leaves_no_lease() {
    let venue = open(Realization::Leased).await;
    let throttled = Arc::new(Faults::seeded(1).throttle(1.0));
    let plan = venue.office.cloud().tap().install(throttled);
    let new = venue.new_booking("alice", &[1]);
    venue.office.reserve(&new).await.unwrap_err();
    drop(plan);
    venue.hold("bob", &[1]).await;
    venue.invariants().await.unwrap();
}

/// SET NX PX: the lease ends by itself, in Redis's own time.
#[tokio::test]
async fn a_lease_lives_as_long_as_its_hold() {
    let venue = open(Realization::Leased).await;
    let hold = venue.hold("alice", &[1]).await;
    let line = &hold.lines[0];
    let key = venue.office.lease_key(&line.block_id, &line.seat);
    let mut redis = venue.office.cloud().redis().await.unwrap();
    let life = async |redis: &mut cloud::RedisConnection| -> i64 {
        let mut ask = redis::cmd("PTTL");
        ask.arg(&key).query_async(redis).await.unwrap()
    };
    let left = life(&mut redis).await;
    assert!((HOLD_MS - 60_000..=HOLD_MS).contains(&left), "{left}");
    venue.office.extend_hold(&hold.booking_id).await.unwrap();
    let left = life(&mut redis).await;
    let extended = HOLD_MS + EXTENSION_MS;
    assert!((extended - 60_000..=extended).contains(&left), "{left}");
    // A sale leaves it there: latecomers are refused by it until it ends, and told why.
    venue.confirm("alice").await;
    assert!(life(&mut redis).await > 0);
    let recording = venue.office.cloud().tap().record();
    let told = venue.reserve("bob", &[1]).await;
    assert_eq!(told, Reserved::Rejected(Rejection::Sold { seat: seat(1) }));
    assert_eq!(recording.calls().len(), 1);
    venue.office.cancel(&hold.booking_id).await.unwrap();
    assert_eq!(life(&mut redis).await, -2, "a cancellation lets it go");
}
