//! Buckets: made once, removed with all they hold.

use crate::{Cloud, CloudError};
use aws_sdk_s3::error::ProvideErrorMetadata;

impl Cloud {
    /// Makes a bucket, named without prefix. One that is there already is no error.
    pub async fn create_bucket(&self, name: &str) -> Result<(), CloudError> {
        let bucket = self.names().bucket(name);
        match self.s3().create_bucket().bucket(bucket).send().await {
            Err(error)
                if !error
                    .code()
                    .is_some_and(|code| code.starts_with("BucketAlready")) =>
            {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }

    /// Removes a bucket and what is in it, since only an empty one can be removed. One that is not there
    /// is no error.
    pub async fn remove_bucket(&self, name: &str) -> Result<(), CloudError> {
        let bucket = self.names().bucket(name);
        loop {
            let listed = self.s3().list_objects_v2().bucket(&bucket).send().await;
            let listed = match listed {
                Err(error) if error.code() == Some("NoSuchBucket") => return Ok(()),
                listed => listed?,
            };
            if listed.contents().is_empty() {
                break;
            }
            for object in listed.contents() {
                let delete = self.s3().delete_object().bucket(&bucket);
                delete.set_key(object.key.clone()).send().await?;
            }
        }
        self.s3().delete_bucket().bucket(&bucket).send().await?;
        Ok(())
    }
}
