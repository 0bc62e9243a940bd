//! Instants and wall times as seen by a store. Nothing here reads a clock; the store passes its
//! time in.

use core::time::Duration;

/// Maximum span of a policy, a hold or a horizon: 100 years of 365.25 days.
///
/// This bound keeps every instant within 64 bits of nanoseconds.
pub const MAX_SPAN: Duration = Duration::from_secs(3_155_760_000);

/// An instant on a store's clock, in nanoseconds since an origin chosen by the store.
///
/// The in-process store counts from the creation of its clock, a shared store from the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// Origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Returns nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the instant `span` later, saturating.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// Returns the time from `earlier` to this instant; zero if `earlier` is not before it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Wall time in nanoseconds since the Unix epoch. Only calendar quotas use it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(u64);

impl WallTime {
    /// The wall time `nanos` nanoseconds after the Unix epoch.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// The wall time `secs` seconds after the Unix epoch.
    #[must_use]
    pub const fn from_secs(secs: u32) -> Self {
        // 2^32 seconds are 4.3e18 ns and fit.
        Self(secs as u64 * 1_000_000_000)
    }

    /// Returns nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to this one; zero if `earlier` is not before it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The time at which a list of charges is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Time on the store's clock.
    pub time: Time,
    /// The store's wall time. May be zero if no charge is on a calendar quota.
    pub wall: WallTime,
}

impl Now {
    /// Creates a `Now` without a wall time, for lists without calendar quotas.
    #[must_use]
    pub const fn at(time: Time) -> Self {
        Self { time, wall: WallTime(0) }
    }
}

/// Three consecutive calendar windows: the previous, the current and the next one.
///
/// The caller computes them from its wall clock and the time zone. The store selects the one that
/// contains *its* wall time, so a caller whose clock is slightly off still counts in the right
/// window. Bounds are whole seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    bounds: [u32; 4],
}

impl Windows {
    /// Creates three windows from four bounds; `None` unless the bounds are strictly increasing.
    #[must_use]
    pub fn new(bounds: [u32; 4]) -> Option<Self> {
        bounds.is_sorted_by(|a, b| a < b).then_some(Self { bounds })
    }

    /// Returns the four bounds, in seconds since the Unix epoch.
    #[must_use]
    pub const fn bounds(&self) -> [u32; 4] {
        self.bounds
    }

    /// Returns the end, in seconds since the Unix epoch, of the window that contains `wall`.
    ///
    /// Returns `None` if no window contains it: the clocks of caller and store differ by more than
    /// a window. Windows are contiguous, so the end identifies the window.
    #[must_use]
    pub fn end_of(&self, wall: WallTime) -> Option<u32> {
        if wall < WallTime::from_secs(self.bounds[0]) {
            return None;
        }
        self.bounds[1..].iter().copied().find(|&end| wall < WallTime::from_secs(end))
    }

    /// Returns whether one of the three windows ends at `ends`.
    pub(crate) fn has_window_ending(&self, ends: u32) -> bool {
        self.bounds[1..].contains(&ends)
    }
}

/// Returns the span in milliseconds, rounded up so that a wait is never too short.
///
/// ```
/// use std::time::Duration;
/// use tidegate_core::ceil_millis;
/// assert_eq!(ceil_millis(Duration::from_nanos(1)), 1);
/// assert_eq!(ceil_millis(Duration::from_millis(3)), 3);
/// assert_eq!(ceil_millis(Duration::MAX), u64::MAX);
/// ```
#[must_use]
pub fn ceil_millis(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Returns the span in nanoseconds, saturating.
pub(crate) fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn window_is_picked_by_the_store_clock() {
        let windows = Windows::new([10, 20, 30, 40]).unwrap();
        assert_eq!(windows.end_of(WallTime::from_secs(9)), None);
        assert_eq!(windows.end_of(WallTime::from_secs(10)), Some(20));
        assert_eq!(windows.end_of(WallTime::from_nanos(19_999_999_999)), Some(20));
        assert_eq!(windows.end_of(WallTime::from_secs(20)), Some(30));
        assert_eq!(windows.end_of(WallTime::from_secs(39)), Some(40));
        assert_eq!(windows.end_of(WallTime::from_secs(40)), None);
        assert_eq!(Windows::new([10, 10, 30, 40]), None);
    }
}
