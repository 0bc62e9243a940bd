//! The budget, its charges, and reclaiming.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidegate::clock::{Clock as _, TokioClock};

use super::EvictionCost;

/// How long reclaiming is skipped after it freed too little.
const PAUSE: Duration = Duration::from_millis(25);

/// An owner of evictable items.
trait Reclaim: Send + Sync {
    fn is_alive(&self) -> bool;

    fn reclaim(&self, max_cost: EvictionCost);
}

struct Reclaimer<T> {
    owner: Weak<T>,
    reclaim: fn(&T, EvictionCost),
}

impl<T: Send + Sync> Reclaim for Reclaimer<T> {
    fn is_alive(&self) -> bool {
        self.owner.strong_count() > 0
    }

    fn reclaim(&self, max_cost: EvictionCost) {
        if let Some(owner) = self.owner.upgrade() {
            (self.reclaim)(&owner, max_cost);
        }
    }
}

/// A limit on memory use. Cheap to clone; clones share one budget.
///
/// ```
/// use tidegate_llm::memory::MemoryBudget;
/// let budget = MemoryBudget::new(1_000);
/// assert!(budget.has_room(300));
/// assert!(!budget.has_room(1_300));
/// ```
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limit: AtomicUsize,
    used: AtomicUsize,
    reclaimers: Mutex<Reclaimers>,
    /// Reclaiming is skipped before this time, in nanoseconds.
    next_try: AtomicU64,
    clock: TokioClock,
}

#[derive(Default)]
struct Reclaimers(Vec<Arc<dyn Reclaim>>);

impl std::fmt::Debug for Reclaimers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reclaimers").field(&self.0.len()).finish()
    }
}

impl MemoryBudget {
    /// Creates a budget of `bytes` bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self(Arc::new(Inner {
            limit: AtomicUsize::new(bytes),
            used: AtomicUsize::new(0),
            reclaimers: Mutex::default(),
            next_try: AtomicU64::new(0),
            clock: TokioClock::new(),
        }))
    }

    /// Creates a budget without a limit.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Changes the limit. If more is in use, items are evicted when room is next requested.
    pub fn resize(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
        self.0.next_try.store(0, Ordering::Relaxed);
    }

    /// Returns the limit in bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// Returns the number of bytes charged.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Registers an owner of evictable items for as long as it lives. `reclaim` evicts items that
    /// cost at most the given [`EvictionCost`], least recently used first. Each call examines a
    /// bounded number of items and continues where the last one ended.
    pub(crate) fn register<T: Send + Sync + 'static>(
        &self,
        owner: &Arc<T>,
        reclaim: fn(&T, EvictionCost),
    ) {
        let mut reclaimers = self.0.reclaimers.lock().unwrap_or_else(PoisonError::into_inner);
        reclaimers.0.retain(|known| known.is_alive());
        reclaimers.0.push(Arc::new(Reclaimer { owner: Arc::downgrade(owner), reclaim }));
    }

    /// Returns whether `bytes` more can be charged, evicting items if necessary. The caller must
    /// not hold a lock that a registered owner takes.
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.has_room_with(bytes, |_| {})
    }

    /// Returns whether `bytes` more can be charged. Calls `reclaim` before the registered owners,
    /// so that a caller evicts its own items first.
    pub(crate) fn has_room_with(&self, bytes: usize, reclaim: impl Fn(EvictionCost)) -> bool {
        self.fits(bytes) || self.make_room(bytes, reclaim)
    }

    /// Charges `bytes` until the returned charge is dropped.
    #[must_use = "dropping the charge refunds it"]
    pub(crate) fn charge(&self, bytes: usize) -> MemoryCharge {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        MemoryCharge { budget: self.clone(), bytes }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.limit()
    }

    /// Evicts the cheapest items everywhere before it evicts any that cost more.
    #[cold]
    fn make_room(&self, bytes: usize, reclaim: impl Fn(EvictionCost)) -> bool {
        let now = self.0.clock.now();
        if now.as_nanos() < self.0.next_try.load(Ordering::Relaxed) {
            return false;
        }
        let reclaimers = {
            let reclaimers = self.0.reclaimers.lock().unwrap_or_else(PoisonError::into_inner);
            reclaimers.0.clone()
        };
        for max_cost in [EvictionCost::None, EvictionCost::Learned] {
            reclaim(max_cost);
            if self.fits(bytes) {
                return true;
            }
            for reclaimer in &reclaimers {
                reclaimer.reclaim(max_cost);
                if self.fits(bytes) {
                    return true;
                }
            }
        }
        self.0.next_try.store(now.after(PAUSE).as_nanos(), Ordering::Relaxed);
        false
    }
}

/// Bytes charged to a budget. Dropping it refunds them.
#[derive(Debug)]
pub(crate) struct MemoryCharge {
    budget: MemoryBudget,
    bytes: usize,
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Charges with the cost of evicting them, and the number of reclaim calls.
    #[derive(Default)]
    struct Charges(Mutex<Vec<(EvictionCost, MemoryCharge)>>, AtomicUsize);

    impl Charges {
        fn reclaim(&self, max_cost: EvictionCost) {
            self.1.fetch_add(1, Ordering::Relaxed);
            let mut charges = self.0.lock().unwrap();
            if let Some(index) = charges.iter().position(|(cost, _)| *cost <= max_cost) {
                charges.remove(index);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cheapest_items_are_evicted_first_and_must_keep_items_never() {
        let budget = MemoryBudget::new(300);
        let charges = Arc::new(Charges::default());
        budget.register(&charges, Charges::reclaim);
        for cost in [EvictionCost::MustKeep, EvictionCost::Learned, EvictionCost::None] {
            assert!(budget.has_room(100));
            charges.0.lock().unwrap().push((cost, budget.charge(100)));
        }
        let left = || -> Vec<EvictionCost> {
            charges.0.lock().unwrap().iter().map(|(cost, _)| *cost).collect()
        };
        assert!(budget.has_room(100));
        assert_eq!(left(), [EvictionCost::MustKeep, EvictionCost::Learned]);
        assert!(budget.has_room(200));
        assert_eq!(left(), [EvictionCost::MustKeep]);
        assert!(!budget.has_room(201), "must-keep items are not evicted");
        let calls = charges.1.load(Ordering::Relaxed);
        assert!(!budget.has_room(201));
        assert_eq!(
            charges.1.load(Ordering::Relaxed),
            calls,
            "reclaiming pauses after it freed too little"
        );
        tokio::time::advance(PAUSE).await;
        assert!(!budget.has_room(201));
        assert!(charges.1.load(Ordering::Relaxed) > calls);
        budget.resize(1_000);
        assert!(budget.has_room(201));
    }
}
