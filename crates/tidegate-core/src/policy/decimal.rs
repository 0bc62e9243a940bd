//! Exact decimal numbers.
//!
//! A number in JSON or TOML means its shortest decimal, not its binary float: `0.1` is one tenth.

use alloc::string::ToString;
use core::fmt;
use core::str::FromStr;

/// Error parsing a text or converting a float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecimalError {
    /// Not of the form `12`, `1.5` or `0.25`, or not finite.
    #[error("not a decimal number such as 12, 1.5 or 0.25")]
    Malformed,
    /// The number is negative.
    #[error("must not be negative")]
    Negative,
    /// More than 20 digits before the decimal point or 18 after it.
    #[error("has more than 20 digits before the decimal point or 18 after it")]
    TooLong,
}

/// A non-negative decimal number with at most 20 digits before the point and 18 after it.
///
/// ```
/// use tidegate_core::Decimal;
/// let rate: Decimal = "1.50".parse()?;
/// assert_eq!((rate.mantissa(), rate.scale()), (15, 1));
/// assert_eq!(Decimal::try_from(0.1)?, "0.1".parse()?);
/// # Ok::<(), tidegate_core::DecimalError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decimal {
    mantissa: u128,
    scale: u32,
}

impl Decimal {
    /// Returns the digits as an integer, without the point.
    #[must_use]
    pub const fn mantissa(self) -> u128 {
        self.mantissa
    }

    /// Returns the number of digits after the point.
    #[must_use]
    pub const fn scale(self) -> u32 {
        self.scale
    }

    /// Returns `10^scale`. The number is the mantissa divided by this.
    #[must_use]
    pub const fn denominator(self) -> u128 {
        10_u128.pow(self.scale)
    }

    /// Returns the number if it is an integer that fits.
    #[must_use]
    pub fn whole(self) -> Option<u64> {
        (self.scale == 0).then(|| u64::try_from(self.mantissa).ok()).flatten()
    }
}

impl From<u64> for Decimal {
    fn from(whole: u64) -> Self {
        Self { mantissa: whole.into(), scale: 0 }
    }
}

impl TryFrom<f64> for Decimal {
    type Error = DecimalError;

    /// Converts to the shortest decimal that parses back to this float.
    fn try_from(float: f64) -> Result<Self, DecimalError> {
        if !float.is_finite() {
            return Err(DecimalError::Malformed);
        }
        // `Display` of a float is the shortest decimal that round-trips, without an exponent.
        float.to_string().parse()
    }
}

impl FromStr for Decimal {
    type Err = DecimalError;

    fn from_str(text: &str) -> Result<Self, DecimalError> {
        let digits = match text.strip_prefix('-') {
            Some(rest) if rest.bytes().all(|b| b.is_ascii_digit() || b == b'.') => {
                return Err(DecimalError::Negative);
            }
            _ => text,
        };
        let (int, frac) = digits.split_once('.').unwrap_or((digits, "0"));
        let numeric = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !numeric(int) || !numeric(frac) {
            return Err(DecimalError::Malformed);
        }
        let (int, frac) = (int.trim_start_matches('0'), frac.trim_end_matches('0'));
        if int.len() > 20 || frac.len() > 18 {
            return Err(DecimalError::TooLong);
        }
        let mantissa = int
            .bytes()
            .chain(frac.bytes())
            .fold(0_u128, |value, digit| value * 10 + u128::from(digit - b'0'));
        // At most 18, by the check above.
        #[expect(clippy::cast_possible_truncation)]
        Ok(Self { mantissa, scale: frac.len() as u32 })
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = self.denominator();
        write!(f, "{}", self.mantissa / one)?;
        if self.scale > 0 {
            let width = self.scale as usize;
            write!(f, ".{:0width$}", self.mantissa % one)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_convert_to_their_shortest_decimal() {
        for (float, text) in
            [(0.1, "0.1"), (1.5, "1.5"), (50.5, "50.5"), (1e-7, "0.0000001"), (7.0, "7")]
        {
            assert_eq!(Decimal::try_from(float).unwrap().to_string(), text);
        }
        assert_eq!(Decimal::try_from(f64::NAN), Err(DecimalError::Malformed));
        assert_eq!(Decimal::try_from(f64::INFINITY), Err(DecimalError::Malformed));
        assert_eq!(Decimal::try_from(-0.5), Err(DecimalError::Negative));
    }

    #[test]
    fn malformed_decimals_are_rejected() {
        for text in ["", ".", "1.", ".5", "1e3", "+1", "1_000", "0x10", "--1", "1.2.3"] {
            assert_eq!(text.parse::<Decimal>(), Err(DecimalError::Malformed), "{text:?}");
        }
        assert_eq!("-3".parse::<Decimal>(), Err(DecimalError::Negative));
        assert_eq!("0.0000000000000000001".parse::<Decimal>(), Err(DecimalError::TooLong));
        assert_eq!("007.50".parse::<Decimal>().unwrap().to_string(), "7.5");
    }
}
