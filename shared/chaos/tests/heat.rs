//! `Heat`, on a toy table.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use chaos::{Capacity, Heat};
use cloud::tables::Table;
use cloud::{Cloud, CloudError, GuardedTransaction};
use std::sync::Arc;
use std::time::Duration;
use toy::COUNTERS;

/// The toy table without its index: all counters are in one group, which would be one hot key.
const WITHOUT_INDEX: Table = Table {
    indexes: &[],
    ..COUNTERS
};

fn heat(cloud: &Cloud) -> Heat {
    Heat::new(&[WITHOUT_INDEX], cloud.clock().clone())
        .writes_per_second(10.0)
        .reads_per_second(10.0)
}

/// Writes until throttled; gives how many were made.
async fn writes(cloud: &Cloud, ids: &[&str], at_most: usize) -> usize {
    for made in 0..at_most {
        match toy::write(cloud, ids[made % ids.len()], 1).await {
            Ok(()) => {}
            Err(CloudError::Throttled(_)) => return made,
            Err(other) => panic!("{other}"),
        }
    }
    at_most
}

#[tokio::test]
async fn heat_throttles_one_hot_key_and_not_ten_cool_ones() {
    let cloud = toy::empty().await;
    let heat = Arc::new(heat(&cloud));
    let _plan = cloud.tap().install(heat.clone());
    // The planted bug: one counter for everybody.
    assert_eq!(writes(&cloud, &["hot"], 40).await, 10);
    assert!(heat.throttled() > 0);
    let before = heat.throttled();
    let shards = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    assert_eq!(writes(&cloud, &shards, 40).await, 40);
    assert_eq!(heat.throttled(), before);

    let hottest = &heat.hottest(1)[0];
    assert_eq!(
        (hottest.resource.as_str(), hottest.key.as_str()),
        ("counters", "hot")
    );
    assert_eq!((hottest.capacity, hottest.units), (Capacity::Write, 10.0));
    assert_eq!(hottest.throttled, heat.throttled());
}

#[tokio::test]
async fn the_limits_are_those_of_a_partition() {
    let cloud = toy::empty().await;
    let heat = Arc::new(Heat::new(&[WITHOUT_INDEX], cloud.clock().clone()));
    let _plan = cloud.tap().install(heat.clone());
    assert_eq!(writes(&cloud, &["hot"], 1_100).await, 1_000);
}

#[tokio::test]
async fn a_key_cools_by_the_clock_and_saves_up_one_burst() {
    let cloud = toy::empty().await;
    let _plan = cloud.tap().install(Arc::new(heat(&cloud)));
    assert_eq!(writes(&cloud, &["hot"], 40).await, 10);
    cloud.clock().advance(Duration::from_millis(500));
    assert_eq!(writes(&cloud, &["hot"], 40).await, 5);
    cloud.clock().advance(Duration::from_secs(60));
    assert_eq!(
        writes(&cloud, &["hot"], 40).await,
        10,
        "a minute of rest is one second's worth"
    );
}

#[tokio::test]
async fn a_longer_burst_can_be_chosen() {
    let cloud = toy::empty().await;
    let _plan = cloud
        .tap()
        .install(Arc::new(heat(&cloud).burst_seconds(3.0)));
    assert_eq!(writes(&cloud, &["hot"], 40).await, 30);
}

#[tokio::test]
async fn reads_and_writes_have_a_bucket_each() {
    let cloud = toy::zero().await;
    let heat = Arc::new(heat(&cloud));
    let _plan = cloud.tap().install(heat.clone());
    assert_eq!(writes(&cloud, &["a"], 40).await, 10);
    let mut reads = 0;
    while toy::read(&cloud, "a").await.is_ok() {
        reads += 1;
    }
    assert_eq!(reads, 10);
}

#[tokio::test]
async fn a_failed_guard_costs_too() {
    let cloud = toy::zero().await;
    let _plan = cloud.tap().install(Arc::new(heat(&cloud)));
    let mut tries = 0;
    while toy::swap(&cloud, "a", 7, 8).await.is_ok() {
        tries += 1;
    }
    assert_eq!(tries, 10);
}

#[tokio::test]
async fn an_index_with_one_key_for_everything_throttles_the_writes_to_its_table() {
    // The planted bug: an index partitioned by a constant. Every counter has its own key, but in
    // the index they are all `toys`.
    let cloud = toy::empty().await;
    let heat = Arc::new(Heat::new(&[COUNTERS], cloud.clock().clone()).writes_per_second(10.0));
    let _plan = cloud.tap().install(heat.clone());
    let ids: Vec<String> = (0..40).map(|number| format!("counter-{number}")).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    assert_eq!(writes(&cloud, &ids, 40).await, 10);
    let hottest = &heat.hottest(1)[0];
    assert_eq!(
        (hottest.resource.as_str(), hottest.key.as_str()),
        ("counters/by-group", "toys")
    );
}

#[tokio::test]
async fn a_query_heats_the_key_it_asks_for() {
    let cloud = toy::zero().await;
    let heat = Arc::new(Heat::new(&[COUNTERS], cloud.clock().clone()).reads_per_second(2.0));
    let _plan = cloud.tap().install(heat.clone());
    let query = || {
        cloud
            .dynamodb()
            .query()
            .table_name(cloud.names().table("counters"))
            .index_name("by-group")
            .key_condition_expression("#group=:toys")
            .expression_attribute_names("#group", "group_id")
            .expression_attribute_values(":toys", S("toys".into()))
            .send()
    };
    let mut reads = 0;
    while query().await.is_ok() {
        reads += 1;
    }
    // Half a unit each: an index is read eventually consistent.
    assert_eq!(reads, 4);
    let hottest = &heat.hottest(1)[0];
    assert_eq!(
        (hottest.resource.as_str(), hottest.key.as_str()),
        ("counters/by-group", "toys")
    );
}

#[tokio::test]
async fn a_transaction_is_cancelled_by_its_hot_item() {
    let cloud = toy::zero().await;
    let heat = Arc::new(heat(&cloud));
    let _plan = cloud.tap().install(heat.clone());
    assert_eq!(writes(&cloud, &["hot"], 40).await, 10);
    let table = cloud.names().table("counters");
    let part = |id: &str| {
        let update = Update::builder()
            .table_name(&table)
            .key("counter_id", S(id.into()))
            .update_expression("SET amount = :one")
            .expression_attribute_values(":one", N("1".into()));
        TransactWriteItem::builder()
            .update(update.build().unwrap())
            .build()
    };
    let transact = || {
        let both = cloud.dynamodb().transact_write_items();
        both.transact_items(part("cool"))
            .transact_items(part("hot"))
            .send()
    };
    let before = heat.throttled();
    let error = transact().await.guarded(&["cool", "hot"]).unwrap_err();
    assert!(
        matches!(&error, CloudError::Throttled(which) if which == "hot"),
        "{error}"
    );
    assert_eq!(
        heat.throttled(),
        before + 1,
        "the SDK does not try a cancelled transaction again"
    );
    assert_eq!(toy::peek(&cloud, "cool").await, None);

    // Once it has cooled, both items are charged two units each: a transaction writes twice.
    cloud.clock().advance(Duration::from_secs(60));
    transact().await.guarded(&["cool", "hot"]).unwrap();
    let cool = heat
        .hottest(10)
        .into_iter()
        .find(|key| key.key == "cool")
        .unwrap();
    assert_eq!(cool.units, 2.0);
}
