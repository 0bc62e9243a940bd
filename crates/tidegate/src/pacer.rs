//! Waiting well: fair queues, deadlines, exact cancellation, concurrency that adapts.
//!
//! A [`Pacer`] is the queue of one scope: one set of shared limits, such as those of an API key.
//! [`acquire`](Pacer::acquire) waits until all charges fit together and returns a [`Permit`]. In
//! process nothing is spent ahead: the whole list is charged at the instant of the grant.
//!
//! - Inside a tenant waiters go in order of arrival, between tenants deficit round robin shares by
//!   cost, above that priorities with guaranteed shares. Nobody is overtaken by a smaller request.
//! - Whoever serves strangers names the [`Caller`] of each request: callers take turns first, and
//!   tenants and priorities divide only the share of the caller that uses them.
//! - Only a granted task is woken: N waiters cost N wake-ups. No lock is held asleep.
//! - Dropping a waiter at any point gives back exactly what it held and moves the others on.
//! - A wait that would be too long is refused at once.
//! - Slots of the store that have a lease are renewed while their permit lives. Without its
//!   process they run out, so that a crash frees them.
//!
//! On a shared store the queue stays in this process, and only its head talks to the store: it is
//! asked to reserve within the last 250 ms, so that holds, priorities and changes of policy still
//! count. Order is promised inside a process, not between processes, and a wait that is too long is
//! found out when its turn comes.
//!
//! A [`take`](crate::Limiter::take) on a limiter, and a list decided by an [`Engine`], are denied, with
//! the projected wait, while somebody waits for tokens of the same key: nobody is overtaken by them.
//! Between two pacers there is no order: those who shall take turns wait in one of them. A pacer is
//! one queue, whose head holds up the others; limits with many keys are waited for by
//! [`Limiter::wait`](crate::Limiter::wait), which keeps keys apart, or in a pacer for each key.

mod acquire;
mod adaptive;
mod claim;
mod driver;
mod error;
mod group;
#[cfg(all(test, shuttle))]
mod model_shuttle;
mod pending_acquire;
mod permit;
mod pool;
mod scheduler;
mod scope;
mod waiting;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use acquire::Acquire;
pub use adaptive::{CallOutcome, Tuning};
pub use error::AcquireError;
pub use group::SlotGroup;
pub(crate) use pending_acquire::project;
pub use permit::Permit;
pub use pool::{AdaptiveState, PoolGauges, PoolSize, SlotPool};
pub use scheduler::caller::Caller;
pub use scheduler::class::Priority;
pub use scheduler::wait_attribution::WaitPart;

use crate::charge::Charge;
use crate::engine::Engine;
use crate::store_handle::{StoreClock, StoreHandle};

use claim::Claim;
use driver::Drivers;
use scheduler::Scheduler;
use scheduler::class::Shares;
use scheduler::slots::Slots;
use scope::Scope;

/// How many may wait unless set otherwise.
const DEFAULT_MAX_WAITING: usize = 100_000;

/// The queue of one scope. Cheap to clone; clones share the queue.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tidegate::pacer::Pacer;
/// use tidegate::{Engine, Policy};
///
/// let engine = Engine::new();
/// let requests = engine.limiter("requests", Policy::per_minute(600).capacity(10).build()?)?;
/// let tokens = engine.limiter("tokens", Policy::per_minute(90_000).capacity(1_500).build()?)?;
/// let pacer = Pacer::builder(&engine).concurrency(8).build();
///
/// let permit = pacer
///     .acquire([requests.charge("key-1", 1), tokens.charge("key-1", 800)])
///     .tenant("team-a")
///     .max_wait(Duration::from_secs(30))
///     .await?;
/// assert_eq!(permit.waited(), Duration::ZERO);
/// assert_eq!(pacer.gauges().in_flight, 1);
/// drop(permit);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Pacer {
    scope: Arc<Scope>,
    /// The pool of a concurrency that adapts, which this pacer has for itself.
    own_pool: Option<SlotPool>,
}

/// How a pacer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// How many wait.
    pub waiting: usize,
    /// How many permits are out.
    pub in_flight: u64,
    /// How many may be out, by the smaller of its own bound and that of its pool; `None` if there is
    /// no bound.
    pub concurrency: Option<u64>,
    /// Whether there is no slot, of its own or of its pool, for another permit.
    pub is_full: bool,
    /// How many permits were found to have [lost](Permit::is_lost) slots of the store so far.
    pub lost: u64,
}

