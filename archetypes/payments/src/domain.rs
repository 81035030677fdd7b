//! The rules, pure: states, transitions and decisions. `now` is an argument, times are epoch
//! milliseconds, amounts are minor units, and no type of any SDK comes in.
//!
//! One rule carries the rest: **a payment has at most one open movement of money**. While its outcome
//! is unknown, no other begins.

use crate::ledger::{self, Posting};
use crate::money::{Amount, MAX_AMOUNT, Unit};
use cloud::Millis;
use cloud::text::NotAnId;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest id, key or card token, in characters.
pub const MAX_TEXT: usize = 200;
/// How many cards may be tried for one payment.
pub const MAX_CHARGES: u32 = 3;
/// How many attempts one movement has, each closed at the processor before the next.
pub const MAX_ATTEMPTS: u32 = 3;
/// How long a request has its idempotency key to itself. Longer than the processor may take.
pub const LEASE_MS: Millis = 30_000;
/// After this a movement that nobody has moved on is the reconciler's.
pub const STALLED_MS: Millis = 60_000;
/// How long a key is remembered.
pub const KEY_KEPT_MS: Millis = 86_400_000;
/// After this DynamoDB may delete a key.
pub const KEY_PURGED_MS: Millis = 30 * 86_400_000;
/// How long an authorization holds.
pub const AUTHORIZATION_MS: Millis = 7 * 86_400_000;
/// The first pause of the reconciler, which doubles, and the longest.
pub const ASK_AFTER_MS: Millis = 5_000;
/// The reconciler's longest pause.
pub const ASK_AT_MOST_MS: Millis = 3_600_000;

/// When captured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum CaptureMethod {
    /// With the authorization.
    #[default]
    Automatic,
    /// When the merchant says so.
    Manual,
}

/// Where a payment stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum IntentStatus {
    /// Written down; nobody was asked yet.
    Created,
    /// The processor is being asked.
    Processing,
    /// The processor was asked, and nobody knows what it did.
    RequiresReconciliation,
    /// Not charged; another card may be tried.
    Retryable,
    /// The money is held and not all of it taken.
    Authorized,
    /// What was to be taken is taken.
    Succeeded,
    /// Not charged, and no more cards are tried.
    Failed,
    /// Given up by the merchant before anything was taken.
    Cancelled,
    /// Held too long; nothing was taken.
    Expired,
}

impl fmt::Display for IntentStatus {
    /// The word that is kept and told.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "CREATED",
            Self::Processing => "PROCESSING",
            Self::RequiresReconciliation => "REQUIRES_RECONCILIATION",
            Self::Retryable => "RETRYABLE",
            Self::Authorized => "AUTHORIZED",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
            Self::Expired => "EXPIRED",
        })
    }
}

impl IntentStatus {
    /// Whether it can never change again.
    pub fn is_terminal(self) -> bool {
        matches!(
            self,
            Self::Succeeded | Self::Failed | Self::Cancelled | Self::Expired
        )
    }
}

/// The payment: root of the workflow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PaymentIntentState {
    /// Identity.
    pub payment_intent_id: String,
    /// Whose.
    pub merchant_id: String,
    /// What is to be paid, in minor units.
    pub amount: Amount,
    /// Of this currency.
    pub currency: Unit,
    /// When it is captured.
    pub capture_method: CaptureMethod,
    /// Where it stands.
    pub status: IntentStatus,
    /// The number of its last event. Every change is an event, so this is also its version.
    pub version: u64,
    /// How many charges were sent.
    pub charges: u32,
    /// The one movement that has not ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_transaction: Option<String>,
    /// What the card's bank holds or held for it.
    pub authorized: Amount,
    /// What was taken.
    pub captured: Amount,
    /// What was given back.
    pub refunded: Amount,
    /// What may still be taken.
    pub capturable: Amount,
    /// What may still be given back.
    pub refundable: Amount,
    /// What the processor knows the authorization by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
    /// Until when it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization_expires_at: Option<Millis>,
    /// Only while something can expire: what makes that index sparse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_shard: Option<String>,
    /// When the sweeper must look at it: when it is over, and later if it could not be let go then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiry_due_at: Option<Millis>,
    /// Why it is not charged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

/// What a movement does with money.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// Hold it, and take it at once if capture is automatic.
    Charge,
    /// Take what is held, or a part.
    Capture,
    /// Let go of what is held and not taken.
    Void,
    /// Give back what was taken, or a part.
    Refund,
}

