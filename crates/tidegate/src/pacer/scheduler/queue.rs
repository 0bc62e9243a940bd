//! The order of grants: by class, then caller, then tenant, then order of arrival.
//!
//! Within a tenant, waiters go in order of arrival. Between the tenants of a class, deficit round
//! robin shares by cost: in every turn a tenant may spend one quantum, times its weight. The
//! quantum is the largest cost in the queue, so a heavy tenant delays a light one by at most one
//! quantum and one maximal request. Above that, the highest class goes first, unless a lower one is
//! owed its guaranteed share. A tenant is parked while its own limits are not ready; it then takes
//! no turns, accumulates no credit, and blocks no other tenant.
//!
//! All of this exists once per credential of a caller. The credentials of a peer are
//! [ordered](super::order) by what they have been granted, and so are peers. The
//! classes of trusted callers rank above peers; the classes of other callers apply only within their
//! credential.
//!
//! The queue knows ids, costs and names. It knows no limits, and uses times only for sorting.

mod levels;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use tidegate_core::Time;

use crate::pacer::scheduler::caller::CallerId;
use crate::pacer::scheduler::class::{ClassCredit, GuaranteedShares, Priority};
use crate::pacer::scheduler::demand::Demands;
use crate::pacer::scheduler::order::Order;
use crate::pacer::scheduler::share::{CallerShare, Parent};
use crate::pacer::scheduler::slab::{Id, Slab};
use crate::pacer::scheduler::tenant::{Parked, Tenant};
use crate::pacer::scheduler::wait_attribution::{Causes, Totals};

/// Position of a waiter: its caller, class and tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueKey {
    pub(crate) caller: CallerId,
    pub(crate) priority: Priority,
    pub(crate) tenant: Arc<str>,
    /// Number of quanta that the tenant may spend per turn; the latest arrival decides.
    pub(crate) weight: u64,
}

impl QueueKey {
    /// Class among all callers.
    pub(in crate::pacer) const fn class(&self) -> usize {
        if self.caller.is_trusted { self.priority.index() } else { Priority::Normal.index() }
    }

    /// Class within its credential.
    pub(in crate::pacer) const fn credential_class(&self) -> usize {
        if self.caller.is_trusted { Priority::Normal.index() } else { self.priority.index() }
    }
}

/// A waiter, linked to its neighbours in the same tenant.
#[derive(Debug)]
struct Node<T> {
    value: T,
    cost: u64,
    /// `None` once it has left the queue.
    tenant: Option<Id>,
    prev: Option<Id>,
    next: Option<Id>,
}

/// The queue of one pacer. It keeps a waiter, even a granted one, until the waiter is taken out.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    nodes: Slab<Node<T>>,
    pub(in crate::pacer) tenants: Slab<Tenant>,
    by_name: HashMap<(Id, usize, Arc<str>), Id>,
    /// Shares of peers and of their credentials.
    pub(in crate::pacer) shares: Slab<CallerShare>,
    by_caller: HashMap<(Parent, u64), Id>,
    /// The peers of each class.
    pub(in crate::pacer) classes: [Order; 3],
    credit: ClassCredit,
    pub(in crate::pacer) guaranteed: GuaranteedShares,
    /// The costs in the queue, and how often each occurs: the largest is the quantum.
    costs: BTreeMap<u64, usize>,
    /// Parked tenants by the time at which they become runnable. Tenants with the same time come
    /// back in the order in which they were parked; otherwise a tenant with a low id would always
    /// be first.
    parked: BTreeSet<(Time, u64, Id)>,
    /// Number of times a tenant was parked, to order tenants with the same time.
    park_count: u64,
    /// Number of waiters, and how many of them have a parked tenant.
    len: usize,
    parked_len: usize,
}

impl<T: Demands> FairQueue<T> {
    pub(crate) fn new(guaranteed: GuaranteedShares) -> Self {
        Self {
            nodes: Slab::default(),
            tenants: Slab::default(),
            by_name: HashMap::new(),
            shares: Slab::default(),
            by_caller: HashMap::new(),
            classes: Default::default(),
            credit: ClassCredit::default(),
            guaranteed,
            costs: BTreeMap::new(),
            parked: BTreeSet::new(),
            park_count: 0,
            len: 0,
            parked_len: 0,
        }
    }

