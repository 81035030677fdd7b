//! The tap under the AWS clients: an [`HttpClient`] around the real one.

use super::call::{Outcome, Request, Service, Target, outcome};
use super::{Failure, Tap, current_actor};
use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use aws_smithy_types::body::SdkBody;
use aws_smithy_types::byte_stream::ByteStream;
use futures::future::BoxFuture;
use serde_json::{Value, json};

/// Hands out connectors that pass the tap.
#[derive(Debug)]
pub(crate) struct TappedClient {
    pub(crate) tap: Tap,
    pub(crate) inner: SharedHttpClient,
}

impl HttpClient for TappedClient {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        SharedHttpConnector::new(TappedConnector {
            tap: self.tap.clone(),
            inner: self.inner.http_connector(settings, components),
        })
    }
}

#[derive(Debug)]
struct TappedConnector {
    tap: Tap,
    inner: SharedHttpConnector,
}

impl HttpConnector for TappedConnector {
    fn call(&self, http: HttpRequest) -> HttpConnectorFuture {
        if !self.tap.is_on() {
            return self.inner.call(http);
        }
        // Read the actor here: this runs inside the task that made the call.
        let request = describe(&http, &self.tap);
        let is_json = !matches!(request.service, Service::S3);
        let (tap, inner) = (self.tap.clone(), self.inner.clone());
        let (twin, twins) = (http.try_clone(), self.inner.clone());
        HttpConnectorFuture::new(async move {
            let again = |body: Option<Value>| {
                let sending = twins.call(with_body(twin?, body));
                let whole = async move { buffered(sending.await?).await };
                Some(Box::pin(whole) as BoxFuture<'static, _>)
            };
            let send = |body: Option<Value>| async move {
                let response = inner.call(with_body(http, body)).await?;
                if is_json {
                    buffered(response).await
                } else {
                    Ok(response)
                }
            };
            tap.pass(request, send, again, read, answer, fail).await
        })
    }
}

/// What the request asks for, from its headers and its body.
fn describe(http: &HttpRequest, tap: &Tap) -> Request {
    let names = tap.names();
    let target = http.headers().get("x-amz-target").unwrap_or_default();
    let body = || {
        let bytes = http.body().bytes().unwrap_or_default();
        serde_json::from_slice(bytes).unwrap_or(Value::Null)
    };
    if let Some((api, operation)) = target.split_once('.') {
        let service = match api {
            "DynamoDB_20120810" => Service::DynamoDb,
            "AmazonSQS" => Service::Sqs,
            _ => Service::Streams,
        };
        return Request::from_json(service, operation, body(), names);
    }
    let (path, query) = match http.uri().split_once('?') {
        Some((path, query)) => (path, query),
        None => (http.uri(), ""),
    };
    let path = path.splitn(4, '/').nth(3).unwrap_or_default();
    let resource = names.logical(path.trim_end_matches('/')).to_owned();
    let named = query.split('&').find_map(|pair| pair.strip_prefix("x-id="));
    let operation = match (named, http.method(), path.contains('/')) {
        (Some(operation), ..) => operation,
        (None, "PUT", false) => "CreateBucket",
        (None, "PUT", true) => "PutObject",
        (None, "HEAD", true) => "HeadObject",
        (None, "HEAD", false) => "HeadBucket",
        (None, "DELETE", true) => "DeleteObject",
        (None, "DELETE", false) => "DeleteBucket",
        (None, "GET", false) => "ListObjectsV2",
        (None, "GET", _) if query.starts_with("list-type=2") => "ListObjectsV2",
        (None, "POST", _) if query.starts_with("delete") => "DeleteObjects",
        _ => http.method(),
    };
    let condition = ["if-none-match", "if-match"].iter().find_map(|header| {
        let value = http.headers().get(header)?;
        Some(format!("{header}: {value}"))
    });
    Request {
        number: 0,
        actor: current_actor(),
        service: Service::S3,
        operation: operation.to_owned(),
        targets: vec![Target {
            condition,
            ..Target::of(&resource)
        }],
        body: json!({"method": http.method(), "path": resource, "query": query}),
    }
}

fn with_body(mut http: HttpRequest, body: Option<Value>) -> HttpRequest {
    if let Some(body) = body {
        let bytes = body.to_string().into_bytes();
        http.headers_mut()
            .insert("content-length", bytes.len().to_string());
        *http.body_mut() = SdkBody::from(bytes);
    }
    http
}

/// Reads the whole body, so that the tap can look at it and the SDK still gets it.
async fn buffered(response: HttpResponse) -> Result<HttpResponse, ConnectorError> {
    let mut response = response;
    let body = std::mem::replace(response.body_mut(), SdkBody::taken());
    let bytes = ByteStream::new(body)
        .collect()
        .await
        .map_err(|error| ConnectorError::io(error.into()))?
        .into_bytes();
    *response.body_mut() = SdkBody::from(bytes);
    Ok(response)
}

fn read(response: &HttpResponse) -> (Outcome, Option<Value>) {
    let status = response.status().as_u16();
    let bytes = response.body().bytes().unwrap_or_default();
    match serde_json::from_slice::<Value>(bytes) {
        Ok(body) => (outcome(status, &body), Some(body)),
        Err(_) => (outcome(status, &Value::Null), None),
    }
}

fn answer(status: u16, body: Value) -> Result<HttpResponse, ConnectorError> {
    let status = status
        .try_into()
        .map_err(|_| ConnectorError::other("not an HTTP status".into(), None))?;
    // S3 speaks XML, which comes as one string.
    let text = match body {
        Value::String(text) => text,
        json => json.to_string(),
    };
    Ok(HttpResponse::new(status, SdkBody::from(text)))
}

fn fail(failure: Failure) -> ConnectorError {
    if failure.is_timeout() {
        ConnectorError::timeout(Box::new(failure))
    } else {
        ConnectorError::other(Box::new(failure), None)
    }
}
