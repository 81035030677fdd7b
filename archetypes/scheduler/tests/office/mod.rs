//! A scheduler to try things on, workers that remember what they did, and the invariants that
//! every end of a story must keep.
#![allow(dead_code, clippy::unwrap_used)]

pub mod cast;

use chaos::World;
use cloud::{Cloud, Millis};
use futures::future::BoxFuture;
use scheduler::domain::{ExecutionState, ExecutionStatus, JobStatus};
use scheduler::queue::{Message, QUEUES};
use scheduler::tables::{SHARDS, TABLES};
use scheduler::{Handler, NewJob, Overlap, Run, Schedule, Scheduler, Worked, Worker};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than any lease, grace and first pause here: a round of life.
pub const ROUND: Duration = Duration::from_secs(70);

pub const SECOND: Millis = 1_000;
pub const MINUTE: Millis = 60_000;
pub const HOUR: Millis = 3_600_000;

/// What happened, as the handlers saw it.
#[derive(Default)]
pub struct Diary {
    /// Every start: which execution, which attempt.
    pub starts: Vec<(String, u32)>,
    /// Every completion that the row took.
    pub completions: Vec<String>,
    /// What must not be, and was.
    pub broken: Vec<String>,
    /// How many attempts of each execution are to fail.
    pub fails: u32,
}

/// A scheduler with a cloud of its own: scanners and workers act on whatever they find.
pub struct Office {
    pub scheduler: Scheduler,
    pub diary: Arc<Mutex<Diary>>,
}

impl World for Office {
    fn cloud(&self) -> &Cloud {
        self.scheduler.cloud()
    }
}

pub async fn open() -> Office {
    open_on(cloud::connect_alone_for_tests().await.unwrap()).await
}

pub async fn open_on(cloud: Cloud) -> Office {
    cloud.create_tables(TABLES).await.unwrap();
    for queue in QUEUES {
        (queue.create)(cloud.beside_tap()).await.unwrap();
    }
    Office {
        scheduler: Scheduler::connect(cloud).await.unwrap(),
        diary: Arc::default(),
    }
}

/// An office with this job in it.
pub async fn with_job(job: NewJob) -> Office {
    let office = open().await;
    office.scheduler.create_job(job).await.unwrap();
    office
}

/// A job that fires once, so many ms after the epoch of tests.
pub fn once(job_id: &str, after: Millis) -> NewJob {
    let at = cloud::TEST_EPOCH + after;
    NewJob::new(job_id, "acme", Schedule::Once { at })
}

/// A job that fires again and again.
pub fn every(job_id: &str, every_ms: Millis) -> NewJob {
    NewJob::new(job_id, "acme", Schedule::Every { every_ms })
}

/// The id of the execution so many ms after the epoch of tests.
pub fn id(job_id: &str, after: Millis) -> String {
    scheduler::items::execution_id(cloud::TEST_EPOCH + after, &whole(job_id))
}

/// The whole id of a job of acme's.
pub fn whole(job: &str) -> String {
    scheduler::domain::job_id("acme", job).unwrap()
}

/// A handler that writes down its starts, and fails as often as the diary says.
struct Writer {
    scheduler: Scheduler,
    diary: Arc<Mutex<Diary>>,
}

impl Handler for Writer {
    fn run<'a>(&'a self, run: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async move {
            let broken = look(&self.scheduler, run).await;
            let mut diary = self.diary.lock().unwrap();
            diary.broken.extend(broken);
            let begun = (run.execution.execution_id.clone(), run.execution.attempt);
            if diary.starts.contains(&begun) {
                diary.broken.push(format!("{begun:?} started twice"));
            }
            diary.starts.push(begun);
            match run.execution.attempt <= diary.fails {
                true => Err("told to fail".to_owned()),
                false => Ok(()),
            }
        })
    }
}

/// What is wrong with a run that is about to begin.
async fn look(scheduler: &Scheduler, run: &Run) -> Vec<String> {
    let me = &run.execution.execution_id;
    let now = scheduler.cloud().now();
    let mut broken = Vec::new();
    if run.execution.execution_time > now {
        broken.push(format!("{me} started before its time"));
    }
    let beside = scheduler.on(scheduler.cloud().beside_tap());
    if run.job.overlap != Overlap::AllowAll {
        let others = beside.executions_of(&run.job.job_id, 100).await.unwrap();
        let runs = |other: &&ExecutionState| {
            other.execution_id != *me && other.status == ExecutionStatus::InProgress
        };
        if let Some(other) = others.iter().find(runs) {
            broken.push(format!("{me} runs beside {}", other.execution_id));
        }
    }
    broken
}

impl Office {
    pub fn now(&self) -> Millis {
        self.cloud().now()
    }

