//! Every order of the calls of those who meet: requests, the reconciler, notices, sweepers, deliverers.
#![allow(clippy::unwrap_used)]

mod shop;

use chaos::{Explored, Interleave};
use cloud::tap::{Plan, Request, Verdict};
use futures::future::BoxFuture;
use payments::PaymentsError;
use payments::deliver_webhook::DELIVERY_LEASE_MS;
use payments::domain::Movement;
use payments::processor::Mood;
use shop::cast::*;
use shop::*;
use std::sync::Arc;

fn sometimes(explored: &Explored, words: &[&str]) {
    for word in words {
        assert!(
            explored.seen.keys().any(|label| label.contains(word)),
            "never seen: {word} in {:#?}",
            explored.seen
        );
    }
}

// Two identical requests.

#[tokio::test]
async fn two_requests_with_one_key_charge_once_and_are_answered_alike() {
    let explored = twins(Mood::Answer, 0).run().await.unwrap();
    sometimes(&explored, &["one 200, two in progress", "one 200, two 200"]);
    sometimes(&explored, &["one in progress, two 200"]);
}

#[tokio::test]
async fn a_request_that_takes_over_from_a_slow_one_charges_once() {
    // One of them may know what became of the charge, and the other not: still one answer.
    let explored = twins(Mood::CutAfter, LEASE_OVER).run().await.unwrap();
    sometimes(&explored, &["one 200, two 200", "one 202, two 202"]);
}

#[tokio::test]
async fn two_requests_whose_charge_is_unknown_are_answered_alike_and_charge_once() {
    let explored = twins(Mood::CutAfter, 0).run().await.unwrap();
    sometimes(&explored, &["one 202, two in progress", "one 202, two 202"]);
}

// Request and reconciler.

async fn sender_and_reconciler(calls: u64, first: Mood) -> Explored {
    let actors = Interleave::of(move || left_after(calls, first))
        .actor("sender", send)
        .actor("reconciler", reconcile);
    actors.check(rested).run().await.unwrap()
}

#[tokio::test]
async fn a_movement_that_was_not_sent_is_sent_or_abandoned_and_never_both() {
    let explored = sender_and_reconciler(1, Mood::Answer).await;
    sometimes(
        &explored,
        &["sender charged", "reconciler Abandoned, Retryable"],
    );
}

#[tokio::test]
async fn a_movement_on_its_way_is_charged_or_closed_and_never_both() {
    let explored = sender_and_reconciler(2, Mood::Answer).await;
    sometimes(
        &explored,
        &[
            "sender charged, reconciler Overtaken",
            "NeverArrived, Retryable",
        ],
    );
    sometimes(&explored, &["reconciler Approved, Succeeded"]);
}

#[tokio::test]
async fn a_charge_whose_answer_is_cut_off_is_found_by_whoever_asks() {
    let explored = sender_and_reconciler(2, Mood::CutAfter).await;
    sometimes(
        &explored,
        &["sender unknown", "reconciler Approved, Succeeded"],
    );
}

#[tokio::test]
async fn two_reconcilers_decide_once() {
    let actors = Interleave::of(|| left_after(3, Mood::Answer))
        .actor("one", reconcile)
        .actor("other", reconcile);
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(
        &explored,
        &[
            "one Approved, other Overtaken",
            "one Overtaken, other Approved",
        ],
    );
}

#[tokio::test]
async fn two_reconcilers_that_learn_nothing_count_it_once() {
    let actors = Interleave::of(undecided)
        .actor("one", reconcile)
        .actor("other", reconcile);
    let checked = actors.check(|shop: Arc<Shop>, told| async move {
        let (_, transaction) = ids(&shop).await;
        let decisions = shop.beside().decisions_of(&transaction).await.unwrap();
        let numbers: Vec<_> = decisions.iter().map(|decision| decision.number).collect();
        let expected: Vec<_> = (1..=numbers.len() as u32).collect();
        if numbers.is_empty() || numbers != expected {
            return Err(format!("the decisions are {numbers:?}"));
        }
        rested(shop, told).await
    });
    let explored = checked.run().await.unwrap();
    sometimes(&explored, &["one Waiting, other Overtaken"]);
}

// Response, notice, reconciler.

#[tokio::test]
async fn a_response_and_a_notice_may_come_in_any_order() {
    let actors = Interleave::of(|| left_after(3, Mood::Answer))
        .actor("sender", send)
        .actor("notice", told_once);
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(&explored, &["notice Settled", "notice Known"]);
}

