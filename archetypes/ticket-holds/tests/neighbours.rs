//! What one does to those beside it: a pause of Redis and a cancellation, many browsers and one, hanging payments and
//! plain holds, a wrong clock and an event, several servers and one key.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::{Faults, Heat, Says, Stuck};
use cloud::as_actor;
use cloud::item::shard_of;
use cloud::tap::{Amend, Call, Plan, Request, Service, Verdict};
use cloud::{Clock, CloudError};
use futures::future::{BoxFuture, join_all};
use redis::AsyncCommands;
use serde_json::{Value, json};
use serving::client::Served;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use ticket_holds::api::sweep_forever;
use ticket_holds::create_event::PASS_MS;
use ticket_holds::domain::{HOLD_MS, Payment, block_id};
use ticket_holds::lease::{AGAIN_MS, REST_MS};
use ticket_holds::purchase::Cards;
use ticket_holds::sandbox_cards::SandboxCards;
use ticket_holds::seat_changes::SKEW_MS;
use ticket_holds::section_views::WINDOW_MS;
use ticket_holds::tables::{DUE_SHARDS, TABLES, due_shard};
use ticket_holds::{
    BookingStatus, BoxOffice, Cancelling, Creation, NewEvent, NewSection, Realization, Reserved,
    Rules, Tickets,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use venue::{DiesAfterAuthorize, Venue, create, event, open_alone, patient, seat};

/// One late answer of Redis begins the rest, and the cancellation falls into it.
#[tokio::test]
async fn a_cancellation_while_redis_rests_frees_the_seat() {
    let venue = open_alone(Realization::Leased).await;
    venue.hold("alice", &[1]).await;
    let late = |request: &Request| match (&*request.actor, &request.service) {
        ("dave", Service::Redis) => Verdict::LoseRequest,
        _ => Verdict::Pass,
    };
    let cloud = venue.office.cloud();
    let _plan = cloud.tap().install(Arc::new(Says(late)));
    as_actor("dave", venue.reserve("dave", &[4])).await;
    let cancelled = venue.office.cancel(&venue.id("alice")).await.unwrap();
    assert!(matches!(cancelled, Cancelling::Cancelled(_)));
    cloud.clock().advance(Duration::from_millis(REST_MS as u64));
    venue.office.sweep(&venue.cards).await;
    let told = venue.reserve("bob", &[1]).await;
    assert!(matches!(told, Reserved::Held(_)), "{told:?}");
    // It is owed no more, and Bob's own lease stands.
    let recording = cloud.tap().record();
    venue.office.sweep(&venue.cards).await;
    let calls = recording.take();
    assert!(
        calls
            .iter()
            .all(|call| call.request.service != Service::Redis)
    );
    let told = venue.reserve("erin", &[1]).await;
    assert!(matches!(told, Reserved::Rejected(_)), "{told:?}");
    let asked = recording.take();
    assert!(
        asked
            .iter()
            .all(|call| call.request.service == Service::Redis)
    );
}

/// Redis fails over, and the one that takes over has not heard of the cancellation. In between Bob may have come.
#[tokio::test]
async fn a_release_that_redis_forgets_is_sent_again() {
    for bob_came in [false, true] {
        let venue = open_alone(Realization::Leased).await;
        venue.hold("alice", &[1]).await;
        let block = block_id(&venue.event_id, "A");
        let key = venue.office.lease_key(&block, &seat(1).key());
        let cloud = venue.office.cloud();
        let mut redis = cloud.beside_tap().redis().await.unwrap();
        let lease: String = redis.get(&key).await.unwrap();
        venue.office.cancel(&venue.id("alice")).await.unwrap();
        if bob_came {
            venue.hold("bob", &[1]).await;
        } else {
            let _: () = redis.set(&key, lease).await.unwrap();
            let told = venue.reserve("bob", &[1]).await;
            assert!(matches!(told, Reserved::Rejected(_)), "{told:?}");
        }
        let recording = cloud.tap().record();
        let redis = |call: &&Call| call.request.service == Service::Redis;
        let asked = || recording.take().iter().filter(redis).count();
        venue.office.sweep(&venue.cards).await;
        assert_eq!(asked(), 0, "it was answered a moment ago");
        cloud
            .clock()
            .advance(Duration::from_millis(AGAIN_MS as u64));
        venue.office.sweep(&venue.cards).await;
        venue.office.sweep(&venue.cards).await;
        assert_eq!(asked(), 1, "once");
        let told = venue.reserve("carol", &[1]).await;
        assert_eq!(matches!(told, Reserved::Held(_)), !bob_came, "{told:?}");
        assert!(!bob_came || asked() == 1, "Bob's lease stands");
    }
}

async fn serve(office: &BoxOffice) -> Served {
    let router = ticket_holds::api::app(office.clone());
    let serving = Served::start(|listener, stop| async move {
        let serving = axum::serve(listener, router);
        Ok(serving.with_graceful_shutdown(stop).await?)
    });
    serving.await.unwrap()
}

/// A hundred browsers come in the course of a minute, and each asks every three seconds, more or less. Who they are
/// does not matter: the reads of a second are those of a few moments they have in common.
#[tokio::test]
async fn browsers_that_come_one_by_one_share_their_reads() {
    let venue = open_alone(Realization::Pure).await;
    let clock = venue.office.cloud().clock().clone();
    let server = serve(&venue.office).await;
    let path = format!("/events/{}/sections/A", venue.event_id);
    let mut random = fastrand::Rng::with_seed(7);
    let mut turns: BTreeSet<_> = (0..100).map(|who| (random.i64(0..60_000), who)).collect();
    let mut since = [None; 100];
    let (mut at, mut asks) = (0, 0);
    let recording = venue.office.cloud().tap().record();
    let (mut second, mut read) = (0, Vec::new());
    while let Some((when, who)) = turns.pop_first() {
        if when > 75_000 {
            break;
        }
        clock.advance(Duration::from_millis((when - at) as u64));
        at = when;
        if at / 1_000 != second {
            second = at / 1_000;
            let calls = recording.take();
            let queries = calls
                .iter()
                .filter(|call| call.request.operation == "Query");
            read.push(queries.count());
        }
        let (status, answer) = match since[who] {
            None => server.get(&path).await,
            Some(since) => server.get(&format!("{path}/changes?since={since}")).await,
        };
        assert_eq!(status, 200);
        asks += 1;
        since[who] = answer["as_of"].as_i64();
        turns.insert((when + 3_000 + random.i64(0..150), who));
    }
    let most = *read.iter().max().unwrap();
    assert!(asks > 1_000, "{asks}");
    assert!(
        most <= 2,
        "{most} reads in a second, of {asks} asks: {read:?}"
    );
}

/// A house of many sections, and a browser that asks for changes since as many moments as it likes, beside others.
#[tokio::test]
async fn many_sections_and_many_moments_push_no_map_out() {
    let venue = open_alone(Realization::Pure).await;
    let section = |number| NewSection {
        name: format!("S{number}"),
        tickets: Tickets::Seats(1),
        price: 1,
    };
    let house = NewEvent {
        event_id: "house".into(),
        name: "House".into(),
        sections: (0..130).map(section).collect(),
    };
    create(&venue.office, &house).await;
    let server = serve(&venue.office).await;
    let recording = venue.office.cloud().tap().record();
    let read = |name: &str| {
        let calls = recording.calls();
        calls.iter().filter(|call| call.shape() == name).count()
    };
    let now = venue.office.cloud().now();
    for round in 0..3 {
        for number in 0..130 {
            let path = format!("/events/house/sections/S{number}");
            assert_eq!(server.get(&path).await.0, 200);
        }
        for moment in 0..64 {
            let since = now - 20_000 + (round * 64 + moment) * 100;
            let path = format!("/events/house/sections/S1/changes?since={since}");
            let (status, answer) = server.get(&path).await;
            assert_eq!(status, 200);
            // Of what is longer ago than the window, counted from the second, the map is told.
            let (age, seats) = (now - since, answer["seats"].as_array().unwrap().len());
            let edge = WINDOW_MS - 1_000..WINDOW_MS + 1_000;
            assert!(seats == usize::from(age > WINDOW_MS) || edge.contains(&age));
        }
    }
    for since in [i64::MIN, i64::MAX] {
        let path = format!("/events/house/sections/S1/changes?since={since}");
        assert_eq!(server.get(&path).await.0, 200);
    }
    assert_eq!(read("Query tickets"), 130);
    assert_eq!(read("Query tickets/by_change"), 1);
}

/// An arena whose seats are held at the pace at which its key takes a hold and its sale (eight units, so 125 a second),
/// for longer than the window; and the clock.
async fn busy_arena(venue: &Venue) -> Clock {
    let rules = Rules {
        per_user_limit: 100,
        ..Rules::default()
    };
    let cloud = venue.office.cloud().clone();
    let office = BoxOffice::with_rules(cloud.clone(), Realization::Pure, rules);
    let mut arena = event("arena");
    arena.sections.truncate(1);
    arena.sections[0].tickets = Tickets::Seats(98 * 22);
    create(&office, &arena).await;
    let clock = cloud.clock().clone();
    for round in 0..22 {
        let mut new = venue.new_booking(&format!("u-{round}"), &[]);
        new.event_id = "arena".into();
        new.seats = (1..=98).map(|number| seat(98 * round + number)).collect();
        assert!(matches!(
            office.reserve(&new).await.unwrap(),
            Reserved::Held(_)
        ));
        clock.advance(Duration::from_millis(784));
    }
    clock
}

/// It asks each of three servers since as many moments as it can name, all in one second, and a buyer comes.
#[tokio::test]
async fn one_client_does_not_take_the_reads_of_a_section() {
    let venue = open_alone(Realization::Pure).await;
    let clock = busy_arena(&venue).await;
    let cloud = venue.office.cloud().clone();
    let heat = Arc::new(Heat::new(TABLES, clock.clone()));
    let _plan = cloud.tap().install(heat.clone());
    let recording = cloud.tap().record();
    let now = clock.now();
    for _ in 0..3 {
        let server = serve(&BoxOffice::new(cloud.clone(), Realization::Pure)).await;
        for ago in (0..70).chain([1_000, 1_000_000]) {
            let path = format!("/events/arena/sections/A/changes?since={}", now - ago * 999);
            assert_eq!(server.get(&path).await.0, 200, "{ago}");
        }
    }
    let queries = recording.take().into_iter();
    let queries = queries.filter(|call| call.request.operation == "Query");
    assert_eq!(
        queries.count(),
        3 * 2,
        "the window and the map, once for each server"
    );
    let mut new = venue.new_booking("bob", &[1]);
    new.event_id = "arena".into();
    let told = venue.office.reserve(&new).await;
    assert!(matches!(told, Ok(Reserved::Rejected(_))), "{told:?}");
    assert_eq!(heat.throttled(), 0);
}

/// Whatever the moment, the changes since then are told, and nothing is told to who knows it.
#[tokio::test]
async fn each_moment_in_the_window_is_told_what_changed_since() {
    let venue = open_alone(Realization::Pure).await;
    let clock = busy_arena(&venue).await;
    let server = serve(&venue.office).await;
    let mut last = 0;
    for ago in 0..=10 {
        let since = clock.now() - ago * 1_000;
        let path = format!("/events/arena/sections/A/changes?since={since}");
        let (_, told) = server.get(&path).await;
        let told = told["seats"].as_array().unwrap().len();
        let changed = venue.office.seat_changes("arena", "A", since).await;
        let changed = changed.unwrap().seats.len();
        // The answer is of the whole second, and so goes back at least to its begin.
        assert!(
            told == changed || ago == 0 && told > changed,
            "{ago}: {told}, not {changed}"
        );
        last = told;
    }
    assert!(last > 15 * 98 && last < 22 * 98, "{last}");
}

/// Holds the first query until it is told to go on.
struct FirstQuery(AtomicUsize, Semaphore);

impl Plan for FirstQuery {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if request.operation == "Query" && self.0.fetch_add(1, Ordering::SeqCst) == 0 {
                let _ = self.1.acquire().await;
            }
            Verdict::Pass
        })
    }
}

