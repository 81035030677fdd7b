//! Repair: rebuild the index from the edges, while everybody goes on writing.
//!
//! No attach and no detach tears an edge from its row. Restores from two backups do, and scripts, and
//! the version of this program before the one with the transaction. Repair walks both ways:
//!
//! 1. from the contents over their edges: is the row of every live edge there, and as it should be? Does
//!    the count agree?
//! 2. from the tags over their rows: is there a live edge that names exactly this row?
//!
//! What it reads is old by the time it writes. So every mend is a transaction with a check that the
//! edge is still the very one it looked at. If it is not, somebody has changed it since, and whoever
//! changes an edge puts its row right.

use crate::Tagging;
use crate::attach::row_item;
use crate::domain::TenantId;
use crate::items::{ContentState, Edge, IndexRow, bucket_key, content_key, edge_key};
use crate::tables::{CONTENT_SHARDS, NAME_SHARDS};
use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem};
use cloud::item::{all_items, from_item, n, pause, s};
use cloud::{CloudError, Guard, Guarded, Item, Transaction};
use serde::{Deserialize, Serialize};

/// What was mended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Mended {
    /// Contents looked at.
    pub contents: usize,
    /// Edges looked at, live or not.
    pub edges: usize,
    /// Index rows looked at.
    pub rows: usize,
    /// Rows that a live edge did not have, or had wrong, and has now.
    pub rows_written: Vec<String>,
    /// Rows that no live edge had, and that are gone.
    pub rows_removed: Vec<String>,
    /// Contents whose count of tags was wrong.
    pub counts_corrected: Vec<String>,
    /// What changed while it was looked at, and was left to whoever changed it.
    pub changed_meanwhile: usize,
}

impl Mended {
    /// Whether there was nothing to mend.
    pub fn nothing(&self) -> bool {
        self.rows_written.is_empty()
            && self.rows_removed.is_empty()
            && self.counts_corrected.is_empty()
    }
}

/// The edge is still the very one that was looked at.
const SAME_EDGE: &str = "version = :seen";

/// There is still no edge.
const NO_EDGE: &str = "attribute_not_exists(content_key)";

/// No edge of this content has changed since the count was read, which was before its edges were.
const SAME_REVISION: &str = "revision = :seen";

/// How many items one batch may read.
const BATCH: usize = 100;

/// How often a mend that conflicts with another transaction is tried again.
const ATTEMPTS: u32 = 20;

/// A row as repair finds it: with its key.
#[derive(Debug, Clone, Deserialize)]
struct FoundRow {
    bucket_key: String,
    position: String,
    #[serde(flatten)]
    row: IndexRow,
}

impl Tagging {
    /// Looks at all contents and all tags of a tenant, and mends the index and the counts.
    pub async fn repair(&self, tenant: &TenantId) -> Result<Mended, CloudError> {
        let mut mended = Mended::default();
        for shard in 0..CONTENT_SHARDS {
            for content_id in self.contents_in(tenant, shard).await? {
                self.repair_content(tenant, &content_id, &mut mended)
                    .await?;
            }
        }
        for shard in 0..NAME_SHARDS {
            for name in self.names_in(tenant, shard).await? {
                self.repair_tag(tenant, &name, &mut mended).await?;
            }
        }
        Ok(mended)
    }

