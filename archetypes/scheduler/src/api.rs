//! A small JSON API, for curl and the command line: `cargo run -p scheduler -- serve`.
//!
//! `app` returns the router and the tests call it. Times are epoch milliseconds. Refusals are those
//! of `serving`. Ids are made by the client: only so can it ask again when no answer came.
//! The tenant in the path stands for whom an authentication would have found: a job of another tenant is
//! not found. `/redrive` belongs to the operator.

use crate::change_job::Change;
use crate::create_job::NewJob;
use crate::domain::{ExecutionState, JobDefinitionState, job_id};
use crate::redrive::Redriven;
use crate::schedule::Schedule;
use crate::service::{BuiltIn, Settings, run_until};
use crate::worker::Handler;
use crate::{Scheduler, SchedulerError};
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use clap::{Arg, ArgMatches, Command, value_parser};
use cloud::{Cloud, Millis};
use serde::{Deserialize, Serialize};
use serving::{Body, Refusal, body, interrupted, listen, listen_arg, with_fallbacks};
use std::future::Future;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// The most rows that one answer holds.
const MOST: usize = 1_000;

/// The router.
pub fn app(scheduler: Scheduler) -> Router {
    let router = Router::new()
        .route("/tenants/{tenant}/jobs", post(create).get(list))
        .route("/tenants/{tenant}/jobs/{job}", get(view))
        .route("/tenants/{tenant}/jobs/{job}/executions", get(executions))
        .route("/tenants/{tenant}/jobs/{job}/cancel", post(cancel))
        .route("/tenants/{tenant}/jobs/{job}/pause", post(pause))
        .route("/tenants/{tenant}/jobs/{job}/resume", post(resume))
        .route("/tenants/{tenant}/jobs/{job}/reschedule", post(reschedule))
        .route("/redrive", post(redrive))
        .with_state(scheduler);
    with_fallbacks(router)
}

impl From<SchedulerError> for Refusal {
    fn from(error: SchedulerError) -> Self {
        let status = match &error {
            SchedulerError::BadInput(_) => StatusCode::BAD_REQUEST,
            SchedulerError::UnknownJob(_) => StatusCode::NOT_FOUND,
            SchedulerError::IdTaken(_)
            | SchedulerError::NotNow { .. }
            | SchedulerError::AlreadyRan => StatusCode::CONFLICT,
            SchedulerError::Contended => StatusCode::SERVICE_UNAVAILABLE,
            SchedulerError::Fault(fault) => return fault.into(),
        };
        Self::new(status, error.to_string())
    }
}

/// A tenant and the name of its job, as the path says: the id that they make is that tenant's alone.
type Named = Path<(String, String)>;

fn id_of(Path((tenant, name)): &Named) -> Result<String, Refusal> {
    Ok(job_id(tenant, name).map_err(SchedulerError::from)?)
}

async fn create(
    State(scheduler): State<Scheduler>,
    Path(tenant_id): Path<String>,
    given: Body<NewJob>,
) -> Result<(StatusCode, Json<JobDefinitionState>), Refusal> {
    let new = NewJob {
        tenant_id,
        ..body(given)?
    };
    let job = scheduler.create_job(new).await?;
    Ok((StatusCode::CREATED, Json(job)))
}

async fn view(State(scheduler): State<Scheduler>, named: Named) -> Result<Json<Shown>, Refusal> {
    let job = scheduler.known_job(&id_of(&named)?).await?;
    let parameters = scheduler.read_parameters(&job).await?;
    Ok(Json(Shown { job, parameters }))
}

/// A job with what its handler is told.
#[derive(Serialize)]
struct Shown {
    #[serde(flatten)]
    job: JobDefinitionState,
    parameters: String,
}

