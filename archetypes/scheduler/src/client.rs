//! The command line's other half: `submit`, `list`, `watch` and the rest talk to a `serve`.

use crate::create_job::NewJob;
use crate::domain::{ExecutionState, ExecutionStatus, JobDefinitionState};
use crate::misfire::Misfire;
use crate::overlap::Overlap;
use crate::schedule::Schedule;
use anyhow::{Context, Result, bail, ensure};
use chrono::{DateTime, SecondsFormat, Utc};
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Command, value_parser};
use cloud::{Clock, Ids, Millis};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;
use walkthrough::Command as Own;

/// All commands that talk to a server.
pub const COMMANDS: [Own; 8] = [
    Own {
        name: "submit",
        about: "Submit a job to a running `serve`",
        args: submit_args,
        run: |_, args| Box::pin(async move { say(&submit(&args).await?) }),
    },
    Own {
        name: "list",
        about: "List a tenant's jobs, or with --job its executions",
        args: list_args,
        run: |_, args| Box::pin(async move { say(&list(&args).await?) }),
    },
    Own {
        name: "watch",
        about: "Follow the executions of a job until it has ended, or until Ctrl-C",
        args: watch_args,
        run: |_, args| Box::pin(async move { watch(&args, say).await }),
    },
    Own {
        name: "cancel",
        about: "Cancel a job for good: what has not started never starts",
        args: change_args,
        run: |_, args| Box::pin(async move { say(&change(&args, "cancel").await?) }),
    },
    Own {
        name: "pause",
        about: "Pause a job: nothing new starts until it is resumed",
        args: change_args,
        run: |_, args| Box::pin(async move { say(&change(&args, "pause").await?) }),
    },
    Own {
        name: "resume",
        about: "Resume a paused job",
        args: change_args,
        run: |_, args| Box::pin(async move { say(&change(&args, "resume").await?) }),
    },
    Own {
        name: "reschedule",
        about: "Give a job another schedule",
        args: |command| schedule_args(change_args(command)),
        run: |_, args| Box::pin(async move { say(&change(&args, "reschedule").await?) }),
    },
    Own {
        name: "redrive",
        about: "Make runnable again what is in the dead-letter queue",
        args: server_args,
        run: |_, args| Box::pin(async move { say(&redrive(&args).await?) }),
    },
];

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

fn server_args(command: Command) -> Command {
    command
        .arg(
            Arg::new("server")
                .long("server")
                .value_name("URL")
                .default_value("http://127.0.0.1:8080")
                .help("Where `serve` listens"),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .action(ArgAction::SetTrue)
                .help("Print JSON"),
        )
}

fn tenant_arg() -> Arg {
    Arg::new("tenant")
        .long("tenant")
        .value_name("ID")
        .default_value("default")
        .help("Whose job")
}

fn job_arg() -> Arg {
    Arg::new("job").value_name("JOB_ID").required(true)
}

fn schedule_args(command: Command) -> Command {
    let number = |name, value, help| {
        Arg::new(name)
            .long(name)
            .value_name(value)
            .value_parser(value_parser!(i64))
            .allow_negative_numbers(true)
            .help(help)
    };
    command
        .arg(number("in", "SECONDS", "Once, so many seconds from now"))
        .arg(number("at", "EPOCH_MS", "Once, at this time"))
        .arg(number("every", "SECONDS", "Every so many seconds"))
        .arg(
            Arg::new("cron")
                .long("cron")
                .value_name("EXPRESSION")
                .help("As in '0 9 * * MON-FRI'; a sixth field in front is seconds"),
        )
        .arg(
            Arg::new("time-zone")
                .long("time-zone")
                .value_name("ZONE")
                .conflicts_with_all(["in", "at", "every"])
                .default_value("UTC")
                .help("For --cron: as in Europe/Berlin"),
        )
        .group(
            ArgGroup::new("schedule")
                .args(["in", "at", "every", "cron"])
                .required(true),
        )
}

fn submit_args(command: Command) -> Command {
    schedule_args(server_args(command))
        .arg(
            Arg::new("job")
                .value_name("JOB_ID")
                .help("Its name among the tenant's jobs. The same with the same words is no second job; with others it is refused [default: a fresh one]"),
        )
        .arg(tenant_arg())
        .arg(
            Arg::new("kind")
                .long("kind")
                .default_value("echo")
                .help("What to do: echo, fail or sleep"),
        )
        .arg(
            Arg::new("parameters")
                .long("parameters")
                .value_name("TEXT")
                .default_value("")
                .help("A text for echo, failures for fail, milliseconds for sleep"),
        )
        .arg(
            Arg::new("overlap")
                .long("overlap")
                .value_parser(["allow-all", "skip", "queue-one"])
                .default_value("allow-all")
                .help("What happens when it fires while it runs"),
        )
        .arg(
            Arg::new("misfire")
                .long("misfire")
                .value_parser(["run-all", "run-last", "skip-missed"])
                .default_value("run-last")
                .help("What happens to fire times that were missed"),
        )
        .arg(
            Arg::new("attempts")
                .long("attempts")
                .value_name("N")
                .value_parser(value_parser!(u32))
                .default_value("3")
                .help("How often it is tried"),
        )
}

