//! A group of slots: a bound on some of the permits of a pacer, inside the pacer's own concurrency,
//! such as the calls of one model.
//!
//! A waiter whose group is full is passed over together with its tenant, and blocks nobody else.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::pending_acquire::PendingAcquire;

/// Slots for some of the permits of one pacer. Cheap to clone; clones are the same group.
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

/// Changed under the lock of the pacer only, and read by anybody.
struct Slots {
    limit: AtomicU64,
    in_flight: AtomicU64,
}

impl SlotGroup {
    /// A group of so many slots, at least 1.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Slots { limit: AtomicU64::new(limit.max(1)), in_flight: AtomicU64::new(0) }))
    }

    /// Changes how many slots there are; permits that are out drain. [`Pacer::nudge`] lets waiters
    /// know.
    ///
    /// [`Pacer::nudge`]: super::Pacer::nudge
    pub fn resize(&self, limit: u64) {
        self.0.limit.store(limit.max(1), Ordering::Relaxed);
    }

    /// How many slots there are.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// How many are taken.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.0.in_flight.load(Ordering::Relaxed)
    }

    fn is_full(&self) -> bool {
        self.in_flight() >= self.limit()
    }
}

impl PendingAcquire {
    /// Whether all of its groups have a free slot.
    pub(super) fn fits_groups(&self) -> bool {
        !self.groups.iter().any(SlotGroup::is_full)
    }

    pub(super) fn enter_groups(&self) {
        for group in &self.groups {
            group.0.in_flight.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives the slots of its groups back. Says whether somebody may have waited for one.
    pub(super) fn leave_groups(&self) -> bool {
        let was_full = !self.fits_groups();
        for group in &self.groups {
            group.0.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
        was_full
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
