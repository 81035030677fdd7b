//! Create event: make its tickets, then put all of them on sale at once.
//!
//! Twenty thousand seats under one partition key take 40,000 write units, and the key takes a thousand a
//! second. So this is long work, made in passes. The event comes first, as CREATING: it claims the id. Each
//! transaction makes up to 99 tickets and moves the event's own count with them, so a pass goes on exactly
//! where the last one ended, in whatever process. The last transaction says ON_SALE. A pass takes less than
//! a key's second, and a sweeper makes the next one a second later: no pass waits at a throttled key, and an
//! event whose creator died is finished like any other. Of many sweepers one claims the pass, by moving its time.

use crate::domain::{
    Amount, BadInput, MAX_EVENT_SEATS, MAX_PRICE, MAX_SEAT_NUMBER, MAX_TEXT, Seat, TicketState,
    TicketStatus, block_id, text,
};
use crate::general_admission::{ADMISSION_SHARDS, AdmissionShard};
use crate::neighbours::{AT_ONCE, PATIENCE, patient};
use crate::seat_changes::SKEW_MS;
use crate::{BoxOffice, OfficeError};
use aws_sdk_dynamodb::operation::update_item::UpdateItemOutput;
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{all_items, from_item, n, pause, s, to_item};
use cloud::{CloudError, Guard, Guarded, Item, Millis, Transaction};
use futures::StreamExt;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

/// What a section sells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Tickets {
    /// Numbered seats, from 1.
    Seats(u32),
    /// So many admissions, none like another's place.
    Admissions(u32),
}

/// A section of a new event.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewSection {
    /// Its name.
    pub name: String,
    /// What it sells.
    pub tickets: Tickets,
    /// What one ticket costs.
    pub price: Amount,
}

/// An event as it is put on sale, and as it stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewEvent {
    /// Made by the organizer's client.
    pub event_id: String,
    /// What people read.
    pub name: String,
    /// Its sections.
    pub sections: Vec<NewSection>,
}

/// How far a new event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creation {
    /// All its tickets are there, and it is on sale.
    OnSale,
    /// So many of its tickets are there. A sweeper makes the others.
    Creating {
        /// How many are there; general admission counts its counters.
        made: u32,
        /// How many there will be.
        of: u32,
    },
}

/// An event's status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
enum EventStatus {
    /// Its tickets are being made.
    Creating,
    /// They are all there.
    OnSale,
}

/// EventState: the event and how far it is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct EventState {
    #[serde(flatten)]
    event: NewEvent,
    status: EventStatus,
    /// How many tickets are there, counted in the order in which they are made.
    tickets_made: u32,
    /// Where the sweeper finds it, while tickets are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    creating: Option<String>,
    /// When the next pass may be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    due_at: Option<Millis>,
}

impl EventState {
    fn creation(&self) -> Creation {
        match self.status {
            EventStatus::OnSale => Creation::OnSale,
            EventStatus::Creating => Creation::Creating {
                made: self.tickets_made,
                of: self.event.size(),
            },
        }
    }
}

/// One event for one id, for ever.
const EVENT_GUARD: &str = "attribute_not_exists(event_id)";

/// A pass is claimed from those who read the same state.
const CLAIM_GUARD: &str = "tickets_made = :seen AND due_at = :due";
const CLAIM_UPDATE: &str = "SET due_at = :next";

/// No other pass has made tickets since the event was read.
const PROGRESS_GUARD: &str = "tickets_made = :seen";
const PROGRESS_UPDATE: &str = "SET tickets_made = :made, due_at = :next";

/// The last tickets and the sale come together.
const ON_SALE_UPDATE: &str = "SET tickets_made = :made, #status = :on_sale REMOVE creating, due_at";

/// A ticket is made once: sold, it is not made again. A second lock, since the event's count moves with it.
const TICKET_GUARD: &str = "attribute_not_exists(block_id)";

/// The one key of the index of events whose tickets are being made. Few are at a time, and each moves once
/// for 99 tickets.
const CREATING: &str = "creating";
const BEING_CREATED: &str = "creating = :creating";

/// Whether the next pass may be made. Clocks are never the same, so a time a little further ahead than a pass is
/// waited for. One that is further ahead than clocks may be apart was written by a wrong clock, and does not count.
fn is_due(due_at: Option<Millis>, now: Millis) -> bool {
    due_at.is_none_or(|due| !(now + 1..=now + PASS_MS + SKEW_MS).contains(&due))
}

/// What one transaction takes beside the event.
const BATCH: u32 = 99;

