//! When a job fires: once, every so often, or by a cron expression in a time zone.
//!
//! A fire time is a point in time (epoch ms), so a change of clocks concerns only cron, and there
//! only the question which points an expression means. The answer is Vixie cron's: a fixed time
//! that the clocks jump over fires right after the jump; a fixed time that comes twice fires the
//! first time; an expression with a wildcard follows the clock, skipping what is not there and
//! firing in both of what comes twice.
//!
//! [`croner`] reads expressions and finds what they mean under one offset from UTC. The way from
//! one offset to the next is walked here: asked with a time zone, croner 3.0 leaves out the second
//! of two hours for a wildcard, and from within it finds what has passed.

use crate::domain::{BadInput, text};
use chrono::{
    DateTime, Datelike, FixedOffset, Months, NaiveDate, NaiveTime, Offset, TimeZone, Utc,
};
use chrono_tz::Tz;
use cloud::Millis;
use croner::Cron;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// The shortest interval. Below it the last mile, whole seconds of SQS, is longer than the way.
pub const MIN_EVERY_MS: Millis = 1_000;
/// The longest interval: ten years.
pub const MAX_EVERY_MS: Millis = 10 * 365 * 86_400_000;
/// A cron expression that does not fire within so many years never does. The 29th of February comes every
/// eight at the latest. Without a limit, croner looks at every day until the year 5000.
const HORIZON_YEARS: i32 = 12;
/// The last point in time that is taken: the year 2286, the last with 13 digits.
pub const MAX_TIME: Millis = 9_999_999_999_999;

