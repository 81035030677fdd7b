//! One page, one URL: the rule by which two ways of writing an address are the same.
//!
//! What is done, and no more:
//! - only `http` and `https`; no user and password;
//! - what the URL standard does by parsing: scheme and host in lower case, IDNA, `.` and `..` in the
//!   path resolved, the default port dropped, an empty path is `/`;
//! - the dot after a host that stands for the root of all names (`site.test.`) is dropped;
//! - the fragment is dropped: it never reaches the server;
//! - percent-escapes of characters that need none (`%7E`, `%61`) are written plainly, and those that stay
//!   are in upper case, as RFC 3986 says; a `%` that begins no escape is one itself, `%25`;
//! - query pairs are sorted by name, and pairs of the same name keep their order, since some servers
//!   give it a meaning; an empty query is none;
//! - [`TRACKING`] parameters are dropped: they say where a reader came from, not what they read.
//!
//! What is not done, because it would be wrong on some site: a trailing slash, `index.html` and `www.`
//! stay as they are.

use sha2::{Digest, Sha256};
use std::fmt;
use url::Url;

/// Parameters that say where a reader came from. A name that ends in `*` is a prefix.
pub const TRACKING: &[&str] = &[
    "utm_*", "fbclid", "gclid", "dclid", "msclkid", "mc_cid", "mc_eid", "igshid", "yclid",
];

/// As long as an address may be: beyond that it is a trap or a mistake.
pub const MAX_URL: usize = 2_000;

/// A canonical URL. There is no other way to make one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Canonical(Url);

/// Why something is no address to crawl.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoUrl {
    /// It does not parse.
    #[error("'{0}' is not a URL: {1}")]
    Unreadable(String, String),
    /// Only http and https are crawled.
    #[error("'{0}' is not http or https")]
    Scheme(String),
    /// Names and passwords do not belong into a frontier.
    #[error("'{0}' has a user or a password in it")]
    Credentials(String),
    /// Too long.
    #[error("a URL of {0} characters: at most {MAX_URL}")]
    TooLong(usize),
}

/// The canonical form of what somebody typed.
pub fn canonical(text: &str) -> Result<Canonical, NoUrl> {
    let parsed = Url::parse(text.trim());
    of(parsed.map_err(|why| NoUrl::Unreadable(text.to_owned(), why.to_string()))?)
}

/// The canonical form of a link on a page.
pub fn link(base: &Url, href: &str) -> Result<Canonical, NoUrl> {
    let joined = base.join(href.trim());
    of(joined.map_err(|why| NoUrl::Unreadable(href.to_owned(), why.to_string()))?)
}

fn shown_of(url: &Url) -> String {
    url.as_str().chars().take(200).collect()
}

fn of(mut url: Url) -> Result<Canonical, NoUrl> {
    let shown = || shown_of(&url);
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(NoUrl::Scheme(shown()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        // Not shown: it would be written down.
        return Err(NoUrl::Credentials(
            url.host_str().unwrap_or_default().to_owned(),
        ));
    }
    if url.as_str().len() > MAX_URL {
        return Err(NoUrl::TooLong(url.as_str().len()));
    }
    if let Some(host) = url.host_str().and_then(|host| host.strip_suffix('.')) {
        let host = host.to_owned();
        let set = url.set_host(Some(&host));
        set.map_err(|why| NoUrl::Unreadable(shown_of(&url), why.to_string()))?;
    }
    url.set_fragment(None);
    let path = plain(url.path());
    url.set_path(&path);
    let query = url.query().map(sorted);
    url.set_query(query.as_deref().filter(|query| !query.is_empty()));
    // What was written out may have made it longer.
    match url.as_str().len() {
        long if long > MAX_URL => Err(NoUrl::TooLong(long)),
        _ => Ok(Canonical(url)),
    }
}

/// Escapes as RFC 3986 wants them: none for what needs none, the others in upper case.
pub(crate) fn plain(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = String::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = |at: usize| Some((*bytes.get(at)? as char).to_digit(16)? as u8);
        match (bytes[at], hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                let byte = high * 16 + low;
                if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                    plain.push(byte as char);
                } else {
                    plain.push_str(&format!("%{byte:02X}"));
                }
                at += 3;
            }
            // Left as it is, it would begin an escape with what comes after it is plain.
            (b'%', ..) => {
                plain.push_str("%25");
                at += 1;
            }
            _ => {
                let rest = &text[at..];
                let next = rest.chars().next().unwrap_or_default();
                plain.push(next);
                at += next.len_utf8();
            }
        }
    }
    plain
}

