//! Clock representation used by stores: a clock of this crate, read without a virtual call, or any
//! other.

use std::sync::{Arc, Weak};

use tidegate_core::{Time, WallTime};

use super::{CachedClock, Clock, ClockWatcher, CounterClock, SystemClock, wall_now};

/// The clock of a store or of a direct limiter.
///
/// The default is the processor's time stamp counter if it is reliable, otherwise the operating
/// system's clock.
#[derive(Clone, Debug)]
pub enum ClockSource {
    /// The operating system's clock.
    System(SystemClock),
    /// The processor's time stamp counter.
    Counter(CounterClock),
    /// A cached time.
    Cached(CachedClock),
    /// A clock from outside this crate.
    Other(Arc<dyn Clock>),
}

impl Default for ClockSource {
    fn default() -> Self {
        match CounterClock::new() {
            Ok(clock) => Self::Counter(clock),
            Err(_) => Self::System(SystemClock::new()),
        }
    }
}

impl ClockSource {
    /// Returns the time. The processor may execute this slightly before preceding instructions.
    #[must_use]
    #[inline]
    pub fn now(&self) -> Time {
        // Two comparisons. A `match` over all four compiles to a jump table, which costs more than
        // a whole decision on a cached clock.
        if let Self::Counter(clock) = self {
            clock.now()
        } else if let Self::Cached(clock) = self {
            clock.now()
        } else {
            self.now_outlined()
        }
    }

    /// Returns the time, read after all preceding instructions. Under a lock, it is not before any
    /// reading made earlier under the same lock.
    #[must_use]
    #[inline]
    pub fn now_ordered(&self) -> Time {
        // The other clocks need no fence: the lock orders loads, and the operating system fences
        // its own reading.
        if let Self::Counter(clock) = self { clock.now_ordered() } else { self.now() }
    }

    /// Reads clocks that need a call. Kept out of line, so that callers stay short for the others.
    #[inline(never)]
    fn now_outlined(&self) -> Time {
        match self {
            Self::Counter(clock) => clock.now(),
            Self::Cached(clock) => clock.now(),
            Self::System(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    /// Returns the wall time.
    #[must_use]
    #[inline]
    pub fn wall(&self) -> WallTime {
        match self {
            Self::Counter(_) | Self::Cached(_) | Self::System(_) => wall_now(),
            Self::Other(clock) => clock.wall(),
        }
    }

    /// Registers a watcher, if the time moves only when a program says so; see [`Clock::watch`].
    pub fn watch(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        match self {
            Self::Counter(_) | Self::Cached(_) | Self::System(_) => false,
            Self::Other(clock) => clock.watch(watcher),
        }
    }

    /// Returns the name of the clock, for logs and metrics.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Counter(clock) if !clock.has_fallen_back() => "counter",
            Self::Counter(_) | Self::System(_) => "system",
            Self::Cached(_) => "cached",
            Self::Other(_) => "other",
        }
    }

    /// Returns whether the clock never runs backwards. That is unknown for clocks from outside this
    /// crate.
    #[must_use]
    #[inline]
    pub const fn is_monotonic(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

#[cfg(test)]
mod tests {
    use super::super::ManualClock;
    use super::*;

    #[test]
    fn clocks_of_this_crate_are_read_without_a_virtual_call() {
        assert!(matches!(SystemClock::new().into_source(), ClockSource::System(_)));
        assert!(matches!(CachedClock::new().into_source(), ClockSource::Cached(_)));
        if let Ok(clock) = CounterClock::new() {
            assert!(matches!(clock.into_source(), ClockSource::Counter(_)));
        }
        assert!(matches!(ManualClock::new().into_source(), ClockSource::Other(_)));
    }

    #[test]
    fn clocks_report_their_name() {
        assert_eq!(SystemClock::new().into_source().name(), "system");
        assert_eq!(CachedClock::new().into_source().name(), "cached");
        assert_eq!(ManualClock::new().into_source().name(), "other");
        if let Ok(clock) = CounterClock::new() {
            let name = if clock.has_fallen_back() { "system" } else { "counter" };
            assert_eq!(clock.into_source().name(), name);
        }
    }

    #[test]
    fn only_foreign_clocks_may_run_backwards() {
        assert!(ClockSource::default().is_monotonic());
        assert!(CachedClock::new().into_source().is_monotonic());
        assert!(!ManualClock::new().into_source().is_monotonic());
    }

    #[test]
    fn new_clock_starts_near_zero_and_advances() {
        for source in [ClockSource::default(), ClockSource::System(SystemClock::new())] {
            let first = source.now();
            assert!(first < Time::from_nanos(60_000_000_000), "{first:?}");
            assert!(source.now_ordered() >= first);
            assert!(source.wall() > WallTime::from_secs(1_700_000_000));
        }
    }
}
