//! Sweep what is stale: lost messages, dead workers, failures that were not buried.
//!
//! While an execution is on its way, `due_at` is the moment by which it should have gone on. Past
//! it, whoever comes by sends another message: an execution that did go on takes no notice of it.
//! Queues may be lost as a whole, and are rebuilt from here.

use crate::Scheduler;
use crate::domain::{ExecutionState, ExecutionStatus, GRACE_MS};
use crate::items::{guarded_update, key, status};
use crate::scan_due::Scanned;
use cloud::item::n;
use cloud::{CloudError, Guard, Millis};

/// What was done about an execution that was stuck.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Swept {
    /// It has a message again.
    Sent,
    /// It had failed, and is in the dead-letter queue now.
    Buried,
    /// It went on by itself, or somebody else saw to it.
    Before,
}

/// It is stuck where it was seen stuck: any step, and any other sweeper, moves `due_at`.
const GUARD: &str = "#status = :seen AND due_at = :due";

const LATER: &str = "SET due_at = :later";

/// The longest that a stuck execution waits for the next look.
const PATIENCE_MS: Millis = 900_000;

/// When to look again: as long from now as it has been late so far. A queue with a long line must
/// not be made longer by a message for everybody in it every thirty seconds.
fn later(execution: &ExecutionState, now: Millis) -> Millis {
    let late = (now - execution.not_before).clamp(GRACE_MS, PATIENCE_MS);
    now.max(execution.not_before) + late
}

impl Scheduler {
    /// Sees to everything in these shards that is overdue. One that fails or hangs does not stop the
    /// others.
    pub async fn sweep_stale(&self, shards: impl IntoIterator<Item = u32>) -> Scanned<Swept> {
        let (found, mut done) = self.lanes("watch", shards, self.now()).await;
        let sweep = async |execution_id: String| Ok(self.sweep(&execution_id).await?);
        done.extend(self.each(found, sweep).await);
        done
    }

    /// Sees to one execution, if it is overdue.
    pub async fn sweep(&self, execution_id: &str) -> Result<Swept, CloudError> {
        let now = self.now();
        // The index said so a moment ago; the item decides.
        let Some(execution) = self.read_execution(execution_id).await? else {
            return Ok(Swept::Before);
        };
        let Some(due) = execution.due_at.filter(|due| *due <= now) else {
            return Ok(Swept::Before);
        };
        match execution.status {
            ExecutionStatus::Enqueued | ExecutionStatus::Retrying | ExecutionStatus::InProgress => {
            }
            ExecutionStatus::Failed => {
                self.bury(&execution).await?;
                return Ok(Swept::Buried);
            }
            _ => return Ok(Swept::Before),
        }
        let move_on = self
            .dynamodb()
            .update_item()
            .table_name(self.table("executions"))
            .set_key(Some(key(execution_id)?))
            .update_expression(LATER)
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":seen", status(execution.status))
            .expression_attribute_values(":due", n(due))
            .expression_attribute_values(":later", n(later(&execution, now)));
        match guarded_update(move_on).await? {
            Guard::Failed(_) => Ok(Swept::Before),
            Guard::Passed(_) => {
                self.send(&execution, execution.not_before).await?;
                Ok(Swept::Sent)
            }
        }
    }
}
