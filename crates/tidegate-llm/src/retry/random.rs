//! Source of random numbers for jitter.

use std::fmt;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A source of random numbers for jitter; not for secrets. Clones share it.
#[derive(Clone)]
pub(crate) struct Random(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Random {
    /// Creates a source that differs from run to run.
    pub(crate) fn system() -> Self {
        // Every `RandomState` differs from the previous one, and the first of a thread is seeded by
        // the operating system.
        Self::from_fn(|| RandomState::new().hash_one(0_u8))
    }

    /// Creates a reproducible source for tests.
    pub(crate) fn seeded(seed: u64) -> Self {
        let (hasher, drawn) = (BuildHasherDefault::<DefaultHasher>::new(), AtomicU64::new(0));
        Self::from_fn(move || hasher.hash_one((seed, drawn.fetch_add(1, Ordering::Relaxed))))
    }

    /// Creates a source from a function that returns 64 random bits.
    pub(crate) fn from_fn(draw: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(draw))
    }

    /// Returns a random fraction of `span`, always less than `span`.
    pub(super) fn fraction_of(&self, span: Duration) -> Duration {
        // Steps of span / 2^32 are fine enough.
        let part = span.as_nanos().saturating_mul(((self.0)() >> 32).into()) >> 32;
        Duration::from_nanos(u64::try_from(part).unwrap_or(u64::MAX))
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Random {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Random")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_cover_the_whole_span() {
        const SPAN: Duration = Duration::from_secs(1);
        for random in [Random::system(), Random::seeded(1)] {
            let mut tenths = [0; 10];
            for _ in 0..1_000 {
                let part = random.fraction_of(SPAN);
                assert!(part < SPAN, "{part:?}");
                tenths[usize::try_from(part.as_millis() / 100).unwrap()] += 1;
            }
            assert!(tenths.iter().all(|hits| (50..200).contains(hits)), "{tenths:?}");
        }
        assert_eq!(Random::from_fn(|| 0).fraction_of(SPAN), Duration::ZERO);
        assert!(Random::from_fn(|| u64::MAX).fraction_of(Duration::MAX) < Duration::MAX);
    }
}
