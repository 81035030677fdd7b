//! States as items: keys, shards, and the one read that decisions begin with.

use crate::domain::{PaymentIntentState, TransactionState, TransactionStatus};
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::AttributeValue;
use cloud::item::{from_item, n, s, shard_of};
use cloud::{CloudError, Item};
use serde::Serialize;

/// The key under which a sparse index shows what belongs to this payment.
pub fn lane(name: &str, payment_intent_id: &str) -> String {
    format!("{name}-{}", shard_of(payment_intent_id, tables::SHARDS))
}

/// A word of an enum as its attribute.
pub(crate) fn word(value: impl Serialize) -> AttributeValue {
    let name = serde_json::to_value(value).ok();
    s(name
        .as_ref()
        .and_then(|name| name.as_str())
        .unwrap_or_default())
}

pub(crate) fn intent_key(payment_intent_id: &str) -> Item {
    Item::from([("payment_intent_id".to_owned(), s(payment_intent_id))])
}

pub(crate) fn transaction_key(payment_intent_id: &str, transaction_id: &str) -> Item {
    Item::from([
        ("payment_intent_id".to_owned(), s(payment_intent_id)),
        ("transaction_id".to_owned(), s(transaction_id)),
    ])
}

/// The key of an event, and of its delivery.
pub(crate) fn event_key(payment_intent_id: &str, event_number: u64) -> Item {
    Item::from([
        ("payment_intent_id".to_owned(), s(payment_intent_id)),
        ("event_number".to_owned(), n(event_number)),
    ])
}

impl TransactionState {
    /// The movement as it is kept: in the index of open ones as long as it is open.
    pub(crate) fn indexed(mut self) -> Self {
        let open = !self.status.is_terminal();
        self.due_shard = open.then(|| lane("open", &self.payment_intent_id));
        self
    }
}

impl TransactionStatus {
    pub(crate) fn attribute(self) -> AttributeValue {
        word(self)
    }
}

impl Payments {
    /// A payment and one of its movements. Each is read consistently, and the two together are no
    /// snapshot: whoever writes guards both.
    pub async fn read_movement(
        &self,
        payment_intent_id: &str,
        transaction_id: &str,
    ) -> Result<(PaymentIntentState, TransactionState), PaymentsError> {
        let keys = vec![
            (
                tables::PAYMENT_INTENTS.name,
                vec![intent_key(payment_intent_id)],
            ),
            (
                tables::TRANSACTIONS.name,
                vec![transaction_key(payment_intent_id, transaction_id)],
            ),
        ];
        let mut found = self.cloud.read_batch(keys, true).await?;
        let mut take = |table| found.remove(table).and_then(|mut items| items.pop());
        let intent = take(tables::PAYMENT_INTENTS.name);
        let transaction = take(tables::TRANSACTIONS.name);
        match (intent, transaction) {
            (Some(intent), Some(transaction)) => {
                Ok((from_item(&intent)?, from_item(&transaction)?))
            }
            _ => Err(PaymentsError::UnknownPayment(payment_intent_id.to_owned())),
        }
    }

    /// One payment. Consistent.
    pub async fn read_intent(
        &self,
        payment_intent_id: &str,
    ) -> Result<PaymentIntentState, PaymentsError> {
        let unknown = || PaymentsError::UnknownPayment(payment_intent_id.to_owned());
        // DynamoDB would call an empty key a wrong request.
        if payment_intent_id.is_empty() {
            return Err(unknown());
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table(tables::PAYMENT_INTENTS.name))
            .set_key(Some(intent_key(payment_intent_id)))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        let item = found.item.ok_or_else(unknown)?;
        Ok(from_item(&item)?)
    }
}
