//! A tenant: its waiters, and its turns.

use std::collections::VecDeque;
use std::sync::Arc;

use tidegate_core::Time;

use crate::pacer::scheduler::demand::Demand;
use crate::pacer::scheduler::slab::{Id, Slab};
use crate::pacer::scheduler::wait_attribution::{Totals, WaitAttribution};

/// The waiters of one tenant in one class of a credential.
#[derive(Debug)]
pub(in crate::pacer) struct Tenant {
    pub(in crate::pacer) name: Arc<str>,
    /// The share of its credential, and its class within it.
    pub(in crate::pacer) share: Id,
    pub(in crate::pacer) class: usize,
    pub(in crate::pacer) first: Option<Id>,
    pub(in crate::pacer) last: Option<Id>,
    pub(in crate::pacer) weight: u64,
    pub(in crate::pacer) deficit: u64,
    pub(in crate::pacer) demand: Demand,
    pub(in crate::pacer) waiters: usize,
    /// Set while its own limits are not ready: it takes no turns.
    pub(in crate::pacer) parked: Option<Parked>,
    /// What has kept it parked, and for how long.
    pub(in crate::pacer) attribution: WaitAttribution,
    /// What the shared limits caused while it was parked, which did not delay it.
    pub(in crate::pacer) not_delayed: Totals,
    /// The shared totals when it was parked.
    pub(in crate::pacer) parked_at: Totals,
    /// Whether it is in the ring of its class, possibly only to be skipped.
    pub(in crate::pacer) in_ring: bool,
}

/// Wait totals of a tenant at one instant.
#[derive(Clone, Debug, Default)]
pub(in crate::pacer) struct TenantTotals {
    /// By shared limits, while it was not parked.
    pub(in crate::pacer) shared: Totals,
    /// While it was parked.
    pub(in crate::pacer) own: Totals,
}

impl Tenant {
    /// Returns the totals now; `shared` are those of all shared limits.
    pub(in crate::pacer) fn totals(&mut self, shared: &Totals, now: Time) -> TenantTotals {
        let shared = if self.parked.is_some() { &self.parked_at } else { shared };
        let shared = shared.since(&self.not_delayed);
        TenantTotals { shared, own: self.attribution.totals(now) }
    }
}

/// Until when a tenant is parked; without a time, until it is unparked explicitly.
#[derive(Clone, Copy, Debug)]
pub(in crate::pacer) struct Parked {
    pub(in crate::pacer) until: Option<Time>,
    /// A number that grows with each parking.
    pub(in crate::pacer) order: u64,
}

/// The tenants of one class in the order of their turns: deficit round robin.
#[derive(Debug, Default)]
pub(in crate::pacer) struct Ring {
    /// Tenants that have left are skipped.
    turns: VecDeque<Id>,
    /// Whether the first tenant has received its quantum.
    has_quantum: bool,
    /// Number of tenants.
    pub(in crate::pacer) tenants: usize,
}

impl Ring {
    /// Adds a tenant behind the others. Tenants that have left are removed once they are most of
    /// the ring.
    pub(in crate::pacer) fn push(&mut self, id: Id, tenants: &Slab<Tenant>) {
        if self.turns.len() > 16 + 2 * self.tenants {
            let front = self.turns.front().copied();
            self.turns.retain(|id| tenants.get(*id).is_some());
            self.has_quantum &= self.turns.front().copied() == front;
        }
        self.turns.push_back(id);
    }

    /// The tenants in the order of their turns, including some that have left.
    pub(in crate::pacer) fn iter(&self) -> impl Iterator<Item = Id> + '_ {
        self.turns.iter().copied()
    }

    /// Advances the turns until the current tenant can afford its first waiter, and returns that
    /// waiter.
    pub(in crate::pacer) fn first(
        &mut self,
        tenants: &mut Slab<Tenant>,
        quantum: u64,
        cost: impl Fn(Id) -> u64,
    ) -> Option<Id> {
        loop {
            let id = *self.turns.front()?;
            let can_run = |tenant: &&mut Tenant| tenant.parked.is_none();
            let Some(tenant) = tenants.get_mut(id).filter(can_run) else {
                self.turns.pop_front();
                self.has_quantum = false;
                if let Some(parked) = tenants.get_mut(id) {
                    parked.in_ring = false;
                }
                continue;
            };
            if !self.has_quantum {
                let turn = quantum.saturating_mul(tenant.weight);
                tenant.deficit = tenant.deficit.saturating_add(turn);
                self.has_quantum = true;
            }
            let first = tenant.first?;
            if cost(first) <= tenant.deficit {
                return Some(first);
            }
            self.has_quantum = false;
            self.turns.rotate_left(1);
        }
    }

    #[cfg(test)]
    pub(in crate::pacer) fn len(&self) -> usize {
        self.turns.len()
    }
}
