//! Handle a timeout or an unknown outcome: a state of its own, never a guess.
//!
//! Calling it a failure would charge twice when the merchant tries again; calling it a success would
//! ship goods that nobody paid for.

use crate::domain::{PaymentIntentState, TransactionState, TransactionStatus, ask_again_after};
use crate::emit_event::CHANGED;
use crate::items::transaction_key;
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{n, s};
use cloud::{CloudError, Transaction};

/// From SENT only: whatever is known already is more than this.
const SENT_GUARD: &str = "#status = :sent";
const UNKNOWN: &str = "SET #status = :unknown, due_at = :due, updated_at = :now";

const ATTEMPT_UNKNOWN: &str = "SET #status = :unknown";

impl Payments {
    /// SENT → PENDING_NETWORK_RESULT, and the payment with it. None if somebody else has moved it.
    pub async fn mark_unknown(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
    ) -> Result<Option<(PaymentIntentState, TransactionState)>, PaymentsError> {
        let now = self.now();
        let due = now + ask_again_after(0);
        let after = intent.unknown(transaction.kind, now);
        let unknown = TransactionState {
            status: TransactionStatus::PendingNetworkResult,
            due_at: Some(due),
            updated_at: now,
            ..transaction.clone()
        };
        let update = Update::builder()
            .table_name(self.table(tables::TRANSACTIONS.name))
            .set_key(Some(transaction_key(
                &transaction.payment_intent_id,
                &transaction.transaction_id,
            )))
            .update_expression(UNKNOWN)
            .condition_expression(SENT_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":sent", TransactionStatus::Sent.attribute())
            .expression_attribute_values(":unknown", unknown.status.attribute())
            .expression_attribute_values(":due", n(due))
            .expression_attribute_values(":now", n(now))
            .build()
            .map_err(CloudError::bug)?;
        let attempt = Update::builder()
            .table_name(self.table(tables::EXTERNAL_ATTEMPTS.name))
            .key("attempt_id", s(transaction.attempt_id()))
            .update_expression(ATTEMPT_UNKNOWN)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":unknown", s("UNKNOWN"))
            .build()
            .map_err(CloudError::bug)?;
        let mut names = vec!["transaction", "attempt"];
        let mut items = vec![
            TransactWriteItem::builder().update(update).build(),
            TransactWriteItem::builder().update(attempt).build(),
        ];
        names.extend(CHANGED);
        items.extend(self.changed(Some(intent), &after, "payment_intent.pending")?);
        match self.cloud.transact(&names, items).await {
            Ok(Transaction::Committed(_)) => Ok(Some((after, unknown))),
            Ok(Transaction::Cancelled(_)) | Err(CloudError::Conflict(_)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}
