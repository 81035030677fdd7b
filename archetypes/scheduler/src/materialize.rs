//! Materialize execution: write the one future run of a job that is planned next.
//!
//! Never by itself: always in the transaction that makes it necessary, creating the job or
//! dispatching the run before it. So there is no moment at which a job has no next run, and no
//! crash that ends a series.

use crate::Scheduler;
use crate::domain::{ExecutionState, JobDefinitionState};
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use cloud::item::{n, s, to_item};
use cloud::{CloudError, Millis};

/// A job fires at a time once. What stands there already may be replaced only if it belongs to an
/// older plan and never started: then it never will.
const GUARD: &str = "attribute_not_exists(execution_id) \
     OR (attempt = :none AND schedule_version < :version \
     AND #status IN (:pending, :enqueued, :waiting, :cancelled))";

impl Scheduler {
    /// The part of a transaction that writes the execution of `job` at `fire`.
    pub(crate) fn materialize(
        &self,
        job: &JobDefinitionState,
        fire: Millis,
    ) -> Result<TransactWriteItem, CloudError> {
        let put = Put::builder()
            .table_name(self.table("executions"))
            .set_item(Some(to_item(&ExecutionState::planned(job, fire))?))
            .condition_expression(GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":none", n(0))
            .expression_attribute_values(":version", n(job.schedule_version))
            .expression_attribute_values(":pending", s("PENDING"))
            .expression_attribute_values(":enqueued", s("ENQUEUED"))
            .expression_attribute_values(":waiting", s("WAITING"))
            .expression_attribute_values(":cancelled", s("CANCELLED"))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .build()
            .map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }
}
