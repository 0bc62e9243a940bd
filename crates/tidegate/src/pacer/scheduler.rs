//! The scheduler of a pacer: who waits, who goes next, and when to look again.
//!
//! It reads no clock, knows no store and wakes no task. Its driver asks for the
//! [`next`](Scheduler::next) action, tries to charge the waiter that it names, and reports the
//! result. So all behaviour can be tested under virtual time.

pub(super) mod caller;
pub(super) mod class;
pub(super) mod demand;
mod order;
mod projection;
pub(super) mod queue;
mod share;
pub(super) mod slab;
pub(super) mod slots;
pub(super) mod tenant;
pub(super) mod wait_attribution;
pub(super) mod waiter;
pub(super) mod wakes;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tidegate_core::Time;

use class::GuaranteedShares;
use demand::Demands;
use queue::{FairQueue, QueueKey};
use slab::Id;
use slots::Slots;
use tenant::TenantTotals;
use wait_attribution::{Causes, WaitAttribution, WaitPart, combine};
use waiter::{Granted, Polled, Removed, WaitError, Waiter, WaiterState};
use wakes::Wakes;

/// How late a waiter may be granted. Timers fire a little late, and a waiter that was due in time
/// must not lose its turn because of that.
const GRACE: Duration = Duration::from_millis(5);

/// What the driver has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextAction {
    /// Try to charge this waiter.
    Try(Id),
    /// Do nothing until this time, or until something changes.
    Sleep(Option<Time>),
}

/// The state of one pacer. `T` is the request of a waiter, `G` is what a grant consists of.
#[derive(Debug)]
pub(crate) struct Scheduler<T, G> {
    queue: FairQueue<Waiter<T, G>>,
    pub(crate) slots: Slots,
    max_waiting: usize,
    /// The waiter that was tried last, if it was blocked.
    blocked: Option<Blocked>,
    nudge_count: u64,
    deadlines: BTreeSet<(Time, Id)>,
    attribution: WaitAttribution,
    wakes: Wakes,
}

/// A head that waits for a limit that all tenants share.
#[derive(Debug)]
struct Blocked {
    id: Id,
    by: Causes,
    /// When to try it again; `None`: when something changes.
    until: Option<Time>,
}

impl<T: Demands, G> Scheduler<T, G> {
    pub(crate) fn new(slots: Slots, max_waiting: usize, shares: GuaranteedShares) -> Self {
        Self {
            queue: FairQueue::new(shares),
            slots,
            max_waiting,
            blocked: None,
            nudge_count: 0,
            deadlines: BTreeSet::new(),
            attribution: WaitAttribution::default(),
            wakes: Wakes::default(),
        }
    }

    /// Number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The limit that waiters wait for: a shared one, else a limit of a single tenant.
    pub(crate) fn blocking_limit(&self) -> Option<&Arc<str>> {
        if self.waiting() == 0 {
            return None;
        }
        let parked = || self.queue.tenants.iter().filter(|tenant| tenant.parked.is_some());
        self.attribution
            .current_limit()
            .or_else(|| parked().find_map(|tenant| tenant.attribution.current_limit()))
    }

    /// Whether the queue accepts no more waiters with this key. Parked tenants have a bound of
    /// their own, so that they do not keep others out.
    pub(crate) fn is_full_for(&self, queue_key: &QueueKey) -> bool {
        let parked = self.queue.parked_len();
        let of_its_kind =
            if self.queue.is_parked(queue_key) { parked } else { self.queue.len() - parked };
        of_its_kind >= self.max_waiting
    }

    /// Whether a new waiter with this key would overtake no other. A parked waiter that can go now
    /// comes first, whatever the key of the new one.
    pub(crate) fn can_skip_queue(&self, queue_key: &QueueKey, now: impl FnOnce() -> Time) -> bool {
        if self.queue.len() == 0 {
            return true;
        }
        self.queue.len() == self.queue.parked_len()
            && !self.queue.has_tenant(queue_key)
            && self.queue.next_unpark().is_none_or(|until| until > now())
    }

