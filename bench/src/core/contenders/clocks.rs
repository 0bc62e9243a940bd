//! The clocks of the baselines, which are those of the store.
//!
//! With another clock, the comparison would show the difference of the clocks.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tidegate_core::{Time, WallTime};
use tidegate_memory::clock::{CachedClock, Clock, CounterClock, SystemClock};

/// Maximum age of a cached time, for our clock and governor's.
pub(in crate::core) const RESOLUTION: Duration = Duration::from_millis(1);

/// The default clock of a store.
#[derive(Clone, Copy, Debug)]
pub(in crate::core) enum Exact {
    Counter(CounterClock),
    System(SystemClock),
}

/// A clock that starts now.
pub(in crate::core) fn exact() -> Exact {
    CounterClock::new().map_or_else(|_| Exact::System(SystemClock::new()), Exact::Counter)
}

impl Exact {
    /// The time source, for the report.
    pub(in crate::core) const fn name(self) -> &'static str {
        match self {
            Self::Counter(_) => "the time stamp counter",
            Self::System(_) => "that of the system",
        }
    }
}

impl Clock for Exact {
    #[inline]
    fn now(&self) -> Time {
        match self {
            Self::Counter(clock) => clock.now(),
            Self::System(clock) => clock.now(),
        }
    }

    fn wall(&self) -> WallTime {
        SystemClock::new().wall()
    }
}

/// A cached clock, shared by all contenders and updated by one thread.
pub(in crate::core) fn cached() -> Result<CachedClock> {
    static CLOCK: Mutex<Option<CachedClock>> = Mutex::new(None);
    let mut clock = CLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let clock = match &mut *clock {
        Some(clock) => clock,
        vacant => vacant.insert(CachedClock::ticking(RESOLUTION)?),
    };
    Ok(clock.clone())
}

#[cfg(test)]
mod tests {
    use tidegate_testkit::launch::wait_until;

    use super::*;

    #[test]
    fn clocks_go_forward() {
        let (exact, cached) = (exact(), cached().unwrap());
        let before = (exact.now(), cached.now());
        wait_until("both clocks", || {
            (exact.now() > before.0 && cached.now() > before.1).then_some(())
        });
    }
}
