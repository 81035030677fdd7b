//! `Faults`, on a toy table and a toy queue.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue::S;
use chaos::{Fault, Faults};
use cloud::{Cloud, CloudError, as_actor};
use std::sync::Arc;

/// Thirty writes, one after the other, and what became of each.
async fn thirty_writes(cloud: &Cloud) -> Vec<String> {
    let recording = cloud.tap().record();
    for number in 0..30 {
        let _ = toy::write(cloud, "a", number).await;
    }
    recording
        .take()
        .iter()
        .map(|call| call.outcome.to_string())
        .collect()
}

#[tokio::test]
async fn faults_are_the_same_for_the_same_seed() {
    let mut runs = Vec::new();
    for seed in [7, 7, 8] {
        let cloud = toy::zero().await;
        let faults = Arc::new(
            Faults::seeded(seed)
                .throttle(0.1)
                .lose_request(0.1)
                .lose_answer(0.1),
        );
        let _plan = cloud.tap().install(faults.clone());
        runs.push((thirty_writes(&cloud).await, faults.injected()));
    }
    assert_eq!(runs[0], runs[1]);
    assert_ne!(runs[0].0, runs[2].0);
    assert_eq!(
        runs[0].1.len(),
        3,
        "all three kinds happened: {:?}",
        runs[0].1
    );
}

#[tokio::test]
async fn nothing_happens_unless_told() {
    let cloud = toy::zero().await;
    let faults = Arc::new(Faults::seeded(7));
    let _plan = cloud.tap().install(faults.clone());
    assert_eq!(thirty_writes(&cloud).await, vec!["ok"; 30]);
    assert!(faults.injected().is_empty());
}

#[tokio::test]
async fn a_throttled_write_is_not_made_and_says_so() {
    let cloud = toy::zero().await;
    let faults = Arc::new(Faults::seeded(7).throttle(1.0));
    let plan = cloud.tap().install(faults.clone());
    let error = toy::write(&cloud, "a", 1).await.unwrap_err();
    assert!(matches!(error, CloudError::Throttled(_)), "{error}");
    assert!(
        error
            .to_string()
            .contains("ProvisionedThroughputExceededException"),
        "{error}"
    );
    drop(plan);
    assert_eq!(toy::peek(&cloud, "a").await, Some(0));
    // Three times: the SDK tried again, as in life.
    assert_eq!(faults.injected()[&Fault::Throttle], 3);
}

#[tokio::test]
async fn a_lost_request_is_not_carried_out_and_a_lost_answer_is() {
    for (faults, left) in [
        (Faults::seeded(7).lose_request(1.0), Some(0)),
        (Faults::seeded(7).lose_answer(1.0), Some(1)),
    ] {
        let cloud = toy::zero().await;
        let _plan = cloud.tap().install(Arc::new(faults));
        let error = toy::write(&cloud, "a", 1).await.unwrap_err();
        assert!(matches!(error, CloudError::Unknown(_)), "{error}");
        assert_eq!(toy::peek(&cloud, "a").await, left);
    }
}

