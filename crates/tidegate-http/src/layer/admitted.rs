//! What a layer makes of the verdict of an admission: pass, or a refusal that says which tier it was.
//!
//! Single limits are judged in `settings`.

use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::FailureRule;
use tidegate::admission::Tier;

use super::case::Case;
use super::decided::Decided;
use super::pass::Pass;
use super::settings::Settings;
use super::tab::{Owed, Tab};
use super::tiers::Said;
use crate::field::{Fields, Report};
use crate::refusal::{Cause, Refusal};

impl Settings {
    /// What becomes of a request that an admission has spoken about.
    pub(super) fn admitted<R>(
        self: &Arc<Self>,
        case: Case,
        said: Said,
        refuse: impl FnOnce(&Refusal<'_>) -> R,
    ) -> Result<Pass, R> {
        let standing = said.standing.iter();
        let reports: SmallVec<[Report<'_>; 2]> =
            standing.map(|(limit, outcome)| Report::of(limit, outcome)).collect();
        if let Some((tier, reason, retry)) = said.rejected {
            let cause = match (tier, said.degraded) {
                (Tier::Backpressure, _) => Cause::BackPressure,
                (_, Some(FailureRule::Closed)) => Cause::Store,
                _ => Cause::Limit,
            };
            let refusal = Refusal::new(cause)
                .limits(&reports)
                .retry(self.hint(Some(retry)))
                .at(tier.as_str(), reason.as_str());
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
        let owed = match (case.asking, said.bill) {
            (Some(asking), Some(bill)) => Some(Owed::admission(self.clone(), asking, bill)),
            _ => None,
        };
        let open = owed.is_some() || said.in_flight.is_some();
        let tab = open.then(|| Tab::open(owed, said.in_flight, case.bodiless));
        Ok(Pass { fields, tab, decided })
    }
}
