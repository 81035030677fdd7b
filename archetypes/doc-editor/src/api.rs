//! The server: a page, a WebSocket and a little JSON. `cargo run -p doc-editor -- serve`.
//!
//! `app` returns the router and the tests call it, as axum's own examples do. Refusals are those of `serving`.

use crate::bench::BENCH;
use crate::broadcast::Hub;
use crate::domain::Version;
use crate::{DocumentError, DocumentService, NewDocument, session};
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{ArgMatches, Command};
use cloud::Cloud;
use serde::Deserialize;
use serde_json::{Value, json};
use serving::{Body, Refusal, body, interrupted, listen, listen_arg, with_fallbacks};
use std::future::Future;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The most bytes of one message from a client: an operation, and what goes around it.
const MAX_MESSAGE: usize = 2 * crate::domain::MAX_OPERATION_BYTES;

/// The page, in one file.
const PAGE: &str = include_str!("page.html");

/// What the handlers share.
#[derive(Clone)]
struct App {
    hub: Hub,
    /// Turns true when the server stops: sockets never end by themselves.
    stop: watch::Receiver<bool>,
}

/// The router.
pub fn app(hub: Hub, stop: watch::Receiver<bool>) -> Router {
    let router = Router::new()
        .route("/", get(begin))
        .route("/d/{id}", get(async || Html(PAGE)))
        .route("/socket", get(socket))
        .route("/documents", post(create))
        .route("/documents/{id}", get(view))
        .route("/documents/{id}/versions/{version}", get(view_version))
        .with_state(App { hub, stop });
    with_fallbacks(router)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CreateBody {
    document_id: String,
    title: String,
    #[serde(default)]
    text: String,
}

/// A new document, under an address that can be given to others.
async fn begin(State(app): State<App>) -> Redirect {
    let id = app.hub.service().cloud().ids().next("doc");
    Redirect::to(&format!("/d/{id}"))
}

async fn socket(State(app): State<App>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .max_message_size(MAX_MESSAGE)
        .on_upgrade(move |socket| session::serve_socket(app.hub, socket, app.stop))
}

async fn create(
    State(app): State<App>,
    given: Body<CreateBody>,
) -> Result<(StatusCode, Json<Value>), Refusal> {
    let given = body(given)?;
    let new = NewDocument {
        document_id: given.document_id,
        title: given.title,
        text: given.text,
    };
    let made = app.hub.service().create_document(&new).await?;
    let shown =
        json!({"document_id": made.document_id, "title": made.title, "version": made.version});
    Ok((StatusCode::CREATED, Json(shown)))
}

async fn view(State(app): State<App>, Path(id): Path<String>) -> Result<Json<Value>, Refusal> {
    let service = app.hub.service();
    let loaded = service.load_document(&id).await;
    // Not kept for somebody who only looks.
    service.close(&id);
    let loaded = loaded?;
    Ok(Json(
        json!({"document_id": id, "version": loaded.version, "text": loaded.text}),
    ))
}

async fn view_version(
    State(app): State<App>,
    Path((id, version)): Path<(String, Version)>,
) -> Result<Json<Value>, Refusal> {
    let text = app.hub.service().text_at(&id, version).await?;
    Ok(Json(
        json!({"document_id": id, "version": version, "text": text}),
    ))
}

impl From<DocumentError> for Refusal {
    fn from(error: DocumentError) -> Self {
        let status = match &error {
            DocumentError::BadInput(_) => StatusCode::BAD_REQUEST,
            DocumentError::UnknownDocument(_) | DocumentError::UnknownVersion { .. } => {
                StatusCode::NOT_FOUND
            }
            DocumentError::IdTaken(_) => StatusCode::CONFLICT,
            DocumentError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            DocumentError::Fault(fault) => return fault.into(),
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for DocumentError {
    fn into_response(self) -> Response {
        Refusal::from(self).into_response()
    }
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the editor's page, its WebSocket and a little JSON until Ctrl-C",
    args: |command: Command| command.arg(listen_arg()),
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

/// The commands of this crate.
pub const COMMANDS: &[walkthrough::Command] = &[SERVE, BENCH];

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let listener = listen(&args).await?;
    serve_until(DocumentService::new(cloud), listener, interrupted()).await
}

/// Serves until told to stop.
pub async fn serve_until(
    service: DocumentService,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    serve_hub(Hub::start(service), listener, stop).await
}

/// The same, with a hub that somebody has made.
pub async fn serve_hub(
    hub: Hub,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    serving::serve(listener, app(hub.clone(), stopped), stop).await?;
    // Sockets are not the server's any more: let them say that their people have left.
    for _ in 0..50 {
        if hub.sessions() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}
