//! A shop to try things on: payments, the processor outside, a merchant who listens, and the
//! invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

pub mod cast;

use chaos::World;
use cloud::{Clock, Cloud, Millis};
use payments::deliver_webhook::DeliveryStatus;
use payments::domain::{
    AUTHORIZATION_MS, CaptureMethod, IntentStatus, Kind, PaymentIntentState, TransactionStatus,
};
use payments::idempotency::Key;
use payments::ledger::{RECEIVABLE, Side};
use payments::processor::{Mood, NOTICE_SECRET};
use payments::processor_client::{Decision, Said};
use payments::reconcile::Decided;
use payments::record_response::Recorded;
use payments::sandbox::Sandbox;
use payments::tables::{SHARDS, TABLES};
use payments::view_payment::EventView;
use payments::{NewPayment, Payments, PaymentsError, Response, signature};
use std::ops::Deref;
use std::time::Duration;

pub const AMOUNT: i64 = 19_99;
pub const SECOND: Millis = 1_000;
/// Longer than the lease of a key.
pub const LEASE_OVER: Millis = 31 * SECOND;
/// Longer than anything may stall, and than the first pauses of the reconciler.
pub const ROUND: Millis = 90 * SECOND;
pub const WEEK: Millis = 7 * 86_400 * SECOND;

/// A sandbox, and what these tests do in one.
pub struct Shop(pub Sandbox);

impl Deref for Shop {
    type Target = Sandbox;

    fn deref(&self) -> &Sandbox {
        &self.0
    }
}

impl World for Shop {
    fn cloud(&self) -> &Cloud {
        self.payments.cloud()
    }
}

/// A shop with a cloud of its own: reconcilers and deliverers act on whatever they find.
pub async fn open() -> Shop {
    open_on(cloud::connect_alone_for_tests().await.unwrap()).await
}

pub async fn open_on(cloud: Cloud) -> Shop {
    cloud.create_tables(TABLES).await.unwrap();
    Shop(Sandbox::open(cloud).await.unwrap())
}

pub fn key(name: &str) -> Key {
    Key::new("shop", name)
}

/// 19.99 EUR with a good card, taken at once.
pub fn sale() -> NewPayment {
    NewPayment {
        amount: AMOUNT,
        currency: "EUR".to_owned().try_into().unwrap(),
        card: "card-ok".into(),
        capture_method: CaptureMethod::Automatic,
    }
}

pub fn with_card(card: &str) -> NewPayment {
    NewPayment {
        card: card.into(),
        ..sale()
    }
}

/// 19.99 EUR, held and to be taken later.
pub fn hold() -> NewPayment {
    NewPayment {
        capture_method: CaptureMethod::Manual,
        ..sale()
    }
}

/// A shop where this payment was made under the key `order`.
pub async fn with(request: NewPayment) -> Shop {
    let shop = open().await;
    shop.payments
        .create_payment(&key("order"), &request)
        .await
        .unwrap();
    shop
}

impl Shop {
    pub fn now(&self) -> Millis {
        self.cloud().now()
    }

    pub fn advance(&self, ms: Millis) {
        let by = Duration::from_millis(ms as u64);
        self.cloud().clock().advance(by);
    }

    /// The same, by somebody whose clock is ahead: for whom leases are over that others still have.
    pub fn ahead(&self, ms: Millis) -> Payments {
        let clock = Clock::manual(self.now() + ms);
        self.payments.on(self.cloud().with_clock(clock))
    }

    pub async fn pay(&self, request: &NewPayment) -> Result<Response, PaymentsError> {
        self.payments.create_payment(&key("order"), request).await
    }

    /// The payment that a key stands for, if it does.
    pub async fn payment_of(&self, name: &str) -> Option<PaymentIntentState> {
        let beside = self.beside();
        let state = beside.read_key(&key(name)).await.unwrap()?;
        Some(beside.read_intent(&state.payment_intent_id).await.unwrap())
    }

    pub async fn order(&self) -> PaymentIntentState {
        let found = self.payment_of("order").await;
        found.expect("a payment under the key order")
    }

    /// The processor's notices arrive: in any order, and often.
    pub async fn notices(&self) -> Vec<Recorded> {
        let mut recorded = Vec::new();
        for said in self.processor.take_notices() {
            recorded.push(self.notice(&said).await);
        }
        recorded
    }

    pub async fn notice(&self, said: &Said) -> Recorded {
        notice(&self.payments, said).await.unwrap()
    }

