//! One test for each promise of the README, on both realizations.
#![allow(clippy::unwrap_used)]

mod house;

use auction::broadcast::{Event, Hub};
use auction::domain::{AuctionState, BadInput, BestBidState, Status, Window, decide};
use auction::items::BidStatus;
use auction::publisher::Publisher;
use auction::{
    AuctionError, AuctionHouse, BidOutcome, Closing, Ends, Layout, NewAuction, NewBid, Offer,
    Rejection, increments,
};
use aws_sdk_dynamodb::types::AttributeValue;
use cloud::tap::{Call, Plan, Request, Verdict};
use cloud::{Clock, as_actor};
use futures::StreamExt;
use futures::future::BoxFuture;
use house::{LASTS, for_sale, open, open_alone, open_with, plain};
use proptest::prelude::*;
use serde_json::json;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

on_both_layouts!(
    the_winner_is_the_highest_accepted_bid_the_earliest_on_ties,
    the_best_never_decreases,
    exactly_one_winner_or_none_if_and_only_if_no_bid_met_the_reserve,
    each_bid_id_has_one_outcome,
    a_bid_id_used_for_another_bid_is_refused,
    history_holds_every_accepted_bid_once,
    history_is_ordered_by_the_guard_not_by_clocks,
    a_rejected_bid_is_kept_for_audit,
    a_lost_answer_is_resolved_by_asking,
    closing_twice_gives_the_same_winner,
    due_auctions_are_found_by_a_sparse_index,
    nothing_ever_scans,
    a_late_bid_moves_the_end_and_the_closer_respects_it,
    a_seller_cannot_bid_on_their_own_item,
    buy_now_ends_the_auction_and_only_before_the_first_bid,
    creating_twice_creates_once,
    bad_input_is_refused_before_any_write,
    a_subscriber_sees_every_price_once_in_order_and_never_lower,
    a_subscriber_resumes_where_it_was,
    a_lost_or_repeated_message_costs_a_subscriber_nothing,
    a_publisher_that_fails_says_the_rest_the_next_time,
    a_closed_auction_is_not_for_sale,
    a_slow_read_does_not_make_a_bid_late,
    a_conflict_with_another_transaction_is_tried_again,
    one_auction_that_cannot_be_closed_keeps_no_other_open,
    a_stale_index_only_delays_a_closing,
);

/// 32 bidders at once, some with equal offers.
async fn raced(layout: Layout) -> house::House {
    let house = Arc::new(open(layout).await);
    let outcomes = chaos::race(32, {
        let house = Arc::clone(&house);
        move |n| {
            let house = Arc::clone(&house);
            async move {
                let offer = Offer::Exactly(100_00 + (n as i64 / 2) * 10_00);
                house.place(&format!("bidder-{n:02}"), offer).await
            }
        }
    })
    .await;
    let accepted = outcomes
        .iter()
        .filter(|o| matches!(o, BidOutcome::Accepted { .. }))
        .count();
    assert!(accepted > 0);
    Arc::into_inner(house).unwrap()
}

async fn the_winner_is_the_highest_accepted_bid_the_earliest_on_ties(layout: Layout) {
    let house = raced(layout).await;
    house.late.close_auction(&house.id).await.unwrap();
    house.invariants().await.unwrap();
    let winner = house.winner().await.unwrap();
    assert_eq!(winner.winning_amount, 100_00 + 15 * 10_00);

    // A tie of maxima: whoever was first keeps the lead, at the full price.
    let tied = open(layout).await;
    tied.place("first", Offer::UpTo(300_00)).await;
    let second = tied.place("second", Offer::UpTo(300_00)).await;
    assert_eq!(
        second,
        BidOutcome::Accepted {
            sequence: 2,
            leading: false,
            price: 300_00
        }
    );
    tied.late.close_auction(&tied.id).await.unwrap();
    assert_eq!(tied.winner().await.unwrap().bidder_id, "first");
    tied.invariants().await.unwrap();
}

async fn the_best_never_decreases(layout: Layout) {
    let house = raced(layout).await;
    let history = house.history().await;
    assert!(history.is_sorted_by_key(|bid| bid.price_after));
    let low = house.place("late", Offer::Exactly(100_00)).await;
    assert!(matches!(
        low,
        BidOutcome::Rejected(Rejection::TooLow { .. })
    ));
    house.invariants().await.unwrap();
}

