//! The registry of providers, settings and the accounts that models share.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_providers::request::Target;
use tidegate_providers::{Credential, Dialect, Provider};

use super::builder::ModelBuilder;
use super::error::LoadError;
use super::profile::Profile;
use super::setup::ModelsBuilder;
use tidegate::Engine;
use tidegate::pacer::{PoolSize, SlotPool};

use crate::breaker::Breakers;
use crate::call::{Call, CallResponse};
use crate::fallback;
use crate::plan::{Constraint, InvalidSettings};
use crate::rate_limit::{Account, AccountLimits, default_concurrency, local_engine, log_pool};
use crate::retry::Budgets;
use crate::settings::{FallbackSettings, RateLimitSettings, RetrySettings, resolve_concurrency};
use crate::telemetry::Observers;

/// A service that answers calls.
pub(super) type Backend = fallback::Target<Call, CallResponse>;

/// Creates the service that calls a target.
pub(super) type Connect = dyn Fn(&Provider, Target, &Profile) -> Backend + Send + Sync;

/// Registry of providers, module settings and state that models share. Cheap to clone; clones share
/// everything.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tidegate_llm::Chat;
/// use tidegate_llm::mock::{Mock, Step};
/// use tidegate_llm::models::Models;
///
/// let mock = Mock::new("mock").always(Step::reply("Elbe"));
/// let models = Models::builder().backend("mock", mock).build();
/// let model = models.load_model("mock", "any").rate_limit(true).retry(true).build()?;
/// assert_eq!(model.to_string(), "Retry(RateLimit(mock/any))");
/// assert_eq!(model.invoke(Chat::user("A river?")).await?.text, "Elbe");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Models {
    pub(super) inner: Arc<Inner>,
}

/// The registry of this process.
#[cfg(feature = "client")]
static GLOBAL: std::sync::OnceLock<Models> = std::sync::OnceLock::new();

pub(super) struct Inner {
    pub(super) connect: Option<Box<Connect>>,
    pub(super) backends: HashMap<Provider, Backend>,
    pub(super) profiles: HashMap<Provider, Profile>,
    pub(super) rate_limit: RateLimitSettings,
    pub(super) retry: RetrySettings,
    pub(super) fallback: FallbackSettings,
    pub(super) observers: Observers,
    pub(super) cap: NonZeroU32,
    pub(super) strict: bool,
    /// `None`: the registry has its own engine, replaced when the cache is cleared.
    pub(super) engine: Option<Engine>,
    pub(super) cache: Mutex<Cache>,
}

/// State shared by models.
pub(super) struct Cache {
    engine: Engine,
    accounts: HashMap<(Provider, Arc<str>), Entry>,
    /// Concurrency of each provider, across all keys.
    pools: HashMap<Provider, SlotPool>,
    budgets: Budgets,
    breakers: Breakers,
}

struct Entry {
    account: Account,
    /// Configured limits; `None` if all are learned.
    limits: Option<Constraint>,
    /// Whether a conflict of limits was already logged.
    warned: bool,
}

impl Models {
    pub(super) fn with(inner: Inner) -> Self {
        let models = Self { inner: Arc::new(inner) };
        models.clear_cache();
        models
    }

    /// Returns a builder. Without [`http`](ModelsBuilder::http), only providers with a backend can
    /// be called.
    pub fn builder() -> ModelsBuilder {
        ModelsBuilder::new()
    }

