//! Propose a driver: one offer, to one driver, for one ride.
//!
//! Never "ask many and take the first": a driver who is asked is kept for this ride until the answer
//! or the end of the offer. So the offer, the ride and the driver change together. The ride must
//! still be OPEN with the number of offers that was read, the driver AVAILABLE: at most one open
//! offer for each of them, whoever else is proposing.

use crate::domain::{
    AssignmentStatus, Candidate, DriverAssignmentState, RideRequestState, ride_of,
};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{
    Put, ReturnValuesOnConditionCheckFailure, TransactWriteItem, Update,
};
use cloud::item::{from_item, n, pause, s, to_item};
use cloud::{CloudError, Transaction};

/// What became of a proposal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proposing {
    /// The driver has been asked.
    Proposed(DriverAssignmentState),
    /// The driver is not AVAILABLE any more.
    DriverBusy,
    /// Somebody else is asking this driver, says the lock. DynamoDB was not asked.
    Locked,
    /// The ride is not what it was: somebody else looks after it, or it has ended.
    Overtaken,
}

/// An offer is made once.
const ASSIGNMENT_GUARD: &str = "attribute_not_exists(assignment_id)";

/// Still the ride that was read: no other offer since, no end.
const RIDE_GUARD: &str = "#status = :open AND offers_made = :seen";
const RIDE_UPDATE: &str = "SET #status = :matching, offers_made = :made, \
     current_assignment = :assignment, driver_id = :driver, due_at = :until";

/// Nobody else's driver, neither by an offer nor by a ride.
const DRIVER_GUARD: &str = "#status = :available";
const DRIVER_UPDATE: &str = "SET #status = :offered, assignment_id = :assignment, \
     offer_expires_at = :until";

impl Dispatch {
    /// Asks a driver, if the lock is free.
    pub async fn propose(
        &self,
        ride: &RideRequestState,
        candidate: &Candidate,
    ) -> Result<Proposing, DispatchError> {
        let assignment_id = ride.next_assignment();
        // The last offer to this driver is over, and nobody has said so yet. If it cannot be ended,
        // that is its own ride's trouble, and this ride asks somebody else.
        if let Some(over) = &candidate.over
            && Box::pin(self.expire_offer(ride_of(over))).await.is_err()
        {
            return Ok(Proposing::DriverBusy);
        }
        if !self.lock_driver(&candidate.driver_id, &assignment_id).await {
            return Ok(Proposing::Locked);
        }
        let proposed = self.propose_unlocked(ride, candidate).await;
        if !matches!(proposed, Ok(Proposing::Proposed(_))) {
            // A lock without an offer only keeps others away. Who dies before this leaves it to
            // expire; should there be an offer after all, its lock is missed only by the bill.
            self.unlock_driver(&candidate.driver_id, &assignment_id)
                .await;
        }
        proposed
    }

    /// Asks a driver, whatever the lock says.
    pub async fn propose_unlocked(
        &self,
        ride: &RideRequestState,
        candidate: &Candidate,
    ) -> Result<Proposing, DispatchError> {
        for attempt in 0..crate::items::ATTEMPTS {
            let now = self.now();
            let offer = DriverAssignmentState {
                assignment_id: ride.next_assignment(),
                ride_id: ride.ride_id.clone(),
                driver_id: candidate.driver_id.clone(),
                status: AssignmentStatus::Proposed,
                pickup_s: candidate.pickup_s,
                offer_expires_at: now + self.rules.offer_ms,
                proposed_at: now,
            };
            let names = ["assignment", "ride", "driver"];
            match self.cloud.transact(&names, self.offer(ride, &offer)?).await {
                Ok(Transaction::Committed(_)) => return Ok(Proposing::Proposed(offer)),
                Ok(Transaction::Cancelled(cancelled)) => {
                    if let Some(Some(old)) = cancelled.failed("assignment") {
                        return Ok(ours(&offer, from_item(old)?));
                    }
                    if cancelled.failed("ride").is_some() {
                        return Ok(Proposing::Overtaken);
                    }
                    return Ok(Proposing::DriverBusy);
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // It may have been made. Ask by the identity it carried.
                Err(fault) => {
                    return match self.assignment(&offer.assignment_id).await? {
                        Some(there) => Ok(ours(&offer, there)),
                        None => Err(fault.into()),
                    };
                }
            }
        }
        Err(DispatchError::Contended)
    }

    fn offer(
        &self,
        ride: &RideRequestState,
        offer: &DriverAssignmentState,
    ) -> Result<Vec<TransactWriteItem>, CloudError> {
        let put = Put::builder()
            .table_name(self.table("assignments"))
            .set_item(Some(to_item(offer)?))
            .condition_expression(ASSIGNMENT_GUARD)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        let match_ride = Update::builder()
            .table_name(self.table("rides"))
            .key("ride_id", s(&ride.ride_id))
            .update_expression(RIDE_UPDATE)
            .condition_expression(RIDE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":seen", n(ride.offers_made))
            .expression_attribute_values(":matching", s("MATCHING"))
            .expression_attribute_values(":made", n(ride.offers_made + 1))
            .expression_attribute_values(":assignment", s(&offer.assignment_id))
            .expression_attribute_values(":driver", s(&offer.driver_id))
            .expression_attribute_values(":until", n(offer.offer_expires_at));
        let keep_driver = Update::builder()
            .table_name(self.table("drivers"))
            .key("driver_id", s(&offer.driver_id))
            .update_expression(DRIVER_UPDATE)
            .condition_expression(DRIVER_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":available", s("AVAILABLE"))
            .expression_attribute_values(":offered", s("OFFERED"))
            .expression_attribute_values(":assignment", s(&offer.assignment_id))
            .expression_attribute_values(":until", n(offer.offer_expires_at));
        let put = put.build().map_err(CloudError::bug)?;
        let match_ride = match_ride.build().map_err(CloudError::bug)?;
        let keep_driver = keep_driver.build().map_err(CloudError::bug)?;
        let part = TransactWriteItem::builder;
        Ok(vec![
            part().put(put).build(),
            part().update(match_ride).build(),
            part().update(keep_driver).build(),
        ])
    }
}

/// An offer under our id: ours, or that of somebody who was faster.
fn ours(offer: &DriverAssignmentState, there: DriverAssignmentState) -> Proposing {
    if there.driver_id == offer.driver_id {
        Proposing::Proposed(there)
    } else {
        Proposing::Overtaken
    }
}
