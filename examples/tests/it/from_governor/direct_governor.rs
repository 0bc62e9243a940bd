//! A limiter without keys, with governor. The page shows what is below this line.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::{DefaultDirectRateLimiter, InsufficientCapacity, Quota, RateLimiter};

/// One token every 100 ms, with a burst of five.
pub fn limiter() -> Option<DefaultDirectRateLimiter> {
    let quota = Quota::with_period(Duration::from_millis(100))?;
    Some(RateLimiter::direct(quota.allow_burst(NonZeroU32::new(5)?)))
}

/// Spends one token if one is available.
pub fn one(limiter: &DefaultDirectRateLimiter) -> bool {
    limiter.check().is_ok()
}

/// Spends several tokens together. More than the burst is an error.
pub fn several(
    limiter: &DefaultDirectRateLimiter,
    tokens: NonZeroU32,
) -> Result<bool, InsufficientCapacity> {
    limiter.check_n(tokens).map(|decision| decision.is_ok())
}
