//! `TroubleSweep`, `Mixed` and `Stuck` on a toy table, with the bugs they are for.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{
    Get, ReturnValuesOnConditionCheckFailure, TransactGetItem, TransactWriteItem, Update,
};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use chaos::{Mixed, Stuck, Trouble, TroubleSweep};
use cloud::{Cloud, CloudError, Patience, Transaction};
use futures::future::join_all;
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
        .reading()
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

/// The bug: an answer that did not come is taken for a write that was not made, and it is made once more.
#[tokio::test]
async fn an_action_that_takes_silence_for_a_no_is_found() {
    let twice = TroubleSweep::of(impatient)
        .action("adder", |cloud| async move {
            let _ = toy::swap(&cloud, "a", 0, 1).await;
        })
        .recovery(|cloud| async move {
            let at = toy::peek(&cloud, "a").await.unwrap();
            toy::swap(&cloud, "a", at, at + 1).await.unwrap();
        })
        .check(|cloud| async move {
            let amount = toy::peek(&cloud, "a").await;
            (amount == Some(1))
                .then_some(())
                .ok_or(format!("{amount:?}"))
        })
        .troubles(&[Trouble::HangsAfter])
        .run()
        .await
        .unwrap_err();
    assert_eq!(twice.why, "Some(2)");
    assert!(twice.point.starts_with("HangsAfter at call 1"), "{twice}");
}

/// The bug: whoever is told "unknown" reads, finds nothing, and does the opposite. The write was made after all.
#[tokio::test]
async fn an_action_that_undoes_what_it_was_not_told_of_is_found() {
    let sweep = |trouble| {
        TroubleSweep::of(impatient)
            .action("payer", |cloud| async move {
                match toy::swap(&cloud, "a", 0, 1).await {
                    Err(CloudError::Unknown(_)) => toy::write(&cloud, "refund", 1).await,
                    told => told.map(drop),
                }
            })
            .check(|cloud| async move {
                let paid = toy::peek(&cloud, "a").await == Some(1);
                let refunded = toy::peek(&cloud, "refund").await.is_some();
                match paid && refunded {
                    true => Err("paid and refunded".to_owned()),
                    false => Ok(()),
                }
            })
            .troubles(&[trouble])
    };
    sweep(Trouble::Lost).run().await.unwrap();
    let both = sweep(Trouble::LostAnswer).run().await.unwrap_err();
    assert_eq!(both.why, "paid and refunded");
}

