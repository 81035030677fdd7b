//! Persist fetched artifact, persist extracted text: objects in S3, and a row that says they are there.
//!
//! The documents name an object by its URL. Here it is named by its bytes: two URLs with the same content
//! share it, two writers at once write the same thing to the same place, and a worker that died is
//! repeated without a trace. That S3 could refuse the second writer (`If-None-Match`) is not relied on.
//!
//! First the object, then the row: a row means that the object is there.

use crate::canonical::hex;
use crate::domain::{BLOB_MS, UrlArtifactState};
use crate::items::settled;
use crate::{Crawler, CrawlerError};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::primitives::ByteStream;
use cloud::item::{from_item, s, to_item};
use cloud::{CloudError, Guard};
use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use std::time::Duration;
use walkthrough::Resource;

/// The bucket.
pub const BUCKET: &str = "artifacts";

/// The bucket, as the archetype declares it.
pub const BUCKET_RESOURCE: Resource = Resource {
    name: "bucket artifacts",
    create: |cloud| Box::pin(async move { Ok(cloud.create_bucket(BUCKET).await?) }),
    remove: |cloud| Box::pin(async move { Ok(cloud.remove_bucket(BUCKET).await?) }),
};

/// How often a call to S3 is held against the clock.
const LOOK: Duration = Duration::from_millis(25);

/// The hash of bytes and how they are to be read: the same bytes as HTML and as plain text are two texts.
pub fn content_hash(content_type: &str, body: &[u8]) -> String {
    let mut hash = Sha256::new();
    hash.update(content_type.as_bytes());
    hash.update(b"\n");
    hash.update(body);
    hex(&hash.finalize()[..16])
}

/// The row of the first who stored it stays: it may have its text by now.
const NEW_GUARD: &str = "attribute_not_exists(content_hash)";
const HAS_TEXT: &str = "SET text_blob_key = :key";

impl Crawler {
    /// Store raw HTML, once for each content. Gives the content's hash and the object's key.
    pub async fn store_raw(
        &self,
        url_hash: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(String, String), CrawlerError> {
        let content_hash = content_hash(content_type, &body);
        if let Some(known) = self.read_artifact(&content_hash).await? {
            return Ok((content_hash, known.raw_blob_key));
        }
        let raw_blob_key = format!("{content_hash}/raw.html");
        let bytes = body.len() as u64;
        self.put_blob(&raw_blob_key, content_type, body).await?;
        let artifact = UrlArtifactState {
            content_hash: content_hash.clone(),
            raw_blob_key: raw_blob_key.clone(),
            content_type: content_type.to_owned(),
            bytes,
            first_url_hash: url_hash.to_owned(),
            stored_at: self.now(),
            text_blob_key: None,
        };
        let put = settled!(
            self.dynamodb()
                .put_item()
                .table_name(self.table("artifacts"))
                .set_item(Some(to_item(&artifact)?))
                .condition_expression(NEW_GUARD)
        )?;
        // Somebody else's row, or our own whose answer was lost: it names the same object.
        let (Guard::Passed(_) | Guard::Failed(_)) = put;
        Ok((content_hash, raw_blob_key))
    }

    /// Store parsed text, once for each content. Gives the object's key.
    pub async fn store_text(
        &self,
        content_hash: &str,
        text: Vec<u8>,
    ) -> Result<String, CrawlerError> {
        let known = self.read_artifact(content_hash).await?;
        if let Some(key) = known.and_then(|known| known.text_blob_key) {
            return Ok(key);
        }
        let key = format!("{content_hash}/text.json");
        self.put_blob(&key, "application/json", text).await?;
        // No guard: every parser writes the same.
        let update = self
            .dynamodb()
            .update_item()
            .table_name(self.table("artifacts"))
            .key("content_hash", s(content_hash))
            .update_expression(HAS_TEXT)
            .expression_attribute_values(":key", s(&key));
        let (Guard::Passed(_) | Guard::Failed(_)) = settled!(update)?;
        Ok(key)
    }

    /// What is stored under a hash. Consistent: not storing rests on it.
    pub async fn read_artifact(
        &self,
        content_hash: &str,
    ) -> Result<Option<UrlArtifactState>, CloudError> {
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("artifacts"))
            .key("content_hash", s(content_hash))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    pub(crate) async fn put_blob(
        &self,
        key: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(), CloudError> {
        let put = self
            .cloud
            .s3()
            .put_object()
            .bucket(self.cloud.names().bucket(BUCKET))
            .key(key)
            .content_type(content_type)
            .body(ByteStream::from(body));
        let put = async { put.send().await.map(|_| ()).map_err(CloudError::from) };
        self.in_time(put.boxed()).await
    }

    /// An object's bytes, in the time that a lease leaves; none if there is no such object.
    pub async fn read_blob(&self, key: &str) -> Result<Option<Vec<u8>>, CloudError> {
        self.in_time(self.read_blob_without_lease(key).boxed())
            .await
    }

    /// The same for as long as the SDK waits.
    pub(crate) async fn read_blob_without_lease(
        &self,
        key: &str,
    ) -> Result<Option<Vec<u8>>, CloudError> {
        let bucket = self.cloud.names().bucket(BUCKET);
        let get = self.cloud.s3().get_object().bucket(bucket).key(key);
        let object = match get.send().await {
            Ok(object) => object,
            Err(error) if error.code() == Some("NoSuchKey") => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let body = object.body.collect().await;
        let body = body.map_err(|error| CloudError::Unknown(error.to_string()))?;
        Ok(Some(body.into_bytes().to_vec()))
    }

    /// A call to S3, given up after [`BLOB_MS`] by the clock that leases end by.
    async fn in_time<T>(
        &self,
        call: BoxFuture<'_, Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let until = self.now() + BLOB_MS;
        let late = async {
            while self.now() < until {
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::select! {
            biased;
            done = call => done,
            () = late => Err(CloudError::Unknown(format!("no answer from S3 in {BLOB_MS} ms"))),
        }
    }
}
