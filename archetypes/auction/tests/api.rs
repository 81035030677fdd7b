//! The JSON API and the event stream, over real sockets.
#![allow(clippy::unwrap_used)]

mod house;

use auction::api::serve_until;
use auction::domain::Status;
use auction::tables::DUE_SHARDS;
use auction::{AuctionHouse, Ends, Layout, NewAuction};
use chaos::{Says, Stuck};
use cloud::tap::{Request, Service, Verdict};
use futures::StreamExt;
use house::{HOUR, LASTS, Slow, plain};
use serde_json::{Value, json};
use serving::client::Served;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;

struct Server {
    served: Served,
    house: AuctionHouse,
}

impl Deref for Server {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

async fn empty_house(layout: Layout) -> AuctionHouse {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    cloud.create_tables(auction::tables::TABLES).await.unwrap();
    AuctionHouse::new(cloud, layout)
}

async fn serve(layout: Layout) -> Server {
    serve_house(empty_house(layout).await).await
}

async fn serve_house(house: AuctionHouse) -> Server {
    let served = Served::start(|listener, stop| serve_until(house.clone(), listener, stop)).await;
    let served = served.unwrap();
    Server { served, house }
}

impl Server {
    async fn create(&self) -> String {
        let (status, auction) = self
            .post(
                "/auctions",
                json!({
                    "auction_id": "a-1", "item_id": "item-1", "seller_id": "sam", "title": "Brass telescope",
                    "currency": "EUR", "starting_price": 10000, "lasts_seconds": 3600,
                }),
            )
            .await;
        assert_eq!(status, 201, "{auction}");
        auction["auction_id"].as_str().unwrap().to_owned()
    }

    async fn bid(&self, id: &str, bidder: &str, amount: i64) -> (u16, Value) {
        let body = json!({"bid_id": format!("bid-of-{bidder}-{amount}"), "bidder_id": bidder, "currency": "EUR", "amount": amount});
        self.post(&format!("/auctions/{id}/bids"), body).await
    }

    /// The event stream from `after` on, until it ends.
    async fn events(&self, id: &str, after: u64) -> String {
        let request = self.http.get(format!("{}/auctions/{id}/events", self.base));
        let request = request.header("last-event-id", after.to_string());
        let mut body = request.send().await.unwrap().bytes_stream();
        let mut text = String::new();
        let all = async {
            while let Some(bytes) = body.next().await {
                text.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
            }
        };
        tokio::time::timeout(Duration::from_secs(10), all)
            .await
            .unwrap();
        text
    }
}

fn ids(events: &str) -> Vec<&str> {
    events
        .lines()
        .filter_map(|line| line.strip_prefix("id: "))
        .collect()
}

#[tokio::test]
async fn an_auction_can_be_held_with_curl_alone() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    let (status, first) = server.bid(&id, "alice", 100_00).await;
    assert_eq!((status, &first["status"]), (200, &json!("ACCEPTED")));
    let (status, low) = server.bid(&id, "bob", 100_00).await;
    assert_eq!(status, 409);
    assert_eq!(low["error"], "too low: the next bid must be at least 10250");
    let proxy =
        json!({"bid_id": "b-c", "bidder_id": "carol", "currency": "EUR", "max_amount": 50000});
    let (_, proxy) = server.post(&format!("/auctions/{id}/bids"), proxy).await;
    assert_eq!(proxy["best_amount"], 10250);
    let (_, view) = server.get(&format!("/auctions/{id}")).await;
    assert_eq!(view["best_bidder_id"], "carol");
    let (_, history) = server.get(&format!("/auctions/{id}/bids")).await;
    assert_eq!(
        history["bids"][1]["amount"],
        Value::Null,
        "how far Carol would go is hers to know"
    );
    let (status, _) = server
        .post(&format!("/auctions/{id}/close"), json!({}))
        .await;
    assert_eq!(status, 409, "not over yet");
    server
        .house
        .cloud()
        .clock()
        .advance(Duration::from_secs(3600));
    let (status, closed) = server
        .post(&format!("/auctions/{id}/close"), json!({}))
        .await;
    assert_eq!(
        (status, &closed["winner"]["bidder_id"]),
        (200, &json!("carol"))
    );
}

