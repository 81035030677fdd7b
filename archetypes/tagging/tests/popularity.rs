//! Popularity: counted once, in any order, after any death; mended by a recount; ranked in Redis.
#![allow(clippy::unwrap_used)]

mod counting;
mod shelf;

use chaos::{Conflicts, CrashSweep, Faults, Interleave, Tokenless, World};
use cloud::item::{n, s, to_item};
use cloud::tap::{Plan, Request, Service, Verdict};
use cloud::{Cloud, TEST_EPOCH};
use counting::{HOUR, Meanwhile, change, expected};
use futures::future::BoxFuture;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};
use shelf::{Shelf, empty_alone, name};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tagging::follow_stream::{Checkpoint, Followed, Follower};
use tagging::items::{Edge, tag_id_key};
use tagging::popularity::AppliedState;
use tagging::top_tags::RankedTag;
use tagging::windows::Window;

/// Two tags and four contents; one edge was detached, one attached again an hour later. Six events.
async fn lively() -> Shelf {
    let shelf = empty_alone().await;
    shelf.create("rust", 2).await;
    shelf.create("jazz", 1).await;
    shelf.attach("photo-1", "rust").await;
    shelf.attach("photo-2", "rust").await;
    shelf.attach("photo-2", "jazz").await;
    shelf.detach("photo-1", "rust").await;
    shelf
        .tagging
        .cloud()
        .clock()
        .advance(Duration::from_secs(3_600));
    shelf.attach("photo-1", "rust").await;
    shelf.detach("photo-2", "jazz").await;
    shelf
}

#[tokio::test]
async fn at_rest_counts_equal_live_edges_in_every_window() {
    let shelf = lively().await;
    let followed = shelf.follow().await;
    assert_eq!(
        followed,
        Followed {
            records: 6,
            counted: 3,
            gaps: 0
        }
    );
    shelf.counts_equal_edges().await.unwrap();
    let rust = shelf.tag_id("rust").await;
    let counted = shelf
        .tagging
        .popularity(shelf.tenant.as_str(), &rust)
        .await
        .unwrap();
    let hours = [
        (Window::hour(TEST_EPOCH), 1),
        (Window::hour(TEST_EPOCH + HOUR), 1),
    ];
    let mut by_window = BTreeMap::from([(Window::All, 2), (Window::day(TEST_EPOCH), 2)]);
    by_window.extend(hours);
    assert_eq!(
        counted, by_window,
        "photo-1 has moved to the hour it was attached in again"
    );
    // Going on from the checkpoint, there is nothing new.
    assert_eq!(shelf.follow().await, Followed::default());
}

#[tokio::test]
async fn an_event_that_comes_again_changes_nothing() {
    let shelf = lively().await;
    shelf.follow().await;
    // All from the beginning, as often as you like.
    for _ in 0..3 {
        for shard_id in shelf.tagging.checkpoints().await.unwrap().into_keys() {
            let key = [("stream", "content_tag_unique"), ("shard_id", &shard_id)];
            let key = key.map(|(name, value)| (name.to_owned(), s(value)));
            shelf.remove("stream_checkpoints", key.into()).await;
        }
        let again = shelf.follow().await;
        assert_eq!(
            again,
            Followed {
                records: 6,
                counted: 0,
                gaps: 0
            }
        );
        shelf.counts_equal_edges().await.unwrap();
    }
}

/// Every order of attach, detach, attach, detach, attach of one edge.
#[tokio::test]
async fn every_order_of_the_events_of_an_edge_gives_the_same_counts() {
    let shelf = empty_alone().await;
    let mut orders = 0;
    for order in permutations(&[1, 2, 3, 4, 5]) {
        // A tag of its own for every order, so that all fit on one store.
        let tag_id = format!("tag-{orders}");
        orders += 1;
        for version in &order {
            let change = change(&shelf, "photo-1", &tag_id, *version);
            shelf.tagging.apply(&[change]).await.unwrap();
        }
        let newest = change(&shelf, "photo-1", &tag_id, 5);
        let expected = expected(shelf.tagging.cloud().now(), [&newest]);
        let counted = shelf
            .tagging
            .popularity(shelf.tenant.as_str(), &tag_id)
            .await;
        assert_eq!(counted.unwrap(), expected, "{order:?}");
        for (window, live) in expected {
            let ranked = shelf.in_redis(window).await;
            assert_eq!(ranked.get(&tag_id), Some(&live), "{order:?} in {window}");
        }
        let gone = Window::hour(TEST_EPOCH);
        assert_eq!(shelf.in_redis(gone).await.get(&tag_id), None, "{order:?}");
    }
    assert_eq!(orders, 120);
}

fn permutations(of: &[u64]) -> Vec<Vec<u64>> {
    if of.is_empty() {
        return vec![Vec::new()];
    }
    let with = |first: &u64| {
        let rest: Vec<u64> = of.iter().copied().filter(|other| other != first).collect();
        let first = *first;
        permutations(&rest).into_iter().map(move |mut order| {
            order.insert(0, first);
            order
        })
    };
    of.iter().flat_map(with).collect()
}

