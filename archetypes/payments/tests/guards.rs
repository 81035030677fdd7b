//! A guard is worth what breaks without it. Each test takes one away and shows what.
//!
//! Not for real AWS: these rewrite requests on their way, which its signature forbids.
#![allow(clippy::unwrap_used)]

mod shop;

use chaos::{Interleave, Weaken, World, breaks};
use cloud::tap::{Plan, Request, Verdict};
use futures::future::BoxFuture;
use payments::begin_movement::Begun;
use payments::deliver_webhook::{DELIVERY_LEASE_MS, DeliveryStatus};
use payments::domain::{
    Movement, Outcome, PaymentIntentState, Source, TransactionState, TransactionStatus,
};
use payments::processor::Mood;
use payments::sandbox::SECRET;
use shop::cast::*;
use shop::*;
use std::sync::Arc;

/// Runs `work` with a guard weakened, and makes sure that it was met.
async fn weakened<T>(shop: &Shop, weaken: Weaken, work: impl Future<Output = T>) -> T {
    let weaken = Arc::new(weaken);
    let plan = shop.cloud().tap().install(weaken.clone());
    let done = work.await;
    drop(plan);
    assert!(weaken.applied() > 0, "the guard was not met");
    done
}

/// The order's payment and open movement, as somebody read them who is slow from now on.
async fn read(shop: &Shop) -> (PaymentIntentState, TransactionState) {
    let (intent, transaction) = ids(shop).await;
    let beside = shop.beside();
    beside.read_movement(&intent, &transaction).await.unwrap()
}

// The key.

#[tokio::test]
async fn without_the_key_two_requests_charge_twice() {
    let shop = open().await;
    shop.pay(&sale()).await.unwrap();
    let weaken = Weaken::guard_on("idempotency").without("attribute_not_exists(idempotency_key)");
    weakened(&shop, weaken, shop.pay(&sale())).await.unwrap();
    assert_eq!(shop.processor.authorizations().len(), 2, "one key");
}

#[tokio::test]
async fn without_the_lease_that_was_seen_two_take_it_over() {
    // Either clause tells the leases apart, so both are taken away.
    let lease = Arc::new(Weaken::guard_on("idempotency").without("lease_expires_at = :lease"));
    let under = Arc::clone(&lease);
    let actors = heirs().under(move || Arc::clone(&under));
    let owner = Weaken::guard_on("idempotency").without("#owner = :seen");
    breaks(actors, owner, "2 have the lease").await;
    assert!(lease.applied() > 0);
}

#[tokio::test]
async fn without_the_movement_a_key_is_given_away_that_somebody_just_got() {
    // A key of yesterday, whose outcome was unknown then and is known now. Two use it again.
    let setup = || async {
        let shop = undecided().await;
        shop.live(2).await;
        shop.advance(WEEK);
        shop
    };
    let meet = || {
        let pays = |shop: Arc<Shop>| async move { word(&shop.pay(&sale()).await) };
        let actors = Interleave::of(setup).actor("one", pays).actor("two", pays);
        actors.check(|shop: Arc<Shop>, _| async move {
            match shop.processor.authorizations().len() {
                2 => Ok("once more".to_owned()),
                charges => Err(format!("{charges} charges")),
            }
        })
    };
    // One has looked at the old key; two gives it away and pays; then one gives away what two has.
    let two = "two two two two two two two two ";
    let order = format!("one one {two}one one").parse().unwrap();
    assert_eq!(meet().replay(&order).await.unwrap(), "once more");
    let weaken = Arc::new(Weaken::guard_on("idempotency").without("transaction_id = :transaction"));
    let under = Arc::clone(&weaken);
    let order = format!("one one {two}one one one one one one")
        .parse()
        .unwrap();
    let broken = meet()
        .under(move || Arc::clone(&under))
        .replay(&order)
        .await;
    assert_eq!(broken.unwrap_err().why, "3 charges");
    assert!(weaken.applied() > 0);
}

