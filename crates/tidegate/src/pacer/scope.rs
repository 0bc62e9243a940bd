//! A scope: the queue of one pacer with the store it charges, under one lock.
//!
//! Whoever changes something moves the queue on at once, under the lock, and wakes the granted
//! after releasing it. Nobody sleeps with the lock. Drivers only watch the time.

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

/// Everything that the permits and waiters of one pacer share.
pub(super) struct Scope {
    store: StoreHandle,
    clock: StoreClock,
    /// The tenant of those who name none.
    nobody: Arc<str>,
    state: Mutex<State>,
}

/// What is under the lock.
pub(super) struct State {
    pub(super) scheduler: Scheduler<PendingAcquire, Holding>,
    pub(super) buckets: Buckets,
    pub(super) drivers: Drivers,
    pub(super) leases: Leases,
    /// What it has to do with a pool of slots that it shares, if there is one.
    pub(super) pool: Option<PoolHandle>,
    /// Groups that have free slots again, to be told to others after unlocking.
    freed_groups: Vec<SlotGroup>,
    /// The scope itself.
    own: Weak<Scope>,
    /// What a driver had reserved when its runtime was shut down, to be given back by another.
    #[cfg(feature = "tokio")]
    pub(super) stranded: Vec<(PendingAcquire, Receipt)>,
    /// The head for which a driver is asking a shared store.
    #[cfg_attr(not(feature = "tokio"), allow(dead_code, reason = "shared stores need tokio"))]
    pub(super) asking: Option<Id>,
}

/// The lock of a scope. What it has freed of its pool is handed out after unlocking.
pub(super) struct Locked<'s> {
    state: MutexGuard<'s, State>,
    // Dropped after the guard.
    freed: Freed,
}

