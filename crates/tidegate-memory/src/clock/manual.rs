//! A clock for tests.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{Time, WallTime};

use super::{Clock, ClockWatcher};

/// A clock that moves only when told to. Clones share the time.
///
/// Waits on this clock end in the call that moves it: when [`advance`](Self::advance) returns, all
/// waiters that are due have been woken. A clock that stands still wakes nothing.
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
    watchers: Mutex<Vec<Weak<dyn ClockWatcher>>>,
}

impl ManualTime {
    /// Notifies the watchers, outside the lock: they may register others.
    fn notify(&self) {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| watcher.strong_count() > 0);
        let alive: Vec<_> = watchers.iter().filter_map(Weak::upgrade).collect();
        drop(watchers);
        alive.into_iter().for_each(ClockWatcher::on_move);
    }
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
        self.shared.notify();
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, time: Time) {
        self.shared.now.store(time.as_nanos(), Ordering::SeqCst);
        self.shared.notify();
    }

    /// Sets the wall time, forwards or backwards.
    pub fn set_wall(&self, wall: WallTime) {
        self.shared.wall.store(wall.as_nanos(), Ordering::SeqCst);
        self.shared.notify();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.shared.now.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.shared.wall.load(Ordering::SeqCst))
    }

    fn watch(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        let mut watchers = self.shared.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if watchers.len() == watchers.capacity() {
            watchers.retain(|watcher| watcher.strong_count() > 0);
        }
        watchers.push(watcher);
        true
    }
}
