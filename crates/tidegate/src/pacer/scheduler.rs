//! The scheduler of a pacer: who waits, who goes next, and when to look again.
//!
//! It reads no clock, knows no store and wakes nobody. Whoever drives it asks for the
//! [`next`](Scheduler::next) step, tries to charge the waiter that it names, and tells what came of
//! it. All behaviour can so be tested under virtual time.

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

/// How late a waiter may be granted: timers fire a little late, and one that was due in time shall
/// not lose its turn for that.
const GRACE: Duration = Duration::from_millis(5);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Try to charge this waiter.
    Try(Id),
    /// Nothing until then, or until something happens.
    Rest(Option<Time>),
}

/// The state of one pacer. `T` is what a waiter wants, `G` what a grant consists of.
#[derive(Debug)]
pub(crate) struct Scheduler<T, G> {
    queue: FairQueue<Waiter<T, G>>,
    pub(crate) slots: Slots,
    max_waiting: usize,
    /// The waiter that was tried.
    blocked: Option<Blocked>,
    nudges: u64,
    deadlines: BTreeSet<(Time, Id)>,
    blame: Blame,
    wakes: Wakes,
}

/// A head that has to wait for a limit that all share.
#[derive(Debug)]
struct Blocked {
    id: Id,
    by: Arc<str>,
    /// When to try it again; without a time, when something happens.
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

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// What those who wait wait for: what all of them share, else what a tenant of its own.
    pub(crate) fn waits_for(&self) -> Option<&Arc<str>> {
        if self.waiting() == 0 {
            return None;
        }
        let parked = || self.queue.tenants.iter().filter(|tenant| tenant.parked.is_some());
        self.blame.present().or_else(|| parked().find_map(|tenant| tenant.blame.present()))
    }

    /// Whether the queue takes nobody any more from this line. Tenants that wait for limits of
    /// their own have a bound of their own: they must not keep others out.
    pub(crate) fn is_full_for(&self, line: &Line) -> bool {
        let parked = self.queue.parked_len();
        let of_its_kind =
            if self.queue.is_parked(line) { parked } else { self.queue.len() - parked };
        of_its_kind >= self.max_waiting
    }

    /// Whether nobody would be overtaken by a newcomer of this line. Whoever was parked and can go
    /// by now is before it, whatever the newcomer calls itself.
    pub(crate) fn is_free_for(&self, line: &Line, now: impl FnOnce() -> Time) -> bool {
        if self.queue.len() == 0 {
            return true;
        }
        self.queue.len() == self.queue.parked_len()
            && !self.queue.has(line)
            && self.queue.next_unpark().is_none_or(|until| until > now())
    }