/// Where a movement stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TransactionStatus {
    /// Nothing is at the processor, and nothing is on its way there.
    Pending,
    /// An attempt is on its way.
    Sent,
    /// An attempt was sent, and what became of it is unknown.
    PendingNetworkResult,
    /// A charge that was approved.
    Authorized,
    /// A capture, void or refund that was approved.
    Succeeded,
    /// The processor said no.
    Declined,
    /// It never reached the processor, and never will.
    Failed,
}

impl TransactionStatus {
    /// Whether it can never change again.
    pub fn is_terminal(self) -> bool {
        !matches!(
            self,
            Self::Pending | Self::Sent | Self::PendingNetworkResult
        )
    }

    /// Whether an attempt may be at the processor.
    pub fn is_out(self) -> bool {
        matches!(self, Self::Sent | Self::PendingNetworkResult)
    }
}

/// Who found out how a movement ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Source {
    /// The processor's answer to the attempt.
    Response,
    /// The processor's own message, later.
    Notice,
    /// We asked.
    Reconciliation,
    /// Nothing had to be asked.
    Rules,
}

/// One movement of money.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransactionState {
    /// Of which payment.
    pub payment_intent_id: String,
    /// Identity.
    pub transaction_id: String,
    /// What it does.
    pub kind: Kind,
    /// Where it stands.
    pub status: TransactionStatus,
    /// How much.
    pub amount: Amount,
    /// Of this currency.
    pub currency: Unit,
    /// The card's token, for a charge. Never its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub card: Option<String>,
    /// Whether a charge takes the money at once.
    pub capture: bool,
    /// The authorization it is about, unless it is a charge.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub authorization: Option<String>,
    /// Whether a void is made because the authorization is over.
    pub expiry: bool,
    /// Attempts begun. Together with the status, the fence.
    pub attempt: u32,
    /// How often the reconciler has asked in vain.
    pub asked: u32,
    /// Who found out how it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settled_by: Option<Source>,
    /// Why it was declined or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Only while it is open: what makes the index of open ones sparse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_shard: Option<String>,
    /// When somebody must look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Millis>,
    /// When it was made.
    pub created_at: Millis,
    /// When it last changed.
    pub updated_at: Millis,
}

impl TransactionState {
    /// What the processor knows this attempt by: derived, so that whoever sends it again sends the
    /// same.
    pub fn attempt_id(&self) -> String {
        format!("{}-{}", self.transaction_id, self.attempt)
    }

    /// Grows with every change. Whatever would make it smaller comes too late.
    pub fn rank(&self) -> u32 {
        let begun = 3 * self.attempt;
        match self.status {
            TransactionStatus::Pending => begun,
            TransactionStatus::Sent => begun.saturating_sub(2),
            TransactionStatus::PendingNetworkResult => begun.saturating_sub(1),
            _ => u32::MAX,
        }
    }
}

/// What a merchant wants to happen to a payment.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Movement {
    /// Try another card.
    Charge {
        /// Its token.
        card: String,
    },
    /// Take so much of what is held; all of it if nothing is said.
    Capture {
        /// How much.
        amount: Option<Amount>,
    },
    /// Let go of what is held.
    Void,
    /// Let go of what is held, because it is over. Nobody asks for it but the sweeper.
    Expire,
    /// Give back so much of what was taken; all of it if nothing is said.
    Refund {
        /// How much.
        amount: Option<Amount>,
    },
}

/// Wrong input. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// An id, key or token that cannot be one.
    #[error("{what} {why}")]
    Id {
        /// Which.
        what: &'static str,
        /// Why not.
        why: NotAnId,
    },
    /// An amount that cannot be paid.
    #[error("the amount is {0}: it must be from 1 to {MAX_AMOUNT}, in minor units")]
    Amount(Amount),
    /// A notice that says nothing.
    #[error("the notice cannot be read: {0}")]
    Notice(String),
    /// An address nobody could send to.
    #[error("'{0}' is no http or https address")]
    Url(String),
}

/// Why a movement does not begin. Nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Another one has not ended.
    #[error(
        "another movement of this payment, {0}, has not ended: ask again when its outcome is known"
    )]
    UnderWay(String),
    /// The payment is not where this could be done.
    #[error("the payment is {status}: it cannot be {wanted}")]
    NotNow {
        /// Where it stands.
        status: IntentStatus,
        /// What was wanted.
        wanted: &'static str,
    },
    /// More than there is.
    #[error("{asked} is more than the {left} that can be {wanted}")]
    TooMuch {
        /// How much was asked for.
        asked: String,
        /// How much there is.
        left: String,
        /// What was wanted.
        wanted: &'static str,
    },
    /// The authorization is over.
    #[error("the authorization was good until {0}: it cannot be captured any more")]
    AuthorizationOver(Millis),
}

