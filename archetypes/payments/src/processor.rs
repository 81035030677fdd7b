//! A card processor to rehearse with: a server of its own, with its own memory and its own moods.
//!
//! It is the world outside. Nothing here shares a table with the rest of the crate; its book is what
//! really happened to the money, and what tests hold ours against. It keeps its side of the contract:
//! the same key is the same order, a closed key stays closed, and 503 means that nothing was taken.

use crate::domain::{AUTHORIZATION_MS, Kind};
use crate::money::Amount;
use crate::processor_client::{Decision, Order, Said};
use axum::body::{Body, Bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use cloud::{Clock, Millis};
use serde::Serialize;
use serde_json::json;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpListener;

/// What the notices of this processor are signed with.
pub const NOTICE_SECRET: &str = "notices-of-the-sandbox";

/// How long a late answer takes: longer than anybody waits for it.
const LATE: Duration = Duration::from_secs(15);

/// How the processor takes an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Does it and says so.
    Answer,
    /// Says no.
    Decline,
    /// Cuts the connection, having done nothing.
    CutBefore,
    /// Does it, and cuts the connection.
    CutAfter,
    /// Does it, and answers when nobody listens any more.
    Late,
    /// Takes it, decides later, and sends a notice then.
    Pending,
    /// Does it, says so, and sends a notice too, twice.
    Twice,
    /// Is not there.
    Down,
}

