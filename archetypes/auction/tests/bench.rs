//! What one auction can take, and that the README's numbers agree with it.
#![allow(clippy::unwrap_used)]

use auction::bench::{Measured, measure};
use std::time::Duration;

const README: &str = include_str!("../README.md");

async fn measured(bidders: usize) -> Measured {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    cloud.create_tables(auction::tables::TABLES).await.unwrap();
    let time = Duration::from_millis(500);
    measure(&cloud, 5, bidders, time).await.unwrap()
}

/// One over the latency of a transaction: 200 a second at 5 ms.
#[tokio::test]
async fn one_auction_accepts_no_more_bids_than_transactions_fit_one_after_another() {
    for bidders in [1, 8] {
        let measured = measured(bidders).await;
        let accepted = measured.accepted_per_second;
        assert!(accepted > 0.0 && accepted <= 200.0, "{measured:?}");
        let conflicts = measured.conflicts_per_accepted;
        assert_eq!(conflicts > 0.0, bidders > 1, "{measured:?}");
    }
}

/// What the README says was measured: the latency of a call in milliseconds, and accepted bids a second.
fn quoted() -> Vec<(f64, f64)> {
    let rows = README.lines().filter_map(|line| {
        let (latency, rates) = line.trim().strip_prefix("| ")?.split_once(" ms |")?;
        Some((latency.parse::<f64>().ok()?, rates))
    });
    let quoted = rows.flat_map(|(latency, rates)| {
        let rates = rates.split('|').filter_map(|rate| rate.trim().parse().ok());
        rates.map(move |rate| (latency, rate))
    });
    quoted.collect()
}

#[test]
fn no_quoted_rate_is_above_one_over_the_latency() {
    let quoted = quoted();
    assert_eq!(quoted.len(), 6, "{quoted:?}");
    for (latency, rate) in quoted {
        assert!(
            rate > 0.0 && rate <= 1_000.0 / latency,
            "{rate} at {latency} ms"
        );
    }
}

/// The cost table counts units. What it says of one auction must also fit into the time.
#[test]
fn the_priced_workload_asks_no_more_of_one_auction_than_was_measured() {
    let (_, rate) = README.split_once("cost --rate ").unwrap();
    let rate: f64 = rate.split('`').next().unwrap().parse().unwrap();
    let workload = auction::archetype().workload;
    let mut placed = workload.mix.iter();
    let placed = placed.find(|share| share.action == "place bid").unwrap();
    let least = quoted().into_iter().map(|(_, rate)| rate);
    let least = least.fold(f64::INFINITY, f64::min);
    for resource in ["auctions", "bids/by_sequence"] {
        let mut skews = workload.skew.iter();
        let skew = skews.find(|skew| skew.resource == resource).unwrap();
        let accepted = rate * placed.per_unit * skew.hottest;
        assert!(accepted < least, "{resource}: {accepted} of {least}");
    }
}
