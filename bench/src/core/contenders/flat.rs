//! The baseline with keys: the least that a limiter on this hardware must do.
//!
//! A flat table of 16-byte slots, each with an atomic fingerprint and arrival time; twice as many
//! slots as keys. It stores no keys, never removes an entry, never grows, and treats equal
//! fingerprints as equal keys. For comparison only; do not use it as a limiter.

use std::sync::atomic::{AtomicU64, Ordering};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_nano_inline};
use tidegate_memory::clock::Clock;
use tidegate_memory::prefetch;

use super::clocks;
use crate::contender::{Contender, decide_in_batches};
use crate::core::BATCH;
use crate::core::contenders::cell::Timing;
use crate::core::contenders::gate::KeyedLimiter;
use crate::core::contenders::policy::BenchPolicy;

/// The slot of a key; a fingerprint of zero marks an empty one.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Slot {
    fingerprint: AtomicU64,
    arrival: AtomicU64,
}

#[derive(Debug)]
pub(in crate::core) struct Flat<C> {
    slots: Box<[Slot]>,
    secrets: RapidSecrets,
    timing: Timing,
    clock: C,
}

/// An empty table with room for `keys`, on the clock of the store.
pub(in crate::core) fn flat(keys: usize, policy: BenchPolicy) -> Flat<impl Clock> {
    let slots = (keys * 2).next_power_of_two();
    Flat {
        slots: (0..slots).map(|_| Slot::default()).collect(),
        secrets: RapidSecrets::seed(0x6761_7465),
        timing: Timing::of(policy),
        clock: clocks::exact(),
    }
}

impl<C: Clock> Flat<C> {
    /// Uses the same hash function as the store.
    #[inline]
    fn hash(&self, key: &str) -> u64 {
        rapidhash_v3_nano_inline::<true, false>(key.as_bytes(), &self.secrets).max(1)
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
    fn first_slot(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn slot(&self, hash: u64) -> &Slot {
        let mut index = self.first_slot(hash);
        loop {
            let slot = &self.slots[index];
            let found = slot.fingerprint.load(Ordering::Relaxed);
            if found == hash || (found == 0 && claim(slot, hash)) {
                return slot;
            }
            index = (index + 1) & (self.slots.len() - 1);
        }
    }
}

/// Claims an empty slot. Also returns true if another thread has just claimed it for the same key.
#[cold]
fn claim(slot: &Slot, hash: u64) -> bool {
    let taken = slot.fingerprint.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok() || taken == Err(hash)
}

impl<C: Clock> KeyedLimiter for Flat<C> {
    #[inline]
    fn allow(&self, key: &String) -> bool {
        let now = self.clock.now().as_nanos();
        self.timing.spend(&self.slot(self.hash(key)).arrival, now)
    }
}

/// The table with batched decisions: it hashes all keys and prefetches their slots, reads the clock
/// once, and then decides.
#[derive(Debug)]
pub(in crate::core) struct Batched<C>(pub(in crate::core) Flat<C>);

impl<C: Clock> Contender for Batched<C> {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        let flat = &self.0;
        decide_in_batches(keys, requests, BATCH, |batch| {
            let mut hashes = [0; BATCH];
            for (hash, key) in hashes.iter_mut().zip(batch) {
                *hash = flat.hash(key);
                prefetch(&flat.slots[flat.first_slot(*hash)]);
            }
            let now = flat.clock.now().as_nanos();
            let spend = |hash: &u64| flat.timing.spend(&flat.slot(*hash).arrival, now);
            hashes.iter().take(batch.len()).map(|hash| u64::from(spend(hash))).sum()
        })
    }
}
