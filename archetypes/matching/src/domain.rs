//! The rules, pure: places and distances, states and their order, what a fare is. `now` is an
//! argument, nothing here knows a database.

use cloud::Millis;
use cloud::text::NotAnId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// Money in minor units.
pub type Amount = i64;

/// The longest id.
pub const MAX_TEXT: usize = 200;

/// The longest id of an offer: a ride's, and a number.
pub(crate) const MAX_OFFER_ID: usize = MAX_TEXT + 20;

/// The widest search, in metres. Bounds what one request may make an index read.
pub const MAX_RADIUS_M: f64 = 50_000.0;

/// The mean radius of the Earth, in metres.
pub const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// What a car makes in town, in metres a second: 25 km/h.
pub const CITY_SPEED_MPS: f64 = 7.0;

/// What the service allows. The same for everybody who works on the same tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// How long a driver has to answer an offer.
    pub offer_ms: Millis,
    /// How many offers one ride may make, whatever became of them.
    pub max_offers: u32,
    /// How long a ride looks for drivers who are not there yet.
    pub search_ms: Millis,
    /// How long it waits before it looks again.
    pub retry_ms: Millis,
    /// How long an OPEN ride is left to whoever should be looking after it.
    pub take_over_ms: Millis,
    /// How long a MATCHED ride may be without a trip before a sweeper starts it.
    pub start_ms: Millis,
    /// How far from the pickup drivers are looked for, in metres.
    pub radius_m: f64,
    /// How old a location may be.
    pub fresh_ms: Millis,
    /// How long a quote can be used.
    pub quote_ms: Millis,
    /// What a ride costs.
    pub tariff: Tariff,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            offer_ms: 15_000,
            max_offers: 8,
            search_ms: 60_000,
            retry_ms: 5_000,
            take_over_ms: 2_000,
            start_ms: 5_000,
            radius_m: 3_000.0,
            fresh_ms: 30_000,
            quote_ms: 300_000,
            tariff: Tariff::default(),
        }
    }
}

/// Prices, in minor units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tariff {
    /// For getting in.
    pub base: Amount,
    /// For each kilometre.
    pub per_km: Amount,
    /// In percent: 150 is half as much again.
    pub surge_percent: Amount,
}

impl Default for Tariff {
    fn default() -> Self {
        Self {
            base: 2_50,
            per_km: 1_20,
            surge_percent: 100,
        }
    }
}

impl Tariff {
    /// What the way between two points costs by this tariff, rounded down to a minor unit.
    pub fn fare(&self, from: Point, to: Point) -> Amount {
        let metres = street_m(from, to).round() as Amount;
        (self.base + self.per_km * metres / 1_000) * self.surge_percent / 100
    }
}

// Places.

/// A place, in whole millionths of a degree: 0.11 m, finer than any phone knows. Integers, so that
/// what is written, indexed and compared is the same place everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Point {
    /// Millionths of a degree north.
    pub lat: i32,
    /// Millionths of a degree east.
    pub lon: i32,
}

impl Point {
    /// The place at so many degrees.
    pub fn degrees(lat: f64, lon: f64) -> Result<Self, BadInput> {
        if (-90.0..=90.0).contains(&lat) && (-180.0..=180.0).contains(&lon) {
            Ok(Self {
                lat: (lat * 1e6).round() as i32,
                lon: (lon * 1e6).round() as i32,
            })
        } else {
            Err(BadInput::Place {
                lat: lat.to_string(),
                lon: lon.to_string(),
            })
        }
    }

    /// Degrees north.
    pub fn lat_degrees(self) -> f64 {
        f64::from(self.lat) / 1e6
    }

    /// Degrees east.
    pub fn lon_degrees(self) -> f64 {
        f64::from(self.lon) / 1e6
    }

    fn validate(self) -> Result<(), BadInput> {
        Self::degrees(self.lat_degrees(), self.lon_degrees()).map(|_| ())
    }
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6},{:.6}", self.lat_degrees(), self.lon_degrees())
    }
}

/// The great-circle distance in metres, by the haversine. There is one: both location indexes and
/// what they are tested against use it, and what it says decides.
pub fn distance_m(a: Point, b: Point) -> f64 {
    degrees_apart_m(
        (a.lat_degrees(), a.lon_degrees()),
        (b.lat_degrees(), b.lon_degrees()),
    )
}

