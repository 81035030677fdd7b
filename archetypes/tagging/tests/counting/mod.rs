//! What popularity must be, made from the edges alone.
#![allow(dead_code, clippy::unwrap_used)]

use crate::shelf::Shelf;
use cloud::item::{n, s};
use cloud::{Item, Millis};
use std::collections::{BTreeMap, BTreeSet};
use tagging::follow_stream::{Followed, Follower};
use tagging::items::{Edge, tag_id_key};
use tagging::windows::Window;

pub const HOUR: Millis = 3_600_000;

/// An edge as a record of the stream would show it: live while its version is odd, attached an hour
/// later each time.
pub fn change(shelf: &Shelf, content: &str, tag_id: &str, version: u64) -> Edge {
    let created_at = cloud::TEST_EPOCH + (version as Millis - 1) / 2 * HOUR;
    Edge {
        tenant_id: shelf.tenant.as_str().into(),
        content_id: content.into(),
        tag_id: tag_id.into(),
        tag_name_norm: "rust".into(),
        live: version % 2 == 1,
        version,
        created_at,
        bucket: 0,
        changed_at: created_at,
        change_id: format!("{content}-{version}"),
    }
}

/// How many live edges each window has, of those that are kept.
pub fn expected<'a>(
    now: Millis,
    edges: impl IntoIterator<Item = &'a Edge>,
) -> BTreeMap<Window, i64> {
    let mut windows = BTreeMap::new();
    for edge in edges.into_iter().filter(|edge| edge.live) {
        for window in Window::of(edge.created_at) {
            if window.is_kept(now) {
                *windows.entry(window).or_default() += 1;
            }
        }
    }
    windows
}

impl Shelf {
    /// What a follower that has just been started does.
    pub async fn follow(&self) -> Followed {
        Follower::new(self.tagging.clone()).follow().await.unwrap()
    }

    /// The id of a tag.
    pub async fn tag_id(&self, tag: &str) -> String {
        let tag = self
            .beside()
            .read_tag(&self.tenant, &crate::shelf::name(tag))
            .await;
        tag.unwrap().tag_id
    }

    /// Counts equal live edges, for every tag that edges name, in every window, in the table and in
    /// Redis.
    pub async fn counts_equal_edges(&self) -> Result<(), String> {
        let end = self.invariants().await?;
        let edges: Vec<&Edge> = end.edges.values().collect();
        let tags: BTreeSet<&str> = edges.iter().map(|edge| &*edge.tag_id).collect();
        let (tagging, now) = (self.beside(), self.tagging.cloud().now());
        let mut ranked: BTreeMap<Window, BTreeMap<String, i64>> = BTreeMap::new();
        for tag_id in tags {
            let of_tag = edges.iter().copied().filter(|edge| edge.tag_id == tag_id);
            let expected = expected(now, of_tag);
            let counted = tagging.popularity(self.tenant.as_str(), tag_id).await;
            let counted = counted.map_err(|error| error.to_string())?;
            if counted != expected {
                return Err(format!("{tag_id} is counted {counted:?}, has {expected:?}"));
            }
            for (window, live) in expected {
                ranked
                    .entry(window)
                    .or_default()
                    .insert(tag_id.into(), live);
            }
        }
        // In one call: there are many windows.
        let windows = Window::all_kept(now);
        let mut pipeline = redis::pipe();
        for window in &windows {
            let [counts, ..] = self.tagging.popularity_keys(self.tenant.as_str(), *window);
            pipeline
                .cmd("ZRANGEBYSCORE")
                .arg(counts)
                .arg("1")
                .arg("+inf")
                .arg("WITHSCORES");
        }
        let mut redis = tagging.cloud().redis().await.unwrap();
        let found: Vec<Vec<(String, i64)>> = pipeline.query_async(&mut redis).await.unwrap();
        for (window, found) in windows.into_iter().zip(found) {
            let expected = ranked.remove(&window).unwrap_or_default();
            let found: BTreeMap<_, _> = found.into_iter().collect();
            if found != expected {
                return Err(format!("Redis has {found:?} in {window}, not {expected:?}"));
            }
        }
        Ok(())
    }

