//! What every JSON API has: refusals in words, a place to listen, an end by Ctrl-C.
//!
//! Every refusal is `{"error": …}` with a status that says whose turn it is: 400 mend the request,
//! 404 there is no such thing, 409 the answer is no, 413 send less, 503 try again. A 500 says only that
//! something failed: what failed is for the log, not for the client.

#[cfg(feature = "client")]
pub mod client;

use axum::extract::Request;
use axum::extract::rejection::JsonRejection;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router};
use clap::{Arg, ArgMatches, value_parser};
use cloud::CloudError;
use futures::FutureExt;
use serde_json::json;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};

/// The most characters of an error: enough to say what is wrong, too few to echo what was sent.
pub const MOST_CHARACTERS: usize = 500;

/// A refusal with its status.
#[derive(Debug)]
pub struct Refusal {
    status: StatusCode,
    text: String,
    /// For the log alone.
    detail: Option<String>,
}

impl Refusal {
    /// A refusal in these words.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status,
            text: text.into(),
            detail: None,
        }
    }

    /// 400: mend the request.
    pub fn bad_request(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }

    /// 500: what failed goes to the log.
    fn failed(detail: String) -> Self {
        Self {
            status: StatusCode::INTERNAL_SERVER_ERROR,
            text: "something failed here; the log has the details".into(),
            detail: Some(detail),
        }
    }

    /// What a client is told where there is no response to carry it; what failed is logged as of `what`.
    pub fn told(self, what: &str) -> String {
        if let Some(detail) = self.detail {
            eprintln!("{what}: {}: {detail}", self.status);
        }
        shortened(self.text)
    }
}

/// What a response leaves for the log.
#[derive(Clone)]
struct Detail(String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": shortened(self.text)}));
        let mut response = (self.status, body).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            let headers = response.headers_mut();
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if let Some(detail) = self.detail {
            response.extensions_mut().insert(Detail(detail));
        }
        response
    }
}

/// At most [`MOST_CHARACTERS`] of it, and a sign that there was more.
pub fn shortened(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(MOST_CHARACTERS) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A fault below the rules: 503 where the same may be sent again, 500 where that would not help.
impl From<&CloudError> for Refusal {
    fn from(fault: &CloudError) -> Self {
        let text = match fault {
            CloudError::Throttled(_) => "too much at once: send the same again",
            CloudError::Conflict(_) => "another request was faster: send the same again",
            CloudError::Unknown(_) => "the outcome is unknown: send the same again",
            CloudError::Corrupt(_) | CloudError::Other(_) => {
                return Self::failed(fault.to_string());
            }
        };
        Self {
            detail: Some(fault.to_string()),
            ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
        }
    }
}

impl From<CloudError> for Refusal {
    fn from(fault: CloudError) -> Self {
        (&fault).into()
    }
}

/// A body as it came, readable or not.
pub type Body<T> = Result<Json<T>, JsonRejection>;

/// The body, or what is wrong with it: 413 too long, 415 not called JSON, 400 anything else.
pub fn body<T>(given: Body<T>) -> Result<T, Refusal> {
    match given {
        Ok(Json(body)) => Ok(body),
        Err(wrong @ JsonRejection::JsonDataError(_)) => {
            Err(Refusal::bad_request(wrong.body_text()))
        }
        Err(wrong) => Err(Refusal::new(wrong.status(), wrong.body_text())),
    }
}

/// The router, with JSON also for what it does not have and for what axum refuses by itself.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(async || Refusal::new(StatusCode::NOT_FOUND, "there is nothing here"))
        .method_not_allowed_fallback(async || {
            Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "not with this method")
        })
        .layer(from_fn(finish_what_began))
        .layer(from_fn(in_words))
}

