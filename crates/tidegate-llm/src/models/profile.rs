//! Configuration of a provider.

use std::time::Duration;

use http::Extensions;
use tidegate_core::breaker::BreakerSettings;
use tidegate_providers::classify::ClassificationRules;
use tidegate_providers::{Credential, Dialect};

use crate::rate_limit::AccountLimits;
use crate::settings::{FallbackSettings, RateLimitSettings, RetrySettings};

/// Longest pause of the circuit breaker, unless the first one is longer.
const LONGEST_BREAK: Duration = Duration::from_secs(60);

/// Configuration of a provider: key, address, default model and more. Its settings of a module
/// override those of the registry one by one.
#[derive(Clone, Debug)]
#[must_use]
pub struct Profile {
    pub(super) credential: Credential,
    pub(super) base_url: Option<String>,
    pub(super) dialect: Option<Dialect>,
    pub(super) model: Option<String>,
    pub(super) concurrency: Option<i64>,
    pub(super) timeout: Option<Duration>,
    pub(super) rules: ClassificationRules,
    /// `None`: those of the registry. Settings without values would ask for the default limits.
    pub(super) rate_limit: Option<RateLimitSettings>,
    pub(super) limits: AccountLimits,
    pub(super) ramp: Option<(u64, Duration)>,
    pub(super) retry: RetrySettings,
    pub(super) fallback: FallbackSettings,
    pub(super) breaker: Option<BreakerSettings>,
    pub(super) max_wait: Option<Duration>,
    pub(super) extensions: Extensions,
}

impl Default for Profile {
    fn default() -> Self {
        Self {
            credential: Credential::none(),
            base_url: None,
            dialect: None,
            model: None,
            concurrency: None,
            timeout: None,
            rules: ClassificationRules::default(),
            rate_limit: None,
            limits: AccountLimits::default(),
            ramp: None,
            retry: RetrySettings::default(),
            fallback: FallbackSettings::default(),
            breaker: Some(BreakerSettings::default()),
            max_wait: None,
            extensions: Extensions::new(),
        }
    }
}

impl Profile {
    /// Creates a profile without a key, at the provider's default address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the key.
    pub fn credential(mut self, credential: Credential) -> Self {
        self.credential = credential;
        self
    }

    /// Sets the base URL. Default: the provider's own, if it has one.
    pub fn base_url(mut self, url: impl Into<String>) -> Self {
        self.base_url = Some(url.into());
        self
    }

    /// Sets the dialect. Default: by the provider's name; OpenAI's API for unknown names.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = Some(dialect);
        self
    }

    /// Sets the default model.
    pub fn model(mut self, name: impl Into<String>) -> Self {
        self.model = Some(name.into());
        self
    }

    /// Sets the maximum number of calls in flight, up to the cap of the registry. Default: 8 for
    /// OpenAI, 4 for Anthropic, 1 for Ollama, 100 for the mock; 1 for others, with a warning.
    pub fn max_concurrent_requests(mut self, limit: i64) -> Self {
        self.concurrency = Some(limit);
        self
    }

    /// Sets how long the provider may be silent. Default: the attempt timeout of the retry module,
    /// two minutes.
    pub fn timeout(mut self, span: Duration) -> Self {
        self.timeout = Some(span);
        self
    }

    /// Sets whether calls to this provider are rate limited, and the limits.
    pub fn rate_limit(mut self, settings: impl Into<RateLimitSettings>) -> Self {
        self.rate_limit = Some(settings.into());
        self
    }

    /// Sets limits of models, within those of [`rate_limit`](Self::rate_limit). They apply to calls
    /// that are rate limited.
    pub fn limits(mut self, limits: AccountLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Raises the request rate of a model from `floor` per minute to its limit within `over`, at
    /// first and after a pause. Default: the full rate at once.
    pub fn ramp_up(mut self, floor: u64, over: Duration) -> Self {
        self.ramp = Some((floor, over));
        self
    }

    /// Sets whether and how failed calls to this provider are retried.
    pub fn retry(mut self, settings: impl Into<RetrySettings>) -> Self {
        self.retry = settings.into();
        self
    }

    /// Turns fallback on or off for models of this provider.
    pub fn fallback(mut self, enabled: bool) -> Self {
        self.fallback.enabled = Some(enabled);
        self
    }

    /// Sets the providers to fall back to from this one, in this order, at most ten.
    pub fn fallback_to(mut self, chain: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.fallback.chain = Some(chain.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the circuit breaker of models with retry or fallback: it opens after this many
    /// consecutive failures of the provider, at first for `open_for`. Default: 5 failures, 5
    /// seconds.
    pub fn breaker(mut self, failures: u32, open_for: Duration) -> Self {
        let settings = BreakerSettings::after_failures(failures);
        self.breaker = Some(settings.pause(open_for, open_for.max(LONGEST_BREAK)));
        self
    }

    /// Turns the circuit breaker off.
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// Sets how long calls that have no [`max_wait`](crate::Call::max_wait) of their own may wait,
    /// for permits and between attempts together. Default: unlimited.
    pub fn max_wait(mut self, span: Duration) -> Self {
        self.max_wait = Some(span);
        self
    }

    /// Sets the extensions of every HTTP request, by which a client (feature `client`) takes a
    /// proxy, root certificates and a connect timeout. Default: none.
    pub fn request_extensions(mut self, extensions: Extensions) -> Self {
        self.extensions = extensions;
        self
    }

    /// Sets rules that take precedence over the provider's when a failure is classified.
    pub fn rules(mut self, rules: ClassificationRules) -> Self {
        self.rules = rules;
        self
    }
}
