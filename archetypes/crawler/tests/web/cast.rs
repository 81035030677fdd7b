//! Who acts in the stories of the interleavings, and again where a guard is taken away.
#![allow(dead_code, clippy::unwrap_used)]

use super::*;
use chaos::Interleave;
use crawler::claim_fetch::{ClaimedFetch, FetchRun};
use crawler::claim_parse::{ClaimedParse, ParseRun};
use crawler::discover::{Discovered, Found};
use crawler::domain::Kind;
use crawler::mark_fetched::Fetched;
use crawler::robots::Asked;
use std::sync::Mutex;

/// A town, and what somebody in it has in hand.
pub struct Desk {
    pub town: Town,
    pub fetch_run: Option<FetchRun>,
    pub fetched: Option<Fetched>,
    pub parse_run: Option<ParseRun>,
    /// The same crawler past every lease.
    pub late: Crawler,
    /// Claims that were made, by their fence.
    pub fences: Mutex<Vec<u64>>,
}

impl World for Desk {
    fn cloud(&self) -> &Cloud {
        self.town.cloud()
    }
}

pub type Desks = Interleave<Desk, String>;

pub fn desk_of(town: Town) -> Desk {
    let late = town.ahead(2 * MINUTE).afresh();
    Desk {
        town,
        fetch_run: None,
        fetched: None,
        parse_run: None,
        late,
        fences: Mutex::default(),
    }
}

/// The home page is in the frontier, and its host's rules are known.
pub async fn ready() -> Desk {
    desk_of(small_known().await)
}

impl Desk {
    pub async fn claim_fetch(&self, crawler: &Crawler, url: &str, owner: &str) -> ClaimedFetch {
        let message = Town::fetch_message(url);
        crawler.claim_fetch(&message, owner).await.unwrap()
    }

    pub async fn claim_parse(&self, crawler: &Crawler, url: &str, owner: &str) -> ClaimedParse {
        let message = Town::parse_message(url);
        crawler.claim_parse(&message, owner).await.unwrap()
    }

    /// Claims the home page's fetch, which must work.
    pub async fn hold_fetch(mut self, owner: &str) -> Self {
        match self.claim_fetch(&self.town.crawler, HOME, owner).await {
            ClaimedFetch::Run(run) => self.fetch_run = Some(*run),
            other => panic!("{other:?}"),
        }
        self
    }

    /// The same, and its bytes are stored: only the mark is missing.
    pub async fn hold_bytes(self, owner: &str) -> Self {
        let mut desk = self.hold_fetch(owner).await;
        let run = desk.fetch_run.clone().unwrap();
        let crawler = &desk.town.crawler;
        let answer = crawler.ask_host(&run).await.unwrap().unwrap();
        let stored = crawler.store_raw(&run.url.url_hash, &answer.content_type, answer.body);
        let (content_hash, raw_blob_key) = stored.await.unwrap();
        desk.fetched = Some(Fetched {
            http_status: answer.status,
            content_hash,
            raw_blob_key,
            content_type: answer.content_type,
            etag: None,
            last_modified: None,
            redirect_to: None,
        });
        desk
    }

    /// Fetches the home page, and claims its parse.
    pub async fn hold_parse(mut self, owner: &str) -> Self {
        let message = Town::fetch_message(HOME);
        assert_eq!(
            self.town.crawler.fetch(&message, owner).await.unwrap(),
            Worked::Fetched
        );
        match self.claim_parse(&self.town.crawler, HOME, owner).await {
            ClaimedParse::Run(run) => self.parse_run = Some(*run),
            other => panic!("{other:?}"),
        }
        self
    }

    pub fn claimed_fence(&self, fence: u64) {
        self.fences.lock().unwrap().push(fence);
    }
}

pub fn told_fetch(claimed: &ClaimedFetch) -> String {
    match claimed {
        ClaimedFetch::Run(_) => "has it".to_owned(),
        ClaimedFetch::Echo => "echo".to_owned(),
        ClaimedFetch::Held { .. } => "held".to_owned(),
        ClaimedFetch::TooEarly { .. } | ClaimedFetch::Busy { .. } => "too early".to_owned(),
        ClaimedFetch::NeedsRobots { .. } => "needs robots".to_owned(),
        ClaimedFetch::Failed { reason } => reason.clone(),
    }
}

/// After each order the invariants hold, the site is crawled to its end, and no two claims had one fence.
pub fn end_well(actors: Desks) -> Desks {
    actors.check(|desk, told| async move {
        let mut fences = desk.fences.lock().unwrap().clone();
        fences.sort_unstable();
        if fences.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(format!("two claims have one fence: {fences:?}"));
        }
        desk.town.invariants().await?;
        desk.town.live(3).await;
        desk.town.small_is_crawled().await?;
        Ok(label(&told))
    })
}

