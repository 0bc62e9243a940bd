//! The limiter in `docs/from-websocket-middleware.md`.

use tidegate::{Decision, Limiter, Retry, StoreError};

/// `consume(key, cost)`: the tokens left, or the milliseconds until a retry, which are `None` if the
/// cost is above the capacity.
pub async fn consume(
    limiter: &Limiter,
    key: &str,
    cost: u64,
) -> Result<Result<u64, Option<u128>>, StoreError> {
    Ok(match limiter.take(key).cost(cost).await? {
        Decision::Allowed(grant) => Ok(grant.outcomes[0].remaining),
        denied => Err(denied.retry().and_then(Retry::after).map(|wait| {
            // Rounded up, as hints to clients are.
            wait.as_nanos().div_ceil(1_000_000)
        })),
    })
}
