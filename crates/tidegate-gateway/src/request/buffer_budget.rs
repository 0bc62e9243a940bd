//! The memory budget of buffered request bodies: who may buffer how much.
//!
//! Small bodies have a reserve that nothing else may use, counted by one atomic number. All others
//! share a pool. A peer, which is an address or the /64 of an IPv6 address, may hold a third of what is
//! left free: one alone never has more than a quarter of the pool, and however many there are, a part
//! of it stays free for the next. What counts is the memory that was written to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};

const MIB: usize = 1_024 * 1_024;
/// The pool: 352 MiB, a quarter of which has room for a body of the largest size and some others.
const POOL: usize = 352 * MIB;
/// A peer may have one part of the pool for so many that stay free.
const FREE_SHARES: usize = 3;
/// What only small bodies may use.
const RESERVE: usize = 32 * MIB;
/// The largest small body: 256 KiB.
pub(crate) const MAX_SMALL: usize = 256 * 1_024;

/// The budget has no room for a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BufferBudgetExceeded {
    #[error("large bodies of this address are under way and fill its share of the buffers")]
    Peer,
    #[error("too many large bodies are under way")]
    All,
}

/// The budget for buffered bodies.
#[derive(Debug, Default)]
pub(crate) struct BufferBudget(Arc<Usage>);

/// The budget as one peer may use it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerBudget<'b> {
    usage: &'b Arc<Usage>,
    peer: IpAddr,
}

/// The part of the budget that one body uses, until it is dropped.
#[derive(Debug)]
pub(crate) struct BufferPermit(Option<Reserved>);

#[derive(Debug)]
struct Reserved {
    usage: Arc<Usage>,
    size: usize,
    source: Source,
}

/// Where a part of the budget comes from.
#[derive(Clone, Copy, Debug)]
enum Source {
    Reserve,
    /// The pool, for this network.
    Pool(IpAddr),
}

#[derive(Debug, Default)]
struct Usage {
    reserve: AtomicUsize,
    pool: Mutex<Pool>,
}

#[derive(Debug, Default)]
struct Pool {
    used: usize,
    /// What networks hold; those that hold nothing are not in it.
    peers: HashMap<IpAddr, usize>,
}

impl BufferBudget {
    pub(crate) const fn for_peer(&self, peer: IpAddr) -> PeerBudget<'_> {
        PeerBudget { usage: &self.0, peer }
    }
}

impl PeerBudget<'_> {
    /// Whether a body of this size would fit now. Nothing is held for it.
    pub(crate) fn check(self, size: usize) -> Result<(), BufferBudgetExceeded> {
        if size <= MAX_SMALL {
            return Ok(());
        }
        self.usage.pool().check(self.network(), size)
    }

    /// Grows the permit of a body to `size` bytes. It never waits: bodies that hold a part of the
    /// budget would wait for each other.
    pub(crate) fn grow(
        self,
        permit: &mut BufferPermit,
        size: usize,
    ) -> Result<(), BufferBudgetExceeded> {
        let held = permit.0.as_ref().map_or(0, |held| held.size);
        if size <= held {
            return Ok(());
        }
        let source = permit.0.as_ref().map_or(Source::Reserve, |held| held.source);
        let source = match source {
            Source::Reserve if size <= MAX_SMALL && self.usage.take_reserve(size - held) => source,
            Source::Reserve => {
                let network = self.network();
                self.usage.pool().take(network, size)?;
                // What it has of the reserve is given back with the permit that is replaced.
                permit.0 = None;
                Source::Pool(network)
            }
            Source::Pool(network) => {
                self.usage.pool().take(network, size - held)?;
                source
            }
        };
        match &mut permit.0 {
            Some(held) => held.size = size,
            none => *none = Some(Reserved { usage: self.usage.clone(), size, source }),
        }
        Ok(())
    }

    fn network(self) -> IpAddr {
        client_network(self.peer, IPV6_CLIENT_BITS).addr()
    }
}

impl Usage {
    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes from the reserve, if it has so much left.
    fn take_reserve(&self, size: usize) -> bool {
        let used = self.reserve.fetch_add(size, Ordering::Relaxed);
        let has_room = used + size <= RESERVE;
        if !has_room {
            self.reserve.fetch_sub(size, Ordering::Relaxed);
        }
        has_room
    }
}

impl Pool {
    fn check(&self, network: IpAddr, more: usize) -> Result<(), BufferBudgetExceeded> {
        let held = self.peers.get(&network).copied().unwrap_or(0);
        let share = held.saturating_add(more);
        let needed =
            share.saturating_mul(FREE_SHARES).saturating_add(self.used).saturating_add(more);
        if needed <= POOL {
            Ok(())
        } else if share > POOL / (FREE_SHARES + 1) {
            Err(BufferBudgetExceeded::Peer)
        } else {
            Err(BufferBudgetExceeded::All)
        }
    }

