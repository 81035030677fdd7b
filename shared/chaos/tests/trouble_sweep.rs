//! `TroubleSweep`, `Mixed` and `Stuck` on a toy table, with the bugs they are for.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use chaos::{Mixed, Stuck, Trouble, TroubleSweep};
use cloud::{Cloud, CloudError, Patience, Transaction};
use std::sync::Arc;
use std::time::Duration;

async fn impatient() -> Cloud {
    toy::zero().await.with_patience(Patience::SHORT)
}

#[tokio::test]
async fn every_trouble_befalls_every_call_it_fits() {
    let weathered = TroubleSweep::of(impatient)
        .action("writer", |cloud| async move {
            let _ = toy::read(&cloud, "a").await;
            toy::write(&cloud, "a", 1).await
        })
        .recovery(|cloud| async move { toy::write(&cloud, "a", 1).await.unwrap() })
        .check(|cloud| async move {
            let amount = toy::peek(&cloud, "a").await;
            (amount == Some(1))
                .then_some(())
                .ok_or(format!("{amount:?}"))
        })
        .run()
        .await
        .unwrap();
    let of = |trouble: &str| {
        let all = weathered.points.iter();
        all.filter(|point| point.starts_with(&format!("{trouble} at")))
            .count()
    };
    assert_eq!((of("Conflict"), of("SlowDown")), (1, 0));
    // A read that is throttled is sent three times, and each sending is a call that can be hit.
    assert!(of("Throttled") >= 2 && of("Hangs") >= 2 && of("HangsAfter") >= 2);
}

#[tokio::test]
async fn an_action_that_gives_up_at_a_conflict_is_found() {
    let lost = TroubleSweep::of(impatient)
        .action(
            "writer",
            |cloud| async move { toy::write(&cloud, "a", 1).await },
        )
        .troubles(&[Trouble::Conflict])
        .answers(|_, _, told: &Result<(), CloudError>| match told {
            Ok(()) => Ok(()),
            Err(error) => Err(format!("it gave up: {error}")),
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.point, "Conflict at call 1 (PutItem counters)");
    assert!(lost.why.starts_with("it gave up: conflict"), "{}", lost.why);
}

#[tokio::test]
async fn an_action_that_waits_for_ever_is_found() {
    let stuck = TroubleSweep::of(impatient)
        .action("poller", |cloud| async move {
            while toy::read(&cloud, "a").await.is_err() {}
        })
        .troubles(&[Trouble::Hangs])
        .within(Duration::from_secs(2))
        .run()
        .await
        .unwrap_err();
    assert_eq!(stuck.why, "poller still waits after 2s");
}

#[tokio::test]
async fn an_action_that_nothing_can_befall_is_told_so() {
    let vacuous = TroubleSweep::of(impatient)
        .action("idle", |_| async {})
        .run()
        .await
        .unwrap_err();
    assert!(vacuous.why.contains("nothing befell"), "{}", vacuous.why);
}

/// Two items that must agree, changed from 0; gives the cancellation.
async fn both_from_zero(cloud: &Cloud) -> Result<Transaction<()>, CloudError> {
    let item = |id: &str| {
        let update = Update::builder()
            .table_name(cloud.names().table("counters"))
            .key("counter_id", S(id.to_owned()))
            .update_expression("SET amount = :one")
            .condition_expression("amount = :zero")
            .expression_attribute_values(":one", N("1".to_owned()))
            .expression_attribute_values(":zero", N("0".to_owned()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        TransactWriteItem::builder()
            .update(update.build().unwrap())
            .build()
    };
    match cloud
        .transact(&["a", "b"], vec![item("a"), item("b")])
        .await?
    {
        Transaction::Committed(_) => Ok(Transaction::Committed(())),
        Transaction::Cancelled(cancelled) => Ok(Transaction::Cancelled(cancelled)),
    }
}

#[tokio::test]
async fn a_cancelled_transaction_is_told_in_every_mix() {
    for mask in 0..4_u32 {
        let cloud = toy::empty().await;
        toy::write(&cloud, "a", 7).await.unwrap();
        toy::write(&cloud, "b", 8).await.unwrap();
        let mixed = Arc::new(Mixed::at(mask));
        let _plan = cloud.tap().install(mixed.clone());
        let told = both_from_zero(&cloud).await;
        assert!(mixed.was_mixed());
        match (mask, told) {
            (3, Err(CloudError::Conflict(items))) => assert_eq!(items, "a, b"),
            (_, Ok(Transaction::Cancelled(cancelled))) => {
                assert_eq!(cancelled.failed("a").is_some(), mask & 1 == 0, "{mask}");
                assert_eq!(cancelled.failed("b").is_some(), mask & 2 == 0, "{mask}");
                assert_eq!(cancelled.is_whole(), mask == 0, "{mask}");
            }
            (mask, other) => panic!("{mask}: {other:?}"),
        }
        // Only the first: what tries again is not refused for ever.
        let again = both_from_zero(&cloud).await;
        assert!(matches!(again, Ok(Transaction::Cancelled(_))), "{again:?}");
    }
}

#[tokio::test]
async fn a_stuck_neighbour_stops_a_loop_that_takes_one_after_the_other() {
    let cloud = impatient().await;
    let stuck = Arc::new(Stuck::hanging("a"));
    let _plan = cloud.tap().install(stuck.clone());
    assert!(toy::write(&cloud, "a", 1).await.is_err());
    toy::write(&cloud, "b", 1).await.unwrap();
    assert!(stuck.met() > 0);
    let failing = toy::zero().await;
    let _plan = failing.tap().install(Arc::new(Stuck::failing("a")));
    let refused = toy::write(&failing, "a", 1).await.unwrap_err();
    assert!(matches!(refused, CloudError::Other(_)), "{refused}");
}
