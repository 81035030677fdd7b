//! Update popularity counts: from changes of edges that arrive twice, late and in any order, to how
//! many live edges a tag has.
//!
//! ```text
//! edges ──stream──▶ apply ──one transaction──▶ popularity_applied + tag_popularity ──▶ Redis
//! ```
//!
//! A count that is changed by events is wrong after the first event that comes twice. So what was
//! counted of each edge is kept, and changes in the transaction that changes the counts: an event
//! counts only if it is *newer* than what was counted, and it counts as the difference between the
//! two. Whatever the order, what remains is the newest version of every edge.
//!
//! Redis holds a copy for ranking, of absolute counts, each with the revision of its row: an older
//! one never replaces a newer one, and publishing again changes nothing.

use crate::items::{Edge, content_key, tag_id_key};
use crate::windows::Window;
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{all_items, from_item, n, pause, s, to_item};
use cloud::{CloudError, Item, Millis, Transaction};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What was counted of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AppliedState {
    /// Which content, with its tenant.
    pub content_key: String,
    /// Which tag.
    pub tag_id: String,
    /// The newest version that was counted.
    pub version: u64,
    /// What it said.
    pub live: bool,
    /// In which windows it is counted, if it is live.
    pub created_at: Millis,
}

/// TagPopularityView: how many live edges of a tag were attached in a window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TagPopularity {
    /// Which tag, with its tenant.
    pub tag_id_key: String,
    /// Which window.
    pub window: String,
    /// How many.
    pub live_edges: i64,
    /// Counts the changes of this row: of two copies, the one with the higher is newer.
    pub revision: u64,
    /// When DynamoDB may delete it, in epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

/// A row of TagPopularityView, by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// Whose.
    pub tenant_id: String,
    /// In which window.
    pub window: Window,
    /// Which tag.
    pub tag_id: String,
}

/// What became of a handful of changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AppliedChanges {
    /// How many were newer than what had been counted.
    pub counted: usize,
    /// How many had been counted before, or were overtaken by a newer one.
    pub known: usize,
}

/// Nothing of this edge was counted yet.
const FIRST_GUARD: &str = "attribute_not_exists(version)";

/// What was counted of this edge is still what the difference was made with.
const NEXT_GUARD: &str = "version = :seen AND live = :was_live AND created_at = :was_created_at";

/// The difference, never the sum: several consumers add to one row.
const COUNT_UPDATE: &str = "ADD live_edges :difference, revision :one";
const COUNT_UPDATE_OF_WINDOW: &str =
    "SET expires_at = :expires_at ADD live_edges :difference, revision :one";

/// How many edges one transaction counts. Each may move from two windows to two others and touches
/// all time and itself: six items at most, and a transaction holds a hundred. Edges of one tag share
/// its rows, so a viral tag's are written once for all of them.
const EDGES_AT_ONCE: usize = 16;

/// How often a transaction is tried that others come before.
const ATTEMPTS: u32 = 100;

/// Writes absolute counts that are not older than what is there, and says how many those were.
/// KEYS: counts, revisions. ARGV: seconds to live (0: for ever), then tag, count, revision, …
const PUBLISH: &str = "
local written = 0
for i = 2, #ARGV, 3 do
  local known = redis.call('HGET', KEYS[2], ARGV[i])
  if not known or tonumber(known) <= tonumber(ARGV[i + 2]) then
    redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 2])
    if tonumber(ARGV[i + 1]) > 0 then
      redis.call('ZADD', KEYS[1], ARGV[i + 1], ARGV[i])
    else
      redis.call('ZREM', KEYS[1], ARGV[i])
    end
    written = written + 1
  end
end
if ARGV[1] ~= '0' then
  redis.call('EXPIRE', KEYS[1], ARGV[1])
  redis.call('EXPIRE', KEYS[2], ARGV[1])
end
return written";

impl Tagging {
    /// Counts these changes, each once and only if it is newer than what was counted of its edge, and
    /// publishes the counts they are about. In any order, any number of times.
    pub async fn apply(&self, changes: &[Edge]) -> Result<AppliedChanges, TaggingError> {
        // Of several changes of one edge only the newest can count.
        let mut newest: BTreeMap<(String, &str), &Edge> = BTreeMap::new();
        for change in changes {
            let edge = (
                content_key(&change.tenant_id, &change.content_id),
                &*change.tag_id,
            );
            let known = newest.entry(edge).or_insert(change);
            if known.version < change.version {
                *known = change;
            }
        }
        let newest: Vec<&Edge> = newest.into_values().collect();
        let mut counted = 0;
        let mut touched = BTreeSet::new();
        for edges in newest.chunks(EDGES_AT_ONCE) {
            let (new, left) = self.count(edges).await?;
            counted += new;
            touched.extend(left);
        }
        // Also what had been counted before: whoever counted it may have died before it published.
        // Every change names the window it was attached in, and so does the one that ends it; so the
        // windows that an edge comes from and those that it goes to are all among these.
        touched.extend(
            changes
                .iter()
                .flat_map(|change| rows_of(change, change.created_at)),
        );
        self.publish(touched).await?;
        Ok(AppliedChanges {
            counted,
            known: changes.len() - counted,
        })
    }

