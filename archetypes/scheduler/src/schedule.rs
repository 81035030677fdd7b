//! When a job fires: once, every so often, or by a cron expression in a time zone.
//!
//! A fire time is a point in time (epoch ms), so a change of clocks concerns only cron, and there
//! only the question which points an expression means. [`croner`] answers it as Vixie cron does: a
//! fixed time that the clocks jump over fires right after the jump; a fixed time that comes twice
//! fires the first time; an expression with a wildcard follows the clock, skipping what is not
//! there and firing in both of what comes twice.

use crate::domain::BadInput;
use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use cloud::Millis;
use croner::Cron;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The shortest interval. Below it the last mile, whole seconds of SQS, is longer than the way.
pub const MIN_EVERY_MS: Millis = 1_000;
/// The longest interval: ten years.
pub const MAX_EVERY_MS: Millis = 10 * 365 * 86_400_000;
/// The last point in time that is taken: the year 2286, the last with 13 digits.
pub const MAX_TIME: Millis = 9_999_999_999_999;

/// When a job fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Once, at this time. A time that has passed is due at once.
    Once {
        /// Epoch ms.
        at: Millis,
    },
    /// Again and again, counted from the anchor and not from the last run: it does not drift.
    Every {
        /// The interval.
        every_ms: Millis,
    },
    /// By the clock on a wall somewhere.
    Cron {
        /// `0 9 * * MON-FRI`; a sixth field in front is seconds.
        expression: String,
        /// An IANA name: `Europe/Berlin`.
        time_zone: String,
    },
}

impl Schedule {
    /// The first fire time of a job whose anchor is `anchor`.
    pub fn first(&self, anchor: Millis) -> Option<Millis> {
        match self {
            Self::Once { at } => Some(*at),
            _ => self.next_after(anchor, anchor),
        }
    }

    /// The first fire time strictly after `after`.
    pub fn next_after(&self, anchor: Millis, after: Millis) -> Option<Millis> {
        let next = match self {
            Self::Once { at } => *at,
            Self::Every { every_ms } => {
                let passed = (after - anchor).div_euclid(*every_ms);
                anchor + (passed.max(0) + 1) * every_ms
            }
            Self::Cron { .. } => {
                let (cron, zone) = self.cron().ok()?;
                let found = cron.find_next_occurrence(&local(after, zone)?, false);
                found.ok()?.timestamp_millis()
            }
        };
        (next > after && next <= MAX_TIME).then_some(next)
    }

    /// The last fire time at or before `until`.
    pub fn last_until(&self, anchor: Millis, until: Millis) -> Option<Millis> {
        match self {
            Self::Once { at } => (*at <= until).then_some(*at),
            Self::Every { every_ms } => {
                let passed = (until - anchor).div_euclid(*every_ms);
                (passed > 0).then_some(anchor + passed * every_ms)
            }
            Self::Cron { .. } => {
                let (cron, zone) = self.cron().ok()?;
                let found = cron.find_previous_occurrence(&local(until, zone)?, true);
                let found = found.ok()?.timestamp_millis();
                (found > anchor).then_some(found)
            }
        }
    }

    /// What is wrong with it, if anything.
    pub fn validate(&self, anchor: Millis) -> Result<(), BadInput> {
        match self {
            Self::Once { at } if !(0..=MAX_TIME).contains(at) => Err(BadInput::Time(*at)),
            Self::Every { every_ms } if !(MIN_EVERY_MS..=MAX_EVERY_MS).contains(every_ms) => {
                Err(BadInput::Every(*every_ms))
            }
            Self::Cron { expression, .. } => {
                self.cron()?;
                match self.first(anchor) {
                    Some(_) => Ok(()),
                    None => Err(BadInput::NeverFires(expression.clone())),
                }
            }
            _ => Ok(()),
        }
    }

    fn cron(&self) -> Result<(Cron, Tz), BadInput> {
        let Self::Cron {
            expression,
            time_zone,
        } = self
        else {
            return Err(BadInput::Cron(String::new(), "not cron".to_owned()));
        };
        let cron = Cron::from_str(expression)
            .map_err(|error| BadInput::Cron(expression.clone(), error.to_string()))?;
        let zone = Tz::from_str(time_zone).map_err(|_| BadInput::TimeZone(time_zone.clone()))?;
        Ok((cron, zone))
    }
}

/// What a wall clock there shows. Fire times are whole seconds, so a fraction is cut off: 10:00:00.5
/// is after 10:00:00, and so is what comes next after either.
fn local(time: Millis, zone: Tz) -> Option<DateTime<Tz>> {
    let time = DateTime::<Utc>::from_timestamp(time.div_euclid(1_000), 0)?;
    Some(time.with_timezone(&zone))
}
