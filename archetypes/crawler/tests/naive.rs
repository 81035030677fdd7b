//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::{CrashSweep, World};
use cloud::item::{n, s, to_item};
use cloud::{Guard, Guarded};
use crawler::canonical::canonical;
use crawler::domain::{Kind, Status, UrlMetadataState};
use std::sync::Arc;
use web::*;

/// A town whose sweeper nobody knows: the documents have none.
async fn town() -> Town {
    let town = open().await;
    town.put_small();
    town
}

async fn send(town: &Town, url: &str) {
    let beside = town.cloud().beside_tap();
    let queue = beside
        .sqs()
        .get_queue_url()
        .queue_name(beside.names().queue("frontier"));
    let queue = queue.send().await.unwrap().queue_url.unwrap();
    let body = format!("{{\"url_hash\":\"{}\"}}", hash(url));
    let send = town.cloud().sqs().send_message().queue_url(queue);
    send.message_body(body).send().await.unwrap();
}

/// Row 8. The documents' discovery: PutItem if attribute_not_exists(pk); on success, SendMessage.
async fn naive_discover(town: &Town, url: &str) {
    let now = town.now();
    let row = UrlMetadataState::discovered(
        &canonical(url).unwrap(),
        Kind::Page,
        0,
        0,
        None,
        town.cloud().ids().next("find"),
        now,
    );
    let cloud = town.cloud();
    let put = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("url_metadata"))
        .set_item(Some(to_item(&row).unwrap()))
        .condition_expression("attribute_not_exists(url_hash)")
        .send()
        .await
        .guarded()
        .unwrap();
    if matches!(put, Guard::Passed(_)) {
        send(town, url).await;
    }
}

#[tokio::test]
async fn row_8_a_url_whose_discoverer_dies_before_the_send_is_never_crawled() {
    let discover = |town: Arc<Town>| async move { naive_discover(&town, HOME).await };
    let lost = CrashSweep::of(town)
        .action("discoverer", discover)
        // It is discovered again, and again, by any number of pages that link to it; workers work.
        .recovery(move |town: Arc<Town>| async move {
            for _ in 0..3 {
                naive_discover(&town, HOME).await;
                town.work_all("life").await;
                town.advance(MINUTE);
            }
        })
        .check(|town| async move {
            match town.status(HOME).await {
                Status::Parsed => Ok(()),
                other => Err(format!("{other:?} for ever: nobody will send it")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.why, "Discovered for ever: nobody will send it");
    assert_eq!(lost.point, "died after call 1 (PutItem url_metadata if)");
}

/// The same with ours: the row is its own outbox.
#[tokio::test]
async fn row_8_ours_is_sent_by_the_sweeper() {
    CrashSweep::of(town)
        .action("discoverer", |town| async move {
            town.crawler.add_seed(HOME).await.unwrap()
        })
        .recovery(|town| async move {
            town.crawler.afresh().add_seed(HOME).await.unwrap();
            town.live(3).await;
        })
        .check(|town| async move { town.small_is_crawled().await })
        .run()
        .await
        .unwrap();
}

/// Row 9. The documents' mark: FETCHING if the status is DISCOVERED or RETRYING.
async fn naive_fetch(town: &Town) {
    let cloud = town.cloud();
    let mark = |to: &'static str, condition: &'static str| {
        cloud
            .dynamodb()
            .update_item()
            .table_name(cloud.names().table("url_metadata"))
            .key("url_hash", s(hash(HOME)))
            .condition_expression(condition)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":to", s(to))
    };
    let claimed = mark("FETCHING", "#status IN (:discovered, :retrying)")
        .update_expression("SET #status = :to, fetch_attempts = fetch_attempts + :one")
        .expression_attribute_values(":one", n(1))
        .expression_attribute_values(":discovered", s("DISCOVERED"))
        .expression_attribute_values(":retrying", s("RETRYING"))
        .send()
        .await
        .guarded()
        .unwrap();
    if matches!(claimed, Guard::Passed(_)) {
        mark("FETCHED", "attribute_exists(url_hash)")
            .update_expression("SET #status = :to")
            .send()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn row_9_a_worker_that_dies_takes_the_url_with_it() {
    let seeded = || async {
        let town = town().await;
        town.crawler.add_seed(HOME).await.unwrap();
        town
    };
    let lost = CrashSweep::of(seeded)
        .action("worker", |town| async move { naive_fetch(&town).await })
        // The message comes back, as often as SQS likes: each time it is refused.
        .recovery(|town| async move {
            for _ in 0..3 {
                town.advance(MINUTE);
                naive_fetch(&town).await;
            }
        })
        .check(|town| async move {
            match town.status(HOME).await {
                Status::Fetched => Ok(()),
                other => Err(format!("{other:?} for ever: nobody may claim it again")),
            }
        })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.why, "Fetching for ever: nobody may claim it again");
    assert_eq!(lost.point, "died after call 1 (UpdateItem url_metadata if)");
}

/// Found on the way, and not in the list of errata: the documents mark PARSED, and then expand. Who dies
/// in between leaves a page that is finished, whose links nobody knows.
#[tokio::test]
async fn a_page_marked_parsed_before_its_links_are_expanded_loses_them() {
    use web::cast::*;
    let held = || async { ready().await.hold_parse("parser").await };
    let lost = CrashSweep::of(held)
        .action("parser", |desk| async move {
            let run = desk.parse_run.clone().unwrap();
            let crawler = &desk.town.crawler;
            let body = crawler
                .read_blob(run.url.raw_blob_key.as_ref().unwrap())
                .await
                .unwrap();
            let page = crawler::page::read(&run.url, &body.unwrap());
            let hash = run.url.content_hash.clone().unwrap();
            let text = serde_json::to_vec(&page.text).unwrap();
            let key = crawler.store_text(&hash, text).await.unwrap();
            crawler.mark_parsed(&run, &key, 3).await.unwrap();
            let children = crawler.children(&run.url, &page.links);
            crawler.expand(&children).await.unwrap();
        })
        .recovery(|desk| async move { desk.town.live(4).await })
        .check(|desk| async move { desk.town.small_is_crawled().await })
        .run()
        .await
        .unwrap_err();
    assert_eq!(lost.why, "http://site.test/a was never discovered");
    assert_eq!(lost.point, "died after call 5 (UpdateItem url_metadata if)");
}
