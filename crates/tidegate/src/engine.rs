//! An engine: a store, and lists of charges decided on it all-or-nothing.

mod save;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tidegate_core::{
    Charge, Correction, Decision, Limit, LimitError, Operation, Policy, Receipt, Settlement, Store,
    Target, WallTime,
};
use tidegate_memory::MemoryStore;
use tidegate_memory::clock::wall_now;

use crate::limiter::Limiter;
use crate::request::{Call, Request};
use crate::terms::Terms;

/// Why a calendar limiter cannot be made.
#[cfg(feature = "calendar")]
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CalendarError {
    /// The name is not usable.
    #[error(transparent)]
    Name(#[from] LimitError),
    /// The amount is zero.
    #[error(transparent)]
    Amount(#[from] tidegate_core::PolicyError),
}

/// A store to decide on. Cheap to clone; clones share the buckets.
///
/// The verbs here take lists. A list is spent whole or not at all, and a denial names the
/// binding limit and the longest wait:
///
/// ```
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let client = engine.limiter("client", Policy::per_second(50).capacity(2).build()?)?;
/// let organization = engine.limiter("organization", Policy::per_second(500).build()?)?;
///
/// let terms = (client.snapshot(), organization.snapshot());
/// let charges = [terms.0.charge("alice", 3), terms.1.charge("acme", 3)];
/// let decision = engine.take(&charges).now();
/// assert!(!decision.is_allowed());
/// assert_eq!(charges[decision.binding()].target.limit.name(), "client");
/// assert_eq!(organization.peek("acme").cost(0).now().remaining(), 500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Engine<S: ?Sized = MemoryStore> {
    store: Arc<S>,
    /// The limits that have a name. One name is one policy: two would not agree on what a bucket
    /// of theirs means.
    named: Arc<Mutex<Named>>,
}

/// The terms of limits, by name.
type Named = HashMap<Arc<str>, Arc<Terms>>;

impl Engine {
    /// An engine on an in-process store of at most 64 MiB.
    #[must_use]
    pub fn new() -> Self {
        Self::on(Arc::new(MemoryStore::new()))
    }
}

impl Default for Engine {
    fn default() -> Self {
        Self::new()
    }
}

impl<S: Store + ?Sized> Engine<S> {
    /// An engine on this store; `Engine<dyn Store>` is one on any store.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::{Engine, MemoryStore, Store};
    /// let store = MemoryStore::builder().max_memory(8 << 20).build()?;
    /// let engine: Engine<dyn Store> = Engine::on(Arc::new(store));
    /// # Ok::<(), tidegate::MemoryError>(())
    /// ```
    ///
    /// Names are known to an engine and its clones: make one engine for a store.
    #[must_use]
    pub fn on(store: Arc<S>) -> Self {
        Self { store, named: Arc::default() }
    }

    /// The store.
    ///
    /// ```
    /// use tidegate::Engine;
    /// assert_eq!(Engine::new().store().len(), 0);
    /// ```
    #[must_use]
    pub fn store(&self) -> &S {
        &self.store
    }

    pub(crate) const fn shared_store(&self) -> &Arc<S> {
        &self.store
    }

    /// A limiter on this store, under a name. Limiters of one name share their buckets and their
    /// policy, also when it is [reconfigured](Limiter::reconfigure).
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let policy = Policy::per_second(1).capacity(2).build()?;
    /// let (one, same) = (engine.limiter("api", policy)?, engine.limiter("api", policy)?);
    /// let _ = one.take("alice").now();
    /// assert_eq!(same.take("alice").now().remaining(), 0);
    /// assert!(engine.limiter("api", Policy::per_second(9).build()?).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the name is not `[a-z][a-z0-9_.-]*`, has another policy already, or the policy is a
    /// calendar quota, which needs a schedule: see [`calendar`](Self::calendar).
    pub fn limiter(&self, name: &str, policy: Policy) -> Result<Limiter<S>, LimitError> {
        self.register(Terms::new(Limit::named(name, policy)?)?)
    }

    /// The limiter of a name, if one was made on this engine or on a clone of it. It has the policy of
    /// this moment, whatever it was made with.
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
    pub fn find(&self, name: &str) -> Option<Limiter<S>> {
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let terms = named.get(name)?.clone();
        drop(named);
        Some(Limiter::on(self.clone(), terms))
    }

    /// The limits that have a name, each as it is now.
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
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        named.values().map(|terms| terms.limit()).collect()
    }

    fn register(&self, terms: Terms) -> Result<Limiter<S>, LimitError> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        check_name(&named, &terms)?;
        let terms = give_name(&mut named, terms);
        Ok(Limiter::on(self.clone(), terms))
    }

    /// Gives all of these their names, or none: the terms that have each of them then.
    pub(crate) fn register_all<const N: usize>(
        &self,
        terms: [Option<Terms>; N],
    ) -> Result<[Option<Arc<Terms>>; N], LimitError> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        terms.iter().flatten().try_for_each(|terms| check_name(&named, terms))?;
        Ok(terms.map(|terms| terms.map(|terms| give_name(&mut named, terms))))
    }

    /// A limiter on this store without a name: limiters of equal policy share their buckets.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let limiter = Engine::new().inline(Policy::per_second(1).capacity(2).build()?)?;
    /// assert_eq!(limiter.take("alice").now().remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the policy is a calendar quota, which needs a schedule.
    pub fn inline(&self, policy: Policy) -> Result<Limiter<S>, LimitError> {
        Ok(Limiter::on(self.clone(), Arc::new(Terms::new(Limit::inline(policy))?)))
    }

    /// A limiter of `amount` in every window of a schedule, under a name.
    ///
    /// ```
    /// use tidegate::{Engine, Every, Schedule};
    /// let daily = Schedule::new(Every::Day, "America/Los_Angeles")?;
    /// let limiter = Engine::new().calendar("daily", 10_000, daily)?;
    /// assert_eq!(limiter.take("alice").now().remaining(), 9_999);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When the amount is zero or the name is not `[a-z][a-z0-9_.-]*`.
    #[cfg(feature = "calendar")]
    pub fn calendar(
        &self,
        name: &str,
        amount: u64,
        schedule: crate::Schedule,
    ) -> Result<Limiter<S>, CalendarError> {
        let limit = Limit::named(name, Policy::quota(amount)?)?;
        Ok(self.register(Terms::scheduled(limit, schedule))?)
    }

    /// The wall time to compute calendar windows from: the store's if it can tell, else the
    /// machine's.
    #[must_use]
    pub fn wall_time(&self) -> WallTime {
        self.store.wall_time().unwrap_or_else(wall_now)
    }

    /// Spends every charge now, or denies and spends nothing.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// let api = api.snapshot();
    /// assert_eq!(engine.take(&[api.charge("alice", 2)]).now().remaining(), 3);
    /// assert_eq!(engine.take(&[api.charge("alice", 2)]).now().remaining(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn take<'a>(&'a self, charges: &'a [Charge<'a>]) -> Request<'a, S, Decision> {
        self.request(Operation::Take(charges))
    }

    /// Says what [`take`](Self::take) would say; spends nothing. Advisory: others may be faster.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// let api = api.snapshot();
    /// assert_eq!(engine.peek(&[api.charge("alice", 2)]).now().remaining(), 3);
    /// assert_eq!(engine.peek(&[api.charge("alice", 2)]).now().remaining(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn peek<'a>(&'a self, charges: &'a [Charge<'a>]) -> Request<'a, S, Decision> {
        self.request(Operation::Peek(charges))
    }

    /// Spends every charge now or at a stated time, not later than `max_wait` from now.
    ///
    /// The caller goes ahead after [`Grant::wait`](crate::Grant::wait). To cancel before that,
    /// [`settle`](Self::settle) the negative costs with the receipt.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// use std::time::Duration;
    /// let api = api.snapshot();
    /// let charges = [api.charge("alice", 5)];
    /// assert!(engine.take(&charges).now().is_allowed());
    /// let later = engine.reserve(&charges, Duration::from_secs(60)).now().granted().unwrap();
    /// assert!(later.wait > Duration::from_secs(4));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reserve<'a>(
        &'a self,
        charges: &'a [Charge<'a>],
        max_wait: Duration,
    ) -> Request<'a, S, Decision> {
        self.request(Operation::Reserve { charges, horizon: max_wait })
    }

    /// Corrects an earlier spend: positive deltas charge more, into debt if need be, negative
    /// ones give back. The receipt names the buckets that were really charged.
    ///
    /// ```
    /// use tidegate::{Correction, Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// let api = api.snapshot();
    /// let grant = engine.take(&[api.charge("alice", 5)]).now().granted().unwrap();
    /// let back = [Correction { target: api.target("alice"), delta: -3 }];
    /// let settlement = engine.settle(&back, Some(&grant.receipt)).try_now()?;
    /// assert_eq!(settlement.outcomes[0].remaining, 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settle<'a>(
        &'a self,
        corrections: &'a [Correction<'a>],
        receipt: Option<&'a Receipt>,
    ) -> Request<'a, S, Settlement> {
        self.request(Operation::Settle { corrections, receipt })
    }

    /// Gives back the concurrency slots of a receipt. Answers how many were still held.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let lease = Some(Duration::from_secs(30));
    /// let calls = engine.limiter("calls", Policy::concurrency(2, lease)?)?.snapshot();
    /// let charges = [calls.charge("alice", 2)];
    /// let grant = engine.take(&charges).now().granted().unwrap();
    /// assert_eq!(engine.release(&[calls.target("alice")], &grant.receipt).try_now()?, 2);
    /// assert!(engine.take(&charges).now().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn release<'a>(
        &'a self,
        targets: &'a [Target<'a>],
        receipt: &'a Receipt,
    ) -> Request<'a, S, u64> {
        self.request(Operation::Release { targets, receipt })
    }

    /// Starts the leases of a receipt's slots anew. Answers how many were still held.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let lease = Some(Duration::from_secs(30));
    /// let calls = engine.limiter("calls", Policy::concurrency(2, lease)?)?.snapshot();
    /// let charges = [calls.charge("alice", 2)];
    /// let grant = engine.take(&charges).now().granted().unwrap();
    /// assert_eq!(engine.renew(&[calls.target("alice")], &grant.receipt).try_now()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn renew<'a>(
        &'a self,
        targets: &'a [Target<'a>],
        receipt: &'a Receipt,
    ) -> Request<'a, S, u64> {
        self.request(Operation::Renew { targets, receipt })
    }

    /// Closes a key for `span`; it reopens empty. Answers how long it is closed from now.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// use std::time::Duration;
    /// let api = api.snapshot();
    /// engine.hold(api.target("alice"), Duration::from_secs(30)).try_now()?;
    /// assert!(!engine.take(&[api.charge("alice", 1)]).now().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hold<'a>(&'a self, target: Target<'a>, span: Duration) -> Request<'a, S, Duration> {
        self.request(Operation::Hold { target, span })
    }

    /// Forgets a key. Answers whether there was anything to forget.
    ///
    /// ```
    /// use tidegate::{Engine, Policy};
    /// let engine = Engine::new();
    /// let api = engine.limiter("api", Policy::per_second(1).capacity(5).build()?)?;
    /// let api = api.snapshot();
    /// let _ = engine.take(&[api.charge("alice", 5)]).now();
    /// assert!(engine.reset(api.target("alice")).try_now()?);
    /// assert!(engine.take(&[api.charge("alice", 5)]).now().is_allowed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn reset<'a>(&'a self, target: Target<'a>) -> Request<'a, S, bool> {
        self.request(Operation::Reset { target })
    }

    fn request<'a, T>(&'a self, operation: Operation<'a>) -> Request<'a, S, T> {
        Request::new(self.store(), Call::List(operation))
    }
}

impl<S: ?Sized> Clone for Engine<S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), named: self.named.clone() }
    }
}

impl From<Engine> for Engine<dyn Store> {
    /// The same engine, for those who take any store.
    fn from(engine: Engine) -> Self {
        Self { store: engine.store, named: engine.named }
    }
}

impl<S: Store + ?Sized> fmt::Debug for Engine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine").field("store", &&*self.store).finish()
    }
}

/// Refuses terms whose name others have with another policy.
fn check_name(named: &Named, terms: &Terms) -> Result<(), LimitError> {
    let limit = terms.limit();
    match named.get(limit.identity()) {
        Some(known) if !known.agree_with(terms) => Err(LimitError::Taken(limit.name().to_owned())),
        _ => Ok(()),
    }
}

/// The terms that have this name from now on: these, unless others have it already.
fn give_name(named: &mut Named, terms: Terms) -> Arc<Terms> {
    let identity = terms.limit().shared_identity();
    named.entry(identity).or_insert_with(|| Arc::new(terms)).clone()
}
