//! Shared buckets for keys that do not fit into the table.
//!
//! When a segment is full of keys in debt, a new key is decided on one of 4,096 buckets of its
//! limit, selected by its hash, under the limit's own policy. A flood of new keys then neither
//! grows memory nor evicts a key in debt. An innocent new key shares its bucket with a few keys of
//! the flood.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_core::{Limit, Now, State};

use crate::sync::{Mutex, MutexGuard, lock};
use crate::table::cell::{Cell, Fingerprint};

/// Number of shared buckets per limit.
const BUCKETS: usize = 4_096;

/// Shared buckets of every limit that has overflowed.
#[derive(Debug)]
pub(crate) struct SharedBuckets {
    sets: Mutex<SharedSets>,
}

/// Sets of shared buckets, by the identity of their limit. Locked from reading a bucket to writing
/// it, since keys of different segments share it.
#[derive(Debug, Default)]
pub(crate) struct SharedSets {
    by_limit: BTreeMap<Arc<str>, Box<[Cell]>>,
    /// Maximum number of sets.
    max_sets: usize,
    /// Maximum number of sets for inline limits, so that callers cannot use up those of configured
    /// limits.
    max_inline_sets: usize,
    /// Limits whose buckets the current operation has read. Their sets are kept until it is done.
    pinned: Vec<Arc<str>>,
}

impl SharedBuckets {
    /// Size of the set of one limit, in bytes.
    pub(crate) const SET_BYTES: usize = BUCKETS * size_of::<Cell>();

    pub(crate) fn new(max_sets: usize) -> Self {
        let sets = SharedSets { max_sets, max_inline_sets: max_sets / 2, ..SharedSets::default() };
        Self { sets: Mutex::new(sets) }
    }

    /// Locks the sets for one operation. Always after the locks of lines and of the side table.
    pub(crate) fn lock(&self) -> MutexGuard<'_, SharedSets> {
        let mut sets = lock(&self.sets);
        sets.pinned.clear();
        sets
    }

    /// Frees sets in which every bucket is full again.
    pub(crate) fn clean(&self, now: Now) {
        self.lock().drop_fresh(now);
    }

    pub(crate) fn clear(&self) {
        self.lock().by_limit.clear();
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lock().by_limit.len() * Self::SET_BYTES
    }
}

/// Fingerprint in the cell of a shared bucket. Arbitrary, since many keys share it.
const SHARED_FINGERPRINT: Fingerprint = Fingerprint::from_hash(0);

impl SharedSets {
    /// Returns the shared bucket of a key, creating the set of its limit if necessary. `None` if
    /// there is no memory left for it.
    pub(crate) fn open(&mut self, limit: &Limit, hash: u64, now: Now) -> Option<Cell> {
        if !self.by_limit.contains_key(limit.identity()) {
            if !self.has_room_for(limit.identity()) {
                self.drop_fresh(now);
            }
            if !self.has_room_for(limit.identity()) {
                return None;
            }
            self.by_limit.insert(limit.shared_identity(), empty_set());
        }
        self.get(limit, hash)
    }

    fn has_room_for(&self, identity: &str) -> bool {
        // The identity of an inline limit is a fingerprint, which contains spaces; a name does not.
        let inline = || self.by_limit.keys().filter(|limit| limit.contains(' ')).count();
        self.by_limit.len() < self.max_sets
            && (!identity.contains(' ') || inline() < self.max_inline_sets)
    }

    /// Returns the limits that have shared buckets.
    pub(crate) fn limits(&self) -> impl Iterator<Item = Arc<str>> + '_ {
        self.by_limit.keys().cloned()
    }

    /// Returns all shared buckets of a limit.
    pub(crate) fn cells(&self, identity: &str) -> Vec<Cell> {
        self.by_limit.get(identity).map_or_else(Vec::new, |set| set.to_vec())
    }

    /// Restores a shared bucket from a snapshot. Returns whether there is memory for it.
    pub(crate) fn restore(
        &mut self,
        identity: &str,
        bucket: u16,
        state: State,
        generation: u32,
    ) -> bool {
        if !self.by_limit.contains_key(identity) {
            if !self.has_room_for(identity) {
                return false;
            }
            self.by_limit.insert(identity.into(), empty_set());
        }
        let set = self.by_limit.get_mut(identity);
        let Some(cell) = set.and_then(|set| set.get_mut(usize::from(bucket))) else {
            return false;
        };
        *cell = Cell::new(SHARED_FINGERPRINT, state, generation)
            .map(Cell::restored)
            .unwrap_or_default();
        true
    }

    /// Returns the shared bucket of a key, if its limit has a set.
    pub(crate) fn get(&mut self, limit: &Limit, hash: u64) -> Option<Cell> {
        let cell = self.by_limit.get(limit.identity())?[shared_bucket_index(hash)];
        self.pinned.push(limit.shared_identity());
        Some(cell)
    }

    /// Writes the shared bucket of a key, which the operation has read before.
    pub(crate) fn write(&mut self, limit: &Limit, hash: u64, state: State) {
        if let Some(set) = self.by_limit.get_mut(limit.identity()) {
            set[shared_bucket_index(hash)] =
                Cell::new(SHARED_FINGERPRINT, state, limit.generation()).unwrap_or_default();
        }
    }

    fn drop_fresh(&mut self, now: Now) {
        let Self { by_limit, pinned, .. } = self;
        by_limit.retain(|limit, set| {
            pinned.contains(limit) || set.iter().any(|cell| !cell.state().is_fresh(now))
        });
    }
}

fn empty_set() -> Box<[Cell]> {
    vec![Cell::default(); BUCKETS].into_boxed_slice()
}

/// Returns the index of the shared bucket for a hash.
pub(crate) const fn shared_bucket_index(hash: u64) -> usize {
    // Not only the low bits, which select the cell in the table.
    (hash >> 20) as usize % BUCKETS
}
