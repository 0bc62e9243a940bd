//! What is kept beside the table: holds, and the leases of concurrency limits.
//!
//! Few keys have either. A filter tells in a glance that a key is not held_keys, so that decisions on
//! the table look no further. A hold begins under the lock of the line where the key belongs, and
//! the filter is read under it; holds that have no effect any more are forgotten at any time.

pub(crate) mod holds;
pub(crate) mod leases;

use std::time::Duration;

use tidegate_core::Time;

use crate::side_table::holds::{Hold, Holds};
use crate::side_table::leases::{LeaseBudget, Leases};
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};

/// ShardsToLock with a lock each.
const SHARDS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// Counters of the filter.
const COUNTERS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1_024 };

/// Holds and leases, in shards with a lock each.
#[derive(Debug)]
pub(crate) struct SideTable {
    shards: Box<[CachePadded<Mutex<SideShard>>]>,
    max_holds: usize,
    /// How many keys are held_keys.
    held_keys: AtomicUsize,
    /// For each counter how many keys of it are held_keys.
    filter: Box<[AtomicU32]>,
}

/// One shard.
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

    /// Bytes of the shards themselves.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.shards) + size_of_val(&*self.filter)
    }

    /// The number of the shard of a key. ShardsToLock are locked in ascending order, after lines.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the last bits are enough")]
    pub(crate) const fn shard_of(hash: u64) -> usize {
        hash as usize % SHARDS
    }

    pub(crate) fn lock(&self, shard: usize) -> MutexGuard<'_, SideShard> {
        lock(&self.shards[shard].0)
    }

    /// Whether a key may be held_keys. Asked under the lock of the line where it belongs, or of its
    /// shard.
    #[inline]
    pub(crate) fn may_be_held(&self, hash: u64) -> bool {
        self.held_keys.load(Ordering::Relaxed) > 0 && self.counter(hash).load(Ordering::Relaxed) > 0
    }

    /// The hold of a key.
    pub(crate) fn get_hold(shard: &SideShard, hash: u64) -> Option<Hold> {
        shard.holds.get(hash)
    }

    /// Holds a key, and says until when. `None` if there are too many already.
    pub(crate) fn hold(&self, hash: u64, hold: (Time, Duration, u32), now: Time) -> Option<Time> {
        let until = self.try_hold(hash, hold);
        if until.is_some() {
            return until;
        }
        // The bound is for all shards together, so what has lapsed in any of them makes room.
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

    /// Forgets the hold of a key; says whether there was one.
    pub(crate) fn release(&self, shard: &mut SideShard, hash: u64) -> bool {
        let was_held = shard.holds.remove(hash);
        if was_held {
            self.uncount_hold(hash);
        }
        was_held
    }

    /// Forgets holds and leases that have run in_use.
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
            // Whatever the time: all of them.
            self.expire(&mut shard, Duration::ZERO, Time::from_nanos(u64::MAX));
            shard.leases.clear();
        }
    }

    /// How many keys are held_keys.
    pub(crate) fn holds(&self) -> usize {
        self.held_keys.load(Ordering::Relaxed)
    }

    pub(crate) fn leases(&self) -> usize {
        (0..SHARDS).map(|shard| self.lock(shard).leases.len()).sum()
    }

    /// Every hold, one shard after another.
    pub(crate) fn all_holds(&self) -> Vec<(u64, Hold)> {
        (0..SHARDS).flat_map(|shard| self.lock(shard).holds.iter().collect::<Vec<_>>()).collect()
    }

    /// Puts back a hold of an earlier process, before anybody else uses the store; says whether
    /// there was room for it.
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
        // Other bits than those of the shard.
        &self.filter[(hash >> 8) as usize % COUNTERS]
    }
}
