//! The server over real WebSockets, with the client library that ships; one node, or two nodes on one cloud.
//!
//! Nothing here waits for time to pass: a window steps until it has what it must get. The deadline only ends a test
//! that would hang.
#![allow(clippy::unwrap_used)]

mod office;

use cloud::Cloud;
use cloud::tap::{Plan, Request, Service, Verdict};
use doc_editor::api::serve_hub;
use doc_editor::broadcast::Hub;
use doc_editor::client::{Connection, Replica};
use doc_editor::ot::Operation;
use doc_editor::protocol::FromServer;
use doc_editor::{DocumentService, Settings};
use futures::future::BoxFuture;
use futures::{SinkExt, StreamExt};
use office::{Desk, TEXT, cold_desk, insert};
use serde_json::json;
use serving::client::Served;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_tungstenite::tungstenite::Message;

/// A node that looks into the log so seldom that only messages bring it anything.
const NEVER: Duration = Duration::from_secs(24 * 3_600);
/// And one to which no message need come.
const OFTEN: Duration = Duration::from_millis(20);

struct Node {
    served: Served,
    hub: Hub,
}

impl Node {
    async fn start(cloud: &Cloud, looks_every: Duration) -> Self {
        let settings = Settings {
            held: 3,
            ..Settings::default()
        };
        let service = DocumentService::with(cloud.clone(), settings);
        let hub = Hub::looking_every(service, looks_every);
        let served = Served::start(|listener, stop| serve_hub(hub.clone(), listener, stop));
        let served = served.await.unwrap();
        Self { served, hub }
    }

    fn url(&self) -> String {
        format!("{}/socket", self.served.base.replace("http", "ws"))
    }

    /// A window that has the document.
    async fn join(&self, desk: &Desk, name: &str) -> Connection {
        let mut window = Connection::new(&self.url(), Replica::new(&desk.id, name, name));
        window.connect().await.unwrap();
        within(window.until(Replica::is_ready)).await.unwrap();
        window
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(Duration::from_secs(30), work).await;
    done.expect("this should have happened long ago")
}

/// Puts a word at a place.
async fn types(window: &mut Connection, at: usize, word: &str) {
    let edit = insert(at, word, window.replica().len());
    window.edit(&edit).await.unwrap().unwrap();
}

/// Both step until they have this version, and nothing is under way.
async fn meet(a: &mut Connection, b: &mut Connection, version: u64) {
    let there = |replica: &Replica| replica.version() >= version && replica.is_settled();
    let (one, other) = within(futures::future::join(a.until(there), b.until(there))).await;
    one.unwrap();
    other.unwrap();
    assert_eq!(a.replica().text(), b.replica().text());
}

/// The window has what the store has, and every edit is in it once.
async fn agrees(desk: &Desk, window: &Connection) {
    desk.invariants().await.unwrap();
    assert_eq!(window.replica().text(), desk.text().await);
}

#[tokio::test]
async fn two_windows_that_type_at_once_in_one_place_converge() {
    let desk = cold_desk().await;
    let node = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = node.join(&desk, "ann").await;
    let mut ben = node.join(&desk, "ben").await;
    for round in 0..5 {
        // Neither has heard of the other's when they type.
        types(&mut ann, 3, "漢").await;
        types(&mut ben, 3, "🦀").await;
        // One under way, and two that wait, composed into one.
        types(&mut ann, 0, "a").await;
        types(&mut ann, 0, "A").await;
        meet(&mut ann, &mut ben, 3 * (round + 1)).await;
    }
    agrees(&desk, &ann).await;
    assert_eq!(ann.replica().text().matches('A').count(), 5);
    assert_eq!(ann.replica().text().matches('🦀').count(), 5);
}

#[tokio::test]
async fn two_nodes_hear_of_each_others_edits_through_redis() {
    let desk = cold_desk().await;
    let east = Node::start(desk.east.cloud(), NEVER).await;
    let west = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = east.join(&desk, "ann").await;
    let mut ben = west.join(&desk, "ben").await;
    for round in 0..10 {
        types(&mut ann, 0, "a").await;
        meet(&mut ann, &mut ben, 2 * round + 1).await;
        types(&mut ben, 0, "b").await;
        meet(&mut ann, &mut ben, 2 * round + 2).await;
    }
    // And at once, so that one node finds the version taken.
    types(&mut ann, 0, "!").await;
    types(&mut ben, 0, "?").await;
    meet(&mut ann, &mut ben, 22).await;
    agrees(&desk, &ann).await;
}

/// Loses commands to Redis, and says so.
struct Lossy {
    only: Option<&'static str>,
    left: Semaphore,
    lost: Semaphore,
}

impl Lossy {
    fn new(only: Option<&'static str>, times: usize) -> Arc<Self> {
        Arc::new(Self {
            only,
            left: Semaphore::new(times),
            lost: Semaphore::new(0),
        })
    }
}

impl Plan for Lossy {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let body = request.body.to_string();
        let meant =
            request.service == Service::Redis && self.only.is_none_or(|only| body.contains(only));
        let verdict = match meant.then(|| self.left.try_acquire()) {
            Some(Ok(permit)) => {
                permit.forget();
                self.lost.add_permits(1);
                Verdict::LoseRequest
            }
            _ => Verdict::Pass,
        };
        Box::pin(async move { verdict })
    }
}

