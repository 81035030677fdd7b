//! Cancel, at every point: by the rider, and by the driver after a yes.
//!
//! Whatever the ride is bound to at that moment goes with it in one transaction: the offer or the
//! match, the driver, the trip. A trip that has not begun is part of it too, by a check that it has
//! not: otherwise one could begin between the read and the write, for a ride that is over.
//!
//! A driver who gives a ride back before the pickup leaves it OPEN for the next candidate. After the
//! pickup there is nobody to pick up any more: the ride is CANCELLED.

use crate::accept::TooLate;
use crate::domain::{
    AssignmentStatus, DriverAssignmentState, DriverStatus, RideRequestState, RideStatus,
    TripExecutionState, TripStatus, is_offer_id, ride_of, text,
};
use crate::{Dispatch, DispatchError, Rejecting};
use aws_sdk_dynamodb::types::{
    ConditionCheck, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Transaction};

/// What became of cancelling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cancelling {
    /// This call ended it. The ride's status after it.
    Cancelled(RideStatus),
    /// The ride had ended before, this way.
    Over(RideStatus),
    /// The ride was driven to its end.
    Completed,
    /// There is no accepted assignment to give back.
    Refused(TooLate),
}

/// The ride where it was read. What it is bound to has a guard of its own.
const RIDE_GUARD: &str = "#status = :from";
const RIDE_UPDATE: &str = "SET #status = :cancelled REMOVE due_shard, due_at";

/// The offer that is out, or the match that was made.
const ASSIGNMENT_GUARD: &str = "driver_id = :driver AND #status = :from";
const ASSIGNMENT_UPDATE: &str = "SET #status = :to";

/// The trip where it was read, or none yet.
const TRIP_GUARD: &str = "#status = :from";
const TRIP_UPDATE: &str = "SET #status = :cancelled, since = :now";
const NO_TRIP_GUARD: &str = "attribute_not_exists(assignment_id)";

