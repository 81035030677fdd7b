//! Reconcile an uncertain result: ask the processor, and write every decision down.
//!
//! The reconciler moves no money. It asks; what it cannot find it closes, so that it never arrives; and
//! what nobody can tell it yet, it asks again later. It finds its work in a sparse index of what is open,
//! acts on what it then reads, and guards with that.

use crate::domain::{
    Outcome, PaymentIntentState, Source, TransactionState, TransactionStatus, ask_again_after,
};
use crate::items::transaction_key;
use crate::processor_client::Answer;
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem, Update};
use cloud::item::{n, s, to_item};
use cloud::{CloudError, Millis, Transaction};
use serde::{Deserialize, Serialize};

/// What the reconciler decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Decided {
    /// Nobody can tell yet: ask again later.
    Wait,
    /// The processor has done it.
    Approved,
    /// The processor has refused it.
    Declined,
    /// It is not at the processor, and was closed there.
    NeverArrived,
    /// It was never sent.
    Abandoned,
    /// Somebody contradicts what is known.
    Discrepancy,
}

/// The numbers under which contradictions are kept: after all questions, one for each attempt and
/// outcome.
pub(crate) const DISCREPANCIES: u32 = 1_000_000;

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationState {
    /// About which movement.
    pub transaction_id: String,
    /// 1, 2, 3 …: how often it was looked at.
    pub number: u32,
    /// Of which payment.
    pub payment_intent_id: String,
    /// About which attempt.
    pub attempt_id: String,
    /// What the processor said.
    pub answer: String,
    /// What was decided.
    pub decision: Decided,
    /// When.
    pub asked_at: Millis,
}

/// What became of one look at a movement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reconciled {
    /// It is decided now.
    Settled(Decided),
    /// Ask again later.
    Waiting,
    /// There was nothing to do: it has ended, or it is not time yet.
    Nothing,
    /// Somebody else moved it meanwhile; the next look will tell.
    Overtaken,
}

/// A decision is written once: somebody who asked in the same moment may have written this one.
const DECISION_GUARD: &str = "attribute_not_exists(transaction_id)";

/// Nobody has found out meanwhile.
const WAIT_GUARD: &str = "#status = :from";
const WAIT: &str = "SET asked = :asked, due_at = :due";

