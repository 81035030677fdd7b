//! Accept: the driver's yes makes the match, in one transaction over offer, ride and driver.
//!
//! The offer must still be PROPOSED and its time not over; it must be the ride's current one; and it
//! must be what the driver is asked about. A late yes fails on the first, a yes after a reassignment
//! on the second, a second ride for the same driver on the third. Nothing has to be read before: the
//! refusal brings the offer as it is.

use crate::domain::{AssignmentStatus, DriverAssignmentState, is_offer_id, ride_of, text};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update};
use cloud::item::{from_item, n, pause, s};
use cloud::{CloudError, Millis, Transaction};

/// What became of a yes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Accepting {
    /// This call made the match.
    Accepted,
    /// It was accepted before, by this driver.
    Before,
    /// Too late, and why.
    Refused(TooLate),
}

/// Why an offer cannot be answered any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TooLate {
    /// Its time was over.
    #[error("the offer has expired")]
    Expired,
    /// The driver said no before.
    #[error("the offer was rejected")]
    Rejected,
    /// The driver said yes before.
    #[error("the offer was accepted")]
    Accepted,
    /// The rider gave up.
    #[error("the rider has cancelled")]
    Withdrawn,
    /// Given back after a yes.
    #[error("the assignment was cancelled")]
    Cancelled,
    /// The ride or the driver is not bound to this offer any more.
    #[error("the ride goes on without this offer")]
    Reassigned,
}

impl TooLate {
    /// What an offer says by its status. PROPOSED, and yet too late: its time is over.
    pub(crate) fn of(status: AssignmentStatus) -> Self {
        match status {
            AssignmentStatus::Proposed | AssignmentStatus::Expired => Self::Expired,
            AssignmentStatus::Accepted => Self::Accepted,
            AssignmentStatus::Rejected => Self::Rejected,
            AssignmentStatus::Withdrawn => Self::Withdrawn,
            AssignmentStatus::Cancelled => Self::Cancelled,
        }
    }
}

/// Asked, by this offer, and in time.
const ASSIGNMENT_GUARD: &str =
    "driver_id = :driver AND #status = :proposed AND offer_expires_at > :now";
const ASSIGNMENT_UPDATE: &str = "SET #status = :accepted";

/// The ride waits for this very answer. A trip that nobody starts is the sweeper's to start.
const RIDE_GUARD: &str = "#status = :matching AND current_assignment = :assignment";
const RIDE_UPDATE: &str = "SET #status = :matched, due_at = :start_by";

/// The driver is kept for this very offer.
const DRIVER_GUARD: &str = "#status = :offered AND assignment_id = :assignment";
const DRIVER_UPDATE: &str = "SET #status = :assigned REMOVE offer_expires_at";

impl Dispatch {
    /// The driver says yes. Any number of times: it is accepted once.
    pub async fn accept(
        &self,
        driver_id: &str,
        assignment_id: &str,
    ) -> Result<Accepting, DispatchError> {
        text("driver_id", driver_id)?;
        if !is_offer_id(assignment_id) {
            return Err(DispatchError::UnknownAssignment(assignment_id.to_owned()));
        }
        let mut late = Err(DispatchError::Contended);
        for attempt in 0..crate::items::ATTEMPTS {
            let now = self.now();
            let items = self.match_all(driver_id, assignment_id, now)?;
            let names = ["assignment", "ride", "driver"];
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    // There is no offer any more that a lock could keep others from.
                    self.unlock_driver(driver_id, assignment_id).await;
                    return Ok(Accepting::Accepted);
                }
                Ok(Transaction::Cancelled(cancelled)) => {
                    let decides = cancelled.failed("assignment");
                    let there: Option<DriverAssignmentState> = match decides {
                        Some(old) => old.map(from_item).transpose()?,
                        // Another transaction may have the offer, even this driver's first yes.
                        // What ride and driver say meanwhile decides nothing: the offer does.
                        None => self.assignment(assignment_id).await?,
                    };
                    let open = |there: &DriverAssignmentState| {
                        there.driver_id == driver_id && there.status == AssignmentStatus::Proposed
                    };
                    if decides.is_some() || !there.as_ref().is_some_and(open) {
                        return answered(driver_id, assignment_id, there);
                    }
                    late = Ok(Accepting::Refused(TooLate::Reassigned));
                    pause(attempt).await;
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // It may have been made. The offer says.
                Err(fault) => {
                    let there = self.assignment(assignment_id).await?;
                    return match answered(driver_id, assignment_id, there)? {
                        Accepting::Before => Ok(Accepting::Before),
                        _ => Err(fault.into()),
                    };
                }
            }
        }
        late
    }

    fn match_all(
        &self,
        driver_id: &str,
        assignment_id: &str,
        now: Millis,
    ) -> Result<Vec<TransactWriteItem>, CloudError> {
        let say_yes = Update::builder()
            .table_name(self.table("assignments"))
            .key("assignment_id", s(assignment_id))
            .update_expression(ASSIGNMENT_UPDATE)
            .condition_expression(ASSIGNMENT_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":driver", s(driver_id))
            .expression_attribute_values(":proposed", s("PROPOSED"))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":accepted", s("ACCEPTED"))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let match_ride = Update::builder()
            .table_name(self.table("rides"))
            .key("ride_id", s(ride_of(assignment_id)))
            .update_expression(RIDE_UPDATE)
            .condition_expression(RIDE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":matching", s("MATCHING"))
            .expression_attribute_values(":assignment", s(assignment_id))
            .expression_attribute_values(":matched", s("MATCHED"))
            .expression_attribute_values(":start_by", n(now + self.rules.start_ms));
        let bind_driver = Update::builder()
            .table_name(self.table("drivers"))
            .key("driver_id", s(driver_id))
            .update_expression(DRIVER_UPDATE)
            .condition_expression(DRIVER_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":offered", s("OFFERED"))
            .expression_attribute_values(":assignment", s(assignment_id))
            .expression_attribute_values(":assigned", s("ASSIGNED"));
        [say_yes, match_ride, bind_driver]
            .into_iter()
            .map(|update| {
                let update = update.build().map_err(CloudError::bug)?;
                Ok(TransactWriteItem::builder().update(update).build())
            })
            .collect()
    }
}

/// What the offer itself says to a yes.
fn answered(
    driver_id: &str,
    assignment_id: &str,
    there: Option<DriverAssignmentState>,
) -> Result<Accepting, DispatchError> {
    let Some(there) = there else {
        return Err(DispatchError::UnknownAssignment(assignment_id.to_owned()));
    };
    if there.driver_id != driver_id {
        return Err(DispatchError::NotYours(assignment_id.to_owned()));
    }
    Ok(match there.status {
        AssignmentStatus::Accepted => Accepting::Before,
        status => Accepting::Refused(TooLate::of(status)),
    })
}