#[tokio::test]
async fn without_its_status_a_key_gets_a_second_answer() {
    let weaken = Weaken::guard_on("idempotency")
        .containing("transaction_id")
        .without("#status = :in_progress");
    breaks(twins(Mood::CutAfter, LEASE_OVER), weaken, "is not").await;
}

#[tokio::test]
async fn without_the_movement_an_answer_is_kept_under_somebody_elses_key() {
    let shop = with(sale()).await;
    let id = shop.order().await.payment_intent_id;
    let key = key("refund");
    let part = Movement::Refund { amount: Some(1) };
    let begin = || shop.payments.begin(&key, &id, &part);
    let Begun::Started(stuck) = begin().await.unwrap() else {
        panic!("it was not begun");
    };
    // A week passes; the reconciler has given it up, the key is free, and is used for another refund.
    shop.live(2).await;
    shop.advance(WEEK);
    drop(begin().await.unwrap());
    let (_, second) = ids(&shop).await;
    let weaken = Weaken::guard_on("idempotency").without("transaction_id = :transaction");
    weakened(&shop, weaken, shop.payments.carry_on(*stuck))
        .await
        .unwrap();
    let wrong = shop.payments.move_money(&key, &id, &part).await.unwrap();
    let named = format!("\"transaction_id\":\"{second}\"");
    assert!(!wrong.body.contains(&named), "this key stands for {second}");
}

// The payment.

#[tokio::test]
async fn without_the_version_two_movements_of_one_payment_begin() {
    let part = |amount| Movement::Capture {
        amount: Some(amount),
    };
    let weaken = Weaken::guard_on("payment_intents");
    breaks(wishes(part(10_00), part(15_00)), weaken, "2 began").await;
}

// The movement.

/// A capture that was begun, and whose worker is gone.
async fn begun_capture() -> Shop {
    let shop = with(hold()).await;
    let id = shop.order().await.payment_intent_id;
    let all = Movement::Capture { amount: None };
    let key = key("capture");
    drop(shop.payments.begin(&key, &id, &all).await.unwrap());
    shop
}

#[tokio::test]
async fn without_the_status_an_abandoned_movement_is_sent_after_all() {
    let actors = Interleave::of(begun_capture)
        .actor("reconciler", reconcile)
        .actor("sender", |shop: Arc<Shop>| async move {
            let (intent, transaction) = read(&shop).await;
            let marked = shop.payments.mark_processing(&intent, &transaction).await;
            if let Some((_, sent)) = marked.unwrap() {
                shop.payments.send_authorization(&sent).await;
            }
            "done".to_owned()
        });
    let weaken = Weaken::guard_on("transactions").without("#status = :pending");
    let why = "the payment says [] is open, the movements say";
    breaks(actors.check(rested), weaken, why).await;
}

#[tokio::test]
async fn without_the_attempt_a_closed_one_is_sent_again() {
    // The first attempt is closed and taken back by one; the other still thinks that there was none.
    let shop = left_after(1, Mood::Down).await;
    let (intent, transaction) = read(&shop).await;
    let payments = &shop.payments;
    let marked = payments
        .mark_processing(&intent, &transaction)
        .await
        .unwrap();
    let (intent, sent) = marked.unwrap();
    let dying = cloud::tap::KillFrom::call(4).of("other");
    let plan = shop.cloud().tap().install(Arc::new(dying));
    let driven = cloud::as_actor("other", payments.drive(intent.clone(), sent)).await;
    driven.unwrap_err();
    drop(plan);
    let (_, back) = read(&shop).await;
    assert_eq!((back.status, back.attempt), (TransactionStatus::Pending, 1));
    let capture_like = TransactionState {
        // A movement that does not move the payment: there the attempt alone tells.
        kind: payments::domain::Kind::Capture,
        ..transaction
    };
    let refused = payments
        .mark_processing(&intent, &capture_like)
        .await
        .unwrap();
    assert_eq!(refused, None);
    let weaken = Weaken::guard_on("transactions").without("attempt = :seen");
    let again = weakened(
        &shop,
        weaken,
        payments.mark_processing(&intent, &capture_like),
    )
    .await;
    assert!(again.unwrap().is_some());
    let (_, now) = read(&shop).await;
    assert!(now.rank() < back.rank(), "{now:?} is behind {back:?}");
}