#[tokio::test]
async fn an_operation_whose_message_was_lost_is_read_from_the_log_when_the_next_one_comes() {
    let desk = cold_desk().await;
    let east = Node::start(desk.east.cloud(), NEVER).await;
    let west = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = east.join(&desk, "ann").await;
    let mut ben = west.join(&desk, "ben").await;
    for version in 1..=5 {
        types(&mut ann, 0, "a").await;
        meet(&mut ann, &mut ben, version).await;
    }
    let lossy = Lossy::new(Some(r#"\"operation\""#), 1);
    let tap = desk.east.cloud().tap();
    let installed = tap.install(lossy.clone());
    let recording = tap.record();
    types(&mut ann, 0, "lost ").await;
    within(ann.until(Replica::is_settled)).await.unwrap();
    within(lossy.lost.acquire()).await.unwrap().forget();
    assert_eq!(ben.replica().version(), 5, "nobody has told Ben");
    types(&mut ann, 0, "next ").await;
    meet(&mut ann, &mut ben, 7).await;
    drop(installed);
    let read = recording
        .take()
        .iter()
        .any(|call| call.request.operation == "Query");
    assert!(read, "the node in the west has read the log");
    assert!(ben.replica().text().starts_with("next lost a"));
    agrees(&desk, &ben).await;
}

#[tokio::test]
async fn edits_are_accepted_and_reach_the_other_node_though_redis_is_away() {
    let desk = cold_desk().await;
    let lossy = Lossy::new(None, usize::MAX >> 4);
    let installed = desk.east.cloud().tap().install(lossy.clone());
    let east = Node::start(desk.east.cloud(), OFTEN).await;
    let west = Node::start(desk.east.cloud(), OFTEN).await;
    let mut ann = east.join(&desk, "ann").await;
    let mut ben = west.join(&desk, "ben").await;
    types(&mut ann, 0, "a").await;
    types(&mut ben, 7, "b").await;
    meet(&mut ann, &mut ben, 2).await;
    drop(installed);
    assert!(lossy.lost.available_permits() > 0, "Redis was never asked");
    assert_eq!(ann.replica().text(), "aone twob");
    agrees(&desk, &ann).await;
}

#[tokio::test]
async fn a_window_that_comes_back_sends_its_edit_again_under_the_same_number() {
    let desk = cold_desk().await;
    let east = Node::start(desk.east.cloud(), NEVER).await;
    let west = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = east.join(&desk, "ann").await;
    for round in 0..10 {
        types(&mut ann, 0, "a").await;
        let sent: Vec<_> = ann
            .replica()
            .pending()
            .map(|typed| typed.sequence)
            .collect();
        assert_eq!(sent, [Some(2 * round + 1)], "it is under way");
        // The line breaks before the answer, and typing goes on.
        ann.hang_up();
        types(&mut ann, 0, "o").await;
        let kept: Vec<_> = ann
            .replica()
            .pending()
            .map(|typed| typed.sequence)
            .collect();
        assert_eq!(kept, [Some(2 * round + 1), None]);
        // Perhaps to the node that has the edit, perhaps to the other.
        ann.move_to([&east, &west][round as usize % 2].url().as_str());
        ann.connect().await.unwrap();
        within(ann.until(Replica::is_settled)).await.unwrap();
    }
    let all = desk.invariants().await.unwrap();
    assert_eq!(
        all.len(),
        20,
        "ten that were sent twice, perhaps, and ten that waited"
    );
    agrees(&desk, &ann).await;
}

#[tokio::test]
async fn a_window_outlives_its_server() {
    let desk = cold_desk().await;
    let east = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = east.join(&desk, "ann").await;
    types(&mut ann, 0, "a").await;
    within(ann.until(Replica::is_settled)).await.unwrap();
    let Node { served, hub } = east;
    served.stopped().await.unwrap();
    assert_eq!(hub.sessions(), 0);
    within(async { while ann.step().await.is_ok() {} }).await;
    assert!(ann.connect().await.is_err(), "nobody is there");
    ann.hang_up();
    types(&mut ann, 0, "b").await;
    let again = Node::start(desk.east.cloud(), NEVER).await;
    ann.move_to(&again.url());
    ann.connect().await.unwrap();
    within(ann.until(Replica::is_settled)).await.unwrap();
    assert_eq!(ann.replica().text(), format!("ba{TEXT}"));
    agrees(&desk, &ann).await;
}

#[tokio::test]
async fn a_window_too_far_behind_is_told_to_reload_and_what_it_had_not_sent_is_handed_back() {
    let desk = cold_desk().await;
    let node = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = node.join(&desk, "ann").await;
    let mut ben = node.join(&desk, "ben").await;
    ann.hang_up();
    types(&mut ann, 0, "typed offline").await;
    for _ in 0..2 {
        for _ in 0..5 {
            types(&mut ben, 0, "b").await;
            within(ben.until(Replica::is_settled)).await.unwrap();
        }
        // The keeper leaves two operations before the last snapshot, and no more.
        desk.west.compact(&desk.id).await.unwrap();
    }
    ann.connect().await.unwrap();
    let mut reloaded = false;
    while !ann.replica().is_settled() || ann.replica().version() < 10 {
        reloaded |= matches!(within(ann.step()).await.unwrap(), FromServer::Reload { .. });
    }
    assert!(reloaded);
    let handed_back = [insert(0, "typed offline", TEXT.len())];
    assert_eq!(ann.replica().discarded(), handed_back);
    assert_eq!(ann.replica().text(), ben.replica().text());
    // And goes on as if nothing had been.
    types(&mut ann, 0, "a").await;
    meet(&mut ann, &mut ben, 11).await;
    agrees(&desk, &ann).await;
}

#[tokio::test]
async fn taking_back_is_of_ones_own_edit_and_everybody_sees_it() {
    let desk = cold_desk().await;
    let node = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = node.join(&desk, "ann").await;
    let mut ben = node.join(&desk, "ben").await;
    types(&mut ann, 0, "a").await;
    meet(&mut ann, &mut ben, 1).await;
    types(&mut ben, 8, "b").await;
    meet(&mut ann, &mut ben, 2).await;
    ann.undo().await.unwrap();
    meet(&mut ann, &mut ben, 3).await;
    assert_eq!(ann.replica().text(), "one twob");
    // There is nothing more of hers: she is told, and all else goes on.
    ann.undo().await.unwrap();
    let mut told = None;
    while told.is_none() {
        if let FromServer::Refused { why } = within(ann.step()).await.unwrap() {
            told = Some(why);
        }
    }
    assert_eq!(
        told.as_deref(),
        Some("there is nothing of yours to take back")
    );
    assert!(ann.replica().is_settled());
    agrees(&desk, &ben).await;
}

fn cursor_of(replica: &Replica, name: &str) -> Option<usize> {
    let mut people = replica.people().into_iter();
    people
        .find(|person| person.client == name)
        .map(|person| person.position)
}

#[tokio::test]
async fn who_comes_moves_and_goes_is_seen_on_the_other_node() {
    let desk = cold_desk().await;
    let east = Node::start(desk.east.cloud(), NEVER).await;
    let west = Node::start(desk.east.cloud(), NEVER).await;
    let mut ann = east.join(&desk, "ann").await;
    let mut ben = west.join(&desk, "ben").await;
    // One edit first: once it has come, Ben's node hears what Ann's says.
    types(&mut ann, 0, "a").await;
    meet(&mut ann, &mut ben, 1).await;
    types(&mut ann, 0, "a").await;
    meet(&mut ann, &mut ben, 2).await;
    ann.cursor(5, 5).await.unwrap();
    within(ben.until(|replica| cursor_of(replica, "ann") == Some(5)))
        .await
        .unwrap();
    // It stands between two letters, and stays there when Ben types before it.
    types(&mut ben, 0, "bb").await;
    assert_eq!(cursor_of(ben.replica(), "ann"), Some(7));
    meet(&mut ann, &mut ben, 3).await;
    assert_eq!(cursor_of(ben.replica(), "ann"), Some(7));
    // She goes without a word.
    ann.hang_up();
    within(ben.until(|replica| replica.people().is_empty()))
        .await
        .unwrap();
    let kept = west.hub.service().people(&desk.id).await.unwrap();
    assert!(kept.iter().all(|person| person.client != "ann"), "{kept:?}");
}

/// Says this on a new connection, and gives what comes back until the connection ends.
async fn told(node: &Node, words: &[String]) -> Vec<serde_json::Value> {
    let (mut socket, _) = tokio_tungstenite::connect_async(node.url()).await.unwrap();
    for word in words {
        let _ = socket.send(Message::text(word.clone())).await;
    }
    let mut answers = Vec::new();
    let all = async {
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                answers.push(serde_json::from_str(&text).unwrap());
            }
        }
    };
    within(all).await;
    answers
}

