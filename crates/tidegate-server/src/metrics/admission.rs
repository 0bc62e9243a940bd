//! Metrics of admission, by tier and outcome.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tidegate::admission::{AdmissionDecision, Tier};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AdmissionLabels {
    tier: &'static str,
    outcome: &'static str,
}

/// The metrics of one tier.
#[derive(Clone, Debug)]
struct TierMetrics {
    tier: Tier,
    admitted: Counter,
    rejected: Counter,
    shadow: Counter,
    allow_listed: Counter,
}

/// The metrics of admission. Cheap to clone; clones share everything.
///
/// An admitted request counts for each tier it passed. A rejected one, also one that is rejected
/// only in shadow mode, counts for the tier that rejects it. An allow-listed one counts for the
/// tier of its entry.
#[derive(Clone, Debug)]
pub(crate) struct AdmissionMetrics([TierMetrics; 3]);

impl AdmissionMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let family = Family::<AdmissionLabels, Counter>::default();
        registry.register(
            "tidegate_admissions",
            "Requests checked by admission, by tier and outcome: admitted counts for each tier that \
             was passed, rejected and shadow (would have been rejected) for the tier that rejects, \
             allow_listed for the tier of the entry",
            family.clone(),
        );
        let series = |tier: Tier| {
            let counter = |outcome| {
                family.get_or_create_owned(&AdmissionLabels { tier: tier.as_str(), outcome })
            };
            TierMetrics {
                tier,
                admitted: counter("admitted"),
                rejected: counter("rejected"),
                shadow: counter("shadow"),
                allow_listed: counter("allow_listed"),
            }
        };
        Self([Tier::Backpressure, Tier::Client, Tier::Organization].map(series))
    }

    /// Counts a result. Nothing is counted while admission is disabled.
    pub(crate) fn count(&self, decision: &AdmissionDecision<'_>) {
        match decision {
            AdmissionDecision::Rejected(rejection) => {
                self.add(rejection.tier, |tier| &tier.rejected);
            }
            AdmissionDecision::Admitted(admitted) => {
                if let Some(rejection) = admitted.would_reject() {
                    self.add(rejection.tier, |tier| &tier.shadow);
                } else if let Some(entry) = admitted.allow_listed() {
                    self.add(entry, |tier| &tier.allow_listed);
                } else if admitted.is_checked() {
                    self.add(Tier::Backpressure, |tier| &tier.admitted);
                    admitted.outcomes().for_each(|(tier, _)| self.add(tier, |tier| &tier.admitted));
                }
            }
            // The enum is non-exhaustive.
            _ => {}
        }
    }

    fn add(&self, tier: Tier, outcome: impl Fn(&TierMetrics) -> &Counter) {
        if let Some(series) = self.0.iter().find(|series| series.tier == tier) {
            outcome(series).inc();
        }
    }
}