async fn exactly_one_winner_or_none_if_and_only_if_no_bid_met_the_reserve(layout: Layout) {
    for (offer, wins) in [
        (None, false),
        (Some(Offer::Exactly(149_99)), false),
        (Some(Offer::Exactly(150_00)), true),
        (Some(Offer::UpTo(150_00)), true),
        (Some(Offer::UpTo(149_99)), false),
    ] {
        let house = open_with(layout, |auction| NewAuction {
            reserve_price: Some(150_00),
            ..auction
        })
        .await;
        if let Some(offer) = offer {
            house.place("alice", offer).await;
        }
        let closing = house.late.close_auction(&house.id).await.unwrap();
        assert_eq!(house.winner().await.is_some(), wins, "{offer:?}");
        assert_eq!(closing, Closing::Closed(house.winner().await), "{offer:?}");
        house.invariants().await.unwrap();
    }
}

async fn each_bid_id_has_one_outcome(layout: Layout) {
    let house = Arc::new(open(layout).await);
    // Sixteen times at once …
    let outcomes = chaos::race(16, {
        let house = Arc::clone(&house);
        move |_| {
            let house = Arc::clone(&house);
            async move { house.place("alice", Offer::Exactly(120_00)).await }
        }
    })
    .await;
    let first = BidOutcome::Accepted {
        sequence: 1,
        leading: true,
        price: 120_00,
    };
    assert!(
        outcomes.iter().all(|outcome| *outcome == first),
        "{outcomes:?}"
    );
    // … and again when it would no longer be accepted, and when all is over.
    house.place("bob", Offer::Exactly(500_00)).await;
    assert_eq!(house.place("alice", Offer::Exactly(120_00)).await, first);
    house.late.close_auction(&house.id).await.unwrap();
    assert_eq!(house.place("alice", Offer::Exactly(120_00)).await, first);
    // A rejected one stays rejected, for the same reason.
    let late = house.place("carol", Offer::Exactly(1_000_00)).await;
    assert_eq!(late, BidOutcome::Rejected(Rejection::Over));
    assert_eq!(house.place("carol", Offer::Exactly(1_000_00)).await, late);
    house.invariants().await.unwrap();
}

async fn a_bid_id_used_for_another_bid_is_refused(layout: Layout) {
    let house = open(layout).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    let first = house.bid("alice", Offer::Exactly(120_00));
    for other in [
        NewBid {
            bidder_id: "mallory".into(),
            ..first.clone()
        },
        NewBid {
            offer: Offer::Exactly(200_00),
            ..first.clone()
        },
        NewBid {
            offer: Offer::UpTo(120_00),
            ..first.clone()
        },
    ] {
        let error = house.house.place_bid(&other).await.unwrap_err();
        assert!(matches!(error, AuctionError::IdTaken(_)), "{error}");
        // Nor is it told what became of the other one when no answer comes.
        let _deaf = house.house.cloud().tap().install(Arc::new(chaos::Deaf));
        let error = house.house.place_bid(&other).await.unwrap_err();
        assert!(matches!(error, AuctionError::IdTaken(_)), "{error}");
    }
    house.invariants().await.unwrap();
}

async fn history_holds_every_accepted_bid_once(layout: Layout) {
    let house = raced(layout).await;
    house.invariants().await.unwrap();
    assert_eq!(house.all_bids().await.len(), 32);
}

async fn history_is_ordered_by_the_guard_not_by_clocks(layout: Layout) {
    let house = open(layout).await;
    // Bob's node believes it is half an hour earlier than Alice's does.
    let behind = Clock::manual(house.house.cloud().now() - 1_800_000);
    let bobs = AuctionHouse::new(house.house.cloud().with_clock(behind), layout);
    house.place("alice", Offer::Exactly(100_00)).await;
    bobs.place_bid(&house.bid("bob", Offer::Exactly(200_00)))
        .await
        .unwrap();
    let history = house.history().await;
    let order: Vec<_> = history.iter().map(|bid| bid.bidder_id.as_str()).collect();
    assert_eq!(order, ["alice", "bob"]);
    assert!(
        history[1].created_at < history[0].created_at,
        "by clocks Bob came first"
    );
}

