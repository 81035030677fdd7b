//! General admission: a number of tickets that nobody can tell apart, without a hot item.
//!
//! One counter would take a thousand units a second for the whole section, and every hold would
//! conflict with every other. So the count is split over shards, each under a partition key of its
//! own. A booking begins at the shard its id points to, takes all it needs there if it can, and
//! gathers from several if it must. The counter has no names on it: what a hold took comes back
//! with the end of its booking, so here a sweeper is waited for.

use crate::domain::{
    Amount, BadInput, BookingState, Line, Rejection, Rules, block_id, text, within_limit,
};
use crate::items::ticket_key;
use crate::{BoxOffice, OfficeError, Reserved, Seat, Tickets};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, shard_of};
use cloud::{CloudError, Item, Transaction};
use serde::{Deserialize, Serialize};

/// How many counters a section has: ten partition keys take ten thousand units a second.
pub const ADMISSION_SHARDS: u32 = 10;

/// A part of a section's admissions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmissionShard {
    /// Event, section and shard: a partition key for each.
    pub block_id: String,
    /// `ga-3`
    pub seat: String,
    /// What one costs.
    pub price: Amount,
    /// How many are left.
    pub remaining: i64,
}

impl AdmissionShard {
    /// A capacity, split as evenly as it goes.
    pub(crate) fn split(
        block_id: &str,
        capacity: u32,
        price: Amount,
    ) -> impl Iterator<Item = Self> + use<> {
        let block_id = block_id.to_owned();
        (0..ADMISSION_SHARDS).map(move |shard| Self {
            block_id: format!("{block_id}#{shard}"),
            seat: format!("ga-{shard}"),
            price,
            remaining: i64::from(capacity / ADMISSION_SHARDS)
                + i64::from(shard < capacity % ADMISSION_SHARDS),
        })
    }
}

/// What a buyer asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewAdmissions {
    /// Made by the buyer's client: the identity of every retry.
    pub booking_id: String,
    /// For which event.
    pub event_id: String,
    /// Who.
    pub user_id: String,
    /// Which section.
    pub section: String,
    /// How many.
    pub count: u32,
}

/// So many are there. What is left is not what was read, and need not be.
const SHARD_GUARD: &str = "remaining >= :count";

const SHARD_UPDATE: &str = "SET remaining = remaining - :count";

