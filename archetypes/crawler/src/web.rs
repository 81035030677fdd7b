//! One request, with its limits: no redirect is followed by itself, a body has an end, a request has a
//! deadline, and the address that is connected to has passed the [`crate::address_guard`].

use crate::address_guard::{AddressGuard, Forbidden};
use crate::domain::REQUEST_MS;
use cloud::{Cloud, Millis};
use futures::StreamExt;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, ETAG, HeaderMap, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LAST_MODIFIED, LOCATION, RETRY_AFTER,
};
use reqwest_middleware::ClientWithMiddleware;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use url::Url;

/// What this crawler is called. A robots.txt speaks to the first word of it.
pub const USER_AGENT: &str = "archetype-crawler/0.1";
/// The name in a robots.txt.
pub const PRODUCT: &str = "archetype-crawler";

/// An answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// The content type, in lower case.
    pub content_type: String,
    /// The validator for the next time.
    pub etag: Option<String>,
    /// The other one.
    pub last_modified: Option<String>,
    /// Where it redirects.
    pub location: Option<String>,
    /// When to come again, in ms from now.
    pub retry_after_ms: Option<Millis>,
    /// The body.
    pub body: Vec<u8>,
    /// Whether there was more of it than may be read.
    pub cut: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NoAnswer {
    /// Where a crawler may not go.
    #[error(transparent)]
    Forbidden(#[from] Forbidden),
    /// It took too long.
    #[error("no answer in {0:?}")]
    Timeout(Duration),
    /// It came in a way in which it was not asked for, and cannot be read.
    #[error("content encoding '{0}', which was not asked for")]
    Encoded(String),
    /// No connection, or one that broke.
    #[error("no answer: {0}")]
    Broken(String),
}

/// What is known from the last time, for a conditional request.
#[derive(Debug, Clone, Default)]
pub struct Validators {
    /// `If-None-Match`.
    pub etag: Option<String>,
    /// `If-Modified-Since`.
    pub last_modified: Option<String>,
}

/// The client. Every request of it passes the tap.
#[derive(Clone)]
pub struct Web {
    client: ClientWithMiddleware,
    guard: AddressGuard,
    deadline: Duration,
}

/// Which certificates are believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Https {
    /// Those of the machine.
    MachineRoots,
    /// None: for sites on the machine itself. Loading them takes a while.
    None,
}

