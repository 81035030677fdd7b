//! What the README says, each sentence a test.
#![allow(clippy::unwrap_used)]

mod shelf;

use chaos::{Conflicts, Deaf, LoseAnswer, Tokenless, race};
use cloud::tap::Request;
use proptest::prelude::*;
use shelf::{CURSOR_KEY, Shelf, content, empty, name, with_rust, with_tagged};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tagging::domain::{Position, normalize};
use tagging::items::Edge;
use tagging::{
    Attached, BadInput, ContentId, Created, Detached, Mended, Raised, TagName, Tagging,
    TaggingError, TenantId,
};

fn now(attached: Attached) -> Edge {
    match attached {
        Attached::Now(edge) => edge,
        other => panic!("{other:?}"),
    }
}

// The relation.

#[tokio::test]
async fn n_concurrent_attaches_make_one_edge_one_index_row_one_event() {
    let shelf = Arc::new(with_rust(4).await);
    let told = race(32, |_| {
        let shelf = Arc::clone(&shelf);
        async move { shelf.attach("photo", "rust").await }
    })
    .await;
    let made = told.iter().filter(|told| matches!(told, Attached::Now(_)));
    assert_eq!(made.count(), 1, "one of them did it: {told:?}");
    let before = told
        .iter()
        .filter(|told| matches!(told, Attached::Before(_)));
    assert_eq!(before.count(), 31, "and the others found it done");
    let end = shelf.invariants().await.unwrap();
    assert_eq!(end.edges.len(), 1);
    assert_eq!(shelf.rows().await.len(), 1);
    assert_eq!(
        shelf.events().await,
        [("photo".to_owned(), "rust".to_owned(), 1)]
    );
}

#[tokio::test]
async fn attaching_or_detaching_twice_changes_and_publishes_once() {
    let shelf = with_rust(2).await;
    let first = now(shelf.attach("photo", "rust").await);
    shelf.later();
    assert_eq!(shelf.attach("photo", "Rust").await, Attached::Before(first));
    assert!(matches!(
        shelf.detach("photo", "rust").await,
        Detached::Now(_)
    ));
    assert_eq!(shelf.detach("photo", "rust").await, Detached::NotThere);
    assert_eq!(shelf.detach("never", "rust").await, Detached::NotThere);
    shelf.invariants().await.unwrap();
    let versions: Vec<_> = shelf
        .events()
        .await
        .into_iter()
        .map(|event| event.2)
        .collect();
    assert_eq!(versions, [1, 2]);
}

#[tokio::test]
async fn versions_go_on_when_a_tag_comes_back() {
    let shelf = with_rust(2).await;
    for round in 0..3 {
        shelf.later();
        let edge = now(shelf.attach("photo", "rust").await);
        assert_eq!(edge.version, 2 * round + 1);
        assert_eq!(edge.created_at, shelf.tagging.cloud().now());
        shelf.later();
        let Detached::Now(gone) = shelf.detach("photo", "rust").await else {
            panic!("it was there");
        };
        assert_eq!(gone.version, 2 * round + 2);
        assert_eq!(gone.created_at, edge.created_at, "a detach says what ended");
        shelf.invariants().await.unwrap();
    }
}

/// Loses the answer to the first write.
fn lose_one() -> Arc<LoseAnswer> {
    Arc::new(LoseAnswer::to_first(Request::is_write))
}

#[tokio::test]
async fn a_write_whose_answer_was_lost_knows_its_own_work() {
    let shelf = empty().await;
    let tap = shelf.tagging.cloud().tap();
    let _tokenless = tap.install(Arc::new(Tokenless));
    let lost = || tap.install(lose_one());

    let losing = lost();
    assert!(matches!(shelf.create("rust", 2).await, Created::Now(_)));
    drop(losing);
    for round in 0..2 {
        let losing = lost();
        let edge = now(shelf.attach("photo", "rust").await);
        assert_eq!(edge.version, 2 * round + 1);
        drop(losing);
        let losing = lost();
        let detached = shelf.detach("photo", "rust").await;
        assert!(matches!(detached, Detached::Now(edge) if edge.version == 2 * round + 2));
        drop(losing);
    }
    shelf.invariants().await.unwrap();
    assert_eq!(shelf.events().await.len(), 4);
}