#[tokio::test]
async fn without_the_status_a_movement_that_has_ended_is_taken_back() {
    let shop = left_after(2, Mood::Answer).await;
    let (intent, transaction) = read(&shop).await;
    shop.live(1).await;
    assert_eq!(
        shop.ends_well().await.unwrap(),
        payments::domain::IntentStatus::Retryable
    );
    // The slow one learns that its attempt is closed, and begins another: of a movement that has
    // failed, while the merchant may be trying another card.
    let weaken = Weaken::guard_on("transactions").without("#status = :sent");
    let driven = shop.payments.drive(intent, transaction);
    weakened(&shop, weaken, driven).await.unwrap();
    let id = shop.order().await.payment_intent_id;
    assert_eq!(shop.charges(&id), 1, "charged after it had failed");
}

/// Attempt 1 was closed and taken back, and attempt 2 is charged and its sender dead. Somebody still
/// has the movement as it was with attempt 1.
async fn second_attempt_is_out() -> (Shop, PaymentIntentState, TransactionState) {
    let shop = left_after(1, Mood::Down).await;
    let (intent, transaction) = read(&shop).await;
    let payments = &shop.payments;
    let marked = payments
        .mark_processing(&intent, &transaction)
        .await
        .unwrap();
    let (intent, first) = marked.unwrap();
    // Send, close, take back, mark, send; then it dies.
    let dying = cloud::tap::KillFrom::call(6).of("other");
    let plan = shop.cloud().tap().install(Arc::new(dying));
    let driven = cloud::as_actor("other", payments.drive(intent.clone(), first.clone())).await;
    driven.unwrap_err();
    drop(plan);
    assert_eq!(shop.charges(&intent.payment_intent_id), 1);
    (shop, intent, first)
}

#[tokio::test]
async fn without_the_attempt_a_late_answer_ends_another_attempt() {
    let (shop, intent, first) = second_attempt_is_out().await;
    let closed = Outcome::Closed("late".into());
    let late = || {
        shop.payments
            .record(&intent, &first, &closed, Source::Response)
    };
    assert_eq!(late().await.unwrap(), None);
    let weaken = Weaken::guard_on("transactions").without("attempt = :attempt");
    let recorded = weakened(&shop, weaken, late()).await;
    assert!(recorded.unwrap().is_some());
    let broken = shop.ends_well().await.unwrap_err();
    assert!(broken.contains("the processor says"), "{broken}");
}

/// Either alone tells that something has happened since; without both, a timeout that is noticed late
/// undoes what a notice has decided.
#[tokio::test]
async fn without_status_and_version_a_late_timeout_undoes_what_is_decided() {
    let meet = || {
        let actors = Interleave::of(|| left_after(3, Mood::Answer))
            .actor("sender", send)
            .actor("notice", told_once)
            .under(|| Arc::new(Unanswered));
        actors.check(rested)
    };
    let version = || Arc::new(Weaken::guard_on("payment_intents"));
    let status = || Weaken::guard_on("transactions").without("#status = :sent");
    meet().under(version).run().await.unwrap();
    meet()
        .under(move || Arc::new(status()))
        .run()
        .await
        .unwrap();
    breaks(
        meet().under(version),
        status(),
        "1999 is booked for (0, 0, 0)",
    )
    .await;
}

#[tokio::test]
async fn without_the_attempt_another_attempt_is_taken_back() {
    let (shop, intent, first) = second_attempt_is_out().await;
    let weaken = Weaken::guard_on("transactions").without("attempt = :attempt");
    let late = shop.payments.drive(intent.clone(), first);
    // It learns only now that attempt 1 is closed.
    let _ = weakened(&shop, weaken, late).await;
    assert_eq!(
        shop.charges(&intent.payment_intent_id),
        2,
        "attempt 2 and attempt 3"
    );
}

