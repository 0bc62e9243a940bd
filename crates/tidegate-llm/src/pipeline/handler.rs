//! The handler: commands wait here for the limits of their plan.

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

/// A command with its plan, on its way through a pipeline.
#[derive(Debug)]
#[non_exhaustive]
pub struct Planned<C> {
    /// The command, which the handler passes on as it is.
    pub command: C,
    /// What it is to keep to.
    pub plan: Plan,
    /// What it was planned for, of which its key is made.
    pub request: PlanRequest,
    /// What it was granted, once it has been; to be settled after the call.
    pub permits: Option<Permits>,
}

impl<C> Planned<C> {
    /// A command and its plan.
    pub fn new(command: C, plan: Plan) -> Self {
        Self { command, plan, request: PlanRequest::new(), permits: None }
    }

    /// With what the plan was made for. A user who was named before stays, unless it names one.
    #[must_use]
    pub fn asked_by(mut self, request: &PlanRequest) -> Self {
        let before = std::mem::replace(&mut self.request, request.clone());
        match (before.user_name(), request.user_name()) {
            (Some(user), None) => self.user(user),
            _ => self,
        }
    }

    /// On behalf of a user.
    #[must_use]
    pub fn user(mut self, name: &str) -> Self {
        self.request = self.request.user(name);
        self
    }
}

/// What a command was granted. Dropping it ends its place among the calls under way; what it was
/// charged stays.
pub struct Permits {
    permit: Permit,
    queue: QueueGuard,
    reserved: u64,
    token_wait: Duration,
}

impl Permits {
    /// Tokens that were reserved.
    #[must_use]
    pub const fn reserved_tokens(&self) -> u64 {
        self.reserved
    }

    /// How long it waited, for everything together.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.permit.waited()
    }

    /// The part of the wait that was for tokens; the rest was for requests, an interval or a slot.
    #[must_use]
    pub const fn token_wait(&self) -> Duration {
        self.token_wait
    }

    /// Corrects the tokens to what was really used, each limit by what it counts: less is given
    /// back, more is charged.
    pub async fn settle(mut self, usage: &Usage) {
        let actual = self.queue.limits().used(usage);
        if let Err(error) = self.permit.settle(&actual).await {
            tracing::warn!(%error, "a call keeps what it was charged at first");
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

/// Makes commands wait for the limits of their plan. Cheap to clone; clones share everything.
#[derive(Clone)]
pub struct RateLimitHandler {
    cache: Arc<LimiterCache>,
    inference: Arc<Inference>,
    extractor: Arc<KeyExtractor>,
    /// Whether observers are told a hash of keys that a program made, since they may name people.
    hashes_own_keys: bool,
    /// The default keys are made of providers, models and tiers.
    has_own_keys: bool,
    observer: Arc<dyn Observer>,
}

impl RateLimitHandler {
    /// A handler by provider, model and tier, on tokio's time, that tells `tracing`.
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

    /// Finds providers that a request does not name by this table. They are part of keys, and what
    /// observers are told. Default: [`Inference::default`].
    #[must_use]
    pub fn inference(mut self, inference: Inference) -> Self {
        self.inference = Arc::new(inference);
        self
    }

    /// Who shares a limit: the parts of a key, made of the provider and the request. Default:
    /// [`by_model`]. Observers are told a hash of the keys of any other, since they may name people;
    /// see [`show_keys`](Self::show_keys).
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

    /// Tells observers every key as it is, and with [`tracing_observer`] the log too.
    #[must_use]
    pub fn show_keys(mut self) -> Self {
        self.hashes_own_keys = false;
        self
    }

    /// Who is told. Default: [`tracing_observer`].
    #[must_use]
    pub fn telemetry(mut self, observer: Arc<dyn Observer>) -> Self {
        self.observer = observer;
        self
    }

    /// The clock, on a new store of its own. Default: tokio's.
    #[must_use]
    pub fn clock(self, clock: impl Clock + 'static) -> Self {
        let store = MemoryStore::builder().clock(clock).build();
        self.store(store.map(Arc::new).unwrap_or_default())
    }

    /// The store, with a bound of its own on memory. It has its own clock.
    #[must_use]
    pub fn store(mut self, store: Arc<MemoryStore>) -> Self {
        self.cache = Arc::new(LimiterCache::new(store));
        self
    }

    /// Waits until a command may go, and gives it back. A plan without a constraint goes at once,
    /// and leaves no trace.
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
                // The limits are valid, the store is in this process and the queue has no end.
                tracing::error!(%error, "a command goes without its limits");
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

    /// How many keys are in use: waited for, or with a call under way.
    #[must_use]
    pub fn keys_in_use(&self) -> usize {
        self.cache.keys()
    }

    /// A key as observers see it.
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

/// The part of a wait that was for tokens.
fn token_wait(permit: &Permit, queue: &QueueGuard) -> Duration {
    let of_tokens = permit.parts().iter().filter(|part| queue.limits().is_of_tokens(&part.limit));
    of_tokens.map(|part| part.time).sum::<Duration>().min(permit.waited())
}
