//! Watchers of an auction: what they are told, and what it costs the tables.
#![allow(clippy::unwrap_used)]

mod house;

use auction::broadcast::{Event, Hub};
use auction::{BidOutcome, Layout, Offer};
use chaos::Says;
use cloud::item::s;
use cloud::tap::{Recording, Service, Verdict};
use futures::future::join_all;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use house::{House, open};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3_600);

type Watcher = BoxStream<'static, u64>;

fn watcher(hub: &Hub, house: &House, after: u64) -> Watcher {
    let events = hub.follow(&house.id, after);
    events.map(|event| event.unwrap().sequence).boxed()
}

/// The next event of each watcher.
async fn next_of_all(watchers: &mut [Watcher]) -> Vec<u64> {
    let all = join_all(watchers.iter_mut().map(|watcher| watcher.next()));
    let all = tokio::time::timeout(Duration::from_secs(10), all);
    all.await.unwrap().into_iter().flatten().collect()
}

fn reads(recording: &Recording) -> usize {
    let calls = recording.take().into_iter();
    calls
        .filter(|call| call.request.service == Service::DynamoDb && !call.request.is_write())
        .count()
}

async fn accepted(house: &House, n: i64) {
    let offer = Offer::Exactly(n * 1_000_00);
    let outcome = house.place(&format!("bidder-{n}"), offer).await;
    assert!(
        matches!(outcome, BidOutcome::Accepted { .. }),
        "{outcome:?}"
    );
}

/// Fifty watchers that have seen the first bid.
async fn fifty(believes_silence: Duration) -> (House, Hub, Recording, Vec<Watcher>) {
    let house = open(Layout::OneItem).await;
    accepted(&house, 1).await;
    let recording = house.house.cloud().tap().record();
    let hub = Hub::start(house.house.clone()).believing_silence(believes_silence);
    let mut watchers: Vec<_> = (0..50).map(|_| watcher(&hub, &house, 0)).collect();
    assert_eq!(next_of_all(&mut watchers).await, [1; 50]);
    (house, hub, recording, watchers)
}

#[tokio::test]
async fn fifty_watchers_that_join_cost_the_reads_of_one() {
    let (_house, _hub, recording, _watchers) = fifty(HOUR).await;
    let reads = reads(&recording);
    assert!((1..=6).contains(&reads), "{reads} reads");
}

#[tokio::test]
async fn a_gap_costs_fifty_watchers_the_reads_of_one() {
    let (house, _hub, recording, mut watchers) = fifty(HOUR).await;
    accepted(&house, 2).await;
    accepted(&house, 3).await;
    let events = house.house.events_after(&house.id, 2).await.unwrap().events;
    let third: &Event = events.last().unwrap();
    reads(&recording);
    // Redis says the third and has lost the second.
    let saying = async {
        let mut redis = house.house.cloud().redis().await.unwrap();
        let channel = house.house.cloud().names().key("events");
        let mut again = tokio::time::interval(Duration::from_millis(20));
        loop {
            again.tick().await;
            let text = serde_json::to_string(third).unwrap();
            let _: () = redis::AsyncCommands::publish(&mut redis, &channel, text)
                .await
                .unwrap();
        }
    };
    let hearing = async {
        assert_eq!(next_of_all(&mut watchers).await, [2; 50]);
        assert_eq!(next_of_all(&mut watchers).await, [3; 50]);
    };
    tokio::select! {
        () = saying => unreachable!("it never ends"),
        () = hearing => {}
    }
    let reads = reads(&recording);
    assert!((1..=6).contains(&reads), "{reads} reads");
}

#[tokio::test]
async fn a_silence_costs_fifty_watchers_the_reads_of_one() {
    let silence = Duration::from_millis(100);
    let (house, _hub, recording, mut watchers) = fifty(silence).await;
    reads(&recording);
    let began = Instant::now();
    accepted(&house, 2).await;
    assert_eq!(next_of_all(&mut watchers).await, [2; 50]);
    let silences = began.elapsed().div_duration_f64(silence) as usize + 1;
    let reads = reads(&recording);
    // A look reads the auction, and its history where there is news; the bid above reads too.
    assert!(
        reads <= 2 * silences + 4,
        "{reads} reads in {silences} silences"
    );
}

