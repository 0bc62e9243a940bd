//! The shared part of a pacer: its queue and the store that it charges, under one lock.
//!
//! Every change advances the queue at once, under the lock, and wakes granted waiters after
//! releasing it. No task sleeps while it holds the lock. Drivers only watch the time.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{Receipt, Settlement, StoreError, Time};
use tidegate_memory::clock::ClockWatcher;

use super::adaptive::{CallStart, PermitOutcome};
use super::claim::{BucketName, Claim};
use super::driver::Drivers;
use super::driver::leases::{Leases, StoreGrant};
use super::group::SlotGroup;
use super::pending_acquire::{Block, ChargeResult, PendingAcquire, holds_slots, instant_after};
use super::permit::OnDrop;
use super::pool::{PoolHandle, PoolMember, SlotPool, SlotRequest};
use super::scheduler::slab::{Id, Slab};
use super::scheduler::wait_attribution::{Causes, WaitPart};
use super::scheduler::waiter::{Removed, WaitError};
use super::scheduler::{NextAction, Scheduler};
use crate::live_limit::LimitWatcher;
use crate::store_handle::{StoreClock, StoreHandle, now_or_never};
use crate::sync::{Mutex, MutexGuard};

/// State shared by the permits and waiters of one pacer.
pub(super) struct PacerInner {
    store: StoreHandle,
    clock: StoreClock,
    /// The tenant of requests that name none.
    default_tenant: Arc<str>,
    state: Mutex<State>,
}

/// The state under the lock.
pub(super) struct State {
    pub(super) scheduler: Scheduler<PendingAcquire, StoreGrant>,
    pub(super) buckets: Buckets,
    pub(super) drivers: Drivers,
    pub(super) leases: Leases,
    /// Its handle to a shared pool of slots, if it uses one.
    pub(super) pool: Option<PoolHandle>,
    /// Groups with free slots, to notify after unlocking.
    freed_groups: Vec<SlotGroup>,
    /// A weak pointer to itself.
    weak_self: Weak<PacerInner>,
    /// Reservations of drivers whose runtime was shut down, to be given back by another driver.
    #[cfg(feature = "tokio")]
    pub(super) abandoned: Vec<(PendingAcquire, Receipt)>,
    /// The head for which a driver is calling a shared store.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "shared stores need tokio"))]
    pub(super) head_in_call: Option<Id>,
}

/// The locked state. Freed slots are handed out after unlocking.
pub(super) struct StateGuard<'s> {
    state: MutexGuard<'s, State>,
    // Dropped after the guard.
    freed: FreedSlots,
}

/// Hands out the free slots of a pool, and notifies groups, when dropped.
#[derive(Default)]
struct FreedSlots {
    pool: Option<SlotPool>,
    groups: Vec<SlotGroup>,
}

impl Deref for StateGuard<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for StateGuard<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for StateGuard<'_> {
    fn drop(&mut self) {
        self.freed.pool = self.state.pool.as_mut().and_then(PoolHandle::take_freed);
        self.freed.groups = std::mem::take(&mut self.state.freed_groups);
    }
}

impl Drop for FreedSlots {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.hand_out();
        }
        self.groups.iter().for_each(SlotGroup::notify);
    }
}

impl PacerInner {
    pub(super) fn new(
        store: StoreHandle,
        scheduler: Scheduler<PendingAcquire, StoreGrant>,
        member: Option<&PoolMember>,
        drivers: Drivers,
    ) -> Arc<Self> {
        let clock = StoreClock::of(&store);
        let buckets = Buckets::default();
        let state = State {
            scheduler,
            buckets,
            drivers,
            pool: None,
            freed_groups: Vec::new(),
            weak_self: Weak::new(),
            leases: Leases::default(),
            #[cfg(feature = "tokio")]
            abandoned: Vec::new(),
            head_in_call: None,
        };
        let inner = Arc::new_cyclic(|inner: &Weak<Self>| {
            let pool = member.map(|member| member.handle(inner.clone()));
            let state = Mutex::new(State { pool, weak_self: inner.clone(), ..state });
            Self { store, clock, default_tenant: "".into(), state }
        });
        inner.watch_clock();
        inner
    }

    /// Lets a clock that a program moves drive the waits, instead of drivers with timers.
    fn watch_clock(self: &Arc<Self>) {
        let watcher: Weak<Self> = Arc::downgrade(self);
        let mut state = self.lock();
        if !state.drivers.is_manual() && self.clock.watch(watcher) {
            state.drivers = Drivers::manual();
        }
    }

