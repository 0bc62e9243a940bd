//! The memory budget of buffered request bodies.
//!
//! Small bodies have a reserve of their own, counted by one atomic. All other bodies share a pool.
//! A peer (an IPv4 address or an IPv6 /64) may hold at most a third of what remains free. So a
//! single peer never holds more than a quarter of the pool, and however many peers there are, part
//! of the pool stays free for the next one. Only memory that was written to is counted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};

const MIB: usize = 1_024 * 1_024;
/// Size of the pool: 352 MiB. A quarter of it fits a body of the maximum size and some others.
const POOL: usize = 352 * MIB;
/// A peer may hold one share of the pool for every three shares that stay free.
const FREE_SHARES: usize = 3;
/// Size of the reserve for small bodies.
const RESERVE: usize = 32 * MIB;
/// Maximum size of a small body: 256 KiB.
pub(crate) const MAX_SMALL: usize = 256 * 1_024;

/// The budget is exhausted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BufferBudgetExceeded {
    #[error("large bodies from this address already use its share of the buffer memory")]
    Peer,
    #[error("too many large bodies are being received")]
    All,
}

/// The budget for buffered bodies.
#[derive(Debug, Default)]
pub(crate) struct BufferBudget(Arc<Usage>);

/// The budget as seen by one peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerBudget<'b> {
    usage: &'b Arc<Usage>,
    peer: IpAddr,
}

/// Budget reserved for one body. Released when dropped.
#[derive(Debug)]
pub(crate) struct BufferPermit(Option<Reserved>);

#[derive(Debug)]
struct Reserved {
    usage: Arc<Usage>,
    size: usize,
    source: Source,
}

/// Where budget was reserved.
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
    /// Bytes held by each network; networks that hold nothing have no entry.
    peers: HashMap<IpAddr, usize>,
}

impl BufferBudget {
    pub(crate) const fn for_peer(&self, peer: IpAddr) -> PeerBudget<'_> {
        PeerBudget { usage: &self.0, peer }
    }
}

impl PeerBudget<'_> {
    /// Checks whether a body of this size would fit now. Reserves nothing.
    pub(crate) fn check(self, size: usize) -> Result<(), BufferBudgetExceeded> {
        if size <= MAX_SMALL {
            return Ok(());
        }
        self.usage.pool().check(self.network(), size)
    }

    /// Grows a permit to `size` bytes. Never waits: bodies that hold part of the budget could
    /// deadlock.
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
                // Dropping the old permit releases its part of the reserve.
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

    /// Takes `size` bytes from the reserve. Returns whether it had that much left.
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
    /// A permit that holds nothing.
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

    /// Reserves bodies of this size for a peer until the budget refuses.
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
