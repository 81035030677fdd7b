//! The story: every action of the documents, run for real, with what it costs.

use crate::api::SERVE;
use crate::bench::BENCH;
use crate::change_job::Change;
use crate::claim_run::{Claimed, Run};
use crate::client::COMMANDS;
use crate::domain::{AfterFailure, ExecutionStatus, JobDefinitionState, JobStatus};
use crate::items::execution_id;
use crate::queue::{Message, QUEUES};
use crate::redrive::Redriven;
use crate::tables::{ACTIONS, MACHINES, SHARDS, TABLES};
use crate::{
    Enqueued, Finish, Handler, LOOKAHEAD_MS, NewJob, Overlap, Schedule, Scheduler, Worked, Worker,
};
use anyhow::{Context, Result, bail};
use cloud::{Cloud, Millis};
use std::sync::Arc;
use std::time::Duration;
use walkthrough::{Archetype, BoxFuture, Command, Skew, Story, Workload, share};

/// All that this crate says about itself.
pub const fn archetype() -> Archetype {
    Archetype {
        name: "scheduler",
        title: "Scheduler: future constraint + claimable run",
        question: "How does each job run once, on time, though workers die?",
        tables: TABLES,
        resources: QUEUES,
        actions: ACTIONS,
        machines: MACHINES,
        workload: WORKLOAD,
        story: |story| Box::pin(tell(story)),
        commands: &ALL_COMMANDS,
    }
}

const ALL_COMMANDS: [Command; 10] = {
    let [
        submit,
        list,
        watch,
        cancel,
        pause,
        resume,
        reschedule,
        redrive,
    ] = COMMANDS;
    [
        SERVE, submit, list, watch, cancel, pause, resume, reschedule, redrive, BENCH,
    ]
};

/// A busy day, for each execution: most are recurring and end well at the first attempt.
const WORKLOAD: Workload = Workload {
    unit: "executions",
    mix: &[
        share("enqueue execution", 1.0).when("with a next fire time"),
        share("claim execution", 1.0),
        share("mark execution in progress", 1.0).when("overlap allowed"),
        share("mark completed", 1.0).when("overlap allowed"),
        share("mark retrying/failed", 0.01).when("another attempt"),
        share("scan due work", 0.02),
        share("sweep stale", 0.002).when("nothing is stale"),
        share("create job", 0.01).when("later than the lookahead"),
    ],
    skew: &[
        Skew {
            resource: "executions",
            action: "",
            hottest: 0.25,
            why: "the executions of one minute are on four keys",
        },
        Skew {
            resource: "executions/due",
            action: "",
            hottest: 0.25,
            why: "four shards, each with two lanes",
        },
    ],
    kept_days: 30,
};

const HOUR: Duration = Duration::from_secs(3_600);
const HOUR_MS: Millis = 3_600_000;

/// One received message.
async fn received(scheduler: &Scheduler) -> Result<Message> {
    let message = scheduler.receive(5).await?;
    message.context("no message came")
}

async fn claimed(scheduler: &Scheduler, message: &Message, owner: &str) -> Result<Run> {
    match scheduler.claim(message, owner).await? {
        Claimed::Run(run) => Ok(*run),
        other => bail!("the story expected to claim it: {other:?}"),
    }
}

