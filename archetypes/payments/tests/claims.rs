//! One test for each promise of the README, with that sentence as its name.
#![allow(clippy::unwrap_used)]

mod shop;

use axum::http::StatusCode;
use chaos::{Conflicts, Deaf, World, race};
use payments::deliver_webhook::{Delivered, DeliveryStatus, RETRY_AFTER_MS};
use payments::domain::{
    BadInput, IntentStatus, Kind, MAX_CHARGES, Movement, Refused, Source, TransactionStatus,
};
use payments::idempotency::Key;
use payments::processor::{Mood, NOTICE_SECRET, Processor};
use payments::processor_client::{Answer, Decision, Order, Said};
use payments::reconcile::{Decided, Reconciled};
use payments::record_response::Recorded;
use payments::sandbox::SECRET;
use payments::simulate::simulate;
use payments::tables::SHARDS;
use payments::{NewPayment, Payments, PaymentsError, ProcessorClient, signature};
use shop::cast::{ids, left_after, undecided};
use shop::*;
use std::sync::Arc;
use std::time::Duration;

fn capture(amount: i64) -> Movement {
    Movement::Capture {
        amount: Some(amount),
    }
}

fn refund(amount: i64) -> Movement {
    Movement::Refund {
        amount: Some(amount),
    }
}

impl Shop {
    async fn moves(&self, name: &str, movement: Movement) -> Result<u16, PaymentsError> {
        let id = self.order().await.payment_intent_id;
        let moved = self.payments.move_money(&key(name), &id, &movement).await;
        moved.map(|response| response.status)
    }

    async fn status(&self) -> IntentStatus {
        self.order().await.status
    }
}

// The key.

#[tokio::test]
async fn the_same_key_and_the_same_request_get_the_same_bytes() {
    for (card, status) in [
        ("card-ok", 200),
        ("card-declined", 402),
        ("card-cut-after", 202),
        ("card-pending", 202),
    ] {
        let shop = open().await;
        let first = shop.pay(&with_card(card)).await.unwrap();
        assert_eq!(first.status, status, "{card}");
        // Whatever becomes of it later, this is what was answered.
        shop.live(3).await;
        shop.advance(3_600 * SECOND);
        assert_eq!(shop.pay(&with_card(card)).await.unwrap(), first);
        assert_eq!(shop.processor.received(), 1, "{card}");
    }
}

#[tokio::test]
async fn the_same_key_with_another_request_is_refused_and_nothing_is_written() {
    let shop = with(sale()).await;
    let before = shop.order().await;
    let other = NewPayment {
        amount: AMOUNT + 1,
        ..sale()
    };
    let refused = shop.pay(&other).await.unwrap_err();
    assert!(matches!(refused, PaymentsError::KeyReused(_)), "{refused}");
    // The same words for another action are another request too.
    let moved = shop.moves("order", refund(1)).await.unwrap_err();
    assert!(matches!(moved, PaymentsError::KeyReused(_)), "{moved}");
    assert_eq!(shop.order().await, before);
    assert_eq!(shop.processor.authorizations().len(), 1);
}

