#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`domain`], [`items`].
//! The documents' use cases: [`create_folder`], [`start_upload`], [`upload_chunks`], [`publish`],
//! [`rename_or_move`], [`download`], [`changes`], [`share`], [`collect`].
//! What they stand on: [`namespace`] (one transaction, one line of the feed), `access` (who may).
//! Beyond the documents, each skippable: [`delete_entry`], [`restore_version`], [`listing`].
//! The device: [`chunking`], [`local`], [`sync`], and its [`commands`]; [`bench`].
//! The story that shows it all: [`walkthrough`].

mod access;
pub mod bench;
pub mod changes;
pub mod chunking;
pub mod collect;
pub mod commands;
pub mod create_folder;
pub mod delete_entry;
pub mod domain;
pub mod download;
pub mod items;
pub mod listing;
pub mod local;
pub mod namespace;
pub mod publish;
pub mod rename_or_move;
pub mod restore_version;
pub mod share;
pub mod start_upload;
pub mod sync;
pub mod tables;
pub mod upload_chunks;
pub mod walkthrough;

pub use domain::{
    Actor, BadInput, Change, ChangeKind, ChunkHash, ChunkRef, Entry, EntryId, EntryStatus,
    FeedPage, FileVersion, Kind, Manifest, Permission, SessionStatus, Share, Target, UploadRequest,
    UploadSession,
};

pub use collect::Collection;
pub use create_folder::Created;
pub use delete_entry::Deletion;
pub use download::Download;
pub use namespace::Taken;
pub use publish::Publication;
pub use rename_or_move::Moved;
pub use start_upload::Started;
pub use upload_chunks::{Address, Confirmed};
pub use walkthrough::archetype;

use cloud::{Cloud, CloudError, Millis};

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct FileSync {
    cloud: Cloud,
    /// Who signs addresses: the same store, perhaps under another name.
    signer: aws_sdk_s3::Client,
    shards: Shards,
}

/// Over how many keys what belongs to one tenant is spread. It must never change for a store that
/// holds something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shards {
    /// Entries and versions, by entry.
    pub entries: u32,
    /// Chunks, by hash.
    pub chunks: u32,
    /// Upload sessions.
    pub sessions: u32,
}

impl Default for Shards {
    fn default() -> Self {
        Self {
            entries: 8,
            chunks: 16,
            sessions: 4,
        }
    }
}

impl FileSync {
    /// A service on this cloud. Tables and bucket must be there: `archetype().create(&cloud)`.
    pub fn new(cloud: Cloud) -> Self {
        Self::with_shards(cloud, Shards::default())
    }

    /// The same with other shards: tests that run every order of calls want few.
    pub fn with_shards(cloud: Cloud, shards: Shards) -> Self {
        let signer = cloud.s3().clone();
        Self {
            cloud,
            signer,
            shards,
        }
    }

    /// The same, with addresses on this host, which whoever uses them has to resolve: a signature
    /// covers the host, and transcripts want one that is the same in every run.
    pub fn with_addresses_on(&self, host: &str) -> Self {
        let config = self.cloud.s3().config().to_builder();
        let config = config.endpoint_url(format!("http://{host}")).build();
        Self {
            signer: aws_sdk_s3::Client::from_conf(config),
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
pub enum FileSyncError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// No such thing, or none that this user may see: the two are not told apart.
    #[error("there is no {0} here")]
    NotFound(&'static str),
    /// Shared for reading only.
    #[error("this is shared with you for reading only")]
    ReadOnly,
    /// Only the owner says who else may see it.
    #[error("only its owner can share it")]
    NotOwner,
    /// A later collection has begun.
    #[error("a later collection has begun; this one ends here")]
    Superseded,
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again")]
    Contended,
    /// A fault below; for an unknown outcome, ask again.
    #[error(transparent)]
    Fault(#[from] CloudError),
}
