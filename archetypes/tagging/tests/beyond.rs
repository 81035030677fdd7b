//! Beyond the documents: autocomplete, synonyms, merge, search.
#![allow(clippy::unwrap_used)]

mod counting;
mod shelf;

use chaos::{CrashSweep, Tokenless, World};
use counting::Meanwhile;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use shelf::{Shelf, content, empty_alone, name};
use std::collections::BTreeSet;
use std::sync::Arc;
use tagging::domain::Position;
use tagging::items::TagStatus;
use tagging::merge::Merged;
use tagging::search::Search;
use tagging::synonyms::Synonym;
use tagging::{Detached, TaggingError};

impl Shelf {
    async fn complete(&self, typed: &str, limit: usize) -> Vec<String> {
        let found = self
            .tagging
            .autocomplete(&self.tenant, typed, limit)
            .await
            .unwrap();
        found.into_iter().map(|found| found.tag_name_norm).collect()
    }

    async fn synonym(&self, alias: &str, of: &str) -> Synonym {
        let (alias, of) = (name(alias), name(of));
        let made = self.tagging.add_synonym(&self.tenant, &alias, &of);
        made.await.unwrap()
    }

    async fn merge(&self, from: &str, into: &str) -> Merged {
        self.tagging
            .merge(&self.tenant, &name(from), &name(into))
            .await
            .unwrap()
    }

    /// All pages of a search.
    async fn search(&self, search: Search, tags: &[&str], limit: usize) -> Vec<Position> {
        let names: Vec<_> = tags.iter().map(|tag| name(tag)).collect();
        let (mut all, mut cursor) = (Vec::new(), None::<String>);
        loop {
            let page = self
                .tagging
                .search(&self.tenant, search, &names, limit, cursor.as_deref())
                .await
                .unwrap();
            assert!(page.contents.len() <= limit);
            all.extend(page.contents);
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    }
}

#[tokio::test]
async fn autocomplete_finds_names_by_what_was_typed_however_it_was_written() {
    let shelf = empty_alone().await;
    for tag in ["Rust", "rustic", "RUSSIA", "jazz", "Straße", "strand"] {
        shelf.create(tag, 1).await;
    }
    shelf.synonym("rustlang", "rust").await;
    assert_eq!(
        shelf.complete("ru", 10).await,
        ["russia", "rust", "rustic", "rustlang"]
    );
    assert_eq!(shelf.complete(" #ＲU", 2).await, ["russia", "rust"]);
    assert_eq!(shelf.complete("STRASS", 10).await, ["strasse"]);
    assert_eq!(shelf.complete("x", 10).await, Vec::<String>::new());
    for (typed, limit) in [("", 10), ("#", 10), ("ru", 0), ("ru", 51)] {
        let refused = shelf
            .tagging
            .autocomplete(&shelf.tenant, typed, limit)
            .await;
        assert!(
            matches!(refused, Err(TaggingError::BadInput(_))),
            "{typed:?} {limit}"
        );
    }
}

#[tokio::test]
async fn a_synonym_reaches_its_tag_for_whoever_attaches_detaches_or_views() {
    let shelf = empty_alone().await;
    shelf.create("rust", 2).await;
    assert!(matches!(
        shelf.synonym("rustlang", "rust").await,
        Synonym::Now(_)
    ));
    assert!(matches!(
        shelf.synonym("RustLang", "rust").await,
        Synonym::Before(_)
    ));
    shelf.attach("photo-1", "rustlang").await;
    shelf.attach("photo-2", "rust").await;
    assert_eq!(shelf.tags_of("photo-1").await, ["rust"]);
    let view = shelf
        .tagging
        .view(&shelf.tenant, &name("rustlang"), 10, None)
        .await
        .unwrap();
    assert_eq!(view.contents.len(), 2);
    assert!(matches!(
        shelf.detach("photo-2", "rustlang").await,
        Detached::Now(_)
    ));
    assert_eq!(shelf.ids().await, ["photo-1"]);
    shelf.follow().await;
    shelf.counts_equal_edges().await.unwrap();
}

#[tokio::test]
async fn synonyms_make_no_chains_and_no_circles() {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.create("jazz", 1).await;
    shelf.synonym("rustlang", "rust").await;
    // A synonym of a synonym is one of the tag.
    shelf.synonym("ferris", "rustlang").await;
    let ferris = shelf
        .tagging
        .definition(&shelf.tenant, "ferris")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ferris.redirect_to.as_deref(), Some("rust"));
    // What means something keeps its meaning.
    assert!(matches!(
        shelf.synonym("jazz", "rust").await,
        Synonym::Taken(_)
    ));
    assert!(matches!(
        shelf.synonym("rustlang", "jazz").await,
        Synonym::Taken(_)
    ));
    for alias in ["rust", "RUST"] {
        let refused = shelf
            .tagging
            .add_synonym(&shelf.tenant, &name(alias), &name("ferris"))
            .await;
        assert!(matches!(refused, Err(TaggingError::BadInput(_))));
    }
}

