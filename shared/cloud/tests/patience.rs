//! A service that accepts and never answers is given up, on every client.
#![allow(clippy::unwrap_used)]

use cloud::tap::{Call, Plan, Request, Service, Verdict};
use cloud::{Backend, Cloud, CloudError, Options, Patience};
use futures::future::BoxFuture;
use redis::AsyncCommands;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Accepts everything and never answers.
struct Silent;

impl Plan for Silent {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(pending())
    }
}

/// Carries out everything and never answers.
struct SilentAfter;

impl Plan for SilentAfter {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(pending())
    }
}

async fn each_client_gives_up(plan: Arc<dyn Plan>) {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let cloud = cloud.with_patience(Patience::SHORT);
    // Connects first: what hangs is the command.
    let mut redis = cloud.redis().await.unwrap();
    let _plan = cloud.tap().install(plan);
    let bound = Duration::from_secs(2);
    let given_up = async |what: &str, call: BoxFuture<'_, Result<(), CloudError>>| {
        let begun = Instant::now();
        let answer = tokio::time::timeout(bound, call).await;
        let answer = answer.unwrap_or_else(|_| panic!("{what} still waits after {bound:?}"));
        assert!(
            matches!(answer, Err(CloudError::Unknown(_))),
            "{what}: {answer:?} after {:?}",
            begun.elapsed()
        );
    };
    let (dynamodb, streams, sqs, s3) = (cloud.dynamodb(), cloud.streams(), cloud.sqs(), cloud.s3());
    given_up(
        "DynamoDB",
        Box::pin(async {
            dynamodb
                .list_tables()
                .send()
                .await
                .map(drop)
                .map_err(CloudError::from)
        }),
    )
    .await;
    given_up(
        "Streams",
        Box::pin(async {
            streams
                .list_streams()
                .send()
                .await
                .map(drop)
                .map_err(CloudError::from)
        }),
    )
    .await;
    given_up(
        "SQS",
        Box::pin(async {
            sqs.list_queues()
                .send()
                .await
                .map(drop)
                .map_err(CloudError::from)
        }),
    )
    .await;
    given_up(
        "S3",
        Box::pin(async {
            s3.list_buckets()
                .send()
                .await
                .map(drop)
                .map_err(CloudError::from)
        }),
    )
    .await;
    given_up(
        "Redis",
        Box::pin(async { Ok(redis.set::<_, _, ()>("k", "v").await?) }),
    )
    .await;
}

#[tokio::test]
async fn each_client_gives_up_a_service_that_never_answers() {
    each_client_gives_up(Arc::new(Silent)).await;
}

#[tokio::test]
async fn each_client_gives_up_an_answer_that_never_comes() {
    each_client_gives_up(Arc::new(SilentAfter)).await;
}

#[tokio::test]
async fn clients_have_limits_unless_told_otherwise() {
    let limits = |config: Option<&aws_sdk_dynamodb::config::timeout::TimeoutConfig>| {
        let config = config.unwrap();
        (
            config.connect_timeout().unwrap(),
            config.operation_attempt_timeout().unwrap(),
            config.operation_timeout().unwrap(),
        )
    };
    let check = |cloud: &Cloud| {
        let patience = Patience::DEFAULT;
        assert_eq!(
            limits(cloud.dynamodb().config().timeout_config()),
            (patience.connect, patience.attempt, patience.operation)
        );
        assert_eq!(
            limits(cloud.streams().config().timeout_config()),
            (patience.connect, patience.attempt, patience.operation)
        );
        // An empty long poll takes twenty seconds and is no hang.
        assert!(limits(cloud.sqs().config().timeout_config()).1 > Duration::from_secs(20));
        assert!(limits(cloud.s3().config().timeout_config()).2 <= Duration::from_secs(90));
        // The shortest lease that an archetype chooses for itself is 30 s.
        assert!(patience.operation < Duration::from_secs(30));
    };
    let embedded = cloud::connect_for_tests().await.unwrap();
    check(&embedded);
    check(&embedded.beside_tap());
}

