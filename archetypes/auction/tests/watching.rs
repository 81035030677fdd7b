//! Watchers of an auction: what they are told, and what it costs the tables.
#![allow(clippy::unwrap_used)]

mod house;

use auction::broadcast::{Event, Hub};
use auction::{AuctionHouse, BidOutcome, Layout, Offer};
use chaos::{Says, Stuck};
use cloud::item::s;
use cloud::tap::{Call, Plan, Recording, Request, Service, Verdict};
use futures::future::{BoxFuture, join_all};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use house::{HOUR, House, open, plain, subscribed};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;

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
    subscribed(&house).await;
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

/// How long the index shows nothing of a bid.
const LAG: Duration = Duration::from_millis(300);

async fn say(house: &House, n: u64) {
    let cloud = house.house.cloud();
    let said = json!({
        "auction_id": house.id, "sequence": n, "status": "OPEN", "best_amount": n * 1_000_00,
        "best_bidder_id": format!("bidder-{n}"), "end_time": 1,
    });
    let mut redis = cloud.redis().await.unwrap();
    let channel = cloud.names().key("events");
    let said = redis::AsyncCommands::publish(&mut redis, channel, said.to_string());
    let _: () = said.await.unwrap();
}

/// Redis speaks while the tables are away, before the feed has read them once.
#[tokio::test]
async fn what_redis_says_before_the_first_look_is_heard_once() {
    let house = open(Layout::OneItem).await;
    for n in 1..=2 {
        accepted(&house, n).await;
    }
    let left = AtomicUsize::new(2);
    let away = Says(move |request: &Request| {
        let fails = request.operation == "GetItem"
            && left
                .fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1))
                .is_ok();
        let body = json!({"__type": "com.amazon.coral.validate#ValidationException"});
        if fails {
            Verdict::Answer { status: 400, body }
        } else {
            Verdict::Pass
        }
    });
    let _away = house.house.cloud().tap().install(Arc::new(away));
    let hub = Hub::start(house.house.clone()).believing_silence(Duration::from_millis(50));
    let mut watcher = watcher(&hub, &house, 0);
    let saying = async {
        let mut again = tokio::time::interval(Duration::from_millis(10));
        loop {
            again.tick().await;
            say(&house, 1).await;
            say(&house, 2).await;
        }
    };
    let first = tokio::select! {
        () = saying => unreachable!("it never ends"),
        first = watcher.next() => first,
    };
    assert_eq!((first, watcher.next().await), (Some(1), Some(2)));
    accepted(&house, 3).await;
    let third = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await;
    assert_eq!(third.unwrap(), Some(3));
}

/// Bids that do not stop, on an auction whose index lags. Each is said in Redis as a publisher says it, except
/// for the lost ones.
struct Busy {
    house: Arc<House>,
    placed: Arc<Mutex<Vec<Instant>>>,
    bidding: tokio::task::JoinHandle<()>,
    _lagging: cloud::tap::Installed,
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.bidding.abort();
    }
}

impl Busy {
    async fn auction(lost: impl Fn(u64) -> bool + Send + 'static) -> Self {
        let house = Arc::new(open(Layout::OneItem).await);
        let placed: Arc<Mutex<Vec<Instant>>> = Arc::default();
        let lagging = Self::lagging(placed.clone());
        let lagging = house.house.cloud().tap().install(Arc::new(lagging));
        let bidding = tokio::spawn(Self::bidding(house.clone(), placed.clone(), lost));
        Self {
            house,
            placed,
            bidding,
            _lagging: lagging,
        }
    }

