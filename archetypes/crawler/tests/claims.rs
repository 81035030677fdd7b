//! The promises, each as a sentence.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::World;
use cloud::{Clock, Ids, Options};
use crawler::canonical::canonical;
use crawler::crawl::{Counts, Settings, run_until};
use crawler::discover::Discovered;
use crawler::domain::{MAX_WAITS, ROBOTS_MS, Robots, Status, TURN_MS, UrlMetadataState};
use crawler::robots::Asked;
use crawler::site::{Hit, Node, Reply, Site, generated, page};
use crawler::{ClaimedFetch, Crawler, CrawlerError, Https, Rules, Web, Worked};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use web::*;

#[tokio::test]
async fn a_small_site_is_crawled_to_its_end() {
    let town = small().await;
    town.live(2).await;
    town.small_is_crawled().await.unwrap();
}

// A generated site of 500 pages with cycles, redirects, errors, slow pages, a trap and a robots.txt, crawled
// once by eight workers; what is left of it serves several claims.

const DEPTH: u32 = 12;

struct Evidence {
    nodes: BTreeMap<String, Node>,
    rows: Vec<UrlMetadataState>,
    blobs: BTreeSet<String>,
    log: Vec<Hit>,
}

async fn crawled_500() -> &'static Evidence {
    static CRAWLED: OnceCell<Evidence> = OnceCell::const_new();
    CRAWLED
        .get_or_init(|| async {
            let mut options = Options::from_env().unwrap();
            options.clock = Clock::System;
            options.ids = Ids::Uuid;
            let cloud = cloud::connect_with(options).await.unwrap();
            let rules = Rules {
                max_depth: DEPTH,
                patience_ms: 10_000,
                ..rules()
            };
            let town = open_on(cloud, rules).await;
            let nodes = generated(500);
            town.site.put_generated("site.test", &nodes);
            town.crawler.add_seed(HOME).await.unwrap();
            let settings = Settings {
                fetchers: 8,
                parsers: 4,
                ..Settings::default()
            };
            let counts = Arc::new(Counts::default());
            let never = std::future::pending();
            assert!(
                run_until(&town.crawler, settings, &counts, never)
                    .await
                    .unwrap()
            );
            Evidence {
                nodes,
                rows: town.rows().await,
                blobs: all_blobs(&town).await,
                log: town.site.log(),
            }
        })
        .await
}

/// Every object, page by page.
async fn all_blobs(town: &Town) -> BTreeSet<String> {
    let beside = town.cloud().beside_tap();
    let mut keys = BTreeSet::new();
    let mut from = None;
    loop {
        let list = beside
            .s3()
            .list_objects_v2()
            .bucket(beside.names().bucket("artifacts"));
        let listed = list.set_continuation_token(from).send().await.unwrap();
        keys.extend(
            listed
                .contents()
                .iter()
                .filter_map(|object| object.key.clone()),
        );
        from = listed.next_continuation_token;
        if from.is_none() {
            return keys;
        }
    }
}

/// What a crawl should find: a walk over the site's plan, which knows nothing of the crawler.
fn reachable(nodes: &BTreeMap<String, Node>) -> BTreeMap<String, Option<&Node>> {
    let mut best: BTreeMap<String, u32> = BTreeMap::from([("/".to_owned(), 0)]);
    let mut queue = VecDeque::from(["/".to_owned()]);
    while let Some(path) = queue.pop_front() {
        let depth = best[&path];
        let (next, links) = match nodes.get(&path) {
            Some(Node::Page(links) | Node::Shaky(links)) => (depth + 1, links.clone()),
            Some(Node::Redirect(to)) => (depth, vec![to.clone()]),
            _ => continue,
        };
        for link in links {
            let link = link.split(['?', '#']).next().unwrap().to_owned();
            if next <= DEPTH && best.get(&link).is_none_or(|known| *known > next) {
                best.insert(link.clone(), next);
                queue.push_back(link);
            }
        }
    }
    best.into_keys()
        .map(|path| (path.clone(), nodes.get(&path)))
        .collect()
}

#[tokio::test]
async fn every_reachable_allowed_url_in_budget_ends_parsed_or_failed_with_a_reason() {
    let evidence = crawled_500().await;
    let expected = reachable(&evidence.nodes);
    assert!(expected.len() > 450, "{}", expected.len());
    let found: BTreeMap<_, _> = evidence
        .rows
        .iter()
        .map(|row| {
            (
                row.url.strip_prefix("http://site.test").unwrap().to_owned(),
                row,
            )
        })
        .collect();
    let keys = |all: Vec<&String>| all.into_iter().cloned().collect::<BTreeSet<_>>();
    assert_eq!(
        keys(found.keys().collect()),
        keys(expected.keys().collect())
    );
    let mut failed = 0;
    for (path, node) in expected {
        let row = found[&path];
        match node {
            Some(Node::Page(_) | Node::Shaky(_) | Node::Redirect(_)) => {
                assert_eq!(row.status, Status::Parsed, "{path}: {:?}", row.reason);
            }
            Some(Node::Broken) | None => {
                assert_eq!(row.status, Status::Failed, "{path}");
                let reason = row.reason.as_deref().unwrap();
                assert!(
                    reason == "status 404" || reason.contains("application/pdf"),
                    "{reason}"
                );
                failed += 1;
            }
            Some(Node::Disallowed) => {
                assert_eq!(
                    row.reason.as_deref(),
                    Some("disallowed by robots.txt"),
                    "{path}"
                );
                failed += 1;
            }
        }
    }
    assert!(failed > 20, "{failed}");
}

