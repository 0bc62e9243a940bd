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

use class::Shares;
use demand::Demands;
use queue::{FairQueue, Line};
use slab::Id;
use slots::Slots;
use wait_attribution::{Blame, Mark, WaitPart, combine};
use waiter::{Fate, Granted, Left, Polled, Refused, Waiter};
use wakes::Wakes;

/// How late a waiter may be granted. Timers fire a little late, and a waiter that was due in time
/// must not lose its turn because of that.
const GRACE: Duration = Duration::from_millis(5);

/// What the driver has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Try to charge this waiter.
    Try(Id),
    /// Do nothing until this time, or until something changes.
    Rest(Option<Time>),
}

/// The state of one pacer. `T` is the request of a waiter, `G` is what a grant consists of.
#[derive(Debug)]
pub(crate) struct Scheduler<T, G> {
    queue: FairQueue<Waiter<T, G>>,
    pub(crate) slots: Slots,
    max_waiting: usize,
    /// The waiter that was tried last, if it was blocked.
    blocked: Option<Blocked>,
    nudges: u64,
    deadlines: BTreeSet<(Time, Id)>,
    blame: Blame,
    wakes: Wakes,
}

/// A head that waits for a limit that all tenants share.
#[derive(Debug)]
struct Blocked {
    id: Id,
    by: Arc<str>,
    /// When to try it again; `None`: when something changes.
    until: Option<Time>,
}

impl<T: Demands, G> Scheduler<T, G> {
    pub(crate) fn new(slots: Slots, max_waiting: usize, shares: Shares) -> Self {
        Self {
            queue: FairQueue::new(shares),
            slots,
            max_waiting,
            blocked: None,
            nudges: 0,
            deadlines: BTreeSet::new(),
            blame: Blame::default(),
            wakes: Wakes::default(),
        }
    }

    /// Number of waiters.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// The limit that waiters wait for: a shared one, else a limit of a single tenant.
    pub(crate) fn waits_for(&self) -> Option<&Arc<str>> {
        if self.waiting() == 0 {
            return None;
        }
        let parked = || self.queue.tenants.iter().filter(|tenant| tenant.parked.is_some());
        self.blame.present().or_else(|| parked().find_map(|tenant| tenant.blame.present()))
    }

    /// Whether the queue accepts no more waiters with this key. Parked tenants have a bound of
    /// their own, so that they do not keep others out.
    pub(crate) fn is_full_for(&self, line: &Line) -> bool {
        let parked = self.queue.parked_len();
        let of_its_kind =
            if self.queue.is_parked(line) { parked } else { self.queue.len() - parked };
        of_its_kind >= self.max_waiting
    }

    /// Whether a new waiter with this key would overtake nobody. A parked waiter that can go by now
    /// comes first, whatever the key of the new one.
    pub(crate) fn is_free_for(&self, line: &Line, now: impl FnOnce() -> Time) -> bool {
        if self.queue.len() == 0 {
            return true;
        }
        self.queue.len() == self.queue.parked_len()
            && !self.queue.has(line)
            && self.queue.next_unpark().is_none_or(|until| until > now())
    }

