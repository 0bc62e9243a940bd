//! A flat open-addressing table of 24-byte slots. No key is stored, only its 64-bit hash.
//!
//! Linear probing with backward-shift deletion: there are no tombstones, so a table that lives
//! for years probes as well as a new one. It never grows by itself; the shard decides that.

use tidegate_core::{Exact, State};

const GENERATION_BITS: u32 = 24;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;

/// What the table keeps for one bucket. A hash of zero marks a vacant slot.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Slot {
    hash: u64,
    word: u64,
    part: u32,
    /// Kind in the top 8 bits, generation in the rest.
    meta: u32,
}

impl Slot {
    /// The slot of a bucket in this state; `None` if the state needs no slot.
    pub(crate) fn new(hash: u64, state: State, generation: u32) -> Option<Self> {
        let (kind, word, part) = match state {
            State::Bucket(tat) => (0, tat.ns, tat.part),
            State::Quota { ends, used } => (1, used, ends),
            State::Allowance { used } => (2, used, 0),
            // Fresh is the absence of a slot; slots of a concurrency limit are leases.
            _ => return None,
        };
        let meta = (kind << GENERATION_BITS) | (generation & GENERATION_MASK);
        Some(Self { hash, word, part, meta })
    }

    pub(crate) fn state(&self) -> State {
        if self.hash == 0 {
            return State::Fresh;
        }
        match self.meta >> GENERATION_BITS {
            0 => State::Bucket(Exact { ns: self.word, part: self.part }),
            1 => State::Quota { ends: self.part, used: self.word },
            _ => State::Allowance { used: self.word },
        }
    }

    pub(crate) fn generation(&self) -> u32 {
        self.meta & GENERATION_MASK
    }
}

/// The slots of one shard.
#[derive(Debug, Default)]
pub(crate) struct Table {
    slots: Vec<Slot>,
    len: usize,
}

impl Table {
    /// Bytes that one slot takes.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many slots are allocated.
    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// How many of `slots` slots may be occupied, so that probes stay short.
    pub(crate) const fn load(slots: usize) -> usize {
        slots / 4 * 3
    }

    #[inline]
    pub(crate) fn get(&self, hash: u64) -> Option<&Slot> {
        if self.slots.is_empty() {
            return None;
        }
        let slot = &self.slots[self.find(hash)];
        (slot.hash == hash).then_some(slot)
    }

    /// The place and the arrival time of a token bucket under this generation.
    #[inline]
    pub(crate) fn bucket(&self, hash: u64, generation: u32) -> Option<(usize, Exact)> {
        if self.slots.is_empty() {
            return None;
        }
        let place = self.find(hash);
        let slot = self.slots.get(place)?;
        // The kind of a token bucket is zero, so this compares both.
        let known = slot.hash == hash && slot.meta == generation;
        known.then_some((place, Exact { ns: slot.word, part: slot.part }))
    }

    /// Writes the arrival time of a token bucket that is at this place.
    #[inline]
    pub(crate) fn set_bucket(&mut self, place: usize, tat: Exact) {
        if let Some(slot) = self.slots.get_mut(place) {
            (slot.word, slot.part) = (tat.ns, tat.part);
        }
    }

