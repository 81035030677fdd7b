//! A guard is worth what breaks without it. Each test takes one away and shows what.
//!
//! Not for real AWS: these rewrite requests on their way, which its signature forbids.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::{Interleave, Weaken, World, breaks};
use crawler::domain::Status;
use crawler::site::Reply;
use crawler::{ClaimedFetch, Rules};
use std::sync::Arc;
use web::cast::*;
use web::*;

fn urls() -> Weaken {
    Weaken::guard_on("url_metadata")
}

fn hosts() -> Weaken {
    Weaken::guard_on("domain_policies")
}

// Discovering.

#[tokio::test]
async fn without_its_guard_discovering_again_forgets_what_was_crawled() {
    let town = small().await;
    town.live(2).await;
    let weaken = Arc::new(urls().containing("attribute_not_exists(url_hash)"));
    let installed = town.cloud().tap().install(weaken.clone());
    town.crawler.afresh().add_seed(HOME).await.unwrap();
    drop(installed);
    assert!(weaken.applied() > 0);
    let row = town.row(HOME).await;
    assert_eq!(row.status, Status::Discovered, "it was parsed");
    assert_eq!(row.raw_blob_key, None, "and its bytes were known");
}

/// A page known by a long way; two shorter ones are found at once.
fn two_shorter_ways(one: (u32, u32), other: (u32, u32)) -> Desks {
    let known = || async {
        let desk = ready().await;
        let found = crawler::Found {
            url: crawler::canonical::canonical(A).unwrap(),
            kind: crawler::domain::Kind::Page,
            depth: 3,
            redirects: 5,
            found_on: None,
        };
        desk.town.crawler.discover(&found).await.unwrap();
        desk
    };
    let actors = discoverer(Interleave::of(known), "one", A, one.0, one.1);
    let actors = discoverer(actors, "other", A, other.0, other.1);
    let least = (one.0.min(other.0), one.1.min(other.1));
    actors.check(move |desk, told| async move {
        let row = desk.town.row(A).await;
        match (row.depth, row.redirects) == least {
            true => Ok(label(&told)),
            false => Err(format!("{} links, {} hops", row.depth, row.redirects)),
        }
    })
}

#[tokio::test]
async fn without_the_depth_a_longer_way_replaces_a_shorter_one() {
    let weaken = urls().without("#depth = :old_depth");
    breaks(two_shorter_ways((1, 5), (2, 5)), weaken, "2 links, 5 hops").await;
}

#[tokio::test]
async fn without_the_redirects_more_hops_replace_fewer() {
    let weaken = urls().without("redirects = :old_redirects");
    breaks(two_shorter_ways((3, 0), (3, 2)), weaken, "3 links, 2 hops").await;
}

fn parser_and_finder() -> Desks {
    leaf_is_crawled(discoverer(
        deep_parser(Interleave::of(at_the_edge)),
        "finder",
        DEEP,
        1,
        0,
    ))
}

#[tokio::test]
async fn without_the_status_a_shorter_way_is_noted_and_not_followed() {
    let weaken = urls().containing(":old_depth").without("#status = :seen");
    breaks(parser_and_finder(), weaken, "nobody knows it").await;
}

#[tokio::test]
async fn without_the_depth_a_parser_finishes_with_the_longer_way() {
    let weaken = urls().without("#depth = :depth");
    breaks(parser_and_finder(), weaken, "nobody knows it").await;
}

