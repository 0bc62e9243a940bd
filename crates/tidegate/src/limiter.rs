//! A limiter: one policy on one store, and the operations on a single key.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    AnyKey, Decision, FailureRule, Key, Limit, LimitError, Outcome, Outcomes, Policy, PolicyChange,
    Receipt, Settlement,
};

use crate::charge::Charge;
use crate::engine::Engine;
use crate::live_limit::{LimitSnapshot, LiveLimit};
use crate::pacer::{Acquire, Pacer};
use crate::request::{DeferredOperation, Request, Verb};

/// One policy on one store. Cheap to clone; clones share the buckets.
///
/// | method | meaning |
/// | --- | --- |
/// | [`take`](Self::take) | spend now, or be denied with an exact retry hint |
/// | [`wait`](Self::wait) | spend as soon as it fits |
/// | [`slot`](Self::slot) | take a slot of a concurrency limit, released on drop |
/// | [`peek`](Self::peek) | what `take` would decide |
/// | [`reserve`](Self::reserve) | spend now or at a stated later time |
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
/// let engine = Engine::on(store);
/// let limiter = engine.limiter("api", Policy::per_second(2).capacity(5).build()?)?;
///
/// assert!(limiter.take("alice").cost(5).now()?.is_allowed());
/// let denied = limiter.take("alice").cost(3).now()?;
/// assert_eq!(denied.retry(), Some(Retry::After(Duration::from_millis(1_500))));
/// clock.advance(Duration::from_millis(1_500));
/// assert!(limiter.take("alice").cost(3).now()?.is_allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Limiter {
    engine: Engine,
    live_limit: Arc<LiveLimit>,
}

impl Limiter {
    /// Creates a limiter on its own in-process store of at most 64 MiB.
    ///
    /// To share one store between limiters, use an [`Engine`].
    ///
    /// # Panics
    /// When the policy is a calendar quota: that needs a schedule, see `Engine::calendar`.
    #[must_use]
    #[expect(clippy::panic, reason = "documented; `Engine::limiter` is the fallible alternative")]
    pub fn new(policy: Policy) -> Self {
        match Engine::new().limiter(DEFAULT_NAME, policy) {
            Ok(limiter) => limiter,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Name of the limit of a limiter that has its own store.
const DEFAULT_NAME: &str = "default";

impl Limiter {
    pub(crate) const fn on(engine: Engine, live_limit: Arc<LiveLimit>) -> Self {
        Self { engine, live_limit }
    }

    /// Creates a charge on this limiter, for a list that an [`Engine`] decides or that a
    /// [`Pacer`](crate::pacer::Pacer) waits for.
    pub fn charge<'a>(&self, key: impl Into<AnyKey<'a>>, cost: u64) -> Charge<'a> {
        Charge::new(self.live_limit.clone(), self.engine.store().clone(), key.into(), cost)
    }

    /// The engine, for lists over several limiters.
    #[must_use]
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The current limit: name, policy and generation.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let limiter = Engine::new().limiter("api", Policy::per_second(2).build()?)?;
    /// assert_eq!((limiter.limit().name(), limiter.limit().generation()), ("api", 0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limit(&self) -> Limit {
        self.live_limit.limit()
    }