    pub(super) fn store(&self) -> &StoreHandle {
        &self.store
    }

    pub(super) fn default_tenant(&self) -> &Arc<str> {
        &self.default_tenant
    }

    /// Whether the store is the in-process one.
    pub(super) fn is_local(&self) -> bool {
        self.store.local().is_some()
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn lock(&self) -> StateGuard<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        StateGuard { state, freed: FreedSlots::default() }
    }

    /// Runs `update` under the lock, advances the queue, and wakes granted waiters.
    pub(super) fn update<R>(&self, update: impl FnOnce(&mut State) -> R) -> R {
        self.update_and_wake(self.lock(), update).0
    }

    /// Renews leases that are due, advances the queue, and wakes granted waiters. Returns when
    /// there is more to do.
    pub(super) fn refresh(self: &Arc<Self>) -> Option<Time> {
        self.update_and_wake(self.lock_renewed(), |_| ()).1
    }

    /// Runs `update` and advances the queue under the lock; then, without it, wakes granted
    /// waiters.
    fn update_and_wake<R>(
        &self,
        mut state: StateGuard<'_>,
        update: impl FnOnce(&mut State) -> R,
    ) -> (R, Option<Time>) {
        let result = update(&mut state);
        let until = self.advance(&mut state);
        let wakes = state.scheduler.take_wakes();
        drop(state);
        drop(wakes);
        (result, until)
    }

    /// Grants what can be granted now. Returns when there is more to do.
    pub(super) fn advance(&self, state: &mut State) -> Option<Time> {
        let queue = if state.scheduler.waiting() == 0 {
            state.set_idle();
            None
        } else {
            self.grant(state)
        };
        let until = earlier(queue, state.leases.next_due());
        state.drivers.set_alarm(until);
        until
    }

    /// Grants what can be granted now. Returns when to look at the queue again. A shared store is
    /// not called here; a driver is notified to do that.
    fn grant(&self, state: &mut State) -> Option<Time> {
        loop {
            let now = self.now();
            let id = match state.scheduler.next(now) {
                NextAction::Sleep(until) => {
                    state.set_idle();
                    return until;
                }
                // While one driver calls a shared store, the others watch deadlines.
                #[cfg(feature = "tokio")]
                NextAction::Try(_) if state.head_in_call.is_some() => {
                    return state.scheduler.next_timer();
                }
                NextAction::Try(id) => id,
            };
            if !state.enter_groups(id, now) {
                continue;
            }
            if let Err(growth) = state.take_slot() {
                state.leave_groups(id);
                let growth = growth.map(|after| now.after(after));
                return earlier(state.scheduler.wait_for_slot(now), growth);
            }
            #[cfg(feature = "tokio")]
            if !self.is_local() {
                // The driver that calls the store takes them again.
                state.leave_groups(id);
                return Some(now);
            }
            let Some(pending) = state.scheduler.pending(id) else { continue };
            let result = now_or_never(pending.charge(&self.store, Duration::ZERO));
            let result = result.unwrap_or_else(local_store_pending);
            if !matches!(result, ChargeResult::Granted { .. }) {
                state.leave_groups(id);
            }
            state.apply(id, result, now);
        }
    }

    /// Removes a waiter before it got its permit. What it was granted is given back.
    pub(super) fn leave(self: &Arc<Self>, id: Id) {
        let removed = self.update(|state| {
            let removed = state.scheduler.cancel(id, self.now());
            if state.head_in_call == Some(id) {
                // Its reservation is given back without waiting for the start.
                state.drivers.notify_all();
            }
            if let Some(Removed::Granted(pending, _)) = &removed {
                state.freed_groups.extend(pending.leave_groups());
                if let Some(pool) = &mut state.pool {
                    pool.give_back(None);
                }
            }
            match &removed {
                Some(Removed::Granted(pending, _) | Removed::Queued(pending)) => {
                    state.buckets.release(pending);
                }
                None => {}
            }
            removed
        });
        if let Some(Removed::Granted(pending, StoreGrant { receipt, lease })) = removed {
            drop(lease);
            if let Some(back) = self.give_back(&pending, &receipt, OnDrop::Refund) {
                self.store.detach(back);
            }
        }
    }

