//! Accounts: what all calls with one credential at one provider share.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, ArcSwapOption};
use tidegate::clock::Clock as _;
use tidegate::pacer::{AdaptiveBounds, Gauges, Pacer};
use tidegate::{CalendarError, LimitError, PolicyError};
use tidegate_providers::{Credential, Dialect, Dimension, Endpoint, Provider};

use super::builder::AccountBuilder;
use super::charging::Charging;
use super::lane::Lane;
use super::pace::Ramp;
use super::quota::{Quota, QuotaTerms};
use super::reservation::Reservation;
use super::waits::Waits;
use crate::call::{CallError, Outgoing, Scope};
use crate::plan::{Constraint, Source};
use crate::settings::concurrency_of;
use crate::telemetry::Observer;

/// The most lanes of an account; models beyond share one.
const MAX_LANES: usize = 1_024;
/// Calls under way to begin with, where nothing is set and nothing else is known of a provider.
const START: u64 = 8;
/// The most calls under way that a concurrency grows to by itself.
const CAP: u64 = 1_024;

/// Why an account cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccountError {
    /// A limit has no policy that the engine can keep.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The engine has another limit of the same name: the account was made before, with other
    /// limits.
    #[error(transparent)]
    Limit(#[from] LimitError),
    /// A limit by the calendar cannot be made.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
}

/// How many calls may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Concurrency {
    /// So many, as written.
    Fixed(u64),
    /// As many as turn out to be answered, from a start up to a cap.
    Adaptive {
        /// To begin with.
        start: u64,
        /// At most.
        cap: u64,
    },
    /// Any number.
    Unlimited,
}

impl Concurrency {
    /// What a provider begins with: one for Ollama, which has one machine; as many as turn out to
    /// be answered elsewhere.
    #[must_use]
    pub fn of(dialect: Dialect) -> Self {
        let start = concurrency_of(dialect).map_or(START, |limit| limit.get().into());
        match dialect {
            Dialect::Ollama | Dialect::Mock => Self::Fixed(start),
            _ => Self::Adaptive { start, cap: CAP },
        }
    }
}

/// How one limit of a model stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Charged {
    /// What it counts.
    pub dimension: Dimension,
    /// What is allowed in a minute, if that is known.
    pub per_minute: Option<u64>,
    /// What was charged so far, less what was given back.
    pub charged: u64,
}

/// How one queue stands.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// Whose queue it is.
    pub scope: Scope,
    /// Who waits, what is under way, how much may be.
    pub gauges: Gauges,
    /// What was charged to its limits, those that were set and those that were told.
    pub charged: Vec<Charged>,
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
    pub(super) waits: Waits,
    /// What was learned of models, by scope: it outlives the queues.
    pub(super) quotas: Mutex<HashMap<String, Arc<Quota>>>,
}