async fn tell(story: &mut Story) -> Result<()> {
    let cloud = story.cloud().clone();
    let scheduler = Scheduler::connect(cloud.clone()).await?;

    story.section(
        "A job and its first run",
        "What is to be done is one item, each time it is to be done another: JobDefinitionState and \
         ExecutionState. They are written together, so there is no job without a next run.",
    );
    let hourly = Schedule::Every { every_ms: HOUR_MS };
    let job = NewJob::new(cloud.ids().next("job"), "acme", hourly.clone());
    let job = story
        .step("create job", "Acme wants something done every hour. The first time is an hour away, far beyond the thirty seconds that anybody looks ahead: the row waits for the scanner.", async {
            Ok(scheduler.create_job(job).await?)
        })
        .await?;
    let urgent = NewJob::new(
        cloud.ids().next("job"),
        "acme",
        Schedule::Once { at: cloud.now() },
    );
    let urgent = story
        .step("create job", "And something once, now. That is inside the lookahead, so whoever creates it also enqueues it: a scanner that looked a moment ago would not have seen it.", async {
            Ok(scheduler.create_job(urgent).await?)
        })
        .await?;
    story.check(
        scheduler.known_job(&urgent.job_id).await?.status == JobStatus::Finished,
        "it has no next fire time: the job is FINISHED, its one run is on its way",
    )?;

    story.section(
        "A message becomes a lease",
        "SQS hides a received message for thirty seconds. That is a lease as far as SQS can see; the \
         row is what decides. `attempt` counts the claims, and is the fence.",
    );
    let message = story
        .step("claim execution", "A worker receives it.", async {
            received(&scheduler).await
        })
        .await?;
    let run = story
        .step("mark execution in progress", "The row becomes IN_PROGRESS if it is free, its time has come, and the job's plan still has it.", async {
            claimed(&scheduler, &message, "worker-1").await
        })
        .await?;
    let held = story
        .step("mark execution in progress", "The same message, delivered to another worker as well: SQS may do that. The guard says no, and says why; the message is hidden until the lease ends.", async {
            let worker = Worker::new(scheduler.clone(), "worker-2", Arc::new(Nothing));
            Ok(worker.handle(&message).await?)
        })
        .await?;
    story.check(held == Worked::Held, "one worker has it")?;
    let done = story
        .step(
            "mark completed",
            "Only then the message goes. As long as it is there, nothing is forgotten.",
            async { Ok(scheduler.complete(&run).await?) },
        )
        .await?;
    story.check(done == Finish::Done, "COMPLETED, and out of the index")?;
    let echo = story
        .step(
            "mark execution in progress",
            "A message for it that comes later still says nothing new.",
            async {
                let worker = Worker::new(scheduler.clone(), "worker-2", Arc::new(Nothing));
                Ok(worker.handle(&message).await?)
            },
        )
        .await?;
    story.check(echo == Worked::Echo, "it is dropped")?;

    // Apart, since an async function has room on the stack for all that it ever awaits.
    Box::pin(later(story, &cloud, &scheduler, &job)).await?;
    Box::pin(plan_changes(story, &cloud, &scheduler, &job)).await?;
    Box::pin(one_at_a_time(story, &cloud, &scheduler, hourly)).await?;
    Box::pin(failing(story, &cloud, &scheduler)).await
}

