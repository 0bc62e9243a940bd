//! Turns the decision of an admission into an admitted request, or a refusal that names the tier.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::FailureRule;
use tidegate::admission::Tier;

use super::decided::Decided;
use super::pending_decision::PendingDecision;
use super::tiers::Said;
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
        said: Said,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Admitted, R> {
        let standing = said.standing.iter();
        let reports: SmallVec<[Report<'_>; 2]> =
            standing.map(|(limit, outcome)| Report::of(limit, outcome)).collect();
        if let Some((tier, retry)) = said.rejected {
            let cause = match (tier, said.degraded) {
                (Tier::Backpressure, _) => RefusalCause::BackPressure,
                (_, Some(FailureRule::Closed)) => RefusalCause::Store,
                _ => RefusalCause::Limit,
            };
            let refusal = Refusal::new(cause)
                .limits(&reports)
                .retry(self.hint(Some(retry)))
                .at(tier.as_str(), tier.reason());
            return Err(refuse(&refusal));
        }
        if let Some((tier, _)) = said.shadowed {
            tracing::info!(level = tier.as_str(), "a request is let in: shadow");
        }
        let shadow = self.in_shadow();
        let fields = if shadow { Fields::default() } else { self.fields(&reports) };
        let retry = said.shadowed.map(|(_, retry)| retry);
        let told = self.expose || shadow || retry.is_some();
        let decided = told.then(|| Decided::new(&reports, retry, said.degraded));
        drop(reports);
        let open_charges = match (pending.asking, said.bill) {
            (Some(asking), Some(bill)) => Some(OpenCharges::admission(self.clone(), asking, bill)),
            _ => None,
        };
        let open = open_charges.is_some() || said.in_flight.is_some();
        let settlement =
            open.then(|| PendingSettlement::open(open_charges, said.in_flight, pending.bodiless));
        Ok(Admitted { fields, settlement, decided })
    }
}