#[tokio::test]
async fn there_is_one_row_for_each_canonical_url() {
    let evidence = crawled_500().await;
    let urls: BTreeSet<_> = evidence.rows.iter().map(|row| &row.url).collect();
    assert_eq!(urls.len(), evidence.rows.len());
    for row in &evidence.rows {
        let url = canonical(&row.url).unwrap();
        assert_eq!(url.as_str(), row.url);
        assert_eq!(url.hash(), row.url_hash);
    }
    // Pages were linked to in other words as well, and asked for once all the same.
    let links = evidence.nodes.values().filter_map(|node| match node {
        Node::Page(links) => Some(links),
        _ => None,
    });
    assert!(links.flatten().any(|link| link.contains("utm_source")));
    let mut hits: BTreeMap<&str, usize> = BTreeMap::new();
    for hit in &evidence.log {
        *hits.entry(&hit.path).or_default() += 1;
    }
    for (path, times) in hits {
        let shaky = matches!(evidence.nodes.get(path), Some(Node::Shaky(_)));
        assert_eq!(times, if shaky { 2 } else { 1 }, "{path}");
    }
}

#[tokio::test]
async fn a_disallowed_path_is_never_requested() {
    let evidence = crawled_500().await;
    assert!(
        evidence
            .nodes
            .values()
            .any(|node| *node == Node::Disallowed)
    );
    assert!(evidence.log.len() > 400);
    for hit in &evidence.log {
        assert!(!hit.path.starts_with("/private/"), "{}", hit.path);
    }
    assert_eq!(evidence.log[0].path, "/robots.txt", "before anything else");
}

#[tokio::test]
async fn parsed_implies_both_artifacts_and_none_is_stored_twice() {
    let evidence = crawled_500().await;
    let mut expected = BTreeSet::new();
    for row in evidence
        .rows
        .iter()
        .filter(|row| row.status == Status::Parsed)
    {
        for key in [&row.raw_blob_key, &row.text_blob_key] {
            let key = key.clone().unwrap();
            assert!(evidence.blobs.contains(&key), "{}: {key}", row.url);
            expected.insert(key);
        }
    }
    let stored: BTreeSet<_> = evidence
        .blobs
        .iter()
        .filter(|key| !key.starts_with("robots/"))
        .cloned()
        .collect();
    assert_eq!(stored, expected, "nothing beside them");
}

#[tokio::test]
async fn loops_and_traps_end() {
    let evidence = crawled_500().await;
    let row = |path: &str| {
        evidence
            .rows
            .iter()
            .find(|row| row.url.ends_with(path))
            .unwrap()
    };
    assert_eq!(row("/loop/a").status, Status::Parsed);
    assert_eq!(
        row("/loop/b").redirect_to.as_deref(),
        Some("http://site.test/loop/a")
    );
    let days = evidence
        .rows
        .iter()
        .filter(|row| row.url.contains("/calendar/"))
        .count();
    assert!(
        (1..DEPTH as usize).contains(&days),
        "{days} days of a calendar without end"
    );
}

// Politeness.

#[tokio::test]
async fn with_eight_workers_the_requests_of_a_host_never_overlap_and_keep_their_distance() {
    let mut options = Options::from_env().unwrap();
    options.clock = Clock::System;
    options.ids = Ids::Uuid;
    let cloud = cloud::connect_with(options).await.unwrap();
    let rules = Rules {
        delay_ms: 30,
        patience_ms: 10_000,
        max_depth: 9,
        ..rules()
    };
    let town = open_on(cloud, rules).await;
    for host in HOSTS {
        let nodes: BTreeMap<_, _> = generated(14)
            .into_iter()
            .filter(|(path, _)| !path.contains("calendar"))
            .collect();
        town.site.put_generated(host, &nodes);
        town.crawler
            .add_seed(&format!("http://{host}/"))
            .await
            .unwrap();
    }
    let settings = Settings {
        fetchers: 8,
        ..Settings::default()
    };
    let counts = Arc::new(Counts::default());
    let never = std::future::pending();
    assert!(
        run_until(&town.crawler, settings, &counts, never)
            .await
            .unwrap()
    );
    for host in HOSTS {
        let hits = town
            .site
            .log()
            .iter()
            .filter(|hit| hit.host == host)
            .count();
        assert!(hits > 12, "{host}: {hits}");
        // Times are kept in whole milliseconds.
        assert_eq!(town.site.rudeness(host, Duration::from_millis(29)), None);
    }
}

#[tokio::test]
async fn waiting_uses_up_no_attempts() {
    let town = small_known().await;
    let busy = Reply::status(429).with("retry-after", "7");
    let home = page("Home", &["/a"]);
    town.site
        .put_all("site.test/", [vec![busy; 8], vec![home]].concat());
    for wait in 1..=8 {
        let asked = town.site.hits("site.test/");
        let worked = town
            .crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap();
        assert_eq!(
            worked,
            Worked::Retrying {
                at: town.now() + 7 * SECOND
            }
        );
        let row = town.row(HOME).await;
        assert_eq!(
            (row.fetch_attempts, row.waits, row.status),
            (0, wait, Status::Retrying)
        );
        // Sooner than the host said, nobody asks: neither for this page nor for another one.
        town.advance(7 * SECOND - 1);
        let early = town
            .crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap();
        assert!(matches!(early, Worked::TooEarly { .. }), "{early:?}");
        town.crawler.add_seed(B).await.unwrap();
        let other = town
            .crawler
            .fetch(&Town::fetch_message(B), "w")
            .await
            .unwrap();
        assert!(matches!(other, Worked::TooEarly { .. }), "{other:?}");
        assert_eq!(town.site.hits("site.test/"), asked + 1);
        assert_eq!(town.site.hits("site.test/b"), 0);
        town.advance(1);
    }
    assert_eq!(
        town.crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap(),
        Worked::Fetched
    );
    assert_eq!(town.row(HOME).await.fetch_attempts, 1);
}

