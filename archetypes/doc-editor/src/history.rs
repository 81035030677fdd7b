//! History: the text at any version, from the nearest snapshot at or below it.
//!
//! Snapshots are kept, and each brings the operations that led to it, so a version is never lost: below the
//! log's base it is read from the archive.

use crate::domain::{Canon, Entry, Version};
use crate::items::{SnapshotItem, padded};
use crate::{DocumentError, DocumentService};
use cloud::CloudError;
use cloud::item::{all_items, from_item, s};

/// How often a read begins again because a snapshot was made while it read.
const ATTEMPTS: u32 = 10;

impl DocumentService {
    /// The text as it was at a version.
    pub async fn text_at(
        &self,
        document_id: &str,
        version: Version,
    ) -> Result<String, DocumentError> {
        crate::domain::valid_id("document id", document_id)?;
        let head = self.known_document(document_id).await?.version;
        if version > head {
            return Err(DocumentError::UnknownVersion { version, head });
        }
        let Some(snapshot) = self.snapshot_below(document_id, version).await? else {
            let what = format!("document {document_id} has no snapshot below {version}");
            return Err(CloudError::Corrupt(what).into());
        };
        let text = self.snapshot_text(&snapshot).await?;
        let mut canon = Canon::new(snapshot.version()?, &text, 0);
        let entries = self
            .entries_between(document_id, canon.version(), version)
            .await?;
        canon.follow(entries)?;
        Ok(canon.text().to_string())
    }

    /// The operations of the versions `after < v <= until`, from the log or the archive.
    pub async fn entries_between(
        &self,
        document_id: &str,
        after: Version,
        until: Version,
    ) -> Result<Vec<Entry>, DocumentError> {
        let whole = |entries: &[Entry]| entries.len() as u64 == until.saturating_sub(after);
        for _ in 0..ATTEMPTS {
            let log = self.read_log(document_id, after, Some(until)).await?;
            if whole(&log) {
                return Ok(log);
            }
            // What the log no longer had, the archive has by now.
            let mut entries: Vec<Entry> = Vec::new();
            let mut reached = after;
            for snapshot in self.snapshots_from(document_id, after + 1).await? {
                if reached >= until {
                    break;
                }
                let archived = self.archived(&snapshot).await?;
                let wanted = reached + 1..=until;
                entries.extend(archived.into_iter().filter(|e| wanted.contains(&e.version)));
                reached = entries.last().map_or(after, |entry| entry.version);
            }
            let rest = log.into_iter().filter(|entry| entry.version > reached);
            entries.extend(rest);
            if whole(&entries) {
                return Ok(entries);
            }
        }
        Err(DocumentError::Contended)
    }

    /// The nearest snapshot at or below a version.
    async fn snapshot_below(
        &self,
        document_id: &str,
        version: Version,
    ) -> Result<Option<SnapshotItem>, CloudError> {
        let page = self
            .dynamodb()
            .query()
            .table_name(self.table("snapshots"))
            .key_condition_expression("document_id = :document AND version_key <= :version")
            .expression_attribute_values(":document", s(document_id))
            .expression_attribute_values(":version", s(padded(version)))
            .scan_index_forward(false)
            .limit(1)
            .consistent_read(true)
            .send()
            .await?;
        page.items().first().map(from_item).transpose()
    }

    /// The snapshots from a version on, the first one first.
    pub async fn snapshots_from(
        &self,
        document_id: &str,
        version: Version,
    ) -> Result<Vec<SnapshotItem>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("snapshots"))
            .key_condition_expression("document_id = :document AND version_key >= :version")
            .expression_attribute_values(":document", s(document_id))
            .expression_attribute_values(":version", s(padded(version)))
            .consistent_read(true);
        all_items(query).await?.iter().map(from_item).collect()
    }
}
