//! Constraints: limits of a provider, valid by construction and immutable.
//!
//! All rates are per minute, as providers write them; conversion to an exact [`Rate`] happens only
//! here. A constraint enforces nothing: limiters are created from it.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::Rate;
use tidegate_core::Decimal;
use tidegate_providers::Dimension;

use super::daily::Daily;
use super::raw::{Clamp, RawConstraint};
use super::violation::{Checks, InvalidSettings, Rule, burst, positive, rate};

/// Limits of a provider: requests, tokens, requests per day, minimum interval, burst and
/// concurrency. Each is optional.
///
/// ```
/// use tidegate_llm::plan::{Constraint, RawConstraint};
/// let constraint = Constraint::try_new(&RawConstraint {
///     requests_per_minute: Some(600),
///     tokens_per_minute: Some(90_000),
///     burst_factor: Some(1.5),
///     ..RawConstraint::default()
/// })?;
/// assert_eq!(constraint.burst(), 15);
/// # Ok::<(), tidegate_llm::plan::InvalidSettings>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawConstraint", into = "RawConstraint")]
pub struct Constraint {
    requests: Option<NonZeroU32>,
    tokens: Option<NonZeroU32>,
    input_tokens: Option<NonZeroU32>,
    output_tokens: Option<NonZeroU32>,
    daily: Option<Daily>,
    min_interval: Duration,
    burst_factor: f64,
    burst_capacity: Option<NonZeroU32>,
    concurrency: Option<NonZeroU32>,
}

/// Maximum interval, and maximum burst factor in seconds: one day.
const DAY_SECS: u32 = 86_400;
const DAY_MILLIS: u32 = DAY_SECS * 1_000;

impl Constraint {
    /// Creates a constraint on requests per minute, evenly spaced (burst 1), without other limits.
    #[must_use]
    pub const fn per_minute(requests: NonZeroU32) -> Self {
        Self {
            requests: Some(requests),
            tokens: None,
            input_tokens: None,
            output_tokens: None,
            daily: None,
            min_interval: Duration::ZERO,
            burst_factor: 1.0,
            burst_capacity: None,
            concurrency: None,
        }
    }

    /// Sets the burst: the number of requests that can be sent at once.
    pub const fn with_burst(mut self, requests: NonZeroU32) -> Self {
        self.burst_capacity = Some(requests);
        self
    }

    /// Creates a constraint if every number is valid.
    ///
    /// # Errors
    /// Lists all violations by field, value and rule.
    pub fn try_new(raw: &RawConstraint) -> Result<Self, InvalidSettings> {
        let mut checks = Checks::default();
        let mut amount = |field, given| checks.optional(field, given, |given| rate(*given));
        let constraint = Self {
            requests: amount("requests_per_minute", raw.requests_per_minute),
            tokens: amount("tokens_per_minute", raw.tokens_per_minute),
            input_tokens: amount("input_tokens_per_minute", raw.input_tokens_per_minute),
            output_tokens: amount("output_tokens_per_minute", raw.output_tokens_per_minute),
            daily: Daily::parse(raw, &mut checks),
            min_interval: checks
                .optional("min_interval_ms", raw.min_interval_ms, |given| interval(*given))
                .unwrap_or_default(),
            burst_factor: checks
                .optional("burst_factor", raw.burst_factor, |given| factor(*given))
                .unwrap_or(1.0),
            burst_capacity: checks
                .optional("burst_capacity", raw.burst_capacity, |given| burst(*given)),
            concurrency: checks.optional(
                "max_concurrent_requests",
                raw.max_concurrent_requests,
                |given| positive(*given, Rule::AtLeast(1), u32::MAX),
            ),
        };
        let parts = raw.input_tokens_per_minute.or(raw.output_tokens_per_minute);
        if let (Some(total), Some(_)) = (raw.tokens_per_minute, parts) {
            checks.reject("tokens_per_minute", &total, Rule::TotalOrParts);
        }
        checks.finish(constraint)
    }

    /// Creates a constraint like [`try_new`](Self::try_new), but replaces numbers that are too
    /// small and logs a warning for each: zero requests become one per minute (or day), zero tokens
    /// become no limit on tokens, a burst factor below 1.0 becomes 1.0, and so on.
    ///
    /// # Errors
    /// On violations that have no replacement, such as a burst factor that is not a number, or a
    /// token total together with its parts. Then nothing is logged.
    pub fn clamped(raw: &RawConstraint) -> Result<Self, InvalidSettings> {
        let (raw, clamps) = raw.clamped();
        let constraint = Self::try_new(&raw)?;
        for Clamp { field, given, used } in clamps {
            tracing::warn!(field, given, used, "value too small; replaced");
        }
        Ok(constraint)
    }

    /// Returns the requests per minute.
    #[must_use]
    pub const fn requests_per_minute(&self) -> Option<NonZeroU32> {
        self.requests
    }

    /// Returns the tokens per minute, input and output together.
    #[must_use]
    pub const fn tokens_per_minute(&self) -> Option<NonZeroU32> {
        self.tokens
    }

    /// Returns the input tokens per minute, if limited separately.
    #[must_use]
    pub const fn input_tokens_per_minute(&self) -> Option<NonZeroU32> {
        self.input_tokens
    }

    /// Returns the output tokens per minute, if limited separately.
    #[must_use]
    pub const fn output_tokens_per_minute(&self) -> Option<NonZeroU32> {
        self.output_tokens
    }

    /// Returns the requests per calendar day.
    #[must_use]
    pub fn requests_per_day(&self) -> Option<NonZeroU32> {
        self.daily.as_ref().map(Daily::requests)
    }

