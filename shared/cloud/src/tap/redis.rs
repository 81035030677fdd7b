//! The tap under Redis: a connection around the real one.

use super::call::{Outcome, Request, Service, Target};
use super::{Failure, Tap, current_actor};
use crate::redis_connecting::Home;
use redis::aio::{ConnectionLike, ConnectionManager};
use redis::{Arg, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, Value};
use serde_json::Value as Json;
use std::time::Duration;

/// A Redis connection whose commands pass the tap. It is a [`ConnectionLike`], so
/// `redis::AsyncCommands`, scripts and pipelines work on it as on any other.
#[derive(Clone)]
pub struct RedisConnection {
    pub(crate) tap: Option<Tap>,
    pub(crate) inner: ConnectionManager,
    /// How long a command may take, with all that happens to it at the tap.
    pub(crate) patience: Duration,
    /// Where it came from, if it is shared.
    pub(crate) home: Option<Home>,
}

impl RedisConnection {
    /// The same connection for commands that are given up after this long.
    pub fn within(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// The answer, or an error that says that none came.
async fn in_time<T: Answers>(
    home: Option<Home>,
    patience: Duration,
    answer: impl Future<Output = Result<T, RedisError>>,
) -> Result<T, RedisError> {
    let answer = match tokio::time::timeout(patience, answer).await {
        Ok(answer) => answer,
        Err(_) => {
            let late = format!("no answer in {patience:?}");
            Err(std::io::Error::new(std::io::ErrorKind::TimedOut, late).into())
        }
    };
    if let Some(home) = home {
        home.look_at(answer.as_ref().map(Answers::each));
    }
    answer
}

/// What came of one command, or of several.
trait Answers {
    fn each(&self) -> std::slice::Iter<'_, Value>;
}

impl Answers for Value {
    fn each(&self) -> std::slice::Iter<'_, Value> {
        std::slice::from_ref(self).iter()
    }
}

impl Answers for Vec<Value> {
    fn each(&self) -> std::slice::Iter<'_, Value> {
        self.iter()
    }
}

impl ConnectionLike for RedisConnection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        let Some(tap) = self.tap.clone().filter(Tap::is_on) else {
            return Box::pin(in_time(
                self.home.clone(),
                self.patience,
                self.inner.req_packed_command(cmd),
            ));
        };
        let request = describe([cmd], &tap);
        let (mut twin, copy) = (self.inner.clone(), cmd.clone());
        let inner = &mut self.inner;
        Box::pin(in_time(self.home.clone(), self.patience, async move {
            tap.pass(
                request,
                |_| inner.req_packed_command(cmd),
                |_| {
                    Some(Box::pin(
                        async move { twin.req_packed_command(&copy).await },
                    ))
                },
                |_| (Outcome::Ok, None),
                |status, body| Err(refused(status, &body)),
                fail,
            )
            .await
        }))
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        let Some(tap) = self.tap.clone().filter(Tap::is_on) else {
            let answer = self.inner.req_packed_commands(pipeline, offset, count);
            return Box::pin(in_time(self.home.clone(), self.patience, answer));
        };
        let request = describe(pipeline.cmd_iter(), &tap);
        let (mut twin, copy) = (self.inner.clone(), pipeline.clone());
        let inner = &mut self.inner;
        Box::pin(in_time(self.home.clone(), self.patience, async move {
            tap.pass(
                request,
                |_| inner.req_packed_commands(pipeline, offset, count),
                |_| {
                    Some(Box::pin(async move {
                        twin.req_packed_commands(&copy, offset, count).await
                    }))
                },
                |_| (Outcome::Ok, None),
                |status, body| Err(refused(status, &body)),
                fail,
            )
            .await
        }))
    }

    fn get_db(&self) -> i64 {
        self.inner.get_db()
    }
}

/// A command is its name and the pattern of its first key; a pipeline is several.
fn describe<'a>(commands: impl IntoIterator<Item = &'a Cmd>, tap: &Tap) -> Request {
    let words = |cmd: &Cmd| -> Vec<String> {
        cmd.args_iter()
            .map(|arg| match arg {
                Arg::Simple(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                _ => String::new(),
            })
            .collect()
    };
    let commands: Vec<Vec<String>> = commands.into_iter().map(words).collect();
    let name = |words: &[String]| words.first().cloned().unwrap_or_default().to_uppercase();
    // EVALSHA sha 1 key …: the key of a script comes after the count of keys.
    let key = |words: &[String]| {
        let at = if name(words).starts_with("EVAL") {
            3
        } else {
            1
        };
        tap.names()
            .logical(words.get(at).map_or("", String::as_str))
            .to_owned()
    };
    let guarded = |words: &[String]| {
        let guard = words
            .iter()
            .skip(2)
            .find(|word| matches!(word.as_str(), "NX" | "XX"));
        guard.cloned()
    };
    let several = commands.len() > 1;
    let targets = commands
        .iter()
        .map(|words| Target {
            verb: several.then(|| name(words)),
            condition: guarded(words),
            ..Target::of(&key(words))
        })
        .collect();
    Request {
        number: 0,
        actor: current_actor(),
        service: Service::Redis,
        operation: match commands.as_slice() {
            [one] => name(one),
            _ => "PIPELINE".to_owned(),
        },
        targets,
        body: Json::from(commands),
    }
}

fn refused(status: u16, body: &Json) -> RedisError {
    RedisError::from((
        ErrorKind::Io,
        "the tap answered",
        format!("{status} {body}"),
    ))
}

fn fail(failure: Failure) -> RedisError {
    let kind = if failure.is_timeout() {
        std::io::ErrorKind::TimedOut
    } else {
        std::io::ErrorKind::BrokenPipe
    };
    RedisError::from(std::io::Error::new(kind, failure))
}
