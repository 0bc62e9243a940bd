//! Loading a model: which modules are around it, and with which settings.

use tidegate_providers::request::Target;
use tidegate_providers::{Credential, Dialect, Provider};
use tower_layer::Layer as _;

use super::error::LoadError;
use super::model::{About, Model, ModuleName};
use super::profile::Profile;
use super::registry::{Backend, Models};
use super::{Module, resolve};
use crate::breaker::BreakerLayer;
use crate::call::Scope;
use crate::fallback::FallbackLayer;
use crate::plan::{DEFAULT_MODEL, Invalid};
use crate::rate_limit::{Account, RateLimitLayer};
use crate::retry::{Policy, RetryLayer, Schedule};
use crate::settings::{
    FallbackOverrides, FallbackTarget, RateLimitOverrides, RetryOverrides, RetrySettings,
};

/// A model in the making. Each module is off, on, overridden, or as the settings of the registry
/// say, which is the default.
#[derive(Clone, Debug)]
#[must_use = "a model is made by `build`"]
pub struct ModelBuilder {
    models: Models,
    provider: Provider,
    model: Option<String>,
    profile: Profile,
    retry: Module<RetryOverrides>,
    fallback: Module<FallbackOverrides>,
    rate_limit: Module<RateLimitOverrides>,
}

/// An adapter, perhaps with limits around it.
struct Limited {
    backend: Backend,
    model: String,
    account: Option<Account>,
}

impl ModelBuilder {
    pub(super) fn new(models: Models, provider: Provider, model: Option<String>) -> Self {
        let profile = models.profile(&provider);
        Self {
            models,
            provider,
            model,
            profile,
            retry: Module::Inherit,
            fallback: Module::Inherit,
            rate_limit: Module::Inherit,
        }
    }

