//! A server that is told to stop stops, whatever its clients do.
#![allow(clippy::unwrap_used)]

use axum::Router;
use axum::routing::{get, post};
use serving::client::Served;
use serving::{LAST_CALL, with_fallbacks};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

async fn serve(router: Router) -> (Served, TcpStream) {
    let served = Served::start(|listener, stop| serving::serve(listener, router, stop));
    let served = served.await.unwrap();
    let host = served.base.trim_start_matches("http://");
    let socket = TcpStream::connect(host).await.unwrap();
    (served, socket)
}

#[tokio::test]
async fn half_a_request_does_not_keep_a_server_from_stopping() {
    let router = || Router::new().route("/", post(async |text: String| text));
    let stopping = async |half: &str| {
        let (served, mut socket) = serve(router()).await;
        socket.write_all(half.as_bytes()).await.unwrap();
        // Connections are taken in order, so the first is open when the second is answered.
        assert_eq!(served.get("/").await.0, 405);
        served.stopped().await.unwrap();
    };
    let body = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nhalf";
    tokio::join!(stopping("POST / HT"), stopping(body));
}

#[tokio::test]
async fn a_request_under_way_is_answered_before_the_server_stops() {
    let (begun, goes_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (began, waits) = (begun.clone(), goes_on.clone());
    let slow = async move || {
        began.add_permits(1);
        waits.acquire().await.unwrap().forget();
        "done"
    };
    let (served, mut socket) = serve(Router::new().route("/", get(slow))).await;
    let request = "GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    begun.acquire().await.unwrap().forget();
    let told = Instant::now();
    let stopped = tokio::spawn(served.stopped());
    goes_on.add_permits(1);
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.ends_with("done"), "{answer}");
    stopped.await.unwrap().unwrap();
    assert!(told.elapsed() < LAST_CALL);
}

#[tokio::test]
async fn a_server_that_stops_waits_for_work_whose_client_hung_up() {
    let (begun, goes_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let done = Arc::new(AtomicBool::new(false));
    let (began, waits, is_done) = (begun.clone(), goes_on.clone(), done.clone());
    let slow = async move || {
        began.add_permits(1);
        waits.acquire().await.unwrap().forget();
        is_done.store(true, Ordering::SeqCst);
    };
    let router = with_fallbacks(Router::new().route("/", post(slow)));
    let (served, mut socket) = serve(router).await;
    let request = "POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n";
    socket.write_all(request.as_bytes()).await.unwrap();
    begun.acquire().await.unwrap().forget();
    drop(socket);
    let stopped = tokio::spawn(served.stopped());
    // Often enough for a server that does not wait to end.
    for _ in 0..1_000 {
        tokio::task::yield_now().await;
    }
    goes_on.add_permits(1);
    stopped.await.unwrap().unwrap();
    assert!(
        done.load(Ordering::SeqCst),
        "it stopped in the middle of the work"
    );
}