#[tokio::test]
async fn a_read_that_hangs_keeps_only_those_of_its_second() {
    let venue = open_alone(Realization::Pure).await;
    let clock = venue.office.cloud().clock().clone();
    let plan = Arc::new(FirstQuery(AtomicUsize::new(0), Semaphore::new(0)));
    let _plan = venue.office.cloud().tap().install(plan.clone());
    let server = serve(&venue.office).await;
    let path = format!("/events/{}/sections/A", venue.event_id);
    let first = server.get(&path);
    let later = async {
        while plan.0.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        clock.advance(Duration::from_secs(1));
        let later = tokio::time::timeout(Duration::from_secs(5), server.get(&path)).await;
        let later = later.map(|(_, map)| map["as_of"].as_i64().unwrap());
        plan.1.add_permits(1);
        later
    };
    let ((status, _), later) = tokio::join!(first, later);
    let later = later.unwrap();
    assert_eq!(status, 200);
    // What came late does not take the place of what is newer.
    assert_eq!(server.get(&path).await.1["as_of"].as_i64(), Some(later));
    assert_eq!(plan.0.load(Ordering::SeqCst), 2);
}

/// Throttled is told as throttled, and what cannot be read is no "try again".
#[tokio::test]
async fn those_who_share_a_read_are_told_its_fault() {
    let venue = open_alone(Realization::Pure).await;
    let server = serve(&venue.office).await;
    let path = format!("/events/{}/sections/A", venue.event_id);
    let throttled = Faults::seeded(1).throttle(1.0);
    let plan = venue.office.cloud().tap().install(Arc::new(throttled));
    let (status, told) = server.get(&path).await;
    let why = told["error"].as_str().unwrap().to_owned();
    assert!(
        status == 503 && why.starts_with("too much at once"),
        "{why}"
    );
    drop(plan);
    let corrupt = |request: &Request| match request.operation == "Query" {
        true => Verdict::Amend(Amend(Arc::new(|page: &Value| {
            let mut page = page.clone();
            page["Items"][0]["status"] = json!({"S": "BURNT"});
            Some(page)
        }))),
        false => Verdict::Pass,
    };
    let _plan = venue.office.cloud().tap().install(Arc::new(Says(corrupt)));
    assert_eq!(server.get(&path).await.0, 500);
}