    /// The current policy.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(2).capacity(5).build()?);
    /// let Policy::Bucket(bucket) = limiter.policy() else { unreachable!() };
    /// let outcome = limiter.take("alice").now()?.outcomes()[0];
    /// // Capacity, rate, and the level in thousandths of a token, for display.
    /// assert_eq!(bucket.capacity(), 5);
    /// assert_eq!(bucket.rate(), "2/s".parse()?);
    /// assert_eq!(bucket.millitokens(outcome.reset.unwrap()), 4_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn policy(&self) -> Policy {
        *self.live_limit.limit().policy()
    }

    /// Replaces the policy, for all limiters of this name, from the next decision on. An existing
    /// bucket is converted according to `change` the next time it is used; a full bucket stays
    /// full.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy, PolicyChange};
    /// let limiter = Limiter::new(Policy::per_minute(1).capacity(10).build()?);
    /// let _ = limiter.take("alice").cost(4).now()?;
    /// limiter.reconfigure(Policy::per_minute(1).capacity(5).build()?, PolicyChange::KeepTokens)?;
    /// assert_eq!(limiter.take("alice").cost(0).now()?.remaining(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the limiter is [inline](Engine::inline), because its policy is its identity; when the
    /// policy is a calendar quota and the limiter has no schedule; or when the store
    /// [cannot decide](crate::Store::check_limit) the changed limit. The old policy stays in force.
    pub fn reconfigure(&self, policy: Policy, change: PolicyChange) -> Result<(), LimitError> {
        self.live_limit.revise(policy, change, self.engine.store())
    }

    /// Sets what is decided while the store does not answer, for all limiters of this name, from
    /// the next decision on. Only a store behind a `guard` uses it.
    ///
    /// ```
    /// use tidegate::{Engine, FailureRule, Policy};
    /// let limiter = Engine::new().limiter("api", Policy::per_second(2).build()?)?;
    /// limiter.set_failure_rule(FailureRule::Closed);
    /// assert_eq!(limiter.limit().failure_rule(), Some(FailureRule::Closed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_failure_rule(&self, rule: impl Into<Option<FailureRule>>) {
        self.live_limit.set_failure_rule(rule.into());
    }

    /// Reads the current limit, for a list of charges over several limiters; see [`Engine`].
    #[must_use]
    pub fn snapshot(&self) -> LimitSnapshot {
        self.live_limit.snapshot_on(self.engine.store())
    }

    /// Spends one token of a key now, or [another cost](Request::cost); or denies and spends
    /// nothing.
    ///
    /// A key is a string, an address or a number ([`AnyKey`]). An empty key, or one of more than
    /// [`MAX_KEY_BYTES`](crate::MAX_KEY_BYTES) bytes, is an error. While a
    /// [`Pacer`](crate::pacer::Pacer) has waiters for the key, the request is denied, with the wait
    /// that they leave to it.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(1).capacity(5).build()?);
    /// assert_eq!(limiter.take("alice").now()?.remaining(), 4);
    /// assert_eq!(limiter.take("alice").cost(4).now()?.remaining(), 0);
    /// assert!(!limiter.take("alice").now()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take<'a>(&'a self, key: impl Into<AnyKey<'a>>) -> Request<'a, Decision> {
        self.request(key, Verb::Take(1))
    }

    /// Spends tokens of a key on the fast path: at once and without a receipt, for callers that
    /// settle nothing later. The tokens were spent if the outcome has no `retry`.
    ///
    /// Returns `None`, with nothing done, if the caller has to use [`take`](Self::take): the store
    /// is shared, the key has waiters, the key is new or held, or the limit is not a token bucket.
    /// `snapshot` must come from this limiter.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(1).capacity(5).build()?);
    /// assert!(limiter.take_bare(&limiter.snapshot(), "alice", 1).is_none(), "a new key");
    /// assert!(limiter.take("alice").now()?.is_allowed());
    /// let spent = limiter.take_bare(&limiter.snapshot(), "alice", 3).unwrap();
    /// assert_eq!((spent.remaining, spent.retry), (1, None));
    /// let denied = limiter.take_bare(&limiter.snapshot(), "alice", 3).unwrap();
    /// assert!(denied.retry.is_some());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn take_bare<'a>(
        &self,
        snapshot: &LimitSnapshot,
        key: impl Into<Key<'a>>,
        cost: u64,
    ) -> Option<Outcome> {
        let (key, store) = (key.into(), self.engine.store().local()?);
        if self.live_limit.queued_demand().tokens_queued(key).is_some() {
            return None;
        }
        let mut outcomes = Outcomes::new();
        let charge = snapshot.charge(key, cost);
        let decided = store.spend_list(&[charge], &mut outcomes);
        if decided { outcomes.first().copied() } else { None }
    }

    /// Returns the decision that [`take`](Self::take) would make now, and spends nothing.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(1).capacity(5).build()?);
    /// assert_eq!(limiter.peek("alice").cost(2).now()?.remaining(), 3);
    /// assert_eq!(limiter.peek("alice").cost(2).now()?.remaining(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek<'a>(&'a self, key: impl Into<AnyKey<'a>>) -> Request<'a, Decision> {
        self.request(key, Verb::Peek(1))
    }

    /// Spends one token, or [another cost](Request::cost), now or at a later time, at most
    /// `max_wait` from now.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per(1, Duration::from_secs(60)).build()?);
    /// assert!(limiter.take("job").now()?.is_allowed());
    /// let grant = limiter.reserve("job", Duration::from_secs(60)).now()?.granted().unwrap();
    /// assert!(grant.wait > Duration::from_secs(59));
    /// limiter.settle("job", -1, Some(&grant.receipt)).now()?; // cancelled: given back
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<'a>(
        &'a self,
        key: impl Into<AnyKey<'a>>,
        max_wait: Duration,
    ) -> Request<'a, Decision> {
        self.request(key, Verb::Reserve(1, max_wait))
    }

    /// Corrects an earlier spend by `delta` tokens. A positive delta charges more, into debt if
    /// necessary; a negative one gives back.
    ///
    /// The receipt identifies the bucket that was actually charged. It is not a proof of payment
    /// and can be used more than once: keeping track of settlements is up to the caller.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(1).capacity(5).build()?);
    /// let grant = limiter.take("alice").cost(5).now()?.granted().unwrap();
    /// let settled = limiter.settle("alice", -3, Some(&grant.receipt)).now()?;
    /// assert_eq!(settled.outcomes[0].remaining, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle<'a>(
        &'a self,
        key: impl Into<AnyKey<'a>>,
        delta: i64,
        receipt: Option<&'a Receipt>,
    ) -> Request<'a, Settlement> {
        self.request(key, Verb::Settle(delta, receipt))
    }

    /// Waits until a token, or [another cost](Acquire::cost), can be spent, and spends it. Waiters
    /// are served in order of arrival.
    ///
    /// Keys do not wait for each other. All limiters of this name in the process share the queue. A
    /// waiter that is dropped has spent nothing.
    ///
    /// The [`Permit`](crate::pacer::Permit) reports how long the wait was, and can be settled;
    /// dropping it gives no tokens back. To wait for several limits, with turns between tenants or
    /// with bounded concurrency, use a [`Pacer`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tidegate::clock::TokioClock;
    /// use tidegate::{Engine, MemoryStore, Policy};
    ///
    /// let engine = Engine::on(MemoryStore::builder().clock(TokioClock::new()).build()?);
    /// let limiter = engine.limiter("api", Policy::per_second(1).build()?)?;
    /// assert_eq!(limiter.wait("alice").await?.waited(), Duration::ZERO);
    /// assert_eq!(limiter.wait("alice").await?.waited(), Duration::from_secs(1));
    /// assert!(limiter.wait("alice").max_wait(Duration::from_millis(10)).await.is_err());
    /// # Ok(())
    /// # }
    /// ```
    pub fn wait<'a>(&self, key: impl Into<AnyKey<'a>>) -> Acquire {
        let key = key.into();
        let key = key.as_key();
        // One tenant per key, so that no key waits for another.
        let tenant = match key.group() {
            Some(group) => Cow::Owned(format!("{group}\0{}", key.name())),
            None => Cow::Borrowed(key.name()),
        };
        let pacer = self.live_limit.pacer(|| Pacer::new(&self.engine));
        pacer.acquire([self.charge(key, 1).per_tenant()]).tenant(&tenant)
    }

    /// Takes one slot of a [concurrency](Policy::concurrency) limit: at once with
    /// [`now`](Acquire::now), or as soon as one is free with `.await`. The slot is released when
    /// the permit is dropped.
    ///
    /// A lease is renewed while the permit lives. On a limit of another kind this is
    /// [`wait`](Self::wait), and dropping the permit releases nothing.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let uploads = Limiter::new(Policy::concurrency(1, None)?);
    /// let slot = uploads.slot("alice").now()?;
    /// assert!(uploads.slot("alice").now().is_err());
    /// drop(slot);
    /// assert!(uploads.slot("alice").now().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn slot<'a>(&self, key: impl Into<AnyKey<'a>>) -> Acquire {
        self.wait(key)
    }

    /// Releases the slots of a [`take`](Self::take) on a concurrency limit. Returns how many were
    /// still held. The permit of a [`slot`](Self::slot) releases its slot by itself.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let uploads = Limiter::new(Policy::concurrency(2, None)?);
    /// let grant = uploads.take("alice").cost(2).now()?.granted().unwrap();
    /// assert_eq!(uploads.release("alice", &grant.receipt).now()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release<'a>(
        &'a self,
        key: impl Into<AnyKey<'a>>,
        receipt: &'a Receipt,
    ) -> Request<'a, u64> {
        self.request(key, Verb::Release(receipt))
    }

    /// Renews the slot leases of a [`take`](Self::take). Returns how many were still held.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Limiter, Policy};
    /// let uploads = Limiter::new(Policy::concurrency(2, Some(Duration::from_secs(30)))?);
    /// let grant = uploads.take("alice").now()?.granted().unwrap();
    /// assert_eq!(uploads.renew("alice", &grant.receipt).now()?, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew<'a>(
        &'a self,
        key: impl Into<AnyKey<'a>>,
        receipt: &'a Receipt,
    ) -> Request<'a, u64> {
        self.request(key, Verb::Renew(receipt))
    }

    /// Closes a key for `span`; it reopens empty. Returns how long the key is closed from now.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(1).capacity(5).build()?);
    /// use std::time::Duration;
    /// limiter.hold("alice", Duration::from_secs(30)).now()?;
    /// assert!(!limiter.take("alice").now()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold<'a>(&'a self, key: impl Into<AnyKey<'a>>, span: Duration) -> Request<'a, Duration> {
        self.request(key, Verb::Hold(span))
    }

    /// Forgets the state of a key. Returns whether there was any.
    ///
    /// ```
    /// use tidegate::{Limiter, Policy};
    /// let limiter = Limiter::new(Policy::per_second(1).capacity(5).build()?);
    /// let _ = limiter.take("alice").cost(5).now()?;
    /// assert!(limiter.reset("alice").now()?);
    /// assert_eq!(limiter.take("alice").now()?.remaining(), 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset<'a>(&'a self, key: impl Into<AnyKey<'a>>) -> Request<'a, bool> {
        self.request(key, Verb::Reset)
    }

    #[inline]
    fn request<'a, T>(&'a self, key: impl Into<AnyKey<'a>>, verb: Verb<'a>) -> Request<'a, T> {
        let (live_limit, store) = (&self.live_limit, self.engine.store());
        let wall = live_limit.wall_time(store);
        Request::new(store, DeferredOperation::One { live_limit, key: key.into(), wall, verb })
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("limit", &self.limit().name())
            .field("policy", &self.policy())
            .field("engine", &self.engine)
            .finish()
    }
}
