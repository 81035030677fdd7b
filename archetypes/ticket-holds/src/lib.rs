#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`].
//! The documents' use cases: [`reserve`], [`lease`] (what Redis adds to it), [`view_seats`],
//! [`confirm`], [`expire_hold`] with [`put_back`].
//! Beyond the documents, each skippable: [`create_event`], [`allowance`], [`extend_hold`],
//! [`cancel`], [`general_admission`], [`purchase`] with [`sandbox_cards`], [`seat_changes`],
//! [`section_views`], [`api`], [`bench`]. The story that shows it all: [`walkthrough`].

pub mod allowance;
pub mod api;
pub mod bench;
pub mod cancel;
pub mod confirm;
pub mod create_event;
pub mod domain;
pub mod expire_hold;
pub mod extend_hold;
pub mod general_admission;
pub mod items;
pub mod lease;
mod neighbours;
pub mod purchase;
pub mod put_back;
pub mod reserve;
pub mod sandbox_cards;
pub mod seat_changes;
pub mod section_views;
pub mod tables;
pub mod view_seats;
pub mod walkthrough;

pub use cancel::Cancelling;
pub use confirm::Confirming;
pub use create_event::{Creation, NewEvent, NewSection, Tickets};
pub use domain::{BookingState, BookingStatus, NewBooking, Over, Rejection, Rules, Seat};
pub use expire_hold::Expiry;
pub use extend_hold::Extension;
pub use general_admission::NewAdmissions;
pub use purchase::Purchase;
pub use reserve::Reserved;
pub use walkthrough::archetype;

use cloud::{Cloud, CloudError, Millis};
use create_event::EventCache;
use domain::BadInput;
use lease::Leases;
use std::time::Duration;

/// What says no to a competing reserver first. Both keep the same promises; they differ in price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Realization {
    /// DynamoDB alone.
    Pure,
    /// A lease in Redis before it: most refusals never reach DynamoDB.
    Leased,
}

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct BoxOffice {
    cloud: Cloud,
    realization: Realization,
    rules: Rules,
    /// An event on sale never changes, so each is read once by a process.
    events: EventCache,
    leases: Leases,
}

impl BoxOffice {
    /// An office on this cloud. The tables must be there: `cloud.create_tables(tables::TABLES)`.
    pub fn new(cloud: Cloud, realization: Realization) -> Self {
        Self::with_rules(cloud, realization, Rules::default())
    }

    /// One with other rules.
    pub fn with_rules(cloud: Cloud, realization: Realization, rules: Rules) -> Self {
        Self {
            cloud,
            realization,
            rules,
            events: EventCache::default(),
            leases: Leases::default(),
        }
    }

    /// One that waits this long for Redis, [`lease::LEASE_PATIENCE`] unless told.
    pub fn with_lease_patience(mut self, patience: Duration) -> Self {
        self.leases.patience = patience;
        self
    }

    /// The cloud it runs on.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
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
pub enum OfficeError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// No such event.
    #[error("there is no event '{0}'")]
    UnknownEvent(String),
    /// Its tickets are still being made.
    #[error("the event '{0}' is not on sale yet")]
    NotOnSale(String),
    /// No such section.
    #[error("there is no section '{0}'")]
    UnknownSection(String),
    /// General admission.
    #[error("the section '{0}' has no numbered seats")]
    NoSeats(String),
    /// Numbered seats.
    #[error("the section '{0}' has numbered seats")]
    NotGeneral(String),
    /// No such seat.
    #[error("there is no seat '{0}'")]
    UnknownSeat(Seat),
    /// No such booking.
    #[error("there is no booking '{0}'")]
    UnknownBooking(String),
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
