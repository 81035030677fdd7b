//! Everything at once: fetchers, parsers and a sweeper in one process, until nothing is left to do; and
//! the `crawl` command.

use crate::domain::{Status, UrlMetadataState};
use crate::page;
use crate::queue::{Message, UrlFrontierState, UrlParseRunState};
use crate::robots::aside;
use crate::site::{Site, generated};
use crate::tables::SHARDS;
use crate::worker::Worked;
use crate::{AddressGuard, Crawler, Https, Rules, Web};
use anyhow::{Context, Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::{Backend, Cloud, CloudError, Millis};
use futures::{StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// How much runs at once, and how often somebody looks.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// So many requests at once, of different hosts.
    pub fetchers: usize,
    /// So many pages parsed at once.
    pub parsers: usize,
    /// How often a sweeper comes by.
    pub sweep_every: Duration,
    /// How often somebody looks whether all is done.
    pub look_every: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fetchers: 8,
            parsers: 2,
            sweep_every: Duration::from_secs(5),
            look_every: Duration::from_millis(200),
        }
    }
}

/// What has happened so far, in this process.
#[derive(Debug, Default)]
pub struct Counts {
    /// Pages fetched.
    pub fetched: AtomicUsize,
    /// Pages parsed.
    pub parsed: AtomicUsize,
    /// URLs given up.
    pub failed: AtomicUsize,
    /// URLs found, with the seeds.
    pub found: AtomicUsize,
}

impl Counts {
    fn count(&self, worked: &Worked) {
        let add = |counter: &AtomicUsize, n| counter.fetch_add(n, Ordering::Relaxed);
        match worked {
            Worked::Fetched => add(&self.fetched, 1),
            Worked::Parsed { new } => {
                add(&self.found, *new as usize);
                add(&self.parsed, 1)
            }
            Worked::Failed { .. } => add(&self.failed, 1),
            _ => 0,
        };
    }

    fn get(counter: &AtomicUsize) -> usize {
        counter.load(Ordering::Relaxed)
    }
}

/// How long work in hand may take to end when all is to stop. The command line ends a process one second
/// after Ctrl-C.
const DRAIN: Duration = Duration::from_millis(500);

/// Runs until nothing is left to do, or `stop` ends. What is in hand then ends, if it ends soon. True if
/// nothing is left.
pub async fn run_until(
    crawler: &Crawler,
    settings: Settings,
    counts: &Arc<Counts>,
    stop: impl Future<Output = ()>,
) -> Result<bool, CloudError> {
    let (stopping, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    let roles = std::iter::repeat_n(Role::Fetcher, settings.fetchers)
        .chain(std::iter::repeat_n(Role::Parser, settings.parsers));
    for role in roles {
        let (crawler, counts, stopped) = (crawler.clone(), Arc::clone(counts), stopped.clone());
        workers.spawn(async move { work_until(&crawler, role, &counts, stopped).await });
    }
    let (sweeping, swept) = (crawler.clone(), stopped.clone());
    workers.spawn(async move { sweep_until(&sweeping, settings.sweep_every, swept).await });
    let done = tokio::select! {
        () = nothing_left(crawler, settings.look_every) => true,
        () = stop => false,
    };
    stopping.send_replace(true);
    let drained = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(DRAIN, drained).await.is_err() {
        // Whoever waits for a slow host dies here, as anywhere: the leases expire.
        workers.shutdown().await;
    }
    Ok(done)
}

#[derive(Clone, Copy)]
enum Role {
    Fetcher,
    Parser,
}

enum Received {
    ToFetch(Message<UrlFrontierState>),
    ToParse(Message<UrlParseRunState>),
    Nothing,
}

async fn work_until(
    crawler: &Crawler,
    role: Role,
    counts: &Counts,
    mut stop: watch::Receiver<bool>,
) {
    let owner = crawler.cloud().ids().next("worker");
    let receive = async || {
        Ok::<_, CloudError>(match role {
            Role::Fetcher => match crawler.receive_frontier(1).await? {
                Some(message) => Received::ToFetch(message),
                None => Received::Nothing,
            },
            Role::Parser => match crawler.receive_parse(1).await? {
                Some(message) => Received::ToParse(message),
                None => Received::Nothing,
            },
        })
    };
    loop {
        // A message that arrives in the same moment is not lost: it is back when it is visible.
        let received = tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => return,
            received = receive() => received,
        };
        let worked = match received {
            Ok(Received::ToFetch(message)) => crawler.fetch(&message, &owner).await,
            Ok(Received::ToParse(message)) => crawler.parse(&message, &owner).await,
            Ok(Received::Nothing) => continue,
            Err(fault) => Err(fault.into()),
        };
        match worked {
            Ok(worked) => counts.count(&worked),
            Err(error) => {
                // It is said and tried again: nothing is lost by it.
                eprintln!("working: {error}");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }
    }
}

async fn sweep_until(crawler: &Crawler, every: Duration, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = tokio::time::sleep(every) => {}
        }
        for (what, outcome) in crawler.sweep_stalled(0..SHARDS).await {
            if let Err(error) = outcome {
                eprintln!("sweeping {what}: {error}");
            }
        }
    }
}