    /// The peers that could go, the next first.
    pub(crate) fn peers(&self) -> impl Iterator<Item = u64> + '_ {
        self.queue.peers()
    }

    /// Tokens of a bucket that go to others first; see [`FairQueue::ahead`].
    pub(crate) fn ahead(&self, line: &Line, cost: u64, bucket: Id) -> u128 {
        self.queue.ahead(line, cost, bucket)
    }

    /// Puts a waiter into its line. Whom to wake is told by [`poll`](Self::poll).
    pub(crate) fn join(
        &mut self,
        line: &Line,
        cost: u64,
        deadline: Option<Time>,
        ticket: T,
        now: Time,
    ) -> Id {
        // Whoever can go by now was there before.
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

    /// What to do at `now`. Deadlines that have passed are dealt with on the way.
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

    /// The head waits for a slot that the pacer shares with others. Says when there is something to
    /// do meanwhile.
    pub(crate) fn no_slot(&mut self, now: Time) -> Option<Time> {
        self.blame.turn_to(Some(WaitPart::CONCURRENCY), now);
        self.earliest(None)
    }

    /// What the waiter wants that [`next`](Self::next) named.
    pub(crate) fn ticket(&self, id: Id) -> Option<&T> {
        self.queue.get(id).map(|waiter| &waiter.ticket)
    }

    /// What a waiter wanted, to correct by what it got.
    pub(crate) fn ticket_mut(&mut self, id: Id) -> Option<&mut T> {
        self.queue.get_mut(id).map(|waiter| &mut waiter.ticket)
    }

    /// When there is something to do that has nothing to do with the head.
    #[cfg(feature = "tokio")]
    pub(crate) fn aside(&self) -> Option<Time> {
        self.earliest(None)
    }

    /// Whether the waiter is still in the queue.
    pub(crate) fn is_waiting(&self, id: Id) -> bool {
        self.queue.get(id).is_some_and(|waiter| matches!(waiter.fate, Fate::Waiting(_)))
    }

    /// When the waiter has to be granted at the latest.
    #[cfg(feature = "tokio")]
    pub(crate) fn deadline(&self, id: Id) -> Option<Time> {
        self.queue.get(id).and_then(|waiter| waiter.deadline)
    }

    /// Whether the waiter would be too late at that time.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_late(&self, id: Id, at: Time) -> bool {
        self.deadline(id).is_some_and(|deadline| deadline < at)
    }

    /// The waiter was charged: it leaves the queue, takes a slot, and will hear of it.
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

    /// A limit that all share is not ready until then: the waiter keeps its place and nobody
    /// overtakes it. Without a time it is tried again when something happens.
    pub(crate) fn blocked(&mut self, id: Id, by: &str, until: Option<Time>, now: Time) {
        self.blame.turn_to(Some(by), now);
        self.blocked = Some(Blocked { id, by: by.into(), until });
    }

    /// A limit of the waiter's tenant alone is not ready until then: others go on.
    pub(crate) fn passed_over(&mut self, id: Id, by: &str, until: Option<Time>, now: Time) {
        self.queue.park(id, until, by, now);
        if self.queue.parked_len() > self.max_waiting {
            // The first of a tenant came in as one of those who take turns.
            self.refuse(id, Refused::QueueFull(self.max_waiting));
        }
    }

    /// The waiter can never be charged, or not in time.
    pub(crate) fn refuse(&mut self, id: Id, refused: Refused) {
        if !self.is_waiting(id) {
            return;
        }
        self.queue.leave(id);
        self.end(id, Fate::Refused(refused));
    }

    /// Ends the wait of a waiter that has left the queue: it will hear of it.
    fn end(&mut self, id: Id, fate: Fate<G>) {
        let Some(waiter) = self.queue.get_mut(id) else { return };
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Fate::Waiting(Some(waker)) = std::mem::replace(&mut waiter.fate, fate) {
            self.wakes.wake(waker);
        }
    }

    /// Asks after a waiter; one that still waits keeps the waker.
    pub(crate) fn poll(&mut self, id: Id, waker: &Waker) -> Option<Polled<T, G>> {
        let waiter = self.queue.get_mut(id)?;
        if let Fate::Waiting(kept) = &mut waiter.fate {
            if !kept.as_ref().is_some_and(|kept| kept.will_wake(waker)) {
                // Dropping a waker may run anything, also something that wants our lock.
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

    /// A waiter leaves early. Its slot, if it had one, is free again.
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

    /// Something has changed: whatever was blocked or passed over is tried again.
    pub(crate) fn nudge(&mut self, now: Time) {
        self.nudges += 1;
        self.blocked = None;
        self.queue.unpark_all(now);
    }

    /// How often something has changed: an answer from before the last time may be out of date.
    #[cfg(feature = "tokio")]
    pub(crate) const fn nudges(&self) -> u64 {
        self.nudges
    }

    /// Who is to be woken, once the lock is released.
    pub(crate) fn wakes(&mut self) -> Wakes {
        std::mem::take(&mut self.wakes)
    }

    /// Wakes everybody who waits, because their driver has gone.
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