    /// What Redis has of a window.
    pub async fn in_redis(&self, window: Window) -> BTreeMap<String, i64> {
        let [counts, ..] = self.tagging.popularity_keys(self.tenant.as_str(), window);
        let mut redis = self.beside().cloud().redis().await.unwrap();
        let found: Vec<(String, i64)> = redis::cmd("ZRANGEBYSCORE")
            .arg(counts)
            .arg("1")
            .arg("+inf")
            .arg("WITHSCORES")
            .query_async(&mut redis)
            .await
            .unwrap();
        found.into_iter().collect()
    }

    /// Redis forgets everything about this tenant.
    pub async fn redis_forgets(&self) {
        let mut redis = self.beside().cloud().redis().await.unwrap();
        for window in Window::all_kept(self.tagging.cloud().now()) {
            let keys = self.tagging.popularity_keys(self.tenant.as_str(), window);
            let _: i64 = redis::cmd("DEL")
                .arg(&keys[..])
                .query_async(&mut redis)
                .await
                .unwrap();
        }
    }

    /// Changes a row of the counts, behind everybody's back.
    pub async fn damage_count(&self, tag_id: &str, window: Window, live: i64, revision: u64) {
        let row = Item::from([
            (
                "tag_id_key".into(),
                s(tag_id_key(self.tenant.as_str(), tag_id)),
            ),
            ("window".into(), s(window.to_string())),
            ("live_edges".into(), n(live)),
            ("revision".into(), n(revision)),
        ]);
        self.put("tag_popularity", row).await;
    }

    /// Puts an item into a table, behind everybody's back.
    pub async fn put(&self, table: &str, item: Item) {
        let cloud = self.tagging.cloud().beside_tap();
        let put = cloud
            .dynamodb()
            .put_item()
            .table_name(cloud.names().table(table));
        put.set_item(Some(item)).send().await.unwrap();
    }

    /// Deletes an item from a table, behind everybody's back.
    pub async fn remove(&self, table: &str, key: Item) {
        let cloud = self.tagging.cloud().beside_tap();
        let delete = cloud
            .dynamodb()
            .delete_item()
            .table_name(cloud.names().table(table));
        delete.set_key(Some(key)).send().await.unwrap();
    }
}

/// A plan: just before the first call of this shape leaves, something else happens, whole.
pub struct Meanwhile {
    shape: &'static str,
    left: std::sync::atomic::AtomicUsize,
    happens: std::sync::Mutex<Option<futures::future::BoxFuture<'static, ()>>>,
}

impl Meanwhile {
    pub fn before(
        shape: &'static str,
        happens: impl Future<Output = ()> + Send + 'static,
    ) -> std::sync::Arc<Self> {
        Self::before_one(shape, 1, happens)
    }

    /// Before the k-th call, whatever it is.
    pub fn before_call(
        k: usize,
        happens: impl Future<Output = ()> + Send + 'static,
    ) -> std::sync::Arc<Self> {
        Self::before_one("", k, happens)
    }

    /// Before the k-th call of this shape.
    pub fn before_one(
        shape: &'static str,
        k: usize,
        happens: impl Future<Output = ()> + Send + 'static,
    ) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self {
            shape,
            left: k.into(),
            happens: std::sync::Mutex::new(Some(Box::pin(happens) as _)),
        })
    }

    pub fn happened(&self) -> bool {
        self.happens.lock().unwrap().is_none()
    }
}

impl cloud::tap::Plan for Meanwhile {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        Box::pin(async move {
            let one = std::sync::atomic::Ordering::SeqCst;
            if request.shape().starts_with(self.shape) && self.left.fetch_sub(1, one) == 1 {
                let happens = self.happens.lock().unwrap().take();
                if let Some(happens) = happens {
                    happens.await;
                }
            }
            cloud::tap::Verdict::Pass
        })
    }
}
