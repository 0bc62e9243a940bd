//! Permits that HTTP clients hold by id, until they release them or the permits expire.
//!
//! When a permit expires, its slot is freed and its charges stay spent. One timer serves all
//! permits. The ids of recently ended permits are remembered, to distinguish a second release from
//! an unknown id. Ids are known only to this process.

mod held;
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

use crate::listener::drain::Stop;
use crate::metrics::PermitFigures;
pub(crate) use held::{Held, HeldCharge, HeldList};
pub(crate) use id::{PermitId, PermitIdError};
pub(crate) use queues::{Line, Queues, Wanted};

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
    Full(usize),
    #[error("at most {0} requests can wait for permits; retry later")]
    Crowded(usize),
    #[error("at most {0} requests from one address can wait for permits; retry later")]
    CrowdedPeer(usize),
    #[error("cannot generate a permit id: {0}")]
    Random(getrandom::Error),
}

/// How a permit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Released,
    Expired,
    /// Its slot leases expired in the store before they were renewed.
    Lost,
}

impl End {
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
pub(crate) enum Found {
    /// The permit is held, and expires after this time.
    Held(Arc<Held>, Duration),
    Ended(End),
    /// Not a permit of this process, or one that ended too long ago.
    Unknown,
}

/// All permits of a server. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub(crate) struct Permits(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    book: Mutex<Book>,
    /// Notified when the earliest expiry changes.
    earlier: Notify,
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
    waiting_of_peer: usize,
}

#[derive(Debug, Default)]
struct Book {
    live: HashMap<PermitId, Live>,
    by_expiry: BTreeSet<(Instant, PermitId)>,
    /// Number of reservations: acquires that are waiting.
    waiting: usize,
    /// Number of reservations of each peer.
    by_peer: HashMap<IpAddr, usize>,
    ended: HashMap<PermitId, End>,
    /// Ended permits, oldest first.
    in_order: VecDeque<PermitId>,
    figures: PermitFigures,
}

#[derive(Debug)]
struct Live {
    held: Arc<Held>,
    until: Instant,
    ttl: Duration,
}

impl Permits {
    /// Creates the permits of a listener with this many connections. Waiting acquires may use three
    /// quarters of the connections; the rest is for other requests, above all releases. One peer
    /// may use half of that.
    pub(crate) fn new(connections: usize) -> Self {
        let waiting = connections - connections / 4;
        let waiting_of_peer = waiting.div_ceil(2);
        Self::within(PermitBounds { all: MAX_PERMITS, waiting, waiting_of_peer })
    }

    fn within(bounds: PermitBounds) -> Self {
        let (book, earlier, queues) = (Mutex::default(), Notify::new(), Queues::default());
        Self(Arc::new(Inner { book, earlier, queues, bounds }))
    }

    /// Returns the queues in which acquires wait.
    pub(crate) fn queues(&self) -> &Queues {
        &self.0.queues
    }

    /// Reserves capacity for a permit of this peer, before anything is spent. Dropping the
    /// reservation frees it.
    pub(crate) fn reserve(&self, peer: IpAddr) -> Result<Place, PermitsError> {
        let peer = client_network(peer, IPV6_CLIENT_BITS).addr();
        let id = PermitId::random().map_err(PermitsError::Random)?;
        let (mut book, bounds) = (self.book(), self.0.bounds);
        if book.live.len() + book.waiting >= bounds.all {
            return Err(PermitsError::Full(bounds.all));
        }
        if book.waiting >= bounds.waiting {
            return Err(PermitsError::Crowded(bounds.waiting));
        }
        let of_peer = book.by_peer.entry(peer).or_default();
        if *of_peer >= bounds.waiting_of_peer {
            return Err(PermitsError::CrowdedPeer(bounds.waiting_of_peer));
        }
        *of_peer += 1;
        book.waiting += 1;
        Ok(Place { permits: self.clone(), id, peer })
    }

    /// Looks up a permit by id.
    pub(crate) fn find(&self, id: PermitId) -> Found {
        self.end_due(Instant::now());
        let book = self.book();
        match book.live.get(&id) {
            Some(live) => {
                Found::Held(live.held.clone(), live.until.saturating_duration_since(Instant::now()))
            }
            None => book.ended_as(id),
        }
    }

    /// Ends a permit and returns what it held, which the caller must give back.
    pub(crate) fn release(&self, id: PermitId) -> Found {
        self.end_due(Instant::now());
        let mut book = self.book();
        match book.end(id, End::Released) {
            Some(held) => Found::Held(held, Duration::ZERO),
            None => book.ended_as(id),
        }
    }