/// How many tickets of one section a pass makes: 792 of the 1,000 write units that its key takes in a second.
const OF_A_SECTION: u32 = 4 * BATCH;

/// How many transactions a pass makes: within what a request may take.
const BATCHES: usize = 16;

/// How long after a pass the next one may be made.
pub const PASS_MS: Millis = 1_000;

/// How often a conflict is tried again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Announces an event and makes its first tickets; a small one is on sale after that. The same call again
    /// says how far it is, and makes more when the time for that has come.
    pub async fn create_event(&self, event: &NewEvent) -> Result<Creation, OfficeError> {
        event.validate()?;
        let now = self.now();
        let state = EventState {
            event: event.clone(),
            status: EventStatus::Creating,
            tickets_made: 0,
            creating: Some(CREATING.to_owned()),
            // The first pass is this call's.
            due_at: Some(now + PASS_MS),
        };
        let item = to_item(&state)?;
        let mut written = None;
        for attempt in 0..ATTEMPTS {
            let put = self
                .dynamodb()
                .put_item()
                .table_name(self.table("events"))
                .set_item(Some(item.clone()))
                .condition_expression(EVENT_GUARD)
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            match put.send().await.guarded() {
                // Sent again while a pass is under way.
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                put => {
                    written = Some(put?);
                    break;
                }
            }
        }
        let there: EventState = match written.ok_or(OfficeError::Contended)? {
            Guard::Passed(_) => return self.make_tickets(state).await,
            Guard::Failed(old) => from_item(&old.unwrap_or_default())?,
        };
        if there.event != *event {
            return Err(OfficeError::IdTaken(event.event_id.clone()));
        }
        self.next_pass(there, now).await
    }

    /// Makes more tickets of an event, if it is time.
    pub async fn go_on_creating(&self, event_id: &str) -> Result<Creation, OfficeError> {
        let now = self.now();
        let state = self.event_state(event_id).await?;
        self.next_pass(state, now).await
    }

    /// The next pass, if it is due and no other server makes it.
    async fn next_pass(&self, state: EventState, now: Millis) -> Result<Creation, OfficeError> {
        if state.status == EventStatus::OnSale || !is_due(state.due_at, now) {
            return Ok(self.so_far(&state));
        }
        match self.claim_pass(&state, now).await? {
            Guard::Passed(_) => self.make_tickets(state).await,
            Guard::Failed(None) => Ok(state.creation()),
            Guard::Failed(Some(there)) => Ok(self.so_far(&from_item(&there)?)),
        }
    }

    /// Moves the time of the next pass. Of all who read the same time one does, and makes this pass; if it dies, the
    /// next pass comes in its time. Without an answer the pass is another's, too.
    async fn claim_pass(
        &self,
        state: &EventState,
        now: Millis,
    ) -> Result<Guard<UpdateItemOutput>, CloudError> {
        let claim = self
            .dynamodb()
            .update_item()
            .table_name(self.table("events"))
            .key("event_id", s(&state.event.event_id))
            .update_expression(CLAIM_UPDATE)
            .condition_expression(CLAIM_GUARD)
            .expression_attribute_values(":seen", n(state.tickets_made))
            .expression_attribute_values(":due", n(state.due_at.unwrap_or_default()))
            .expression_attribute_values(":next", n(now + PASS_MS))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        match claim.send().await.guarded() {
            // A pass is under way, or the key has had enough.
            Err(CloudError::Conflict(_) | CloudError::Throttled(_)) => Ok(Guard::Failed(None)),
            claimed => claimed,
        }
    }

    /// One pass: as many tickets as a second allows, from where the last pass ended.
    async fn make_tickets(&self, mut state: EventState) -> Result<Creation, OfficeError> {
        let order = state.event.order();
        let mut of_section = HashMap::new();
        let mut attempt = 0;
        for _ in 0..BATCHES {
            if state.status == EventStatus::OnSale {
                break;
            }
            let from = state.tickets_made as usize;
            let batch: Vec<_> = order.iter().skip(from).take(BATCH as usize).collect();
            for (section, _) in &batch {
                *of_section.entry(*section).or_insert(0) += 1;
            }
            if of_section.values().any(|count| *count > OF_A_SECTION) {
                break;
            }
            let made = state.tickets_made + batch.len() as u32;
            let items = self.batch(&state, &batch, made, order.len() as u32)?;
            match self.cloud.transact(&["event", "ticket"], items).await {
                Ok(Transaction::Committed(_)) => {
                    state.tickets_made = made;
                    if made as usize == order.len() {
                        state.status = EventStatus::OnSale;
                    }
                }
                // Another pass is under way, or this is what an earlier sending of this one wrote.
                Ok(Transaction::Cancelled(_)) => {
                    state = self.event_state(&state.event.event_id).await?;
                    break;
                }
                Err(CloudError::Conflict(_)) if attempt < ATTEMPTS => {
                    pause(attempt).await;
                    attempt += 1;
                    for (section, _) in &batch {
                        *of_section.entry(*section).or_insert(0) -= 1;
                    }
                    state = self.event_state(&state.event.event_id).await?;
                    // Another pass is under way.
                    if state.tickets_made as usize != from {
                        break;
                    }
                }
                // The key has had enough for now: the next pass goes on here.
                Err(CloudError::Throttled(_) | CloudError::Conflict(_)) => break,
                Err(fault) => return Err(fault.into()),
            }
        }
        Ok(self.so_far(&state))
    }

    /// How far it is. On sale it never changes again.
    fn so_far(&self, state: &EventState) -> Creation {
        let creation = state.creation();
        if creation == Creation::OnSale {
            self.events.keep(&state.event);
        }
        creation
    }

    /// The next tickets and the event's count of them, in one transaction.
    fn batch(
        &self,
        state: &EventState,
        batch: &[&(usize, u32)],
        made: u32,
        of: u32,
    ) -> Result<Vec<TransactWriteItem>, CloudError> {
        let update = Update::builder()
            .table_name(self.table("events"))
            .key("event_id", s(&state.event.event_id))
            .condition_expression(PROGRESS_GUARD)
            .expression_attribute_values(":seen", n(state.tickets_made))
            .expression_attribute_values(":made", n(made));
        let update = if made == of {
            update
                .update_expression(ON_SALE_UPDATE)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":on_sale", s("ON_SALE"))
        } else {
            update
                .update_expression(PROGRESS_UPDATE)
                .expression_attribute_values(":next", n(self.now() + PASS_MS))
        };
        let update = update.build().map_err(CloudError::bug)?;
        let mut items = vec![TransactWriteItem::builder().update(update).build()];
        for (section, number) in batch {
            let put = Put::builder()
                .table_name(self.table("tickets"))
                .set_item(Some(state.event.ticket(*section, *number)?))
                .condition_expression(TICKET_GUARD);
            let put = put.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().put(put).build());
        }
        Ok(items)
    }

    /// The sweeper of what is being created: one more pass for each event whose time has come. Says what became
    /// of each; one that hangs or fails keeps no other.
    pub async fn create_due(
        &self,
    ) -> Result<Vec<(String, Result<Creation, OfficeError>)>, CloudError> {
        let query = self
            .dynamodb()
            .query()
            .table_name(self.table("events"))
            .index_name("being_created")
            .key_condition_expression(BEING_CREATED)
            .expression_attribute_values(":creating", s(CREATING));
        let found = patient(PATIENCE, async { all_items(query).await }).await?;
        let now = self.now();
        let due = |item: &&Item| {
            let due_at = item
                .get("due_at")
                .and_then(|it| it.as_n().ok()?.parse().ok());
            is_due(due_at, now)
        };
        let id = |item: &Item| item.get("event_id")?.as_s().ok().cloned();
        let ids: Vec<String> = found.iter().filter(due).filter_map(id).collect();
        let passes = ids.into_iter().map(|event_id| async move {
            let pass = patient(PATIENCE, self.go_on_creating(&event_id)).await;
            (event_id, pass)
        });
        let passes = futures::stream::iter(passes).buffer_unordered(AT_ONCE);
        Ok(passes.collect().await)
    }

    /// A section of an event, which must be on sale.
    pub async fn section(&self, event_id: &str, name: &str) -> Result<NewSection, OfficeError> {
        let event = self.event(event_id).await?;
        let found = event.sections.into_iter().find(|known| known.name == name);
        found.ok_or_else(|| OfficeError::UnknownSection(name.chars().take(MAX_TEXT).collect()))
    }

    /// The event, which must be on sale.
    pub async fn event(&self, event_id: &str) -> Result<NewEvent, OfficeError> {
        match self.event_so_far(event_id).await? {
            (event, Creation::OnSale) => Ok(event),
            _ => Err(OfficeError::NotOnSale(event_id.to_owned())),
        }
    }

    /// The event and how far it is. On sale it is read once.
    pub async fn event_so_far(&self, event_id: &str) -> Result<(NewEvent, Creation), OfficeError> {
        if let Some(event) = self.events.get(event_id) {
            return Ok((event, Creation::OnSale));
        }
        let state = self.event_state(event_id).await?;
        let creation = self.so_far(&state);
        Ok((state.event, creation))
    }

    /// The event as it is in the table. Consistent: an event that was announced is denied to no client.
    async fn event_state(&self, event_id: &str) -> Result<EventState, OfficeError> {
        let unknown = || OfficeError::UnknownEvent(event_id.chars().take(MAX_TEXT).collect());
        text("event_id", event_id).map_err(|_| unknown())?;
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("events"))
            .key("event_id", s(event_id))
            .consistent_read(true)
            .send()
            .await
            .map_err(CloudError::from)?;
        Ok(from_item(&found.item.ok_or_else(unknown)?)?)
    }
}

