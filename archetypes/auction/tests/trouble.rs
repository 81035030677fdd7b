//! What no order of delivered calls shows: late copies, services that hang or refuse, every mix of reasons of a
//! cancelled transaction, a stuck neighbour, the same request twice.
#![allow(clippy::unwrap_used)]

mod house;

use auction::{AuctionError, AuctionHouse, BidOutcome, Ends, Layout, NewAuction, Offer, Rejection};
use chaos::{
    Capacity, Heat, HotKey, Interleave, LateCopies, Mixed, Pairs, Stuck, Trouble, TroubleSweep,
};
use cloud::tap::{Plan, Request, Verdict};
use cloud::{CloudError, Patience};
use futures::future::BoxFuture;
use house::{
    House, LASTS, bidder, buyer, checked, closer, for_sale, open, open_alone, open_with, plain,
    soft_close,
};
use serde_json::json;
use std::sync::{Arc, Mutex};
use std::time::Duration;

on_both_layouts!(
    a_late_copy_of_any_write_changes_nothing,
    a_late_copy_of_a_purchase_changes_nothing,
    a_bid_meets_every_trouble_and_is_placed_once,
    a_rejected_bid_meets_every_trouble_and_is_kept_once,
    a_purchase_meets_every_trouble_and_is_made_once,
    a_refused_purchase_meets_every_trouble_and_is_kept_once,
    a_closing_meets_every_trouble_and_has_one_winner,
    a_create_meets_every_trouble_and_is_made_once,
    every_mix_of_conflict_and_failed_condition_gives_the_right_answer,
    a_mixed_cancellation_makes_no_bid_late,
    a_create_sent_again_meets_every_mix_of_reasons,
    creates_beside_each_other_meet_every_mix_of_reasons,
    a_stuck_auction_and_a_stuck_shard_keep_no_other_open,
    a_shard_that_is_slow_to_list_is_closed_page_by_page,
    the_same_request_sent_again_is_answered_as_the_first_was,
    a_bid_under_the_leaders_id_does_not_tell_its_maximum,
    time_passes_between_a_decision_and_its_write,
    a_flood_of_low_bids_takes_nothing_from_the_good_ones,
    every_pair_of_writing_actions_holds_in_every_order,
    the_first_create_holds_beside_every_action_in_every_order,
);

