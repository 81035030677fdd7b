//! Redis. One server may serve many tests: every key carries the cloud's prefix.

use crate::toy::eventually;
use ::redis::geo::Coord;
use ::redis::{AsyncCommands, Script, cmd};
use cloud::{Cloud, RedisConnection};
use futures::StreamExt;
use futures::future::join_all;
use std::time::Duration;

async fn connect() -> (Cloud, RedisConnection, String) {
    let cloud = cloud::connect_for_tests().await.unwrap();
    let redis = cloud.redis().await.unwrap();
    let key = cloud.names().key(&cloud.ids().next("key"));
    (cloud, redis, key)
}

async fn set_nx_px(mut redis: RedisConnection, key: &str, value: &str, millis: u32) -> bool {
    let mut set = cmd("SET");
    set.arg(key).arg(value).arg("NX").arg("PX").arg(millis);
    let answer: Option<String> = set.query_async(&mut redis).await.unwrap();
    answer.is_some()
}

#[tokio::test]
async fn set_nx_px_admits_one_and_expires() {
    let (_cloud, mut redis, key) = connect().await;
    assert!(set_nx_px(redis.clone(), &key, "a", 200).await);
    assert!(!set_nx_px(redis.clone(), &key, "b", 200).await);
    assert_eq!(redis.get::<_, String>(&key).await.unwrap(), "a");
    eventually("the lease expired", async || {
        set_nx_px(redis.clone(), &key, "b", 60_000)
            .await
            .then_some(())
    })
    .await;
    let left: i64 = redis.pttl(&key).await.unwrap();
    assert!((1..=60_000).contains(&left), "{left}");
}

#[tokio::test]
async fn of_32_racing_lockers_one_wins() {
    let (_cloud, mut redis, key) = connect().await;
    let names: Vec<_> = (0..32).map(|i| format!("owner-{i}")).collect();
    let won = join_all(
        names
            .iter()
            .map(|name| set_nx_px(redis.clone(), &key, name, 60_000)),
    )
    .await;
    assert_eq!(won.iter().filter(|won| **won).count(), 1);
    let winner = won.iter().position(|won| *won).unwrap();
    assert_eq!(redis.get::<_, String>(&key).await.unwrap(), names[winner]);
}

#[tokio::test]
async fn lua_deletes_only_if_the_value_matches() {
    let (_cloud, mut redis, key) = connect().await;
    let release = Script::new(
        "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) else return 0 end",
    );
    let _: () = redis.set(&key, "mine").await.unwrap();
    let mut run = async |owner: &str| -> i64 {
        release
            .key(&key)
            .arg(owner)
            .invoke_async(&mut redis)
            .await
            .unwrap()
    };
    assert_eq!(run("yours").await, 0);
    assert_eq!(run("mine").await, 1);
    assert_eq!(run("mine").await, 0);
}

#[tokio::test]
async fn a_script_runs_with_nobody_between_its_commands() {
    let (_cloud, mut redis, key) = connect().await;
    // Read, then write: racing clients would lose updates, a script does not.
    let add = Script::new(
        "local n = tonumber(redis.call('GET', KEYS[1]) or '0') redis.call('SET', KEYS[1], n + 1) return n + 1",
    );
    join_all((0..32).map(|_| {
        let mut redis = redis.clone();
        let add = &add;
        let key = &key;
        async move { add.key(key).invoke_async::<i64>(&mut redis).await.unwrap() }
    }))
    .await;
    assert_eq!(redis.get::<_, i64>(&key).await.unwrap(), 32);
}

#[tokio::test]
async fn incr_with_expiry_counts_a_window() {
    let (_cloud, mut redis, key) = connect().await;
    for count in 1..=3 {
        assert_eq!(redis.incr::<_, _, i64>(&key, 1).await.unwrap(), count);
    }
    assert!(redis.pexpire::<_, bool>(&key, 100).await.unwrap());
    eventually("the window is over", async || {
        (!redis.exists::<_, bool>(&key).await.unwrap()).then_some(())
    })
    .await;
    assert_eq!(redis.incr::<_, _, i64>(&key, 1).await.unwrap(), 1);
}

#[tokio::test]
async fn a_transaction_does_all_or_nothing_and_answers_in_order() {
    let (_cloud, mut redis, key) = connect().await;
    let mut pipe = ::redis::pipe();
    pipe.atomic().set(&key, 40).ignore().incr(&key, 2).get(&key);
    let answers: (i64, i64) = pipe.query_async(&mut redis).await.unwrap();
    assert_eq!(answers, (42, 42));
}

