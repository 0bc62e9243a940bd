//! The levels of the queue: from the classes down to the next waiter, and back up after a change.

use super::{FairQueue, QueueKey, Runnable, path};
use crate::pacer::scheduler::demand::{Demand, Demands};
use crate::pacer::scheduler::order::{Order, Position};
use crate::pacer::scheduler::share::{CallerShare, Children, Parent};
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::tenant::Tenant;
use crate::pacer::scheduler::wait_attribution::{Totals, WaitAttribution};

/// The existing entries for a queue key.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::pacer) struct Existing {
    pub(in crate::pacer) peer: Option<Id>,
    pub(in crate::pacer) credential: Option<Id>,
    pub(in crate::pacer) tenant: Option<Id>,
}

impl<T: Demands> FairQueue<T> {
    /// Looks up the existing entries for a queue key.
    pub(in crate::pacer) fn find(&self, queue_key: &QueueKey) -> Existing {
        let mut existing = Existing::default();
        let level = |parent: Parent, key: u64| self.by_caller.get(&(parent, key)).copied();
        existing.peer = level(Parent::Class(queue_key.class()), queue_key.caller.peer);
        let Some(peer) = existing.peer else { return existing };
        existing.credential = level(Parent::Peer(peer), queue_key.caller.credential);
        let Some(credential) = existing.credential else { return existing };
        let name = (credential, queue_key.credential_class(), queue_key.tenant.clone());
        existing.tenant = self.by_name.get(&name).copied();
        existing
    }

