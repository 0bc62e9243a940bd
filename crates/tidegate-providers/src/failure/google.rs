//! Details of Google's errors: a delay, reasons and the exceeded quotas.
//!
//! The delay is valid for per-minute quotas only. Google sends a few seconds for daily quotas too,
//! so those are recognized by their id.

use std::time::Duration;

use serde_json::Value;

use crate::classify::Quota;
use crate::reported_limits::{Dimension, LimitReading};

/// Maximum number of details, and of violations in each, that are read.
const MAX_ITEMS: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Google<'a> {
    /// Delay from `google.rpc.RetryInfo`, as written.
    pub(super) delay: Option<&'a str>,
    /// Reasons from `google.rpc.ErrorInfo`.
    pub(super) reasons: Vec<String>,
    violations: Vec<Violation>,
}

/// An exceeded quota.
#[derive(Debug)]
struct Violation {
    dimension: Option<Dimension>,
    window: Option<Duration>,
    limit: Option<u64>,
}

impl<'a> Google<'a> {
    pub(super) fn read(details: &'a Value) -> Self {
        let mut delays = of_type(details, "google.rpc.RetryInfo");
        let reasons = of_type(details, "google.rpc.ErrorInfo")
            .filter_map(|info| super::body::name(info["reason"].as_str()?));
        let violations = of_type(details, "google.rpc.QuotaFailure")
            .filter_map(|failure| failure["violations"].as_array())
            .flatten();
        Self {
            delay: delays.find_map(|info| info["retryDelay"].as_str()),
            reasons: reasons.collect(),
            violations: violations.take(MAX_ITEMS).map(Violation::read).collect(),
        }
    }

    /// Returns the longest exceeded quota, unless all are short.
    pub(super) fn quota(&self) -> Option<Quota> {
        if self.violations.iter().any(|violation| violation.limit == Some(0)) {
            return Some(Quota::Zero);
        }
        self.violations.iter().any(Violation::is_daily).then_some(Quota::Day)
    }

    pub(super) fn readings(&self) -> impl Iterator<Item = (Dimension, LimitReading)> {
        self.violations.iter().filter_map(|violation| {
            let limit = Some(violation.limit.filter(|limit| *limit > 0)?);
            let window = violation.window?;
            let reading = LimitReading { limit, remaining: Some(0), reset: None, window };
            Some((violation.dimension?, reading))
        })
    }
}

impl Violation {
    const DAY: Duration = Duration::from_secs(86_400);

    fn read(violation: &Value) -> Self {
        let id = violation["quotaId"].as_str().unwrap_or_default();
        let metric = violation["quotaMetric"].as_str().unwrap_or_default();
        let window = if id.contains("PerDay") {
            Some(Self::DAY)
        } else {
            id.contains("PerMinute").then_some(Duration::from_secs(60))
        };
        let dimension = match (metric, window == Some(Self::DAY)) {
            (metric, false) if metric.contains("input_token") => Some(Dimension::InputTokens),
            (metric, true) if metric.contains("request") => Some(Dimension::RequestsPerDay),
            (metric, false) if metric.contains("request") => Some(Dimension::Requests),
            _ => None,
        };
        let limit = match &violation["quotaValue"] {
            Value::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        Self { dimension, window, limit }
    }

    fn is_daily(&self) -> bool {
        self.window == Some(Self::DAY)
    }
}

/// Returns the details of a type, ignoring its URL prefix.
fn of_type<'a>(details: &'a Value, name: &'static str) -> impl Iterator<Item = &'a Value> {
    let details = details.as_array().into_iter().flatten().take(MAX_ITEMS);
    details.filter(move |detail| detail["@type"].as_str().is_some_and(|kind| kind.ends_with(name)))
}
