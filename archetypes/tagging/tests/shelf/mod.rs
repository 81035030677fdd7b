//! A shelf of tagged contents to try things on, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

use aws_sdk_dynamodb::types::AttributeValue;
use aws_sdk_dynamodbstreams::types::ShardIteratorType;
use chaos::{Interleave, World};
use cloud::item::{all_items, from_item, s};
use cloud::{Cloud, Item};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tagging::domain::{Position, bucket_of};
use tagging::items::{Edge, bucket_key, content_key};
use tagging::tables::{CONTENT_SHARDS, NAME_SHARDS};
use tagging::{
    Attached, ContentId, Created, Detached, Mended, Page, TagName, Tagging, TaggingError, TenantId,
    tables,
};

/// What cursors are signed with here.
pub const CURSOR_KEY: &[u8] = b"a key for tests";

/// A service with a tenant. Most tests use one tag, "rust".
pub struct Shelf {
    pub tagging: Tagging,
    pub tenant: TenantId,
    pub rust: TagName,
}

impl World for Shelf {
    fn cloud(&self) -> &Cloud {
        self.tagging.cloud()
    }
}

pub fn name(text: &str) -> TagName {
    TagName::new(text).unwrap()
}

pub fn content(id: &str) -> ContentId {
    ContentId::new(id).unwrap()
}

/// A service without any tag, for a tenant of its own.
pub async fn empty() -> Shelf {
    let cloud = cloud::connect_for_tests().await.unwrap();
    on(cloud).await
}

/// The same on tables that no other test uses, on any backend: for whoever follows the stream.
pub async fn empty_alone() -> Shelf {
    on(cloud::connect_alone_for_tests().await.unwrap()).await
}

async fn on(cloud: Cloud) -> Shelf {
    cloud.create_tables(tables::TABLES).await.unwrap();
    let tenant = TenantId::new(&cloud.ids().next("tenant")).unwrap();
    Shelf {
        tagging: Tagging::new(cloud, CURSOR_KEY),
        tenant,
        rust: name("rust"),
    }
}

/// A service with the tag "rust" in so many buckets, and nothing tagged.
pub async fn with_rust(buckets: u32) -> Shelf {
    let shelf = empty().await;
    shelf.create("rust", buckets).await;
    shelf
}

/// The same, with these contents tagged, one millisecond after the other.
pub async fn with_tagged(buckets: u32, contents: &[&str]) -> Shelf {
    let shelf = with_rust(buckets).await;
    for id in contents {
        shelf.attach(id, "rust").await;
        shelf.later();
    }
    shelf
}

/// What the tables say at the end.
#[derive(Debug, Default)]
pub struct End {
    /// All edges, by content and tag.
    pub edges: BTreeMap<(String, String), Edge>,
}

impl End {
    /// The live ones.
    pub fn live(&self) -> Vec<&Edge> {
        self.edges.values().filter(|edge| edge.live).collect()
    }
}

impl Shelf {
    /// Another tenant of the same service.
    pub fn other_tenant(&self) -> Self {
        let tenant = self.tagging.cloud().ids().next("tenant");
        Self {
            tagging: self.tagging.clone(),
            tenant: TenantId::new(&tenant).unwrap(),
            rust: self.rust.clone(),
        }
    }

    /// Turns the clock by a millisecond.
    pub fn later(&self) {
        let clock = self.tagging.cloud().clock();
        clock.advance(Duration::from_millis(1));
    }

    pub async fn create(&self, tag: &str, buckets: u32) -> Created {
        let tag = name(tag);
        let created = self.tagging.create_tag(&self.tenant, &tag, buckets);
        created.await.unwrap()
    }

    pub async fn attach(&self, id: &str, tag: &str) -> Attached {
        self.try_attach(id, tag).await.unwrap()
    }

    pub async fn try_attach(&self, id: &str, tag: &str) -> Result<Attached, TaggingError> {
        let (content, tag) = (content(id), name(tag));
        self.tagging.attach(&self.tenant, &content, &tag).await
    }

    pub async fn detach(&self, id: &str, tag: &str) -> Detached {
        self.try_detach(id, tag).await.unwrap()
    }

    pub async fn try_detach(&self, id: &str, tag: &str) -> Result<Detached, TaggingError> {
        let (content, tag) = (content(id), name(tag));
        self.tagging.detach(&self.tenant, &content, &tag).await
    }