    /// Peers that could go, next one first.
    pub(crate) fn peers(&self) -> impl Iterator<Item = u64> + '_ {
        self.queue.peers()
    }

    /// Tokens of a bucket that go to others first; see [`FairQueue::tokens_ahead`].
    pub(crate) fn ahead(&self, line: &Line, cost: u64, bucket: Id) -> u128 {
        self.queue.ahead(line, cost, bucket)
    }

    /// Adds a waiter to the queue. [`poll`](Self::poll) stores its waker.
    pub(crate) fn join(
        &mut self,
        line: &Line,
        cost: u64,
        deadline: Option<Time>,
        ticket: T,
        now: Time,
    ) -> Id {
        // Parked waiters that can go by now were there first.
        self.queue.unpark(now);
        let (mark, own_mark) = (self.blame.mark(now), Mark::default());
        let fate = Fate::Waiting(None);
        let waiter = Waiter { ticket, joined: now, deadline, mark, own_mark, fate };
        let id = self.queue.push(line, cost, waiter);
        if let Some(own_mark) = self.queue.mark(id, now) {
            if let Some(waiter) = self.queue.get_mut(id) {
                waiter.own_mark = own_mark;
            }
        }
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        id
    }

    /// The action for `now`. Expires deadlines on the way.
    pub(crate) fn next(&mut self, now: Time) -> Step {
        self.expire(now);
        self.queue.unpark(now);
        let Some(head) = self.queue.head() else {
            self.blame.turn_to(None, now);
            return Step::Rest(self.earliest(None));
        };
        if self.slots.is_full() {
            self.blame.turn_to(Some(WaitPart::CONCURRENCY), now);
            return Step::Rest(self.earliest(None));
        }
        match &self.blocked {
            Some(blocked)
                if blocked.id == head && blocked.until.is_none_or(|until| now < until) =>
            {
                self.blame.turn_to(Some(&blocked.by), now);
                Step::Rest(self.earliest(blocked.until))
            }
            _ => Step::Try(head),
        }
    }

    /// The head waits for a slot of a shared pool. Returns when there is something else to do.
    pub(crate) fn no_slot(&mut self, now: Time) -> Option<Time> {
        self.blame.turn_to(Some(WaitPart::CONCURRENCY), now);
        self.earliest(None)
    }

    /// The request of a waiter.
    pub(crate) fn ticket(&self, id: Id) -> Option<&T> {
        self.queue.get(id).map(|waiter| &waiter.ticket)
    }

    /// The request of a waiter, to correct it to what was charged.
    pub(crate) fn ticket_mut(&mut self, id: Id) -> Option<&mut T> {
        self.queue.get_mut(id).map(|waiter| &mut waiter.ticket)
    }

    /// The next time at which there is something to do besides the head.
    #[cfg(feature = "tokio")]
    pub(crate) fn aside(&self) -> Option<Time> {
        self.earliest(None)
    }

    /// Whether the waiter is still in the queue.
    pub(crate) fn is_waiting(&self, id: Id) -> bool {
        self.queue.get(id).is_some_and(|waiter| matches!(waiter.fate, Fate::Waiting(_)))
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
    pub(crate) fn granted(&mut self, id: Id, grant: G, now: Time) {
        if !self.is_waiting(id) {
            return;
        }
        let own_mark = self.queue.get(id).map(|waiter| waiter.own_mark.clone()).unwrap_or_default();
        let own = self.queue.blame(id).map(|blame| blame.since(&own_mark, now));
        self.queue.grant(id);
        self.slots.take();
        self.blocked = None;
        let Some(waiter) = self.queue.get_mut(id) else { return };
        let waited = now.since(waiter.joined);
        let shared = self.blame.since(&waiter.mark, now);
        let parts = combine(own.unwrap_or_default(), shared, waited);
        self.end(id, Fate::Granted(Granted { grant, waited, parts }));
    }

    /// Records that a shared limit is not ready before `until`: the waiter stays the head and
    /// nobody overtakes it. Without a time it is tried again when something changes.
    pub(crate) fn blocked(&mut self, id: Id, by: &str, until: Option<Time>, now: Time) {
        self.blame.turn_to(Some(by), now);
        self.blocked = Some(Blocked { id, by: by.into(), until });
    }

    /// Records that a limit of the waiter's tenant alone is not ready before `until`: other tenants
    /// go on.
    pub(crate) fn passed_over(&mut self, id: Id, by: &str, until: Option<Time>, now: Time) {
        self.queue.park(id, until, by, now);
        if self.queue.parked_len() > self.max_waiting {
            // The first waiter of a tenant was counted as one that is not parked.
            self.refuse(id, Refused::QueueFull(self.max_waiting));
        }
    }

    /// Ends a wait that cannot succeed, or not in time.
    pub(crate) fn refuse(&mut self, id: Id, refused: Refused) {
        if !self.is_waiting(id) {
            return;
        }
        self.queue.leave(id);
        self.end(id, Fate::Refused(refused));
    }

    /// Sets the final state of a waiter that has left the queue, and wakes it.
    fn end(&mut self, id: Id, fate: Fate<G>) {
        let Some(waiter) = self.queue.get_mut(id) else { return };
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Fate::Waiting(Some(waker)) = std::mem::replace(&mut waiter.fate, fate) {
            self.wakes.wake(waker);
        }
    }

    /// Polls a waiter. One that still waits keeps the waker.
    pub(crate) fn poll(&mut self, id: Id, waker: &Waker) -> Option<Polled<T, G>> {
        let waiter = self.queue.get_mut(id)?;
        if let Fate::Waiting(kept) = &mut waiter.fate {
            if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                // Dropping a waker may run any code, including code that takes our lock.
                self.wakes.discard(kept.replace(waker.clone()));
            }
            return Some(Polled::Waiting);
        }
        let waiter = self.queue.take(id)?;
        match waiter.fate {
            Fate::Granted(granted) => Some(Polled::Granted(waiter.ticket, granted)),
            Fate::Refused(refused) => Some(Polled::Refused(waiter.ticket, refused)),
            Fate::Waiting(_) => None,
        }
    }

    /// Removes a waiter early. A slot that it had is free again.
    pub(crate) fn leave(&mut self, id: Id, now: Time) -> Option<Left<T, G>> {
        let waiter = self.queue.take(id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        match waiter.fate {
            Fate::Granted(granted) => {
                self.slots.give_back();
                self.nudge(now);
                Some(Left::Granted(waiter.ticket, granted.grant))
            }
            Fate::Waiting(waker) => {
                self.wakes.discard(waker);
                Some(Left::Queued(waiter.ticket))
            }
            Fate::Refused(_) => Some(Left::Queued(waiter.ticket)),
        }
    }

    /// Something has changed: blocked and parked waiters are tried again.
    pub(crate) fn nudge(&mut self, now: Time) {
        self.nudges += 1;
        self.blocked = None;
        self.queue.unpark_all(now);
    }

    /// Number of nudges so far. An answer of the store from before the latest one may be out of
    /// date.
    #[cfg(feature = "tokio")]
    pub(crate) const fn nudges(&self) -> u64 {
        self.nudges
    }

    /// Takes the wakers to call once the lock is released.
    pub(crate) fn wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Wakes all waiters, because their driver is gone.
    pub(crate) fn rouse(&mut self) {
        let Self { queue, wakes, .. } = self;
        for waiter in queue.iter() {
            if let Fate::Waiting(Some(waker)) = &waiter.fate {
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
            self.refuse(id, Refused::TimedOut);
        }
    }

    /// The earliest time at which there is something to do.
    fn earliest(&self, until: Option<Time>) -> Option<Time> {
        let late = GRACE + Duration::from_nanos(1);
        let deadline = self.deadlines.first().map(|(at, _)| at.after(late));
        [until, deadline, self.queue.next_unpark()].into_iter().flatten().min()
    }
}
