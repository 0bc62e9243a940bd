//! The configuration of a provider.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use http::uri::Authority;
use tidegate::pacer::PoolSize;
use tidegate_core::breaker::BreakerSettings;
use tidegate_llm::client::{DEFAULT_CONNECT_TIMEOUT, Roots};
use tidegate_llm::plan::{Constraint, ConstraintSource};
use tidegate_llm::proxy::Proxy;
use tidegate_llm::rate_limit::{AccountLimits, default_concurrency};
use tidegate_providers::request::{RequestError, credential_header, parse_base_url};
use tidegate_providers::{Credential, Dialect, Endpoint, Provider};

use crate::error::GatewayError;
use crate::request::endpoint_routes::EndpointRoutes;
use crate::request::model_map::ModelMap;

/// Default maximum wait.
const DEFAULT_MAX_WAIT: Duration = Duration::from_secs(120);
/// Default number of retries after the first attempt, and default delay before the first retry.
const DEFAULT_MAX_RETRIES: u32 = 8;
const DEFAULT_RETRY_BASE: Duration = Duration::from_secs(1);
/// Default number of consecutive failures that open the breaker.
const DEFAULT_BREAKER_FAILURES: u32 = 10;
/// Maximum pause of an open breaker, unless the initial pause is longer.
const MAX_OPEN_FOR: Duration = Duration::from_secs(60);
/// Maximum timeout. A longer one could overflow an instant.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);

/// Timeouts of the phases of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: DEFAULT_CONNECT_TIMEOUT,
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(60),
        }
    }
}

/// Where requests are sent, and their timeouts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Destination {
    pub(crate) base_url: Uri,
    pub(crate) timeouts: Timeouts,
    /// Root certificates; `None` for those of the system.
    pub(crate) roots: Option<Roots>,
    pub(crate) proxy: Option<Proxy>,
}

impl Destination {
    /// Host and port, as in the `host` header.
    pub(crate) fn authority(&self) -> &str {
        self.base_url.authority().map_or("", Authority::as_str)
    }
}

/// One provider: its base URL, its limits, and how failures are handled.
///
/// ```
/// use std::time::Duration;
/// use tidegate_gateway::Upstream;
/// use tidegate_providers::{Credential, Dialect};
/// let upstream = Upstream::new("openai", Dialect::OpenAi, "https://api.openai.com")?
///     .credential(Credential::new("sk-secret"))?
///     .max_wait(Duration::from_secs(20));
/// assert!(!format!("{upstream:?}").contains("secret"));
/// # Ok::<(), tidegate_gateway::GatewayError>(())
/// ```
#[derive(Clone, PartialEq)]
#[must_use = "an upstream does nothing until it is passed to a gateway"]
pub struct Upstream {
    pub(crate) name: Provider,
    pub(crate) dialect: Dialect,
    pub(crate) destination: Destination,
    pub(crate) credential: Option<Credential>,
    pub(crate) limits: AccountLimits,
    pub(crate) concurrency: PoolSize,
    pub(crate) endpoint_routes: EndpointRoutes,
    /// Initial requests per minute, and the time until the limit is reached.
    pub(crate) ramp: Option<(u64, Duration)>,
    pub(crate) max_retries: u32,
    /// Delay before the first retry.
    pub(crate) retry_base: Duration,
    /// `None` for the dialect's defaults.
    pub(crate) retry_statuses: Option<Vec<u16>>,
    pub(crate) breaker: Option<BreakerSettings>,
    pub(crate) max_wait: Duration,
    pub(crate) ask_for_usage: bool,
    pub(crate) fallback: Vec<Provider>,
    pub(crate) fallback_models: HashMap<Provider, ModelMap>,
    pub(crate) models: Vec<Arc<str>>,
}

