//! Reading items as states.

use crate::domain::{
    DriverAssignmentState, DriverState, MAX_OFFER_ID, RideRequestState, TripExecutionState,
};
use crate::{Dispatch, DispatchError};
use cloud::item::{from_item, s};
use cloud::{CloudError, Item};
use serde::de::DeserializeOwned;

/// How many keys one batch may have.
const BATCH: usize = 100;

/// How often a use case looks again at something that changes while it is worked on.
pub(crate) const ATTEMPTS: u32 = 20;

impl Dispatch {
    /// The ride, if there is one. All of these are consistent: what is absent had not been written.
    pub async fn ride(&self, ride_id: &str) -> Result<Option<RideRequestState>, CloudError> {
        self.one("rides", "ride_id", ride_id).await
    }

    /// The offer, if there is one.
    pub async fn assignment(
        &self,
        assignment_id: &str,
    ) -> Result<Option<DriverAssignmentState>, CloudError> {
        self.one("assignments", "assignment_id", assignment_id)
            .await
    }

    /// What a driver is doing, if anybody knows the driver.
    pub async fn driver(&self, driver_id: &str) -> Result<Option<DriverState>, CloudError> {
        self.one("drivers", "driver_id", driver_id).await
    }

    /// The trip of an assignment, if it was begun.
    pub async fn trip(
        &self,
        assignment_id: &str,
    ) -> Result<Option<TripExecutionState>, CloudError> {
        self.one("trips", "assignment_id", assignment_id).await
    }

    /// The ride that must be there.
    pub(crate) async fn known_ride(
        &self,
        ride_id: &str,
    ) -> Result<RideRequestState, DispatchError> {
        let found = self.ride(ride_id).await?;
        found.ok_or_else(|| DispatchError::UnknownRide(ride_id.to_owned()))
    }

    pub(crate) async fn one<T: DeserializeOwned>(
        &self,
        table: &str,
        key: &str,
        id: &str,
    ) -> Result<Option<T>, CloudError> {
        // Nothing has such an id, and DynamoDB would call it a wrong request.
        if cloud::text::id(id, MAX_OFFER_ID).is_err() {
            return Ok(None);
        }
        let found = self
            .dynamodb()
            .get_item()
            .table_name(self.table(table))
            .key(key, s(id))
            .consistent_read(true)
            .send()
            .await?;
        found.item.map(|item| from_item(&item)).transpose()
    }

    /// What these drivers are doing, up to a hundred of them, in any order. Consistent: a ride may
    /// be told that there is nobody.
    pub(crate) async fn drivers(&self, ids: &[String]) -> Result<Vec<DriverState>, CloudError> {
        debug_assert!(ids.len() <= BATCH);
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys = ids
            .iter()
            .map(|id| Item::from([("driver_id".to_owned(), s(id))]));
        let mut found = self
            .cloud
            .read_batch(vec![("drivers", keys.collect())], true)
            .await?;
        let found = found.remove("drivers").unwrap_or_default();
        found.iter().map(from_item).collect()
    }

    /// The offers a ride has made so far, in their order: their keys follow from its id.
    pub async fn offers_of(
        &self,
        ride: &RideRequestState,
    ) -> Result<Vec<DriverAssignmentState>, CloudError> {
        let ids: Vec<_> = (1..=ride.offers_made)
            .map(|offer| crate::domain::assignment_id(&ride.ride_id, offer))
            .collect();
        let mut offers: Vec<DriverAssignmentState> = Vec::new();
        for ids in ids.chunks(BATCH) {
            let keys = ids
                .iter()
                .map(|id| Item::from([("assignment_id".to_owned(), s(id))]));
            let keys = vec![("assignments", keys.collect())];
            let mut found = self.cloud.read_batch(keys, true).await?;
            for item in found.remove("assignments").unwrap_or_default() {
                offers.push(from_item(&item)?);
            }
        }
        offers.sort_by_key(|offer| ids.iter().position(|id| *id == offer.assignment_id));
        Ok(offers)
    }
}
