//! Every order of the calls of two or three actions, each on a fresh cloud.
//!
//! Bidders and closers look at different clocks here: to the bidders there is an hour left, to the
//! closers it is over. No two machines agree on now, and only the guards stand between them.
#![allow(clippy::unwrap_used)]

mod house;

use auction::{Layout, Offer};
use chaos::{Explored, Interleave};
use house::{
    House, Told, bidder, bob_behind, buyer, checked, closer, for_sale, open, open_with, soft_close,
};

on_both_layouts!(
    no_bid_is_accepted_after_close_under_any_interleaving_of_bidder_bidder_and_closer,
    two_closers_close_once,
    the_same_bid_sent_twice_at_once_is_one_bid,
    a_purchase_and_a_bid_do_not_both_win,
    two_purchases_make_one_winner,
    a_purchase_and_a_closer_close_once,
    a_bid_in_the_last_minute_moves_the_end_or_comes_too_late,
    two_late_bids_with_clocks_apart_never_move_the_end_back,
);

async fn explore(actors: Interleave<House, Told>) -> Explored {
    checked(actors).run().await.unwrap()
}

async fn no_bid_is_accepted_after_close_under_any_interleaving_of_bidder_bidder_and_closer(
    layout: Layout,
) {
    let actors = Interleave::of(move || open(layout));
    let actors = bidder(actors, "alice", Offer::Exactly(120_00));
    let actors = bidder(actors, "bob", Offer::Exactly(130_00));
    let explored = explore(closer(actors, "closer")).await;
    // "Always" is checked above; these are the "sometimes": the orders do differ.
    for end in [
        "alice accepted, bob accepted, closer closed",
        "alice too low, bob accepted, closer closed",
        "alice accepted, bob too late, closer closed",
        "alice too late, bob too late, closer closed",
    ] {
        assert!(
            explored.seen.contains_key(end),
            "{end}: {:?}",
            explored.seen
        );
    }
    assert!(explored.schedules >= 90, "{}", explored.schedules);
}

async fn two_closers_close_once(layout: Layout) {
    let with_a_bid = move || async move {
        let house = open(layout).await;
        house.place("alice", Offer::Exactly(120_00)).await;
        house
    };
    let actors = closer(Interleave::of(with_a_bid), "closer");
    let explored = explore(closer(actors, "other")).await;
    assert!(
        explored
            .seen
            .contains_key("closer closed, other closed before")
    );
    assert!(
        explored
            .seen
            .contains_key("closer closed before, other closed")
    );
}

async fn the_same_bid_sent_twice_at_once_is_one_bid(layout: Layout) {
    let actors = bidder(
        Interleave::of(move || open(layout)),
        "alice",
        Offer::Exactly(120_00),
    );
    let explored = explore(bidder(actors, "alice-again", Offer::Exactly(120_00))).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(ends, ["alice accepted, alice-again accepted"]);
}

async fn a_purchase_and_a_bid_do_not_both_win(layout: Layout) {
    let actors = Interleave::of(move || open_with(layout, for_sale));
    let actors = bidder(actors, "alice", Offer::Exactly(120_00));
    let explored = explore(buyer(actors, "bob")).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(
        ends,
        [
            "alice accepted, bob too late",
            "alice too late, bob accepted"
        ]
    );
}

async fn two_purchases_make_one_winner(layout: Layout) {
    let actors = buyer(Interleave::of(move || open_with(layout, for_sale)), "alice");
    let explored = explore(buyer(actors, "bob")).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(
        ends,
        [
            "alice accepted, bob too late",
            "alice too late, bob accepted"
        ]
    );
}

async fn a_purchase_and_a_closer_close_once(layout: Layout) {
    let actors = buyer(Interleave::of(move || open_with(layout, for_sale)), "alice");
    let explored = explore(closer(actors, "closer")).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(
        ends,
        [
            "alice accepted, closer closed before",
            "alice too late, closer closed"
        ]
    );
}

async fn a_bid_in_the_last_minute_moves_the_end_or_comes_too_late(layout: Layout) {
    let actors = Interleave::of(move || open_with(layout, soft_close));
    let actors = bidder(actors, "alice", Offer::Exactly(120_00));
    let explored = explore(closer(actors, "closer")).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(
        ends,
        [
            "alice accepted, closer not due",
            "alice too late, closer closed"
        ]
    );
}

async fn two_late_bids_with_clocks_apart_never_move_the_end_back(layout: Layout) {
    let actors = Interleave::of(move || open_with(layout, soft_close));
    let actors = bidder(actors, "alice", Offer::Exactly(120_00));
    let actors = bob_behind(actors, layout);
    let explored = explore(actors).await;
    let ends: Vec<_> = explored.seen.keys().collect();
    assert_eq!(
        ends,
        [
            "alice accepted, bob accepted",
            "alice too low, bob accepted"
        ]
    );
}
