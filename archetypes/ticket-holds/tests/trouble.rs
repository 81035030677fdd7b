//! What no order of delivered calls shows: a Redis that is away, clients that hang up, late copies, services that
//! hang or refuse, every mix of reasons of a cancelled transaction, stuck neighbours, clocks that differ.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::{
    Capacity, CrashSweep, Heat, Interleave, LateCopies, Met, Mixed, Pairs, Stuck, Trouble,
    TroubleSweep,
};
use cloud::tap::{Call, Plan, Request, Service, Verdict};
use cloud::{Clock, CloudError, Patience};
use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use serving::client::Served;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use ticket_holds::api::serve_until;
use ticket_holds::create_event::PASS_MS;
use ticket_holds::domain::{HOLD_MS, TicketStatus};
use ticket_holds::lease::{AGAIN_MS, REST_MS, TAKING_MS};
use ticket_holds::sandbox_cards::DECLINED_CARD;
use ticket_holds::tables::{DUE_SHARDS, TABLES};
use ticket_holds::{
    BookingStatus, BoxOffice, Cancelling, Confirming, Creation, Expiry, Extension, NewSection,
    OfficeError, Over, Purchase, Realization, Rejection, Reserved, Rules, Tickets,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use venue::{
    Told, Venue, buyer, canceller, checked, confirmer, create, event, expirer, extender, held,
    lapsed, late_reserver, open, open_alone, patient, payer, paying, reserver, seat,
};

in_both_realizations!(
    a_reservation_that_died_keeps_a_seat_for_seconds,
    a_booking_is_never_over_the_limit_because_of_itself,
    a_full_allowance_is_still_a_no_whatever_else_is_in_conflict,
    every_mix_of_conflict_and_failed_condition_gives_the_right_answer,
    a_seat_that_was_sold_to_us_is_nobody_elses,
    a_late_copy_of_an_expiry_changes_nothing,
    a_late_copy_of_a_confirmation_or_its_end_changes_nothing,
    a_sweep_meets_every_trouble,
    a_stuck_booking_and_a_stuck_shard_keep_no_other,
    every_pair_of_what_may_happen_to_a_hold_leaves_it_whole,
    time_passes_between_a_decision_and_its_write,
    every_value_of_every_request_is_taken_or_refused_in_words,
    a_wrong_clock_costs_time_and_never_a_second_owner,
);

// With leases every call is made that is made without them, and more.
chaos::on_each! {
    [leased_only: ticket_holds::Realization::Leased] {
        work_that_began_is_finished_whenever_its_client_hangs_up,
        a_late_copy_of_a_purchase_changes_nothing,
        a_late_copy_of_the_end_of_a_purchase_changes_nothing,
        a_late_copy_of_a_hold_or_its_end_changes_nothing,
        a_late_copy_of_a_creation_changes_nothing,
        a_hold_meets_every_trouble_and_is_made_once,
        a_purchase_meets_every_trouble_and_is_made_once,
        a_confirmation_an_extension_and_a_cancellation_meet_every_trouble,
    }
}

// No lease is asked here.
chaos::on_each! {
    [pure_only: ticket_holds::Realization::Pure] {
        a_creation_meets_every_trouble,
        admissions_meet_every_trouble_and_are_held_once,
        a_stuck_event_keeps_no_other_from_being_created,
        two_creators_make_each_ticket_once,
    }
}

// Redis.

/// A Redis that accepts and never answers.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut accepted = Vec::new();
        while let Ok((connection, _)) = listener.accept().await {
            accepted.push(connection);
        }
    });
    format!("redis://{address}")
}

/// An address where nothing listens.
async fn nowhere() -> String {
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("redis://{}", free.local_addr().unwrap())
}

/// Says yes to every command until it is told to die.
async fn dying() -> (String, tokio::sync::watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (kill, killed) = tokio::sync::watch::channel(false);
    tokio::spawn(async move {
        let mut ended = killed.clone();
        loop {
            let mut killed = killed.clone();
            tokio::select! {
                _ = ended.changed() => return,
                Ok((mut socket, _)) = listener.accept() => drop(tokio::spawn(async move {
                    let mut buffer = vec![0u8; 65_536];
                    loop {
                        let read = tokio::select! {
                            _ = killed.changed() => return,
                            read = socket.read(&mut buffer) => read.unwrap_or(0),
                        };
                        let said = String::from_utf8_lossy(&buffer[..read]).into_owned();
                        for _ in 0..said.matches("SETINFO").count() {
                            let _ = socket.write_all(b"+OK\r\n").await;
                        }
                        if said.contains("EVAL") {
                            let answer: &[u8] = match said.contains("return {'0', ''}") {
                                true => b"*2\r\n$1\r\n0\r\n$0\r\n\r\n",
                                false => b":1\r\n",
                            };
                            let _ = socket.write_all(answer).await;
                        }
                        if read == 0 {
                            return;
                        }
                    }
                })),
            }
        }
    });
    (format!("redis://{address}"), kill)
}

/// A hold, refusals, eight more at once, a sale and a cancellation: together less than one wait for Redis.
async fn costs_nothing(venue: &Venue, office: &BoxOffice) {
    let begun = Instant::now();
    let told = office.reserve(&venue.new_booking("alice", &[1])).await;
    assert!(matches!(told.unwrap(), Reserved::Held(_)));
    let asks = (0..8).map(|number| {
        let mut new = venue.new_booking("bob", &[1 + number % 2]);
        new.booking_id = format!("{}-{number}", new.booking_id);
        let office = office.clone();
        async move { office.reserve(&new).await.unwrap() }
    });
    let told = join_all(asks).await;
    let holds = told.iter().filter(|told| matches!(told, Reserved::Held(_)));
    assert_eq!(holds.count(), 1, "of seat 2: {told:?}");
    office.confirm(&venue.id("alice")).await.unwrap();
    office.cancel(&venue.id("alice")).await.unwrap();
    let told = office.reserve(&venue.new_booking("carol", &[1])).await;
    assert!(matches!(told.unwrap(), Reserved::Held(_)));
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(2), "{took:?}");
}

fn with_redis_at(venue: &Venue, url: &str) -> BoxOffice {
    BoxOffice::new(venue.office.cloud().with_redis_at(url), Realization::Leased)
}

#[tokio::test]
async fn a_redis_that_refuses_or_hangs_costs_nothing() {
    for url in [nowhere().await, silent().await] {
        let venue = open(Realization::Leased).await;
        costs_nothing(&venue, &with_redis_at(&venue, &url)).await;
    }
}

#[tokio::test]
async fn a_redis_that_dies_costs_nothing() {
    let (url, kill) = dying().await;
    let venue = open(Realization::Leased).await;
    let office = with_redis_at(&venue, &url);
    let recording = office.cloud().tap().record();
    let told = office.reserve(&venue.new_booking("dave", &[4])).await;
    assert!(matches!(told.unwrap(), Reserved::Held(_)));
    let redis = |call: &Call| call.request.service == Service::Redis;
    let asked = recording.take().iter().filter(|call| redis(call)).count();
    assert_eq!(asked, 2, "it was there");
    kill.send(true).unwrap();
    costs_nothing(&venue, &office).await;
    let asked = recording.take().iter().filter(|call| redis(call)).count();
    assert!(asked <= 1, "{asked} calls to a dead Redis");
}

/// After a failure nobody asks Redis for a second; then one caller does, and if it is answered all do.
#[tokio::test]
async fn after_a_failure_redis_is_asked_again_by_one_a_second() {
    let venue = open(Realization::Leased).await;
    let cloud = venue.office.cloud();
    let redis = |call: &Call| call.request.service == Service::Redis;
    let gone = cloud
        .tap()
        .install(Arc::new(chaos::Says(|request: &Request| {
            match request.service {
                Service::Redis => Verdict::LoseRequest,
                _ => Verdict::Pass,
            }
        })));
    let recording = cloud.tap().record();
    let asked = || recording.take().iter().filter(|call| redis(call)).count();
    venue.hold("alice", &[1]).await;
    venue.reserve("bob", &[1]).await;
    assert_eq!(asked(), 1);
    cloud.clock().advance(Duration::from_millis(REST_MS as u64));
    venue.reserve("bob", &[1]).await;
    venue.reserve("bob", &[1]).await;
    assert_eq!(asked(), 1);
    drop(gone);
    cloud.clock().advance(Duration::from_millis(REST_MS as u64));
    venue.hold("carol", &[3]).await;
    assert_eq!(asked(), 2);
}

