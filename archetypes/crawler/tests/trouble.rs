//! What no order of delivered calls shows: late copies, services and hosts that hang or refuse, stuck and
//! hostile neighbours, time that passes in the middle, every pair of actions.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::{
    Interleave, LateCopies, Mixed, Pairs, Says, Stuck, Trouble, TroubleSweep, Weaken, World,
};
use cloud::tap::{Call, Plan, Request, Service, Verdict};
use cloud::{Clock, Cloud, CloudError, Patience};
use crawler::canonical::canonical;
use crawler::domain::{Kind, LEASE_MS, Robots, Status, UrlMetadataState};
use crawler::site::{Reply, page};
use crawler::tables::SHARDS;
use crawler::{ClaimedParse, Crawler, CrawlerError, Found, Https, ParseRun, Rules, Web, Worked};
use futures::FutureExt;
use futures::future::BoxFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};
use web::*;

const DAY: i64 = 86_400_000;

async fn fetched() -> Town {
    let town = small_known().await;
    let worked = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    assert_eq!(worked.unwrap(), Worked::Fetched);
    town
}

#[tokio::test]
async fn a_compressed_answer_is_refused_and_not_parsed_as_text() {
    let town = small_known().await;
    let packed = Reply::html("not text").with("content-encoding", "gzip");
    town.site.put("site.test/", packed);
    let worked = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    let reason = "content encoding 'gzip', which was not asked for".to_owned();
    assert_eq!(worked.unwrap(), Worked::Failed { reason });
    let asked = town.site.log();
    assert!(
        asked.iter().all(|hit| hit.accepts == "identity"),
        "{asked:?}"
    );
}

/// The host asks for an hour, and the row cannot be written in that moment.
#[tokio::test]
async fn a_host_is_left_alone_though_the_write_after_its_answer_fails() {
    let town = small_known().await;
    town.site
        .put("site.test/", Reply::status(429).with("retry-after", "3600"));
    let plan = Says(
        |request: &Request| match request.shape() == "UpdateItem url_metadata if" {
            true => Trouble::Throttled.answer(request),
            false => Verdict::Pass,
        },
    );
    let down = town.cloud().tap().install(Arc::new(plan));
    town.crawler
        .fetch(&Town::fetch_message(HOME), "w")
        .await
        .unwrap_err();
    drop(down);
    let host = town.policy("http://site.test").await;
    let alone = host.next_allowed_at - town.now();
    assert!(alone > 3_500_000, "{alone} ms");
}

/// Gives the other host a worker at any time, and the fetch of the home page a second later each round.
async fn rounds_beside_a_busy_host(town: &Town, rounds: usize) {
    for round in 0..rounds {
        let turn = town
            .crawler
            .take_turn("http://other.test", &format!("t{round}"))
            .await;
        town.crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap();
        if let Ok(turn) = turn.unwrap() {
            town.crawler
                .release_turn(&turn.host, &turn.turn_id, None)
                .await
                .unwrap();
        }
        town.advance(SECOND);
    }
}

async fn redirected_to_another_host() -> Town {
    let town = open_with(Rules {
        delay_ms: 1_000,
        ..rules()
    })
    .await;
    let there = "http://other.test/robots.txt";
    town.site
        .put("site.test/robots.txt", Reply::redirect(there));
    town.site.put(
        "other.test/robots.txt",
        Reply::text("User-agent: *\nDisallow: /no"),
    );
    town.site.put("site.test/", page("Home", &["/a", "/no"]));
    town.crawler.add_seed(HOME).await.unwrap();
    town
}

#[tokio::test]
async fn rules_of_a_busy_host_that_are_known_are_shared_with_a_host_redirected_to_it() {
    let town = redirected_to_another_host().await;
    town.crawler
        .fetch_robots("http://other.test", "other")
        .await
        .unwrap();
    town.advance(10 * SECOND);
    let asked = town.site.hits("other.test/robots.txt");
    rounds_beside_a_busy_host(&town, 10).await;
    assert_eq!(town.row(HOME).await.status, Status::Fetched);
    assert_eq!(town.site.hits("site.test/robots.txt"), 1);
    assert_eq!(town.site.hits("other.test/robots.txt"), asked);
}