    pub async fn page(&self, limit: usize, cursor: Option<&str>) -> Page {
        let page = self
            .tagging
            .view(&self.tenant, &self.rust, limit, cursor)
            .await;
        page.unwrap()
    }

    /// All pages of a view of "rust".
    pub async fn view_all(&self, limit: usize) -> Vec<Position> {
        let (mut all, mut cursor) = (Vec::new(), None);
        loop {
            let page = self.page(limit, cursor.as_deref()).await;
            all.extend(page.contents);
            cursor = page.next;
            if cursor.is_none() {
                return all;
            }
        }
    }

    /// The ids of all contents with the tag "rust", in order.
    pub async fn ids(&self) -> Vec<String> {
        let all = self.view_all(100).await.into_iter();
        all.map(|position| position.content_id).collect()
    }

    /// The names of a content's tags.
    pub async fn tags_of(&self, id: &str) -> Vec<String> {
        let edges = self.tagging.tags_of(&self.tenant, &content(id)).await;
        let names = edges.unwrap().into_iter();
        names.map(|edge| edge.tag_name_norm).collect()
    }

    pub async fn repair(&self) -> Mended {
        self.tagging.repair(&self.tenant).await.unwrap()
    }

    /// The service beside the tap: for looking without being seen, in any weather.
    pub fn beside(&self) -> Tagging {
        self.tagging.on(self.tagging.cloud().beside_tap())
    }

    async fn query(&self, table: &str, index: Option<&str>, key: &str, value: String) -> Vec<Item> {
        let cloud = self.tagging.cloud().beside_tap();
        let query = cloud
            .dynamodb()
            .query()
            .table_name(cloud.names().table(table))
            .set_index_name(index.map(str::to_owned))
            .key_condition_expression(format!("{key} = :value"))
            .expression_attribute_values(":value", s(value))
            .consistent_read(index.is_none());
        all_items(query).await.unwrap()
    }

    /// The ids of all contents that ever had a tag.
    pub async fn content_ids(&self) -> Vec<String> {
        let shards = (0..CONTENT_SHARDS).map(|shard| {
            let shard = format!("{}#{shard}", self.tenant.as_str());
            self.query("contents", Some("by_shard"), "content_shard", shard)
        });
        let items = futures::future::join_all(shards).await.concat();
        items.iter().map(|item| text(item, "content_id")).collect()
    }

    /// Everything that must hold at quiescence, however the story went: the index has exactly one row
    /// for each live edge, where the edge says, and each content's count is right.
    pub async fn invariants(&self) -> Result<End, String> {
        let tenant = self.tenant.as_str();
        let mut end = End::default();
        let mut wanted = BTreeSet::new();
        for id in self.content_ids().await {
            let key = content_key(tenant, &id);
            let edges = self
                .query("content_tag_unique", None, "content_key", key)
                .await;
            let mut live = 0;
            for item in edges {
                let edge: Edge = from_item(&item).unwrap();
                if edge.live != (edge.version % 2 == 1) {
                    return Err(format!("odd while live, even while not: {edge:?}"));
                }
                if edge.live {
                    live += 1;
                    let bucket = bucket_key(tenant, &edge.tag_id, edge.bucket);
                    wanted.insert((bucket, edge.position().key(), edge.version));
                }
                end.edges
                    .insert((edge.content_id.clone(), edge.tag_name_norm.clone()), edge);
            }
            let counted = self
                .beside()
                .content_state(&self.tenant, &id)
                .await
                .unwrap();
            let counted = counted.map_or(0, |state| state.tag_count);
            if counted != live {
                return Err(format!("{id} has {live} tags and counts {counted}"));
            }
        }
        let found = self.rows().await;
        if let Some(row) = found.difference(&wanted).next() {
            return Err(format!("an orphan in the index: {row:?}"));
        }
        if let Some(row) = wanted.difference(&found).next() {
            return Err(format!("missing from the index: {row:?}"));
        }
        Ok(end)
    }

