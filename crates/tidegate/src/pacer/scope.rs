//! The shared part of a pacer: its queue and the store that it charges, under one lock.
//!
//! Every change advances the queue at once, under the lock, and wakes granted waiters after
//! releasing it. No task sleeps while it holds the lock. Drivers only watch the time.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{Receipt, Settlement, StoreError, Time};

use super::adaptive::{CallOutcome, Departure};
use super::claim::{BucketName, Claim};
use super::driver::Drivers;
use super::driver::leases::{Holding, Leases};
use super::group::SlotGroup;
use super::pending_acquire::{Block, PendingAcquire, Verdict, holds_slots, in_time};
use super::permit::OnDrop;
use super::pool::{PoolHandle, PoolMember, SlotPool, SlotRequest};
use super::scheduler::slab::{Id, Slab};
use super::scheduler::wait_attribution::WaitPart;
use super::scheduler::waiter::{Left, Refused};
use super::scheduler::{Scheduler, Step};
use crate::store_handle::{StoreClock, StoreHandle, now_or_never};
use crate::sync::{Mutex, MutexGuard};
use crate::terms::Watch;

/// State shared by the permits and waiters of one pacer.
pub(super) struct Scope {
    store: StoreHandle,
    clock: StoreClock,
    /// The tenant of requests that name none.
    nobody: Arc<str>,
    state: Mutex<State>,
}

/// The state under the lock.
pub(super) struct State {
    pub(super) scheduler: Scheduler<PendingAcquire, Holding>,
    pub(super) buckets: Buckets,
    pub(super) drivers: Drivers,
    pub(super) leases: Leases,
    /// Its handle to a shared pool of slots, if it uses one.
    pub(super) pool: Option<PoolHandle>,
    /// Groups with free slots, to notify after unlocking.
    freed_groups: Vec<SlotGroup>,
    /// A weak pointer to itself.
    own: Weak<Scope>,
    /// Reservations of drivers whose runtime was shut down, to be given back by another driver.
    #[cfg(feature = "tokio")]
    pub(super) stranded: Vec<(PendingAcquire, Receipt)>,
    /// The head for which a driver is calling a shared store.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "shared stores need tokio"))]
    pub(super) asking: Option<Id>,
}

/// The locked state. Freed slots are handed out after unlocking.
pub(super) struct Locked<'s> {
    state: MutexGuard<'s, State>,
    // Dropped after the guard.
    freed: Freed,
}

/// Hands out the free slots of a pool, and notifies groups, when dropped.
#[derive(Default)]
struct Freed {
    pool: Option<SlotPool>,
    groups: Vec<SlotGroup>,
}

impl Deref for Locked<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.freed.pool = self.state.pool.as_mut().and_then(PoolHandle::take_freed);
        self.freed.groups = std::mem::take(&mut self.state.freed_groups);
    }
}

impl Drop for Freed {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            pool.hand_out();
        }
        self.groups.iter().for_each(SlotGroup::notify);
    }
}

