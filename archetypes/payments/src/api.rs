//! A small JSON API, for curl: `cargo run -p payments -- serve`.
//!
//! `app` returns the router and the tests call it. Every POST of a merchant carries `Merchant-Id` and
//! `Idempotency-Key`. Refusals are those of `serving`; a request that is still running is a 409 with
//! `Retry-After`, a key that came with another request a 422, a card that was declined a 402, and an
//! outcome that nobody knows yet a 202.

use crate::domain::Movement;
use crate::idempotency::Key;
use crate::money::Amount;
use crate::processor::{NOTICE_SECRET, Processor};
use crate::record_response::Recorded;
use crate::service::{Settings, run_until, send_notices_until};
use crate::tables::SHARDS;
use crate::view_payment::PaymentView;
use crate::{NewPayment, Payments, PaymentsError, ProcessorClient, Response, signature};
use anyhow::Context;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response as HttpResponse};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{Arg, ArgMatches, Command};
use cloud::Cloud;
use reqwest::Url;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serving::{Body, Refusal, body, interrupted, listen, listen_arg, with_fallbacks};
use std::future::Future;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The router.
pub fn app(payments: Payments) -> Router {
    let router = Router::new()
        .route("/payment_intents", post(create))
        .route("/payment_intents/{id}", get(view))
        .route("/payment_intents/{id}/events", get(events))
        .route("/payment_intents/{id}/ledger", get(ledger))
        .route("/payment_intents/{id}/charge", post(charge))
        .route("/payment_intents/{id}/capture", post(capture))
        .route("/payment_intents/{id}/cancel", post(cancel))
        .route("/payment_intents/{id}/refund", post(refund))
        .route("/webhooks/given_up", get(given_up))
        .route("/webhooks/{id}/{number}/replay", post(replay))
        .route("/processor/notices", post(notice))
        .with_state(payments);
    with_fallbacks(router)
}

/// A refusal, with `Retry-After` where waiting helps.
struct Refused(Refusal, Option<i64>);

impl IntoResponse for Refused {
    fn into_response(self) -> HttpResponse {
        let after = self.1.map(|ms| ms.div_euclid(1_000) + 1);
        match after {
            Some(seconds) => ([("retry-after", seconds.to_string())], self.0).into_response(),
            None => self.0.into_response(),
        }
    }
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal, None)
    }
}

impl From<PaymentsError> for Refused {
    fn from(error: PaymentsError) -> Self {
        let mut after = None;
        let status = match &error {
            PaymentsError::BadInput(_) => StatusCode::BAD_REQUEST,
            PaymentsError::UnknownPayment(_)
            | PaymentsError::UnknownMerchant(_)
            | PaymentsError::UnknownAttempt(_)
            | PaymentsError::NotGivenUp(..) => StatusCode::NOT_FOUND,
            PaymentsError::Refused(_) => StatusCode::CONFLICT,
            PaymentsError::InProgress { retry_after_ms, .. } => {
                after = Some(*retry_after_ms);
                StatusCode::CONFLICT
            }
            PaymentsError::KeyReused(_) => StatusCode::UNPROCESSABLE_ENTITY,
            PaymentsError::NotSigned(_) => StatusCode::UNAUTHORIZED,
            PaymentsError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            PaymentsError::Fault(fault) => return Refusal::from(fault).into(),
        };
        Self(Refusal::new(status, error.to_string()), after)
    }
}

/// The answer that is kept under the key, as it is kept.
impl IntoResponse for Response {
    fn into_response(self) -> HttpResponse {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::OK);
        (status, [("content-type", "application/json")], self.body).into_response()
    }
}

fn header(headers: &HeaderMap, name: &str) -> Result<String, Refusal> {
    let value = headers.get(name).and_then(|value| value.to_str().ok());
    value
        .map(str::to_owned)
        .ok_or_else(|| Refusal::bad_request(format!("the header {name} is missing")))
}

fn key(headers: &HeaderMap) -> Result<Key, Refusal> {
    Ok(Key {
        merchant_id: header(headers, "Merchant-Id")?,
        key: header(headers, "Idempotency-Key")?,
    })
}

async fn create(
    State(payments): State<Payments>,
    headers: HeaderMap,
    given: Body<NewPayment>,
) -> Result<Response, Refused> {
    Ok(payments
        .create_payment(&key(&headers)?, &body(given)?)
        .await?)
}