/// The events that a process has seen on sale. What never changes never goes stale.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventCache(Arc<Mutex<HashMap<String, NewEvent>>>);

impl EventCache {
    /// How many are kept. Beyond that it begins anew.
    const MOST: usize = 1_000;

    fn get(&self, event_id: &str) -> Option<NewEvent> {
        self.0.lock().ok()?.get(event_id).cloned()
    }

    fn keep(&self, event: &NewEvent) {
        if let Ok(mut events) = self.0.lock() {
            if events.len() >= Self::MOST {
                events.clear();
            }
            events.insert(event.event_id.clone(), event.clone());
        }
    }
}

impl NewEvent {
    fn validate(&self) -> Result<(), BadInput> {
        text("event_id", &self.event_id)?;
        text("the name", &self.name)?;
        if !(1..=MAX_TEXT).contains(&self.sections.len()) {
            return Err(BadInput::Sections(self.sections.len()));
        }
        let seats = |section: &NewSection| match section.tickets {
            Tickets::Seats(seats) => u64::from(seats),
            Tickets::Admissions(_) => 0,
        };
        let seats = self.sections.iter().map(seats).sum();
        if seats > u64::from(MAX_EVENT_SEATS) {
            return Err(BadInput::TooManyEventSeats(seats));
        }
        let mut names = BTreeSet::new();
        for section in &self.sections {
            text("a section", &section.name)?;
            if !names.insert(&section.name) {
                return Err(BadInput::SectionTwice(section.name.clone()));
            }
            if !(0..=MAX_PRICE).contains(&section.price) {
                return Err(BadInput::Price(section.price));
            }
            let (Tickets::Seats(size) | Tickets::Admissions(size)) = section.tickets;
            if !(1..=MAX_SEAT_NUMBER).contains(&size) {
                return Err(BadInput::Size(size));
            }
        }
        Ok(())
    }

