//! Parser for durations and dates as providers write them.
//!
//! Accepts durations as Go and protobuf print them (`12ms`, `7.66s`, `6m0s`), bare numbers, RFC
//! 3339 and HTTP dates. A date becomes the time until then; a date in the past is a delay of zero.
//! Values beyond a year are taken for mistakes and ignored like values that cannot be parsed: no
//! delay is better than a wrong one.
//!
//! No clock is read here: `now` is when the response was sent, according to its `date` header.

use std::time::Duration;

use http::HeaderMap;
use http::header::DATE;
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use tidegate_core::WallTime;

/// Nanoseconds per second.
const SECOND: u64 = 1_000_000_000;
/// Nanoseconds per millisecond.
const MILLISECOND: u64 = 1_000_000;
/// Maximum delay that is accepted.
const MAX_DELAY: Duration = Duration::from_secs(365 * 86_400);
/// Maximum length of a duration or date in bytes.
const MAX_TEXT: usize = 64;
/// Bare numbers above this are Unix times in seconds.
const EPOCH_SECONDS: u128 = 1_000_000_000;
/// Bare numbers above this are Unix times in milliseconds.
const EPOCH_MILLIS: u128 = 1_000_000_000_000;

/// Go's duration units in nanoseconds. A unit precedes any other that is a prefix of it.
const UNITS: [(&str, u64); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("ms", MILLISECOND),
    ("s", SECOND),
    ("m", 60 * SECOND),
    ("h", 3_600 * SECOND),
];

/// Returns when a response was sent: its `date` header, or `now` if that is missing or invalid.
pub(crate) fn sent_at(headers: &HeaderMap, now: WallTime) -> WallTime {
    let date = headers.get(DATE).and_then(|value| value.to_str().ok());
    date.and_then(timestamp).unwrap_or(now)
}

/// Parses a duration in any accepted form, or the time until a date.
pub(crate) fn read(text: &str, now: WallTime) -> Option<Duration> {
    let text = text.trim();
    if text.is_empty() || text.len() > MAX_TEXT {
        return None;
    }
    if let Some(nanos) = decimal(text, SECOND) {
        return number(nanos, now);
    }
    span(text).or_else(|| until(timestamp(text)?, now))
}

/// Parses a duration with units: `12ms`, `6m0s`, `10.689924287s`.
pub(crate) fn span(text: &str) -> Option<Duration> {
    if text.is_empty() || text.len() > MAX_TEXT {
        return None;
    }
    let mut rest = text;
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let (name, unit) = UNITS.iter().find(|(name, _)| after.starts_with(name))?;
        nanos = nanos.checked_add(decimal(number, *unit)?)?;
        rest = after.strip_prefix(name)?;
    }
    accepted(nanos)
}

/// Parses a bare number of milliseconds.
pub(crate) fn millis(text: &str) -> Option<Duration> {
    let text = text.trim();
    if text.len() > MAX_TEXT {
        return None;
    }
    accepted(decimal(text, MILLISECOND)?)
}

/// Interprets a bare number, given as nanoseconds on the assumption that it was in seconds: a
/// duration, or a Unix time in seconds or milliseconds.
fn number(nanos: u128, now: WallTime) -> Option<Duration> {
    let second = u128::from(SECOND);
    let nanos_since_1970 = if nanos > EPOCH_MILLIS * second {
        nanos / 1_000
    } else if nanos > EPOCH_SECONDS * second {
        nanos
    } else {
        return accepted(nanos);
    };
    until(WallTime::from_nanos(u64::try_from(nanos_since_1970).ok()?), now)
}

/// Parses a date in RFC 3339 or HTTP format. The two obsolete HTTP formats are not supported.
fn timestamp(text: &str) -> Option<WallTime> {
    let text = text.trim();
    if text.len() > MAX_TEXT {
        return None;
    }
    let time = text.parse::<Timestamp>().ok();
    let time = time.or_else(|| rfc2822::parse(text).ok().map(|date| date.timestamp()))?;
    // Any time before 1970 is in the past, so 1970 does as well.
    Some(WallTime::from_nanos(u64::try_from(time.as_nanosecond().max(0)).ok()?))
}

fn until(time: WallTime, now: WallTime) -> Option<Duration> {
    let span = time.since(now);
    (span <= MAX_DELAY).then_some(span)
}

fn accepted(nanos: u128) -> Option<Duration> {
    let span = Duration::from_nanos(u64::try_from(nanos).ok()?);
    (span <= MAX_DELAY).then_some(span)
}

/// Parses a decimal number as a multiple of a unit. Exact: uses no floating point, and truncates
/// below a nanosecond. Signs and exponents are rejected.
fn decimal(text: &str, unit: u64) -> Option<u128> {
    let (whole, fraction) = decimal_parts(text)?;
    let unit = u128::from(unit);
    let whole = if whole.is_empty() { 0 } else { whole.parse::<u128>().ok()? };
    let mut nanos = whole.checked_mul(unit)?;
    let mut digit_value = unit;
    for digit in fraction.bytes() {
        digit_value /= 10;
        nanos = nanos.checked_add(u128::from(digit - b'0') * digit_value)?;
    }
    Some(nanos)
}

