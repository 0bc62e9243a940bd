//! A limiter with keys, with tidegate. The page shows what is below this line.

use std::net::IpAddr;
use std::time::Duration;

use tidegate::{Decision, Limiter, Policy, PolicyError, Retry, StoreError};

pub fn limiter() -> Result<Limiter, PolicyError> {
    Ok(Limiter::new(Policy::per_second(10).burst(20).build()?))
}

/// Returns how long the client has to wait, or `None` if the request is allowed.
pub fn check(limiter: &Limiter, client: IpAddr) -> Result<Option<Duration>, StoreError> {
    Ok(match limiter.take(client).now()? {
        Decision::Allowed(_) => None,
        // A cost above the burst never fits, so there is no time to retry.
        denied => Some(denied.retry().and_then(Retry::after).unwrap_or(Duration::MAX)),
    })
}
