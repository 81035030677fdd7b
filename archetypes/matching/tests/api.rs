//! The JSON API, over real sockets; and the city's command.
#![allow(clippy::unwrap_used)]

mod town;

use indicatif::ProgressBar;
use matching::api::serve_until;
use matching::city::{Choice, Today, simulate};
use matching::city_page::page;
use matching::{Realization, RideStatus};
use serde_json::{Value, json};
use serving::client::Served;
use town::{Town, empty_alone, offered};

in_both_realizations!(
    a_ride_goes_from_a_quote_to_its_destination_with_curl_alone,
    a_no_asks_the_next_driver_at_once,
    the_sweeper_of_a_server_ends_what_is_over,
    a_batched_server_leaves_a_ride_to_the_next_batch,
    wrong_requests_are_answered_with_what_is_wrong,
    stopping_ends_the_server,
    a_city_is_the_same_every_time,
);

async fn serve(town: &Town, batched: bool) -> Served {
    let dispatch = town.dispatch.clone();
    let served = Served::start(|listener, stop| serve_until(dispatch, batched, listener, stop));
    served.await.unwrap()
}

fn place(lat: f64, lon: f64) -> Value {
    json!({"lat": lat, "lon": lon})
}

async fn quote_and_request(server: &Served, rider: &str) -> (u16, Value) {
    let quote = json!({
        "fare_id": format!("f-{rider}"), "rider_id": rider,
        "pickup": place(52.5, 13.4), "destination": place(52.53, 13.4),
    });
    let (status, quoted) = server.post("/fares", quote).await;
    assert_eq!(status, 201, "{quoted}");
    assert!(quoted["amount"].as_i64().unwrap() > 250);
    let ride = json!({
        "ride_id": format!("r-{rider}"), "rider_id": rider, "fare_id": format!("f-{rider}"),
    });
    server.post("/rides", ride).await
}

async fn a_ride_goes_from_a_quote_to_its_destination_with_curl_alone(realization: Realization) {
    let town = empty_alone(realization).await;
    let server = serve(&town, false).await;
    let (status, told) = server
        .post("/drivers/dora/online", place(52.501, 13.4))
        .await;
    assert_eq!((status, &told["status"]), (200, &json!("AVAILABLE")));
    let (status, told) = server
        .post("/drivers/dora/location", place(52.502, 13.4))
        .await;
    assert_eq!((status, &told["newest"]), (200, &json!(true)));
    let (status, ride) = quote_and_request(&server, "alice").await;
    assert_eq!(
        (status, &ride["status"]),
        (201, &json!("MATCHING")),
        "{ride}"
    );
    assert_eq!(
        (&ride["driver_id"], &ride["offer"]),
        (&json!("dora"), &json!("r-alice.1"))
    );
    let (_, driver) = server.get("/drivers/dora").await;
    assert_eq!(driver["assignment_id"], "r-alice.1");
    let (_, view) = server.get("/rides/r-alice/candidates").await;
    assert_eq!(view["candidates"], json!([]), "the only driver is asked");
    let dora = json!({"driver_id": "dora"});
    let (status, told) = server.post("/offers/r-alice.1/accept", dora.clone()).await;
    assert_eq!((status, &told["status"]), (200, &json!("ACCEPTED")));
    let (status, _) = server.post("/offers/r-alice.1/accept", dora.clone()).await;
    assert_eq!(status, 200, "sent again");
    let (status, trip) = server.post("/trips/r-alice.1/start", dora.clone()).await;
    assert_eq!((status, &trip["status"]), (201, &json!("EN_ROUTE")));
    let (status, refused) = server
        .post(
            "/trips/r-alice.1/advance",
            json!({"driver_id": "dora", "to": "COMPLETED"}),
        )
        .await;
    assert_eq!(status, 409);
    let why = "the trip is EN_ROUTE, and does not go to COMPLETED from there";
    assert_eq!(refused["error"], why);
    for to in ["ARRIVED", "PICKED_UP", "IN_PROGRESS", "COMPLETED"] {
        let step = json!({"driver_id": "dora", "to": to});
        let (status, told) = server.post("/trips/r-alice.1/advance", step).await;
        assert_eq!((status, &told["status"]), (200, &json!(to)));
    }
    let (_, trip) = server.get("/trips/r-alice.1").await;
    assert_eq!(trip["status"], "COMPLETED");
    let (_, ride) = server.get("/rides/r-alice").await;
    assert_eq!(ride["status"], "MATCHED");
    let (status, told) = server.post("/rides/r-alice/cancel", json!({})).await;
    assert_eq!(
        (status, &told["error"]),
        (409, &json!("the ride was driven to its end"))
    );
    let (status, told) = server.post("/drivers/dora/offline", json!({})).await;
    assert_eq!((status, &told["status"]), (200, &json!("OFFLINE")));
}

