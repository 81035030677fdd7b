//! The publisher and the shards of the streams.
#![allow(clippy::unwrap_used)]

mod house;

use auction::broadcast::{Event, Hub};
use auction::publisher::Publisher;
use auction::{AuctionHouse, Layout, Offer};
use chaos::{LateCopies, Says, World};
use cloud::tap::{Amend, Call, Installed, Plan, Recording, Request, Service, Verdict};
use cloud::{Clock, Cloud, Millis, as_actor};
use futures::StreamExt;
use futures::future::{BoxFuture, join_all};
use futures::stream::BoxStream;
use house::{HOUR, House, Slow, forget, open_alone, subscribed};
use redis::AsyncCommands;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

/// DynamoDB Streams says no.
fn refused() -> Verdict {
    let body = json!({"__type": "ResourceNotFoundException", "message": "not now"});
    Verdict::Answer { status: 400, body }
}

fn said(body: serde_json::Value) -> Verdict {
    Verdict::Answer { status: 200, body }
}

fn of(recording: &Recording, operation: &str) -> Vec<Call> {
    let calls = recording.take().into_iter();
    calls
        .filter(|call| call.request.operation == operation)
        .collect()
}

async fn published_house() -> (House, Publisher) {
    let house = open_alone(Layout::OneItem).await;
    let mut publisher = Publisher::start(house.house.clone());
    publisher.publish_new().await.unwrap();
    (house, publisher)
}

async fn bids(house: &House, bids: impl IntoIterator<Item = i64>) {
    for n in bids {
        let bidder = format!("bidder-{n}");
        house.place(&bidder, Offer::Exactly(n * 1_000_00)).await;
    }
}

#[tokio::test]
async fn children_of_an_ended_shard_are_looked_for_until_they_are_found() {
    let (house, mut publisher) = published_house().await;
    let tap = house.house.cloud().tap();
    let recording = tap.record();
    let ends = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "GetRecords" => said(json!({"Records": []})),
            _ => Verdict::Pass,
        }
    })));
    publisher.publish_new().await.unwrap();
    drop(ends);

    let away = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "DescribeStream" => refused(),
            _ => Verdict::Pass,
        }
    })));
    publisher.publish_new().await.unwrap_err();
    drop(away);

    let _split = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "DescribeStream" => said(json!({"StreamDescription": {"Shards": [
                {"ShardId": "shardId-00000002-the-child"},
            ]}})),
            _ => Verdict::Pass,
        }
    })));
    recording.take();
    publisher.publish_new().await.unwrap();
    let asked = of(&recording, "GetShardIterator");
    assert!(
        asked
            .iter()
            .any(|call| call.request.body["ShardId"] == "shardId-00000002-the-child"),
        "{asked:?}"
    );
}

#[tokio::test]
async fn new_shards_are_looked_for_once_a_minute() {
    let (house, mut publisher) = published_house().await;
    let recording = house.house.cloud().tap().record();
    publisher.publish_new().await.unwrap();
    assert!(of(&recording, "DescribeStream").is_empty());
    house.house.cloud().clock().advance(Duration::from_secs(60));
    publisher.publish_new().await.unwrap();
    assert_eq!(of(&recording, "DescribeStream").len(), 2);
}

#[tokio::test]
async fn a_clock_that_is_set_back_delays_no_look_for_new_shards() {
    let (house, mut publisher) = published_house().await;
    let Clock::Manual(hands) = house.house.cloud().clock() else {
        unreachable!("a test's clock is turned by hand");
    };
    hands.fetch_sub(HOUR.as_millis() as i64, Ordering::SeqCst);
    let recording = house.house.cloud().tap().record();
    publisher.publish_new().await.unwrap();
    assert_eq!(of(&recording, "DescribeStream").len(), 2);
}

#[tokio::test]
async fn a_shard_that_fails_stops_no_other() {
    for fails in [0, 1] {
        let (house, mut publisher) = published_house().await;
        house.place("alice", Offer::Exactly(120_00)).await;
        house.late.close_auction(&house.id).await.unwrap();
        let tap = house.house.cloud().tap();
        let recording = tap.record();
        let reads = AtomicUsize::new(0);
        let failing = tap.install(Arc::new(Says(move |request: &Request| {
            let read = request.operation == "GetRecords";
            if read && reads.fetch_add(1, Ordering::SeqCst) == fails {
                refused()
            } else {
                Verdict::Pass
            }
        })));
        publisher.publish_new().await.unwrap_err();
        drop(failing);
        assert_eq!(of(&recording, "PUBLISH").len(), 1, "of the other shard");
        assert_eq!(publisher.publish_new().await.unwrap(), 1);
    }
}