/// A processor that accepts every call and answers none.
struct Hanging;

impl Cards for Hanging {
    fn authorize<'a>(
        &'a self,
        _: &'a str,
        _: i64,
        _: &'a str,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(std::future::pending())
    }

    fn capture<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(std::future::pending())
    }

    fn give_back<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(std::future::pending())
    }
}

/// Sixty-four payments hang at their processor, and the last in the line is a hold without any.
#[tokio::test]
async fn a_hold_does_not_wait_for_payments_that_hang() {
    let venue = open_alone(Realization::Pure).await;
    let rules = Rules {
        per_user_limit: 100,
        ..Rules::default()
    };
    let cloud = venue.office.cloud();
    let office = patient(BoxOffice::with_rules(
        cloud.clone(),
        Realization::Pure,
        rules,
    ));
    let mut hall = event("hall");
    hall.sections[0].tickets = Tickets::Seats(65);
    create(&office, &hall).await;
    let dying = DiesAfterAuthorize(venue.cards.clone());
    let last = (0..).map(|number| format!("plain-{number}"));
    let last = last
        .into_iter()
        .find(|id| shard_of(id, DUE_SHARDS) == DUE_SHARDS - 1);
    for number in 1..=65 {
        let mut new = venue.new_booking("alice", &[number]);
        new.event_id = "hall".into();
        new.booking_id = format!("paid-{number}");
        if number == 65 {
            new.booking_id = last.clone().unwrap();
            cloud.clock().advance(Duration::from_millis(10));
        }
        let told = office.reserve(&new).await.unwrap();
        assert!(matches!(told, Reserved::Held(_)));
        if number < 65 {
            let paid = office.purchase(&dying, &new.booking_id, "p", "card").await;
            paid.unwrap_err();
        }
    }
    cloud.clock().advance(Duration::from_millis(HOLD_MS as u64));
    let sweeper = tokio::spawn(sweep_forever(office.clone(), Hanging));
    let beside = venue.beside();
    let ended = async {
        let last = last.unwrap();
        while beside.booking(&last).await.unwrap().unwrap().status == BookingStatus::InProgress {}
    };
    // Four waits of two seconds each, if it has to wait for the others.
    let ended = tokio::time::timeout(Duration::from_secs(4), ended).await;
    sweeper.abort();
    ended.unwrap();
}

