//! Times in logs, as nanoseconds since the Unix epoch.
//!
//! Access logs have dates such as `10/Oct/2000:13:55:36 -0700`; other logs have RFC 3339 dates or
//! numbers, whose unit follows from their magnitude. A date without a zone is in UTC. No calendar
//! library is used: a log line has a fixed form, and is read millions of times.

use crate::log::line_error::LineError;

const SECOND: u64 = 1_000_000_000;
/// The end of the range, 2262: more seconds do not fit into 63 bits of nanoseconds.
const MAX_SECONDS: i64 = 9_223_372_036;
const DAY: i64 = 86_400;
/// Length of a date in an access log.
pub(crate) const ACCESS_LENGTH: usize = 26;

/// Reads dates of access logs. Most lines have the date of the line before.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AccessTime {
    last: [u8; ACCESS_LENGTH],
    nanos: u64,
}

impl AccessTime {
    #[inline]
    pub(crate) fn parse(&mut self, text: &[u8; ACCESS_LENGTH]) -> Result<u64, LineError> {
        if *text != self.last {
            self.nanos = access_date(text)?;
            self.last = *text;
        }
        Ok(self.nanos)
    }
}

fn access_date(text: &[u8; ACCESS_LENGTH]) -> Result<u64, LineError> {
    const MONTHS: [&[u8]; 12] = [
        b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov",
        b"Dec",
    ];
    let bad = LineError::AccessTime;
    let separators = [(2, b'/'), (6, b'/'), (11, b':'), (14, b':'), (17, b':'), (20, b' ')];
    if separators.iter().any(|&(at, separator)| text[at] != separator) {
        return Err(bad);
    }
    let month = MONTHS.iter().position(|&name| name == &text[3..6]).ok_or(bad)?;
    let number = |from: usize, to: usize| digits(&text[from..to]).ok_or(bad);
    let date = Date {
        year: number(7, 11)?,
        month: month as i64 + 1,
        day: number(0, 2)?,
        hour: number(12, 14)?,
        minute: number(15, 17)?,
        second: number(18, 20)?,
    };
    let offset = offset(&text[21..]).ok_or(bad)?;
    nanos(date.seconds().ok_or(bad)? - offset, 0)
}

/// Reads a date or a number.
pub(crate) fn parse(text: &[u8]) -> Result<u64, LineError> {
    let text = text.trim_ascii();
    if text.len() > 10 && text[4] == b'-' { rfc3339(text) } else { number(text) }
}

/// Reads a number of seconds, or a larger one of milliseconds, microseconds or nanoseconds. The
/// smallest of each are in 1973.
fn number(text: &[u8]) -> Result<u64, LineError> {
    if text.first() == Some(&b'-') && text[1..].first().is_some_and(u8::is_ascii_digit) {
        return Err(LineError::TimeRange);
    }
    let (whole, fraction) = split_at(text, b'.');
    if whole.len() > 19 {
        return Err(if digits(&whole[..1]).is_some() {
            LineError::TimeRange
        } else {
            LineError::Time
        });
    }
    let whole = digits(whole).ok_or(LineError::Time)?;
    let fraction = match fraction {
        Some(fraction) => nano_digits(fraction).ok_or(LineError::Time)?,
        None => 0,
    };
    let unit: u64 = match whole {
        0..100_000_000_000 => SECOND,
        100_000_000_000..100_000_000_000_000 => 1_000_000,
        100_000_000_000_000..100_000_000_000_000_000 => 1_000,
        _ => 1,
    };
    let per_second = (SECOND / unit).cast_signed();
    let (seconds, rest) = (whole / per_second, whole % per_second);
    // `rest` is below a second's worth of the unit, and the fraction below one unit.
    nanos(seconds, rest.cast_unsigned() * unit + fraction * unit / SECOND)
}

