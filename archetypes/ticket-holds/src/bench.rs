//! `bench`: how many holds a second does general admission take? Holds of one counter are serial: a transaction
//! has the counter until it is committed, and another one is refused meanwhile. So the bound of a counter is
//! the latency of a transaction, long before the units of its partition key. The bench adds that latency at the
//! tap, with the conflicts that come with it.

use crate::general_admission::ADMISSION_SHARDS;
use crate::tables::TABLES;
use crate::{
    BoxOffice, NewAdmissions, NewEvent, NewSection, OfficeError, Realization, Reserved, Tickets,
};
use anyhow::Result;
use clap::{Arg, ArgMatches, Command};
use cloud::Cloud;
use cloud::item::shard_of;
use cloud::tap::{Call, Plan, Request, Verdict};
use futures::future::{BoxFuture, join_all};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The `bench` command.
pub const BENCH: walkthrough::Command = walkthrough::Command {
    name: "bench",
    about: "Hold admissions with an added latency, and print the holds a second",
    args: bench_args,
    run: |cloud, args| Box::pin(bench(cloud, args)),
};

const BUYERS: [usize; 3] = [1, 8, 32];
const LATENCIES_MS: [u64; 2] = [5, 10];
const COUNTERS: [u32; 2] = [1, ADMISSION_SHARDS];

fn bench_args(command: Command) -> Command {
    command.arg(
        Arg::new("seconds")
            .long("seconds")
            .value_name("N")
            .value_parser(seconds)
            .default_value("5")
            .help("How long each of the twelve measurements takes"),
    )
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok();
    let seconds = seconds.filter(|seconds| (0.1..=600.0).contains(seconds));
    seconds.ok_or_else(|| "give a number of seconds from 0.1 to 600".to_owned())
}

async fn bench(cloud: Cloud, args: ArgMatches) -> Result<()> {
    let seconds = args.get_one::<f64>("seconds").copied().unwrap_or(5.0);
    let time = Duration::from_secs_f64(seconds);
    cloud.create_tables(TABLES).await?;
    println!("latency  counters  buyers  holds/s  conflicts per hold  gave up");
    for latency_ms in LATENCIES_MS {
        for counters in COUNTERS {
            for buyers in BUYERS {
                let Measured {
                    holds,
                    conflicts,
                    gave_up,
                } = measure(&cloud, latency_ms, counters, buyers, time).await?;
                println!(
                    "{latency_ms:>4} ms  {counters:>8}  {buyers:>6}  {:>7.0}  {:>18.1}  {gave_up:>7}",
                    f64::from(holds) / time.as_secs_f64(),
                    f64::from(conflicts) / f64::from(holds.max(1)),
                );
            }
        }
    }
    Ok(())
}

/// What so many buyers got.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// How many holds were made.
    pub holds: u32,
    /// How often a transaction met another one at its counter.
    pub conflicts: u32,
    /// How often a buyer was told to come back.
    pub gave_up: u32,
}

/// Lets so many buyers hold admissions of so many counters, one after the other, each call with this latency.
pub async fn measure(
    cloud: &Cloud,
    latency_ms: u64,
    counters: u32,
    buyers: usize,
    time: Duration,
) -> Result<Measured> {
    let office = BoxOffice::new(cloud.clone(), Realization::Pure);
    let event_id = cloud.ids().next("event");
    let section = NewSection {
        name: "Floor".into(),
        tickets: Tickets::Admissions(99_999),
        price: 1,
    };
    office
        .create_event(&NewEvent {
            event_id: event_id.clone(),
            name: "Festival".into(),
            sections: vec![section],
        })
        .await?;
    let busy = Arc::new(Busy {
        latency: Duration::from_millis(latency_ms),
        state: Mutex::default(),
    });
    let _installed = cloud.tap().install(busy.clone());
    let begun = Instant::now();
    let buying = (0..buyers).map(|_| {
        let (office, event_id) = (office.clone(), event_id.clone());
        tokio::spawn(async move {
            let (mut holds, mut gave_up) = (0, 0);
            while begun.elapsed() < time {
                let id = || office.cloud().ids().next("booking");
                let at = |id: &String| shard_of(id, ADMISSION_SHARDS) < counters;
                let booking_id = std::iter::repeat_with(id).find(at).unwrap_or_default();
                let new = NewAdmissions {
                    user_id: format!("user-of-{booking_id}"),
                    booking_id,
                    event_id: event_id.clone(),
                    section: "Floor".into(),
                    count: 1,
                };
                match office.reserve_admissions(&new).await {
                    Ok(Reserved::Held(_)) => holds += 1,
                    Ok(_) => {}
                    Err(OfficeError::Contended) => gave_up += 1,
                    Err(other) => return Err(other),
                }
            }
            Ok((holds, gave_up))
        })
    });
    let (mut holds, mut gave_up) = (0, 0);
    for buyer in join_all(buying).await {
        let (held, tired) = buyer??;
        holds += held;
        gave_up += tired;
    }
    let conflicts = busy.state().conflicts;
    Ok(Measured {
        holds,
        conflicts,
        gave_up,
    })
}

/// Every call takes this long. A transaction has its counters meanwhile, and another one is refused.
struct Busy {
    latency: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    locked: HashSet<String>,
    /// What each transaction under way has, by its number at the tap.
    under_way: HashMap<u64, Vec<String>>,
    conflicts: u32,
}

impl Busy {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the counters of a transaction, or answers that another one has them.
    fn lock(&self, request: &Request) -> Option<Verdict> {
        let parts = request.body["TransactItems"].as_array()?;
        let counters = parts.iter().filter_map(|part| {
            let counter = part.pointer("/Update/Key/block_id/S")?;
            counter.as_str().map(str::to_owned)
        });
        let counters: Vec<String> = counters.collect();
        let mut state = self.state();
        if counters
            .iter()
            .any(|counter| state.locked.contains(counter))
        {
            state.conflicts += 1;
            let reasons = vec![json!({"Code": "TransactionConflict"}); parts.len()];
            return Some(Verdict::Answer {
                status: 400,
                body: json!({
                    "__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
                    "Message": "Transaction cancelled [TransactionConflict]",
                    "CancellationReasons": Value::Array(reasons),
                }),
            });
        }
        state.locked.extend(counters.iter().cloned());
        state.under_way.insert(request.number, counters);
        None
    }
}

impl Plan for Busy {
    fn before<'a>(&'a self, request: &'a Request) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if let Some(refused) = self.lock(request) {
                return refused;
            }
            tokio::time::sleep(self.latency).await;
            Verdict::Pass
        })
    }

    fn after<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, ()> {
        let mut state = self.state();
        for counter in (state.under_way.remove(&call.request.number)).unwrap_or_default() {
            state.locked.remove(&counter);
        }
        drop(state);
        Box::pin(async {})
    }
}