    /// All rows of the index: bucket, position, version. Buckets that no reader would look at, too.
    pub async fn rows(&self) -> BTreeSet<(String, String, u64)> {
        let tenant = self.tenant.as_str();
        let mut rows = BTreeSet::new();
        for shard in 0..NAME_SHARDS {
            let shard = format!("{tenant}#{shard}");
            for tag in self
                .query("tags", Some("by_name"), "name_shard", shard)
                .await
            {
                let tag_id = text(&tag, "tag_id");
                let buckets: u32 = tag["buckets"].as_n().unwrap().parse().unwrap();
                for bucket in 0..buckets + 2 {
                    let key = bucket_key(tenant, &tag_id, bucket);
                    let found = self
                        .query("content_tag_by_tag", None, "bucket_key", key)
                        .await;
                    for row in found {
                        let version = row["version"].as_n().unwrap().parse().unwrap();
                        rows.insert((text(&row, "bucket_key"), text(&row, "position"), version));
                    }
                }
            }
        }
        rows
    }

    /// The events of this tenant, in the order of the stream: content, tag, version.
    pub async fn events(&self) -> Vec<(String, String, u64)> {
        let cloud = self.tagging.cloud().beside_tap();
        let table = cloud.names().table("content_tag_unique");
        let streams = cloud.streams();
        let listed = streams.list_streams().table_name(table).send().await;
        let mut events = Vec::new();
        for stream in listed.unwrap().streams() {
            let arn = stream.stream_arn().unwrap();
            let described = streams.describe_stream().stream_arn(arn).send().await;
            for shard in described.unwrap().stream_description.unwrap().shards() {
                let iterator = streams
                    .get_shard_iterator()
                    .stream_arn(arn)
                    .shard_id(shard.shard_id().unwrap())
                    .shard_iterator_type(ShardIteratorType::TrimHorizon)
                    .send()
                    .await;
                let mut iterator = iterator.unwrap().shard_iterator;
                while let Some(at) = iterator {
                    let page = streams.get_records().shard_iterator(at).send().await;
                    let page = page.unwrap();
                    for record in page.records() {
                        let image = record.dynamodb.as_ref().unwrap().new_image.as_ref();
                        let image = image.expect("edges are never deleted");
                        let text = |name: &str| image[name].as_s().unwrap().clone();
                        if text("tenant_id") == self.tenant.as_str() {
                            let version = image["version"].as_n().unwrap().parse().unwrap();
                            events.push((text("content_id"), text("tag_name_norm"), version));
                        }
                    }
                    // A shard that is still open never ends; an empty page says: that is all so far.
                    iterator = page
                        .next_shard_iterator
                        .filter(|_| !page.records.unwrap_or_default().is_empty());
                }
            }
        }
        events
    }

    /// Damages the index: takes the row of a live edge away.
    pub async fn lose_row(&self, id: &str, tag: &str) {
        let edge = self.edge(id, tag).await;
        let cloud = self.tagging.cloud().beside_tap();
        let deleted = cloud
            .dynamodb()
            .delete_item()
            .table_name(cloud.names().table("content_tag_by_tag"))
            .set_key(Some(edge.row_key()))
            .send();
        deleted.await.unwrap();
    }

    /// Damages the index: a row as an edge would have it that was attached at another time.
    pub async fn plant_row(&self, edge: &Edge) {
        let cloud = self.tagging.cloud().beside_tap();
        let mut item = cloud::item::to_item(&edge.row()).unwrap();
        item.extend(edge.row_key());
        let put = cloud
            .dynamodb()
            .put_item()
            .table_name(cloud.names().table("content_tag_by_tag"))
            .set_item(Some(item))
            .send();
        put.await.unwrap();
    }

    /// Damages the count of a content's tags.
    pub async fn miscount(&self, id: &str, count: i64) {
        let cloud = self.tagging.cloud().beside_tap();
        let update = cloud
            .dynamodb()
            .update_item()
            .table_name(cloud.names().table("contents"))
            .key("content_key", s(content_key(self.tenant.as_str(), id)))
            .update_expression("SET tag_count = :count")
            .expression_attribute_values(":count", AttributeValue::N(count.to_string()))
            .send();
        update.await.unwrap();
    }

    /// The id of a content that is in bucket 0 of one and in bucket 1 of two.
    pub async fn moves(&self) -> String {
        let rust = self
            .beside()
            .read_tag(&self.tenant, &self.rust)
            .await
            .unwrap();
        let mut ids = (0..).map(|number| format!("photo-{number}"));
        ids.find(|id| bucket_of(&rust.tag_id, id, 2) == 1).unwrap()
    }

    /// An edge that must be there, live or not.
    pub async fn edge(&self, id: &str, tag: &str) -> Edge {
        let tagging = self.beside();
        let definition = tagging.read_tag(&self.tenant, &name(tag)).await.unwrap();
        let content = content(id);
        let edge = tagging.edge(&self.tenant, &content, &definition.tag_id);
        edge.await.unwrap().unwrap()
    }
}

