//! Scan due work: find what will be due soon through the sparse index, and dispatch it.
//!
//! The index holds only what has not ended, in two lanes for each shard: what is still to be
//! dispatched (`start`), read up to the lookahead, and what was dispatched (`watch`, see
//! [`sweep_stale`](crate::sweep_stale)), read up to now. There is no window that a scan could have
//! passed: it always begins with the oldest. Any number of scanners may run at once; the guard of
//! [`enqueue`](crate::enqueue) lets one of them through.

use crate::enqueue::Enqueued;
use crate::fairness::{Candidate, Room, fair_order};
use crate::items::parts_of;
use crate::{Scheduler, SchedulerError};
use cloud::item::{n, s};
use cloud::{CloudError, Millis};
use std::collections::VecDeque;

const DUE: &str = "due_shard = :lane AND due_at <= :until";

/// How many rows of one shard a scan reads at most. A flood beyond it waits for the next scan.
pub const DEPTH: usize = 1_000;

/// What a scan did about each execution that it looked at.
pub type Scanned<T> = Vec<(String, Result<T, SchedulerError>)>;

impl Scheduler {
    /// Dispatches what is due in these shards within the lookahead, as much of it as there is room
    /// for, fairly between tenants. One that cannot be dispatched does not stop the others.
    pub async fn scan_due(
        &self,
        shards: impl IntoIterator<Item = u32>,
        room: impl Into<Room>,
    ) -> Result<Scanned<Enqueued>, CloudError> {
        let mut room = room.into();
        let now = self.now();
        let until = now + self.lookahead_ms;
        let mut found = Vec::new();
        for shard in shards {
            found.extend(self.due(&format!("start-{shard}"), until).await?);
        }
        let mut line: VecDeque<String> = fair_order(found, now)
            .into_iter()
            .map(|candidate| candidate.execution_id)
            .collect();
        let mut done = Vec::new();
        while let Some(execution_id) = line.pop_front() {
            let near = parts_of(&execution_id).is_some_and(|(time, _)| time > now);
            if !room.take(near) {
                continue;
            }
            let outcome = self.enqueue(&execution_id).await;
            // What was materialized inside the lookahead comes behind everybody who was there.
            if let Ok(Enqueued::Sent { next } | Enqueued::Skipped { next }) = &outcome {
                line.extend(next.clone());
            }
            done.push((execution_id, outcome));
        }
        Ok(done)
    }

    /// What the index says is due in a lane, the oldest first.
    pub async fn due(&self, lane: &str, until: Millis) -> Result<Vec<Candidate>, CloudError> {
        let mut pages = self
            .dynamodb()
            .query()
            .table_name(self.table("executions"))
            .index_name("due")
            .key_condition_expression(DUE)
            .expression_attribute_values(":lane", s(lane))
            .expression_attribute_values(":until", n(until))
            .limit(DEPTH as i32)
            .into_paginator()
            .send();
        let mut found = Vec::new();
        while found.len() < DEPTH
            && let Some(page) = pages.next().await
        {
            let page = page.map_err(CloudError::from)?;
            for item in page.items() {
                found.push(cloud::item::from_item(item)?);
            }
        }
        Ok(found)
    }
}
