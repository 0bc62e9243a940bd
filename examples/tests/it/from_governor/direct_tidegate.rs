//! A limiter without keys, with tidegate. The page shows what is below this line.

use std::time::Duration;

use tidegate::{DirectLimiter, Policy, PolicyError};

/// One token every 100 ms, with a burst of five.
pub fn limiter() -> Result<DirectLimiter, PolicyError> {
    DirectLimiter::new(Policy::per(1, Duration::from_millis(100)).burst(5).build()?)
}

/// Spends one token if one is available.
pub fn one(limiter: &DirectLimiter) -> bool {
    limiter.take(1).is_allowed()
}

/// Spends several tokens together. More than the capacity is denied with `Retry::Never`.
pub fn several(limiter: &DirectLimiter, tokens: u64) -> bool {
    limiter.take(tokens).is_allowed()
}
