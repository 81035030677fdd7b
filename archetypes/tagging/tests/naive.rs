//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod shelf;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use chaos::{CrashSweep, Interleave};
use cloud::item::all_items;
use cloud::tables::{Billing, Key, Table};
use shelf::{Shelf, text, with_rust, with_tagged};
use std::sync::Arc;
use tagging::domain::{Position, bucket_of};
use tagging::items::bucket_key;
use tagging::windows::Window;

/// The documents' edges: `PK=(tenant_id, content_id, tag_id)`, and nothing else in the key.
const NAIVE_EDGES: Table = Table {
    name: "naive_edges",
    entity: "ContentTagUniqueState, as the documents have it",
    why: "to lose",
    partition: Key::S("edge"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[],
};

async fn naive_shelf() -> Shelf {
    let shelf = with_rust(2).await;
    let cloud = shelf.tagging.cloud();
    cloud.create_tables(&[NAIVE_EDGES]).await.unwrap();
    shelf
}

fn naive_edge(shelf: &Shelf, content: &str, tag: &str) -> String {
    format!("{}#{content}#{tag}", shelf.tenant.as_str())
}

/// The documents' attach: the edge, if it is not there; then the index row.
async fn naive_attach(shelf: &Shelf, content: &str) {
    let cloud = shelf.tagging.cloud();
    let put = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("naive_edges"))
        .item("edge", S(naive_edge(shelf, content, "rust")))
        .condition_expression("attribute_not_exists(edge)");
    if put.send().await.is_err() {
        return; // it is there, so all is done. Is it?
    }
    let created_at = cloud.now();
    let content_id = content.to_owned();
    let at = Position {
        created_at,
        content_id,
    };
    cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("content_tag_by_tag"))
        .item("bucket_key", S(naive_bucket(shelf, content)))
        .item("position", S(at.key()))
        .item("content_id", S(content.to_owned()))
        .item("tag_id", S("tag-0001".into()))
        .item("created_at", N(created_at.to_string()))
        .item("version", N("1".into()))
        .send()
        .await
        .unwrap();
}

fn naive_bucket(shelf: &Shelf, content: &str) -> String {
    let bucket = bucket_of("tag-0001", content, 2);
    bucket_key(shelf.tenant.as_str(), "tag-0001", bucket)
}

/// The documents' detach: delete the edge "by PK", then the index row "using tag bucket + content key".
/// The row's sort key begins with created_at. Nobody here knows it, so the row is searched for: the
/// most recent one, read a moment ago.
async fn naive_detach(shelf: &Shelf, content: &str) {
    let cloud = shelf.tagging.cloud();
    let rows = naive_rows(shelf, content).await;
    cloud
        .dynamodb()
        .delete_item()
        .table_name(cloud.names().table("naive_edges"))
        .key("edge", S(naive_edge(shelf, content, "rust")))
        .send()
        .await
        .unwrap();
    let Some(position) = rows.into_iter().next() else {
        return; // there is no row to delete
    };
    cloud
        .dynamodb()
        .delete_item()
        .table_name(cloud.names().table("content_tag_by_tag"))
        .key("bucket_key", S(naive_bucket(shelf, content)))
        .key("position", S(position))
        .send()
        .await
        .unwrap();
}

/// The positions of a content's rows.
async fn naive_rows(shelf: &Shelf, content: &str) -> Vec<String> {
    let cloud = shelf.tagging.cloud();
    let query = cloud
        .dynamodb()
        .query()
        .table_name(cloud.names().table("content_tag_by_tag"))
        .key_condition_expression("bucket_key = :bucket")
        .filter_expression("content_id = :content")
        .expression_attribute_values(":bucket", S(naive_bucket(shelf, content)))
        .expression_attribute_values(":content", S(content.to_owned()))
        .consistent_read(true);
    let items = all_items(query).await.unwrap();
    items.iter().map(|item| text(item, "position")).collect()
}

/// The edge is there, or not; the index says the same, or not.
async fn naive_check(shelf: &Shelf, content: &str) -> Result<String, String> {
    let cloud = shelf.tagging.cloud().beside_tap();
    let edge = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("naive_edges"))
        .key("edge", S(naive_edge(shelf, content, "rust")))
        .consistent_read(true)
        .send()
        .await
        .unwrap();
    let edges = usize::from(edge.item.is_some());
    let rows = naive_rows(shelf, content).await.len();
    match edges == rows {
        true => Ok(format!("{edges}")),
        false => Err(format!("{edges} edges, {rows} index rows")),
    }
}

/// Row 1: with the whole edge in the partition key, "the tags of this content" has no key to ask for.
#[tokio::test]
async fn row_1_with_the_edge_as_partition_key_the_tags_of_a_content_cannot_be_listed() {
    let shelf = naive_shelf().await;
    naive_attach(&shelf, "photo").await;
    let cloud = shelf.tagging.cloud();
    let begins = cloud
        .dynamodb()
        .query()
        .table_name(cloud.names().table("naive_edges"))
        .key_condition_expression("begins_with(edge, :content)")
        .expression_attribute_values(":content", S(naive_edge(&shelf, "photo", "")))
        .send()
        .await;
    let refused = cloud::CloudError::from(begins.unwrap_err()).to_string();
    assert!(refused.contains("ValidationException"), "{refused}");
    // With the tag as the sort key it is one query.
    shelf.attach("photo", "rust").await;
    assert_eq!(shelf.tags_of("photo").await, ["rust"]);
}

