//! Waiting for limits: fair queues, deadlines, exact cancellation, adaptive concurrency.
//!
//! A [`Pacer`] is one queue for one set of shared limits, such as those of an API key.
//! [`acquire`](Pacer::acquire) waits until all charges fit together and returns a [`Permit`]. On
//! the in-process store nothing is spent ahead of time: the whole list is charged at the instant of
//! the grant.
//!
//! - Within a tenant, waiters go in order of arrival; between tenants, deficit round robin shares
//!   by cost; above that come priorities with guaranteed shares. No waiter is overtaken by a
//!   smaller request.
//! - A service with untrusted clients names the [`CallerId`] of each request. Callers take turns
//!   first; tenants and priorities divide only the share of their caller.
//! - Only a granted task is woken: N waiters cost N wake-ups. No task sleeps while it holds a lock.
//! - Dropping a waiter at any point gives back exactly what it held and lets the others advance.
//! - A wait that would be too long is refused at once.
//! - Slots of the store that have a lease are renewed while their permit lives. If the process dies
//!   they expire, so a crash frees them.
//!
//! On a shared store the queue stays in this process, and only its head calls the store: it makes a
//! reservation at most 250 ms ahead, so that holds, priorities and policy changes still take
//! effect. Order is guaranteed within a process, not between processes, and a wait that is too long
//! is detected only when the waiter reaches the head.
//!
//! While a key has waiters, a [`take`](crate::Limiter::take) on a limiter, or a list decided by an
//! [`Engine`], is denied with the projected wait, so that it overtakes no waiter. There is no order
//! between two pacers: waiters that should take turns must use the same one. A pacer is one queue,
//! and its head blocks the others. To wait for a limit with many keys, use
//! [`Limiter::wait`](crate::Limiter::wait), which keeps keys apart, or one pacer per key.

mod acquire;
mod acquire_future;
mod adaptive;
mod claim;
mod driver;
mod error;
mod group;
mod inner;
#[cfg(all(test, shuttle))]
mod model_shuttle;
mod pending_acquire;
mod permit;
mod pool;
mod scheduler;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use acquire::Acquire;
pub use adaptive::{PermitOutcome, Tuning};
pub use error::AcquireError;
pub use group::SlotGroup;
pub(crate) use pending_acquire::project;
pub use permit::Permit;
pub use pool::{AdaptiveState, PoolGauges, PoolSize, SlotPool};
pub use scheduler::caller::CallerId;
pub use scheduler::class::Priority;
pub use scheduler::wait_attribution::WaitPart;

use crate::charge::Charge;
use crate::engine::Engine;
use crate::store_handle::{StoreClock, StoreHandle};

use claim::Claim;
use driver::Drivers;
use inner::PacerInner;
use scheduler::Scheduler;
use scheduler::class::GuaranteedShares;
use scheduler::slots::Slots;

/// Default maximum number of waiters.
const DEFAULT_MAX_WAITING: usize = 100_000;

/// A fair queue for one set of limits. Cheap to clone; clones share the queue.
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
    inner: Arc<PacerInner>,
    /// The pool of an adaptive concurrency, used by this pacer alone.
    own_pool: Option<SlotPool>,
}

/// State of a pacer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// Number of waiters.
    pub waiting: usize,
    /// Number of permits in use.
    pub in_flight: u64,
    /// Maximum number of permits in use: the smaller of the pacer's own limit and that of its pool;
    /// `None` if unlimited.
    pub concurrency: Option<u64>,
    /// Whether there is no free slot, of its own or of its pool, for another permit.
    pub is_full: bool,
    /// Number of permits so far that [lost](Permit::has_lost_slots) slots of the store.
    pub lost: u64,
}

impl Pacer {
    /// Creates a pacer on the store of this engine, with unlimited concurrency.
    #[must_use]
    pub fn new(engine: &Engine) -> Self {
        Self::builder(engine).build()
    }

    /// Returns a builder for a pacer on the store of this engine.
    pub fn builder(engine: &Engine) -> PacerBuilder {
        PacerBuilder {
            store: engine.store().clone(),
            concurrency: None,
            adaptive: None,
            pool: None,
            max_waiting: DEFAULT_MAX_WAITING,
            shares: [0, 20, 5],
            is_manual: false,
        }
    }

