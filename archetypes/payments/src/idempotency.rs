//! Persist the idempotency key, and retry safely.
//!
//! The key is claimed in the transaction that makes what it stands for. Whoever has it holds a lease
//! while it works; whoever comes meanwhile is told to wait, and whoever comes when the lease is over
//! goes on where the first one stopped. The first answer is kept, and is the answer from then on, byte
//! for byte. A refusal that wrote nothing is not kept: the key is still free.

use crate::domain::{
    self, BadInput, KEY_KEPT_MS, KEY_PURGED_MS, LEASE_MS, PaymentIntentState, TransactionState,
    TransactionStatus,
};
use crate::{Payments, PaymentsError, tables};
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Guard, Guarded, Item, Millis, Transaction};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A merchant's name for one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Keys of different merchants have nothing to do with each other.
    pub merchant_id: String,
    /// What came in the `Idempotency-Key` header.
    pub key: String,
}

/// Whether the first answer is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum KeyStatus {
    /// Somebody works on it.
    InProgress,
    /// It is.
    Completed,
}

/// What is remembered about a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdempotencyState {
    /// `merchant#key`.
    pub idempotency_key: String,
    /// What was asked: the same key with another hash is a mistake.
    pub request_hash: String,
    /// The payment it made or changed.
    pub payment_intent_id: String,
    /// The movement it began.
    pub transaction_id: String,
    /// Whether the first answer is there.
    pub status: KeyStatus,
    /// Which request works on it, or did last.
    pub owner: String,
    /// Until when.
    pub lease_expires_at: Millis,
    /// The first answer's status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_status: Option<u16>,
    /// The first answer, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_body: Option<String>,
    /// When the key came first.
    pub created_at: Millis,
    /// Then the key is free again, if it is known what became of it.
    pub free_at: Millis,
    /// Epoch seconds; then DynamoDB may delete it. Much later: what is unknown must not be forgotten.
    pub purge_at: i64,
}

/// An answer, as it is sent and kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// JSON.
    pub body: String,
}

/// The status of an answer that says: nobody knows yet.
const UNKNOWN: u16 = 202;

/// A request that wants to have its key, or has it.
pub struct Claim<'a> {
    pub(crate) key: &'a Key,
    pub(crate) request_hash: String,
    pub(crate) owner: String,
    pub(crate) payment_intent_id: String,
    pub(crate) transaction_id: String,
}

/// What became of a claim.
pub(crate) enum Claimed<'a> {
    /// It was written, with all that belongs to it.
    Ours,
    /// The key is older, its worker is gone, and we have its lease now.
    Resume(Claim<'a>),
    /// The key has its answer.
    Replay(Response),
    /// Something else of the transaction stood in the way: decide again.
    Overtaken,
}

/// Nobody has the key, or it has had a definite answer so long ago that it is free again. One whose
/// outcome was unknown is looked at before it is given away.
const KEY_GUARD: &str = "attribute_not_exists(idempotency_key) \
     OR (free_at <= :now AND #status = :completed AND response_status <> :unknown)";

/// The key is still the one whose movement was looked at, and has ended.
const FREE_GUARD: &str = "transaction_id = :transaction";

/// The lease that was seen is still the one there is: one of several takes it over.
const TAKE_OVER_GUARD: &str = "#owner = :seen AND lease_expires_at = :lease";
const TAKE_OVER: &str = "SET #owner = :me, lease_expires_at = :until";

/// The first answer stays, and it is that of the movement the key stands for: a day later it may stand
/// for another.
const FINISH_GUARD: &str = "#status = :in_progress AND transaction_id = :transaction";
const FINISH: &str = "SET #status = :completed, response_status = :code, response_body = :body";

impl Key {
    /// A key of this merchant.
    pub fn new(merchant_id: &str, key: &str) -> Self {
        Self {
            merchant_id: merchant_id.to_owned(),
            key: key.to_owned(),
        }
    }

    pub(crate) fn checked(&self) -> Result<(), BadInput> {
        domain::text("the merchant", &self.merchant_id)?;
        domain::text("the idempotency key", &self.key)
    }

    /// The length of the merchant's name goes first: with only a separator, `a#b` and `c` would be
    /// the key of `a` and `b#c`.
    fn item_key(&self) -> String {
        format!(
            "{}:{}#{}",
            self.merchant_id.len(),
            self.merchant_id,
            self.key
        )
    }

