//! Keys to decide about, and the order in which they are asked for.

use std::fmt::Write as _;

/// All keys, and for each thread the keys in the order of its requests.
///
/// The order is laid out in memory beforehand, as strings of their own: a request that has just
/// been parsed has its key in the cache too. What misses the cache is the table under test.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) all: Vec<String>,
    pub(crate) orders: Vec<Vec<String>>,
}

impl Keys {
    /// `count` keys, and uniform random orders of `requests` for each of the threads.
    pub(crate) fn uniform(count: usize, requests: usize, threads: usize) -> Self {
        let draw = |thread: usize| {
            let mut random = SplitMix(0x7469_6465 + thread as u64);
            (0..requests).map(|_| key(random.below(count))).collect()
        };
        Self { all: (0..count).map(key).collect(), orders: (0..threads).map(draw).collect() }
    }
}

/// A key of 24 bytes.
fn key(number: usize) -> String {
    // Real keys differ in the middle too, not only in the last digits.
    let scattered = SplitMix(number as u64).next();
    // Of exactly that size, so that keys lie side by side in the order of the requests.
    let mut key = String::with_capacity(24);
    // Writing to a String does not fail.
    let _ = write!(key, "client:{scattered:016x}:");
    key
}

/// A small generator of random numbers with a fixed seed, so that every run asks the same.
#[derive(Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    #[allow(clippy::cast_possible_truncation, reason = "the result is below `bound`")]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.next()) * bound as u128) >> 64) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_are_distinct_and_of_one_length() {
        let keys = Keys::uniform(10_000, 100_000, 2);
        assert_eq!(keys.all.iter().collect::<HashSet<_>>().len(), 10_000);
        assert!(keys.all.iter().all(|key| key.len() == 24));
    }

    #[test]
    fn orders_differ_and_reach_every_key() {
        let keys = Keys::uniform(1_000, 100_000, 2);
        assert_ne!(keys.orders[0], keys.orders[1]);
        assert_eq!(keys.orders[0].iter().collect::<HashSet<_>>().len(), 1_000);
    }
}