/// One call of a kind hangs: the first or the second.
struct OneHangs {
    operation: &'static str,
    hangs: usize,
    seen: AtomicUsize,
}

impl Plan for OneHangs {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let meant = request.operation == self.operation;
            if meant && self.seen.fetch_add(1, Ordering::SeqCst) == self.hangs {
                let () = std::future::pending().await;
            }
            Verdict::Pass
        })
    }
}

/// The publisher waits two seconds for one answer. The SDK would wait twenty.
async fn a_shard_hangs_and_stops_no_other(operation: &'static str, hangs: usize) {
    let house = open_alone(Layout::OneItem).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    house.late.close_auction(&house.id).await.unwrap();
    let mut publisher = Publisher::start(house.house.clone());
    let tap = house.house.cloud().tap();
    let hanging = tap.install(Arc::new(OneHangs {
        operation,
        hangs,
        seen: AtomicUsize::new(0),
    }));
    let recording = tap.record();
    let began = Instant::now();
    publisher.publish_new().await.unwrap_err();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{operation}: {took:?}");
    let said = of(&recording, "PUBLISH").len();
    assert_eq!(said, 1, "{operation} of shard {hangs} hangs");
    drop(hanging);
    assert_eq!(publisher.publish_new().await.unwrap(), 1);
}

#[tokio::test]
async fn a_shard_that_hangs_stops_no_other() {
    let cases = [
        ("GetRecords", 0),
        ("GetRecords", 1),
        ("GetShardIterator", 0),
        ("GetShardIterator", 1),
    ];
    let cases = cases.map(|(operation, hangs)| a_shard_hangs_and_stops_no_other(operation, hangs));
    join_all(cases).await;
}

/// Every PUBLISH takes a sixth of a second, so a page of thirty takes five.
#[tokio::test]
async fn a_page_that_takes_longer_than_patience_goes_on_where_it_stopped() {
    let (house, mut publisher) = published_house().await;
    bids(&house, 1..=30).await;
    let slow = Slow::by(Duration::from_millis(160), |request| {
        request.operation == "PUBLISH"
    });
    let _slow = house.house.cloud().tap().install(Arc::new(slow));
    let mut published = 0;
    for pass in 1..=4 {
        let events = publisher.publish_new().await.unwrap();
        assert!(
            events > 0,
            "pass {pass} published nothing after {published}"
        );
        published += events;
        if published == 30 {
            assert_eq!(publisher.publish_new().await.unwrap(), 0);
            return;
        }
    }
    panic!("{published} of 30 events in six passes");
}

/// The page's tenth PUBLISH fails. Those before it are not said again.
#[tokio::test]
async fn a_page_that_fails_goes_on_where_it_failed() {
    let (house, mut publisher) = published_house().await;
    bids(&house, 1..=20).await;
    let tap = house.house.cloud().tap();
    let said = AtomicUsize::new(0);
    let failing = tap.install(Arc::new(Says(move |request: &Request| {
        if request.operation == "PUBLISH" && said.fetch_add(1, Ordering::SeqCst) == 9 {
            refused()
        } else {
            Verdict::Pass
        }
    })));
    publisher.publish_new().await.unwrap_err();
    drop(failing);
    assert_eq!(publisher.publish_new().await.unwrap(), 11);
}

/// The way from one node to DynamoDB Streams is broken; its way to Redis is not.
fn sick(house: &House) -> Installed {
    let sick = Says(|request: &Request| match request.operation.as_str() {
        "GetRecords" if &*request.actor == "sick" => refused(),
        _ => Verdict::Pass,
    });
    house.house.cloud().tap().install(Arc::new(sick))
}

