//! A waiter: what it wants, since when, and what becomes of it.

use std::task::Waker;
use std::time::Duration;

use tidegate_core::{StoreError, Time};

use crate::pacer::scheduler::demand::Demands;
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::wait_attribution::{Mark, WaitPart};

/// How it stands with a waiter.
#[derive(Debug)]
pub(in crate::pacer) enum Fate<G> {
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
    /// Too many wait for limits of their own.
    QueueFull(usize),
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

/// A waiter.
#[derive(Debug)]
pub(in crate::pacer) struct Waiter<T, G> {
    pub(in crate::pacer) ticket: T,
    pub(in crate::pacer) joined: Time,
    pub(in crate::pacer) deadline: Option<Time>,
    /// How it stood with the blame of all, and of its tenant, when it came.
    pub(in crate::pacer) mark: Mark,
    pub(in crate::pacer) own_mark: Mark,
    pub(in crate::pacer) fate: Fate<G>,
}

impl<T: Demands, G> Demands for Waiter<T, G> {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        self.ticket.demands()
    }

    fn joins(&self) {
        self.ticket.joins();
    }

    fn leaves(&self) {
        self.ticket.leaves();
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
