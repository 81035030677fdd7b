//! Attach tag to content, and with it: update the reverse index, publish the relation change.
//!
//! One transaction over three items, none of which another content writes:
//!
//! ```text
//! content_tag_unique   the edge       if it is not there, or is not live and as we saw it
//! content_tag_by_tag   the index row  in the bucket that the edge names
//! contents             the count      if it is below the cap
//! ```
//!
//! There is no edge without its row and no row without its edge. The event is the edge's record in
//! the table's stream: DynamoDB writes it with the edge, so one attach is one event.
//!
//! What is *not* in the transaction is the tag's definition. A check there would make every attach of
//! a viral tag wait for the same item, and the buckets would be for nothing. It is not needed:
//!
//! - *B may have risen since it was read.* Then the row goes to a bucket below the old B. Readers look
//!   at all buckets below the new B, and B never falls: they see it.
//! - *The tag may have been merged into another since.* See [`merge`](crate::merge).

use crate::domain::{ContentId, TagName, TenantId, bucket_of};
use crate::items::{Edge, TagDefinition};
use crate::tables::CONTENT_SHARDS;
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s, shard_of, to_item};
use cloud::{Cancellation, CloudError, Item, Transaction};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attached {
    /// The content has the tag, by this call.
    Now(Edge),
    /// It had the tag already. Nothing was written, and no event is published.
    Before(Edge),
    /// The content has as many tags as it may have.
    Full {
        /// How many.
        cap: u32,
    },
}

/// The pair has never been. Most have not, so this is tried first, without a read.
const NEW_EDGE: &str = "attribute_not_exists(content_key)";

/// The pair has been, is no more, and nothing has changed since we saw it. Only an edge that is not
/// live is written under this guard, and an equal version means that it still is not.
const SAME_EDGE: &str = "version = :seen";

/// There is room for one more.
const BELOW_CAP: &str = "attribute_not_exists(tag_count) OR tag_count < :cap";

const COUNT_UP: &str = "SET tenant_id = :tenant, content_id = :content, content_shard = :shard \
     ADD tag_count :one, revision :one";

/// How often an attach is tried again. Each time, somebody else changed this very edge or content.
const ATTEMPTS: u32 = 50;

impl Tagging {
    /// Attaches a tag to a content. Done twice, it is done once.
    pub async fn attach(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        name: &TagName,
    ) -> Result<Attached, TaggingError> {
        let definition = self.resolve_to_write(tenant, name).await?;
        let attached = self.attach_to(tenant, content, &definition).await?;
        // Only now: what a merge did before this look is seen by it, and a merge that comes after it
        // sees the edge.
        Ok(match attached {
            Attached::Now(edge) => Attached::Now(self.after_attach(tenant, edge).await?),
            Attached::Before(edge) => Attached::Before(self.after_attach(tenant, edge).await?),
            Attached::Full { cap } => Attached::Full { cap },
        })
    }

    /// Attaches exactly this tag.
    pub(crate) async fn attach_to(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        definition: &TagDefinition,
    ) -> Result<Attached, TaggingError> {
        let now = self.now();
        let mut edge = Edge {
            tenant_id: tenant.as_str().to_owned(),
            content_id: content.as_str().to_owned(),
            tag_id: definition.tag_id.clone(),
            tag_name_norm: definition.tag_name_norm.clone(),
            live: true,
            version: 1,
            created_at: now,
            bucket: bucket_of(&definition.tag_id, content.as_str(), definition.buckets),
            changed_at: now,
            change_id: self.cloud.ids().next("change"),
        };
        for attempt in 0..ATTEMPTS {
            let cancelled = match self.commit_attach(&edge).await {
                Ok(Transaction::Committed(_)) => return Ok(Attached::Now(edge)),
                Ok(Transaction::Cancelled(cancelled)) => cancelled,
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    continue;
                }
                Err(fault) => return self.ask(tenant, content, edge, fault).await,
            };
            match standing_edge(&cancelled)? {
                Some(there) if there.change_id == edge.change_id => {
                    return Ok(Attached::Now(there));
                }
                Some(there) if there.live => return Ok(Attached::Before(there)),
                // It was attached before and detached: its versions go on.
                Some(there) => edge.version = there.version + 1,
                None => return Ok(Attached::Full { cap: self.cap }),
            }
        }
        Err(TaggingError::Contended)
    }

    /// Edge, index row and count, together or not at all.
    async fn commit_attach(
        &self,
        edge: &Edge,
    ) -> Result<Transaction<impl Sized + use<>>, CloudError> {
        let row = Put::builder()
            .table_name(self.table("content_tag_by_tag"))
            .set_item(Some(row_item(edge)?));
        let key = edge.key().remove("content_key");
        let shard = shard_of(&edge.content_id, CONTENT_SHARDS);
        let count = Update::builder()
            .table_name(self.table("contents"))
            .set_key(key.map(|key| Item::from([("content_key".into(), key)])))
            .update_expression(COUNT_UP)
            .condition_expression(BELOW_CAP)
            .expression_attribute_values(":tenant", s(&edge.tenant_id))
            .expression_attribute_values(":content", s(&edge.content_id))
            .expression_attribute_values(":shard", s(format!("{}#{shard}", edge.tenant_id)))
            .expression_attribute_values(":one", n(1))
            .expression_attribute_values(":cap", n(self.cap));
        let items = vec![
            self.put_edge(edge)?,
            TransactWriteItem::builder()
                .put(row.build().map_err(CloudError::bug)?)
                .build(),
            TransactWriteItem::builder()
                .update(count.build().map_err(CloudError::bug)?)
                .build(),
        ];
        self.cloud.transact(&["edge", "row", "count"], items).await
    }

    /// The edge with its next version, if the one before is what stands there.
    pub(crate) fn put_edge(&self, edge: &Edge) -> Result<TransactWriteItem, CloudError> {
        let mut item = to_item(edge)?;
        item.extend(edge.key());
        let put = Put::builder()
            .table_name(self.table("content_tag_unique"))
            .set_item(Some(item))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = match edge.version {
            1 => put.condition_expression(NEW_EDGE),
            next => put
                .condition_expression(SAME_EDGE)
                .expression_attribute_values(":seen", n(next - 1)),
        };
        Ok(TransactWriteItem::builder()
            .put(put.build().map_err(CloudError::bug)?)
            .build())
    }

    /// A fault came in place of an answer, and the write may have been made. The edge knows by whom it
    /// was last changed.
    async fn ask(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        ours: Edge,
        fault: CloudError,
    ) -> Result<Attached, TaggingError> {
        match self.edge(tenant, content, &ours.tag_id).await? {
            Some(there) if there.change_id == ours.change_id => Ok(Attached::Now(there)),
            _ => Err(fault.into()),
        }
    }
}

/// The index row with its key.
pub(crate) fn row_item(edge: &Edge) -> Result<Item, CloudError> {
    let mut item = to_item(&edge.row())?;
    item.extend(edge.row_key());
    Ok(item)
}

/// The edge that stood in the way, if it was the edge.
pub(crate) fn standing_edge(cancelled: &Cancellation) -> Result<Option<Edge>, CloudError> {
    let Some(item) = cancelled.failed("edge") else {
        return Ok(None);
    };
    let item = item.ok_or_else(|| CloudError::corrupt("an edge is gone: edges never go"))?;
    Ok(Some(from_item(item)?))
}