/// The same between latitudes and longitudes in degrees.
pub(crate) fn degrees_apart_m((lat_a, lon_a): (f64, f64), (lat_b, lon_b): (f64, f64)) -> f64 {
    let (phi_a, phi_b) = (lat_a.to_radians(), lat_b.to_radians());
    let half = |angle: f64| (angle / 2.0).sin().powi(2);
    let h = half(phi_b - phi_a) + phi_a.cos() * phi_b.cos() * half((lon_b - lon_a).to_radians());
    2.0 * EARTH_RADIUS_M * h.sqrt().min(1.0).asin()
}

/// The way by streets, which here run north–south and east–west. A routing engine would stand in
/// this place; what matters is that it is not the distance: the nearest is not always the soonest.
pub fn street_m(from: Point, to: Point) -> f64 {
    let north = (f64::from(to.lat) - f64::from(from.lat)).abs() / 1e6;
    let east = (f64::from(to.lon) - f64::from(from.lon)).abs() / 1e6;
    let east = east.min(360.0 - east);
    let middle = (from.lat_degrees() + to.lat_degrees()) / 2.0;
    (north + east * middle.to_radians().cos()).to_radians() * EARTH_RADIUS_M
}

/// How many seconds a driver needs to the pickup: what candidates are ranked by.
pub fn pickup_s(driver: Point, pickup: Point) -> u32 {
    (street_m(driver, pickup) / CITY_SPEED_MPS).ceil() as u32
}

// States.

/// RideRequestState's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RideStatus {
    /// It needs a driver, and nobody has been asked; somebody will look at `due_at`.
    Open,
    /// One driver has been asked, until `due_at`.
    Matching,
    /// It has its driver.
    Matched,
    /// Nobody was found.
    NoDrivers,
    /// Given up.
    Cancelled,
}

impl RideStatus {
    /// As it stands in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Open => "OPEN",
            Self::Matching => "MATCHING",
            Self::Matched => "MATCHED",
            Self::NoDrivers => "NO_DRIVERS",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// RideRequestState.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RideRequestState {
    /// Identity, made by the rider's client.
    pub ride_id: String,
    /// Who.
    pub rider_id: String,
    /// From where.
    pub pickup: Point,
    /// To where.
    pub destination: Point,
    /// Which quote.
    pub fare_id: String,
    /// What was quoted, and stays.
    pub fare: Amount,
    /// Where it stands.
    pub status: RideStatus,
    /// How many drivers have been asked. Pins a state down: no two OPEN times of a ride have the
    /// same count.
    pub offers_made: u32,
    /// Who said no, did not answer, or gave it back. They are not asked again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused_by: BTreeSet<String>,
    /// The offer that is out, or was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_assignment: Option<String>,
    /// Whose offer that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver_id: Option<String>,
    /// Until when it waits for drivers who are not there yet.
    pub search_until: Millis,
    /// Where the sweeper finds it, while there is something to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_shard: Option<String>,
    /// When the sweeper should look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_at: Option<Millis>,
    /// When it was requested.
    pub created_at: Millis,
}

impl RideRequestState {
    /// The identity of its next offer.
    pub fn next_assignment(&self) -> String {
        assignment_id(&self.ride_id, self.offers_made + 1)
    }
}

/// The identity of a ride's n-th offer. Two who both make the n-th offer make the same one, and one
/// of them fails.
pub fn assignment_id(ride_id: &str, offer: u32) -> String {
    format!("{ride_id}.{offer}")
}

/// The ride of an offer.
pub fn ride_of(assignment_id: &str) -> &str {
    assignment_id
        .rsplit_once('.')
        .map_or(assignment_id, |(ride_id, _)| ride_id)
}

/// Whether an offer can have this id. No other is sent to DynamoDB, which would call it a wrong
/// request: a key is not empty.
pub(crate) fn is_offer_id(assignment_id: &str) -> bool {
    cloud::text::id(ride_of(assignment_id), MAX_TEXT).is_ok()
        && cloud::text::id(assignment_id, MAX_OFFER_ID).is_ok()
}

