//! Expire: an offer that nobody answered ends, and the ride goes on.
//!
//! Nobody can accept it any more, expired or not: a yes carries its time. The sweeper only writes
//! that down, frees the driver and opens the ride for the next candidate. It finds rides through a
//! sparse index, believes the index nothing, and acts on the ride it read.

use crate::domain::{DriverStatus, RideStatus};
use crate::tables::DUE_SHARDS;
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::{TransactWriteItem, Update};
use cloud::item::{n, pause, s};
use cloud::{CloudError, Millis, Transaction};

/// What became of an offer that a sweeper looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expiry {
    /// This call ended it.
    Expired,
    /// Its time is not over.
    NotDue {
        /// When it will be.
        until: Millis,
    },
    /// There is no open offer any more.
    Over(RideStatus),
}

/// Never answered, and over. The time does not change while an offer lives, but the ride that was
/// read says only when its own offer ends: the offer itself has to agree.
const ASSIGNMENT_GUARD: &str = "#status = :proposed AND offer_expires_at <= :now";
const ASSIGNMENT_UPDATE: &str = "SET #status = :expired";

const DUE: &str = "due_shard = :shard AND due_at <= :now";

impl Dispatch {
    /// Ends a ride's open offer, if its time is over.
    pub async fn expire_offer(&self, ride_id: &str) -> Result<Expiry, DispatchError> {
        for attempt in 0..crate::items::ATTEMPTS {
            // The time before the read: what is not over then is left alone.
            let now = self.now();
            let ride = self.known_ride(ride_id).await?;
            if ride.status != RideStatus::Matching {
                return Ok(Expiry::Over(ride.status));
            }
            let (Some(offer), Some(driver), Some(until)) =
                (&ride.current_assignment, &ride.driver_id, ride.due_at)
            else {
                let text = format!("the ride '{ride_id}' is MATCHING with nobody");
                return Err(CloudError::Corrupt(text).into());
            };
            if until > now {
                return Ok(Expiry::NotDue { until });
            }
            let end = Update::builder()
                .table_name(self.table("assignments"))
                .key("assignment_id", s(offer))
                .update_expression(ASSIGNMENT_UPDATE)
                .condition_expression(ASSIGNMENT_GUARD)
                .expression_attribute_names("#status", "status")
                .expression_attribute_values(":proposed", s("PROPOSED"))
                .expression_attribute_values(":now", n(now))
                .expression_attribute_values(":expired", s("EXPIRED"));
            let end = end.build().map_err(CloudError::bug)?;
            let items = vec![
                TransactWriteItem::builder().update(end).build(),
                self.reopen_ride(driver, offer, RideStatus::Matching, now, None)?,
                self.free_driver(driver, offer, DriverStatus::Offered)?,
            ];
            let names = ["assignment", "ride", "driver"];
            match self.cloud.transact(&names, items).await {
                Ok(Transaction::Committed(_)) => {
                    self.unlock_driver(driver, offer).await;
                    return Ok(Expiry::Expired);
                }
                // An answer came first, or another sweeper: the ride says.
                Ok(Transaction::Cancelled(_)) => {}
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                // It may have been made. Whoever sweeps next sees: an expiry has no one who waits
                // for its answer.
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(DispatchError::Contended)
    }

    /// The rides that the index says need a look, all shards, all pages.
    pub async fn due_rides(&self, now: Millis) -> Result<Vec<String>, CloudError> {
        match self.look_for_due(now).await {
            (_, Some(fault)) => Err(fault),
            (found, None) => Ok(found),
        }
    }

    /// The same as far as it can be read, and the first fault: a shard that is throttled keeps no
    /// other.
    pub(crate) async fn look_for_due(&self, now: Millis) -> (Vec<String>, Option<CloudError>) {
        let mut found = Vec::new();
        let mut fault = None;
        for shard in 0..DUE_SHARDS {
            let mut pages = self
                .dynamodb()
                .query()
                .table_name(self.table("rides"))
                .index_name("due")
                .key_condition_expression(DUE)
                .expression_attribute_values(":shard", s(format!("due-{shard}")))
                .expression_attribute_values(":now", n(now))
                .into_paginator()
                .items()
                .send();
            while let Some(item) = pages.next().await {
                let item = match item {
                    Ok(item) => item,
                    Err(error) => {
                        fault.get_or_insert(CloudError::from(error));
                        break;
                    }
                };
                let id = item.get("ride_id").and_then(|id| id.as_s().ok());
                found.extend(id.cloned());
            }
        }
        (found, fault)
    }
}
