//! Cache of limiters by constraint, and of queues by key while they are in use.
//!
//! Plans may carry any constraint and keys may be users, so neither is kept forever. The store
//! keeps what was spent, and limiters that are created again continue from there.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::pacer::Pacer;
use tidegate::{KeyBuf, MemoryStore};

use super::limits::Limits;
use crate::plan::Constraint;

/// Maximum number of constraints cached while unused. Above it, only constraints in use are cached,
/// at most one per command.
const MAX_IDLE: usize = 256;

/// Limiters by constraint, with a queue for each key in use.
pub(super) struct LimiterCache {
    store: Arc<MemoryStore>,
    /// Keyed by the text of the constraint, which contains all its limits.
    entries: Mutex<HashMap<Arc<str>, CachedLimits>>,
}

/// Limiters of a constraint, with the queues in use.
struct CachedLimits {
    limits: Arc<Limits>,
    queues: HashMap<KeyBuf, Queue>,
}

struct Queue {
    pacer: Pacer,
    users: usize,
}

/// Use of a queue. The queue is removed with its last guard; the store keeps what was spent.
pub(super) struct QueueGuard {
    cache: Arc<LimiterCache>,
    constraint: Arc<str>,
    key: KeyBuf,
    pacer: Pacer,
    limits: Arc<Limits>,
}

impl LimiterCache {
    pub(super) fn new(store: Arc<MemoryStore>) -> Self {
        Self { store, entries: Mutex::default() }
    }

    /// Returns the queue of a key under a constraint, and creates it if necessary.
    pub(super) fn queue(self: &Arc<Self>, constraint: &Constraint, key: KeyBuf) -> QueueGuard {
        let text: Arc<str> = constraint.to_string().into();
        let mut entries = self.lock();
        // Above this size no unused entries remain, so the scan stays short.
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

    /// Returns the number of keys in use.
    pub(super) fn keys(&self) -> usize {
        self.lock().values().map(|cached| cached.queues.len()).sum()
    }

    /// Returns the number of constraints cached.
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
        assert!(Arc::ptr_eq(&held.limits, &again.limits), "an entry in use is not evicted");
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
