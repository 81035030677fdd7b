//! Locations in Redis: GEO for where, a sorted set for when.
//!
//! GEO members never expire: a driver whose phone died stays on the map for ever. So every report
//! also writes the time into a sorted set, a search drops whoever was not seen lately, and pruning
//! removes them by that set. The clock is ours, not Redis's.
//!
//! GEO keeps a place as 52 bits, so a distance of its own may be half a metre wrong, by a slightly
//! larger Earth than ours, and it knows nothing beyond 85 degrees. So it is asked for a little more
//! than the radius, the exact place lies in a hash beside it, and [`distance_m`] decides. Farther from
//! the equator it is asked for more still: its cells get narrow there, Redis makes up for that, and
//! not every server that speaks like Redis does. Drivers beyond [`POLAR_DEGREES`] are few: they are in a plain set, and whoever searches up there looks at
//! all of them.
//!
//! All of it is one slot of a cluster (hence the braces in the keys): one index for each city.

use crate::domain::{DriverLocationState, EARTH_RADIUS_M, MAX_RADIUS_M, Point, distance_m};
use crate::locations::LocationIndex;
use cloud::{Cloud, CloudError, Millis};
use futures::future::BoxFuture;

/// From here to the poles no GEO command is used: well below the 85.05 degrees where it ends, by
/// more than the widest search.
pub const POLAR_DEGREES: f64 = 80.0;

/// KEYS: places, times, exact places, polar drivers. ARGV: driver, time, exact place, longitude,
/// latitude, whether it is polar. A report older than what is there changes nothing.
const REPORT: &str = "
local last = redis.call('ZSCORE', KEYS[2], ARGV[1])
if last and tonumber(last) > tonumber(ARGV[2]) then
  return 0
end
redis.call('ZADD', KEYS[2], ARGV[2], ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], ARGV[3])
if ARGV[6] == 'polar' then
  redis.call('ZREM', KEYS[1], ARGV[1])
  redis.call('SADD', KEYS[4], ARGV[1])
else
  redis.call('GEOADD', KEYS[1], ARGV[4], ARGV[5], ARGV[1])
  redis.call('SREM', KEYS[4], ARGV[1])
end
return 1";

