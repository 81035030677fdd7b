//! `Interleave`, on a toy table.
#![allow(clippy::unwrap_used)]

mod toy;

use aws_sdk_dynamodb::types::AttributeValue;
use chaos::{Faults, Interleave, Schedule, Weaken};
use cloud::Cloud;
use cloud::tap::Installed;
use redis::AsyncCommands;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Two increments of one kind, and a check that no update is lost.
fn two_naive() -> Interleave<Cloud, ()> {
    Interleave::of(toy::zero)
        .actor("alice", |cloud| async move {
            toy::naive_increment(&cloud).await
        })
        .actor(
            "bob",
            |cloud| async move { toy::naive_increment(&cloud).await },
        )
        .check(no_update_is_lost)
}

fn two_guarded() -> Interleave<Cloud, usize> {
    Interleave::of(toy::zero)
        .actor("alice", |cloud| async move { toy::increment(&cloud).await })
        .actor("bob", |cloud| async move { toy::increment(&cloud).await })
        .check(no_update_is_lost)
}

async fn no_update_is_lost<T>(
    cloud: Arc<Cloud>,
    _: Vec<(&'static str, T)>,
) -> Result<String, String> {
    match toy::peek(&cloud, "a").await {
        Some(2) => Ok("both count".to_owned()),
        other => Err(format!("two increments, and the counter is at {other:?}")),
    }
}

#[tokio::test]
async fn interleave_finds_the_lost_update_of_read_then_write() {
    let broken = two_naive().run().await.unwrap_err();
    // Depth-first, alice first: all of alice, then all of bob holds; the next order breaks.
    assert_eq!(broken.explored, 1);
    assert_eq!(broken.schedule.to_string(), "alice bob alice bob");
    assert_eq!(broken.why, "two increments, and the counter is at Some(1)");
    assert_eq!(
        broken.calls,
        [
            "alice: GetItem counters → ok  [counter_id=a]",
            "bob: GetItem counters → ok  [counter_id=a]",
            "alice: PutItem counters → ok",
            "bob: PutItem counters → ok",
        ]
    );
    let story = format!("{broken:?}");
    assert!(
        story.contains("in the order \"alice bob alice bob\""),
        "{story}"
    );
    assert!(
        story.contains("\n    1  alice: GetItem counters"),
        "{story}"
    );
}

#[tokio::test]
async fn two_read_then_writes_have_six_orders_and_four_lose_an_update() {
    let explored = two_naive()
        .check(|cloud, _| async move {
            Ok(format!(
                "counter at {:?}",
                toy::peek(&cloud, "a").await.unwrap()
            ))
        })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.schedules, 6);
    assert_eq!(explored.seen["counter at 1"], 4);
    assert_eq!(explored.seen["counter at 2"], 2);
}

#[tokio::test]
async fn interleave_proves_the_guarded_increment() {
    let explored = two_guarded()
        .check(|cloud, outcomes| async move {
            no_update_is_lost(cloud, Vec::<(&str, ())>::new()).await?;
            let attempts: usize = outcomes.iter().map(|(_, attempts)| attempts).sum();
            Ok(format!("{attempts} attempts"))
        })
        .run()
        .await
        .unwrap();
    // Where the naive one loses an update, this one tries again: those orders are longer, which
    // is why orders are found by running them.
    assert_eq!(explored.schedules, 6);
    assert_eq!(explored.seen["2 attempts"], 2);
    assert_eq!(explored.seen["3 attempts"], 4);
}

