//! The budget: what is charged to it, and how room is made.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidegate::clock::{Clock as _, TokioClock};

use super::Loss;

/// How long nobody is asked to make room after nobody could.
const PAUSE: Duration = Duration::from_millis(25);

/// Somebody who can forget things, for as long as it lives.
trait Reclaim: Send + Sync {
    fn is_alive(&self) -> bool;

    fn reclaim(&self, most: Loss);
}

struct Reclaimer<T> {
    owner: Weak<T>,
    reclaim: fn(&T, Loss),
}

impl<T: Send + Sync> Reclaim for Reclaimer<T> {
    fn is_alive(&self) -> bool {
        self.owner.strong_count() > 0
    }

    fn reclaim(&self, most: Loss) {
        if let Some(owner) = self.owner.upgrade() {
            (self.reclaim)(&owner, most);
        }
    }
}

/// A bound on memory. Cheap to clone; clones are the same budget.
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
    /// Before this time nobody is asked to make room, in nanoseconds.
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
    /// A budget of so many bytes.
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

    /// A budget that always has room.
    #[must_use]
    pub fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// Changes the number of bytes. What is charged beyond it goes as room is asked for.
    pub fn resize(&self, bytes: usize) {
        self.0.limit.store(bytes, Ordering::Relaxed);
        self.0.next_try.store(0, Ordering::Relaxed);
    }

    /// The number of bytes.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// How many bytes are charged.
    #[must_use]
    pub fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }

    /// Asks an owner of things for room from now on, for as long as it lives. `reclaim` forgets
    /// things that were used longest ago and whose loss is no more than what it is given. It looks at
    /// a bounded number of them, others each time.
    pub(crate) fn register<T: Send + Sync + 'static>(&self, owner: &Arc<T>, reclaim: fn(&T, Loss)) {
        let mut reclaimers = self.0.reclaimers.lock().unwrap_or_else(PoisonError::into_inner);
        reclaimers.0.retain(|known| known.is_alive());
        reclaimers.0.push(Arc::new(Reclaimer { owner: Arc::downgrade(owner), reclaim }));
    }

    /// Whether so many bytes more may be charged. If they may not, room is made where possible: no lock
    /// may be held that those take who [registered](Self::register).
    #[must_use]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.has_room_with(bytes, |_| {})
    }

    /// Whether there is room for so many bytes, for which `reclaim` forgets things first: those of a
    /// caller that is not registered.
    pub(crate) fn has_room_with(&self, bytes: usize, reclaim: impl Fn(Loss)) -> bool {
        self.fits(bytes) || self.make_room(bytes, reclaim)
    }

    /// Charges so many bytes, until what is returned is dropped.
    #[must_use = "the charge ends when it is dropped"]
    pub(crate) fn charge(&self, bytes: usize) -> MemoryShare {
        self.0.used.fetch_add(bytes, Ordering::Relaxed);
        MemoryShare { budget: self.clone(), bytes }
    }

    fn fits(&self, bytes: usize) -> bool {
        self.used().saturating_add(bytes) <= self.limit()
    }

    /// Asks all to forget what is of the least use, and then what is of more.
    #[cold]
    fn make_room(&self, bytes: usize, reclaim: impl Fn(Loss)) -> bool {
        let now = self.0.clock.now();
        if now.as_nanos() < self.0.next_try.load(Ordering::Relaxed) {
            return false;
        }
        let reclaimers = {
            let reclaimers = self.0.reclaimers.lock().unwrap_or_else(PoisonError::into_inner);
            reclaimers.0.clone()
        };
        for most in [Loss::Nothing, Loss::Learned] {
            reclaim(most);
            if self.fits(bytes) {
                return true;
            }
            for reclaimer in &reclaimers {
                reclaimer.reclaim(most);
                if self.fits(bytes) {
                    return true;
                }
            }
        }
        self.0.next_try.store(now.after(PAUSE).as_nanos(), Ordering::Relaxed);
        false
    }
}

/// Bytes that are charged to a budget, until it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryShare {
    budget: MemoryBudget,
    bytes: usize,
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        self.budget.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shares by what their loss is.
    #[derive(Default)]
    struct Shares(Mutex<Vec<(Loss, MemoryShare)>>, AtomicUsize);

    impl Shares {
        fn reclaim(&self, most: Loss) {
            self.1.fetch_add(1, Ordering::Relaxed);
            let mut shares = self.0.lock().unwrap();
            if let Some(index) = shares.iter().position(|(loss, _)| *loss <= most) {
                shares.remove(index);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_of_the_least_use_goes_first_and_debts_stay() {
        let budget = MemoryBudget::new(300);
        let shares = Arc::new(Shares::default());
        budget.register(&shares, Shares::reclaim);
        for loss in [Loss::Debt, Loss::Learned, Loss::Nothing] {
            assert!(budget.has_room(100));
            shares.0.lock().unwrap().push((loss, budget.charge(100)));
        }
        let left =
            || -> Vec<Loss> { shares.0.lock().unwrap().iter().map(|(loss, _)| *loss).collect() };
        assert!(budget.has_room(100));
        assert_eq!(left(), [Loss::Debt, Loss::Learned]);
        assert!(budget.has_room(200));
        assert_eq!(left(), [Loss::Debt]);
        assert!(!budget.has_room(201), "debts stay");
        let asked = shares.1.load(Ordering::Relaxed);
        assert!(!budget.has_room(201));
        assert_eq!(shares.1.load(Ordering::Relaxed), asked, "nobody is asked again at once");
        tokio::time::advance(PAUSE).await;
        assert!(!budget.has_room(201));
        assert!(shares.1.load(Ordering::Relaxed) > asked);
        budget.resize(1_000);
        assert!(budget.has_room(201));
    }
}
