//! Scan due work: find what will be due soon through the sparse index, and dispatch it.
//!
//! The index holds only what has not ended, in two lanes for each shard: what is still to be
//! dispatched (`start`), read up to the lookahead, and what was dispatched (`watch`, see
//! [`sweep_stale`](crate::sweep_stale)), read up to now. There is no window that a scan could have
//! passed: it always begins with the oldest. Any number of scanners may run at once; the guard of
//! [`enqueue`](crate::enqueue) lets one of them through.

use crate::domain::tenant_of;
use crate::enqueue::Enqueued;
use crate::fairness::{Candidate, Line, Room, fair_order};
use crate::items::{is_due, parts_of};
use crate::{Scheduler, SchedulerError};
use cloud::item::{from_item, n, s};
use cloud::{CloudError, Item, Millis};
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use std::time::Duration;

const DUE: &str = "due_shard = :lane AND due_at <= :until";

/// How many rows of one shard a scan reads at most. A flood beyond it waits for the next scan.
pub const DEPTH: usize = 1_000;

/// How many executions are looked after at once.
const AT_ONCE: usize = 16;

/// How long one execution, or one shard of the index, may take before the scanner goes on without it.
/// Dropping a dispatch is what a crash does to it.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a scan did about each execution that it looked at, and each lane that it could not read.
pub type Scanned<T> = Vec<(String, Result<T, SchedulerError>)>;

impl Scheduler {
    /// Dispatches what is due in these shards within the lookahead, as much of it as there is room
    /// for, fairly between tenants. One that fails or hangs does not stop the others.
    pub async fn scan_due(
        &self,
        shards: impl IntoIterator<Item = u32>,
        room: impl Into<Room>,
    ) -> Scanned<Enqueued> {
        let now = self.now();
        let (found, mut done) = self.lanes("start", shards, now + self.lookahead_ms).await;
        let mut line = Line::new(room.into());
        let turns = self.turns().clone();
        for candidate in fair_order(found, now, &turns) {
            line.push(candidate.execution_id, now);
        }
        let mut going = FuturesUnordered::new();
        loop {
            while going.len() < AT_ONCE
                && let Some(execution_id) = line.next()
            {
                if let Some((time, job_id)) = parts_of(&execution_id) {
                    self.turns().served(time > now, tenant_of(job_id));
                }
                going.push(self.dispatch(execution_id));
            }
            let Some(mut dispatched) = going.next().await else {
                return done;
            };
            match dispatched.last() {
                Some((_, Ok(Enqueued::Sent { .. }) | Err(_))) | None => {}
                Some(_) => line.give_back(),
            }
            // What was materialized inside the lookahead comes behind everybody who was there.
            if let Some((_, Ok(Enqueued::Sent { next } | Enqueued::Skipped { next }))) =
                dispatched.last()
                && let Some(next) = next
            {
                line.push(next.clone(), self.now());
            }
            done.append(&mut dispatched);
        }
    }

    /// Dispatches an execution. If it is skipped for a later one that is due too, that one has its turn: at the end of
    /// a line that stays long it would be skipped for the next, and none of them would ever run.
    async fn dispatch(&self, execution_id: String) -> Scanned<Enqueued> {
        let mut done = Vec::new();
        let mut turn = Some(execution_id);
        while let Some(execution_id) = turn.take() {
            let outcome = patient(self.enqueue(&execution_id)).await;
            if let Ok(Enqueued::Skipped { next }) = &outcome {
                turn = next.clone().filter(|next| is_due(next, self.now()));
            }
            done.push((execution_id, outcome));
        }
        done
    }

    /// What the index says is due in these shards of a lane, and the shards that could not be read.
    pub(crate) async fn lanes<T>(
        &self,
        lane: &str,
        shards: impl IntoIterator<Item = u32>,
        until: Millis,
    ) -> (Vec<Candidate>, Scanned<T>) {
        let reading = shards.into_iter().map(|shard| async move {
            let lane = format!("{lane}-{shard}");
            let found = patient(self.due(&lane, until)).await;
            (lane, found)
        });
        let (mut due, mut unread) = (Vec::new(), Vec::new());
        for (lane, found) in join_all(reading).await {
            match found {
                Ok(found) => due.extend(found),
                Err(fault) => unread.push((lane, Err(fault.into()))),
            }
        }
        (due, unread)
    }

    /// Looks after many at once: one that fails or hangs does not stop the others.
    pub(crate) async fn each<T, Fut>(
        &self,
        found: Vec<Candidate>,
        look_after: impl Fn(String) -> Fut,
    ) -> Scanned<T>
    where
        Fut: Future<Output = Result<T, SchedulerError>>,
    {
        let looking = found.into_iter().map(|candidate| {
            let looking = look_after(candidate.execution_id.clone());
            async { (candidate.execution_id, patient(looking).await) }
        });
        let looking = futures::stream::iter(looking).buffer_unordered(AT_ONCE);
        looking.collect().await
    }

    /// What the index says is due in a lane, the oldest first.
    pub async fn due(&self, lane: &str, until: Millis) -> Result<Vec<Candidate>, CloudError> {
        let (mut found, mut from) = (Vec::new(), None);
        loop {
            let (mut page, next) = self.page(lane, until, from).await?;
            found.append(&mut page);
            if found.len() >= DEPTH || next.is_none() {
                return Ok(found);
            }
            from = next;
        }
    }

    /// A page of a lane, the oldest first, and where the next one begins.
    pub(crate) async fn page(
        &self,
        lane: &str,
        until: Millis,
        from: Option<Item>,
    ) -> Result<(Vec<Candidate>, Option<Item>), CloudError> {
        let page = self
            .dynamodb()
            .query()
            .table_name(self.table("executions"))
            .index_name("due")
            .key_condition_expression(DUE)
            .expression_attribute_values(":lane", s(lane))
            .expression_attribute_values(":until", n(until))
            .limit(DEPTH as i32)
            .set_exclusive_start_key(from)
            .send()
            .await
            .map_err(CloudError::from)?;
        let found: Result<Vec<_>, _> = page.items().iter().map(from_item).collect();
        Ok((found?, page.last_evaluated_key))
    }
}

/// Waits for work as long as others can wait for it.
pub(crate) async fn patient<T, E: From<CloudError>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let gone_on = |_| Err(CloudError::Unknown("no answer in time".into()).into());
    // On the heap: it is a part of many other futures, and some of those are deep.
    tokio::time::timeout(PATIENCE, Box::pin(work))
        .await
        .unwrap_or_else(gone_on)
}