/// A processor that answers every call but those about one payment.
#[derive(Clone)]
struct HangsFor {
    key: String,
    cards: SandboxCards,
    met: Arc<Notify>,
}

impl HangsFor {
    async fn reach(&self, key: &str) {
        if key == self.key {
            self.met.notify_one();
            std::future::pending().await
        }
    }
}

impl Cards for HangsFor {
    fn authorize<'a>(
        &'a self,
        key: &'a str,
        amount: i64,
        card: &'a str,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        self.cards.authorize(key, amount, card)
    }

    fn capture<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async move {
            self.reach(key).await;
            self.cards.capture(key).await
        })
    }

    fn give_back<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move {
            self.reach(key).await;
            self.cards.give_back(key).await
        })
    }
}

/// One payment hangs at its processor, for the ten seconds that the sweeper gives it and again after that. Twenty
/// others that stand beside it are settled, and so are twenty that come when it hangs already.
#[tokio::test]
async fn a_payment_that_hangs_delays_no_other() {
    let venue = open_alone(Realization::Pure).await;
    let rules = Rules {
        per_user_limit: 100,
        ..Rules::default()
    };
    let cloud = venue.office.cloud();
    let office = BoxOffice::with_rules(cloud.clone(), Realization::Pure, rules);
    let office = patient(office);
    let mut hall = event("hall");
    hall.sections[0].tickets = Tickets::Seats(41);
    create(&office, &hall).await;
    let dying = DiesAfterAuthorize(venue.cards.clone());
    // Confirmed, and the office died before it took the money.
    let opened = async |number: u32| {
        let mut new = venue.new_booking("alice", &[number]);
        new.event_id = "hall".into();
        new.booking_id = format!("paid-{number}");
        let told = office.reserve(&new).await.unwrap();
        assert!(matches!(told, Reserved::Held(_)));
        let paid = office.purchase(&dying, &new.booking_id, "p", "card").await;
        paid.unwrap_err();
        office.confirm_paid(&new.booking_id, "p").await.unwrap();
        new.booking_id
    };
    let stuck = opened(1).await;
    let mut others = Vec::new();
    for number in 2..=21 {
        others.push(opened(number).await);
    }
    let cards = HangsFor {
        key: format!("{stuck}#p"),
        cards: venue.cards.clone(),
        met: Arc::default(),
    };
    let met = cards.met.clone();
    let sweeper = tokio::spawn(sweep_forever(office.clone(), cards));
    let hangs = tokio::time::timeout(Duration::from_secs(4), met.notified());
    hangs.await.unwrap();
    for number in 22..=41 {
        others.push(opened(number).await);
    }
    let beside = venue.beside();
    let settled = async {
        for id in &others {
            while beside.booking(id).await.unwrap().unwrap().payment != Some(Payment::Settled) {
                tokio::task::yield_now().await;
            }
        }
    };
    // The next pass comes after a second, and the stuck one is waited for ten.
    let settled = tokio::time::timeout(Duration::from_secs(5), settled).await;
    let open = beside.booking(&stuck).await.unwrap().unwrap().payment;
    sweeper.abort();
    settled.unwrap();
    assert_eq!(open, Some(Payment::Open));
}

