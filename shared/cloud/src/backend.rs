//! One switch, read in one file: `ARCHETYPES_BACKEND` = `embedded` (default), `docker` or `aws`.

use crate::clock::{Clock, Millis};
use crate::ids::Ids;
use crate::names::Names;
use crate::{Cloud, aws, docker, embedded};
use std::path::PathBuf;
use std::str::FromStr;

/// Where the services run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// In this process, on loopback. Nothing to install, nothing to start.
    Embedded,
    /// LocalStack and Redis in containers that this process starts and that end with it.
    Docker,
    /// Whatever the AWS SDK's own environment says, and `REDIS_URL`.
    Aws,
}

impl FromStr for Backend {
    type Err = ConnectError;

    fn from_str(text: &str) -> Result<Self, ConnectError> {
        match text {
            "embedded" => Ok(Self::Embedded),
            "docker" => Ok(Self::Docker),
            "aws" => Ok(Self::Aws),
            other => Err(ConnectError::UnknownBackend(other.to_owned())),
        }
    }
}

/// Why there is no cloud. Each says what is missing and what to do.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The switch holds a word that is no backend.
    #[error(
        "there is no backend '{0}': use embedded, docker or aws (ARCHETYPES_BACKEND or --backend)"
    )]
    UnknownBackend(String),
    /// Built without the docker feature.
    #[error(
        "this build cannot start containers: run the same command with the docker feature, as in\n  \
         cargo test -p auction --features cloud/docker"
    )]
    WithoutDocker,
    /// No engine answered, or it could not start a container.
    #[error(
        "the docker backend needs a running Docker engine, and none could be used: {0}\n  \
         start Docker (or set DOCKER_HOST), check it with `docker info`, and run this again;\n  \
         or leave ARCHETYPES_BACKEND unset to use the embedded backend, which needs nothing"
    )]
    NoEngine(String),
    /// The SDK found no region.
    #[error(
        "the aws backend found no region: set AWS_REGION (and AWS_PROFILE or credentials), or AWS_ENDPOINT_URL for a compatible store"
    )]
    NoRegion,
    /// The account that the buckets must belong to is not known.
    #[cfg(feature = "s3")]
    #[error(
        "the aws backend cannot tell which account the buckets must belong to: {0}\n  \
         set AWS_ACCOUNT_ID beside the credentials, or aws_account_id in the profile"
    )]
    NoAccount(String),
    /// Redis was asked for and is not there.
    #[error("no Redis: {0}")]
    Redis(String),
    /// Another process uses the data directory.
    #[error(
        "{0} is in use by another process: stop that one first, or choose another --data directory"
    )]
    DataInUse(PathBuf),
    /// The embedded servers could not start.
    #[error("the embedded backend could not start: {0}")]
    Embedded(String),
}

/// How to connect. [`Options::from_env`] is what [`connect`] uses.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which backend.
    pub backend: Backend,
    /// Keep the embedded store here. Queues are not kept: sweepers rebuild them.
    pub data: Option<PathBuf>,
    /// Begin every name with this. Without one, each connection gets its own.
    pub prefix: Option<String>,
    /// The clock.
    pub clock: Clock,
    /// The ids.
    pub ids: Ids,
}

impl Options {
    /// The environment's choice: `ARCHETYPES_BACKEND`, `ARCHETYPES_DATA`, `ARCHETYPES_PREFIX`.
    pub fn from_env() -> Result<Self, ConnectError> {
        let set = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Ok(Self {
            backend: match set("ARCHETYPES_BACKEND") {
                Some(backend) => backend.parse()?,
                None => Backend::Embedded,
            },
            data: set("ARCHETYPES_DATA").map(PathBuf::from),
            prefix: set("ARCHETYPES_PREFIX"),
            clock: Clock::System,
            ids: Ids::Uuid,
        })
    }

    /// A prefix for names: the given one, a lasting one for a lasting store, else a fresh one.
    pub(crate) fn names(&self) -> Names {
        match (&self.prefix, &self.data) {
            (Some(prefix), _) => Names::new(&format!("{}-", prefix.trim_end_matches('-'))),
            (None, Some(_)) => Names::new("archetypes-"),
            (None, None) => Names::new(&format!("archetypes-{}-", fresh())),
        }
    }
}

/// Eight characters that no other connection has: the random end of a UUIDv7.
fn fresh() -> String {
    let id = uuid::Uuid::now_v7().simple().to_string();
    id[id.len() - 8..].to_owned()
}

/// When clocks in tests and walkthroughs begin: 2026-01-01T00:00:00Z.
pub const TEST_EPOCH: Millis = 1_767_225_600_000;

/// Connects to the backend the environment chooses.
pub async fn connect() -> Result<Cloud, ConnectError> {
    connect_with(Options::from_env()?).await
}

/// Connects to the backend the environment chooses, with a manual clock that stands at
/// [`TEST_EPOCH`] and counted ids: what tests and walkthroughs use.
///
/// Embedded, each call gives a cloud of its own. On docker and aws the tables are made once for
/// the process, because AWS takes seconds to make one; there the ids differ in every call.
pub async fn connect_for_tests() -> Result<Cloud, ConnectError> {
    static PROCESS: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    connect_with(test_options(PROCESS.get_or_init(fresh))?).await
}

/// The same, on tables that nothing else uses, on any backend: for tests of sweepers, which act on
/// whatever they find. Slow on aws.
pub async fn connect_alone_for_tests() -> Result<Cloud, ConnectError> {
    connect_with(test_options(&fresh())?).await
}

fn test_options(shared: &str) -> Result<Options, ConnectError> {
    let mut options = Options::from_env()?;
    options.clock = Clock::manual(TEST_EPOCH);
    options.ids = Ids::counted();
    if options.backend != Backend::Embedded {
        options.ids = Ids::counted_after(&format!("{}-", fresh()));
        let prefix = options.prefix.as_deref().unwrap_or("archetypes");
        options.prefix = Some(format!("{prefix}-{shared}"));
    }
    Ok(options)
}

/// Connects as told.
pub async fn connect_with(options: Options) -> Result<Cloud, ConnectError> {
    match options.backend {
        Backend::Embedded => embedded::connect(options).await,
        Backend::Docker => docker::connect(options).await,
        Backend::Aws => aws::connect(options).await,
    }
}
