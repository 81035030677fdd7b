//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{CrashSweep, Interleave, World};
use cloud::item::{n, s};
use cloud::{Guard, Guarded, Millis};
use office::*;
use scheduler::domain::ExecutionStatus;
use scheduler::items::{bucket, parts_of};
use scheduler::queue::Message;
use scheduler::tables::SHARDS;
use std::sync::Arc;

/// Row 4. The documents' claim: IN_PROGRESS if the status is PENDING or RETRYING. (The row here is
/// ENQUEUED, which is the documents' PENDING with a message.)
async fn naive_claim(office: &Office, message: &Message) -> bool {
    let execution_id = message.says.clone().unwrap().execution_id;
    let (time, job_id) = parts_of(&execution_id).unwrap();
    let cloud = office.cloud();
    let claimed = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("executions"))
        .key("bucket", s(bucket(time, job_id)))
        .key("execution_id", s(&execution_id))
        .update_expression("SET #status = :in_progress, attempt = attempt + :one")
        .condition_expression("#status IN (:enqueued, :retrying)")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":in_progress", s("IN_PROGRESS"))
        .expression_attribute_values(":enqueued", s("ENQUEUED"))
        .expression_attribute_values(":retrying", s("RETRYING"))
        .expression_attribute_values(":one", n(1))
        .send()
        .await
        .guarded()
        .unwrap();
    matches!(claimed, Guard::Passed(_))
}

async fn naive_complete(office: &Office, message: &Message) {
    let execution_id = message.says.clone().unwrap().execution_id;
    let (time, job_id) = parts_of(&execution_id).unwrap();
    let cloud = office.cloud();
    cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("executions"))
        .key("bucket", s(bucket(time, job_id)))
        .key("execution_id", s(&execution_id))
        .update_expression("SET #status = :completed")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":completed", s("COMPLETED"))
        .send()
        .await
        .unwrap();
}

async fn naive_work(office: &Office, message: &Message) {
    if naive_claim(office, message).await {
        naive_complete(office, message).await;
    }
    office.scheduler.delete(message).await.unwrap();
}

#[tokio::test]
async fn row_4_a_worker_that_dies_takes_the_job_with_it() {
    let work = |desk: Arc<Desk>| async move { naive_work(&desk.office, &desk.message).await };
    let lost = CrashSweep::of(|| desk(once("job", HOUR)))
        .action("worker", work)
        // The message comes back, to any number of workers: each is refused, and deletes it.
        .recovery(work)
        .check(|desk| async move {
            match desk.office.status(&id("job", HOUR)).await {
                ExecutionStatus::Completed => Ok(()),
                other => Err(format!("{other:?} for ever: nobody may claim it again")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.why, "InProgress for ever: nobody may claim it again");
    assert_eq!(lost.point, "died after call 1 (UpdateItem executions if)");
}

/// Row 5. The documents' scan: query what is due in a window of time, then SendMessage for each.
/// Nothing is marked. Windows follow each other without a gap.
async fn naive_scan(office: &Office, from: Millis, until: Millis) {
    let shard = cloud::item::shard_of("acme/job", SHARDS);
    let cloud = office.cloud();
    let found = cloud
        .dynamodb()
        .query()
        .table_name(cloud.names().table("executions"))
        .index_name("due")
        .key_condition_expression("due_shard = :shard AND due_at BETWEEN :from AND :until")
        .expression_attribute_values(":shard", s(format!("start-{shard}")))
        .expression_attribute_values(":from", n(from))
        .expression_attribute_values(":until", n(until))
        .send()
        .await
        .unwrap();
    for item in found.items() {
        let execution_id = item["execution_id"].as_s().unwrap();
        let execution = office.execution(execution_id).await;
        let says = scheduler::queue::RunnableExecutionState::from(&execution);
        let url = cloud.beside_tap().sqs().get_queue_url();
        let url = url.queue_name(cloud.names().queue("runnable")).send().await;
        cloud
            .sqs()
            .send_message()
            .queue_url(url.unwrap().queue_url.unwrap())
            .message_body(serde_json::to_string(&says).unwrap())
            .send()
            .await
            .unwrap();
    }
}

async fn messages(office: &Office) -> usize {
    let mut count = 0;
    while office.receive().await.is_some() {
        count += 1;
    }
    count
}

#[tokio::test]
async fn row_5_a_scanner_that_dies_after_the_send_sends_again() {
    let scan = |office: Arc<Office>| async move { naive_scan(&office, 0, office.now()).await };
    let setup = || async {
        let office = with_job(once("job", HOUR)).await;
        office.advance(HOUR);
        office
    };
    let twice = CrashSweep::of(setup)
        .action("scanner", scan)
        // It comes back and does not know how far it was: it scans the window again.
        .recovery(scan)
        .check(|office| async move {
            match messages(&office).await {
                1 => Ok(()),
                count => Err(format!("sent {count} times")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(twice.why, "sent 2 times");
    assert_eq!(twice.point, "died after call 2 (SendMessage runnable)");
}

/// A job is created for a time in the window that the scanner is in. The literal creation only
/// writes; ours would have put it into the queue as well.
fn window() -> Interleave<Office, ()> {
    Interleave::of(open)
        .actor("scanner", |office| async move {
            // Two windows, one after the other.
            naive_scan(&office, office.now(), office.now() + MINUTE).await;
            naive_scan(
                &office,
                office.now() + MINUTE + 1,
                office.now() + 2 * MINUTE,
            )
            .await;
        })
        .actor("creator", |office| async move {
            // Beyond the lookahead, ours leaves it to the scanner too: the literal creation.
            let late = office.scheduler.clone().looking_ahead(0).unwrap();
            late.create_job(once("job", 40 * SECOND)).await.unwrap();
        })
        .check(|office, _| async move {
            match messages(&office).await {
                0 => Err("sent never: its window has passed".to_owned()),
                count => Ok(format!("sent {count} times")),
            }
        })
}

#[tokio::test]
async fn row_5_a_job_created_in_a_window_already_scanned_is_sent_never() {
    let order = "scanner creator scanner".parse().unwrap();
    let broken = window().replay(&order).await.unwrap_err();
    assert_eq!(broken.why, "sent never: its window has passed");
    // Nobody has to think of that order: the explorer finds it.
    let found = window().run().await.unwrap_err();
    assert_eq!(found.why, broken.why);
    // And when the creation is first, all is well: that is why tests by hand do not find it.
    let lucky = "creator scanner scanner scanner".parse().unwrap();
    assert_eq!(window().replay(&lucky).await.unwrap(), "sent 1 times");
}

/// The same order with ours: it is in the queue, whatever was scanned before.
#[tokio::test]
async fn row_5_ours_sends_it_from_its_creation_or_by_the_next_scan() {
    for lookahead in [0, 60_000] {
        let office = open().await;
        let scheduler = office.scheduler.clone().looking_ahead(lookahead).unwrap();
        office.scan().await;
        scheduler
            .create_job(once("job", 40 * SECOND))
            .await
            .unwrap();
        let dispatched = office.status(&id("job", 40 * SECOND)).await;
        let expected = match lookahead {
            0 => ExecutionStatus::Pending,
            _ => ExecutionStatus::Enqueued,
        };
        assert_eq!(dispatched, expected);
        office.advance(40 * SECOND);
        office.scan().await;
        let status = office.status(&id("job", 40 * SECOND)).await;
        assert_eq!(status, ExecutionStatus::Enqueued);
    }
}
