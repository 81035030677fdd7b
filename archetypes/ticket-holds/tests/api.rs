//! The JSON API, over real sockets.
#![allow(clippy::unwrap_used)]

mod venue;

use serde_json::{Value, json};
use serving::client::Served;
use std::time::Duration;
use ticket_holds::api::serve_until;
use ticket_holds::domain::HOLD_MS;
use ticket_holds::{BookingStatus, Realization};
use tokio::io::AsyncWriteExt;
use venue::{Venue, open_alone};

in_both_realizations!(
    a_seat_is_held_paid_for_and_given_back_with_curl_alone,
    the_sweeper_of_a_server_ends_what_is_over,
    wrong_requests_are_answered_with_what_is_wrong,
    a_hold_is_taken_though_its_client_hangs_up,
    stopping_ends_the_server,
);

async fn serve(realization: Realization) -> (Venue, Served) {
    let venue = open_alone(realization).await;
    let office = venue.office.clone();
    let served = Served::start(|listener, stop| serve_until(office, listener, stop)).await;
    (venue, served.unwrap())
}

fn ask(user: &str, seats: &[&str]) -> Value {
    json!({"booking_id": format!("b-{user}"), "user_id": user, "seats": seats})
}

async fn a_seat_is_held_paid_for_and_given_back_with_curl_alone(realization: Realization) {
    let (_venue, server) = serve(realization).await;
    let event = json!({"event_id": "e-1", "name": "Proms", "sections": [
        {"name": "A", "seats": 3, "price": 8500},
        {"name": "Floor", "admissions": 20, "price": 4000},
    ]});
    let (status, answer) = server.post("/events", event.clone()).await;
    assert_eq!(status, 201, "{answer}");
    let (status, _) = server.post("/events", event).await;
    assert_eq!(status, 201, "sent again");
    let (status, held) = server
        .post("/events/e-1/bookings", ask("alice", &["A-1", "A-2"]))
        .await;
    assert_eq!((status, &held["status"]), (201, &json!("IN_PROGRESS")));
    assert_eq!(held["tickets"], json!(["A-1", "A-2"]));
    assert_eq!(held["total"], 17000);
    let (status, _) = server
        .post("/events/e-1/bookings", ask("alice", &["A-1", "A-2"]))
        .await;
    assert_eq!(status, 200, "sent again");
    let (status, refused) = server
        .post("/events/e-1/bookings", ask("bob", &["A-2"]))
        .await;
    assert_eq!(status, 409);
    let why = refused["error"].as_str().unwrap();
    assert!(why.starts_with("A-2 is held until "), "{why}");
    let (_, map) = server.get("/events/e-1/sections/A").await;
    let statuses: Vec<_> = map["seats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["status"])
        .collect();
    assert_eq!(statuses, ["HELD", "HELD", "AVAILABLE"]);
    let (status, extended) = server.post("/bookings/b-alice/extend", json!({})).await;
    assert_eq!(status, 200);
    assert!(extended["hold_expires_at"].as_i64() > held["hold_expires_at"].as_i64());
    let card = |payment, card| json!({"payment_id": payment, "card": card});
    let (status, declined) = server
        .post("/bookings/b-alice/confirm", card("p-1", "card-declined"))
        .await;
    assert_eq!(status, 409);
    assert_eq!(declined["error"], "the card was declined; the hold stays");
    let (status, bought) = server
        .post("/bookings/b-alice/confirm", card("p-2", "card"))
        .await;
    assert_eq!((status, &bought["status"]), (200, &json!("CONFIRMED")));
    let (status, floor) = server
        .post(
            "/events/e-1/bookings",
            json!({"booking_id": "b-carol", "user_id": "carol", "section": "Floor", "admissions": 2}),
        )
        .await;
    assert_eq!((status, &floor["total"]), (201, &json!(8000)));
    let (_, left) = server.get("/events/e-1/sections/Floor").await;
    assert_eq!(left["admissions_left"], 18);
    // Without a card: paid for elsewhere.
    let confirm = server
        .http
        .post(format!("{}/bookings/b-carol/confirm", server.base));
    assert_eq!(confirm.send().await.unwrap().status(), 200);
    let (status, cancelled) = server.post("/bookings/b-alice/cancel", json!({})).await;
    assert_eq!((status, &cancelled["status"]), (200, &json!("CANCELLED")));
    let (status, _) = server.post("/bookings/b-alice/cancel", json!({})).await;
    assert_eq!(status, 200, "sent again");
    let changes = format!("/events/e-1/sections/A/changes?since={}", map["as_of"]);
    let (_, changes) = server.get(&changes).await;
    let seats: Vec<_> = changes["seats"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| &s["status"])
        .collect();
    assert_eq!(seats, ["AVAILABLE", "AVAILABLE"]);
    let (_, booking) = server.get("/bookings/b-alice").await;
    assert_eq!(booking["status"], "CANCELLED");
}

async fn the_sweeper_of_a_server_ends_what_is_over(realization: Realization) {
    let (venue, _server) = serve(realization).await;
    venue.hold("alice", &[1]).await;
    let clock = venue.office.cloud().clock();
    clock.advance(Duration::from_millis(HOLD_MS as u64 + 1));
    let mut asks = 0;
    while venue.status("alice").await != Some(BookingStatus::Expired) {
        asks += 1;
        assert!(asks < 20_000, "the sweeper does not come");
    }
    venue.invariants().await.unwrap();
}

async fn wrong_requests_are_answered_with_what_is_wrong(realization: Realization) {
    let (venue, server) = serve(realization).await;
    let bookings = format!("/events/{}/bookings", venue.event_id);
    let long = "x".repeat(3_000);
    for (path, body, status, says) in [
        ("/events".to_owned(), json!({}), 400, "missing field"),
        (
            "/events".to_owned(),
            json!({"event_id": "e", "name": "n", "sections": [{"name": "A", "price": 1}]}),
            400,
            "either seats or admissions",
        ),
        (
            bookings.clone(),
            ask("a", &["A1"]),
            400,
            "'A1' is not a seat such as A-12",
        ),
        (bookings.clone(), ask("a", &[]), 400, "at least one ticket"),
        (
            bookings.clone(),
            ask("a", &["A-1", "A-1"]),
            400,
            "A-1 is named twice",
        ),
        (
            bookings.clone(),
            ask("a", &["A-99"]),
            404,
            "there is no seat 'A-99'",
        ),
        (
            bookings.clone(),
            ask("a", &["Floor-1"]),
            404,
            "there is no seat 'Floor-1'",
        ),
        (
            bookings.clone(),
            json!({"booking_id": "b", "user_id": "u"}),
            400,
            "give either seats",
        ),
        (
            bookings.clone(),
            json!({"booking_id": "b", "user_id": "u", "seat": "A-1"}),
            400,
            "unknown field `seat`",
        ),
        (
            "/bookings/nobody/confirm".into(),
            json!(null),
            400,
            "invalid type",
        ),
        (
            "/bookings/nobody/cancel".into(),
            json!({}),
            404,
            "there is no booking 'nobody'",
        ),
        (
            format!("/bookings/{long}/cancel"),
            json!({}),
            404,
            "there is no booking",
        ),
        ("/nowhere".into(), json!({}), 404, "there is nothing here"),
        (
            format!("/events/{}", venue.event_id),
            json!({}),
            405,
            "not with this method",
        ),
    ] {
        let (answered, answer) = server.post(&path, body).await;
        assert_eq!(answered, status, "{path}: {answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(says), "{path}: {error}");
    }
    for (path, status, says) in [
        (
            "/events/nowhere".to_owned(),
            404,
            "there is no event 'nowhere'",
        ),
        (format!("/events/{long}"), 404, "there is no event"),
        (
            format!("/events/{}/sections/Z", venue.event_id),
            404,
            "there is no section 'Z'",
        ),
        (
            format!("/events/{}/sections/A/changes", venue.event_id),
            400,
            "give ?since=",
        ),
        (
            "/bookings/nobody".into(),
            404,
            "there is no booking 'nobody'",
        ),
    ] {
        let (answered, answer) = server.get(&path).await;
        assert_eq!(answered, status, "{path}: {answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(says), "{path}: {error}");
    }
}

async fn a_hold_is_taken_though_its_client_hangs_up(realization: Realization) {
    let (venue, server) = serve(realization).await;
    let event = json!({"event_id": "e-1", "name": "Proms", "sections": [{"name": "A", "seats": 3, "price": 8500}]});
    assert_eq!(server.post("/events", event).await.0, 201);
    let (path, hold) = ("/events/e-1/bookings", ask("alice", &["A-1"]));
    let tap = venue.office.cloud().tap();
    let is_hold = |request: &cloud::tap::Request| request.operation == "TransactWriteItems";
    let hung_up = server.post_and_hang_up(path, hold, tap, is_hold).await;
    hung_up.unwrap();
    let held = async { while server.get("/bookings/b-alice").await.0 != 200 {} };
    let held = tokio::time::timeout(Duration::from_secs(5), held).await;
    assert!(held.is_ok(), "the hold was dropped with its connection");
}

async fn stopping_ends_the_server(realization: Realization) {
    let (_venue, server) = serve(realization).await;
    server.stopped().await.unwrap();
}

#[tokio::test]
async fn half_a_request_does_not_keep_the_server_from_stopping() {
    let (_venue, server) = serve(Realization::Pure).await;
    let host = server.base.trim_start_matches("http://");
    let mut socket = tokio::net::TcpStream::connect(host).await.unwrap();
    let head = "POST /events HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    socket.write_all(head.as_bytes()).await.unwrap();
    let half = b"content-length: 100\r\n\r\n{";
    socket.write_all(half).await.unwrap();
    assert_eq!(server.get("/nowhere").await.0, 404);
    server.stopped().await.unwrap();
}
