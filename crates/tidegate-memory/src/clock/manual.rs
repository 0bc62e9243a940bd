//! A clock for tests.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tidegate_core::{Time, WallTime};

use super::{Clock, ClockListener};

/// A clock that moves only when told to. Clones share the time. Waits on it end when it is moved.
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

#[derive(Default)]
struct ManualTime {
    now: AtomicU64,
    wall: AtomicU64,
    listeners: Mutex<Listeners>,
}

#[derive(Default)]
struct Listeners {
    all: Vec<Weak<dyn ClockListener>>,
    /// Number at which those that are gone are removed.
    cleaned_at: usize,
}

impl ManualTime {
    /// Tells all listeners that the clock was moved. They are called without the lock, because they
    /// may move it.
    fn moved(&self) {
        let listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        let all = listeners.all.clone();
        drop(listeners);
        all.iter().filter_map(Weak::upgrade).for_each(|listener| listener.clock_moved());
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
        self.shared.moved();
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, time: Time) {
        self.shared.now.store(time.as_nanos(), Ordering::SeqCst);
        self.shared.moved();
    }

    /// Sets the wall time, forwards or backwards.
    pub fn set_wall(&self, wall: WallTime) {
        self.shared.wall.store(wall.as_nanos(), Ordering::SeqCst);
        self.shared.moved();
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.shared.now.load(Ordering::SeqCst))
    }

    fn wall(&self) -> WallTime {
        WallTime::from_nanos(self.shared.wall.load(Ordering::SeqCst))
    }

    fn listen(&self, listener: Weak<dyn ClockListener>) -> bool {
        let mut listeners = self.shared.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        if listeners.all.len() >= listeners.cleaned_at {
            listeners.all.retain(|listener| listener.strong_count() > 0);
            listeners.cleaned_at = (listeners.all.len() * 2).max(8);
        }
        listeners.all.push(listener);
        true
    }
}

impl fmt::Debug for ManualTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualTime")
            .field("now", &self.now)
            .field("wall", &self.wall)
            .finish_non_exhaustive()
    }
}