    /// Puts a slot in place of the one with its hash, or into a vacant place.
    ///
    /// The caller has made sure that there is room. If it has not, the table grows rather than
    /// lose its last vacant place, without which no probe would end.
    #[inline]
    pub(crate) fn put(&mut self, slot: Slot) {
        if self.len + 1 >= self.slots.len() {
            self.resize((self.slots.len() * 2).max(16));
        }
        let index = self.find(slot.hash);
        if self.slots[index].hash == 0 {
            self.len += 1;
        }
        self.slots[index] = slot;
    }

    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        if self.slots.is_empty() {
            return false;
        }
        let index = self.find(hash);
        if self.slots[index].hash != hash {
            return false;
        }
        self.vacate(index);
        true
    }

    /// Removes every slot that `stale` names.
    pub(crate) fn sweep(&mut self, mut stale: impl FnMut(&Slot) -> bool) -> usize {
        let before = self.len;
        let mut index = 0;
        while index < self.slots.len() {
            let slot = &self.slots[index];
            if slot.hash != 0 && stale(slot) {
                // Another slot may have moved in: look at this place again. One that wraps
                // around from the start of the table is looked at twice, which is harmless.
                self.vacate(index);
            } else {
                index += 1;
            }
        }
        before - self.len
    }

    /// Moves everything into `slots` slots: a power of two, or zero when the table is empty.
    pub(crate) fn resize(&mut self, slots: usize) {
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); slots]);
        for slot in old.into_iter().filter(|slot| slot.hash != 0) {
            let index = self.find(slot.hash);
            self.slots[index] = slot;
        }
    }

    /// The place of this hash, or the vacant place where it belongs. The load keeps one vacant.
    #[inline]
    fn find(&self, hash: u64) -> usize {
        let mut index = self.home(hash);
        while self.slots[index].hash != hash && self.slots[index].hash != 0 {
            index = self.next(index);
        }
        index
    }

    /// Empties a place and closes the gap, so that no probe ends too early.
    fn vacate(&mut self, index: usize) {
        let mut gap = index;
        let mut index = self.next(gap);
        while self.slots[index].hash != 0 {
            let home = self.home(self.slots[index].hash);
            // How far each place lies behind the home of the slot, around the end.
            let mask = self.slots.len() - 1;
            if (gap.wrapping_sub(home) & mask) < (index.wrapping_sub(home) & mask) {
                self.slots[gap] = self.slots[index];
                gap = index;
            }
            index = self.next(index);
        }
        self.slots[gap] = Slot::default();
        self.len -= 1;
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "only the low bits are used")]
    fn home(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn next(&self, index: usize) -> usize {
        (index + 1) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
#[cfg(not(any(loom, shuttle)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn slot(hash: u64, used: u64) -> Slot {
        Slot::new(hash, State::Allowance { used }, 3).unwrap()
    }

    #[derive(Clone, Debug)]
    enum Step {
        Put(u64, u64),
        Remove(u64),
        Sweep(u64),
        Double,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        // Few different hashes that crowd around few homes, so that runs collide and wrap.
        let hash = (0_u64..8, 1_u64..6).prop_map(|(home, turn)| home * 2 + 1 + turn * 64);
        let step = prop_oneof![
            6 => (hash.clone(), 1_u64..100).prop_map(|(hash, used)| Step::Put(hash, used)),
            3 => hash.prop_map(Step::Remove),
            1 => (1_u64..100).prop_map(Step::Sweep),
            1 => Just(Step::Double),
        ];
        prop::collection::vec(step, 1..120)
    }

    proptest! {
        #[test]
        fn the_table_is_a_map(steps in steps()) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            table.resize(64);
            for step in steps {
                match step {
                    Step::Put(hash, used) => {
                        table.put(slot(hash, used));
                        map.insert(hash, used);
                    }
                    Step::Remove(hash) => {
                        prop_assert_eq!(table.remove(hash), map.remove(&hash).is_some());
                    }
                    Step::Sweep(below) => {
                        table.sweep(|slot| slot.word < below);
                        map.retain(|_, used| *used >= below);
                    }
                    Step::Double => table.resize((table.slots() * 2).min(1_024)),
                }
                prop_assert_eq!(table.len(), map.len());
                for (hash, used) in &map {
                    let found = table.get(*hash).map(Slot::state);
                    prop_assert_eq!(found, Some(State::Allowance { used: *used }));
                }
            }
        }
    }

    #[test]
    fn a_table_without_room_grows_rather_than_hangs() {
        let mut table = Table::default();
        for hash in 1..=100 {
            table.put(slot(hash, 1));
        }
        assert_eq!(table.len(), 100);
        assert!(table.get(101).is_none());
    }

    #[test]
    fn every_kind_of_state_fits_a_slot_of_24_bytes() {
        assert_eq!(Table::SLOT_BYTES, 24);
        for state in [
            State::Bucket(Exact { ns: 5, part: 6 }),
            State::Quota { ends: 7, used: 8 },
            State::Allowance { used: 9 },
        ] {
            let slot = Slot::new(1, state, 12_345).unwrap();
            assert_eq!((slot.state(), slot.generation()), (state, 12_345));
        }
        assert!(Slot::new(1, State::Fresh, 0).is_none());
    }
}
