#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`].
//! The documents' use cases: [`request_ride`], [`find_nearby`] with [`locations`] (one promise, kept
//! by [`geo_index`] and [`cell_index`]), [`propose`] with [`driver_lock`] (what Redis adds to it),
//! [`accept`], [`reject`] and [`expire`] with [`let_go`], [`start_trip`], [`advance_trip`]; and
//! [`cascade`], which makes a flow of them.
//! Beyond the documents, each skippable: [`quote_fare`], [`driver_shift`], [`cancel`], [`batch`],
//! [`city`] with [`simulate`] and [`city_page`], [`api`]. The story that shows it all:
//! [`walkthrough`].

pub mod accept;
pub mod advance_trip;
pub mod api;
pub mod batch;
pub mod cancel;
pub mod cascade;
pub mod cell_index;
pub mod city;
pub mod city_page;
pub mod domain;
pub mod driver_lock;
pub mod driver_shift;
pub mod expire;
pub mod find_nearby;
pub mod geo_index;
pub mod items;
pub mod let_go;
pub mod locations;
pub mod propose;
pub mod quote_fare;
pub mod reject;
pub mod request_ride;
pub mod simulate;
pub mod start_trip;
pub mod tables;
pub mod walkthrough;

pub use accept::Accepting;
pub use advance_trip::Moving;
pub use cancel::Cancelling;
pub use cascade::Cascade;
pub use domain::{
    AssignmentStatus, DriverAssignmentState, DriverState, DriverStatus, NewQuote, NewRide, Point,
    RideRequestState, RideStatus, Rules, TripExecutionState, TripStatus,
};
pub use driver_shift::Shift;
pub use expire::Expiry;
pub use propose::Proposing;
pub use quote_fare::FareQuote;
pub use reject::Rejecting;
pub use request_ride::Requested;
pub use start_trip::Starting;
pub use walkthrough::archetype;

use cell_index::CellIndex;
use cloud::{Cloud, CloudError, Millis};
use domain::BadInput;
use geo_index::GeoIndex;
use locations::LocationIndex;
use std::sync::Arc;

/// Where locations are, and whether a lock stands before a proposal. Both keep the same promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Realization {
    /// Redis: GEO with a last-seen set, and a lock on the driver before DynamoDB is asked.
    Geo,
    /// DynamoDB alone: H3 cells, and no lock.
    Cells,
}

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct Dispatch {
    cloud: Cloud,
    realization: Realization,
    rules: Rules,
    index: Arc<dyn LocationIndex>,
}

impl Dispatch {
    /// A service on this cloud. The tables must be there: `cloud.create_tables(tables::TABLES)`.
    pub fn new(cloud: Cloud, realization: Realization) -> Self {
        Self::with_rules(cloud, realization, Rules::default())
    }

    /// One with other rules.
    pub fn with_rules(cloud: Cloud, realization: Realization, rules: Rules) -> Self {
        let index: Arc<dyn LocationIndex> = match realization {
            Realization::Geo => Arc::new(GeoIndex::new(cloud.clone())),
            Realization::Cells => Arc::new(CellIndex::new(cloud.clone())),
        };
        Self {
            cloud,
            realization,
            rules,
            index,
        }
    }

    /// The cloud it runs on.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// What it allows.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Where drivers are.
    pub fn locations(&self) -> &dyn LocationIndex {
        &*self.index
    }

    fn now(&self) -> Millis {
        self.cloud.now()
    }

    fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        self.cloud.dynamodb()
    }

    fn table(&self, name: &str) -> String {
        self.cloud.names().table(name)
    }
}

/// Why a use case gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DispatchError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// No such quote.
    #[error("there is no quote '{0}'")]
    UnknownFare(String),
    /// No such ride.
    #[error("there is no ride '{0}'")]
    UnknownRide(String),
    /// No such offer.
    #[error("there is no offer '{0}'")]
    UnknownAssignment(String),
    /// No such trip.
    #[error("there is no trip '{0}'")]
    UnknownTrip(String),
    /// No such driver.
    #[error("there is no driver '{0}'")]
    UnknownDriver(String),
    /// Somebody else's.
    #[error("'{0}' is another driver's")]
    NotYours(String),
    /// The id belongs to something else.
    #[error("the id '{0}' is already used for something else")]
    IdTaken(String),
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again with the same id")]
    Contended,
    /// A fault below; for an unknown outcome, ask with the same id.
    #[error(transparent)]
    Fault(#[from] CloudError),
}
