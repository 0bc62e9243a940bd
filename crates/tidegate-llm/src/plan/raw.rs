//! Unchecked constraints, as written in a configuration.

use serde::{Deserialize, Serialize};

/// Unchecked numbers of a constraint, as written in a configuration. An unset field means no limit;
/// `min_interval_ms` and `burst_factor` have defaults.
///
/// Unknown fields are rejected, so that a mistyped limit is not silently missing.
///
/// ```
/// use tidegate_llm::plan::{Constraint, RawConstraint};
/// let raw: RawConstraint = serde_json::from_str(r#"{"requests_per_minute": 500}"#)?;
/// let constraint = Constraint::try_new(&raw)?;
/// assert_eq!(constraint.requests_per_minute().unwrap().get(), 500);
/// assert!(serde_json::from_str::<RawConstraint>(r#"{"request_per_minute": 500}"#).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConstraint {
    /// Requests per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_minute: Option<i64>,
    /// Tokens per minute, input and output together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_minute: Option<i64>,
    /// Input tokens per minute, if limited separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_tokens_per_minute: Option<i64>,
    /// Output tokens per minute, if limited separately.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tokens_per_minute: Option<i64>,
    /// Requests per calendar day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_day: Option<i64>,
    /// Time zone of that day. Default `UTC`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requests_per_day_zone: Option<String>,
    /// Minimum milliseconds between the starts of two requests. Default 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_interval_ms: Option<i64>,
    /// Burst as seconds' worth of requests that can be sent at once. Default 1.0, which means one
    /// request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_factor: Option<f64>,
    /// Burst as a number of requests; overrides the factor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst_capacity: Option<i64>,
    /// Maximum number of requests in flight.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrent_requests: Option<i64>,
}

/// A value that was too small, and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Clamp {
    pub(super) field: &'static str,
    pub(super) given: String,
    pub(super) used: &'static str,
}

impl RawConstraint {
    /// Returns a copy with values that are too small replaced, and the replacements.
    pub(super) fn clamped(&self) -> (Self, Vec<Clamp>) {
        let mut raw = self.clone();
        let mut clamps = Vec::new();
        let mut clamp = |field, value: &mut Option<i64>, least, replacement: Replacement| {
            let Some(given) = value.filter(|given| *given < least) else { return };
            let used = match replacement {
                Replacement::Minimum(text) => {
                    *value = Some(least);
                    text
                }
                Replacement::NoLimit => {
                    *value = None;
                    "no limit"
                }
            };
            clamps.push(Clamp { field, given: given.to_string(), used });
        };
        let (one, none) = (Replacement::Minimum("1"), Replacement::NoLimit);
        clamp("requests_per_minute", &mut raw.requests_per_minute, 1, one);
        clamp("tokens_per_minute", &mut raw.tokens_per_minute, 1, none);
        clamp("input_tokens_per_minute", &mut raw.input_tokens_per_minute, 1, none);
        clamp("output_tokens_per_minute", &mut raw.output_tokens_per_minute, 1, none);
        clamp("requests_per_day", &mut raw.requests_per_day, 1, one);
        clamp("min_interval_ms", &mut raw.min_interval_ms, 0, Replacement::Minimum("0"));
        clamp("burst_capacity", &mut raw.burst_capacity, 1, one);
        clamp("max_concurrent_requests", &mut raw.max_concurrent_requests, 1, one);
        // NaN is not below 1.0, so it stays and is rejected later.
        if let Some(given) = raw.burst_factor.filter(|factor| *factor < 1.0) {
            raw.burst_factor = Some(1.0);
            clamps.push(Clamp { field: "burst_factor", given: given.to_string(), used: "1.0" });
        }
        (raw, clamps)
    }
}

/// Replacement of a value that is too small.
#[derive(Clone, Copy)]
enum Replacement {
    /// The minimum, with its text.
    Minimum(&'static str),
    /// No limit at all.
    NoLimit,
}
