//! A small JSON API for curl: `cargo run -p tagging -- serve`.
//!
//! `app` returns the router and the tests call it, as axum's own examples do. Refusals are those of
//! `serving`. Beside it runs the consumer that counts.

use crate::domain::{ContentId, TagName, TenantId};
use crate::follow_stream::Follower;
use crate::items::{Edge, TagDefinition};
use crate::merge::Merged;
use crate::search::Search;
use crate::synonyms::Synonym;
use crate::tables::TABLES;
use crate::windows::Window;
use crate::{Attached, Created, Detached, Mended, Page, Raised, Tagging, TaggingError};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Json, Router};
use clap::{Arg, ArgMatches, Command};
use cloud::{Cloud, Millis};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use serving::{Body, Refusal, body, interrupted, listen, listen_arg, with_fallbacks};
use std::future::Future;
use std::time::Duration;
use tokio::net::TcpListener;

/// The router.
pub fn app(tagging: Tagging) -> Router {
    let router = Router::new()
        .route("/{tenant}/tags", get(autocomplete))
        .route("/{tenant}/tags/{tag}", put(create).get(read))
        .route("/{tenant}/tags/{tag}/buckets", put(raise))
        .route("/{tenant}/tags/{tag}/synonyms/{alias}", put(add_synonym))
        .route("/{tenant}/tags/{tag}/merge-into/{target}", post(merge))
        .route("/{tenant}/tags/{tag}/contents", get(view))
        .route("/{tenant}/contents/{content}/tags", get(tags_of))
        .route(
            "/{tenant}/contents/{content}/tags/{tag}",
            put(attach).delete(detach),
        )
        .route("/{tenant}/search", get(search))
        .route("/{tenant}/top", get(top))
        .route("/{tenant}/repair", post(repair))
        .with_state(tagging);
    with_fallbacks(router)
}

impl From<TaggingError> for Refusal {
    fn from(error: TaggingError) -> Self {
        let status = match &error {
            TaggingError::BadInput(_) => StatusCode::BAD_REQUEST,
            TaggingError::UnknownTag(_) => StatusCode::NOT_FOUND,
            TaggingError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            TaggingError::Fault(fault) => return fault.into(),
        };
        Self::new(status, error.to_string())
    }
}

fn tenant(id: &str) -> Result<TenantId, TaggingError> {
    Ok(TenantId::new(id)?)
}

fn tag(text: &str) -> Result<TagName, TaggingError> {
    Ok(TagName::new(text)?)
}

