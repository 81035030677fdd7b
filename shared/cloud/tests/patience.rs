//! A service that accepts and never answers is given up, on every client.
#![allow(clippy::unwrap_used)]

use cloud::tap::{Call, Plan, Request, Service, Verdict};
use cloud::{Backend, Cloud, CloudError, Options, Patience};
use futures::future::{BoxFuture, join_all};
use redis::AsyncCommands;
use serde_json::json;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

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

/// The first bytes of an object come, and then nothing.
#[tokio::test]
async fn a_transfer_that_stalls_is_given_up() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let cloud = cloud.with_patience(Patience {
        stall: Duration::from_millis(200),
        ..Patience::DEFAULT
    });
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", server.local_addr().unwrap());
    let stalls = tokio::spawn(async move {
        let mut open = Vec::new();
        loop {
            let (mut stream, _) = server.accept().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await.unwrap();
            let begins = b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nten bytes.";
            stream.write_all(begins).await.unwrap();
            open.push(stream);
        }
    });
    let config = cloud.s3().config().to_builder().endpoint_url(address);
    let s3 = aws_sdk_s3::Client::from_conf(config.build());
    let answer = s3.get_object().bucket("files").key("k").send().await;
    let read = answer.unwrap().body.collect();
    let read = tokio::time::timeout(Duration::from_secs(10), read).await;
    assert!(read.expect("the transfer still waits").is_err());
    stalls.abort();
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

/// Answers every call with this.
struct Answers(u16, &'static str);

impl Plan for Answers {
    fn before<'a>(&'a self, _: &'a Request) -> BoxFuture<'a, Verdict> {
        let (status, body) = (self.0, json!({"__type": self.1, "message": "m"}));
        Box::pin(async move { Verdict::Answer { status, body } })
    }
}

#[tokio::test]
async fn a_failure_of_the_service_is_no_bug_of_the_caller() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let told = async |status, kind, sqs: bool| {
        let _plan = cloud.tap().install(Arc::new(Answers(status, kind)));
        if sqs {
            return CloudError::from(cloud.sqs().list_queues().send().await.unwrap_err());
        }
        CloudError::from(cloud.dynamodb().list_tables().send().await.unwrap_err())
    };
    for (status, kind, sqs) in [
        (500, "InternalServerErrorException", false),
        (503, "ServiceUnavailableException", false),
        // An earlier sending of ours, which may still be made.
        (400, "TransactionInProgressException", false),
        (500, "InternalServiceError", true),
    ] {
        let told = told(status, kind, sqs).await;
        assert!(matches!(told, CloudError::Unknown(_)), "{kind}: {told:?}");
    }
    let in_flight = told(400, "OverLimit", true).await;
    assert!(
        matches!(in_flight, CloudError::Throttled(_)),
        "{in_flight:?}"
    );
    let wrong = told(400, "ValidationException", false).await;
    assert!(matches!(wrong, CloudError::Other(_)), "{wrong:?}");
}

/// A Redis that says yes to everything but SET. Connections made before it is silent never hear of it again.
struct FakeRedis {
    url: String,
    silent: Arc<AtomicBool>,
    connections: Arc<AtomicUsize>,
}

async fn redis_that_says(to_set: &'static str) -> FakeRedis {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let silent = Arc::new(AtomicBool::new(false));
    let connections = Arc::new(AtomicUsize::new(0));
    let fake = FakeRedis {
        url,
        silent: silent.clone(),
        connections: connections.clone(),
    };
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            connections.fetch_add(1, Ordering::SeqCst);
            let (silent, made_before) = (silent.clone(), !silent.load(Ordering::SeqCst));
            tokio::spawn(async move {
                let mut buffer = [0_u8; 4096];
                while let Ok(n @ 1..) = socket.read(&mut buffer).await {
                    if made_before && silent.load(Ordering::SeqCst) {
                        continue;
                    }
                    let text = String::from_utf8_lossy(&buffer[..n]).into_owned();
                    for command in text.split("\r\n*") {
                        let is_set = command.contains("\r\nSET\r\n");
                        let says = if is_set { to_set } else { "+OK\r\n" };
                        let _ = socket.write_all(says.as_bytes()).await;
                    }
                }
            });
        }
    });
    fake
}

async fn set_once(cloud: &Cloud) -> Result<(), CloudError> {
    Ok(cloud.redis().await?.set("k", 1).await?)
}

#[tokio::test]
async fn a_shared_redis_connection_that_went_silent_is_replaced() {
    let fake = redis_that_says("+OK\r\n").await;
    let cloud = cloud::connect_for_tests().await.unwrap();
    let cloud = cloud
        .with_patience(Patience::SHORT)
        .with_redis_at(&fake.url);
    set_once(&cloud).await.unwrap();
    fake.silent.store(true, Ordering::SeqCst);
    set_once(&cloud).await.unwrap_err();
    set_once(&cloud).await.unwrap();
    set_once(&cloud).await.unwrap();
    assert_eq!(fake.connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_redis_that_became_a_replica_is_looked_up_again() {
    let fake = redis_that_says("-READONLY it is a replica now\r\n").await;
    let cloud = cloud::connect_for_tests().await.unwrap();
    let cloud = cloud.with_redis_at(&fake.url);
    for _ in 0..3 {
        set_once(&cloud).await.unwrap_err();
    }
    assert_eq!(fake.connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn all_who_ask_for_a_silent_redis_wait_for_one_attempt() {
    let fake = redis_that_says("+OK\r\n").await;
    let cloud = cloud::connect_for_tests().await.unwrap();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", silent.local_addr().unwrap());
    let nobody = cloud.with_patience(Patience::SHORT).with_redis_at(&url);
    let begun = Instant::now();
    let asked = join_all((0..20).map(|_| nobody.redis())).await;
    assert!(asked.iter().all(Result::is_err));
    let took = begun.elapsed();
    assert!(took < Patience::SHORT.redis * 10, "{took:?}");
    let there = cloud.with_redis_at(&fake.url);
    let asked = join_all((0..20).map(|_| set_once(&there))).await;
    assert!(asked.iter().all(Result::is_ok));
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_redis_that_fails_over_or_loads_may_be_asked_again() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    for says in [
        "-READONLY You can't write against a read only replica.\r\n",
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
    ] {
        let there = cloud.with_redis_at(&redis_that_says(says).await.url);
        let told: Result<(), _> = there.redis().await.unwrap().set("k", 1).await;
        let told = CloudError::from(told.unwrap_err());
        assert!(matches!(told, CloudError::Unknown(_)), "{says}: {told:?}");
    }
    let there = cloud.with_redis_at(&redis_that_says("-ERR wrong\r\n").await.url);
    let told: Result<(), _> = there.redis().await.unwrap().set("k", 1).await;
    let told = CloudError::from(told.unwrap_err());
    assert!(matches!(told, CloudError::Other(_)), "{told:?}");
    let nowhere = cloud.with_redis_at("redis://127.0.0.1:1").redis().await;
    let away = CloudError::from(nowhere.err().unwrap());
    assert!(matches!(away, CloudError::Unknown(_)), "{away:?}");
}