#[tokio::test]
async fn a_write_that_gets_no_answer_at_all_is_asked_for() {
    let shelf = empty().await;
    let tap = shelf.tagging.cloud().tap();
    let _tokenless = tap.install(Arc::new(Tokenless));
    let deaf = tap.install(Arc::new(Deaf));
    assert!(matches!(shelf.create("rust", 2).await, Created::Now(_)));
    assert!(matches!(
        shelf.attach("photo", "rust").await,
        Attached::Now(_)
    ));
    assert!(matches!(
        shelf.detach("photo", "rust").await,
        Detached::Now(_)
    ));
    drop(deaf);
    shelf.invariants().await.unwrap();
    assert_eq!(shelf.events().await.len(), 2);
}

#[tokio::test]
async fn a_conflict_with_another_transaction_is_tried_again() {
    let shelf = with_rust(2).await;
    let tap = shelf.tagging.cloud().tap();
    for times in [1, 3] {
        let conflicts = tap.install(Arc::new(Conflicts::on("TransactWriteItems", times)));
        now(shelf.attach("photo", "rust").await);
        drop(conflicts);
        let conflicts = tap.install(Arc::new(Conflicts::on("TransactWriteItems", times)));
        assert!(matches!(
            shelf.detach("photo", "rust").await,
            Detached::Now(_)
        ));
        drop(conflicts);
    }
    shelf.invariants().await.unwrap();
}

#[tokio::test]
async fn the_tags_of_a_content_are_one_query() {
    let shelf = with_rust(2).await;
    shelf.create("Zig", 1).await;
    shelf.create("ada", 1).await;
    for tag in ["rust", "zig", "ada"] {
        shelf.attach("photo", tag).await;
    }
    shelf.attach("other", "rust").await;
    shelf.detach("photo", "ada").await;
    let recording = shelf.tagging.cloud().tap().record();
    assert_eq!(shelf.tags_of("photo").await, ["rust", "zig"]);
    let calls: Vec<_> = recording.calls().iter().map(|call| call.shape()).collect();
    assert_eq!(calls, ["Query content_tag_unique"]);
}

#[tokio::test]
async fn a_content_has_at_most_as_many_tags_as_the_cap_however_many_come_at_once() {
    let mut shelf = empty().await;
    shelf.tagging = shelf.tagging.with_cap(3);
    for number in 0..12 {
        shelf.create(&format!("tag {number}"), 1).await;
    }
    let shelf = Arc::new(shelf);
    let told = race(12, |number| {
        let shelf = Arc::clone(&shelf);
        async move { shelf.attach("photo", &format!("tag {number}")).await }
    })
    .await;
    let made = told.iter().filter(|told| matches!(told, Attached::Now(_)));
    assert_eq!(made.count(), 3);
    let full = told
        .iter()
        .filter(|told| **told == Attached::Full { cap: 3 });
    assert_eq!(full.count(), 9);
    let first = shelf.tags_of("photo").await.swap_remove(0);
    shelf.detach("photo", &first).await;
    let free = (0..12).map(|number| format!("tag {number}"));
    let mut free = free.filter(|tag| *tag != first);
    let tags = shelf.tags_of("photo").await;
    let free = free.find(|tag| !tags.contains(tag)).unwrap();
    now(shelf.attach("photo", &free).await);
    assert_eq!(shelf.tags_of("photo").await.len(), 3);
    shelf.invariants().await.unwrap();
}

// Names.