#[tokio::test]
async fn without_the_redirects_a_parser_finishes_with_too_many_hops() {
    // The last hop that is allowed leads to a redirect; a straight way to it is found meanwhile.
    let edge = || async {
        let town = open_with(Rules {
            max_redirects: 2,
            ..rules()
        })
        .await;
        town.site.put("site.test/deep", Reply::redirect("/leaf"));
        town.site
            .put("site.test/leaf", crawler::site::page("Leaf", &["/deep"]));
        let hop = crawler::Found {
            url: crawler::canonical::canonical(DEEP).unwrap(),
            kind: crawler::domain::Kind::Page,
            depth: 1,
            redirects: 2,
            found_on: None,
        };
        town.crawler.discover(&hop).await.unwrap();
        town.crawler
            .fetch(&Town::fetch_message(DEEP), "setup")
            .await
            .unwrap();
        desk_of(town)
    };
    let actors = discoverer(deep_parser(Interleave::of(edge)), "finder", DEEP, 1, 0);
    let weaken = urls().without("redirects = :redirects");
    breaks(leaf_is_crawled(actors), weaken, "nobody knows it").await;
}

// Claiming.

#[tokio::test]
async fn without_the_fence_two_claims_have_the_same_one() {
    // Both see it waiting for its second attempt. One takes it and gives it back at once.
    let waiting = || async {
        let desk = ready().await.hold_fetch("before").await;
        let run = desk.fetch_run.clone().unwrap();
        let crawler = &desk.town.crawler;
        crawler
            .fetch_later(&run, "later", desk.town.now())
            .await
            .unwrap();
        crawler
            .release_turn(&run.host, &run.turn_id, None)
            .await
            .unwrap();
        desk
    };
    let actors = Interleave::of(waiting).actor("one", |desk: Arc<Desk>| async move {
        let claimed = desk.claim_fetch(&desk.town.crawler, HOME, "one").await;
        if let ClaimedFetch::Run(run) = &claimed {
            desk.claimed_fence(run.url.fence);
            let crawler = &desk.town.crawler;
            crawler
                .release_turn(&run.host, &run.turn_id, None)
                .await
                .unwrap();
            crawler
                .fetch_later(run, "later", desk.town.now())
                .await
                .unwrap();
        }
        told_fetch(&claimed)
    });
    let actors = end_well(claimer(actors, "other", HOME));
    breaks(
        actors,
        urls().without("fence = :seen"),
        "two claims have one fence",
    )
    .await;
}

#[tokio::test]
async fn without_the_status_what_was_fetched_is_claimed_again() {
    let held = || async { ready().await.hold_bytes("first").await };
    let actors = taker(finisher(Interleave::of(held))).check(|_, told| async move {
        match label(&told) {
            both if both == "first done, second has it" => Err(both),
            other => Ok(other),
        }
    });
    breaks(
        actors,
        urls().without("#status = :was"),
        "first done, second has it",
    )
    .await;
}

#[tokio::test]
async fn without_the_turn_two_workers_ask_a_host_at_one_moment() {
    let slowly = || {
        two_of_a_host(Rules {
            delay_ms: SECOND,
            ..rules()
        })
    };
    let actors = asked_once(asker(asker(Interleave::of(slowly), "one", A), "other", B));
    let weaken = hosts()
        .containing("pages <")
        .without("next_allowed_at <= :now");
    breaks(actors, weaken, "asked 2 times at one moment").await;
}

#[tokio::test]
async fn without_the_turn_a_second_attempt_asks_a_host_out_of_turn() {
    // A has been tried; B is new.
    let slowly = || async {
        let desk = two_of_a_host(rules()).await;
        let claimed = desk.claim_fetch(&desk.town.crawler, A, "before").await;
        let ClaimedFetch::Run(run) = claimed else {
            panic!("{claimed:?}");
        };
        let crawler = &desk.town.crawler;
        crawler
            .fetch_later(&run, "later", desk.town.now())
            .await
            .unwrap();
        crawler
            .release_turn(&run.host, &run.turn_id, None)
            .await
            .unwrap();
        let rules = Rules {
            delay_ms: SECOND,
            ..rules()
        };
        desk_of(Town {
            crawler: crawler.with_rules(rules),
            site: desk.town.site,
        })
    };
    let actors = asked_once(asker(asker(Interleave::of(slowly), "again", A), "new", B));
    let weaken = Arc::new(
        hosts()
            .containing("next_allowed_at")
            .without("next_allowed_at <= :now"),
    );
    let under = Arc::clone(&weaken);
    // Only the one that is not counted: the guard of a first fetch stays as it is.
    let only = move || Arc::new(NotCounted(Arc::clone(&under)));
    let broken = actors.under(only).run().await.unwrap_err();
    assert!(weaken.applied() > 0);
    assert!(broken.why.contains("asked 2 times"), "{broken:?}");
}