/// Two bids, a rejected one and a closing; then a copy of any of their writes.
async fn a_late_copy_of_any_write_changes_nothing(layout: Layout) {
    let bid = |name: &'static str, amount| {
        move |house: Arc<House>| async move {
            house.place(name, Offer::Exactly(amount)).await;
        }
    };
    let harmless = LateCopies::of(move || open_with(layout, soft_close))
        .act("seller", |house: Arc<House>| async move {
            let again = NewAuction {
                auction_id: format!("{}-second", house.id),
                ..plain(house.house.cloud())
            };
            house.house.create_auction(again).await.unwrap();
        })
        .act("alice", bid("alice", 120_00))
        .act("bob", bid("bob", 150_00))
        .act("carol", bid("carol", 100_00))
        .act("closer", |house: Arc<House>| async move {
            let far = cloud::Clock::manual(house.house.cloud().now() + 10 * LASTS);
            let late = AuctionHouse::new(house.house.cloud().with_clock(far), house.layout);
            late.close_auction(&house.id).await.unwrap();
        })
        .check(|house| async move {
            house.invariants().await?;
            match house.winner().await {
                Some(winner) if winner.bidder_id == "bob" => Ok(()),
                other => Err(format!("Bob should have won, not {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert!(harmless.landings.len() > 30, "{:?}", harmless.landings);
}

async fn a_late_copy_of_a_purchase_changes_nothing(layout: Layout) {
    LateCopies::of(move || open_with(layout, for_sale))
        .act("buyer", |house: Arc<House>| async move {
            house
                .house
                .buy_now(&house.id, "purchase", "bob")
                .await
                .unwrap();
        })
        .act("alice", |house: Arc<House>| async move {
            house.place("alice", Offer::Exactly(950_00)).await;
        })
        .check(|house| async move {
            house.invariants().await?;
            match house.winner().await {
                Some(winner) if winner.bidder_id == "bob" => Ok(()),
                other => Err(format!("Bob should have won, not {other:?}")),
            }
        })
        .run()
        .await
        .unwrap();
}

/// A conflict is tried again; of the others the caller learns what kind of fault it was.
fn is_told<T: std::fmt::Debug>(
    trouble: Trouble,
    told: &Result<T, AuctionError>,
) -> Result<(), String> {
    match (trouble, told) {
        (_, Ok(_)) => Ok(()),
        (Trouble::Throttled, Err(AuctionError::Fault(CloudError::Throttled(_)))) => Ok(()),
        (
            Trouble::Hangs | Trouble::HangsAfter | Trouble::Lost | Trouble::LostAnswer,
            Err(AuctionError::Fault(CloudError::Unknown(_))),
        ) => Ok(()),
        (_, Err(error)) => Err(format!("it was told {error:?}")),
    }
}

fn impatient(house: House) -> House {
    let of = |house: &AuctionHouse, layout| {
        AuctionHouse::new(house.cloud().with_patience(Patience::SHORT), layout)
    };
    House {
        house: of(&house.house, house.layout),
        late: of(&house.late, house.layout),
        ..house
    }
}

async fn a_bid_meets_every_trouble_and_is_placed_once(layout: Layout) {
    let bid = |house: Arc<House>| async move {
        let bid = house.bid("alice", Offer::Exactly(120_00));
        house.house.place_bid(&bid).await
    };
    TroubleSweep::of(move || async move { impatient(open(layout).await) })
        .action("alice", bid)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |house| async move { bid(house).await.unwrap() })
        .check(|house| async move {
            house.invariants().await?;
            match house.history().await.len() {
                1 => Ok(()),
                several => Err(format!("{several} bids")),
            }
        })
        .run()
        .await
        .unwrap();
}

/// A house where Alice leads, so that a low bid is rejected and a purchase refused.
async fn led(layout: Layout) -> House {
    let house = open_with(layout, for_sale).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    impatient(house)
}

/// Alice's bid counts, and the rejected one is kept.
async fn one_of_each(house: Arc<House>) -> Result<(), String> {
    let bids = house.invariants().await?.bids;
    match (bids.len(), house.history().await.len()) {
        (2, 1) => Ok(()),
        counts => Err(format!("bids and accepted bids: {counts:?}")),
    }
}

async fn a_rejected_bid_meets_every_trouble_and_is_kept_once(layout: Layout) {
    let bid = |house: Arc<House>| async move {
        let low = house.bid("bob", Offer::Exactly(110_00));
        house.house.place_bid(&low).await
    };
    TroubleSweep::of(move || led(layout))
        .action("bob", bid)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |house| async move { bid(house).await.unwrap() })
        .check(one_of_each)
        .run()
        .await
        .unwrap();
}

async fn a_refused_purchase_meets_every_trouble_and_is_kept_once(layout: Layout) {
    let buy =
        |house: Arc<House>| async move { house.house.buy_now(&house.id, "purchase", "bob").await };
    TroubleSweep::of(move || led(layout))
        .action("bob", buy)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |house| async move { buy(house).await.unwrap() })
        .check(one_of_each)
        .run()
        .await
        .unwrap();
}

async fn a_purchase_meets_every_trouble_and_is_made_once(layout: Layout) {
    let buy =
        |house: Arc<House>| async move { house.house.buy_now(&house.id, "purchase", "bob").await };
    TroubleSweep::of(move || async move { impatient(open_with(layout, for_sale).await) })
        .action("bob", buy)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |house| async move { buy(house).await.unwrap() })
        .check(|house| async move { house.invariants().await.map(|_| ()) })
        .run()
        .await
        .unwrap();
}

async fn a_closing_meets_every_trouble_and_has_one_winner(layout: Layout) {
    let close = |house: Arc<House>| async move { house.late.close_auction(&house.id).await };
    let with_a_bid = move || async move {
        let house = open(layout).await;
        house.place("alice", Offer::Exactly(120_00)).await;
        impatient(house)
    };
    TroubleSweep::of(with_a_bid)
        .action("closer", close)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |house| async move { close(house).await.unwrap() })
        .check(|house| async move {
            house.invariants().await?;
            house
                .winner()
                .await
                .map(|_| ())
                .ok_or("no winner".to_owned())
        })
        .run()
        .await
        .unwrap();
}

/// The house's own auction, as its seller sent it.
fn the_same_again(house: &House, change: fn(NewAuction) -> NewAuction) -> NewAuction {
    NewAuction {
        auction_id: house.id.clone(),
        ..change(plain(house.house.cloud()))
    }
}