/// DriverAssignmentState's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum AssignmentStatus {
    /// The driver has been asked, and may say yes until `offer_expires_at`.
    Proposed,
    /// Said yes.
    Accepted,
    /// Said no.
    Rejected,
    /// Said nothing.
    Expired,
    /// The rider gave up before an answer came.
    Withdrawn,
    /// Given back by either of them after a yes.
    Cancelled,
}

impl AssignmentStatus {
    /// As it stands in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Proposed => "PROPOSED",
            Self::Accepted => "ACCEPTED",
            Self::Rejected => "REJECTED",
            Self::Expired => "EXPIRED",
            Self::Withdrawn => "WITHDRAWN",
            Self::Cancelled => "CANCELLED",
        }
    }
}

/// DriverAssignmentState: one offer to one driver.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverAssignmentState {
    /// Ride and number.
    pub assignment_id: String,
    /// Which ride.
    pub ride_id: String,
    /// Who is asked.
    pub driver_id: String,
    /// Where it stands.
    pub status: AssignmentStatus,
    /// How long the driver needs to the pickup, estimated when it was made.
    pub pickup_s: u32,
    /// From then on a yes comes too late, whoever has or has not written that down.
    pub offer_expires_at: Millis,
    /// When it was made.
    pub proposed_at: Millis,
}

/// What a driver is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DriverStatus {
    /// Not working.
    Offline,
    /// May be asked.
    Available,
    /// Has been asked.
    Offered,
    /// Has a ride.
    Assigned,
}

impl DriverStatus {
    /// As it stands in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::Offline => "OFFLINE",
            Self::Available => "AVAILABLE",
            Self::Offered => "OFFERED",
            Self::Assigned => "ASSIGNED",
        }
    }
}

/// What a driver is doing, and for which assignment: the third item of every transaction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverState {
    /// Who.
    pub driver_id: String,
    /// What.
    pub status: DriverStatus,
    /// For which offer: open if OFFERED, accepted if ASSIGNED.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assignment_id: Option<String>,
    /// When an open offer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer_expires_at: Option<Millis>,
}

/// DriverLocationState: where a driver was last seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverLocationState {
    /// Who.
    pub driver_id: String,
    /// Where.
    #[serde(flatten)]
    pub at: Point,
    /// When.
    pub seen_at: Millis,
}

/// TripExecutionState's status. It moves forward only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TripStatus {
    /// The driver is coming.
    EnRoute,
    /// The driver is there.
    Arrived,
    /// The rider is in the car.
    PickedUp,
    /// They are moving.
    InProgress,
    /// They are there.
    Completed,
    /// Given up on the way.
    Cancelled,
}

impl TripStatus {
    /// As it stands in the table.
    pub fn word(self) -> &'static str {
        match self {
            Self::EnRoute => "EN_ROUTE",
            Self::Arrived => "ARRIVED",
            Self::PickedUp => "PICKED_UP",
            Self::InProgress => "IN_PROGRESS",
            Self::Completed => "COMPLETED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// The one state that a driver moves into this one from. None: nobody drives into it.
    pub fn before(self) -> Option<Self> {
        match self {
            Self::EnRoute | Self::Cancelled => None,
            Self::Arrived => Some(Self::EnRoute),
            Self::PickedUp => Some(Self::Arrived),
            Self::InProgress => Some(Self::PickedUp),
            Self::Completed => Some(Self::InProgress),
        }
    }

    /// Whether the trip can still change.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled)
    }

    /// Whether the rider is in the car.
    pub fn has_rider(self) -> bool {
        matches!(self, Self::PickedUp | Self::InProgress)
    }
}

/// TripExecutionState, one for each accepted assignment that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TripExecutionState {
    /// By which assignment.
    pub assignment_id: String,
    /// Which ride.
    pub ride_id: String,
    /// Who drives.
    pub driver_id: String,
    /// Where it stands.
    pub status: TripStatus,
    /// Since when.
    pub since: Millis,
}

/// One who could be asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Candidate {
    /// Who.
    pub driver_id: String,
    /// Seconds to the pickup: the rank.
    pub pickup_s: u32,
    /// Metres as the crow flies.
    pub distance_m: f64,
    /// When they were there.
    pub seen_at: Millis,
    /// An offer that is over and that nobody has ended yet: whoever asks this driver ends it first.
    #[serde(skip)]
    pub over: Option<String>,
}

