//! Mark processing: an attempt is on its way, and stands in the table before it is.
//!
//! Whoever dies after this leaves a row that says SENT, and somebody will ask the processor about it.
//! Whoever sent first and wrote afterwards could die with money taken that nobody knows of.

use crate::domain::{Kind, PaymentIntentState, STALLED_MS, TransactionState, TransactionStatus};
use crate::emit_event::CHANGED;
use crate::items::transaction_key;
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use cloud::item::{n, to_item};
use cloud::{CloudError, Millis, Transaction};
use serde::{Deserialize, Serialize};

/// Where an attempt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum AttemptStatus {
    /// On its way.
    Sent,
    /// Nobody knows.
    Unknown,
    /// The processor did it.
    Approved,
    /// The processor said no.
    Declined,
    /// It is not at the processor, and will be refused if it comes.
    Closed,
}

/// One request to the processor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExternalAuthorizationAttemptState {
    /// What the processor knows it by.
    pub attempt_id: String,
    /// Of which movement.
    pub transaction_id: String,
    /// Of which payment.
    pub payment_intent_id: String,
    /// Where it stands.
    pub status: AttemptStatus,
    /// When it was first sent.
    pub sent_at: Millis,
    /// When its outcome was known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Millis>,
}

/// Nothing of this movement is at the processor: its attempts so far were closed there. With one that
/// is unknown the status is another, and no second attempt begins.
const PENDING_GUARD: &str = "#status = :pending AND attempt = :seen";
const SEND: &str = "SET #status = :sent, attempt = :attempt, due_at = :due, updated_at = :now";

impl Payments {
    /// PENDING → SENT. None if somebody else has moved it: read again.
    pub async fn mark_processing(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
    ) -> Result<Option<(PaymentIntentState, TransactionState)>, PaymentsError> {
        let now = self.now();
        let sent = TransactionState {
            status: TransactionStatus::Sent,
            attempt: transaction.attempt + 1,
            due_at: Some(now + STALLED_MS),
            updated_at: now,
            ..transaction.clone()
        };
        let update = Update::builder()
            .table_name(self.table(tables::TRANSACTIONS.name))
            .set_key(Some(transaction_key(
                &sent.payment_intent_id,
                &sent.transaction_id,
            )))
            .update_expression(SEND)
            .condition_expression(PENDING_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":pending", TransactionStatus::Pending.attribute())
            .expression_attribute_values(":seen", n(transaction.attempt))
            .expression_attribute_values(":sent", sent.status.attribute())
            .expression_attribute_values(":attempt", n(sent.attempt))
            .expression_attribute_values(":due", n(now + STALLED_MS))
            .expression_attribute_values(":now", n(now))
            .build()
            .map_err(CloudError::bug)?;
        let attempt = ExternalAuthorizationAttemptState {
            attempt_id: sent.attempt_id(),
            transaction_id: sent.transaction_id.clone(),
            payment_intent_id: sent.payment_intent_id.clone(),
            status: AttemptStatus::Sent,
            sent_at: now,
            ended_at: None,
        };
        let put = Put::builder()
            .table_name(self.table(tables::EXTERNAL_ATTEMPTS.name))
            .set_item(Some(to_item(&attempt)?))
            .build()
            .map_err(CloudError::bug)?;
        let mut names = vec!["transaction", "attempt"];
        let mut items = vec![
            TransactWriteItem::builder().update(update).build(),
            TransactWriteItem::builder().put(put).build(),
        ];
        // A charge moves the payment; what else is sent leaves it where it is.
        let mut after = intent.clone();
        if transaction.kind == Kind::Charge && transaction.attempt == 0 {
            after = intent.processing(now);
            names.extend(CHANGED);
            items.extend(self.changed(Some(intent), &after, "payment_intent.processing")?);
        }
        match self.cloud.transact(&names, items).await {
            Ok(Transaction::Committed(_)) => Ok(Some((after, sent))),
            Ok(Transaction::Cancelled(_)) | Err(CloudError::Conflict(_)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}
