//! Keys to decide about, and the order in which they are asked for.

use crate::measure::as_float;

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
        let draw = |thread| order(requests, thread, |random| random.below(count));
        Self { all: first(count), orders: (0..threads).map(draw).collect() }
    }
}

/// The first `count` keys.
pub(crate) fn first(count: usize) -> Vec<String> {
    (0..count).map(key).collect()
}

/// The keys of so many requests of a thread, drawn by their numbers. Threads draw differently.
pub(crate) fn order(
    requests: usize,
    thread: usize,
    mut draw: impl FnMut(&mut SplitMix) -> usize,
) -> Vec<String> {
    let mut random = SplitMix(0x7469_6465 + thread as u64);
    (0..requests).map(|_| key(draw(&mut random))).collect()
}

fn key(number: usize) -> String {
    // Of exactly its size, so that keys lie side by side in the order of the requests.
    Name::of(number).as_str().to_owned()
}

/// A key of 24 bytes, made on the spot where a list of all keys would be too long.
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

    /// As text.
    #[inline]
    pub(crate) fn as_str(&self) -> &str {
        // Digits and letters are text.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

/// The digits of a number below 2^32, all eight at once: half of it in each half, a quarter in
/// each quarter, a digit in each byte; and then 39 more for those past nine, which are letters.
#[inline]
fn hexadecimal(number: u64) -> [u8; 8] {
    let halves = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let quarters = (halves | halves << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (quarters | quarters << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = ((digits + 0x0606_0606_0606_0606) >> 4) & 0x0101_0101_0101_0101;
    (digits + 0x3030_3030_3030_3030 + letters * 39).to_be_bytes()
}

/// A small generator of random numbers with a fixed seed, so that every run asks the same.
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

    /// From zero to one, which it does not reach.
    pub(crate) fn unit(&mut self) -> f64 {
        // As many bits as a double has.
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
