//! The JSON API, over real sockets.
#![allow(clippy::unwrap_used)]

mod shelf;

use serde_json::{Value, json};
use serving::client::Served;
use shelf::empty_alone;
use tagging::api::serve_until;

async fn serve() -> Served {
    let tagging = empty_alone().await.tagging.with_cap(3);
    Served::start(|listener, stop| serve_until(tagging, listener, stop))
        .await
        .unwrap()
}

async fn put(served: &Served, path: &str, body: Option<Value>) -> (u16, Value) {
    let request = served.http.put(format!("{}{path}", served.base));
    let request = match body {
        Some(body) => request.json(&body),
        None => request,
    };
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

async fn delete(served: &Served, path: &str) -> (u16, Value) {
    let request = served.http.delete(format!("{}{path}", served.base));
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

#[tokio::test]
async fn a_tag_is_created_attached_viewed_and_detached() {
    let served = serve().await;
    let (status, tag) = put(&served, "/acme/tags/Rust", Some(json!({"buckets": 2}))).await;
    assert_eq!((status, &tag["normalized"]), (201, &json!("rust")), "{tag}");
    let (status, _) = put(&served, "/acme/tags/RUST", Some(json!({"buckets": 2}))).await;
    assert_eq!(status, 200);
    for number in 1..=5 {
        let path = format!("/acme/contents/photo-{number}/tags/rust");
        assert_eq!(put(&served, &path, None).await.0, 201);
        assert_eq!(put(&served, &path, None).await.0, 200);
    }
    let (status, tag) = put(
        &served,
        "/acme/tags/rust/buckets",
        Some(json!({"buckets": 4})),
    )
    .await;
    assert_eq!((status, &tag["buckets"]), (200, &json!(4)));

    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = served
            .get(&format!("/acme/tags/rust/contents?limit=2{cursor}"))
            .await;
        assert_eq!(status, 200, "{page}");
        seen.extend(page["contents"].as_array().unwrap().clone());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(seen.len(), 5);

    let path = "/acme/contents/photo-1/tags/rust";
    assert_eq!(
        delete(&served, path).await,
        (200, json!({"was_there": true}))
    );
    assert_eq!(
        delete(&served, path).await,
        (200, json!({"was_there": false}))
    );
    let (_, tags) = served.get("/acme/contents/photo-1/tags").await;
    assert_eq!(tags, json!([]));
    let (status, mended) = served.post("/acme/repair", json!({})).await;
    assert_eq!((status, &mended["rows_removed"]), (200, &json!([])));
    served.stopped().await.unwrap();
}

#[tokio::test]
async fn names_are_found_joined_and_searched() {
    let served = serve().await;
    for tag in ["rust", "wasm", "webassembly"] {
        let path = format!("/acme/tags/{tag}");
        assert_eq!(
            put(&served, &path, Some(json!({"buckets": 1}))).await.0,
            201
        );
    }
    for path in [
        "photo-1/tags/rust",
        "photo-1/tags/wasm",
        "photo-2/tags/rust",
    ] {
        put(&served, &format!("/acme/contents/{path}"), None).await;
    }
    let (status, _) = put(&served, "/acme/tags/rust/synonyms/rustlang", None).await;
    assert_eq!(status, 200);
    let (status, _) = put(&served, "/acme/tags/rust/synonyms/wasm", None).await;
    assert_eq!(status, 409);
    let merged = served.post("/acme/tags/wasm/merge-into/webassembly", json!({}));
    assert_eq!(merged.await, (200, json!({"moved": 1, "had_both": 0})));
    let (_, names) = served.get("/acme/tags?prefix=W").await;
    assert_eq!(names, json!(["wasm", "webassembly"]));
    let (_, all) = served.get("/acme/search?all=rustlang,wasm").await;
    assert_eq!(all["contents"].as_array().unwrap().len(), 1, "{all}");
    let (_, any) = served.get("/acme/search?any=rustlang,wasm").await;
    assert_eq!(any["contents"].as_array().unwrap().len(), 2, "{any}");
    let (status, _) = served.get("/acme/top?window=hour").await;
    assert_eq!(status, 200);
    served.stopped().await.unwrap();
}

#[tokio::test]
async fn refusals_say_whose_turn_it_is() {
    let served = serve().await;
    put(&served, "/acme/tags/rust", Some(json!({"buckets": 1}))).await;
    for (path, status) in [
        ("/acme/tags/go", 404),
        ("/acme/tags/rust/contents?limit=0", 400),
        ("/acme/tags/rust/contents?cursor=stolen", 400),
        ("/acme/tags/rust/contents?page=2", 400),
        ("/globex/tags/rust/contents", 404),
        ("/acme/search?all=rust&any=rust", 400),
        ("/acme/tags?prefix=", 400),
        ("/acme/top?window=year", 400),
        ("/nowhere", 404),
    ] {
        let (told, body) = served.get(path).await;
        assert_eq!(told, status, "{path}: {body}");
        assert!(body["error"].is_string(), "{path}: {body}");
    }
    let (status, _) = put(&served, "/acme/tags/go", Some(json!({"buckets": 0}))).await;
    assert_eq!(status, 400);
    let (status, _) = put(&served, "/acme/contents/a%23b/tags/rust", None).await;
    assert_eq!(status, 400);
    for number in 1..=4 {
        let tag = format!("/acme/tags/tag-{number}");
        put(&served, &tag, Some(json!({"buckets": 1}))).await;
        let path = format!("/acme/contents/photo/tags/tag-{number}");
        let (status, _) = put(&served, &path, None).await;
        assert_eq!(
            status,
            if number <= 3 { 201 } else { 409 },
            "the cap is three"
        );
    }
    served.stopped().await.unwrap();
}
