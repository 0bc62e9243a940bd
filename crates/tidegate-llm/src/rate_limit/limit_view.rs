//! Read-only views of an account's limits, their sources and what is left of them, for operators
//! and metrics.

use std::sync::Arc;
use std::time::Duration;

use tidegate::pacer::Gauges;
use tidegate_providers::{Class, Dimension, Endpoint};

use crate::plan::ConstraintSource;

/// Source of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitSource {
    /// Set by configuration.
    Configured,
    /// Known from the provider's capabilities.
    Capability,
    /// From the table of tiers.
    Tier,
    /// Default, because nothing else is known.
    Default,
    /// Reported by the provider, or inferred from refusals.
    Learned,
}

impl LimitSource {
    /// Returns the name in metrics and JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Capability => "capability",
            Self::Tier => "tier",
            Self::Default => "default",
            Self::Learned => "learned",
        }
    }
}

impl From<ConstraintSource> for LimitSource {
    fn from(source: ConstraintSource) -> Self {
        match source {
            ConstraintSource::Override => Self::Configured,
            ConstraintSource::Capability => Self::Capability,
            ConstraintSource::Tier => Self::Tier,
            ConstraintSource::Default => Self::Default,
        }
    }
}

/// Where a provider reported a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportOrigin {
    /// Headers of a response.
    Response,
    /// Headers or body of a refusal or another error.
    Refusal,
}

impl ReportOrigin {
    /// Returns the name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Response => "response_headers",
            Self::Refusal => "refusal",
        }
    }
}

/// Why a model is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HoldCause {
    /// The provider refused a call; the pause is the provider's or ours.
    RateLimited,
    /// The provider reports that the requests of the day are used up.
    RequestsPerDay,
    /// A daily or monetary quota is exhausted; calls fail immediately.
    ExhaustedQuota,
    /// Another process on the same store holds the model.
    AnotherNode,
}

impl HoldCause {
    /// Returns the name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::RequestsPerDay => "requests_per_day",
            Self::ExhaustedQuota => "exhausted_quota",
            Self::AnotherNode => "another_node",
        }
    }

    /// Returns the cause for a failure that closes a model.
    pub(super) const fn of_class(class: Class) -> Self {
        match class {
            Class::ExhaustedQuota { .. } => Self::ExhaustedQuota,
            _ => Self::RateLimited,
        }
    }
}

