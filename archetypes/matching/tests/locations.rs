//! One promise, two indexes: exactly the drivers that the great-circle distance puts within the
//! radius and that were seen lately.
#![allow(clippy::unwrap_used)]

mod town;

use cloud::Millis;
use cloud::tap::{Request, Verdict};
use matching::cell_index::cell_of;
use matching::domain::{DriverLocationState, EARTH_RADIUS_M, MAX_RADIUS_M, Point, distance_m};
use matching::geo_index::{GeoIndex, POLAR_DEGREES};
use matching::locations::LocationIndex;
use matching::{Dispatch, Realization};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use town::empty_alone;

in_both_realizations!(
    the_index_finds_exactly_what_brute_force_finds_in_a_city,
    the_index_finds_exactly_what_brute_force_finds_at_cell_borders,
    the_index_finds_exactly_what_brute_force_finds_across_the_antimeridian,
    the_index_finds_exactly_what_brute_force_finds_near_the_poles,
    the_index_finds_exactly_what_brute_force_finds_where_geo_ends,
    the_index_finds_exactly_what_brute_force_finds_around_a_pentagon,
    the_index_finds_who_is_on_the_rim_and_not_who_is_beyond,
    the_widest_search_is_exact_too,
    stale_drivers_are_never_found,
    an_older_report_changes_nothing,
    who_moves_is_found_where_they_are_and_nowhere_else,
    who_is_forgotten_is_not_found,
);

/// A place up to so many metres from here.
fn around(random: &mut StdRng, centre: Point, metres: f64) -> Point {
    let bearing = random.random_range(0.0..std::f64::consts::TAU);
    // The square root spreads them evenly over the disc.
    away(centre, bearing, metres * random.random::<f64>().sqrt())
}

fn away(from: Point, bearing: f64, metres: f64) -> Point {
    let (lat, lon) = (
        from.lat_degrees().to_radians(),
        from.lon_degrees().to_radians(),
    );
    let angle = metres / EARTH_RADIUS_M;
    let north = (lat.sin() * angle.cos() + lat.cos() * angle.sin() * bearing.cos()).asin();
    let east = lon
        + (bearing.sin() * angle.sin() * lat.cos()).atan2(angle.cos() - lat.sin() * north.sin());
    let east = (east.to_degrees() + 540.0).rem_euclid(360.0) - 180.0;
    Point::degrees(north.to_degrees().clamp(-90.0, 90.0), east).unwrap()
}

fn at(lat: f64, lon: f64) -> Point {
    Point::degrees(lat, lon).unwrap()
}

struct Map {
    dispatch: Dispatch,
    drivers: Vec<DriverLocationState>,
    now: Millis,
}

impl Map {
    async fn of(realization: Realization, places: Vec<Point>) -> Self {
        let town = empty_alone(realization).await;
        let now = town.dispatch.cloud().now();
        let drivers: Vec<_> = places
            .into_iter()
            .enumerate()
            .map(|(number, at)| DriverLocationState {
                driver_id: format!("driver-{number}"),
                at,
                seen_at: now,
            })
            .collect();
        for driver in &drivers {
            assert!(town.dispatch.locations().report(driver).await.unwrap());
        }
        Self {
            dispatch: town.dispatch,
            drivers,
            now,
        }
    }

    /// The index's answer, which must be that of brute force. How many there are.
    async fn agrees(&self, centre: Point, radius: f64) -> usize {
        let index = self.dispatch.locations();
        let found = index.nearby(centre, radius, self.now - 1).await.unwrap();
        let places: Vec<_> = found.iter().map(|found| found.driver_id.clone()).collect();
        let unique: BTreeSet<_> = places.iter().cloned().collect();
        assert_eq!(unique.len(), places.len(), "somebody was found twice");
        let wanted: BTreeSet<_> = self
            .drivers
            .iter()
            .filter(|driver| distance_m(centre, driver.at) <= radius)
            .map(|driver| driver.driver_id.clone())
            .collect();
        assert_eq!(unique, wanted, "{radius} m around {centre}");
        for found in found {
            assert!(self.drivers.contains(&found), "{found:?}");
        }
        wanted.len()
    }
}

/// Drivers around each place, and searches around each place; most find some, and none finds all.
async fn exact_around(realization: Realization, places: &[Point], spread: f64, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    let each = 120 / places.len();
    let drivers = places
        .iter()
        .flat_map(|place| vec![*place; each])
        .map(|place| around(&mut random, place, spread))
        .collect();
    let map = Map::of(realization, drivers).await;
    let (mut some, mut searches) = (0, 0);
    for place in places {
        for _ in 0..24 / places.len() {
            let centre = around(&mut random, *place, spread);
            let radius = random.random_range(spread / 20.0..spread);
            let found = map.agrees(centre, radius).await;
            assert!(found < map.drivers.len());
            searches += 1;
            some += usize::from(found > 0);
        }
    }
    assert!(some * 2 > searches, "{some} of {searches} found anybody");
}

