//! Retry hints in header fields.
//!
//! `Retry-After` has whole seconds only, so it is rounded up. `retry-after-ms` has milliseconds;
//! the clients of large vendors read it first.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate::Retry;
use tidegate_core::ceil_millis;

use super::value_writer::ceil_seconds;

/// Header field `retry-after-ms`: milliseconds until a retry is worthwhile.
pub static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// A retry hint for callers.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Retry;
/// use tidegate_core::ceil_millis;
/// use tidegate_http::field::RetryAfter;
///
/// let hint = RetryAfter::of(Retry::After(Duration::from_micros(1_200_300))).unwrap();
/// assert_eq!((hint.seconds(), hint.millis()), (2, 1_201));
/// // A request that can never fit gets no hint.
/// assert_eq!(RetryAfter::of(Retry::Never), None);
/// // It is unknown when a slot is released; the hint is one second.
/// assert_eq!(RetryAfter::of(Retry::OnRelease).unwrap().seconds(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(Duration);

impl RetryAfter {
    /// Hint for a request that waits for a slot: the time of release is unknown, and one second is
    /// the minimum of `Retry-After`.
    pub const ON_RELEASE: Self = Self(Duration::from_secs(1));

    /// Converts a retry outcome to a hint; `None` if a retry cannot succeed.
    #[must_use]
    pub const fn of(retry: Retry) -> Option<Self> {
        match retry {
            Retry::After(wait) => Some(Self(wait)),
            Retry::OnRelease => Some(Self::ON_RELEASE),
            // Also variants of later versions: no hint is better than a wrong one.
            _ => None,
        }
    }

    /// Returns the wait, not rounded.
    #[must_use]
    pub const fn wait(self) -> Duration {
        self.0
    }

    /// Returns the value of `Retry-After`: whole seconds, rounded up, at least one.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        let seconds = ceil_seconds(self.0);
        if seconds == 0 { 1 } else { seconds }
    }

    /// Returns the value of `retry-after-ms`: milliseconds, rounded up, at least one.
    #[must_use]
    pub fn millis(self) -> u64 {
        ceil_millis(self.0).max(1)
    }

    /// Sets both fields in a response and replaces existing ones.
    pub fn write(self, headers: &mut HeaderMap) {
        headers.insert(RETRY_AFTER, HeaderValue::from(self.seconds()));
        headers.insert(&RETRY_AFTER_MS, HeaderValue::from(self.millis()));
    }
}

impl From<Duration> for RetryAfter {
    fn from(wait: Duration) -> Self {
        Self(wait)
    }
}
