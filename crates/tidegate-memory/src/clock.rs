//! Clocks. This is the only module that reads the time of the machine.
//!
//! A store owns its clock; no operation carries the caller's time. Tests drive a [`ManualClock`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use tidegate_core::{Time, WallTime};

/// A source of time for a store.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time that does not depend on the wall clock being set.
    fn now(&self) -> Time;
    /// Wall time; only calendar quotas look at it.
    fn wall(&self) -> WallTime;
}

/// The clock of the operating system: monotonic, counted from its creation.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that starts now.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Time {
        let elapsed = self.origin.elapsed();
        // In 64 bits, which last for 584 years: this is on the way of every decision.
        let seconds = elapsed.as_secs().saturating_mul(1_000_000_000);
        Time::from_nanos(seconds.saturating_add(elapsed.subsec_nanos().into()))
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    fn wall(&self) -> WallTime {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        WallTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
    }
}

/// The wall time of the machine.
#[must_use]
pub fn wall_now() -> WallTime {
    SystemClock::new().wall()
}

/// A clock that moves only when told to. Clones show the same time.
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
    /// A clock at its origin; its wall time is the Unix epoch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves both times forward.
    pub fn advance(&self, span: Duration) {
        let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        self.shared.now.fetch_add(nanos, Ordering::SeqCst);
        self.shared.wall.fetch_add(nanos, Ordering::SeqCst);
    }

    /// Sets the time, also backwards.
    pub fn set(&self, time: Time) {
        self.shared.now.store(time.as_nanos(), Ordering::SeqCst);
    }

    /// Sets the wall time, also backwards.
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

/// The clock of a store: the system's, without a virtual call, or any other.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    System(SystemClock),
    Other(Arc<dyn Clock>),
}

impl Source {
    #[inline]
    pub(crate) fn now(&self) -> Time {
        match self {
            Self::System(clock) => clock.now(),
            Self::Other(clock) => clock.now(),
        }
    }

    pub(crate) fn wall(&self) -> WallTime {
        match self {
            Self::System(clock) => clock.wall(),
            Self::Other(clock) => clock.wall(),
        }
    }
}
