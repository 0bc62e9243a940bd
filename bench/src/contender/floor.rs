//! The floor: what the hardware allows a limiter that does nothing but limit.
//!
//! A flat table of 16-byte slots, a fingerprint and an arrival time, both atomic; twice as many
//! slots as keys. It keeps no key, forgets none, never grows, and takes equal fingerprints for
//! equal keys. It is a yardstick and must not be used as a limiter.

use std::sync::atomic::{AtomicU64, Ordering};

use rapidhash::v3::{RapidSecrets, rapidhash_v3_inline};

use super::{BURST, Contender, RATE, go_round};
use crate::stopwatch::Stopwatch;

const NANOS_PER_TOKEN: u64 = 1_000_000_000 / RATE as u64;
const NANOS_TO_FULL: u64 = NANOS_PER_TOKEN * BURST as u64;

/// A key's place; a fingerprint of zero marks a vacant one.
#[derive(Debug, Default)]
#[repr(align(16))]
struct Slot {
    fingerprint: AtomicU64,
    arrival: AtomicU64,
}

#[derive(Debug)]
pub(super) struct Floor {
    slots: Box<[Slot]>,
    secrets: RapidSecrets,
    clock: Stopwatch,
}

impl Floor {
    pub(super) fn new(keys: usize) -> Self {
        let slots = (keys * 2).next_power_of_two();
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            secrets: RapidSecrets::seed(0x6761_7465),
            clock: Stopwatch::start(),
        }
    }

    #[inline]
    fn allow(&self, key: &str) -> bool {
        let now = self.clock.nanos();
        let arrival = &self.slot(key).arrival;
        let mut before = arrival.load(Ordering::Relaxed);
        loop {
            let after = before.max(now) + NANOS_PER_TOKEN;
            if after - now > NANOS_TO_FULL {
                return false;
            }
            match arrival.compare_exchange_weak(before, after, Ordering::Relaxed, Ordering::Relaxed)
            {
                Ok(_) => return true,
                Err(seen) => before = seen,
            }
        }
    }

    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the mask keeps the low bits only")]
    fn slot(&self, key: &str) -> &Slot {
        let hash = rapidhash_v3_inline::<true, false, true>(key.as_bytes(), &self.secrets).max(1);
        let mask = self.slots.len() - 1;
        let mut index = hash as usize & mask;
        loop {
            let slot = &self.slots[index];
            let found = slot.fingerprint.load(Ordering::Relaxed);
            if found == hash || (found == 0 && claim(slot, hash)) {
                return slot;
            }
            index = (index + 1) & mask;
        }
    }
}

/// Takes a vacant slot; also true if another thread has just taken it for the same key.
#[cold]
fn claim(slot: &Slot, hash: u64) -> bool {
    let taken = slot.fingerprint.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed);
    taken.is_ok() || taken == Err(hash)
}

impl Contender for Floor {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        go_round(keys, requests, |key| self.allow(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_limits() {
        let floor = Floor::new(4);
        let full = floor.clock.nanos() + NANOS_TO_FULL - NANOS_PER_TOKEN / 2;
        floor.slot("a").arrival.store(full, Ordering::Relaxed);
        assert!(!floor.allow("a"));
        assert!(floor.allow("b"));
    }
}
