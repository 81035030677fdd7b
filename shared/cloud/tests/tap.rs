//! The tap's promises, on a toy table.
#![allow(clippy::unwrap_used)]

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::tables::{Billing, Key, Table};
use cloud::tap::{KillFrom, Outcome, Plan, Request, Service, Verdict};
use cloud::{Cloud, CloudError, Guard, Guarded, GuardedTransaction, Transaction, as_actor};
use futures::future::BoxFuture;
use redis::AsyncCommands;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const COUNTERS: Table = Table {
    name: "counters",
    entity: "CounterState",
    why: "A toy.",
    partition: Key::S("counter_id"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[],
};

async fn toy() -> Cloud {
    let cloud = cloud::connect_for_tests().await.unwrap();
    cloud.create_tables(&[COUNTERS]).await.unwrap();
    cloud
}

/// Puts the counter at `value` if there is none yet.
async fn create(cloud: &Cloud, id: &str, value: u32) -> Result<Guard<()>, CloudError> {
    let written = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("counters"))
        .item("counter_id", S(id.to_owned()))
        .item("amount", N(value.to_string()))
        .condition_expression("attribute_not_exists(counter_id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .send()
        .await
        .guarded()?;
    Ok(match written {
        Guard::Passed(_) => Guard::Passed(()),
        Guard::Failed(old) => Guard::Failed(old),
    })
}

async fn read(cloud: &Cloud, id: &str) -> Option<String> {
    let item = cloud
        .beside_tap()
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S(id.to_owned()))
        .consistent_read(true)
        .send()
        .await
        .unwrap()
        .item?;
    Some(item["amount"].as_n().unwrap().clone())
}

/// A plan that gives one verdict to the n-th call it sees, and lets the others pass.
struct Once(usize, Verdict, AtomicUsize);

fn once(n: usize, verdict: Verdict) -> Arc<Once> {
    Arc::new(Once(n, verdict, AtomicUsize::new(0)))
}

impl Plan for Once {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        let hit = self.2.fetch_add(1, Ordering::SeqCst) + 1 == self.0;
        let verdict = if hit { self.1.clone() } else { Verdict::Pass };
        Box::pin(async move { verdict })
    }
}

#[tokio::test]
async fn a_fresh_embedded_cloud_takes_under_50_ms() {
    toy().await; // the first one starts the servers' threads
    let mut times = Vec::new();
    for _ in 0..5 {
        let started = Instant::now();
        let cloud = cloud::connect_for_tests().await.unwrap();
        cloud.dynamodb().list_tables().send().await.unwrap();
        times.push(started.elapsed());
    }
    // The best of five: what it takes, not what else this machine was doing.
    let best = times.iter().min().unwrap();
    assert!(*best < Duration::from_millis(50), "{times:?}");
}

#[tokio::test]
async fn a_dropped_embedded_cloud_is_gone() {
    let cloud = toy().await;
    let client = cloud.dynamodb().clone();
    client.list_tables().send().await.unwrap();
    drop(cloud);
    let gone = async {
        while client.list_tables().send().await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), gone)
        .await
        .unwrap();
}

#[tokio::test]
async fn two_embedded_clouds_share_nothing() {
    let (one, other) = (toy().await, toy().await);
    create(&one, "a", 1).await.unwrap();
    assert_eq!(read(&one, "a").await.as_deref(), Some("1"));
    assert_eq!(read(&other, "a").await, None);
}

#[tokio::test]
async fn a_recording_shows_who_called_what_under_which_condition_at_what_cost() {
    let cloud = toy().await;
    let recording = cloud.tap().record();
    as_actor("alice", create(&cloud, "a", 1)).await.unwrap();
    as_actor("bob", create(&cloud, "a", 2)).await.unwrap();
    let calls = recording.take();
    let lines: Vec<_> = calls.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "alice: PutItem counters if → ok",
            "bob: PutItem counters if → condition failed"
        ]
    );
    assert_eq!(calls[0].write_units(), 1.0);
    assert_eq!(
        calls[0].request.targets[0].condition.as_deref(),
        Some("attribute_not_exists(counter_id)")
    );
    assert!(recording.take().is_empty());
}

#[tokio::test]
async fn reading_beside_the_tap_is_not_seen() {
    let cloud = toy().await;
    let recording = cloud.tap().record();
    read(&cloud, "a").await;
    assert!(recording.calls().is_empty());
}