    /// Returns the IANA name of the time zone of that day.
    #[must_use]
    pub fn requests_per_day_zone(&self) -> Option<&str> {
        self.daily.as_ref().map(Daily::zone)
    }

    pub(crate) const fn daily(&self) -> Option<&Daily> {
        self.daily.as_ref()
    }

    /// Returns the minimum time between the starts of two requests; zero if there is none.
    #[must_use]
    pub const fn min_interval(&self) -> Duration {
        self.min_interval
    }

    /// Returns the burst factor: the burst in seconds' worth of requests. It never changes the
    /// rate.
    #[must_use]
    pub const fn burst_factor(&self) -> f64 {
        self.burst_factor
    }

    /// Returns the burst if it is set as a number of requests.
    #[must_use]
    pub const fn burst_capacity(&self) -> Option<NonZeroU32> {
        self.burst_capacity
    }

    /// Returns the maximum number of requests in flight.
    #[must_use]
    pub const fn concurrency(&self) -> Option<NonZeroU32> {
        self.concurrency
    }

    /// Returns the exact rate of a dimension that is limited per minute. Requests per day have no
    /// rate: the quota resets at the end of the day.
    ///
    /// ```
    /// use std::num::NonZeroU32;
    /// use tidegate_llm::plan::Constraint;
    /// use tidegate_llm::Dimension;
    /// let constraint = Constraint::per_minute(NonZeroU32::new(60).unwrap());
    /// assert_eq!(constraint.rate(Dimension::Requests), "1/s".parse().ok());
    /// assert_eq!(constraint.rate(Dimension::Tokens), None);
    /// ```
    #[must_use]
    pub fn rate(&self, dimension: Dimension) -> Option<Rate> {
        let per_minute = match dimension {
            Dimension::Requests => self.requests,
            Dimension::Tokens => self.tokens,
            Dimension::InputTokens => self.input_tokens,
            Dimension::OutputTokens => self.output_tokens,
            Dimension::RequestsPerDay => None,
        };
        Rate::per_minute(per_minute?.get().into()).ok()
    }

    /// Returns the number of requests that can be sent at once: the capacity if set; else 1 for a
    /// factor of 1.0, and that many seconds' worth of requests for a larger factor, at least 1.
    #[must_use]
    pub fn burst(&self) -> u64 {
        match self.burst_capacity {
            Some(capacity) => capacity.get().into(),
            None => self.burst_by_factor().unwrap_or(1).max(1),
        }
    }

    /// Returns the whole requests per `burst_factor` seconds, calculated with the decimal as
    /// written.
    fn burst_by_factor(&self) -> Option<u64> {
        if self.burst_factor <= 1.0 {
            return None;
        }
        let factor = Decimal::try_from(self.burst_factor).ok()?;
        let requests = factor.mantissa() * u128::from(self.requests?.get());
        u64::try_from(requests / (factor.denominator() * 60)).ok()
    }
}

fn interval(millis: i64) -> Result<Duration, Rule> {
    let millis = u64::try_from(millis).map_err(|_| Rule::AtLeast(0))?;
    if millis > DAY_MILLIS.into() {
        return Err(Rule::AtMost(DAY_MILLIS));
    }
    Ok(Duration::from_millis(millis))
}

fn factor(given: f64) -> Result<f64, Rule> {
    // NaN is in no range.
    let fits = (1.0..=f64::from(DAY_SECS)).contains(&given);
    fits.then_some(given).ok_or(Rule::Factor(DAY_SECS))
}

impl TryFrom<RawConstraint> for Constraint {
    type Error = InvalidSettings;

    fn try_from(raw: RawConstraint) -> Result<Self, InvalidSettings> {
        Self::try_new(&raw)
    }
}

impl From<Constraint> for RawConstraint {
    /// Converts to raw numbers, with defaults written out.
    fn from(constraint: Constraint) -> Self {
        let number = |value: Option<NonZeroU32>| value.map(|value| value.get().into());
        let millis = i64::try_from(constraint.min_interval.as_millis());
        Self {
            requests_per_minute: number(constraint.requests),
            tokens_per_minute: number(constraint.tokens),
            input_tokens_per_minute: number(constraint.input_tokens),
            output_tokens_per_minute: number(constraint.output_tokens),
            requests_per_day: number(constraint.daily.as_ref().map(Daily::requests)),
            requests_per_day_zone: constraint.daily.map(|daily| daily.zone().to_owned()),
            min_interval_ms: Some(millis.unwrap_or(i64::MAX)),
            burst_factor: Some(constraint.burst_factor),
            burst_capacity: number(constraint.burst_capacity),
            max_concurrent_requests: number(constraint.concurrency),
        }
    }
}

impl fmt::Display for Constraint {
    /// Writes the limits that are set, such as `requests_per_minute=60 burst=1`. Limiters are
    /// identified by this text, so it must contain everything in which two constraints can differ.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = [
            ("requests_per_minute", self.requests),
            ("tokens_per_minute", self.tokens),
            ("input_tokens_per_minute", self.input_tokens),
            ("output_tokens_per_minute", self.output_tokens),
            ("max_concurrent_requests", self.concurrency),
        ];
        for (name, limit) in limits {
            if let Some(limit) = limit {
                write!(f, "{name}={limit} ")?;
            }
        }
        if let Some(daily) = &self.daily {
            let (requests, zone) = (daily.requests(), daily.zone());
            write!(f, "requests_per_day={requests} requests_per_day_zone={zone} ")?;
        }
        if !self.min_interval.is_zero() {
            write!(f, "min_interval_ms={} ", self.min_interval.as_millis())?;
        }
        write!(f, "burst={}", self.burst())
    }
}
