//! Broadcast: from the tables' streams over Redis to every subscriber, in order, without gaps.
//!
//! ```text
//! bids, auctions ──stream──▶ Publisher ──PUBLISH──▶ Redis ──▶ Hub (one a node) ──▶ Feed (one an auction) ──▶ watchers
//! ```
//!
//! The way is allowed to be bad: a stream shows the records of one transaction at different
//! times, a publisher repeats what its predecessor said, Redis forgets what is said while no hub listens. So
//! nothing on the way is trusted. Every event carries its `sequence`; a feed takes only the next one,
//! drops what it has seen, holds what comes early, and reads what it has missed from the history. It does so
//! once for all its watchers: a gap or a silence costs a node the same reads with one watcher and with a thousand.

use crate::AuctionHouse;
use crate::domain::{Amount, Status, Window};
use crate::items::BidState;
use cloud::{CloudError, Millis};
use futures::{Stream, StreamExt};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::task::AbortHandle;
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

/// How many events are read at once.
const PAGE: u64 = 100;

/// How many events a feed holds that came before the one that they follow.
const HELD: usize = 256;

/// How many events a feed remembers, for watchers that come late or are slow. The pages around a full hold, and
/// it, come at once.
const REMEMBERED: usize = HELD + 2 * PAGE as usize;

/// How long a reader waits before it asks the index again for a bid that it does not show yet.
const INDEX_LAG: Duration = Duration::from_millis(50);

/// The longest waits of a feed (0.8 s) and of a watcher that reads alone (12.8 s): what the feed has read, the index
/// shows to others soon.
const FEEDS_LAG: u32 = 4;
const WATCHERS_LAG: u32 = 8;

/// After so many looks in vain a gap is no lag: a row of the history may be gone.
const GAP_STAYS: u32 = 10;

/// How long to wait after so many looks in vain: 0.05 s, 0.1 s, …
fn index_lag(auction_id: &str, last: u64, in_vain: u32, longest: u32) -> Duration {
    if in_vain == GAP_STAYS {
        let next = last + 1;
        eprintln!("following {auction_id}: the history does not show event {next}");
    }
    INDEX_LAG * (1 << in_vain.min(longest))
}

/// How long one call on the way of an event may take. It only carries events, so nothing waits longer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

/// What a call answers, unless it takes too long.
pub(crate) async fn in_time<T>(asked: impl Future<Output = T>) -> Result<T, CloudError> {
    let late = |_| CloudError::Unknown("no answer in time".into());
    tokio::time::timeout(PATIENCE, asked).await.map_err(late)
}

/// The same, with its own failure.
pub(crate) async fn patient<T, E: Into<CloudError>>(
    asked: impl Future<Output = Result<T, E>>,
) -> Result<T, CloudError> {
    in_time(asked).await?.map_err(Into::into)
}

/// What the hub hands on.
#[derive(Clone)]
enum Heard {
    Event(Event),
    /// The subscription was made, or made again: what was said before was missed.
    Subscribed,
}

