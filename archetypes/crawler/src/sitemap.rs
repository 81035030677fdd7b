//! Sitemaps: a list of pages that a site offers, or a list of such lists. Named in robots.txt, fetched and
//! parsed as any URL, and subject to the same rules.

use crate::canonical::{Canonical, link};
use crate::domain::Kind;
use crate::page::MAX_LINKS;
use html5gum::{Token, Tokenizer};
use url::Url;

/// The `<loc>` entries: of a `<sitemapindex>` sitemaps, of a `<urlset>` pages.
pub fn links(text: &str, base: &Url) -> Vec<(Canonical, Kind)> {
    let mut found = Vec::new();
    let mut kind = Kind::Page;
    let mut loc: Option<String> = None;
    for Ok(token) in Tokenizer::new(text) {
        match token {
            Token::StartTag(tag) => match &**tag.name {
                b"sitemapindex" => kind = Kind::Sitemap,
                b"loc" => loc = Some(String::new()),
                _ => {}
            },
            Token::String(text) => {
                if let Some(loc) = &mut loc {
                    loc.push_str(&String::from_utf8_lossy(&text));
                }
            }
            Token::EndTag(tag) if **tag.name == *b"loc" => {
                if let Some(Ok(url)) = loc.take().map(|loc| link(base, &loc))
                    && found.len() < MAX_LINKS
                {
                    found.push((url, kind));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn pages_and_lists_of_lists_are_told_apart() {
        let base = Url::parse("http://site.test/sitemap.xml").unwrap();
        let pages = links(
            "<?xml version=\"1.0\"?><urlset><url><loc> http://site.test/a?x=1&amp;y=2\n</loc></url>\
             <url><loc>ftp://site.test/x</loc></url></urlset>",
            &base,
        );
        let urls: Vec<_> = pages
            .iter()
            .map(|(url, kind)| (url.as_str(), *kind))
            .collect();
        assert_eq!(urls, [("http://site.test/a?x=1&y=2", Kind::Page)]);
        let lists = links(
            "<sitemapindex><sitemap><loc>/s1.xml</loc></sitemap></sitemapindex>",
            &base,
        );
        assert_eq!(lists[0].0.as_str(), "http://site.test/s1.xml");
        assert_eq!(lists[0].1, Kind::Sitemap);
    }
}
