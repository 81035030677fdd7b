//! Merge: one tag becomes another name for another, and its contents move over, while everybody goes
//! on attaching.
//!
//! 1. *Redirect.* The tag becomes another name for its target. Whoever asks from now on gets the target.
//! 2. *Close the gates* of its buckets. Whoever attaches looks at the gate of the bucket *after* the
//!    attach: [`Tagging::after_attach`].
//! 3. *Walk* its rows, bucket by bucket, and move each edge in one transaction.
//!
//! An attach that began before the redirect may end at any time. If it ends before the walk reads its
//! bucket, the walk finds the edge. If it ends later, the gate was closed before, and it moves its edge
//! itself. If it dies before it has looked, its client asks again, or a later merge of the same two
//! finds the edge: merging again is a sweep.
//!
//! The walk writes down how far it has come, page by page. What it has moved is not there any more, so
//! a walk that begins too early only looks twice.

use crate::attach::row_item;
use crate::domain::{BadInput, ContentId, TagName, TenantId, bucket_of};
use crate::items::{Edge, TagDefinition, TagStatus, bucket_key, tag_key};
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::{AttributeValue, Delete, Put, TransactWriteItem, Update};
use cloud::item::{n, pause, s};
use cloud::{CloudError, Item, Transaction};

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Merged {
    /// The name stands for the target, and its contents have the target.
    Done {
        /// Contents that had only the merged tag.
        moved: usize,
        /// Contents that had both, and have one now.
        both: usize,
    },
    /// The name is being merged, or was, into another tag than this.
    Elsewhere {
        /// Its normalized name.
        into: String,
    },
}

/// Both are tags of their own. Of two merges in a circle, one finds that the other has begun.
const BEGIN_GUARD: &str = "#status = :active";
const BEGIN_FROM: &str = "SET #status = :merging, redirect_to = :into";
const BEGIN_INTO: &str = "ADD aliases :from";

/// These need no guard: they say the same however often they are said, and nobody takes a redirect back.
const SAVE_PLACE: &str = "SET merge_bucket = :bucket, merge_position = :position";
const FINISH: &str = "SET #status = :redirect REMOVE merge_bucket, merge_position";

/// The target is still a tag of its own. A name that is pointed at one that is on its way into another
/// would be pointed there too late to be taken along.
const TARGET_GUARD: &str = "#status = :active";
const TAKE_ALIAS: &str = "ADD aliases :alias";
const POINT: &str = "SET redirect_to = :into";
const FORGET_ALIAS: &str = "DELETE aliases :alias";

/// An edge more or less is a change of the content, also where their number stays.
const COUNT_CHANGE: &str = "ADD tag_count :change, revision :one";

/// How many rows are read at a time.
const PAGE: i32 = 100;

/// How often something is decided again that others come before.
const ATTEMPTS: u32 = 50;

/// How far a walk has come: bucket, and position in it.
type Place = (u32, Option<String>);

impl Tagging {
    /// Merges a tag into another: its name becomes another name for that, and so do its other names.
    /// Called again, it goes on where it was; called when it is done, it sweeps up what came late.
    pub async fn merge(
        &self,
        tenant: &TenantId,
        from: &TagName,
        into: &TagName,
    ) -> Result<Merged, TaggingError> {
        let (from, into) = match self.begin(tenant, from, into).await? {
            Ok(begun) => begun,
            Err(elsewhere) => return Ok(Merged::Elsewhere { into: elsewhere }),
        };
        self.close_gates(&from, &into).await?;
        let (mut moved, mut both) = (0, 0);
        let mut place = self.place(&from).await?;
        for bucket in place.0..from.buckets {
            let mut after = if bucket == place.0 {
                place.1.take()
            } else {
                None
            };
            loop {
                let rows = self.rows_after(&from, bucket, after.as_deref()).await?;
                let Some((last, _)) = rows.last() else { break };
                after = Some(last.clone());
                for (_, content_id) in &rows {
                    let content = ContentId::new(content_id).map_err(CloudError::corrupt)?;
                    match self
                        .move_edge(tenant, &content, &from.tag_id, &into)
                        .await?
                    {
                        Moved::Over(edge) => {
                            // The target may have been merged itself since this began.
                            self.after_attach(tenant, edge).await?;
                            moved += 1;
                        }
                        Moved::HadBoth => both += 1,
                        Moved::NotThere => {}
                    }
                }
                self.save_place(&from, bucket, after.as_deref()).await?;
            }
        }
        self.point_aliases(tenant, &from).await?;
        self.finish(&from).await?;
        Ok(Merged::Done { moved, both })
    }

