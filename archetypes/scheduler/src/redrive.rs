//! Redrive: what was given up gets another chance. Beyond the documents.

use crate::domain::{ExecutionState, ExecutionStatus, GRACE_MS, JobStatus};
use crate::items::{dead_lane, guarded_update, key, status, watch_lane};
use crate::queue::Message;
use crate::scan_due::patient;
use crate::tables::SHARDS;
use crate::{Scheduler, SchedulerError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, n, s};
use cloud::{Guard, Millis};
use serde::Serialize;

/// What became of a dead message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Redriven {
    /// It may run again.
    Runnable {
        /// Which execution.
        execution_id: String,
    },
    /// It is not given up, or no longer: the message was dropped.
    Before {
        /// Which execution.
        execution_id: String,
    },
    /// Nobody can read it. It stays where it is.
    Poison,
    /// Not this time; the same may be asked again.
    Later {
        /// Which execution.
        execution_id: String,
        /// Why not.
        why: String,
    },
}

fn later(execution_id: String, error: &SchedulerError) -> Redriven {
    Redriven::Later {
        execution_id,
        why: error.to_string(),
    }
}

/// It has failed, at this attempt: whoever made it run again before has begun another one or will.
const GUARD: &str = "#status = :failed AND attempt = :attempt";

/// The attempts go on counting, since they are the fence; the limit moves.
const AGAIN: &str = "SET #status = :retrying, not_before = :now, due_shard = :watch, due_at = :due, \
     attempt_limit = :limit, sent_by = :redrive REMOVE completed_at, expires_at";

/// It is still in the lane of the dead: another redrive, decided before the cancellation, may have made it run again.
const REST_GUARD: &str = "due_shard = :dead";
const REST: &str = "REMOVE due_shard, due_at";

impl Scheduler {
    /// Makes runnable what is in the dead-letter queue, and then what only the table still knows to be dead:
    /// SQS may lose a queue, and forgets what is older than fourteen days. At most `most`. One that fails or
    /// hangs does not stop the others.
    pub async fn redrive(&self, most: usize) -> Vec<Redriven> {
        let mut done = self.redrive_queue(most).await;
        if done.len() == most {
            return done;
        }
        for shard in 0..SHARDS {
            self.redrive_lane(&format!("dead-{shard}"), most, &mut done)
                .await;
        }
        done
    }

    /// Makes runnable what is in a lane of the dead, page by page: what a page holds may all be of cancelled jobs.
    async fn redrive_lane(&self, lane: &str, most: usize, done: &mut Vec<Redriven>) {
        let mut from = None;
        while done.len() < most
            && let Ok((mut found, next)) = patient(self.page(lane, Millis::MAX, from)).await
        {
            while done.len() < most && !found.is_empty() {
                let rest = found.split_off(found.len().min(most - done.len()));
                let again = async |execution_id: String| self.redrive_one(&execution_id).await;
                for (execution_id, redriven) in self.each(found, again).await {
                    match redriven {
                        Ok(true) => done.push(Redriven::Runnable { execution_id }),
                        // The index is behind, or its job was cancelled: the next one takes its place.
                        Ok(false) => {}
                        Err(error) => done.push(later(execution_id, &error)),
                    }
                }
                found = rest;
            }
            from = next;
            if from.is_none() {
                return;
            }
        }
    }

    /// Makes runnable what is in the dead-letter queue.
    pub async fn redrive_queue(&self, most: usize) -> Vec<Redriven> {
        let mut done = Vec::new();
        while done.len() < most
            && let Ok(Some(message)) = patient(self.receive_dead()).await
        {
            done.push(self.redrive_message(&message).await);
        }
        done
    }

    async fn redrive_message(&self, message: &Message) -> Redriven {
        let Some(says) = &message.says else {
            return Redriven::Poison;
        };
        let execution_id = says.execution_id.clone();
        match patient(self.redrive_one(&execution_id)).await {
            Err(error) => later(execution_id, &error),
            Ok(redriven) => {
                self.hint(self.delete_dead(message)).await;
                match redriven {
                    true => Redriven::Runnable { execution_id },
                    false => Redriven::Before { execution_id },
                }
            }
        }
    }

    /// Whether it may run again.
    pub async fn redrive_one(&self, execution_id: &str) -> Result<bool, SchedulerError> {
        match self.read_both(execution_id).await? {
            Some((job, execution)) if execution.status == ExecutionStatus::Failed => {
                // What is called off stays what it is: nobody would run it. A cancellation is for good.
                if job.status == JobStatus::Cancelled {
                    self.lay_to_rest(&execution).await?;
                    return Ok(false);
                }
                let limit = execution.attempt + job.max_attempts;
                self.run_again(&execution, limit, self.now()).await
            }
            _ => Ok(false),
        }
    }

    /// Takes it out of the lane of the dead: no redrive need look at it again.
    async fn lay_to_rest(&self, execution: &ExecutionState) -> Result<(), SchedulerError> {
        let rest = self
            .dynamodb()
            .update_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(&execution.execution_id)?))
            .update_expression(REST)
            .condition_expression(REST_GUARD)
            .expression_attribute_values(":dead", s(dead_lane(&execution.job_id)));
        guarded_update(rest).await?;
        Ok(())
    }

    async fn run_again(
        &self,
        execution: &ExecutionState,
        limit: u32,
        now: Millis,
    ) -> Result<bool, SchedulerError> {
        // The identity of this redrive: a refusal that brings it back is our own success.
        let redrive = self.cloud.ids().next("redrive");
        let again = self
            .dynamodb()
            .update_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(&execution.execution_id)?))
            .update_expression(AGAIN)
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":failed", status(ExecutionStatus::Failed))
            .expression_attribute_values(":retrying", status(ExecutionStatus::Retrying))
            .expression_attribute_values(":attempt", n(execution.attempt))
            .expression_attribute_values(":limit", n(limit))
            .expression_attribute_values(":redrive", s(&redrive))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":watch", s(watch_lane(&execution.job_id)))
            .expression_attribute_values(":due", n(now + GRACE_MS))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let ours = match guarded_update(again).await? {
            Guard::Passed(_) => true,
            Guard::Failed(old) => {
                let old: Option<ExecutionState> = old.as_ref().map(from_item).transpose()?;
                old.is_some_and(|old| old.sent_by == Some(redrive))
            }
        };
        if ours {
            self.hint(self.send(execution, now)).await;
        }
        Ok(ours)
    }
}