/// An hour later, and later still.
async fn later(
    story: &mut Story,
    cloud: &Cloud,
    scheduler: &Scheduler,
    job: &JobDefinitionState,
) -> Result<()> {
    let at = |hour: Millis| execution_id(job.anchor + hour * HOUR_MS, &job.job_id);
    story.section(
        "From the table into the queue",
        "The index `due` holds what somebody must look at, by when. A scan asks four shards for what \
         comes due within the lookahead; what has ended is not in the index at all.",
    );
    cloud.clock().advance(HOUR);
    let found = story
        .step("scan due work", "An hour later. One row is found, the recurring job's: what has ended is not read, and not paid for.", async {
            let mut found = Vec::new();
            for shard in 0..SHARDS {
                let lane = format!("start-{shard}");
                found.extend(scheduler.due(&lane, cloud.now() + LOOKAHEAD_MS).await?);
            }
            Ok(found)
        })
        .await?;
    story.check(
        found.len() == 1 && found[0].execution_id == at(1),
        "one execution is due",
    )?;
    let sent = story
        .step("enqueue execution", "First the mark, then the message. The same transaction writes the run of the next hour, so that no crash ends the series; the guard on the job's `schedule_version` makes sure that it is still the plan.", async {
            Ok(scheduler.enqueue(&at(1)).await?)
        })
        .await?;
    story.check(sent == Enqueued::Sent { next: None }, "it is in the queue")?;
    let again = story
        .step(
            "enqueue execution",
            "A second scanner, which found the same row, comes too late and sends nothing.",
            async { Ok(scheduler.enqueue(&at(1)).await?) },
        )
        .await?;
    story.check(
        again == Enqueued::Before,
        "one message, however many scanners",
    )?;

    story.section(
        "A worker dies",
        "The documents let only PENDING and RETRYING be claimed: who dies in IN_PROGRESS takes the \
         job along. Here an expired lease can be taken, and its old holder can no longer write.",
    );
    let message = received(scheduler).await?;
    let dead = story
        .step(
            "mark execution in progress",
            "Worker 1 begins the hourly run …",
            async { claimed(scheduler, &message, "worker-1").await },
        )
        .await?;
    let beat = story
        .step(
            "heartbeat",
            "… says once that it lives, in the row and to SQS …",
            async { Ok(scheduler.heartbeat(&dead).await?) },
        )
        .await?;
    story.check(beat == Finish::Done, "the lease is extended")?;
    cloud.clock().advance(Duration::from_secs(90));
    let swept = story
        .step("sweep stale", "… and is not heard of again. Past the lease and some grace the row is overdue, and the sweeper sends another message. It finds lost messages the same way.", async {
            Ok(scheduler.sweep_stale(0..SHARDS).await)
        })
        .await?;
    story.check(swept.len() == 1, "one execution was stuck")?;
    let message = received(scheduler).await?;
    let heir = story
        .step(
            "mark execution in progress",
            "Worker 2 takes the expired lease: attempt 2.",
            async { claimed(scheduler, &message, "worker-2").await },
        )
        .await?;
    let stale = story
        .step(
            "mark completed",
            "Worker 1 was only slow. It comes back with attempt 1, and the fence holds.",
            async { Ok(scheduler.complete(&dead).await?) },
        )
        .await?;
    story.check(stale == Finish::Stale, "a stale attempt changes nothing")?;
    let done = story
        .step("mark completed", "Worker 2 is done.", async {
            Ok(scheduler.complete(&heir).await?)
        })
        .await?;
    story.check(done == Finish::Done, "completed once")?;
    story
        .step("sweep stale", "Nothing is stuck any more.", async {
            Ok(scheduler.sweep_stale(0..SHARDS).await)
        })
        .await?;

    Ok(())
}

/// A pause and a resumption.
async fn plan_changes(
    story: &mut Story,
    cloud: &Cloud,
    scheduler: &Scheduler,
    job: &JobDefinitionState,
) -> Result<()> {
    let at = |hour: Millis| execution_id(job.anchor + hour * HOUR_MS, &job.job_id);
    story.section(
        "The plan changes",
        "Pausing writes one item, the job. The run of the next hour is in the table already, under \
         the old `schedule_version`; whoever meets it finds that out.",
    );
    story
        .step("change job", "Acme pauses the job.", async {
            Ok(scheduler
                .change_job(&job.job_id, &Change::Pause, "change-1")
                .await?)
        })
        .await?;
    cloud.clock().advance(HOUR);
    let off = story
        .step(
            "enqueue execution",
            "The scanner finds the row that was planned before, and ends it.",
            async { Ok(scheduler.enqueue(&at(2)).await?) },
        )
        .await?;
    story.check(off == Enqueued::CalledOff, "what is paused does not start")?;
    let resumed = story
        .step(
            "change job",
            "Resuming plans the next run, in one transaction with the change.",
            async {
                Ok(scheduler
                    .change_job(&job.job_id, &Change::Resume, "change-2")
                    .await?)
            },
        )
        .await?;
    story.check(
        resumed.next_fire_time == Some(job.anchor + 3 * HOUR_MS),
        "on the hour, as before",
    )?;
    Ok(())
}

