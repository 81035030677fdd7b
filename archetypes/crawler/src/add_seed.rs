//! Add seed URL to frontier: create target, frontier append.

use crate::canonical::canonical;
use crate::discover::{Discovered, Found};
use crate::domain::Kind;
use crate::{Crawler, CrawlerError};

impl Crawler {
    /// Adds a URL to begin with. Adding it again is no harm: if it was left without a message, it gets
    /// one from the sweeper.
    pub async fn add_seed(&self, text: &str) -> Result<Discovered, CrawlerError> {
        let url = canonical(text)?;
        self.web.address_guard().check_literal(url.url())?;
        if !self.web.speaks(url.url()) {
            return Err(CrawlerError::NoHttps);
        }
        if !self.rules.reaches(&url) {
            return Err(CrawlerError::OutOfScope(url.as_str().to_owned()));
        }
        let seed = Found {
            url,
            kind: Kind::Page,
            depth: 0,
            redirects: 0,
            found_on: None,
        };
        let discovered = self.discover(&seed).await?;
        if discovered == Discovered::New {
            self.send_frontier(&seed.url.hash(), self.now()).await?;
        }
        Ok(discovered)
    }
}
