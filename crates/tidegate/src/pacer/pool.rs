//! A pool of slots that several pacers share, for example the calls that a provider accepts at
//! once, for all keys and models.
//!
//! A pacer takes a slot from the pool only when its head could otherwise go, so that no slot is
//! held while a waiter waits for tokens. Pacers of one [member](SlotPool::member) count together.
//! While no slot is free, peers take turns, within a peer its members do, and within a member its
//! pacers. A slot that becomes free is handed to the pacer whose turn it is, and no other can take
//! it.
//!
//! The lock of the pool is taken inside the locks of pacers, and no pacer is locked while it is
//! held. A caller that gives a slot back hands it on after its own pacer is unlocked.

mod handle;
mod turns;

use std::fmt;
use std::sync::{Arc, PoisonError, Weak};

use super::adaptive::{Adaptive, Tuning};
use super::inner::PacerInner;
use super::scheduler::slab::{Id, Slab};
use crate::engine::Engine;
use crate::store_handle::StoreClock;
use crate::sync::{Mutex, MutexGuard};

pub(super) use handle::{PoolHandle, SlotRequest};
use turns::{PeerList, Turns, WaitingPacer};

/// Number of slots of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolSize {
    /// No limit.
    Unlimited,
    /// This many, at least 1.
    Fixed(u64),
    /// Adapts, within bounds, to how many calls succeed.
    Adaptive(Tuning),
}

/// Slots that several pacers share. Cheap to clone; clones are the same pool.
///
/// ```
/// use tidegate::pacer::{Pacer, PoolSize, SlotPool};
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let calls = engine.limiter("calls", Policy::per_second(50).capacity(10).build()?)?;
/// let pool = SlotPool::new(&engine, PoolSize::Fixed(1));
/// let pacer = || Pacer::builder(&engine).pool(&pool).build();
/// let (chat, embeddings) = (pacer(), pacer());
///
/// let permit = chat.acquire([calls.charge("chat", 1)]).now()?;
/// assert!(embeddings.acquire([calls.charge("embeddings", 1)]).now().is_err());
/// drop(permit);
/// assert!(embeddings.acquire([calls.charge("embeddings", 1)]).now().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SlotPool {
    shared: Arc<Shared>,
    /// The member that pacers built with this handle belong to.
    member: Option<PoolMember>,
}

struct Shared {
    clock: StoreClock,
    pool: Mutex<Pool>,
}

/// Pacers that count together in a pool, such as those of one API key. Cheap to clone.
#[derive(Clone)]
pub(super) struct PoolMember(Arc<Membership>);

struct Membership {
    pool: SlotPool,
    id: Id,
}

/// State of a [`SlotPool`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolGauges {
    /// Number of slots in use.
    pub in_flight: u64,
    /// Current number of slots; `None` if unlimited.
    pub limit: Option<u64>,
    /// Number of pacers that wait for a slot.
    pub waiting: usize,
    /// State of the adaptation; `None` if the limit is not adaptive.
    pub adaptive: Option<AdaptiveState>,
}

/// State of an adaptive limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AdaptiveState {
    /// Initial limit.
    pub start: u64,
    /// Largest limit.
    pub cap: u64,
    /// Smallest limit at which calls were pushed back, if any.
    pub pushed_back_at: Option<u64>,
    /// Whether calls take longer than [`Tuning::max_latency`], so that the limit does not grow.
    pub is_slow: bool,
}

#[derive(Default)]
struct Pool {
    limit: Option<u64>,
    in_flight: u64,
    adaptive: Option<Adaptive>,
    /// The configured size.
    size: Option<PoolSize>,
    /// Epoch of the next adaptive limit, so that calls that started under another one do not count.
    next_epoch: u64,
    members: Slab<Member>,
    /// Number of members with calls in flight.
    busy_members: u64,
    pacers: Slab<PacerEntry>,
    turns: Turns,
    /// Number of waiting pacers.
    waiting: usize,
}

#[derive(Default)]
struct Member {
    in_flight: u64,
    /// Epoch of the adaptive limit in which it was last pushed back.
    pushed_back_in: Option<u64>,
}

struct PacerEntry {
    member: Id,
    inner: Weak<PacerInner>,
    /// The peers in whose turns it waits.
    waiting_peers: PeerList,
}