#[tokio::test]
async fn while_the_first_request_runs_the_second_is_told_to_wait_and_then_goes_on_with_it() {
    let shop = left_after(2, Mood::Answer).await;
    shop.advance(10 * SECOND);
    let waits = shop.pay(&sale()).await.unwrap_err();
    let PaymentsError::InProgress { retry_after_ms, .. } = waits else {
        panic!("{waits}");
    };
    assert_eq!(retry_after_ms, 20 * SECOND);
    shop.advance(retry_after_ms);
    assert_eq!(shop.pay(&sale()).await.unwrap().status, 200);
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

#[tokio::test]
async fn keys_of_two_merchants_have_nothing_to_do_with_each_other() {
    let shop = open().await;
    // `a` with `b#c`, and `a#b` with `c`, would be one key with nothing but a separator.
    for (merchant, name) in [("a", "b#c"), ("a#b", "c"), ("a", "1:b"), ("1:a", "b")] {
        let key = Key::new(merchant, name);
        let paid = shop.payments.create_payment(&key, &sale()).await.unwrap();
        assert_eq!(paid.status, 200);
    }
    assert_eq!(shop.processor.authorizations().len(), 4);
}

#[tokio::test]
async fn a_key_is_free_again_after_a_day() {
    let shop = with(sale()).await;
    shop.advance(86_400 * SECOND - 1);
    shop.pay(&sale()).await.unwrap();
    assert_eq!(shop.processor.authorizations().len(), 1);
    // The store deletes late: what is expired is gone whether it is still there or not.
    shop.advance(1);
    shop.pay(&sale()).await.unwrap();
    assert_eq!(shop.processor.authorizations().len(), 2);
}

#[tokio::test]
async fn a_key_whose_outcome_is_unknown_is_not_free_even_after_a_day() {
    let shop = undecided().await;
    let first = shop.order().await;
    for _ in 0..3 {
        shop.advance(2 * 86_400 * SECOND);
        assert_eq!(shop.pay(&sale()).await.unwrap().status, 202);
        shop.look_after().await;
    }
    // Nor one whose worker died, and whom nobody has looked after.
    let shop_two = left_after(2, Mood::Answer).await;
    shop_two.advance(2 * 86_400 * SECOND);
    assert_eq!(shop_two.pay(&sale()).await.unwrap().status, 200);
    assert_eq!(shop_two.processor.authorizations().len(), 1);

    assert_eq!(
        shop.order().await.payment_intent_id,
        first.payment_intent_id
    );
    shop.live(2).await;
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
    // Now it is known, and a new day.
    assert_eq!(shop.pay(&sale()).await.unwrap().status, 200);
    assert_ne!(
        shop.order().await.payment_intent_id,
        first.payment_intent_id
    );
    assert_eq!(shop.processor.authorizations().len(), 2);
}

#[tokio::test]
async fn a_refusal_writes_nothing_and_leaves_the_key_free() {
    let shop = with(hold()).await;
    let before = shop.order().await;
    let refused = shop.moves("wish", refund(1)).await.unwrap_err();
    assert!(matches!(refused, PaymentsError::Refused(_)), "{refused}");
    assert_eq!(shop.order().await, before);
    shop.moves("capture", capture(AMOUNT)).await.unwrap();
    // The same key and the same wish, and now it can be granted.
    assert_eq!(shop.moves("wish", refund(1)).await.unwrap(), 200);
}

#[tokio::test]
async fn of_many_requests_with_one_key_at_once_one_charges() {
    let shop = Arc::new(open().await);
    let said = race(16, |_| {
        let shop = Arc::clone(&shop);
        async move { word(&shop.pay(&sale()).await) }
    })
    .await;
    let answered = said.iter().filter(|word| *word == "200").count();
    assert!(answered >= 1, "{said:?}");
    assert!(
        said.iter()
            .all(|word| word == "200" || word == "in progress")
    );
    assert_eq!(shop.processor.authorizations().len(), 1);
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

// Not knowing.

#[tokio::test]
async fn while_an_outcome_is_unknown_no_other_movement_begins() {
    let shop = with(hold()).await;
    shop.processor.tell([Mood::CutAfter]);
    assert_eq!(shop.moves("one", capture(5_00)).await.unwrap(), 202);
    for movement in [capture(5_00), refund(1), Movement::Void] {
        let refused = shop.moves("other", movement).await.unwrap_err();
        let PaymentsError::Refused(Refused::UnderWay(_)) = refused else {
            panic!("{refused}");
        };
    }
    shop.live(2).await;
    assert_eq!(shop.moves("other", capture(5_00)).await.unwrap(), 200);
    assert_eq!(shop.order().await.captured, 10_00);
    shop.ends_well().await.unwrap();
}

#[tokio::test]
async fn the_reconciler_asks_with_growing_pauses_and_writes_every_decision_down() {
    let shop = undecided().await;
    let (intent, transaction) = ids(&shop).await;
    let look = || shop.payments.reconcile(&intent, &transaction);
    let mut pause = 5 * SECOND;
    for _ in 0..4 {
        shop.advance(pause - 1);
        assert_eq!(look().await.unwrap(), Reconciled::Nothing, "too early");
        shop.advance(1);
        assert_eq!(look().await.unwrap(), Reconciled::Waiting);
        pause *= 2;
    }
    shop.processor.set_down(true);
    shop.advance(pause);
    assert_eq!(look().await.unwrap(), Reconciled::Waiting);
    shop.processor.set_down(false);
    shop.processor.decide_pending();
    shop.advance(2 * pause);
    let settled = Reconciled::Settled(Decided::Approved);
    assert_eq!(look().await.unwrap(), settled);
    assert_eq!(look().await.unwrap(), Reconciled::Nothing);

    let decisions = shop.beside().decisions_of(&transaction).await.unwrap();
    let words: Vec<_> = decisions.iter().map(|one| one.decision).collect();
    assert_eq!(words[..5], [Decided::Wait; 5]);
    assert_eq!(words[5..], [Decided::Approved]);
    assert!(
        decisions[4].answer.contains("not available"),
        "{decisions:?}"
    );
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

#[tokio::test]
async fn what_never_arrived_is_closed_before_it_is_called_failed() {
    let shop = left_after(2, Mood::Answer).await;
    let (intent, transaction) = ids(&shop).await;
    let beside = shop.beside();
    let (_, sent) = beside.read_movement(&intent, &transaction).await.unwrap();
    shop.live(1).await;
    assert_eq!(shop.status().await, IntentStatus::Retryable);
    // The request was on its way all the time, and arrives now.
    let answer = shop.payments.send_authorization(&sent).await;
    assert!(
        matches!(
            answer,
            Answer::Decided(payments::domain::Outcome::Closed(_))
        ),
        "{answer:?}"
    );
    assert_eq!(shop.charges(&intent), 0);
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Retryable));
}

#[tokio::test]
async fn an_answer_that_comes_too_late_is_unknown_and_found_later() {
    let shop = open().await;
    let to = shop.processor_client().unwrap();
    let impatient = to.waiting(Duration::from_millis(50));
    let payments = Payments::new(shop.cloud().clone(), impatient, shop.client()).unwrap();
    let said = payments
        .create_payment(&key("order"), &with_card("card-late"))
        .await
        .unwrap();
    assert_eq!(said.status, 202);
    shop.live(2).await;
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

#[tokio::test]
async fn an_attempt_follows_only_one_that_is_closed_and_three_are_made_at_most() {
    let shop = open().await;
    let said = shop.pay(&with_card("card-down")).await.unwrap();
    assert_eq!(said.status, 402);
    let entries = shop.processor.entries();
    let closed = |entry: &payments::processor::Entry| entry.decision == Decision::Closed;
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(closed), "{entries:?}");

    // One that cannot even be closed is unknown, and there is no second.
    let shop = open().await;
    shop.processor.set_down(true);
    assert_eq!(shop.pay(&sale()).await.unwrap().status, 202);
    let (intent, transaction) = ids(&shop).await;
    let (_, movement) = shop
        .beside()
        .read_movement(&intent, &transaction)
        .await
        .unwrap();
    assert_eq!(movement.attempt, 1);
    shop.processor.set_down(false);
    shop.live(2).await;
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Retryable));
}