/// How long the watch lanes must stay empty where an index lags behind its table.
const INDEX_LAG: Duration = Duration::from_secs(5);

/// Ends when the watch lanes are empty, and stay so. A page leaves them only after its links are in them;
/// but this is an index, and it may show the one before the other. A look that fails says nothing.
async fn nothing_left(crawler: &Crawler, every: Duration) {
    let long_enough = match crawler.cloud().backend() {
        Backend::Embedded => every,
        Backend::Docker | Backend::Aws => INDEX_LAG,
    };
    let mut empty_since: Option<Instant> = None;
    loop {
        tokio::time::sleep(every).await;
        empty_since = match crawler.is_finished().await {
            Ok(true) => Some(empty_since.unwrap_or_else(Instant::now)),
            Ok(false) => None,
            Err(fault) => {
                eprintln!("looking: {fault}");
                None
            }
        };
        // The first look is not enough, however long it took.
        if empty_since.is_some_and(|since| since.elapsed() >= long_enough) {
            return;
        }
    }
}

impl Crawler {
    /// Whether nothing is left to do, as far as the index shows.
    pub async fn is_finished(&self) -> Result<bool, CloudError> {
        for shard in 0..SHARDS {
            if !self
                .lane(&format!("watch-{shard}"), None, Some(1))
                .await?
                .is_empty()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Every URL there is, as far as the index shows, by its URL.
    pub async fn all_urls(&self) -> Result<Vec<UrlMetadataState>, CloudError> {
        let mut hashes = BTreeSet::new();
        for shard in 0..SHARDS {
            for lane in ["watch", "parsed", "failed"] {
                hashes.extend(self.lane(&format!("{lane}-{shard}"), None, None).await?);
            }
        }
        let hashes: Vec<_> = hashes.into_iter().collect();
        let mut rows = self.read_urls(&hashes).await?;
        rows.sort_by(|one, other| one.url.cmp(&other.url));
        Ok(rows)
    }
}

/// What was crawled, as `crawl --out` writes it and `report` reads it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Crawled {
    /// Where it began.
    pub seed: String,
    /// Whether nothing was left to do.
    pub finished: bool,
    /// How long it took.
    pub seconds: f64,
    /// Every URL.
    pub urls: Vec<CrawledUrl>,
}

/// One URL of a crawl.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CrawledUrl {
    /// Which.
    pub url: String,
    /// What became of it.
    pub status: Status,
    /// How many links from the seed.
    pub depth: u32,
    /// Why it failed, or is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its title.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// The URL it was found on first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_on: Option<String>,
    /// Where it leads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
    /// Its bytes and its text, beside this file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

/// Collects what was crawled; and writes it, if there is somewhere to write it.
pub async fn collect(crawler: &Crawler, out: Option<&Path>) -> Result<Vec<CrawledUrl>> {
    let rows = crawler.all_urls().await?;
    let names: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row.url_hash.clone(), row.url.clone()))
        .collect();
    if let Some(out) = out {
        std::fs::create_dir_all(out)
            .with_context(|| format!("cannot write to {}", out.display()))?;
    }
    let urls: Vec<_> = rows
        .into_iter()
        .map(|row| collect_one(crawler, &names, row, out))
        .collect();
    futures::stream::iter(urls)
        .buffered(COLLECTED_AT_ONCE)
        .try_collect()
        .await
}

/// How many pages are read again at once.
const COLLECTED_AT_ONCE: usize = 16;

async fn collect_one(
    crawler: &Crawler,
    names: &BTreeMap<String, String>,
    row: UrlMetadataState,
    out: Option<&Path>,
) -> Result<CrawledUrl> {
    let found_on = row.found_on.as_ref().and_then(|hash| names.get(hash));
    let mut crawled = CrawledUrl {
        url: row.url.clone(),
        status: row.status,
        depth: row.depth,
        reason: row.reason.clone().filter(|_| row.status != Status::Parsed),
        title: String::new(),
        found_on: found_on.cloned(),
        links: Vec::new(),
        files: Vec::new(),
    };
    let Some(key) = row.raw_blob_key.clone() else {
        return Ok(crawled);
    };
    if row.status != Status::Parsed {
        return Ok(crawled);
    }
    let Some(body) = crawler.read_blob_without_lease(&key).await? else {
        return Ok(crawled);
    };
    let (hash, redirects) = (row.url_hash.clone(), row.redirect_to.is_some());
    let (page, body) = aside(move || (page::read(&row, &body), body)).await?;
    crawled.title = page.text.title;
    crawled.links = page.links.iter().map(|(url, _)| url.to_string()).collect();
    if let Some(out) = out.filter(|_| !redirects) {
        let files = [format!("{hash}.html"), format!("{hash}.txt")];
        std::fs::write(out.join(&files[0]), &body)?;
        std::fs::write(out.join(&files[1]), &page.text.text)?;
        crawled.files = files.to_vec();
    }
    Ok(crawled)
}

