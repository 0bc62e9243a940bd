//! Accounts: what all calls with one credential at one provider share.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tidegate::clock::TokioClock;
use tidegate::pacer::{AdaptiveBounds, Gauges, Pacer};
use tidegate::{CalendarError, LimitError, PolicyError};

use super::books::Books;
use super::charging::Charging;
use super::lane::Lane;
use super::pace::{Burst, MARGIN, Ramp};
use super::quota::{Quota, QuotaTerms};
use super::reservation::Reservation;
use super::waits::Waits;
use crate::call::Outgoing;
use crate::dialect::Dialect;
use crate::error::CallError;
use crate::plan::{Constraint, Source};
use crate::provider::{Credential, Provider};
use crate::scope::{Endpoint, Scope};
use crate::telemetry::{Observer, Traced};
use crate::told::Dimension;

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
    pub const fn of(dialect: Dialect) -> Self {
        match dialect {
            Dialect::Ollama => Self::Fixed(1),
            Dialect::Anthropic => Self::Adaptive { start: 4, cap: CAP },
            Dialect::Mock => Self::Fixed(100),
            _ => Self::Adaptive { start: START, cap: CAP },
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

/// What calls of an account have in common.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) charging: Charging,
    /// What the models have in common.
    pub(super) quota: QuotaTerms,
    pub(super) margin: u32,
    pub(super) ramp: Option<Ramp>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) waits: Waits,
    /// What was learned of models, by scope: it outlives the queues.
    quotas: Mutex<HashMap<String, Arc<Quota>>>,
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
/// use tidegate_llm::{Call, Chat, Credential};
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
    constraint: ArcSwapOption<(Constraint, Source)>,
    endpoints: HashMap<Endpoint, (Constraint, Source)>,
    concurrency: Concurrency,
    /// What the concurrency was changed to since; zero if it was not.
    changed: AtomicU64,
    lanes: Mutex<HashMap<Scope, Arc<Lane>>>,
    clock: TokioClock,
}

impl Account {
    /// An account in the making.
    pub fn builder(provider: impl Into<Provider>, credential: &Credential) -> AccountBuilder {
        let provider = provider.into();
        let dialect = Dialect::of(&provider);
        AccountBuilder {
            scope: Scope::new(provider, credential),
            dialect,
            books: None,
            constraint: None,
            endpoints: HashMap::new(),
            concurrency: None,
            charging: None,
            margin: MARGIN,
            ramp: None,
            observer: None,
            waits: Waits::each_call(),
        }
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
        let (own, all) = (inner.endpoints.get(endpoint), inner.constraint.load());
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
        let lane = Lane::new(scope.clone(), settings, constraint, pacer, inner.clock)?;
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
        let own = scope.endpoint_of().and_then(|endpoint| self.endpoints.get(endpoint));
        own.is_some_and(|(constraint, _)| constraint.concurrency().is_some())
    }

    fn pacer(&self, constraint: Option<&Constraint>) -> Pacer {
        let builder = Pacer::builder(self.settings.quota.books.bank());
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

/// An [`Account`] in the making.
#[derive(Debug)]
#[must_use = "an account is made by `build`"]
pub struct AccountBuilder {
    scope: Scope,
    dialect: Dialect,
    books: Option<Books>,
    constraint: Option<(Constraint, Source)>,
    endpoints: HashMap<Endpoint, (Constraint, Source)>,
    concurrency: Option<Concurrency>,
    charging: Option<Charging>,
    margin: u32,
    ramp: Option<Ramp>,
    observer: Option<Arc<dyn Observer>>,
    waits: Waits,
}

impl AccountBuilder {
    /// The dialect, if the provider's name does not tell.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// Where limits are kept: `&Engine`, or `&Engine<dyn Store>` for a store that several processes
    /// share. Default: a store of its own in this process, on tokio's time.
    pub fn books(mut self, books: impl Into<Books>) -> Self {
        self.books = Some(books.into());
        self
    }

    /// The limits of the account, for all models together. A wish ([`Source::Override`]) is never
    /// exceeded; anything else is replaced by what the provider tells. Default: none; limits are
    /// learned, for each model by itself.
    pub fn limits(mut self, constraint: Constraint, source: Source) -> Self {
        self.constraint = Some((constraint, source));
        self
    }

    /// Limits of one endpoint, which then has a queue of its own.
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.endpoints.insert(endpoint, (constraint, Source::Override));
        self
    }

    /// How many calls may be under way. Default: [`Concurrency::of`] the dialect.
    pub fn concurrency(mut self, concurrency: Concurrency) -> Self {
        self.concurrency = Some(concurrency);
        self
    }

    /// How the provider charges. Default: [`Charging::of`] the dialect.
    pub fn charging(mut self, charging: Charging) -> Self {
        self.charging = Some(charging);
        self
    }

    /// Sends at exactly the rates that were set, instead of 1.5 % below. For rates that are the
    /// program's own choice; a provider that counts each second by itself refuses now and then at
    /// exactly its limit. After the first such refusal the margin is kept.
    pub fn exact(mut self) -> Self {
        self.margin = 0;
        self
    }

    /// Grows to the limit from a floor, at first and after a pause: for providers that refuse
    /// sharp rises. Default: no ramp.
    pub fn ramp_up(mut self, ramp: Ramp) -> Self {
        self.ramp = Some(ramp);
        self
    }

    /// Who is told what happens. Default: [`Traced`].
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// Warns of waits once a minute for a scope, with their number and the worst, instead of each.
    /// For servers.
    pub fn warn_each_minute(mut self) -> Self {
        self.waits = Waits::each_minute();
        self
    }

    /// The account.
    ///
    /// # Errors
    /// When its limits cannot be kept, or its books have other limits of the same scope.
    pub fn build(self) -> Result<Account, AccountError> {
        let charging = self.charging.unwrap_or_else(|| Charging::of(self.dialect));
        // What is reserved and given back must fit into the bucket, as it does into the provider's.
        let seconds = if charging.is_generous() { 54 } else { 1 };
        let clock = TokioClock::new();
        let quota = QuotaTerms {
            books: self.books.unwrap_or_else(Books::own),
            tokens: tokens_of(self.dialect),
            token_burst: Burst::Worth(Duration::from_secs(seconds)),
            clock,
        };
        let settings = Settings {
            charging,
            quota,
            margin: self.margin,
            ramp: self.ramp,
            observer: self.observer.unwrap_or_else(|| Arc::new(Traced)),
            waits: self.waits,
            quotas: Mutex::default(),
        };
        let inner = Inner {
            scope: self.scope,
            settings: Arc::new(settings),
            constraint: ArcSwapOption::from(self.constraint.map(Arc::new)),
            endpoints: self.endpoints,
            concurrency: self.concurrency.unwrap_or_else(|| Concurrency::of(self.dialect)),
            changed: AtomicU64::new(0),
            lanes: Mutex::default(),
            clock,
        };
        let account = Account { inner: Arc::new(inner) };
        if account.constraint().is_some() {
            // Limits that cannot be kept are found out now, not with the first call.
            account.lane("", &Endpoint::default())?;
        }
        Ok(account)
    }
}

/// The limits on tokens that a provider is known to have.
const fn tokens_of(dialect: Dialect) -> &'static [Dimension] {
    match dialect {
        Dialect::Anthropic => &[Dimension::InputTokens, Dimension::OutputTokens],
        Dialect::Gemini => &[Dimension::InputTokens],
        Dialect::DeepSeek | Dialect::Ollama | Dialect::Mock => &[],
        _ => &[Dimension::Tokens],
    }
}
