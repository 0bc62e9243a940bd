//! Durations with a unit: `500ms`, `1s`, `2m`, `1h`.
//!
//! A number without a unit is rejected, because it could mean seconds or milliseconds.

use std::time::Duration;

use crate::values::value::Value;
use crate::violation::Rule;

/// An invalid duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DurationError {
    /// Not an integer with one of the units.
    #[error("must be a whole number and a unit: \"500ms\", \"1s\", \"2m\" or \"1h\"")]
    Malformed,
    /// Zero, where the duration must be positive.
    #[error("must be at least 1ms")]
    Zero,
    /// Longer than 24 hours.
    #[error("must be at most 24h")]
    TooLong,
}

/// Units, in milliseconds.
const UNITS: [(&str, u64); 4] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000)];

const DAY: u64 = 24 * 3_600_000;

/// Parses a duration from 0 to 24 hours.
pub(crate) fn duration(value: &Value<'_>) -> Result<Duration, Rule> {
    let text = value.to_text().map_err(|_| DurationError::Malformed)?;
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or(DurationError::Malformed)?;
    let (number, unit) = text.split_at(split);
    let unit = UNITS.into_iter().find(|(name, _)| *name == unit.trim_start());
    let (_, unit) = unit.filter(|_| !number.is_empty()).ok_or(DurationError::Malformed)?;
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit));
    let millis = millis.filter(|millis| *millis <= DAY).ok_or(DurationError::TooLong)?;
    Ok(Duration::from_millis(millis))
}

/// Parses a duration from 1 ms to 24 hours.
pub(crate) fn positive(value: &Value<'_>) -> Result<Duration, Rule> {
    let duration = duration(value)?;
    if duration.is_zero() { Err(DurationError::Zero.into()) } else { Ok(duration) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        for (text, millis) in [
            ("0s", 0),
            ("500ms", 500),
            ("1s", 1_000),
            ("50 s", 50_000),
            ("2m", 120_000),
            ("24h", 86_400_000),
        ] {
            let read = duration(&Value::text(text)).unwrap();
            assert_eq!(read, Duration::from_millis(millis), "{text}");
        }
        for text in ["", "1", "s", "1.5s", "-1s", "1 d", "1S", "1sec", "25h", "99999999999999999h"]
        {
            assert!(duration(&Value::text(text)).is_err(), "{text}");
        }
        assert!(positive(&Value::text("0ms")).is_err());
    }
}
