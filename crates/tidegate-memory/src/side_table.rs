//! What is kept beside the table: holds, and the leases of concurrency limits.
//!
//! Few keys have either. A filter tells in a glance that a key is not held, so that decisions on
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

/// Parts with a lock each.
const PARTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// Counters of the filter.
const COUNTERS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 1_024 };

/// Holds and leases, in parts with a lock each.
#[derive(Debug)]
pub(crate) struct SideTable {
    parts: Box<[Padded<Mutex<SidePart>>]>,
    max_holds: usize,
    /// How many keys are held.
    held: AtomicUsize,
    /// For each counter how many keys of it are held.
    filter: Box<[AtomicU32]>,
}

/// One part.
#[derive(Debug)]
pub(crate) struct SidePart {
    pub(crate) leases: Leases,
    holds: Holds,
}

/// Keeps the lock of one part off the cache line of the next.
#[derive(Debug)]
#[repr(align(64))]
struct Padded<T>(T);

impl SideTable {
    pub(crate) fn new(max_holds: usize, max_leases: usize) -> Self {
        let budget = std::sync::Arc::new(LeaseBudget::new(max_leases));
        let part = |_| {
            let leases = Leases::new(budget.clone());
            Padded(Mutex::new(SidePart { leases, holds: Holds::default() }))
        };
        Self {
            parts: (0..PARTS).map(part).collect(),
            max_holds,
            held: AtomicUsize::new(0),
            filter: (0..COUNTERS).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    /// Bytes of the parts themselves.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.parts) + size_of_val(&*self.filter)
    }

    /// The number of the part of a key. Parts are locked in ascending order, after lines.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the last bits are enough")]
    pub(crate) const fn part_of(hash: u64) -> usize {
        hash as usize % PARTS
    }

    pub(crate) fn lock(&self, part: usize) -> MutexGuard<'_, SidePart> {
        lock(&self.parts[part].0)
    }

    /// Whether a key may be held. Asked under the lock of the line where it belongs, or of its
    /// part.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        self.held.load(Ordering::Relaxed) > 0 && self.counter(hash).load(Ordering::Relaxed) > 0
    }

    /// The hold of a key.
    pub(crate) fn held(part: &SidePart, hash: u64) -> Option<Hold> {
        part.holds.get(hash)
    }

    /// Holds a key, and says until when. `None` if there are too many already.
    pub(crate) fn hold(&self, hash: u64, hold: (Time, Duration, u32), now: Time) -> Option<Time> {
        let held = self.try_hold(hash, hold);
        if held.is_some() {
            return held;
        }
        // The bound is for all parts together, so what has lapsed in any of them makes room.
        for part in 0..PARTS {
            self.expire(&mut self.lock(part), Duration::ZERO, now);
        }
        self.try_hold(hash, hold)
    }

    fn try_hold(
        &self,
        hash: u64,
        (until, refill, generation): (Time, Duration, u32),
    ) -> Option<Time> {
        let mut part = self.lock(Self::part_of(hash));
        if part.holds.get(hash).is_none() {
            if self.held.fetch_add(1, Ordering::Relaxed) >= self.max_holds {
                self.held.fetch_sub(1, Ordering::Relaxed);
                return None;
            }
            self.counter(hash).fetch_add(1, Ordering::Relaxed);
        }
        Some(part.holds.put(hash, until, refill, generation))
    }

    /// Forgets the hold of a key; says whether there was one.
    pub(crate) fn release(&self, part: &mut SidePart, hash: u64) -> bool {
        let was_held = part.holds.remove(hash);
        if was_held {
            self.count_out(hash);
        }
        was_held
    }

    /// Forgets holds and leases that have run out.
    pub(crate) fn clean(&self, idle: Duration, now: Time) {
        for part in 0..PARTS {
            let mut part = self.lock(part);
            self.expire(&mut part, idle, now);
            part.leases.expire_all(now);
        }
    }

    pub(crate) fn clear(&self) {
        for part in 0..PARTS {
            let mut part = self.lock(part);
            // Whatever the time: all of them.
            self.expire(&mut part, Duration::ZERO, Time::from_nanos(u64::MAX));
            part.leases.clear();
        }
    }

    /// How many keys are held.
    pub(crate) fn holds(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    pub(crate) fn leases(&self) -> usize {
        (0..PARTS).map(|part| self.lock(part).leases.len()).sum()
    }

    /// Every hold, one part after another.
    pub(crate) fn all_holds(&self) -> Vec<(u64, Hold)> {
        (0..PARTS).flat_map(|part| self.lock(part).holds.iter().collect::<Vec<_>>()).collect()
    }

    /// Puts back a hold of an earlier process, before anybody else uses the store; says whether
    /// there was room for it.
    pub(crate) fn restore(&self, hash: u64, hold: Hold) -> bool {
        if self.holds() >= self.max_holds {
            return false;
        }
        self.lock(Self::part_of(hash)).holds.insert(hash, hold);
        self.held.fetch_add(1, Ordering::Relaxed);
        self.counter(hash).fetch_add(1, Ordering::Relaxed);
        true
    }

    fn expire(&self, part: &mut SidePart, idle: Duration, now: Time) {
        part.holds.expire(idle, now, |hash| self.count_out(hash));
    }

    fn count_out(&self, hash: u64) {
        self.held.fetch_sub(1, Ordering::Relaxed);
        self.counter(hash).fetch_sub(1, Ordering::Relaxed);
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "some of the bits are enough")]
    fn counter(&self, hash: u64) -> &AtomicU32 {
        // Other bits than those of the part.
        &self.filter[(hash >> 8) as usize % COUNTERS]
    }
}
