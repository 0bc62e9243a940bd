//! Policies that count usage instead of refilling: calendar quota, allowance and concurrency.
//!
//! Their state is the amount used. A policy change keeps it: a raised quota is available at once,
//! and a lowered one denies until usage has fallen below it.

use core::time::Duration;

use crate::policy::PolicyError;
use crate::time::{MAX_SPAN, nanos};

/// Calendar quota: an amount per calendar window, such as a day in a time zone.
///
/// Each charge brings the windows with it; the core knows no time zone rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    amount: u64,
    max_debt: u64,
}

impl Quota {
    pub(crate) fn new(amount: u64, max_debt: Option<u64>) -> Result<Self, PolicyError> {
        if amount < 1 {
            return Err(PolicyError::Quota);
        }
        Ok(Self { amount, max_debt: max_debt.unwrap_or(amount) })
    }

    /// Returns the amount per window.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Returns how far above the amount a settlement may charge.
    #[must_use]
    pub const fn max_debt(&self) -> u64 {
        self.max_debt
    }
}

/// Allowance: an amount in total, without refill, until the key is reset. Example: messages per
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    amount: u64,
}

impl Allowance {
    pub(crate) fn new(amount: u64) -> Result<Self, PolicyError> {
        if amount < 1 { Err(PolicyError::Allowance) } else { Ok(Self { amount }) }
    }

    /// Returns the total amount.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }
}

/// Concurrency limit: a number of slots in use at the same time. Each acquisition is a lease that
/// is released or expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concurrency {
    slots: u64,
    lease: Option<Duration>,
}

impl Concurrency {
    pub(crate) fn new(slots: u64, lease: Option<Duration>) -> Result<Self, PolicyError> {
        if slots < 1 {
            return Err(PolicyError::Slots);
        }
        if lease.is_some_and(|lease| lease.is_zero() || nanos(lease) > nanos(MAX_SPAN)) {
            return Err(PolicyError::Lease);
        }
        Ok(Self { slots, lease })
    }

    /// Returns the number of slots.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// Returns how long a slot is kept without a renewal; `None` keeps it until it is released.
    #[must_use]
    pub const fn lease(&self) -> Option<Duration> {
        self.lease
    }
}

/// Adds `delta` to `used`, clamped between 0 and `max`. Also returns whether the upper bound was
/// reached and the excess forgiven.
pub(crate) fn settle_used(used: u64, delta: i64, max: u64) -> (u64, bool) {
    let wanted = used.saturating_add_signed(delta);
    // After a quota was lowered, usage may exceed the new bound. A charge then adds nothing.
    let bound = max.max(used);
    (wanted.min(bound), delta > 0 && wanted > bound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settlement_stays_between_zero_and_max_debt() {
        assert_eq!(settle_used(5, -9, 20), (0, false));
        assert_eq!(settle_used(5, 9, 20), (14, false));
        assert_eq!(settle_used(5, 99, 20), (20, true));
        assert_eq!(settle_used(25, 1, 20), (25, true));
        assert_eq!(settle_used(25, -1, 20), (24, false));
    }
}
