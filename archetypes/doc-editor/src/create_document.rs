//! Create document: the document and its first snapshot, together.

use crate::domain::{BadInput, MAX_OPERATION_BYTES, valid_id};
use crate::items::{DocumentItem, SnapshotItem, padded};
use crate::{DocumentError, DocumentService};
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use cloud::item::{from_item, to_item};
use cloud::{CloudError, Item, Transaction};

/// A document as it is asked for. The id is made by whoever asks: only so can they ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDocument {
    /// Identity.
    pub document_id: String,
    /// For people.
    pub title: String,
    /// What it begins with.
    pub text: String,
}

/// A document is created once. Without this, creating again would set its version back to nothing.
const NEW_GUARD: &str = "attribute_not_exists(document_id)";

impl DocumentService {
    /// Creates a document. Sent again, it is there already, and that is the same answer.
    pub async fn create_document(&self, new: &NewDocument) -> Result<DocumentItem, DocumentError> {
        valid_id("document id", &new.document_id)?;
        let title = new.title.chars().count();
        if !(1..=200).contains(&title) {
            return Err(BadInput::Title(title).into());
        }
        if new.text.len() > MAX_OPERATION_BYTES {
            return Err(BadInput::Text(new.text.len()).into());
        }
        let now = self.cloud.now();
        let document = DocumentItem {
            document_id: new.document_id.clone(),
            title: new.title.clone(),
            version: 0,
            snapshot_version: 0,
            base_version: 0,
            created_at: now,
        };
        let snapshot = SnapshotItem {
            document_id: new.document_id.clone(),
            version_key: padded(0),
            text: Some(new.text.clone()),
            text_object: None,
            log_object: None,
            log_from: 0,
            created_at: now,
        };
        let put = Put::builder()
            .table_name(self.table("documents"))
            .set_item(Some(to_item(&document)?))
            .condition_expression(NEW_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        // Under the guard of the other: there is no snapshot without its document.
        let first = Put::builder()
            .table_name(self.table("snapshots"))
            .set_item(Some(to_item(&snapshot)?));
        let items = [put, first].map(|put| {
            let put = put.build().map_err(CloudError::bug)?;
            Ok(TransactWriteItem::builder().put(put).build())
        });
        let items = items.into_iter().collect::<Result<_, CloudError>>()?;
        let written = self.cloud.transact(&["document", "snapshot"], items).await;
        let there: DocumentItem = match written {
            Ok(Transaction::Committed(_)) => return Ok(document),
            Ok(Transaction::Cancelled(cancelled)) => {
                let old = cancelled.failed("document").flatten();
                from_item(old.unwrap_or(&Item::new()))?
            }
            // No answer: perhaps it was made. Ask for it by its id.
            Err(fault) => match self.read_document(&new.document_id).await? {
                Some(there) => there,
                None => return Err(fault.into()),
            },
        };
        // Ours from before, or somebody else's under our id? The first snapshot is never changed.
        let first = self.read_snapshot(&new.document_id, 0).await?;
        let text = first.and_then(|snapshot| snapshot.text);
        if there.title == new.title && text.as_deref() == Some(&new.text) {
            return Ok(there);
        }
        Err(DocumentError::IdTaken(new.document_id.clone()))
    }
}
