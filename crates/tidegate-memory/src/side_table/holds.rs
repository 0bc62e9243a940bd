//! Keys that are closed for a time.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::Time;

/// Marks the generation of a hold as a number of an earlier process: no limit has such a generation.
pub(crate) const RESTORED: u32 = 1 << 31;

/// A key that is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) until: Time,
    /// When the bucket would be full again: the hold has no effect any more.
    pub(crate) lapses: Time,
    /// The policy under which the key was closed.
    pub(crate) generation: u32,
}

/// The holds of some keys, by their hash.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    keys: BTreeMap<u64, Hold>,
}

impl Holds {
    /// Bytes that one hold takes in its map.
    pub(crate) const BYTES: usize = 80;

    pub(crate) fn get(&self, hash: u64) -> Option<Hold> {
        self.keys.get(&hash).copied()
    }

    /// Holds a key until `until`, and not shorter than it is held_keys already. `refill` is the time it
    /// then takes to fill.
    pub(crate) fn put(
        &mut self,
        hash: u64,
        until: Time,
        refill: Duration,
        generation: u32,
    ) -> Time {
        let new = Hold { until, lapses: Time::ZERO, generation };
        let hold = self.keys.entry(hash).or_insert(new);
        hold.until = hold.until.max(until);
        hold.lapses = hold.until.after(refill);
        hold.generation = generation;
        hold.until
    }

    /// Forgets the hold of a key; says whether there was one.
    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        self.keys.remove(&hash).is_some()
    }

    /// Forgets those that lapsed before `idle`, and tells of each.
    pub(crate) fn expire(&mut self, idle: Duration, now: Time, mut gone: impl FnMut(u64)) {
        self.keys.retain(|hash, hold| {
            let kept = hold.lapses.after(idle) > now;
            if !kept {
                gone(*hash);
            }
            kept
        });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Hold)> + '_ {
        self.keys.iter().map(|(hash, hold)| (*hash, *hold))
    }

    /// Puts a hold of an earlier process in.
    pub(crate) fn insert(&mut self, hash: u64, hold: Hold) {
        self.keys.insert(hash, hold);
    }
}