    /// All that runs beside the requests. It looks after the one shard of the order; all of them would
    /// take most of the time of these tests.
    pub async fn look_after(&self) {
        let Some(order) = self.payment_of("order").await else {
            return;
        };
        let shard = cloud::item::shard_of(&order.payment_intent_id, SHARDS);
        for (id, looked) in self.payments.reconcile_due([shard]).await.unwrap() {
            assert!(looked.is_ok(), "{id}: {looked:?}");
        }
        for (id, ended) in self.payments.expire_authorizations([shard]).await.unwrap() {
            assert!(ended.is_ok(), "{id}: {ended:?}");
        }
    }

    /// Relays and delivers what is there of the order.
    pub async fn deliver_order(&self) {
        let id = self.order().await.payment_intent_id;
        let shard = cloud::item::shard_of(&id, SHARDS);
        payments::service::deliver_shard(&self.payments, shard)
            .await
            .unwrap();
    }

    pub async fn deliver(&self) {
        payments::service::deliver(&self.payments).await.unwrap();
    }

    /// What life does: time passes, the processor makes up its mind, reconcilers and deliverers come
    /// by, and every notice comes twice.
    pub async fn live(&self, rounds: usize) {
        for _ in 0..rounds {
            let order = self.payment_of("order").await;
            let rests = order.is_none_or(|order| order.open_transaction.is_none());
            if rests && self.processor.has_nothing_open() {
                return;
            }
            self.advance(ROUND);
            self.processor.decide_pending();
            for said in self.processor.take_notices() {
                self.notice(&said).await;
                self.notice(&said).await;
            }
            self.look_after().await;
        }
    }

    /// How many charges of this payment the processor has approved.
    pub fn charges(&self, payment_intent_id: &str) -> usize {
        let all = self.processor.authorizations();
        all.iter()
            .filter(|held| held.reference == payment_intent_id)
            .count()
    }

    /// Everything that must hold of a payment, however the story went, held against the processor's
    /// book. While a movement is open, only the processor knows.
    pub async fn invariants(&self, intent: &PaymentIntentState) -> Result<(), String> {
        let ensure = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };
        let beside = self.beside();
        let id = &intent.payment_intent_id;
        ensure(intent.is_sound(), format!("unsound: {intent:?}"))?;
        ensure(
            self.charges(id) <= 1,
            format!("charged {} times", self.charges(id)),
        )?;

        let all = beside.transactions_of(id).await.unwrap();
        let open: Vec<_> = all.iter().filter(|t| !t.status.is_terminal()).collect();
        let named: Vec<_> = intent.open_transaction.iter().collect();
        let found: Vec<_> = open.iter().map(|t| &t.transaction_id).collect();
        ensure(
            named == found,
            format!("the payment says {named:?} is open, the movements say {found:?}"),
        )?;
        let sum = |kind: Kind| -> i64 {
            let done = |status| {
                matches!(
                    status,
                    TransactionStatus::Authorized | TransactionStatus::Succeeded
                )
            };
            let done = all.iter().filter(|t| t.kind == kind && done(t.status));
            done.map(|t| t.amount).sum()
        };
        let taken = sum(Kind::Capture)
            + match intent.capture_method {
                CaptureMethod::Automatic => sum(Kind::Charge),
                CaptureMethod::Manual => 0,
            };
        let movements = (sum(Kind::Charge), taken, sum(Kind::Refund));
        let ours = (intent.authorized, intent.captured, intent.refunded);
        ensure(
            ours == movements,
            format!("the payment says {ours:?}, its movements {movements:?}"),
        )?;

        let entries = beside.ledger_of(id).await.unwrap();
        let side = |side| -> i64 {
            let those = entries.iter().filter(|entry| entry.side == side);
            those.map(|entry| entry.amount).sum()
        };
        ensure(
            side(Side::Debit) == side(Side::Credit),
            "debits and credits differ".to_owned(),
        )?;
        let receivable: i64 = entries
            .iter()
            .filter(|entry| entry.account == RECEIVABLE)
            .map(|entry| match entry.side {
                Side::Debit => entry.amount,
                Side::Credit => -entry.amount,
            })
            .sum();
        ensure(
            receivable == intent.captured - intent.refunded,
            format!("{receivable} is booked for {ours:?}"),
        )?;