// Money.

#[tokio::test]
async fn no_more_is_captured_than_is_held_and_no_more_refunded_than_was_taken() {
    let shop = with(hold()).await;
    let too_much = |refused: PaymentsError| {
        assert!(
            matches!(refused, PaymentsError::Refused(Refused::TooMuch { .. })),
            "{refused}"
        );
    };
    too_much(shop.moves("a", capture(AMOUNT + 1)).await.unwrap_err());
    shop.moves("b", capture(12_00)).await.unwrap();
    too_much(shop.moves("c", capture(8_00)).await.unwrap_err());
    too_much(shop.moves("d", refund(12_01)).await.unwrap_err());
    shop.moves("e", refund(2_00)).await.unwrap();
    too_much(shop.moves("f", refund(10_01)).await.unwrap_err());
    shop.moves("g", refund(10_00)).await.unwrap();
    shop.moves("h", capture(7_99)).await.unwrap();
    let order = shop.order().await;
    assert_eq!(
        (order.authorized, order.captured, order.refunded),
        (AMOUNT, AMOUNT, 12_00)
    );
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
    // Its own rules are not all that stands in the way: the processor has some too.
    let refused = shop.moves("i", refund(8_00)).await.unwrap_err();
    too_much(refused);
}

#[tokio::test]
async fn what_is_left_after_a_partial_capture_can_be_let_go() {
    let shop = with(hold()).await;
    shop.moves("a", capture(5_00)).await.unwrap();
    shop.moves("b", Movement::Void).await.unwrap();
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
    assert_eq!(shop.order().await.captured, 5_00);
    let refused = shop.moves("c", capture(1)).await.unwrap_err();
    assert!(matches!(refused, PaymentsError::Refused(_)), "{refused}");
    assert_eq!(shop.moves("d", refund(5_00)).await.unwrap(), 200);

    let shop = with(hold()).await;
    shop.moves("a", Movement::Void).await.unwrap();
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Cancelled));
}

