//! Exact instants and spans: whole nanoseconds and a remainder in units of `1/N` ns.
//!
//! `N` is the numerator of the rate the value belongs to and is not stored with it. All arithmetic
//! uses integers. Additions saturate.

/// An exact instant or span: `ns + part/N` nanoseconds, with `part < N`.
///
/// Values of the same rate can be compared; values of different rates must not be mixed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExactTime {
    /// Whole nanoseconds.
    pub ns: u64,
    /// Fraction in units of `1/N` ns, below `N`.
    pub part: u32,
}

impl ExactTime {
    /// Zero. As an arrival time: a bucket that has never been used.
    pub const ZERO: Self = Self { ns: 0, part: 0 };
    /// The largest value.
    pub const MAX: Self = Self { ns: u64::MAX, part: 0 };

    /// `ns` whole nanoseconds.
    #[must_use]
    pub const fn from_nanos(ns: u64) -> Self {
        Self { ns, part: 0 }
    }

    /// `units / n` nanoseconds; [`ExactTime::MAX`] if that does not fit.
    pub(crate) fn from_units(units: u128, n: u32) -> Self {
        let n = u128::from(n);
        match (u64::try_from(units / n), u32::try_from(units % n)) {
            (Ok(ns), Ok(part)) => Self { ns, part },
            _ => Self::MAX,
        }
    }

    /// Returns this value in units of `1/n` ns.
    pub(crate) fn units(self, n: u32) -> u128 {
        u128::from(self.ns) * u128::from(n) + u128::from(self.part)
    }

    /// Returns the sum, saturating.
    #[inline]
    pub(crate) fn plus(self, other: Self, n: u32) -> Self {
        let parts = u64::from(self.part) + u64::from(other.part);
        let n = u64::from(n);
        let (carry, part) = if parts >= n { (1, parts - n) } else { (0, parts) };
        match self.ns.checked_add(other.ns).and_then(|ns| ns.checked_add(carry)) {
            // `part` is below `n`, which has 32 bits.
            #[expect(clippy::cast_possible_truncation)]
            Some(ns) => Self { ns, part: part as u32 },
            None => Self::MAX,
        }
    }

    /// Returns the difference; zero if `other` is larger.
    #[inline]
    pub(crate) fn minus(self, other: Self, n: u32) -> Self {
        if self <= other {
            return Self::ZERO;
        }
        if self.part >= other.part {
            Self { ns: self.ns - other.ns, part: self.part - other.part }
        } else {
            // `self > other` and its part is smaller, so its nanoseconds are larger by at least
            // one.
            Self { ns: self.ns - other.ns - 1, part: n - (other.part - self.part) }
        }
    }

    /// Returns whole nanoseconds, rounded up.
    #[must_use]
    #[inline]
    pub const fn ceil(self) -> u64 {
        self.ns.saturating_add((self.part > 0) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addition_carries_and_subtraction_borrows() {
        let a = ExactTime { ns: 5, part: 2 };
        let b = ExactTime { ns: 1, part: 1 };
        assert_eq!(a.plus(b, 3), ExactTime { ns: 7, part: 0 });
        assert_eq!(ExactTime { ns: 7, part: 0 }.minus(b, 3), a);
        assert_eq!(b.minus(a, 3), ExactTime::ZERO);
        assert_eq!(ExactTime::MAX.plus(b, 3), ExactTime::MAX);
        assert_eq!(a.ceil(), 6);
        assert_eq!(ExactTime::from_units(a.units(3), 3), a);
    }
}
