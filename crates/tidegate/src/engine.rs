//! An engine: a store, and lists of charges that it decides all or nothing.

pub(crate) mod limit_registry;
mod save;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::{
    Decision, Limit, LimitError, Operation, Policy, Receipt, Settlement, WallTime,
};
use tidegate_memory::MemoryStore;

use crate::charge::Charge;
use crate::engine::limit_registry::LimitRegistry;
use crate::limiter::Limiter;
use crate::live_limit::LiveLimit;
use crate::request::{DeferredOperation, ListVerb, Request};
use crate::store_handle::StoreHandle;

/// A store and the named limits on it. Cheap to clone; clones share the buckets.
///
/// The methods here take lists. A list is spent completely or not at all. A denial names the
/// binding limit and the longest wait:
///
/// ```
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let client = engine.limiter("client", Policy::per_second(50).burst(2).build()?)?;
/// let organization = engine.limiter("organization", Policy::per_second(500).build()?)?;
///
/// let decision = engine.take([client.charge("alice", 3), organization.charge("acme", 3)]).now()?;
/// assert!(!decision.is_allowed());
/// assert_eq!(decision.binding(), 0, "the first charge binds");
/// assert_eq!(organization.peek("acme").cost(0).now()?.remaining(), 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Engine {
    store: StoreHandle,
    limits: Arc<LimitRegistry>,
}

impl Engine {
    /// Creates an engine on an in-process store of at most 64 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::on(MemoryStore::new())
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine {
    /// Creates an engine on a store that several processes share, such as a `RedisStore`, or on any
    /// other [`Store`](crate::Store).
    ///
    /// The store is put behind a [guard](crate::guard) with default settings: a call waits for the
    /// store at most 50 ms, and while the store does not answer, the failure rules of the limits
    /// decide. For other settings, build a guard and pass it to [`on`](Self::on).
    ///
    /// ```
    /// use tidegate::{Engine, MemoryStore, Policy};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let engine = Engine::shared(MemoryStore::new())?; // any store
    /// let api = engine.limiter("api", Policy::per_second(100).build()?)?;
    /// assert!(api.take("alice").await?.is_allowed());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When the operating system provides no random bytes.
    #[cfg(feature = "tokio")]
    pub fn shared(store: impl crate::Store + 'static) -> Result<Self, crate::guard::GuardError> {
        Ok(Self::on(crate::guard::GuardedStore::builder(Arc::new(store)).build()?))
    }

    /// Creates an engine on a store: a [`MemoryStore`], a guarded store, or any
    /// [shared](StoreHandle::shared) handle.
    ///
    /// ```
    /// use tidegate::{Engine, MemoryStore};
    /// let store = MemoryStore::builder().max_memory(8 << 20).build()?;
    /// let engine = Engine::on(store);
    /// # Ok::<(), tidegate_memory::MemoryError>(())
    /// ```
    ///
    /// Limit names are known to an engine and its clones only, so create one engine per store.
    #[must_use]
    pub fn on(store: impl Into<StoreHandle>) -> Self {
        Self { store: store.into(), limits: Arc::default() }
    }

    /// The store that this engine decides on.
    ///
    /// ```
    /// use tidegate::Engine;
    /// assert_eq!(Engine::new().store().local().map(|store| store.len()), Some(0));
    /// ```
    #[must_use]
    pub const fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Returns a limiter under this name. Limiters with the same name share their buckets and their
    /// policy, including later [changes](Limiter::reconfigure) of it.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let policy = Policy::per_second(1).capacity(2).build()?;
    /// let (one, same) = (engine.limiter("api", policy)?, engine.limiter("api", policy)?);
    /// let _ = one.take("alice").now()?;
    /// assert_eq!(same.take("alice").now()?.remaining(), 0);
    /// assert!(engine.limiter("api", Policy::per_second(9).build()?).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the name does not match `[a-z][a-z0-9_.-]*`, when it already has another policy, when
    /// the policy is a calendar quota, which needs a schedule (see `calendar`), or when the store
    /// [cannot decide](crate::Store::check_limit) the limit.
    pub fn limiter(&self, name: &str, policy: Policy) -> Result<Limiter, LimitError> {
        self.register(LiveLimit::new(Limit::named(name, policy)?)?)
    }

    /// Returns the limiter with this name, if it was created on this engine or a clone. Its policy
    /// is the current one, not necessarily the one it was created with.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// engine.limiter("client", Policy::per_second(50).build()?)?;
    /// assert!(engine.find("client").is_some());
    /// assert!(engine.find("nobody").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn find(&self, name: &str) -> Option<Limiter> {
        Some(Limiter::on(self.clone(), self.limits.find(name)?))
    }

