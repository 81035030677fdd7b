//! The edges of every JSON API: one rule for ids, and JSON for whatever is refused.
#![allow(clippy::unwrap_used)]

use axum::Router;
use cloud::Cloud;
use cloud::tables::Table;
use serde_json::{Value, json};
use serving::client::Served;
use tokio::sync::watch;

async fn connect(tables: &[Table]) -> Cloud {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    cloud.create_tables(tables).await.unwrap();
    cloud
}

async fn served(app: Router) -> Served {
    let served = Served::start(async |listener, stop| {
        let served = axum::serve(listener, app).with_graceful_shutdown(stop);
        Ok(served.await?)
    });
    served.await.unwrap()
}

/// Never told to stop.
fn stop() -> watch::Receiver<bool> {
    watch::channel(false).1
}

/// The servers, by name.
async fn servers() -> Vec<(&'static str, Served)> {
    let cloud = connect(auction::tables::TABLES).await;
    let house = auction::AuctionHouse::new(cloud, auction::Layout::OneItem);
    let hub = auction::broadcast::Hub::start(house.clone());
    let auction = auction::api::app(house, hub, stop());

    let cloud = connect(doc_editor::tables::TABLES).await;
    let service = doc_editor::DocumentService::new(cloud);
    let doc_editor = doc_editor::api::app(doc_editor::broadcast::Hub::start(service), stop());

    let cloud = connect(matching::tables::TABLES).await;
    let dispatch = matching::Dispatch::new(cloud, matching::Realization::Cells);
    let matching = matching::api::app(dispatch, false);

    let cloud = connect(payments::tables::TABLES).await;
    let nowhere = reqwest::Url::parse("http://127.0.0.1:9").unwrap();
    let client = reqwest::Client::builder;
    let processor = payments::ProcessorClient::new(&cloud, client(), nowhere, "secret").unwrap();
    let payments = payments::Payments::new(cloud, processor, client()).unwrap();
    let payments = payments::api::app(payments);

    let cloud = connect(&[]).await;
    scheduler::archetype().create(&cloud).await.unwrap();
    let scheduler = scheduler::Scheduler::connect(cloud).await.unwrap();
    let scheduler = scheduler::api::app(scheduler);

    let cloud = connect(tagging::tables::TABLES).await;
    let tagging = tagging::api::app(tagging::Tagging::new(cloud, b"key"));

    let cloud = connect(ticket_holds::tables::TABLES).await;
    let office = ticket_holds::BoxOffice::new(cloud, ticket_holds::Realization::Pure);
    let ticket_holds = ticket_holds::api::app(office);

    vec![
        ("auction", served(auction).await),
        ("doc-editor", served(doc_editor).await),
        ("matching", served(matching).await),
        ("payments", served(payments).await),
        ("scheduler", served(scheduler).await),
        ("tagging", served(tagging).await),
        ("ticket-holds", served(ticket_holds).await),
    ]
}

/// A refusal is an error in words, and not long.
#[track_caller]
fn is_refused(status: u16, wanted: &[u16], answer: &Value, about: &str) {
    let start: String = answer.to_string().chars().take(200).collect();
    assert!(wanted.contains(&status), "{about}: {status} {start}");
    let error = answer["error"].as_str();
    let error = error.unwrap_or_else(|| panic!("{about}: no error in {start}"));
    let short = (1..=serving::MOST_CHARACTERS + 1).contains(&error.chars().count());
    assert!(short, "{about}: {start}");
}

#[tokio::test]
async fn what_does_not_read_is_refused_in_json() {
    for (name, server) in servers().await {
        let paths: &[&str] = match name {
            "auction" => &["/auctions/%ff", "/auctions/%ff/events"],
            "doc-editor" => &["/documents/%ff", "/documents/d/versions/one", "/socket"],
            "matching" => &["/drivers/%ff", "/trips/%ff"],
            "payments" => &["/payment_intents/%ff"],
            "scheduler" => &[
                "/tenants/%ff/jobs",
                "/tenants/t/jobs/%ff",
                "/tenants/t/jobs?most=x",
                "/tenants/t/jobs?x",
            ],
            "tagging" => &["/%ff/tags", "/t/tags", "/t/top?limit=x", "/t/top?window=x"],
            _ => &["/events/%ff", "/events/e/sections/A/changes"],
        };
        for path in paths {
            let (status, answer) = server.get(path).await;
            is_refused(status, &[400, 426], &answer, &format!("{name} {path}"));
        }
    }
    let (_, server) = servers().await.swap_remove(3);
    let replay = server.post("/webhooks/p/one/replay", json!({})).await;
    is_refused(
        replay.0,
        &[400],
        &replay.1,
        "payments: a number that is none",
    );
}

/// What no client may call anything.
fn no_ids() -> Vec<String> {
    let mut all = [
        "",
        " ",
        "\0",
        "\n",
        "a\n",
        " a",
        "a ",
        "a\u{7f}",
        "a\u{ffff}",
    ]
    .map(str::to_owned)
    .to_vec();
    all.push("x".repeat(300_000));
    all
}

