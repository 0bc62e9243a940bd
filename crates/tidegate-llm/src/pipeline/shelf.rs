//! Where limits and queues are found again, for as long as somebody uses them.
//!
//! Plans may carry any constraint and keys may be users, so neither is kept for ever: what was
//! spent is in the store, and limits that are made again go on from there.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::pacer::Pacer;
use tidegate::{KeyBuf, MemoryStore};

use super::limits::Limits;
use crate::plan::Constraint;

/// How many constraints are kept, whether they are used or not. Beyond it there are only those in
/// use, which are no more than commands.
const MOST_IDLE: usize = 256;

/// Limits by constraint, and a queue for each key that somebody uses.
pub(super) struct Shelf {
    store: Arc<MemoryStore>,
    /// By the text of the constraint, which has everything that is in force.
    kept: Mutex<HashMap<Arc<str>, Kept>>,
}

/// The limits of a constraint, and who waits for them.
struct Kept {
    limits: Arc<Limits>,
    queues: HashMap<KeyBuf, Queue>,
}

struct Queue {
    pacer: Pacer,
    users: usize,
}

/// A queue in use; it is forgotten when nobody uses it. What was spent is kept by the store.
pub(super) struct InUse {
    shelf: Arc<Shelf>,
    constraint: Arc<str>,
    key: KeyBuf,
    pacer: Pacer,
    limits: Arc<Limits>,
}

impl Shelf {
    /// A shelf for limits on this store.
    pub(super) fn new(store: Arc<MemoryStore>) -> Self {
        Self { store, kept: Mutex::default() }
    }

    /// The queue of a key under a constraint.
    pub(super) fn queue(self: &Arc<Self>, constraint: &Constraint, key: KeyBuf) -> InUse {
        let text: Arc<str> = constraint.to_string().into();
        let mut all = self.lock();
        // Past this size there is nothing idle to find, so the search stays a short one.
        if all.len() == MOST_IDLE && !all.contains_key(&text) {
            all.retain(|_, kept| !kept.queues.is_empty());
        }
        let kept = all.entry(text.clone()).or_insert_with(|| {
            let limits = Arc::new(Limits::new(&self.store, constraint));
            Kept { limits, queues: HashMap::new() }
        });
        let limits = kept.limits.clone();
        let queue = kept
            .queues
            .entry(key.clone())
            .or_insert_with(|| Queue { pacer: limits.pacer(), users: 0 });
        queue.users += 1;
        let pacer = queue.pacer.clone();
        InUse { shelf: self.clone(), constraint: text, key, pacer, limits }
    }

    /// How many keys are in use.
    pub(super) fn keys(&self) -> usize {
        self.lock().values().map(|kept| kept.queues.len()).sum()
    }

    /// How many constraints are kept.
    fn constraints(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf")
            .field("constraints", &self.constraints())
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

impl InUse {
    pub(super) const fn key(&self) -> &KeyBuf {
        &self.key
    }

    pub(super) const fn pacer(&self) -> &Pacer {
        &self.pacer
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let mut all = self.shelf.lock();
        let too_many = all.len() > MOST_IDLE;
        let Some(kept) = all.get_mut(&self.constraint) else { return };
        if let Some(queue) = kept.queues.get_mut(&self.key) {
            queue.users -= 1;
            if queue.users == 0 {
                kept.queues.remove(&self.key);
            }
        }
        if too_many && kept.queues.is_empty() {
            all.remove(&self.constraint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn queue(shelf: &Arc<Shelf>, requests: usize) -> InUse {
        let requests = u32::try_from(requests).ok().and_then(NonZeroU32::new);
        let constraint = Constraint::per_minute(requests.unwrap_or(NonZeroU32::MIN));
        shelf.queue(&constraint, KeyBuf::from_parts(["key"]))
    }

    #[test]
    fn constraints_that_nobody_uses_are_forgotten() {
        let shelf = Arc::new(Shelf::new(Arc::default()));
        let held = queue(&shelf, 1);
        for requests in 2..10 * MOST_IDLE {
            drop(queue(&shelf, requests));
            assert!(shelf.constraints() <= MOST_IDLE, "{requests}");
        }
        let again = queue(&shelf, 1);
        assert!(Arc::ptr_eq(&held.limits, &again.limits), "what is in use stays");
        assert_eq!(shelf.keys(), 1);
    }

    #[test]
    fn of_more_than_are_kept_only_those_in_use_are() {
        let shelf = Arc::new(Shelf::new(Arc::default()));
        let mut held: Vec<_> = (1..=3 * MOST_IDLE).map(|n| queue(&shelf, n)).collect();
        assert_eq!(shelf.constraints(), held.len());
        let rest = held.split_off(2 * MOST_IDLE);
        drop(rest);
        assert_eq!(shelf.constraints(), held.len());
        drop(held);
        assert_eq!(shelf.constraints(), MOST_IDLE);
        assert_eq!(shelf.keys(), 0);
    }
}
