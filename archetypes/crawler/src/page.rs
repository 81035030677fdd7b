//! What is in a page: its title, its text, its links. A tokenizer reads it; mis-nested tags do not
//! matter to either.

use crate::canonical::{Canonical, MAX_URL, link};
use crate::domain::{Kind, UrlMetadataState};
use crate::sitemap;
use html5gum::emitters::default::DefaultEmitter;
use html5gum::{Token, Tokenizer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use url::Url;

/// How many links of a page are followed. A page with more is a trap or a catalogue of one.
pub const MAX_LINKS: usize = 1_000;

/// How many are looked at: the same link again, and what is no address to crawl, count too.
const MAX_LOOKED_AT: usize = 10 * MAX_LINKS;

/// What is stored as text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    /// The title.
    pub title: String,
    /// The text, without what is not shown.
    pub text: String,
}

/// What a page says and where it leads.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// Title and text: they follow from the bytes alone, and so may be shared.
    pub text: Text,
    /// Links in the order they were met, each once.
    pub links: Vec<(Canonical, Kind)>,
}

/// Reads what was fetched from a URL. Its text follows from its bytes and their type alone, since that is
/// what it is stored under; where it leads depends on the URL too.
pub fn read(row: &UrlMetadataState, body: &[u8]) -> Page {
    let content_type = row.content_type.as_deref().unwrap_or_default();
    let Ok(base) = Url::parse(&row.url) else {
        return Page::default();
    };
    let decoded = decoded(content_type, body);
    let mut page = match is_html(content_type) {
        true => html(&decoded, &base),
        false => Page {
            text: Text {
                title: String::new(),
                text: spaced(&decoded),
            },
            links: Vec::new(),
        },
    };
    if let Some(to) = &row.redirect_to {
        // A redirect is a page with one link.
        let to = link(&base, to).map(|to| (to, row.kind));
        page.links = to.into_iter().collect();
    } else if !is_html(content_type) && (row.kind == Kind::Sitemap || is_xml(content_type)) {
        // What it is, it says itself: whoever came across it first may have taken it for something else.
        page.links = sitemap::links(&decoded, &base);
    }
    page
}

/// Whether links and text are to be looked for among tags.
fn is_html(content_type: &str) -> bool {
    content_type.contains("html")
}

/// Whether it may be a list of pages.
fn is_xml(content_type: &str) -> bool {
    content_type.contains("xml")
}

/// Bytes as text: by the header, else by what the page says of itself, else UTF-8.
fn decoded(content_type: &str, body: &[u8]) -> String {
    let head = String::from_utf8_lossy(&body[..body.len().min(1_024)]).to_ascii_lowercase();
    let named = |text: &str| {
        let (_, rest) = text.split_once("charset=")?;
        let name = rest.trim_start_matches(['"', '\'']);
        let end = name.find(['"', '\'', ';', '>', '/', ' ']);
        encoding_rs::Encoding::for_label(&name.as_bytes()[..end.unwrap_or(name.len())])
    };
    let encoding = named(content_type).or_else(|| named(&head));
    let (text, _, _) = encoding.unwrap_or(encoding_rs::UTF_8).decode(body);
    text.into_owned()
}

