//! Where the connection to Redis comes from. All of a process share one: who asks while it is being made waits for
//! the same attempt, and after a command got no answer the next one who asks gets a new one. A connection whose
//! host is gone would otherwise be kept until the kernel gives it up, a quarter of an hour later.

use crate::{ConnectError, Patience, embedded};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use redis::ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, ReadOnly};
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{ErrorKind, RedisError, ServerErrorKind, Value};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) enum RedisAddress {
    At(String),
    /// Started when it is first asked for.
    Embedded(Option<PathBuf>),
    /// Not known, and why. An error only for those who use it.
    Missing(String),
}

pub(crate) struct Redis {
    address: RedisAddress,
    slot: Mutex<Slot>,
}

/// The attempt that is shared, under way or made, and how many there were.
#[derive(Default)]
struct Slot {
    number: u64,
    attempt: Option<Attempt>,
}

/// Its error is the text of a [`ConnectError::Redis`].
type Attempt = Shared<BoxFuture<'static, Result<ConnectionManager, String>>>;

/// Where a shared connection came from, so that a bad one is not handed out again.
#[derive(Clone)]
pub(crate) struct Home {
    redis: Arc<Redis>,
    number: u64,
}

impl Home {
    /// Looks at what came of commands. A Redis that is silent, that became a replica or that loads is not the one
    /// to go on with.
    pub(crate) fn look_at<'a>(
        &self,
        answers: Result<impl Iterator<Item = &'a Value>, &RedisError>,
    ) {
        let is_bad = match answers {
            Ok(mut answers) => answers.any(|answer| match answer {
                Value::ServerError(error) => error.kind().is_some_and(is_another_server),
                _ => false,
            }),
            Err(error) => match error.kind() {
                ErrorKind::Server(kind) => is_another_server(kind),
                _ => error.is_timeout(),
            },
        };
        if is_bad {
            self.redis.forget(self.number);
        }
    }
}

fn is_another_server(kind: ServerErrorKind) -> bool {
    matches!(kind, BusyLoading | ClusterDown | MasterDown | ReadOnly)
}

impl Redis {
    pub(crate) fn at(address: RedisAddress) -> Self {
        Self {
            address,
            slot: Mutex::default(),
        }
    }

    pub(crate) fn client(&self) -> Result<redis::Client, ConnectError> {
        let url = match &self.address {
            RedisAddress::At(url) => url.clone(),
            RedisAddress::Embedded(data) => embedded::redis_server::address(data.as_deref())?,
            RedisAddress::Missing(why) => return Err(ConnectError::Redis(why.clone())),
        };
        redis::Client::open(url).map_err(|error| ConnectError::Redis(error.to_string()))
    }

    /// A connection of its own.
    pub(crate) fn connect(
        &self,
        patience: Patience,
    ) -> Result<impl Future<Output = Result<ConnectionManager, ConnectError>> + use<>, ConnectError>
    {
        let client = self.client()?;
        // Half a second, the default, is less than a busy laptop may take to schedule a
        // thread: a lost answer would then be the machine's doing, not the test's.
        // Nor are there retries beneath a command: they would hold up all who wait for the
        // same connection. The next command connects anew.
        let patient = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(patience.redis))
            .set_response_timeout(Some(patience.redis))
            .set_number_of_retries(0);
        Ok(async move {
            let connecting = client.get_connection_manager_with_config(patient).await;
            connecting.map_err(|error| ConnectError::Redis(error.to_string()))
        })
    }

    /// The connection of all.
    pub(crate) async fn shared(
        self: &Arc<Self>,
        patience: Patience,
    ) -> Result<(ConnectionManager, Home), ConnectError> {
        let (number, attempt) = self.attempt(patience)?;
        match attempt.await {
            Ok(connection) => {
                let redis = Arc::clone(self);
                Ok((connection, Home { redis, number }))
            }
            Err(why) => {
                self.forget(number);
                Err(ConnectError::Redis(why))
            }
        }
    }

    fn attempt(&self, patience: Patience) -> Result<(u64, Attempt), ConnectError> {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(attempt) = &slot.attempt {
            return Ok((slot.number, attempt.clone()));
        }
        let connecting = self.connect(patience)?;
        let words = |error| match error {
            ConnectError::Redis(why) => why,
            other => other.to_string(),
        };
        let attempt = connecting.map(move |made| made.map_err(words));
        let attempt = attempt.boxed().shared();
        slot.number += 1;
        slot.attempt = Some(attempt.clone());
        Ok((slot.number, attempt))
    }

    /// The next one who asks connects anew, unless a newer attempt is there already.
    fn forget(&self, number: u64) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if slot.number == number {
            slot.attempt = None;
        }
    }
}
