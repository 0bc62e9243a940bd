//! The open connections of a listener: how many are allowed in all and per network, and which to
//! evict when there is no room.
//!
//! The accept task owns them, so nothing here is locked.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_http::identity::{ClientNetwork, IPV6_CLIENT_BITS, TrustedProxies, client_network};
use tokio::task::Id;
use tokio::time::Instant;

use super::eviction::{Candidates, Evict, Waiting};

/// Maximum numbers of connections of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Capacity {
    /// Maximum number of open connections.
    pub(crate) total: usize,
    /// Maximum number of open connections from one network: an IPv4 address, or the first 64 bits
    /// of an IPv6 address.
    pub(crate) per_network: usize,
    /// Proxies, which stand for many callers: only `total` applies to them.
    pub(crate) trusted: TrustedProxies,
}

/// How long a listener stays below the number of connections at which file descriptors ran out. The
/// descriptors it leaves free are for connections to providers and stores.
const FILE_SHORTAGE_PERIOD: Duration = Duration::from_secs(60);

/// One in this many connections is closed when file descriptors run out. At most that part plus
/// this many may be closing at once.
const RELIEF_FRACTION: usize = 16;

/// Decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// The connection is served.
    Admitted,
    /// The network is at its limit and all its connections are busy.
    Refused,
    /// The listener is at its limit and all connections are busy. The new one must wait until one
    /// ends.
    Full,
}

pub(super) struct Connections {
    capacity: Capacity,
    open: HashMap<Id, Connection>,
    networks: HashMap<ClientNetwork, Network>,
    candidates: Candidates,
    /// Number of evicted connections that have not closed yet.
    closing: usize,
    evicted: u64,
    /// After file descriptors ran out: the target number of connections, and until when it applies.
    file_shortage: Option<(usize, Instant)>,
}

struct Connection {
    network: ClientNetwork,
    handle: Arc<dyn Evict>,
    is_closing: bool,
}

#[derive(Default)]
struct Network {
    members: HashSet<Id>,
    closing: usize,
    candidates: Candidates,
    is_trusted: bool,
}

impl Network {
    fn remaining(&self) -> usize {
        self.members.len() - self.closing
    }
}

impl Connections {
    pub(super) fn new(capacity: Capacity) -> Self {
        Self {
            capacity,
            open: HashMap::new(),
            networks: HashMap::new(),
            candidates: Candidates::default(),
            closing: 0,
            evicted: 0,
            file_shortage: None,
        }
    }

    /// Decides about a new connection, and evicts another one if there is no room.
    pub(super) fn admit(&mut self, peer: IpAddr, now: Instant) -> Admission {
        let network = network_of(peer);
        let remaining = self.networks.get(&network).map_or(0, Network::remaining);
        if remaining >= self.capacity.per_network
            && !self.capacity.trusted.contains(peer)
            && !self.evict_in(network, now)
        {
            return Admission::Refused;
        }
        if self.remaining() >= self.capacity.total {
            // Closing connections still hold file descriptors, usually only for a moment.
            let is_closing_slow =
                self.closing > self.capacity.total / RELIEF_FRACTION + RELIEF_FRACTION;
            if is_closing_slow || !self.evict_any(now) {
                return Admission::Full;
            }
        } else if self
            .file_shortage
            .is_some_and(|(most, until)| now < until && self.remaining() >= most)
        {
            // If all are busy the new one is served anyway: descriptors may be available again.
            self.evict_any(now);
        }
        Admission::Admitted
    }

    pub(super) fn insert(&mut self, id: Id, peer: IpAddr, handle: Arc<dyn Evict>) {
        let network = network_of(peer);
        let entry = self.networks.entry(network).or_default();
        entry.members.insert(id);
        entry.is_trusted = self.capacity.trusted.contains(peer);
        self.open.insert(id, Connection { network, handle, is_closing: false });
    }

