//! A limiter: one policy on one store, and the verbs for a single key.

use std::fmt;
use std::time::Duration;

use tidegate_core::{
    Change, Charge, Correction, Decision, Key, Limit, LimitError, Operation, Policy, Receipt,
    Settlement, Store, Target,
};
use tidegate_memory::MemoryStore;

use crate::engine::Engine;
use crate::request::{Call, Request};
#[cfg(feature = "calendar")]
use crate::schedule::Schedule;

/// One policy on one store. Cheap to clone; clones share the buckets.
///
/// | verb | meaning |
/// | --- | --- |
/// | [`take`](Self::take) | spend now or be denied with an exact hint |
/// | [`peek`](Self::peek) | what `take` would say |
/// | [`reserve`](Self::reserve) | spend now or at a stated time |
/// | [`settle`](Self::settle) | correct an earlier spend |
/// | [`hold`](Self::hold) | close a key for a time |
/// | [`reset`](Self::reset) | forget a key |
///
/// ```
/// use std::time::Duration;
/// use tidegate::clock::ManualClock;
/// use tidegate::{Engine, MemoryStore, Policy, Retry};
///
/// let clock = ManualClock::new();
/// let store = MemoryStore::builder().clock(clock.clone()).build()?;
/// let engine = Engine::on(std::sync::Arc::new(store));
/// let limiter = engine.limiter("api", Policy::per_second(2).capacity(5).build()?)?;
///
/// assert!(limiter.take("alice").cost(5).now().is_allowed());
/// let denied = limiter.take("alice").cost(3).now();
/// assert_eq!(denied.retry(), Some(Retry::After(Duration::from_millis(1_500))));
/// clock.advance(Duration::from_millis(1_500));
/// assert!(limiter.take("alice").cost(3).now().is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Limiter<S: ?Sized = MemoryStore> {
    engine: Engine<S>,
    limit: Limit,
    /// The windows of a calendar quota.
    #[cfg(feature = "calendar")]
    schedule: Option<Schedule>,
}

impl Limiter {
    /// A limiter on an in-process store of its own, of at most 64 MiB.
    ///
    /// Several limiters share one store through an [`Engine`].
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Engine::new().inline(policy)
    }
}

impl<S: Store + ?Sized> Limiter<S> {
    pub(crate) const fn on(engine: Engine<S>, limit: Limit) -> Self {
        #[cfg(feature = "calendar")]
        return Self { engine, limit, schedule: None };
        #[cfg(not(feature = "calendar"))]
        Self { engine, limit }
    }

    /// With the windows of a calendar quota.
    #[cfg(feature = "calendar")]
    pub(crate) fn scheduled(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// The engine, for lists that join several limiters.
    #[must_use]
    pub const fn engine(&self) -> &Engine<S> {
        &self.engine
    }

    /// The limit: name, policy and generation.
    #[must_use]
    pub const fn limit(&self) -> &Limit {
        &self.limit
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        self.limit.policy()
    }

    /// The same limiter with another policy. Existing buckets are converted as `change` says
    /// when they are next touched; a full bucket stays full.
    ///
    /// ```
    /// use tidegate::{Change, Engine, Policy};
    /// let old = Engine::new().limiter("api", Policy::per_minute(1).capacity(10).build()?)?;
    /// let _ = old.take("alice").cost(4).now();
    /// let new = old.reconfigured(Policy::per_minute(1).capacity(5).build()?, Change::KeepTokens)?;
    /// assert_eq!(new.take("alice").cost(0).now().remaining(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the limiter has no name: then its policy is its identity.
    pub fn reconfigured(&self, policy: Policy, change: Change) -> Result<Self, LimitError> {
        Ok(Self { limit: self.limit.revise(policy, change)?, ..self.clone() })
    }

    /// A charge on this limiter, for a list decided by an [`Engine`].
    pub fn charge<'a>(&'a self, key: impl Into<Key<'a>>, cost: u64) -> Charge<'a> {
        Charge { target: self.target(key), cost }
    }

    /// A bucket of this limiter.
    pub fn target<'a>(&'a self, key: impl Into<Key<'a>>) -> Target<'a> {
        let target = Target::new(&self.limit, key);
        #[cfg(feature = "calendar")]
        if let Some(schedule) = &self.schedule {
            return target.with_windows(schedule.windows(self.engine.wall_time()));
        }
        target
    }

    /// Spends one token now, or [another cost](Request::cost); or denies and spends nothing.
    pub fn take<'a>(&'a self, key: impl Into<Key<'a>>) -> Request<'a, S, Decision> {
        self.request(Call::Take(self.charge(key, 1)))
    }

    /// Says what [`take`](Self::take) would say; spends nothing.
    pub fn peek<'a>(&'a self, key: impl Into<Key<'a>>) -> Request<'a, S, Decision> {
        self.request(Call::Peek(self.charge(key, 1)))
    }

    /// Spends one token, or [another cost](Request::cost), now or at a stated time not later
    /// than `max_wait` from now.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per(1, Duration::from_secs(60)).build()?);
    /// assert!(limiter.take("job").now().is_allowed());
    /// let grant = limiter.reserve("job", Duration::from_secs(60)).now().granted().unwrap();
    /// assert!(grant.wait > Duration::from_secs(59));
    /// limiter.settle("job", -1, Some(&grant.receipt)).try_now()?; // cancelled: given back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<'a>(
        &'a self,
        key: impl Into<Key<'a>>,
        max_wait: Duration,
    ) -> Request<'a, S, Decision> {
        self.request(Call::Reserve(self.charge(key, 1), max_wait))
    }

    /// Corrects an earlier spend by `delta` tokens: positive charges more, into debt if need be,
    /// negative gives back.
    pub fn settle<'a>(
        &'a self,
        key: impl Into<Key<'a>>,
        delta: i64,
        receipt: Option<&'a Receipt>,
    ) -> Request<'a, S, Settlement> {
        self.request(Call::Settle(Correction { target: self.target(key), delta }, receipt))
    }

    /// Closes a key for `span`; it reopens empty. Answers how long it is closed from now.
    pub fn hold<'a>(&'a self, key: impl Into<Key<'a>>, span: Duration) -> Request<'a, S, Duration> {
        self.request(Call::Ready(Operation::Hold { target: self.target(key), span }))
    }

    /// Forgets a key. Answers whether there was anything to forget.
    pub fn reset<'a>(&'a self, key: impl Into<Key<'a>>) -> Request<'a, S, bool> {
        self.request(Call::Ready(Operation::Reset { target: self.target(key) }))
    }

    fn request<'a, T>(&'a self, call: Call<'a>) -> Request<'a, S, T> {
        Request::new(self.engine.store(), call)
    }
}

impl<S: ?Sized> Clone for Limiter<S> {
    fn clone(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            limit: self.limit.clone(),
            #[cfg(feature = "calendar")]
            schedule: self.schedule.clone(),
        }
    }
}

impl<S: Store + ?Sized> fmt::Debug for Limiter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limit", &self.limit.name())
            .field("policy", self.limit.policy())
            .field("engine", &self.engine)
            .finish()
    }
}
