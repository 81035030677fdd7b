//! The publisher: reads the tables' streams and publishes the new events on Redis.
//!
//! Every node runs one. A lease in Redis gives each shard to one of them, and a checkpoint beside it
//! says where the next holder goes on. Delivery is at least once: a publisher that dies between PUBLISH
//! and checkpoint leaves its successor to publish the same events, and feeds drop the copies. A Redis
//! that forgets lease and checkpoint costs repetitions too, and no event; but the next holder reads all that
//! the shard still has before it comes to what is new.

use crate::AuctionHouse;
use crate::broadcast::{CHANNEL, Event, PATIENCE, in_time, patient};
use crate::domain::Status;
use aws_sdk_dynamodbstreams::error::ProvideErrorMetadata;
use aws_sdk_dynamodbstreams::operation::get_records::GetRecordsOutput;
use aws_sdk_dynamodbstreams::types::{AttributeValue, Record, ShardIteratorType};
use cloud::{CloudError, Millis, RedisConnection};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The tables whose streams are followed: accepted bids, and auctions for their closing.
const SOURCES: [&str; 2] = ["bids", "auctions"];

/// How often the publisher looks for new shards. Streams split by themselves every few hours.
const DISCOVER_EVERY: Millis = 60_000;

/// How long a node keeps a shard after its last look. A page that takes longer may be published twice.
const LEASE: Millis = 5_000;

/// How long an event is news. After six silences every feed has read it in the tables, and a publisher that
/// begins far back is sooner at what is new. A node whose clock is further ahead publishes nothing.
const NEWS: Millis = 60_000;

/// A checkpoint outlives its shard's records, which DynamoDB keeps for a day.
const CHECKPOINT_KEPT_SECONDS: u64 = 2 * 24 * 3_600;

/// Takes a shard that is free, or keeps one that is ours.
const LEASE_SCRIPT: &str = "
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// Gives up a shard that is still ours. A plain DEL would end the lease of the next holder.
const GIVE_UP_SCRIPT: &str = "
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])";

/// Follows the streams and publishes the new events of the shards that it holds.
pub struct Publisher {
    house: AuctionHouse,
    id: String,
    /// None at first, and after a command that failed.
    redis: Option<RedisConnection>,
    shards: BTreeMap<Shard, Place>,
    /// When this node last looked for new shards: never since a shard has ended, until a look has succeeded.
    discovered_at: Option<Millis>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shard {
    table: &'static str,
    arn: String,
    id: String,
}

/// Where the publisher stands in a shard.
#[derive(Clone)]
enum Place {
    /// At the checkpoint.
    Unknown,
    At(String),
    /// At the checkpoint, after a read that failed.
    Failed,
    /// Given up then, after two in a row: another node may be able to read it.
    GivenUp(Millis),
    Ended,
}

impl Publisher {
    /// A publisher that goes on at the checkpoints, or begins with the oldest records. It looks for
    /// shards, and for Redis, when it first publishes.
    pub fn start(house: AuctionHouse) -> Self {
        Self {
            id: house.cloud.ids().next("publisher"),
            house,
            redis: None,
            shards: BTreeMap::new(),
            discovered_at: None,
        }
    }

    /// Publishes what has happened since the last time, at most one page of each shard. Gives how many events.
    /// A shard that fails or hangs is read again the next time, and stops no other shard; nor does the look
    /// for new ones, which comes after the known ones. Without Redis there is nothing to do: the pass ends.
    pub async fn publish_new(&mut self) -> Result<usize, CloudError> {
        let mut failed = Vec::new();
        let now = self.house.now();
        // A clock that was set back makes the wait no longer.
        let looked = |at: Millis| (at..at + DISCOVER_EVERY).contains(&now);
        let discovers = !self.discovered_at.is_some_and(looked);
        if discovers {
            self.discovered_at = Some(now);
        }
        let known = self.shards.clone();
        let mut published = self.publish_all(known.clone(), &mut failed).await;
        if discovers && self.redis.is_none() && !failed.is_empty() {
            self.discovered_at = None;
        } else if discovers {
            for table in SOURCES {
                if let Err(error) = self.discover(table).await {
                    self.discovered_at = None;
                    failed.push(error);
                }
            }
            let mut new = self.shards.clone();
            new.retain(|shard, _| !known.contains_key(shard));
            published += self.publish_all(new, &mut failed).await;
        }
        match failed.len() {
            0 => Ok(published),
            1 => Err(failed.remove(0)),
            _ => {
                let all: Vec<_> = failed.iter().map(ToString::to_string).collect();
                Err(CloudError::Other(all.join("; ")))
            }
        }
    }

    async fn publish_all(
        &mut self,
        shards: BTreeMap<Shard, Place>,
        failed: &mut Vec<CloudError>,
    ) -> usize {
        let mut published = 0;
        for (shard, place) in shards {
            match self.publish_shard(&shard, place).await {
                Ok(events) => published += events,
                Err(error) => {
                    failed.push(error);
                    if self.redis.is_none() {
                        break;
                    }
                }
            }
        }
        published
    }

