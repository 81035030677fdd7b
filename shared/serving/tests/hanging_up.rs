//! A client that hangs up does not stop what its request began.
#![allow(clippy::unwrap_used)]

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::routing::{get, post};
use axum::{Json, Router};
use cloud::item::s;
use cloud::tables::{Billing, Key, Table};
use cloud::{Cloud, CloudError};
use serde_json::{Value, json};
use serving::client::Served;
use serving::{Refusal, with_fallbacks};
use std::time::Duration;

const STEPS: Table = Table {
    name: "steps",
    entity: "Step",
    why: "one item for each step",
    partition: Key::S("step"),
    sort: None,
    indexes: &[],
    ttl: None,
    stream: None,
    billing: Billing::OnDemand,
    attributes: &[],
};

/// Two writes, one after the other.
async fn act(State(cloud): State<Cloud>) -> Result<(), Refusal> {
    for step in ["first", "second"] {
        let put = cloud.dynamodb().put_item();
        let put = put.table_name(cloud.names().table("steps"));
        let put = put.item("step", s(step)).send().await;
        put.map_err(CloudError::from)?;
    }
    Ok(())
}

async fn done(State(cloud): State<Cloud>) -> Result<Json<bool>, Refusal> {
    let get = cloud.dynamodb().get_item();
    let get = get.table_name(cloud.names().table("steps"));
    let get = get.key("step", s("second")).send().await;
    Ok(Json(get.map_err(CloudError::from)?.item.is_some()))
}

async fn panics() -> Json<Value> {
    panic!("on purpose")
}

async fn actor() -> String {
    cloud::tap::current_actor().to_string()
}

/// Every request is alice's.
async fn as_alice(request: Request, next: Next) -> axum::response::Response {
    cloud::as_actor("alice", next.run(request)).await
}

async fn serve() -> (Cloud, Served) {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    cloud.create_tables(&[STEPS]).await.unwrap();
    let router = Router::new()
        .route("/steps", post(act).get(done))
        .route("/panic", post(panics).get(panics))
        .route("/actor", get(actor).post(actor))
        .with_state(cloud.clone());
    let app = with_fallbacks(router).layer(from_fn(as_alice));
    let served = Served::start(async |listener, stop| {
        let served = axum::serve(listener, app).with_graceful_shutdown(stop);
        Ok(served.await?)
    });
    (cloud, served.await.unwrap())
}

#[tokio::test]
async fn what_a_request_began_is_finished_though_its_client_hangs_up() {
    let (cloud, server) = serve().await;
    let is_put = |request: &cloud::tap::Request| request.operation == "PutItem";
    let hung_up = server.post_and_hang_up("/steps", json!({}), cloud.tap(), is_put);
    hung_up.await.unwrap();
    let finished = async { while server.get("/steps").await.1 != true {} };
    let finished = tokio::time::timeout(Duration::from_secs(5), finished).await;
    assert!(finished.is_ok(), "the second step was never made");
}

#[tokio::test]
async fn a_handler_that_panics_is_a_failure_like_any_other() {
    let (_cloud, server) = serve().await;
    let (status, answer) = server.get("/panic").await;
    assert_eq!(status, 500, "{answer}");
    let (status, answer) = server.post("/panic", json!({})).await;
    let says = "something failed here; the log has the details";
    assert_eq!((status, answer), (500, json!({"error": says})));
}

#[tokio::test]
async fn the_calls_of_a_request_carry_the_name_of_their_maker() {
    let (_cloud, server) = serve().await;
    assert_eq!(server.get("/actor").await.1, "alice");
    assert_eq!(server.post("/actor", json!({})).await.1, "alice");
}
