//! Buckets: made once, removed with all they hold.

use crate::{Backend, Cloud, CloudError};
use aws_sdk_s3::error::ProvideErrorMetadata;
use aws_sdk_s3::types::CreateBucketConfiguration;

impl Cloud {
    /// Makes a bucket, named without prefix, where the client is. One of ours that is there already is no
    /// error; a stranger's is: all accounts share one space of names, and private bytes would go to it.
    pub async fn create_bucket(&self, name: &str) -> Result<(), CloudError> {
        let bucket = self.names().bucket(name);
        let mut request = self.s3().create_bucket().bucket(&bucket);
        // The first region has no name here, and refuses to be given one.
        let region = self.s3().config().region().map(ToString::to_string);
        if let Some(region) = region.filter(|region| region != "us-east-1") {
            let place =
                CreateBucketConfiguration::builder().location_constraint(region.as_str().into());
            request = request.create_bucket_configuration(place.build());
        }
        match request.send().await {
            Ok(_) => Ok(()),
            Err(error) => match error.code() {
                Some("BucketAlreadyOwnedByYou") => Ok(()),
                // The embedded one has a single owner and says it of a bucket of ours.
                Some("BucketAlreadyExists") if self.backend() == Backend::Embedded => Ok(()),
                Some("BucketAlreadyExists") => Err(CloudError::Other(format!(
                    "the bucket {bucket} belongs to another account: choose another \
                     ARCHETYPES_PREFIX"
                ))),
                _ => Err(error.into()),
            },
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
