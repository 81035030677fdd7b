//! Reject: the driver's no. The offer ends, the driver is AVAILABLE, the ride is OPEN for the next
//! candidate, and remembers who said no.

use crate::accept::TooLate;
use crate::domain::{
    AssignmentStatus, DriverAssignmentState, DriverStatus, RideStatus, is_offer_id, text,
};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, pause, s};
use cloud::{CloudError, Transaction};

/// What became of a no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rejecting {
    /// This call ended the offer.
    Rejected,
    /// It was rejected before, by this driver.
    Before,
    /// There was nothing to say no to any more.
    Refused(TooLate),
}

/// Still asked. No look at the time: a no is a no, also when it is late.
const ASSIGNMENT_GUARD: &str = "driver_id = :driver AND #status = :proposed";
const ASSIGNMENT_UPDATE: &str = "SET #status = :rejected";

impl Dispatch {
    /// The driver says no.
    pub async fn reject(
        &self,
        driver_id: &str,
        assignment_id: &str,
    ) -> Result<Rejecting, DispatchError> {
        text("driver_id", driver_id)?;
        if !is_offer_id(assignment_id) {
            return Err(DispatchError::UnknownAssignment(assignment_id.to_owned()));
        }
        let mut late = Err(DispatchError::Contended);
        for attempt in 0..crate::items::ATTEMPTS {
            let say_no = Update::builder()
                .table_name(self.table("assignments"))
                .key("assignment_id", s(assignment_id))
                .update_expression(ASSIGNMENT_UPDATE)
                .condition_expression(ASSIGNMENT_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":driver", s(driver_id))
                .expression_attribute_values(":proposed", s("PROPOSED"))
                .expression_attribute_values(":rejected", s("REJECTED"))
                .return_values_on_condition_check_failure(
                    ReturnValuesOnConditionCheckFailure::AllOld,
                );
            let say_no = say_no.build().map_err(CloudError::bug)?;
            let (from, now) = (RideStatus::Matching, self.now());
            let items = vec![
                TransactWriteItem::builder().update(say_no).build(),
                self.reopen_ride(driver_id, assignment_id, from, now, None)?,
                self.free_driver(driver_id, assignment_id, DriverStatus::Offered)?,
            ];
            let names = ["assignment", "ride", "driver"];
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    self.unlock_driver(driver_id, assignment_id).await;
                    return Ok(Rejecting::Rejected);
                }
                Ok(Transaction::Cancelled(cancelled)) => {
                    let there: Option<DriverAssignmentState> = match cancelled.failed("assignment")
                    {
                        Some(old) => old.map(from_item).transpose()?,
                        // Another transaction may have the offer, even this driver's first no.
                        // What ride and driver say meanwhile decides nothing: the offer does.
                        None => self.assignment(assignment_id).await?,
                    };
                    let open = |there: &DriverAssignmentState| {
                        there.driver_id == driver_id && there.status == AssignmentStatus::Proposed
                    };
                    if !there.as_ref().is_some_and(open) {
                        return self.rejected(driver_id, assignment_id, there).await;
                    }
                    late = Ok(Rejecting::Refused(TooLate::Reassigned));
                    pause(attempt).await;
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => {
                    let there = self.assignment(assignment_id).await?;
                    return match self.rejected(driver_id, assignment_id, there).await? {
                        Rejecting::Before => Ok(Rejecting::Before),
                        _ => Err(fault.into()),
                    };
                }
            }
        }
        late
    }

    /// What the offer itself says to a no.
    async fn rejected(
        &self,
        driver_id: &str,
        assignment_id: &str,
        there: Option<DriverAssignmentState>,
    ) -> Result<Rejecting, DispatchError> {
        let Some(there) = there else {
            return Err(DispatchError::UnknownAssignment(assignment_id.to_owned()));
        };
        if there.driver_id != driver_id {
            return Err(DispatchError::NotYours(assignment_id.to_owned()));
        }
        if there.status == AssignmentStatus::Rejected {
            // Whoever said no may have died before the lock was let go.
            self.unlock_driver(driver_id, assignment_id).await;
            return Ok(Rejecting::Before);
        }
        Ok(Rejecting::Refused(TooLate::of(there.status)))
    }
}
