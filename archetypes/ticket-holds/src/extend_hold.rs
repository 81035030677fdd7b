//! Extend hold: a little more time, once, while there still is some.

use crate::domain::{BookingState, TicketState};
use crate::items::{booking_key, ticket_key};
use crate::{BoxOffice, OfficeError, Over};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Millis, Transaction};

/// What became of asking for more time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extension {
    /// The hold lasts until then.
    Until(Millis),
    /// It was extended before, and lasts until then. Also what a repeated request is told.
    Before(Millis),
    /// There is nothing to extend.
    Refused(Over),
}

/// Still a hold with time left, and never extended.
const BOOKING_GUARD: &str = "#status = :in_progress AND hold_expires_at > :now \
     AND attribute_not_exists(was_extended)";

const BOOKING_UPDATE: &str = "SET hold_expires_at = :until, due_at = :until, was_extended = :true";

/// The ticket bears the same time, for whoever asks the ticket.
const TICKET_GUARD: &str = "#status = :held AND booking_id = :booking AND fence = :fence";
const TICKET_UPDATE: &str = "SET hold_expires_at = :until, changed_at = :now";

/// How often a hold that changes while it is extended is looked at again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Extends the hold, once.
    pub async fn extend_hold(&self, booking_id: &str) -> Result<Extension, OfficeError> {
        for attempt in 0..ATTEMPTS {
            let now = self.now();
            let booking = self.known_booking(booking_id).await?;
            if let Err(over) = booking.open_at(now) {
                return Ok(Extension::Refused(over));
            }
            if booking.was_extended {
                return Ok(Extension::Before(booking.hold_expires_at));
            }
            let until = booking.hold_expires_at + self.rules.extension_ms;
            // The time of the write, not of the read: who was slow in between is late.
            let now = self.now();
            let update = Update::builder()
                .table_name(self.table("bookings"))
                .set_key(Some(booking_key(booking_id)))
                .update_expression(BOOKING_UPDATE)
                .condition_expression(BOOKING_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":in_progress", s("IN_PROGRESS"))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":until", n(until))
                .expression_attribute_values(
                    ":true",
                    aws_sdk_dynamodb::types::AttributeValue::Bool(true),
                );
            let update = update.build().map_err(CloudError::bug)?;
            let mut items = vec![TransactWriteItem::builder().update(update).build()];
            let mut names = vec!["booking"];
            for (line, fence) in booking.seats() {
                let update = Update::builder()
                    .table_name(self.table("tickets"))
                    .set_key(Some(ticket_key(&line.block_id, &line.seat)))
                    .update_expression(TICKET_UPDATE)
                    .condition_expression(TICKET_GUARD)
                    .expression_attribute_names("#status", "status")
                    .expression_attribute_values(":held", s("HELD"))
                    .expression_attribute_values(":booking", s(booking_id))
                    .expression_attribute_values(":fence", n(fence))
                    .expression_attribute_values(":until", n(until))
                    .expression_attribute_values(":now", n(now))
                    .return_values_on_condition_check_failure(
                        ReturnValuesOnConditionCheckFailure::AllOld,
                    );
                let update = update.build().map_err(CloudError::bug)?;
                items.push(TransactWriteItem::builder().update(update).build());
                names.push("ticket");
            }
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    let hold_expires_at = until;
                    self.lengthen_leases(&BookingState {
                        hold_expires_at,
                        ..booking
                    })
                    .await;
                    return Ok(Extension::Until(until));
                }
                // The booking as it is now says why.
                Ok(Transaction::Cancelled(cancelled)) if cancelled.failed("booking").is_some() => {}
                // If it is the ticket alone, another booking has it: by that one's clock the time was
                // over. If the booking was in conflict, the ticket may have been sold to this very one.
                Ok(Transaction::Cancelled(cancelled)) => {
                    if let (true, Some(Some(ticket))) =
                        (cancelled.is_whole(), cancelled.failed("ticket"))
                    {
                        let seat = from_item::<TicketState>(ticket)?.name();
                        return Ok(Extension::Refused(Over::Displaced { seat }));
                    }
                    pause(attempt).await;
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(OfficeError::Contended)
    }
}
