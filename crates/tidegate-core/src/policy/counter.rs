//! Policies that count instead of refilling: calendar quota, allowance, concurrency.
//!
//! Their state is what has been used. A policy change keeps that, so a raised quota is usable at
//! once and a lowered one is closed until enough comes back.

use core::time::Duration;

use crate::policy::PolicyError;
use crate::time::{MAX_SPAN, nanos};

/// N in every calendar window, such as a day in some time zone.
///
/// The windows themselves come with each charge; zone rules do not live in the core.
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

    /// N.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// How far beyond N a later settlement may charge.
    #[must_use]
    pub const fn max_debt(&self) -> u64 {
        self.max_debt
    }
}

/// N in total, without refill, until the key is reset: messages per connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    amount: u64,
}

impl Allowance {
    pub(crate) fn new(amount: u64) -> Result<Self, PolicyError> {
        if amount < 1 { Err(PolicyError::Allowance) } else { Ok(Self { amount }) }
    }

    /// N.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }
}

/// At most N at the same time. Each acquisition is a lease that is released, or runs out.
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

    /// N.
    #[must_use]
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// How long a slot is kept without being renewed; `None` keeps it until it is released.
    #[must_use]
    pub const fn lease(&self) -> Option<Duration> {
        self.lease
    }
}

/// Adds `delta` to what was used, between nothing and `most`. The second value tells whether the
/// upper bound was hit and the rest forgiven.
pub(crate) fn settle_used(used: u64, delta: i64, most: u64) -> (u64, bool) {
    let wanted = used.saturating_add_signed(delta);
    // A lowered quota may leave more used than the new bound: a charge then adds nothing.
    let bound = most.max(used);
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
