//! The policies of all contenders.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result};
use governor::Quota;
use tidegate_core::Policy;

/// One token per period, and the capacity.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct BenchPolicy {
    pub(in crate::core) period: Duration,
    pub(in crate::core) burst: u32,
}

/// For a few keys, one of which may get all requests.
pub(in crate::core) const FEW: BenchPolicy = BenchPolicy::with_burst(900_000_000);

/// For many keys, each of which gets few requests.
pub(in crate::core) const MANY: BenchPolicy = BenchPolicy::with_burst(30_000_000);

/// For new keys, which get hardly any further requests.
pub(in crate::core) const NEW: BenchPolicy = BenchPolicy::with_burst(1_000_000);

/// For one bucket without a key, which needs more tokens and is never removed.
pub(in crate::core) const UNKEYED: BenchPolicy =
    BenchPolicy { period: Duration::from_millis(1), burst: 4_000_000_000 };

/// Denies every decision except the first.
pub(in crate::core) const ONCE: BenchPolicy =
    BenchPolicy { period: Duration::from_secs(3_600), burst: 1 };

impl BenchPolicy {
    /// A policy that allows every decision, and under which a bucket stays non-full as long as
    /// possible, so that no contender removes it.
    ///
    /// An empty bucket takes thirty years to refill, whatever the burst, which is about the maximum
    /// that all contenders can represent in nanoseconds.
    const fn with_burst(burst: u32) -> Self {
        let thirty_years = Duration::from_secs(30 * 365 * 86_400);
        Self { period: Duration::from_secs(thirty_years.as_secs() / burst as u64), burst }
    }

    pub(in crate::core) fn policy(self) -> Result<Policy> {
        Ok(Policy::per(1, self.period).capacity(self.burst.into()).build()?)
    }

    pub(in crate::core) fn quota(self) -> Result<Quota> {
        let burst = NonZeroU32::new(self.burst).context("burst must not be zero")?;
        let quota = Quota::with_period(self.period).context("period must not be zero")?;
        Ok(quota.allow_burst(burst))
    }
}