    /// The index shows the bids that are older than [`LAG`].
    fn lagging(
        placed: Arc<Mutex<Vec<Instant>>>,
    ) -> Says<impl Fn(&Request) -> Verdict + Send + Sync> {
        Says(move |request: &Request| {
            if request.operation != "Query" {
                return Verdict::Pass;
            }
            let placed = placed.lock().unwrap();
            let shown = placed.iter().filter(|at| at.elapsed() >= LAG).count() as u64;
            let mut body = request.body.clone();
            let after = body["ExpressionAttributeValues"][":after"]["N"].as_str();
            if shown <= after.unwrap().parse().unwrap() {
                let body = json!({"Items": [], "Count": 0, "ScannedCount": 0});
                return Verdict::Answer { status: 200, body };
            }
            let after: u64 = after.unwrap().parse().unwrap();
            let values = &mut body["ExpressionAttributeValues"];
            values.as_object_mut().unwrap().remove(":after");
            values[":low"] = json!({"N": (after + 1).to_string()});
            values[":high"] = json!({"N": shown.to_string()});
            let within = "auction_id = :auction AND bid_sequence BETWEEN :low AND :high";
            body["KeyConditionExpression"] = json!(within);
            Verdict::Rewrite(body)
        })
    }

    async fn bidding(
        house: Arc<House>,
        placed: Arc<Mutex<Vec<Instant>>>,
        lost: impl Fn(u64) -> bool,
    ) {
        let mut next = tokio::time::interval(Duration::from_millis(20));
        for n in 1.. {
            next.tick().await;
            accepted(&house, n as i64).await;
            placed.lock().unwrap().push(Instant::now());
            if !lost(n) {
                say(&house, n).await;
            }
        }
    }

    /// Follows until so many bids after `from` are heard; gives the queries that were made meanwhile.
    async fn hears(&self, watcher: &mut Watcher, from: u64, bids: u64) -> usize {
        let recording = self.house.house.cloud().tap().record();
        let hearing = async {
            for expected in from + 1..=from + bids {
                assert_eq!(watcher.next().await, Some(expected));
            }
        };
        let heard = tokio::time::timeout(Duration::from_secs(10), hearing).await;
        let calls = recording.take().into_iter();
        let queries = calls.filter(|call| call.request.operation == "Query");
        let queries = queries.count();
        heard.unwrap_or_else(|_| panic!("it does not hear them; {queries} queries"));
        queries
    }

    fn bids(&self) -> u64 {
        self.placed.lock().unwrap().len() as u64
    }
}

#[tokio::test]
async fn a_new_watcher_hears_an_auction_whose_bids_do_not_stop() {
    let busy = Busy::auction(|_| false).await;
    let hub = Hub::start(busy.house.house.clone()).believing_silence(HOUR);
    while busy.bids() < 30 {
        tokio::task::yield_now().await;
    }
    let queries = busy.hears(&mut watcher(&hub, &busy.house, 0), 0, 150).await;
    assert!(queries <= 40, "{queries} queries");
}

/// Three messages are lost, far from each other.
#[tokio::test]
async fn a_lost_message_costs_a_busy_auction_a_few_queries() {
    let busy = Busy::auction(|n| [40, 80, 120].contains(&n)).await;
    let hub = Hub::start(busy.house.house.clone()).believing_silence(HOUR);
    let mut watcher = watcher(&hub, &busy.house, 0);
    busy.hears(&mut watcher, 0, 30).await;
    let queries = busy.hears(&mut watcher, 30, 130).await;
    assert!(queries <= 40, "{queries} queries");
}

/// A Redis that takes a subscription, and whose host is gone after that: no message, no end, no answer.
async fn gone_after_subscribing() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = vec![0; 4_096];
                loop {
                    let length = connection.read(&mut asked).await.unwrap_or(0);
                    let text = String::from_utf8_lossy(&asked[..length]);
                    let channel = text.lines().find(|line| line.contains("events"));
                    let answer = match channel {
                        _ if length == 0 => return,
                        Some(channel) => {
                            let length = channel.len();
                            format!("*3\r\n$9\r\nsubscribe\r\n${length}\r\n{channel}\r\n:1\r\n")
                        }
                        None if text.contains("PING") => continue,
                        None => "+OK\r\n".repeat(text.matches('*').count()),
                    };
                    connection.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    format!("redis://{address}")
}

