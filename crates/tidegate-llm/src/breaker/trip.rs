//! What opens a circuit, and for how long.

use std::time::Duration;

/// What opens a circuit, and for how long.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::breaker::Trip;
/// let trip = Trip::after_failures(3).cool_down(Duration::from_secs(1), Duration::from_secs(30));
/// # let _ = trip;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trip {
    failures: u32,
    shortest: Duration,
    longest: Duration,
}

impl Default for Trip {
    /// Five failures in a row; 5 seconds, doubling up to 60 with every probe that fails.
    fn default() -> Self {
        Self { failures: 5, shortest: Duration::from_secs(5), longest: Duration::from_secs(60) }
    }
}

impl Trip {
    /// After so many failures in a row, one at least.
    #[must_use]
    pub fn after_failures(failures: u32) -> Self {
        Self { failures: failures.max(1), ..Self::default() }
    }

    /// How long it is open: `shortest` at first, twice as long after every probe that fails, never
    /// above `longest`.
    #[must_use]
    pub const fn cool_down(mut self, shortest: Duration, longest: Duration) -> Self {
        (self.shortest, self.longest) = (shortest, longest);
        self
    }

    pub(super) const fn failures(&self) -> u32 {
        self.failures
    }

    /// How long it is open after so many probes in a row that failed.
    pub(super) fn pause(&self, failed_probes: u32) -> Duration {
        self.shortest.saturating_mul(1 << failed_probes.min(31)).min(self.longest)
    }
}
