//! The story: every action of the documents, run for real, with what it costs.

use crate::api::SERVE;
use crate::deliver_webhook::Delivered;
use crate::domain::{
    AUTHORIZATION_MS, CaptureMethod, IntentStatus, LEASE_MS, Movement, Outcome, STALLED_MS, Source,
};
use crate::idempotency::Key;
use crate::ledger::Side;
use crate::merchant::MERCHANT;
use crate::processor::NOTICE_SECRET;
use crate::processor_client::{Answer, Said};
use crate::reconcile::{Decided, Reconciled};
use crate::record_response::Recorded;
use crate::sandbox::Sandbox;
use crate::simulate::SIMULATE;
use crate::tables::{ACTIONS, MACHINES, SHARDS, TABLES};
use crate::view_payment::PaymentView;
use crate::{NewPayment, Payments, PaymentsError, Response, signature};
use anyhow::{Context, Result, bail, ensure};
use cloud::Millis;
use cloud::item::shard_of;
use cloud::tap::KillFrom;
use std::sync::Arc;
use std::time::Duration;
use walkthrough::{Archetype, BoxFuture, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "payments",
        title: "Payments: critical transaction process",
        question: "How is a card never charged twice, and never not at all?",
        tables: TABLES,
        resources: &[],
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)) as BoxFuture<'_, Result<()>>,
        commands: &[SERVE, MERCHANT, SIMULATE],
    }
}

/// A busy day, for each payment: most go well at once, and three events are told of each.
const WORKLOAD: Workload = Workload {
    unit: "payments",
    mix: &[
        share("create payment intent", 1.0).when("charged or declined"),
        share("emit event", 1.0),
        share("deliver webhook", 3.0).when("its turn"),
        share("view payment status", 2.0),
        share("retry payment request", 0.05).when("answered before, or running"),
        share("mark uncertain outcome", 0.01),
        share("reconcile payment", 0.01).when("the processor knows"),
        share("move money", 0.1).when("capture, void or refund"),
    ],
    skew: &[
        Skew {
            resource: "transactions/open",
            action: "",
            hottest: 0.125,
            why: "eight keys for all that is open",
        },
        Skew {
            resource: "payment_events/outbox",
            action: "",
            hottest: 0.125,
            why: "eight keys for the whole outbox",
        },
        Skew {
            resource: "webhook_deliveries/due",
            action: "",
            hottest: 0.125,
            why: "eight keys for all that is to be sent",
        },
    ],
    kept_days: 365,
};

fn key(name: &str) -> Key {
    Key::new("shop", name)
}

fn request(amount: i64, card: &str) -> Result<NewPayment> {
    let currency = "EUR".to_owned().try_into();
    Ok(NewPayment {
        amount,
        currency: currency.map_err(anyhow::Error::msg)?,
        card: card.to_owned(),
        capture_method: CaptureMethod::Automatic,
    })
}

fn hold(amount: i64) -> Result<NewPayment> {
    Ok(NewPayment {
        capture_method: CaptureMethod::Manual,
        ..request(amount, "card-ok")?
    })
}

/// The payment that an answer is about.
fn paid(response: &Response) -> Result<PaymentView> {
    let body: serde_json::Value = serde_json::from_str(&response.body)?;
    Ok(serde_json::from_value(body["payment"].clone())?)
}

fn shard(id: &str) -> [u32; 1] {
    [shard_of(id, SHARDS)]
}

/// A request whose process dies after so many calls.
async fn dies_after(world: &Sandbox, calls: u64, name: &str, request: &NewPayment) -> Result<()> {
    let dying = KillFrom::call(calls + 1).of("dying");
    let _plan = world.payments.cloud().tap().install(Arc::new(dying));
    let paying = world.payments.create_payment(&key(name), request).await;
    ensure!(paying.is_err(), "it lived");
    Ok(())
}

