//! The keys of the benchmarks, and the order of requests.

use crate::measure::as_float;

/// All keys, and the request order of each thread.
///
/// The keys of each order are separate strings in sequence, because the key of a request that was
/// just parsed is in the cache too. Cache misses then come from the table under test.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) all: Vec<String>,
    pub(crate) orders: Vec<Vec<String>>,
}

impl Keys {
    /// `count` keys, and a uniform random order of `requests` per thread.
    pub(crate) fn uniform(count: usize, requests: usize, threads: usize) -> Self {
        let draw = |thread| order(requests, thread, |random| random.below(count));
        Self { all: first(count), orders: (0..threads).map(draw).collect() }
    }
}

/// The first `count` keys.
pub(crate) fn first(count: usize) -> Vec<String> {
    (0..count).map(key).collect()
}

/// The keys of a thread's requests, drawn by number. Each thread has its own sequence.
pub(crate) fn order(
    requests: usize,
    thread: usize,
    mut draw: impl FnMut(&mut SplitMix) -> usize,
) -> Vec<String> {
    let mut random = SplitMix(0x7469_6465 + thread as u64);
    (0..requests).map(|_| key(draw(&mut random))).collect()
}

fn key(number: usize) -> String {
    // Exact size, so that keys are adjacent in the order of the requests.
    Name::of(number).as_str().to_owned()
}

/// A key of 24 bytes, generated where a list of all keys would be too long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Name([u8; 24]);

impl Name {
    /// The key with this number.
    #[inline]
    pub(crate) fn of(number: usize) -> Self {
        // Real keys differ in the middle too, not only in the last digits.
        let scattered = SplitMix(number as u64).next();
        let mut name = *b"client:0000000000000000:";
        name[7..15].copy_from_slice(&hexadecimal(scattered >> 32));
        name[15..23].copy_from_slice(&hexadecimal(scattered & 0xffff_ffff));
        Self(name)
    }

    /// The key as a string.
    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        // Digits and letters are valid UTF-8.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The eight hexadecimal digits of a number below 2^32, computed in parallel: the number is spread
/// to one digit per byte, and digits above nine get 39 added, which makes them letters.
#[inline]
fn hexadecimal(number: u64) -> [u8; 8] {
    let halves = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let quarters = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (quarters | quarters << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (digits + 0x3030_3030_3030_3030 + letters * 39).to_be_bytes()
}

/// A small random number generator with a fixed seed, so that every run has the same requests.
#[derive(Debug)]
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        // The 53 bits of a double.
        as_float(self.next() >> 11) / as_float(1 << 53)
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
    fn a_key_tells_its_scattered_number_in_hexadecimal() {
        for number in [0, 1, 7, 999_999, 99_999_999] {
            let scattered = SplitMix(number as u64).next();
            assert_eq!(Name::of(number).as_str(), format!("client:{scattered:016x}:"));
        }
    }

    #[test]
    fn orders_differ_and_reach_every_key() {
        let keys = Keys::uniform(1_000, 100_000, 2);
        assert_ne!(keys.orders[0], keys.orders[1]);
        assert_eq!(keys.orders[0].iter().collect::<HashSet<_>>().len(), 1_000);
    }
}
