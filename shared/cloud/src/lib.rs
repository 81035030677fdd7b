//! Where clients come from.
//!
//! [`connect`] gives a [`Cloud`]: plain SDK clients for DynamoDB, DynamoDB Streams, SQS and S3, a
//! Redis connection, outgoing HTTP, a [`Clock`], [`Ids`] and [`Names`]. Which services run behind it is one
//! switch, read in [`backend`]. Every call the clients make passes the [`tap`].
//!
//! In reading order:
//! - [`backend`]: the switch and its three settings, embedded, docker and aws;
//! - [`tables`]: tables as data;
//! - [`guard`]: what became of a guarded write;
//! - [`item`]: states as items;
//! - [`tap`]: the seam everything passes;
//! - [`clock`], [`ids`], [`names`]: what tests turn, count and prefix.

mod aws;
pub mod backend;
#[cfg(feature = "s3")]
mod bucket;
#[cfg(feature = "s3")]
mod bucket_owner;
pub mod clock;
mod docker;
mod embedded;
pub mod guard;
pub mod ids;
pub mod item;
mod metering;
pub mod names;
pub mod patience;
#[cfg(feature = "redis")]
mod redis_connecting;
pub mod tables;
pub mod tap;
pub mod text;

pub use backend::{
    Backend, ConnectError, Options, TEST_EPOCH, connect, connect_alone_for_tests,
    connect_for_tests, connect_with,
};
pub use clock::{Clock, Millis};
pub use guard::{Cancellation, CloudError, Guard, Guarded, GuardedTransaction, Item, Transaction};
pub use ids::Ids;
pub use names::Names;
pub use patience::Patience;
#[cfg(feature = "redis")]
pub use tap::redis::RedisConnection;
pub use tap::{Tap, as_actor};

#[cfg(feature = "redis")]
use redis_connecting::{Home, Redis, RedisAddress};

use aws_config::{BehaviorVersion, Region, SdkConfig};
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_smithy_runtime_api::client::http::SharedHttpClient;
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Clients and what goes with them. Clones share everything.
#[derive(Clone)]
pub struct Cloud {
    backend: Backend,
    clients: Clients,
    beside: Clients,
    clock: Clock,
    ids: Ids,
    names: Names,
    tap: Tap,
    #[cfg(feature = "redis")]
    patience: Patience,
    #[cfg(feature = "redis")]
    redis: Arc<Redis>,
    /// Embedded servers stop when the last clone is gone.
    _keep: Arc<dyn Any + Send + Sync>,
}

#[derive(Clone)]
struct Clients {
    dynamodb: aws_sdk_dynamodb::Client,
    #[cfg(feature = "streams")]
    streams: aws_sdk_dynamodbstreams::Client,
    #[cfg(feature = "sqs")]
    sqs: aws_sdk_sqs::Client,
    #[cfg(feature = "s3")]
    s3: aws_sdk_s3::Client,
    #[cfg(any(feature = "redis", feature = "http"))]
    tapped: bool,
}

/// What a backend brings.
struct Parts {
    shared: SdkConfig,
    http: SharedHttpClient,
    /// DynamoDB and Streams, SQS, S3: where the backend chose the address.
    endpoints: [Option<String>; 3],
    path_style: bool,
    /// The account that every bucket must belong to, where accounts exist.
    #[cfg(feature = "s3")]
    bucket_owner: Option<String>,
    #[cfg(feature = "redis")]
    redis: RedisAddress,
    keep: Arc<dyn Any + Send + Sync>,
}

const LOCAL_KEY: &str = "archetypes";
const LOCAL_SECRET: &str = "archetypes-secret";

/// The configuration for services on this machine.
fn local_config() -> SdkConfig {
    let credentials = Credentials::new(LOCAL_KEY, LOCAL_SECRET, None, None, "archetypes");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        // The SDK's own retries stay, as in life; only their pauses are short.
        .retry_config(
            aws_config::retry::RetryConfig::standard()
                .with_initial_backoff(Duration::from_millis(1))
                .with_max_backoff(Duration::from_millis(5)),
        )
        .build()
}

