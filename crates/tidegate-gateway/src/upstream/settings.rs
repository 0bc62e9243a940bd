//! Upstreams: providers as they are configured.

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use http::uri::Authority;
use tidegate::breaker::BreakerSettings;
use tidegate_llm::client::DEFAULT_CONNECT_TIMEOUT;
use tidegate_llm::plan::Constraint;
use tidegate_llm::rate_limit::Ramp;
use tidegate_llm::retry::Schedule;
use tidegate_providers::request::{Base, RoutePath, TargetError, key_field};
use tidegate_providers::{Credential, Dialect, Endpoint, Family, Provider};

use crate::error::GatewayError;
use crate::request::endpoint_routes::EndpointRoutes;

/// How long a call is held unless set otherwise.
const MAX_WAIT: Duration = Duration::from_secs(120);
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
    pub(crate) address: Base,
    pub(crate) timeouts: Timeouts,
}

impl Destination {
    pub(crate) fn authority(&self) -> &Authority {
        self.address.authority()
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
    pub(crate) limits: Option<Constraint>,
    pub(crate) endpoints: HashMap<Endpoint, Constraint>,
    pub(crate) concurrency: Option<NonZeroU32>,
    pub(crate) endpoint_routes: EndpointRoutes,
    pub(crate) ramp: Option<Ramp>,
    pub(crate) schedule: Schedule,
    /// `None` for those of the dialect.
    pub(crate) retry_statuses: Option<Vec<u16>>,
    pub(crate) breaker: Option<BreakerSettings>,
    pub(crate) max_wait: Duration,
    pub(crate) fallback: Vec<Provider>,
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
            return Err(wrong(&provider, TargetError::Mock));
        }
        let address = base_url.parse().map_err(|source| wrong(&provider, source))?;
        let base = Destination { address, timeouts: Timeouts::default() };
        Ok(Self {
            name: provider,
            dialect,
            base,
            credential: None,
            limits: None,
            endpoints: HashMap::new(),
            concurrency: None,
            endpoint_routes: EndpointRoutes::default(),
            ramp: None,
            schedule: Schedule::default(),
            retry_statuses: None,
            breaker: Some(breaker_settings(BREAKER_FAILURES, Duration::from_secs(5))),
            max_wait: MAX_WAIT,
            fallback: Vec::new(),
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
        self.limits = Some(constraint);
        self
    }

    /// Limits of one endpoint, which then has a queue of its own.
    pub fn endpoint(mut self, endpoint: Endpoint, constraint: Constraint) -> Self {
        self.endpoint_routes.declare(endpoint.clone(), []);
        self.endpoints.insert(endpoint, constraint);
        self
    }

    /// Paths whose calls belong to an endpoint, also if they are none of those that use a model as far
    /// as is known. Of several routes that a path belongs to, the most specific one counts. A caller
    /// may name the endpoint itself, in `x-tidegate-endpoint`. Default: what the path is known for.
    pub fn endpoint_paths(
        mut self,
        endpoint: Endpoint,
        paths: impl IntoIterator<Item = RoutePath>,
    ) -> Self {
        self.endpoint_routes.declare(endpoint, paths);
        self
    }

    /// Calls of a model leave slowly at first, and after a pause, and then faster up to the limit.
    /// Default: at the limit at once.
    pub fn ramp_up(mut self, ramp: Ramp) -> Self {
        self.ramp = Some(ramp);
        self
    }

    /// How many calls of an account may be under way. Limits that name a concurrency come first.
    /// Default: as many as turn out to be answered.
    pub fn concurrency(mut self, calls: NonZeroU32) -> Self {
        self.concurrency = Some(calls);
        self
    }

    /// Retries after the first attempt. Default: 8.
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.schedule = self.schedule.max_retries(retries);
        self
    }

    /// The delay before the first retry, which doubles with each. Default: 1 s.
    pub fn retry_base(mut self, delay: Duration) -> Self {
        self.schedule = self.schedule.base(delay);
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

    /// Whom to turn to, in this order. Those who speak another API, or have no key of their own,
    /// are passed over with a warning.
    pub fn fallback<'n>(mut self, names: impl IntoIterator<Item = &'n str>) -> Self {
        self.fallback = names.into_iter().map(Provider::new).collect();
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

    /// How many calls may be under way, if that is set.
    pub(crate) fn places(&self) -> Option<NonZeroU32> {
        self.limits.as_ref().and_then(Constraint::concurrency).or(self.concurrency)
    }

    /// Whether calls may fall back to it: only if no caller's key has to be shown to it. A server of
    /// one's own needs none.
    pub(crate) fn takes_others_calls(&self) -> bool {
        self.credential.is_some() || matches!(self.dialect, Dialect::Ollama | Dialect::Compatible)
    }

    pub(crate) const fn family(&self) -> Family {
        Family::of(self.dialect)
    }
}

/// A breaker whose pause goes on growing if it opens again soon after it closed.
fn breaker_settings(failures: u32, open_for: Duration) -> BreakerSettings {
    BreakerSettings::after_failures(failures)
        .pause(open_for, open_for.max(LONGEST_OPEN))
        .relapse_within(open_for * 2)
}

fn wrong(name: &Provider, source: TargetError) -> GatewayError {
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