async fn a_rejected_bid_is_kept_for_audit(layout: Layout) {
    let house = open(layout).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    house.place("bob", Offer::Exactly(110_00)).await;
    let all = house.all_bids().await;
    let kept = all.iter().find(|bid| bid.bidder_id == "bob").unwrap();
    assert_eq!(kept.status, BidStatus::Rejected);
    assert_eq!(
        kept.rejection().unwrap(),
        Rejection::TooLow { minimum: 122_50 }
    );
    let history = house.history().await;
    assert!(history.iter().all(|bid| bid.bidder_id != "bob"));
}

async fn a_lost_answer_is_resolved_by_asking(layout: Layout) {
    let house = open(layout).await;
    let deaf = house.house.cloud().tap().install(Arc::new(chaos::Deaf));
    let recording = house.house.cloud().tap().record();
    let outcome = house.place("alice", Offer::Exactly(120_00)).await;
    let asked = recording.calls().last().unwrap().shape();
    let low = house.place("bob", Offer::Exactly(100_00)).await;
    drop(deaf);
    assert!(matches!(
        low,
        BidOutcome::Rejected(Rejection::TooLow { .. })
    ));
    assert_eq!(
        outcome,
        BidOutcome::Accepted {
            sequence: 1,
            leading: true,
            price: 120_00
        }
    );
    assert_eq!(asked, "GetItem bids");
    house.invariants().await.unwrap();
}

async fn closing_twice_gives_the_same_winner(layout: Layout) {
    let house = open(layout).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    let not_due = house.house.close_auction(&house.id).await.unwrap();
    assert!(matches!(not_due, Closing::NotDue { .. }));
    let house = Arc::new(house);
    let closings = chaos::race(8, {
        let house = Arc::clone(&house);
        move |_| {
            let house = Arc::clone(&house);
            async move { house.late.close_auction(&house.id).await.unwrap() }
        }
    })
    .await;
    let winner = house.winner().await;
    assert!(winner.is_some());
    let first = closings
        .iter()
        .filter(|c| **c == Closing::Closed(winner.clone()))
        .count();
    let later = closings
        .iter()
        .filter(|c| **c == Closing::Before(winner.clone()))
        .count();
    assert_eq!((first, later), (1, 7));
}

async fn due_auctions_are_found_by_a_sparse_index(layout: Layout) {
    let house = open(layout).await;
    let cloud = house.house.cloud();
    let second = NewAuction {
        ends: Ends::At(cloud.now() + 2 * LASTS),
        ..plain(cloud)
    };
    let second = house.house.create_auction(second).await.unwrap().auction_id;
    let due = |at| {
        let (house, mine) = (house.house.clone(), [house.id.clone(), second.clone()]);
        async move {
            let mut found = house::due(&house, at).await;
            found.retain(|id| mine.contains(id));
            found
        }
    };
    assert!(due(cloud.now()).await.is_empty());
    assert_eq!(
        due(cloud.now() + LASTS).await,
        *std::slice::from_ref(&house.id)
    );
    assert_eq!(due(cloud.now() + 2 * LASTS).await.len(), 2);
    house.late.close_auction(&house.id).await.unwrap();
    // A closed auction leaves the index, however long one waits.
    assert_eq!(due(cloud.now() + 9 * LASTS).await, [second]);
}

async fn nothing_ever_scans(layout: Layout) {
    let house = open_alone(layout).await;
    let cloud = house.house.cloud();
    let recording = cloud.tap().record();
    house.place("alice", Offer::Exactly(120_00)).await;
    house.place("bob", Offer::Exactly(100_00)).await;
    house.house.view_auction(&house.id).await.unwrap();
    house.late.close_due().await;
    let second = for_sale(plain(cloud));
    let second = house.house.create_auction(second).await.unwrap();
    let bought = house.house.buy_now(&second.auction_id, "purchase", "carol");
    bought.await.unwrap();
    let mut publisher = Publisher::start(house.house.clone());
    publisher.publish_new().await.unwrap();
    house.house.events_after(&house.id, 0).await.unwrap();
    house.invariants().await.unwrap();
    let calls = recording.calls();
    assert!(calls.len() > 8);
    assert!(calls.iter().all(|call| call.request.operation != "Scan"));
}

