//! The most used tags of a window, from Redis; and Redis from the table, when it has forgotten.
//!
//! A sorted set that is not whole gives a wrong answer without saying so. So a whole one bears a
//! mark, in both of its keys; where a mark is missing, the answer comes from the table, and the set
//! is made whole on the way.

use crate::domain::BadInput;
use crate::popularity::{CountKey, TagPopularity};
use crate::windows::Window;
use crate::{Tagging, TaggingError, TenantId};
use cloud::CloudError;
use cloud::item::from_item;
use std::cmp::Reverse;

/// A tag and how many live edges of it were attached in the window.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RankedTag {
    /// Which tag.
    pub tag_id: String,
    /// How many.
    pub live_edges: i64,
}

/// The most that can be asked for.
pub const MAX_TOP: usize = 100;

/// The member that says that all others are there. No tag has this id.
const WHOLE: &str = "!whole";

/// KEYS: counts, revisions. ARGV: the mark, how many. Nothing unless both are whole.
const TOP: &str = "
if not redis.call('ZSCORE', KEYS[1], ARGV[1]) then return false end
if redis.call('HEXISTS', KEYS[2], ARGV[1]) == 0 then return false end
return redis.call('ZREVRANGEBYSCORE', KEYS[1], '+inf', '1', 'WITHSCORES', 'LIMIT', 0, ARGV[2])";

/// Begins to rebuild. KEYS: counts, revisions, rebuilding. ARGV: who, whether to forget what is there.
const BEGIN: &str = "
if ARGV[2] == 'forget' then
  redis.call('DEL', KEYS[1])
  redis.call('DEL', KEYS[2])
end
redis.call('SET', KEYS[3], ARGV[1])
redis.call('EXPIRE', KEYS[3], 3600)
return 1";

/// Marks the set as whole, if nobody has forgotten or begun anything since. KEYS as above. ARGV: who,
/// the mark, seconds to live (0: for ever).
const FINISH: &str = "
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[3])
redis.call('ZADD', KEYS[1], '-1', ARGV[2])
redis.call('HSET', KEYS[2], ARGV[2], '0')
if ARGV[3] ~= '0' then
  redis.call('EXPIRE', KEYS[1], ARGV[3])
  redis.call('EXPIRE', KEYS[2], ARGV[3])
end
return 1";

impl Tagging {
    /// The most used tags of a window, most used first; among equals the later id first, as Redis has
    /// it. A window that is over has none.
    pub async fn top_tags(
        &self,
        tenant: &TenantId,
        window: Window,
        k: usize,
    ) -> Result<Vec<RankedTag>, TaggingError> {
        if !(1..=MAX_TOP).contains(&k) {
            return Err(BadInput::Other("ask for between 1 and 100 tags").into());
        }
        if !window.is_kept(self.now()) {
            return Ok(Vec::new());
        }
        let found = self.top_in_redis(tenant, window, k).await?;
        if let Some(ranked) = found {
            return Ok(ranked);
        }
        let mut ranked = self.rebuild(tenant, window, false).await?;
        ranked.truncate(k);
        Ok(ranked)
    }

    async fn top_in_redis(
        &self,
        tenant: &TenantId,
        window: Window,
        k: usize,
    ) -> Result<Option<Vec<RankedTag>>, CloudError> {
        let [counts, revisions, _] = self.popularity_keys(tenant.as_str(), window);
        let mut redis = self.cloud.redis().await?;
        let mut eval = redis::cmd("EVAL");
        eval.arg(TOP)
            .arg(2)
            .arg(counts)
            .arg(revisions)
            .arg(WHOLE)
            .arg(k);
        let found: Option<Vec<(String, i64)>> = eval.query_async(&mut redis).await?;
        let ranked = |(tag_id, live_edges)| RankedTag { tag_id, live_edges };
        Ok(found.map(|found| found.into_iter().map(ranked).collect()))
    }

    /// Fills a window in Redis from the table, and gives all of it in order. With `forget`, what Redis
    /// has is deleted first; readers go to the table meanwhile.
    ///
    /// Forget, then read, then publish: what a consumer published before was in the table by then; what
    /// it publishes later is not older than what was read, or refused.
    pub async fn rebuild(
        &self,
        tenant: &TenantId,
        window: Window,
        forget: bool,
    ) -> Result<Vec<RankedTag>, TaggingError> {
        let keys = self.popularity_keys(tenant.as_str(), window);
        let who = self.cloud.ids().next("rebuild");
        let mut redis = self.cloud.redis().await.map_err(CloudError::from)?;
        let mut begin = redis::cmd("EVAL");
        begin.arg(BEGIN).arg(3).arg(&keys[..]).arg(&who);
        begin.arg(if forget { "forget" } else { "keep" });
        let _: i64 = begin
            .query_async(&mut redis)
            .await
            .map_err(CloudError::from)?;

        let mut ranked = Vec::new();
        let names = self.all_names(tenant).await?;
        for names in names.chunks(100) {
            let rows = names.iter().map(|name| CountKey {
                tenant_id: tenant.as_str().to_owned(),
                window,
                tag_id: name.tag_id.clone(),
            });
            let keys = rows.map(|row| row.key()).collect();
            let mut read = self
                .cloud
                .read_batch(vec![("tag_popularity", keys)], true)
                .await?;
            let mut rows = Vec::new();
            for item in read.remove("tag_popularity").unwrap_or_default() {
                let row: TagPopularity = from_item(&item)?;
                let tag_id = row.tag_id_key.rsplit('#').next().unwrap_or_default();
                rows.push((tag_id.to_owned(), row));
            }
            let publish = self.publishing(tenant.as_str(), window, &rows);
            let _: i64 = publish
                .query_async(&mut redis)
                .await
                .map_err(CloudError::from)?;
            ranked.extend(rows.into_iter().map(|(tag_id, row)| RankedTag {
                tag_id,
                live_edges: row.live_edges,
            }));
        }
        let lives = window
            .kept_until()
            .map_or(0, |until| (until - self.now()) / 1_000 + 1);
        let mut finish = redis::cmd("EVAL");
        finish
            .arg(FINISH)
            .arg(3)
            .arg(&keys[..])
            .arg(&who)
            .arg(WHOLE)
            .arg(lives);
        let _: i64 = finish
            .query_async(&mut redis)
            .await
            .map_err(CloudError::from)?;

        ranked.retain(|ranked| ranked.live_edges > 0);
        ranked.sort_by(|a, b| {
            let order = |ranked: &RankedTag| Reverse((ranked.live_edges, ranked.tag_id.clone()));
            order(a).cmp(&order(b))
        });
        Ok(ranked)
    }
}
