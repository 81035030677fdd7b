//! The story: every action of the documents, run for real against a small site that this crate serves on
//! loopback, with what it costs.

use crate::artifacts::BUCKET_RESOURCE;
use crate::bench::BENCH;
use crate::canonical::canonical;
use crate::claim_fetch::{ClaimedFetch, FetchRun};
use crate::claim_parse::{ClaimedParse, ParseRun};
use crate::crawl::{CRAWL, SITE};
use crate::discover::{Discovered, Found};
use crate::domain::{Kind, Robots, Status};
use crate::mark_fetched::{After, Fetched, Finish};
use crate::mark_parsed::Parsed;
use crate::page;
use crate::queue::{Message, QUEUES, UrlFrontierState};
use crate::report::REPORT;
use crate::robots::Asked;
use crate::site::{Reply, Site, page as a_page};
use crate::tables::{ACTIONS, MACHINES, SHARDS, TABLES};
use crate::web::{Answer, Https};
use crate::worker::Worked;
use crate::{Crawler, Rules, Web};
use anyhow::{Context, Result, bail};
use cloud::Cloud;
use std::time::Duration;
use walkthrough::{Archetype, Resource, Skew, Story, Workload, share};

const RESOURCES: [Resource; 3] = {
    let [frontier, parse] = QUEUES;
    [frontier, parse, BUCKET_RESOURCE]
};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "crawler",
        title: "Crawler: frontier + claimable run",
        question: "How is no page lost and no host hurried?",
        tables: TABLES,
        resources: &RESOURCES,
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: &[CRAWL, REPORT, SITE, BENCH],
    }
}

/// A busy day, for each page: most are new, allowed, and their host is free.
/// A page of the web has some 30 KB of HTML, and some 5 KB of text: the pages of the walk are smaller.
const HTML_BYTES: u64 = 30 * 1_024;
const TEXT_BYTES: u64 = 5 * 1_024;

const WORKLOAD: Workload = Workload {
    unit: "pages",
    mix: &[
        share("claim URL for fetch", 1.0),
        share("mark URL fetching", 1.0).when("the host is free"),
        share("fetch page", 1.0),
        share("store raw HTML", 0.9)
            .when("new content")
            .storing(HTML_BYTES),
        share("store raw HTML", 0.1).when("seen before"),
        share("mark fetched", 1.0),
        share("enqueue parse work", 1.0),
        share("release fetch claim", 1.0),
        share("claim parse run", 1.0).when("free"),
        share("store parsed text", 0.9)
            .when("new content")
            .storing(TEXT_BYTES),
        share("store parsed text", 0.1).when("seen before"),
        // The page of the walk has four new links; over a whole crawl a page is new once.
        share("expand frontier", 0.25),
        share("mark parsed", 1.0).when("any"),
        share("mark retrying/failed", 0.05).when("again later"),
        share("read robots.txt", 0.01).when("it was read"),
        share("reclaim stalled work", 0.001).when("nothing is stalled"),
    ],
    skew: &[
        Skew {
            resource: "domain_policies",
            action: "",
            hottest: 0.01,
            why: "two writes for each page of a host, and a host is asked once a second or less",
        },
        Skew {
            resource: "url_metadata/lanes",
            action: "",
            hottest: 0.25,
            why: "four shards, each with three lanes",
        },
    ],
    kept_days: 30,
};

const ORIGIN: &str = "http://site.test";

/// The site of the story.
fn put_site(site: &Site) {
    let robots = "User-agent: *\nDisallow: /private\n";
    site.put("site.test/robots.txt", Reply::text(robots));
    let home = a_page("Home", &["/a", "/b?utm_source=home", "/private/x", "/gone"]);
    site.put("site.test/", home.with("etag", "\"v1\""));
    let twin = a_page("Twins", &["/", "/a", "/b"]);
    site.put("site.test/a", twin.clone());
    let busy = Reply::status(429).with("retry-after", "60");
    site.put_all("site.test/b", vec![busy, twin]);
}

