//! Log lines that would come with every request, written once in a while.
//!
//! A store that is away fails every request, and a line for each would flood the log.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::WallTime;

/// Says whether a line is due. Lines that are not are counted.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::WallTime;
/// use tidegate_http::ThrottledLog;
///
/// let log = ThrottledLog::every(Duration::from_secs(5));
/// assert_eq!(log.due(WallTime::from_secs(100)), Some(0));
/// assert_eq!(log.due(WallTime::from_secs(101)), None);
/// // The second line says that one was suppressed.
/// assert_eq!(log.due(WallTime::from_secs(105)), Some(1));
/// ```
#[derive(Debug)]
pub struct ThrottledLog {
    interval: Duration,
    /// When the last line was written, in nanoseconds and one; zero if none was.
    last: AtomicU64,
    suppressed: AtomicU64,
}

impl ThrottledLog {
    /// At most one line in this time.
    #[must_use]
    pub const fn every(interval: Duration) -> Self {
        Self { interval, last: AtomicU64::new(0), suppressed: AtomicU64::new(0) }
    }

    /// Whether to write a line now, and how many were suppressed since the last one.
    #[must_use]
    pub fn due(&self, now: WallTime) -> Option<u64> {
        let now = now.as_nanos().saturating_add(1);
        let last = self.last.load(Ordering::Relaxed);
        let interval = u64::try_from(self.interval.as_nanos()).unwrap_or(u64::MAX);
        // A clock that was set back must not silence the log until it has caught up.
        let quiet = last != 0 && now >= last && now - last < interval;
        let ours = !quiet
            && self.last.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ours {
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
    fn a_store_that_fails_all_the_time_is_told_of_every_five_seconds() {
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