    /// Finds the shards of a table's streams, and forgets those that DynamoDB no longer lists.
    async fn discover(&mut self, table: &'static str) -> Result<(), CloudError> {
        let mut listed = BTreeSet::new();
        for arn in self.streams_of(table).await? {
            let mut after = None;
            loop {
                let page = self.house.cloud.streams().describe_stream();
                let page = page.stream_arn(&arn).set_exclusive_start_shard_id(after);
                let Some(page) = patient(page.send()).await?.stream_description else {
                    break;
                };
                let ids = page.shards().iter().filter_map(|shard| shard.shard_id());
                listed.extend(ids.map(|id| Shard {
                    table,
                    arn: arn.clone(),
                    id: id.to_owned(),
                }));
                after = page.last_evaluated_shard_id;
                if after.is_none() {
                    break;
                }
            }
        }
        // A shard that has ended keeps its place while it is listed, so that it is not begun again.
        self.shards
            .retain(|shard, _| shard.table != table || listed.contains(shard));
        for shard in listed {
            self.shards.entry(shard).or_insert(Place::Unknown);
        }
        Ok(())
    }

    async fn streams_of(&self, table: &str) -> Result<Vec<String>, CloudError> {
        let streams = self.house.cloud.streams().list_streams();
        let listed = patient(streams.table_name(self.house.table(table)).send()).await?;
        let listed = listed.streams.unwrap_or_default();
        Ok(listed.into_iter().filter_map(|it| it.stream_arn).collect())
    }

    /// Publishes a page of a shard that this node holds, or as much of it as there is time for: a checkpoint says
    /// how far it got, and the next pass goes on there.
    async fn publish_shard(&mut self, shard: &Shard, place: Place) -> Result<usize, CloudError> {
        let now = self.house.now();
        match place {
            Place::Ended => return Ok(0),
            Place::GivenUp(at) if (at..at + LEASE).contains(&now) => return Ok(0),
            _ => {}
        }
        let begun = Instant::now();
        if !self.holds(shard).await? {
            // The holder moves the checkpoint.
            self.shards.insert(shard.clone(), Place::Unknown);
            return Ok(0);
        }
        let failed_before = matches!(place, Place::Failed);
        let page = match self.read(shard, place).await {
            Ok(Some(page)) => page,
            Ok(None) => return Ok(0),
            Err(error) if self.redis.is_none() => return Err(error),
            Err(error) => {
                let failed = match failed_before {
                    true => self.give_up(shard).await,
                    false => Place::Failed,
                };
                self.shards.insert(shard.clone(), failed);
                return Err(error);
            }
        };
        // Until the whole page is said, the checkpoint knows the place.
        self.shards.insert(shard.clone(), Place::Unknown);
        let (mut published, mut last, mut failed) = (0, None, None);
        let mut records = page.records().iter();
        for record in records.by_ref() {
            if let Some(event) = event(record).filter(|_| is_news(record, now)) {
                if let Err(error) = self.publish(&event).await {
                    failed = Some(error);
                    break;
                }
                published += 1;
            }
            last = record
                .dynamodb()
                .and_then(|change| change.sequence_number());
            if begun.elapsed() >= PATIENCE {
                break;
            }
        }
        let whole = failed.is_none() && records.next().is_none();
        if let Some(sequence_number) = last {
            self.keep_checkpoint(shard, sequence_number).await?;
        }
        match (failed, page.next_shard_iterator) {
            (Some(error), _) => return Err(error),
            (None, Some(next)) if whole => {
                self.shards.insert(shard.clone(), Place::At(next));
            }
            (None, None) if whole => self.ended(shard),
            (None, _) => {}
        }
        Ok(published)
    }