    /// Counts a few edges in one transaction. Says how many were new, and which rows they were counted
    /// in before.
    async fn count(&self, edges: &[&Edge]) -> Result<(usize, Vec<CountKey>), TaggingError> {
        for attempt in 0..ATTEMPTS {
            let applied = self.applied_states(edges).await?;
            let newer: Vec<(&Edge, Option<&AppliedState>)> = edges
                .iter()
                .map(|edge| (*edge, applied.get(&applied_key(edge))))
                .filter(|(edge, was)| was.is_none_or(|was| was.version < edge.version))
                .collect();
            if newer.is_empty() {
                return Ok((0, Vec::new()));
            }
            match self.count_as(&newer).await {
                Ok(true) => {
                    let left = newer.iter().filter_map(|(edge, was)| {
                        let was = was.filter(|was| was.live)?;
                        Some(rows_of(edge, was.created_at))
                    });
                    return Ok((newer.len(), left.flatten().collect()));
                }
                // Somebody else counted one of them, or an answer of ours was lost: look again.
                Ok(false) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(TaggingError::Contended)
    }

    /// Writes what is counted of these edges from now on, and the differences that this makes, if what
    /// was counted of them is still as it was.
    pub(crate) async fn count_as(
        &self,
        edges: &[(&Edge, Option<&AppliedState>)],
    ) -> Result<bool, CloudError> {
        let mut items = Vec::new();
        let mut differences: BTreeMap<CountKey, i64> = BTreeMap::new();
        for (edge, was) in edges {
            items.push(self.put_applied(edge, *was)?);
            let was = was.filter(|was| was.live).map(|was| was.created_at);
            let is = edge.live.then_some(edge.created_at);
            if was == is {
                continue;
            }
            for (created_at, difference) in [(was, -1), (is, 1)] {
                for row in created_at.into_iter().flat_map(|at| rows_of(edge, at)) {
                    *differences.entry(row).or_default() += difference;
                }
            }
        }
        // All time is written even if its number stays: its revision is what tells a recount that
        // something was counted in between.
        differences.retain(|row, difference| {
            row.window.is_kept(self.now()) && (*difference != 0 || row.window == Window::All)
        });
        for (row, difference) in &differences {
            items.push(self.update_count(row, *difference)?);
        }
        let names = vec!["applied"; items.len()];
        let written = self.cloud.transact(&names, items).await?;
        Ok(matches!(written, Transaction::Committed(_)))
    }

    fn put_applied(
        &self,
        edge: &Edge,
        was: Option<&AppliedState>,
    ) -> Result<TransactWriteItem, CloudError> {
        let applied = AppliedState {
            content_key: content_key(&edge.tenant_id, &edge.content_id),
            tag_id: edge.tag_id.clone(),
            version: edge.version,
            live: edge.live,
            created_at: edge.created_at,
        };
        let put = Put::builder()
            .table_name(self.table("popularity_applied"))
            .set_item(Some(to_item(&applied)?))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = match was {
            None => put.condition_expression(FIRST_GUARD),
            Some(was) => put
                .condition_expression(NEXT_GUARD)
                .expression_attribute_values(":seen", n(was.version))
                .expression_attribute_values(
                    ":was_live",
                    aws_sdk_dynamodb::types::AttributeValue::Bool(was.live),
                )
                .expression_attribute_values(":was_created_at", n(was.created_at)),
        };
        let put = put.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }

    fn update_count(
        &self,
        row: &CountKey,
        difference: i64,
    ) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("tag_popularity"))
            .set_key(Some(row.key()))
            .expression_attribute_values(":difference", n(difference))
            .expression_attribute_values(":one", n(1));
        let update = match row.window.expires_at() {
            None => update.update_expression(COUNT_UPDATE),
            Some(expires_at) => update
                .update_expression(COUNT_UPDATE_OF_WINDOW)
                .expression_attribute_values(":expires_at", n(expires_at)),
        };
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// What was counted of these edges.
    pub(crate) async fn applied_states(
        &self,
        edges: &[&Edge],
    ) -> Result<BTreeMap<(String, String), AppliedState>, CloudError> {
        let mut found = BTreeMap::new();
        for edges in edges.chunks(100) {
            let keys = edges.iter().map(|edge| edge.key()).collect();
            let mut read = self
                .cloud
                .read_batch(vec![("popularity_applied", keys)], true)
                .await?;
            for item in read.remove("popularity_applied").unwrap_or_default() {
                let state: AppliedState = from_item(&item)?;
                found.insert((state.content_key.clone(), state.tag_id.clone()), state);
            }
        }
        Ok(found)
    }

    /// The counts of a tag as the table has them, in every window that is kept.
    pub async fn popularity(
        &self,
        tenant_id: &str,
        tag_id: &str,
    ) -> Result<BTreeMap<Window, i64>, TaggingError> {
        let rows = self.popularity_rows(tenant_id, tag_id).await?;
        let kept = rows.into_iter().filter(|(_, row)| row.live_edges != 0);
        Ok(kept.map(|(window, row)| (window, row.live_edges)).collect())
    }

    /// The rows of a tag, consistent, without those that are over.
    pub(crate) async fn popularity_rows(
        &self,
        tenant_id: &str,
        tag_id: &str,
    ) -> Result<BTreeMap<Window, TagPopularity>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("tag_popularity"))
            .key_condition_expression("tag_id_key = :tag")
            .expression_attribute_values(":tag", s(tag_id_key(tenant_id, tag_id)))
            .consistent_read(true);
        let pages = all_items(query).await?;
        let now = self.now();
        let rows = pages.iter().map(|item| {
            let row: TagPopularity = from_item(item)?;
            let window = row.window.parse();
            let window: Window =
                window.map_err(|()| CloudError::Corrupt(format!("the window {}", row.window)))?;
            Ok((window, row))
        });
        let rows: Result<BTreeMap<_, _>, CloudError> = rows.collect();
        let mut rows = rows?;
        rows.retain(|window, _| window.is_kept(now));
        Ok(rows)
    }

    /// Publishes the counts as the table has them now. A row that is not there was never counted.
    pub async fn publish(&self, touched: BTreeSet<CountKey>) -> Result<(), TaggingError> {
        let now = self.now();
        let kept = touched.into_iter().filter(|row| row.window.is_kept(now));
        let kept: Vec<CountKey> = kept.collect();
        for rows in kept.chunks(100) {
            let keys = rows.iter().map(CountKey::key).collect();
            let mut read = self
                .cloud
                .read_batch(vec![("tag_popularity", keys)], true)
                .await?;
            let items = read.remove("tag_popularity").unwrap_or_default();
            let items: Result<Vec<TagPopularity>, _> = items.iter().map(from_item).collect();
            let mut found: BTreeMap<(String, String), TagPopularity> = items?
                .into_iter()
                .map(|row| ((row.tag_id_key.clone(), row.window.clone()), row))
                .collect();
            let mut by_set: BTreeMap<(&str, Window), Vec<(String, TagPopularity)>> =
                BTreeMap::new();
            for row in rows {
                let key = (
                    tag_id_key(&row.tenant_id, &row.tag_id),
                    row.window.to_string(),
                );
                if let Some(found) = found.remove(&key) {
                    let set = by_set.entry((&row.tenant_id, row.window)).or_default();
                    set.push((row.tag_id.clone(), found));
                }
            }
            let mut pipeline = redis::pipe();
            for ((tenant_id, window), rows) in by_set {
                pipeline.add_command(self.publishing(tenant_id, window, &rows));
            }
            if !pipeline.is_empty() {
                let mut redis = self.cloud.redis().await.map_err(CloudError::from)?;
                let _: Vec<i64> = pipeline
                    .query_async(&mut redis)
                    .await
                    .map_err(CloudError::from)?;
            }
        }
        Ok(())
    }

    /// The command that publishes rows of one window.
    pub(crate) fn publishing(
        &self,
        tenant_id: &str,
        window: Window,
        rows: &[(String, TagPopularity)],
    ) -> redis::Cmd {
        let lives = window
            .kept_until()
            .map_or(0, |until| (until - self.now()) / 1_000 + 1);
        let [counts, revisions, _] = self.popularity_keys(tenant_id, window);
        let mut eval = redis::cmd("EVAL");
        eval.arg(PUBLISH)
            .arg(2)
            .arg(counts)
            .arg(revisions)
            .arg(lives);
        for (tag_id, row) in rows {
            eval.arg(tag_id).arg(row.live_edges).arg(row.revision);
        }
        eval
    }

    /// The keys of a window in Redis: counts, their revisions, and who is rebuilding them. The braces
    /// keep the three on one node of a cluster.
    pub fn popularity_keys(&self, tenant_id: &str, window: Window) -> [String; 3] {
        ["counts", "revisions", "rebuilding"].map(|part| {
            let key = format!("{{popularity:{tenant_id}:{window}}}:{part}");
            self.cloud.names().key(&key)
        })
    }
}

impl CountKey {
    /// The key of its item.
    pub(crate) fn key(&self) -> Item {
        Item::from([
            (
                "tag_id_key".into(),
                s(tag_id_key(&self.tenant_id, &self.tag_id)),
            ),
            ("window".into(), s(self.window.to_string())),
        ])
    }
}

/// The rows that an edge is counted in, if it was attached then.
fn rows_of(edge: &Edge, created_at: Millis) -> [CountKey; 3] {
    Window::of(created_at).map(|window| CountKey {
        tenant_id: edge.tenant_id.clone(),
        window,
        tag_id: edge.tag_id.clone(),
    })
}

/// Under which key what was counted of an edge is found.
pub(crate) fn applied_key(edge: &Edge) -> (String, String) {
    let content = content_key(&edge.tenant_id, &edge.content_id);
    (content, edge.tag_id.clone())
}
