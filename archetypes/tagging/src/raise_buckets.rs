//! Raise B while the tag is in use.
//!
//! Only the number changes. Rows stay where they are, and every edge remembers where its row is, so
//! detach finds it. New rows spread over all buckets. A writer that still holds the old number writes
//! to a bucket that readers look at anyway; a reader takes the number from the definition, consistently,
//! before it looks. B never falls: a reader that knows fewer buckets than a writer would miss rows.

use crate::domain::{BadInput, MAX_BUCKETS, TagName, TenantId};
use crate::items::{TagDefinition, tag_key};
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::{ReturnValue, ReturnValuesOnConditionCheckFailure};
use cloud::item::{from_item, n, s};
use cloud::{Guard, Guarded};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raised {
    /// The tag has at least so many buckets: this is its definition now.
    Done(TagDefinition),
    /// The tag is being merged, or has been, into this one: raise that.
    Merged {
        /// Its normalized name.
        into: String,
    },
}

/// Only upwards, and only for a tag of its own: a merge has closed the buckets it knew of, and counts
/// on there being no others.
const GUARD: &str = "buckets < :to AND #status = :active";

impl Tagging {
    /// Gives a tag at least so many buckets. Done twice, it is done once; fewer than it has is no
    /// change.
    pub async fn raise_buckets(
        &self,
        tenant: &TenantId,
        name: &TagName,
        to: u32,
    ) -> Result<Raised, TaggingError> {
        if !(1..=MAX_BUCKETS).contains(&to) {
            return Err(BadInput::Buckets(to).into());
        }
        let written = self
            .dynamodb()
            .update_item()
            .table_name(self.table("tags"))
            .key("tag_key", s(tag_key(tenant.as_str(), name.normalized())))
            .update_expression("SET buckets = :to")
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":to", n(to))
            .expression_attribute_values(":active", s("ACTIVE"))
            .return_values(ReturnValue::AllNew)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        let item = match written {
            Guard::Passed(output) => output.attributes.unwrap_or_default(),
            Guard::Failed(Some(old)) => old,
            Guard::Failed(None) => {
                return Err(TaggingError::UnknownTag(name.normalized().to_owned()));
            }
        };
        let definition: TagDefinition = from_item(&item)?;
        Ok(match definition.redirect_to {
            Some(into) => Raised::Merged { into },
            None => Raised::Done(definition),
        })
    }
}