    /// With this key, instead of the one that the registry has for the provider.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.profile = self.profile.credential(credential);
        self
    }

    /// At this address, instead of the one that the registry has for the provider.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.profile = self.profile.base_url(url);
        self
    }

    /// Whether failed calls are tried again.
    pub fn retry(mut self, module: impl Into<Module<RetryOverrides>>) -> Self {
        self.retry = module.into();
        self
    }

    /// Whether other providers are turned to.
    pub fn fallback(mut self, module: impl Into<Module<FallbackOverrides>>) -> Self {
        self.fallback = module.into();
        self
    }

    /// Whether calls keep to limits.
    pub fn rate_limit(mut self, module: impl Into<Module<RateLimitOverrides>>) -> Self {
        self.rate_limit = module.into();
        self
    }

    /// The model, with its modules around it: `Retry(Fallback(RateLimit(adapter)))`. A provider
    /// that keeps failing is left alone for a while wherever there is a retry or a fallback.
    ///
    /// # Errors
    /// When the provider is not known, or a setting makes no sense.
    pub fn build(self) -> Result<Model, LoadError> {
        let retry = resolve(&self.retry, self.registry_retry()?.enabled);
        let fallback = resolve(&self.fallback, self.models.inner.fallback.enabled);
        let guarded = retry.is_some() || fallback.is_some();
        let Limited { mut backend, model, account } = self.limited()?;
        let mut modules: Vec<_> = account.iter().map(|_| ModuleName::RateLimit).collect();
        if guarded {
            backend = self.guarded(backend, &model);
        }
        if let Some(overrides) = fallback {
            backend = self.falling_back(backend, &overrides)?;
            modules.insert(0, ModuleName::Fallback);
        }
        if retry.is_some() {
            backend = self.retrying(backend, &self.own_retry()?);
            modules.insert(0, ModuleName::Retry);
        }
        let about = About { provider: self.provider, model, modules, account };
        Ok(Model::new(backend, about))
    }

    /// The adapter, with limits around it if they are wished for.
    fn limited(&self) -> Result<Limited, LoadError> {
        let model = self.model_name()?;
        let adapter = self.adapter(&model)?;
        let settings = self.models.inner.rate_limit;
        let Some(overrides) = resolve(&self.rate_limit, settings.enabled) else {
            return Ok(Limited { backend: adapter, model, account: None });
        };
        let settings = settings.merged(&overrides).map_err(setting("rate_limit"))?;
        let account = self.models.open(&self.provider, &self.profile, settings)?;
        let limited = RateLimitLayer::new(account.clone(), &model).layer(adapter);
        let backend = Backend::new(self.provider.clone(), limited);
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
        profile.timeout.get_or_insert(self.own_retry()?.attempt_timeout);
        self.models.connect(provider, target, &profile)
    }

    fn registry_retry(&self) -> Result<RetrySettings, LoadError> {
        let settings = RetrySettings::of(&self.provider);
        settings.merged(&self.models.inner.retry).map_err(setting("retry"))
    }

    /// What the registry says, with what is overridden for this model.
    fn own_retry(&self) -> Result<RetrySettings, LoadError> {
        let settings = self.registry_retry()?;
        match &self.retry {
            Module::With(overrides) => settings.merged(overrides).map_err(setting("retry")),
            Module::Inherit | Module::Off | Module::On => Ok(settings),
        }
    }

    fn guarded(&self, backend: Backend, model: &str) -> Backend {
        let scope = Scope::new(self.provider.clone(), &self.profile.credential).model(model);
        let circuit = self.models.breakers().of(&scope);
        Backend::new(self.provider.clone(), BreakerLayer::new(circuit).layer(backend))
    }

    fn falling_back(
        &self,
        primary: Backend,
        overrides: &FallbackOverrides,
    ) -> Result<Backend, LoadError> {
        let settings = self.models.inner.fallback.clone();
        let settings = settings.merged(overrides).map_err(setting("fallback"))?;
        let targets = settings.chain.iter().map(|target| self.target(target));
        let targets = targets.collect::<Result<Vec<_>, _>>()?;
        let layer = FallbackLayer::new(self.provider.clone(), targets)?;
        Ok(Backend::new(self.provider.clone(), layer.layer(primary)))
    }

    /// A target has its own limits, and neither retries nor fallbacks of its own.
    fn target(&self, target: &FallbackTarget) -> Result<Backend, LoadError> {
        let mut loader = self.models.load_model(target.provider.clone(), target.model.as_deref());
        if target.provider == self.provider {
            // Another model of the same provider: the same key, and so the same limits.
            loader.profile = self.profile.clone();
            loader.rate_limit = self.rate_limit.clone();
        } else {
            // What was overridden is meant for this provider; it says nothing about others.
            loader.rate_limit = match self.rate_limit {
                Module::Off => Module::Off,
                Module::On | Module::With(_) => Module::On,
                Module::Inherit => Module::Inherit,
            };
        }
        let Limited { backend, model, .. } = loader.limited()?;
        Ok(loader.guarded(backend, &model))
    }

    fn retrying(&self, backend: Backend, settings: &RetrySettings) -> Backend {
        let schedule = Schedule::default()
            .max_retries(settings.max_retries)
            .base(settings.base)
            .cap(settings.cap);
        let policy = Policy::new(self.provider.clone())
            .schedule(schedule)
            .budget(&self.models.budgets().of(&self.provider))
            .observer(self.models.inner.observer.clone());
        Backend::new(self.provider.clone(), RetryLayer::new(policy).layer(backend))
    }
}

fn setting(module: &'static str) -> impl Fn(Invalid) -> LoadError {
    move |source| LoadError::Setting { module, source }
}

impl From<RetryOverrides> for Module<RetryOverrides> {
    fn from(overrides: RetryOverrides) -> Self {
        Self::With(overrides)
    }
}

impl From<RateLimitOverrides> for Module<RateLimitOverrides> {
    fn from(overrides: RateLimitOverrides) -> Self {
        Self::With(overrides)
    }
}

impl From<FallbackOverrides> for Module<FallbackOverrides> {
    fn from(overrides: FallbackOverrides) -> Self {
        Self::With(overrides)
    }
}
