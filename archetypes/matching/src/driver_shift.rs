//! A driver's shift: go online, say where, go offline.
//!
//! What a driver is doing and where a driver is are two items, because they are written at another
//! pace: a place every few seconds by the driver's phone, a status with every offer by whoever
//! matches. In one item each would get in the other's way.

use crate::domain::{DriverLocationState, DriverState, DriverStatus, Point, text};
use crate::{Dispatch, DispatchError};
use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure;
use cloud::item::{from_item, pause, s};
use cloud::{CloudError, Guard, Guarded};

/// What became of beginning or ending a shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shift {
    /// The driver is AVAILABLE.
    Online,
    /// The driver is OFFLINE.
    Offline,
    /// Not now: there is an offer to answer, or a ride to finish.
    Busy(DriverStatus),
}

/// From nothing or from the end of a shift. Whoever is already online stays what they are.
const ONLINE_GUARD: &str = "attribute_not_exists(driver_id) OR #status = :offline";

/// Nobody waits for this driver.
const OFFLINE_GUARD: &str = "#status = :available";

const STATUS_UPDATE: &str = "SET #status = :to";

impl Dispatch {
    /// Begins a shift.
    pub async fn go_online(&self, driver_id: &str, at: Point) -> Result<Shift, DispatchError> {
        text("driver_id", driver_id)?;
        let set = self
            .dynamodb()
            .update_item()
            .condition_expression(ONLINE_GUARD)
            .expression_attribute_values(":offline", s("OFFLINE"))
            .expression_attribute_values(":to", s("AVAILABLE"));
        let status = match self.set_shift(set, driver_id).await? {
            Ok(()) => DriverStatus::Available,
            Err(there) => there.map_or(DriverStatus::Offline, |there| there.status),
        };
        self.report_location(driver_id, at).await?;
        Ok(match status {
            DriverStatus::Available => Shift::Online,
            status => Shift::Busy(status),
        })
    }

    /// Ends a shift, if nobody waits for this driver.
    pub async fn go_offline(&self, driver_id: &str) -> Result<Shift, DispatchError> {
        text("driver_id", driver_id)?;
        let began = self.now();
        let set = self
            .dynamodb()
            .update_item()
            .condition_expression(OFFLINE_GUARD)
            .expression_attribute_values(":available", s("AVAILABLE"))
            .expression_attribute_values(":to", s("OFFLINE"));
        match self.set_shift(set, driver_id).await? {
            Ok(()) => {}
            Err(None) => return Err(DispatchError::UnknownDriver(driver_id.to_owned())),
            Err(Some(there)) if there.status == DriverStatus::Offline => {}
            Err(Some(there)) => return Ok(Shift::Busy(there.status)),
        }
        // Who dies before this leaves a place on the map that nobody is proposed from. Who is late
        // leaves the place of the next shift alone.
        self.index.forget(driver_id, began).await?;
        Ok(Shift::Offline)
    }

    /// Says where a driver is. False if something newer is known.
    pub async fn report_location(&self, driver_id: &str, at: Point) -> Result<bool, DispatchError> {
        text("driver_id", driver_id)?;
        let location = DriverLocationState {
            driver_id: driver_id.to_owned(),
            at: Point::degrees(at.lat_degrees(), at.lon_degrees())?,
            seen_at: self.now(),
        };
        Ok(self.index.report(&location).await?)
    }

    /// Sends the update; the driver as it is, if the guard failed.
    async fn set_shift(
        &self,
        set: aws_sdk_dynamodb::operation::update_item::builders::UpdateItemFluentBuilder,
        driver_id: &str,
    ) -> Result<Result<(), Option<DriverState>>, DispatchError> {
        let set = set
            .table_name(self.table("drivers"))
            .key("driver_id", s(driver_id))
            .update_expression(STATUS_UPDATE)
            .expression_attribute_names("#status", "status")
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld);
        for attempt in 0..crate::items::ATTEMPTS {
            match set.clone().send().await.guarded() {
                Ok(Guard::Passed(_)) => return Ok(Ok(())),
                Ok(Guard::Failed(old)) => {
                    let there = old.as_ref().map(from_item::<DriverState>);
                    return Ok(Err(there.transpose()?));
                }
                Err(CloudError::Conflict(_)) => pause(attempt).await,
                Err(fault) => return Err(fault.into()),
            }
        }
        Err(DispatchError::Contended)
    }
}
