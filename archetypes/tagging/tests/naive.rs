//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod shelf;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use chaos::{CrashSweep, Interleave};
use cloud::item::all_items;
use cloud::tables::{Billing, Key, Table};
use shelf::{Shelf, empty, text, with_rust};
use std::sync::Arc;
use tagging::domain::{Position, bucket_of};
use tagging::items::bucket_key;

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

/// The same two actions as they are built here hold in every order: see `interleavings.rs`.
#[tokio::test]
async fn the_shelf_of_the_naive_is_the_shelf_of_the_others() {
    empty().await.invariants().await.unwrap();
}