const B: &str = "http://site.test/b";

#[tokio::test]
async fn a_host_that_always_says_later_is_given_up_in_the_end() {
    let town = small_known().await;
    town.site
        .put("site.test/", Reply::status(503).with("retry-after", "1"));
    for _ in 0..=MAX_WAITS {
        assert!(!town.status(HOME).await.is_final());
        town.crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap();
        town.advance(SECOND);
    }
    let row = town.row(HOME).await;
    assert_eq!(row.status, Status::Failed);
    assert_eq!(row.reason.as_deref(), Some("status 503, 20 times"));
}

#[tokio::test]
async fn a_page_that_fails_three_times_is_given_up_after_pauses_that_double() {
    let town = small_known().await;
    town.site.put("site.test/", Reply::status(500));
    let fetch = async || {
        town.crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap()
    };
    assert_eq!(
        fetch().await,
        Worked::Retrying {
            at: town.now() + 2 * SECOND
        }
    );
    assert!(matches!(fetch().await, Worked::TooEarly { .. }));
    town.advance(2 * SECOND);
    assert_eq!(
        fetch().await,
        Worked::Retrying {
            at: town.now() + 4 * SECOND
        }
    );
    town.advance(4 * SECOND);
    assert_eq!(
        fetch().await,
        Worked::Failed {
            reason: "status 500".to_owned()
        }
    );
    assert_eq!(town.site.hits("site.test/"), 3);
}

#[tokio::test]
async fn the_crawl_delay_of_a_robots_txt_is_kept() {
    let town = small().await;
    town.site.put(
        "site.test/robots.txt",
        Reply::text("User-agent: *\nCrawl-delay: 5"),
    );
    town.crawler
        .fetch_robots("http://site.test", "w")
        .await
        .unwrap();
    let fetch = async || {
        town.crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap()
    };
    assert_eq!(
        fetch().await,
        Worked::TooEarly {
            at: town.now() + 5 * SECOND
        }
    );
    town.advance(5 * SECOND);
    assert_eq!(fetch().await, Worked::Fetched);
    assert_eq!(
        town.policy("http://site.test").await.next_allowed_at,
        town.now() + 5 * SECOND
    );
}

#[tokio::test]
async fn who_dies_with_a_hosts_turn_keeps_the_others_away_only_until_it_ends() {
    let desk = web::cast::ready().await.hold_fetch("dead").await;
    let town = &desk.town;
    town.crawler.add_seed(B).await.unwrap();
    let claim = async || {
        town.crawler
            .claim_fetch(&Town::fetch_message(B), "w")
            .await
            .unwrap()
    };
    assert!(matches!(claim().await, ClaimedFetch::Busy { .. }));
    town.advance(TURN_MS - 1);
    assert!(matches!(claim().await, ClaimedFetch::Busy { .. }));
    town.advance(1);
    assert!(matches!(claim().await, ClaimedFetch::Run(_)));
}

#[tokio::test]
async fn a_request_that_could_outlast_its_turn_is_not_begun() {
    let desk = web::cast::ready().await.hold_fetch("slow").await;
    let run = desk.fetch_run.clone().unwrap();
    desk.town.advance(TURN_MS / 2);
    let worked = desk.town.crawler.fetch_run(&run).await.unwrap();
    assert_eq!(
        worked,
        Worked::Retrying {
            at: desk.town.now()
        }
    );
    assert_eq!(desk.town.site.hits("site.test/"), 0);
    let host = desk.town.policy("http://site.test").await;
    assert_eq!(
        host.next_allowed_at,
        desk.town.now(),
        "and the host is free"
    );
    assert_eq!(
        desk.town.row(HOME).await.fetch_attempts,
        0,
        "and it is not counted"
    );
}

// robots.txt.

#[tokio::test]
async fn while_a_robots_txt_is_unreachable_nothing_of_its_host_is_requested() {
    let town = small().await;
    town.site.put("site.test/robots.txt", Reply::status(503));
    for attempt in 1..=3 {
        let worked = town
            .crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap();
        assert_eq!(town.site.hits("site.test/robots.txt"), attempt);
        match attempt {
            3 => assert!(matches!(worked, Worked::Failed { .. }), "{worked:?}"),
            _ => assert!(matches!(worked, Worked::TooEarly { .. }), "{worked:?}"),
        }
        town.advance(MINUTE);
    }
    let row = town.row(HOME).await;
    assert_eq!(
        row.reason.as_deref(),
        Some("robots.txt is unreachable: status 503")
    );
    assert_eq!(row.fetch_attempts, 0);
    assert_eq!(town.site.hits("site.test/"), 0);
    // A day later it is asked for again; what failed stays so until somebody asks for it.
    town.advance(ROBOTS_MS);
    town.site.put("site.test/robots.txt", Reply::text(""));
    assert_eq!(
        town.crawler
            .fetch_robots("http://site.test", "w")
            .await
            .unwrap(),
        Asked::Stored
    );
    assert_eq!(
        town.policy("http://site.test").await.robots,
        Some(Robots::Known)
    );
}