/// The index has more than one page, and the second one does not come: what stands on the first is ended.
#[tokio::test]
async fn a_page_that_does_not_come_keeps_no_other_page() {
    let venue = open_alone(Realization::Pure).await;
    venue.hold("alice", &[1]).await;
    let shard = due_shard(&venue.id("alice"));
    let of = shard.clone();
    let more = move |request: &Request| match request.body["IndexName"] == "due"
        && request.body["ExpressionAttributeValues"][":shard"]["S"] == *of
    {
        true => Verdict::Amend(Amend(Arc::new(|page: &Value| {
            let mut page = page.clone();
            page["LastEvaluatedKey"] = json!({"booking_id": {"S": "next-page"},
                "due_shard": {"S": "due-0"}, "due_at": {"N": "1"}});
            Some(page)
        }))),
        false => Verdict::Pass,
    };
    let stuck = Arc::new(Stuck::hanging("next-page"));
    let tap = venue.office.cloud().tap();
    let _plans = (
        tap.install(stuck.clone()),
        tap.install(Arc::new(Says(more))),
    );
    let swept = venue.late.expire_due().await;
    assert_eq!(stuck.met(), 1);
    assert_eq!(venue.status("alice").await, Some(BookingStatus::Expired));
    let failed = swept.into_iter().filter(|(_, it)| it.is_err());
    assert_eq!(failed.map(|(what, _)| what).collect::<Vec<_>>(), [shard]);
}

