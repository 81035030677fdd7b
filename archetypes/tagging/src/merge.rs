//! Merge: one tag becomes another name for a second one, and its contents move there.

use crate::domain::TenantId;
use crate::items::{Edge, bucket_key};
use crate::{Tagging, TaggingError};
use cloud::CloudError;
use cloud::item::s;

impl Tagging {
    /// What an attach does last: if the tag was merged meanwhile, its edge belongs to another tag.
    pub(crate) async fn after_attach(
        &self,
        tenant: &TenantId,
        edge: Edge,
    ) -> Result<Edge, TaggingError> {
        let gate = self
            .dynamodb()
            .get_item()
            .table_name(self.table("tag_gates"))
            .key(
                "bucket_key",
                s(bucket_key(tenant.as_str(), &edge.tag_id, edge.bucket)),
            )
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        match gate.item {
            None => Ok(edge),
            Some(_) => Err(TaggingError::Contended),
        }
    }
}
