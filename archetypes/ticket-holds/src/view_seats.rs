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
        }
    }
}

const BLOCK: &str = "block_id = :block";

/// How many leases are asked for in one command.
const LEASES_AT_ONCE: usize = 1_000;

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
        let leased = self.leased(&block, &[&ticket.seat]).await;
        overlay(&mut view, leased[0]);
        Ok(view)
    }

    /// The seats of a section, all pages.
    pub async fn seat_map(
        &self,
        event_id: &str,
        section: &str,
    ) -> Result<Vec<SeatView>, OfficeError> {
        self.seated(event_id, section).await?;
        let block = block_id(event_id, section);
        let mut pages = self
            .dynamodb()
            .query()
            .table_name(self.table("tickets"))
            .key_condition_expression(BLOCK)
            .expression_attribute_values(":block", s(&block))
            .into_paginator()
            .send();
        let mut map = Vec::new();
        while let Some(page) = pages.next().await {
            let page = page.map_err(CloudError::from)?;
            let now = self.now();
            let tickets: Vec<TicketState> = page
                .items()
                .iter()
                .map(from_item)
                .collect::<Result<_, _>>()?;
            for some in tickets.chunks(LEASES_AT_ONCE) {
                let seats: Vec<_> = some.iter().map(|ticket| ticket.seat.as_str()).collect();
                let leased = self.leased(&block, &seats).await;
                for (ticket, leased) in std::iter::zip(some, leased) {
                    let mut view = SeatView::at(ticket, now);
                    overlay(&mut view, leased);
                    map.push(view);
                }
            }
        }
        Ok(map)
    }

    /// That the event has this section, and that it has seats.
    pub(crate) async fn seated(&self, event_id: &str, section: &str) -> Result<(), OfficeError> {
        let event = self.event(event_id).await?;
        let seated = |known: &crate::NewSection| {
            known.name == section && matches!(known.tickets, Tickets::Seats(_))
        };
        if event.sections.iter().any(seated) {
            return Ok(());
        }
        let section = section.chars().take(MAX_TEXT).collect();
        Err(OfficeError::UnknownSection(section))
    }
}

/// A lease says that somebody is about to write what the table does not show yet.
fn overlay(view: &mut SeatView, leased: bool) {
    if leased && view.status == TicketStatus::Available {
        view.status = TicketStatus::Held;
    }
}