impl Upstream {
    /// Creates a provider with default settings. `name` is the first segment of the paths that lead
    /// to it.
    ///
    /// # Errors
    /// If the name is not a valid path segment, or the base URL is invalid.
    pub fn new(name: &str, dialect: Dialect, base_url: &str) -> Result<Self, GatewayError> {
        let provider = Provider::new(name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let text = provider.as_str();
        if text.is_empty() || !text.bytes().all(is_plain) || text.starts_with('.') {
            return Err(GatewayError::InvalidName(name.to_owned()));
        }
        if dialect == Dialect::Mock {
            return Err(target_error(&provider, RequestError::Mock));
        }
        let base_url =
            parse_base_url(base_url).map_err(|source| target_error(&provider, source))?;
        let timeouts = Timeouts::default();
        let destination = Destination { base_url, timeouts, roots: None, proxy: None };
        Ok(Self {
            name: provider,
            dialect,
            destination,
            credential: None,
            limits: AccountLimits::default(),
            concurrency: default_concurrency(dialect),
            endpoint_routes: EndpointRoutes::default(),
            ramp: None,
            max_retries: DEFAULT_MAX_RETRIES,
            retry_base: DEFAULT_RETRY_BASE,
            retry_statuses: None,
            breaker: Some(breaker_settings(DEFAULT_BREAKER_FAILURES, Duration::from_secs(5))),
            max_wait: DEFAULT_MAX_WAIT,
            ask_for_usage: false,
            fallback: Vec::new(),
            fallback_models: HashMap::new(),
            models: Vec::new(),
        })
    }

    /// Sets the key for all calls, in place of the caller's. Default: the caller's own key.
    ///
    /// # Errors
    /// If the key contains characters that are not allowed in a header.
    pub fn credential(mut self, credential: Credential) -> Result<Self, GatewayError> {
        let field = credential_header(self.dialect, credential.reveal());
        let field = field.map_err(|source| target_error(&self.name, source))?;
        self.credential = field.map(|_| credential);
        Ok(self)
    }

    /// Sets the limits of each account, over all models. Default: what the provider reports.
    pub fn limits(mut self, constraint: Constraint) -> Self {
        self.limits = self.limits.all(constraint, ConstraintSource::Override);
        self
    }

    /// Sets the limits over all callers' keys together, per minute. Without a value the limit is
    /// [`ALL_KEYS_MULTIPLE`](tidegate_llm::rate_limit::ALL_KEYS_MULTIPLE) times that of each
    /// account, if there is one. Has no effect if a key is configured, or if the provider does not
    /// check keys.
    pub fn all_keys_limits(
        mut self,
        requests_per_minute: Option<NonZeroU32>,
        tokens_per_minute: Option<NonZeroU32>,
    ) -> Self {
        self.limits = self.limits.all_keys(requests_per_minute, tokens_per_minute);
        self
    }

    /// Sets the limits of one endpoint of each account, within those of the account.
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.endpoint_routes.declare(endpoint.clone(), []);
        self.limits = self.limits.endpoint(endpoint, constraint);
        self
    }

    /// Sets the limits of the models of each account that match a pattern, within those of the
    /// account.
    pub fn model(mut self, pattern: &str, constraint: Constraint) -> Self {
        self.limits = self.limits.model(pattern, constraint);
        self
    }

    /// Sets limits of a tier table for the models of each account that match a pattern. Limits that
    /// the provider reports replace them.
    pub fn tier_model(mut self, pattern: &str, constraint: Constraint) -> Self {
        self.limits = self.limits.tier_model(pattern, constraint);
        self
    }

    /// Sets the limit on calls in flight, over all accounts, models and endpoints. Default: adapted
    /// to what the provider handles; 1 for Ollama.
    pub fn concurrency(mut self, size: PoolSize) -> Self {
        self.concurrency = size;
        self
    }

    /// Assigns paths, as [`parse_route`](tidegate_providers::request::parse_route) returns them, to
    /// an endpoint, even paths that are not known to use a model. If several match, the most
    /// specific one applies. Callers may name the endpoint themselves in `x-tidegate-endpoint`.
    /// Default: the endpoint that the path is known for.
    pub fn endpoint_paths(
        mut self,
        endpoint: Endpoint,
        paths: impl IntoIterator<Item = String>,
    ) -> Self {
        self.endpoint_routes.declare(endpoint, paths);
        self
    }

    /// Starts each model, and restarts it after a pause, at `floor` requests per minute, and raises
    /// the rate to the limit within `over`. Default: the full limit at once.
    pub fn ramp_up(mut self, floor: u64, over: Duration) -> Self {
        self.ramp = Some((floor, over));
        self
    }

    /// Sets the number of retries after the first attempt. Default: 8.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// Sets the delay before the first retry, which doubles with each further one. Default: 1 s.
    pub fn retry_base(mut self, delay: Duration) -> Self {
        self.retry_base = delay;
        self
    }

