//! Read tag metadata: by name, or by the id that edges carry.

use crate::domain::{TagName, TenantId};
use crate::items::{TagDefinition, tag_id_key};
use crate::{Tagging, TaggingError};
use cloud::item::{from_item, s};

impl Tagging {
    /// What a name means. For another name of a tag, that tag.
    pub async fn read_tag(
        &self,
        tenant: &TenantId,
        name: &TagName,
    ) -> Result<TagDefinition, TaggingError> {
        self.resolve(tenant, name).await
    }

    /// Which tag has this id. By an index, so a tag that was created just now may not be there yet.
    pub async fn tag_by_id(
        &self,
        tenant: &TenantId,
        tag_id: &str,
    ) -> Result<Option<TagDefinition>, TaggingError> {
        let found = self
            .dynamodb()
            .query()
            .table_name(self.table("tags"))
            .index_name("by_id")
            .key_condition_expression("tag_id_key = :id")
            .expression_attribute_values(":id", s(tag_id_key(tenant.as_str(), tag_id)))
            .send()
            .await
            .map_err(cloud::CloudError::from)?;
        let item = found.items.unwrap_or_default().into_iter().next();
        Ok(item.map(|item| from_item(&item)).transpose()?)
    }
}
