//! The values that were asked for lately, and no more than a bound of them.
//!
//! There are two generations. What is asked for is in the younger one; when that is full it becomes
//! the older one, and what nobody asked for since the last time is forgotten. So no request costs
//! more than another, and a flood of new keys does not take more room.

use std::collections::HashMap;
use std::hash::Hash;
use std::mem;

#[derive(Debug)]
pub(crate) struct Recent<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    /// The most of one generation.
    most: usize,
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    /// Remembers the last `most` keys, and at most twice as many.
    pub(crate) fn new(most: usize) -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), most }
    }

    /// The value of a key, made if it is not known any more.
    pub(crate) fn get(&mut self, key: &K, make: impl FnOnce() -> V) -> V {
        if let Some(value) = self.young.get(key) {
            return value.clone();
        }
        let value = self.old.remove(key).unwrap_or_else(make);
        if self.young.len() >= self.most {
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
    fn what_is_asked_for_stays_and_a_flood_takes_no_more_room() {
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
