#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`], and the engine beneath them, [`ot`].
//! The documents' use cases: [`create_document`], [`load_document`], [`submit_edit`], [`compact`],
//! [`broadcast`], [`presence`]; and the other side of the wire, [`client`].
//! Beyond the documents, each skippable: [`history`], [`undo`], [`objects`], [`protocol`], [`session`], [`api`],
//! [`bench`]. The story that shows it all: [`walkthrough`].

pub mod api;
pub mod bench;
pub mod broadcast;
pub mod client;
pub mod compact;
pub mod create_document;
pub mod domain;
pub mod history;
pub mod items;
pub mod load_document;
pub mod objects;
pub mod ot;
pub mod presence;
pub mod protocol;
pub mod session;
pub mod submit_edit;
pub mod tables;
pub mod undo;
pub mod walkthrough;

pub use compact::Compaction;
pub use create_document::NewDocument;
pub use domain::{Edit, Entry, Refusal, Version};
pub use load_document::Loaded;
pub use submit_edit::EditOutcome;
pub use walkthrough::archetype;

use cloud::{Cloud, CloudError};
use domain::{BadInput, Canon, NotNext};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What a node may be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A snapshot after so many operations.
    pub snapshot_every: u64,
    /// At least so many operations stay in the log; older ones are archived with their snapshot.
    pub retain: u64,
    /// A snapshot's text up to so many bytes stands in its item, a longer one in S3.
    pub inline_bytes: usize,
    /// So many operations of each document are held in memory.
    pub held: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            snapshot_every: 200,
            retain: domain::MAX_BEHIND,
            inline_bytes: 100 * 1024,
            held: 256,
        }
    }
}

/// The service on one node: every use case is a method, in the file of its name. Clones are the same node.
#[derive(Clone)]
pub struct DocumentService {
    cloud: Cloud,
    settings: Settings,
    documents: Arc<Mutex<HashMap<String, Arc<Open>>>>,
}

/// A document that this node has open.
pub(crate) struct Open {
    /// What it holds of it; nothing before the first load.
    pub(crate) canon: tokio::sync::Mutex<Option<Canon>>,
    /// The newest version this node knows of. Sessions wait on it.
    pub(crate) head: watch::Sender<Version>,
}

impl Open {
    /// Wakes the sessions if this version is news.
    pub(crate) fn reached(&self, version: Version) {
        self.head.send_if_modified(|head| {
            let news = version > *head;
            *head = version.max(*head);
            news
        });
    }
}

impl DocumentService {
    /// A node on this cloud. Tables and bucket must be there: `archetype().create(&cloud)`.
    pub fn new(cloud: Cloud) -> Self {
        Self::with(cloud, Settings::default())
    }

    /// A node with settings of its own.
    pub fn with(cloud: Cloud, settings: Settings) -> Self {
        Self {
            cloud,
            settings,
            documents: Arc::default(),
        }
    }

    /// The cloud it runs on.
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// What it was told.
    pub fn settings(&self) -> Settings {
        self.settings
    }

    fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        self.cloud.dynamodb()
    }

    fn table(&self, name: &str) -> String {
        self.cloud.names().table(name)
    }

    pub(crate) fn open(&self, document_id: &str) -> Arc<Open> {
        let mut documents = self
            .documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let open = documents.entry(document_id.to_owned()).or_insert_with(|| {
            Arc::new(Open {
                canon: tokio::sync::Mutex::new(None),
                head: watch::channel(0).0,
            })
        });
        Arc::clone(open)
    }

    /// Forgets a document that nobody here has open any more. Loading it again costs three reads.
    pub(crate) fn close(&self, document_id: &str) {
        let mut documents = self
            .documents
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // Ours in the map is the only one left.
        if documents
            .get(document_id)
            .is_some_and(|open| Arc::strong_count(open) == 1)
        {
            documents.remove(document_id);
        }
    }
}

/// Why a use case gave no answer.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// No such document.
    #[error("there is no document '{0}'")]
    UnknownDocument(String),
    /// No such version.
    #[error("there is no version {version} yet: the document is at {head}")]
    UnknownVersion {
        /// What was asked for.
        version: Version,
        /// Where the document is.
        head: Version,
    },
    /// The id belongs to something else.
    #[error("the id '{0}' is already used for something else")]
    IdTaken(String),
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again")]
    Contended,
    /// A fault below; for an unknown outcome, send the same again.
    #[error(transparent)]
    Fault(#[from] CloudError),
}

impl From<NotNext> for DocumentError {
    fn from(gap: NotNext) -> Self {
        Self::Fault(CloudError::Corrupt(gap.to_string()))
    }
}

/// Whatever the SDK says is a fault.
impl<E, R> From<aws_sdk_dynamodb::error::SdkError<E, R>> for DocumentError
where
    CloudError: From<aws_sdk_dynamodb::error::SdkError<E, R>>,
{
    fn from(error: aws_sdk_dynamodb::error::SdkError<E, R>) -> Self {
        Self::Fault(error.into())
    }
}
