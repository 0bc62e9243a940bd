//! Reported state of one limit: its quota, and what is left after a decision.
//!
//! A report is built from a limit and an outcome and does not contain the key.

use std::borrow::Cow;
use std::time::Duration;

use tidegate::{Outcome, Policy, Retry};
use tidegate_core::Limit;

/// Unit that a limit counts.
///
/// The IETF drafts define the first three; `tokens` is an extension. Custom units follow the same
/// rules as names of limits.
///
/// ```
/// use tidegate_http::field::Unit;
/// assert_eq!(Unit::default(), Unit::REQUESTS);
/// assert_eq!(Unit::named("pages").unwrap().as_str(), "pages");
/// assert_eq!(Unit::named("two words"), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unit(&'static str);

impl Unit {
    /// Requests: the default of the drafts, therefore never written.
    pub const REQUESTS: Self = Self("requests");
    /// Bytes of content.
    pub const CONTENT_BYTES: Self = Self("content-bytes");
    /// Concurrent requests.
    pub const CONCURRENT_REQUESTS: Self = Self("concurrent-requests");
    /// Tokens of a language model.
    pub const TOKENS: Self = Self("tokens");

    /// Creates a custom unit: a lower-case letter, then lower-case letters, digits or `-`.
    #[must_use]
    pub const fn named(name: &'static str) -> Option<Self> {
        let bytes = name.as_bytes();
        let mut index = 0;
        while index < bytes.len() {
            let byte = bytes[index];
            let inside = index > 0 && (byte.is_ascii_digit() || byte == b'-');
            if !(byte.is_ascii_lowercase() || inside) {
                return None;
            }
            index += 1;
        }
        if bytes.is_empty() { None } else { Some(Self(name)) }
    }

    /// Returns the name used in header fields.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

impl Default for Unit {
    fn default() -> Self {
        Self::REQUESTS
    }
}

/// State of one limit, as reported to callers.
///
/// ```
/// use tidegate::{Limiter, Policy};
/// use tidegate_http::field::Report;
///
/// let limiter = Limiter::new(Policy::per_second(2).capacity(5).build()?);
/// let decision = limiter.take("alice").now()?;
/// let limit = limiter.limit();
/// let report = Report::of(&limit, &decision.outcomes()[0]);
/// assert_eq!((report.name(), report.quota(), report.remaining()), ("default", 5, 4));
/// // Five tokens at two a second: full after 2.5 seconds, rounded up.
/// assert_eq!(report.window(), Some(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report<'a> {
    name: Cow<'a, str>,
    quota: u64,
    window: Option<u64>,
    unit: Unit,
    remaining: u64,
    reset: Option<Duration>,
    retry: Option<Retry>,
    /// Whether the limit is an allowance, which does not refill.
    allowance: bool,
}

impl<'a> Report<'a> {
    /// Name reported for limits without one.
    pub const UNNAMED: &'static str = "default";

    /// Reports `limit` after `outcome`. Concurrency limits count concurrent requests, all others
    /// requests, unless [`with_unit`](Self::with_unit) sets another unit.
    #[must_use]
    pub fn of(limit: &'a Limit, outcome: &Outcome) -> Self {
        let (window, unit) = match limit.policy() {
            Policy::Bucket(bucket) => {
                let full = bucket.time_to_full();
                let nanos = full.ns.saturating_add(u64::from(full.part > 0));
                (Some(nanos.div_ceil(1_000_000_000).max(1)), Unit::REQUESTS)
            }
            Policy::Concurrency(_) => (None, Unit::CONCURRENT_REQUESTS),
            _ => (None, Unit::REQUESTS),
        };
        Self {
            name: Cow::Borrowed(if limit.is_inline() { Self::UNNAMED } else { limit.name() }),
            quota: outcome.capacity,
            window,
            unit,
            remaining: outcome.remaining,
            reset: outcome.reset,
            retry: outcome.retry,
            allowance: matches!(limit.policy(), Policy::Allowance(_)),
        }
    }

    /// Sets the unit.
    #[must_use]
    pub fn with_unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Returns the name of the limit, or [`UNNAMED`](Self::UNNAMED) if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the maximum that can remain: the capacity of the limit.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.quota
    }

    /// Returns the seconds in which an empty bucket refills, rounded up; `None` for other policies.
    #[must_use]
    pub const fn window(&self) -> Option<u64> {
        self.window
    }

    /// Returns the unit counted.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// Returns how much is left.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// Returns the time until the limit is full again; `None` if it does not refill with time.
    #[must_use]
    pub const fn reset(&self) -> Option<Duration> {
        self.reset
    }

    /// Returns when this limit alone would admit the request; `None` if it does now.
    #[must_use]
    pub const fn retry(&self) -> Option<Retry> {
        self.retry
    }

    /// Returns whether this is an allowance that has been drawn on, which never refills.
    #[cfg(feature = "tonic")]
    pub(crate) const fn is_used_up(&self) -> bool {
        self.allowance && self.remaining < self.quota
    }

    /// Converts the report into one that borrows nothing.
    #[must_use]
    pub fn into_owned(self) -> Report<'static> {
        Report { name: Cow::Owned(self.name.into_owned()), ..self }
    }

    /// Returns the report to show where a format has space for only one: the denying limit with the
    /// longest wait, or else the limit with the least left.
    pub(crate) fn binding(reports: &[Self]) -> Option<&Self> {
        let mut binding = reports.first()?;
        for report in &reports[1..] {
            let tighter = report.retry > binding.retry
                || (report.retry == binding.retry && report.remaining < binding.remaining);
            if tighter {
                binding = report;
            }
        }
        Some(binding)
    }
}
