//! Advance and complete a trip: forward only, one state at a time, each named by the driver's app.
//!
//! The app says where the trip is now, not "next": a request that is sent twice must not move it
//! twice. The last step also sets the driver free, in the same transaction.

use crate::domain::{BadInput, DriverStatus, TripExecutionState, TripStatus, is_offer_id, text};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Guard, Guarded, Item, Transaction};

/// What became of moving a trip on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Moving {
    /// This call moved it.
    Moved,
    /// It is there already, or beyond.
    Before(TripStatus),
    /// It cannot get there from where it is.
    Refused(TripStatus),
}

/// In the one state that comes before. So it moves forward, one step at a time, and once.
const TRIP_GUARD: &str = "driver_id = :driver AND #status = :from";
const TRIP_UPDATE: &str = "SET #status = :to, since = :now";

impl Dispatch {
    /// Moves a trip to ARRIVED, PICKED_UP, IN_PROGRESS or COMPLETED.
    pub async fn advance_trip(
        &self,
        driver_id: &str,
        assignment_id: &str,
        to: TripStatus,
    ) -> Result<Moving, DispatchError> {
        text("driver_id", driver_id)?;
        if !is_offer_id(assignment_id) {
            return Err(DispatchError::UnknownTrip(assignment_id.to_owned()));
        }
        let from = to.before().ok_or(BadInput::Move(to.word()))?;
        for attempt in 0..crate::items::ATTEMPTS {
            let moved = match to {
                TripStatus::Completed => self.complete(driver_id, assignment_id).await,
                _ => self.forward(driver_id, assignment_id, from, to).await,
            };
            let there: Option<TripExecutionState> = match moved {
                Ok(Ok(())) => return Ok(Moving::Moved),
                Ok(Err(old)) => old.map(|old| from_item(&old)).transpose()?,
                Err(CloudError::Conflict(_)) => {
                    pause(attempt).await;
                    continue;
                }
                // It may have been made. The trip says.
                Err(fault) => match self.trip(assignment_id).await? {
                    Some(there) if there.status == to => Some(there),
                    _ => return Err(fault.into()),
                },
            };
            let Some(there) = there else {
                return Err(DispatchError::UnknownTrip(assignment_id.to_owned()));
            };
            if there.driver_id != driver_id {
                return Err(DispatchError::NotYours(assignment_id.to_owned()));
            }
            let beyond = there.status >= to && there.status != TripStatus::Cancelled;
            return Ok(match beyond {
                true => Moving::Before(there.status),
                false => Moving::Refused(there.status),
            });
        }
        Err(DispatchError::Contended)
    }

    /// One step that concerns nobody but the trip. The trip as it was, if the guard failed.
    async fn forward(
        &self,
        driver_id: &str,
        assignment_id: &str,
        from: TripStatus,
        to: TripStatus,
    ) -> Result<Result<(), Option<Item>>, CloudError> {
        let moved = self
            .dynamodb()
            .update_item()
            .table_name(self.table("trips"))
            .key("assignment_id", s(assignment_id))
            .update_expression(TRIP_UPDATE)
            .condition_expression(TRIP_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":driver", s(driver_id))
            .expression_attribute_values(":from", s(from.word()))
            .expression_attribute_values(":to", s(to.word()))
            .expression_attribute_values(":now", n(self.now()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await
            .guarded()?;
        Ok(match moved {
            Guard::Passed(_) => Ok(()),
            Guard::Failed(old) => Err(old),
        })
    }

    /// The last step: the driver is AVAILABLE with it.
    async fn complete(
        &self,
        driver_id: &str,
        assignment_id: &str,
    ) -> Result<Result<(), Option<Item>>, CloudError> {
        let arrive = Update::builder()
            .table_name(self.table("trips"))
            .key("assignment_id", s(assignment_id))
            .update_expression(TRIP_UPDATE)
            .condition_expression(TRIP_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":driver", s(driver_id))
            .expression_attribute_values(":from", s("IN_PROGRESS"))
            .expression_attribute_values(":to", s("COMPLETED"))
            .expression_attribute_values(":now", n(self.now()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let arrive = arrive.build().map_err(CloudError::bug)?;
        let items = vec![
            TransactWriteItem::builder().update(arrive).build(),
            self.free_driver(driver_id, assignment_id, DriverStatus::Assigned)?,
        ];
        match self.cloud.transact(&["trip", "driver"], items).await? {
            Transaction::Committed(_) => Ok(Ok(())),
            Transaction::Cancelled(cancelled) => match cancelled.failed("trip") {
                Some(old) => Ok(Err(old.cloned())),
                // Another transaction may have the trip, even this driver's first arrival, and the
                // driver is free by it. That decides nothing: the trip does, when it can be asked.
                None => Err(CloudError::Conflict("somebody has the trip".to_owned())),
            },
        }
    }
}
