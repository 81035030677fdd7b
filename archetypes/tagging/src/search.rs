//! Contents by several tags: all of them (AND), or any of them (OR), a page at a time.
//!
//! **All**: walk the rarest tag and look the others up, a batch of edges at a time. What it costs is
//! the size of the rarest tag, not of the common ones. Which is rarest is asked once and then stands in
//! the cursor, since its order is the order of the pages.
//!
//! **Any**: merge the tags' views, as each of them merges its buckets. A content that has two of the
//! tags is in the merge twice, and is shown at its first place only: at every place the other edges of
//! the content are looked up, and one that comes earlier has been shown. So nothing has to be
//! remembered between pages. An edge that came after the first page cannot have been shown, and does
//! not count.

use crate::cursor::Cursor;
use crate::domain::{BadInput, MAX_PAGE, Position, TagName, TenantId};
use crate::items::{Edge, IndexRow, TagDefinition, edge_key};
use crate::popularity::{CountKey, TagPopularity};
use crate::view::{Merge, Page};
use crate::windows::Window;
use crate::{Tagging, TaggingError};
use cloud::item::from_item;
use cloud::{CloudError, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How many tags may be asked for at once.
pub const MAX_TAGS: usize = 5;

/// How many rows one page may look at. A page that has looked at so many is short, and its cursor
/// leads on.
const MAX_LOOKED_AT: usize = 1_000;

/// How many items one batch may read.
const BATCH: usize = 100;

/// Which contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Search {
    /// Those that have all of the tags.
    All,
    /// Those that have any of them.
    Any,
}

/// Where a search goes on.
#[derive(Debug, Serialize, Deserialize)]
struct SearchCursor {
    /// Behind this row, in every tag that is walked.
    after: Position,
    /// What came later does not count: not before the first page was read.
    as_of: Millis,
    /// The tag that is walked, for AND.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rarest: Option<String>,
}

impl Tagging {
    /// The contents that have all or any of these tags, the last tagged first (for AND: by the rarest
    /// tag). Pages may be short; the last one has no cursor.
    ///
    /// A content that has the tags throughout is in exactly one page, as in a [view](Tagging::view).
    pub async fn search(
        &self,
        tenant: &TenantId,
        search: Search,
        names: &[TagName],
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, TaggingError> {
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(BadInput::PageSize(limit).into());
        }
        if !(1..=MAX_TAGS).contains(&names.len()) {
            return Err(BadInput::Other("search for between 1 and 5 tags").into());
        }
        // By id, so that a tag that is named twice, or by two of its names, is one.
        let mut tags = BTreeMap::new();
        for name in names {
            let tag = self.resolve(tenant, name).await?;
            tags.insert(tag.tag_id.clone(), tag);
        }
        let ids: Vec<&str> = tags.keys().map(String::as_str).collect();
        let question = format!("{search:?} {}", ids.join(" "));
        let from: Option<SearchCursor> = match cursor {
            Some(text) => Some(self.unseal(tenant, &question, text)?),
            None => None,
        };
        let tags: Vec<TagDefinition> = tags.into_values().collect();
        let (contents, next) = match search {
            Search::All => self.search_all(tenant, &tags, limit, from).await?,
            Search::Any => self.search_any(tenant, &tags, limit, from).await?,
        };
        let next = next.map(|next| self.seal(tenant, &question, &next));
        Ok(Page { contents, next })
    }

    async fn search_all(
        &self,
        tenant: &TenantId,
        tags: &[TagDefinition],
        limit: usize,
        from: Option<SearchCursor>,
    ) -> Result<(Vec<Position>, Option<SearchCursor>), CloudError> {
        let rarest = match from.as_ref().and_then(|from| from.rarest.clone()) {
            Some(rarest) => rarest,
            None => self.rarest(tenant, tags).await?,
        };
        let walked = tags.iter().find(|tag| tag.tag_id == rarest);
        let walked = walked.ok_or_else(|| CloudError::corrupt("a cursor of other tags"))?;
        let others: Vec<_> = tags.iter().filter(|tag| tag.tag_id != rarest).collect();
        let mut walk = Walk::start(self, walked, from.as_ref(), limit).await?;
        let mut found = Vec::new();
        let mut looked_at = 0;
        while found.len() < limit && looked_at < MAX_LOOKED_AT {
            // Never more than are still wanted: what is read is shown or does not match.
            let mut rows = Vec::new();
            while rows.len() < limit - found.len() {
                match walk.merge.next().await? {
                    Some(row) => rows.push(row),
                    None => break,
                }
            }
            if rows.is_empty() {
                return Ok((found, None));
            }
            looked_at += rows.len();
            let edges = self.edges_beside(tenant, &rows, &others).await?;
            for row in rows {
                let has = |tag: &&TagDefinition| {
                    edges.contains_key(&(row.content_id.clone(), tag.tag_id.clone()))
                };
                if others.iter().all(has) {
                    found.push(row.position());
                }
            }
        }
        let next = walk.merge.cursor().map(|cursor| SearchCursor {
            after: cursor.after,
            as_of: 0,
            rarest: Some(rarest),
        });
        Ok((found, next))
    }

