//! How long callers wait, as written on the command line.

use std::str::FromStr;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

/// How long callers wait at most instead of being denied: up to an hour, as far ahead as a token
/// bucket can be reserved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MaxWait(Duration);

/// Why a wait is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MaxWaitError {
    /// The text is not a number with a unit.
    #[error("a wait is written as a whole number and a unit, such as 500ms, 2s, 1min or 1h")]
    Malformed,
    /// The wait is too long.
    #[error("callers can wait at most 1h, as far ahead as a token bucket can be reserved")]
    TooLong,
}

impl MaxWait {
    /// Returns the wait.
    #[must_use]
    pub const fn duration(self) -> Duration {
        self.0
    }
}

impl FromStr for MaxWait {
    type Err = MaxWaitError;

    fn from_str(text: &str) -> Result<Self, MaxWaitError> {
        let text = text.trim();
        let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (number, unit) = text.split_at(digits);
        let millis: u64 = match unit.trim_start() {
            "ms" => 1,
            "s" => 1_000,
            "min" => 60_000,
            "h" => 3_600_000,
            _ => return Err(MaxWaitError::Malformed),
        };
        if number.is_empty() {
            return Err(MaxWaitError::Malformed);
        }
        let wait = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis));
        let wait = wait.map(Duration::from_millis).filter(|wait| *wait <= HOUR);
        wait.map(Self).ok_or(MaxWaitError::TooLong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_have_a_unit_and_a_bound() {
        let millis = |text: &str| text.parse::<MaxWait>().map(|wait| wait.duration().as_millis());
        assert_eq!(millis("500ms"), Ok(500));
        assert_eq!(millis(" 2 s"), Ok(2_000));
        assert_eq!(millis("60min"), Ok(3_600_000));
        assert_eq!(millis("1h"), Ok(3_600_000));
        assert_eq!(millis("61min"), Err(MaxWaitError::TooLong));
        assert_eq!(millis("99999999999999999999s"), Err(MaxWaitError::TooLong));
        for text in ["", "5", "s", "1.5s", "-1s", "1d"] {
            assert_eq!(millis(text), Err(MaxWaitError::Malformed), "{text}");
        }
    }
}
