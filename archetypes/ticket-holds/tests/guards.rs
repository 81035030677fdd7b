//! Every clause of every guard is taken away once: then some order of calls breaks an invariant, and
//! this is how; or none does, and this says which other lock is on that door.
//!
//! `Weaken` makes a clause always true on its way out, so the code under test is the code that
//! ships.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::{Interleave, Says, Tokenless, Weaken};
use cloud::CloudError;
use cloud::tap::{LateCopy, Request, Verdict};
use std::future::Future;
use std::sync::Arc;
use ticket_holds::domain::TicketStatus;
use ticket_holds::purchase::Cards;
use ticket_holds::sandbox_cards::DECLINED_CARD;
use ticket_holds::{BoxOffice, OfficeError, Over, Purchase, Realization, Reserved, Rules, Tickets};
use venue::{
    DiesAfterAuthorize, SlowWrite, Told, Venue, canceller, checked, confirmer, event, expirer,
    extender, lapsed, late_reserver, open, payer, paying, reserver,
};

in_both_realizations!(
    without_its_status_a_ticket_that_was_just_sold_is_held_again,
    without_the_expiry_a_hold_that_was_just_extended_is_taken,
    without_booking_and_fence_a_displaced_booking_confirms_over_another,
    without_the_booking_alone_the_fence_still_holds,
    without_the_fence_alone_the_booking_still_holds,
    without_its_own_status_a_ticket_is_still_held_by_booking_and_fence,
    without_the_time_a_slow_confirmation_comes_after_the_end,
    without_the_time_a_slow_extension_comes_after_the_end,
    without_the_seen_time_an_extended_hold_is_expired,
    without_its_mark_a_hold_is_extended_twice,
    without_the_room_a_user_holds_more_than_the_limit,
    without_its_guard_the_last_admissions_are_taken_twice,
    without_its_guard_creating_an_event_again_puts_sold_seats_back,
);

type Actors = Interleave<Venue, Told>;

/// Some order must break, in these words.
async fn breaks(actors: Actors, weaken: Weaken, says: &str) {
    chaos::breaks(checked(actors), weaken, says).await;
}

/// No order breaks: something else holds the same door.
async fn still_holds(actors: Actors, weaken: Weaken, ends: usize) {
    let weaken = Arc::new(weaken);
    let under = Arc::clone(&weaken);
    let explored = checked(actors)
        .under(move || Arc::clone(&under))
        .run()
        .await
        .unwrap();
    assert!(weaken.applied() > 0);
    assert_eq!(explored.seen.len(), ends, "{:?}", explored.seen);
}

/// Alice confirms with a clock that is behind, Bob reserves with one that is ahead.
fn confirmer_and_late_reserver(realization: Realization) -> Actors {
    let actors = confirmer(Interleave::of(move || lapsed(realization)), "alice");
    late_reserver(actors, "bob", &[1])
}

// Reserve.

async fn without_its_status_a_ticket_that_was_just_sold_is_held_again(realization: Realization) {
    let free = "#status = :available OR (#status = :held AND hold_expires_at <= :now)";
    let weaken = Weaken::guard_on("tickets").without(free);
    let actors = confirmer_and_late_reserver(realization);
    breaks(actors, weaken, "A-1 is Held, and [\"alice\"] own it").await;
}

async fn without_the_expiry_a_hold_that_was_just_extended_is_taken(realization: Realization) {
    let actors = extender(Interleave::of(move || lapsed(realization)), "alice");
    let actors = late_reserver(actors, "bob", &[1]);
    let weaken = Weaken::guard_on("tickets").without("hold_expires_at <= :now");
    breaks(actors, weaken, "alice was told Extend").await;
}

/// A hold came and went between Alice's read and Alice's write. With leases she is not there: the
/// lease keeps the other one away, unless it was lost.
#[tokio::test]
async fn without_the_seen_fence_two_holds_bear_the_same_fence() {
    let actors = reserver(Interleave::of(|| open(Realization::Pure)), "alice", &[1]);
    let actors = actors.actor("carol", |venue| async move {
        let held = venue.reserve("carol", &[1]).await;
        venue.office.cancel(&venue.id("carol")).await.ok();
        Told::Reserve(held)
    });
    let weaken = Weaken::guard_on("tickets").without("fence = :seen");
    breaks(actors, weaken, "A-1 had the fences [1, 1]").await;
}

