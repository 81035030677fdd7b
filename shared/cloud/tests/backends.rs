//! The switch: what each setting says when it cannot be used.
#![allow(clippy::unwrap_used)]

use cloud::{Backend, Clock, ConnectError, Ids, Options, connect_with};

fn options(backend: Backend) -> Options {
    Options {
        backend,
        data: None,
        prefix: None,
        clock: Clock::System,
        ids: Ids::Uuid,
    }
}

#[test]
fn an_unknown_backend_is_refused_with_the_known_ones() {
    let error = "podman".parse::<Backend>().unwrap_err().to_string();
    assert!(error.contains("embedded, docker or aws"), "{error}");
}

#[test]
fn every_backend_has_its_word() {
    assert_eq!("embedded".parse::<Backend>().unwrap(), Backend::Embedded);
    assert_eq!("docker".parse::<Backend>().unwrap(), Backend::Docker);
    assert_eq!("aws".parse::<Backend>().unwrap(), Backend::Aws);
}

/// Built without the feature, or with it and no engine: either way one error that says what to do.
#[tokio::test]
async fn without_an_engine_docker_says_what_to_do() {
    match connect_with(options(Backend::Docker)).await {
        Ok(cloud) => assert_eq!(cloud.backend(), Backend::Docker), // an engine runs here
        Err(error @ ConnectError::WithoutDocker) => {
            assert!(error.to_string().contains("--features cloud/docker"));
        }
        Err(error @ ConnectError::NoEngine(_)) => {
            assert!(error.to_string().contains("docker info"));
        }
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test]
async fn a_data_directory_keeps_tables_and_is_used_by_one_at_a_time() {
    use aws_sdk_dynamodb::types::AttributeValue::S;
    use cloud::tables::{Billing, Key, Table};
    use redis::AsyncCommands;
    const NOTES: Table = Table {
        name: "notes",
        entity: "Note",
        why: "A toy.",
        partition: Key::S("note_id"),
        sort: None,
        indexes: &[],
        ttl: None,
        stream: None,
        billing: Billing::OnDemand,
        attributes: &[],
    };
    let folder = tempfile::tempdir().unwrap();
    let kept = Options {
        data: Some(folder.path().to_owned()),
        ..options(Backend::Embedded)
    };

    let first = connect_with(kept.clone()).await.unwrap();
    first.create_tables(&[NOTES]).await.unwrap();
    let table = first.names().table("notes");
    let put = first.dynamodb().put_item().table_name(&table);
    put.item("note_id", S("n-1".into())).send().await.unwrap();
    let mut redis = first.redis().await.unwrap();
    let _: () = redis.set(first.names().key("k"), 1).await.unwrap();

    let second = connect_with(kept.clone()).await;
    assert!(matches!(second, Err(ConnectError::DataInUse(_))));

    drop((first, redis));
    let again = connect_with(kept).await.unwrap();
    let get = again.dynamodb().get_item().table_name(&table);
    let found = get.key("note_id", S("n-1".into())).send().await.unwrap();
    assert!(found.item.is_some());
}

#[test]
fn the_cloudformation_of_a_table_names_its_keys_indexes_and_ttl() {
    use cloud::tables::{Billing, Index, Key, Projection, Scope, Table, cloudformation};
    const HOLDS: Table = Table {
        name: "seat_holds",
        entity: "HoldState",
        why: "A toy.",
        partition: Key::S("hold_id"),
        sort: None,
        indexes: &[Index {
            name: "due",
            scope: Scope::Global,
            partition: Key::S("shard"),
            sort: Some(Key::N("expires_at")),
            projection: Projection::KeysOnly,
            why: "What is due?",
        }],
        ttl: Some("ttl"),
        stream: None,
        billing: Billing::Provisioned { read: 5, write: 5 },
        attributes: &[],
    };
    let template = cloudformation(&[HOLDS]);
    let table = &template["Resources"]["SeatHoldsTable"]["Properties"];
    assert_eq!(table["KeySchema"][0]["AttributeName"], "hold_id");
    assert_eq!(table["GlobalSecondaryIndexes"][0]["IndexName"], "due");
    assert_eq!(table["TimeToLiveSpecification"]["AttributeName"], "ttl");
    assert_eq!(table["ProvisionedThroughput"]["ReadCapacityUnits"], 5);
    assert_eq!(table["AttributeDefinitions"].as_array().unwrap().len(), 3);
}
