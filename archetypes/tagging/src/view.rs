//! View content by tag: all buckets at once, merged, a page at a time.
//!
//! Each bucket is sorted as the view is, so the next row of the view is the first of the buckets' next
//! rows. The merge reads a small page of every bucket, all at the same time, and after that only from a
//! bucket whose page is used up and whose next row it must know. A page of a hundred rows of a tag with
//! a million contents reads about a hundred rows.

use crate::cursor::Cursor;
use crate::domain::{BadInput, MAX_PAGE, Position, TagName, TenantId};
use crate::items::{IndexRow, TagDefinition, bucket_key};
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::AttributeValue;
use cloud::CloudError;
use cloud::item::{from_item, s};
use futures::future::try_join_all;
use serde::Serialize;
use std::collections::VecDeque;

/// A page of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page {
    /// The contents, the last tagged first.
    pub contents: Vec<Position>,
    /// Where the next page begins. None at the end; with it, the next page may still be empty.
    pub next: Option<String>,
}

impl Tagging {
    /// The contents that have a tag, the last tagged first, and by id among those of one moment.
    ///
    /// Every content that has the tag throughout, from the first page to the last, is in exactly one of
    /// them, and the pages are in order. One that gets the tag, loses it, or loses it and gets it again
    /// meanwhile may be in it or not.
    pub async fn view(
        &self,
        tenant: &TenantId,
        name: &TagName,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page, TaggingError> {
        if !(1..=MAX_PAGE).contains(&limit) {
            return Err(BadInput::PageSize(limit).into());
        }
        // Before the buckets, and consistent: no writer can know of more buckets than this says.
        let definition = self.resolve(tenant, name).await?;
        let question = format!("view {}", definition.tag_id);
        let cursor = match cursor {
            Some(text) => Some(self.unseal::<Cursor>(tenant, &question, text)?),
            None => None,
        };
        let mut merge = Merge::start(self, &definition, cursor.as_ref(), limit).await?;
        let mut contents = Vec::new();
        while contents.len() < limit {
            match merge.next().await? {
                Some(row) => contents.push(row.position()),
                None => break,
            }
        }
        let next = merge
            .cursor()
            .map(|next| self.seal(tenant, &question, &next));
        Ok(Page { contents, next })
    }
}

/// The buckets of a tag as one sequence of rows.
pub(crate) struct Merge<'a> {
    tagging: &'a Tagging,
    buckets: Vec<Bucket>,
    page: i32,
    last: Option<Position>,
}

/// One bucket, as far as it has been read.
struct Bucket {
    key: String,
    rows: VecDeque<IndexRow>,
    /// The sort key that the next read begins behind; nothing for the start.
    after: Option<String>,
    /// Nothing is left to read.
    ended: bool,
}

impl<'a> Merge<'a> {
    /// Reads a first page of every bucket that the cursor has not seen the end of, all at once.
    /// `wanted` is how many rows will be asked for.
    pub(crate) async fn start(
        tagging: &'a Tagging,
        definition: &TagDefinition,
        cursor: Option<&Cursor>,
        wanted: usize,
    ) -> Result<Self, CloudError> {
        let after = cursor.map(|cursor| cursor.after.key());
        let bucket = |number| Bucket {
            key: bucket_key(&definition.tenant_id, &definition.tag_id, number),
            rows: VecDeque::new(),
            after: after.clone(),
            ended: cursor.is_some_and(|cursor| cursor.ended.contains(&number)),
        };
        let mut buckets: Vec<_> = (0..definition.buckets).map(bucket).collect();
        // Hashing spreads the rows evenly, so each bucket has its share of the page, and one more.
        let page = wanted.div_ceil(buckets.len().max(1)) as i32 + 1;
        let open = buckets.iter_mut().filter(|bucket| !bucket.ended);
        try_join_all(open.map(|bucket| bucket.read(tagging, page))).await?;
        Ok(Self {
            tagging,
            buckets,
            page,
            last: cursor.map(|cursor| cursor.after.clone()),
        })
    }

    /// The next row of the view.
    pub(crate) async fn next(&mut self) -> Result<Option<IndexRow>, CloudError> {
        // Which row is first can only be said when every bucket that has one shows it.
        for bucket in &mut self.buckets {
            while bucket.rows.is_empty() && !bucket.ended {
                bucket.read(self.tagging, self.page).await?;
            }
        }
        let heads = self
            .buckets
            .iter_mut()
            .filter(|bucket| !bucket.rows.is_empty());
        let first = heads.min_by_key(|bucket| bucket.rows.front().map(IndexRow::position));
        let row = first.and_then(|bucket| bucket.rows.pop_front());
        if let Some(row) = &row {
            self.last = Some(row.position());
        }
        Ok(row)
    }

    /// Where a later merge goes on, if there may be more.
    pub(crate) fn cursor(&self) -> Option<Cursor> {
        let over = |bucket: &Bucket| bucket.ended && bucket.rows.is_empty();
        if self.buckets.iter().all(over) {
            return None;
        }
        let numbered = (0..).zip(&self.buckets);
        Some(Cursor {
            after: self.last.clone()?,
            ended: numbered
                .filter(|(_, b)| over(b))
                .map(|(number, _)| number)
                .collect(),
        })
    }
}

impl Bucket {
    async fn read(&mut self, tagging: &Tagging, page: i32) -> Result<(), CloudError> {
        let mut query = tagging
            .dynamodb()
            .query()
            .table_name(tagging.table("content_tag_by_tag"))
            .expression_attribute_values(":bucket", s(&self.key))
            .consistent_read(true)
            .limit(page);
        query = match &self.after {
            None => query.key_condition_expression("bucket_key = :bucket"),
            Some(after) => query
                .key_condition_expression("bucket_key = :bucket AND #position > :after")
                .expression_attribute_names("#position", "position")
                .expression_attribute_values(":after", s(after)),
        };
        let answer = query.send().await?;
        for item in answer.items.unwrap_or_default() {
            self.rows.push_back(from_item(&item)?);
        }
        match answer
            .last_evaluated_key
            .and_then(|mut key| key.remove("position"))
        {
            Some(AttributeValue::S(position)) => self.after = Some(position),
            _ => self.ended = true,
        }
        Ok(())
    }
}
