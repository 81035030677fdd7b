//! An auction house to try things on, and the invariants that every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

use auction::domain::{AuctionWinnerState, NewBid, Offer, Status};
use auction::items::{BidState, BidStatus};
use auction::{AuctionHouse, BidOutcome, Closing, Ends, Layout, NewAuction, Rejection};
use chaos::{Interleave, World};
use cloud::item::from_item;
use cloud::tap::{Plan, Request, Verdict};
use cloud::{Clock, Cloud, Millis};
use futures::future::BoxFuture;
use std::collections::HashSet;
use std::time::Duration;

/// How long auctions last here.
pub const LASTS: Millis = 3_600_000;

/// Longer than any test waits.
pub const HOUR: Duration = Duration::from_secs(3_600);

/// Runs a test on both layouts: the promises are the same.
#[macro_export]
macro_rules! on_both_layouts {
    ($($name:ident),+ $(,)?) => {
        chaos::on_each! {
            [one_item: auction::Layout::OneItem, separate_best: auction::Layout::SeparateBest]
            { $($name),+ }
        }
    };
}

/// A house with one open auction, and a second view of it by somebody whose clock is ahead.
pub struct House {
    pub house: AuctionHouse,
    /// The same house seen with a clock past the end: closers and bidders never agree on now.
    pub late: AuctionHouse,
    pub layout: Layout,
    pub id: String,
}

impl World for House {
    fn cloud(&self) -> &Cloud {
        self.house.cloud()
    }
}

/// An auction from 100.00 EUR without reserve, soft close or buy-now; change what matters.
pub fn plain(cloud: &Cloud) -> NewAuction {
    NewAuction {
        auction_id: cloud.ids().next("auction"),
        item_id: "item".into(),
        seller_id: "sam".into(),
        title: "Brass telescope".into(),
        currency: "EUR".into(),
        starting_price: 100_00,
        reserve_price: None,
        buy_now_price: None,
        soft_close_ms: 0,
        ends: Ends::At(cloud.now() + LASTS),
    }
}

/// One that can be bought at once, for 900.00.
pub fn for_sale(auction: NewAuction) -> NewAuction {
    NewAuction {
        buy_now_price: Some(900_00),
        ..auction
    }
}

/// One whose end every bid moves.
pub fn soft_close(auction: NewAuction) -> NewAuction {
    NewAuction {
        soft_close_ms: 2 * LASTS,
        ..auction
    }
}

pub async fn open(layout: Layout) -> House {
    open_with(layout, |auction| auction).await
}

pub async fn open_with(layout: Layout, change: impl FnOnce(NewAuction) -> NewAuction) -> House {
    open_on(cloud::connect_for_tests().await.unwrap(), layout, change).await
}

/// A house on tables that no other test uses, on any backend: for whoever closes all that is due.
pub async fn open_alone(layout: Layout) -> House {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    open_on(cloud, layout, |auction| auction).await
}

async fn open_on(
    cloud: Cloud,
    layout: Layout,
    change: impl FnOnce(NewAuction) -> NewAuction,
) -> House {
    cloud.create_tables(auction::tables::TABLES).await.unwrap();
    let house = AuctionHouse::new(cloud.clone(), layout);
    let auction = house.create_auction(change(plain(&cloud))).await.unwrap();
    let past_the_end = Clock::manual(auction.end_time + 1);
    House {
        late: AuctionHouse::new(cloud.with_clock(past_the_end), layout),
        house,
        layout,
        id: auction.auction_id,
    }
}

/// What the tables say at the end.
pub struct End {
    pub bids: Vec<BidState>,
    pub winner: Option<AuctionWinnerState>,
}

impl House {
    /// A bid under an id of its own.
    pub fn bid(&self, bidder: &str, offer: Offer) -> NewBid {
        NewBid {
            auction_id: self.id.clone(),
            bid_id: format!("bid-of-{bidder}"),
            bidder_id: bidder.into(),
            offer,
            currency: "EUR".into(),
        }
    }

    pub async fn place(&self, bidder: &str, offer: Offer) -> BidOutcome {
        self.house
            .place_bid(&self.bid(bidder, offer))
            .await
            .unwrap()
    }

    pub async fn winner(&self) -> Option<AuctionWinnerState> {
        self.house.read_winner(&self.id).await.unwrap()
    }

    /// The winner, read beside the tap: for tests that made the weather bad.
    pub async fn winner_in_any_weather(&self) -> Option<AuctionWinnerState> {
        let beside = AuctionHouse::new(self.house.cloud().beside_tap(), Layout::OneItem);
        beside.read_winner(&self.id).await.unwrap()
    }