/// The same id for other seats, at the same time.
#[tokio::test]
async fn without_its_identity_a_booking_overwrites_another() {
    let actors = reserver(Interleave::of(|| open(Realization::Pure)), "alice", &[1]);
    let actors = actors.actor("alice-again", |venue| async move {
        let new = venue.new_booking("alice", &[2]);
        match venue.office.reserve(&new).await {
            Ok(told) => Told::Reserve(told),
            Err(OfficeError::IdTaken(_)) => Told::Nothing,
            Err(other) => panic!("{other}"),
        }
    });
    let weaken = Weaken::guard_on("bookings").without("attribute_not_exists(booking_id)");
    breaks(actors, weaken, "had the fences []").await;
}

// Confirm.

async fn without_booking_and_fence_a_displaced_booking_confirms_over_another(
    realization: Realization,
) {
    let weaken = Weaken::guard_on("tickets").without("booking_id = :booking AND fence = :fence");
    let actors = confirmer_and_late_reserver(realization);
    breaks(actors, weaken, "A-1 is Sold by a InProgress booking").await;
}

async fn without_the_booking_alone_the_fence_still_holds(realization: Realization) {
    let weaken = Weaken::guard_on("tickets").without("booking_id = :booking");
    still_holds(confirmer_and_late_reserver(realization), weaken, 2).await;
}

async fn without_the_fence_alone_the_booking_still_holds(realization: Realization) {
    let weaken = Weaken::guard_on("tickets").without("fence = :fence");
    still_holds(confirmer_and_late_reserver(realization), weaken, 2).await;
}

/// A second lock: a ticket leaves HELD only together with its booking's status or with the next
/// hold's fence.
async fn without_its_own_status_a_ticket_is_still_held_by_booking_and_fence(
    realization: Realization,
) {
    let weaken = Weaken::guard_on("tickets").without("#status = :held");
    let actors = confirmer(Interleave::of(move || lapsed(realization)), "alice");
    still_holds(expirer(actors, "sweeper"), weaken, 2).await;
}

/// The lease layer leaves the ticket as it is when a hold ends, so there the booking's status is
/// all there is. With DynamoDB alone the ticket's own state says it too.
#[tokio::test]
async fn without_its_status_an_expired_booking_is_confirmed() {
    let actors = confirmer(Interleave::of(|| lapsed(Realization::Leased)), "alice");
    let weaken = Weaken::guard_on("bookings").without("#status = :in_progress");
    let says = "alice has 1 tickets, and Allowance { tickets_taken: 0";
    breaks(expirer(actors, "sweeper"), weaken, says).await;
}

async fn without_the_time_a_slow_confirmation_comes_after_the_end(realization: Realization) {
    let venue = lapsed(realization).await;
    let tap = venue.office.cloud().tap();
    let weak = Arc::new(Weaken::guard_on("bookings").without("hold_expires_at > :now"));
    let _slow = tap.install(Arc::new(SlowWrite::of(&venue)));
    let _weak = tap.install(weak.clone());
    let told = venue.confirm("alice").await;
    let booking = venue.booking("alice").await.unwrap();
    assert!(weak.applied() > 0);
    assert!(booking.hold_expires_at < venue.office.cloud().now());
    assert_eq!(
        booking.status,
        ticket_holds::BookingStatus::Confirmed,
        "{told:?}"
    );
}

async fn without_the_time_a_slow_extension_comes_after_the_end(realization: Realization) {
    let venue = lapsed(realization).await;
    let before = venue.booking("alice").await.unwrap();
    let tap = venue.office.cloud().tap();
    let weak = Arc::new(Weaken::guard_on("bookings").without("hold_expires_at > :now"));
    let _slow = tap.install(Arc::new(SlowWrite::of(&venue)));
    let _weak = tap.install(weak.clone());
    venue.office.extend_hold(&before.booking_id).await.unwrap();
    assert!(weak.applied() > 0);
    assert!(before.hold_expires_at < venue.office.cloud().now());
    assert!(venue.booking("alice").await.unwrap().was_extended);
}

/// Somebody begins to pay while somebody else confirms without paying.
#[tokio::test]
async fn without_the_payment_a_confirmation_loses_sight_of_one() {
    let actors = confirmer(Interleave::of(|| lapsed(Realization::Pure)), "alice");
    let weaken = Weaken::guard_on("bookings").without("attribute_not_exists(payment)");
    let says = "the sweeper does not know what to do";
    breaks(half_payer(actors, "card"), weaken, says).await;
}