        if open.is_empty() {
            let held = self.processor.authorizations();
            let mut theirs = (0, 0, 0);
            for held in held.iter().filter(|held| held.reference == *id) {
                theirs.0 += held.authorized;
                theirs.1 += held.captured;
                theirs.2 += held.refunded;
                let over = held.since + AUTHORIZATION_MS <= self.now();
                let gone = held.voided || over || held.captured == held.authorized;
                ensure(
                    gone || intent.capturable > 0,
                    format!("{:?} here, and still held there", intent.status),
                )?;
                ensure(
                    intent.capturable == 0 || !held.voided,
                    "let go there, and still to be taken here".to_owned(),
                )?;
            }
            ensure(
                ours == theirs,
                format!("we say {ours:?}, the processor says {theirs:?}"),
            )?;
        }
        self.history(intent).await
    }

    /// Events have no gap, the last one says what is, and what was terminal stayed so.
    async fn history(&self, intent: &PaymentIntentState) -> Result<(), String> {
        let beside = self.beside();
        let events = beside.events_of(&intent.payment_intent_id).await.unwrap();
        let numbers: Vec<_> = events.iter().map(|event| event.event_number).collect();
        let expected: Vec<_> = (1..=intent.version).collect();
        if numbers != expected {
            return Err(format!("the events are {numbers:?}"));
        }
        let told: Vec<EventView> = events
            .iter()
            .map(|event| serde_json::from_str(&event.payload).unwrap())
            .collect();
        if told.last().map(|last| &last.payment) != Some(&intent.view()) {
            return Err("the last event does not tell what is".to_owned());
        }
        for pair in told.windows(2) {
            let (before, after) = (&pair[0].payment, &pair[1].payment);
            let declared = payments::tables::MACHINES[0]
                .transitions
                .iter()
                .any(|step| {
                    (step.from, step.to)
                        == (
                            &before.status.to_string()[..],
                            &after.status.to_string()[..],
                        )
                });
            if before.status != after.status && !declared {
                return Err(format!("{} became {}", before.status, after.status));
            }
        }
        let mut all = beside
            .transactions_of(&intent.payment_intent_id)
            .await
            .unwrap();
        all.retain(|transaction| transaction.status.is_terminal());
        for transaction in all {
            let id = &transaction.transaction_id;
            let decisions = beside.decisions_of(id).await.unwrap();
            if let Some(odd) = decisions
                .iter()
                .find(|decision| decision.decision == Decided::Discrepancy)
            {
                return Err(format!("a discrepancy: {odd:?}"));
            }
        }
        Ok(())
    }

    /// The payment of `order` has come to rest, and everything agrees.
    pub async fn ends_well(&self) -> Result<IntentStatus, String> {
        let intent = self.order().await;
        self.invariants(&intent).await?;
        match &intent.open_transaction {
            None => Ok(intent.status),
            Some(open) => Err(format!("{open} has not ended: {:?}", intent.status)),
        }
    }

    /// Every event of a payment was delivered or given up, and first delivered in order.
    pub async fn told_everything(&self, intent: &PaymentIntentState) -> Result<(), String> {
        let id = &intent.payment_intent_id;
        let beside = self.beside();
        let mut given_up = Vec::new();
        let deliveries = beside.deliveries_of(id).await.unwrap();
        if deliveries.len() as u64 != intent.version {
            return Err(format!("{} deliveries", deliveries.len()));
        }
        for delivery in deliveries {
            match delivery.status {
                DeliveryStatus::Delivered => {}
                DeliveryStatus::Failed => given_up.push(delivery.event_number),
                other => return Err(format!("event {} is {other:?}", delivery.event_number)),
            }
        }
        let mut first = Vec::new();
        for event in self.merchant.received() {
            if event.payment.payment_intent_id == *id && !first.contains(&event.event_number) {
                first.push(event.event_number);
            }
        }
        let expected: Vec<u64> = (1..=intent.version)
            .filter(|number| !given_up.contains(number))
            .collect();
        if first != expected {
            return Err(format!("the merchant learned {first:?}, not {expected:?}"));
        }
        Ok(())
    }
}

/// Gives a signed notice to these payments.
pub async fn notice(payments: &Payments, said: &Said) -> Result<Recorded, PaymentsError> {
    let text = serde_json::to_string(said).unwrap();
    let signed = signature::sign(&[NOTICE_SECRET], &text, payments.cloud().now());
    payments.record_notice(&text, &signed).await
}

/// What a request came to, in a word.
pub fn word(outcome: &Result<Response, PaymentsError>) -> String {
    match outcome {
        Ok(response) => response.status.to_string(),
        Err(PaymentsError::InProgress { .. }) => "in progress".into(),
        Err(PaymentsError::Refused(_)) => "refused".into(),
        Err(other) => panic!("{other}"),
    }
}

pub fn approved(key: &str) -> Said {
    Said {
        key: key.to_owned(),
        decision: Decision::Approved,
        reason: None,
    }
}

pub fn mood(shop: &Shop, mood: Mood) {
    shop.processor.tell([mood]);
}
