//! Accounts: the state shared by all calls with one credential at one provider.

mod eviction;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tidegate::LimitError;
use tidegate::clock::Clock;
use tidegate::pacer::{Gauges, Pacer, PoolSize, SlotPool, Tuning};
use tidegate_providers::{Credential, Dialect, Dimension, Provider};
use tokio::time::Instant;

use super::all_keys::AllKeys;
use super::builder::AccountBuilder;
use super::call_queue::CallQueue;
use super::footprint;
use super::limit_view::QueueView;
use super::limits::AccountLimits;
use super::model_limits::{ModelLimits, ModelParams};
use super::model_name::bounded;
use super::reservation::Reservation;
use super::send_rate::Ramp;
use super::slot_groups::SlotGroups;
use super::token_accounting::TokenAccounting;
use super::wait_log::WaitLog;
use crate::call::{CallError, LimitScope, OutgoingCall};
use crate::memory::{MemoryBudget, MemoryCharge, SecondChanceMap};
use crate::plan::{Constraint, ConstraintSource};
use crate::retry::Budget;
use crate::settings::concurrency_of;
use crate::telemetry::Observer;

/// Maximum number of queues per account; further models share one.
const MAX_QUEUES: usize = 1_024;
/// Name of the entry that models share beyond a maximum.
pub(super) const OTHER: &str = "other";
/// Initial concurrency where none is configured and the provider's is unknown.
const INITIAL_CONCURRENCY: u64 = 8;
/// Maximum that adaptive concurrency grows to, unless configured otherwise.
pub const CONCURRENCY_CEILING: u64 = 1_024;

/// Returns the default concurrency of a dialect: fixed at one for Ollama, which runs on one
/// machine; adaptive elsewhere, starting from what the provider is known to accept.
#[must_use]
pub fn default_concurrency(dialect: Dialect) -> PoolSize {
    let start = concurrency_of(dialect).map_or(INITIAL_CONCURRENCY, |limit| limit.get().into());
    match dialect {
        Dialect::Ollama | Dialect::Mock => PoolSize::Fixed(start),
        _ => PoolSize::Adaptive(Tuning::new(start, CONCURRENCY_CEILING)),
    }
}

/// Settings and state shared by all queues of an account.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) accounting: TokenAccounting,
    /// Parameters of new [`ModelLimits`].
    pub(super) model_params: ModelParams,
    pub(super) margin: u32,
    pub(super) ramp: ArcSwapOption<Ramp>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) waits: WaitLog,
    /// Concurrency limits of models and endpoints.
    pub(super) groups: SlotGroups,
    /// Ceiling over all callers' keys, if this account belongs to a caller.
    pub(super) all_keys: Option<AllKeys>,
    /// Memory budget of accounts, queues and models.
    pub(super) memory: MemoryBudget,
    /// Learned limits by scope. They outlive the queues.
    pub(super) known_models: Mutex<SecondChanceMap<String, Arc<ModelLimits>>>,
}

impl Settings {
    /// Returns the limits of the model in `scope`, created if necessary.
    pub(super) fn model_limits(
        &self,
        scope: String,
        model: Arc<str>,
    ) -> Result<Arc<ModelLimits>, LimitError> {
        let mut known_models = self.lock_known_models();
        if let Some(known) = known_models.get(&scope) {
            return Ok(known.clone());
        }
        let charge = self.memory.charge(footprint::of_model(self.model_params.tokens));
        let model_limits =
            Arc::new(ModelLimits::new(self.model_params.clone(), scope.clone(), model, charge)?);
        known_models.insert(scope, model_limits.clone());
        Ok(model_limits)
    }

    pub(super) fn lock_known_models(
        &self,
    ) -> MutexGuard<'_, SecondChanceMap<String, Arc<ModelLimits>>> {
        self.known_models.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One credential at one provider: its limits, its queues, and what was learned about it. Cheap to
/// clone; clones share the account.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_llm::rate_limit::Account;
/// use tidegate_llm::Call;
/// use tidegate_llm::{Chat, Credential};
/// // No limits are configured: they are learned from what the provider reports.
/// let account = Account::builder("openai", &Credential::new("sk-1")).build()?;
/// let call = Call::new(Chat::user("hello"));
/// let reservation = account.reserve("gpt-4o", &call).await?;
/// assert!(reservation.waited().is_zero());
/// reservation.complete(None);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Account {
    inner: Arc<Inner>,
}

struct Inner {
    scope: LimitScope,
    settings: Arc<Settings>,
    limits: ArcSwap<AccountLimits>,
    /// Concurrency slots of this account and of those that share its pool.
    slots: SlotPool,
    queues: Mutex<SecondChanceMap<LimitScope, Arc<CallQueue>>>,
    /// Shared by all retry layers of this account.
    retry_budget: Budget,
    _memory: MemoryCharge,
}

