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
use cloud::{CloudError, Millis};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
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
pub(crate) const CHANNEL: &str = "events";

/// How long Redis may take to answer. It only carries events, so nothing waits longer for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What Redis answers, unless it takes too long.
pub(crate) async fn patient<T, E: Into<CloudError>>(
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, CloudError> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(CloudError::Unknown("Redis does not answer".into())),
    }
}

/// What the hub hands on.
#[derive(Clone)]
enum Heard {
    Event(Event),
    /// The subscription was made, or made again: what was said before was missed.
    Subscribed,
}

/// A node's ear on Redis: one subscription, handed on to all its subscribers.
#[derive(Clone)]
pub struct Hub {
    house: AuctionHouse,
    live: broadcast::Sender<Heard>,
    /// How long a subscriber believes silence. The last event before a quiet hour may be the
    /// one that was lost, and no later one would show the gap.
    believes_silence: Duration,
}

impl Hub {
    /// Begins to listen, in the background. Ends when the last clone is gone. Until Redis is there,
    /// subscribers have the tables.
    pub fn start(house: AuctionHouse) -> Self {
        let (live, _) = broadcast::channel(1_024);
        tokio::spawn(listen(house.clone(), live.downgrade()));
        Self {
            house,
            live,
            believes_silence: Duration::from_secs(10),
        }
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
                    Ok(Ok(Heard::Event(event))) if event.auction_id != auction_id || event.sequence <= last => false,
                    Ok(Ok(Heard::Event(event))) if event.sequence == last + 1 && event.status == Status::Open => {
                        last = event.sequence;
                        silence_ends = Instant::now() + believes_silence;
                        yield event;
                        false
                    }
                    // A gap, the end, too slow for the channel, a new subscription, or long silence: the
                    // tables know.
                    Ok(Ok(_) | Err(RecvError::Lagged(_))) | Err(_) => true,
                    Ok(Err(RecvError::Closed)) => return,
                };
            }
        }
    }
}

async fn subscribe(house: &AuctionHouse) -> Result<redis::aio::PubSub, CloudError> {
    let mut subscriber = patient(house.cloud.redis_subscriber()).await?;
    patient(subscriber.subscribe(house.cloud.names().key(CHANNEL))).await?;
    Ok(subscriber)
}

/// Subscribes and hands on what it hears, while there is a hub. A subscription that fails or breaks
/// is made again; what was missed meanwhile, the subscribers find in the tables.
async fn listen(house: AuctionHouse, live: broadcast::WeakSender<Heard>) {
    let mut failures = 0;
    while live.strong_count() > 0 {
        if let Ok(subscriber) = subscribe(&house).await {
            failures = 0;
            let Some(hub) = live.upgrade() else { return };
            // No receiver is no error, here and below.
            let _ = hub.send(Heard::Subscribed);
            drop(hub);
            let mut messages = subscriber.into_on_message();
            while let Some(message) = messages.next().await {
                let text: String = message.get_payload().unwrap_or_default();
                let Some(hub) = live.upgrade() else { return };
                if let Ok(event) = serde_json::from_str(&text) {
                    let _ = hub.send(Heard::Event(event));
                }
            }
        }
        // 0.1 s, 0.2 s, … 12.8 s.
        tokio::time::sleep(Duration::from_millis(100 << failures)).await;
        failures = (failures + 1).min(7);
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