async fn dying(world: &Sandbox, calls: u64, name: &str, request: &NewPayment) -> Result<()> {
    cloud::as_actor("dying", dies_after(world, calls, name, request)).await
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    let world = Sandbox::open(cloud).await?;
    // Each part in a box of its own: together they would be a large future, and tests have small
    // stacks.
    let paid = Box::pin(charged(story, &world)).await?;
    Box::pin(told(story, &world, &paid)).await?;
    Box::pin(declined(story, &world)).await?;
    Box::pin(slow_motion(story, &world)).await?;
    Box::pin(nobody_knows(story, &world)).await?;
    Box::pin(takes_its_time(story, &world)).await?;
    Box::pin(somebody_dies(story, &world)).await?;
    Box::pin(hold_take_give_back(story, &world)).await?;
    Box::pin(two_books(story, &world)).await
}

impl Sandbox {
    fn later(&self, ms: Millis) {
        let clock = self.payments.cloud().clock();
        clock.advance(Duration::from_millis(ms as u64));
    }
}

/// Gives the payment's id.
async fn charged(story: &mut Story, world: &Sandbox) -> Result<String> {
    let payments = &world.payments;
    story.section(
        "A card is charged",
        "A shop asks for 19.99 EUR, with a key of its own for this order. The processor is a server \
         outside, with its own book: what really happened to the money is there.",
    );
    let order = request(19_99, "card-ok")?;
    let first = story
        .step(
            "create payment intent",
            "Key, payment, charge and event are written together, before anybody is asked. Then the \
             attempt is written down, sent, and its outcome recorded with the ledger; last, the answer \
             is kept under the key.",
            async { Ok(payments.create_payment(&key("order-17"), &order).await?) },
        )
        .await?;
    let payment = paid(&first)?;
    let id = payment.payment_intent_id.clone();
    story.check(
        payment.status == IntentStatus::Succeeded && payment.captured == 19_99,
        "19.99 EUR are taken",
    )?;
    let again = story
        .step(
            "retry payment request",
            "The answer got lost, so the shop asks again with the same key. The same transaction is \
             refused by its guard, and the refusal brings the first answer.",
            async { Ok(payments.create_payment(&key("order-17"), &order).await?) },
        )
        .await?;
    story.check(again == first, "it is the first answer, byte for byte")?;
    let other = request(29_99, "card-ok")?;
    let reused = story
        .step(
            "record idempotency key",
            "The same key with another amount is a mistake of the shop's, and is told so.",
            async { Ok(payments.create_payment(&key("order-17"), &other).await) },
        )
        .await?;
    story.check(
        matches!(reused, Err(PaymentsError::KeyReused(_))),
        "a key stands for one request",
    )?;
    story
        .step("view payment status", "One consistent read.", async {
            Ok(payments.view_payment(&id).await?)
        })
        .await?;
    story.check(
        world.processor.authorizations().len() == 1,
        "the processor's book has one charge",
    )?;
    Ok(id)
}

async fn told(story: &mut Story, world: &Sandbox, id: &str) -> Result<()> {
    let payments = &world.payments;
    story.section(
        "The shop is told",
        "Every change of a payment was written with its event. The relay makes a delivery of each; the \
         deliverer sends them signed, in order.",
    );
    story
        .step(
            "emit event",
            "Created, processing, succeeded: three events, three deliveries. Having one takes an event \
             out of the outbox.",
            async { Ok(payments.relay_events(shard(id)).await?) },
        )
        .await?;
    let early = story
        .step(
            "deliver webhook",
            "The second event, before the first has arrived.",
            async { Ok(payments.deliver(id, 2).await?) },
        )
        .await?;
    story.check(early == Delivered::Waiting, "it waits for its turn")?;
    for number in 1..=3 {
        let told = story
            .step(
                "deliver webhook",
                "A lease, the message, and how it went.",
                async { Ok(payments.deliver(id, number).await?) },
            )
            .await?;
        ensure!(told == Delivered::Delivered, "{told:?}");
    }
    let received = world.merchant.received();
    let numbers: Vec<_> = received.iter().map(|event| event.event_number).collect();
    story.check(
        numbers == [1, 2, 3] && world.merchant.refused() == 0,
        "the shop has them in order, each with a good signature",
    )?;
    Ok(())
}