/// The feed believes any silence here: what is heard, a new subscription has brought.
#[tokio::test]
async fn a_subscription_that_falls_silent_is_made_again() {
    let house = open(Layout::OneItem).await;
    let redis = gone_after_subscribing().await;
    let deaf = house.house.cloud().with_redis_at(&redis);
    let hub = Hub::start(AuctionHouse::new(deaf, Layout::OneItem)).believing_silence(HOUR);
    let mut watcher = watcher(&hub, &house, 0);
    for n in 1..=2 {
        accepted(&house, n).await;
        let heard = tokio::time::timeout(Duration::from_secs(10), watcher.next()).await;
        assert_eq!(heard.unwrap(), Some(n as u64));
    }
}

/// The tables accept a call and do not answer. It says when one hangs.
#[derive(Default)]
struct Hangs(Notify);

impl Plan for Hangs {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if request.service == Service::DynamoDb {
                self.0.notify_one();
                let () = std::future::pending().await;
            }
            Verdict::Pass
        })
    }
}

/// A silence is looked into. A call to the tables hangs for a quarter of a minute, its sendings together.
#[tokio::test]
async fn what_redis_says_is_heard_while_the_tables_hang() {
    let (house, _hub, _recording, mut watchers) = fifty(Duration::from_millis(500)).await;
    let hangs = Arc::new(Hangs::default());
    let _hangs = house.house.cloud().tap().install(hangs.clone());
    hangs.0.notified().await;
    say(&house, 2).await;
    assert_eq!(next_of_all(&mut watchers).await, [2; 50]);
}

/// Redis says nothing here, so each event costs a look at the tables. A look that hangs is given up after two
/// seconds: by then, the watchers of the other auction have heard their events.
#[tokio::test]
async fn an_auction_whose_tables_hang_leaves_the_watchers_of_another_at_their_pace() {
    let (house, hub, _recording, mut watchers) = fifty(Duration::from_millis(20)).await;
    let cloud = house.house.cloud();
    let sick = house.house.create_auction(plain(cloud)).await.unwrap();
    let stuck = Arc::new(Stuck::hanging(&sick.auction_id));
    let _stuck = cloud.tap().install(stuck.clone());
    let _waiting: Vec<_> = (0..50).map(|_| hub.follow(&sick.auction_id, 0)).collect();
    while stuck.met() == 0 {
        tokio::task::yield_now().await;
    }
    let hearing = async {
        for n in 2..=4 {
            accepted(&house, n).await;
            assert_eq!(next_of_all(&mut watchers).await, [n as u64; 50]);
        }
    };
    let heard = tokio::time::timeout(Duration::from_millis(1_800), hearing).await;
    heard.unwrap();
}

/// Whoever begins further back than the feed remembers reads those pages alone, and nothing else.
#[tokio::test]
async fn a_watcher_that_begins_far_back_reads_a_query_for_each_hundred_events() {
    let house = open(Layout::OneItem).await;
    for n in 1..=450 {
        accepted(&house, n).await;
    }
    let recording = house.house.cloud().tap().record();
    let hub = Hub::start(house.house.clone()).believing_silence(HOUR);
    let watchers = (0..50).map(|_| watcher(&hub, &house, 0).take(450).collect::<Vec<_>>());
    for heard in join_all(watchers).await {
        assert!(heard.into_iter().eq(1..=450));
    }
    let calls = recording.take();
    let of = |operation| {
        let of = |call: &&Call| call.request.operation == operation;
        calls.iter().filter(of).count()
    };
    assert!(of("GetItem") <= 4, "{} reads", of("GetItem"));
    assert!(of("Query") <= 50 * 4 + 2, "{} queries", of("Query"));
}

