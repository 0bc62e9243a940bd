//! The state of a provider that outlives configuration changes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate::LimitError;
use tidegate::pacer::SlotPool;
use tidegate_providers::Provider;
use tokio::time::Instant;

use crate::state::accounts::{AccountConfig, AccountParams, Accounts};
use crate::state::queue_limits::{QueueFull, QueueMember};
use crate::state::queued_calls::{Arrival, QueuedCalls, TenantQueues};
use crate::state::routing_table::Shared;
use crate::upstream::breaker::ProviderBreaker;
use crate::upstream::settings::Upstream;

/// How long the limit that a call waited for is reported as binding.
const BINDING_TTL: Duration = Duration::from_secs(60);

/// The state of a provider: accounts, queued calls, breaker, binding limit.
pub(crate) struct ProviderState {
    provider: Provider,
    accounts: Accounts,
    /// Limits calls in flight over all accounts.
    pool: SlotPool,
    breaker: ProviderBreaker,
    queued: Mutex<QueuedCalls>,
    next_sequence: AtomicU64,
    /// The last limit that a call waited for, and when.
    binding: Mutex<Option<(&'static str, Instant)>>,
}

/// A queued call. Leaves the queue when dropped.
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
        let accounts = Accounts::new(params, AccountConfig::from_upstream(upstream))?;
        // Not with `log_pool`: a server has many providers, most of which it never calls.
        let (provider, concurrency) = (&upstream.name, upstream.concurrency);
        tracing::debug!(%provider, ?concurrency, "concurrency pool created");
        Ok(Self {
            provider: upstream.name.clone(),
            accounts,
            pool,
            breaker,
            queued: Mutex::default(),
            next_sequence: AtomicU64::new(0),
            binding: Mutex::default(),
        })
    }

    pub(crate) const fn provider(&self) -> &Provider {
        &self.provider
    }

    pub(crate) const fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Returns the breaker over all models and keys.
    pub(crate) const fn breaker(&self) -> &ProviderBreaker {
        &self.breaker
    }

    pub(crate) const fn pool(&self) -> &SlotPool {
        &self.pool
    }

    /// Applies another configuration. Usage so far still counts, and waiting calls follow the new
    /// limits at once.
    pub(crate) fn reconfigure(&self, upstream: &Upstream) -> Result<(), LimitError> {
        self.accounts.reconfigure(AccountConfig::from_upstream(upstream))?;
        self.pool.resize(upstream.concurrency);
        Ok(())
    }

    /// Counts a call of a tenant as queued since `since`.
    ///
    /// # Errors
    /// If the queue is full.
    pub(crate) fn enqueue(
        self: &Arc<Self>,
        since: Instant,
        tenant: Arc<str>,
        member: QueueMember,
    ) -> Result<QueuedCall, QueueFull> {
        let arrival = (since, self.next_sequence.fetch_add(1, Ordering::Relaxed));
        let mut queued = self.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.counts.try_add(&member)?;
        queued.add(&tenant, arrival);
        drop(queued);
        Ok(QueuedCall { provider_state: self.clone(), tenant, member, arrival })
    }

    /// Returns the number of queued calls and the wait of the oldest.
    pub(crate) fn queued(&self) -> (usize, Duration) {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).total()
    }

    /// Returns the tenants with the most queued calls, at most `max`.
    pub(crate) fn tenant_queues(&self, max: usize) -> TenantQueues {
        self.queued.lock().unwrap_or_else(PoisonError::into_inner).longest(max)
    }

    /// Records the limit that a call waited for.
    pub(crate) fn set_binding(&self, limit: &'static str) {
        let mut binding = self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        *binding = Some((limit, Instant::now()));
    }

    /// Returns the limit that calls recently waited for.
    pub(crate) fn binding(&self) -> Option<&'static str> {
        let binding = *self.binding.lock().unwrap_or_else(PoisonError::into_inner);
        binding.filter(|(_, when)| when.elapsed() < BINDING_TTL).map(|(limit, _)| limit)
    }
}

impl Drop for QueuedCall {
    fn drop(&mut self) {
        let mut queued = self.provider_state.queued.lock().unwrap_or_else(PoisonError::into_inner);
        queued.counts.remove(&self.member);
        queued.remove(&self.tenant, self.arrival);
    }
}
