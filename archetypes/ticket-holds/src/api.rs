//! A small JSON API, for curl and browsers: `cargo run -p ticket-holds -- serve`.
//!
//! `app` returns the router and the tests call it, as axum's own examples do. Amounts are minor
//! units, times epoch milliseconds. Refusals are those of `serving`. Ids are made by the client:
//! only so can it send the same hold again when no answer came.

use crate::create_event::PASS_MS;
use crate::domain::{Amount, BookingStatus, Line};
use crate::purchase::Cards;
use crate::sandbox_cards::SandboxCards;
use crate::section_views::SectionViews;
use crate::tables::TABLES;
use crate::{
    BookingState, BoxOffice, Cancelling, Confirming, Creation, Extension, NewAdmissions,
    NewBooking, NewEvent, NewSection, OfficeError, Purchase, Realization, Reserved, Seat, Tickets,
};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{Arg, ArgMatches, Command};
use cloud::{Cloud, Millis};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serving::{Body, Refusal, body, interrupted, listen, listen_arg, with_fallbacks};
use std::future::Future;
use std::time::Duration;
use tokio::net::TcpListener;

/// What the handlers share.
#[derive(Clone)]
struct App {
    office: BoxOffice,
    cards: SandboxCards,
    views: SectionViews,
}

/// The router.
pub fn app(office: BoxOffice) -> Router {
    let cards = SandboxCards::new(office.cloud().clone());
    let router = Router::new()
        .route("/events", post(create))
        .route("/events/{id}", get(event))
        .route("/events/{id}/sections/{section}", get(seats))
        .route("/events/{id}/sections/{section}/changes", get(changes))
        .route("/events/{id}/bookings", post(reserve))
        .route("/bookings/{id}", get(booking))
        .route("/bookings/{id}/extend", post(extend))
        .route("/bookings/{id}/confirm", post(confirm))
        .route("/bookings/{id}/cancel", post(cancel))
        .with_state(App {
            office,
            cards,
            views: SectionViews::default(),
        });
    with_fallbacks(router)
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventBody {
    event_id: String,
    name: String,
    sections: Vec<SectionBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SectionBody {
    name: String,
    price: Amount,
    /// Either numbered seats …
    #[serde(skip_serializing_if = "Option::is_none")]
    seats: Option<u32>,
    /// … or general admissions.
    #[serde(skip_serializing_if = "Option::is_none")]
    admissions: Option<u32>,
}

impl From<NewEvent> for EventBody {
    fn from(event: NewEvent) -> Self {
        let section = |section: NewSection| {
            let (seats, admissions) = match section.tickets {
                Tickets::Seats(seats) => (Some(seats), None),
                Tickets::Admissions(admissions) => (None, Some(admissions)),
            };
            SectionBody {
                name: section.name,
                price: section.price,
                seats,
                admissions,
            }
        };
        Self {
            event_id: event.event_id,
            name: event.name,
            sections: event.sections.into_iter().map(section).collect(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReserveBody {
    booking_id: String,
    user_id: String,
    /// Either seats, such as `A-12` …
    seats: Option<Vec<String>>,
    /// … or so many admissions …
    admissions: Option<u32>,
    /// … of this section.
    section: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfirmBody {
    payment_id: String,
    card: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Since {
    since: Millis,
}

/// A booking as its user sees it.
#[derive(Serialize)]
struct BookingView {
    booking_id: String,
    event_id: String,
    user_id: String,
    status: BookingStatus,
    tickets: Vec<String>,
    total: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    hold_expires_at: Option<Millis>,
}

impl BookingView {
    /// A hold whose time is over is shown as what it is, whether or not a sweeper has been there.
    fn at(booking: BookingState, now: Millis) -> Self {
        let held = booking.status == BookingStatus::InProgress;
        let over = held && booking.hold_expires_at <= now;
        let ticket = |line: &Line| {
            let seat = Seat::of(&line.block_id, &line.seat);
            match line.fence {
                Some(_) => seat.to_string(),
                None => format!("{} × {}", line.count, seat.section),
            }
        };
        Self {
            tickets: booking.lines.iter().map(ticket).collect(),
            hold_expires_at: (held && !over).then_some(booking.hold_expires_at),
            booking_id: booking.booking_id,
            event_id: booking.event_id,
            user_id: booking.user_id,
            status: if over {
                BookingStatus::Expired
            } else {
                booking.status
            },
            total: booking.total,
        }
    }
}

impl From<OfficeError> for Refusal {
    fn from(error: OfficeError) -> Self {
        let status = match &error {
            OfficeError::BadInput(_) => StatusCode::BAD_REQUEST,
            OfficeError::UnknownEvent(_)
            | OfficeError::UnknownSection(_)
            | OfficeError::NoSeats(_)
            | OfficeError::NotGeneral(_)
            | OfficeError::UnknownSeat(_)
            | OfficeError::UnknownBooking(_) => StatusCode::NOT_FOUND,
            OfficeError::IdTaken(_) | OfficeError::NotOnSale(_) => StatusCode::CONFLICT,
            OfficeError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            OfficeError::Fault(fault) => return fault.into(),
        };
        Self::new(status, error.to_string())
    }
}

/// The request was fine, the answer is no.
fn no(why: impl ToString) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, why.to_string())
}

/// An event and how far it is.
#[derive(Serialize)]
struct EventView {
    #[serde(flatten)]
    event: EventBody,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tickets_made: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tickets: Option<u32>,
}

impl EventView {
    fn of(event: NewEvent, creation: Creation) -> Self {
        let (status, tickets_made, tickets) = match creation {
            Creation::OnSale => ("ON_SALE", None, None),
            Creation::Creating { made, of } => ("CREATING", Some(made), Some(of)),
        };
        Self {
            event: event.into(),
            status,
            tickets_made,
            tickets,
        }
    }
}

/// 201 when the event is on sale. A large one is answered with 202 and how far it is; the sweeper goes on, and
/// the same request, or a look at the event, says when it is on sale.
async fn create(
    State(app): State<App>,
    given: Body<EventBody>,
) -> Result<(StatusCode, Json<EventView>), Refusal> {
    let given = body(given)?;
    let section = |section: SectionBody| {
        let tickets = match (section.seats, section.admissions) {
            (Some(seats), None) => Tickets::Seats(seats),
            (None, Some(admissions)) => Tickets::Admissions(admissions),
            _ => return Err("give a section either seats or admissions, a number"),
        };
        Ok(NewSection {
            name: section.name,
            tickets,
            price: section.price,
        })
    };
    let sections = given.sections.into_iter().map(section);
    let event = NewEvent {
        event_id: given.event_id,
        name: given.name,
        sections: sections
            .collect::<Result<_, _>>()
            .map_err(Refusal::bad_request)?,
    };
    let creation = app.office.create_event(&event).await?;
    let status = match creation {
        Creation::OnSale => StatusCode::CREATED,
        Creation::Creating { .. } => StatusCode::ACCEPTED,
    };
    Ok((status, Json(EventView::of(event, creation))))
}

async fn event(State(app): State<App>, Path(id): Path<String>) -> Result<Json<EventView>, Refusal> {
    let (event, creation) = app.office.event_so_far(&id).await?;
    Ok(Json(EventView::of(event, creation)))
}

async fn seats(
    State(app): State<App>,
    Path((id, section)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    Ok(match app.office.section(&id, &section).await?.tickets {
        Tickets::Seats(_) => {
            let map = app.views.view(&app.office, &id, &section, None).await?;
            Json(&*map).into_response()
        }
        Tickets::Admissions(_) => {
            let left = app.office.admissions_left(&id, &section).await?;
            Json(json!({"admissions_left": left})).into_response()
        }
    })
}

async fn changes(
    State(app): State<App>,
    Path((id, section)): Path<(String, String)>,
    since: Result<Query<Since>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refusal> {
    let Ok(Query(Since { since })) = since else {
        let text = "give ?since=, the as_of of the map or of the last changes";
        return Err(Refusal::bad_request(text));
    };
    let views = &app.views;
    let changes = views.view(&app.office, &id, &section, Some(since)).await?;
    Ok(Json(&*changes).into_response())
}

async fn reserve(
    State(app): State<App>,
    Path(event_id): Path<String>,
    given: Body<ReserveBody>,
) -> Result<Response, Refusal> {
    let given = body(given)?;
    let (booking_id, user_id) = (given.booking_id, given.user_id);
    let reserved = match (given.seats, given.section, given.admissions) {
        (Some(seats), None, None) => {
            let seats: Result<_, _> = seats.iter().map(|seat| seat.parse()).collect();
            let new = NewBooking {
                booking_id,
                event_id,
                user_id,
                seats: seats.map_err(OfficeError::BadInput)?,
            };
            app.office.reserve(&new).await?
        }
        (None, Some(section), Some(count)) => {
            let new = NewAdmissions {
                booking_id,
                event_id,
                user_id,
                section,
                count,
            };
            app.office.reserve_admissions(&new).await?
        }
        _ => {
            let text = "give either seats (such as [\"A-12\"]) or section and admissions";
            return Err(Refusal::bad_request(text));
        }
    };
    let now = app.office.cloud().now();
    match reserved {
        Reserved::Held(booking) => {
            let view = Json(BookingView::at(booking, now));
            Ok((StatusCode::CREATED, view).into_response())
        }
        Reserved::Before(booking) => Ok(Json(BookingView::at(booking, now)).into_response()),
        Reserved::Rejected(why) => Err(no(why)),
    }
}

async fn booking(
    State(app): State<App>,
    Path(id): Path<String>,
) -> Result<Json<BookingView>, Refusal> {
    let booking = app.office.known_booking(&id).await?;
    Ok(Json(BookingView::at(booking, app.office.cloud().now())))
}

async fn extend(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Refusal> {
    match app.office.extend_hold(&id).await? {
        Extension::Until(until) | Extension::Before(until) => {
            Ok(Json(json!({"booking_id": id, "hold_expires_at": until})).into_response())
        }
        Extension::Refused(over) => Err(no(over)),
    }
}

/// With a card it is a purchase; without a body the booking is confirmed as it is, as for tickets
/// that are paid for elsewhere.
async fn confirm(
    State(app): State<App>,
    Path(id): Path<String>,
    text: String,
) -> Result<Json<BookingView>, Refusal> {
    let paid: Option<ConfirmBody> = match text.trim() {
        "" => None,
        text => Some(serde_json::from_str(text).map_err(|e| Refusal::bad_request(e.to_string()))?),
    };
    let booking = match paid {
        None => match app.office.confirm(&id).await? {
            Confirming::Confirmed(booking) | Confirming::Before(booking) => booking,
            Confirming::Refused(over) => return Err(no(over)),
        },
        Some(paid) => {
            let (payment, card) = (&paid.payment_id, &paid.card);
            let office = &app.office;
            match office.purchase(&app.cards, &id, payment, card).await? {
                Purchase::Bought(booking) => booking,
                Purchase::Declined => return Err(no("the card was declined; the hold stays")),
                Purchase::Refused(over) => return Err(no(over)),
            }
        }
    };
    Ok(Json(BookingView::at(booking, app.office.cloud().now())))
}

async fn cancel(State(app): State<App>, Path(id): Path<String>) -> Result<Response, Refusal> {
    match app.office.cancel(&id).await? {
        Cancelling::Cancelled(booking) => {
            // The sweeper would do it too; nobody should have to wait for it.
            app.office.settle(&app.cards, &booking).await?;
        }
        Cancelling::Over(BookingStatus::Cancelled) => {}
        Cancelling::Over(_) => return Err(no("the hold has expired")),
    }
    Ok(Json(json!({"booking_id": id, "status": "CANCELLED"})).into_response())
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the JSON API, with a sweeper beside it, until Ctrl-C",
    args: serve_args,
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

fn serve_args(command: Command) -> Command {
    command.arg(listen_arg()).arg(
        Arg::new("realization")
            .long("realization")
            .value_parser(["pure", "leased"])
            .default_value("pure")
            .help("DynamoDB alone, or leases in Redis before it"),
    )
}

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let realization = match args.get_one::<String>("realization").map(String::as_str) {
        Some("leased") => Realization::Leased,
        _ => Realization::Pure,
    };
    cloud.create_tables(TABLES).await?;
    let office = BoxOffice::new(cloud, realization);
    serve_until(office, listen(&args).await?, interrupted()).await
}

/// Serves until told to stop, with a sweeper beside it.
pub async fn serve_until(
    office: BoxOffice,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let cards = SandboxCards::new(office.cloud().clone());
    let sweeper = tokio::spawn(sweep_forever(office.clone(), cards));
    let creator = tokio::spawn(create_forever(office.clone()));
    let served = serving::serve(listener, app(office), stop).await;
    sweeper.abort();
    creator.abort();
    served
}

/// Ends what is over and, in a lane beside it, settles what is open, every second. A failure is said and tried
/// again: nothing is lost by it.
pub async fn sweep_forever(office: BoxOffice, cards: impl Cards) {
    let failed = |what: &str, error: &OfficeError| eprintln!("settling {what}: {error}");
    tokio::join!(end_forever(&office), office.settle_forever(&cards, failed));
}

async fn end_forever(office: &BoxOffice) {
    loop {
        for (what, ended) in office.expire_due().await {
            if let Err(error) = ended {
                eprintln!("sweeping {what}: {error}");
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Makes the tickets of large events, and of those whose creator died, every second.
async fn create_forever(office: BoxOffice) {
    loop {
        match office.create_due().await {
            Err(error) => eprintln!("looking for events to create: {error}"),
            Ok(passes) => {
                for (event_id, pass) in passes {
                    if let Err(error) = pass {
                        eprintln!("creating {event_id}: {error}");
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(PASS_MS as u64)).await;
    }
}
