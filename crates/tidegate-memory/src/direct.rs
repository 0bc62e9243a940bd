//! One token bucket without a key: the cheapest limiter there is here.
//!
//! Its state is one number, the arrival time. Where that fits a machine word, a decision is a
//! reading of the clock and a compare-and-swap (`direct/atomic_bucket.rs`); else, and on clocks that may run
//! backwards, it is the general arithmetic under a small lock (`direct/locked_bucket.rs`). Both are exact.
//! A direct limiter has no holds, no settlements and no policy changes: those need a store.

mod atomic_bucket;
mod locked_bucket;
#[cfg(all(test, loom))]
mod model_loom;

use tidegate_core::{Bucket, Policy};

use crate::clock::{Clock, Source};
use crate::operation::verdict::Verdict;
use atomic_bucket::AtomicBucket;
use locked_bucket::LockedBucket;

/// The policy of a direct limiter is no token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a direct limiter is one token bucket: it takes a capacity and a rate")]
pub struct NotABucket;

/// One token bucket without a key, for a whole process or one connection.
///
/// ```
/// use tidegate_core::Policy;
/// use tidegate_memory::DirectLimiter;
/// let limiter = DirectLimiter::new(Policy::per_second(1).capacity(2).build()?)?;
/// assert!(limiter.take(2).is_allowed());
/// assert!(!limiter.take(1).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct DirectLimiter {
    state: State,
    clock: Source,
    bucket: Bucket,
}

#[derive(Debug)]
enum State {
    AtomicBucket(AtomicBucket),
    LockedBucket(LockedBucket),
}

impl DirectLimiter {
    /// A full bucket on the clock of the machine: the counter of the processor where it can be
    /// trusted.
    ///
    /// # Errors
    /// When the policy is no token bucket.
    pub fn new(policy: Policy) -> Result<Self, NotABucket> {
        Self::on(policy, Source::default())
    }

    /// The same on another clock. A clock that is not of this crate may be set back; as with a
    /// store, that grants nothing, and locks nobody out for longer than the bucket takes to fill
    /// from its deepest debt.
    ///
    /// # Errors
    /// When the policy is no token bucket.
    pub fn with_clock(policy: Policy, clock: impl Clock + 'static) -> Result<Self, NotABucket> {
        Self::on(policy, clock.into_source())
    }

    fn on(policy: Policy, clock: Source) -> Result<Self, NotABucket> {
        let Policy::Bucket(bucket) = policy else { return Err(NotABucket) };
        let word = AtomicBucket::new(&bucket).filter(|_| clock.is_steady());
        let state =
            word.map_or_else(|| State::LockedBucket(LockedBucket::new()), State::AtomicBucket);
        Ok(Self { state, clock, bucket })
    }

    /// Spends `cost` tokens now, or denies and spends nothing.
    // Always: by a call the verdict would go through memory, which doubles the price of a decision
    // by a cached clock.
    #[inline(always)]
    pub fn take(&self, cost: u64) -> Verdict<'_> {
        match &self.state {
            State::AtomicBucket(word) => {
                let now = self.clock.now();
                let taken = word.take(cost, now);
                Verdict::of_units(&self.bucket, cost, taken.tat, now, taken.allowed)
            }
            State::LockedBucket(latch) => latch.take(&self.bucket, cost, &self.clock),
        }
    }
}