#[tokio::test]
async fn a_name_means_one_tag_however_it_is_spelled_and_however_many_create_it() {
    let shelf = Arc::new(empty().await);
    let spellings = ["Rust", "RUST", "#rust", "Ｒｕｓｔ", " rust ", "ru\u{ad}st"];
    let told = race(spellings.len(), |number| {
        let shelf = Arc::clone(&shelf);
        async move { shelf.create(spellings[number], 2).await }
    })
    .await;
    let made = told.iter().filter(|told| matches!(told, Created::Now(_)));
    assert_eq!(made.count(), 1);
    let ids: BTreeSet<_> = told
        .into_iter()
        .map(|told| told.definition().tag_id)
        .collect();
    assert_eq!(ids.len(), 1);
    now(shelf.attach("photo", "RUST").await);
    assert_eq!(shelf.ids().await, ["photo"]);
    let tag_id = ids.first().unwrap();
    let found = shelf
        .tagging
        .tag_by_id(&shelf.tenant, tag_id)
        .await
        .unwrap();
    assert_eq!(found.unwrap().tag_name_norm, "rust");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn normalizing_twice_is_normalizing_once(text in ".{0,40}") {
        let once = normalize(&text);
        prop_assert_eq!(normalize(&once), once);
    }

    #[test]
    fn case_and_width_and_space_do_not_matter(text in "[a-zß-öø-ÿα-ωа-я0-9 .+-]{1,30}") {
        let plain = normalize(&text);
        prop_assert_eq!(normalize(&text.to_uppercase()), &*plain);
        prop_assert_eq!(normalize(&format!("  #{text}\u{200b} ")), plain);
    }

    #[test]
    fn positions_sort_as_their_keys_do(
        rows in proptest::collection::vec((0..50_i64, "[a-c]{1,3}"), 2..20),
    ) {
        let at = |(created_at, content_id): (i64, String)| Position { created_at, content_id };
        let mut rows: Vec<_> = rows.into_iter().map(at).collect();
        rows.sort();
        let keys: Vec<_> = rows.iter().map(Position::key).collect();
        prop_assert!(keys.is_sorted());
        let newest_first = |pair: &[Position]| {
            (pair[0].created_at > pair[1].created_at)
                || (pair[0].created_at == pair[1].created_at
                    && pair[0].content_id <= pair[1].content_id)
        };
        prop_assert!(rows.windows(2).all(newest_first));
    }
}

#[tokio::test]
async fn an_unknown_tag_is_an_error_and_nothing_is_written() {
    let shelf = empty().await;
    let recording = shelf.tagging.cloud().tap().record();
    let attached = shelf.try_attach("photo", "rust").await;
    assert!(matches!(attached, Err(TaggingError::UnknownTag(tag)) if tag == "rust"));
    assert!(shelf.try_detach("photo", "rust").await.is_err());
    let view = shelf.tagging.view(&shelf.tenant, &shelf.rust, 10, None);
    assert!(view.await.is_err());
    let raised = shelf.tagging.raise_buckets(&shelf.tenant, &shelf.rust, 4);
    assert!(matches!(raised.await, Err(TaggingError::UnknownTag(_))));
    let wrote = recording
        .calls()
        .iter()
        .any(|call| call.request.is_write() && call.request.operation != "UpdateItem");
    assert!(!wrote);
    shelf.invariants().await.unwrap();
}

#[tokio::test]
async fn bad_input_is_refused_before_any_call() {
    let shelf = with_rust(2).await;
    let recording = shelf.tagging.cloud().tap().record();
    assert!(TagName::new("").is_err());
    assert!(TagName::new(&"x".repeat(65)).is_err());
    assert!(TagName::new("a\nb").is_err());
    assert!(TenantId::new("acme#1").is_err());
    assert!(ContentId::new("a photo").is_err());
    assert!(ContentId::new(&"x".repeat(129)).is_err());
    let go = name("go");
    for buckets in [0, 65] {
        let created = shelf.tagging.create_tag(&shelf.tenant, &go, buckets);
        let refused = BadInput::Buckets(buckets);
        assert!(matches!(created.await, Err(TaggingError::BadInput(why)) if why == refused));
        let raised = shelf
            .tagging
            .raise_buckets(&shelf.tenant, &shelf.rust, buckets);
        assert!(matches!(raised.await, Err(TaggingError::BadInput(_))));
    }
    for limit in [0, 101] {
        let view = shelf.tagging.view(&shelf.tenant, &shelf.rust, limit, None);
        assert!(matches!(
            view.await,
            Err(TaggingError::BadInput(BadInput::PageSize(_)))
        ));
    }
    assert!(recording.calls().is_empty(), "{:?}", recording.calls());
}

// Tenants.