#[tokio::test]
async fn a_lost_answer_finds_the_guard_without_identity() {
    // The planted bug: "my guard failed, so somebody else did it". With an answer lost it was us.
    let cloud = toy::zero().await;
    let faults = Arc::new(Faults::seeded(3).lose_answer(0.5));
    let _plan = cloud.tap().install(faults.clone());
    let mut told_that_it_lost = 0;
    for number in 0..20 {
        match toy::swap(&cloud, "a", number, number + 1).await {
            Ok(false) => told_that_it_lost += 1,
            Ok(true) | Err(CloudError::Unknown(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    // Nobody else writes: every swap was made, and some were told that they lost.
    assert_eq!(toy::peek(&cloud, "a").await, Some(20));
    assert!(told_that_it_lost > 0);
}

#[tokio::test]
async fn the_spared_are_spared() {
    let cloud = toy::zero().await;
    let faults = Arc::new(Faults::seeded(7).throttle(1.0).sparing("checker"));
    let _plan = cloud.tap().install(faults.clone());
    assert_eq!(
        as_actor("checker", toy::read(&cloud, "a")).await.unwrap(),
        Some(0)
    );
    assert!(as_actor("other", toy::read(&cloud, "a")).await.is_err());
}

/// How many toys the index shows.
async fn toys(cloud: &Cloud) -> usize {
    let page = cloud
        .dynamodb()
        .query()
        .table_name(cloud.names().table("counters"))
        .index_name("by-group")
        .key_condition_expression("group_id = :toys")
        .expression_attribute_values(":toys", S("toys".into()));
    page.send().await.unwrap().items().len()
}

#[tokio::test]
async fn a_stale_index_answers_as_it_did_before() {
    let cloud = toy::zero().await;
    let faults = Arc::new(Faults::seeded(7).stale_read(1.0));
    let plan = cloud.tap().install(faults.clone());
    assert_eq!(toys(&cloud).await, 0, "before anybody looked it was empty");
    assert_eq!(
        toy::read(&cloud, "a").await.unwrap(),
        Some(0),
        "the table itself is not stale"
    );
    assert_eq!(faults.injected()[&Fault::StaleRead], 1);
    drop(plan);

    let fresh_then_stale = Arc::new(Faults::seeded(7).stale_read(1.0).sparing("early"));
    let _plan = cloud.tap().install(fresh_then_stale);
    assert_eq!(as_actor("early", toys(&cloud)).await, 1);
    toy::write(&cloud, "b", 0).await.unwrap();
    assert_eq!(
        toys(&cloud).await,
        1,
        "the second toy is not in the index yet"
    );
    assert_eq!(as_actor("early", toys(&cloud)).await, 2);
}

#[tokio::test]
async fn a_stale_table_answers_as_it_did_before_and_a_consistent_read_is_not_stale() {
    let cloud = toy::zero().await;
    let batch = async |consistent| {
        let keys = vec![toy::key("a")];
        let read = cloud.read_batch(vec![("counters", keys)], consistent).await;
        read.unwrap().remove("counters").unwrap_or_default().len()
    };
    let one = async |consistent| {
        let read = cloud.dynamodb().get_item();
        let read = read.table_name(cloud.names().table("counters"));
        let read = read.set_key(Some(toy::key("a")));
        let read = read.consistent_read(consistent).send().await;
        usize::from(read.unwrap().item.is_some())
    };
    let faults = Arc::new(Faults::seeded(7).stale_read(1.0).sparing("early"));
    let _plan = cloud.tap().install(faults.clone());
    assert_eq!((one(true).await, batch(true).await), (1, 1));
    assert!(faults.injected().is_empty());
    assert_eq!(
        (one(false).await, batch(false).await),
        (0, 0),
        "no news yet"
    );
    let fresh = as_actor("early", async { (one(false).await, batch(false).await) });
    assert_eq!(fresh.await, (1, 1));
    assert_eq!((one(false).await, batch(false).await), (1, 1), "as before");
    assert_eq!(faults.injected()[&Fault::StaleRead], 4);
}

#[tokio::test]
async fn a_stale_index_finds_the_sweeper_that_trusts_it() {
    // The planted bug: acts on what the index said, without looking at the base item.
    let cloud = toy::zero().await;
    let faults = Arc::new(Faults::seeded(7).stale_read(1.0).sparing("early"));
    let _plan = cloud.tap().install(faults);
    as_actor("early", toys(&cloud)).await;
    cloud
        .dynamodb()
        .delete_item()
        .table_name(cloud.names().table("counters"))
        .key("counter_id", S("a".into()))
        .send()
        .await
        .unwrap();
    assert_eq!(toys(&cloud).await, 1, "a toy that is gone");
}

#[tokio::test]
async fn a_message_is_delivered_again_even_after_it_was_deleted() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let sqs = cloud.sqs();
    let made = sqs
        .create_queue()
        .queue_name(cloud.names().queue("work"))
        .send()
        .await
        .unwrap();
    let url = made.queue_url.unwrap();
    sqs.send_message()
        .queue_url(&url)
        .message_body("once")
        .send()
        .await
        .unwrap();

    let faults = Arc::new(Faults::seeded(7).duplicate_delivery(1.0));
    let _plan = cloud.tap().install(faults.clone());
    // The planted bug: a worker that counts deliveries as work.
    let mut done = Vec::new();
    for _ in 0..2 {
        let answer = sqs.receive_message().queue_url(&url).send().await.unwrap();
        for message in answer.messages() {
            done.push(message.body().unwrap().to_owned());
            sqs.delete_message()
                .queue_url(&url)
                .receipt_handle(message.receipt_handle().unwrap())
                .send()
                .await
                .unwrap();
        }
    }
    assert_eq!(done, ["once", "once"]);
    assert_eq!(faults.injected()[&Fault::DuplicateDelivery], 1);
}
