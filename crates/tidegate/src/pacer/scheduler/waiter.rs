//! A waiter: its request, when it joined, and its state.

use std::task::Waker;
use std::time::Duration;

use tidegate_core::{StoreError, Time};

use crate::pacer::scheduler::demand::Demands;
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::tenant::TenantTotals;
use crate::pacer::scheduler::wait_attribution::WaitPart;

/// State of a waiter.
#[derive(Debug)]
pub(in crate::pacer) enum WaiterState<G> {
    Waiting(Option<Waker>),
    Granted(Granted<G>),
    Failed(WaitError),
}

/// Why a waiter gets no grant.
#[derive(Debug)]
pub(crate) enum WaitError {
    /// Its deadline passed.
    TimedOut,
    /// The wait would exceed the deadline; a shared store reports that at the head of the queue.
    #[cfg(feature = "tokio")]
    TooLong(Duration),
    /// Too many waiters have a parked tenant.
    QueueFull(usize),
    /// A limit was changed so that the cost never fits: the index of the claim.
    NeverFits(usize),
    /// The store cannot decide.
    Store(StoreError),
}

/// A grant, the time it waited, and the parts of that time by limit.
#[derive(Debug)]
pub(crate) struct Granted<G> {
    pub(crate) grant: G,
    pub(crate) waited: Duration,
    pub(crate) parts: Vec<WaitPart>,
}

#[derive(Debug)]
pub(in crate::pacer) struct Waiter<T, G> {
    pub(in crate::pacer) pending: T,
    pub(in crate::pacer) joined: Time,
    pub(in crate::pacer) deadline: Option<Time>,
    /// Wait totals of its tenant when it joined: by shared limits, and by the tenant's own.
    pub(in crate::pacer) marks: TenantTotals,
    pub(in crate::pacer) state: WaiterState<G>,
}

impl<T: Demands, G> Demands for Waiter<T, G> {
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
        self.pending.demands()
    }

    fn on_join(&self) {
        self.pending.on_join();
    }

    fn on_leave(&self) {
        self.pending.on_leave();
    }
}

/// Result of polling a waiter.
#[derive(Debug)]
pub(crate) enum Polled<T, G> {
    /// It still waits; the waker is stored.
    Waiting,
    /// It was granted, and is removed.
    Granted(T, Granted<G>),
    /// It failed, and is removed.
    Failed(T, WaitError),
}

/// A waiter that was removed early.
#[derive(Debug)]
pub(crate) enum Removed<T, G> {
    /// It had not been granted: there is nothing to give back.
    Queued(T),
    /// It had been granted but not polled since: the grant has to be given back.
    Granted(T, G),
}