#[tokio::test]
async fn tenants_never_see_each_other() {
    let acme = with_rust(2).await;
    let globex = acme.other_tenant();
    let tag_id = acme.create("rust", 2).await.definition().tag_id;
    let unknown = globex.try_attach("photo", "rust").await;
    assert!(
        matches!(unknown, Err(TaggingError::UnknownTag(_))),
        "not even the name"
    );
    globex.create("rust", 2).await;
    for number in 0..5 {
        acme.attach(&format!("photo-{number}"), "rust").await;
    }
    globex.attach("photo-3", "rust").await;
    globex.attach("memo", "rust").await;

    assert_eq!(acme.ids().await.len(), 5);
    assert_eq!(globex.ids().await, ["memo", "photo-3"]);
    let found = globex.tagging.tag_by_id(&globex.tenant, &tag_id).await;
    assert_eq!(found.unwrap(), None, "an id of another tenant's is no id");
    globex.detach("photo-3", "rust").await;
    assert_eq!(acme.tags_of("photo-3").await, ["rust"]);
    assert!(globex.tags_of("photo-3").await.is_empty());

    let page = acme.page(2, None).await;
    let cursor = page.next.unwrap();
    let taken = globex
        .tagging
        .view(&globex.tenant, &globex.rust, 2, Some(&cursor));
    assert!(matches!(
        taken.await,
        Err(TaggingError::BadInput(BadInput::Cursor))
    ));

    globex
        .plant_row(&Edge {
            created_at: 7,
            ..globex.edge("memo", "rust").await
        })
        .await;
    assert!(acme.repair().await.nothing(), "nor does repair cross over");
    assert_eq!(globex.repair().await.rows_removed.len(), 1);
    acme.invariants().await.unwrap();
    globex.invariants().await.unwrap();
}

// Views.

#[tokio::test]
async fn a_view_is_newest_first_and_by_id_among_those_of_one_moment() {
    let shelf = with_rust(4).await;
    for (id, later) in [
        ("b", false),
        ("a", false),
        ("c", true),
        ("e", false),
        ("d", true),
    ] {
        shelf.attach(id, "rust").await;
        if later {
            shelf.later();
        }
    }
    shelf.attach("z", "rust").await;
    assert_eq!(shelf.ids().await, ["z", "d", "e", "a", "b", "c"]);
    let by_ones: Vec<_> = shelf.view_all(1).await;
    assert_eq!(by_ones, shelf.view_all(100).await);
}

#[tokio::test]
async fn a_page_reads_little_more_than_it_shows() {
    let shelf = with_rust(4).await;
    for number in 0..200 {
        shelf.attach(&format!("photo-{number}"), "rust").await;
        shelf.later();
    }
    let mut cursor = None;
    for page in 0..5 {
        let recording = shelf.tagging.cloud().tap().record();
        let seen = shelf.page(20, cursor.as_deref()).await;
        assert_eq!(seen.contents.len(), 20, "page {page}");
        let queries = recording.calls().into_iter();
        let queries: Vec<_> = queries
            .filter(|call| call.request.operation == "Query")
            .collect();
        let read: u64 = queries
            .iter()
            .map(|call| call.response.as_ref().unwrap()["Count"].as_u64().unwrap())
            .sum();
        assert!(queries.len() <= 8, "page {page}: {} queries", queries.len());
        assert!(read <= 48, "page {page}: {read} rows for 20");
        cursor = seen.next;
    }
}

#[tokio::test]
async fn a_bucket_that_has_ended_is_not_read_again() {
    let shelf = with_rust(16).await;
    // Few contents in many buckets: most have nothing.
    for number in 0..6 {
        shelf.attach(&format!("photo-{number}"), "rust").await;
        shelf.later();
    }
    let first = shelf.page(2, None).await;
    let recording = shelf.tagging.cloud().tap().record();
    let second = shelf.page(4, first.next.as_deref()).await;
    assert_eq!(second.contents.len(), 4);
    let queries = recording.calls().into_iter();
    let queries = queries.filter(|call| call.request.operation == "Query");
    let queries = queries.count();
    assert!(queries <= 5, "{queries} queries for the rest of 16 buckets");
}