async fn a_create_meets_every_trouble_and_is_made_once(layout: Layout) {
    let create = |house: Arc<House>| async move {
        let auction_id = format!("{}-second", house.id);
        let new = NewAuction {
            auction_id,
            ..plain(house.house.cloud())
        };
        house.house.create_auction(new).await
    };
    TroubleSweep::of(move || async move { impatient(open(layout).await) })
        .action("seller", create)
        .answers(|trouble, _, told| is_told(trouble, told))
        .recovery(move |house| async move { create(house).await.unwrap() })
        .check(|house| async move {
            let id = format!("{}-second", house.id);
            let made = house.house.view_auction(&id).await;
            made.map(|_| ()).map_err(|error| error.to_string())
        })
        .run()
        .await
        .unwrap();
}

async fn a_create_sent_again_meets_every_mix_of_reasons(layout: Layout) {
    let house = open(layout).await;
    let tap = house.house.cloud().tap();
    for mask in 0..4 {
        let _mixed = tap.install(Arc::new(Mixed::at(mask)));
        let again = the_same_again(&house, |auction| auction);
        let again = house.house.create_auction(again).await.unwrap();
        assert_eq!(again.auction_id, house.id, "mask {mask}");
    }
}

/// The seller's client sends its create twice at once, and a stranger creates another auction under the same id.
/// Two items, so four mixes; one item is no transaction and has none.
async fn creates_beside_each_other_meet_every_mix_of_reasons(layout: Layout) {
    let mixed: Arc<Mutex<Vec<Arc<Mixed>>>> = Arc::default();
    let create = |title: &'static str| {
        move |house: Arc<House>| async move {
            let new = NewAuction {
                auction_id: format!("{}-second", house.id),
                title: title.into(),
                ..plain(house.house.cloud())
            };
            let created = house.house.create_auction(new).await;
            (title, created.map(|auction| auction.title))
        }
    };
    for mask in 0..4_u32 {
        let made = mixed.clone();
        let explored = Interleave::of(move || open(layout))
            .under(move || {
                let mixed = Arc::new(Mixed::at(mask));
                made.lock().unwrap().push(mixed.clone());
                mixed
            })
            .actor("seller", create("Brass telescope"))
            .actor("seller-again", create("Brass telescope"))
            .actor("stranger", create("Gold telescope"))
            .check(|house, told| async move {
                let there = format!("{}-second", house.id);
                let there = house.house.view_auction(&there).await;
                let there = there.map_err(|error| error.to_string())?.title;
                for (who, (wanted, told)) in told {
                    match told {
                        Ok(created) if created == wanted && there == wanted => {}
                        Err(AuctionError::IdTaken(_)) if there != wanted => {}
                        told => return Err(format!("{there} is there, {who} was told {told:?}")),
                    }
                }
                Ok(there)
            })
            .run()
            .await
            .unwrap();
        let winners: Vec<_> = explored.seen.keys().collect();
        assert_eq!(winners, ["Brass telescope", "Gold telescope"]);
    }
    let mixed = mixed.lock().unwrap();
    let mixed = mixed.iter().filter(|plan| plan.was_mixed()).count();
    assert_eq!(mixed > 0, layout == Layout::SeparateBest);
}

/// Four items at most, so sixteen mixes, in every order of those who can cancel each other.
async fn every_mix_of_conflict_and_failed_condition_gives_the_right_answer(layout: Layout) {
    for mask in 0..16_u32 {
        let race = Interleave::of(move || open(layout)).under(move || Arc::new(Mixed::at(mask)));
        let race = bidder(race, "alice", Offer::Exactly(120_00));
        let race = bidder(race, "bob", Offer::Exactly(150_00));
        checked(race).run().await.unwrap();
        let race = Interleave::of(move || open_with(layout, for_sale))
            .under(move || Arc::new(Mixed::at(mask)));
        checked(buyer(buyer(race, "alice"), "bob"))
            .run()
            .await
            .unwrap();
        let race = Interleave::of(move || open(layout)).under(move || Arc::new(Mixed::at(mask)));
        let race = bidder(race, "alice", Offer::Exactly(120_00));
        checked(closer(race, "closer")).run().await.unwrap();
    }
}