async fn the_index_finds_exactly_what_brute_force_finds_in_a_city(realization: Realization) {
    exact_around(realization, &[at(52.52, 13.405)], 6_000.0, 1).await;
}

/// On corners and edges of H3 cells, and between them.
async fn the_index_finds_exactly_what_brute_force_finds_at_cell_borders(realization: Realization) {
    let cell = matching::cell_index::cell_of(at(40.7, -74.0)).unwrap();
    let corners: Vec<Point> = cell
        .boundary()
        .iter()
        .map(|corner| at(corner.lat(), corner.lng()))
        .collect();
    let mut drivers = corners.clone();
    for pair in corners.windows(2) {
        for part in 1..8 {
            let part = f64::from(part) / 8.0;
            let between = |a: f64, b: f64| a + (b - a) * part;
            drivers.push(at(
                between(pair[0].lat_degrees(), pair[1].lat_degrees()),
                between(pair[0].lon_degrees(), pair[1].lon_degrees()),
            ));
        }
    }
    let map = Map::of(realization, drivers).await;
    let mut found = 0;
    for corner in corners {
        for radius in [1.0, 200.0, 1_500.0, 2_600.0] {
            found += map.agrees(corner, radius).await;
        }
    }
    assert!(found > 100);
}

async fn the_index_finds_exactly_what_brute_force_finds_across_the_antimeridian(
    realization: Realization,
) {
    let places = [at(-17.0, 180.0), at(-17.0, -179.999), at(65.0, 179.99)];
    exact_around(realization, &places, 5_000.0, 2).await;
}

async fn the_index_finds_exactly_what_brute_force_finds_near_the_poles(realization: Realization) {
    let places = [
        at(90.0, 0.0),
        at(-90.0, 0.0),
        at(87.0, 30.0),
        at(-86.0, 179.9),
    ];
    exact_around(realization, &places, 5_000.0, 3).await;
}

/// Where the GEO commands are left for the plain set, in both hemispheres, and near their own limit.
async fn the_index_finds_exactly_what_brute_force_finds_where_geo_ends(realization: Realization) {
    let places = [
        at(POLAR_DEGREES, 15.0),
        at(-POLAR_DEGREES, -179.99),
        at(85.05, 10.0),
    ];
    exact_around(realization, &places, 5_000.0, 4).await;
}

async fn the_index_finds_exactly_what_brute_force_finds_around_a_pentagon(
    realization: Realization,
) {
    let pentagon = matching::cell_index::RESOLUTION.pentagons().next().unwrap();
    let middle = h3o::LatLng::from(pentagon);
    let place = at(middle.lat(), middle.lng());
    exact_around(realization, &[place], 6_000.0, 5).await;
}

/// A metre inside, a metre outside, all around: GEO's own distances are not that good.
async fn the_index_finds_who_is_on_the_rim_and_not_who_is_beyond(realization: Realization) {
    let centre = at(52.52, 13.405);
    let radius = 2_000.0;
    let mut drivers = Vec::new();
    for step in 0..36 {
        let bearing = f64::from(step) * std::f64::consts::TAU / 36.0;
        drivers.push(away(centre, bearing, radius - 0.5));
        drivers.push(away(centre, bearing, radius + 0.5));
    }
    let map = Map::of(realization, drivers).await;
    assert_eq!(map.agrees(centre, radius).await, 36);
}

async fn the_widest_search_is_exact_too(realization: Realization) {
    let mut random = StdRng::seed_from_u64(6);
    // In the tropics, where a cell is as large as it gets; and across the line where GEO ends.
    let centre = match realization {
        Realization::Cells => at(1.0, 103.8),
        Realization::Geo => at(POLAR_DEGREES - 0.2, 103.8),
    };
    let drivers = (0..150)
        .map(|_| around(&mut random, centre, MAX_RADIUS_M * 1.3))
        .collect();
    let map = Map::of(realization, drivers).await;
    let found = map.agrees(centre, MAX_RADIUS_M).await;
    assert!((50..150).contains(&found), "{found}");
}

async fn stale_drivers_are_never_found(realization: Realization) {
    let town = empty_alone(realization).await;
    let (index, now) = (town.dispatch.locations(), town.dispatch.cloud().now());
    for (number, age) in [0, 29_999, 30_000, 30_001, 3_600_000]
        .into_iter()
        .enumerate()
    {
        let driver = DriverLocationState {
            driver_id: format!("driver-{number}"),
            at: town::pickup(),
            seen_at: now - age,
        };
        index.report(&driver).await.unwrap();
    }
    let found = || async {
        let found = index.nearby(town::pickup(), 100.0, now - 30_000).await;
        let mut ids: Vec<_> = found.unwrap().into_iter().map(|d| d.driver_id).collect();
        ids.sort();
        ids
    };
    assert_eq!(found().await, ["driver-0", "driver-1"]);
    index.prune(now - 30_000).await.unwrap();
    assert_eq!(found().await, ["driver-0", "driver-1"], "pruned");
}

