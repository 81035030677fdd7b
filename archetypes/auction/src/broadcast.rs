//! Broadcast: from the tables' streams over Redis to every subscriber, in order, without gaps.
//!
//! ```text
//! bids, auctions ──stream──▶ Publisher ──PUBLISH──▶ Redis ──▶ Hub (one a node) ──▶ subscribers
//! ```
//!
//! The way is allowed to be bad: a stream shows the records of one transaction at different
//! times, two publishers say everything twice, Redis forgets what nobody hears. So nothing on the
//! way is trusted. Every event carries its `sequence`; a subscriber takes only the next one, drops
//! what it has seen, and reads what it has missed from the history.

use crate::AuctionHouse;
use crate::domain::{Amount, Status};
use crate::items::{BidState, BidStatus};
use aws_sdk_dynamodbstreams::error::ProvideErrorMetadata;
use aws_sdk_dynamodbstreams::types::{AttributeValue, Record, ShardIteratorType};
use cloud::{CloudError, Millis, RedisConnection};
use futures::{Stream, StreamExt};
use redis::AsyncCommands;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

/// Something a subscriber sees. Events of one auction are numbered without gaps: each accepted
/// bid has its sequence, the closing has the next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Which auction.
    pub auction_id: String,
    /// Its number, and the SSE id to resume from.
    pub sequence: u64,
    /// OPEN for a bid, CLOSED for the end.
    pub status: Status,
    /// The price now; at the end, what the winner pays, if anybody won.
    pub best_amount: Option<Amount>,
    /// Who leads; at the end, who won.
    pub best_bidder_id: Option<String>,
    /// When it ends.
    pub end_time: Millis,
}

impl From<&BidState> for Event {
    fn from(bid: &BidState) -> Self {
        Self {
            auction_id: bid.auction_id.clone(),
            sequence: bid.sequence.unwrap_or_default(),
            status: Status::Open,
            best_amount: bid.price_after,
            best_bidder_id: bid.leader_after.clone(),
            end_time: bid.end_after.unwrap_or_default(),
        }
    }
}

/// The Redis channel all nodes listen on.
const CHANNEL: &str = "events";

/// The tables whose streams are followed: accepted bids, and auctions for their closing.
const SOURCES: [&str; 2] = ["bids", "auctions"];

/// Follows the streams and publishes what is new. One is enough; two only say it twice.
pub struct Publisher {
    house: AuctionHouse,
    redis: RedisConnection,
    /// Where it stands in each shard; nowhere in one that has ended.
    shards: BTreeMap<Shard, Option<String>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Shard {
    table: &'static str,
    arn: String,
    id: String,
}

impl Publisher {
    /// A publisher that begins with what happens from the start of the streams on.
    pub async fn start(house: AuctionHouse) -> Result<Self, CloudError> {
        let redis = house.cloud.redis().await?;
        let mut publisher = Self {
            house,
            redis,
            shards: BTreeMap::new(),
        };
        publisher.discover().await?;
        Ok(publisher)
    }

