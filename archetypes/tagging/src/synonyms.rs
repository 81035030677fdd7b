//! Synonyms: another name for a tag. Whoever attaches, detaches or views by it reaches the tag.
//!
//! A synonym is a definition that only redirects. It leads to a tag of its own, never to another
//! synonym, so there are no chains and no circles: the target must be ACTIVE when the synonym is made,
//! in one transaction with it, and a tag remembers its other names, so that a [`merge`](crate::merge)
//! takes them along. A name that has contents of its own does not become a synonym: merge it.

use crate::create_tag::definition_item;
use crate::domain::{BadInput, TagName, TenantId};
use crate::items::{TagDefinition, TagStatus, tag_key};
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, pause, s};
use cloud::{CloudError, Transaction};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Synonym {
    /// The name stands for this tag, by this call.
    Now(TagDefinition),
    /// It did already.
    Before(TagDefinition),
    /// The name is a tag of its own, or another name for another tag: this is its definition.
    Taken(TagDefinition),
}

/// The name means nothing yet.
const NEW_NAME: &str = "attribute_not_exists(tag_key)";

/// The target is a tag of its own, now: not another name, and not about to become one.
const TARGET_GUARD: &str = "#status = :active";
const REMEMBER: &str = "ADD aliases :alias";

/// How often it is decided again. Each time, the target became another name for something.
const ATTEMPTS: u32 = 20;

impl Tagging {
    /// Makes a new name another name for a tag, which may itself be told by any of its names.
    pub async fn add_synonym(
        &self,
        tenant: &TenantId,
        alias: &TagName,
        of: &TagName,
    ) -> Result<Synonym, TaggingError> {
        let tag_id = self.cloud.ids().next("tag");
        for attempt in 0..ATTEMPTS {
            let target = self.resolve(tenant, of).await?;
            if target.tag_name_norm == alias.normalized() {
                return Err(BadInput::Other("a tag is no synonym of itself").into());
            }
            let definition = TagDefinition {
                tenant_id: tenant.as_str().to_owned(),
                tag_name_norm: alias.normalized().to_owned(),
                display_name: alias.shown().to_owned(),
                tag_id: tag_id.clone(),
                buckets: 1,
                status: TagStatus::Redirect,
                redirect_to: Some(target.tag_name_norm.clone()),
                created_at: self.now(),
            };
            let put = Put::builder()
                .table_name(self.table("tags"))
                .set_item(Some(definition_item(&definition)?))
                .condition_expression(NEW_NAME)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                )
                .build()
                .map_err(CloudError::bug)?;
            let remember = Update::builder()
                .table_name(self.table("tags"))
                .key(
                    "tag_key",
                    s(tag_key(tenant.as_str(), &target.tag_name_norm)),
                )
                .update_expression(REMEMBER)
                .condition_expression(TARGET_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":active", s("ACTIVE"))
                .expression_attribute_values(
                    ":alias",
                    AttributeValue::Ss(vec![alias.normalized().to_owned()]),
                )
                .build()
                .map_err(CloudError::bug)?;
            let items = vec![
                TransactWriteItem::builder().put(put).build(),
                TransactWriteItem::builder().update(remember).build(),
            ];
            match self.cloud.transact(&["alias", "target"], items).await {
                Ok(Transaction::Committed(_)) => return Ok(Synonym::Now(target)),
                Ok(Transaction::Cancelled(cancelled)) => {
                    let Some(Some(item)) = cancelled.failed("alias") else {
                        // The target is on its way into another: ask who it is now.
                        continue;
                    };
                    let there: TagDefinition = from_item(item)?;
                    let means = self.resolve(tenant, alias).await?;
                    return Ok(if there.tag_id == tag_id {
                        Synonym::Now(means)
                    } else if means.tag_id == target.tag_id && there.redirect_to.is_some() {
                        Synonym::Before(means)
                    } else {
                        Synonym::Taken(there)
                    });
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(TaggingError::Contended)
    }
}
