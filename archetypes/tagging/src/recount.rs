//! Recount: make popularity from the edges again, while everybody goes on writing and counting.
//!
//! 1. From the contents over their edges: has the newest version of every edge been counted? What the
//!    stream lost is counted here, by the same rule and the same transaction as an event.
//! 2. From the tags over their rows in the index: how many live edges are there, in which windows? If
//!    the counts say otherwise, they are set, provided that nothing of this tag was counted in between.
//! 3. Redis is filled from the table again.
//!
//! The second step needs a moment in which a tag is not counted, as long as its rows take to read. For
//! a tag that never rests it gives up and says so: a count that is right costs more than one that is
//! nearly right, and only the operator knows which is wanted. [`repair`](crate::repair) comes first, if
//! the index is in doubt: an edge without a row is not found here.

use crate::items::{Edge, bucket_key, edge_key};
use crate::popularity::{CountKey, TagPopularity, applied_key};
use crate::tables::CONTENT_SHARDS;
use crate::windows::Window;
use crate::{TagName, Tagging, TaggingError, TenantId};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{all_items, from_item, n, pause, s};
use cloud::{CloudError, Transaction};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What was looked at and mended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Recounted {
    /// Edges looked at, live or not.
    pub edges: usize,
    /// Edges whose newest version had not been counted, or wrongly, and is now.
    pub edges_counted: usize,
    /// Counts that were wrong: tag, window, what it said, what is right.
    pub counts_corrected: Vec<(String, String, i64, i64)>,
    /// Windows that were written to Redis again.
    pub windows_rebuilt: usize,
    /// Tags that did not rest long enough. Recount again.
    pub never_at_rest: Vec<String>,
}

/// Nothing of this tag was counted since its rows were read: every count goes through this row.
const AT_REST: &str = "revision = :seen";
const NEVER_COUNTED: &str = "attribute_not_exists(revision)";

const SET_COUNT: &str = "SET live_edges = :live ADD revision :one";
const SET_COUNT_OF_WINDOW: &str =
    "SET live_edges = :live, expires_at = :expires_at ADD revision :one";

/// How often a tag is counted before it is said to be never at rest.
const ATTEMPTS: u32 = 10;

/// How many items one batch may read.
const BATCH: usize = 100;

impl Tagging {
    /// Counts everything of a tenant again, and mends what is wrong.
    pub async fn recount(&self, tenant: &TenantId) -> Result<Recounted, TaggingError> {
        let mut done = Recounted::default();
        for shard in 0..CONTENT_SHARDS {
            for content_id in self.contents_in(tenant, shard).await? {
                let edges = self.edges_of(tenant.as_str(), &content_id).await?;
                done.edges += edges.len();
                done.edges_counted += self.count_again(&edges).await?;
            }
        }
        let mut windows = BTreeSet::new();
        for name in self.all_names(tenant).await? {
            windows.extend(self.correct(tenant, &name.tag_name_norm, &mut done).await?);
        }
        windows.extend(self.windows_in_redis(tenant).await?);
        for window in windows {
            self.rebuild(tenant, window, true).await?;
            done.windows_rebuilt += 1;
        }
        Ok(done)
    }

    /// Counts the live edges of one tag again and sets its counts right, in the table and in Redis.
    pub async fn recount_tag(
        &self,
        tenant: &TenantId,
        name: &TagName,
    ) -> Result<Recounted, TaggingError> {
        let mut done = Recounted::default();
        let tag = self.resolve(tenant, name).await?;
        let windows = self.correct(tenant, &tag.tag_name_norm, &mut done).await?;
        let rows = windows.into_iter().map(|window| CountKey {
            tenant_id: tenant.as_str().to_owned(),
            window,
            tag_id: tag.tag_id.clone(),
        });
        self.publish(rows.collect()).await?;
        Ok(done)
    }

    /// Makes what was counted of these edges what they say. How many were not?
    async fn count_again(&self, edges: &[Edge]) -> Result<usize, TaggingError> {
        let all: Vec<&Edge> = edges.iter().collect();
        let applied = self.applied_states(&all).await?;
        let mut behind = Vec::new();
        let mut counted = 0;
        for edge in edges {
            let Some(was) = applied.get(&applied_key(edge)) else {
                behind.push(edge.clone());
                continue;
            };
            if was.version < edge.version {
                behind.push(edge.clone());
                continue;
            }
            if was.version == edge.version
                && (was.live, was.created_at) == (edge.live, edge.created_at)
            {
                continue;
            }
            // More was counted than the edge says. It may have changed since it was read; if it has
            // not, now that what was counted has been read, nobody can have counted that.
            let Some(now) = self.edge_of(edge).await? else {
                continue;
            };
            if was.version < now.version {
                behind.push(now);
            } else if was.version > now.version
                || (was.live, was.created_at) != (now.live, now.created_at)
            {
                counted += usize::from(self.count_as(&[(&now, Some(was))]).await?);
            }
        }
        Ok(counted + self.apply(&behind).await?.counted)
    }

    async fn edge_of(&self, edge: &Edge) -> Result<Option<Edge>, CloudError> {
        let key = edge_key(&edge.tenant_id, &edge.content_id, &edge.tag_id);
        let read = self
            .cloud
            .read_batch(vec![("content_tag_unique", vec![key])], true);
        let mut found = read.await?;
        let item = found.remove("content_tag_unique").unwrap_or_default().pop();
        item.map(|item| from_item(&item)).transpose()
    }

