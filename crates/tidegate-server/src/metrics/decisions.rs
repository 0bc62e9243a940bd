//! Metrics of decisions, by listener, limit and outcome.
//!
//! A listener looks up its [`ListenerMetrics`] once, and [`LimitMetrics`] once for each limit.
//! Counting a decision is then one atomic addition.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::histogram::{self, Histogram};
use super::labels::Names;

/// Label of inline policies.
const INLINE: &str = "inline";

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DecisionLabels {
    door: &'static str,
    limit: Arc<str>,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LimitLabels {
    limit: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DoorLabels {
    door: &'static str,
}

/// Outcome of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DecisionOutcome {
    Allowed,
    Denied,
    /// The store failed, and no decision was made.
    Failed,
}

impl DecisionOutcome {
    const fn name(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Failed => "error",
        }
    }
}

/// The metrics of all listeners.
#[derive(Clone, Debug)]
pub(super) struct Decisions {
    counters: Family<DecisionLabels, Counter>,
    new_keys: Family<LimitLabels, Counter>,
    duration: Family<DoorLabels, Histogram, fn() -> Histogram>,
    names: Arc<Names>,
}

impl Decisions {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let duration: fn() -> Histogram = || Histogram::new(&histogram::DECISIONS);
        let decisions = Self {
            counters: Family::default(),
            new_keys: Family::default(),
            duration: Family::new_with_constructor(duration),
            names: Arc::default(),
        };
        registry.register(
            "tidegate_decisions",
            "Decisions by door, limit and outcome",
            decisions.counters.clone(),
        );
        registry.register(
            "tidegate_new_keys",
            "Keys seen for the first time, or whose bucket was full again",
            decisions.new_keys.clone(),
        );
        registry.register(
            "tidegate_decision_duration_seconds",
            "Time from the complete request to its response",
            decisions.duration.clone(),
        );
        decisions
    }

    pub(super) fn add_limits<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        self.names.add(names);
    }

    pub(super) fn listener(&self, door: &'static str) -> ListenerMetrics {
        let duration = self.duration.get_or_create_owned(&DoorLabels { door });
        ListenerMetrics { door, duration, decisions: self.clone() }
    }
}

/// The metrics of one listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ListenerMetrics {
    door: &'static str,
    duration: Histogram,
    decisions: Decisions,
}

impl ListenerMetrics {
    /// Returns the metrics of a limit; limits that are not configured share one. Look them up once
    /// with the limit, not with each request.
    pub(crate) fn limit(&self, name: &str) -> LimitMetrics {
        self.with_label(self.decisions.names.label(name))
    }

    /// Returns the metrics of inline policies.
    pub(crate) fn inline(&self) -> LimitMetrics {
        self.with_label(INLINE.into())
    }

    /// Records how long a request took.
    pub(crate) fn record_duration(&self, span: Duration) {
        self.duration.record_span(span);
    }

    fn with_label(&self, limit: Arc<str>) -> LimitMetrics {
        let counter = |outcome: DecisionOutcome| {
            let (door, limit) = (self.door, limit.clone());
            let labels = DecisionLabels { door, limit, outcome: outcome.name() };
            self.decisions.counters.get_or_create_owned(&labels)
        };
        LimitMetrics {
            allowed: counter(DecisionOutcome::Allowed),
            denied: counter(DecisionOutcome::Denied),
            failed: counter(DecisionOutcome::Failed),
            new_keys: self.decisions.new_keys.get_or_create_owned(&LimitLabels { limit }),
        }
    }
}

/// The metrics of one limit at one listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct LimitMetrics {
    allowed: Counter,
    denied: Counter,
    failed: Counter,
    new_keys: Counter,
}

impl LimitMetrics {
    /// Counts a decision.
    pub(crate) fn count(&self, outcome: DecisionOutcome) {
        let counter = match outcome {
            DecisionOutcome::Allowed => &self.allowed,
            DecisionOutcome::Denied => &self.denied,
            DecisionOutcome::Failed => &self.failed,
        };
        counter.inc();
    }

    /// Counts a key that had no bucket, or whose bucket was full.
    pub(crate) fn count_new_key(&self) {
        self.new_keys.inc();
    }
}
