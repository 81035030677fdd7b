//! The JSON API and the command line, over real sockets, with a scanner and workers behind them.
#![allow(clippy::unwrap_used)]

mod office;

use clap::ArgMatches;
use cloud::{Clock, as_actor};
use indicatif::ProgressBar;
use office::open_on;
use scheduler::api::serve_until;
use scheduler::domain::ExecutionStatus;
use scheduler::service::{BuiltIn, Settings};
use scheduler::{Scheduler, archetype, client};
use serde_json::{Value, json};
use serving::client::Served;
use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

struct Server {
    served: Served,
    scheduler: Scheduler,
}

impl Deref for Server {
    type Target = Served;

    fn deref(&self) -> &Served {
        &self.served
    }
}

/// By the system's clock: the command line has no other.
async fn serve() -> Server {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    let office = open_on(cloud.with_clock(Clock::System)).await;
    let scheduler = office.scheduler;
    let settings = Settings {
        workers: 2,
        scan_every: Duration::from_millis(50),
        ..Settings::default()
    };
    let served = Served::start(|listener, stop| {
        serve_until(
            scheduler.clone(),
            Arc::new(BuiltIn),
            settings,
            listener,
            stop,
        )
    });
    Server {
        served: served.await.unwrap(),
        scheduler,
    }
}

impl Server {
    /// The arguments of a command, as a shell would give them.
    fn args(&self, line: &[&str]) -> ArgMatches {
        let server = ["--server", self.base.as_str()];
        // What is dead is the operator's business, not a tenant's.
        let tenant: &[&str] = match line[0] {
            "redrive" => &[],
            _ => &["--tenant", "acme"],
        };
        parsed([line, tenant, &server].concat())
    }

    /// Asks until the job's latest execution has this status.
    async fn reaches(&self, job: &str, status: &str) -> Value {
        for _ in 0..400 {
            let (code, all) = self
                .get(&format!("/tenants/acme/jobs/{job}/executions"))
                .await;
            assert_eq!(code, 200, "{all}");
            let found = all
                .as_array()
                .unwrap()
                .iter()
                .find(|one| one["status"] == status);
            if let Some(found) = found {
                return found.clone();
            }
            cloud::item::pause(5).await;
        }
        panic!("{job} never was {status}");
    }
}

fn parsed(line: Vec<&str>) -> ArgMatches {
    let own = archetype()
        .commands
        .iter()
        .find(|own| own.name == line[0])
        .unwrap();
    (own.args)(clap::Command::new(own.name)).get_matches_from(line)
}

#[tokio::test]
async fn a_job_can_be_run_with_curl_alone() {
    let server = serve().await;
    let now = server.scheduler.cloud().now();
    let job = json!({
        "job_id": "j-1", "kind": "fail", "parameters": "0",
        "schedule": {"type": "once", "at": now},
    });
    let (status, created) = server.post("/tenants/acme/jobs", job.clone()).await;
    assert_eq!(
        (status, &created["max_attempts"]),
        (201, &json!(3)),
        "{created}"
    );
    let done = server.reaches("j-1", "COMPLETED").await;
    assert_eq!(done["attempt"], 1);
    let (status, again) = server.post("/tenants/acme/jobs", job).await;
    assert_eq!(
        (status, &again["status"]),
        (201, &json!("FINISHED")),
        "no second job"
    );
    let (_, jobs) = server.get("/tenants/acme/jobs").await;
    assert_eq!(jobs.as_array().unwrap().len(), 1);
    server.served.stopped().await.unwrap();
}

#[tokio::test]
async fn a_recurring_job_can_be_paused_resumed_rescheduled_and_cancelled() {
    let server = serve().await;
    let job = json!({
        "job_id": "j-1",
        "schedule": {"type": "cron", "expression": "0 9 * * MON", "time_zone": "Europe/Berlin"},
    });
    assert_eq!(server.post("/tenants/acme/jobs", job).await.0, 201);
    for (what, body, status) in [
        ("pause", json!({"change_id": "c-1"}), "PAUSED"),
        ("resume", json!({"change_id": "c-2"}), "ACTIVE"),
        (
            "reschedule",
            json!({"change_id": "c-3", "schedule": {"type": "every", "every_ms": 3_600_000}}),
            "ACTIVE",
        ),
        ("cancel", json!({"change_id": "c-4"}), "CANCELLED"),
    ] {
        let (code, changed) = server
            .post(&format!("/tenants/acme/jobs/j-1/{what}"), body)
            .await;
        assert_eq!(
            (code, &changed["status"]),
            (200, &json!(status)),
            "{what}: {changed}"
        );
    }
    let (code, refused) = server
        .post("/tenants/acme/jobs/j-1/resume", json!({"change_id": "c-5"}))
        .await;
    assert_eq!(code, 409);
    assert_eq!(
        refused["error"],
        "the job is Cancelled: it cannot be resumed"
    );
    let (_, job) = server.get("/tenants/acme/jobs/j-1").await;
    assert_eq!(job["schedule_version"], 5);
}