async fn a_late_bid_moves_the_end_and_the_closer_respects_it(layout: Layout) {
    let house = open_with(layout, |auction| NewAuction {
        soft_close_ms: 60_000,
        ..auction
    })
    .await;
    let clock = house.house.cloud().clock();
    clock.advance(Duration::from_millis(LASTS as u64 - 10_000));
    house.place("alice", Offer::Exactly(120_00)).await;
    let end = house.house.view_auction(&house.id).await.unwrap().end_time;
    assert_eq!(end, clock.now() + 60_000);
    // A closer that stands past the first end, but before the moved one.
    let closing = house.late.close_auction(&house.id).await.unwrap();
    assert_eq!(closing, Closing::NotDue { end_time: end });
    clock.advance(Duration::from_secs(59));
    let last = house.place("bob", Offer::Exactly(130_00)).await;
    assert!(matches!(last, BidOutcome::Accepted { .. }));
    clock.advance(Duration::from_secs(60));
    let closing = house.house.close_auction(&house.id).await.unwrap();
    assert!(matches!(closing, Closing::Closed(Some(_))));
    house.invariants().await.unwrap();
}

async fn a_seller_cannot_bid_on_their_own_item(layout: Layout) {
    let house = open_with(layout, for_sale).await;
    let bid = house.place("sam", Offer::Exactly(120_00)).await;
    assert_eq!(bid, BidOutcome::Rejected(Rejection::OwnItem));
    let bought = house
        .house
        .buy_now(&house.id, "purchase", "sam")
        .await
        .unwrap();
    assert_eq!(bought, BidOutcome::Rejected(Rejection::OwnItem));
    house.invariants().await.unwrap();
}

async fn buy_now_ends_the_auction_and_only_before_the_first_bid(layout: Layout) {
    let house = open_with(layout, for_sale).await;
    let buy = async |who: &str| {
        house
            .house
            .buy_now(&house.id, &format!("purchase-{who}"), who)
            .await
    };
    let bought = buy("alice").await.unwrap();
    assert_eq!(
        bought,
        BidOutcome::Accepted {
            sequence: 1,
            leading: true,
            price: 900_00
        }
    );
    assert_eq!(house.winner().await.unwrap().bidder_id, "alice");
    assert_eq!(
        buy("bob").await.unwrap(),
        BidOutcome::Rejected(Rejection::Over)
    );
    assert_eq!(
        buy("alice").await.unwrap(),
        bought,
        "a retry gets the first outcome"
    );
    let due = house::due(&house.house, i64::MAX / 2).await;
    assert!(!due.contains(&house.id), "{due:?}");
    house.invariants().await.unwrap();

    let other = open_with(layout, for_sale).await;
    other.place("carol", Offer::Exactly(100_00)).await;
    let too_late = other
        .house
        .buy_now(&other.id, "purchase", "alice")
        .await
        .unwrap();
    assert_eq!(too_late, BidOutcome::Rejected(Rejection::NotForBuyNow));
    other.invariants().await.unwrap();
}

async fn creating_twice_creates_once(layout: Layout) {
    let house = open(layout).await;
    let cloud = house.house.cloud();
    let new = plain(cloud);
    let first = house.house.create_auction(new.clone()).await.unwrap();
    cloud.clock().advance(Duration::from_secs(5));
    let again = house.house.create_auction(new.clone()).await.unwrap();
    assert_eq!(again, first, "the first answer, with the first created_at");
    for other in [
        NewAuction {
            title: "Another thing".into(),
            ..new.clone()
        },
        NewAuction {
            ends: Ends::At(first.end_time + 1),
            ..new.clone()
        },
    ] {
        let error = house.house.create_auction(other).await.unwrap_err();
        assert!(matches!(error, AuctionError::IdTaken(_)), "{error}");
    }
}

