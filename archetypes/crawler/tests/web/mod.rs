//! A crawler to try things on, a site for it, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

pub mod cast;

use chaos::World;
use cloud::{Cloud, Millis};
use crawler::canonical::canonical;
use crawler::domain::{DomainPolicyState, Status, UrlMetadataState};
use crawler::queue::{Message, UrlFrontierState, UrlParseRunState};
use crawler::site::{Reply, Site, page};
use crawler::tables::SHARDS;
use crawler::{Crawler, Https, Rules, Web, Worked};
use std::collections::BTreeSet;
use std::time::Duration;

/// Longer than any lease, grace and pause here: a round of life.
pub const ROUND: Duration = Duration::from_secs(130);

pub const SECOND: Millis = 1_000;
pub const MINUTE: Millis = 60_000;

/// A crawler with a cloud and a site of its own.
pub struct Town {
    pub crawler: Crawler,
    pub site: Site,
}

impl World for Town {
    fn cloud(&self) -> &Cloud {
        self.crawler.cloud()
    }
}

pub const HOSTS: [&str; 3] = ["site.test", "other.test", "third.test"];

/// Rules for tests: no pauses, unless they are what is tested.
pub fn rules() -> Rules {
    Rules {
        delay_ms: 0,
        ..Rules::default()
    }
}

pub async fn open() -> Town {
    open_with(rules()).await
}

pub async fn open_with(rules: Rules) -> Town {
    open_on(cloud::connect_alone_for_tests().await.unwrap(), rules).await
}

pub async fn open_on(cloud: Cloud, rules: Rules) -> Town {
    crawler::archetype().create(&cloud).await.unwrap();
    let site = Site::open().await.unwrap();
    let web = Web::new(&cloud, site.guard(&HOSTS), Https::None).unwrap();
    let crawler = Crawler::connect(cloud, web, rules).await.unwrap();
    Town { crawler, site }
}

pub fn hash(url: &str) -> String {
    canonical(url).unwrap().hash()
}

pub const HOME: &str = "http://site.test/";

/// A town with a home page that links to two others, in the frontier, and its message in hand.
pub async fn small() -> Town {
    let town = open().await;
    town.put_small();
    town.crawler.add_seed(HOME).await.unwrap();
    town
}

/// The same, and the host's rules are known already.
pub async fn small_known() -> Town {
    let town = small().await;
    town.crawler
        .fetch_robots("http://site.test", "setup")
        .await
        .unwrap();
    town
}

impl Town {
    pub fn put_small(&self) {
        self.site.put(
            "site.test/robots.txt",
            Reply::text("User-agent: *\nDisallow: /no\n"),
        );
        self.site
            .put("site.test/", page("Home", &["/a", "/b", "/no"]));
        self.site.put("site.test/a", page("A", &["/", "/b"]));
        self.site.put("site.test/b", page("B", &["/a"]));
        self.site.put("site.test/no", page("No", &["/"]));
    }

    pub fn now(&self) -> Millis {
        self.cloud().now()
    }

    pub fn advance(&self, ms: Millis) {
        self.cloud()
            .clock()
            .advance(Duration::from_millis(ms as u64));
    }

    /// The same crawler by a clock that is ahead.
    pub fn ahead(&self, ms: Millis) -> Crawler {
        let clock = cloud::Clock::manual(self.now() + ms);
        self.crawler.on(self.cloud().with_clock(clock))
    }

    pub async fn row(&self, url: &str) -> UrlMetadataState {
        let beside = self.crawler.on(self.cloud().beside_tap());
        let row = beside.read_url(&hash(url)).await.unwrap();
        row.unwrap_or_else(|| panic!("there is no row for {url}"))
    }

    pub async fn status(&self, url: &str) -> Status {
        self.row(url).await.status
    }

    pub async fn policy(&self, origin: &str) -> DomainPolicyState {
        let beside = self.crawler.on(self.cloud().beside_tap());
        beside.read_policy(origin).await.unwrap().unwrap()
    }

    /// How often a host was asked for anything but its robots.txt.
    pub fn log_of(&self, host: &str) -> usize {
        let log = self.site.log();
        let asked = log.iter().filter(|hit| hit.host == host);
        asked.filter(|hit| hit.path != "/robots.txt").count()
    }

    pub async fn receive_fetch(&self) -> Option<Message<UrlFrontierState>> {
        self.crawler.receive_frontier(0).await.unwrap()
    }

    pub async fn receive_parse(&self) -> Option<Message<UrlParseRunState>> {
        self.crawler.receive_parse(0).await.unwrap()
    }

    /// A message as if SQS had delivered it: it may do so at any time, and its receipt may be old.
    pub fn fetch_message(url: &str) -> Message<UrlFrontierState> {
        Message {
            says: Some(UrlFrontierState {
                url_hash: hash(url),
            }),
            receipt: "an old receipt".to_owned(),
        }
    }

    pub fn parse_message(url: &str) -> Message<UrlParseRunState> {
        Message {
            says: Some(UrlParseRunState {
                url_hash: hash(url),
                blob_key: String::new(),
            }),
            receipt: "an old receipt".to_owned(),
        }
    }

    pub async fn sweep(&self) -> Vec<String> {
        let swept = self.crawler.sweep_stalled(0..SHARDS).await;
        for (hash, outcome) in &swept {
            assert!(outcome.is_ok(), "{hash}: {outcome:?}");
        }
        swept.into_iter().map(|(hash, _)| hash).collect()
    }

    /// How many pages were opened again.
    pub async fn recrawl(&self, older_than: Millis) -> usize {
        let opened = self.crawler.recrawl(0..SHARDS, older_than).await;
        let opened = opened
            .into_iter()
            .map(|(what, opened)| opened.unwrap_or_else(|fault| panic!("{what}: {fault}")));
        opened.filter(|opened| *opened).count()
    }

