//! Start a charge attempt, and likewise a capture, a void or a refund: on a payment that is there.
//!
//! Key, payment, movement and event in one transaction, decided on the payment as it was read. What is
//! open on a payment is named there, so a second movement cannot begin: neither while the first is on
//! its way, nor while its outcome is unknown.

use crate::domain::{self, BadInput, Movement, PaymentIntentState, TransactionState};
use crate::emit_event::CHANGED;
use crate::idempotency::{Claim, Claimed, Key, Response};
use crate::{ATTEMPTS, Payments, PaymentsError};
use aws_sdk_dynamodb::types::{Put, TransactWriteItem};
use cloud::item::{pause, to_item};
use cloud::{CloudError, Transaction};

impl Movement {
    fn checked(&self) -> Result<(), BadInput> {
        match self {
            Self::Charge { card } => domain::text("the card", card),
            Self::Capture { amount } | Self::Refund { amount } => {
                amount.map_or(Ok(()), domain::amount)
            }
            Self::Void | Self::Expire => Ok(()),
        }
    }

    /// What the event says: that it has begun, or, where nobody has to be asked, that it is done.
    fn begun(&self, begun: &TransactionState) -> &'static str {
        match self {
            Self::Void if begun.status.is_terminal() => "payment_intent.voided",
            Self::Charge { .. } => "charge.started",
            Self::Capture { .. } => "capture.started",
            Self::Void | Self::Expire => "void.started",
            Self::Refund { .. } => "refund.started",
        }
    }
}

/// What became of the wish to move money.
pub enum Begun<'a> {
    /// It has begun, and is to be driven on.
    Started(Box<Started<'a>>),
    /// It has its answer.
    Answered(Response),
}

/// A movement that has begun under a key.
pub struct Started<'a> {
    claim: Claim<'a>,
    intent: PaymentIntentState,
    transaction: TransactionState,
}

impl Payments {
    /// Moves money, once for each key: begins, drives on, and keeps the answer.
    pub async fn move_money(
        &self,
        key: &Key,
        payment_intent_id: &str,
        movement: &Movement,
    ) -> Result<Response, PaymentsError> {
        match self.begin(key, payment_intent_id, movement).await? {
            Begun::Answered(response) => Ok(response),
            Begun::Started(started) => self.carry_on(*started).await,
        }
    }

    /// Begins a movement, if the rules allow it, or takes it up where somebody left it.
    pub async fn begin<'a>(
        &self,
        key: &'a Key,
        payment_intent_id: &str,
        movement: &Movement,
    ) -> Result<Begun<'a>, PaymentsError> {
        key.checked()?;
        movement.checked()?;
        let mut claim = Claim {
            key,
            request_hash: key.hash("move money", &(payment_intent_id, movement)),
            owner: self.cloud.ids().next("request"),
            payment_intent_id: payment_intent_id.to_owned(),
            transaction_id: self.cloud.ids().next("txn"),
        };
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            // In this order: if there is no key after the payment was read, then what was read is not
            // the work of this very request, and may be a reason to refuse it.
            let intent = self.read_intent(payment_intent_id).await;
            let claimed = match self.read_key(key).await? {
                Some(there) => self.met(&claim, &there).await?,
                None => {
                    let intent = intent?;
                    // Whose payment it is, nobody else learns.
                    if intent.merchant_id != key.merchant_id {
                        let unknown = payment_intent_id.to_owned();
                        return Err(PaymentsError::UnknownPayment(unknown));
                    }
                    let (after, begun) = intent.begin(movement, &claim.transaction_id, now)?;
                    let begun = begun.indexed();
                    let mut names = vec!["key"];
                    let mut items = vec![self.claimed(&claim, now)?];
                    let (more_names, more) =
                        self.beginning(&intent, &after, &begun, movement.begun(&begun))?;
                    names.extend(more_names);
                    items.extend(more);
                    match self.claim(&claim, &names, items).await? {
                        Claimed::Ours => {
                            return Ok(Begun::Started(Box::new(Started {
                                claim,
                                intent: after,
                                transaction: begun,
                            })));
                        }
                        other => other,
                    }
                }
            };
            let claim_there = match claimed {
                // Written before, and the answer lost: what it wrote is there to be read.
                Claimed::Ours => claim,
                Claimed::Resume(theirs) => theirs,
                Claimed::Replay(response) => return Ok(Begun::Answered(response)),
                Claimed::Overtaken => {
                    claim.transaction_id = self.cloud.ids().next("txn");
                    pause(attempt).await;
                    continue;
                }
            };
            let (intent, transaction) = self
                .read_movement(&claim_there.payment_intent_id, &claim_there.transaction_id)
                .await?;
            return Ok(Begun::Started(Box::new(Started {
                claim: claim_there,
                intent,
                transaction,
            })));
        }
        Err(PaymentsError::Contended)
    }

    /// Drives a movement that has begun, and keeps the answer.
    pub async fn carry_on(&self, started: Started<'_>) -> Result<Response, PaymentsError> {
        let ended = self.drive(started.intent, started.transaction).await?;
        self.finish(&started.claim, &ended).await
    }

    /// Moves money that nobody asked for by a key: what expires.
    pub(crate) async fn move_by_itself(
        &self,
        payment_intent_id: &str,
        movement: &Movement,
    ) -> Result<PaymentIntentState, PaymentsError> {
        let transaction_id = self.cloud.ids().next("txn");
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let intent = self.read_intent(payment_intent_id).await?;
            // Ours: it was begun, and the answer got lost.
            if intent.open_transaction.as_ref() == Some(&transaction_id) {
                let (intent, begun) = self
                    .read_movement(payment_intent_id, &transaction_id)
                    .await?;
                return Ok(self.drive(intent, begun).await?.0);
            }
            let (after, begun) = intent.begin(movement, &transaction_id, now)?;
            let begun = begun.indexed();
            let (names, items) = self.beginning(&intent, &after, &begun, movement.begun(&begun))?;
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    let (intent, _) = self.drive(after, begun).await?;
                    return Ok(intent);
                }
                Ok(Transaction::Cancelled(_)) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(PaymentsError::Contended)
    }

    /// The payment, its event and the movement, as parts of a transaction.
    fn beginning(
        &self,
        before: &PaymentIntentState,
        after: &PaymentIntentState,
        begun: &TransactionState,
        kind: &str,
    ) -> Result<(Vec<&'static str>, Vec<TransactWriteItem>), CloudError> {
        let mut names = CHANGED.to_vec();
        let mut items = self.changed(Some(before), after, kind)?.to_vec();
        let put = Put::builder()
            .table_name(self.table("transactions"))
            .set_item(Some(to_item(begun)?))
            .build()
            .map_err(CloudError::bug)?;
        names.push("transaction");
        items.push(TransactWriteItem::builder().put(put).build());
        Ok((names, items))
    }
}
