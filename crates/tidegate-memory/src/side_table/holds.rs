//! Holds: keys that are closed until an instant.

use std::collections::BTreeMap;
use std::time::Duration;

use tidegate_core::Time;

/// Flag in the generation of a hold restored from a snapshot. No limit has such a generation.
pub(crate) const RESTORED: u32 = 1 << 31;

/// A key that is closed until an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) until: Time,
    /// When the bucket would be full again and the hold has no effect any more.
    pub(crate) lapses: Time,
    /// Generation of the policy under which the key was closed.
    pub(crate) generation: u32,
}

/// Holds by the hash of their key.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    keys: BTreeMap<u64, Hold>,
}

impl Holds {
    /// Size of one hold in the map, in bytes.
    pub(crate) const BYTES: usize = 80;

    pub(crate) fn get(&self, hash: u64) -> Option<Hold> {
        self.keys.get(&hash).copied()
    }

    /// Holds a key until `until`, or longer if it already is. `refill` is the time the bucket then
    /// takes to fill.
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

    /// Drops the hold of a key. Returns whether there was one.
    pub(crate) fn remove(&mut self, hash: u64) -> bool {
        self.keys.remove(&hash).is_some()
    }

    /// Drops holds that lapsed at least `idle` ago, and calls `on_removed` for each.
    pub(crate) fn expire(&mut self, idle: Duration, now: Time, mut on_removed: impl FnMut(u64)) {
        self.keys.retain(|hash, hold| {
            let kept = hold.lapses.after(idle) > now;
            if !kept {
                on_removed(*hash);
            }
            kept
        });
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, Hold)> + '_ {
        self.keys.iter().map(|(hash, hold)| (*hash, *hold))
    }

    /// Inserts a hold restored from a snapshot.
    pub(crate) fn insert(&mut self, hash: u64, hold: Hold) {
        self.keys.insert(hash, hold);
    }
}
