//! Record the network's response: whoever learns it, whenever, in whatever order.
//!
//! The documents update the transaction and then the payment. Whoever dies in between leaves the two
//! disagreeing for ever. Here movement, attempt, payment, ledger and event change in one transaction;
//! and because a state only ever gains rank, a late answer, a notice and the reconciler may come in any
//! order, and often: the first decides, the others find it decided.

use crate::domain::{
    BadInput, Outcome, PaymentIntentState, Source, TransactionState, TransactionStatus,
};
use crate::emit_event::CHANGED;
use crate::items::{lane, transaction_key, word};
use crate::mark_processing::{AttemptStatus, ExternalAuthorizationAttemptState};
use crate::processor_client::Said;
use crate::reconcile::{DISCREPANCIES, Decided, ReconciliationState};
use crate::{ATTEMPTS, Payments, PaymentsError, signature, tables};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Millis, Transaction};

/// What became of somebody's word about an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// It decided the movement.
    Settled,
    /// It says what is known.
    Known,
    /// It says that nothing is decided.
    Nothing,
    /// It contradicts what is known. Written down for people to look at; nothing was changed.
    Discrepancy,
}

/// The movement is out, and with this attempt. What has ended has ended.
const OUT_GUARD: &str = "#status = :from AND attempt = :attempt";
const SETTLE: &str = "SET #status = :to, settled_by = :source, updated_at = :now \
     REMOVE due_shard, due_at";
const SETTLE_WITH_REASON: &str = "SET #status = :to, settled_by = :source, updated_at = :now, reason = :reason \
     REMOVE due_shard, due_at";

const ATTEMPT_ENDED: &str = "SET #status = :to, ended_at = :now";

impl Payments {
    /// Writes the outcome of the current attempt. None if somebody else has moved the movement or the
    /// payment since they were read: read again.
    pub async fn record(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
        outcome: &Outcome,
        source: Source,
    ) -> Result<Option<(PaymentIntentState, TransactionState)>, PaymentsError> {
        let now = self.now();
        self.record_with(intent, transaction, outcome, source, now, None)
            .await
    }