/// The shipped command, on the DynamoDB of the test, with a `REDIS_URL` of its own.
#[tokio::test]
async fn an_office_starts_and_works_without_redis() {
    for redis in [nowhere().await, silent().await] {
        let cloud = cloud::connect_for_tests().await.unwrap();
        if cloud.backend() != cloud::Backend::Embedded {
            return;
        }
        let address = Arc::new(std::sync::Mutex::new(String::new()));
        let seen = Arc::clone(&address);
        let asked = cloud.dynamodb().list_tables().customize();
        let asked = asked.mutate_request(move |it| *seen.lock().unwrap() = it.uri().into());
        asked.send().await.unwrap();
        let dynamodb = address.lock().unwrap().clone();
        let mut serving = Serving::start(&dynamodb, &redis).await;
        let event = json!({"event_id": "e-1", "name": "Proms",
            "sections": [{"name": "A", "seats": 3, "price": 8500}]});
        assert_eq!(serving.post("/events", event).await["status"], "ON_SALE");
        let begun = Instant::now();
        let ask = |user| json!({"booking_id": user, "user_id": user, "seats": ["A-1"]});
        let hold = serving.post("/events/e-1/bookings", ask("alice")).await;
        assert_eq!(hold["status"], "IN_PROGRESS");
        let refused = serving.post("/events/e-1/bookings", ask("bob")).await;
        let why = refused["error"].as_str().unwrap();
        assert!(why.starts_with("A-1 is held until"), "{why}");
        assert!(begun.elapsed() < Duration::from_secs(2));
        serving.process.kill().unwrap();
        serving.process.wait().unwrap();
    }
}

struct Serving {
    process: std::process::Child,
    base: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Serving {
    async fn start(dynamodb: &str, redis: &str) -> Self {
        use std::io::{BufRead, BufReader};
        let mut process = std::process::Command::new(env!("CARGO_BIN_EXE_ticket-holds"))
            .args(["serve", "--backend", "aws", "--listen", "127.0.0.1:0"])
            .args(["--realization", "leased"])
            .env("REDIS_URL", redis)
            .env("AWS_ENDPOINT_URL", dynamodb)
            .env("AWS_REGION", "us-east-1")
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(process.stdout.take().unwrap());
        let listening = tokio::task::spawn_blocking(move || {
            let mut lines = said.lines().map_while(Result::ok);
            lines.find_map(|line| Some(line.strip_prefix("listening on ")?.to_owned()))
        });
        let base = listening.await.unwrap().unwrap();
        Self { process, base }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.base);
        let sent = reqwest::Client::new().post(url).json(&body).send().await;
        serde_json::from_str(&sent.unwrap().text().await.unwrap()).unwrap()
    }
}

// Leases.

/// Another request under Alice's id, by another user or for other seats, lets none of her leases go.
#[tokio::test]
async fn another_request_under_a_bookings_id_leaves_its_lease() {
    let venue = held(Realization::Leased).await;
    let mut user = venue.new_booking("alice", &[1]);
    user.user_id = "mallory".into();
    let seats = venue.new_booking("alice", &[1, 2]);
    for other in [user, seats] {
        let told = venue.office.reserve(&other).await;
        assert!(matches!(told, Err(OfficeError::IdTaken(_))), "{told:?}");
        let recording = venue.office.cloud().tap().record();
        let told = venue.reserve("bob", &[1]).await;
        assert!(
            matches!(told, Reserved::Rejected(Rejection::Held { .. })),
            "{told:?}"
        );
        assert_eq!(recording.calls().len(), 1, "her lease is gone");
    }
}

/// By the lease, without a call to DynamoDB; also when the one who sold it died before the lease said so, and
/// the confirmation was sent again.
#[tokio::test]
async fn a_sold_seat_is_refused_as_sold() {
    CrashSweep::of(|| held(Realization::Leased))
        .action("alice", |venue: Arc<Venue>| async move {
            venue.confirm("alice").await
        })
        .recovery(|venue| async move { venue.confirm("alice").await })
        .check(|venue| async move {
            let recording = venue.office.cloud().tap().record();
            let told = venue.reserve("bob", &[1]).await;
            assert_eq!(told, Reserved::Rejected(Rejection::Sold { seat: seat(1) }));
            assert_eq!(recording.calls().len(), 1);
            Ok(())
        })
        .run()
        .await
        .unwrap();
}

/// Its client got no answer and sends it again, while the lease says SOLD, or after it has ended.
#[tokio::test]
async fn a_reservation_sent_again_after_its_sale_leaves_the_lease_sold() {
    for forgotten in [false, true] {
        let venue = held(Realization::Leased).await;
        venue.confirm("alice").await;
        if forgotten {
            venue.redis_forgets().await;
        }
        let told = venue.reserve("alice", &[1]).await;
        assert!(
            matches!(&told, Reserved::Before(it) if it.status == BookingStatus::Confirmed),
            "{told:?}"
        );
        let recording = venue.office.cloud().tap().record();
        let told = venue.reserve("bob", &[1]).await;
        assert_eq!(told, Reserved::Rejected(Rejection::Sold { seat: seat(1) }));
        assert_eq!(recording.calls().len(), 1, "the lease says so");
    }
}

/// Holds Bob's read until it may go on.
struct SlowBob {
    waits: Semaphore,
    goes_on: Semaphore,
}

impl Plan for SlowBob {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if &*request.actor == "bob" && request.operation == "BatchGetItem" {
                self.waits.add_permits(1);
                let _ = self.goes_on.acquire().await;
            }
            Verdict::Pass
        })
    }
}

/// Seat 1 is sold, and the lease that said so has ended. Bob asks for it, alone or with seat 2, and Carol meets
/// his lease before DynamoDB has answered him. She is not told that anybody holds the seat.
#[tokio::test]
async fn a_seat_that_another_buyer_asks_for_is_not_called_held() {
    for bobs in [&[1][..], &[1, 2]] {
        let venue = Arc::new(held(Realization::Leased).await);
        venue.confirm("alice").await;
        venue.redis_forgets().await;
        let slow = Arc::new(SlowBob {
            waits: Semaphore::new(0),
            goes_on: Semaphore::new(0),
        });
        let _plan = venue.office.cloud().tap().install(slow.clone());
        let carols = *bobs.last().unwrap();
        let bob = cloud::as_actor("bob", venue.reserve("bob", bobs));
        let carol = async {
            let _ = slow.waits.acquire().await.unwrap();
            let told = venue.reserve("carol", &[carols]).await;
            slow.goes_on.add_permits(1);
            told
        };
        let (bob, carol) = tokio::join!(bob, carol);
        let asked = Rejection::Asked { seat: seat(carols) };
        assert_eq!(carol, Reserved::Rejected(asked));
        assert_eq!(bob, Reserved::Rejected(Rejection::Sold { seat: seat(1) }));
        // A moment later she is told what is so.
        match venue.reserve("carol", &[carols]).await {
            Reserved::Rejected(Rejection::Sold { .. }) => assert_eq!(carols, 1),
            told => assert!(matches!(told, Reserved::Held(_)) && carols == 2, "{told:?}"),
        }
    }
}

/// The process dies at any call, and nobody asks again. Without a hold the seat is free after seconds.
async fn a_reservation_that_died_keeps_a_seat_for_seconds(realization: Realization) {
    CrashSweep::of(move || open(realization))
        .action("alice", |venue: Arc<Venue>| async move {
            venue.reserve("alice", &[1]).await
        })
        .recovery(|venue| async move {
            let clock = venue.office.cloud().clock();
            clock.advance(Duration::from_millis(TAKING_MS as u64));
        })
        .check(|venue| async move {
            let told = venue.reserve("bob", &[1]).await;
            let alice = venue.status("alice").await;
            match (&told, alice) {
                (Reserved::Held(_), None) => Ok(()),
                (Reserved::Rejected(Rejection::Held { .. }), Some(BookingStatus::InProgress)) => {
                    Ok(())
                }
                _ => Err(format!(
                    "Alice's booking is {alice:?}, and Bob was told {told:?}"
                )),
            }
        })
        .run()
        .await
        .unwrap();
}