    /// Ends a permit: its slot is free, and `on_drop` says what happens to its tokens; `None` if
    /// they were already handled. `report` is the outcome and the start of its call.
    pub(super) fn release(
        self: &Arc<Self>,
        pending: &PendingAcquire,
        store_grant: &mut StoreGrant,
        on_drop: Option<OnDrop>,
        report: (PermitOutcome, CallStart),
    ) {
        let driver_slot = store_grant.lease.take().map(|lease| lease.driver_slot);
        if let Some(back) =
            on_drop.and_then(|on_drop| self.give_back(pending, &store_grant.receipt, on_drop))
        {
            self.store.detach(back);
        }
        self.update(|state| {
            if let Some(mut driver_slot) = driver_slot {
                state.drivers.lease_ended(&mut driver_slot);
            }
            state.scheduler.slots.give_back();
            state.freed_groups.extend(pending.leave_groups());
            if let Some(pool) = &mut state.pool {
                pool.give_back(Some(report));
            }
        });
    }

    /// Gives back tokens and slots, or only slots, and advances the queue; `None` if there is
    /// nothing to give back. The future has to be [detached](StoreHandle::detach) or awaited. A
    /// shared store needs a task for it; outside a runtime there is none, and what was spent stays
    /// spent.
    pub(super) fn give_back(
        self: &Arc<Self>,
        pending: &PendingAcquire,
        receipt: &Receipt,
        on_drop: OnDrop,
    ) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
        if on_drop == OnDrop::Keep && !holds_slots(receipt) {
            return None;
        }
        let inner = self.clone();
        let (pending, receipt) = (pending.clone(), receipt.clone());
        Some(async move {
            match on_drop {
                OnDrop::Refund => pending.refund(&inner.store, &receipt).await,
                OnDrop::Keep => pending.release_slots(&inner.store, &receipt).await,
            }
            pending.notify_watchers();
        })
    }

    /// Accepts a slot from the pool for the head. Returns `false` if there already is one.
    pub(super) fn offer_slot(&self) -> bool {
        let mut state = self.lock();
        let is_accepted = state.pool.as_mut().is_some_and(PoolHandle::accept);
        self.advance(&mut state);
        // The caller that offers continues with what this pacer did not use.
        state.pool.as_mut().and_then(PoolHandle::take_freed);
        let wakes = state.scheduler.take_wakes();
        drop(state);
        drop(wakes);
        is_accepted
    }

    /// Corrects what was charged, and advances the queue.
    pub(super) async fn settle(
        &self,
        pending: &PendingAcquire,
        deltas: &[i64],
        receipt: &Receipt,
    ) -> Result<Settlement, StoreError> {
        let settlement = pending.settle(&self.store, deltas, receipt).await;
        // Charging more cannot let a waiter go sooner.
        for (claim, _) in pending.claims.iter().zip(deltas).filter(|(_, delta)| **delta < 0) {
            claim.live_limit.notify_watchers();
        }
        settlement
    }
}

impl State {
    /// Takes slots of the groups of a waiter. If one of them is full, the waiter's tenant is
    /// parked.
    pub(super) fn enter_groups(&mut self, id: Id, now: Time) -> bool {
        let pending = self.scheduler.pending(id);
        let has_entered = pending.is_none_or(|pending| pending.try_enter_groups(&self.weak_self));
        if !has_entered {
            let slot = (WaitPart::CONCURRENCY.into(), None);
            self.scheduler.park(id, &Causes::from_iter([slot]), None, now);
        }
        has_entered
    }

    /// Releases the group slots of a waiter that is not granted now.
    pub(super) fn leave_groups(&mut self, id: Id) {
        if let Some(pending) = self.scheduler.pending(id) {
            self.freed_groups.extend(pending.leave_groups());
        }
    }

    /// Releases the group slots of a request.
    pub(super) fn leave_groups_of(&mut self, pending: &PendingAcquire) {
        self.freed_groups.extend(pending.leave_groups());
    }

    /// Takes the slots of a new request, of its groups and of the pool, or none.
    pub(super) fn take_slots_of(&mut self, pending: &PendingAcquire) -> bool {
        if !pending.try_enter_groups(&self.weak_self) {
            return false;
        }
        let has_slot = self.try_take_slot();
        if !has_slot {
            self.leave_groups_of(pending);
        }
        has_slot
    }

    /// Puts back the slots of a new request that is not granted now.
    pub(super) fn put_slots_back(&mut self, pending: &PendingAcquire) {
        self.leave_groups_of(pending);
        self.put_slot_back();
    }

    /// Takes a slot of the pool without waiting for a turn. Succeeds if there is no pool.
    pub(super) fn try_take_slot(&mut self) -> bool {
        self.pool.as_mut().is_none_or(PoolHandle::try_take)
    }

