//! The lease layer: what Redis adds to a hold.
//!
//! A key for each held seat, its value who has it until when. A competing reserver is told no by one
//! command, and never costs DynamoDB a unit. That is all a lease is for. A failover may lose it, an
//! operator may run FLUSHALL: so it decides nothing. What DynamoDB says under its guard decides, and a
//! lost lease costs only the units it would have saved.
//!
//! A lease carries its own end, as a hold does, and each reader holds that end against its own clock. So
//! the lease of a process that died, and a command that lands late, are over when they say so. A reserver
//! takes a short lease first, which says ASKED; only the commit of its hold makes it HELD and as long as the hold.
//!
//! Redis may be away, hang or die. A lease call has a deadline, and after one that failed there are
//! none for a second: one caller a second learns whether Redis is back, and the others do not wait for it.
//!
//! The scripts take all seats of a booking at once. In a cluster they must then be in one slot:
//! hence the braces around the event in the key.

use crate::domain::{BookingState, Line, NewBooking, Rejection};
use crate::{BoxOffice, Realization};
use cloud::{Cloud, Millis, RedisConnection};
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use sha2::{Digest, Sha256};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a lease lasts whose hold is not committed: as long as a client that hangs up, or an office
/// that dies, can keep others from a seat without a hold.
pub const TAKING_MS: Millis = 5_000;

/// How long a lease call may take.
pub const LEASE_PATIENCE: Duration = Duration::from_millis(50);

/// How long there are no lease calls after one that failed.
pub const REST_MS: Millis = 1_000;

/// How many releases are remembered, for a Redis that is away or fails over. Beyond that the oldest is forgotten.
const MOST_OWED: usize = 1_000;

/// How long after its answer a release is sent once more. The Redis that answered it may die, and the one that takes
/// over may not have heard of it.
pub const AGAIN_MS: Millis = 5_000;

/// Takes each seat, all or none. A lease that is over is nobody's, and one of the same request is its own
/// earlier success. Gives the place of the first seat that has another lease, and that lease, or 0.
const ACQUIRE: &str = "
local function read(key)
  local lease = redis.call('GET', key)
  if not lease then return nil end
  local ends, state, who = string.match(lease, '^(%d+)|(%a+)|(.*)$')
  if not who or tonumber(ends) <= tonumber(ARGV[2]) then return nil end
  return who, lease
end
for i, key in ipairs(KEYS) do
  local who, lease = read(key)
  if who and who ~= ARGV[1] then
    return {tostring(i), lease}
  end
end
for _, key in ipairs(KEYS) do
  if not read(key) then
    redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
  end
end
return {'0', ''}";

/// Compare and delete. A plain DEL would delete the lease of the next holder.
const RELEASE: &str = "
local released = 0
for _, key in ipairs(KEYS) do
  local lease = redis.call('GET', key)
  if lease and string.match(lease, '^%d+|%a+|(.*)$') == ARGV[1] then
    released = released + redis.call('DEL', key)
  end
end
return released";

/// Compare, say that it is held, and lengthen. Only a lease that is there, that is its own and that ends earlier: a
/// copy of this that lands late changes nothing.
const LENGTHEN: &str = "
local lengthened = 0
for _, key in ipairs(KEYS) do
  local lease = redis.call('GET', key)
  if lease then
    local ends, state, who = string.match(lease, '^(%d+)|(%a+)|(.*)$')
    if who == ARGV[1] and state ~= 'SOLD' and tonumber(ends) < tonumber(ARGV[2]) then
      redis.call('SET', key, ARGV[3], 'PX', ARGV[4])
      lengthened = lengthened + 1
    end
  end
end
return lengthened";

