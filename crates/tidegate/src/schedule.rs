//! Calendar windows: days, weeks, months and years of a time zone.
//!
//! Time zone rules live here and not in the core. A schedule turns a wall time into the previous,
//! current and next window; the store then picks one by its own clock.

use std::str::FromStr;

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, Zoned};
use tidegate_core::{WallTime, Windows};

/// Why a schedule is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The period is not `day`, `week`, `month` or `year`.
    #[error("unknown calendar period {0:?}: use day, week, month or year")]
    UnknownPeriod(String),
    /// The time zone is not known.
    #[error("{0:?} is not a time zone: use an IANA name such as UTC or America/Los_Angeles")]
    UnknownZone(String),
}

/// Length of a calendar window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Period {
    /// From midnight to midnight.
    Day,
    /// From Monday to Monday.
    Week,
    /// From the first day of a month to the first day of the next.
    Month,
    /// From 1 January to 1 January.
    Year,
}

impl FromStr for Period {
    type Err = ScheduleError;

    fn from_str(text: &str) -> Result<Self, ScheduleError> {
        match text {
            "day" => Ok(Self::Day),
            "week" => Ok(Self::Week),
            "month" => Ok(Self::Month),
            "year" => Ok(Self::Year),
            other => Err(ScheduleError::UnknownPeriod(other.to_owned())),
        }
    }
}

/// The windows of a calendar quota.
///
/// ```
/// use tidegate::{Engine, Schedule};
/// let schedule = Schedule::monthly("Europe/Lisbon")?;
/// let limiter = Engine::new().calendar("reports", 1_000, schedule)?;
/// assert_eq!(limiter.take("alice").now()?.remaining(), 999);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    period: Period,
    zone: TimeZone,
}

impl Schedule {
    /// Windows of a `day`, `week`, `month` or `year`, as spelled in configuration files.
    ///
    /// # Errors
    /// When the period or the time zone is not known.
    pub fn every(period: &str, zone: &str) -> Result<Self, ScheduleError> {
        Self::new(period.parse()?, zone)
    }

    /// Windows from midnight to midnight in this time zone, by its IANA name.
    ///
    /// # Errors
    /// When the time zone is not known.
    pub fn daily(zone: &str) -> Result<Self, ScheduleError> {
        Self::new(Period::Day, zone)
    }

    /// Windows from Monday to Monday in this time zone, by its IANA name.
    ///
    /// # Errors
    /// When the time zone is not known.
    pub fn weekly(zone: &str) -> Result<Self, ScheduleError> {
        Self::new(Period::Week, zone)
    }

    /// Windows of calendar months in this time zone, by its IANA name.
    ///
    /// # Errors
    /// When the time zone is not known.
    pub fn monthly(zone: &str) -> Result<Self, ScheduleError> {
        Self::new(Period::Month, zone)
    }

    /// Windows of calendar years in this time zone, by its IANA name.
    ///
    /// # Errors
    /// When the time zone is not known.
    pub fn yearly(zone: &str) -> Result<Self, ScheduleError> {
        Self::new(Period::Year, zone)
    }

    fn new(period: Period, zone: &str) -> Result<Self, ScheduleError> {
        let zone = TimeZone::get(zone).map_err(|_| ScheduleError::UnknownZone(zone.to_owned()))?;
        Ok(Self { period, zone })
    }

    /// The previous, current and next window around a wall time.
    ///
    /// A day that is longer or shorter because of a clock change is still one window.
    #[must_use]
    pub fn windows(&self, wall: WallTime) -> Windows {
        let nanos = i128::from(wall.as_nanos());
        let now = Timestamp::from_nanosecond(nanos).unwrap_or(Timestamp::MAX);
        let start = self.window_start(now.to_zoned(self.zone.clone()).date());
        let bounds = |steps: [i64; 4]| steps.map(|steps| self.window_bound(start, steps));
        // The very first window, where the clock of a test may start, has no predecessor.
        let bounds = match bounds([-1, 0, 1, 2]) {
            [before, first, ..] if before == first => bounds([0, 1, 2, 3]),
            bounds => bounds,
        };
        // Bounds are equal only at the very end of the representable calendar.
        Windows::new(bounds).unwrap_or_else(|| {
            let end = u32::MAX;
            Windows::new([end - 3, end - 2, end - 1, end]).unwrap_or_else(|| unreachable!())
        })
    }