fn list_args(command: Command) -> Command {
    server_args(command).arg(tenant_arg()).arg(
        Arg::new("job")
            .long("job")
            .value_name("JOB_ID")
            .help("List the executions of this job"),
    )
}

fn watch_args(command: Command) -> Command {
    server_args(command).arg(tenant_arg()).arg(job_arg())
}

fn change_args(command: Command) -> Command {
    server_args(command).arg(tenant_arg()).arg(job_arg())
}

/// `/tenants/acme/jobs`, or that of one job, and what follows.
fn jobs_path(args: &ArgMatches, job: &str, rest: &str) -> String {
    let tenant = encoded(given(args, "tenant"));
    let job = match job {
        "" => String::new(),
        job => format!("/{}", encoded(job)),
    };
    format!("/tenants/{tenant}/jobs{job}{rest}")
}

fn given<'a>(args: &'a ArgMatches, name: &str) -> &'a str {
    args.get_one::<String>(name).map_or("", String::as_str)
}

fn schedule(args: &ArgMatches) -> Schedule {
    let number = |name| args.get_one::<i64>(name).copied();
    if let Some(seconds) = number("in") {
        let at = Clock::System.now() + seconds.saturating_mul(1_000);
        return Schedule::Once { at };
    }
    if let Some(at) = number("at") {
        return Schedule::Once { at };
    }
    if let Some(seconds) = number("every") {
        let every_ms = seconds.saturating_mul(1_000);
        return Schedule::Every { every_ms };
    }
    Schedule::Cron {
        expression: given(args, "cron").to_owned(),
        time_zone: given(args, "time-zone").to_owned(),
    }
}

/// Asks the server, and turns its refusals into words.
async fn ask(args: &ArgMatches, path: &str, body: Option<Value>) -> Result<Value> {
    let server = given(args, "server").trim_end_matches('/');
    let http = reqwest::Client::new();
    let url = format!("{server}{path}");
    let request = match body {
        Some(body) => http.post(&url).json(&body),
        None => http.get(&url),
    };
    let answer = request.timeout(Duration::from_secs(30)).send().await;
    let answer = match answer {
        Ok(answer) => answer,
        Err(error) if error.is_connect() => bail!(
            "no scheduler answers at {server}: start one with `cargo run -p scheduler -- serve`, or name another with --server"
        ),
        Err(error) => return Err(error).with_context(|| format!("asking {url}")),
    };
    let status = answer.status();
    let text = answer
        .text()
        .await
        .with_context(|| format!("asking {url}"))?;
    let value: Value = serde_json::from_str(&text)
        .with_context(|| format!("{server} does not answer as a scheduler does"))?;
    if !status.is_success() {
        bail!("{}", value["error"].as_str().unwrap_or(&text));
    }
    Ok(value)
}

fn encoded(id: &str) -> String {
    id.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                text.push(byte.into());
            }
            _ => {
                let _ = write!(text, "%{byte:02X}");
            }
        }
        text
    })
}

/// `submit`.
pub async fn submit(args: &ArgMatches) -> Result<String> {
    let job_id = match given(args, "job") {
        "" => Ids::Uuid.next("job"),
        given => given.to_owned(),
    };
    let job = NewJob {
        kind: given(args, "kind").to_owned(),
        parameters: given(args, "parameters").to_owned(),
        overlap: match given(args, "overlap") {
            "skip" => Overlap::Skip,
            "queue-one" => Overlap::QueueOne,
            _ => Overlap::AllowAll,
        },
        misfire: match given(args, "misfire") {
            "run-all" => Misfire::RunAll,
            "skip-missed" => Misfire::SkipMissed,
            _ => Misfire::RunLast,
        },
        max_attempts: args.get_one("attempts").copied().unwrap_or(3),
        ..NewJob::new(job_id, given(args, "tenant"), schedule(args))
    };
    let path = jobs_path(args, "", "");
    let created = ask(args, &path, Some(serde_json::to_value(job)?)).await?;
    shown(args, created, |job: JobDefinitionState| {
        let next = job.next_fire_time.map_or("never".to_owned(), time);
        format!("{} fires at {next}\n", job.job_id)
    })
}

