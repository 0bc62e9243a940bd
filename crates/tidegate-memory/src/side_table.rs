//! Side table for holds and for the leases of concurrency limits.
//!
//! Few keys have either. A counting filter shows quickly that a key is not held, so that most
//! decisions access only the main table. A hold is set under the lock of the key's home line, and
//! decisions read the filter under that lock. Holds that no longer affect
//! decisions may be dropped at any time.

pub(crate) mod holds;
pub(crate) mod leases;

use std::time::Duration;

use tidegate_core::Time;

use crate::side_table::holds::{Hold, Holds};
use crate::side_table::leases::{LeaseBudget, Leases};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

/// Number of shards, each with its own lock.
const SHARDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// Number of counters in the filter.
const COUNTERS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1_024 };

/// Holds and leases, sharded by key.
#[derive(Debug)]
pub(crate) struct SideTable {
    shards: Box<[CachePadded<Mutex<SideShard>>]>,
    max_holds: usize,
    /// Number of keys with a hold.
    held_keys: AtomicUsize,
    /// Number of held keys per counter.
    filter: Box<[AtomicU32]>,
}

/// Holds and leases of one shard.
#[derive(Debug)]
pub(crate) struct SideShard {
    pub(crate) leases: Leases,
    holds: Holds,
}

/// Keeps the lock of one shard off the cache line of the next.
#[derive(Debug)]
#[repr(align(64))]
struct CachePadded<T>(T);

impl SideTable {
    pub(crate) fn new(max_holds: usize, max_leases: usize) -> Self {
        let budget = std::sync::Arc::new(LeaseBudget::new(max_leases));
        let shard = |_| {
            let leases = Leases::new(budget.clone());
            CachePadded(Mutex::new(SideShard { leases, holds: Holds::default() }))
        };
        Self {
            shards: (0..SHARDS).map(shard).collect(),
            max_holds,
            held_keys: AtomicUsize::new(0),
            filter: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Returns the size of the shards and the filter in bytes, without the entries in the shards.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.shards) + size_of_val(&*self.filter)
    }

    /// Returns the shard of a key. Shards are locked in ascending order, after lines.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low bits are enough")]
    pub(crate) const fn shard_of(hash: u64) -> usize {
        hash as usize % SHARDS
    }

    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, SideShard> {
        lock(&self.shards[shard].0)
    }

    /// Returns whether a key may be held. Call it under the lock of its home line or of its shard.
    #[inline]
    pub(crate) fn may_be_held(&self, hash: u64) -> bool {
        self.held_keys.load(Ordering::Relaxed) > 0 && self.counter(hash).load(Ordering::Relaxed) > 0
    }

    /// Returns the hold of a key.
    pub(crate) fn get_hold(shard: &SideShard, hash: u64) -> Option<Hold> {
        shard.holds.get(hash)
    }

    /// Holds a key and returns until when. `None` if there are too many holds.
    pub(crate) fn hold(&self, hash: u64, hold: (Time, Duration, u32), now: Time) -> Option<Time> {
        let until = self.try_hold(hash, hold);
        if until.is_some() {
            return until;
        }
        // The maximum applies to all shards together, so expired holds of any shard make room.
        for shard in 0..SHARDS {
            self.expire(&mut self.lock(shard), Duration::ZERO, now);
        }
        self.try_hold(hash, hold)
    }

    fn try_hold(
        &self,
        hash: u64,
        (until, refill, generation): (Time, Duration, u32),
    ) -> Option<Time> {
        let mut shard = self.lock(Self::shard_of(hash));
        if shard.holds.get(hash).is_none() {
            if self.held_keys.fetch_add(1, Ordering::Relaxed) >= self.max_holds {
                self.held_keys.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            self.counter(hash).fetch_add(1, Ordering::Relaxed);
        }
        Some(shard.holds.put(hash, until, refill, generation))
    }

    /// Drops the hold of a key. Returns whether there was one.
    pub(crate) fn release(&self, shard: &mut SideShard, hash: u64) -> bool {
        let was_held = shard.holds.remove(hash);
        if was_held {
            self.uncount_hold(hash);
        }
        was_held
    }

    /// Drops holds that lapsed at least `idle` ago, and expired leases.
    pub(crate) fn clean(&self, idle: Duration, now: Time) {
        for shard in 0..SHARDS {
            let mut shard = self.lock(shard);
            self.expire(&mut shard, idle, now);
            shard.leases.expire_all(now);
        }
    }

    pub(crate) fn clear(&self) {
        for shard in 0..SHARDS {
            let mut shard = self.lock(shard);
            // A time after every expiry removes all of them.
            self.expire(&mut shard, Duration::ZERO, Time::from_nanos(u64::MAX));
            shard.leases.clear();
        }
    }

    /// Returns the number of keys with a hold.
    pub(crate) fn holds(&self) -> usize {
        self.held_keys.load(Ordering::Relaxed)
    }

    pub(crate) fn leases(&self) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).leases.len()).sum()
    }

    /// Returns all holds, one shard after another.
    pub(crate) fn all_holds(&self) -> Vec<(u64, Hold)> {
        (0..SHARDS).flat_map(|shard| self.lock(shard).holds.iter().collect::<Vec<_>>()).collect()
    }

    /// Restores a hold from a snapshot, before the store is used. Returns whether there was room.
    pub(crate) fn restore(&self, hash: u64, hold: Hold) -> bool {
        if self.holds() >= self.max_holds {
            return false;
        }
        self.lock(Self::shard_of(hash)).holds.insert(hash, hold);
        self.held_keys.fetch_add(1, Ordering::Relaxed);
        self.counter(hash).fetch_add(1, Ordering::Relaxed);
        true
    }

    fn expire(&self, shard: &mut SideShard, idle: Duration, now: Time) {
        shard.holds.expire(idle, now, |hash| self.uncount_hold(hash));
    }

    fn uncount_hold(&self, hash: u64) {
        self.held_keys.fetch_sub(1, Ordering::Relaxed);
        self.counter(hash).fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "some of the bits are enough")]
    fn counter(&self, hash: u64) -> &AtomicU32 {
        // Use different bits from `shard_of`.
        &self.filter[(hash >> 8) as usize % COUNTERS]
    }
}