async fn an_older_report_changes_nothing(realization: Realization) {
    let town = empty_alone(realization).await;
    let (index, now) = (town.dispatch.locations(), town.dispatch.cloud().now());
    let report = |metres: f64, seen_at| DriverLocationState {
        driver_id: "driver".into(),
        at: town::north(metres),
        seen_at,
    };
    assert!(index.report(&report(0.0, now)).await.unwrap());
    assert!(!index.report(&report(5_000.0, now - 1)).await.unwrap());
    let found = index.nearby(town::pickup(), 10.0, now - 1).await.unwrap();
    assert_eq!(found, [report(0.0, now)]);
    assert!(index.report(&report(5.0, now)).await.unwrap(), "sent again");
}

async fn who_moves_is_found_where_they_are_and_nowhere_else(realization: Realization) {
    let town = empty_alone(realization).await;
    let (index, now) = (town.dispatch.locations(), town.dispatch.cloud().now());
    // Through cells, over the line where GEO ends, and back.
    let way = [
        at(52.52, 13.405),
        at(52.58, 13.405),
        at(80.01, 13.405),
        at(88.0, 13.405),
        at(52.52, 13.405),
    ];
    for (place, seen_at) in way.iter().zip(now..) {
        let report = DriverLocationState {
            driver_id: "driver".into(),
            at: *place,
            seen_at,
        };
        index.report(&report).await.unwrap();
        for other in &way {
            let found = index.nearby(*other, 2_000.0, now - 1).await.unwrap();
            let there = distance_m(*other, *place) <= 2_000.0;
            assert_eq!(
                found.len(),
                usize::from(there),
                "at {place}, asked at {other}"
            );
        }
    }
}

/// The index is late in the cell that the driver left, and is asked there last.
#[tokio::test]
async fn of_two_places_of_one_driver_the_later_counts() {
    let town = empty_alone(Realization::Cells).await;
    let (index, now) = (town.dispatch.locations(), town.dispatch.cloud().now());
    let place = |metres: f64, seen_at| DriverLocationState {
        driver_id: "driver".into(),
        at: town::north(metres),
        seen_at,
    };
    let (old, new) = (place(0.0, now), place(2_000.0, now + 1));
    index.report(&new).await.unwrap();
    let left = cell_of(old.at).unwrap().to_string();
    assert_ne!(left, cell_of(new.at).unwrap().to_string());
    let late = chaos::Says(move |request: &Request| {
        if request.body["ExpressionAttributeValues"][":cell"]["S"] != left.as_str() {
            return Verdict::Pass;
        }
        let item = json!({
            "driver_id": {"S": old.driver_id},
            "cell": {"S": left},
            "lat": {"N": old.at.lat.to_string()},
            "lon": {"N": old.at.lon.to_string()},
            "seen_at": {"N": old.seen_at.to_string()},
        });
        Verdict::Answer {
            status: 200,
            body: json!({"Items": [item], "Count": 1, "ScannedCount": 1}),
        }
    });
    let _late = town.dispatch.cloud().tap().install(Arc::new(late));
    let found = index.nearby(new.at, 3_000.0, now - 1).await.unwrap();
    assert_eq!(found, [new]);
}

/// Redis lost the exact place of one driver. The others are found, and the one with the next report.
#[tokio::test]
async fn one_driver_whose_place_is_lost_hides_no_other() {
    let map = Map::of(Realization::Geo, vec![at(52.52, 13.405); 2]).await;
    let index = GeoIndex::new(map.dispatch.cloud().clone());
    let [_, _, exact, _] = index.keys();
    let mut redis = map.dispatch.cloud().redis().await.unwrap();
    let mut lose = redis::cmd("HDEL");
    let lost: i64 = lose
        .arg(exact)
        .arg("driver-0")
        .query_async(&mut redis)
        .await
        .unwrap();
    assert_eq!(lost, 1);
    let found = || async {
        let found = index.nearby(at(52.52, 13.405), 10.0, map.now - 1).await;
        let mut ids: Vec<_> = found.unwrap().into_iter().map(|d| d.driver_id).collect();
        ids.sort();
        ids
    };
    assert_eq!(found().await, ["driver-1"]);
    index.report(&map.drivers[0]).await.unwrap();
    assert_eq!(found().await, ["driver-0", "driver-1"]);
}

async fn who_is_forgotten_is_not_found(realization: Realization) {
    let map = Map::of(realization, vec![at(52.52, 13.405), at(89.0, 0.0)]).await;
    let index = map.dispatch.locations();
    for (driver, place) in [("driver-0", at(52.52, 13.405)), ("driver-1", at(89.0, 0.0))] {
        assert_eq!(map.agrees(place, 10.0).await, 1);
        index.forget(driver, map.now).await.unwrap();
        index.forget(driver, map.now).await.unwrap();
        let found = index.nearby(place, 10.0, map.now - 1).await.unwrap();
        assert!(found.is_empty());
    }
}