/// View of one limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitView {
    /// What the limit counts: the name of a dimension, or `min_interval`.
    pub name: &'static str,
    /// The dimension, if it is one that providers limit.
    pub dimension: Option<Dimension>,
    /// Source: `configured`, `capability`, `tier`, `default` or `learned`.
    pub source: &'static str,
    /// Amount and window; `None` if no amount is known and calls are merely slowed down after
    /// push-back.
    pub allowed: Option<(u64, Duration)>,
    /// Where the limit was learned (`response_headers` or `refusal`), and how long ago.
    pub learned: Option<(&'static str, Duration)>,
    /// Remaining amount that the provider last reported.
    pub reported: Option<u64>,
    /// Where the remaining amount was reported (`response_headers` or `refusal`), and how long ago.
    pub reported_in: Option<(&'static str, Duration)>,
    /// Time from that report to a full reset, if reported.
    pub reported_reset: Option<Duration>,
    /// Level of our bucket, negative if in debt, and its capacity; `None` if there is no bucket or
    /// the store does not answer.
    pub bucket: Option<(i64, u64)>,
    /// Amount sent per minute after margin, push-back and ramp, and the burst; `None` for limits
    /// that refill by the calendar or are not paced here.
    pub pace: Option<(u64, u64)>,
    /// Fraction of the rate left after push-back, which recovers over time; `None` without
    /// push-back.
    pub slowed_to: Option<f64>,
    /// Time until the ramp ends; `None` without a ramp.
    pub ramp_remaining: Option<Duration>,
    /// Charges of calls in flight, subject to settlement.
    pub reserved: u64,
    /// Net charges of the last minute.
    pub used_in_last_minute: u64,
    /// Net charges so far.
    pub charged: u64,
    /// Whether calls wait for this limit, or a refused call still would not fit.
    pub is_exhausted: bool,
    /// Whether calls are charged to this limit. A configured limit gives way to a tighter reported
    /// one.
    pub in_force: bool,
    /// Endpoint or model pattern it was configured for; `None` if it applies to the whole queue.
    pub applies_to: Option<Arc<str>>,
}

impl LimitView {
    /// Returns the amount per minute.
    #[must_use]
    pub fn per_minute(&self) -> Option<u64> {
        let (amount, window) = self.allowed?;
        let nanos = u128::from(amount) * Duration::from_secs(60).as_nanos();
        Some(u64::try_from(nanos / window.as_nanos().max(1)).unwrap_or(u64::MAX))
    }

    /// Returns the amount per minute, or per day for a limit on requests per day.
    #[must_use]
    pub fn per_window(&self) -> Option<u64> {
        match self.dimension {
            Some(Dimension::RequestsPerDay) => self.allowed.map(|(amount, _)| amount),
            _ => self.per_minute(),
        }
    }

    /// Returns the fraction of the limit in use; `None` if no amount is known.
    ///
    /// For a limit that may be used all at once (tokens per minute, requests per day) this is what
    /// the bucket lacks: 0 if full, 1 if empty, more if in debt. For a paced limit it is the usage
    /// of the last minute. It is at least 1 while calls wait for the limit, and until a call that
    /// was refused for it would fit.
    #[must_use]
    pub fn used_ratio(&self) -> Option<f64> {
        let (amount, _) = self.allowed?;
        let bucket = self.bucket.filter(|(_, capacity)| capacity.saturating_mul(2) >= amount);
        let used = match bucket {
            Some((remaining, capacity)) => 1.0 - signed_to_f64(remaining) / to_f64(capacity.max(1)),
            None if self.dimension == Some(Dimension::RequestsPerDay) => {
                1.0 - to_f64(self.reported?) / to_f64(amount.max(1))
            }
            None => {
                let per_minute = self.per_minute().unwrap_or(amount).max(1);
                to_f64(self.used_in_last_minute) / to_f64(per_minute)
            }
        };
        Some(used.max(if self.is_exhausted { 1.0 } else { 0.0 }))
    }
}

/// The reported limits and the hold of one model.
#[derive(Clone, Debug)]
pub(super) struct ModelView {
    /// Name in lower case.
    pub(super) model: Arc<str>,
    pub(super) limits: Vec<LimitView>,
    pub(super) hold: Option<(Duration, &'static str)>,
}

/// View of one queue: its limits and those of its models.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueView {
    /// The model, if the queue serves only one.
    pub model: Option<Arc<str>>,
    /// The endpoint, if the queue serves only one.
    pub endpoint: Option<Endpoint>,
    /// Waiting calls, calls in flight and the concurrency limit.
    pub gauges: Gauges,
    /// What waiting calls wait for now.
    pub limited_by: Option<&'static str>,
    /// Configured limits, over all models of the queue.
    pub limits: Vec<LimitView>,
    /// Models in order of their names.
    pub(super) models: Vec<ModelView>,
}

impl QueueView {
    /// Names of the models in this queue, in lower case and sorted.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.models.iter().map(|model| &*model.model)
    }

    /// Limits that the provider reported for `model`; empty if it reported none.
    #[must_use]
    pub fn model_limits(&self, model: &str) -> &[LimitView] {
        self.find(model).map_or(&[], |model| &model.limits)
    }

    /// For how much longer calls to `model` are held, and why: `rate_limited`, `requests_per_day`,
    /// `exhausted_quota` or `another_node`. `None` if they are not.
    #[must_use]
    pub fn model_hold(&self, model: &str) -> Option<(Duration, &'static str)> {
        self.find(model)?.hold
    }

    fn find(&self, model: &str) -> Option<&ModelView> {
        let index = self.models.binary_search_by(|known| (*known.model).cmp(model)).ok()?;
        self.models.get(index)
    }

    /// Iterates over all limits, each with its model or pattern, if it has one.
    pub fn all_limits(&self) -> impl Iterator<Item = (Option<&str>, &LimitView)> {
        let own = self
            .limits
            .iter()
            .map(|limit| (limit.applies_to.as_deref().or(self.model.as_deref()), limit));
        let of_models = self
            .models
            .iter()
            .flat_map(|model| model.limits.iter().map(|limit| (Some(&*model.model), limit)));
        own.chain(of_models)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for display")]
const fn to_f64(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for display")]
const fn signed_to_f64(number: i64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(amount: u64, bucket: Option<(i64, u64)>, used_in_last_minute: u64) -> LimitView {
        LimitView {
            name: "tokens",
            dimension: Some(Dimension::Tokens),
            source: LimitSource::Learned.name(),
            allowed: Some((amount, Duration::from_secs(60))),
            learned: None,
            reported: None,
            reported_in: None,
            reported_reset: None,
            bucket,
            pace: None,
            slowed_to: None,
            ramp_remaining: None,
            reserved: 0,
            used_in_last_minute,
            charged: 0,
            is_exhausted: false,
            in_force: true,
            applies_to: None,
        }
    }

    #[test]
    fn used_ratio_of_a_minute_bucket_is_what_it_lacks() {
        assert_eq!(limit(1_000, Some((980, 980)), 500).used_ratio(), Some(0.0));
        assert_eq!(limit(1_000, Some((490, 980)), 0).used_ratio(), Some(0.5));
        assert_eq!(limit(1_000, Some((-980, 980)), 0).used_ratio(), Some(2.0));
    }

    #[test]
    fn used_ratio_of_a_paced_limit_is_the_last_minutes_usage() {
        assert_eq!(limit(600, Some((0, 10)), 150).used_ratio(), Some(0.25));
        assert_eq!(limit(600, None, 300).used_ratio(), Some(0.5), "a store that does not answer");
        let a_second =
            LimitView { allowed: Some((10, Duration::from_secs(1))), ..limit(1, None, 60) };
        assert_eq!(a_second.used_ratio(), Some(0.1));
    }

    #[test]
    fn limit_that_refuses_calls_is_fully_used() {
        let short = LimitView { is_exhausted: true, ..limit(1_000, Some((400, 980)), 0) };
        assert_eq!(short.used_ratio(), Some(1.0));
        let unknown = LimitView { allowed: None, ..short };
        assert_eq!(unknown.used_ratio(), None);
    }
}