#[tokio::test]
async fn three_actors_of_one_call_each_have_six_orders() {
    let explored = Interleave::of(toy::zero)
        .actor("one", |cloud: Arc<Cloud>| async move {
            toy::swap(&cloud, "a", 0, 1).await.unwrap()
        })
        .actor("two", |cloud| async move {
            toy::swap(&cloud, "a", 0, 2).await.unwrap()
        })
        .actor("three", |cloud| async move {
            toy::swap(&cloud, "a", 0, 3).await.unwrap()
        })
        .check(|_, outcomes| async move {
            let winners: Vec<_> = outcomes
                .iter()
                .filter(|(_, won)| *won)
                .map(|(name, _)| *name)
                .collect();
            match winners.as_slice() {
                [one] => Ok(format!("{one} won")),
                _ => Err(format!("winners: {winners:?}")),
            }
        })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.schedules, 6);
    assert!(
        ["one won", "two won", "three won"]
            .iter()
            .all(|label| explored.seen[*label] == 2)
    );
}

#[tokio::test]
async fn three_read_then_writes_have_ninety_orders_and_six_keep_every_update() {
    let explored = two_naive()
        .actor("carol", |cloud| async move {
            toy::naive_increment(&cloud).await
        })
        .check(|cloud, _| async move {
            Ok(format!(
                "counter at {}",
                toy::peek(&cloud, "a").await.unwrap()
            ))
        })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.schedules, 90);
    assert_eq!(explored.seen["counter at 3"], 6);
}

#[tokio::test]
async fn redis_commands_are_ordered_too() {
    async fn increment(cloud: Arc<Cloud>) {
        let mut redis = cloud.redis().await.unwrap();
        let key = cloud.names().key("counter");
        let amount: Option<i64> = redis.get(&key).await.unwrap();
        let _: () = redis.set(&key, amount.unwrap_or(0) + 1).await.unwrap();
    }
    let explored = Interleave::of(toy::empty)
        .actor("alice", increment)
        .actor("bob", increment)
        .check(|cloud, _| async move {
            let mut redis = cloud.beside_tap().redis().await.unwrap();
            let amount: i64 = redis.get(cloud.names().key("counter")).await.unwrap();
            Ok(format!("counter at {amount}"))
        })
        .run()
        .await
        .unwrap();
    assert_eq!((explored.schedules, explored.seen["counter at 1"]), (6, 4));
}

#[tokio::test]
async fn a_broken_schedule_can_be_replayed() {
    let broken = two_naive().run().await.unwrap_err();
    let written_down = broken.schedule.to_string();
    let read_back: Schedule = written_down.parse().unwrap();
    assert_eq!(read_back, broken.schedule);
    let again = two_naive().replay(&read_back).await.unwrap_err();
    assert_eq!((again.why, again.calls), (broken.why, broken.calls));
    // The order before it holds.
    let held = two_naive()
        .replay(&"alice alice bob bob".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(held, "both count");
}

#[tokio::test]
async fn a_schedule_that_does_not_fit_is_told_so() {
    for (schedule, expected) in [
        (
            "alice carol",
            "the schedule says carol, but waiting are alice (PutItem counters), bob (GetItem counters)",
        ),
        (
            "alice alice bob",
            "the schedule ends here, but waiting are bob (PutItem counters)",
        ),
        (
            "alice alice bob bob bob",
            "the schedule says bob, but everybody has finished",
        ),
    ] {
        let broken = two_naive()
            .replay(&schedule.parse().unwrap())
            .await
            .unwrap_err();
        assert_eq!(broken.why, expected);
    }
}

#[tokio::test]
async fn calls_that_one_actor_makes_at_once_are_ordered_too() {
    let explored = Interleave::of(toy::zero)
        .actor("both", |cloud: Arc<Cloud>| async move {
            let (one, two) =
                tokio::join!(toy::swap(&cloud, "a", 0, 1), toy::swap(&cloud, "a", 0, 2));
            (one.unwrap(), two.unwrap())
        })
        .actor("other", |cloud| async move {
            (toy::swap(&cloud, "a", 0, 3).await.unwrap(), false)
        })
        .check(|cloud, _| async move { Ok(format!("{:?}", toy::peek(&cloud, "a").await)) })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.schedules, 6);
    assert_eq!(
        explored.seen.values().copied().collect::<Vec<_>>(),
        [2, 2, 2]
    );
}