#[tokio::test]
async fn a_robots_txt_redirected_to_a_busy_host_is_not_asked_for_for_ever() {
    let town = redirected_to_another_host().await;
    rounds_beside_a_busy_host(&town, 100).await;
    let hits = town.site.hits("site.test/robots.txt");
    assert!((1..=3).contains(&hits), "asked for {hits} times");
    let host = town.policy("http://site.test").await;
    assert_eq!(host.robots, Some(Robots::Unreachable));
    assert_eq!(town.row(HOME).await.status, Status::Failed);
}

/// Each put of a link takes a second.
struct Slow(Clock);

impl Plan for Slow {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        std::future::ready(Verdict::Pass).boxed()
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        if call.request.operation == "PutItem" {
            self.0.advance(Duration::from_secs(1));
        }
        std::future::ready(()).boxed()
    }
}

#[tokio::test]
async fn a_slow_parser_keeps_its_page() {
    let town = small_known().await;
    let links: Vec<_> = (0..250).map(|n| format!("/page-{n}")).collect();
    town.site.put("site.test/", page("Many", &links));
    town.crawler
        .fetch(&Town::fetch_message(HOME), "w")
        .await
        .unwrap();
    let claimed = town
        .crawler
        .claim_parse(&Town::parse_message(HOME), "slow")
        .await;
    let ClaimedParse::Run(run) = claimed.unwrap() else {
        panic!("it is free");
    };
    let slow = town
        .cloud()
        .tap()
        .install(Arc::new(Slow(town.cloud().clock().clone())));
    let began = town.now();
    let parsing = town.crawler.parse_run(*run);
    let looking = async {
        // Every worker that gets the message meanwhile finds it held.
        loop {
            let claimed = town
                .crawler
                .claim_parse(&Town::parse_message(HOME), "other")
                .await;
            match claimed.unwrap() {
                ClaimedParse::Held { .. } => tokio::task::yield_now().await,
                ClaimedParse::Echo => return,
                other => panic!("{other:?}"),
            }
        }
    };
    let (parsed, ()) = tokio::join!(parsing, looking);
    drop(slow);
    assert_eq!(parsed.unwrap(), Worked::Parsed { new: 250 });
    assert!(town.now() - began > 3 * LEASE_MS);
    let row = town.row(HOME).await;
    assert_eq!((row.status, row.parse_attempts), (Status::Parsed, 1));
}

#[tokio::test]
async fn a_parser_that_lost_its_lease_stops() {
    let town = fetched().await;
    let claim = async |owner| match town
        .crawler
        .claim_parse(&Town::parse_message(HOME), owner)
        .await
    {
        Ok(ClaimedParse::Run(run)) => *run,
        other => panic!("{other:?}"),
    };
    let late = claim("late").await;
    town.advance(LEASE_MS + 1);
    let heir = claim("heir").await;
    assert_eq!(town.crawler.parse_run(late).await.unwrap(), Worked::Stale);
    assert!(matches!(
        town.crawler.parse_run(heir).await.unwrap(),
        Worked::Parsed { .. }
    ));
}

/// A page that a slow parser has, shortly before its lease ends.
struct Slowly {
    town: Town,
    run: ParseRun,
    ahead: Crawler,
}

impl World for Slowly {
    fn cloud(&self) -> &Cloud {
        self.town.cloud()
    }
}

