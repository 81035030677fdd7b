//! Fairness: one tenant's flood does not make the others wait. Beyond the documents.
//!
//! A queue has one order, and whatever is in it is ahead of whoever comes next. So the queue is
//! kept short, and the backlog waits in DynamoDB, where it can be chosen from: a scan puts only as
//! much into the queue as there is [`room`](Scheduler::room), and takes it from the tenants in
//! turn. Between tenants nobody counts anything, so there is no counter to be wrong after a crash.

use crate::Scheduler;
use cloud::{CloudError, Millis};
use serde::Deserialize;
use std::collections::HashMap;

/// A row of the due index.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Candidate {
    /// Which execution.
    pub execution_id: String,
    /// Whose.
    pub tenant_id: String,
    /// When somebody must look at it.
    pub due_at: Millis,
}

/// What is due before what is only near; within both, the first of each tenant, then the second of
/// each, and so on; the earlier one first.
pub fn fair_order(mut found: Vec<Candidate>, now: Millis) -> Vec<Candidate> {
    found.sort_by_key(|candidate| candidate.due_at);
    let mut seen: HashMap<(bool, String), usize> = HashMap::new();
    let mut ranked: Vec<_> = found
        .into_iter()
        .map(|candidate| {
            let near = candidate.due_at > now;
            let turn = seen.entry((near, candidate.tenant_id.clone())).or_default();
            *turn += 1;
            ((near, *turn, candidate.due_at), candidate)
        })
        .collect();
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, candidate)| candidate).collect()
}

impl Scheduler {
    /// How much more the queue takes before it holds `depth` messages.
    pub async fn room(&self, depth: usize) -> Result<usize, CloudError> {
        Ok(depth.saturating_sub(self.queue_depth().await?))
    }
}
