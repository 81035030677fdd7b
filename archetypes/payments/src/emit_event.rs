//! Emit a durable event: no change of a payment without its event, no event without its change.
//!
//! The event is written in the transaction that makes it true, into a table that is also the outbox.
//! Publishing after the write would lose it when the process dies between the two; publishing before
//! would tell of what may never happen. The number of a payment's last event is its version, so events
//! have no gaps, and two writers cannot both have the next one.

use crate::domain::PaymentIntentState;
use crate::items::{event_key, lane};
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use cloud::item::{from_item, n, to_item};
use cloud::{CloudError, Millis};
use serde::{Deserialize, Serialize};

/// Something that happened to a payment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentEventState {
    /// To which.
    pub payment_intent_id: String,
    /// 1, 2, 3 …: the payment's version after it.
    pub event_number: u64,
    /// Whose.
    pub merchant_id: String,
    /// `payment_intent.succeeded`.
    pub kind: String,
    /// What the merchant is sent: the payment as it was then.
    pub payload: String,
    /// When.
    pub created_at: Millis,
    /// Only until a delivery was made of it: what makes the outbox sparse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outbox_shard: Option<String>,
}

/// Nothing has moved since this change was decided.
const VERSION_GUARD: &str = "version = :seen";

/// The names of what [`Payments::changed`] adds to a transaction.
pub(crate) const CHANGED: [&str; 2] = ["intent", "event"];

impl Payments {
    /// A change of a payment and its event, as parts of a transaction.
    pub(crate) fn changed(
        &self,
        before: Option<&PaymentIntentState>,
        after: &PaymentIntentState,
        kind: &str,
    ) -> Result<[TransactWriteItem; 2], CloudError> {
        let put = Put::builder()
            .table_name(self.table(tables::PAYMENT_INTENTS.name))
            .set_item(Some(to_item(after)?))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = match before {
            // A new one has an id that nobody has, and is written together with its key.
            None => put,
            Some(before) => put
                .condition_expression(VERSION_GUARD)
                .expression_attribute_values(":seen", n(before.version)),
        };
        let event = PaymentEventState {
            payment_intent_id: after.payment_intent_id.clone(),
            event_number: after.version,
            merchant_id: after.merchant_id.clone(),
            kind: kind.to_owned(),
            payload: after.told(kind),
            created_at: after.updated_at,
            outbox_shard: Some(lane("outbox", &after.payment_intent_id)),
        };
        let event = Put::builder()
            .table_name(self.table(tables::PAYMENT_EVENTS.name))
            .set_item(Some(to_item(&event)?))
            .build()
            .map_err(CloudError::bug)?;
        Ok([
            TransactWriteItem::builder()
                .put(put.build().map_err(CloudError::bug)?)
                .build(),
            TransactWriteItem::builder().put(event).build(),
        ])
    }

    /// What has happened to a payment, in order. Consistent.
    pub async fn events_of(
        &self,
        payment_intent_id: &str,
    ) -> Result<Vec<PaymentEventState>, CloudError> {
        self.rows_of(&tables::PAYMENT_EVENTS, payment_intent_id)
            .await
    }

    /// One event.
    pub(crate) async fn read_event(
        &self,
        payment_intent_id: &str,
        event_number: u64,
    ) -> Result<PaymentEventState, PaymentsError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table(tables::PAYMENT_EVENTS.name))
            .set_key(Some(event_key(payment_intent_id, event_number)))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        let unknown = || PaymentsError::UnknownPayment(payment_intent_id.to_owned());
        Ok(from_item(&found.item.ok_or_else(unknown)?)?)
    }
}