/// A node's ear on Redis: one subscription, and one [`Feed`] for each auction that is watched here.
#[derive(Clone)]
pub struct Hub {
    house: AuctionHouse,
    live: broadcast::Sender<Heard>,
    feeds: Feeds,
    /// How long a feed believes silence. The last event before a quiet hour may be the one that
    /// was lost, and no later one would show the gap.
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
            feeds: Feeds::default(),
            believes_silence: Duration::from_secs(10),
        }
    }

    /// A hub whose feeds look into the tables after this much silence.
    pub fn believing_silence(self, believes_silence: Duration) -> Self {
        Self {
            believes_silence,
            ..self
        }
    }

    /// The events of an auction after a given one, in order, each once, until it closes. After an
    /// event that does not exist: from the next one on.
    pub fn follow(
        &self,
        auction_id: &str,
        after: u64,
    ) -> impl Stream<Item = Result<Event, CloudError>> + use<> {
        let (house, feed) = (self.house.clone(), self.feed(auction_id));
        async_stream::try_stream! {
            let mut known = feed.known.clone();
            if known.wait_for(Known::has_begun).await.is_err() {
                return;
            }
            let (mut last, mut in_vain) = (after, 0);
            // Beyond what there is, or the feed is behind: the table tells which.
            if last > known.borrow().goal {
                last = last.min(house.last_event(&feed.auction_id).await?);
            }
            loop {
                let news = known.borrow_and_update().after(last);
                let news = match news {
                    News::Are(events) => events,
                    // Only the last event is no bid, and that one the feed remembers.
                    News::Older => {
                        let bids = house.history_page(&feed.auction_id, last, PAGE as usize).await?;
                        bids.iter().map(Event::from).collect()
                    }
                    News::Over => return,
                    News::None => {
                        if known.changed().await.is_err() {
                            return;
                        }
                        continue;
                    }
                };
                if news.is_empty() {
                    tokio::time::sleep(index_lag(&feed.auction_id, last, in_vain, WATCHERS_LAG)).await;
                    in_vain += 1;
                } else {
                    in_vain = 0;
                }
                for event in news {
                    last = event.sequence;
                    let over = event.status == Status::Closed;
                    yield event;
                    if over {
                        return;
                    }
                }
            }
        }
    }

    /// The number of the last event as the feed of an auction knows it, and whether it was the closing. None if the
    /// auction was not there. Costs no read where a feed runs: call [`Self::follow`] first.
    pub async fn last_known(&self, auction_id: &str) -> Result<Option<(u64, bool)>, CloudError> {
        let feed = self.feed(auction_id);
        let mut known = feed.known.clone();
        let begun = known.wait_for(Known::has_begun);
        let begun = patient(async { begun.await.map_err(CloudError::bug) }).await?;
        Ok(begun.there.then_some((begun.goal, begun.closed)))
    }

    /// The feed of an auction: the one that runs, or a new one.
    fn feed(&self, auction_id: &str) -> Arc<Feed> {
        let mut feeds = lock(&self.feeds);
        if let Some(feed) = feeds.get(auction_id).and_then(Weak::upgrade) {
            return feed;
        }
        let (tell, known) = watch::channel(Known::default());
        let feeding = feed(
            self.house.clone(),
            auction_id.to_owned(),
            self.live.subscribe(),
            tell,
            self.believes_silence,
        );
        let feed = Arc::new(Feed {
            auction_id: auction_id.to_owned(),
            known,
            feeds: Arc::clone(&self.feeds),
            task: tokio::spawn(feeding).abort_handle(),
        });
        feeds.insert(auction_id.to_owned(), Arc::downgrade(&feed));
        feed
    }
}

/// What [`AuctionHouse::events_after`] found.
#[derive(Debug, Default)]
pub struct Missed {
    /// The next events, in order and without gaps.
    pub events: Vec<Event>,
    /// The number of the last event there is. The index may not show it yet.
    pub last: u64,
}

type Feeds = Arc<Mutex<HashMap<String, Weak<Feed>>>>;

fn lock(feeds: &Feeds) -> MutexGuard<'_, HashMap<String, Weak<Feed>>> {
    feeds.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One auction on one node: a task that reads the tables once for all watchers. It ends with the
/// last of them.
struct Feed {
    auction_id: String,
    known: watch::Receiver<Known>,
    feeds: Feeds,
    task: AbortHandle,
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
        let mut feeds = lock(&self.feeds);
        // Another feed of this auction may have begun meanwhile.
        if feeds
            .get(&self.auction_id)
            .is_some_and(|it| it.strong_count() == 0)
        {
            feeds.remove(&self.auction_id);
        }
    }
}

/// What a feed knows.
#[derive(Default)]
struct Known {
    /// Whether the feed has read the auction once, and found it there.
    begun: bool,
    there: bool,
    /// The latest events, in order and without gaps.
    recent: VecDeque<Event>,
    /// The number of the last one.
    last: u64,
    /// The number of the last event that the feed wants: ahead of `last` while it catches up. It stays while the
    /// feed catches up, however many come meanwhile: those Redis brings, and the feed holds them.
    goal: u64,
    /// Whether that is the closing.
    closed: bool,
}

/// What a feed knows after a given event.
enum News {
    Are(Vec<Event>),
    None,
    /// There are some, and the feed no longer has them: page the history.
    Older,
    Over,
}

