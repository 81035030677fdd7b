//! Every order of the calls of two or three who meet at one place.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::{Explored, Interleave};
use crawler::Rules;
use crawler::domain::{GRACE_MS, LEASE_MS, TURN_MS};
use crawler::site::Reply;
use web::cast::*;
use web::*;

#[track_caller]
fn saw(explored: &Explored, label: &str) {
    assert!(
        explored.seen.contains_key(label),
        "{label} was never seen: {explored:#?}"
    );
}

#[tokio::test]
async fn of_two_workers_one_has_a_url_whatever_the_order() {
    let actors = claimer(claimer(Interleave::of(ready), "one", HOME), "other", HOME);
    let explored = end_well(actors).run().await.unwrap();
    saw(&explored, "one has it, other held");
    saw(&explored, "one held, other has it");
    for seen in explored.seen.keys() {
        assert_eq!(seen.matches("has it").count(), 1, "{seen}");
    }
}

#[tokio::test]
async fn a_slow_worker_and_its_heir_do_not_both_finish() {
    let held = || async { ready().await.hold_bytes("first").await };
    let actors = taker(finisher(Interleave::of(held)));
    let explored = end_well(actors).run().await.unwrap();
    // It was through before the lease was taken; or it came too late, and changed nothing.
    saw(&explored, "first done, second echo");
    saw(&explored, "first stale, second has it");
    for seen in explored.seen.keys() {
        assert_ne!(seen, "first done, second has it");
    }
}

#[tokio::test]
async fn a_worker_and_a_sweeper_lose_nothing_between_them() {
    let overdue = || async {
        let mut desk = ready().await;
        desk.town.advance(MINUTE);
        desk.late = desk.town.ahead(0);
        desk
    };
    let actors = sweeper(claimer(Interleave::of(overdue), "worker", HOME));
    let explored = end_well(actors).run().await.unwrap();
    saw(&explored, "worker has it, sweeper tofetch");
    saw(&explored, "worker has it, sweeper before");
}

#[tokio::test]
async fn two_sweepers_send_one_message() {
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
    let explored = checked.run().await.unwrap();
    saw(&explored, "sweeper tofetch, other before");
    saw(&explored, "sweeper before, other tofetch");
}

