//! Where limits and queues are found again, for as long as somebody uses them.
//!
//! Plans may carry any constraint and keys may be users, so neither is cached for ever: what was
//! spent is in the store, and limits that are made again go on from there.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::pacer::Pacer;
use tidegate::{KeyBuf, MemoryStore};

use super::limits::Limits;
use crate::plan::Constraint;

/// How many constraints are cached, whether they are used or not. Beyond it there are only those in
/// use, which are no more than commands.
const MAX_IDLE: usize = 256;

/// Limits by constraint, and a queue for each key that somebody uses.
pub(super) struct LimiterCache {
    store: Arc<MemoryStore>,
    /// By the text of the constraint, which has everything that is in force.
    entries: Mutex<HashMap<Arc<str>, CachedLimits>>,
}

/// The limits of a constraint, and who waits for them.
struct CachedLimits {
    limits: Arc<Limits>,
    queues: HashMap<KeyBuf, Queue>,
}

struct Queue {
    pacer: Pacer,
    users: usize,
}

/// A queue in use; it is forgotten when nobody uses it. What was spent is cached by the store.
pub(super) struct QueueGuard {
    cache: Arc<LimiterCache>,
    constraint: Arc<str>,
    key: KeyBuf,
    pacer: Pacer,
    limits: Arc<Limits>,
}

impl LimiterCache {
    /// A cache for limits on this store.
    pub(super) fn new(store: Arc<MemoryStore>) -> Self {
        Self { store, entries: Mutex::default() }
    }

    /// The queue of a key under a constraint.
    pub(super) fn queue(self: &Arc<Self>, constraint: &Constraint, key: KeyBuf) -> QueueGuard {
        let text: Arc<str> = constraint.to_string().into();
        let mut entries = self.lock();
        // Past this size there is nothing idle to find, so the search stays a short one.
        if entries.len() == MAX_IDLE && !entries.contains_key(&text) {
            entries.retain(|_, cached| !cached.queues.is_empty());
        }
        let cached = entries.entry(text.clone()).or_insert_with(|| {
            let limits = Arc::new(Limits::new(&self.store, constraint));
            CachedLimits { limits, queues: HashMap::new() }
        });
        let limits = cached.limits.clone();
        let queue = cached
            .queues
            .entry(key.clone())
            .or_insert_with(|| Queue { pacer: limits.pacer(), users: 0 });
        queue.users += 1;
        let pacer = queue.pacer.clone();
        QueueGuard { cache: self.clone(), constraint: text, key, pacer, limits }
    }

    /// How many keys are in use.
    pub(super) fn keys(&self) -> usize {
        self.lock().values().map(|cached| cached.queues.len()).sum()
    }

    /// How many constraints are cached.
    fn constraints(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, CachedLimits>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LimiterCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterCache")
            .field("constraints", &self.constraints())
            .field("keys", &self.keys())
            .finish_non_exhaustive()
    }
}

impl QueueGuard {
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

impl Drop for QueueGuard {
    fn drop(&mut self) {
        let mut entries = self.cache.lock();
        let too_many = entries.len() > MAX_IDLE;
        let Some(cached) = entries.get_mut(&self.constraint) else { return };
        if let Some(queue) = cached.queues.get_mut(&self.key) {
            queue.users -= 1;
            if queue.users == 0 {
                cached.queues.remove(&self.key);
            }
        }
        if too_many && cached.queues.is_empty() {
            entries.remove(&self.constraint);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    fn queue(cache: &Arc<LimiterCache>, requests: usize) -> QueueGuard {
        let requests = u32::try_from(requests).ok().and_then(NonZeroU32::new);
        let constraint = Constraint::per_minute(requests.unwrap_or(NonZeroU32::MIN));
        cache.queue(&constraint, KeyBuf::from_parts(["key"]))
    }

    #[test]
    fn unused_constraints_are_evicted() {
        let cache = Arc::new(LimiterCache::new(Arc::default()));
        let held = queue(&cache, 1);
        for requests in 2..10 * MAX_IDLE {
            drop(queue(&cache, requests));
            assert!(cache.constraints() <= MAX_IDLE, "{requests}");
        }
        let again = queue(&cache, 1);
        assert!(Arc::ptr_eq(&held.limits, &again.limits), "what is in use stays");
        assert_eq!(cache.keys(), 1);
    }

    #[test]
    fn above_the_maximum_only_constraints_in_use_are_cached() {
        let cache = Arc::new(LimiterCache::new(Arc::default()));
        let mut held: Vec<_> = (1..=3 * MAX_IDLE).map(|n| queue(&cache, n)).collect();
        assert_eq!(cache.constraints(), held.len());
        let rest = held.split_off(2 * MAX_IDLE);
        drop(rest);
        assert_eq!(cache.constraints(), held.len());
        drop(held);
        assert_eq!(cache.constraints(), MAX_IDLE);
        assert_eq!(cache.keys(), 0);
    }
}
