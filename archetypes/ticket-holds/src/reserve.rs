//! Reserve seats: create a hold, and say no to whoever competes.
//!
//! Read, decide, write under a guard that says: *still the hold I saw, and free by now*. A seat is
//! free if it is AVAILABLE, or HELD by somebody whose time is over: nobody has to wait for a
//! sweeper. Taking it moves its fence on, and with that the displaced booking is out for good.
//! Booking, allowance and all seats are one transaction: all or none.

use crate::allowance::Allowance;
use crate::domain::{
    BookingState, BookingStatus, Line, NewBooking, Rejection, TicketState, block_id, decide,
};
use crate::items::ticket_key;
use crate::tables::due_shard;
use crate::{BoxOffice, OfficeError};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Item, Millis, Transaction};

/// What became of asking for a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// This call made the hold.
    Held(BookingState),
    /// This booking was made before; where it stands now.
    Before(BookingState),
    /// No, and why. Nothing is kept: asking again later may succeed.
    Rejected(Rejection),
}

/// Still the hold that was seen, and free.
///
/// The fence alone is not enough: a holder whose clock is behind may extend or confirm the hold that
/// looked expired from here, and neither moves the fence. The rest alone is not enough either: a
/// hold that came and went in between would give two holds the same fence.
const TICKET_GUARD: &str = "fence = :seen AND \
     (#status = :available OR (#status = :held AND hold_expires_at <= :now))";

const TICKET_UPDATE: &str = "SET #status = :held, fence = :fence, booking_id = :booking, \
     hold_expires_at = :until, changed_at = :changed";

/// A booking is written once. This is the identity that makes every retry safe.
const BOOKING_GUARD: &str = "attribute_not_exists(booking_id)";