#[tokio::test]
async fn two_pages_that_link_to_one_url_make_one_row_by_the_shorter_way() {
    let actors = discoverer(Interleave::of(ready), "near", A, 1, 0);
    let actors = discoverer(actors, "far", A, 3, 2);
    let checked = actors.check(|desk, told| async move {
        let row = desk.town.row(A).await;
        if (row.depth, row.redirects) != (1, 0) {
            return Err(format!(
                "it is {} links and {} hops away",
                row.depth, row.redirects
            ));
        }
        desk.town.live(3).await;
        desk.town.small_is_crawled().await?;
        Ok(label(&told))
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "near new, far known");
    saw(&explored, "near shortened, far new");
}

#[tokio::test]
async fn three_ways_to_one_url_end_with_the_least_of_each() {
    let actors = discoverer(Interleave::of(ready), "long", A, 5, 5);
    let actors = discoverer(actors, "short", A, 1, 4);
    let actors = discoverer(actors, "straight", A, 4, 0);
    let checked = actors.check(|desk, told| async move {
        let row = desk.town.row(A).await;
        match (row.depth, row.redirects) {
            (1, 0) => Ok(label(&told)),
            other => Err(format!("{other:?}")),
        }
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "long new, short shortened, straight shortened");
    saw(&explored, "long known, short new, straight shortened");
    saw(&explored, "long known, short shortened, straight new");
}

#[tokio::test]
async fn a_host_that_is_to_be_left_alone_is_asked_by_one_of_two_workers() {
    let slowly = || {
        two_of_a_host(Rules {
            delay_ms: SECOND,
            ..rules()
        })
    };
    let actors = asker(asker(Interleave::of(slowly), "one", A), "other", B);
    let explored = asked_once(actors).run().await.unwrap();
    saw(&explored, "one asked, other too early");
    saw(&explored, "one too early, other asked");
}

#[tokio::test]
async fn a_robots_txt_is_read_once_by_however_many_workers() {
    let unknown = || async { desk_of(small().await) };
    let actors = robots_reader(robots_reader(Interleave::of(unknown), "one"), "other");
    let checked = actors.check(|desk, told| async move {
        match desk.town.site.hits("site.test/robots.txt") {
            1 => Ok(label(&told)),
            times => Err(format!("it was read {times} times")),
        }
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "one stored, other later");
    saw(&explored, "one later, other stored");
    saw(&explored, "one stored, other stored");
}

/// The proof of what `claim_fetch.rs` says: rules need no guard of their own.
#[tokio::test]
async fn a_page_is_not_fetched_under_rules_that_were_replaced() {
    let expired = || async {
        let desk = ready().await;
        // The rules expire; the worker's clock is just before that, the reader's just after.
        desk.town.advance(crawler::domain::ROBOTS_MS - 1);
        desk.town.site.put(
            "site.test/robots.txt",
            Reply::text("User-agent: *\nDisallow: /"),
        );
        desk
    };
    let actors = asker(Interleave::of(expired), "worker", HOME);
    let actors = actors.actor("reader", |desk| async move {
        let ahead = desk.town.ahead(1);
        let asked = ahead
            .fetch_robots("http://site.test", "reader")
            .await
            .unwrap();
        match asked {
            crawler::robots::Asked::Stored => "stored".to_owned(),
            _ => "later".to_owned(),
        }
    });
    let checked = actors.check(|desk, told| async move {
        let log = desk.town.site.log();
        let read = log
            .iter()
            .rposition(|hit| hit.path == "/robots.txt")
            .unwrap();
        match log.iter().position(|hit| hit.path == "/") {
            Some(asked) if asked > read && read > 0 => Err("fetched under old rules".to_owned()),
            _ => Ok(label(&told)),
        }
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "worker asked, reader later");
    saw(&explored, "worker too early, reader stored");
}

#[tokio::test]
async fn a_shorter_way_found_while_a_page_is_parsed_is_not_lost() {
    let actors = discoverer(
        deep_parser(Interleave::of(at_the_edge)),
        "finder",
        DEEP,
        1,
        0,
    );
    let explored = leaf_is_crawled(actors).run().await.unwrap();
    saw(&explored, "parser parsed, finder shortened");
    assert!(explored.schedules > 20, "{explored:#?}");
}

#[tokio::test]
async fn a_slow_parser_and_its_heir_do_not_both_finish() {
    let held = || async { ready().await.hold_parse("first").await };
    let actors = Interleave::of(held).actor("first", |desk: std::sync::Arc<Desk>| async move {
        let run = desk.parse_run.clone().unwrap();
        let key = desk
            .town
            .crawler
            .store_text(run.url.content_hash.as_ref().unwrap(), b"{}".to_vec());
        let key = key.await.unwrap();
        let marked = desk.town.crawler.mark_parsed(&run, &key, 3).await.unwrap();
        format!("{marked:?}").to_lowercase()
    });
    let actors = actors.actor("second", |desk| async move {
        let claimed = desk.claim_parse(&desk.late, HOME, "second").await;
        match claimed {
            crawler::ClaimedParse::Run(_) => "has it".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    });
    let checked = actors.check(|desk, told| async move {
        desk.town.invariants().await?;
        Ok(label(&told))
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "first done, second echo");
    saw(&explored, "first stale, second has it");
    for seen in explored.seen.keys() {
        assert_ne!(seen, "first done, second has it");
    }
}

#[tokio::test]
async fn a_parser_and_a_sweeper_lose_nothing_between_them() {
    // A parser died of it, and another one comes by at the same time as the sweeper.
    let held = || async {
        let mut desk = at_the_edge().await;
        desk.claim_parse(&desk.town.crawler, DEEP, "dead").await;
        desk.town.advance(2 * MINUTE);
        desk.late = desk.town.ahead(0);
        desk
    };
    let actors = deep_parser(Interleave::of(held)).actor("sweeper", |desk| async move {
        let swept = desk.late.sweep(&hash(DEEP)).await.unwrap();
        format!("{swept:?}").to_lowercase()
    });
    let checked = actors.check(|desk, told| async move {
        desk.town.live(1).await;
        desk.town.invariants().await?;
        match desk.town.status(DEEP).await {
            crawler::domain::Status::Parsed => Ok(label(&told)),
            other => Err(format!("it is {other:?}")),
        }
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "parser parsed, sweeper toparse");
    saw(&explored, "parser parsed, sweeper before");
}

#[tokio::test]
async fn two_who_store_one_content_store_it_once() {
    let explored = two_storers().run().await.unwrap();
    saw(&explored, "by one");
    saw(&explored, "by other");
}

#[tokio::test]
async fn two_who_recrawl_a_page_open_it_once() {
    let explored = recrawlers().run().await.unwrap();
    saw(&explored, "one true, other false");
    saw(&explored, "one false, other true");
}

// Time passes at any place in the order.

/// Claims the fetch of a page after a read: a worker looks at the clock before the first call of its claim, and
/// time is to pass before that too.
fn reading_claimer(actors: Desks, name: &'static str, url: &'static str) -> Desks {
    actors.actor(name, move |desk| async move {
        let crawler = &desk.town.crawler;
        crawler.read_url(&hash(url)).await.unwrap();
        let claimed = desk.claim_fetch(crawler, url, name).await;
        if let crawler::ClaimedFetch::Run(run) = &claimed {
            desk.claimed_fence(run.url.fence);
        }
        told_fetch(&claimed)
    })
}

#[tokio::test]
async fn a_lease_that_ends_at_any_moment_gives_the_page_to_one_of_fetcher_and_heir() {
    let held = || async { ready().await.hold_bytes("first").await };
    let actors = reading_claimer(finisher(Interleave::of(held)), "heir", HOME);
    let actors = actors.moment("the-lease-ends", |desk: &Desk| {
        desk.town.advance(LEASE_MS + 1);
    });
    let explored = end_well(actors).run().await.unwrap();
    saw(&explored, "first done, heir held");
    saw(&explored, "first done, heir echo");
    saw(&explored, "first stale, heir has it");
    for seen in explored.seen.keys() {
        assert_ne!(seen, "first done, heir has it");
    }
}

#[tokio::test]
async fn a_lease_that_ends_at_any_moment_loses_nothing_between_parser_and_sweeper() {
    // Its text is stored and its links are in the frontier: the heartbeat and the mark are missing.
    let held = || async {
        let desk = ready().await.hold_parse("parser").await;
        let run = desk.parse_run.clone().unwrap();
        let crawler = &desk.town.crawler;
        let body = crawler.read_blob(run.url.raw_blob_key.as_ref().unwrap());
        let page = crawler::page::read(&run.url, &body.await.unwrap().unwrap());
        let text = serde_json::to_vec(&page.text).unwrap();
        let content_hash = run.url.content_hash.clone().unwrap();
        crawler.store_text(&content_hash, text).await.unwrap();
        let children = crawler.children(&run.url, &page.links);
        crawler.expand(&children).await.unwrap();
        desk
    };
    let actors = Interleave::of(held).actor("parser", |desk: std::sync::Arc<Desk>| async move {
        let mut run = desk.parse_run.clone().unwrap();
        let crawler = &desk.town.crawler;
        // A read, so that time may pass before the look at the lease.
        crawler.read_url(&hash(HOME)).await.unwrap();
        if !crawler.keep_parse(&mut run).await.unwrap() {
            return "stale".to_owned();
        }
        let key = format!("{}/text.json", run.url.content_hash.as_ref().unwrap());
        let marked = crawler.mark_parsed(&run, &key, 3).await.unwrap();
        format!("{marked:?}").to_lowercase()
    });
    let actors = actors.actor("sweeper", |desk| async move {
        let crawler = &desk.town.crawler;
        crawler.read_url(&hash(HOME)).await.unwrap();
        let swept = crawler.sweep(&hash(HOME)).await.unwrap();
        format!("{swept:?}").to_lowercase()
    });
    let actors = actors.moment("the-lease-ends", |desk: &Desk| {
        desk.town.advance(LEASE_MS + GRACE_MS + 1);
    });
    let explored = end_well(actors).run().await.unwrap();
    saw(&explored, "parser done, sweeper before");
    saw(&explored, "parser done, sweeper toparse");
}

#[tokio::test]
async fn a_turn_that_ends_at_any_moment_is_not_ended_by_the_worker_that_lost_it() {
    let held = || async {
        let mut desk = two_of_a_host(rules()).await;
        for path in ["a", "b"] {
            desk.town
                .site
                .put(&format!("site.test/{path}"), Reply::status(404));
        }
        match desk.claim_fetch(&desk.town.crawler, A, "first").await {
            crawler::ClaimedFetch::Run(run) => desk.fetch_run = Some(*run),
            other => panic!("{other:?}"),
        }
        desk
    };
    let actors = Interleave::of(held).actor("first", |desk: std::sync::Arc<Desk>| async move {
        let run = desk.fetch_run.as_ref().unwrap();
        word(&desk.town.crawler.fetch_run(run).await.unwrap())
    });
    let actors = reading_claimer(actors, "second", B).moment("the-turn-ends", |desk: &Desk| {
        desk.town.advance(TURN_MS + 1);
    });
    let checked = actors.check(|desk, told| async move {
        let host = desk.town.policy("http://site.test").await;
        let seconds = host.turn_id.ends_with("#second");
        match told[1].1.as_str() {
            // It has not ended its turn, so the first worker must not have ended it.
            "has it" if !seconds || host.turn_ends_at.is_none() => Err(format!("{host:?}")),
            "too early" if seconds => Err(format!("{host:?}")),
            _ => Ok(label(&told)),
        }
    });
    let explored = checked.run().await.unwrap();
    saw(&explored, "first status 404, second has it");
    saw(&explored, "first status 404, second too early");
}