#[tokio::test]
async fn with_nobody_listening_no_capacity_is_asked_for() {
    let cloud = toy().await;
    let put = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("counters"))
        .item("counter_id", S("a".into()));
    assert!(
        put.clone()
            .send()
            .await
            .unwrap()
            .consumed_capacity
            .is_none()
    );
    let _recording = cloud.tap().record();
    assert!(put.send().await.unwrap().consumed_capacity.is_some());
}

#[tokio::test]
async fn a_failed_guard_brings_the_item_as_it_was() {
    let cloud = toy().await;
    create(&cloud, "a", 1).await.unwrap();
    let Guard::Failed(Some(old)) = create(&cloud, "a", 2).await.unwrap() else {
        panic!("the second must fail");
    };
    assert_eq!(old["amount"], N("1".into()));
}

#[tokio::test]
async fn a_lost_request_is_sent_again_by_the_sdk() {
    let cloud = toy().await;
    let _plan = cloud.tap().install(once(1, Verdict::LoseRequest));
    assert!(matches!(
        create(&cloud, "a", 1).await.unwrap(),
        Guard::Passed(())
    ));
}

#[tokio::test]
async fn a_guarded_write_whose_answer_is_lost_fails_its_own_condition() {
    let cloud = toy().await;
    let _plan = cloud.tap().install(once(1, Verdict::LoseAnswer));
    // The SDK sent it again, and the winner is told it lost. The old item is its own.
    let Guard::Failed(Some(old)) = create(&cloud, "a", 7).await.unwrap() else {
        panic!("expected the retry to meet its own write");
    };
    assert_eq!(old["amount"], N("7".into()));
}

#[tokio::test]
async fn a_killed_process_makes_no_further_call() {
    let cloud = toy().await;
    let plan = cloud
        .tap()
        .install(Arc::new(KillFrom::call(2).of("worker")));
    as_actor("worker", create(&cloud, "a", 1)).await.unwrap();
    for id in ["b", "c"] {
        let error = as_actor("worker", create(&cloud, id, 1)).await.unwrap_err();
        assert!(matches!(error, CloudError::Unknown(_)), "{error}");
        assert!(error.to_string().contains("the process is dead"), "{error}");
    }
    as_actor("other", create(&cloud, "d", 1)).await.unwrap();
    drop(plan);
    assert_eq!(read(&cloud, "b").await, None);
    assert_eq!(read(&cloud, "d").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_process_killed_after_a_call_has_made_it() {
    let cloud = toy().await;
    let plan = cloud.tap().install(once(1, Verdict::KillAfter));
    create(&cloud, "a", 1).await.unwrap_err();
    drop(plan);
    assert_eq!(read(&cloud, "a").await.as_deref(), Some("1"));
}

#[tokio::test]
async fn a_throttled_call_is_told_apart() {
    let cloud = toy().await;
    struct Always;
    impl Plan for Always {
        fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
            Box::pin(async {
                Verdict::Answer {
                    status: 400,
                    body: serde_json::json!({
                        "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
                        "message": "slow down",
                    }),
                }
            })
        }
    }
    let recording = cloud.tap().record();
    let _plan = cloud.tap().install(Arc::new(Always));
    let error = create(&cloud, "a", 1).await.unwrap_err();
    assert!(matches!(error, CloudError::Throttled(_)), "{error}");
    assert!(
        recording
            .calls()
            .iter()
            .all(|call| call.outcome == Outcome::Throttled)
    );
}

#[tokio::test]
async fn a_rewritten_call_is_sent_as_rewritten() {
    let cloud = toy().await;
    struct Weaken;
    impl Plan for Weaken {
        fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
            let mut body = request.body.clone();
            body["ConditionExpression"] =
                "attribute_exists(counter_id) OR attribute_not_exists(counter_id)".into();
            Box::pin(async move { Verdict::Rewrite(body) })
        }
    }
    create(&cloud, "a", 1).await.unwrap();
    let plan = cloud.tap().install(Arc::new(Weaken));
    assert!(matches!(
        create(&cloud, "a", 2).await.unwrap(),
        Guard::Passed(())
    ));
    drop(plan);
    assert_eq!(read(&cloud, "a").await.as_deref(), Some("2"));
}