impl Payments {
    /// Looks at every movement of these shards that is due.
    pub async fn reconcile_due(
        &self,
        shards: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<(String, Result<Reconciled, PaymentsError>)>, CloudError> {
        let now = self.now();
        let mut done = Vec::new();
        for shard in shards {
            let mut pages = self
                .dynamodb()
                .query()
                .table_name(self.table(tables::TRANSACTIONS.name))
                .index_name("open")
                .key_condition_expression("due_shard = :shard AND due_at <= :now")
                .expression_attribute_values(":shard", s(format!("open-{shard}")))
                .expression_attribute_values(":now", n(now))
                .into_paginator()
                .items()
                .send();
            while let Some(item) = pages.next().await {
                let item = item?;
                let of = |name: &str| match item.get(name) {
                    Some(aws_sdk_dynamodb::types::AttributeValue::S(text)) => text.clone(),
                    _ => String::new(),
                };
                let transaction_id = of("transaction_id");
                let looked = self
                    .reconcile(&of("payment_intent_id"), &transaction_id)
                    .await;
                done.push((transaction_id, looked));
            }
        }
        Ok(done)
    }

    /// Looks at one movement.
    pub async fn reconcile(
        &self,
        payment_intent_id: &str,
        transaction_id: &str,
    ) -> Result<Reconciled, PaymentsError> {
        let now = self.now();
        let (mut intent, mut transaction) = self
            .read_movement(payment_intent_id, transaction_id)
            .await?;
        if transaction.due_at.is_none_or(|due| due > now) {
            return Ok(Reconciled::Nothing);
        }
        if transaction.status == TransactionStatus::Pending {
            let abandoned = Outcome::Closed("nobody went on with it".into());
            let decision = self.decision(&transaction, "not asked", Decided::Abandoned, now);
            return self
                .settle_by_decision(&intent, &transaction, &abandoned, &decision)
                .await;
        }
        // Whoever sent it is gone, so what became of it is unknown, and says so.
        if transaction.status == TransactionStatus::Sent {
            match self.mark_unknown(&intent, &transaction).await? {
                Some(moved) => (intent, transaction) = moved,
                None => return Ok(Reconciled::Overtaken),
            }
        }
        let attempt_id = transaction.attempt_id();
        let mut answer = self.processor.ask(&attempt_id).await;
        if answer == Answer::NotThere {
            answer = self.processor.close(&attempt_id).await;
        }
        let Answer::Decided(outcome) = &answer else {
            let decision = self.decision(&transaction, &format!("{answer:?}"), Decided::Wait, now);
            return self.wait(&transaction, &decision).await;
        };
        let decided = match outcome {
            Outcome::Approved => Decided::Approved,
            Outcome::Declined(_) => Decided::Declined,
            Outcome::Closed(_) => Decided::NeverArrived,
        };
        let decision = self.decision(&transaction, &format!("{outcome:?}"), decided, now);
        self.settle_by_decision(&intent, &transaction, outcome, &decision)
            .await
    }

    fn decision(
        &self,
        transaction: &TransactionState,
        answer: &str,
        decision: Decided,
        now: Millis,
    ) -> ReconciliationState {
        ReconciliationState {
            transaction_id: transaction.transaction_id.clone(),
            number: transaction.asked + 1,
            payment_intent_id: transaction.payment_intent_id.clone(),
            attempt_id: transaction.attempt_id(),
            // The processor's text may be long, and is not ours.
            answer: answer.chars().take(500).collect(),
            decision,
            asked_at: now,
        }
    }

    async fn settle_by_decision(
        &self,
        intent: &PaymentIntentState,
        transaction: &TransactionState,
        outcome: &Outcome,
        decision: &ReconciliationState,
    ) -> Result<Reconciled, PaymentsError> {
        let source = Source::Reconciliation;
        let now = decision.asked_at;
        let written = self
            .record_with(intent, transaction, outcome, source, now, Some(decision))
            .await?;
        if written.is_some() {
            return Ok(Reconciled::Settled(decision.decision));
        }
        // Somebody else moved it. If they knew otherwise, people must look at it.
        let (_, after) = self
            .read_movement(&intent.payment_intent_id, &transaction.transaction_id)
            .await?;
        if transaction.status.is_out() {
            self.compare(&transaction.attempt_id(), &after, outcome)
                .await?;
        }
        Ok(Reconciled::Overtaken)
    }

    async fn wait(
        &self,
        transaction: &TransactionState,
        decision: &ReconciliationState,
    ) -> Result<Reconciled, PaymentsError> {
        let due = decision.asked_at + ask_again_after(decision.number);
        let update = Update::builder()
            .table_name(self.table(tables::TRANSACTIONS.name))
            .set_key(Some(transaction_key(
                &transaction.payment_intent_id,
                &transaction.transaction_id,
            )))
            .update_expression(WAIT)
            .condition_expression(WAIT_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", transaction.status.attribute())
            .expression_attribute_values(":asked", n(decision.number))
            .expression_attribute_values(":due", n(due))
            .build()
            .map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().update(update).build(),
            self.decided(decision)?,
        ];
        match self
            .cloud
            .transact(&["transaction", "decision"], items)
            .await
        {
            Ok(Transaction::Committed(_)) => Ok(Reconciled::Waiting),
            Ok(Transaction::Cancelled(_)) | Err(CloudError::Conflict(_)) => {
                Ok(Reconciled::Overtaken)
            }
            Err(fault) => Err(fault.into()),
        }
    }

    /// A decision, as part of the transaction that carries it out.
    pub(crate) fn decided(
        &self,
        decision: &ReconciliationState,
    ) -> Result<TransactWriteItem, CloudError> {
        let put = Put::builder()
            .table_name(self.table(tables::RECONCILIATIONS.name))
            .set_item(Some(to_item(decision)?))
            .condition_expression(DECISION_GUARD)
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// A contradiction, for people to look at. The same one again says the same.
    pub(crate) async fn write_discrepancy(
        &self,
        decision: &ReconciliationState,
    ) -> Result<(), CloudError> {
        self.dynamodb()
            .put_item()
            .table_name(self.table(tables::RECONCILIATIONS.name))
            .set_item(Some(to_item(decision)?))
            .send()
            .await?;
        Ok(())
    }

    /// What was decided about a movement, in order. Consistent.
    pub async fn decisions_of(
        &self,
        transaction_id: &str,
    ) -> Result<Vec<ReconciliationState>, CloudError> {
        self.rows_of(&tables::RECONCILIATIONS, transaction_id).await
    }
}
