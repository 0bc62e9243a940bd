//! The rate-limit handler: commands wait for the limits of their plan.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::{Clock, TokioClock};
use tidegate::pacer::{Acquire, AcquireError, Permit, WaitPart};
use tidegate::{KeyBuf, MemoryStore};
use tidegate_providers::Provider;
use tidegate_providers::name::short_hash;
use tokio::time::timeout;

use super::key::{KeyExtractor, by_model};
use super::key_limits::{Charged, KeyLimits};
use super::limiter_cache::LimiterCache;
use super::permits::Permits;
use super::planned::Planned;
use crate::call::{CallError, CallOptions, PermitWait};
use crate::plan::Inference;
use crate::telemetry::{Acquired, Observer, Observers, Stage, StageGuard};

/// Delays commands until the limits of their plan admit them. Cheap to clone; clones share
/// everything.
///
/// A key has one bucket per dimension, whatever constraints its commands come with. The constraint
/// of the newest command is the policy of these buckets, also for commands that wait already. While
/// more than 16,384 keys are unused, those that were used least recently are forgotten: such a key
/// has full buckets under another constraint than the one that it first came with.
///
/// It works within one process: two handlers, and two processes, have separate buckets. For limits
/// that several processes share, use the accounts of [`rate_limit`](crate::rate_limit) with an
/// engine on a shared store.
pub struct RateLimitHandler<C = ()> {
    cache: Arc<LimiterCache>,
    inference: Arc<Inference>,
    extractor: Arc<KeyExtractor<C>>,
    /// Whether observers see hashes of keys from a custom extractor, since such keys may name
    /// people.
    hashes_own_keys: bool,
    /// Whether a custom key extractor is set.
    has_own_keys: bool,
    observers: Observers,
}

