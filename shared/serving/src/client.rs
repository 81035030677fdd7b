//! For tests: a server on a port of its own, and a client that speaks JSON with it.

use cloud::Tap;
use cloud::tap::{Plan, Request, Verdict};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinHandle;

/// A server that runs until it is dropped or stopped.
pub struct Served {
    /// `http://127.0.0.1:PORT`
    pub base: String,
    /// For requests other than JSON.
    pub http: reqwest::Client,
    stop: oneshot::Sender<()>,
    task: JoinHandle<anyhow::Result<()>>,
}

/// What ends when the server is to stop.
pub type Stop = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Served {
    /// Starts what `serve` returns, on a port that the system chose.
    pub async fn start<F>(serve: impl FnOnce(TcpListener, Stop) -> F) -> anyhow::Result<Self>
    where
        F: Future<Output = anyhow::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let base = format!("http://{}", listener.local_addr()?);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped: Stop = Box::pin(async move {
            let _ = stopped.await;
        });
        Ok(Self {
            base,
            http: reqwest::Client::new(),
            stop,
            task: tokio::spawn(serve(listener, stopped)),
        })
    }

    /// Posts JSON; gives the status and the JSON that came back.
    pub async fn post(&self, path: &str, body: Value) -> (u16, Value) {
        let request = self.http.post(format!("{}{path}", self.base)).json(&body);
        answer(request).await
    }

    /// Gets JSON.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        answer(self.http.get(format!("{}{path}", self.base))).await
    }

    /// Posts JSON, and hangs up while the first call that `held` is true of waits at the tap. The call goes on
    /// when the server has let go of the connection.
    pub async fn post_and_hang_up(
        &self,
        path: &str,
        body: Value,
        tap: &Tap,
        held: fn(&Request) -> bool,
    ) -> anyhow::Result<()> {
        let hold = Arc::new(HoldFirst::of(held));
        let _installed = tap.install(hold.clone());
        let host = self.base.trim_start_matches("http://");
        let mut socket = TcpStream::connect(host).await?;
        let (body, json) = (body.to_string(), "content-type: application/json");
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: {host}\r\n{json}\r\n");
        let sent = format!("{head}content-length: {length}\r\n\r\n{body}");
        socket.write_all(sent.as_bytes()).await?;
        hold.waits.acquire().await?.forget();
        socket.shutdown().await?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await?;
        anyhow::ensure!(answer.is_empty(), "an answer came first: {answer}");
        hold.goes_on.add_permits(1);
        Ok(())
    }

    /// Posts a body again and again, each time with one value at its limit or beyond, and with a fresh body
    /// from `sample` (a number for its ids), so that no answer depends on an earlier one. Every answer must
    /// be a yes, or a refusal in a few words; a 500 says that a text went where it does not fit. The sample
    /// itself goes first and must get a yes: one that is refused would meet nothing behind the handler.
    /// Gives how many other bodies were sent, or every answer that was wrong.
    pub async fn post_at_the_limits(
        &self,
        path: &str,
        sample: impl Fn(usize) -> Value,
    ) -> Result<usize, String> {
        let (status, answer) = self.post(path, sample(0)).await;
        if !(200..300).contains(&status) {
            return Err(format!(
                "{path} refuses the sample itself: {status} {answer}"
            ));
        }
        let mut wrong = Vec::new();
        let mut sent = 0;
        for place in places(&sample(0)) {
            for variant in 0.. {
                let mut body = sample(sent + 1);
                let value = body.pointer_mut(&place);
                let Some(strange) = value.and_then(|value| at_the_limits(value, variant)) else {
                    break;
                };
                let Strange { what, value } = strange;
                if let Some(at) = body.pointer_mut(&place) {
                    *at = value;
                }
                sent += 1;
                let (status, answer) = self.post(path, body).await;
                let refused = answer["error"].as_str().map(|text| text.chars().count());
                let in_words = refused
                    .is_some_and(|length| (1..=crate::MOST_CHARACTERS + 1).contains(&length));
                let refused_well = (400..500).contains(&status) && in_words;
                if !((200..300).contains(&status) || refused_well) {
                    wrong.push(format!("{path} with {what} at {place}: {status} {answer}"));
                }
            }
        }
        if wrong.is_empty() {
            Ok(sent)
        } else {
            Err(wrong.join("\n"))
        }
    }

    /// Tells the server to stop, and waits until it has.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        match tokio::time::timeout(crate::LAST_CALL * 2, self.task).await {
            Ok(ended) => ended?,
            Err(_) => anyhow::bail!("the server was told to stop and did not"),
        }
    }
}

