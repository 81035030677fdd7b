//! robots.txt, by RFC 9309: read before anything else of a host, kept for a day, shared by everybody.
//!
//! Written here, because the library that was tried (texting_robots 0.2.2) compares `%3c` with `%3C` as if
//! they differed, which RFC 9309 2.2.2 forbids.

use crate::canonical::{hex, link, plain};
use crate::discover::Found;
use crate::domain::{
    DomainPolicyState, FetchDecision, Kind, MAX_RETRY_AFTER_MS, ROBOTS_ATTEMPTS, ROBOTS_MS, Robots,
    UrlMetadataState, Verdict, backoff, delay,
};
use crate::items::settled;
use crate::politeness::Turn;
use crate::web::{Answer, NoAnswer, PRODUCT, Validators};
use crate::{Crawler, CrawlerError};
use cloud::item::{n, s};
use cloud::{CloudError, Guard, Millis};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use url::Url;

/// RFC 9309 wants at least 500 KiB to be read.
pub const MAX_ROBOTS: usize = 512 * 1024;

/// RFC 9309 wants five redirects to be followed.
const MAX_HOPS: u32 = 5;

/// The longest crawl delay that is honoured: beyond it, a site would do better to say no.
const MAX_DELAY_MS: Millis = 60_000;

/// How many sitemaps of a robots.txt are read.
const MAX_SITEMAPS: usize = 10;

/// What a robots.txt says to us.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rules {
    rules: Vec<(String, bool)>,
    /// Crawl-delay: not in the RFC, and widely used.
    pub delay_ms: Option<Millis>,
    /// Sitemap lines, which are for everybody.
    pub sitemaps: Vec<String>,
}

impl Rules {
    /// Reads a robots.txt for this product. Whatever is not understood is passed over.
    pub fn parse(text: &[u8], product: &str) -> Self {
        let text = String::from_utf8_lossy(text);
        let text = text.trim_start_matches('\u{feff}');
        let (mut ours, mut everybodys) = (Self::default(), Self::default());
        let mut named = false;
        // To whom the current group speaks; and whether its user-agent lines are over.
        let (mut to_us, mut to_all, mut begun) = (false, false, true);
        let mut sitemaps = Vec::new();
        for line in text.split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else {
                continue;
            };
            let value = value.trim();
            match key.trim().to_ascii_lowercase().as_str() {
                "user-agent" => {
                    if begun {
                        (to_us, to_all, begun) = (false, false, false);
                    }
                    // A version after the name says nothing.
                    let token = value.split(['/', ' ']).next().unwrap_or_default();
                    to_us |= token.eq_ignore_ascii_case(product);
                    to_all |= token == "*";
                    named |= to_us;
                }
                key @ ("allow" | "disallow") => {
                    begun = true;
                    let rule = (pattern(value), key == "allow");
                    // An empty rule matches nothing.
                    if value.is_empty() {
                        continue;
                    }
                    if to_us {
                        ours.rules.push(rule.clone());
                    }
                    if to_all {
                        everybodys.rules.push(rule);
                    }
                }
                "crawl-delay" => {
                    begun = true;
                    let seconds = value.parse::<f64>().ok();
                    let delay = seconds
                        .filter(|seconds| seconds.is_finite() && *seconds >= 0.0)
                        .map(|seconds| ((seconds * 1_000.0) as Millis).min(MAX_DELAY_MS));
                    if to_us {
                        ours.delay_ms = delay;
                    }
                    if to_all {
                        everybodys.delay_ms = delay;
                    }
                }
                "sitemap" if sitemaps.len() < MAX_SITEMAPS => sitemaps.push(value.to_owned()),
                _ => {}
            }
        }
        // A group that names us takes the place of the one for everybody.
        let rules = if named { ours } else { everybodys };
        Self { sitemaps, ..rules }
    }

    /// What it takes in memory, about: each text has a header and an allocation of its own.
    fn bytes(&self) -> usize {
        const EACH: usize = 64;
        let rules = self.rules.iter().map(|(rule, _)| rule.len());
        let texts = rules.chain(self.sitemaps.iter().map(String::len));
        EACH + texts.map(|length| length + EACH).sum::<usize>()
    }

    /// Whether a URL may be fetched: the longest rule that matches decides, and of two as long the one
    /// that allows.
    pub fn allow(&self, url: &Url) -> bool {
        if url.path() == "/robots.txt" {
            return true;
        }
        let mut path = url.path().to_owned();
        if let Some(query) = url.query() {
            path = format!("{path}?{query}");
        }
        // What is special in a rule is not in a path: there it is written as an escape, on both sides.
        let path = alike(&path).replace('*', "%2A").replace('$', "%24");
        let matching = self.rules.iter().filter(|(rule, _)| matches(rule, &path));
        let longest = matching.max_by_key(|(rule, allow)| (rule.len(), *allow));
        longest.is_none_or(|(_, allow)| *allow)
    }
}