#[tokio::test]
async fn a_node_that_cannot_read_a_shard_leaves_it_to_another() {
    let house = open_alone(Layout::OneItem).await;
    let sickness = sick(&house);
    let mut sick = Publisher::start(house.house.clone());
    let mut well = Publisher::start(house.house.clone());
    bids(&house, [1]).await;
    for _ in 0..2 {
        as_actor("sick", sick.publish_new()).await.unwrap_err();
    }
    assert_eq!(well.publish_new().await.unwrap(), 1);
    // If there were no other node, the first one would try again after a lease.
    drop(sickness);
    forget(&house, "lease").await;
    bids(&house, [2]).await;
    assert_eq!(as_actor("sick", sick.publish_new()).await.unwrap(), 0);
    house.house.cloud().clock().advance(Duration::from_secs(5));
    assert_eq!(as_actor("sick", sick.publish_new()).await.unwrap(), 1);
}

/// While the read is on its way to fail, the lease ends and another node takes the shard.
struct Overtaken {
    house: House,
    by: Arc<tokio::sync::Mutex<Publisher>>,
}

impl Plan for Overtaken {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if request.operation != "GetRecords" || &*request.actor != "sick" {
                return Verdict::Pass;
            }
            forget(&self.house, "lease").await;
            let mut by = self.by.lock().await;
            as_actor("well", by.publish_new()).await.unwrap();
            refused()
        })
    }
}

#[tokio::test]
async fn a_node_gives_up_no_lease_but_its_own() {
    let house = open_alone(Layout::OneItem).await;
    let mut publisher = Publisher::start(house.house.clone());
    let sickness = sick(&house);
    as_actor("sick", publisher.publish_new()).await.unwrap_err();
    drop(sickness);
    let well = Publisher::start(house.house.clone());
    let well = Arc::new(tokio::sync::Mutex::new(well));
    let tap = house.house.cloud().tap().clone();
    let overtaken = Arc::new(Overtaken {
        house,
        by: well.clone(),
    });
    let _overtaken = tap.install(overtaken.clone());
    as_actor("sick", publisher.publish_new()).await.unwrap_err();
    let house = &overtaken.house;
    house.late.close_auction(&house.id).await.unwrap();
    let mut third = Publisher::start(house.house.clone());
    assert_eq!(third.publish_new().await.unwrap(), 0);
    assert_eq!(well.lock().await.publish_new().await.unwrap(), 1);
}

#[tokio::test]
async fn known_shards_are_published_while_looking_for_new_ones_hangs() {
    let (house, mut publisher) = published_house().await;
    house.house.cloud().clock().advance(Duration::from_secs(60));
    house.place("alice", Offer::Exactly(120_00)).await;
    let tap = house.house.cloud().tap();
    let hangs = Slow::by(HOUR, |request| request.operation == "DescribeStream");
    let hangs = tap.install(Arc::new(hangs));
    let recording = tap.record();
    let began = Instant::now();
    publisher.publish_new().await.unwrap_err();
    let took = began.elapsed();
    assert!(took < Duration::from_secs(6), "{took:?}");
    assert_eq!(of(&recording, "PUBLISH").len(), 1);
    drop(hangs);
    assert_eq!(publisher.publish_new().await.unwrap(), 0);
}

#[tokio::test]
async fn a_table_whose_stream_hangs_keeps_no_other_unpublished() {
    let house = open_alone(Layout::OneItem).await;
    house.late.close_auction(&house.id).await.unwrap();
    let hangs = Slow::by(HOUR, |request| {
        let described = request.body["StreamArn"].as_str();
        request.operation == "DescribeStream" && described.is_some_and(|arn| arn.contains("bids"))
    });
    let tap = house.house.cloud().tap();
    let _hangs = tap.install(Arc::new(hangs));
    let recording = tap.record();
    let mut publisher = Publisher::start(house.house.clone());
    publisher.publish_new().await.unwrap_err();
    assert_eq!(of(&recording, "PUBLISH").len(), 1, "the closing");
}

#[tokio::test]
async fn a_shard_is_published_by_the_node_that_holds_it() {
    let (house, mut holder) = published_house().await;
    let mut other = Publisher::start(house.house.clone());
    bids(&house, 1..=2).await;
    assert_eq!(other.publish_new().await.unwrap(), 0);
    assert_eq!(holder.publish_new().await.unwrap(), 2);
    assert_eq!(other.publish_new().await.unwrap(), 0);
}