#[tokio::test]
async fn an_authorization_that_is_over_cannot_be_captured_and_is_let_go() {
    let shop = with(hold()).await;
    shop.advance(WEEK - 1);
    shop.look_after().await;
    assert_eq!(shop.status().await, IntentStatus::Authorized);
    shop.advance(1);
    let over = shop.moves("late", capture(1)).await.unwrap_err();
    assert!(
        matches!(over, PaymentsError::Refused(Refused::AuthorizationOver(_))),
        "{over}"
    );
    shop.look_after().await;
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Expired));
    // What was taken before stays taken.
    let shop = with(hold()).await;
    shop.moves("part", capture(5_00)).await.unwrap();
    shop.advance(WEEK);
    shop.look_after().await;
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

#[tokio::test]
async fn an_authorization_that_cannot_be_let_go_is_tried_again_hours_later_and_not_every_minute() {
    let shop = with(hold()).await;
    shop.advance(WEEK);
    // Three attempts, each closed: it never reached the processor.
    shop.processor.tell([Mood::Down; 3]);
    shop.look_after().await;
    let order = shop.order().await;
    assert_eq!(order.status, IntentStatus::Authorized);
    shop.advance(60 * SECOND);
    shop.look_after().await;
    assert_eq!(shop.order().await, order, "not yet again");
    shop.advance(3_600 * SECOND);
    shop.look_after().await;
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Expired));
}

#[tokio::test]
async fn three_cards_are_tried_and_no_more() {
    let shop = with(with_card("card-declined")).await;
    let declined = || Movement::Charge {
        card: "card-declined".into(),
    };
    for number in 2..=MAX_CHARGES {
        assert_eq!(shop.status().await, IntentStatus::Retryable);
        let said = shop.moves(&format!("card-{number}"), declined()).await;
        assert_eq!(said.unwrap(), 402);
    }
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Failed));
    let refused = shop.moves("another", declined()).await.unwrap_err();
    assert!(matches!(refused, PaymentsError::Refused(_)), "{refused}");
    // Before that, it can be given up, and nobody has to be asked.
    let shop = with(with_card("card-declined")).await;
    let received = shop.processor.received();
    assert_eq!(shop.moves("void", Movement::Void).await.unwrap(), 200);
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Cancelled));
    assert_eq!(shop.processor.received(), received);
}

#[tokio::test]
async fn every_change_is_an_event_and_what_has_ended_is_in_no_index() {
    let shop = with(hold()).await;
    shop.moves("a", capture(5_00)).await.unwrap();
    shop.moves("b", Movement::Void).await.unwrap();
    let order = shop.order().await;
    let events = shop
        .beside()
        .events_of(&order.payment_intent_id)
        .await
        .unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind.as_str()).collect();
    let expected = [
        "payment_intent.created",
        "payment_intent.processing",
        "payment_intent.authorized",
        "capture.started",
        "capture.succeeded",
        "void.started",
        "payment_intent.voided",
    ];
    assert_eq!(kinds, expected);
    shop.deliver().await;
    shop.told_everything(&order).await.unwrap();
    shop.advance(10 * WEEK);
    let recording = shop.cloud().tap().record();
    shop.payments.reconcile_due(0..SHARDS).await.unwrap();
    shop.payments
        .expire_authorizations(0..SHARDS)
        .await
        .unwrap();
    shop.payments.relay_events(0..SHARDS).await.unwrap();
    shop.payments.deliver_due(0..SHARDS).await.unwrap();
    // One empty query for each shard of each index, and nothing else.
    let calls = recording.take();
    assert_eq!(calls.len() as u32, 4 * SHARDS);
    assert!(calls.iter().all(|call| call.request.operation == "Query"));
    let empty = |call: &cloud::tap::Call| call.response.as_ref().unwrap()["Count"] == 0;
    assert!(calls.iter().all(empty));
}

