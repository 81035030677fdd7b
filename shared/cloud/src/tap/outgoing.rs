//! The tap under outgoing HTTP: a middleware of the client.

use super::call::{Outcome, Request as Seen, Service, Target};
use super::{Failure, Tap, current_actor};
use crate::names::Names;
use futures::future::BoxFuture;
use reqwest::{Body, Request, Response, ResponseBuilderExt, Url};
use reqwest_middleware::{Error, Middleware, Next, Result};
use serde_json::{Map, Value};

/// Headers worth showing: they say what is asked, and are the same in every run.
const SHOWN: [&str; 4] = [
    "idempotency-key",
    "if-none-match",
    "if-modified-since",
    "range",
];

/// Answers longer than this are not looked at.
const LOOKED_AT: u64 = 64 * 1024;

/// Lets requests pass the tap.
pub(crate) struct Tapped {
    pub(crate) tap: Tap,
    /// Sends late copies, past the other middleware.
    pub(crate) client: reqwest::Client,
}

#[async_trait::async_trait]
impl Middleware for Tapped {
    async fn handle(
        &self,
        request: Request,
        extensions: &mut http::Extensions,
        next: Next<'_>,
    ) -> Result<Response> {
        if !self.tap.is_on() {
            return next.run(request, extensions).await;
        }
        let url = request.url().clone();
        let seen = describe(&request, self.tap.names());
        let (twin, client) = (request.try_clone(), self.client.clone());
        let again = |body: Option<Value>| {
            let sending = client.execute(with_json(twin?, body));
            let looked = async move { looked_at(sending.await?).await };
            Some(Box::pin(looked) as BoxFuture<'static, _>)
        };
        let send = |body: Option<Value>| async move {
            let response = next.run(with_json(request, body), extensions).await?;
            looked_at(response).await
        };
        let answer = |status, body| made_up(status, &body, url);
        let passed = self.tap.pass(seen, send, again, read, answer, fail).await?;
        Ok(passed.0)
    }
}

/// What is asked: the method, host and path, then query, telling headers and a JSON body. An object's
/// presigned address names its bucket, which goes by its name without prefix as everywhere.
fn describe(request: &Request, names: &Names) -> Seen {
    let url = request.url();
    let path = url.path().replacen(names.prefix(), "", 1);
    let port = url.port().map_or(String::new(), |port| format!(":{port}"));
    let resource = format!("{}{port}{}", url.host_str().unwrap_or_default(), path);
    let mut body = Map::new();
    if let Some(query) = url.query() {
        body.insert("query".into(), query.into());
    }
    let headers: Map<String, Value> = SHOWN
        .iter()
        .filter_map(|name| {
            let value = request.headers().get(*name)?.to_str().ok()?;
            Some(((*name).to_owned(), value.into()))
        })
        .collect();
    if !headers.is_empty() {
        body.insert("headers".into(), headers.into());
    }
    let bytes = request.body().and_then(Body::as_bytes);
    if let Some(Ok(value)) = bytes.map(serde_json::from_slice::<Value>) {
        body.insert("json".into(), value);
    }
    Seen {
        number: 0,
        actor: current_actor(),
        service: Service::Http,
        operation: request.method().to_string(),
        targets: vec![Target::of(&resource)],
        body: body.into(),
    }
}

/// The request with the JSON body that a plan put in its place.
fn with_json(mut request: Request, rewritten: Option<Value>) -> Request {
    if let Some(value) = rewritten.as_ref().and_then(|body| body.get("json")) {
        let bytes = value.to_string().into_bytes();
        request.headers_mut().remove("content-length");
        *request.body_mut() = Some(bytes.into());
    }
    request
}

/// A short JSON answer is read whole, so that the tap can look at it and the caller still gets it.
/// Everything else stays a stream: a page may be larger than its reader allows.
async fn looked_at(response: Response) -> Result<(Response, Option<Value>)> {
    let header = |name: &str| response.headers().get(name)?.to_str().ok();
    let is_json = header("content-type").is_some_and(|kind| kind.contains("json"));
    let is_short = response.content_length().is_some_and(|n| n <= LOOKED_AT);
    if !(is_json && is_short) {
        return Ok((response, None));
    }
    let (status, version, url) = (
        response.status(),
        response.version(),
        response.url().clone(),
    );
    let headers = response.headers().clone();
    let bytes = response.bytes().await?;
    let value = serde_json::from_slice(&bytes).ok();
    let mut again = http::Response::builder()
        .status(status)
        .version(version)
        .url(url)
        .body(Body::from(bytes))
        .map_err(Error::middleware)?;
    *again.headers_mut() = headers;
    Ok((again.into(), value))
}

fn read((response, value): &(Response, Option<Value>)) -> (Outcome, Option<Value>) {
    let status = response.status();
    let outcome = if status.is_success() || status.is_redirection() {
        Outcome::Ok
    } else {
        Outcome::Error(status.to_string())
    };
    (outcome, value.clone())
}

fn made_up(status: u16, body: &Value, url: Url) -> Result<(Response, Option<Value>)> {
    let response = http::Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .url(url)
        .body(Body::from(body.to_string()))
        .map_err(Error::middleware)?;
    Ok((response.into(), Some(body.clone())))
}

fn fail(failure: Failure) -> Error {
    Error::middleware(failure)
}
