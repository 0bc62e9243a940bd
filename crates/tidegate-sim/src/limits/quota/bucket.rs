//! A bucket that holds a minute's or a day's worth and refills continuously.
//!
//! The level is an integer number of shares. One token is as many shares as the period has
//! nanoseconds, so the refill per nanosecond is exactly `limit` shares and nothing is rounded. The
//! level may be negative after a settlement, never after an admission.

use super::{LimitStatus, Wait};
use crate::calendar::{DAY, MINUTE};

/// A continuously refilled limit.
#[derive(Clone, Debug)]
pub(crate) struct Bucket {
    limit: u64,
    /// Shares per token.
    token: i128,
    level: i128,
    /// Time of the last refill, in nanoseconds since the start.
    at: u64,
}

impl Bucket {
    /// Creates a full bucket with a limit per minute.
    pub(crate) fn new(limit: u64) -> Self {
        Self::of(limit, MINUTE)
    }

    /// Creates a full bucket with a limit per day.
    pub(crate) fn of_a_day(limit: u64) -> Self {
        Self::of(limit, DAY)
    }

    fn of(limit: u64, time: u64) -> Self {
        let token = i128::from(time);
        Self { limit, token, level: i128::from(limit) * token, at: 0 }
    }

    /// Adds the refill since the last call.
    pub(crate) fn refill(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at);
        self.at = self.at.max(now);
        let inflow = i128::from(self.limit).saturating_mul(i128::from(passed));
        self.level = self.level.saturating_add(inflow).min(self.capacity());
    }

    /// Returns the time until `cost` can be taken.
    pub(crate) fn wait(&self, cost: u64) -> Wait {
        if cost > self.limit {
            return Wait::Never;
        }
        self.inflow_time(i128::from(cost) * self.token - self.level)
    }

    /// Takes `cost`, if necessary into debt.
    pub(crate) fn take(&mut self, cost: u64) {
        self.level -= i128::from(cost) * self.token;
    }

    /// Refunds `cost`, up to the capacity.
    pub(crate) fn refund(&mut self, cost: u64) {
        self.level = (self.level + i128::from(cost) * self.token).min(self.capacity());
    }

    /// Corrects a charge.
    pub(crate) fn settle(&mut self, from: u64, to: u64) {
        self.take(to.saturating_sub(from));
        self.refund(from.saturating_sub(to));
    }

    /// Takes one token, or what is left of one, without increasing a debt. Returns whether a whole
    /// token was taken.
    pub(crate) fn drain_one(&mut self) -> bool {
        let whole = self.level >= self.token;
        self.level = (self.level - self.token).max(self.level.min(0));
        whole
    }

    /// Returns limit, remaining and reset.
    pub(crate) fn limit_status(&self) -> LimitStatus {
        let remaining = u64::try_from(self.level.max(0) / self.token).unwrap_or(u64::MAX);
        let reset = match self.inflow_time(self.capacity() - self.level) {
            Wait::For(nanos) => nanos,
            Wait::Now | Wait::Never => 0,
        };
        LimitStatus { limit: self.limit, remaining, reset }
    }

    fn capacity(&self) -> i128 {
        i128::from(self.limit) * self.token
    }

    /// Returns the time to refill `shares`, rounded up to a nanosecond.
    fn inflow_time(&self, shares: i128) -> Wait {
        if shares <= 0 {
            return Wait::Now;
        }
        let limit = i128::from(self.limit.max(1));
        Wait::For(u64::try_from((shares + limit - 1) / limit).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calendar::SECOND;
    use proptest::prelude::*;

    #[test]
    fn burst_of_a_minute_then_exact_refill() {
        let mut bucket = Bucket::new(7);
        for _ in 0..7 {
            assert_eq!(bucket.wait(1), Wait::Now);
            bucket.take(1);
        }
        // A seventh of a minute is 8,571,428,571.4 ns.
        assert_eq!(bucket.wait(1), Wait::For(8_571_428_572));
        bucket.refill(8_571_428_571);
        assert_eq!(bucket.wait(1), Wait::For(1));
        bucket.refill(8_571_428_572);
        assert_eq!(bucket.wait(1), Wait::Now);
    }

    #[test]
    fn oversized_cost_never_fits() {
        let bucket = Bucket::new(100);
        assert_eq!(bucket.wait(100), Wait::Now);
        assert_eq!(bucket.wait(101), Wait::Never);
    }

    #[test]
    fn debt_is_paid_before_tokens_remain() {
        let mut bucket = Bucket::new(60);
        bucket.take(90);
        assert_eq!(
            bucket.limit_status(),
            LimitStatus { limit: 60, remaining: 0, reset: 90 * SECOND }
        );
        assert_eq!(bucket.wait(1), Wait::For(31 * SECOND));
        assert!(!bucket.drain_one());
        assert_eq!(bucket.wait(1), Wait::For(31 * SECOND), "draining does not increase a debt");
    }

    #[test]
    fn draining_discards_a_partial_refill() {
        let mut bucket = Bucket::new(60);
        bucket.take(60);
        bucket.refill(SECOND / 2);
        assert!(!bucket.drain_one());
        assert_eq!(bucket.wait(1), Wait::For(SECOND));
        bucket.refill(5 * SECOND / 2);
        assert!(bucket.drain_one());
        assert_eq!(bucket.limit_status().remaining, 1);
    }

    proptest! {
        #[test]
        fn wait_is_exact_to_the_nanosecond(
            limit in 1_u64..1_000_000_000,
            taken in 0_u64..2_000_000_000,
            cost in 1_u64..1_000_000_000,
        ) {
            let mut bucket = Bucket::new(limit);
            bucket.take(taken.min(limit * 2));
            match bucket.wait(cost) {
                Wait::Never => prop_assert!(cost > limit),
                Wait::Now => prop_assert!(bucket.limit_status().remaining >= cost),
                Wait::For(nanos) => {
                    let mut early = bucket.clone();
                    early.refill(nanos - 1);
                    prop_assert_ne!(early.wait(cost), Wait::Now);
                    bucket.refill(nanos);
                    prop_assert_eq!(bucket.wait(cost), Wait::Now);
                }
            }
        }

        #[test]
        fn stepwise_refill_equals_single_refill(
            limit in 1_u64..1_000_000,
            steps in prop::collection::vec(0_u64..10_000_000_000, 1..20),
        ) {
            let mut stepped = Bucket::new(limit);
            stepped.take(limit * 3);
            let mut whole = stepped.clone();
            let mut now = 0;
            for step in steps {
                now += step;
                stepped.refill(now);
            }
            whole.refill(now);
            prop_assert_eq!(stepped.level, whole.level);
        }
    }
}