#[tokio::test]
async fn a_host_without_a_robots_txt_allows_everything() {
    let town = small().await;
    town.site.put("site.test/robots.txt", Reply::status(404));
    let worked = town
        .crawler
        .fetch(&Town::fetch_message(HOME), "w")
        .await
        .unwrap();
    assert_eq!(worked, Worked::Fetched);
}

#[tokio::test]
async fn an_old_robots_txt_is_kept_while_it_cannot_be_read_again() {
    let town = small_known().await;
    town.advance(ROBOTS_MS);
    town.site.put("site.test/robots.txt", Reply::status(500));
    let asked = town
        .crawler
        .fetch_robots("http://site.test", "w")
        .await
        .unwrap();
    assert!(matches!(asked, Asked::Later { .. }), "{asked:?}");
    town.advance(MINUTE);
    let no = "http://site.test/no";
    town.crawler.add_seed(no).await.unwrap();
    let worked = town
        .crawler
        .fetch(&Town::fetch_message(no), "w")
        .await
        .unwrap();
    assert_eq!(
        worked,
        Worked::Failed {
            reason: "disallowed by robots.txt".to_owned()
        }
    );
}

#[tokio::test]
async fn a_robots_txt_is_followed_through_five_redirects_each_in_its_hosts_turn() {
    let town = small().await;
    town.site.put("site.test/robots.txt", Reply::redirect("/1"));
    town.site
        .put("site.test/1", Reply::redirect("http://other.test/2"));
    town.site.put("other.test/2", Reply::redirect("/3"));
    town.site.put("other.test/3", Reply::redirect("/4"));
    town.site.put("other.test/4", Reply::redirect("/5"));
    town.site
        .put("other.test/5", Reply::text("User-agent: *\nDisallow: /"));
    let fetch = async || {
        town.crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap()
    };
    // Somebody is at the other host: then nobody else is.
    let turn = town
        .crawler
        .take_turn("http://other.test", "somebody")
        .await
        .unwrap()
        .unwrap();
    assert!(matches!(fetch().await, Worked::TooEarly { .. }));
    assert_eq!(
        town.site
            .log()
            .iter()
            .filter(|hit| hit.host == "other.test")
            .count(),
        0
    );
    town.crawler
        .release_turn(&turn.host, &turn.turn_id, None)
        .await
        .unwrap();
    // The try counts as one that failed, and the next one comes after a pause.
    assert!(matches!(fetch().await, Worked::TooEarly { .. }));
    town.advance(4 * SECOND);
    assert_eq!(
        fetch().await,
        Worked::Failed {
            reason: "disallowed by robots.txt".to_owned()
        }
    );
    // One more is too many: then there is none, and everything is allowed.
    town.advance(ROBOTS_MS);
    town.site.put("other.test/5", Reply::redirect("/6"));
    town.site
        .put("other.test/6", Reply::text("User-agent: *\nDisallow: /"));
    town.crawler.add_seed(B).await.unwrap();
    assert_eq!(
        town.crawler
            .fetch(&Town::fetch_message(B), "w")
            .await
            .unwrap(),
        Worked::Fetched
    );
    assert_eq!(town.site.hits("other.test/6"), 0);
}

#[tokio::test]
async fn a_robots_txt_that_is_sent_to_and_fro_keeps_its_distance_on_each_host_and_arrives() {
    let town = open_with(Rules {
        delay_ms: 40,
        ..rules()
    })
    .await;
    let site = &town.site;
    site.put("site.test/robots.txt", Reply::redirect("/1"));
    site.put("site.test/1", Reply::redirect("http://other.test/2"));
    site.put("other.test/2", Reply::redirect("/3"));
    site.put("other.test/3", Reply::redirect("http://site.test/4"));
    site.put("site.test/4", Reply::redirect("http://other.test/5"));
    site.put("other.test/5", Reply::text("User-agent: *\nDisallow: /"));
    let asked = town.crawler.fetch_robots("http://site.test", "w").await;
    assert_eq!(asked.unwrap(), Asked::Stored);
    assert_eq!(site.log().len(), 6, "each hop once");
    for host in ["site.test", "other.test"] {
        assert_eq!(site.rudeness(host, Duration::from_millis(39)), None);
        let host = town.policy(&format!("http://{host}")).await;
        assert_eq!(host.turn_ends_at, None, "its turn is over");
        assert_eq!(host.next_allowed_at, town.now() + 40);
    }
    assert_eq!(
        town.policy("http://site.test").await.robots,
        Some(Robots::Known)
    );
}

#[tokio::test]
async fn a_robots_txt_whose_redirects_do_not_fit_into_a_turn_is_unreachable_in_the_end() {
    // Two requests to a host would take longer than anybody may have it.
    let town = open_with(Rules {
        delay_ms: TURN_MS / 2,
        ..rules()
    })
    .await;
    let to = Reply::redirect("http://other.test/1");
    town.site.put("site.test/robots.txt", to);
    let back = Reply::redirect("http://site.test/robots.txt");
    town.site.put("other.test/1", back);
    for attempt in 1..=3 {
        let asked = town.crawler.fetch_robots("http://site.test", "w").await;
        match (attempt, asked.unwrap()) {
            (3, asked) => assert_eq!(asked, Asked::Stored),
            // And it is left alone for its delay at least.
            (_, asked) => assert_eq!(
                asked,
                Asked::Later {
                    at: town.now() + TURN_MS / 2
                }
            ),
        }
        assert_eq!(town.site.hits("site.test/robots.txt"), attempt);
        assert_eq!(town.site.hits("other.test/1"), attempt);
        town.advance(TURN_MS / 2);
    }
    let host = town.policy("http://site.test").await;
    assert_eq!(host.robots, Some(Robots::Unreachable));
}