    /// Every bid, rejected ones too, read consistently from the table itself.
    pub async fn all_bids(&self) -> Vec<BidState> {
        let cloud = self.house.cloud().beside_tap();
        let scan = cloud.dynamodb().scan();
        let scan = scan.table_name(cloud.names().table("bids"));
        let mut pages = scan.consistent_read(true).into_paginator().items().send();
        let mut bids = Vec::new();
        while let Some(item) = pages.next().await {
            bids.push(from_item::<BidState>(&item.unwrap()).unwrap());
        }
        bids.retain(|bid| bid.auction_id == self.id);
        bids
    }

    /// The accepted bids in their order, from the table itself: the index may be late.
    pub async fn history(&self) -> Vec<BidState> {
        accepted(&self.all_bids().await)
    }

    /// Everything that must hold, however the story went. Gives what the tables say at the end.
    pub async fn invariants(&self) -> Result<End, String> {
        let window = self.house.read_window(&self.id).await.unwrap().unwrap();
        let all = self.all_bids().await;
        let history = accepted(&all);
        let shown = self.house.history_page(&self.id, 0, 1_000).await.unwrap();
        let ensure = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };

        let places: Vec<_> = history.iter().map(|bid| bid.sequence.unwrap()).collect();
        let expected: Vec<_> = (1..=window.best.sequence).collect();
        ensure(
            places == expected,
            format!("the history is {places:?}, the best says {expected:?}"),
        )?;
        ensure(
            history.starts_with(&shown),
            format!("the index shows {shown:?}"),
        )?;
        let ids: HashSet<_> = history.iter().map(|bid| &bid.bid_id).collect();
        ensure(
            ids.len() == history.len(),
            "a bid is in the history twice".into(),
        )?;

        let prices: Vec<_> = history.iter().map(|bid| bid.price_after.unwrap()).collect();
        ensure(
            prices.is_sorted(),
            format!("the best decreased: {prices:?}"),
        )?;
        ensure(
            prices.last().copied() == window.best.amount,
            format!(
                "the best is {:?}, the history ends with {prices:?}",
                window.best.amount
            ),
        )?;
        let ends: Vec<_> = history.iter().map(|bid| bid.end_after.unwrap()).collect();
        ensure(ends.is_sorted(), format!("the end moved back: {ends:?}"))?;
        let end = ends
            .last()
            .copied()
            .unwrap_or(window.auction.first_end_time);
        ensure(
            end == window.auction.end_time,
            format!(
                "it ends at {}, the history says {end}",
                window.auction.end_time
            ),
        )?;
        let leader = highest(&history);
        ensure(
            leader.map(|bid| &bid.bid_id) == window.best.bid_id.as_ref(),
            format!(
                "{:?} leads, but {leader:?} is the highest",
                window.best.bid_id
            ),
        )?;

        let winner = self.winner().await;
        if window.auction.status == Status::Open {
            ensure(winner.is_none(), "a winner of an open auction".into())?;
            return Ok(End { bids: all, winner });
        }
        let met = window.best.amount.unwrap_or(0) >= window.auction.reserve_price.unwrap_or(1);
        let wins = leader
            .filter(|_| met)
            .map(|bid| (&bid.bid_id, window.best.amount.unwrap()));
        let won = winner
            .as_ref()
            .map(|won| (&won.winning_bid_id, won.winning_amount));
        ensure(won == wins, format!("{won:?} won, {wins:?} should have"))?;
        ensure(
            window.auction.final_sequence == Some(window.best.sequence + 1),
            format!(
                "closed as event {:?} after {} bids",
                window.auction.final_sequence, window.best.sequence
            ),
        )?;
        Ok(End { bids: all, winner })
    }
}

/// The accepted bid that goes furthest, the earliest on ties. An oracle of its own: it looks at
/// nothing but the offers and their order.
pub fn highest(history: &[BidState]) -> Option<&BidState> {
    let mut best: Option<&BidState> = None;
    for bid in history {
        if best.is_none_or(|best| bid.amount > best.amount) {
            best = Some(bid);
        }
    }
    best
}

/// What an actor was told, whatever it did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Told {
    Bid(BidOutcome),
    Close(Closing),
}

impl Told {
    fn word(&self) -> &'static str {
        match self {
            Self::Bid(BidOutcome::Accepted { .. }) => "accepted",
            Self::Bid(BidOutcome::Rejected(Rejection::TooLow { .. })) => "too low",
            Self::Bid(BidOutcome::Rejected(_)) => "too late",
            Self::Close(Closing::Closed(_)) => "closed",
            Self::Close(Closing::Before(_)) => "closed before",
            Self::Close(Closing::NotDue { .. }) => "not due",
        }
    }
}

