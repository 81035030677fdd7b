//! Reading items as states: one, or several in one call.

use crate::domain::{BookingState, Line, MAX_TEXT, TicketState};
use crate::{BoxOffice, OfficeError};
use cloud::item::{from_item, s};
use cloud::{CloudError, Item};

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

impl BoxOffice {
    /// The booking, if there is one. Consistent: an absent booking had not been written.
    pub async fn booking(&self, booking_id: &str) -> Result<Option<BookingState>, CloudError> {
        // No booking has such an id, and DynamoDB would call it a wrong request.
        if cloud::text::id(booking_id, MAX_TEXT).is_err() {
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
        let wanted = tickets.clone();
        let mut keys = vec![("tickets", tickets)];
        keys.extend(booking_id.map(|id| ("bookings", vec![booking_key(id)])));
        let mut found = self.cloud.read_batch(keys, true).await?;
        let bookings = found.remove("bookings").unwrap_or_default();
        let booking = bookings.first().map(from_item).transpose()?;
        // The batch comes in any order.
        let found = found.remove("tickets").unwrap_or_default();
        let of_key = |key: &Item| {
            let has = |item: &&Item| {
                key.iter()
                    .all(|(name, value)| item.get(name) == Some(value))
            };
            found.iter().find(has).map(from_item).transpose()
        };
        let tickets = wanted.iter().map(of_key).collect::<Result<_, _>>()?;
        Ok((booking, tickets))
    }
}