/// The message about this page; others wait.
async fn received(
    crawler: &Crawler,
    others: &mut Vec<Message<UrlFrontierState>>,
    path: &str,
) -> Result<Message<UrlFrontierState>> {
    let wanted = canonical(&format!("{ORIGIN}{path}"))?.hash();
    let is_it = |message: &Message<UrlFrontierState>| {
        message
            .says
            .as_ref()
            .is_some_and(|says| says.url_hash == wanted)
    };
    loop {
        if let Some(at) = others.iter().position(is_it) {
            return Ok(others.remove(at));
        }
        let message = crawler.receive_frontier(5).await?;
        others.push(message.context("no message came")?);
    }
}

async fn claimed(
    crawler: &Crawler,
    message: &Message<UrlFrontierState>,
    owner: &str,
) -> Result<FetchRun> {
    match crawler.claim_fetch(message, owner).await? {
        ClaimedFetch::Run(run) => Ok(*run),
        other => bail!("the story expected to claim it: {other:?}"),
    }
}

async fn parsing(
    crawler: &Crawler,
    owner: &str,
) -> Result<(Message<crate::queue::UrlParseRunState>, ParseRun)> {
    let message = crawler.receive_parse(5).await?.context("no message came")?;
    match crawler.claim_parse(&message, owner).await? {
        ClaimedParse::Run(run) => Ok((message, *run)),
        other => bail!("the story expected to claim it: {other:?}"),
    }
}

fn fetched(answer: &Answer, (content_hash, raw_blob_key): (String, String)) -> Fetched {
    Fetched {
        http_status: answer.status,
        content_hash,
        raw_blob_key,
        content_type: answer.content_type.clone(),
        etag: answer.etag.clone(),
        last_modified: answer.last_modified.clone(),
        redirect_to: None,
    }
}

/// Text of what was fetched, and where it leads.
async fn read_and_store(crawler: &Crawler, run: &ParseRun) -> Result<(page::Page, String)> {
    let key = run.url.raw_blob_key.clone().unwrap_or_default();
    let body = crawler
        .read_blob(&key)
        .await?
        .context("the bytes are gone")?;
    let page = page::read(&run.url, &body);
    let hash = run.url.content_hash.clone().unwrap_or_default();
    let key = crawler
        .store_text(&hash, serde_json::to_vec(&page.text)?)
        .await?;
    Ok((page, key))
}

/// Where the story plays.
struct Scene {
    crawler: Crawler,
    cloud: Cloud,
    site: Site,
    /// Messages that came before their turn in the story.
    others: Vec<Message<UrlFrontierState>>,
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    let site = Site::open().await?;
    put_site(&site);
    let web = Web::new(&cloud, site.guard(&["site.test"]), Https::None)?;
    let rules = Rules {
        max_depth: 3,
        delay_ms: 1_000,
        // Calls made at once leave in any order, and a transcript has one.
        puts_at_once: 1,
        ..Rules::default()
    };
    let crawler = Crawler::connect(cloud.clone(), web, rules).await?;
    let mut scene = Scene {
        crawler,
        cloud,
        site,
        others: Vec::new(),
    };
    // Each part in a box of its own: together they are more than a small stack holds.
    Box::pin(first_page(story, &mut scene)).await?;
    Box::pin(its_links(story, &mut scene)).await?;
    Box::pin(not_fetched(story, &mut scene)).await?;
    Box::pin(a_death(story, &mut scene)).await?;
    Box::pin(a_week_later(story, &mut scene)).await
}