/// Answers the last shard only once a booking is looked at, or after a while.
struct LastPage(Notify, AtomicUsize);

impl Plan for LastPage {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let last = format!("due-{}", DUE_SHARDS - 1);
            if request.operation == "GetItem" {
                self.0.notify_one();
            } else if request.body["ExpressionAttributeValues"][":shard"]["S"] == *last {
                let a_while = Duration::from_millis(300);
                let looked = tokio::time::timeout(a_while, self.0.notified()).await;
                self.1
                    .fetch_add(usize::from(looked.is_ok()), Ordering::SeqCst);
            }
            Verdict::Pass
        })
    }
}

/// So a sweep makes its calls in the same order, however fast each of them is answered.
#[tokio::test]
async fn a_sweep_reads_a_page_of_each_shard_before_it_looks_at_a_booking() {
    let venue = open_alone(Realization::Pure).await;
    for (user, number) in [("alice", 1), ("bob", 2), ("carol", 3), ("dave", 4)] {
        venue.hold(user, &[number]).await;
    }
    let last = Arc::new(LastPage(Notify::new(), AtomicUsize::new(0)));
    let _plan = venue.office.cloud().tap().install(last.clone());
    assert_eq!(venue.late.expire_due().await.len(), 4);
    assert_eq!(last.1.load(Ordering::SeqCst), 0, "looked at before");
}

/// The server that took the event has a clock an hour ahead, and dies after the first pass.
#[tokio::test]
async fn an_event_from_a_clock_that_is_ahead_is_finished_at_once() {
    let venue = open_alone(Realization::Pure).await;
    let ahead = Clock::manual(venue.office.cloud().now() + 3_600_000);
    let cloud = venue.office.cloud().with_clock(ahead);
    let office = BoxOffice::new(cloud, Realization::Pure);
    let mut hall = event("hall");
    hall.sections[0].tickets = Tickets::Seats(1_000);
    let begun = office.create_event(&hall).await.unwrap();
    assert!(matches!(begun, Creation::Creating { .. }), "{begun:?}");
    let passes = venue.office.create_due().await.unwrap();
    let [(_, Ok(Creation::Creating { made, .. }))] = passes.as_slice() else {
        panic!("{passes:?}");
    };
    assert_eq!(*made, 792);
    // From here on the time of the pass is by the right clock.
    assert!(venue.office.create_due().await.unwrap().is_empty());
    let clock = venue.office.cloud().clock();
    clock.advance(Duration::from_millis(PASS_MS as u64));
    let told = venue.office.create_event(&hall).await.unwrap();
    assert_eq!(told, Creation::OnSale);
}