/// What the processor made of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Approved,
    /// It said no.
    Declined(String),
    /// It is not there, and will be refused if it comes: nothing was done, and nothing will be.
    Closed(String),
}

/// How a movement ends: everything that must be written together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// The payment afterwards.
    pub intent: PaymentIntentState,
    /// The movement afterwards.
    pub transaction: TransactionState,
    /// What goes into the ledger.
    pub postings: Vec<Posting>,
    /// What the event says happened.
    pub event: &'static str,
}

/// Checks an id, key or token.
pub fn text(what: &'static str, given: &str) -> Result<(), BadInput> {
    cloud::text::id(given, MAX_TEXT).map_err(|why| BadInput::Id { what, why })
}

/// 1 to [`MAX_AMOUNT`].
pub fn amount(given: Amount) -> Result<(), BadInput> {
    match given {
        1..=MAX_AMOUNT => Ok(()),
        _ => Err(BadInput::Amount(given)),
    }
}

/// How long the reconciler waits after it has asked so often in vain.
pub fn ask_again_after(asked: u32) -> Millis {
    (ASK_AFTER_MS << asked.min(20)).min(ASK_AT_MOST_MS)
}

impl PaymentIntentState {
    /// A change at `now`: the next version.
    fn changed(&self, now: Millis) -> Self {
        Self {
            version: self.version + 1,
            updated_at: now,
            ..self.clone()
        }
    }

    /// Grows with every change of status. Whatever would make it smaller comes too late.
    pub fn rank(&self) -> (u32, u8) {
        match self.status {
            IntentStatus::Created => (self.charges, 0),
            IntentStatus::Processing => (self.charges, 1),
            IntentStatus::RequiresReconciliation => (self.charges, 2),
            IntentStatus::Retryable => (self.charges, 3),
            IntentStatus::Authorized => (u32::MAX, 0),
            _ => (u32::MAX, 1),
        }
    }

    /// A movement of this payment, not yet sent.
    pub fn movement(
        &self,
        transaction_id: &str,
        kind: Kind,
        amount: Amount,
        now: Millis,
    ) -> TransactionState {
        TransactionState {
            payment_intent_id: self.payment_intent_id.clone(),
            transaction_id: transaction_id.to_owned(),
            kind,
            status: TransactionStatus::Pending,
            amount,
            currency: self.currency,
            card: None,
            capture: false,
            authorization: self.authorization.clone(),
            expiry: false,
            attempt: 0,
            asked: 0,
            settled_by: None,
            reason: None,
            due_shard: None,
            due_at: Some(now + STALLED_MS),
            created_at: now,
            updated_at: now,
        }
    }

    /// A charge of the whole amount to this card.
    pub fn charge(&self, transaction_id: &str, card: &str, now: Millis) -> TransactionState {
        TransactionState {
            card: Some(card.to_owned()),
            capture: self.capture_method == CaptureMethod::Automatic,
            ..self.movement(transaction_id, Kind::Charge, self.amount, now)
        }
    }

