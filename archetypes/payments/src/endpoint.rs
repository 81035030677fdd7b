//! Where a merchant listens, and what its messages are signed with.

use crate::domain::{self, BadInput};
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Guard, Guarded, Millis};
use serde::{Deserialize, Serialize};

/// Where a merchant listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointState {
    /// Whose.
    pub merchant_id: String,
    /// Where.
    pub webhook_url: String,
    /// What messages are signed with. In production this is a reference into a vault.
    pub secret: String,
    /// What they were signed with before, and still are …
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_secret: Option<String>,
    /// … until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub previous_until: Option<Millis>,
}

/// A secret that is there is changed by rotation only: whoever says again where they listen must not
/// undo a change that is under way.
const LISTEN: &str = "SET webhook_url = :url, secret = if_not_exists(secret, :secret)";

/// The store copies the old secret itself, so two changes at once cannot lose one; and the same change
/// again changes nothing.
const ROTATE_GUARD: &str = "attribute_exists(merchant_id) AND secret <> :new";
const ROTATE: &str = "SET previous_secret = secret, previous_until = :until, secret = :new";

impl EndpointState {
    /// The secrets to sign with now: two while they change.
    pub fn secrets(&self, now: Millis) -> Vec<&str> {
        let previous = self
            .previous_secret
            .as_deref()
            .filter(|_| self.previous_until.is_some_and(|until| until > now));
        std::iter::once(self.secret.as_str())
            .chain(previous)
            .collect()
    }
}

impl Payments {
    /// Says where a merchant listens, and the secret if there is none yet.
    pub async fn set_endpoint(
        &self,
        merchant_id: &str,
        webhook_url: &str,
        secret: &str,
    ) -> Result<(), PaymentsError> {
        domain::text("the merchant", merchant_id)?;
        domain::text("the secret", secret)?;
        let is_url = reqwest::Url::parse(webhook_url)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
        if !is_url {
            return Err(BadInput::Url(webhook_url.to_owned()).into());
        }
        self.dynamodb()
            .update_item()
            .table_name(self.table(tables::ENDPOINTS.name))
            .key("merchant_id", s(merchant_id))
            .update_expression(LISTEN)
            .expression_attribute_values(":url", s(webhook_url))
            .expression_attribute_values(":secret", s(secret))
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(())
    }

    /// Changes the secret. For `overlap` milliseconds messages carry both signatures.
    pub async fn rotate_secret(
        &self,
        merchant_id: &str,
        new: &str,
        overlap: Millis,
    ) -> Result<(), PaymentsError> {
        domain::text("the merchant", merchant_id)?;
        domain::text("the secret", new)?;
        let rotated = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::ENDPOINTS.name))
            .key("merchant_id", s(merchant_id))
            .update_expression(ROTATE)
            .condition_expression(ROTATE_GUARD)
            .expression_attribute_values(":new", s(new))
            .expression_attribute_values(":until", n(self.now() + overlap))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        match rotated {
            // Changed before: by this very call, perhaps, whose answer got lost.
            Guard::Passed(_) | Guard::Failed(Some(_)) => Ok(()),
            Guard::Failed(None) => Err(PaymentsError::UnknownMerchant(merchant_id.to_owned())),
        }
    }

    /// Where a merchant listens, if it does.
    pub async fn read_endpoint(
        &self,
        merchant_id: &str,
    ) -> Result<Option<EndpointState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table(tables::ENDPOINTS.name))
            .key("merchant_id", s(merchant_id))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }
}