#[tokio::test]
async fn wrong_requests_are_answered_with_what_is_wrong() {
    let server = serve().await;
    let once = json!({"type": "once", "at": 1});
    for (body, status, why) in [
        (json!({"schedule": once}), 400, "missing field `job_id`"),
        (
            json!({"job_id": "", "schedule": once}),
            400,
            "job_id must have",
        ),
        (
            json!({"job_id": "j", "schedule": once, "prio": 1}),
            400,
            "prio",
        ),
        (
            json!({"job_id": "j", "schedule": {"type": "often"}}),
            400,
            "often",
        ),
        (
            json!({"job_id": "j", "schedule": {"type": "every", "every_ms": 5}}),
            400,
            "not 5 ms",
        ),
    ] {
        let (code, answer) = server.post("/tenants/acme/jobs", body).await;
        assert_eq!(code, status, "{answer}");
        assert!(answer["error"].as_str().unwrap().contains(why), "{answer}");
    }
    for (path, status, why) in [
        (
            "/tenants/acme/jobs/none",
            404,
            "there is no job 'acme/none'",
        ),
        (
            "/tenants/acme/jobs/none/executions",
            404,
            "there is no job 'acme/none'",
        ),
        (
            "/tenants/a%2Fb/jobs/none",
            400,
            "must not contain the character '/'",
        ),
        ("/nowhere", 404, "there is nothing here"),
        ("/tenants/acme/jobs/none/pause", 405, "not with this method"),
    ] {
        let (code, answer) = server.get(path).await;
        assert_eq!(code, status, "{path}: {answer}");
        assert!(
            answer["error"].as_str().unwrap().contains(why),
            "{path}: {answer}"
        );
    }
    let (code, _) = server
        .get(&format!("/tenants/acme/jobs/{}", "x".repeat(3_000)))
        .await;
    assert_eq!(code, 400);
}

/// A tenant sees, changes and names its own jobs only: another one's are not found, and take no name from it.
#[tokio::test]
async fn a_job_of_another_tenant_is_not_found() {
    let server = serve().await;
    let job = |parameters: &str| {
        json!({
            "job_id": "j-1", "parameters": parameters,
            "schedule": {"type": "every", "every_ms": 3_600_000},
        })
    };
    assert_eq!(server.post("/tenants/acme/jobs", job("a")).await.0, 201);
    for path in ["", "/executions"] {
        let (code, _) = server
            .get(&format!("/tenants/mallory/jobs/j-1{path}"))
            .await;
        assert_eq!(code, 404, "{path}");
    }
    for what in ["cancel", "pause", "resume", "reschedule"] {
        let mut body = json!({"change_id": "c"});
        if what == "reschedule" {
            body["schedule"] = json!({"type": "every", "every_ms": 60_000});
        }
        let path = format!("/tenants/mallory/jobs/j-1/{what}");
        let (code, answer) = server.post(&path, body).await;
        assert_eq!(code, 404, "{what}: {answer}");
    }
    // The same name is another job.
    assert_eq!(server.post("/tenants/mallory/jobs", job("b")).await.0, 201);
    let path = "/tenants/mallory/jobs/j-1/cancel";
    assert_eq!(server.post(path, json!({"change_id": "c"})).await.0, 200);
    let (_, acmes) = server.get("/tenants/acme/jobs/j-1").await;
    assert_eq!(acmes["status"], "ACTIVE");
    let (_, listed) = server.get("/tenants/mallory/jobs").await;
    assert_eq!(listed.as_array().unwrap().len(), 1);
    // No slash makes one tenant's name out of another's.
    let (code, _) = server.get("/tenants/acme%2Fj-1/jobs/x").await;
    assert_eq!(code, 400);
}