#[tokio::test]
async fn a_cancelled_transaction_names_the_item_that_stood_in_the_way() {
    let cloud = toy().await;
    create(&cloud, "b", 1).await.unwrap();
    let table = cloud.names().table("counters");
    let free = Update::builder()
        .table_name(&table)
        .key("counter_id", S("a".into()))
        .update_expression("ADD amount :one")
        .expression_attribute_values(":one", N("1".into()))
        .build()
        .unwrap();
    let taken = Put::builder()
        .table_name(&table)
        .item("counter_id", S("b".into()))
        .condition_expression("attribute_not_exists(counter_id)")
        .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
        .build()
        .unwrap();
    let outcome = cloud
        .dynamodb()
        .transact_write_items()
        .transact_items(TransactWriteItem::builder().update(free).build())
        .transact_items(TransactWriteItem::builder().put(taken).build())
        .send()
        .await
        .guarded(&["free", "taken"])
        .unwrap();
    let Transaction::Cancelled(cancelled) = outcome else {
        panic!("expected a cancellation");
    };
    assert!(cancelled.failed("free").is_none());
    let old = cancelled.failed("taken").unwrap().unwrap();
    assert_eq!(old["amount"], N("1".into()));
    assert_eq!(read(&cloud, "a").await, None);
}

#[tokio::test]
async fn redis_commands_pass_the_tap_too() {
    let cloud = toy().await;
    let recording = cloud.tap().record();
    let mut redis = cloud.redis().await.unwrap();
    let key = cloud.names().key("lease");
    let _: () = redis.set(&key, "me").await.unwrap();
    let plan = cloud.tap().install(once(1, Verdict::LoseRequest));
    let lost: redis::RedisResult<String> = redis.get(&key).await;
    assert!(lost.unwrap_err().is_timeout());
    drop(plan);
    let value: String = redis.get(&key).await.unwrap();
    assert_eq!(value, "me");
    let calls = recording.calls();
    assert!(
        calls
            .iter()
            .all(|call| call.request.service == Service::Redis)
    );
    let shapes: Vec<_> = calls.iter().map(cloud::tap::Call::shape).collect();
    assert_eq!(shapes, ["SET lease", "GET lease", "GET lease"]);
}

/// Leaves every key of the first so many batches unprocessed.
struct LeavesOut(AtomicUsize);

impl Plan for LeavesOut {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let less = |left: usize| left.checked_sub(1);
        let left = &self.0;
        let hit = request.operation == "BatchGetItem"
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok();
        let body = serde_json::json!({
            "Responses": {}, "UnprocessedKeys": request.body["RequestItems"],
        });
        Box::pin(async move {
            match hit {
                true => Verdict::Answer { status: 200, body },
                false => Verdict::Pass,
            }
        })
    }
}

#[tokio::test]
async fn keys_that_a_batch_left_out_are_asked_for_again_and_not_for_ever() {
    let cloud = toy().await;
    create(&cloud, "one", 1).await.unwrap();
    let key = cloud::Item::from([("counter_id".to_owned(), S("one".to_owned()))]);
    let ask = || cloud.read_batch(vec![("counters", vec![key.clone()])], true);
    let patient = cloud.tap().install(Arc::new(LeavesOut(3.into())));
    assert_eq!(ask().await.unwrap()["counters"].len(), 1);
    drop(patient);
    let _endless = cloud.tap().install(Arc::new(LeavesOut(usize::MAX.into())));
    let given_up = ask().await.unwrap_err();
    assert!(matches!(given_up, CloudError::Throttled(_)), "{given_up}");
}

/// Holds back the answer to the first write until the second has its own.
#[derive(Default)]
struct Overtakes {
    second: tokio::sync::Notify,
}

impl Plan for Overtakes {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, call: &'a cloud::tap::Call) -> BoxFuture<'a, ()> {
        let first = call.request.body["Item"]["counter_id"]["S"] == "first";
        Box::pin(async move {
            match first {
                true => self.second.notified().await,
                false => self.second.notify_one(),
            }
        })
    }
}

#[tokio::test]
async fn a_call_tells_when_it_left_though_a_later_one_is_answered_first() {
    let cloud = toy().await;
    let recording = cloud.tap().record();
    let _plan = cloud.tap().install(Arc::new(Overtakes::default()));
    let (first, second) = futures::join!(create(&cloud, "first", 1), create(&cloud, "second", 2));
    assert!(matches!(first.unwrap(), Guard::Passed(())));
    assert!(matches!(second.unwrap(), Guard::Passed(())));
    let mut calls = recording.take();
    let ids = |calls: &[cloud::tap::Call]| -> Vec<String> {
        let id = |call: &cloud::tap::Call| call.request.body["Item"]["counter_id"]["S"].to_string();
        calls.iter().map(id).collect()
    };
    assert_eq!(ids(&calls), ["\"second\"", "\"first\""]);
    calls.sort_by_key(|call| call.left);
    assert_eq!(ids(&calls), ["\"first\"", "\"second\""]);
}
