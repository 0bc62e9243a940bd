//! A scope: the queue of one pacer with the store it charges, under one lock.
//!
//! Whoever changes something moves the queue on at once, under the lock, and wakes the granted
//! after releasing it. Nobody sleeps with the lock. Drivers only watch the time.

use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

use tidegate_core::{KeyBuf, Receipt, Settlement, StoreError, Time};
use tidegate_memory::MemoryStore;

use super::adaptive::{Adaptive, CallOutcome};
use super::claim::{Claim, Ticket, Verdict, in_time};
use super::driver::Drivers;
use super::heart::{Heart, Left, Refused, Step};
use super::permit::OnDrop;
use super::slab::{Id, Slab};
use crate::sync::{Mutex, MutexGuard};
use crate::terms::Watch;

/// Everything that the permits and waiters of one pacer share.
pub(super) struct Scope {
    store: Arc<MemoryStore>,
    state: Mutex<State>,
}

/// What is under the lock.
pub(super) struct State {
    pub(super) heart: Heart<Ticket, Receipt>,
    pub(super) buckets: Buckets,
    pub(super) drivers: Drivers,
    pub(super) adaptive: Option<Adaptive>,
}

impl Scope {
    pub(super) fn new(
        store: Arc<MemoryStore>,
        heart: Heart<Ticket, Receipt>,
        adaptive: Option<Adaptive>,
        drivers: Drivers,
    ) -> Self {
        let buckets = Buckets::default();
        Self { store, state: Mutex::new(State { heart, buckets, drivers, adaptive }) }
    }

    pub(super) fn store(&self) -> &Arc<MemoryStore> {
        &self.store
    }

    pub(super) fn now(&self) -> Time {
        self.store.now()
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something under the lock, moves the queue on, and wakes who was granted.
    pub(super) fn act<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = act(&mut state);
        self.move_on(&mut state);
        let wakers = state.heart.wakers();
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
        result
    }

    /// Grants what can be granted now; says when there is more to do.
    pub(super) fn move_on(&self, state: &mut State) -> Option<Time> {
        loop {
            let now = self.now();
            let id = match state.heart.next(now) {
                Step::Rest(until) => {
                    state.drivers.set_alarm(until);
                    return until;
                }
                Step::Try(id) => id,
            };
            let Some(ticket) = state.heart.ticket(id) else { continue };
            match ticket.charge(&self.store) {
                Verdict::Granted(receipt) => state.heart.granted(id, receipt, now),
                Verdict::Blocked { index, own: false, wait } => {
                    let by = ticket.claims[index].limit();
                    state.heart.blocked(id, &by, in_time(wait, now), now);
                }
                Verdict::Blocked { index, own: true, wait } => {
                    let by = ticket.claims[index].limit();
                    let until = in_time(wait, now).unwrap_or(Time::from_nanos(u64::MAX));
                    state.heart.passed_over(id, &by, until, now);
                }
                Verdict::Never(index) => state.heart.refuse(id, Refused::NeverFits(index)),
                Verdict::Failed(error) => state.heart.refuse(id, Refused::Failed(error)),
            }
        }
    }

    /// A waiter goes away before it got its permit: what it was granted is given back.
    pub(super) fn leave(&self, id: Id) {
        self.act(|state| match state.heart.leave(id) {
            Some(Left::Granted(ticket, receipt)) => {
                ticket.give_back(&self.store, &receipt);
                state.buckets.forget(&ticket);
            }
            Some(Left::Queued(ticket)) => state.buckets.forget(&ticket),
            None => {}
        });
    }

    /// A permit ends: its slot is free, and `fate` says what becomes of its tokens. `word` is
    /// how its call went and the epoch in which it left.
    pub(super) fn release(
        &self,
        ticket: &Ticket,
        receipt: &Receipt,
        fate: OnDrop,
        word: (CallOutcome, u64),
    ) {
        self.act(|state| {
            if fate == OnDrop::Refund {
                ticket.give_back(&self.store, receipt);
                state.heart.nudge();
            } else if ticket.release_slots(&self.store, receipt) {
                state.heart.nudge();
            }
            state.heart.slots.give_back();
            if let Some(adaptive) = &mut state.adaptive {
                adaptive.ended(word.0, word.1);
                let limit = adaptive.limit();
                state.heart.slots.resize(Some(limit));
            }
        });
    }

    pub(super) fn settle(
        &self,
        ticket: &Ticket,
        deltas: &[i64],
        receipt: &Receipt,
    ) -> Result<Settlement, StoreError> {
        self.act(|state| {
            let settlement = ticket.settle(&self.store, deltas, receipt);
            state.heart.nudge();
            settlement
        })
    }
}

impl Watch for Scope {
    fn changed(&self) {
        self.act(|state| state.heart.nudge());
    }
}

/// The buckets that waiters want something of, so that what is ahead can be summed up.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    ids: std::collections::HashMap<(usize, KeyBuf), Id>,
    known: Slab<((usize, KeyBuf), usize)>,
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

    pub(super) fn forget(&mut self, ticket: &Ticket) {
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
pub(super) fn watch(scope: &Arc<Scope>, ticket: &Ticket) {
    for claim in &ticket.claims {
        let weak: Weak<Scope> = Arc::downgrade(scope);
        claim.limiter.watch(weak);
    }
}
