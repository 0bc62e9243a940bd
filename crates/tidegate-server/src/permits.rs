//! Permits that HTTP clients hold by id, until they release them or the permits expire.
//!
//! When a permit expires, its slot is freed and its charges stay spent. One timer serves all
//! permits. The ids of recently ended permits are remembered, to distinguish a second release from
//! an unknown id. Ids are known only to this process.

mod granted;
mod id;
mod queues;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tidegate_http::identity::{IPV6_CLIENT_BITS, client_network};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::listener::drain::StopSignal;
use crate::metrics::PermitStats;
pub(crate) use granted::{GrantedCharge, GrantedCharges, GrantedPermit};
pub(crate) use id::{PermitId, PermitIdError};
pub(crate) use queues::{QueueEntry, Queues, RequestedCharge};

/// Maximum number of permits, including those still waited for.
const MAX_PERMITS: usize = 100_000;

/// Maximum number of ended permits that are remembered.
const MAX_ENDED: usize = 65_536;

/// Why no further permit can be requested. Nothing was spent.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PermitsError {
    #[error(
        "at most {0} permits can be held or waited for; release some, or wait until they expire"
    )]
    TooManyPermits(usize),
    #[error("at most {0} requests can wait for permits; retry later")]
    TooManyWaiting(usize),
    #[error("at most {0} requests from one address can wait for permits; retry later")]
    TooManyWaitingFromPeer(usize),
    #[error("cannot generate a permit id: {0}")]
    Random(getrandom::Error),
}

/// How a permit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitEnd {
    Released,
    Expired,
    /// Its slot leases expired in the store before they were renewed.
    Lost,
}

impl PermitEnd {
    /// Returns the name used in JSON.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Lost => "lost",
        }
    }
}

/// Result of looking up a permit by id.
#[derive(Debug)]
pub(crate) enum Lookup {
    /// The permit is held, and expires after this time.
    Active(Arc<GrantedPermit>, Duration),
    Ended(PermitEnd),
    /// Not a permit of this process, or one that ended too long ago.
    Unknown,
}

/// All permits of a server. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Permits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    table: Mutex<PermitTable>,
    /// Notified when the earliest expiry changes.
    expiry_changed: Notify,
    queues: Queues,
    bounds: PermitBounds,
}

/// Maximum numbers of permits.
#[derive(Clone, Copy, Debug)]
struct PermitBounds {
    /// Held or waited for, in all.
    all: usize,
    /// Waited for, in all.
    waiting: usize,
    /// Waited for by one peer.
    waiting_per_peer: usize,
}

#[derive(Debug, Default)]
struct PermitTable {
    live: HashMap<PermitId, LivePermit>,
    by_expiry: BTreeSet<(Instant, PermitId)>,
    /// Number of reservations: acquires that are waiting.
    waiting: usize,
    /// Number of reservations of each peer.
    by_peer: HashMap<IpAddr, usize>,
    ended: HashMap<PermitId, PermitEnd>,
    /// Ended permits, oldest first.
    ended_order: VecDeque<PermitId>,
    stats: PermitStats,
}

#[derive(Debug)]
struct LivePermit {
    permit: Arc<GrantedPermit>,
    expires_at: Instant,
    ttl: Duration,
}

impl Permits {
    /// Creates the permits of a listener with this many connections. Waiting acquires may use three
    /// quarters of the connections; the rest is for other requests, above all releases. One peer
    /// may use half of that.
    pub(crate) fn new(connections: usize) -> Self {
        let waiting = connections - connections / 4;
        let waiting_per_peer = waiting.div_ceil(2);
        Self::with_bounds(PermitBounds { all: MAX_PERMITS, waiting, waiting_per_peer })
    }

    fn with_bounds(bounds: PermitBounds) -> Self {
        let (table, expiry_changed, queues) = (Mutex::default(), Notify::new(), Queues::default());
        Self(Arc::new(Inner { table, expiry_changed, queues, bounds }))
    }

    /// Returns the queues in which acquires wait.
    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    /// Reserves capacity for a permit of this peer, before anything is spent. Dropping the
    /// reservation frees it.
    pub(crate) fn reserve(&self, peer: IpAddr) -> Result<Reservation, PermitsError> {
        let peer = client_network(peer, IPV6_CLIENT_BITS).addr();
        let id = PermitId::random().map_err(PermitsError::Random)?;
        let (mut table, bounds) = (self.table(), self.0.bounds);
        if table.live.len() + table.waiting >= bounds.all {
            return Err(PermitsError::TooManyPermits(bounds.all));
        }
        if table.waiting >= bounds.waiting {
            return Err(PermitsError::TooManyWaiting(bounds.waiting));
        }
        let peer_waiting = table.by_peer.entry(peer).or_default();
        if *peer_waiting >= bounds.waiting_per_peer {
            return Err(PermitsError::TooManyWaitingFromPeer(bounds.waiting_per_peer));
        }
        *peer_waiting += 1;
        table.waiting += 1;
        Ok(Reservation { permits: self.clone(), id, peer })
    }

    /// Looks up a permit by id.
    pub(crate) fn find(&self, id: PermitId) -> Lookup {
        self.expire_due(Instant::now());
        let table = self.table();
        match table.live.get(&id) {
            Some(live) => Lookup::Active(
                live.permit.clone(),
                live.expires_at.saturating_duration_since(Instant::now()),
            ),
            None => table.lookup_ended(id),
        }
    }

