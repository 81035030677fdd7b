#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`].
//! The documents' use cases: [`create_auction`], [`view_auction`], [`place_bid`],
//! [`close_auction`], [`close_due`], [`view_history`], [`broadcast`],
//! [`publisher`].
//! Beyond the documents, each skippable: [`increments`], [`proxy`], [`soft_close`], [`buy_now`],
//! [`api`], [`bench`]. The story that shows it all: [`walkthrough`].

pub mod api;
pub mod bench;
pub mod broadcast;
pub mod buy_now;
pub mod close_auction;
pub mod close_due;
pub mod create_auction;
pub mod domain;
pub mod increments;
pub mod items;
pub mod place_bid;
pub mod proxy;
pub mod publisher;
pub mod soft_close;
pub mod tables;
pub mod view_auction;
pub mod view_history;
pub mod walkthrough;

pub use close_auction::Closing;
pub use create_auction::{Ends, NewAuction};
pub use domain::{NewBid, Offer, Rejection};
pub use place_bid::BidOutcome;
pub use walkthrough::archetype;

use cloud::{Cloud, CloudError, Millis};
use domain::BadInput;

/// Where BestBidState lives. Both keep the same promises; they differ in price.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// With the auction, in one item: one guard sees it all.
    OneItem,
    /// In a table of its own, as the documents have it: a transaction ties it to the auction.
    SeparateBest,
}

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct AuctionHouse {
    cloud: Cloud,
    layout: Layout,
}

impl AuctionHouse {
    /// A house on this cloud. The tables must be there: `cloud.create_tables(tables::TABLES)`.
    pub fn new(cloud: Cloud, layout: Layout) -> Self {
        Self { cloud, layout }
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
pub enum AuctionError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// No such auction.
    #[error("there is no auction '{0}'")]
    UnknownAuction(String),
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
