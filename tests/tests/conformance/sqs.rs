//! SQS. Its own seconds are the one thing the suite waits for.

use crate::toy::eventually;
use aws_sdk_sqs::Client;
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::{
    DeleteMessageBatchRequestEntry, Message, MessageAttributeValue, MessageSystemAttributeName,
    QueueAttributeName, SendMessageBatchRequestEntry,
};
use cloud::Cloud;
use std::time::{Duration, Instant};

/// A queue of its own for each test, with the real address.
struct Queue {
    _cloud: Cloud,
    sqs: Client,
    url: String,
}

async fn create(cloud: &Cloud, kind: &str, attributes: &[(QueueAttributeName, String)]) -> String {
    let name = cloud.names().queue(&cloud.ids().next(kind));
    let mut create = cloud.sqs().create_queue().queue_name(name);
    for (name, value) in attributes {
        create = create.attributes(name.clone(), value);
    }
    create.send().await.unwrap().queue_url.unwrap()
}

async fn queue(visibility: u32) -> Queue {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let attributes = [(
        QueueAttributeName::VisibilityTimeout,
        visibility.to_string(),
    )];
    let url = create(&cloud, "queue", &attributes).await;
    Queue {
        sqs: cloud.sqs().clone(),
        url,
        _cloud: cloud,
    }
}

impl Queue {
    async fn send(&self, body: &str) {
        self.sqs
            .send_message()
            .queue_url(&self.url)
            .message_body(body)
            .send()
            .await
            .unwrap();
    }

    /// The messages that come within `seconds`: SQS answers as soon as there is one.
    async fn receive(&self, seconds: i32) -> Vec<Message> {
        let receive = self.sqs.receive_message().queue_url(&self.url);
        let receive = receive
            .wait_time_seconds(seconds)
            .max_number_of_messages(10);
        let receive = receive.message_attribute_names("All");
        let receive = receive.message_system_attribute_names(MessageSystemAttributeName::All);
        receive.send().await.unwrap().messages.unwrap_or_default()
    }

    async fn receive_one(&self) -> Message {
        let mut messages = self.receive(10).await;
        assert_eq!(messages.len(), 1);
        messages.remove(0)
    }

    async fn delete(&self, message: &Message) {
        let delete = self.sqs.delete_message().queue_url(&self.url);
        delete
            .receipt_handle(message.receipt_handle().unwrap())
            .send()
            .await
            .unwrap();
    }

    async fn visible_after(&self, message: &Message, seconds: i32) {
        let change = self.sqs.change_message_visibility().queue_url(&self.url);
        let change = change.receipt_handle(message.receipt_handle().unwrap());
        change.visibility_timeout(seconds).send().await.unwrap();
    }
}

fn receive_count(message: &Message) -> u32 {
    let attributes = message.attributes().unwrap();
    attributes[&MessageSystemAttributeName::ApproximateReceiveCount]
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_message_is_received_with_its_attributes_and_gone_when_deleted() {
    let queue = queue(30).await;
    let kind = MessageAttributeValue::builder()
        .data_type("String")
        .string_value("bid");
    let send = queue
        .sqs
        .send_message()
        .queue_url(&queue.url)
        .message_body("hello");
    send.message_attributes("kind", kind.build().unwrap())
        .send()
        .await
        .unwrap();
    let message = queue.receive_one().await;
    assert_eq!(message.body(), Some("hello"));
    assert_eq!(
        message.message_attributes().unwrap()["kind"].string_value(),
        Some("bid")
    );
    queue.visible_after(&message, 0).await;
    let again = queue.receive_one().await;
    queue.delete(&again).await;
    assert!(queue.receive(1).await.is_empty());
}

#[tokio::test]
async fn delay_hides_a_message_for_its_seconds() {
    let queue = queue(30).await;
    let sent = Instant::now();
    let send = queue
        .sqs
        .send_message()
        .queue_url(&queue.url)
        .message_body("later");
    send.delay_seconds(1).send().await.unwrap();
    assert!(queue.receive(0).await.is_empty());
    queue.receive_one().await;
    // A second by SQS's clock; some of it may have passed before the send was answered.
    assert!(
        sent.elapsed() > Duration::from_millis(900),
        "{:?}",
        sent.elapsed()
    );
}

#[tokio::test]
async fn a_queue_with_a_delay_over_900_seconds_is_refused() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let create = |seconds: u32| {
        let name = cloud.names().queue(&cloud.ids().next("queue"));
        let create = cloud.sqs().create_queue().queue_name(name);
        create
            .attributes(QueueAttributeName::DelaySeconds, seconds.to_string())
            .send()
    };
    let refused = create(901).await.unwrap_err();
    assert!(
        refused
            .message()
            .is_some_and(|text| text.contains("DelaySeconds")),
        "{refused:?}"
    );
    create(900).await.unwrap();
}

#[tokio::test]
async fn a_message_in_flight_is_not_given_to_another() {
    let queue = queue(30).await;
    queue.send("once").await;
    queue.receive_one().await;
    assert!(queue.receive(1).await.is_empty());
}

#[tokio::test]
async fn a_message_not_deleted_comes_again_after_its_visibility() {
    let queue = queue(1).await;
    queue.send("again").await;
    let first = queue.receive_one().await;
    let received = Instant::now();
    assert!(queue.receive(0).await.is_empty());
    let second = queue.receive_one().await;
    assert!(
        received.elapsed() > Duration::from_millis(900),
        "{:?}",
        received.elapsed()
    );
    assert_eq!(first.message_id(), second.message_id());
    assert_ne!(first.receipt_handle(), second.receipt_handle());
}