impl Scope {
    pub(super) fn new(
        store: StoreHandle,
        scheduler: Scheduler<PendingAcquire, Holding>,
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
            own: Weak::new(),
            leases: Leases::default(),
            #[cfg(feature = "tokio")]
            stranded: Vec::new(),
            asking: None,
        };
        Arc::new_cyclic(|scope| {
            let pool = member.map(|member| member.handle(scope.clone()));
            let state = Mutex::new(State { pool, own: scope.clone(), ..state });
            Self { store, clock, nobody: "".into(), state }
        })
    }

    pub(super) fn store(&self) -> &StoreHandle {
        &self.store
    }

    pub(super) fn nobody(&self) -> &Arc<str> {
        &self.nobody
    }

    /// Whether the store is the in-process one.
    pub(super) fn is_local(&self) -> bool {
        self.store.local().is_some()
    }

    pub(super) fn now(&self) -> Time {
        self.clock.now()
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Locked { state, freed: Freed::default() }
    }

    /// Runs `update` under the lock, advances the queue, and wakes granted waiters.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.finish(self.lock(), act).0
    }

    /// Renews leases that are due, advances the queue, and wakes granted waiters. Returns when
    /// there is more to do.
    pub(super) fn refresh(self: &Arc<Self>) -> Option<Time> {
        self.finish(self.lock_renewed(), |_| ()).1
    }

    /// Runs `update` and advances the queue under the lock; then, without it, wakes granted
    /// waiters.
    fn finish<R>(
        &self,
        mut state: Locked<'_>,
        act: impl FnOnce(&mut State) -> R,
    ) -> (R, Option<Time>) {
        let result = act(&mut state);
        let until = self.move_on(&mut state);
        let wakes = state.scheduler.wakes();
        drop(state);
        drop(wakes);
        (result, until)
    }

    /// Grants what can be granted now. Returns when there is more to do.
    pub(super) fn move_on(&self, state: &mut State) -> Option<Time> {
        let queue = if state.scheduler.waiting() == 0 {
            state.rest();
            None
        } else {
            self.grant(state)
        };
        let until = sooner(queue, state.leases.tick());
        state.drivers.set_alarm(until);
        until
    }

    /// Grants what can be granted now. Returns when to look at the queue again. A shared store is
    /// not called here; a driver is notified to do that.
    fn grant(&self, state: &mut State) -> Option<Time> {
        loop {
            let now = self.now();
            let id = match state.scheduler.next(now) {
                Step::Rest(until) => {
                    state.rest();
                    return until;
                }
                // While one driver calls a shared store, the others watch deadlines.
                #[cfg(feature = "tokio")]
                Step::Try(_) if state.asking.is_some() => return state.scheduler.aside(),
                Step::Try(id) => id,
            };
            if !state.enter_groups(id, now) {
                continue;
            }
            if let Err(growth) = state.take_slot() {
                state.leave_groups(id);
                let growth = growth.map(|after| now.after(after));
                return sooner(state.scheduler.no_slot(now), growth);
            }
            #[cfg(feature = "tokio")]
            if !self.is_local() {
                // The driver that calls the store takes them again.
                state.leave_groups(id);
                return Some(now);
            }
            let Some(ticket) = state.scheduler.ticket(id) else { continue };
            let verdict = now_or_never(ticket.charge(&self.store, Duration::ZERO));
            let verdict = verdict.unwrap_or_else(not_at_once);
            if !matches!(verdict, Verdict::Granted { .. }) {
                state.leave_groups(id);
            }
            state.apply(id, verdict, now);
        }
    }

    /// Removes a waiter before it got its permit. What it was granted is given back.
    pub(super) fn leave(self: &Arc<Self>, id: Id) {
        let left = self.act(|state| {
            let left = state.scheduler.leave(id, self.now());
            if state.asking == Some(id) {
                // Its reservation is given back without waiting for the start.
                state.drivers.ring();
            }
            if let Some(Left::Granted(ticket, _)) = &left {
                state.freed_groups.extend(ticket.leave_groups());
                if let Some(pool) = &mut state.pool {
                    pool.give_back(None);
                }
            }
            match &left {
                Some(Left::Granted(ticket, _) | Left::Queued(ticket)) => {
                    state.buckets.forget(ticket);
                }
                None => {}
            }
            left
        });
        if let Some(Left::Granted(ticket, Holding { receipt, lease })) = left {
            drop(lease);
            if let Some(back) = self.returning(&ticket, &receipt, OnDrop::Refund) {
                self.store.detach(back);
            }
        }
    }

    /// Ends a permit: its slot is free, and `on_drop` says what happens to its tokens; `None` if
    /// they were already handled. `report` is the outcome and the start of its call.
    pub(super) fn release(
        self: &Arc<Self>,
        ticket: &PendingAcquire,
        holding: &mut Holding,
        fate: Option<OnDrop>,
        word: (CallOutcome, Departure),
    ) {
        let post = holding.lease.take().map(|lease| lease.post);
        if let Some(back) = fate.and_then(|fate| self.returning(ticket, &holding.receipt, fate)) {
            self.store.detach(back);
        }
        self.act(|state| {
            if let Some(mut post) = post {
                state.drivers.ended(&mut post);
            }
            state.scheduler.slots.give_back();
            state.freed_groups.extend(ticket.leave_groups());
            if let Some(pool) = &mut state.pool {
                pool.give_back(Some(word));
            }
        });
    }

    /// Gives back tokens and slots, or only slots, and advances the queue; `None` if there is
    /// nothing to give back. The future has to be [detached](StoreHandle::detach) or awaited. A
    /// shared store needs a task for it; outside a runtime there is none, and what was spent stays
    /// spent.
    pub(super) fn returning(
        self: &Arc<Self>,
        ticket: &PendingAcquire,
        receipt: &Receipt,
        fate: OnDrop,
    ) -> Option<impl Future<Output = ()> + Send + 'static + use<>> {
        if fate == OnDrop::Keep && !holds_slots(receipt) {
            return None;
        }
        let scope = self.clone();
        let (ticket, receipt) = (ticket.clone(), receipt.clone());
        Some(async move {
            match fate {
                OnDrop::Refund => ticket.give_back(&scope.store, &receipt).await,
                OnDrop::Keep => ticket.release_slots(&scope.store, &receipt).await,
            }
            ticket.tell_watchers();
        })
    }

    /// Accepts a slot from the pool for the head. Returns `false` if there already is one.
    pub(super) fn offer_slot(&self) -> bool {
        let mut state = self.lock();
        let is_accepted = state.pool.as_mut().is_some_and(PoolHandle::accept);
        self.move_on(&mut state);
        // The caller that offers continues with what this pacer did not use.
        state.pool.as_mut().and_then(PoolHandle::take_freed);
        let wakes = state.scheduler.wakes();
        drop(state);
        drop(wakes);
        is_accepted
    }

    /// Corrects what was charged, and advances the queue.
    pub(super) async fn settle(
        &self,
        ticket: &PendingAcquire,
        deltas: &[i64],
        receipt: &Receipt,
    ) -> Result<Settlement, StoreError> {
        let settlement = ticket.settle(&self.store, deltas, receipt).await;
        // Charging more cannot let anybody go sooner.
        for (claim, _) in ticket.claims.iter().zip(deltas).filter(|(_, delta)| **delta < 0) {
            claim.terms.tell_watchers();
        }
        settlement
    }
}

