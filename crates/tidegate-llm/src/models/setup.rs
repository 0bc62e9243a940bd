//! Builder of the registry.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http_body_util::Full;
use tidegate_providers::Provider;
use tidegate_providers::request::Target;
use tower_service::Service;

use super::profile::Profile;
use super::registry::{Backend, Cache, Inner, Models};
use tidegate::Engine;

use crate::adapter::Adapter;
use crate::call::{BoxError, Call, CallError, CallResponse};
use crate::rate_limit::local_engine;
use crate::settings::{
    DEFAULT_CONCURRENCY_CAP, FallbackSettings, RateLimitSettings, RetrySettings,
};
use crate::telemetry::{Observer, Observers};

/// Builder of [`Models`].
#[must_use = "call `build` to create the registry"]
pub struct ModelsBuilder {
    inner: Inner,
}

impl ModelsBuilder {
    pub(super) fn new() -> Self {
        Self {
            inner: Inner {
                connect: None,
                backends: HashMap::new(),
                profiles: HashMap::new(),
                rate_limit: false.into(),
                retry: RetrySettings::default(),
                fallback: FallbackSettings::default(),
                observers: Observers::default(),
                cap: DEFAULT_CONCURRENCY_CAP,
                strict: false,
                engine: None,
                cache: Mutex::new(Cache::new(local_engine())),
            },
        }
    }

    /// Sets the HTTP service used by all adapters, such as a `Client` (feature `client`).
    pub fn http<H, B>(mut self, http: H) -> Self
    where
        H: Service<http::Request<Full<Bytes>>, Response = http::Response<B>>,
        H: Clone + Send + Sync + 'static,
        H::Error: Into<BoxError>,
        H::Future: Send + 'static,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let connect = move |provider: &Provider, target: Target, profile: &Profile| {
            let mut adapter =
                Adapter::new(http.clone(), provider.clone(), target).rules(profile.rules.clone());
            adapter = adapter.request_extensions(profile.extensions.clone());
            if let Some(span) = profile.timeout {
                adapter = adapter.timeout(span);
            }
            Backend::new(provider.clone(), adapter)
        };
        self.inner.connect = Some(Box::new(connect));
        self
    }

    /// Sets a service that answers calls to a provider, in place of an adapter.
    pub fn backend<S>(mut self, provider: impl Into<Provider>, service: S) -> Self
    where
        S: Service<Call, Response = CallResponse, Error = CallError>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send,
    {
        let provider = provider.into();
        self.inner.backends.insert(provider.clone(), Backend::new(provider, service));
        self
    }

    /// Sets the profile of a provider.
    pub fn provider(mut self, name: impl Into<Provider>, profile: Profile) -> Self {
        self.inner.profiles.insert(name.into(), profile);
        self
    }

    /// Sets the settings of the rate-limit module: the section `[modules.rate_limit]`. Without any
    /// limit in them, as in an empty section, they are 60 requests per minute. Default: off; models
    /// that turn it on learn their limits from what the provider reports.
    ///
    /// ```
    /// use tidegate_llm::mock::Mock;
    /// use tidegate_llm::models::Models;
    /// use tidegate_llm::settings::RateLimitSettings;
    ///
    /// let limits = |models: Models| {
    ///     let model = models.load_model("mock", "any").rate_limit(true).build()?;
    ///     Ok::<_, tidegate_llm::models::LoadError>(model.account().unwrap().limits())
    /// };
    /// let builder = || Models::builder().backend("mock", Mock::new("mock"));
    /// assert!(limits(builder().build())?.is_empty());
    /// let section = limits(builder().rate_limit(RateLimitSettings::new()).build())?;
    /// assert_eq!(section.account_limit().unwrap().0.to_string(), "requests_per_minute=60 burst=60");
    /// # Ok::<(), tidegate_llm::models::LoadError>(())
    /// ```
    pub fn rate_limit(mut self, settings: RateLimitSettings) -> Self {
        self.inner.rate_limit = settings.section();
        self
    }

    /// Sets the settings of the retry module. Default: off; for models that turn it on, the
    /// defaults of each provider.
    pub fn retry(mut self, settings: RetrySettings) -> Self {
        self.inner.retry = settings;
        self
    }

    /// Turns fallback on or off for models that are not loaded with a setting of their own.
    /// Default: off.
    pub fn fallback(mut self, enabled: bool) -> Self {
        self.inner.fallback.enabled = Some(enabled);
        self
    }

    /// Sets the providers to fall back to, in this order, at most ten: `anthropic`, or one of its
    /// models as `anthropic/claude-sonnet`. Used by models that turn fallback on and name no others.
    pub fn fallback_to(mut self, chain: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.inner.fallback.chain = Some(chain.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the engine whose store keeps the limits. Default: an engine in this process.
    pub fn engine(mut self, engine: &Engine) -> Self {
        self.inner.engine = Some(engine.clone());
        self
    }

    /// Adds an observer. Default: [`tracing_observer`](crate::telemetry::tracing_observer), if none
    /// is added.
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.inner.observers.add(observer);
        self
    }

    /// Sets the cap on calls in flight per provider. Default: 32.
    pub fn max_concurrent_threads(mut self, cap: NonZeroU32) -> Self {
        self.inner.cap = cap;
        self
    }

    /// Makes loading a model fail, instead of logging a warning, if the model is configured with
    /// different limits from those of its account.
    pub fn strict(mut self) -> Self {
        self.inner.strict = true;
        self
    }

    /// Builds the registry.
    #[must_use]
    pub fn build(self) -> Models {
        Models::with(self.inner)
    }
}

impl fmt::Debug for ModelsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelsBuilder")
            .field("providers", &self.inner.profiles.keys())
            .finish_non_exhaustive()
    }
}