/// Requests that are right but for the id in them, for each server.
fn requests(name: &str, id: &str) -> Vec<(&'static str, Value)> {
    let with = |fields: &[&str], path: &'static str, right: Value| {
        let mut wrong = Vec::new();
        for field in fields {
            let mut body = right.clone();
            body[*field] = json!(id);
            wrong.push((path, body));
        }
        wrong
    };
    match name {
        "auction" => {
            let new = json!({
                "auction_id": "a", "item_id": "i", "seller_id": "s", "title": "t",
                "currency": "EUR", "starting_price": 1, "lasts_seconds": 60,
            });
            let bid = json!({"bid_id": "b", "bidder_id": "c", "currency": "EUR", "amount": 1});
            let mut all = with(&["auction_id", "item_id", "seller_id"], "/auctions", new);
            all.extend(with(&["bid_id", "bidder_id"], "/auctions/a/bids", bid));
            all
        }
        "doc-editor" => with(&["document_id"], "/documents", json!({"title": "t"})),
        "matching" => {
            let place = json!({"lat": 52.5, "lon": 13.4});
            let fare =
                json!({"fare_id": "f", "rider_id": "r", "pickup": place, "destination": place});
            let ride = json!({"ride_id": "r", "rider_id": "r", "fare_id": "f"});
            let mut all = with(&["fare_id", "rider_id"], "/fares", fare);
            all.extend(with(&["ride_id", "rider_id", "fare_id"], "/rides", ride));
            all.extend(with(&["driver_id"], "/offers/r.1/accept", json!({})));
            all
        }
        "scheduler" => {
            let job = json!({"job_id": "j", "schedule": {"type": "every", "every_ms": 60_000}});
            let mut all = with(&["job_id"], "/tenants/t/jobs", job);
            all.extend(with(&["change_id"], "/tenants/t/jobs/j/cancel", json!({})));
            all
        }
        "ticket-holds" => {
            let event = json!({"event_id": "e", "name": "n", "sections": [{"name": "A", "seats": 1, "price": 1}]});
            let hold = json!({"booking_id": "b", "user_id": "u", "seats": ["A-1"]});
            let pay = json!({"payment_id": "p", "card": "c"});
            let mut all = with(&["event_id"], "/events", event);
            all.extend(with(&["booking_id", "user_id"], "/events/e/bookings", hold));
            all.extend(with(&["payment_id"], "/bookings/b/confirm", pay));
            all
        }
        // Their ids come in headers and paths.
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn no_server_takes_an_id_that_cannot_be_seen_or_is_long() {
    for (name, server) in servers().await {
        for (path, body) in requests(name, "a-1") {
            let (status, answer) = server.post(path, body).await;
            assert_ne!(status, 400, "{name} {path}: {answer}");
        }
        for id in no_ids() {
            let shown: String = id.chars().take(10).collect();
            for (path, body) in requests(name, &id) {
                let (status, answer) = server.post(path, body).await;
                is_refused(status, &[400], &answer, &format!("{name} {path} {shown:?}"));
            }
        }
        let path = match name {
            "auction" => "/auctions/ID",
            "doc-editor" => "/documents/ID",
            "matching" => "/rides/ID",
            "payments" => continue,
            "scheduler" => "/tenants/ID/jobs",
            "tagging" => "/ID/contents/c/tags",
            _ => "/bookings/ID",
        };
        for id in ["%00", "%0a", "%20", "%EF%BF%BF", &"x".repeat(20_000)] {
            let (status, answer) = server.get(&path.replace("ID", id)).await;
            is_refused(status, &[400, 404], &answer, &format!("{name} {path}"));
        }
    }
}

#[test]
fn no_crate_takes_an_id_that_cannot_be_seen_or_is_long() {
    for id in no_ids() {
        let taken = [
            ("auction", bid(&id).validate().is_ok()),
            (
                "doc-editor",
                doc_editor::domain::valid_id("id", &id).is_ok(),
            ),
            ("file-sync", file_sync::domain::check_id("id", &id).is_ok()),
            ("payments", payments::domain::text("id", &id).is_ok()),
            ("scheduler", scheduler::domain::text("id", &id).is_ok()),
            ("tagging", tagging::domain::ContentId::new(&id).is_ok()),
            ("tagging", tagging::domain::TenantId::new(&id).is_ok()),
        ];
        for (name, taken) in taken {
            assert!(
                !taken,
                "{name}: {:?}",
                id.chars().take(10).collect::<String>()
            );
        }
    }
    assert_eq!(bid("b-1").validate(), Ok(()));
}

fn bid(id: &str) -> auction::NewBid {
    auction::NewBid {
        auction_id: "a".into(),
        bid_id: id.into(),
        bidder_id: "b".into(),
        offer: auction::Offer::Exactly(1),
        currency: "EUR".into(),
    }
}
