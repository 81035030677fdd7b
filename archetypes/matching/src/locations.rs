//! Where drivers are: one promise, kept in two ways.
//!
//! [`GeoIndex`](crate::geo_index::GeoIndex) keeps locations in Redis, with GEO commands and a sorted
//! set of when each driver was last seen. [`CellIndex`](crate::cell_index::CellIndex) keeps them in
//! DynamoDB, by the H3 cell each is in. Both answer with exactly the drivers that
//! [`distance_m`](crate::domain::distance_m) puts within the radius and that were seen lately; the
//! index only decides how few others have to be looked at.

use crate::domain::{DriverLocationState, Point};
use cloud::{CloudError, Millis};
use futures::future::BoxFuture;

/// An hour after its last report a location may be cleaned up. No search waits for that.
pub const KEPT_MS: Millis = 3_600_000;

/// What every location index promises.
pub trait LocationIndex: Send + Sync {
    /// Writes where a driver is, unless something newer is there; says whether it was written.
    fn report<'a>(
        &'a self,
        location: &'a DriverLocationState,
    ) -> BoxFuture<'a, Result<bool, CloudError>>;

    /// Takes a driver out who has not been seen since this: whoever came back meanwhile stays.
    fn forget<'a>(
        &'a self,
        driver_id: &'a str,
        seen_until: Millis,
    ) -> BoxFuture<'a, Result<(), CloudError>>;

    /// The drivers within so many metres that were seen after this, in any order.
    fn nearby<'a>(
        &'a self,
        centre: Point,
        radius_m: f64,
        seen_after: Millis,
    ) -> BoxFuture<'a, Result<Vec<DriverLocationState>, CloudError>>;

    /// Drops some of those not seen since then, and says how many. Nobody waits for it: `nearby`
    /// looks at the time by itself.
    fn prune<'a>(&'a self, seen_before: Millis) -> BoxFuture<'a, Result<usize, CloudError>>;
}
