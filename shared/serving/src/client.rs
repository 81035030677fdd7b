//! For tests: a server on a port of its own, and a client that speaks JSON with it.

use serde_json::Value;
use std::future::Future;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
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
pub type Stop = std::pin::Pin<Box<dyn Future<Output = ()> + Send>>;

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

    /// Tells the server to stop, and waits until it has.
    pub async fn stopped(self) -> anyhow::Result<()> {
        let _ = self.stop.send(());
        match tokio::time::timeout(Duration::from_secs(5), self.task).await {
            Ok(ended) => ended?,
            Err(_) => anyhow::bail!("the server was told to stop and did not"),
        }
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
