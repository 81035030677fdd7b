//! Notify the merchant: at least once, in order for each payment, and never for ever.
//!
//! The relay makes a delivery of each event in the outbox; the deliverer takes what is due, under a
//! lease, sends it, and writes down how it went. An event waits for the one before it, until that was
//! delivered or given up. What was given up stays, and can be sent again.

use crate::emit_event::PaymentEventState;
use crate::items::{event_key, lane};
use crate::processor_client::TIMEOUT;
use crate::{Payments, PaymentsError, signature, tables};
use aws_sdk_dynamodb::types::{
    AttributeValue, Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, s, to_item};
use cloud::{CloudError, Guard, Guarded, Item, Millis, Transaction};
use serde::{Deserialize, Serialize};

/// After a failure: so long until the next try. After the last, it is given up.
pub const RETRY_AFTER_MS: [Millis; 6] = [5_000, 30_000, 120_000, 600_000, 3_600_000, 10_800_000];

/// How long a deliverer has a delivery to itself. Longer than a merchant may take to answer.
pub const DELIVERY_LEASE_MS: Millis = 30_000;

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum DeliveryStatus {
    /// Not tried yet.
    Pending,
    /// Tried, and to be tried again.
    Retrying,
    /// The merchant has it.
    Delivered,
    /// Given up.
    Failed,
}

/// One event on its way to its merchant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebhookDeliveryState {
    /// Of which payment.
    pub payment_intent_id: String,
    /// Which of its events.
    pub event_number: u64,
    /// To whom.
    pub merchant_id: String,
    /// What is sent.
    pub payload: String,
    /// Where it stands.
    pub status: DeliveryStatus,
    /// Tries begun: the fence.
    pub attempt: u32,
    /// Who tries it, or tried it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease_owner: Option<String>,
    /// Tries before the last replay: they do not count any more.
    pub forgiven: u32,
    /// `due-N` while there is something to do, `dead-N` when given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_shard: Option<String>,
    /// When to try; while it is being tried, when the lease ends; when it was given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Millis>,
    /// What the merchant answered last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_answer: Option<String>,
}

/// What became of one look at a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivered {
    /// The merchant has it.
    Delivered,
    /// Not this time.
    Retrying,
    /// Given up.
    Failed,
    /// The one before it has not ended.
    Waiting,
    /// Somebody else has it, or it has ended.
    Nothing,
}

/// A delivery is made of an event once.
const DELIVERY_GUARD: &str = "attribute_not_exists(event_number)";
const RELAYED: &str = "REMOVE outbox_shard";

/// Nobody has tried it since it was read, and it has not ended: who tried it before may only have been
/// slow.
const CLAIM_GUARD: &str = "attempt = :seen AND #status IN (:pending, :retrying)";
const CLAIM: &str =
    "SET attempt = :attempt, lease_owner = :me, due_at = :until, #status = :retrying";

/// Only the last try says how it went, and only until somebody replays it.
const FENCE: &str = "attempt = :attempt AND #status = :retrying";
const DELIVERED: &str = "SET #status = :to, last_answer = :answer REMOVE due_shard, due_at";
const AGAIN: &str = "SET #status = :to, last_answer = :answer, due_at = :due, due_shard = :shard";

/// What waits for another is not looked at before that one is, unless somebody has it by now.
const PUT_OFF_GUARD: &str = "due_at = :due";
const PUT_OFF: &str = "SET due_at = :later";

/// Only what was given up is sent again.
const REPLAY_GUARD: &str = "#status = :failed";
const REPLAY: &str =
    "SET #status = :pending, forgiven = attempt, due_shard = :shard, due_at = :now";

