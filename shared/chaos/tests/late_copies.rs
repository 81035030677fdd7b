//! `LateCopies`, on a toy table, with the bugs it is for.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_s3::primitives::ByteStream;
use chaos::LateCopies;
use cloud::Cloud;
use std::sync::Arc;

async fn is(cloud: Arc<Cloud>, wanted: i64) -> Result<(), String> {
    match toy::peek(&cloud, "a").await {
        Some(amount) if amount == wanted => Ok(()),
        other => Err(format!("a is {other:?}")),
    }
}

#[tokio::test]
async fn a_late_copy_of_an_unconditional_write_is_found() {
    let harmed = LateCopies::of(toy::zero)
        .act("first", |cloud| async move {
            toy::write(&cloud, "a", 1).await.unwrap()
        })
        .act("second", |cloud| async move {
            toy::write(&cloud, "a", 2).await.unwrap()
        })
        .check(|cloud| is(cloud, 2))
        .run()
        .await
        .unwrap_err();
    assert_eq!(harmed.why, "a is Some(1)");
    assert_eq!(
        harmed.point,
        "call 1 (PutItem counters) of first lands 1 calls later"
    );
    assert_eq!(
        harmed.calls,
        [
            "first: PutItem counters → ok",
            "second: PutItem counters → ok",
            "— the late copy of call 1 (PutItem counters) of first lands here: ok —",
        ]
    );
}

#[tokio::test]
async fn a_guarded_write_refuses_its_late_copy() {
    let harmless = LateCopies::of(toy::zero)
        .act("first", |cloud| async move {
            toy::swap(&cloud, "a", 0, 1).await.unwrap()
        })
        .act("second", |cloud| async move {
            toy::swap(&cloud, "a", 1, 2).await.unwrap()
        })
        .check(|cloud| is(cloud, 2))
        .run()
        .await
        .unwrap();
    assert_eq!(
        harmless.landings,
        [
            // Sent again: after itself, after the second write, and when all is over.
            "call 1 (UpdateItem counters if) of first lands 0 calls later",
            "call 1 (UpdateItem counters if) of first lands 1 calls later",
            "call 1 (UpdateItem counters if) of first lands 2 calls later",
            // The sender dies and begins again: after that, after the second write, at the end.
            "call 1 (UpdateItem counters if) of first lands 0 calls later",
            "call 1 (UpdateItem counters if) of first lands 1 calls later",
            "call 1 (UpdateItem counters if) of first lands 2 calls later",
            "call 2 (UpdateItem counters if) of second lands 0 calls later",
            "call 2 (UpdateItem counters if) of second lands 1 calls later",
            "call 2 (UpdateItem counters if) of second lands 0 calls later",
            "call 2 (UpdateItem counters if) of second lands 1 calls later",
        ]
    );
}

/// Back to 0 and the guard of the first is true again: a value is no identity.
#[tokio::test]
async fn a_guard_on_a_value_that_comes_back_is_found() {
    let harmed = LateCopies::of(toy::zero)
        .act("up", |cloud| async move {
            toy::swap(&cloud, "a", 0, 1).await.unwrap()
        })
        .act("down", |cloud| async move {
            toy::swap(&cloud, "a", 1, 0).await.unwrap()
        })
        .check(|cloud| is(cloud, 0))
        .run()
        .await
        .unwrap_err();
    assert_eq!(harmed.why, "a is Some(1)");
}

/// The write of a dead worker lands after its successor has done the work and more was done on top.
#[tokio::test]
async fn a_write_of_a_dead_sender_is_delivered_once_and_late() {
    let harmed = LateCopies::of(toy::zero)
        .act("worker", |cloud| async move {
            let seen = toy::read(&cloud, "a").await.unwrap().unwrap();
            if seen == 0 {
                toy::write(&cloud, "a", 5).await.unwrap();
            }
        })
        .act("next", |cloud| async move {
            // Reverses whatever it finds, so that a copy right after the first write is harmless.
            toy::write(&cloud, "a", 7).await.unwrap();
        })
        .check(|cloud| is(cloud, 7))
        .run()
        .await
        .unwrap_err();
    assert_eq!(harmed.why, "a is Some(5)");
}

#[tokio::test]
async fn a_story_without_a_write_shows_nothing_and_fails() {
    let harmed = LateCopies::of(toy::zero)
        .act("reader", |cloud| async move {
            toy::read(&cloud, "a").await.unwrap()
        })
        .act("spawner", |cloud: Arc<Cloud>| async move {
            let work = async move { toy::write(&cloud, "a", 1).await.unwrap() };
            tokio::spawn(work).await.unwrap();
        })
        .run()
        .await
        .unwrap_err();
    assert!(harmed.why.contains("makes no write"), "{}", harmed.why);
}

/// The body is read once, so there is nothing to send again.
#[tokio::test]
async fn a_write_of_which_no_copy_can_be_made_shows_nothing_and_fails() {
    let with_bucket = || async {
        let cloud = toy::zero().await;
        cloud.create_bucket("files").await.unwrap();
        cloud
    };
    let harmed = LateCopies::of(with_bucket)
        .act("uploader", |cloud| async move {
            let put = cloud.s3().put_object().key("k").content_length(4);
            let put = put.bucket(cloud.names().bucket("files"));
            let body = ByteStream::from_body_1_x("once".to_owned());
            put.body(body).send().await.unwrap();
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(harmed.why, "no copy of this call could be made");
}
