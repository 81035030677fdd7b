//! Submit edit: rewrite it against what came between, and append it as the next version.
//!
//! One transaction advances the version, persists the operation and remembers the edit. The version's
//! condition is the order: whoever else has advanced it meanwhile, on this node or on another, is found
//! out here, and the edit is rewritten against theirs as well. The remembered edit is what makes a retry
//! safe: it carries another version each time, but the same client and sequence.

use crate::domain::{Canon, Decision, Edit, Entry, Refusal, Version};
use crate::items::{EditItem, OperationItem, padded};
use crate::{DocumentError, DocumentService};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Item, Transaction};

/// What became of an edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EditOutcome {
    /// It is in the order.
    Applied(Entry),
    /// It was already, as this version.
    Before(Version),
    /// It is not, and why.
    Refused(Refusal),
}

impl EditOutcome {
    /// The version the edit became, if it did.
    pub fn version(&self) -> Option<Version> {
        match self {
            Self::Applied(entry) => Some(entry.version),
            Self::Before(version) => Some(*version),
            Self::Refused(_) => None,
        }
    }
}

/// Nobody has advanced the document since it was read: the order, and the fence against a second owner.
///
/// The operation's own put needs no guard. Its key is the version after the one seen, and only who
/// passes this writes it.
const VERSION_GUARD: &str = "version = :seen";
const ADVANCE: &str = "SET version = :next";

/// An edit is made once, on whatever version it is sent again: also by a client that has loaded the document since,
/// and has its own edit below its base.
const EDIT_GUARD: &str = "attribute_not_exists(sequence_key)";

/// How long an edit is remembered. A client whose edit is older finds it in the log when it resumes, or
/// is told to load the document again; neither sends it twice.
const REMEMBERED_SECONDS: i64 = 7 * 24 * 3_600;

/// How often an edit is rewritten before its client is told to come back. Each time, somebody else's was
/// appended.
const ATTEMPTS: u32 = 100;

