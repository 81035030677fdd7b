//! States as they are kept, their keys, and the reads that several use cases share.

use crate::domain::{ContentId, Position, TagName, TenantId};
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::AttributeValue;
use cloud::item::{from_item, s};
use cloud::{CloudError, Item, Millis};
use serde::{Deserialize, Serialize};

/// What a name is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum TagStatus {
    /// A tag of its own.
    Active,
    /// Another name for a tag: `redirect_to` says for which. It never had contents of its own, or a
    /// merge has moved them.
    Redirect,
    /// Being merged into `redirect_to`: already another name for it, its contents still on the move.
    Merging,
}

/// TagDefinitionState: what a name means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagDefinition {
    /// Whose.
    pub tenant_id: String,
    /// The name as it is compared; with the tenant, the key.
    pub tag_name_norm: String,
    /// The name as its creator wrote it.
    pub display_name: String,
    /// The identity that edges carry.
    pub tag_id: String,
    /// Over how many keys its index is spread. Only ever rises.
    pub buckets: u32,
    /// Tag or other name.
    pub status: TagStatus,
    /// The normalized name of the tag that this is another name for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redirect_to: Option<String>,
    /// When it was created.
    pub created_at: Millis,
}

/// ContentTagUniqueState: that a content has a tag, or had it. The truth; all else is made from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edge {
    /// Whose.
    pub tenant_id: String,
    /// Which content.
    pub content_id: String,
    /// Which tag.
    pub tag_id: String,
    /// The tag's normalized name, so that listing a content's tags needs one query. It never changes.
    pub tag_name_norm: String,
    /// Whether the content has the tag. An edge that is not live stays, for its version.
    pub live: bool,
    /// Counts this edge's changes, for ever: odd while live, even while not. Whoever hears of two
    /// changes knows by it which came later.
    pub version: u64,
    /// When the tag was attached (the last time); half of the index row's key.
    pub created_at: Millis,
    /// The bucket that the index row was written to; the rest of its key. The number of buckets may
    /// have risen since.
    pub bucket: u32,
    /// When it last changed.
    pub changed_at: Millis,
    /// The request that made the last change: how a request knows its own work.
    pub change_id: String,
}

impl Edge {
    /// Its place in the tag's view.
    pub fn position(&self) -> Position {
        Position {
            created_at: self.created_at,
            content_id: self.content_id.clone(),
        }
    }

    /// The key of its item.
    pub fn key(&self) -> Item {
        edge_key(&self.tenant_id, &self.content_id, &self.tag_id)
    }

    /// The index row that belongs to it, while it is live.
    pub fn row(&self) -> IndexRow {
        IndexRow {
            content_id: self.content_id.clone(),
            tag_id: self.tag_id.clone(),
            created_at: self.created_at,
            version: self.version,
        }
    }

    /// The key of its index row.
    pub fn row_key(&self) -> Item {
        let bucket_key = bucket_key(&self.tenant_id, &self.tag_id, self.bucket);
        Item::from([
            ("bucket_key".into(), s(bucket_key)),
            ("position".into(), s(self.position().key())),
        ])
    }
}

/// ContentTagByTagIndexState: a row of the index, made from an edge and mended from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRow {
    /// Which content.
    pub content_id: String,
    /// Which tag.
    pub tag_id: String,
    /// When the tag was attached.
    pub created_at: Millis,
    /// The version of the edge that this row was written with.
    pub version: u64,
}

impl IndexRow {
    /// Its place in the tag's view.
    pub fn position(&self) -> Position {
        Position {
            created_at: self.created_at,
            content_id: self.content_id.clone(),
        }
    }
}

/// A content: how many tags it has. There from its first tag on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentState {
    /// Whose.
    pub tenant_id: String,
    /// Which.
    pub content_id: String,
    /// How many live edges it has.
    pub tag_count: i64,
    /// Counts the changes of its edges: equal ones mean that no edge has changed in between.
    pub revision: u64,
}

/// The key of a tag's definition.
pub fn tag_key(tenant_id: &str, tag_name_norm: &str) -> String {
    format!("{tenant_id}#{tag_name_norm}")
}

/// The key of a definition by its id; of a tag's popularity, too.
pub fn tag_id_key(tenant_id: &str, tag_id: &str) -> String {
    format!("{tenant_id}#{tag_id}")
}

/// The key of a content: of its edges and of its count.
pub fn content_key(tenant_id: &str, content_id: &str) -> String {
    format!("{tenant_id}#{content_id}")
}

/// The key of a bucket of a tag's index.
pub fn bucket_key(tenant_id: &str, tag_id: &str, bucket: u32) -> String {
    format!("{tenant_id}#{tag_id}#{bucket}")
}

/// The key of an edge's item.
pub fn edge_key(tenant_id: &str, content_id: &str, tag_id: &str) -> Item {
    Item::from([
        ("content_key".into(), s(content_key(tenant_id, content_id))),
        ("tag_id".into(), s(tag_id)),
    ])
}

/// A truth value.
pub fn truth(value: bool) -> AttributeValue {
    AttributeValue::Bool(value)
}

impl Tagging {
    /// The definition under exactly this name, consistent, redirects not followed.
    pub async fn definition(
        &self,
        tenant: &TenantId,
        tag_name_norm: &str,
    ) -> Result<Option<TagDefinition>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("tags"))
            .key("tag_key", s(tag_key(tenant.as_str(), tag_name_norm)))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// The tag that a name stands for: its definition, or the one it redirects to.
    pub async fn resolve(
        &self,
        tenant: &TenantId,
        name: &TagName,
    ) -> Result<TagDefinition, TaggingError> {
        let unknown = || TaggingError::UnknownTag(name.normalized().to_owned());
        let mut at = name.normalized().to_owned();
        // A name leads to a tag in one step, or in two while a merge is on its way.
        for _ in 0..REDIRECTS {
            let definition = self.definition(tenant, &at).await?.ok_or_else(unknown)?;
            match definition.redirect_to {
                Some(next) => at = next,
                None => return Ok(definition),
            }
        }
        Err(CloudError::Corrupt(format!("the name '{at}' leads around in circles")).into())
    }

    /// An edge, live or not, consistent.
    pub async fn edge(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        tag_id: &str,
    ) -> Result<Option<Edge>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("content_tag_unique"))
            .set_key(Some(edge_key(tenant.as_str(), content.as_str(), tag_id)))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }
}

/// How many names may stand between a name and its tag.
const REDIRECTS: u32 = 8;
