//! What is lost when a limit is forgotten.

use tidegate_core::Time;

use super::{LimitKind, LimitTracker};
use crate::memory::EvictionCost;

/// A bucket that holds so many tenths of its capacity owes nothing that matters.
const FULL: u128 = 9;

impl LimitTracker {
    /// What is lost when the limit is forgotten: nothing while it limits nobody, a debt while it is
    /// held, slowed down or not full again, or a request of its day is spent. A bucket that is not in
    /// this process is not known to be full.
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

    /// Whether the bucket holds so many tenths of its capacity.
    fn is_filled(&self, tenths: u128) -> bool {
        let peeked = self.bucket.limiter().peek(self.bucket.key()).cost(0).now();
        let outcomes = peeked.as_ref().map(tidegate::Decision::outcomes).unwrap_or_default();
        outcomes.first().is_some_and(|outcome| {
            u128::from(outcome.remaining) * 10 >= u128::from(outcome.capacity) * tenths
        })
    }
}
