//! For tests: a server on a port of its own, and a client that speaks JSON with it.

use cloud::Tap;
use cloud::tap::{Plan, Request, Verdict};
use serde_json::Value;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
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

    /// Tells the server to stop, and waits until it has.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        match tokio::time::timeout(Duration::from_secs(5), self.task).await {
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