/// A seed, its host's rules, and its fetch.
async fn first_page(story: &mut Story, scene: &mut Scene) -> Result<()> {
    let Scene { crawler, cloud, .. } = scene;
    story.section(
        "A seed",
        "The site is served by this crate, on loopback; `site.test` leads there because an allow-list says \
         so. A URL is written down once, under the hash of its canonical form, and then gets a message. \
         The row comes first: it is the truth, and the message a hint.",
    );
    let new = story
        .step(
            "add seed URL",
            "The home page goes into the frontier.",
            async { Ok(crawler.add_seed("HTTP://site.test:80/#top").await?) },
        )
        .await?;
    story.check(new == Discovered::New, "one row, under the canonical URL")?;
    let known = story
        .step("add seed URL", "Somebody else adds it as well, in other words. The put is refused, and brings the row that stands there.", async {
            Ok(crawler.afresh().add_seed("http://site.test/?utm_source=mail").await?)
        })
        .await?;
    story.check(
        known == Discovered::Known,
        "it is the same URL: no second row, no second message",
    )?;

    story.section(
        "May we?",
        "A worker that has the message asks the table. Before anything of a host is fetched, somebody reads \
         its robots.txt, in the host's turn; then all workers know it.",
    );
    let message = story
        .step(
            "claim URL for fetch",
            "SQS hides the message for a minute.",
            async {
                crawler
                    .receive_frontier(5)
                    .await?
                    .context("no message came")
            },
        )
        .await?;
    let first = story
        .step(
            "mark URL fetching",
            "The URL is free, but nobody knows its host.",
            async { Ok(crawler.claim_fetch(&message, "worker-1").await?) },
        )
        .await?;
    story.check(
        matches!(first, ClaimedFetch::NeedsRobots { .. }),
        "first its robots.txt",
    )?;
    let asked = story
        .step("read robots.txt", "Taking the turn moves `next_allowed_at` to where the turn would end. The file goes to S3, since an item has 400 KB and a robots.txt may have 500; the rules are in force when the row says so.", async {
            Ok(crawler.fetch_robots(ORIGIN, "worker-1").await?)
        })
        .await?;
    story.check(asked == Asked::Stored, "the rules are known")?;
    let policy = crawler.read_policy(ORIGIN).await?.context("no policy")?;
    story.check(
        policy.robots == Some(Robots::Known) && policy.next_allowed_at == cloud.now() + 1_000,
        "and the host is left alone for a second",
    )?;
    let early = story
        .step("mark URL fetching", "At once would be too early. Nothing is written, no attempt is used up; the worker hides the message until then.", async {
            Ok(crawler.claim_fetch(&message, "worker-1").await?)
        })
        .await?;
    story.check(
        matches!(early, ClaimedFetch::TooEarly { .. }),
        "everybody waits",
    )?;

    story.section(
        "Two leases in one transaction",
        "The URL, for a minute; its host's turn, for half of that. Nobody holds a page while waiting for a \
         host. `fence` grows with each claim, and whoever writes must have the current one.",
    );
    cloud.clock().advance(Duration::from_secs(1));
    let run = story
        .step("mark URL fetching", "A second later.", async {
            claimed(crawler, &message, "worker-1").await
        })
        .await?;
    let held = story
        .step(
            "mark URL fetching",
            "The same message, delivered to another worker as well: SQS may do that.",
            async { Ok(crawler.claim_fetch(&message, "worker-2").await?) },
        )
        .await?;
    story.check(
        matches!(held, ClaimedFetch::Held { .. }),
        "one worker has it",
    )?;
    let answer = story
        .step(
            "fetch page",
            "One request. As soon as it is over the turn ends: the next one may come in a second.",
            async { Ok(crawler.ask_host(&run).await??) },
        )
        .await?;
    let stored = story
        .step("store raw HTML", "Under the hash of its bytes, not of its URL: whoever stores it again stores the same thing in the same place.", async {
            Ok(crawler.store_raw(&run.url.url_hash, &answer.content_type, answer.body.clone()).await?)
        })
        .await?;
    let home = fetched(&answer, stored);
    let done = story
        .step("mark fetched", "Only under the fence.", async {
            Ok(crawler.mark_fetched(&run, &home).await?)
        })
        .await?;
    story.check(
        done == Finish::Done,
        "FETCHED; if the worker dies now, the sweeper sends it to the parsers",
    )?;
    story
        .step(
            "enqueue parse work",
            "The next stage gets its message.",
            async {
                Ok(crawler
                    .enqueue_parse(&run.url.url_hash, &home.raw_blob_key)
                    .await?)
            },
        )
        .await?;
    story
        .step(
            "release fetch claim",
            "Last: as long as the message is there, nothing is forgotten.",
            async { Ok(crawler.ack_fetch(&message).await?) },
        )
        .await?;
    Ok(())
}

