//! The JSON API, over real sockets, with everything beside it: processor, reconciler, deliverer.
#![allow(clippy::unwrap_used)]

mod shop;

use payments::api::serve_until;
use payments::processor::{NOTICE_SECRET, Processor};
use payments::{Payments, ProcessorClient, signature};
use serde_json::{Value, json};
use serving::client::Served;
use shop::*;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// A server as `serve` makes it, on the system's clock.
async fn serve() -> (Shop, Served) {
    let options = cloud::Options {
        prefix: None,
        ..cloud::Options::from_env().unwrap()
    };
    let shop = open_on(cloud::connect_with(options).await.unwrap()).await;
    let outside = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", outside.local_addr().unwrap());
    let base = reqwest::Url::parse(&base).unwrap();
    let cloud = chaos::World::cloud(&shop).clone();
    let to = ProcessorClient::new(&cloud, shop.client(), base, NOTICE_SECRET).unwrap();
    let payments = Payments::new(cloud.clone(), to, shop.client()).unwrap();
    let processor = Processor::new(cloud.clock().clone());
    let served = Served::start(move |listener, stop| {
        serve_until(payments, processor, outside, listener, stop)
    });
    (shop, served.await.unwrap())
}

struct Answer {
    status: u16,
    text: String,
    json: Value,
    retry_after: Option<String>,
}

async fn post(server: &Served, path: &str, key: &str, body: Value) -> Answer {
    let request = server
        .http
        .post(format!("{}{path}", server.base))
        .header("merchant-id", "shop")
        .header("idempotency-key", key)
        .json(&body);
    let answer = request.send().await.unwrap();
    let header = answer.headers().get("retry-after");
    let retry_after = header.map(|value| value.to_str().unwrap().to_owned());
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    Answer {
        status,
        json: serde_json::from_str(&text).unwrap_or(Value::Null),
        text,
        retry_after,
    }
}