/// Weakens only conditions that do not look at the count of pages.
struct NotCounted(Arc<Weaken>);

impl cloud::tap::Plan for NotCounted {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        let counted = request.body.to_string().contains("pages < :most");
        match counted {
            true => Box::pin(async { cloud::tap::Verdict::Pass }),
            false => self.0.before(request),
        }
    }
}

#[tokio::test]
async fn without_the_count_a_host_gives_more_pages_than_it_should() {
    let one_page = || {
        two_of_a_host(Rules {
            pages_per_host: 1,
            ..rules()
        })
    };
    let actors = asker(asker(Interleave::of(one_page), "one", A), "other", B);
    let checked = actors.check(|desk, told| async move {
        match pages_asked(&desk.town) {
            1 => Ok(label(&told)),
            pages => Err(format!("{pages} pages of a host that has one")),
        }
    });
    breaks(
        checked,
        hosts().without("pages < :most"),
        "2 pages of a host that has one",
    )
    .await;
}

// The host's turn.

#[tokio::test]
async fn without_its_guard_two_read_a_robots_txt_at_one_moment() {
    let unknown = || async { desk_of(small().await) };
    let actors = robots_reader(robots_reader(Interleave::of(unknown), "one"), "other");
    let checked = actors.check(|desk, told| async move {
        match desk.town.site.hits("site.test/robots.txt") {
            1 => Ok(label(&told)),
            times => Err(format!("it was read {times} times")),
        }
    });
    let weaken = hosts().containing("attribute_not_exists(origin)");
    breaks(checked, weaken, "it was read 2 times").await;
}

