//! Rates: N tokens per P nanoseconds, in lowest terms.

use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use crate::policy::decimal::{Decimal, DecimalError};
use crate::time::nanos;

const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Error returned for an invalid rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RateError {
    /// The rate is zero or negative.
    #[error("tokens per second must be > 0")]
    NotPositive,
    /// The period is zero.
    #[error("the period of a rate must be > 0")]
    NoPeriod,
    /// In lowest terms, the rate needs more than 32 bits for tokens or 64 bits for nanoseconds.
    #[error(
        "the rate cannot be represented: in lowest terms it must be at most 4294967295 tokens \
         per at most 2^64 - 1 ns"
    )]
    TooFine,
    /// The text is not of the form `50/s`.
    #[error(
        "a rate is written as a number and a unit, such as 50/s, 7/min, 1.5/s, 10000/day or 5/10s"
    )]
    Malformed,
    /// The number before the slash is invalid.
    #[error("the number in a rate {0}")]
    Number(#[source] DecimalError),
}

/// An exact rate: `tokens` per `period` nanoseconds, in lowest terms.
///
/// ```
/// use core::time::Duration;
/// use tidegate::Rate;
/// assert_eq!(Rate::per_second(50)?, "50/s".parse()?);
/// assert_eq!(Rate::per(7, Duration::from_secs(60))?, "7/min".parse()?);
/// assert_eq!("0.1/s".parse::<Rate>()?, "1/10s".parse()?);
/// # Ok::<(), tidegate_core::RateError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    tokens: u32,
    period: u64,
}

impl Rate {
    /// `tokens` per second.
    ///
    /// # Errors
    /// If the rate is zero or cannot be represented; see [`RateError`].
    pub fn per_second(tokens: u64) -> Result<Self, RateError> {
        Self::reduced(tokens.into(), NANOS_PER_SEC.into())
    }

    /// `tokens` per minute.
    ///
    /// # Errors
    /// If the rate is zero or cannot be represented; see [`RateError`].
    pub fn per_minute(tokens: u64) -> Result<Self, RateError> {
        Self::reduced(tokens.into(), u128::from(60 * NANOS_PER_SEC))
    }

    /// `tokens` per `period`.
    ///
    /// # Errors
    /// If either is zero or the rate cannot be represented; see [`RateError`].
    pub fn per(tokens: u64, period: Duration) -> Result<Self, RateError> {
        Self::reduced(tokens.into(), period.as_nanos())
    }

    /// A decimal number of tokens per `period`, exactly.
    ///
    /// # Errors
    /// If either is zero or the rate cannot be represented; see [`RateError`].
    pub fn decimal(tokens: Decimal, period: Duration) -> Result<Self, RateError> {
        let period = u128::from(nanos(period))
            .checked_mul(tokens.denominator())
            .ok_or(RateError::TooFine)?;
        Self::reduced(tokens.mantissa(), period)
    }

    fn reduced(tokens: u128, period: u128) -> Result<Self, RateError> {
        if tokens == 0 {
            return Err(RateError::NotPositive);
        }
        if period == 0 {
            return Err(RateError::NoPeriod);
        }
        let divisor = gcd(tokens, period);
        match (u32::try_from(tokens / divisor), u64::try_from(period / divisor)) {
            (Ok(tokens), Ok(period)) => Ok(Self { tokens, period }),
            _ => Err(RateError::TooFine),
        }
    }

    /// Returns N: tokens per [`period`](Self::period), in lowest terms.
    #[must_use]
    pub const fn tokens(self) -> u32 {
        self.tokens
    }

    /// Returns P: nanoseconds in which [`tokens`](Self::tokens) tokens refill, in lowest terms.
    #[must_use]
    pub const fn period(self) -> u64 {
        self.period
    }

    /// Returns the number of whole tokens per second, at least 1: the default burst.
    #[must_use]
    pub fn default_burst(self) -> u64 {
        let whole = u128::from(self.tokens) * u128::from(NANOS_PER_SEC) / u128::from(self.period);
        u64::try_from(whole).unwrap_or(u64::MAX).max(1)
    }
}

impl FromStr for Rate {
    type Err = RateError;

    fn from_str(text: &str) -> Result<Self, RateError> {
        let (number, unit) = text.split_once('/').ok_or(RateError::Malformed)?;
        let tokens = match number.trim().parse::<Decimal>() {
            Err(DecimalError::Negative) => return Err(RateError::NotPositive),
            other => other.map_err(RateError::Number)?,
        };
        let unit = unit.trim();
        let digits = unit.len() - unit.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (count, name) = unit.split_at(digits);
        let count = if count.is_empty() {
            1
        } else {
            count.parse::<u64>().map_err(|_| RateError::Malformed)?
        };
        let secs = match name.trim() {
            "ms" => return Self::decimal(tokens, Duration::from_millis(count)),
            "s" | "sec" | "second" => 1,
            "min" | "minute" => 60,
            "h" | "hour" => 3_600,
            "d" | "day" => 86_400,
            _ => return Err(RateError::Malformed),
        };
        let period = count.checked_mul(secs).ok_or(RateError::TooFine)?;
        Self::decimal(tokens, Duration::from_secs(period))
    }
}

impl fmt::Display for Rate {
    /// Formats the rate in lowest terms, such as `1/20000000ns`. Equal rates have equal texts.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}ns", self.tokens, self.period)
    }
}

fn gcd(a: u128, b: u128) -> u128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reduced(text: &str) -> (u32, u64) {
        let rate: Rate = text.parse().unwrap();
        (rate.tokens(), rate.period())
    }

    #[test]
    fn rates_are_reduced_to_lowest_terms() {
        assert_eq!(reduced("50/s"), (1, 20_000_000));
        assert_eq!(reduced("7/min"), (7, 60_000_000_000));
        assert_eq!(reduced("0.1/s"), (1, 10_000_000_000));
        assert_eq!(reduced("1.5/s"), (3, 2_000_000_000));
        assert_eq!(reduced("600000000/s"), (3, 5));
        assert_eq!(reduced("10000/day"), (1, 8_640_000_000));
        assert_eq!(reduced("1/10day"), (1, 864_000_000_000_000));
        assert_eq!(reduced(" 5 / 10s "), (1, 2_000_000_000));
        assert_eq!(reduced("999983/min"), (999_983, 60_000_000_000));
    }

    #[test]
    fn invalid_rates_report_the_cause() {
        assert_eq!("0/s".parse::<Rate>(), Err(RateError::NotPositive));
        assert_eq!("-1/s".parse::<Rate>(), Err(RateError::NotPositive));
        assert_eq!("1/0s".parse::<Rate>(), Err(RateError::NoPeriod));
        assert_eq!("1/fortnight".parse::<Rate>(), Err(RateError::Malformed));
        assert_eq!("50".parse::<Rate>(), Err(RateError::Malformed));
        assert_eq!("x/s".parse::<Rate>(), Err(RateError::Number(DecimalError::Malformed)));
        assert_eq!("4294967297/s".parse::<Rate>(), Err(RateError::TooFine));
        assert_eq!(Rate::per(1, Duration::ZERO), Err(RateError::NoPeriod));
    }

    #[test]
    fn default_burst_is_one_second_of_tokens() {
        assert_eq!("50/s".parse::<Rate>().unwrap().default_burst(), 50);
        assert_eq!("1.9/s".parse::<Rate>().unwrap().default_burst(), 1);
        assert_eq!("7/min".parse::<Rate>().unwrap().default_burst(), 1);
    }
}