/// Claims the fetch of a page.
pub fn claimer(actors: Desks, name: &'static str, url: &'static str) -> Desks {
    actors.actor(name, move |desk| async move {
        let claimed = desk.claim_fetch(&desk.town.crawler, url, name).await;
        if let ClaimedFetch::Run(run) = &claimed {
            desk.claimed_fence(run.url.fence);
        }
        told_fetch(&claimed)
    })
}

/// The same, and asks the host, if it is allowed to.
pub fn asker(actors: Desks, name: &'static str, url: &'static str) -> Desks {
    actors.actor(name, move |desk| async move {
        let claimed = desk.claim_fetch(&desk.town.crawler, url, name).await;
        if let ClaimedFetch::Run(run) = &claimed {
            desk.town.crawler.ask_host(run).await.unwrap().unwrap();
            return "asked".to_owned();
        }
        told_fetch(&claimed)
    })
}

/// Whoever had the fetch all the time marks it fetched.
pub fn finisher(actors: Desks) -> Desks {
    actors.actor("first", |desk| async move {
        let run = desk.fetch_run.as_ref().unwrap();
        let fetched = desk.fetched.as_ref().unwrap();
        let marked = desk.town.crawler.mark_fetched(run, fetched).await.unwrap();
        format!("{marked:?}").to_lowercase()
    })
}

/// To this one, whose clock is ahead, the lease has expired.
pub fn taker(actors: Desks) -> Desks {
    actors.actor("second", |desk| async move {
        let claimed = desk.claim_fetch(&desk.late, HOME, "second").await;
        if let ClaimedFetch::Run(run) = &claimed {
            desk.claimed_fence(run.url.fence);
        }
        told_fetch(&claimed)
    })
}

pub fn sweeper(actors: Desks) -> Desks {
    actors.actor("sweeper", |desk| async move {
        let swept = desk.late.sweep(&hash(HOME)).await.unwrap();
        format!("{swept:?}").to_lowercase()
    })
}

/// Another sweeper, a moment later.
pub fn other_sweeper(actors: Desks) -> Desks {
    actors.actor("other", |desk| async move {
        let later = desk.town.ahead(2 * MINUTE + 1);
        let swept = later.sweep(&hash(HOME)).await.unwrap();
        format!("{swept:?}").to_lowercase()
    })
}

