//! The rules, pure: states, what may be done with a URL now, and what a failure leads to. No calls, no
//! clock, no SDK types.

use cloud::{Millis, Patience};
use serde::{Deserialize, Serialize};

/// How long a worker has a URL, to fetch it or to parse it. Longer than a request may take and than SQS
/// hides the message ([`crate::queue::VISIBILITY_SECONDS`]).
pub const LEASE_MS: Millis = 60_000;

/// How long a worker has a host's turn. Longer than a request may take ([`REQUEST_MS`]), so that a turn
/// that is taken from a dead worker has no request in it any more.
pub const TURN_MS: Millis = 30_000;

/// How long a request may take, with all of its body.
pub const REQUEST_MS: Millis = 20_000;

/// How long a call to S3 may take, with all its retries: the SDK's own limit is for transfers of any size,
/// and longer than a lease. An S3 that hangs must not use up the lease, and with it an attempt.
pub const BLOB_MS: Millis = 8_000;

/// How long a call to DynamoDB may take, with all its retries.
const CALL_MS: Millis = Patience::DEFAULT.operation.as_millis() as Millis;

/// A lease that could end inside a request would let two have one page, or two requests one host.
const _: () = assert!(REQUEST_MS < TURN_MS && TURN_MS < LEASE_MS);
/// A fetcher whose request took its whole turn, and whose S3 hangs, can still give the page back.
const _: () = assert!(TURN_MS + BLOB_MS + CALL_MS < LEASE_MS);
/// So can a parser: after a look at its lease it has at least half of it.
const _: () = assert!(BLOB_MS + CALL_MS < LEASE_MS / 2);

/// How much later than it should a URL may go on before somebody looks after it.
pub const GRACE_MS: Millis = 30_000;

/// How often a URL is fetched or parsed before it is given up.
pub const MAX_ATTEMPTS: u32 = 3;

/// How often a host may say "later" to one URL. Waiting uses up no attempts, but it has an end.
pub const MAX_WAITS: u32 = 20;

/// The longest that a host may make us wait for one answer.
pub const MAX_RETRY_AFTER_MS: Millis = 3_600_000;

/// The pause before the second attempt; it doubles with each.
pub const BACKOFF_MS: Millis = 2_000;
/// The longest pause after failures.
pub const LONGEST_BACKOFF_MS: Millis = backoff(u32::MAX);

/// The pause after so many failures before the last one.
pub const fn backoff(earlier: u32) -> Millis {
    BACKOFF_MS << if earlier < 10 { earlier } else { 10 }
}

/// How long a robots.txt is believed: RFC 9309 says a day at most.
pub const ROBOTS_MS: Millis = 86_400_000;

/// How often an unreachable robots.txt is asked for before the host's URLs fail.
pub const ROBOTS_ATTEMPTS: u32 = 3;

/// Where a URL is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Known, and to be fetched.
    Discovered,
    /// A worker has a lease on it and fetches.
    Fetching,
    /// An attempt failed, or the host said "later".
    Retrying,
    /// Its bytes are stored; it is to be parsed.
    Fetched,
    /// A worker has a lease on it and parses.
    Parsing,
    /// Its text is stored, and all that it links to is in the frontier.
    Parsed,
    /// Given up, for the reason in the row.
    Failed,
}

impl Status {
    /// As it stands in the row.
    pub fn word(self) -> &'static str {
        match self {
            Self::Discovered => "DISCOVERED",
            Self::Fetching => "FETCHING",
            Self::Retrying => "RETRYING",
            Self::Fetched => "FETCHED",
            Self::Parsing => "PARSING",
            Self::Parsed => "PARSED",
            Self::Failed => "FAILED",
        }
    }

    /// Whether nothing more is to be done.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Parsed | Self::Failed)
    }
}

/// What a URL stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// A page.
    Page,
    /// A list of pages that the site offers.
    Sitemap,
}

/// URLMetadataState: one for each canonical URL, for ever.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "tables.rs says what each is for")]
pub struct UrlMetadataState {
    pub url_hash: String,
    pub url: String,
    pub origin: String,
    pub kind: Kind,
    pub depth: u32,
    pub redirects: u32,
    pub status: Status,
    pub fence: u64,
    pub fetch_attempts: u32,
    pub parse_attempts: u32,
    pub waits: u32,
    pub not_before: Millis,
    pub lane: String,
    pub lane_at: Millis,
    pub discovered_at: Millis,
    pub discovery_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found_on: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_expires_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raw_blob_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_blob_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub etag: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_modified: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_to: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parsed_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub links: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// What is known about a host's robots.txt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Robots {
    /// It was read: `robots_key` has it.
    Known,
    /// There is none (4xx): everything is allowed.
    Absent,
    /// It could not be read (5xx, no answer): nothing is allowed.
    Unreachable,
    /// The host's address is one that a crawler must not be talked into.
    Forbidden,
}