/// CandidateSetView: who could be asked, the soonest first. Computed when it is asked for; it is a
/// hint, and the guard of the proposal decides.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CandidateSetView {
    /// In the order they would be asked.
    pub candidates: Vec<Candidate>,
    /// As of when.
    pub as_of: Millis,
}

// Input.

/// What a rider asks for. Pickup, destination and price are those of the quote.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRide {
    /// Made by the rider's client: the identity of every retry.
    pub ride_id: String,
    /// Who.
    pub rider_id: String,
    /// By which quote.
    pub fare_id: String,
}

impl NewRide {
    /// Checks what can be checked without reading anything.
    pub fn validate(&self) -> Result<(), BadInput> {
        text("ride_id", &self.ride_id)?;
        text("rider_id", &self.rider_id)?;
        text("fare_id", &self.fare_id)
    }
}

/// What somebody would like to know the price of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewQuote {
    /// Made by the rider's client.
    pub fare_id: String,
    /// Who.
    pub rider_id: String,
    /// From where.
    pub pickup: Point,
    /// To where.
    pub destination: Point,
}

impl NewQuote {
    /// Checks what can be checked without reading anything.
    pub fn validate(&self) -> Result<(), BadInput> {
        text("fare_id", &self.fare_id)?;
        text("rider_id", &self.rider_id)?;
        self.pickup.validate()?;
        self.destination.validate()
    }
}

/// What is wrong with what came in. Found before anything is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadInput {
    /// Not an id.
    #[error("{what} {why}")]
    Id {
        /// Which id.
        what: &'static str,
        /// Why not.
        why: NotAnId,
    },
    /// Not on this planet.
    #[error("{lat},{lon} is no place: latitudes go from -90 to 90, longitudes from -180 to 180")]
    Place {
        /// As given.
        lat: String,
        /// As given.
        lon: String,
    },
    /// Not a state that a driver moves a trip into.
    #[error("a trip is not moved to {0}: it goes ARRIVED, PICKED_UP, IN_PROGRESS, COMPLETED")]
    Move(&'static str),
    /// Too wide, or none.
    #[error("a search goes from 1 to 50000 metres, not {0}")]
    Radius(String),
}

/// An id that a client made.
pub(crate) fn text(what: &'static str, text: &str) -> Result<(), BadInput> {
    cloud::text::id(text, MAX_TEXT).map_err(|why| BadInput::Id { what, why })
}

/// A search radius.
pub(crate) fn radius(metres: f64) -> Result<(), BadInput> {
    if (1.0..=MAX_RADIUS_M).contains(&metres) {
        Ok(())
    } else {
        Err(BadInput::Radius(metres.to_string()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn at(lat: f64, lon: f64) -> Point {
        Point::degrees(lat, lon).unwrap()
    }

    #[test]
    fn distances_are_right_across_the_antimeridian_and_over_the_pole() {
        let degree = EARTH_RADIUS_M.to_radians();
        let near = |metres: f64, wanted: f64| assert!((metres - wanted).abs() < 0.5, "{metres}");
        near(distance_m(at(0.0, 179.5), at(0.0, -179.5)), degree);
        near(distance_m(at(89.5, 0.0), at(89.5, 180.0)), degree);
        near(distance_m(at(52.0, 13.0), at(53.0, 13.0)), degree);
        near(street_m(at(0.0, 179.5), at(0.0, -179.5)), degree);
    }

    #[test]
    fn the_street_is_never_shorter_than_the_crow_flies_in_a_city() {
        for (lat, lon) in [(52.501, 13.401), (52.52, 13.36), (52.49, 13.45)] {
            let (from, to) = (at(52.5, 13.4), at(lat, lon));
            assert!(street_m(from, to) >= distance_m(from, to) * 0.9999);
        }
    }

    #[test]
    fn a_fare_is_integer_arithmetic() {
        let tariff = Tariff {
            base: 2_50,
            per_km: 1_20,
            surge_percent: 150,
        };
        // 1 km north: (250 + 120) × 1.5.
        assert_eq!(tariff.fare(at(52.0, 13.0), at(52.008_993, 13.0)), 5_55);
    }

    #[test]
    fn an_offer_names_its_ride() {
        assert_eq!(ride_of(&assignment_id("a.b.7", 12)), "a.b.7");
    }
}