/// The heartbeat may land between the look at the lease, by a clock that is ahead, and the claim.
#[tokio::test]
async fn a_lease_that_was_renewed_is_not_taken_over() {
    let setup = || async {
        let town = fetched().await;
        let claimed = town
            .crawler
            .claim_parse(&Town::parse_message(HOME), "slow")
            .await;
        let ClaimedParse::Run(run) = claimed.unwrap() else {
            panic!("it is free");
        };
        town.advance(LEASE_MS - 1);
        let ahead = town.ahead(2);
        Slowly {
            town,
            run: *run,
            ahead,
        }
    };
    let explored = Interleave::of(setup)
        .actor("slow", |world: Arc<Slowly>| async move {
            world
                .town
                .crawler
                .keep_parse(&mut world.run.clone())
                .await
                .unwrap()
        })
        .actor("other", |world: Arc<Slowly>| async move {
            let claimed = world
                .ahead
                .claim_parse(&Town::parse_message(HOME), "other")
                .await;
            matches!(claimed.unwrap(), ClaimedParse::Run(_))
        })
        .check(|_, told| async move {
            let has_it: Vec<_> = told
                .iter()
                .filter(|(_, has)| *has)
                .map(|(who, _)| *who)
                .collect();
            match has_it.len() {
                1 => Ok(has_it.join(" ")),
                _ => Err(format!("{has_it:?} have it")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.seen.len(), 2, "{explored:?}");
}

/// A base of a megabyte, and a hundred thousand links.
#[test]
fn a_hostile_page_takes_no_minute() {
    let found = canonical(HOME).unwrap();
    let row = UrlMetadataState::discovered(&found, Kind::Page, 0, 0, None, "x".into(), 0);
    let row = UrlMetadataState {
        content_type: Some("text/html".to_owned()),
        ..row
    };
    let base = "a/".repeat(500_000);
    let html = format!("<base href=\"/{base}\">{}", "<a href=b>".repeat(100_000));
    let began = Instant::now();
    let page = crawler::page::read(&row, html.as_bytes());
    assert_eq!(page.links.len(), 1);
    let took = began.elapsed();
    assert!(took < Duration::from_secs(10), "{took:?}");
}

/// What a host says is kept in a row, which holds 400 KB: each text of it from nothing to far too much.
#[tokio::test]
async fn what_a_host_says_may_have_any_length() {
    for length in [0, 1, 1_999, 2_000, 2_001, 60_000, 420_000] {
        let long = "x".repeat(length);
        let html = || Reply::html(format!("<title>{long}</title><a href=/{long}>{long}</a>"));
        let replies = [
            html().with("etag", &long),
            html().with("last-modified", &long),
            Reply::new(200, &format!("text/html; charset={long}"), long.clone()),
            Reply::new(200, &long, long.clone()),
            html().with("content-encoding", &long),
            Reply::redirect(&format!("/{long}")),
            Reply::status(429).with("retry-after", &long),
        ];
        for (number, reply) in replies.into_iter().enumerate() {
            let town = small_known().await;
            town.site.put("site.test/", reply);
            let fetched = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
            let fetched = fetched.unwrap_or_else(|fault| panic!("{number} of {length}: {fault}"));
            if fetched == Worked::Fetched {
                let parsed = town.crawler.parse(&Town::parse_message(HOME), "p").await;
                let parsed = parsed.unwrap_or_else(|fault| panic!("{number} of {length}: {fault}"));
                assert!(matches!(parsed, Worked::Parsed { .. }), "{parsed:?}");
            }
            town.invariants().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_page_that_fails_in_one_recrawl_is_recrawled_the_next_time() {
    let town = small().await;
    town.live(3).await;
    town.advance(2 * DAY);
    town.site.put("site.test/a", Reply::status(500));
    town.recrawl(town.now() - 1).await;
    town.live(5).await;
    assert_eq!(town.status("http://site.test/a").await, Status::Failed);
    town.site.put("site.test/a", page("A again", &["/", "/b"]));
    town.advance(2 * DAY);
    town.recrawl(town.now() - 1).await;
    town.live(5).await;
    assert_eq!(town.status("http://site.test/a").await, Status::Parsed);
    // What was never fetched stays as it is: the rules forbid it.
    assert_eq!(town.status("http://site.test/no").await, Status::Failed);
}

/// One URL hangs, and so does one lane of the index. The sweep ends soon, and the others go on.
#[tokio::test]
async fn a_stuck_url_and_a_stuck_lane_keep_no_other() {
    let town = open().await;
    let urls: Vec<_> = (0..20).map(|n| format!("http://site.test/{n}")).collect();
    for url in &urls {
        town.crawler.add_seed(url).await.unwrap();
    }
    while town.receive_fetch().await.is_some() {}
    town.advance(ROUND.as_millis() as i64);
    let stuck = hash(&urls[0]);
    let lane = async |hash: &str| town.crawler.read_url(hash).await.unwrap().unwrap().lane;
    let of_stuck = lane(&stuck).await;
    let mut hanging_lane = String::new();
    for url in &urls {
        hanging_lane = lane(&hash(url)).await;
        if hanging_lane != of_stuck {
            break;
        }
    }
    let hanging = [&stuck, &hanging_lane].map(|it| Arc::new(Stuck::hanging(it)));
    let tap = town.cloud().tap();
    let plans: Vec<_> = hanging.iter().map(|it| tap.install(it.clone())).collect();
    let sweep = town.crawler.sweep_stalled(0..SHARDS);
    let swept = tokio::time::timeout(Patience::DEFAULT.attempt, sweep)
        .await
        .unwrap();
    drop(plans);
    let mut failed: Vec<_> = swept
        .iter()
        .filter(|(_, it)| it.is_err())
        .map(|(what, _)| what.clone())
        .collect();
    failed.sort();
    let mut expected = vec![stuck, hanging_lane];
    expected.sort();
    assert_eq!(failed, expected);
    assert!(swept.len() - failed.len() >= 5, "{swept:?}");
    assert!(hanging.iter().all(|it| it.met() > 0));
}

/// A page with a link, from a seed to its end, its host's robots.txt and a sweeper; then a copy of any of these
/// writes. Gives where each landed.
async fn late_copies(of: impl Fn(&Request) -> bool + Send + Sync + 'static) -> Vec<String> {
    let town = || async {
        let town = open().await;
        town.put_small();
        town.site.put("site.test/", page("Home", &["/a"]));
        town.site.put("site.test/a", page("A", &["/"]));
        town
    };
    let harmless = LateCopies::of(town)
        .only(of)
        .act("client", |town: Arc<Town>| async move {
            town.crawler.afresh().add_seed(HOME).await.unwrap();
        })
        .act("fetcher", |town: Arc<Town>| async move {
            let _ = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
        })
        .act("sweeper", |town: Arc<Town>| async move {
            town.advance(ROUND.as_millis() as i64);
            let _ = town.crawler.sweep(&hash(HOME)).await;
        })
        .act("parser", |town: Arc<Town>| async move {
            let _ = town.crawler.parse(&Town::parse_message(HOME), "p").await;
        })
        .act("recrawler", |town: Arc<Town>| async move {
            town.advance(DAY);
            let _ = town.crawler.reopen(&hash(HOME), town.now()).await;
        })
        .check(|town| async move {
            town.live(3).await;
            town.invariants().await?;
            match (town.status(HOME).await, town.status(A).await) {
                (Status::Parsed, Status::Parsed) => Ok(()),
                other => Err(format!("{other:?} for ever")),
            }
        })
        .run()
        .await
        .unwrap();
    harmless.landings
}

fn assert_landed(landings: &[String], writes: &[&str]) {
    for write in writes {
        let landed = landings.iter().any(|landing| landing.contains(write));
        assert!(landed, "{write}: {landings:#?}");
    }
}

#[tokio::test]
async fn a_late_copy_of_any_write_changes_nothing() {
    let landings = late_copies(|request| request.service == Service::DynamoDb).await;
    let writes = [
        "PutItem url_metadata",
        "UpdateItem domain_policies",
        "TransactWriteItems",
        "UpdateItem url_metadata",
        "PutItem artifacts",
        "UpdateItem artifacts",
    ];
    assert_landed(&landings, &writes);
}

#[tokio::test]
async fn a_late_copy_of_any_message_or_object_changes_nothing() {
    let landings = late_copies(|request| request.service != Service::DynamoDb).await;
    let writes = [
        "SendMessage frontier",
        "SendMessage parse",
        "SendMessageBatch frontier",
        "DeleteMessage frontier",
        "DeleteMessage parse",
        "PutObject artifacts",
    ];
    assert_landed(&landings, &writes);
}

/// A seed that robots.txt forbids, for a day; then it is asked for again.
fn forbidden_for_a_day(
    weaken: impl Fn() -> Option<Weaken> + Send + Sync + 'static,
) -> LateCopies<Town> {
    let town = move || {
        let weaken = weaken();
        async move {
            let town = open().await;
            town.site.put("site.test/", page("Home", &[] as &[&str]));
            let nothing = Reply::text("User-agent: *\nDisallow: /");
            town.site.put("site.test/robots.txt", nothing);
            if let Some(weaken) = weaken {
                // For as long as this cloud is there.
                std::mem::forget(town.cloud().tap().install(Arc::new(weaken)));
            }
            town
        }
    };
    let fetch = |town: Arc<Town>| async move {
        let _ = town.crawler.fetch(&Town::fetch_message(HOME), "w").await;
    };
    let seed = |town: Arc<Town>| async move {
        town.crawler.add_seed(HOME).await.unwrap();
    };
    LateCopies::of(town)
        .only(|request| request.service == Service::DynamoDb)
        .act("client", seed)
        .act("refused", fetch)
        .act("host", |town: Arc<Town>| async move {
            town.site.put("site.test/robots.txt", Reply::status(404));
            town.advance(2 * DAY);
        })
        .act("again", seed)
        .act("fetcher", fetch)
        .check(|town| async move {
            town.live(3).await;
            town.invariants().await?;
            match town.status(HOME).await {
                Status::Parsed => Ok(()),
                other => Err(format!("{other:?} for ever")),
            }
        })
}

#[tokio::test]
async fn a_seed_that_is_asked_for_again_is_not_given_up_by_a_late_copy() {
    forbidden_for_a_day(|| None).run().await.unwrap();
}

#[tokio::test]
async fn without_the_time_a_late_copy_gives_up_a_seed_that_was_asked_for_again() {
    let weaken = || Some(Weaken::guard_on("url_metadata").without("not_before = :as_read"));
    let harmed = forbidden_for_a_day(weaken).run().await.unwrap_err();
    assert_eq!(harmed.why, "Failed for ever");
}

/// A town, and a worker in it with a short patience. The check has the usual one: a slow machine must not fail it.
struct Impatient {
    town: Town,
    worker: Crawler,
}

impl World for Impatient {
    fn cloud(&self) -> &Cloud {
        self.town.cloud()
    }
}

fn impatient(town: Town) -> Impatient {
    let cloud = town.cloud().with_patience(Patience::SHORT);
    let web = Web::new(&cloud, town.site.guard(&HOSTS), Https::None);
    let web = web.unwrap().within(Duration::from_millis(200));
    let worker = town.crawler.on(cloud).asking(web);
    Impatient { town, worker }
}

/// A conflict is tried again; of the others the worker says what kind of fault it was, and the page is not
/// blamed for it.
fn is_told(
    trouble: Trouble,
    request: &Request,
    told: &Result<Worked, CrawlerError>,
) -> Result<(), String> {
    match (trouble, told) {
        (_, Err(CrawlerError::Fault(CloudError::Throttled(_) | CloudError::Unknown(_)))) => Ok(()),
        (Trouble::AccessDenied, Err(CrawlerError::Fault(_))) => Ok(()),
        (
            Trouble::Hangs | Trouble::HangsAfter | Trouble::Lost | Trouble::LostAnswer,
            Ok(Worked::Retrying { .. } | Worked::TooEarly { .. }),
        ) if request.service == Service::Http => Ok(()),
        (_, Ok(Worked::Fetched | Worked::Parsed { .. } | Worked::TooEarly { .. })) => Ok(()),
        (_, told) => Err(format!("it was told {told:?}")),
    }
}

#[tokio::test]
async fn a_fetch_meets_every_trouble_and_the_page_is_crawled() {
    TroubleSweep::of(|| async { impatient(small().await) })
        .action("worker", |world: Arc<Impatient>| async move {
            world
                .worker
                .fetch(&Town::fetch_message(HOME), "worker")
                .await
        })
        .answers(is_told)
        .recovery(|world| async move { world.town.live(5).await })
        .check(|world| async move { world.town.small_is_crawled().await })
        .within(Duration::from_secs(10))
        .run()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_parse_meets_every_trouble_and_loses_no_link() {
    TroubleSweep::of(|| async { impatient(fetched().await) })
        .action("worker", |world: Arc<Impatient>| async move {
            world
                .worker
                .parse(&Town::parse_message(HOME), "worker")
                .await
        })
        .answers(is_told)
        .recovery(|world| async move { world.town.live(5).await })
        .check(|world| async move { world.town.small_is_crawled().await })
        .within(Duration::from_secs(10))
        .run()
        .await
        .unwrap();
}

/// A fault is told as what it was, and a conflict is none: it is tried again.
fn is_told_of<T>(
    trouble: Trouble,
    _: &Request,
    told: &Result<T, CrawlerError>,
) -> Result<(), String> {
    match (trouble, told) {
        (_, Ok(_)) => Ok(()),
        (Trouble::Conflict, Err(fault)) => Err(format!("it was told {fault}")),
        (_, Err(CrawlerError::Fault(CloudError::Throttled(_) | CloudError::Unknown(_)))) => Ok(()),
        (_, Err(fault)) => Err(format!("it was told {fault}")),
    }
}

#[tokio::test]
async fn a_seed_meets_every_trouble_and_is_crawled_when_it_is_added_again() {
    let empty = || async {
        let town = open().await;
        town.put_small();
        impatient(town)
    };
    TroubleSweep::of(empty)
        .action("client", |world: Arc<Impatient>| async move {
            world.worker.afresh().add_seed(HOME).await
        })
        .answers(is_told_of)
        .recovery(|world| async move {
            world.town.crawler.afresh().add_seed(HOME).await.unwrap();
            world.town.live(5).await;
        })
        .check(|world| async move { world.town.small_is_crawled().await })
        .run()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_failed_seed_that_is_added_again_meets_every_trouble_and_is_crawled() {
    TroubleSweep::of(|| async { impatient(failed_since().await) })
        .action("client", |world: Arc<Impatient>| async move {
            world.worker.afresh().add_seed(A).await
        })
        .answers(is_told_of)
        .recovery(|world| async move {
            world.town.crawler.afresh().add_seed(A).await.unwrap();
            world.town.live(5).await;
        })
        .check(|world| async move {
            match world.town.status(A).await {
                Status::Parsed => Ok(()),
                other => Err(format!("{other:?} for ever")),
            }
        })
        .run()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_sweep_meets_every_trouble_and_loses_nothing() {
    let stuck_to_fetch = || async {
        let town = small_known().await;
        town.receive_fetch().await.unwrap();
        impatient(town)
    };
    let stuck_to_parse = || async {
        let town = fetched().await;
        town.receive_parse().await.unwrap();
        impatient(town)
    };
    for sweep in [
        TroubleSweep::of(stuck_to_fetch),
        TroubleSweep::of(stuck_to_parse),
    ] {
        sweep
            .action("sweeper", |world: Arc<Impatient>| async move {
                world.town.advance(ROUND.as_millis() as i64);
                world.worker.sweep(&hash(HOME)).await
            })
            .answers(is_told_of)
            .recovery(|world| async move { world.town.live(5).await })
            .check(|world| async move { world.town.small_is_crawled().await })
            .run()
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn a_recrawl_meets_every_trouble_and_is_made_when_it_is_asked_for_again() {
    let finished = || async {
        let town = small().await;
        town.live(3).await;
        town.advance(2 * DAY);
        impatient(town)
    };
    TroubleSweep::of(finished)
        .action("recrawler", |world: Arc<Impatient>| async move {
            world.worker.reopen(&hash(A), world.town.now()).await
        })
        .answers(is_told_of)
        .recovery(|world| async move {
            let town = &world.town;
            town.crawler.reopen(&hash(A), town.now()).await.unwrap();
            town.live(5).await;
        })
        .check(|world| async move {
            world.town.small_is_crawled().await?;
            match world.town.site.hits("site.test/a") {
                0 | 1 => Err("it was not fetched again".to_owned()),
                _ => Ok(()),
            }
        })
        .run()
        .await
        .unwrap();
}

/// The one transaction there is: a claim, beside another worker's for another page of the host.
#[tokio::test]
async fn every_mix_of_conflict_and_failed_condition_gives_one_turn_to_one_worker() {
    for mask in 0..4_u32 {
        let town = small_known().await;
        town.crawler.add_seed("http://site.test/a").await.unwrap();
        let mixed = Arc::new(Mixed::at(mask));
        let plan = town.cloud().tap().install(mixed.clone());
        let (home, a) = (
            Town::fetch_message(HOME),
            Town::fetch_message("http://site.test/a"),
        );
        let (one, other) = tokio::join!(
            town.crawler.fetch(&home, "one"),
            town.crawler.fetch(&a, "other")
        );
        drop(plan);
        for worked in [one.unwrap(), other.unwrap()] {
            let fine = matches!(worked, Worked::Fetched | Worked::TooEarly { .. });
            assert!(fine, "mask {mask}: {worked:?}");
        }
        town.live(5).await;
        town.small_is_crawled().await.unwrap();
    }
}

#[tokio::test]
async fn every_pair_of_maintenance_and_what_it_mends_holds_in_every_order() {
    let overdue = || async {
        let town = fetched().await;
        town.advance(ROUND.as_millis() as i64);
        town
    };
    let met = Pairs::of(overdue)
        .action("sweep", |town: Arc<Town>| async move {
            town.crawler.sweep(&hash(HOME)).await
        })
        .action("parse", |town: Arc<Town>| async move {
            let claimed = town
                .crawler
                .claim_parse(&Town::parse_message(HOME), "p")
                .await;
            if let Ok(ClaimedParse::Run(run)) = claimed {
                let _ = town.crawler.mark_parsed(&run, "text/none", 0).await;
            }
        })
        .reading("recrawl", |town: Arc<Town>| async move {
            town.crawler.reopen(&hash(HOME), town.now()).await
        })
        .check(|town| async move {
            town.live(5).await;
            match town.status(HOME).await {
                Status::Parsed => Ok(()),
                other => Err(format!("{other:?} for ever")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 6, "{met:?}");
}

const A: &str = "http://site.test/a";

/// A small site that was crawled two days ago. Its page /a failed in a recrawl since, and is well again.
async fn failed_since() -> Town {
    let town = small().await;
    town.live(3).await;
    town.advance(2 * DAY);
    town.site.put("site.test/a", Reply::status(404));
    let opened = town.crawler.reopen(&hash(A), town.now()).await;
    assert!(opened.unwrap());
    town.live(3).await;
    assert_eq!(town.status(A).await, Status::Failed);
    town.put_small();
    town.advance(DAY);
    town
}

#[tokio::test]
async fn every_pair_of_those_who_open_what_failed_holds_in_every_order() {
    let met = Pairs::of(failed_since)
        .action("seed", |town: Arc<Town>| async move {
            town.crawler.afresh().add_seed(A).await
        })
        .action("recrawl", |town: Arc<Town>| async move {
            town.crawler.reopen(&hash(A), town.now()).await
        })
        .action("fetch", |town: Arc<Town>| async move {
            town.crawler.fetch(&Town::fetch_message(A), "w").await
        })
        .check(|town| async move {
            town.live(5).await;
            let row = town.row(A).await;
            match row.status {
                Status::Parsed => Ok("parsed"),
                Status::Failed if town.now() - row.lane_at >= DAY => Ok("nobody opened it"),
                other => Err(format!("{other:?} for ever")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 6, "{met:?}");
    for (pair, seen) in &met.seen {
        let opened = !seen.contains_key("\"nobody opened it\"");
        assert_eq!(opened, pair != "fetch × fetch", "{met:?}");
    }
}

#[tokio::test]
async fn every_pair_of_those_who_open_what_is_finished_holds_in_every_order() {
    let finished = || async {
        let town = small().await;
        town.live(3).await;
        town.advance(2 * DAY);
        town
    };
    let met = Pairs::of(finished)
        .action("recrawl", |town: Arc<Town>| async move {
            town.crawler.reopen(&hash(A), town.now()).await
        })
        .action("shorter", |town: Arc<Town>| async move {
            let url = canonical(A).unwrap();
            let found = Found {
                url,
                kind: Kind::Page,
                depth: 0,
                redirects: 0,
                found_on: None,
            };
            town.crawler.afresh().discover(&found).await
        })
        .reading("sweep", |town: Arc<Town>| async move {
            town.crawler.sweep(&hash(A)).await
        })
        .reading("parse", |town: Arc<Town>| async move {
            town.crawler.parse(&Town::parse_message(A), "p").await
        })
        .check(|town| async move {
            town.live(5).await;
            town.small_is_crawled().await?;
            let row = town.row(A).await;
            Ok((row.depth, row.fence))
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 10, "{met:?}");
}
