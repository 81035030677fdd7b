//! The story: every action of the documents, run for real, with what it costs.

use crate::api::SERVE;
use crate::bench::BENCH;
use crate::client::COMMANDS;
use crate::queue::QUEUES;
use crate::tables::{ACTIONS, MACHINES, TABLES};
use anyhow::Result;
use walkthrough::{Archetype, Command, Story, Workload, share};

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

const WORKLOAD: Workload = Workload {
    unit: "executions",
    mix: &[share("mark completed", 1.0)],
    skew: &[],
    kept_days: 30,
};

async fn tell(_story: &mut Story) -> Result<()> {
    Ok(())
}
