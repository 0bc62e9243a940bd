//! The simulator's wall clock, and the time formats of providers.
//!
//! The wall clock is a start time chosen by the test plus the elapsed time of tokio's clock. The
//! system time is never read, so runs under virtual time always see the same dates.

use std::fmt::Write as _;
use std::time::Duration;

/// Nanoseconds per second.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Nanoseconds per minute.
pub(crate) const MINUTE: u64 = 60 * SECOND;
/// Nanoseconds per day.
pub(crate) const DAY: u64 = 86_400 * SECOND;

const DAY_NAMES: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTH_NAMES: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// An instant, as elapsed time and as wall clock time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Now {
    /// Nanoseconds since the simulator was built.
    pub(crate) elapsed: u64,
    /// Nanoseconds since 1970 on the simulator's wall clock.
    pub(crate) wall: u64,
}

impl Now {
    /// Returns the seconds since 1970.
    pub(crate) fn unix_seconds(self) -> u64 {
        self.wall / SECOND
    }

    /// Returns the wall clock in seconds after `nanos`, rounded up so that an announced reset is
    /// never early.
    pub(crate) fn second_after(self, nanos: u64) -> u64 {
        self.wall.saturating_add(nanos).div_ceil(SECOND)
    }

    /// Returns the wall clock in milliseconds after `nanos`, rounded up.
    pub(crate) fn millisecond_after(self, nanos: u64) -> u64 {
        self.wall.saturating_add(nanos).div_ceil(SECOND / 1_000)
    }
}

/// Returns the nanoseconds of a duration, saturating at 584 years.
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the seconds of a wait, rounded up.
pub(crate) fn whole_seconds(nanos: u64) -> u64 {
    nanos.div_ceil(SECOND)
}

/// Returns the milliseconds of a wait, rounded up.
pub(crate) fn whole_millis(nanos: u64) -> u64 {
    nanos.div_ceil(SECOND / 1_000)
}

/// A time zone with a fixed offset from UTC, without daylight saving.
///
/// ```
/// use tidegate_sim::Zone;
///
/// assert_eq!(Zone::hours(-8), Zone::seconds(-28_800)); // Pacific standard time
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Zone {
    seconds: i32,
}

impl Zone {
    /// UTC.
    pub const UTC: Self = Self { seconds: 0 };

    /// Creates a zone `hours` ahead of UTC, or behind if negative.
    #[must_use]
    pub const fn hours(hours: i8) -> Self {
        Self { seconds: hours as i32 * 3_600 }
    }

    /// Creates a zone `seconds` ahead of UTC, or behind if negative.
    #[must_use]
    pub const fn seconds(seconds: i32) -> Self {
        Self { seconds }
    }

    /// Returns the day number of an instant, and the nanoseconds until that day ends.
    pub(crate) fn day(self, now: Now) -> (i128, u64) {
        let local = i128::from(now.wall) + i128::from(self.seconds) * i128::from(SECOND);
        let day = local.div_euclid(i128::from(DAY));
        let passed = u64::try_from(local.rem_euclid(i128::from(DAY))).unwrap_or(0);
        (day, DAY - passed)
    }
}

/// Formats seconds since 1970 as `2026-01-31T12:00:00Z`.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let (year, month, day) = date(seconds / 86_400);
    let (hour, minute, second) = clock(seconds);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Formats seconds since 1970 as `Sat, 31 Jan 2026 12:00:00 GMT`.
pub(crate) fn http_date(seconds: u64) -> String {
    let days = seconds / 86_400;
    let (year, month, day) = date(days);
    let (hour, minute, second) = clock(seconds);
    let name = |names: &[&'static str], index: u64| {
        usize::try_from(index).ok().and_then(|index| names.get(index)).copied().unwrap_or("")
    };
    let weekday = name(&DAY_NAMES, days % 7);
    let month = name(&MONTH_NAMES, month - 1);
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// Formats a wait like Go does, in milliseconds rounded up: `12ms`, `7.66s`, `6m0s`, `1h2m3s`.
pub(crate) fn go_duration(nanos: u64) -> String {
    let millis = whole_millis(nanos);
    if millis == 0 {
        return "0s".to_owned();
    }
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    let (minutes, rest) = (millis / 60_000, millis % 60_000);
    let mut text = String::new();
    if minutes >= 60 {
        let _ = write!(text, "{}h", minutes / 60);
    }
    if minutes > 0 {
        let _ = write!(text, "{}m", minutes % 60);
    }
    text.push_str(&decimal_seconds(rest * 1_000_000));
    text
}

/// Formats a wait in seconds without trailing zeros: `22s`, `10.689924287s`.
pub(crate) fn decimal_seconds(nanos: u64) -> String {
    let (whole, part) = (nanos / SECOND, nanos % SECOND);
    if part == 0 {
        return format!("{whole}s");
    }
    let part = format!("{part:09}");
    format!("{whole}.{}s", part.trim_end_matches('0'))
}

fn clock(seconds: u64) -> (u64, u64, u64) {
    let rest = seconds % 86_400;
    (rest / 3_600, rest % 3_600 / 60, rest % 60)
}

/// Converts days since 1970 into year, month and day. Years are counted in cycles of 400, 100, 4
/// and 1 and start in March, so that the leap day is the last day of a year.
fn date(days: u64) -> (u64, u64, u64) {
    // 1 March 2000 is day 11,017; adding a cycle of 400 years keeps the number positive.
    let from_march = days + 146_097 - 11_017;
    let (cycles, in_cycle) = (from_march / 146_097, from_march % 146_097);
    let centuries = (in_cycle / 36_524).min(3);
    let in_century = in_cycle - centuries * 36_524;
    let (fours, in_four) = (in_century / 1_461, in_century % 1_461);
    let years = (in_four / 365).min(3);
    let in_year = in_four - years * 365;
    // Starting in March, every five months have 153 days.
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let year = 1_600 + cycles * 400 + centuries * 100 + fours * 4 + years;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_correct_around_leap_days_and_new_year() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_704_067_199, "2023-12-31T23:59:59Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (4_107_456_000, "2100-02-28T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds), text);
        }
    }

    #[test]
    fn http_dates_name_day_and_month() {
        assert_eq!(http_date(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
    }

    #[test]
    fn durations_are_formatted_like_go() {
        for (millis, text) in [
            (0, "0s"),
            (12, "12ms"),
            (1_000, "1s"),
            (7_660, "7.66s"),
            (59_999, "59.999s"),
            (60_500, "1m0.5s"),
            (360_000, "6m0s"),
            (3_723_000, "1h2m3s"),
            (86_400_000, "24h0m0s"),
        ] {
            assert_eq!(go_duration(millis * 1_000_000), text);
        }
        assert_eq!(go_duration(1), "1ms");
        assert_eq!(decimal_seconds(10_689_924_287), "10.689924287s");
    }

    #[test]
    fn day_ends_at_midnight_of_its_zone() {
        let at = |wall: u64| Now { elapsed: 0, wall: wall * SECOND };
        let noon = 1_767_225_600 + 43_200;
        assert_eq!(Zone::UTC.day(at(noon)), (20_454, 43_200 * SECOND));
        // 12:00 UTC is 04:00 in the zone.
        assert_eq!(Zone::hours(-8).day(at(noon)), (20_454, 20 * 3_600 * SECOND));
        // 07:00 UTC is 23:00 of the previous day in the zone.
        assert_eq!(Zone::hours(-8).day(at(1_767_225_600 + 7 * 3_600)).0, 20_453);
        assert_eq!(Zone::hours(-8).day(at(0)).0, -1);
    }
}