#[tokio::test]
async fn change_visibility_extends_the_lease() {
    let queue = queue(1).await;
    queue.send("slow work").await;
    let message = queue.receive_one().await;
    queue.visible_after(&message, 30).await;
    // Longer than the second it had.
    assert!(queue.receive(2).await.is_empty());
    queue.delete(&message).await;
}

#[tokio::test]
async fn visibility_zero_gives_a_message_back_at_once() {
    let queue = queue(30).await;
    queue.send("retry").await;
    let first = queue.receive_one().await;
    queue.visible_after(&first, 0).await;
    let given_back = Instant::now();
    let second = queue.receive_one().await;
    assert_eq!(first.message_id(), second.message_id());
    assert!(
        given_back.elapsed() < Duration::from_secs(5),
        "{:?}",
        given_back.elapsed()
    );
}

#[tokio::test]
async fn the_receive_count_grows() {
    let queue = queue(30).await;
    queue.send("retry").await;
    for count in 1..=4 {
        let message = queue.receive_one().await;
        assert_eq!(receive_count(&message), count);
        queue.visible_after(&message, 0).await;
    }
}

#[tokio::test]
async fn a_message_received_too_often_goes_to_the_dead_letter_queue() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let sqs = cloud.sqs().clone();
    let dead = Queue {
        sqs: sqs.clone(),
        url: create(&cloud, "dead", &[]).await,
        _cloud: cloud.clone(),
    };
    let attributes = sqs.get_queue_attributes().queue_url(&dead.url);
    let attributes = attributes
        .attribute_names(QueueAttributeName::QueueArn)
        .send()
        .await
        .unwrap();
    let arn = attributes.attributes.unwrap()[&QueueAttributeName::QueueArn].clone();
    let redrive = serde_json::json!({"deadLetterTargetArn": arn, "maxReceiveCount": 2});
    let redrive = [(QueueAttributeName::RedrivePolicy, redrive.to_string())];
    let queue = Queue {
        sqs,
        url: create(&cloud, "work", &redrive).await,
        _cloud: cloud,
    };

    queue.send("poison").await;
    for _ in 0..2 {
        let message = queue.receive_one().await;
        queue.visible_after(&message, 0).await;
    }
    let buried = eventually("the message in the dead letter queue", async || {
        assert!(queue.receive(0).await.is_empty(), "it came a third time");
        dead.receive(1).await.pop()
    })
    .await;
    assert_eq!(buried.body(), Some("poison"));
}

#[tokio::test]
async fn a_batch_of_eleven_is_refused() {
    let queue = queue(30).await;
    let send = |count: usize| {
        let entries = (0..count).map(|i| {
            let entry = SendMessageBatchRequestEntry::builder().id(format!("m{i}"));
            entry.message_body(format!("body {i}")).build().unwrap()
        });
        let send = queue.sqs.send_message_batch().queue_url(&queue.url);
        send.set_entries(Some(entries.collect())).send()
    };
    let refused = send(11).await.unwrap_err();
    let code = refused.code().unwrap_or_default();
    assert!(code.contains("TooManyEntriesInBatchRequest"), "{refused:?}");
    let sent = send(10).await.unwrap();
    assert_eq!((sent.successful().len(), sent.failed().len()), (10, 0));
    // A receive gives ten at most, and may give fewer: ask until all have come.
    let mut bodies = std::collections::BTreeSet::new();
    eventually("all ten", async || {
        let messages = queue.receive(1).await;
        assert!(messages.len() <= 10);
        for message in &messages {
            bodies.insert(message.body().unwrap().to_owned());
            queue.delete(message).await;
        }
        (bodies.len() == 10).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_batch_delete_says_what_became_of_each() {
    let queue = queue(30).await;
    for body in ["a", "b"] {
        queue.send(body).await;
    }
    let mut messages = Vec::new();
    eventually("both messages", async || {
        messages.extend(queue.receive(1).await);
        (messages.len() == 2).then_some(())
    })
    .await;
    let entries = messages.iter().enumerate().map(|(i, message)| {
        let entry = DeleteMessageBatchRequestEntry::builder().id(format!("m{i}"));
        entry
            .receipt_handle(message.receipt_handle().unwrap())
            .build()
            .unwrap()
    });
    let delete = queue.sqs.delete_message_batch().queue_url(&queue.url);
    let deleted = delete
        .set_entries(Some(entries.collect()))
        .send()
        .await
        .unwrap();
    let mut done: Vec<_> = deleted
        .successful()
        .iter()
        .map(|entry| entry.id())
        .collect();
    done.sort_unstable();
    assert_eq!(done, ["m0", "m1"]);
    assert!(deleted.failed().is_empty());
}

#[tokio::test]
async fn deleting_twice_is_no_error() {
    let queue = queue(30).await;
    queue.send("once").await;
    let message = queue.receive_one().await;
    queue.delete(&message).await;
    queue.delete(&message).await;
}

#[tokio::test]
async fn a_long_poll_ends_when_a_message_comes() {
    let queue = queue(30).await;
    let started = Instant::now();
    let (message, ()) = tokio::join!(queue.receive_one(), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        queue.send("news").await;
    });
    assert_eq!(message.body(), Some("news"));
    assert!(
        started.elapsed() < Duration::from_secs(8),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn making_a_queue_again_gives_the_same_queue() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let name = cloud.names().queue(&cloud.ids().next("queue"));
    let create = || cloud.sqs().create_queue().queue_name(&name).send();
    assert_eq!(
        create().await.unwrap().queue_url,
        create().await.unwrap().queue_url
    );
    let found = cloud
        .sqs()
        .get_queue_url()
        .queue_name(&name)
        .send()
        .await
        .unwrap();
    assert_eq!(found.queue_url, create().await.unwrap().queue_url);
}
