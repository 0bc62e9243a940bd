//! Cost of evicting a limit.

use tidegate_core::Time;

use super::{LimitKind, LimitTracker};
use crate::memory::EvictionCost;

/// A bucket filled to this many tenths counts as full.
const FULL: u128 = 9;

impl LimitTracker {
    /// Returns the cost of evicting the limit. It must be kept while it is held, slowed down or not
    /// full again, or a request of its day is spent. A bucket outside this process is never known
    /// to be full.
    pub(in crate::rate_limit) fn eviction_cost(&self, now: Time) -> EvictionCost {
        let record = self.record.read();
        if record.reserved() > 0 || record.hold_cause(now).is_some() {
            return EvictionCost::MustKeep;
        }
        if self.is_changing() {
            self.update_policy(now);
        }
        match &self.send_rate {
            _ if self.kind == LimitKind::Gate => EvictionCost::None,
            Some(send_rate) if send_rate.read().is_changing => EvictionCost::MustKeep,
            Some(send_rate) if send_rate.read().allowed.is_none() => EvictionCost::None,
            Some(_) if self.is_filled(FULL) => EvictionCost::Learned,
            None if self.is_filled(10) => EvictionCost::None,
            _ => EvictionCost::MustKeep,
        }
    }

    /// Returns whether the bucket is filled to `tenths` of its capacity.
    fn is_filled(&self, tenths: u128) -> bool {
        let peeked = self.bucket.limiter().peek(self.bucket.key()).cost(0).now();
        let outcomes = peeked.as_ref().map(tidegate::Decision::outcomes).unwrap_or_default();
        outcomes.first().is_some_and(|outcome| {
            u128::from(outcome.remaining) * 10 >= u128::from(outcome.capacity) * tenths
        })
    }
}