/// Opens what was fetched before then. What fails is tried again: a recrawl has no sweeper behind it.
async fn open_again(crawler: &Crawler, before: Millis) -> Result<()> {
    let mut tries = 1;
    loop {
        let opened = crawler.recrawl(0..SHARDS, before).await;
        let mut failed = opened
            .into_iter()
            .filter_map(|(what, opened)| Some((what, opened.err()?)));
        match failed.next() {
            None => return Ok(()),
            Some((what, fault)) if tries == 3 => {
                return Err(fault).with_context(|| format!("{what} was not fetched again"));
            }
            Some(_) => tokio::time::sleep(Duration::from_secs(1)).await,
        }
        tries += 1;
    }
}

/// SQS counts in seconds, so a worker waits in place for less. With more, a host with a long pause would have all the
/// workers of the others wait for it.
pub(crate) const PATIENCE_MS: Millis = 2_000;

/// The `crawl` command.
pub const CRAWL: walkthrough::Command = walkthrough::Command {
    name: "crawl",
    about: "Crawl a site: --depth N links away from URL, into --out DIR",
    args: crawl_args,
    run: |cloud, args| Box::pin(crawl(cloud, args)),
};

fn crawl_args(command: Command) -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(value_parser!(u32))
            .default_value(default)
            .help(help)
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    command
        .arg(
            Arg::new("url")
                .value_name("URL")
                .required(true)
                .help("Where to begin"),
        )
        .arg(number("depth", "2", "How many links away from URL"))
        .arg(
            Arg::new("out")
                .long("out")
                .value_name("DIR")
                .value_parser(value_parser!(PathBuf))
                .help("Write pages, texts and crawl.json here"),
        )
        .arg(number(
            "pages",
            "1000",
            "How many pages of one host at most",
        ))
        .arg(number(
            "delay",
            "1000",
            "How long to leave a host alone after each request, in ms",
        ))
        .arg(number(
            "workers",
            "8",
            "How many requests at once, of different hosts",
        ))
        .arg(flag("any-host", "Follow links to other hosts too"))
        .arg(flag(
            "no-sitemaps",
            "Do not read the sitemaps that robots.txt names",
        ))
        .arg(
            Arg::new("again-after")
                .long("again-after")
                .value_name("SECONDS")
                .value_parser(value_parser!(u32))
                .help("With --data: fetch again what was fetched longer ago, if it has changed"),
        )
        .arg(
            Arg::new("allow")
                .long("allow")
                .value_name("ADDRESS")
                .action(ArgAction::Append)
                .value_parser(value_parser!(SocketAddr))
                .help(
                    "Let this address be reached, 127.0.0.1:8080, though it is not on the internet",
                ),
        )
        .arg(flag(
            "demo",
            "Serve a site of 40 pages as http://site.test/ while crawling",
        ))
        .arg(flag("json", "Print JSON"))
}

/// Whether a bar would be seen.
pub(crate) fn bar(json: bool, template: &str) -> Result<ProgressBar> {
    let bar = ProgressBar::new_spinner();
    if json || !std::io::stderr().is_terminal() {
        bar.set_draw_target(ProgressDrawTarget::hidden());
    }
    bar.set_style(ProgressStyle::with_template(template)?);
    bar.enable_steady_tick(Duration::from_millis(100));
    Ok(bar)
}

