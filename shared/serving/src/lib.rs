//! What every JSON API has: refusals in words, a place to listen, an end by Ctrl-C.
//!
//! Every refusal is `{"error": …}` with a status that says whose turn it is: 400 mend the request,
//! 404 there is no such thing, 409 the answer is no, 503 try again.

#[cfg(feature = "client")]
pub mod client;

use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use clap::{Arg, ArgMatches, value_parser};
use cloud::CloudError;
use serde_json::json;
use std::net::SocketAddr;
use tokio::net::TcpListener;

/// A refusal with its status.
#[derive(Debug)]
pub struct Refusal(pub StatusCode, pub String);

impl Refusal {
    /// 400: mend the request.
    pub fn bad_request(text: impl Into<String>) -> Self {
        Self(StatusCode::BAD_REQUEST, text.into())
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(json!({"error": self.1}))).into_response()
    }
}

/// A fault below the rules: 503 where the same may be sent again, 500 where that would not help.
impl From<&CloudError> for Refusal {
    fn from(fault: &CloudError) -> Self {
        let status = match fault {
            CloudError::Throttled(_) | CloudError::Conflict(_) | CloudError::Unknown(_) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            CloudError::Corrupt(_) | CloudError::Other(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self(status, fault.to_string())
    }
}

impl From<CloudError> for Refusal {
    fn from(fault: CloudError) -> Self {
        (&fault).into()
    }
}

/// A body as it came, readable or not.
pub type Body<T> = Result<Json<T>, JsonRejection>;

/// The body, or what is wrong with it.
pub fn body<T>(given: Body<T>) -> Result<T, Refusal> {
    match given {
        Ok(Json(body)) => Ok(body),
        Err(wrong) => Err(Refusal::bad_request(wrong.body_text())),
    }
}

/// The router, with JSON also for what it does not have.
pub fn with_fallbacks<S: Clone + Send + Sync + 'static>(router: Router<S>) -> Router<S> {
    router
        .fallback(async || Refusal(StatusCode::NOT_FOUND, "there is nothing here".into()))
        .method_not_allowed_fallback(async || {
            Refusal(
                StatusCode::METHOD_NOT_ALLOWED,
                "not with this method".into(),
            )
        })
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