/// The same page is parsed.
async fn its_links(story: &mut Story, scene: &mut Scene) -> Result<()> {
    let Scene { crawler, .. } = scene;
    story.section(
        "From a page to its links",
        "The same again with a parser: message, lease, work, mark. The links come before the mark; the \
         documents have it the other way round, and who dies in between loses them.",
    );
    let (message, run) = story
        .step("claim parse run", "PARSING, with the next fence.", async {
            parsing(crawler, "parser-1").await
        })
        .await?;
    let (home_page, text_key) = story
        .step("store parsed text", "Title and text.", async {
            read_and_store(crawler, &run).await
        })
        .await?;
    let children = crawler.children(&run.url, &home_page.links);
    let expanded = story
        .step(
            "expand frontier",
            "Four links, four conditional puts, one batch of messages. `utm_source` is gone.",
            async { Ok(crawler.expand(&children).await?) },
        )
        .await?;
    story.check(expanded.new == 4, "four URLs more")?;
    let parsed = story
        .step("mark parsed", "Under the fence, and if no shorter way to the page was found meanwhile: its links would then have more to go.", async {
            let parsed = crawler.mark_parsed(&run, &text_key, 4).await?;
            crawler.ack_parse(&message).await?;
            Ok(parsed)
        })
        .await?;
    story.check(parsed == Parsed::Done, "PARSED, and out of the watch lane")?;
    story
        .step("discover child URL", "A page that links back to it: this process knows that the row is there, and asks nobody.", async {
            let back = Found { url: canonical(ORIGIN)?, kind: Kind::Page, depth: 2, redirects: 0, found_on: None };
            Ok(crawler.discover(&back).await?)
        })
        .await?;
    let far = Found {
        url: canonical("http://site.test/far")?,
        kind: Kind::Page,
        depth: 3,
        redirects: 0,
        found_on: None,
    };
    story
        .step(
            "discover child URL",
            "Something is found at the end of a long way …",
            async { Ok(crawler.discover(&far).await?) },
        )
        .await?;
    let nearer = story
        .step("discover child URL", "… and then, by another page, closer. The row takes the shorter way; had it been parsed by then, it would be parsed again, since its links are now within reach.", async {
            Ok(crawler.discover(&Found { depth: 1, ..far.clone() }).await?)
        })
        .await?;
    story.check(
        nearer == Discovered::Shortened,
        "whatever the order, the way is the shortest",
    )?;
    Ok(())
}

