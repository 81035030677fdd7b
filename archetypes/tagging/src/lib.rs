#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`].
//! The documents' use cases: [`create_tag`], [`read_tag`], [`attach`], [`detach`], [`view`] with its
//! [`cursor`], and for the popularity [`follow_stream`], [`popularity`], [`windows`].
//! What keeps it going: [`raise_buckets`], [`definitions`], [`repair`], [`recount`].
//! Beyond the documents, each skippable: [`tags_of`], [`top_tags`], [`search`], [`autocomplete`],
//! [`synonyms`], [`merge`], [`heat`], [`api`]. The story that shows it all: [`walkthrough`].

pub mod api;
pub mod attach;
pub mod autocomplete;
pub mod create_tag;
pub mod cursor;
pub mod definitions;
pub mod detach;
pub mod domain;
pub mod follow_stream;
pub mod heat;
pub mod items;
pub mod merge;
pub mod popularity;
pub mod raise_buckets;
pub mod read_tag;
pub mod recount;
pub mod repair;
pub mod search;
pub mod synonyms;
pub mod tables;
pub mod tags_of;
pub mod top_tags;
pub mod view;
pub mod walkthrough;
pub mod windows;

pub use attach::Attached;
pub use create_tag::Created;
pub use detach::Detached;
pub use domain::{BadInput, ContentId, TagName, TenantId};
pub use raise_buckets::Raised;
pub use repair::Mended;
pub use view::Page;
pub use walkthrough::archetype;

use cloud::{Cloud, CloudError, Millis};

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct Tagging {
    cloud: Cloud,
    cursor_key: Vec<u8>,
    cap: u32,
    definitions: definitions::Definitions,
}

impl Tagging {
    /// A service on this cloud. The tables must be there: `cloud.create_tables(tables::TABLES)`.
    /// All processes that serve the same views have the same `cursor_key`, and keep it secret.
    pub fn new(cloud: Cloud, cursor_key: &[u8]) -> Self {
        Self {
            cloud,
            cursor_key: cursor_key.to_vec(),
            cap: domain::DEFAULT_CAP,
            definitions: definitions::Definitions::default(),
        }
    }

    /// The same service, with contents that have at most so many tags.
    pub fn with_cap(self, cap: u32) -> Self {
        Self { cap, ..self }
    }

    /// The same service on another view of the cloud: another clock, or beside the tap.
    pub fn on(&self, cloud: Cloud) -> Self {
        Self {
            cloud,
            ..self.clone()
        }
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
pub enum TaggingError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// Nobody has created it.
    #[error("there is no tag '{0}'")]
    UnknownTag(String),
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again")]
    Contended,
    /// A fault below; for an unknown outcome, the same call may be made again.
    #[error(transparent)]
    Fault(#[from] CloudError),
}
