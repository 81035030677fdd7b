//! Send the authorization to the network, and drive a movement as far as it goes now.

use crate::domain::{
    MAX_ATTEMPTS, Outcome, PaymentIntentState, STALLED_MS, Source, TransactionState,
    TransactionStatus,
};
use crate::items::transaction_key;
use crate::processor_client::{Answer, Order};
use crate::record_response::Recorded;
use crate::{ATTEMPTS, Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{n, pause, s};
use cloud::{CloudError, Transaction};

/// Only the attempt that was closed is over, and only if nobody has found out otherwise.
const OUT_GUARD: &str = "#status = :sent AND attempt = :attempt";
const TAKE_BACK: &str = "SET #status = :pending, due_at = :due, updated_at = :now";
const CLOSE_ATTEMPT: &str = "SET #status = :closed, ended_at = :now";

impl Payments {
    /// Takes a movement as far as it goes: to its end, or to where only time will tell.
    ///
    /// By anybody, any number of times and at once: every step is guarded by what it was decided on,
    /// and what is sent twice is the same attempt under the same key.
    pub async fn drive(
        &self,
        mut intent: PaymentIntentState,
        mut transaction: TransactionState,
    ) -> Result<(PaymentIntentState, TransactionState), PaymentsError> {
        for attempt in 0..ATTEMPTS {
            if transaction.status == TransactionStatus::Pending {
                match self.mark_processing(&intent, &transaction).await? {
                    Some(moved) => (intent, transaction) = moved,
                    None => {
                        pause(attempt).await;
                        (intent, transaction) = self.read_again(&transaction).await?;
                        continue;
                    }
                }
            }
            if transaction.status != TransactionStatus::Sent {
                return Ok((intent, transaction));
            }
            let mut answer = self.send_authorization(&transaction).await;
            // The processor was not there. That is an answer to this request, and not to one that
            // somebody else may have sent for the same attempt: so the attempt is closed before
            // there is another.
            if let Answer::NotNow(_) = answer {
                answer = self.processor.close(&transaction.attempt_id()).await;
            }
            let moved = match answer {
                Answer::Decided(Outcome::Closed(_)) if transaction.attempt < MAX_ATTEMPTS => {
                    self.take_back(&intent, &transaction).await?
                }
                Answer::Decided(outcome) => {
                    let about = transaction.attempt_id();
                    let learned = self.learn(intent, transaction, &outcome, Source::Response);
                    let settled;
                    (settled, intent, transaction) = learned.await?;
                    if !settled {
                        // Somebody else knew first. If they knew otherwise, people must look at it,
                        // and nothing more is sent.
                        let compared = self.compare(&about, &transaction, &outcome).await?;
                        if compared == Recorded::Discrepancy {
                            return Ok((intent, transaction));
                        }
                    }
                    continue;
                }
                // It may have been charged, it may not. Assuming either is how money gets lost.
                Answer::Pending | Answer::NotThere | Answer::NotNow(_) | Answer::Unknown(_) => {
                    self.mark_unknown(&intent, &transaction).await?
                }
            };
            match moved {
                Some(moved) => (intent, transaction) = moved,
                None => {
                    pause(attempt).await;
                    (intent, transaction) = self.read_again(&transaction).await?;
                }
            }
        }
        Err(PaymentsError::Contended)
    }

    /// Sends the current attempt.
    pub async fn send_authorization(&self, transaction: &TransactionState) -> Answer {
        let order = Order::of(transaction);
        self.processor.send(&transaction.attempt_id(), &order).await
    }

    async fn read_again(
        &self,
        transaction: &TransactionState,
    ) -> Result<(PaymentIntentState, TransactionState), PaymentsError> {
        self.read_movement(&transaction.payment_intent_id, &transaction.transaction_id)
            .await
    }

    /// SENT → PENDING: this attempt is closed, and the next may begin.
    async fn take_back(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
    ) -> Result<Option<(PaymentIntentState, TransactionState)>, PaymentsError> {
        let now = self.now();
        let update = Update::builder()
            .table_name(self.table(tables::TRANSACTIONS.name))
            .set_key(Some(transaction_key(
                &transaction.payment_intent_id,
                &transaction.transaction_id,
            )))
            .update_expression(TAKE_BACK)
            .condition_expression(OUT_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":sent", TransactionStatus::Sent.attribute())
            .expression_attribute_values(":attempt", n(transaction.attempt))
            .expression_attribute_values(":pending", TransactionStatus::Pending.attribute())
            .expression_attribute_values(":due", n(now + STALLED_MS))
            .expression_attribute_values(":now", n(now))
            .build()
            .map_err(CloudError::bug)?;
        let close = Update::builder()
            .table_name(self.table(tables::EXTERNAL_ATTEMPTS.name))
            .key("attempt_id", s(transaction.attempt_id()))
            .update_expression(CLOSE_ATTEMPT)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":closed", s("CLOSED"))
            .expression_attribute_values(":now", n(now))
            .build()
            .map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().update(update).build(),
            TransactWriteItem::builder().update(close).build(),
        ];
        match self
            .cloud
            .transact(&["transaction", "attempt"], items)
            .await
        {
            Ok(Transaction::Committed(_)) => {
                let back = TransactionState {
                    status: TransactionStatus::Pending,
                    due_at: Some(now + STALLED_MS),
                    updated_at: now,
                    ..transaction.clone()
                };
                Ok(Some((intent.clone(), back)))
            }
            Ok(Transaction::Cancelled(_)) | Err(CloudError::Conflict(_)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }
}
