//! Load document, and recover after a restart: the newest snapshot, and the operations since.
//!
//! A node holds what it has loaded. That is a cache and nothing else: whoever loads again, or another
//! node, comes to the same text.

use crate::domain::{Canon, Entry, Version};
use crate::items::{DocumentItem, OperationItem, SnapshotItem, padded};
use crate::{DocumentError, DocumentService};
use cloud::item::{all_items, from_item, s};
use cloud::{CloudError, Item};

/// A document at a version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Its version.
    pub version: Version,
    /// Its text.
    pub text: String,
}

/// How often a load begins again because the log was pruned while it read. Each time, two more snapshots
/// were made meanwhile.
const ATTEMPTS: u32 = 10;

impl DocumentService {
    /// The document as it is now. What this node holds is brought up to date from the log.
    pub async fn load_document(&self, document_id: &str) -> Result<Loaded, DocumentError> {
        crate::domain::valid_id("document id", document_id)?;
        let open = self.open(document_id);
        let mut held = open.canon.lock().await;
        let canon = self.up_to_date(document_id, &mut held).await?;
        let loaded = Loaded {
            version: canon.version(),
            text: canon.text().to_string(),
        };
        open.reached(loaded.version);
        Ok(loaded)
    }

    /// What is held, after what the log has beyond it; or all of it, if nothing is held.
    pub(crate) async fn up_to_date<'a>(
        &self,
        document_id: &str,
        held: &'a mut Option<Canon>,
    ) -> Result<&'a mut Canon, DocumentError> {
        let mut fresh = false;
        if let Some(canon) = held.as_mut() {
            let newer = self.read_log(document_id, canon.version(), None).await?;
            // Unless the log no longer reaches back to what is held.
            fresh = canon.follow(newer).is_ok();
        }
        if !fresh {
            *held = None;
            *held = Some(self.recover(document_id).await?);
        }
        held.as_mut().ok_or(DocumentError::Contended)
    }

    /// The document from the store alone.
    pub async fn recover(&self, document_id: &str) -> Result<Canon, DocumentError> {
        for _ in 0..ATTEMPTS {
            let document = self.known_document(document_id).await?;
            let from = document.snapshot_version;
            let text = self.read_snapshot_text(document_id, from).await?;
            let log = self.read_log(document_id, from, None).await?;
            let mut canon = Canon::new(from, &text, self.settings.held);
            // Consistent reads, the document first: what is missing here was pruned since, and then there is a
            // newer snapshot.
            if canon.follow(log).is_ok() && canon.version() >= document.version {
                return Ok(canon);
            }
        }
        Err(DocumentError::Contended)
    }

    pub(crate) async fn known_document(
        &self,
        document_id: &str,
    ) -> Result<DocumentItem, DocumentError> {
        let found = self.read_document(document_id).await?;
        found.ok_or_else(|| DocumentError::UnknownDocument(document_id.to_owned()))
    }

    /// The document's item. Consistent: what is decided on it must not be old.
    pub async fn read_document(
        &self,
        document_id: &str,
    ) -> Result<Option<DocumentItem>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("documents"))
            .key("document_id", s(document_id))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// The snapshot of a version, if there is one.
    pub async fn read_snapshot(
        &self,
        document_id: &str,
        version: Version,
    ) -> Result<Option<SnapshotItem>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("snapshots"))
            .key("document_id", s(document_id))
            .key("version_key", s(padded(version)))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    async fn read_snapshot_text(
        &self,
        document_id: &str,
        version: Version,
    ) -> Result<String, CloudError> {
        let Some(snapshot) = self.read_snapshot(document_id, version).await? else {
            let what =
                format!("document {document_id} names snapshot {version}, which is not there");
            return Err(CloudError::Corrupt(what));
        };
        self.snapshot_text(&snapshot).await
    }

    /// The operations after a version, up to another or to the end, in order.
    pub async fn read_log(
        &self,
        document_id: &str,
        after: Version,
        until: Option<Version>,
    ) -> Result<Vec<Entry>, CloudError> {
        if until.is_some_and(|until| until <= after) {
            return Ok(Vec::new());
        }
        let until = until.unwrap_or(999_999_999_999);
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("operations"))
            .key_condition_expression(
                "document_id = :document AND version_key BETWEEN :first AND :last",
            )
            .expression_attribute_values(":document", s(document_id))
            .expression_attribute_values(":first", s(padded(after + 1)))
            .expression_attribute_values(":last", s(padded(until)))
            .consistent_read(true);
        let items = all_items(query).await?;
        let entry = |item: &Item| from_item::<OperationItem>(item)?.entry();
        items.iter().map(entry).collect()
    }
}