/// Ten milliseconds before the end Bob's bid moves it by a minute, and the clock passes the old end. Alice
/// decided before that. Whatever mix of reasons her cancelled transaction brings, she is not too late.
async fn a_mixed_cancellation_makes_no_bid_late(layout: Layout) {
    let near_the_end = move || async move {
        let minute = |auction| NewAuction {
            soft_close_ms: 60_000,
            ..auction
        };
        let house = open_with(layout, minute).await;
        let nearly = Duration::from_millis(LASTS as u64 - 10);
        house.house.cloud().clock().advance(nearly);
        house
    };
    for mask in 0..8_u32 {
        let race = Interleave::of(near_the_end).under(move || Arc::new(Mixed::at(mask)));
        let race = bidder(race, "alice", Offer::Exactly(120_00));
        let race = bidder(race, "bob", Offer::Exactly(110_00));
        let race = race.moment("the-old-end", |house: &House| {
            let cloud = house.house.cloud();
            cloud.clock().advance(Duration::from_millis(20));
        });
        // Alice's read is carried out, and its answer is late. How many calls she makes after that
        // depends on the mix; only one of these orders is whole.
        let race = checked(race).late_answers();
        let mut ends = Vec::new();
        for calls in 1..=4 {
            let then = " alice alice".repeat(calls);
            let order = format!("alice bob bob bob bob the-old-end alice{then}");
            ends.extend(race.replay(&order.parse().unwrap()).await.ok());
        }
        assert_eq!(ends, ["alice accepted, bob accepted"], "mask {mask}");
    }
}

/// One auction hangs and one shard of the index hangs. The sweeper closes the others, and its sweep ends
/// before the SDK gives up on the first.
async fn a_stuck_auction_and_a_stuck_shard_keep_no_other_open(layout: Layout) {
    let house = open_alone(layout).await;
    let mut others = vec![house.id.clone()];
    for _ in 0..15 {
        let new = plain(house.house.cloud());
        others.push(house.house.create_auction(new).await.unwrap().auction_id);
    }
    let shard = |id: &String| cloud::item::shard_of(id, auction::tables::DUE_SHARDS);
    let stuck = others.remove(0);
    let hangs = (shard(&stuck) + 1) % auction::tables::DUE_SHARDS;
    others.retain(|id| shard(id) != hangs);
    assert!(others.len() > 5);
    let hanging = [stuck.clone(), format!("due-{hangs}")].map(|it| Arc::new(Stuck::hanging(&it)));
    let tap = house.house.cloud().tap();
    let plans: Vec<_> = hanging.iter().map(|it| tap.install(it.clone())).collect();
    let sweep = house.late.close_due();
    let swept = tokio::time::timeout(Patience::DEFAULT.attempt, sweep).await;
    let failed = swept.unwrap().into_iter().filter(|(_, it)| it.is_err());
    let failed: std::collections::BTreeSet<_> = failed.map(|(what, _)| what).collect();
    assert_eq!(failed, [format!("due-{hangs}"), stuck].into());
    drop(plans);
    for id in others {
        let view = house.house.view_auction(&id).await.unwrap();
        assert_eq!(view.status, auction::domain::Status::Closed);
    }
    assert!(hanging.iter().all(|it| it.met() > 0));
}

/// Each page of the index holds one auction and takes a quarter of a second, so a shard takes longer than the
/// sweeper waits for one answer.
async fn a_shard_that_is_slow_to_list_is_closed_page_by_page(layout: Layout) {
    struct SmallSlowPages;
    impl Plan for SmallSlowPages {
        fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
            Box::pin(async move {
                if request.operation != "Query" {
                    return Verdict::Pass;
                }
                let slow = Duration::from_millis(250);
                let _ = tokio::time::timeout(slow, std::future::pending::<()>()).await;
                let mut page = request.body.clone();
                page["Limit"] = json!(1);
                Verdict::Rewrite(page)
            })
        }
    }
    let house = open_alone(layout).await;
    for _ in 1..44 {
        let new = plain(house.house.cloud());
        house.house.create_auction(new).await.unwrap();
    }
    let slow = house.house.cloud().tap().install(Arc::new(SmallSlowPages));
    let swept = house.late.close_due().await;
    let closed = swept.iter().filter(|(_, it)| it.is_ok()).count();
    assert_eq!(closed, 44, "{swept:?}");
    drop(slow);
    let left = house::due(&house.house, cloud::Millis::MAX).await;
    assert!(left.is_empty(), "{left:?}");
}

