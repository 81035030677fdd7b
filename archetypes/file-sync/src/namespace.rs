//! What every change of a namespace is made of: a name that nobody else has, a folder that is still
//! there, and one line of the feed, all in one transaction with the change itself.
//!
//! The line's number comes from the namespace's counter, which the same transaction moves. So numbers
//! have no gaps, and no line is seen before what it tells. The price: a namespace takes one change
//! at a time. It is one user's, so only that user's devices wait for each other.

use crate::domain::{Change, ChangeKind, Entry, EntryId, folded};
use crate::items::{folder_key, item_with, namespace_key};
use crate::{FileSync, FileSyncError};
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsOutput;
use aws_sdk_dynamodb::types::{
    Delete, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s};
use cloud::{Cancellation, CloudError, Transaction};
use serde::{Deserialize, Serialize};

/// The counter of a namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Tenant and user.
    pub namespace: String,
    /// Changes so far.
    pub sequence: u64,
    /// How many of them put something into another folder.
    pub moves: u64,
}

/// A change that is about to be made.
pub(crate) struct Draft {
    /// What happens.
    pub kind: ChangeKind,
    /// The entry afterwards.
    pub entry: Entry,
    /// Which device does it.
    pub device: String,
    /// The identity of this write.
    pub operation: String,
    /// Whether something goes to another folder.
    pub moves: bool,
    /// Whether the decision rests on who is in which folder.
    pub looked_up: bool,
}

/// The items of a transaction, each with the name that a refusal tells it by.
#[derive(Default)]
pub(crate) struct Parts {
    names: Vec<&'static str>,
    items: Vec<TransactWriteItem>,
}

impl Parts {
    pub(crate) fn with(mut self, name: &'static str, item: TransactWriteItem) -> Self {
        self.names.push(name);
        self.items.push(item);
        self
    }

    pub(crate) fn with_some(self, name: &'static str, item: Option<TransactWriteItem>) -> Self {
        match item {
            Some(item) => self.with(name, item),
            None => self,
        }
    }
}

/// What became of it.
pub(crate) enum Committed {
    /// It is written.
    Yes,
    /// A condition of the change's own items was false.
    Refused(Cancellation),
    /// Something went to another folder meanwhile: look again.
    Rearranged,
}

/// Nobody has appended since the counter was read. It is the number itself, too: the line goes where
/// no line is.
const FIRST_GUARD: &str = "attribute_not_exists(namespace)";
const APPEND_GUARD: &str = "#sequence = :seen";
const APPEND_UPDATE: &str = "SET #sequence = :next, moves = :moves";

/// One name, one entry.
const NAME_GUARD: &str = "attribute_not_exists(folded)";

/// The folder is still there: what is put into a deleted one would be nowhere.
const FOLDER_GUARD: &str = "#status = :live";
const ENTER_UPDATE: &str = "SET children = children + :one";
const LEAVE_UPDATE: &str = "SET children = children - :one";

/// How often a change is numbered again. Each time, somebody else's was.
const ATTEMPTS: u32 = 100;

/// How often a transaction waits for others that have its items.
const TURNS: u32 = 10;

/// A name that is taken, as a refusal tells it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "there is '{name}' already, and names must differ in more than case or accents' composition"
)]
pub struct Taken {
    /// As the other is written.
    pub name: String,
    /// The other.
    pub entry_id: EntryId,
}

#[derive(Deserialize)]
pub(crate) struct NameRow {
    pub name: String,
    pub entry_id: EntryId,
}

/// The name that stood in the way, if a transaction failed for that.
pub(crate) fn taken(cancelled: &Cancellation) -> Result<Option<Taken>, CloudError> {
    let Some(Some(item)) = cancelled.failed("name") else {
        return Ok(None);
    };
    let NameRow { name, entry_id } = from_item(item)?;
    Ok(Some(Taken { name, entry_id }))
}