    /// Makes the name another name for the target. Gives both as they are then; or what the name stands
    /// for, if that is something else.
    async fn begin(
        &self,
        tenant: &TenantId,
        from: &TagName,
        into: &TagName,
    ) -> Result<Result<(TagDefinition, TagDefinition), String>, TaggingError> {
        let mut apart = None;
        for attempt in 0..ATTEMPTS {
            let unknown = || TaggingError::UnknownTag(from.normalized().to_owned());
            let source = self
                .definition(tenant, from.normalized())
                .await?
                .ok_or_else(unknown)?;
            let target = self.resolve(tenant, into).await?;
            if let Some(now) = &source.redirect_to {
                let leads_to = self.resolve(tenant, from).await?;
                if leads_to.tag_id == target.tag_id {
                    return Ok(Ok((source, target)));
                }
                // The two were not read at once: the target may have been merged in between. What is
                // twice the same is so.
                let seen = Some((leads_to.tag_id, target.tag_id));
                if apart == seen {
                    return Ok(Err(now.clone()));
                }
                apart = seen;
                continue;
            }
            if source.tag_id == target.tag_id {
                return Err(BadInput::Other("a tag cannot be merged into itself").into());
            }
            let status = |update: aws_sdk_dynamodb::types::builders::UpdateBuilder| {
                update
                    .table_name(self.table("tags"))
                    .condition_expression(BEGIN_GUARD)
                    .expression_attribute_names("#status", "status")
                    .expression_attribute_values(":active", s("ACTIVE"))
            };
            let redirect = status(Update::builder())
                .key(
                    "tag_key",
                    s(tag_key(tenant.as_str(), &source.tag_name_norm)),
                )
                .update_expression(BEGIN_FROM)
                .expression_attribute_values(":merging", s("MERGING"))
                .expression_attribute_values(":into", s(&target.tag_name_norm));
            let remember = status(Update::builder())
                .key(
                    "tag_key",
                    s(tag_key(tenant.as_str(), &target.tag_name_norm)),
                )
                .update_expression(BEGIN_INTO)
                .expression_attribute_values(":from", one_name(&source.tag_name_norm));
            let items = vec![updated(redirect)?, updated(remember)?];
            // Whatever became of it, the definitions tell: the next look finds the redirect, ours or
            // another's.
            match self.cloud.transact(&["from", "into"], items).await {
                Ok(_) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(TaggingError::Contended)
    }

    /// B of a tag that is not ACTIVE does not rise, so these are all there will ever be.
    async fn close_gates(
        &self,
        from: &TagDefinition,
        into: &TagDefinition,
    ) -> Result<(), CloudError> {
        for bucket in 0..from.buckets {
            self.dynamodb()
                .put_item()
                .table_name(self.table("tag_gates"))
                .item(
                    "bucket_key",
                    s(bucket_key(&from.tenant_id, &from.tag_id, bucket)),
                )
                .item("into", s(&into.tag_name_norm))
                .send()
                .await?;
        }
        Ok(())
    }

    /// Looks whether the tag was merged while it was attached, and if so moves the edge. Gives the edge
    /// as it stands then.
    pub(crate) async fn after_attach(
        &self,
        tenant: &TenantId,
        mut edge: Edge,
    ) -> Result<Edge, TaggingError> {
        let content = ContentId::new(&edge.content_id)?;
        // The tag that it moves to may have been merged in turn: its gate is looked at as well.
        loop {
            let gate = self
                .dynamodb()
                .get_item()
                .table_name(self.table("tag_gates"))
                .key(
                    "bucket_key",
                    s(bucket_key(tenant.as_str(), &edge.tag_id, edge.bucket)),
                )
                .consistent_read(true)
                .send()
                .await
                .map_err(CloudError::from)?;
            let Some(gate) = gate.item else {
                return Ok(edge);
            };
            let into = gate.get("into").and_then(|into| into.as_s().ok());
            let into = into.ok_or_else(|| CloudError::corrupt("a gate that leads nowhere"))?;
            let target = self.resolve(tenant, &TagName::new(into)?).await?;
            match self
                .move_edge(tenant, &content, &edge.tag_id, &target)
                .await?
            {
                Moved::Over(moved) => edge = moved,
                Moved::HadBoth | Moved::NotThere => {
                    let there = self.edge(tenant, &content, &target.tag_id).await?;
                    return Ok(there.unwrap_or(edge));
                }
            }
        }
    }

    /// The tags that a name stands for while a merge is on its way: those on the move, then the one
    /// they move to. In this order, a content that moves meanwhile is met in one of them.
    pub(crate) async fn tags_behind(
        &self,
        tenant: &TenantId,
        name: &TagName,
    ) -> Result<Vec<String>, TaggingError> {
        let mut behind = Vec::new();
        let mut at = name.normalized().to_owned();
        for _ in 0..ATTEMPTS {
            let unknown = || TaggingError::UnknownTag(name.normalized().to_owned());
            let definition = self.definition(tenant, &at).await?.ok_or_else(unknown)?;
            if definition.status != TagStatus::Redirect {
                behind.push(definition.tag_id);
            }
            match definition.redirect_to {
                Some(next) => at = next,
                None => return Ok(behind),
            }
        }
        Err(CloudError::Corrupt(format!("the name '{at}' leads around in circles")).into())
    }

    /// Moves one content from a tag to another, in one transaction.
    async fn move_edge(
        &self,
        tenant: &TenantId,
        content: &ContentId,
        from: &str,
        into: &TagDefinition,
    ) -> Result<Moved, TaggingError> {
        let change_id = self.cloud.ids().next("change");
        for attempt in 0..ATTEMPTS {
            let Some(source) = self.edge(tenant, content, from).await? else {
                return Ok(Moved::NotThere);
            };
            let target = self.edge(tenant, content, &into.tag_id).await?;
            if source.change_id == change_id {
                // Ours, and its answer was lost.
                let moved = target.filter(|edge| edge.change_id == change_id);
                return Ok(moved.map_or(Moved::HadBoth, Moved::Over));
            }
            if !source.live {
                return Ok(Moved::NotThere);
            }
            let had_both = target.as_ref().is_some_and(|edge| edge.live);
            let gone = Edge {
                live: false,
                version: source.version + 1,
                changed_at: self.now(),
                change_id: change_id.clone(),
                ..source.clone()
            };
            let row = Delete::builder()
                .table_name(self.table("content_tag_by_tag"))
                .set_key(Some(source.row_key()))
                .build()
                .map_err(CloudError::bug)?;
            let mut items = vec![
                self.put_edge(&gone)?,
                TransactWriteItem::builder().delete(row).build(),
            ];
            // It keeps its time, and so its place among the target's contents.
            let moved = (!had_both).then(|| Edge {
                tag_id: into.tag_id.clone(),
                tag_name_norm: into.tag_name_norm.clone(),
                live: true,
                version: target.map_or(0, |edge| edge.version) + 1,
                bucket: bucket_of(&into.tag_id, content.as_str(), into.buckets),
                ..gone.clone()
            });
            if let Some(moved) = &moved {
                let row = Put::builder()
                    .table_name(self.table("content_tag_by_tag"))
                    .set_item(Some(row_item(moved)?))
                    .build()
                    .map_err(CloudError::bug)?;
                items.push(self.put_edge(moved)?);
                items.push(TransactWriteItem::builder().put(row).build());
            }
            let content_key = gone.key().remove("content_key").unwrap_or_else(|| s(""));
            let count = Update::builder()
                .table_name(self.table("contents"))
                .key("content_key", content_key)
                .update_expression(COUNT_CHANGE)
                .expression_attribute_values(":change", n(if had_both { -1 } else { 0 }))
                .expression_attribute_values(":one", n(1));
            items.push(updated(count)?);
            let names = ["edge", "row", "target", "target row", "count"];
            let names = if had_both {
                &["edge", "row", "count"]
            } else {
                &names[..]
            };
            match self.cloud.transact(names, items).await {
                Ok(Transaction::Committed(_)) => {
                    return Ok(moved.map_or(Moved::HadBoth, Moved::Over));
                }
                // One of the two edges has changed: look at both again.
                Ok(Transaction::Cancelled(_)) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(TaggingError::Contended)
    }

    /// A page of the rows of a bucket: position and content.
    async fn rows_after(
        &self,
        tag: &TagDefinition,
        bucket: u32,
        after: Option<&str>,
    ) -> Result<Vec<(String, String)>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("content_tag_by_tag"))
            .expression_attribute_values(
                ":bucket",
                s(bucket_key(&tag.tenant_id, &tag.tag_id, bucket)),
            )
            .consistent_read(true)
            .limit(PAGE);
        let query = match after {
            None => query.key_condition_expression("bucket_key = :bucket"),
            Some(after) => query
                .key_condition_expression("bucket_key = :bucket AND #position > :after")
                .expression_attribute_names("#position", "position")
                .expression_attribute_values(":after", s(after)),
        };
        let page = query.send().await?;
        let text = |item: &Item, name: &str| {
            let text = item.get(name).and_then(|value| value.as_s().ok()).cloned();
            text.ok_or_else(|| CloudError::corrupt(format!("a row has no {name}")))
        };
        let rows = page.items().iter();
        rows.map(|item| Ok((text(item, "position")?, text(item, "content_id")?)))
            .collect()
    }

    /// Where a walk of this tag begins: where the last one got to, or at the start for a sweep.
    async fn place(&self, from: &TagDefinition) -> Result<Place, CloudError> {
        if from.status != TagStatus::Merging {
            return Ok((0, None));
        }
        let item = self.tag_item(from).await?;
        let bucket = item
            .get("merge_bucket")
            .and_then(|bucket| bucket.as_n().ok());
        let position = item.get("merge_position").and_then(|text| text.as_s().ok());
        let bucket = bucket.map_or(Ok(0), |bucket| bucket.parse());
        Ok((bucket.map_err(CloudError::corrupt)?, position.cloned()))
    }

    /// Two that merge the same may write down each other's places. Either is true: whoever begins too
    /// early looks twice, and the rows before a place have all been moved.
    async fn save_place(
        &self,
        from: &TagDefinition,
        bucket: u32,
        position: Option<&str>,
    ) -> Result<(), CloudError> {
        let Some(position) = position else {
            return Ok(());
        };
        self.dynamodb()
            .update_item()
            .table_name(self.table("tags"))
            .key("tag_key", s(tag_key(&from.tenant_id, &from.tag_name_norm)))
            .update_expression(SAVE_PLACE)
            .expression_attribute_values(":bucket", n(bucket))
            .expression_attribute_values(":position", s(position))
            .send()
            .await?;
        Ok(())
    }

    /// The other names of the merged tag become other names of what it stands for, so that no name
    /// leads to its tag over a second one for ever.
    async fn point_aliases(
        &self,
        tenant: &TenantId,
        from: &TagDefinition,
    ) -> Result<(), TaggingError> {
        for attempt in 0..ATTEMPTS {
            let item = self.tag_item(from).await?;
            let aliases = item.get("aliases").and_then(|names| names.as_ss().ok());
            let Some(alias) = aliases.and_then(|names| names.first()) else {
                return Ok(());
            };
            // Again each time: the target may be on its way into another by now.
            let name = TagName::new(&from.tag_name_norm)?;
            let target = self.resolve(tenant, &name).await?;
            let key = |name: &str| s(tag_key(tenant.as_str(), name));
            let point = Update::builder()
                .table_name(self.table("tags"))
                .key("tag_key", key(alias))
                .update_expression(POINT)
                .expression_attribute_values(":into", s(&target.tag_name_norm));
            let forget = Update::builder()
                .table_name(self.table("tags"))
                .key("tag_key", key(&from.tag_name_norm))
                .update_expression(FORGET_ALIAS)
                .expression_attribute_values(":alias", one_name(alias));
            let take = Update::builder()
                .table_name(self.table("tags"))
                .key("tag_key", key(&target.tag_name_norm))
                .update_expression(TAKE_ALIAS)
                .condition_expression(TARGET_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":active", s("ACTIVE"))
                .expression_attribute_values(":alias", one_name(alias));
            let items = vec![updated(point)?, updated(forget)?, updated(take)?];
            match self.cloud.transact(&["alias", "from", "into"], items).await {
                Ok(_) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(TaggingError::Contended)
    }

    async fn finish(&self, from: &TagDefinition) -> Result<(), CloudError> {
        self.dynamodb()
            .update_item()
            .table_name(self.table("tags"))
            .key("tag_key", s(tag_key(&from.tenant_id, &from.tag_name_norm)))
            .update_expression(FINISH)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":redirect", s("REDIRECT"))
            .send()
            .await?;
        Ok(())
    }

    /// A definition's item, with what only merges look at.
    async fn tag_item(&self, tag: &TagDefinition) -> Result<Item, CloudError> {
        let key = Item::from([(
            "tag_key".into(),
            s(tag_key(&tag.tenant_id, &tag.tag_name_norm)),
        )]);
        let mut found = self
            .cloud
            .read_batch(vec![("tags", vec![key])], true)
            .await?;
        Ok(found
            .remove("tags")
            .unwrap_or_default()
            .pop()
            .unwrap_or_default())
    }
}

enum Moved {
    /// The content has the target now, by this edge.
    Over(Edge),
    /// It had the target already.
    HadBoth,
    /// Somebody else has moved it, or it was detached.
    NotThere,
}

fn one_name(name: &str) -> AttributeValue {
    AttributeValue::Ss(vec![name.to_owned()])
}

fn updated(
    update: aws_sdk_dynamodb::types::builders::UpdateBuilder,
) -> Result<TransactWriteItem, CloudError> {
    let update = update.build().map_err(CloudError::bug)?;
    Ok(TransactWriteItem::builder().update(update).build())
}