    /// Works until both queues give nothing more. Every message is worked on twice.
    pub async fn work_all(&self, name: &str) -> usize {
        let mut count = 0;
        loop {
            let mut idle = true;
            while let Some(message) = self.receive_fetch().await {
                self.crawler.fetch(&message, name).await.unwrap();
                self.crawler.fetch(&message, name).await.unwrap();
                (idle, count) = (false, count + 1);
            }
            while let Some(message) = self.receive_parse().await {
                self.crawler.parse(&message, name).await.unwrap();
                self.crawler.parse(&message, name).await.unwrap();
                (idle, count) = (false, count + 1);
            }
            assert!(count < 5_000, "the queues never get empty");
            if idle {
                return count;
            }
        }
    }

    /// What life does, for so many rounds or until nothing is left to do: workers work, time passes,
    /// sweepers come by.
    pub async fn live(&self, rounds: usize) {
        for _ in 0..rounds {
            self.work_all("life").await;
            if self.is_at_rest().await {
                return;
            }
            self.cloud().clock().advance(ROUND);
            self.sweep().await;
        }
        self.work_all("life").await;
    }

    pub async fn is_at_rest(&self) -> bool {
        let beside = self.crawler.on(self.cloud().beside_tap());
        for shard in 0..SHARDS {
            let lane = format!("watch-{shard}");
            if !beside.lane(&lane, None, Some(1)).await.unwrap().is_empty() {
                return false;
            }
        }
        true
    }

    /// Every row there is, by what is in the index.
    pub async fn rows(&self) -> Vec<UrlMetadataState> {
        let beside = self.crawler.on(self.cloud().beside_tap());
        let mut hashes = Vec::new();
        for shard in 0..SHARDS {
            for lane in ["watch", "parsed", "failed"] {
                let lane = format!("{lane}-{shard}");
                hashes.extend(beside.lane(&lane, None, None).await.unwrap());
            }
        }
        beside.read_urls(&hashes).await.unwrap()
    }

    /// The keys of all objects.
    pub async fn blobs(&self) -> Vec<String> {
        let beside = self.cloud().beside_tap();
        let bucket = beside.names().bucket("artifacts");
        let listed = beside
            .s3()
            .list_objects_v2()
            .bucket(bucket)
            .send()
            .await
            .unwrap();
        listed
            .contents()
            .iter()
            .filter_map(|object| object.key.clone())
            .collect()
    }

    /// Everything that must hold, however the story went.
    pub async fn invariants(&self) -> Result<(), String> {
        let ensure = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };
        let rows = self.rows().await;
        let blobs: BTreeSet<String> = self.blobs().await.into_iter().collect();
        let urls: BTreeSet<_> = rows.iter().map(|row| &row.url).collect();
        ensure(urls.len() == rows.len(), "a URL has two rows".to_owned())?;
        for row in &rows {
            let url = &row.url;
            let lane = match row.status {
                Status::Parsed => "parsed",
                Status::Failed => "failed",
                _ => "watch",
            };
            ensure(
                row.lane.starts_with(lane),
                format!("{url} is {:?} in {}", row.status, row.lane),
            )?;
            if matches!(
                row.status,
                Status::Fetched | Status::Parsing | Status::Parsed
            ) {
                let raw = row.raw_blob_key.clone().unwrap_or_default();
                ensure(
                    blobs.contains(&raw),
                    format!("{url} is {:?}, and its bytes are not there", row.status),
                )?;
            }
            if row.status == Status::Parsed {
                let text = row.text_blob_key.clone().unwrap_or_default();
                ensure(
                    blobs.contains(&text),
                    format!("{url} is PARSED, and its text is not there"),
                )?;
            }
            if row.status == Status::Failed {
                ensure(
                    row.reason.is_some(),
                    format!("{url} failed without a reason"),
                )?;
            }
        }
        for hit in self.site.log() {
            ensure(
                !hit.path.starts_with("/no"),
                format!("{} was asked for", hit.path),
            )?;
        }
        Ok(())
    }

    /// The small site is crawled to its end, and nothing is stored twice.
    pub async fn small_is_crawled(&self) -> Result<(), String> {
        self.invariants().await?;
        for (path, status) in [
            ("", Status::Parsed),
            ("a", Status::Parsed),
            ("b", Status::Parsed),
            ("no", Status::Failed),
        ] {
            let url = format!("{HOME}{path}");
            let beside = self.crawler.on(self.cloud().beside_tap());
            let Some(row) = beside.read_url(&hash(&url)).await.unwrap() else {
                return Err(format!("{url} was never discovered"));
            };
            if row.status != status {
                return Err(format!("{url} is {:?} for ever", row.status));
            }
        }
        let (rows, blobs) = (self.rows().await.len(), self.blobs().await);
        // Three pages with bytes and text, and the robots.txt.
        if (rows, blobs.len()) != (4, 7) {
            return Err(format!("{rows} rows, and objects {blobs:?}"));
        }
        Ok(())
    }
}

/// A word for what a worker did.
pub fn word(worked: &Worked) -> String {
    match worked {
        Worked::Parsed { .. } => "parsed".to_owned(),
        Worked::Retrying { .. } => "retrying".to_owned(),
        Worked::TooEarly { .. } => "too early".to_owned(),
        Worked::Failed { reason } => reason.clone(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// `one fetched, other held`.
pub fn label(told: &[(&'static str, String)]) -> String {
    let words: Vec<_> = told
        .iter()
        .map(|(who, did)| format!("{who} {did}"))
        .collect();
    words.join(", ")
}
