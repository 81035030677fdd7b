//! States as items: keys, lanes, and the reads that decisions begin with.

use crate::Crawler;
use crate::canonical::Canonical;
use crate::domain::{DomainPolicyState, GRACE_MS, Kind, Status, UrlMetadataState};
use crate::tables::SHARDS;
use aws_sdk_dynamodb::types::AttributeValue;
use cloud::item::{from_item, s, shard_of};
use cloud::{CloudError, Item, Millis};

/// The lane of what is not finished: where the sweeper looks.
pub fn watch_lane(url_hash: &str) -> String {
    lane("watch", url_hash)
}

/// The lane of what is parsed, in the order it was fetched.
pub fn parsed_lane(url_hash: &str) -> String {
    lane("parsed", url_hash)
}

/// The lane of what was given up.
pub fn failed_lane(url_hash: &str) -> String {
    lane("failed", url_hash)
}

fn lane(name: &str, url_hash: &str) -> String {
    format!("{name}-{}", shard_of(url_hash, SHARDS))
}

/// A status as its attribute.
pub(crate) fn status(status: Status) -> AttributeValue {
    s(status.word())
}

impl UrlMetadataState {
    /// A URL as it is discovered.
    pub fn discovered(
        url: &Canonical,
        kind: Kind,
        depth: u32,
        redirects: u32,
        found_on: Option<&str>,
        discovery_id: String,
        now: Millis,
    ) -> Self {
        let url_hash = url.hash();
        Self {
            lane: watch_lane(&url_hash),
            url_hash,
            url: url.as_str().to_owned(),
            origin: url.origin(),
            kind,
            depth,
            redirects,
            status: Status::Discovered,
            fence: 0,
            fetch_attempts: 0,
            parse_attempts: 0,
            waits: 0,
            not_before: now,
            lane_at: now + GRACE_MS,
            discovered_at: now,
            discovery_id,
            found_on: found_on.map(str::to_owned),
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
}

impl Crawler {
    /// One URL. Consistent: refusals rest on it.
    pub async fn read_url(&self, url_hash: &str) -> Result<Option<UrlMetadataState>, CloudError> {
        // DynamoDB would call an empty key a wrong request.
        if url_hash.is_empty() {
            return Ok(None);
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("url_metadata"))
            .key("url_hash", s(url_hash))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// What everybody agrees on about a host. Consistent.
    pub async fn read_policy(&self, origin: &str) -> Result<Option<DomainPolicyState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("domain_policies"))
            .key("origin", s(origin))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// Many URLs by their hashes, in no order.
    pub async fn read_urls(&self, hashes: &[String]) -> Result<Vec<UrlMetadataState>, CloudError> {
        let mut all = Vec::new();
        for batch in hashes.chunks(100) {
            let keys = batch
                .iter()
                .map(|hash| Item::from([("url_hash".to_owned(), s(hash))]))
                .collect();
            let mut found = self
                .cloud
                .read_batch(vec![("url_metadata", keys)], true)
                .await?;
            for item in found.remove("url_metadata").unwrap_or_default() {
                all.push(from_item(&item)?);
            }
        }
        Ok(all)
    }
}

/// Sends a guarded write, and again while another transaction has its item: on AWS a plain write is then
/// refused, and what was fetched must not be lost for that.
macro_rules! settled {
    ($write:expr) => {{
        let write = $write;
        let mut attempt = 0;
        loop {
            match cloud::Guarded::guarded(write.clone().send().await) {
                Err(cloud::CloudError::Conflict(_)) if attempt < crate::ATTEMPTS => {
                    cloud::item::pause(attempt).await;
                    attempt += 1;
                }
                other => break other,
            }
        }
    }};
}
pub(crate) use settled;
