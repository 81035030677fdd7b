#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`], [`queue`].
//! The documents' use cases: [`add_seed`], [`discover`], [`claim_fetch`], [`artifacts`],
//! [`mark_fetched`], [`claim_parse`], [`mark_parsed`], [`expand`], [`sweep_stalled`], [`worker`].
//! Beyond the documents, each skippable: [`canonical`] (one page, one URL), [`politeness`] (a host's
//! turn), [`robots`] (RFC 9309), [`address_guard`] (where a crawler must not go), [`web`] (one request),
//! [`page`] (text and links), [`sitemap`], [`recrawl`], [`crawl`] (everything at once, from the command
//! line), [`report`], [`bench`], [`site`] (something to crawl). The story that shows it all:
//! [`walkthrough`].

pub mod add_seed;
pub mod address_guard;
pub mod artifacts;
pub mod bench;
pub mod canonical;
pub mod claim_fetch;
pub mod claim_parse;
pub mod crawl;
pub mod discover;
pub mod domain;
pub mod expand;
pub mod items;
pub mod mark_fetched;
pub mod mark_parsed;
pub mod page;
pub mod politeness;
pub mod queue;
pub mod recrawl;
pub mod report;
pub mod robots;
pub mod site;
pub mod sitemap;
pub mod sweep_stalled;
pub mod tables;
pub mod walkthrough;
pub mod web;
pub mod worker;

pub use address_guard::AddressGuard;
pub use claim_fetch::{ClaimedFetch, FetchRun};
pub use claim_parse::{ClaimedParse, ParseRun};
pub use discover::{Discovered, Found};
pub use mark_fetched::Finish;
pub use walkthrough::archetype;
pub use web::{Https, Web};
pub use worker::Worked;

use canonical::{Canonical, NoUrl};
use cloud::{Cloud, CloudError, Millis};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

/// How often a step that was overtaken is decided again. Each time, somebody else got on.
pub(crate) const ATTEMPTS: u32 = 100;

/// How far a crawl goes, and how gently.
#[derive(Debug, Clone)]
pub struct Rules {
    /// How many links away from a seed.
    pub max_depth: u32,
    /// How many pages of one host.
    pub pages_per_host: u32,
    /// How many redirects in a row.
    pub max_redirects: u32,
    /// How many bytes of a page.
    pub max_body: usize,
    /// Which kinds of content, by the beginning of their type.
    pub content_types: Vec<String>,
    /// Which hosts, with their ports if they have one; none means any.
    pub hosts: Option<BTreeSet<String>>,
    /// How long a host is left alone after each request, at least.
    pub delay_ms: Millis,
    /// The same after a 429 that does not say how long.
    pub busy_ms: Millis,
    /// How long a worker waits in place for a host's turn before it puts the message back.
    pub patience_ms: Millis,
    /// Whether the sitemaps that robots.txt names are read.
    pub sitemaps: bool,
    /// How many links of a page are put at once.
    pub puts_at_once: usize,
}

impl Default for Rules {
    fn default() -> Self {
        let types = [
            "text/html",
            "application/xhtml+xml",
            "text/plain",
            "application/xml",
            "text/xml",
        ];
        Self {
            max_depth: 3,
            pages_per_host: 10_000,
            max_redirects: 5,
            max_body: 2 * 1024 * 1024,
            content_types: types.map(str::to_owned).to_vec(),
            hosts: None,
            delay_ms: 1_000,
            busy_ms: 30_000,
            patience_ms: 0,
            sitemaps: true,
            puts_at_once: 16,
        }
    }
}

impl Rules {
    /// Whether a URL is one of the hosts to be crawled.
    pub fn reaches(&self, url: &Canonical) -> bool {
        let host = url.url().host_str().unwrap_or_default();
        let host = match url.url().port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_owned(),
        };
        self.hosts
            .as_ref()
            .is_none_or(|hosts| hosts.contains(&host))
    }

    /// Whether a kind of content is wanted.
    pub fn takes(&self, content_type: &str) -> bool {
        let kind = content_type.split(';').next().unwrap_or_default().trim();
        self.content_types.iter().any(|wanted| wanted == kind)
    }
}

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct Crawler {
    cloud: Cloud,
    queues: queue::Queues,
    web: Web,
    rules: Arc<Rules>,
    robots: robots::Parsed,
    known: Known,
}

impl Crawler {
    /// A crawler on this cloud. Tables, queues and bucket must be there: `archetype().create(&cloud)`.
    pub async fn connect(cloud: Cloud, web: Web, rules: Rules) -> Result<Self, CloudError> {
        let queues = queue::Queues::find(&cloud).await?;
        Ok(Self {
            cloud,
            queues,
            web,
            rules: Arc::new(rules),
            robots: robots::Parsed::default(),
            known: Known::default(),
        })
    }

    /// The same crawler on another view of its cloud: another clock, or beside the tap.
    pub fn on(&self, cloud: Cloud) -> Self {
        Self {
            cloud,
            ..self.clone()
        }
    }

    /// The same crawler with another client.
    pub fn asking(&self, web: Web) -> Self {
        Self {
            web,
            ..self.clone()
        }
    }

    /// The same crawler as another process would be: without what this one remembers.
    pub fn afresh(&self) -> Self {
        Self {
            robots: robots::Parsed::default(),
            known: Known::default(),
            ..self.clone()
        }
    }

    /// The same crawler by other rules.
    pub fn with_rules(&self, rules: Rules) -> Self {
        Self {
            rules: Arc::new(rules),
            ..self.afresh()
        }
    }

    /// The cloud it runs on.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// How far it goes.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    fn now(&self) -> Millis {
        self.cloud.now()
    }

    fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        self.cloud.dynamodb()
    }

    fn table(&self, name: &str) -> String {
        self.cloud.names().table(name)
    }
}

/// URLs that are known to have a row, with the shortest way that is known to stand there. Pages of a site
/// link to each other again and again; this saves asking each time. Nothing rests on it but calls: rows
/// are never deleted, and ways only get shorter.
#[derive(Clone, Default)]
pub(crate) struct Known(Arc<Mutex<HashMap<String, (u32, u32)>>>);

impl Known {
    /// Some tens of megabytes at most; then it begins anew.
    const MOST: usize = 200_000;

    fn has(&self, url_hash: &str, depth: u32, redirects: u32) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .get(url_hash)
            .is_some_and(|known| known.0 <= depth && known.1 <= redirects)
    }

    fn add(&self, url_hash: &str, depth: u32, redirects: u32) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= Self::MOST {
            known.clear();
        }
        let shortest = known
            .entry(url_hash.to_owned())
            .or_insert((depth, redirects));
        *shortest = (shortest.0.min(depth), shortest.1.min(redirects));
    }
}

/// Why a use case gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum CrawlerError {
    /// No address to crawl; nothing was written.
    #[error(transparent)]
    NoUrl(#[from] NoUrl),
    /// An address where a crawler must not go; nothing was written.
    #[error(transparent)]
    Forbidden(#[from] address_guard::Forbidden),
    /// The rules do not reach it; nothing was written.
    #[error("{0} is none of the hosts to be crawled")]
    OutOfScope(String),
    /// This build has no TLS; nothing was written.
    #[error("this build cannot ask for https: use `cargo run -p crawler --features https`")]
    NoHttps,
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again")]
    Contended,
    /// A fault below.
    #[error(transparent)]
    Fault(#[from] CloudError),
}
