//! Throttling of log lines that every request could write.
//!
//! An unavailable store fails every request, and one line per request would flood the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::WallTime;

/// Decides whether a log line is due, and counts suppressed ones.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::WallTime;
/// use tidegate_http::ThrottledLog;
///
/// let log = ThrottledLog::every(Duration::from_secs(5));
/// assert_eq!(log.due(WallTime::from_secs(100)), Some(0));
/// assert_eq!(log.due(WallTime::from_secs(101)), None);
/// // The next line reports the suppressed one.
/// assert_eq!(log.due(WallTime::from_secs(105)), Some(1));
/// ```
#[derive(Debug)]
pub struct ThrottledLog {
    interval: Duration,
    /// Time of the last line in nanoseconds plus one; zero if there was none.
    last: AtomicU64,
    suppressed: AtomicU64,
}

impl ThrottledLog {
    /// Creates a throttle that allows one line per interval.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, last: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Returns how many lines were suppressed since the last one if a line is due now, else `None`.
    #[must_use]
    pub fn due(&self, now: WallTime) -> Option<u64> {
        let now = now.as_nanos().saturating_add(1);
        let last = self.last.load(Ordering::Relaxed);
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        // A clock set back must not silence the log until it has caught up.
        let too_soon = last != 0 && now >= last && now - last < interval;
        let won = !too_soon
            && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if won {
            return Some(self.suppressed.swap(0, Ordering::Relaxed));
        }
        self.suppressed.fetch_add(1, Ordering::Relaxed);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_most_one_line_per_interval() {
        let log = ThrottledLog::every(Duration::from_secs(5));
        let at = |seconds| log.due(WallTime::from_secs(seconds));
        assert_eq!(at(100), Some(0));
        assert_eq!((at(100), at(104)), (None, None));
        assert_eq!(at(105), Some(2));
        // The clock was set back.
        assert_eq!(at(50), Some(0));
        assert_eq!(at(51), None);
    }
}