/// Splits an unsigned decimal number into the digits before and after the point.
pub(crate) fn decimal_parts(text: &str) -> Option<(&str, &str)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut digits = whole.bytes().chain(fraction.bytes()).peekable();
    (digits.peek().is_some() && digits.all(|byte| byte.is_ascii_digit()))
        .then_some((whole, fraction))
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    const NOW: WallTime = WallTime::from_secs(1_769_860_800); // 2026-01-31T12:00:00Z

    fn millis_of(text: &str) -> Option<u128> {
        read(text, NOW).map(|span| span.as_millis())
    }

    #[test]
    fn durations_with_units_are_exact_to_the_nanosecond() {
        for (text, nanos) in [
            ("12ms", 12_000_000),
            ("1s", 1_000_000_000),
            ("7.66s", 7_660_000_000),
            ("6m0s", 360_000_000_000),
            ("1h2m3s", 3_723_000_000_000),
            ("2m59.56s", 179_560_000_000),
            ("10.689924287s", 10_689_924_287),
            ("1.5µs", 1_500),
            ("0s", 0),
            (" 22s ", 22_000_000_000),
        ] {
            assert_eq!(read(text, NOW), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn bare_number_is_seconds_or_unix_time() {
        assert_eq!(millis_of("37"), Some(37_000));
        assert_eq!(millis_of("0.25"), Some(250));
        assert_eq!(millis_of("1769860837"), Some(37_000));
        assert_eq!(millis_of("1769860837.5"), Some(37_500));
        assert_eq!(millis_of("1769860800976"), Some(976));
        assert_eq!(millis("976").unwrap(), Duration::from_millis(976));
        assert_eq!(millis("1500.5").unwrap(), Duration::from_micros(1_500_500));
    }

    #[test]
    fn date_becomes_the_time_until_then() {
        assert_eq!(millis_of("2026-01-31T12:00:59Z"), Some(59_000));
        assert_eq!(millis_of("2026-01-31T13:00:59.5+01:00"), Some(59_500));
        assert_eq!(millis_of("Sat, 31 Jan 2026 12:02:00 GMT"), Some(120_000));
    }

    #[test]
    fn past_date_is_a_zero_delay() {
        for text in ["2026-01-31T11:59:59Z", "1769860799", "1900-01-01T00:00:00Z"] {
            assert_eq!(millis_of(text), Some(0), "{text}");
        }
    }

    #[test]
    fn invalid_and_excessive_values_are_ignored() {
        for text in [
            "",
            " ",
            "-1",
            "-3s",
            "NaN",
            "inf",
            "1e3",
            "+5",
            ".",
            "s",
            "5 s",
            "5x",
            "1.2.3s",
            "31536001",
            "8761h",
            "2027-02-01T12:00:00Z",
            "99999999999999999999999999999999999999999",
            "18446744073709551616s",
            "soon",
        ] {
            assert_eq!(read(text, NOW), None, "{text}");
        }
        assert_eq!(millis("-1"), None);
        assert_eq!(millis("99999999999999"), None);
    }

    #[test]
    fn date_header_overrides_now() {
        let mut headers = HeaderMap::new();
        assert_eq!(sent_at(&headers, NOW), NOW);
        headers.insert(DATE, HeaderValue::from_static("Sat, 31 Jan 2026 12:02:00 GMT"));
        assert_eq!(sent_at(&headers, NOW), WallTime::from_secs(1_769_860_920));
        headers.insert(DATE, HeaderValue::from_static("yesterday"));
        assert_eq!(sent_at(&headers, NOW), NOW);
    }

    proptest! {
        #[test]
        fn no_text_parses_to_more_than_a_year(text in "\\PC{0,70}") {
            prop_assert!(read(&text, NOW).is_none_or(|span| span <= MAX_DELAY));
        }

        #[test]
        fn duration_like_text_does_not_panic(text in "[0-9.:+TZhmsnuµ-]{0,66}", now: u64) {
            let span = read(&text, WallTime::from_nanos(now));
            prop_assert!(span.is_none_or(|span| span <= MAX_DELAY));
            prop_assert!(millis(&text).is_none_or(|span| span <= MAX_DELAY));
        }

        #[test]
        fn formatted_durations_round_trip(hours in 0_u64..8_000, minutes in 0_u64..60, ms in 0_u64..60_000) {
            let text = format!("{hours}h{minutes}m{}.{:03}s", ms / 1_000, ms % 1_000);
            let span = Duration::from_millis((hours * 60 + minutes) * 60_000 + ms);
            prop_assert_eq!(read(&text, NOW), Some(span));
        }
    }
}
