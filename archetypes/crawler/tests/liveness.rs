//! One that hangs, refuses or is hostile, through the real loops: the others go on at their pace, and what was
//! not the page's fault is not held against it.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::{Says, Stuck, Trouble, World};
use cloud::tap::{Call, Plan, Request, Verdict};
use cloud::{Clock, Ids, Millis, Options, Patience};
use crawler::canonical::canonical;
use crawler::crawl::{Counts, Settings, collect, run_until};
use crawler::domain::{Kind, LEASE_MS, Status};
use crawler::site::{Reply, page};
use crawler::tables::SHARDS;
use crawler::{Found, Rules, Worked};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Barrier;
use web::*;

// S3 hangs.

/// S3 accepts this call and never answers. The SDK gives up each sending after half a minute, as in life, but by the
/// clock of the test.
struct Hangs {
    operation: &'static str,
    clock: Clock,
    over: Arc<AtomicBool>,
}

impl Plan for Hangs {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let hangs = request.operation == self.operation;
        Box::pin(async move {
            let until = self.clock.now() + Patience::DEFAULT.transfer.as_millis() as Millis;
            while hangs && !self.over.load(Ordering::SeqCst) {
                if self.clock.now() >= until {
                    return Verdict::LoseRequest;
                }
                tokio::task::yield_now().await;
            }
            Verdict::Pass
        })
    }
}

