//! Instants as stores see them. Nothing here reads a clock: a store passes its own time in.

use core::time::Duration;

/// The longest span that a policy, a hold or a horizon may reach: 100 years of 365.25 days.
///
/// It keeps every instant of the arithmetic inside 64 bits of nanoseconds.
pub const MAX_SPAN: Duration = Duration::from_secs(3_155_760_000);

/// An instant of a store's own clock, in nanoseconds since an origin that the store chooses.
///
/// The in-process store counts from the start of the process, a shared one from the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

impl Time {
    /// The origin of the clock.
    pub const ZERO: Self = Self(0);

    /// The instant `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the origin.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The instant `span` later; the last representable one if that is too far.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(nanos(span)))
    }

    /// How long after `earlier` this instant is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Wall time in nanoseconds since the Unix epoch. Only calendar quotas look at it.
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

    /// Nanoseconds since the Unix epoch.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The moment at which a list of charges is decided.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The store's clock.
    pub time: Time,
    /// The store's wall clock. It may be left at zero when no charge is on a calendar quota.
    pub wall: WallTime,
}

impl Now {
    /// A moment at which nobody asks for the wall clock.
    #[must_use]
    pub const fn at(time: Time) -> Self {
        Self { time, wall: WallTime(0) }
    }
}

/// Three consecutive calendar windows: the previous, the current and the next one.
///
/// The caller computes them from its own wall clock and the time zone; the store picks the one
/// that holds *its* wall time, so a caller whose clock is a little off still counts in the right
/// window. Bounds are whole seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    bounds: [u32; 4],
}

impl Windows {
    /// Windows between four bounds; `None` unless each is later than the one before.
    #[must_use]
    pub fn new(bounds: [u32; 4]) -> Option<Self> {
        bounds.is_sorted_by(|a, b| a < b).then_some(Self { bounds })
    }

    /// The four bounds, in seconds since the Unix epoch.
    #[must_use]
    pub const fn bounds(&self) -> [u32; 4] {
        self.bounds
    }

    /// The end, in seconds since the Unix epoch, of the window that holds `wall`.
    ///
    /// `None` when it is in none of the three: the clocks of caller and store disagree by more
    /// than a window. Windows follow each other without gaps, so the end names the window.
    #[must_use]
    pub fn end_of(&self, wall: WallTime) -> Option<u32> {
        if wall < WallTime::from_secs(self.bounds[0]) {
            return None;
        }
        self.bounds[1..].iter().copied().find(|&end| wall < WallTime::from_secs(end))
    }

    /// Whether one of the three windows ends there.
    pub(crate) fn has_window_ending(&self, ends: u32) -> bool {
        self.bounds[1..].contains(&ends)
    }
}

/// Whole milliseconds of a span, rounded up: whoever waits that long has waited long enough.
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

/// Nanoseconds of a duration, saturating.
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