/// Takes connections and answers every command; from `silent` on, none that comes by the first connection.
async fn goes_silent(silent: Arc<AtomicBool>, connections: Arc<AtomicUsize>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let first = connections.fetch_add(1, Ordering::SeqCst) == 0;
            let silent = silent.clone();
            tokio::spawn(async move {
                let mut buffer = vec![0u8; 65_536];
                while let Ok(read @ 1..) = socket.read(&mut buffer).await {
                    if first && silent.load(Ordering::SeqCst) {
                        continue;
                    }
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
                }
            });
        }
    });
    format!("redis://{address}")
}

/// A firewall forgets the connection: packets go out, and nothing comes back, not even an error.
#[tokio::test]
async fn a_connection_that_goes_silent_is_replaced_after_the_rest() {
    let (silent, connections) = <(Arc<AtomicBool>, Arc<AtomicUsize>)>::default();
    let url = goes_silent(silent.clone(), connections.clone()).await;
    let venue = open_alone(Realization::Leased).await;
    let cloud = venue.office.cloud().with_redis_at(&url);
    let office = BoxOffice::new(cloud.clone(), Realization::Leased)
        .with_lease_patience(Duration::from_millis(500));
    let recording = cloud.tap().record();
    let asked = || {
        let calls = recording.take();
        let redis = |call: &&Call| call.request.service == Service::Redis;
        calls.iter().filter(redis).count()
    };
    let hold = async |number: u32| {
        let mut new = venue.new_booking("alice", &[number]);
        new.booking_id = format!("{}-{number}", new.booking_id);
        let told = office.reserve(&new).await.unwrap();
        assert!(matches!(told, Reserved::Held(_)), "{told:?}");
    };
    hold(1).await;
    assert_eq!((asked(), connections.load(Ordering::SeqCst)), (2, 1));
    silent.store(true, Ordering::SeqCst);
    hold(2).await;
    assert_eq!((asked(), connections.load(Ordering::SeqCst)), (0, 1));
    cloud.clock().advance(Duration::from_millis(REST_MS as u64));
    hold(3).await;
    assert_eq!((asked(), connections.load(Ordering::SeqCst)), (2, 2));
}

/// Everyone who waits for a sale asks how far the event is. Once it is on sale, its key is asked no more.
#[tokio::test]
async fn an_event_on_sale_is_read_once_by_each_server() {
    let venue = open_alone(Realization::Pure).await;
    let fresh = BoxOffice::new(venue.office.cloud().clone(), Realization::Pure);
    let server = serve(&fresh).await;
    let recording = venue.office.cloud().tap().record();
    for _ in 0..10 {
        let (status, told) = server.get(&format!("/events/{}", venue.event_id)).await;
        assert_eq!((status, &told["status"]), (200, &json!("ON_SALE")));
        assert_eq!(told["sections"][0]["name"], "A");
    }
    assert_eq!(recording.take().len(), 1);
}

