//! The rate-limit handler: commands wait for the limits of their plan.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use tidegate::clock::{Clock, TokioClock};
use tidegate::pacer::Permit;
use tidegate::{KeyBuf, MemoryStore};
use tidegate_providers::name::short_hash;
use tidegate_providers::{Provider, Usage};

use super::limiter_cache::{LimiterCache, QueueGuard};
use crate::plan::{Inference, KeyExtractor, Plan, PlanRequest, by_model};
use crate::telemetry::{Acquired, Observer, tracing_observer};

/// A command and its plan.
#[derive(Debug)]
#[non_exhaustive]
pub struct Planned<C> {
    /// The command, which the handler never changes.
    pub command: C,
    /// Plan with the constraint to enforce.
    pub plan: Plan,
    /// Request the plan was made for; the key is derived from it.
    pub request: PlanRequest,
    /// Permits, set by the handler; settle them after the call.
    pub permits: Option<Permits>,
}

impl<C> Planned<C> {
    /// Creates a planned command without a request or user.
    pub fn new(command: C, plan: Plan) -> Self {
        Self { command, plan, request: PlanRequest::new(), permits: None }
    }

    /// Sets the request that the plan was made for. Keeps a user set before, unless `request` has
    /// one.
    #[must_use]
    pub fn with_request(mut self, request: &PlanRequest) -> Self {
        let before = std::mem::replace(&mut self.request, request.clone());
        match (before.user_name(), request.user_name()) {
            (Some(user), None) => self.user(user),
            _ => self,
        }
    }

    /// Sets the user on whose behalf the command runs.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.request = self.request.user(name);
        self
    }
}

/// Permits granted to a command. Dropping them releases the concurrency slot and keeps the charges.
pub struct Permits {
    permit: Permit,
    queue: QueueGuard,
    reserved: u64,
    token_wait: Duration,
}

impl Permits {
    /// Returns the number of tokens reserved.
    #[must_use]
    pub const fn reserved_tokens(&self) -> u64 {
        self.reserved
    }

    /// Returns how long the command waited in total.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.permit.waited()
    }

    /// Returns the part of the wait caused by token limits; the rest was for requests, the minimum
    /// interval or a slot.
    #[must_use]
    pub const fn token_wait(&self) -> Duration {
        self.token_wait
    }

    /// Corrects the charged tokens to the actual usage, for each limit by what it counts: refunds
    /// unused tokens and charges excess ones.
    pub async fn settle(mut self, usage: &Usage) {
        let actual = self.queue.limits().used(usage);
        if let Err(error) = self.permit.settle(&actual).await {
            tracing::warn!(%error, "settlement failed; keeping the estimated charge");
        }
    }
}

impl fmt::Debug for Permits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permits")
            .field("reserved", &self.reserved)
            .field("waited", &self.waited())
            .field("token_wait", &self.token_wait)
            .finish_non_exhaustive()
    }
}

/// Delays commands until the limits of their plan admit them. Cheap to clone; clones share
/// everything.
#[derive(Clone)]
pub struct RateLimitHandler {
    cache: Arc<LimiterCache>,
    inference: Arc<Inference>,
    extractor: Arc<KeyExtractor>,
    /// Whether observers see hashes of keys from a custom extractor, since such keys may name
    /// people.
    hashes_own_keys: bool,
    /// Whether a custom key extractor is set.
    has_own_keys: bool,
    observer: Arc<dyn Observer>,
}