async fn declined(story: &mut Story, world: &Sandbox) -> Result<()> {
    let payments = &world.payments;
    story.section(
        "A card is declined, and another is tried",
        "A declined card is an answer like any other. The payment stays, and a second charge of it is a \
         movement of its own, with a key of its own.",
    );
    let declined = request(50_00, "card-declined")?;
    let said = story
        .step(
            "create payment intent",
            "The card is declined: nothing is booked, and the payment is RETRYABLE.",
            async { Ok(payments.create_payment(&key("order-18"), &declined).await?) },
        )
        .await?;
    let second = paid(&said)?;
    story.check(
        said.status == 402 && second.status == IntentStatus::Retryable,
        "402, and another card may be tried",
    )?;
    let another = Movement::Charge {
        card: "card-ok".into(),
    };
    let id = second.payment_intent_id;
    let charged = story
        .step(
            "start charge attempt",
            "Another card, under another key. What is open is named on the payment, so no second \
             movement begins beside this one.",
            async {
                let key = key("order-18-again");
                Ok(payments.move_money(&key, &id, &another).await?)
            },
        )
        .await?;
    story.check(
        paid(&charged)?.status == IntentStatus::Succeeded,
        "the second card was charged",
    )?;
    Ok(())
}

async fn slow_motion(story: &mut Story, world: &Sandbox) -> Result<()> {
    let payments = &world.payments;
    let beside = world.beside();
    story.section(
        "Step by step",
        "The same once more in slow motion, as whoever goes on with a movement does it: here its first \
         worker died right after writing it down.",
    );
    dying(world, 1, "order-19", &request(12_00, "card-ok")?).await?;
    let left = beside.read_key(&key("order-19")).await?;
    let left = left.context("the key is there")?;
    let (intent, pending) = beside
        .read_movement(&left.payment_intent_id, &left.transaction_id)
        .await?;
    let marked = story
        .step(
            "mark processing",
            "SENT stands in the table before anything is sent: whoever dies now leaves something to \
             ask about.",
            async { Ok(payments.mark_processing(&intent, &pending).await?) },
        )
        .await?;
    let (intent, sent) = marked.context("nobody else moved it")?;
    let answer = story
        .step(
            "send authorization",
            "The attempt is the processor's idempotency key. Sent twice, it is one charge.",
            async { Ok(payments.send_authorization(&sent).await) },
        )
        .await?;
    story.check(answer == Answer::Decided(Outcome::Approved), "approved")?;
    story
        .step(
            "record response",
            "Movement, attempt, payment, ledger and event: all of it, or none.",
            async {
                let outcome = Outcome::Approved;
                Ok(payments
                    .record(&intent, &sent, &outcome, Source::Response)
                    .await?)
            },
        )
        .await?;
    Ok(())
}

async fn nobody_knows(story: &mut Story, world: &Sandbox) -> Result<()> {
    let payments = &world.payments;
    let beside = world.beside();
    story.section(
        "Nobody knows",
        "The connection is cut. The card may be charged or not, and both guesses cost somebody money. So \
         not knowing is a state, and the processor is asked.",
    );
    let unanswered = story
        .step(
            "mark uncertain outcome",
            "Charged, and the answer is cut off. The shop is told 202: accepted, outcome unknown.",
            async {
                let request = request(19_99, "card-cut-after")?;
                Ok(payments.create_payment(&key("order-20"), &request).await?)
            },
        )
        .await?;
    let unknown = paid(&unanswered)?;
    story.check(
        unknown.status == IntentStatus::RequiresReconciliation,
        "unknown is what it says",
    )?;
    world.later(5_000);
    let found = story
        .step(
            "reconcile payment",
            "Five seconds later the reconciler asks. The processor knows the attempt.",
            async {
                Ok(payments
                    .reconcile_due(shard(&unknown.payment_intent_id))
                    .await?)
            },
        )
        .await?;
    settled(&found, Decided::Approved)?;
    story.check(
        beside
            .view_payment(&unknown.payment_intent_id)
            .await?
            .status
            == IntentStatus::Succeeded,
        "it was charged, once, and now we know",
    )?;
    let unsent = story
        .step(
            "mark uncertain outcome",
            "The same, but the connection was cut before the processor had it. It looks no different.",
            async {
                let request = request(19_99, "card-cut-before")?;
                Ok(payments.create_payment(&key("order-21"), &request).await?)
            },
        )
        .await?;
    world.later(5_000);
    let id = paid(&unsent)?.payment_intent_id;
    let found = story
        .step(
            "reconcile payment",
            "The processor has never heard of it. That may still change: the request may be on its way. \
             So the key is closed there first, and only then is it called failed.",
            async { Ok(payments.reconcile_due(shard(&id)).await?) },
        )
        .await?;
    settled(&found, Decided::NeverArrived)?;
    story.check(
        beside.view_payment(&id).await?.status == IntentStatus::Retryable,
        "not charged, and it never will be: another card may be tried",
    )?;
    Ok(())
}