/// ARGV: longitude, latitude, metres (or 'none'), whether polar drivers are looked at, seen after.
/// Gives driver, exact place and time of each that was seen lately. Whoever lost one of them (keys
/// are evicted one by one) is not found until the next report.
const NEARBY: &str = "
local found = {}
local function add(drivers)
  for _, driver in ipairs(drivers) do
    local seen = redis.call('ZSCORE', KEYS[2], driver)
    local exact = redis.call('HGET', KEYS[3], driver)
    if seen and exact and tonumber(seen) > tonumber(ARGV[5]) then
      found[#found + 1] = driver
      found[#found + 1] = exact
      found[#found + 1] = seen
    end
  end
end
if ARGV[3] ~= 'none' then
  add(redis.call('GEOSEARCH', KEYS[1], 'FROMLONLAT', ARGV[1], ARGV[2], 'BYRADIUS', ARGV[3], 'm'))
end
if ARGV[4] == 'polar' then
  add(redis.call('SMEMBERS', KEYS[4]))
end
return found";

/// ARGV: driver, time. Whoever was seen after it stays.
const FORGET: &str = "
local last = redis.call('ZSCORE', KEYS[2], ARGV[1])
if last and tonumber(last) > tonumber(ARGV[2]) then
  return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
return redis.call('SREM', KEYS[4], ARGV[1])";

/// In portions: a script keeps everybody else waiting.
const PRUNE: &str = "
local old = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, 500)
for _, driver in ipairs(old) do
  redis.call('ZREM', KEYS[1], driver)
  redis.call('ZREM', KEYS[2], driver)
  redis.call('HDEL', KEYS[3], driver)
  redis.call('SREM', KEYS[4], driver)
end
return #old";

/// Locations in Redis.
#[derive(Clone)]
pub struct GeoIndex {
    cloud: Cloud,
}

impl GeoIndex {
    /// An index on this cloud.
    pub fn new(cloud: Cloud) -> Self {
        Self { cloud }
    }

    /// Places, times, exact places, polar drivers.
    pub fn keys(&self) -> [String; 4] {
        ["geo", "seen", "exact", "polar"]
            .map(|part| self.cloud.names().key(&format!("{{drivers}}:{part}")))
    }

    async fn script<T: redis::FromRedisValue>(
        &self,
        script: &str,
        arguments: &[String],
    ) -> Result<T, CloudError> {
        let mut redis = self.cloud.redis().await?;
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(4).arg(&self.keys()[..]).arg(arguments);
        Ok(eval.query_async(&mut redis).await?)
    }
}

/// The radius to ask GEO for: half a metre more for the 52 bits, a thousandth for the other Earth;
/// and from 60 degrees on so much that nine cells, each at least twice as wide at the equator as what
/// is asked for, are wide enough here.
fn ask_for(lat: f64, radius_m: f64) -> f64 {
    let rim = lat.abs() + (radius_m / EARTH_RADIUS_M).to_degrees();
    let narrow = rim.min(89.0).to_radians().cos();
    ((radius_m * 1.001 + 2.0) * (0.5 / narrow).max(1.0)).ceil()
}

impl LocationIndex for GeoIndex {
    fn report<'a>(
        &'a self,
        location: &'a DriverLocationState,
    ) -> BoxFuture<'a, Result<bool, CloudError>> {
        Box::pin(async {
            let at = location.at;
            let polar = at.lat_degrees().abs() > POLAR_DEGREES;
            let arguments = [
                location.driver_id.clone(),
                location.seen_at.to_string(),
                format!("{},{}", at.lat, at.lon),
                at.lon_degrees().to_string(),
                at.lat_degrees().to_string(),
                if polar { "polar" } else { "geo" }.to_owned(),
            ];
            let written: i64 = self.script(REPORT, &arguments).await?;
            Ok(written == 1)
        })
    }

    fn forget<'a>(
        &'a self,
        driver_id: &'a str,
        seen_until: Millis,
    ) -> BoxFuture<'a, Result<(), CloudError>> {
        Box::pin(async move {
            let arguments = [driver_id.to_owned(), seen_until.to_string()];
            let _: i64 = self.script(FORGET, &arguments).await?;
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
            // The widest search and a little, in degrees.
            let reach = (MAX_RADIUS_M / EARTH_RADIUS_M).to_degrees() + 0.01;
            let lat = centre.lat_degrees();
            let arguments = [
                centre.lon_degrees().to_string(),
                lat.to_string(),
                if lat.abs() - reach > POLAR_DEGREES {
                    "none".to_owned()
                } else {
                    ask_for(lat, radius_m).to_string()
                },
                if lat.abs() + reach > POLAR_DEGREES {
                    "polar"
                } else {
                    "not"
                }
                .to_owned(),
                seen_after.to_string(),
            ];
            let found: Vec<String> = self.script(NEARBY, &arguments).await?;
            let mut near = Vec::new();
            for entry in found.chunks(3) {
                let [driver_id, exact, seen_at] = entry else {
                    return Err(CloudError::corrupt("a location without its time"));
                };
                let at = exact.split_once(',').and_then(|(lat, lon)| {
                    let (lat, lon) = (lat.parse().ok()?, lon.parse().ok()?);
                    Some(Point { lat, lon })
                });
                let at = at.ok_or_else(|| CloudError::corrupt(format!("'{exact}' is no place")))?;
                let seen_at: f64 = seen_at.parse().map_err(CloudError::corrupt)?;
                if distance_m(centre, at) <= radius_m {
                    near.push(DriverLocationState {
                        driver_id: driver_id.clone(),
                        at,
                        seen_at: seen_at as Millis,
                    });
                }
            }
            Ok(near)
        })
    }

    fn prune<'a>(&'a self, seen_before: Millis) -> BoxFuture<'a, Result<usize, CloudError>> {
        Box::pin(async move {
            let before = format!("({seen_before}");
            self.script(PRUNE, &[before]).await
        })
    }
}
