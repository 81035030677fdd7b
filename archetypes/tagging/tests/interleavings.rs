//! Every order of the calls of two or three actions, each on a fresh cloud.
//!
//! After each: the index equals the edges, the counts are right, and each change was published once.
#![allow(clippy::unwrap_used)]

mod shelf;

use chaos::{Explored, Interleave};
use shelf::{
    Shelf, Told, attacher, checked, content_repairer, detacher, reader, tag_repairer, with_rust,
    with_tagged,
};
use tagging::items::Edge;
use tagging::{Attached, Created, Raised};

async fn explore(actors: Interleave<Shelf, Told>) -> Explored {
    checked(actors).run().await.unwrap()
}

fn ends(explored: &Explored) -> Vec<&str> {
    explored.seen.keys().map(String::as_str).collect()
}

/// "rust" is in memory: attaching begins with the write, and three actors make few enough orders.
async fn warm(buckets: u32, contents: &[&str]) -> Shelf {
    let mut shelf = with_rust(buckets).await;
    shelf.tagging = shelf.tagging.remembering_definitions(1_000_000);
    for id in contents {
        shelf.attach(id, "rust").await;
        shelf.later();
    }
    shelf
}

#[tokio::test]
async fn two_attaches_of_one_pair_make_one_edge_one_row_one_event() {
    let actors = attacher(Interleave::of(|| with_rust(2)), "alice", "photo");
    let explored = explore(attacher(actors, "bob", "photo")).await;
    assert_eq!(
        ends(&explored),
        [
            "alice attached, bob was there",
            "alice was there, bob attached"
        ]
    );
    assert!(explored.schedules >= 20, "{}", explored.schedules);
}

#[tokio::test]
async fn three_attaches_of_one_pair_make_one_edge_one_row_one_event() {
    let actors = attacher(Interleave::of(|| warm(2, &["other"])), "alice", "photo");
    let actors = attacher(attacher(actors, "bob", "photo"), "carol", "photo");
    let explored = explore(actors).await;
    assert_eq!(explored.seen.len(), 3, "{:?}", explored.seen);
    assert!(explored.schedules >= 90, "{}", explored.schedules);
}

#[tokio::test]
async fn an_attach_and_a_detach_leave_edge_and_row_alike() {
    let actors = attacher(
        Interleave::of(|| with_tagged(2, &["photo"])),
        "alice",
        "photo",
    );
    let explored = explore(detacher(actors, "bob", "photo")).await;
    assert_eq!(
        ends(&explored),
        [
            "alice attached, bob detached",
            "alice was there, bob detached"
        ]
    );
}

#[tokio::test]
async fn two_detaches_take_one_row_away_once() {
    let actors = detacher(
        Interleave::of(|| with_tagged(2, &["photo"])),
        "alice",
        "photo",
    );
    let explored = explore(detacher(actors, "bob", "photo")).await;
    assert_eq!(
        ends(&explored),
        [
            "alice detached, bob was not there",
            "alice was not there, bob detached"
        ]
    );
}

#[tokio::test]
async fn attach_attach_and_detach_in_any_order_keep_the_index_equal_to_the_edges() {
    let actors = attacher(Interleave::of(|| warm(2, &["other"])), "alice", "photo");
    let actors = attacher(actors, "bob", "photo");
    let explored = explore(detacher(actors, "carol", "photo")).await;
    for end in [
        "alice attached, bob was there, carol detached",
        "alice was there, bob attached, carol was not there",
        "alice attached, bob attached, carol detached",
    ] {
        assert!(explored.seen.contains_key(end), "{:?}", explored.seen);
    }
    assert!(explored.schedules >= 200, "{}", explored.schedules);
}

#[tokio::test]
async fn the_last_place_under_the_cap_is_taken_once() {
    let setup = || async {
        let mut shelf = with_rust(1).await;
        shelf.create("go", 1).await;
        shelf.tagging = shelf.tagging.with_cap(1);
        shelf
    };
    let actors = attacher(Interleave::of(setup), "alice", "photo");
    let actors = actors.actor("bob", |shelf| async move {
        Told::Attach(shelf.attach("photo", "go").await)
    });
    let explored = explore(actors).await;
    assert_eq!(
        ends(&explored),
        ["alice attached, bob full", "alice full, bob attached"]
    );
}

