//! Expire hold: what nobody confirmed in time goes back on sale, by any number of sweepers.
//!
//! Nobody waits for this. A reserver takes an expired seat by itself; the sweeper only writes down
//! what is already so, ends the booking and gives its user's allowance back. It finds bookings
//! through a sparse index, and believes the index nothing: it reads the booking, and changes it
//! and its tickets together, only if they still are exactly what it read.

use crate::domain::BookingStatus;
use crate::put_back::Ending;
use crate::tables::DUE_SHARDS;
use crate::{BoxOffice, OfficeError, Realization};
use cloud::item::{n, pause, s};
use cloud::{CloudError, Millis};

/// What became of a hold that a sweeper looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// This call ended it, and put so many seats back.
    Expired(usize),
    /// Its time is not over.
    NotDue {
        /// When it will be.
        until: Millis,
    },
    /// It is no hold any more.
    Over(BookingStatus),
}

const DUE: &str = "due_shard = :shard AND due_at <= :now";

/// How often a hold that changes while it is looked at is looked at again.
const ATTEMPTS: u32 = 20;

impl BoxOffice {
    /// Ends a hold whose time is over.
    pub async fn expire_hold(&self, booking_id: &str) -> Result<Expiry, OfficeError> {
        for attempt in 0..ATTEMPTS {
            // The time before the read: what is not over then is left alone.
            let now = self.now();
            let booking = self.known_booking(booking_id).await?;
            if booking.status != BookingStatus::InProgress {
                return Ok(Expiry::Over(booking.status));
            }
            if booking.hold_expires_at > now {
                let until = booking.hold_expires_at;
                return Ok(Expiry::NotDue { until });
            }
            let own = match self.realization {
                Realization::Pure => self.own_tickets(&booking).await?,
                // The lease has ended by itself, and a reserver takes an expired ticket as it is.
                Realization::Leased => Vec::new(),
            };
            let released = own.len();
            let ending = Ending {
                booking: &booking,
                to: BookingStatus::Expired,
                own,
            };
            match self.end_booking(ending).await {
                Ok(true) => return Ok(Expiry::Expired(released)),
                Ok(false) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(OfficeError::Contended)
    }

    /// The bookings that the index says need a look, all shards, all pages.
    pub async fn due_bookings(&self, now: Millis) -> Result<Vec<String>, CloudError> {
        let mut found = Vec::new();
        for shard in 0..DUE_SHARDS {
            let mut pages = self
                .dynamodb()
                .query()
                .table_name(self.table("bookings"))
                .index_name("due")
                .key_condition_expression(DUE)
                .expression_attribute_values(":shard", s(format!("due-{shard}")))
                .expression_attribute_values(":now", n(now))
                .into_paginator()
                .items()
                .send();
            while let Some(item) = pages.next().await {
                let item = item?;
                let id = item.get("booking_id").and_then(|id| id.as_s().ok());
                found.extend(id.cloned());
            }
        }
        Ok(found)
    }

    /// Ends every hold whose time is over. Returns those that were looked at, with what became of
    /// them: one that cannot be ended does not keep the others.
    pub async fn expire_due(
        &self,
    ) -> Result<Vec<(String, Result<Expiry, OfficeError>)>, CloudError> {
        let mut done = Vec::new();
        for booking_id in self.due_bookings(self.now()).await? {
            let ended = self.expire_hold(&booking_id).await;
            done.push((booking_id, ended));
        }
        Ok(done)
    }
}
