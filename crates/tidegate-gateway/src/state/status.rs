//! How providers stand, for metrics and people.

use std::time::Duration;

use tidegate_providers::Provider;

use crate::state::provider_state::ProviderState;

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
    /// How many may be, in the busiest queue; `None` if there is no bound.
    pub concurrency: Option<u64>,
    /// What calls of the last minute waited for, if they did: a dimension, `concurrency`,
    /// `throttled` or `min_interval`.
    pub binding: Option<&'static str>,
    /// How many keys are known.
    pub accounts: usize,
}

/// How a provider stands now.
pub(crate) fn of(provider_state: &ProviderState) -> Status {
    let (queued, oldest_wait) = provider_state.queued();
    let entries = provider_state.accounts().entries();
    let (mut in_flight, mut busiest) = (0, None);
    for entry in &entries {
        for standing in entry.account.standings() {
            in_flight += standing.gauges.in_flight;
            let load = (standing.gauges.in_flight, standing.gauges.concurrency);
            busiest = busiest.max(Some(load));
        }
    }
    Status {
        provider: provider_state.provider().clone(),
        queued,
        oldest_wait,
        in_flight,
        concurrency: busiest.and_then(|(_, limit)| limit),
        binding: provider_state.binding(),
        accounts: entries.len(),
    }
}
