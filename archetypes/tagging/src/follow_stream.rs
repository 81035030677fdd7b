//! Follows the stream of the edges and counts what it shows: update popularity counts, end to end.
//!
//! Where it stands in each shard is kept in DynamoDB, and written *after* the records were counted: a
//! follower that dies in between is followed by one that reads them again, and counting again changes
//! nothing. The other order would lose what was read and not yet counted.
//!
//! A stream forgets after a day, and its shards end every few hours and have children:
//!
//! - a child is begun when its parent has been read to the end, so an edge's changes stay in order;
//! - what was forgotten before it was read is a *gap*. It cannot be read any more, so it is written
//!   down, and [`mend_gaps`](Tagging::mend_gaps) recounts from the edges.

use crate::domain::TenantId;
use crate::items::Edge;
use crate::recount::Recounted;
use crate::{Tagging, TaggingError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use aws_sdk_dynamodbstreams::error::ProvideErrorMetadata;
use aws_sdk_dynamodbstreams::types::{Record, ShardIteratorType};
use cloud::item::{all_items, from_item, n, s, to_item};
use cloud::{CloudError, Guard, Guarded, Millis};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The table whose stream is followed.
const SOURCE: &str = "content_tag_unique";

/// How far the stream has been counted, in one shard.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpoint {
    /// The table whose stream it is.
    pub stream: String,
    /// Which shard.
    pub shard_id: String,
    /// The last record that was counted; none before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence_number: Option<String>,
    /// Whether the shard has been read to its end.
    pub ended: bool,
    /// Counts the changes of this item: whoever was overtaken learns it.
    pub revision: u64,
    /// The revision with which it was noticed that records were lost here, until a recount has made up
    /// for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<u64>,
    /// When DynamoDB may forget that the shard has ended, in epoch seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<i64>,
}

/// What came of a round.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Followed {
    /// Records read.
    pub records: usize,
    /// Changes that were new.
    pub counted: usize,
    /// Gaps that were noticed.
    pub gaps: usize,
}

/// Nobody has written down anything about this shard.
const FIRST_GUARD: &str = "attribute_not_exists(shard_id)";

/// It is still what this follower has read on from. A slow one does not move the place back.
const NEXT_GUARD: &str = "revision = :seen";

/// The gap that was mended is still the last one that was noticed.
const SAME_GAP: &str = "gap = :seen";

/// A shard that has ended is listed for a day; this is a week.
const ENDED_KEPT: Millis = 7 * 24 * 3_600_000;

/// How many pages of one shard are read before the next shard has its turn.
const PAGES: usize = 100;

/// A shard as the stream lists it.
struct Shard {
    arn: String,
    id: String,
    parent: Option<String>,
}

/// Follows the stream. One is enough; a second one only counts nothing.
pub struct Follower {
    tagging: Tagging,
    /// Where to read on, while this follower lives. Not needed: the checkpoints are enough.
    iterators: BTreeMap<String, String>,
    page: Option<i32>,
}

impl Follower {
    /// A follower that goes on where the last one stood.
    pub fn new(tagging: Tagging) -> Self {
        Self {
            tagging,
            iterators: BTreeMap::new(),
            page: None,
        }
    }

    /// Reads so many records at a time. Unless told, DynamoDB decides: up to a thousand.
    pub fn with_page(self, page: i32) -> Self {
        Self {
            page: Some(page),
            ..self
        }
    }

    /// Counts everything that has happened since the last time.
    pub async fn follow(&mut self) -> Result<Followed, TaggingError> {
        let mut done = Followed::default();
        let shards = self.shards().await?;
        let mut known = self.tagging.checkpoints().await?;
        let listed = |id: &str| shards.iter().any(|shard| shard.id == id);
        // Shards that are gone before they were read to their end.
        for checkpoint in known.values_mut() {
            if !checkpoint.ended && !listed(&checkpoint.shard_id) {
                let lost = self.ended(gap(checkpoint));
                if let Some(written) = self.tagging.save(lost).await? {
                    *checkpoint = written;
                    done.gaps += 1;
                }
            }
        }
        // Parents come first, so their children can be read in the same round.
        let mut left: Vec<&Shard> = shards.iter().collect();
        loop {
            let ended = |id: &str, known: &BTreeMap<String, Checkpoint>| {
                known.get(id).is_some_and(|checkpoint| checkpoint.ended)
            };
            let ready = left.iter().position(|shard| {
                let waits = |parent: &String| listed(parent) && !ended(parent, &known);
                !shard.parent.as_ref().is_some_and(waits)
            });
            let Some(ready) = ready else { break };
            let shard = left.swap_remove(ready);
            if ended(&shard.id, &known) {
                continue;
            }
            let start = match known.get(&shard.id) {
                Some(checkpoint) => checkpoint.clone(),
                None => {
                    // Its parent was gone before anybody had read it.
                    let lost = |parent: &String| !listed(parent) && !ended(parent, &known);
                    let lost = shard.parent.as_ref().is_some_and(lost);
                    let start = Checkpoint {
                        stream: SOURCE.into(),
                        shard_id: shard.id.clone(),
                        ..Checkpoint::default()
                    };
                    if lost {
                        done.gaps += 1;
                        match self.tagging.save(gap(&start)).await? {
                            Some(written) => written,
                            None => continue,
                        }
                    } else {
                        start
                    }
                }
            };
            let end = self.read(shard, start, &mut done).await?;
            known.insert(shard.id.clone(), end);
        }
        Ok(done)
    }

