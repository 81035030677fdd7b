//! Overlap: what happens when a job fires while it still runs. Beyond the documents.
//!
//! A job that allows no overlap has one place, and `running_execution` on the job says who has it:
//! from its first attempt to its end, the pauses between attempts included. Taking the place is a
//! part of the transaction that claims, giving it back a part of the transaction that ends. With
//! *queue one* there is a second place to wait in, and who leaves hands the first one over, so that
//! nobody slips in between.

use crate::Scheduler;
use crate::domain::{ExecutionState, ExecutionStatus, GRACE_MS, JobDefinitionState};
use crate::items::{key, status, watch_lane};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{n, s};
use cloud::{CloudError, Millis};
use serde::{Deserialize, Serialize};

/// What happens when a job fires while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Overlap {
    /// Both run.
    #[default]
    AllowAll,
    /// The new one is skipped.
    Skip,
    /// The new one waits, if nobody waits yet; otherwise it is skipped.
    QueueOne,
}

/// Whether an execution may start, as far as its job is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// It may.
    Free,
    /// Another one runs, and this one is not to wait.
    Skip {
        /// Who runs.
        running: String,
    },
    /// Another one runs, and this one is to wait.
    Wait {
        /// Who runs.
        running: String,
    },
}

/// Decides whether `execution_id` may start.
pub fn place(job: &JobDefinitionState, execution_id: &str) -> Place {
    let running = job.running_execution.clone();
    let running = running.filter(|running| running != execution_id);
    match (job.overlap, running) {
        (Overlap::AllowAll, _) | (_, None) => Place::Free,
        (Overlap::QueueOne, Some(running)) if job.waiting_execution.is_none() => {
            Place::Wait { running }
        }
        (_, Some(running)) => Place::Skip { running },
    }
}

/// Nobody waits, and the place is still ours to free.
const ALONE_GUARD: &str = "running_execution = :me AND attribute_not_exists(waiting_execution)";
const FREE: &str = "REMOVE running_execution";

/// It is still this one who waits.
const HAND_OVER_GUARD: &str = "running_execution = :me AND waiting_execution = :next";
const HAND_OVER: &str = "SET running_execution = :next REMOVE waiting_execution";

const NEXT_GUARD: &str = "#status = :waiting";
/// Its time is now: it was not missed, it waited.
const NEXT: &str = "SET #status = :enqueued, not_before = :now, due_shard = :watch, due_at = :due";

/// The parts of a transaction that give a place back, and who gets it.
#[derive(Default)]
pub(crate) struct Release {
    pub names: Vec<&'static str>,
    pub items: Vec<TransactWriteItem>,
    pub next: Option<String>,
}

impl Scheduler {
    /// What else changes when this execution ends: nothing, unless it has its job's one place.
    pub(crate) fn release(
        &self,
        job: &JobDefinitionState,
        execution: &ExecutionState,
        now: Millis,
    ) -> Result<Release, CloudError> {
        let me = &execution.execution_id;
        let mut release = Release::default();
        if job.running_execution.as_ref() != Some(me) {
            return Ok(release);
        }
        let part = TransactWriteItem::builder;
        let place = Update::builder()
            .table_name(self.table("jobs"))
            .key("job_id", s(&job.job_id))
            .expression_attribute_values(":me", s(me));
        let place = match &job.waiting_execution {
            None => place
                .update_expression(FREE)
                .condition_expression(ALONE_GUARD),
            Some(next) => place
                .update_expression(HAND_OVER)
                .condition_expression(HAND_OVER_GUARD)
                .expression_attribute_values(":next", s(next)),
        };
        release.names.push("job");
        let place = place.build().map_err(CloudError::bug)?;
        release.items.push(part().update(place).build());
        if let Some(next) = &job.waiting_execution {
            let starts = Update::builder()
                .table_name(self.table("executions"))
                .set_key(Some(key(next)?))
                .update_expression(NEXT)
                .condition_expression(NEXT_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":waiting", status(ExecutionStatus::Waiting))
                .expression_attribute_values(":enqueued", status(ExecutionStatus::Enqueued))
                .expression_attribute_values(":watch", s(watch_lane(&job.job_id)))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":due", n(now + GRACE_MS));
            release.names.push("next");
            let starts = starts.build().map_err(CloudError::bug)?;
            release.items.push(part().update(starts).build());
            release.next = Some(next.clone());
        }
        Ok(release)
    }

    /// Sends the message of who was handed the place. If it gets lost, the sweeper sends another.
    pub(crate) async fn send_released(&self, release: &Release) {
        let send = async {
            if let Some(next) = &release.next
                && let Some(execution) = self.read_execution(next).await?
            {
                self.send(&execution, execution.not_before).await?;
            }
            Ok(())
        };
        self.hint(send).await;
    }
}