#[tokio::test]
async fn without_its_guard_a_decision_is_written_over_another() {
    let weaken = Weaken::guard_on("reconciliations");
    breaks(one_knows_more(), weaken, "1 written down").await;
}

/// Loses the processor's answer to every question.
struct Unasked;

impl Plan for Unasked {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let lost = request.operation == "GET";
        Box::pin(async move {
            match lost {
                true => Verdict::LoseAnswer,
                false => Verdict::Pass,
            }
        })
    }
}

#[tokio::test]
async fn without_the_status_the_reconciler_waits_for_what_has_ended() {
    let actors = Interleave::of(|| left_after(3, Mood::Answer))
        .actor("reconciler", reconcile)
        .actor("notice", told_once)
        .under(|| Arc::new(Unasked));
    let checked = actors.check(|shop: Arc<Shop>, told: Told| async move {
        let id = shop.order().await.payment_intent_id;
        let all = shop.beside().transactions_of(&id).await.unwrap();
        match all
            .iter()
            .find(|one| one.status.is_terminal() && one.due_at.is_some())
        {
            None => Ok(label(&told)),
            Some(odd) => Err(format!("{:?} and due", odd.status)),
        }
    });
    let weaken = Weaken::guard_on("transactions").containing("#status = :from");
    breaks(checked, weaken, "Authorized and due").await;
}

// The deliveries.

#[tokio::test]
async fn without_its_guard_a_relay_delivers_again_what_was_delivered() {
    let shop = to_be_told().await;
    shop.deliver().await;
    let order = shop.order().await;
    let events = shop
        .beside()
        .events_of(&order.payment_intent_id)
        .await
        .unwrap();
    assert!(!shop.payments.relay(&events[0]).await.unwrap());
    let weaken = Weaken::guard_on("webhook_deliveries").containing("event_number");
    assert!(
        weakened(&shop, weaken, shop.payments.relay(&events[0]))
            .await
            .unwrap()
    );
    shop.deliver().await;
    assert_eq!(shop.merchant.received().len(), 4, "three events");
}

#[tokio::test]
async fn without_the_attempt_two_deliverers_tell_it_twice() {
    let actors = Interleave::of(to_be_told)
        .actor("one", |shop| tell(shop, 1, 0))
        .actor("other", |shop| tell(shop, 1, 0));
    let checked = actors.check(|shop: Arc<Shop>, told: Told| async move {
        match shop.merchant.received().len() {
            1 => Ok(label(&told)),
            more => Err(format!("told {more} times")),
        }
    });
    let weaken = Weaken::guard_on("webhook_deliveries").containing("attempt = :seen");
    breaks(checked, weaken, "told 2 times").await;
}