/// How often a hold is decided again before its buyer is told to come back.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Holds the seats for ten minutes, all of them or none. Sent again with the same
    /// `booking_id`, it says where that booking stands. With leases, somebody else's lease answers
    /// first: a client that got no answer asks for its [`booking`](Self::booking) before it asks
    /// for seats again.
    pub async fn reserve(&self, new: &NewBooking) -> Result<Reserved, OfficeError> {
        new.validate(&self.rules)?;
        // Read once by a process: from then on it costs nothing to know that the event is on sale.
        self.event(&new.event_id).await?;
        // With a lease layer most competitors end here, without a call to DynamoDB.
        if let Some(why) = self.acquire_leases(new).await {
            return Ok(Reserved::Rejected(why));
        }
        let reserved = self.reserve_in_dynamodb(new).await;
        match &reserved {
            // Now that there is a hold, its leases last as long.
            Ok(Reserved::Held(booking)) => self.lengthen_leases(booking).await,
            Ok(Reserved::Before(there)) if there.open_at(self.now()).is_ok() => {
                self.lengthen_leases(there).await;
            }
            // It is bought, and its leases may have said so already.
            Ok(Reserved::Before(there)) if there.status == BookingStatus::Confirmed => {
                self.sell_leases(there).await;
            }
            // A lease without a hold only keeps others away. Should there be a hold after all, its lease
            // is missed only by the bill.
            _ => self.release_request(new).await,
        }
        reserved
    }

    async fn reserve_in_dynamodb(&self, new: &NewBooking) -> Result<Reserved, OfficeError> {
        // Always the time before the call that brings the tickets. Taken after it, a slow read
        // would find expired what its holder has extended meanwhile.
        let mut now = self.now();
        let (mut before, mut tickets) = self.read_for(new).await?;
        for attempt in 0..ATTEMPTS {
            if let Some(booking) = before {
                return sent_before(new, booking);
            }
            let lines = match decide(&tickets, now) {
                Ok(lines) => lines,
                // The tickets may be younger than the booking that was read with them. What is in
                // our way may be our own hold.
                Err(_) if tickets.iter().any(|ticket| ticket.is_of(new)) => {
                    before = self.booking(&new.booking_id).await?;
                    if before.is_none() {
                        return Err(OfficeError::Contended);
                    }
                    continue;
                }
                Err(why) => return Ok(Reserved::Rejected(why)),
            };
            let booking = self.in_progress(new, lines, now);
            let (items, names) = self.hold(&booking, &tickets, now)?;
            now = self.now();
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => return Ok(Reserved::Held(booking)),
                Ok(Transaction::Cancelled(cancelled)) => {
                    if let Some(old) = cancelled.failed("booking") {
                        before = Some(from_item(old.unwrap_or(&Item::new()))?);
                        continue;
                    }
                    // Another item was in conflict, and what it is now did not come back: it may be
                    // the booking, made by a twin of this call. A no must not rest on the rest.
                    if !cancelled.is_whole() {
                        pause(attempt).await;
                        now = self.now();
                        (before, tickets) = self.read_for(new).await?;
                        continue;
                    }
                    // Decide again on what came back with the refusal: no second read.
                    for (name, item) in &cancelled.failed {
                        if let ("ticket", Some(item)) = (*name, item) {
                            let current: TicketState = from_item(item)?;
                            let same = |ticket: &&mut TicketState| {
                                (&ticket.block_id, &ticket.seat)
                                    == (&current.block_id, &current.seat)
                            };
                            if let Some(ticket) = tickets.iter_mut().find(same) {
                                *ticket = current;
                            }
                        }
                    }
                    if let Some(old) = cancelled.failed("allowance") {
                        let allowance = Allowance::of(old)?;
                        if !self.make_room(&allowance, &new.booking_id).await? {
                            let why = self.over_limit(&allowance);
                            return Ok(Reserved::Rejected(why));
                        }
                        now = self.now();
                    }
                }
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    now = self.now();
                    (before, tickets) = self.read_for(new).await?;
                }
                // The write gave a fault in place of an answer, and may have been made. Ask by the
                // identity it carried; never hold again under another.
                Err(fault) => {
                    return match self.booking(&new.booking_id).await? {
                        Some(booking) => sent_before(new, booking),
                        None => Err(fault.into()),
                    };
                }
            }
        }
        Err(OfficeError::Contended)
    }

    /// The booking if it was made before, and the tickets it asks for.
    async fn read_for(
        &self,
        new: &NewBooking,
    ) -> Result<(Option<BookingState>, Vec<TicketState>), OfficeError> {
        let keys: Vec<_> = new
            .keys()
            .iter()
            .map(|(b, seat)| ticket_key(b, seat))
            .collect();
        let (booking, tickets) = self.read_together(Some(&new.booking_id), keys).await?;
        let tickets = std::iter::zip(&new.seats, tickets)
            .map(|(seat, ticket)| ticket.ok_or_else(|| OfficeError::UnknownSeat(seat.clone())))
            .collect::<Result<_, _>>()?;
        Ok((booking, tickets))
    }

    fn in_progress(&self, new: &NewBooking, lines: Vec<Line>, now: Millis) -> BookingState {
        self.new_booking([&new.booking_id, &new.event_id, &new.user_id], lines, now)
    }

    /// A booking that begins at `now`.
    pub(crate) fn new_booking(
        &self,
        [booking_id, event_id, user_id]: [&String; 3],
        lines: Vec<Line>,
        now: Millis,
    ) -> BookingState {
        let until = now + self.rules.hold_ms;
        BookingState {
            booking_id: booking_id.clone(),
            event_id: event_id.clone(),
            user_id: user_id.clone(),
            status: BookingStatus::InProgress,
            total: lines.iter().map(|line| line.price).sum(),
            lines,
            hold_expires_at: until,
            was_extended: false,
            payment: None,
            payment_id: None,
            declined: Default::default(),
            due_shard: Some(due_shard(booking_id)),
            due_at: Some(until),
            created_at: now,
        }
    }

    /// The transaction: booking, allowance, and every seat.
    fn hold(
        &self,
        booking: &BookingState,
        tickets: &[TicketState],
        now: Millis,
    ) -> Result<(Vec<TransactWriteItem>, Vec<&'static str>), CloudError> {
        let mut items = vec![self.put_booking(booking)?, self.take_allowance(booking)?];
        let mut names = vec!["booking", "allowance"];
        for (ticket, line) in std::iter::zip(tickets, &booking.lines) {
            let update = Update::builder()
                .table_name(self.table("tickets"))
                .set_key(Some(ticket_key(&line.block_id, &line.seat)))
                .update_expression(TICKET_UPDATE)
                .condition_expression(TICKET_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":seen", n(ticket.fence))
                .expression_attribute_values(":available", s("AVAILABLE"))
                .expression_attribute_values(":held", s("HELD"))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":fence", n(ticket.fence + 1))
                .expression_attribute_values(":booking", s(&booking.booking_id))
                .expression_attribute_values(":until", n(booking.hold_expires_at))
                // The time of the write, for whoever asks what changed; not that of the read.
                .expression_attribute_values(":changed", n(self.now()))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            let update = update.build().map_err(CloudError::bug)?;
            items.push(TransactWriteItem::builder().update(update).build());
            names.push("ticket");
        }
        Ok((items, names))
    }

    /// The booking's row.
    pub(crate) fn put_booking(
        &self,
        booking: &BookingState,
    ) -> Result<TransactWriteItem, CloudError> {
        let put = Put::builder()
            .table_name(self.table("bookings"))
            .set_item(Some(to_item(booking)?))
            .condition_expression(BOOKING_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let put = put.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().put(put).build())
    }
}

impl TicketState {
    /// Whether this booking holds or owns it.
    fn is_of(&self, new: &NewBooking) -> bool {
        self.booking_id.as_ref() == Some(&new.booking_id)
    }
}

impl NewBooking {
    /// The keys of its seats.
    pub(crate) fn keys(&self) -> Vec<(String, String)> {
        let key = |seat: &crate::Seat| (block_id(&self.event_id, &seat.section), seat.key());
        self.seats.iter().map(key).collect()
    }
}

/// A booking under our id: ours, or somebody else's that took our identity.
fn sent_before(new: &NewBooking, there: BookingState) -> Result<Reserved, OfficeError> {
    let theirs: Vec<_> = there
        .seats()
        .map(|(line, _)| (line.block_id.clone(), line.seat.clone()))
        .collect();
    if there.user_id == new.user_id && there.event_id == new.event_id && theirs == new.keys() {
        Ok(Reserved::Before(there))
    } else {
        Err(OfficeError::IdTaken(new.booking_id.clone()))
    }
}
