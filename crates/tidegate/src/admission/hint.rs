//! When a rejected caller may try again.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::Retry;

/// For each request above the threshold.
const STEP: Duration = Duration::from_millis(10);
/// The longest hint of back-pressure.
const LONGEST: Duration = Duration::from_secs(5);

/// The wait under back-pressure: longer the more is pending above the threshold.
pub(super) fn of_backpressure(pending: u32, threshold: u32) -> Duration {
    let above = pending.saturating_sub(threshold).max(1);
    STEP.saturating_mul(above).min(LONGEST)
}

/// Spreads the hints of those who are rejected together.
#[derive(Debug)]
pub(super) struct Spread {
    seed: u64,
    drawn: AtomicU64,
}

impl Spread {
    pub(super) fn new() -> Self {
        Self { seed: RandomState::new().hash_one(0_u8), drawn: AtomicU64::new(0) }
    }

    /// The hint, longer by a random part of up to `percent`.
    pub(super) fn lengthen(&self, retry: Retry, percent: u8) -> Retry {
        match retry {
            Retry::After(wait) if percent > 0 => {
                let most = wait.as_nanos().saturating_mul(percent.into()) / 100;
                // A part of 2^32 of it is as fine as anybody can tell.
                let more = most.saturating_mul((self.draw() >> 32).into()) >> 32;
                let more = Duration::from_nanos(u64::try_from(more).unwrap_or(u64::MAX));
                Retry::After(wait.saturating_add(more))
            }
            retry => retry,
        }
    }

    /// A number that looks random: a counter, mixed well.
    fn draw(&self) -> u64 {
        let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut mixed = self.seed ^ drawn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for factor in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(factor);
        }
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_grows_by_ten_milliseconds_to_five_seconds() {
        let hint = |pending, threshold| of_backpressure(pending, threshold).as_millis();
        assert_eq!(hint(101, 100), 10);
        assert_eq!(hint(60, 50), 100);
        assert_eq!(hint(549, 50), 4_990);
        assert_eq!(hint(1_000, 50), 5_000);
        assert_eq!(hint(u32::MAX, 1), 5_000);
    }

    #[test]
    fn jitter_spreads_hints_and_never_shortens_them() {
        let spread = Spread::new();
        let wait = Duration::from_secs(1);
        let hints: Vec<_> =
            (0..1_000).filter_map(|_| spread.lengthen(Retry::After(wait), 20).after()).collect();
        let (least, most) = (hints.iter().min().unwrap(), hints.iter().max().unwrap());
        assert!(*least >= wait && *most <= wait.mul_f64(1.2), "{least:?} {most:?}");
        assert!(*most - *least >= wait / 10, "{least:?} {most:?}");
        assert_eq!(spread.lengthen(Retry::Never, 20), Retry::Never);
        assert_eq!(spread.lengthen(Retry::After(wait), 0), Retry::After(wait));
    }
}