/// The process that cancels dies at any call, and nobody asks again: if the seat is free, the next one gets it.
#[tokio::test]
async fn a_cancellation_that_died_leaves_no_lease_of_a_free_seat() {
    CrashSweep::of(|| held(Realization::Leased))
        .action("alice", |venue: Arc<Venue>| async move {
            venue.office.cancel(&venue.id("alice")).await.unwrap()
        })
        .check(|venue| async move {
            let free = venue.ticket(1).await.status == TicketStatus::Available;
            let told = venue.reserve("bob", &[1]).await;
            match matches!(told, Reserved::Held(_)) == free {
                true => Ok(()),
                false => Err(format!("free: {free}, and Bob was told {told:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

// Clients that hang up.

/// Holds the call of this number until it is released, and counts those that were answered.
struct HoldNth {
    number: Option<usize>,
    begun: AtomicUsize,
    answered: AtomicUsize,
    waits: Semaphore,
    goes_on: Semaphore,
}

impl Plan for HoldNth {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if Some(self.begun.fetch_add(1, Ordering::SeqCst) + 1) == self.number {
                self.waits.add_permits(1);
                let _ = self.goes_on.acquire().await;
            }
            Verdict::Pass
        })
    }

    fn after<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, ()> {
        self.answered.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {})
    }
}

/// Posts, and hangs up at the call that is held, which then goes on. Without such a call it waits for the answer.
async fn post_and_hang_up(hold: &HoldNth, router: axum::Router, path: &str, body: &str) -> String {
    let server = Served::start(|listener, stop| async move {
        Ok(axum::serve(listener, router)
            .with_graceful_shutdown(stop)
            .await?)
    });
    let server = server.await.unwrap();
    let host = server.base.trim_start_matches("http://").to_owned();
    let mut socket = TcpStream::connect(&host).await.unwrap();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    let waits = tokio::select! {
        waits = hold.waits.acquire() => { waits.unwrap().forget(); true }
        _ = socket.read_to_string(&mut answer) => false,
    };
    if waits {
        socket.shutdown().await.unwrap();
        socket.read_to_string(&mut answer).await.unwrap();
        hold.goes_on.add_permits(1);
    }
    answer
}

/// Every POST, as its path, its body and what it answers: a confirmation, a purchase and a declined card differ in
/// the body alone, and a cancellation of what was bought asks the processor.
const POSTS: [&str; 9] = [
    "hold", "floor", "extend", "confirm", "buy", "declined", "cancel", "refund", "event",
];

fn posting(venue: &Venue, what: &str) -> (String, String, &'static str) {
    let (event_id, id) = (&venue.event_id, venue.id("alice"));
    let pay = |card| json!({"payment_id": venue.payment_id("alice"), "card": card}).to_string();
    let of_booking = |verb| format!("/bookings/{id}/{verb}");
    match what {
        "hold" | "floor" => {
            let mut new = json!({"booking_id": id, "user_id": "alice", "seats": ["A-1"]});
            if what == "floor" {
                new = json!({"booking_id": id, "user_id": "alice", "section": "Floor", "admissions": 2});
            }
            (
                format!("/events/{event_id}/bookings"),
                new.to_string(),
                "201",
            )
        }
        "confirm" => (of_booking("confirm"), String::new(), "200"),
        "buy" => (of_booking("confirm"), pay("card"), "200"),
        "declined" => (of_booking("confirm"), pay(DECLINED_CARD), "409"),
        "extend" => (of_booking("extend"), String::new(), "200"),
        "cancel" | "refund" => (of_booking("cancel"), String::new(), "200"),
        _ => {
            let new = json!({"event_id": "e-1", "name": "Proms",
                "sections": [{"name": "A", "seats": 3, "price": 8500}]});
            ("/events".into(), new.to_string(), "201")
        }
    }
}

/// Posts it, hangs up at the call of that number if there is one, and waits until so many calls were answered.
/// Gives how many were.
async fn posted(
    what: &str,
    realization: Realization,
    number: Option<usize>,
    calls: usize,
) -> usize {
    let venue = open_alone(realization).await;
    if !["hold", "floor", "event"].contains(&what) {
        venue.hold("alice", &[1]).await;
    }
    if what == "refund" {
        venue.purchase("alice").await;
    }
    let hold = Arc::new(HoldNth {
        number,
        begun: AtomicUsize::new(0),
        answered: AtomicUsize::new(0),
        waits: Semaphore::new(0),
        goes_on: Semaphore::new(0),
    });
    let _plan = venue.office.cloud().tap().install(hold.clone());
    // Without a sweeper beside it: nobody else finishes this.
    let router = ticket_holds::api::app(venue.office.clone());
    let (path, body, status) = posting(&venue, what);
    let answer = post_and_hang_up(&hold, router, &path, &body).await;
    match number {
        Some(number) => assert_eq!(answer, "", "{what} was answered before call {number}"),
        None => assert_eq!(answer.split(' ').nth(1), Some(status), "{what}: {answer}"),
    }
    let all = async {
        while hold.answered.load(Ordering::SeqCst) < calls {
            tokio::task::yield_now().await;
        }
    };
    let all = tokio::time::timeout(Duration::from_secs(5), all).await;
    assert!(all.is_ok(), "{what} was dropped at call {number:?}");
    let kept = venue.booking("alice").await;
    let charge = venue.charge("alice").await;
    let settled = kept.as_ref().is_some_and(|kept| kept.due_shard.is_none());
    let status = kept.as_ref().map(|kept| kept.status);
    let finished = match what {
        "hold" | "floor" => status == Some(BookingStatus::InProgress),
        "extend" => kept.is_some_and(|kept| kept.was_extended),
        "confirm" => status == Some(BookingStatus::Confirmed) && settled && charge == "NONE",
        "buy" => status == Some(BookingStatus::Confirmed) && settled && charge == "CAPTURED",
        "declined" => kept.is_some_and(|kept| kept.payment.is_none() && kept.declined.len() == 1),
        "cancel" => status == Some(BookingStatus::Cancelled) && settled,
        "refund" => settled && charge == "REFUNDED",
        _ => venue.beside().event("e-1").await.is_ok(),
    };
    assert!(finished, "{what} stopped at call {number:?}");
    venue.invariants().await.unwrap();
    hold.answered.load(Ordering::SeqCst)
}

/// Every POST, and its client hangs up at each of its calls: all calls are made that are made for one who waits.
async fn work_that_began_is_finished_whenever_its_client_hangs_up(realization: Realization) {
    for what in POSTS {
        let calls = posted(what, realization, None, 0).await;
        assert!(calls > 1, "{what} makes {calls} calls");
        for number in 1..=calls {
            let made = posted(what, realization, Some(number), calls).await;
            assert_eq!(made, calls, "{what} at call {number}");
        }
    }
}

// Answers that rest on half of the truth.

/// A venue where each user may have one ticket.
async fn one_each(realization: Realization) -> Venue {
    let mut venue = open(realization).await;
    let rules = Rules {
        per_user_limit: 1,
        ..Rules::default()
    };
    let cloud = venue.office.cloud().clone();
    venue.office = patient(BoxOffice::with_rules(cloud, realization, rules));
    venue.office.event(&venue.event_id).await.unwrap();
    venue
}

fn admissions(race: Interleave<Venue, Told>, name: &'static str) -> Interleave<Venue, Told> {
    race.actor(name, move |venue: Arc<Venue>| async move {
        let new = venue.new_admissions(name, 1);
        Told::Reserve(venue.office.reserve_admissions(&new).await.unwrap())
    })
}

/// The same booking twice at once, of a user whose last ticket it is: whatever the cancelled transaction brings
/// back, neither of the two is told that it is one too many.
async fn a_booking_is_never_over_the_limit_because_of_itself(realization: Realization) {
    for mask in 0..8_u32 {
        let race =
            Interleave::of(move || one_each(realization)).under(move || Arc::new(Mixed::at(mask)));
        let race = reserver(reserver(race, "alice", &[1]), "alice-again", &[1]);
        checked(race).run().await.unwrap();
        let race =
            Interleave::of(move || one_each(realization)).under(move || Arc::new(Mixed::at(mask)));
        checked(admissions(admissions(race, "alice"), "alice-again"))
            .run()
            .await
            .unwrap();
    }
}

async fn a_full_allowance_is_still_a_no_whatever_else_is_in_conflict(realization: Realization) {
    for mask in 0..8_u32 {
        let venue = one_each(realization).await;
        venue.hold("alice", &[1]).await;
        let mixed = Arc::new(Mixed::at(mask));
        let _plan = venue.office.cloud().tap().install(mixed.clone());
        let mut second = venue.new_booking("bob", &[2]);
        second.user_id = "alice".into();
        let told = venue.office.reserve(&second).await.unwrap();
        let over = Rejection::OverLimit { limit: 1, taken: 1 };
        assert_eq!(told, Reserved::Rejected(over), "mask {mask}");
        assert!(mixed.was_mixed());
    }
}

async fn every_mix_of_conflict_and_failed_condition_gives_the_right_answer(
    realization: Realization,
) {
    for mask in 0..8_u32 {
        let fresh =
            || Interleave::of(move || open(realization)).under(move || Arc::new(Mixed::at(mask)));
        let over =
            || Interleave::of(move || lapsed(realization)).under(move || Arc::new(Mixed::at(mask)));
        let mut races = vec![
            reserver(reserver(fresh(), "alice", &[1]), "bob", &[1]),
            reserver(reserver(fresh(), "alice", &[1]), "alice-again", &[1]),
            admissions(admissions(fresh(), "alice"), "bob"),
        ];
        if realization == Realization::Pure {
            races.extend([
                late_reserver(confirmer(over(), "alice"), "bob", &[1]),
                late_reserver(extender(over(), "alice"), "bob", &[1]),
                expirer(confirmer(over(), "alice"), "sweeper"),
                expirer(extender(over(), "alice"), "sweeper"),
                expirer(canceller(over(), "alice"), "sweeper"),
                canceller(confirmer(over(), "alice"), "canceller"),
            ]);
        }
        for race in races {
            checked(race).run().await.unwrap();
        }
    }
}

/// Two servers make the tickets of the same event, and by the clock of one of them the pass of the other is over.
#[tokio::test]
async fn every_mix_of_conflict_and_failed_condition_leaves_a_creation_whole() {
    for mask in 0..8_u32 {
        let mixed = Arc::new(std::sync::Mutex::new(Vec::<Arc<Mixed>>::new()));
        let all = Arc::clone(&mixed);
        let small = |venue: &Venue| hall(venue, 3);
        let explored = Interleave::of(|| open(Realization::Pure))
            .under(move || {
                let plan = Arc::new(Mixed::at(mask));
                all.lock().unwrap().push(Arc::clone(&plan));
                plan
            })
            .actor("organizer", move |venue: Arc<Venue>| async move {
                venue.office.create_event(&small(&venue)).await.unwrap()
            })
            .actor("late-server", move |venue: Arc<Venue>| async move {
                venue.late.create_event(&small(&venue)).await.unwrap()
            })
            .check(move |venue, told| async move {
                let event_id = small(&venue).event_id;
                let on_sale = venue.beside().event(&event_id).await.is_ok();
                let told_so = told.iter().any(|(_, it)| *it == Creation::OnSale);
                if told_so && !on_sale {
                    return Err(format!("{told:?}, and it is not on sale"));
                }
                // Whoever was told that it is being created looks again.
                create(&venue.office, &small(&venue)).await;
                let map = venue.beside().seat_map(&event_id, "A").await;
                let shards = venue.beside();
                let shards = shards.admission_shards(&event_id, "Floor", true).await;
                let left: i64 = shards.unwrap().iter().map(|it| it.remaining).sum();
                match (map.map(|map| map.seats.len()), left) {
                    (Ok(3), 12) => Ok(format!("{told:?}")),
                    other => Err(format!("seats and admissions: {other:?}")),
                }
            })
            .run()
            .await
            .unwrap();
        assert!(explored.schedules > 4, "{:?}", explored.seen);
        let mixed = mixed.lock().unwrap();
        assert!(mixed.iter().any(|plan| plan.was_mixed()), "mask {mask}");
    }
}

/// An extension meets the confirmation of the same booking. Whatever comes back, its seat is not "somebody else's".
async fn a_seat_that_was_sold_to_us_is_nobody_elses(realization: Realization) {
    for mask in 0..4_u32 {
        let race =
            Interleave::of(move || held(realization)).under(move || Arc::new(Mixed::at(mask)));
        let race = extender(confirmer(race, "alice"), "alice-again").check(|_, told| async move {
            match &told[1].1 {
                Told::Extend(Extension::Refused(Over::Displaced { seat })) => {
                    Err(format!("{seat} is said to be somebody else's"))
                }
                other => Ok(format!("{other:?}").chars().take(20).collect()),
            }
        });
        race.run().await.unwrap();
    }
}

// Late copies.

async fn a_late_copy_of_a_purchase_changes_nothing(realization: Realization) {
    LateCopies::of(move || held(realization))
        .act("declined", |venue: Arc<Venue>| async move {
            let id = venue.id("alice");
            let cards = &venue.cards;
            let paid = venue.office.purchase(cards, &id, "first", DECLINED_CARD);
            paid.await.unwrap();
        })
        .act("alice", |venue: Arc<Venue>| async move {
            let told = venue.purchase("alice").await;
            assert!(matches!(told, Purchase::Bought(_)), "{told:?}");
        })
        .check(|venue| async move {
            venue.invariants().await?;
            assert_eq!(venue.charge("alice").await, "CAPTURED");
            Ok(())
        })
        .run()
        .await
        .unwrap();
}

async fn a_late_copy_of_the_end_of_a_purchase_changes_nothing(realization: Realization) {
    let bought = move || async move {
        let venue = held(realization).await;
        venue.purchase("alice").await;
        venue
    };
    LateCopies::of(bought)
        .act("canceller", |venue: Arc<Venue>| async move {
            let id = venue.id("alice");
            venue.office.cancel(&id).await.unwrap();
            let booking = venue.office.booking(&id).await.unwrap().unwrap();
            venue.office.settle(&venue.cards, &booking).await.unwrap();
        })
        .act("bob", |venue: Arc<Venue>| async move {
            venue.reserve("bob", &[1]).await;
        })
        .check(|venue| async move {
            venue.invariants().await?;
            assert_eq!(venue.charge("alice").await, "REFUNDED");
            match venue.confirm("bob").await {
                Confirming::Confirmed(_) => Ok(()),
                other => Err(format!("Bob was told {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

async fn a_late_copy_of_a_hold_or_its_end_changes_nothing(realization: Realization) {
    LateCopies::of(move || open(realization))
        .act("alice", |venue: Arc<Venue>| async move {
            venue.reserve("alice", &[1, 2]).await;
            venue.office.extend_hold(&venue.id("alice")).await.unwrap();
        })
        .act("carol", |venue: Arc<Venue>| async move {
            let new = venue.new_admissions("carol", 8);
            venue.office.reserve_admissions(&new).await.unwrap();
        })
        .act("canceller", |venue: Arc<Venue>| async move {
            venue.office.cancel(&venue.id("carol")).await.unwrap();
            venue.office.cancel(&venue.id("alice")).await.unwrap();
        })
        .act("bob", |venue: Arc<Venue>| async move {
            // A copy of the reservation itself keeps others away for seconds, and no longer.
            let clock = venue.office.cloud().clock();
            clock.advance(Duration::from_millis(TAKING_MS as u64));
            venue.reserve("bob", &[1]).await;
        })
        .check(|venue| async move {
            venue.invariants().await?;
            match venue.status("bob").await {
                Some(BookingStatus::InProgress) => Ok(()),
                other => Err(format!("Bob's booking is {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

/// Alice's seat and Carol's admissions are not confirmed in time, and Bob buys the seat.
async fn a_late_copy_of_an_expiry_changes_nothing(realization: Realization) {
    LateCopies::of(move || open(realization))
        .act("alice", |venue: Arc<Venue>| async move {
            venue.reserve("alice", &[1]).await;
        })
        .act("carol", |venue: Arc<Venue>| async move {
            let new = venue.new_admissions("carol", 3);
            venue.office.reserve_admissions(&new).await.unwrap();
        })
        .act("sweeper", |venue: Arc<Venue>| async move {
            for user in ["alice", "carol"] {
                venue.late.expire_hold(&venue.id(user)).await.unwrap();
            }
        })
        .act("bob", |venue: Arc<Venue>| async move {
            let new = venue.new_booking("bob", &[1]);
            venue.late.reserve(&new).await.unwrap();
        })
        .check(|venue| async move {
            venue.invariants().await?;
            for user in ["alice", "carol"] {
                assert_eq!(venue.status(user).await, Some(BookingStatus::Expired));
            }
            match venue.late.confirm(&venue.id("bob")).await.unwrap() {
                Confirming::Confirmed(_) => Ok(()),
                other => Err(format!("Bob was told {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

/// Alice confirms without a payment, Bob is refused; she cancels, and Carol buys.
async fn a_late_copy_of_a_confirmation_or_its_end_changes_nothing(realization: Realization) {
    LateCopies::of(move || open(realization))
        .act("alice", |venue: Arc<Venue>| async move {
            venue.reserve("alice", &[1, 2]).await;
        })
        .act("confirmer", |venue: Arc<Venue>| async move {
            venue.confirm("alice").await;
        })
        .act("bob", |venue: Arc<Venue>| async move {
            let told = venue.reserve("bob", &[1]).await;
            assert!(matches!(told, Reserved::Rejected(_)), "{told:?}");
        })
        .act("canceller", |venue: Arc<Venue>| async move {
            venue.office.cancel(&venue.id("alice")).await.unwrap();
        })
        .act("carol", |venue: Arc<Venue>| async move {
            // A copy of Bob's request keeps others away for seconds, and no longer.
            let clock = venue.office.cloud().clock();
            clock.advance(Duration::from_millis(TAKING_MS as u64));
            venue.reserve("carol", &[1]).await;
        })
        .check(|venue| async move {
            venue.invariants().await?;
            assert_eq!(venue.status("bob").await, None);
            assert_eq!(venue.status("alice").await, Some(BookingStatus::Cancelled));
            match venue.confirm("carol").await {
                Confirming::Confirmed(_) => Ok(()),
                other => Err(format!("Carol was told {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

/// Redis is there for Alice's cancellation, or away. The sweeper sends the release again, before and after Bob
/// has taken the seat, and Bob's lease stands.
#[tokio::test]
async fn a_late_copy_of_a_release_that_is_owed_changes_nothing() {
    for away in [false, true] {
        LateCopies::of(|| open(Realization::Leased))
            .act("alice", |venue: Arc<Venue>| async move {
                venue.reserve("alice", &[1]).await;
            })
            .act("canceller", move |venue: Arc<Venue>| async move {
                let lost = move |request: &Request| match request.service {
                    Service::Redis if away => Verdict::LoseRequest,
                    _ => Verdict::Pass,
                };
                let tap = venue.office.cloud().tap();
                let _plan = tap.install(Arc::new(chaos::Says(lost)));
                venue.office.cancel(&venue.id("alice")).await.unwrap();
            })
            .act("sweeper", |venue: Arc<Venue>| async move {
                let clock = venue.office.cloud().clock();
                clock.advance(Duration::from_millis(AGAIN_MS as u64));
                venue.office.release_owed().await;
            })
            .act("bob", |venue: Arc<Venue>| async move {
                venue.reserve("bob", &[1]).await;
            })
            .act("sweeper-again", |venue: Arc<Venue>| async move {
                let clock = venue.office.cloud().clock();
                clock.advance(Duration::from_millis(AGAIN_MS as u64));
                venue.office.release_owed().await;
            })
            .check(|venue| async move {
                venue.invariants().await?;
                assert_eq!(venue.status("bob").await, Some(BookingStatus::InProgress));
                let recording = venue.office.cloud().tap().record();
                let told = venue.reserve("erin", &[1]).await;
                match (&told, recording.calls().len()) {
                    (Reserved::Rejected(Rejection::Held { .. }), 1) => Ok(()),
                    (told, calls) => Err(format!("Erin was told {told:?} after {calls} calls")),
                }
            })
            .run()
            .await
            .unwrap();
    }
}

fn hall(venue: &Venue, seats: u32) -> ticket_holds::NewEvent {
    let mut hall = event(&format!("{}-hall", venue.event_id));
    hall.sections[0].tickets = Tickets::Seats(seats);
    hall
}

async fn a_late_copy_of_a_creation_changes_nothing(realization: Realization) {
    LateCopies::of(move || open(realization))
        .act("organizer", |venue: Arc<Venue>| async move {
            let _ = venue.office.create_event(&hall(&venue, 120)).await;
        })
        .act("sweeper", |venue: Arc<Venue>| async move {
            let event_id = hall(&venue, 120).event_id;
            // A copy that lands within a pass takes its place; the next one goes on.
            let mut told = Vec::new();
            while told.last() != Some(&Creation::OnSale) {
                venue.office.cloud().clock().advance(Duration::from_secs(2));
                told.push(venue.office.go_on_creating(&event_id).await.unwrap());
                assert!(told.len() <= 2, "{told:?}");
            }
        })
        .act("alice", |venue: Arc<Venue>| async move {
            let mut new = venue.new_booking("alice", &[1]);
            new.event_id = hall(&venue, 120).event_id;
            venue.office.reserve(&new).await.unwrap();
            venue.office.confirm(&new.booking_id).await.unwrap();
        })
        .check(|venue| async move {
            let hall = hall(&venue, 120);
            venue
                .beside()
                .event(&hall.event_id)
                .await
                .map_err(|why| why.to_string())?;
            let map = venue.office.seat_map(&hall.event_id, "A").await.unwrap();
            let sold = map
                .seats
                .iter()
                .filter(|seat| seat.status == TicketStatus::Sold);
            match (map.seats.len(), sold.count()) {
                (120, 1) => Ok(()),
                other => Err(format!("seats and sold seats: {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

// Every trouble.

/// A conflict is tried again; of the others the caller learns what kind of fault it was. Nothing transacts with
/// the processor's ledger, so no conflict befalls it in life.
fn is_told<T: std::fmt::Debug>(
    trouble: Trouble,
    request: &Request,
    told: &Result<T, OfficeError>,
) -> Result<(), String> {
    let ledger = request
        .targets
        .iter()
        .any(|target| target.resource == "sandbox_charges");
    match (trouble, told) {
        (_, Ok(_)) => Ok(()),
        (Trouble::Conflict, Err(OfficeError::Fault(CloudError::Conflict(_)))) if ledger => Ok(()),
        (Trouble::Throttled, Err(OfficeError::Fault(CloudError::Throttled(_)))) => Ok(()),
        (
            Trouble::Hangs | Trouble::HangsAfter | Trouble::Lost | Trouble::LostAnswer,
            Err(OfficeError::Fault(CloudError::Unknown(_))),
        ) => Ok(()),
        (_, Err(error)) => Err(format!("it was told {error:?}")),
    }
}

async fn impatient(venue: Venue) -> Venue {
    let of = |office: &BoxOffice| {
        let cloud = office.cloud().with_patience(Patience::SHORT);
        BoxOffice::new(cloud, venue.realization)
    };
    let (office, late) = (of(&venue.office), of(&venue.late));
    office.event(&venue.event_id).await.unwrap();
    late.event(&venue.event_id).await.unwrap();
    let cards = ticket_holds::sandbox_cards::SandboxCards::new(office.cloud().clone());
    Venue {
        office,
        late,
        cards,
        ..venue
    }
}

async fn a_hold_meets_every_trouble_and_is_made_once(realization: Realization) {
    let hold = |venue: Arc<Venue>| async move {
        venue
            .office
            .reserve(&venue.new_booking("alice", &[1, 2]))
            .await
    };
    TroubleSweep::of(move || async move { impatient(open(realization).await).await })
        .action("alice", hold)
        .answers(is_told)
        .recovery(move |venue| async move { hold(venue).await.unwrap() })
        .check(|venue| async move {
            venue.invariants().await?;
            match venue.status("alice").await {
                Some(BookingStatus::InProgress) => Ok(()),
                other => Err(format!("the booking is {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

async fn admissions_meet_every_trouble_and_are_held_once(realization: Realization) {
    let hold = |venue: Arc<Venue>| async move {
        venue
            .office
            .reserve_admissions(&venue.new_admissions("alice", 4))
            .await
    };
    TroubleSweep::of(move || async move { impatient(open(realization).await).await })
        .action("alice", hold)
        .answers(is_told)
        .recovery(move |venue| async move { hold(venue).await.unwrap() })
        .check(|venue| async move { venue.invariants().await.map(|_| ()) })
        .run()
        .await
        .unwrap();
}

async fn a_purchase_meets_every_trouble_and_is_made_once(realization: Realization) {
    let buy = |venue: Arc<Venue>| async move {
        let (id, payment) = (venue.id("alice"), venue.payment_id("alice"));
        venue
            .office
            .purchase(&venue.cards, &id, &payment, "card")
            .await
    };
    TroubleSweep::of(move || async move { impatient(held(realization).await).await })
        .action("alice", buy)
        .answers(is_told)
        .recovery(move |venue| async move { buy(venue).await.unwrap() })
        .check(|venue| async move {
            venue.invariants().await?;
            match (
                venue.status("alice").await,
                venue.charge("alice").await.as_str(),
            ) {
                (Some(BookingStatus::Confirmed), "CAPTURED") => Ok(()),
                other => Err(format!("the booking and its charge are {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

async fn a_confirmation_an_extension_and_a_cancellation_meet_every_trouble(
    realization: Realization,
) {
    let act = |what: &'static str| {
        move |venue: Arc<Venue>| async move {
            let id = venue.id("alice");
            match what {
                "confirm" => venue.office.confirm(&id).await.map(|_| ()),
                "extend" => venue.office.extend_hold(&id).await.map(|_| ()),
                _ => venue.office.cancel(&id).await.map(|_| ()),
            }
        }
    };
    for what in ["confirm", "extend", "cancel"] {
        TroubleSweep::of(move || async move { impatient(held(realization).await).await })
            .action("alice", act(what))
            .answers(is_told)
            .recovery(move |venue| async move { act(what)(venue).await.unwrap() })
            .check(move |venue| async move {
                venue.invariants().await?;
                let kept = venue.booking("alice").await.unwrap();
                let fits = match what {
                    "confirm" => kept.status == BookingStatus::Confirmed,
                    "extend" => kept.was_extended,
                    _ => kept.status == BookingStatus::Cancelled,
                };
                if fits {
                    Ok(())
                } else {
                    Err(format!("{what}: {kept:?}"))
                }
            })
            .run()
            .await
            .unwrap();
    }
}

async fn a_sweep_meets_every_trouble(realization: Realization) {
    let sweep = |venue: Arc<Venue>| async move {
        venue
            .late
            .sweep(&venue.cards)
            .await
            .into_iter()
            .try_for_each(|(_, it)| it.map(|_| ()))
    };
    let world = move || async move {
        let venue = open_alone(realization).await;
        venue.hold("alice", &[1]).await;
        impatient(venue).await
    };
    TroubleSweep::of(world)
        .action("sweeper", sweep)
        .answers(is_told)
        .recovery(move |venue| async move { sweep(venue).await.unwrap() })
        .check(|venue| async move {
            venue.invariants().await?;
            match venue.status("alice").await {
                Some(BookingStatus::Expired) => Ok(()),
                other => Err(format!("the booking is {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

async fn a_creation_meets_every_trouble(realization: Realization) {
    TroubleSweep::of(move || async move { impatient(open(realization).await).await })
        .action("organizer", |venue: Arc<Venue>| async move {
            venue.office.create_event(&hall(&venue, 120)).await
        })
        .answers(is_told)
        .recovery(|venue| async move {
            venue.office.cloud().clock().advance(Duration::from_secs(2));
            create(&venue.office, &hall(&venue, 120)).await
        })
        .check(|venue| async move {
            let map = venue
                .beside()
                .seat_map(&hall(&venue, 120).event_id, "A")
                .await;
            assert_eq!(map.unwrap().seats.len(), 120);
            Ok(())
        })
        .run()
        .await
        .unwrap();
}

// Stuck neighbours.

/// One booking hangs, one fails and one shard of the index hangs: the others are ended within one wait.
async fn a_stuck_booking_and_a_stuck_shard_keep_no_other(realization: Realization) {
    let venue = open_alone(realization).await;
    let rules = Rules {
        per_user_limit: 100,
        ..Rules::default()
    };
    let cloud = venue.office.cloud().clone();
    let office = patient(BoxOffice::with_rules(cloud, realization, rules));
    create(&office, &hall(&venue, 40)).await;
    let mut ids = Vec::new();
    for number in 1..=40 {
        let mut new = venue.new_booking("alice", &[number]);
        new.event_id = hall(&venue, 40).event_id;
        new.booking_id = format!("stuck-{number:02}");
        assert!(matches!(
            office.reserve(&new).await.unwrap(),
            Reserved::Held(_)
        ));
        ids.push(new.booking_id);
    }
    let shard = |id: &String| cloud::item::shard_of(id, DUE_SHARDS);
    let (hanging, failing) = (ids.remove(0), ids.remove(0));
    let shards = [shard(&hanging), shard(&failing)];
    let away = (0..DUE_SHARDS).find(|it| !shards.contains(it)).unwrap();
    let (away, away_shard) = (format!("due-{away}"), away);
    ids.retain(|id| shard(id) != away_shard);
    assert!(ids.len() > 10, "{ids:?}");
    let stuck = [
        Stuck::hanging(&hanging),
        Stuck::failing(&failing),
        Stuck::hanging(&away),
    ]
    .map(Arc::new);
    let tap = venue.office.cloud().tap();
    let plans: Vec<_> = stuck.iter().map(|it| tap.install(it.clone())).collect();
    let swept = tokio::time::timeout(Duration::from_secs(6), venue.late.sweep(&venue.cards)).await;
    let failed = swept.unwrap().into_iter().filter(|(_, it)| it.is_err());
    let failed: std::collections::BTreeSet<_> = failed.map(|(what, _)| what).collect();
    assert_eq!(failed, [away, hanging, failing].into());
    drop(plans);
    for id in ids {
        let kept = office.booking(&id).await.unwrap().unwrap();
        assert_eq!(kept.status, BookingStatus::Expired, "{id}");
    }
    assert!(stuck.iter().all(|it| it.met() > 0));
}

async fn a_stuck_event_keeps_no_other_from_being_created(realization: Realization) {
    let venue = open_alone(realization).await;
    let mut halls = Vec::new();
    for number in 0..6 {
        let mut new = hall(&venue, 500);
        new.event_id = format!("hall-{number}");
        let begun = venue.office.create_event(&new).await.unwrap();
        assert!(matches!(begun, Creation::Creating { .. }), "{begun:?}");
        halls.push(new.event_id);
    }
    venue.office.cloud().clock().advance(Duration::from_secs(2));
    let stuck = [Stuck::hanging(&halls[0]), Stuck::failing(&halls[1])].map(Arc::new);
    let tap = venue.office.cloud().tap();
    let _plans: Vec<_> = stuck.iter().map(|it| tap.install(it.clone())).collect();
    let passes = tokio::time::timeout(Duration::from_secs(6), venue.office.create_due()).await;
    for (event_id, pass) in passes.unwrap().unwrap() {
        let keeps = halls[..2].contains(&event_id);
        assert_eq!(pass.is_err(), keeps, "{event_id}: {pass:?}");
        assert!(keeps || matches!(pass, Ok(Creation::OnSale)));
    }
}

// Creation under the limit of a partition key.

/// Every call takes so long.
struct Latency(Clock, Duration);

impl Plan for Latency {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, _call: &'a Call) -> BoxFuture<'a, ()> {
        self.0.advance(self.1);
        Box::pin(async {})
    }
}

/// Twenty thousand seats under one key: fifty-one passes, one a second, none of them throttled.
#[tokio::test]
async fn a_large_section_is_created_under_the_limit_of_its_key() {
    let venue = open_alone(Realization::Pure).await;
    let clock = venue.office.cloud().clock().clone();
    let heat = Arc::new(Heat::new(TABLES, clock.clone()));
    let tap = venue.office.cloud().tap();
    let _plans = [tap.install(heat.clone())];
    let _late = tap.install(Arc::new(Latency(clock.clone(), Duration::from_millis(20))));
    let mut big = hall(&venue, 20_000);
    big.sections.truncate(1);
    let begun = venue.office.create_event(&big).await.unwrap();
    assert_eq!(
        begun,
        Creation::Creating {
            made: 396,
            of: 20_000
        }
    );
    let mut made = 396;
    for pass in 2.. {
        let early = venue.office.create_due().await.unwrap();
        assert!(early.is_empty(), "the next pass comes a second later");
        clock.advance(Duration::from_millis(PASS_MS as u64));
        let passes = venue.office.create_due().await.unwrap();
        match passes.as_slice() {
            [(_, Ok(Creation::OnSale))] => {
                assert_eq!(pass, 51);
                break;
            }
            [(_, Ok(Creation::Creating { made: now, .. }))] => {
                assert_eq!(*now, made + 396);
                made = *now;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(heat.throttled(), 0);
}

/// Where others use the same key, a pass is throttled: it ends where it is, and the next one goes on there.
#[tokio::test]
async fn a_throttled_creation_goes_on_where_it_stopped() {
    let venue = open_alone(Realization::Pure).await;
    let clock = venue.office.cloud().clock().clone();
    let heat = Arc::new(Heat::new(TABLES, clock.clone()).writes_per_second(300.0));
    let _plan = venue.office.cloud().tap().install(heat.clone());
    let big = hall(&venue, 2_000);
    let mut made = vec![0];
    loop {
        match venue.office.create_event(&big).await.unwrap() {
            Creation::OnSale => break,
            Creation::Creating { made: now, .. } => made.push(now),
        }
        assert!(made.len() < 40, "{made:?}");
        clock.advance(Duration::from_secs(1));
    }
    assert!(heat.throttled() > 0);
    assert!(made.is_sorted());
    let map = venue.office.seat_map(&big.event_id, "A").await.unwrap();
    assert_eq!(map.seats.len(), 2_000);
}

/// The request is answered at once, and the server goes on.
#[tokio::test]
async fn a_large_event_is_accepted_at_once_and_finished_by_the_server() {
    let venue = open_alone(Realization::Pure).await;
    let office = venue.office.clone();
    let server = Served::start(|listener, stop| serve_until(office, listener, stop))
        .await
        .unwrap();
    let big = json!({"event_id": "e-1", "name": "Arena",
        "sections": [{"name": "A", "seats": 1_000, "price": 1}, {"name": "Floor", "admissions": 20, "price": 1}]});
    let (status, told) = server.post("/events", big.clone()).await;
    assert_eq!(
        (status, &told["status"]),
        (202, &json!("CREATING")),
        "{told}"
    );
    let ask = json!({"booking_id": "b", "user_id": "u", "section": "Floor", "admissions": 1});
    let (status, refused) = server.post("/events/e-1/bookings", ask.clone()).await;
    assert_eq!(
        (status, &refused["error"]),
        (409, &json!("the event 'e-1' is not on sale yet"))
    );
    let on_sale = async {
        while server.get("/events/e-1").await.1["status"] != "ON_SALE" {
            venue
                .office
                .cloud()
                .clock()
                .advance(Duration::from_millis(PASS_MS as u64));
        }
    };
    tokio::time::timeout(Duration::from_secs(20), on_sale)
        .await
        .unwrap();
    assert_eq!(server.post("/events", big).await.0, 201);
    assert_eq!(server.post("/events/e-1/bookings", ask).await.0, 201);
}

/// A hundred browsers look at five thousand seats, then ask for changes: the key serves two reads.
#[tokio::test]
async fn what_many_browsers_ask_is_read_once_a_second() {
    let venue = open_alone(Realization::Pure).await;
    let mut arena = hall(&venue, 5_000);
    arena.sections[1] = NewSection {
        name: "B".into(),
        ..arena.sections[0].clone()
    };
    create(&venue.office, &arena).await;
    let clock = venue.office.cloud().clock().clone();
    let heat = Arc::new(Heat::new(TABLES, clock.clone()));
    let router = ticket_holds::api::app(venue.office.clone());
    let server = Served::start(|listener, stop| async move {
        Ok(axum::serve(listener, router)
            .with_graceful_shutdown(stop)
            .await?)
    });
    let server = server.await.unwrap();
    let _plan = venue.office.cloud().tap().install(heat.clone());
    let recording = venue.office.cloud().tap().record();
    let path = format!("/events/{}/sections/A", arena.event_id);
    let maps = join_all((0..100).map(|_| server.get(&path))).await;
    let as_of = maps[0].1["as_of"].as_i64().unwrap();
    assert!(
        maps.iter()
            .all(|(status, map)| *status == 200 && map["seats"].as_array().unwrap().len() == 5_000)
    );
    let path = format!("{path}/changes?since={as_of}");
    join_all((0..100).map(|_| server.get(&path))).await;
    let queries = |name: &str| {
        let calls = recording.calls();
        calls.iter().filter(|call| call.shape() == name).count()
    };
    assert_eq!(
        (queries("Query tickets"), queries("Query tickets/by_change")),
        (1, 1)
    );
    let read = |key: &chaos::HotKey| key.resource == "tickets" && key.capacity == Capacity::Read;
    let hottest = heat.hottest(usize::MAX).into_iter().find(read).unwrap();
    assert!(hottest.units < 100.0, "{hottest:?}");
    // A second later it is read again, and shows what happened.
    let mut new = venue.new_booking("alice", &[1]);
    new.event_id = arena.event_id.clone();
    venue.office.reserve(&new).await.unwrap();
    clock.advance(Duration::from_secs(1));
    let (_, changes) = server.get(&path).await;
    assert_eq!(changes["seats"][0]["status"], "HELD");
}

// Pairs, moments, limits, clocks.

/// What a story left of Alice's booking, of the seat and, once what is open is settled, of her money.
async fn end_of(venue: &Venue) -> Result<String, String> {
    venue.invariants().await?;
    let booking = venue.booking("alice").await.unwrap();
    let settled = venue.office.settle(&venue.cards, &booking).await.unwrap();
    venue.invariants().await?;
    let ticket = venue.ticket(1).await;
    let owner = ticket.booking_id.unwrap_or_default();
    let owner = owner.rsplit('-').next().unwrap_or_default();
    let (status, seat) = (settled.status, ticket.status);
    let charge = venue.charge("alice").await;
    Ok(format!("{status:?}, {seat:?} {owner}, {charge}"))
}

/// The sweeper, by whose clock Alice's hold is over.
async fn expire_alice(venue: Arc<Venue>) -> Expiry {
    venue.late.expire_hold(&venue.id("alice")).await.unwrap()
}

async fn cancel_alice(venue: Arc<Venue>) -> Cancelling {
    venue.office.cancel(&venue.id("alice")).await.unwrap()
}

/// Bob, by whose clock her hold is over.
async fn rival(venue: Arc<Venue>) -> Reserved {
    let new = venue.new_booking("bob", &[1]);
    venue.late.reserve(&new).await.unwrap()
}

/// These pairs met: what came of them depends on the order.
fn differ(met: &Met, pairs: &[&str]) {
    for pair in pairs {
        assert!(met.seen[*pair].len() > 1, "{pair}: {:?}", met.seen[*pair]);
    }
}

async fn every_pair_of_what_may_happen_to_a_hold_leaves_it_whole(realization: Realization) {
    let pairs = Pairs::of(move || lapsed(realization))
        .action("sweeper", expire_alice)
        .action("confirmer", |venue: Arc<Venue>| async move {
            venue.confirm("alice").await
        })
        .action("extender", |venue: Arc<Venue>| async move {
            venue.office.extend_hold(&venue.id("alice")).await.unwrap()
        })
        .action("rival", rival)
        .check(|venue| async move { end_of(&venue).await });
    // With leases these two have so many calls that their orders alone would take minutes.
    let all = realization == Realization::Pure;
    let pairs = match all {
        true => pairs
            .action("canceller", cancel_alice)
            .action("buyer", |venue: Arc<Venue>| async move {
                venue.purchase("alice").await
            }),
        false => pairs,
    };
    let met = pairs.run().await.unwrap();
    assert_eq!(met.orders.len(), if all { 21 } else { 10 });
    let pairs = [
        "sweeper × confirmer",
        "sweeper × extender",
        "confirmer × rival",
        "extender × rival",
    ];
    differ(&met, &pairs);
    if all {
        let pairs = [
            "sweeper × canceller",
            "sweeper × buyer",
            "canceller × buyer",
            "confirmer × buyer",
            "rival × buyer",
        ];
        differ(&met, &pairs);
    }
}

/// Alice's office died after her booking was confirmed and before the money was taken.
#[tokio::test]
async fn every_pair_of_what_may_happen_to_an_open_payment_leaves_it_whole() {
    let world = || async {
        let venue = paying(Realization::Pure).await;
        let (id, payment) = (venue.id("alice"), venue.payment_id("alice"));
        venue.office.confirm_paid(&id, &payment).await.unwrap();
        venue
    };
    let met = Pairs::of(world)
        .action("settler", |venue: Arc<Venue>| async move {
            let booking = venue.office.booking(&venue.id("alice")).await.unwrap();
            let settled = venue.office.settle(&venue.cards, &booking.unwrap()).await;
            settled.unwrap()
        })
        .action("canceller", cancel_alice)
        .action("buyer", |venue: Arc<Venue>| async move {
            venue.purchase("alice").await
        })
        .reading("rival", rival)
        .check(|venue| async move { end_of(&venue).await })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 10);
    let pairs = [
        "settler × canceller",
        "canceller × buyer",
        "canceller × rival",
    ];
    differ(&met, &pairs);
}

/// Alice holds eight of twelve admissions, and her time is over by the clock of the sweeper. Two others want the last two, and a third more than those.
#[tokio::test]
async fn every_pair_of_what_may_happen_to_admissions_leaves_them_whole() {
    let world = || async {
        let venue = open(Realization::Pure).await;
        venue.hold_admissions("alice", 8).await;
        venue.hold_admissions("dave", 2).await;
        venue
    };
    let two = |user: &'static str| {
        move |venue: Arc<Venue>| async move {
            let new = venue.new_admissions(user, 2);
            venue.office.reserve_admissions(&new).await.unwrap()
        }
    };
    let met = Pairs::of(world)
        .action("sweeper", expire_alice)
        .action("canceller", cancel_alice)
        .action("confirmer", |venue: Arc<Venue>| async move {
            venue.confirm("alice").await
        })
        .action("bob", two("bob"))
        .action("carol", two("carol"))
        .reading("erin", |venue: Arc<Venue>| async move {
            let new = venue.new_admissions("erin", 3);
            venue.office.reserve_admissions(&new).await.unwrap()
        })
        .check(|venue| async move {
            let ends = venue.invariants().await?;
            let ends = ends.iter();
            let ends = ends.map(|it| format!("{} {:?}", it.user_id, it.status));
            Ok(ends.collect::<Vec<_>>())
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 21);
    let pairs = [
        "sweeper × canceller",
        "sweeper × confirmer",
        "sweeper × erin",
        "canceller × erin",
        "bob × carol",
    ];
    differ(&met, &pairs);
}

/// The creator died before its first tickets.
#[tokio::test]
async fn every_pair_of_what_may_happen_to_a_half_created_event_leaves_it_whole() {
    let world = || async {
        let venue = open_alone(Realization::Pure).await;
        let dies = |request: &Request| match request.operation == "TransactWriteItems" {
            true => Verdict::Kill,
            false => Verdict::Pass,
        };
        let tap = venue.office.cloud().tap();
        let dying = tap.install(Arc::new(chaos::Says(dies)));
        let died = venue.office.create_event(&hall(&venue, 3)).await;
        drop(dying);
        died.unwrap_err();
        venue.office.cloud().clock().advance(Duration::from_secs(2));
        venue
    };
    let met = Pairs::of(world)
        .action("organizer", |venue: Arc<Venue>| async move {
            venue.office.create_event(&hall(&venue, 3)).await.unwrap()
        })
        .action("sweeper", |venue: Arc<Venue>| async move {
            for (_, pass) in venue.office.create_due().await.unwrap() {
                pass.unwrap();
            }
        })
        .action("late-sweeper", |venue: Arc<Venue>| async move {
            for (_, pass) in venue.late.create_due().await.unwrap() {
                pass.unwrap();
            }
        })
        .check(|venue| async move {
            let event_id = hall(&venue, 3).event_id;
            let map = venue.beside().seat_map(&event_id, "A").await;
            match map.map(|map| map.seats.len()) {
                Ok(3) => Ok("on sale"),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 6);
}

/// Redis did not answer when Alice cancelled, so the release of her lease is owed.
#[tokio::test]
async fn every_pair_of_what_may_happen_to_an_owed_release_keeps_the_next_lease() {
    let world = || async {
        let venue = held(Realization::Leased).await;
        let lost = |request: &Request| match request.service {
            Service::Redis => Verdict::LoseRequest,
            _ => Verdict::Pass,
        };
        let tap = venue.office.cloud().tap();
        let away = tap.install(Arc::new(chaos::Says(lost)));
        venue.office.cancel(&venue.id("alice")).await.unwrap();
        drop(away);
        let clock = venue.office.cloud().clock();
        clock.advance(Duration::from_millis(REST_MS as u64));
        // Redis is back, and the office knows: all may ask it.
        let office = &venue.office;
        office.view_seat(&venue.event_id, &seat(2)).await.unwrap();
        venue
    };
    let met = Pairs::of(world)
        .action("sweeper", |venue: Arc<Venue>| async move {
            venue.office.release_owed().await
        })
        .action("canceller", cancel_alice)
        .action("alice", |venue: Arc<Venue>| async move {
            venue.reserve("alice", &[1]).await
        })
        .action("bob", |venue: Arc<Venue>| async move {
            venue.reserve("bob", &[1]).await
        })
        .check(|venue| async move {
            let end = end_of(&venue).await?;
            // Bob's lease stands, if he has the seat. If not, none is in the way once the release was sent.
            venue.office.release_owed().await;
            let recording = venue.office.cloud().tap().record();
            let told = venue.reserve("erin", &[1]).await;
            let bobs = venue.status("bob").await.is_some();
            let fits = match &told {
                Reserved::Rejected(Rejection::Held { .. }) => bobs && recording.calls().len() == 1,
                Reserved::Held(_) => !bobs,
                _ => false,
            };
            match fits {
                true => Ok(end),
                false => Err(format!("{end}, and Erin was told {told:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 10);
}

async fn two_creators_make_each_ticket_once(realization: Realization) {
    let world = move || async move {
        let venue = open(realization).await;
        let _ = venue.office.create_event(&hall(&venue, 500)).await.unwrap();
        venue.office.cloud().clock().advance(Duration::from_secs(2));
        venue
    };
    let pass = |venue: Arc<Venue>| async move {
        venue
            .office
            .go_on_creating(&hall(&venue, 500).event_id)
            .await
            .unwrap()
    };
    let explored = Interleave::of(world)
        .actor("one", pass)
        .actor("other", pass)
        .check(|venue, _| async move {
            let map = venue
                .office
                .seat_map(&hall(&venue, 500).event_id, "A")
                .await;
            match map.map(|map| map.seats.len()) {
                Ok(500) => Ok("on sale".into()),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert!(explored.schedules > 10);
}

type Race = Interleave<Venue, Told>;

/// Bob decides by the time before he asks, so a refused one asks again.
fn asks(race: Race) -> Race {
    race.actor("bob", |venue: Arc<Venue>| async move {
        let mut told = venue.reserve("bob", &[1]).await;
        if let Reserved::Rejected(_) = told {
            told = venue.reserve("bob", &[1]).await;
        }
        Told::Reserve(told)
    })
}

/// The hold ends, for all of them.
fn ten_minutes_pass(venue: &Venue) {
    let clock = venue.office.cloud().clock();
    clock.advance(Duration::from_millis(HOLD_MS as u64 + 1));
}

/// Bob asks, the hold ends, and he asks again. Others may act between any two of these.
fn asks_again_later(race: Race) -> Race {
    race.actor("bob", |venue: Arc<Venue>| async move {
        let mut told = venue.reserve("bob", &[1]).await;
        ten_minutes_pass(&venue);
        if let Reserved::Rejected(_) = told {
            told = venue.reserve("bob", &[1]).await;
        }
        Told::Reserve(told)
    })
}

/// The sweeper looks, by the clock of the others, the hold ends, and it looks again.
fn sweeps(race: Race) -> Race {
    race.actor("sweeper", |venue: Arc<Venue>| async move {
        let id = venue.id("alice");
        let early = venue.office.expire_hold(&id).await.unwrap();
        assert!(!matches!(early, Expiry::Expired(_)), "{early:?}");
        ten_minutes_pass(&venue);
        Told::Expire(venue.office.expire_hold(&id).await.unwrap())
    })
}

/// In every order. Whether it comes to this depends on the order.
async fn sometimes(race: Race, this: &str) {
    let explored = checked(race).run().await.unwrap();
    let ends = explored.seen.keys();
    let (came, not): (Vec<_>, Vec<_>) = ends.partition(|seen| seen.contains(this));
    assert!(!came.is_empty() && !not.is_empty(), "{:?}", explored.seen);
}

/// The hold ends at every place between the calls of a confirmation, an extension or a cancellation and of Bob or the
/// sweeper beside it.
async fn time_passes_between_a_decision_and_its_write(realization: Realization) {
    let race = || Interleave::of(move || held(realization));
    for one in [confirmer(race(), "alice"), extender(race(), "alice")] {
        let race = asks(one).moment("ten-minutes", ten_minutes_pass);
        sometimes(race, "bob holds").await;
    }
    sometimes(sweeps(confirmer(race(), "alice")), "sweeper expires").await;
    sometimes(sweeps(extender(race(), "alice")), "sweeper expires").await;
    sometimes(sweeps(canceller(race(), "canceller")), "sweeper expires").await;
    let bob = asks_again_later(canceller(race(), "canceller"));
    checked(bob).run().await.unwrap();
}

/// The hold ends at every place between the calls of a purchase and, from its authorization on, of Bob or the sweeper
/// beside it.
#[tokio::test]
async fn time_passes_between_the_steps_of_a_purchase() {
    let alone = buyer(Interleave::of(|| held(Realization::Pure)), "alice");
    let alone = alone.moment("ten-minutes", ten_minutes_pass);
    sometimes(alone, "alice buys").await;
    let race = || payer(Interleave::of(|| paying(Realization::Pure)));
    sometimes(asks_again_later(race()), "bob holds").await;
    sometimes(sweeps(race()), "sweeper expires").await;
}

async fn every_value_of_every_request_is_taken_or_refused_in_words(realization: Realization) {
    let venue = open_alone(realization).await;
    let office = venue.office.clone();
    let server = Served::start(|listener, stop| serve_until(office, listener, stop))
        .await
        .unwrap();
    let sent = server
        .post_at_the_limits("/events", |number| {
            json!({"event_id": format!("e-{number}"), "name": "Proms", "sections": [
                {"name": "A", "seats": 2, "price": 100}, {"name": "F", "admissions": 3, "price": 5}]})
        })
        .await
        .unwrap();
    assert!(sent > 50);
    let path = format!("/events/{}/bookings", venue.event_id);
    server
        .post_at_the_limits(&path, |number| {
            json!({"booking_id": format!("b-{number}"), "user_id": format!("u-{number}"), "seats": ["A-1"]})
        })
        .await
        .unwrap();
    server
        .post_at_the_limits(&path, |number| {
            json!({"booking_id": format!("f-{number}"), "user_id": format!("u-{number}"), "section": "Floor", "admissions": 1})
        })
        .await
        .unwrap();
    venue.hold("alice", &[4]).await;
    let id = venue.id("alice");
    for what in ["extend", "cancel"] {
        let path = format!("/bookings/{id}/{what}");
        server
            .post_at_the_limits(&path, |_| json!({}))
            .await
            .unwrap();
    }
    // The sample buys; what follows is of the booking that is bought.
    venue.hold("bob", &[3]).await;
    let path = format!("/bookings/{}/confirm", venue.id("bob"));
    let pay = |_| json!({"payment_id": "p-1", "card": "card"});
    server.post_at_the_limits(&path, pay).await.unwrap();
    venue.hold("carol", &[2]).await;
    let path = format!("/bookings/{}/confirm", venue.id("carol"));
    let declined = json!({"payment_id": "p-2", "card": DECLINED_CARD});
    assert_eq!(server.post(&path, declined).await.0, 409);
}

/// Bob's clock is wrong by this much. By his clock Alice's hold lasts until its end, and no lease makes it longer
/// by more than the same; one owner is the end, and a booking whose time is over by its own clock is refused.
async fn a_wrong_clock_costs_time_and_never_a_second_owner(realization: Realization) {
    for wrong in [-3_600_000, -5_000, 5_000, 3_600_000] {
        let venue = held(realization).await;
        let cloud = venue.office.cloud();
        let alice = venue.booking("alice").await.unwrap();
        let bobs = Clock::manual(cloud.now() + wrong);
        let bob = patient(BoxOffice::new(cloud.with_clock(bobs.clone()), realization));
        let ask = || async { bob.reserve(&venue.new_booking("bob", &[1])).await.unwrap() };
        // One millisecond before the end by Bob's clock it is Alice's, if there is such a time.
        let left = alice.hold_expires_at - bobs.now();
        if left > 1 {
            bobs.advance(Duration::from_millis(left as u64 - 1));
            let told = ask().await;
            assert!(
                matches!(told, Reserved::Rejected(Rejection::Held { .. })),
                "{told:?}"
            );
            bobs.advance(Duration::from_millis(1));
        }
        assert!(matches!(ask().await, Reserved::Held(_)), "{wrong}");
        // By her clock she has time. The seat is Bob's, and she is told so.
        let told = venue.confirm("alice").await;
        assert!(
            matches!(told, Confirming::Refused(Over::Displaced { .. })),
            "{told:?}"
        );
        venue.invariants().await.unwrap();
        // Another one asks by the first clock: refused until Bob's end, and not a moment longer.
        let bobs_end = venue.booking("bob").await.unwrap().hold_expires_at;
        let told = venue.reserve("carol", &[1]).await;
        assert!(
            matches!(told, Reserved::Rejected(Rejection::Held { until, .. }) if until == bobs_end),
            "{told:?}"
        );
        let wait = (bobs_end - cloud.now()) as u64;
        cloud.clock().advance(Duration::from_millis(wait));
        assert!(matches!(
            venue.reserve("carol", &[1]).await,
            Reserved::Held(_)
        ));
        bob.confirm(&venue.id("bob")).await.unwrap();
        venue.confirm("carol").await;
        let sold = venue.ticket(1).await;
        assert_eq!(sold.booking_id, Some(venue.id("carol")));
    }
}
