//! Clocks. This is the only module that reads the machine's time.
//!
//! A store owns its clock; no operation carries the caller's time. Reading the clock is most of the
//! cost of the fastest decision, so there are three clocks to choose from:
//!
//! - [`CounterClock`] reads the processor's time stamp counter, where that is reliable. It is the
//!   default.
//! - [`SystemClock`] asks the operating system. It is always available and costs two to three times
//!   as much.
//! - [`CachedClock`] reads a word in memory that is updated by a thread or by the program. It costs
//!   almost nothing, but its time is slightly old, so a limit is exact in the long run and not
//!   within every span.
//!
//! None of them ever runs backwards, not even between threads that synchronize with each other.
//! Tests use a [`ManualClock`].

mod cached;
mod calibration;
mod counter;
mod manual;
#[cfg(all(test, loom))]
mod model_loom;
mod seqlock;
#[cfg(feature = "tokio")]
pub(crate) mod sleep;
mod source;
mod ticks;
mod timer_backoff;

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::{Instant, SystemTime};

use tidegate_core::{Time, WallTime};

pub use cached::CachedClock;
pub use counter::{CounterClock, CounterUnavailable};
pub use manual::ManualClock;
#[doc(hidden)]
pub use source::ClockSource;
#[doc(hidden)]
pub use timer_backoff::TimerBackoff;

/// A source of time for a store.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns a time that is not affected by setting the wall clock.
    fn now(&self) -> Time;
    /// Returns the wall time. Only calendar quotas use it.
    fn wall(&self) -> WallTime;
    /// Registers a watcher, if this time moves only when a program says so, as in a test, and
    /// returns `true`. Waits then end in the call that moves the time, and need no timers.
    ///
    /// Returns `false`, and ignores the watcher, if time passes by itself: this is the default.
    /// Waits then use the machine's timers.
    fn watch(&self, watcher: Weak<dyn ClockWatcher>) -> bool {
        let _ = watcher;
        false
    }
    /// Converts into the representation used by stores, which reads clocks of this crate without a
    /// virtual call.
    #[doc(hidden)]
    fn into_source(self) -> ClockSource
    where
        Self: Sized + 'static,
    {
        ClockSource::Other(Arc::new(self))
    }
}

/// Is notified when the time of a [`ManualClock`] moves.
pub trait ClockWatcher: Send + Sync {
    /// Called after the time has moved, in the call that moved it.
    fn on_move(self: Arc<Self>);
}

/// The monotonic clock of the operating system, counted from its creation.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// Creates a clock that starts at zero.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the clock module")]
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }

    /// Returns nanoseconds since its creation.
    #[inline]
    fn nanos(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        // 64 bits last for 584 years. Avoid 128-bit arithmetic, since every decision runs this.
        let seconds = elapsed.as_secs().saturating_mul(1_000_000_000);
        seconds.saturating_add(elapsed.subsec_nanos().into())
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
        Time::from_nanos(self.nanos())
    }

    fn wall(&self) -> WallTime {
        wall_now()
    }

    fn into_source(self) -> ClockSource {
        ClockSource::System(self)
    }
}

/// Returns the machine's wall time.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