    /// Returns all named limits in their current state. This includes [retired](Self::retire)
    /// limits, because their buckets may still be in the store.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// engine.limiter("client", Policy::per_second(50).build()?)?;
    /// assert_eq!(engine.limits()[0].name(), "client");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn limits(&self) -> Vec<Limit> {
        self.limits.all()
    }

    /// Retires a limit. Returns whether there was a limit with this name.
    ///
    /// The name becomes free, also for another policy. A limit that is later created under the name
    /// continues from this one: buckets keep their tokens. Existing limiters keep deciding, and
    /// follow the policy of a later limit with the name.
    ///
    /// The engine remembers the 16,384 most recently retired limits. An older one starts a new
    /// history when it comes back, and its buckets that were written under a revised policy count as
    /// empty.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let client = engine.limiter("client", Policy::per_minute(1).capacity(9).build()?)?;
    /// assert_eq!(client.take("alice").cost(8).now()?.remaining(), 1);
    /// assert!(engine.retire("client"));
    /// assert!(engine.find("client").is_none());
    /// let client = engine.limiter("client", Policy::per_minute(2).capacity(5).build()?)?;
    /// assert_eq!(client.peek("alice").cost(0).now()?.remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retire(&self, name: &str) -> bool {
        let (retired, forgotten) = self.limits.retire(name);
        if let Some(store) = self.store.local() {
            forgotten.iter().for_each(|limit| store.forget_limit(limit));
        }
        retired
    }

    fn register(&self, live_limit: LiveLimit) -> Result<Limiter, LimitError> {
        Ok(Limiter::on(self.clone(), self.limits.register(live_limit, &self.store)?))
    }

    fn unnamed(&self, live_limit: LiveLimit) -> Result<Limiter, LimitError> {
        self.store.check_limit(&live_limit.limit())?;
        Ok(Limiter::on(self.clone(), Arc::new(live_limit)))
    }

    pub(crate) fn registry(&self) -> &LimitRegistry {
        &self.limits
    }

    /// Returns an unnamed limiter. Unnamed limiters with equal policies share their buckets.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let limiter = Engine::new().inline(Policy::per_second(1).capacity(2).build()?)?;
    /// assert_eq!(limiter.take("alice").now()?.remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the policy is a calendar quota, which needs a schedule, or when the store
    /// [cannot decide](crate::Store::check_limit) the limit.
    pub fn inline(&self, policy: Policy) -> Result<Limiter, LimitError> {
        self.unnamed(LiveLimit::new(Limit::inline(policy))?)
    }

    /// Returns a limiter of `amount` tokens per window of a schedule, under a name. Needs the
    /// feature `calendar`.
    ///
    /// ```
    /// use tidegate::{Engine, Schedule};
    /// let daily = Schedule::daily("America/Los_Angeles")?;
    /// let limiter = Engine::new().calendar("daily", 10_000, daily)?;
    /// assert_eq!(limiter.take("alice").now()?.remaining(), 9_999);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the amount is zero or the name does not match `[a-z][a-z0-9_.-]*`.
    #[cfg(feature = "calendar")]
    pub fn calendar(
        &self,
        name: &str,
        amount: u64,
        schedule: crate::Schedule,
    ) -> Result<Limiter, LimitError> {
        let limit = Limit::named(name, Policy::quota(amount)?)?;
        self.register(LiveLimit::with_schedule(limit, schedule))
    }

    /// Returns an unnamed limiter of `amount` tokens per window of a schedule. Limiters with the
    /// same calendar name and amount share their buckets. Needs the feature `calendar`.
    ///
    /// ```
    /// use tidegate::{Engine, Schedule};
    /// let daily = Schedule::daily("UTC")?;
    /// let limiter = Engine::new().inline_calendar("day:UTC", 3, daily)?;
    /// assert_eq!(limiter.take("alice").now()?.remaining(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the amount is zero.
    #[cfg(feature = "calendar")]
    pub fn inline_calendar(
        &self,
        calendar: &str,
        amount: u64,
        schedule: crate::Schedule,
    ) -> Result<Limiter, LimitError> {
        let limit = Limit::inline_on(calendar, Policy::quota(amount)?);
        self.unnamed(LiveLimit::with_schedule(limit, schedule))
    }

    /// Wall time from which calendar windows are computed: the store's, if it has one, else the
    /// machine's.
    #[must_use]
    pub fn wall_time(&self) -> WallTime {
        self.store.wall_time()
    }

    /// Spends all charges now, or denies and spends nothing.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).burst(5).build()?)?;
    /// assert_eq!(engine.take([api.charge("alice", 2)]).now()?.remaining(), 3);
    /// assert_eq!(engine.take([api.charge("alice", 2)]).now()?.remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take<'a>(
        &'a self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> Request<'a, Decision> {
        self.list(charges, ListVerb::Take)
    }

    /// Returns the decision that [`take`](Self::take) would make now, and spends nothing. Advisory:
    /// another caller may be faster.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).burst(5).build()?)?;
    /// assert_eq!(engine.peek([api.charge("alice", 2)]).now()?.remaining(), 3);
    /// assert_eq!(engine.peek([api.charge("alice", 2)]).now()?.remaining(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek<'a>(
        &'a self,
        charges: impl IntoIterator<Item = Charge<'a>>,
    ) -> Request<'a, Decision> {
        self.list(charges, ListVerb::Peek)
    }

    /// Spends all charges now or at a later time, at most `max_wait` from now.
    ///
    /// The caller proceeds after [`Grant::wait`](crate::Grant::wait). To cancel before that,
    /// [`settle`](Self::settle) the negative costs with the receipt.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).burst(5).build()?)?;
    /// assert!(engine.take([api.charge("alice", 5)]).now()?.is_allowed());
    /// let later = engine.reserve([api.charge("alice", 5)], Duration::from_secs(60)).now()?;
    /// assert!(later.granted().unwrap().wait > Duration::from_secs(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<'a>(
        &'a self,
        charges: impl IntoIterator<Item = Charge<'a>>,
        max_wait: Duration,
    ) -> Request<'a, Decision> {
        self.list(charges, ListVerb::Reserve(max_wait))
    }

    /// Corrects an earlier spend by a number of tokens per charge. Positive numbers charge more,
    /// into debt if necessary; negative numbers give back. The receipt identifies the buckets that
    /// were actually charged. The costs of the charges are ignored.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).burst(5).build()?)?;
    /// let charge = api.charge("alice", 5);
    /// let grant = engine.take([charge.clone()]).now()?.granted().unwrap();
    /// let settlement = engine.settle([(charge, -3)], Some(&grant.receipt)).now()?;
    /// assert_eq!(settlement.outcomes[0].remaining, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle<'a>(
        &'a self,
        corrections: impl IntoIterator<Item = (Charge<'a>, i64)>,
        receipt: Option<&'a Receipt>,
    ) -> Request<'a, Settlement> {
        let (charges, deltas): (Vec<_>, _) = corrections.into_iter().unzip();
        self.list(charges, ListVerb::Settle(deltas, receipt))
    }

    /// Releases the concurrency slots of a receipt; `charges` are those of the receipt. Returns how
    /// many were still held.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let calls = engine.limiter("calls", Policy::concurrency(2, None)?)?;
    /// let charge = calls.charge("alice", 2);
    /// let grant = engine.take([charge.clone()]).now()?.granted().unwrap();
    /// assert_eq!(engine.release([charge.clone()], &grant.receipt).now()?, 2);
    /// assert!(engine.take([charge]).now()?.is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release<'a>(
        &'a self,
        charges: impl IntoIterator<Item = Charge<'a>>,
        receipt: &'a Receipt,
    ) -> Request<'a, u64> {
        self.list(charges, ListVerb::Release(receipt))
    }

    /// Renews the slot leases of a receipt; `charges` are those of the receipt. Returns how many
    /// were still held.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let lease = Some(Duration::from_secs(30));
    /// let calls = engine.limiter("calls", Policy::concurrency(2, lease)?)?;
    /// let charge = calls.charge("alice", 2);
    /// let grant = engine.take([charge.clone()]).now()?.granted().unwrap();
    /// assert_eq!(engine.renew([charge], &grant.receipt).now()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew<'a>(
        &'a self,
        charges: impl IntoIterator<Item = Charge<'a>>,
        receipt: &'a Receipt,
    ) -> Request<'a, u64> {
        self.list(charges, ListVerb::Renew(receipt))
    }

    /// Runs an operation of the [`Store`](crate::Store) contract on limits that the caller holds,
    /// for servers that decide on behalf of clients. `T` must be the answer type of the operation.
    ///
    /// ```
    /// use tidegate::{Decision, Engine, Policy};
    /// use tidegate_core::Operation;
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).burst(5).build()?)?.snapshot();
    /// let charges = [api.charge("alice", 2)];
    /// let decision: Decision = engine.operation(Operation::Take(&charges)).now()?;
    /// assert_eq!(decision.remaining(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn operation<'a, T>(&'a self, operation: Operation<'a>) -> Request<'a, T> {
        Request::new(&self.store, DeferredOperation::Raw(operation))
    }

    fn list<'a, T>(
        &'a self,
        charges: impl IntoIterator<Item = Charge<'a>>,
        verb: ListVerb<'a>,
    ) -> Request<'a, T> {
        Request::new(&self.store, DeferredOperation::List(charges.into_iter().collect(), verb))
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", &self.store).finish_non_exhaustive()
    }
}
