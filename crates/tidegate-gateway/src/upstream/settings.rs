//! Upstreams: providers as they are configured.

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
use tidegate_llm::plan::{Constraint, Source};
use tidegate_llm::proxy::Proxy;
use tidegate_llm::rate_limit::{AccountLimits, default_concurrency};
use tidegate_providers::request::{RequestError, key_field, parse_base_url};
use tidegate_providers::{Credential, Dialect, Endpoint, Provider};

use crate::error::GatewayError;
use crate::request::endpoint_routes::EndpointRoutes;
use crate::request::model_map::ModelMap;

/// How long a call is held unless set otherwise.
const MAX_WAIT: Duration = Duration::from_secs(120);
/// Retries after the first attempt, and the delay before the first of them, unless set otherwise.
const MAX_RETRIES: u32 = 8;
const RETRY_BASE: Duration = Duration::from_secs(1);
/// Calls that fail in a row before a provider is left alone, unless set otherwise.
const BREAKER_FAILURES: u32 = 10;
/// The longest that a provider is left alone, unless it is longer at first.
const LONGEST_OPEN: Duration = Duration::from_secs(60);
/// The longest time-out. A longer one could not be added to an instant.
const MAX_TIMEOUT: Duration = Duration::from_secs(30 * 86_400);

/// How long each step of a request may take.
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

/// Where requests go, and how long each step of one may take.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Destination {
    pub(crate) address: Uri,
    pub(crate) timeouts: Timeouts,
    /// Those of the system if there are none.
    pub(crate) roots: Option<Roots>,
    pub(crate) proxy: Option<Proxy>,
}

impl Destination {
    /// Host and port, as in the `host` header.
    pub(crate) fn authority(&self) -> &str {
        self.address.authority().map_or("", Authority::as_str)
    }
}

/// One provider: its address, its limits, and what is done when it fails.
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
#[must_use = "an upstream does nothing until a gateway has it"]
pub struct Upstream {
    pub(crate) name: Provider,
    pub(crate) dialect: Dialect,
    pub(crate) base: Destination,
    pub(crate) credential: Option<Credential>,
    pub(crate) limits: AccountLimits,
    pub(crate) concurrency: PoolSize,
    pub(crate) endpoint_routes: EndpointRoutes,
    /// Requests per minute to begin with, and how long until the limit is reached.
    pub(crate) ramp: Option<(u64, Duration)>,
    pub(crate) max_retries: u32,
    /// The delay before the first retry.
    pub(crate) retry_base: Duration,
    /// `None` for those of the dialect.
    pub(crate) retry_statuses: Option<Vec<u16>>,
    pub(crate) breaker: Option<BreakerSettings>,
    pub(crate) max_wait: Duration,
    pub(crate) ask_for_usage: bool,
    pub(crate) fallback: Vec<Provider>,
    pub(crate) fallback_models: HashMap<Provider, ModelMap>,
    pub(crate) models: Vec<Arc<str>>,
}

impl Upstream {
    /// A provider below a name, which is the first segment of the paths that lead to it.
    ///
    /// # Errors
    /// If the name is no segment of a path, or the address is none.
    pub fn new(name: &str, dialect: Dialect, base_url: &str) -> Result<Self, GatewayError> {
        let provider = Provider::new(name);
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let text = provider.as_str();
        if text.is_empty() || !text.bytes().all(is_plain) || text.starts_with('.') {
            return Err(GatewayError::Name(name.to_owned()));
        }
        if dialect == Dialect::Mock {
            return Err(wrong(&provider, RequestError::Mock));
        }
        let address = parse_base_url(base_url).map_err(|source| wrong(&provider, source))?;
        let timeouts = Timeouts::default();
        let base = Destination { address, timeouts, roots: None, proxy: None };
        Ok(Self {
            name: provider,
            dialect,
            base,
            credential: None,
            limits: AccountLimits::default(),
            concurrency: default_concurrency(dialect),
            endpoint_routes: EndpointRoutes::default(),
            ramp: None,
            max_retries: MAX_RETRIES,
            retry_base: RETRY_BASE,
            retry_statuses: None,
            breaker: Some(breaker_settings(BREAKER_FAILURES, Duration::from_secs(5))),
            max_wait: MAX_WAIT,
            ask_for_usage: false,
            fallback: Vec::new(),
            fallback_models: HashMap::new(),
            models: Vec::new(),
        })
    }