#[tokio::test]
async fn a_stream_of_events_ends_with_the_auction_and_can_be_resumed() {
    let server = serve(Layout::SeparateBest).await;
    let id = server.create().await;
    server.bid(&id, "alice", 100_00).await;
    let watching = server.events(&id, 0);
    let acting = async {
        server.bid(&id, "bob", 150_00).await;
        server
            .house
            .cloud()
            .clock()
            .advance(Duration::from_secs(3600));
        server
            .post(&format!("/auctions/{id}/close"), json!({}))
            .await;
    };
    let (events, ()) = tokio::join!(watching, acting);
    assert_eq!(ids(&events), ["1", "2", "3"], "{events}");
    assert!(events.contains("event: closed"));
    assert_eq!(ids(&server.events(&id, 1).await), ["2", "3"]);
    // Whoever has seen the end is told not to come back.
    let request = server
        .http
        .get(format!("{}/auctions/{id}/events", server.base));
    let ended = request.header("last-event-id", "3").send().await.unwrap();
    assert_eq!(ended.status().as_u16(), 204);
}

#[tokio::test]
async fn the_history_comes_in_pages() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    for (bidder, amount) in [("alice", 100_00), ("bob", 150_00), ("carol", 200_00)] {
        server.bid(&id, bidder, amount).await;
    }
    let page = async |query: &str| {
        let (status, page) = server.get(&format!("/auctions/{id}/bids{query}")).await;
        assert_eq!(status, 200, "{page}");
        let bids = page["bids"].as_array().unwrap();
        let bids: Vec<_> = bids.iter().map(|bid| bid["sequence"].clone()).collect();
        (bids, page["next"].clone())
    };
    assert_eq!(
        page("").await,
        (vec![json!(1), json!(2), json!(3)], Value::Null)
    );
    assert_eq!(page("?limit=2").await, (vec![json!(1), json!(2)], json!(2)));
    assert_eq!(
        page("?limit=2&after=2").await,
        (vec![json!(3)], Value::Null)
    );
    assert_eq!(page("?limit=3").await.1, Value::Null);
    assert_eq!(page("?after=3").await, (vec![], Value::Null));
    for wrong in ["limit=0", "limit=1001", "limit=-1", "after=x", "before=2"] {
        let (status, answer) = server.get(&format!("/auctions/{id}/bids?{wrong}")).await;
        assert_eq!(status, 400, "{wrong}: {answer}");
    }
}

#[tokio::test]
async fn an_event_id_beyond_the_last_event_is_refused() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    server.bid(&id, "alice", 100_00).await;
    let events = format!("{}/auctions/{id}/events", server.base);
    let request = server.http.get(events).header("last-event-id", "2");
    let request = request.timeout(Duration::from_secs(5));
    let refused = request.send().await.unwrap();
    assert_eq!(refused.status().as_u16(), 400);
    let said = refused.text().await.unwrap();
    assert!(
        said.contains("Last-Event-ID 2 is beyond the last event of this auction, 1"),
        "{said}"
    );
}

#[tokio::test]
async fn two_nodes_tell_their_subscribers_the_same() {
    let one = serve(Layout::SeparateBest).await;
    let other = serve_house(one.house.clone()).await;
    let id = one.create().await;
    let acting = async {
        one.bid(&id, "alice", 100_00).await;
        other.bid(&id, "bob", 150_00).await;
        one.house.cloud().clock().advance(Duration::from_secs(3600));
        other
            .post(&format!("/auctions/{id}/close"), json!({}))
            .await;
    };
    let (here, there, ()) = tokio::join!(one.events(&id, 0), other.events(&id, 0), acting);
    assert_eq!(ids(&here), ["1", "2", "3"], "{here}");
    assert_eq!(here, there);
}