async fn the_same_request_sent_again_is_answered_as_the_first_was(layout: Layout) {
    let house = open(layout).await;
    let cloud = house.house.cloud();
    for (id, ends) in [
        ("lasts", Ends::After(LASTS)),
        ("ends", Ends::At(cloud.now() + LASTS)),
    ] {
        let new = NewAuction {
            auction_id: format!("{}-{id}", house.id),
            ends,
            ..plain(cloud)
        };
        let first = house.house.create_auction(new.clone()).await.unwrap();
        cloud.clock().advance(Duration::from_secs(5));
        let again = house.house.create_auction(new.clone()).await.unwrap();
        assert_eq!(again, first, "{id}");
        let other = match ends {
            Ends::After(lasts) => Ends::After(lasts + 1),
            Ends::At(_) => Ends::After(LASTS),
        };
        let other = house
            .house
            .create_auction(NewAuction {
                ends: other,
                ..new.clone()
            })
            .await;
        assert!(matches!(other, Err(AuctionError::IdTaken(_))), "{other:?}");
        // After its end, and after it was closed, the answer is still that it was created.
        let past = AuctionHouse::new(
            cloud.with_clock(cloud::Clock::manual(first.end_time + 1)),
            layout,
        );
        assert_eq!(
            past.create_auction(new.clone()).await.unwrap(),
            first,
            "{id}"
        );
        past.close_auction(&first.auction_id).await.unwrap();
        let closed = past.create_auction(new).await.unwrap();
        assert_eq!(closed.created_at, first.created_at);
    }
    // What never was is still refused.
    let never = NewAuction {
        auction_id: format!("{}-never", house.id),
        ends: Ends::At(cloud.now() - 1),
        ..plain(cloud)
    };
    let refused = house.house.create_auction(never).await;
    assert!(
        matches!(refused, Err(AuctionError::BadInput(_))),
        "{refused:?}"
    );
}

async fn a_bid_under_the_leaders_id_does_not_tell_its_maximum(layout: Layout) {
    let house = open(layout).await;
    house.place("alice", Offer::UpTo(500_00)).await;
    let mut bid = house.bid("alice", Offer::Exactly(200_00));
    bid.bid_id = "a-spy".into();
    let outcome = house.house.place_bid(&bid).await.unwrap();
    assert_eq!(outcome, BidOutcome::Rejected(Rejection::NotAboveOwn));
    let told = format!("{outcome:?} {}", Rejection::NotAboveOwn);
    assert!(!told.contains("500"), "{told}");
    // Sent again, it gets the same answer.
    assert_eq!(house.house.place_bid(&bid).await.unwrap(), outcome);
}

/// The end passes at every place between the calls of a bidder and a closer.
async fn time_passes_between_a_decision_and_its_write(layout: Layout) {
    let race = Interleave::of(move || open(layout));
    let race = bidder(race, "alice", Offer::Exactly(120_00));
    let race = race.actor("closer", |house: Arc<House>| async move {
        house::Told::Close(house.house.close_auction(&house.id).await.unwrap())
    });
    let race = race.moment("the-end", |house: &House| {
        house
            .house
            .cloud()
            .clock()
            .advance(Duration::from_millis(LASTS as u64 + 1));
    });
    let explored = checked(race).run().await.unwrap();
    for end in [
        "alice accepted, closer not due",
        "alice accepted, closer closed",
        "alice too late, closer closed",
    ] {
        assert!(
            explored.seen.contains_key(end),
            "{end}: {:?}",
            explored.seen
        );
    }
}

/// Each low bid is written under a partition key of its own; none reaches the key of the history.
async fn a_flood_of_low_bids_takes_nothing_from_the_good_ones(layout: Layout) {
    let house = open(layout).await;
    house.place("alice", Offer::Exactly(120_00)).await;
    let clock = house.house.cloud().clock().clone();
    let heat = Arc::new(Heat::new(auction::tables::TABLES, clock));
    let plan = house.house.cloud().tap().install(heat.clone());
    for flood in 0..50 {
        let mut low = house.bid("mallory", Offer::Exactly(1_00));
        low.bid_id = format!("low-{flood}");
        let outcome = house.house.place_bid(&low).await.unwrap();
        assert!(matches!(outcome, BidOutcome::Rejected(_)), "{outcome:?}");
    }
    drop(plan);
    let written = heat.hottest(usize::MAX).into_iter();
    let written: Vec<_> = written
        .filter(|key| key.capacity == Capacity::Write && key.units > 0.0)
        .collect();
    assert_eq!(written.len(), 50, "{written:?}");
    let apart = |key: &HotKey| key.resource == "bids" && key.units == 1.0;
    assert!(written.iter().all(apart), "{written:?}");
}

