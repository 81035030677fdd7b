//! What is too long for an item, or too old for the log: objects in S3.
//!
//! An object is named by what it must contain, the document and the versions. Whoever writes it again
//! writes the same, so nothing here needs a guard; the snapshot's row names it once it is there.

use crate::DocumentService;
use crate::domain::{Entry, Version};
use crate::items::{SnapshotItem, padded};
use aws_sdk_s3::primitives::ByteStream;
use cloud::CloudError;
use walkthrough::Resource;

/// The bucket.
pub const BUCKET: &str = "document-archive";

/// The bucket, as the archetype declares it.
pub const BUCKET_RESOURCE: Resource = Resource {
    name: "bucket document-archive",
    create: |cloud| Box::pin(async move { Ok(cloud.create_bucket(BUCKET).await?) }),
    remove: |cloud| Box::pin(async move { Ok(cloud.remove_bucket(BUCKET).await?) }),
};

pub(crate) fn log_object(document_id: &str, from: Version, to: Version) -> String {
    format!("{document_id}/{}-{}.json", padded(from), padded(to))
}

pub(crate) fn text_object(document_id: &str, version: Version) -> String {
    format!("{document_id}/{}.txt", padded(version))
}

impl DocumentService {
    pub(crate) async fn put_object(&self, key: &str, body: Vec<u8>) -> Result<(), CloudError> {
        let bucket = self.cloud.names().bucket(BUCKET);
        let put = self.cloud.s3().put_object().bucket(bucket).key(key);
        put.body(ByteStream::from(body)).send().await?;
        Ok(())
    }

    async fn get_object(&self, key: &str) -> Result<Vec<u8>, CloudError> {
        let bucket = self.cloud.names().bucket(BUCKET);
        let object = self.cloud.s3().get_object().bucket(bucket).key(key);
        let body = object.send().await?.body.collect().await;
        let body = body.map_err(|error| CloudError::Unknown(error.to_string()))?;
        Ok(body.into_bytes().to_vec())
    }

    /// A snapshot's text, wherever it is.
    pub async fn snapshot_text(&self, snapshot: &SnapshotItem) -> Result<String, CloudError> {
        match (&snapshot.text, &snapshot.text_object) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(key)) => {
                String::from_utf8(self.get_object(key).await?).map_err(CloudError::corrupt)
            }
            (None, None) => {
                let what = format!("snapshot {} has no text", snapshot.version_key);
                Err(CloudError::Corrupt(what))
            }
        }
    }

    /// The operations that were archived with a snapshot.
    pub async fn archived(&self, snapshot: &SnapshotItem) -> Result<Vec<Entry>, CloudError> {
        match &snapshot.log_object {
            Some(key) => {
                let body = self.get_object(key).await?;
                serde_json::from_slice(&body).map_err(CloudError::corrupt)
            }
            None => Ok(Vec::new()),
        }
    }
}
