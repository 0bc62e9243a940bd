//! A map with second-chance ("clock") eviction.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

/// Map whose entries are examined for eviction in turn. An entry used since it was last examined
/// gets a second chance, so evicted entries are roughly the least recently used ones. The cost of a
/// lookup does not depend on the number of entries.
#[derive(Debug)]
pub(crate) struct SecondChanceMap<K, V> {
    values: HashMap<K, Entry<V>>,
    order: BTreeMap<u64, K>,
    last_sequence: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    sequence: u64,
    is_used: AtomicBool,
}

impl<K, V> Default for SecondChanceMap<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: BTreeMap::new(), last_sequence: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> SecondChanceMap<K, V> {
    /// Returns the value of `key` and marks it as used.
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.values.get(key)?;
        entry.is_used.store(true, Ordering::Relaxed);
        Some(&entry.value)
    }

    /// Inserts a value. It replaces that of the same key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        let sequence = self.next_sequence();
        self.order.insert(sequence, key.clone());
        self.values.insert(key, Entry { value, sequence, is_used: AtomicBool::new(false) });
    }

    /// Removes `key` and returns its value.
    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let entry = self.values.remove(key)?;
        self.order.remove(&entry.sequence);
        Some(entry.value)
    }

    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.order.clear();
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// Iterates over all entries without marking them as used.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().map(|(key, entry)| (key, &entry.value))
    }

    /// Examines up to `max_examined` entries, longest unexamined first, and removes and returns
    /// those that `may_evict` accepts. It receives the key, the value and whether the entry was
    /// used since it was last examined.
    pub(crate) fn evict(
        &mut self,
        max_examined: usize,
        mut may_evict: impl FnMut(&K, &V, bool) -> bool,
    ) -> Vec<(K, V)> {
        let mut evicted = Vec::new();
        for _ in 0..max_examined.min(self.values.len()) {
            let Some((_, key)) = self.order.pop_first() else { break };
            let sequence = self.next_sequence();
            let Some(entry) = self.values.get_mut(&key) else { continue };
            entry.sequence = sequence;
            let is_used = std::mem::take(entry.is_used.get_mut());
            let is_evicted = may_evict(&key, &entry.value, is_used);
            self.order.insert(sequence, key.clone());
            if is_evicted && let Some(value) = self.remove(&key) {
                evicted.push((key, value));
            }
        }
        evicted
    }

    fn next_sequence(&mut self) -> u64 {
        self.last_sequence += 1;
        self.last_sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recently_used_entry_gets_a_second_chance() {
        let mut map = SecondChanceMap::default();
        (0..10).for_each(|number| map.insert(number, ()));
        map.get(&0);
        let evicted = |map: &mut SecondChanceMap<u32, ()>, max_examined, even| -> Vec<u32> {
            let may_evict =
                |number: &u32, (): &(), is_used: bool| !is_used && number.is_multiple_of(2) == even;
            let evicted = map.evict(max_examined, may_evict);
            evicted.into_iter().map(|(number, ())| number).collect()
        };
        assert_eq!(evicted(&mut map, 5, true), [2, 4], "0 was used, 1 and 3 may not be evicted");
        assert_eq!(evicted(&mut map, 5, true), [6, 8]);
        assert_eq!(evicted(&mut map, 5, true), [0], "now it is evicted");
        assert_eq!(evicted(&mut map, 100, false).len(), 5);
        assert!(map.len() == 0 && map.order.is_empty());
    }

    #[test]
    fn removed_key_leaves_nothing_behind() {
        let mut map = SecondChanceMap::default();
        for _ in 0..1_000 {
            map.insert("key", 1);
            map.insert("key", 2);
            assert_eq!(map.remove("key"), Some(2));
        }
        assert!(map.order.is_empty());
    }
}