/// A rule as it is compared: `*` anywhere and `$` at the end keep their meaning.
fn pattern(rule: &str) -> String {
    let rule = alike(rule);
    match rule.strip_suffix('$') {
        Some(rule) => rule.replace('$', "%24") + "$",
        None => rule.replace('$', "%24"),
    }
}

/// Two spellings of one path, written alike (RFC 9309 2.2.2). In a query, `:` and `/` need no escape.
fn alike(text: &str) -> String {
    let text = plain(&escaped(text));
    match text.split_once('?') {
        Some((path, query)) => {
            let query = query.replace("%3A", ":").replace("%2F", "/");
            format!("{path}?{query}")
        }
        None => text,
    }
}

/// What is not ASCII, percent-encoded, as it is in a URL.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        if char.is_ascii() {
            escaped.push(char);
        } else {
            let mut bytes = [0; 4];
            for byte in char.encode_utf8(&mut bytes).bytes() {
                escaped.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    escaped
}

/// Whether a rule matches from the beginning: `*` is anything, `$` at the end is the end. A rule of a
/// thousand stars takes no longer than rule times path.
fn matches(rule: &str, path: &str) -> bool {
    let (rule, to_the_end) = match rule.strip_suffix('$') {
        Some(rule) => (rule, true),
        None => (rule, false),
    };
    let mut parts = rule.split('*');
    let Some(mut rest) = parts.next().and_then(|first| path.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<_> = parts.collect();
    if !to_the_end {
        // Each part at its first place: that leaves the most for the others.
        return parts.into_iter().all(|part| match rest.find(part) {
            Some(at) => {
                rest = &rest[at + part.len()..];
                true
            }
            None => false,
        });
    }
    let Some(last) = parts.pop() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// What came of asking a host for its rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// The row says what it allows.
    Stored,
    /// Not now: the host is left alone, or it did not answer and is asked again.
    Later {
        /// When.
        at: Millis,
    },
    /// Not now: somebody else is at the host.
    Busy {
        /// The end of their turn, if they died of it.
        until: Millis,
    },
}

impl Asked {
    fn not_now(wait: FetchDecision, now: Millis) -> Self {
        match wait {
            FetchDecision::Busy { until } => Self::Busy { until },
            FetchDecision::TooEarly { at } => Self::Later { at },
            _ => Self::Later { at: now },
        }
    }
}

/// Only with the turn in hand: who lost it would overwrite newer rules with older ones.
const STORE_GUARD: &str = "turn_id = :turn";
const STORE: &str = "SET robots = :robots, robots_key = :key, crawl_delay_ms = :delay, \
     robots_expires_at = :until, robots_failures = :failures, reason = :why, \
     next_allowed_at = :next REMOVE turn_ends_at";
const AGAIN: &str = "SET robots_failures = :failures, reason = :why, next_allowed_at = :next \
     REMOVE turn_ends_at";
/// An old one is better than none: RFC 9309 lets it be used while it cannot be read again.
const KEEP: &str = "SET robots_failures = :failures, reason = :why, next_allowed_at = :next, \
     robots_expires_at = :until REMOVE turn_ends_at";

/// Another host that a robots.txt is redirected to, and its turn.
struct Guest {
    turn: Turn,
    /// How long it wants to be left alone, if it said so.
    asked: Option<Millis>,
}

/// What was learned.
struct Learned {
    robots: Robots,
    rules: Arc<Rules>,
    key: String,
    reason: String,
}

/// How much of rules is compared with a URL beside other work: a hostile robots.txt has ten times as many bytes.
const MANY_BYTES: usize = 50_000;

/// Does this on a thread that no other work waits for.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, CloudError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(CloudError::bug)
}

async fn parse(text: Vec<u8>) -> Result<Rules, CloudError> {
    aside(move || Rules::parse(&text, PRODUCT)).await
}

impl Crawler {
    /// What the host's rules say about a URL. They are immutable under their key, so they are read once.
    pub(crate) async fn robots_verdict(
        &self,
        host: &DomainPolicyState,
        url: &UrlMetadataState,
    ) -> Result<Verdict, CrawlerError> {
        let Some(key) = host.robots_key.as_deref().filter(|key| !key.is_empty()) else {
            return Ok(Verdict::Allowed);
        };
        let rules = match self.robots.get(key) {
            Some(rules) => rules,
            None => {
                let bytes = self.read_blob(key).await?;
                let bytes = bytes.ok_or_else(|| {
                    CloudError::Corrupt(format!("the robots.txt of {} is gone", host.origin))
                })?;
                self.robots.keep(key, parse(bytes).await?)
            }
        };
        let parsed = Url::parse(&url.url).map_err(CloudError::corrupt)?;
        let allowed = match rules.bytes() {
            0..MANY_BYTES => rules.allow(&parsed),
            _ => aside(move || rules.allow(&parsed)).await?,
        };
        Ok(match allowed {
            true => Verdict::Allowed,
            false => Verdict::Disallowed,
        })
    }

    /// Asks a host for its robots.txt, in its turn, and writes down what it allows.
    pub async fn fetch_robots(&self, origin: &str, owner: &str) -> Result<Asked, CrawlerError> {
        let turn_id = format!("{}#{owner}", self.cloud.ids().next("robots"));
        let turn = match self.take_turn(origin, &turn_id).await? {
            Ok(turn) => turn,
            Err(wait) => return Ok(Asked::not_now(wait, self.now())),
        };
        let now = self.now();
        if turn.host.robots.is_some()
            && turn.host.robots_expires_at.is_some_and(|until| until > now)
        {
            // Somebody else asked while this one waited for the turn.
            self.release_turn(&turn.host, &turn_id, None).await?;
            return Ok(Asked::Stored);
        }
        let mut guests = BTreeMap::new();
        let followed = self.follow_robots(&turn, owner, &mut guests).await;
        // Whatever came of it, the guests' turns end here, and their pauses begin. What the host itself said is
        // written beside that: neither waits for the other's write, nor is lost by its fault.
        let release = async {
            let mut released = Ok(());
            for Guest { turn, asked } in guests.into_values() {
                let ended = self.leave_alone(&turn.host, &turn.turn_id, turn.ends_at, asked);
                released = released.and(ended.await);
            }
            released
        };
        let hear = async { self.hear_robots(&turn, followed?).await };
        let (asked, released) = futures::join!(hear, release);
        released?;
        asked
    }

    /// Writes down what came of asking, and ends the host's turn.
    async fn hear_robots(
        &self,
        turn: &Turn,
        followed: Result<(Result<Answer, NoAnswer>, bool), FetchDecision>,
    ) -> Result<Asked, CrawlerError> {
        let (answer, at_home) = match followed {
            Ok(answer) => answer,
            Err(wait) => {
                self.release_turn(&turn.host, &turn.turn_id, None).await?;
                return Ok(Asked::not_now(wait, self.now()));
            }
        };
        // What another host asks for is that host's affair: its turn ended with it.
        let retry_after = answer
            .as_ref()
            .ok()
            .filter(|_| at_home)
            .and_then(|answer| answer.retry_after_ms);
        let learned = match answer {
            // Too many requests is a matter of time, not of permission.
            Ok(answer) if answer.status == 429 || answer.status >= 500 => {
                Err(format!("status {}", answer.status))
            }
            Ok(answer) if (200..300).contains(&answer.status) => {
                Ok(self.keep_robots(whole_lines(&answer)).await?)
            }
            // Too many redirects count as none, says the RFC.
            Ok(answer) => Ok(Learned {
                robots: Robots::Absent,
                rules: Arc::default(),
                key: String::new(),
                reason: format!("status {}", answer.status),
            }),
            Err(NoAnswer::Forbidden(forbidden)) => Ok(Learned {
                robots: Robots::Forbidden,
                rules: Arc::default(),
                key: String::new(),
                reason: forbidden.to_string(),
            }),
            Err(other) => Err(other.to_string()),
        };
        match learned {
            Ok(learned) => {
                // Before the rules are there, so that who dies in between asks again.
                self.offer_sitemaps(&turn.host.origin, &learned.rules)
                    .await?;
                let pause = self.rules.delay_ms.max(learned.rules.delay_ms.unwrap_or(0));
                Ok(self.store_robots(turn, &learned, pause).await?)
            }
            Err(why) => self.robots_unreachable(turn, &why, retry_after).await,
        }
    }

    /// Follows redirects, each hop in the turn of its host. A turn is kept until the whole way is done:
    /// who came back to a host he has just left would have to wait for his own pause, and begin anew. The
    /// inner error is what to wait for; beside the answer stands whether the host itself gave it.
    async fn follow_robots(
        &self,
        home: &Turn,
        owner: &str,
        guests: &mut BTreeMap<String, Guest>,
    ) -> Result<Result<(Result<Answer, NoAnswer>, bool), FetchDecision>, CrawlerError> {
        let origin = &home.host.origin;
        let mut at = Url::parse(origin).map_err(CloudError::corrupt)?;
        at.set_path("/robots.txt");
        // When the last request to each host was over.
        let mut left: BTreeMap<String, Millis> = BTreeMap::new();
        for hop in 0..=MAX_HOPS {
            let there = at.origin().ascii_serialization();
            let at_home = there == *origin;
            if let Err(forbidden) = self.web.address_guard().check_literal(&at) {
                return Ok(Ok((Err(forbidden.into()), at_home)));
            }
            if !at_home
                && !guests.contains_key(&there)
                && let Some(answer) = self.known_robots(&at, &there).await?
            {
                return Ok(Ok((Ok(answer), false)));
            }
            if !at_home && !guests.contains_key(&there) {
                let turn_id = format!("{}#{owner}", self.cloud.ids().next("robots"));
                match self.take_turn(&there, &turn_id).await? {
                    Ok(turn) => {
                        let guest = Guest { turn, asked: None };
                        guests.insert(there.clone(), guest);
                    }
                    // It counts as a failure, so that the next try comes later: a host that always has a
                    // worker at it would have this one asked once a second for ever.
                    Err(_) => {
                        let why = format!("its robots.txt is redirected to {there}, which is busy");
                        return Ok(Ok((Err(NoAnswer::Broken(why)), false)));
                    }
                }
            }
            let turn = guests.get(&there).map_or(home, |guest| &guest.turn);
            let pause = delay(self.rules.delay_ms, turn.host.crawl_delay_ms);
            let wait = left
                .get(&there)
                .map_or(0, |left| (left + pause - self.now()).max(0));
            // It must fit into both turns. What does not fit will not fit the next time either, so it
            // counts as a failure: nobody goes the same way again and again.
            if !self.has_time(turn.ends_at.min(home.ends_at) - wait) {
                if hop == 0 {
                    return Ok(Err(FetchDecision::TooEarly { at: self.now() }));
                }
                let why = "its redirects take longer than a turn".to_owned();
                return Ok(Ok((Err(NoAnswer::Broken(why)), at_home)));
            }
            if wait > 0 {
                tokio::time::sleep(Duration::from_millis(wait as u64)).await;
            }
            let answer = self
                .web
                .get(&at, &Validators::default(), MAX_ROBOTS, self.now())
                .await;
            left.insert(there.clone(), self.now());
            if let (Some(guest), Ok(answer)) = (guests.get_mut(&there), &answer) {
                guest.asked = self.asked_for(answer);
            }
            let next = match &answer {
                Ok(answer) if (300..400).contains(&answer.status) && hop < MAX_HOPS => answer
                    .location
                    .as_deref()
                    .and_then(|location| link(&at, location).ok()),
                _ => None,
            };
            match next {
                Some(next) => at = next.url().clone(),
                None => return Ok(Ok((answer, at_home))),
            }
        }
        Ok(Err(FetchDecision::TooEarly { at: self.now() }))
    }

    /// The robots.txt of another host, if this one is redirected to it and it is known: then that host need
    /// not be asked, however busy it is.
    async fn known_robots(&self, at: &Url, origin: &str) -> Result<Option<Answer>, CrawlerError> {
        if at.path() != "/robots.txt" || at.query().is_some() {
            return Ok(None);
        }
        let Some(host) = self.read_policy(origin).await? else {
            return Ok(None);
        };
        let (status, body) = match (host.robots, host.robots_key.as_deref()) {
            _ if host
                .robots_expires_at
                .is_none_or(|until| until <= self.now()) =>
            {
                return Ok(None);
            }
            (Some(Robots::Absent), _) => (404, Vec::new()),
            (Some(Robots::Known), Some(key)) => match self.read_blob(key).await? {
                Some(body) => (200, body),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        Ok(Some(Answer {
            status,
            content_type: "text/plain".to_owned(),
            etag: None,
            last_modified: None,
            location: None,
            retry_after_ms: None,
            body,
            cut: false,
        }))
    }

    /// Keeps the bytes: an item has 400 KB, and a robots.txt may be larger.
    async fn keep_robots(&self, body: &[u8]) -> Result<Learned, CrawlerError> {
        let key = format!("robots/{}.txt", hex(&Sha256::digest(body)[..16]));
        self.put_blob(&key, "text/plain", body.to_vec()).await?;
        let rules = self.robots.keep(&key, parse(body.to_vec()).await?);
        Ok(Learned {
            robots: Robots::Known,
            rules,
            key,
            reason: "read".to_owned(),
        })
    }

    async fn store_robots(
        &self,
        turn: &Turn,
        learned: &Learned,
        pause: Millis,
    ) -> Result<Asked, CloudError> {
        let now = self.now();
        let stored = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("domain_policies"))
                .key("origin", s(&turn.host.origin))
                .update_expression(STORE)
                .condition_expression(STORE_GUARD)
                .expression_attribute_values(":turn", s(&turn.turn_id))
                .expression_attribute_values(":robots", s(word(learned.robots)))
                .expression_attribute_values(":key", s(&learned.key))
                .expression_attribute_values(":delay", n(learned.rules.delay_ms.unwrap_or(0)))
                .expression_attribute_values(":until", n(now + ROBOTS_MS))
                .expression_attribute_values(":failures", n(0))
                .expression_attribute_values(":why", s(&learned.reason))
                .expression_attribute_values(":next", n(now + pause))
        )?;
        Ok(match stored {
            Guard::Passed(_) => Asked::Stored,
            // The turn is another one's by now: what the row says is theirs to say.
            Guard::Failed(_) => Asked::Later { at: now },
        })
    }

    /// No answer, or a server's fault: nothing is allowed, and it is asked again, some times.
    async fn robots_unreachable(
        &self,
        turn: &Turn,
        why: &str,
        retry_after_ms: Option<Millis>,
    ) -> Result<Asked, CrawlerError> {
        let now = self.now();
        let failures = turn.host.robots_failures + 1;
        let pause = backoff(failures)
            .max(delay(self.rules.delay_ms, turn.host.crawl_delay_ms))
            .max(retry_after_ms.unwrap_or(0));
        let pause = pause.min(MAX_RETRY_AFTER_MS);
        let had = matches!(turn.host.robots, Some(Robots::Known | Robots::Absent));
        if failures >= ROBOTS_ATTEMPTS && !had {
            let gone = Learned {
                robots: Robots::Unreachable,
                rules: Arc::default(),
                key: String::new(),
                reason: why.to_owned(),
            };
            let store = || self.store_robots(turn, &gone, pause);
            return Ok(self.while_it_lasts(turn.ends_at, store).await?);
        }
        let update = self
            .dynamodb()
            .update_item()
            .table_name(self.table("domain_policies"))
            .key("origin", s(&turn.host.origin))
            .update_expression(if had { KEEP } else { AGAIN })
            .condition_expression(STORE_GUARD)
            .expression_attribute_values(":turn", s(&turn.turn_id))
            .expression_attribute_values(":failures", n(failures))
            .expression_attribute_values(":why", s(why))
            .expression_attribute_values(":next", n(now + pause));
        let update = match had {
            true => update.expression_attribute_values(":until", n(now + ROBOTS_MS / 24)),
            false => update,
        };
        // The host asked to be left alone for so long: that must not be forgotten.
        let again = || async { settled!(update.clone()) };
        let (Guard::Passed(_) | Guard::Failed(_)) =
            self.while_it_lasts(turn.ends_at, again).await?;
        Ok(Asked::Later { at: now + pause })
    }

    /// Puts the sitemaps that a host names into the frontier.
    async fn offer_sitemaps(&self, origin: &str, rules: &Rules) -> Result<(), CrawlerError> {
        if !self.rules.sitemaps || self.rules.max_depth == 0 {
            return Ok(());
        }
        let base = Url::parse(origin).map_err(CloudError::corrupt)?;
        let offered = rules
            .sitemaps
            .iter()
            .filter_map(|text| link(&base, text).ok());
        let found: Vec<_> = offered
            .filter(|url| url.origin() == origin && self.rules.reaches(url))
            .map(|url| Found {
                url,
                kind: Kind::Sitemap,
                depth: 0,
                redirects: 0,
                found_on: None,
            })
            .collect();
        self.expand(&found).await?;
        Ok(())
    }
}

/// What was read of it, to the end of a line: half a rule may say the opposite of the whole one.
fn whole_lines(answer: &Answer) -> &[u8] {
    let body = answer.body.as_slice();
    if !answer.cut {
        return body;
    }
    let end = body.iter().rposition(|byte| matches!(byte, b'\n' | b'\r'));
    &body[..end.unwrap_or(0)]
}

fn word(robots: Robots) -> &'static str {
    match robots {
        Robots::Known => "KNOWN",
        Robots::Absent => "ABSENT",
        Robots::Unreachable => "UNREACHABLE",
        Robots::Forbidden => "FORBIDDEN",
    }
}