#[tokio::test]
async fn more_orders_than_allowed_is_an_error() {
    let broken = two_guarded().at_most(5).run().await.unwrap_err();
    assert!(broken.why.contains("more than 5 orders"), "{broken}");
    let enough = two_naive()
        .check(|_, _| async { Ok(String::new()) })
        .at_most(6)
        .run()
        .await;
    assert_eq!(enough.unwrap().schedules, 6);
}

#[tokio::test]
async fn an_actor_that_waits_for_something_else_is_named() {
    let broken = Interleave::of(toy::zero)
        .actor("alice", |cloud: Arc<Cloud>| async move {
            toy::naive_increment(&cloud).await
        })
        .actor("sleeper", |_| std::future::pending())
        .patience(Duration::from_millis(50))
        .run()
        .await
        .unwrap_err();
    assert!(
        broken
            .why
            .starts_with("sleeper neither made a call nor finished"),
        "{broken}"
    );
}

#[tokio::test]
async fn an_actor_that_panics_is_reported_with_the_order() {
    let broken = Interleave::of(toy::zero)
        .actor("alice", |cloud: Arc<Cloud>| async move {
            toy::naive_increment(&cloud).await
        })
        .actor("reader", |cloud| async move {
            assert_eq!(toy::read(&cloud, "a").await.unwrap(), Some(1), "too early");
        })
        .run()
        .await
        .unwrap_err();
    assert!(broken.why.starts_with("reader panicked:"), "{broken}");
    assert!(broken.why.contains("too early"), "{broken}");
    assert_eq!(broken.schedule.to_string(), "alice reader");
}

#[tokio::test]
async fn a_check_that_panics_is_reported_with_the_order() {
    let broken = two_naive()
        .check(|cloud, _| async move {
            assert_eq!(toy::peek(&cloud, "a").await, Some(2));
            Ok(String::new())
        })
        .run()
        .await
        .unwrap_err();
    assert!(broken.why.starts_with("the check panicked:"), "{broken}");
    assert_eq!(broken.schedule.to_string(), "alice bob alice bob");
}

#[tokio::test]
async fn runs_that_differ_by_themselves_are_told_so() {
    let runs = Arc::new(AtomicUsize::new(0));
    let broken = two_naive()
        .actor("moody", move |cloud| {
            let first = runs.fetch_add(1, Ordering::SeqCst) == 0;
            async move {
                match first {
                    true => drop(toy::read(&cloud, "a").await.unwrap()),
                    false => toy::write(&cloud, "a", 0).await.unwrap(),
                }
            }
        })
        .check(|_, _| async { Ok(String::new()) })
        .run()
        .await
        .unwrap_err();
    assert!(
        broken.why.contains("the same choices led elsewhere"),
        "{broken}"
    );
    assert!(broken.why.contains("moody (GetItem counters)"), "{broken}");
    assert!(broken.why.contains("moody (PutItem counters)"), "{broken}");
}

#[tokio::test]
async fn what_the_actors_do_before_their_first_call_has_one_order() {
    let explored = Interleave::of(toy::zero)
        .actor("alice", |cloud: Arc<Cloud>| async move {
            let id = cloud.ids().next("thing");
            toy::write(&cloud, "b", 0).await.unwrap();
            id
        })
        .actor("bob", |cloud| async move {
            let id = cloud.ids().next("thing");
            toy::write(&cloud, "c", 0).await.unwrap();
            id
        })
        .check(|_, outcomes| async move { Ok(format!("{outcomes:?}")) })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.seen.len(), 1, "{explored:?}");
}