/// Row 2, by a crash: the edge is gone, its index row stays for ever.
#[tokio::test]
async fn row_2_a_naive_detach_that_dies_leaves_an_orphan_index_row() {
    let setup = || async {
        let shelf = naive_shelf().await;
        naive_attach(&shelf, "photo").await;
        shelf
    };
    let attach_dies = CrashSweep::of(naive_shelf)
        .action("tagger", |shelf: Arc<Shelf>| async move {
            naive_attach(&shelf, "photo").await;
        })
        // It is sent again, and the condition says that all is done.
        .recovery(|shelf: Arc<Shelf>| async move { naive_attach(&shelf, "photo").await })
        .check(|shelf| async move { naive_check(&shelf, "photo").await.map(drop) })
        .run()
        .await
        .unwrap_err();
    assert_eq!(attach_dies.why, "1 edges, 0 index rows");
    let detach_dies = CrashSweep::of(setup)
        .action("tagger", |shelf: Arc<Shelf>| async move {
            naive_detach(&shelf, "photo").await;
        })
        .check(|shelf| async move { naive_check(&shelf, "photo").await.map(drop) })
        .run()
        .await
        .unwrap_err();
    assert_eq!(detach_dies.why, "0 edges, 1 index rows");
}

/// Row 2, by an order: nobody dies. The row that is deleted is not the one that is there.
#[tokio::test]
async fn row_2_a_naive_detach_beside_an_attach_leaves_an_orphan_index_row() {
    let broken = Interleave::of(naive_shelf)
        .actor("alice", |shelf| async move {
            naive_attach(&shelf, "photo").await
        })
        .actor(
            "bob",
            |shelf| async move { naive_detach(&shelf, "photo").await },
        )
        .check(|shelf, _| async move { naive_check(&shelf, "photo").await })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.why, "0 edges, 1 index rows");
}

/// The documents' popularity: for each event of the stream, one more or one less.
async fn naive_count(shelf: &Shelf, live: bool) {
    let cloud = shelf.tagging.cloud();
    cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("tag_popularity"))
        .key("tag_id_key", S("naive".into()))
        .key("window", S("ALL".into()))
        .update_expression("ADD live_edges :change")
        .expression_attribute_values(":change", N(if live { "1" } else { "-1" }.into()))
        .send()
        .await
        .unwrap();
}

async fn naive_total(shelf: &Shelf) -> i64 {
    let cloud = shelf.tagging.cloud().beside_tap();
    let found = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("tag_popularity"))
        .key("tag_id_key", S("naive".into()))
        .key("window", S("ALL".into()))
        .send()
        .await
        .unwrap();
    let total = |item: cloud::Item| item["live_edges"].as_n().unwrap().parse().unwrap();
    found.item.map_or(0, total)
}

/// A consumer that counts what is behind its checkpoint, then moves the checkpoint.
async fn naive_follow(shelf: &Shelf) {
    let cloud = shelf.tagging.cloud();
    let events = shelf.events().await;
    let checkpoints = cloud.names().table("stream_checkpoints");
    let found = cloud
        .dynamodb()
        .get_item()
        .table_name(&checkpoints)
        .key("stream", S("naive".into()))
        .key("shard_id", S("naive".into()))
        .consistent_read(true)
        .send()
        .await
        .unwrap();
    let seen = |item: cloud::Item| item["sequence_number"].as_n().unwrap().parse().unwrap();
    let seen: usize = found.item.map_or(0, seen);
    for (_, _, version) in &events[seen..] {
        naive_count(shelf, version % 2 == 1).await;
    }
    cloud
        .dynamodb()
        .put_item()
        .table_name(&checkpoints)
        .item("stream", S("naive".into()))
        .item("shard_id", S("naive".into()))
        .item("sequence_number", N(events.len().to_string()))
        .send()
        .await
        .unwrap();
}

/// Row 3, by a crash: it has counted and dies before it has said so; the next one counts again.
#[tokio::test]
async fn row_3_a_naive_consumer_that_dies_before_its_checkpoint_counts_twice() {
    let follow = |shelf: Arc<Shelf>| async move { naive_follow(&shelf).await };
    let broken = CrashSweep::of(|| with_tagged(1, &["photo"]))
        .action("consumer", follow)
        .recovery(follow)
        .check(|shelf| async move {
            match naive_total(&shelf).await {
                1 => Ok(()),
                other => Err(format!("1 live edge, {other} counted")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.why, "1 live edge, 2 counted");
}

/// Row 3, by an order: whoever remembers only what was said last of an edge believes the detach that
/// came late. The version knows better.
#[tokio::test]
async fn row_3_a_naive_consumer_believes_the_event_that_arrives_last() {
    let shelf = with_tagged(1, &["photo"]).await;
    let first = shelf.edge("photo", "rust").await;
    shelf.detach("photo", "rust").await;
    let second = shelf.edge("photo", "rust").await;
    shelf.attach("photo", "rust").await;
    let third = shelf.edge("photo", "rust").await;
    let arrived = [first, third.clone(), second];
    let said_last = arrived.last().map(|edge| edge.live);
    assert_eq!(said_last, Some(false), "by arrival it is not there");
    assert!(third.live, "and it is");
    shelf.tagging.apply(&arrived).await.unwrap();
    let counts = shelf.tagging.popularity(&third.tenant_id, &third.tag_id);
    let all = counts.await.unwrap().get(&Window::All).copied();
    assert_eq!(all, Some(1), "by version");
}
