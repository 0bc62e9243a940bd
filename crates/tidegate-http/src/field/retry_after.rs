//! When to try again, in header fields.
//!
//! `Retry-After` has whole seconds only, so it is rounded up; `retry-after-ms` beside it is what
//! the clients of large vendors look at first.

use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use tidegate::Retry;
use tidegate_core::ceil_millis;

use super::line::whole_seconds;

/// The field `retry-after-ms`: milliseconds until a retry is worth it.
pub static RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");

/// A wait that callers are told.
///
/// ```
/// use std::time::Duration;
/// use tidegate::Retry;
/// use tidegate_core::ceil_millis;
/// use tidegate_http::field::RetryAfter;
///
/// let told = RetryAfter::of(Retry::After(Duration::from_micros(1_200_300))).unwrap();
/// assert_eq!((told.seconds(), told.millis()), (2, 1_201));
/// // What can never fit is not worth a retry.
/// assert_eq!(RetryAfter::of(Retry::Never), None);
/// // Nobody knows when a slot is released: a second is as good as any.
/// assert_eq!(RetryAfter::of(Retry::OnRelease).unwrap().seconds(), 1);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryAfter(Duration);

impl RetryAfter {
    /// The hint when a slot must be released first: nobody knows when, and a second is the
    /// shortest that `Retry-After` can say.
    pub const ON_RELEASE: Self = Self(Duration::from_secs(1));

    /// What is told of this hint; `None` if a retry is of no use.
    #[must_use]
    pub const fn of(retry: Retry) -> Option<Self> {
        match retry {
            Retry::After(wait) => Some(Self(wait)),
            Retry::OnRelease => Some(Self::ON_RELEASE),
            // Also what later versions may add: no hint is better than a wrong one.
            _ => None,
        }
    }

    /// The wait, not rounded.
    #[must_use]
    pub const fn wait(self) -> Duration {
        self.0
    }

    /// For `Retry-After`: whole seconds, rounded up, at least one.
    #[must_use]
    pub const fn seconds(self) -> u64 {
        let seconds = whole_seconds(self.0);
        if seconds == 0 { 1 } else { seconds }
    }

    /// For `retry-after-ms`: milliseconds, rounded up, at least one.
    #[must_use]
    pub fn millis(self) -> u64 {
        ceil_millis(self.0).max(1)
    }

    /// Puts both fields into a response, in place of any that are there.
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
