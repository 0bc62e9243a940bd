//! Settings of the rate-limit module: the section `[modules.rate_limit]`.

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::{Checks, Constraint, InvalidSettings, RawConstraint, Rule, burst, rate};

/// Rate limits of calls.
///
/// A limit that is not set is that of the registry. If the registry has none either, it is learned
/// from what the provider reports, and nothing limits until then. Settings without any limit are not
/// the same as `true`: they mean 60 requests per minute with a burst of 60, like an empty section
/// `[modules.rate_limit]`.
///
/// Numbers are checked when a model is loaded; the error lists every violation.
///
/// ```
/// use std::time::Duration;
/// use tidegate_llm::mock::Mock;
/// use tidegate_llm::models::Models;
/// use tidegate_llm::settings::RateLimitSettings;
///
/// let models = Models::builder().backend("mock", Mock::new("mock")).build();
/// let limits = RateLimitSettings::new()
///     .requests_per_minute(500)
///     .burst(10)
///     .tokens_per_minute(90_000)
///     .min_interval(Duration::from_millis(20))
///     .concurrency(16);
/// models.load_model("mock", "any").rate_limit(limits).build()?;
///
/// let wrong = RateLimitSettings::new().requests_per_minute(0);
/// let error = models.load_model("mock", "any").rate_limit(wrong).build().unwrap_err();
/// assert!(error.to_string().ends_with("requests_per_minute = 0: must be > 0"));
/// # Ok::<(), tidegate_llm::models::LoadError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[must_use]
pub struct RateLimitSettings {
    #[serde(skip_serializing_if = "Option::is_none")]
    enabled: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    learned: Option<bool>,
    /// Whether it was given as `true` or `false`, and so asks for no limits of its own.
    #[serde(skip)]
    is_switch: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_minute: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_capacity: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_per_minute: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens_per_minute: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_tokens_per_minute: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_day: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requests_per_day_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_interval_ms: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_concurrent_requests: Option<i64>,
}

/// Requests per minute of settings without any limit.
const DEFAULT_REQUESTS: i64 = 60;

impl RateLimitSettings {
    /// Creates settings without values.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates settings that ignore the limits of the registry. Limits that are not set here are
    /// learned from what the provider reports, and so is the concurrency. Calls are paced 1.5 %
    /// below the limits, since a provider that counts each second separately occasionally rejects
    /// calls at exactly its limit.
    ///
    /// ```
    /// use tidegate_llm::mock::Mock;
    /// use tidegate_llm::models::Models;
    /// use tidegate_llm::settings::RateLimitSettings;
    ///
    /// let models = Models::builder().backend("mock", Mock::new("mock")).build();
    /// let limits = RateLimitSettings::learned().concurrency(4);
    /// models.load_model("mock", "any").rate_limit(limits).build()?;
    /// # Ok::<(), tidegate_llm::models::LoadError>(())
    /// ```
    pub fn learned() -> Self {
        Self { learned: Some(true), ..Self::default() }
    }

    /// Returns the settings of the section `[modules.rate_limit]`: one without any limit has the
    /// default.
    pub(crate) fn section(self) -> Self {
        let requests = self.requests();
        Self { requests_per_minute: requests, ..self }
    }

    /// Turns the module on or off. Default: off in a registry, on for a model that is loaded with
    /// settings.
    pub const fn enabled(mut self, enabled: bool) -> Self {
        self.enabled = Some(enabled);
        self
    }

    /// Sets the requests per minute, at least 1. Default: 60 if no limit is set, or only a burst; else
    /// learned.
    pub fn requests_per_minute(mut self, requests: u32) -> Self {
        self.requests_per_minute = Some(requests.into());
        self
    }

    /// Sets the number of requests that can be sent at once, at least 1. Default: one minute's
    /// worth.
    pub fn burst(mut self, requests: u32) -> Self {
        self.burst_capacity = Some(requests.into());
        self
    }

    /// Sets the tokens per minute, input and output together, at least 1. Default: learned.
    pub fn tokens_per_minute(mut self, tokens: u32) -> Self {
        self.tokens_per_minute = Some(tokens.into());
        self
    }

    /// Sets the input tokens per minute, at least 1, for providers that limit them separately.
    /// Cannot be combined with [`tokens_per_minute`](Self::tokens_per_minute).
    pub fn input_tokens_per_minute(mut self, tokens: u32) -> Self {
        self.input_tokens_per_minute = Some(tokens.into());
        self
    }

    /// Sets the output tokens per minute, at least 1, for providers that limit them separately.
    /// Cannot be combined with [`tokens_per_minute`](Self::tokens_per_minute).
    pub fn output_tokens_per_minute(mut self, tokens: u32) -> Self {
        self.output_tokens_per_minute = Some(tokens.into());
        self
    }

    /// Sets the requests per calendar day of a time zone such as `UTC`, at least 1. Further calls
    /// fail at once; they do not wait for the next day.
    pub fn requests_per_day(mut self, requests: u32, zone: impl Into<String>) -> Self {
        self.requests_per_day = Some(requests.into());
        self.requests_per_day_zone = Some(zone.into());
        self
    }

    /// Sets the minimum time between the starts of two requests, up to a day, in whole milliseconds
    /// (rounded down).
    pub fn min_interval(mut self, interval: Duration) -> Self {
        self.min_interval_ms = Some(i64::try_from(interval.as_millis()).unwrap_or(i64::MAX));
        self
    }

    /// Sets the maximum number of calls in flight, at least 1. It replaces the provider's default.
    /// The limit of a [`Profile`](crate::models::Profile) and the cap of the registry apply as
    /// well.
    pub fn concurrency(mut self, calls: u32) -> Self {
        self.max_concurrent_requests = Some(calls.into());
        self
    }

