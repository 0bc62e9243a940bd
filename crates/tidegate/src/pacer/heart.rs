//! The heart of a pacer: who waits, who goes next, and when to look again.
//!
//! It reads no clock, knows no store and wakes nobody. Whoever drives it asks for the
//! [`next`](Heart::next) step, tries to charge the waiter that it names, and tells what came of
//! it. All behaviour can so be tested under virtual time.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use tidegate_core::{StoreError, Time};

use super::blame::{Blame, Mark, WaitPart};
use super::queue::{Demands, FairQueue, Line, Priority, Shares};
use super::slab::Id;
use super::slots::Slots;

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Try to charge this waiter.
    Try(Id),
    /// Nothing until then, or until something happens.
    Rest(Option<Time>),
}

/// How it stands with a waiter.
#[derive(Debug)]
enum Fate<G> {
    Waiting(Option<Waker>),
    Granted(Granted<G>),
    /// Its deadline has passed, or its cost does not fit any more.
    Refused(Refused),
}

/// Why a waiter will not be granted.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Its deadline passed.
    TimedOut,
    /// The wait would be longer than the deadline allows; a shared store tells at the head.
    #[cfg(feature = "tokio")]
    TooLong(Duration),
    /// A limit was changed so that the cost never fits: the index of the claim.
    NeverFits(usize),
    /// The store cannot decide.
    Failed(StoreError),
}

/// A grant, and what it took to get there.
#[derive(Debug)]
pub(crate) struct Granted<G> {
    pub(crate) grant: G,
    pub(crate) waited: Duration,
    pub(crate) parts: Vec<WaitPart>,
}

impl<G> Granted<G> {
    /// Without having waited.
    pub(crate) fn at_once(grant: G) -> Self {
        Self { grant, waited: Duration::ZERO, parts: Vec::new() }
    }
}

/// A waiter.
#[derive(Debug)]
struct Waiter<T, G> {
    ticket: T,
    joined: Time,
    deadline: Option<Time>,
    mark: Mark,
    fate: Fate<G>,
}

impl<T: Demands, G> Demands for Waiter<T, G> {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        self.ticket.demands()
    }
}

/// What asking after a waiter gives.
#[derive(Debug)]
pub(crate) enum Polled<T, G> {
    /// It still waits; the waker is kept.
    Waiting,
    /// It was granted, and has left.
    Granted(T, Granted<G>),
    /// It was refused, and has left.
    Refused(T, Refused),
}

/// What leaving early gives.
#[derive(Debug)]
pub(crate) enum Left<T, G> {
    /// It had not been granted: there is nothing to give back.
    Queued(T),
    /// It had been granted and not yet heard of it: this is to be given back.
    Granted(T, G),
}

/// The state of one pacer. `T` is what a waiter wants, `G` what a grant consists of.
#[derive(Debug)]
pub(crate) struct Heart<T, G> {
    queue: FairQueue<Waiter<T, G>>,
    pub(crate) slots: Slots,
    max_waiting: usize,
    /// The waiter that was tried, and when to try it again.
    blocked: Option<(Id, Option<Time>)>,
    /// Tenants whose own limits are not ready, by the time to look again.
    parked: BTreeSet<(Time, ParkedLine)>,
    deadlines: BTreeSet<(Time, Id)>,
    blame: Blame,
    wakers: Vec<Waker>,
}

/// A line, ordered so that it can stand in a set.
type ParkedLine = (Priority, Arc<str>);

impl<T: Demands, G> Heart<T, G> {
    pub(crate) fn new(slots: Slots, max_waiting: usize, shares: Shares) -> Self {
        Self {
            queue: FairQueue::new(shares),
            slots,
            max_waiting,
            blocked: None,
            parked: BTreeSet::new(),
            deadlines: BTreeSet::new(),
            blame: Blame::default(),
            wakers: Vec::new(),
        }
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Whether the queue takes nobody any more.
    pub(crate) fn is_full(&self) -> bool {
        self.queue.len() >= self.max_waiting
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
        let mark = self.blame.mark(now);
        let waiter = Waiter { ticket, joined: now, deadline, mark, fate: Fate::Waiting(None) };
        let id = self.queue.push(line, cost, waiter);
        if let Some(deadline) = deadline {
            self.deadlines.insert((deadline, id));
        }
        id
    }

    /// What to do at `now`. Deadlines that have passed are dealt with on the way.
    pub(crate) fn next(&mut self, now: Time) -> Step {
        self.expire(now);
        while self.parked.first().is_some_and(|(ready, _)| *ready <= now) {
            if let Some((_, (priority, tenant))) = self.parked.pop_first() {
                self.queue.unpark(priority, &tenant);
            }
        }
        let Some(head) = self.queue.head() else {
            if self.queue.len() == 0 {
                self.blame.turn_to(None, now);
            }
            return Step::Rest(self.earliest(None));
        };
        if self.slots.is_full() {
            self.blame.turn_to(Some(WaitPart::CONCURRENCY), now);
            return Step::Rest(self.earliest(None));
        }
        match self.blocked {
            Some((id, until)) if id == head && until.is_none_or(|until| now < until) => {
                Step::Rest(self.earliest(until))
            }
            _ => Step::Try(head),
        }
    }

    /// What the waiter wants that [`next`](Self::next) named.
    pub(crate) fn ticket(&self, id: Id) -> Option<&T> {
        self.queue.get(id).map(|waiter| &waiter.ticket)
    }

    /// Whether the waiter is still in the queue.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_waiting(&self, id: Id) -> bool {
        self.queue.get(id).is_some_and(|waiter| matches!(waiter.fate, Fate::Waiting(_)))
    }

