//! Accounts: what all calls with one credential at one provider share.

mod release;

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use tidegate::clock::Clock;
use tidegate::pacer::{Gauges, Pacer, PoolSize, SlotPool, Tuning};
use tidegate::{LimitError, PolicyError};
use tidegate_providers::{Credential, Dialect, Dimension, Provider};
use tokio::time::Instant;

use super::all_keys::AllKeys;
use super::builder::AccountBuilder;
use super::charging::Charging;
use super::footprint;
use super::lane::Lane;
use super::limit_view::QueueView;
use super::limits::AccountLimits;
use super::model_name::bounded;
use super::pace::Ramp;
use super::quota::{Quota, QuotaTerms};
use super::reservation::Reservation;
use super::slot_groups::SlotGroups;
use super::waits::WaitLog;
use crate::call::{CallError, Outgoing, Scope};
use crate::memory::{MemoryBudget, MemoryShare, SecondChance};
use crate::plan::{Constraint, Source};
use crate::retry::Budget;
use crate::settings::concurrency_of;
use crate::telemetry::Observer;

/// The most lanes of an account; models beyond share one.
const MAX_LANES: usize = 1_024;
/// The name that models share that are not told apart.
pub(super) const OTHER: &str = "other";
/// Calls under way to begin with, where nothing is set and nothing else is known of a provider.
const START: u64 = 8;
/// How many calls under way a concurrency grows to by itself at most, unless the operator says
/// otherwise.
pub const CONCURRENCY_CEILING: u64 = 1_024;

/// Why an account cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// A limit has no policy that the engine can keep.
    #[error("a limit cannot be kept: {0}")]
    Policy(#[from] PolicyError),
    /// The engine has another limit of the same name: the account was made before, with other
    /// limits.
    #[error("the account exists with other limits: {0}")]
    Limit(#[from] LimitError),
}

/// How many calls a provider takes at once unless it is set: one for Ollama, which has one machine;
/// elsewhere as many as turn out to be answered, from what the provider is known to take.
#[must_use]
pub fn default_concurrency(dialect: Dialect) -> PoolSize {
    let start = concurrency_of(dialect).map_or(START, |limit| limit.get().into());
    match dialect {
        Dialect::Ollama | Dialect::Mock => PoolSize::Fixed(start),
        _ => PoolSize::Adaptive(Tuning::new(start, CONCURRENCY_CEILING)),
    }
}

/// What calls of an account have in common.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) charging: Charging,
    /// What the models have in common.
    pub(super) quota: QuotaTerms,
    pub(super) margin: u32,
    pub(super) ramp: ArcSwapOption<Ramp>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) waits: WaitLog,
    /// The calls under way of models and endpoints.
    pub(super) groups: SlotGroups,
    /// The ceiling over all keys of callers, if this account is of one.
    pub(super) all_keys: Option<AllKeys>,
    /// What accounts, queues and models may take of memory.
    pub(super) memory: MemoryBudget,
    /// What was learned of models, by scope: it outlives the queues.
    pub(super) quotas: Mutex<SecondChance<String, Arc<Quota>>>,
}

impl Settings {
    /// What was learned of a scope that has a model.
    pub(super) fn quota(&self, scope: String, model: Arc<str>) -> Result<Arc<Quota>, AccountError> {
        let mut quotas = self.lock_quotas();
        if let Some(known) = quotas.get(&scope) {
            return Ok(known.clone());
        }
        let share = self.memory.charge(footprint::of_model(self.quota.tokens));
        let quota = Arc::new(Quota::new(self.quota.clone(), scope.clone(), model, share)?);
        quotas.insert(scope, quota.clone());
        Ok(quota)
    }

    pub(super) fn lock_quotas(&self) -> MutexGuard<'_, SecondChance<String, Arc<Quota>>> {
        self.quotas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One credential at one provider: its limits, its queues, and what was learned of it. Cheap to
/// clone; clones are the same account.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_llm::rate_limit::Account;
/// use tidegate_llm::Call;
/// use tidegate_llm::{Chat, Credential};
/// // Nothing is set: limits are learned from what the provider tells.
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
    scope: Scope,
    settings: Arc<Settings>,
    limits: ArcSwap<AccountLimits>,
    /// The calls under way, of this account and those that share its pool.
    member: SlotPool,
    lanes: Mutex<SecondChance<Scope, Arc<Lane>>>,
    /// Shared by all retry layers of this account.
    retry_budget: Budget,
    _memory: MemoryShare,
}