#[tokio::test]
async fn wrong_requests_are_answered_with_what_is_wrong() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    let (status, answer) = server.get("/auctions/nowhere").await;
    assert_eq!(
        (status, &answer["error"]),
        (404, &json!("there is no auction 'nowhere'"))
    );
    let (status, answer) = server.get("/nowhere").await;
    assert_eq!(
        (status, &answer["error"]),
        (404, &json!("there is nothing here"))
    );
    let (status, answer) = server.post(&format!("/auctions/{id}"), json!({})).await;
    assert_eq!(
        (status, &answer["error"]),
        (405, &json!("not with this method"))
    );
    let (status, answer) = server
        .get(&format!("/auctions/{}", "x".repeat(3_000)))
        .await;
    assert_eq!(status, 404, "{answer}");
    let (status, answer) = server.bid(&id, "alice", -1).await;
    assert_eq!(status, 400);
    assert!(
        answer["error"].as_str().unwrap().contains("not -1"),
        "{answer}"
    );
    let both =
        json!({"bid_id": "b", "bidder_id": "a", "currency": "EUR", "amount": 1, "max_amount": 2});
    let (status, answer) = server.post(&format!("/auctions/{id}/bids"), both).await;
    assert_eq!(status, 400);
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .starts_with("give either amount"),
        "{answer}"
    );
    let (status, answer) = server.post("/auctions", json!({"title": "x"})).await;
    assert_eq!(status, 400);
    assert!(
        answer["error"].as_str().unwrap().contains("missing field"),
        "{answer}"
    );
    let unknown = json!({"bid_id": "b", "bidder_id": "a", "currency": "EUR", "ammount": 1});
    let (status, answer) = server.post(&format!("/auctions/{id}/bids"), unknown).await;
    assert_eq!(status, 400);
    assert!(
        answer["error"].as_str().unwrap().contains("ammount"),
        "{answer}"
    );
}

/// An auction with everything a seller may say.
fn full(id: &str) -> Value {
    json!({
        "auction_id": id, "item_id": "i", "seller_id": "sam", "title": "t", "currency": "EUR",
        "starting_price": 100_00, "reserve_price": 200_00, "buy_now_price": 900_00,
        "lasts_seconds": 600, "soft_close_ms": 60_000,
    })
}

#[tokio::test]
async fn no_value_at_its_limit_is_a_fault() {
    let server = serve(Layout::OneItem).await;
    let lasts = |number| full(&format!("lasts-{number}"));
    let sent = server.post_at_the_limits("/auctions", lasts).await;
    assert!(sent.unwrap() > 100);
    let end_time = server.house.cloud().now() + 3_600_000;
    let ends = |number| {
        let mut auction = full(&format!("ends-{number}"));
        auction.as_object_mut().unwrap().remove("lasts_seconds");
        auction["end_time"] = json!(end_time);
        auction
    };
    server.post_at_the_limits("/auctions", ends).await.unwrap();
    for offer in ["amount", "max_amount"] {
        let bid = |number| {
            let (bid_id, amount) = (format!("{offer}-{number}"), 100_00 * (number + 1));
            json!({"bid_id": bid_id, "bidder_id": "alice", "currency": "EUR", offer: amount})
        };
        assert_eq!(server.post("/auctions", full(offer)).await.0, 201);
        let path = format!("/auctions/{offer}/bids");
        server.post_at_the_limits(&path, bid).await.unwrap();
    }
    assert_eq!(server.post("/auctions", full("buy-now")).await.0, 201);
    let purchase = |number| json!({"bid_id": format!("purchase-{number}"), "bidder_id": "alice"});
    let path = "/auctions/buy-now/buy-now";
    server.post_at_the_limits(path, purchase).await.unwrap();
    // There is nothing to say about a closing, and the body is not read.
    let path = "/auctions/buy-now/close";
    server
        .post_at_the_limits(path, |_| json!({}))
        .await
        .unwrap();
}