    /// Begins a movement, if the rules allow it: the payment and the movement afterwards.
    pub fn begin(
        &self,
        movement: &Movement,
        transaction_id: &str,
        now: Millis,
    ) -> Result<(Self, TransactionState), Refused> {
        if let Some(open) = &self.open_transaction {
            return Err(Refused::UnderWay(open.clone()));
        }
        let not_now = |wanted| Refused::NotNow {
            status: self.status,
            wanted,
        };
        let part = |asked: Option<Amount>, left: Amount, wanted| {
            let asked = asked.unwrap_or(left);
            if asked > left {
                return Err(Refused::TooMuch {
                    asked: self.currency.text(asked),
                    left: self.currency.text(left),
                    wanted,
                });
            }
            Ok(asked)
        };
        let mut after = self.changed(now);
        let transaction = match movement {
            Movement::Charge { card } => {
                if self.status != IntentStatus::Retryable {
                    return Err(not_now("charged again"));
                }
                self.charge(transaction_id, card, now)
            }
            Movement::Capture { amount } => {
                if self.status != IntentStatus::Authorized {
                    return Err(not_now("captured"));
                }
                if let Some(until) = self.authorization_expires_at
                    && until <= now
                {
                    return Err(Refused::AuthorizationOver(until));
                }
                let amount = part(*amount, self.capturable, "captured")?;
                self.movement(transaction_id, Kind::Capture, amount, now)
            }
            // Nothing is held, so there is nothing to ask the processor for.
            Movement::Void if self.status == IntentStatus::Retryable => {
                after.status = IntentStatus::Cancelled;
                TransactionState {
                    status: TransactionStatus::Succeeded,
                    settled_by: Some(Source::Rules),
                    due_at: None,
                    ..self.movement(transaction_id, Kind::Void, 0, now)
                }
            }
            Movement::Void if self.status == IntentStatus::Authorized => {
                self.movement(transaction_id, Kind::Void, self.capturable, now)
            }
            Movement::Void => return Err(not_now("cancelled")),
            Movement::Expire => {
                let over = self.authorization_expires_at.is_some_and(|at| at <= now);
                if self.status != IntentStatus::Authorized || !over {
                    return Err(not_now("expired"));
                }
                TransactionState {
                    expiry: true,
                    ..self.movement(transaction_id, Kind::Void, self.capturable, now)
                }
            }
            Movement::Refund { amount } => {
                if self.refundable == 0 {
                    return Err(not_now("refunded"));
                }
                let amount = part(*amount, self.refundable, "refunded")?;
                self.movement(transaction_id, Kind::Refund, amount, now)
            }
        };
        if !transaction.status.is_terminal() {
            after.open_transaction = Some(transaction.transaction_id.clone());
        }
        Ok((after, transaction))
    }

    /// The processor is about to be asked for a charge.
    pub fn processing(&self, now: Millis) -> Self {
        Self {
            status: IntentStatus::Processing,
            charges: self.charges + 1,
            ..self.changed(now)
        }
    }

    /// Nobody knows what the processor did.
    pub fn unknown(&self, kind: Kind, now: Millis) -> Self {
        let mut after = self.changed(now);
        if kind == Kind::Charge {
            after.status = IntentStatus::RequiresReconciliation;
        }
        after
    }

    /// The movement has ended.
    pub fn settle(
        &self,
        transaction: &TransactionState,
        outcome: &Outcome,
        source: Source,
        now: Millis,
    ) -> Settled {
        let mut intent = Self {
            open_transaction: None,
            reason: None,
            ..self.changed(now)
        };
        let amount = transaction.amount;
        let approved = *outcome == Outcome::Approved;
        // An authorization that is over, and that the processor will not void, is gone there.
        let is_gone = transaction.expiry && matches!(outcome, Outcome::Declined(_));
        let mut postings = Vec::new();
        let event = match (transaction.kind, approved) {
            (Kind::Charge, true) => {
                intent.authorized = amount;
                intent.authorization = Some(transaction.attempt_id());
                if transaction.capture {
                    intent.captured = amount;
                    intent.refundable = amount;
                    intent.status = IntentStatus::Succeeded;
                    postings = ledger::captured(&intent.merchant_id, amount);
                    "payment_intent.succeeded"
                } else {
                    intent.capturable = amount;
                    intent.status = IntentStatus::Authorized;
                    // Counted from before the processor was asked: ours is over first.
                    let over = transaction.created_at + AUTHORIZATION_MS;
                    intent.authorization_expires_at = Some(over);
                    intent.expiry_due_at = Some(over);
                    "payment_intent.authorized"
                }
            }
            (Kind::Charge, false) => {
                intent.status = if intent.charges < MAX_CHARGES {
                    IntentStatus::Retryable
                } else {
                    IntentStatus::Failed
                };
                "payment_intent.not_charged"
            }
            (Kind::Capture, true) => {
                intent.captured += amount;
                intent.refundable += amount;
                intent.capturable -= amount;
                if intent.capturable == 0 {
                    intent.status = IntentStatus::Succeeded;
                }
                postings = ledger::captured(&intent.merchant_id, amount);
                "capture.succeeded"
            }
            (Kind::Void, _) if approved || is_gone => {
                intent.capturable = 0;
                intent.status = match (intent.captured > 0, transaction.expiry) {
                    (true, _) => IntentStatus::Succeeded,
                    (false, true) => IntentStatus::Expired,
                    (false, false) => IntentStatus::Cancelled,
                };
                "payment_intent.voided"
            }
            (Kind::Refund, true) => {
                intent.refunded += amount;
                intent.refundable -= amount;
                postings = ledger::refunded(&intent.merchant_id, amount);
                "refund.succeeded"
            }
            (Kind::Capture, false) => "capture.failed",
            (Kind::Void, _) => {
                if transaction.expiry {
                    intent.expiry_due_at = Some(now + ASK_AT_MOST_MS);
                }
                "void.failed"
            }
            (Kind::Refund, false) => "refund.failed",
        };
        if intent.status != IntentStatus::Authorized {
            intent.expiry_shard = None;
            intent.expiry_due_at = None;
        }
        let (status, reason) = match outcome {
            Outcome::Approved if transaction.kind == Kind::Charge => {
                (TransactionStatus::Authorized, None)
            }
            Outcome::Approved => (TransactionStatus::Succeeded, None),
            Outcome::Declined(why) => (TransactionStatus::Declined, Some(why.clone())),
            Outcome::Closed(why) => (TransactionStatus::Failed, Some(why.clone())),
        };
        if transaction.kind == Kind::Charge {
            intent.reason.clone_from(&reason);
        }
        Settled {
            intent,
            transaction: TransactionState {
                status,
                reason,
                settled_by: Some(source),
                due_shard: None,
                due_at: None,
                updated_at: now,
                ..transaction.clone()
            },
            postings,
            event,
        }
    }