    /// Ends a permit and returns what it held, which the caller must give back.
    pub(crate) fn release(&self, id: PermitId) -> Lookup {
        self.expire_due(Instant::now());
        let mut table = self.table();
        match table.end(id, PermitEnd::Released) {
            Some(permit) => Lookup::Active(permit, Duration::ZERO),
            None => table.lookup_ended(id),
        }
    }

    /// Restarts the lifetime of a permit, with a new length if given.
    pub(crate) fn renew(&self, id: PermitId, ttl: Option<Duration>) -> Lookup {
        let now = Instant::now();
        self.expire_due(now);
        let mut table = self.table();
        let Some(live) = table.live.get_mut(&id) else { return table.lookup_ended(id) };
        if matches!(&*live.permit, GrantedPermit::Charges(list) if list.is_lost()) {
            let permit = table.end(id, PermitEnd::Lost);
            drop(table);
            // Dropped without the lock, because that wakes waiters.
            drop(permit);
            return Lookup::Ended(PermitEnd::Lost);
        }
        let before = live.expires_at;
        live.ttl = ttl.unwrap_or(live.ttl);
        live.expires_at = now + live.ttl;
        let (permit, expires_at) = (live.permit.clone(), live.expires_at);
        table.by_expiry.remove(&(before, id));
        table.by_expiry.insert((expires_at, id));
        let is_first = table.by_expiry.first().is_some_and(|(_, first)| *first == id);
        drop(table);
        if is_first {
            self.0.expiry_changed.notify_one();
        }
        Lookup::Active(permit, expires_at.saturating_duration_since(now))
    }

    /// Ends permits when they expire, until the server stops.
    pub(crate) async fn expire(&self, stop: StopSignal) {
        let mut stopped = std::pin::pin!(stop.wait());
        loop {
            let next = self.expire_due(Instant::now());
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stopped => return,
                () = self.0.expiry_changed.notified() => {}
                () = due => {}
            }
        }
    }

    /// Ends all expired permits and returns the next expiry.
    fn expire_due(&self, now: Instant) -> Option<Instant> {
        let (mut ended, mut table) = (Vec::new(), self.table());
        let next = loop {
            match table.by_expiry.first().copied() {
                Some((expires_at, id)) if expires_at <= now => {
                    ended.extend(table.end(id, PermitEnd::Expired));
                }
                next => break next.map(|(expires_at, _)| expires_at),
            }
        };
        drop(table);
        // Dropped without the lock, because freed slots wake waiters.
        drop(ended);
        next
    }

    /// Abandons all permits to their leases when the server stops. The holders continue to work, so
    /// freeing the slots now would admit others beside them.
    pub(crate) fn abandon_all(&self) {
        let mut table = self.table();
        table.by_expiry.clear();
        let live: Vec<_> = table.live.drain().map(|(_, live)| live.permit).collect();
        drop(table);
        live.into_iter().for_each(std::mem::forget);
    }

    pub(crate) fn stats(&self) -> PermitStats {
        let table = self.table();
        PermitStats { held: table.live.len(), waiting: table.waiting, ..table.stats }
    }

    fn table(&self) -> MutexGuard<'_, PermitTable> {
        self.0.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PermitTable {
    fn end(&mut self, id: PermitId, end: PermitEnd) -> Option<Arc<GrantedPermit>> {
        let live = self.live.remove(&id)?;
        self.by_expiry.remove(&(live.expires_at, id));
        match end {
            PermitEnd::Released => self.stats.released += 1,
            PermitEnd::Expired => self.stats.expired += 1,
            PermitEnd::Lost => self.stats.lost += 1,
        }
        if self.ended_order.len() >= MAX_ENDED {
            let oldest = self.ended_order.pop_front();
            oldest.and_then(|oldest| self.ended.remove(&oldest));
        }
        self.ended.insert(id, end);
        self.ended_order.push_back(id);
        Some(live.permit)
    }

    fn lookup_ended(&self, id: PermitId) -> Lookup {
        self.ended.get(&id).map_or(Lookup::Unknown, |end| Lookup::Ended(*end))
    }
}

/// Reserved capacity for a permit that is not granted yet.
#[derive(Debug)]
#[must_use = "dropping a reservation frees it"]
pub(crate) struct Reservation {
    permits: Permits,
    id: PermitId,
    peer: IpAddr,
}

impl Reservation {
    /// Stores the granted permit for `ttl` and returns its id.
    pub(crate) fn grant(self, permit: GrantedPermit, ttl: Duration) -> PermitId {
        let (id, expires_at) = (self.id, Instant::now() + ttl);
        let mut table = self.permits.table();
        table.live.insert(id, LivePermit { permit: Arc::new(permit), expires_at, ttl });
        table.by_expiry.insert((expires_at, id));
        let is_first = table.by_expiry.first().is_some_and(|(_, first)| *first == id);
        drop(table);
        if is_first {
            self.permits.0.expiry_changed.notify_one();
        }
        id
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut table = self.permits.table();
        table.waiting -= 1;
        if let Entry::Occupied(mut peer_waiting) = table.by_peer.entry(self.peer) {
            *peer_waiting.get_mut() -= 1;
            if *peer_waiting.get() == 0 {
                peer_waiting.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;
