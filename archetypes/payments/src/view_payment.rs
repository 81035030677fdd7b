//! View payment status: one consistent read of the payment. What a merchant sees, here and in events.

use crate::domain::{IntentStatus, PaymentIntentState, TransactionState};
use crate::money::Amount;
use crate::{Payments, PaymentsError, tables};
use cloud::CloudError;
use serde::{Deserialize, Serialize};

/// A payment as merchants see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentView {
    /// Identity.
    pub payment_intent_id: String,
    /// Where it stands.
    pub status: IntentStatus,
    /// In minor units.
    pub amount: Amount,
    /// ISO 4217.
    pub currency: String,
    /// The same for people.
    pub amount_text: String,
    /// What the card's bank holds or held.
    pub authorized: Amount,
    /// What was taken.
    pub captured: Amount,
    /// What was given back.
    pub refunded: Amount,
    /// The movement that has not ended, if there is one.
    pub open_transaction: Option<String>,
    /// Why it is not charged, if it is not.
    pub reason: Option<String>,
    /// The number of its last event.
    pub version: u64,
}

/// What a webhook says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventView {
    /// `payment_intent.succeeded`.
    pub kind: String,
    /// 1, 2, 3 …: for receivers that want to put duplicates aside and things in order.
    pub event_number: u64,
    /// The payment after it.
    pub payment: PaymentView,
}

impl PaymentIntentState {
    /// The payment as its merchant sees it.
    pub fn view(&self) -> PaymentView {
        PaymentView {
            payment_intent_id: self.payment_intent_id.clone(),
            status: self.status,
            amount: self.amount,
            currency: self.currency.to_string(),
            amount_text: self.currency.text(self.amount),
            authorized: self.authorized,
            captured: self.captured,
            refunded: self.refunded,
            open_transaction: self.open_transaction.clone(),
            reason: self.reason.clone(),
            version: self.version,
        }
    }

    /// The text of its event of this kind.
    pub(crate) fn told(&self, kind: &str) -> String {
        let event = EventView {
            kind: kind.to_owned(),
            event_number: self.version,
            payment: self.view(),
        };
        // Strings, numbers and words: nothing that JSON could refuse.
        serde_json::to_string(&event).unwrap_or_default()
    }
}

impl Payments {
    /// Where a payment stands.
    pub async fn view_payment(
        &self,
        payment_intent_id: &str,
    ) -> Result<PaymentView, PaymentsError> {
        Ok(self.read_intent(payment_intent_id).await?.view())
    }

    /// The movements of a payment. Consistent.
    pub async fn transactions_of(
        &self,
        payment_intent_id: &str,
    ) -> Result<Vec<TransactionState>, CloudError> {
        self.rows_of(&tables::TRANSACTIONS, payment_intent_id).await
    }
}
