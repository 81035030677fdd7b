//! Those who meet: requests, senders, reconcilers, notices, deliverers; each as an actor.

use super::*;
use chaos::Interleave;
use cloud::tap::{KillFrom, Plan, Request, Verdict};
use futures::future::BoxFuture;
use payments::begin_movement::Begun;
use payments::deliver_webhook::{DELIVERY_LEASE_MS, Delivered};
use payments::domain::Movement;
use payments::reconcile::Reconciled;
use std::sync::Arc;

/// A word for what a request came to, and its answer.
pub type Asked = (String, Option<Response>);

pub type Told = Vec<(&'static str, String)>;

pub fn label(told: &Told) -> String {
    let words: Vec<_> = told
        .iter()
        .map(|(name, word)| format!("{name} {word}"))
        .collect();
    words.join(", ")
}

/// After every order life goes on until nothing is open; then everything must agree.
pub async fn rested(shop: Arc<Shop>, told: Told) -> Result<String, String> {
    shop.live(4).await;
    let status = shop.ends_well().await?;
    Ok(format!("{}, {status:?}", label(&told)))
}

/// A shop where the processor takes the first order like this.
pub async fn in_mood(first: Mood) -> Shop {
    let shop = open().await;
    mood(&shop, first);
    shop
}

/// The same, where the first request has died after so many calls: 1 leaves it PENDING, 2 SENT and
/// not at the processor, 3 SENT and there.
pub async fn left_after(calls: u64, first: Mood) -> Shop {
    let shop = in_mood(first).await;
    let dying = KillFrom::call(calls + 1).of("dying");
    let plan = shop.cloud().tap().install(Arc::new(dying));
    cloud::as_actor("dying", shop.pay(&sale()))
        .await
        .unwrap_err();
    drop(plan);
    shop
}

/// A shop whose order the processor has taken and not decided.
pub async fn undecided() -> Shop {
    let shop = in_mood(Mood::Pending).await;
    assert_eq!(shop.pay(&sale()).await.unwrap().status, 202);
    shop
}

/// The ids of the order's payment and movement, read beside the tap.
pub async fn ids(shop: &Shop) -> (String, String) {
    let order = shop.order().await;
    (order.payment_intent_id, order.open_transaction.unwrap())
}

/// Drives the order's movement on, as whoever has its key would.
pub async fn send(shop: Arc<Shop>) -> String {
    let (intent, transaction) = ids(&shop).await;
    let payments = &shop.payments;
    let read = payments.read_movement(&intent, &transaction).await.unwrap();
    let (_, ended) = payments.drive(read.0, read.1).await.unwrap();
    match ended.status {
        TransactionStatus::Authorized => "charged".into(),
        TransactionStatus::Failed => "failed".into(),
        TransactionStatus::PendingNetworkResult => "unknown".into(),
        other => format!("{other:?}"),
    }
}

/// The reconciler, for whom it is time.
pub async fn reconcile(shop: Arc<Shop>) -> String {
    let (intent, transaction) = ids(&shop).await;
    let looked = shop.ahead(ROUND).reconcile(&intent, &transaction).await;
    match looked.unwrap() {
        Reconciled::Settled(decided) => format!("{decided:?}"),
        other => format!("{other:?}"),
    }
}

pub async fn told_once(shop: Arc<Shop>) -> String {
    let (_, transaction) = ids(&shop).await;
    let said = approved(&format!("{transaction}-1"));
    match notice(&shop.payments, &said).await {
        Ok(recorded) => format!("{recorded:?}"),
        Err(error) => panic!("{error}"),
    }
}

/// Loses the processor's answer to whoever is called `sender`.
pub struct Unanswered;

impl Plan for Unanswered {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let lost = *request.actor == *"sender" && request.shape() == "POST processor.test/orders";
        Box::pin(async move {
            match lost {
                true => Verdict::LoseAnswer,
                false => Verdict::Pass,
            }
        })
    }
}

/// Two requests with one key, the second with a clock that is ahead. Those that are answered are
/// answered alike, byte for byte.
pub fn twins(first: Mood, ahead: i64) -> Interleave<Shop, Asked> {
    let actors = Interleave::of(move || in_mood(first))
        .actor("one", |shop: Arc<Shop>| async move {
            let said = shop.pay(&sale()).await;
            (word(&said), said.ok())
        })
        .actor("two", move |shop: Arc<Shop>| async move {
            let two = shop.ahead(ahead);
            let said = two.create_payment(&key("order"), &sale()).await;
            (word(&said), said.ok())
        });
    actors.check(|shop, told: Vec<(&'static str, Asked)>| async move {
        let answers: Vec<_> = told
            .iter()
            .filter_map(|(_, (_, said))| said.clone())
            .collect();
        match &answers[..] {
            [] => return Err("nobody was answered".into()),
            [one, other] if one != other => {
                return Err(format!("{one:?} is not {other:?}"));
            }
            _ => {}
        }
        let told = told.into_iter().map(|(name, (word, _))| (name, word));
        rested(shop, told.collect()).await
    })
}

