//! Dedup discovered child URL: create it, unless it is known; then a message.
//!
//! The documents put, then send: who dies in between leaves a URL that is DISCOVERED, has no message, and
//! never gets one, since discovering it again fails the condition. Here the row is its own outbox: it is
//! in the watch lane with a time by which it should have gone on, and the sweeper sends what is late.

use crate::canonical::Canonical;
use crate::domain::{GRACE_MS, Kind, Status, UrlMetadataState};
use crate::items::{settled, status, watch_lane};
use crate::{ATTEMPTS, Crawler, CrawlerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s, to_item};
use cloud::{CloudError, Guard, Millis};

/// A URL that somebody came across.
#[derive(Debug, Clone)]
pub struct Found {
    /// Which.
    pub url: Canonical,
    /// A page or a list of pages.
    pub kind: Kind,
    /// How many links from a seed.
    pub depth: u32,
    /// How many redirects in a row led here.
    pub redirects: u32,
    /// The hash of the page it was found on; none for a seed.
    pub found_on: Option<String>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovered {
    /// It is new, and has a row; it still needs its message.
    New,
    /// It was known, by a way that is as short.
    Known,
    /// It was known, by a longer way. The row has the shorter one now.
    Shortened,
    /// It had been given up, and is tried again, because it was asked for: only a seed is.
    Reopened,
    /// Another URL has this hash. It is not crawled.
    Collision {
        /// The other one.
        with: String,
    },
}

/// One row for each canonical URL: whoever comes first.
const NEW_GUARD: &str = "attribute_not_exists(url_hash)";

/// It is as it was when the shorter way was found: shorter ways of others, and the end of its parsing,
/// change one of these.
const SHORTEN_GUARD: &str =
    "#status = :seen AND #depth = :old_depth AND redirects = :old_redirects";

const SHORTEN: &str = "SET #depth = :depth, redirects = :redirects";
/// What was parsed with less to go is parsed again: its links are now within reach.
const REOPEN: &str = "SET #depth = :depth, redirects = :redirects, #status = :fetched, \
     parse_attempts = :none, waits = :none, not_before = :now, lane = :watch, lane_at = :due";

impl Crawler {
    /// Writes down a URL, if it is new. The message is another call: see [`Crawler::expand`] and
    /// [`Crawler::add_seed`].
    pub async fn discover(&self, found: &Found) -> Result<Discovered, CrawlerError> {
        let hash = found.url.hash();
        // Whoever knows that a row is there need not ask: rows are never deleted, and ways only get
        // shorter.
        if self.known.has(&hash, found.depth, found.redirects) {
            return Ok(Discovered::Known);
        }
        Ok(self.put_found(found).await?.0)
    }

    /// The same, whatever this process remembers; and the row that stood there, if one did.
    pub(crate) async fn put_found(
        &self,
        found: &Found,
    ) -> Result<(Discovered, Option<UrlMetadataState>), CrawlerError> {
        let hash = found.url.hash();
        let now = self.now();
        let fresh = UrlMetadataState::discovered(
            &found.url,
            found.kind,
            found.depth,
            found.redirects,
            found.found_on.as_deref(),
            self.cloud.ids().next("find"),
            now,
        );
        let put = settled!(
            self.dynamodb()
                .put_item()
                .table_name(self.table("url_metadata"))
                .set_item(Some(to_item(&fresh)?))
                .condition_expression(NEW_GUARD)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        let old: UrlMetadataState = match put {
            Guard::Passed(_) => {
                self.known.add(&hash, found.depth, found.redirects);
                return Ok((Discovered::New, None));
            }
            Guard::Failed(Some(old)) => from_item(&old)?,
            Guard::Failed(None) => {
                return Err(CloudError::corrupt("a refusal without its item").into());
            }
        };
        if old.url != fresh.url {
            return Ok((Discovered::Collision { with: old.url }, None));
        }
        // Our own put, whose answer was lost: it needs a message.
        if old.discovery_id == fresh.discovery_id {
            self.known.add(&hash, found.depth, found.redirects);
            return Ok((Discovered::New, None));
        }
        let shorter = self.shorten(old.clone(), found.depth, found.redirects, now);
        Ok((shorter.await?, Some(old)))
    }

    /// Ways are found in any order, and the longer one may come first. Without this, what is within
    /// reach by the shorter way would be cut off by the longer one. Depth and redirects shrink each by
    /// itself: the end is the same whatever the order.
    async fn shorten(
        &self,
        mut old: UrlMetadataState,
        depth: u32,
        redirects: u32,
        now: Millis,
    ) -> Result<Discovered, CrawlerError> {
        let hash = old.url_hash.clone();
        let mut shortened = false;
        for _ in 0..ATTEMPTS {
            let shorter = (depth.min(old.depth), redirects.min(old.redirects));
            if shorter == (old.depth, old.redirects) || old.status == Status::Failed {
                self.known.add(&hash, depth, redirects);
                return Ok(if shortened {
                    Discovered::Shortened
                } else {
                    Discovered::Known
                });
            }
            // Its links only matter if they are within reach. Where it redirects is no deeper than itself.
            let reopen = old.status == Status::Parsed
                && (shorter.0 < self.rules.max_depth || old.redirect_to.is_some());
            let update = self
                .dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(&hash))
                .update_expression(if reopen { REOPEN } else { SHORTEN })
                .condition_expression(SHORTEN_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_names("#depth", "depth")
                .expression_attribute_values(":seen", status(old.status))
                .expression_attribute_values(":old_depth", n(old.depth))
                .expression_attribute_values(":old_redirects", n(old.redirects))
                .expression_attribute_values(":depth", n(shorter.0))
                .expression_attribute_values(":redirects", n(shorter.1))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            let update = if reopen {
                update
                    .expression_attribute_values(":fetched", status(Status::Fetched))
                    .expression_attribute_values(":none", n(0))
                    .expression_attribute_values(":now", n(now))
                    .expression_attribute_values(":watch", s(watch_lane(&hash)))
                    .expression_attribute_values(":due", n(now + GRACE_MS))
            } else {
                update
            };
            match settled!(update)? {
                Guard::Passed(_) => {
                    if reopen {
                        let key = old.raw_blob_key.clone().unwrap_or_default();
                        self.enqueue_parse(&hash, &key).await?;
                    }
                    self.known.add(&hash, depth, redirects);
                    return Ok(Discovered::Shortened);
                }
                Guard::Failed(Some(item)) => {
                    old = from_item(&item)?;
                    // If the answer was lost, the row already has our way; what is reopened and has no
                    // message yet is found by the sweeper.
                    shortened = true;
                }
                Guard::Failed(None) => {
                    return Err(CloudError::corrupt("a refusal without its item").into());
                }
            }
        }
        Err(CrawlerError::Contended)
    }
}
