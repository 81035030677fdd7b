//! Something to crawl: a web site on loopback, with a log of its own. What a crawler did to a host is
//! what the host says, not what the crawler believes.
//!
//! It is reached under names such as `site.test`, which resolve to it because an
//! [`AddressGuard`] says so, host by host.

use crate::address_guard::AddressGuard;
use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, CONTENT_TYPE, ETAG, HOST, IF_NONE_MATCH, LOCATION};
use axum::response::Response;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// What a site answers.
#[derive(Debug, Clone)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Headers besides the length.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
    /// How long it takes.
    pub takes: Duration,
}

impl Reply {
    /// A page.
    pub fn html(body: impl Into<String>) -> Self {
        Self::new(200, "text/html; charset=utf-8", body)
    }

    /// Plain text: a robots.txt.
    pub fn text(body: impl Into<String>) -> Self {
        Self::new(200, "text/plain", body)
    }

    /// Anything.
    pub fn new(status: u16, content_type: &str, body: impl Into<String>) -> Self {
        let headers = match content_type {
            "" => Vec::new(),
            kind => vec![(CONTENT_TYPE.to_string(), kind.to_owned())],
        };
        Self {
            status,
            headers,
            body: body.into(),
            takes: Duration::ZERO,
        }
    }

    /// A redirect.
    pub fn redirect(to: &str) -> Self {
        Self::new(302, "text/html", "").with(LOCATION.as_str(), to)
    }

    /// A status without a word.
    pub fn status(status: u16) -> Self {
        Self::new(status, "", "")
    }

    /// The same with a header.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same, after a while.
    pub fn after(self, takes: Duration) -> Self {
        Self { takes, ..self }
    }
}

/// A page that links to these.
pub fn page(title: &str, links: &[impl AsRef<str>]) -> Reply {
    let mut body = format!("<!doctype html><title>{title}</title><h1>{title}</h1><ul>");
    for link in links {
        let link = link.as_ref();
        let _ = write!(
            body,
            "<li><a href=\"{}\">{link}</a>",
            link.replace('&', "&amp;")
        );
    }
    Reply::html(body + "</ul>")
}

/// One request, as the site saw it.
#[derive(Debug, Clone)]
pub struct Hit {
    /// Of which host.
    pub host: String,
    /// Path and query.
    pub path: String,
    /// Which encodings of an answer it asked for.
    pub accepts: String,
    /// What was answered.
    pub status: u16,
    /// When it came.
    pub began: Instant,
    /// When it was answered.
    pub ended: Option<Instant>,
}

#[derive(Default)]
struct Inside {
    /// Replies by `host/path`: the first is used up, the last one stays.
    replies: BTreeMap<String, Vec<Reply>>,
    log: Vec<Hit>,
}

/// A site that is up until it is dropped.
pub struct Site {
    /// Where it listens.
    pub address: SocketAddr,
    inside: Arc<Mutex<Inside>>,
    server: JoinHandle<()>,
}

impl Drop for Site {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Site {
    /// Opens an empty site. Everything is 404 until something is put there.
    pub async fn open() -> std::io::Result<Self> {
        Self::open_at(([127, 0, 0, 1], 0).into()).await
    }

    /// The same, at this address.
    pub async fn open_at(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let inside: Arc<Mutex<Inside>> = Arc::default();
        let app = Router::new()
            .fallback(answer)
            .with_state(Arc::clone(&inside));
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, app).await;
        });
        Ok(Self {
            address,
            inside,
            server,
        })
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a reply at `site.test/path`, in place of what was there.
    pub fn put(&self, at: &str, reply: Reply) {
        self.put_all(at, vec![reply]);
    }

    /// Puts replies there that are given one after the other; the last one stays.
    pub fn put_all(&self, at: &str, replies: Vec<Reply>) {
        self.inside().replies.insert(at.to_owned(), replies);
    }

    /// Every request so far.
    pub fn log(&self) -> Vec<Hit> {
        self.inside().log.clone()
    }

    /// How often a path was asked for.
    pub fn hits(&self, at: &str) -> usize {
        let hit = |hit: &&Hit| format!("{}{}", hit.host, hit.path) == at;
        self.inside().log.iter().filter(hit).count()
    }

    /// A guard that lets these hosts be reached, here.
    pub fn guard(&self, hosts: &[&str]) -> AddressGuard {
        let here = hosts.iter().map(|host| ((*host).to_owned(), self.address));
        AddressGuard::allowing(here)
    }

    /// What is wrong with how a host was treated: requests that overlap, or come sooner after the end
    /// of the one before than `apart`.
    pub fn rudeness(&self, host: &str, apart: Duration) -> Option<String> {
        let log = self.log();
        let mut hits: Vec<_> = log.iter().filter(|hit| hit.host == host).collect();
        hits.sort_by_key(|hit| hit.began);
        for pair in hits.windows(2) {
            let (one, next) = (pair[0], pair[1]);
            let Some(ended) = one.ended.filter(|ended| *ended <= next.began) else {
                return Some(format!("{} was asked while {} was", next.path, one.path));
            };
            let gap = next.began - ended;
            if gap < apart {
                return Some(format!("{} came {gap:?} after {}", next.path, one.path));
            }
        }
        None
    }
}

