//! Read availability: one seat, or the map of a section.
//!
//! What is read is advice, as old as the read: the guard decides when somebody clicks. So the map is
//! read eventually consistent, at half the price. A hold that is over is shown as available, because
//! to a reserver it is.

use crate::domain::{Amount, MAX_TEXT, TicketState, TicketStatus, block_id};
use crate::items::ticket_key;
use crate::{BoxOffice, OfficeError, Seat, Tickets};
use cloud::item::{from_item, s};
use cloud::{CloudError, Millis};
use serde::Serialize;

/// A seat as a buyer sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeatView {
    /// `A-12`
    pub seat: String,
    /// To whoever asks now.
    pub status: TicketStatus,
    /// What it costs.
    pub price: Amount,
    /// For a held seat: when it will be free unless it is bought or extended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Millis>,
    /// When it last changed: since when it is told to those who ask for changes.
    #[serde(skip)]
    pub changed_at: Option<Millis>,
}

impl SeatView {
    pub(crate) fn at(ticket: &TicketState, now: Millis) -> Self {
        let status = ticket.status_at(now);
        Self {
            seat: ticket.name().to_string(),
            status,
            price: ticket.price,
            held_until: ticket
                .hold_expires_at
                .filter(|_| status == TicketStatus::Held),
            changed_at: ticket.changed_at,
        }
    }
}

const BLOCK: &str = "block_id = :block";

/// The seats of a section, all of them or those that changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SeatMap {
    /// When this was so: what to ask for changes since.
    pub as_of: Millis,
    /// The seats as they were then.
    pub seats: Vec<SeatView>,
}

impl BoxOffice {
    /// One seat.
    pub async fn view_seat(&self, event_id: &str, seat: &Seat) -> Result<SeatView, OfficeError> {
        let unknown = || OfficeError::UnknownSeat(seat.clone());
        let block = block_id(event_id, &seat.section);
        if block.chars().count() > 2 * MAX_TEXT + 1 {
            return Err(unknown());
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("tickets"))
            .set_key(Some(ticket_key(&block, &seat.key())))
            .send()
            .await
            .map_err(CloudError::from)?;
        let ticket: TicketState = from_item(&found.item.ok_or_else(unknown)?)?;
        let mut view = SeatView::at(&ticket, self.now());
        // A lease says that somebody is about to write what the table does not show yet.
        if view.status == TicketStatus::Available && self.is_leased(&block, &ticket.seat).await {
            view.status = TicketStatus::Held;
        }
        Ok(view)
    }

    /// The seats of a section, all pages. Without a look at leases: most of them are in the table
    /// already, and one that never gets there would leave no change behind to correct the map.
    pub async fn seat_map(&self, event_id: &str, section: &str) -> Result<SeatMap, OfficeError> {
        self.seated(event_id, section).await?;
        let as_of = self.now();
        let mut items = self
            .dynamodb()
            .query()
            .table_name(self.table("tickets"))
            .key_condition_expression(BLOCK)
            .expression_attribute_values(":block", s(block_id(event_id, section)))
            .into_paginator()
            .items()
            .send();
        let mut seats = Vec::new();
        while let Some(item) = items.next().await {
            let ticket: TicketState = from_item(&item.map_err(CloudError::from)?)?;
            seats.push(SeatView::at(&ticket, as_of));
        }
        Ok(SeatMap { as_of, seats })
    }

    /// That the event has this section, and that it has seats.
    pub(crate) async fn seated(&self, event_id: &str, section: &str) -> Result<(), OfficeError> {
        match self.section(event_id, section).await?.tickets {
            Tickets::Seats(_) => Ok(()),
            Tickets::Admissions(_) => Err(OfficeError::NoSeats(section.to_owned())),
        }
    }
}
