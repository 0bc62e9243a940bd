//! Clocks. This is the only module that reads the time of the machine.
//!
//! A store owns its clock; no operation carries the caller's time. What a reading costs is most of
//! what the shortest decision costs, so there are three clocks of the machine:
//!
//! - [`CounterClock`] reads the processor's own counter, where that can be trusted. It is what a
//!   store has unless it is given another.
//! - [`SystemClock`] asks the operating system. It is there always, and costs two to three times
//!   as much.
//! - [`CachedClock`] is a word in memory that somebody else keeps up to date: next to nothing, for
//!   those who accept a time that is a little old, and so a limit that is exact in the long run
//!   but not within every span.
//!
//! None of them ever runs backwards, also not between two threads of which one has heard of the
//! other. Tests drive a [`ManualClock`], which does as it is told.

mod cached;
mod calibration;
mod counter;
mod manual;
#[cfg(all(test, loom))]
mod model_loom;
mod seqlock;
mod source;
mod ticks;

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use tidegate_core::{Time, WallTime};

pub use cached::CachedClock;
pub use counter::{CounterClock, NoCounter};
pub use manual::ManualClock;
#[doc(hidden)]
pub use source::ClockSource;

/// A source of time for a store.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Time that does not depend on the wall clock being set.
    fn now(&self) -> Time;
    /// Wall time; only calendar quotas look at it.
    fn wall(&self) -> WallTime;
    /// What a store makes of it: clocks of this crate are read without a virtual call.
    #[doc(hidden)]
    fn into_source(self) -> ClockSource
    where
        Self: Sized + 'static,
    {
        ClockSource::Other(Arc::new(self))
    }
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

    /// Nanoseconds since its creation.
    #[inline]
    fn nanos(&self) -> u64 {
        let elapsed = self.origin.elapsed();
        // In 64 bits, which last for 584 years: this is on the way of every decision.
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

/// The wall time of the machine.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the clock module")]
pub fn wall_now() -> WallTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    WallTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