/// A second lock: while a payment is open no other can begin, and a processor answers the same to
/// the same.
#[tokio::test]
async fn without_the_payments_id_a_confirmation_is_still_paid_for() {
    let weaken = Weaken::guard_on("bookings").without("payment_id = :payment");
    let actors = payer(Interleave::of(|| paying(Realization::Pure)));
    still_holds(expirer(actors, "sweeper"), weaken, 2).await;
}

// Expire, cancel.

#[tokio::test]
async fn without_the_status_two_sweepers_give_the_allowance_back_twice() {
    let actors = expirer(Interleave::of(|| lapsed(Realization::Leased)), "one");
    let weaken = Weaken::guard_on("bookings").without("#status = :from");
    let says = "Allowance { tickets_taken: -1";
    breaks(expirer(actors, "other"), weaken, says).await;
}

async fn without_the_seen_time_an_extended_hold_is_expired(realization: Realization) {
    let actors = extender(Interleave::of(move || lapsed(realization)), "alice");
    let weaken = Weaken::guard_on("bookings").without("hold_expires_at = :seen");
    breaks(expirer(actors, "sweeper"), weaken, "alice was told Extend").await;
}

/// Row 11, with the code that ships.
#[tokio::test]
async fn without_booking_and_fence_the_sweeper_releases_a_live_hold() {
    let actors = late_reserver(Interleave::of(|| lapsed(Realization::Pure)), "bob", &[1]);
    let weaken = Weaken::guard_on("tickets").without("booking_id = :booking AND fence = :fence");
    let broken = Arc::new(weaken);
    let under = Arc::clone(&broken);
    let actors = expirer(actors, "sweeper").check(|venue, _| async move {
        let ticket = venue.ticket(1).await;
        match ticket.booking_id == Some(venue.id("bob")) {
            true => Ok("bob holds it".into()),
            false => Err(format!("bob holds it, and it is {:?}", ticket.status)),
        }
    });
    let broken = actors.under(move || Arc::clone(&under)).run().await;
    let broken = broken.unwrap_err();
    assert_eq!(broken.why, "bob holds it, and it is Available", "{broken}");
}

#[tokio::test]
async fn without_the_payment_a_sweeper_loses_sight_of_one() {
    let actors = half_payer(Interleave::of(|| lapsed(Realization::Pure)), "card");
    let weaken = Weaken::guard_on("bookings").without("attribute_not_exists(payment)");
    let says = "the sweeper does not know what to do";
    breaks(expirer(actors, "sweeper"), weaken, says).await;
}

#[tokio::test]
async fn without_the_payment_a_sweeper_waits_for_one_that_never_comes() {
    let actors = half_payer(Interleave::of(|| lapsed(Realization::Pure)), DECLINED_CARD);
    let weaken = Weaken::guard_on("bookings").without("attribute_exists(payment)");
    let says = "payment is open, and nobody knows which";
    breaks(expirer(actors, "sweeper"), weaken, says).await;
}

// Extend.

async fn without_its_mark_a_hold_is_extended_twice(realization: Realization) {
    let actors = extender(Interleave::of(move || lapsed(realization)), "alice");
    let actors = extender(actors, "alice-again");
    let weaken = Weaken::guard_on("bookings").without("attribute_not_exists(was_extended)");
    let weaken = Arc::new(weaken);
    let under = Arc::clone(&weaken);
    let actors = actors.check(|_, told| async move {
        let extended =
            |told: &Told| matches!(told, Told::Extend(ticket_holds::Extension::Until(_)));
        match told.iter().filter(|(_, told)| extended(told)).count() {
            1 => Ok("extended once".into()),
            times => Err(format!("extended {times} times")),
        }
    });
    let broken = actors.under(move || Arc::clone(&under)).run().await;
    assert_eq!(broken.unwrap_err().why, "extended 2 times");
}

#[tokio::test]
async fn without_the_fence_an_extension_moves_the_end_of_somebody_elses_hold() {
    let actors = extender(Interleave::of(|| lapsed(Realization::Pure)), "alice");
    let actors = late_reserver(actors, "bob", &[1]);
    let weaken = Weaken::guard_on("tickets").without("booking_id = :booking AND fence = :fence");
    breaks(actors, weaken, "A-1 is Held by a InProgress booking").await;
}

