//! Cache of the limits of keys.
//!
//! Keys may be users, so their limits are not kept forever. What was spent is in the store; the
//! cache knows under which policies. Limits are evicted once nothing is lost with them, or when
//! there are too many: then a key may get a full burst under another constraint than before.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate::{KeyBuf, MemoryStore};
use tidegate_core::Time;

use super::key_limits::KeyLimits;
use crate::memory::SecondChanceMap;
use crate::plan::Constraint;

/// Maximum number of keys cached while unused. Above it, the least recently used ones are evicted
/// even if their buckets are not full: such a key finds its buckets again if it comes back with the
/// constraint that it first came with, and has full ones under another.
const MAX_IDLE: usize = 16_384;
/// Keys examined for eviction when one is added: two, so that those that can be evicted are found
/// sooner than others are added; more above the maximum, until one is evicted.
const EXAMINED: usize = 2;
const EXAMINED_ABOVE_MAX: usize = 64;

/// Limits by key.
pub(super) struct LimiterCache {
    store: Arc<MemoryStore>,
    /// Limits in use have more than one reference. New references are made under the lock.
    keys: Mutex<SecondChanceMap<KeyBuf, Arc<KeyLimits>>>,
}

impl LimiterCache {
    pub(super) fn new(store: Arc<MemoryStore>) -> Self {
        Self { store, keys: Mutex::default() }
    }

    /// Returns the limits of a key, and creates them for its first constraint if necessary. They
    /// are in use until the result is dropped.
    pub(super) fn limits(&self, key: KeyBuf, constraint: &Constraint) -> Arc<KeyLimits> {
        let mut keys = self.lock();
        if let Some(known) = keys.get(&key) {
            return known.clone();
        }
        let is_idle = |limits: &Arc<KeyLimits>| Arc::strong_count(limits) == 1;
        let now = self.now();
        let mut evicted =
            keys.evict(EXAMINED, |_, limits, _| is_idle(limits) && limits.is_forgettable(now));
        let mut has_room = keys.len() < MAX_IDLE;
        if !has_room {
            evicted.extend(keys.evict(EXAMINED_ABOVE_MAX, |_, limits, is_used| {
                let is_evicted = !has_room && !is_used && is_idle(limits);
                has_room |= is_evicted;
                is_evicted
            }));
        }
        let limits = Arc::new(KeyLimits::new(&self.store, key.clone(), constraint));
        keys.insert(key, limits.clone());
        drop(keys);
        evicted.iter().for_each(|(_, limits)| limits.forget(&self.store));
        limits
    }

    /// Returns the number of keys in use.
    pub(super) fn keys_in_use(&self) -> usize {
        self.lock().iter().filter(|(_, limits)| Arc::strong_count(limits) > 1).count()
    }

    /// Returns the time of the store.
    pub(super) fn now(&self) -> Time {
        self.store.now()
    }

    fn lock(&self) -> MutexGuard<'_, SecondChanceMap<KeyBuf, Arc<KeyLimits>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for LimiterCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One after the other: both take the lock.
        let keys = self.lock().len();
        let in_use = self.keys_in_use();
        f.debug_struct("LimiterCache")
            .field("keys", &keys)
            .field("keys_in_use", &in_use)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use tidegate::clock::ManualClock;

    use super::*;
    use crate::plan::Plan;

    /// A cache on a clock, and a constraint of one request per second.
    fn cache() -> (LimiterCache, ManualClock, Constraint) {
        let clock = ManualClock::new();
        let store = MemoryStore::builder().clock(clock.clone()).build().unwrap();
        let constraint = Constraint::per_minute(NonZeroU32::new(60).unwrap());
        (LimiterCache::new(Arc::new(store)), clock, constraint)
    }

    /// Takes a permit for a key, which is in use until the result is dropped.
    fn take(cache: &LimiterCache, key: usize, constraint: &Constraint) -> Arc<KeyLimits> {
        let limits = cache.limits(KeyBuf::from_parts([key.to_string().as_str()]), constraint);
        let (acquire, _) = limits.acquire(constraint, &Plan::default());
        drop(acquire.now().unwrap());
        limits.granted(cache.now());
        limits
    }

    fn cached(cache: &LimiterCache) -> usize {
        cache.lock().len()
    }

    #[test]
    fn idle_keys_with_full_buckets_are_evicted() {
        let (cache, clock, constraint) = cache();
        let held = take(&cache, 0, &constraint);
        (1..=100).for_each(|key| drop(take(&cache, key, &constraint)));
        assert_eq!((cached(&cache), cache.keys_in_use()), (101, 1), "no bucket is full again");
        clock.advance(Duration::from_secs(1));
        (101..=200).for_each(|key| drop(take(&cache, key, &constraint)));
        assert_eq!(cached(&cache), 101, "two of the first hundred are examined for each new key");
        assert!(Arc::ptr_eq(&held, &take(&cache, 0, &constraint)), "a key in use is not evicted");
    }

    /// A large slow bucket is remembered for as long as it takes to refill, also while the key has
    /// a small fast one that is full.
    #[test]
    fn key_is_kept_until_its_largest_bucket_would_be_full() {
        let (cache, clock, fast) = cache();
        let slow = fast.clone().with_burst(NonZeroU32::new(10).unwrap());
        drop(take(&cache, 0, &slow));
        let limits = take(&cache, 0, &fast);
        clock.advance(Duration::from_secs(9));
        assert!(!limits.is_forgettable(cache.now()));
        clock.advance(Duration::from_secs(1));
        assert!(limits.is_forgettable(cache.now()));
    }

    #[test]
    fn number_of_idle_keys_is_bounded() {
        let (cache, _clock, constraint) = cache();
        for key in 0..MAX_IDLE + 1_000 {
            drop(take(&cache, key, &constraint));
        }
        assert_eq!(cached(&cache), MAX_IDLE);
        let again = cache.limits(KeyBuf::from_parts(["0"]), &constraint);
        let (acquire, _) = again.acquire(&constraint, &Plan::default());
        assert!(acquire.now().is_err(), "an evicted key finds its bucket again");
        let other = constraint.with_burst(NonZeroU32::new(2).unwrap());
        let name = |key: usize| KeyBuf::from_parts([key.to_string().as_str()]);
        let is_cached = |key: &usize| cache.lock().iter().any(|(known, _)| *known == name(*key));
        let evicted = (0..MAX_IDLE).find(|key| !is_cached(key)).unwrap();
        let changed = cache.limits(name(evicted), &other);
        let (acquire, _) = changed.acquire(&other, &Plan::default());
        assert!(acquire.now().is_ok(), "documented: it has a full one under another constraint");
    }
}
