//! The `embedded` backend: servers inside this process, on loopback, gone when dropped.
//!
//! None of them is a mock. dynoxide evaluates conditions and checks requests as strictly as
//! DynamoDB; s3s refuses an unsigned request; kevy runs Lua. What they do not have is throttling
//! and stale reads: those come from `chaos`.

use crate::backend::{Backend, ConnectError, Options};
use crate::{Cloud, Parts};
use std::fs::File;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// What ends with the cloud.
struct Servers {
    /// Dropping a sender is the signal its server waits for.
    _stops: Vec<oneshot::Sender<()>>,
    /// The S3 folder, when it is not to be kept.
    _temporary: Option<tempfile::TempDir>,
    /// Held while the data directory is in use.
    _lock: Option<File>,
}

pub(crate) async fn connect(options: Options) -> Result<Cloud, ConnectError> {
    let failed = |error: &dyn std::fmt::Display| ConnectError::Embedded(error.to_string());
    let lock = options.data.as_deref().map(lock).transpose()?;
    let database = match &options.data {
        Some(data) => dynoxide::Database::new(&data.join("dynamodb.sqlite").to_string_lossy()),
        None => dynoxide::Database::memory(),
    }
    .map_err(|error| failed(&error))?;

    let mut stops = Vec::new();
    let mut endpoint = |address: SocketAddr, stop| {
        stops.push(stop);
        Some(format!("http://{address}"))
    };

    let (listener, address) = listen().map_err(|error| failed(&error))?;
    let (stop, stopped) = oneshot::channel::<()>();
    background().spawn(async move {
        let listener = TcpListener::from_std(listener).map_err(|error| error.to_string())?;
        let stopped = async move {
            let _ = stopped.await;
        };
        dynoxide::server::serve_with_shutdown(listener, database, stopped).await
    });
    let dynamodb = endpoint(address, stop);

    #[cfg(feature = "sqs")]
    let sqs = {
        let (address, stop) = sqs::start().map_err(|error| failed(&error))?;
        endpoint(address, stop)
    };
    #[cfg(not(feature = "sqs"))]
    let sqs = None;

    #[cfg(feature = "s3")]
    let (s3, temporary) = {
        let (root, temporary) = match &options.data {
            Some(data) => (data.join("s3"), None),
            None => {
                let temporary = tempfile::tempdir().map_err(|error| failed(&error))?;
                (temporary.path().to_owned(), Some(temporary))
            }
        };
        let (address, stop) = s3::start(&root).map_err(|error| failed(&error))?;
        (endpoint(address, stop), temporary)
    };
    #[cfg(not(feature = "s3"))]
    let (s3, temporary) = (None, None);

    Ok(Cloud::new(
        Backend::Embedded,
        &options,
        Parts {
            path_style: true,
            #[cfg(feature = "s3")]
            bucket_owner: None,
            shared: crate::local_config(),
            // Without TLS: loading the certificates alone would take 30 ms.
            http: aws_smithy_http_client::Builder::new().build_http(),
            endpoints: [dynamodb, sqs, s3],
            #[cfg(feature = "redis")]
            redis: crate::RedisAddress::Embedded(options.data.clone()),
            keep: Arc::new(Servers {
                _stops: stops,
                _temporary: temporary,
                _lock: lock,
            }),
        },
    ))
}

/// One process at a time: two would overwrite each other's pages.
fn lock(data: &Path) -> Result<File, ConnectError> {
    let failed = |error| ConnectError::Embedded(format!("{}: {error}", data.display()));
    std::fs::create_dir_all(data).map_err(failed)?;
    let file = File::create(data.join("lock")).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(_) => Err(ConnectError::DataInUse(data.to_owned())),
    }
}

/// The servers run on threads of their own, so that a test may use a single-threaded runtime,
/// block it, or drop it, and the servers do not notice.
fn background() -> &'static Handle {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    RUNTIME
        .get_or_init(|| {
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(2)
                .thread_name("embedded")
                .enable_all()
                .build()
                .expect("the process can start two threads")
        })
        .handle()
}

/// A port that the system chooses.
fn listen() -> std::io::Result<(std::net::TcpListener, SocketAddr)> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Serves HTTP/1 connections until the returned sender is dropped.
#[cfg(any(feature = "sqs", feature = "s3"))]
fn serve<S, B>(listener: std::net::TcpListener, service: S) -> oneshot::Sender<()>
where
    S: hyper::service::Service<
            hyper::Request<hyper::body::Incoming>,
            Response = hyper::Response<B>,
        > + Clone
        + Send
        + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: hyper::body::Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (stop, mut stopped) = oneshot::channel::<()>();
    background().spawn(async move {
        let Ok(listener) = TcpListener::from_std(listener) else {
            return;
        };
        // Aborts the connections with the loop: a dropped cloud keeps nothing alive.
        let mut connections = tokio::task::JoinSet::new();
        loop {
            tokio::select! {
                _ = &mut stopped => return,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                Ok((socket, _)) = listener.accept() => {
                    let _ = socket.set_nodelay(true);
                    let io = hyper_util::rt::TokioIo::new(socket);
                    let service = service.clone();
                    connections.spawn(async move {
                        let _ = hyper::server::conn::http1::Builder::new()
                            .serve_connection(io, service)
                            .await;
                    });
                }
            }
        }
    });
    stop
}

