//! Who goes next: classes above tenants above arrival order.
//!
//! Inside a tenant waiters go in order of arrival. Between tenants of a class deficit round robin
//! shares by cost: every turn a tenant may spend one quantum, times its weight, which is the
//! largest cost in the queue; so a heavy tenant delays a light one by at most one quantum and one
//! maximal request. Above that, the highest class goes first, unless a lower one is owed its
//! guaranteed share. A tenant can be parked while its own limits are not ready; it then takes no
//! turns, saves none up, and blocks nobody.
//!
//! The queue knows ids, costs and names, and no limits; time only as a number to sort by.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tidegate_core::Time;

use crate::pacer::scheduler::slab::{Id, Slab};
use crate::pacer::scheduler::tenant::{Demands, Parked, Tenant};
use crate::pacer::scheduler::wait_attribution::{Blame, Mark};

/// How urgent a request is, beside others of the same pacer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Priority {
    /// Goes first.
    High,
    /// Goes next, and is guaranteed 20 % unless set otherwise.
    #[default]
    Normal,
    /// Goes last, and is guaranteed 5 % unless set otherwise.
    Low,
}

impl Priority {
    #[cfg(test)]
    const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

    pub(crate) const fn index(self) -> usize {
        match self {
            Self::High => 0,
            Self::Normal => 1,
            Self::Low => 2,
        }
    }
}

/// Guaranteed shares of the classes, in percent.
pub(crate) type Shares = [u8; 3];

/// Where a waiter stands: its class and tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) priority: Priority,
    pub(crate) tenant: Arc<str>,
    /// How many quanta the tenant may spend in a turn; the latest arrival decides.
    pub(crate) weight: u64,
}

/// A waiter, linked to its neighbours of the same tenant.
#[derive(Debug)]
struct Node<T> {
    value: T,
    cost: u64,
    /// `None` once it has left the queue.
    tenant: Option<Id>,
    before: Option<Id>,
    after: Option<Id>,
}

#[derive(Debug, Default)]
pub(in crate::pacer) struct Class {
    pub(in crate::pacer) by_name: HashMap<Arc<str>, Id>,
    /// Tenants in the order of their turns; those that have left are passed over.
    ring: VecDeque<Id>,
    /// Whether the first of the ring has been given its quantum.
    in_turn: bool,
    /// What the class is owed of its guaranteed share, in hundredths of cost.
    owed: u128,
}

/// The queue of one pacer. It keeps its waiters until they are taken out, also after they have
/// been granted.
#[derive(Debug)]
pub(crate) struct FairQueue<T> {
    nodes: Slab<Node<T>>,
    pub(in crate::pacer) tenants: Slab<Tenant>,
    pub(in crate::pacer) classes: [Class; 3],
    pub(in crate::pacer) shares: Shares,
    /// The costs in the queue, and how often each occurs: the largest is the quantum.
    costs: BTreeMap<u64, usize>,
    /// Parked tenants by the time at which they take turns again. Those whose time is the same come
    /// back in the order in which they were parked, or whoever has a low id would always be first.
    parked: BTreeSet<(Time, u64, Id)>,
    parkings: u64,
    /// How many wait, and how many of them with a parked tenant.
    len: usize,
    parked_len: usize,
}

impl<T: Demands> FairQueue<T> {
    pub(crate) fn new(shares: Shares) -> Self {
        Self {
            nodes: Slab::default(),
            tenants: Slab::default(),
            classes: Default::default(),
            shares,
            costs: BTreeMap::new(),
            parked: BTreeSet::new(),
            parkings: 0,
            len: 0,
            parked_len: 0,
        }
    }

    /// How many wait. Granted waiters that have not been taken out do not count.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of those who wait have a parked tenant.
    pub(crate) fn parked_len(&self) -> usize {
        self.parked_len
    }

    /// Whether a tenant waits in this class.
    pub(crate) fn has(&self, line: &Line) -> bool {
        self.classes[line.priority.index()].by_name.contains_key(&line.tenant)
    }

    /// Whether the tenant of a line waits for limits of its own.
    pub(crate) fn is_parked(&self, line: &Line) -> bool {
        let tenant = self.classes[line.priority.index()].by_name.get(&line.tenant);
        let tenant = tenant.and_then(|id| self.tenants.get(*id));
        tenant.is_some_and(|tenant| tenant.parked.is_some())
    }

    /// What a tenant may spend in a turn: the largest cost in the queue.
    pub(in crate::pacer) fn quantum(&self) -> u64 {
        self.costs.last_key_value().map_or(1, |(cost, _)| *cost)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.nodes.get_mut(id).map(|node| &mut node.value)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        self.nodes.get(id).map(|node| &node.value)
    }

