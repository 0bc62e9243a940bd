//! Configuration of limits.
//!
//! Unset limits do not apply. Limits are validated when the simulator is built; which ones a
//! provider has depends on its dialect.

pub(crate) mod capacity;
pub(crate) mod charging;
pub(crate) mod pool;
pub(crate) mod quota;

use std::time::Duration;

use crate::calendar::{DAY, MINUTE, Now, SECOND, Zone, nanos};
use crate::dialect::Dialect;
use crate::error::BuildError;

/// The limits of a model, or of several models that share them.
///
/// ```
/// use std::time::Duration;
/// use tidegate_sim::{Limits, Zone};
///
/// let limits = Limits::new()
///     .requests_per_minute(600)
///     .tokens_per_minute(90_000)
///     .requests_per_day(10_000, Zone::UTC)
///     .slice(Duration::from_secs(1)); // at most ten requests in each second
/// # let _ = limits;
/// ```
///
/// Limits per minute are buckets that hold a minute's worth, start full and refill continuously.
/// Slices and days are fixed windows, except refilling days.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "limits do nothing until they are added to an account"]
pub struct Limits {
    pub(crate) requests: Option<u64>,
    pub(crate) tokens: Option<u64>,
    pub(crate) input: Option<u64>,
    pub(crate) output: Option<u64>,
    pub(crate) day: Option<PerDay>,
    pub(crate) concurrency: Option<u64>,
    pub(crate) queue: Option<u64>,
    pub(crate) slice: Option<u64>,
    pub(crate) token_slice: Option<u64>,
    pub(crate) phase: u64,
    pub(crate) ramp: Option<(u64, u64)>,
}

/// Requests per day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PerDay {
    /// The quota resets at midnight.
    UntilMidnight(u64, Zone),
    /// The quota refills continuously.
    Refilling(u64),
}

impl PerDay {
    pub(crate) const fn limit(self) -> u64 {
        match self {
            Self::UntilMidnight(limit, _) | Self::Refilling(limit) => limit,
        }
    }

    /// Returns the wait that is reported when the quota is exhausted, in nanoseconds.
    pub(crate) fn left(self, now: Now) -> u64 {
        match self {
            Self::UntilMidnight(_, zone) => zone.day(now).1,
            Self::Refilling(limit) => DAY / limit.max(1),
        }
    }
}

impl Limits {
    /// Creates limits with none set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the limits of an Azure deployment: tokens per minute, and six requests per minute
    /// for every thousand tokens.
    pub fn azure_deployment(tokens_per_minute: u64) -> Self {
        let requests = tokens_per_minute.saturating_mul(6) / 1_000;
        Self::new().tokens_per_minute(tokens_per_minute).requests_per_minute(requests)
    }

    /// Limits requests per minute.
    pub fn requests_per_minute(mut self, limit: u64) -> Self {
        self.requests = Some(limit);
        self
    }

    /// Limits tokens per minute, input and output together.
    pub fn tokens_per_minute(mut self, limit: u64) -> Self {
        self.tokens = Some(limit);
        self
    }

    /// Limits input tokens per minute.
    pub fn input_tokens_per_minute(mut self, limit: u64) -> Self {
        self.input = Some(limit);
        self
    }

    /// Limits output tokens per minute.
    pub fn output_tokens_per_minute(mut self, limit: u64) -> Self {
        self.output = Some(limit);
        self
    }

    /// Limits requests per day; the quota resets at midnight in the zone.
    pub fn requests_per_day(mut self, limit: u64, zone: Zone) -> Self {
        self.day = Some(PerDay::UntilMidnight(limit, zone));
        self
    }

    /// Limits requests per day, refilled continuously: with 200, another request becomes available
    /// every 7m12s. OpenAI and Groq report it in their `-requests` headers, OpenAI instead of the
    /// limit per minute. Replaces [`requests_per_day`](Self::requests_per_day).
    pub fn requests_per_day_refilling(mut self, limit: u64) -> Self {
        self.day = Some(PerDay::Refilling(limit));
        self
    }

    /// Limits concurrent calls, until the last byte of their responses. Further calls are rejected,
    /// or wait in the [`queue`](Self::queue). Default for Ollama: 1.
    pub fn concurrency(mut self, limit: u64) -> Self {
        self.concurrency = Some(limit);
        self
    }

    /// Sets how many calls may wait for [`concurrency`](Self::concurrency) before further ones are
    /// rejected. Default: 512 for Ollama, unlimited for DeepSeek, none for others.
    pub fn queue(mut self, places: u64) -> Self {
        self.queue = Some(places);
        self
    }

    /// Enforces requests per minute in slices of this length as well: each allows its share of the
    /// limit, rounded up. [`slice_tokens`](Self::slice_tokens) does the same for tokens. Default
    /// for Together: one second.
    pub fn slice(mut self, length: Duration) -> Self {
        self.slice = Some(nanos(length));
        self
    }