impl Cloud {
    fn new(backend: Backend, options: &Options, parts: Parts) -> Self {
        let names = options.names();
        let tap = Tap::new(names.clone());
        let tapped = SharedHttpClient::new(tap::http::TappedClient {
            tap: tap.clone(),
            inner: parts.http.clone(),
        });
        Self {
            backend,
            clients: Clients::new(&parts, tapped, Some(&tap)),
            beside: Clients::new(&parts, parts.http.clone(), None),
            clock: options.clock.clone(),
            ids: options.ids.clone(),
            names,
            tap,
            #[cfg(feature = "redis")]
            patience: Patience::DEFAULT,
            #[cfg(feature = "redis")]
            redis: Arc::new(Redis::at(parts.redis)),
            _keep: parts.keep,
        }
    }

    /// Which backend this is.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// The DynamoDB client.
    pub fn dynamodb(&self) -> &aws_sdk_dynamodb::Client {
        &self.clients.dynamodb
    }

    /// The DynamoDB Streams client.
    #[cfg(feature = "streams")]
    pub fn streams(&self) -> &aws_sdk_dynamodbstreams::Client {
        &self.clients.streams
    }

    /// The SQS client.
    #[cfg(feature = "sqs")]
    pub fn sqs(&self) -> &aws_sdk_sqs::Client {
        &self.clients.sqs
    }

    /// The S3 client.
    #[cfg(feature = "s3")]
    pub fn s3(&self) -> &aws_sdk_s3::Client {
        &self.clients.s3
    }

    /// The clock.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The same cloud seen by somebody with another clock: clocks differ, and tests make them.
    pub fn with_clock(&self, clock: Clock) -> Self {
        Self {
            clock,
            ..self.clone()
        }
    }

    /// The same cloud with clients that wait this long for what hangs.
    pub fn with_patience(&self, patience: Patience) -> Self {
        Self {
            clients: self.clients.with_patience(patience),
            beside: self.beside.with_patience(patience),
            #[cfg(feature = "redis")]
            patience,
            ..self.clone()
        }
    }

    /// The same cloud with its Redis at this address: for tests of a Redis that is away.
    #[cfg(feature = "redis")]
    pub fn with_redis_at(&self, url: &str) -> Self {
        Self {
            redis: Arc::new(Redis::at(RedisAddress::At(url.to_owned()))),
            ..self.clone()
        }
    }

    /// The same cloud, taken for one of this backend: for tests of what differs there.
    pub fn as_backend(&self, backend: Backend) -> Self {
        Self {
            backend,
            ..self.clone()
        }
    }

    /// Now, in epoch milliseconds.
    pub fn now(&self) -> Millis {
        self.clock.now()
    }

    /// The ids.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// The names.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The tap.
    pub fn tap(&self) -> &Tap {
        &self.tap
    }

    /// The same cloud with clients that do not pass the tap: for looking at items without being
    /// seen, and for setting up.
    pub fn beside_tap(&self) -> Self {
        Self {
            clients: self.beside.clone(),
            ..self.clone()
        }
    }

    /// This HTTP client, with requests that pass the tap. Its settings (timeouts, redirects, who
    /// resolves names) are the archetype's own. What a redirect policy follows is one call.
    #[cfg(feature = "http")]
    pub fn http(&self, client: reqwest::Client) -> reqwest_middleware::ClientWithMiddleware {
        let plain = client.clone();
        let client = reqwest_middleware::ClientBuilder::new(client);
        if self.clients.tapped {
            let tapped = tap::outgoing::Tapped {
                tap: self.tap.clone(),
                client: plain,
            };
            client.with(tapped).build()
        } else {
            client.build()
        }
    }

    /// A Redis connection. Connects when it is first asked for, and anew after a command on it got no answer.
    #[cfg(feature = "redis")]
    pub async fn redis(&self) -> Result<RedisConnection, ConnectError> {
        let (inner, home) = self.redis.shared(self.patience).await?;
        Ok(self.tapped(inner, Some(home)))
    }

