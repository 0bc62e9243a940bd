//! What the limits of an account are, where they come from and how much of them is left: for people
//! and metrics. Looking spends nothing and changes nothing.

use std::sync::Arc;
use std::time::Duration;

use tidegate::pacer::Gauges;
use tidegate_providers::{Class, Dimension, Endpoint};

use crate::plan::Source;

/// Where a limit comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitSource {
    /// Somebody set it.
    Configured,
    /// The provider's capability knew it.
    Capability,
    /// It stands in the table of tiers.
    Tier,
    /// It holds because nothing else is known.
    Default,
    /// The provider reported it, or refused calls.
    Learned,
}

impl LimitSource {
    /// The name in metrics and JSON.
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

impl From<Source> for LimitSource {
    fn from(source: Source) -> Self {
        match source {
            Source::Override => Self::Configured,
            Source::Capability => Self::Capability,
            Source::Tier => Self::Tier,
            Source::Default => Self::Default,
        }
    }
}

/// What a provider reported a limit in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportOrigin {
    /// The head of an answer.
    Response,
    /// A refusal, or another error: in its header fields or its body.
    Refusal,
}

impl ReportOrigin {
    /// The name in JSON.
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
    /// The provider refused a call and asked for a pause, or was given one.
    RateLimited,
    /// The requests of a day are used up, as the provider reports.
    RequestsPerDay,
    /// A quota of a day or of money is used up: calls are refused at once.
    ExhaustedQuota,
    /// Another process on the same store holds it.
    AnotherNode,
}

impl HoldCause {
    /// The name in JSON.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::RateLimited => "rate_limited",
            Self::RequestsPerDay => "requests_per_day",
            Self::ExhaustedQuota => "exhausted_quota",
            Self::AnotherNode => "another_node",
        }
    }

    /// The cause of a failure that closes a model.
    pub(super) const fn of_class(class: Class) -> Self {
        match class {
            Class::ExhaustedQuota { .. } => Self::ExhaustedQuota,
            _ => Self::RateLimited,
        }
    }
}

/// One limit.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LimitView {
    /// What it counts: the name of a dimension, or `min_interval`.
    pub name: &'static str,
    /// What it counts, if providers limit that.
    pub dimension: Option<Dimension>,
    /// Where it comes from: `configured`, `capability`, `tier`, `default` or `learned`.
    pub source: &'static str,
    /// What is allowed in a window; `None` if no number is known, and calls leave more slowly after
    /// push-back.
    pub allowed: Option<(u64, Duration)>,
    /// What it was learned from (`response_headers` or `refusal`), and how long ago.
    pub learned: Option<(&'static str, Duration)>,
    /// What the provider last reported to be left, at that time.
    pub reported: Option<u64>,
    /// What that was reported in (`response_headers` or `refusal`), and how long ago.
    pub reported_in: Option<(&'static str, Duration)>,
    /// How long it then was until all of the limit is there again, if that was reported.
    pub reported_reset: Option<Duration>,
    /// What our bucket holds, below zero if it is in debt, and the most it can hold; `None` if there
    /// is none, or if the store does not answer.
    pub bucket: Option<(i64, u64)>,
    /// How much leaves in a minute, with margin, push-back and ramp, and how much at once; `None` for
    /// what refills by the calendar or is not paced here.
    pub pace: Option<(u64, u64)>,
    /// The part of the rate that is left after push-back, which recovers; `None` without any.
    pub slowed_to: Option<f64>,
    /// How much longer the rate grows from its floor; `None` if it does not.
    pub ramp_left: Option<Duration>,
    /// What calls under way are charged, which their ends may change.
    pub reserved: u64,
    /// What was charged in the last minute, less what was given back.
    pub used_in_last_minute: u64,
    /// What was charged so far, less what was given back.
    pub charged: u64,
    /// Whether calls wait for it, or one that was refused for it still would be.
    pub is_short: bool,
    /// Whether calls are charged to it: one that was set gives way to one that is reported and
    /// tighter.
    pub in_force: bool,
    /// The endpoint or the models that it was set for; `None` if it is for all of its queue.
    pub applies_to: Option<Arc<str>>,
}

impl LimitView {
    /// What is allowed in a minute.
    #[must_use]
    pub fn per_minute(&self) -> Option<u64> {
        let (amount, window) = self.allowed?;
        let nanos = u128::from(amount) * Duration::from_secs(60).as_nanos();
        Some(u64::try_from(nanos / window.as_nanos().max(1)).unwrap_or(u64::MAX))
    }

    /// What is allowed in a minute, or in a day if it counts requests of a day.
    #[must_use]
    pub fn per_window(&self) -> Option<u64> {
        match self.dimension {
            Some(Dimension::RequestsPerDay) => self.allowed.map(|(amount, _)| amount),
            _ => self.per_minute(),
        }
    }

    /// The part of the limit that is used; `None` if no limit is known.
    ///
    /// Of a limit that may be used all at once (tokens of a minute, requests of a day) it is what the
    /// bucket lacks: 0 if it is full, 1 if it is empty, more if it is in debt. Of one that is paced it
    /// is what was used in the last minute. It is at least 1 while calls wait for the limit, and
    /// until a call that was refused for it would fit.
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
        Some(used.max(if self.is_short { 1.0 } else { 0.0 }))
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

/// One queue: its limits, and those of its models.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct QueueView {
    /// The model that it is of, if it is of one alone.
    pub model: Option<Arc<str>>,
    /// The endpoint that it is of, if it is of one alone.
    pub endpoint: Option<Endpoint>,
    /// Who waits, what is under way, how much may be.
    pub gauges: Gauges,
    /// What those who wait wait for now.
    pub limited_by: Option<&'static str>,
    /// The limits that were set, over all models of the queue.
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

    /// All limits, each with the model that it is of, if it is of one.
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

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
const fn to_f64(number: u64) -> f64 {
    number as f64
}

#[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
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
            ramp_left: None,
            reserved: 0,
            used_in_last_minute,
            charged: 0,
            is_short: false,
            in_force: true,
            applies_to: None,
        }
    }

    #[test]
    fn use_is_what_a_bucket_of_a_minute_lacks() {
        assert_eq!(limit(1_000, Some((980, 980)), 500).used_ratio(), Some(0.0));
        assert_eq!(limit(1_000, Some((490, 980)), 0).used_ratio(), Some(0.5));
        assert_eq!(limit(1_000, Some((-980, 980)), 0).used_ratio(), Some(2.0));
    }

    #[test]
    fn use_of_what_is_paced_is_that_of_the_last_minute() {
        assert_eq!(limit(600, Some((0, 10)), 150).used_ratio(), Some(0.25));
        assert_eq!(limit(600, None, 300).used_ratio(), Some(0.5), "a store that does not answer");
        let a_second =
            LimitView { allowed: Some((10, Duration::from_secs(1))), ..limit(1, None, 60) };
        assert_eq!(a_second.used_ratio(), Some(0.1));
    }

    #[test]
    fn a_limit_that_refuses_calls_is_used_up() {
        let short = LimitView { is_short: true, ..limit(1_000, Some((400, 980)), 0) };
        assert_eq!(short.used_ratio(), Some(1.0));
        let unknown = LimitView { allowed: None, ..short };
        assert_eq!(unknown.used_ratio(), None);
    }
}
