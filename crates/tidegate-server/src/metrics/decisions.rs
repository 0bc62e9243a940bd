//! Metrics of decisions, by listener, limit and outcome.
//!
//! A listener looks up its [`DoorMetrics`] once, and [`LimitMetrics`] once for each limit. Counting
//! a decision is then one atomic addition.

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
pub(crate) enum Verdict {
    Allowed,
    Denied,
    /// The store failed, and no decision was made.
    Failed,
}

impl Verdict {
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
    decided: Family<DecisionLabels, Counter>,
    new_keys: Family<LimitLabels, Counter>,
    took: Family<DoorLabels, Histogram, fn() -> Histogram>,
    names: Arc<Names>,
}

impl Decisions {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let took: fn() -> Histogram = || Histogram::new(&histogram::DECISIONS);
        let decisions = Self {
            decided: Family::default(),
            new_keys: Family::default(),
            took: Family::new_with_constructor(took),
            names: Arc::default(),
        };
        registry.register(
            "tidegate_decisions",
            "Decisions by door, limit and outcome",
            decisions.decided.clone(),
        );
        registry.register(
            "tidegate_new_keys",
            "Keys seen for the first time, or whose bucket was full again",
            decisions.new_keys.clone(),
        );
        registry.register(
            "tidegate_decision_duration_seconds",
            "Time from the complete request to its response",
            decisions.took.clone(),
        );
        decisions
    }

    pub(super) fn limits<'n>(&self, names: impl IntoIterator<Item = &'n str>) {
        self.names.add(names);
    }

    pub(super) fn door(&self, door: &'static str) -> DoorMetrics {
        let took = self.took.get_or_create_owned(&DoorLabels { door });
        DoorMetrics { door, took, decisions: self.clone() }
    }
}

/// The metrics of one listener. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct DoorMetrics {
    door: &'static str,
    took: Histogram,
    decisions: Decisions,
}

impl DoorMetrics {
    /// Returns the metrics of a limit; limits that are not configured share one. Look them up once
    /// with the limit, not with each request.
    pub(crate) fn limit(&self, name: &str) -> LimitMetrics {
        self.labelled(self.decisions.names.label(name))
    }

    /// Returns the metrics of inline policies.
    pub(crate) fn inline(&self) -> LimitMetrics {
        self.labelled(INLINE.into())
    }

    /// Records how long a request took.
    pub(crate) fn took(&self, span: Duration) {
        self.took.record_span(span);
    }

    fn labelled(&self, limit: Arc<str>) -> LimitMetrics {
        let decided = |verdict: Verdict| {
            let (door, limit) = (self.door, limit.clone());
            let labels = DecisionLabels { door, limit, outcome: verdict.name() };
            self.decisions.decided.get_or_create_owned(&labels)
        };
        LimitMetrics {
            allowed: decided(Verdict::Allowed),
            denied: decided(Verdict::Denied),
            failed: decided(Verdict::Failed),
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
    pub(crate) fn decided(&self, verdict: Verdict) {
        let counter = match verdict {
            Verdict::Allowed => &self.allowed,
            Verdict::Denied => &self.denied,
            Verdict::Failed => &self.failed,
        };
        counter.inc();
    }

    /// Counts a key that had no bucket, or whose bucket was full.
    pub(crate) fn met_new_key(&self) {
        self.new_keys.inc();
    }
}