/// Three workers have the page's message all the time, for as long as five leases.
async fn outage_of_s3(town: &Town, operation: &'static str, work: impl AsyncFn(&'static str)) {
    let over = Arc::new(AtomicBool::new(false));
    let hangs = Hangs {
        operation,
        clock: town.cloud().clock().clone(),
        over: over.clone(),
    };
    let plan = town.cloud().tap().install(Arc::new(hangs));
    let worker = async |name| {
        while !over.load(Ordering::SeqCst) {
            Box::pin(work(name)).await;
            tokio::task::yield_now().await;
        }
    };
    let time = async {
        for _ in 0..5 * LEASE_MS / SECOND {
            // Each second is as long as a few calls.
            for _ in 0..5 {
                let row = town.row(HOME).await;
                assert_ne!(row.status, Status::Failed, "{:?}", row.reason);
                let attempts = row.fetch_attempts.max(row.parse_attempts);
                assert!(attempts <= 1, "{attempts} attempts");
            }
            town.advance(SECOND);
        }
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(worker("one"), worker("two"), worker("three"), time);
    drop(plan);
    let row = town.row(HOME).await;
    assert!(row.waits > 3, "{row:?}");
    town.live(3).await;
    town.small_is_crawled().await.unwrap();
}

#[tokio::test]
async fn an_s3_that_hangs_uses_up_no_attempt_of_a_fetch() {
    let town = small_known().await;
    let work = async |owner| {
        let message = Town::fetch_message(HOME);
        let _ = town.crawler.fetch(&message, owner).await;
    };
    outage_of_s3(&town, "PutObject", work).await;
}

async fn an_s3_that_hangs_in_a_parse(operation: &'static str) {
    let town = small_known().await;
    let message = Town::fetch_message(HOME);
    let worked = town.crawler.fetch(&message, "w").await.unwrap();
    assert_eq!(worked, Worked::Fetched);
    let work = async |owner| {
        // SQS delivers a message again and again until it is deleted, and the sweeper sends more of them.
        let message = Town::parse_message(HOME);
        let _ = town.crawler.parse(&message, owner).await;
    };
    outage_of_s3(&town, operation, work).await;
}

#[tokio::test]
async fn an_s3_that_hangs_as_the_bytes_are_read_uses_up_no_attempt_of_a_parse() {
    an_s3_that_hangs_in_a_parse("GetObject").await;
}

#[tokio::test]
async fn an_s3_that_hangs_as_the_text_is_stored_uses_up_no_attempt_of_a_parse() {
    an_s3_that_hangs_in_a_parse("PutObject").await;
}

/// Each copy of the page's message comes again each half minute, and the sweeper sends more of them.
#[tokio::test]
async fn an_outage_of_an_hour_fails_no_page_that_waits_for_its_parser() {
    for operation in ["GetObject", "PutObject"] {
        let town = small_known().await;
        let message = Town::fetch_message(HOME);
        let worked = town.crawler.fetch(&message, "w").await.unwrap();
        assert_eq!(worked, Worked::Fetched);
        let down = Says(
            move |request: &Request| match request.operation == operation {
                true => Trouble::AccessDenied.answer(request),
                false => Verdict::Pass,
            },
        );
        let plan = town.cloud().tap().install(Arc::new(down));
        for _ in 0..120 {
            for owner in ["one", "two", "three"] {
                let message = Town::parse_message(HOME);
                let _ = town.crawler.parse(&message, owner).await;
            }
            town.sweep().await;
            let row = town.row(HOME).await;
            assert_ne!(row.status, Status::Failed, "{row:?}");
            town.advance(30 * SECOND);
        }
        drop(plan);
        let row = town.row(HOME).await;
        // The pauses double: two seconds, four, eight, and so on.
        assert_eq!(row.parse_attempts, 0, "{row:?}");
        assert!((5..=11).contains(&row.waits), "{row:?}");
        town.live(10).await;
        town.small_is_crawled().await.unwrap();
    }
}

// A host asks for an hour, and the store has no room for that.

/// Throttles the first so many sendings of the writes whose update says this, and lets so much time pass with each.
fn throttled(
    town: &Town,
    says: &'static str,
    times: usize,
    each_takes: Millis,
) -> cloud::tap::Installed {
    let (left, clock) = (AtomicUsize::new(times), town.cloud().clock().clone());
    let plan = Says(move |request: &Request| {
        let update = request.body["UpdateExpression"]
            .as_str()
            .unwrap_or_default();
        let less = |left: usize| left.checked_sub(1);
        let hit = update.starts_with(says)
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok();
        if !hit {
            return Verdict::Pass;
        }
        clock.advance(Duration::from_millis(each_takes as u64));
        Trouble::Throttled.answer(request)
    });
    town.cloud().tap().install(Arc::new(plan))
}

const RELEASE: &str = "SET next_allowed_at = :next REMOVE";
const HOUR: Millis = 60 * MINUTE;

async fn alone_for(town: &Town, host: &str) -> Millis {
    town.policy(host).await.next_allowed_at - town.now()
}

async fn asks_for_an_hour() -> Town {
    let town = small_known().await;
    town.site
        .put("site.test/", Reply::status(429).with("retry-after", "3600"));
    town
}

#[tokio::test]
async fn a_host_is_left_alone_though_the_end_of_its_turn_is_throttled_at_first() {
    let town = asks_for_an_hour().await;
    // Three calls, each sent three times.
    let plan = throttled(&town, RELEASE, 9, 0);
    let worked = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    drop(plan);
    let at = town.now() + HOUR;
    assert_eq!(worked.unwrap(), Worked::Retrying { at });
    assert_eq!(alone_for(&town, "http://site.test").await, HOUR);
}

#[tokio::test]
async fn a_page_is_put_off_for_as_long_as_its_host_asks_though_the_turn_could_not_be_ended() {
    let town = asks_for_an_hour().await;
    let plan = throttled(&town, RELEASE, usize::MAX, 5 * SECOND);
    let worked = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    drop(plan);
    let row = town.row(HOME).await;
    assert!(
        row.not_before - town.now() > HOUR - MINUTE,
        "{worked:?}, {row:?}"
    );
    town.advance(30 * MINUTE);
    let early = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    assert!(matches!(early.unwrap(), Worked::TooEarly { .. }));
    assert_eq!(town.site.hits("site.test/"), 1);
}

#[tokio::test]
async fn a_host_whose_robots_txt_asks_for_an_hour_is_left_alone_though_that_is_throttled_at_first()
{
    let town = small().await;
    let busy = Reply::status(503).with("retry-after", "3600");
    town.site.put("site.test/robots.txt", busy);
    let plan = throttled(&town, "SET robots_failures", 9, 0);
    let worked = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    drop(plan);
    let at = town.now() + HOUR;
    assert_eq!(worked.unwrap(), Worked::TooEarly { at });
    assert_eq!(alone_for(&town, "http://site.test").await, HOUR);
}

/// The third time in a row its URLs fail, and a seed that is added again opens the host: after the hour.
#[tokio::test]
async fn a_host_whose_robots_txt_asks_for_an_hour_is_left_alone_also_when_it_is_given_up() {
    let town = small().await;
    let busy = Reply::status(503).with("retry-after", "3600");
    town.site.put("site.test/robots.txt", busy);
    for _ in 0..3 {
        town.advance(2 * HOUR);
        town.crawler
            .fetch_robots("http://site.test", "w")
            .await
            .unwrap();
    }
    assert_eq!(alone_for(&town, "http://site.test").await, HOUR);
}

#[tokio::test]
async fn a_host_that_a_robots_txt_leads_to_is_left_alone_though_the_end_of_its_turn_is_throttled() {
    let town = small().await;
    let there = Reply::redirect("http://other.test/robots.txt");
    town.site.put("site.test/robots.txt", there);
    let busy = Reply::status(429).with("retry-after", "3600");
    town.site.put("other.test/robots.txt", busy);
    let plan = throttled(&town, RELEASE, 9, 0);
    let _ = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    drop(plan);
    assert_eq!(alone_for(&town, "http://other.test").await, HOUR);
}

/// Its rules lead to another host and back.
#[tokio::test]
async fn what_a_host_says_is_kept_though_the_turn_of_another_one_could_not_be_ended() {
    let town = small().await;
    let there = Reply::redirect("http://other.test/robots.txt");
    town.site.put("site.test/robots.txt", there);
    let back = Reply::redirect("http://site.test/rules.txt");
    town.site.put("other.test/robots.txt", back);
    let busy = Reply::status(503).with("retry-after", "3600");
    town.site.put("site.test/rules.txt", busy);
    let plan = throttled(&town, RELEASE, usize::MAX, 0);
    let worked = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    drop(plan);
    assert!(worked.is_err(), "{worked:?}");
    assert_eq!(town.site.hits("site.test/rules.txt"), 1);
    assert_eq!(alone_for(&town, "http://site.test").await, HOUR);
}

// One hangs among many.

/// Seeds that were never sent, so late that the sweeper looks after them.
async fn overdue(many: usize) -> (Town, Vec<String>) {
    let town = open().await;
    let urls: Vec<_> = (0..many).map(|n| format!("http://site.test/{n}")).collect();
    for url in &urls {
        town.crawler.add_seed(url).await.unwrap();
    }
    while town.receive_fetch().await.is_some() {}
    town.advance(ROUND.as_millis() as i64);
    (town, urls)
}

#[tokio::test]
async fn five_urls_that_hang_take_a_sweep_no_longer_than_one() {
    let (town, urls) = overdue(20).await;
    let tap = town.cloud().tap();
    let hang = |url: &String| tap.install(Arc::new(Stuck::hanging(&hash(url))));
    let plans: Vec<_> = urls[..5].iter().map(hang).collect();
    let began = Instant::now();
    let swept = town.crawler.sweep_stalled(0..SHARDS).await;
    let took = began.elapsed();
    drop(plans);
    let failed = swept.iter().filter(|(_, swept)| swept.is_err()).count();
    assert_eq!((failed, swept.len()), (5, 20));
    // Each is waited for two seconds.
    assert!(took < Duration::from_secs(6), "{took:?}");
}

#[tokio::test]
async fn a_url_and_a_lane_that_hang_keep_no_other_from_being_recrawled() {
    let town = small_known().await;
    let links: Vec<_> = (0..20).map(|n| format!("/{n}")).collect();
    for link in &links {
        town.site
            .put(&format!("site.test{link}"), page(link, &["/"]));
    }
    town.site.put("site.test/", page("Home", &links));
    town.live(3).await;
    town.advance(2 * 24 * HOUR);
    let stuck = town.row(HOME).await;
    let rows = town.rows().await;
    let lane = rows.iter().find(|row| row.lane != stuck.lane).unwrap();
    let hanging = [&stuck.url_hash, &lane.lane].map(|it| Arc::new(Stuck::hanging(it)));
    let tap = town.cloud().tap();
    let plans: Vec<_> = hanging.iter().map(|it| tap.install(it.clone())).collect();
    let began = Instant::now();
    let done = town.crawler.recrawl(0..SHARDS, town.now() - 1).await;
    let took = began.elapsed();
    drop(plans);
    assert!(hanging.iter().all(|it| it.met() > 0));
    let mut failed: Vec<_> = done.iter().filter(|(_, opened)| opened.is_err()).collect();
    failed.sort_by_key(|(what, _)| what.len());
    let failed: Vec<_> = failed.iter().map(|(what, _)| what.as_str()).collect();
    assert_eq!(failed, [lane.lane.as_str(), stuck.url_hash.as_str()]);
    let in_lane = rows.iter().filter(|row| row.lane == lane.lane).count();
    let opened = done.iter().filter(|(_, opened)| matches!(opened, Ok(true)));
    assert_eq!(opened.count(), rows.len() - in_lane - 1);
    // The lane and then the URL are waited for two seconds each; the SDK would wait for twenty.
    assert!(took < Duration::from_secs(8), "{took:?}");
}

/// A town by the clock on the wall, as the command has it.
async fn living(rules: Rules) -> Town {
    let mut options = Options::from_env().unwrap();
    options.clock = Clock::System;
    options.ids = Ids::Uuid;
    let cloud = cloud::connect_with(options).await.unwrap();
    open_on(cloud, rules).await
}

/// One host takes a minute for each page, and has more pages in the frontier than there are workers.
#[tokio::test]
async fn a_host_that_hangs_keeps_no_other_from_being_crawled_at_its_pace() {
    let rules = Rules {
        delay_ms: 20,
        patience_ms: 2_000,
        ..rules()
    };
    let town = living(rules).await;
    for number in 0..20 {
        let slow = page("Slow", &["/"]).after(Duration::from_secs(60));
        let at = format!("third.test/{number}");
        town.site.put(&at, slow);
        town.crawler
            .add_seed(&format!("http://{at}"))
            .await
            .unwrap();
    }
    let mut others = Vec::new();
    for number in 0..20 {
        for host in ["site.test", "other.test"] {
            let at = format!("{host}/{number}");
            town.site.put(&at, page("Well", &["/0"]));
            others.push(format!("http://{at}"));
            town.crawler
                .add_seed(&format!("http://{at}"))
                .await
                .unwrap();
        }
    }
    let began = Instant::now();
    let all_done = async {
        for url in &others {
            while town.status(url).await != Status::Parsed {
                tokio::task::yield_now().await;
            }
        }
    };
    let counts = Arc::new(Counts::default());
    let finished = run_until(&town.crawler, Settings::default(), &counts, all_done);
    let finished = tokio::time::timeout(Duration::from_secs(60), finished).await;
    let took = began.elapsed();
    println!("{took:?}");
    assert!(
        !finished.unwrap().unwrap(),
        "the host that hangs is not done"
    );
    assert!(town.log_of("third.test") > 0, "it was asked");
    // Sooner than a single request of the one that hangs ends.
    assert!(took < Duration::from_secs(15), "{took:?}");
}

// What is done at once.

/// Calls of one kind wait for each other: none goes on before so many are under way.
struct Together {
    operation: &'static str,
    here: Barrier,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Together {
    fn of(operation: &'static str, many: usize) -> Arc<Self> {
        Arc::new(Self {
            operation,
            here: Barrier::new(many),
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        })
    }
}

impl Plan for Together {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let is_it = request.operation == self.operation;
        Box::pin(async move {
            if is_it {
                let now = 1 + self.now.fetch_add(1, Ordering::SeqCst);
                self.most.fetch_max(now, Ordering::SeqCst);
                self.here.wait().await;
            }
            Verdict::Pass
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        if call.request.operation == self.operation {
            self.now.fetch_sub(1, Ordering::SeqCst);
        }
        std::future::ready(()).boxed()
    }
}

const A_WHILE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn links_are_put_at_once_and_no_more_of_them_than_the_rules_say() {
    let town = open().await;
    let at_once = town.crawler.rules().puts_at_once;
    let found = (0..2 * at_once).map(|number| Found {
        url: canonical(&format!("http://site.test/{number}")).unwrap(),
        kind: Kind::Page,
        depth: 1,
        redirects: 0,
        found_on: None,
    });
    let found: Vec<_> = found.collect();
    let together = Together::of("PutItem", at_once);
    let plan = town.cloud().tap().install(together.clone());
    let expanded = tokio::time::timeout(A_WHILE, town.crawler.expand(&found)).await;
    drop(plan);
    assert_eq!(expanded.unwrap().unwrap().new as usize, 2 * at_once);
    assert_eq!(together.most.load(Ordering::SeqCst), at_once);
}

#[tokio::test]
async fn what_was_crawled_is_read_again_at_once() {
    let town = open().await;
    let links: Vec<_> = (1..16).map(|n| format!("/{n}")).collect();
    for link in &links {
        town.site
            .put(&format!("site.test{link}"), page(link, &["/"]));
    }
    town.site.put("site.test/", page("Home", &links));
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(3).await;
    let together = Together::of("GetObject", 16);
    let plan = town.cloud().tap().install(together.clone());
    let collected = tokio::time::timeout(A_WHILE, collect(&town.crawler, None)).await;
    drop(plan);
    let titles = collected.unwrap().unwrap();
    assert!(titles.iter().all(|page| !page.title.is_empty()));
    assert_eq!(titles.len(), 16);
}

// What takes long to read does not hold up what else the thread has to do.

/// Ticks every ten milliseconds beside some work on the same thread, and gives the longest that a tick was late.
async fn longest_hold_up<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut longest = Duration::ZERO;
    let ticking = async {
        let every = Duration::from_millis(10);
        let mut ticker = tokio::time::interval(every);
        ticker.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = Instant::now();
        loop {
            ticker.tick().await;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    };
    let done = tokio::select! {
        done = work => done,
        () = ticking => unreachable!("it ticks for ever"),
    };
    (done, longest)
}

#[tokio::test(flavor = "current_thread")]
async fn a_hostile_page_is_parsed_beside_the_thread_that_others_wait_for() {
    let town = small_known().await;
    let base = "a/".repeat(950);
    let tags = "<a href=b><b x=y>".repeat(100_000);
    let html = format!("<base href=\"/{base}\">{tags}");
    town.site.put("site.test/", Reply::html(html));
    let fetched = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    assert_eq!(fetched.unwrap(), Worked::Fetched);
    let began = Instant::now();
    let message = Town::parse_message(HOME);
    let (parsed, longest) = longest_hold_up(town.crawler.parse(&message, "p")).await;
    assert!(matches!(parsed.unwrap(), Worked::Parsed { .. }));
    let took = began.elapsed();
    println!("{took:?}, held up for {longest:?}");
    assert!(longest < took / 3, "{longest:?} of {took:?}");
}

/// As many rules as fit, each of which has to be looked for in the longest path there is.
#[tokio::test(flavor = "current_thread")]
async fn a_hostile_robots_txt_is_read_beside_the_thread_that_others_wait_for() {
    let town = open().await;
    let long = format!("{HOME}{}", "a".repeat(1_900));
    town.crawler.add_seed(&long).await.unwrap();
    let rules = "allow:/*b\n".repeat(crawler::robots::MAX_ROBOTS / 10 - 2);
    let robots = Reply::text(format!("user-agent: *\n{rules}"));
    town.site.put("site.test/robots.txt", robots);
    let began = Instant::now();
    let message = Town::fetch_message(&long);
    let (fetched, longest) = longest_hold_up(town.crawler.fetch(&message, "w")).await;
    let took = began.elapsed();
    println!("{fetched:?} in {took:?}, held up for {longest:?}");
    assert!(longest < took / 3, "{longest:?} of {took:?}");
}
