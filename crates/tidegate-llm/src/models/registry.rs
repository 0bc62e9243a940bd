//! The registry: providers, settings, and the accounts that models share.

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
use crate::call::{Answer, Call};
use crate::fallback;
use crate::plan::{Constraint, Invalid};
use crate::rate_limit::{Account, AccountLimits, default_concurrency, log_pool, own_engine};
use crate::retry::Budgets;
use crate::settings::{FallbackSettings, RateLimitSettings, RetrySettings, resolve_concurrency};
use crate::telemetry::Observer;

/// Anything that answers calls.
pub(super) type Backend = fallback::Target<Call, Answer>;

/// Makes what answers calls to a target.
pub(super) type Connect = dyn Fn(&Provider, Target, &Profile) -> Backend + Send + Sync;

/// Providers, the settings of modules, and what models share. Cheap to clone; clones are the same
/// registry.
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

pub(super) struct Inner {
    pub(super) connect: Option<Box<Connect>>,
    pub(super) backends: HashMap<Provider, Backend>,
    pub(super) profiles: HashMap<Provider, Profile>,
    pub(super) rate_limit: RateLimitSettings,
    pub(super) retry: RetrySettings,
    pub(super) fallback: FallbackSettings,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) cap: NonZeroU32,
    pub(super) strict: bool,
    /// `None`: an engine of its own, made anew when the cache is cleared.
    pub(super) engine: Option<Engine>,
    pub(super) cache: Mutex<Cache>,
}

/// What models share, until it is cleared.
pub(super) struct Cache {
    engine: Engine,
    accounts: HashMap<(Provider, Arc<str>), Entry>,
    /// The calls under way of each provider, whatever their key.
    pools: HashMap<Provider, SlotPool>,
    budgets: Budgets,
    breakers: Breakers,
}

struct Entry {
    account: Account,
    /// The limits that were set; `None` if all are learned.
    limits: Option<Constraint>,
    /// Whether somebody was told that other limits were asked for.
    warned: bool,
}

impl Models {
    pub(super) fn with(inner: Inner) -> Self {
        let models = Self { inner: Arc::new(inner) };
        models.clear_cache();
        models
    }

    /// A registry in the making. Without [`http`](ModelsBuilder::http) it has only the providers
    /// that are given a backend.
    pub fn builder() -> ModelsBuilder {
        ModelsBuilder::new()
    }

    /// The registry of this process, over a client of its own. Its providers have no keys: a model
    /// is given one when it is loaded.
    #[cfg(feature = "client")]
    pub fn global() -> &'static Self {
        static GLOBAL: std::sync::OnceLock<Models> = std::sync::OnceLock::new();
        GLOBAL.get_or_init(|| match crate::client::Client::new() {
            Ok(client) => Self::builder().http(client).build(),
            Err(error) => {
                tracing::error!(%error, "no HTTP client: models cannot be loaded");
                Self::builder().build()
            }
        })
    }

    /// A model of a provider, in the making; `None` for the provider's default.
    pub fn load_model<'m>(
        &self,
        provider: impl Into<Provider>,
        model: impl Into<Option<&'m str>>,
    ) -> ModelBuilder {
        let model = model.into().map(str::to_owned);
        ModelBuilder::new(self.clone(), provider.into(), model)
    }

    /// The account of a provider and a credential, if a model of it was loaded.
    #[must_use]
    pub fn account(&self, provider: impl Into<Provider>, key: &Credential) -> Option<Account> {
        let name = (provider.into(), key.id().into());
        self.lock().accounts.get(&name).map(|entry| entry.account.clone())
    }

    /// How many accounts there are.
    #[must_use]
    pub fn accounts(&self) -> usize {
        self.lock().accounts.len()
    }

    /// Sets other limits for an account that models share. Calls under way go on.
    ///
    /// # Errors
    /// When no model of the account was loaded, a number breaks its rule, or the limits cannot be kept.
    pub fn reconfigure(
        &self,
        provider: impl Into<Provider>,
        key: &Credential,
        settings: &RateLimitSettings,
    ) -> Result<(), LoadError> {
        let limits = settings.constraint().map_err(refused)?;
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

    /// Forgets all accounts: the next model of each starts with full buckets, and sets its limits.
    /// Models that were loaded before keep what they have. On a shared store, buckets stay as they
    /// are, since other processes use them.
    pub fn clear_buckets(&self) {
        let mut cache = self.lock();
        cache.accounts.clear();
        cache.pools.clear();
        cache.engine = self.inner.fresh_engine();
    }

    /// Forgets everything that models share: accounts, retry budgets and breakers.
    pub fn clear_cache(&self) {
        *self.lock() = Cache::new(self.inner.fresh_engine());
    }

    pub(super) fn profile(&self, provider: &Provider) -> Profile {
        self.inner.profiles.get(provider).cloned().unwrap_or_default()
    }

    /// What answers calls of a provider by itself.
    pub(super) fn backend(&self, provider: &Provider) -> Option<Backend> {
        self.inner.backends.get(provider).cloned()
    }

    /// What answers calls to a target.
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

    /// The account of a provider: the one that there is, or a new one.
    pub(super) fn open(
        &self,
        provider: &Provider,
        profile: &Profile,
        settings: &RateLimitSettings,
    ) -> Result<Account, LoadError> {
        let limits = settings.constraint().map_err(refused)?;
        let mut cache = self.lock();
        let name = (provider.clone(), Arc::from(profile.credential.id()));
        if let Some(entry) = cache.accounts.get_mut(&name) {
            if entry.limits != limits {
                self.inner.conflict(provider, entry, limits.as_ref())?;
            }
            return Ok(entry.account.clone());
        }
        let dialect = profile.dialect.unwrap_or_else(|| Dialect::of(provider));
        let size = self.inner.pool_size(provider, dialect, profile, settings);
        let pool = cache.pool(provider, size);
        let builder = Account::builder(provider.clone(), &profile.credential)
            .engine(&cache.engine)
            .dialect(dialect)
            .configured(AccountLimits::default().for_all(limits.clone()))
            .pool(&pool)
            .observer(self.inner.observer.clone());
        // Numbers of the program are used as written; learned ones are the provider's.
        let builder = if settings.is_learned() { builder } else { builder.exact() };
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
    /// The calls under way of a provider, whatever their key: the pool that there is, or a new one.
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
        self.engine.clone().unwrap_or_else(own_engine)
    }

    /// How many calls to a provider may be under way, whatever their key.
    fn pool_size(
        &self,
        provider: &Provider,
        dialect: Dialect,
        profile: &Profile,
        settings: &RateLimitSettings,
    ) -> PoolSize {
        let given = profile.concurrency.or(settings.calls_under_way());
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

    /// The first loader's limits hold. A later one with others is told so, once for each account.
    fn conflict(
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
                "Rate limits of provider '{provider}' are {present} already; {wanted} is ignored. \
                 Use reconfigure to change them."
            );
        }
        Ok(())
    }
}

fn refused(source: Invalid) -> LoadError {
    LoadError::Setting { module: "rate_limit", source }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Models").field("accounts", &self.accounts()).finish_non_exhaustive()
    }
}
