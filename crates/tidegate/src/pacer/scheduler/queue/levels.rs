//! The levels of the queue: from the classes down to the next waiter, and back up after a change.

use super::{FairQueue, Line, TakesTurns, path};
use crate::pacer::scheduler::demand::{Demand, Demands};
use crate::pacer::scheduler::order::{Order, Turn};
use crate::pacer::scheduler::share::{Parent, Parts, Share};
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::tenant::Tenant;
use crate::pacer::scheduler::wait_attribution::Blame;

/// The existing entries for a queue key.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct Found {
    pub(in crate::pacer) peer: Option<Id>,
    pub(in crate::pacer) credential: Option<Id>,
    pub(in crate::pacer) tenant: Option<Id>,
}

impl<T: Demands> FairQueue<T> {
    /// Looks up the existing entries for a queue key.
    pub(in crate::pacer) fn find(&self, line: &Line) -> Found {
        let mut found = Found::default();
        let level = |parent: Parent, key: u64| self.by_caller.get(&(parent, key)).copied();
        found.peer = level(Parent::Class(line.class()), line.caller.peer);
        let Some(peer) = found.peer else { return found };
        found.credential = level(Parent::Peer(peer), line.caller.credential);
        let Some(credential) = found.credential else { return found };
        let name = (credential, line.own_class(), line.tenant.clone());
        found.tenant = self.by_name.get(&name).copied();
        found
    }