async fn bad_input_is_refused_before_any_write(layout: Layout) {
    let house = open(layout).await;
    let cloud = house.house.cloud();
    let recording = cloud.tap().record();

    let good = || house.bid("alice", Offer::Exactly(120_00));
    let bids = [
        (
            NewBid {
                offer: Offer::Exactly(0),
                ..good()
            },
            "between 1 and",
        ),
        (
            NewBid {
                offer: Offer::Exactly(-5),
                ..good()
            },
            "not -5",
        ),
        (
            NewBid {
                offer: Offer::UpTo(i64::MAX),
                ..good()
            },
            "between 1 and",
        ),
        (
            NewBid {
                currency: "USD".into(),
                ..good()
            },
            "this auction is in EUR, the bid is in USD",
        ),
        (
            NewBid {
                currency: "euro".into(),
                ..good()
            },
            "not a currency code",
        ),
        (
            NewBid {
                auction_id: "nowhere".into(),
                ..good()
            },
            "there is no auction 'nowhere'",
        ),
        (
            NewBid {
                auction_id: "x".repeat(3_000),
                ..good()
            },
            "auction_id must have",
        ),
        (
            NewBid {
                bid_id: String::new(),
                ..good()
            },
            "bid_id must have",
        ),
    ];
    for (bid, says) in bids {
        let error = house.house.place_bid(&bid).await.unwrap_err().to_string();
        assert!(error.contains(says), "{bid:?}: {error}");
    }
    let auctions = [
        (
            NewAuction {
                ends: Ends::At(cloud.now()),
                ..plain(cloud)
            },
            "is not after now",
        ),
        (
            NewAuction {
                title: "x".repeat(201),
                ..plain(cloud)
            },
            "not 201",
        ),
        (
            NewAuction {
                title: String::new(),
                ..plain(cloud)
            },
            "the title must have",
        ),
        (
            NewAuction {
                starting_price: 0,
                ..plain(cloud)
            },
            "starting_price",
        ),
        (
            NewAuction {
                reserve_price: Some(50_00),
                ..plain(cloud)
            },
            "below starting_price",
        ),
        (
            NewAuction {
                buy_now_price: Some(50_00),
                ..plain(cloud)
            },
            "buy_now_price is below",
        ),
        (
            NewAuction {
                soft_close_ms: -1,
                ..plain(cloud)
            },
            "soft_close_ms",
        ),
    ];
    for (auction, says) in auctions {
        let error = house
            .house
            .create_auction(auction)
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(says), "{error}");
    }
    let error = house
        .house
        .buy_now(&house.id, "purchase", "alice")
        .await
        .unwrap_err();
    let expected = BadInput::Prices("this auction has no buy_now_price");
    assert!(matches!(error, AuctionError::BadInput(why) if why == expected));
    let error = house
        .house
        .view_auction(&"x".repeat(3_000))
        .await
        .unwrap_err();
    assert!(matches!(error, AuctionError::UnknownAuction(_)), "{error}");
    let writes: Vec<_> = recording
        .calls()
        .into_iter()
        .filter(|c| c.request.is_write())
        .collect();
    assert!(writes.is_empty(), "{writes:?}");
}

/// Everything that `follow` gives until the auction closes.
async fn collected(hub: &Hub, id: &str, after: u64) -> Vec<Event> {
    let events = hub.follow(id, after).map(Result::unwrap).collect();
    tokio::time::timeout(Duration::from_secs(10), events)
        .await
        .unwrap()
}

async fn a_subscriber_sees_every_price_once_in_order_and_never_lower(layout: Layout) {
    let house = open(layout).await;
    let hub = Hub::start(house.house.clone());
    let mut publisher = Publisher::start(house.house.clone());
    let mut live = pin!(hub.follow(&house.id, 0));
    let mut seen = Vec::new();
    for (n, bidder) in ["alice", "bob", "carol"].iter().enumerate() {
        house
            .place(bidder, Offer::Exactly(100_00 + n as i64 * 50_00))
            .await;
        publisher.publish_new().await.unwrap();
        seen.push(live.next().await.unwrap().unwrap());
    }
    house.late.close_auction(&house.id).await.unwrap();
    publisher.publish_new().await.unwrap();
    seen.push(live.next().await.unwrap().unwrap());
    assert!(live.next().await.is_none(), "it ends with the auction");
    let numbers: Vec<_> = seen.iter().map(|event| event.sequence).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(seen.is_sorted_by_key(|event| event.best_amount));
    assert_eq!(seen[3].status, Status::Closed);
    assert_eq!(
        seen[3].best_bidder_id.as_deref(),
        Some("carol"),
        "the closing names the winner"
    );
}

