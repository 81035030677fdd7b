//! Snapshot / compact: the text at a version, so that nobody replays the whole log; then the log's old end
//! is taken off.
//!
//! ```text
//! read text and operations → archive object, text object → snapshot and pointer, one transaction → prune
//! ```
//!
//! Dying between any two of these leaves an object that nobody names, or operations that nobody needs. The next
//! one writes the same object, or prunes what this one left. The operations up to the *previous* snapshot
//! stay at least, so whoever is just loading from it finds them.

use crate::domain::{Canon, Version};
use crate::items::{DocumentItem, SnapshotItem, padded};
use crate::objects::{log_object, text_object};
use crate::{DocumentError, DocumentService};
use aws_sdk_dynamodb::types::{DeleteRequest, Put, TransactWriteItem, Update, WriteRequest};
use cloud::item::{all_items, n, pause, s, to_item};
use cloud::{CloudError, Item, Transaction};
use std::collections::HashMap;

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Compaction {
    /// There are too few operations since the last snapshot.
    NotDue,
    /// There is a new snapshot, and so many operations were pruned.
    Made {
        /// Of this version.
        version: Version,
        /// Taken off the log.
        pruned: usize,
    },
    /// Somebody else was faster.
    Overtaken,
}

/// The pointer is still the one that this snapshot was made from: it only moves forward, and the operations
/// since it are still all there.
const POINTER_GUARD: &str = "snapshot_version = :seen";
const MOVE_POINTER: &str = "SET snapshot_version = :made, base_version = :base";

/// How often deletes that DynamoDB had no room for are sent again.
const ATTEMPTS: u32 = 10;

impl DocumentService {
    /// Makes a snapshot if one is due, and prunes the log below it. Any node may, at any time.
    pub async fn compact(&self, document_id: &str) -> Result<Compaction, DocumentError> {
        crate::domain::valid_id("document id", document_id)?;
        let document = self.known_document(document_id).await?;
        let seen = document.snapshot_version;
        if document.version - seen < self.settings.snapshot_every {
            return Ok(Compaction::NotDue);
        }
        let Some(from) = self.read_snapshot(document_id, seen).await? else {
            let what = format!("document {document_id} names snapshot {seen}, which is not there");
            return Err(CloudError::Corrupt(what).into());
        };
        let text = self.snapshot_text(&from).await?;
        let log = self
            .read_log(document_id, seen, Some(document.version))
            .await?;
        let mut canon = Canon::new(seen, &text, 0);
        if canon.follow(log.iter().cloned()).is_err() || canon.version() != document.version {
            // Pruned while this read: somebody else has made two snapshots.
            return Ok(Compaction::Overtaken);
        }
        let made = canon.version();
        let key = log_object(document_id, seen, made);
        let body = serde_json::to_vec(&log).map_err(CloudError::bug)?;
        self.put_object(&key, body).await?;
        let mut snapshot = SnapshotItem {
            document_id: document_id.to_owned(),
            version_key: padded(made),
            text: None,
            text_object: None,
            log_object: Some(key),
            log_from: seen,
            created_at: self.cloud.now(),
        };
        let text = canon.text().to_string();
        if text.len() <= self.settings.inline_bytes {
            snapshot.text = Some(text);
        } else {
            let key = text_object(document_id, made);
            self.put_object(&key, text.into_bytes()).await?;
            snapshot.text_object = Some(key);
        }
        let base = self.base_after(&document, made);
        if !self.name_snapshot(&snapshot, seen, made, base).await? {
            return Ok(Compaction::Overtaken);
        }
        let pruned = self.prune(document_id, base).await?;
        Ok(Compaction::Made {
            version: made,
            pruned,
        })
    }

    /// What may be pruned after this snapshot: nothing that the one before it needs, and nothing of the last
    /// operations that clients may still resume from.
    fn base_after(&self, document: &DocumentItem, made: Version) -> Version {
        let unneeded = made.saturating_sub(self.settings.retain);
        let base = unneeded.min(document.snapshot_version);
        base.max(document.base_version)
    }

    /// The snapshot and the pointer to it. False if the pointer has moved.
    async fn name_snapshot(
        &self,
        snapshot: &SnapshotItem,
        seen: Version,
        made: Version,
        base: Version,
    ) -> Result<bool, DocumentError> {
        for attempt in 0..ATTEMPTS {
            let put = Put::builder()
                .table_name(self.table("snapshots"))
                .set_item(Some(to_item(snapshot)?))
                .build()
                .map_err(CloudError::bug)?;
            let update = Update::builder()
                .table_name(self.table("documents"))
                .key("document_id", s(&snapshot.document_id))
                .update_expression(MOVE_POINTER)
                .condition_expression(POINTER_GUARD)
                .expression_attribute_values(":seen", n(seen))
                .expression_attribute_values(":made", n(made))
                .expression_attribute_values(":base", n(base))
                .build()
                .map_err(CloudError::bug)?;
            let items = vec![
                TransactWriteItem::builder().put(put).build(),
                TransactWriteItem::builder().update(update).build(),
            ];
            match self.cloud.transact(&["snapshot", "pointer"], items).await {
                Ok(Transaction::Committed(_)) => return Ok(true),
                // Somebody is typing, and their transaction has the document.
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // Moved by somebody else, or by ourselves and the answer was lost: ask where it stands. The same
                // version is the same snapshot, whoever made it.
                Ok(Transaction::Cancelled(_)) | Err(CloudError::Unknown(_)) => {
                    let now = self.known_document(&snapshot.document_id).await?;
                    return Ok(now.snapshot_version == made);
                }
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(DocumentError::Contended)
    }

    /// Takes the operations up to `base` off the log. `base` has stood in the document: they are archived.
    async fn prune(&self, document_id: &str, base: Version) -> Result<usize, CloudError> {
        if base == 0 {
            return Ok(0);
        }
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("operations"))
            .key_condition_expression("document_id = :document AND version_key <= :base")
            .expression_attribute_values(":document", s(document_id))
            .expression_attribute_values(":base", s(padded(base)))
            .projection_expression("document_id, version_key")
            .consistent_read(true);
        let keys = all_items(query).await?;
        for keys in keys.chunks(25) {
            self.delete_operations(keys).await?;
        }
        Ok(keys.len())
    }

    async fn delete_operations(&self, keys: &[Item]) -> Result<(), CloudError> {
        let delete = |key: &Item| {
            let request = DeleteRequest::builder().set_key(Some(key.clone()));
            let request = request.build().map_err(CloudError::bug)?;
            Ok(WriteRequest::builder().delete_request(request).build())
        };
        let requests = keys.iter().map(delete).collect::<Result<_, CloudError>>()?;
        let mut left = HashMap::from([(self.table("operations"), requests)]);
        for attempt in 0..ATTEMPTS {
            let request = self.dynamodb().batch_write_item();
            let answer = request.set_request_items(Some(left)).send().await?;
            left = answer.unprocessed_items.unwrap_or_default();
            if left.is_empty() {
                return Ok(());
            }
            pause(attempt).await;
        }
        Err(CloudError::Throttled(
            "deletes were left unprocessed".into(),
        ))
    }
}