impl Dispatch {
    /// The rider gives up, at any point before the end of the trip.
    pub async fn cancel_ride(&self, ride_id: &str) -> Result<Cancelling, DispatchError> {
        for attempt in 0..crate::items::ATTEMPTS {
            let ride = self.known_ride(ride_id).await?;
            let bound = match (ride.status, &ride.current_assignment, &ride.driver_id) {
                (RideStatus::Cancelled | RideStatus::NoDrivers, ..) => {
                    return Ok(Cancelling::Over(ride.status));
                }
                (RideStatus::Open, ..) => None,
                (_, Some(assignment), Some(driver)) => Some((assignment, driver)),
                _ => return Err(CloudError::corrupt("a ride is bound to nobody").into()),
            };
            let mut items = vec![self.close_ride(&ride)?];
            let mut names = vec!["ride"];
            if let Some((assignment, driver)) = bound {
                let [offer, driving] = match ride.status {
                    RideStatus::Matching => {
                        let ends = (AssignmentStatus::Proposed, AssignmentStatus::Withdrawn);
                        [
                            self.end_assignment(assignment, driver, ends)?,
                            self.free_driver(driver, assignment, DriverStatus::Offered)?,
                        ]
                    }
                    _ => {
                        let trip = self.trip(assignment).await?;
                        if trip.as_ref().map(|trip| trip.status) == Some(TripStatus::Completed) {
                            return Ok(Cancelling::Completed);
                        }
                        items.push(self.end_trip(assignment, trip.as_ref())?);
                        names.push("trip");
                        let ends = (AssignmentStatus::Accepted, AssignmentStatus::Cancelled);
                        [
                            self.end_assignment(assignment, driver, ends)?,
                            self.free_driver(driver, assignment, DriverStatus::Assigned)?,
                        ]
                    }
                };
                items.extend([offer, driving]);
                names.extend(["assignment", "driver"]);
            }
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    if let Some((assignment, driver)) = bound {
                        self.unlock_driver(driver, assignment).await;
                    }
                    return Ok(Cancelling::Cancelled(RideStatus::Cancelled));
                }
                // Something moved since it was read.
                Ok(Transaction::Cancelled(_)) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // It may have been made. The ride says.
                Err(fault) => {
                    let there = self.known_ride(ride_id).await?.status;
                    return match there {
                        RideStatus::Cancelled => Ok(Cancelling::Over(there)),
                        _ => Err(fault.into()),
                    };
                }
            }
        }
        Err(DispatchError::Contended)
    }

    /// The driver gives a ride back. Before a yes, that is a no.
    pub async fn cancel_assignment(
        &self,
        driver_id: &str,
        assignment_id: &str,
    ) -> Result<Cancelling, DispatchError> {
        text("driver_id", driver_id)?;
        if !is_offer_id(assignment_id) {
            return Err(DispatchError::UnknownAssignment(assignment_id.to_owned()));
        }
        for attempt in 0..crate::items::ATTEMPTS {
            let now = self.now();
            let ride = self.known_ride(ride_of(assignment_id)).await?;
            let trip = self.trip(assignment_id).await?;
            let status = trip.as_ref().map(|trip| trip.status);
            if status == Some(TripStatus::Completed) {
                return Ok(Cancelling::Completed);
            }
            let aboard = status.is_some_and(TripStatus::has_rider);
            let from = (AssignmentStatus::Accepted, AssignmentStatus::Cancelled);
            let items = vec![
                self.end_assignment(assignment_id, driver_id, from)?,
                if aboard {
                    self.close_ride(&ride)?
                } else {
                    let until = Some(now + self.rules.search_ms);
                    let matched = RideStatus::Matched;
                    self.reopen_ride(driver_id, assignment_id, matched, now, until)?
                },
                self.free_driver(driver_id, assignment_id, DriverStatus::Assigned)?,
                self.end_trip(assignment_id, trip.as_ref())?,
            ];
            let names = ["assignment", "ride", "driver", "trip"];
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    self.unlock_driver(driver_id, assignment_id).await;
                    return Ok(Cancelling::Cancelled(match aboard {
                        true => RideStatus::Cancelled,
                        false => RideStatus::Open,
                    }));
                }
                Ok(Transaction::Cancelled(cancelled)) => {
                    let Some(old) = cancelled.failed("assignment") else {
                        // The trip moved on, or began, or somebody has the offer.
                        pause(attempt).await;
                        continue;
                    };
                    let there = old.map(from_item::<DriverAssignmentState>).transpose()?;
                    let Some(there) = there else {
                        let id = assignment_id.to_owned();
                        return Err(DispatchError::UnknownAssignment(id));
                    };
                    if there.driver_id != driver_id {
                        return Err(DispatchError::NotYours(assignment_id.to_owned()));
                    }
                    if there.status == AssignmentStatus::Cancelled {
                        let ride = self.known_ride(ride_of(assignment_id)).await?;
                        return Ok(Cancelling::Over(ride.status));
                    }
                    if there.status != AssignmentStatus::Proposed {
                        return Ok(Cancelling::Refused(TooLate::of(there.status)));
                    }
                    return Ok(match self.reject(driver_id, assignment_id).await? {
                        Rejecting::Refused(TooLate::Accepted) => continue,
                        Rejecting::Refused(late) => Cancelling::Refused(late),
                        _ => Cancelling::Cancelled(RideStatus::Open),
                    });
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => {
                    let there = self.assignment(assignment_id).await?;
                    let ours = |there: &DriverAssignmentState| {
                        there.driver_id == driver_id && there.status == AssignmentStatus::Cancelled
                    };
                    if !there.as_ref().is_some_and(ours) {
                        return Err(fault.into());
                    }
                    let ride = self.known_ride(ride_of(assignment_id)).await?;
                    return Ok(Cancelling::Over(ride.status));
                }
            }
        }
        Err(DispatchError::Contended)
    }

    fn close_ride(&self, ride: &RideRequestState) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("rides"))
            .key("ride_id", s(&ride.ride_id))
            .update_expression(RIDE_UPDATE)
            .condition_expression(RIDE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", s(ride.status.word()))
            .expression_attribute_values(":cancelled", s("CANCELLED"));
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    fn end_assignment(
        &self,
        assignment_id: &str,
        driver_id: &str,
        (from, to): (AssignmentStatus, AssignmentStatus),
    ) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("assignments"))
            .key("assignment_id", s(assignment_id))
            .update_expression(ASSIGNMENT_UPDATE)
            .condition_expression(ASSIGNMENT_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":driver", s(driver_id))
            .expression_attribute_values(":from", s(from.word()))
            .expression_attribute_values(":to", s(to.word()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// The trip as it was read is CANCELLED; one that had not begun must not have.
    fn end_trip(
        &self,
        assignment_id: &str,
        trip: Option<&TripExecutionState>,
    ) -> Result<TransactWriteItem, CloudError> {
        let Some(trip) = trip else {
            let check = ConditionCheck::builder()
                .table_name(self.table("trips"))
                .key("assignment_id", s(assignment_id))
                .condition_expression(NO_TRIP_GUARD);
            let check = check.build().map_err(CloudError::bug)?;
            return Ok(TransactWriteItem::builder().condition_check(check).build());
        };
        let update = Update::builder()
            .table_name(self.table("trips"))
            .key("assignment_id", s(assignment_id))
            .update_expression(TRIP_UPDATE)
            .condition_expression(TRIP_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", s(trip.status.word()))
            .expression_attribute_values(":cancelled", s("CANCELLED"))
            .expression_attribute_values(":now", n(self.now()));
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}