async fn crawl(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let number = |name| args.get_one::<u32>(name).copied().unwrap_or(1);
    let seed = args.get_one::<String>("url").cloned().unwrap_or_default();
    let url = crate::canonical::canonical(&seed)?;
    let (guard, _site) = if args.get_flag("demo") {
        let site = Site::open().await?;
        site.put_generated("site.test", &generated(40));
        (site.guard(&["site.test"]), Some(site))
    } else {
        let allowed = args.get_many::<SocketAddr>("allow").into_iter().flatten();
        let allowed = allowed.map(|address| (address.ip().to_string(), *address));
        (AddressGuard::allowing(allowed), None)
    };
    let host = url.url().host_str().unwrap_or_default();
    let host = match url.url().port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let rules = Rules {
        max_depth: number("depth"),
        pages_per_host: number("pages"),
        delay_ms: Millis::from(number("delay")),
        hosts: (!args.get_flag("any-host")).then(|| BTreeSet::from([host])),
        sitemaps: !args.get_flag("no-sitemaps"),
        patience_ms: PATIENCE_MS,
        ..Rules::default()
    };
    let web = Web::new(&cloud, guard, Https::MachineRoots)?;
    let crawler = Crawler::connect(cloud.clone(), web, rules).await?;
    crawler.add_seed(url.as_str()).await?;
    let opened = match args.get_one::<u32>("again-after") {
        Some(seconds) => {
            let before = cloud.now() - Millis::from(*seconds) * 1_000;
            open_again(&crawler, before).await
        }
        None => Ok(()),
    };
    let counts = Arc::new(Counts::default());
    counts.found.store(1, Ordering::Relaxed);
    let settings = Settings {
        fetchers: number("workers").clamp(1, 256) as usize,
        ..Settings::default()
    };
    let json = args.get_flag("json");
    let bar = bar(json, "{spinner} {msg}, {elapsed}")?;
    let (shown, seen) = (bar.clone(), Arc::clone(&counts));
    let telling = tokio::spawn(async move {
        loop {
            shown.set_message(told(&seen));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let begun = Instant::now();
    let interrupted = async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let finished = run_until(&crawler, settings, &counts, interrupted).await;
    telling.abort();
    bar.finish_and_clear();
    let out = args.get_one::<PathBuf>("out");
    let crawled = Crawled {
        seed: url.as_str().to_owned(),
        finished: finished?,
        seconds: begun.elapsed().as_secs_f64(),
        urls: collect(&crawler, out.map(PathBuf::as_path)).await?,
    };
    if let Some(out) = out {
        let text = serde_json::to_string_pretty(&crawled)?;
        std::fs::write(out.join("crawl.json"), text)?;
    }
    if json {
        println!("{}", serde_json::to_string_pretty(&crawled)?);
    } else {
        print!("{}", summary(&crawled));
        if let Some(out) = out {
            println!("written to {}", out.display());
        }
    }
    // What could be opened is crawled all the same.
    opened?;
    if !crawled.finished {
        bail!("interrupted; with --data DIR, the same command goes on where this one stopped");
    }
    Ok(())
}

fn told(counts: &Counts) -> String {
    let get = Counts::get;
    format!(
        "{} found, {} fetched, {} parsed, {} failed",
        get(&counts.found),
        get(&counts.fetched),
        get(&counts.parsed),
        get(&counts.failed)
    )
}

/// What became of a crawl, in words.
pub fn summary(crawled: &Crawled) -> String {
    let count = |status| {
        crawled
            .urls
            .iter()
            .filter(|url| url.status == status)
            .count()
    };
    let (parsed, failed) = (count(Status::Parsed), count(Status::Failed));
    let open = crawled.urls.len() - parsed - failed;
    let mut text = format!(
        "{} URLs in {:.1} s: {parsed} parsed, {failed} failed",
        crawled.urls.len(),
        crawled.seconds
    );
    if open > 0 {
        text.push_str(&format!(", {open} left"));
    }
    text.push('\n');
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for url in &crawled.urls {
        if let (Status::Failed, Some(reason)) = (url.status, &url.reason) {
            *reasons.entry(reason).or_default() += 1;
        }
    }
    for (reason, times) in reasons {
        text.push_str(&format!("  {times} × {reason}\n"));
    }
    text
}

/// The `site` command.
pub const SITE: walkthrough::Command = walkthrough::Command {
    name: "site",
    about: "Serve a site to crawl, with cycles, redirects, errors, slow pages and a robots.txt",
    args: |command| {
        command
            .arg(
                Arg::new("listen")
                    .long("listen")
                    .value_name("ADDRESS")
                    .default_value("127.0.0.1:8080")
                    .value_parser(value_parser!(SocketAddr))
                    .help("Where to listen; port 0 lets the system choose"),
            )
            .arg(
                Arg::new("pages")
                    .long("pages")
                    .value_name("N")
                    .default_value("40")
                    .value_parser(value_parser!(u32).range(2..=100_000))
                    .help("How many pages it has"),
            )
    },
    run: |_, args| Box::pin(serve_site(args)),
};

async fn serve_site(args: ArgMatches) -> Result<()> {
    let address = args.get_one::<SocketAddr>("listen").copied();
    let address = address.unwrap_or_else(|| ([127, 0, 0, 1], 8080).into());
    let pages = args.get_one::<u32>("pages").copied().unwrap_or(40);
    let site = Site::open_at(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    let here = site.address;
    site.put_generated(&here.to_string(), &generated(pages as usize));
    println!("serving http://{here}/; crawl it with --allow {here}");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
