//! A map that forgets what was not used of late, a bounded number of looks at a time.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::sync::atomic::{AtomicBool, Ordering};

/// Values by key, in the order in which they are looked at when some have to go. One that was used
/// since the last look has a second chance, so that what goes was not used for the longest time or
/// nearly so. Neither a use nor a look costs more with more values.
#[derive(Debug)]
pub(crate) struct SecondChance<K, V> {
    values: HashMap<K, Slot<V>>,
    order: BTreeMap<u64, K>,
    next_number: u64,
}

#[derive(Debug)]
struct Slot<V> {
    value: V,
    number: u64,
    is_used: AtomicBool,
}

impl<K, V> Default for SecondChance<K, V> {
    fn default() -> Self {
        Self { values: HashMap::new(), order: BTreeMap::new(), next_number: 0 }
    }
}

impl<K: Clone + Eq + Hash, V> SecondChance<K, V> {
    /// The value of a key, which is used by that.
    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let slot = self.values.get(key)?;
        slot.is_used.store(true, Ordering::Relaxed);
        Some(&slot.value)
    }

    /// Sets the value of a key.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        let number = self.take_number();
        self.order.insert(number, key.clone());
        self.values.insert(key, Slot { value, number, is_used: AtomicBool::new(false) });
    }

    /// Takes a key out.
    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ?Sized,
    {
        let slot = self.values.remove(key)?;
        self.order.remove(&slot.number);
        Some(slot.value)
    }

    /// Takes everything out.
    pub(crate) fn clear(&mut self) {
        self.values.clear();
        self.order.clear();
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    /// All of them, which uses none.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.values.iter().map(|(key, slot)| (key, &slot.value))
    }

    /// Looks at so many that were not looked at for the longest time, and takes those out that may go.
    /// `may_go` gets the key, the value and whether it was used since the last look.
    pub(crate) fn release(
        &mut self,
        looks: usize,
        mut may_go: impl FnMut(&K, &V, bool) -> bool,
    ) -> Vec<(K, V)> {
        let mut released = Vec::new();
        for _ in 0..looks.min(self.values.len()) {
            let Some((_, key)) = self.order.pop_first() else { break };
            let number = self.take_number();
            let Some(slot) = self.values.get_mut(&key) else { continue };
            slot.number = number;
            let is_used = std::mem::take(slot.is_used.get_mut());
            let goes = may_go(&key, &slot.value, is_used);
            self.order.insert(number, key.clone());
            if goes && let Some(value) = self.remove(&key) {
                released.push((key, value));
            }
        }
        released
    }

    fn take_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_of_late_has_a_second_chance() {
        let mut map = SecondChance::default();
        (0..10).for_each(|number| map.insert(number, ()));
        map.get(&0);
        let released = |map: &mut SecondChance<u32, ()>, looks, even| -> Vec<u32> {
            let may_go =
                |number: &u32, (): &(), is_used: bool| !is_used && number.is_multiple_of(2) == even;
            let released = map.release(looks, may_go);
            released.into_iter().map(|(number, ())| number).collect()
        };
        assert_eq!(released(&mut map, 5, true), [2, 4], "0 was used, 1 and 3 may not go");
        assert_eq!(released(&mut map, 5, true), [6, 8]);
        assert_eq!(released(&mut map, 5, true), [0], "now it goes");
        assert_eq!(released(&mut map, 100, false).len(), 5);
        assert!(map.len() == 0 && map.order.is_empty());
    }

    #[test]
    fn a_key_that_comes_and_goes_leaves_nothing() {
        let mut map = SecondChance::default();
        for _ in 0..1_000 {
            map.insert("key", 1);
            map.insert("key", 2);
            assert_eq!(map.remove("key"), Some(2));
        }
        assert!(map.order.is_empty());
    }
}