async fn takes_its_time(story: &mut Story, world: &Sandbox) -> Result<()> {
    let payments = &world.payments;
    story.section(
        "The processor takes its time",
        "It takes the order and decides later. The notice, the reconciler and a late answer may come in \
         any order, and often: the first decides, the others find it decided.",
    );
    let pending = story
        .step("mark uncertain outcome", "Accepted, not decided.", async {
            let request = request(7_50, "card-pending")?;
            Ok(payments.create_payment(&key("order-22"), &request).await?)
        })
        .await?;
    let id = paid(&pending)?.payment_intent_id;
    world.later(5_000);
    let found = story
        .step(
            "reconcile payment",
            "Nobody can tell yet. The decision to wait is written down too, and the pause doubles.",
            async { Ok(payments.reconcile_due(shard(&id)).await?) },
        )
        .await?;
    ensure!(
        matches!(found[..], [(_, Ok(Reconciled::Waiting))]),
        "{found:?}"
    );
    world.processor.decide_pending();
    let notices = world.processor.take_notices();
    let [notice] = &notices[..] else {
        bail!("the processor has {} notices", notices.len());
    };
    let recorded = story
        .step(
            "record response",
            "The processor's notice: signed, and looked up by the attempt it names.",
            async { noticed(payments, notice).await },
        )
        .await?;
    story.check(recorded == Recorded::Settled, "the notice decides it")?;
    let recorded = story
        .step("record response", "And once more, as notices do.", async {
            noticed(payments, notice).await
        })
        .await?;
    story.check(recorded == Recorded::Known, "nothing moves twice")?;
    Ok(())
}

async fn somebody_dies(story: &mut Story, world: &Sandbox) -> Result<()> {
    let payments = &world.payments;
    let beside = world.beside();
    story.section(
        "Somebody dies",
        "A process may die between any two calls. Whoever comes next finds out how far it got.",
    );
    let order = request(30_00, "card-ok")?;
    dying(world, 3, "order-23", &order).await?;
    world.later(LEASE_MS);
    let resumed = story
        .step(
            "retry payment request",
            "The first request died after the processor had charged. Its lease is over; this one takes \
             the key over, sends the same attempt again, and the processor answers as it did.",
            async { Ok(payments.create_payment(&key("order-23"), &order).await?) },
        )
        .await?;
    let id = paid(&resumed)?.payment_intent_id;
    let booked = world.processor.authorizations();
    let charges = booked.iter().filter(|held| held.reference == id).count();
    story.check(
        resumed.status == 200 && charges == 1,
        "charged once, though sent twice",
    )?;
    dying(world, 1, "order-24", &order).await?;
    let left = beside.read_key(&key("order-24")).await?;
    let left = left.context("the key is there")?;
    world.later(STALLED_MS);
    let found = story
        .step(
            "reconcile payment",
            "This one died before it had sent anything, and its client never came back.",
            async {
                Ok(payments
                    .reconcile_due(shard(&left.payment_intent_id))
                    .await?)
            },
        )
        .await?;
    settled(&found, Decided::Abandoned)?;
    let away = story
        .step(
            "create payment intent",
            "A processor that is not there: each attempt is closed there before the next begins, for \
             somebody else may have sent the same one. After three it has failed.",
            async {
                let request = request(9_99, "card-down")?;
                Ok(payments.create_payment(&key("order-25"), &request).await?)
            },
        )
        .await?;
    story.check(away.status == 402, "not charged, and known not to be")?;
    Ok(())
}