impl Payments {
    /// Makes deliveries of what is in the outbox of these shards. Gives what became of each: one that
    /// cannot be relayed is not in the way of the others.
    pub async fn relay_events(
        &self,
        shards: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<(String, Result<bool, PaymentsError>)>, CloudError> {
        let mut done = Vec::new();
        for shard in shards {
            let mut pages = self
                .dynamodb()
                .query()
                .table_name(self.table(tables::PAYMENT_EVENTS.name))
                .index_name("outbox")
                .key_condition_expression("outbox_shard = :shard")
                .expression_attribute_values(":shard", s(format!("outbox-{shard}")))
                .into_paginator()
                .items()
                .send();
            while let Some(item) = pages.next().await {
                let (payment_intent_id, number) = keys(&item?);
                let relayed = match self.read_event(&payment_intent_id, number).await {
                    Ok(event) => self.relay(&event).await,
                    Err(error) => Err(error),
                };
                done.push((format!("{payment_intent_id} #{number}"), relayed));
            }
        }
        Ok(done)
    }

    /// Makes a delivery of an event. False if there is one.
    pub async fn relay(&self, event: &PaymentEventState) -> Result<bool, PaymentsError> {
        let delivery = WebhookDeliveryState {
            payment_intent_id: event.payment_intent_id.clone(),
            event_number: event.event_number,
            merchant_id: event.merchant_id.clone(),
            payload: event.payload.clone(),
            status: DeliveryStatus::Pending,
            attempt: 0,
            lease_owner: None,
            forgiven: 0,
            due_shard: Some(lane("due", &event.payment_intent_id)),
            due_at: Some(self.now()),
            last_answer: None,
        };
        let put = Put::builder()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .set_item(Some(to_item(&delivery)?))
            .condition_expression(DELIVERY_GUARD)
            .build()
            .map_err(CloudError::bug)?;
        let update = Update::builder()
            .table_name(self.table(tables::PAYMENT_EVENTS.name))
            .set_key(Some(event_key(
                &event.payment_intent_id,
                event.event_number,
            )))
            .update_expression(RELAYED)
            .build()
            .map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().put(put).build(),
            TransactWriteItem::builder().update(update).build(),
        ];
        match self.cloud.transact(&["delivery", "event"], items).await {
            Ok(Transaction::Committed(_)) => Ok(true),
            // Relayed already: both were written together, so the event has left the outbox.
            Ok(Transaction::Cancelled(_)) | Err(CloudError::Conflict(_)) => Ok(false),
            Err(fault) => Err(fault.into()),
        }
    }

    /// Tries what is due in these shards, one after the other. Gives what became of each.
    pub async fn deliver_due(
        &self,
        shards: impl IntoIterator<Item = u32>,
    ) -> Result<Vec<(String, Result<Delivered, PaymentsError>)>, CloudError> {
        let now = self.now();
        let mut done = Vec::new();
        for shard in shards {
            for (payment_intent_id, number) in self.listed("due", shard, now).await? {
                let tried = self.deliver(&payment_intent_id, number).await;
                done.push((format!("{payment_intent_id} #{number}"), tried));
            }
        }
        Ok(done)
    }

    /// What was given up in this shard, longest ago first.
    pub async fn given_up(&self, shard: u32) -> Result<Vec<(String, u64)>, CloudError> {
        self.listed("dead", shard, Millis::MAX).await
    }

    async fn listed(
        &self,
        name: &str,
        shard: u32,
        until: Millis,
    ) -> Result<Vec<(String, u64)>, CloudError> {
        let mut pages = self
            .dynamodb()
            .query()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .index_name("due")
            .key_condition_expression("due_shard = :shard AND due_at <= :until")
            .expression_attribute_values(":shard", s(format!("{name}-{shard}")))
            .expression_attribute_values(":until", n(until))
            .into_paginator()
            .items()
            .send();
        let mut found = Vec::new();
        while let Some(item) = pages.next().await {
            found.push(keys(&item?));
        }
        // Events of one moment come in no order of their own, and a later one would only wait.
        found.sort_by(|(left, a), (right, b)| (left, a).cmp(&(right, b)));
        Ok(found)
    }

    /// Tries one delivery, if it is its turn.
    pub async fn deliver(
        &self,
        payment_intent_id: &str,
        number: u64,
    ) -> Result<Delivered, PaymentsError> {
        let now = self.now();
        let [delivery, before] = self.with_predecessor(payment_intent_id, number).await?;
        let Some(delivery) = delivery.filter(|delivery| delivery.is_due(now)) else {
            return Ok(Delivered::Nothing);
        };
        // Once it has ended it stays so, unless somebody replays it: so this needs no guard.
        if number > 1 && !before.as_ref().is_some_and(WebhookDeliveryState::has_ended) {
            self.put_off(&delivery, before.as_ref()).await?;
            return Ok(Delivered::Waiting);
        }
        let endpoint = self.read_endpoint(&delivery.merchant_id).await?;
        let Some(claimed) = self.claim_delivery(&delivery, now).await? else {
            return Ok(Delivered::Nothing);
        };
        let Some(endpoint) = endpoint else {
            return self.not_delivered(&claimed, "nobody listens", true).await;
        };
        let signed = signature::sign(&endpoint.secrets(now), &claimed.payload, now);
        let sent = self
            .webhooks
            .post(&endpoint.webhook_url)
            .header(signature::HEADER, signed)
            .header("content-type", "application/json")
            .timeout(TIMEOUT)
            .body(claimed.payload.clone())
            .send()
            .await;
        match sent {
            Ok(answer) if answer.status().is_success() => {
                self.is_delivered(&claimed, answer.status().as_str()).await
            }
            Ok(answer) => {
                let answer = answer.status().to_string();
                self.not_delivered(&claimed, &answer, false).await
            }
            Err(error) => {
                let answer: String = error.to_string().chars().take(500).collect();
                self.not_delivered(&claimed, &answer, false).await
            }
        }
    }

