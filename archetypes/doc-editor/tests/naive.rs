//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod office;

use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use chaos::CrashSweep;
use cloud::{Guard, Guarded};
use office::{Desk, cold_desk};
use std::sync::Arc;

/// The documents' persist: PutItem if attribute_not_exists(op_id), PK=doc_id, SK=version#op_id.
async fn naive_put(desk: &Desk, version: u64, op_id: &str, payload: &str) -> bool {
    let cloud = desk.east.cloud();
    let put = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("operations"))
        .item("document_id", S(desk.id.clone()))
        .item("version_key", S(format!("{version}#{op_id}")))
        .item("op_id", S(op_id.into()))
        .item("operation", S(payload.into()))
        .condition_expression("attribute_not_exists(op_id)")
        .send()
        .await
        .guarded()
        .unwrap();
    matches!(put, Guard::Passed(_))
}

/// The documents' advance: latest_version + 1 if it is the expected one. Gives the new version.
async fn naive_advance(desk: &Desk) -> u64 {
    let cloud = desk.east.cloud();
    let expected = naive_version(desk).await;
    let advanced = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("documents"))
        .key("document_id", S(desk.id.clone()))
        .update_expression("SET version = version + :one")
        .condition_expression("version = :expected")
        .expression_attribute_values(":one", N("1".into()))
        .expression_attribute_values(":expected", N(expected.to_string()))
        .send()
        .await
        .guarded()
        .unwrap();
    assert!(matches!(advanced, Guard::Passed(_)));
    expected + 1
}

async fn naive_version(desk: &Desk) -> u64 {
    desk.east
        .read_document(&desk.id)
        .await
        .unwrap()
        .unwrap()
        .version
}

/// What the log says, in the order of its keys.
async fn naive_log(desk: &Desk) -> Vec<String> {
    let cloud = desk.east.cloud();
    let found = cloud
        .dynamodb()
        .query()
        .table_name(cloud.names().table("operations"))
        .key_condition_expression("document_id = :document")
        .expression_attribute_values(":document", S(desk.id.clone()))
        .consistent_read(true)
        .send()
        .await
        .unwrap();
    let key = |item: &cloud::Item| item["version_key"].as_s().unwrap().clone();
    found.items().iter().map(key).collect()
}

/// One edit as the documents do it: advance, then persist.
async fn naive_edit(desk: &Desk, op_id: &str) {
    let version = naive_advance(desk).await;
    naive_put(desk, version, op_id, "[\"a\",7]").await;
}

#[tokio::test]
async fn row_22_a_naive_retry_is_appended_twice() {
    let desk = cold_desk().await;
    naive_edit(&desk, "op-1").await;
    // The answer is lost, and the client sends the same operation again. It gets the next version, hence
    // another key, and there attribute_not_exists(op_id) looks at an item that is not there yet.
    let version = naive_advance(&desk).await;
    assert!(
        naive_put(&desk, version, "op-1", "[\"a\",7]").await,
        "the guard lets it pass"
    );
    assert_eq!(
        naive_log(&desk).await,
        ["1#op-1", "2#op-1"],
        "the same operation, twice"
    );
}

#[tokio::test]
async fn row_23_a_naive_edit_that_dies_leaves_a_hole() {
    let lost = CrashSweep::of(cold_desk)
        .action("server", |desk: Arc<Desk>| async move {
            naive_edit(&desk, "op-1").await
        })
        // The client sends it again; and it is appended, but as the version after.
        .recovery(|desk: Arc<Desk>| async move { naive_edit(&desk, "op-1").await })
        .check(|desk| async move {
            let versions: Vec<_> = naive_log(&desk)
                .await
                .iter()
                .map(|key| key[..1].to_owned())
                .collect();
            let expected: Vec<_> = (1..=naive_version(&desk).await)
                .map(|v| v.to_string())
                .collect();
            if versions == expected {
                return Ok(());
            }
            Err(format!("the log has {versions:?} of {expected:?}"))
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.why, r#"the log has ["2"] of ["1", "2"]"#);
    assert_eq!(lost.point, "died after call 2 (UpdateItem documents if)");
}

#[tokio::test]
async fn row_24_naive_keys_put_10_before_9() {
    let desk = cold_desk().await;
    for version in 1..=11 {
        naive_put(&desk, version, "op", "[]").await;
    }
    let log = naive_log(&desk).await;
    assert_eq!(
        log[..4],
        ["1#op", "10#op", "11#op", "2#op"],
        "replayed in this order"
    );
    assert_eq!(log.last().unwrap(), "9#op");
    // Padded, they stand as they happened.
    let padded: Vec<_> = (1..=11).map(doc_editor::items::padded).collect();
    assert!(padded.is_sorted());
}
