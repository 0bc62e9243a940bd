//! A bucket for each provider.

use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate::{Engine, LimitError, Limiter, Policy};

/// Buckets of 60 tokens that refill at one token a second.
pub fn buckets(engine: &Engine) -> Result<Limiter, LimitError> {
    engine.limiter("requests", Policy::per_minute(60).capacity(60).build()?)
}

/// Takes a token of this provider's bucket, and returns how long that took: zero if there was one.
pub async fn acquire(buckets: &Limiter, provider: &str) -> Result<Duration, AcquireError> {
    Ok(buckets.wait(provider).await?.waited())
}