fn html(text: &str, base: &Url) -> Page {
    let mut emitter = DefaultEmitter::default();
    // So that what is inside script and style is not read as tags.
    emitter.naively_switch_states(true);
    let mut base = base.clone();
    let mut page = Page::default();
    let mut seen = BTreeSet::new();
    let (mut title, mut words) = (String::new(), String::new());
    let (mut in_title, mut hidden, mut based) = (false, 0_u32, false);
    let mut looked_at = 0;
    for Ok(token) in Tokenizer::new_with_emitter(text, emitter) {
        match token {
            Token::StartTag(tag) => {
                let attribute = |name: &str| {
                    let found = tag
                        .attributes
                        .iter()
                        .find(|(key, _)| **key == name.as_bytes());
                    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                };
                match &**tag.name {
                    b"title" => in_title = true,
                    b"script" | b"style" | b"noscript" | b"template" if !tag.self_closing => {
                        hidden += 1;
                    }
                    // Only the first one counts.
                    b"base" if !based => {
                        if let Some(there) = attribute("href")
                            .filter(|href| href.len() <= MAX_URL)
                            .and_then(|href| base.join(&href).ok())
                        {
                            (base, based) = (there, true);
                        }
                    }
                    // A page may have a hundred thousand; each costs the time to join it with the base.
                    b"a" | b"area" if looked_at < MAX_LOOKED_AT && page.links.len() < MAX_LINKS => {
                        looked_at += 1;
                        let nofollow = attribute("rel").is_some_and(|rel| {
                            let mut words = rel.split_whitespace();
                            words.any(|word| word.eq_ignore_ascii_case("nofollow"))
                        });
                        let to =
                            attribute("href").filter(|href| !nofollow && href.len() <= MAX_URL);
                        if let Some(Ok(to)) = to.map(|href| link(&base, &href))
                            && seen.insert(to.clone())
                        {
                            page.links.push((to, Kind::Page));
                        }
                    }
                    _ => {}
                }
                words.push(' ');
            }
            Token::EndTag(tag) => {
                match &**tag.name {
                    b"title" => in_title = false,
                    b"script" | b"style" | b"noscript" | b"template" => {
                        hidden = hidden.saturating_sub(1);
                    }
                    _ => {}
                }
                words.push(' ');
            }
            Token::String(text) => {
                let text = String::from_utf8_lossy(&text);
                if in_title {
                    title.push_str(&text);
                } else if hidden == 0 {
                    words.push_str(&text);
                }
            }
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
        }
    }
    page.text = Text {
        title: spaced(&title),
        text: spaced(&words),
    };
    page
}

/// One space between two words.
fn spaced(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn read_html(html: &str) -> (Text, Vec<String>) {
        let base = Url::parse("http://site.test/a/b").unwrap();
        let page = super::html(html, &base);
        let links = page.links.iter().map(|(url, _)| url.to_string());
        (page.text, links.collect())
    }

    #[test]
    fn links_are_found_as_a_browser_would() {
        let (_, links) = read_html(
            "<a href=c>c</a><A HREF='/d?x=1&amp;y=2'>d</A><a href=\"//other.test/\">o</a>\
             <a href='#part'>self</a><a href='mailto:x@y'>m</a><a href='javascript:x()'>j</a>\
             <a rel='NoFollow x' href=no>n</a><area href=e><a href=c>again</a>\
             <script>document.write('<a href=\"/script\">')</script><!-- <a href=/comment> -->",
        );
        assert_eq!(
            links,
            [
                "http://site.test/a/c",
                "http://site.test/d?x=1&y=2",
                "http://other.test/",
                "http://site.test/a/b",
                "http://site.test/a/e",
            ]
        );
        let (_, links) = read_html("<base href=/x/><base href=/y/><a href=1>");
        assert_eq!(links, ["http://site.test/x/1"]);
    }

    #[test]
    fn text_is_what_is_shown() {
        let (text, _) = read_html(
            "<title>A &amp; B</title><style>p{}</style><p>one<b>two</b>\n  three</p>\
             <script>var x = '<p>no</p>';</script>four",
        );
        assert_eq!(text.title, "A & B");
        assert_eq!(text.text, "one two three four");
    }

    #[test]
    fn a_page_has_only_so_many_links() {
        let many: String = (0..2_000).map(|n| format!("<a href=/{n}>")).collect();
        assert_eq!(read_html(&many).1.len(), MAX_LINKS);
        // Also of those that lead nowhere new, which cost as much.
        let same = "<a href=/same>".repeat(MAX_LOOKED_AT);
        assert_eq!(read_html(&format!("{same}<a href=/late>")).1.len(), 1);
    }

    #[test]
    fn what_is_longer_than_any_address_is_not_joined() {
        let long = "a/".repeat(MAX_URL);
        let (_, links) = read_html(&format!("<base href=\"/{long}\"><a href={long}><a href=b>"));
        assert_eq!(links, ["http://site.test/a/b"]);
    }

    #[test]
    fn bytes_are_read_in_the_encoding_they_were_written_in() {
        assert_eq!(decoded("text/html; charset=iso-8859-1", b"\xe4"), "ä");
        assert_eq!(
            decoded("text/html", b"<meta charset=windows-1252>\x80"),
            "<meta charset=windows-1252>€"
        );
        assert_eq!(decoded("text/html", "ä".as_bytes()), "ä");
    }
}