#[tokio::test]
async fn without_the_status_an_event_that_was_delivered_is_claimed_again() {
    let actors = Interleave::of(to_be_told)
        .actor("slow", |shop| tell(shop, 1, 0))
        .actor("next", |shop| tell(shop, 1, DELIVERY_LEASE_MS));
    let checked = actors.check(|_: Arc<Shop>, told: Told| async move {
        match told.iter().all(|(_, word)| word == "delivered") {
            true => Err("delivered, and delivered again".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("webhook_deliveries").without("#status IN (:pending, :retrying)");
    breaks(checked, weaken, "delivered, and delivered again").await;
}

#[tokio::test]
async fn without_what_was_due_a_delivered_event_is_due_again() {
    // The second event is looked at while the first is being retried; then both are delivered.
    let weaken = Weaken::guard_on("webhook_deliveries").containing("due_at = :due");
    let actors = Interleave::of(|| async {
        let shop = to_be_told().await;
        let id = shop.order().await.payment_intent_id;
        shop.merchant
            .answer_next([axum::http::StatusCode::BAD_GATEWAY]);
        shop.payments.deliver(&id, 1).await.unwrap();
        shop
    })
    .actor("waits", |shop| tell(shop, 2, 0))
    .actor("delivers", |shop: Arc<Shop>| async move {
        let ahead = shop.ahead(ROUND);
        let id = shop.order().await.payment_intent_id;
        ahead.deliver(&id, 1).await.unwrap();
        ahead.deliver(&id, 2).await.unwrap();
        "done".to_owned()
    });
    let checked = actors.check(|shop: Arc<Shop>, told: Told| async move {
        let id = shop.order().await.payment_intent_id;
        let deliveries = shop.beside().deliveries_of(&id).await.unwrap();
        match deliveries
            .iter()
            .any(|one| one.has_ended() && one.due_at.is_some())
        {
            false => Ok(label(&told)),
            true => Err("delivered, and due".to_owned()),
        }
    });
    breaks(checked, weaken, "delivered, and due").await;
}

#[tokio::test]
async fn without_the_fence_a_delivered_event_is_tried_again() {
    let setup = || async {
        let shop = to_be_told().await;
        shop.merchant
            .answer_next([axum::http::StatusCode::INTERNAL_SERVER_ERROR]);
        shop
    };
    let actors = Interleave::of(setup)
        .actor("slow", |shop| tell(shop, 1, 0))
        .actor("next", |shop| tell(shop, 1, DELIVERY_LEASE_MS));
    let checked = actors.check(|shop: Arc<Shop>, told: Told| async move {
        let id = shop.order().await.payment_intent_id;
        let deliveries = shop.beside().deliveries_of(&id).await.unwrap();
        let delivery = &deliveries[0];
        let said = told.iter().any(|(_, word)| word == "delivered");
        match said && delivery.status != DeliveryStatus::Delivered {
            true => Err(format!("delivered, and {:?}", delivery.status)),
            false => Ok(label(&told)),
        }
    });
    let weaken = Weaken::guard_on("webhook_deliveries").containing("attempt = :attempt");
    breaks(checked, weaken, "delivered, and Retrying").await;
}

#[tokio::test]
async fn without_its_guard_a_replay_sends_again_what_was_delivered() {
    let shop = to_be_told().await;
    shop.deliver().await;
    let id = shop.order().await.payment_intent_id;
    shop.payments.replay(&id, 1).await.unwrap_err();
    let weaken = Weaken::guard_on("webhook_deliveries").containing("#status = :failed");
    weakened(&shop, weaken, shop.payments.replay(&id, 1))
        .await
        .unwrap();
    shop.deliver().await;
    assert_eq!(shop.merchant.received().len(), 4, "three events");
}

// The endpoint.

#[tokio::test]
async fn without_its_guard_the_same_change_of_secret_twice_forgets_the_old_one() {
    let shop = open().await;
    let rotate = || shop.payments.rotate_secret("shop", "new", 1_000);
    rotate().await.unwrap();
    rotate().await.unwrap();
    let endpoint = shop.payments.read_endpoint("shop").await.unwrap().unwrap();
    assert_eq!(endpoint.secrets(shop.now()), ["new", SECRET]);
    let weaken = Weaken::guard_on("endpoints").without("secret <> :new");
    weakened(&shop, weaken, rotate()).await.unwrap();
    let endpoint = shop.payments.read_endpoint("shop").await.unwrap().unwrap();
    assert_eq!(endpoint.secrets(shop.now()), ["new", "new"]);
}

#[tokio::test]
async fn without_its_guard_a_secret_is_made_for_nobody() {
    let shop = open().await;
    let rotate = || shop.payments.rotate_secret("nobody", "new", 1_000);
    rotate().await.unwrap_err();
    // There is no secret to keep, so the store refuses what the guard would have refused in words.
    let weaken = Weaken::guard_on("endpoints").without("attribute_exists(merchant_id)");
    let fault = weakened(&shop, weaken, rotate()).await.unwrap_err();
    assert!(fault.to_string().contains("ValidationException"), "{fault}");
}
