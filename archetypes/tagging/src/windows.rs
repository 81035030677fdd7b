//! The windows that popularity is counted in: all time, a day, an hour. Pure.

use cloud::Millis;
use std::fmt;
use std::str::FromStr;

/// How long an hour's counts are kept after it is over.
pub const HOUR_KEPT: Millis = 24 * HOUR;
/// How long a day's counts are kept after it is over.
pub const DAY_KEPT: Millis = 7 * DAY;
/// How much longer DynamoDB keeps the rows: whoever is told the wrong time still finds them.
pub const GRACE: Millis = DAY;

const HOUR: Millis = 3_600_000;
const DAY: Millis = 24 * HOUR;

/// A window. An edge is counted in those that its `created_at` is in, as long as it is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Window {
    /// Since ever.
    All,
    /// A day (UTC), by its beginning.
    Day(Millis),
    /// An hour, by its beginning.
    Hour(Millis),
}

impl Window {
    /// The day that a moment is in.
    pub fn day(at: Millis) -> Self {
        Self::Day(at - at.rem_euclid(DAY))
    }

    /// The hour that a moment is in.
    pub fn hour(at: Millis) -> Self {
        Self::Hour(at - at.rem_euclid(HOUR))
    }

    /// The windows that a moment is in.
    pub fn of(at: Millis) -> [Self; 3] {
        [Self::All, Self::day(at), Self::hour(at)]
    }

    /// When nobody asks for it any more.
    pub fn kept_until(self) -> Option<Millis> {
        match self {
            Self::All => None,
            Self::Day(start) => Some(start + DAY + DAY_KEPT),
            Self::Hour(start) => Some(start + HOUR + HOUR_KEPT),
        }
    }

    /// Whether it is still counted. What is over is neither written nor read, whether DynamoDB has
    /// deleted it or not: that may take days.
    pub fn is_kept(self, now: Millis) -> bool {
        self.kept_until().is_none_or(|until| now < until)
    }

    /// When DynamoDB may delete its rows, in epoch seconds.
    pub fn expires_at(self) -> Option<i64> {
        self.kept_until().map(|until| (until + GRACE) / 1_000)
    }

    /// All windows that are kept and have begun.
    pub fn all_kept(now: Millis) -> Vec<Self> {
        let days = (0..)
            .map(|back| Self::day(now - back * DAY))
            .take_while(|window| window.is_kept(now));
        let hours = (0..)
            .map(|back| Self::hour(now - back * HOUR))
            .take_while(|window| window.is_kept(now));
        std::iter::once(Self::All)
            .chain(days)
            .chain(hours)
            .collect()
    }
}

/// `ALL`, `DAY#2026-01-01`, `HOUR#2026-01-01T05`: as it stands in keys.
impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("ALL"),
            Self::Day(start) => {
                let (year, month, day) = date(start.div_euclid(DAY));
                write!(f, "DAY#{year:04}-{month:02}-{day:02}")
            }
            Self::Hour(start) => {
                let (year, month, day) = date(start.div_euclid(DAY));
                let hour = start.rem_euclid(DAY) / HOUR;
                write!(f, "HOUR#{year:04}-{month:02}-{day:02}T{hour:02}")
            }
        }
    }
}

/// Reads what [`Window`] shows.
impl FromStr for Window {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let start = |text: &str| {
            let (date, hour) = text.split_once('T').unwrap_or((text, "00"));
            let mut parts = date.splitn(3, '-').map(str::parse::<i64>);
            let mut part = || parts.next()?.ok();
            let days = days(part()?, part()?, part()?);
            Some(days * DAY + hour.parse::<i64>().ok()? * HOUR)
        };
        let window = match text.split_once('#') {
            None if text == "ALL" => Some(Self::All),
            Some(("DAY", text)) => start(text).map(Self::Day),
            Some(("HOUR", text)) => start(text).map(Self::Hour),
            _ => None,
        };
        window.filter(|window| window.to_string() == text).ok_or(())
    }
}

/// Year, month and day of a day since the epoch, in the Gregorian calendar. A year begins in March
/// here, so that the day that is sometimes missing is its last one.
fn date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let (era, of_era) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let (day, month) = (
        of_year - (153 * month + 2) / 5 + 1,
        if month < 10 { month + 3 } else { month - 9 },
    );
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// The day since the epoch: the other way round.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let month = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_in_its_hour_its_day_and_all_time() {
        let at = 1_767_225_600_000 + 5 * HOUR + 1;
        let names = Window::of(at).map(|window| window.to_string());
        assert_eq!(names, ["ALL", "DAY#2026-01-01", "HOUR#2026-01-01T05"]);
        assert_eq!(Window::day(951_782_400_000).to_string(), "DAY#2000-02-29");
    }

    #[test]
    fn what_a_window_shows_can_be_read_again() {
        for day in (-1_000..40_000).step_by(7) {
            for window in Window::of(day * DAY + 13 * HOUR) {
                assert_eq!(window.to_string().parse(), Ok(window));
            }
        }
        for wrong in [
            "",
            "DAY",
            "DAY#2026-02-30",
            "HOUR#2026-01-01",
            "DAY#x",
            "HOUR#2026-01-01T24",
        ] {
            assert_eq!(wrong.parse::<Window>(), Err(()), "{wrong}");
        }
    }

    #[test]
    fn windows_end_and_all_time_does_not() {
        let now = 1_767_225_600_000;
        let kept = Window::all_kept(now);
        assert_eq!(kept.len(), 1 + 8 + 25);
        assert!(kept.iter().all(|window| window.is_kept(now)));
        assert!(!Window::hour(now).is_kept(now + HOUR + HOUR_KEPT));
        assert!(Window::All.is_kept(Millis::MAX));
    }
}
