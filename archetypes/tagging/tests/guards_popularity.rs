//! Every guard of popularity, synonyms and merge is needed: without it, this order of calls breaks.
//!
//! The order is forced: just before the guarded write leaves, somebody else acts from beginning to end.
#![allow(clippy::unwrap_used)]

mod counting;
mod shelf;

use chaos::{Weaken, World};
use cloud::item::{s, to_item};
use counting::{Meanwhile, change};
use shelf::{Shelf, content, empty_alone, name};
use std::sync::Arc;
use tagging::TaggingError;
use tagging::follow_stream::{Checkpoint, Follower};
use tagging::items::tag_id_key;
use tagging::windows::Window;

/// Runs `act` while `meanwhile` comes in between, with the guard and without it.
struct Broken {
    meanwhile: Arc<Meanwhile>,
    weaken: Option<Weaken>,
}

impl Broken {
    async fn around(self, shelf: &Shelf, act: impl Future<Output = ()>) {
        // Installed first, so that it is asked first: what happens meanwhile goes beside the tap.
        let meanwhile = shelf.cloud().tap().install(self.meanwhile.clone());
        let weaken = self.weaken.map(Arc::new);
        let weak = weaken.clone().map(|plan| shelf.cloud().tap().install(plan));
        act.await;
        drop((weak, meanwhile));
        assert!(self.meanwhile.happened(), "nothing came in between");
        if let Some(weaken) = weaken {
            assert!(weaken.applied() > 0, "the guard was not met");
        }
    }
}

/// Once with the guard, once without.
fn both(weaken: fn() -> Weaken) -> [Option<Weaken>; 2] {
    [None, Some(weaken())]
}

