//! Who goes next: classes above tenants above arrival order.
//!
//! Inside a tenant waiters go in order of arrival. Between tenants of a class deficit round robin
//! shares by cost: every turn a tenant may spend one quantum, times its weight, which is the
//! largest cost in the queue; so a heavy tenant delays a light one by at most one quantum and one
//! maximal request. Above that, the highest class goes first, unless a lower one is owed its
//! guaranteed share. A tenant can be parked while its own limits are not ready; it then blocks
//! nobody.
//!
//! The queue knows ids and costs, neither time nor limits.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::slab::{Id, Slab};

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
    pub(crate) const ALL: [Self; 3] = [Self::High, Self::Normal, Self::Low];

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

/// What a waiter spends where, so that what is ahead of another can be summed up.
pub(crate) trait Demands {
    /// Buckets and the tokens that are wanted of them.
    fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_;
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

/// The waiters of one tenant in one class.
#[derive(Debug)]
struct Tenant {
    name: Arc<str>,
    class: usize,
    first: Option<Id>,
    last: Option<Id>,
    weight: u64,
    deficit: u64,
    /// Cost of all its waiters.
    backlog: u64,
    /// Tokens that its waiters want, by bucket.
    wanted: Vec<(Id, u128)>,
    /// Its own limits are not ready: it takes no turns.
    parked: bool,
    /// It stands in the ring of its class, perhaps only to be passed over.
    in_ring: bool,
}

#[derive(Debug, Default)]
struct Class {
    by_name: HashMap<Arc<str>, Id>,
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
    tenants: Slab<Tenant>,
    classes: [Class; 3],
    shares: Shares,
    /// The largest cost in the queue since it was last empty.
    quantum: u64,
    len: usize,
}

impl<T: Demands> FairQueue<T> {
    pub(crate) fn new(shares: Shares) -> Self {
        let classes = Default::default();
        Self {
            nodes: Slab::default(),
            tenants: Slab::default(),
            classes,
            shares,
            quantum: 1,
            len: 0,
        }
    }

    /// How many wait. Granted waiters that have not been taken out do not count.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut T> {
        self.nodes.get_mut(id).map(|node| &mut node.value)
    }

    pub(crate) fn get(&self, id: Id) -> Option<&T> {
        self.nodes.get(id).map(|node| &node.value)
    }

    /// Puts a waiter at the end of its line.
    pub(crate) fn push(&mut self, line: &Line, cost: u64, value: T) -> Id {
        self.quantum = self.quantum.max(cost);
        self.len += 1;
        let tenant = self.tenant_of(line);
        let before = self.tenants.get(tenant).and_then(|tenant| tenant.last);
        if let Some(tenant) = self.tenants.get_mut(tenant) {
            tenant.count(cost, &value);
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
            parked: false,
            in_ring: true,
        });
        self.classes[class].by_name.insert(line.tenant.clone(), id);
        self.classes[class].ring.push_back(id);
        id
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
        loop {
            let class = &mut self.classes[class];
            let id = *class.ring.front()?;
            let Some(tenant) = self.tenants.get_mut(id).filter(|tenant| !tenant.parked) else {
                class.ring.pop_front();
                class.in_turn = false;
                if let Some(parked) = self.tenants.get_mut(id) {
                    parked.in_ring = false;
                }
                continue;
            };
            if !class.in_turn {
                let quantum = self.quantum.saturating_mul(tenant.weight);
                tenant.deficit = tenant.deficit.saturating_add(quantum);
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
        let Some(cost) = self.nodes.get(id).map(|node| node.cost) else { return };
        let Some(tenant) = self.nodes.get(id).and_then(|node| node.tenant) else { return };
        let Some(tenant) = self.tenants.get_mut(tenant) else { return };
        tenant.deficit = tenant.deficit.saturating_sub(cost);
        let own = tenant.class;
        for (class, share) in self.classes.iter_mut().zip(self.shares) {
            class.owed += u128::from(cost) * u128::from(share);
        }
        self.classes[own].owed = self.classes[own].owed.saturating_sub(u128::from(cost) * 100);
        self.unlink(id);
        for class in &mut self.classes {
            if class.by_name.is_empty() {
                class.owed = 0;
            }
        }
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

    /// Takes the tenant of a waiter out of the turns. The answer is for [`unpark`](Self::unpark).
    pub(crate) fn park(&mut self, id: Id) -> Option<(Priority, Arc<str>)> {
        let tenant = self.nodes.get(id)?.tenant?;
        let tenant = self.tenants.get_mut(tenant)?;
        tenant.parked = true;
        Some((Priority::ALL[tenant.class], tenant.name.clone()))
    }

    /// Lets a tenant take turns again.
    pub(crate) fn unpark(&mut self, priority: Priority, tenant: &Arc<str>) {
        let class = &mut self.classes[priority.index()];
        let Some(&id) = class.by_name.get(tenant) else { return };
        let Some(tenant) = self.tenants.get_mut(id) else { return };
        tenant.parked = false;
        if !std::mem::replace(&mut tenant.in_ring, true) {
            class.ring.push_back(id);
        }
    }

    /// Cuts a waiter out of its line, and the tenant out of its class when nobody is left.
    fn unlink(&mut self, id: Id) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let Some(tenant_id) = node.tenant.take() else { return };
        let (before, after) = (node.before.take(), node.after.take());
        self.len -= 1;
        if let Some(tenant) = self.tenants.get_mut(tenant_id) {
            tenant.discount(node.cost, &node.value);
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
            }
        }
        if self.len == 0 {
            self.quantum = 1;
        }
    }

