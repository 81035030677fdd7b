//! What one does to those beside it: a pause of Redis and a cancellation, many browsers and one, hanging payments and
//! plain holds, a wrong clock and an event, several servers and one key.
#![allow(clippy::unwrap_used)]

mod venue;

use chaos::Says;
use cloud::as_actor;
use cloud::tap::{Request, Service, Verdict};
use std::sync::Arc;
use std::time::Duration;
use ticket_holds::lease::REST_MS;
use ticket_holds::{Cancelling, Realization, Reserved};
use venue::open_alone;

/// One late answer of Redis begins the rest, and the cancellation falls into it.
#[tokio::test]
async fn a_cancellation_while_redis_rests_frees_the_seat() {
    let venue = open_alone(Realization::Leased).await;
    venue.hold("alice", &[1]).await;
    let late = |request: &Request| match (&*request.actor, &request.service) {
        ("dave", Service::Redis) => Verdict::LoseRequest,
        _ => Verdict::Pass,
    };
    let cloud = venue.office.cloud();
    let _plan = cloud.tap().install(Arc::new(Says(late)));
    as_actor("dave", venue.reserve("dave", &[4])).await;
    let cancelled = venue.office.cancel(&venue.id("alice")).await.unwrap();
    assert!(matches!(cancelled, Cancelling::Cancelled(_)));
    cloud.clock().advance(Duration::from_millis(REST_MS as u64));
    venue.office.sweep(&venue.cards).await;
    let told = venue.reserve("bob", &[1]).await;
    assert!(matches!(told, Reserved::Held(_)), "{told:?}");
    // It is owed no more, and Bob's own lease stands.
    let recording = cloud.tap().record();
    venue.office.sweep(&venue.cards).await;
    let calls = recording.take();
    assert!(
        calls
            .iter()
            .all(|call| call.request.service != Service::Redis)
    );
    let told = venue.reserve("erin", &[1]).await;
    assert!(matches!(told, Reserved::Rejected(_)), "{told:?}");
    let asked = recording.take();
    assert!(
        asked
            .iter()
            .all(|call| call.request.service == Service::Redis)
    );
}