    /// Sets the counts of a tag right. Gives the windows it is counted in.
    async fn correct(
        &self,
        tenant: &TenantId,
        tag_name_norm: &str,
        done: &mut Recounted,
    ) -> Result<Vec<Window>, TaggingError> {
        let Some(definition) = self.definition(tenant, tag_name_norm).await? else {
            return Ok(Vec::new());
        };
        let tag_id = &definition.tag_id;
        for attempt in 0..ATTEMPTS {
            // The rows first: if the revision is the same afterwards, everything was of one moment.
            let rows = self.popularity_rows(tenant.as_str(), tag_id).await?;
            let mut right: BTreeMap<Window, i64> = rows.keys().map(|window| (*window, 0)).collect();
            let mut counted = 0;
            for bucket in 0..definition.buckets {
                let edges = self.live_edges_in(tenant, tag_id, bucket).await?;
                counted += self.count_again(&edges).await?;
                for edge in &edges {
                    for window in Window::of(edge.created_at) {
                        *right.entry(window).or_default() += 1;
                    }
                }
            }
            if counted > 0 {
                done.edges_counted += counted;
                continue;
            }
            let now = self.now();
            right.retain(|window, _| window.is_kept(now));
            let said = |window: &Window| rows.get(window).map_or(0, |row| row.live_edges);
            let wrong: BTreeMap<Window, i64> = right
                .iter()
                .filter(|(window, live)| said(window) != **live)
                .map(|(window, live)| (*window, *live))
                .collect();
            if wrong.is_empty() {
                return Ok(right.into_keys().collect());
            }
            let all = right.get(&Window::All).copied().unwrap_or_default();
            match self
                .set_counts(tenant, tag_id, all, &wrong, rows.get(&Window::All))
                .await
            {
                Ok(true) => {
                    for (window, live) in wrong {
                        let row = (tag_id.clone(), window.to_string(), said(&window), live);
                        done.counts_corrected.push(row);
                    }
                    return Ok(right.into_keys().collect());
                }
                Ok(false) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        done.never_at_rest.push(tag_id.clone());
        Ok(Vec::new())
    }

    /// The live edges whose rows are in this bucket. The edges decide; the rows say where to look.
    async fn live_edges_in(
        &self,
        tenant: &TenantId,
        tag_id: &str,
        bucket: u32,
    ) -> Result<Vec<Edge>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("content_tag_by_tag"))
            .key_condition_expression("bucket_key = :bucket")
            .expression_attribute_values(":bucket", s(bucket_key(tenant.as_str(), tag_id, bucket)))
            .projection_expression("content_id")
            .consistent_read(true);
        let rows = all_items(query).await?;
        let contents: BTreeSet<String> = rows
            .iter()
            .filter_map(|row| row.get("content_id")?.as_s().ok().cloned())
            .collect();
        let keys: Vec<_> = contents
            .iter()
            .map(|content| edge_key(tenant.as_str(), content, tag_id))
            .collect();
        let mut edges: Vec<Edge> = Vec::new();
        for keys in keys.chunks(BATCH) {
            let read = self
                .cloud
                .read_batch(vec![("content_tag_unique", keys.to_vec())], true);
            for item in read.await?.remove("content_tag_unique").unwrap_or_default() {
                edges.push(from_item(&item)?);
            }
        }
        // A stray row of another bucket would count an edge twice.
        edges.retain(|edge| edge.live && edge.bucket == bucket);
        Ok(edges)
    }

    /// Sets these counts in one transaction, if the tag was at rest since.
    async fn set_counts(
        &self,
        tenant: &TenantId,
        tag_id: &str,
        all: i64,
        wrong: &BTreeMap<Window, i64>,
        seen: Option<&TagPopularity>,
    ) -> Result<bool, CloudError> {
        // All time goes first and bears the guard, whether its number is wrong or not.
        let windows = wrong.iter().filter(|(window, _)| **window != Window::All);
        let counts = std::iter::once((&Window::All, &all)).chain(windows);
        let mut items = Vec::new();
        for (window, live) in counts {
            let row = CountKey {
                tenant_id: tenant.as_str().to_owned(),
                window: *window,
                tag_id: tag_id.to_owned(),
            };
            let update = Update::builder()
                .table_name(self.table("tag_popularity"))
                .set_key(Some(row.key()))
                .expression_attribute_values(":live", n(live))
                .expression_attribute_values(":one", n(1));
            let update = match (window.expires_at(), seen) {
                (Some(expires_at), _) => update
                    .update_expression(SET_COUNT_OF_WINDOW)
                    .expression_attribute_values(":expires_at", n(expires_at)),
                (None, Some(seen)) => update
                    .update_expression(SET_COUNT)
                    .condition_expression(AT_REST)
                    .expression_attribute_values(":seen", n(seen.revision)),
                (None, None) => update
                    .update_expression(SET_COUNT)
                    .condition_expression(NEVER_COUNTED),
            };
            let update = update.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
        }
        let names = vec!["count"; items.len()];
        let written = self.cloud.transact(&names, items).await?;
        Ok(matches!(written, Transaction::Committed(_)))
    }

    /// The windows that Redis has something of.
    async fn windows_in_redis(&self, tenant: &TenantId) -> Result<Vec<Window>, CloudError> {
        let windows = Window::all_kept(self.now());
        let mut pipeline = redis::pipe();
        for window in &windows {
            let [counts, revisions, _] = self.popularity_keys(tenant.as_str(), *window);
            pipeline
                .cmd("EXISTS")
                .arg(counts)
                .cmd("EXISTS")
                .arg(revisions);
        }
        let mut redis = self.cloud.redis().await?;
        let there: Vec<bool> = pipeline.query_async(&mut redis).await?;
        let there = there.chunks(2).map(|keys| keys.contains(&true));
        let found = windows.into_iter().zip(there).filter(|(_, there)| *there);
        Ok(found.map(|(window, _)| window).collect())
    }
}