impl<C: 'static> RateLimitHandler<C> {
    /// Creates a handler with keys by provider, model and tier, tokio's clock and the observer
    /// [`tracing_observer`](crate::telemetry::tracing_observer).
    #[must_use]
    pub fn new() -> Self {
        let store = MemoryStore::builder().clock(TokioClock::new()).build();
        Self {
            cache: Arc::new(LimiterCache::new(store.map(Arc::new).unwrap_or_default())),
            inference: Arc::default(),
            extractor: Arc::new(by_model),
            hashes_own_keys: true,
            has_own_keys: false,
            observers: Observers::default(),
        }
    }

    /// Sets the table that infers the provider of requests that do not name one. The provider is
    /// part of keys and is passed to observers. Default: [`Inference::default`].
    #[must_use]
    pub fn inference(mut self, inference: Inference) -> Self {
        self.inference = Arc::new(inference);
        self
    }

    /// Sets the function that returns the parts of a command's key; commands with the same key
    /// share limits. It sees the whole command, with the caller's context, and the provider. Parts
    /// of any length are a key, also none. Default: [`by_model`]. Observers see only hashes of keys
    /// from any other function, since they may name people; see [`show_keys`](Self::show_keys).
    ///
    /// ```
    /// use tidegate_llm::pipeline::{Command, Planned, RateLimitHandler};
    ///
    /// struct Session {
    ///     user_id: Option<String>,
    /// }
    ///
    /// let per_user = |_: &_, planned: &Planned<Command<Session>>| {
    ///     let user = planned.command.context.user_id.as_deref().unwrap_or("default");
    ///     vec!["user".to_owned(), user.to_owned()]
    /// };
    /// let handler = RateLimitHandler::new().key_extractor(per_user);
    /// # let _ = handler;
    /// ```
    #[must_use]
    pub fn key_extractor(
        mut self,
        extractor: impl Fn(&Provider, &Planned<C>) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.extractor = Arc::new(extractor);
        self.has_own_keys = true;
        self
    }

    /// Passes all keys to observers unhashed. With
    /// [`tracing_observer`](crate::telemetry::tracing_observer) they appear in the log.
    #[must_use]
    pub fn show_keys(mut self) -> Self {
        self.hashes_own_keys = false;
        self
    }

    /// Adds an observer. Default: [`tracing_observer`](crate::telemetry::tracing_observer), if none
    /// is added.
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observers.add(observer);
        self
    }

    /// Sets the clock and replaces the store with a new one on it. Waits follow this clock.
    /// Default: tokio's clock.
    #[must_use]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let store = MemoryStore::builder().clock(clock).build();
        self.store(store.map(Arc::new).unwrap_or_default())
    }

    /// Sets the store, which has its own clock and memory bound.
    #[must_use]
    pub fn store(mut self, store: Arc<MemoryStore>) -> Self {
        self.cache = Arc::new(LimiterCache::new(store));
        self
    }

    /// Waits until the limits admit a command, and returns it. A plan without a constraint passes
    /// at once and creates no state.
    pub async fn handle(&self, mut planned: Planned<C>) -> Planned<C> {
        let Some(request) = self.request(&planned) else { return planned };
        match request.acquire(None).await {
            Ok(permits) => planned.permits = Some(permits),
            Err(Refused { source: error, .. }) => {
                // Not expected: limits and keys are valid, the store is local and the queue is
                // unbounded.
                tracing::error!(%error, "acquire failed; the command is not limited");
            }
        }
        planned
    }

    /// Returns the number of keys with a waiting command or a call in flight.
    #[must_use]
    pub fn keys_in_use(&self) -> usize {
        self.cache.keys_in_use()
    }

    /// Prepares the request for the permits of a command, if its plan has a constraint.
    pub(super) fn request(&self, planned: &Planned<C>) -> Option<PermitRequest> {
        let constraint = planned.plan.constraint.as_ref()?;
        let provider = self.inference.provider_of(&planned.request);
        let parts = (self.extractor)(&provider, planned);
        let key = bounded(KeyBuf::from_parts(parts.iter().map(String::as_str)));
        let observed_key = self.observed_key(&parts, &key);
        let limits = self.cache.limits(key, constraint);
        let (acquire, charged) = limits.acquire(constraint, &planned.plan);
        let number = |value: Option<NonZeroU32>| value.map(|value| value.get().into());
        Some(PermitRequest {
            cache: self.cache.clone(),
            observer: self.observers.get().clone(),
            provider,
            observed_key,
            acquire,
            limits,
            charged,
            reserved: planned.plan.reserved_tokens(),
            requests_per_minute: number(constraint.requests_per_minute()),
            tokens_per_minute: number(constraint.tokens_per_minute()),
        })
    }

    /// Returns the key as observers see it.
    fn observed_key(&self, parts: &[String], key: &KeyBuf) -> String {
        if !self.has_own_keys || !self.hashes_own_keys {
            return parts.join("/");
        }
        short_hash(key.as_key().name())
    }
}

impl<C> Clone for RateLimitHandler<C> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            inference: self.inference.clone(),
            extractor: self.extractor.clone(),
            hashes_own_keys: self.hashes_own_keys,
            has_own_keys: self.has_own_keys,
            observers: self.observers.clone(),
        }
    }
}

impl<C> fmt::Debug for RateLimitHandler<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitHandler")
            .field("cache", &self.cache)
            .field("hashes_own_keys", &self.hashes_own_keys)
            .field("has_own_keys", &self.has_own_keys)
            .field("observers", &self.observers)
            .finish_non_exhaustive()
    }
}

impl<C: 'static> Default for RateLimitHandler<C> {
    fn default() -> Self {
        Self::new()
    }
}

/// A request for the permits of one outgoing call.
pub(super) struct PermitRequest {
    cache: Arc<LimiterCache>,
    observer: Arc<dyn Observer>,
    provider: Provider,
    observed_key: String,
    acquire: Acquire,
    limits: Arc<KeyLimits>,
    charged: Charged,
    reserved: u64,
    requests_per_minute: Option<u64>,
    tokens_per_minute: Option<u64>,
}

