//! Loads a model with its modules and their settings.

use tidegate_providers::request::Target;
use tidegate_providers::{Credential, Dialect, Provider};
use tower_layer::Layer as _;

use super::error::LoadError;
use super::model::{Model, ModelInfo};
use super::profile::Profile;
use super::registry::{Backend, Models};
use crate::breaker::{BreakerLayer, CircuitCheckLayer};
use crate::call::LimitScope;
use crate::fallback::FallbackLayer;
use crate::plan::{DEFAULT_MODEL, InvalidSettings};
use crate::rate_limit::{Account, RateLimitLayer};
use crate::retry::RetryLayer;
use crate::settings::{ChainLink, FallbackSettings, RateLimitSettings, RetryParams, RetrySettings};

/// Builder of a [`Model`]. Each module is turned on or off, or given settings of its own; by
/// default it follows the registry.
#[derive(Clone, Debug)]
#[must_use = "call `build` to create the model"]
pub struct ModelBuilder {
    models: Models,
    provider: Provider,
    model: Option<String>,
    profile: Profile,
    retry: Option<RetrySettings>,
    fallback: Option<FallbackSettings>,
    rate_limit: Option<RateLimitSettings>,
}

/// An adapter, with a circuit breaker and rate limits around it if they are on.
struct Limited {
    backend: Backend,
    model: String,
    account: Option<Account>,
}

impl ModelBuilder {
    pub(super) fn new(models: Models, provider: Provider, model: Option<String>) -> Self {
        let profile = models.profile(&provider);
        Self { models, provider, model, profile, retry: None, fallback: None, rate_limit: None }
    }