impl DocumentService {
    /// Appends an edit. Sent again it gets its first version, whatever has happened since.
    pub async fn submit_edit(&self, edit: &Edit) -> Result<EditOutcome, DocumentError> {
        edit.validate()?;
        let open = self.open(&edit.document_id);
        // One at a time on this node: the others would only be refused by the guard.
        let mut held = open.canon.lock().await;
        if held.is_none() {
            *held = Some(self.recover(&edit.document_id).await?);
        }
        let mut older = Vec::new();
        for attempt in 0..ATTEMPTS {
            let Some(canon) = held.as_mut() else { break };
            let entry = match canon.decide(edit, &older) {
                Decision::Append(entry) => entry,
                Decision::Before(version) => return Ok(EditOutcome::Before(version)),
                Decision::Refused(refusal) => return self.refuse(edit, refusal).await,
                Decision::Behind => {
                    let version = self
                        .up_to_date(&edit.document_id, &mut held)
                        .await?
                        .version();
                    if version < edit.base {
                        let base = edit.base;
                        return self
                            .refuse(edit, Refusal::FromTheFuture { base, version })
                            .await;
                    }
                    continue;
                }
                Decision::Older { after, until } => {
                    let version = canon.version();
                    let id = &edit.document_id;
                    older = self.read_log(id, after, Some(until)).await?;
                    if (older.len() as u64) < until - after {
                        let base = edit.base;
                        return self
                            .refuse(edit, Refusal::TooFarBehind { base, version })
                            .await;
                    }
                    continue;
                }
            };
            match self.append(edit, &entry).await {
                Ok(Appended::Yes) => {
                    // The document's current state: here, in memory. It follows from what is stored.
                    if canon.advance(entry.clone()).is_err() {
                        *held = None;
                    }
                    open.reached(entry.version);
                    return Ok(EditOutcome::Applied(entry));
                }
                Ok(Appended::Before(version)) => {
                    self.hear_of(edit, version, &mut held).await?;
                    open.reached(version);
                    return Ok(EditOutcome::Before(version));
                }
                Ok(Appended::Overtaken) => {
                    self.up_to_date(&edit.document_id, &mut held).await?;
                }
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    self.up_to_date(&edit.document_id, &mut held).await?;
                }
                // No answer, and perhaps it was made. Ask by its identity; never append it under another.
                Err(fault) => match self.version_of(edit).await? {
                    Some(version) => {
                        self.hear_of(edit, version, &mut held).await?;
                        open.reached(version);
                        return Ok(EditOutcome::Before(version));
                    }
                    None => return Err(fault.into()),
                },
            }
        }
        Err(DocumentError::Contended)
    }

    /// The version that an edit became, if it arrived. Consistent.
    pub async fn version_of(&self, edit: &Edit) -> Result<Option<Version>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("edits"))
            .key("document_client", s(document_client(edit)))
            .key("sequence_key", s(padded(edit.sequence)))
            .consistent_read(true)
            .send()
            .await?;
        let item = found.item.map(|item| from_item::<EditItem>(&item));
        Ok(item.transpose()?.map(|item| item.version))
    }

    /// Says no, unless this is a retry of what was accepted: its base may be long gone.
    async fn refuse(&self, edit: &Edit, refusal: Refusal) -> Result<EditOutcome, DocumentError> {
        match self.version_of(edit).await? {
            Some(version) => Ok(EditOutcome::Before(version)),
            None => Ok(EditOutcome::Refused(refusal)),
        }
    }

    /// A version is there that this node may not have.
    async fn hear_of(
        &self,
        edit: &Edit,
        version: Version,
        held: &mut Option<Canon>,
    ) -> Result<(), DocumentError> {
        if held.as_ref().is_none_or(|canon| canon.version() < version) {
            self.up_to_date(&edit.document_id, held).await?;
        }
        Ok(())
    }

    /// Version, operation and edit, together or not at all.
    async fn append(&self, edit: &Edit, entry: &Entry) -> Result<Appended, CloudError> {
        let now = self.cloud.now();
        let advance = Update::builder()
            .table_name(self.table("documents"))
            .key("document_id", s(&edit.document_id))
            .update_expression(ADVANCE)
            .condition_expression(VERSION_GUARD)
            .expression_attribute_values(":seen", n(entry.version - 1))
            .expression_attribute_values(":next", n(entry.version))
            .build()
            .map_err(CloudError::bug)?;
        let operation = OperationItem::new(&edit.document_id, entry, edit.base, now)?;
        let persist = Put::builder()
            .table_name(self.table("operations"))
            .set_item(Some(to_item(&operation)?))
            .build()
            .map_err(CloudError::bug)?;
        let remembered = EditItem {
            document_client: document_client(edit),
            sequence_key: padded(edit.sequence),
            version: entry.version,
            expires_at: now / 1_000 + REMEMBERED_SECONDS,
        };
        let remember = Put::builder()
            .table_name(self.table("edits"))
            .set_item(Some(to_item(&remembered)?))
            .condition_expression(EDIT_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().update(advance).build(),
            TransactWriteItem::builder().put(persist).build(),
            TransactWriteItem::builder().put(remember).build(),
        ];
        let names = ["version", "operation", "edit"];
        let cancelled = match self.cloud.transact(&names, items).await? {
            Transaction::Committed(_) => return Ok(Appended::Yes),
            Transaction::Cancelled(cancelled) => cancelled,
        };
        // Ours first: a retry fails on both, and has succeeded.
        if let Some(old) = cancelled.failed("edit") {
            let old: EditItem = from_item(old.unwrap_or(&Item::new()))?;
            return Ok(Appended::Before(old.version));
        }
        Ok(Appended::Overtaken)
    }
}

fn document_client(edit: &Edit) -> String {
    format!("{}#{}", edit.document_id, edit.client_id)
}

enum Appended {
    Yes,
    /// This edit was appended before, as this version.
    Before(Version),
    /// Somebody else took the version.
    Overtaken,
}