    /// Tokens of a bucket that go to others before a new waiter of this line gets any, as far as
    /// can be told: all that its own tenant and higher classes want, and of what each other
    /// tenant of its class wants the part that its turns allow meanwhile. Parked tenants are
    /// passed over.
    pub(crate) fn ahead(&self, line: &Line, cost: u64, bucket: Id) -> u128 {
        let own_class = line.priority.index();
        let own = self.classes[own_class].by_name.get(&line.tenant);
        let own_backlog = own.and_then(|&own| self.tenants.get(own)).map_or(0, |own| own.backlog);
        let quantum = self.quantum.max(cost);
        let turn = quantum.saturating_mul(line.weight.max(1));
        let turns = own_backlog.saturating_add(cost).div_ceil(turn);
        let tenants = self.classes[..=own_class].iter().flat_map(|class| class.by_name.values());
        tenants
            .filter_map(|id| Some((id, self.tenants.get(*id)?)))
            .map(|(id, tenant)| {
                let wanted = tenant.wanted.iter().find(|(of, _)| *of == bucket);
                let wanted = wanted.map_or(0, |(_, wanted)| *wanted);
                if tenant.parked && Some(id) != own {
                    return 0;
                }
                if tenant.class < own_class || Some(id) == own || tenant.backlog == 0 {
                    return wanted;
                }
                let room = turns.saturating_mul(quantum).saturating_mul(tenant.weight);
                let part = u128::from(room.min(tenant.backlog));
                wanted.saturating_mul(part).div_ceil(tenant.backlog.into())
            })
            .fold(0, u128::saturating_add)
    }
}

impl Tenant {
    fn count(&mut self, cost: u64, waiter: &impl Demands) {
        self.backlog = self.backlog.saturating_add(cost);
        for (bucket, tokens) in waiter.demands() {
            match self.wanted.iter_mut().find(|(of, _)| *of == bucket) {
                Some((_, wanted)) => *wanted += u128::from(tokens),
                None => self.wanted.push((bucket, tokens.into())),
            }
        }
    }

    fn discount(&mut self, cost: u64, waiter: &impl Demands) {
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

#[cfg(test)]
mod tests {
    use super::*;

    impl Demands for &'static str {
        fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
            std::iter::empty()
        }
    }

    /// A waiter that wants one token of a bucket.
    struct One(Id);

