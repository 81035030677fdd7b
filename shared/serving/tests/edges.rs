//! What a client gets at the edges: JSON with the right status, short, and nothing about what is behind.
#![allow(clippy::unwrap_used)]

use axum::extract::{Path, Query};
use axum::routing::{get, post};
use axum::{Json, Router};
use cloud::CloudError;
use serde::Deserialize;
use serde_json::{Value, json};
use serving::client::Served;
use serving::{Body, MOST_CHARACTERS, Refusal, body, with_fallbacks};
use std::collections::BTreeSet;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Order {
    name: String,
}

#[derive(Deserialize)]
struct Page {
    most: u32,
}

const SECRET: &str = "ResourceNotFoundException: table archetypes-bids in 123456789012";

async fn ordered(given: Body<Order>) -> Result<Json<Value>, Refusal> {
    let order = body(given)?;
    match order.name.as_str() {
        "pear" => Ok(Json(json!({"name": "pear"}))),
        name => Err(Refusal::bad_request(format!("there is no '{name}'"))),
    }
}

#[derive(Deserialize)]
struct Fragile {
    name: String,
    amount: i64,
    lines: Vec<String>,
}

/// Planted bugs: a text beyond the item, a sum that overflows, more different elements than a transaction takes, a
/// limit in characters where the key has one in bytes.
async fn fragile(given: Body<Fragile>) -> Result<Json<i64>, Refusal> {
    let Fragile {
        name,
        amount,
        lines,
    } = body(given)?;
    if name.chars().count() > 2_000 && name.len() < 400_000 {
        return Err(Refusal::bad_request(
            "the name has 2,000 characters at most",
        ));
    }
    let different: BTreeSet<_> = lines.into_iter().collect();
    if name.len() > 2_048 || different.len() > 100 {
        return Err(CloudError::Other("ValidationException".into()).into());
    }
    amount.checked_add(1).map(Json).ok_or_else(|| {
        let text = "attempt to add with overflow".to_owned();
        CloudError::Other(text).into()
    })
}

async fn fault(Path(kind): Path<String>) -> Result<(), Refusal> {
    let text = SECRET.to_owned();
    Err(match kind.as_str() {
        "throttled" => CloudError::Throttled(text),
        "conflict" => CloudError::Conflict(text),
        "unknown" => CloudError::Unknown(text),
        "corrupt" => CloudError::Corrupt(text),
        _ => CloudError::Other(text),
    }
    .into())
}

async fn serve() -> Served {
    let router = Router::new()
        .route("/orders", post(ordered))
        .route("/fragile", post(fragile))
        .route("/text", post(async |text: String| text))
        .route("/faults/{kind}", get(fault))
        .route("/versions/{version}", get(async |Path(_): Path<u64>| "one"))
        .route("/names/{name}", get(async |Path(_): Path<String>| "one"))
        .route(
            "/pages",
            get(async |Query(page): Query<Page>| page.most.to_string()),
        );
    let app = with_fallbacks(router);
    let served = Served::start(async |listener, stop| {
        let served = axum::serve(listener, app).with_graceful_shutdown(stop);
        Ok(served.await?)
    });
    served.await.unwrap()
}

/// The only thing in the answer, and a text.
fn error(answer: &Value) -> &str {
    assert_eq!(
        answer.as_object().map(|fields| fields.len()),
        Some(1),
        "{answer}"
    );
    answer["error"].as_str().unwrap()
}

#[tokio::test]
async fn a_fault_is_told_without_what_is_behind_it() {
    let server = serve().await;
    for (kind, wanted, says) in [
        ("throttled", 503, "send the same again"),
        ("conflict", 503, "send the same again"),
        ("unknown", 503, "the outcome is unknown"),
        (
            "corrupt",
            500,
            "something failed here; the log has the details",
        ),
        (
            "other",
            500,
            "something failed here; the log has the details",
        ),
    ] {
        let asked = server.http.get(format!("{}/faults/{kind}", server.base));
        let answer = asked.send().await.unwrap();
        let after = answer.headers().get("retry-after").cloned();
        assert_eq!(answer.status().as_u16(), wanted, "{kind}");
        assert_eq!(
            after.is_some_and(|after| after == "1"),
            wanted == 503,
            "{kind}"
        );
        let text = answer.text().await.unwrap();
        assert!(text.contains(says) && !text.contains("Exception"), "{text}");
    }
}