    /// Reads a shard until there is nothing more for now, and says where it stands then.
    async fn read(
        &mut self,
        shard: &Shard,
        mut at: Checkpoint,
        done: &mut Followed,
    ) -> Result<Checkpoint, TaggingError> {
        let mut iterator = self.iterators.remove(&shard.id);
        for _ in 0..PAGES {
            let from = match iterator.take() {
                Some(from) => from,
                None => match self.iterator(shard, &at).await? {
                    Place::At(from) => from,
                    Place::Lost => {
                        // The place is gone, what is left begins later. Written down before anything
                        // is read from there: whoever dies now does not take the gap with him.
                        done.gaps += 1;
                        let lost = Checkpoint {
                            sequence_number: None,
                            ..gap(&at)
                        };
                        match self.tagging.save(lost).await? {
                            Some(written) => at = written,
                            None => return Ok(at),
                        }
                        continue;
                    }
                    Place::Gone => {
                        done.gaps += 1;
                        let lost = self.ended(gap(&at));
                        return Ok(self.tagging.save(lost).await?.unwrap_or(at));
                    }
                },
            };
            let records = self.tagging.cloud.streams().get_records();
            let page = records
                .shard_iterator(from)
                .set_limit(self.page)
                .send()
                .await;
            let page = match page {
                Ok(page) => page,
                // An iterator lives for a quarter of an hour, a record for a day. The checkpoint says
                // where to go on, or the stream that there is no such place any more.
                Err(error)
                    if matches!(
                        error.code(),
                        Some("ExpiredIteratorException" | "TrimmedDataAccessException")
                    ) =>
                {
                    continue;
                }
                Err(error) => return Err(CloudError::from(error).into()),
            };
            let changes: Vec<Edge> = page.records().iter().filter_map(change).collect();
            let applied = self.tagging.apply(&changes).await?;
            done.records += page.records().len();
            done.counted += applied.counted;
            // Only now: what could not be counted is read again.
            let last = page.records().last().and_then(sequence_number);
            if last.is_some() || page.next_shard_iterator.is_none() {
                let mut next = at.clone();
                next.sequence_number = last.or(next.sequence_number);
                if page.next_shard_iterator.is_none() {
                    next = self.ended(next);
                }
                match self.tagging.save(next).await? {
                    Some(written) => at = written,
                    // Somebody else follows here, and is as far or further.
                    None => return Ok(at),
                }
            }
            iterator = page.next_shard_iterator;
            if iterator.is_none() {
                return Ok(at);
            }
            if page.records.unwrap_or_default().is_empty() {
                break;
            }
        }
        self.iterators
            .extend(iterator.map(|iterator| (shard.id.clone(), iterator)));
        Ok(at)
    }

    /// An iterator behind the last record that was counted, or at the oldest that there is.
    async fn iterator(&self, shard: &Shard, at: &Checkpoint) -> Result<Place, CloudError> {
        let kind = match &at.sequence_number {
            Some(_) => ShardIteratorType::AfterSequenceNumber,
            None => ShardIteratorType::TrimHorizon,
        };
        let asked = self
            .tagging
            .cloud
            .streams()
            .get_shard_iterator()
            .stream_arn(&shard.arn)
            .shard_id(&shard.id)
            .shard_iterator_type(kind)
            .set_sequence_number(at.sequence_number.clone())
            .send()
            .await;
        match asked {
            Ok(answer) => Ok(answer.shard_iterator.map_or(Place::Gone, Place::At)),
            Err(error) => match error.code() {
                Some("TrimmedDataAccessException") if at.sequence_number.is_some() => {
                    Ok(Place::Lost)
                }
                Some("TrimmedDataAccessException" | "ResourceNotFoundException") => Ok(Place::Gone),
                _ => Err(error.into()),
            },
        }
    }

    /// All shards of the stream. A table whose stream was turned off and on has several streams.
    async fn shards(&self) -> Result<Vec<Shard>, CloudError> {
        let streams = self.tagging.cloud.streams();
        let table = self.tagging.table(SOURCE);
        let listed = streams.list_streams().table_name(&table).send().await?;
        let mut shards = Vec::new();
        for arn in listed
            .streams()
            .iter()
            .filter_map(|stream| stream.stream_arn())
        {
            let mut after = None;
            loop {
                let page = streams.describe_stream().stream_arn(arn);
                let page = page.set_exclusive_start_shard_id(after).send().await?;
                let Some(page) = page.stream_description else {
                    break;
                };
                for shard in page.shards() {
                    if let Some(id) = shard.shard_id() {
                        shards.push(Shard {
                            arn: arn.to_owned(),
                            id: id.to_owned(),
                            parent: shard.parent_shard_id.clone(),
                        });
                    }
                }
                after = page.last_evaluated_shard_id;
                if after.is_none() {
                    break;
                }
            }
        }
        Ok(shards)
    }