fn sorted(query: &str) -> String {
    let mut pairs: Vec<(String, String)> = query
        .split('&')
        .filter(|pair| !pair.is_empty())
        .map(plain)
        .map(|pair| (pair.split('=').next().unwrap_or_default().to_owned(), pair))
        .filter(|(name, _)| !is_tracking(name))
        .collect();
    // Stable: pairs of one name keep their order.
    pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
    let pairs: Vec<_> = pairs.into_iter().map(|(_, pair)| pair).collect();
    pairs.join("&")
}

fn is_tracking(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TRACKING.iter().any(|known| match known.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *known,
    })
}

impl Canonical {
    /// The URL.
    pub fn url(&self) -> &Url {
        &self.0
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The key: half of a SHA-256, in hexadecimal. The whole URL is kept beside it and compared.
    pub fn hash(&self) -> String {
        hex(&Sha256::digest(self.as_str().as_bytes())[..16])
    }

    /// Scheme, host and port, as RFC 9309 wants it: what has one robots.txt and one turn at a time.
    pub fn origin(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

impl fmt::Display for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn two_ways_of_writing_one_address_are_the_same() {
        for (given, canonical_form) in [
            ("HTTP://Site.Test", "http://site.test/"),
            ("http://site.test:80/a#part", "http://site.test/a"),
            ("https://site.test:443/a", "https://site.test/a"),
            ("http://site.test:8080/a", "http://site.test:8080/a"),
            ("http://site.test./a", "http://site.test/a"),
            ("http://site.test.:8080/a", "http://site.test:8080/a"),
            ("http://site.test/a/../b/./c", "http://site.test/b/c"),
            (
                "http://site.test/%7euser/%61%2f",
                "http://site.test/~user/a%2F",
            ),
            (
                "http://site.test/?b=2&a=1&b=1",
                "http://site.test/?a=1&b=2&b=1",
            ),
            ("http://site.test/?", "http://site.test/"),
            (
                "http://site.test/?utm_source=x&id=7&fbclid=y",
                "http://site.test/?id=7",
            ),
            ("http://site.test/?UTM_Medium=x", "http://site.test/"),
            ("http://site.test/ö?q=ü", "http://site.test/%C3%B6?q=%C3%BC"),
            ("http://bücher.test/", "http://xn--bcher-kva.test/"),
            ("  http://site.test/a \n", "http://site.test/a"),
            ("http://site.test/%%341", "http://site.test/%2541"),
            ("http://site.test/100%?q=%", "http://site.test/100%25?q=%25"),
        ] {
            let once = canonical(given).unwrap();
            assert_eq!(once.as_str(), canonical_form, "{given}");
            assert_eq!(canonical(once.as_str()).unwrap(), once, "{given}");
        }
        // These are different pages on some site.
        let other = |one, other| canonical(one).unwrap() != canonical(other).unwrap();
        assert!(other("http://site.test/a", "http://site.test/a/"));
        assert!(other("http://site.test/a", "http://www.site.test/a"));
        assert!(other("http://site.test/a%2Fb", "http://site.test/a/b"));
        assert!(other("http://site.test/", "https://site.test/"));
    }

    #[test]
    fn what_is_no_address_is_told_why() {
        let why = |text: &str| canonical(text).unwrap_err();
        assert!(matches!(why("site.test"), NoUrl::Unreadable(..)));
        assert!(matches!(why("ftp://site.test/"), NoUrl::Scheme(_)));
        assert!(matches!(why("mailto:a@b.test"), NoUrl::Scheme(_)));
        assert!(matches!(
            why("http://u:p@site.test/"),
            NoUrl::Credentials(_)
        ));
        assert!(
            !why("http://u:secret@site.test/")
                .to_string()
                .contains("secret")
        );
        let long = format!("http://site.test/{}", "a".repeat(MAX_URL));
        assert!(matches!(why(&long), NoUrl::TooLong(_)));
    }
}