/// Whatever a body has, at its limits and beyond, is taken or refused in words.
#[tokio::test]
async fn every_value_of_every_body_is_taken_or_refused_in_words() {
    let server = serve().await;
    let far = 9_000_000_000_000_i64;
    let schedules = [
        json!({"type": "once", "at": far}),
        json!({"type": "every", "every_ms": 3_600_000_000_i64}),
        json!({"type": "cron", "expression": "0 9 1 1 *", "time_zone": "Europe/Berlin"}),
    ];
    for (kind, schedule) in schedules.iter().enumerate() {
        let sample = |n: usize| {
            json!({
                "job_id": format!("job-{kind}-{n}"), "kind": "echo", "parameters": "hi",
                "overlap": "SKIP", "misfire": "RUN_LAST", "catch_up_ms": 1_000, "max_attempts": 3,
                "lease_ms": 30_000, "timeout_ms": 60_000, "schedule": schedule,
            })
        };
        let sent = server
            .post_at_the_limits("/tenants/acme/jobs", sample)
            .await;
        assert!(sent.unwrap() > 100);
    }
    let job = json!({"job_id": "job", "schedule": schedules[1]});
    assert_eq!(server.post("/tenants/acme/jobs", job).await.0, 201);
    for what in ["pause", "resume", "reschedule", "cancel"] {
        let sample = |n: usize| {
            let mut body = json!({"change_id": format!("{what}-{n}")});
            if what == "reschedule" {
                body["schedule"] = schedules[2].clone();
            }
            body
        };
        let path = format!("/tenants/acme/jobs/job/{what}");
        let sent = server.post_at_the_limits(&path, sample).await;
        assert!(sent.unwrap() > 10);
    }
    let sent = server
        .post_at_the_limits("/redrive", |_| json!({"most": 1}))
        .await;
    assert!(sent.unwrap() > 5);
}

/// The client hangs up while its job is written: the job is created, dispatched and run all the same.
#[tokio::test]
async fn a_client_that_hangs_up_has_its_job_run() {
    let server = serve().await;
    let now = server.scheduler.cloud().now();
    let job = json!({"job_id": "j-1", "schedule": {"type": "once", "at": now}});
    let tap = server.scheduler.cloud().tap();
    let written = |request: &cloud::tap::Request| request.shape().contains("Put jobs if");
    server
        .post_and_hang_up("/tenants/acme/jobs", job, tap, written)
        .await
        .unwrap();
    for _ in 0..400 {
        if server.get("/tenants/acme/jobs/j-1").await.0 == 200 {
            break;
        }
        cloud::item::pause(5).await;
    }
    server.reaches("j-1", "COMPLETED").await;
}

/// Sixteen crons that never fire are refused, and a request beside them is answered as usual.
#[tokio::test]
async fn crons_that_never_fire_hold_up_nobody() {
    let server = serve().await;
    let path = "/tenants/acme/jobs";
    let posts = (0..16).map(|n| {
        let never = json!({"type": "cron", "expression": "0 0 31 4,6,9,11 *", "time_zone": "UTC"});
        server.post(path, json!({"job_id": format!("j-{n}"), "schedule": never}))
    });
    let begun = std::time::Instant::now();
    let (refused, (code, _)) = tokio::join!(futures::future::join_all(posts), server.get(path));
    assert_eq!(code, 200);
    for (code, answer) in refused {
        assert_eq!(
            (code, &answer["error"]),
            (400, &json!("'0 0 31 4,6,9,11 *' never fires"))
        );
    }
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test]
async fn the_command_line_submits_lists_watches_and_redrives() {
    let server = serve().await;
    let args = server.args(&["submit", "hello", "--in", "0", "--parameters", "hi"]);
    let said = client::submit(&args).await.unwrap();
    assert!(said.starts_with("acme/hello fires at 20"), "{said}");
    let seen = Arc::new(Mutex::new(String::new()));
    let args = server.args(&["watch", "hello"]);
    let watching = client::watch(&args, |text| {
        seen.lock().unwrap().push_str(text);
        Ok(())
    });
    tokio::time::timeout(Duration::from_secs(20), watching)
        .await
        .unwrap()
        .unwrap();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.contains("COMPLETED"), "{seen}");
    let listed = client::list(&server.args(&["list"])).await.unwrap();
    assert!(
        listed.starts_with("FINISHED") && listed.ends_with("acme/hello\n"),
        "{listed}"
    );
    let listed = client::list(&server.args(&["list", "--job", "hello", "--json"]))
        .await
        .unwrap();
    let listed: Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["status"], "COMPLETED");

    let line = [
        "submit",
        "sad job/1",
        "--in",
        "0",
        "--kind",
        "fail",
        "--parameters",
        "1",
        "--attempts",
        "1",
    ];
    client::submit(&server.args(&line)).await.unwrap();
    server.reaches("sad%20job%2F1", "FAILED").await;
    let said = client::redrive(&server.args(&["redrive"])).await.unwrap();
    assert!(
        said.starts_with("runnable ") && said.contains("#acme/sad job/1"),
        "{said}"
    );
    server.reaches("sad%20job%2F1", "COMPLETED").await;
    // The row says FAILED before the queue has the message, so the first redrive may find the row alone.
    let empty = async {
        loop {
            let said = client::redrive(&server.args(&["redrive"])).await.unwrap();
            if said == "the dead-letter queue is empty\n" {
                return;
            }
            assert!(said.starts_with("before "), "{said}");
        }
    };
    let empty = tokio::time::timeout(Duration::from_secs(20), empty).await;
    empty.expect("the dead-letter queue is never empty");

    let line = [
        "submit",
        "often",
        "--cron",
        "0 9 * * *",
        "--time-zone",
        "Asia/Tokyo",
        "--overlap",
        "skip",
    ];
    client::submit(&server.args(&line)).await.unwrap();
    for (line, what, said) in [
        (vec!["pause", "often"], "pause", "acme/often is PAUSED\n"),
        (
            vec!["resume", "often"],
            "resume",
            "acme/often is ACTIVE, fires at 20",
        ),
        (
            vec!["reschedule", "often", "--every", "3600"],
            "reschedule",
            "acme/often is ACTIVE, fires",
        ),
        (
            vec!["cancel", "often"],
            "cancel",
            "acme/often is CANCELLED\n",
        ),
    ] {
        let told = client::change(&server.args(&line), what).await.unwrap();
        assert!(told.starts_with(said), "{told}");
    }
    let refused = client::list(&server.args(&["list", "--job", "none"]))
        .await
        .unwrap_err();
    assert_eq!(refused.to_string(), "there is no job 'acme/none'");
}