// Notices.

#[tokio::test]
async fn a_notice_that_is_not_signed_changes_nothing() {
    let shop = undecided().await;
    let (_, transaction) = ids(&shop).await;
    let text = serde_json::to_string(&approved(&format!("{transaction}-1"))).unwrap();
    let now = shop.now();
    for signed in [
        String::new(),
        signature::sign(&["somebody"], &text, now),
        signature::sign(&[NOTICE_SECRET], "another text", now),
        signature::sign(&[NOTICE_SECRET], &text, now - 600 * SECOND),
    ] {
        let refused = shop
            .payments
            .record_notice(&text, &signed)
            .await
            .unwrap_err();
        assert!(matches!(refused, PaymentsError::NotSigned(_)), "{refused}");
    }
    let signed = signature::sign(&[NOTICE_SECRET], "nonsense", now);
    let unreadable = shop.payments.record_notice("nonsense", &signed).await;
    let unreadable = unreadable.unwrap_err();
    assert!(
        matches!(unreadable, PaymentsError::BadInput(_)),
        "{unreadable}"
    );
    let unknown = notice(&shop.payments, &approved("nothing-1"))
        .await
        .unwrap_err();
    assert!(
        matches!(unknown, PaymentsError::UnknownAttempt(_)),
        "{unknown}"
    );
    assert_eq!(shop.status().await, IntentStatus::RequiresReconciliation);
}

#[tokio::test]
async fn a_notice_that_contradicts_what_is_known_is_written_down_and_changes_nothing() {
    let shop = with(sale()).await;
    let before = shop.order().await;
    let transactions = shop
        .beside()
        .transactions_of(&before.payment_intent_id)
        .await;
    let transaction = transactions.unwrap().remove(0);
    let said = Said {
        decision: Decision::Declined,
        reason: Some("on second thoughts".into()),
        ..approved(&transaction.attempt_id())
    };
    assert_eq!(shop.notice(&said).await, Recorded::Discrepancy);
    assert_eq!(shop.order().await, before);
    let broken = shop.invariants(&before).await.unwrap_err();
    assert!(broken.contains("on second thoughts"), "{broken}");
    // Pending says nothing, and what is known is known.
    let pending = Said {
        decision: Decision::Pending,
        ..approved(&transaction.attempt_id())
    };
    assert_eq!(shop.notice(&pending).await, Recorded::Nothing);
    assert_eq!(
        shop.notice(&approved(&transaction.attempt_id())).await,
        Recorded::Known
    );
    assert_eq!(transaction.settled_by, Some(Source::Response));
    // Another contradiction does not hide the first.
    let closed = Said {
        decision: Decision::Closed,
        ..approved(&transaction.attempt_id())
    };
    assert_eq!(shop.notice(&closed).await, Recorded::Discrepancy);
    let decisions = shop
        .beside()
        .decisions_of(&transaction.transaction_id)
        .await;
    assert_eq!(decisions.unwrap().len(), 2);
}