fn content(id: &str) -> Result<ContentId, TaggingError> {
    Ok(ContentId::new(id)?)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BucketsBody {
    buckets: u32,
}

#[derive(Serialize)]
struct TagView {
    name: String,
    normalized: String,
    tag_id: String,
    buckets: u32,
}

impl From<TagDefinition> for TagView {
    fn from(tag: TagDefinition) -> Self {
        Self {
            name: tag.display_name,
            normalized: tag.tag_name_norm,
            tag_id: tag.tag_id,
            buckets: tag.buckets,
        }
    }
}

#[derive(Serialize)]
struct EdgeView {
    content: String,
    tag: String,
    version: u64,
    created_at: Millis,
}

impl From<Edge> for EdgeView {
    fn from(edge: Edge) -> Self {
        Self {
            content: edge.content_id,
            tag: edge.tag_name_norm,
            version: edge.version,
            created_at: edge.created_at,
        }
    }
}

async fn create(
    State(tagging): State<Tagging>,
    Path((of, name)): Path<(String, String)>,
    given: Body<BucketsBody>,
) -> Result<(StatusCode, Json<TagView>), Refusal> {
    let buckets = body(given)?.buckets;
    let created = tagging
        .create_tag(&tenant(&of)?, &tag(&name)?, buckets)
        .await?;
    Ok(match created {
        Created::Now(tag) => (StatusCode::CREATED, Json(tag.into())),
        Created::Before(tag) => (StatusCode::OK, Json(tag.into())),
    })
}

async fn read(
    State(tagging): State<Tagging>,
    Path((of, name)): Path<(String, String)>,
) -> Result<Json<TagView>, Refusal> {
    let tag = tagging.read_tag(&tenant(&of)?, &tag(&name)?).await?;
    Ok(Json(tag.into()))
}

async fn raise(
    State(tagging): State<Tagging>,
    Path((of, name)): Path<(String, String)>,
    given: Body<BucketsBody>,
) -> Result<Json<TagView>, Refusal> {
    let buckets = body(given)?.buckets;
    let raised = tagging
        .raise_buckets(&tenant(&of)?, &tag(&name)?, buckets)
        .await?;
    match raised {
        Raised::Done(tag) => Ok(Json(tag.into())),
        Raised::Merged { into } => {
            let text = format!("it was merged into '{into}'");
            Err(Refusal::new(StatusCode::CONFLICT, text))
        }
    }
}

async fn add_synonym(
    State(tagging): State<Tagging>,
    Path((of, name, alias)): Path<(String, String, String)>,
) -> Result<Json<Value>, Refusal> {
    let added = tagging
        .add_synonym(&tenant(&of)?, &tag(&alias)?, &tag(&name)?)
        .await?;
    match added {
        Synonym::Taken(_) => {
            let text = "that name has a meaning of its own";
            Err(Refusal::new(StatusCode::CONFLICT, text))
        }
        _ => Ok(Json(json!({"name": alias, "stands_for": name}))),
    }
}

async fn merge(
    State(tagging): State<Tagging>,
    Path((of, name, target)): Path<(String, String, String)>,
) -> Result<Json<Value>, Refusal> {
    let merged = tagging
        .merge(&tenant(&of)?, &tag(&name)?, &tag(&target)?)
        .await?;
    match merged {
        Merged::Done { moved, both } => Ok(Json(json!({"moved": moved, "had_both": both}))),
        Merged::Elsewhere { into } => {
            let text = format!("it is merged into '{into}'");
            Err(Refusal::new(StatusCode::CONFLICT, text))
        }
    }
}

/// A content that is full is a 409: the request was fine, the answer is no.
async fn attach(
    State(tagging): State<Tagging>,
    Path((of, id, name)): Path<(String, String, String)>,
) -> Result<Response, Refusal> {
    let attached = tagging
        .attach(&tenant(&of)?, &content(&id)?, &tag(&name)?)
        .await?;
    let (status, edge) = match attached {
        Attached::Now(edge) => (StatusCode::CREATED, edge),
        Attached::Before(edge) => (StatusCode::OK, edge),
        Attached::Full { cap } => {
            let text = format!("a content has at most {cap} tags");
            return Err(Refusal::new(StatusCode::CONFLICT, text));
        }
    };
    Ok((status, Json(EdgeView::from(edge))).into_response())
}

async fn detach(
    State(tagging): State<Tagging>,
    Path((of, id, name)): Path<(String, String, String)>,
) -> Result<Json<Value>, Refusal> {
    let detached = tagging
        .detach(&tenant(&of)?, &content(&id)?, &tag(&name)?)
        .await?;
    let was_there = matches!(detached, Detached::Now(_));
    Ok(Json(json!({"was_there": was_there})))
}

async fn tags_of(
    State(tagging): State<Tagging>,
    Path((of, id)): Path<(String, String)>,
) -> Result<Json<Vec<EdgeView>>, Refusal> {
    let edges = tagging.tags_of(&tenant(&of)?, &content(&id)?).await?;
    Ok(Json(edges.into_iter().map(EdgeView::from).collect()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ViewQuery {
    #[serde(default = "twenty")]
    limit: usize,
    cursor: Option<String>,
}

fn twenty() -> usize {
    20
}

async fn view(
    State(tagging): State<Tagging>,
    Path((of, name)): Path<(String, String)>,
    Query(asked): Query<ViewQuery>,
) -> Result<Json<Page>, Refusal> {
    let page = tagging
        .view(
            &tenant(&of)?,
            &tag(&name)?,
            asked.limit,
            asked.cursor.as_deref(),
        )
        .await?;
    Ok(Json(page))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SearchQuery {
    /// Names with commas between them: contents that have all of these …
    all: Option<String>,
    /// … or any of these.
    any: Option<String>,
    #[serde(default = "twenty")]
    limit: usize,
    cursor: Option<String>,
}

async fn search(
    State(tagging): State<Tagging>,
    Path(of): Path<String>,
    Query(asked): Query<SearchQuery>,
) -> Result<Json<Page>, Refusal> {
    let (search, names) = match (asked.all, asked.any) {
        (Some(names), None) => (Search::All, names),
        (None, Some(names)) => (Search::Any, names),
        _ => {
            let text = "give either all or any: names of tags, with commas between them";
            return Err(Refusal::bad_request(text));
        }
    };
    let names: Vec<TagName> = names.split(',').map(tag).collect::<Result<_, _>>()?;
    let found = tagging
        .search(
            &tenant(&of)?,
            search,
            &names,
            asked.limit,
            asked.cursor.as_deref(),
        )
        .await?;
    Ok(Json(found))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PrefixQuery {
    prefix: String,
    #[serde(default = "ten")]
    limit: usize,
}

fn ten() -> usize {
    10
}

async fn autocomplete(
    State(tagging): State<Tagging>,
    Path(of): Path<String>,
    Query(asked): Query<PrefixQuery>,
) -> Result<Json<Vec<String>>, Refusal> {
    let found = tagging
        .autocomplete(&tenant(&of)?, &asked.prefix, asked.limit)
        .await?;
    let names = found.into_iter();
    Ok(Json(names.map(|found| found.tag_name_norm).collect()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopQuery {
    /// `all`, `day` or `hour`.
    #[serde(default)]
    window: WindowName,
    #[serde(default = "ten")]
    limit: usize,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum WindowName {
    #[default]
    All,
    Day,
    Hour,
}

async fn top(
    State(tagging): State<Tagging>,
    Path(of): Path<String>,
    Query(asked): Query<TopQuery>,
) -> Result<Json<Vec<Value>>, Refusal> {
    let now = tagging.cloud().now();
    let window = match asked.window {
        WindowName::All => Window::All,
        WindowName::Day => Window::day(now),
        WindowName::Hour => Window::hour(now),
    };
    let tenant = tenant(&of)?;
    let mut top = Vec::new();
    for ranked in tagging.top_tags(&tenant, window, asked.limit).await? {
        let tag = tagging.tag_by_id(&tenant, &ranked.tag_id).await?;
        let name = tag.map(|tag| tag.tag_name_norm);
        top.push(json!({"tag": name, "contents": ranked.live_edges}));
    }
    Ok(Json(top))
}

async fn repair(
    State(tagging): State<Tagging>,
    Path(of): Path<String>,
) -> Result<Json<Mended>, Refusal> {
    Ok(Json(tagging.repair(&tenant(&of)?).await?))
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the JSON API and count tags until Ctrl-C",
    args: serve_args,
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

fn serve_args(command: Command) -> Command {
    command.arg(listen_arg()).arg(
        Arg::new("cursor-key")
            .long("cursor-key")
            .env("TAGGING_CURSOR_KEY")
            .hide_env_values(true)
            .help("What cursors are signed with; the same for all servers. Without it, one for this run"),
    )
}

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let key = match args.get_one::<String>("cursor-key") {
        Some(key) => key.clone(),
        None => cloud.ids().next("cursor-key"),
    };
    cloud.create_tables(TABLES).await?;
    // Attaches may take a definition from memory: see `definitions`.
    let tagging = Tagging::new(cloud, key.as_bytes()).remembering_definitions(1_000);
    serve_until(tagging, listen(&args).await?, interrupted()).await
}

/// Serves until told to stop, with a consumer of the stream beside it.
pub async fn serve_until(
    tagging: Tagging,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let counting = tokio::spawn(count_forever(Follower::new(tagging.clone())));
    let served = serving::serve(listener, app(tagging), stop).await;
    counting.abort();
    served
}

/// Counts what is new, five times a second. A failure is said and tried again: nothing is lost by it.
async fn count_forever(mut follower: Follower) {
    loop {
        if let Err(error) = follower.follow().await {
            eprintln!("counting: {error}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
