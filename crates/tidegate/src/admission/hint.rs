//! Retry hints for rejected callers.

use std::time::Duration;

use tidegate_core::Retry;

use crate::jitter::Jitter;

/// Wait per request above the threshold.
const WAIT_PER_REQUEST: Duration = Duration::from_millis(10);
/// Longest wait under back-pressure.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The wait under back-pressure: the more requests are pending above the threshold, the longer.
pub(super) fn backpressure_wait(pending: u32, threshold: u32) -> Duration {
    let above = pending.saturating_sub(threshold).max(1);
    WAIT_PER_REQUEST.saturating_mul(above).min(MAX_WAIT)
}

/// Extends the wait by a random part of up to `percent`, so that callers that were rejected
/// together do not come back together.
pub(super) fn with_jitter(retry: Retry, jitter: &Jitter, percent: u8) -> Retry {
    match retry {
        Retry::After(wait) => Retry::After(jitter.lengthen(wait, percent)),
        retry => retry,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_grows_by_ten_milliseconds_up_to_five_seconds() {
        let hint = |pending, threshold| backpressure_wait(pending, threshold).as_millis();
        assert_eq!(hint(101, 100), 10);
        assert_eq!(hint(60, 50), 100);
        assert_eq!(hint(549, 50), 4_990);
        assert_eq!(hint(1_000, 50), 5_000);
        assert_eq!(hint(u32::MAX, 1), 5_000);
    }

    #[test]
    fn jitter_extends_hints_and_never_shortens_them() {
        let jitter = Jitter::new();
        let wait = Duration::from_secs(1);
        let hints: Vec<_> = (0..1_000)
            .filter_map(|_| with_jitter(Retry::After(wait), &jitter, 20).after())
            .collect();
        let (least, most) = (hints.iter().min().unwrap(), hints.iter().max().unwrap());
        assert!(*least >= wait && *most <= wait.mul_f64(1.2), "{least:?} {most:?}");
        assert!(*most - *least >= wait / 10, "{least:?} {most:?}");
        assert_eq!(with_jitter(Retry::Never, &jitter, 20), Retry::Never);
        assert_eq!(with_jitter(Retry::After(wait), &jitter, 0), Retry::After(wait));
    }
}