impl Known {
    fn has_begun(&self) -> bool {
        self.begun
    }

    fn is_behind(&self) -> bool {
        self.last < self.goal
    }

    fn is_over(&self) -> bool {
        self.closed && !self.is_behind()
    }

    fn after(&self, last: u64) -> News {
        match self.recent.front() {
            _ if last >= self.last && self.is_over() => News::Over,
            _ if last >= self.last => News::None,
            Some(first) if first.sequence <= last + 1 => {
                let news = self.recent.iter().filter(|event| event.sequence > last);
                News::Are(news.cloned().collect())
            }
            _ => News::Older,
        }
    }

    fn take(&mut self, events: impl IntoIterator<Item = Event>) {
        for event in events {
            self.last = event.sequence;
            self.goal = self.goal.max(self.last);
            self.closed |= event.status == Status::Closed;
            self.recent.push_back(event);
        }
        while self.recent.len() > REMEMBERED {
            self.recent.pop_front();
        }
    }
}

/// Keeps `known` up to date: the next event from Redis as it is, anything else from the tables.
async fn feed(
    house: AuctionHouse,
    auction_id: String,
    mut live: broadcast::Receiver<Heard>,
    known: watch::Sender<Known>,
    believes_silence: Duration,
) {
    // Events that came before the one that they follow.
    let mut held = BTreeMap::new();
    let (mut failures, mut in_vain) = (0, 0);
    let mut look_at = Instant::now();
    // Whether the next look asks for all that there is then.
    let mut for_all = true;
    while !known.borrow().is_over() {
        let last = known.borrow().last;
        tokio::select! {
            biased;
            () = tokio::time::sleep_until(look_at) => {
                for_all |= !known.borrow().is_behind();
                match patient(look(&house, &auction_id, &known, for_all)).await {
                    Ok(there_is) => {
                        (failures, for_all) = (0, false);
                        // Beyond that, Redis spoke of another life of this auction.
                        held.split_off(&(there_is + 1));
                        let found = known.borrow().last - last;
                        let behind = known.borrow().is_behind();
                        in_vain = if behind && found == 0 { in_vain + 1 } else { 0 };
                        look_at = Instant::now() + match found {
                            _ if !behind => believes_silence,
                            PAGE.. => Duration::ZERO,
                            _ => index_lag(&auction_id, last, in_vain, FEEDS_LAG),
                        };
                    }
                    Err(error) => {
                        eprintln!("following {auction_id}: {error}");
                        look_at = Instant::now() + backed_off(&mut failures);
                    }
                }
            }
            heard = live.recv() => match heard {
                // Other auctions' news does not break this one's silence.
                Ok(Heard::Event(event))
                    if event.auction_id != auction_id || event.sequence <= last =>
                {
                    continue;
                }
                Ok(Heard::Event(event)) if event.status == Status::Open => {
                    if held.len() < HELD {
                        held.insert(event.sequence, event);
                    }
                }
                // The end, too slow for the channel, or a new subscription: the tables know.
                Ok(_) | Err(RecvError::Lagged(_)) => (look_at, for_all) = (Instant::now(), true),
                Err(RecvError::Closed) => return,
            },
        }
        if !known.borrow().begun {
            continue;
        }
        let last = known.borrow().last;
        held = held.split_off(&(last + 1));
        if held.contains_key(&(last + 1)) {
            known.send_modify(|known| {
                while let Some(next) = held.remove(&(known.last + 1)) {
                    known.take([next]);
                }
            });
            if !known.borrow().is_behind() && !for_all {
                look_at = Instant::now() + believes_silence;
            }
        }
        if let Some((first, _)) = held.first_key_value()
            && !known.borrow().is_behind()
        {
            // A gap. What fills it may be on its way.
            known.send_modify(|known| known.goal = first - 1);
            look_at = look_at.min(Instant::now() + INDEX_LAG);
        }
    }
}

