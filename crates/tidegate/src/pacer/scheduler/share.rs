//! Shares of callers: that of a peer, and within it those of its credentials.

use crate::pacer::scheduler::class::ClassCredit;
use crate::pacer::scheduler::demand::Demand;
use crate::pacer::scheduler::order::{Order, Position};
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::tenant::Ring;

/// A share of the level above. It exists while it has waiters.
#[derive(Debug)]
pub(in crate::pacer) struct CallerShare {
    /// Number of its peer or credential.
    pub(in crate::pacer) key: u64,
    pub(in crate::pacer) parent: Parent,
    pub(in crate::pacer) position: Position,
    /// Demand of the tenants that are not parked.
    pub(in crate::pacer) demand: Demand,
    /// Number of waiters, parked or not.
    pub(in crate::pacer) waiters: usize,
    pub(in crate::pacer) children: Children,
}

/// The level above a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::pacer) enum Parent {
    /// A class of the queue.
    Class(usize),
    /// The share of a peer.
    Peer(Id),
}

/// The level below a share.
#[derive(Debug)]
pub(in crate::pacer) enum Children {
    Credentials(Order),
    Tenants(Box<TenantRings>),
}

/// The tenants of a credential by class.
#[derive(Debug, Default)]
pub(in crate::pacer) struct TenantRings {
    pub(in crate::pacer) rings: [Ring; 3],
    pub(in crate::pacer) credit: ClassCredit,
}

impl CallerShare {
    /// The order of the credentials of a peer.
    pub(in crate::pacer) const fn credentials(&self) -> Option<&Order> {
        match &self.children {
            Children::Credentials(order) => Some(order),
            Children::Tenants(_) => None,
        }
    }

    pub(in crate::pacer) const fn credentials_mut(&mut self) -> Option<&mut Order> {
        match &mut self.children {
            Children::Credentials(order) => Some(order),
            Children::Tenants(_) => None,
        }
    }

    /// The tenants of a credential.
    pub(in crate::pacer) fn tenants(&self) -> Option<&TenantRings> {
        match &self.children {
            Children::Tenants(tenants) => Some(tenants),
            Children::Credentials(_) => None,
        }
    }

    pub(in crate::pacer) fn tenants_mut(&mut self) -> Option<&mut TenantRings> {
        match &mut self.children {
            Children::Tenants(tenants) => Some(tenants),
            Children::Credentials(_) => None,
        }
    }
}