    async fn search_any(
        &self,
        tenant: &TenantId,
        tags: &[TagDefinition],
        limit: usize,
        from: Option<SearchCursor>,
    ) -> Result<(Vec<Position>, Option<SearchCursor>), CloudError> {
        let mut walks = Vec::new();
        for tag in tags {
            let mut walk = Walk::start(self, tag, from.as_ref(), limit).await?;
            walk.step().await?;
            walks.push(walk);
        }
        // Everything that is there now counts, also what somebody with a fast clock attached.
        let newest = walks
            .iter()
            .filter_map(|walk| Some(walk.head.as_ref()?.created_at));
        let as_of = match &from {
            Some(from) => from.as_of,
            None => newest.max().unwrap_or_default().max(self.now()),
        };
        let others: Vec<_> = tags.iter().collect();
        let mut found = Vec::new();
        let mut looked_at = 0;
        let mut last = from.map(|from| from.after);
        while found.len() < limit && looked_at < MAX_LOOKED_AT {
            let mut rows: Vec<IndexRow> = Vec::new();
            while rows.len() < limit - found.len() {
                let heads = walks.iter().filter_map(|walk| walk.head.as_ref());
                let first = heads.min_by_key(|row| row.position()).cloned();
                let Some(first) = first else { break };
                // The same content at the same moment by two tags is one place.
                let place = first.position();
                for walk in &mut walks {
                    if walk
                        .head
                        .as_ref()
                        .is_some_and(|row| row.position() == place)
                    {
                        walk.step().await?;
                    }
                }
                last = Some(place);
                rows.push(first);
            }
            if rows.is_empty() {
                return Ok((found, None));
            }
            looked_at += rows.len();
            let edges = self.edges_beside(tenant, &rows, &others).await?;
            for row in rows {
                let place = row.position();
                let mut of_content = edges
                    .iter()
                    .filter(|((content, _), _)| *content == row.content_id)
                    .map(|(_, edge)| edge);
                let shown =
                    of_content.any(|edge| edge.created_at <= as_of && edge.position() < place);
                if !shown && row.created_at <= as_of {
                    found.push(place);
                }
            }
        }
        let more = walks.iter().any(|walk| walk.head.is_some());
        let next = last.filter(|_| more).map(|after| SearchCursor {
            after,
            as_of,
            rarest: None,
        });
        Ok((found, next))
    }

    /// The tag with the fewest contents, as far as they are counted. A wrong guess costs, no more.
    async fn rarest(
        &self,
        tenant: &TenantId,
        tags: &[TagDefinition],
    ) -> Result<String, CloudError> {
        let row = |tag: &TagDefinition| CountKey {
            tenant_id: tenant.as_str().to_owned(),
            window: Window::All,
            tag_id: tag.tag_id.clone(),
        };
        let keys = tags.iter().map(|tag| row(tag).key()).collect();
        let read = self.cloud.read_batch(vec![("tag_popularity", keys)], false);
        let mut counts = BTreeMap::new();
        for item in read.await?.remove("tag_popularity").unwrap_or_default() {
            let row: TagPopularity = from_item(&item)?;
            counts.insert(row.tag_id_key, row.live_edges);
        }
        let counted = |tag: &&TagDefinition| {
            let key = crate::items::tag_id_key(tenant.as_str(), &tag.tag_id);
            counts.get(&key).copied().unwrap_or_default()
        };
        let rarest = tags.iter().min_by_key(counted);
        Ok(rarest.map(|tag| tag.tag_id.clone()).unwrap_or_default())
    }

    /// The live edges of these rows' contents to these tags, by content and tag.
    async fn edges_beside(
        &self,
        tenant: &TenantId,
        rows: &[IndexRow],
        tags: &[&TagDefinition],
    ) -> Result<BTreeMap<(String, String), Edge>, CloudError> {
        let mut pairs: Vec<(&str, &str)> = rows
            .iter()
            .flat_map(|row| tags.iter().map(|tag| (&*row.content_id, &*tag.tag_id)))
            .collect();
        // A batch takes no key twice.
        pairs.sort();
        pairs.dedup();
        let mut found = BTreeMap::new();
        for pairs in pairs.chunks(BATCH) {
            let keys = pairs
                .iter()
                .map(|(content, tag)| edge_key(tenant.as_str(), content, tag))
                .collect();
            let read = self
                .cloud
                .read_batch(vec![("content_tag_unique", keys)], true);
            for item in read.await?.remove("content_tag_unique").unwrap_or_default() {
                let edge: Edge = from_item(&item)?;
                if edge.live {
                    found.insert((edge.content_id.clone(), edge.tag_id.clone()), edge);
                }
            }
        }
        Ok(found)
    }
}

/// One tag's view, and its next row.
struct Walk<'a> {
    merge: Merge<'a>,
    head: Option<IndexRow>,
}

impl<'a> Walk<'a> {
    async fn start(
        tagging: &'a Tagging,
        tag: &TagDefinition,
        from: Option<&SearchCursor>,
        wanted: usize,
    ) -> Result<Self, CloudError> {
        let cursor = from.map(|from| Cursor {
            after: from.after.clone(),
            ended: Vec::new(),
        });
        let merge = Merge::start(tagging, tag, cursor.as_ref(), wanted).await?;
        Ok(Self { merge, head: None })
    }

    async fn step(&mut self) -> Result<(), CloudError> {
        self.head = self.merge.next().await?;
        Ok(())
    }
}