async fn hold_take_give_back(story: &mut Story, world: &Sandbox) -> Result<()> {
    let payments = &world.payments;
    let beside = world.beside();
    story.section(
        "Hold, take, give back",
        "100.00 EUR are held; 60.00 are taken, 20.00 given back, and the rest is let go.",
    );
    let held = payments
        .create_payment(&key("order-26"), &hold(100_00)?)
        .await?;
    let id = paid(&held)?.payment_intent_id;
    let moves = |name: &'static str, movement: Movement| {
        let id = id.clone();
        async move { payments.move_money(&key(name), &id, &movement).await }
    };
    let part = |amount| Some(amount);
    story
        .step("move money", "Capture 60.00 of it.", async {
            let amount = part(60_00);
            Ok(moves("capture", Movement::Capture { amount }).await?)
        })
        .await?;
    let refused = story
        .step("move money", "Capture another 60.00.", async {
            let amount = part(60_00);
            Ok(moves("more", Movement::Capture { amount }).await)
        })
        .await?;
    story.check(
        matches!(refused, Err(PaymentsError::Refused(_))),
        "refused before anything is written: 40.00 are left",
    )?;
    story
        .step("move money", "Give 20.00 back.", async {
            let amount = part(20_00);
            Ok(moves("refund", Movement::Refund { amount }).await?)
        })
        .await?;
    let voided = story
        .step("move money", "Let go of the other 40.00.", async {
            Ok(moves("void", Movement::Void).await?)
        })
        .await?;
    let payment = paid(&voided)?;
    story.check(
        payment.status == IntentStatus::Succeeded
            && (payment.authorized, payment.captured, payment.refunded) == (100_00, 60_00, 20_00),
        "refunded ≤ captured ≤ authorized",
    )?;
    let entries = beside.ledger_of(&id).await?;
    let side = |side| -> i64 {
        let those = entries.iter().filter(|entry| entry.side == side);
        those.map(|entry| entry.amount).sum()
    };
    story.check(
        entries.len() == 4 && side(Side::Debit) == side(Side::Credit),
        "debits equal credits",
    )?;
    let held = payments
        .create_payment(&key("order-27"), &hold(80_00)?)
        .await?;
    let id = paid(&held)?.payment_intent_id;
    world.later(AUTHORIZATION_MS);
    let ended = story
        .step(
            "expire authorization",
            "Another 80.00 were held, and nobody took them for a week.",
            async { Ok(payments.expire_authorizations(shard(&id)).await?) },
        )
        .await?;
    let expired = matches!(&ended[..], [(_, Ok(intent))] if intent.status == IntentStatus::Expired);
    story.check(expired, "let go at the processor, and EXPIRED")?;
    Ok(())
}

async fn two_books(story: &mut Story, world: &Sandbox) -> Result<()> {
    let beside = world.beside();
    story.section(
        "The two books",
        "Ours and the processor's were written by two programs that lost each other's messages. They agree.",
    );
    let theirs = world.processor.authorizations();
    for held in &theirs {
        let ours = beside.view_payment(&held.reference).await?;
        let agree = (ours.authorized, ours.captured, ours.refunded)
            == (held.authorized, held.captured, held.refunded);
        ensure!(agree, "{ours:?} is not {held:?}");
    }
    let mut references: Vec<_> = theirs.iter().map(|held| &held.reference).collect();
    references.sort();
    references.dedup();
    story.check(
        references.len() == theirs.len(),
        "no payment was charged twice, and every amount is the same in both",
    )?;
    Ok(())
}

fn settled(found: &[(String, Result<Reconciled, PaymentsError>)], decided: Decided) -> Result<()> {
    match found {
        [(_, Ok(Reconciled::Settled(found)))] if *found == decided => Ok(()),
        other => bail!("the story expected {decided:?}: {other:?}"),
    }
}

async fn noticed(payments: &Payments, said: &Said) -> Result<Recorded> {
    let text = serde_json::to_string(said)?;
    let signed = signature::sign(&[NOTICE_SECRET], &text, payments.cloud().now());
    Ok(payments.record_notice(&text, &signed).await?)
}
