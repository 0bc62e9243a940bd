//! Dates on the wire: the three forms of HTTP dates, and RFC 3339, in UTC, from 1970 on.
//!
//! No time zones and no clock. Years have four digits; later dates are clamped.

/// Seconds per day.
const DAY: u64 = 86_400;
/// The last second of the year 9999.
const LAST: u64 = 253_402_300_799;
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// Writes seconds since 1970 as `2026-11-16T08:30:00Z`.
pub(super) fn rfc3339(epoch: u64, text: &mut [u8; 20]) -> &str {
    let epoch = epoch.min(LAST);
    let (year, month, day) = civil(epoch / DAY);
    let second = epoch % DAY;
    *text = *b"0000-00-00T00:00:00Z";
    let parts = [
        (0..4, year),
        (5..7, month),
        (8..10, day),
        (11..13, second / 3_600),
        (14..16, second / 60 % 60),
        (17..19, second % 60),
    ];
    for (range, mut number) in parts {
        for digit in text[range].iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
    }
    std::str::from_utf8(text).unwrap_or_default()
}

/// Parses an RFC 3339 date as seconds since 1970; earlier dates become 1970.
pub(super) fn read_rfc3339(text: &str) -> Option<u64> {
    let (date, time) = text.split_once(['T', 't'])?;
    let mut date = date.splitn(3, '-');
    let (year, month, day) = (number(date.next()?, 4)?, number(date.next()?, 2)?, date.next()?);
    let days = days(year, month, number(day, 2)?)?;
    // The zone starts at the first sign or letter.
    let zone = time.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = time.split_at(zone);
    let clock = match clock.split_once('.') {
        Some((whole, part)) if !part.is_empty() && digits(part) => whole,
        Some(_) => return None,
        None => clock,
    };
    let local = days * DAY + time_of_day(clock)?;
    let offset = match zone.split_at_checked(1)? {
        ("Z" | "z", "") => return Some(local),
        (sign, text) => {
            let (hours, minutes) = text.split_once(':')?;
            let (hours, minutes) = (number(hours, 2)?, number(minutes, 2)?);
            (sign == "+", (hours < 24 && minutes < 60).then_some(hours * 3_600 + minutes * 60)?)
        }
    };
    match offset {
        (true, span) => Some(local.saturating_sub(span)),
        (false, span) => Some(local + span),
    }
}

/// Parses an HTTP date in any of its three forms. `now` determines the century of two-digit years.
pub(super) fn read_http(text: &str, now: u64) -> Option<u64> {
    match text.split_once(',') {
        Some((day, rest)) if day.len() == 3 => imf(rest.trim_start()),
        Some((_, rest)) => rfc850(rest.trim_start(), now),
        None => asctime(text),
    }
}

/// `06 Nov 1994 08:49:37 GMT`
fn imf(text: &str) -> Option<u64> {
    let mut words = text.split(' ');
    let day = number(words.next()?, 2)?;
    let month = month(words.next()?)?;
    let days = days(number(words.next()?, 4)?, month, day)?;
    let time = time_of_day(words.next()?)?;
    (words.next() == Some("GMT") && words.next().is_none()).then_some(days * DAY + time)
}

/// `06-Nov-94 08:49:37 GMT`
fn rfc850(text: &str, now: u64) -> Option<u64> {
    let mut words = text.split(' ');
    let mut date = words.next()?.splitn(3, '-');
    let (day, month) = (number(date.next()?, 2)?, month(date.next()?)?);
    let short = number(date.next()?, 2)?;
    let time = time_of_day(words.next()?)?;
    if words.next() != Some("GMT") || words.next().is_some() {
        return None;
    }
    // RFC 9110: a date more than 50 years ahead is in the most recent past year with these digits.
    let (this_year, _, _) = civil(now.min(LAST) / DAY);
    let year = this_year / 100 * 100 + short;
    let year = if year > this_year + 50 { year.saturating_sub(100) } else { year };
    Some(days(year, month, day)? * DAY + time)
}

