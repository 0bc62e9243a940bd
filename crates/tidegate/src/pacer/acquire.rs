//! Acquiring a permit: options, granting at once, joining the queue, and blocking a thread.

use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::StoreError;
use tidegate_core::decide::check_list;

use super::acquire_future::{AcquireFuture, QueuedWaiter};
use super::claim::{Claim, Oversize};
use super::driver::driver_slot::{DriverSlot, Executor};
use super::driver::leases::StoreGrant;
use super::error::AcquireError;
use super::group::SlotGroup;
use super::inner::{PacerInner, State, watch};
use super::pending_acquire::{ChargeResult, PendingAcquire};
use super::permit::{GrantDetails, OnDrop, Permit};
use super::scheduler::caller::CallerId;
use super::scheduler::class::Priority;
use super::scheduler::queue::QueueKey;
use super::scheduler::slab::Id;
use crate::store_handle::now_or_never;

/// A request for a permit. Nothing happens until it is awaited, or run with [`now`](Self::now) or
/// [`blocking`](Self::blocking).
#[must_use = "nothing happens until the request is awaited"]
pub struct Acquire {
    inner: Arc<PacerInner>,
    claims: SmallVec<[Claim; 1]>,
    queue_key: QueueKey,
    max_wait: Option<Duration>,
    oversize: Oversize,
    on_drop: OnDrop,
    groups: SmallVec<[SlotGroup; 2]>,
}

impl Acquire {
    pub(super) fn new(inner: Arc<PacerInner>, claims: SmallVec<[Claim; 1]>) -> Self {
        let tenant = inner.default_tenant().clone();
        let (caller, priority) = (CallerId::UNSPECIFIED, Priority::Normal);
        let queue_key = QueueKey { caller, priority, tenant, weight: 1 };
        let (oversize, on_drop) = (Oversize::default(), OnDrop::default());
        Self {
            inner,
            claims,
            queue_key,
            max_wait: None,
            oversize,
            on_drop,
            groups: SmallVec::new(),
        }
    }

    /// Sets the longest wait, counted from the first poll. If the projected wait is longer, the
    /// request is refused at once, with the projection, and spends nothing. Timers fire a little
    /// late, so a waiter that was due in time is granted up to 5 ms later. Default: no limit.
    pub fn max_wait(mut self, span: Duration) -> Self {
        self.max_wait = Some(span);
        self
    }

    /// Sets the caller. Callers take turns by cost before tenants do. Default:
    /// [`CallerId::UNSPECIFIED`], so that tenants take turns and priorities count among all.
    pub fn caller(mut self, caller: CallerId) -> Self {
        self.queue_key.caller = caller;
        self
    }

    /// Sets the tenant. Tenants of a caller take turns by cost; within a tenant it is first come,
    /// first served. Default: one tenant for all.
    pub fn tenant(mut self, name: &str) -> Self {
        self.queue_key.tenant = name.into();
        self
    }

