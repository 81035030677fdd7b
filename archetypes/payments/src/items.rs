//! States as items: keys, shards, and the one read that decisions begin with.

use crate::domain::{self, PaymentIntentState, TransactionState, TransactionStatus};
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{AttributeValue, Get, TransactGetItem};
use cloud::item::{all_items, from_item, n, pause, s, shard_of};
use cloud::tables::Table;
use cloud::{CloudError, Item};
use serde::Serialize;
use serde::de::DeserializeOwned;

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
    /// A payment and one of its movements, as they were at one moment. A batch would be half the price
    /// and no snapshot: a movement that has ended beside a payment that does not know it yet. Every
    /// write would notice, but an answer that is kept for ever would not.
    pub async fn read_movement(
        &self,
        payment_intent_id: &str,
        transaction_id: &str,
    ) -> Result<(PaymentIntentState, TransactionState), PaymentsError> {
        let get = |table: &str, key: Item| {
            let get = Get::builder()
                .table_name(self.table(table))
                .set_key(Some(key));
            let get = get.build().map_err(CloudError::bug)?;
            Ok::<_, CloudError>(TransactGetItem::builder().get(get).build())
        };
        let items = vec![
            get(tables::PAYMENT_INTENTS.name, intent_key(payment_intent_id))?,
            get(
                tables::TRANSACTIONS.name,
                transaction_key(payment_intent_id, transaction_id),
            )?,
        ];
        for attempt in 0..crate::ATTEMPTS {
            let request = self.dynamodb().transact_get_items();
            let answer = request.set_transact_items(Some(items.clone())).send().await;
            let found = match answer.map_err(CloudError::from) {
                Ok(found) => found.responses.unwrap_or_default(),
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    continue;
                }
                Err(fault) => return Err(fault.into()),
            };
            let mut found = found.into_iter().map(|one| one.item);
            let (Some(Some(intent)), Some(Some(transaction))) = (found.next(), found.next()) else {
                return Err(PaymentsError::UnknownPayment(payment_intent_id.to_owned()));
            };
            return Ok((from_item(&intent)?, from_item(&transaction)?));
        }
        Err(PaymentsError::Contended)
    }

    /// Everything that stands under one key, in order. Consistent.
    pub(crate) async fn rows_of<T: DeserializeOwned>(
        &self,
        table: &Table,
        key: &str,
    ) -> Result<Vec<T>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table(table.name))
            .key_condition_expression("#key = :key")
            .expression_attribute_names("#key", table.partition.name())
            .expression_attribute_values(":key", s(key))
            .consistent_read(true);
        all_items(query).await?.iter().map(from_item).collect()
    }

    /// One payment. Consistent.
    pub async fn read_intent(
        &self,
        payment_intent_id: &str,
    ) -> Result<PaymentIntentState, PaymentsError> {
        let unknown = || PaymentsError::UnknownPayment(payment_intent_id.to_owned());
        // No payment has such an id, and DynamoDB would call it a wrong request.
        if domain::text("the payment", payment_intent_id).is_err() {
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