/// `list`.
pub async fn list(args: &ArgMatches) -> Result<String> {
    let job = given(args, "job");
    if !job.is_empty() {
        let path = jobs_path(args, job, "/executions");
        let found = ask(args, &path, None).await?;
        return shown(args, found, |all: Vec<ExecutionState>| {
            all.iter().map(line).collect()
        });
    }
    let found = ask(args, &jobs_path(args, "", ""), None).await?;
    shown(args, found, |jobs: Vec<JobDefinitionState>| {
        if jobs.is_empty() {
            return format!("no jobs of tenant {}\n", given(args, "tenant"));
        }
        let lines = jobs.iter().map(|job| {
            let next = job.next_fire_time.map_or("-".to_owned(), time);
            format!("{:<9} {next:<24} {}\n", word(&job.status), job.job_id)
        });
        lines.collect()
    })
}

/// `watch`: each execution again whenever it changes.
pub async fn watch(args: &ArgMatches, say: impl Fn(&str) -> Result<()>) -> Result<()> {
    let job_id = given(args, "job");
    let mut known: BTreeMap<String, (ExecutionStatus, u32)> = BTreeMap::new();
    loop {
        let job = ask(args, &jobs_path(args, job_id, ""), None).await?;
        let job: JobDefinitionState = serde_json::from_value(job)?;
        let path = jobs_path(args, job_id, "/executions?most=20");
        let found = ask(args, &path, None).await?;
        let mut found: Vec<ExecutionState> = serde_json::from_value(found)?;
        found.reverse();
        for execution in &found {
            let now = (execution.status, execution.attempt);
            if known.insert(execution.execution_id.clone(), now) == Some(now) {
                continue;
            }
            match args.get_flag("json") {
                true => say(&format!("{}\n", serde_json::to_string(execution)?))?,
                false => say(&line(execution))?,
            }
        }
        let ended = found
            .iter()
            .all(|execution| execution.completed_at.is_some());
        if ended && job.next_fire_time.is_none() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}

/// `cancel`, `pause`, `resume`, `reschedule`.
pub async fn change(args: &ArgMatches, what: &str) -> Result<String> {
    let mut body = json!({"change_id": Ids::Uuid.next("change")});
    if what == "reschedule" {
        body["schedule"] = serde_json::to_value(schedule(args))?;
    }
    let path = jobs_path(args, given(args, "job"), &format!("/{what}"));
    let changed = ask(args, &path, Some(body)).await?;
    shown(args, changed, |job: JobDefinitionState| {
        let next = job
            .next_fire_time
            .map(|next| format!(", fires at {}", time(next)));
        let next = next.unwrap_or_default();
        format!("{} is {}{next}\n", job.job_id, word(&job.status))
    })
}

/// `redrive`.
pub async fn redrive(args: &ArgMatches) -> Result<String> {
    let redriven = ask(args, "/redrive", Some(json!({}))).await?;
    shown(args, redriven, |all: Vec<Value>| {
        if all.is_empty() {
            return "the dead-letter queue is empty\n".to_owned();
        }
        let lines = all.iter().map(|one| {
            let id = one["execution_id"]
                .as_str()
                .unwrap_or("a message nobody can read");
            format!("{:<9} {id}\n", one["outcome"].as_str().unwrap_or("?"))
        });
        lines.collect()
    })
}

/// The answer as JSON or in words.
fn shown<T: serde::de::DeserializeOwned>(
    args: &ArgMatches,
    answer: Value,
    words: impl FnOnce(T) -> String,
) -> Result<String> {
    if args.get_flag("json") {
        return Ok(format!("{answer:#}\n"));
    }
    ensure!(!answer.is_null(), "the server gave an empty answer");
    Ok(words(serde_json::from_value(answer)?))
}

fn word(status: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(status).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}

fn time(time: Millis) -> String {
    let time = DateTime::<Utc>::from_timestamp_millis(time).unwrap_or_default();
    time.to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// `2026-01-01T00:01:00.000Z COMPLETED attempt 1, 3 ms late`.
fn line(execution: &ExecutionState) -> String {
    let mut text = format!(
        "{} {:<11}",
        time(execution.execution_time),
        word(&execution.status)
    );
    if execution.attempt > 0 {
        let _ = write!(text, " attempt {}", execution.attempt);
    }
    if let Some(started) = execution.started_at {
        let _ = write!(
            text,
            ", started {} ms late",
            started - execution.execution_time
        );
    }
    if let Some(reason) = &execution.reason {
        let _ = write!(text, ": {reason}");
    }
    format!("{}\n", text.trim_end())
}
