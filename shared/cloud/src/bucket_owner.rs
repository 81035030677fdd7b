//! On AWS every request to S3 names the account that must own the bucket. All accounts share one space of names:
//! after a bucket of ours is gone, another account may take its name, and would get our bytes.

use crate::{ConnectError, Patience};
use aws_config::SdkConfig;
use aws_credential_types::provider::ProvideCredentials;
use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextMut;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_s3::error::{BoxError, DisplayErrorContext};
use aws_smithy_runtime_api::client::orchestrator::Metadata;

/// The account of these credentials. None for a compatible store at an address of its own, which has no accounts.
pub(crate) async fn account(
    config: &SdkConfig,
    patience: Patience,
) -> Result<Option<String>, ConnectError> {
    if config.endpoint_url().is_some() {
        return Ok(None);
    }
    match own_account(config, patience).await {
        Ok(account) => Ok(Some(account)),
        Err(why) => Err(ConnectError::NoAccount(why)),
    }
}

/// The credentials may know it. If they do not, STS does.
async fn own_account(config: &SdkConfig, patience: Patience) -> Result<String, String> {
    let provider = config.credentials_provider().ok_or("no credentials")?;
    let credentials = provider.provide_credentials().await;
    let credentials = credentials.map_err(|error| DisplayErrorContext(error).to_string())?;
    if let Some(account) = credentials.account_id() {
        return Ok(account.as_str().to_owned());
    }
    let sts = aws_sdk_sts::config::Builder::from(config)
        .timeout_config(patience.dynamodb())
        .build();
    let asked = aws_sdk_sts::Client::from_conf(sts).get_caller_identity();
    let told = asked.send().await;
    let told = told.map_err(|error| DisplayErrorContext(error).to_string())?;
    told.account.ok_or_else(|| "STS did not say".to_owned())
}

/// Adds the account to every request. S3 refuses one whose bucket belongs to another account.
#[derive(Debug)]
pub(crate) struct Expect(pub(crate) String);