    /// Uses this key instead of the one the registry has for the provider.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.profile = self.profile.credential(credential);
        self
    }

    /// Uses this address instead of the one the registry has for the provider.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.profile = self.profile.base_url(url);
        self
    }

    /// Sets whether and how failed calls are retried.
    pub fn retry(mut self, settings: impl Into<RetrySettings>) -> Self {
        self.retry = Some(settings.into());
        self
    }

    /// Turns fallback on or off. The providers are those of [`fallback_to`](Self::fallback_to), or
    /// else of the registry.
    pub fn fallback(mut self, enabled: bool) -> Self {
        self.fallback.get_or_insert_default().enabled = Some(enabled);
        self
    }

    /// Sets the providers to fall back to, in this order, at most ten: `anthropic`, or one of its
    /// models as `anthropic/claude-sonnet`. Turns fallback on, unless
    /// [`fallback`](Self::fallback) turns it off.
    ///
    /// ```
    /// use tidegate_llm::mock::Mock;
    /// use tidegate_llm::models::Models;
    ///
    /// let models = Models::builder()
    ///     .backend("mock", Mock::new("mock"))
    ///     .backend("other", Mock::new("other"))
    ///     .build();
    /// let model = models.load_model("mock", "any").fallback_to(["other/small"]).build()?;
    /// assert_eq!(model.to_string(), "Fallback(mock/any)");
    /// # Ok::<(), tidegate_llm::models::LoadError>(())
    /// ```
    pub fn fallback_to(mut self, chain: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let chain = chain.into_iter().map(Into::into).collect();
        self.fallback.get_or_insert_default().chain = Some(chain);
        self
    }

    /// Sets whether calls are rate limited, and the limits. With `true` they are those of the
    /// registry; if it has none, they are learned from what the provider reports, and nothing limits
    /// until then.
    pub fn rate_limit(mut self, settings: impl Into<RateLimitSettings>) -> Self {
        self.rate_limit = Some(settings.into());
        self
    }

    /// Builds the model with its modules around it: `Retry(Fallback(RateLimit(adapter)))`. With
    /// retry or fallback, a circuit breaker stops calls to a provider that keeps failing.
    ///
    /// # Errors
    /// When the provider has no address, model or client, or a setting is invalid.
    pub fn build(self) -> Result<Model, LoadError> {
        let retry = self.retry_settings();
        let fallback = self.fallback_settings();
        let has_breaker = retry.is_some() || fallback.is_some();
        let Limited { mut backend, model, account } = self.rate_limited(has_breaker)?;
        let mut modules: Vec<_> = account.iter().map(|_| "RateLimit").collect();
        if let Some(settings) = fallback {
            backend = self.with_fallback(backend, &settings)?;
            modules.insert(0, "Fallback");
        }
        if retry.is_some() {
            backend = self.with_retry(backend, &self.retry_params()?);
            modules.insert(0, "Retry");
        }
        let max_wait = self.profile.max_wait;
        let info = ModelInfo { provider: self.provider, model, modules, account, max_wait };
        Ok(Model::new(backend, info))
    }

    /// Returns the adapter, with a circuit breaker and rate limits around it if they are on.
    fn rate_limited(&self, has_breaker: bool) -> Result<Limited, LoadError> {
        let model = self.model_name()?;
        let provider = || self.provider.clone();
        let mut backend = self.adapter(&model)?;
        let circuit = self.profile.breaker.filter(|_| has_breaker).map(|settings| {
            let scope = LimitScope::new(provider(), &self.profile.credential).model(&model);
            self.models.breakers().get(&scope, settings)
        });
        if let Some(circuit) = &circuit {
            backend = Backend::new(provider(), BreakerLayer::new(circuit.clone()).layer(backend));
        }
        let Some(settings) = self.rate_limit_settings() else {
            return Ok(Limited { backend, model, account: None });
        };
        let account = self.models.open_account(&self.provider, &self.profile, &settings)?;
        let limited = RateLimitLayer::new(account.clone(), &model).layer(backend);
        backend = match circuit {
            Some(circuit) => {
                Backend::new(provider(), CircuitCheckLayer::new(circuit).layer(limited))
            }
            None => Backend::new(provider(), limited),
        };
        Ok(Limited { backend, model, account: Some(account) })
    }

    fn model_name(&self) -> Result<String, LoadError> {
        let named = self.model.clone().or_else(|| self.profile.model.clone());
        let default = || (self.dialect() == Dialect::Gemini).then(|| DEFAULT_MODEL.to_owned());
        named.or_else(default).ok_or_else(|| LoadError::NoModel(self.provider.clone()))
    }

    fn dialect(&self) -> Dialect {
        self.profile.dialect.unwrap_or_else(|| Dialect::of(&self.provider))
    }

    fn adapter(&self, model: &str) -> Result<Backend, LoadError> {
        if let Some(backend) = self.models.backend(&self.provider) {
            return Ok(backend);
        }
        let provider = &self.provider;
        let address = self.profile.base_url.as_deref().or(self.dialect().base_url());
        let address = address.ok_or_else(|| LoadError::NoAddress(provider.clone()))?;
        let target = Target::new(self.dialect(), address, model, &self.profile.credential);
        let target =
            target.map_err(|source| LoadError::Target { provider: provider.clone(), source })?;
        let mut profile = self.profile.clone();
        profile.timeout.get_or_insert(self.retry_params()?.attempt_timeout);
        self.models.connect(provider, target, &profile)
    }

    /// Returns the settings of the rate-limit module, or `None` if it is off: those of the registry,
    /// overridden by those of the provider and then of the model. Settings given for a model turn a
    /// module on unless they say otherwise; the same holds for the other modules.
    fn rate_limit_settings(&self) -> Option<RateLimitSettings> {
        let registry = self.models.inner.rate_limit.clone();
        let registry = match &self.profile.rate_limit {
            Some(given) => registry.merged(given),
            None => registry,
        };
        let (settings, given) = match &self.rate_limit {
            Some(given) => (registry.merged(given), given.is_enabled().unwrap_or(true)),
            None => (registry.clone(), registry.is_enabled().unwrap_or(false)),
        };
        given.then_some(settings)
    }

    fn retry_settings(&self) -> Option<RetrySettings> {
        let registry = self.models.inner.retry.merged(&self.profile.retry);
        let on = match &self.retry {
            Some(given) => given.is_enabled().unwrap_or(true),
            None => registry.is_enabled().unwrap_or(false),
        };
        on.then_some(registry)
    }

    fn fallback_settings(&self) -> Option<FallbackSettings> {
        let registry = self.models.inner.fallback.clone().merged(&self.profile.fallback);
        let (settings, on) = match &self.fallback {
            Some(given) => (registry.merged(given), given.enabled.unwrap_or(true)),
            None => (registry.clone(), registry.enabled.unwrap_or(false)),
        };
        on.then_some(settings)
    }

    /// Returns the checked retry settings. The attempt timeout applies even if retries are off.
    fn retry_params(&self) -> Result<RetryParams, LoadError> {
        let registry = self.models.inner.retry.merged(&self.profile.retry);
        let settings = match &self.retry {
            Some(given) => registry.merged(given),
            None => registry,
        };
        settings.params(&self.provider).map_err(invalid_setting("retry"))
    }

    fn with_fallback(
        &self,
        primary: Backend,
        settings: &FallbackSettings,
    ) -> Result<Backend, LoadError> {
        let chain = settings.chain().map_err(invalid_setting("fallback"))?;
        let targets = chain.iter().map(|target| self.target(target));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let layer = FallbackLayer::with_targets(self.provider.clone(), targets);
        let layer = layer.map_err(invalid_setting("fallback"))?;
        Ok(Backend::new(self.provider.clone(), layer.layer(primary)))
    }

    /// Builds a fallback target. It has its own limits, but no retries or fallbacks.
    fn target(&self, target: &ChainLink) -> Result<Backend, LoadError> {
        let mut loader = self.models.load_model(target.provider.clone(), target.model.as_deref());
        if target.provider == self.provider {
            // Another model of the same provider uses the same key, and so the same limits.
            loader.profile = self.profile.clone();
            loader.rate_limit = self.rate_limit.clone();
        } else {
            // The limits given for this model are those of its provider, not of the target's.
            let given = self.rate_limit.as_ref();
            loader.rate_limit = given.map(|given| given.is_enabled().unwrap_or(true).into());
        }
        Ok(loader.rate_limited(true)?.backend)
    }

    fn with_retry(&self, backend: Backend, settings: &RetryParams) -> Backend {
        let layer = RetryLayer::new(self.provider.clone())
            .max_retries(settings.max_retries)
            .base_delay(settings.base)
            .max_delay(settings.cap)
            .with_budget(&self.models.budgets().get(&self.provider))
            .observer(self.models.inner.observers.get().clone());
        Backend::new(self.provider.clone(), layer.layer(backend))
    }
}

fn invalid_setting(module: &'static str) -> impl Fn(InvalidSettings) -> LoadError {
    move |source| LoadError::Setting { module, source }
}