/// Comes across a page by a way of this length.
pub fn discoverer(
    actors: Desks,
    name: &'static str,
    url: &'static str,
    depth: u32,
    redirects: u32,
) -> Desks {
    actors.actor(name, move |desk| async move {
        let found = Found {
            url: canonical(url).unwrap(),
            kind: Kind::Page,
            depth,
            redirects,
            found_on: Some(name.to_owned()),
        };
        let crawler = desk.town.crawler.afresh();
        match crawler.discover(&found).await.unwrap() {
            Discovered::New => "new".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    })
}

/// Reads a host's robots.txt.
pub fn robots_reader(actors: Desks, name: &'static str) -> Desks {
    actors.actor(name, move |desk| async move {
        let asked = desk
            .town
            .crawler
            .fetch_robots("http://site.test", name)
            .await
            .unwrap();
        match asked {
            Asked::Stored => "stored".to_owned(),
            Asked::Later { .. } | Asked::Busy { .. } => "later".to_owned(),
        }
    })
}

/// Two pages of one host, both in the frontier; its rules are known, and it wants to be left alone for a
/// second after each request.
pub async fn two_of_a_host(rules: Rules) -> Desk {
    let town = open_with(rules).await;
    town.put_small();
    for path in ["a", "b"] {
        town.crawler
            .add_seed(&format!("{HOME}{path}"))
            .await
            .unwrap();
    }
    town.crawler
        .fetch_robots("http://site.test", "setup")
        .await
        .unwrap();
    town.advance(SECOND);
    desk_of(town)
}

pub const A: &str = "http://site.test/a";
pub const B: &str = "http://site.test/b";

/// How often pages were asked for, without the robots.txt.
pub fn pages_asked(town: &Town) -> usize {
    town.site
        .log()
        .iter()
        .filter(|hit| hit.path != "/robots.txt")
        .count()
}

/// With the clock standing still, a host that is to be left alone is asked once.
pub fn asked_once(actors: Desks) -> Desks {
    actors.check(|desk, told| async move {
        match pages_asked(&desk.town) {
            1 => Ok(label(&told)),
            times => Err(format!("the host was asked {times} times at one moment")),
        }
    })
}

/// `deep` is at the end of the reach, so that its link to `leaf` is not followed; it has been fetched.
pub async fn at_the_edge() -> Desk {
    let town = open_with(Rules {
        max_depth: 3,
        ..rules()
    })
    .await;
    town.site.put("site.test/deep", page("Deep", &["/leaf"]));
    town.site.put("site.test/leaf", page("Leaf", &["/deep"]));
    let deep = Found {
        url: canonical(DEEP).unwrap(),
        kind: Kind::Page,
        depth: 3,
        redirects: 0,
        found_on: None,
    };
    town.crawler.discover(&deep).await.unwrap();
    let message = Town::fetch_message(DEEP);
    assert_eq!(
        town.crawler.fetch(&message, "setup").await.unwrap(),
        Worked::Fetched
    );
    desk_of(town)
}

pub const DEEP: &str = "http://site.test/deep";
pub const LEAF: &str = "http://site.test/leaf";

/// Parses `deep`.
pub fn deep_parser(actors: Desks) -> Desks {
    actors.actor("parser", |desk| async move {
        let message = Town::parse_message(DEEP);
        word(
            &desk
                .town
                .crawler
                .afresh()
                .parse(&message, "parser")
                .await
                .unwrap(),
        )
    })
}

/// A shorter way to `deep` was found, so `leaf` is within reach.
pub fn leaf_is_crawled(actors: Desks) -> Desks {
    actors.check(|desk, told| async move {
        desk.town.live(3).await;
        desk.town.invariants().await?;
        let beside = desk.town.crawler.on(desk.town.cloud().beside_tap());
        match beside.read_url(&hash(LEAF)).await.unwrap() {
            Some(leaf) if leaf.status == Status::Parsed => Ok(label(&told)),
            Some(leaf) => Err(format!("the leaf is {:?}", leaf.status)),
            None => Err("the leaf is within reach, and nobody knows it".to_owned()),
        }
    })
}

/// A third attempt that was taken for dead.
pub async fn third_attempt() -> Desk {
    let desk = ready().await;
    let rows = desk.town.cloud().beside_tap();
    rows.dynamodb()
        .update_item()
        .table_name(rows.names().table("url_metadata"))
        .key("url_hash", cloud::item::s(hash(HOME)))
        .update_expression("SET fetch_attempts = :two")
        .expression_attribute_values(":two", cloud::item::n(2))
        .send()
        .await
        .unwrap();
    desk.hold_bytes("first").await
}

/// Who stored the content of `two_who_store_one_content_store_it_once`, which is there once, with its text.
pub async fn stored_once(town: &Town) -> Result<String, String> {
    let hash = crawler::artifacts::content_hash("text/html", b"<p>same");
    let beside = town.crawler.on(town.cloud().beside_tap());
    let artifact = beside.read_artifact(&hash).await.unwrap();
    let artifact = artifact.ok_or("there is no row")?;
    if artifact.text_blob_key.is_none() {
        return Err("the row has lost its text".to_owned());
    }
    let blobs = town.blobs().await;
    match blobs.iter().filter(|key| key.starts_with(&hash)).count() {
        2 => Ok(format!("by {}", artifact.first_url_hash)),
        _ => Err(format!("{blobs:?}")),
    }
}

/// Two have the same bytes; one of them is through with the text as well.
pub fn two_storers() -> Desks {
    let actors = Interleave::of(ready).actor("one", |desk: std::sync::Arc<Desk>| async move {
        let stored = desk
            .town
            .crawler
            .store_raw("one", "text/html", b"<p>same".to_vec());
        stored.await.unwrap().0
    });
    let actors = actors.actor("other", |desk| async move {
        let crawler = &desk.town.crawler;
        let stored = crawler
            .store_raw("other", "text/html", b"<p>same".to_vec())
            .await;
        let (hash, _) = stored.unwrap();
        crawler.store_text(&hash, b"{}".to_vec()).await.unwrap()
    });
    actors.check(|desk, _| async move { stored_once(&desk.town).await })
}

/// Two open a page again that was parsed, a millisecond apart.
pub fn recrawlers() -> Desks {
    let parsed = || async {
        let desk = ready().await;
        desk.town.live(1).await;
        desk
    };
    let recrawler = |actors: Desks, name: &'static str, skew| {
        actors.actor(name, move |desk| async move {
            let crawler = desk.town.ahead(skew);
            let opened = crawler.reopen(&hash(HOME), desk.town.now()).await.unwrap();
            opened.to_string()
        })
    };
    let actors = recrawler(recrawler(Interleave::of(parsed), "one", 0), "other", 1);
    actors.check(|desk, told| async move {
        let mut messages = 0;
        while desk.town.receive_fetch().await.is_some() {
            messages += 1;
        }
        match messages {
            1 => Ok(label(&told)),
            _ => Err(format!("{messages} messages")),
        }
    })
}
