//! View: a tenant's jobs, a job's executions. Beyond the documents.
//!
//! Both indexes carry keys only, and their keys never change: an item is written to them once, at
//! its creation, and none of the many changes after that costs them anything. The price is paid by
//! who looks: keys first, then the items.

use crate::domain::{ExecutionState, JobDefinitionState};
use crate::items::key;
use crate::{Scheduler, SchedulerError};
use cloud::item::{from_item, s};
use cloud::{CloudError, Item};

/// A BatchGetItem takes this many keys.
const BATCH: usize = 100;

const OF_TENANT: &str = "tenant_id = :tenant";
const OF_JOB: &str = "job_id = :job";

impl Scheduler {
    /// The jobs of a tenant, by id.
    pub async fn jobs_of(
        &self,
        tenant_id: &str,
        most: usize,
    ) -> Result<Vec<JobDefinitionState>, SchedulerError> {
        crate::domain::tenant(tenant_id)?;
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("jobs"))
            .index_name("by_tenant")
            .key_condition_expression(OF_TENANT)
            .expression_attribute_values(":tenant", s(tenant_id))
            .limit(most.clamp(1, 1_000) as i32);
        let mut keys = Vec::new();
        let mut pages = query.into_paginator().items().send();
        while keys.len() < most
            && let Some(item) = pages.next().await
        {
            let mut item = item.map_err(CloudError::from)?;
            item.retain(|name, _| name == "job_id");
            keys.push(item);
        }
        let mut jobs: Vec<JobDefinitionState> = self.read_all("jobs", keys).await?;
        jobs.sort_by(|one, other| one.job_id.cmp(&other.job_id));
        Ok(jobs)
    }

    /// The latest executions of a job, the latest first.
    pub async fn executions_of(
        &self,
        job_id: &str,
        most: usize,
    ) -> Result<Vec<ExecutionState>, SchedulerError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("executions"))
            .index_name("by_job")
            .key_condition_expression(OF_JOB)
            .expression_attribute_values(":job", s(job_id))
            .scan_index_forward(false)
            .limit(most.clamp(1, 1_000) as i32);
        let mut keys = Vec::new();
        let mut pages = query.into_paginator().items().send();
        while keys.len() < most
            && let Some(item) = pages.next().await
        {
            let item = item.map_err(CloudError::from)?;
            let id = item.get("execution_id").and_then(|id| id.as_s().ok());
            if let Some(id) = id {
                keys.push(key(id)?);
            }
        }
        let mut found: Vec<ExecutionState> = self.read_all("executions", keys).await?;
        found.sort_by(|one, other| other.execution_id.cmp(&one.execution_id));
        Ok(found)
    }

    async fn read_all<T: serde::de::DeserializeOwned>(
        &self,
        table: &str,
        keys: Vec<Item>,
    ) -> Result<Vec<T>, CloudError> {
        let mut found = Vec::new();
        for keys in keys.chunks(BATCH) {
            let batch = vec![(table, keys.to_vec())];
            let items = self.cloud.read_batch(batch, true).await?;
            for item in items.values().flatten() {
                found.push(from_item(item)?);
            }
        }
        Ok(found)
    }
}
