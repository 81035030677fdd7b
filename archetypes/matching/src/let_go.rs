//! Let go: what every end of an offer or of a match does to the driver, and to a ride that goes on.
//!
//! Only if they are still bound to this very assignment. Both stand in one transaction with the
//! assignment's own change, so a driver is AVAILABLE again in the moment an offer ends, by whatever
//! way.

use crate::Dispatch;
use crate::domain::{DriverStatus, RideStatus, ride_of};
use aws_sdk_dynamodb::types::{AttributeValue, TransactWriteItem, Update};
use cloud::item::{n, s};
use cloud::{CloudError, Millis};

/// Asked about, or driving for, this very assignment.
const DRIVER_GUARD: &str = "#status = :from AND assignment_id = :assignment";
const DRIVER_UPDATE: &str = "SET #status = :available REMOVE assignment_id, offer_expires_at";

/// Waiting for, or matched by, this very assignment.
const RIDE_GUARD: &str = "#status = :from AND current_assignment = :assignment";

/// The next candidate is looked for at once, and this driver is not asked again.
const RIDE_UPDATE: &str = "SET #status = :open, due_shard = :shard, due_at = :now \
     ADD refused_by :driver REMOVE current_assignment, driver_id";

/// The same, with time to look for drivers: a match that is given back may be an hour old.
const RIDE_AGAIN_UPDATE: &str = "SET #status = :open, due_shard = :shard, due_at = :now, \
     search_until = :search_until ADD refused_by :driver REMOVE current_assignment, driver_id";

impl Dispatch {
    /// The driver is AVAILABLE again.
    pub(crate) fn free_driver(
        &self,
        driver_id: &str,
        assignment_id: &str,
        from: DriverStatus,
    ) -> Result<TransactWriteItem, CloudError> {
        let update = Update::builder()
            .table_name(self.table("drivers"))
            .key("driver_id", s(driver_id))
            .update_expression(DRIVER_UPDATE)
            .condition_expression(DRIVER_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", s(from.word()))
            .expression_attribute_values(":assignment", s(assignment_id))
            .expression_attribute_values(":available", s("AVAILABLE"));
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }

    /// The ride is OPEN again, if it must, with a new end of the search.
    pub(crate) fn reopen_ride(
        &self,
        driver_id: &str,
        assignment_id: &str,
        from: RideStatus,
        now: Millis,
        search_until: Option<Millis>,
    ) -> Result<TransactWriteItem, CloudError> {
        let ride_id = ride_of(assignment_id);
        let update = Update::builder()
            .table_name(self.table("rides"))
            .key("ride_id", s(ride_id))
            .condition_expression(RIDE_GUARD)
            .expression_attribute_names("#status", "status")
            .expression_attribute_values(":from", s(from.word()))
            .expression_attribute_values(":assignment", s(assignment_id))
            .expression_attribute_values(":open", s("OPEN"))
            .expression_attribute_values(":shard", s(crate::tables::due_shard(ride_id)))
            .expression_attribute_values(":now", n(now))
            .expression_attribute_values(":driver", AttributeValue::Ss(vec![driver_id.to_owned()]));
        let update = match search_until {
            None => update.update_expression(RIDE_UPDATE),
            Some(until) => update
                .update_expression(RIDE_AGAIN_UPDATE)
                .expression_attribute_values(":search_until", n(until)),
        };
        let update = update.build().map_err(CloudError::bug)?;
        Ok(TransactWriteItem::builder().update(update).build())
    }
}
