//! How providers stand, for metrics and people.

use std::time::Duration;

use tidegate::pacer::AdaptiveState;
use tidegate_providers::Provider;

use crate::state::provider_state::ProviderState;
use crate::upstream::breaker::BreakerStatus;

/// How one provider stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Status {
    /// The provider.
    pub provider: Provider,
    /// Calls that are held.
    pub queued: usize,
    /// For how long the first of them is.
    pub oldest_wait: Duration,
    /// Calls that are at the provider, until the ends of their answers.
    pub in_flight: u64,
    /// How many may be now, over all keys, models and endpoints; `None` if there is no bound.
    pub concurrency: Option<u64>,
    /// How that number adapts; `None` if it does not.
    pub auto_tuning: Option<AdaptiveState>,
    /// What calls of the last minute waited for, if they did: a dimension, one of all keys such as
    /// `all_keys_requests`, `concurrency`, `throttled` or `min_interval`.
    pub binding: Option<&'static str>,
    /// How many keys are known.
    pub accounts: usize,
    /// Whether the provider is left alone.
    pub breaker: BreakerStatus,
}

/// How a provider stands now.
pub(crate) fn current(provider_state: &ProviderState) -> Status {
    let (queued, oldest_wait) = provider_state.queued();
    let pool = provider_state.pool().gauges();
    Status {
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
