//! Authorizations that were held too long: let go of them at the processor, and say so.
//!
//! The card's bank lets go by itself some day. Until then the money is missing on somebody's card, and
//! a capture would be declined; so an authorization that is over is voided.

use crate::domain::{Movement, PaymentIntentState};
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::AttributeValue;
use cloud::CloudError;
use cloud::item::{n, s};

impl Payments {
    /// Voids what is over in these shards. What cannot be voided now is found again next time.
    pub async fn expire_authorizations(
        &self,
        shards: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<(String, Result<PaymentIntentState, PaymentsError>)>, CloudError> {
        let now = self.now();
        let mut done = Vec::new();
        for shard in shards {
            let mut pages = self
                .dynamodb()
                .query()
                .table_name(self.table(tables::PAYMENT_INTENTS.name))
                .index_name("expiring")
                .key_condition_expression("expiry_shard = :shard AND expiry_due_at <= :now")
                .expression_attribute_values(":shard", s(format!("expiry-{shard}")))
                .expression_attribute_values(":now", n(now))
                .into_paginator()
                .items()
                .send();
            while let Some(item) = pages.next().await {
                let item = item?;
                let Some(AttributeValue::S(id)) = item.get("payment_intent_id") else {
                    continue;
                };
                let ended = self.move_by_itself(id, &Movement::Expire).await;
                done.push((id.clone(), ended));
            }
        }
        Ok(done)
    }
}
