//! A small JSON API, for curl and browsers: `cargo run -p matching -- serve`.
//!
//! `app` returns the router and the tests call it, as axum's own examples do. Amounts are minor
//! units, times epoch milliseconds, places degrees. Refusals are those of `serving`. Ids are made by
//! the client: only so can it send the same again when no answer came.

use crate::domain::{Amount, CandidateSetView, RideRequestState, TripStatus};
use crate::{
    Accepting, Cancelling, Dispatch, DispatchError, DriverState, Moving, NewQuote, NewRide, Point,
    Realization, Rejecting, Requested, RideStatus, Rules, Shift, Starting,
};
use axum::extract::{Path, State};
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
    dispatch: Dispatch,
    batched: bool,
}

impl std::ops::Deref for App {
    type Target = Dispatch;

    fn deref(&self) -> &Dispatch {
        &self.dispatch
    }
}

/// The router. Batched, a ride is left to the next batch; otherwise its next driver is asked at once.
pub fn app(dispatch: Dispatch, batched: bool) -> Router {
    let router = Router::new()
        .route("/drivers/{id}", get(driver))
        .route("/drivers/{id}/online", post(online))
        .route("/drivers/{id}/location", post(location))
        .route("/drivers/{id}/offline", post(offline))
        .route("/fares", post(quote))
        .route("/rides", post(request))
        .route("/rides/{id}", get(ride))
        .route("/rides/{id}/candidates", get(candidates))
        .route("/rides/{id}/cancel", post(cancel))
        .route("/offers/{id}/accept", post(accept))
        .route("/offers/{id}/reject", post(reject))
        .route("/offers/{id}/cancel", post(give_back))
        .route("/trips/{id}", get(trip))
        .route("/trips/{id}/start", post(start))
        .route("/trips/{id}/advance", post(advance))
        .with_state(App { dispatch, batched });
    with_fallbacks(router)
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct PlaceBody {
    lat: f64,
    lon: f64,
}

impl PlaceBody {
    fn point(&self) -> Result<Point, Refusal> {
        Point::degrees(self.lat, self.lon).map_err(|wrong| Refusal::bad_request(wrong.to_string()))
    }

    fn of(at: Point) -> Self {
        Self {
            lat: at.lat_degrees(),
            lon: at.lon_degrees(),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct QuoteBody {
    fare_id: String,
    rider_id: String,
    pickup: PlaceBody,
    destination: PlaceBody,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RideBody {
    ride_id: String,
    rider_id: String,
    fare_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DriverBody {
    driver_id: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AdvanceBody {
    driver_id: String,
    to: TripStatus,
}

/// A ride as its rider sees it.
#[derive(Serialize)]
struct RideView {
    ride_id: String,
    rider_id: String,
    status: RideStatus,
    fare: Amount,
    pickup: PlaceBody,
    destination: PlaceBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    offer: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    driver_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offer_expires_at: Option<Millis>,
}

impl From<RideRequestState> for RideView {
    fn from(ride: RideRequestState) -> Self {
        let bound = matches!(ride.status, RideStatus::Matching | RideStatus::Matched);
        Self {
            offer: ride.current_assignment.filter(|_| bound),
            driver_id: ride.driver_id.filter(|_| bound),
            offer_expires_at: ride.due_at.filter(|_| ride.status == RideStatus::Matching),
            ride_id: ride.ride_id,
            rider_id: ride.rider_id,
            status: ride.status,
            fare: ride.fare,
            pickup: PlaceBody::of(ride.pickup),
            destination: PlaceBody::of(ride.destination),
        }
    }
}

impl From<DispatchError> for Refusal {
    fn from(error: DispatchError) -> Self {
        let status = match &error {
            DispatchError::BadInput(_) => StatusCode::BAD_REQUEST,
            DispatchError::UnknownFare(_)
            | DispatchError::UnknownRide(_)
            | DispatchError::UnknownAssignment(_)
            | DispatchError::UnknownTrip(_)
            | DispatchError::UnknownDriver(_) => StatusCode::NOT_FOUND,
            DispatchError::NotYours(_) | DispatchError::IdTaken(_) => StatusCode::CONFLICT,
            DispatchError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            DispatchError::Fault(fault) => return fault.into(),
        };
        Self::new(status, error.to_string())
    }
}

/// The request was fine, the answer is no.
fn no(why: impl ToString) -> Refusal {
    Refusal::new(StatusCode::CONFLICT, why.to_string())
}

type Shared = State<App>;

async fn driver(State(app): Shared, Path(id): Path<String>) -> Result<Json<DriverState>, Refusal> {
    let found = app.driver(&id).await?;
    Ok(Json(found.ok_or(DispatchError::UnknownDriver(id))?))
}

fn shift(id: String, shift: Shift) -> Result<Response, Refusal> {
    let status = match shift {
        Shift::Online => "AVAILABLE",
        Shift::Offline => "OFFLINE",
        Shift::Busy(status) => return Err(no(format!("the driver is {}", status.word()))),
    };
    Ok(Json(json!({"driver_id": id, "status": status})).into_response())
}

async fn online(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<PlaceBody>,
) -> Result<Response, Refusal> {
    let told = app.go_online(&id, body(given)?.point()?).await?;
    shift(id, told)
}

async fn location(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<PlaceBody>,
) -> Result<Response, Refusal> {
    let newest = app.report_location(&id, body(given)?.point()?).await?;
    Ok(Json(json!({"driver_id": id, "newest": newest})).into_response())
}

async fn offline(State(app): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    let told = app.go_offline(&id).await?;
    shift(id, told)
}

async fn quote(State(app): Shared, given: Body<QuoteBody>) -> Result<Response, Refusal> {
    let given = body(given)?;
    let new = NewQuote {
        fare_id: given.fare_id,
        rider_id: given.rider_id,
        pickup: given.pickup.point()?,
        destination: given.destination.point()?,
    };
    let quote = app.quote_fare(&new).await?;
    let view = json!({
        "fare_id": quote.fare_id,
        "amount": quote.amount,
        "quote_expires_at": quote.quote_expires_at,
    });
    Ok((StatusCode::CREATED, Json(view)).into_response())
}

/// Requests a ride, and asks the first driver. If that fails the ride is there all the same, and a
/// sweeper goes on with it.
async fn request(State(app): Shared, given: Body<RideBody>) -> Result<Response, Refusal> {
    let given = body(given)?;
    let new = NewRide {
        ride_id: given.ride_id,
        rider_id: given.rider_id,
        fare_id: given.fare_id,
    };
    let (status, ride) = match app.request_ride(&new).await? {
        Requested::Requested(ride) => {
            go_on(&app, &ride.ride_id).await;
            (StatusCode::CREATED, app.known_ride(&ride.ride_id).await?)
        }
        Requested::Before(ride) => (StatusCode::OK, ride),
        Requested::Refused(why) => return Err(no(why)),
    };
    Ok((status, Json(RideView::from(ride))).into_response())
}

/// The next step of a ride's cascade. Who asked does not wait for it to succeed.
async fn go_on(app: &App, ride_id: &str) {
    if app.batched {
        return;
    }
    if let Err(error) = app.next_candidate(ride_id).await {
        eprintln!("{ride_id} is left to the sweeper: {error}");
    }
}

async fn ride(State(app): Shared, Path(id): Path<String>) -> Result<Json<RideView>, Refusal> {
    Ok(Json(app.known_ride(&id).await?.into()))
}

async fn candidates(
    State(app): Shared,
    Path(id): Path<String>,
) -> Result<Json<CandidateSetView>, Refusal> {
    let ride = app.known_ride(&id).await?;
    let view = app.find_nearby(ride.pickup, &ride.refused_by, 10).await?;
    Ok(Json(view))
}

fn cancelled(ride_id: &str, told: Cancelling) -> Result<Response, Refusal> {
    let status = match told {
        Cancelling::Cancelled(status) | Cancelling::Over(status) => status,
        Cancelling::Completed => return Err(no("the ride was driven to its end")),
        Cancelling::Refused(why) => return Err(no(why)),
    };
    Ok(Json(json!({"ride_id": ride_id, "status": status.word()})).into_response())
}

async fn cancel(State(app): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    let told = app.cancel_ride(&id).await?;
    match told {
        Cancelling::Over(RideStatus::NoDrivers) => {
            Err(no("no driver was found; there is nothing to cancel"))
        }
        told => cancelled(&id, told),
    }
}

async fn accept(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<DriverBody>,
) -> Result<Response, Refusal> {
    match app.accept(&body(given)?.driver_id, &id).await? {
        Accepting::Accepted | Accepting::Before => {
            Ok(Json(json!({"offer": id, "status": "ACCEPTED"})).into_response())
        }
        Accepting::Refused(why) => Err(no(why)),
    }
}

async fn reject(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<DriverBody>,
) -> Result<Response, Refusal> {
    match app.reject(&body(given)?.driver_id, &id).await? {
        Rejecting::Rejected | Rejecting::Before => {
            go_on(&app, crate::domain::ride_of(&id)).await;
            Ok(Json(json!({"offer": id, "status": "REJECTED"})).into_response())
        }
        Rejecting::Refused(why) => Err(no(why)),
    }
}

async fn give_back(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<DriverBody>,
) -> Result<Response, Refusal> {
    let told = app.cancel_assignment(&body(given)?.driver_id, &id).await?;
    let ride_id = crate::domain::ride_of(&id);
    if told == Cancelling::Cancelled(RideStatus::Open) {
        go_on(&app, ride_id).await;
    }
    cancelled(ride_id, told)
}

async fn trip(State(app): Shared, Path(id): Path<String>) -> Result<Response, Refusal> {
    let found = app.trip(&id).await?;
    let found = found.ok_or(DispatchError::UnknownTrip(id))?;
    Ok(Json(found).into_response())
}

async fn start(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<DriverBody>,
) -> Result<Response, Refusal> {
    match app.start_trip(&body(given)?.driver_id, &id).await? {
        Starting::Started(trip) => Ok((StatusCode::CREATED, Json(trip)).into_response()),
        Starting::Before(trip) => Ok(Json(trip).into_response()),
        Starting::NotMatched => Err(no("the ride is not matched by this offer")),
    }
}

async fn advance(
    State(app): Shared,
    Path(id): Path<String>,
    given: Body<AdvanceBody>,
) -> Result<Response, Refusal> {
    let given = body(given)?;
    let status = match app.advance_trip(&given.driver_id, &id, given.to).await? {
        Moving::Moved => given.to,
        Moving::Before(status) => status,
        Moving::Refused(status) => {
            let (is, to) = (status.word(), given.to.word());
            return Err(no(format!(
                "the trip is {is}, and does not go to {to} from there"
            )));
        }
    };
    Ok(Json(json!({"trip": id, "status": status.word()})).into_response())
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the JSON API, with a sweeper beside it, until Ctrl-C",
    args: serve_args,
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

fn serve_args(command: Command) -> Command {
    command
        .arg(listen_arg())
        .arg(
            Arg::new("realization")
                .long("realization")
                .value_parser(["geo", "cells"])
                .default_value("geo")
                .help("Locations in Redis, or in DynamoDB by H3 cell"),
        )
        .arg(
            Arg::new("matching")
                .long("matching")
                .value_parser(["greedy", "batched"])
                .default_value("greedy")
                .help("Ask the soonest driver at once, or choose every second for all rides that wait"),
        )
}

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let realization = match args.get_one::<String>("realization").map(String::as_str) {
        Some("cells") => Realization::Cells,
        _ => Realization::Geo,
    };
    let batched = args.get_one::<String>("matching").map(String::as_str) == Some("batched");
    cloud.create_tables(crate::tables::TABLES).await?;
    let mut rules = Rules::default();
    if batched {
        // A batch collects for a second.
        rules.take_over_ms = 1_000;
    }
    let dispatch = Dispatch::with_rules(cloud, realization, rules);
    serve_until(dispatch, batched, listen(&args).await?, interrupted()).await
}

/// Serves until told to stop, with a sweeper beside it.
pub async fn serve_until(
    dispatch: Dispatch,
    batched: bool,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let sweeper = tokio::spawn(sweep_forever(dispatch.clone(), batched));
    let served = serving::serve(listener, app(dispatch, batched), stop).await;
    sweeper.abort();
    served
}

/// Tends what is due, every second. A failure is said and tried again: nothing is lost by it.
async fn sweep_forever(dispatch: Dispatch, batched: bool) {
    loop {
        let swept = match batched {
            true => dispatch.match_batch().await,
            false => dispatch.sweep().await.map_err(DispatchError::from),
        };
        match swept {
            Err(error) => eprintln!("sweeping: {error}"),
            Ok(swept) => {
                for (ride_id, tended) in swept {
                    if let Err(error) = tended {
                        eprintln!("sweeping {ride_id}: {error}");
                    }
                }
            }
        }
        if let Err(error) = dispatch.prune_locations().await {
            eprintln!("pruning: {error}");
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}