    /// A merchant that is away for a day has many events that wait for its first one. Nobody looks at
    /// them before that one is tried again.
    async fn put_off(
        &self,
        delivery: &WebhookDeliveryState,
        before: Option<&WebhookDeliveryState>,
    ) -> Result<(), CloudError> {
        let (Some(due), Some(later)) = (delivery.due_at, before.and_then(|before| before.due_at))
        else {
            return Ok(());
        };
        if later <= due {
            return Ok(());
        }
        self.dynamodb()
            .update_item()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .set_key(Some(event_key(
                &delivery.payment_intent_id,
                delivery.event_number,
            )))
            .update_expression(PUT_OFF)
            .condition_expression(PUT_OFF_GUARD)
            .expression_attribute_values(":due", n(due))
            .expression_attribute_values(":later", n(later))
            .send()
            .await
            .guarded()?;
        Ok(())
    }

    async fn with_predecessor(
        &self,
        payment_intent_id: &str,
        number: u64,
    ) -> Result<[Option<WebhookDeliveryState>; 2], CloudError> {
        let mut keys = vec![event_key(payment_intent_id, number)];
        if number > 1 {
            keys.push(event_key(payment_intent_id, number - 1));
        }
        let keys = vec![(tables::WEBHOOK_DELIVERIES.name, keys)];
        let found = self.cloud.read_batch(keys, true).await?;
        let mut both = [None, None];
        for item in found.into_values().flatten() {
            let delivery: WebhookDeliveryState = from_item(&item)?;
            let at = usize::from(delivery.event_number != number);
            both[at] = Some(delivery);
        }
        Ok(both)
    }

    async fn claim_delivery(
        &self,
        delivery: &WebhookDeliveryState,
        now: Millis,
    ) -> Result<Option<WebhookDeliveryState>, CloudError> {
        let me = self.cloud.ids().next("try");
        let attempt = delivery.attempt + 1;
        let until = now + DELIVERY_LEASE_MS;
        let claimed = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .set_key(Some(event_key(
                &delivery.payment_intent_id,
                delivery.event_number,
            )))
            .update_expression(CLAIM)
            .condition_expression(CLAIM_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":pending", s("PENDING"))
            .expression_attribute_values(":retrying", s("RETRYING"))
            .expression_attribute_values(":seen", n(delivery.attempt))
            .expression_attribute_values(":attempt", n(attempt))
            .expression_attribute_values(":until", n(until))
            .expression_attribute_values(":me", s(&me))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        if let Guard::Failed(there) = claimed {
            let there: Option<WebhookDeliveryState> =
                there.map(|item| from_item(&item)).transpose()?;
            // Ours, if only the answer was lost; else somebody else's.
            if there.is_none_or(|there| there.lease_owner.as_ref() != Some(&me)) {
                return Ok(None);
            }
        }
        Ok(Some(WebhookDeliveryState {
            attempt,
            lease_owner: Some(me),
            due_at: Some(until),
            status: DeliveryStatus::Retrying,
            ..delivery.clone()
        }))
    }