    /// Sets the statuses that are retried; others are forwarded after one attempt. An exhausted
    /// quota is never retried. Default: those of the dialect
    /// ([`retryable_statuses`](tidegate_providers::classify::retryable_statuses)).
    pub fn retry_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.retry_statuses = Some(statuses.into_iter().collect());
        self
    }

    /// Sets the circuit breaker. After `failures` consecutive failures caused by the provider,
    /// calls go to fallbacks or are refused, for `open_for` at first and longer after each failed
    /// trial. Default: 10 failures, 5 s.
    pub fn breaker(mut self, failures: NonZeroU32, open_for: Duration) -> Self {
        self.breaker = Some(breaker_settings(failures.get(), open_for.min(MAX_TIMEOUT)));
        self
    }

    /// Disables the circuit breaker.
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// Sets the maximum wait before each attempt, unless the call sets its own. A call that would
    /// wait longer is refused at once. Default: 120 s.
    pub fn max_wait(mut self, span: Duration) -> Self {
        self.max_wait = span;
        self
    }

    /// Sets the connect timeout: name resolution, TCP and TLS together. Default: 10 s.
    pub fn connect_timeout(mut self, span: Duration) -> Self {
        self.destination.timeouts.connect = span.min(MAX_TIMEOUT);
        self
    }

    /// Sets the first-byte timeout: from the last part of the request to the response head and, for
    /// a stream, its first event. It includes connecting. If the body is streamed from the caller,
    /// it is at least 61 s, so that the provider is not blamed for a pausing caller. Default: 120
    /// s.
    pub fn first_byte_timeout(mut self, span: Duration) -> Self {
        self.destination.timeouts.first_byte = span.min(MAX_TIMEOUT);
        self
    }

    /// Sets the idle timeout: how long the provider may send nothing in the middle of a response.
    /// Default: 60 s.
    pub fn idle_timeout(mut self, span: Duration) -> Self {
        self.destination.timeouts.idle = span.min(MAX_TIMEOUT);
        self
    }

    /// Sets whether usage is requested from streams of the OpenAI API whose caller does not request
    /// it. The additional data is removed again, so the caller sees no difference. Mistral always
    /// reports usage and is not asked. Default: `false`; output tokens are then counted by the
    /// gateway.
    pub fn ask_for_usage(mut self, ask: bool) -> Self {
        self.ask_for_usage = ask;
        self
    }

    /// Sets the fallbacks, in order. Providers with another API or without a configured key are
    /// skipped with a warning.
    pub fn fallback<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.fallback = names.into_iter().map(Provider::new).collect();
        self
    }

    /// Sets the model names at a fallback, as pairs of requested and actual name; `*` matches every
    /// model that is not listed. Other models keep their name.
    pub fn fallback_models<'n>(
        mut self,
        target: &str,
        names: impl IntoIterator<Item = (&'n str, &'n str)>,
    ) -> Self {
        let names = names.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned()));
        self.fallback_models.insert(Provider::new(target), names.collect());
        self
    }

    /// Sets the root certificates, in DER, for verifying the provider's certificate. Default: those
    /// of the system.
    ///
    /// # Errors
    /// If the list is empty or a certificate is invalid.
    pub fn root_certificates(
        mut self,
        certificates: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<Self, GatewayError> {
        let name = || self.name.as_str().to_owned();
        let roots = Roots::from_der(certificates);
        let roots =
            roots.map_err(|source| GatewayError::RootCertificates { name: name(), source })?;
        self.destination.roots = Some(roots);
        Ok(self)
    }

    /// Sets the proxy for connections to the provider. Default: none.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.destination.proxy = Some(proxy);
        self
    }

    /// Sets the models that have their own label in metrics; all others are `other`.
    pub fn models<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.models = names.into_iter().map(Arc::from).collect();
        self
    }

    /// Returns the provider's name.
    #[must_use]
    pub const fn name(&self) -> &Provider {
        &self.name
    }
}

/// Returns breaker settings whose pause keeps growing if the breaker reopens soon after it closed.
fn breaker_settings(failures: u32, open_for: Duration) -> BreakerSettings {
    BreakerSettings::after_failures(failures)
        .pause(open_for, open_for.max(MAX_OPEN_FOR))
        .keep_backoff_within(open_for * 2)
}

fn target_error(name: &Provider, source: RequestError) -> GatewayError {
    GatewayError::InvalidTarget { name: name.as_str().to_owned(), source }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.name)
            .field("dialect", &self.dialect)
            .field("destination", &self.destination)
            .field("credential", &self.credential)
            .field("limits", &self.limits)
            .field("concurrency", &self.concurrency)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}
