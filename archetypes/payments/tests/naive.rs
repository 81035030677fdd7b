//! The documents' literal words, driven into their failure by a forced order. The processor's book is
//! the witness.
#![allow(clippy::unwrap_used)]

mod shop;

use aws_sdk_dynamodb::types::AttributeValue;
use chaos::{Interleave, World};
use cloud::item::s;
use cloud::tap::KillFrom;
use cloud::{Guard, Guarded};
use payments::processor::Mood;
use payments::processor_client::{Answer, Order};
use payments::{ProcessorClient, domain::Kind};
use shop::*;
use std::sync::Arc;

/// The documents' payment: plain puts and updates, one after the other.
struct Literal {
    shop: Arc<Shop>,
    processor: ProcessorClient,
}

impl Literal {
    fn of(shop: &Arc<Shop>) -> Self {
        Self {
            processor: shop.processor_client().unwrap(),
            shop: Arc::clone(shop),
        }
    }

    async fn put(&self, table: &str, item: &[(&str, &str)], condition: Option<&str>) -> bool {
        let cloud = self.shop.cloud();
        let mut put = cloud
            .dynamodb()
            .put_item()
            .table_name(cloud.names().table(table))
            .set_condition_expression(condition.map(str::to_owned));
        for (name, value) in item {
            put = put.item(*name, s(*value));
        }
        matches!(put.send().await.guarded().unwrap(), Guard::Passed(_))
    }

    async fn set_status(&self, table: &str, key: &[(&str, &str)], status: &str) {
        let cloud = self.shop.cloud();
        let mut update = cloud
            .dynamodb()
            .update_item()
            .table_name(cloud.names().table(table))
            .update_expression("SET #status = :status")
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":status", s(status));
        for (name, value) in key {
            update = update.key(*name, s(*value));
        }
        // Whoever is dead sees no answer, and says nothing.
        let _ = update.send().await;
    }

    async fn status(&self, table: &str, key: &[(&str, &str)]) -> String {
        let cloud = self.shop.cloud().beside_tap();
        let mut get = cloud
            .dynamodb()
            .get_item()
            .table_name(cloud.names().table(table));
        for (name, value) in key {
            get = get.key(*name, s(*value));
        }
        match get.send().await.unwrap().item.unwrap().get("status") {
            Some(AttributeValue::S(status)) => status.clone(),
            other => panic!("{other:?}"),
        }
    }

    async fn charge(&self, attempt: &str) -> Answer {
        let order = Order {
            kind: Kind::Charge,
            amount: AMOUNT,
            currency: "EUR".into(),
            reference: "pi-literal".into(),
            card: Some("card-ok".into()),
            capture: true,
            authorization: None,
        };
        self.processor.send(attempt, &order).await
    }
}

/// Row 19: the transaction row, then the key. Both requests have a row, and both charge, before one of
/// them learns that the key is taken.
#[tokio::test]
async fn row_19_two_requests_with_one_key_charge_twice() {
    let pays = |name: &'static str| {
        move |shop: Arc<Shop>| async move {
            let literal = Literal::of(&shop);
            let row = [
                ("payment_intent_id", "pi-literal"),
                ("transaction_id", name),
            ];
            literal.put("transactions", &row, None).await;
            literal.charge(name).await;
            let key = [("idempotency_key", "order")];
            let first = literal
                .put(
                    "idempotency",
                    &key,
                    Some("attribute_not_exists(idempotency_key)"),
                )
                .await;
            if first { "first" } else { "too late" }.to_owned()
        }
    };
    let broken = Interleave::of(open)
        .actor("one", pays("one"))
        .actor("two", pays("two"))
        .check(|shop: Arc<Shop>, told| async move {
            match shop.charges("pi-literal") {
                1 => Ok(format!("{told:?}")),
                charges => Err(format!("one key, {charges} charges")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.why, "one key, 2 charges");
    assert_eq!(broken.explored, 0, "even one after the other");
}

/// Row 20: no answer came, so it failed, so try again. It had not failed.
#[tokio::test]
async fn row_20_a_second_attempt_while_the_first_is_unknown_charges_twice() {
    let shop = Arc::new(open().await);
    shop.processor.tell([Mood::CutAfter]);
    let literal = Literal::of(&shop);
    let first = literal.charge("attempt-1").await;
    assert!(matches!(first, Answer::Unknown(_)), "{first:?}");
    let second = literal.charge("attempt-2").await;
    assert!(matches!(second, Answer::Decided(_)), "{second:?}");
    assert_eq!(shop.charges("pi-literal"), 2);

    // Ours, with the same processor in the same mood: asked again with the same key, it waits.
    let shop = open().await;
    shop.processor.tell([Mood::CutAfter]);
    let first = shop.pay(&sale()).await.unwrap();
    let again = shop.pay(&sale()).await.unwrap();
    assert_eq!((first.status, &again), (202, &first));
    shop.live(2).await;
    assert_eq!(shop.charges(&shop.order().await.payment_intent_id), 1);
}

/// Row 21: update the transaction, then the payment. Dead in between, they disagree, and nothing will
/// ever mend it: each looks as if the other were still to come.
#[tokio::test]
async fn row_21_dying_between_two_updates_tears_the_state() {
    let shop = Arc::new(open().await);
    let literal = Literal::of(&shop);
    let intent = [("payment_intent_id", "pi-literal")];
    let row = [
        ("payment_intent_id", "pi-literal"),
        ("transaction_id", "txn-literal"),
    ];
    literal
        .put(
            "payment_intents",
            &[intent[0], ("status", "PROCESSING")],
            None,
        )
        .await;
    literal
        .put("transactions", &[row[0], row[1], ("status", "SENT")], None)
        .await;
    literal.charge("attempt-1").await;
    let dying = KillFrom::call(2).of("recorder");
    let plan = shop.cloud().tap().install(Arc::new(dying));
    cloud::as_actor("recorder", async {
        literal.set_status("transactions", &row, "AUTHORIZED").await;
        literal
            .set_status("payment_intents", &intent, "SUCCEEDED")
            .await;
    })
    .await;
    drop(plan);
    assert_eq!(literal.status("transactions", &row).await, "AUTHORIZED");
    assert_eq!(
        literal.status("payment_intents", &intent).await,
        "PROCESSING"
    );
}

/// Row 21 again: without a rank, a late timeout moves back what the reconciler has decided.
#[tokio::test]
async fn row_21_a_late_timeout_moves_a_decided_payment_back() {
    let says = |status: &'static str| {
        move |shop: Arc<Shop>| async move {
            let literal = Literal::of(&shop);
            let intent = [("payment_intent_id", "pi-literal")];
            literal.set_status("payment_intents", &intent, status).await;
        }
    };
    let broken = Interleave::of(open)
        .actor("reconciler", says("SUCCEEDED"))
        .actor("timeout", says("REQUIRES_RECONCILIATION"))
        .check(|shop: Arc<Shop>, _| async move {
            let literal = Literal::of(&shop);
            let intent = [("payment_intent_id", "pi-literal")];
            match literal.status("payment_intents", &intent).await.as_str() {
                "SUCCEEDED" => Ok("decided".to_owned()),
                other => Err(format!("it was decided, and is {other}")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.schedule.to_string(), "reconciler timeout");
}