    pub(super) fn remove(&mut self, id: Id) {
        let Some(Connection { network, is_closing, .. }) = self.open.remove(&id) else { return };
        self.closing -= usize::from(is_closing);
        if let Some(entry) = self.networks.get_mut(&network) {
            entry.members.remove(&id);
            entry.closing -= usize::from(is_closing);
            if entry.members.is_empty() {
                self.networks.remove(&network);
            }
        }
    }

    /// Evicts connections after file descriptors ran out.
    pub(super) fn free_files(&mut self, now: Instant) {
        let wanted = (self.remaining() / RELIEF_FRACTION).max(RELIEF_FRACTION / 2);
        let closed = (0..wanted).take_while(|_| self.evict_any(now)).count();
        if closed > 0 {
            self.file_shortage = Some((self.remaining(), now + FILE_SHORTAGE_PERIOD));
        }
    }

    /// Returns the number of connections evicted since the last call.
    pub(super) fn take_evicted(&mut self) -> u64 {
        std::mem::take(&mut self.evicted)
    }

    fn remaining(&self) -> usize {
        self.open.len() - self.closing
    }

    /// Evicts the longest waiting connection of a network. Returns whether there was one.
    fn evict_in(&mut self, network: ClientNetwork, now: Instant) -> bool {
        let Some(entry) = self.networks.get_mut(&network) else { return false };
        let mut candidates = std::mem::take(&mut entry.candidates);
        let evicted = self.evict(&mut candidates, now, |all| all.waiting_in(network));
        if let Some(entry) = self.networks.get_mut(&network) {
            entry.candidates = candidates;
        }
        evicted
    }

    /// Evicts the longest waiting connection of the network with the most connections. Returns
    /// whether there was one.
    fn evict_any(&mut self, now: Instant) -> bool {
        let mut candidates = std::mem::take(&mut self.candidates);
        let evicted = self.evict(&mut candidates, now, Self::waiting);
        self.candidates = candidates;
        evicted
    }

    fn evict(
        &mut self,
        candidates: &mut Candidates,
        now: Instant,
        scan: impl Fn(&Self) -> Vec<Waiting>,
    ) -> bool {
        loop {
            while let Some((id, wait)) = candidates.pop() {
                let Some(connection) = self.open.get_mut(&id) else { continue };
                if connection.is_closing || !connection.handle.evict(wait) {
                    continue;
                }
                connection.is_closing = true;
                self.closing += 1;
                self.evicted += 1;
                if let Some(network) = self.networks.get_mut(&connection.network) {
                    network.closing += 1;
                }
                return true;
            }
            if !candidates.may_scan(now) || !candidates.fill(scan(self), now) {
                return false;
            }
        }
    }

    fn waiting_in(&self, network: ClientNetwork) -> Vec<Waiting> {
        let members = self.networks.get(&network).into_iter().flat_map(|it| &it.members);
        let waiting = members.filter_map(|id| {
            let connection = self.open.get(id).filter(|connection| !connection.is_closing)?;
            Some(Waiting { rank: 0, wait: connection.handle.current_wait()?, id: *id })
        });
        waiting.collect()
    }

    /// Returns all waiting connections. The rank of a connection is the number of connections its
    /// network still has when its turn comes, closing the oldest of a network first. Trusted
    /// proxies come last.
    fn waiting(&self) -> Vec<Waiting> {
        let mut all = Vec::new();
        for (network, entry) in &self.networks {
            let mut waiting = self.waiting_in(*network);
            if !entry.is_trusted {
                waiting.sort_unstable_by_key(|one| one.wait.since());
                let ranks = (1..=entry.remaining()).rev();
                waiting.iter_mut().zip(ranks).for_each(|(one, rank)| one.rank = rank);
            }
            all.append(&mut waiting);
        }
        all
    }
}

impl fmt::Debug for Connections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connections")
            .field("capacity", &self.capacity)
            .field("open", &self.open.len())
            .field("closing", &self.closing)
            .finish_non_exhaustive()
    }
}

/// Returns the network that a peer is counted under.
pub(crate) fn network_of(peer: IpAddr) -> ClientNetwork {
    client_network(peer, IPV6_CLIENT_BITS)
}

#[cfg(test)]
mod tests;
