//! What is lost when a limit is forgotten.

use tidegate_core::Time;

use super::{Counts, Meter};
use crate::memory::Loss;

/// A bucket that holds so many tenths of its capacity owes nothing that matters.
const FULL: u128 = 9;

impl Meter {
    /// What is lost when the limit is forgotten: nothing while it limits nobody, a debt while it is
    /// held, slowed down or not full again, or a request of its day is spent. A bucket that is not in
    /// this process is not known to be full.
    pub(in crate::rate_limit) fn loss(&self, now: Time) -> Loss {
        let remembered = self.record.read();
        if remembered.reserved() > 0 || remembered.hold_cause(now).is_some() {
            return Loss::Debt;
        }
        if self.is_moving() {
            self.keep_pace(now);
        }
        match &self.pace {
            _ if self.counts == Counts::Gate => Loss::Nothing,
            Some(pace) if pace.read().is_moving => Loss::Debt,
            Some(pace) if pace.read().allowed.is_none() => Loss::Nothing,
            Some(_) if self.is_filled(FULL) => Loss::Learned,
            None if self.is_filled(10) => Loss::Nothing,
            _ => Loss::Debt,
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