/// Reads the next page of what the feed lacks, and gives the number of the last event that there is.
async fn look(
    house: &AuctionHouse,
    auction_id: &str,
    known: &watch::Sender<Known>,
    for_all: bool,
) -> Result<u64, CloudError> {
    if !known.borrow().begun {
        let window = house.read_window(auction_id).await?;
        known.send_modify(|known| {
            known.begun = true;
            if let Some(window) = window {
                known.there = true;
                known.goal = window.last_event();
                known.closed = window.auction.final_sequence.is_some();
            }
            // Most watchers are not far behind, and find the latest page here.
            known.last = known.goal.saturating_sub(PAGE);
        });
    }
    let last = known.borrow().last;
    let missed = house.events_after(auction_id, last).await?;
    known.send_modify(|known| {
        known.goal = match for_all {
            true => missed.last,
            false => known.goal.min(missed.last),
        };
        known.take(missed.events);
    });
    Ok(missed.last)
}

async fn subscribe(house: &AuctionHouse) -> Result<redis::aio::PubSub, CloudError> {
    let mut subscriber = patient(house.cloud.redis_subscriber()).await?;
    patient(subscriber.subscribe(house.cloud.names().key(CHANNEL))).await?;
    Ok(subscriber)
}

/// 0.1 s, 0.2 s, … at most 12.8 s.
fn backed_off(failures: &mut u32) -> Duration {
    let wait = Duration::from_millis(100 << *failures);
    *failures = (*failures + 1).min(7);
    wait
}

/// Subscribes and hands on what it hears, while there is a hub. A subscription that fails, breaks or is dead is
/// made again; what was missed meanwhile, the feeds find in the tables.
async fn listen(house: AuctionHouse, live: broadcast::WeakSender<Heard>) {
    let mut failures = 0;
    while live.strong_count() > 0 {
        if let Ok(subscriber) = subscribe(&house).await {
            let Some(hub) = live.upgrade() else { return };
            // No receiver is no error, here and below.
            let _ = hub.send(Heard::Subscribed);
            drop(hub);
            let (mut redis, mut messages) = subscriber.split();
            loop {
                let message = match tokio::time::timeout(PATIENCE, messages.next()).await {
                    Ok(Some(message)) => message,
                    Ok(None) => break,
                    // A host that is gone ends no connection, so silence is asked whether it lives.
                    Err(_) => match patient(redis.ping::<redis::Value>()).await {
                        Ok(_) if live.strong_count() == 0 => return,
                        Ok(_) => {
                            failures = 0;
                            continue;
                        }
                        Err(_) => break,
                    },
                };
                failures = 0;
                let text: String = message.get_payload().unwrap_or_default();
                let Some(hub) = live.upgrade() else { return };
                if let Ok(event) = serde_json::from_str(&text) {
                    let _ = hub.send(Heard::Event(event));
                }
            }
        }
        tokio::time::sleep(backed_off(&mut failures)).await;
    }
}

impl AuctionHouse {
    /// The number of the last event so far; 0 before the first bid.
    pub async fn last_event(&self, auction_id: &str) -> Result<u64, CloudError> {
        let window = self.read_window(auction_id).await?;
        Ok(window.map_or(0, |window| window.last_event()))
    }

    /// The events of an auction after a given one, from the tables alone: the next hundred of them.
    pub async fn events_after(&self, auction_id: &str, after: u64) -> Result<Missed, CloudError> {
        let Some(window) = self.read_window(auction_id).await? else {
            return Ok(Missed::default());
        };
        let mut events: Vec<Event> = Vec::new();
        if window.best.sequence > after {
            let bids = self.history_page(auction_id, after, PAGE as usize).await?;
            events.extend(bids.iter().map(Event::from));
        }
        let last = events.last().map_or(after, |event| event.sequence);
        if let Some(sequence) = window.auction.final_sequence
            && sequence == last + 1
            && events.len() < PAGE as usize
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
        // The index may be ahead of the window, which was read first.
        let last = events.last().map_or(0, |event| event.sequence);
        Ok(Missed {
            last: window.last_event().max(last),
            events,
        })
    }
}

impl Window {
    /// The number of the last event: the closing, or the latest bid.
    pub(crate) fn last_event(&self) -> u64 {
        self.auction.final_sequence.unwrap_or(self.best.sequence)
    }
}
