//! Fairness: one tenant's flood does not make the others wait. Beyond the documents.
//!
//! A queue has one order, and whatever is in it is ahead of whoever comes next. So the queue is
//! kept short, and the backlog waits in DynamoDB, where it can be chosen from: whoever dispatches puts
//! only as much into the queue as there is [`room`](Scheduler::room), and a scan takes it from the
//! tenants in turn. Between tenants nobody counts anything, so there is no counter to be wrong after
//! a crash.

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

/// How much may be put into the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Of what is due. Messages that nobody can receive yet, be it a thousand retries that wait for
    /// their time, are in nobody's way.
    pub due: usize,
    /// Of what is only near: behind everything that is there, received or not.
    pub near: usize,
}

impl From<usize> for Room {
    /// As much of both.
    fn from(room: usize) -> Self {
        Self {
            due: room,
            near: room,
        }
    }
}

impl Room {
    /// Takes a place, if there is one.
    pub(crate) fn take(&mut self, near: bool) -> bool {
        let room = if near { &mut self.near } else { &mut self.due };
        match room.checked_sub(1) {
            Some(left) => {
                *room = left;
                true
            }
            None => false,
        }
    }
}

impl Scheduler {
    /// How much more the queue takes.
    pub async fn room(&self) -> Result<Room, CloudError> {
        let (waiting, all) = self.messages().await?;
        Ok(Room {
            due: self.queue_depth.saturating_sub(waiting),
            near: self.queue_depth.saturating_sub(all),
        })
    }
}