#[tokio::test]
async fn a_feed_ends_with_its_last_watcher() {
    let (house, hub, recording, watchers) = fifty(Duration::from_millis(1)).await;
    drop(watchers);
    // A call on its way may still be answered.
    house.house.view_auction(&house.id).await.unwrap();
    reads(&recording);
    for _ in 0..20 {
        house.house.view_auction(&house.id).await.unwrap();
    }
    assert_eq!(reads(&recording), 20);
    drop(hub);
}

#[tokio::test]
async fn a_long_history_is_read_in_pages() {
    let house = open(Layout::OneItem).await;
    for n in 1..=250 {
        accepted(&house, n).await;
    }
    house.late.close_auction(&house.id).await.unwrap();
    let recording = house.house.cloud().tap().record();
    let hub = Hub::start(house.house.clone());
    let mut stays = watcher(&hub, &house, 0);
    assert_eq!(stays.next().await, Some(1));
    // One that joins a feed which has ended, and one that has seen the end.
    let joins: Vec<_> = watcher(&hub, &house, 200).collect().await;
    assert!(joins.into_iter().eq(201..=251));
    assert_eq!(watcher(&hub, &house, 251).next().await, None);
    let seen: Vec<_> = stays.collect().await;
    assert!(seen.into_iter().eq(2..=251));
    for call in recording.take() {
        if call.request.operation == "Query" {
            let limit = call.request.body["Limit"].as_u64();
            assert!(limit.is_some_and(|limit| limit <= 100), "{limit:?}");
        }
    }
    // The end of a long history comes after all of it, however it is paged.
    let events = house
        .house
        .events_after(&house.id, 150)
        .await
        .unwrap()
        .events;
    assert_eq!(events.len(), 100);
    assert_eq!(events.last().unwrap().sequence, 250);
}

#[tokio::test]
async fn a_watcher_beyond_the_last_event_hears_the_next_ones() {
    let house = open(Layout::OneItem).await;
    accepted(&house, 1).await;
    let hub = Hub::start(house.house.clone()).believing_silence(Duration::from_millis(20));
    let mut beyond = watcher(&hub, &house, 99);
    assert!(beyond.next().now_or_never().is_none());
    for n in 2..90 {
        accepted(&house, n).await;
        let heard = tokio::time::timeout(Duration::from_millis(100), beyond.next()).await;
        if heard.is_ok() {
            return;
        }
    }
    panic!("it heard nothing");
}

/// The index shows nothing of what the auction's item already counts, for the first three reads.
#[tokio::test]
async fn an_index_that_lags_delays_events_and_loses_none() {
    let house = open(Layout::OneItem).await;
    for n in 1..=3 {
        accepted(&house, n).await;
    }
    let lags = AtomicUsize::new(3);
    let plan = Says(move |request: &cloud::tap::Request| {
        let lagging = request.operation == "Query"
            && lags
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok();
        let body = json!({"Items": [], "Count": 0, "ScannedCount": 0});
        if lagging {
            Verdict::Answer { status: 200, body }
        } else {
            Verdict::Pass
        }
    });
    let _plan = house.house.cloud().tap().install(Arc::new(plan));
    let hub = Hub::start(house.house.clone()).believing_silence(HOUR);
    let seen = watcher(&hub, &house, 0).take(3).collect::<Vec<_>>();
    let seen = tokio::time::timeout(Duration::from_secs(10), seen).await;
    assert_eq!(seen.unwrap(), [1, 2, 3]);
}

/// The index shows the third bid before the second.
#[tokio::test]
async fn a_page_of_history_ends_before_a_gap() {
    let house = open(Layout::OneItem).await;
    for n in 1..=3 {
        accepted(&house, n).await;
    }
    let second = house.history().await.remove(1);
    let cloud = house.house.cloud();
    let delete = cloud.dynamodb().delete_item();
    let delete = delete.table_name(cloud.names().table("bids"));
    let delete = delete.key("bid_id", s(&second.bid_id));
    delete.key("auction_id", s(&house.id)).send().await.unwrap();
    let page = house.house.history_page(&house.id, 0, 10).await.unwrap();
    let shown: Vec<_> = page.iter().map(|bid| bid.sequence.unwrap()).collect();
    assert_eq!(shown, [1]);
}