#[tokio::test]
async fn wrong_words_are_answered_in_words_and_the_server_goes_on() {
    let desk = cold_desk().await;
    let node = Node::start(desk.east.cloud(), NEVER).await;
    let join = |document: &str, client: &str, name: &str| {
        let join = json!({"type": "join", "document": document, "client": client, "name": name});
        join.to_string()
    };
    let edit = |sequence: u64, operation: serde_json::Value| {
        let edit = json!({"type": "edit", "base": 0, "sequence": sequence, "operation": operation});
        edit.to_string()
    };
    let good = join(&desk.id, "ann", "Ann");
    let long = "x".repeat(70_000);
    let cases: Vec<(Vec<String>, &str, &str)> = vec![
        (vec!["nonsense".into()], "refused", "unreadable: "),
        (
            vec![r#"{"type":"dance"}"#.into()],
            "refused",
            "unreadable: unknown variant `dance`",
        ),
        (
            vec![r#"{"type":"since","version":0}"#.into()],
            "refused",
            "the first word is join",
        ),
        (
            vec![join("a b", "ann", "Ann")],
            "refused",
            "the document id must be",
        ),
        (
            vec![join(&desk.id, "", "Ann")],
            "refused",
            "the client id must be",
        ),
        (
            vec![join(&desk.id, "ann", "")],
            "refused",
            "a name has 1 to 60 characters, not 0",
        ),
        (
            vec![join("nowhere", "ann", "Ann")],
            "refused",
            "there is no document 'nowhere'",
        ),
        (
            vec![good.clone(), edit(0, json!([7]))],
            "reload",
            "a sequence is a number from 1",
        ),
        (
            vec![good.clone(), edit(1, json!([long, 7]))],
            "reload",
            "one operation takes at most 65536 bytes",
        ),
        (
            vec![good.clone(), edit(1, json!([0, 7]))],
            "refused",
            "unreadable: a run of an operation is empty",
        ),
    ];
    for (words, kind, why) in cases {
        let answers = told(&node, &words).await;
        let said = answers.iter().any(|answer| {
            answer["type"] == kind
                && answer["why"]
                    .as_str()
                    .is_some_and(|text| text.starts_with(why))
        });
        let words: Vec<_> = words
            .iter()
            .map(|word| word.chars().take(80).collect::<String>())
            .collect();
        assert!(
            said,
            "{words:?} should be answered '{why}', not {answers:?}"
        );
    }
    // Longer than any message may be: the connection ends, and nothing else.
    let answers = told(&node, &[good, edit(1, json!(["x".repeat(200_000), 7]))]).await;
    assert!(
        answers.iter().all(|answer| answer["type"] != "ack"),
        "{answers:?}"
    );
    let mut ann = node.join(&desk, "ann").await;
    assert_eq!(
        ann.replica().version(),
        0,
        "nothing of all that was taken in"
    );
    types(&mut ann, 0, "a").await;
    within(ann.until(Replica::is_settled)).await.unwrap();
    agrees(&desk, &ann).await;
}

#[tokio::test]
async fn an_edit_for_another_text_is_refused_and_the_window_begins_again() {
    let desk = cold_desk().await;
    let node = Node::start(desk.east.cloud(), NEVER).await;
    let wrong = json!({"type": "edit", "base": 0, "sequence": 1, "operation": Operation::new().retain(99).insert("x")});
    let (mut socket, _) = tokio_tungstenite::connect_async(node.url()).await.unwrap();
    let join = json!({"type": "join", "document": desk.id, "client": "ann", "name": "Ann"});
    for word in [&join, &wrong, &join] {
        socket.send(Message::text(word.to_string())).await.unwrap();
    }
    let mut kinds = Vec::new();
    while kinds.iter().filter(|kind| *kind == "welcome").count() < 2 {
        let Message::Text(text) = within(socket.next()).await.unwrap().unwrap() else {
            continue;
        };
        let message: serde_json::Value = serde_json::from_str(&text).unwrap();
        let kind = message["type"].as_str().unwrap().to_owned();
        if kind == "reload" {
            let why = message["why"].as_str().unwrap();
            assert!(
                why.starts_with("the edit is not for the text of version 0"),
                "{why}"
            );
        }
        kinds.push(kind);
    }
    assert!(kinds.contains(&"reload".to_owned()), "{kinds:?}");
    assert_eq!(desk.invariants().await.unwrap(), []);
}
