//! What is told of one limit: its quota, and how it stands after a decision.
//!
//! A report is made of a limit and an outcome and says nothing of the key.

use std::borrow::Cow;
use std::time::Duration;

use tidegate::{Outcome, Policy, Retry};
use tidegate_core::Limit;

/// What a limit counts.
///
/// The drafts define the first three; tokens are ours. Others are named like limits.
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
    /// Requests. This is what the drafts take for granted, so it is never written.
    pub const REQUESTS: Self = Self("requests");
    /// Bytes of content.
    pub const CONTENT_BYTES: Self = Self("content-bytes");
    /// Requests at the same time.
    pub const CONCURRENT_REQUESTS: Self = Self("concurrent-requests");
    /// Tokens of a language model.
    pub const TOKENS: Self = Self("tokens");

    /// Another unit: a lower-case letter, then lower-case letters, digits or `-`.
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

    /// The name on the wire.
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

/// How one limit stands, as callers are told.
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
    /// Time brings nothing back.
    allowance: bool,
}

impl<'a> Report<'a> {
    /// The name under which limits without one are told of.
    pub const UNNAMED: &'static str = "default";

    /// What is told of a limit after this outcome. Slots count concurrent requests, all else
    /// counts requests unless [said otherwise](Self::counting).
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

    /// The same report of a limit that counts something else.
    #[must_use]
    pub fn counting(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// The name of the limit, [`UNNAMED`](Self::UNNAMED) if it has none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The most that can be left.
    #[must_use]
    pub const fn quota(&self) -> u64 {
        self.quota
    }

    /// The seconds in which an empty bucket fills, rounded up; `None` for all that is no bucket.
    #[must_use]
    pub const fn window(&self) -> Option<u64> {
        self.window
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(&self) -> Unit {
        self.unit
    }

    /// What is left.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.remaining
    }

    /// How long until all is there again; `None` if time alone does not bring it back.
    #[must_use]
    pub const fn reset(&self) -> Option<Duration> {
        self.reset
    }

    /// When this limit alone would let the request pass; `None` if it does now.
    #[must_use]
    pub const fn retry(&self) -> Option<Retry> {
        self.retry
    }

    /// Whether this is an allowance of which something is gone for good.
    #[cfg(feature = "tonic")]
    pub(crate) const fn is_used_up(&self) -> bool {
        self.allowance && self.remaining < self.quota
    }

    /// The same report, on its own.
    #[must_use]
    pub fn into_owned(self) -> Report<'static> {
        Report { name: Cow::Owned(self.name.into_owned()), ..self }
    }

    /// The report to tell where there is room for one: of those that deny the one with the longest
    /// wait, else the one with the least left.
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