impl Account {
    /// Starts building an account.
    pub fn builder(provider: impl Into<Provider>, credential: &Credential) -> AccountBuilder {
        AccountBuilder::new(provider.into(), credential)
    }

    pub(crate) fn retry_budget(&self) -> &Budget {
        &self.inner.retry_budget
    }

    /// Opens an account.
    ///
    /// # Errors
    /// If a limit is invalid.
    pub(super) fn open(
        scope: LimitScope,
        settings: Settings,
        limits: AccountLimits,
        slots: SlotPool,
    ) -> Result<Self, LimitError> {
        let inner = Inner {
            _memory: settings.memory.charge(footprint::of_account(settings.model_params.tokens)),
            scope,
            settings: Arc::new(settings),
            limits: ArcSwap::from_pointee(limits),
            slots,
            queues: Mutex::default(),
            retry_budget: Budget::default(),
        };
        // Does not ask the memory budget for room: the caller may hold a lock that reclaiming
        // takes.
        let limits = inner.limits.load_full();
        if !limits.is_empty() {
            let queue = inner.new_queue(inner.scope.clone(), &limits)?;
            inner.lock_queues().insert(inner.scope.clone(), queue);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns the provider.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        self.inner.scope.provider()
    }

    /// Returns the hash of the credential.
    #[must_use]
    pub fn credential_id(&self) -> &str {
        self.inner.scope.credential_id()
    }

    /// Returns the configured limits.
    #[must_use]
    pub fn limits(&self) -> Arc<AccountLimits> {
        self.inner.limits.load_full()
    }

    /// Replaces the limits for all calls of the account together. Charges are kept, calls in flight
    /// continue, and waiting calls follow the new limits at once. Limits of endpoints and models
    /// stay.
    ///
    /// # Errors
    /// If a limit is invalid. The previous limits stay in force then.
    pub fn reconfigure(
        &self,
        constraint: Constraint,
        source: ConstraintSource,
    ) -> Result<(), LimitError> {
        self.configure(AccountLimits::clone(&self.limits()).all(constraint, source))
    }

    /// Replaces all configured limits.
    ///
    /// # Errors
    /// If a limit is invalid. Some limits may have changed then.
    pub fn configure(&self, limits: AccountLimits) -> Result<(), LimitError> {
        let inner = &*self.inner;
        let mut queues = inner.lock_queues();
        match queues.get(&inner.scope) {
            Some(queue) => queue.configure(&limits)?,
            // Until now each model had its own queue; from now on they share one.
            None if !limits.is_empty() => {
                let queue = inner.new_queue(inner.scope.clone(), &limits)?;
                queues.clear();
                queues.insert(inner.scope.clone(), queue);
            }
            None => {}
        }
        inner.limits.store(Arc::new(limits));
        Ok(())
    }

    /// Sets or clears the ramp: the request rate grows from `floor` per minute to the limit within
    /// the given time. Ramps in progress follow the change.
    pub fn set_ramp(&self, ramp: Option<(u64, Duration)>) {
        let ramp = ramp.map(|(floor, over)| Ramp { floor, over });
        let settings = &self.inner.settings;
        if settings.ramp.swap(ramp.map(Arc::new)).as_deref() == ramp.as_ref() {
            return;
        }
        let queues = self.inner.lock_queues();
        let known_models = settings.lock_known_models();
        let now = settings.model_params.clock.now();
        known_models.iter().for_each(|(_, model_limits)| model_limits.change_ramp(ramp, now));
        queues.iter().for_each(|(_, queue)| queue.pacer().nudge());
    }

    /// Removes the account's limits from the engine because it is no longer used. Buckets stay in
    /// the store: an account opened again continues from them.
    pub(crate) fn retire(&self) {
        let engine = &self.inner.settings.model_params.engine;
        let queues = self.inner.lock_queues();
        let known_models = self.inner.settings.lock_known_models();
        let reported = known_models.iter().flat_map(|(_, model_limits)| model_limits.limit_names());
        for name in queues.iter().flat_map(|(_, queue)| queue.limit_names()).chain(reported) {
            engine.retire(&name);
        }
    }

    /// Returns whether both handles refer to the same account.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Waits until a call to `model` may be sent under all of its limits. Report the response head
    /// to [`Reservation::response_started`], or the error to [`Reservation::failed`].
    ///
    /// # Errors
    /// If the wait would exceed what the call accepts, a daily or monetary quota is exhausted, or
    /// the store cannot decide. Nothing is charged then.
    pub async fn reserve(
        &self,
        model: &str,
        call: &impl OutgoingCall,
    ) -> Result<Reservation, CallError> {
        let model = model_key(model);
        let queue = self.queue(&model).map_err(|error| CallError::InvalidRequest {
            provider: self.provider().clone(),
            source: Box::new(error),
        })?;
        queue.reserve(&model, call).await
    }

    /// Returns waiting calls, calls in flight and the concurrency limit of the queue of `model`.
    #[must_use]
    pub fn gauges(&self, model: &str) -> Option<Gauges> {
        let queue = self.queue(&model_key(model)).ok()?;
        Some(queue.pacer().gauges())
    }

    /// Returns the net charges to the reported limits of `model`.
    #[must_use]
    pub fn net_charges(&self, model: &str) -> Vec<(Dimension, u64)> {
        let model = model_key(model);
        let model_limits = |queue: Arc<CallQueue>| queue.model_limits(&model);
        let model_limits = self.queue(&model).and_then(model_limits);
        model_limits.map_or_else(|_| Vec::new(), |model_limits| model_limits.charged())
    }

    /// Returns the number of calls in flight or waiting.
    #[must_use]
    pub fn pending_calls(&self) -> u64 {
        let queues = self.inner.lock_queues();
        let pending = queues.iter().map(|(_, queue)| {
            let gauges = queue.pacer().gauges();
            gauges.in_flight.saturating_add(u64::try_from(gauges.waiting).unwrap_or(u64::MAX))
        });
        pending.fold(0, u64::saturating_add)
    }

    /// Returns the limits of every queue, their sources and what is left of them. Buckets are only
    /// peeked at. Those of a shared store that does not answer within `timeout` are omitted.
    pub async fn inspect(&self, timeout: Duration) -> Vec<QueueView> {
        let queues: Vec<Arc<CallQueue>> = {
            let queues = self.inner.lock_queues();
            queues.iter().map(|(_, queue)| queue.clone()).collect()
        };
        let until = Instant::now() + timeout;
        let mut views = Vec::with_capacity(queues.len());
        for queue in queues {
            views.push(queue.view(until).await);
        }
        views.sort_by(|one, other| {
            (&one.model, &one.endpoint).cmp(&(&other.model, &other.endpoint))
        });
        views
    }

    /// Concurrency slots of this account and of those that share its pool.
    #[must_use]
    pub fn pool(&self) -> &SlotPool {
        &self.inner.slots
    }

    /// Returns the queue of a model: the account's queue if limits are configured, else the model's
    /// own, or a shared one if there is no room for another.
    fn queue(&self, model: &str) -> Result<Arc<CallQueue>, LimitError> {
        let inner = &*self.inner;
        let limits = inner.limits.load();
        let mut scope = inner.scope.clone();
        if limits.is_empty() {
            scope = scope.model(model);
        }
        if let Some(queue) = inner.known_queue(&inner.lock_queues(), &scope) {
            return Ok(queue);
        }
        // May evict other queues, so the queues must not be locked here.
        let has_room = self.has_room(footprint::of_queue(&limits));
        let mut queues = inner.lock_queues();
        if limits.is_empty() && (!has_room || queues.len() >= MAX_QUEUES) {
            scope = scope.model(OTHER);
        }
        if let Some(queue) = inner.known_queue(&queues, &scope) {
            return Ok(queue);
        }
        let queue = inner.new_queue(scope.clone(), &limits)?;
        queues.insert(scope, queue.clone());
        Ok(queue)
    }
}

/// Returns the name under which the limits of a model are kept: in lower case, since providers
/// ignore case, and bounded.
fn model_key(model: &str) -> Cow<'_, str> {
    match lower_case(model) {
        Cow::Borrowed(model) => bounded(model),
        Cow::Owned(model) => bounded(&model).into_owned().into(),
    }
}

