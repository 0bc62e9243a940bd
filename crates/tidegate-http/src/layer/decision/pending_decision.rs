//! A request before its decision, and the single path by which it is decided.

use http::{Method, Request};
use tidegate::{Decision, LimitSnapshot, Outcome, StoreError};

use super::limits::{Charges, holds_slots};
use super::tiers::{CallerKeys, TierDecision};
use crate::head::Head;
use crate::key::MissingKeyError;
use crate::layer::settings::Settings;

/// A request that is being decided.
pub(crate) struct PendingDecision {
    pub(crate) charges: Charges,
    /// The caller, if an admission decides.
    pub(crate) caller: Option<CallerKeys>,
    /// Whether the response has no content.
    pub(crate) bodiless: bool,
}

impl PendingDecision {
    pub(crate) fn of<B>(request: &Request<B>) -> Self {
        let bodiless = *request.method() == Method::HEAD;
        Self { charges: Charges::new(), caller: None, bodiless }
    }
}

/// What to do with a request first.
pub(crate) enum Precheck {
    /// Admit without a charge.
    Admit,
    /// Decide the charges or the caller in the pending decision.
    Decide,
    /// Refuse: there is no key to charge.
    Refuse(MissingKeyError),
}

/// What the store or the admission decided.
pub(crate) enum StoreDecision {
    /// One charge, decided without a receipt under this limit.
    FastPath(Outcome, LimitSnapshot),
    /// A list of charges.
    List(Decision),
    /// An admission.
    Admission(TierDecision),
    /// The store failed.
    Failed(StoreError),
}

impl From<Result<Decision, StoreError>> for StoreDecision {
    fn from(decision: Result<Decision, StoreError>) -> Self {
        decision.map_or_else(Self::Failed, Self::List)
    }
}

impl From<Result<TierDecision, StoreError>> for StoreDecision {
    fn from(decision: Result<TierDecision, StoreError>) -> Self {
        decision.map_or_else(Self::Failed, Self::Admission)
    }
}

impl Settings {
    /// Determines what must be decided for a request.
    pub(crate) fn precheck(&self, head: &Head<'_>, pending: &mut PendingDecision) -> Precheck {
        if self.exempt.as_ref().is_some_and(|exempt| exempt(head)) {
            tracing::debug!("exempt request admitted without a charge");
            return Precheck::Admit;
        }
        if let Some(tiers) = &self.tiers {
            // A disabled admission admits requests without a key, too.
            if !tiers.admission().is_enabled() {
                return Precheck::Admit;
            }
            return match tiers.identify(head) {
                Ok(caller) => {
                    pending.caller = Some(caller);
                    Precheck::Decide
                }
                Err(unkeyed) => Precheck::Refuse(unkeyed),
            };
        }
        match self.limits.charges(head, &mut pending.charges) {
            Ok(()) if pending.charges.is_empty() => Precheck::Admit,
            Ok(()) => Precheck::Decide,
            Err(unkeyed) => Precheck::Refuse(unkeyed),
        }
    }

    /// Decides; ready at the first poll on a local store.
    #[inline]
    pub(crate) async fn decide(&self, pending: &PendingDecision) -> StoreDecision {
        if let (Some(tiers), Some(caller)) = (&self.tiers, &pending.caller) {
            return tiers.decide(caller).await.into();
        }
        match self.limits.spend(&pending.charges) {
            Some((outcome, snapshot)) => StoreDecision::FastPath(outcome, snapshot),
            None => self.limits.decide(&pending.charges).await.into(),
        }
    }

    /// Returns whether there will be slots to release or a charge to settle when the request ends.
    pub(crate) fn needs_settlement(&self, pending: &PendingDecision) -> bool {
        match &self.tiers {
            Some(tiers) => tiers.settle.is_some(),
            None => {
                self.limits.settles(&pending.charges)
                    || holds_slots(&self.limits.snapshots(&pending.charges))
            }
        }
    }
}