impl Pacer {
    /// A pacer on the store of this engine, without a bound on concurrency.
    #[must_use]
    pub fn new(engine: &Engine) -> Self {
        Self::builder(engine).build()
    }

    /// A pacer with other settings.
    pub fn builder(engine: &Engine) -> PacerBuilder {
        PacerBuilder {
            store: engine.store().clone(),
            concurrency: None,
            adaptive: None,
            pool: None,
            max_waiting: DEFAULT_MAX_WAITING,
            shares: [0, 20, 5],
            by_hand: false,
        }
    }

    /// Waits until all charges fit together, then spends them. See [`Acquire`] for options.
    pub fn acquire<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> Acquire {
        Acquire::new(self.scope.clone(), charges.into_iter().map(Claim::from).collect())
    }

    /// Changes how many permits may be out. Shrinking lets those under way drain; growing wakes
    /// waiters at once. A concurrency that adapts goes on from here, within its bounds; `None` takes
    /// the bound away, and ends the adapting. The size of a shared [pool](PacerBuilder::pool) is
    /// another limit, which stays.
    ///
    /// ```
    /// # use tidegate::{Engine, Policy, pacer::Pacer};
    /// # let engine = Engine::new();
    /// # let calls = engine.limiter("calls", Policy::per_second(50).build()?)?;
    /// let pacer = Pacer::builder(&engine).concurrency(1).build();
    /// let _first = pacer.acquire([calls.charge("key", 1)]).now()?;
    /// assert!(pacer.acquire([calls.charge("key", 1)]).now().is_err());
    /// pacer.set_concurrency(Some(2));
    /// assert!(pacer.acquire([calls.charge("key", 1)]).now().is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_concurrency(&self, limit: Option<u64>) {
        match (&self.own_pool, limit) {
            (Some(pool), Some(limit)) => pool.restart(limit),
            (Some(pool), None) => pool.resize(PoolSize::Unlimited),
            (None, limit) => self.scope.act(|state| {
                state.scheduler.slots.resize(limit.map(|limit| limit.max(1)));
            }),
        }
    }

    /// How it stands.
    ///
    /// ```
    /// use tidegate::pacer::Pacer;
    /// use tidegate::Engine;
    /// let pacer = Pacer::builder(&Engine::new()).concurrency(8).build();
    /// let gauges = pacer.gauges();
    /// assert_eq!((gauges.waiting, gauges.in_flight, gauges.concurrency), (0, 0, Some(8)));
    /// ```
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let state = self.scope.lock();
        let pool = state.pool.as_ref().map(|pool| pool.pool().gauges());
        let is_pool_full =
            pool.is_some_and(|pool| pool.limit.is_some_and(|it| pool.in_flight >= it));
        let pool = pool.and_then(|pool| pool.limit);
        Gauges {
            is_full: state.scheduler.slots.is_full() || is_pool_full,
            waiting: state.scheduler.waiting(),
            in_flight: state.scheduler.slots.in_flight(),
            concurrency: state.scheduler.slots.limit().into_iter().chain(pool).min(),
            lost: state.leases.lost(),
        }
    }

    /// The name of the limit that those who wait wait for now, or
    /// [`WaitPart::CONCURRENCY`]; `None` if nobody waits.
    ///
    /// ```
    /// # use std::future::{Future, IntoFuture};
    /// # use std::task::{Context, Waker};
    /// # use tidegate::{Engine, Policy, pacer::Pacer};
    /// # let engine = Engine::new();
    /// # let calls = engine.limiter("calls", Policy::per_minute(1).build()?)?;
    /// let pacer = Pacer::builder(&engine).by_hand().build();
    /// let _first = pacer.acquire([calls.charge("key", 1)]).now()?;
    /// assert_eq!(pacer.waits_for(), None);
    /// let mut second = Box::pin(pacer.acquire([calls.charge("key", 1)]).into_future());
    /// assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert_eq!(pacer.waits_for().as_deref(), Some("calls"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn waits_for(&self) -> Option<Arc<str>> {
        self.scope.lock().scheduler.waits_for().cloned()
    }

    /// Renews leases that are due, grants what can be granted now, and says how long until there is more to do; `None` until
    /// something happens. Drivers do this by themselves, unless the pacer is driven
    /// [by hand](PacerBuilder::by_hand).
    ///
    /// ```
    /// use std::future::{Future, IntoFuture};
    /// use std::task::{Context, Waker};
    /// use std::time::Duration;
    /// # use tidegate::clock::ManualClock;
    /// # use tidegate::{Engine, MemoryStore, Policy, pacer::Pacer};
    /// # let clock = ManualClock::new();
    /// # let store = MemoryStore::builder().clock(clock.clone()).build()?;
    /// # let engine = Engine::on(store);
    /// # let calls = engine.limiter("calls", Policy::per_second(1).build()?)?;
    /// let pacer = Pacer::builder(&engine).by_hand().build();
    /// let _first = pacer.acquire([calls.charge("key", 1)]).now()?;
    /// let mut second = Box::pin(pacer.acquire([calls.charge("key", 1)]).into_future());
    /// let mut context = Context::from_waker(Waker::noop());
    /// assert!(second.as_mut().poll(&mut context).is_pending());
    /// assert_eq!(pacer.poll(), Some(Duration::from_secs(1)));
    /// clock.advance(Duration::from_secs(1));
    /// pacer.poll();
    /// assert!(second.as_mut().poll(&mut context).is_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn poll(&self) -> Option<Duration> {
        self.scope.lock().leases.sweep();
        let until = self.scope.refresh();
        until.map(|until| until.since(self.scope.now()))
    }

    /// Looks at the limits again now. Changes of policy and permits of this pacer do that by
    /// themselves, permits of other pacers too; call it after a limiter was reset, refunded or
    /// opened in another way.
    pub fn nudge(&self) {
        self.scope.act(|state| state.scheduler.nudge(self.scope.now()));
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("gauges", &self.gauges()).finish_non_exhaustive()
    }
}

