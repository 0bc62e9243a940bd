//! How much goes before a new waiter, to project its wait.

use crate::pacer::scheduler::demand::{Demand, Demands};
use crate::pacer::scheduler::order::Order;
use crate::pacer::scheduler::queue::{FairQueue, QueueKey};
use crate::pacer::scheduler::share::{CallerShare, Parent};
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::tenant::Tenant;

impl<T: Demands> FairQueue<T> {
    /// Estimates the tokens of a bucket that go to others before a new waiter with this key:
    /// everything its own tenant wants; of every other tenant of its credential, the part that its
    /// turns allow meanwhile; of other credentials and peers, what is due before it; of other
    /// classes, what the guaranteed shares allow. Parked tenants are skipped.
    pub(crate) fn tokens_ahead(&self, queue_key: &QueueKey, cost: u64, bucket: Id) -> u128 {
        let existing = self.find(queue_key);
        let mut ahead = Ahead { cost: 0, tokens: 0, own: cost.into(), bucket };
        if let Some(credential) = existing.credential.and_then(|id| self.shares.get(id)) {
            self.add_credential(&mut ahead, credential, existing.tenant, queue_key);
        }
        if let Some(peer) = existing.peer {
            self.add_siblings(&mut ahead, Parent::Peer(peer), existing.credential);
        }
        let class = queue_key.class();
        self.add_siblings(&mut ahead, Parent::Class(class), existing.peer);
        self.add_other_classes(&mut ahead, class, |class| {
            let peers = self.classes[class].iter();
            peers.filter_map(|id| self.shares.get(id).map(|share| &share.demand))
        });
        ahead.tokens
    }

    /// Adds what goes before it within its own credential.
    fn add_credential(
        &self,
        ahead: &mut Ahead,
        credential: &CallerShare,
        own: Option<Id>,
        queue_key: &QueueKey,
    ) {
        let Some(tenants) = credential.tenants() else { return };
        let running = |class: usize| {
            let tenants = tenants.rings[class].iter();
            let tenants = tenants.filter_map(|id| Some((id, self.tenants.get(id)?)));
            tenants.filter(|(_, tenant)| tenant.parked.is_none())
        };
        let backlog = own.and_then(|own| self.tenants.get(own)).map_or(0, |own| own.demand.backlog);
        let mine = u128::from(backlog) + ahead.own;
        let quantum = u128::from(self.quantum()).max(ahead.own);
        let turns = mine.div_ceil(quantum * u128::from(queue_key.weight.max(1)));
        ahead.cost += u128::from(backlog);
        let credential_class = queue_key.credential_class();
        for (id, tenant) in running(credential_class) {
            if Some(id) == own {
                ahead.tokens += tenant.demand.tokens_of(ahead.bucket);
            } else {
                let budget = turns * quantum * u128::from(tenant.weight);
                ahead.add(&tenant.demand, budget, Rounding::Up);
            }
        }
        self.add_other_classes(ahead, credential_class, |class| {
            running(class).map(|(_, tenant): (Id, &Tenant)| &tenant.demand)
        });
    }

    /// Adds what goes to the other shares of its peer or class before everything ahead in its own.
    fn add_siblings(&self, ahead: &mut Ahead, parent: Parent, own: Option<Id>) {
        let Some(order) = self.order(parent) else { return };
        let position = own.and_then(|own| self.shares.get(own)).map(|own| &own.position);
        let due = order.start_of(position) + ahead.cost + ahead.own;
        for other in order.iter().filter(|id| Some(*id) != own) {
            let Some(other) = self.shares.get(other) else { continue };
            ahead.add(&other.demand, Order::served_before(&other.position, due), Rounding::Up);
        }
    }

    /// Adds other classes: a higher class takes all but the guaranteed share of this one, a lower
    /// class takes its own guaranteed share.
    fn add_other_classes<'d, D>(
        &self,
        ahead: &mut Ahead,
        own_class: usize,
        demands: impl Fn(usize) -> D,
    ) where
        D: Iterator<Item = &'d Demand>,
    {
        let in_class = ahead.cost + ahead.own;
        for class in (0..3).filter(|&class| class != own_class) {
            let guaranteed = if class < own_class { own_class } else { class };
            let share = u128::from(self.guaranteed[guaranteed]);
            let mut budget = match (class < own_class, share) {
                (true, 0) | (false, 100) => u128::MAX,
                // One more, until the class is owed its first grant.
                (true, share) => in_class * (100 - share) / share + ahead.own,
                (false, share) => in_class * share / (100 - share),
            };
            for demand in demands(class) {
                budget -= ahead.add(demand, budget, Rounding::Down);
            }
        }
    }
}

/// What goes before a new waiter.
struct Ahead {
    cost: u128,
    /// Tokens of the bucket.
    tokens: u128,
    /// Cost of the new waiter.
    own: u128,
    bucket: Id,
}

/// A turn is taken completely; a share is not taken before it is due.
#[derive(Clone, Copy)]
enum Rounding {
    Up,
    Down,
}

impl Ahead {
    /// Adds the part of a demand that fits into `budget`. Returns how much of the budget it uses.
    fn add(&mut self, demand: &Demand, budget: u128, rounding: Rounding) -> u128 {
        let backlog = u128::from(demand.backlog);
        let part = budget.min(backlog);
        let tokens = demand.tokens_of(self.bucket);
        self.tokens += match rounding {
            _ if part == backlog => tokens,
            Rounding::Up => (tokens * part).div_ceil(backlog),
            Rounding::Down => tokens * part / backlog,
        };
        self.cost += part;
        part
    }
}