/// With leases an expired ticket is left as it is, so there the booking's status is all there is.
#[tokio::test]
async fn without_its_status_an_expired_hold_is_extended() {
    let actors = extender(Interleave::of(|| lapsed(Realization::Leased)), "alice");
    let weaken = Weaken::guard_on("bookings").without("#status = :in_progress");
    let says = "alice was told Extend";
    breaks(expirer(actors, "sweeper"), weaken, says).await;
}

/// Second locks: a ticket that still bears a booking and its fence is what that booking made it.
#[tokio::test]
async fn without_its_own_status_a_ticket_is_still_extended_and_put_back_by_booking_and_fence() {
    let actors = extender(Interleave::of(|| lapsed(Realization::Pure)), "alice");
    let weaken = Weaken::guard_on("tickets").without("#status = :held");
    still_holds(expirer(actors, "sweeper"), weaken, 2).await;
    let actors = confirmer(Interleave::of(|| lapsed(Realization::Pure)), "alice");
    let weaken = Weaken::guard_on("tickets").without("#status = :from");
    still_holds(expirer(actors, "sweeper"), weaken, 2).await;
}

// Allowance, admissions, events.

async fn without_the_room_a_user_holds_more_than_the_limit(realization: Realization) {
    let venue = open(realization).await;
    let rules = Rules {
        per_user_limit: 2,
        ..Rules::default()
    };
    let office = venue::patient(BoxOffice::with_rules(
        venue.office.cloud().clone(),
        realization,
        rules,
    ));
    venue.hold("alice", &[1, 2]).await;
    let mut more = venue.new_booking("bob", &[3]);
    more.user_id = "alice".into();
    assert!(matches!(
        office.reserve(&more).await.unwrap(),
        Reserved::Rejected(_)
    ));
    let weak = Arc::new(Weaken::guard_on("allowances"));
    let _plan = office.cloud().tap().install(weak.clone());
    let told = office.reserve(&more).await.unwrap();
    assert!(matches!(told, Reserved::Held(_)), "{told:?}");
    assert!(weak.applied() > 0);
    let allowance = office.allowance(&venue.event_id, "alice").await.unwrap();
    assert_eq!(allowance.tickets_taken, 3);
}

async fn without_its_guard_the_last_admissions_are_taken_twice(realization: Realization) {
    let nearly_full = move || async move {
        let venue = open(realization).await;
        venue.hold_admissions("carol", 7).await;
        venue
    };
    let asks = |name: &'static str| {
        move |venue: Arc<Venue>| async move {
            let new = venue.new_admissions(name, 3);
            Told::Reserve(venue.office.reserve_admissions(&new).await.unwrap())
        }
    };
    let actors = Interleave::of(nearly_full).actor("alice", asks("alice"));
    let weaken = Weaken::guard_on("tickets").without("remaining >= :count");
    let says = "more admissions were taken than there are";
    breaks(actors.actor("bob", asks("bob")), weaken, says).await;
}

/// The first sending of a creator's transaction lands when its tickets have long been sold. The event's count
/// and the ticket's own guard are two locks on that door.
async fn without_its_guard_creating_an_event_again_puts_sold_seats_back(realization: Realization) {
    for (count, ticket) in [(false, true), (true, false), (true, true)] {
        let venue = open(realization).await;
        let mut again = event(&format!("{}-again", venue.event_id));
        again.sections[0].tickets = Tickets::Seats(1);
        let tap = venue.office.cloud().tap();
        let weak = |table, is: bool| is.then(|| Arc::new(Weaken::guard_on(table)));
        let weak = [weak("events", count), weak("tickets", ticket)];
        let copy = LateCopy::default();
        let keeps = copy.clone();
        let keep = move |request: &Request| match request.operation.as_str() {
            "TransactWriteItems" => Verdict::Keep {
                copy: keeps.clone(),
                arrives: true,
            },
            _ => Verdict::Pass,
        };
        let mut plans = vec![tap.install(Arc::new(Tokenless))];
        plans.extend(weak.iter().flatten().map(|weak| tap.install(weak.clone())));
        plans.push(tap.install(Arc::new(Says(keep))));
        venue.office.create_event(&again).await.unwrap();
        drop(plans);
        let mut new = venue.new_booking("alice", &[1]);
        new.event_id = again.event_id.clone();
        venue.office.reserve(&new).await.unwrap();
        venue.office.confirm(&new.booking_id).await.unwrap();
        copy.deliver().await.unwrap();
        let map = venue.office.seat_map(&again.event_id, "A").await.unwrap();
        let back_on_sale = map.seats[0].status == TicketStatus::Available;
        assert_eq!(back_on_sale, count && ticket, "{count} {ticket}");
    }
}