    /// Finds or creates the share of the credential, and the tenant, of a queue key.
    pub(super) fn find_or_create(&mut self, queue_key: &QueueKey) -> (Id, Id) {
        let class = Parent::Class(queue_key.class());
        let peer = self.find_or_create_share(class, queue_key.caller.peer);
        let share = self.find_or_create_share(Parent::Peer(peer), queue_key.caller.credential);
        let (class, weight) = (queue_key.credential_class(), queue_key.weight.max(1));
        let name = (share, class, queue_key.tenant.clone());
        if let Some(&id) = self.by_name.get(&name) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.weight = weight;
            }
            return (share, id);
        }
        let id = self.tenants.insert(Tenant {
            name: queue_key.tenant.clone(),
            share,
            class,
            first: None,
            last: None,
            weight,
            deficit: 0,
            demand: Demand::default(),
            waiters: 0,
            parked: None,
            attribution: WaitAttribution::default(),
            not_delayed: Totals::default(),
            parked_at: Totals::default(),
            in_ring: true,
        });
        self.by_name.insert(name, id);
        if let Some(tenants) = self.shares.get_mut(share).and_then(CallerShare::tenants_mut) {
            let ring = &mut tenants.rings[class];
            ring.tenants += 1;
            ring.push(id, &self.tenants);
        }
        (share, id)
    }

    fn find_or_create_share(&mut self, parent: Parent, key: u64) -> Id {
        if let Some(&id) = self.by_caller.get(&(parent, key)) {
            return id;
        }
        let position = self.order_mut(parent).map(Order::new_position).unwrap_or_default();
        let children = match parent {
            Parent::Class(_) => Children::Credentials(Order::default()),
            Parent::Peer(_) => Children::Tenants(Box::default()),
        };
        let demand = Demand::default();
        let id =
            self.shares.insert(CallerShare { key, parent, position, demand, waiters: 0, children });
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
            self.head_of_share(peer)
        });
        let class = self.credit.choose(heads.map(|head| Some(self.nodes.get(head?)?.cost)))?;
        heads[class]
    }

    /// Peers that could go, by class; within a class, next one first.
    pub(in crate::pacer) fn peers(&self) -> impl Iterator<Item = u64> + '_ {
        let peers = self.classes.iter().flat_map(Order::iter);
        peers.filter_map(|id| self.shares.get(id).map(|share| share.key))
    }

    /// The next waiter of a share.
    fn head_of_share(&mut self, share: Id) -> Option<Id> {
        match &self.shares.get(share)?.children {
            Children::Credentials(order) => {
                let credential = order.first()?;
                self.head_of_share(credential)
            }
            Children::Tenants(tenants) => {
                let credit = tenants.credit;
                let firsts = [0, 1, 2].map(|class| self.head_of_class(share, class));
                let class =
                    credit.choose(firsts.map(|first| Some(self.nodes.get(first?)?.cost)))?;
                firsts[class]
            }
        }
    }

    /// The next waiter of one class of a credential.
    fn head_of_class(&mut self, share: Id, class: usize) -> Option<Id> {
        let quantum = self.quantum();
        let Self { shares, tenants, nodes, .. } = self;
        let ring = &mut shares.get_mut(share)?.tenants_mut()?.rings[class];
        ring.first(tenants, quantum, |id| nodes.get(id).map_or(0, |node| node.cost))
    }

    /// Charges a grant to the class of a credential, to the credential, its peer, and its class.
    pub(super) fn charge_share(&mut self, share: Id, class: usize, cost: u64) {
        let quantum = self.quantum();
        let guaranteed = self.guaranteed;
        let can_run = [0, 1, 2].map(|class| self.head_of_class(share, class).is_some());
        if let Some(tenants) = self.shares.get_mut(share).and_then(CallerShare::tenants_mut) {
            tenants.credit.record_grant(class, cost, can_run, (&guaranteed, quantum));
        }
        let can_run = [0, 1, 2].map(|class: usize| !self.classes[class].is_empty());
        for level in self.path(share).into_iter().flatten() {
            let Some((parent, mut position)) = self.parent_and_position(level) else { continue };
            if let Some(order) = self.order_mut(parent) {
                order.served(level, &mut position, cost);
            }
            if let Some(share) = self.shares.get_mut(level) {
                share.position = position;
            }
            if let Parent::Class(class) = parent {
                self.credit.record_grant(class, cost, can_run, (&guaranteed, quantum));
            }
        }
    }

    /// Updates the order of a credential, and then of its peer, by the next waiter of each.
    pub(super) fn update_order(&mut self, share: Id) {
        for level in self.path(share).into_iter().flatten() {
            let first = self.head_of_share(level).and_then(|id| self.nodes.get(id));
            let cost = first.map(|node| node.cost);
            let Some((parent, mut position)) = self.parent_and_position(level) else { continue };
            if let Some(order) = self.order_mut(parent) {
                order.update(level, &mut position, cost);
            }
            if let Some(share) = self.shares.get_mut(level) {
                share.position = position;
            }
        }
    }

    fn parent_and_position(&self, share: Id) -> Option<(Parent, Position)> {
        self.shares.get(share).map(|share| (share.parent, share.position))
    }

    /// Adds or removes the demand of a tenant when it is unparked or parked: a parked tenant does
    /// not count for its caller.
    pub(super) fn set_runnable(&mut self, tenant: Id, runnable: Runnable) {
        let Some(tenant) = self.tenants.get(tenant) else { return };
        let share = tenant.share;
        for level in path(&self.shares, share).into_iter().flatten() {
            let Some(share) = self.shares.get_mut(level) else { continue };
            match runnable {
                Runnable::Yes => share.demand.add(&tenant.demand),
                Runnable::No => share.demand.subtract(&tenant.demand),
            }
        }
        self.update_order(share);
    }

    /// Removes a credential, and then its peer, if it has no waiters.
    pub(super) fn remove_empty(&mut self, share: Id) {
        for level in self.path(share).into_iter().flatten() {
            let is_empty = self.shares.get(level).is_some_and(|share| share.waiters == 0);
            if is_empty {
                if let Some(CallerShare { parent, key, .. }) = self.shares.remove(level) {
                    self.by_caller.remove(&(parent, key));
                }
            }
        }
    }

    pub(super) fn path(&self, share: Id) -> [Option<Id>; 2] {
        path(&self.shares, share)
    }
}
