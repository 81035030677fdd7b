//! Cancel: the user gives a hold or a purchase up, and the seats go back on sale at once.

use crate::domain::{BookingStatus, Payment};
use crate::put_back::Ending;
use crate::tables::due_shard;
use crate::{BookingState, BoxOffice, OfficeError};
use cloud::CloudError;
use cloud::item::pause;

/// What became of cancelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelling {
    /// This call cancelled it.
    Cancelled(Box<BookingState>),
    /// It had ended before, this way.
    Over(BookingStatus),
}

/// How often a booking that changes while it is cancelled is looked at again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Cancels the booking, held or confirmed. If money was captured, it stays with the processor
    /// until [`settle`](Self::settle) gives it back; the sweeper sees to that.
    pub async fn cancel(&self, booking_id: &str) -> Result<Cancelling, OfficeError> {
        for attempt in 0..ATTEMPTS {
            let booking = self.known_booking(booking_id).await?;
            if let BookingStatus::Cancelled | BookingStatus::Expired = booking.status {
                self.release_leases(&booking).await;
                return Ok(Cancelling::Over(booking.status));
            }
            let ending = Ending {
                booking: &booking,
                to: BookingStatus::Cancelled,
                // In both realizations: DynamoDB would refuse a seat whose hold is not over.
                own: self.own_tickets(&booking).await?,
            };
            // Before the commit: an office that dies here leaves no lease of a seat that is free.
            self.release_leases(&booking).await;
            match self.end_booking(ending).await {
                Ok(true) => {
                    // And after it: the reservation, sent again, may have taken one in between.
                    self.release_leases(&booking).await;
                    let paid = booking.payment.is_some();
                    return Ok(Cancelling::Cancelled(Box::new(BookingState {
                        status: BookingStatus::Cancelled,
                        payment: paid.then_some(Payment::Open),
                        due_shard: paid.then(|| due_shard(booking_id)),
                        due_at: paid.then(|| self.now()),
                        ..booking
                    })));
                }
                Ok(false) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(OfficeError::Contended)
    }
}