    /// Returns these settings with the values that are set in `overrides` replaced.
    pub(crate) fn merged(self, overrides: &Self) -> Self {
        let given = overrides.clone();
        if given.learned == Some(true) {
            return Self { enabled: given.enabled.or(self.enabled), ..given };
        }
        // A token total and its parts exclude each other: the override replaces the other kind.
        let parts = given.input_tokens_per_minute.or(given.output_tokens_per_minute).is_some();
        let total = given.tokens_per_minute.is_some();
        Self {
            enabled: given.enabled.or(self.enabled),
            learned: given.learned.or(self.learned),
            is_switch: self.is_switch && given.is_switch,
            requests_per_minute: given.requests_per_minute.or(self.requests_per_minute),
            burst_capacity: given.burst_capacity.or(self.burst_capacity),
            tokens_per_minute: given
                .tokens_per_minute
                .or(self.tokens_per_minute.filter(|_| !parts)),
            input_tokens_per_minute: given
                .input_tokens_per_minute
                .or(self.input_tokens_per_minute.filter(|_| !total)),
            output_tokens_per_minute: given
                .output_tokens_per_minute
                .or(self.output_tokens_per_minute.filter(|_| !total)),
            requests_per_day: given.requests_per_day.or(self.requests_per_day),
            requests_per_day_zone: given.requests_per_day_zone.or(self.requests_per_day_zone),
            min_interval_ms: given.min_interval_ms.or(self.min_interval_ms),
            max_concurrent_requests: given.max_concurrent_requests.or(self.max_concurrent_requests),
        }
    }

    pub(crate) const fn is_enabled(&self) -> Option<bool> {
        self.enabled
    }

    pub(crate) fn is_learned(&self) -> bool {
        self.learned == Some(true)
    }

    /// Returns whether the module was only turned on or off: by `true` or `false`, and without
    /// settings of the registry.
    pub(crate) const fn is_switch(&self) -> bool {
        self.is_switch
    }

    /// Returns the maximum number of calls in flight, if set.
    pub(crate) const fn max_in_flight(&self) -> Option<i64> {
        self.max_concurrent_requests
    }

    /// Checks a number of requests per minute.
    ///
    /// # Errors
    /// If the number is not > 0 or too large.
    pub fn check_rate(requests_per_minute: i64) -> Result<NonZeroU32, InvalidSettings> {
        checked("requests_per_minute", requests_per_minute, rate)
    }

    /// Checks a burst capacity.
    ///
    /// # Errors
    /// If the number is not >= 1 or too large.
    pub fn check_burst_capacity(burst_capacity: i64) -> Result<NonZeroU32, InvalidSettings> {
        checked("burst_capacity", burst_capacity, burst)
    }

    /// Returns the requests per minute: by default 60, unless other limits are set or all are to be
    /// learned.
    fn requests(&self) -> Option<i64> {
        let others = [
            self.tokens_per_minute,
            self.input_tokens_per_minute,
            self.output_tokens_per_minute,
            self.requests_per_day,
            self.min_interval_ms,
            self.max_concurrent_requests,
        ];
        let is_empty = !self.is_switch && others.iter().all(Option::is_none);
        let has_default = !self.is_learned() && (is_empty || self.burst_capacity.is_some());
        self.requests_per_minute.or(has_default.then_some(DEFAULT_REQUESTS))
    }

    /// Returns the limits as a constraint; `None` if every limit is learned.
    ///
    /// ```
    /// use tidegate_llm::settings::RateLimitSettings;
    /// let constraint = RateLimitSettings::new().requests_per_minute(120).constraint()?;
    /// assert_eq!(constraint.unwrap().burst(), 120);
    /// assert_eq!(RateLimitSettings::new().constraint()?.unwrap().burst(), 60);
    /// assert_eq!(RateLimitSettings::from(true).constraint()?, None);
    /// # Ok::<(), tidegate_llm::plan::InvalidSettings>(())
    /// ```
    ///
    /// # Errors
    /// Lists every violation.
    pub fn constraint(&self) -> Result<Option<Constraint>, InvalidSettings> {
        let raw = RawConstraint {
            requests_per_minute: self.requests(),
            tokens_per_minute: self.tokens_per_minute,
            input_tokens_per_minute: self.input_tokens_per_minute,
            output_tokens_per_minute: self.output_tokens_per_minute,
            requests_per_day: self.requests_per_day,
            requests_per_day_zone: self.requests_per_day_zone.clone(),
            min_interval_ms: self.min_interval_ms,
            burst_factor: None,
            burst_capacity: self.burst_capacity,
            max_concurrent_requests: self.max_concurrent_requests,
        };
        if raw == RawConstraint::default() {
            return Ok(None);
        }
        let constraint = Constraint::try_new(&raw)?;
        Ok(Some(match (self.burst_capacity, constraint.requests_per_minute()) {
            (None, Some(requests)) => constraint.with_burst(requests),
            _ => constraint,
        }))
    }
}

/// Turns the module on or off. The limits are those of the registry; without any, all are learned.
impl From<bool> for RateLimitSettings {
    fn from(enabled: bool) -> Self {
        Self { is_switch: true, ..Self::new().enabled(enabled) }
    }
}

/// Checks the number of one field.
fn checked(
    field: &'static str,
    given: i64,
    check: impl FnOnce(i64) -> Result<NonZeroU32, Rule>,
) -> Result<NonZeroU32, InvalidSettings> {
    let mut checks = Checks::default();
    let number = checks.check(field, given, |given| check(*given));
    checks.finish(number.unwrap_or(NonZeroU32::MIN))
}