/// A page that is forbidden, one that waits, and one that is gone.
async fn not_fetched(story: &mut Story, scene: &mut Scene) -> Result<()> {
    let Scene {
        crawler,
        cloud,
        site,
        others,
    } = scene;
    story.section(
        "What is not fetched, and what waits",
        "A page that robots.txt forbids fails without a request. A host that says \"later\" is left alone \
         for as long as it says, and the attempt is not counted.",
    );
    cloud.clock().advance(Duration::from_secs(1));
    let private = received(crawler, others, "/private/x").await?;
    let no = story
        .step(
            "mark URL fetching",
            "A forbidden page. Nobody waits for a turn to learn that.",
            async { Ok(crawler.claim_fetch(&private, "worker-1").await?) },
        )
        .await?;
    story.check(
        matches!(no, ClaimedFetch::Failed { .. }),
        "FAILED, with the reason",
    )?;
    story.check(
        site.hits("site.test/private/x") == 0,
        "the site's own log says that nobody asked",
    )?;
    let b = received(crawler, others, "/b").await?;
    let run = claimed(crawler, &b, "worker-1").await?;
    let answer = crawler.ask_host(&run).await??;
    let later = story
        .step("mark retrying/failed", "429 with Retry-After: 60. The host has been closed for a minute with the end of the turn; now the URL waits as well.", async {
            let at = cloud.now() + answer.retry_after_ms.unwrap_or_default();
            Ok(crawler.fetch_later(&run, "status 429", at).await?)
        })
        .await?;
    story.check(
        matches!(later, (Finish::Done, After::Retry { .. })),
        "RETRYING, with no attempt used up",
    )?;
    cloud.clock().advance(Duration::from_secs(60));
    let gone = received(crawler, others, "/gone").await?;
    let run = claimed(crawler, &gone, "worker-1").await?;
    let answer = crawler.ask_host(&run).await??;
    let given_up = story
        .step(
            "mark retrying/failed",
            "And a page that is not there: no use in trying again.",
            async {
                Ok(crawler
                    .give_up_fetch(&run, &format!("status {}", answer.status))
                    .await?)
            },
        )
        .await?;
    story.check(given_up == Finish::Done, "FAILED, with the reason")?;
    for done in [&private, &gone, &b] {
        crawler.ack_fetch(done).await?;
    }
    // What was found by a long way is seen to elsewhere.
    let far_message = Message {
        says: Some(UrlFrontierState {
            url_hash: canonical("http://site.test/far")?.hash(),
        }),
        receipt: String::new(),
    };
    cloud.clock().advance(Duration::from_secs(1));
    crawler.fetch(&far_message, "worker-1").await?;
    Ok(())
}

/// A worker dies, and another one takes over.
async fn a_death(story: &mut Story, scene: &mut Scene) -> Result<()> {
    let Scene {
        crawler,
        cloud,
        others,
        ..
    } = scene;
    story.section(
        "A worker dies",
        "The documents let only DISCOVERED and RETRYING be marked: who dies in FETCHING takes the URL along. \
         Here an expired lease can be taken, and its old holder can no longer write.",
    );
    cloud.clock().advance(Duration::from_secs(1));
    let a = received(crawler, others, "/a").await?;
    let dead = story
        .step("mark URL fetching", "Worker 1 begins …", async {
            claimed(crawler, &a, "worker-1").await
        })
        .await?;
    // /b is through with its second attempt in the meantime.
    cloud.clock().advance(Duration::from_secs(40));
    let b = Message {
        says: Some(UrlFrontierState {
            url_hash: canonical("http://site.test/b")?.hash(),
        }),
        receipt: String::new(),
    };
    crawler.fetch(&b, "worker-2").await?;
    crawler.receive_parse(5).await?.context("no message came")?;
    cloud.clock().advance(Duration::from_secs(20));
    let parsed = crawler
        .parse(&parse_message(crawler, "/b").await?, "parser-1")
        .await?;
    story.check(
        matches!(parsed, Worked::Parsed { .. }),
        "(another page was fetched and parsed meanwhile)",
    )?;
    cloud.clock().advance(Duration::from_secs(31));
    let swept = story
        .step("reclaim stalled work", "… and is not heard of again. Past the lease and some grace the row is overdue, and the sweeper sends another message. It finds lost messages the same way.", async {
            Ok(crawler.sweep_stalled(0..SHARDS).await)
        })
        .await?;
    story.check(swept.len() == 1, "one URL was stuck")?;
    let again = received(crawler, others, "/a").await?;
    let heir = story
        .step(
            "mark URL fetching",
            "Worker 2 takes the expired lease: fence 2.",
            async { claimed(crawler, &again, "worker-2").await },
        )
        .await?;
    let answer = crawler.ask_host(&heir).await??;
    let stored = story
        .step(
            "store raw HTML",
            "This page has the same bytes as /b, which is through by now: nothing is stored.",
            async {
                Ok(crawler
                    .store_raw(
                        &heir.url.url_hash,
                        &answer.content_type,
                        answer.body.clone(),
                    )
                    .await?)
            },
        )
        .await?;
    let twin = fetched(&answer, stored);
    let stale = story
        .step(
            "mark fetched",
            "Worker 1 was only slow. It comes back with fence 1, and the fence holds.",
            async { Ok(crawler.mark_fetched(&dead, &twin).await?) },
        )
        .await?;
    story.check(stale == Finish::Stale, "a stale worker changes nothing")?;
    let done = story
        .step("mark fetched", "Worker 2 is done.", async {
            Ok(crawler.mark_fetched(&heir, &twin).await?)
        })
        .await?;
    story.check(done == Finish::Done, "fetched once")?;
    cloud.clock().advance(Duration::from_secs(31));
    let swept = story
        .step(
            "reclaim stalled work",
            "And then it dies, before the parse message. That is found too.",
            async { Ok(crawler.sweep_stalled(0..SHARDS).await) },
        )
        .await?;
    story.check(swept.len() == 1, "FETCHED without parse work")?;
    let (message, run) = parsing(crawler, "parser-1").await?;
    let (twins, key) = story
        .step(
            "store parsed text",
            "The text of these bytes is there as well.",
            async { read_and_store(crawler, &run).await },
        )
        .await?;
    crawler
        .expand(&crawler.children(&run.url, &twins.links))
        .await?;
    crawler.mark_parsed(&run, &key, 3).await?;
    crawler.ack_parse(&message).await?;
    story
        .step(
            "reclaim stalled work",
            "Nothing is stuck any more.",
            async { Ok(crawler.sweep_stalled(0..SHARDS).await) },
        )
        .await?;
    Ok(())
}