    /// Number of waiters. Granted waiters that have not been taken out do not count.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of waiters whose tenant is parked.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked_len
    }

    /// Whether the tenant of this key has waiters.
    pub(crate) fn has_tenant(&self, queue_key: &QueueKey) -> bool {
        self.find(queue_key).tenant.is_some()
    }

    /// Whether the tenant of this key is parked.
    pub(crate) fn is_parked(&self, queue_key: &QueueKey) -> bool {
        let tenant = self.find(queue_key).tenant.and_then(|id| self.tenants.get(id));
        tenant.is_some_and(|tenant| tenant.parked.is_some())
    }

    /// What a tenant may spend per turn: the largest cost in the queue.
    pub(in crate::pacer) fn quantum(&self) -> u64 {
        self.costs.last_key_value().map_or(1, |(cost, _)| *cost)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.nodes.get_mut(id).map(|node| &mut node.value)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        self.nodes.get(id).map(|node| &node.value)
    }

    /// Adds a waiter behind the others of its tenant.
    pub(crate) fn push(&mut self, queue_key: &QueueKey, cost: u64, value: T) -> Id {
        *self.costs.entry(cost).or_default() += 1;
        self.len += 1;
        let (share, tenant_id) = self.find_or_create(queue_key);
        let prev = self.tenants.get(tenant_id).and_then(|tenant| tenant.last);
        value.on_join();
        let mut is_parked = false;
        if let Some(tenant) = self.tenants.get_mut(tenant_id) {
            tenant.waiters += 1;
            tenant.demand.add_waiter(cost, &value);
            is_parked = tenant.parked.is_some();
            self.parked_len += usize::from(is_parked);
        }
        for level in self.path(share).into_iter().flatten() {
            let Some(share) = self.shares.get_mut(level) else { continue };
            share.waiters += 1;
            if !is_parked {
                share.demand.add_waiter(cost, &value);
            }
        }
        let node = Node { value, cost, tenant: Some(tenant_id), prev, next: None };
        let id = self.nodes.insert(node);
        if let Some(prev) = prev.and_then(|prev| self.nodes.get_mut(prev)) {
            prev.next = Some(id);
        }
        if let Some(tenant) = self.tenants.get_mut(tenant_id) {
            tenant.last = Some(id);
            tenant.first.get_or_insert(id);
        }
        self.update_order(share);
        id
    }

    /// Records a grant: the waiter leaves the queue, and its cost is charged to its tenant, its
    /// caller and its classes. Its value stays until it is taken out.
    pub(crate) fn grant(&mut self, id: Id) {
        let Some(node) = self.nodes.get(id) else { return };
        let (cost, Some(tenant)) = (node.cost, node.tenant) else { return };
        let Some(tenant) = self.tenants.get_mut(tenant) else { return };
        tenant.deficit = tenant.deficit.saturating_sub(cost);
        let (share, class) = (tenant.share, tenant.class);
        self.charge_share(share, class, cost);
        self.unlink(id);
    }

    /// Removes a waiter from the queue without a grant. Its value stays until it is taken out.
    pub(crate) fn leave(&mut self, id: Id) {
        self.unlink(id);
    }

    /// All waiters that have not been taken out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().map(|node| &node.value)
    }

    /// Takes a waiter out, whether or not it still waits.
    pub(crate) fn take(&mut self, id: Id) -> Option<T> {
        self.unlink(id);
        self.nodes.remove(id).map(|node| node.value)
    }

    /// Parks the tenant of a waiter until `until`, because of limits of its own. Without a time it
    /// stays parked until [`unpark_all`](Self::unpark_all). `shared` are the totals of the shared
    /// limits.
    pub(crate) fn park(
        &mut self,
        id: Id,
        until: Option<Time>,
        causes: &Causes,
        (shared, now): (&Totals, Time),
    ) {
        let Some(tenant_id) = self.nodes.get(id).and_then(|node| node.tenant) else { return };
        let Some(tenant) = self.tenants.get_mut(tenant_id) else { return };
        self.park_count += 1;
        let is_new = tenant.parked.replace(Parked { until, order: self.park_count }).is_none();
        // The rest of its turn is lost; otherwise it would save up turns while parked.
        tenant.deficit = 0;
        tenant.attribution.switch_to(causes.iter().map(|(name, until)| (&**name, *until)), now);
        if let Some(until) = until {
            self.parked.insert((until, self.park_count, tenant_id));
        }
        if is_new {
            tenant.parked_at = shared.clone();
            self.parked_len += tenant.waiters;
            self.set_runnable(tenant_id, Runnable::No);
        }
    }

    /// The time at which the next parked tenant becomes runnable.
    pub(crate) fn next_unpark(&self) -> Option<Time> {
        self.parked.first().map(|(until, ..)| *until)
    }

    /// Unparks the tenants whose time has come. `shared` are the totals of the shared limits.
    pub(crate) fn unpark(&mut self, shared: &Totals, now: Time) {
        while let Some(&(until, _, id)) = self.parked.first() {
            if until > now {
                return;
            }
            self.parked.pop_first();
            self.unpark_one(id, shared, now);
        }
    }

    pub(crate) fn unpark_all(&mut self, shared: &Totals, now: Time) {
        if self.parked_len > 0 {
            self.parked.clear();
            let parked = |(id, tenant): (Id, &Tenant)| Some((tenant.parked?.order, id));
            let mut all: Vec<(u64, Id)> = self.tenants.entries().filter_map(parked).collect();
            all.sort_unstable_by_key(|(order, _)| *order);
            all.into_iter().for_each(|(_, id)| self.unpark_one(id, shared, now));
        }
    }

    fn unpark_one(&mut self, id: Id, shared: &Totals, now: Time) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.parked.take().is_none() {
            return;
        }
        self.parked_len -= tenant.waiters;
        tenant.not_delayed.add(&shared.since(&tenant.parked_at));
        tenant.attribution.clear(now);
        if !std::mem::replace(&mut tenant.in_ring, true) {
            let (share, class) = (tenant.share, tenant.class);
            let tenants = self.shares.get_mut(share).and_then(CallerShare::tenants_mut);
            if let Some(share_tenants) = tenants {
                share_tenants.rings[class].push(id, &self.tenants);
            }
        }
        self.set_runnable(id, Runnable::Yes);
    }

    /// The tenant of a waiter in the queue.
    pub(in crate::pacer) fn tenant_of(&mut self, id: Id) -> Option<&mut Tenant> {
        let tenant = self.nodes.get(id)?.tenant?;
        self.tenants.get_mut(tenant)
    }

    /// Unlinks a waiter, and removes its tenant and its caller if they have no other waiters.
    fn unlink(&mut self, id: Id) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Some(tenant_id) = node.tenant.take() else { return };
        let (prev, next, cost) = (node.prev.take(), node.next.take(), node.cost);
        self.len -= 1;
        node.value.on_leave();
        if let Some(count) = self.costs.get_mut(&cost) {
            *count -= 1;
            if *count == 0 {
                self.costs.remove(&cost);
            }
        }
        if let Some(prev) = prev.and_then(|prev| self.nodes.get_mut(prev)) {
            prev.next = next;
        }
        if let Some(next) = next.and_then(|next| self.nodes.get_mut(next)) {
            next.prev = prev;
        }
        let Some(tenant) = self.tenants.get_mut(tenant_id) else { return };
        if tenant.first == Some(id) {
            tenant.first = next;
        }
        if tenant.last == Some(id) {
            tenant.last = prev;
        }
        tenant.waiters -= 1;
        let (share, is_parked) = (tenant.share, tenant.parked.is_some());
        self.parked_len -= usize::from(is_parked);
        if let Some(node) = self.nodes.get(id) {
            tenant.demand.remove_waiter(cost, &node.value);
            for level in path(&self.shares, share).into_iter().flatten() {
                let Some(share) = self.shares.get_mut(level) else { continue };
                share.waiters -= 1;
                if !is_parked {
                    share.demand.remove_waiter(cost, &node.value);
                }
            }
        }
        if tenant.first.is_none() {
            self.remove_tenant(tenant_id);
        }
        self.update_order(share);
        self.remove_empty(share);
        if self.len == 0 {
            // The queue is empty: free the memory of an earlier peak.
            self.by_name.shrink_to(64);
            self.by_caller.shrink_to(64);
        }
    }

    fn remove_tenant(&mut self, id: Id) {
        let Some(tenant) = self.tenants.remove(id) else { return };
        let Tenant { share, class, name, .. } = tenant;
        if let Some(tenants) = self.shares.get_mut(share).and_then(CallerShare::tenants_mut) {
            tenants.rings[class].tenants -= 1;
        }
        self.by_name.remove(&(share, class, name));
        if let Some(Parked { until: Some(until), order }) = tenant.parked {
            self.parked.remove(&(until, order, id));
        }
    }
}

/// Whether a tenant takes turns.
#[derive(Clone, Copy)]
enum Runnable {
    Yes,
    No,
}

/// The share of a credential and the share of its peer.
fn path(shares: &Slab<CallerShare>, share: Id) -> [Option<Id>; 2] {
    let parent = shares.get(share).map(|share| share.parent);
    let peer = match parent {
        Some(Parent::Peer(peer)) => Some(peer),
        _ => None,
    };
    [Some(share), peer]
}

#[cfg(test)]
mod caller_tests;
#[cfg(test)]
mod tests;
