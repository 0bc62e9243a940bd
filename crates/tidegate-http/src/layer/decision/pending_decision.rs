//! A request on its way to a decision, and the one way in which it gets there.

use http::{Method, Request};
use tidegate::{Decision, Outcome, Snapshot, StoreError};

use super::limits::{Charges, holds_slots};
use super::tiers::{Asking, Said};
use crate::head::Head;
use crate::key::Unkeyed;
use crate::layer::settings::Settings;

/// A request on its way to a decision.
pub(crate) struct PendingDecision {
    pub(crate) charges: Charges,
    /// Who asks to be let in, if that is what is asked.
    pub(crate) asking: Option<Asking>,
    /// Its answer has no content.
    pub(crate) bodiless: bool,
}

impl PendingDecision {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let bodiless = *request.method() == Method::HEAD;
        Self { charges: Charges::new(), asking: None, bodiless }
    }
}

/// What to do with a request.
pub(crate) enum Step {
    /// Nothing is charged.
    Free,
    /// It is charged what its pending decision says.
    Decide,
    /// It cannot be charged.
    Refuse(Unkeyed),
}

/// What came of asking.
pub(crate) enum Answer {
    /// One charge was decided without a receipt, under these terms.
    Spent(Outcome, Snapshot),
    /// A list was decided.
    Decided(Decision),
    /// An admission has spoken.
    Said(Said),
    /// Nobody could decide.
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
    /// What is to be decided about a request.
    pub(crate) fn first_step(&self, head: &Head<'_>, pending: &mut PendingDecision) -> Step {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            tracing::debug!("a request is charged nothing, as it was chosen to be");
            return Step::Free;
        }
        if let Some(tiers) = &self.tiers {
            // Whoever is let in by a switch needs no key either.
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

    /// Decides: at the first poll if the store is in process.
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

    /// Whether something is owed when a request is over that was charged like this.
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
