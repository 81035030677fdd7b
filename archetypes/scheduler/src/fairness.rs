//! Fairness: one tenant's flood does not make the others wait. Beyond the documents.
//!
//! A queue has one order, and whatever is in it is ahead of whoever comes next. So the queue is
//! kept short, and the backlog waits in DynamoDB, where it can be chosen from: whoever dispatches puts
//! only as much into the queue as there is [`room`](Scheduler::room), and a scan takes it from the
//! tenants in turn, the one who was served last at the end. Each process remembers that for itself, in
//! memory: between tenants nothing is counted in a table, so there is no counter to be wrong after a crash.

use crate::Scheduler;
use crate::items::is_due;
use cloud::{CloudError, Millis};
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::sync::{MutexGuard, PoisonError};

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

/// Which tenant was served last, of what is due and of what is only near.
#[derive(Debug, Clone, Default)]
pub struct Turns {
    due: Option<String>,
    near: Option<String>,
}

impl Turns {
    /// This tenant had a place.
    pub fn served(&mut self, near: bool, tenant_id: &str) {
        let last = if near { &mut self.near } else { &mut self.due };
        *last = Some(tenant_id.to_owned());
    }
}

/// What is due before what is only near; within both, the first of each tenant, then the second of each, and so on.
/// The tenants stand in a circle, and each turn begins after the one who was served last: were it with whose is the
/// oldest, a long backlog would have each single place that becomes free.
pub fn fair_order(mut found: Vec<Candidate>, now: Millis, turns: &Turns) -> Vec<Candidate> {
    found.sort_by_key(|candidate| candidate.due_at);
    let mut seen: HashMap<(bool, String), usize> = HashMap::new();
    let mut ranked: Vec<_> = found
        .into_iter()
        .map(|candidate| {
            let near = candidate.due_at > now;
            let tenant = candidate.tenant_id.clone();
            let turn = seen.entry((near, tenant.clone())).or_default();
            *turn += 1;
            let last = if near { &turns.near } else { &turns.due };
            let had_it = last.as_ref().is_some_and(|last| tenant <= *last);
            ((near, *turn, had_it, tenant), candidate)
        })
        .collect();
    ranked.sort_by(|(rank, _), (other, _)| rank.cmp(other));
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

/// What is to be dispatched, in its order, and how much of it there is room for: one place for each, due or near.
pub(crate) struct Line {
    room: Room,
    taken: usize,
    due: VecDeque<String>,
    near: VecDeque<String>,
}

impl Line {
    pub(crate) fn new(room: Room) -> Self {
        Self {
            room,
            taken: 0,
            due: VecDeque::new(),
            near: VecDeque::new(),
        }
    }

    /// Comes behind everybody who is there; what is near, behind what is due.
    pub(crate) fn push(&mut self, execution_id: String, now: Millis) {
        match is_due(&execution_id, now) {
            true => self.due.push_back(execution_id),
            false => self.near.push_back(execution_id),
        }
    }

    /// The first in the line takes a place, if there is one.
    pub(crate) fn next(&mut self) -> Option<String> {
        let (line, room) = match self.due.is_empty() {
            false => (&mut self.due, self.room.due),
            true => (&mut self.near, self.room.near),
        };
        if self.taken >= room {
            return None;
        }
        let next = line.pop_front()?;
        self.taken += 1;
        Some(next)
    }

    /// Nothing was sent: the place is the next one's.
    pub(crate) fn give_back(&mut self) {
        self.taken -= 1;
    }
}

impl Scheduler {
    /// Whose turn it was. This process remembers it from scan to scan, and no other knows it.
    pub(crate) fn turns(&self) -> MutexGuard<'_, Turns> {
        self.turns.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How much more the queue takes.
    pub async fn room(&self) -> Result<Room, CloudError> {
        let (waiting, all) = self.messages().await?;
        Ok(Room {
            due: self.queue_depth.saturating_sub(waiting),
            near: self.queue_depth.saturating_sub(all),
        })
    }
}