    /// Puts a waiter at the end of its line.
    pub(crate) fn push(&mut self, line: &Line, cost: u64, value: T) -> Id {
        *self.costs.entry(cost).or_default() += 1;
        self.len += 1;
        let tenant = self.tenant_of(line);
        let before = self.tenants.get(tenant).and_then(|tenant| tenant.last);
        value.joins();
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.count(cost, &value);
            self.parked_len += usize::from(tenant.parked.is_some());
        }
        let node = Node { value, cost, tenant: Some(tenant), before, after: None };
        let id = self.nodes.insert(node);
        if let Some(before) = before.and_then(|before| self.nodes.get_mut(before)) {
            before.after = Some(id);
        }
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.last = Some(id);
            tenant.first.get_or_insert(id);
        }
        id
    }

    fn tenant_of(&mut self, line: &Line) -> Id {
        let class = line.priority.index();
        if let Some(&id) = self.classes[class].by_name.get(&line.tenant) {
            if let Some(tenant) = self.tenants.get_mut(id) {
                tenant.weight = line.weight.max(1);
            }
            return id;
        }
        let id = self.tenants.insert(Tenant {
            name: line.tenant.clone(),
            class,
            first: None,
            last: None,
            weight: line.weight.max(1),
            deficit: 0,
            backlog: 0,
            wanted: Vec::new(),
            waiters: 0,
            parked: None,
            blame: Blame::default(),
            in_ring: true,
        });
        self.classes[class].by_name.insert(line.tenant.clone(), id);
        self.enter_ring(class, id);
        id
    }

    /// Puts a tenant at the end of the turns. Tenants that have left are cleared away when they are
    /// most of the ring.
    fn enter_ring(&mut self, class: usize, id: Id) {
        let Self { classes, tenants, .. } = self;
        let class = &mut classes[class];
        if class.ring.len() > 16 + 2 * class.by_name.len() {
            let front = class.ring.front().copied();
            class.ring.retain(|id| tenants.get(*id).is_some());
            class.in_turn &= class.ring.front().copied() == front;
        }
        class.ring.push_back(id);
    }

    /// The waiter that goes next. It stays the same until it leaves, its tenant is parked, or a
    /// class with more right arrives.
    pub(crate) fn head(&mut self) -> Option<Id> {
        let heads = [0, 1, 2].map(|class| self.head_of(class));
        let cost = |id: Id| self.nodes.get(id).map_or(0, |node| u128::from(node.cost));
        // The lowest class that is owed enough for its head, else the highest one.
        let owed = (0..3).rev().find(|&class| {
            heads[class].is_some_and(|head| self.classes[class].owed >= cost(head) * 100)
        });
        owed.and_then(|class| heads[class]).or_else(|| heads.into_iter().flatten().next())
    }

    /// Moves the turns of a class on until the tenant in turn can afford its first waiter.
    fn head_of(&mut self, class: usize) -> Option<Id> {
        let quantum = self.quantum();
        loop {
            let class = &mut self.classes[class];
            let id = *class.ring.front()?;
            let runs = |tenant: &&mut Tenant| tenant.parked.is_none();
            let Some(tenant) = self.tenants.get_mut(id).filter(runs) else {
                class.ring.pop_front();
                class.in_turn = false;
                if let Some(parked) = self.tenants.get_mut(id) {
                    parked.in_ring = false;
                }
                continue;
            };
            if !class.in_turn {
                let turn = quantum.saturating_mul(tenant.weight);
                tenant.deficit = tenant.deficit.saturating_add(turn);
                class.in_turn = true;
            }
            let first = tenant.first?;
            if self.nodes.get(first).is_some_and(|node| node.cost <= tenant.deficit) {
                return Some(first);
            }
            class.in_turn = false;
            class.ring.rotate_left(1);
        }
    }

    /// A waiter was granted: it leaves the queue, and its cost is charged to tenant and class.
    /// Its value stays until it is taken out.
    pub(crate) fn grant(&mut self, id: Id) {
        let Some(node) = self.nodes.get(id) else { return };
        let (cost, Some(tenant)) = (node.cost, node.tenant) else { return };
        let Some(tenant) = self.tenants.get_mut(tenant) else { return };
        tenant.deficit = tenant.deficit.saturating_sub(cost);
        let own = tenant.class;
        // A class is owed only while it could go, and not more than a few turns.
        let most = u128::from(self.quantum()) * 400;
        for class in 0..3 {
            let runs = self.head_of(class).is_some();
            let owed = &mut self.classes[class].owed;
            let due = u128::from(cost) * u128::from(self.shares[class]);
            *owed = if runs { (*owed + due).min(most.max(*owed)) } else { 0 };
        }
        let owed = &mut self.classes[own].owed;
        *owed = owed.saturating_sub(u128::from(cost) * 100);
        self.unlink(id);
    }

    /// A waiter leaves the queue without having been granted. Its value stays until it is taken.
    pub(crate) fn leave(&mut self, id: Id) {
        self.unlink(id);
    }

    /// Everybody who has not been taken out.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.nodes.iter().map(|node| &node.value)
    }

    /// Takes a waiter out, whether it still waits or not.
    pub(crate) fn take(&mut self, id: Id) -> Option<T> {
        self.unlink(id);
        self.nodes.remove(id).map(|node| node.value)
    }

    /// Takes the tenant of a waiter out of the turns until then, because of this limit of its own.
    /// Without a time it stays out until [`unpark_all`](Self::unpark_all).
    pub(crate) fn park(&mut self, id: Id, until: Option<Time>, by: &str, now: Time) {
        let Some(tenant_id) = self.nodes.get(id).and_then(|node| node.tenant) else { return };
        let Some(tenant) = self.tenants.get_mut(tenant_id) else { return };
        self.parkings += 1;
        if tenant.parked.replace(Parked { until, order: self.parkings }).is_none() {
            self.parked_len += tenant.waiters;
        }
        // What it did not spend of its turn is gone, or it would save turns up while parked.
        tenant.deficit = 0;
        tenant.blame.turn_to(Some(by), now);
        if let Some(until) = until {
            self.parked.insert((until, self.parkings, tenant_id));
        }
    }

    /// The time at which the next parked tenant takes turns again.
    pub(crate) fn next_unpark(&self) -> Option<Time> {
        self.parked.first().map(|(until, ..)| *until)
    }

    /// Lets tenants take turns again whose time has come.
    pub(crate) fn unpark(&mut self, now: Time) {
        while let Some(&(until, _, id)) = self.parked.first() {
            if until > now {
                return;
            }
            self.parked.pop_first();
            self.unpark_one(id, now);
        }
    }

    /// Lets all tenants take turns again.
    pub(crate) fn unpark_all(&mut self, now: Time) {
        if self.parked_len > 0 {
            self.parked.clear();
            let parked = |(id, tenant): (Id, &Tenant)| Some((tenant.parked?.order, id));
            let mut all: Vec<(u64, Id)> = self.tenants.entries().filter_map(parked).collect();
            all.sort_unstable_by_key(|(order, _)| *order);
            all.into_iter().for_each(|(_, id)| self.unpark_one(id, now));
        }
    }

    fn unpark_one(&mut self, id: Id, now: Time) {
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        if tenant.parked.take().is_none() {
            return;
        }
        self.parked_len -= tenant.waiters;
        tenant.blame.turn_to(None, now);
        let class = tenant.class;
        if !std::mem::replace(&mut tenant.in_ring, true) {
            self.enter_ring(class, id);
        }
    }

    /// How long which own limits have kept the tenant of a waiter, to compare with later.
    pub(crate) fn mark(&mut self, id: Id, now: Time) -> Option<Mark> {
        let tenant = self.nodes.get(id)?.tenant?;
        Some(self.tenants.get_mut(tenant)?.blame.mark(now))
    }

    /// The account of which own limits have kept the tenant of a waiter.
    pub(crate) fn blame(&mut self, id: Id) -> Option<&mut Blame> {
        let tenant = self.nodes.get(id)?.tenant?;
        Some(&mut self.tenants.get_mut(tenant)?.blame)
    }

    /// Cuts a waiter out of its line, and the tenant out of its class when nobody is left.
    fn unlink(&mut self, id: Id) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Some(tenant_id) = node.tenant.take() else { return };
        let (before, after) = (node.before.take(), node.after.take());
        self.len -= 1;
        let cost = node.cost;
        node.value.leaves();
        if let Some(tenant) = self.tenants.get_mut(tenant_id) {
            tenant.discount(cost, &node.value);
            self.parked_len -= usize::from(tenant.parked.is_some());
        }
        if let Some(count) = self.costs.get_mut(&cost) {
            *count -= 1;
            if *count == 0 {
                self.costs.remove(&cost);
            }
        }
        if let Some(before) = before.and_then(|before| self.nodes.get_mut(before)) {
            before.after = after;
        }
        if let Some(after) = after.and_then(|after| self.nodes.get_mut(after)) {
            after.before = before;
        }
        let Some(tenant) = self.tenants.get_mut(tenant_id) else { return };
        if tenant.first == Some(id) {
            tenant.first = after;
        }
        if tenant.last == Some(id) {
            tenant.last = before;
        }
        if tenant.first.is_none() {
            if let Some(tenant) = self.tenants.remove(tenant_id) {
                self.classes[tenant.class].by_name.remove(&tenant.name);
                if let Some(Parked { until: Some(until), order }) = tenant.parked {
                    self.parked.remove(&(until, order, tenant_id));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