#[tokio::test]
async fn a_notice_may_come_before_during_and_after_not_knowing() {
    let actors = Interleave::of(|| left_after(3, Mood::Answer))
        .actor("sender", send)
        .actor("notice", told_once)
        .under(|| Arc::new(Unanswered));
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(
        &explored,
        &[
            "sender unknown, notice Settled",
            "sender charged, notice Settled",
        ],
    );
}

#[tokio::test]
async fn a_notice_and_the_reconciler_settle_once() {
    let actors = Interleave::of(|| left_after(3, Mood::Answer))
        .actor("notice", told_once)
        .actor("reconciler", reconcile);
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(
        &explored,
        &["notice Settled", "notice Known, reconciler Approved"],
    );
}

#[tokio::test]
async fn response_notice_and_reconciler_settle_once() {
    let actors = Interleave::of(|| left_after(3, Mood::Answer))
        .actor("sender", |shop: Arc<Shop>| async move {
            // What it read and was answered before the others came.
            let (intent, transaction) = ids(&shop).await;
            let beside = shop.beside();
            let (intent, transaction) = beside.read_movement(&intent, &transaction).await.unwrap();
            let outcome = payments::domain::Outcome::Approved;
            let source = payments::domain::Source::Response;
            let recorded = shop
                .payments
                .record(&intent, &transaction, &outcome, source);
            recorded
                .await
                .unwrap()
                .map_or("late", |_| "first")
                .to_owned()
        })
        .actor("notice", told_once)
        .actor("reconciler", reconcile);
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(
        &explored,
        &["sender first", "notice Settled", "reconciler Approved"],
    );
}

// Two movements of one payment.

#[tokio::test]
async fn of_two_movements_of_one_payment_one_begins() {
    let part = |amount| Movement::Capture {
        amount: Some(amount),
    };
    let explored = wishes(part(10_00), part(15_00)).run().await.unwrap();
    sometimes(
        &explored,
        &["one began, other refused", "one refused, other began"],
    );
    let explored = wishes(Movement::Capture { amount: None }, Movement::Void);
    let explored = explored.run().await.unwrap();
    sometimes(
        &explored,
        &["one began, other refused", "one refused, other began"],
    );
}

#[tokio::test]
async fn of_two_that_take_over_a_key_one_gets_it() {
    let explored = heirs().run().await.unwrap();
    sometimes(
        &explored,
        &["one took it over, other in progress", "other took it over"],
    );
}

#[tokio::test]
async fn the_same_refund_asked_for_twice_at_once_is_made_once() {
    let refund = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        let all = Movement::Refund { amount: None };
        match shop.payments.begin(&key("refund"), &id, &all).await {
            Ok(_) => "began".to_owned(),
            Err(PaymentsError::InProgress { .. }) => "in progress".into(),
            Err(other) => panic!("{other}"),
        }
    };
    let actors = Interleave::of(|| with(sale()))
        .actor("one", refund)
        .actor("other", refund);
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(
        &explored,
        &[
            "one began, other in progress",
            "one in progress, other began",
        ],
    );
}

#[tokio::test]
async fn a_capture_and_the_end_of_its_authorization_do_not_both_happen() {
    let actors = Interleave::of(|| with(hold()))
        .actor("merchant", |shop: Arc<Shop>| async move {
            let id = shop.order().await.payment_intent_id;
            let all = Movement::Capture { amount: None };
            let key = key("capture");
            let begun = shop.payments.begin(&key, &id, &all).await;
            let word = began(&begun);
            // What has begun is carried on by somebody else, as if this one had died.
            drop(begun);
            word
        })
        .actor("sweeper", |shop: Arc<Shop>| async move {
            let id = shop.order().await.payment_intent_id;
            let ahead = shop.ahead(WEEK);
            let shard = cloud::item::shard_of(&id, payments::tables::SHARDS);
            match &ahead.expire_authorizations([shard]).await.unwrap()[..] {
                [(_, Ok(intent))] => format!("{:?}", intent.status),
                [(_, Err(PaymentsError::Refused(_)))] => "refused".into(),
                [] => "nothing".into(),
                other => panic!("{other:?}"),
            }
        });
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(
        &explored,
        &[
            "merchant began, sweeper refused",
            "merchant refused, sweeper Expired",
        ],
    );
}

// Deliverers.