    pub fn advance(&self, ms: Millis) {
        self.cloud()
            .clock()
            .advance(Duration::from_millis(ms as u64));
    }

    pub fn worker(&self, name: &str) -> Worker {
        self.worker_on(name, &self.scheduler)
    }

    /// A worker with another view of the cloud: another clock.
    pub fn worker_on(&self, name: &str, scheduler: &Scheduler) -> Worker {
        let writer = Writer {
            scheduler: scheduler.clone(),
            diary: Arc::clone(&self.diary),
        };
        Worker::new(scheduler.clone(), name, Arc::new(writer))
    }

    /// Works on a message and writes down whether that completed it.
    pub async fn handle(&self, worker: &Worker, message: &Message) -> Worked {
        let worked = worker.handle(message).await.unwrap();
        self.written(message, worked)
    }

    pub fn written(&self, message: &Message, worked: Worked) -> Worked {
        if worked == Worked::Completed {
            let id = message.says.clone().unwrap().execution_id;
            self.diary.lock().unwrap().completions.push(id);
        }
        worked
    }

    /// Receives one message, if there is one.
    pub async fn receive(&self) -> Option<Message> {
        self.scheduler.receive(0).await.unwrap()
    }

    /// All shards.
    pub async fn scan(&self) -> Vec<String> {
        let scanned = self.scheduler.scan_due(0..SHARDS, 10_000).await;
        for (id, outcome) in &scanned {
            assert!(outcome.is_ok(), "{id}: {outcome:?}");
        }
        scanned.into_iter().map(|(id, _)| id).collect()
    }

    pub async fn sweep(&self) -> Vec<String> {
        let swept = self.scheduler.sweep_stale(0..SHARDS).await;
        for (id, outcome) in &swept {
            assert!(outcome.is_ok(), "{id}: {outcome:?}");
        }
        swept.into_iter().map(|(id, _)| id).collect()
    }

    /// Works until the queue gives nothing more: every message is delivered twice.
    pub async fn work_all(&self, name: &str) -> usize {
        let worker = self.worker(name);
        let mut count = 0;
        while let Some(message) = self.receive().await {
            self.handle(&worker, &message).await;
            self.handle(&worker, &message).await;
            count += 1;
            assert!(count < 1_000, "the queue never gets empty");
        }
        count
    }

    /// What life does: time passes, scanners and sweepers come by, workers work. It looks after the
    /// one shard of `job`; all of them would take most of the time of these tests.
    pub async fn live(&self, rounds: usize) {
        let shard = cloud::item::shard_of("acme/job", SHARDS);
        for _ in 0..rounds {
            for (id, outcome) in self.scheduler.scan_due([shard], 1_000).await {
                assert!(outcome.is_ok(), "{id}: {outcome:?}");
            }
            for (id, outcome) in self.scheduler.sweep_stale([shard]).await {
                assert!(outcome.is_ok(), "{id}: {outcome:?}");
            }
            self.work_all("life").await;
            self.cloud().clock().advance(ROUND);
        }
    }

    /// One attempt that fails, whose worker dies before it is in the dead-letter queue.
    pub async fn live_without_burying(&self) {
        let message = self.receive().await.unwrap();
        let claimed = self.scheduler.claim(&message, "dies").await.unwrap();
        let scheduler::Claimed::Run(run) = claimed else {
            panic!("{claimed:?}");
        };
        let dying = cloud::tap::KillFrom::call(2).of("dies");
        let _plan = self.cloud().tap().install(Arc::new(dying));
        let failed = cloud::as_actor("dies", self.scheduler.fail(&run, "told to fail")).await;
        failed.unwrap();
    }

    /// Whether everything that was dispatched has ended.
    async fn is_at_rest(&self, job_id: &str) -> bool {
        let beside = self.scheduler.on(self.cloud().beside_tap());
        let all = beside.executions_of(&whole(job_id), 1_000).await.unwrap();
        let ended = |execution: &ExecutionState| {
            execution.status == ExecutionStatus::Failed
                || execution.due_at.is_none() && execution.status != ExecutionStatus::Waiting
                || execution
                    .due_at
                    .is_some_and(|due| due > self.now() + 2 * MINUTE)
        };
        all.iter().all(ended)
    }

    pub async fn execution(&self, execution_id: &str) -> ExecutionState {
        let beside = self.scheduler.on(self.cloud().beside_tap());
        let found = beside.read_execution(execution_id).await.unwrap();
        found.unwrap_or_else(|| panic!("there is no execution {execution_id}"))
    }

    pub async fn status(&self, execution_id: &str) -> ExecutionStatus {
        self.execution(execution_id).await.status
    }

    pub fn starts(&self) -> Vec<(String, u32)> {
        self.diary.lock().unwrap().starts.clone()
    }

