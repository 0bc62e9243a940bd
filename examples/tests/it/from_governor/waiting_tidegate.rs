//! Waiting for a token, with tidegate. The page shows what is below this line.

use std::time::Duration;

use tidegate::pacer::AcquireError;
use tidegate::{Limiter, Policy, PolicyError};

pub fn limiter() -> Result<Limiter, PolicyError> {
    Ok(Limiter::new(Policy::per_second(100).burst(1).build()?))
}

/// Waits in order of arrival, or fails at once if the wait would be too long.
pub async fn wait(limiter: &Limiter, key: &str) -> Result<Duration, AcquireError> {
    let permit = limiter.wait(key).max_wait(Duration::from_secs(30)).await?;
    Ok(permit.waited())
}