impl Account {
    /// An account in the making.
    pub fn builder(provider: impl Into<Provider>, credential: &Credential) -> AccountBuilder {
        AccountBuilder::new(provider.into(), credential)
    }

    pub(crate) fn retry_budget(&self) -> &Budget {
        &self.inner.retry_budget
    }

    /// An account with these parts.
    ///
    /// # Errors
    /// When its limits cannot be kept: that is found out now, not with the first call.
    pub(super) fn open(
        scope: Scope,
        settings: Settings,
        limits: AccountLimits,
        member: SlotPool,
    ) -> Result<Self, AccountError> {
        let inner = Inner {
            _memory: settings.memory.charge(footprint::of_account(settings.quota.tokens)),
            scope,
            settings: Arc::new(settings),
            limits: ArcSwap::from_pointee(limits),
            member,
            lanes: Mutex::default(),
            retry_budget: Budget::default(),
        };
        // No room is asked for here: whoever makes accounts may hold a lock that is needed for that.
        let limits = inner.limits.load_full();
        if !limits.is_empty() {
            let lane = inner.new_lane(inner.scope.clone(), &limits)?;
            inner.lock_lanes().insert(inner.scope.clone(), lane);
        }
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The provider.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        self.inner.scope.provider()
    }

    /// The hash of the credential.
    #[must_use]
    pub fn credential_id(&self) -> &str {
        self.inner.scope.credential_id()
    }

    /// The limits that were configured.
    #[must_use]
    pub fn limits(&self) -> Arc<AccountLimits> {
        self.inner.limits.load_full()
    }

    /// Sets other limits for all calls of the account together. What was spent counts on, calls
    /// under way go on, and whoever waits goes by the new limits at once. Endpoints and models keep
    /// their own.
    ///
    /// # Errors
    /// When the limits cannot be kept; those of before hold then.
    pub fn reconfigure(&self, constraint: Constraint, source: Source) -> Result<(), AccountError> {
        self.configure(AccountLimits::clone(&self.limits()).all(constraint, source))
    }

    /// Sets other limits in place of all that were configured.
    ///
    /// # Errors
    /// When the limits cannot be kept. Some of them may be in force then.
    pub fn configure(&self, limits: AccountLimits) -> Result<(), AccountError> {
        let inner = &*self.inner;
        let mut lanes = inner.lock_lanes();
        match lanes.get(&inner.scope) {
            Some(lane) => lane.configure(&limits)?,
            // So far each model had a queue of its own; from now on they share one.
            None if !limits.is_empty() => {
                let lane = inner.new_lane(inner.scope.clone(), &limits)?;
                lanes.clear();
                lanes.insert(inner.scope.clone(), lane);
            }
            None => {}
        }
        inner.limits.store(Arc::new(limits));
        Ok(())
    }

    /// Grows to the limit from so many requests per minute in that time from now on, or not at all.
    /// What grows now follows it.
    pub fn set_ramp(&self, ramp: Option<(u64, Duration)>) {
        let ramp = ramp.map(|(floor, over)| Ramp { floor, over });
        let settings = &self.inner.settings;
        if settings.ramp.swap(ramp.map(Arc::new)).as_deref() == ramp.as_ref() {
            return;
        }
        let lanes = self.inner.lock_lanes();
        let quotas = settings.lock_quotas();
        let now = settings.quota.clock.now();
        quotas.iter().for_each(|(_, quota)| quota.change_ramp(ramp, now));
        lanes.iter().for_each(|(_, lane)| lane.pacer().nudge());
    }

    /// Takes the limits of the account out of the engine, because it is used no more. What was spent
    /// stays in the store: if the account is made again, it goes on from there.
    pub fn retire(&self) {
        let engine = &self.inner.settings.quota.engine;
        let lanes = self.inner.lock_lanes();
        let quotas = self.inner.settings.lock_quotas();
        let told = quotas.iter().flat_map(|(_, quota)| quota.limit_names());
        for name in lanes.iter().flat_map(|(_, lane)| lane.limit_names()).chain(told) {
            engine.retire(&name);
        }
    }

    /// Whether both are the same account.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Waits until a call of a model may leave, over all of its limits at once. The answer is to be
    /// [heard](Reservation::heard), and a failure to be [told](Reservation::failed).
    ///
    /// # Errors
    /// When the wait would be longer than the call accepts, when a quota of a day or of money is
    /// used up, or when the store cannot decide. Nothing was charged then.
    pub async fn reserve(
        &self,
        model: &str,
        call: &impl Outgoing,
    ) -> Result<Reservation, CallError> {
        let model = lower_case(model);
        let model = bounded(&model);
        let lane = self.lane(&model).map_err(|error| CallError::Request {
            provider: self.provider().clone(),
            source: Box::new(error),
        })?;
        lane.reserve(&model, call).await
    }