#[tokio::test]
async fn a_cursor_that_was_changed_or_brought_elsewhere_is_refused() {
    let shelf = with_tagged(2, &["a", "b", "c", "d"]).await;
    shelf.create("go", 2).await;
    let cursor = shelf.page(2, None).await.next.unwrap();
    let refused = async |tag: &TagName, cursor: &str| {
        let view = shelf
            .tagging
            .view(&shelf.tenant, tag, 2, Some(cursor))
            .await;
        matches!(view, Err(TaggingError::BadInput(BadInput::Cursor)))
    };
    assert!(!refused(&shelf.rust, &cursor).await);
    assert!(!refused(&name("RUST"), &cursor).await, "the same tag");
    assert!(refused(&name("go"), &cursor).await, "another tag");
    for at in 0..cursor.len() {
        let mut changed = cursor.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).unwrap();
        assert!(refused(&shelf.rust, &changed).await, "character {at}");
    }
    for cut in ["", ".", "x", &cursor[1..], &cursor[..cursor.len() - 1]] {
        assert!(refused(&shelf.rust, cut).await, "{cut:?}");
    }
    let other = Tagging::new(shelf.tagging.cloud().clone(), b"another key");
    let view = other.view(&shelf.tenant, &shelf.rust, 2, Some(&cursor));
    assert!(view.await.is_err(), "signed with another key");
    let same = Tagging::new(shelf.tagging.cloud().clone(), CURSOR_KEY);
    let view = same.view(&shelf.tenant, &shelf.rust, 2, Some(&cursor));
    assert_eq!(
        view.await.unwrap().contents.len(),
        2,
        "another process of ours"
    );
}

/// What may happen between two pages.
#[derive(Debug, Clone)]
enum Happens {
    /// A content is tagged, by somebody whose clock is off by this much.
    Attach(u8, i64),
    Detach(u8),
    /// B rises to this.
    Raise(u32),
    /// A page of so many is read.
    Page(usize),
}

fn happenings() -> impl Strategy<Value = Vec<Happens>> {
    let one = prop_oneof![
        3 => (0..24_u8, -30..30_i64).prop_map(|(id, off)| Happens::Attach(id, off)),
        2 => (0..24_u8).prop_map(Happens::Detach),
        1 => (1..8_u32).prop_map(Happens::Raise),
        4 => (1..5_usize).prop_map(Happens::Page),
    ];
    proptest::collection::vec(one, 4..30)
}

