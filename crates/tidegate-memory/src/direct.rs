//! One token bucket without a key: the cheapest limiter there is here.
//!
//! Its state is one number, the arrival time. Where that fits a machine word, a decision is a
//! reading of the clock and a compare-and-swap (`valve/word.rs`); else, and on clocks that may run
//! backwards, it is the general arithmetic under a small lock (`valve/latch.rs`). Both are exact.
//! A valve has no holds, no settlements and no policy changes: those need a store.

mod atomic_bucket;
mod locked_bucket;
#[cfg(all(test, loom))]
mod model_loom;

use tidegate_core::{Bucket, Policy};

use crate::clock::{Clock, Source};
use crate::operation::verdict::Verdict;
use locked_bucket::Latch;
use atomic_bucket::Word;

/// The policy of a valve is no token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a valve is one token bucket: it takes a capacity and a rate")]
pub struct NotABucket;

/// One token bucket without a key, for a whole process or one connection.
///
/// ```
/// use tidegate_core::Policy;
/// use tidegate_memory::Valve;
/// let valve = Valve::new(Policy::per_second(1).capacity(2).build()?)?;
/// assert!(valve.take(2).is_allowed());
/// assert!(!valve.take(1).is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Valve {
    state: State,
    clock: Source,
    bucket: Bucket,
}

#[derive(Debug)]
enum State {
    Word(Word),
    Latch(Latch),
}

impl Valve {
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
        let word = Word::new(&bucket).filter(|_| clock.is_steady());
        let state = word.map_or_else(|| State::Latch(Latch::new()), State::Word);
        Ok(Self { state, clock, bucket })
    }

    /// Spends `cost` tokens now, or denies and spends nothing.
    // Always: by a call the verdict would go through memory, which doubles the price of a decision
    // by a cached clock.
    #[inline(always)]
    pub fn take(&self, cost: u64) -> Verdict<'_> {
        match &self.state {
            State::Word(word) => {
                let now = self.clock.now();
                let taken = word.take(cost, now);
                Verdict::of_units(&self.bucket, cost, taken.tat, now, taken.allowed)
            }
            State::Latch(latch) => latch.take(&self.bucket, cost, &self.clock),
        }
    }
}