/// Two tags; one content has both, one has each, and one has neither any more. A synonym each.
async fn to_merge() -> Shelf {
    let shelf = empty_alone().await;
    shelf.create("rust", 2).await;
    shelf.create("rustlang", 2).await;
    shelf.synonym("ferris", "rustlang").await;
    for (id, tag) in [
        ("both", "rust"),
        ("both", "rustlang"),
        ("old", "rust"),
        ("new", "rustlang"),
        ("none", "rustlang"),
    ] {
        shelf.attach(id, tag).await;
        shelf.later();
    }
    shelf.detach("none", "rustlang").await;
    shelf
}

/// After a merge: one edge for each content, no chains, the name leads to the target.
async fn merged(shelf: &Shelf, more: &[&str]) -> Result<(), String> {
    let end = shelf.invariants().await?;
    let mut live: Vec<_> = end
        .live()
        .iter()
        .map(|edge| (&*edge.content_id, &*edge.tag_name_norm))
        .collect();
    live.sort_unstable();
    let mut expected: Vec<_> = ["both", "new", "old"]
        .iter()
        .chain(more)
        .map(|id| (*id, "rust"))
        .collect();
    expected.sort_unstable();
    if live != expected {
        return Err(format!("the live edges are {live:?}"));
    }
    for alias in ["rustlang", "ferris"] {
        let definition = shelf
            .beside()
            .definition(&shelf.tenant, alias)
            .await
            .unwrap()
            .unwrap();
        let leads = (definition.status, definition.redirect_to.as_deref());
        if leads != (TagStatus::Redirect, Some("rust")) {
            return Err(format!("{alias} is {leads:?}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_merge_moves_every_content_once_and_keeps_its_place() {
    let shelf = to_merge().await;
    let before = shelf.edge("new", "rustlang").await;
    assert_eq!(
        shelf.merge("rustlang", "rust").await,
        Merged::Done { moved: 1, both: 1 }
    );
    merged(&shelf, &[]).await.unwrap();
    assert_eq!(
        shelf.edge("new", "rust").await.created_at,
        before.created_at
    );
    assert_eq!(shelf.ids().await, ["new", "old", "both"]);
    shelf.follow().await;
    shelf.counts_equal_edges().await.unwrap();
    // Again is a sweep; by another name it is the same; somewhere else it is an answer.
    assert_eq!(
        shelf.merge("rustlang", "rust").await,
        Merged::Done { moved: 0, both: 0 }
    );
    shelf.create("jazz", 1).await;
    assert_eq!(
        shelf.merge("rustlang", "jazz").await,
        Merged::Elsewhere {
            into: "rust".into()
        }
    );
    let itself = shelf
        .tagging
        .merge(&shelf.tenant, &name("rust"), &name("ferris"))
        .await;
    assert!(matches!(itself, Err(TaggingError::BadInput(_))));
    shelf.attach("late", "ferris").await;
    merged(&shelf, &["late"]).await.unwrap();
}

#[tokio::test]
async fn a_merge_that_dies_at_any_call_goes_on_when_it_is_called_again() {
    let merge = |shelf: Arc<Shelf>| async move { shelf.merge("rustlang", "rust").await };
    let swept = CrashSweep::of(to_merge)
        .action("merger", merge)
        .recovery(merge)
        .check(|shelf| async move {
            merged(&shelf, &[]).await?;
            shelf.follow().await;
            shelf.counts_equal_edges().await
        })
        .run()
        .await
        .unwrap();
    assert!(swept.points.len() >= 40, "{:?}", swept.points);
}

/// An attach that was about to begin when the merge began, and ends before any of its calls or after
/// them all.
#[tokio::test]
async fn an_attach_during_a_merge_is_in_the_merged_tag_whenever_it_comes() {
    let mut moved_by_attach = 0;
    for k in 1.. {
        let shelf = to_merge().await;
        let (attacher, tenant) = (shelf.beside(), shelf.tenant.clone());
        let meanwhile = Meanwhile::before_call(k, async move {
            attacher
                .attach(&tenant, &content("late"), &name("rustlang"))
                .await
                .unwrap();
        });
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        shelf.merge("rustlang", "rust").await;
        drop(installed);
        if !meanwhile.happened() {
            assert!(k > 20, "a merge makes {k} calls");
            break;
        }
        merged(&shelf, &["late"])
            .await
            .unwrap_or_else(|why| panic!("before call {k}: {why}"));
    }
    // The other way round: the whole merge comes in between two calls of the attach.
    for k in 1.. {
        let shelf = to_merge().await;
        let (merger, tenant) = (shelf.beside(), shelf.tenant.clone());
        let meanwhile = Meanwhile::before_call(k, async move {
            merger
                .merge(&tenant, &name("rustlang"), &name("rust"))
                .await
                .unwrap();
        });
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        let recording = shelf.cloud().tap().record();
        shelf.attach("late", "rustlang").await;
        drop(installed);
        if !meanwhile.happened() {
            break;
        }
        let writes = recording.take();
        let writes = writes
            .iter()
            .filter(|call| call.request.operation == "TransactWriteItems");
        moved_by_attach += usize::from(writes.count() == 2);
        merged(&shelf, &["late"])
            .await
            .unwrap_or_else(|why| panic!("before call {k}: {why}"));
    }
    assert!(
        moved_by_attach > 0,
        "the attach never had to move its edge itself"
    );
}

#[tokio::test]
async fn a_detach_by_the_old_name_during_a_merge_is_not_lost() {
    for k in 1.. {
        let shelf = to_merge().await;
        let (detacher, tenant) = (shelf.beside(), shelf.tenant.clone());
        let meanwhile = Meanwhile::before_call(k, async move {
            let told = detacher
                .detach(&tenant, &content("new"), &name("rustlang"))
                .await
                .unwrap();
            assert!(matches!(told, Detached::Now(_)));
        });
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        shelf.merge("rustlang", "rust").await;
        drop(installed);
        if !meanwhile.happened() {
            break;
        }
        shelf.invariants().await.unwrap();
        assert_eq!(
            shelf.tags_of("new").await,
            Vec::<String>::new(),
            "before call {k}"
        );
    }
}

#[tokio::test]
async fn of_two_merges_in_a_circle_one_finds_that_the_other_has_begun() {
    let mut lost = 0;
    for k in 1.. {
        let shelf = empty_alone().await;
        shelf.create("rust", 1).await;
        shelf.create("jazz", 1).await;
        shelf.attach("photo-1", "rust").await;
        shelf.attach("photo-2", "jazz").await;
        let (back, tenant) = (shelf.beside(), shelf.tenant.clone());
        let meanwhile = Meanwhile::before_call(k, async move {
            let _ = back.merge(&tenant, &name("jazz"), &name("rust")).await;
        });
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        let told = shelf
            .tagging
            .merge(&shelf.tenant, &name("rust"), &name("jazz"))
            .await;
        drop(installed);
        if !meanwhile.happened() {
            break;
        }
        lost += usize::from(told.is_err());
        assert_eq!(
            shelf.tag_id("rust").await,
            shelf.tag_id("jazz").await,
            "before call {k}"
        );
        let end = shelf.invariants().await.unwrap();
        assert_eq!(end.live().len(), 2, "before call {k}");
    }
    assert!(lost > 0, "the one that came in between never won");
}

#[tokio::test]
async fn a_target_that_is_merged_meanwhile_hands_the_contents_on() {
    for k in 1.. {
        let shelf = to_merge().await;
        shelf.create("ferrous", 1).await;
        let (next, tenant) = (shelf.beside(), shelf.tenant.clone());
        let meanwhile = Meanwhile::before_call(k, async move {
            next.merge(&tenant, &name("rust"), &name("ferrous"))
                .await
                .unwrap();
        });
        let installed = shelf.cloud().tap().install(meanwhile.clone());
        shelf.merge("rustlang", "rust").await;
        drop(installed);
        if !meanwhile.happened() {
            break;
        }
        let end = shelf.invariants().await.unwrap();
        let mut live: Vec<_> = end
            .live()
            .iter()
            .map(|edge| (&*edge.content_id, &*edge.tag_name_norm))
            .collect();
        live.sort_unstable();
        let expected = ["both", "new", "old"].map(|id| (id, "ferrous"));
        assert_eq!(live, expected, "before call {k}");
        let ferrous = shelf.tag_id("ferrous").await;
        for alias in ["rust", "rustlang", "ferris"] {
            assert_eq!(
                shelf.tag_id(alias).await,
                ferrous,
                "{alias}, before call {k}"
            );
        }
    }
}

/// What a plain look at the edges says.
async fn should_find(shelf: &Shelf, search: Search, tags: &[&str]) -> BTreeSet<String> {
    let end = shelf.invariants().await.unwrap();
    let has = |id: &str, tag: &str| {
        let edge = end.edges.get(&(id.to_owned(), tag.to_owned()));
        edge.is_some_and(|edge| edge.live)
    };
    let ids = end.edges.keys().map(|(id, _)| id.clone());
    ids.filter(|id| match search {
        Search::All => tags.iter().all(|tag| has(id, tag)),
        Search::Any => tags.iter().any(|tag| has(id, tag)),
    })
    .collect()
}

#[test]
fn a_search_finds_what_has_all_or_any_of_the_tags_once_in_pages_of_any_size() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let config = Config {
        cases: 12,
        failure_persistence: None,
        ..Config::default()
    };
    const TAGS: [&str; 3] = ["rust", "jazz", "cats"];
    // Which content gets which tag when (or loses it again), and how large pages are.
    let steps = prop::collection::vec(
        (0..6_usize, 0..3_usize, any::<bool>(), any::<bool>()),
        1..24,
    );
    TestRunner::new(config)
        .run(&(steps, 1..5_usize), |(steps, limit)| {
            runtime.block_on(async {
                let shelf = empty_alone().await;
                for (tag, buckets) in TAGS.iter().zip([1, 2, 3]) {
                    shelf.create(tag, buckets).await;
                }
                for (content, tag, attach, later) in steps {
                    let (id, tag) = (format!("photo-{content}"), TAGS[tag]);
                    if attach {
                        shelf.attach(&id, tag).await;
                    } else {
                        shelf.detach(&id, tag).await;
                    }
                    if later {
                        shelf.later();
                    }
                }
                for search in [Search::All, Search::Any] {
                    for tags in [&TAGS[..], &TAGS[..2], &TAGS[1..], &TAGS[..1]] {
                        let found = shelf.search(search, tags, limit).await;
                        assert!(found.is_sorted(), "{search:?} {tags:?}: {found:?}");
                        let ids: Vec<_> = found.into_iter().map(|at| at.content_id).collect();
                        let once: BTreeSet<_> = ids.iter().cloned().collect();
                        assert_eq!(once.len(), ids.len(), "{search:?} {tags:?}: {ids:?}");
                        assert_eq!(
                            once,
                            should_find(&shelf, search, tags).await,
                            "{search:?} {tags:?}"
                        );
                    }
                }
            });
            Ok(())
        })
        .unwrap();
}

#[tokio::test]
async fn a_content_that_gets_another_of_the_tags_between_pages_is_still_found_once() {
    let shelf = empty_alone().await;
    shelf.create("rust", 1).await;
    shelf.create("jazz", 1).await;
    for id in ["a", "b", "c"] {
        shelf.attach(id, "rust").await;
        shelf.later();
    }
    let names = [name("rust"), name("jazz")];
    let page = async |cursor: Option<&str>| {
        let page = shelf
            .tagging
            .search(&shelf.tenant, Search::Any, &names, 1, cursor);
        page.await.unwrap()
    };
    let first = page(None).await;
    assert_eq!(first.contents[0].content_id, "c");
    shelf.later();
    shelf.attach("a", "jazz").await;
    let second = page(first.next.as_deref()).await;
    let third = page(second.next.as_deref()).await;
    assert_eq!(third.contents[0].content_id, "a");
}

#[tokio::test]
async fn a_search_walks_the_rarest_tag_and_refuses_what_it_cannot_do() {
    let shelf = empty_alone().await;
    for tag in ["common", "rare"] {
        shelf.create(tag, 1).await;
    }
    for number in 0..12 {
        shelf.attach(&format!("photo-{number}"), "common").await;
        shelf.later();
    }
    shelf.attach("photo-3", "rare").await;
    shelf.follow().await;
    let recording = shelf.cloud().tap().record();
    let found = shelf.search(Search::All, &["common", "rare"], 10).await;
    assert_eq!(found.len(), 1);
    let queries = recording.take();
    let queries = queries
        .iter()
        .filter(|call| call.request.operation == "Query")
        .count();
    assert_eq!(
        queries, 1,
        "one page of the rare tag, none of the common one"
    );
    let search = async |tags: &[&str], limit, cursor: Option<&str>| {
        let names: Vec<_> = tags.iter().map(|tag| name(tag)).collect();
        shelf
            .tagging
            .search(&shelf.tenant, Search::Any, &names, limit, cursor)
            .await
    };
    let page = search(&["common"], 2, None).await.unwrap();
    for (tags, limit, cursor) in [
        (&[][..], 1, None),
        (&["a", "b", "c", "d", "e", "f"][..], 1, None),
        (&["common"][..], 0, None),
        (&["common", "rare"][..], 2, page.next.as_deref()),
        (&["common"][..], 2, Some("nonsense")),
    ] {
        let refused = search(tags, limit, cursor).await;
        assert!(
            matches!(refused, Err(TaggingError::BadInput(_))),
            "{tags:?} {refused:?}"
        );
    }
}

#[tokio::test]
async fn tenants_see_nothing_of_each_other_in_any_of_it() {
    let shelf = to_merge().await;
    let other = shelf.other_tenant();
    for tag in ["rust", "rustlang"] {
        other.create(tag, 1).await;
        other.attach("both", tag).await;
    }
    shelf.merge("rustlang", "rust").await;
    assert_eq!(other.tags_of("both").await, ["rust", "rustlang"]);
    assert_eq!(other.complete("fer", 10).await, Vec::<String>::new());
    assert_ne!(other.tag_id("rustlang").await, other.tag_id("rust").await);
    assert_eq!(
        other
            .search(Search::Any, &["rust", "rustlang"], 10)
            .await
            .len(),
        1
    );
    assert_eq!(
        other
            .search(Search::All, &["rust", "rustlang"], 10)
            .await
            .len(),
        1
    );
    let names = [name("rust")];
    let page = shelf
        .tagging
        .search(&shelf.tenant, Search::Any, &names, 1, None)
        .await
        .unwrap();
    let stolen = other
        .tagging
        .search(&other.tenant, Search::Any, &names, 1, page.next.as_deref());
    assert!(matches!(stolen.await, Err(TaggingError::BadInput(_))));
}

/// Every transaction's answer is lost once, and DynamoDB does not remember its token.
#[tokio::test]
async fn a_merge_and_a_synonym_know_their_own_work_when_answers_are_lost() {
    for seed in 0..6 {
        let shelf = to_merge().await;
        let faults = Arc::new(
            chaos::Faults::seeded(seed)
                .lose_answer(0.25)
                .lose_request(0.1),
        );
        let tokenless = shelf.cloud().tap().install(Arc::new(Tokenless));
        let weather = shelf.cloud().tap().install(faults.clone());
        let (rustlang, rust, crab) = (name("rustlang"), name("rust"), name("crab"));
        while shelf
            .tagging
            .add_synonym(&shelf.tenant, &crab, &rustlang)
            .await
            .is_err()
        {}
        while shelf
            .tagging
            .merge(&shelf.tenant, &rustlang, &rust)
            .await
            .is_err()
        {}
        drop((weather, tokenless));
        assert!(!faults.injected().is_empty());
        merged(&shelf, &[])
            .await
            .unwrap_or_else(|why| panic!("seed {seed}: {why}"));
        assert_eq!(shelf.tag_id("crab").await, shelf.tag_id("rust").await);
    }
}
