//! Add seed URL to frontier: create target, frontier append.

use crate::canonical::canonical;
use crate::discover::{Discovered, Found};
use crate::domain::{GRACE_MS, Kind, Status, UrlMetadataState};
use crate::items::{settled, status, watch_lane};
use crate::{Crawler, CrawlerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard};

/// It is still given up, as it was when the seed was refused: who comes twice opens it once.
const GUARD: &str = "#status = :failed AND fence = :fence";
/// Attempts begin anew; the fence does not. A seed is no link away from itself.
const REOPEN: &str = "SET #status = :discovered, fetch_attempts = :none, waits = :none, \
     #depth = :none, redirects = :none, not_before = :now, lane = :watch, lane_at = :due \
     REMOVE reason";

/// Nothing is known of the host but that it did not answer: what was read stays for its day.
const ASK_AGAIN_GUARD: &str = "robots = :unreachable";
const ASK_AGAIN: &str = "SET robots_expires_at = :now";

impl Crawler {
    /// Adds a URL to begin with. Adding it again is no harm: if it was left without a message, it gets
    /// one from the sweeper. If it was given up, it is tried again, since somebody asks for it.
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
        let (mut discovered, old) = self.put_found(&seed).await?;
        if let Some(failed) = old.filter(|old| old.status == Status::Failed)
            && self.reopen_failed(&failed).await?
        {
            discovered = Discovered::Reopened;
        }
        if matches!(discovered, Discovered::New | Discovered::Reopened) {
            self.send_frontier(&seed.url.hash(), self.now()).await?;
        }
        Ok(discovered)
    }

    /// Opens what was given up. False if somebody else did, or it is something else by now.
    pub async fn reopen_failed(&self, failed: &UrlMetadataState) -> Result<bool, CrawlerError> {
        let now = self.now();
        // The host first: otherwise it would fail again for the same reason, for the rest of the day.
        let (Guard::Passed(_) | Guard::Failed(_)) = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("domain_policies"))
                .key("origin", s(&failed.origin))
                .update_expression(ASK_AGAIN)
                .condition_expression(ASK_AGAIN_GUARD)
                .expression_attribute_values(":unreachable", s("UNREACHABLE"))
                .expression_attribute_values(":now", n(now))
        )?;
        let opened = settled!(
            self.dynamodb()
                .update_item()
                .table_name(self.table("url_metadata"))
                .key("url_hash", s(&failed.url_hash))
                .update_expression(REOPEN)
                .condition_expression(GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_names("#depth", "depth")
                .expression_attribute_values(":failed", status(Status::Failed))
                .expression_attribute_values(":fence", n(failed.fence))
                .expression_attribute_values(":discovered", status(Status::Discovered))
                .expression_attribute_values(":none", n(0))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":watch", s(watch_lane(&failed.url_hash)))
                .expression_attribute_values(":due", n(now + GRACE_MS))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld
                )
        )?;
        let Guard::Failed(item) = opened else {
            return Ok(true);
        };
        let item = item.ok_or_else(|| CloudError::corrupt("a refusal without its item"))?;
        let item: UrlMetadataState = from_item(&item)?;
        // Our own write, whose answer was lost; or that of one who came by in the same millisecond, and
        // then there are two messages, which is no harm.
        Ok(item.status == Status::Discovered
            && item.fence == failed.fence
            && item.not_before == now)
    }
}