#[tokio::test]
async fn every_message_that_comes_twice_changes_nothing_the_second_time() {
    let shop = open().await;
    shop.processor.tell([Mood::Twice]);
    shop.pay(&sale()).await.unwrap();
    let before = shop.order().await;
    assert_eq!(shop.notices().await, [Recorded::Known, Recorded::Known]);
    assert_eq!(shop.order().await, before);
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

// Webhooks.

#[tokio::test]
async fn a_merchant_is_told_in_order_and_again_until_it_takes_it() {
    let shop = with(sale()).await;
    shop.merchant.answer_next([
        StatusCode::INTERNAL_SERVER_ERROR,
        StatusCode::TOO_MANY_REQUESTS,
    ]);
    shop.deliver().await;
    assert!(
        shop.merchant.received().is_empty(),
        "the others wait for the first"
    );
    shop.advance(RETRY_AFTER_MS[0] - 1);
    shop.deliver().await;
    shop.advance(1);
    shop.deliver().await;
    assert!(shop.merchant.received().is_empty());
    shop.advance(RETRY_AFTER_MS[1]);
    shop.deliver().await;
    shop.told_everything(&shop.order().await).await.unwrap();
    let id = shop.order().await.payment_intent_id;
    let deliveries = shop.beside().deliveries_of(&id).await.unwrap();
    let attempts: Vec<_> = deliveries.iter().map(|one| one.attempt).collect();
    assert_eq!(attempts, [3, 1, 1]);
}

#[tokio::test]
async fn what_nobody_takes_is_given_up_and_can_be_sent_again() {
    let shop = with(sale()).await;
    let id = shop.order().await.payment_intent_id;
    let tries = RETRY_AFTER_MS.len() + 1;
    shop.merchant
        .answer_next(vec![StatusCode::BAD_GATEWAY; tries]);
    for pause in RETRY_AFTER_MS {
        shop.deliver().await;
        assert!(shop.merchant.received().is_empty());
        shop.advance(pause);
    }
    shop.deliver().await;
    // Given up, and no longer in the way of the others.
    let numbers = |shop: &Shop| -> Vec<u64> {
        let received = shop.merchant.received();
        received.iter().map(|event| event.event_number).collect()
    };
    assert_eq!(numbers(&shop), [2, 3]);
    shop.told_everything(&shop.order().await).await.unwrap();
    let shard = cloud::item::shard_of(&id, SHARDS);
    assert_eq!(
        shop.payments.given_up(shard).await.unwrap(),
        [(id.clone(), 1)]
    );

    shop.payments.replay(&id, 1).await.unwrap();
    shop.payments.replay(&id, 1).await.unwrap();
    shop.deliver().await;
    assert_eq!(numbers(&shop), [2, 3, 1]);
    assert!(shop.payments.given_up(shard).await.unwrap().is_empty());
    for wrong in [1, 2, 99] {
        let refused = shop.payments.replay(&id, wrong).await.unwrap_err();
        assert!(
            matches!(refused, PaymentsError::NotGivenUp(..)),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_merchant_that_listens_nowhere_is_given_up_at_once() {
    let shop = open().await;
    let deaf = Key::new("deaf", "order");
    shop.payments.create_payment(&deaf, &sale()).await.unwrap();
    shop.deliver().await;
    let mut given_up = 0;
    for shard in 0..SHARDS {
        given_up += shop.payments.given_up(shard).await.unwrap().len();
    }
    assert_eq!(given_up, 3);
}

#[tokio::test]
async fn what_waits_for_another_event_is_not_looked_at_before_that_one() {
    let shop = with(sale()).await;
    shop.merchant.answer_next([StatusCode::BAD_GATEWAY]);
    shop.deliver().await;
    shop.deliver().await;
    let recording = shop.cloud().tap().record();
    shop.deliver().await;
    // Two empty queries for each shard: the outbox, and what is due.
    assert_eq!(recording.take().len() as u32, 2 * SHARDS);
    shop.advance(RETRY_AFTER_MS[0]);
    shop.deliver().await;
    shop.told_everything(&shop.order().await).await.unwrap();
}

#[tokio::test]
async fn a_redirect_is_not_a_delivery() {
    let shop = open().await;
    let seen = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let login = Arc::clone(&seen);
    let app = axum::Router::new()
        .route(
            "/webhooks",
            axum::routing::post(async || axum::response::Redirect::to("/login")),
        )
        .route(
            "/login",
            axum::routing::any(async move || {
                login.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                "please log in"
            }),
        );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/webhooks", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    shop.payments
        .set_endpoint("shop", &url, SECRET)
        .await
        .unwrap();
    shop.pay(&sale()).await.unwrap();
    shop.deliver().await;
    server.abort();
    let id = shop.order().await.payment_intent_id;
    let deliveries = shop.beside().deliveries_of(&id).await.unwrap();
    assert_eq!(deliveries[0].status, DeliveryStatus::Retrying);
    assert_eq!(seen.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[tokio::test]
async fn one_payment_that_waits_does_not_hold_up_another() {
    let shop = with(sale()).await;
    let other = key("other");
    shop.payments.create_payment(&other, &sale()).await.unwrap();
    shop.merchant.answer_next([StatusCode::BAD_GATEWAY]);
    shop.deliver().await;
    let received = shop.merchant.received();
    assert_eq!(received.len(), 3, "all of one, none of the other");
}

#[tokio::test]
async fn a_webhook_is_signed_with_both_secrets_while_they_change() {
    let shop = with(sale()).await;
    let id = shop.order().await.payment_intent_id;
    shop.payments
        .rotate_secret("shop", "new", 60 * SECOND)
        .await
        .unwrap();
    shop.payments.relay_events(0..SHARDS).await.unwrap();
    // The receiver knows the old one only.
    assert_eq!(
        shop.payments.deliver(&id, 1).await.unwrap(),
        Delivered::Delivered
    );
    shop.advance(60 * SECOND);
    assert_eq!(
        shop.payments.deliver(&id, 2).await.unwrap(),
        Delivered::Retrying
    );
    assert_eq!(shop.merchant.refused(), 1);
    let deliveries = shop.beside().deliveries_of(&id).await.unwrap();
    assert_eq!(deliveries[1].status, DeliveryStatus::Retrying);
    assert_eq!(
        deliveries[1].last_answer.as_deref(),
        Some("401 Unauthorized")
    );
    let unknown = shop.payments.rotate_secret("nobody", "new", 1).await;
    assert!(matches!(unknown, Err(PaymentsError::UnknownMerchant(_))));
}

// What the store does.

#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again() {
    for conflicts in 1..=3 {
        let shop = open().await;
        let plan = Arc::new(Conflicts::on("TransactWriteItems", conflicts));
        let installed = shop.cloud().tap().install(plan.clone());
        assert_eq!(shop.pay(&sale()).await.unwrap().status, 200);
        drop(installed);
        assert_eq!(plan.left(), 0);
        assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
    }
}

#[tokio::test]
async fn a_store_that_never_answers_leaves_a_payment_that_ends_well() {
    let shop = open().await;
    let plan = shop.cloud().tap().install(Arc::new(Deaf));
    let lost = shop.pay(&sale()).await.unwrap_err();
    drop(plan);
    assert!(
        matches!(lost, PaymentsError::Fault(cloud::CloudError::Unknown(_))),
        "{lost}"
    );
    shop.advance(LEASE_OVER);
    assert_eq!(shop.pay(&sale()).await.unwrap().status, 200);
    assert_eq!(shop.ends_well().await, Ok(IntentStatus::Succeeded));
}

// Input.

#[tokio::test]
async fn bad_input_is_refused_before_the_first_call() {
    let shop = open().await;
    let recording = shop.cloud().tap().record();
    let long = "x".repeat(201);
    for (wrong_key, wrong) in [
        (Key::new("shop", ""), sale()),
        (Key::new("shop", &long), sale()),
        (Key::new("", "order"), sale()),
        (
            key("order"),
            NewPayment {
                amount: 0,
                ..sale()
            },
        ),
        (
            key("order"),
            NewPayment {
                amount: -1,
                ..sale()
            },
        ),
        (
            key("order"),
            NewPayment {
                amount: 1_000_000_000_000,
                ..sale()
            },
        ),
        (key("order"), with_card("")),
        (key("order"), with_card(&long)),
    ] {
        let refused = shop
            .payments
            .create_payment(&wrong_key, &wrong)
            .await
            .unwrap_err();
        assert!(matches!(refused, PaymentsError::BadInput(_)), "{refused}");
    }
    for movement in [
        capture(0),
        refund(-1),
        Movement::Charge {
            card: String::new(),
        },
    ] {
        let refused = shop
            .payments
            .move_money(&key("order"), "pi", &movement)
            .await
            .unwrap_err();
        assert!(matches!(refused, PaymentsError::BadInput(_)), "{refused}");
    }
    for url in ["", "shop.test", "ftp://shop.test", "file:///etc/passwd"] {
        let refused = shop
            .payments
            .set_endpoint("shop", url, "s")
            .await
            .unwrap_err();
        assert!(
            matches!(refused, PaymentsError::BadInput(BadInput::Url(_))),
            "{refused}"
        );
    }
    assert!(recording.take().is_empty());
}

#[tokio::test]
async fn nobody_moves_another_merchants_payment() {
    let shop = with(hold()).await;
    let id = shop.order().await.payment_intent_id;
    let thief = Key::new("thief", "wish");
    for (key, id) in [
        (&thief, id.as_str()),
        (&thief, "pi-none"),
        (&key("wish"), ""),
    ] {
        let moved = shop
            .payments
            .move_money(key, id, &Movement::Void)
            .await
            .unwrap_err();
        assert_eq!(moved.to_string(), format!("there is no payment '{id}'"));
    }
    assert_eq!(shop.status().await, IntentStatus::Authorized);
}

// The processor's side of the contract, on which all of this rests.

#[tokio::test]
async fn the_processor_honours_its_keys_and_keeps_closed_what_it_closed() {
    let shop = open().await;
    let order = Order {
        kind: Kind::Charge,
        amount: 5,
        currency: "EUR".into(),
        reference: "r".into(),
        card: Some("card-ok".into()),
        capture: true,
        authorization: None,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let processor = Processor::new(shop.cloud().clock().clone());
    let app = processor.app();
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let http = reqwest::Client::builder().no_proxy();
    let base = reqwest::Url::parse(&base).unwrap();
    let client = ProcessorClient::new(shop.cloud(), http, base, NOTICE_SECRET).unwrap();
    let approved = Answer::Decided(payments::domain::Outcome::Approved);
    assert_eq!(client.ask("a").await, Answer::NotThere);
    assert_eq!(client.send("a", &order).await, approved);
    assert_eq!(client.send("a", &order).await, approved);
    assert_eq!(
        client.close("a").await,
        approved,
        "it is too late to close it"
    );
    let other = Order {
        amount: 6,
        ..order.clone()
    };
    assert!(matches!(client.send("a", &other).await, Answer::Unknown(_)));
    assert_eq!(processor.authorizations().len(), 1);
    let Answer::Decided(closed) = client.close("b").await else {
        panic!("it was not closed");
    };
    assert_eq!(client.send("b", &order).await, Answer::Decided(closed));
    assert_eq!(processor.authorizations().len(), 1);
    processor.set_down(true);
    assert!(matches!(client.send("c", &order).await, Answer::NotNow(_)));
    server.abort();
    let _ = server.await;
    assert!(matches!(client.ask("a").await, Answer::NotNow(_)));
}

// A bad day.

#[tokio::test]
async fn a_bad_day_ends_with_two_books_that_agree_and_its_seed_repeats_it() {
    let day = async |seed| {
        let cloud = cloud::connect_alone_for_tests().await.unwrap();
        payments::archetype().create(&cloud).await.unwrap();
        simulate(&cloud, seed, 40, || {}).await.unwrap()
    };
    let report = day(7).await;
    assert_eq!(report.discrepancies, [""; 0], "{report:?}");
    assert!(report.deaths > 0 && report.charges > 10, "{report:?}");
    assert!(report.faults.len() >= 3, "{report:?}");
    assert!(report.decisions.contains_key("NeverArrived"), "{report:?}");
    assert_eq!(day(7).await, report);
    assert_ne!(day(8).await, report);
}

#[tokio::test]
async fn a_movement_that_was_declined_leaves_the_payment_as_it_was() {
    let shop = with(hold()).await;
    shop.processor.tell([Mood::Decline]);
    assert_eq!(shop.moves("capture", capture(5_00)).await.unwrap(), 402);
    let order = shop.order().await;
    assert_eq!(
        (order.status, order.capturable),
        (IntentStatus::Authorized, AMOUNT)
    );
    let all = shop
        .beside()
        .transactions_of(&order.payment_intent_id)
        .await
        .unwrap();
    let declined = all
        .iter()
        .filter(|one| one.status == TransactionStatus::Declined);
    assert_eq!(declined.count(), 1);
    assert_eq!(shop.moves("again", capture(5_00)).await.unwrap(), 200);
    shop.ends_well().await.unwrap();
}
