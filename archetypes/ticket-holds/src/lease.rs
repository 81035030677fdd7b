//! The lease layer: what Redis adds to a hold.
//!
//! A key for each held seat, its value the booking, its life the hold's. A competing reserver is
//! told no by one command, and never costs DynamoDB a unit. That is all a lease is for. It may
//! expire during a payment, a failover may lose it, somebody may run FLUSHALL: so it decides
//! nothing. What DynamoDB says under its guard decides, and a lost lease costs only the units it
//! would have saved. For the same reason an office goes on when Redis does not answer.
//!
//! The scripts take all seats of a booking at once. In a cluster they must then be in one slot:
//! hence the braces around the event in the key. A lease is not
//! taken back by a sale: it refuses latecomers until it expires, which is as true then.

use crate::domain::{Line, NewBooking, Rejection};
use crate::{BoxOffice, Realization};
use cloud::{CloudError, Millis};
use redis::Value;

/// SET NX PX for each seat, all or none. A key that is already ours is our own earlier success.
/// Gives the place of the first seat that is somebody else's and how long it will be, or 0.
const ACQUIRE: &str = "
for i, key in ipairs(KEYS) do
  local holder = redis.call('GET', key)
  if holder and holder ~= ARGV[1] then
    return {i, redis.call('PTTL', key)}
  end
end
for _, key in ipairs(KEYS) do
  redis.call('SET', key, ARGV[1], 'NX', 'PX', ARGV[2])
end
return {0, 0}";

/// Compare and delete. A plain DEL would delete the lease of whoever came after us.
const RELEASE: &str = "
local released = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    released = released + redis.call('DEL', key)
  end
end
return released";

/// Compare and extend.
const EXTEND: &str = "
local extended = 0
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then
    extended = extended + redis.call('PEXPIRE', key, ARGV[2])
  end
end
return extended";

impl BoxOffice {
    /// The key of a seat's lease: `ticket:{event}#A#00012`.
    pub fn lease_key(&self, block_id: &str, seat: &str) -> String {
        let (event, section) = block_id.split_once('#').unwrap_or((block_id, ""));
        let key = format!("ticket:{{{event}}}#{section}#{seat}");
        self.cloud.names().key(&key)
    }

    /// Takes the leases of all seats, or says whose turn it is. `None` is a yes, and also what a
    /// silent Redis gives: DynamoDB decides anyway.
    pub(crate) async fn acquire_leases(&self, new: &NewBooking) -> Option<Rejection> {
        if self.realization == Realization::Pure {
            return None;
        }
        let now = self.now();
        let life = self.rules.hold_ms.to_string();
        let keys = new.keys();
        let answer: (usize, Millis) = self
            .script(ACQUIRE, &keys, &[&new.booking_id, &life])
            .await
            .ok()?;
        let (place, left) = answer;
        let seat = new.seats.get(place.checked_sub(1)?)?.clone();
        Some(Rejection::Held {
            seat,
            until: now + left.max(0),
        })
    }

    /// Lets the leases go that are still this booking's. If Redis does not answer, they expire.
    pub(crate) async fn release_leases(&self, booking_id: &str, keys: &[(String, String)]) {
        if self.realization == Realization::Leased && !keys.is_empty() {
            let _: Result<Value, _> = self.script(RELEASE, keys, &[booking_id]).await;
        }
    }

    /// Lets a booking's leases live for so long from now.
    pub(crate) async fn extend_leases(&self, booking_id: &str, lines: &[Line], life: Millis) {
        let keys = lease_keys(lines);
        if self.realization == Realization::Leased && !keys.is_empty() {
            let life = life.to_string();
            let _: Result<Value, _> = self.script(EXTEND, &keys, &[booking_id, &life]).await;
        }
    }

    /// Whether a seat has a lease. No, if Redis does not answer.
    pub(crate) async fn is_leased(&self, block_id: &str, seat: &str) -> bool {
        if self.realization == Realization::Pure {
            return false;
        }
        let Ok(mut redis) = self.cloud.redis().await else {
            return false;
        };
        let key = self.lease_key(block_id, seat);
        let holder: Result<Option<String>, _> =
            redis::cmd("GET").arg(key).query_async(&mut redis).await;
        matches!(holder, Ok(Some(_)))
    }

    async fn script<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[(String, String)],
        arguments: &[&str],
    ) -> Result<T, CloudError> {
        let mut redis = self.cloud.redis().await?;
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(keys.len());
        for (block_id, seat) in keys {
            eval.arg(self.lease_key(block_id, seat));
        }
        for argument in arguments {
            eval.arg(argument);
        }
        Ok(eval.query_async(&mut redis).await?)
    }
}

/// The keys of a booking's seats.
pub(crate) fn lease_keys(lines: &[Line]) -> Vec<(String, String)> {
    lines
        .iter()
        .filter(|line| line.fence.is_some())
        .map(|line| (line.block_id.clone(), line.seat.clone()))
        .collect()
}