    /// What must be true of a payment at every moment.
    pub fn is_sound(&self) -> bool {
        let within = 0 <= self.refunded
            && self.refunded <= self.captured
            && self.captured <= self.authorized
            && self.authorized <= self.amount;
        let left = self.refundable == self.captured - self.refunded
            && (self.capturable == self.authorized - self.captured || self.capturable == 0);
        within && left && !(self.status == IntentStatus::Succeeded && self.capturable != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fresh(capture_method: CaptureMethod) -> PaymentIntentState {
        PaymentIntentState {
            payment_intent_id: "pi".into(),
            merchant_id: "m".into(),
            amount: 100,
            currency: "EUR".to_owned().try_into().expect("a currency"),
            capture_method,
            status: IntentStatus::Retryable,
            version: 1,
            charges: 0,
            open_transaction: None,
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
            created_at: 0,
            updated_at: 0,
        }
    }

    fn movements() -> impl Strategy<Value = Movement> {
        let part = proptest::option::of(1..150_i64);
        prop_oneof![
            Just(Movement::Charge { card: "c".into() }),
            part.clone().prop_map(|amount| Movement::Capture { amount }),
            Just(Movement::Void),
            Just(Movement::Expire),
            part.prop_map(|amount| Movement::Refund { amount }),
        ]
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_a_payment_stays_sound_and_never_moves_back(
            manual in any::<bool>(),
            asked in proptest::collection::vec((movements(), 0..3_u8, 0..4_i64), 1..30),
        ) {
            let method = if manual { CaptureMethod::Manual } else { CaptureMethod::Automatic };
            let mut intent = fresh(method);
            let mut now = 0;
            for (number, (movement, outcome, days)) in asked.into_iter().enumerate() {
                now += days * 86_400_000;
                let Ok((mut begun, mut transaction)) =
                    intent.begin(&movement, &format!("t{number}"), now)
                else {
                    continue;
                };
                if transaction.kind == Kind::Charge {
                    begun = begun.processing(now);
                }
                transaction.attempt += 1;
                let outcome = match outcome {
                    0 => Outcome::Declined("no".into()),
                    1 => Outcome::Closed("away".into()),
                    _ => Outcome::Approved,
                };
                let after = match begun.open_transaction {
                    Some(_) => begun.settle(&transaction, &outcome, Source::Response, now).intent,
                    None => begun,
                };
                prop_assert!(after.is_sound(), "{after:?}");
                prop_assert!(after.rank() >= intent.rank(), "{intent:?} then {after:?}");
                prop_assert!(!intent.status.is_terminal() || after.status == intent.status);
                prop_assert!(after.version > intent.version);
                prop_assert!(after.charges <= MAX_CHARGES);
                intent = after;
            }
        }
    }

    #[test]
    fn the_reconcilers_pauses_double_up_to_an_hour() {
        assert_eq!(ask_again_after(0), 5_000);
        assert_eq!(ask_again_after(1), 10_000);
        assert_eq!(ask_again_after(9), 2_560_000);
        assert_eq!(ask_again_after(10), ASK_AT_MOST_MS);
        assert_eq!(ask_again_after(u32::MAX), ASK_AT_MOST_MS);
    }
}