#[tokio::test]
async fn two_who_create_one_tag_get_one_tag() {
    let create = |shelf: std::sync::Arc<Shelf>, spelled: &'static str| async move {
        shelf.create(spelled, 2).await
    };
    let explored = Interleave::of(shelf::empty)
        .actor("alice", move |shelf| create(shelf, "Go"))
        .actor("bob", move |shelf| create(shelf, "#GO"))
        .check(|_, told| async move {
            let made = told
                .iter()
                .filter(|(_, told)| matches!(told, Created::Now(_)));
            let made: Vec<_> = made.map(|(who, _)| *who).collect();
            let [alice, bob] = told.clone().try_into().unwrap();
            if alice.1.definition().tag_id != bob.1.definition().tag_id {
                return Err("two tags".into());
            }
            Ok(made.join(" and "))
        })
        .run()
        .await
        .unwrap();
    assert_eq!(ends(&explored), ["alice", "bob"]);
}

// B rises while everybody goes on.

/// Adds one who raises B.
fn raiser(actors: Interleave<Shelf, Told>, to: u32) -> Interleave<Shelf, Told> {
    actors.actor("raiser", move |shelf| async move {
        let raised = shelf.tagging.raise_buckets(&shelf.tenant, &shelf.rust, to);
        assert!(matches!(raised.await.unwrap(), Raised::Done(_)));
        Told::Raise
    })
}

/// After every order: the standing ones were seen exactly once, in order, and afterwards all that is
/// live is seen.
fn seen_once(
    actors: Interleave<Shelf, Told>,
    standing: &'static [&'static str],
) -> Interleave<Shelf, Told> {
    actors.check(move |shelf, told| async move {
        let end = shelf.invariants().await?;
        for (who, told) in &told {
            let Told::Saw(seen) = told else { continue };
            let kept: Vec<_> = seen
                .iter()
                .filter(|id| standing.contains(&&***id))
                .collect();
            if kept != standing {
                return Err(format!("{who} saw {seen:?}, of {standing:?} throughout"));
            }
        }
        let mut live: Vec<_> = end.live().into_iter().map(Edge::position).collect();
        live.sort();
        let now = shelf.view_all(100).await;
        if now != live {
            return Err(format!("{live:?} are live, {now:?} are seen"));
        }
        Ok(shelf::label(&told))
    })
}

/// Adds Alice, who attaches to a content that is in another bucket of two than of one.
fn mover(actors: Interleave<Shelf, Told>) -> Interleave<Shelf, Told> {
    actors.actor("alice", |shelf| async move {
        let id = shelf.moves().await;
        Told::Attach(shelf.attach(&id, "rust").await)
    })
}

#[tokio::test]
async fn b_rises_under_attaching_and_reading_and_nothing_is_lost_or_repeated() {
    let actors = mover(Interleave::of(|| with_tagged(1, &["a", "b", "c"])));
    let actors = reader(raiser(actors, 2), "reader", 100);
    let explored = seen_once(actors, &["c", "b", "a"]).run().await.unwrap();
    let end = |saw: &str| format!("alice attached, raiser raised, reader saw {saw}");
    assert!(
        explored.seen.contains_key(&end("c b a")),
        "{:?}",
        explored.seen
    );
    assert_eq!(explored.seen.len(), 2, "with the new one, or without");
    assert!(explored.schedules >= 100, "{}", explored.schedules);
}

#[tokio::test]
async fn an_attach_that_holds_the_old_number_is_found_where_it_wrote() {
    let actors = raiser(mover(Interleave::of(|| with_rust(1))), 2);
    let actors = actors.check(|shelf, told| async move {
        shelf.invariants().await?;
        let Told::Attach(Attached::Now(edge)) = &told[0].1 else {
            return Err(format!("{told:?}"));
        };
        if shelf.ids().await != [edge.content_id.clone()] {
            return Err("it is not seen".into());
        }
        Ok(format!("bucket {}", edge.bucket))
    });
    let explored = actors.run().await.unwrap();
    assert_eq!(ends(&explored), ["bucket 0", "bucket 1"]);
}

#[tokio::test]
async fn b_rises_between_attach_and_detach_and_the_row_is_found() {
    let setup = || async {
        let shelf = with_rust(1).await;
        let id = shelf.moves().await;
        shelf.attach(&id, "rust").await;
        shelf
    };
    let actors = Interleave::of(setup).actor("alice", |shelf| async move {
        let id = shelf.moves().await;
        Told::Detach(shelf.detach(&id, "rust").await)
    });
    let explored = explore(raiser(actors, 2)).await;
    assert_eq!(ends(&explored), ["alice detached, raiser raised"]);
    assert!(explored.schedules >= 4);
}

