//! Dies before and after every call; then life goes on; then our books and the processor's must agree,
//! and nobody may have been charged twice.
#![allow(clippy::unwrap_used)]

mod shop;

use chaos::{CrashSweep, LoseAnswer, Swept, Tokenless, World};
use cloud::item::shard_of;
use payments::deliver_webhook::DELIVERY_LEASE_MS;
use payments::domain::{IntentStatus, Movement};
use payments::processor::Mood;
use payments::tables::SHARDS;
use payments::{NewPayment, PaymentsError};
use shop::*;
use std::sync::Arc;

fn assert_points(swept: &Swept, calls: usize) {
    assert_eq!(swept.points.len(), 2 * calls, "{:#?}", swept.points);
}

/// The client asks again until it is answered, as clients do.
async fn asks_again(shop: &Shop, request: &NewPayment) -> u16 {
    for _ in 0..3 {
        match shop.pay(request).await {
            Ok(response) => {
                let again = shop.pay(request).await.unwrap();
                assert_eq!(again, response, "the second answer is another one");
                return response.status;
            }
            Err(PaymentsError::InProgress { retry_after_ms, .. }) => shop.advance(retry_after_ms),
            Err(other) => panic!("{other}"),
        }
    }
    panic!("never answered");
}

/// Dies while paying, with the processor in these moods; the client asks again with its key. How
/// often it died, and how the payment may have ended.
async fn sweep_payer(
    moods: &'static [Mood],
    request: fn() -> NewPayment,
    ends: &'static [IntentStatus],
) -> Swept {
    CrashSweep::of(move || async move {
        let shop = open().await;
        shop.processor.tell(moods.iter().copied());
        shop
    })
    .action("payer", move |shop: Arc<Shop>| async move {
        shop.pay(&request()).await
    })
    .recovery(move |shop| async move {
        asks_again(&shop, &request()).await;
        shop.live(4).await;
    })
    .check(move |shop| async move {
        let status = shop.ends_well().await?;
        match ends.contains(&status) {
            true => Ok(()),
            false => Err(format!("it is {status:?}")),
        }
    })
    .run()
    .await
    .unwrap()
}

const PAID: &[IntentStatus] = &[IntentStatus::Succeeded];

#[tokio::test]
async fn every_crash_point_of_a_payment_charges_once() {
    // Create, mark, send, record, finish.
    assert_points(&sweep_payer(&[], sale, PAID).await, 5);
}

#[tokio::test]
async fn every_crash_point_with_the_answer_cut_off_charges_once() {
    assert_points(&sweep_payer(&[Mood::CutAfter], sale, PAID).await, 5);
}

#[tokio::test]
async fn every_crash_point_with_the_request_cut_off_charges_at_most_once() {
    // It may be closed before it is sent again, and then another card may be tried.
    let ends = &[IntentStatus::Succeeded, IntentStatus::Retryable];
    assert_points(&sweep_payer(&[Mood::CutBefore], sale, ends).await, 5);
}

#[tokio::test]
async fn every_crash_point_of_a_declined_payment_charges_nothing() {
    let declined = || with_card("card-declined");
    let ends = &[IntentStatus::Retryable];
    assert_points(&sweep_payer(&[], declined, ends).await, 5);
}

#[tokio::test]
async fn every_crash_point_of_a_payment_that_is_decided_later_charges_once() {
    assert_points(&sweep_payer(&[Mood::Pending], sale, PAID).await, 5);
}

#[tokio::test]
async fn every_crash_point_of_three_attempts_charges_once() {
    let moods = &[Mood::Down, Mood::Down];
    // Create; twice mark, send, close, take back; mark, send, record, finish.
    assert_points(&sweep_payer(moods, sale, PAID).await, 13);
}

/// Even if the client never asks again: what was begun ends, one way or the other, and the books agree.
async fn sweep_abandoned(mood: Mood) -> Swept {
    CrashSweep::of(move || async move {
        let shop = open().await;
        shop.processor.tell([mood]);
        shop
    })
    .action(
        "payer",
        |shop: Arc<Shop>| async move { shop.pay(&sale()).await },
    )
    .recovery(|shop| async move { shop.live(4).await })
    .check(|shop| async move {
        match shop.payment_of("order").await {
            Some(_) => shop.ends_well().await.map(|_| ()),
            None => Ok(()),
        }
    })
    .run()
    .await
    .unwrap()
}