    /// Finds or creates the share of the credential, and the tenant, of a queue key.
    pub(super) fn enter(&mut self, line: &Line) -> (Id, Id) {
        let class = Parent::Class(line.class());
        let peer = self.share_of(class, line.caller.peer);
        let share = self.share_of(Parent::Peer(peer), line.caller.credential);
        let (class, weight) = (line.own_class(), line.weight.max(1));
        let name = (share, class, line.tenant.clone());
        if let Some(&id) = self.by_name.get(&name) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.weight = weight;
            }
            return (share, id);
        }
        let id = self.tenants.insert(Tenant {
            name: line.tenant.clone(),
            share,
            class,
            first: None,
            last: None,
            weight,
            deficit: 0,
            demand: Demand::default(),
            waiters: 0,
            parked: None,
            blame: Blame::default(),
            in_ring: true,
        });
        self.by_name.insert(name, id);
        if let Some(tenants) = self.shares.get_mut(share).and_then(Share::tenants_mut) {
            let ring = &mut tenants.rings[class];
            ring.tenants += 1;
            ring.enter(id, &self.tenants);
        }
        (share, id)
    }

    fn share_of(&mut self, parent: Parent, key: u64) -> Id {
        if let Some(&id) = self.by_caller.get(&(parent, key)) {
            return id;
        }
        let turn = self.order_mut(parent).map(Order::enter).unwrap_or_default();
        let parts = match parent {
            Parent::Class(_) => Parts::Credentials(Order::default()),
            Parent::Peer(_) => Parts::Tenants(Box::default()),
        };
        let demand = Demand::default();
        let id = self.shares.insert(Share { key, parent, turn, demand, waiters: 0, parts });
        self.by_caller.insert((parent, key), id);
        id
    }

    /// The order of the shares of a class or of a peer.
    pub(in crate::pacer) fn order(&self, parent: Parent) -> Option<&Order> {
        match parent {
            Parent::Class(class) => self.classes.get(class),
            Parent::Peer(peer) => self.shares.get(peer)?.credentials(),
        }
    }

    fn order_mut(&mut self, parent: Parent) -> Option<&mut Order> {
        match parent {
            Parent::Class(class) => self.classes.get_mut(class),
            Parent::Peer(peer) => self.shares.get_mut(peer)?.credentials_mut(),
        }
    }

    /// The next waiter. It stays the same until it leaves, its tenant is parked, or another class
    /// or caller takes precedence.
    pub(crate) fn head(&mut self) -> Option<Id> {
        let heads = [0, 1, 2].map(|class| {
            let peer = self.classes[class].first()?;
            self.first_of(peer)
        });
        let class = self.owed.choose(heads.map(|head| Some(self.nodes.get(head?)?.cost)))?;
        heads[class]
    }

    /// Peers that could go, by class; within a class, next one first.
    pub(in crate::pacer) fn peers(&self) -> impl Iterator<Item = u64> + '_ {
        let peers = self.classes.iter().flat_map(Order::iter);
        peers.filter_map(|id| self.shares.get(id).map(|share| share.key))
    }

    /// The next waiter of a share.
    fn first_of(&mut self, share: Id) -> Option<Id> {
        match &self.shares.get(share)?.parts {
            Parts::Credentials(order) => {
                let credential = order.first()?;
                self.first_of(credential)
            }
            Parts::Tenants(tenants) => {
                let owed = tenants.owed;
                let firsts = [0, 1, 2].map(|class| self.first_in(share, class));
                let class = owed.choose(firsts.map(|first| Some(self.nodes.get(first?)?.cost)))?;
                firsts[class]
            }
        }
    }

    /// The next waiter of one class of a credential.
    fn first_in(&mut self, share: Id, class: usize) -> Option<Id> {
        let quantum = self.quantum();
        let Self { shares, tenants, nodes, .. } = self;
        let ring = &mut shares.get_mut(share)?.tenants_mut()?.rings[class];
        ring.first(tenants, quantum, |id| nodes.get(id).map_or(0, |node| node.cost))
    }

    /// Charges a grant to the class of a credential, to the credential, its peer, and its class.
    pub(super) fn charge(&mut self, share: Id, class: usize, cost: u64) {
        let quantum = self.quantum();
        let guaranteed = self.guaranteed;
        let runs = [0, 1, 2].map(|class| self.first_in(share, class).is_some());
        if let Some(tenants) = self.shares.get_mut(share).and_then(Share::tenants_mut) {
            tenants.owed.granted(class, cost, runs, (&guaranteed, quantum));
        }
        let runs = [0, 1, 2].map(|class: usize| !self.classes[class].is_empty());
        for level in self.path(share).into_iter().flatten() {
            let Some((parent, mut turn)) = self.turn_of(level) else { continue };
            if let Some(order) = self.order_mut(parent) {
                order.served(level, &mut turn, cost);
            }
            if let Some(share) = self.shares.get_mut(level) {
                share.turn = turn;
            }
            if let Parent::Class(class) = parent {
                self.owed.granted(class, cost, runs, (&guaranteed, quantum));
            }
        }
    }

    /// Updates the order of a credential, and then of its peer, by the next waiter of each.
    pub(super) fn refresh(&mut self, share: Id) {
        for level in self.path(share).into_iter().flatten() {
            let first = self.first_of(level).and_then(|id| self.nodes.get(id));
            let cost = first.map(|node| node.cost);
            let Some((parent, mut turn)) = self.turn_of(level) else { continue };
            if let Some(order) = self.order_mut(parent) {
                order.place(level, &mut turn, cost);
            }
            if let Some(share) = self.shares.get_mut(level) {
                share.turn = turn;
            }
        }
    }

    fn turn_of(&self, share: Id) -> Option<(Parent, Turn)> {
        self.shares.get(share).map(|share| (share.parent, share.turn))
    }

    /// Adds or removes the demand of a tenant when it is unparked or parked: a parked tenant does
    /// not count for its caller.
    pub(super) fn take_turns(&mut self, tenant: Id, takes_turns: TakesTurns) {
        let Some(tenant) = self.tenants.get(tenant) else { return };
        let share = tenant.share;
        for level in path(&self.shares, share).into_iter().flatten() {
            let Some(share) = self.shares.get_mut(level) else { continue };
            match takes_turns {
                TakesTurns::Yes => share.demand.add(&tenant.demand),
                TakesTurns::No => share.demand.subtract(&tenant.demand),
            }
        }
        self.refresh(share);
    }

    /// Removes a credential, and then its peer, if it has no waiters.
    pub(super) fn remove_empty(&mut self, share: Id) {
        for level in self.path(share).into_iter().flatten() {
            let is_empty = self.shares.get(level).is_some_and(|share| share.waiters == 0);
            if is_empty {
                if let Some(Share { parent, key, .. }) = self.shares.remove(level) {
                    self.by_caller.remove(&(parent, key));
                }
            }
        }
    }

    pub(super) fn path(&self, share: Id) -> [Option<Id>; 2] {
        path(&self.shares, share)
    }
}