    /// How the queue of a model stands: who waits, what is under way, how much may be.
    #[must_use]
    pub fn gauges(&self, model: &str) -> Option<Gauges> {
        let lane = self.lane(&bounded(model)).ok()?;
        Some(lane.pacer().gauges())
    }

    /// What was charged to the limits of a model that the provider reported, less what was given back.
    #[must_use]
    pub fn charged(&self, model: &str) -> Vec<(Dimension, u64)> {
        let model = bounded(model).to_lowercase();
        let quota = |lane: Arc<Lane>| lane.quota(&model);
        let quota = self.lane(&model).and_then(quota);
        quota.map_or_else(|_| Vec::new(), |quota| quota.charged())
    }

    /// Calls of the account that are under way or wait.
    #[must_use]
    pub fn pending(&self) -> u64 {
        let lanes = self.inner.lock_lanes();
        let pending = lanes.iter().map(|(_, lane)| {
            let gauges = lane.pacer().gauges();
            gauges.in_flight.saturating_add(u64::try_from(gauges.waiting).unwrap_or(u64::MAX))
        });
        pending.fold(0, u64::saturating_add)
    }

    /// What every queue of the account allows, where that comes from, and what is left of it. Buckets
    /// are peeked at, which spends nothing; those of a shared store that has not answered within
    /// `patience` are left out.
    pub async fn inspect(&self, patience: Duration) -> Vec<QueueView> {
        let lanes: Vec<Arc<Lane>> = {
            let lanes = self.inner.lock_lanes();
            lanes.iter().map(|(_, lane)| lane.clone()).collect()
        };
        let until = Instant::now() + patience;
        let mut views = Vec::with_capacity(lanes.len());
        for lane in lanes {
            views.push(lane.view(until).await);
        }
        views.sort_by(|one, other| {
            (&one.model, &one.endpoint).cmp(&(&other.model, &other.endpoint))
        });
        views
    }

    /// The calls under way, of this account and those that share its pool.
    #[must_use]
    pub fn pool(&self) -> &SlotPool {
        &self.inner.member
    }

    /// The queue of a model: that of the account if limits were ever configured, else its own, or one
    /// that is shared with others if there is no room for it.
    fn lane(&self, model: &str) -> Result<Arc<Lane>, AccountError> {
        let inner = &*self.inner;
        let limits = inner.limits.load();
        let mut scope = inner.scope.clone();
        if limits.is_empty() {
            scope = scope.model(model);
        }
        if let Some(lane) = inner.known_lane(&inner.lock_lanes(), &scope) {
            return Ok(lane);
        }
        // Others may be forgotten for it, for which no queue may be locked.
        let has_room = self.has_room(footprint::of_lane(&limits));
        let mut lanes = inner.lock_lanes();
        if limits.is_empty() && (!has_room || lanes.len() >= MAX_LANES) {
            scope = scope.model(OTHER);
        }
        if let Some(lane) = inner.known_lane(&lanes, &scope) {
            return Ok(lane);
        }
        let lane = inner.new_lane(scope.clone(), &limits)?;
        lanes.insert(scope, lane.clone());
        Ok(lane)
    }
}

/// A name in lower case, which most are already.
fn lower_case(name: &str) -> Cow<'_, str> {
    if name.bytes().all(|byte| byte.is_ascii() && !byte.is_ascii_uppercase()) {
        return name.into();
    }
    name.to_lowercase().into()
}

impl Inner {
    /// The queue of the account if there is one, else that of a scope.
    fn known_lane(
        &self,
        lanes: &SecondChance<Scope, Arc<Lane>>,
        scope: &Scope,
    ) -> Option<Arc<Lane>> {
        lanes.get(&self.scope).or_else(|| lanes.get(scope)).cloned()
    }

    fn lock_lanes(&self) -> MutexGuard<'_, SecondChance<Scope, Arc<Lane>>> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_lane(&self, scope: Scope, limits: &AccountLimits) -> Result<Arc<Lane>, AccountError> {
        let pacer = Pacer::builder(&self.settings.quota.engine).pool(&self.member).build();
        let clock = self.settings.quota.clock;
        Lane::new(scope, self.settings.clone(), limits, pacer, clock).map(Arc::new)
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