#[tokio::test]
async fn a_host_that_a_robots_txt_is_redirected_to_is_left_alone_for_as_long_as_it_asks() {
    let town = open().await;
    let to = Reply::redirect("http://other.test/r");
    town.site.put("site.test/robots.txt", to);
    let busy = Reply::status(429).with("retry-after", "100");
    town.site.put("other.test/r", busy);
    let asked = town.crawler.fetch_robots("http://site.test", "w").await;
    let soon = town.now() + 4 * SECOND;
    assert_eq!(asked.unwrap(), Asked::Later { at: soon });
    let next = async |origin: &str| town.policy(origin).await.next_allowed_at;
    assert_eq!(next("http://other.test").await, town.now() + 100 * SECOND);
    assert_eq!(next("http://site.test").await, soon, "it asked for nothing");
}

#[tokio::test]
async fn who_lost_the_turn_while_reading_a_robots_txt_does_not_say_that_it_is_stored() {
    let town = open().await;
    let robots = Reply::text("User-agent: *").after(Duration::from_millis(300));
    town.site.put("site.test/robots.txt", robots);
    let slow = async { town.crawler.fetch_robots("http://site.test", "slow").await };
    let quick = async {
        while town.site.hits("site.test/robots.txt") == 0 {
            tokio::task::yield_now().await;
        }
        let later = town.ahead(TURN_MS);
        let taken = later.take_turn("http://site.test", "quick").await;
        taken.unwrap().unwrap();
    };
    let (asked, ()) = tokio::join!(slow, quick);
    assert_eq!(asked.unwrap(), Asked::Later { at: town.now() });
    assert_eq!(town.policy("http://site.test").await.robots, None);
}

#[tokio::test]
async fn a_robots_txt_that_is_cut_ends_with_a_whole_rule() {
    let town = open().await;
    let head = "User-agent: *\nDisallow: /no\n";
    let cut = "Allow: /no/but/this\n";
    // The limit falls behind `Allow: /no`, which would allow what the line before forbids.
    let fill = crawler::robots::MAX_ROBOTS - head.len() - "#\n".len() - "Allow: /no".len();
    let text = format!("{head}#{}\n{cut}", "x".repeat(fill));
    town.site.put("site.test/robots.txt", Reply::text(text));
    let no = "http://site.test/no/1";
    town.crawler.add_seed(no).await.unwrap();
    let worked = town.crawler.fetch(&Town::fetch_message(no), "w").await;
    assert_eq!(
        worked.unwrap(),
        Worked::Failed {
            reason: "disallowed by robots.txt".to_owned()
        }
    );
}

// Limits.

#[tokio::test]
async fn a_crawl_goes_no_deeper_no_wider_and_takes_nothing_it_should_not() {
    let town = open_with(Rules {
        max_depth: 2,
        max_body: 1_000,
        pages_per_host: 6,
        hosts: Some(BTreeSet::from(["site.test".to_owned()])),
        ..rules()
    })
    .await;
    let site = &town.site;
    site.put(
        "site.test/",
        page("Home", &["/1", "/big", "/pdf", "http://other.test/x"]),
    );
    site.put("site.test/1", page("1", &["/2"]));
    site.put("site.test/2", page("2", &["/3"]));
    site.put("site.test/3", page("3", &["/"]));
    site.put("site.test/big", Reply::html("x".repeat(1_001)));
    site.put("site.test/pdf", Reply::new(200, "application/pdf", "%PDF"));
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(2).await;
    let reason = async |path: &str| town.row(&format!("{HOME}{path}")).await.reason;
    assert_eq!(town.status("http://site.test/2").await, Status::Parsed);
    assert_eq!(reason("big").await.as_deref(), Some("more than 1000 bytes"));
    assert_eq!(
        reason("pdf").await.as_deref(),
        Some("content type 'application/pdf'")
    );
    assert_eq!(town.rows().await.len(), 5, "neither /3 nor the other host");
    assert_eq!(
        town.site
            .log()
            .iter()
            .filter(|hit| hit.host == "other.test")
            .count(),
        0
    );
    // The host has one page left, and two are asked for.
    for path in ["x", "y"] {
        site.put(&format!("site.test/{path}"), page(path, &["/"]));
        town.crawler
            .add_seed(&format!("{HOME}{path}"))
            .await
            .unwrap();
        town.live(1).await;
    }
    assert_eq!(town.status("http://site.test/x").await, Status::Parsed);
    assert_eq!(
        reason("y").await.as_deref(),
        Some("more than 6 pages of this host")
    );
}

#[tokio::test]
async fn redirects_are_followed_five_times_and_no_more() {
    let town = open().await;
    for hop in 0..8 {
        let to = format!("/hop/{}", hop + 1);
        town.site
            .put(&format!("site.test/hop/{hop}"), Reply::redirect(&to));
    }
    town.crawler
        .add_seed("http://site.test/hop/0")
        .await
        .unwrap();
    town.live(2).await;
    assert_eq!(town.row("http://site.test/hop/5").await.redirects, 5);
    assert_eq!(town.rows().await.len(), 6);
    assert_eq!(town.site.hits("site.test/hop/6"), 0);
    // A straight way to where it stopped opens the rest.
    town.crawler
        .afresh()
        .add_seed("http://site.test/hop/5")
        .await
        .unwrap();
    town.live(2).await;
    assert_eq!(town.site.hits("site.test/hop/7"), 1);
}