/// Under a bid's id and with its maximum, the first answer comes again; with another one, a refusal. Who knows the
/// id of another's bid could try every amount.
#[tokio::test]
async fn the_id_of_a_bid_is_shown_to_nobody_else() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    let bid = json!({"bid_id": "known-to-alice", "bidder_id": "alice", "currency": "EUR", "max_amount": 457_00});
    let path = format!("/auctions/{id}/bids");
    let (_, told) = server.post(&path, bid.clone()).await;
    assert_eq!(told["status"], "ACCEPTED");
    let mut shown = vec![
        server.get(&format!("/auctions/{id}")).await.1,
        server.get(&path).await.1,
    ];
    let hour = Duration::from_secs(3_600);
    server.house.cloud().clock().advance(hour);
    let close = format!("/auctions/{id}/close");
    shown.push(server.post(&close, json!({})).await.1);
    shown.push(server.post(&close, json!({})).await.1);
    shown.push(server.events(&id, 0).await.into());
    for answer in shown {
        let answer = answer.to_string();
        assert!(answer.contains("alice"), "{answer}");
        assert!(!answer.contains("known-to-alice"), "{answer}");
        assert!(!answer.contains("45700"), "{answer}");
    }
    assert_eq!(server.post(&path, bid).await.1, told);
}

/// How often the auction, its history and its winner are read for the watchers of a page.
#[tokio::test]
async fn fifty_watchers_over_http_cost_the_reads_of_one() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    server.bid(&id, "alice", 100_00).await;
    let recording = server.house.cloud().tap().record();
    let events = format!("{}/auctions/{id}/events", server.base);
    let watching = (0..50).map(|_| async {
        let open = server.http.get(&events).send().await.unwrap();
        let mut body = open.bytes_stream();
        body.next().await.unwrap().unwrap();
        body
    });
    let open = futures::future::join_all(watching).await;
    let calls = recording.take().into_iter();
    let reads = calls.filter(|call| {
        let due = call.request.body["IndexName"] == "due";
        call.request.service == Service::DynamoDb && !call.request.is_write() && !due
    });
    let reads = reads.count();
    assert!((1..=6).contains(&reads), "{reads} reads");
    drop(open);
}

#[tokio::test]
async fn the_events_of_an_unknown_auction_are_refused_and_those_of_a_new_one_are_not() {
    let server = serve(Layout::OneItem).await;
    for unknown in ["nowhere".to_owned(), "x".repeat(3_000)] {
        let (status, answer) = server.get(&format!("/auctions/{unknown}/events")).await;
        assert_eq!(status, 404, "{answer}");
    }
    let id = server.create().await;
    let request = server
        .http
        .get(format!("{}/auctions/{id}/events", server.base));
    assert_eq!(request.send().await.unwrap().status().as_u16(), 200);
}

/// While DynamoDB hangs, a request for events is told so.
#[tokio::test]
async fn a_watcher_is_told_when_the_tables_do_not_answer() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    let hangs = Slow::by(HOUR, |request| request.operation == "GetItem");
    let _hangs = server.house.cloud().tap().install(Arc::new(hangs));
    let path = format!("/auctions/{id}/events");
    let told = tokio::time::timeout(Duration::from_secs(5), server.get(&path)).await;
    let (status, answer) = told.unwrap();
    assert_eq!(status, 503, "{answer}");
}

#[tokio::test]
async fn half_a_request_does_not_keep_the_server_from_stopping() {
    let server = serve(Layout::OneItem).await;
    let host = server.base.trim_start_matches("http://");
    let mut socket = tokio::net::TcpStream::connect(host).await.unwrap();
    socket.write_all(b"POST /auctions HT").await.unwrap();
    assert_eq!(server.get("/nowhere").await.0, 404);
    server.served.stopped().await.unwrap();
}

#[tokio::test]
async fn a_bid_is_placed_though_its_bidder_hangs_up() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    let path = format!("/auctions/{id}/bids");
    let bid = json!({"bid_id": "b-1", "bidder_id": "alice", "currency": "EUR", "amount": 10000});
    let tap = server.house.cloud().tap();
    let is_bid = |request: &cloud::tap::Request| request.operation == "TransactWriteItems";
    let hung_up = server.post_and_hang_up(&path, bid, tap, is_bid).await;
    hung_up.unwrap();
    let placed = async { while server.get(&path).await.1["bids"][0]["bidder_id"] != "alice" {} };
    let placed = tokio::time::timeout(Duration::from_secs(5), placed).await;
    assert!(placed.is_ok(), "the bid was dropped with its connection");
}