    async fn is_delivered(
        &self,
        delivery: &WebhookDeliveryState,
        answer: &str,
    ) -> Result<Delivered, PaymentsError> {
        let written = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .set_key(Some(event_key(
                &delivery.payment_intent_id,
                delivery.event_number,
            )))
            .update_expression(DELIVERED)
            .condition_expression(FENCE)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":attempt", n(delivery.attempt))
            .expression_attribute_values(":retrying", s("RETRYING"))
            .expression_attribute_values(":to", s("DELIVERED"))
            .expression_attribute_values(":answer", s(answer))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        Ok(match written {
            Guard::Passed(_) => Delivered::Delivered,
            Guard::Failed(there) => ended_by(delivery, there.as_ref(), DeliveryStatus::Delivered)?,
        })
    }

    async fn not_delivered(
        &self,
        delivery: &WebhookDeliveryState,
        answer: &str,
        for_good: bool,
    ) -> Result<Delivered, PaymentsError> {
        let now = self.now();
        let tries = (delivery.attempt - delivery.forgiven) as usize;
        let pause = RETRY_AFTER_MS.get(tries - 1).filter(|_| !for_good);
        let (to, due, name) = match pause {
            Some(pause) => (DeliveryStatus::Retrying, now + pause, "due"),
            None => (DeliveryStatus::Failed, now, "dead"),
        };
        let written = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .set_key(Some(event_key(
                &delivery.payment_intent_id,
                delivery.event_number,
            )))
            .update_expression(AGAIN)
            .condition_expression(FENCE)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":attempt", n(delivery.attempt))
            .expression_attribute_values(":retrying", s("RETRYING"))
            .expression_attribute_values(":to", crate::items::word(to))
            .expression_attribute_values(":answer", s(answer))
            .expression_attribute_values(":due", n(due))
            .expression_attribute_values(":shard", s(lane(name, &delivery.payment_intent_id)))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        let outcome = match to {
            DeliveryStatus::Failed => Delivered::Failed,
            _ => Delivered::Retrying,
        };
        Ok(match written {
            Guard::Passed(_) => outcome,
            Guard::Failed(there) => ended_by(delivery, there.as_ref(), to)?,
        })
    }

    /// Sends again what was given up.
    pub async fn replay(&self, payment_intent_id: &str, number: u64) -> Result<(), PaymentsError> {
        let not_given_up = || PaymentsError::NotGivenUp(payment_intent_id.to_owned(), number);
        if crate::domain::text("the payment", payment_intent_id).is_err() {
            return Err(not_given_up());
        }
        let replayed = self
            .dynamodb()
            .update_item()
            .table_name(self.table(tables::WEBHOOK_DELIVERIES.name))
            .set_key(Some(event_key(payment_intent_id, number)))
            .update_expression(REPLAY)
            .condition_expression(REPLAY_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":failed", s("FAILED"))
            .expression_attribute_values(":pending", s("PENDING"))
            .expression_attribute_values(":shard", s(lane("due", payment_intent_id)))
            .expression_attribute_values(":now", n(self.now()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        match replayed {
            Guard::Passed(_) => Ok(()),
            Guard::Failed(there) => {
                let there: Option<WebhookDeliveryState> =
                    there.map(|item| from_item(&item)).transpose()?;
                // On its way again already: by this very call, perhaps, whose answer got lost.
                match there {
                    Some(there) if there.forgiven > 0 && !there.has_ended() => Ok(()),
                    _ => Err(not_given_up()),
                }
            }
        }
    }

    /// The deliveries of a payment's events, in order. Consistent.
    pub async fn deliveries_of(
        &self,
        payment_intent_id: &str,
    ) -> Result<Vec<WebhookDeliveryState>, CloudError> {
        self.rows_of(&tables::WEBHOOK_DELIVERIES, payment_intent_id)
            .await
    }
}

impl WebhookDeliveryState {
    fn is_due(&self, now: Millis) -> bool {
        !self.has_ended() && self.due_at.is_some_and(|due| due <= now)
    }

    /// Whether the next one may go.
    pub fn has_ended(&self) -> bool {
        matches!(
            self.status,
            DeliveryStatus::Delivered | DeliveryStatus::Failed
        )
    }
}

/// The fence refused: is what is there our own word, whose answer got lost?
fn ended_by(
    delivery: &WebhookDeliveryState,
    there: Option<&Item>,
    to: DeliveryStatus,
) -> Result<Delivered, CloudError> {
    let Some(there) = there else {
        return Ok(Delivered::Nothing);
    };
    let there: WebhookDeliveryState = from_item(there)?;
    let ours = there.attempt == delivery.attempt && there.status == to;
    Ok(match (ours, to) {
        (true, DeliveryStatus::Delivered) => Delivered::Delivered,
        (true, DeliveryStatus::Failed) => Delivered::Failed,
        _ => Delivered::Nothing,
    })
}

fn keys(item: &Item) -> (String, u64) {
    let payment = match item.get("payment_intent_id") {
        Some(AttributeValue::S(text)) => text.clone(),
        _ => String::new(),
    };
    let number = match item.get("event_number") {
        Some(AttributeValue::N(number)) => number.parse().unwrap_or_default(),
        _ => 0,
    };
    (payment, number)
}