#[tokio::test]
async fn geosearch_finds_what_is_within_the_radius() {
    let (_cloud, mut redis, key) = connect().await;
    let places = [
        (13.4050, 52.5200, "berlin"),
        (13.0645, 52.3906, "potsdam"),
        (2.3522, 48.8566, "paris"),
    ];
    for (longitude, latitude, name) in places {
        let at = (Coord::lon_lat(longitude, latitude), name);
        assert_eq!(redis.geo_add::<_, _, i64>(&key, at).await.unwrap(), 1);
    }
    let mut near = async |kilometres: u32| -> Vec<(String, f64)> {
        let mut search = cmd("GEOSEARCH");
        search.arg(&key).arg("FROMLONLAT").arg(13.40).arg(52.52);
        search
            .arg("BYRADIUS")
            .arg(kilometres)
            .arg("km")
            .arg("ASC")
            .arg("WITHDIST");
        search.query_async(&mut redis).await.unwrap()
    };
    let names = |found: &[(String, f64)]| -> Vec<String> {
        found.iter().map(|(name, _)| name.clone()).collect()
    };
    assert_eq!(names(&near(5).await), ["berlin"]);
    let both = near(50).await;
    assert_eq!(names(&both), ["berlin", "potsdam"]);
    assert!((25.0..30.0).contains(&both[1].1), "{both:?}");
    assert_eq!(names(&near(2_000).await), ["berlin", "potsdam", "paris"]);
}

#[tokio::test]
async fn a_moved_member_is_found_only_where_it_is_now_and_zrem_removes_it() {
    let (_cloud, mut redis, key) = connect().await;
    let search = async |mut redis: RedisConnection, longitude: f64| -> usize {
        let mut search = cmd("GEOSEARCH");
        search.arg(&key).arg("FROMLONLAT").arg(longitude).arg(50.0);
        search
            .arg("BYRADIUS")
            .arg(10)
            .arg("km")
            .arg("ASC")
            .arg("COUNT")
            .arg(5);
        search
            .query_async::<Vec<String>>(&mut redis)
            .await
            .unwrap()
            .len()
    };
    for longitude in [10.0, 20.0] {
        let _: i64 = redis
            .geo_add(&key, (Coord::lon_lat(longitude, 50.0), "driver"))
            .await
            .unwrap();
    }
    assert_eq!(search(redis.clone(), 10.0).await, 0);
    assert_eq!(search(redis.clone(), 20.0).await, 1);
    let _: i64 = redis.zrem(&key, "driver").await.unwrap();
    assert_eq!(search(redis.clone(), 20.0).await, 0);
}

#[tokio::test]
async fn sorted_sets_rank_by_score() {
    let (_cloud, mut redis, key) = connect().await;
    for (name, score) in [("ann", 10), ("bob", 30), ("eve", 9)] {
        let _: i64 = redis.zadd(&key, name, score).await.unwrap();
    }
    let best: Vec<(String, i64)> = redis
        .zrevrangebyscore_limit_withscores(&key, "+inf", "-inf", 0, 2)
        .await
        .unwrap();
    assert_eq!(best, [("bob".to_owned(), 30), ("ann".to_owned(), 10)]);
    assert_eq!(redis.zrank::<_, _, i64>(&key, "eve").await.unwrap(), 0);
    let _: f64 = redis.zincr(&key, "eve", 100).await.unwrap();
    assert_eq!(redis.zrank::<_, _, i64>(&key, "eve").await.unwrap(), 2);
}

#[tokio::test]
async fn a_sorted_set_gives_what_is_due_and_removes_by_score() {
    let (_cloud, mut redis, key) = connect().await;
    for (job, at) in [("late", 300), ("now", 100), ("soon", 200)] {
        let _: i64 = redis.zadd(&key, job, at).await.unwrap();
    }
    let due: Vec<String> = redis
        .zrangebyscore_limit(&key, "-inf", 200, 0, 10)
        .await
        .unwrap();
    assert_eq!(due, ["now", "soon"]);
    assert_eq!(
        redis
            .zrembyscore::<_, _, _, i64>(&key, "-inf", 200)
            .await
            .unwrap(),
        2
    );
    // Of two that remove the same member, one is told that it did.
    assert_eq!(redis.zrem::<_, _, i64>(&key, "late").await.unwrap(), 1);
    assert_eq!(redis.zrem::<_, _, i64>(&key, "late").await.unwrap(), 0);
}

#[tokio::test]
async fn hashes_keep_fields() {
    let (_cloud, mut redis, key) = connect().await;
    let _: () = redis
        .hset_multiple(&key, &[("a", "1"), ("b", "2")])
        .await
        .unwrap();
    assert_eq!(redis.hincr::<_, _, _, i64>(&key, "a", 5).await.unwrap(), 6);
    let mut all: Vec<(String, String)> = redis.hgetall(&key).await.unwrap();
    all.sort();
    assert_eq!(all, [("a".into(), "6".into()), ("b".into(), "2".into())]);
}

#[tokio::test]
async fn published_messages_reach_a_subscriber() {
    let (cloud, mut redis, key) = connect().await;
    let mut subscriber = cloud.redis_subscriber().await.unwrap();
    subscriber.subscribe(&key).await.unwrap();
    for text in ["one", "two"] {
        assert_eq!(redis.publish::<_, _, i64>(&key, text).await.unwrap(), 1);
    }
    let other = format!("{key}-other");
    assert_eq!(
        redis
            .publish::<_, _, i64>(&other, "to nobody")
            .await
            .unwrap(),
        0
    );
    let heard = tokio::time::timeout(
        Duration::from_secs(5),
        subscriber
            .on_message()
            .take(2)
            .map(|message| message.get_payload::<String>().unwrap())
            .collect::<Vec<_>>(),
    );
    assert_eq!(heard.await.unwrap(), ["one", "two"]);
}
