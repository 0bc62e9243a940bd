//! Other limiters without keys.

use anyhow::Result;
use leaky_bucket::RateLimiter as LeakyBucket;
use ratelimit::Ratelimiter;

use crate::core::contenders::gate::UnkeyedLimiter;
use crate::core::contenders::policy::BenchPolicy;

/// `ratelimit`, with a full bucket.
pub(in crate::core) fn ratelimit(policy: BenchPolicy) -> Result<Ratelimiter> {
    let burst = policy.burst.into();
    let builder = Ratelimiter::builder(1).period(policy.period);
    Ok(builder.max_tokens(burst).initial_available(burst).build()?)
}

/// Whether `leaky-bucket` is fair to waiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::core) enum Served {
    /// First come, first served: its default, which takes a lock.
    InOrder,
    /// In any order.
    InAnyOrder,
}

/// `leaky-bucket`, with a full bucket.
pub(in crate::core) fn leaky_bucket(policy: BenchPolicy, served: Served) -> LeakyBucket {
    let burst = usize::try_from(policy.burst).unwrap_or(usize::MAX);
    let mut builder = LeakyBucket::builder();
    builder.initial(burst).max(burst).refill(1).interval(policy.period);
    builder.fair(served == Served::InOrder).build()
}

impl UnkeyedLimiter for Ratelimiter {
    #[inline]
    fn allow(&self) -> bool {
        self.try_wait().is_ok()
    }
}

impl UnkeyedLimiter for LeakyBucket {
    #[inline]
    fn allow(&self) -> bool {
        self.try_acquire(1)
    }
}
