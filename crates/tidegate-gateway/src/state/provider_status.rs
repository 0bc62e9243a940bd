//! Provider status for metrics and the admin API.

use std::time::Duration;

use tidegate::pacer::AdaptiveState;
use tidegate_providers::Provider;

use crate::state::provider_state::ProviderState;
use crate::upstream::breaker::BreakerStatus;

/// Status of a provider.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ProviderStatus {
    /// The provider.
    pub provider: Provider,
    /// Number of waiting calls.
    pub queued: usize,
    /// Wait of the oldest waiting call.
    pub oldest_wait: Duration,
    /// Number of calls in flight, until the end of their responses.
    pub in_flight: u64,
    /// Current limit on calls in flight over all keys, models and endpoints; `None` if unlimited.
    pub concurrency: Option<u64>,
    /// State of the adaptive limit; `None` if the limit is fixed.
    pub auto_tuning: Option<AdaptiveState>,
    /// The limit that calls waited for within the last minute: a dimension, a limit over all keys
    /// such as `all_keys_requests`, `concurrency`, `throttled` or `min_interval`.
    pub binding: Option<&'static str>,
    /// Number of accounts.
    pub accounts: usize,
    /// State of the circuit breaker.
    pub breaker: BreakerStatus,
}

/// Returns the current status of a provider.
pub(crate) fn current(provider_state: &ProviderState) -> ProviderStatus {
    let (queued, oldest_wait) = provider_state.queued();
    let pool = provider_state.pool().gauges();
    ProviderStatus {
        provider: provider_state.provider().clone(),
        queued,
        oldest_wait,
        in_flight: pool.in_flight,
        concurrency: pool.limit,
        auto_tuning: pool.adaptive,
        binding: provider_state.binding(),
        accounts: provider_state.accounts().count(),
        breaker: provider_state.breaker().status(),
    }
}
