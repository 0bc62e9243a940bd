//! Turns the decision of an admission into an admitted request, or a refusal that names the tier.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::FailureRule;
use tidegate::admission::Tier;

use super::pending_decision::PendingDecision;
use super::request_decision::RequestDecision;
use super::tiers::TierDecision;
use crate::field::{Fields, Report};
use crate::layer::response::admitted::Admitted;
use crate::layer::response::pending_settlement::{OpenCharges, PendingSettlement};
use crate::layer::settings::Settings;
use crate::refusal::{Refusal, RefusalCause};

impl Settings {
    /// Judges a request that an admission has decided.
    pub(crate) fn judge_admission<R>(
        self: &Arc<Self>,
        pending: PendingDecision,
        decision: TierDecision,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let outcomes = decision.outcomes.iter();
        let reports: SmallVec<[Report<'_>; 2]> =
            outcomes.map(|(limit, outcome)| Report::of(limit, outcome)).collect();
        if let Some((tier, retry)) = decision.rejected {
            let cause = match (tier, decision.degraded) {
                (Tier::Backpressure, _) => RefusalCause::BackPressure,
                (_, Some(FailureRule::Closed)) => RefusalCause::Store,
                _ => RefusalCause::Limit,
            };
            let refusal = Refusal::new(cause)
                .limits(&reports)
                .retry(self.retry_hint(Some(retry)))
                .with_level(tier.as_str(), tier.reason());
            return Err(refuse(&refusal));
        }
        if let Some((tier, _)) = decision.would_reject {
            tracing::info!(level = tier.as_str(), "rejected request admitted in shadow mode");
        }
        let shadow = self.in_shadow();
        let fields = if shadow { Fields::default() } else { self.fields(&reports) };
        let retry = decision.would_reject.map(|(_, retry)| retry);
        let exposed = self.expose || shadow || retry.is_some();
        let decided = exposed.then(|| RequestDecision::new(&reports, retry, decision.degraded));
        drop(reports);
        let open_charges = match (pending.caller, decision.receipt) {
            (Some(caller), Some(receipt)) => {
                Some(OpenCharges::admission(self.clone(), caller, receipt))
            }
            _ => None,
        };
        let open = open_charges.is_some() || decision.in_flight.is_some();
        let settlement = open
            .then(|| PendingSettlement::open(open_charges, decision.in_flight, pending.bodiless));
        Ok(Admitted { fields, settlement, decided })
    }
}