/// Builds a [`Pacer`].
#[derive(Clone, Debug)]
#[must_use = "a pacer is made by `build`"]
pub struct PacerBuilder {
    store: StoreHandle,
    concurrency: Option<u64>,
    adaptive: Option<Tuning>,
    pool: Option<SlotPool>,
    max_waiting: usize,
    shares: Shares,
    by_hand: bool,
}

impl PacerBuilder {
    /// How many permits may be out at the same time, at least 1. Default: no bound.
    pub fn concurrency(mut self, limit: u64) -> Self {
        self.concurrency = Some(limit.max(1));
        self
    }

    /// Lets the concurrency adapt to what the calls report through
    /// [`Permit::finish`], within bounds. A pool that several pacers share has a size of its own
    /// ([`PoolSize`]), and this is ignored then.
    pub fn adaptive(mut self, tuning: Tuning) -> Self {
        self.adaptive = Some(tuning);
        self
    }

    /// Takes slots from a pool that it shares with other pacers, beside its own concurrency.
    pub fn pool(mut self, pool: &SlotPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// How many may wait; others are refused at once. Default: 100,000.
    pub fn max_waiting(mut self, waiters: usize) -> Self {
        self.max_waiting = waiters;
        self
    }

    /// The share in percent that a class gets whatever classes above it want. Default: 20 for
    /// normal, 5 for low. What goes beyond 100 together is cut off the lower classes.
    pub fn min_share(mut self, priority: Priority, percent: u8) -> Self {
        self.shares[priority.index()] = percent.min(100);
        self
    }

    /// Leaves the time to the owner, who calls [`Pacer::poll`]: neither timers nor threads are
    /// used. For simulations and tests on a [`ManualClock`](crate::clock::ManualClock), and for
    /// programs that have a timer of their own.
    pub fn by_hand(mut self) -> Self {
        self.by_hand = true;
        self
    }

    /// The pacer.
    #[must_use]
    pub fn build(self) -> Pacer {
        let mut left = 100;
        let shares = self.shares.map(|share| {
            let share = share.min(left);
            left -= share;
            share
        });
        let own_pool = self.adaptive.filter(|_| self.pool.is_none()).map(|tuning| {
            let clock = StoreClock::of(&self.store);
            SlotPool::on(clock, PoolSize::Adaptive(tuning))
        });
        // A concurrency that adapts replaces a fixed one.
        let concurrency = self.concurrency.filter(|_| own_pool.is_none());
        let member = self.pool.as_ref().or(own_pool.as_ref()).map(SlotPool::own_member);
        let scheduler = Scheduler::new(Slots::new(concurrency), self.max_waiting, shares);
        let drivers = if self.by_hand { Drivers::by_hand() } else { Drivers::default() };
        let scope = Scope::new(self.store, scheduler, member.as_ref(), drivers);
        Pacer { scope, own_pool }
    }
}