/// Lower-cases `name`, which rarely allocates.
fn lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return name.into();
    }
    name.to_lowercase().into()
}

impl Inner {
    /// Returns the account's queue if there is one, else that of `scope`.
    fn known_queue(
        &self,
        queues: &SecondChanceMap<LimitScope, Arc<CallQueue>>,
        scope: &LimitScope,
    ) -> Option<Arc<CallQueue>> {
        queues.get(&self.scope).or_else(|| queues.get(scope)).cloned()
    }

    fn lock_queues(&self) -> MutexGuard<'_, SecondChanceMap<LimitScope, Arc<CallQueue>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_queue(
        &self,
        scope: LimitScope,
        limits: &AccountLimits,
    ) -> Result<Arc<CallQueue>, LimitError> {
        let pacer = Pacer::builder(&self.settings.model_params.engine).pool(&self.slots).build();
        let clock = self.settings.model_params.clock;
        CallQueue::new(scope, self.settings.clone(), limits, pacer, clock).map(Arc::new)
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("scope", &self.inner.scope)
            .field("limits", &self.inner.limits.load())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_have_one_key_also_if_they_are_long() {
        for length in [10, 128, 129, 10_000] {
            let name = "Ä-Model".repeat(length);
            let key = model_key(&name);
            assert_eq!(key, model_key(&name.to_lowercase()), "{length}");
            assert!(key.len() <= 128, "{length}: {key}");
        }
        assert_eq!(model_key("GPT-4o"), "gpt-4o");
    }
}