    /// How many items its tickets are: a seat each, and the counters of general admission.
    fn size(&self) -> u32 {
        self.sections.iter().map(NewSection::size).sum()
    }

    /// Its tickets in the order in which they are made, as the place of the section and a number from 1. Each
    /// section has its turn, so that many partition keys take their part of the writes.
    fn order(&self) -> Vec<(usize, u32)> {
        let sections = self.sections.iter().enumerate();
        let tickets = sections.flat_map(|(at, section)| (1..=section.size()).map(move |n| (at, n)));
        let mut order: Vec<_> = tickets.collect();
        order.sort_by_key(|(section, number)| ((number - 1) / OF_A_SECTION, *section, *number));
        order
    }

    /// One of its tickets as an item.
    fn ticket(&self, section: usize, number: u32) -> Result<Item, CloudError> {
        let section = &self.sections[section];
        let block_id = block_id(&self.event_id, &section.name);
        match section.tickets {
            Tickets::Seats(_) => {
                let seat = Seat {
                    section: section.name.clone(),
                    number,
                };
                to_item(&TicketState {
                    block_id,
                    seat: seat.key(),
                    price: section.price,
                    status: TicketStatus::Available,
                    fence: 0,
                    booking_id: None,
                    hold_expires_at: None,
                    changed_at: None,
                })
            }
            Tickets::Admissions(capacity) => {
                let mut shards = AdmissionShard::split(&block_id, capacity, section.price);
                let shard = shards.nth(number as usize - 1);
                to_item(&shard.ok_or_else(|| CloudError::bug("there is no such counter"))?)
            }
        }
    }
}

impl NewSection {
    /// How many items its tickets are.
    fn size(&self) -> u32 {
        match self.tickets {
            Tickets::Seats(seats) => seats,
            Tickets::Admissions(_) => ADMISSION_SHARDS,
        }
    }
}
