//! The only place in the benchmarks that reads the clock.

use std::time::{Duration, Instant};

/// Measures time from its start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch {
    started: Instant,
}

impl Stopwatch {
    #[allow(clippy::disallowed_methods, reason = "a benchmark measures real time")]
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }

    #[inline]
    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whole nanoseconds since the start.
    #[inline]
    pub(crate) fn nanos(&self) -> u64 {
        u64::try_from(self.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}
