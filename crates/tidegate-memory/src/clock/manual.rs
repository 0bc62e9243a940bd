//! A clock for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidegate_core::{Time, WallTime};

use super::Clock;

/// A clock that moves only when told to. Clones share the time.
///
/// ```
/// use std::time::Duration;
/// use tidegate_memory::clock::{Clock, ManualClock};
/// let clock = ManualClock::new();
/// clock.advance(Duration::from_secs(3));
/// assert_eq!(clock.now().as_nanos(), 3_000_000_000);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ManualClock {
    shared: Arc<ManualTime>,
}

#[derive(Debug, Default)]
struct ManualTime {
    now: AtomicU64,
    wall: AtomicU64,
}

impl ManualClock {
    /// Creates a clock at zero, with the Unix epoch as its wall time.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances both the time and the wall time.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.shared.now.fetch_add(nanos, Ordering::SeqCst);
        self.shared.wall.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, time: Time) {
        self.shared.now.store(time.as_nanos(), Ordering::SeqCst);
    }

    /// Sets the wall time, forwards or backwards.
    pub fn set_wall(&self, wall: WallTime) {
        self.shared.wall.store(wall.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.shared.now.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.shared.wall.load(Ordering::SeqCst))
    }
}