/// A page of the tables and a full hold come at once. The feed remembers both.
#[tokio::test]
async fn a_gap_with_many_held_events_costs_the_reads_of_one() {
    let house = open(Layout::OneItem).await;
    for n in 1..=356 {
        accepted(&house, n).await;
    }
    // The feed begins before the auction is there, and then the index lags.
    let (young, lags) = (AtomicBool::new(true), Arc::new(AtomicBool::new(true)));
    let lagging = lags.clone();
    let plan = Says(move |request: &Request| {
        let body = match request.operation.as_str() {
            "GetItem" if young.swap(false, SeqCst) => json!({}),
            "Query" if lagging.load(SeqCst) => json!({"Items": [], "Count": 0, "ScannedCount": 0}),
            _ => return Verdict::Pass,
        };
        Verdict::Answer { status: 200, body }
    });
    let tap = house.house.cloud().tap();
    let _plan = tap.install(Arc::new(plan));
    let hub = Hub::start(house.house.clone()).believing_silence(HOUR);
    subscribed(&house).await;
    let watchers: Vec<_> = (0..50).map(|_| watcher(&hub, &house, 0)).collect();
    hub.last_known(&house.id).await.unwrap();
    // What the feed of another auction hears last, this one has heard before.
    let other = house.house.create_auction(plain(house.house.cloud()));
    let other = House {
        id: other.await.unwrap().auction_id,
        house: house.house.clone(),
        late: house.late.clone(),
        layout: house.layout,
    };
    let mut others = watcher(&hub, &other, 0);
    hub.last_known(&other.id).await.unwrap();
    for n in 101..=356 {
        say(&house, n).await;
    }
    say(&other, 1).await;
    assert_eq!(others.next().await, Some(1));
    let recording = tap.record();
    lags.store(false, SeqCst);
    let all = join_all(
        watchers
            .into_iter()
            .map(|it| it.take(356).collect::<Vec<_>>()),
    );
    let all = tokio::time::timeout(Duration::from_secs(20), all).await;
    for seen in all.unwrap() {
        assert!(seen.into_iter().eq(1..=356));
    }
    let reads = reads(&recording);
    assert!((1..=10).contains(&reads), "{reads} reads");
}

async fn delete_bid(house: &House, n: usize) {
    let bid = house.history().await.remove(n - 1);
    let cloud = house.house.cloud();
    let delete = cloud.dynamodb().delete_item();
    let delete = delete.table_name(cloud.names().table("bids"));
    let delete = delete.key("bid_id", s(&bid.bid_id));
    delete.key("auction_id", s(&house.id)).send().await.unwrap();
}

/// A row of the history is gone for good: the tables were restored to different seconds, say.
#[tokio::test]
async fn a_gap_that_never_closes_is_asked_for_less_and_less() {
    let house = open(Layout::OneItem).await;
    for n in 1..=103 {
        accepted(&house, n).await;
    }
    delete_bid(&house, 2).await;
    // The feed begins a page before the end, behind the gap. The watcher reads the history alone.
    let hub = Hub::start(house.house.clone()).believing_silence(HOUR);
    let mut watcher = watcher(&hub, &house, 0);
    assert_eq!(watcher.next().await, Some(1));
    let (asks, mut asked) = tokio::sync::mpsc::unbounded_channel();
    let plan = Says(move |request: &Request| {
        let after = &request.body["ExpressionAttributeValues"][":after"]["N"];
        if after == "1" {
            let _ = asks.send(());
        }
        Verdict::Pass
    });
    let _plan = house.house.cloud().tap().install(Arc::new(plan));
    let began = Instant::now();
    let watching = tokio::spawn(async move { watcher.next().await });
    for _ in 0..6 {
        asked.recv().await.unwrap();
    }
    // 50, 100, 200, 400 and 800 ms lie between them.
    assert!(began.elapsed() > Duration::from_millis(1_500));
    watching.abort();
}

/// The index shows the third bid before the second.
#[tokio::test]
async fn a_page_of_history_ends_before_a_gap() {
    let house = open(Layout::OneItem).await;
    for n in 1..=3 {
        accepted(&house, n).await;
    }
    delete_bid(&house, 2).await;
    let page = house.house.history_page(&house.id, 0, 10).await.unwrap();
    let shown: Vec<_> = page.iter().map(|bid| bid.sequence.unwrap()).collect();
    assert_eq!(shown, [1]);
}