    /// Finds shards that are new. Streams split and close their shards every few hours.
    async fn discover(&mut self) -> Result<(), CloudError> {
        let streams = self.house.cloud.streams();
        for table in SOURCES {
            let real = self.house.table(table);
            let listed = streams.list_streams().table_name(&real).send().await;
            let listed = listed.map_err(CloudError::from)?;
            for arn in listed
                .streams()
                .iter()
                .filter_map(|stream| stream.stream_arn())
            {
                let mut after = None;
                loop {
                    let page = streams.describe_stream().stream_arn(arn);
                    let page = page.set_exclusive_start_shard_id(after).send().await;
                    let Some(page) = page.map_err(CloudError::from)?.stream_description else {
                        break;
                    };
                    for id in page.shards().iter().filter_map(|shard| shard.shard_id()) {
                        let shard = Shard {
                            table,
                            arn: arn.to_owned(),
                            id: id.to_owned(),
                        };
                        if !self.shards.contains_key(&shard) {
                            let iterator = self.beginning(&shard).await?;
                            self.shards.insert(shard, iterator);
                        }
                    }
                    after = page.last_evaluated_shard_id;
                    if after.is_none() {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// An iterator at the oldest record of a shard.
    async fn beginning(&self, shard: &Shard) -> Result<Option<String>, CloudError> {
        let iterator = self
            .house
            .cloud
            .streams()
            .get_shard_iterator()
            .stream_arn(&shard.arn)
            .shard_id(&shard.id)
            .shard_iterator_type(ShardIteratorType::TrimHorizon)
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(iterator.shard_iterator)
    }

    /// Publishes everything that has happened since the last time. Returns how many events.
    pub async fn publish_new(&mut self) -> Result<usize, CloudError> {
        let mut events = Vec::new();
        let mut moved = Vec::new();
        for (shard, iterator) in &self.shards {
            let Some(iterator) = iterator else { continue };
            let records = self.house.cloud.streams().get_records();
            match records.shard_iterator(iterator).send().await {
                Ok(page) => {
                    events.extend(page.records().iter().filter_map(event));
                    moved.push((shard.clone(), page.next_shard_iterator));
                }
                // An iterator lives for a quarter of an hour. Begin again: what is said twice is
                // dropped by whoever has heard it.
                Err(error)
                    if matches!(
                        error.code(),
                        Some("ExpiredIteratorException" | "TrimmedDataAccessException")
                    ) =>
                {
                    moved.push((shard.clone(), self.beginning(shard).await?));
                }
                Err(error) => return Err(error.into()),
            }
        }
        for event in &events {
            let text = serde_json::to_string(event).map_err(CloudError::corrupt)?;
            let channel = self.house.cloud.names().key(CHANNEL);
            let () = self.redis.publish(channel, text).await?;
        }
        // Only now: what could not be published is read again.
        let ended = moved.iter().any(|(_, iterator)| iterator.is_none());
        self.shards.extend(moved);
        // A shard that ended has children. Its key stays, so that it is not begun again.
        if ended {
            self.discover().await?;
        }
        Ok(events.len())
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

/// A node's ear on Redis: one subscription, handed on to all its subscribers.
#[derive(Clone)]
pub struct Hub {
    house: AuctionHouse,
    live: broadcast::Sender<Event>,
    /// How long a subscriber believes silence. The last event before a quiet hour may be the
    /// one that was lost, and no later one would show the gap.
    believes_silence: Duration,
}

impl Hub {
    /// Begins to listen. Ends when the last clone is gone.
    pub async fn start(house: AuctionHouse) -> Result<Self, CloudError> {
        let failed = |error: &dyn std::fmt::Display| CloudError::Other(error.to_string());
        let subscriber = subscribe(&house).await.map_err(|error| failed(&error))?;
        let (live, _) = broadcast::channel(1_024);
        tokio::spawn(listen(house.clone(), subscriber, live.downgrade()));
        Ok(Self {
            house,
            live,
            believes_silence: Duration::from_secs(10),
        })
    }

    /// A hub whose subscribers look into the tables after this much silence.
    pub fn believing_silence(self, believes_silence: Duration) -> Self {
        Self {
            believes_silence,
            ..self
        }
    }

    /// The events of an auction after a given one, in order, each once, until it closes.
    pub fn follow(
        &self,
        auction_id: &str,
        after: u64,
    ) -> impl Stream<Item = Result<Event, CloudError>> + use<> {
        let (house, auction_id) = (self.house.clone(), auction_id.to_owned());
        let believes_silence = self.believes_silence;
        // Listen first, read then: what happens in between is heard.
        let mut live = self.live.subscribe();
        async_stream::try_stream! {
            let mut last = after;
            let mut behind = true;
            let mut silence_ends = Instant::now() + believes_silence;
            loop {
                if behind {
                    for missed in house.events_after(&auction_id, last).await? {
                        last = missed.sequence;
                        let over = missed.status == Status::Closed;
                        yield missed;
                        if over { return }
                    }
                    silence_ends = Instant::now() + believes_silence;
                }
                // Other auctions' news does not break this one's silence.
                behind = match tokio::time::timeout_at(silence_ends, live.recv()).await {
                    Ok(Ok(event)) if event.auction_id != auction_id || event.sequence <= last => false,
                    Ok(Ok(event)) if event.sequence == last + 1 && event.status == Status::Open => {
                        last = event.sequence;
                        silence_ends = Instant::now() + believes_silence;
                        yield event;
                        false
                    }
                    // A gap, the end, too slow for the channel, or long silence: the tables know.
                    Ok(Ok(_) | Err(RecvError::Lagged(_))) | Err(_) => true,
                    Ok(Err(RecvError::Closed)) => return,
                };
            }
        }
    }
}

async fn subscribe(
    house: &AuctionHouse,
) -> Result<redis::aio::PubSub, Box<dyn Error + Send + Sync>> {
    let mut subscriber = house.cloud.redis_subscriber().await?;
    subscriber
        .subscribe(house.cloud.names().key(CHANNEL))
        .await?;
    Ok(subscriber)
}

/// Hands on what it hears, until nobody is left to hear it. A subscription that breaks is made
/// again; what was missed meanwhile, the subscribers find in the tables.
async fn listen(
    house: AuctionHouse,
    subscriber: redis::aio::PubSub,
    live: broadcast::WeakSender<Event>,
) {
    let mut messages = subscriber.into_on_message();
    loop {
        while let Some(message) = messages.next().await {
            let text: String = message.get_payload().unwrap_or_default();
            let Some(live) = live.upgrade() else { return };
            if let Ok(event) = serde_json::from_str(&text) {
                // Nobody listening is no error.
                let _ = live.send(event);
            }
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        if live.strong_count() == 0 {
            return;
        }
        if let Ok(again) = subscribe(&house).await {
            messages = again.into_on_message();
        }
    }
}

impl AuctionHouse {
    /// The events of an auction after a given one, from the tables alone.
    pub async fn events_after(
        &self,
        auction_id: &str,
        after: u64,
    ) -> Result<Vec<Event>, CloudError> {
        // The auction first: what is written after it was read is in the history read after it.
        let window = self.read_window(auction_id).await?;
        let bids = self.history_after(auction_id, after).await?;
        let mut events: Vec<Event> = bids
            .iter()
            .filter(|bid| bid.status == BidStatus::Accepted)
            .map(Event::from)
            .collect();
        if let Some(window) = window
            && let Some(sequence) = window.auction.final_sequence.filter(|last| *last > after)
        {
            let winner = self.read_winner(auction_id).await?;
            events.push(Event {
                auction_id: auction_id.to_owned(),
                sequence,
                status: Status::Closed,
                best_amount: winner.as_ref().map(|winner| winner.winning_amount),
                best_bidder_id: winner.map(|winner| winner.bidder_id),
                end_time: window.auction.end_time,
            });
        }
        Ok(events)
    }
}
