//! Three toy tables, and asking until the answer comes.

use aws_sdk_dynamodb::types::AttributeValue;
use cloud::Cloud;
use cloud::tables::{Billing, Index, Key, Projection, Scope, StreamView, Table};
use std::time::{Duration, Instant};

const THINGS: Table = Table {
    name: "things",
    entity: "Thing",
    why: "Single items, and an index that only some of them are in.",
    partition: Key::S("thing_id"),
    sort: None,
    indexes: &[Index {
        name: "by-group",
        scope: Scope::Global,
        partition: Key::S("group_id"),
        sort: Some(Key::N("rank")),
        projection: Projection::Include(&["title"]),
        why: "The things of a group, by rank.",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[],
};

const LISTS: Table = Table {
    name: "lists",
    entity: "Entry",
    why: "Item collections with numbers to sort by.",
    partition: Key::S("list_id"),
    sort: Some(Key::N("position")),
    indexes: &[Index {
        name: "by-title",
        scope: Scope::Local,
        partition: Key::S("list_id"),
        sort: Some(Key::S("title")),
        projection: Projection::All,
        why: "The entries of a list, by title.",
    }],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[],
};

const CHANGES: Table = Table {
    name: "changes",
    entity: "Change",
    why: "Items that somebody follows, and that expire.",
    partition: Key::S("change_id"),
    sort: None,
    indexes: &[],
    ttl: Some("expires_at"),
    stream: Some(StreamView::NewAndOldImages),
    billing: Billing::OnDemand,
    attributes: &[],
};

/// A cloud with the toy tables, and their real names.
pub struct Toy {
    pub cloud: Cloud,
    pub db: aws_sdk_dynamodb::Client,
    pub things: String,
    pub lists: String,
    pub changes: String,
}

pub async fn tables() -> Toy {
    let cloud = cloud::connect_for_tests().await.unwrap();
    cloud
        .create_tables(&[THINGS, LISTS, CHANGES])
        .await
        .unwrap();
    Toy {
        db: cloud.dynamodb().clone(),
        things: cloud.names().table(THINGS.name),
        lists: cloud.names().table(LISTS.name),
        changes: cloud.names().table(CHANGES.name),
        cloud,
    }
}

impl Toy {
    /// A key no other test has.
    pub fn fresh(&self, kind: &str) -> String {
        self.cloud.ids().next(kind)
    }
}

pub fn s(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub fn n(number: impl ToString) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

/// Asks until there is an answer; ten seconds without one is a failure.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "still not: {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