async fn a_subscriber_resumes_where_it_was(layout: Layout) {
    let house = open(layout).await;
    let hub = Hub::start(house.house.clone());
    for (n, bidder) in ["alice", "bob", "carol"].iter().enumerate() {
        house
            .place(bidder, Offer::Exactly(100_00 + n as i64 * 50_00))
            .await;
    }
    house.late.close_auction(&house.id).await.unwrap();
    let whole = collected(&hub, &house.id, 0).await;
    assert_eq!(
        whole,
        house.house.events_after(&house.id, 0).await.unwrap().events
    );
    let numbers = |events: Vec<Event>| events.iter().map(|e| e.sequence).collect::<Vec<_>>();
    assert_eq!(numbers(collected(&hub, &house.id, 0).await), [1, 2, 3, 4]);
    assert_eq!(numbers(collected(&hub, &house.id, 2).await), [3, 4]);
}

/// Redis loses every message about one auction.
struct Forgetful(String);

impl Plan for Forgetful {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        let lost = request.operation == "PUBLISH" && request.body.to_string().contains(&self.0);
        Box::pin(async move {
            if lost {
                Verdict::KillAfter
            } else {
                Verdict::Pass
            }
        })
    }
}

async fn a_lost_or_repeated_message_costs_a_subscriber_nothing(layout: Layout) {
    let house = open(layout).await;
    let cloud = house.house.cloud();
    let hub = Hub::start(house.house.clone());
    let hub = hub.believing_silence(Duration::from_millis(50));
    // Another auction chatters all the time; that must not pass for news of this one.
    let other = house.house.create_auction(plain(cloud)).await.unwrap();
    let chatter = async {
        let mut redis = cloud.redis().await.unwrap();
        let said = json!({
            "auction_id": other.auction_id, "sequence": 1, "status": "OPEN",
            "best_amount": 1, "best_bidder_id": "x", "end_time": 1,
        });
        let channel = cloud.names().key("events");
        loop {
            let _: () = redis::AsyncCommands::publish(&mut redis, &channel, said.to_string())
                .await
                .unwrap();
            tokio::task::yield_now().await;
        }
    };
    let watching = async {
        let mut seen = pin!(hub.follow(&house.id, 0));
        // Nobody publishes: the tables alone must do.
        house.place("alice", Offer::Exactly(100_00)).await;
        assert_eq!(seen.next().await.unwrap().unwrap().sequence, 1);
        // Redis forgets lease and checkpoint: the second publisher says everything again.
        house.place("bob", Offer::Exactly(150_00)).await;
        for _ in 0..2 {
            let mut publisher = Publisher::start(house.house.clone());
            assert!(publisher.publish_new().await.unwrap() >= 2);
            house::forget(&house, "lease").await;
            house::forget(&house, "checkpoint").await;
        }
        assert_eq!(seen.next().await.unwrap().unwrap().sequence, 2);
        house.late.close_auction(&house.id).await.unwrap();
        let rest: Vec<_> = seen.map(|event| event.unwrap().sequence).collect().await;
        assert_eq!(rest, [3]);
    };
    tokio::select! {
        () = chatter => unreachable!("it never ends"),
        () = watching => {}
    }
}

async fn a_publisher_that_fails_says_the_rest_the_next_time(layout: Layout) {
    let house = open(layout).await;
    let mut publisher = Publisher::start(house.house.clone());
    house.place("alice", Offer::Exactly(100_00)).await;
    house.place("bob", Offer::Exactly(150_00)).await;
    let down = house
        .house
        .cloud()
        .tap()
        .install(Arc::new(Forgetful("bob".into())));
    publisher.publish_new().await.unwrap_err();
    drop(down);
    assert!(publisher.publish_new().await.unwrap() >= 1);
    assert_eq!(publisher.publish_new().await.unwrap(), 0);
}