// Pages while others write.

#[tokio::test]
async fn a_reader_of_pages_sees_what_stands_throughout_once_whatever_is_attached_meanwhile() {
    let setup = || warm(2, &["a", "b", "c"]);
    let actors = attacher(reader(Interleave::of(setup), "reader", 2), "alice", "new");
    let explored = seen_once(actors, &["c", "b", "a"]).run().await.unwrap();
    assert!(
        explored
            .seen
            .keys()
            .any(|end| end.contains("saw new c b a"))
    );
    assert!(explored.seen.keys().any(|end| end.contains("saw c b a")));
}

#[tokio::test]
async fn a_reader_of_pages_sees_what_stands_throughout_once_whatever_is_detached_meanwhile() {
    let setup = || warm(1, &["a", "b", "c"]);
    let actors = detacher(reader(Interleave::of(setup), "reader", 2), "alice", "b");
    let explored = seen_once(actors, &["c", "a"]).run().await.unwrap();
    assert!(explored.seen.keys().any(|end| end.contains("saw c b a")));
    assert!(explored.seen.keys().any(|end| end.contains("saw c a")));
}

// Repair while others write. Each half by itself: the orders of a whole one are the same, and more.

/// A content without its row.
async fn torn() -> Shelf {
    let shelf = warm(1, &["photo"]).await;
    shelf.lose_row("photo", "rust").await;
    shelf
}

#[tokio::test]
async fn repair_beside_a_detach_of_what_it_mends_brings_nothing_back() {
    let actors = content_repairer(Interleave::of(torn), "photo");
    let explored = explore(detacher(actors, "alice", "photo")).await;
    assert_eq!(
        ends(&explored),
        [
            "repair mended nothing, alice detached",
            "repair mended, alice detached"
        ]
    );
    assert!(explored.schedules >= 30, "{}", explored.schedules);
}

#[tokio::test]
async fn repair_beside_an_attach_of_what_it_removes_takes_nothing_away() {
    // The ghost's row is just where the row of this attach will be: the clock stands still.
    let setup = || async {
        let shelf = warm(1, &["photo"]).await;
        let edge = shelf.edge("photo", "rust").await;
        let ghost = Edge {
            content_id: "ghost".into(),
            created_at: shelf.tagging.cloud().now(),
            ..edge
        };
        shelf.plant_row(&ghost).await;
        shelf
    };
    let actors = attacher(tag_repairer(Interleave::of(setup)), "alice", "ghost");
    let explored = explore(actors).await;
    assert_eq!(
        ends(&explored),
        [
            "repair mended nothing, alice attached",
            "repair mended, alice attached"
        ]
    );
}

#[tokio::test]
async fn repair_beside_an_attach_corrects_a_count_or_leaves_it_to_the_next() {
    let setup = || async {
        let shelf = warm(1, &["photo"]).await;
        shelf.create("go", 1).await;
        shelf.attach("photo", "go").await;
        shelf.detach("photo", "go").await;
        shelf
    };
    let actors = content_repairer(Interleave::of(setup), "photo");
    let actors = actors.actor("alice", |shelf| async move {
        Told::Attach(shelf.attach("photo", "go").await)
    });
    // Nothing is wrong, and nothing must become so.
    let explored = explore(actors).await;
    assert_eq!(ends(&explored), ["repair mended nothing, alice attached"]);
}

#[tokio::test]
async fn two_repairs_at_once_mend_what_one_does() {
    let half = |shelf: std::sync::Arc<Shelf>| async move {
        let mut mended = tagging::Mended::default();
        let repaired = shelf
            .tagging
            .repair_content(&shelf.tenant, "photo", &mut mended);
        repaired.await.unwrap();
        Told::Repair(mended)
    };
    let actors = Interleave::of(torn).actor("one", half).actor("two", half);
    let explored = explore(actors).await;
    assert!(explored.schedules >= 50, "{}", explored.schedules);
    assert!(explored.seen.contains_key("one mended, two mended"));
    assert!(explored.seen.contains_key("one mended, two mended nothing"));
}