    /// Restarts the lifetime of a permit, with a new length if given.
    pub(crate) fn renew(&self, id: PermitId, ttl: Option<Duration>) -> Found {
        let now = Instant::now();
        self.end_due(now);
        let mut book = self.book();
        let Some(live) = book.live.get_mut(&id) else { return book.ended_as(id) };
        if matches!(&*live.held, Held::List(list) if list.is_lost()) {
            let held = book.end(id, End::Lost);
            drop(book);
            // Dropped without the lock, because that wakes waiters.
            drop(held);
            return Found::Ended(End::Lost);
        }
        let before = live.until;
        live.ttl = ttl.unwrap_or(live.ttl);
        live.until = now + live.ttl;
        let (held, until) = (live.held.clone(), live.until);
        book.by_expiry.remove(&(before, id));
        book.by_expiry.insert((until, id));
        let is_first = book.by_expiry.first().is_some_and(|(_, first)| *first == id);
        drop(book);
        if is_first {
            self.0.earlier.notify_one();
        }
        Found::Held(held, until.saturating_duration_since(now))
    }

    /// Ends permits when they expire, until the server stops.
    pub(crate) async fn expire(&self, stop: Stop) {
        let mut stopped = std::pin::pin!(stop.told());
        loop {
            let next = self.end_due(Instant::now());
            let due = async {
                match next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut stopped => return,
                () = self.0.earlier.notified() => {}
                () = due => {}
            }
        }
    }

    /// Ends all expired permits and returns the next expiry.
    fn end_due(&self, now: Instant) -> Option<Instant> {
        let (mut ended, mut book) = (Vec::new(), self.book());
        let next = loop {
            match book.by_expiry.first().copied() {
                Some((until, id)) if until <= now => ended.extend(book.end(id, End::Expired)),
                next => break next.map(|(until, _)| until),
            }
        };
        drop(book);
        // Dropped without the lock, because freed slots wake waiters.
        drop(ended);
        next
    }

    /// Abandons all permits to their leases when the server stops. The holders continue to work, so
    /// freeing the slots now would admit others beside them.
    pub(crate) fn leave(&self) {
        let mut book = self.book();
        book.by_expiry.clear();
        let live: Vec<_> = book.live.drain().map(|(_, live)| live.held).collect();
        drop(book);
        live.into_iter().for_each(std::mem::forget);
    }

    pub(crate) fn figures(&self) -> PermitFigures {
        let book = self.book();
        PermitFigures { held: book.live.len(), waiting: book.waiting, ..book.figures }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn end(&mut self, id: PermitId, end: End) -> Option<Arc<Held>> {
        let live = self.live.remove(&id)?;
        self.by_expiry.remove(&(live.until, id));
        match end {
            End::Released => self.figures.released += 1,
            End::Expired => self.figures.expired += 1,
            End::Lost => self.figures.lost += 1,
        }
        if self.in_order.len() >= MAX_ENDED {
            let oldest = self.in_order.pop_front();
            oldest.and_then(|oldest| self.ended.remove(&oldest));
        }
        self.ended.insert(id, end);
        self.in_order.push_back(id);
        Some(live.held)
    }

    fn ended_as(&self, id: PermitId) -> Found {
        self.ended.get(&id).map_or(Found::Unknown, |end| Found::Ended(*end))
    }
}

/// Reserved capacity for a permit that is not granted yet.
#[derive(Debug)]
#[must_use = "dropping a reservation frees it"]
pub(crate) struct Place {
    permits: Permits,
    id: PermitId,
    peer: IpAddr,
}

impl Place {
    /// Stores the granted permit for `ttl` and returns its id.
    pub(crate) fn fill(self, held: Held, ttl: Duration) -> PermitId {
        let (id, until) = (self.id, Instant::now() + ttl);
        let mut book = self.permits.book();
        book.live.insert(id, Live { held: Arc::new(held), until, ttl });
        book.by_expiry.insert((until, id));
        let is_first = book.by_expiry.first().is_some_and(|(_, first)| *first == id);
        drop(book);
        if is_first {
            self.permits.0.earlier.notify_one();
        }
        id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut book = self.permits.book();
        book.waiting -= 1;
        if let Entry::Occupied(mut of_peer) = book.by_peer.entry(self.peer) {
            *of_peer.get_mut() -= 1;
            if *of_peer.get() == 0 {
                of_peer.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests;