impl Intercept for Expect {
    fn name(&self) -> &'static str {
        "ExpectBucketOwner"
    }

    /// Before signing, so that a presigned address holds its user to it, too.
    fn modify_before_signing(
        &self,
        context: &mut BeforeTransmitInterceptorContextMut<'_>,
        _components: &RuntimeComponents,
        config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        // A bucket that is made has no owner yet.
        let operation = config.load::<Metadata>().map(Metadata::name);
        if operation == Some("CreateBucket") {
            return Ok(());
        }
        let headers = context.request_mut().headers_mut();
        headers.insert("x-amz-expected-bucket-owner", self.0.clone());
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Backend, Clock, Cloud, Ids, Options, Parts};
    use crate::{LOCAL_KEY, LOCAL_SECRET, local_config};
    use aws_config::Region;
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::SharedCredentialsProvider;
    use aws_sdk_s3::presigning::PresigningConfig;
    use aws_smithy_runtime_api::client::http::{
        HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
        SharedHttpConnector,
    };
    use aws_smithy_runtime_api::client::orchestrator::{HttpRequest, HttpResponse};
    use aws_smithy_types::body::SdkBody;
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    /// AWS, as far as these tests need it: says who asks, and remembers what was asked.
    #[derive(Debug, Clone, Default)]
    struct Aws {
        owners: Arc<Mutex<Vec<Option<String>>>>,
        bodies: Arc<Mutex<Vec<String>>>,
        silent: bool,
    }

    impl HttpClient for Aws {
        fn http_connector(
            &self,
            _: &HttpConnectorSettings,
            _: &RuntimeComponents,
        ) -> SharedHttpConnector {
            SharedHttpConnector::new(self.clone())
        }
    }

    impl HttpConnector for Aws {
        fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
            let owner = request.headers().get("x-amz-expected-bucket-owner");
            self.owners.lock().unwrap().push(owner.map(str::to_owned));
            let body = request.body().bytes().unwrap_or_default();
            let body = String::from_utf8_lossy(body).into_owned();
            self.bodies.lock().unwrap().push(body);
            let silent = self.silent;
            HttpConnectorFuture::new(async move {
                if silent {
                    std::future::pending::<()>().await;
                }
                let identity = "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                     <GetCallerIdentityResult><Account>210987654321</Account></GetCallerIdentityResult>\
                     </GetCallerIdentityResponse>";
                let status = 200.try_into().unwrap();
                Ok(HttpResponse::new(status, SdkBody::from(identity)))
            })
        }
    }

    fn config(aws: &Aws, credentials: Credentials) -> SdkConfig {
        let config = local_config().to_builder().http_client(aws.clone());
        config
            .region(Region::new("eu-central-1"))
            .credentials_provider(SharedCredentialsProvider::new(credentials))
            .build()
    }

    fn unnamed() -> Credentials {
        Credentials::new(LOCAL_KEY, LOCAL_SECRET, None, None, "test")
    }

    #[tokio::test]
    async fn the_account_is_the_one_of_the_credentials_or_what_sts_says() {
        let aws = Aws::default();
        let builder = Credentials::builder().access_key_id(LOCAL_KEY);
        let named = builder
            .secret_access_key(LOCAL_SECRET)
            .account_id("123456789012")
            .provider_name("test")
            .build();
        let known = account(&config(&aws, named), Patience::DEFAULT)
            .await
            .unwrap();
        assert_eq!(known.as_deref(), Some("123456789012"));
        assert!(aws.owners.lock().unwrap().is_empty(), "nothing was asked");
        let told = account(&config(&aws, unnamed()), Patience::DEFAULT)
            .await
            .unwrap();
        assert_eq!(told.as_deref(), Some("210987654321"));
        let store = config(&aws, unnamed()).to_builder();
        let store = store.endpoint_url("http://localhost:9000").build();
        assert_eq!(account(&store, Patience::DEFAULT).await.unwrap(), None);
    }

    /// What the aws backend makes of its configuration.
    fn cloud(aws: &Aws, region: &'static str) -> Cloud {
        let options = Options {
            backend: Backend::Aws,
            data: None,
            prefix: Some("test-".to_owned()),
            clock: Clock::System,
            ids: Ids::Uuid,
        };
        let config = config(aws, unnamed()).to_builder();
        let parts = Parts {
            shared: config.region(Region::new(region)).build(),
            http: SharedHttpClient::new(aws.clone()),
            endpoints: [None, None, None],
            path_style: false,
            bucket_owner: Some("210987654321".to_owned()),
            #[cfg(feature = "redis")]
            redis: crate::RedisAddress::At("redis://localhost".to_owned()),
            keep: Arc::new(()),
        };
        Cloud::new(Backend::Aws, &options, parts)
    }

    #[tokio::test]
    async fn a_bucket_is_made_where_the_client_is_and_then_asked_for_by_owner() {
        let constraint = "<LocationConstraint>eu-central-1</LocationConstraint>";
        for (region, constrained) in [("eu-central-1", true), ("us-east-1", false)] {
            let aws = Aws::default();
            let cloud = cloud(&aws, region);
            cloud.create_bucket("files").await.unwrap();
            let made = aws.bodies.lock().unwrap().concat();
            assert_eq!(made.contains(constraint), constrained, "{region}: {made}");
            assert_eq!(made.contains("LocationConstraint"), constrained, "{made}");
            let _ = cloud.s3().list_objects_v2().bucket("b").send().await;
            let owners = aws.owners.lock().unwrap();
            assert_eq!(owners.first(), Some(&None));
            assert_eq!(owners.last(), Some(&Some("210987654321".to_owned())));
        }
    }

    #[tokio::test]
    async fn an_sts_that_hangs_is_given_up_and_the_error_says_what_to_set() {
        let aws = Aws {
            silent: true,
            ..Aws::default()
        };
        let asked = config(&aws, unnamed());
        let told = account(&asked, Patience::SHORT).await;
        let told = told.unwrap_err().to_string();
        assert!(told.contains("AWS_ACCOUNT_ID"), "{told}");
    }

    #[tokio::test]
    async fn every_request_and_presigned_address_names_the_owner_but_the_one_that_makes_a_bucket() {
        let aws = Aws::default();
        let config = aws_sdk_s3::config::Builder::from(&config(&aws, unnamed()))
            .interceptor(Expect("210987654321".to_owned()))
            .build();
        let s3 = aws_sdk_s3::Client::from_conf(config);
        let _ = s3.list_objects_v2().bucket("a-bucket").send().await;
        let _ = s3.delete_object().bucket("a-bucket").key("k").send().await;
        let owners = aws.owners.lock().unwrap().clone();
        assert!(owners.len() >= 2);
        let ours = Some("210987654321".to_owned());
        assert!(owners.iter().all(|owner| *owner == ours), "{owners:?}");
        let _ = s3.create_bucket().bucket("a-bucket").send().await;
        assert_eq!(aws.owners.lock().unwrap().last(), Some(&None));
        let minute = PresigningConfig::expires_in(Duration::from_secs(60)).unwrap();
        let get = s3.get_object().bucket("a-bucket").key("k");
        let signed = get.presigned(minute).await.unwrap();
        let sent = signed.headers().collect::<Vec<_>>();
        let header = ("x-amz-expected-bucket-owner", "210987654321");
        assert!(sent.contains(&header), "{sent:?}");
    }
}