/// A refund whose worker is gone, and two who go on with it.
pub fn heirs() -> Interleave<Shop, String> {
    let abandoned = || async {
        let shop = with(sale()).await;
        let id = shop.order().await.payment_intent_id;
        let all = Movement::Refund { amount: None };
        let key = key("refund");
        drop(shop.payments.begin(&key, &id, &all).await.unwrap());
        shop
    };
    let takes_over = |shop: Arc<Shop>| async move {
        let id = shop.order().await.payment_intent_id;
        let all = Movement::Refund { amount: None };
        match shop
            .ahead(LEASE_OVER)
            .begin(&key("refund"), &id, &all)
            .await
        {
            Ok(_) => "took it over".to_owned(),
            Err(PaymentsError::InProgress { .. }) => "in progress".into(),
            Err(other) => panic!("{other}"),
        }
    };
    let actors = Interleave::of(abandoned)
        .actor("one", takes_over)
        .actor("other", takes_over);
    actors.check(|shop: Arc<Shop>, told: Told| async move {
        let have = told.iter().filter(|(_, word)| word == "took it over");
        match have.count() {
            1 => rested(shop, told).await,
            count => Err(format!("{count} have the lease")),
        }
    })
}

pub fn began(begun: &Result<Begun<'_>, PaymentsError>) -> String {
    match begun {
        Ok(_) => "began".into(),
        Err(PaymentsError::Refused(_)) => "refused".into(),
        Err(other) => panic!("{other}"),
    }
}

/// Begins a movement under a key of its own.
pub async fn begin(payments: Payments, name: &str, id: &str, movement: Movement) -> String {
    let key = key(name);
    began(&payments.begin(&key, id, &movement).await)
}

/// Two merchants' wishes for one payment that is held: one begins, and life finishes it.
pub fn wishes(one: Movement, other: Movement) -> Interleave<Shop, String> {
    let begins = |name: &'static str, movement: Movement| {
        move |shop: Arc<Shop>| {
            let movement = movement.clone();
            async move {
                let id = shop.order().await.payment_intent_id;
                begin(shop.payments.clone(), name, &id, movement).await
            }
        }
    };
    let actors = Interleave::of(|| with(hold()))
        .actor("one", begins("one", one))
        .actor("other", begins("other", other));
    actors.check(|shop: Arc<Shop>, told: Told| async move {
        let begun = told.iter().filter(|(_, word)| word == "began").count();
        if begun != 1 {
            return Err(format!("{begun} began"));
        }
        rested(shop, told).await
    })
}

/// One payment whose events have deliveries.
pub async fn to_be_told() -> Shop {
    let shop = with(sale()).await;
    let id = shop.order().await.payment_intent_id;
    let shard = cloud::item::shard_of(&id, payments::tables::SHARDS);
    shop.payments.relay_events([shard]).await.unwrap();
    shop
}

pub async fn tell(shop: Arc<Shop>, number: u64, ahead: i64) -> String {
    let id = shop.order().await.payment_intent_id;
    let told = shop.ahead(ahead).deliver(&id, number).await.unwrap();
    match told {
        Delivered::Delivered => "delivered".into(),
        other => format!("{other:?}"),
    }
}

pub async fn all_told(shop: Arc<Shop>, told: Told) -> Result<String, String> {
    shop.advance(2 * DELIVERY_LEASE_MS);
    shop.deliver_order().await;
    shop.told_everything(&shop.order().await).await?;
    Ok(label(&told))
}

/// Two reconcilers, one of which asked before the processor decided and writes it down late.
pub fn one_knows_more() -> Interleave<Shop, String> {
    let actors = Interleave::of(|| async {
        let shop = undecided().await;
        shop.processor.decide_pending();
        shop.processor.take_notices();
        shop
    })
    .actor("before", reconcile)
    .actor("after", reconcile)
    .under(|| Arc::new(StillPending));
    actors.check(|shop: Arc<Shop>, told: Told| async move {
        let order = shop.order().await.payment_intent_id;
        let all = shop.beside().transactions_of(&order).await.unwrap();
        let id = all[0].transaction_id.clone();
        let written = shop.beside().decisions_of(&id).await.unwrap().len();
        let decided = told
            .iter()
            .filter(|(_, word)| word != "Overtaken" && word != "Nothing");
        match decided.count() == written {
            true => rested(shop, told).await,
            false => Err(format!("{told:?}, and {written} written down")),
        }
    })
}

/// Who is called `before` is told that nothing is decided.
pub struct StillPending;

impl Plan for StillPending {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let asked = *request.actor == *"before" && request.operation == "GET";
        let key = request.targets[0].resource.rsplit('/').next();
        let body = serde_json::json!({"key": key, "decision": "PENDING"});
        Box::pin(async move {
            match asked {
                true => Verdict::Answer { status: 202, body },
                false => Verdict::Pass,
            }
        })
    }
}
