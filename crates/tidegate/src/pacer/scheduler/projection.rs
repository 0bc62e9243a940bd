//! What goes before a newcomer, to tell how long it would wait.

use crate::pacer::scheduler::queue::{FairQueue, Line};
use crate::pacer::scheduler::slab::Id;
use crate::pacer::scheduler::tenant::{Demands, Tenant};

impl<T: Demands> FairQueue<T> {
    /// Tokens of a bucket that go to others before a new waiter of this line gets any, as far as
    /// can be told: all that its own tenant wants; of what each other tenant of its class wants
    /// the part that its turns allow meanwhile; of other classes what the guaranteed shares allow
    /// them. Parked tenants are passed over.
    pub(crate) fn ahead(&self, line: &Line, cost: u64, bucket: Id) -> u128 {
        let own_class = line.priority.index();
        let own = self.classes[own_class].by_name.get(&line.tenant).copied();
        let backlog = own.and_then(|own| self.tenants.get(own)).map_or(0, |own| own.backlog);
        let mine = u128::from(backlog.saturating_add(cost));
        let quantum = u128::from(self.quantum().max(cost));
        let turns = mine.div_ceil(quantum * u128::from(line.weight.max(1)));
        // First the class itself, in cost and in tokens of the bucket.
        let mut ahead = Ahead { cost: mine - u128::from(cost), tokens: 0 };
        for (&id, tenant) in self.running(own_class) {
            if Some(id) == own {
                ahead.tokens += tenant.wants(bucket);
            } else {
                let room = turns * quantum * u128::from(tenant.weight);
                ahead.add(tenant, room, bucket, Rounding::Up);
            }
        }
        // Classes above take all but what this one is guaranteed; those below what they are.
        let in_class = ahead.cost + u128::from(cost);
        for class in (0..3).filter(|&class| class != own_class) {
            let share = u128::from(self.shares[if class < own_class { own_class } else { class }]);
            let mut room = match (class < own_class, share) {
                (true, 0) | (false, 100) => u128::MAX,
                // One more, until it is owed its first.
                (true, share) => in_class * (100 - share) / share + u128::from(cost),
                (false, share) => in_class * share / (100 - share),
            };
            for (_, tenant) in self.running(class) {
                room -= ahead.add(tenant, room, bucket, Rounding::Down);
            }
        }
        ahead.tokens
    }

    /// The tenants of a class that take turns.
    fn running(&self, class: usize) -> impl Iterator<Item = (&Id, &Tenant)> {
        let ids = self.classes[class].by_name.values();
        let tenants = ids.filter_map(|id| Some((id, self.tenants.get(*id)?)));
        tenants.filter(|(_, tenant)| tenant.parked.is_none())
    }
}

/// What goes before a new waiter.
struct Ahead {
    cost: u128,
    tokens: u128,
}

/// A turn is taken whole; a share is not taken before it is due.
#[derive(Clone, Copy)]
enum Rounding {
    Up,
    Down,
}

impl Ahead {
    /// Adds what a tenant can get into `room`; says how much of the room that takes.
    fn add(&mut self, tenant: &Tenant, room: u128, bucket: Id, rounding: Rounding) -> u128 {
        let backlog = u128::from(tenant.backlog);
        let part = room.min(backlog);
        let tokens = tenant.wants(bucket);
        self.tokens += match rounding {
            _ if part == backlog => tokens,
            Rounding::Up => (tokens * part).div_ceil(backlog),
            Rounding::Down => tokens * part / backlog,
        };
        self.cost += part;
        part
    }
}