    /// Enforces tokens, input tokens and output tokens per minute in slices of this length as well:
    /// each allows its share of the limit, rounded up. A larger call is admitted if its slice is
    /// unused.
    ///
    /// A rejection names the limit per minute, reports what remains of the minute, and waits for
    /// the next slice. Settlements do not change a slice; a failed call that is free is refunded to
    /// its slice while that lasts. Default: off.
    pub fn slice_tokens(mut self, length: Duration) -> Self {
        self.token_slice = Some(nanos(length));
        self
    }

    /// Sets how much of the first slice, of the first minute of
    /// [`acceleration`](Self::acceleration), and of the first second of
    /// [`Reporting::PerSecond`](crate::Reporting::PerSecond) has passed when the simulator starts.
    /// Default: zero.
    pub fn phase(mut self, phase: Duration) -> Self {
        self.phase = nanos(phase);
        self
    }

    /// Rejects sharp rises: allows at most `factor` times the requests of the previous minute, and
    /// at least `floor`.
    pub fn acceleration(mut self, floor: u64, factor: u64) -> Self {
        self.ramp = Some((floor, factor));
        self
    }

    /// Returns these limits with the defaults of the dialect.
    pub(crate) fn completed(mut self, dialect: Dialect) -> Self {
        match dialect {
            Dialect::Together if self.requests.is_some() => {
                self.slice = self.slice.or(Some(SECOND));
            }
            Dialect::DeepSeek => self.queue = self.queue.or(Some(u64::MAX)),
            Dialect::Ollama => {
                self.concurrency = self.concurrency.or(Some(1));
                self.queue = self.queue.or(Some(512));
            }
            _ => {}
        }
        self
    }

    /// Rejects invalid limits, and limits that the provider does not have.
    pub(crate) fn check(&self, dialect: Dialect) -> Result<(), BuildError> {
        let numbers = [
            ("requests per minute", self.requests),
            ("tokens per minute", self.tokens),
            ("input tokens per minute", self.input),
            ("output tokens per minute", self.output),
            ("requests per day", self.day.map(PerDay::limit)),
            ("concurrency", self.concurrency),
            ("acceleration", self.ramp.map(|(floor, _)| floor)),
        ];
        for (limit, number) in numbers {
            if number == Some(0) {
                return Err(BuildError::ZeroLimit { limit });
            }
            if number.is_some() && !dialect.has_limit(limit) {
                return Err(BuildError::UnknownLimit { dialect, limit });
            }
        }
        let mut lengths = self.slice.into_iter().chain(self.token_slice);
        if lengths.any(|length| length == 0 || length > MINUTE) {
            return Err(BuildError::SliceLength);
        }
        if self.slice.is_some() && self.requests.is_none() {
            return Err(BuildError::SliceWithoutLimit);
        }
        let tokens = self.tokens.or(self.input).or(self.output);
        if self.token_slice.is_some() && tokens.is_none() {
            return Err(BuildError::TokenSliceWithoutLimit);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_limits_are_rejected() {
        let check =
            |limits: Limits| limits.check(Dialect::OpenAi).map_err(|error| error.to_string());
        assert!(check(Limits::new().requests_per_minute(0)).is_err());
        assert!(check(Limits::new().concurrency(0)).is_err());
        assert!(check(Limits::new().slice(Duration::from_secs(1))).is_err());
        let sliced = Limits::new().requests_per_minute(60);
        assert!(check(sliced.clone().slice(Duration::ZERO)).is_err());
        assert!(check(sliced.clone().slice(Duration::from_secs(61))).is_err());
        assert!(check(sliced.clone().slice(Duration::from_secs(60))).is_ok());
        assert!(check(sliced.slice_tokens(Duration::from_secs(1))).is_err());
        let sliced = Limits::new().tokens_per_minute(60);
        assert!(check(sliced.clone().slice_tokens(Duration::ZERO)).is_err());
        assert!(check(sliced.clone().slice_tokens(Duration::from_secs(61))).is_err());
        assert!(check(sliced.slice_tokens(Duration::from_secs(10))).is_ok());
    }

    #[test]
    fn unsupported_limits_are_rejected() {
        let split = Limits::new().input_tokens_per_minute(10).output_tokens_per_minute(10);
        assert!(split.check(Dialect::Anthropic).is_ok());
        assert!(split.check(Dialect::OpenAi).is_err());
        assert!(split.check(Dialect::Gemini).is_err());
        assert!(Limits::new().tokens_per_minute(10).check(Dialect::Gemini).is_err());
        assert!(Limits::new().requests_per_minute(10).check(Dialect::Ollama).is_err());
        assert!(Limits::new().concurrency(4).check(Dialect::DeepSeek).is_ok());
    }

    #[test]
    fn azure_deployment_derives_requests_from_tokens() {
        let limits = Limits::azure_deployment(10_000);
        assert_eq!((limits.tokens, limits.requests), (Some(10_000), Some(60)));
    }
}
