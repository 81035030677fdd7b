//! Put back: what a booking gives up when it ends without a sale, or after one.
//!
//! Only what still is its own. A seat that somebody else has taken since is not touched, and
//! neither is one that is taken between the read and the write: the fence tells.

use crate::BoxOffice;
use crate::domain::{BookingState, BookingStatus, Line, TicketState};
use crate::items::{booking_key, ticket_key};
use crate::tables::due_shard;
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{n, s};
use cloud::{CloudError, Millis, Transaction};

/// The booking is still where it was when somebody decided to end it, down to the time of its hold
/// (an extension in between keeps it alive), and nobody has begun to pay.
const BOOKING_GUARD: &str =
    "#status = :from AND hold_expires_at = :seen AND attribute_not_exists(payment)";

/// Kept for a month after its end, then DynamoDB's TTL may clean it up. No decision rests on that.
const BOOKING_UPDATE: &str = "SET #status = :to, purge_at = :purge REMOVE due_shard, due_at";

/// With a payment to give back, the sweeper has to see to it.
const PAID_GUARD: &str =
    "#status = :from AND hold_expires_at = :seen AND attribute_exists(payment)";
const PAID_UPDATE: &str = "SET #status = :to, payment = :open, due_shard = :shard, due_at = :now";

/// Exactly what was read: this booking's hold or sale, and no later one.
const TICKET_GUARD: &str = "#status = :from AND booking_id = :booking AND fence = :fence";

/// The fence stays: the next hold moves it on.
const TICKET_UPDATE: &str =
    "SET #status = :available, changed_at = :now REMOVE hold_expires_at, booking_id";

/// Admissions go back into the shard they came from.
const ADMISSIONS_UPDATE: &str = "SET remaining = remaining + :count";

/// A month.
pub(crate) const KEPT_MS: Millis = 30 * 24 * 3_600_000;

/// The end of a booking, as one transaction.
pub(crate) struct Ending<'a> {
    /// As it was read.
    pub booking: &'a BookingState,
    /// What it becomes.
    pub to: BookingStatus,
    /// The tickets that were read as still its own, and go back on sale.
    pub own: Vec<&'a Line>,
}

impl BoxOffice {
    /// Which of a booking's tickets are still its own.
    pub(crate) async fn own_tickets<'a>(
        &self,
        booking: &'a BookingState,
    ) -> Result<Vec<&'a Line>, CloudError> {
        let tickets: Vec<Option<TicketState>> = self.tickets_of(&booking.lines).await?;
        let own = std::iter::zip(booking.seats(), tickets)
            .filter_map(|((line, _), ticket)| booking.still_has(line, &ticket?).then_some(line));
        Ok(own.collect())
    }

    /// Ends a booking: its status, its tickets, its admissions and its user's allowance together.
    /// False if something has changed since it was read.
    pub(crate) async fn end_booking(&self, ending: Ending<'_>) -> Result<bool, CloudError> {
        let Ending { booking, to, own } = ending;
        // The time of the write, not of the read: whoever asks what changed must not miss it.
        let now = self.now();
        let from = booking.status;
        let update = Update::builder()
            .table_name(self.table("bookings"))
            .set_key(Some(booking_key(&booking.booking_id)))
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", s(from.word()))
            .expression_attribute_values(":seen", n(booking.hold_expires_at))
            .expression_attribute_values(":to", s(to.word()));
        let update = if booking.payment.is_some() {
            update
                .condition_expression(PAID_GUARD)
                .update_expression(PAID_UPDATE)
                .expression_attribute_values(":open", s("OPEN"))
                .expression_attribute_values(":shard", s(due_shard(&booking.booking_id)))
                .expression_attribute_values(":now", n(now))
        } else {
            update
                .condition_expression(BOOKING_GUARD)
                .update_expression(BOOKING_UPDATE)
                .expression_attribute_values(":purge", n((now + KEPT_MS) / 1_000))
        };
        let update = update.build().map_err(CloudError::bug)?;
        let mut items = vec![
            TransactWriteItem::builder().update(update).build(),
            self.give_back_allowance(booking)?,
        ];
        let mut names = vec!["booking", "allowance"];
        let was = match from {
            BookingStatus::Confirmed => "SOLD",
            _ => "HELD",
        };
        for line in own {
            let update = Update::builder()
                .table_name(self.table("tickets"))
                .set_key(Some(ticket_key(&line.block_id, &line.seat)))
                .update_expression(TICKET_UPDATE)
                .condition_expression(TICKET_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":from", s(was))
                .expression_attribute_values(":booking", s(&booking.booking_id))
                .expression_attribute_values(":fence", n(line.fence.unwrap_or_default()))
                .expression_attribute_values(":available", s("AVAILABLE"))
                .expression_attribute_values(":now", n(now));
            let update = update.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
            names.push("ticket");
        }
        for line in booking.lines.iter().filter(|line| line.fence.is_none()) {
            let update = Update::builder()
                .table_name(self.table("tickets"))
                .set_key(Some(ticket_key(&line.block_id, &line.seat)))
                .update_expression(ADMISSIONS_UPDATE)
                .expression_attribute_values(":count", n(line.count));
            let update = update.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
            names.push("admissions");
        }
        let ended = self.cloud.transact(&names, items).await?;
        Ok(matches!(ended, Transaction::Committed(_)))
    }
}