impl Web {
    /// A client that goes nowhere the guard forbids.
    ///
    /// # Errors
    /// If the machine has no certificates that can be read.
    pub fn new(cloud: &Cloud, guard: AddressGuard, https: Https) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .user_agent(USER_AGENT)
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would resolve names where the guard cannot see it.
            .no_proxy()
            .dns_resolver(Arc::new(guard.clone()));
        #[cfg(feature = "https")]
        let client = client.tls_backend_preconfigured(tls(https)?);
        let _ = https;
        let client = client.build()?;
        Ok(Self {
            client: cloud.http(client),
            guard,
            deadline: Duration::from_millis(REQUEST_MS as u64),
        })
    }

    /// The same client with less time for a request. A turn is for [`REQUEST_MS`], so never with more.
    pub fn within(self, deadline: Duration) -> Self {
        Self {
            deadline: deadline.min(self.deadline),
            ..self
        }
    }

    /// Whether this build can ask for it: https needs the feature of that name.
    pub fn speaks(&self, url: &Url) -> bool {
        url.scheme() != "https" || cfg!(feature = "https")
    }

    /// The guard.
    pub fn address_guard(&self) -> &AddressGuard {
        &self.guard
    }

    /// One request. At most `most` bytes of its body are read. The time is given in the clock of the
    /// world, since a host's clock may be anything.
    pub async fn get(
        &self,
        url: &Url,
        known: &Validators,
        most: usize,
        now: Millis,
    ) -> Result<Answer, NoAnswer> {
        self.guard.check_literal(url)?;
        match tokio::time::timeout(self.deadline, self.ask(url, known, most, now)).await {
            Ok(answer) => answer,
            Err(_) => Err(NoAnswer::Timeout(self.deadline)),
        }
    }

    async fn ask(
        &self,
        url: &Url,
        known: &Validators,
        most: usize,
        now: Millis,
    ) -> Result<Answer, NoAnswer> {
        let mut request = self
            .client
            .get(url.clone())
            .header(
                ACCEPT,
                "text/html, application/xhtml+xml, text/plain, application/xml",
            )
            // Compressed, a body of a few kilobytes may be one of gigabytes.
            .header(ACCEPT_ENCODING, "identity");
        if let Some(etag) = &known.etag {
            request = request.header(IF_NONE_MATCH, etag);
        }
        if let Some(date) = &known.last_modified {
            request = request.header(IF_MODIFIED_SINCE, date);
        }
        let response = request.send().await.map_err(|error| no_answer(&error))?;
        let headers = response.headers();
        let text = |name| text(headers, name);
        let mut answer = Answer {
            status: response.status().as_u16(),
            content_type: text(CONTENT_TYPE).unwrap_or_default().to_ascii_lowercase(),
            etag: text(ETAG),
            last_modified: text(LAST_MODIFIED),
            location: text(LOCATION),
            retry_after_ms: text(RETRY_AFTER).and_then(|after| retry_after(&after, now)),
            body: Vec::new(),
            cut: false,
        };
        let encoding = text(CONTENT_ENCODING).unwrap_or_default();
        let plain = ["", "identity"].contains(&encoding.trim().to_ascii_lowercase().as_str());
        if !plain && response.status().is_success() {
            return Err(NoAnswer::Encoded(encoding.chars().take(50).collect()));
        }
        let mut body = response.bytes_stream();
        while let Some(bytes) = body.next().await {
            let bytes = bytes.map_err(|error| no_answer(&error))?;
            let room = most - answer.body.len();
            answer
                .body
                .extend_from_slice(&bytes[..bytes.len().min(room)]);
            if bytes.len() > room {
                answer.cut = true;
                break;
            }
        }
        Ok(answer)
    }
}

/// TLS on ring: the default provider is a long C build.
#[cfg(feature = "https")]
fn tls(https: Https) -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    if https == Https::MachineRoots {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth())
}

fn text(headers: &HeaderMap, name: reqwest::header::HeaderName) -> Option<String> {
    let value = headers.get(name)?;
    // A header is kept in the row; a hostile one is not.
    let value = value.to_str().ok().filter(|value| value.len() <= 2_000)?;
    Some(value.to_owned())
}

/// `120`, or a date.
fn retry_after(value: &str, now: Millis) -> Option<Millis> {
    if let Ok(seconds) = value.trim().parse::<u32>() {
        return Some(Millis::from(seconds) * 1_000);
    }
    let date = httpdate::parse_http_date(value.trim()).ok()?;
    let date = date.duration_since(UNIX_EPOCH).ok()?.as_millis() as Millis;
    Some((date - now).max(0))
}

/// Who refused, if the guard did; otherwise the innermost cause, since the outer ones say nothing.
fn no_answer(error: &(dyn std::error::Error + 'static)) -> NoAnswer {
    let mut cause = error;
    loop {
        if let Some(forbidden) = cause.downcast_ref::<Forbidden>() {
            return NoAnswer::Forbidden(forbidden.clone());
        }
        match cause.source() {
            Some(source) => cause = source,
            None => return NoAnswer::Broken(cause.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_a_number_or_a_date() {
        assert_eq!(retry_after("120", 0), Some(120_000));
        let date = "Thu, 01 Jan 1970 00:01:00 GMT";
        assert_eq!(retry_after(date, 10_000), Some(50_000));
        assert_eq!(retry_after(date, 70_000), Some(0), "it has passed");
        assert_eq!(retry_after("soon", 0), None);
    }
}
