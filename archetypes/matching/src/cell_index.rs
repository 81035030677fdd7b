//! Locations in DynamoDB, by H3 cell.
//!
//! The Earth is covered with hexagons (and twelve pentagons). A driver's item carries the cell it is
//! in, an index has the cell as its key, and a search asks for the cells that its circle touches.
//! Which are those? Ring by ring outward, until a whole ring lies outside the circle: a circle is in
//! one piece, so it cannot have got past a closed ring without touching it. That needs no table of
//! cell sizes, and holds near pentagons, across the antimeridian and at the poles.

use crate::domain::{DriverLocationState, Point, degrees_apart_m, distance_m};
use crate::locations::{KEPT_MS, LocationIndex};
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

/// Whoever was seen after the shift ended has begun another.
const FORGET_GUARD: &str = "seen_at <= :seen_until";

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

    fn forget<'a>(
        &'a self,
        driver_id: &'a str,
        seen_until: Millis,
    ) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move {
            let delete = self
                .cloud
                .dynamodb()
                .delete_item()
                .table_name(self.table())
                .key("driver_id", s(driver_id))
                .condition_expression(FORGET_GUARD)
                .expression_attribute_values(":seen_until", n(seen_until));
            delete.send().await.guarded()?;
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
                    // Who crosses a border between two queries is in both answers, and the index
                    // may be late in either: the later place counts, not the later answer.
                    let known: Option<&DriverLocationState> = near.get(&found.driver_id);
                    if known.is_none_or(|known| known.seen_at <= found.seen_at) {
                        near.insert(found.driver_id.clone(), found);
                    }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::domain::{EARTH_RADIUS_M, MAX_RADIUS_M};
    use proptest::prelude::*;

    /// The place so many metres from here in this direction, on the sphere.
    fn away(from: Point, bearing: f64, metres: f64) -> Point {
        let (lat, lon) = (
            from.lat_degrees().to_radians(),
            from.lon_degrees().to_radians(),
        );
        let angle = metres / EARTH_RADIUS_M;
        let north = (lat.sin() * angle.cos() + lat.cos() * angle.sin() * bearing.cos()).asin();
        let east = lon
            + (bearing.sin() * angle.sin() * lat.cos())
                .atan2(angle.cos() - lat.sin() * north.sin());
        let east = (east.to_degrees() + 540.0).rem_euclid(360.0) - 180.0;
        Point::degrees(north.to_degrees().clamp(-90.0, 90.0), east).unwrap()
    }

    /// Anywhere, or where it is hard: on a pentagon, at the antimeridian, at a pole, on the corner
    /// of a cell.
    fn places() -> impl Strategy<Value = Point> {
        let anywhere = (-90.0..90.0_f64, -180.0..180.0_f64);
        let anywhere = anywhere.prop_map(|(lat, lon)| Point::degrees(lat, lon).unwrap());
        let near = |lat: f64, lon: f64| {
            let at = Point::degrees(lat, lon).unwrap();
            (0.0..std::f64::consts::TAU, 0.0..20_000.0_f64)
                .prop_map(move |(bearing, metres)| away(at, bearing, metres))
        };
        let pentagons: Vec<Point> = Resolution::Seven
            .pentagons()
            .map(|cell| {
                let middle = LatLng::from(cell);
                Point::degrees(middle.lat(), middle.lng()).unwrap()
            })
            .collect();
        let pentagon = (
            prop::sample::select(pentagons),
            0.0..6.3_f64,
            0.0..9_000.0_f64,
        )
            .prop_map(|(at, bearing, metres)| away(at, bearing, metres));
        let corner = anywhere.clone().prop_map(|at| {
            let corner = cell_of(at).unwrap().boundary()[0];
            Point::degrees(corner.lat(), corner.lng()).unwrap()
        });
        prop_oneof![
            anywhere,
            near(12.0, 180.0),
            near(90.0, 0.0),
            near(-90.0, 0.0),
            pentagon,
            corner,
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Whatever lies within the radius lies in a cell that is asked.
        #[test]
        fn no_place_within_the_radius_is_outside_the_cover(
            centre in places(),
            radius in 10.0..12_000.0_f64,
            directions in prop::collection::vec((0.0..std::f64::consts::TAU, 0.0..=1.0_f64), 40),
        ) {
            let cover: HashSet<Cell> = cover(centre, radius).unwrap().into_iter().collect();
            for (bearing, part) in directions {
                let at = away(centre, bearing, radius * part);
                if distance_m(centre, at) <= radius {
                    prop_assert!(cover.contains(&cell_of(at).unwrap()), "{at} from {centre}");
                }
            }
        }
    }

    #[test]
    fn a_cover_is_small() {
        let berlin = Point::degrees(52.52, 13.405).unwrap();
        let count = |radius| cover(berlin, radius).unwrap().len();
        assert!((8..=19).contains(&count(3_000.0)), "{}", count(3_000.0));
        // 7,854 square kilometres, in cells of five, and a rim.
        assert!(count(MAX_RADIUS_M) < 2_500, "{}", count(MAX_RADIUS_M));
    }
}