#[tokio::test]
async fn stopping_ends_open_event_streams() {
    let server = serve(Layout::OneItem).await;
    let id = server.create().await;
    server.bid(&id, "alice", 100_00).await;
    let request = server
        .http
        .get(format!("{}/auctions/{id}/events", server.base));
    let mut open = request.send().await.unwrap().bytes_stream();
    open.next().await.unwrap().unwrap();
    server.served.stopped().await.unwrap();
}

/// Waits until all of these are closed.
async fn closed(house: &AuctionHouse, ids: &[String]) {
    let mut look = tokio::time::interval(Duration::from_millis(50));
    for id in ids {
        while house.view_auction(id).await.unwrap().status != Status::Closed {
            look.tick().await;
        }
    }
}

/// Of two waves of auctions, the second one ends an hour later. One auction of the first wave hangs, and so does
/// one shard of the index. A sweep of all shards would wait two seconds for that shard before it closed anything.
/// The auction delays its own shard by as much, and a pause of a second lies between two sweeps.
#[tokio::test]
async fn the_server_closes_the_others_in_time_while_an_auction_and_a_shard_hang() {
    let house = empty_house(Layout::OneItem).await;
    let cloud = house.cloud();
    let mut waves = [Vec::new(), Vec::new()];
    for (wave, hours) in waves.iter_mut().zip(1..) {
        for _ in 0..16 {
            let new = NewAuction {
                ends: Ends::At(cloud.now() + hours * LASTS),
                ..plain(cloud)
            };
            wave.push(house.create_auction(new).await.unwrap().auction_id);
        }
    }
    let shard = |id: &String| cloud::item::shard_of(id, DUE_SHARDS);
    let stuck = waves[0].remove(0);
    let hangs = (shard(&stuck) + 1) % DUE_SHARDS;
    for wave in &mut waves {
        wave.retain(|id| shard(id) != hangs);
        assert!(wave.iter().any(|id| shard(id) == shard(&stuck)));
        assert!(wave.len() > 5, "{wave:?}");
    }
    let hanging = [stuck.clone(), format!("due-{hangs}")].map(|it| Arc::new(Stuck::hanging(&it)));
    let _plans = hanging.clone().map(|it| cloud.tap().install(it));
    cloud.clock().advance(HOUR);
    let _server = serve_house(house.clone()).await;
    let first = tokio::time::timeout(Duration::from_secs(2), closed(&house, &waves[0]));
    first.await.expect("the first wave");
    cloud.clock().advance(HOUR);
    let second = tokio::time::timeout(Duration::from_secs(5), closed(&house, &waves[1]));
    second.await.expect("the second wave");
    assert!(hanging.iter().all(|it| it.met() > 0));
}

#[tokio::test]
async fn a_panic_ends_no_closing_loop_and_keeps_no_other_auction_open() {
    let house = empty_house(Layout::OneItem).await;
    let cloud = house.cloud();
    let mut auctions = Vec::new();
    for _ in 0..8 {
        let auction = house.create_auction(plain(cloud)).await.unwrap();
        auctions.push(auction.auction_id);
    }
    // One look at the index panics, and each closing of one auction.
    let (left, bad) = (AtomicUsize::new(1), auctions.remove(0));
    let panics = Says(move |request: &Request| {
        let looks = request.shape().starts_with("Query auctions/due");
        let hit = looks && left.swap(0, Ordering::SeqCst) == 1;
        assert!(
            !hit && !request.body.to_string().contains(&bad),
            "made by this test"
        );
        Verdict::Pass
    });
    let _plan = cloud.tap().install(Arc::new(panics));
    cloud.clock().advance(HOUR);
    let _server = serve_house(house.clone()).await;
    let closed = tokio::time::timeout(Duration::from_secs(10), closed(&house, &auctions));
    closed.await.expect("the closing loops");
}