    fn take(&mut self, network: IpAddr, more: usize) -> Result<(), BufferBudgetExceeded> {
        self.check(network, more)?;
        self.used += more;
        *self.peers.entry(network).or_default() += more;
        Ok(())
    }

    fn release(&mut self, network: IpAddr, size: usize) {
        self.used -= size;
        if let Entry::Occupied(mut held) = self.peers.entry(network) {
            *held.get_mut() -= size;
            if *held.get() == 0 {
                held.remove();
            }
        }
    }
}

impl BufferPermit {
    /// No part of the budget, for an empty body.
    pub(crate) const fn none() -> Self {
        Self(None)
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        match self.source {
            Source::Reserve => {
                self.usage.reserve.fetch_sub(self.size, Ordering::Relaxed);
            }
            Source::Pool(network) => self.usage.pool().release(network, self.size),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(number: u8) -> IpAddr {
        [127, 0, 0, number].into()
    }

    /// As many bodies of this size as the budget takes of a peer.
    fn fill(budget: &BufferBudget, peer: IpAddr, size: usize) -> Vec<BufferPermit> {
        std::iter::from_fn(|| {
            let mut permit = BufferPermit::none();
            budget.for_peer(peer).grow(&mut permit, size).ok().map(|()| permit)
        })
        .collect()
    }

    #[test]
    fn one_peer_is_limited_to_a_quarter_of_the_pool() {
        let budget = BufferBudget::default();
        let held = fill(&budget, peer(1), MIB);
        assert_eq!(held.len() * MIB, POOL / 4);
        let mut more = BufferPermit::none();
        let refused = budget.for_peer(peer(1)).grow(&mut more, MAX_SMALL + 1);
        assert_eq!(refused, Err(BufferBudgetExceeded::Peer));
        assert_eq!(budget.for_peer(peer(1)).check(MAX_SMALL + 1), refused);
        assert_eq!(budget.for_peer(peer(1)).grow(&mut more, MAX_SMALL), Ok(()));
        assert_eq!(budget.for_peer(peer(2)).grow(&mut BufferPermit::none(), 64 * MIB), Ok(()));
        drop((held, more));
        assert_eq!(budget.for_peer(peer(1)).grow(&mut BufferPermit::none(), 64 * MIB), Ok(()));
    }

    #[test]
    fn many_peers_leave_part_of_the_pool_free() {
        let budget = BufferBudget::default();
        let held: Vec<_> = (1..=100).map(|number| fill(&budget, peer(number), MIB)).collect();
        assert!(held.iter().flatten().count() * MIB < POOL);
        let refused = budget.for_peer(peer(200)).check(32 * MIB);
        assert_eq!(refused, Err(BufferBudgetExceeded::All));
        assert_eq!(budget.for_peer(peer(200)).check(MAX_SMALL + 1), Ok(()));
    }

    #[test]
    fn a_growing_body_moves_to_the_pool_and_releases_everything() {
        let budget = BufferBudget::default();
        let addresses = ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|it| it.parse().unwrap());
        let mut held = Vec::new();
        for address in addresses {
            let mut permit = BufferPermit::none();
            for size in [1, MAX_SMALL, MAX_SMALL, MAX_SMALL + 1, MIB, 1] {
                assert_eq!(budget.for_peer(address).grow(&mut permit, size), Ok(()));
            }
            held.push(permit);
        }
        assert_eq!(budget.0.reserve.load(Ordering::Relaxed), 0);
        assert_eq!(budget.0.pool().peers.len(), 2, "a /64 is one peer");
        assert_eq!(budget.0.pool().used, 3 * MIB);
        let refused = budget.for_peer(addresses[0]).grow(&mut held[0], usize::MAX);
        assert_eq!(refused, Err(BufferBudgetExceeded::Peer));
        drop(held);
        assert!(budget.0.pool().peers.is_empty());
        assert_eq!(budget.0.pool().used, 0);
    }

    #[test]
    fn small_bodies_use_the_pool_when_the_reserve_is_full() {
        let budget = BufferBudget::default();
        let held = fill(&budget, peer(1), MAX_SMALL);
        assert_eq!(held.len() * MAX_SMALL, RESERVE + POOL / 4);
        assert_eq!(budget.for_peer(peer(2)).grow(&mut BufferPermit::none(), MAX_SMALL), Ok(()));
    }
}
