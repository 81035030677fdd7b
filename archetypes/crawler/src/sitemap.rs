//! Sitemaps: a list of pages that a site offers, or a list of such lists. Named in robots.txt, fetched and
//! parsed as any URL, and subject to the same rules.

use crate::canonical::{Canonical, MAX_URL, link};
use crate::domain::Kind;
use crate::page::MAX_LINKS;
use html5gum::{Token, Tokenizer};
use url::Url;

/// The `<loc>` entries: of a `<sitemapindex>` sitemaps, of a `<urlset>` pages. Nothing, if it is neither.
/// A prefix of the root is that of its entries; `<image:loc>` is something else.
pub fn links(text: &str, base: &Url) -> Vec<(Canonical, Kind)> {
    let mut found = Vec::new();
    let mut root: Option<(Kind, Vec<u8>)> = None;
    let mut loc: Option<String> = None;
    for Ok(token) in Tokenizer::new(text) {
        match (token, &root) {
            (Token::StartTag(tag), None) => {
                let colon = tag.name.iter().position(|byte| *byte == b':');
                let (prefix, name) = tag.name.split_at(colon.map_or(0, |at| at + 1));
                let kind = match name {
                    b"urlset" => Kind::Page,
                    b"sitemapindex" => Kind::Sitemap,
                    _ => return Vec::new(),
                };
                root = Some((kind, [prefix, b"loc"].concat()));
            }
            (Token::StartTag(tag), Some((_, entry))) if **tag.name == **entry => {
                loc = Some(String::new());
            }
            (Token::String(text), _) => {
                if let Some(loc) = &mut loc {
                    loc.push_str(&String::from_utf8_lossy(&text));
                }
            }
            // To a tokenizer of HTML, `<![CDATA[` is an odd way to begin a comment.
            (Token::Comment(text), _) => {
                let inside = text.strip_prefix(b"[CDATA[".as_slice());
                let inside = inside.and_then(|text| text.strip_suffix(b"]]".as_slice()));
                if let (Some(loc), Some(inside)) = (&mut loc, inside) {
                    loc.push_str(&String::from_utf8_lossy(inside));
                }
            }
            (Token::EndTag(tag), Some((kind, entry))) if **tag.name == **entry => {
                if found.len() == MAX_LINKS {
                    return found;
                }
                let loc = loc.take().filter(|loc| loc.trim().len() <= MAX_URL);
                if let Some(Ok(url)) = loc.map(|loc| link(base, &loc)) {
                    found.push((url, *kind));
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
    #[test]
    fn an_entry_is_found_in_cdata_and_under_the_prefix_of_its_root() {
        let base = Url::parse("http://site.test/sitemap.xml").unwrap();
        let found = |text: &str| {
            let urls = links(text, &base).into_iter();
            urls.map(|(url, _)| url.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            found("<urlset><url><loc><![CDATA[http://site.test/a?x=1&y=2]]></loc></url></urlset>"),
            ["http://site.test/a?x=1&y=2"]
        );
        assert_eq!(
            found(
                "<sm:urlset><sm:url><sm:loc>/b</sm:loc><image:loc>/i</image:loc></sm:url></sm:urlset>"
            ),
            ["http://site.test/b"]
        );
        assert_eq!(
            found(
                "<urlset><url><loc>/c</loc><image:loc>/i</image:loc><!-- <loc>/d</loc> --></url></urlset>"
            ),
            ["http://site.test/c"]
        );
        let none: [&str; 0] = [];
        assert_eq!(found("<rss><loc>/e</loc></rss>"), none);
        assert_eq!(found("no tag at all"), none);
    }
}