impl Settings {
    /// What was learned of a scope that has a model.
    pub(super) fn quota(&self, scope: String) -> Result<Arc<Quota>, AccountError> {
        let mut quotas = self.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = quotas.get(&scope) {
            return Ok(known.clone());
        }
        let quota = Arc::new(Quota::new(self.quota.clone(), scope.clone())?);
        quotas.insert(scope, quota.clone());
        Ok(quota)
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
/// use tidegate_providers::{Chat, Credential};
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

/// Limits of endpoints.
pub(super) type Endpoints = HashMap<Endpoint, (Constraint, Source)>;

struct Inner {
    scope: Scope,
    settings: Arc<Settings>,
    constraint: ArcSwapOption<(Constraint, Source)>,
    endpoints: ArcSwap<Endpoints>,
    concurrency: Concurrency,
    /// What the concurrency was changed to since; zero if it was not.
    changed: AtomicU64,
    lanes: Mutex<HashMap<Scope, Arc<Lane>>>,
}

impl Account {
    /// An account in the making.
    pub fn builder(provider: impl Into<Provider>, credential: &Credential) -> AccountBuilder {
        AccountBuilder::new(provider.into(), credential)
    }

    /// An account with these parts.
    ///
    /// # Errors
    /// When its limits cannot be kept: that is found out now, not with the first call.
    pub(super) fn open(
        scope: Scope,
        settings: Settings,
        constraint: Option<(Constraint, Source)>,
        endpoints: Endpoints,
        concurrency: Concurrency,
    ) -> Result<Self, AccountError> {
        let inner = Inner {
            scope,
            settings: Arc::new(settings),
            constraint: ArcSwapOption::from(constraint.map(Arc::new)),
            endpoints: ArcSwap::from_pointee(endpoints),
            concurrency,
            changed: AtomicU64::new(0),
            lanes: Mutex::default(),
        };
        let account = Self { inner: Arc::new(inner) };
        if account.constraint().is_some() {
            account.lane("", &Endpoint::default())?;
        }
        Ok(account)
    }

    /// The provider.
    #[must_use]
    pub fn provider(&self) -> &Provider {
        self.inner.scope.provider()
    }

    /// Whose limits these are.
    #[must_use]
    pub fn scope(&self) -> &Scope {
        &self.inner.scope
    }

    /// The limits that were set, and by whom.
    #[must_use]
    pub fn constraint(&self) -> Option<Arc<(Constraint, Source)>> {
        self.inner.constraint.load_full()
    }

    /// Sets other limits for the account. What was spent counts on, calls under way go on, and
    /// whoever waits goes by the new limits at once. Endpoints keep limits of their own.
    ///
    /// # Errors
    /// When the limits cannot be kept; those of before hold then.
    pub fn reconfigure(&self, constraint: Constraint, source: Source) -> Result<(), AccountError> {
        let mut lanes = self.inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.inner.is_shared() {
            // So far each model had a queue of its own; from now on they share one.
            lanes.retain(|scope, _| scope.endpoint_of().is_some());
        }
        for lane in lanes.values().filter(|lane| lane.scope().endpoint_of().is_none()) {
            lane.configure(&constraint, source)?;
        }
        self.inner.constraint.store(Some(Arc::new((constraint, source))));
        Ok(())
    }

    /// Sets other limits for endpoints, in place of all that were set for any. An endpoint that is
    /// no longer named shares the limits of the account; those who wait in its queue leave by it.
    ///
    /// # Errors
    /// When the limits cannot be kept. Some endpoints may have theirs then.
    pub fn set_endpoints(
        &self,
        endpoints: impl IntoIterator<Item = (Endpoint, Constraint)>,
    ) -> Result<(), AccountError> {
        let endpoints: Endpoints = endpoints
            .into_iter()
            .map(|(endpoint, constraint)| (endpoint, (constraint, Source::Override)))
            .collect();
        let mut lanes = self.inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|scope, _| scope.endpoint_of().is_none_or(|one| endpoints.contains_key(one)));
        for (scope, lane) in lanes.iter() {
            let own = scope.endpoint_of().and_then(|endpoint| endpoints.get(endpoint));
            if let Some((constraint, source)) = own {
                lane.configure(constraint, *source)?;
            }
        }
        self.inner.endpoints.store(Arc::new(endpoints));
        Ok(())
    }

    /// Grows to the limit like this from now on, or not at all. What grows now follows it.
    pub fn set_ramp(&self, ramp: Option<Ramp>) {
        let settings = &self.inner.settings;
        if settings.ramp.swap(ramp.map(Arc::new)).as_deref() == ramp.as_ref() {
            return;
        }
        let lanes = self.inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let quotas = settings.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        let now = settings.quota.clock.now();
        quotas.values().for_each(|quota| quota.change_ramp(ramp, now));
        lanes.values().for_each(|lane| lane.pacer().nudge());
    }

    /// Takes the limits of the account out of the engine, because it is used no more. What was spent
    /// stays in the store: if the account is made again, it goes on from there.
    pub fn retire(&self) {
        let engine = &self.inner.settings.quota.engine;
        let lanes = self.inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let quotas = self.inner.settings.quotas.lock().unwrap_or_else(PoisonError::into_inner);
        let told = quotas.values().flat_map(|quota| quota.limit_names());
        for name in lanes.values().flat_map(|lane| lane.limit_names()).chain(told) {
            engine.retire(&name);
        }
    }

    /// Whether both are the same account.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    /// Waits until a call may leave, over all of its limits at once.
    ///
    /// # Errors
    /// When the wait would be longer than the call accepts, when a quota of a day or of money is
    /// used up, or when the store cannot decide. Nothing was charged then.
    pub async fn reserve(
        &self,
        model: &str,
        call: &impl Outgoing,
    ) -> Result<Reservation, CallError> {
        let endpoint = &call.terms().endpoint;
        let lane = self.lane(model, endpoint).map_err(|error| CallError::Request {
            provider: self.provider().clone(),
            source: Box::new(error),
        })?;
        lane.reserve(model, call).await
    }

    /// How the queue of a model stands: who waits, what is under way, how much may be.
    #[must_use]
    pub fn gauges(&self, model: &str) -> Option<Gauges> {
        let lane = self.lane(model, &Endpoint::default()).ok()?;
        Some(lane.pacer().gauges())
    }

    /// What was charged to the limits that a model told, and what they allow.
    #[must_use]
    pub fn charged(&self, model: &str) -> Vec<Charged> {
        let model = model.to_lowercase();
        let quota = |lane: Arc<Lane>| lane.quota(&model);
        let quota = self.lane(&model, &Endpoint::default()).and_then(quota);
        quota.map_or_else(|_| Vec::new(), |quota| quota.charged())
    }

    /// How every queue of the account stands.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        let lanes = self.inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.values().map(|lane| lane.standing()).collect()
    }

