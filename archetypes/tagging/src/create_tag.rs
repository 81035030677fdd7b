//! Create tag: give a name its meaning, once.

use crate::domain::{BadInput, MAX_BUCKETS, TagName, TenantId};
use crate::items::{TagDefinition, TagStatus, tag_id_key, tag_key};
use crate::tables::NAME_SHARDS;
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, s, shard_of, to_item};
use cloud::{CloudError, Guard, Guarded, Item};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Created {
    /// The name is new.
    Now(TagDefinition),
    /// The name has a meaning already, and keeps it: this one.
    Before(TagDefinition),
}

impl Created {
    /// The definition, whoever made it.
    pub fn definition(self) -> TagDefinition {
        match self {
            Self::Now(definition) | Self::Before(definition) => definition,
        }
    }
}

/// A name means one thing: two who create it at once get one tag.
const GUARD: &str = "attribute_not_exists(tag_key)";

impl Tagging {
    /// Creates a tag whose index is spread over so many buckets. If the name is there, it stays as
    /// it is.
    pub async fn create_tag(
        &self,
        tenant: &TenantId,
        name: &TagName,
        buckets: u32,
    ) -> Result<Created, TaggingError> {
        if !(1..=MAX_BUCKETS).contains(&buckets) {
            return Err(BadInput::Buckets(buckets).into());
        }
        let definition = TagDefinition {
            tenant_id: tenant.as_str().to_owned(),
            tag_name_norm: name.normalized().to_owned(),
            display_name: name.shown().to_owned(),
            tag_id: self.cloud.ids().next("tag"),
            buckets,
            status: TagStatus::Active,
            redirect_to: None,
            created_at: self.now(),
        };
        let written = self
            .dynamodb()
            .put_item()
            .table_name(self.table("tags"))
            .set_item(Some(definition_item(&definition)?))
            .condition_expression(GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded();
        let there: TagDefinition = match written {
            Ok(Guard::Passed(_)) => return Ok(Created::Now(definition)),
            Ok(Guard::Failed(old)) => from_item(&old.unwrap_or_default())?,
            // The write may have been made: ask who made what is there.
            Err(fault) => match self.definition(tenant, name.normalized()).await? {
                Some(there) => there,
                None => return Err(fault.into()),
            },
        };
        // The id was made for this call: if it is there, so was the call, and its answer was lost.
        if there.tag_id == definition.tag_id {
            return Ok(Created::Now(there));
        }
        Ok(Created::Before(there))
    }
}

/// A definition with the keys of its indexes.
pub(crate) fn definition_item(definition: &TagDefinition) -> Result<Item, CloudError> {
    let (tenant, name) = (&definition.tenant_id, &definition.tag_name_norm);
    let shard = shard_of(name, NAME_SHARDS);
    let mut item = to_item(definition)?;
    item.insert("tag_key".into(), s(tag_key(tenant, name)));
    item.insert(
        "tag_id_key".into(),
        s(tag_id_key(tenant, &definition.tag_id)),
    );
    item.insert("name_shard".into(), s(format!("{tenant}#{shard}")));
    Ok(item)
}