impl SlotPool {
    /// Creates a pool of this size, on the clock of this engine's store. Its pacers may be on other
    /// engines.
    #[must_use]
    pub fn new(engine: &Engine, size: PoolSize) -> Self {
        Self::on(StoreClock::of(engine.store()), size)
    }

    pub(super) fn on(clock: StoreClock, size: PoolSize) -> Self {
        let mut pool = Pool::default();
        pool.resize(size);
        Self { shared: Arc::new(Shared { clock, pool: Mutex::new(pool) }), member: None }
    }

    /// Changes the size. If it shrinks, calls in flight drain; if it grows, waiting pacers go on at
    /// once. An adaptive pool keeps its limit, within the new bounds.
    pub fn resize(&self, size: PoolSize) {
        self.lock().resize(size);
        self.hand_out();
    }

    /// Restarts an adaptive pool from another limit, within its bounds, and forgets what it has
    /// learned. A pool that is not adaptive takes the limit as its size.
    pub fn restart(&self, limit: u64) {
        self.lock().restart(limit);
        self.hand_out();
    }

    /// Returns a handle for a new member of the pool: pacers built with it count together, such as
    /// those of one API key. Members take turns. A pacer that is built with the pool itself is a
    /// member of its own.
    #[must_use]
    pub fn member(&self) -> Self {
        Self { shared: self.shared.clone(), member: Some(self.new_member()) }
    }

    pub(super) fn own_member(&self) -> PoolMember {
        self.member.clone().unwrap_or_else(|| self.new_member())
    }

    fn new_member(&self) -> PoolMember {
        let id = self.lock().members.insert(Member::default());
        let pool = Self { shared: self.shared.clone(), member: None };
        PoolMember(Arc::new(Membership { pool, id }))
    }

    /// Returns the current state.
    #[must_use]
    pub fn gauges(&self) -> PoolGauges {
        let pool = self.lock();
        let adaptive = pool.adaptive.as_ref().map(|adaptive| AdaptiveState {
            start: adaptive.tuning().start,
            cap: adaptive.tuning().cap,
            pushed_back_at: adaptive.pushed_back_at(),
            is_slow: adaptive.is_slow(),
        });
        PoolGauges { in_flight: pool.in_flight, limit: pool.limit, waiting: pool.waiting, adaptive }
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        self.shared.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands free slots to the pacers whose turn it is. The caller must hold no pacer's lock.
    pub(super) fn hand_out(&self) {
        loop {
            let Some((pacer, inner)) = self.lock().next_offer() else { return };
            let is_used = inner.upgrade().is_some_and(|inner| inner.offer_slot());
            if !is_used {
                self.lock().put_back(pacer);
            }
        }
    }
}

impl Pool {
    fn is_full(&self) -> bool {
        self.limit.is_some_and(|limit| self.in_flight >= limit)
    }

    fn resize(&mut self, size: PoolSize) {
        let before = self.size.replace(size);
        match (size, &mut self.adaptive) {
            (PoolSize::Adaptive(tuning), Some(adaptive)) => {
                adaptive.reconfigure(tuning);
                let is_moved =
                    |before| matches!(before, PoolSize::Adaptive(old) if old.start != tuning.start);
                if before.is_some_and(is_moved) {
                    adaptive.restart(tuning.start);
                }
            }
            (PoolSize::Adaptive(tuning), adaptive) => {
                *adaptive = Some(Adaptive::from_epoch(self.next_epoch, tuning));
            }
            (PoolSize::Fixed(_) | PoolSize::Unlimited, adaptive) => {
                if let Some(adaptive) = adaptive.take() {
                    self.next_epoch = adaptive.epoch() + 1;
                }
            }
        }
        self.limit = match size {
            PoolSize::Unlimited => None,
            PoolSize::Fixed(limit) => Some(limit.max(1)),
            PoolSize::Adaptive(..) => self.adaptive.as_ref().map(Adaptive::limit),
        };
    }

    fn restart(&mut self, limit: u64) {
        self.limit = Some(match &mut self.adaptive {
            Some(adaptive) => adaptive.restart(limit.max(1)),
            None => limit.max(1),
        });
    }

