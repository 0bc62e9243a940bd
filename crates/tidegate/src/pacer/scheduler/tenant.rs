//! A tenant: its waiters, and its turns.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_core::Time;

use crate::pacer::scheduler::demand::Demand;
use crate::pacer::scheduler::slab::{Id, Slab};
use crate::pacer::scheduler::wait_attribution::Blame;

/// The waiters of one tenant in one class of a credential.
#[derive(Debug)]
pub(in crate::pacer) struct Tenant {
    pub(in crate::pacer) name: Arc<str>,
    /// The share of its credential, and the class in it.
    pub(in crate::pacer) share: Id,
    pub(in crate::pacer) class: usize,
    pub(in crate::pacer) first: Option<Id>,
    pub(in crate::pacer) last: Option<Id>,
    pub(in crate::pacer) weight: u64,
    pub(in crate::pacer) deficit: u64,
    pub(in crate::pacer) demand: Demand,
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

/// The tenants of one class, in the order of their turns: deficit round robin.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Ring {
    /// Those that have left are passed over.
    turns: VecDeque<Id>,
    /// Whether the first has been given its quantum.
    in_turn: bool,
    /// How many tenants there are.
    pub(in crate::pacer) tenants: usize,
}

impl Ring {
    /// Puts a tenant at the end of the turns. Tenants that have left are cleared away when they are
    /// most of the ring.
    pub(in crate::pacer) fn enter(&mut self, id: Id, tenants: &Slab<Tenant>) {
        if self.turns.len() > 16 + 2 * self.tenants {
            let front = self.turns.front().copied();
            self.turns.retain(|id| tenants.get(*id).is_some());
            self.in_turn &= self.turns.front().copied() == front;
        }
        self.turns.push_back(id);
    }

    /// The tenants in the order of their turns, and some that have left.
    pub(in crate::pacer) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.turns.iter().copied()
    }

    /// Moves the turns on until the tenant in turn can afford its first waiter, which is told.
    pub(in crate::pacer) fn first(
        &mut self,
        tenants: &mut Slab<Tenant>,
        quantum: u64,
        cost: impl Fn(Id) -> u64,
    ) -> Option<Id> {
        loop {
            let id = *self.turns.front()?;
            let runs = |tenant: &&mut Tenant| tenant.parked.is_none();
            let Some(tenant) = tenants.get_mut(id).filter(runs) else {
                self.turns.pop_front();
                self.in_turn = false;
                if let Some(parked) = tenants.get_mut(id) {
                    parked.in_ring = false;
                }
                continue;
            };
            if !self.in_turn {
                let turn = quantum.saturating_mul(tenant.weight);
                tenant.deficit = tenant.deficit.saturating_add(turn);
                self.in_turn = true;
            }
            let first = tenant.first?;
            if cost(first) <= tenant.deficit {
                return Some(first);
            }
            self.in_turn = false;
            self.turns.rotate_left(1);
        }
    }

    #[cfg(test)]
    pub(in crate::pacer) fn len(&self) -> usize {
        self.turns.len()
    }
}