#[tokio::test]
async fn a_client_that_never_asks_again_leaves_books_that_agree() {
    for mood in [Mood::Answer, Mood::CutAfter, Mood::CutBefore, Mood::Pending] {
        assert_points(&sweep_abandoned(mood).await, 5);
    }
}

/// Dies while moving money of a payment that is there; the merchant asks again with its key.
async fn sweep_movement(
    setup: fn() -> NewPayment,
    movement: &'static Movement,
    mood: Mood,
) -> Swept {
    let moves = move |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        shop.payments.move_money(&key("move"), &id, movement).await
    };
    CrashSweep::of(move || async move {
        let shop = with(setup()).await;
        shop.processor.tell([mood]);
        shop
    })
    .action("merchant", moves)
    .recovery(move |shop| async move {
        let mut answered = false;
        for _ in 0..3 {
            match moves(Arc::clone(&shop)).await {
                Ok(first) => {
                    assert_eq!(moves(Arc::clone(&shop)).await.unwrap(), first);
                    answered = true;
                    break;
                }
                Err(PaymentsError::InProgress { retry_after_ms, .. }) => {
                    shop.advance(retry_after_ms);
                }
                Err(other) => panic!("{other}"),
            }
        }
        assert!(answered);
        shop.live(4).await;
    })
    .check(|shop| async move { shop.ends_well().await.map(|_| ()) })
    .run()
    .await
    .unwrap()
}

const SOME: Option<i64> = Some(7_00);

#[tokio::test]
async fn every_crash_point_of_a_capture_takes_it_once() {
    for mood in [Mood::Answer, Mood::CutAfter] {
        let swept = sweep_movement(hold, &Movement::Capture { amount: SOME }, mood).await;
        // Read the payment, read the key, begin, mark, send, record, finish.
        assert_points(&swept, 7);
    }
}

#[tokio::test]
async fn every_crash_point_of_a_refund_gives_it_back_once() {
    for mood in [Mood::Answer, Mood::CutAfter] {
        let swept = sweep_movement(sale, &Movement::Refund { amount: SOME }, mood).await;
        assert_points(&swept, 7);
    }
}

#[tokio::test]
async fn every_crash_point_of_a_void_lets_go_once() {
    for mood in [Mood::Answer, Mood::CutAfter] {
        assert_points(&sweep_movement(hold, &Movement::Void, mood).await, 7);
    }
}

#[tokio::test]
async fn every_crash_point_of_another_card_charges_once() {
    static ANOTHER: std::sync::LazyLock<Movement> = std::sync::LazyLock::new(|| Movement::Charge {
        card: "card-ok".into(),
    });
    let declined = || with_card("card-declined");
    let swept = sweep_movement(declined, &ANOTHER, Mood::Answer).await;
    assert_points(&swept, 7);
}

/// A payment whose outcome is unknown.
async fn unknown(mood: Mood) -> Shop {
    let shop = open().await;
    shop.processor.tell([mood]);
    assert_eq!(shop.pay(&sale()).await.unwrap().status, 202);
    shop.advance(ROUND);
    shop
}

fn shard(id: &str) -> u32 {
    shard_of(id, SHARDS)
}

#[tokio::test]
async fn every_crash_point_of_the_reconciler_recovers() {
    for (mood, calls) in [
        (Mood::CutAfter, 4),
        (Mood::CutBefore, 5),
        (Mood::Pending, 4),
    ] {
        let swept = CrashSweep::of(move || unknown(mood))
            .action("reconciler", |shop: Arc<Shop>| async move {
                let id = shop.order().await.payment_intent_id;
                shop.payments.reconcile_due([shard(&id)]).await
            })
            .recovery(|shop| async move { shop.live(4).await })
            .check(|shop| async move { shop.ends_well().await.map(|_| ()) })
            .run()
            .await
            .unwrap();
        // Query, read, ask, perhaps close, decide.
        assert_points(&swept, calls);
    }
}

#[tokio::test]
async fn every_crash_point_of_a_notice_recovers() {
    let setup = || async {
        let shop = unknown(Mood::Pending).await;
        shop.processor.decide_pending();
        shop
    };
    let swept = CrashSweep::of(setup)
        .action(
            "notice",
            |shop: Arc<Shop>| async move { shop.notices().await },
        )
        .recovery(|shop| async move { shop.live(4).await })
        .check(|shop| async move { shop.ends_well().await.map(|_| ()) })
        .run()
        .await
        .unwrap();
    // The attempt, the movement, the record.
    assert_points(&swept, 3);
}