/// Compare and say that it is sold, for as long as the lease lasts.
const SELL: &str = "
local sold = 0
for _, key in ipairs(KEYS) do
  local lease = redis.call('GET', key)
  if lease then
    local ends, state, who = string.match(lease, '^(%d+)|(%a+)|(.*)$')
    local left = redis.call('PTTL', key)
    if who == ARGV[1] and left > 0 then
      redis.call('SET', key, ends .. '|SOLD|' .. who, 'PX', left)
      sold = sold + 1
    end
  end
end
return sold";

/// A lease as it stands in Redis: `1767226200000|HELD|booking-0001#alice#5d41…`.
#[derive(Debug, PartialEq, Eq)]
struct Lease<'a> {
    until: Millis,
    /// ASKED while its hold is not committed, then HELD, then SOLD.
    state: &'a str,
    holder: &'a str,
}

impl<'a> Lease<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let (until, rest) = text.split_once('|')?;
        let (state, holder) = rest.split_once('|')?;
        Some(Self {
            until: until.parse().ok()?,
            state,
            holder,
        })
    }

    fn text(until: Millis, state: &str, holder: &str) -> String {
        format!("{until}|{state}|{holder}")
    }

    fn booking_id(&self) -> &'a str {
        self.holder.split('#').next().unwrap_or_default()
    }
}

/// Who has a lease: booking, user and seats. Another request under the same booking id is another holder,
/// and can release nothing.
fn holder<'a>(
    booking_id: &str,
    user_id: &str,
    seats: impl Iterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut digest = Sha256::new();
    for (block_id, seat) in seats {
        digest.update(format!("{block_id}#{seat};"));
    }
    let mut holder = format!("{booking_id}#{user_id}#");
    for byte in &digest.finalize()[..16] {
        let _ = write!(holder, "{byte:02x}");
    }
    holder
}

impl NewBooking {
    fn holder(&self, keys: &[(String, String)]) -> String {
        let seats = keys.iter().map(|(block, seat)| (&**block, &**seat));
        holder(&self.booking_id, &self.user_id, seats)
    }
}

impl BookingState {
    fn holder(&self) -> String {
        let seats = self.seats().map(|(line, _)| (&*line.block_id, &*line.seat));
        holder(&self.booking_id, &self.user_id, seats)
    }
}

impl BoxOffice {
    /// The key of a seat's lease: `ticket:{event}#A#00012`.
    pub fn lease_key(&self, block_id: &str, seat: &str) -> String {
        let (event, section) = block_id.split_once('#').unwrap_or((block_id, ""));
        let key = format!("ticket:{{{event}}}#{section}#{seat}");
        self.cloud.names().key(&key)
    }

    /// Takes short leases of all seats, or says who has one. `None` is a yes, and also what a silent Redis
    /// gives: DynamoDB decides anyway.
    pub(crate) async fn acquire_leases(&self, new: &NewBooking) -> Option<Rejection> {
        let (now, keys) = (self.now(), new.keys());
        let (holder, until) = (new.holder(&keys), now + TAKING_MS);
        let lease = Lease::text(until, "ASKED", &holder);
        let arguments = [&holder, &now.to_string(), &lease, &TAKING_MS.to_string()];
        let answer: Option<(String, String)> = self.script(ACQUIRE, &keys, &arguments).await;
        let (place, lease) = answer?;
        let place: usize = place.parse().ok()?;
        let seat = new.seats.get(place.checked_sub(1)?)?.clone();
        let lease = Lease::read(&lease)?;
        // Our id under another request: the booking itself says what became of it.
        if lease.booking_id() == new.booking_id {
            return None;
        }
        let until = lease.until;
        Some(match lease.state {
            "SOLD" => Rejection::Sold { seat },
            "HELD" => Rejection::Held { seat, until },
            // DynamoDB has not said yet whose it is, nor whether it can be had at all.
            _ => Rejection::Asked { seat },
        })
    }

    /// Lets the leases of a request go that are still its own. If Redis does not answer, they end by themselves.
    pub(crate) async fn release_request(&self, new: &NewBooking) {
        let keys = new.keys();
        let _: Option<i64> = self.script(RELEASE, &keys, &[&new.holder(&keys)]).await;
    }