    pub fn completions(&self) -> Vec<String> {
        self.diary.lock().unwrap().completions.clone()
    }

    /// Everything that must hold, however the story went. Gives the statuses at the end.
    pub async fn invariants(
        &self,
        job_id: &str,
    ) -> Result<BTreeMap<String, ExecutionStatus>, String> {
        let ensure = |holds: bool, why: String| if holds { Ok(()) } else { Err(why) };
        let beside = self.scheduler.on(self.cloud().beside_tap());
        let job = beside.read_job(&whole(job_id)).await.unwrap();
        let job = job.ok_or_else(|| format!("the job {job_id} is gone"))?;
        let all = beside.executions_of(&whole(job_id), 1_000).await.unwrap();
        {
            let diary = self.diary.lock().unwrap();
            if let Some(broken) = diary.broken.first() {
                return Err(broken.clone());
            }
            let distinct: BTreeSet<_> = diary.completions.iter().collect();
            ensure(
                distinct.len() == diary.completions.len(),
                format!("completed twice: {:?}", diary.completions),
            )?;
        }
        for id in self.completions() {
            let status = self.status(&id).await;
            ensure(
                status == ExecutionStatus::Completed,
                format!("{id} was completed and is {status:?}"),
            )?;
        }
        // The series goes on: one execution of the current plan is to be dispatched, and it is the
        // one that the job names.
        let planned: Vec<_> = all
            .iter()
            .filter(|execution| execution.status == ExecutionStatus::Pending)
            .filter(|execution| execution.schedule_version == job.schedule_version)
            .map(|execution| execution.execution_time)
            .collect();
        let expected: Vec<_> = match job.status {
            JobStatus::Active => job.next_fire_time.into_iter().collect(),
            _ => Vec::new(),
        };
        ensure(
            planned == expected,
            format!(
                "{:?}: {planned:?} is planned, the job says {expected:?}",
                job.status
            ),
        )?;
        ensure(
            job.status != JobStatus::Active || !planned.is_empty(),
            "the series has ended".to_owned(),
        )?;
        let mut places = Vec::new();
        for execution in &all {
            let id = &execution.execution_id;
            let open = matches!(
                execution.status,
                ExecutionStatus::Pending
                    | ExecutionStatus::Enqueued
                    | ExecutionStatus::InProgress
                    | ExecutionStatus::Retrying
            );
            ensure(
                execution.due_at.is_some() == execution.due_shard.is_some(),
                format!("{id} is half in the index"),
            )?;
            let dead = |lane: &String| lane.starts_with("dead-");
            ensure(
                !open || !execution.due_shard.as_ref().is_none_or(dead),
                format!("{id} is {:?}, and nobody will look at it", execution.status),
            )?;
            let ended = execution.completed_at.is_some();
            let buried = execution.status != ExecutionStatus::Failed;
            ensure(
                !ended || !buried || execution.due_at.is_none(),
                format!("{id} has ended and is in the index"),
            )?;
            ensure(
                execution.attempt <= execution.attempt_limit,
                format!("{id} had {} attempts", execution.attempt),
            )?;
            if execution.attempt > 0 && open {
                places.push(id.clone());
            }
        }
        if job.overlap != Overlap::AllowAll {
            let running: Vec<_> = job.running_execution.clone().into_iter().collect();
            let handed = |id: &String| !places.contains(id);
            ensure(
                places.iter().all(|id| running.contains(id)),
                format!("{places:?} run, {running:?} has the place"),
            )?;
            // Somebody who has the place and is over would keep it for ever.
            for id in running.iter().filter(|id| handed(id)) {
                let status = self.status(id).await;
                ensure(
                    status == ExecutionStatus::Enqueued,
                    format!("{id} is {status:?} and has the place"),
                )?;
            }
        }
        Ok(all
            .into_iter()
            .map(|execution| (execution.execution_id, execution.status))
            .collect())
    }
}

/// A word for what a worker did.
pub fn word(worked: &Worked) -> String {
    match worked {
        Worked::Retrying { .. } => "retrying".to_owned(),
        other => format!("{other:?}").to_lowercase(),
    }
}