impl PermitRequest {
    /// Waits for the permits, with the options of a call if there are any. Without them it waits
    /// for as long as it takes.
    async fn acquire(self, options: Option<&CallOptions>) -> Result<Permits, Refused> {
        let Self { cache, observer, provider, acquire, limits, charged, reserved, .. } = self;
        let waiting = StageGuard::new(observer.clone(), provider.clone(), Stage::Waiting);
        let permit = match wait_for(acquire, options).await {
            Ok(permit) => permit,
            Err(source) => {
                let shortage = limits.shortage(&charged, &source);
                let limited_by = shortage.map(|(limit, _)| limit);
                observer.refused(&provider, limited_by);
                let after = source.retry_after().max(shortage.and_then(|(_, delay)| delay));
                return Err(Refused { source, limited_by, after });
            }
        };
        drop(waiting);
        limits.granted(cache.now());
        let gauges = limits.pacer().gauges();
        let permits = Permits::new(permit, (limits, charged), reserved, (&observer, &provider));
        let mut acquired = Acquired::new(&provider, &self.observed_key);
        acquired.estimated_tokens = reserved;
        acquired.wait = permits.waited();
        acquired.token_wait = permits.token_wait();
        let parts = permits.waited_for();
        let of_slot = parts.iter().find(|(limit, _)| *limit == WaitPart::CONCURRENCY);
        acquired.slot_wait = of_slot.map_or(Duration::ZERO, |(_, time)| *time);
        acquired.limited_by = parts.first().map(|(limit, _)| *limit);
        acquired.waited_for = &parts;
        acquired.requests_per_minute = self.requests_per_minute;
        acquired.tokens_per_minute = self.tokens_per_minute;
        acquired.in_flight = gauges.in_flight;
        acquired.waiting = gauges.waiting;
        observer.acquired(&acquired);
        Ok(permits)
    }

    /// Waits for the permits as the options of a call say.
    ///
    /// # Errors
    /// When the call may not wait that long.
    pub(super) async fn acquire_for(self, options: &CallOptions) -> Result<Permits, CallError> {
        let provider = self.provider.clone();
        self.acquire(Some(options)).await.map_err(|Refused { source, limited_by, after }| {
            CallError::NoPermit { provider, source, limited_by, after }
        })
    }
}

/// Why a command got no permits.
struct Refused {
    source: AcquireError,
    /// The limit that was waited for, if known.
    limited_by: Option<&'static str>,
    /// Time until there may be permits, if known.
    after: Option<Duration>,
}

/// Replaces a key that stores reject, because it is empty or too long, by its hash. Keys of parts
/// have no `%s`, so it collides with none of them.
fn bounded(key: KeyBuf) -> KeyBuf {
    match key.as_key().check() {
        Ok(_) => key,
        Err(_) => format!("%sha256:{}", short_hash(key.as_key().name())).into(),
    }
}

/// Waits for a permit, with the options of a call if there are any. The deadline of a call counts
/// real time, whatever the clock of the store.
async fn wait_for(acquire: Acquire, options: Option<&CallOptions>) -> Result<Permit, AcquireError> {
    let Some(options) = options else { return acquire.await };
    let _waiting = options.permit_wait.as_ref().map(PermitWait::start);
    let acquire = with_options(acquire, options).into_future();
    match options.deadline {
        Some(span) => timeout(span, acquire).await.unwrap_or(Err(AcquireError::TimedOut(span))),
        None => acquire.await,
    }
}

fn with_options(acquire: Acquire, options: &CallOptions) -> Acquire {
    let mut acquire = acquire.caller(options.caller).priority(options.priority);
    if let Some(tenant) = &options.tenant {
        acquire = acquire.tenant(tenant);
    }
    // The deadline limits the wait even without a retry layer.
    match options.max_wait.into_iter().chain(options.deadline).min() {
        Some(max_wait) => acquire.max_wait(max_wait),
        None => acquire,
    }
}