#[tokio::test]
async fn a_call_that_is_given_up_is_no_longer_waiting() {
    let explored = Interleave::of(toy::zero)
        .actor("hasty", |cloud: Arc<Cloud>| async move {
            let read = tokio::time::timeout(Duration::from_millis(1), toy::read(&cloud, "a"));
            assert!(
                read.await.is_err(),
                "a call that is held does not come back"
            );
        })
        .actor("other", |cloud| async move {
            // Long after the hasty one is gone.
            tokio::time::sleep(Duration::from_millis(30)).await;
            toy::naive_increment(&cloud).await;
        })
        .run()
        .await
        .unwrap();
    assert_eq!(explored.schedules, 1);
}

#[tokio::test]
async fn interleave_under_a_weakened_guard_finds_what_the_guard_prevents() {
    let weaken = Arc::new(Weaken::guard_on("counters").without("amount = :old"));
    let plan = Arc::clone(&weaken);
    let broken = two_guarded()
        .under(move || Arc::clone(&plan))
        .run()
        .await
        .unwrap_err();
    assert!(weaken.applied() > 0);
    assert_eq!(broken.schedule.to_string(), "alice bob alice bob");
}

#[tokio::test]
async fn interleave_under_lost_answers_finds_that_a_retry_meets_its_own_write() {
    // The answer to the first write is lost, the SDK sends it again, and it fails its own
    // condition: the increment without identity counts twice.
    let broken = Interleave::of(toy::zero)
        .actor("alice", |cloud: Arc<Cloud>| async move {
            toy::increment(&cloud).await
        })
        .check(|cloud, _| async move {
            match toy::peek(&cloud, "a").await {
                Some(1) => Ok(String::new()),
                other => Err(format!("one increment, and the counter is at {other:?}")),
            }
        })
        .under(|| Arc::new(LoseFirstWrite(Mutex::new(false))))
        .run()
        .await
        .unwrap_err();
    assert_eq!(broken.why, "one increment, and the counter is at Some(2)");
    assert!(broken.calls[1].contains("no answer"), "{broken}");
}

struct LoseFirstWrite(Mutex<bool>);

impl cloud::tap::Plan for LoseFirstWrite {
    fn before<'a>(
        &'a self,
        request: &'a cloud::tap::Request,
    ) -> futures::future::BoxFuture<'a, cloud::tap::Verdict> {
        let first = request.is_write() && !std::mem::replace(&mut *self.0.lock().unwrap(), true);
        Box::pin(async move {
            if first {
                cloud::tap::Verdict::LoseAnswer
            } else {
                cloud::tap::Verdict::Pass
            }
        })
    }
}