async fn get(server: &Served, path: &str, merchant: &str) -> (u16, Value) {
    let request = server.http.get(format!("{}{path}", server.base));
    let answer = request
        .header("merchant-id", merchant)
        .send()
        .await
        .unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

fn id(answer: &Answer) -> String {
    let id = &answer.json["payment"]["payment_intent_id"];
    id.as_str().unwrap().to_owned()
}

fn eur(amount: i64, card: &str) -> Value {
    json!({"amount": amount, "currency": "EUR", "card": card})
}

/// Asks again and again until it is so.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_payment_is_made_held_taken_and_given_back_with_curl_alone() {
    let (shop, server) = serve().await;
    let paid = post(&server, "/payment_intents", "k-1", eur(19_99, "card-ok")).await;
    assert_eq!(paid.status, 200, "{}", paid.text);
    assert_eq!(paid.json["payment"]["status"], "SUCCEEDED");
    assert_eq!(paid.json["payment"]["amount_text"], "19.99 EUR");
    let again = post(&server, "/payment_intents", "k-1", eur(19_99, "card-ok")).await;
    assert_eq!(
        (again.status, &again.text),
        (200, &paid.text),
        "byte for byte"
    );
    let reused = post(&server, "/payment_intents", "k-1", eur(20_00, "card-ok")).await;
    assert_eq!(reused.status, 422, "{}", reused.text);
    let declined = post(
        &server,
        "/payment_intents",
        "k-2",
        eur(5_00, "card-declined"),
    )
    .await;
    assert_eq!(declined.status, 402);
    let path = format!("/payment_intents/{}/charge", id(&declined));
    let charged = post(&server, &path, "k-3", json!({"card": "card-ok"})).await;
    assert_eq!(
        charged.json["payment"]["status"], "SUCCEEDED",
        "{}",
        charged.text
    );

    let mut hold = eur(100_00, "card-ok");
    hold["capture_method"] = "MANUAL".into();
    let held = post(&server, "/payment_intents", "k-4", hold).await;
    assert_eq!(held.json["payment"]["status"], "AUTHORIZED");
    let id = id(&held);
    let path = |verb: &str| format!("/payment_intents/{id}/{verb}");
    let too_much = post(&server, &path("capture"), "k-5", json!({"amount": 100_01})).await;
    assert_eq!(too_much.status, 409);
    assert_eq!(
        too_much.json["error"],
        "100.01 EUR is more than the 100.00 EUR that can be captured"
    );
    let taken = post(&server, &path("capture"), "k-6", json!({"amount": 60_00})).await;
    assert_eq!(taken.json["payment"]["captured"], 60_00, "{}", taken.text);
    let given_back = post(&server, &path("refund"), "k-7", json!({"amount": 20_00})).await;
    assert_eq!(given_back.status, 200);
    let let_go = post(&server, &path("cancel"), "k-8", json!({})).await;
    assert_eq!(let_go.json["payment"]["status"], "SUCCEEDED");
    let (_, ledger) = get(&server, &path("ledger"), "shop").await;
    assert_eq!(ledger.as_array().unwrap().len(), 4);
    let (_, events) = get(&server, &path("events"), "shop").await;
    assert_eq!(events.as_array().unwrap().len(), 9);

    let everything = 3 + 6 + 9;
    until("the merchant has it all", async || {
        shop.merchant.received().len() >= everything
    })
    .await;
    assert_eq!(shop.merchant.refused(), 0);
    server.stopped().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_unknown_is_found_out_when_the_notice_comes() {
    let (_shop, server) = serve().await;
    let pending = || {
        post(
            &server,
            "/payment_intents",
            "k-1",
            eur(7_00, "card-pending"),
        )
    };
    let unknown = pending().await;
    assert_eq!(unknown.status, 202);
    let path = format!("/payment_intents/{}", id(&unknown));
    until("it is known", async || {
        let (_, view) = get(&server, &path, "shop").await;
        view["status"] == "SUCCEEDED"
    })
    .await;
    assert_eq!(pending().await.text, unknown.text, "the first answer stays");
    server.stopped().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_requests_are_answered_with_what_is_wrong() {
    let (_shop, server) = serve().await;
    let bare = server.http.post(format!("{}/payment_intents", server.base));
    let answer = bare.json(&eur(1, "card-ok")).send().await.unwrap();
    assert_eq!(answer.status(), 400);
    let text = answer.text().await.unwrap();
    assert!(text.contains("Merchant-Id"), "{text}");
    for (body, says) in [
        (eur(0, "card-ok"), "from 1 to"),
        (
            json!({"amount": 1, "currency": "XYZ", "card": "c"}),
            "'XYZ' is no currency",
        ),
        (
            json!({"amount": 1.5, "currency": "EUR", "card": "c"}),
            "invalid type",
        ),
        (
            json!({"amount": 1, "currency": "EUR"}),
            "missing field `card`",
        ),
        (
            json!({"amount": 1, "currency": "EUR", "card": "c", "tip": 1}),
            "unknown field `tip`",
        ),
    ] {
        let answer = post(&server, "/payment_intents", "k", body).await;
        assert_eq!(answer.status, 400, "{}", answer.text);
        assert!(answer.text.contains(says), "{}", answer.text);
    }
    let paid = post(&server, "/payment_intents", "k", eur(1_00, "card-ok")).await;
    assert_eq!((paid.status, &paid.retry_after), (200, &None));
    let path = format!("/payment_intents/{}", id(&paid));
    let (status, _) = get(&server, &path, "thief").await;
    assert_eq!(status, 404, "others learn nothing");
    let (status, _) = get(&server, "/payment_intents/none", "shop").await;
    assert_eq!(status, 404);
    let (status, _) = get(&server, "/nowhere", "shop").await;
    assert_eq!(status, 404);
    let capture = post(&server, &format!("{path}/capture"), "k-2", json!({})).await;
    assert_eq!(capture.status, 409);
    assert_eq!(
        capture.json["error"],
        "the payment is SUCCEEDED: it cannot be captured"
    );

    let url = format!("{}/processor/notices", server.base);
    let said = serde_json::to_string(&approved("none-1")).unwrap();
    let send = |signed: String| {
        let request = server.http.post(&url).header(signature::HEADER, signed);
        request.body(said.clone()).send()
    };
    let unsigned = send("t=1,v1=00".into()).await.unwrap();
    assert_eq!(unsigned.status(), 401);
    let now = cloud::Clock::System.now();
    let unknown = send(signature::sign(&[NOTICE_SECRET], &said, now));
    assert_eq!(unknown.await.unwrap().status(), 404);
    let replay = post(&server, "/webhooks/none/1/replay", "k", json!({})).await;
    assert_eq!(replay.status, 404);
    server.stopped().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_still_running_is_told_when_to_ask_again() {
    let (_shop, server) = serve().await;
    // The processor's answer comes in fifteen seconds; nobody here waits for it.
    let asks = || post(&server, "/payment_intents", "k", eur(1_00, "card-late"));
    let told = tokio::select! {
        told = asks() => told,
        told = asks() => told,
    };
    assert_eq!(told.status, 409);
    let seconds: u64 = told.retry_after.unwrap().parse().unwrap();
    assert!((1..=31).contains(&seconds), "{seconds}");
}