/// The first page again.
async fn a_week_later(story: &mut Story, scene: &mut Scene) -> Result<()> {
    let Scene {
        crawler,
        cloud,
        others,
        ..
    } = scene;
    story.section(
        "A week later",
        "What was parsed can be fetched again, with the validators of the last time.",
    );
    let row = crawler
        .read_url(&canonical(ORIGIN)?.hash())
        .await?
        .context("no row")?;
    let home_at = row.fetched_at.unwrap_or_default();
    cloud.clock().advance(Duration::from_secs(7 * 86_400));
    let opened = story
        .step("recrawl", "Whatever was fetched up to the moment the home page was: the lane of what is parsed is in that order.", async {
            Ok(crawler.recrawl(0..SHARDS, home_at).await)
        })
        .await?;
    let opened = opened
        .iter()
        .filter(|(_, opened)| matches!(opened, Ok(true)));
    story.check(opened.count() == 1, "one page is opened again")?;
    story
        .step(
            "read robots.txt",
            "The rules were believed for a day, and are read again.",
            async { Ok(crawler.fetch_robots(ORIGIN, "worker-1").await?) },
        )
        .await?;
    cloud.clock().advance(Duration::from_secs(1));
    let message = received(crawler, others, "/").await?;
    let run = claimed(crawler, &message, "worker-1").await?;
    let answer = story
        .step("fetch page", "If-None-Match: \"v1\".", async {
            Ok(crawler.ask_host(&run).await??)
        })
        .await?;
    story.check(
        answer.status == 304 && answer.body.is_empty(),
        "not changed, and nothing was sent",
    )?;
    let all = crawler.all_urls().await?;
    let count = |status| all.iter().filter(|row| row.status == status).count();
    story.check(
        all.len() == 6 && count(Status::Parsed) == 2 && count(Status::Failed) == 3,
        "six URLs: two parsed, three failed with a reason, and the home page on its way again",
    )
}

/// The parse message of a page, as SQS would bring it again.
async fn parse_message(
    crawler: &Crawler,
    path: &str,
) -> Result<Message<crate::queue::UrlParseRunState>> {
    let url_hash = canonical(&format!("{ORIGIN}{path}"))?.hash();
    let row = crawler.read_url(&url_hash).await?.context("no row")?;
    Ok(Message {
        says: Some(crate::queue::UrlParseRunState {
            url_hash,
            blob_key: row.raw_blob_key.unwrap_or_default(),
        }),
        receipt: String::new(),
    })
}
