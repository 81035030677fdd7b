//! The arithmetic of `cost`, against a pencil.
#![allow(clippy::unwrap_used)]

mod toy;

use cloud::tables::{Index, Key, Projection, Scope, Table};
use toy::ARCHETYPE;
use walkthrough::terminal::Look;
use walkthrough::workload::estimate;
use walkthrough::{Archetype, Skew, Workload, share, walk_for_tests};

/// 500 increments a second, of the way the walk takes three times: 4, 6 and (refused) 4 WCU.
const WORKLOAD: Workload = Workload {
    unit: "counts",
    mix: &[share("increment", 1.0), share("read counter", 4.0)],
    skew: &[
        Skew {
            resource: "counters",
            action: "increment",
            hottest: 0.9,
            why: "a hit",
        },
        Skew {
            resource: "counters",
            action: "",
            hottest: 0.5,
            why: "",
        },
    ],
    kept_days: 30,
};

#[tokio::test]
async fn cost_of_500_a_second_is_the_arithmetic_by_hand() {
    let archetype = Archetype {
        workload: WORKLOAD,
        ..ARCHETYPE
    };
    let transcript = walk_for_tests(&archetype).await.unwrap();
    let estimate = estimate(&archetype, &transcript, 500.0).unwrap();

    // Reads: 4 × 500 a second, each a consistent GetItem of a small item, 1 RCU.
    assert_eq!(estimate.read(), 2_000.0);
    // Writes: 500 a second at (4 + 6 + 4) / 3 WCU.
    let each = 14.0 / 3.0;
    assert!((estimate.write() - 500.0 * each).abs() < 1e-6);

    // counters: 2 WCU of every increment, and the reads. 90% and 50% are on one key.
    let counters = estimate.hottest().unwrap();
    assert_eq!(counters.resource, "counters");
    assert!((counters.hot_write - 500.0 * 2.0 * 0.9).abs() < 1e-6);
    assert!((counters.hot_read - 2_000.0 * 0.5).abs() < 1e-6);
    assert!((counters.load() - 0.9).abs() < 1e-6);
    assert_eq!(
        counters.verdict(500.0, "counts"),
        "close to the limit; full at 556 counts/s"
    );

    // A month is 2,592,000 seconds. Reads $0.125 and writes $0.625 a million, on demand.
    let reads = 2_000.0 * 2_592_000.0 / 1e6 * 0.125;
    let writes = 500.0 * each * 2_592_000.0 / 1e6 * 0.625;
    assert_eq!(
        format!("{:.2}", estimate.on_demand.reads),
        format!("${reads:.2}")
    );
    assert_eq!(
        format!("{:.2}", estimate.on_demand.writes),
        format!("${writes:.2}")
    );

    // Provisioned at 70%, rounded up for each: reads 2858; writes counters 1429,
    // by-status (500 × 2/3) 477, events 1429. 720 hours at $0.00013 and $0.00065.
    let reads = 2_858.0 * 720.0 * 0.000_13;
    let writes = (1_429.0 + 477.0 + 1_429.0) * 720.0 * 0.000_65;
    assert_eq!(
        format!("{:.2}", estimate.provisioned.reads),
        format!("${reads:.2}")
    );
    assert_eq!(
        format!("{:.2}", estimate.provisioned.writes),
        format!("${writes:.2}")
    );

    // Two of three increments leave an event: counter_id (10 + 12), event_id (8 + 10) and at (2 and
    // six for ten digits) are 48 bytes, 148 on the bill. The first one adds a byte to the counter,
    // because 0 is stored in one and 1 in two. A refused one stores nothing.
    let grown = transcript.steps().filter(|step| step.action == "increment");
    let grown: Vec<i64> = grown.map(|step| step.cost.stored).collect();
    assert_eq!(grown, [149, 148, 0]);
    let per_second = 500.0 * grown.iter().sum::<i64>() as f64 / 3.0;
    assert_eq!(estimate.stored_bytes, (per_second * 30.0 * 86_400.0) as u64);
}