#[tokio::test]
async fn without_its_guard_one_event_replaces_another() {
    let venue = open(Realization::Pure).await;
    let mut other = event(&venue.event_id);
    other.sections[0].tickets = Tickets::Seats(1);
    let refused = venue.office.create_event(&other).await.unwrap_err();
    assert!(matches!(refused, OfficeError::IdTaken(_)), "{refused}");
    let weak = Arc::new(Weaken::guard_on("events"));
    let _plan = venue.office.cloud().tap().install(weak.clone());
    venue.office.create_event(&other).await.unwrap();
    assert!(weak.applied() > 0);
    // The one that was on sale is not any more.
    let there = venue.beside().event(&venue.event_id).await;
    assert!(matches!(there, Err(OfficeError::NotOnSale(_))), "{there:?}");
}

// Payments.

/// Adds one who begins to pay and dies after the processor's answer. Who is declined lives.
fn half_payer(actors: Actors, card: &'static str) -> Actors {
    actors.actor("payer", move |venue| async move {
        let dying = DiesAfterAuthorize(venue.cards.clone());
        let (booking, payment) = (venue.id("alice"), venue.payment_id("alice"));
        let paid = venue.office.purchase(&dying, &booking, &payment, card);
        match paid.await {
            Err(OfficeError::Fault(CloudError::Unknown(_))) => Told::Nothing,
            Ok(told) => Told::Purchase(told),
            Err(other) => panic!("{other}"),
        }
    })
}

async fn purchase_under(venue: &Venue, payment_id: &str, clause: &str) -> Purchase {
    let weak = Arc::new(Weaken::guard_on("bookings").without(clause));
    let _plan = venue.office.cloud().tap().install(weak.clone());
    let booking = venue.id("alice");
    let paid = venue
        .office
        .purchase(&venue.cards, &booking, payment_id, "card");
    let told = paid.await.unwrap();
    assert!(weak.applied() > 0);
    told
}

#[tokio::test]
async fn without_the_status_a_cancelled_booking_is_paid_for() {
    let venue = lapsed(Realization::Pure).await;
    venue.office.cancel(&venue.id("alice")).await.unwrap();
    let weak = Arc::new(Weaken::guard_on("bookings").without("#status = :in_progress"));
    let plan = venue.office.cloud().tap().install(weak.clone());
    let dying = DiesAfterAuthorize(venue.cards.clone());
    let (booking, payment) = (venue.id("alice"), venue.payment_id("alice"));
    let paid = venue.office.purchase(&dying, &booking, &payment, "card");
    paid.await.unwrap_err();
    drop(plan);
    assert!(weak.applied() > 0);
    let why = venue.invariants().await.unwrap_err();
    assert!(why.contains("the sweeper does not know"), "{why}");
}

#[tokio::test]
async fn without_the_payments_id_a_second_payment_hides_the_first() {
    let venue = paying(Realization::Pure).await;
    let other = "another-payment";
    let booking = venue.id("alice");
    let paid = venue.office.purchase(&venue.cards, &booking, other, "card");
    let told = paid.await.unwrap();
    assert_eq!(told, Purchase::Refused(Over::PaymentUnderWay));
    let clause = "attribute_not_exists(payment_id) OR payment_id = :payment";
    let told = purchase_under(&venue, other, clause).await;
    assert!(matches!(told, Purchase::Bought(_)), "{told:?}");
    // Nobody will ever give this back.
    assert_eq!(venue.charge("alice").await, "AUTHORIZED");
}

/// A second lock: the confirmation would refuse it too. Without the first, a card is asked for
/// nothing.
#[tokio::test]
async fn without_the_time_a_card_is_authorized_for_a_hold_that_is_over() {
    let venue = lapsed(Realization::Pure).await;
    venue.hold_time_passes().await;
    let payment = venue.payment_id("alice");
    assert!(matches!(
        venue.purchase("alice").await,
        Purchase::Refused(_)
    ));
    assert_eq!(venue.charge("alice").await, "NONE");
    let told = purchase_under(&venue, &payment, "hold_expires_at > :now").await;
    assert!(matches!(told, Purchase::Refused(_)), "{told:?}");
    assert_eq!(venue.charge("alice").await, "VOIDED");
}

