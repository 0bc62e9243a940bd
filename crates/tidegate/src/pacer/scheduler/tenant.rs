//! A tenant: its waiters, its turns, and what it wants.

use std::sync::Arc;

use tidegate_core::Time;

use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::wait_attribution::Blame;

/// What a waiter spends where, so that what is ahead of another can be summed up.
pub(crate) trait Demands {
    /// Buckets and the tokens that are wanted of them.
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_;

    /// The waiter has joined the queue.
    fn joins(&self) {}

    /// The waiter is in the queue no more, granted or not.
    fn leaves(&self) {}
}

/// The waiters of one tenant in one class.
#[derive(Debug)]
pub(in crate::pacer) struct Tenant {
    pub(in crate::pacer) name: Arc<str>,
    pub(in crate::pacer) class: usize,
    pub(in crate::pacer) first: Option<Id>,
    pub(in crate::pacer) last: Option<Id>,
    pub(in crate::pacer) weight: u64,
    pub(in crate::pacer) deficit: u64,
    /// Cost of all its waiters.
    pub(in crate::pacer) backlog: u64,
    /// Tokens that its waiters want, by bucket.
    pub(in crate::pacer) wanted: Vec<(Id, u128)>,
    pub(in crate::pacer) waiters: usize,
    /// Its own limits are not ready: it takes no turns.
    pub(in crate::pacer) parked: Option<Parked>,
    /// How long which of its own limits have kept it.
    pub(in crate::pacer) blame: Blame,
    /// It stands in the ring of its class, perhaps only to be passed over.
    pub(in crate::pacer) in_ring: bool,
}

/// Until when a tenant takes no turns; without a time, until somebody says so.
#[derive(Clone, Copy, Debug)]
pub(in crate::pacer) struct Parked {
    pub(in crate::pacer) until: Option<Time>,
    /// A number that grows with each parking.
    pub(in crate::pacer) order: u64,
}

impl Tenant {
    /// Tokens of a bucket that its waiters want.
    pub(in crate::pacer) fn wants(&self, bucket: Id) -> u128 {
        self.wanted.iter().find(|(of, _)| *of == bucket).map_or(0, |(_, wanted)| *wanted)
    }

    pub(in crate::pacer) fn count(&mut self, cost: u64, waiter: &impl Demands) {
        self.waiters += 1;
        self.backlog = self.backlog.saturating_add(cost);
        for (bucket, tokens) in waiter.demands() {
            match self.wanted.iter_mut().find(|(of, _)| *of == bucket) {
                Some((_, wanted)) => *wanted += u128::from(tokens),
                None => self.wanted.push((bucket, tokens.into())),
            }
        }
    }

    pub(in crate::pacer) fn discount(&mut self, cost: u64, waiter: &impl Demands) {
        self.waiters -= 1;
        self.backlog = self.backlog.saturating_sub(cost);
        for (bucket, tokens) in waiter.demands() {
            if let Some(index) = self.wanted.iter().position(|(of, _)| *of == bucket) {
                self.wanted[index].1 -= u128::from(tokens);
                if self.wanted[index].1 == 0 {
                    self.wanted.swap_remove(index);
                }
            }
        }
    }
}