    fn window_start(&self, date: Date) -> Date {
        match self.period {
            Period::Day => date,
            Period::Week => {
                let back = date.weekday().since(Weekday::Monday);
                date.saturating_sub(i64::from(back).days())
            }
            Period::Month => date.first_of_month(),
            Period::Year => date.first_of_year(),
        }
    }

    /// First instant, in Unix seconds, of the window `steps` after the one at `start`.
    fn window_bound(&self, start: Date, steps: i64) -> u32 {
        let span = match self.period {
            Period::Day => steps.days(),
            Period::Week => steps.weeks(),
            Period::Month => steps.months(),
            Period::Year => steps.years(),
        };
        let date = start.saturating_add(span);
        // Midnight, or the first instant of a day without one.
        let begins = date.to_zoned(self.zone.clone()).map(|day| start_of_day(&day));
        let secs = begins.map_or(i64::from(u32::MAX), |day| day.timestamp().as_second());
        u32::try_from(secs.max(0)).unwrap_or(u32::MAX)
    }
}

fn start_of_day(day: &Zoned) -> Zoned {
    day.start_of_day().unwrap_or_else(|_| day.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wall(text: &str) -> WallTime {
        let second = text.parse::<Timestamp>().unwrap().as_second();
        WallTime::from_secs(u32::try_from(second).unwrap())
    }

    fn end(period: Period, zone: &str, at: &str) -> String {
        let windows = Schedule::new(period, zone).unwrap().windows(wall(at));
        let end = windows.end_of(wall(at)).unwrap();
        Timestamp::from_second(end.into()).unwrap().to_string()
    }

    #[test]
    fn windows_follow_the_zone() {
        assert_eq!(end(Period::Day, "UTC", "2026-11-16T23:59:59Z"), "2026-11-17T00:00:00Z");
        assert_eq!(end(Period::Day, "UTC", "2026-11-17T00:00:00Z"), "2026-11-18T00:00:00Z");
        let zone = "America/Los_Angeles";
        assert_eq!(end(Period::Day, zone, "2026-11-16T07:59:59Z"), "2026-11-16T08:00:00Z");
        assert_eq!(end(Period::Week, "UTC", "2026-11-16T00:00:00Z"), "2026-11-23T00:00:00Z");
        assert_eq!(end(Period::Month, "UTC", "2026-12-31T12:00:00Z"), "2027-01-01T00:00:00Z");
        assert_eq!(end(Period::Year, "UTC", "2028-02-29T12:00:00Z"), "2029-01-01T00:00:00Z");
    }

    /// Clocks go forward on 8 March 2026 in Los Angeles: that day has 23 hours.
    #[test]
    fn a_day_of_23_hours_is_one_window() {
        let zone = "America/Los_Angeles";
        assert_eq!(end(Period::Day, zone, "2026-03-08T08:00:00Z"), "2026-03-09T07:00:00Z");
        assert_eq!(end(Period::Day, zone, "2026-03-09T06:59:59Z"), "2026-03-09T07:00:00Z");
    }

    #[test]
    fn unknown_zones_and_periods_are_rejected() {
        assert!(matches!(
            Schedule::new(Period::Day, "Mars/Olympus"),
            Err(ScheduleError::UnknownZone(_))
        ));
        assert!(matches!("fortnight".parse::<Period>(), Err(ScheduleError::UnknownPeriod(_))));
    }
}