/// The hold ends while the card is asked, and the answer is no.
#[tokio::test]
async fn without_the_status_a_declined_card_hides_what_the_sweeper_has_to_settle() {
    let actors = half_payer(Interleave::of(|| lapsed(Realization::Pure)), DECLINED_CARD);
    let weaken = Weaken::guard_on("bookings")
        .containing("payment_id = :payment")
        .without("#status = :in_progress");
    let says = "the sweeper does not know what to do";
    breaks(expirer(actors, "sweeper"), weaken, says).await;
}

/// A second lock: another payment cannot have begun while this one is open.
#[tokio::test]
async fn without_the_payments_id_a_declined_card_still_hides_nothing() {
    let actors = half_payer(Interleave::of(|| lapsed(Realization::Pure)), DECLINED_CARD);
    let weaken = Weaken::guard_on("bookings")
        .containing("#status = :in_progress AND payment_id")
        .without("payment_id = :payment");
    still_holds(expirer(actors, "sweeper"), weaken, 2).await;
}

/// The money is captured, the booking is cancelled, and then it is marked as settled.
#[tokio::test]
async fn without_the_status_a_cancelled_booking_is_marked_as_settled() {
    let actors = payer(Interleave::of(|| paying(Realization::Pure)));
    let weaken = Weaken::guard_on("bookings").without("#status = :seen");
    let says = "payment is Some(\"CAPTURED\"), the booking Cancelled, Some(Settled)";
    breaks(canceller(actors, "canceller"), weaken, says).await;
}

/// A second lock: settling twice settles the same.
#[tokio::test]
async fn without_the_open_payment_settling_twice_still_settles_once() {
    let venue = lapsed(Realization::Pure).await;
    let weak = Arc::new(Weaken::guard_on("bookings").without("payment = :open"));
    let _plan = venue.office.cloud().tap().install(weak.clone());
    venue.purchase("alice").await;
    venue.purchase("alice").await;
    assert!(weak.applied() > 0);
    venue.invariants().await.unwrap();
    assert_eq!(venue.charge("alice").await, "CAPTURED");
}

// The sandbox, which stands for somebody else's system: what a processor must promise.

async fn under_weak_sandbox<T>(venue: &Venue, containing: &str, act: impl Future<Output = T>) -> T {
    let weak = Arc::new(Weaken::guard_on("sandbox_charges").containing(containing));
    let _plan = venue.office.cloud().tap().install(weak.clone());
    let told = act.await;
    assert!(weak.applied() > 0);
    told
}

#[tokio::test]
async fn a_processor_without_memory_authorizes_what_was_given_back() {
    let venue = lapsed(Realization::Pure).await;
    venue.cards.give_back("key").await.unwrap();
    assert!(!venue.cards.authorize("key", 1, "card").await.unwrap());
    let authorize = venue.cards.authorize("key", 1, "card");
    let guard = "attribute_not_exists(payment_id)";
    assert!(under_weak_sandbox(&venue, guard, authorize).await.unwrap());
}

#[tokio::test]
async fn a_processor_without_its_guard_captures_what_was_given_back() {
    let venue = lapsed(Realization::Pure).await;
    venue.cards.authorize("key", 1, "card").await.unwrap();
    venue.cards.give_back("key").await.unwrap();
    assert!(!venue.cards.capture("key").await.unwrap());
    let capture = venue.cards.capture("key");
    let guard = "#status IN (:authorized, :captured)";
    assert!(under_weak_sandbox(&venue, guard, capture).await.unwrap());
}

#[tokio::test]
async fn a_processor_without_its_guard_voids_what_it_has_captured() {
    let venue = lapsed(Realization::Pure).await;
    venue.cards.authorize("key", 1, "card").await.unwrap();
    venue.cards.capture("key").await.unwrap();
    let back = venue.cards.give_back("key");
    let guard = "NOT #status IN (:captured, :refunded)";
    under_weak_sandbox(&venue, guard, back).await.unwrap();
    // The money stays where it is, and nobody refunds it.
    let charge = venue.cards.charge("key").await.unwrap().unwrap();
    assert_eq!(charge.status, "VOIDED");
}