/// However many servers sweep at the same moment, one of them makes the pass: its key is written no faster.
#[tokio::test]
async fn of_many_servers_one_makes_the_pass() {
    let venue = open_alone(Realization::Pure).await;
    let clock = venue.office.cloud().clock().clone();
    let heat = Arc::new(Heat::new(TABLES, clock.clone()));
    let _plan = venue.office.cloud().tap().install(heat.clone());
    let mut hall = event("hall");
    hall.sections.truncate(1);
    hall.sections[0].tickets = Tickets::Seats(2_000);
    let servers: Vec<_> = (0..8)
        .map(|_| BoxOffice::new(venue.office.cloud().clone(), Realization::Pure))
        .collect();
    servers[0].create_event(&hall).await.unwrap();
    let recording = venue.office.cloud().tap().record();
    let mut passes = 1;
    while venue.beside().event("hall").await.is_err() {
        clock.advance(Duration::from_millis(PASS_MS as u64));
        for made in join_all(servers.iter().map(BoxOffice::create_due)).await {
            assert!(made.unwrap().into_iter().all(|(_, pass)| pass.is_ok()));
        }
        let calls = recording.take();
        let transactions = calls
            .iter()
            .filter(|call| call.request.operation == "TransactWriteItems");
        let transactions = transactions.count();
        assert!(transactions <= 4, "{transactions} in one second");
        passes += 1;
    }
    assert_eq!((passes, heat.throttled()), (6, 0));
}

/// The clocks of two servers are apart, as clocks are: who is behind sees a pass a little more than a second ahead.
#[tokio::test]
async fn a_clock_that_is_a_little_behind_makes_no_pass_beside() {
    for behind in [1, 50, 900, SKEW_MS] {
        let venue = open_alone(Realization::Pure).await;
        let cloud = venue.office.cloud();
        let bobs = cloud.with_clock(Clock::manual(cloud.now() - behind));
        let bob = BoxOffice::new(bobs, Realization::Pure);
        let mut hall = event("hall");
        hall.sections[0].tickets = Tickets::Seats(1_000);
        venue.office.create_event(&hall).await.unwrap();
        assert!(bob.create_due().await.unwrap().is_empty(), "{behind}");
        // If the other server dies, he makes the next pass when it is time by his clock.
        bob.cloud()
            .clock()
            .advance(Duration::from_millis((PASS_MS + behind) as u64));
        assert_eq!(bob.create_due().await.unwrap().len(), 1, "{behind}");
    }
}

/// The replica that another server reads first has not heard of the event yet.
#[tokio::test]
async fn an_event_on_sale_is_denied_by_no_stale_read() {
    let venue = open_alone(Realization::Pure).await;
    let stale = Faults::seeded(1).stale_read(1.0);
    let _plan = venue.office.cloud().tap().install(Arc::new(stale));
    let other = BoxOffice::new(venue.office.cloud().clone(), Realization::Pure);
    let (_, creation) = other.event_so_far(&venue.event_id).await.unwrap();
    assert_eq!(creation, Creation::OnSale);
    let other = BoxOffice::new(venue.office.cloud().clone(), Realization::Pure);
    let told = other.reserve(&venue.new_booking("alice", &[1])).await;
    assert!(matches!(told, Ok(Reserved::Held(_))), "{told:?}");
}

/// The replica that a buyer reads first has heard of none of the counters yet, or of some.
#[tokio::test]
async fn admissions_are_denied_by_no_stale_read() {
    for known in [0, 1, 9] {
        let venue = open_alone(Realization::Pure).await;
        let table = venue.office.cloud().names().table("tickets");
        let stale = move |request: &Request| {
            let table = table.clone();
            let consistent = request.body["RequestItems"][&table]["ConsistentRead"] == true;
            match request.operation == "BatchGetItem" && !consistent {
                true => Verdict::Amend(Amend(Arc::new(move |answer: &Value| {
                    let mut answer = answer.clone();
                    let found = answer["Responses"][&table].as_array_mut()?;
                    found.truncate(known);
                    Some(answer)
                }))),
                false => Verdict::Pass,
            }
        };
        let _plan = venue.office.cloud().tap().install(Arc::new(Says(stale)));
        let new = venue.new_admissions("alice", 8);
        let told = venue.office.reserve_admissions(&new).await;
        assert!(matches!(told, Ok(Reserved::Held(_))), "{known}: {told:?}");
        venue.invariants().await.unwrap();
    }
}