#[tokio::test]
async fn a_hot_key_over_its_limit_is_said_in_words() {
    let archetype = Archetype {
        workload: WORKLOAD,
        ..ARCHETYPE
    };
    let transcript = walk_for_tests(&archetype).await.unwrap();
    let estimate = estimate(&archetype, &transcript, 5_000.0).unwrap();
    let text = estimate.text(&Look::PLAIN);
    assert!(
        text.contains(
            "900%  over the limit by 9.0×: shard the key, or take load off it; full at 556 counts/s"
        ),
        "{text}"
    );
    assert_eq!(estimate.json()["partitions"][0]["over_the_limit"], true);
    assert_eq!(estimate.json()["hottest"], "counters");
}

#[tokio::test]
async fn a_share_can_count_one_way_of_an_action_only() {
    let workload = |when| Workload {
        mix: match when {
            "refused" => &const { [share("reset", 1.0).when("refused")] },
            _ => &const { [share("reset", 1.0).when("with its events")] },
        },
        skew: &[],
        ..WORKLOAD
    };
    let transcript = walk_for_tests(&ARCHETYPE).await.unwrap();
    let writes = |when| {
        let archetype = Archetype {
            workload: workload(when),
            ..ARCHETYPE
        };
        estimate(&archetype, &transcript, 1.0).unwrap().write()
    };
    assert_eq!((writes("refused"), writes("with its events")), (1.0, 5.0));
}

#[tokio::test]
async fn objects_in_s3_are_on_the_bill() {
    let archetype = Archetype {
        workload: Workload {
            mix: &const { [share("reset", 1.0).storing(100_000)] },
            skew: &[],
            ..WORKLOAD
        },
        ..ARCHETYPE
    };
    let transcript = walk_for_tests(&archetype).await.unwrap();
    let estimate = estimate(&archetype, &transcript, 10.0).unwrap();
    // A megabyte a second for thirty days is 2,413.99 GB of 2^30 bytes, at $0.023 each.
    assert_eq!(estimate.object_bytes, 2_592_000_000_000);
    let text = estimate.text(&Look::PLAIN);
    assert!(text.contains("2.4 TB in S3 (30 days)"), "{text}");
    assert!(text.contains("S3 storage"), "{text}");
    assert!(text.contains("$55.52"), "{text}");
    let bill = &estimate.json()["dollars_per_month"]["on_demand"];
    let dollars = |what: &str| bill[what].as_str().unwrap().parse::<f64>().unwrap();
    let parts = ["reads", "writes", "storage", "requests", "s3_storage"].map(dollars);
    assert!((parts.iter().sum::<f64>() - dollars("total")).abs() < 0.05);
}

#[tokio::test]
async fn a_rate_has_to_be_above_nothing() {
    let transcript = walk_for_tests(&ARCHETYPE).await.unwrap();
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let error = estimate(&ARCHETYPE, &transcript, rate).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("the rate must be a number above 0"),
            "{error}"
        );
    }
}

#[tokio::test]
async fn a_local_index_loads_the_partitions_of_its_table() {
    const LOCAL: Index = Index {
        name: "by-time",
        scope: Scope::Local,
        partition: Key::S("counter_id"),
        sort: Some(Key::N("at")),
        projection: Projection::KeysOnly,
        why: "In the order of the clock.",
    };
    const EVENTS: Table = Table {
        indexes: &[LOCAL],
        ..toy::EVENTS
    };
    const EVEN: Workload = Workload {
        skew: &[Skew {
            resource: "events",
            action: "",
            hottest: 1.0,
            why: "",
        }],
        mix: &[share("increment", 1.0)],
        ..WORKLOAD
    };
    let archetype = Archetype {
        tables: &[toy::COUNTERS, EVENTS],
        workload: EVEN,
        ..ARCHETYPE
    };
    let transcript = walk_for_tests(&archetype).await.unwrap();
    let estimate = estimate(&archetype, &transcript, 3.0).unwrap();
    let events = estimate.hottest().unwrap();
    // Of three increments each writes 2 WCU to the table, and two of them 1 WCU to the index.
    assert_eq!(
        (events.resource.as_str(), events.hot_write),
        ("events", 6.0 + 2.0)
    );
}