#[tokio::test]
async fn without_a_server_the_command_line_says_what_to_do() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", free.local_addr().unwrap());
    drop(free);
    let args = parsed(vec!["list", "--server", &server]);
    let error = client::list(&args).await.unwrap_err().to_string();
    let expected = format!("no scheduler answers at {server}");
    assert!(error.starts_with(&expected), "{error}");
    assert!(error.contains("cargo run -p scheduler -- serve"), "{error}");
    // Exactly one of the ways to say when.
    let submit = archetype()
        .commands
        .iter()
        .find(|own| own.name == "submit")
        .unwrap();
    let parse = |line: &[&str]| {
        (submit.args)(clap::Command::new("submit"))
            .try_get_matches_from(line)
            .map(|_| ())
    };
    assert!(parse(&["submit", "j"]).is_err());
    assert!(parse(&["submit", "j", "--in", "1", "--every", "2"]).is_err());
    assert!(parse(&["submit", "j", "--time-zone", "UTC", "--every", "2"]).is_err());
    assert!(parse(&["submit", "j", "--every", "2"]).is_ok());
}

#[tokio::test]
async fn stopping_lets_short_runs_end_and_gives_long_ones_back() {
    let server = serve().await;
    let now = server.scheduler.cloud().now();
    for (job, ms) in [("long", "60000"), ("short", "400")] {
        let job = json!({
            "job_id": job, "kind": "sleep", "parameters": ms,
            "schedule": {"type": "once", "at": now}, "max_attempts": 1,
        });
        assert_eq!(server.post("/tenants/acme/jobs", job).await.0, 201);
    }
    for job in ["long", "short"] {
        server.reaches(job, "IN_PROGRESS").await;
    }
    let Server { served, scheduler } = server;
    served.stopped().await.unwrap();
    let status = async |job: &str| {
        let id = scheduler::items::execution_id(now, &office::whole(job));
        as_actor("check", scheduler.read_execution(&id))
            .await
            .unwrap()
            .unwrap()
    };
    assert_eq!(status("short").await.status, ExecutionStatus::Completed);
    let long = status("long").await;
    assert_eq!(long.status, ExecutionStatus::Retrying);
    assert_eq!(long.reason.as_deref(), Some("the worker was stopped"));
    assert_eq!(
        (long.attempt, long.attempt_limit),
        (1, 2),
        "the attempt is not held against it"
    );
}

#[tokio::test]
async fn half_a_request_does_not_keep_the_server_from_stopping() {
    let server = serve().await;
    let host = server.base.trim_start_matches("http://");
    let path = "POST /tenants/acme/jobs HT";
    let body = format!("{path}TP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{{");
    let mut open = Vec::new();
    for half in [path, &body] {
        let mut socket = TcpStream::connect(host).await.unwrap();
        socket.write_all(half.as_bytes()).await.unwrap();
        open.push(socket);
    }
    // Connections are taken in order.
    assert_eq!(server.get("/nowhere").await.0, 404);
    server.served.stopped().await.unwrap();
}

#[tokio::test]
async fn the_bench_measures_every_execution_once() {
    let cloud = cloud::connect_alone_for_tests().await.unwrap();
    let cloud = cloud.with_clock(Clock::System);
    open_on(cloud.clone()).await;
    let measured = scheduler::bench::measure(cloud, 40, Some(40), 4, ProgressBar::hidden()).await;
    let measured = measured.unwrap();
    assert_eq!((measured.executions, measured.starts), (40, 40));
    assert!(measured.late_p50_ms >= 0 && measured.late_p50_ms <= measured.late_p99_ms);
    assert!(measured.late_p99_ms <= measured.late_max_ms, "{measured:?}");
    assert!(measured.per_second > 1.0, "{measured:?}");
}