#[tokio::test]
async fn a_body_is_refused_with_the_status_of_what_is_wrong_with_it() {
    let server = serve().await;
    let long = format!("{{\"name\": \"{}\"}}", "x".repeat(3 << 20));
    for (path, kind, body, wanted) in [
        ("/orders", "application/json", "{\"name\": \"pear\"}", 200),
        ("/orders", "application/json", "{\"name\": ", 400),
        ("/orders", "application/json", "{\"nome\": \"pear\"}", 400),
        ("/orders", "text/plain", "{\"name\": \"pear\"}", 415),
        ("/orders", "application/json", long.as_str(), 413),
        ("/text", "text/plain", long.as_str(), 413),
    ] {
        let asked = server.http.post(format!("{}{path}", server.base));
        let asked = asked.header("content-type", kind).body(body.to_owned());
        let answer = asked.send().await.unwrap();
        assert_eq!(answer.status().as_u16(), wanted, "{path} {kind}");
        let answer: Value = answer.json().await.unwrap();
        if wanted != 200 {
            error(&answer);
        }
    }
}

#[tokio::test]
async fn what_axum_refuses_by_itself_is_json_too() {
    let server = serve().await;
    for (path, wanted, says) in [
        ("/names/%ff", 400, "UTF-8"),
        ("/versions/one", 400, "`one`"),
        ("/versions/-1", 400, "`-1`"),
        ("/pages", 400, "most"),
        ("/pages?most=many", 400, "most"),
        ("/nowhere", 404, "there is nothing here"),
        ("/orders", 405, "not with this method"),
    ] {
        let (status, answer) = server.get(path).await;
        assert_eq!(status, wanted, "{path}: {answer}");
        assert!(error(&answer).contains(says), "{path}: {answer}");
    }
}

#[tokio::test]
async fn no_error_echoes_a_long_field() {
    let server = serve().await;
    let long = "ä".repeat(150_000);
    let unknown = json!({"name": "pear", long.as_str(): 1});
    for sent in [json!({"name": long}), unknown] {
        let (status, answer) = server.post("/orders", sent).await;
        assert_eq!(status, 400);
        let error = error(&answer);
        assert_eq!(error.chars().count(), MOST_CHARACTERS + 1);
        assert!(error.ends_with('…'));
    }
    let (status, answer) = server
        .get(&format!("/versions/{}", "x".repeat(20_000)))
        .await;
    assert_eq!(status, 400);
    assert!(error(&answer).ends_with('…'), "{answer}");
}

#[tokio::test]
async fn values_at_their_limits_find_what_breaks_behind_a_handler() {
    let server = serve().await;
    let order = |_| json!({"name": "pear"});
    let sent = server.post_at_the_limits("/orders", order).await.unwrap();
    assert_eq!(sent, 24, "eight lengths, twice, and eight odd texts");
    // A sample that is refused as it is meets nothing behind the handler.
    let misspelt = |_| json!({"nmae": "pear"});
    let wrong = server.post_at_the_limits("/orders", misspelt).await;
    let wrong = wrong.unwrap_err();
    assert!(
        wrong.starts_with("/orders refuses the sample itself: 400"),
        "{wrong}"
    );
    let body = |_| json!({"name": "pear", "amount": 1, "lines": ["one"]});
    let wrong = server.post_at_the_limits("/fragile", body).await;
    let wrong = wrong.unwrap_err();
    let found: Vec<_> = wrong.lines().map(|line| line.split(": ").next()).collect();
    let expected = [
        "/fragile with 9223372036854775807 at /amount",
        "/fragile with 101 different elements at /lines",
        "/fragile with 5000 different elements at /lines",
        "/fragile with 420000 bytes at /name",
        "/fragile with 1025 characters of two bytes at /name",
        "/fragile with 262145 characters of two bytes at /name",
        "/fragile with 420000 characters of two bytes at /name",
    ];
    assert_eq!(found, expected.map(Some), "{wrong}");
}
