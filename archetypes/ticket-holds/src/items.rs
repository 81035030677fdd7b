//! Reading items as states: one, or several in one call.

use crate::domain::{BookingState, Line, MAX_TEXT, TicketState};
use crate::{BoxOffice, OfficeError};
use aws_sdk_dynamodb::types::KeysAndAttributes;
use cloud::item::{from_item, pause, s};
use cloud::{CloudError, Item};
use std::collections::HashMap;

/// The key of a ticket, or of a shard of general admissions.
pub(crate) fn ticket_key(block_id: &str, seat: &str) -> Item {
    Item::from([
        ("block_id".to_owned(), s(block_id)),
        ("seat".to_owned(), s(seat)),
    ])
}

/// The key of a booking.
pub(crate) fn booking_key(booking_id: &str) -> Item {
    Item::from([("booking_id".to_owned(), s(booking_id))])
}

/// How often keys that DynamoDB left out are asked for again.
const READ_ATTEMPTS: u32 = 10;

impl BoxOffice {
    /// The booking, if there is one. Consistent: an absent booking had not been written.
    pub async fn booking(&self, booking_id: &str) -> Result<Option<BookingState>, CloudError> {
        // No booking has such an id, and DynamoDB would call it a wrong request.
        if !(1..=MAX_TEXT).contains(&booking_id.chars().count()) {
            return Ok(None);
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table("bookings"))
            .set_key(Some(booking_key(booking_id)))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// The booking that must be there.
    pub(crate) async fn known_booking(
        &self,
        booking_id: &str,
    ) -> Result<BookingState, OfficeError> {
        let found = self.booking(booking_id).await?;
        found.ok_or_else(|| OfficeError::UnknownBooking(booking_id.to_owned()))
    }

    /// The tickets that these lines name, in their order. General admissions are left out.
    pub(crate) async fn tickets_of(
        &self,
        lines: &[Line],
    ) -> Result<Vec<Option<TicketState>>, CloudError> {
        let keys: Vec<_> = lines
            .iter()
            .filter(|line| line.fence.is_some())
            .map(|line| ticket_key(&line.block_id, &line.seat))
            .collect();
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let (_, tickets) = self.read_together(None, keys).await?;
        Ok(tickets)
    }

    /// A booking and tickets in one call, each read consistently, the tickets in the order of their
    /// keys. What is read was not all true at one moment, and a transactional read would cost twice.
    /// Whoever writes guards each item by itself; whoever refuses must bear in mind that a ticket may
    /// be younger than the booking.
    pub(crate) async fn read_together(
        &self,
        booking_id: Option<&str>,
        tickets: Vec<Item>,
    ) -> Result<(Option<BookingState>, Vec<Option<TicketState>>), CloudError> {
        let consistent = |keys: Vec<Item>| {
            KeysAndAttributes::builder()
                .set_keys(Some(keys))
                .consistent_read(true)
                .build()
                .map_err(CloudError::bug)
        };
        let wanted = tickets.clone();
        let mut ask = HashMap::from([(self.table("tickets"), consistent(tickets)?)]);
        if let Some(id) = booking_id {
            ask.insert(self.table("bookings"), consistent(vec![booking_key(id)])?);
        }
        let mut booking = None;
        let mut found: HashMap<(String, String), TicketState> = HashMap::new();
        for attempt in 0..READ_ATTEMPTS {
            let request = self.dynamodb().batch_get_item();
            let answer = request.set_request_items(Some(ask)).send().await?;
            for (table, items) in answer.responses.unwrap_or_default() {
                for item in items {
                    if table == self.table("bookings") {
                        booking = Some(from_item(&item)?);
                    } else {
                        let ticket: TicketState = from_item(&item)?;
                        found.insert((ticket.block_id.clone(), ticket.seat.clone()), ticket);
                    }
                }
            }
            ask = answer.unprocessed_keys.unwrap_or_default();
            if ask.is_empty() {
                let text = |key: &Item, name: &str| {
                    let value = key.get(name).and_then(|value| value.as_s().ok());
                    value.cloned().unwrap_or_default()
                };
                let in_order = wanted
                    .iter()
                    .map(|key| found.remove(&(text(key, "block_id"), text(key, "seat"))))
                    .collect();
                return Ok((booking, in_order));
            }
            pause(attempt).await;
        }
        Err(CloudError::Throttled("keys were left unprocessed".into()))
    }
}