    /// Lets the leases of a booking go that are still its own. They last as long as the hold would have, so without
    /// an answer it is owed, and with one it is sent again: Redis may forget what it has answered.
    pub(crate) async fn release_leases(&self, booking: &BookingState) {
        let (holder, keys) = (booking.holder(), lease_keys(&booking.lines));
        if self.realization == Realization::Pure || keys.is_empty() {
            return;
        }
        let released: Option<i64> = self.script(RELEASE, &keys, &[&holder]).await;
        let state = &mut *self.leases.lock();
        match released {
            None => owe(&mut state.owed, self.now(), holder, keys),
            Some(_) => owe(&mut state.again, self.now() + AGAIN_MS, holder, keys),
        }
    }

    /// Lets go what could not be let go before, and once more what was. The sweeper does it, until Redis does not
    /// answer.
    pub async fn release_owed(&self) {
        let now = self.now();
        let (owed, again) = {
            let state = self.leases.lock();
            let due = state.again.iter().filter(|it| it.at <= now);
            (state.owed.clone(), due.cloned().collect::<Vec<_>>())
        };
        for release in owed {
            let Release { holder, keys, .. } = release;
            let released: Option<i64> = self.script(RELEASE, &keys, &[&holder]).await;
            if released.is_none() {
                return;
            }
            let state = &mut *self.leases.lock();
            state.owed.retain(|it| it.holder != holder);
            owe(&mut state.again, now + AGAIN_MS, holder, keys);
        }
        for Release { holder, keys, .. } in again {
            let released: Option<i64> = self.script(RELEASE, &keys, &[&holder]).await;
            if released.is_none() {
                return;
            }
            self.leases.lock().again.retain(|it| it.holder != holder);
        }
    }

    /// Lets a booking's leases last as long as its hold.
    pub(crate) async fn lengthen_leases(&self, booking: &BookingState) {
        let (until, holder) = (booking.hold_expires_at, booking.holder());
        let life = (until - self.now()).max(1).to_string();
        let lease = Lease::text(until, "HELD", &holder);
        let arguments = [&holder, &until.to_string(), &lease, &life];
        let keys = lease_keys(&booking.lines);
        let _: Option<i64> = self.script(LENGTHEN, &keys, &arguments).await;
    }

    /// Lets a booking's leases say that its seats are sold.
    pub(crate) async fn sell_leases(&self, booking: &BookingState) {
        let keys = lease_keys(&booking.lines);
        let _: Option<i64> = self.script(SELL, &keys, &[&booking.holder()]).await;
    }

    /// Whether a seat has a lease. No, if Redis does not answer.
    pub(crate) async fn is_leased(&self, block_id: &str, seat: &str) -> bool {
        let mut get = redis::cmd("GET");
        get.arg(self.lease_key(block_id, seat));
        let lease: Option<Option<String>> = self.ask_redis(get).await;
        let lease = lease.flatten();
        let lease = lease.as_deref().and_then(Lease::read);
        lease.is_some_and(|lease| lease.until > self.now())
    }

    async fn script<T: redis::FromRedisValue>(
        &self,
        script: &str,
        keys: &[(String, String)],
        arguments: &[&String],
    ) -> Option<T> {
        if self.realization == Realization::Pure || keys.is_empty() {
            return None;
        }
        let mut eval = redis::cmd("EVAL");
        eval.arg(script).arg(keys.len());
        for (block_id, seat) in keys {
            eval.arg(self.lease_key(block_id, seat));
        }
        for argument in arguments {
            eval.arg(argument);
        }
        self.ask_redis(eval).await
    }

