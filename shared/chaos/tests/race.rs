//! `race`, on a toy table.
#![allow(clippy::unwrap_used)]

mod toy;

use chaos::race;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test]
async fn race_gives_results_in_the_order_of_its_tasks() {
    assert_eq!(
        race(20, |number| async move { number * 2 }).await,
        Vec::from_iter((0..40).step_by(2))
    );
    assert!(race(0, |number| async move { number }).await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_starts_before_everybody_is_there() {
    let made = Arc::new(AtomicUsize::new(0));
    let seen = race(8, |_| {
        // Slow to make, so that the first would long be running when the last is made.
        std::thread::sleep(Duration::from_millis(2));
        made.fetch_add(1, Ordering::SeqCst);
        let made = Arc::clone(&made);
        async move { made.load(Ordering::SeqCst) }
    })
    .await;
    assert_eq!(seen, [8; 8]);
}

#[tokio::test]
async fn every_racer_has_a_name_of_its_own() {
    let cloud = toy::zero().await;
    let recording = cloud.tap().record();
    race(3, |_| {
        let cloud = cloud.clone();
        async move { toy::read(&cloud, "a").await.unwrap() }
    })
    .await;
    let mut names: Vec<_> = recording
        .calls()
        .iter()
        .map(|call| call.request.actor.to_string())
        .collect();
    names.sort();
    assert_eq!(names, ["racer-0", "racer-1", "racer-2"]);
}

#[tokio::test]
#[should_panic(expected = "racer fell")]
async fn a_racer_that_panics_is_heard() {
    race(
        2,
        |number| async move { assert!(number != 1, "racer fell") },
    )
    .await;
}

#[tokio::test]
async fn race_finds_that_looking_before_writing_sells_twice() {
    let cloud = toy::empty().await;
    // A race is a matter of luck: now and then one racer is through before the others have
    // looked. Twenty rounds of such luck do not happen.
    for round in 0..20 {
        let winners = race(16, |_| {
            let (cloud, id) = (cloud.clone(), format!("seat-{round}"));
            async move {
                let free = toy::read(&cloud, &id).await.unwrap().is_none();
                if free {
                    toy::write(&cloud, &id, 1).await.unwrap();
                }
                free
            }
        })
        .await;
        if winners.into_iter().filter(|won| *won).count() > 1 {
            return;
        }
    }
    panic!("sixteen racers looked before they wrote, twenty times, and nobody collided");
}

#[tokio::test]
async fn one_of_sixteen_guarded_writers_wins() {
    let cloud = toy::zero().await;
    let winners = race(16, |_| {
        let cloud = cloud.clone();
        async move { toy::swap(&cloud, "a", 0, 1).await.unwrap() }
    })
    .await;
    assert_eq!(winners.into_iter().filter(|won| *won).count(), 1);
}