    /// Peers that could go, next one first.
    pub(crate) fn peers(&self) -> impl Iterator<Item = u64> + '_ {
        self.queue.peers()
    }

    /// Tokens of a bucket that go to others first; see [`FairQueue::tokens_ahead`].
    pub(crate) fn tokens_ahead(&self, queue_key: &QueueKey, cost: u64, bucket: Id) -> u128 {
        self.queue.tokens_ahead(queue_key, cost, bucket)
    }

    /// Adds a waiter to the queue. [`poll`](Self::poll) stores its waker.
    pub(crate) fn join(
        &mut self,
        queue_key: &QueueKey,
        cost: u64,
        deadline: Option<Time>,
        pending: T,
        now: Time,
    ) -> Id {
        // Parked waiters that can go now were there first.
        self.unpark(now);
        let (state, marks) = (WaiterState::Waiting(None), TenantTotals::default());
        let waiter = Waiter { pending, joined: now, deadline, marks, state };
        let id = self.queue.push(queue_key, cost, waiter);
        let shared = self.attribution.totals(now);
        if let Some(marks) = self.queue.tenant_of(id).map(|tenant| tenant.totals(&shared, now)) {
            if let Some(waiter) = self.queue.get_mut(id) {
                waiter.marks = marks;
            }
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        id
    }

    /// The action for `now`. Expires deadlines on the way.
    pub(crate) fn next(&mut self, now: Time) -> NextAction {
        self.expire(now);
        self.unpark(now);
        let Some(head) = self.queue.head() else {
            self.attribution.clear(now);
            return NextAction::Sleep(self.earliest(None));
        };
        if self.slots.is_full() {
            self.attribution.switch_to([(WaitPart::CONCURRENCY, None)], now);
            return NextAction::Sleep(self.earliest(None));
        }
        match &self.blocked {
            Some(blocked)
                if blocked.id == head && blocked.until.is_none_or(|until| now < until) =>
            {
                let by = blocked.by.iter().map(|(name, until)| (&**name, *until));
                self.attribution.switch_to(by, now);
                NextAction::Sleep(self.earliest(blocked.until))
            }
            _ => NextAction::Try(head),
        }
    }

    /// The head waits for a slot of a shared pool. Returns when there is something else to do.
    pub(crate) fn wait_for_slot(&mut self, now: Time) -> Option<Time> {
        self.attribution.switch_to([(WaitPart::CONCURRENCY, None)], now);
        self.earliest(None)
    }

    /// The request of a waiter.
    pub(crate) fn pending(&self, id: Id) -> Option<&T> {
        self.queue.get(id).map(|waiter| &waiter.pending)
    }

    /// The request of a waiter, to correct it to what was charged.
    pub(crate) fn pending_mut(&mut self, id: Id) -> Option<&mut T> {
        self.queue.get_mut(id).map(|waiter| &mut waiter.pending)
    }

    /// The next time at which there is something to do other than the head.
    #[cfg(feature = "tokio")]
    pub(crate) fn next_timer(&self) -> Option<Time> {
        self.earliest(None)
    }

    /// Whether the waiter is still in the queue.
    pub(crate) fn is_waiting(&self, id: Id) -> bool {
        self.queue.get(id).is_some_and(|waiter| matches!(waiter.state, WaiterState::Waiting(_)))
    }

    /// Latest time at which the waiter can be granted.
    #[cfg(feature = "tokio")]
    pub(crate) fn deadline(&self, id: Id) -> Option<Time> {
        self.queue.get(id).and_then(|waiter| waiter.deadline)
    }

    /// Whether that time is after the waiter's deadline.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_late(&self, id: Id, at: Time) -> bool {
        self.deadline(id).is_some_and(|deadline| deadline < at)
    }

    /// Records that the waiter was charged: it leaves the queue, takes a slot, and is woken.
    pub(crate) fn grant(&mut self, id: Id, grant: G, now: Time) {
        if !self.is_waiting(id) {
            return;
        }
        let parts = self.wait_parts(id, now);
        self.queue.grant(id);
        self.slots.take();
        self.blocked = None;
        let Some(waiter) = self.queue.get_mut(id) else { return };
        let waited = now.since(waiter.joined);
        self.end(id, WaiterState::Granted(Granted { grant, waited, parts }));
    }

    /// What has delayed a waiter since it joined.
    fn wait_parts(&mut self, id: Id, now: Time) -> Vec<WaitPart> {
        let Some(marks) = self.queue.get(id).map(|waiter| waiter.marks.clone()) else {
            return Vec::new();
        };
        let shared = self.attribution.totals(now);
        let Some(tenant) = self.queue.tenant_of(id) else { return Vec::new() };
        let totals = tenant.totals(&shared, now);
        let (own, shared) = (totals.own.since(&marks.own), totals.shared.since(&marks.shared));
        combine(tenant.attribution.parts(&own).chain(self.attribution.parts(&shared)))
    }

    /// Records that shared limits are not ready before `until`: the waiter stays the head and
    /// no waiter overtakes it. Without a time it is tried again when something changes.
    pub(crate) fn block(&mut self, id: Id, by: Causes, until: Option<Time>, now: Time) {
        self.attribution.switch_to(by.iter().map(|(name, until)| (&**name, *until)), now);
        self.blocked = Some(Blocked { id, by, until });
    }

    /// Records that limits of the waiter's tenant alone are not ready before `until`: other tenants
    /// go on.
    pub(crate) fn park(&mut self, id: Id, by: &Causes, until: Option<Time>, now: Time) {
        let shared = self.attribution.totals(now);
        self.queue.park(id, until, by, (&shared, now));
        if self.queue.parked_len() > self.max_waiting {
            // The first waiter of a tenant was counted as one that is not parked.
            self.fail(id, WaitError::QueueFull(self.max_waiting));
        }
    }

    /// Ends a wait that cannot succeed, or not in time.
    pub(crate) fn fail(&mut self, id: Id, error: WaitError) {
        if !self.is_waiting(id) {
            return;
        }
        self.queue.leave(id);
        self.end(id, WaiterState::Failed(error));
    }

    /// Sets the final state of a waiter that has left the queue, and wakes it.
    fn end(&mut self, id: Id, state: WaiterState<G>) {
        let Some(waiter) = self.queue.get_mut(id) else { return };
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let WaiterState::Waiting(Some(waker)) = std::mem::replace(&mut waiter.state, state) {
            self.wakes.wake(waker);
        }
    }

    /// Polls a waiter. One that still waits keeps the waker.
    pub(crate) fn poll(&mut self, id: Id, waker: &Waker) -> Option<Polled<T, G>> {
        let waiter = self.queue.get_mut(id)?;
        if let WaiterState::Waiting(kept) = &mut waiter.state {
            if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                // Dropping a waker may run any code, including code that takes our lock.
                self.wakes.discard(kept.replace(waker.clone()));
            }
            return Some(Polled::Waiting);
        }
        let waiter = self.queue.take(id)?;
        match waiter.state {
            WaiterState::Granted(granted) => Some(Polled::Granted(waiter.pending, granted)),
            WaiterState::Failed(error) => Some(Polled::Failed(waiter.pending, error)),
            WaiterState::Waiting(_) => None,
        }
    }

    /// Removes a waiter early. A slot that it had is free again.
    pub(crate) fn cancel(&mut self, id: Id, now: Time) -> Option<Removed<T, G>> {
        let waiter = self.queue.take(id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        match waiter.state {
            WaiterState::Granted(granted) => {
                self.slots.give_back();
                self.nudge(now);
                Some(Removed::Granted(waiter.pending, granted.grant))
            }
            WaiterState::Waiting(waker) => {
                self.wakes.discard(waker);
                Some(Removed::Queued(waiter.pending))
            }
            WaiterState::Failed(_) => Some(Removed::Queued(waiter.pending)),
        }
    }

    /// Something has changed: blocked and parked waiters are tried again.
    pub(crate) fn nudge(&mut self, now: Time) {
        self.nudge_count += 1;
        self.blocked = None;
        if self.queue.parked_len() > 0 {
            let shared = self.attribution.totals(now);
            self.queue.unpark_all(&shared, now);
        }
    }

    /// Lets tenants take turns again whose time has come.
    fn unpark(&mut self, now: Time) {
        if self.queue.next_unpark().is_some_and(|until| until <= now) {
            let shared = self.attribution.totals(now);
            self.queue.unpark(&shared, now);
        }
    }

    /// Number of nudges so far. An answer of the store from before the latest one may be out of
    /// date.
    #[cfg(feature = "tokio")]
    pub(crate) const fn nudge_count(&self) -> u64 {
        self.nudge_count
    }

    /// Takes the wakers to call once the lock is released.
    pub(crate) fn take_wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Wakes all waiters, because their driver is gone.
    pub(crate) fn wake_all(&mut self) {
        let Self { queue, wakes, .. } = self;
        for waiter in queue.iter() {
            if let WaiterState::Waiting(Some(waker)) = &waiter.state {
                wakes.wake(waker.clone());
            }
        }
    }

    fn expire(&mut self, now: Time) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            if deadline.after(GRACE) >= now {
                break;
            }
            self.deadlines.pop_first();
            self.fail(id, WaitError::TimedOut);
        }
    }

    /// The earliest time at which there is something to do.
    fn earliest(&self, until: Option<Time>) -> Option<Time> {
        let late = GRACE + Duration::from_nanos(1);
        let deadline = self.deadlines.first().map(|(at, _)| at.after(late));
        [until, deadline, self.queue.next_unpark()].into_iter().flatten().min()
    }
}