/// While Alice's read is on its way back, Bob bids and moves the end, and time passes.
struct SlowRead {
    house: AuctionHouse,
    bid: NewBid,
    passes: Duration,
    done: AtomicBool,
}

impl Plan for SlowRead {
    fn before<'a>(&'a self, _request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async { Verdict::Pass })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        Box::pin(async {
            if &*call.request.actor == "alice" && !self.done.swap(true, Ordering::SeqCst) {
                as_actor("bob", self.house.place_bid(&self.bid))
                    .await
                    .unwrap();
                self.house.cloud().clock().advance(self.passes);
            }
        })
    }
}

async fn a_slow_read_does_not_make_a_bid_late(layout: Layout) {
    let house = open_with(layout, |auction| NewAuction {
        soft_close_ms: 60_000,
        ..auction
    })
    .await;
    let clock = house.house.cloud().clock();
    clock.advance(Duration::from_millis(LASTS as u64 - 10));
    let _plan = house.house.cloud().tap().install(Arc::new(SlowRead {
        house: house.house.clone(),
        bid: house.bid("bob", Offer::Exactly(110_00)),
        passes: Duration::from_millis(20),
        done: AtomicBool::new(false),
    }));
    // The end that Alice read has passed when she decides, but it is no longer the end.
    let outcome = as_actor("alice", house.place("alice", Offer::Exactly(120_00))).await;
    assert!(
        matches!(outcome, BidOutcome::Accepted { sequence: 2, .. }),
        "{outcome:?}"
    );
    house.invariants().await.unwrap();
}

async fn a_conflict_with_another_transaction_is_tried_again(layout: Layout) {
    for operation in ["TransactWriteItems", "TransactGetItems"] {
        let house = open_with(layout, for_sale).await;
        let conflict = || {
            let plan = Arc::new(chaos::Conflicts::on(operation, 2));
            house.house.cloud().tap().install(plan)
        };
        let plan = conflict();
        let outcome = house.place("alice", Offer::Exactly(120_00)).await;
        assert!(matches!(outcome, BidOutcome::Accepted { sequence: 1, .. }));
        drop(plan);
        let _plan = conflict();
        let closing = house.late.close_auction(&house.id).await.unwrap();
        assert!(matches!(closing, Closing::Closed(Some(_))));
        house.invariants().await.unwrap();
    }
}

async fn one_auction_that_cannot_be_closed_keeps_no_other_open(layout: Layout) {
    let house = open_alone(layout).await;
    let cloud = house.house.cloud();
    let broken = house
        .house
        .create_auction(plain(cloud))
        .await
        .unwrap()
        .auction_id;
    // An item that no longer reads as an auction.
    cloud
        .dynamodb()
        .update_item()
        .table_name(cloud.names().table("auctions"))
        .key("auction_id", AttributeValue::S(broken.clone()))
        .update_expression("REMOVE currency")
        .send()
        .await
        .unwrap();
    let closed = house.late.close_due().await;
    for (id, closing) in closed {
        assert_eq!(closing.is_err(), id == broken, "{id}: {closing:?}");
    }
    house.invariants().await.unwrap();
    let view = house.house.view_auction(&house.id).await.unwrap();
    assert_eq!(view.status, Status::Closed);
}

async fn a_stale_index_only_delays_a_closing(layout: Layout) {
    let house = open_alone(layout).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    let stale = Arc::new(chaos::Faults::seeded(1).stale_read(1.0));
    let plan = house.house.cloud().tap().install(stale);
    // The index does not show the auction yet …
    assert!(house.late.close_due().await.is_empty());
    drop(plan);
    assert_eq!(house.late.close_due().await.len(), 1);
    // … and still shows it when it is closed.
    let again = house.late.close_auction(&house.id).await.unwrap();
    assert!(matches!(again, Closing::Before(Some(_))));
    house.invariants().await.unwrap();
}