    /// The next page of a shard, if there is one.
    async fn read(
        &mut self,
        shard: &Shard,
        place: Place,
    ) -> Result<Option<GetRecordsOutput>, CloudError> {
        let iterator = match place {
            Place::At(iterator) => Some(iterator),
            _ => self.iterator(shard).await?,
        };
        let Some(iterator) = iterator else {
            self.ended(shard);
            return Ok(None);
        };
        let records = self.house.cloud.streams().get_records();
        match in_time(records.shard_iterator(iterator).send()).await? {
            Ok(page) => Ok(Some(page)),
            // An iterator lives for a quarter of an hour.
            Err(error)
                if matches!(
                    error.code(),
                    Some("ExpiredIteratorException" | "TrimmedDataAccessException")
                ) =>
            {
                self.shards.insert(shard.clone(), Place::Unknown);
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Lets another node have a shard that this one cannot read. If Redis does not hear it, the lease ends by itself.
    async fn give_up(&mut self, shard: &Shard) -> Place {
        let mut give_up = redis::cmd("EVAL");
        give_up.arg(GIVE_UP_SCRIPT).arg(1);
        give_up.arg(self.key("lease", shard)).arg(&self.id);
        let _: Result<i64, CloudError> = self.ask(give_up).await;
        Place::GivenUp(self.house.now())
    }

    /// A shard that ended has children: look for them.
    fn ended(&mut self, shard: &Shard) {
        self.shards.insert(shard.clone(), Place::Ended);
        self.discovered_at = None;
    }

    /// An iterator after the checkpoint, or at the oldest record that DynamoDB still has.
    async fn iterator(&mut self, shard: &Shard) -> Result<Option<String>, CloudError> {
        let iterator = self.house.cloud.streams().get_shard_iterator();
        let iterator = iterator.stream_arn(&shard.arn).shard_id(&shard.id);
        if let Some(after) = self.checkpoint(shard).await? {
            let given = iterator
                .clone()
                .shard_iterator_type(ShardIteratorType::AfterSequenceNumber)
                .sequence_number(after)
                .send();
            match in_time(given).await? {
                Ok(given) => return Ok(given.shard_iterator),
                Err(error) if error.code() == Some("TrimmedDataAccessException") => {}
                Err(error) => return Err(error.into()),
            }
        }
        let oldest = iterator.shard_iterator_type(ShardIteratorType::TrimHorizon);
        Ok(patient(oldest.send()).await?.shard_iterator)
    }

    async fn holds(&mut self, shard: &Shard) -> Result<bool, CloudError> {
        let mut take = redis::cmd("EVAL");
        take.arg(LEASE_SCRIPT).arg(1).arg(self.key("lease", shard));
        take.arg(&self.id).arg(LEASE);
        self.ask(take).await
    }

    async fn checkpoint(&mut self, shard: &Shard) -> Result<Option<String>, CloudError> {
        let key = self.key("checkpoint", shard);
        self.ask(redis::Cmd::get(key)).await
    }

    async fn keep_checkpoint(&mut self, shard: &Shard, last: &str) -> Result<(), CloudError> {
        let key = self.key("checkpoint", shard);
        let keep = redis::Cmd::set_ex(key, last, CHECKPOINT_KEPT_SECONDS);
        self.ask(keep).await
    }

    async fn publish(&mut self, event: &Event) -> Result<(), CloudError> {
        let text = serde_json::to_string(event).map_err(CloudError::corrupt)?;
        let channel = self.house.cloud.names().key(CHANNEL);
        self.ask(redis::Cmd::publish(channel, text)).await
    }

    fn key(&self, what: &str, shard: &Shard) -> String {
        let key = format!("{what}:{}:{}", shard.table, shard.id);
        self.house.cloud.names().key(&key)
    }

    /// Asks Redis. A connection that failed is dropped, and the next command makes another: a host that is gone
    /// without a word, and a primary that became a replica, end no connection.
    async fn ask<T: redis::FromRedisValue>(
        &mut self,
        command: redis::Cmd,
    ) -> Result<T, CloudError> {
        let redis = match &mut self.redis {
            Some(redis) => redis,
            none => none.insert(patient(self.house.cloud.redis_anew()).await?),
        };
        let answer = patient(command.query_async(redis)).await;
        if answer.is_err() {
            self.redis = None;
        }
        answer
    }
}

fn is_news(record: &Record, now: Millis) -> bool {
    let change = record.dynamodb.as_ref();
    let made = change.and_then(|change| change.approximate_creation_date_time.as_ref());
    let made = made.and_then(|made| made.to_millis().ok());
    made.is_none_or(|made| made > now - NEWS)
}

/// What a stream record means to subscribers, if anything.
fn event(record: &Record) -> Option<Event> {
    let image = record.dynamodb.as_ref()?.new_image.as_ref()?;
    let text = |name: &str| image.get(name)?.as_s().ok().cloned();
    let number = |name: &str| image.get(name)?.as_n().ok()?.parse().ok();
    if image.contains_key("bid_id") {
        let accepted = text("status")? == "ACCEPTED";
        return accepted.then(|| {
            Some(Event {
                auction_id: text("auction_id")?,
                sequence: image.get("bid_sequence").and_then(sequence)?,
                status: Status::Open,
                best_amount: number("price_after"),
                best_bidder_id: text("leader_after"),
                end_time: number("end_after")?,
            })
        })?;
    }
    // An auction: only its closing is news; its bids come from their own table. Who won stands
    // in a third one, so this only says that there is something to read.
    Some(Event {
        auction_id: text("auction_id")?,
        sequence: image.get("final_sequence").and_then(sequence)?,
        status: Status::Closed,
        best_amount: None,
        best_bidder_id: None,
        end_time: number("end_time")?,
    })
}

fn sequence(value: &AttributeValue) -> Option<u64> {
    value.as_n().ok()?.parse().ok()
}