impl FileSync {
    pub(crate) async fn read_namespace(
        &self,
        tenant: &str,
        owner: &str,
    ) -> Result<Namespace, CloudError> {
        let namespace = namespace_key(tenant, owner);
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("namespaces"))
            .key("namespace", s(&namespace))
            .consistent_read(true)
            .send()
            .await?;
        let read = found.item.map(|item| from_item(&item)).transpose()?;
        Ok(read.unwrap_or(Namespace {
            namespace,
            ..Namespace::default()
        }))
    }

    /// Writes a change and its line of the feed. Only the number is decided again here; everything
    /// else stands in the conditions of `parts`, and is decided again by whoever made them.
    pub(crate) async fn commit(
        &self,
        seen: Namespace,
        draft: &Draft,
        parts: Parts,
    ) -> Result<Committed, FileSyncError> {
        let Parts { mut names, items } = parts;
        names.extend(["namespace", "change"]);
        let moves = seen.moves;
        let mut seen = seen;
        for attempt in 0..ATTEMPTS {
            let mut all = items.clone();
            all.push(self.append(&seen, draft)?);
            all.push(self.line(&seen, draft)?);
            let cancelled = match self.cloud.transact(&names, all).await {
                Ok(Transaction::Committed(_)) => return Ok(Committed::Yes),
                Ok(Transaction::Cancelled(cancelled)) => Ok(cancelled),
                Err(fault) => Err(fault),
            };
            // Our own earlier attempt, whose answer was lost, stands exactly where we meant to write.
            let number_taken = match &cancelled {
                Ok(cancelled) => cancelled.failed("namespace").is_some(),
                Err(_) => true,
            };
            if number_taken && self.wrote(&seen, draft).await? {
                return Ok(Committed::Yes);
            }
            match cancelled {
                Ok(cancelled) => {
                    let others = cancelled
                        .failed
                        .iter()
                        .any(|(name, _)| *name != "namespace");
                    if others {
                        return Ok(Committed::Refused(cancelled));
                    }
                    if let Some(Some(item)) = cancelled.failed("namespace") {
                        seen = from_item(item)?;
                    }
                }
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    let (tenant, owner) = seen.namespace.split_once('#').unwrap_or_default();
                    seen = self.read_namespace(tenant, owner).await?;
                }
                Err(fault) => return Err(fault.into()),
            }
            if draft.looked_up && seen.moves != moves {
                return Ok(Committed::Rearranged);
            }
        }
        Err(FileSyncError::Contended)
    }

    /// A transaction that is sent again while another one has its items: two uploads may pin the same
    /// chunk at the same moment, and neither has to be told.
    pub(crate) async fn transact_in_turn(
        &self,
        names: &[&'static str],
        items: Vec<TransactWriteItem>,
    ) -> Result<Transaction<TransactWriteItemsOutput>, CloudError> {
        for attempt in 0..TURNS {
            match self.cloud.transact(names, items.clone()).await {
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                other => return other,
            }
        }
        self.cloud.transact(names, items).await
    }

    /// Whether the line after `seen` is this draft's.
    async fn wrote(&self, seen: &Namespace, draft: &Draft) -> Result<bool, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("changes"))
            .key("namespace", s(&seen.namespace))
            .key("sequence", n(seen.sequence + 1))
            .consistent_read(true)
            .send()
            .await?;
        let operation = found.item.and_then(|mut item| item.remove("operation"));
        Ok(operation == Some(s(&draft.operation)))
    }

    fn append(&self, seen: &Namespace, draft: &Draft) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("namespaces"))
            .key("namespace", s(&seen.namespace))
            .update_expression(APPEND_UPDATE)
            .expression_attribute_names("#sequence", "sequence")
            .expression_attribute_values(":next", n(seen.sequence + 1))
            .expression_attribute_values(":moves", n(seen.moves + u64::from(draft.moves)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let update = if seen.sequence == 0 {
            update.condition_expression(FIRST_GUARD)
        } else {
            update
                .condition_expression(APPEND_GUARD)
                .expression_attribute_values(":seen", n(seen.sequence))
        };
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    fn line(&self, seen: &Namespace, draft: &Draft) -> Result<TransactWriteItem, CloudError> {
        let change = Change {
            sequence: seen.sequence + 1,
            kind: draft.kind,
            entry: draft.entry.clone(),
            device: draft.device.clone(),
            changed_at: draft.entry.updated_at,
        };
        let keys = [
            ("namespace", seen.namespace.clone()),
            ("operation", draft.operation.clone()),
        ];
        self.put("changes", item_with(&change, &keys)?)
    }

    /// A write without a condition.
    pub(crate) fn put(
        &self,
        table: &str,
        item: cloud::Item,
    ) -> Result<TransactWriteItem, CloudError> {
        let put = Put::builder()
            .table_name(self.table(table))
            .set_item(Some(item))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Takes a name in a folder: `name` in a refusal.
    pub(crate) fn claim_name(
        &self,
        tenant: &str,
        entry: &Entry,
    ) -> Result<TransactWriteItem, CloudError> {
        let put = Put::builder()
            .table_name(self.table("names"))
            .item("folder", s(folder_key(tenant, &entry.owner, &entry.parent)))
            .item("folded", s(folded(&entry.name)))
            .item("name", s(&entry.name))
            .item("entry_id", s(entry.entry_id.as_str()))
            .condition_expression(NAME_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Writes a name that is this entry's already in another case.
    pub(crate) fn respell_name(
        &self,
        tenant: &str,
        entry: &Entry,
    ) -> Result<TransactWriteItem, CloudError> {
        let folder = folder_key(tenant, &entry.owner, &entry.parent);
        let item = cloud::Item::from([
            ("folder".into(), s(folder)),
            ("folded".into(), s(folded(&entry.name))),
            ("name".into(), s(&entry.name)),
            ("entry_id".into(), s(entry.entry_id.as_str())),
        ]);
        self.put("names", item)
    }

    /// Gives a name back. That the entry still has it is in the guard on the entry.
    pub(crate) fn release_name(
        &self,
        tenant: &str,
        entry: &Entry,
    ) -> Result<TransactWriteItem, CloudError> {
        let delete = Delete::builder()
            .table_name(self.table("names"))
            .key("folder", s(folder_key(tenant, &entry.owner, &entry.parent)))
            .key("folded", s(folded(&entry.name)))
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().delete(delete).build())
    }

    /// One more child, if the folder is still there: `folder` in a refusal. Top folders always are.
    pub(crate) fn enter_folder(
        &self,
        tenant: &str,
        folder: &EntryId,
    ) -> Result<Option<TransactWriteItem>, CloudError> {
        if folder.is_root() {
            return Ok(None);
        }
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, folder)))
            .key("entry_id", s(folder.as_str()))
            .update_expression(ENTER_UPDATE)
            .condition_expression(FOLDER_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":live", s("LIVE"))
            .expression_attribute_values(":one", n(1))
            .build()
            .map_err(CloudError::bug)?;
        Ok(Some(TransactWriteItem::builder().update(update).build()))
    }

    /// One child less.
    pub(crate) fn leave_folder(
        &self,
        tenant: &str,
        folder: &EntryId,
    ) -> Result<Option<TransactWriteItem>, CloudError> {
        if folder.is_root() {
            return Ok(None);
        }
        let update = Update::builder()
            .table_name(self.table("entries"))
            .key("tenant_shard", s(self.entry_shard(tenant, folder)))
            .key("entry_id", s(folder.as_str()))
            .update_expression(LEAVE_UPDATE)
            .expression_attribute_values(":one", n(1))
            .build()
            .map_err(CloudError::bug)?;
        Ok(Some(TransactWriteItem::builder().update(update).build()))
    }
}