    fn ended(&self, checkpoint: Checkpoint) -> Checkpoint {
        Checkpoint {
            ended: true,
            expires_at: Some((self.tagging.now() + ENDED_KEPT) / 1_000),
            ..checkpoint
        }
    }
}

enum Place {
    At(String),
    /// The last record that was counted, and some after it, are forgotten.
    Lost,
    /// The whole shard is.
    Gone,
}

impl Tagging {
    /// Where the stream has been counted to, by shard.
    pub async fn checkpoints(&self) -> Result<BTreeMap<String, Checkpoint>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("stream_checkpoints"))
            .key_condition_expression("#stream = :stream")
            .expression_attribute_names("#stream", "stream")
            .expression_attribute_values(":stream", s(SOURCE))
            .consistent_read(true);
        let items = all_items(query).await?;
        let found = items.iter().map(|item| {
            let checkpoint: Checkpoint = from_item(item)?;
            Ok((checkpoint.shard_id.clone(), checkpoint))
        });
        found.collect()
    }

    /// Writes a checkpoint, if it is still the one that was read. None if it is not.
    async fn save(&self, mut to: Checkpoint) -> Result<Option<Checkpoint>, CloudError> {
        let seen = to.revision;
        to.revision += 1;
        let put = self
            .dynamodb()
            .put_item()
            .table_name(self.table("stream_checkpoints"))
            .set_item(Some(to_item(&to)?))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = match seen {
            0 => put.condition_expression(FIRST_GUARD),
            seen => put
                .condition_expression(NEXT_GUARD)
                .expression_attribute_values(":seen", n(seen)),
        };
        match put.send().await.guarded()? {
            Guard::Passed(_) => Ok(Some(to)),
            // The very same: our own, whose answer was lost, or as good as that.
            Guard::Failed(Some(old)) if from_item::<Checkpoint>(&old)? == to => Ok(Some(to)),
            Guard::Failed(_) => Ok(None),
        }
    }

    /// Recounts these tenants if the stream has gaps that nobody has made up for, and then forgets the
    /// gaps. Which edges were lost, nobody can say; so name every tenant there is.
    pub async fn mend_gaps(&self, tenants: &[TenantId]) -> Result<Vec<Recounted>, TaggingError> {
        let mut gaps = self.checkpoints().await?;
        gaps.retain(|_, checkpoint| checkpoint.gap.is_some());
        let mut mended = Vec::new();
        if gaps.is_empty() {
            return Ok(mended);
        }
        for tenant in tenants {
            mended.push(self.recount(tenant).await?);
        }
        for checkpoint in gaps.into_values() {
            let Some(gap) = checkpoint.gap else { continue };
            // The follower goes on meanwhile, so this touches nothing but the gap. One that was noticed
            // while we were counting has another number, and stays.
            self.dynamodb()
                .update_item()
                .table_name(self.table("stream_checkpoints"))
                .key("stream", s(SOURCE))
                .key("shard_id", s(&checkpoint.shard_id))
                .update_expression("REMOVE gap ADD revision :one")
                .condition_expression(SAME_GAP)
                .expression_attribute_values(":seen", n(gap))
                .expression_attribute_values(":one", n(1))
                .send()
                .await
                .guarded()?;
        }
        Ok(mended)
    }
}

/// The checkpoint with a gap that was noticed just now.
fn gap(at: &Checkpoint) -> Checkpoint {
    Checkpoint {
        gap: Some(at.revision + 1),
        ..at.clone()
    }
}

/// The edge as a record shows it. Records of anything else say nothing to a count.
fn change(record: &Record) -> Option<Edge> {
    let image = record.dynamodb.as_ref()?.new_image.as_ref()?;
    let text = |name: &str| image.get(name)?.as_s().ok().cloned();
    let number = |name: &str| image.get(name)?.as_n().ok()?.parse::<i64>().ok();
    Some(Edge {
        tenant_id: text("tenant_id")?,
        content_id: text("content_id")?,
        tag_id: text("tag_id")?,
        tag_name_norm: text("tag_name_norm")?,
        live: *image.get("live")?.as_bool().ok()?,
        version: number("version")?.try_into().ok()?,
        created_at: number("created_at")?,
        bucket: number("bucket")?.try_into().ok()?,
        changed_at: number("changed_at")?,
        change_id: text("change_id")?,
    })
}

fn sequence_number(record: &Record) -> Option<String> {
    record.dynamodb.as_ref()?.sequence_number.clone()
}