/// DomainPolicyState: what everybody who crawls a host must agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "tables.rs says what each is for")]
pub struct DomainPolicyState {
    pub origin: String,
    pub next_allowed_at: Millis,
    pub turn_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn_ends_at: Option<Millis>,
    #[serde(default)]
    pub pages: u32,
    #[serde(default)]
    pub robots_failures: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robots: Option<Robots>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robots_key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub robots_expires_at: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crawl_delay_ms: Option<Millis>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// URLArtifactState: bytes that were seen, by their hash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "tables.rs says what each is for")]
pub struct UrlArtifactState {
    pub content_hash: String,
    pub raw_blob_key: String,
    pub content_type: String,
    pub bytes: u64,
    pub first_url_hash: String,
    pub stored_at: Millis,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_blob_key: Option<String>,
}

/// What may be done about a URL that somebody wants to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FetchDecision {
    /// Nothing: it is not waiting to be fetched.
    Echo,
    /// Somebody has it.
    Held {
        /// Until then.
        until: Millis,
    },
    /// Its time, or its host's, has not come.
    TooEarly {
        /// When it comes.
        at: Millis,
    },
    /// Somebody is at its host, for a moment, or until then if they died of it.
    Busy {
        /// The end of their turn.
        until: Millis,
    },
    /// First the host's robots.txt.
    NeedsRobots,
    /// It will not be fetched.
    Fail(String),
    /// Fetch it.
    Start,
}

/// What the host's robots.txt says about one URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It may be fetched.
    Allowed,
    /// It may not.
    Disallowed,
}

/// Decides about a fetch, on what was read at `now` or after it.
pub fn fetch_decision(
    url: &UrlMetadataState,
    host: Option<&DomainPolicyState>,
    verdict: Verdict,
    pages_per_host: u32,
    now: Millis,
) -> FetchDecision {
    match url.status {
        Status::Fetched | Status::Parsing | Status::Parsed | Status::Failed => {
            return FetchDecision::Echo;
        }
        Status::Fetching if url.lease_expires_at.is_some_and(|until| until > now) => {
            let until = url.lease_expires_at.unwrap_or(now);
            return FetchDecision::Held { until };
        }
        Status::Discovered | Status::Retrying | Status::Fetching => {}
    }
    if url.not_before > now {
        return FetchDecision::TooEarly { at: url.not_before };
    }
    if url.fetch_attempts >= MAX_ATTEMPTS {
        return FetchDecision::Fail("the worker died, again and again".to_owned());
    }
    let Some(host) = host else {
        return FetchDecision::NeedsRobots;
    };
    let known = host.robots_expires_at.is_some_and(|until| until > now);
    let wait = (host.next_allowed_at > now).then_some(host.next_allowed_at);
    match host.robots.filter(|_| known) {
        Some(Robots::Forbidden) => {
            return FetchDecision::Fail(host.reason.clone().unwrap_or_default());
        }
        Some(Robots::Unreachable) => {
            let why = host.reason.as_deref().unwrap_or("no answer");
            return FetchDecision::Fail(format!("robots.txt is unreachable: {why}"));
        }
        Some(_) if verdict == Verdict::Disallowed => {
            return FetchDecision::Fail("disallowed by robots.txt".to_owned());
        }
        Some(_) if is_first(url) && host.pages >= pages_per_host => {
            return FetchDecision::Fail(format!("more than {pages_per_host} pages of this host"));
        }
        Some(_) if wait.is_none() => return FetchDecision::Start,
        None if wait.is_none() => return FetchDecision::NeedsRobots,
        _ => {}
    }
    wait_for(host, now)
}

/// What to wait for at a host that may not be asked now.
pub fn wait_for(host: &DomainPolicyState, now: Millis) -> FetchDecision {
    match host.turn_ends_at.filter(|until| *until > now) {
        Some(until) => FetchDecision::Busy { until },
        None => FetchDecision::TooEarly {
            at: host.next_allowed_at,
        },
    }
}

/// Whether a fetch of it would be its first, which is when it counts against the host's pages.
pub fn is_first(url: &UrlMetadataState) -> bool {
    url.fence == 0
}

