//! `bench`: how many bids a second does one auction accept? Accepted bids of one auction are serial, since each
//! names the one before it in its guard. So the bound is one over the latency of a transaction, long before the
//! units of the partition key. The bench adds that latency at the tap, with the conflicts that come with it.

use crate::tables::TABLES;
use crate::{
    AuctionHouse, BidOutcome, Ends, Layout, NewAuction, NewBid, Offer, Rejection, increments,
};
use anyhow::{Result, bail};
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use cloud::Cloud;
use cloud::tap::{Call, Outcome, Plan, Request, Verdict};
use futures::future::{BoxFuture, join_all};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Bid on one auction with an added latency, and print the accepted bids a second",
    args: bench_args,
    run: |cloud, args| Box::pin(bench(cloud, args)),
};

const BIDDERS: [usize; 3] = [1, 8, 32];
const LATENCIES_MS: [u64; 2] = [5, 10];

fn bench_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("seconds")
                .long("seconds")
                .value_name("N")
                .value_parser(value_parser!(u32).range(1..=600))
                .default_value("5")
                .help("How long each of the six measurements takes"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

/// What one auction accepted.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// What was added to each call.
    pub latency_ms: u64,
    /// How many bid at once.
    pub bidders: usize,
    /// How many bids were accepted, by the second.
    pub accepted_per_second: f64,
    /// How many transactions were refused, for each accepted bid, because another one was under way.
    pub conflicts_per_accepted: f64,
}

async fn bench(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let seconds = args.get_one::<u32>("seconds").copied().unwrap_or(5);
    cloud.create_tables(TABLES).await?;
    let mut all = Vec::new();
    for latency_ms in LATENCIES_MS {
        for bidders in BIDDERS {
            let time = Duration::from_secs(seconds.into());
            all.push(measure(&cloud, latency_ms, bidders, time).await?);
            let done = all.len();
            eprintln!("{done} of {}", LATENCIES_MS.len() * BIDDERS.len());
        }
    }
    if args.get_flag("json") {
        println!("{}", serde_json::to_string_pretty(&all)?);
        return Ok(());
    }
    println!("latency  bidders  accepted/s  conflicts per accepted bid");
    for one in all {
        println!(
            "{:>4} ms  {:>7}  {:>10.0}  {:>26.1}",
            one.latency_ms, one.bidders, one.accepted_per_second, one.conflicts_per_accepted
        );
    }
    Ok(())
}

/// Lets so many bidders bid on one auction for this long, with this latency added to each call. A bidder knows the
/// price from the answer to its last bid, so nothing is measured but `place_bid`. The tables must be there.
pub async fn measure(
    cloud: &Cloud,
    latency_ms: u64,
    bidders: usize,
    time: Duration,
) -> Result<Measured> {
    let house = AuctionHouse::new(cloud.clone(), Layout::OneItem);
    let auction = house
        .create_auction(NewAuction {
            auction_id: cloud.ids().next("auction"),
            item_id: "item".into(),
            seller_id: "sam".into(),
            title: "Brass telescope".into(),
            currency: "EUR".into(),
            starting_price: 1,
            reserve_price: None,
            buy_now_price: None,
            soft_close_ms: 0,
            ends: Ends::After(3_600_000),
        })
        .await?;
    let busy = Arc::new(Busy {
        latency: Duration::from_millis(latency_ms),
        locked: AtomicBool::new(false),
        conflicts: AtomicU32::new(0),
    });
    let _installed = cloud.tap().install(busy.clone());
    let begun = Instant::now();
    let bidding = (0..bidders).map(|bidder| {
        let house = house.clone();
        let auction_id = auction.auction_id.clone();
        tokio::spawn(async move {
            let (mut accepted, mut offer) = (0_u32, 1);
            while begun.elapsed() < time {
                let bid = NewBid {
                    auction_id: auction_id.clone(),
                    bid_id: house.cloud().ids().next("bid"),
                    bidder_id: format!("bidder-{bidder}"),
                    offer: Offer::Exactly(offer),
                    currency: "EUR".into(),
                };
                match house.place_bid(&bid).await? {
                    BidOutcome::Accepted { price, .. } => {
                        accepted += 1;
                        offer = price + increments::above(price);
                    }
                    BidOutcome::Rejected(Rejection::TooLow { minimum }) => offer = minimum,
                    BidOutcome::Rejected(why) => bail!("a bid was rejected: {why}"),
                }
            }
            Ok(accepted)
        })
    });
    let mut accepted = 0;
    for bidder in join_all(bidding).await {
        accepted += bidder??;
    }
    let accepted = f64::from(accepted);
    Ok(Measured {
        latency_ms,
        bidders,
        accepted_per_second: accepted / begun.elapsed().as_secs_f64(),
        conflicts_per_accepted: f64::from(busy.conflicts.load(Ordering::SeqCst)) / accepted,
    })
}

/// Every call takes this long. A transaction has its auction meanwhile, and another one is refused.
struct Busy {
    latency: Duration,
    locked: AtomicBool,
    conflicts: AtomicU32,
}

impl Plan for Busy {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            let writes = request.operation == "TransactWriteItems";
            if writes && self.locked.swap(true, Ordering::SeqCst) {
                self.conflicts.fetch_add(1, Ordering::SeqCst);
                return Verdict::Answer {
                    status: 400,
                    body: json!({
                        "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                        "Message": "Transaction cancelled [TransactionConflict, None]",
                        "CancellationReasons": [{"Code": "TransactionConflict"}, {"Code": "None"}],
                    }),
                };
            }
            tokio::time::sleep(self.latency).await;
            Verdict::Pass
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        let refused = matches!(&call.outcome, Outcome::Cancelled(reasons)
            if reasons.iter().any(|reason| reason == "TransactionConflict"));
        if call.request.operation == "TransactWriteItems" && !refused {
            self.locked.store(false, Ordering::SeqCst);
        }
        Box::pin(async {})
    }
}
