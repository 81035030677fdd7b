//! States as items and items as states, and the small things that every use case needs on the way.

use crate::{Cloud, CloudError, GuardedTransaction, Item, Transaction};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsOutput;
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem};
use serde::Serialize;
use serde::de::DeserializeOwned;
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

/// Waits a little before a conflict is tried again, longer each time, at most 64 ms.
pub async fn pause(attempt: u32) {
    tokio::time::sleep(Duration::from_millis(1 << attempt.min(6))).await;
}

/// Which of so many shards an id belongs to. A fixed hash (FNV-1a): the same in every process and
/// every release, since what was written under one shard must be found there.
pub fn shard_of(id: &str, shards: u32) -> u32 {
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash % shards
}

impl Cloud {
    /// Sends a transaction. `names` are its items in order: a refusal tells them by name.
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
}