pub fn text(item: &Item, attribute: &str) -> String {
    item[attribute].as_s().unwrap().clone()
}

/// What an actor was told, whatever it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Attach(Attached),
    Detach(Detached),
    Repair(Mended),
    Raise,
    Saw(Vec<String>),
}

impl Told {
    fn word(&self) -> String {
        match self {
            Self::Attach(Attached::Now(_)) => "attached".into(),
            Self::Attach(Attached::Before(_)) => "was there".into(),
            Self::Attach(Attached::Full { .. }) => "full".into(),
            Self::Detach(Detached::Now(_)) => "detached".into(),
            Self::Detach(Detached::NotThere) => "was not there".into(),
            Self::Repair(mended) if mended.nothing() => "mended nothing".into(),
            Self::Repair(_) => "mended".into(),
            Self::Raise => "raised".into(),
            Self::Saw(ids) => format!("saw {}", ids.join(" ")),
        }
    }
}

/// The label of an end: `alice attached, bob was there`.
pub fn label(told: &[(&'static str, Told)]) -> String {
    let words: Vec<_> = told
        .iter()
        .map(|(who, told)| format!("{who} {}", told.word()))
        .collect();
    words.join(", ")
}

/// After every order the invariants must hold, and the events must be those of the edges: as many as
/// each edge has versions, each once.
pub fn checked(actors: Interleave<Shelf, Told>) -> Interleave<Shelf, Told> {
    actors.check(|shelf, told| async move {
        let end = shelf.invariants().await?;
        let mut published = shelf.events().await;
        published.sort();
        let mut expected = Vec::new();
        for ((content, tag), edge) in &end.edges {
            expected.extend((1..=edge.version).map(|v| (content.clone(), tag.clone(), v)));
        }
        if published != expected {
            return Err(format!("published {published:?}, changed {expected:?}"));
        }
        // Whoever was told "by this call" was, and nobody else by the same version.
        let mut changes = BTreeSet::new();
        for (who, told) in &told {
            let edge = match told {
                Told::Attach(Attached::Now(edge)) | Told::Detach(Detached::Now(edge)) => edge,
                _ => continue,
            };
            if !changes.insert((&edge.content_id, &edge.tag_id, edge.version)) {
                return Err(format!("{who} was told of a change that another made"));
            }
        }
        Ok(label(&told))
    })
}

/// Adds one who attaches "rust".
pub fn attacher(
    actors: Interleave<Shelf, Told>,
    who: &'static str,
    id: &'static str,
) -> Interleave<Shelf, Told> {
    actors.actor(who, move |shelf| async move {
        Told::Attach(shelf.attach(id, "rust").await)
    })
}

/// Adds one who detaches "rust".
pub fn detacher(
    actors: Interleave<Shelf, Told>,
    who: &'static str,
    id: &'static str,
) -> Interleave<Shelf, Told> {
    actors.actor(who, move |shelf| async move {
        Told::Detach(shelf.detach(id, "rust").await)
    })
}

/// Adds one who looks at all pages of "rust".
pub fn reader(
    actors: Interleave<Shelf, Told>,
    who: &'static str,
    limit: usize,
) -> Interleave<Shelf, Told> {
    actors.actor(who, move |shelf| async move {
        let seen = shelf.view_all(limit).await.into_iter();
        Told::Saw(seen.map(|position| position.content_id).collect())
    })
}

/// Adds one who repairs a content's half of the index: the rows that its edges should have.
pub fn content_repairer(
    actors: Interleave<Shelf, Told>,
    id: &'static str,
) -> Interleave<Shelf, Told> {
    actors.actor("repair", move |shelf| async move {
        let mut mended = Mended::default();
        let repaired = shelf.tagging.repair_content(&shelf.tenant, id, &mut mended);
        repaired.await.unwrap();
        Told::Repair(mended)
    })
}

/// Adds one who repairs the other half: the rows of "rust" that no edge has.
pub fn tag_repairer(actors: Interleave<Shelf, Told>) -> Interleave<Shelf, Told> {
    actors.actor("repair", |shelf| async move {
        let mut mended = Mended::default();
        let repaired = shelf.tagging.repair_tag(&shelf.tenant, "rust", &mut mended);
        repaired.await.unwrap();
        Told::Repair(mended)
    })
}