    /// What was asked, as a hash.
    pub(crate) fn hash(&self, action: &str, request: &impl Serialize) -> String {
        let request = serde_json::to_string(request).unwrap_or_default();
        hex::encode(Sha256::digest(format!("{action}\n{request}")))
    }
}

impl Response {
    /// What a request is told when its movement has come as far as it can.
    pub(crate) fn of(intent: &PaymentIntentState, transaction: &TransactionState) -> Self {
        let status = match transaction.status {
            TransactionStatus::Authorized | TransactionStatus::Succeeded => 200,
            // Not charged, and known not to be: nothing is wrong with the request.
            TransactionStatus::Declined | TransactionStatus::Failed => 402,
            _ => UNKNOWN,
        };
        let body = serde_json::json!({
            "payment": intent.view(),
            "transaction": {
                "transaction_id": transaction.transaction_id,
                "kind": transaction.kind,
                "status": transaction.status,
                "amount": transaction.amount,
                "reason": transaction.reason,
            },
        });
        Self {
            status,
            body: body.to_string(),
        }
    }
}

impl Payments {
    /// The key, as part of the transaction that makes what it stands for.
    pub(crate) fn claimed(
        &self,
        claim: &Claim<'_>,
        now: Millis,
    ) -> Result<TransactWriteItem, CloudError> {
        let state = IdempotencyState {
            idempotency_key: claim.key.item_key(),
            request_hash: claim.request_hash.clone(),
            payment_intent_id: claim.payment_intent_id.clone(),
            transaction_id: claim.transaction_id.clone(),
            status: KeyStatus::InProgress,
            owner: claim.owner.clone(),
            lease_expires_at: now + LEASE_MS,
            response_status: None,
            response_body: None,
            created_at: now,
            free_at: now + KEY_KEPT_MS,
            purge_at: (now + KEY_PURGED_MS) / 1_000,
        };
        let put = Put::builder()
            .table_name(self.table(tables::IDEMPOTENCY.name))
            .set_item(Some(to_item(&state)?))
            .condition_expression(KEY_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":completed", s("COMPLETED"))
            .expression_attribute_values(":unknown", n(UNKNOWN))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    /// Sends the transaction that claims a key, and says what became of the claim.
    pub(crate) async fn claim<'a>(
        &self,
        claim: &Claim<'a>,
        names: &[&'static str],
        items: Vec<TransactWriteItem>,
    ) -> Result<Claimed<'a>, PaymentsError> {
        for attempt in 0..crate::ATTEMPTS {
            match self.cloud.transact(names, items.clone()).await {
                Ok(Transaction::Committed(_)) => return Ok(Claimed::Ours),
                Ok(Transaction::Cancelled(cancelled)) => match cancelled.failed("key") {
                    Some(Some(there)) => return self.met(claim, &from_item(there)?).await,
                    _ => return Ok(Claimed::Overtaken),
                },
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(PaymentsError::Contended)
    }

    /// The key as it is, if it is there. Consistent.
    pub async fn read_key(&self, key: &Key) -> Result<Option<IdempotencyState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table(tables::IDEMPOTENCY.name))
            .key("idempotency_key", s(key.item_key()))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// Gives a key away whose day is over, if its movement has ended. True if it is free now.
    async fn free(&self, there: &IdempotencyState, now: Millis) -> Result<bool, PaymentsError> {
        if there.free_at > now {
            return Ok(false);
        }
        let (_, movement) = self
            .read_movement(&there.payment_intent_id, &there.transaction_id)
            .await?;
        if !movement.status.is_terminal() {
            return Ok(false);
        }
        self.dynamodb()
            .delete_item()
            .table_name(self.table(tables::IDEMPOTENCY.name))
            .key("idempotency_key", s(&there.idempotency_key))
            .condition_expression(FREE_GUARD)
            .expression_attribute_values(":transaction", s(&there.transaction_id))
            .send()
            .await
            .guarded()?;
        // Deleted, or somebody else has it by now: either way, look again.
        Ok(true)
    }

    /// The key is there already. Whose is it, and how far has it come?
    pub(crate) async fn met<'a>(
        &self,
        claim: &Claim<'a>,
        there: &IdempotencyState,
    ) -> Result<Claimed<'a>, PaymentsError> {
        // Ours: the claim was written, and its answer got lost.
        if there.owner == claim.owner {
            return Ok(Claimed::Ours);
        }
        let now = self.now();
        if self.free(there, now).await? {
            return Ok(Claimed::Overtaken);
        }
        if there.request_hash != claim.request_hash {
            return Err(PaymentsError::KeyReused(claim.key.key.clone()));
        }
        if let Some(response) = there.response() {
            return Ok(Claimed::Replay(response));
        }
        let in_progress = |until: Millis| PaymentsError::InProgress {
            key: claim.key.key.clone(),
            retry_after_ms: (until - now).max(1),
        };
        if there.lease_expires_at > now {
            return Err(in_progress(there.lease_expires_at));
        }
        let taken = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::IDEMPOTENCY.name))
            .key("idempotency_key", s(&there.idempotency_key))
            .update_expression(TAKE_OVER)
            .condition_expression(TAKE_OVER_GUARD)
            .expression_attribute_names("#owner", "owner")
            .expression_attribute_values(":seen", s(&there.owner))
            .expression_attribute_values(":lease", n(there.lease_expires_at))
            .expression_attribute_values(":me", s(&claim.owner))
            .expression_attribute_values(":until", n(now + LEASE_MS))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        let resumed = || Claim {
            key: claim.key,
            request_hash: claim.request_hash.clone(),
            owner: claim.owner.clone(),
            payment_intent_id: there.payment_intent_id.clone(),
            transaction_id: there.transaction_id.clone(),
        };
        match taken {
            Guard::Passed(_) => Ok(Claimed::Resume(resumed())),
            Guard::Failed(None) => Ok(Claimed::Overtaken),
            Guard::Failed(Some(now_there)) => {
                let now_there: IdempotencyState = from_item(&now_there)?;
                match now_there.response() {
                    Some(response) => Ok(Claimed::Replay(response)),
                    None if now_there.owner == claim.owner => Ok(Claimed::Resume(resumed())),
                    None => Err(in_progress(now_there.lease_expires_at)),
                }
            }
        }
    }

    /// Goes on where somebody else stopped.
    pub(crate) async fn resume(&self, claim: &Claim<'_>) -> Result<Response, PaymentsError> {
        let (intent, transaction) = self
            .read_movement(&claim.payment_intent_id, &claim.transaction_id)
            .await?;
        let ended = self.drive(intent, transaction).await?;
        self.finish(claim, &ended).await
    }

    /// Keeps the answer, and gives it: this one, or the one that somebody kept first.
    pub(crate) async fn finish(
        &self,
        claim: &Claim<'_>,
        (intent, transaction): &(PaymentIntentState, TransactionState),
    ) -> Result<Response, PaymentsError> {
        let response = Response::of(intent, transaction);
        let kept = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::IDEMPOTENCY.name))
            .key("idempotency_key", s(claim.key.item_key()))
            .update_expression(FINISH)
            .condition_expression(FINISH_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":in_progress", s("IN_PROGRESS"))
            .expression_attribute_values(":completed", s("COMPLETED"))
            .expression_attribute_values(":transaction", s(&claim.transaction_id))
            .expression_attribute_values(":code", n(response.status))
            .expression_attribute_values(":body", s(&response.body))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        match kept {
            Guard::Passed(_) => Ok(response),
            Guard::Failed(there) => Self::kept_first(claim, there.as_ref()),
        }
    }

    fn kept_first(claim: &Claim<'_>, there: Option<&Item>) -> Result<Response, PaymentsError> {
        let Some(there) = there else {
            // Forgotten after a day, while somebody was working on it.
            return Err(PaymentsError::Contended);
        };
        let there: IdempotencyState = from_item(there)?;
        match there.response() {
            Some(response) if there.transaction_id == claim.transaction_id => Ok(response),
            // A day has passed, and the key stands for something else.
            _ => Err(PaymentsError::KeyReused(claim.key.key.clone())),
        }
    }
}

impl IdempotencyState {
    fn response(&self) -> Option<Response> {
        let (Some(status), Some(body)) = (self.response_status, &self.response_body) else {
            return None;
        };
        Some(Response {
            status,
            body: body.clone(),
        })
    }
}