#[tokio::test]
async fn without_its_guard_a_late_release_opens_the_host_under_another() {
    let held = || async { ready().await.hold_fetch("first").await };
    let actors = Interleave::of(held).actor("first", |desk: Arc<Desk>| async move {
        let run = desk.fetch_run.clone().unwrap();
        let crawler = &desk.town.crawler;
        crawler
            .release_turn(&run.host, &run.turn_id, None)
            .await
            .unwrap();
        "released".to_owned()
    });
    let checked = taker(actors).check(|desk, told| async move {
        let host = desk.town.policy("http://site.test").await;
        let open = host.next_allowed_at <= desk.late.cloud().now();
        match host.turn_id.ends_with("second") && open {
            true => Err("the host is open, and the second is at it".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = hosts().containing("turn_id = :turn");
    breaks(checked, weaken, "the host is open").await;
}

#[tokio::test]
async fn without_its_guard_old_rules_replace_newer_ones() {
    let unknown = || async {
        let town = small().await;
        let (old, new) = ("User-agent: *\nAllow: /", "User-agent: *\nDisallow: /");
        town.site.put_all(
            "site.test/robots.txt",
            vec![Reply::text(old), Reply::text(new)],
        );
        desk_of(town)
    };
    let slow = robots_reader(Interleave::of(unknown), "slow");
    let actors = slow.actor("quick", |desk| async move {
        let asked = desk
            .late
            .fetch_robots("http://site.test", "quick")
            .await
            .unwrap();
        format!("{asked:?}").to_lowercase()
    });
    let checked = actors.check(|desk, told| async move {
        let key = desk
            .town
            .policy("http://site.test")
            .await
            .robots_key
            .unwrap();
        let stored = desk.town.crawler.read_blob(&key).await.unwrap().unwrap();
        let reads = desk.town.site.hits("site.test/robots.txt");
        match reads == 2 && stored.ends_with(b"Allow: /") && !stored.ends_with(b"Disallow: /") {
            true => Err("the older rules stand".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = hosts().containing("turn_id = :turn");
    breaks(checked, weaken, "the older rules stand").await;
}

// Ending.

#[tokio::test]
async fn without_the_fence_a_slow_worker_marks_what_another_fetches() {
    let held = || async { ready().await.hold_bytes("first").await };
    let actors = taker(finisher(Interleave::of(held))).check(|_, told| async move {
        match label(&told) {
            both if both == "first done, second has it" => Err(both),
            other => Ok(other),
        }
    });
    let weaken = urls().containing(":fetching").without("fence = :fence");
    breaks(actors, weaken, "first done, second has it").await;
}

#[tokio::test]
async fn without_the_status_what_was_given_up_comes_back() {
    // The third attempt is taken for dead and given up; then it comes after all.
    let actors = taker(finisher(Interleave::of(third_attempt)));
    let checked = actors.check(|desk, told| async move {
        let told = label(&told);
        match told.contains("first done") && told.contains("again and again") {
            true => Err(format!("{told}: it is {:?}", desk.town.status(HOME).await)),
            false => Ok(told),
        }
    });
    let weaken = urls()
        .containing(":fetching")
        .without("#status = :fetching");
    breaks(checked, weaken, "it is Fetched").await;
}

fn parse_finisher(desks: Desks) -> Desks {
    desks.actor("first", |desk| async move {
        let run = desk.parse_run.clone().unwrap();
        let marked = desk
            .town
            .crawler
            .mark_parsed(&run, "some/text.json", 3)
            .await
            .unwrap();
        format!("{marked:?}").to_lowercase()
    })
}

fn parse_taker(desks: Desks) -> Desks {
    desks.actor("second", |desk| async move {
        match desk.claim_parse(&desk.late, HOME, "second").await {
            crawler::ClaimedParse::Run(run) => {
                desk.claimed_fence(run.url.fence);
                "has it".to_owned()
            }
            other => format!("{other:?}").to_lowercase(),
        }
    })
}

fn not_both(desks: Desks) -> Desks {
    desks.check(|_, told| async move {
        match label(&told) {
            both if both == "first done, second has it" => Err(both),
            other => Ok(other),
        }
    })
}

#[tokio::test]
async fn without_the_fence_a_slow_parser_finishes_what_another_parses() {
    let held = || async { ready().await.hold_parse("first").await };
    let actors = not_both(parse_taker(parse_finisher(Interleave::of(held))));
    let weaken = urls().containing(":parsing").without("fence = :fence");
    breaks(actors, weaken, "first done, second has it").await;
}

#[tokio::test]
async fn without_the_status_what_was_parsed_is_claimed_again() {
    let held = || async { ready().await.hold_parse("first").await };
    let actors = not_both(parse_taker(parse_finisher(Interleave::of(held))));
    breaks(
        actors,
        urls().without("#status = :was"),
        "first done, second has it",
    )
    .await;
}

#[tokio::test]
async fn without_the_end_of_the_lease_two_parsers_have_the_same_one() {
    let held = || async { ready().await.hold_parse("first").await };
    let other = |desks: Desks| {
        desks.actor("other", |desk| async move {
            match desk.claim_parse(&desk.late, HOME, "other").await {
                crawler::ClaimedParse::Run(run) => {
                    desk.claimed_fence(run.url.fence);
                    "has it".to_owned()
                }
                told => format!("{told:?}").to_lowercase(),
            }
        })
    };
    let actors = other(parse_taker(Interleave::of(held))).check(|desk, told| async move {
        match desk.fences.lock().unwrap().len() {
            2 => Err("two parsers have it".to_owned()),
            _ => Ok(label(&told)),
        }
    });
    breaks(
        actors,
        urls().without("lease_expires_at = :ended"),
        "two parsers have it",
    )
    .await;
}

/// A copy of the first release, or a second one by a worker whose next write failed.
#[tokio::test]
async fn without_the_end_of_the_turn_a_second_release_takes_back_the_pause() {
    for (weakened, alone) in [(false, 3_600_000), (true, 0)] {
        let town = small_known().await;
        let turn = town.crawler.take_turn("http://site.test", "turn").await;
        let host = turn.unwrap().unwrap().host;
        let asked = Some(3_600_000);
        town.crawler
            .release_turn(&host, "turn", asked)
            .await
            .unwrap();
        let weaken = Arc::new(hosts().without("attribute_exists(turn_ends_at)"));
        let plan = weakened.then(|| town.cloud().tap().install(weaken.clone()));
        town.crawler
            .release_turn(&host, "turn", None)
            .await
            .unwrap();
        drop(plan);
        assert_eq!(weaken.applied() > 0, weakened);
        let next = town.policy("http://site.test").await.next_allowed_at;
        assert_eq!(next - town.now(), alone);
    }
}

#[tokio::test]
async fn without_the_fence_a_parser_that_lost_its_lease_keeps_its_heirs() {
    for weakened in [false, true] {
        let desk = ready().await.hold_parse("first").await;
        desk.town.advance(MINUTE);
        desk.claim_parse(&desk.town.crawler, HOME, "heir").await;
        desk.town.advance(SECOND);
        let weaken = Arc::new(
            urls()
                .containing("lease_expires_at")
                .without("fence = :fence"),
        );
        let plan = weakened.then(|| desk.town.cloud().tap().install(weaken.clone()));
        let mut run = desk.parse_run.clone().unwrap();
        let kept = desk.town.crawler.keep_parse(&mut run).await.unwrap();
        drop(plan);
        assert_eq!((kept, weaken.applied() > 0), (weakened, weakened));
    }
}

/// The slow parser read FETCHED; since then the page was parsed, recrawled and fetched again.
#[tokio::test]
async fn without_the_fence_a_claim_turns_the_fence_back() {
    let fetched = || async {
        let desk = ready().await;
        let fetched = desk
            .town
            .crawler
            .fetch(&Town::fetch_message(HOME), "first")
            .await;
        fetched.unwrap();
        desk
    };
    let actors = Interleave::of(fetched).actor("slow", |desk: Arc<Desk>| async move {
        match desk.claim_parse(&desk.town.crawler, HOME, "slow").await {
            crawler::ClaimedParse::Run(run) => run.url.fence.to_string(),
            _ => "none".to_owned(),
        }
    });
    // Its calls are not held, but for one that gives it a place in the order.
    let actors = actors.actor("quick", |desk| async move {
        desk.town.crawler.read_url(&hash(HOME)).await.unwrap();
        let beside = desk.town.crawler.on(desk.town.cloud().beside_tap());
        let _ = beside.parse(&Town::parse_message(HOME), "quick").await;
        let _ = beside.reopen(&hash(HOME), desk.town.now()).await;
        let _ = beside.fetch(&Town::fetch_message(HOME), "quick").await;
        desk.town.row(HOME).await.fence.to_string()
    });
    let checked = actors.check(|desk, told| async move {
        let (reached, stands) = (told[1].1.clone(), desk.town.row(HOME).await.fence);
        match reached.parse::<u64>().is_ok_and(|reached| stands < reached) {
            true => Err(format!("the fence went back from {reached} to {stands}")),
            false => Ok(label(&told)),
        }
    });
    breaks(
        checked,
        urls().containing("FETCHED").without("fence = :seen"),
        "the fence went back",
    )
    .await;
}

#[tokio::test]
async fn without_the_status_a_parser_that_was_given_up_finishes() {
    let worn = || async {
        let desk = ready().await.hold_parse("first").await;
        let rows = desk.town.cloud().beside_tap();
        rows.dynamodb()
            .update_item()
            .table_name(rows.names().table("url_metadata"))
            .key("url_hash", cloud::item::s(hash(HOME)))
            .update_expression("SET parse_attempts = :three")
            .expression_attribute_values(":three", cloud::item::n(3))
            .send()
            .await
            .unwrap();
        desk
    };
    let actors = parse_taker(parse_finisher(Interleave::of(worn))).check(|_, told| async move {
        match label(&told) {
            both if both == "first done, second failed" => Err(both),
            other => Ok(other),
        }
    });
    // First done and then an echo is as it should be; done after failed is not.
    let weaken = urls().containing(":parsing").without("#status = :parsing");
    breaks(actors, weaken, "first done, second failed").await;
}

// Sweeping, storing, recrawling.

#[tokio::test]
async fn without_the_time_two_sweepers_both_send() {
    let actors = other_sweeper(sweeper(Interleave::of(|| async {
        let desk = ready().await;
        desk.town.receive_fetch().await.unwrap();
        desk
    })));
    let checked = actors.check(|desk, told| async move {
        let mut messages = 0;
        while desk.town.receive_fetch().await.is_some() {
            messages += 1;
        }
        match messages {
            1 => Ok(label(&told)),
            _ => Err(format!("{messages} messages")),
        }
    });
    breaks(checked, urls().without("lane_at = :due"), "2 messages").await;
}

#[tokio::test]
async fn without_the_status_a_sweeper_moves_what_has_ended_in_the_same_millisecond() {
    // Its time to be looked at is the very moment in which it fails.
    let overdue = || async {
        let desk = ready().await;
        desk.town.site.put(
            "site.test/robots.txt",
            Reply::text("User-agent: *\nDisallow: /"),
        );
        desk.town.advance(crawler::domain::ROBOTS_MS);
        desk.town
            .crawler
            .fetch_robots("http://site.test", "setup")
            .await
            .unwrap();
        desk.town.crawler.sweep(&hash(HOME)).await.unwrap();
        let due = desk.town.row(HOME).await.lane_at;
        desk.town.advance(due - desk.town.now());
        desk.town
            .crawler
            .fetch_robots("http://site.test", "setup")
            .await
            .unwrap();
        Desk {
            late: desk.town.ahead(0),
            ..desk
        }
    };
    let actors = sweeper(claimer(Interleave::of(overdue), "worker", HOME));
    let checked = actors.check(|desk, told| async move {
        let row = desk.town.row(HOME).await;
        match row.status == Status::Failed && row.lane_at > desk.town.now() {
            true => Err("it has failed, at a time to come".to_owned()),
            false => Ok(label(&told)),
        }
    });
    let weaken = urls()
        .containing("lane_at = :due")
        .without("#status = :seen");
    breaks(checked, weaken, "it has failed, at a time to come").await;
}

#[tokio::test]
async fn without_its_guard_a_second_storer_forgets_the_text() {
    let weaken = Weaken::guard_on("artifacts");
    breaks(two_storers(), weaken, "the row has lost its text").await;
}

#[tokio::test]
async fn without_the_status_two_who_recrawl_both_send() {
    breaks(
        recrawlers(),
        urls().without("#status = :as_read"),
        "2 messages",
    )
    .await;
}

#[tokio::test]
async fn without_the_fence_a_page_just_recrawled_is_recrawled_again() {
    let parsed = || async {
        let desk = ready().await;
        desk.town.live(1).await;
        desk.town.advance(MINUTE);
        desk
    };
    let actors = Interleave::of(parsed).actor("slow", |desk: Arc<Desk>| async move {
        let opened = desk
            .town
            .crawler
            .reopen(&hash(HOME), desk.town.now() - SECOND)
            .await;
        opened.unwrap().to_string()
    });
    // Another one recrawls it, to the end: its calls are not held.
    let actors = actors.actor("quick", |desk| async move {
        // A call of its own, so that it has a place in the order.
        desk.town.crawler.read_url(&hash(HOME)).await.unwrap();
        let beside = desk.town.crawler.on(desk.town.cloud().beside_tap());
        beside
            .reopen(&hash(HOME), desk.town.now() - SECOND)
            .await
            .unwrap();
        let fetched = beside
            .fetch(&Town::fetch_message(HOME), "quick")
            .await
            .unwrap();
        beside
            .parse(&Town::parse_message(HOME), "quick")
            .await
            .unwrap();
        word(&fetched)
    });
    let checked = actors.check(|desk, told| async move {
        let row = desk.town.row(HOME).await;
        match row.status == Status::Discovered && row.fetched_at == Some(desk.town.now()) {
            true => Err("it is opened again, and was fetched this moment".to_owned()),
            false => Ok(label(&told)),
        }
    });
    breaks(
        checked,
        urls().containing(":as_read").without("fence = :fence"),
        "opened again",
    )
    .await;
}

// Adding a seed again that was given up.

async fn given_up() -> Desk {
    let desk = ready().await;
    desk.town.site.put("site.test/", Reply::status(404));
    desk.town.live(1).await;
    assert_eq!(desk.town.status(HOME).await, Status::Failed);
    desk.town.advance(MINUTE);
    desk
}

#[tokio::test]
async fn without_the_status_two_who_add_a_failed_seed_again_both_send() {
    let one = Interleave::of(given_up).actor("one", |desk: Arc<Desk>| async move {
        let added = desk.town.crawler.add_seed(HOME).await;
        format!("{:?}", added.unwrap()).to_lowercase()
    });
    let actors = one.actor("other", |desk| async move {
        let added = desk.town.ahead(SECOND).add_seed(HOME).await;
        format!("{:?}", added.unwrap()).to_lowercase()
    });
    let checked = actors.check(|desk, told| async move {
        let mut messages = 0;
        while desk.town.receive_fetch().await.is_some() {
            messages += 1;
        }
        match messages {
            1 => Ok(label(&told)),
            _ => Err(format!("{messages} messages")),
        }
    });
    breaks(checked, urls().without("#status = :failed"), "2 messages").await;
}

#[tokio::test]
async fn without_the_fence_a_seed_that_just_failed_again_is_opened_again() {
    let desk = given_up().await;
    let town = &desk.town;
    // A slow one has read it; meanwhile a quick one opened it, and it failed again.
    let seen = town.row(HOME).await;
    town.crawler.add_seed(HOME).await.unwrap();
    let quick = town
        .crawler
        .fetch(&Town::fetch_message(HOME), "quick")
        .await;
    assert_eq!(word(&quick.unwrap()), "status 404");
    assert!(!town.crawler.reopen_failed(&seen).await.unwrap());
    let weaken = urls().containing(":failed").without("fence = :fence");
    let weaken = Arc::new(weaken);
    let installed = town.cloud().tap().install(weaken.clone());
    assert!(town.crawler.reopen_failed(&seen).await.unwrap());
    drop(installed);
    assert!(weaken.applied() > 0, "the guard was not met");
}

#[tokio::test]
async fn without_its_guard_a_failed_seed_makes_a_known_robots_txt_be_read_again() {
    let desk = given_up().await;
    let town = &desk.town;
    let again = async || {
        town.crawler.add_seed(HOME).await.unwrap();
        town.live(1).await;
        town.site.hits("site.test/robots.txt")
    };
    assert_eq!(again().await, 1);
    let weaken = Arc::new(hosts().containing("robots = :unreachable"));
    let installed = town.cloud().tap().install(weaken.clone());
    assert_eq!(again().await, 2);
    drop(installed);
    assert!(weaken.applied() > 0, "the guard was not met");
}