    /// Whether the waiter would be too late at that time.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_late(&self, id: Id, at: Time) -> bool {
        let deadline = self.queue.get(id).and_then(|waiter| waiter.deadline);
        deadline.is_some_and(|deadline| deadline < at)
    }

    /// The waiter was charged: it leaves the queue, takes a slot, and will hear of it.
    pub(crate) fn granted(&mut self, id: Id, grant: G, now: Time) {
        self.queue.grant(id);
        self.slots.take();
        self.blocked = None;
        let Some(waiter) = self.queue.get_mut(id) else { return };
        let waited = now.since(waiter.joined);
        let parts = self.blame.since(&waiter.mark, now);
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        let fate = Fate::Granted(Granted { grant, waited, parts });
        if let Fate::Waiting(Some(waker)) = std::mem::replace(&mut waiter.fate, fate) {
            self.wakers.push(waker);
        }
    }

    /// A limit that all share is not ready until then: the waiter keeps its place and nobody
    /// overtakes it. Without a time it is tried again when something happens.
    pub(crate) fn blocked(&mut self, id: Id, by: &str, until: Option<Time>, now: Time) {
        self.blocked = Some((id, until));
        self.blame.turn_to(Some(by), now);
    }

    /// A limit of the waiter's tenant alone is not ready until then: others go on.
    pub(crate) fn passed_over(&mut self, id: Id, by: &str, until: Time, now: Time) {
        self.blame.turn_to(Some(by), now);
        if let Some(line) = self.queue.park(id) {
            self.parked.insert((until, line));
        }
    }

    /// The waiter can never be charged.
    pub(crate) fn refuse(&mut self, id: Id, refused: Refused) {
        self.queue.leave(id);
        let Some(waiter) = self.queue.get_mut(id) else { return };
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        if let Fate::Waiting(Some(waker)) =
            std::mem::replace(&mut waiter.fate, Fate::Refused(refused))
        {
            self.wakers.push(waker);
        }
    }

    /// Asks after a waiter; one that still waits keeps the waker.
    pub(crate) fn poll(&mut self, id: Id, waker: &Waker) -> Option<Polled<T, G>> {
        let waiter = self.queue.get_mut(id)?;
        if let Fate::Waiting(kept) = &mut waiter.fate {
            match kept {
                Some(kept) => kept.clone_from(waker),
                None => *kept = Some(waker.clone()),
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
    pub(crate) fn leave(&mut self, id: Id) -> Option<Left<T, G>> {
        let waiter = self.queue.take(id)?;
        if let Some(deadline) = waiter.deadline {
            self.deadlines.remove(&(deadline, id));
        }
        match waiter.fate {
            Fate::Granted(granted) => {
                self.slots.give_back();
                self.nudge();
                Some(Left::Granted(waiter.ticket, granted.grant))
            }
            Fate::Waiting(_) | Fate::Refused(_) => Some(Left::Queued(waiter.ticket)),
        }
    }

    /// Something has changed: what was blocked is tried again.
    pub(crate) fn nudge(&mut self) {
        self.blocked = None;
    }

    /// Who is to be woken, once the lock is released.
    pub(crate) fn wakers(&mut self) -> Vec<Waker> {
        std::mem::take(&mut self.wakers)
    }

    /// Wakers of everybody who waits, for when their driver has gone.
    pub(crate) fn everybody(&self) -> Vec<Waker> {
        self.queue
            .iter()
            .filter_map(|waiter| match &waiter.fate {
                Fate::Waiting(waker) => waker.clone(),
                _ => None,
            })
            .collect()
    }

    fn expire(&mut self, now: Time) {
        while let Some(&(deadline, id)) = self.deadlines.first() {
            // A grant at the very deadline still counts: only what lies behind it is too late.
            if deadline >= now {
                break;
            }
            self.deadlines.pop_first();
            self.refuse(id, Refused::TimedOut);
        }
    }

    /// The earliest time at which there is something to do.
    fn earliest(&self, until: Option<Time>) -> Option<Time> {
        // A deadline is dealt with just after it.
        let deadline = self.deadlines.first().map(|(at, _)| at.after(Duration::from_nanos(1)));
        let parked = self.parked.first().map(|(at, _)| *at);
        [until, deadline, parked].into_iter().flatten().min()
    }
}