    /// Changes how many calls may be under way; those that are under way drain. Endpoints keep a
    /// concurrency of their own.
    pub fn set_concurrency(&self, limit: u64) {
        let lanes = self.inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        self.inner.changed.store(limit.max(1), Ordering::Relaxed);
        let follows = |lane: &&Arc<Lane>| !self.inner.has_own_concurrency(lane.scope());
        lanes.values().filter(follows).for_each(|lane| lane.pacer().set_concurrency(Some(limit)));
    }

    fn lane(&self, model: &str, endpoint: &Endpoint) -> Result<Arc<Lane>, AccountError> {
        let inner = &*self.inner;
        let (endpoints, all) = (inner.endpoints.load(), inner.constraint.load());
        let own = endpoints.get(endpoint);
        let constraint = own.or(all.as_deref());
        let mut scope = inner.scope.clone();
        if own.is_some() {
            scope = scope.endpoint(endpoint.clone());
        }
        if own.is_none() && !inner.is_shared() {
            scope = scope.model(model);
        }
        let mut lanes = inner.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lane) = lanes.get(&scope) {
            return Ok(lane.clone());
        }
        if lanes.len() >= MAX_LANES {
            scope = scope.model("other");
            if let Some(lane) = lanes.get(&scope) {
                return Ok(lane.clone());
            }
        }
        let pacer = inner.pacer(constraint.map(|(constraint, _)| constraint));
        let settings = inner.settings.clone();
        let lane =
            Lane::new(scope.clone(), settings, constraint, pacer, inner.settings.quota.clock)?;
        let lane = Arc::new(lane);
        lanes.insert(scope, lane.clone());
        Ok(lane)
    }
}

impl Inner {
    /// Whether all models share one queue: something was set for all of them.
    fn is_shared(&self) -> bool {
        self.constraint.load().is_some() || matches!(self.concurrency, Concurrency::Fixed(_))
    }

    /// Whether a scope is an endpoint whose limits say how many calls may be under way.
    fn has_own_concurrency(&self, scope: &Scope) -> bool {
        let endpoints = self.endpoints.load();
        let own = scope.endpoint_of().and_then(|endpoint| endpoints.get(endpoint));
        own.is_some_and(|(constraint, _)| constraint.concurrency().is_some())
    }

    fn pacer(&self, constraint: Option<&Constraint>) -> Pacer {
        let builder = Pacer::builder(&self.settings.quota.engine);
        let set = constraint.and_then(Constraint::concurrency);
        let concurrency =
            set.map_or(self.concurrency, |limit| Concurrency::Fixed(limit.get().into()));
        let pacer = match concurrency {
            Concurrency::Fixed(limit) => {
                tracing::info!(
                    "Created concurrency semaphore for provider '{}' with limit={limit}",
                    self.scope.provider()
                );
                builder.concurrency(limit).build()
            }
            Concurrency::Adaptive { start, cap } => {
                builder.adaptive(AdaptiveBounds { floor: 1, start, cap }).build()
            }
            Concurrency::Unlimited => builder.build(),
        };
        let changed = self.changed.load(Ordering::Relaxed);
        if changed > 0 && set.is_none() {
            pacer.set_concurrency(Some(changed));
        }
        pacer
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account")
            .field("scope", &self.inner.scope)
            .field("constraint", &self.inner.constraint.load())
            .finish_non_exhaustive()
    }
}
