//! `report`: one self-contained HTML page of what `crawl --out` wrote, with the link graph.

use crate::crawl::{Crawled, CrawledUrl};
use crate::domain::Status;
use anyhow::{Context, Result};
use clap::{Arg, ArgMatches, Command, value_parser};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

/// The `report` command.
pub const REPORT: walkthrough::Command = walkthrough::Command {
    name: "report",
    about: "Write an HTML page with the link graph of what `crawl --out DIR` found",
    args: report_args,
    run: |_, args| Box::pin(async move { report(&args) }),
};

fn report_args(command: Command) -> Command {
    let path = |name: &'static str| Arg::new(name).value_parser(value_parser!(PathBuf));
    command
        .arg(
            path("dir")
                .value_name("DIR")
                .required(true)
                .help("What `crawl --out` wrote"),
        )
        .arg(
            path("html")
                .long("html")
                .value_name("FILE")
                .help("Where to write the page [default: DIR/report.html]"),
        )
}

fn report(args: &ArgMatches) -> Result<()> {
    let dir = args.get_one::<PathBuf>("dir").cloned().unwrap_or_default();
    let from = dir.join("crawl.json");
    let text = std::fs::read_to_string(&from).with_context(|| {
        format!(
            "cannot read {}: crawl with --out {} first",
            from.display(),
            dir.display()
        )
    })?;
    let crawled: Crawled = serde_json::from_str(&text)
        .with_context(|| format!("{} is not what `crawl --out` writes", from.display()))?;
    let to = args
        .get_one::<PathBuf>("html")
        .cloned()
        .unwrap_or(dir.join("report.html"));
    std::fs::write(&to, page(&crawled))
        .with_context(|| format!("cannot write {}", to.display()))?;
    println!("{} URLs, written to {}", crawled.urls.len(), to.display());
    Ok(())
}

/// Where a URL is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    x: f64,
    y: f64,
}

const RING: f64 = 110.0;

/// For each URL a page that is one link closer to the seed and links to it; if there are several, the one
/// it was found on first. Always outwards, so that this is a tree whatever the file says.
fn parents(urls: &[CrawledUrl]) -> Vec<Option<usize>> {
    let index: BTreeMap<&str, usize> = urls
        .iter()
        .enumerate()
        .map(|(at, url)| (url.url.as_str(), at))
        .collect();
    let mut parents = vec![None; urls.len()];
    for (from, url) in urls.iter().enumerate() {
        for to in url
            .links
            .iter()
            .filter_map(|link| index.get(link.as_str()).copied())
        {
            let first = urls[to].found_on.as_deref() == Some(url.url.as_str());
            if urls[to].depth == url.depth + 1 && (first || parents[to].is_none()) {
                parents[to] = Some(from);
            }
        }
    }
    parents
}

/// The seed in the middle, each URL on the ring of its depth, in the sector of its parent.
fn places(urls: &[CrawledUrl], parents: &[Option<usize>]) -> Vec<Place> {
    let mut children: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (at, parent) in parents.iter().enumerate() {
        children.entry(*parent).or_default().push(at);
    }
    // How many leaves hang on each, from the outside in.
    let mut order: Vec<usize> = (0..urls.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(urls[*at].depth));
    let mut leaves = vec![0_usize; urls.len()];
    for at in order.iter().copied() {
        let below: usize = children
            .get(&Some(at))
            .into_iter()
            .flatten()
            .map(|child| leaves[*child])
            .sum();
        leaves[at] = below.max(1);
    }
    let mut places = vec![Place { x: 0.0, y: 0.0 }; urls.len()];
    let whole = (0.0, std::f64::consts::TAU);
    let mut sectors: Vec<(Option<usize>, (f64, f64))> = vec![(None, whole)];
    while let Some((of, (from, to))) = sectors.pop() {
        let below = children.get(&of).cloned().unwrap_or_default();
        let total: usize = below.iter().map(|child| leaves[*child]).sum();
        let mut at = from;
        for child in below {
            let width = (to - from) * leaves[child] as f64 / total as f64;
            let (middle, radius) = (at + width / 2.0, f64::from(urls[child].depth) * RING);
            places[child] = Place {
                x: radius * middle.cos(),
                y: radius * middle.sin(),
            };
            sectors.push((Some(child), (at, at + width)));
            at += width;
        }
    }
    places
}

