//! Confirm purchase: the hold becomes a sale, in one transaction.
//!
//! Every ticket HELD → SOLD and the booking IN_PROGRESS → CONFIRMED, if the hold is still this
//! booking's and its time is not over. Whoever was displaced finds another fence on the ticket.

use crate::domain::{BookingState, BookingStatus, Over, TicketState};
use crate::items::{booking_key, ticket_key};
use crate::{BoxOffice, OfficeError};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Item, Millis, Transaction};

/// What became of confirming.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirming {
    /// This call confirmed it.
    Confirmed(BookingState),
    /// It was confirmed before.
    Before(BookingState),
    /// It cannot be confirmed any more.
    Refused(Over),
}

/// Still a hold, and its time is not over. The ticket bears the same time; one clause is enough,
/// since both change together. Nobody has begun to pay, and the sweeper has nothing more to do …
const BOOKING_GUARD: &str =
    "#status = :in_progress AND hold_expires_at > :now AND attribute_not_exists(payment)";
const BOOKING_UPDATE: &str = "SET #status = :confirmed REMOVE due_shard, due_at";

/// … or it is paid for by the payment that was authorized, and the sweeper has to see to it that
/// the money is captured.
const PAID_GUARD: &str =
    "#status = :in_progress AND hold_expires_at > :now AND payment_id = :payment";
const PAID_UPDATE: &str = "SET #status = :confirmed, due_at = :now";

/// Still the very hold this booking made. Booking and fence say the same twice: a booking holds a
/// ticket once, and a fence belongs to one hold. Either alone would do, and both cost nothing.
const TICKET_GUARD: &str = "#status = :held AND booking_id = :booking AND fence = :fence";

const TICKET_UPDATE: &str = "SET #status = :sold, changed_at = :now REMOVE hold_expires_at";

/// How often a conflict is tried again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Confirms the booking. Any number of times: it is confirmed once. One that somebody is paying
    /// for is not confirmed without the money.
    pub async fn confirm(&self, booking_id: &str) -> Result<Confirming, OfficeError> {
        let now = self.now();
        let booking = self.known_booking(booking_id).await?;
        self.confirm_read(booking, None, now).await
    }

    /// Confirms a booking that is paid for by this payment, which is authorized.
    pub async fn confirm_paid(
        &self,
        booking_id: &str,
        payment_id: &str,
    ) -> Result<Confirming, OfficeError> {
        let now = self.now();
        let booking = self.known_booking(booking_id).await?;
        self.confirm_read(booking, Some(payment_id), now).await
    }

    /// Confirms a booking as it was read. `now` is from before the read.
    pub(crate) async fn confirm_read(
        &self,
        mut booking: BookingState,
        paid: Option<&str>,
        mut now: Millis,
    ) -> Result<Confirming, OfficeError> {
        for attempt in 0..ATTEMPTS {
            match booking.open_at(now) {
                Ok(()) => {}
                Err(Over::Confirmed) => {
                    // The one that confirmed it may have died before its leases said so.
                    self.sell_leases(&booking).await;
                    return Ok(Confirming::Before(booking));
                }
                Err(over) => return Ok(Confirming::Refused(over)),
            }
            if booking.payment_id.as_deref() != paid {
                return Ok(Confirming::Refused(Over::PaymentUnderWay));
            }
            // The time of the write, not of the read: who was slow in between is late.
            now = self.now();
            match self.commit_sale(&booking, now).await {
                Ok(Sale::Made(booking)) => {
                    self.sell_leases(&booking).await;
                    return Ok(Confirming::Confirmed(booking));
                }
                Ok(Sale::Displaced(over)) => return Ok(Confirming::Refused(over)),
                // Decide again on what came back with the refusal.
                Ok(Sale::Changed(current)) => booking = current,
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    now = self.now();
                    booking = self.known_booking(&booking.booking_id).await?;
                }
                // It may have been made. The booking says.
                Err(fault) => {
                    let there = self.known_booking(&booking.booking_id).await?;
                    if there.status != BookingStatus::Confirmed {
                        return Err(fault.into());
                    }
                    self.sell_leases(&there).await;
                    return Ok(Confirming::Before(there));
                }
            }
        }
        Err(OfficeError::Contended)
    }

    async fn commit_sale(&self, booking: &BookingState, now: Millis) -> Result<Sale, CloudError> {
        let update = Update::builder()
            .table_name(self.table("bookings"))
            .set_key(Some(booking_key(&booking.booking_id)))
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":in_progress", s("IN_PROGRESS"))
            .expression_attribute_values(":confirmed", s("CONFIRMED"))
            .expression_attribute_values(":now", n(now))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let update = if let Some(payment_id) = &booking.payment_id {
            update
                .condition_expression(PAID_GUARD)
                .update_expression(PAID_UPDATE)
                .expression_attribute_values(":payment", s(payment_id))
        } else {
            update
                .condition_expression(BOOKING_GUARD)
                .update_expression(BOOKING_UPDATE)
        };
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
                .expression_attribute_values(":sold", s("SOLD"))
                .expression_attribute_values(":booking", s(&booking.booking_id))
                .expression_attribute_values(":fence", n(fence))
                .expression_attribute_values(":now", n(now))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            let update = update.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
            names.push("ticket");
        }
        let cancelled = match self.cloud.transact(&names, items).await? {
            Transaction::Committed(_) => {
                let paid = booking.payment_id.is_some();
                return Ok(Sale::Made(BookingState {
                    status: BookingStatus::Confirmed,
                    due_shard: booking.due_shard.clone().filter(|_| paid),
                    due_at: Some(now).filter(|_| paid),
                    ..booking.clone()
                }));
            }
            Transaction::Cancelled(cancelled) => cancelled,
        };
        if let Some(Some(old)) = cancelled.failed("booking") {
            return Ok(Sale::Changed(from_item(old)?));
        }
        // The booking was in conflict: a twin of this call may be selling the ticket to us. Look again.
        if !cancelled.is_whole() {
            return Err(CloudError::Conflict("the booking".into()));
        }
        let lost = cancelled.failed.iter().find_map(|(_, item)| item.as_ref());
        let ticket: TicketState = from_item(lost.unwrap_or(&Item::new()))?;
        let seat = ticket.name();
        Ok(Sale::Displaced(Over::Displaced { seat }))
    }
}

enum Sale {
    Made(BookingState),
    /// The booking is not what it was.
    Changed(BookingState),
    /// A ticket is not this booking's any more.
    Displaced(Over),
}
