//! `Weaken`, on a toy table.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{ConditionCheck, TransactWriteItem, Update};
use chaos::{Interleave, Says, Weaken};
use cloud::tap::{Request, Verdict};
use cloud::{Cloud, Guard, Guarded, GuardedTransaction, Transaction};
use std::sync::Arc;

#[tokio::test]
async fn weakening_a_guard_lets_the_second_writer_win() {
    let cloud = toy::zero().await;
    assert!(toy::swap(&cloud, "a", 0, 1).await.unwrap());
    assert!(
        !toy::swap(&cloud, "a", 0, 2).await.unwrap(),
        "the guard holds"
    );
    let weaken = Arc::new(Weaken::guard_on("counters"));
    let plan = cloud.tap().install(weaken.clone());
    assert!(
        toy::swap(&cloud, "a", 0, 2).await.unwrap(),
        "the guard is gone"
    );
    drop(plan);
    assert_eq!(toy::peek(&cloud, "a").await, Some(2));
    assert_eq!(weaken.applied(), 1);
    assert!(
        !toy::swap(&cloud, "a", 0, 3).await.unwrap(),
        "the guard is back"
    );
}

#[tokio::test]
async fn a_dropped_clause_leaves_the_others_in_force() {
    let cloud = toy::zero().await;
    let weaken = Arc::new(Weaken::guard_on("counters").without("amount = :old"));
    let _plan = cloud.tap().install(weaken.clone());
    assert!(
        toy::swap(&cloud, "a", 7, 8).await.unwrap(),
        "the amount is not looked at"
    );
    assert!(
        !toy::swap(&cloud, "no such counter", 7, 8).await.unwrap(),
        "existence still is"
    );
    assert_eq!(weaken.applied(), 2);
}

#[tokio::test]
async fn other_tables_other_texts_and_unguarded_writes_stay_as_they_are() {
    let cloud = toy::zero().await;
    for weaken in [
        Weaken::guard_on("auctions"),
        Weaken::guard_on("counters").containing("end_time"),
        Weaken::guard_on("counters").without("amount = :other"),
    ] {
        let weaken = Arc::new(weaken);
        let _plan = cloud.tap().install(weaken.clone());
        assert!(!toy::swap(&cloud, "a", 7, 8).await.unwrap());
        toy::write(&cloud, "b", 0).await.unwrap();
        assert_eq!(weaken.applied(), 0);
    }
}

#[tokio::test]
async fn a_condition_is_found_by_its_words_and_by_its_values() {
    let cloud = toy::zero().await;
    for text in ["amount = :old", "amount = 7"] {
        let weaken = Arc::new(Weaken::guard_on("counters").containing(text));
        let _plan = cloud.tap().install(weaken.clone());
        assert!(toy::swap(&cloud, "a", 7, 0).await.unwrap());
        assert_eq!(weaken.applied(), 1);
    }
}

/// Moves `b` if `a` is at one.
async fn move_if(cloud: &Cloud) -> bool {
    let table = cloud.names().table("counters");
    let check = ConditionCheck::builder()
        .table_name(&table)
        .key("counter_id", S("a".into()))
        .condition_expression("amount = :one")
        .expression_attribute_values(":one", N("1".into()));
    let update = Update::builder()
        .table_name(&table)
        .key("counter_id", S("b".into()))
        .update_expression("SET amount = :one")
        .expression_attribute_values(":one", N("1".into()));
    let outcome = cloud
        .dynamodb()
        .transact_write_items()
        .transact_items(
            TransactWriteItem::builder()
                .condition_check(check.build().unwrap())
                .build(),
        )
        .transact_items(
            TransactWriteItem::builder()
                .update(update.build().unwrap())
                .build(),
        )
        .send()
        .await
        .guarded(&["a", "b"])
        .unwrap();
    matches!(outcome, Transaction::Committed(_))
}

#[tokio::test]
async fn guards_inside_a_transaction_are_weakened_too() {
    let cloud = toy::zero().await;
    assert!(!move_if(&cloud).await);
    let weaken = Arc::new(Weaken::guard_on("counters"));
    let _plan = cloud.tap().install(weaken.clone());
    assert!(move_if(&cloud).await);
    assert_eq!(weaken.applied(), 1, "the update had no guard to weaken");
}

#[tokio::test]
async fn weakened_clauses_compose_beneath_an_interleaving_as_they_do_at_the_tap() {
    let swap = |clauses: &'static [&'static str]| async move {
        let mut actors = chaos::Interleave::of(toy::zero)
            .actor("swapper", |cloud: Arc<Cloud>| async move {
                both(&cloud).await.to_string()
            });
        for clause in clauses {
            let weaken = || Arc::new(Weaken::guard_on("counters").without(clause));
            actors = actors.under(weaken);
        }
        let explored = actors
            .check(|_, told| async move { Ok(told[0].1.clone()) })
            .run()
            .await
            .unwrap();
        explored.seen.into_keys().collect::<Vec<_>>()
    };
    assert_eq!(swap(&["amount = :one"]).await, ["false"]);
    assert_eq!(swap(&["amount = :one", "amount = :two"]).await, ["true"]);
}

/// Writes `a` if it is at one and at two at once.
async fn both(cloud: &Cloud) -> bool {
    let written = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S("a".into()))
        .update_expression("SET amount = :one")
        .condition_expression("amount = :one AND amount = :two")
        .expression_attribute_values(":one", N("1".into()))
        .expression_attribute_values(":two", N("2".into()))
        .send()
        .await
        .guarded()
        .unwrap();
    matches!(written, Guard::Passed(_))
}

/// A driver asks the plans beneath it. One takes the guard away, the next one loses the answer: the weakened
/// write is made, as it is at the tap.
#[tokio::test]
async fn beneath_a_driver_a_weakened_write_stays_weakened_whatever_befalls_it() {
    let lose = || {
        Arc::new(Says(|request: &Request| match request.is_write() {
            true => Verdict::LoseAnswer,
            false => Verdict::Pass,
        }))
    };
    let explored = Interleave::of(toy::zero)
        .actor("swapper", |cloud: Arc<Cloud>| async move {
            let _ = toy::swap(&cloud, "a", 7, 8).await;
        })
        .under(|| Arc::new(Weaken::guard_on("counters")))
        .under(lose)
        .check(|cloud, _| async move { Ok(format!("{:?}", toy::peek(&cloud, "a").await)) })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.seen.keys().collect::<Vec<_>>(), ["Some(8)"]);
}