async fn answer(State(inside): State<Arc<Mutex<Inside>>>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let header = |name| {
        let value = parts.headers.get(name);
        value
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned()
    };
    let (host, known) = (header(HOST), header(IF_NONE_MATCH));
    let path = parts
        .uri
        .path_and_query()
        .map_or("/", |path| path.as_str())
        .to_owned();
    let (reply, number) = {
        let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
        let reply = match inside.replies.get_mut(&format!("{host}{path}")) {
            Some(replies) if replies.len() > 1 => replies.remove(0),
            Some(replies) => replies[0].clone(),
            None => Reply::status(404),
        };
        inside.log.push(Hit {
            host,
            path,
            accepts: header(ACCEPT_ENCODING),
            status: reply.status,
            began: Instant::now(),
            ended: None,
        });
        (reply, inside.log.len() - 1)
    };
    if !reply.takes.is_zero() {
        tokio::time::sleep(reply.takes).await;
    }
    let etag = reply.headers.iter().find(|(name, _)| name == ETAG.as_str());
    let same = !known.is_empty() && etag.is_some_and(|(_, etag)| *etag == known);
    let (status, body) = match same {
        true => (304, String::new()),
        false => (reply.status, reply.body),
    };
    let mut response = Response::builder().status(status);
    for (name, value) in &reply.headers {
        response = response.header(name, value);
    }
    let mut inside = inside.lock().unwrap_or_else(PoisonError::into_inner);
    inside.log[number].status = status;
    inside.log[number].ended = Some(Instant::now());
    response.body(Body::from(body)).unwrap_or_default()
}

/// What stands at a path of a generated site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Node {
    /// A page with links.
    Page(Vec<String>),
    /// A redirect.
    Redirect(String),
    /// Fails once, then is a page.
    Shaky(Vec<String>),
    /// Not there, or of no use.
    Broken,
    /// There, and not to be asked for.
    Disallowed,
}

/// A site of so many pages with cycles, redirects, errors, slow pages, disallowed pages and a trap
/// without an end: what stands where, for whoever wants to know what a crawl should find. The same every
/// time.
pub fn generated(pages: usize) -> BTreeMap<String, Node> {
    let path = |number: usize| match number % pages {
        0 => "/".to_owned(),
        number if number % 31 == 30 => format!("/private/{number}"),
        number => format!("/page/{number}"),
    };
    let mut nodes = BTreeMap::new();
    for number in 0..pages {
        // A tree, so that all is reachable; chords, so that there are cycles and shorter ways.
        let mut links = vec![
            path(2 * number + 1),
            path(2 * number + 2),
            path(number / 2),
            path(number * 7 + 3),
            path(number * 13 + 5),
        ];
        if number % 10 == 0 {
            // The same page in other words.
            links.push(format!("{}?utm_source=page{number}#top", path(number + 1)));
        }
        if number == 4 {
            links.push("/calendar/1".to_owned());
        }
        let node = match number {
            number if number % 31 == 30 => Node::Disallowed,
            number if number > 0 && number % 25 == 0 => Node::Redirect(path(number + 7)),
            number if number > 0 && number % 33 == 0 => Node::Broken,
            number if number > 0 && number % 41 == 0 => Node::Shaky(links),
            _ => Node::Page(links),
        };
        nodes.insert(path(number), node);
    }
    // A redirect that never arrives, and a calendar that never ends.
    nodes.insert("/loop/a".to_owned(), Node::Redirect("/loop/b".to_owned()));
    nodes.insert("/loop/b".to_owned(), Node::Redirect("/loop/a".to_owned()));
    if let Some(Node::Page(links)) = nodes.get_mut("/") {
        links.push("/loop/a".to_owned());
    }
    for day in 1..1_000 {
        let next = Node::Page(vec![format!("/calendar/{}", day + 1)]);
        nodes.insert(format!("/calendar/{day}"), next);
    }
    nodes
}

/// The robots.txt of a generated site.
pub const GENERATED_ROBOTS: &str = "User-agent: *\nDisallow: /private/\n";

impl Site {
    /// Puts a generated site at a host.
    pub fn put_generated(&self, host: &str, nodes: &BTreeMap<String, Node>) {
        self.put(&format!("{host}/robots.txt"), Reply::text(GENERATED_ROBOTS));
        for (number, (path, node)) in nodes.iter().enumerate() {
            let slow = Duration::from_millis(if number % 97 == 0 { 30 } else { 0 });
            let title = path;
            let replies = match node {
                Node::Page(links) => vec![page(title, links).after(slow)],
                Node::Shaky(links) => vec![Reply::status(500), page(title, links)],
                Node::Redirect(to) => vec![Reply::redirect(to)],
                Node::Broken if number % 2 == 0 => vec![Reply::status(404)],
                Node::Broken => vec![Reply::new(200, "application/pdf", "%PDF")],
                Node::Disallowed => vec![page("secret", &["/private/more"])],
            };
            self.put_all(&format!("{host}{path}"), replies);
        }
    }
}