#[tokio::test]
async fn every_crash_point_of_an_expiry_recovers() {
    let setup = || async {
        let shop = with(hold()).await;
        shop.advance(WEEK);
        shop
    };
    let swept = CrashSweep::of(setup)
        .action("sweeper", |shop: Arc<Shop>| async move {
            shop.look_after().await
        })
        .recovery(|shop| async move {
            shop.live(4).await;
            // What could not be let go is tried again an hour later.
            shop.advance(payments::domain::ASK_AT_MOST_MS);
            shop.look_after().await;
            shop.live(4).await;
        })
        .check(|shop| async move {
            match shop.ends_well().await? {
                IntentStatus::Expired => Ok(()),
                other => Err(format!("it is {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    // The reconciler finds nothing; query, read, begin, mark, send, record.
    assert_points(&swept, 7);
}

#[tokio::test]
async fn every_crash_point_of_relay_and_delivery_tells_everything_in_order() {
    let swept = CrashSweep::of(|| with(sale()))
        .action("deliverer", |shop: Arc<Shop>| async move {
            let id = shop.order().await.payment_intent_id;
            let shard = shard(&id);
            shop.payments.relay_events([shard]).await.unwrap();
            shop.payments.deliver_due([shard]).await.unwrap();
        })
        .recovery(|shop| async move {
            shop.advance(DELIVERY_LEASE_MS);
            shop.deliver_order().await;
        })
        .check(|shop| async move { shop.told_everything(&shop.order().await).await })
        .run()
        .await
        .unwrap();
    // Query and three times read and relay; query and three times read, endpoint, claim, send, done.
    assert_points(&swept, 7 + 16);
}

/// Every answer is lost once, call by call, and the SDK sends the call again: without the token by
/// which DynamoDB would recognize it. Then life goes on.
async fn each_answer_lost<F: Future<Output = Shop>, A: Future>(
    setup: impl Fn() -> F,
    act: impl Fn(Arc<Shop>) -> A,
    calls: usize,
) {
    for lost in 1..=calls + 1 {
        let shop = Arc::new(setup().await);
        let plan = Arc::new(LoseAnswer::to_call(lost));
        {
            let tap = shop.cloud().tap();
            let _plans = (tap.install(Arc::new(Tokenless)), tap.install(plan.clone()));
            act(Arc::clone(&shop)).await;
        }
        assert_eq!(plan.was_lost(), lost <= calls, "call {lost} of {calls}");
        shop.live(4).await;
        shop.advance(ROUND);
        shop.deliver_order().await;
        let order = shop.order().await;
        let ended = shop.ends_well().await;
        assert!(ended.is_ok(), "call {lost}: {ended:?}");
        let told = shop.told_everything(&order).await;
        assert!(told.is_ok(), "call {lost}: {told:?}");
    }
}

#[tokio::test]
async fn a_payment_whose_every_answer_is_lost_once_is_charged_once() {
    let pays = |shop: Arc<Shop>| async move {
        let said = shop.pay(&sale()).await.unwrap();
        assert!([200, 202].contains(&said.status), "{}", said.body);
    };
    each_answer_lost(open, pays, 5).await;
}

#[tokio::test]
async fn a_refund_whose_every_answer_is_lost_once_is_made_once() {
    let refunds = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        let part = Movement::Refund { amount: SOME };
        let said = shop
            .payments
            .move_money(&key("refund"), &id, &part)
            .await
            .unwrap();
        assert!([200, 202].contains(&said.status), "{}", said.body);
    };
    each_answer_lost(|| with(sale()), refunds, 7).await;
}

#[tokio::test]
async fn an_expiry_a_reconciliation_and_a_delivery_survive_every_lost_answer() {
    let over = || async {
        let shop = with(hold()).await;
        shop.advance(WEEK);
        shop
    };
    let sweeps = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        let ended = shop
            .payments
            .expire_authorizations([shard(&id)])
            .await
            .unwrap();
        assert!(ended[0].1.is_ok(), "{ended:?}");
    };
    each_answer_lost(over, sweeps, 6).await;
    let reconciles = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        shop.payments.reconcile_due([shard(&id)]).await.unwrap();
    };
    each_answer_lost(|| unknown(Mood::CutAfter), reconciles, 4).await;
    let tells = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        shop.payments.relay_events([shard(&id)]).await.unwrap();
        shop.payments.deliver_due([shard(&id)]).await.unwrap();
    };
    each_answer_lost(|| with(sale()), tells, 7 + 16).await;
}