#[tokio::test]
async fn a_straight_way_to_a_redirect_at_the_last_depth_is_followed() {
    let town = open_with(Rules {
        max_depth: 1,
        ..rules()
    })
    .await;
    town.site.put("site.test/", page("Home", &["/hop/0"]));
    for hop in 0..6 {
        let to = format!("/hop/{}", hop + 1);
        town.site
            .put(&format!("site.test/hop/{hop}"), Reply::redirect(&to));
    }
    town.site.put("site.test/hop/6", page("There", &["/"]));
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(2).await;
    let last = town.row("http://site.test/hop/5").await;
    assert_eq!((last.depth, last.redirects), (1, 5));
    assert_eq!(town.site.hits("site.test/hop/6"), 0, "one too many");
    town.site.put("site.test/b", page("B", &["/hop/5"]));
    town.crawler.add_seed(B).await.unwrap();
    town.live(2).await;
    let last = town.row("http://site.test/hop/5").await;
    assert_eq!((last.depth, last.redirects), (1, 0));
    assert_eq!(town.status("http://site.test/hop/6").await, Status::Parsed);
}

// Addresses.

#[tokio::test]
async fn nobody_talks_the_crawler_into_asking_this_machine() {
    let town = open().await;
    let port = town.site.address.port();
    let inside = format!("http://127.0.0.1:{port}/secret");
    let secret = format!("127.0.0.1:{port}/secret");
    town.site.put(&secret, page("Secret", &["/"]));
    let links = [
        inside.clone(),
        format!("http://localhost:{port}/secret"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        format!("http://[::ffff:127.0.0.1]:{port}/secret"),
        "/redirect".to_owned(),
    ];
    town.site.put("site.test/", page("Home", &links));
    town.site
        .put("site.test/redirect", Reply::redirect(&inside));
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(3).await;
    for hit in town.site.log() {
        assert_eq!(hit.host, "site.test", "{}", hit.path);
    }
    // Addresses are not even written down. A name is known for what it is only when it is resolved.
    assert_eq!(town.rows().await.len(), 3);
    let row = town.row(&format!("http://localhost:{port}/secret")).await;
    assert_eq!(row.status, Status::Failed);
    assert_eq!(
        row.reason.as_deref(),
        Some("localhost is a forbidden address: loopback")
    );
    let refused = town.crawler.add_seed(&inside).await.unwrap_err();
    assert!(matches!(refused, CrawlerError::Forbidden(_)), "{refused}");
}

#[tokio::test]
async fn a_robots_txt_that_is_redirected_to_a_forbidden_address_is_not_followed_there() {
    let town = open().await;
    let port = town.site.address.port();
    for inside in [
        format!("http://127.0.0.1:{port}/robots.txt"),
        format!("http://localhost:{port}/robots.txt"),
        format!("http://other.test:{}/robots.txt", port ^ 1),
    ] {
        let to = Reply::redirect(&inside);
        town.site.put("site.test/robots.txt", to);
        town.advance(ROBOTS_MS);
        let asked = town.crawler.fetch_robots("http://site.test", "w").await;
        assert_eq!(asked.unwrap(), Asked::Stored);
        let host = town.policy("http://site.test").await;
        assert_eq!(host.robots, Some(Robots::Forbidden), "{inside}");
    }
    for hit in town.site.log() {
        assert_eq!(hit.host, "site.test", "{}", hit.path);
    }
}

// Content.

#[tokio::test]
async fn content_that_was_seen_before_is_stored_once() {
    let town = open().await;
    for path in ["", "a", "b", "c"] {
        town.site.put(
            &format!("site.test/{path}"),
            page("Same", &["/", "/a", "/b", "/c"]),
        );
    }
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(2).await;
    assert_eq!(town.rows().await.len(), 4);
    for row in town.rows().await {
        assert_eq!(row.status, Status::Parsed);
    }
    // Bytes and text; the robots.txt is absent.
    assert_eq!(town.blobs().await.len(), 2, "{:?}", town.blobs().await);
}

#[tokio::test]
async fn the_same_bytes_of_another_type_are_another_content() {
    let town = open().await;
    town.site
        .put("site.test/", Reply::html("<p>x<a href=/a>a</a>"));
    town.site
        .put("site.test/a", Reply::text("<p>x<a href=/a>a</a>"));
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(2).await;
    let text = async |url: &str| {
        let key = town.row(url).await.text_blob_key.unwrap();
        String::from_utf8(town.crawler.read_blob(&key).await.unwrap().unwrap()).unwrap()
    };
    assert!(text(HOME).await.contains("\"x a\""));
    assert!(text("http://site.test/a").await.contains("<p>x"));
}

#[tokio::test]
async fn a_page_that_has_not_changed_is_not_sent_again() {
    let town = small().await;
    let home = page("Home", &["/a", "/b", "/no"]);
    town.site.put(
        "site.test/",
        home.with("etag", "\"1\"")
            .with("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT"),
    );
    town.live(2).await;
    let before = town.row(HOME).await;
    town.advance(MINUTE);
    assert_eq!(town.recrawl(before.fetched_at.unwrap()).await, 3);
    town.live(2).await;
    let log = town.site.log();
    let statuses: Vec<_> = log
        .iter()
        .filter(|hit| hit.path == "/")
        .map(|hit| hit.status)
        .collect();
    assert_eq!(statuses, [200, 304]);
    let after = town.row(HOME).await;
    assert_eq!(after.status, Status::Parsed);
    assert_eq!(after.raw_blob_key, before.raw_blob_key);
    assert!(after.fetched_at > before.fetched_at);
    // And one that has changed is stored beside the old one, with what it links to now.
    town.site
        .put("site.test/", page("New", &["/new"]).with("etag", "\"2\""));
    town.site.put("site.test/new", page("Newer", &["/"]));
    town.advance(MINUTE);
    town.recrawl(after.fetched_at.unwrap()).await;
    town.live(2).await;
    assert_ne!(town.row(HOME).await.raw_blob_key, before.raw_blob_key);
    assert_eq!(town.status("http://site.test/new").await, Status::Parsed);
}

#[tokio::test]
async fn pages_that_only_a_sitemap_names_are_found() {
    let town = small().await;
    let robots = "User-agent: *\nDisallow: /no\nSitemap: http://site.test/index.xml\nSitemap: http://other.test/s.xml";
    town.site.put("site.test/robots.txt", Reply::text(robots));
    let xml = |body: &str| Reply::new(200, "application/xml", body);
    town.site.put(
        "site.test/index.xml",
        xml("<sitemapindex><sitemap><loc>/s.xml</loc></sitemap></sitemapindex>"),
    );
    town.site.put(
        "site.test/s.xml",
        xml("<urlset><url><loc>http://site.test/hidden</loc></url><url><loc>http://site.test/no/x</loc></url>\
             <url><loc>http://third.test/elsewhere</loc></url></urlset>"),
    );
    town.site.put("site.test/hidden", page("Hidden", &["/"]));
    town.live(3).await;
    town.invariants().await.unwrap();
    assert_eq!(town.status("http://site.test/hidden").await, Status::Parsed);
    assert_eq!(town.status("http://site.test/no/x").await, Status::Failed);
    let elsewhere = town
        .site
        .log()
        .iter()
        .filter(|hit| hit.host != "site.test")
        .count();
    assert_eq!(elsewhere, 0, "a site speaks for itself");
}

#[tokio::test]
async fn what_a_url_is_read_as_depends_on_its_content_not_on_who_found_it() {
    let town = open().await;
    let xml = "<urlset><url><loc>/listed</loc></url></urlset>";
    let robots = "User-agent: *\nSitemap: /no-list";
    town.site.put("site.test/robots.txt", Reply::text(robots));
    town.site.put("site.test/", page("Home", &["/s.xml"]));
    // A sitemap that a page links to, and a page that is named as a sitemap.
    town.site
        .put("site.test/s.xml", Reply::new(200, "application/xml", xml));
    town.site
        .put("site.test/no-list", page("A page", &["/linked"]));
    for path in ["listed", "linked"] {
        town.site
            .put(&format!("site.test/{path}"), page(path, &["/"]));
    }
    town.crawler.add_seed(HOME).await.unwrap();
    town.live(3).await;
    assert_eq!(town.status("http://site.test/listed").await, Status::Parsed);
    assert_eq!(town.status("http://site.test/linked").await, Status::Parsed);
}

// Input.

#[tokio::test]
async fn two_urls_of_one_hash_are_told_apart() {
    let town = open().await;
    let cloud = town.cloud().beside_tap();
    let mut other = UrlMetadataState::discovered(
        &canonical("http://other.test/").unwrap(),
        crawler::domain::Kind::Page,
        0,
        0,
        None,
        "find-x".into(),
        0,
    );
    other.url_hash = hash(HOME);
    let put = cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("url_metadata"));
    put.set_item(Some(cloud::item::to_item(&other).unwrap()))
        .send()
        .await
        .unwrap();
    let told = town.crawler.add_seed(HOME).await.unwrap();
    assert_eq!(
        told,
        Discovered::Collision {
            with: "http://other.test/".to_owned()
        }
    );
    assert_eq!(
        town.row(HOME).await.url,
        "http://other.test/",
        "nothing was changed"
    );
}

