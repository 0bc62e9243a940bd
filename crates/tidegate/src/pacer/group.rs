//! Slot groups: a limit on some permits within the concurrency of their pacers, for example on the
//! calls to one model.
//!
//! A waiter whose group is full is skipped together with its tenant, and blocks no other. Pacers
//! can share a group. A slot that becomes free is offered to one pacer after the other until one
//! takes it: peers take turns, and within a peer the pacers in which it waits.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::inner::PacerInner;
use super::pending_acquire::PendingAcquire;
use crate::live_limit::LimitWatcher as _;
use crate::sync::{Mutex, MutexGuard};

/// Slots for some permits of one or more pacers. Cheap to clone; clones are the same group.
///
/// ```
/// use tidegate::pacer::{Pacer, SlotGroup};
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let calls = engine.limiter("calls", Policy::per_second(50).capacity(10).build()?)?;
/// let pacer = Pacer::builder(&engine).concurrency(8).build();
/// let embeddings = SlotGroup::new(1);
/// let embed = || pacer.acquire([calls.charge("key", 1)]).tenant("embeddings").in_group(&embeddings);
/// let _first = embed().now()?;
/// assert!(embed().now().is_err());
/// assert!(pacer.acquire([calls.charge("key", 1)]).now().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SlotGroup(Arc<Slots>);

struct Slots {
    limit: AtomicU64,
    in_flight: AtomicU64,
    waiting: Mutex<WaitingPacers>,
}

/// Pacers with waiters for a slot, by peer, in the order of their turns.
#[derive(Default)]
struct WaitingPacers {
    peers: VecDeque<u64>,
    pacers: HashMap<u64, VecDeque<Weak<PacerInner>>>,
    /// Whether a caller is offering slots. Another caller that frees one leaves it to that one.
    is_notifying: bool,
    /// Whether slots were freed meanwhile.
    has_freed_slot: bool,
}

impl WaitingPacers {
    fn wait(&mut self, peer: u64, inner: &Weak<PacerInner>) {
        let pacers = self.pacers.entry(peer).or_default();
        if pacers.is_empty() {
            self.peers.push_back(peer);
        }
        if !pacers.iter().any(|known| known.ptr_eq(inner)) {
            pacers.push_back(inner.clone());
        }
    }

    /// Ends the turn of the first peer, and returns its next pacer.
    fn pop(&mut self) -> Option<Weak<PacerInner>> {
        let peer = self.peers.pop_front()?;
        let pacers = self.pacers.get_mut(&peer)?;
        let pacer = pacers.pop_front();
        if pacers.is_empty() {
            self.pacers.remove(&peer);
        } else {
            self.peers.push_back(peer);
        }
        pacer
    }

    fn len(&self) -> usize {
        self.pacers.values().map(VecDeque::len).sum()
    }
}

impl SlotGroup {
    /// Creates a group with this many slots, at least 1.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Slots {
            limit: AtomicU64::new(limit.max(1)),
            in_flight: AtomicU64::new(0),
            waiting: Mutex::new(WaitingPacers::default()),
        }))
    }

    /// Changes the number of slots. If it shrinks, permits in use drain; if it grows, waiters go on
    /// at once.
    pub fn resize(&self, limit: u64) {
        self.0.limit.store(limit.max(1), Ordering::Release);
        self.notify();
    }

    /// Number of slots.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Acquire)
    }

    /// Number of slots in use.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Ordering::Acquire)
    }

    fn try_enter(&self) -> bool {
        let taken = |in_flight: u64| (in_flight < self.limit()).then_some(in_flight + 1);
        self.0.in_flight.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).is_ok()
    }

    fn leave(&self) {
        self.0.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// Registers a pacer to be notified when a slot may be free for this peer.
    fn wait(&self, peer: u64, inner: &Weak<PacerInner>) {
        self.turns().wait(peer, inner);
    }

    fn has_waiters(&self) -> bool {
        !self.turns().peers.is_empty()
    }

    fn turns(&self) -> MutexGuard<'_, WaitingPacers> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot may be free: pacers with waiters check again, in turn, while there is a free slot. A
    /// pacer that still has to wait goes to the end. The caller must hold no pacer's lock.
    ///
    /// A pacer that cannot use the slot frees it again and calls this recursively; the outer loop
    /// then offers it to the next one.
    pub(super) fn notify(&self) {
        {
            let mut turns = self.turns();
            turns.has_freed_slot = true;
            if std::mem::replace(&mut turns.is_notifying, true) {
                return;
            }
        }
        let notifying = Notifying(self);
        while notifying.has_more() {
            let waiting = self.turns().len();
            for _ in 0..waiting {
                if self.in_flight() >= self.limit() {
                    break;
                }
                let Some(inner) = self.turns().pop() else { break };
                if let Some(inner) = inner.upgrade() {
                    inner.on_change();
                }
            }
        }
    }
}

/// Marks a group as being offered until dropped.
struct Notifying<'g>(&'g SlotGroup);

impl Notifying<'_> {
    /// Whether there may be something to offer. If not, other callers may start offering.
    fn has_more(&self) -> bool {
        let mut turns = self.0.turns();
        turns.is_notifying = std::mem::take(&mut turns.has_freed_slot);
        turns.is_notifying
    }
}

impl Drop for Notifying<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.turns().is_notifying = false;
        }
    }
}

impl PendingAcquire {
    /// Takes a slot of each of its groups, or of none. If one is full, the pacer is notified when a
    /// slot may be free.
    pub(super) fn try_enter_groups(&self, inner: &Weak<PacerInner>) -> bool {
        for (index, group) in self.groups.iter().enumerate() {
            if group.try_enter() {
                continue;
            }
            group.wait(self.peer, inner);
            // A slot may have become free before the wait was registered.
            if group.try_enter() {
                continue;
            }
            self.groups.iter().take(index).for_each(SlotGroup::leave);
            return false;
        }
        true
    }

    /// Releases the slots of its groups. Returns the groups to notify after unlocking.
    pub(super) fn leave_groups(&self) -> impl Iterator<Item = SlotGroup> {
        self.groups.iter().for_each(SlotGroup::leave);
        self.groups.iter().filter(|group| group.has_waiters()).cloned()
    }
}

impl fmt::Debug for SlotGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SlotGroup")
            .field("limit", &self.limit())
            .field("in_flight", &self.in_flight())
            .finish()
    }
}