    impl Demands for One {
        fn demands(&self) -> impl Iterator<Item = (Id, u64)> + '_ {
            std::iter::once((self.0, 1))
        }
    }

    fn line(tenant: &str) -> Line {
        Line { priority: Priority::Normal, tenant: tenant.into(), weight: 1 }
    }

    fn drain(queue: &mut FairQueue<&'static str>) -> Vec<&'static str> {
        let mut order = Vec::new();
        while let Some(id) = queue.head() {
            queue.grant(id);
            order.push(queue.take(id).unwrap());
        }
        order
    }

    #[test]
    fn a_tenant_is_served_in_order_of_arrival() {
        let mut queue = FairQueue::new([0; 3]);
        for name in ["1", "2", "3", "4"] {
            queue.push(&line("a"), 1, name);
        }
        assert_eq!(drain(&mut queue), ["1", "2", "3", "4"]);
        assert_eq!(queue.len(), 0);
    }

    #[test]
    fn tenants_take_turns_by_cost_and_weight() {
        let mut queue = FairQueue::new([0; 3]);
        for name in ["a1", "a2", "a3"] {
            queue.push(&line("a"), 2, name);
        }
        for name in ["b1", "b2", "b3", "b4"] {
            queue.push(&line("b"), 1, name);
        }
        assert_eq!(drain(&mut queue), ["a1", "b1", "b2", "a2", "b3", "b4", "a3"]);
        let heavy = Line { weight: 2, ..line("heavy") };
        for name in ["h1", "h2", "h3", "h4"] {
            queue.push(&heavy, 1, name);
        }
        for name in ["l1", "l2"] {
            queue.push(&line("light"), 1, name);
        }
        assert_eq!(drain(&mut queue), ["h1", "h2", "l1", "h3", "h4", "l2"]);
    }

    #[test]
    fn a_large_request_is_not_starved_by_small_ones() {
        let mut queue = FairQueue::new([0; 3]);
        queue.push(&line("small"), 1, "s");
        let large = queue.push(&line("large"), 50, "L");
        for _ in 0..200 {
            queue.push(&line("small"), 1, "s");
        }
        let order = drain(&mut queue);
        let place = order.iter().position(|name| *name == "L").unwrap();
        assert!(place <= 50, "after {place} small ones, {large:?}");
    }

    #[test]
    fn the_head_stays_the_same_while_others_arrive() {
        let mut queue = FairQueue::new([0; 3]);
        queue.push(&line("a"), 5, "first");
        let head = queue.head();
        queue.push(&line("b"), 1, "later");
        queue.push(&line("a"), 1, "later");
        assert_eq!(queue.head(), head);
    }

    #[test]
    fn a_parked_tenant_blocks_nobody_and_comes_back() {
        let mut queue = FairQueue::new([0; 3]);
        queue.push(&line("a"), 1, "a1");
        queue.push(&line("b"), 1, "b1");
        let head = queue.head().unwrap();
        let parked = queue.park(head).unwrap();
        let b = queue.head().unwrap();
        assert_eq!(queue.get(b), Some(&"b1"));
        queue.grant(b);
        queue.take(b);
        assert_eq!(queue.head(), None);
        assert_eq!(queue.len(), 1);
        queue.unpark(parked.0, &parked.1);
        assert_eq!(drain(&mut queue), ["a1"]);
    }

    #[test]
    fn the_highest_class_goes_first_but_a_guaranteed_share_is_kept() {
        let mut queue = FairQueue::new([0, 20, 5]);
        for _ in 0..1_000 {
            for (priority, name) in Priority::ALL.into_iter().zip(["high", "normal", "low"]) {
                queue.push(&Line { priority, ..line("t") }, 1, name);
            }
        }
        let mut seen = [0_i32; 3];
        for _ in 0..400 {
            let head = queue.head().unwrap();
            queue.grant(head);
            let name = queue.take(head).unwrap();
            seen[["high", "normal", "low"].iter().position(|n| *n == name).unwrap()] += 1;
        }
        for (seen, share) in seen.into_iter().zip([300_i32, 80, 20]) {
            assert!((seen - share).abs() <= 2, "{seen} of 400 in place of {share}");
        }
    }

    #[test]
    fn who_leaves_is_cut_out_wherever_it_stands() {
        let mut queue = FairQueue::new([0; 3]);
        let ids: Vec<_> =
            ["1", "2", "3", "4", "5"].map(|name| queue.push(&line("a"), 1, name)).into();
        for index in [2, 0, 4] {
            assert!(queue.take(ids[index]).is_some());
            assert!(queue.take(ids[index]).is_none());
        }
        assert_eq!(drain(&mut queue), ["2", "4"]);
    }

    #[test]
    fn what_is_ahead_is_counted_by_turns() {
        let (mut queue, mut buckets) = (FairQueue::new([0; 3]), Slab::default());
        let (bucket, other) = (buckets.insert(()), buckets.insert(()));
        for _ in 0..10 {
            queue.push(&line("other"), 1, One(bucket));
        }
        let own = queue.push(&line("own"), 1, One(bucket));
        assert_eq!(queue.ahead(&line("other"), 1, bucket), 11);
        assert_eq!(queue.ahead(&line("own"), 1, bucket), 3, "its own, and two turns of the other");
        assert_eq!(queue.ahead(&line("own"), 1, other), 0);
        assert!(queue.take(own).is_some());
        assert_eq!(queue.ahead(&line("own"), 1, bucket), 1);
        let low = Line { priority: Priority::Low, ..line("own") };
        assert_eq!(queue.ahead(&low, 1, bucket), 10, "a higher class goes first");
    }
}