#[tokio::test]
async fn two_deliverers_tell_a_merchant_once_while_both_live() {
    let actors = Interleave::of(to_be_told)
        .actor("one", |shop| tell(shop, 1, 0))
        .actor("other", |shop| tell(shop, 1, 0));
    let checked = actors.check(|shop: Arc<Shop>, told| async move {
        match shop.merchant.received().len() {
            1 => all_told(shop, told).await,
            more => Err(format!("the merchant was told {more} times")),
        }
    });
    let explored = checked.run().await.unwrap();
    sometimes(
        &explored,
        &[
            "one delivered, other Nothing",
            "one Nothing, other delivered",
        ],
    );
}

#[tokio::test]
async fn a_slow_deliverer_and_the_next_one_tell_everything_in_order() {
    let actors = Interleave::of(to_be_told)
        .actor("slow", |shop| tell(shop, 1, 0))
        .actor("next", |shop| async move {
            let first = tell(Arc::clone(&shop), 1, DELIVERY_LEASE_MS).await;
            first + " then " + &tell(shop, 2, DELIVERY_LEASE_MS).await
        });
    let explored = actors.check(all_told).run().await.unwrap();
    sometimes(
        &explored,
        &[
            "slow delivered, next Nothing then delivered",
            "delivered then delivered",
        ],
    );
}

#[tokio::test]
async fn a_deliverer_that_dies_beside_a_slow_one_leaves_nothing_behind() {
    let actors = Interleave::of(to_be_told)
        .actor("slow", |shop| tell(shop, 1, 0))
        .actor("dying", |shop: Arc<Shop>| async move {
            let id = shop.order().await.payment_intent_id;
            let ahead = shop.ahead(DELIVERY_LEASE_MS);
            // It fails at its message and at everything after it: dead.
            let _ = ahead.deliver(&id, 1).await;
            "died".to_owned()
        })
        .under(|| Arc::new(DiesSending));
    let explored = actors.check(all_told).run().await.unwrap();
    assert!(explored.schedules > 10);
}

/// Who is called `dying` sends no message, and does nothing after it.
struct DiesSending;

impl Plan for DiesSending {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let shape = request.shape();
        let claims = shape == "UpdateItem webhook_deliveries if"
            && request.targets[0]
                .update
                .as_ref()
                .is_some_and(|update| update.contains("lease_owner"));
        let reads = !request.is_write();
        let dead = *request.actor == *"dying" && !reads && !claims;
        Box::pin(async move {
            match dead {
                true => Verdict::Kill,
                false => Verdict::Pass,
            }
        })
    }
}

#[tokio::test]
async fn two_reconcilers_of_which_one_knows_more_write_both_decisions_down() {
    let explored = one_knows_more().run().await.unwrap();
    sometimes(
        &explored,
        &[
            "before Waiting, after Overtaken",
            "before Overtaken, after Approved",
        ],
    );
}

#[tokio::test]
async fn an_attempt_that_is_taken_back_and_the_reconciler_charge_at_most_once() {
    let actors = Interleave::of(|| left_after(2, Mood::Down))
        .actor("sender", |shop: Arc<Shop>| async move {
            let (intent, transaction) = ids(&shop).await;
            let beside = shop.beside();
            let read = beside.read_movement(&intent, &transaction).await.unwrap();
            let (_, ended) = shop.payments.drive(read.0, read.1).await.unwrap();
            format!("{:?}, attempt {}", ended.status, ended.attempt)
        })
        .actor("reconciler", reconcile);
    let explored = actors.check(rested).run().await.unwrap();
    sometimes(&explored, &["sender Authorized, attempt 2", "Retryable"]);
}

#[tokio::test]
async fn two_relays_make_one_delivery_of_an_event() {
    let relay = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        let shard = cloud::item::shard_of(&id, payments::tables::SHARDS);
        let relayed = shop.payments.relay_events([shard]).await.unwrap();
        let made =
            |(_, relayed): &(String, Result<bool, PaymentsError>)| *relayed.as_ref().unwrap();
        relayed.iter().filter(|one| made(one)).count().to_string()
    };
    let actors = Interleave::of(|| left_after(1, Mood::Answer))
        .actor("one", relay)
        .actor("other", relay);
    let checked = actors.check(|shop: Arc<Shop>, told: Told| async move {
        let sum: usize = told.iter().map(|(_, n)| n.parse::<usize>().unwrap()).sum();
        if sum != 1 {
            return Err(format!("{sum} deliveries of one event"));
        }
        shop.live(2).await;
        all_told(shop, told).await
    });
    let explored = checked.run().await.unwrap();
    sometimes(&explored, &["one 1, other 0", "one 0, other 1"]);
}