    /// First way: what the edges of a content say must be there.
    pub async fn repair_content(
        &self,
        tenant: &TenantId,
        content_id: &str,
        mended: &mut Mended,
    ) -> Result<(), CloudError> {
        // The count first: if its revision is the same afterwards, the edges were of one moment.
        let counted = self.content_state(tenant, content_id).await?;
        let edges = self.edges_of(tenant.as_str(), content_id).await?;
        mended.contents += 1;
        mended.edges += edges.len();
        let live: Vec<_> = edges.iter().filter(|edge| edge.live).collect();
        for some in live.chunks(BATCH) {
            let keys = some.iter().map(|edge| edge.row_key()).collect();
            let found = self.read_rows(keys).await?;
            for edge in some {
                let row = found.iter().find(|row| is_of(row, edge));
                if row.is_some_and(|found| found.row == edge.row()) {
                    continue;
                }
                let put = Put::builder()
                    .table_name(self.table("content_tag_by_tag"))
                    .set_item(Some(row_item(edge)?));
                let put = put.build().map_err(CloudError::bug)?;
                let write = TransactWriteItem::builder().put(put).build();
                let key = edge.key();
                if self.mend(&key, Some(edge), write).await? {
                    mended.rows_written.push(named(edge.bucket, &edge.row()));
                } else {
                    mended.changed_meanwhile += 1;
                }
            }
        }
        if let Some(counted) = counted
            && counted.tag_count != live.len() as i64
        {
            if self.correct_count(&counted, live.len()).await? {
                mended.counts_corrected.push(content_id.to_owned());
            } else {
                mended.changed_meanwhile += 1;
            }
        }
        Ok(())
    }