/// All that writes to an auction which is there; a create is then one that is sent again.
async fn every_pair_of_writing_actions_holds_in_every_order(layout: Layout) {
    let bid = |name: &'static str, offer| {
        move |house: Arc<House>| async move { house.place(name, offer).await }
    };
    let met = Pairs::of(move || open_with(layout, for_sale))
        .action("create-resent", |house: Arc<House>| async move {
            let again = the_same_again(&house, for_sale);
            house.house.create_auction(again).await.unwrap();
        })
        .action("bid", bid("alice", Offer::Exactly(120_00)))
        .action("proxy", bid("carol", Offer::UpTo(300_00)))
        .action("reject", bid("dave", Offer::Exactly(1_00)))
        .action("buy", |house| async move {
            house
                .house
                .buy_now(&house.id, "purchase", "bob")
                .await
                .unwrap()
        })
        .action("close", |house| async move {
            house.late.close_auction(&house.id).await.unwrap()
        })
        .check(|house| async move {
            let end = house.invariants().await?;
            let low = end.bids.iter().find(|bid| bid.bidder_id == "dave");
            if low.is_some_and(|low| low.sequence.is_some()) {
                return Err("a bid below the start was accepted".to_owned());
            }
            let accepted = end.bids.iter().filter(|bid| bid.sequence.is_some());
            let winner = end.winner.map(|winner| winner.bidder_id);
            Ok((accepted.count(), winner))
        })
        .run()
        .await
        .unwrap();
    assert_eq!(met.orders.len(), 21, "{met:?}");
    // The create that is sent again changes nothing. Those that compete for the end do not all win.
    let ends = |pair: &str| met.seen[pair].len();
    assert_eq!(ends("create-resent × create-resent"), 1, "{met:?}");
    assert_eq!(ends("reject × reject"), 1, "{met:?}");
    for pair in ["bid × buy", "bid × close", "proxy × buy", "buy × close"] {
        assert!(ends(pair) > 1, "{pair}: {met:?}");
    }
}

/// Before the create there is nothing to write to, and every other action says so. After it, all is as ever.
async fn the_first_create_holds_beside_every_action_in_every_order(layout: Layout) {
    fn known<T>(told: Result<T, AuctionError>) {
        match told {
            Ok(_) | Err(AuctionError::UnknownAuction(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    let nothing_yet = move || async move {
        let house = open(layout).await;
        let id = format!("{}-second", house.id);
        House { id, ..house }
    };
    let bid = |name: &'static str, offer| {
        move |house: Arc<House>| async move {
            known(house.house.place_bid(&house.bid(name, offer)).await);
        }
    };
    let met = Pairs::of(nothing_yet)
        .action("create", |house: Arc<House>| async move {
            let new = the_same_again(&house, for_sale);
            house.house.create_auction(new).await.unwrap();
        })
        .reading("bid", bid("alice", Offer::Exactly(120_00)))
        .reading("proxy", bid("carol", Offer::UpTo(300_00)))
        .reading("reject", bid("dave", Offer::Exactly(1_00)))
        .reading("buy", |house: Arc<House>| async move {
            known(house.house.buy_now(&house.id, "purchase", "bob").await);
        })
        .reading("close", |house: Arc<House>| async move {
            known(house.late.close_auction(&house.id).await);
        })
        .check(|house| async move {
            if house.house.read_window(&house.id).await.unwrap().is_none() {
                return match house.all_bids().await.as_slice() {
                    [] => Ok(None),
                    bids => Err(format!("bids on nothing: {bids:?}")),
                };
            }
            let end = house.invariants().await?;
            let accepted = end.bids.iter().filter(|bid| bid.sequence.is_some());
            Ok(Some((end.bids.len(), accepted.count())))
        })
        .run()
        .await
        .unwrap();
    let beside = met.seen.iter();
    let beside: Vec<_> = beside
        .filter(|(pair, _)| pair.starts_with("create"))
        .collect();
    assert_eq!(beside.len(), 6, "{met:?}");
    for (pair, seen) in beside {
        assert!(!seen.contains_key("None"), "{pair}: {seen:?}");
    }
    // The other comes too early, or it meets the auction. A closing leaves no bid.
    for other in ["bid", "proxy", "reject", "buy"] {
        assert_eq!(met.seen[&format!("create × {other}")].len(), 2, "{met:?}");
    }
}
