//! Locations in DynamoDB, by H3 cell.
//!
//! The Earth is covered with hexagons (and twelve pentagons). A driver's item carries the cell it is
//! in, an index has the cell as its key, and a search asks for the cells that its circle touches.
//! Which are those? Ring by ring outward, until a whole ring lies outside the circle: a circle is in
//! one piece, so it cannot have got past a closed ring without touching it. That needs no table of
//! cell sizes, and holds near pentagons, across the antimeridian and at the poles.

use crate::domain::{DriverLocationState, Point, degrees_apart_m, distance_m};
use crate::locations::LocationIndex;
use cloud::item::{from_item, n, s};
use cloud::{Cloud, CloudError, Guard, Guarded, Millis};
use futures::future::BoxFuture;
use h3o::{CellIndex as Cell, LatLng, Resolution};
use std::collections::{BTreeMap, HashSet};

/// Hexagons of some five square kilometres, 1.4 km an edge: a search of 3 km touches a dozen. One
/// finer would be seven times the queries, one coarser seven times the drivers read for nothing.
pub const RESOLUTION: Resolution = Resolution::Seven;

/// Reports come out of order; the newest place stays.
const REPORT_GUARD: &str = "attribute_not_exists(driver_id) OR seen_at <= :seen_at";

const REPORT_UPDATE: &str = "SET cell = :cell, lat = :lat, lon = :lon, seen_at = :seen_at, \
     purge_at = :purge_at";

const IN_CELL: &str = "cell = :cell";
const SEEN_LATELY: &str = "seen_at > :seen_after";

/// An hour after its last report a location may be cleaned up. No search waits for that.
const KEPT_MS: Millis = 3_600_000;

/// Locations in DynamoDB.
#[derive(Clone)]
pub struct CellIndex {
    cloud: Cloud,
}

impl CellIndex {
    /// An index on this cloud.
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud }
    }

    fn table(&self) -> String {
        self.cloud.names().table("driver_locations")
    }
}

fn degrees(of: LatLng) -> (f64, f64) {
    (of.lat(), of.lng())
}

/// The cell that a place is in.
pub fn cell_of(at: Point) -> Result<Cell, CloudError> {
    let at = LatLng::new(at.lat_degrees(), at.lon_degrees()).map_err(CloudError::bug)?;
    Ok(at.to_cell(RESOLUTION))
}

/// Whether a circle touches a cell, or nearly. A cell's edges are great circles, so none of its
/// points is farther from its centre than its farthest corner.
fn touches(cell: Cell, centre: Point, radius_m: f64) -> bool {
    let middle = degrees(LatLng::from(cell));
    let corners = cell.boundary();
    let size = corners
        .iter()
        .map(|corner| degrees_apart_m(middle, degrees(*corner)))
        .fold(0.0, f64::max);
    let away = degrees_apart_m(middle, (centre.lat_degrees(), centre.lon_degrees()));
    // A metre for the arithmetic.
    away <= radius_m + size + 1.0
}

/// Every cell with a point within the radius, ring by ring outward.
pub fn cover(centre: Point, radius_m: f64) -> Result<Vec<Cell>, CloudError> {
    let origin = cell_of(centre)?;
    let mut known = HashSet::from([origin]);
    let mut ring = vec![origin];
    let mut cover = Vec::new();
    loop {
        let before = cover.len();
        cover.extend(ring.iter().filter(|cell| touches(**cell, centre, radius_m)));
        if cover.len() == before {
            return Ok(cover);
        }
        ring = ring
            .iter()
            .flat_map(|cell| cell.grid_disk_safe(1))
            .filter(|cell| known.insert(*cell))
            .collect();
    }
}

impl LocationIndex for CellIndex {
    fn report<'a>(
        &'a self,
        location: &'a DriverLocationState,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async {
            let cell = cell_of(location.at)?;
            let written = self
                .cloud
                .dynamodb()
                .update_item()
                .table_name(self.table())
                .key("driver_id", s(&location.driver_id))
                .update_expression(REPORT_UPDATE)
                .condition_expression(REPORT_GUARD)
                .expression_attribute_values(":cell", s(cell.to_string()))
                .expression_attribute_values(":lat", n(location.at.lat))
                .expression_attribute_values(":lon", n(location.at.lon))
                .expression_attribute_values(":seen_at", n(location.seen_at))
                .expression_attribute_values(":purge_at", n((location.seen_at + KEPT_MS) / 1_000))
                .send()
                .await
                .guarded()?;
            Ok(matches!(written, Guard::Passed(_)))
        })
    }

    fn forget<'a>(&'a self, driver_id: &'a str) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move {
            let delete = self.cloud.dynamodb().delete_item();
            let delete = delete.table_name(self.table());
            delete.key("driver_id", s(driver_id)).send().await?;
            Ok(())
        })
    }

    fn nearby<'a>(
        &'a self,
        centre: Point,
        radius_m: f64,
        seen_after: Millis,
    ) -> BoxFuture<'a, Result<Vec<DriverLocationState>, CloudError>> {
        Box::pin(async move {
            let mut near = BTreeMap::new();
            for cell in cover(centre, radius_m)? {
                let mut pages = self
                    .cloud
                    .dynamodb()
                    .query()
                    .table_name(self.table())
                    .index_name("by_cell")
                    .key_condition_expression(IN_CELL)
                    .filter_expression(SEEN_LATELY)
                    .expression_attribute_values(":cell", s(cell.to_string()))
                    .expression_attribute_values(":seen_after", n(seen_after))
                    .into_paginator()
                    .items()
                    .send();
                while let Some(item) = pages.next().await {
                    let found: DriverLocationState = from_item(&item?)?;
                    // Who crosses a border between two queries is in both answers: the later counts.
                    near.insert(found.driver_id.clone(), found);
                }
            }
            near.retain(|_, found| distance_m(centre, found.at) <= radius_m);
            Ok(near.into_values().collect())
        })
    }

    /// DynamoDB's TTL does it, by `purge_at`.
    fn prune<'a>(&'a self, _seen_before: Millis) -> BoxFuture<'a, Result<usize, CloudError>> {
        Box::pin(async { Ok(0) })
    }
}