/// The label of an end: `alice accepted, bob too low, closer closed`.
fn label(told: &[(&'static str, Told)]) -> String {
    let words: Vec<_> = told
        .iter()
        .map(|(who, told)| format!("{who} {}", told.word()))
        .collect();
    words.join(", ")
}

/// After every order the invariants must hold, and what each actor was told must be what stands
/// in the tables.
pub fn checked(actors: Interleave<House, Told>) -> Interleave<House, Told> {
    actors.check(|house, told| async move {
        let end = house.invariants().await?;
        let closed: Vec<_> = told
            .iter()
            .filter(|(_, told)| matches!(told, Told::Close(Closing::Closed(_))))
            .collect();
        if closed.len() > 1 {
            return Err(format!("closed {} times", closed.len()));
        }
        for (who, told) in &told {
            match told {
                Told::Close(Closing::Closed(won) | Closing::Before(won)) if *won != end.winner => {
                    return Err(format!("{who} was told {won:?}, but {:?} won", end.winner));
                }
                Told::Bid(outcome) => {
                    let bid_id = format!("bid-of-{}", who.trim_end_matches("-again"));
                    let kept = end.bids.iter().find(|bid| bid.bid_id == bid_id);
                    let kept = kept.map(|bid| bid.outcome().unwrap());
                    if kept.as_ref() != Some(outcome) {
                        return Err(format!("{who} was told {outcome:?}, but {kept:?} is kept"));
                    }
                }
                Told::Close(_) => {}
            }
        }
        Ok(label(&told))
    })
}

/// The auctions that the index says are over.
pub async fn due(house: &AuctionHouse, at: Millis) -> Vec<String> {
    let mut due = Vec::new();
    for shard in auction::close_due::due_shards() {
        let (found, next) = house.due_page(&shard, at, None).await.unwrap();
        assert!(next.is_none(), "a test has one page");
        due.extend(found);
    }
    due
}

/// Redis loses the keys of this kind, as it does when a lease expires or a replica takes over.
pub async fn forget(house: &House, kind: &str) {
    let mut redis = house.house.cloud().redis().await.unwrap();
    let pattern = house.house.cloud().names().key(&format!("{kind}:*"));
    let keys: Vec<String> = redis::AsyncCommands::keys(&mut redis, pattern)
        .await
        .unwrap();
    // Redis refuses a DEL of nothing.
    if !keys.is_empty() {
        let _: usize = redis::AsyncCommands::del(&mut redis, keys).await.unwrap();
    }
}

/// Waits until a hub listens. A subscription makes every feed look: where this comes first, Redis brings the events.
pub async fn subscribed(house: &House) {
    let mut redis = house.house.cloud().redis().await.unwrap();
    let channel = house.house.cloud().names().key("events");
    let mut listening = 0;
    while listening == 0 {
        let said = redis::AsyncCommands::publish(&mut redis, &channel, "");
        listening = said.await.unwrap();
    }
}

fn accepted(all: &[BidState]) -> Vec<BidState> {
    let is = |bid: &&BidState| bid.status == BidStatus::Accepted;
    let mut accepted: Vec<_> = all.iter().filter(is).cloned().collect();
    accepted.sort_by_key(|bid| bid.sequence);
    accepted
}

/// Adds one who bids. `alice-again` sends the bid that `alice` sends.
pub fn bidder(
    actors: Interleave<House, Told>,
    name: &'static str,
    offer: Offer,
) -> Interleave<House, Told> {
    actors.actor(name, move |house| async move {
        Told::Bid(house.place(name.trim_end_matches("-again"), offer).await)
    })
}

/// Adds one who closes, and to whom the auction is over.
pub fn closer(actors: Interleave<House, Told>, name: &'static str) -> Interleave<House, Told> {
    actors.actor(name, |house| async move {
        Told::Close(house.late.close_auction(&house.id).await.unwrap())
    })
}

/// Adds one who buys at the fixed price.
pub fn buyer(actors: Interleave<House, Told>, name: &'static str) -> Interleave<House, Told> {
    actors.actor(name, move |house| async move {
        let bid_id = format!("bid-of-{name}");
        Told::Bid(house.house.buy_now(&house.id, &bid_id, name).await.unwrap())
    })
}

/// Adds Bob, who bids 130.00 and whose clock is half an hour behind: the end that he would set is
/// before the one that others set.
pub fn bob_behind(actors: Interleave<House, Told>, layout: Layout) -> Interleave<House, Told> {
    actors.actor("bob", move |house| async move {
        let cloud = house.house.cloud();
        let behind = Clock::manual(cloud.now() - LASTS / 2);
        let bobs = AuctionHouse::new(cloud.with_clock(behind), layout);
        let bid = house.bid("bob", Offer::Exactly(130_00));
        Told::Bid(bobs.place_bid(&bid).await.unwrap())
    })
}

/// A plan under which some calls take long before they are carried out.
pub struct Slow {
    by: Duration,
    which: fn(&Request) -> bool,
}

impl Slow {
    pub fn by(by: Duration, which: fn(&Request) -> bool) -> Self {
        Self { by, which }
    }
}

impl Plan for Slow {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if (self.which)(request) {
                let _ = tokio::time::timeout(self.by, std::future::pending::<()>()).await;
            }
            Verdict::Pass
        })
    }
}