/// A window nobody has bid on.
fn fresh(reserve_price: Option<i64>) -> Window {
    Window {
        auction: AuctionState {
            auction_id: "a".into(),
            item_id: "i".into(),
            seller_id: "sam".into(),
            title: "t".into(),
            currency: "EUR".into(),
            starting_price: 1_00,
            reserve_price,
            buy_now_price: None,
            soft_close_ms: 0,
            status: Status::Open,
            end_time: 10,
            first_end_time: 10,
            lasts_ms: None,
            created_at: 0,
            closed_at: None,
            final_sequence: None,
        },
        best: BestBidState::default(),
    }
}

/// Plays offers against the pure rules; gives the accepted ones, in order, with the window after each.
fn play(mut window: Window, offers: Vec<(u8, Offer)>) -> Vec<(String, Offer, Window)> {
    let mut accepted = Vec::new();
    for (n, (bidder, offer)) in offers.into_iter().enumerate() {
        let bid = NewBid {
            auction_id: "a".into(),
            bid_id: format!("bid-{n}"),
            bidder_id: format!("bidder-{bidder}"),
            offer,
            currency: "EUR".into(),
        };
        if let Ok(after) = decide(&window, &bid, 0) {
            window.best = after.best;
            accepted.push((bid.bidder_id, offer, window.clone()));
        }
    }
    accepted
}

fn offers() -> impl Strategy<Value = Vec<(u8, Offer)>> {
    let offer = (0..5_u8, 1..2_000_i64, any::<bool>()).prop_map(|(who, much, proxy)| {
        (
            who,
            if proxy {
                Offer::UpTo(much)
            } else {
                Offer::Exactly(much)
            },
        )
    });
    proptest::collection::vec(offer, 0..30)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_rules_never_lower_a_price_nor_exceed_the_leaders_maximum(
        offers in offers(),
        reserve in proptest::option::of(1_00..20_00_i64),
    ) {
        let mut price = 0;
        for (_, _, window) in play(fresh(reserve), offers) {
            let now = window.best.amount.unwrap();
            prop_assert!(now >= price);
            prop_assert!(now <= window.best.max_amount.unwrap());
            price = now;
        }
    }

    /// Computed from the accepted offers alone: nobody's offer but the best of each bidder counts.
    #[test]
    fn the_price_is_the_second_maximum_plus_a_step_never_above_the_winners_maximum(
        maxima in proptest::collection::vec((0..5_u8, 1..2_000_i64), 1..30),
    ) {
        let offers = maxima.into_iter().map(|(who, max)| (who, Offer::UpTo(max))).collect();
        let accepted = play(fresh(None), offers);
        let mut best_of: Vec<(String, i64)> = Vec::new(); // by bidder, in order of reaching it
        for (who, offer, window) in accepted {
            best_of.retain(|(other, _)| *other != who);
            best_of.push((who, offer.max()));
            let leader = best_of.iter().rev().max_by_key(|(_, max)| *max).unwrap().clone();
            let second = best_of.iter().filter(|(who, _)| *who != leader.0).map(|(_, max)| *max).max();
            let price = second.map_or(1_00, |second| leader.1.min(second + increments::above(second)));
            prop_assert_eq!(window.best.bidder_id.unwrap(), leader.0);
            prop_assert_eq!(window.best.amount.unwrap(), price);
        }
    }

    #[test]
    fn the_leader_is_the_highest_offer_the_earliest_on_ties(
        offers in offers(),
        reserve in proptest::option::of(1_00..20_00_i64),
    ) {
        let mut highest: Option<(String, i64)> = None;
        for (who, offer, window) in play(fresh(reserve), offers) {
            if highest.as_ref().is_none_or(|(_, max)| offer.max() > *max) {
                highest = Some((who, offer.max()));
            }
            prop_assert_eq!(window.best.bidder_id, highest.as_ref().map(|(who, _)| who.clone()));
        }
    }
}

async fn a_closed_auction_is_not_for_sale(layout: Layout) {
    let house = open_with(layout, for_sale).await;
    let view = house.house.view_auction(&house.id).await.unwrap();
    assert_eq!(view.buy_now_price, Some(900_00));
    house.late.close_auction(&house.id).await.unwrap();
    let view = house.house.view_auction(&house.id).await.unwrap();
    assert_eq!(view.buy_now_price, None);
}