    /// Sets how much the tenant may spend per turn, as a multiple of other tenants. Default: 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.queue_key.weight = weight.max(1).into();
        self
    }

    /// Sets the priority class. Default: [`Priority::Normal`].
    pub fn priority(mut self, priority: Priority) -> Self {
        self.queue_key.priority = priority;
        self
    }

    /// Allows a cost above the capacity of its limit: it is granted when the bucket is full, and
    /// the rest becomes debt, up to the policy's `max_debt`; more than that is refused. Default:
    /// refused at once.
    pub fn into_debt(mut self) -> Self {
        self.oversize = Oversize::Debt;
        self
    }

    /// Sets whether the tokens are given back if the permit is dropped without being settled,
    /// because the call was not made. Default: `false`, they stay spent.
    pub fn refund_on_drop(mut self, is_refunded: bool) -> Self {
        self.on_drop = OnDrop::refund(is_refunded);
        self
    }

    /// Takes a slot of a group as well. While the group has none the whole tenant is skipped, so
    /// use different tenants for different groups. Default: no group.
    pub fn in_group(mut self, group: &SlotGroup) -> Self {
        self.groups.push(group.clone());
        self
    }

    /// Returns a permit without waiting, or an error with the projected wait. Refused while others
    /// wait for the same limits, so that it overtakes no waiter. For the in-process store only: a
    /// shared store does not answer at once, so await with a [`max_wait`](Self::max_wait) there.
    ///
    /// # Errors
    /// When it would have to wait, can never be granted, or the store is shared.
    pub fn now(self) -> Result<Permit, AcquireError> {
        if !self.inner.is_local() {
            return Err(AcquireError::MustAwait);
        }
        let mut wait = self.max_wait(Duration::ZERO).into_future();
        match wait.start(Waker::noop()) {
            Poll::Ready(done) => done,
            // A wait of zero never stays pending.
            Poll::Pending => Err(AcquireError::WouldWait),
        }
    }

    /// Sets the cost of every charge. Default: the cost that each charge was created with.
    pub fn cost(mut self, tokens: u64) -> Self {
        self.claims.iter_mut().for_each(|claim| claim.cost = tokens);
        self
    }

    /// Blocks this thread until there is a permit. Not for use inside a runtime.
    ///
    /// # Errors
    /// When the wait would be, or becomes, too long, or the cost can never be granted.
    pub fn blocking(self) -> Result<Permit, AcquireError> {
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        // This thread is blocked, so a runtime that it may have entered does not make progress
        // here.
        let mut wait = self.into_future().on_thread();
        loop {
            match Pin::new(&mut wait).poll(&mut context) {
                Poll::Ready(done) => return done,
                Poll::Pending => thread::park(),
            }
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl IntoFuture for Acquire {
    type Output = Result<Permit, AcquireError>;
    type IntoFuture = AcquireFuture;

    fn into_future(self) -> AcquireFuture {
        AcquireFuture::new(self)
    }
}

impl fmt::Debug for Acquire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire")
            .field("claims", &self.claims)
            .field("queue_key", &self.queue_key)
            .field("max_wait", &self.max_wait)
            .finish_non_exhaustive()
    }
}

impl Acquire {
    /// Grants at once if there are no waiters, else joins the queue and sets `queued`.
    pub(super) fn start(
        self,
        waker: &Waker,
        executor: Executor,
        queued: &mut Option<QueuedWaiter>,
    ) -> Poll<Result<Permit, AcquireError>> {
        self.check(executor)?;
        let Self { inner, claims, queue_key, max_wait, oversize, on_drop, groups } = self;
        let (buckets, peer) = (SmallVec::new(), queue_key.caller.peer);
        let mut pending = PendingAcquire { claims, buckets, oversize, peer, groups };
        let mut state = inner.lock();
        if inner.is_local()
            && state.scheduler.can_skip_queue(&queue_key, || inner.now())
            && !state.scheduler.slots.is_full()
            && state.take_slots_of(&pending)
        {
            match now_or_never(pending.charge(inner.store(), Duration::ZERO)) {
                Some(ChargeResult::Granted { receipt, charged, lease, .. }) => {
                    pending.set_charged(&charged);
                    state.scheduler.slots.take();
                    state.slot_granted();
                    let lease = lease.map(|lease| {
                        let mut kept =
                            state.leases.register(&pending, &receipt, lease, inner.now());
                        state.drivers.ensure_lease_driver(&mut kept.driver_slot, executor, &inner);
                        state.schedule_renewal();
                        kept
                    });
                    let call_start = state.call_started();
                    drop(state);
                    let (waited, parts) = (Duration::ZERO, Vec::new());
                    let store_grant = StoreGrant { receipt, lease };
                    let details =
                        GrantDetails { pending, store_grant, waited, parts, on_drop, call_start };
                    return Poll::Ready(Ok(Permit::new(inner, details)));
                }
                Some(ChargeResult::NeverFits(index)) => {
                    state.put_slots_back(&pending);
                    return Poll::Ready(Err(never_fits(&pending.claims[index])));
                }
                Some(ChargeResult::Failed(error)) => {
                    state.put_slots_back(&pending);
                    return Poll::Ready(Err(error.into()));
                }
                Some(ChargeResult::Blocked(_)) | None => state.put_slots_back(&pending),
            }
        }
        let id = state.join(&inner, pending, &queue_key, max_wait)?;
        let driver_slot = DriverSlot::default();
        let mut waiter = QueuedWaiter { inner: inner.clone(), id, driver_slot, on_drop, max_wait };
        inner.advance(&mut state);
        let done = waiter.poll_waiter(&mut state, waker, executor);
        let waits = done.is_none() && (max_wait != Some(Duration::ZERO) || !inner.is_local());
        let driven =
            waits && state.drivers.ensure_driver(&mut waiter.driver_slot, executor, &inner);
        let wakes = state.scheduler.take_wakes();
        drop(state);
        drop(wakes);
        match done {
            Some(done) => Poll::Ready(Ok(Permit::new(inner, done?))),
            None if driven => {
                *queued = Some(waiter);
                Poll::Pending
            }
            None => {
                waiter.leave();
                Poll::Ready(Err(if waits { not_driven(&inner) } else { AcquireError::WouldWait }))
            }
        }
    }

