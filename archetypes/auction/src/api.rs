//! A small JSON API and an event stream, for curl and browsers: `cargo run -p auction -- serve`.
//!
//! `app` returns the router and the tests call it, as axum's own examples do. Amounts are minor
//! units, times epoch milliseconds. Refusals are those of `serving`.
//! Ids are made by the client: only so can it send the same bid again when no answer came. A bid's id is
//! shown to its bidder alone, and should be random.

use crate::broadcast::Hub;
use crate::close_due::due_shards;
use crate::domain::Amount;
use crate::items::{BidKind, BidState};
use crate::publisher::Publisher;
use crate::tables::TABLES;
use crate::view_auction::AuctionView;
use crate::{
    AuctionError, AuctionHouse, BidOutcome, Closing, Ends, Layout, NewAuction, NewBid, Offer,
};
use axum::extract::rejection::QueryRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as SseEvent, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{Arg, ArgMatches, Command};
use cloud::{Cloud, CloudError, Millis};
use futures::future::join_all;
use futures::{FutureExt, StreamExt};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serving::{Body, Refusal, body, interrupted, listen, listen_arg, with_fallbacks};
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// What the handlers share.
#[derive(Clone)]
struct App {
    house: AuctionHouse,
    hub: Hub,
    /// Turns true when the server stops: event streams never end by themselves.
    stop: watch::Receiver<bool>,
}