#[cfg(feature = "sqs")]
mod sqs {
    use super::*;
    use rustack_sqs_core::config::SqsConfig;
    use rustack_sqs_core::handler::RustackSqsHandler;
    use rustack_sqs_core::provider::RustackSqs;
    use rustack_sqs_http::service::{SqsHttpConfig, SqsHttpService};

    pub(super) fn start() -> std::io::Result<(SocketAddr, oneshot::Sender<()>)> {
        let (listener, address) = listen()?;
        let config = SqsConfig {
            host: address.ip().to_string(),
            port: address.port(),
            ..SqsConfig::default()
        };
        // The queues spawn tasks of their own: on the servers' threads, not on the caller's.
        let _guard = background().enter();
        let provider = Arc::new(RustackSqs::new(config));
        let handler = Arc::new(RustackSqsHandler::new(provider));
        let service = SqsHttpService::new(handler, SqsHttpConfig::default());
        Ok((address, serve(listener, service)))
    }
}

#[cfg(feature = "s3")]
mod s3 {
    use super::*;
    use s3s::auth::SimpleAuth;
    use s3s::service::S3ServiceBuilder;

    pub(super) fn start(
        root: &Path,
    ) -> Result<(SocketAddr, oneshot::Sender<()>), Box<dyn std::error::Error>> {
        std::fs::create_dir_all(root)?;
        let store = s3s_fs::FileSystem::new(root).map_err(|error| format!("{error:?}"))?;
        let mut builder = S3ServiceBuilder::new(store);
        // With keys to check against, an unsigned request gets 403 and a presigned URL means something.
        builder.set_auth(SimpleAuth::from_single(
            crate::LOCAL_KEY,
            crate::LOCAL_SECRET,
        ));
        let (listener, address) = listen()?;
        Ok((address, serve(listener, builder.build())))
    }
}

/// Redis for the whole process: keys are prefixed for each cloud. With a data directory, one
/// that is kept there.
#[cfg(feature = "redis")]
pub(crate) mod redis_server {
    use super::*;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    /// The address of the server for this data directory, started if it does not run yet.
    pub(crate) fn address(data: Option<&Path>) -> Result<String, ConnectError> {
        static RUNNING: Mutex<Vec<(Option<std::path::PathBuf>, String)>> = Mutex::new(Vec::new());
        let mut running = RUNNING
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, url)) = running.iter().find(|(of, _)| of.as_deref() == data) {
            return Ok(url.clone());
        }
        let url = start(data).map_err(|error| ConnectError::Redis(error.to_string()))?;
        running.push((data.map(Path::to_owned), url.clone()));
        Ok(url)
    }

    fn start(data: Option<&Path>) -> std::io::Result<String> {
        // Without a log kevy writes nothing, but it wants a folder to begin with. It is gone when
        // this returns.
        let temporary = tempfile::tempdir()?;
        let folder = match data {
            Some(data) => data.join("redis"),
            None => temporary.path().to_owned(),
        };
        std::fs::create_dir_all(&folder)?;
        let (reserved, address) = reserve_port()?;
        let runtime = kevy_rt::Runtime::new([127, 0, 0, 1], address.port(), 1, kevy::KevyCommands)
            .with_data_dir(folder)
            .with_aof(data.is_some());
        let (failed, failure) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name("embedded-redis".into())
            .spawn(move || {
                let _ = failed.send(runtime.run(Arc::new(AtomicBool::new(false))));
            })?;
        let deadline = Instant::now() + Duration::from_secs(5);
        while std::net::TcpStream::connect(address).is_err() {
            if let Ok(Err(error)) = failure.try_recv() {
                return Err(error);
            }
            if Instant::now() > deadline {
                return Err(std::io::Error::other(
                    "the embedded Redis did not start in 5 s",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(reserved);
        Ok(format!("redis://{address}"))
    }

    /// A port for kevy, which cannot say what the system would choose. A port that was free a
    /// moment ago may not be; so it stays bound here, shared and not listening, until kevy has it.
    fn reserve_port() -> std::io::Result<(socket2::Socket, SocketAddr)> {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)?;
        socket.set_reuse_port(true)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())?;
        let address = socket.local_addr()?.as_socket();
        let address = address.ok_or_else(|| std::io::Error::other("not an IP address"))?;
        Ok((socket, address))
    }
}