/// What comes after an attempt that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AfterFailure {
    /// Another one.
    Retry {
        /// When.
        at: Millis,
    },
    /// It is given up.
    GiveUp,
}

/// Another attempt after a pause that doubles, until there were enough.
pub fn after_failure(attempts: u32, now: Millis) -> AfterFailure {
    if attempts >= MAX_ATTEMPTS {
        return AfterFailure::GiveUp;
    }
    AfterFailure::Retry {
        at: now + backoff(attempts.saturating_sub(1)),
    }
}

/// How long to leave a host alone after a request.
pub fn delay(least: Millis, host: Option<Millis>) -> Millis {
    least.max(host.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url() -> UrlMetadataState {
        UrlMetadataState {
            url_hash: "h".into(),
            url: "http://site.test/".into(),
            origin: "http://site.test".into(),
            kind: Kind::Page,
            depth: 0,
            redirects: 0,
            status: Status::Discovered,
            fence: 0,
            fetch_attempts: 0,
            parse_attempts: 0,
            waits: 0,
            not_before: 0,
            lane: "watch-0".into(),
            lane_at: 0,
            discovered_at: 0,
            discovery_id: "find-1".into(),
            found_on: None,
            lease_owner: None,
            lease_expires_at: None,
            http_status: None,
            content_hash: None,
            content_type: None,
            raw_blob_key: None,
            text_blob_key: None,
            etag: None,
            last_modified: None,
            redirect_to: None,
            fetched_at: None,
            parsed_at: None,
            links: None,
            reason: None,
        }
    }

    fn host() -> DomainPolicyState {
        DomainPolicyState {
            origin: "http://site.test".into(),
            next_allowed_at: 100,
            turn_id: "t".into(),
            turn_ends_at: None,
            pages: 0,
            robots_failures: 0,
            robots: Some(Robots::Known),
            robots_key: None,
            robots_expires_at: Some(1_000),
            crawl_delay_ms: None,
            reason: None,
        }
    }

    #[test]
    fn a_decision_for_each_state_of_url_and_host() {
        let decide = |url: &UrlMetadataState, host: Option<&DomainPolicyState>, now| {
            fetch_decision(url, host, Verdict::Allowed, 5, now)
        };
        use FetchDecision::*;
        assert_eq!(decide(&url(), None, 0), NeedsRobots);
        assert_eq!(decide(&url(), Some(&host()), 99), TooEarly { at: 100 });
        assert_eq!(decide(&url(), Some(&host()), 100), Start);
        let taken = DomainPolicyState {
            turn_ends_at: Some(90),
            ..host()
        };
        assert_eq!(decide(&url(), Some(&taken), 50), Busy { until: 90 });
        assert_eq!(decide(&url(), Some(&taken), 95), TooEarly { at: 100 });
        assert_eq!(decide(&url(), Some(&host()), 1_000), NeedsRobots);
        let no = fetch_decision(&url(), Some(&host()), Verdict::Disallowed, 5, 0);
        assert!(matches!(no, Fail(_)), "nobody waits for a turn to learn no");
        let full = DomainPolicyState { pages: 5, ..host() };
        assert!(matches!(decide(&url(), Some(&full), 100), Fail(_)));
        let again = UrlMetadataState { fence: 1, ..url() };
        assert_eq!(decide(&again, Some(&full), 100), Start, "it is counted");
        for status in [
            Status::Fetched,
            Status::Parsing,
            Status::Parsed,
            Status::Failed,
        ] {
            let done = UrlMetadataState { status, ..url() };
            assert_eq!(decide(&done, Some(&host()), 100), Echo);
        }
        let held = UrlMetadataState {
            status: Status::Fetching,
            lease_expires_at: Some(200),
            ..url()
        };
        assert_eq!(decide(&held, Some(&host()), 199), Held { until: 200 });
        assert_eq!(decide(&held, Some(&host()), 200), Start);
        let worn = UrlMetadataState {
            fetch_attempts: MAX_ATTEMPTS,
            ..url()
        };
        assert!(matches!(decide(&worn, Some(&host()), 100), Fail(_)));
    }

    #[test]
    fn the_pause_doubles_and_attempts_end() {
        assert_eq!(after_failure(1, 0), AfterFailure::Retry { at: 2_000 });
        assert_eq!(after_failure(2, 0), AfterFailure::Retry { at: 4_000 });
        assert_eq!(after_failure(3, 0), AfterFailure::GiveUp);
    }
}