    /// Asks Redis, if there are leases and Redis is not resting. No answer in time is none.
    async fn ask_redis<T: redis::FromRedisValue>(&self, command: redis::Cmd) -> Option<T> {
        if self.realization == Realization::Pure || !self.leases.may_ask(self.now()) {
            return None;
        }
        let patience = self.leases.patience;
        let connection = self.leases.connection(&self.cloud);
        let asking = async {
            let mut redis = connection.clone().await?.within(patience);
            command.query_async(&mut redis).await.ok()
        };
        let answer = tokio::time::timeout(patience, asking).await.ok().flatten();
        match answer {
            Some(_) => self.leases.was_answered(),
            None => self.leases.was_silent(&connection, self.now()),
        }
        answer
    }
}

/// The keys of a booking's seats.
fn lease_keys(lines: &[Line]) -> Vec<(String, String)> {
    lines
        .iter()
        .filter(|line| line.fence.is_some())
        .map(|line| (line.block_id.clone(), line.seat.clone()))
        .collect()
}

/// The way to Redis: one connection, and a circuit breaker before it.
#[derive(Clone)]
pub(crate) struct Leases {
    pub patience: Duration,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    /// Until when there are no lease calls, after one that failed.
    rests_until: Option<Millis>,
    connecting: Option<Connecting>,
    /// The connection that the cloud shares was silent once.
    failed: bool,
    /// Releases without an answer.
    owed: VecDeque<Release>,
    /// Releases that were answered, to be sent once more.
    again: VecDeque<Release>,
}

/// A holder, and the seats whose leases it no longer needs.
#[derive(Clone)]
struct Release {
    /// When it is to be sent.
    at: Millis,
    holder: String,
    keys: Vec<(String, String)>,
}

fn owe(owed: &mut VecDeque<Release>, at: Millis, holder: String, keys: Vec<(String, String)>) {
    if owed.iter().any(|known| known.holder == holder) {
        return;
    }
    if owed.len() >= MOST_OWED {
        owed.pop_front();
    }
    owed.push_back(Release { at, holder, keys });
}

type Connecting = Shared<BoxFuture<'static, Option<RedisConnection>>>;

impl Default for Leases {
    fn default() -> Self {
        Self {
            patience: LEASE_PATIENCE,
            state: Arc::default(),
        }
    }
}

impl Leases {
    /// Whether Redis may be asked. After a rest one caller may, and the others when it was answered.
    fn may_ask(&self, now: Millis) -> bool {
        let mut state = self.lock();
        let Some(until) = state.rests_until else {
            return true;
        };
        // A clock that was set back does not make the rest longer.
        if (until - REST_MS..until).contains(&now) {
            return false;
        }
        state.rests_until = Some(now + REST_MS);
        true
    }

    fn was_answered(&self) {
        self.lock().rests_until = None;
    }

    /// After the rest Redis is asked by another connection: this one may be silent for ever. One that is still being
    /// made has its own limit.
    fn was_silent(&self, connection: &Connecting, now: Millis) {
        let mut state = self.lock();
        state.rests_until = Some(now + REST_MS);
        let same = |it: &Connecting| it.ptr_eq(connection) && it.peek().is_some();
        state.connecting = state.connecting.take().filter(|it| !same(it));
        state.failed = true;
    }

    /// The connection, once there is one. All who wait share one attempt, and it goes on when they give up.
    fn connection(&self, cloud: &Cloud) -> Connecting {
        let mut state = self.lock();
        let failed = |it: &Connecting| it.peek().is_some_and(Option::is_none);
        if let Some(connecting) = state.connecting.as_ref().filter(|it| !failed(it)) {
            return connecting.clone();
        }
        let (cloud, anew) = (cloud.clone(), state.failed);
        let attempt = tokio::spawn(async move {
            match anew {
                true => cloud.redis_anew().await.ok(),
                false => cloud.redis().await.ok(),
            }
        });
        let connecting = attempt.map(|ended| ended.ok().flatten()).boxed().shared();
        state.connecting = Some(connecting.clone());
        connecting
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
