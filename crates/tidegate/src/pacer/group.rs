//! A group of slots: a bound on some permits, inside the concurrency of their pacers, such as the calls
//! of one model.
//!
//! A waiter whose group is full is passed over together with its tenant, and blocks nobody else.
//! Pacers may share a group; whoever frees a slot lets those know that wait for one.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, Weak};

use super::pending_acquire::PendingAcquire;
use super::scope::Scope;
use crate::sync::Mutex;
use crate::terms::Watch as _;

/// Slots for some permits of one or more pacers. Cheap to clone; clones are the same group.
///
/// ```
/// use tidegate::pacer::{Pacer, SlotGroup};
/// use tidegate::{Engine, Policy};
/// let engine = Engine::new();
/// let calls = engine.limiter("calls", Policy::per_second(50).capacity(10).build()?)?;
/// let pacer = Pacer::builder(&engine).concurrency(8).build();
/// let embeddings = SlotGroup::new(1);
/// let embed = || pacer.acquire([calls.claim("key", 1)]).tenant("embeddings").within(&embeddings);
/// let _first = embed().now()?;
/// assert!(embed().now().is_err());
/// assert!(pacer.acquire([calls.claim("key", 1)]).now().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SlotGroup(Arc<Slots>);

struct Slots {
    limit: AtomicU64,
    in_flight: AtomicU64,
    /// Pacers in which somebody waits for a slot.
    waiting: Mutex<Vec<Weak<Scope>>>,
}

impl SlotGroup {
    /// A group of so many slots, at least 1.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Slots {
            limit: AtomicU64::new(limit.max(1)),
            in_flight: AtomicU64::new(0),
            waiting: Mutex::new(Vec::new()),
        }))
    }

    /// Changes how many slots there are. Permits that are out drain; those who wait for a slot are
    /// let go at once.
    pub fn resize(&self, limit: u64) {
        self.0.limit.store(limit.max(1), Ordering::Release);
        self.notify();
    }

    /// How many slots there are.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Acquire)
    }

    /// How many are taken.
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

    /// Lets a pacer know when a slot may be free.
    fn wait(&self, scope: &Weak<Scope>) {
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|known| known.ptr_eq(scope)) {
            waiting.push(scope.clone());
        }
    }

    fn has_waiters(&self) -> bool {
        !self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// A slot may be free: pacers in which somebody waits look again. No pacer may be locked.
    pub(super) fn notify(&self) {
        let waiting = {
            let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        for scope in waiting.iter().filter_map(Weak::upgrade) {
            scope.changed();
        }
    }
}

impl PendingAcquire {
    /// Takes a slot of each of its groups, or of none. Without one, the pacer is told when there may
    /// be one.
    pub(super) fn try_enter_groups(&self, scope: &Weak<Scope>) -> bool {
        for (index, group) in self.groups.iter().enumerate() {
            if group.try_enter() {
                continue;
            }
            group.wait(scope);
            // One may have come free before anybody could know of the wait.
            if group.try_enter() {
                continue;
            }
            self.groups.iter().take(index).for_each(SlotGroup::leave);
            return false;
        }
        true
    }

    /// Gives the slots of its groups back: the groups whose waiters are to be told after unlocking.
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