/// A pool whose free slots are handed out, and groups whose waiters are told, when this is dropped.
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

    /// Whether the store answers at once.
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

    /// Does something under the lock, moves the queue on, and wakes who was granted.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        self.finish(self.lock(), act).0
    }

    /// Renews what is due, moves the queue on, and wakes who was granted. Says when there is more
    /// to do.
    pub(super) fn refresh(self: &Arc<Self>) -> Option<Time> {
        self.finish(self.lock_renewed(), |_| ()).1
    }

    /// Does something under the lock and moves the queue on; then, without it, wakes the granted.
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

    /// Grants what can be granted now; says when there is more to do.
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

    /// Grants what can be granted now; says when to look at the queue again. A shared store is not
    /// asked here: a driver does that, and is roused.
    fn grant(&self, state: &mut State) -> Option<Time> {
        loop {
            let now = self.now();
            let id = match state.scheduler.next(now) {
                Step::Rest(until) => {
                    state.rest();
                    return until;
                }
                // While one driver asks a shared store, the others watch deadlines.
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
                // Whoever asks takes them again.
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

    /// A waiter goes away before it got its permit: what it was granted is given back.
    pub(super) fn leave(self: &Arc<Self>, id: Id) {
        let left = self.act(|state| {
            let left = state.scheduler.leave(id, self.now());
            if state.asking == Some(id) {
                // What is reserved for it is given back without waiting for it to start.
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

    /// A permit ends: its slot is free, and `fate` says what becomes of its tokens; `None` if that
    /// was seen to already. `word` is how its call went and when it left.
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

    /// Gives tokens and slots back, or only slots, and moves the queue on; `None` if there is
    /// nothing to give back. To be [detached](StoreHandle::detach) or awaited: a shared store is
    /// asked by a task of its own; outside of a runtime there is none, and what was spent stays.
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

    /// The pool hands a slot to the head. `false` if there is one already.
    pub(super) fn offer_slot(&self) -> bool {
        let mut state = self.lock();
        let is_accepted = state.pool.as_mut().is_some_and(PoolHandle::accept);
        self.move_on(&mut state);
        // Whoever offers goes on offering what this pacer did not use.
        state.pool.as_mut().and_then(PoolHandle::take_freed);
        let wakes = state.scheduler.wakes();
        drop(state);
        drop(wakes);
        is_accepted
    }

    /// Corrects what was charged, and moves the queue on.
    pub(super) async fn settle(
        &self,
        ticket: &PendingAcquire,
        deltas: &[i64],
        receipt: &Receipt,
    ) -> Result<Settlement, StoreError> {
        let settlement = ticket.settle(&self.store, deltas, receipt).await;
        // Nobody can go sooner because more was charged.
        for (claim, _) in ticket.claims.iter().zip(deltas).filter(|(_, delta)| **delta < 0) {
            claim.terms.tell_watchers();
        }
        settlement
    }
}

impl State {
    /// Takes slots of the groups of a waiter. If one of them is full, the waiter is passed over.
    pub(super) fn enter_groups(&mut self, id: Id, now: Time) -> bool {
        let ticket = self.scheduler.ticket(id);
        let has_entered = ticket.is_none_or(|ticket| ticket.try_enter_groups(&self.own));
        if !has_entered {
            self.scheduler.passed_over(id, WaitPart::CONCURRENCY, None, now);
        }
        has_entered
    }

    /// A waiter that has slots of its groups is not granted now.
    pub(super) fn leave_groups(&mut self, id: Id) {
        if let Some(ticket) = self.scheduler.ticket(id) {
            self.freed_groups.extend(ticket.leave_groups());
        }
    }

    /// Gives the slots back that somebody has of its groups.
    pub(super) fn leave_groups_of(&mut self, ticket: &PendingAcquire) {
        self.freed_groups.extend(ticket.leave_groups());
    }

    /// Takes the slots of a newcomer, of its groups and of the pool, or none.
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

    /// The slots of a newcomer are not needed now.
    pub(super) fn put_slots_back(&mut self, ticket: &PendingAcquire) {
        self.leave_groups_of(ticket);
        self.put_slot_back();
    }

    /// Takes a slot of the pool without waiting for a turn, if there is a pool.
    pub(super) fn try_take_slot(&mut self) -> bool {
        self.pool.as_mut().is_none_or(PoolHandle::try_take)
    }

    /// Takes a slot of the pool for the head, if there is a pool. The error is the time after which
    /// the pool grows, if it does.
    pub(super) fn take_slot(&mut self) -> Result<(), Option<Duration>> {
        let Self { pool, scheduler, .. } = self;
        match pool.as_mut().map(|pool| pool.take(scheduler.peers())) {
            None | Some(SlotRequest::Taken) => Ok(()),
            Some(SlotRequest::Waits(growth)) => Err(growth),
        }
    }

    /// The slot in hand is not needed now.
    pub(super) fn put_slot_back(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.put_back();
        }
    }

    /// Nobody waits who could use a slot of the pool.
    pub(super) fn rest(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.rest();
        }
    }

    /// A waiter was charged: the slot in hand is its own.
    pub(super) fn slot_granted(&mut self) {
        if let Some(pool) = &mut self.pool {
            pool.granted();
        }
    }

    /// A call leaves: what a concurrency that adapts wants to know of it later.
    pub(super) fn leaves(&self) -> Departure {
        self.pool.as_ref().map_or_else(Departure::default, PoolHandle::leaves)
    }

    /// Lets drivers know of leases that were taken on.
    pub(super) fn mind_leases(&mut self) {
        self.drivers.not_later(self.leases.tick());
    }

    /// Does what trying the head came to.
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

/// The earlier of two times that may be.
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
        // Whoever joins the queue later watches again.
        self.lock().scheduler.waiting() > 0
    }
}

/// The buckets that waiters want something of, so that what is ahead can be summed up.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    ids: HashMap<BucketName, Id>,
    known: Slab<(BucketName, usize)>,
}

impl Buckets {
    /// The id of a claim's bucket, for as long as it is not forgotten as often.
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

/// Tells the limiters of a ticket to move this scope on when their policy changes.
pub(super) fn watch(scope: &Arc<Scope>, ticket: &PendingAcquire) {
    for claim in &ticket.claims {
        let weak: Weak<Scope> = Arc::downgrade(scope);
        claim.watch(weak);
    }
}
