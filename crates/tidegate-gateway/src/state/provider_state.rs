//! The state of a provider that outlives a change of the configuration.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::LimitError;
use tidegate::pacer::SlotPool;
use tidegate_llm::rate_limit::log_pool;
use tidegate_providers::Provider;
use tokio::time::Instant;

use crate::state::accounts::{AccountConfig, AccountParams, Accounts};
use crate::state::queue_bounds::{QueueFull, QueueMember};
use crate::state::queued_calls::{Arrival, QueuedCalls, TenantQueues};
use crate::state::routing_table::Shared;
use crate::upstream::breaker::ProviderBreaker;
use crate::upstream::settings::Upstream;

/// For how long the limit that a call waited for is reported as the binding one.
const RECENT: Duration = Duration::from_secs(60);

/// The state of a provider: its accounts, its queued calls, the binding limit.
pub(crate) struct ProviderState {
    provider: Provider,
    accounts: Accounts,
    /// The calls under way, over all accounts.
    pool: SlotPool,
    breaker: ProviderBreaker,
    queued: Mutex<QueuedCalls>,
    next_queued: AtomicU64,
    /// The limit that a call waited for last.
    binding: Mutex<Option<(&'static str, Instant)>>,
}

/// A call that counts as queued, until it is dropped.
pub(crate) struct QueuedCall {
    provider_state: Arc<ProviderState>,
    tenant: Arc<str>,
    member: QueueMember,
    arrival: Arrival,
}

impl ProviderState {
    pub(crate) fn new(upstream: &Upstream, shared: &Shared) -> Result<Self, LimitError> {
        let (engines, observer) = (shared.engines.clone(), shared.observer.clone());
        let pool = SlotPool::new(engines.own(), upstream.concurrency);
        let (name, settings) = (upstream.name.clone(), upstream.breaker);
        let breaker = ProviderBreaker::new(name, settings, observer.clone());
        let params = AccountParams {
            upstream: upstream.clone(),
            engines,
            observer,
            pool: pool.clone(),
            memory: shared.memory.clone(),
        };
        let accounts = Accounts::new(params, AccountConfig::of(upstream))?;
        log_pool(&upstream.name, upstream.concurrency);
        Ok(Self {
            provider: upstream.name.clone(),
            accounts,
            pool,
            breaker,
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

    pub(crate) const fn pool(&self) -> &SlotPool {
        &self.pool
    }

    /// Applies another configuration. What was spent still counts, and waiting calls follow it at
    /// once.
    pub(crate) fn reconfigure(&self, upstream: &Upstream) -> Result<(), LimitError> {
        self.accounts.reconfigure(AccountConfig::of(upstream))?;
        self.pool.resize(upstream.concurrency);
        Ok(())
    }

    /// Counts a call of a tenant as queued, since `since`.
    ///
    /// # Errors
    /// If too many are queued already.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        since: Instant,
        tenant: Arc<str>,
        member: QueueMember,
    ) -> Result<QueuedCall, QueueFull> {
        let arrival = (since, self.next_queued.fetch_add(1, Ordering::Relaxed));
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.counts.enter(&member)?;
        queued.add(&tenant, arrival);
        drop(queued);
        Ok(QueuedCall { provider_state: self.clone(), tenant, member, arrival })
    }

    /// The number of queued calls, and the wait of the oldest.
    pub(crate) fn queued(&self) -> (usize, Duration) {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).total()
    }

    /// The tenants with most queued calls, at most so many.
    pub(crate) fn tenant_queues(&self, most: usize) -> TenantQueues {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).longest(most)
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
        queued.counts.leave(&self.member);
        queued.remove(&self.tenant, self.arrival);
    }
}