    fn take(&mut self, pacer: Id) {
        self.in_flight += 1;
        let member = self.pacers.get(pacer).map(|pacer| pacer.member);
        if let Some(member) = member.and_then(|member| self.members.get_mut(member)) {
            self.busy_members += u64::from(member.in_flight == 0);
            member.in_flight += 1;
        }
    }

    fn put_back(&mut self, pacer: Id) {
        self.in_flight = self.in_flight.saturating_sub(1);
        let member = self.pacers.get(pacer).map(|pacer| pacer.member);
        if let Some(member) = member.and_then(|member| self.members.get_mut(member)) {
            self.busy_members = self.busy_members.saturating_sub(u64::from(member.in_flight == 1));
            member.in_flight = member.in_flight.saturating_sub(1);
        }
    }

    /// Whether the next slot is for this pacer.
    fn is_in_turn(&self, pacer: Id) -> bool {
        self.turns.is_empty() || self.turns.first() == Some(pacer)
    }

    /// Registers a pacer as waiting, in the turns of these peers.
    fn wait(&mut self, pacer: Id, peers: impl Iterator<Item = u64>) {
        let Some(entry) = self.pacers.get_mut(pacer) else { return };
        let waiting = WaitingPacer { member: entry.member, pacer };
        let was_waiting = !entry.waiting_peers.is_empty();
        self.turns.wait(waiting, &mut entry.waiting_peers, peers);
        match (was_waiting, !entry.waiting_peers.is_empty()) {
            (false, true) => self.waiting += 1,
            (true, false) => self.waiting -= 1,
            _ => {}
        }
    }

    /// Ends the turn of the first peer, and returns its pacer that goes.
    fn pop_turn(&mut self) -> Option<Id> {
        let (peer, pacer) = self.turns.pop()?;
        if let Some(entry) = self.pacers.get_mut(pacer) {
            entry.waiting_peers.retain(|waiting_peer| *waiting_peer != peer);
            self.waiting -= usize::from(entry.waiting_peers.is_empty());
        }
        if self.waiting == 0 {
            if let Some(adaptive) = &mut self.adaptive {
                adaptive.slots_free();
            }
        }
        Some(pacer)
    }

    /// Removes a waiting pacer.
    fn leave_turns(&mut self, pacer: Id) {
        let Some(entry) =
            self.pacers.get_mut(pacer).filter(|entry| !entry.waiting_peers.is_empty())
        else {
            return;
        };
        let waiting = WaitingPacer { member: entry.member, pacer };
        self.turns.leave(waiting, &mut entry.waiting_peers);
        self.waiting -= 1;
    }

    /// Takes a free slot for the next pacer. It counts as in use from now on.
    fn next_offer(&mut self) -> Option<(Id, Weak<PacerInner>)> {
        while !self.is_full() && !self.turns.is_empty() {
            let Some(pacer) = self.pop_turn() else { continue };
            let Some(inner) = self.pacers.get(pacer).map(|entry| entry.inner.clone()) else {
                continue;
            };
            self.take(pacer);
            return Some((pacer, inner));
        }
        None
    }

    /// Whether most members with calls in flight were pushed back under the current limit,
    /// including this one. A single key that is always rejected must not slow down the others.
    fn is_pushed_back(&mut self, pacer: Id) -> bool {
        let Some(epoch) = self.adaptive.as_ref().map(Adaptive::epoch) else { return false };
        let member = self.pacers.get(pacer).map(|entry| entry.member);
        if let Some(member) = member.and_then(|member| self.members.get_mut(member)) {
            member.pushed_back_in = Some(epoch);
        }
        let is_one =
            |member: &&Member| member.in_flight > 0 && member.pushed_back_in == Some(epoch);
        let pushed_back = self.members.iter().filter(is_one).count() as u64;
        pushed_back * 2 > self.busy_members
    }
}

impl PoolMember {
    pub(super) fn pool(&self) -> &SlotPool {
        &self.0.pool
    }

    /// Creates the handle of one pacer.
    pub(super) fn handle(&self, inner: Weak<PacerInner>) -> PoolHandle {
        let entry = PacerEntry { member: self.0.id, inner, waiting_peers: PeerList::new() };
        let pacer = self.0.pool.lock().pacers.insert(entry);
        PoolHandle::new(self.clone(), pacer)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.pool.lock().members.remove(self.id);
    }
}

impl fmt::Debug for SlotPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SlotPool").field(&self.gauges()).finish()
    }
}