/// When a job fires.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Schedule {
    /// Once, at this time. A time that has passed is due at once, or missed: see
    /// [`misfire`](crate::misfire).
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
                next_on_wall(&cron, zone, after)?
            }
        };
        (next > after && next <= MAX_TIME).then_some(next)
    }

    /// The last fire time between `since` and `until`, both included.
    pub fn last_between(&self, anchor: Millis, since: Millis, until: Millis) -> Option<Millis> {
        self.last_until(anchor, since, until)
            .filter(|last| *last >= since)
    }

    fn last_until(&self, anchor: Millis, since: Millis, until: Millis) -> Option<Millis> {
        match self {
            Self::Once { at } => (*at <= until).then_some(*at),
            Self::Every { every_ms } => {
                let passed = (until - anchor).div_euclid(*every_ms);
                (passed > 0).then_some(anchor + passed * every_ms)
            }
            Self::Cron { .. } => {
                let (cron, zone) = self.cron().ok()?;
                let since = since.max(anchor + 1);
                last_of(since, until, |after| next_on_wall(&cron, zone, after))
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
        text("a cron expression", expression)?;
        // Croner reads nothing between two commas as nothing.
        let mut places = expression.split_whitespace().flat_map(|it| it.split(','));
        if places.any(str::is_empty) {
            let why = "a list has an empty place".to_owned();
            return Err(BadInput::Cron(expression.clone(), why));
        }
        let cron = Cron::from_str(expression)
            .map_err(|error| BadInput::Cron(expression.clone(), error.to_string()))?;
        let zone = Tz::from_str(time_zone).map_err(|_| BadInput::TimeZone(time_zone.clone()))?;
        Ok((cron, zone))
    }
}

/// Whether an expression names times of the day, one or several, instead of following the clock:
/// neither its minutes nor its hours begin with a wildcard.
fn names_times(expression: &str) -> bool {
    let fields: Vec<_> = expression.split_whitespace().collect();
    // With seconds there are six fields, and seconds come first.
    let first = usize::from(fields.len() > 5);
    let fixed = |at: usize| fields.get(at).is_some_and(|field| !field.starts_with('*'));
    fixed(first) && fixed(first + 1)
}

/// The offset of a zone from UTC at a time, in seconds.
fn offset(zone: Tz, seconds: i64) -> Option<i32> {
    let time = DateTime::<Utc>::from_timestamp(seconds, 0)?;
    Some(
        zone.offset_from_utc_datetime(&time.naive_utc())
            .fix()
            .local_minus_utc(),
    )
}

/// The first second after `from`, up to `until`, at which the clocks show another offset.
fn change(zone: Tz, from: i64, until: i64) -> Option<i64> {
    let before = offset(zone, from)?;
    let changed = |at: i64| offset(zone, at).is_some_and(|offset| offset != before);
    let mut same = from;
    loop {
        // No zone changes twice within half a day.
        let next = (same + 43_200).min(until);
        if changed(next) {
            let (mut same, mut other) = (same, next);
            while other - same > 1 {
                let middle = same + (other - same) / 2;
                match changed(middle) {
                    true => other = middle,
                    false => same = middle,
                }
            }
            return Some(other);
        }
        if next == until {
            return None;
        }
        same = next;
    }
}

/// The first day from this one on that the expression has.
fn first_day(cron: &Cron, from: NaiveDate) -> Option<NaiveDate> {
    let mut day = from;
    while day.year() <= from.year() + HORIZON_YEARS {
        if !cron.pattern.year_match(day.year()).ok()? {
            day = NaiveDate::from_ymd_opt(day.year() + 1, 1, 1)?;
        } else if !cron.pattern.month_match(day.month()).ok()? {
            day = day.with_day(1)?.checked_add_months(Months::new(1))?;
        } else if cron
            .pattern
            .day_match(day.year(), day.month(), day.day())
            .ok()?
        {
            return Some(day);
        } else {
            day = day.succ_opt()?;
        }
    }
    None
}

/// What comes next under one offset from UTC: croner looks from the first day that can have it.
fn next_under(cron: &Cron, start: DateTime<FixedOffset>) -> Option<i64> {
    let day = first_day(cron, start.date_naive())?;
    let midnight = day.and_time(NaiveTime::MIN);
    let midnight = start.offset().from_local_datetime(&midnight).single()?;
    // What comes after a second before midnight may come at midnight.
    let start = start.max(midnight - chrono::Duration::seconds(1));
    Some(cron.find_next_occurrence(&start, false).ok()?.timestamp())
}

/// The first fire time after `after`: what the expression means under the offset of now, unless the
/// clocks change before that; then what it means from there on. Fire times are whole seconds, so a
/// fraction is cut off: what comes after 10:00:00.5 comes after 10:00:00.
fn next_on_wall(cron: &Cron, zone: Tz, after: Millis) -> Option<Millis> {
    let fixed = names_times(&cron.pattern.to_string());
    let mut from = after.div_euclid(1_000);
    // Until then a fixed time has come before: the clocks show it a second time.
    let mut repeats_until = repeats_until(zone, from);
    loop {
        let shown = offset(zone, from)?;
        let wall = FixedOffset::east_opt(shown)?;
        let start = DateTime::<Utc>::from_timestamp(from, 0)?.with_timezone(&wall);
        let found = next_under(cron, start)?;
        let Some(change) = change(zone, from, found) else {
            if fixed && found < repeats_until {
                from = found;
                continue;
            }
            return Some(found * 1_000);
        };
        let jump = i64::from(offset(zone, change)? - shown);
        if fixed && jump > 0 && found < change + jump {
            // The clocks jump over it: right after the jump.
            return Some(change * 1_000);
        }
        repeats_until = change + (-jump).max(0);
        // Exactly at the change is after the change.
        let wall = FixedOffset::east_opt(offset(zone, change)?)?;
        let start = DateTime::<Utc>::from_timestamp(change, 0)?.with_timezone(&wall);
        if cron.is_time_matching(&start).ok()? && !(fixed && change < repeats_until) {
            return Some(change * 1_000);
        }
        from = change;
    }
}

/// Until when the clocks show what they have shown before; in the past if they do not.
fn repeats_until(zone: Tz, at: i64) -> i64 {
    let before = at - 43_200;
    let repeats = || {
        let change = change(zone, before, at)?;
        let back = offset(zone, before)? - offset(zone, change)?;
        Some(change + i64::from(back.max(0)))
    };
    repeats().unwrap_or(0)
}

/// The last fire time between `since` and `until`, by halves: `next` says what comes after a time. So a year of fire
/// times, each second of it, is some two dozen questions.
pub fn last_of(
    since: Millis,
    until: Millis,
    mut next: impl FnMut(Millis) -> Option<Millis>,
) -> Option<Millis> {
    let mut next = |after| next(after).filter(|fire| *fire <= until);
    let mut last = next(since - 1)?;
    // Nothing comes after this.
    let mut end = until;
    // Fire times are whole seconds.
    while end - last >= 1_000 {
        let middle = last + (end - last) / 2;
        match next(middle) {
            Some(fire) => last = fire,
            None => end = middle,
        }
    }
    Some(last)
}