/// `one completed, other held`.
pub fn label(told: &[(&'static str, String)]) -> String {
    let words: Vec<_> = told
        .iter()
        .map(|(who, did)| format!("{who} {did}"))
        .collect();
    words.join(", ")
}

/// An office where a job's one execution is due and in the queue, and its message in hand.
pub struct Desk {
    pub office: Office,
    pub message: Message,
    /// The same office by a clock that is past every lease.
    pub late: Scheduler,
    /// A second message, or a run that has begun, where a story needs one.
    pub second: Option<Message>,
    pub run: Option<Run>,
    /// Who was through, in order.
    pub ended: Mutex<Vec<String>>,
}

impl World for Desk {
    fn cloud(&self) -> &Cloud {
        self.office.cloud()
    }
}

/// The message of a job that has just come due.
pub async fn desk(job: NewJob) -> Desk {
    let office = with_job(job).await;
    office.advance(HOUR);
    office.scan().await;
    let message = office.receive().await.unwrap();
    let ahead = cloud::Clock::manual(office.now() + HOUR);
    let late = office.scheduler.on(office.cloud().with_clock(ahead));
    Desk {
        office,
        message,
        late,
        second: None,
        run: None,
        ended: Mutex::default(),
    }
}

impl Desk {
    pub async fn work(&self, name: &str) -> String {
        let worker = self.office.worker(name);
        word(&self.office.handle(&worker, &self.message).await)
    }

    /// Works on the same message by a clock that is ahead.
    pub async fn work_late(&self, name: &str) -> String {
        let worker = self.office.worker_on(name, &self.late);
        word(&self.office.handle(&worker, &self.message).await)
    }

    /// Claims, and no more.
    pub async fn claim(&self, name: &str) -> Run {
        match self
            .office
            .scheduler
            .claim(&self.message, name)
            .await
            .unwrap()
        {
            scheduler::Claimed::Run(run) => *run,
            other => panic!("{other:?}"),
        }
    }

    /// Tries to claim, with the first message or the second, and says what came of it.
    pub async fn try_claim(&self, name: &str, second: bool) -> String {
        let message = match second {
            true => self.second.as_ref().unwrap(),
            false => &self.message,
        };
        match self.office.scheduler.claim(message, name).await.unwrap() {
            scheduler::Claimed::Run(run) => format!("begins {}", run.execution.attempt),
            scheduler::Claimed::Held { .. } => "held".to_owned(),
            other => format!("{other:?}").to_lowercase(),
        }
    }

    pub fn begun(&self) -> &Run {
        self.run.as_ref().unwrap()
    }

    /// Completes what has begun, and writes down whether that counted.
    pub async fn complete(&self) -> String {
        match self.office.scheduler.complete(self.begun()).await.unwrap() {
            scheduler::Finish::Done => {
                self.office.written(&self.message, Worked::Completed);
                "completed".to_owned()
            }
            scheduler::Finish::Stale => "stale".to_owned(),
        }
    }
}

/// After every order the invariants must hold, and then life goes on, and what was begun ends.
pub async fn ends_well(office: &Office, job_id: &str, rounds: usize) -> Result<(), String> {
    office.invariants(job_id).await?;
    for _ in 0..rounds {
        if office.is_at_rest(job_id).await {
            break;
        }
        office.live(1).await;
    }
    let all = office.invariants(job_id).await?;
    for (id, status) in &all {
        let counted = office
            .completions()
            .iter()
            .filter(|done| *done == id)
            .count();
        match status {
            ExecutionStatus::Completed if counted == 1 => {}
            ExecutionStatus::Completed => return Err(format!("{id}: {counted} completions")),
            ExecutionStatus::Cancelled | ExecutionStatus::Skipped | ExecutionStatus::Failed => {}
            ExecutionStatus::Pending => {
                let (time, _) = scheduler::items::parts_of(id).unwrap();
                if time + 2 * MINUTE < office.now() {
                    return Err(format!("{id} was never dispatched"));
                }
            }
            other => return Err(format!("{id} is {other:?} for ever")),
        }
    }
    Ok(())
}

impl Office {
    pub fn cloud_tap(&self) -> &cloud::Tap {
        self.cloud().tap()
    }
}

impl Desk {
    /// Writes down that somebody is through.
    pub fn through(&self, name: &str) {
        self.ended.lock().unwrap().push(name.to_owned());
    }

    /// Whether the first of these was through before the other.
    pub fn before(&self, first: &str, other: &str) -> bool {
        let ended = self.ended.lock().unwrap();
        let at = |name: &str| ended.iter().position(|ended| ended == name).unwrap();
        at(first) < at(other)
    }
}

impl Office {
    /// Puts a failed execution back into the index, as if its worker had died before it was taken
    /// off.
    pub async fn unbury(&self, execution: &ExecutionState) {
        let beside = self.cloud().beside_tap();
        beside
            .dynamodb()
            .update_item()
            .table_name(beside.names().table("executions"))
            .key("bucket", cloud::item::s(&execution.bucket))
            .key("execution_id", cloud::item::s(&execution.execution_id))
            .update_expression("SET due_shard = :lane, due_at = :due")
            .expression_attribute_values(
                ":lane",
                cloud::item::s(scheduler::items::watch_lane(&execution.job_id)),
            )
            .expression_attribute_values(":due", cloud::item::n(self.now()))
            .send()
            .await
            .unwrap();
    }
}