impl State {
    /// Takes slots of the groups of a waiter. If one of them is full, the waiter's tenant is
    /// parked.
    pub(super) fn enter_groups(&mut self, id: Id, now: Time) -> bool {
        let ticket = self.scheduler.ticket(id);
        let has_entered = ticket.is_none_or(|ticket| ticket.try_enter_groups(&self.own));
        if !has_entered {
            self.scheduler.passed_over(id, WaitPart::CONCURRENCY, None, now);
        }
        has_entered
    }

    /// Releases the group slots of a waiter that is not granted now.
    pub(super) fn leave_groups(&mut self, id: Id) {
        if let Some(ticket) = self.scheduler.ticket(id) {
            self.freed_groups.extend(ticket.leave_groups());
        }
    }

    /// Releases the group slots of a request.
    pub(super) fn leave_groups_of(&mut self, ticket: &PendingAcquire) {
        self.freed_groups.extend(ticket.leave_groups());
    }

    /// Takes the slots of a new request, of its groups and of the pool, or none.
    pub(super) fn take_slots_of(&mut self, ticket: &PendingAcquire) -> bool {
        if !ticket.try_enter_groups(&self.own) {
            return false;
        }
        let has_slot = self.try_take_slot();
        if !has_slot {
            self.leave_groups_of(ticket);
        }
        has_slot
    }

    /// Puts back the slots of a new request that is not granted now.
    pub(super) fn put_slots_back(&mut self, ticket: &PendingAcquire) {
        self.leave_groups_of(ticket);
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
    pub(super) fn rest(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.rest();
        }
    }

    /// A waiter was charged: the slot belongs to it.
    pub(super) fn slot_granted(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.granted();
        }
    }

    /// Records the start of a call, for an adaptive concurrency.
    pub(super) fn leaves(&self) -> Departure {
        self.pool.as_ref().map_or_else(Departure::default, PoolHandle::leaves)
    }

    /// Makes drivers wake in time for new leases.
    pub(super) fn mind_leases(&mut self) {
        self.drivers.not_later(self.leases.tick());
    }

    /// Applies the result of trying the head.
    pub(super) fn apply(&mut self, id: Id, verdict: Verdict, now: Time) {
        let by = |state: &Self, index: usize| {
            let ticket = state.scheduler.ticket(id);
            ticket.map(|ticket| ticket.claims[index].limit()).unwrap_or_default()
        };
        match verdict {
            Verdict::Granted { receipt, charged, lease, .. } => {
                let Some(ticket) = self.scheduler.ticket(id) else { return };
                let lease = lease.map(|lease| self.leases.keep(ticket, &receipt, lease, now));
                self.scheduler.granted(id, Holding { receipt, lease }, now);
                self.slot_granted();
                if let Some(ticket) = self.scheduler.ticket_mut(id) {
                    ticket.correct(&charged);
                }
            }
            Verdict::Blocked(Block { index, own, wait, .. }) => {
                let by = by(self, index);
                let until = in_time(wait, now);
                if own {
                    self.scheduler.passed_over(id, &by, until, now);
                } else {
                    self.scheduler.blocked(id, &by, until, now);
                }
            }
            Verdict::Never(index) => self.scheduler.refuse(id, Refused::NeverFits(index)),
            Verdict::Failed(error) => self.scheduler.refuse(id, Refused::Failed(error)),
        }
    }
}

/// The earlier of two optional times.
pub(super) fn sooner(one: Option<Time>, other: Option<Time>) -> Option<Time> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, None) => one,
        (None, other) => other,
    }
}

fn not_at_once() -> Verdict {
    Verdict::Failed(StoreError::Unavailable("the store of this process made a caller wait".into()))
}

impl Watch for Scope {
    fn changed(&self) -> bool {
        self.act(|state| state.scheduler.nudge(self.now()));
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
    pub(super) fn know(&mut self, claim: &Claim) -> Id {
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

    pub(super) fn forget(&mut self, ticket: &PendingAcquire) {
        for &id in &ticket.buckets {
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
pub(super) fn watch(scope: &Arc<Scope>, ticket: &PendingAcquire) {
    for claim in &ticket.claims {
        let weak: Weak<Scope> = Arc::downgrade(scope);
        claim.watch(weak);
    }
}
