//! Waiting for a token, with tidegate. The page shows what is below this line.

use std::time::Duration;

use tidegate::pacer::{AcquireError, Pacer};
use tidegate::{Limiter, Policy, PolicyError};

pub fn limiter() -> Result<(Limiter, Pacer), PolicyError> {
    let limiter = Limiter::new(Policy::per_second(100).capacity(1).build()?);
    let pacer = Pacer::new(limiter.engine());
    Ok((limiter, pacer))
}

/// Waits in turn, or fails at once if the turn would come too late.
pub async fn wait(limiter: &Limiter, pacer: &Pacer, key: &str) -> Result<Duration, AcquireError> {
    let max_wait = Duration::from_secs(30);
    let permit = pacer.acquire([limiter.charge(key, 1)]).max_wait(max_wait).await?;
    Ok(permit.waited())
}
