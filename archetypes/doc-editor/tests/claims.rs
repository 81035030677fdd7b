//! One test for each promise of the README.
#![allow(clippy::unwrap_used)]

mod office;

use chaos::{Conflicts, Deaf, Tokenless};
use doc_editor::client::Replica;
use doc_editor::domain::{
    BadInput, Canon, MAX_BEHIND, MAX_DOCUMENT_CHARS, MAX_OPERATION_BYTES, encoded_bytes, split,
};
use doc_editor::ot::Operation;
use doc_editor::presence::Person;
use doc_editor::protocol::{FromClient, FromServer};
use doc_editor::{
    Compaction, DocumentError, DocumentService, Edit, EditOutcome, Entry, NewDocument, Refusal,
};
use office::{Desk, SETTINGS, TEXT, cold_desk, desk, insert, new};
use redis::AsyncCommands;
use std::sync::Arc;

#[tokio::test]
async fn two_people_type_in_one_line_and_both_are_kept() {
    let desk = desk().await;
    // Both on version 0, at one place, on two nodes.
    let ann = desk.edit_on("ann", 1, 0, insert(3, " a", TEXT.len()));
    let ben = desk.edit_on("ben", 1, 0, insert(3, " b", TEXT.len()));
    assert_eq!(
        desk.east.submit_edit(&ann).await.unwrap().version(),
        Some(1)
    );
    assert_eq!(
        desk.west.submit_edit(&ben).await.unwrap().version(),
        Some(2)
    );
    assert_eq!(desk.text().await, "one a b two");
    desk.invariants().await.unwrap();
}

#[tokio::test]
async fn thirty_two_at_once_on_two_nodes_leave_no_gap_and_lose_nothing() {
    let desk = Arc::new(desk().await);
    let told = chaos::race(32, {
        let desk = Arc::clone(&desk);
        move |n| {
            let desk = Arc::clone(&desk);
            async move {
                let node = [&desk.east, &desk.west][n % 2];
                let edit = desk.edit(&format!("client-{n}"), 1, "a");
                node.submit_edit(&edit).await.unwrap().version().unwrap()
            }
        }
    })
    .await;
    let mut versions = told.clone();
    versions.sort_unstable();
    assert_eq!(versions, (1..=32).collect::<Vec<_>>());
    desk.invariants().await.unwrap();
    assert_eq!(desk.text().await, format!("{}{TEXT}", "a".repeat(32)));
}

