//! The publisher: reads the tables' streams and says on Redis what is new.
//!
//! At least once: a publisher that dies after PUBLISH says the same again, and subscribers drop it.

use crate::AuctionHouse;
use crate::broadcast::{CHANNEL, Event, patient};
use crate::domain::Status;
use aws_sdk_dynamodbstreams::error::ProvideErrorMetadata;
use aws_sdk_dynamodbstreams::types::{AttributeValue, Record, ShardIteratorType};
use cloud::{CloudError, Millis, RedisConnection};
use redis::AsyncCommands;
use std::collections::{BTreeMap, BTreeSet};

/// The tables whose streams are followed: accepted bids, and auctions for their closing.
const SOURCES: [&str; 2] = ["bids", "auctions"];

/// How often the publisher looks for new shards. Streams split by themselves every few hours.
const DISCOVER_EVERY: Millis = 60_000;

/// Follows the streams and publishes what is new. One is enough; two only say it twice.
pub struct Publisher {
    house: AuctionHouse,
    redis: Option<RedisConnection>,
    shards: BTreeMap<Shard, Place>,
    /// When to look for new shards: at once after a shard has ended, until it has succeeded.
    discover_at: Millis,
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
    Beginning,
    At(String),
    Ended,
}

impl Publisher {
    /// A publisher that begins with the oldest records. It looks for shards, and for Redis, when
    /// it first publishes.
    pub fn start(house: AuctionHouse) -> Self {
        Self {
            house,
            redis: None,
            shards: BTreeMap::new(),
            discover_at: Millis::MIN,
        }
    }

    /// Publishes what has happened since the last time, at most one page of each shard. Gives how
    /// many events. A shard that fails is read again the next time, and stops no other shard.
    pub async fn publish_new(&mut self) -> Result<usize, CloudError> {
        let mut published = 0;
        let mut failed = Vec::new();
        let now = self.house.now();
        if self.discover_at <= now {
            match self.discover().await {
                Ok(()) => self.discover_at = now + DISCOVER_EVERY,
                Err(error) => failed.push(error),
            }
        }
        for (shard, place) in self.shards.clone() {
            match self.publish_shard(&shard, place).await {
                Ok(events) => published += events,
                Err(error) => failed.push(error),
            }
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

    /// Finds the shards there are, and forgets those that DynamoDB no longer lists.
    async fn discover(&mut self) -> Result<(), CloudError> {
        let mut listed = BTreeSet::new();
        for table in SOURCES {
            for arn in self.streams_of(table).await? {
                let mut after = None;
                loop {
                    let page = self.house.cloud.streams().describe_stream();
                    let page = page.stream_arn(&arn).set_exclusive_start_shard_id(after);
                    let page = page.send().await.map_err(CloudError::from)?;
                    let Some(page) = page.stream_description else {
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
        }
        // A shard that has ended keeps its place while it is listed, so that it is not begun again.
        self.shards.retain(|shard, _| listed.contains(shard));
        for shard in listed {
            self.shards.entry(shard).or_insert(Place::Beginning);
        }
        Ok(())
    }

    async fn streams_of(&self, table: &str) -> Result<Vec<String>, CloudError> {
        let streams = self.house.cloud.streams().list_streams();
        let listed = streams.table_name(self.house.table(table)).send().await;
        let listed = listed
            .map_err(CloudError::from)?
            .streams
            .unwrap_or_default();
        Ok(listed.into_iter().filter_map(|it| it.stream_arn).collect())
    }

    /// Publishes a page of a shard. The place moves only after the last PUBLISH.
    async fn publish_shard(&mut self, shard: &Shard, place: Place) -> Result<usize, CloudError> {
        let iterator = match place {
            Place::Ended => return Ok(0),
            Place::At(iterator) => iterator,
            Place::Beginning => match self.beginning(shard).await? {
                Some(iterator) => iterator,
                None => return Ok(self.ended(shard)),
            },
        };
        let records = self.house.cloud.streams().get_records();
        let page = match records.shard_iterator(iterator).send().await {
            Ok(page) => page,
            // An iterator lives for a quarter of an hour. Begin again: subscribers drop what they
            // have heard.
            Err(error)
                if matches!(
                    error.code(),
                    Some("ExpiredIteratorException" | "TrimmedDataAccessException")
                ) =>
            {
                self.shards.insert(shard.clone(), Place::Beginning);
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        };
        let events: Vec<_> = page.records().iter().filter_map(event).collect();
        for event in &events {
            self.publish(event).await?;
        }
        match page.next_shard_iterator {
            Some(next) => {
                self.shards.insert(shard.clone(), Place::At(next));
            }
            None => {
                self.ended(shard);
            }
        }
        Ok(events.len())
    }

    /// A shard that ended has children: look for them.
    fn ended(&mut self, shard: &Shard) -> usize {
        self.shards.insert(shard.clone(), Place::Ended);
        self.discover_at = Millis::MIN;
        0
    }

    /// An iterator at the oldest record of a shard.
    async fn beginning(&self, shard: &Shard) -> Result<Option<String>, CloudError> {
        let iterator = self.house.cloud.streams().get_shard_iterator();
        let iterator = iterator
            .stream_arn(&shard.arn)
            .shard_id(&shard.id)
            .shard_iterator_type(ShardIteratorType::TrimHorizon);
        let given = iterator.send().await.map_err(CloudError::from)?;
        Ok(given.shard_iterator)
    }

    async fn publish(&mut self, event: &Event) -> Result<(), CloudError> {
        let text = serde_json::to_string(event).map_err(CloudError::corrupt)?;
        let channel = self.house.cloud.names().key(CHANNEL);
        let redis = match &mut self.redis {
            Some(redis) => redis,
            none => none.insert(patient(self.house.cloud.redis()).await?),
        };
        patient(redis.publish(channel, text)).await
    }
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
