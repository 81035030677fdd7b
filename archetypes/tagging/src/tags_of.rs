//! The tags of a content: one query, because the tag is the edge's sort key.

use crate::Tagging;
use crate::domain::{ContentId, TenantId};
use crate::items::{Edge, content_key};
use cloud::CloudError;
use cloud::item::{all_items, from_item, s};

impl Tagging {
    /// The live edges of a content, by name, consistent.
    pub async fn tags_of(
        &self,
        tenant: &TenantId,
        content: &ContentId,
    ) -> Result<Vec<Edge>, CloudError> {
        let mut edges = self.edges_of(tenant.as_str(), content.as_str()).await?;
        edges.retain(|edge| edge.live);
        edges.sort_by(|a, b| a.tag_name_norm.cmp(&b.tag_name_norm));
        Ok(edges)
    }

    /// All edges of a content, those that are no more too.
    pub(crate) async fn edges_of(
        &self,
        tenant_id: &str,
        content_id: &str,
    ) -> Result<Vec<Edge>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("content_tag_unique"))
            .key_condition_expression("content_key = :content")
            .expression_attribute_values(":content", s(content_key(tenant_id, content_id)))
            .consistent_read(true);
        let items = all_items(query).await?;
        items.iter().map(from_item).collect()
    }
}
