//! A toy: counters, each in a group, with an index by group.

// Each test binary uses a part of it.
#![allow(dead_code)]

use aws_sdk_dynamodb::types::AttributeValue::{self, N, S};
use cloud::tables::{Billing, Index, Key, Projection, Scope, Table};
use cloud::{Cloud, CloudError, Guard, Guarded};
use std::collections::HashMap;

pub const COUNTERS: Table = Table {
    name: "counters",
    entity: "CounterState",
    why: "A toy.",
    partition: Key::S("counter_id"),
    sort: None,
    indexes: &[Index {
        name: "by-group",
        scope: Scope::Global,
        partition: Key::S("group_id"),
        sort: None,
        projection: Projection::All,
        why: "The counters of a group.",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[],
};

/// A cloud with the table and nothing in it.
pub async fn empty() -> Cloud {
    let cloud = cloud::connect_for_tests().await.unwrap();
    cloud.create_tables(&[COUNTERS]).await.unwrap();
    cloud
}

/// A cloud with counter `a` at zero.
pub async fn zero() -> Cloud {
    let cloud = empty().await;
    write(&cloud.beside_tap(), "a", 0).await.unwrap();
    cloud
}

/// What the counter is at, seen from beside the tap.
pub async fn peek(cloud: &Cloud, id: &str) -> Option<i64> {
    read(&cloud.beside_tap(), id).await.unwrap()
}

pub async fn read(cloud: &Cloud, id: &str) -> Result<Option<i64>, CloudError> {
    let answer = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S(id.to_owned()))
        .consistent_read(true)
        .send()
        .await?;
    Ok(answer
        .item
        .map(|item| item["amount"].as_n().unwrap().parse().unwrap()))
}

pub fn key(id: &str) -> HashMap<String, AttributeValue> {
    HashMap::from([("counter_id".to_owned(), S(id.to_owned()))])
}

/// Writes without looking.
pub async fn write(cloud: &Cloud, id: &str, amount: i64) -> Result<(), CloudError> {
    cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("counters"))
        .item("counter_id", S(id.to_owned()))
        .item("amount", N(amount.to_string()))
        .item("group_id", S("toys".to_owned()))
        .send()
        .await?;
    Ok(())
}

/// Writes if nobody was faster.
pub async fn swap(cloud: &Cloud, id: &str, old: i64, new: i64) -> Result<bool, CloudError> {
    let written = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S(id.to_owned()))
        .update_expression("SET amount = :new")
        .condition_expression("attribute_exists(counter_id) AND amount = :old")
        .expression_attribute_values(":new", N(new.to_string()))
        .expression_attribute_values(":old", N(old.to_string()))
        .send()
        .await
        .guarded()?;
    Ok(matches!(written, Guard::Passed(_)))
}

/// The increment that loses updates: read, then write.
pub async fn naive_increment(cloud: &Cloud) {
    let amount = read(cloud, "a").await.unwrap().unwrap();
    write(cloud, "a", amount + 1).await.unwrap();
}

/// The increment that does not: read, then write on condition, again if somebody was faster.
/// Gives the number of attempts.
pub async fn increment(cloud: &Cloud) -> usize {
    for attempt in 1.. {
        let amount = read(cloud, "a").await.unwrap().unwrap();
        if swap(cloud, "a", amount, amount + 1).await.unwrap() {
            return attempt;
        }
    }
    unreachable!("somebody is always the last to be faster")
}