#[tokio::test]
async fn a_plan_installed_in_the_set_up_cannot_hide_calls() {
    struct Toy(
        Cloud,
        #[allow(dead_code, reason = "holds the plan in charge")] Installed,
    );
    impl chaos::World for Toy {
        fn cloud(&self) -> &Cloud {
            &self.0
        }
    }
    let broken = Interleave::of(|| async {
        let cloud = toy::zero().await;
        let plan = cloud
            .tap()
            .install(Arc::new(Faults::seeded(1).throttle(1.0)));
        Toy(cloud, plan)
    })
    .actor("alice", |toy: Arc<Toy>| async move {
        // Throttled, by a plan that never lets the call come to the one that holds.
        let get = toy.0.dynamodb().get_item();
        let get = get.table_name(toy.0.names().table("counters"));
        let key = AttributeValue::S("c".into());
        get.key("counter_id", key).send().await.unwrap_err();
    })
    .run()
    .await
    .unwrap_err();
    assert!(
        broken.why.contains("Give that plan to `.under(…)`"),
        "{broken}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interleave_is_the_same_on_several_threads() {
    let explored = two_naive()
        .under(|| Arc::new(Faults::seeded(1)))
        .check(|cloud, _| async move {
            Ok(format!(
                "counter at {:?}",
                toy::peek(&cloud, "a").await.unwrap()
            ))
        })
        .run()
        .await
        .unwrap();
    assert_eq!((explored.schedules, explored.seen["counter at 1"]), (6, 4));
}

#[tokio::test]
async fn a_call_that_is_not_held_fails_the_run_unless_it_may_pass() {
    let race = || {
        Interleave::of(toy::zero)
            .actor("alice", |cloud| async move {
                toy::naive_increment(&cloud).await
            })
            .actor("bob", |cloud: Arc<Cloud>| async move {
                let work = async move { toy::write(&cloud, "b", 1).await.unwrap() };
                tokio::spawn(cloud::as_actor("helper", work)).await.unwrap();
            })
    };
    let loose = race().run().await.unwrap_err();
    assert!(loose.why.contains("a call was not held"), "{}", loose.why);
    race().beside("helper").run().await.unwrap();
}

/// A lease that is checked by the clock and then written without its end: with a clock that stands still
/// the two never meet.
#[tokio::test]
async fn time_that_passes_between_a_decision_and_its_write_is_found() {
    let ends = cloud::TEST_EPOCH + 1_000;
    let race = |with_time: bool| {
        let race = Interleave::of(toy::zero)
            .actor("holder", move |cloud: Arc<Cloud>| async move {
                toy::read(&cloud, "a").await.unwrap();
                if cloud.now() < ends {
                    toy::write(&cloud, "a", 1).await.unwrap();
                }
            })
            .actor("taker", move |cloud: Arc<Cloud>| async move {
                toy::read(&cloud, "a").await.unwrap();
                if cloud.now() >= ends {
                    toy::write(&cloud, "a", 2).await.unwrap();
                }
            })
            .check(|cloud, _| async move {
                let kept = toy::peek(&cloud, "a").await.unwrap();
                // Once taken, it is not the first holder's any more.
                let taken = cloud.now() >= cloud::TEST_EPOCH + 1_000;
                match kept {
                    1 if taken => Ok("held after its end".to_owned()),
                    kept => Ok(format!("{kept}")),
                }
            });
        if with_time {
            race.moment("the-lease-ends", |cloud: &Cloud| {
                cloud.clock().advance(Duration::from_secs(1));
            })
        } else {
            race
        }
    };
    let still = race(false).run().await.unwrap();
    assert_eq!(still.seen.keys().collect::<Vec<_>>(), ["1"]);
    let moving = race(true).run().await.unwrap();
    assert!(moving.seen.contains_key("held after its end"), "{moving:?}");
    assert!(moving.seen.contains_key("2"), "{moving:?}");
    let order = "holder taker the-lease-ends holder";
    let replayed = race(true).replay(&order.parse().unwrap()).await.unwrap();
    assert_eq!(replayed, "held after its end");
}

/// Reads, then looks at the clock: with answers that arrive at once, the two are of one moment.
#[tokio::test]
async fn an_answer_that_is_late_is_old_news() {
    let race = |late: bool| {
        let race = Interleave::of(toy::zero)
            .actor("reader", |cloud: Arc<Cloud>| async move {
                let seen = toy::read(&cloud, "a").await.unwrap().unwrap();
                (seen, cloud.now() - cloud::TEST_EPOCH)
            })
            .actor("writer", |cloud: Arc<Cloud>| async move {
                toy::write(&cloud, "a", 1).await.unwrap();
                cloud.clock().advance(Duration::from_secs(1));
                (1, 0)
            })
            .check(|_, told| async move { Ok(format!("{:?}", told[0].1)) });
        if late { race.late_answers() } else { race }
    };
    let prompt = race(false).run().await.unwrap();
    assert_eq!(
        prompt.seen.keys().collect::<Vec<_>>(),
        ["(0, 0)", "(1, 1000)"]
    );
    let late = race(true).run().await.unwrap();
    assert!(late.seen.contains_key("(0, 1000)"), "{late:?}");
    assert_eq!(late.schedules, 6, "two steps of each");
    let order = "reader writer writer reader".parse().unwrap();
    assert_eq!(race(true).replay(&order).await.unwrap(), "(0, 1000)");
}
