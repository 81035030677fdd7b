//! How states are written down as items.

use crate::domain::{Entry, Version};
use cloud::{CloudError, Millis};
use serde::{Deserialize, Serialize};

/// A number in a string key: padded, or 10 would sort before 9. Twelve digits are a thousand edits a
/// second for thirty years.
pub fn padded(number: u64) -> String {
    format!("{number:012}")
}

/// DocumentState and DocumentVersionState.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DocumentItem {
    /// Identity.
    pub document_id: String,
    /// For people.
    pub title: String,
    /// How many operations there are: the order, and the fence.
    pub version: Version,
    /// The newest snapshot.
    pub snapshot_version: Version,
    /// Operations up to this one may be gone from the log; they are in the archive.
    pub base_version: Version,
    /// Epoch ms.
    pub created_at: Millis,
}

/// One entry of the DocumentOperationLog.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationItem {
    /// Which document.
    pub document_id: String,
    /// The version it makes, padded.
    pub version_key: String,
    /// The rewritten operation, as JSON.
    pub operation: String,
    /// Whose.
    pub client_id: String,
    /// Their number of it.
    pub sequence: u64,
    /// What it was typed against.
    pub base_version: Version,
    /// What it takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undoes: Option<Version>,
    /// Epoch ms; for people, orders nothing.
    pub created_at: Millis,
}

impl OperationItem {
    pub(crate) fn new(
        document_id: &str,
        entry: &Entry,
        base_version: Version,
        now: Millis,
    ) -> Result<Self, CloudError> {
        Ok(Self {
            document_id: document_id.to_owned(),
            version_key: padded(entry.version),
            operation: serde_json::to_string(&entry.operation).map_err(CloudError::bug)?,
            client_id: entry.client_id.clone(),
            sequence: entry.sequence,
            base_version,
            undoes: entry.undoes,
            created_at: now,
        })
    }

    pub(crate) fn entry(self) -> Result<Entry, CloudError> {
        Ok(Entry {
            version: self.version_key.parse().map_err(CloudError::corrupt)?,
            operation: serde_json::from_str(&self.operation).map_err(CloudError::corrupt)?,
            client_id: self.client_id,
            sequence: self.sequence,
            undoes: self.undoes,
        })
    }
}

/// That an edit was made, and as which version: what makes sending it again safe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EditItem {
    /// `document#client`.
    pub document_client: String,
    /// The client's number of the edit, padded.
    pub sequence_key: String,
    /// The version it became.
    pub version: Version,
    /// Epoch seconds: when DynamoDB may forget it.
    pub expires_at: i64,
}

/// One DocumentSnapshotState.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotItem {
    /// Which document.
    pub document_id: String,
    /// The version whose text this is, padded.
    pub version_key: String,
    /// The text, if it is short.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The object with the text, if it is long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text_object: Option<String>,
    /// The object with the operations between `log_from` and this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_object: Option<String>,
    /// The version that the archived operations begin after.
    pub log_from: Version,
    /// Epoch ms.
    pub created_at: Millis,
}

impl SnapshotItem {
    /// The version whose text this is.
    pub fn version(&self) -> Result<Version, CloudError> {
        self.version_key.parse().map_err(CloudError::corrupt)
    }
}