/// Reads `2026-01-31T08:00:00.123Z`, with any fraction, `T`, `t` or a space, and a zone of the form
/// `Z`, `+01:00` or `+0100`, or none.
fn rfc3339(text: &[u8]) -> Result<u64, LineError> {
    let bad = LineError::Time;
    let form = b"0000-00-00T00:00:00";
    let head = text.get(..form.len()).ok_or(bad)?;
    let fits = head.iter().zip(form).all(|(&byte, &form)| match form {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        _ => byte == form,
    });
    if !fits {
        return Err(bad);
    }
    let number = |from: usize, to: usize| digits(&head[from..to]).ok_or(bad);
    let date = Date {
        year: number(0, 4)?,
        month: number(5, 7)?,
        day: number(8, 10)?,
        hour: number(11, 13)?,
        minute: number(14, 16)?,
        second: number(17, 19)?,
    };
    let mut rest = &text[form.len()..];
    let mut fraction = 0;
    if let [b'.' | b',', tail @ ..] = rest {
        let length = tail.iter().take_while(|byte| byte.is_ascii_digit()).count();
        fraction = nano_digits(&tail[..length]).ok_or(bad)?;
        rest = &tail[length..];
    }
    let offset = match rest.trim_ascii_start() {
        b"" | b"Z" | b"z" | b"UTC" => 0,
        zone => offset(zone).ok_or(bad)?,
    };
    nanos(date.seconds().ok_or(bad)? - offset, fraction)
}

/// A date and time of day, not yet checked.
struct Date {
    year: i64,
    month: i64,
    day: i64,
    hour: i64,
    minute: i64,
    second: i64,
}

