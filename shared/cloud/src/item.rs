//! States as items and items as states, and the small things that every use case needs on the way.

use crate::{Cloud, CloudError, GuardedTransaction, Item, Transaction};
use aws_sdk_dynamodb::operation::query::builders::QueryFluentBuilder;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsOutput;
use aws_sdk_dynamodb::types::{AttributeValue, KeysAndAttributes, TransactWriteItem};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashMap;
use std::time::Duration;

/// A string attribute.
pub fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

/// A number attribute.
pub fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// A state as an item.
pub fn to_item(state: &impl Serialize) -> Result<Item, CloudError> {
    serde_dynamo::to_item(state).map_err(CloudError::corrupt)
}

/// An item as a state.
pub fn from_item<T: DeserializeOwned>(item: &Item) -> Result<T, CloudError> {
    serde_dynamo::from_item(item.clone()).map_err(CloudError::corrupt)
}

/// Waits a little before a conflict is tried again, longer each time, at most 64 ms, and with jitter: those
/// that met once would otherwise meet again.
pub async fn pause(attempt: u32) {
    tokio::time::sleep(pause_before(attempt)).await;
}

fn pause_before(attempt: u32) -> Duration {
    let most = 1_000 << attempt.min(6);
    Duration::from_micros(fastrand::u64(most / 2..=most))
}

/// The items of a query, of all its pages.
pub async fn all_items(query: QueryFluentBuilder) -> Result<Vec<Item>, CloudError> {
    let items = query.into_paginator().items().send();
    Ok(items.collect::<Result<Vec<_>, _>>().await?)
}

/// Which of so many shards an id belongs to. A fixed hash (FNV-1a): the same in every process and
/// every release, since what was written under one shard must be found there.
pub fn shard_of(id: &str, shards: u32) -> u32 {
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash % shards
}

/// How often keys that DynamoDB left out of a batch are asked for again.
const BATCH_ATTEMPTS: u32 = 10;

impl Cloud {
    /// Reads items by their keys, up to a hundred of them, in one call; what DynamoDB had no room for
    /// in its answer is asked for again. Tables are named without prefix, in the question and in the
    /// answer, and items come in any order. Each item is true by itself: a batch is no snapshot.
    pub async fn read_batch(
        &self,
        keys: Vec<(&str, Vec<Item>)>,
        consistent: bool,
    ) -> Result<HashMap<String, Vec<Item>>, CloudError> {
        let mut left = HashMap::new();
        for (table, keys) in keys {
            let keys = KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(consistent)
                .build()
                .map_err(CloudError::bug)?;
            left.insert(self.names().table(table), keys);
        }
        let mut found: HashMap<String, Vec<Item>> = HashMap::new();
        for attempt in 0..BATCH_ATTEMPTS {
            let request = self.dynamodb().batch_get_item();
            let answer = request.set_request_items(Some(left)).send().await?;
            for (table, items) in answer.responses.unwrap_or_default() {
                let table = self.names().logical(&table).to_owned();
                found.entry(table).or_default().extend(items);
            }
            left = answer.unprocessed_keys.unwrap_or_default();
            if left.is_empty() {
                return Ok(found);
            }
            pause(attempt).await;
        }
        Err(CloudError::Throttled("keys were left unprocessed".into()))
    }

    /// Sends a transaction. `names` are its items in order: a refusal tells them by name. Those beyond the
    /// last name share it, and are told apart by their places.
    pub async fn transact(
        &self,
        names: &[&'static str],
        items: Vec<TransactWriteItem>,
    ) -> Result<Transaction<TransactWriteItemsOutput>, CloudError> {
        let request = self.dynamodb().transact_write_items();
        let sent = request.set_transact_items(Some(items)).send().await;
        sent.guarded(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_the_same_for_ever_and_all_are_used() {
        assert_eq!(shard_of("auction-0001", 4), 2);
        let used: std::collections::BTreeSet<_> = (0..100)
            .map(|id| shard_of(&format!("id-{id}"), 8))
            .collect();
        assert_eq!(used.len(), 8);
    }

    #[test]
    fn a_pause_grows_to_64_ms_and_those_that_met_pause_differently() {
        for (attempt, most) in [(0, 1), (3, 8), (6, 64), (60, 64)] {
            let most = Duration::from_millis(most);
            let pauses = (0..100).map(|_| pause_before(attempt));
            let pauses: std::collections::BTreeSet<_> = pauses.collect();
            assert!(pauses.iter().all(|it| (most / 2..=most).contains(it)));
            assert!(pauses.len() > 10, "{pauses:?}");
        }
    }
}