/// A plan that holds the first call of a kind.
struct HoldFirst {
    held: fn(&Request) -> bool,
    seen: AtomicBool,
    waits: Semaphore,
    goes_on: Semaphore,
}

impl HoldFirst {
    fn of(held: fn(&Request) -> bool) -> Self {
        Self {
            held,
            seen: AtomicBool::new(false),
            waits: Semaphore::new(0),
            goes_on: Semaphore::new(0),
        }
    }
}

impl Plan for HoldFirst {
    fn before<'a>(
        &'a self,
        request: &'a Request,
    ) -> Pin<Box<dyn Future<Output = Verdict> + Send + 'a>> {
        Box::pin(async move {
            if (self.held)(request) && !self.seen.swap(true, Ordering::SeqCst) {
                self.waits.add_permits(1);
                let _ = self.goes_on.acquire().await;
            }
            Verdict::Pass
        })
    }
}

/// A value that a client may send and no sample has.
struct Strange {
    what: String,
    value: Value,
}

/// Where the values of a body are, as JSON pointers: texts, numbers and lists.
fn places(body: &Value) -> Vec<String> {
    let below = |step: String, value: &Value| {
        let places = places(value).into_iter();
        places.map(move |place| format!("/{step}{place}"))
    };
    match body {
        Value::Object(fields) => (fields.iter())
            .flat_map(|(name, value)| below(name.replace('~', "~0").replace('/', "~1"), value))
            .collect(),
        Value::Array(values) => {
            let each = values.iter().enumerate();
            let each = each.flat_map(|(place, value)| below(place.to_string(), value));
            std::iter::once(String::new()).chain(each).collect()
        }
        Value::String(_) | Value::Number(_) => vec![String::new()],
        Value::Null | Value::Bool(_) => Vec::new(),
    }
}

/// The variants of a value, until there is none.
fn at_the_limits(value: &Value, variant: usize) -> Option<Strange> {
    // DynamoDB takes 400 KB an item and 2 KB a partition key, SQS 256 KB a message.
    const LENGTHS: [usize; 8] = [0, 1, 200, 1_025, 2_049, 65_537, 262_145, 420_000];
    const ODD: [&str; 8] = [
        " ", "\0", "a\nb", "\u{feff}", "\u{ffff}", "e\u{301}", "\u{202e}", "#/:|,{}",
    ];
    let (what, value) = match value {
        Value::String(_) if variant < LENGTHS.len() => {
            let length = LENGTHS[variant];
            (format!("{length} bytes"), Value::from("x".repeat(length)))
        }
        // A limit in characters lets through twice as many bytes.
        Value::String(_) if variant < 2 * LENGTHS.len() => {
            let length = LENGTHS[variant - LENGTHS.len()];
            let what = format!("{length} characters of two bytes");
            (what, Value::from("ä".repeat(length)))
        }
        Value::String(_) => {
            let odd = *ODD.get(variant - 2 * LENGTHS.len())?;
            (format!("{odd:?}"), Value::from(odd))
        }
        Value::Number(_) => {
            let numbers = [
                Value::from(0),
                Value::from(-1),
                Value::from(i64::MIN),
                Value::from(i64::MAX),
                Value::from(u64::MAX),
                Value::from(0.5),
                Value::from(1e308),
            ];
            let number = numbers.get(variant)?.clone();
            (number.to_string(), number)
        }
        Value::Array(values) => {
            let (length, different) = *[
                (0, false),
                (1, false),
                (101, false),
                (101, true),
                (5_000, false),
                (5_000, true),
            ]
            .get(variant)?;
            let first = values.first().cloned().unwrap_or(Value::Null);
            let elements: Vec<_> = (0..length)
                .map(|number| match different {
                    true => numbered(&first, number),
                    false => first.clone(),
                })
                .collect();
            let what = if different { "different" } else { "equal" };
            (format!("{length} {what} elements"), elements.into())
        }
        _ => return None,
    };
    Some(Strange { what, value })
}

/// An element like this one, told apart by a number in each of its texts.
fn numbered(element: &Value, number: usize) -> Value {
    match element {
        Value::String(text) => Value::from(format!("{text}{number}")),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), numbered(value, number)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        other => other.clone(),
    }
}

async fn answer(request: reqwest::RequestBuilder) -> (u16, Value) {
    let sent = match request.send().await {
        Ok(sent) => sent,
        Err(error) => return (0, Value::String(error.to_string())),
    };
    let status = sent.status().as_u16();
    let text = sent.text().await.unwrap_or_default();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}
