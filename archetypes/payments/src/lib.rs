#![doc = include_str!("../README.md")]
//!
//! # The modules, in reading order
//!
//! Schema and rules: [`tables`], [`money`], [`domain`], [`items`].
//! The documents' use cases: [`create_payment`], [`idempotency`] (persist the key, retry safely),
//! [`begin_movement`] (start a charge, a capture, a void, a refund), [`mark_processing`],
//! [`send_authorization`], [`record_response`], [`mark_unknown`], [`emit_event`], [`reconcile`],
//! [`deliver_webhook`], [`view_payment`].
//! The world outside: [`processor_client`], and [`processor`], a processor to rehearse with.
//! Beyond the documents, each skippable: [`ledger`] (double entry), [`expire_authorizations`],
//! [`signature`], [`endpoint`] (where a merchant listens), [`api`], [`service`] (everything at once),
//! [`merchant`] (a receiver to watch), [`sandbox`] (all of it to rehearse in), [`simulate`]. The story that shows it all: [`walkthrough`].

pub mod api;
pub mod begin_movement;
pub mod create_payment;
pub mod deliver_webhook;
pub mod domain;
pub mod emit_event;
pub mod endpoint;
pub mod expire_authorizations;
pub mod idempotency;
pub mod items;
pub mod ledger;
pub mod mark_processing;
pub mod mark_unknown;
pub mod merchant;
pub mod money;
pub mod processor;
pub mod processor_client;
pub mod reconcile;
pub mod record_response;
pub mod sandbox;
pub mod send_authorization;
pub mod service;
pub mod signature;
pub mod simulate;
pub mod tables;
pub mod view_payment;
pub mod walkthrough;

pub use create_payment::NewPayment;
pub use idempotency::Response;
pub use processor_client::{Answer, ProcessorClient};
pub use walkthrough::archetype;

use cloud::{Cloud, CloudError, Millis};
use domain::{BadInput, Refused};
use reqwest_middleware::ClientWithMiddleware;

/// How often a step that was overtaken is decided again. Each time, somebody else got on.
pub(crate) const ATTEMPTS: u32 = 100;

/// The service: every use case is a method, in the file of its name.
#[derive(Clone)]
pub struct Payments {
    cloud: Cloud,
    processor: ProcessorClient,
    webhooks: ClientWithMiddleware,
}

impl Payments {
    /// Payments on this cloud, through this processor. `webhooks` makes the client that merchants are
    /// told by. Tables must be there: `archetype().create(&cloud)`.
    ///
    /// It follows no redirect: a login page that answers 200 has not taken an event, and a signed
    /// message is for the address that was given.
    pub fn new(
        cloud: Cloud,
        processor: ProcessorClient,
        webhooks: reqwest::ClientBuilder,
    ) -> reqwest::Result<Self> {
        let webhooks = webhooks.redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            webhooks: cloud.http(webhooks.build()?),
            cloud,
            processor,
        })
    }

    /// The same on another view of its cloud: another clock, or beside the tap.
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
pub enum PaymentsError {
    /// Wrong input; nothing was written.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// The rules say no; nothing was written, and the key is still free.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// No such payment, or not this merchant's.
    #[error("there is no payment '{0}'")]
    UnknownPayment(String),
    /// Nobody listens for this merchant.
    #[error("merchant '{0}' has no webhook endpoint")]
    UnknownMerchant(String),
    /// No such event.
    #[error("payment '{0}' has no event {1} that was given up")]
    NotGivenUp(String, u64),
    /// The key came with another request before.
    #[error(
        "the idempotency key '{0}' was used for a different request: use a new key for a new request"
    )]
    KeyReused(String),
    /// The first request with this key is still running.
    #[error(
        "a request with the idempotency key '{key}' is still running: ask again in {retry_after_ms} ms"
    )]
    InProgress {
        /// The key.
        key: String,
        /// When its lease ends.
        retry_after_ms: Millis,
    },
    /// A notice that is not the processor's.
    #[error("the notice is not signed by the processor: {0}")]
    NotSigned(#[from] signature::Invalid),
    /// A notice about nothing that was sent.
    #[error("there is no attempt '{0}'")]
    UnknownAttempt(String),
    /// Overtaken again and again; the same call may be made again.
    #[error("too many others at once; try again")]
    Contended,
    /// A fault below; for an unknown outcome, ask with the same key.
    #[error(transparent)]
    Fault(#[from] CloudError),
}