#[tokio::test]
async fn a_node_that_takes_a_shard_over_goes_on_at_the_checkpoint() {
    let (house, mut first) = published_house().await;
    let mut second = Publisher::start(house.house.clone());
    bids(&house, 1..=2).await;
    assert_eq!(first.publish_new().await.unwrap(), 2);
    // The first node is away for longer than its lease.
    forget(&house, "lease").await;
    bids(&house, [3]).await;
    assert_eq!(second.publish_new().await.unwrap(), 1);
    // It comes back, finds its lease lost, and goes on behind the second one when that is away.
    bids(&house, [4]).await;
    assert_eq!(first.publish_new().await.unwrap(), 0);
    assert_eq!(second.publish_new().await.unwrap(), 1);
    forget(&house, "lease").await;
    bids(&house, [5]).await;
    assert_eq!(first.publish_new().await.unwrap(), 1);
}

/// A node that died holds its shards for five seconds, not for ever.
#[tokio::test]
async fn a_lease_ends_by_itself() {
    let (house, _publisher) = published_house().await;
    let names = house.house.cloud().names();
    let mut redis = house.house.cloud().redis().await.unwrap();
    let leases: Vec<String> = redis.keys(names.key("lease:*")).await.unwrap();
    assert_eq!(leases.len(), 2, "{leases:?}");
    for lease in leases {
        let left: i64 = redis.pttl(&lease).await.unwrap();
        assert!((1..=5_000).contains(&left), "{lease}: {left} ms");
    }
}

#[tokio::test]
async fn a_lease_that_is_forgotten_with_its_checkpoint_costs_repetitions_and_no_event() {
    let (house, mut first) = published_house().await;
    bids(&house, 1..=2).await;
    assert_eq!(first.publish_new().await.unwrap(), 2);
    forget(&house, "lease").await;
    forget(&house, "checkpoint").await;
    bids(&house, [3]).await;
    let mut second = Publisher::start(house.house.clone());
    assert_eq!(second.publish_new().await.unwrap(), 3);
    assert_eq!(first.publish_new().await.unwrap(), 0);
}

/// Every record up to the 150th bid is two minutes old.
struct Aged {
    now: Millis,
}

impl Plan for Aged {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let old = (self.now / 1_000) - 120;
        let age = move |answer: &Value| {
            let mut answer = answer.clone();
            for record in answer["Records"].as_array_mut()? {
                let change = &mut record["dynamodb"];
                let place = change["NewImage"]["bid_sequence"]["N"].as_str();
                if place?.parse::<u64>().ok()? <= 150 {
                    change["ApproximateCreationDateTime"] = json!(old);
                }
            }
            Some(answer)
        };
        Box::pin(async move {
            match request.operation.as_str() {
                "GetRecords" => Verdict::Amend(Amend(Arc::new(age))),
                _ => Verdict::Pass,
            }
        })
    }
}

/// The feeds have read in the tables what is older than a few of their silences.
#[tokio::test]
async fn a_new_bid_is_heard_soon_after_redis_forgot_the_checkpoints() {
    let (house, mut first) = published_house().await;
    bids(&house, 1..=150).await;
    assert_eq!(first.publish_new().await.unwrap(), 150);
    forget(&house, "lease").await;
    forget(&house, "checkpoint").await;
    bids(&house, [151]).await;
    let tap = house.house.cloud().tap();
    let now = house.house.cloud().now();
    let _aged = tap.install(Arc::new(Aged { now }));
    let recording = tap.record();
    let mut second = Publisher::start(house.house.clone());
    assert_eq!(second.publish_new().await.unwrap(), 1);
    assert_eq!(of(&recording, "PUBLISH").len(), 1);
    // The checkpoint is behind all of them.
    assert_eq!(second.publish_new().await.unwrap(), 0);
}

/// What the connections that were made before a failover speak with.
#[derive(Clone, Copy, PartialEq)]
enum OldPrimary {
    /// A host that is gone without a word.
    Silent,
    Replica,
}

