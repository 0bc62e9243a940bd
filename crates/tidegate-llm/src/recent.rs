//! A cache of recently used values with a bounded size.
//!
//! Values live in one of two generations. A lookup moves its value to the young one. When that is
//! full it becomes the old one, and values not used since are dropped. Every lookup therefore costs
//! the same, and a flood of new keys cannot grow the cache.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// Maximum size of one generation.
    capacity: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    /// Creates a cache that keeps at least the last `capacity` keys and at most twice as many.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), capacity }
    }

    /// Returns the value of `key`, created by `make` if it is not cached.
    pub(crate) fn get(&mut self, key: &K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.young.get(key) {
            return value.clone();
        }
        let value = self.old.remove(key).unwrap_or_else(make);
        if self.young.len() >= self.capacity {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(key.clone(), value.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_values_stay_cached_and_a_flood_does_not_grow_the_cache() {
        let mut recent = Recent::new(10);
        assert_eq!(recent.get(&0, || "kept"), "kept");
        for key in 1..10_000 {
            recent.get(&key, || "flood");
            assert!(recent.young.len() + recent.old.len() <= 20);
            if key % 9 == 0 {
                assert_eq!(recent.get(&0, || "forgotten"), "kept");
            }
        }
        assert_eq!(recent.get(&1, || "made anew"), "made anew");
    }
}