impl Date {
    /// Returns seconds since the Unix epoch. Second 60, a leap second, is the one after.
    fn seconds(&self) -> Option<i64> {
        let is_leap = self.year % 4 == 0 && (self.year % 100 != 0 || self.year % 400 == 0);
        let length = match self.month {
            2 => 28 + i64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        if !(1..=length).contains(&self.day)
            || self.hour > 23
            || self.minute > 59
            || self.second > 60
        {
            return None;
        }
        let time = self.hour * 3_600 + self.minute * 60 + self.second;
        Some(self.days() * DAY + time)
    }

    /// Returns days since the Unix epoch, counted in years that begin in March, so that the leap
    /// day is the last of its year.
    fn days(&self) -> i64 {
        const DAYS_TO_EPOCH: i64 = 719_468;
        let year = self.year - i64::from(self.month <= 2);
        let month = (self.month + 9) % 12;
        let day_of_year = (153 * month + 2) / 5 + self.day - 1;
        365 * year + year / 4 - year / 100 + year / 400 + day_of_year - DAYS_TO_EPOCH
    }
}

/// Formats a time as an RFC 3339 date in UTC, with milliseconds.
pub(crate) fn format(nanos: u64) -> String {
    let seconds = nanos / SECOND;
    let (mut days, time) = ((seconds / DAY.cast_unsigned()).cast_signed(), seconds % 86_400);
    // March 1 of the year 0.
    days += 719_468;
    let era = days / 146_097;
    let in_era = days % 146_097;
    let year_in_era = (in_era - in_era / 1_460 + in_era / 36_524 - in_era / 146_096) / 365;
    let day = in_era - (365 * year_in_era + year_in_era / 4 - year_in_era / 100);
    let shifted = (5 * day + 2) / 153;
    let month = (shifted + 2) % 12 + 1;
    let year = era * 400 + year_in_era + i64::from(month <= 2);
    let day = day - (153 * shifted + 2) / 5 + 1;
    let (hour, minute, second) = (time / 3_600, time / 60 % 60, time % 60);
    let millis = nanos % SECOND / 1_000_000;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

/// Reads an offset from UTC in seconds: `+0100` or `-01:00`.
fn offset(zone: &[u8]) -> Option<i64> {
    let (sign, rest) = match zone {
        [b'+', rest @ ..] => (1, rest),
        [b'-', rest @ ..] => (-1, rest),
        _ => return None,
    };
    let (hours, minutes) = match rest {
        [hours @ .., b':', a, b] if hours.len() == 2 => (hours, [*a, *b]),
        [h, i, a, b] => (&[*h, *i][..], [*a, *b]),
        _ => return None,
    };
    let (hours, minutes) = (digits(hours)?, digits(&minutes)?);
    (hours < 24 && minutes < 60).then_some(sign * (hours * 3_600 + minutes * 60))
}

fn nanos(seconds: i64, fraction: u64) -> Result<u64, LineError> {
    match u64::try_from(seconds) {
        Ok(whole) if seconds < MAX_SECONDS => Ok(whole * SECOND + fraction),
        _ => Err(LineError::TimeRange),
    }
}

/// Reads at most 19 digits.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_i64, |value, byte| {
        let digit = byte.is_ascii_digit().then(|| i64::from(byte - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

/// Reads digits after the point as billionths; later ones are cut off.
fn nano_digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let padded = text.iter().map(|byte| u64::from(byte - b'0')).chain(std::iter::repeat(0));
    Some(padded.take(9).fold(0, |value, digit| value * 10 + digit))
}

fn split_at(text: &[u8], separator: u8) -> (&[u8], Option<&[u8]>) {
    match memchr::memchr(separator, text) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(text: &str) -> Result<u64, LineError> {
        AccessTime::default().parse(text.as_bytes().try_into().unwrap())
    }

    #[test]
    fn dates_of_access_logs() {
        for (text, seconds) in [
            ("10/Oct/2000:13:55:36 -0700", 971_211_336),
            ("10/Oct/2000:20:55:36 +0000", 971_211_336),
            ("29/Feb/2024:23:59:59 +0000", 1_709_251_199),
            ("01/Mar/2024:00:00:00 +0000", 1_709_251_200),
            ("01/Jan/1970:05:30:00 +0530", 0),
            ("31/Dec/2016:23:59:60 +0000", 1_483_228_800),
            ("28/Feb/2100:12:00:00 +0000", 4_107_499_200),
        ] {
            assert_eq!(access(text), Ok(seconds * SECOND), "{text}");
        }
        for text in [
            "29/Feb/2023:00:00:00 +0000",
            "29/Feb/2100:00:00:00 +0000",
            "00/Jan/2023:00:00:00 +0000",
            "10/Okt/2000:13:55:36 +0000",
            "10/Oct/2000:24:00:00 +0000",
            "10/Oct/2000 13:55:36 +0000",
            "10/Oct/2000:13:55:36 00000",
            "10/Oct/2000:13:55:36 +0060",
        ] {
            assert_eq!(access(text), Err(LineError::AccessTime), "{text}");
        }
        assert_eq!(access("31/Dec/1969:23:59:59 +0000"), Err(LineError::TimeRange));
        assert_eq!(access("31/Dec/2262:23:59:59 +0000"), Err(LineError::TimeRange));
    }

    #[test]
    fn a_repeated_date_is_the_same_and_a_bad_one_does_not_stay() {
        let mut time = AccessTime::default();
        let good = b"10/Oct/2000:13:55:36 -0700";
        assert_eq!(time.parse(good), time.parse(good));
        assert_eq!(time.parse(b"10/Oct/2000:13:55:36 -0760"), Err(LineError::AccessTime));
        assert_eq!(time.parse(b"10/Oct/2000:13:55:36 -0760"), Err(LineError::AccessTime));
        assert_eq!(time.parse(good), Ok(971_211_336 * SECOND));
    }

    #[test]
    fn dates_and_numbers() {
        for (text, nanos) in [
            ("2000-10-10T13:55:36-07:00", 971_211_336_000_000_000),
            ("2000-10-10 20:55:36.5", 971_211_336_500_000_000),
            ("2000-10-10t20:55:36,123456789Z", 971_211_336_123_456_789),
            ("2000-10-10T20:55:36.1234567899 +0000", 971_211_336_123_456_789),
            ("2024-02-29T00:00:00z", 1_709_164_800_000_000_000),
            ("0", 0),
            ("971211336", 971_211_336_000_000_000),
            ("971211336.25", 971_211_336_250_000_000),
            ("971211336250", 971_211_336_250_000_000),
            ("971211336250.5", 971_211_336_250_500_000),
            ("971211336250001", 971_211_336_250_001_000),
            ("971211336250000001", 971_211_336_250_000_001),
        ] {
            assert_eq!(parse(text.as_bytes()), Ok(nanos), "{text}");
        }
        for text in
            ["", "x", "1e9", "1.", ".5", "2000-10-10", "2000-13-10T00:00:00Z", "+5", "1.2.3"]
        {
            assert_eq!(parse(text.as_bytes()), Err(LineError::Time), "{text}");
        }
        for text in ["-5", "10000000000", "99999999999999999999", "1969-12-31T23:59:59Z"] {
            assert_eq!(parse(text.as_bytes()), Err(LineError::TimeRange), "{text}");
        }
    }

    #[test]
    fn formatted_times_read_back() {
        for day in 0..(MAX_SECONDS / DAY) {
            let nanos = day.cast_unsigned() * 86_400 * SECOND + 3_723_004_000_000;
            assert_eq!(parse(format(nanos).as_bytes()), Ok(nanos));
        }
        assert_eq!(format(971_211_336_250_000_000), "2000-10-10T20:55:36.250Z");
    }
}
