//! No way to end a process leaves a container of it running. One that was made and never started, since the process
//! was killed in between, is removed by a process that begins a minute later. Needs a Docker engine, and not the program `docker`:
//!
//! ```text
//! cargo test -p cloud --features docker --test containers
//! ```
//!
//! Each case runs this program again as a process that uses the docker backend, in a process group of its own and
//! without a PATH, and ends it.

#![allow(clippy::unwrap_used)]

use cloud::{Backend, Clock, Ids, Options};
use std::collections::HashMap;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testcontainers::bollard::Docker;
use testcontainers::bollard::query_parameters::ListContainersOptionsBuilder;
use testcontainers::core::client::docker_client_instance;

const USES_CONTAINERS: &str = "uses-containers";
const READY: &str = "containers are ready";
/// A container that is not watched ends half a minute after its start, and LocalStack takes a few seconds to stop.
const GONE_WITHIN: Duration = Duration::from_secs(60);

#[tokio::main]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some(USES_CONTAINERS) {
        return use_containers().await;
    }
    let engine = docker_client_instance().await.unwrap();
    engine.ping().await.unwrap();
    for (way, end) in ENDS {
        let began = Instant::now();
        let mut user = start_a_user();
        end(&mut user, &engine).await;
        let id = user.id();
        user.wait().unwrap();
        let ended = Instant::now();
        while !with_status(&engine, id, &["running"]).await.is_empty() {
            assert!(
                ended.elapsed() < GONE_WITHIN,
                "{way}: {:?} are still there",
                containers_of(&engine, id).await
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!(
            "{way}: no container of it runs {:.1} s after the end ({:.1} s in all)",
            ended.elapsed().as_secs_f64(),
            began.elapsed().as_secs_f64()
        );
    }
}

type End = for<'a> fn(&'a mut Child, &'a Docker) -> futures::future::BoxFuture<'a, ()>;

const ENDS: [(&str, End); 5] = [
    ("the process returns", |user, _| {
        Box::pin(async {
            wait_until_ready(user);
            // It reads this until its end.
            drop(user.stdin.take());
        })
    }),
    ("Ctrl-C", |user, _| {
        Box::pin(async {
            wait_until_ready(user);
            signal(user, "INT");
        })
    }),
    ("kill -9", |user, _| {
        Box::pin(async {
            wait_until_ready(user);
            signal(user, "KILL");
        })
    }),
    ("Ctrl-C during start-up", |user, engine| {
        Box::pin(async {
            wait_for_containers(user, engine, 2).await;
            signal(user, "INT");
        })
    }),
    ("kill -9 at the first container", |user, engine| {
        Box::pin(async {
            wait_for_containers(user, engine, 1).await;
            signal(user, "KILL");
        })
    }),
];

async fn use_containers() {
    let options = Options {
        backend: Backend::Docker,
        data: None,
        prefix: None,
        clock: Clock::System,
        ids: Ids::Uuid,
    };
    let cloud = cloud::connect_with(options).await.unwrap();
    cloud.dynamodb().list_tables().send().await.unwrap();
    println!("{READY}");
    let _ = std::io::stdin().lines().count();
}

fn start_a_user() -> Child {
    let mut user = Command::new(std::env::current_exe().unwrap());
    user.arg(USES_CONTAINERS)
        .env_remove("PATH")
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    user.spawn().unwrap()
}

fn wait_until_ready(user: &mut Child) {
    let mut lines = BufReader::new(user.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap() == READY));
}

async fn wait_for_containers(user: &mut Child, engine: &Docker, count: usize) {
    while containers_of(engine, user.id()).await.len() < count {
        assert!(user.try_wait().unwrap().is_none(), "it ended by itself");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// To the whole group, as a terminal does it.
fn signal(user: &Child, signal: &str) {
    let kill = format!("kill -{signal} -{}", user.id());
    assert!(
        Command::new("sh")
            .args(["-c", &kill])
            .status()
            .unwrap()
            .success()
    );
}

async fn containers_of(engine: &Docker, process: u32) -> Vec<String> {
    with_status(engine, process, &["created", "running", "removing"]).await
}

async fn with_status(engine: &Docker, process: u32, status: &[&str]) -> Vec<String> {
    let filters = HashMap::from([
        ("label", vec![format!("archetypes.process={process}")]),
        ("status", status.iter().map(ToString::to_string).collect()),
    ]);
    let of_it = ListContainersOptionsBuilder::new()
        .all(true)
        .filters(&filters);
    let listed = engine.list_containers(Some(of_it.build())).await.unwrap();
    listed
        .into_iter()
        .filter_map(|container| container.id)
        .collect()
}