async fn a_no_asks_the_next_driver_at_once(realization: Realization) {
    let town = empty_alone(realization).await;
    let server = serve(&town, false).await;
    for (driver, lat) in [("dora", 52.501), ("emil", 52.503)] {
        let path = format!("/drivers/{driver}/online");
        server.post(&path, place(lat, 13.4)).await;
    }
    let (_, ride) = quote_and_request(&server, "alice").await;
    assert_eq!(ride["driver_id"], "dora");
    let dora = json!({"driver_id": "dora"});
    let (status, _) = server.post("/offers/r-alice.1/reject", dora).await;
    assert_eq!(status, 200);
    let (_, ride) = server.get("/rides/r-alice").await;
    assert_eq!(
        (&ride["driver_id"], &ride["status"]),
        (&json!("emil"), &json!("MATCHING"))
    );
    let emil = json!({"driver_id": "emil"});
    server.post("/offers/r-alice.2/accept", emil.clone()).await;
    let (status, told) = server.post("/offers/r-alice.2/cancel", emil).await;
    assert_eq!((status, &told["status"]), (200, &json!("OPEN")));
    let (status, told) = server.post("/rides/r-alice/cancel", json!({})).await;
    assert_eq!((status, &told["status"]), (200, &json!("CANCELLED")));
}

async fn the_sweeper_of_a_server_ends_what_is_over(realization: Realization) {
    for batched in [false, true] {
        let town = offered(realization).await;
        let _server = serve(&town, batched).await;
        town.offer_time_passes().await;
        let mut asks = 0;
        while town.see_ride("alice").await.offers_made < 2 {
            asks += 1;
            assert!(asks < 20_000, "the sweeper does not come");
        }
        town.invariants().await.unwrap();
    }
}

async fn a_batched_server_leaves_a_ride_to_the_next_batch(realization: Realization) {
    let town = empty_alone(realization).await;
    let server = serve(&town, true).await;
    let (status, _) = server
        .post("/drivers/dora/online", place(52.501, 13.4))
        .await;
    assert_eq!(status, 200);
    let (status, ride) = quote_and_request(&server, "alice").await;
    assert_eq!((status, &ride["status"]), (201, &json!("OPEN")), "{ride}");
    let clock = town.dispatch.cloud().clock();
    clock.advance(std::time::Duration::from_millis(
        town::rules().take_over_ms as u64,
    ));
    let mut asks = 0;
    while server.get("/rides/r-alice").await.1["status"] != "MATCHING" {
        asks += 1;
        assert!(asks < 20_000, "no batch comes");
    }
}