    /// Returns the registry of this process. Unless [`set_global`](Self::set_global) was called
    /// before, it has its own HTTP client, and its providers have no keys: pass one when loading a
    /// model.
    #[cfg(feature = "client")]
    pub fn global() -> &'static Self {
        GLOBAL.get_or_init(|| match crate::client::Client::new() {
            Ok(client) => Self::builder().http(client).build(),
            Err(error) => {
                tracing::error!(%error, "cannot create an HTTP client; models cannot be loaded");
                Self::builder().build()
            }
        })
    }

    /// Makes this the registry of the process, from which [`load_model`](super::load_model) loads.
    /// Call it once, before the first model is loaded.
    ///
    /// # Errors
    /// If the process already has a registry; it is kept.
    #[cfg(feature = "client")]
    pub fn set_global(self) -> Result<&'static Self, LoadError> {
        let mut own = Some(self);
        let global = GLOBAL.get_or_init(|| own.take().unwrap_or_else(|| Self::builder().build()));
        if own.is_none() { Ok(global) } else { Err(LoadError::GlobalIsSet) }
    }

    /// Starts to load a model of a provider; `None` is the provider's default model.
    pub fn load_model<'m>(
        &self,
        provider: impl Into<Provider>,
        model: impl Into<Option<&'m str>>,
    ) -> ModelBuilder {
        let model = model.into().map(str::to_owned);
        ModelBuilder::new(self.clone(), provider.into(), model)
    }

    /// Returns the account of a provider and credential, if a model of it was loaded.
    #[must_use]
    pub fn account(&self, provider: impl Into<Provider>, key: &Credential) -> Option<Account> {
        let name = (provider.into(), key.id().into());
        self.lock().accounts.get(&name).map(|entry| entry.account.clone())
    }

    /// Returns the number of accounts.
    #[must_use]
    pub fn account_count(&self) -> usize {
        self.lock().accounts.len()
    }

    /// Changes the limits of an account. Calls in flight continue.
    ///
    /// # Errors
    /// When no model of the account was loaded, a number is invalid, or the limits cannot be
    /// enforced.
    pub fn reconfigure(
        &self,
        provider: impl Into<Provider>,
        key: &Credential,
        settings: &RateLimitSettings,
    ) -> Result<(), LoadError> {
        let limits = settings.constraint().map_err(invalid_setting)?;
        let name = (provider.into(), key.id().into());
        let mut cache = self.lock();
        let Some(entry) = cache.accounts.get_mut(&name) else {
            return Err(LoadError::NotLoaded(name.0));
        };
        let configured = AccountLimits::clone(&entry.account.limits());
        let configured = configured.for_all(limits.clone());
        let failed = |source| LoadError::Account { provider: name.0.clone(), source };
        entry.account.configure(configured).map_err(failed)?;
        (entry.limits, entry.warned) = (limits, false);
        Ok(())
    }

    /// Removes all accounts: the next model loaded for each starts with full buckets and sets the
    /// limits. Models loaded before keep their accounts. Buckets in a shared store are kept, since
    /// other processes use them.
    pub fn clear_buckets(&self) {
        let mut cache = self.lock();
        cache.accounts.clear();
        cache.pools.clear();
        cache.engine = self.inner.fresh_engine();
    }

    /// Removes everything that models share: accounts, retry budgets and circuit breakers.
    pub fn clear_cache(&self) {
        *self.lock() = Cache::new(self.inner.fresh_engine());
    }

    pub(super) fn profile(&self, provider: &Provider) -> Profile {
        self.inner.profiles.get(provider).cloned().unwrap_or_default()
    }

    /// Returns the backend registered for a provider.
    pub(super) fn backend(&self, provider: &Provider) -> Option<Backend> {
        self.inner.backends.get(provider).cloned()
    }

    /// Creates the service that calls a target.
    pub(super) fn connect(
        &self,
        provider: &Provider,
        target: Target,
        profile: &Profile,
    ) -> Result<Backend, LoadError> {
        let connect = self.inner.connect.as_ref();
        let connect = connect.ok_or_else(|| LoadError::NoClient(provider.clone()))?;
        Ok(connect(provider, target, profile))
    }

    /// Returns the account of a provider and key, and creates it if necessary.
    pub(super) fn open_account(
        &self,
        provider: &Provider,
        profile: &Profile,
        settings: &RateLimitSettings,
    ) -> Result<Account, LoadError> {
        let limits = settings.constraint().map_err(invalid_setting)?;
        let mut cache = self.lock();
        let name = (provider.clone(), Arc::from(profile.credential.id()));
        if let Some(entry) = cache.accounts.get_mut(&name) {
            // A model that only turns limits on asks for none in particular.
            let asks_for_limits = limits.is_some() || !settings.is_switch();
            if entry.limits != limits && asks_for_limits {
                self.inner.report_conflict(provider, entry, limits.as_ref())?;
            }
            return Ok(entry.account.clone());
        }
        let dialect = profile.dialect.unwrap_or_else(|| Dialect::of(provider));
        let size = self.inner.pool_size(provider, dialect, profile, settings);
        let pool = cache.pool(provider, size);
        let builder = Account::builder(provider.clone(), &profile.credential)
            .engine(&cache.engine)
            .dialect(dialect)
            .account_limits(profile.limits.clone().for_all(limits.clone()))
            .pool(&pool)
            .observer(self.inner.observers.get().clone());
        let builder = match profile.ramp {
            Some((floor, over)) => builder.ramp_up(floor, over),
            None => builder,
        };
        // Configured limits are used exactly; learned limits always have a margin.
        let builder = if settings.is_learned() { builder } else { builder.without_margin() };
        let failed = |source| LoadError::Account { provider: provider.clone(), source };
        let account = builder.build().map_err(failed)?;
        let entry = Entry { account: account.clone(), limits, warned: false };
        cache.accounts.insert(name, entry);
        Ok(account)
    }

    pub(super) fn budgets(&self) -> Budgets {
        self.lock().budgets.clone()
    }

    pub(super) fn breakers(&self) -> Breakers {
        self.lock().breakers.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Cache> {
        self.inner.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cache {
    /// Returns the slot pool of a provider, and creates it if necessary.
    fn pool(&mut self, provider: &Provider, size: PoolSize) -> SlotPool {
        let engine = &self.engine;
        let pool = self.pools.entry(provider.clone()).or_insert_with(|| {
            log_pool(provider, size);
            SlotPool::new(engine, size)
        });
        pool.clone()
    }

    pub(super) fn new(engine: Engine) -> Self {
        Self {
            engine,
            pools: HashMap::new(),
            accounts: HashMap::new(),
            budgets: Budgets::default(),
            breakers: Breakers::default(),
        }
    }
}

impl Inner {
    fn fresh_engine(&self) -> Engine {
        self.engine.clone().unwrap_or_else(local_engine)
    }

    /// Returns the maximum number of calls in flight to a provider, across all keys.
    fn pool_size(
        &self,
        provider: &Provider,
        dialect: Dialect,
        profile: &Profile,
        settings: &RateLimitSettings,
    ) -> PoolSize {
        let given = profile.concurrency.or(settings.max_in_flight());
        if given.is_none() && settings.is_learned() {
            return default_concurrency(dialect);
        }
        let given = given.map(|given| given.to_string());
        let (limit, warning) = resolve_concurrency(provider, given.as_deref(), self.cap);
        if let Some(warning) = warning {
            tracing::warn!(%provider, "{warning}");
        }
        PoolSize::Fixed(limit.get().into())
    }

    /// Handles a request for other limits than the account has: an error if the registry is strict,
    /// else a warning once per account.
    fn report_conflict(
        &self,
        provider: &Provider,
        entry: &mut Entry,
        wanted: Option<&Constraint>,
    ) -> Result<(), LoadError> {
        let text = |limits: Option<&Constraint>| {
            limits.map_or_else(|| "learned".to_owned(), ToString::to_string)
        };
        let (present, wanted) = (text(entry.limits.as_ref()), text(wanted));
        if self.strict {
            return Err(LoadError::Conflict { provider: provider.clone(), present, wanted });
        }
        if !entry.warned {
            entry.warned = true;
            tracing::warn!(
                %provider,
                limits = present,
                ignored = wanted,
                "account already has other rate limits; use `Models::reconfigure` to change them"
            );
        }
        Ok(())
    }
}

fn invalid_setting(source: InvalidSettings) -> LoadError {
    LoadError::Setting { module: "rate_limit", source }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models").field("accounts", &self.account_count()).finish_non_exhaustive()
    }
}
