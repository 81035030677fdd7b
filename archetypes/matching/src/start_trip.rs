//! Start the trip: TripExecutionState, EN_ROUTE, which binds the driver to the ride.
//!
//! The driver's app does it after its yes. If it does not, a sweeper does: the ride stays due until
//! there is a trip.

use crate::domain::{TripExecutionState, TripStatus, is_offer_id, ride_of, text};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, pause, s, to_item};
use cloud::{CloudError, Transaction};

/// What became of starting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Starting {
    /// This call started it.
    Started(TripExecutionState),
    /// It was started before; where it stands now.
    Before(TripExecutionState),
    /// The ride is not matched by this assignment.
    NotMatched,
}

/// A trip begins once.
const TRIP_GUARD: &str = "attribute_not_exists(assignment_id)";

/// Matched by this very assignment, and by this driver: what the rider cancelled does not start.
const RIDE_GUARD: &str =
    "#status = :matched AND current_assignment = :assignment AND driver_id = :driver";
const RIDE_UPDATE: &str = "REMOVE due_shard, due_at";

impl Dispatch {
    /// Starts the trip of an accepted assignment.
    pub async fn start_trip(
        &self,
        driver_id: &str,
        assignment_id: &str,
    ) -> Result<Starting, DispatchError> {
        text("driver_id", driver_id)?;
        if !is_offer_id(assignment_id) {
            return Err(DispatchError::UnknownTrip(assignment_id.to_owned()));
        }
        for attempt in 0..crate::items::ATTEMPTS {
            let trip = TripExecutionState {
                assignment_id: assignment_id.to_owned(),
                ride_id: ride_of(assignment_id).to_owned(),
                driver_id: driver_id.to_owned(),
                status: TripStatus::EnRoute,
                since: self.now(),
            };
            let items = self.begin(&trip)?;
            match self.cloud.transact(&["trip", "ride"], items).await {
                Ok(Transaction::Committed(_)) => return Ok(Starting::Started(trip)),
                Ok(Transaction::Cancelled(cancelled)) => {
                    return match cancelled.failed("trip") {
                        Some(Some(old)) => started_before(&trip, from_item(old)?),
                        _ => Ok(Starting::NotMatched),
                    };
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => {
                    return match self.trip(assignment_id).await? {
                        Some(there) => started_before(&trip, there),
                        None => Err(fault.into()),
                    };
                }
            }
        }
        Err(DispatchError::Contended)
    }

    fn begin(&self, trip: &TripExecutionState) -> Result<Vec<TransactWriteItem>, CloudError> {
        let put = Put::builder()
            .table_name(self.table("trips"))
            .set_item(Some(to_item(trip)?))
            .condition_expression(TRIP_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let begun = Update::builder()
            .table_name(self.table("rides"))
            .key("ride_id", s(&trip.ride_id))
            .update_expression(RIDE_UPDATE)
            .condition_expression(RIDE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":matched", s("MATCHED"))
            .expression_attribute_values(":assignment", s(&trip.assignment_id))
            .expression_attribute_values(":driver", s(&trip.driver_id));
        let (put, begun) = (put.build(), begun.build());
        Ok(vec![
            TransactWriteItem::builder()
                .put(put.map_err(CloudError::bug)?)
                .build(),
            TransactWriteItem::builder()
                .update(begun.map_err(CloudError::bug)?)
                .build(),
        ])
    }
}

fn started_before(
    trip: &TripExecutionState,
    there: TripExecutionState,
) -> Result<Starting, DispatchError> {
    if there.driver_id == trip.driver_id {
        Ok(Starting::Before(there))
    } else {
        Err(DispatchError::NotYours(trip.assignment_id.clone()))
    }
}