    /// Second way: what is there that no edge says.
    pub async fn repair_tag(
        &self,
        tenant: &TenantId,
        tag_name_norm: &str,
        mended: &mut Mended,
    ) -> Result<(), CloudError> {
        // The index of names may be behind; the definition itself knows how many buckets there are.
        let Some(definition) = self.definition(tenant, tag_name_norm).await? else {
            return Ok(());
        };
        for bucket in 0..definition.buckets {
            let bucket_key = bucket_key(tenant.as_str(), &definition.tag_id, bucket);
            let query = self
                .dynamodb()
                .query()
                .table_name(self.table("content_tag_by_tag"))
                .key_condition_expression("bucket_key = :bucket")
                .expression_attribute_values(":bucket", s(bucket_key))
                .consistent_read(true);
            let rows: Vec<FoundRow> = all_items(query)
                .await?
                .iter()
                .map(from_item)
                .collect::<Result<_, _>>()?;
            mended.rows += rows.len();
            for some in rows.chunks(BATCH) {
                let edges = self.read_edges(tenant, some).await?;
                for found in some {
                    let row = &found.row;
                    let edge = edges.iter().find(|edge| {
                        edge.content_id == row.content_id && edge.tag_id == definition.tag_id
                    });
                    if edge.is_some_and(|edge| edge.live && is_of(found, edge)) {
                        continue;
                    }
                    let delete = Delete::builder()
                        .table_name(self.table("content_tag_by_tag"))
                        .key("bucket_key", s(&found.bucket_key))
                        .key("position", s(&found.position));
                    let delete = delete.build().map_err(CloudError::bug)?;
                    let write = TransactWriteItem::builder().delete(delete).build();
                    let key = edge_key(tenant.as_str(), &row.content_id, &definition.tag_id);
                    if self.mend(&key, edge, write).await? {
                        mended.rows_removed.push(named(bucket, row));
                    } else {
                        mended.changed_meanwhile += 1;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes, if the edge is still as it was seen. Says whether it wrote.
    async fn mend(
        &self,
        key: &Item,
        seen: Option<&Edge>,
        write: TransactWriteItem,
    ) -> Result<bool, CloudError> {
        let check = ConditionCheck::builder()
            .table_name(self.table("content_tag_unique"))
            .set_key(Some(key.clone()));
        let check = match seen {
            Some(edge) => check
                .condition_expression(SAME_EDGE)
                .expression_attribute_values(":seen", n(edge.version)),
            None => check.condition_expression(NO_EDGE),
        };
        let check = check.build().map_err(CloudError::bug)?;
        for attempt in 0..ATTEMPTS {
            let items = vec![
                TransactWriteItem::builder()
                    .condition_check(check.clone())
                    .build(),
                write.clone(),
            ];
            match self.cloud.transact(&["edge", "row"], items).await {
                Ok(Transaction::Committed(_)) => return Ok(true),
                Ok(Transaction::Cancelled(_)) => return Ok(false),
                // Somebody is just changing this edge, or has just looked at it.
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault),
            }
        }
        Ok(false)
    }

    async fn correct_count(&self, seen: &ContentState, live: usize) -> Result<bool, CloudError> {
        let key = content_key(&seen.tenant_id, &seen.content_id);
        let written = self
            .dynamodb()
            .update_item()
            .table_name(self.table("contents"))
            .key("content_key", s(key))
            .update_expression("SET tag_count = :live")
            .condition_expression(SAME_REVISION)
            .expression_attribute_values(":live", n(live))
            .expression_attribute_values(":seen", n(seen.revision))
            .send()
            .await
            .guarded();
        match written {
            Ok(Guard::Passed(_)) => Ok(true),
            Ok(Guard::Failed(_)) | Err(CloudError::Conflict(_)) => Ok(false),
            Err(fault) => Err(fault),
        }
    }

    /// The count of a content's tags, consistent.
    pub async fn content_state(
        &self,
        tenant: &TenantId,
        content_id: &str,
    ) -> Result<Option<ContentState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("contents"))
            .key("content_key", s(content_key(tenant.as_str(), content_id)))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// The ids of a tenant's contents, a shard of them. By an index: what came in just now may be
    /// missing, and nothing can have happened to it yet.
    pub(crate) async fn contents_in(
        &self,
        tenant: &TenantId,
        shard: u32,
    ) -> Result<Vec<String>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("contents"))
            .index_name("by_shard")
            .key_condition_expression("content_shard = :shard")
            .expression_attribute_values(":shard", s(format!("{}#{shard}", tenant.as_str())));
        texts(all_items(query).await?, "content_id")
    }

    /// The normalized names of a tenant's tags, a shard of them, by the index.
    pub(crate) async fn names_in(
        &self,
        tenant: &TenantId,
        shard: u32,
    ) -> Result<Vec<String>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("tags"))
            .index_name("by_name")
            .key_condition_expression("name_shard = :shard")
            .expression_attribute_values(":shard", s(format!("{}#{shard}", tenant.as_str())));
        texts(all_items(query).await?, "tag_name_norm")
    }

    async fn read_rows(&self, keys: Vec<Item>) -> Result<Vec<FoundRow>, CloudError> {
        let read = self
            .cloud
            .read_batch(vec![("content_tag_by_tag", keys)], true);
        let items = read.await?.into_values().flatten();
        items.map(|item| from_item(&item)).collect()
    }

    async fn read_edges(
        &self,
        tenant: &TenantId,
        rows: &[FoundRow],
    ) -> Result<Vec<Edge>, CloudError> {
        // Two rows may belong to one edge; a batch takes no key twice.
        let mut pairs: Vec<_> = rows
            .iter()
            .map(|found| (&found.row.content_id, &found.row.tag_id))
            .collect();
        pairs.sort();
        pairs.dedup();
        let keys = pairs
            .into_iter()
            .map(|(content, tag)| edge_key(tenant.as_str(), content, tag))
            .collect();
        let read = self
            .cloud
            .read_batch(vec![("content_tag_unique", keys)], true);
        let items = read.await?.into_values().flatten();
        items.map(|item| from_item(&item)).collect()
    }
}

/// Whether this is the row that the edge names.
fn is_of(found: &FoundRow, edge: &Edge) -> bool {
    found.bucket_key == bucket_key(&edge.tenant_id, &edge.tag_id, edge.bucket)
        && found.position == edge.position().key()
}

fn named(bucket: u32, row: &IndexRow) -> String {
    format!("{} of {} in bucket {bucket}", row.content_id, row.tag_id)
}

fn texts(items: Vec<Item>, attribute: &str) -> Result<Vec<String>, CloudError> {
    let text = |item: &Item| match item.get(attribute) {
        Some(aws_sdk_dynamodb::types::AttributeValue::S(text)) => Ok(text.clone()),
        _ => Err(CloudError::corrupt(format!("an item has no {attribute}"))),
    };
    items.iter().map(text).collect()
}
