//! The documents' literal versions, and the order of calls in which each of them loses.
#![allow(clippy::unwrap_used)]

mod house;

use auction::domain::Status;
use auction::{Layout, Offer};
use aws_sdk_dynamodb::types::AttributeValue::{N, S};
use chaos::{CrashSweep, Interleave};
use cloud::{Guard, Guarded};
use house::{House, open};
use std::sync::Arc;

/// The documents' close and commit: three calls. First the guarded close …
async fn naive_close(house: &House) {
    let cloud = house.late.cloud();
    let closed = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("auctions"))
        .key("auction_id", S(house.id.clone()))
        .update_expression("SET #status = :closed")
        .condition_expression("#status = :open AND end_time <= :now")
        .expression_attribute_names("#status", "status")
        .expression_attribute_values(":open", S("OPEN".into()))
        .expression_attribute_values(":closed", S("CLOSED".into()))
        .expression_attribute_values(":now", N(cloud.now().to_string()))
        .send()
        .await
        .guarded()
        .unwrap();
    if matches!(closed, Guard::Failed(_)) {
        return; // not open, so somebody else has closed it, so all is done. Is it?
    }
    // … then "after close succeeds and BestBidState is read" the winner.
    let best = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("best_bids"))
        .key("auction_id", S(house.id.clone()))
        .consistent_read(true)
        .send()
        .await
        .unwrap()
        .item
        .unwrap();
    let Some(bid_id) = best.get("best_bid_id") else {
        return;
    };
    cloud
        .dynamodb()
        .put_item()
        .table_name(cloud.names().table("auction_winners"))
        .item("auction_id", S(house.id.clone()))
        .item("winning_bid_id", bid_id.clone())
        .item("bidder_id", best["best_bidder_id"].clone())
        .item("winning_amount", best["best_amount"].clone())
        .item("closed_at", N(cloud.now().to_string()))
        .send()
        .await
        .unwrap();
}

/// The documents' bid: read the auction's status, then update BestBid "only if the new amount is
/// higher and the auction is still OPEN". The second half of that condition cannot be written: the
/// status is on another item. So it was checked a moment ago.
async fn naive_bid(house: &House, bidder: &str, amount: i64) -> bool {
    let cloud = house.house.cloud();
    let auction = cloud
        .dynamodb()
        .get_item()
        .table_name(cloud.names().table("auctions"))
        .key("auction_id", S(house.id.clone()))
        .consistent_read(true)
        .send()
        .await
        .unwrap()
        .item
        .unwrap();
    if auction["status"] != S("OPEN".into()) {
        return false;
    }
    let updated = cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("best_bids"))
        .key("auction_id", S(house.id.clone()))
        .update_expression(
            "SET best_bid_id = :bid, best_bidder_id = :bidder, best_amount = :amount",
        )
        .condition_expression("attribute_not_exists(best_amount) OR best_amount < :amount")
        .expression_attribute_values(":bid", S(format!("bid-of-{bidder}")))
        .expression_attribute_values(":bidder", S(bidder.into()))
        .expression_attribute_values(":amount", N(amount.to_string()))
        .send()
        .await
        .guarded()
        .unwrap();
    matches!(updated, Guard::Passed(_))
}

/// Whoever was told "accepted" and bid the most must have won.
fn naive_race() -> Interleave<House, bool> {
    Interleave::of(|| async {
        let house = open(Layout::SeparateBest).await;
        assert!(naive_bid(&house, "alice", 110_00).await);
        house
    })
    .actor("bob", |house| async move {
        naive_bid(&house, "bob", 150_00).await
    })
    .actor("closer", |house| async move {
        naive_close(&house).await;
        true
    })
    .check(|house, told| async move {
        let winner = house.winner().await.unwrap().bidder_id;
        let (_, bob_accepted) = told[0];
        if bob_accepted && winner != "bob" {
            return Err(format!(
                "Bob's bid was accepted and is the best, but {winner} won"
            ));
        }
        Ok(format!("{winner} won"))
    })
}

#[tokio::test]
async fn row_16_a_naive_bid_lands_after_close() {
    // Bob reads OPEN; the closer closes, reads Alice's best and crowns her; Bob's bid lands.
    let order = "bob closer closer closer bob".parse().unwrap();
    let broken = naive_race().replay(&order).await.unwrap_err();
    assert_eq!(
        broken.why,
        "Bob's bid was accepted and is the best, but alice won"
    );
    // Nobody has to think of that order: the explorer finds it.
    let found = naive_race().run().await.unwrap_err();
    assert_eq!(found.why, broken.why);
}

#[tokio::test]
async fn row_17_a_naive_close_that_dies_leaves_no_winner() {
    let close = |house: Arc<House>| async move { naive_close(&house).await };
    let lost = CrashSweep::of(|| async {
        let house = open(Layout::SeparateBest).await;
        house.place("alice", Offer::Exactly(120_00)).await;
        house
    })
    .action("closer", close)
    // Any number of later closers: each finds it CLOSED and leaves.
    .recovery(close)
    .check(|house| async move {
        let window = house.house.read_window(&house.id).await.unwrap().unwrap();
        match (window.auction.status, house.winner().await) {
            (Status::Closed, None) => Err("CLOSED, and Alice's winning bid is nobody's".into()),
            _ => Ok(()),
        }
    })
    .run()
    .await
    .unwrap_err();
    assert_eq!(lost.why, "CLOSED, and Alice's winning bid is nobody's");
    assert_eq!(lost.point, "died after call 1 (UpdateItem auctions if)");
}
