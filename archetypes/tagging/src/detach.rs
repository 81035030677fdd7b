//! Detach tag from content, and with it: remove the reverse index entry, publish the change.
//!
//! The edge stays, not live, with its version: were it deleted, the next attach would begin again at
//! version 1, and whoever counts edges would take it for something old. The edge also knows when it
//! was attached and in which bucket, which is the key of the row that must go.

use crate::attach::standing_edge;
use crate::domain::{ContentId, TagName, TenantId};
use crate::items::Edge;
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::{Delete, TransactWriteItem, Update};
use cloud::item::{n, pause};
use cloud::{CloudError, Item, Transaction};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detached {
    /// The content has lost the tag, by this call.
    Now(Edge),
    /// It did not have the tag. Nothing was written, and no event is published.
    NotThere,
}

const COUNT_DOWN: &str = "ADD tag_count :minus_one, revision :one";

/// How often it is decided again. Each time, somebody else changed this very edge.
const ATTEMPTS: u32 = 50;

impl Tagging {
    /// Detaches a tag from a content. Done twice, it is done once.
    pub async fn detach(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        name: &TagName,
    ) -> Result<Detached, TaggingError> {
        let mut tags = self.tags_behind(tenant, name).await?;
        loop {
            let mut told = Detached::NotThere;
            for tag_id in &tags {
                match self.detach_from(tenant, content, tag_id).await? {
                    Detached::NotThere => {}
                    now => told = now,
                }
            }
            if told != Detached::NotThere {
                return Ok(told);
            }
            // A merge may have moved it away from where we looked.
            let now = self.tags_behind(tenant, name).await?;
            if now == tags {
                return Ok(Detached::NotThere);
            }
            tags = now;
        }
    }

    /// Detaches exactly this tag.
    pub(crate) async fn detach_from(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        tag_id: &str,
    ) -> Result<Detached, TaggingError> {
        let change_id = self.cloud.ids().next("change");
        let mut seen = self.edge(tenant, content, tag_id).await?;
        for attempt in 0..ATTEMPTS {
            let Some(live) = seen.filter(|edge| edge.live) else {
                return Ok(Detached::NotThere);
            };
            let gone = Edge {
                live: false,
                version: live.version + 1,
                changed_at: self.now(),
                change_id: change_id.clone(),
                ..live.clone()
            };
            seen = match self.commit_detach(&gone).await {
                Ok(Transaction::Committed(_)) => return Ok(Detached::Now(gone)),
                Ok(Transaction::Cancelled(cancelled)) => standing_edge(&cancelled)?,
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    Some(live)
                }
                // The write may have been made; the edge knows by whom it was last changed.
                Err(fault) => match self.edge(tenant, content, tag_id).await? {
                    Some(there) if there.change_id == change_id => Some(there),
                    _ => return Err(fault.into()),
                },
            };
            if let Some(there) = &seen
                && there.change_id == change_id
            {
                return Ok(Detached::Now(there.clone()));
            }
        }
        Err(TaggingError::Contended)
    }

    /// Edge, index row and count, together or not at all.
    async fn commit_detach(
        &self,
        gone: &Edge,
    ) -> Result<Transaction<impl Sized + use<>>, CloudError> {
        let row = Delete::builder()
            .table_name(self.table("content_tag_by_tag"))
            .set_key(Some(gone.row_key()));
        let key = gone.key().remove("content_key");
        let count = Update::builder()
            .table_name(self.table("contents"))
            .set_key(key.map(|key| Item::from([("content_key".into(), key)])))
            .update_expression(COUNT_DOWN)
            .expression_attribute_values(":minus_one", n(-1))
            .expression_attribute_values(":one", n(1));
        let items = vec![
            self.put_edge(gone)?,
            TransactWriteItem::builder()
                .delete(row.build().map_err(CloudError::bug)?)
                .build(),
            TransactWriteItem::builder()
                .update(count.build().map_err(CloudError::bug)?)
                .build(),
        ];
        self.cloud.transact(&["edge", "row", "count"], items).await
    }
}
