//! The `aws` backend: whatever the SDK's own environment says, and `REDIS_URL`.
//! This is also the road to anything that speaks the same protocols, by `AWS_ENDPOINT_URL`.

use crate::backend::{Backend, ConnectError, Options};
use crate::{Cloud, Parts};
use aws_config::BehaviorVersion;
use aws_smithy_http_client::tls;
use std::sync::Arc;

pub(crate) async fn connect(options: Options) -> Result<Cloud, ConnectError> {
    let https = aws_smithy_http_client::Builder::new()
        .tls_provider(tls::Provider::Rustls(
            tls::rustls_provider::CryptoMode::Ring,
        ))
        .build_https();
    let config = aws_config::defaults(BehaviorVersion::latest())
        .http_client(https.clone())
        .load()
        .await;
    if config.region().is_none() {
        return Err(ConnectError::NoRegion);
    }
    #[cfg(feature = "s3")]
    let bucket_owner = crate::bucket_owner::account(&config, crate::Patience::DEFAULT).await?;
    Ok(Cloud::new(
        Backend::Aws,
        &options,
        Parts {
            path_style: config.endpoint_url().is_some(),
            shared: config,
            http: https,
            endpoints: [None, None, None],
            #[cfg(feature = "s3")]
            bucket_owner,
            #[cfg(feature = "redis")]
            redis: match std::env::var("REDIS_URL") {
                Ok(url) => crate::RedisAddress::At(url),
                Err(_) => crate::RedisAddress::Missing(
                    "the aws backend takes it from REDIS_URL, which is not set".into(),
                ),
            },
            keep: Arc::new(()),
        },
    ))
}