#[tokio::test]
async fn a_wrong_seed_is_told_why_and_nothing_is_written() {
    let town = open_with(Rules {
        hosts: Some(BTreeSet::from(["site.test".to_owned()])),
        ..rules()
    })
    .await;
    let recording = town.cloud().tap().record();
    for wrong in [
        "",
        "site.test",
        "ftp://site.test/",
        "http://u:p@site.test/",
        "http://10.0.0.1/",
        "http://other.test/",
    ] {
        assert!(town.crawler.add_seed(wrong).await.is_err(), "{wrong}");
    }
    assert_eq!(recording.calls().len(), 0);
}

// Stopping and going on.

#[tokio::test]
async fn a_crawl_that_was_stopped_goes_on_where_it_was() {
    let data = tempfile::tempdir().unwrap();
    let connect = async || {
        let mut options = Options::from_env().unwrap();
        options.data = Some(data.path().to_owned());
        options.clock = Clock::manual(cloud::TEST_EPOCH);
        cloud::connect_with(options).await.unwrap()
    };
    let site = Site::open().await.unwrap();
    let start = async || {
        let cloud = connect().await;
        crawler::archetype().create(&cloud).await.unwrap();
        let web = Web::new(&cloud, site.guard(&HOSTS), Https::None).unwrap();
        Crawler::connect(cloud, web, rules()).await.unwrap()
    };
    {
        let crawler = start().await;
        site.put("site.test/", page("Home", &["/a", "/b"]));
        site.put("site.test/a", page("A", &["/"]));
        site.put("site.test/b", page("B", &["/"]));
        crawler.add_seed(HOME).await.unwrap();
        crawler
            .fetch(&Town::fetch_message(HOME), "w")
            .await
            .unwrap();
        crawler
            .parse(&Town::parse_message(HOME), "w")
            .await
            .unwrap();
    }
    // Queues are not kept. The sweeper rebuilds them.
    let town = Town {
        crawler: start().await,
        site,
    };
    assert!(town.receive_fetch().await.is_none());
    town.advance(MINUTE);
    town.sweep().await;
    town.live(2).await;
    for url in [HOME, "http://site.test/a", B] {
        assert_eq!(town.status(url).await, Status::Parsed);
    }
    assert_eq!(town.site.hits("site.test/"), 1, "nothing is fetched twice");
}

