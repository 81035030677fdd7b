//! `bench`: how many pages a second, and how much of the time goes into the store? Measured against a site
//! on loopback that is not waited for, on whatever backend is chosen.

use crate::crawl::{Counts, PATIENCE_MS, Settings, bar, run_until};
use crate::site::{Site, generated};
use crate::{Crawler, Https, Rules, Web};
use anyhow::{Result, ensure};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::Cloud;
use cloud::tap::{Call, Plan, Request, Service, Verdict};
use futures::future::BoxFuture;
use serde::Serialize;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Crawl a site on loopback without pauses; print pages a second and the share of the store",
    args: bench_args,
    run: |cloud, args| Box::pin(bench(cloud, args)),
};

fn bench_args(command: Command) -> Command {
    let number = |name: &'static str, default: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .value_name("N")
            .value_parser(value_parser!(u32).range(1..=100_000))
            .default_value(default)
            .help(help)
    };
    command
        .arg(number("pages", "500", "How many pages the site has"))
        .arg(number(
            "hosts",
            "8",
            "How many hosts they are on: each is asked by one worker at a time",
        ))
        .arg(number("workers", "8", "How many requests at once"))
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

/// What was measured.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Pages parsed.
    pub pages: usize,
    /// URLs found.
    pub urls: usize,
    /// Hosts they were on.
    pub hosts: usize,
    /// Requests at once.
    pub workers: usize,
    /// How long it took.
    pub seconds: f64,
    /// Pages parsed each second.
    pub pages_per_second: f64,
    /// Of the time in which somebody waited for an answer, the part that waited for the store rather
    /// than for the site: from 0 to 1.
    pub store_share: f64,
    /// Calls for each page, by service.
    pub calls_per_page: BTreeMap<String, f64>,
}

/// Adds up how long answers took.
#[derive(Default)]
struct Stopwatch(Mutex<BTreeMap<String, (usize, Duration)>>);

impl Plan for Stopwatch {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        // Waiting for a message is waiting for work, not for the store.
        let waits = call.request.operation == "ReceiveMessage";
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = all.entry(call.request.service.to_string()).or_default();
        sum.0 += 1;
        if !waits {
            sum.1 += call.duration;
        }
        Box::pin(async {})
    }
}

async fn bench(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let number = |name| args.get_one::<u32>(name).copied().unwrap_or(1) as usize;
    let json = args.get_flag("json");
    let measured = measure(
        cloud,
        number("pages"),
        number("hosts"),
        number("workers"),
        json,
    )
    .await?;
    if json {
        println!("{:#}", serde_json::to_value(&measured)?);
        return Ok(());
    }
    println!(
        "{} pages of {} hosts, {} workers, no pauses",
        measured.pages, measured.hosts, measured.workers
    );
    println!(
        "throughput  {:.0} pages/s over {:.1} s",
        measured.pages_per_second, measured.seconds
    );
    println!(
        "store       {:.0} % of the time spent waiting for answers",
        measured.store_share * 100.0
    );
    for (service, calls) in &measured.calls_per_page {
        println!("calls       {calls:.1} {service} for each page");
    }
    Ok(())
}

/// Crawls so many pages and measures.
pub async fn measure(
    cloud: Cloud,
    pages: usize,
    hosts: usize,
    workers: usize,
    quiet: bool,
) -> Result<Measured> {
    let site = Site::open().await?;
    let names: Vec<String> = (0..hosts).map(|host| format!("site{host}.test")).collect();
    let nodes = generated(pages.div_ceil(hosts).max(2));
    for name in &names {
        site.put_generated(name, &nodes);
    }
    let hosts: Vec<&str> = names.iter().map(String::as_str).collect();
    let web = Web::new(&cloud, site.guard(&hosts), Https::None)?;
    let rules = Rules {
        max_depth: 20,
        delay_ms: 0,
        patience_ms: PATIENCE_MS,
        ..Rules::default()
    };
    let crawler = Crawler::connect(cloud.clone(), web, rules).await?;
    for name in &names {
        crawler.add_seed(&format!("http://{name}/")).await?;
    }
    let counts = Arc::new(Counts::default());
    counts.found.store(names.len(), Ordering::Relaxed);
    let settings = Settings {
        fetchers: workers,
        parsers: workers.div_ceil(2),
        ..Settings::default()
    };
    let watch = Arc::new(Stopwatch::default());
    let bar = bar(quiet, "{spinner} crawling, {elapsed}")?;
    let begun = Instant::now();
    let done = {
        let _installed = cloud.tap().install(watch.clone());
        run_until(&crawler, settings, &counts, std::future::pending()).await?
    };
    bar.finish_and_clear();
    ensure!(done, "the crawl did not end");
    // The last looks, which find that nothing is left, are no part of the work.
    let seconds = (begun.elapsed() - 2 * settings.look_every).as_secs_f64();
    let all = watch.0.lock().unwrap_or_else(PoisonError::into_inner);
    let parsed = counts.parsed.load(Ordering::Relaxed);
    let total: Duration = all.values().map(|(_, time)| *time).sum();
    let site_time = all
        .get(&Service::Http.to_string())
        .map_or(Duration::ZERO, |(_, time)| *time);
    let per_page = |calls: usize| calls as f64 / parsed.max(1) as f64;
    Ok(Measured {
        pages: parsed,
        urls: counts.found.load(Ordering::Relaxed),
        hosts: names.len(),
        workers,
        seconds,
        pages_per_second: parsed as f64 / seconds,
        store_share: 1.0 - site_time.as_secs_f64() / total.as_secs_f64().max(f64::MIN_POSITIVE),
        calls_per_page: all
            .iter()
            .map(|(name, (calls, _))| (name.clone(), per_page(*calls)))
            .collect(),
    })
}