/// A job that allows no overlap.
async fn one_at_a_time(
    story: &mut Story,
    cloud: &Cloud,
    scheduler: &Scheduler,
    hourly: Schedule,
) -> Result<()> {
    story.section(
        "One at a time",
        "A job may forbid overlap. Then the job's item says who runs, and taking that place is part \
         of the claim.",
    );
    let careful = NewJob {
        overlap: Overlap::Skip,
        ..NewJob::new(cloud.ids().next("job"), "acme", hourly)
    };
    let careful = scheduler.create_job(careful).await?;
    let fires = |hour: Millis| execution_id(careful.anchor + hour * HOUR_MS, &careful.job_id);
    cloud.clock().advance(HOUR);
    story
        .step(
            "create execution",
            "Its first run is dispatched, and the next one materialized.",
            async { Ok(scheduler.enqueue(&fires(1)).await?) },
        )
        .await?;
    let message = received(scheduler).await?;
    let slow = story
        .step(
            "mark execution in progress",
            "It begins, and takes the place.",
            async { claimed(scheduler, &message, "worker-1").await },
        )
        .await?;
    cloud.clock().advance(HOUR);
    scheduler.enqueue(&fires(2)).await?;
    let message = received(scheduler).await?;
    let skipped = story
        .step("mark execution in progress", "An hour later it still runs, and the second one is skipped, if the first one is still there to be skipped for.", async {
            let worker = Worker::new(scheduler.clone(), "worker-2", Arc::new(Nothing));
            Ok(worker.handle(&message).await?)
        })
        .await?;
    story.check(skipped == Worked::Skipped, "at most one runs")?;
    let done = story
        .step(
            "mark completed",
            "The first one ends, late, and nobody has taken its lease. The place is free again.",
            async { Ok(scheduler.complete(&slow).await?) },
        )
        .await?;
    story.check(done == Finish::Done, "the place is given back with the end")?;

    Ok(())
}

/// What fails, fails again, is given up and gets another chance.
async fn failing(story: &mut Story, cloud: &Cloud, scheduler: &Scheduler) -> Result<()> {
    story.section(
        "Failure",
        "A failed attempt is followed by another one after a pause that doubles, with the pause as \
         DelaySeconds. This story turns its clock and does not wait for SQS's: it lets the sweeper \
         send the message instead.",
    );
    let shaky = NewJob {
        max_attempts: 2,
        ..NewJob::new(
            cloud.ids().next("job"),
            "acme",
            Schedule::Once { at: cloud.now() },
        )
    };
    let shaky = scheduler.create_job(shaky).await?;
    let message = received(scheduler).await?;
    let run = claimed(scheduler, &message, "worker-1").await?;
    story
        .step("mark retrying/failed", "The first attempt fails.", async {
            Ok(scheduler.fail(&run, "no answer").await?)
        })
        .await?;
    cloud.clock().advance(Duration::from_secs(60));
    scheduler.sweep_stale(0..SHARDS).await;
    let message = received(scheduler).await?;
    let run = claimed(scheduler, &message, "worker-1").await?;
    let failed = story
        .step("mark retrying/failed", "The second is the last. FAILED stays in the index until it is in the dead-letter queue.", async {
            Ok(scheduler.fail(&run, "no answer").await?)
        })
        .await?;
    story.check(
        failed == (Finish::Done, AfterFailure::Fail),
        "given up, and in the dead-letter queue",
    )?;
    let redriven = story
        .step("redrive", "Somebody has mended what was wrong. The limit of attempts moves, the count goes on: it is the fence.", async {
            Ok(scheduler.redrive(10).await)
        })
        .await?;
    story.check(
        matches!(redriven.as_slice(), [Redriven::Runnable { .. }]),
        "it may run again",
    )?;
    let message = received(scheduler).await?;
    let run = claimed(scheduler, &message, "worker-1").await?;
    scheduler.complete(&run).await?;
    let listed = story
        .step("view executions", "What became of it. The index has the keys; no change of status was ever written to it.", async {
            Ok(scheduler.executions_of(&shaky.job_id, 10).await?)
        })
        .await?;
    story.check(
        matches!(listed.as_slice(), [one] if one.status == ExecutionStatus::Completed && one.attempt == 3),
        "completed, at the third attempt",
    )
}

/// The handler of workers who never get to run anything here.
struct Nothing;

impl Handler for Nothing {
    fn run<'a>(&'a self, _: &'a Run) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Err("the story gave it something to run".to_owned()) })
    }
}
