//! Create event: put its tickets on sale.
//!
//! The event first: it claims the id. Then the tickets, a hundred to a transaction, each only if it
//! is not there. Whoever dies on the way sends the same again, and no ticket that was sold meanwhile
//! goes back on sale.

use crate::domain::{
    Amount, BadInput, MAX_EVENT_SEATS, MAX_PRICE, MAX_SEAT_NUMBER, MAX_TEXT, Seat, TicketState,
    TicketStatus, block_id, text,
};
use crate::general_admission::AdmissionShard;
use crate::{BoxOffice, OfficeError};
use aws_sdk_dynamodb::types::{Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem};
use cloud::item::{from_item, pause, s, to_item};
use cloud::{CloudError, Guard, Guarded, Item};
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

/// One event for one id, for ever.
const EVENT_GUARD: &str = "attribute_not_exists(event_id)";

/// A ticket is made once: sold, it is not made again.
const TICKET_GUARD: &str = "attribute_not_exists(block_id)";

/// What one transaction takes.
const BATCH: usize = 100;

/// How often a conflict is tried again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Puts an event on sale. The same call again goes on where the first one stopped.
    pub async fn create_event(&self, event: &NewEvent) -> Result<(), OfficeError> {
        event.validate()?;
        let written = self
            .dynamodb()
            .put_item()
            .table_name(self.table("events"))
            .set_item(Some(to_item(event)?))
            .condition_expression(EVENT_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        if let Guard::Failed(old) = written {
            let there: NewEvent = from_item(&old.unwrap_or_default())?;
            if there != *event {
                return Err(OfficeError::IdTaken(event.event_id.clone()));
            }
        }
        for batch in event.items()?.chunks(BATCH) {
            self.create_tickets(batch).await?;
        }
        self.events.keep(event);
        Ok(())
    }

    /// All of these, or none because they are there.
    async fn create_tickets(&self, batch: &[Item]) -> Result<(), OfficeError> {
        for attempt in 0..ATTEMPTS {
            let put = |item: &Item| {
                let put = Put::builder()
                    .table_name(self.table("tickets"))
                    .set_item(Some(item.clone()))
                    .condition_expression(TICKET_GUARD);
                let put = put.build().map_err(CloudError::bug)?;
                Ok::<_, CloudError>(TransactWriteItem::builder().put(put).build())
            };
            let items = batch.iter().map(put).collect::<Result<_, _>>()?;
            let names = vec!["ticket"; batch.len()];
            match self.cloud.transact(&names, items).await {
                Ok(_) => return Ok(()),
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(OfficeError::Contended)
    }

    /// A section of an event, which must be there.
    pub async fn section(&self, event_id: &str, name: &str) -> Result<NewSection, OfficeError> {
        let event = self.event(event_id).await?;
        let found = event.sections.into_iter().find(|known| known.name == name);
        found.ok_or_else(|| OfficeError::UnknownSection(name.chars().take(MAX_TEXT).collect()))
    }

    /// The event, which must be there.
    pub async fn event(&self, event_id: &str) -> Result<NewEvent, OfficeError> {
        let unknown = || OfficeError::UnknownEvent(event_id.chars().take(MAX_TEXT).collect());
        text("event_id", event_id).map_err(|_| unknown())?;
        if let Some(event) = self.events.get(event_id) {
            return Ok(event);
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("events"))
            .key("event_id", s(event_id))
            .send()
            .await
            .map_err(CloudError::from)?;
        let event = from_item(&found.item.ok_or_else(unknown)?)?;
        self.events.keep(&event);
        Ok(event)
    }
}

/// The events that a process has seen. What never changes never goes stale.
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

    /// Its tickets as items.
    fn items(&self) -> Result<Vec<Item>, CloudError> {
        let mut items = Vec::new();
        for section in &self.sections {
            let block_id = block_id(&self.event_id, &section.name);
            match section.tickets {
                Tickets::Seats(seats) => {
                    for number in 1..=seats {
                        let seat = Seat {
                            section: section.name.clone(),
                            number,
                        };
                        items.push(to_item(&TicketState {
                            block_id: block_id.clone(),
                            seat: seat.key(),
                            price: section.price,
                            status: TicketStatus::Available,
                            fence: 0,
                            booking_id: None,
                            hold_expires_at: None,
                            changed_at: None,
                        })?);
                    }
                }
                Tickets::Admissions(capacity) => {
                    for shard in AdmissionShard::split(&block_id, capacity, section.price) {
                        items.push(to_item(&shard)?);
                    }
                }
            }
        }
        Ok(items)
    }
}
