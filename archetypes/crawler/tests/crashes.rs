//! Dies before and after every call; then life goes on, with every message worked on twice; then the site
//! must be crawled to its end, and nothing may be stored twice.
#![allow(clippy::unwrap_used)]

mod web;

use chaos::{Conflicts, CrashSweep, Deaf, Faults, Swept, World};
use cloud::as_actor;
use crawler::site::{Reply, page};
use crawler::{ClaimedFetch, Discovered, Finish, Worked};
use std::sync::Arc;
use web::cast::*;
use web::*;

fn assert_points(swept: &Swept, calls: usize) {
    assert_eq!(swept.points.len(), 2 * calls, "{:#?}", swept.points);
}

#[tokio::test]
async fn every_crash_point_of_adding_a_seed_recovers() {
    let empty = || async {
        let town = open().await;
        town.put_small();
        town
    };
    let swept = CrashSweep::of(empty)
        .action("client", |town| async move {
            town.crawler.add_seed(HOME).await.unwrap()
        })
        // The client does what clients do: it asks again.
        .recovery(|town| async move {
            town.crawler.afresh().add_seed(HOME).await.unwrap();
            town.live(3).await;
        })
        .check(|town| async move { town.small_is_crawled().await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 2);
}

/// From the message to its deletion, with a robots.txt to be read on the way.
#[tokio::test]
async fn every_crash_point_of_a_fetch_recovers_and_loses_nothing() {
    let swept = CrashSweep::of(small)
        .action("worker", |town| async move {
            let message = town.receive_fetch().await.unwrap();
            town.crawler.fetch(&message, "worker").await.unwrap()
        })
        .recovery(|town| async move { town.live(4).await })
        .check(|town| async move {
            town.small_is_crawled().await?;
            // Asked for once, and once more if the one who asked died of it.
            match town.site.hits("site.test/") {
                1 | 2 => Ok(()),
                times => Err(format!("the page was asked for {times} times")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 18);
}

#[tokio::test]
async fn every_crash_point_of_a_parse_and_its_expansion_recovers_and_loses_nothing() {
    let fetched = || async {
        let town = small_known().await;
        let message = town.receive_fetch().await.unwrap();
        town.crawler.fetch(&message, "setup").await.unwrap();
        town
    };
    let swept = CrashSweep::of(fetched)
        .action("parser", |town| async move {
            let message = town.receive_parse().await.unwrap();
            town.crawler.parse(&message, "parser").await.unwrap()
        })
        .recovery(|town| async move { town.live(3).await })
        .check(|town| async move { town.small_is_crawled().await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 13);
}

#[tokio::test]
async fn every_crash_point_of_a_sweep_recovers() {
    // Discovered, and never sent; fetched, and never sent to the parsers.
    let stuck = || async {
        let desk = ready().await.hold_bytes("dead").await;
        let (run, fetched) = (
            desk.fetch_run.clone().unwrap(),
            desk.fetched.clone().unwrap(),
        );
        desk.town
            .crawler
            .mark_fetched(&run, &fetched)
            .await
            .unwrap();
        let found = crawler::Found {
            url: crawler::canonical::canonical(A).unwrap(),
            kind: crawler::domain::Kind::Page,
            depth: 1,
            redirects: 0,
            found_on: None,
        };
        desk.town.crawler.discover(&found).await.unwrap();
        desk.town.receive_fetch().await.unwrap();
        desk.town.advance(3 * MINUTE);
        desk.town
    };
    let swept = CrashSweep::of(stuck)
        .action("sweeper", |town| async move { town.sweep().await })
        .recovery(|town| async move {
            // The sweep that moved it and died will be made again when its time has come.
            town.live(5).await;
        })
        .check(|town| async move { town.small_is_crawled().await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 10);
}

/// A retry, a "later", a redirect: the other ends of a fetch.
#[tokio::test]
async fn every_crash_point_of_a_fetch_that_fails_recovers() {
    for reply in [
        Reply::status(500),
        Reply::status(429).with("retry-after", "5"),
        Reply::redirect("/a"),
    ] {
        let setup = move || {
            let reply = reply.clone();
            async move {
                let town = small_known().await;
                let home = page("Home", &["/a", "/b", "/no"]);
                town.site.put_all("site.test/", vec![reply, home]);
                town
            }
        };
        let swept = CrashSweep::of(setup)
            .action("worker", |town| async move {
                let message = town.receive_fetch().await.unwrap();
                town.crawler.fetch(&message, "worker").await.unwrap()
            })
            .recovery(|town| async move { town.live(5).await })
            .check(|town| async move {
                town.invariants().await?;
                let a = town.crawler.read_url(&hash(A)).await.unwrap();
                match (town.row(HOME).await.status, a.map(|a| a.status)) {
                    (crawler::domain::Status::Parsed, Some(crawler::domain::Status::Parsed)) => {
                        Ok(())
                    }
                    other => Err(format!("{other:?}")),
                }
            })
            .run()
            .await
            .unwrap();
        assert!(swept.points.len() >= 16, "{:#?}", swept.points);
    }
}

#[tokio::test]
async fn every_crash_point_of_a_shorter_way_recovers() {
    let parsed = || async {
        let desk = at_the_edge().await;
        desk.town.live(1).await;
        desk.town
    };
    let find = |town: Arc<Town>| async move {
        let found = crawler::Found {
            url: crawler::canonical::canonical(DEEP).unwrap(),
            kind: crawler::domain::Kind::Page,
            depth: 1,
            redirects: 0,
            found_on: None,
        };
        town.crawler.afresh().discover(&found).await.unwrap()
    };
    let swept = CrashSweep::of(parsed)
        .action("finder", find)
        .recovery(move |town| async move {
            // Whoever parses the page it was found on comes again.
            find(Arc::clone(&town)).await;
            town.live(3).await;
        })
        .check(|town| async move {
            match town.crawler.read_url(&hash(LEAF)).await.unwrap() {
                Some(leaf) if leaf.status == crawler::domain::Status::Parsed => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 3);
}

#[tokio::test]
async fn every_crash_point_of_a_recrawl_recovers() {
    let parsed = || async {
        let town = small().await;
        town.live(2).await;
        town.advance(MINUTE);
        town
    };
    let swept = CrashSweep::of(parsed)
        .action("client", |town| async move {
            town.crawler.reopen(&hash(HOME), town.now()).await.unwrap()
        })
        .recovery(|town| async move { town.live(3).await })
        .check(|town| async move { town.small_is_crawled().await })
        .run()
        .await
        .unwrap();
    assert_points(&swept, 3);
}

#[tokio::test]
async fn a_message_that_comes_again_after_everything_changes_nothing() {
    let town = small().await;
    town.live(3).await;
    let (rows, hits) = (town.rows().await, town.site.log().len());
    for row in &rows {
        let fetched = town
            .crawler
            .fetch(&Town::fetch_message(&row.url), "late")
            .await;
        assert_eq!(fetched.unwrap(), Worked::Echo);
        let parsed = town
            .crawler
            .parse(&Town::parse_message(&row.url), "late")
            .await;
        assert_eq!(parsed.unwrap(), Worked::Echo);
    }
    assert_eq!(town.rows().await, rows);
    assert_eq!(town.site.log().len(), hits);
}

#[tokio::test]
async fn a_message_that_nobody_can_read_is_dropped() {
    let town = open().await;
    let beside = town.cloud().beside_tap();
    let url = beside
        .sqs()
        .get_queue_url()
        .queue_name(beside.names().queue("frontier"));
    let url = url.send().await.unwrap().queue_url.unwrap();
    let send = beside.sqs().send_message().queue_url(url);
    send.message_body("not json").send().await.unwrap();
    let message = town.receive_fetch().await.unwrap();
    assert_eq!(
        town.crawler.fetch(&message, "w").await.unwrap(),
        Worked::Echo
    );
    assert!(town.receive_fetch().await.is_none());
}

/// The queues are lost as a whole, with every message in them.
#[tokio::test]
async fn a_frontier_whose_queues_were_lost_is_rebuilt_from_the_table() {
    let town = small().await;
    let message = town.receive_fetch().await.unwrap();
    town.crawler.fetch(&message, "w").await.unwrap();
    let message = town.receive_parse().await.unwrap();
    town.crawler.parse(&message, "w").await.unwrap();
    let beside = town.cloud().beside_tap();
    for queue in ["frontier", "parse"] {
        let url = beside
            .sqs()
            .get_queue_url()
            .queue_name(beside.names().queue(queue));
        let url = url.send().await.unwrap().queue_url.unwrap();
        beside
            .sqs()
            .purge_queue()
            .queue_url(url)
            .send()
            .await
            .unwrap();
    }
    assert!(town.receive_fetch().await.is_none(), "the queue is empty");
    town.live(3).await;
    town.small_is_crawled().await.unwrap();
}

// Lost answers: the SDK sends again, and what was written the first time is our own.

#[tokio::test]
async fn whoever_does_not_hear_the_answer_still_has_the_url() {
    let desk = ready().await;
    let lost = Faults::seeded(1).lose_answer(0.4);
    let plan = Arc::new(lost);
    let mut had = 0;
    for attempt in 0..6 {
        let _plan = desk.town.cloud().tap().install(plan.clone());
        let owner = format!("worker-{attempt}");
        let claimed = desk.claim_fetch(&desk.town.crawler, HOME, &owner).await;
        if let ClaimedFetch::Run(run) = claimed {
            had += 1;
            let ended = desk
                .town
                .crawler
                .fetch_later(&run, "again", desk.town.now())
                .await;
            assert_eq!(ended.unwrap().0, Finish::Done);
            desk.town
                .crawler
                .release_turn(&run.host, &run.turn_id, None)
                .await
                .unwrap();
        }
    }
    assert_eq!(had, 6, "{:?}", plan.injected());
    assert!(
        plan.injected().values().sum::<usize>() > 3,
        "{:?}",
        plan.injected()
    );
}

/// On AWS a write is refused while another transaction has its item. Nothing that was fetched is lost for
/// that, and nothing is fetched again.
#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again() {
    for operation in ["TransactWriteItems", "UpdateItem", "PutItem"] {
        let town = small().await;
        let conflicts = Arc::new(Conflicts::on(operation, 3));
        let installed = town.cloud().tap().install(conflicts.clone());
        town.work_all("w").await;
        drop(installed);
        assert_eq!(conflicts.left(), 0);
        town.small_is_crawled().await.unwrap();
        for path in ["/", "/a", "/b"] {
            assert_eq!(town.site.hits(&format!("site.test{path}")), 1);
        }
    }
}

/// Nobody hears anything: what was begun is found by its identity when somebody asks again.
#[tokio::test]
async fn a_seed_whose_answers_were_all_lost_is_there_once() {
    let town = open().await;
    town.put_small();
    let installed = town.cloud().tap().install(Arc::new(Deaf));
    let unknown = as_actor("deaf", town.crawler.add_seed(HOME))
        .await
        .unwrap_err();
    assert!(unknown.to_string().contains("unknown"), "{unknown}");
    drop(installed);
    // It is there, and was not sent. Asking again finds it known; the sweeper sends it.
    town.advance(SECOND);
    let again = town.crawler.add_seed(HOME).await.unwrap();
    assert_eq!(again, Discovered::Known);
    town.live(3).await;
    town.small_is_crawled().await.unwrap();
}

/// Faults of every kind, again and again; then calm. By seed, and different for each.
#[tokio::test]
async fn a_crawl_through_faults_of_every_kind_loses_nothing() {
    for seed in 1..=4 {
        let town = small().await;
        let faults = Arc::new(
            Faults::seeded(seed)
                .throttle(0.03)
                .lose_request(0.03)
                .lose_answer(0.03)
                .stale_read(0.3)
                .duplicate_delivery(0.2),
        );
        let installed = town.cloud().tap().install(faults.clone());
        for _ in 0..6 {
            // Whoever fails has failed; the message is back, or the sweeper finds it.
            for _ in 0..8 {
                if let Ok(Some(message)) = town.crawler.receive_frontier(0).await {
                    let _ = town.crawler.fetch(&message, "w").await;
                }
                if let Ok(Some(message)) = town.crawler.receive_parse(0).await {
                    let _ = town.crawler.parse(&message, "w").await;
                }
            }
            town.advance(2 * MINUTE);
            let _ = town.crawler.sweep_stalled(0..4).await;
        }
        drop(installed);
        town.live(4).await;
        town.invariants().await.unwrap();
        for row in town.rows().await {
            assert!(
                row.status.is_final(),
                "seed {seed}: {} is {:?}",
                row.url,
                row.status
            );
        }
        assert!(faults.injected().values().sum::<usize>() > 10);
    }
}
