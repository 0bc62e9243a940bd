//! The state of a provider that outlives a change of the configuration.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_llm::breaker::ProviderBreaker;
use tidegate_llm::rate_limit::AccountError;
use tidegate_providers::Provider;
use tokio::time::Instant;

use crate::state::accounts::{AccountConfig, AccountParams, Accounts};

/// For how long the limit that a call waited for is reported as the binding one.
const RECENT: Duration = Duration::from_secs(60);

/// The state of a provider: its accounts, its queued calls, the binding limit.
pub(crate) struct ProviderState {
    provider: Provider,
    accounts: Accounts,
    breaker: ProviderBreaker,
    queued: Mutex<BTreeSet<(Instant, u64)>>,
    next_queued: AtomicU64,
    /// The limit that a call waited for last.
    binding: Mutex<Option<(&'static str, Instant)>>,
}

/// A call that counts as queued, until it is dropped.
pub(crate) struct QueuedCall {
    provider_state: Arc<ProviderState>,
    place: (Instant, u64),
}

impl ProviderState {
    pub(crate) fn new(params: AccountParams) -> Result<Self, AccountError> {
        let config = AccountConfig::of(&params.upstream);
        let (name, settings) = (params.upstream.name.clone(), params.upstream.breaker);
        Ok(Self {
            breaker: ProviderBreaker::new(name.clone(), settings, params.observer.clone()),
            provider: name,
            accounts: Accounts::new(params, config)?,
            queued: Mutex::default(),
            next_queued: AtomicU64::new(0),
            binding: Mutex::default(),
        })
    }

    pub(crate) const fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(crate) const fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// The breaker, over all models and keys.
    pub(crate) const fn breaker(&self) -> &ProviderBreaker {
        &self.breaker
    }

    /// Counts a call as queued, since `since`.
    pub(crate) fn enqueue(self: &Arc<Self>, since: Instant) -> QueuedCall {
        let place = (since, self.next_queued.fetch_add(1, Ordering::Relaxed));
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).insert(place);
        QueuedCall { provider_state: self.clone(), place }
    }

    /// The number of queued calls, and the wait of the oldest.
    pub(crate) fn queued(&self) -> (usize, Duration) {
        let queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        let oldest = queued.first().map_or(Duration::ZERO, |(since, _)| since.elapsed());
        (queued.len(), oldest)
    }

    /// A call has waited for this limit.
    pub(crate) fn set_binding(&self, limit: &'static str) {
        let mut binding = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        *binding = Some((limit, Instant::now()));
    }

    /// The binding limit, if there is one.
    pub(crate) fn binding(&self) -> Option<&'static str> {
        let binding = *self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        binding.filter(|(_, when)| when.elapsed() < RECENT).map(|(limit, _)| limit)
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        let mut queued = self.provider_state.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.remove(&self.place);
    }
}
