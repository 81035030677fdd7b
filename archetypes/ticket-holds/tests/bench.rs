//! What `bench` measures stays within what it says bounds it.
#![allow(clippy::unwrap_used)]

use std::time::Duration;
use ticket_holds::bench::measure;
use ticket_holds::general_admission::ADMISSION_SHARDS;
use ticket_holds::tables::TABLES;

const TIME: Duration = Duration::from_millis(500);

/// A hold is a read and a transaction, and each takes five milliseconds: at most a hundred a second.
#[tokio::test]
async fn one_buyer_holds_no_faster_than_its_calls_are_answered() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    cloud.create_tables(TABLES).await.unwrap();
    let measured = measure(&cloud, 5, ADMISSION_SHARDS, 1, TIME).await.unwrap();
    assert!((1..=51).contains(&measured.holds), "{measured:?}");
    assert_eq!((measured.conflicts, measured.gave_up), (0, 0));
}

/// A transaction has its counter for five milliseconds: at most two hundred a second, however many buyers there are.
#[tokio::test]
async fn many_buyers_of_one_counter_hold_one_after_the_other() {
    let cloud = cloud::connect_for_tests().await.unwrap();
    cloud.create_tables(TABLES).await.unwrap();
    let measured = measure(&cloud, 5, 1, 8, TIME).await.unwrap();
    // Each buyer may end a hold that was begun in time.
    assert!((1..=108).contains(&measured.holds), "{measured:?}");
    assert!(measured.conflicts > 0, "{measured:?}");
}