/// Rules that were parsed, by the key of their bytes. Bytes under a key never change, so neither do these.
#[derive(Clone, Default)]
pub(crate) struct Parsed(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    rules: HashMap<String, Arc<Rules>>,
    bytes: usize,
}

impl Parsed {
    /// Counted in bytes: a hostile robots.txt takes as many as ten thousand others. Beyond this it begins anew.
    const MOST_BYTES: usize = 32 * 1024 * 1024;

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, key: &str) -> Option<Arc<Rules>> {
        self.lock().rules.get(key).cloned()
    }

    fn keep(&self, key: &str, rules: Rules) -> Arc<Rules> {
        let bytes = key.len() + rules.bytes();
        let rules = Arc::new(rules);
        let mut kept = self.lock();
        if kept.bytes + bytes > Self::MOST_BYTES {
            *kept = Kept::default();
        }
        if kept
            .rules
            .insert(key.to_owned(), Arc::clone(&rules))
            .is_none()
        {
            kept.bytes += bytes;
        }
        rules
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn allows(robots: &str, path: &str) -> bool {
        let url = Url::parse(&format!("http://site.test{path}")).unwrap();
        Rules::parse(robots.as_bytes(), "foobot").allow(&url)
    }

    #[test]
    fn the_cases_of_rfc_9309() {
        for (robots, path, allowed) in [
            ("", "/a", true),
            ("user-agent: *\ndisallow: /", "/a", false),
            ("user-agent: *\ndisallow: /", "/robots.txt", true),
            ("User-Agent: *\nDisallow: /p\nAllow: /p/q", "/p/q/1", true),
            ("User-Agent: *\nDisallow: /p\nAllow: /p", "/p", true),
            ("User-Agent: *\nAllow: /p\nDisallow: /p/", "/p/1", false),
            ("User-Agent: *\nDisallow:", "/a", true),
            // Groups: the one that names us, all of them, and only that.
            (
                "user-agent: FooBot\ndisallow: /a\n\nuser-agent: *\ndisallow: /",
                "/b",
                true,
            ),
            (
                "user-agent: foobot\ndisallow: /a\nuser-agent: x\ndisallow: /c\nuser-agent: foobot\ndisallow: /b",
                "/b",
                false,
            ),
            (
                "user-agent: foobot\ndisallow: /a\nuser-agent: x\ndisallow: /c\nuser-agent: foobot\ndisallow: /b",
                "/c",
                true,
            ),
            (
                "user-agent: x\nuser-agent: foobot\ndisallow: /a",
                "/a",
                false,
            ),
            ("user-agent: foobot/2.1\ndisallow: /a", "/a", false),
            ("user-agent: foo\ndisallow: /", "/a", true),
            (
                "user-agent: foobot\n\nuser-agent: *\ndisallow: /",
                "/a",
                false,
            ),
            ("disallow: /a\nuser-agent: *\ndisallow: /b", "/a", true),
            // What is in between does not end a group.
            (
                "user-agent: foobot\nsitemap: http://site.test/s\nfoo: bar\nuser-agent: x\ndisallow: /a",
                "/a",
                false,
            ),
            (
                "\u{feff}user-agent: *\r\ndisallow: /a # no\r\n",
                "/a",
                false,
            ),
            (
                "user-agent *\ndisallow /a\nuser-agent: *\ndisallow: /b",
                "/a",
                true,
            ),
            // Patterns.
            ("user-agent: *\ndisallow: /*.gif$", "/x/a.gif", false),
            ("user-agent: *\ndisallow: /*.gif$", "/x/a.gif?b", true),
            ("user-agent: *\ndisallow: /a*b*c", "/axxbxxcxx", false),
            ("user-agent: *\ndisallow: /a*b*c", "/axxcxxb", true),
            ("user-agent: *\ndisallow: /a$", "/ab", true),
            ("user-agent: *\ndisallow: /a$b", "/a$b", false),
            ("user-agent: *\ndisallow: /a?q=", "/a?q=1", false),
            ("user-agent: *\ndisallow: *x", "/abx", false),
            // Percent-encoding: section 2.2.2.
            (
                "user-agent: *\ndisallow: /foo/bar/%62%61%7A",
                "/foo/bar/baz",
                false,
            ),
            (
                "user-agent: *\ndisallow: /foo/bar/ツ",
                "/foo/bar/%E3%83%84",
                false,
            ),
            (
                "user-agent: *\ndisallow: /foo/bar/%E3%83%84",
                "/foo/bar/ツ",
                false,
            ),
            ("user-agent: *\ndisallow: /a%3cd.html", "/a%3Cd.html", false),
            ("user-agent: *\ndisallow: /a/b", "/a%2Fb", true),
            (
                "user-agent: *\ndisallow: /foo?baz=https%3A%2F%2Ffoo.bar",
                "/foo?baz=https://foo.bar",
                false,
            ),
            (
                "user-agent: *\ndisallow: /foo?baz=https://foo.bar",
                "/foo?baz=https%3A%2F%2ffoo.bar",
                false,
            ),
            // What is special in a rule, meant as it stands: section 2.2.3.
            ("user-agent: *\ndisallow: /a%2Ab", "/a*b", false),
            ("user-agent: *\ndisallow: /a%2ab", "/a%2Ab", false),
            ("user-agent: *\ndisallow: /a%2Ab", "/axb", true),
            ("user-agent: *\ndisallow: /a%24", "/a$", false),
            ("user-agent: *\ndisallow: /a%24", "/a$b", false),
            ("user-agent: *\ndisallow: /a%24", "/a", true),
            ("user-agent: *\ndisallow: /a*$", "/a*", false),
        ] {
            assert_eq!(allows(robots, path), allowed, "{robots:?} for {path}");
        }
    }

    #[test]
    fn hostile_rules_are_kept_only_so_far() {
        let rules = |number| {
            let text =
                "User-agent: *\n".to_owned() + &format!("Disallow: /{number}\n").repeat(30_000);
            Rules::parse(text.as_bytes(), "foobot")
        };
        let kept = Parsed::default();
        for number in 0..50 {
            kept.keep(&format!("robots/{number}"), rules(number));
            let all = kept.lock();
            let bytes: usize = all
                .rules
                .iter()
                .map(|(key, it)| key.len() + it.bytes())
                .sum();
            assert_eq!(all.bytes, bytes);
            assert!(bytes <= Parsed::MOST_BYTES);
        }
        assert!(kept.get("robots/49").is_some());
        assert!(kept.get("robots/0").is_none(), "it is read again");
    }

    #[test]
    fn a_pattern_of_stars_ends_soon() {
        let robots = format!("user-agent: *\ndisallow: /{}b", "*a".repeat(500));
        assert!(allows(&robots, &format!("/{}", "a".repeat(1_500))));
    }

    #[test]
    fn delays_and_sitemaps_are_read() {
        let text = "Sitemap: http://site.test/s.xml\nuser-agent: foobot\ncrawl-delay: 1.5\nuser-agent: *\ncrawl-delay: 7";
        let rules = Rules::parse(text.as_bytes(), "foobot");
        assert_eq!(rules.delay_ms, Some(1_500));
        assert_eq!(rules.sitemaps, ["http://site.test/s.xml"]);
        assert_eq!(Rules::parse(text.as_bytes(), "other").delay_ms, Some(7_000));
        let endless = b"user-agent: *\ncrawl-delay: 1e9";
        assert_eq!(Rules::parse(endless, "x").delay_ms, Some(MAX_DELAY_MS));
        let wrong = b"user-agent: *\ncrawl-delay: -1";
        assert_eq!(Rules::parse(wrong, "x").delay_ms, None);
    }
}