    fn check(&self, executor: Executor) -> Result<(), AcquireError> {
        if !self.claims.iter().all(|claim| claim.is_on(self.inner.store())) {
            return Err(AcquireError::OtherEngine);
        }
        if !self.inner.is_local() && executor == Executor::Thread {
            return Err(AcquireError::NoRuntime);
        }
        check_list(self.claims.iter().map(|claim| claim.key.as_key())).map_err(StoreError::from)?;
        Ok(())
    }
}

impl State {
    /// Adds a request to the queue, unless the queue is full or the wait would be too long.
    fn join(
        &mut self,
        inner: &Arc<PacerInner>,
        mut pending: PendingAcquire,
        queue_key: &QueueKey,
        max_wait: Option<Duration>,
    ) -> Result<Id, AcquireError> {
        if self.scheduler.is_full_for(queue_key) {
            return Err(AcquireError::QueueFull(self.scheduler.waiting()));
        }
        pending.buckets = pending.claims.iter().map(|claim| self.buckets.acquire(claim)).collect();
        let weight = pending.weight();
        // A shared store reports the wait when the request is at the head.
        if let (Some(max_wait), true) = (max_wait, inner.is_local()) {
            let ahead = |index: usize| {
                self.scheduler.tokens_ahead(queue_key, weight, pending.buckets[index])
            };
            if let Err(error) = soon_enough(&pending, inner, ahead, max_wait) {
                self.buckets.release(&pending);
                return Err(error);
            }
        }
        watch(inner, &pending);
        let now = inner.now();
        let deadline = max_wait.map(|max_wait| now.after(max_wait));
        Ok(self.scheduler.join(queue_key, weight, deadline, pending, now))
    }
}

fn soon_enough(
    pending: &PendingAcquire,
    inner: &PacerInner,
    ahead: impl Fn(usize) -> u128,
    max_wait: Duration,
) -> Result<(), AcquireError> {
    let projected = now_or_never(pending.projected(inner.store(), ahead));
    match projected.unwrap_or(Ok(Ok(Duration::ZERO)))? {
        Ok(projected) if projected <= max_wait => Ok(()),
        Ok(projected) => Err(AcquireError::TooLong { projected, max_wait }),
        Err(index) => Err(never_fits(&pending.claims[index])),
    }
}

pub(super) fn never_fits(claim: &Claim) -> AcquireError {
    AcquireError::NeverFits(claim.limit())
}

/// No driver can be started: there is no thread for it, or no runtime to call a shared store.
pub(super) fn not_driven(inner: &PacerInner) -> AcquireError {
    if inner.is_local() { AcquireError::NoDriver } else { AcquireError::NoRuntime }
}