/// A client that hangs up makes axum drop the handler wherever it waits, also between two writes. So what
/// may change something runs in a task of its own, which ends when it is done. What only reads is dropped.
/// Both log what a failure left for the log: after a hang-up nothing else would.
async fn finish_what_began(request: Request, next: Next) -> Response {
    let (method, uri) = (request.method().clone(), request.uri().clone());
    let under_way = request.extensions().get::<UnderWay>().cloned();
    let work = cloud::as_actor(cloud::tap::current_actor(), next.run(request));
    let is_safe = method.is_safe();
    let work = async move {
        let _under_way = under_way;
        let response = match AssertUnwindSafe(work).catch_unwind().await {
            Ok(response) => response,
            Err(_) => Refusal::failed("the handler panicked".to_owned()).into_response(),
        };
        if let Some(Detail(detail)) = response.extensions().get() {
            eprintln!("{method} {}: {}: {detail}", uri.path(), response.status());
        }
        response
    };
    if is_safe {
        return work.await;
    }
    match tokio::spawn(work).await {
        Ok(response) => response,
        Err(ended) => Refusal::failed(ended.to_string()).into_response(),
    }
}

/// Says in JSON what axum says in plain text: a path that is no UTF-8, a number that is none, a query that does not read, a WebSocket's address without an upgrade.
async fn in_words(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    let is_json = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/json");
    if !refused || response.headers().get(CONTENT_TYPE).is_some_and(is_json) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let text = axum::body::to_bytes(body, 1 << 20).await;
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = match text {
        Ok(text) if !text.is_empty() => text,
        _ => status.canonical_reason().unwrap_or("refused").to_owned(),
    };
    // The other headers stay: they say what would be right.
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.remove(CONTENT_TYPE);
    (parts, Refusal::new(status, text)).into_response()
}

/// `--listen ADDRESS`.
pub fn listen_arg() -> Arg {
    Arg::new("listen")
        .long("listen")
        .value_name("ADDRESS")
        .default_value("127.0.0.1:8080")
        .value_parser(value_parser!(SocketAddr))
        .help("Where to listen; port 0 lets the system choose")
}

/// Listens where `--listen` says, and says so on standard output.
pub async fn listen(args: &ArgMatches) -> anyhow::Result<TcpListener> {
    let address = args.get_one::<SocketAddr>("listen").copied();
    let address = address.unwrap_or_else(|| ([127, 0, 0, 1], 8080).into());
    let listener = TcpListener::bind(address)
        .await
        .map_err(|error| anyhow::anyhow!("cannot listen on {address}: {error}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    Ok(listener)
}

/// How long requests under way may take to end when the server is to stop. Docker kills after ten seconds.
pub const LAST_CALL: Duration = Duration::from_secs(5);

/// Held by each request under way, also after its client has hung up.
#[derive(Clone)]
struct UnderWay {
    _until_dropped: mpsc::Sender<()>,
}

/// Serves until told to stop, and then until the requests under way have ended, at most [`LAST_CALL`]: a
/// client that sent half a request and keeps its connection would hold up the end for ever. What still runs
/// then ends with the process, like a crash.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let (stopping, stopped) = oneshot::channel();
    let (_until_dropped, mut all_done) = mpsc::channel::<()>(1);
    let router = router.layer(Extension(UnderWay { _until_dropped }));
    let serving = axum::serve(listener, router).with_graceful_shutdown(async move {
        stop.await;
        let _ = stopping.send(());
    });
    let last_call = async {
        let _ = stopped.await;
        tokio::time::sleep(LAST_CALL).await;
    };
    let served = async {
        serving.await?;
        // Nothing comes here. It ends when the last request has.
        all_done.recv().await;
        anyhow::Ok(())
    };
    tokio::select! {
        served = served => served,
        () = last_call => {
            eprintln!("stopped with requests under way");
            Ok(())
        }
    }
}

/// Ctrl-C, or what a supervisor sends.
pub async fn interrupted() {
    #[cfg(unix)]
    if let Ok(mut term) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
    {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        }
        return;
    }
    let _ = tokio::signal::ctrl_c().await;
}