    /// A Redis connection made now, for one who keeps it.
    #[cfg(feature = "redis")]
    pub async fn redis_anew(&self) -> Result<RedisConnection, ConnectError> {
        Ok(self.tapped(self.redis.connect(self.patience)?.await?, None))
    }

    #[cfg(feature = "redis")]
    fn tapped(&self, inner: redis::aio::ConnectionManager, home: Option<Home>) -> RedisConnection {
        RedisConnection {
            tap: self.clients.tapped.then(|| self.tap.clone()),
            inner,
            patience: self.patience.redis,
            home,
        }
    }

    /// A connection for subscribing. What is published passes the tap; what arrives does not.
    #[cfg(feature = "redis")]
    pub async fn redis_subscriber(&self) -> Result<redis::aio::PubSub, ConnectError> {
        let client = self.redis.client()?;
        match tokio::time::timeout(self.patience.redis, client.get_async_pubsub()).await {
            Ok(connected) => connected.map_err(|error| ConnectError::Redis(error.to_string())),
            Err(_) => Err(ConnectError::Redis("it did not answer".into())),
        }
    }
}

impl Parts {
    /// The shared configuration with this HTTP client and, where the backend chose one, this
    /// address. Without one the SDK's own environment decides.
    fn config(&self, http: &SharedHttpClient, endpoint: &Option<String>) -> SdkConfig {
        let mut config = self.shared.to_builder().http_client(http.clone());
        if endpoint.is_some() {
            config.set_endpoint_url(endpoint.clone());
        }
        config.build()
    }
}

impl Clients {
    fn with_patience(&self, patience: Patience) -> Self {
        let dynamodb = self.dynamodb.config().to_builder();
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(
                dynamodb.timeout_config(patience.dynamodb()).build(),
            ),
            #[cfg(feature = "streams")]
            streams: aws_sdk_dynamodbstreams::Client::from_conf(
                (self.streams.config().to_builder())
                    .timeout_config(patience.dynamodb())
                    .build(),
            ),
            #[cfg(feature = "sqs")]
            sqs: aws_sdk_sqs::Client::from_conf(
                (self.sqs.config().to_builder())
                    .timeout_config(patience.sqs())
                    .build(),
            ),
            #[cfg(feature = "s3")]
            s3: aws_sdk_s3::Client::from_conf(
                (self.s3.config().to_builder())
                    .timeout_config(patience.s3())
                    .stalled_stream_protection(patience.stall())
                    .build(),
            ),
            #[cfg(any(feature = "redis", feature = "http"))]
            tapped: self.tapped,
        }
    }

    fn new(parts: &Parts, http: SharedHttpClient, tap: Option<&Tap>) -> Self {
        let [dynamodb, sqs, s3] = &parts.endpoints;
        let _ = (sqs, s3, parts.path_style);
        let at = |endpoint| parts.config(&http, endpoint);
        let mut config = aws_sdk_dynamodb::config::Builder::from(&at(dynamodb));
        if let Some(tap) = tap {
            config = config.interceptor(metering::AskForCapacity(tap.clone()));
        }
        #[cfg(feature = "s3")]
        let s3 = {
            let mut config = aws_sdk_s3::config::Builder::from(&at(s3));
            if let Some(account) = &parts.bucket_owner {
                config = config.interceptor(bucket_owner::Expect(account.clone()));
            }
            config.force_path_style(parts.path_style).build()
        };
        Self {
            dynamodb: aws_sdk_dynamodb::Client::from_conf(config.build()),
            #[cfg(feature = "streams")]
            streams: aws_sdk_dynamodbstreams::Client::new(&at(dynamodb)),
            #[cfg(feature = "sqs")]
            sqs: aws_sdk_sqs::Client::new(&at(sqs)),
            #[cfg(feature = "s3")]
            s3: aws_sdk_s3::Client::from_conf(s3),
            #[cfg(any(feature = "redis", feature = "http"))]
            tapped: tap.is_some(),
        }
        .with_patience(Patience::DEFAULT)
    }
}
