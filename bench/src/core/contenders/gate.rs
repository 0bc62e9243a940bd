//! Limiters with and without keys, and adapters that drive them.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::contender::{Contender, decide_each};
use crate::keys::{Name, SplitMix};

/// A keyed limiter.
pub(in crate::core) trait KeyedLimiter: Sync {
    /// Takes one token of a key, or denies.
    #[allow(clippy::ptr_arg, reason = "governor wants its keys as they are stored")]
    fn allow(&self, key: &String) -> bool;
}

/// A limiter without keys.
pub(in crate::core) trait UnkeyedLimiter: Sync {
    /// Spends one token, or denies.
    fn allow(&self) -> bool;
}

/// Decides on a list of keys in order.
#[derive(Debug)]
pub(in crate::core) struct KeysInOrder<G>(pub(in crate::core) G);

impl<G: KeyedLimiter> Contender for KeysInOrder<G> {
    fn decide(&self, keys: &[String], requests: u64) -> u64 {
        decide_each(keys, requests, |key| self.0.allow(key))
    }
}

/// Decides on random keys that are generated during the run: a list of a hundred million keys would
/// take more memory than the limiter.
#[derive(Debug)]
pub(in crate::core) struct RandomKeys<G> {
    pub(in crate::core) gate: G,
    keys: usize,
    runs: AtomicU64,
}

impl<G: KeyedLimiter> RandomKeys<G> {
    /// Inserts `keys` keys.
    pub(in crate::core) fn fill(gate: G, keys: usize) -> Self {
        let mut buffer = String::new();
        for number in 0..keys {
            gate.allow(named(number, &mut buffer));
        }
        Self { gate, keys, runs: AtomicU64::new(0) }
    }
}

impl<G: KeyedLimiter> Contender for RandomKeys<G> {
    fn decide(&self, _keys: &[String], requests: u64) -> u64 {
        // Each run starts at another key, so that it does not find the caches of the previous one.
        let mut random = SplitMix(self.runs.fetch_add(1, Ordering::Relaxed) << 40);
        let mut buffer = String::new();
        let mut allow = |_| {
            let key = named(random.below(self.keys), &mut buffer);
            u64::from(self.gate.allow(black_box(key)))
        };
        (0..requests).map(&mut allow).sum()
    }
}

/// Writes the key with this number into a reused buffer.
#[inline]
pub(in crate::core) fn named(number: usize, buffer: &mut String) -> &String {
    buffer.clear();
    buffer.push_str(Name::of(number).as_str());
    buffer
}

/// A limiter aligned to two cache lines, because processors also fetch the adjacent one.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::core) struct CacheLineAligned<T>(pub(in crate::core) T);

impl<T: UnkeyedLimiter> Contender for CacheLineAligned<T> {
    fn decide(&self, _keys: &[String], requests: u64) -> u64 {
        (0..requests).map(|_| u64::from(black_box(&self.0).allow())).sum()
    }
}