/// The address of a Redis that fails over when the flag is set. The connections made after that are served.
async fn fails_over(old_primary: OldPrimary) -> (String, Arc<AtomicBool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let failed_over = Arc::new(AtomicBool::new(false));
    let fails_over = failed_over.clone();
    tokio::spawn(async move {
        while let Ok((mut connection, _)) = listener.accept().await {
            let failed_over = failed_over.clone();
            let is_new = failed_over.load(Ordering::SeqCst);
            tokio::spawn(async move {
                let mut asked = vec![0; 4_096];
                loop {
                    let length = connection.read(&mut asked).await.unwrap_or(0);
                    let text = String::from_utf8_lossy(&asked[..length]);
                    let says = |word| text.contains(&format!("\r\n{word}\r\n"));
                    let old = !is_new && failed_over.load(Ordering::SeqCst);
                    let answer = match old_primary {
                        _ if length == 0 => return,
                        OldPrimary::Silent if old => continue,
                        OldPrimary::Replica if old && (says("EVAL") || says("SETEX")) => {
                            "-READONLY You can't write against a read only replica.\r\n".into()
                        }
                        _ if says("EVAL") || says("PUBLISH") => ":1\r\n".into(),
                        _ if says("GET") => "$-1\r\n".into(),
                        _ => "+OK\r\n".repeat(text.matches('*').count()),
                    };
                    connection.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    (url, fails_over)
}

async fn is_published_after_a_failover(old_primary: OldPrimary) {
    let house = open_alone(Layout::OneItem).await;
    let (redis, fails_over) = fails_over(old_primary).await;
    let cloud = house.house.cloud().with_redis_at(&redis);
    let mut publisher = Publisher::start(AuctionHouse::new(cloud, Layout::OneItem));
    bids(&house, [1]).await;
    assert_eq!(publisher.publish_new().await.unwrap(), 1);
    fails_over.store(true, Ordering::SeqCst);
    bids(&house, [2]).await;
    publisher.publish_new().await.unwrap_err();
    assert_eq!(publisher.publish_new().await.unwrap(), 1);
}

#[tokio::test]
async fn a_publisher_whose_redis_falls_silent_connects_anew() {
    is_published_after_a_failover(OldPrimary::Silent).await;
}

#[tokio::test]
async fn a_publisher_whose_redis_became_a_replica_connects_anew() {
    is_published_after_a_failover(OldPrimary::Replica).await;
}

/// Two shards, and a look for new ones that is due.
#[tokio::test]
async fn a_pass_ends_at_the_first_command_that_redis_does_not_answer() {
    let (house, mut publisher) = published_house().await;
    house.house.cloud().clock().advance(Duration::from_secs(60));
    let tap = house.house.cloud().tap();
    let away = tap.install(Arc::new(Says(|request: &Request| {
        match request.operation.as_str() {
            "EVAL" => refused(),
            _ => Verdict::Pass,
        }
    })));
    let recording = tap.record();
    publisher.publish_new().await.unwrap_err();
    let calls = recording.take().into_iter();
    let asked: Vec<_> = calls.map(|call| call.request.operation).collect();
    assert_eq!(asked, ["EVAL"]);
    // What the pass left out, the next one does.
    drop(away);
    publisher.publish_new().await.unwrap();
    assert_eq!(of(&recording, "DescribeStream").len(), 2);
}

/// Two nodes that publish in turn, a feed, and an ear on the channel itself.
struct Nodes {
    /// The publishers' way passes the tap; all other work of the story goes beside it.
    house: AuctionHouse,
    beside: House,
    /// None while it publishes, and after it died so.
    publishers: [Mutex<Option<Publisher>>; 2],
    said: tokio::sync::Mutex<BoxStream<'static, String>>,
    heard: tokio::sync::Mutex<BoxStream<'static, u64>>,
}

impl World for Nodes {
    fn cloud(&self) -> &Cloud {
        self.house.cloud()
    }
}

impl Nodes {
    async fn new() -> Self {
        let open = open_alone(Layout::OneItem).await;
        let house = open.house.clone();
        let hub = Hub::start(house.clone()).believing_silence(HOUR);
        subscribed(&open).await;
        let heard = hub.follow(&open.id, 0);
        hub.last_known(&open.id).await.unwrap();
        let mut ear = house.cloud().redis_subscriber().await.unwrap();
        let channel = house.cloud().names().key("events");
        ear.subscribe(channel).await.unwrap();
        let said = ear.into_on_message();
        let beside =
            |house: &AuctionHouse| AuctionHouse::new(house.cloud().beside_tap(), Layout::OneItem);
        let mut nodes = [(); 2].map(|()| Publisher::start(house.clone()));
        for node in &mut nodes {
            node.publish_new().await.unwrap();
        }
        Self {
            beside: House {
                house: beside(&open.house),
                late: beside(&open.late),
                ..open
            },
            house,
            publishers: nodes.map(|node| Mutex::new(Some(node))),
            said: tokio::sync::Mutex::new(said.map(|it| it.get_payload().unwrap()).boxed()),
            heard: tokio::sync::Mutex::new(
                heard
                    .map(move |event| {
                        // The hub listens as long as there is one.
                        let _ = &hub;
                        event.unwrap().sequence
                    })
                    .boxed(),
            ),
        }
    }

    /// Some bids; then the last holder's leases end, and this node publishes.
    async fn pass(self: Arc<Self>, node: usize, new: &'static [i64]) {
        bids(&self.beside, new.iter().copied()).await;
        forget(&self.beside, "lease").await;
        let alive = self.publishers[node].lock().unwrap().take();
        let mut publisher = alive.unwrap_or_else(|| Publisher::start(self.house.clone()));
        publisher.publish_new().await.unwrap();
        *self.publishers[node].lock().unwrap() = Some(publisher);
    }

    /// What was said on the channel until now.
    async fn said(&self) -> Vec<u64> {
        let cloud = self.beside.house.cloud();
        let mut redis = cloud.redis().await.unwrap();
        let channel = cloud.names().key("events");
        let _: () = redis.publish(channel, "the end").await.unwrap();
        let mut messages = self.said.lock().await;
        let mut said = Vec::new();
        loop {
            match messages.next().await.unwrap().as_str() {
                "the end" => return said,
                text => said.push(serde_json::from_str::<Event>(text).unwrap().sequence),
            }
        }
    }

    /// The auction closes, and the nodes that live say the rest. Gives how many events were said twice.
    async fn all_is_heard_once_and_in_order(self: Arc<Self>) -> Result<usize, String> {
        let late = &self.beside.late;
        late.close_auction(&self.beside.id).await.unwrap();
        for node in 0..2 {
            self.clone().pass(node, &[]).await;
        }
        let said = self.said().await;
        let distinct: BTreeSet<_> = said.iter().copied().collect();
        if !distinct.iter().copied().eq(1..=4) {
            return Err(format!("said was {said:?}"));
        }
        let heard = self.heard.lock().await.by_ref().collect::<Vec<_>>().await;
        if !heard.iter().copied().eq(1..=4) {
            return Err(format!("heard was {heard:?}"));
        }
        Ok(said.len() - distinct.len())
    }
}

/// A late lease gives a shard to a node that is gone, and ends. A late checkpoint moves back, so the next node
/// repeats events, and so does a late message; the feed drops what it has heard.
#[tokio::test]
async fn a_late_copy_of_what_a_publisher_tells_redis_loses_and_repeats_no_event() {
    let repeated = Arc::new(AtomicUsize::new(0));
    let repeats = repeated.clone();
    let pass = |node, new| move |nodes: Arc<Nodes>| nodes.pass(node, new);
    let harmless = LateCopies::of(Nodes::new)
        .act("one", pass(0, &[1, 2]))
        .act("other", pass(1, &[3]))
        // Both shards are published by the same code.
        .only(|request| {
            let others = request.targets[0].resource.contains("auctions");
            request.service == Service::Redis && !others
        })
        .check(move |nodes| {
            let repeats = repeats.clone();
            async move {
                let twice = nodes.all_is_heard_once_and_in_order().await?;
                repeats.fetch_add(twice, Ordering::SeqCst);
                Ok(())
            }
        })
        .run()
        .await
        .unwrap();
    for command in ["EVAL", "PUBLISH", "SETEX"] {
        let copied = |landing: &&String| landing.contains(command);
        let copies = harmless.landings.iter().filter(copied).count();
        assert!(copies > 10, "{command}: {:?}", harmless.landings);
    }
    assert!(repeated.load(Ordering::SeqCst) > 0);
}