/// `Sun Nov  6 08:49:37 1994`
fn asctime(text: &str) -> Option<u64> {
    let mut words = text.split_ascii_whitespace();
    let (_, month) = (words.next()?, month(words.next()?)?);
    let day = words.next()?;
    let day = number(day, day.len().min(2))?;
    let time = time_of_day(words.next()?)?;
    let days = days(number(words.next()?, 4)?, month, day)?;
    words.next().is_none().then_some(days * DAY + time)
}

fn month(name: &str) -> Option<u64> {
    let index = MONTHS.iter().position(|month| *month == name)?;
    u64::try_from(index + 1).ok()
}

/// Parses `08:49:37`; a leap second counts as the last second of its minute.
fn time_of_day(text: &str) -> Option<u64> {
    let mut parts = text.splitn(3, ':');
    let (hours, minutes) = (number(parts.next()?, 2)?, number(parts.next()?, 2)?);
    let seconds = number(parts.next()?, 2)?;
    let valid = hours < 24 && minutes < 60 && seconds <= 60;
    valid.then_some(hours * 3_600 + minutes * 60 + seconds.min(59))
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

fn number(text: &str, width: usize) -> Option<u64> {
    if text.len() == width && digits(text) { text.parse().ok() } else { None }
}

/// Days from 1970 to a date; zero for earlier dates.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let lengths = [31, if leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let index = usize::try_from(month.checked_sub(1)?).ok()?;
    if day == 0 || day > *lengths.get(index)? {
        return None;
    }
    let before: u64 = lengths[..index].iter().sum();
    let years_before = |year: u64| {
        let past = year.saturating_sub(1);
        year * 365 + past / 4 - past / 100 + past / 400
    };
    let total = years_before(year) + before + day - 1;
    Some(total.saturating_sub(years_before(1970)))
}

/// Converts days since 1970 to year, month and day.
fn civil(day: u64) -> (u64, u64, u64) {
    // At most one year too early, since no year has more than 366 days.
    let mut year = 1970 + day / 366;
    while days(year + 1, 1, 1).is_some_and(|start| start <= day) {
        year += 1;
    }
    let start = |month| days(year, month, 1).unwrap_or(u64::MAX);
    let month = (1..=12).rev().find(|&month| start(month) <= day).unwrap_or(1);
    (year, month, day - start(month) + 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_date_forms_parse_to_the_same_second() {
        let now = 784_111_777;
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
        ] {
            assert_eq!(read_http(text, now), Some(784_111_777), "{text}");
        }
        assert_eq!(read_rfc3339("1994-11-06T08:49:37Z"), Some(784_111_777));
        assert_eq!(read_rfc3339("1994-11-06T09:49:37.250+01:00"), Some(784_111_777));
        assert_eq!(read_rfc3339("1994-11-06t03:19:37-05:30"), Some(784_111_777));
    }

    #[test]
    fn two_digit_years_are_at_most_fifty_years_ahead() {
        let now = read_rfc3339("2026-11-16T00:00:00Z").unwrap();
        let year = |text| civil(read_http(text, now).unwrap() / DAY).0;
        assert_eq!(year("Monday, 16-Nov-26 00:00:00 GMT"), 2026);
        assert_eq!(year("Monday, 16-Nov-76 00:00:00 GMT"), 2076);
        assert_eq!(year("Monday, 16-Nov-77 00:00:00 GMT"), 1977);
    }

    #[test]
    fn invalid_dates_are_rejected() {
        for text in [
            "",
            ",",
            "Sun, ",
            "Sun, 31 Feb 2026 00:00:00 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:49:37 CET",
            "Sun, 06 Nov 1994 08:49:37 GMT x",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-1994 08:49:37 GMT",
            "Sun Nov 006 08:49:37 1994",
        ] {
            assert_eq!(read_http(text, 0), None, "{text}");
        }
        for text in
            ["", "T", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00", "2026-01-01T00:00:00Zx"]
        {
            assert_eq!(read_rfc3339(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn rfc3339_round_trip(epoch in 0..=LAST) {
            prop_assert_eq!(read_rfc3339(rfc3339(epoch, &mut [0; 20])), Some(epoch));
        }

        #[test]
        fn arbitrary_text_does_not_panic(text in "\\PC{0,40}") {
            let _ = (read_http(&text, 1_700_000_000), read_rfc3339(&text));
        }
    }
}