    pub(crate) async fn record_with(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
        outcome: &Outcome,
        source: Source,
        now: Millis,
        decision: Option<&ReconciliationState>,
    ) -> Result<Option<(PaymentIntentState, TransactionState)>, PaymentsError> {
        let mut settled = intent.settle(transaction, outcome, source, now);
        if settled.intent.expiry_due_at.is_some() {
            settled.intent.expiry_shard = Some(lane("expiry", &intent.payment_intent_id));
        }
        let after = &settled.transaction;
        let update = Update::builder()
            .table_name(self.table(tables::TRANSACTIONS.name))
            .set_key(Some(transaction_key(
                &after.payment_intent_id,
                &after.transaction_id,
            )))
            .condition_expression(OUT_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", transaction.status.attribute())
            .expression_attribute_values(":attempt", n(transaction.attempt))
            .expression_attribute_values(":to", after.status.attribute())
            .expression_attribute_values(":source", word(source))
            .expression_attribute_values(":now", n(now));
        let update = match &after.reason {
            None => update.update_expression(SETTLE),
            Some(reason) => update
                .update_expression(SETTLE_WITH_REASON)
                .expression_attribute_values(":reason", s(reason)),
        };
        let update = update.build().map_err(CloudError::bug)?;
        let mut names = vec!["transaction"];
        let mut items = vec![TransactWriteItem::builder().update(update).build()];
        // What was never sent has no attempt.
        if transaction.status.is_out() {
            let ended = match outcome {
                Outcome::Approved => AttemptStatus::Approved,
                Outcome::Declined(_) => AttemptStatus::Declined,
                Outcome::Closed(_) => AttemptStatus::Closed,
            };
            let attempt = Update::builder()
                .table_name(self.table(tables::EXTERNAL_ATTEMPTS.name))
                .key("attempt_id", s(transaction.attempt_id()))
                .update_expression(ATTEMPT_ENDED)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":to", word(ended))
                .expression_attribute_values(":now", n(now))
                .build()
                .map_err(CloudError::bug)?;
            names.push("attempt");
            items.push(TransactWriteItem::builder().update(attempt).build());
        }
        names.extend(CHANGED);
        items.extend(self.changed(Some(intent), &settled.intent, settled.event)?);
        for booked in self.booked(&settled.intent, after, &settled.postings, now)? {
            names.push("ledger");
            items.push(booked);
        }
        if let Some(decision) = decision {
            names.push("decision");
            items.push(self.decided(decision)?);
        }
        match self.cloud.transact(&names, items).await {
            Ok(Transaction::Committed(_)) => Ok(Some((settled.intent, settled.transaction))),
            Ok(Transaction::Cancelled(_)) | Err(CloudError::Conflict(_)) => Ok(None),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Makes an outcome known: writes it, however often somebody is faster with something less. Says
    /// whether it was this that decided the movement, and gives both as they are then.
    pub async fn learn(
        &self,
        mut intent: PaymentIntentState,
        mut transaction: TransactionState,
        outcome: &Outcome,
        source: Source,
    ) -> Result<(bool, PaymentIntentState, TransactionState), PaymentsError> {
        let about = transaction.attempt_id();
        for again in 0..ATTEMPTS {
            if transaction.attempt_id() != about || !transaction.status.is_out() {
                return Ok((false, intent, transaction));
            }
            let recorded = self.record(&intent, &transaction, outcome, source).await?;
            if let Some((intent, transaction)) = recorded {
                return Ok((true, intent, transaction));
            }
            pause(again).await;
            (intent, transaction) = self
                .read_movement(&intent.payment_intent_id, &transaction.transaction_id)
                .await?;
        }
        Err(PaymentsError::Contended)
    }

    /// The processor's own message: signed, often late, sometimes twice.
    pub async fn record_notice(&self, body: &str, signed: &str) -> Result<Recorded, PaymentsError> {
        signature::verify(&[self.processor.notice_secret()], signed, body, self.now())?;
        let said: Said =
            serde_json::from_str(body).map_err(|error| BadInput::Notice(error.to_string()))?;
        let attempt = self.read_attempt(&said.key).await?;
        let Some(outcome) = said.outcome() else {
            return Ok(Recorded::Nothing);
        };
        let (intent, mut transaction) = self
            .read_movement(&attempt.payment_intent_id, &attempt.transaction_id)
            .await?;
        if transaction.attempt_id() == said.key {
            let (settled, _, after) = self
                .learn(intent, transaction, &outcome, Source::Notice)
                .await?;
            if settled {
                return Ok(Recorded::Settled);
            }
            transaction = after;
        }
        self.compare(&said.key, &transaction, &outcome).await
    }

    /// Holds somebody's word about an attempt that has ended against what is known of it.
    pub(crate) async fn compare(
        &self,
        attempt_id: &str,
        transaction: &TransactionState,
        outcome: &Outcome,
    ) -> Result<Recorded, PaymentsError> {
        // Not decided, or not here: it contradicts nothing yet.
        if transaction.attempt_id() == attempt_id && transaction.status.is_out() {
            return Ok(Recorded::Nothing);
        }
        // An attempt that was closed before another began took nothing.
        let took = transaction.attempt_id() == attempt_id
            && matches!(
                transaction.status,
                TransactionStatus::Authorized | TransactionStatus::Succeeded
            );
        if took == (*outcome == Outcome::Approved) {
            return Ok(Recorded::Known);
        }
        let kind = match outcome {
            Outcome::Approved => 1,
            Outcome::Declined(_) => 2,
            Outcome::Closed(_) => 3,
        };
        let about = attempt_id.rsplit('-').next().and_then(|n| n.parse().ok());
        let decision = ReconciliationState {
            transaction_id: transaction.transaction_id.clone(),
            number: DISCREPANCIES + 10 * about.unwrap_or(0_u32) + kind,
            payment_intent_id: transaction.payment_intent_id.clone(),
            attempt_id: attempt_id.to_owned(),
            answer: format!("{outcome:?}"),
            decision: Decided::Discrepancy,
            asked_at: self.now(),
        };
        self.write_discrepancy(&decision).await?;
        Ok(Recorded::Discrepancy)
    }

    async fn read_attempt(
        &self,
        attempt_id: &str,
    ) -> Result<ExternalAuthorizationAttemptState, PaymentsError> {
        let unknown = || PaymentsError::UnknownAttempt(attempt_id.to_owned());
        if attempt_id.is_empty() {
            return Err(unknown());
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table(tables::EXTERNAL_ATTEMPTS.name))
            .key("attempt_id", s(attempt_id))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(from_item(&found.item.ok_or_else(unknown)?)?)
    }
}