#[tokio::test]
async fn an_edit_sent_again_gets_its_first_version() {
    let desk = desk().await;
    let edit = desk.edit("ann", 1, "a");
    let first = desk.east.submit_edit(&edit).await.unwrap().version();
    for node in [
        &desk.east,
        &desk.west,
        &DocumentService::with(desk.east.cloud().clone(), SETTINGS),
    ] {
        assert_eq!(
            node.submit_edit(&edit).await.unwrap(),
            EditOutcome::Before(1)
        );
    }
    // Rewritten on a newer version, as a client does that has seen more: still the same edit.
    desk.types(&desk.west, "ben", 1, "!").await;
    let rebased = desk.edit_on("ann", 1, 2, insert(0, "a", TEXT.len() + 2));
    assert_eq!(
        desk.west.submit_edit(&rebased).await.unwrap().version(),
        first
    );
    assert_eq!(desk.invariants().await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_lost_answer_is_resolved_by_asking() {
    let desk = desk().await;
    let tap = desk.east.cloud().tap();
    let plans = [
        tap.install(Arc::new(Tokenless)),
        tap.install(Arc::new(Deaf)),
    ];
    let told = desk
        .east
        .submit_edit(&desk.edit("ann", 1, "a"))
        .await
        .unwrap();
    let created = desk
        .east
        .create_document(&new(&format!("{}-deaf", desk.id)))
        .await
        .unwrap();
    drop(plans);
    assert_eq!(told, EditOutcome::Before(1));
    assert_eq!(created.version, 0);
    assert_eq!(desk.invariants().await.unwrap().len(), 1);
    // And a snapshot.
    let desk = desk.typed(0).await;
    for sequence in 2..=4 {
        desk.types(&desk.east, "ann", sequence, "a").await;
    }
    let tap = desk.east.cloud().tap();
    let plans = [
        tap.install(Arc::new(Tokenless)),
        tap.install(Arc::new(DeafTo("TransactWriteItems"))),
    ];
    let made = desk.east.compact(&desk.id).await.unwrap();
    drop(plans);
    assert_eq!(
        made,
        Compaction::Made {
            version: 4,
            pruned: 0
        }
    );
    desk.invariants().await.unwrap();
}

/// No answer arrives to this operation.
struct DeafTo(&'static str);

impl cloud::tap::Plan for DeafTo {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        let lost = request.operation == self.0;
        Box::pin(async move {
            if lost {
                cloud::tap::Verdict::LoseAnswer
            } else {
                cloud::tap::Verdict::Pass
            }
        })
    }
}

#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again() {
    let desk = desk().await;
    let conflicts = Arc::new(Conflicts::on("TransactWriteItems", 3));
    let plan = desk.east.cloud().tap().install(conflicts.clone());
    let told = desk
        .east
        .submit_edit(&desk.edit("ann", 1, "a"))
        .await
        .unwrap();
    drop(plan);
    assert_eq!((told.version(), conflicts.left()), (Some(1), 0));
    let desk = desk.typed(3).await;
    let conflicts = Arc::new(Conflicts::on("TransactWriteItems", 3));
    let plan = desk.east.cloud().tap().install(conflicts.clone());
    let made = desk.east.compact(&desk.id).await.unwrap();
    drop(plan);
    assert_eq!(
        (made, conflicts.left()),
        (
            Compaction::Made {
                version: 4,
                pruned: 0
            },
            0
        )
    );
    desk.invariants().await.unwrap();
}

#[tokio::test]
async fn a_client_too_far_behind_is_told_to_reload_but_a_retry_is_still_known() {
    let desk = desk().await;
    let early = desk.edit("ann", 1, "a");
    desk.east.submit_edit(&early).await.unwrap();
    let desk = desk.typed(11).await;
    desk.east.compact(&desk.id).await.unwrap();
    let desk = desk_after(desk, 12..=20).await;
    desk.east.compact(&desk.id).await.unwrap();
    let document = desk.east.read_document(&desk.id).await.unwrap().unwrap();
    assert!(document.base_version > 1, "{document:?}");
    let node = DocumentService::with(desk.east.cloud().clone(), SETTINGS);
    // Never seen before, and made on a version that is no longer in the log.
    let late = desk.edit("ben", 1, "b");
    let told = node.submit_edit(&late).await.unwrap();
    assert!(
        matches!(
            told,
            EditOutcome::Refused(Refusal::TooFarBehind { base: 0, .. })
        ),
        "{told:?}"
    );
    // Seen before.
    assert_eq!(
        node.submit_edit(&early).await.unwrap(),
        EditOutcome::Before(1)
    );
    assert_eq!(node.entries_after(&desk.id, 1).await.unwrap(), None);
    desk.invariants().await.unwrap();
}

async fn desk_after(desk: Desk, sequences: std::ops::RangeInclusive<u64>) -> Desk {
    for sequence in sequences {
        desk.types(&desk.east, "typist", sequence, "x").await;
    }
    desk
}

#[tokio::test]
async fn snapshot_and_operations_equal_replay_from_zero_at_every_version() {
    let desk = desk().await;
    let mut texts = vec![TEXT.to_owned()];
    for sequence in 1..=18 {
        let text = format!("{sequence} ").repeat(sequence as usize);
        desk.types(&desk.west, "ann", sequence, &text).await;
        texts.push(desk.text().await);
        desk.east.compact(&desk.id).await.unwrap();
    }
    desk.invariants().await.unwrap();
    let snapshots = desk.east.snapshots_from(&desk.id, 0).await.unwrap();
    assert_eq!(snapshots.len(), 5, "every four operations");
    assert!(
        snapshots.iter().any(|s| s.text_object.is_some()),
        "a long one is in S3"
    );
    assert!(
        snapshots.iter().any(|s| s.text.is_some()),
        "a short one is not"
    );
    for (version, text) in texts.iter().enumerate() {
        assert_eq!(
            &desk.east.text_at(&desk.id, version as u64).await.unwrap(),
            text,
            "version {version}"
        );
    }
    let unborn = desk.east.text_at(&desk.id, 19).await.unwrap_err();
    assert!(
        matches!(
            unborn,
            DocumentError::UnknownVersion {
                version: 19,
                head: 18
            }
        ),
        "{unborn}"
    );
}

#[tokio::test]
async fn only_what_is_below_the_retained_base_is_pruned() {
    let desk = desk().await.typed(4).await;
    // Nothing below the first snapshot's predecessor.
    assert_eq!(
        desk.east.compact(&desk.id).await.unwrap(),
        Compaction::Made {
            version: 4,
            pruned: 0
        }
    );
    assert_eq!(
        desk.east.compact(&desk.id).await.unwrap(),
        Compaction::NotDue
    );
    let desk = desk_after(desk, 5..=9).await;
    assert_eq!(
        desk.east.compact(&desk.id).await.unwrap(),
        Compaction::Made {
            version: 9,
            pruned: 4
        }
    );
    let kept = desk.east.read_log(&desk.id, 0, None).await.unwrap();
    let kept: Vec<_> = kept.iter().map(|entry| entry.version).collect();
    assert_eq!(
        kept,
        [5, 6, 7, 8, 9],
        "all since the snapshot before, and at least the last two"
    );
    // Much retained: the pruning stays that far behind.
    let careful = DocumentService::with(
        desk.east.cloud().clone(),
        doc_editor::Settings {
            retain: 100,
            ..SETTINGS
        },
    );
    let desk = desk_after(desk, 10..=13).await;
    assert_eq!(
        careful.compact(&desk.id).await.unwrap(),
        Compaction::Made {
            version: 13,
            pruned: 0
        }
    );
    desk.invariants().await.unwrap();
}

#[tokio::test]
async fn a_document_longer_than_an_item_is_kept_in_s3() {
    let desk = desk().await;
    let service = DocumentService::new(desk.east.cloud().clone());
    let line = "0123456789 ".repeat(5_000);
    for sequence in 1..=8 {
        desk.types(&service, "ann", sequence, &line).await;
    }
    let eager = DocumentService::with(
        desk.east.cloud().clone(),
        doc_editor::Settings {
            snapshot_every: 8,
            ..service.settings()
        },
    );
    let made = eager.compact(&desk.id).await.unwrap();
    assert_eq!(
        made,
        Compaction::Made {
            version: 8,
            pruned: 0
        }
    );
    let text = desk.text().await;
    assert!(text.len() > 400 * 1024, "{}", text.len());
    let snapshot = eager.read_snapshot(&desk.id, 8).await.unwrap().unwrap();
    assert!(
        snapshot.text.is_none() && snapshot.text_object.is_some(),
        "{snapshot:?}"
    );
    desk.invariants().await.unwrap();
}

#[tokio::test]
async fn undo_takes_back_ones_own_last_edit_and_nothing_else() {
    let desk = desk().await;
    desk.east
        .submit_edit(&desk.edit("ann", 1, "A1 "))
        .await
        .unwrap();
    desk.west
        .submit_edit(&desk.edit("ben", 1, "B1 "))
        .await
        .unwrap();
    desk.east
        .submit_edit(&desk.edit("ann", 2, "A2 "))
        .await
        .unwrap();
    assert_eq!(desk.text().await, "A1 B1 A2 one two");
    assert_eq!(
        desk.west.undo(&desk.id, "ann", 3).await.unwrap().version(),
        Some(4)
    );
    assert_eq!(desk.text().await, "A1 B1 one two");
    // The same request again takes back nothing more; another one does.
    assert_eq!(
        desk.east.undo(&desk.id, "ann", 3).await.unwrap(),
        EditOutcome::Before(4)
    );
    assert_eq!(
        desk.east.undo(&desk.id, "ann", 4).await.unwrap().version(),
        Some(5)
    );
    assert_eq!(desk.text().await, "B1 one two");
    let nothing = desk.east.undo(&desk.id, "ann", 5).await.unwrap();
    assert_eq!(nothing, EditOutcome::Refused(Refusal::NothingToUndo));
    // What somebody else wrote into what is taken back stays.
    let now = desk.text().await.chars().count();
    let deletes = desk.edit_on("ann", 6, 5, Operation::new().retain(3).delete(now - 3));
    desk.east.submit_edit(&deletes).await.unwrap();
    desk.types(&desk.west, "ben", 2, "new").await;
    assert_eq!(desk.text().await, "B1 new");
    desk.east.undo(&desk.id, "ann", 7).await.unwrap();
    assert_eq!(desk.text().await, "B1 newone two");
    desk.invariants().await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_lost_is_read_from_the_log() {
    let desk = desk().await;
    let first = desk
        .east
        .submit_edit(&desk.edit("ann", 1, "a"))
        .await
        .unwrap();
    let EditOutcome::Applied(second) = desk
        .east
        .submit_edit(&desk.edit("ann", 2, "b"))
        .await
        .unwrap()
    else {
        panic!("{first:?}");
    };
    // The west hears of the second and never of the first; then of both again, late.
    let recording = desk.west.cloud().tap().record();
    desk.west.hear(&desk.id, second.clone()).await.unwrap();
    desk.west.hear(&desk.id, second).await.unwrap();
    assert_eq!(recording.take().len(), 1, "one read");
    let entries = desk.west.entries_after(&desk.id, 0).await.unwrap().unwrap();
    assert_eq!(
        entries
            .iter()
            .map(|entry| entry.version)
            .collect::<Vec<_>>(),
        [1, 2]
    );
    // Nothing is heard at all: the next look finds it.
    desk.east
        .submit_edit(&desk.edit("ann", 3, "c"))
        .await
        .unwrap();
    assert_eq!(desk.west.catch_up(&desk.id).await.unwrap(), 3);
    // The next one is taken in as it is, without a read.
    let EditOutcome::Applied(fourth) = desk
        .east
        .submit_edit(&desk.edit("ann", 4, "d"))
        .await
        .unwrap()
    else {
        panic!("not applied");
    };
    let recording = desk.west.cloud().tap().record();
    desk.west.hear(&desk.id, fourth).await.unwrap();
    assert!(recording.take().is_empty());
    assert_eq!(
        desk.west
            .entries_after(&desk.id, 3)
            .await
            .unwrap()
            .unwrap()
            .len(),
        1
    );
}

fn person(client: &str, position: usize) -> Person {
    Person {
        client: client.into(),
        name: client.into(),
        version: 0,
        position,
        anchor: position,
    }
}

#[tokio::test]
async fn presence_is_seen_on_every_node_and_ends_by_itself() {
    let desk = cold_desk().await;
    desk.east
        .update_presence(&desk.id, &person("ann", 3))
        .await
        .unwrap();
    desk.west
        .update_presence(&desk.id, &person("ben", 4))
        .await
        .unwrap();
    desk.east
        .update_presence(&desk.id, &person("ann", 5))
        .await
        .unwrap();
    assert_eq!(
        desk.west.people(&desk.id).await.unwrap(),
        [person("ann", 5), person("ben", 4)]
    );
    let mut redis = desk.east.cloud().redis().await.unwrap();
    let names = desk.east.cloud().names();
    let key = |client: &str| names.key(&format!("presence:{}:{client}", desk.id));
    let left: i64 = redis.pttl(key("ann")).await.unwrap();
    assert!((1..=15_000).contains(&left), "{left}");
    // Ann's node dies. Redis ends her key by its own clock; here it is ended as Redis would.
    let () = redis.del(key("ann")).await.unwrap();
    assert_eq!(
        desk.west.people(&desk.id).await.unwrap(),
        [person("ben", 4)]
    );
    let listed: Vec<String> = redis
        .smembers(names.key(&format!("people:{}", desk.id)))
        .await
        .unwrap();
    assert_eq!(listed, ["ben"], "and the list forgets her");
    desk.west.remove_presence(&desk.id, "ben").await.unwrap();
    assert!(desk.east.people(&desk.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn edits_are_accepted_while_redis_is_away() {
    let desk = desk().await;
    let down = desk.east.cloud().tap().install(Arc::new(NoRedis));
    let told = desk
        .east
        .submit_edit(&desk.edit("ann", 1, "a"))
        .await
        .unwrap();
    let EditOutcome::Applied(entry) = told else {
        panic!("{told:?}")
    };
    let news = doc_editor::broadcast::News::Operation(entry);
    assert!(desk.east.broadcast("east", &desk.id, &news).await.is_err());
    assert!(
        desk.east
            .update_presence(&desk.id, &person("ann", 1))
            .await
            .is_err()
    );
    assert_eq!(desk.west.catch_up(&desk.id).await.unwrap(), 1);
    drop(down);
    desk.invariants().await.unwrap();
}

struct NoRedis;

impl cloud::tap::Plan for NoRedis {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        let redis = request.service == cloud::tap::Service::Redis;
        Box::pin(async move {
            if redis {
                cloud::tap::Verdict::LoseRequest
            } else {
                cloud::tap::Verdict::Pass
            }
        })
    }
}

#[tokio::test]
async fn creating_twice_creates_once() {
    let desk = cold_desk().await.typed(1).await;
    assert_eq!(
        desk.east
            .create_document(&new(&desk.id))
            .await
            .unwrap()
            .version,
        1
    );
    for other in [
        NewDocument {
            title: "Other".into(),
            ..new(&desk.id)
        },
        NewDocument {
            text: "other".into(),
            ..new(&desk.id)
        },
    ] {
        let taken = desk.east.create_document(&other).await.unwrap_err();
        assert!(matches!(taken, DocumentError::IdTaken(_)), "{taken}");
    }
    desk.invariants().await.unwrap();
}

#[tokio::test]
async fn bad_input_is_refused_before_any_call() {
    let desk = desk().await;
    let recording = desk.east.cloud().tap().record();
    let edit = desk.edit("ann", 1, "a");
    let long = insert(0, &"x".repeat(MAX_OPERATION_BYTES), TEXT.len());
    for (wrong, says) in [
        (
            Edit {
                document_id: "a#b".into(),
                ..edit.clone()
            },
            "document id",
        ),
        (
            Edit {
                client_id: String::new(),
                ..edit.clone()
            },
            "client id",
        ),
        (
            Edit {
                client_id: "x".repeat(65),
                ..edit.clone()
            },
            "client id",
        ),
        (
            Edit {
                sequence: 0,
                ..edit.clone()
            },
            "sequence",
        ),
        (
            Edit {
                operation: long,
                ..edit.clone()
            },
            "at most 65536 bytes",
        ),
    ] {
        let error = desk.east.submit_edit(&wrong).await.unwrap_err();
        assert!(matches!(error, DocumentError::BadInput(_)), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    for wrong in [
        NewDocument {
            document_id: "ä".into(),
            ..new("x")
        },
        NewDocument {
            title: String::new(),
            ..new("x")
        },
        NewDocument {
            text: "x".repeat(MAX_OPERATION_BYTES + 1),
            ..new("x")
        },
    ] {
        let error = desk.east.create_document(&wrong).await.unwrap_err();
        assert!(matches!(error, DocumentError::BadInput(_)), "{error}");
    }
    let nobody = Person {
        name: String::new(),
        ..person("ann", 0)
    };
    assert!(matches!(
        desk.east.update_presence(&desk.id, &nobody).await,
        Err(DocumentError::BadInput(BadInput::Name(0)))
    ));
    assert!(recording.take().is_empty());
    // What only the document can tell is told as an answer, and nothing is written.
    for (wrong, why) in [
        (
            desk.edit_on("ann", 1, 7, insert(0, "a", 7)),
            "the document is at 0",
        ),
        (
            desk.edit_on("ann", 1, 0, insert(0, "a", 3)),
            "not for the text of version 0",
        ),
    ] {
        let told = desk.east.submit_edit(&wrong).await.unwrap();
        let EditOutcome::Refused(refusal) = told else {
            panic!("{told:?}")
        };
        assert!(refusal.to_string().contains(why), "{refusal}");
    }
    let unknown = desk
        .east
        .submit_edit(&Edit {
            document_id: "nowhere".into(),
            ..edit
        })
        .await;
    assert!(matches!(unknown, Err(DocumentError::UnknownDocument(_))));
    assert_eq!(desk.invariants().await.unwrap(), []);
}

#[tokio::test]
async fn nothing_ever_scans() {
    let desk = desk().await;
    let recording = desk.east.cloud().tap().record();
    let desk = desk.typed(9).await;
    desk.east.compact(&desk.id).await.unwrap();
    desk.east.text_at(&desk.id, 2).await.unwrap();
    desk.east.undo(&desk.id, "typist", 50).await.unwrap();
    let calls = recording.take();
    assert!(calls.len() > 20);
    assert!(calls.iter().all(|call| call.request.operation != "Scan"));
}

// The rules alone.

fn entry(version: u64, operation: Operation) -> Entry {
    Entry {
        version,
        operation,
        client_id: "typist".into(),
        sequence: version,
        undoes: None,
    }
}

#[test]
fn memory_follows_the_document_and_not_its_history() {
    let mut canon = Canon::new(0, "", 16);
    for version in 1..=2_000 {
        let operation = if version % 2 == 1 {
            Operation::new().insert("x")
        } else {
            Operation::new().delete(1)
        };
        canon.advance(entry(version, operation)).unwrap();
    }
    assert_eq!(
        (canon.version(), canon.held(), canon.text().len()),
        (2_000, 16, 0)
    );
    assert!(canon.entries_after(1_984).is_some() && canon.entries_after(1_983).is_none());
    let far = Edit {
        document_id: "d".into(),
        client_id: "c".into(),
        sequence: 1,
        base: 2_000 - MAX_BEHIND - 1,
        operation: Operation::new().insert("x"),
        undoes: None,
    };
    let decided = canon.decide(&far, &[]);
    assert!(
        matches!(
            decided,
            doc_editor::domain::Decision::Refused(Refusal::TooFarBehind { .. })
        ),
        "{decided:?}"
    );
}

#[test]
fn a_document_that_is_full_refuses_more_but_can_be_shortened() {
    let canon = Canon::new(0, &"x".repeat(MAX_DOCUMENT_CHARS), 4);
    let edit = |operation| Edit {
        document_id: "d".into(),
        client_id: "c".into(),
        sequence: 1,
        base: 0,
        operation,
        undoes: None,
    };
    use doc_editor::domain::Decision;
    let more = canon.decide(&edit(insert(0, "y", MAX_DOCUMENT_CHARS)), &[]);
    assert_eq!(
        more,
        Decision::Refused(Refusal::Full(MAX_DOCUMENT_CHARS + 1))
    );
    let less = canon.decide(
        &edit(Operation::new().delete(1).retain(MAX_DOCUMENT_CHARS - 1)),
        &[],
    );
    assert!(matches!(less, Decision::Append(_)));
}

#[test]
fn what_is_too_long_for_one_operation_is_sent_as_several() {
    let ugly = "a\u{1}\"ä€😀".repeat(30_000);
    let operation = Operation::new().retain(2).delete(3).insert(&ugly).retain(2);
    let parts = split(&operation);
    assert!(parts.len() > 5, "{}", parts.len());
    let mut text = TEXT.to_owned();
    for part in &parts {
        assert!(encoded_bytes(part) <= MAX_OPERATION_BYTES);
        text = part.apply(&text).unwrap();
    }
    assert_eq!(text, operation.apply(TEXT).unwrap());
    assert_eq!(split(&insert(0, "a", 7)), [insert(0, "a", 7)]);
}

fn joined() -> Replica {
    let mut replica = Replica::new("d", "ann", "Ann");
    replica.connected();
    assert!(matches!(
        replica.take_outgoing(),
        Some(FromClient::Join { version: None, .. })
    ));
    replica.receive(FromServer::Welcome {
        version: 0,
        text: TEXT.into(),
    });
    replica
}

#[test]
fn one_operation_is_under_way_and_what_is_typed_meanwhile_is_composed() {
    let mut replica = joined();
    replica.local_edit(&insert(0, "a", 7)).unwrap();
    let Some(FromClient::Edit {
        base: 0,
        sequence: 1,
        ..
    }) = replica.take_outgoing()
    else {
        panic!("the first edit leaves");
    };
    replica.local_edit(&insert(1, "b", 8)).unwrap();
    replica.local_edit(&insert(2, "c", 9)).unwrap();
    assert_eq!(replica.take_outgoing(), None, "one at a time");
    replica.receive(FromServer::Ack {
        sequence: 1,
        version: 1,
    });
    let second = replica.take_outgoing();
    let expected = FromClient::Edit {
        base: 1,
        sequence: 2,
        operation: insert(1, "bc", 8),
    };
    assert_eq!(second, Some(expected));
    assert_eq!(replica.text(), format!("abc{TEXT}"));
    // Two buffers of half the limit each are not composed beyond it.
    let half = "x".repeat(MAX_OPERATION_BYTES / 2);
    replica.local_edit(&insert(0, &half, 10)).unwrap();
    replica
        .local_edit(&insert(0, &half, 10 + half.len()))
        .unwrap();
    assert_eq!(replica.pending().count(), 3);
    assert!(
        replica
            .pending()
            .all(|typed| encoded_bytes(&typed.operation) <= MAX_OPERATION_BYTES)
    );
}

#[test]
fn a_reconnect_resends_the_same_edit_and_resumes() {
    let mut replica = joined();
    replica.local_edit(&insert(0, "a", 7)).unwrap();
    replica.take_outgoing().unwrap();
    replica.disconnected();
    replica.local_edit(&insert(1, "b", 8)).unwrap();
    assert_eq!(replica.take_outgoing(), None);
    // It was not appended: what came meanwhile, then the same number again, rewritten.
    let mut other = replica.clone();
    other.connected();
    assert!(matches!(
        other.take_outgoing(),
        Some(FromClient::Join {
            version: Some(0),
            ..
        })
    ));
    assert_eq!(other.take_outgoing(), None, "not before it has caught up");
    other.receive(FromServer::Resume {
        operations: vec![entry(1, insert(7, "!", 7))],
    });
    assert_eq!(
        other.take_outgoing(),
        Some(FromClient::Edit {
            base: 1,
            sequence: 1,
            operation: insert(0, "a", 8)
        })
    );
    assert_eq!(other.text(), format!("ab{TEXT}!"));
    // It was: it stands among what came meanwhile, and is not sent again.
    replica.connected();
    replica.take_outgoing().unwrap();
    let own = Entry {
        client_id: "ann".into(),
        sequence: 1,
        ..entry(1, insert(0, "a", 7))
    };
    replica.receive(FromServer::Resume {
        operations: vec![own],
    });
    assert_eq!(
        replica.take_outgoing(),
        Some(FromClient::Edit {
            base: 1,
            sequence: 2,
            operation: insert(1, "b", 8)
        })
    );
}

#[test]
fn a_client_told_to_reload_keeps_nothing_unacknowledged_and_says_so() {
    let mut replica = joined();
    replica.local_edit(&insert(0, "a", 7)).unwrap();
    replica.take_outgoing().unwrap();
    replica.receive(FromServer::Reload {
        why: "too far behind".into(),
    });
    assert!(matches!(
        replica.take_outgoing(),
        Some(FromClient::Join { version: None, .. })
    ));
    replica.receive(FromServer::Welcome {
        version: 9,
        text: "new".into(),
    });
    assert_eq!((replica.text(), replica.version()), ("new".into(), 9));
    assert_eq!(replica.discarded(), [insert(0, "a", 7)]);
    // Should the thrown away edit arrive after all, it is an operation like any other; the next has a new number.
    let own = Entry {
        client_id: "ann".into(),
        sequence: 1,
        ..entry(10, insert(0, "a", 3))
    };
    replica.receive(FromServer::Operation(own));
    assert_eq!(replica.text(), "anew");
    replica.local_edit(&insert(0, "b", 4)).unwrap();
    assert!(matches!(
        replica.take_outgoing(),
        Some(FromClient::Edit { sequence: 2, .. })
    ));
}

#[test]
fn cursors_move_with_the_text() {
    let mut replica = joined();
    replica.receive(FromServer::Presence(person("ben", 4)));
    // Somebody writes before it, then Ben himself writes at it.
    replica.receive(FromServer::Operation(entry(1, insert(0, "xx", 7))));
    let own = Entry {
        client_id: "ben".into(),
        ..entry(2, insert(6, "yy", 9))
    };
    replica.receive(FromServer::Operation(own));
    assert_eq!(replica.people()[0].position, 8);
    // Not acknowledged yet, but in this window.
    replica.local_edit(&insert(0, "zzz", 11)).unwrap();
    assert_eq!(replica.people()[0].position, 11);
    // Sent before what this window has seen since: moved on.
    replica.receive(FromServer::Presence(Person {
        version: 1,
        ..person("cat", 1)
    }));
    assert_eq!(replica.people()[1].position, 1 + 3);
    // One's own is told in the text of the version.
    assert_eq!(
        replica.cursor(5, 3),
        Some(FromClient::Cursor {
            version: 2,
            position: 2,
            anchor: 0
        })
    );
    replica.receive(FromServer::Left {
        client: "ben".into(),
    });
    assert_eq!(replica.people().len(), 1);
}
