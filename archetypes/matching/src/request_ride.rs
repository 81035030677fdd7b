//! Request a ride: RideRequestState, OPEN, with the fare that was quoted.
//!
//! It is born with something to do (`due_at`): whoever answers the request starts to look for a
//! driver, and if that one dies, a sweeper finds the ride by its time.

use crate::domain::{NewRide, RideRequestState, RideStatus};
use crate::quote_fare::FareQuote;
use crate::tables::due_shard;
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Millis, Transaction};

/// What became of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requested {
    /// This call made it.
    Requested(RideRequestState),
    /// It was made before; where it stands now.
    Before(RideRequestState),
    /// The quote does not carry it.
    Refused(BadQuote),
}

/// Why a quote cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadQuote {
    /// Its time is over.
    #[error("the quote has expired; ask for another")]
    Expired,
    /// One quote, one ride.
    #[error("the quote was used for another ride")]
    Used,
    /// Somebody else's.
    #[error("the quote is another rider's")]
    NotYours,
}

/// A ride is written once. This is the identity that makes every retry safe.
const RIDE_GUARD: &str = "attribute_not_exists(ride_id)";

/// One quote, one ride, in time.
const FARE_GUARD: &str = "attribute_not_exists(ride_id) AND quote_expires_at > :now";
const FARE_UPDATE: &str = "SET ride_id = :ride";

impl Dispatch {
    /// Requests a ride. Sent again with the same `ride_id`, it says where that ride stands.
    pub async fn request_ride(&self, new: &NewRide) -> Result<Requested, DispatchError> {
        new.validate()?;
        for attempt in 0..crate::items::ATTEMPTS {
            let now = self.now();
            let quote = self.known_fare(&new.fare_id).await?;
            if quote.ride_id.as_ref() == Some(&new.ride_id) {
                let there = self.known_ride(&new.ride_id).await?;
                return sent_before(new, there);
            }
            if let Err(why) = usable(&quote, new, now) {
                return Ok(Requested::Refused(why));
            }
            let ride = self.open_ride(new, &quote, now);
            // The time of the write, not of the read: who was slow in between is late.
            let now = self.now();
            match self
                .cloud
                .transact(&["ride", "fare"], self.create(&ride, now)?)
                .await
            {
                Ok(Transaction::Committed(_)) => return Ok(Requested::Requested(ride)),
                Ok(Transaction::Cancelled(cancelled)) => {
                    if let Some(Some(old)) = cancelled.failed("ride") {
                        return sent_before(new, from_item(old)?);
                    }
                    // The quote alone: it says why when it is read again.
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // It may have been made. Ask by the identity it carried.
                Err(fault) => {
                    return match self.ride(&new.ride_id).await? {
                        Some(there) => sent_before(new, there),
                        None => Err(fault.into()),
                    };
                }
            }
        }
        Err(DispatchError::Contended)
    }

    fn open_ride(&self, new: &NewRide, quote: &FareQuote, now: Millis) -> RideRequestState {
        RideRequestState {
            ride_id: new.ride_id.clone(),
            rider_id: new.rider_id.clone(),
            pickup: quote.pickup,
            destination: quote.destination,
            fare_id: quote.fare_id.clone(),
            fare: quote.amount,
            status: RideStatus::Open,
            offers_made: 0,
            refused_by: Default::default(),
            current_assignment: None,
            driver_id: None,
            search_until: now + self.rules.search_ms,
            due_shard: Some(due_shard(&new.ride_id)),
            due_at: Some(now + self.rules.take_over_ms),
            created_at: now,
        }
    }

    fn create(
        &self,
        ride: &RideRequestState,
        now: Millis,
    ) -> Result<Vec<TransactWriteItem>, CloudError> {
        let put = Put::builder()
            .table_name(self.table("rides"))
            .set_item(Some(to_item(ride)?))
            .condition_expression(RIDE_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let use_quote = Update::builder()
            .table_name(self.table("fares"))
            .key("fare_id", s(&ride.fare_id))
            .update_expression(FARE_UPDATE)
            .condition_expression(FARE_GUARD)
            .expression_attribute_values(":ride", s(&ride.ride_id))
            .expression_attribute_values(":now", n(now));
        let (put, use_quote) = (put.build(), use_quote.build());
        Ok(vec![
            TransactWriteItem::builder()
                .put(put.map_err(CloudError::bug)?)
                .build(),
            TransactWriteItem::builder()
                .update(use_quote.map_err(CloudError::bug)?)
                .build(),
        ])
    }
}

fn usable(quote: &FareQuote, new: &NewRide, now: Millis) -> Result<(), BadQuote> {
    if quote.rider_id != new.rider_id {
        Err(BadQuote::NotYours)
    } else if quote.ride_id.is_some() {
        Err(BadQuote::Used)
    } else if quote.quote_expires_at <= now {
        Err(BadQuote::Expired)
    } else {
        Ok(())
    }
}

/// A ride under our id: ours, or somebody else's that took our identity.
fn sent_before(new: &NewRide, there: RideRequestState) -> Result<Requested, DispatchError> {
    if there.rider_id == new.rider_id && there.fare_id == new.fare_id {
        Ok(Requested::Before(there))
    } else {
        Err(DispatchError::IdTaken(new.ride_id.clone()))
    }
}