    /// The key that calls are made with, whatever key the caller has. Default: the caller's own.
    ///
    /// # Errors
    /// If the key has characters that no header field can have.
    pub fn credential(mut self, credential: Credential) -> Result<Self, GatewayError> {
        let field = key_field(self.dialect, credential.reveal());
        let field = field.map_err(|source| wrong(&self.name, source))?;
        self.credential = field.map(|_| credential);
        Ok(self)
    }

    /// The limits of each account, for all models together. Default: what the provider tells.
    pub fn limits(mut self, constraint: Constraint) -> Self {
        self.limits = self.limits.all(constraint, Source::Override);
        self
    }

    /// Requests and tokens of a minute that all keys of callers together may use. Without a number it is
    /// [`ALL_KEYS_MULTIPLE`](tidegate_llm::rate_limit::ALL_KEYS_MULTIPLE) times that of each account,
    /// if that has one. It does not matter with a key of one's own, nor where keys are not checked.
    pub fn all_keys_limits(
        mut self,
        requests_per_minute: Option<NonZeroU32>,
        tokens_per_minute: Option<NonZeroU32>,
    ) -> Self {
        self.limits = self.limits.all_keys(requests_per_minute, tokens_per_minute);
        self
    }

    /// Limits of one endpoint of each account, inside those of the account.
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.endpoint_routes.declare(endpoint.clone(), []);
        self.limits = self.limits.endpoint(endpoint, constraint);
        self
    }

    /// Limits of the models of each account that match a pattern, inside those of the account.
    pub fn model(mut self, pattern: &str, constraint: Constraint) -> Self {
        self.limits = self.limits.model(pattern, constraint);
        self
    }

    /// How many calls may be under way, over all accounts, models and endpoints. Default: as many as
    /// turn out to be answered, and one at Ollama.
    pub fn concurrency(mut self, size: PoolSize) -> Self {
        self.concurrency = size;
        self
    }

    /// Paths whose calls belong to an endpoint, as
    /// [`parse_route`](tidegate_providers::request::parse_route) returns them, also if they are none of those that use a model as far
    /// as is known. Of several routes that a path belongs to, the most specific one counts. A caller
    /// may name the endpoint itself, in `x-tidegate-endpoint`. Default: what the path is known for.
    pub fn endpoint_paths(
        mut self,
        endpoint: Endpoint,
        paths: impl IntoIterator<Item = String>,
    ) -> Self {
        self.endpoint_routes.declare(endpoint, paths);
        self
    }

    /// Calls of a model leave at `floor` requests per minute at first, and after a pause, and then
    /// faster, up to the limit within `over`.
    /// Default: at the limit at once.
    pub fn ramp_up(mut self, floor: u64, over: Duration) -> Self {
        self.ramp = Some((floor, over));
        self
    }

    /// Retries after the first attempt. Default: 8.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.max_retries = retries;
        self
    }

    /// The delay before the first retry, which doubles with each. Default: 1 s.
    pub fn retry_base(mut self, delay: Duration) -> Self {
        self.retry_base = delay;
        self
    }

    /// The statuses after which a call is tried again; others are passed on after one attempt. An
    /// exhausted quota is never tried again. Default: those of the dialect
    /// ([`retryable_statuses`](tidegate_providers::classify::retryable_statuses)).
    pub fn retry_statuses(mut self, statuses: impl IntoIterator<Item = u16>) -> Self {
        self.retry_statuses = Some(statuses.into_iter().collect());
        self
    }

    /// Leaves the provider alone after so many calls in a row that failed by its fault: calls go to
    /// fallbacks, or are refused, for `open_for` at first and for longer after each trial that fails.
    /// Default: after 10, for 5 s.
    pub fn breaker(mut self, failures: NonZeroU32, open_for: Duration) -> Self {
        self.breaker = Some(breaker_settings(failures.get(), open_for.min(MAX_TIMEOUT)));
        self
    }

    /// Calls the provider whatever becomes of the calls.
    pub fn without_breaker(mut self) -> Self {
        self.breaker = None;
        self
    }

    /// How long a call is held before each attempt, unless it says so itself. A longer wait is
    /// refused at once. Default: 120 s.
    pub fn max_wait(mut self, span: Duration) -> Self {
        self.max_wait = span;
        self
    }

    /// How long making a connection may take: name resolution, TCP and TLS together. Default: 10 s.
    pub fn connect_timeout(mut self, span: Duration) -> Self {
        self.base.timeouts.connect = span.min(MAX_TIMEOUT);
        self
    }

    /// How long the provider may take to begin its answer, from the last part of the request: until
    /// the head of the answer is there, and of a stream its first event. Making a connection counts
    /// in. If the body comes from the caller part by part, the time-out is at least 61 s, so that the
    /// provider is not blamed for a caller that pauses. Default: 120 s.
    pub fn first_byte_timeout(mut self, span: Duration) -> Self {
        self.base.timeouts.first_byte = span.min(MAX_TIMEOUT);
        self
    }

    /// How long the provider may send nothing in the middle of an answer. Default: 60 s.
    pub fn idle_timeout(mut self, span: Duration) -> Self {
        self.base.timeouts.idle = span.min(MAX_TIMEOUT);
        self
    }

    /// Whether streams of OpenAI's API are asked for their usage where the caller does not ask. What
    /// comes of it is taken out again, so that the caller gets what it would have got without. Mistral
    /// tells its usage unasked and is not asked. Default: `false`, and output is counted here.
    pub fn ask_for_usage(mut self, ask: bool) -> Self {
        self.ask_for_usage = ask;
        self
    }

    /// Whom to turn to, in this order. Those who speak another API, or have no key of their own,
    /// are passed over with a warning.
    pub fn fallback<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.fallback = names.into_iter().map(Provider::new).collect();
        self
    }

    /// What models are called at a provider that calls fall back to, each by the name that callers ask
    /// for; `*` is every model that is not named. Others have the same name there.
    pub fn fallback_models<'n>(
        mut self,
        target: &str,
        names: impl IntoIterator<Item = (&'n str, &'n str)>,
    ) -> Self {
        let names = names.into_iter().map(|(from, to)| (from.to_owned(), to.to_owned()));
        self.fallback_models.insert(Provider::new(target), names.collect());
        self
    }

    /// The root certificates, in DER, that the certificate of the provider is checked against.
    /// Default: those of the system.
    ///
    /// # Errors
    /// If there is none, or one cannot be used.
    pub fn roots(
        mut self,
        certificates: impl IntoIterator<Item = Vec<u8>>,
    ) -> Result<Self, GatewayError> {
        let name = || self.name.as_str().to_owned();
        let roots = Roots::from_der(certificates);
        let roots = roots.map_err(|source| GatewayError::Roots { name: name(), source })?;
        self.base.roots = Some(roots);
        Ok(self)
    }

    /// The proxy on the way to the provider. Default: none.
    pub fn proxy(mut self, proxy: Proxy) -> Self {
        self.base.proxy = Some(proxy);
        self
    }

    /// Models that have a name in metrics; all others are `other`.
    pub fn models<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.models = names.into_iter().map(Arc::from).collect();
        self
    }

    /// The name.
    #[must_use]
    pub const fn name(&self) -> &Provider {
        &self.name
    }
}

/// A breaker whose pause goes on growing if it opens again soon after it closed.
fn breaker_settings(failures: u32, open_for: Duration) -> BreakerSettings {
    BreakerSettings::after_failures(failures)
        .pause(open_for, open_for.max(LONGEST_OPEN))
        .relapse_within(open_for * 2)
}

fn wrong(name: &Provider, source: RequestError) -> GatewayError {
    GatewayError::Target { name: name.as_str().to_owned(), source }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Upstream")
            .field("name", &self.name)
            .field("dialect", &self.dialect)
            .field("base", &self.base)
            .field("credential", &self.credential)
            .field("limits", &self.limits)
            .field("concurrency", &self.concurrency)
            .field("fallback", &self.fallback)
            .finish_non_exhaustive()
    }
}