/// Two consumers are told of the same change; how often does it count?
async fn told_twice(version: u64, weaken: Option<Weaken>) -> i64 {
    let shelf = empty_alone().await;
    // Two other edges, so that a count that is one too low is still a count.
    for id in ["photo-2", "photo-3"] {
        shelf
            .tagging
            .apply(&[change(&shelf, id, "tag-a", 1)])
            .await
            .unwrap();
    }
    for before in 1..version {
        shelf
            .tagging
            .apply(&[change(&shelf, "photo-1", "tag-a", before)])
            .await
            .unwrap();
    }
    let (fast, edge) = (shelf.beside(), change(&shelf, "photo-1", "tag-a", version));
    let (same, slow) = (edge.clone(), shelf.tagging.clone());
    let meanwhile = Meanwhile::before("TransactWriteItems", async move {
        fast.apply(&[same]).await.unwrap();
    });
    let act = async move {
        slow.apply(&[edge]).await.unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    shelf
        .tagging
        .popularity(shelf.tenant.as_str(), "tag-a")
        .await
        .unwrap()[&Window::All]
}

#[tokio::test]
async fn without_nothing_counted_yet_a_first_event_counts_twice() {
    let [held, broken] =
        both(|| Weaken::guard_on("popularity_applied").containing("attribute_not_exists(version)"));
    assert_eq!(told_twice(1, held).await, 3);
    assert_eq!(told_twice(1, broken).await, 4);
}

#[tokio::test]
async fn without_what_was_counted_a_later_event_counts_twice() {
    let [held, broken] =
        both(|| Weaken::guard_on("popularity_applied").containing("version = :seen"));
    assert_eq!(told_twice(2, held).await, 2);
    assert_eq!(told_twice(2, broken).await, 1);
}

/// A slow follower writes down its place when a fast one has been further. Where does the place stand
/// then?
async fn overtaken(known_before: bool, weaken: Option<Weaken>) -> bool {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    if known_before {
        shelf.attach("photo-0", "rust").await;
        shelf.follow().await;
    }
    for id in ["photo-1", "photo-2", "photo-3"] {
        shelf.attach(id, "rust").await;
    }
    let (fast, slow) = (shelf.beside(), shelf.tagging.clone());
    let meanwhile = Meanwhile::before("PutItem stream_checkpoints", async move {
        Follower::new(fast).follow().await.unwrap();
    });
    // The slow one is looked at when it has written down its first page and reads the second: if it
    // does, it has moved the place.
    let second = Meanwhile::before_one("GetRecords", 2, async {});
    let looking = shelf.cloud().tap().install(second.clone());
    let act = async move {
        Follower::new(slow).with_page(1).follow().await.unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    drop(looking);
    second.happened()
}

#[tokio::test]
async fn without_the_first_checkpoint_a_slow_follower_moves_the_place_back() {
    let [held, broken] = both(|| Weaken::guard_on("stream_checkpoints").containing("not_exists"));
    assert!(!overtaken(false, held).await);
    assert!(overtaken(false, broken).await);
}

#[tokio::test]
async fn without_the_seen_checkpoint_a_slow_follower_moves_the_place_back() {
    let [held, broken] =
        both(|| Weaken::guard_on("stream_checkpoints").containing("revision = :seen"));
    assert!(!overtaken(true, held).await);
    assert!(overtaken(true, broken).await);
}

/// A gap is noticed while the one before it is mended. Is it still noted afterwards?
async fn still_noted(weaken: Option<Weaken>) -> bool {
    let shelf = empty_alone().await;
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
    let meanwhile = Meanwhile::before("UpdateItem stream_checkpoints", async move {
        let table = cloud.names().table("stream_checkpoints");
        let put = cloud.dynamodb().put_item().table_name(table);
        put.set_item(Some(item)).send().await.unwrap();
    });
    let (tagging, tenant) = (shelf.tagging.clone(), shelf.tenant.clone());
    let act = async move {
        tagging.mend_gaps(&[tenant]).await.unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    let checkpoints = shelf.tagging.checkpoints().await.unwrap();
    checkpoints["shard"].gap.is_some()
}

#[tokio::test]
async fn without_the_same_gap_a_later_one_is_forgotten() {
    let [held, broken] = both(|| Weaken::guard_on("stream_checkpoints").containing("gap = :seen"));
    assert!(still_noted(held).await);
    assert!(!still_noted(broken).await);
}

/// A recount is about to set a count when another edge is attached and counted.
async fn recounted(has_row: bool, weaken: Option<Weaken>) -> Result<(), String> {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.attach("photo-1", "rust").await;
    shelf.follow().await;
    let rust = shelf.tag_id("rust").await;
    if has_row {
        shelf.damage_count(&rust, Window::All, 9, 5).await;
    } else {
        let key = s(tag_id_key(shelf.tenant.as_str(), &rust));
        let row = [
            ("tag_id_key".to_owned(), key),
            ("window".to_owned(), s("ALL")),
        ];
        shelf.remove("tag_popularity", row.into()).await;
    }
    let (other, tenant) = (shelf.beside(), shelf.tenant.clone());
    let meanwhile = Meanwhile::before("TransactWriteItems [Update tag_popularity if", async move {
        other
            .attach(&tenant, &content("photo-2"), &name("rust"))
            .await
            .unwrap();
        Follower::new(other).follow().await.unwrap();
    });
    let (tagging, tenant) = (shelf.tagging.clone(), shelf.tenant.clone());
    let act = async move {
        tagging.recount_tag(&tenant, &name("rust")).await.unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    shelf.counts_equal_edges().await
}

#[tokio::test]
async fn without_at_rest_a_recount_wipes_out_what_was_counted_meanwhile() {
    let [held, broken] = both(|| Weaken::guard_on("tag_popularity").containing("revision = :seen"));
    recounted(true, held).await.unwrap();
    recounted(true, broken).await.unwrap_err();
}

#[tokio::test]
async fn without_never_counted_a_recount_wipes_out_the_first_count() {
    let [held, broken] = both(|| Weaken::guard_on("tag_popularity").containing("not_exists"));
    recounted(false, held).await.unwrap();
    recounted(false, broken).await.unwrap_err();
}

/// A name becomes a tag of its own just before it is made a synonym. Does it stay one?
async fn keeps_its_meaning(weaken: Option<Weaken>) -> bool {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    let (other, tenant) = (shelf.beside(), shelf.tenant.clone());
    let meanwhile = Meanwhile::before("TransactWriteItems", async move {
        other.create_tag(&tenant, &name("ferris"), 1).await.unwrap();
    });
    let (tagging, tenant) = (shelf.tagging.clone(), shelf.tenant.clone());
    let act = async move {
        tagging
            .add_synonym(&tenant, &name("ferris"), &name("rust"))
            .await
            .unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    shelf.tag_id("ferris").await != shelf.tag_id("rust").await
}

#[tokio::test]
async fn without_a_new_name_a_synonym_takes_a_tag_its_meaning() {
    let [held, broken] = both(|| Weaken::guard_on("tags").containing("not_exists"));
    assert!(keeps_its_meaning(held).await);
    assert!(!keeps_its_meaning(broken).await);
}

/// What "ferris" redirects to, when "rust" is merged into "jazz" while "ferris" is pointed at it.
async fn redirect_of_ferris(shelf: &Shelf) -> String {
    let ferris = shelf.beside().definition(&shelf.tenant, "ferris").await;
    ferris.unwrap().unwrap().redirect_to.unwrap()
}

async fn synonym_while_merging(weaken: Option<Weaken>) -> String {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.create("jazz", 1).await;
    let (other, tenant) = (shelf.beside(), shelf.tenant.clone());
    let meanwhile = Meanwhile::before("TransactWriteItems", async move {
        other
            .merge(&tenant, &name("rust"), &name("jazz"))
            .await
            .unwrap();
    });
    let (tagging, tenant) = (shelf.tagging.clone(), shelf.tenant.clone());
    let act = async move {
        tagging
            .add_synonym(&tenant, &name("ferris"), &name("rust"))
            .await
            .unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    redirect_of_ferris(&shelf).await
}

#[tokio::test]
async fn without_an_active_target_a_synonym_leads_over_another_name() {
    let [held, broken] = both(|| Weaken::guard_on("tags").containing("#status = :active"));
    assert_eq!(synonym_while_merging(held).await, "jazz");
    assert_eq!(synonym_while_merging(broken).await, "rust");
}

async fn alias_while_merging(weaken: Option<Weaken>) -> String {
    let shelf = empty_alone().await;
    for tag in ["rustlang", "rust", "jazz"] {
        shelf.create(tag, 1).await;
    }
    let (ferris, rustlang) = (name("ferris"), name("rustlang"));
    shelf
        .tagging
        .add_synonym(&shelf.tenant, &ferris, &rustlang)
        .await
        .unwrap();
    let (other, tenant) = (shelf.beside(), shelf.tenant.clone());
    let pointing = "TransactWriteItems [Update tags, Update tags, Update tags if]";
    let meanwhile = Meanwhile::before(pointing, async move {
        other
            .merge(&tenant, &name("rust"), &name("jazz"))
            .await
            .unwrap();
    });
    let (tagging, tenant) = (shelf.tagging.clone(), shelf.tenant.clone());
    let act = async move {
        tagging
            .merge(&tenant, &rustlang, &name("rust"))
            .await
            .unwrap();
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    redirect_of_ferris(&shelf).await
}

#[tokio::test]
async fn without_an_active_target_a_merge_leaves_a_name_that_leads_over_another() {
    let [held, broken] = both(|| Weaken::guard_on("tags").containing("#status = :active"));
    assert_eq!(alias_while_merging(held).await, "jazz");
    assert_eq!(alias_while_merging(broken).await, "rust");
}

/// Two merges in opposite directions: do the names still lead to a tag?
async fn leads_somewhere(weaken: Option<Weaken>) -> bool {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.create("jazz", 1).await;
    let (back, tenant) = (shelf.beside(), shelf.tenant.clone());
    let meanwhile = Meanwhile::before("TransactWriteItems", async move {
        back.merge(&tenant, &name("jazz"), &name("rust"))
            .await
            .unwrap();
    });
    let (tagging, tenant) = (shelf.tagging.clone(), shelf.tenant.clone());
    let act = async move {
        // Either way this one is told that it cannot be done: as the loser, or by the circle.
        let told = tagging.merge(&tenant, &name("rust"), &name("jazz")).await;
        assert!(matches!(
            told,
            Err(TaggingError::BadInput(_) | TaggingError::Fault(_))
        ));
    };
    Broken { meanwhile, weaken }.around(&shelf, act).await;
    shelf
        .beside()
        .read_tag(&shelf.tenant, &name("rust"))
        .await
        .is_ok()
}

#[tokio::test]
async fn without_two_active_tags_two_merges_make_a_circle() {
    let [held, broken] = both(|| Weaken::guard_on("tags").containing("#status = :active"));
    assert!(leads_somewhere(held).await);
    assert!(!leads_somewhere(broken).await);
}