async fn wrong_requests_are_answered_with_what_is_wrong(realization: Realization) {
    let town = offered(realization).await;
    let server = serve(&town, false).await;
    let dora = json!({"driver_id": "dora"});
    let offer = town.nth("alice", 1);
    let long = "x".repeat(3_000);
    for (path, body, status, why) in [
        ("/nowhere", json!({}), 404, "there is nothing here"),
        (
            "/drivers/x/online",
            place(91.0, 0.0),
            400,
            "91,0 is no place",
        ),
        (
            "/drivers/x/online",
            json!({"lat": 1}),
            400,
            "missing field `lon`",
        ),
        (
            "/drivers/x/offline",
            json!({}),
            404,
            "there is no driver 'x'",
        ),
        (
            "/rides",
            json!({"ride_id": "r", "rider_id": "a", "fare_id": "f"}),
            404,
            "there is no quote 'f'",
        ),
        ("/rides/r/cancel", json!({}), 404, "there is no ride 'r'"),
        (
            "/offers/r.1/accept",
            dora.clone(),
            404,
            "there is no offer 'r.1'",
        ),
        ("/offers/.1/accept", dora.clone(), 404, "no offer '.1'"),
        ("/offers/.1/reject", dora.clone(), 404, "no offer '.1'"),
        ("/offers/.1/cancel", dora.clone(), 404, "no offer '.1'"),
        ("/trips/.1/start", dora.clone(), 404, "no trip '.1'"),
        (
            "/trips/.1/advance",
            json!({"driver_id": "d", "to": "ARRIVED"}),
            404,
            "no trip '.1'",
        ),
        (
            &format!("/offers/{long}.1/accept"),
            dora.clone(),
            404,
            "there is no offer",
        ),
        (
            &format!("/trips/{long}.1/start"),
            dora.clone(),
            404,
            "there is no trip",
        ),
        (
            &format!("/offers/{offer}/accept"),
            dora.clone(),
            409,
            "is another driver's",
        ),
        (
            "/trips/r.1/start",
            dora.clone(),
            409,
            "the ride is not matched by this offer",
        ),
        (
            "/trips/r.1/advance",
            json!({"driver_id": "d", "to": "CANCELLED"}),
            400,
            "a trip is not moved to CANCELLED",
        ),
        (
            "/trips/r.1/advance",
            json!({"driver_id": "d", "to": "UP"}),
            400,
            "unknown variant",
        ),
        (
            "/trips/r.1/advance",
            json!({"driver_id": "d", "to": "ARRIVED"}),
            404,
            "there is no trip 'r.1'",
        ),
    ] {
        let (told, answer) = server.post(path, body).await;
        assert_eq!(told, status, "{path}: {answer}");
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains(why), "{path}: {error}");
    }
    let (status, _) = server.get("/rides/none").await;
    assert_eq!(status, 404);
    assert_eq!(town.ride_status("alice").await, RideStatus::Matching);
}

async fn stopping_ends_the_server(realization: Realization) {
    let town = empty_alone(realization).await;
    serve(&town, false).await.stopped().await.unwrap();
}

/// The same seed gives the same day, and every ride of it is in the tables as the city saw it.
async fn a_city_is_the_same_every_time(realization: Realization) {
    let today = Today {
        drivers: 12,
        minutes: 3,
        rides_per_minute: 8.0,
        seed: 7,
        collect_s: 1,
    };
    let mut first = None;
    for choice in [Choice::Greedy, Choice::Batched, Choice::Greedy] {
        // Days on one cloud do not meet.
        let cloud = match &first {
            None => cloud::connect_alone_for_tests().await.unwrap(),
            Some((cloud, _)) => cloud::Cloud::clone(cloud),
        };
        let bar = ProgressBar::hidden();
        let day = simulate(&cloud, &today, choice, realization, &bar)
            .await
            .unwrap();
        let figures = &day.figures;
        assert!(figures.requests > 10, "{figures:?}");
        assert!(figures.matched > 5, "{figures:?}");
        let map = page(&today, &[day]);
        assert!(map.contains("<polygon") && map.contains("<circle"));
        assert!(!map.contains("NaN") && !map.contains("http"));
        match (&first, choice) {
            (Some((_, before)), Choice::Greedy) => assert_eq!(before, &map_of(&map)),
            (None, _) => first = Some((cloud, map_of(&map))),
            _ => {}
        }
    }
}

/// What does not depend on the machine: the map, without the table.
fn map_of(page: &str) -> String {
    page.split("<h2>").nth(1).unwrap().to_owned()
}