async fn moved(
    payments: &Payments,
    headers: &HeaderMap,
    id: &str,
    movement: Movement,
) -> Result<Response, Refused> {
    Ok(payments.move_money(&key(headers)?, id, &movement).await?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CardBody {
    card: String,
}

async fn charge(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Body<CardBody>,
) -> Result<Response, Refused> {
    let card = body(given)?.card;
    moved(&payments, &headers, &id, Movement::Charge { card }).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AmountBody {
    amount: Option<Amount>,
}

async fn capture(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Body<AmountBody>,
) -> Result<Response, Refused> {
    let amount = body(given)?.amount;
    moved(&payments, &headers, &id, Movement::Capture { amount }).await
}

async fn cancel(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refused> {
    moved(&payments, &headers, &id, Movement::Void).await
}

async fn refund(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
    given: Body<AmountBody>,
) -> Result<Response, Refused> {
    let amount = body(given)?.amount;
    moved(&payments, &headers, &id, Movement::Refund { amount }).await
}

/// The payment, for its merchant. Others learn nothing, not even that it is there.
async fn own(payments: &Payments, headers: &HeaderMap, id: &str) -> Result<PaymentView, Refused> {
    let merchant = header(headers, "Merchant-Id")?;
    let intent = payments.read_intent(id).await?;
    if intent.merchant_id != merchant {
        return Err(PaymentsError::UnknownPayment(id.to_owned()).into());
    }
    Ok(intent.view())
}

async fn view(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<PaymentView>, Refused> {
    Ok(Json(own(&payments, &headers, &id).await?))
}

async fn events(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Vec<Value>>, Refused> {
    own(&payments, &headers, &id).await?;
    let events = payments.events_of(&id).await.map_err(PaymentsError::from)?;
    let told = events.iter().map(|event| {
        json!({"event_number": event.event_number, "kind": event.kind, "created_at": event.created_at})
    });
    Ok(Json(told.collect()))
}

async fn ledger(
    State(payments): State<Payments>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Json<Vec<crate::ledger::LedgerEntryState>>, Refused> {
    own(&payments, &headers, &id).await?;
    let entries = payments.ledger_of(&id).await;
    Ok(Json(entries.map_err(PaymentsError::from)?))
}

#[derive(Serialize)]
struct GivenUp {
    payment_intent_id: String,
    event_number: u64,
}

/// For who runs this, and not for merchants.
async fn given_up(State(payments): State<Payments>) -> Result<Json<Vec<GivenUp>>, Refused> {
    let mut all = Vec::new();
    for shard in 0..SHARDS {
        let found = payments.given_up(shard).await;
        let found = found.map_err(PaymentsError::from)?.into_iter();
        all.extend(found.map(|(payment_intent_id, event_number)| GivenUp {
            payment_intent_id,
            event_number,
        }));
    }
    Ok(Json(all))
}

async fn replay(
    State(payments): State<Payments>,
    Path((id, number)): Path<(String, u64)>,
) -> Result<StatusCode, Refused> {
    payments.replay(&id, number).await?;
    Ok(StatusCode::ACCEPTED)
}

async fn notice(
    State(payments): State<Payments>,
    headers: HeaderMap,
    text: String,
) -> Result<Json<Value>, Refused> {
    let signed = header(&headers, signature::HEADER)?;
    let recorded = payments.record_notice(&text, &signed).await?;
    let word = match recorded {
        Recorded::Settled => "settled",
        Recorded::Known => "known",
        Recorded::Nothing => "nothing",
        Recorded::Discrepancy => "discrepancy",
    };
    Ok(Json(json!({"recorded": word})))
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the JSON API with a sandbox processor, reconcile and deliver, until Ctrl-C",
    args: serve_args,
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

fn serve_args(command: Command) -> Command {
    command
        .arg(listen_arg())
        .arg(
            Arg::new("merchant")
                .long("merchant")
                .value_name("ID")
                .default_value("shop")
                .help("The merchant that --webhook is for"),
        )
        .arg(
            Arg::new("webhook")
                .long("webhook")
                .value_name("URL")
                .default_value("http://127.0.0.1:9090/webhooks")
                .help("Where that merchant listens: see the merchant command"),
        )
        .arg(
            Arg::new("secret")
                .long("secret")
                .value_name("TEXT")
                .default_value("whsec_demo")
                .help("What its webhooks are signed with"),
        )
}

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let of = |name: &str| args.get_one::<String>(name).cloned().unwrap_or_default();
    let (merchant, webhook, secret) = (of("merchant"), of("webhook"), of("secret"));
    let outside = TcpListener::bind("127.0.0.1:0").await?;
    let processor = Processor::new(cloud.clock().clone());
    let address = outside.local_addr()?;
    let base = Url::parse(&format!("http://{address}")).context("its own address")?;
    let client = || reqwest::Client::builder().no_proxy();
    let to = ProcessorClient::new(&cloud, client(), base, NOTICE_SECRET)?;
    let payments = Payments::new(cloud, to, client())?;
    payments.set_endpoint(&merchant, &webhook, &secret).await?;
    // On a store that was kept, the merchant may have had another one.
    payments
        .rotate_secret(&merchant, &secret, 86_400_000)
        .await?;
    let listener = listen(&args).await?;
    println!("the sandbox processor is on http://{address}");
    serve_until(payments, processor, outside, listener, interrupted()).await
}

/// Serves until told to stop, with the processor, the reconciler and the deliverer beside it.
pub async fn serve_until(
    payments: Payments,
    processor: Processor,
    outside: TcpListener,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let told = |mut stopped: watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let notices = format!("http://{}/processor/notices", listener.local_addr()?);
    let mut beside = tokio::task::JoinSet::new();
    let out = processor.clone();
    let ended = told(stopped.clone());
    beside.spawn(async move {
        if let Err(error) = out.serve(outside, ended).await {
            eprintln!("the processor: {error}");
        }
    });
    beside.spawn(send_notices_until(processor, notices, stopped.clone()));
    beside.spawn(run_until(payments.clone(), Settings::default(), stopped));
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let served = serving::serve(listener, app(payments), stop).await;
    while beside.join_next().await.is_some() {}
    served
}
