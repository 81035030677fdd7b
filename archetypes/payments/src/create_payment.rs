//! Create a payment intent, start its first charge, and persist the idempotency key: one transaction.
//!
//! The documents write the transaction row first and the key after it. Two requests with one key then
//! both have a row, and both charge, before the second one learns that the key is taken. Here all of it
//! is written or none of it, and nobody is charged before it is.

use crate::domain::{self, BadInput, CaptureMethod, IntentStatus, PaymentIntentState};
use crate::emit_event::CHANGED;
use crate::idempotency::{Claim, Claimed, Key, Response};
use crate::money::{Amount, Unit};
use crate::{ATTEMPTS, Payments, PaymentsError};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use cloud::CloudError;
use cloud::item::{pause, to_item};
use serde::{Deserialize, Serialize};

/// What a merchant asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewPayment {
    /// In minor units.
    pub amount: Amount,
    /// ISO 4217.
    pub currency: Unit,
    /// The card's token.
    pub card: String,
    /// When it is captured.
    #[serde(default)]
    pub capture_method: CaptureMethod,
}

impl NewPayment {
    fn checked(&self) -> Result<(), BadInput> {
        domain::amount(self.amount)?;
        domain::text("the card", &self.card)
    }
}

impl Payments {
    /// Charges a card, once for each key. Asked again with the same key it gives the same answer.
    pub async fn create_payment(
        &self,
        key: &Key,
        request: &NewPayment,
    ) -> Result<Response, PaymentsError> {
        key.checked()?;
        request.checked()?;
        let now = self.now();
        let payment_intent_id = self.cloud.ids().next("pi");
        let transaction_id = self.cloud.ids().next("txn");
        let intent = PaymentIntentState {
            payment_intent_id: payment_intent_id.clone(),
            merchant_id: key.merchant_id.clone(),
            amount: request.amount,
            currency: request.currency,
            capture_method: request.capture_method,
            status: IntentStatus::Created,
            version: 1,
            charges: 0,
            open_transaction: Some(transaction_id.clone()),
            authorized: 0,
            captured: 0,
            refunded: 0,
            capturable: 0,
            refundable: 0,
            authorization: None,
            authorization_expires_at: None,
            expiry_shard: None,
            expiry_due_at: None,
            reason: None,
            created_at: now,
            updated_at: now,
        };
        let charge = intent.charge(&transaction_id, &request.card, now).indexed();
        let claim = Claim {
            key,
            request_hash: key.hash("create payment", request),
            owner: self.cloud.ids().next("request"),
            payment_intent_id,
            transaction_id,
        };
        let mut names = vec!["key"];
        let mut items = vec![self.claimed(&claim, now)?];
        names.extend(CHANGED);
        items.extend(self.changed(None, &intent, "payment_intent.created")?);
        names.push("transaction");
        let put = Put::builder()
            .table_name(self.table("transactions"))
            .set_item(Some(to_item(&charge)?))
            .build()
            .map_err(CloudError::bug)?;
        items.push(TransactWriteItem::builder().put(put).build());
        for attempt in 0..ATTEMPTS {
            match self.claim(&claim, &names, items.clone()).await? {
                Claimed::Ours => {
                    let ended = self.drive(intent, charge).await?;
                    return self.finish(&claim, &ended).await;
                }
                Claimed::Resume(theirs) => return self.resume(&theirs).await,
                Claimed::Replay(response) => return Ok(response),
                // The key was there, and has become free.
                Claimed::Overtaken => pause(attempt).await,
            }
        }
        Err(PaymentsError::Contended)
    }
}
