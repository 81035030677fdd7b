//! Outgoing HTTP passes the tap as everything else does.
#![allow(clippy::unwrap_used)]

use axum::Router;
use axum::routing::{get, post};
use cloud::tap::{Outcome, Plan, Request, Service, Verdict};
use cloud::{Cloud, as_actor};
use futures::future::BoxFuture;
use reqwest_middleware::ClientWithMiddleware;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A till that counts what was really charged, and a client that calls it `till.test`.
async fn till() -> (Cloud, ClientWithMiddleware, Arc<AtomicUsize>) {
    let charged = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&charged);
    let charge = async move |body: String| {
        counted.fetch_add(1, Ordering::SeqCst);
        axum::Json(json!({"charged": body.len()}))
    };
    let router = Router::new()
        .route("/charges", post(charge))
        .route("/page", get(async || "a page"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = reqwest::Client::builder()
        .no_proxy()
        .resolve("till.test", address);
    let cloud = cloud::connect_for_tests().await.unwrap();
    let http = cloud.http(client.build().unwrap());
    (cloud, http, charged)
}

async fn charge(http: &ClientWithMiddleware) -> reqwest_middleware::Result<Value> {
    let request = http.post("http://till.test/charges?now=1");
    let request = request.header("idempotency-key", "key-1");
    let answer = request.json(&json!({"amount": 5})).send().await?;
    Ok(answer.json().await?)
}

/// Says the same of every request.
struct Always(Verdict);

impl Plan for Always {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = self.0.clone();
        Box::pin(async move { verdict })
    }
}

#[tokio::test]
async fn an_outgoing_request_is_seen_with_its_maker_and_its_answer_still_arrives() {
    let (cloud, http, charged) = till().await;
    let recording = cloud.tap().record();
    let answer = as_actor("payer", charge(&http)).await.unwrap();
    assert_eq!(answer, json!({"charged": 12}));
    let page = http.get("http://till.test/page").send().await.unwrap();
    assert_eq!(page.text().await.unwrap(), "a page");
    let gone = http.get("http://till.test/nowhere").send().await.unwrap();
    assert_eq!(gone.status(), 404);

    let calls = recording.calls();
    let shapes: Vec<_> = calls.iter().map(cloud::tap::Call::shape).collect();
    let expected = [
        "POST till.test/charges",
        "GET till.test/page",
        "GET till.test/nowhere",
    ];
    assert_eq!(shapes, expected);
    let first = &calls[0];
    assert_eq!(&*first.request.actor, "payer");
    assert_eq!(first.request.service, Service::Http);
    let body = json!({
        "query": "now=1", "headers": {"idempotency-key": "key-1"}, "json": {"amount": 5},
    });
    assert_eq!(first.request.body, body);
    assert_eq!(first.response, Some(json!({"charged": 12})));
    assert_eq!(calls[2].outcome, Outcome::Error("404 Not Found".into()));
    assert!(first.request.is_write() && !calls[1].request.is_write());
    assert_eq!(charged.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_lost_request_does_not_arrive_and_a_lost_answer_does_not_come_back() {
    let (cloud, http, charged) = till().await;
    for (verdict, arrived) in [
        (Verdict::LoseRequest, 0),
        (Verdict::Kill, 0),
        (Verdict::LoseAnswer, 1),
        (Verdict::KillAfter, 2),
    ] {
        let _plan = cloud.tap().install(Arc::new(Always(verdict)));
        let lost = charge(&http).await.unwrap_err();
        assert!(lost.is_middleware(), "{lost}");
        assert_eq!(charged.load(Ordering::SeqCst), arrived);
    }
}

#[tokio::test]
async fn a_plan_may_answer_or_rewrite_an_outgoing_request() {
    let (cloud, http, charged) = till().await;
    let body = json!({"error": "too many"});
    let busy = Arc::new(Always(Verdict::Answer { status: 429, body }));
    let plan = cloud.tap().install(busy);
    let answer = http.get("http://till.test/page").send().await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.url().as_str(), "http://till.test/page");
    drop(plan);
    let other = Verdict::Rewrite(json!({"json": {"amount": 5_000}}));
    let _plan = cloud.tap().install(Arc::new(Always(other)));
    assert_eq!(charge(&http).await.unwrap(), json!({"charged": 15}));
    assert_eq!(charged.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn beside_the_tap_nobody_sees_it() {
    let (cloud, _, _) = till().await;
    let recording = cloud.tap().record();
    let unreachable = cloud.beside_tap().http(reqwest::Client::new());
    assert!(unreachable.get("http://127.0.0.1:1/").send().await.is_err());
    assert!(recording.calls().is_empty());
}