/// The router.
pub fn app(house: AuctionHouse, hub: Hub, stop: watch::Receiver<bool>) -> Router {
    let router = Router::new()
        .route("/auctions", post(create))
        .route("/auctions/{id}", get(view))
        .route("/auctions/{id}/bids", post(bid).get(history))
        .route("/auctions/{id}/buy-now", post(buy))
        .route("/auctions/{id}/close", post(close))
        .route("/auctions/{id}/events", get(events))
        .with_state(App { house, hub, stop });
    with_fallbacks(router)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody {
    auction_id: String,
    item_id: String,
    seller_id: String,
    title: String,
    currency: String,
    starting_price: Amount,
    reserve_price: Option<Amount>,
    buy_now_price: Option<Amount>,
    #[serde(default)]
    soft_close_ms: Millis,
    /// Either this …
    end_time: Option<Millis>,
    /// … or this, which is easier to type.
    lasts_seconds: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BidBody {
    bid_id: String,
    bidder_id: String,
    currency: String,
    amount: Option<Amount>,
    max_amount: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BuyBody {
    bid_id: String,
    bidder_id: String,
}

/// A bid as the public sees it: without the maximum of a proxy, and without the id. Under it, the bidder's client
/// is told its first answer again, and everybody else could try what maximum it had.
#[derive(Serialize)]
struct BidView {
    sequence: Option<u64>,
    bidder_id: String,
    kind: BidKind,
    amount: Option<Amount>,
    price_after: Option<Amount>,
    leader_after: Option<String>,
    created_at: Millis,
}

/// The most bids that one request gets.
const MOST_BIDS: usize = 1_000;

/// Which part of the history: so many bids after that place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Pages {
    #[serde(default)]
    after: u64,
    #[serde(default = "hundred")]
    limit: usize,
}

fn hundred() -> usize {
    100
}

/// A part of the history, and where the next one begins.
#[derive(Serialize)]
struct BidsPage {
    bids: Vec<BidView>,
    next: Option<u64>,
}

impl From<BidState> for BidView {
    fn from(bid: BidState) -> Self {
        Self {
            sequence: bid.sequence,
            bidder_id: bid.bidder_id,
            kind: bid.kind,
            amount: (bid.kind != BidKind::UpTo).then_some(bid.amount),
            price_after: bid.price_after,
            leader_after: bid.leader_after,
            created_at: bid.created_at,
        }
    }
}

impl From<AuctionError> for Refusal {
    fn from(error: AuctionError) -> Self {
        let status = match &error {
            AuctionError::BadInput(_) => StatusCode::BAD_REQUEST,
            AuctionError::UnknownAuction(_) => StatusCode::NOT_FOUND,
            AuctionError::IdTaken(_) => StatusCode::CONFLICT,
            AuctionError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            AuctionError::Fault(fault) => return fault.into(),
        };
        Self::new(status, error.to_string())
    }
}

async fn create(
    State(app): State<App>,
    given: Body<CreateBody>,
) -> Result<(StatusCode, Json<AuctionView>), Refusal> {
    let given = body(given)?;
    let ends = match (given.end_time, given.lasts_seconds) {
        (Some(end_time), None) => Ends::At(end_time),
        (None, Some(seconds)) => Ends::After(Millis::from(seconds) * 1_000),
        _ => {
            let text = "give either end_time (epoch ms) or lasts_seconds";
            return Err(Refusal::bad_request(text));
        }
    };
    let auction = app
        .house
        .create_auction(NewAuction {
            auction_id: given.auction_id,
            item_id: given.item_id,
            seller_id: given.seller_id,
            title: given.title,
            currency: given.currency,
            starting_price: given.starting_price,
            reserve_price: given.reserve_price,
            buy_now_price: given.buy_now_price,
            soft_close_ms: given.soft_close_ms,
            ends,
        })
        .await?;
    let view = app.house.view_auction(&auction.auction_id).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

async fn view(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<AuctionView>, Refusal> {
    Ok(Json(app.house.view_auction(&id).await?))
}

async fn bid(
    State(app): State<App>,
    Path(id): Path<String>,
    given: Body<BidBody>,
) -> Result<Response, Refusal> {
    let given = body(given)?;
    let offer = match (given.amount, given.max_amount) {
        (Some(amount), None) => Offer::Exactly(amount),
        (None, Some(max)) => Offer::UpTo(max),
        _ => {
            let text = "give either amount (this much) or max_amount (as far as needed)";
            return Err(Refusal::bad_request(text));
        }
    };
    let bid = NewBid {
        auction_id: id,
        bid_id: given.bid_id,
        bidder_id: given.bidder_id,
        offer,
        currency: given.currency,
    };
    let outcome = app.house.place_bid(&bid).await?;
    Ok(answer(&bid.bid_id, &outcome))
}

async fn buy(
    State(app): State<App>,
    Path(id): Path<String>,
    given: Body<BuyBody>,
) -> Result<Response, Refusal> {
    let given = body(given)?;
    let outcome = app
        .house
        .buy_now(&id, &given.bid_id, &given.bidder_id)
        .await?;
    Ok(answer(&given.bid_id, &outcome))
}

/// A rejected bid is a 409: the request was fine, the answer is no.
fn answer(bid_id: &str, outcome: &BidOutcome) -> Response {
    match outcome {
        BidOutcome::Accepted {
            sequence,
            leading,
            price,
        } => Json(json!({
            "bid_id": bid_id, "status": "ACCEPTED",
            "sequence": sequence, "leading": leading, "best_amount": price,
        }))
        .into_response(),
        BidOutcome::Rejected(why) => {
            let body = json!({"bid_id": bid_id, "status": "REJECTED", "error": why.to_string()});
            (StatusCode::CONFLICT, Json(body)).into_response()
        }
    }
}

async fn history(
    State(app): State<App>,
    Path(id): Path<String>,
    asked: Result<Query<Pages>, QueryRejection>,
) -> Result<Json<BidsPage>, Refusal> {
    let Query(asked) = asked.map_err(|wrong| Refusal::bad_request(wrong.body_text()))?;
    if !(1..=MOST_BIDS).contains(&asked.limit) {
        let text = format!(
            "limit must be between 1 and {MOST_BIDS}, not {}",
            asked.limit
        );
        return Err(Refusal::bad_request(text));
    }
    let accepted = app.house.view_auction(&id).await?.sequence;
    let bids = app
        .house
        .history_page(&id, asked.after, asked.limit)
        .await?;
    let last = asked.after + bids.len() as u64;
    Ok(Json(BidsPage {
        bids: bids.into_iter().map(BidView::from).collect(),
        next: (last < accepted).then_some(last),
    }))
}

async fn close(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Refusal> {
    Ok(match app.house.close_auction(&id).await? {
        Closing::Closed(winner) | Closing::Before(winner) => {
            let winner = winner.map(|winner| {
                json!({
                    "bidder_id": winner.bidder_id,
                    "winning_amount": winner.winning_amount,
                    "closed_at": winner.closed_at,
                })
            });
            Json(json!({"status": "CLOSED", "winner": winner})).into_response()
        }
        Closing::NotDue { end_time } => {
            let body = json!({"error": "the auction is not over", "end_time": end_time});
            (StatusCode::CONFLICT, Json(body)).into_response()
        }
    })
}

/// Server-Sent Events: `id` is the sequence, so a browser that reconnects says where it was.
async fn events(
    State(app): State<App>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    let after = match headers.get("last-event-id") {
        None => 0,
        Some(given) => given
            .to_str()
            .ok()
            .and_then(|id| id.parse().ok())
            .ok_or_else(|| {
                let text = "Last-Event-ID must be the id of an event of this auction";
                Refusal::bad_request(text)
            })?,
    };
    let events = app.hub.follow(&id, after);
    let (last, over) = match app.hub.last_known(&id).await? {
        Some((last, over)) if after <= last => (last, over),
        // The feed may be behind another node's, and so is asked for no refusal.
        _ => {
            let window = app.house.known_window(&id).await?;
            (window.last_event(), window.auction.final_sequence.is_some())
        }
    };
    // Nothing would be heard until the auction gets there, so it is said now.
    if after > last {
        let text =
            format!("Last-Event-ID {after} is beyond the last event of this auction, {last}");
        return Err(Refusal::bad_request(text));
    }
    // A browser reconnects after the end by itself; this is how it is told not to.
    if over && after == last {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let mut stop = app.stop;
    let stopped = async move {
        let _ = stop.wait_for(|stop| *stop).await;
    };
    let events = events.take_until(Box::pin(stopped)).map(|event| {
        let event = event?;
        let name = if event.status == crate::domain::Status::Closed {
            "closed"
        } else {
            "bid"
        };
        SseEvent::default()
            .id(event.sequence.to_string())
            .event(name)
            .json_data(&event)
            .map_err(CloudError::corrupt)
    });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response())
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the JSON API and the event stream until Ctrl-C",
    args: serve_args,
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

fn serve_args(command: Command) -> Command {
    command.arg(listen_arg()).arg(
        Arg::new("layout")
            .long("layout")
            .value_parser(["one-item", "separate-best"])
            .default_value("one-item")
            .help("Where the best bid lives; the same for the same data"),
    )
}

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let layout = match args.get_one::<String>("layout").map(String::as_str) {
        Some("separate-best") => Layout::SeparateBest,
        _ => Layout::OneItem,
    };
    cloud.create_tables(TABLES).await?;
    let house = AuctionHouse::new(cloud, layout);
    serve_until(house, listen(&args).await?, interrupted()).await
}

/// Serves until told to stop, with a closer and a publisher beside it.
pub async fn serve_until(
    house: AuctionHouse,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let hub = Hub::start(house.clone());
    let publisher = Publisher::start(house.clone());
    let (stopping, stopped) = watch::channel(false);
    let closer = tokio::spawn(close_forever(house.clone()));
    let publishing = tokio::spawn(publish_forever(publisher));
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let served = serving::serve(listener, app(house, hub, stopped), stop).await;
    closer.abort();
    publishing.abort();
    served
}

/// Closes what is due, every second. Each shard of the index has a loop of its own, so that one that hangs delays
/// no other.
async fn close_forever(house: AuctionHouse) {
    join_all(due_shards().map(|shard| close_shard_forever(&house, shard))).await;
}

/// A failure is said and tried again: nothing is lost by it. So is a panic, which would end all these loops.
async fn close_shard_forever(house: &AuctionHouse, shard: String) {
    loop {
        let closing = AssertUnwindSafe(house.close_due_in([shard.clone()]));
        match closing.catch_unwind().await {
            Ok(closings) => {
                for (what, closing) in closings {
                    if let Err(error) = closing {
                        eprintln!("closing {what}: {error}");
                    }
                }
            }
            Err(_) => eprintln!("closing {shard}: it panicked"),
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

async fn publish_forever(mut publisher: Publisher) {
    loop {
        let publishing = AssertUnwindSafe(publisher.publish_new());
        match publishing.catch_unwind().await {
            Ok(Ok(0)) => tokio::time::sleep(Duration::from_millis(200)).await,
            Ok(Ok(_)) => {}
            failed => {
                match failed {
                    Ok(Err(error)) => eprintln!("publishing: {error}"),
                    _ => eprintln!("publishing: it panicked"),
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