impl RateLimitHandler {
    /// Creates a handler with keys by provider, model and tier, tokio's clock and the observer
    /// [`tracing_observer`].
    #[must_use]
    pub fn new() -> Self {
        let store = MemoryStore::builder().clock(TokioClock::new()).build();
        Self {
            cache: Arc::new(LimiterCache::new(store.map(Arc::new).unwrap_or_default())),
            inference: Arc::default(),
            extractor: Arc::new(by_model),
            hashes_own_keys: true,
            has_own_keys: false,
            observer: tracing_observer(),
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
    /// share limits. Default: [`by_model`]. Observers see only hashes of keys from any other
    /// function, since they may name people; see [`show_keys`](Self::show_keys).
    ///
    /// ```
    /// use tidegate_llm::pipeline::RateLimitHandler;
    /// let handler = RateLimitHandler::new().key_extractor(|provider, request| {
    ///     vec![provider.to_string(), request.tier_name().unwrap_or("none").to_owned()]
    /// });
    /// # let _ = handler;
    /// ```
    #[must_use]
    pub fn key_extractor(
        mut self,
        extractor: impl Fn(&Provider, &PlanRequest) -> Vec<String> + Send + Sync + 'static,
    ) -> Self {
        self.extractor = Arc::new(extractor);
        self.has_own_keys = true;
        self
    }

    /// Passes all keys to observers unhashed. With [`tracing_observer`] they appear in the log.
    #[must_use]
    pub fn show_keys(mut self) -> Self {
        self.hashes_own_keys = false;
        self
    }

    /// Sets the observer. Default: [`tracing_observer`].
    #[must_use]
    pub fn observer(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// Sets the clock and replaces the store with a new one on it. Default: tokio's clock.
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
    pub async fn handle<C>(&self, mut planned: Planned<C>) -> Planned<C> {
        let Some(constraint) = &planned.plan.constraint else { return planned };
        let provider = self.inference.provider_of(&planned.request);
        let parts = (self.extractor)(&provider, &planned.request);
        let key = KeyBuf::from_parts(parts.iter().map(String::as_str));
        let observed_key = self.observed_key(&parts, &key);
        let queue = self.cache.queue(constraint, key);
        let reserved = planned.plan.reserved_tokens();
        let charges = queue.limits().charges(queue.key(), &planned.plan);
        let permit = match queue.pacer().acquire(charges).into_debt().await {
            Ok(permit) => permit,
            Err(error) => {
                // Not expected: limits are valid, the store is local and the queue is unbounded.
                tracing::error!(%error, "acquire failed; the command is not limited");
                return planned;
            }
        };
        let token_wait = token_wait(&permit, &queue);
        let mut acquired = Acquired::new(&provider, &observed_key);
        acquired.estimated_tokens = reserved;
        acquired.wait = permit.waited();
        acquired.token_wait = token_wait;
        let number = |value: Option<NonZeroU32>| value.map(|value| value.get().into());
        acquired.requests_per_minute = number(constraint.requests_per_minute());
        acquired.tokens_per_minute = number(constraint.tokens_per_minute());
        self.observer.acquired(&acquired);
        planned.permits = Some(Permits { permit, queue, reserved, token_wait });
        planned
    }

    /// Returns the number of keys with a waiting command or a call in flight.
    #[must_use]
    pub fn keys_in_use(&self) -> usize {
        self.cache.keys()
    }

    /// Returns the key as observers see it.
    fn observed_key(&self, parts: &[String], key: &KeyBuf) -> String {
        if !self.has_own_keys || !self.hashes_own_keys {
            return parts.join("/");
        }
        short_hash(key.as_key().name())
    }
}

impl fmt::Debug for RateLimitHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitHandler")
            .field("cache", &self.cache)
            .field("hashes_own_keys", &self.hashes_own_keys)
            .field("has_own_keys", &self.has_own_keys)
            .field("observer", &self.observer)
            .finish_non_exhaustive()
    }
}

impl Default for RateLimitHandler {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the part of the wait caused by token limits.
fn token_wait(permit: &Permit, queue: &QueueGuard) -> Duration {
    let of_tokens =
        permit.wait_parts().iter().filter(|part| queue.limits().counts_tokens(&part.limit));
    of_tokens.map(|part| part.time).sum::<Duration>().min(permit.waited())
}
