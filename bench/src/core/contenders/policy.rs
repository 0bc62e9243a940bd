//! The policies by which everybody decides.

use std::num::NonZeroU32;
use std::time::Duration;

use anyhow::{Context as _, Result};
use governor::Quota;
use tidegate_core::Policy;

/// One token per period, and so many in a full bucket.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) struct BenchPolicy {
    pub(in crate::core) period: Duration,
    pub(in crate::core) burst: u32,
}

/// A few keys, of which one may be asked all the time.
pub(in crate::core) const FEW: BenchPolicy = BenchPolicy::with_burst(900_000_000);

/// So many keys that even the most popular one is asked now and then.
pub(in crate::core) const MANY: BenchPolicy = BenchPolicy::with_burst(30_000_000);

/// New keys, and those that are asked hardly ever again.
pub(in crate::core) const NEW: BenchPolicy = BenchPolicy::with_burst(1_000_000);

/// One bucket, which is asked so fast that it needs more tokens than that. Nobody forgets it.
pub(in crate::core) const UNKEYED: BenchPolicy =
    BenchPolicy { period: Duration::from_millis(1), burst: 4_000_000_000 };

/// Every decision but the first is a no.
pub(in crate::core) const ONCE: BenchPolicy =
    BenchPolicy { period: Duration::from_secs(3_600), burst: 1 };

impl BenchPolicy {
    /// Terms under which every decision is a yes and writes, and a key that has spent one token is
    /// not full again for as long as can be, so that nobody forgets it meanwhile.
    ///
    /// An empty bucket takes thirty years to be full, whatever the burst: that is about the most
    /// that everybody can count in nanoseconds.
    const fn with_burst(burst: u32) -> Self {
        let thirty_years = Duration::from_secs(30 * 365 * 86_400);
        Self { period: Duration::from_secs(thirty_years.as_secs() / burst as u64), burst }
    }

    pub(in crate::core) fn policy(self) -> Result<Policy> {
        Ok(Policy::per(1, self.period).capacity(self.burst.into()).build()?)
    }

    pub(in crate::core) fn quota(self) -> Result<Quota> {
        let burst = NonZeroU32::new(self.burst).context("a bucket without tokens")?;
        let quota = Quota::with_period(self.period).context("a period of nothing")?;
        Ok(quota.allow_burst(burst))
    }
}
