//! Autocomplete: the names that begin with what somebody has typed so far.
//!
//! What is typed is normalized as names are, so `#RU` finds `Rust`. The index of names is spread over
//! a few keys and eventually consistent: a name may be missing for a moment after it was created.

use crate::domain::{BadInput, normalize};
use crate::tables::NAME_SHARDS;
use crate::{Tagging, TaggingError, TenantId};
use cloud::CloudError;
use cloud::item::{from_item, s};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

/// A name that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundName {
    /// As it is compared.
    pub tag_name_norm: String,
    /// As its creator wrote it.
    pub display_name: String,
    /// The identity under this name.
    pub tag_id: String,
    /// Over how many keys its index is spread.
    pub buckets: u32,
}

/// The most names that are given at once.
pub const MAX_NAMES: usize = 50;

impl Tagging {
    /// Up to so many names that begin with this, in order. Other names of a tag (synonyms) are among
    /// them: people look for those, too.
    pub async fn autocomplete(
        &self,
        tenant: &TenantId,
        typed: &str,
        limit: usize,
    ) -> Result<Vec<FoundName>, TaggingError> {
        if !(1..=MAX_NAMES).contains(&limit) {
            return Err(BadInput::Other("ask for between 1 and 50 names").into());
        }
        let prefix = normalize(typed);
        if prefix.is_empty() {
            return Err(BadInput::Other("type at least one letter of the name").into());
        }
        let found =
            (0..NAME_SHARDS).map(|shard| self.found_names(tenant, shard, &prefix, Some(limit)));
        let found = try_join_all(found).await?;
        let mut names = found.concat();
        names.sort_by(|a, b| a.tag_name_norm.cmp(&b.tag_name_norm));
        names.truncate(limit);
        Ok(names)
    }

    /// Every name of a tenant.
    pub(crate) async fn all_names(&self, tenant: &TenantId) -> Result<Vec<FoundName>, CloudError> {
        let mut names = Vec::new();
        for shard in 0..NAME_SHARDS {
            names.extend(self.found_names(tenant, shard, "", None).await?);
        }
        Ok(names)
    }

    /// The names in one shard of the index that begin with this, up to so many of them.
    async fn found_names(
        &self,
        tenant: &TenantId,
        shard: u32,
        prefix: &str,
        limit: Option<usize>,
    ) -> Result<Vec<FoundName>, CloudError> {
        let mut names: Vec<FoundName> = Vec::new();
        let mut after = None;
        loop {
            let query = self
                .dynamodb()
                .query()
                .table_name(self.table("tags"))
                .index_name("by_name")
                .expression_attribute_values(":shard", s(format!("{}#{shard}", tenant.as_str())))
                .set_limit(limit.map(|limit| limit as i32))
                .set_exclusive_start_key(after);
            // DynamoDB knows no empty prefix.
            let query = if prefix.is_empty() {
                query.key_condition_expression("name_shard = :shard")
            } else {
                query
                    .key_condition_expression(
                        "name_shard = :shard AND begins_with(tag_name_norm, :prefix)",
                    )
                    .expression_attribute_values(":prefix", s(prefix))
            };
            let page = query.send().await?;
            for item in page.items() {
                names.push(from_item(item)?);
            }
            after = page.last_evaluated_key;
            if after.is_none() || limit.is_some_and(|limit| names.len() >= limit) {
                return Ok(names);
            }
        }
    }
}