/// A Redis address where nothing listens is found out at once, and again for each command.
#[tokio::test]
async fn a_redis_that_is_away_costs_no_retries() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let nowhere = cloud.with_redis_at("redis://127.0.0.1:1");
    for _ in 0..3 {
        let begun = Instant::now();
        assert!(nowhere.redis().await.is_err());
        assert!(nowhere.redis_subscriber().await.is_err());
        assert!(
            begun.elapsed() < Duration::from_millis(500),
            "{:?}",
            begun.elapsed()
        );
    }
    // One that accepts and stays silent is given up in time.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("redis://{}", silent.local_addr().unwrap());
    let silent = cloud.with_patience(Patience::SHORT).with_redis_at(&silent);
    let begun = Instant::now();
    assert!(silent.redis().await.is_err());
    assert!(silent.redis_subscriber().await.is_err());
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
}

/// S3's errors, as XML, and what a caller is told of them.
#[tokio::test]
async fn errors_of_s3_are_told_apart() {
    struct Answers(u16, &'static str);
    impl Plan for Answers {
        fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
            let verdict = match request.service {
                // A HEAD is answered without a body, so nothing but the status tells.
                Service::S3 if request.operation.starts_with("Head") => Verdict::Answer {
                    status: self.0,
                    body: "".into(),
                },
                Service::S3 => Verdict::Answer {
                    status: self.0,
                    body: format!("<Error><Code>{}</Code><Message>m</Message></Error>", self.1)
                        .into(),
                },
                _ => Verdict::Pass,
            };
            Box::pin(async { verdict })
        }
    }
    let cloud = cloud::connect_for_tests().await.unwrap();
    for (status, code, wanted) in [
        (503, "SlowDown", "throttled"),
        (500, "InternalError", "the outcome is unknown"),
        (400, "RequestTimeout", "the outcome is unknown"),
        (403, "AccessDenied", "AccessDenied"),
    ] {
        let _plan = cloud.tap().install(Arc::new(Answers(status, code)));
        let put = cloud.s3().put_object().bucket("b").key("k");
        let error = CloudError::from(put.send().await.unwrap_err());
        assert!(error.to_string().starts_with(wanted), "{code}: {error}");
        let head = cloud.s3().head_object().bucket("b").key("k");
        let error = CloudError::from(head.send().await.unwrap_err());
        match status {
            503 => assert!(matches!(error, CloudError::Throttled(_)), "{error}"),
            500 => assert!(matches!(error, CloudError::Unknown(_)), "{error}"),
            _ => assert!(matches!(error, CloudError::Other(_)), "{error}"),
        }
    }
}

/// Two accounts share one space of bucket names. A stranger's bucket is refused before a byte goes there.
#[tokio::test]
async fn a_bucket_of_a_stranger_is_refused() {
    struct Taken(&'static str);
    impl Plan for Taken {
        fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
            let body = format!("<Error><Code>{}</Code></Error>", self.0);
            Box::pin(async {
                Verdict::Answer {
                    status: 409,
                    body: body.into(),
                }
            })
        }
    }
    let cloud = cloud::connect_with(Options {
        backend: Backend::Embedded,
        ..Options::from_env().unwrap()
    })
    .await
    .unwrap();
    let elsewhere = cloud.as_backend(Backend::Aws);
    let refused = {
        let _plan = cloud.tap().install(Arc::new(Taken("BucketAlreadyExists")));
        elsewhere.create_bucket("files").await.unwrap_err()
    };
    assert!(
        refused.to_string().contains("belongs to another account"),
        "{refused}"
    );
    let _plan = cloud
        .tap()
        .install(Arc::new(Taken("BucketAlreadyOwnedByYou")));
    elsewhere.create_bucket("files").await.unwrap();
}
