//! Dies before and after every call; then life goes on; then the invariants must hold.
#![allow(clippy::unwrap_used)]

mod house;

use auction::{BidOutcome, Layout, NewAuction, Offer};
use chaos::{CrashSweep, Faults, Tokenless};
use house::{House, for_sale, open, open_alone, open_with, plain};
use std::sync::Arc;

on_both_layouts!(
    every_crash_point_of_place_bid_recovers,
    every_crash_point_of_rejecting_a_bid_recovers,
    every_crash_point_of_close_recovers,
    every_crash_point_of_closing_what_is_due_recovers,
    every_crash_point_of_buy_now_recovers,
    every_crash_point_of_create_auction_recovers,
    lost_requests_lost_answers_and_throttling_change_no_outcome,
);

async fn every_crash_point_of_place_bid_recovers(layout: Layout) {
    let bid = |house: Arc<House>| async move { house.place("alice", Offer::Exactly(120_00)).await };
    let swept = CrashSweep::of(move || open(layout))
        .action("bidder", bid)
        // The client does what clients do: it sends the same bid again.
        .recovery(bid)
        .check(|house| async move {
            house.invariants().await?;
            let history = house.history().await;
            match history.as_slice() {
                [bid] if bid.bidder_id == "alice" => Ok(()),
                other => Err(format!("expected one bid, found {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(
        swept.points.len(),
        4,
        "before and after the read and the write: {:?}",
        swept.points
    );
}

async fn every_crash_point_of_rejecting_a_bid_recovers(layout: Layout) {
    let bid = |house: Arc<House>| async move { house.place("bob", Offer::Exactly(100_00)).await };
    let setup = move || async move {
        let house = open(layout).await;
        house.place("alice", Offer::Exactly(120_00)).await;
        house
    };
    let swept = CrashSweep::of(setup)
        .action("bidder", bid)
        .recovery(bid)
        .check(|house| async move {
            house.invariants().await?;
            let outcome = house
                .house
                .bid_outcome(&house.id, "bid-of-bob")
                .await
                .unwrap();
            match outcome {
                Some(BidOutcome::Rejected(_)) => Ok(()),
                other => Err(format!("{other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 4, "{:?}", swept.points);
}

async fn with_two_bids(layout: Layout) -> House {
    two_bids_on(open(layout).await).await
}

async fn two_bids_on(house: House) -> House {
    house.place("alice", Offer::Exactly(120_00)).await;
    house.place("bob", Offer::Exactly(150_00)).await;
    house
}

/// Closed, with Bob as the winner.
async fn bob_won(house: Arc<House>) -> Result<(), String> {
    house.invariants().await?;
    match house.winner().await {
        Some(winner) if winner.bidder_id == "bob" => Ok(()),
        other => Err(format!("Bob should have won, not {other:?}")),
    }
}

async fn every_crash_point_of_close_recovers(layout: Layout) {
    let close = |house: Arc<House>| async move { house.late.close_auction(&house.id).await };
    let swept = CrashSweep::of(move || with_two_bids(layout))
        .action("closer", close)
        .recovery(close)
        .check(bob_won)
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 4, "{:?}", swept.points);
}

async fn every_crash_point_of_closing_what_is_due_recovers(layout: Layout) {
    let close_due = |house: Arc<House>| async move { house.late.close_due().await };
    let swept = CrashSweep::of(move || async move { two_bids_on(open_alone(layout).await).await })
        .action("closer", close_due)
        // The next closer finds through the index whatever this one left behind.
        .recovery(close_due)
        .check(bob_won)
        .run()
        .await
        .unwrap();
    assert_eq!(
        swept.points.len(),
        12,
        "four shards, a read and a write: {:?}",
        swept.points
    );
}

async fn every_crash_point_of_buy_now_recovers(layout: Layout) {
    let buy =
        |house: Arc<House>| async move { house.house.buy_now(&house.id, "purchase", "bob").await };
    let swept = CrashSweep::of(move || open_with(layout, for_sale))
        .action("buyer", buy)
        .recovery(buy)
        .check(bob_won)
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 4, "{:?}", swept.points);
}

async fn every_crash_point_of_create_auction_recovers(layout: Layout) {
    let create = |house: Arc<House>| async move {
        let new = NewAuction {
            auction_id: format!("{}-second", house.id),
            ..plain(house.house.cloud())
        };
        house.house.create_auction(new).await
    };
    let swept = CrashSweep::of(move || open(layout))
        .action("seller", create)
        .recovery(create)
        .check(|house| async move {
            let second = House {
                id: format!("{}-second", house.id),
                house: house.house.clone(),
                late: house.late.clone(),
                layout: house.layout,
            };
            second.invariants().await?;
            second.place("alice", Offer::Exactly(100_00)).await;
            second.invariants().await.map(|_| ())
        })
        .run()
        .await
        .unwrap();
    assert_eq!(swept.points.len(), 2, "{:?}", swept.points);
}

/// Thirty seeds of bad weather over the same three bids and a closing. A client that gets no answer
/// sends the same again until it gets one.
async fn lost_requests_lost_answers_and_throttling_change_no_outcome(layout: Layout) {
    let mut injected = 0;
    for seed in 0..30 {
        let house = open(layout).await;
        let faults = Arc::new(
            Faults::seeded(seed)
                .throttle(0.15)
                .lose_request(0.15)
                .lose_answer(0.15),
        );
        let tap = house.house.cloud().tap();
        let weather = (
            tap.install(Arc::new(Tokenless)),
            tap.install(faults.clone()),
        );
        for (bidder, amount) in [("alice", 120_00), ("bob", 100_00), ("carol", 200_00)] {
            let bid = house.bid(bidder, Offer::Exactly(amount));
            while house.house.place_bid(&bid).await.is_err() {}
        }
        while house.winner_in_any_weather().await.is_none() {
            let _ = house.late.close_auction(&house.id).await;
        }
        drop(weather);
        injected += faults.injected().values().sum::<usize>();
        house.invariants().await.unwrap();
        assert_eq!(
            house.winner().await.unwrap().bidder_id,
            "carol",
            "seed {seed}"
        );
        let history = house.history().await;
        assert_eq!(history.len(), 2, "seed {seed}");
    }
    assert!(
        injected > 100,
        "only {injected} faults: this proves nothing"
    );
}