/// How often the shards are read again before the buyer is told to come back.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Holds so many admissions. Sent again with the same `booking_id`, it says where that booking
    /// stands.
    pub async fn reserve_admissions(&self, new: &NewAdmissions) -> Result<Reserved, OfficeError> {
        new.validate(&self.rules)?;
        let section = self.section(&new.event_id, &new.section).await?;
        if !matches!(section.tickets, Tickets::Admissions(_)) {
            return Err(OfficeError::NotGeneral(section.name));
        }
        // At first at half the price: the guard decides about a yes. A no is not guarded by anything,
        // so it is said only after a consistent read.
        let mut consistent = false;
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let shards = self
                .admission_shards(&new.event_id, &new.section, consistent)
                .await?;
            let Some(lines) = gather(&shards, &new.booking_id, new.count) else {
                if !consistent {
                    consistent = true;
                    continue;
                }
                // This booking itself may be what took the last ones.
                if let Some(there) = self.booking(&new.booking_id).await? {
                    return sent_before(new, there);
                }
                let left = shards.iter().map(|shard| shard.remaining).sum();
                return Ok(Reserved::Rejected(Rejection::SoldOut { left }));
            };
            let booking =
                self.new_booking([&new.booking_id, &new.event_id, &new.user_id], lines, now);
            let (items, names) = self.hold_admissions(&booking)?;
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => return Ok(Reserved::Held(booking)),
                Ok(Transaction::Cancelled(cancelled)) => {
                    if let Some(old) = cancelled.failed("booking") {
                        return sent_before(new, from_item(old.unwrap_or(&Item::new()))?);
                    }
                    // Only what came back whole can be a no: what was in conflict may be this very
                    // booking, made by a twin of this call.
                    if let (true, Some(old)) = (cancelled.is_whole(), cancelled.failed("allowance"))
                    {
                        let allowance = crate::allowance::Allowance::of(old)?;
                        if !self.make_room(&allowance, &new.booking_id).await? {
                            return Ok(Reserved::Rejected(self.over_limit(&allowance)));
                        }
                    } else {
                        // Somebody else was faster at this counter.
                        consistent = true;
                        pause(attempt).await;
                    }
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => {
                    return match self.booking(&new.booking_id).await? {
                        Some(there) => sent_before(new, there),
                        None => Err(fault.into()),
                    };
                }
            }
        }
        Err(OfficeError::Contended)
    }

    /// How many admissions of a section are left. As old as the read, as any availability.
    pub async fn admissions_left(&self, event_id: &str, section: &str) -> Result<i64, OfficeError> {
        self.event(event_id).await?;
        let shards = self.admission_shards(event_id, section, false).await?;
        Ok(shards.iter().map(|shard| shard.remaining).sum())
    }

    /// The counters of a section, in one call.
    pub async fn admission_shards(
        &self,
        event_id: &str,
        section: &str,
        consistent: bool,
    ) -> Result<Vec<AdmissionShard>, CloudError> {
        let block = block_id(event_id, section);
        let keys = AdmissionShard::split(&block, 0, 0)
            .map(|shard| ticket_key(&shard.block_id, &shard.seat))
            .collect();
        let found = self
            .cloud
            .read_batch(vec![("tickets", keys)], consistent)
            .await?;
        let shards = found.values().flatten().map(from_item);
        let mut shards = shards.collect::<Result<Vec<AdmissionShard>, _>>()?;
        // The batch comes in any order; the round begins at the same place for all.
        shards.sort_by(|one, other| one.seat.cmp(&other.seat));
        Ok(shards)
    }

    fn hold_admissions(
        &self,
        booking: &BookingState,
    ) -> Result<(Vec<TransactWriteItem>, Vec<&'static str>), CloudError> {
        let mut items = vec![self.put_booking(booking)?, self.take_allowance(booking)?];
        let mut names = vec!["booking", "allowance"];
        for line in &booking.lines {
            let update = Update::builder()
                .table_name(self.table("tickets"))
                .set_key(Some(ticket_key(&line.block_id, &line.seat)))
                .update_expression(SHARD_UPDATE)
                .condition_expression(SHARD_GUARD)
                .expression_attribute_values(":count", n(line.count));
            let update = update.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
            names.push("shard");
        }
        Ok((items, names))
    }
}

/// Which shards give how many: the first that has enough, beginning at the booking's own; if none
/// has, from one after the other.
fn gather(shards: &[AdmissionShard], booking_id: &str, count: u32) -> Option<Vec<Line>> {
    // A read that is behind may have found none yet.
    let first = shard_of(booking_id, (shards.len() as u32).max(1)) as usize;
    let round = || shards.iter().cycle().skip(first).take(shards.len());
    let line = |shard: &AdmissionShard, count: u32| Line {
        block_id: shard.block_id.clone(),
        seat: shard.seat.clone(),
        fence: None,
        count,
        price: shard.price * Amount::from(count),
    };
    if let Some(shard) = round().find(|shard| shard.remaining >= i64::from(count)) {
        return Some(vec![line(shard, count)]);
    }
    let mut missing = count;
    let mut lines = Vec::new();
    for shard in round().filter(|shard| shard.remaining > 0) {
        let take = missing.min(u32::try_from(shard.remaining).unwrap_or(u32::MAX));
        lines.push(line(shard, take));
        missing -= take;
        if missing == 0 {
            return Some(lines);
        }
    }
    None
}

impl NewAdmissions {
    fn validate(&self, rules: &Rules) -> Result<(), BadInput> {
        text("booking_id", &self.booking_id)?;
        text("event_id", &self.event_id)?;
        text("user_id", &self.user_id)?;
        text("a section", &self.section)?;
        if self.count == 0 {
            return Err(BadInput::NoSeats);
        }
        within_limit(self.count, rules)
    }
}

fn sent_before(new: &NewAdmissions, there: BookingState) -> Result<Reserved, OfficeError> {
    let of_section =
        |line: &Line| line.fence.is_none() && Seat::of(&line.block_id, "").section == new.section;
    let same = (&there.user_id, &there.event_id) == (&new.user_id, &new.event_id)
        && there.tickets() == new.count
        && there.lines.iter().all(of_section);
    if same {
        Ok(Reserved::Before(there))
    } else {
        Err(OfficeError::IdTaken(new.booking_id.clone()))
    }
}
