//! Reproducible random numbers.
//!
//! Each call has its own sequence, derived from the seed and the number of the call, so its draws
//! do not depend on concurrent calls. Not for secrets.

/// A SplitMix64 generator: reproducible, and not for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the sequence `stream` of a seed.
    #[must_use]
    pub fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self { state: seed };
        // Mix the seed first; adjacent seeds would otherwise have overlapping sequences.
        let mixed_seed = random.next();
        Self { state: mixed_seed ^ stream.wrapping_mul(0xA24B_AED4_963E_E407) }
    }

    /// Returns the next number.
    #[expect(clippy::should_implement_trait, reason = "the sequence has no end")]
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from `low` to `high`, inclusive; `low` if `high` is smaller.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = u128::from(high.saturating_sub(low)) + 1;
        let offset = (u128::from(self.next()) * span) >> 64;
        low + u64::try_from(offset).unwrap_or(0)
    }

    /// Returns `true` with probability `times` / `of`.
    pub fn happens(&mut self, times: u64, of: u64) -> bool {
        self.between(1, of.max(1)) <= times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seed_determines_sequences() {
        let draw = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(draw(7, 1), draw(7, 1));
        assert_ne!(draw(7, 1), draw(7, 2));
        assert_ne!(draw(7, 1), draw(8, 1));
    }

    #[test]
    fn numbers_cover_their_range() {
        let mut random = Random::new(1, 1);
        let drawn: Vec<u64> = (0..1_000).map(|_| random.between(3, 6)).collect();
        assert!(drawn.iter().all(|number| (3..=6).contains(number)));
        assert!((3..=6).all(|number| drawn.contains(&number)));
        assert_eq!(random.between(5, 5), 5);
        assert!(random.between(0, u64::MAX) > 0);
    }

    #[test]
    fn chances_match_their_probability() {
        let mut random = Random::new(3, 3);
        let met = (0..100_000).filter(|_| random.happens(1, 50)).count();
        assert!((1_800..2_200).contains(&met), "{met}");
        assert!(!random.happens(0, 50));
        assert!(random.happens(50, 50));
    }
}