/// Events of several edges, shuffled, repeated and in batches of any size; some may never come.
#[test]
fn any_events_in_any_batches_count_as_the_newest_of_each_edge() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let shelf = runtime.block_on(empty_alone());
    let config = Config {
        cases: 32,
        failure_persistence: None,
        ..Config::default()
    };
    let events = prop::collection::vec((0..3_usize, 0..2_usize, 1..6_u64), 1..14);
    let batches = prop::collection::vec(1..5_usize, 14);
    let case = AtomicUsize::new(0);
    TestRunner::new(config)
        .run(&(events, batches), |(events, batches)| {
            let case = case.fetch_add(1, Ordering::SeqCst);
            let tags = [format!("tag-{case}-a"), format!("tag-{case}-b")];
            let changes: Vec<Edge> = events
                .iter()
                .map(|(content, tag, version)| {
                    let content = format!("photo-{content}");
                    change(&shelf, &content, &tags[*tag], *version)
                })
                .collect();
            let mut newest: BTreeMap<(&str, &str), &Edge> = BTreeMap::new();
            for change in &changes {
                let edge = newest
                    .entry((&change.content_id, &change.tag_id))
                    .or_insert(change);
                if edge.version < change.version {
                    *edge = change;
                }
            }
            runtime.block_on(async {
                let mut left = &changes[..];
                for size in batches {
                    let (batch, rest) = left.split_at(size.min(left.len()));
                    shelf.tagging.apply(batch).await.unwrap();
                    left = rest;
                }
                shelf.tagging.apply(left).await.unwrap();
                for tag_id in &tags {
                    let of_tag = newest
                        .values()
                        .copied()
                        .filter(|edge| edge.tag_id == *tag_id);
                    let expected = expected(TEST_EPOCH, of_tag);
                    let counted = shelf
                        .tagging
                        .popularity(shelf.tenant.as_str(), tag_id)
                        .await;
                    assert_eq!(counted.unwrap(), expected);
                    for (window, live) in expected {
                        assert_eq!(shelf.in_redis(window).await.get(tag_id), Some(&live));
                    }
                }
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_follower_that_dies_at_any_call_is_followed_by_one_that_goes_on() {
    let swept = CrashSweep::of(lively)
        .action("follower", |shelf| async move {
            // Two records at a time: it dies between pages, too.
            let follower = Follower::new(shelf.tagging.clone());
            follower.with_page(2).follow().await
        })
        .recovery(|shelf| async move { shelf.follow().await })
        .check(|shelf| async move { shelf.counts_equal_edges().await })
        .run()
        .await
        .unwrap();
    assert!(swept.points.len() >= 30, "{:?}", swept.points);
    let dies = |at: &str| swept.points.iter().any(|point| point.contains(at));
    assert!(dies("TransactWriteItems") && dies("EVAL") && dies("PutItem stream_checkpoints"));
}

/// Lost requests, lost answers, throttling; and no token that would make DynamoDB remember.
#[tokio::test]
async fn lost_answers_count_nothing_twice() {
    let mut injected = 0;
    for seed in 0..12 {
        let shelf = lively().await;
        let faults = Faults::seeded(seed)
            .throttle(0.1)
            .lose_request(0.1)
            .lose_answer(0.2);
        let faults = Arc::new(faults);
        let tokenless = shelf.cloud().tap().install(Arc::new(Tokenless));
        let weather = shelf.cloud().tap().install(faults.clone());
        while Follower::new(shelf.tagging.clone())
            .with_page(2)
            .follow()
            .await
            .is_err()
        {}
        drop((weather, tokenless));
        injected += faults.injected().values().sum::<usize>();
        shelf
            .counts_equal_edges()
            .await
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    }
    assert!(injected > 20, "only {injected} faults");
}

#[tokio::test]
async fn a_count_that_conflicts_with_another_is_made_again() {
    let shelf = lively().await;
    let conflicts = Arc::new(Conflicts::on("TransactWriteItems", 3));
    let installed = shelf.cloud().tap().install(conflicts.clone());
    shelf.follow().await;
    drop(installed);
    assert_eq!(conflicts.left(), 0);
    shelf.counts_equal_edges().await.unwrap();
}

/// One edge, attached and detached, and a second one; two consumers are told in every order of calls.
#[tokio::test]
async fn two_consumers_of_the_same_events_count_each_once_in_every_order() {
    let explored = Interleave::of(empty_alone)
        .actor("first", |shelf| async move {
            let changes = [
                change(&shelf, "photo-1", "tag-a", 1),
                change(&shelf, "photo-2", "tag-a", 1),
            ];
            shelf.tagging.apply(&changes).await.unwrap().counted
        })
        .actor("second", |shelf| async move {
            let changes = [
                change(&shelf, "photo-1", "tag-a", 2),
                change(&shelf, "photo-2", "tag-a", 1),
            ];
            shelf.tagging.apply(&changes).await.unwrap().counted
        })
        .check(|shelf, told| async move {
            let edges = [
                change(&shelf, "photo-1", "tag-a", 2),
                change(&shelf, "photo-2", "tag-a", 1),
            ];
            let expected = expected(TEST_EPOCH, &edges);
            let counted = shelf
                .beside()
                .popularity(shelf.tenant.as_str(), "tag-a")
                .await
                .unwrap();
            if counted != expected {
                return Err(format!("counted {counted:?}, not {expected:?}"));
            }
            for (window, live) in expected {
                let found = shelf.in_redis(window).await;
                if found != BTreeMap::from([("tag-a".into(), live)]) {
                    return Err(format!("Redis has {found:?} in {window}"));
                }
            }
            Ok(format!("{told:?}"))
        })
        .run()
        .await
        .unwrap();
    assert!(explored.seen.len() >= 2, "{:?}", explored.seen);
}

/// A slow follower reads a page; another goes past it; then the slow one writes down its place.
pub async fn slow_and_fast() -> (Shelf, BTreeMap<String, Checkpoint>) {
    let shelf = lively().await;
    let (fast, slow) = (shelf.beside(), shelf.tagging.clone());
    let fast = async move {
        Follower::new(fast).follow().await.unwrap();
    };
    let meanwhile = Meanwhile::before("PutItem stream_checkpoints", fast);
    let installed = shelf.cloud().tap().install(meanwhile.clone());
    Follower::new(slow).with_page(2).follow().await.unwrap();
    drop(installed);
    assert!(meanwhile.happened());
    let checkpoints = shelf.beside().checkpoints().await.unwrap();
    (shelf, checkpoints)
}

#[tokio::test]
async fn the_place_of_a_follower_never_moves_back() {
    let (shelf, overtaken) = slow_and_fast().await;
    shelf.counts_equal_edges().await.unwrap();
    // The fast one has read everything, and that is where the next one goes on.
    assert_eq!(shelf.follow().await, Followed::default());
    assert_eq!(shelf.beside().checkpoints().await.unwrap(), overtaken);
}

// The stream's own troubles: shards that end, have children, are trimmed and go.

/// A stream as DynamoDB may have it and the embedded one never does: several shards. Only the answers
/// of the stream are made here; what is counted is counted in the store.
#[derive(Default)]
struct Shards(Mutex<Vec<Shard>>);

#[derive(Default, Clone)]
struct Shard {
    id: &'static str,
    parent: Option<&'static str>,
    records: Vec<Edge>,
    /// No more will come.
    closed: bool,
    /// So many of its records are forgotten.
    trimmed: usize,
    /// How often an iterator has expired when it is used.
    expires: usize,
    read: usize,
}

impl Shards {
    fn of(shards: &[Shard]) -> Arc<Self> {
        Arc::new(Self(Mutex::new(shards.to_vec())))
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Shard>)) {
        change(&mut self.0.lock().unwrap());
    }

    fn answer(&self, request: &Request) -> Verdict {
        let mut shards = self.0.lock().unwrap();
        let refuse = |code: &str| Verdict::Answer {
            status: 400,
            body: json!({
                "__type": format!("com.amazonaws.dynamodb.v20120810#{code}"),
                "message": "as asked for by the test",
            }),
        };
        let text = |name: &str| request.body[name].as_str().unwrap_or_default().to_owned();
        let body = match request.operation.as_str() {
            "ListStreams" => {
                json!({"Streams": [{"StreamArn": "arn:aws:dynamodb:us-east-1:000000000000:table/t/stream/1"}]})
            }
            "DescribeStream" => {
                let shards: Vec<Value> = shards
                    .iter()
                    .map(|shard| match shard.parent {
                        Some(parent) => json!({"ShardId": shard.id, "ParentShardId": parent}),
                        None => json!({"ShardId": shard.id}),
                    })
                    .collect();
                json!({"StreamDescription": {"StreamArn": "arn", "Shards": shards}})
            }
            "GetShardIterator" => {
                let id = text("ShardId");
                let Some(shard) = shards.iter().find(|shard| shard.id == id) else {
                    return refuse("ResourceNotFoundException");
                };
                let after: usize = text("SequenceNumber").parse().unwrap_or_default();
                let from = match text("ShardIteratorType").as_str() {
                    "TRIM_HORIZON" => shard.trimmed,
                    _ if after < shard.trimmed => return refuse("TrimmedDataAccessException"),
                    _ => after,
                };
                json!({"ShardIterator": format!("{id}/{from}")})
            }
            "GetRecords" => {
                let iterator = text("ShardIterator");
                let (id, from) = iterator.split_once('/').unwrap();
                let from: usize = from.parse().unwrap();
                let shard = shards.iter_mut().find(|shard| shard.id == id).unwrap();
                if shard.expires > 0 {
                    shard.expires -= 1;
                    return refuse("ExpiredIteratorException");
                }
                shard.read += 1;
                let until = shard.records.len().min(from + 2);
                let records = (from..until).map(|at| record(&shard.records[at], at + 1));
                let records: Vec<Value> = records.collect();
                let ended = shard.closed && until == shard.records.len();
                match ended {
                    true => json!({"Records": records}),
                    false => {
                        json!({"Records": records, "NextShardIterator": format!("{id}/{until}")})
                    }
                }
            }
            other => panic!("{other}"),
        };
        Verdict::Answer { status: 200, body }
    }
}

fn record(edge: &Edge, sequence_number: usize) -> Value {
    json!({"dynamodb": {
        "SequenceNumber": format!("{sequence_number:021}"),
        "NewImage": {
            "tenant_id": {"S": edge.tenant_id},
            "content_id": {"S": edge.content_id},
            "tag_id": {"S": edge.tag_id},
            "tag_name_norm": {"S": edge.tag_name_norm},
            "live": {"BOOL": edge.live},
            "version": {"N": edge.version.to_string()},
            "created_at": {"N": edge.created_at.to_string()},
            "bucket": {"N": edge.bucket.to_string()},
            "changed_at": {"N": edge.changed_at.to_string()},
            "change_id": {"S": edge.change_id},
        },
    }})
}

impl Plan for Shards {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let verdict = match request.service {
            Service::Streams => self.answer(request),
            _ => Verdict::Pass,
        };
        Box::pin(async move { verdict })
    }
}

/// The edges of two contents as they stand in the tables, each attached.
async fn two_tagged() -> (Shelf, Vec<Edge>) {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    let mut edges = Vec::new();
    for id in ["photo-1", "photo-2"] {
        shelf.attach(id, "rust").await;
        edges.push(shelf.edge(id, "rust").await);
        shelf.later();
    }
    (shelf, edges)
}

#[tokio::test]
async fn a_child_is_read_when_its_parent_has_ended_and_not_before() {
    let (shelf, edges) = two_tagged().await;
    let [first, second] = &edges[..] else {
        unreachable!()
    };
    let parent = Shard {
        id: "parent",
        records: vec![first.clone()],
        ..Shard::default()
    };
    let child = Shard {
        id: "child",
        parent: Some("parent"),
        records: vec![second.clone()],
        ..Shard::default()
    };
    // The stream may list them in any order.
    let shards = Shards::of(&[child, parent]);
    let _plan = shelf.cloud().tap().install(shards.clone());
    let mut follower = Follower::new(shelf.tagging.clone());
    assert_eq!(follower.follow().await.unwrap().counted, 1);
    shards.change(|shards| assert_eq!(shards[0].read, 0, "its parent is open"));
    shards.change(|shards| shards[1].closed = true);
    assert_eq!(
        follower.follow().await.unwrap(),
        Followed {
            records: 1,
            counted: 1,
            gaps: 0
        }
    );
    shelf.counts_equal_edges().await.unwrap();
    // The parent is listed no more; it was read to its end, so nothing is lost.
    shards.change(|shards| shards.truncate(1));
    assert_eq!(follower.follow().await.unwrap(), Followed::default());
    assert_eq!(shelf.follow().await, Followed::default());
    let checkpoints = shelf.tagging.checkpoints().await.unwrap();
    assert!(checkpoints["parent"].ended && checkpoints["parent"].expires_at.is_some());
    assert!(
        checkpoints
            .values()
            .all(|checkpoint| checkpoint.gap.is_none())
    );
}

#[tokio::test]
async fn an_iterator_that_has_expired_is_asked_for_again_from_the_checkpoint() {
    let (shelf, edges) = two_tagged().await;
    let shard = Shard {
        id: "shard",
        records: edges,
        expires: 1,
        ..Shard::default()
    };
    let shards = Shards::of(&[shard]);
    let _plan = shelf.cloud().tap().install(shards.clone());
    let mut follower = Follower::new(shelf.tagging.clone());
    assert_eq!(
        follower.follow().await.unwrap(),
        Followed {
            records: 2,
            counted: 2,
            gaps: 0
        }
    );
    shards.change(|shards| shards[0].expires = 1);
    assert_eq!(follower.follow().await.unwrap(), Followed::default());
    shelf.counts_equal_edges().await.unwrap();
}

/// What the stream has forgotten, in each of the ways it can: the gap is kept until a recount.
async fn a_gap_is_mended(lose: impl FnOnce(&mut Vec<Shard>), again: &[Shard]) {
    let (shelf, edges) = two_tagged().await;
    let shard = Shard {
        id: "shard",
        records: vec![edges[0].clone()],
        ..Shard::default()
    };
    let shards = Shards::of(&[shard]);
    let _plan = shelf.cloud().tap().install(shards.clone());
    assert_eq!(shelf.follow().await.counted, 1);
    // Four more records come, of which the follower sees none or the last.
    shelf.detach("photo-1", "rust").await;
    let mut more = vec![shelf.edge("photo-1", "rust").await, edges[1].clone()];
    for id in ["photo-3", "photo-4"] {
        shelf.attach(id, "rust").await;
        more.push(shelf.edge(id, "rust").await);
    }
    shards.change(|shards| shards[0].records.extend(more));
    shards.change(lose);
    shards.change(|shards| shards.extend_from_slice(again));
    let followed = shelf.follow().await;
    assert_eq!(followed.gaps, 1, "{followed:?}");
    assert!(
        shelf.counts_equal_edges().await.is_err(),
        "something is lost"
    );
    // Durable: whoever comes next knows it too, and does not find it again.
    assert_eq!(shelf.follow().await.gaps, 0);
    let gaps = shelf.tagging.checkpoints().await.unwrap();
    assert!(gaps.values().any(|checkpoint| checkpoint.gap.is_some()));
    let mended = shelf
        .tagging
        .mend_gaps(std::slice::from_ref(&shelf.tenant))
        .await
        .unwrap();
    assert!(mended[0].edges_counted > 0, "{mended:?}");
    shelf.counts_equal_edges().await.unwrap();
    let tenants = std::slice::from_ref(&shelf.tenant);
    assert!(
        shelf.tagging.mend_gaps(tenants).await.unwrap().is_empty(),
        "the gap is forgotten"
    );
    assert_eq!(shelf.follow().await, Followed::default());
}

#[tokio::test]
async fn records_that_were_trimmed_are_a_gap_that_a_recount_mends() {
    a_gap_is_mended(|shards| shards[0].trimmed = 4, &[]).await;
}

#[tokio::test]
async fn a_shard_that_is_gone_is_a_gap_that_a_recount_mends() {
    a_gap_is_mended(Vec::clear, &[]).await;
}

#[tokio::test]
async fn a_parent_that_nobody_has_read_is_a_gap_that_a_recount_mends() {
    // The shard itself was read to its end; a generation between it and the next was not.
    let child = Shard {
        id: "grandchild",
        parent: Some("child"),
        ..Shard::default()
    };
    a_gap_is_mended(
        |shards| {
            shards[0].records.truncate(1);
            shards[0].closed = true;
        },
        &[child],
    )
    .await;
}

#[tokio::test]
async fn a_gap_that_is_noticed_during_a_recount_stays_noted() {
    let shelf = still_gapped().await.0;
    let checkpoints = shelf.tagging.checkpoints().await.unwrap();
    assert!(checkpoints["shard"].gap.is_some());
}

/// A gap is mended, and while the recount is on its way another one is noticed.
pub async fn still_gapped() -> (Shelf, Arc<Meanwhile>) {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.attach("photo-1", "rust").await;
    let gapped = |gap: u64| Checkpoint {
        stream: "content_tag_unique".into(),
        shard_id: "shard".into(),
        revision: gap,
        gap: Some(gap),
        ..Checkpoint::default()
    };
    shelf
        .put("stream_checkpoints", to_item(&gapped(3)).unwrap())
        .await;
    let (cloud, item) = (shelf.cloud().beside_tap(), to_item(&gapped(4)).unwrap());
    let noticed = async move {
        let table = cloud.names().table("stream_checkpoints");
        let put = cloud.dynamodb().put_item().table_name(table);
        put.set_item(Some(item)).send().await.unwrap();
    };
    let meanwhile = Meanwhile::before("UpdateItem stream_checkpoints", noticed);
    let installed = shelf.cloud().tap().install(meanwhile.clone());
    shelf
        .tagging
        .mend_gaps(std::slice::from_ref(&shelf.tenant))
        .await
        .unwrap();
    drop(installed);
    assert!(meanwhile.happened());
    (shelf, meanwhile)
}

// Recount.

/// Everything that can be wrong with the counts, one by one.
#[tokio::test]
async fn a_recount_repairs_any_corruption() {
    let all = Window::All;
    let hour = Window::hour(TEST_EPOCH);
    for damage in 0..12 {
        let shelf = lively().await;
        shelf.follow().await;
        let (rust, jazz) = (shelf.tag_id("rust").await, shelf.tag_id("jazz").await);
        let edge = shelf.edge("photo-1", "rust").await;
        let applied = AppliedState {
            content_key: format!("{}#photo-1", shelf.tenant.as_str()),
            tag_id: rust.clone(),
            version: edge.version,
            live: true,
            created_at: edge.created_at,
        };
        let put_applied = async |applied: AppliedState| {
            shelf
                .put("popularity_applied", to_item(&applied).unwrap())
                .await;
        };
        let row = |tag_id: &str, window: Window| {
            let key = tag_id_key(shelf.tenant.as_str(), tag_id);
            [
                ("tag_id_key".to_owned(), s(key)),
                ("window".to_owned(), s(window.to_string())),
            ]
            .into()
        };
        let mut redis = shelf.beside().cloud().redis().await.unwrap();
        let [counts, revisions, _] = shelf.tagging.popularity_keys(shelf.tenant.as_str(), all);
        let mut command = redis::Cmd::new();
        match damage {
            0 => shelf.damage_count(&rust, all, 7, 3).await,
            1 => shelf.damage_count(&rust, hour, -2, 1).await,
            2 => shelf.remove("tag_popularity", row(&rust, all)).await,
            3 => shelf.remove("tag_popularity", row(&rust, hour)).await,
            4 => {
                shelf
                    .damage_count(&jazz, Window::hour(TEST_EPOCH - HOUR), 5, 1)
                    .await
            }
            5 => shelf.remove("popularity_applied", edge.key()).await,
            6 => {
                put_applied(AppliedState {
                    live: false,
                    ..applied
                })
                .await
            }
            7 => {
                put_applied(AppliedState {
                    version: 99,
                    live: false,
                    ..applied
                })
                .await
            }
            8 => {
                put_applied(AppliedState {
                    version: 1,
                    created_at: TEST_EPOCH,
                    ..applied
                })
                .await
            }
            9 => command
                .arg("ZADD")
                .arg(counts)
                .arg(50)
                .arg("a stranger")
                .exec_async(&mut redis)
                .await
                .unwrap(),
            10 => command
                .arg("HSET")
                .arg(revisions)
                .arg(&rust)
                .arg(1_000)
                .exec_async(&mut redis)
                .await
                .unwrap(),
            _ => {
                shelf.damage_count(&rust, all, 0, 0).await;
                put_applied(AppliedState {
                    version: 6,
                    ..applied
                })
                .await;
                shelf.redis_forgets().await;
            }
        }
        let mended = shelf.tagging.recount(&shelf.tenant).await.unwrap();
        assert!(mended.never_at_rest.is_empty(), "{damage}: {mended:?}");
        if damage < 5 {
            assert!(!mended.counts_corrected.is_empty(), "{damage}: {mended:?}");
        }
        shelf
            .counts_equal_edges()
            .await
            .unwrap_or_else(|why| panic!("{damage}: {why}"));
        // Not only for now: every edge changes again, and is counted right.
        shelf.detach("photo-1", "rust").await;
        shelf.attach("photo-2", "jazz").await;
        shelf.detach("photo-2", "rust").await;
        shelf.attach("photo-3", "rust").await;
        shelf.follow().await;
        shelf
            .counts_equal_edges()
            .await
            .unwrap_or_else(|why| panic!("{damage}, later: {why}"));
        let again = shelf.tagging.recount(&shelf.tenant).await.unwrap();
        assert!(
            again.counts_corrected.is_empty() && again.edges_counted == 0,
            "{damage}: {again:?}"
        );
    }
}

/// A wrong count, and an edge whose event has not been counted yet.
async fn miscounted() -> Shelf {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.attach("photo-1", "rust").await;
    shelf.follow().await;
    shelf.attach("photo-2", "rust").await;
    let rust = shelf.tag_id("rust").await;
    shelf.damage_count(&rust, Window::All, 9, 1).await;
    shelf
}

/// Before the k-th call of a recount, an event is counted, for every k; and the other way round.
#[tokio::test]
async fn a_recount_is_safe_whenever_an_event_comes_in_between() {
    let mut overtaken = 0;
    for k in 1.. {
        let shelf = miscounted().await;
        let (consumer, edge) = (shelf.beside(), shelf.edge("photo-2", "rust").await);
        let meanwhile = Meanwhile::before_call(k, async move {
            consumer.apply(&[edge]).await.unwrap();
        });
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        let done = shelf
            .tagging
            .recount_tag(&shelf.tenant, &shelf.rust)
            .await
            .unwrap();
        drop(installed);
        if !meanwhile.happened() {
            assert!(k > 8, "a recount makes {k} calls");
            break;
        }
        overtaken += usize::from(done.edges_counted == 0);
        shelf
            .counts_equal_edges()
            .await
            .unwrap_or_else(|why| panic!("before call {k}: {why}"));
    }
    assert!(
        overtaken > 0,
        "the event never came before the recount saw its edge"
    );
    for k in 1.. {
        let shelf = miscounted().await;
        let (recounter, tenant, rust) = (shelf.beside(), shelf.tenant.clone(), shelf.rust.clone());
        let meanwhile = Meanwhile::before_call(k, async move {
            recounter.recount_tag(&tenant, &rust).await.unwrap();
        });
        let edge = shelf.edge("photo-2", "rust").await;
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        shelf.tagging.apply(&[edge]).await.unwrap();
        drop(installed);
        if !meanwhile.happened() {
            break;
        }
        shelf
            .counts_equal_edges()
            .await
            .unwrap_or_else(|why| panic!("before call {k}: {why}"));
    }
}

#[tokio::test]
async fn a_recount_that_dies_at_any_call_can_be_made_again() {
    let recount = |shelf: Arc<Shelf>| async move {
        shelf
            .tagging
            .recount_tag(&shelf.tenant, &shelf.rust)
            .await
            .unwrap()
    };
    let swept = CrashSweep::of(miscounted)
        .action("recount", recount)
        .recovery(recount)
        .check(|shelf| async move { shelf.counts_equal_edges().await })
        .run()
        .await
        .unwrap();
    assert!(swept.points.len() > 12, "{}", swept.points.len());
}

#[tokio::test]
async fn a_tag_that_never_rests_is_reported_and_left_alone() {
    let (shelf, edges) = two_tagged().await;
    shelf.follow().await;
    let rust = shelf.tag_id("rust").await;
    shelf.damage_count(&rust, Window::All, 9, 1).await;
    // Whenever the recount comes to write, something has just been counted.
    struct Restless(Cloud, String);
    impl Plan for Restless {
        fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
            Box::pin(async move {
                if request
                    .shape()
                    .starts_with("TransactWriteItems [Update tag_popularity if")
                {
                    let key = [("tag_id_key", s(&self.1)), ("window", s("ALL"))];
                    let key = key.map(|(name, value)| (name.to_owned(), value));
                    let update = self.0.dynamodb().update_item();
                    update
                        .table_name(self.0.names().table("tag_popularity"))
                        .set_key(Some(key.into()))
                        .update_expression("ADD revision :one")
                        .expression_attribute_values(":one", n(1))
                        .send()
                        .await
                        .unwrap();
                }
                Verdict::Pass
            })
        }
    }
    let key = tag_id_key(shelf.tenant.as_str(), &rust);
    let restless = Arc::new(Restless(shelf.cloud().beside_tap(), key));
    let installed = shelf.cloud().tap().install(restless);
    let done = shelf
        .tagging
        .recount_tag(&shelf.tenant, &name("rust"))
        .await
        .unwrap();
    assert_eq!(done.never_at_rest, std::slice::from_ref(&rust));
    assert!(done.counts_corrected.is_empty());
    drop(installed);
    let done = shelf
        .tagging
        .recount_tag(&shelf.tenant, &name("rust"))
        .await
        .unwrap();
    assert_eq!(
        done.counts_corrected,
        [(rust, "ALL".to_owned(), 9, edges.len() as i64)]
    );
    shelf.counts_equal_edges().await.unwrap();
}

// Redis, and the ranking.

#[tokio::test]
async fn the_most_used_tags_of_a_window_come_first() {
    let shelf = empty_alone().await;
    for tag in ["rust", "jazz", "cats"] {
        shelf.create(tag, 1).await;
    }
    for (id, tag) in [
        ("a", "cats"),
        ("a", "rust"),
        ("b", "rust"),
        ("c", "rust"),
        ("b", "cats"),
    ] {
        shelf.attach(id, tag).await;
    }
    shelf.cloud().clock().advance(Duration::from_secs(3_600));
    shelf.attach("a", "jazz").await;
    shelf.follow().await;
    let ids = [
        shelf.tag_id("rust").await,
        shelf.tag_id("cats").await,
        shelf.tag_id("jazz").await,
    ];
    let ranked = |which: &[(usize, i64)]| -> Vec<RankedTag> {
        let ranked = |(at, live_edges): &(usize, i64)| RankedTag {
            tag_id: ids[*at].clone(),
            live_edges: *live_edges,
        };
        which.iter().map(ranked).collect()
    };
    let top = async |window, k| {
        shelf
            .tagging
            .top_tags(&shelf.tenant, window, k)
            .await
            .unwrap()
    };
    // The first answer comes from the table and fills Redis, the second from Redis.
    for _ in 0..2 {
        assert_eq!(
            top(Window::All, 10).await,
            ranked(&[(0, 3), (1, 2), (2, 1)])
        );
        assert_eq!(top(Window::All, 2).await, ranked(&[(0, 3), (1, 2)]));
        assert_eq!(
            top(Window::hour(TEST_EPOCH), 10).await,
            ranked(&[(0, 3), (1, 2)])
        );
        assert_eq!(
            top(Window::hour(TEST_EPOCH + HOUR), 10).await,
            ranked(&[(2, 1)])
        );
    }
    let recording = shelf.cloud().tap().record();
    top(Window::All, 2).await;
    let shapes: Vec<_> = recording
        .take()
        .iter()
        .map(|call| call.request.operation.clone())
        .collect();
    assert_eq!(shapes, ["EVAL"], "Redis alone");
    for k in [0, 101] {
        assert!(
            shelf
                .tagging
                .top_tags(&shelf.tenant, Window::All, k)
                .await
                .is_err()
        );
    }
}

#[tokio::test]
async fn what_redis_forgets_comes_back_from_the_table() {
    let shelf = lively().await;
    shelf.follow().await;
    let top = async || {
        shelf
            .tagging
            .top_tags(&shelf.tenant, Window::All, 10)
            .await
            .unwrap()
    };
    let before = top().await;
    shelf.redis_forgets().await;
    assert_eq!(top().await, before, "from the table");
    assert_eq!(top().await, before, "from Redis");
    // A set that has lost only some of itself is not believed either.
    shelf.redis_forgets().await;
    shelf.attach("photo-9", "jazz").await;
    shelf.follow().await;
    let found = top().await;
    assert_eq!(
        found.len(),
        2,
        "jazz was published, rust was not: {found:?}"
    );
}

#[tokio::test]
async fn an_older_count_never_replaces_a_newer_one_in_redis() {
    let shelf = empty_alone().await;
    let first = change(&shelf, "photo-1", "tag-a", 1);
    let second = change(&shelf, "photo-2", "tag-a", 1);
    // The first consumer has read its counts and is about to publish them: the second goes past.
    let (fast, late) = (shelf.beside(), second.clone());
    let meanwhile = Meanwhile::before("PIPELINE", async move {
        fast.apply(&[late]).await.unwrap();
    });
    let installed = shelf.cloud().tap().install(meanwhile.clone());
    shelf.tagging.apply(&[first]).await.unwrap();
    drop(installed);
    assert!(meanwhile.happened());
    assert_eq!(shelf.in_redis(Window::All).await["tag-a"], 2);
}

#[tokio::test]
async fn windows_that_are_over_are_neither_written_nor_read_and_expire() {
    let shelf = lively().await;
    shelf.follow().await;
    let hour = Window::hour(TEST_EPOCH);
    let top = async |window| {
        shelf
            .tagging
            .top_tags(&shelf.tenant, window, 5)
            .await
            .unwrap()
    };
    assert_eq!(top(hour).await.len(), 1);
    // Redis lets it go by itself, all time never.
    let mut redis = shelf.cloud().redis().await.unwrap();
    for (window, expires) in [
        (hour, true),
        (Window::day(TEST_EPOCH), true),
        (Window::All, false),
    ] {
        for key in &shelf.tagging.popularity_keys(shelf.tenant.as_str(), window)[..2] {
            let lives: i64 = redis::cmd("TTL")
                .arg(key)
                .query_async(&mut redis)
                .await
                .unwrap();
            assert_eq!(lives > 0, expires, "{key} lives {lives}");
        }
    }
    // Two days later the hour is over, the day is not.
    shelf
        .cloud()
        .clock()
        .advance(Duration::from_secs(48 * 3_600));
    assert_eq!(top(hour).await, []);
    assert_eq!(top(Window::day(TEST_EPOCH)).await.len(), 1);
    // An edge of that hour goes: the counts that are kept fall, and no row of the hour is written.
    shelf.detach("photo-2", "rust").await;
    let recording = shelf.cloud().tap().record();
    shelf.follow().await;
    let calls = recording.take();
    let counted = calls
        .iter()
        .find(|call| call.request.operation == "TransactWriteItems")
        .unwrap();
    assert_eq!(
        counted.shape(),
        "TransactWriteItems [Put popularity_applied if, Update tag_popularity ×2]".replace(
            "Update tag_popularity ×2",
            "Update tag_popularity, Update tag_popularity"
        )
    );
    let rust = shelf.tag_id("rust").await;
    let counted = shelf
        .tagging
        .popularity(shelf.tenant.as_str(), &rust)
        .await
        .unwrap();
    assert_eq!(
        counted,
        BTreeMap::from([(Window::All, 1), (Window::day(TEST_EPOCH), 1)])
    );
}

#[tokio::test]
async fn tenants_do_not_count_each_others_edges() {
    let shelf = lively().await;
    let other = shelf.other_tenant();
    other.create("rust", 1).await;
    other.attach("photo-1", "rust").await;
    shelf.follow().await;
    shelf.counts_equal_edges().await.unwrap();
    other.counts_equal_edges().await.unwrap();
    let top = async |shelf: &Shelf| -> BTreeSet<String> {
        let top = shelf
            .tagging
            .top_tags(&shelf.tenant, Window::All, 10)
            .await
            .unwrap();
        top.into_iter().map(|ranked| ranked.tag_id).collect()
    };
    assert!(top(&shelf).await.is_disjoint(&top(&other).await));
    // A recount of one leaves the other's alone, wrong as they are.
    let rust = other.tag_id("rust").await;
    other.damage_count(&rust, Window::All, 9, 9).await;
    shelf.tagging.recount(&shelf.tenant).await.unwrap();
    assert!(other.counts_equal_edges().await.is_err());
    other.tagging.recount(&other.tenant).await.unwrap();
    other.counts_equal_edges().await.unwrap();
    shelf.counts_equal_edges().await.unwrap();
}
