//! The publisher and the shards of the streams.
#![allow(clippy::unwrap_used)]

mod house;

use auction::publisher::Publisher;
use auction::{Layout, Offer};
use chaos::Says;
use cloud::tap::{Call, Recording, Request, Verdict};
use house::{House, open_alone};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// DynamoDB Streams says no.
fn refused() -> Verdict {
    let body = json!({"__type": "ResourceNotFoundException", "message": "not now"});
    Verdict::Answer { status: 400, body }
}

fn said(body: serde_json::Value) -> Verdict {
    Verdict::Answer { status: 200, body }
}

fn of(recording: &Recording, operation: &str) -> Vec<Call> {
    let calls = recording.take().into_iter();
    calls
        .filter(|call| call.request.operation == operation)
        .collect()
}

async fn published_house() -> (House, Publisher) {
    let house = open_alone(Layout::OneItem).await;
    let mut publisher = Publisher::start(house.house.clone());
    publisher.publish_new().await.unwrap();
    (house, publisher)
}

#[tokio::test]
async fn children_of_an_ended_shard_are_looked_for_until_they_are_found() {
    let (house, mut publisher) = published_house().await;
    let tap = house.house.cloud().tap();
    let recording = tap.record();
    let ends = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "GetRecords" => said(json!({"Records": []})),
            _ => Verdict::Pass,
        }
    })));
    publisher.publish_new().await.unwrap();
    drop(ends);

    let away = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "DescribeStream" => refused(),
            _ => Verdict::Pass,
        }
    })));
    publisher.publish_new().await.unwrap_err();
    drop(away);

    let _split = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "DescribeStream" => said(json!({"StreamDescription": {"Shards": [
                {"ShardId": "shardId-00000002-the-child"},
            ]}})),
            _ => Verdict::Pass,
        }
    })));
    recording.take();
    publisher.publish_new().await.unwrap();
    let asked = of(&recording, "GetShardIterator");
    assert!(
        asked
            .iter()
            .any(|call| call.request.body["ShardId"] == "shardId-00000002-the-child"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn new_shards_are_looked_for_once_a_minute() {
    let (house, mut publisher) = published_house().await;
    let recording = house.house.cloud().tap().record();
    publisher.publish_new().await.unwrap();
    assert!(of(&recording, "DescribeStream").is_empty());
    house.house.cloud().clock().advance(Duration::from_secs(60));
    publisher.publish_new().await.unwrap();
    assert_eq!(of(&recording, "DescribeStream").len(), 2);
}

#[tokio::test]
async fn a_shard_that_fails_stops_no_other() {
    for fails in [0, 1] {
        let (house, mut publisher) = published_house().await;
        house.place("alice", Offer::Exactly(120_00)).await;
        house.late.close_auction(&house.id).await.unwrap();
        let tap = house.house.cloud().tap();
        let recording = tap.record();
        let reads = AtomicUsize::new(0);
        let failing = tap.install(Arc::new(Says(move |request: &Request| {
            let read = request.operation == "GetRecords";
            if read && reads.fetch_add(1, Ordering::SeqCst) == fails {
                refused()
            } else {
                Verdict::Pass
            }
        })));
        publisher.publish_new().await.unwrap_err();
        drop(failing);
        assert_eq!(of(&recording, "PUBLISH").len(), 1, "of the other shard");
        assert_eq!(publisher.publish_new().await.unwrap(), 1);
    }
}