impl Mood {
    /// A card for each mood, to try them by hand.
    pub const CARDS: [(&'static str, Self); 8] = [
        ("card-ok", Self::Answer),
        ("card-declined", Self::Decline),
        ("card-cut-before", Self::CutBefore),
        ("card-cut-after", Self::CutAfter),
        ("card-late", Self::Late),
        ("card-pending", Self::Pending),
        ("card-twice", Self::Twice),
        ("card-down", Self::Down),
    ];

    fn of_card(card: Option<&str>) -> Self {
        let found = Self::CARDS.iter().find(|(name, _)| Some(*name) == card);
        found.map_or(Self::Answer, |(_, mood)| *mood)
    }
}

/// An order as the processor has it.
#[derive(Debug, Clone, Serialize)]
pub struct Entry {
    /// The key it came with.
    pub key: String,
    /// What was asked; none if it was closed before it came.
    pub order: Option<Order>,
    /// How it stands.
    pub decision: Decision,
    /// Why it was declined.
    pub reason: Option<String>,
}

/// An authorization as the processor has it.
#[derive(Debug, Clone, Serialize)]
pub struct Authorization {
    /// For which payment.
    pub reference: String,
    /// In which currency.
    pub currency: String,
    /// What is or was held.
    pub authorized: Amount,
    /// What was taken.
    pub captured: Amount,
    /// What was given back.
    pub refunded: Amount,
    /// Whether the rest was let go.
    pub voided: bool,
    /// Since when.
    pub since: Millis,
}

#[derive(Default)]
struct Book {
    entries: BTreeMap<String, Entry>,
    authorizations: BTreeMap<String, Authorization>,
    moods: VecDeque<Mood>,
    notices: VecDeque<Said>,
    down: bool,
    received: usize,
}

/// The processor. Clones are the same one.
#[derive(Clone)]
pub struct Processor {
    book: Arc<Mutex<Book>>,
    clock: Clock,
}

impl Processor {
    /// A processor that nobody has asked anything yet.
    pub fn new(clock: Clock) -> Self {
        Self {
            book: Arc::default(),
            clock,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it takes the next new orders. Without a word the card decides.
    pub fn tell(&self, moods: impl IntoIterator<Item = Mood>) {
        self.book().moods.extend(moods);
    }

    /// Forgets what it was told about the next orders.
    pub fn forget_moods(&self) {
        self.book().moods.clear();
    }

    /// Not there for anybody, or there again.
    pub fn set_down(&self, down: bool) {
        self.book().down = down;
    }

    /// Every order it knows.
    pub fn entries(&self) -> Vec<Entry> {
        self.book().entries.values().cloned().collect()
    }

    /// Every authorization it gave.
    pub fn authorizations(&self) -> Vec<Authorization> {
        self.book().authorizations.values().cloned().collect()
    }

    /// How many requests to do something came in.
    pub fn received(&self) -> usize {
        self.book().received
    }

    /// Decides what it left open, and has a notice for each.
    pub fn decide_pending(&self) {
        let now = self.clock.now();
        let mut book = self.book();
        let open: Vec<_> = book
            .entries
            .values()
            .filter(|entry| entry.decision == Decision::Pending)
            .cloned()
            .collect();
        for entry in open {
            let Some(order) = &entry.order else { continue };
            let (decision, reason) = book.carry_out(&entry.key, order, now);
            let entry = Entry {
                decision,
                reason,
                ..entry
            };
            book.notices.push_back(entry.said());
            book.entries.insert(entry.key.clone(), entry);
        }
    }

    /// Whether nothing waits to be decided or told.
    pub fn has_nothing_open(&self) -> bool {
        let book = self.book();
        let decided = |entry: &Entry| entry.decision != Decision::Pending;
        book.notices.is_empty() && book.entries.values().all(decided)
    }

    /// The notices that are to be sent, in order. Taken, they are gone from here.
    pub fn take_notices(&self) -> Vec<Said> {
        self.book().notices.drain(..).collect()
    }

    /// Its API.
    pub fn app(&self) -> Router {
        Router::new()
            .route("/orders", post(order))
            .route("/orders/{key}", get(ask))
            .route("/orders/{key}/close", post(close))
            .route("/book", get(book))
            .with_state(self.clone())
    }

    /// Serves its API until `stop` ends.
    pub async fn serve(
        &self,
        listener: TcpListener,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> std::io::Result<()> {
        axum::serve(listener, self.app())
            .with_graceful_shutdown(stop)
            .await
    }
}

impl Entry {
    fn said(&self) -> Said {
        Said {
            key: self.key.clone(),
            decision: self.decision,
            reason: self.reason.clone(),
        }
    }
}

impl Book {
    /// Does what was ordered, if the money allows it.
    fn carry_out(&mut self, key: &str, order: &Order, now: Millis) -> (Decision, Option<String>) {
        let declined = |why: &str| (Decision::Declined, Some(why.to_owned()));
        if order.kind == Kind::Charge {
            let authorization = Authorization {
                reference: order.reference.clone(),
                currency: order.currency.clone(),
                authorized: order.amount,
                captured: if order.capture { order.amount } else { 0 },
                refunded: 0,
                voided: false,
                since: now,
            };
            self.authorizations.insert(key.to_owned(), authorization);
            return (Decision::Approved, None);
        }
        let named = order.authorization.as_ref();
        let Some(held) = named.and_then(|name| self.authorizations.get_mut(name)) else {
            return declined("there is no such authorization");
        };
        if held.currency != order.currency {
            return declined("the authorization is in another currency");
        }
        match order.kind {
            Kind::Capture => {
                let over = held.voided || held.since + AUTHORIZATION_MS <= now;
                if over || held.captured + order.amount > held.authorized {
                    return declined("there is not so much held");
                }
                held.captured += order.amount;
            }
            Kind::Refund => {
                if held.refunded + order.amount > held.captured {
                    return declined("there was not so much taken");
                }
                held.refunded += order.amount;
            }
            Kind::Void | Kind::Charge => {
                if held.voided || held.since + AUTHORIZATION_MS <= now {
                    return declined("there is nothing held");
                }
                held.voided = true;
            }
        }
        (Decision::Approved, None)
    }
}

fn said(entry: &Entry) -> Response {
    let status = match entry.decision {
        Decision::Pending => StatusCode::ACCEPTED,
        _ => StatusCode::OK,
    };
    (status, Json(entry.said())).into_response()
}

fn not_there() -> Response {
    StatusCode::SERVICE_UNAVAILABLE.into_response()
}

/// An answer that breaks off: headers, and then the connection is gone.
fn cut() -> Response {
    let broken = futures::stream::once(async {
        Err::<Bytes, _>(std::io::Error::other("the connection was cut"))
    });
    let body = Body::from_stream(broken);
    ([("content-type", "application/json")], body).into_response()
}

async fn order(
    State(processor): State<Processor>,
    headers: HeaderMap,
    Json(order): Json<Order>,
) -> Response {
    let key = headers
        .get("idempotency-key")
        .and_then(|key| key.to_str().ok());
    let Some(key) = key.map(str::to_owned) else {
        let error = json!({"error": "every order needs an Idempotency-Key"});
        return (StatusCode::BAD_REQUEST, Json(error)).into_response();
    };
    let (answer, mood) = {
        let now = processor.clock.now();
        let mut book = processor.book();
        book.received += 1;
        if book.down {
            return not_there();
        }
        if let Some(known) = book.entries.get(&key) {
            // Closed before it came: closed it stays.
            if known.order.as_ref().is_some_and(|known| *known != order) {
                let error = json!({"error": "this key was used for another order"});
                return (StatusCode::UNPROCESSABLE_ENTITY, Json(error)).into_response();
            }
            return said(known);
        }
        let mood = book
            .moods
            .pop_front()
            .unwrap_or_else(|| Mood::of_card(order.card.as_deref()));
        let (decision, reason) = match mood {
            Mood::CutBefore => return cut(),
            Mood::Down => return not_there(),
            Mood::Decline => (Decision::Declined, Some("the card was declined".to_owned())),
            Mood::Pending => (Decision::Pending, None),
            _ => book.carry_out(&key, &order, now),
        };
        let entry = Entry {
            key: key.clone(),
            order: Some(order),
            decision,
            reason,
        };
        if mood == Mood::Twice {
            book.notices.extend([entry.said(), entry.said()]);
        }
        let answer = said(&entry);
        book.entries.insert(key, entry);
        (answer, mood)
    };
    match mood {
        Mood::CutAfter => cut(),
        Mood::Late => {
            tokio::time::sleep(LATE).await;
            answer
        }
        _ => answer,
    }
}

async fn ask(State(processor): State<Processor>, Path(key): Path<String>) -> Response {
    let book = processor.book();
    if book.down {
        return not_there();
    }
    match book.entries.get(&key) {
        Some(entry) => said(entry),
        None => {
            let error = json!({"error": "there is no such order"});
            (StatusCode::NOT_FOUND, Json(error)).into_response()
        }
    }
}

async fn close(State(processor): State<Processor>, Path(key): Path<String>) -> Response {
    let mut book = processor.book();
    if book.down {
        return not_there();
    }
    let entry = book.entries.entry(key.clone()).or_insert_with(|| Entry {
        key,
        order: None,
        decision: Decision::Closed,
        reason: None,
    });
    said(entry)
}

async fn book(State(processor): State<Processor>) -> Response {
    let book = processor.book();
    Json(json!({
        "orders": book.entries.values().collect::<Vec<_>>(),
        "authorizations": book.authorizations,
    }))
    .into_response()
}