    /// Takes a slot of the pool for the head. Succeeds if there is no pool. The error is the time
    /// after which the pool grows, if it does.
    pub(super) fn take_slot(&mut self) -> Result<(), Option<Duration>> {
        let Self { pool, scheduler, .. } = self;
        match pool.as_mut().map(|pool| pool.take(scheduler.peers())) {
            None | Some(SlotRequest::Taken) => Ok(()),
            Some(SlotRequest::Waits(growth)) => Err(growth),
        }
    }

    /// Puts back a slot that is not needed now.
    pub(super) fn put_slot_back(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.put_back();
        }
    }

    /// No waiter could use a slot of the pool.
    pub(super) fn set_idle(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.set_idle();
        }
    }

    /// A waiter was charged: the slot belongs to it.
    pub(super) fn slot_granted(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.granted();
        }
    }

    /// Records the start of a call, for an adaptive concurrency.
    pub(super) fn call_started(&self) -> CallStart {
        self.pool.as_ref().map_or_else(CallStart::default, PoolHandle::call_started)
    }

    /// Makes drivers wake in time for new leases.
    pub(super) fn schedule_renewal(&mut self) {
        self.drivers.bring_alarm_forward(self.leases.next_due());
    }

    /// Applies the result of trying the head.
    pub(super) fn apply(&mut self, id: Id, result: ChargeResult, now: Time) {
        match result {
            ChargeResult::Granted { receipt, charged, lease, .. } => {
                let Some(pending) = self.scheduler.pending(id) else { return };
                let lease = lease.map(|lease| self.leases.register(pending, &receipt, lease, now));
                self.scheduler.grant(id, StoreGrant { receipt, lease }, now);
                self.slot_granted();
                if let Some(pending) = self.scheduler.pending_mut(id) {
                    pending.set_charged(&charged);
                }
            }
            ChargeResult::Blocked(Block { causes, per_tenant, wait, .. }) => {
                let Some(pending) = self.scheduler.pending(id) else { return };
                let named = |(index, wait): (usize, Option<Duration>)| {
                    (pending.claims[index].limit().into(), instant_after(wait, now))
                };
                let by: Causes = causes.into_iter().map(named).collect();
                let until = instant_after(wait, now);
                if per_tenant {
                    self.scheduler.park(id, &by, until, now);
                } else {
                    self.scheduler.block(id, by, until, now);
                }
            }
            ChargeResult::NeverFits(index) => self.scheduler.fail(id, WaitError::NeverFits(index)),
            ChargeResult::Failed(error) => self.scheduler.fail(id, WaitError::Store(error)),
        }
    }
}

/// The earlier of two optional times.
pub(super) fn earlier(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

fn local_store_pending() -> ChargeResult {
    ChargeResult::Failed(StoreError::Unavailable(
        "the in-process store did not answer at once".into(),
    ))
}

impl ClockWatcher for PacerInner {
    fn on_move(self: Arc<Self>) {
        self.refresh();
    }
}

impl LimitWatcher for PacerInner {
    fn on_change(&self) -> bool {
        self.update(|state| state.scheduler.nudge(self.now()));
        // A waiter that joins later registers again.
        self.lock().scheduler.waiting() > 0
    }
}

/// The buckets that waiters want tokens of, so that the demand ahead can be summed up.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    ids: HashMap<BucketName, Id>,
    known: Slab<(BucketName, usize)>,
}

impl Buckets {
    /// The id of a claim's bucket. Reference-counted: valid until released as often.
    pub(super) fn acquire(&mut self, claim: &Claim) -> Id {
        let bucket = claim.bucket();
        if let Some(&id) = self.ids.get(&bucket) {
            if let Some((_, claims)) = self.known.get_mut(id) {
                *claims += 1;
            }
            return id;
        }
        let id = self.known.insert((bucket.clone(), 1));
        self.ids.insert(bucket, id);
        id
    }

    pub(super) fn release(&mut self, pending: &PendingAcquire) {
        for &id in &pending.buckets {
            let Some((_, claims)) = self.known.get_mut(id) else { continue };
            *claims -= 1;
            if *claims == 0 {
                if let Some((bucket, _)) = self.known.remove(id) {
                    self.ids.remove(&bucket);
                }
            }
        }
    }
}

/// Registers the pacer to advance when a policy of the request's limits changes.
pub(super) fn watch(inner: &Arc<PacerInner>, pending: &PendingAcquire) {
    for claim in &pending.claims {
        let weak: Weak<PacerInner> = Arc::downgrade(inner);
        claim.watch(weak);
    }
}
