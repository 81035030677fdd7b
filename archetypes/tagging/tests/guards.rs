//! Every guard is needed: without it, some order of calls breaks an invariant, and this is how.
//!
//! `Weaken` makes a clause always true on its way out, so the code under test is the code that ships.
#![allow(clippy::unwrap_used)]

mod shelf;

use chaos::{Interleave, Weaken, breaks};
use shelf::{
    Shelf, Told, attacher, checked, content_repairer, detacher, name, tag_repairer, with_rust,
    with_tagged,
};
use std::sync::Arc;
use tagging::Raised;
use tagging::items::Edge;

#[tokio::test]
async fn without_new_edge_two_attaches_both_count_and_publish() {
    let actors = attacher(Interleave::of(|| with_rust(2)), "alice", "photo");
    let weaken = Weaken::guard_on("content_tag_unique").containing("attribute_not_exists");
    breaks(
        checked(attacher(actors, "bob", "photo")),
        weaken,
        "photo has 1 tags and counts 2",
    )
    .await;
}

#[tokio::test]
async fn without_the_seen_version_a_detach_and_an_attach_of_the_same_edge_both_win() {
    // Attached, detached and attached again, by somebody between the detacher's read and its write.
    let setup = || with_tagged(2, &["photo"]);
    let actors = detacher(Interleave::of(setup), "alice", "photo");
    let actors = detacher(actors, "bob", "photo");
    let weaken = Weaken::guard_on("content_tag_unique").without("version = :seen");
    breaks(checked(actors), weaken, "photo has 0 tags and counts -1").await;
}

#[tokio::test]
async fn without_the_cap_clause_a_content_has_more_tags_than_it_may() {
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
    let actors = actors.check(|shelf, _| async move {
        match shelf.tags_of("photo").await.len() {
            0..=1 => Ok(String::new()),
            more => Err(format!("{more} tags under a cap of 1")),
        }
    });
    let weaken = Weaken::guard_on("contents").containing("tag_count < :cap");
    breaks(actors, weaken, "2 tags under a cap of 1").await;
}

#[tokio::test]
async fn without_its_guard_creating_again_gives_a_name_another_meaning() {
    let shelf = with_tagged(1, &["photo"]).await;
    let weak = Arc::new(Weaken::guard_on("tags"));
    let plan = shelf.tagging.cloud().tap().install(weak.clone());
    shelf.create("rust", 1).await;
    drop(plan);
    assert_eq!(weak.applied(), 1);
    assert!(
        shelf.ids().await.is_empty(),
        "all that was tagged is out of sight"
    );
    assert_eq!(shelf.tags_of("photo").await, ["rust"]);
}

#[tokio::test]
async fn without_only_upwards_b_falls_and_rows_are_out_of_sight() {
    let shelf = with_rust(16).await;
    for number in 0..8 {
        shelf.attach(&format!("photo-{number}"), "rust").await;
    }
    let weak = Arc::new(Weaken::guard_on("tags").without("buckets < :to"));
    let plan = shelf.tagging.cloud().tap().install(weak.clone());
    let lowered = shelf.tagging.raise_buckets(&shelf.tenant, &shelf.rust, 1);
    assert!(matches!(lowered.await.unwrap(), Raised::Done(tag) if tag.buckets == 1));
    drop(plan);
    assert_eq!(weak.applied(), 1);
    assert!(shelf.ids().await.len() < 8);
}

/// The one clause that is a second lock on a locked door: whoever reads the definition of a merged tag is
/// led on, so nobody uses its number. It stays, because a merge should not have to know that.
#[tokio::test]
async fn without_active_only_a_name_that_leads_on_gets_buckets() {
    let shelf = with_tagged(1, &["photo"]).await;
    shelf.create("go", 1).await;
    shelf.attach("memo", "go").await;
    let merged = shelf
        .tagging
        .merge(&shelf.tenant, &name("go"), &shelf.rust)
        .await;
    merged.unwrap();
    let weak = Arc::new(Weaken::guard_on("tags").without("#status = :active"));
    let plan = shelf.tagging.cloud().tap().install(weak.clone());
    let raised = shelf
        .tagging
        .raise_buckets(&shelf.tenant, &name("go"), 4)
        .await;
    assert!(matches!(raised.unwrap(), Raised::Merged { into } if into == "rust"));
    drop(plan);
    assert_eq!(weak.applied(), 1);
    shelf.later();
    shelf.attach("late", "go").await;
    assert_eq!(shelf.ids().await, ["late", "memo", "photo"]);
    shelf.invariants().await.unwrap();
}

/// A live edge without its row.
async fn torn() -> Shelf {
    let shelf = with_tagged(1, &["photo"]).await;
    shelf.lose_row("photo", "rust").await;
    shelf
}

#[tokio::test]
async fn without_the_seen_edge_repair_brings_back_a_row_that_was_detached() {
    let actors = detacher(
        content_repairer(Interleave::of(torn), "photo"),
        "alice",
        "photo",
    );
    // Only the check of the repair: the detach itself still looks at its version.
    let weaken = Weaken::guard_on("content_tag_unique").containing("version = 1");
    let weaken = OnlyRepair(weaken);
    let under = Arc::new(weaken);
    let plan = Arc::clone(&under);
    let broken = checked(actors).under(move || Arc::clone(&plan)).run().await;
    let broken = broken.expect_err("it holds without the guard");
    assert!(under.0.applied() > 0);
    assert!(broken.why.contains("an orphan in the index"), "{broken:?}");
}

#[tokio::test]
async fn without_no_edge_repair_takes_the_row_of_a_new_edge() {
    let setup = || async {
        let shelf = with_tagged(1, &["photo"]).await;
        let edge = shelf.edge("photo", "rust").await;
        let created_at = shelf.tagging.cloud().now();
        let content_id = "ghost".into();
        shelf
            .plant_row(&Edge {
                content_id,
                created_at,
                ..edge
            })
            .await;
        shelf
    };
    let actors = attacher(tag_repairer(Interleave::of(setup)), "alice", "ghost");
    let under = Arc::new(OnlyRepair(
        Weaken::guard_on("content_tag_unique").containing("attribute_not_exists"),
    ));
    let plan = Arc::clone(&under);
    let broken = checked(actors).under(move || Arc::clone(&plan)).run().await;
    let broken = broken.expect_err("it holds without the guard");
    assert!(under.0.applied() > 0);
    assert!(broken.why.contains("missing from the index"), "{broken:?}");
}

#[tokio::test]
async fn without_the_revision_repair_overwrites_a_newer_count() {
    let setup = || async {
        let shelf = with_tagged(1, &["photo"]).await;
        shelf.miscount("photo", 3).await;
        shelf
    };
    let actors = detacher(
        content_repairer(Interleave::of(setup), "photo"),
        "alice",
        "photo",
    );
    let weaken = Weaken::guard_on("contents").containing("revision = :seen");
    breaks(checked(actors), weaken, "photo has 0 tags and counts 1").await;
}

/// Weakens the calls of the actor "repair" alone.
struct OnlyRepair(Weaken);

impl cloud::tap::Plan for OnlyRepair {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        if &*request.actor == "repair" {
            return self.0.before(request);
        }
        Box::pin(async { cloud::tap::Verdict::Pass })
    }
}