#[tokio::test]
async fn a_seed_that_was_given_up_is_tried_again_when_it_is_added_again() {
    let town = small().await;
    // An outage: the host cannot even be asked what it allows.
    town.site.put("site.test/robots.txt", Reply::status(503));
    town.live(4).await;
    assert_eq!(town.status(HOME).await, Status::Failed);
    let policy = town.policy("http://site.test").await;
    assert_eq!(policy.robots, Some(Robots::Unreachable));
    // It is over, long before a day has passed.
    town.put_small();
    town.advance(MINUTE);
    let again = town.crawler.add_seed(HOME).await.unwrap();
    assert_eq!(again, Discovered::Reopened);
    let row = town.row(HOME).await;
    assert_eq!((row.status, row.fetch_attempts), (Status::Discovered, 0));
    town.live(3).await;
    town.small_is_crawled().await.unwrap();
    // What is parsed stays so.
    let parsed = town.crawler.add_seed(HOME).await.unwrap();
    assert_eq!(parsed, Discovered::Known);
}

/// A store that refuses one kind of call.
struct Down(&'static str);

impl cloud::tap::Plan for Down {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        let down = request.operation == self.0;
        Box::pin(async move {
            match down {
                true => cloud::tap::Verdict::Answer {
                    status: 403,
                    body: serde_json::json!({}),
                },
                false => cloud::tap::Verdict::Pass,
            }
        })
    }
}

#[tokio::test]
async fn an_outage_of_the_store_uses_up_no_attempts() {
    let town = small_known().await;
    let fetch = async || {
        let message = Town::fetch_message(HOME);
        town.crawler.fetch(&message, "w").await
    };
    let parse = async || {
        let message = Town::parse_message(HOME);
        town.crawler.parse(&message, "w").await
    };
    let down = town.cloud().tap().install(Arc::new(Down("PutObject")));
    for wait in 1..=4 {
        assert!(matches!(fetch().await, Err(CrawlerError::Fault(_))));
        let row = town.row(HOME).await;
        assert_eq!(
            (row.status, row.fetch_attempts, row.waits),
            (Status::Retrying, 0, wait)
        );
        let host = town.policy("http://site.test").await;
        assert_eq!(host.turn_ends_at, None, "and the host is free");
        town.advance(MINUTE);
    }
    drop(down);
    assert_eq!(fetch().await.unwrap(), Worked::Fetched);
    let down = town.cloud().tap().install(Arc::new(Down("GetObject")));
    for wait in 1..=4 {
        assert!(matches!(parse().await, Err(CrawlerError::Fault(_))));
        let row = town.row(HOME).await;
        assert_eq!(
            (row.status, row.parse_attempts, row.waits),
            (Status::Fetched, 0, wait)
        );
        town.advance(MINUTE);
    }
    drop(down);
    assert!(matches!(parse().await.unwrap(), Worked::Parsed { .. }));
}

mod properties {
    use crawler::canonical::canonical;
    use crawler::robots::Rules;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_canonical_url_is_its_own_canonical_form(
            path in "[a-zA-Z0-9/._~%&=+ äö-]{0,40}",
            query in "[a-z0-9=&%+_]{0,40}",
            fragment in "[a-z]{0,5}",
        ) {
            if let Ok(once) = canonical(&format!("http://Site.TEST:80/{path}?{query}#{fragment}")) {
                let twice = canonical(once.as_str()).unwrap();
                prop_assert_eq!(&once, &twice);
                prop_assert_eq!(once.hash(), twice.hash());
                prop_assert!(once.url().fragment().is_none());
            }
        }

        #[test]
        fn an_escape_that_appears_by_unescaping_is_none(
            text in "(%|%3[0-9]|%[46][1-6]|[0-9a-f/]){0,20}",
        ) {
            let once = canonical(&format!("http://site.test/{text}?{text}")).unwrap();
            prop_assert_eq!(&canonical(once.as_str()).unwrap(), &once);
        }

        #[test]
        fn a_query_in_any_order_is_one_url(mut pairs in prop::collection::vec("[a-d]=[0-9]", 0..6)) {
            pairs.sort();
            pairs.dedup_by_key(|pair| pair[..1].to_owned());
            let forwards = format!("http://site.test/?{}", pairs.join("&"));
            pairs.reverse();
            let backwards = format!("http://site.test/?{}", pairs.join("&"));
            prop_assert_eq!(canonical(&forwards).unwrap(), canonical(&backwards).unwrap());
        }

        #[test]
        fn no_robots_txt_and_no_path_is_too_strange(text in any::<Vec<u8>>(), path in "\\PC{0,40}") {
            let rules = Rules::parse(&text, "archetype-crawler");
            if let Ok(url) = url::Url::parse(&format!("http://site.test/{path}")) {
                rules.allow(&url);
            }
        }
    }
}