    /// Waits until all charges fit together, then spends them. [`Acquire`] has the options.
    pub fn acquire<'a>(&self, charges: impl IntoIterator<Item = Charge<'a>>) -> Acquire {
        Acquire::new(self.inner.clone(), charges.into_iter().map(Claim::from).collect())
    }

    /// Changes the maximum number of permits in use. If it shrinks, permits in use drain; if it
    /// grows, waiters are woken at once. An adaptive concurrency continues from this value, within
    /// its bounds; `None` removes the limit and ends the adaptation. The size of a shared
    /// [pool](PacerBuilder::pool) is a separate limit and does not change.
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
            (None, limit) => self.inner.update(|state| {
                state.scheduler.slots.resize(limit.map(|limit| limit.max(1)));
            }),
        }
    }

    /// Returns the current state.
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
        let state = self.inner.lock();
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

    /// Name of the limit that waiters currently wait for, or [`WaitPart::CONCURRENCY`]; `None` if
    /// there are no waiters.
    ///
    /// ```
    /// # use std::future::{Future, IntoFuture};
    /// # use std::task::{Context, Waker};
    /// # use tidegate::{Engine, Policy, pacer::Pacer};
    /// # let engine = Engine::new();
    /// # let calls = engine.limiter("calls", Policy::per_minute(1).build()?)?;
    /// let pacer = Pacer::builder(&engine).manual().build();
    /// let _first = pacer.acquire([calls.charge("key", 1)]).now()?;
    /// assert_eq!(pacer.blocking_limit(), None);
    /// let mut second = Box::pin(pacer.acquire([calls.charge("key", 1)]).into_future());
    /// assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert_eq!(pacer.blocking_limit().as_deref(), Some("calls"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn blocking_limit(&self) -> Option<Arc<str>> {
        self.inner.lock().scheduler.blocking_limit().cloned()
    }

    /// Renews leases that are due and grants what can be granted now. Returns how long until there
    /// is more to do; `None` means not before something changes. Drivers call this automatically,
    /// unless the pacer is driven [manually](PacerBuilder::manual).
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
    /// let pacer = Pacer::builder(&engine).manual().build();
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
        self.inner.lock().leases.sweep();
        let until = self.inner.refresh();
        until.map(|until| until.since(self.inner.now()))
    }

    /// Checks the limits again now. Policy changes and permits, of this pacer and of others, do
    /// that automatically. Call it after a limiter was reset, refunded or opened in another way.
    pub fn nudge(&self) {
        self.inner.update(|state| state.scheduler.nudge(self.inner.now()));
    }
}

impl fmt::Debug for Pacer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pacer").field("gauges", &self.gauges()).finish_non_exhaustive()
    }
}

/// Builds a [`Pacer`].
#[derive(Clone, Debug)]
#[must_use = "call `build` to create the pacer"]
pub struct PacerBuilder {
    store: StoreHandle,
    concurrency: Option<u64>,
    adaptive: Option<Tuning>,
    pool: Option<SlotPool>,
    max_waiting: usize,
    shares: GuaranteedShares,
    is_manual: bool,
}

impl PacerBuilder {
    /// Sets the maximum number of permits in use, at least 1. Default: unlimited.
    pub fn concurrency(mut self, limit: u64) -> Self {
        self.concurrency = Some(limit.max(1));
        self
    }

    /// Lets the concurrency adapt, within bounds, to the outcomes that calls report with
    /// [`Permit::finish`]. Ignored if the pacer uses a shared [`pool`](Self::pool): that has its
    /// own size ([`PoolSize`]).
    pub fn adaptive(mut self, tuning: Tuning) -> Self {
        self.adaptive = Some(tuning);
        self
    }

    /// Takes slots from a pool that is shared with other pacers, in addition to its own
    /// concurrency.
    pub fn pool(mut self, pool: &SlotPool) -> Self {
        self.pool = Some(pool.clone());
        self
    }

    /// Sets the maximum number of waiters; further ones are refused at once. Default: 100,000.
    pub fn max_waiting(mut self, waiters: usize) -> Self {
        self.max_waiting = waiters;
        self
    }

    /// Sets the share in percent that a class gets no matter what higher classes want. Default: 20
    /// for normal, 5 for low. If the sum exceeds 100, lower classes are cut.
    pub fn min_share(mut self, priority: Priority, percent: u8) -> Self {
        self.shares[priority.index()] = percent.min(100);
        self
    }

    /// Leaves time to the owner, who calls [`Pacer::poll`]: the pacer uses neither timers nor
    /// threads. For simulations and programs with their own timers. A pacer on a
    /// [`ManualClock`](crate::clock::ManualClock) does not need this: it uses neither as well, and
    /// goes on when that clock is moved.
    pub fn manual(mut self) -> Self {
        self.is_manual = true;
        self
    }

    /// Builds the pacer.
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
        // An adaptive concurrency replaces a fixed one.
        let concurrency = self.concurrency.filter(|_| own_pool.is_none());
        let member = self.pool.as_ref().or(own_pool.as_ref()).map(SlotPool::own_member);
        let scheduler = Scheduler::new(Slots::new(concurrency), self.max_waiting, shares);
        let drivers = if self.is_manual { Drivers::manual() } else { Drivers::default() };
        let inner = PacerInner::new(self.store, scheduler, member.as_ref(), drivers);
        Pacer { inner, own_pool }
    }
}