/// Reads page after page while things happen, to the end. Says what was wrong.
async fn paginate(
    buckets: u32,
    before: Vec<(u8, i64)>,
    happenings: Vec<Happens>,
) -> Result<(), String> {
    let shelf = with_rust(buckets).await;
    let attach = async |id: u8, off: i64| {
        let cloud = shelf.tagging.cloud();
        let clock = cloud::Clock::manual(cloud.now() + off);
        let theirs = shelf.tagging.on(cloud.with_clock(clock));
        let content = content(&format!("c{id:02}"));
        let attached = theirs.attach(&shelf.tenant, &content, &shelf.rust);
        attached.await.unwrap();
    };
    for (id, off) in before {
        attach(id, off).await;
    }
    let live = async || -> BTreeMap<String, u64> {
        let end = shelf.invariants().await.unwrap();
        let live = end.live().into_iter();
        live.map(|edge| (edge.content_id.clone(), edge.version))
            .collect()
    };
    // Those that are there at the first page and unchanged ever since.
    let mut throughout = live().await;
    let (mut seen, mut cursor, mut begun) = (Vec::new(), None::<String>, false);
    let rest = std::iter::repeat_n(Happens::Page(3), 40);
    for happens in happenings.into_iter().chain(rest) {
        shelf
            .tagging
            .cloud()
            .clock()
            .advance(Duration::from_millis(3));
        match happens {
            Happens::Attach(id, off) => attach(id, off).await,
            Happens::Detach(id) => drop(shelf.detach(&format!("c{id:02}"), "rust").await),
            Happens::Raise(to) => {
                let raised = shelf.tagging.raise_buckets(&shelf.tenant, &shelf.rust, to);
                raised.await.unwrap();
            }
            Happens::Page(limit) => {
                if !begun {
                    throughout = live().await;
                    begun = true;
                }
                let page = shelf.page(limit, cursor.as_deref()).await;
                seen.extend(page.contents);
                cursor = page.next;
                if cursor.is_none() {
                    break;
                }
            }
        }
    }
    if cursor.is_some() {
        return Err("the view does not end".into());
    }
    let at_the_end = live().await;
    throughout.retain(|id, version| at_the_end.get(id) == Some(version));
    if !seen.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(format!("not in order: {seen:?}"));
    }
    for id in throughout.keys() {
        let times = seen.iter().filter(|row| row.content_id == *id).count();
        if times != 1 {
            return Err(format!("{id} was seen {times} times: {seen:?}"));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 48, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn every_edge_that_exists_throughout_is_seen_exactly_once_in_order(
        buckets in 1..5_u32,
        before in proptest::collection::vec((0..24_u8, -30..30_i64), 0..24),
        happenings in happenings(),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outcome = runtime.block_on(paginate(buckets, before, happenings));
        prop_assert!(outcome.is_ok(), "{}", outcome.unwrap_err());
    }
}

// More buckets.

#[tokio::test]
async fn raising_the_number_of_buckets_loses_and_repeats_nothing() {
    let shelf = with_rust(1).await;
    let mut expected = Vec::new();
    for (round, buckets) in [1, 2, 5, 16].into_iter().enumerate() {
        let raised = shelf
            .tagging
            .raise_buckets(&shelf.tenant, &shelf.rust, buckets);
        assert!(matches!(raised.await.unwrap(), Raised::Done(tag) if tag.buckets == buckets));
        for number in 0..8 {
            let id = format!("photo-{round}-{number}");
            shelf.attach(&id, "rust").await;
            shelf.later();
            expected.insert(0, id);
        }
        assert_eq!(shelf.ids().await, expected);
        shelf.invariants().await.unwrap();
    }
    let used: BTreeSet<_> = shelf.rows().await.into_iter().map(|row| row.0).collect();
    assert!(used.len() > 8, "new rows are spread: {used:?}");
    // Each is found where it was written, whatever B is now.
    for id in &expected {
        assert!(matches!(shelf.detach(id, "rust").await, Detached::Now(_)));
    }
    assert!(shelf.ids().await.is_empty());
    assert!(shelf.rows().await.is_empty());
    shelf.invariants().await.unwrap();
}

#[tokio::test]
async fn the_number_of_buckets_never_falls() {
    let shelf = with_rust(4).await;
    let raised = shelf
        .tagging
        .raise_buckets(&shelf.tenant, &shelf.rust, 2)
        .await;
    assert!(matches!(raised.unwrap(), Raised::Done(tag) if tag.buckets == 4));
    let read = shelf.tagging.read_tag(&shelf.tenant, &shelf.rust).await;
    assert_eq!(read.unwrap().buckets, 4);
}

#[tokio::test]
async fn a_remembered_definition_spares_the_read_and_hides_nothing() {
    let mut shelf = with_rust(1).await;
    let fresh = shelf.tagging.clone();
    shelf.tagging = shelf.tagging.remembering_definitions(60_000);
    shelf.attach("first", "rust").await;
    fresh
        .raise_buckets(&shelf.tenant, &shelf.rust, 16)
        .await
        .unwrap();
    let recording = fresh.cloud().tap().record();
    for number in 0..8 {
        let edge = now(shelf.attach(&format!("photo-{number}"), "rust").await);
        assert_eq!(edge.bucket, 0, "as if there were still one");
    }
    let reads = recording.calls().into_iter();
    let reads = reads.filter(|call| call.shape() == "GetItem tags").count();
    assert_eq!(reads, 0);
    assert_eq!(shelf.ids().await.len(), 9, "readers look everywhere");
    shelf
        .tagging
        .cloud()
        .clock()
        .advance(Duration::from_secs(61));
    shelf.attach("last", "rust").await;
    let asked = recording
        .calls()
        .iter()
        .any(|call| call.shape() == "GetItem tags");
    assert!(asked, "not for ever");
    shelf.invariants().await.unwrap();
}

// Repair.

/// Every kind of damage at once.
async fn damaged() -> (Shelf, Mended) {
    let shelf = with_tagged(4, &["a", "b", "c", "d", "e"]).await;
    shelf.create("go", 2).await;
    shelf.attach("a", "go").await;
    shelf.detach("d", "rust").await;
    // A live edge without its row.
    shelf.lose_row("a", "rust").await;
    // A row of an edge that is no more, of a time before, and of no edge at all.
    let (b, d) = (shelf.edge("b", "rust").await, shelf.edge("d", "rust").await);
    shelf.plant_row(&d).await;
    shelf
        .plant_row(&Edge {
            created_at: 5,
            ..b.clone()
        })
        .await;
    let elsewhere = (b.bucket + 1) % 4;
    shelf
        .plant_row(&Edge {
            bucket: elsewhere,
            ..b.clone()
        })
        .await;
    shelf
        .plant_row(&Edge {
            content_id: "ghost".into(),
            bucket: 1,
            ..b.clone()
        })
        .await;
    // A row that says something else than its edge, and counts that are wrong.
    let c = shelf.edge("c", "rust").await;
    shelf
        .plant_row(&Edge {
            version: 9,
            ..c.clone()
        })
        .await;
    shelf.miscount("a", 7).await;
    shelf.miscount("e", 0).await;
    assert!(shelf.invariants().await.is_err());
    let tag = &b.tag_id;
    let expected = Mended {
        contents: 5,
        edges: 6,
        rows: 9,
        rows_written: vec![
            format!(
                "a of {tag} in bucket {}",
                shelf.edge("a", "rust").await.bucket
            ),
            format!("c of {tag} in bucket {}", c.bucket),
        ],
        rows_removed: vec![
            format!("b of {tag} in bucket {elsewhere}"),
            format!("b of {tag} in bucket {}", b.bucket),
            format!("d of {tag} in bucket {}", d.bucket),
            format!("ghost of {tag} in bucket 1"),
        ],
        counts_corrected: vec!["a".into(), "e".into()],
        changed_meanwhile: 0,
    };
    (shelf, expected)
}

fn sorted(mut mended: Mended) -> Mended {
    mended.rows_written.sort();
    mended.rows_removed.sort();
    mended.counts_corrected.sort();
    mended
}

#[tokio::test]
async fn repair_rebuilds_the_index_from_the_edges_and_says_what_it_mended() {
    let (shelf, expected) = damaged().await;
    assert_eq!(sorted(shelf.repair().await), sorted(expected));
    shelf.invariants().await.unwrap();
    assert_eq!(shelf.ids().await, ["e", "c", "b", "a"]);
    let again = shelf.repair().await;
    assert!(again.nothing(), "{again:?}");
    assert_eq!((again.contents, again.edges, again.rows), (5, 6, 5));
}

#[tokio::test]
async fn repair_writes_nothing_where_nothing_is_wrong() {
    let shelf = with_tagged(4, &["a", "b", "c"]).await;
    shelf.detach("b", "rust").await;
    let recording = shelf.tagging.cloud().tap().record();
    assert!(shelf.repair().await.nothing());
    assert!(!recording.calls().iter().any(|call| call.request.is_write()));
}

#[tokio::test]
async fn repair_survives_conflicts_and_lost_answers() {
    let (shelf, expected) = damaged().await;
    let tap = shelf.tagging.cloud().tap();
    let _tokenless = tap.install(Arc::new(Tokenless));
    let conflicts = tap.install(Arc::new(Conflicts::on("TransactWriteItems", 3)));
    let losing = tap.install(lose_one());
    assert_eq!(sorted(shelf.repair().await), sorted(expected));
    drop((conflicts, losing));
    shelf.invariants().await.unwrap();
}

#[tokio::test]
async fn nothing_ever_scans() {
    let (shelf, _) = damaged().await;
    let recording = shelf.tagging.cloud().tap().record();
    shelf.create("zig", 2).await;
    shelf.attach("photo", "zig").await;
    shelf.attach("photo", "zig").await;
    shelf.detach("photo", "zig").await;
    shelf.tags_of("a").await;
    shelf.ids().await;
    shelf.repair().await;
    let raised = shelf.tagging.raise_buckets(&shelf.tenant, &shelf.rust, 8);
    raised.await.unwrap();
    let calls = recording.calls();
    assert!(calls.len() > 30);
    assert!(calls.iter().all(|call| call.request.operation != "Scan"));
}
