//! What a search must reach: a share of denials to stay below.

use std::str::FromStr;

use tidegate_core::{Decimal, DecimalError};

/// What is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CountBy {
    /// Requests.
    #[default]
    Requests,
    /// Their costs.
    Cost,
}

/// A share that denials must stay below, such as 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenyBelow {
    percent: Decimal,
    by: CountBy,
}

/// Why a share is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShareError {
    /// There is no percent sign.
    #[error("has no percent sign; write a share as 1% or 0.5%")]
    NoPercentSign,
    /// The number is invalid.
    #[error("the number in a share {0}")]
    Number(#[source] DecimalError),
    /// The number is out of range.
    #[error("must be more than 0% and at most 100%")]
    Range,
}

impl DenyBelow {
    /// Counts this instead of requests.
    #[must_use]
    pub const fn by(self, by: CountBy) -> Self {
        Self { by, ..self }
    }

    /// Returns what is counted.
    #[must_use]
    pub const fn counted(&self) -> CountBy {
        self.by
    }

    /// Returns whether `denied` of `total` is below the share.
    #[must_use]
    pub fn holds(&self, denied: u64, total: u64) -> bool {
        let (mantissa, denominator) = (self.percent.mantissa(), self.percent.denominator());
        // At most 100 * 2^64 * 10^18, which is below 2^128 * 2^5: too large products are not below.
        match u128::from(denied).checked_mul(100).and_then(|it| it.checked_mul(denominator)) {
            Some(denied) => denied < u128::from(total).saturating_mul(mantissa),
            None => false,
        }
    }
}

impl FromStr for DenyBelow {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let number = text.trim().strip_suffix('%').ok_or(ShareError::NoPercentSign)?;
        let percent: Decimal = number.trim().parse().map_err(ShareError::Number)?;
        if percent.mantissa() == 0 || percent.mantissa() > 100 * percent.denominator() {
            return Err(ShareError::Range);
        }
        Ok(Self { percent, by: CountBy::Requests })
    }
}

impl std::fmt::Display for DenyBelow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}%", self.percent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_exact_and_below_is_strict() {
        let share = |text: &str| text.parse::<DenyBelow>().unwrap();
        assert!(share("1%").holds(0, 1));
        assert!(!share("1%").holds(1, 100));
        assert!(share("1%").holds(1, 101));
        assert!(share("0.5%").holds(4, 1_000));
        assert!(!share("0.5%").holds(5, 1_000));
        assert!(share("100%").holds(u64::MAX - 1, u64::MAX));
        assert_eq!(share("0.50 %").to_string(), "0.5%");
        for (text, error) in [
            ("1", ShareError::NoPercentSign),
            ("0%", ShareError::Range),
            ("100.1%", ShareError::Range),
            ("x%", ShareError::Number(DecimalError::Malformed)),
            ("-1%", ShareError::Number(DecimalError::Negative)),
        ] {
            assert_eq!(text.parse::<DenyBelow>(), Err(error), "{text}");
        }
    }
}
