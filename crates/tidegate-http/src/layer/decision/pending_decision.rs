//! A request before its decision, and the single path by which it is decided.

use http::{Method, Request};
use tidegate::{Decision, Outcome, Snapshot, StoreError};

use super::limits::{Charges, holds_slots};
use super::tiers::{Asking, Said};
use crate::head::Head;
use crate::key::Unkeyed;
use crate::layer::settings::Settings;

/// A request that is being decided.
pub(crate) struct PendingDecision {
    pub(crate) charges: Charges,
    /// The caller, if an admission decides.
    pub(crate) asking: Option<Asking>,
    /// Whether the response has no content.
    pub(crate) bodiless: bool,
}

impl PendingDecision {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let bodiless = *request.method() == Method::HEAD;
        Self { charges: Charges::new(), asking: None, bodiless }
    }
}

/// What to do with a request first.
pub(crate) enum Step {
    /// Admit without a charge.
    Free,
    /// Decide the charges or the caller in the pending decision.
    Decide,
    /// Refuse: there is no key to charge.
    Refuse(Unkeyed),
}

/// Result of a decision.
pub(crate) enum Answer {
    /// One charge, decided without a receipt under this limit.
    Spent(Outcome, Snapshot),
    /// A list of charges.
    Decided(Decision),
    /// An admission.
    Said(Said),
    /// The store failed.
    Failed(StoreError),
}

impl From<Result<Decision, StoreError>> for Answer {
    fn from(answer: Result<Decision, StoreError>) -> Self {
        answer.map_or_else(Self::Failed, Self::Decided)
    }
}

impl From<Result<Said, StoreError>> for Answer {
    fn from(answer: Result<Said, StoreError>) -> Self {
        answer.map_or_else(Self::Failed, Self::Said)
    }
}

impl Settings {
    /// Determines what must be decided for a request.
    pub(crate) fn first_step(&self, head: &Head<'_>, pending: &mut PendingDecision) -> Step {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            tracing::debug!("a request is charged nothing, as it was chosen to be");
            return Step::Free;
        }
        if let Some(tiers) = &self.tiers {
            // A disabled admission admits requests without a key, too.
            if !tiers.admission().is_enabled() {
                return Step::Free;
            }
            return match tiers.asking(head) {
                Ok(asking) => {
                    pending.asking = Some(asking);
                    Step::Decide
                }
                Err(unkeyed) => Step::Refuse(unkeyed),
            };
        }
        match self.limits.charges(head, &mut pending.charges) {
            Ok(()) if pending.charges.is_empty() => Step::Free,
            Ok(()) => Step::Decide,
            Err(unkeyed) => Step::Refuse(unkeyed),
        }
    }

    /// Decides; ready at the first poll on a local store.
    #[inline]
    pub(crate) async fn decide(&self, pending: &PendingDecision) -> Answer {
        if let (Some(tiers), Some(asking)) = (&self.tiers, &pending.asking) {
            return tiers.decide(asking).await.into();
        }
        match self.limits.spend(&pending.charges) {
            Some((outcome, terms)) => Answer::Spent(outcome, terms),
            None => self.limits.decide(&pending.charges).await.into(),
        }
    }

    /// Returns whether there will be slots to release or a charge to settle when the request ends.
    pub(crate) fn owes(&self, pending: &PendingDecision) -> bool {
        match &self.tiers {
            Some(tiers) => tiers.settle.is_some(),
            None => {
                self.limits.settles(&pending.charges)
                    || holds_slots(&self.limits.snapshots(&pending.charges))
            }
        }
    }
}