async fn list(
    State(scheduler): State<Scheduler>,
    Path(tenant): Path<String>,
    Query(query): Query<Most>,
) -> Result<Json<Vec<JobDefinitionState>>, Refusal> {
    let most = query.most.unwrap_or(MOST).clamp(1, MOST);
    Ok(Json(scheduler.jobs_of(&tenant, most).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Most {
    most: Option<usize>,
}

async fn executions(
    State(scheduler): State<Scheduler>,
    named: Named,
    Query(query): Query<Most>,
) -> Result<Json<Vec<ExecutionState>>, Refusal> {
    let id = id_of(&named)?;
    scheduler.known_job(&id).await?;
    let most = query.most.unwrap_or(100).clamp(1, MOST);
    Ok(Json(scheduler.executions_of(&id, most).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChangeBody {
    change_id: String,
}

async fn changed(
    scheduler: &Scheduler,
    named: &Named,
    change: Change,
    change_id: &str,
) -> Result<Json<JobDefinitionState>, Refusal> {
    let job_id = id_of(named)?;
    let job = scheduler.change_job(&job_id, &change, change_id).await?;
    Ok(Json(job))
}

async fn cancel(
    State(scheduler): State<Scheduler>,
    named: Named,
    given: Body<ChangeBody>,
) -> Result<Json<JobDefinitionState>, Refusal> {
    changed(&scheduler, &named, Change::Cancel, &body(given)?.change_id).await
}

async fn pause(
    State(scheduler): State<Scheduler>,
    named: Named,
    given: Body<ChangeBody>,
) -> Result<Json<JobDefinitionState>, Refusal> {
    changed(&scheduler, &named, Change::Pause, &body(given)?.change_id).await
}

async fn resume(
    State(scheduler): State<Scheduler>,
    named: Named,
    given: Body<ChangeBody>,
) -> Result<Json<JobDefinitionState>, Refusal> {
    changed(&scheduler, &named, Change::Resume, &body(given)?.change_id).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RescheduleBody {
    change_id: String,
    schedule: Schedule,
}

async fn reschedule(
    State(scheduler): State<Scheduler>,
    named: Named,
    given: Body<RescheduleBody>,
) -> Result<Json<JobDefinitionState>, Refusal> {
    let given = body(given)?;
    let change = Change::Reschedule(given.schedule);
    changed(&scheduler, &named, change, &given.change_id).await
}

async fn redrive(
    State(scheduler): State<Scheduler>,
    given: Body<Most>,
) -> Result<Json<Vec<Redriven>>, Refusal> {
    let most = body(given)?.most.unwrap_or(100).clamp(1, MOST);
    Ok(Json(scheduler.redrive(most).await))
}

/// The `serve` command.
pub const SERVE: walkthrough::Command = walkthrough::Command {
    name: "serve",
    about: "Serve the JSON API, and scan and work, until Ctrl-C",
    args: serve_args,
    run: |cloud, args| Box::pin(serve(cloud, args)),
};

fn serve_args(command: Command) -> Command {
    command
        .arg(listen_arg())
        .arg(
            Arg::new("workers")
                .long("workers")
                .value_name("N")
                .value_parser(value_parser!(u16).range(0..=1_000))
                .default_value("8")
                .help("So many runs at once; 0 only scans"),
        )
        .arg(
            Arg::new("lookahead")
                .long("lookahead")
                .value_name("SECONDS")
                .value_parser(value_parser!(i64).range(0..=900))
                .default_value("30")
                .help("How far ahead of its time an execution goes into the queue; SQS delays up to 900 s"),
        )
}

async fn serve(cloud: Cloud, args: ArgMatches) -> anyhow::Result<()> {
    let lookahead = args.get_one::<i64>("lookahead").copied().unwrap_or(30);
    let workers = args.get_one::<u16>("workers").copied().unwrap_or(8);
    let scheduler = Scheduler::connect(cloud).await?;
    let scheduler = scheduler.looking_ahead(lookahead as Millis * 1_000)?;
    let settings = Settings {
        workers: workers.into(),
        ..Settings::default()
    };
    let listener = listen(&args).await?;
    serve_until(
        scheduler,
        Arc::new(BuiltIn),
        settings,
        listener,
        interrupted(),
    )
    .await
}

/// Serves until told to stop, with a scanner, a sweeper and workers beside it.
pub async fn serve_until(
    scheduler: Scheduler,
    handler: Arc<dyn Handler>,
    settings: Settings,
    listener: TcpListener,
    stop: impl Future<Output = ()> + Send + 'static,
) -> anyhow::Result<()> {
    let (stopping, stopped) = watch::channel(false);
    let told = |mut stopped: watch::Receiver<bool>| async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    };
    let running = tokio::spawn(run_until(
        scheduler.clone(),
        handler,
        settings,
        told(stopped),
    ));
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let served = serving::serve(listener, app(scheduler), stop).await;
    running.await?;
    served
}