fn class(status: Status) -> &'static str {
    match status {
        Status::Parsed => "parsed",
        Status::Failed => "failed",
        _ => "open",
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Only what a crawler could have fetched becomes a link: a file from elsewhere may say anything.
fn href(url: &str) -> String {
    match url.starts_with("http://") || url.starts_with("https://") {
        true => format!("<a href=\"{0}\" rel=\"noreferrer\">{0}</a>", escaped(url)),
        false => escaped(url),
    }
}

/// The page.
pub fn page(crawled: &Crawled) -> String {
    let urls = &crawled.urls;
    let parents = parents(urls);
    let places = places(urls, &parents);
    let index: BTreeMap<&str, usize> = urls
        .iter()
        .enumerate()
        .map(|(at, url)| (url.url.as_str(), at))
        .collect();
    let depth = urls.iter().map(|url| url.depth).max().unwrap_or(0).max(1);
    let half = f64::from(depth) * RING + 40.0;
    let mut svg = format!(
        "<svg viewBox=\"{0} {0} {1} {1}\" role=\"img\" aria-label=\"Link graph\">",
        -half,
        2.0 * half
    );
    for ring in 1..=depth {
        let _ = write!(
            svg,
            "<circle class=\"ring\" r=\"{}\"/>",
            f64::from(ring) * RING
        );
    }
    let mut edges = 0;
    for (from, url) in urls.iter().enumerate() {
        for to in url.links.iter().filter_map(|link| index.get(link.as_str())) {
            let (one, other) = (places[from], places[*to]);
            if from == *to {
                continue;
            }
            edges += 1;
            let tree = parents[*to] == Some(from);
            // Bent towards the middle, so that the links between two rings do not hide each other.
            let _ = write!(
                svg,
                "<path class=\"{}\" d=\"M{:.1} {:.1}Q{:.1} {:.1} {:.1} {:.1}\"/>",
                if tree { "tree" } else { "link" },
                one.x,
                one.y,
                (one.x + other.x) * 0.4,
                (one.y + other.y) * 0.4,
                other.x,
                other.y
            );
        }
    }
    for (url, place) in urls.iter().zip(&places) {
        let why = url
            .reason
            .as_deref()
            .map(|why| format!(": {why}"))
            .unwrap_or_default();
        let _ = write!(
            svg,
            "<circle class=\"{}\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"{}\"><title>{}</title></circle>",
            class(url.status),
            place.x,
            place.y,
            if url.depth == 0 { 8 } else { 5 },
            escaped(&format!("{} {}{why}", url.url, url.status.word()))
        );
    }
    svg.push_str("</svg>");
    let mut rows = String::new();
    for url in urls {
        let _ = write!(
            rows,
            "<tr><td><i class=\"{}\"></i>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            class(url.status),
            url.status.word(),
            url.depth,
            href(&url.url),
            escaped(&url.title),
            escaped(url.reason.as_deref().unwrap_or_default())
        );
    }
    let count = |status| urls.iter().filter(|url| url.status == status).count();
    let (parsed, failed) = (count(Status::Parsed), count(Status::Failed));
    let open = urls.len() - parsed - failed;
    let seed = escaped(&crawled.seed);
    format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>Crawl of {seed}</title><style>{STYLE}</style><h1>Crawl of {seed}</h1>\
         <p class=\"numbers\"><b>{}</b> URLs <b class=\"parsed\">{parsed}</b> parsed \
         <b class=\"failed\">{failed}</b> failed <b class=\"open\">{open}</b> left \
         <b>{edges}</b> links among them <b>{:.1}</b> s</p>\
         <figure>{svg}<figcaption>The seed is in the middle, each ring is one link further. Strong lines are \
         a shortest way to each page. Point at a dot to see its URL.</figcaption></figure>\
         <table><thead><tr><th>status<th>depth<th>URL<th>title<th>reason</thead><tbody>{rows}</tbody></table></html>",
        urls.len(),
        crawled.seconds
    )
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2433;--paper:#fff;--faint:#8a94a6;--line:#d9dee7;\
--parsed:#1f8a5b;--failed:#c8452f;--open:#b58900}\
@media(prefers-color-scheme:dark){:root{--ink:#e7ebf2;--paper:#12161f;--faint:#8a94a6;--line:#2b3342;\
--parsed:#4cc38a;--failed:#ff7a66;--open:#e0b341}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:70rem;\
margin:2rem auto;padding:0 1rem}h1{font-size:1.5rem;overflow-wrap:anywhere}\
.numbers b{font-size:1.25rem;margin-left:.75rem}.numbers b:first-child{margin-left:0}\
b.parsed{color:var(--parsed)}b.failed{color:var(--failed)}b.open{color:var(--open)}\
figure{margin:1rem 0}svg{display:block;width:100%;max-height:90vh}\
figcaption{color:var(--faint);font-size:.9rem}\
.ring{fill:none;stroke:var(--line);stroke-dasharray:2 6}path{fill:none;stroke:var(--faint)}\
path.link{stroke-opacity:.22;stroke-width:.8}path.tree{stroke-opacity:.75;stroke-width:1.4}\
circle.parsed{fill:var(--parsed)}circle.failed{fill:var(--failed)}circle.open{fill:var(--open)}\
svg circle:not(.ring){stroke:var(--paper);stroke-width:1.5}\
table{border-collapse:collapse;width:100%;font-size:.9rem}th,td{text-align:left;padding:.3rem .6rem;\
border-bottom:1px solid var(--line);overflow-wrap:anywhere;vertical-align:top}\
td i{display:inline-block;width:.6rem;height:.6rem;border-radius:50%;margin-right:.4rem}\
td:first-child{white-space:nowrap}\
i.parsed{background:var(--parsed)}i.failed{background:var(--failed)}i.open{background:var(--open)}";

#[cfg(test)]
mod tests {
    use super::*;

    fn url(url: &str, depth: u32, found_on: Option<&str>, links: &[&str]) -> CrawledUrl {
        CrawledUrl {
            url: url.to_owned(),
            status: Status::Parsed,
            depth,
            reason: None,
            title: String::new(),
            found_on: found_on.map(str::to_owned),
            links: links.iter().map(ToString::to_string).collect(),
            files: Vec::new(),
        }
    }

    #[test]
    fn each_url_is_on_the_ring_of_its_depth_and_none_on_another() {
        let urls = [
            url("a", 0, None, &["b", "c"]),
            url("b", 1, Some("a"), &["a"]),
            url("c", 1, Some("a"), &[]),
            url("d", 2, Some("b"), &[]),
        ];
        let places = places(&urls, &parents(&urls));
        for (url, place) in urls.iter().zip(&places) {
            let radius = place.x.hypot(place.y);
            assert!(
                (radius - f64::from(url.depth) * RING).abs() < 0.01,
                "{}",
                url.url
            );
        }
        for (at, place) in places.iter().enumerate() {
            assert!(places[..at].iter().all(|other| other != place));
        }
    }

    #[test]
    fn what_a_site_says_cannot_run_in_the_report() {
        let hostile = CrawledUrl {
            title: "<script>x</script>".to_owned(),
            reason: Some("\"><img src=x>".to_owned()),
            ..url("javascript:alert(1)", 0, None, &[])
        };
        let crawled = Crawled {
            seed: "<b>".to_owned(),
            finished: true,
            seconds: 0.0,
            urls: vec![hostile],
        };
        let page = page(&crawled);
        for wrong in [
            "<script",
            "<img",
            "href=\"javascript",
            "<b>\"",
            "Crawl of <b>",
        ] {
            assert!(!page.contains(wrong), "{wrong}");
        }
    }
}
