//! Redis carries events and nothing else: without it, `serve` starts, takes bids and shows events.
//!
//! The command itself is run, as a process with a `REDIS_URL` of its own, on the DynamoDB of the test.
#![allow(clippy::unwrap_used)]

use cloud::Backend;
use futures::StreamExt;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// How long an answer may take: less than any wait for Redis.
const PATIENCE: Duration = Duration::from_secs(5);

struct Serving {
    process: Child,
    base: String,
    http: reqwest::Client,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    /// `auction serve` on this DynamoDB, with Redis at that address.
    async fn start(dynamodb: &str, redis: String) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_auction"))
            .args(["serve", "--backend", "aws", "--listen", "127.0.0.1:0"])
            .env("REDIS_URL", redis)
            .env("AWS_ENDPOINT_URL", dynamodb)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let listening = tokio::task::spawn_blocking(move || {
            let mut lines = said.lines().map_while(Result::ok);
            lines.find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()))
        });
        Self {
            process,
            base: listening.await.unwrap().unwrap(),
            http: reqwest::Client::new(),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let request = self.http.post(format!("{}{path}", self.base)).json(&body);
        let sent = request.timeout(PATIENCE).send().await.unwrap();
        serde_json::from_str(&sent.text().await.unwrap()).unwrap()
    }

    async fn bid(&self, bidder: &str, amount: i64) -> Value {
        let bid =
            json!({"bid_id": bidder, "bidder_id": bidder, "currency": "EUR", "amount": amount});
        self.post("/auctions/a-1/bids", bid).await
    }

    /// What the event stream says, up to this event.
    async fn events(&self, after: u64, until: &str) -> String {
        let request = self.http.get(format!("{}/auctions/a-1/events", self.base));
        let request = request.header("last-event-id", after.to_string());
        let mut text = String::new();
        let reading = async {
            let mut body = request.send().await.unwrap().bytes_stream();
            while !text.contains(until) {
                let bytes = body.next().await.unwrap().unwrap();
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
        };
        tokio::time::timeout(PATIENCE, reading).await.unwrap();
        text
    }
}

/// Where the DynamoDB of a test listens, if that is within this process.
async fn embedded_dynamodb(cloud: &cloud::Cloud) -> Option<String> {
    let address = Arc::new(Mutex::new(String::new()));
    let seen = Arc::clone(&address);
    let asked = cloud.dynamodb().list_tables().customize();
    let asked = asked.mutate_request(move |request| *seen.lock().unwrap() = request.uri().into());
    asked.send().await.unwrap();
    let address = address.lock().unwrap().clone();
    (cloud.backend() == Backend::Embedded).then_some(address)
}

async fn an_auction_is_held_without(redis: String) {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let Some(dynamodb) = embedded_dynamodb(&cloud).await else {
        return;
    };
    let serving = Serving::start(&dynamodb, redis).await;
    let auction = json!({
        "auction_id": "a-1", "item_id": "i-1", "seller_id": "sam", "title": "Brass telescope",
        "currency": "EUR", "starting_price": 10000, "lasts_seconds": 600,
    });
    assert_eq!(serving.post("/auctions", auction).await["status"], "OPEN");
    assert_eq!(serving.bid("alice", 100_00).await["sequence"], 1);
    assert!(serving.events(0, "id: 1").await.contains("alice"));
    // The publisher has failed to publish the first bid by now, which changes nothing.
    assert_eq!(serving.bid("bob", 150_00).await["sequence"], 2);
    assert!(serving.events(1, "id: 2").await.contains("bob"));
}

#[tokio::test]
async fn an_auction_is_held_while_nothing_listens_at_the_address_of_redis() {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    an_auction_is_held_without(format!("redis://{address}")).await;
}

#[tokio::test]
async fn an_auction_is_held_while_redis_accepts_and_never_answers() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        let mut accepted = Vec::new();
        while let Ok((connection, _)) = silent.accept().await {
            accepted.push(connection);
        }
    });
    an_auction_is_held_without(format!("redis://{address}")).await;
    accepting.abort();
}
