//! Random extensions of waits, so that callers that were rejected together do not come back
//! together.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Extends waits by a varying amount.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Jitter;
///
/// let (jitter, wait) = (Jitter::new(), Duration::from_secs(10));
/// let longer = jitter.lengthen(wait, 20);
/// assert!(longer >= wait && longer <= Duration::from_secs(12));
/// ```
#[derive(Debug)]
pub struct Jitter {
    next: AtomicU64,
}

impl Jitter {
    /// Creates a sequence with a random start.
    #[must_use]
    pub fn new() -> Self {
        Self { next: AtomicU64::new(RandomState::new().hash_one(0_u8)) }
    }

    /// Extends the wait by up to `percent` of it.
    #[must_use]
    pub fn lengthen(&self, wait: Duration, percent: u8) -> Duration {
        if percent == 0 {
            return wait;
        }
        // Multiples of the golden ratio, modulo one, cover an interval evenly from any start.
        const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
        let part = self.next.fetch_add(GOLDEN, Ordering::Relaxed) >> 32;
        let most = wait.as_nanos().saturating_mul(percent.into()) / 100;
        let more = most.saturating_mul(part.into()) >> 32;
        let more = Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX));
        wait.saturating_add(more)
    }
}

impl Default for Jitter {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_extends_waits_and_never_shortens_them() {
        let (jitter, wait) = (Jitter::new(), Duration::from_secs(1));
        let waits: Vec<_> = (0..1_000).map(|_| jitter.lengthen(wait, 20)).collect();
        let (least, most) = (waits.iter().min().unwrap(), waits.iter().max().unwrap());
        assert!(*least >= wait && *most <= wait.mul_f64(1.2), "{least:?} {most:?}");
        assert!(*most - *least >= wait / 10, "{least:?} {most:?}");
        assert_eq!(jitter.lengthen(wait, 0), wait);
        assert_eq!(jitter.lengthen(Duration::MAX, 100), Duration::MAX);
    }
}
