//! Expand frontier with linked URLs: each link a conditional put, each new one a message.
//!
//! This comes before PARSED, not after it as in the documents: who dies after the mark would leave a
//! page that looks finished and whose links nobody will ever look at. Doing it twice is no harm.

use crate::canonical::Canonical;
use crate::discover::{Discovered, Found};
use crate::domain::{Kind, UrlMetadataState};
use crate::{Crawler, CrawlerError};
use futures::StreamExt;

/// What became of the links of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expanded {
    /// Links that are within the rules.
    pub links: u32,
    /// Of these, the ones nobody had come across.
    pub new: u32,
}

impl Crawler {
    /// What a page leads to, within the rules: its links, or where it redirects.
    pub fn children(&self, page: &UrlMetadataState, links: &[(Canonical, Kind)]) -> Vec<Found> {
        let hops = page.redirect_to.is_some();
        // A redirect is one click, however many hops it takes; but hops have a limit of their own.
        let (depth, redirects) = match (hops, page.kind) {
            (true, _) => (page.depth, page.redirects + 1),
            (false, Kind::Page | Kind::Sitemap) => (page.depth + 1, 0),
        };
        if depth > self.rules.max_depth || redirects > self.rules.max_redirects {
            return Vec::new();
        }
        let within = links
            .iter()
            .filter(|(url, _)| self.rules.reaches(url) && self.web.speaks(url.url()))
            .filter(|(url, _)| self.web.address_guard().check_literal(url.url()).is_ok())
            // A site speaks for itself: a sitemap may not send us elsewhere.
            .filter(|(url, _)| page.kind == Kind::Page || url.origin() == page.origin);
        within
            .map(|(url, kind)| Found {
                url: url.clone(),
                kind: *kind,
                depth,
                redirects,
                found_on: Some(page.url_hash.clone()),
            })
            .collect()
    }

    /// Puts all of these into the frontier.
    pub async fn expand(&self, children: &[Found]) -> Result<Expanded, CrawlerError> {
        let puts: Vec<_> = children.iter().map(|child| self.discover(child)).collect();
        let puts = futures::stream::iter(puts).buffered(self.rules.puts_at_once.max(1));
        let found = puts.collect::<Vec<_>>().await;
        let mut new = Vec::new();
        let mut failed = None;
        for (child, discovered) in children.iter().zip(found) {
            match discovered {
                Ok(Discovered::New) => new.push(child.url.hash()),
                Ok(Discovered::Known | Discovered::Shortened | Discovered::Reopened) => {}
                Ok(Discovered::Collision { with }) => {
                    eprintln!("{} is not crawled: it has the hash of {with}", child.url);
                }
                Err(error) => failed = Some(error),
            }
        }
        self.send_frontier_batch(&new).await?;
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(Expanded {
            links: children.len() as u32,
            new: new.len() as u32,
        })
    }
}