/// The bug: "cancelled" is taken for "a condition failed".
#[tokio::test]
async fn an_action_that_takes_a_conflict_for_an_answer_is_found() {
    let lie = TroubleSweep::of(both_at_zero)
        .action("mover", |cloud| async move {
            matches!(both_from_zero(&cloud).await, Ok(Transaction::Committed(())))
        })
        .troubles(&[Trouble::Conflict])
        .answers(|_, _, told| match told {
            true => Ok(()),
            false => Err("it says that they were not at zero".to_owned()),
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lie.why, "it says that they were not at zero");
}

#[tokio::test]
async fn a_conflict_befalls_a_transactional_read_too() {
    let read = TroubleSweep::of(both_at_zero)
        .reading()
        .action("reader", |cloud| async move {
            let get = Get::builder()
                .table_name(cloud.names().table("counters"))
                .key("counter_id", S("a".to_owned()))
                .build()
                .unwrap();
            let item = TransactGetItem::builder().get(get).build();
            let read = cloud.dynamodb().transact_get_items();
            let read = read.transact_items(item).send().await;
            read.map(drop).map_err(CloudError::from)
        })
        .troubles(&[Trouble::Conflict])
        .answers(|_, _, told| match told {
            Err(CloudError::Conflict(_)) => Ok(()),
            other => Err(format!("{other:?}")),
        })
        .run()
        .await
        .unwrap();
    assert_eq!(read.points.len(), 1, "{read:?}");
}

async fn both_at_zero() -> Cloud {
    let cloud = impatient().await;
    toy::write(&cloud.beside_tap(), "b", 0).await.unwrap();
    cloud
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

/// It pays what is not there: it is refused at its first read, and the recovery does the work.
#[tokio::test]
async fn an_action_that_is_refused_before_it_writes_shows_nothing() {
    let sweep = || {
        TroubleSweep::of(impatient)
            .action("payer", |cloud| async move {
                if let Ok(Some(_)) = toy::read(&cloud, "misspelt").await {
                    let _ = toy::write(&cloud, "a", 1).await;
                }
            })
            .recovery(|cloud| async move { toy::write(&cloud, "a", 1).await.unwrap() })
    };
    let vacuous = sweep().run().await.unwrap_err();
    assert!(vacuous.why.contains("writes nothing"), "{}", vacuous.why);
    sweep().reading().run().await.unwrap();
}

#[tokio::test]
async fn a_trouble_that_was_asked_for_and_befell_nothing_is_told() {
    let vacuous = TroubleSweep::of(impatient)
        .action(
            "reader",
            |cloud| async move { toy::read(&cloud, "a").await },
        )
        .reading()
        .troubles(&[Trouble::Throttled, Trouble::Conflict])
        .run()
        .await
        .unwrap_err();
    assert!(
        vacuous.why.contains("Conflict fits none"),
        "{}",
        vacuous.why
    );
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

/// The bug: a decision on what came back, though not everything did.
#[tokio::test]
async fn a_decision_on_half_of_what_changed_is_found_by_a_mix() {
    let mut wrong = Vec::new();
    for mask in 0..4_u32 {
        let cloud = toy::empty().await;
        toy::write(&cloud, "a", 7).await.unwrap();
        toy::write(&cloud, "b", 8).await.unwrap();
        let _plan = cloud.tap().install(Arc::new(Mixed::at(mask)));
        if let Ok(Transaction::Cancelled(cancelled)) = both_from_zero(&cloud).await {
            let b_is_at_zero = cancelled.failed("b").is_none();
            wrong.extend(b_is_at_zero.then_some(mask));
        }
    }
    assert_eq!(wrong, [2], "b has changed, and a conflict hides it");
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

/// The bug: one after the other, and what the first one suffers ends the pass for all.
async fn pass_in_a_row(cloud: &Cloud, ids: &[&str]) -> Result<(), CloudError> {
    for id in ids {
        toy::write(cloud, id, 1).await?;
    }
    Ok(())
}

async fn pass_side_by_side(cloud: &Cloud, ids: &[&str]) {
    join_all(ids.iter().map(|id| toy::write(cloud, id, 1))).await;
}

#[tokio::test]
async fn a_loop_that_a_stuck_neighbour_stops_is_told_from_one_that_goes_on() {
    let ids = ["a", "b", "c"];
    for stuck in [Stuck::hanging("a"), Stuck::failing("a")] {
        let (cloud, stuck) = (impatient().await, Arc::new(stuck));
        let _plan = cloud.tap().install(stuck.clone());
        pass_in_a_row(&cloud, &ids).await.unwrap_err();
        assert_eq!(toy::peek(&cloud, "c").await, None, "nobody came to it");
        let met = stuck.met();
        assert!(met > 0);
        pass_side_by_side(&cloud, &ids).await;
        assert_eq!(toy::peek(&cloud, "c").await, Some(1));
        assert_eq!(toy::peek(&cloud, "a").await, Some(0), "it is stuck");
        assert!(stuck.met() > met);
    }
}

/// A store of objects with one in it.
async fn kept() -> Cloud {
    let cloud = impatient().await;
    cloud.create_bucket("objects").await.unwrap();
    let put = cloud
        .s3()
        .put_object()
        .bucket(cloud.names().bucket("objects"));
    let body = ByteStream::from_static(b"there");
    put.key("k").body(body).send().await.unwrap();
    cloud
}

async fn is_there(cloud: &Cloud) -> Result<bool, CloudError> {
    let bucket = cloud.names().bucket("objects");
    match cloud.s3().get_object().bucket(bucket).key("k").send().await {
        Ok(_) => Ok(true),
        Err(error) if error.code() == Some("NoSuchKey") => Ok(false),
        Err(error) => Err(error.into()),
    }
}

const OF_S3: [Trouble; 4] = [
    Trouble::SlowDown,
    Trouble::InternalError,
    Trouble::RequestTimeout,
    Trouble::AccessDenied,
];

#[tokio::test]
async fn each_error_of_s3_is_told_as_what_it_is() {
    let weathered = TroubleSweep::of(kept)
        .reading()
        .action("reader", |cloud| async move { is_there(&cloud).await })
        .troubles(&OF_S3)
        .answers(|trouble, _, told| match (trouble, told) {
            (Trouble::SlowDown, Err(CloudError::Throttled(_)))
            | (Trouble::InternalError, Err(CloudError::Unknown(_)))
            // The SDK tries it again, and there is one of it.
            | (Trouble::RequestTimeout, Ok(true))
            | (Trouble::AccessDenied, Err(CloudError::Other(_))) => Ok(()),
            (trouble, told) => Err(format!("{trouble}: {told:?}")),
        })
        .run()
        .await
        .unwrap();
    for trouble in OF_S3 {
        let met = |point: &String| point.starts_with(&format!("{trouble} at"));
        assert!(weathered.points.iter().any(met), "{weathered:?}");
    }
}

/// The bug: every error is taken for "it is not there", and its owner is told that it is gone.
#[tokio::test]
async fn an_action_that_takes_a_refusal_for_an_absence_is_found() {
    for trouble in [
        Trouble::SlowDown,
        Trouble::InternalError,
        Trouble::AccessDenied,
    ] {
        let lie = TroubleSweep::of(kept)
            .reading()
            .action("reader", |cloud| async move {
                is_there(&cloud).await.unwrap_or(false)
            })
            .troubles(&[trouble])
            .answers(|_, _, told| match told {
                true => Ok(()),
                false => Err("it is said to be gone".to_owned()),
            })
            .run()
            .await
            .unwrap_err();
        assert_eq!(lie.why, "it is said to be gone");
    }
}
