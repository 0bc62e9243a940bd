//! The admission of a layer, and how its callers are identified.
//!
//! Only this module calls the admission. It knows nothing of responses.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use smallvec::SmallVec;
use tidegate::admission::{
    Admission, AdmissionDecision, AdmissionReceipt, Admit, Caller, InFlight, Rejection, Tier,
};
use tidegate::{FailureRule, Outcome, Retry, Settlement, StoreError};
use tidegate_core::Limit;

use super::rule::{ActualCost, Cost};
use crate::head::Head;
use crate::key::{KeySource, KeyText, MissingKey, MissingKeyError};

/// An admission, and the sources of its keys.
#[derive(Clone)]
pub(crate) struct Tiers {
    admission: Admission,
    organization: Option<Arc<dyn KeySource>>,
    client: Option<Arc<dyn KeySource>>,
    pub(crate) missing_organization: MissingKey,
    pub(crate) missing_client: MissingKey,
    pub(crate) cost: Option<Cost>,
    pub(crate) settle: Option<ActualCost>,
}

/// The caller of a request, as an admission sees it.
#[derive(Clone)]
pub(crate) struct CallerKeys {
    organization: Option<KeyText>,
    client: Client,
    pub(crate) cost: u64,
}

/// The key of the client tier.
#[derive(Clone)]
enum Client {
    Known(KeyText),
    /// No client key; the rules of the admission decide whether the connection gets a bucket.
    Connection(KeyText),
    Unknown,
}

/// Limit and outcome of each tier that was charged.
pub(crate) type TierOutcomes = SmallVec<[(Limit, Outcome); 2]>;

/// Decision of an admission, detached from it.
pub(crate) struct TierDecision {
    pub(crate) outcomes: TierOutcomes,
    pub(crate) rejected: Option<(Tier, Retry)>,
    /// Tier that would have rejected the request outside of shadow mode.
    pub(crate) would_reject: Option<(Tier, Retry)>,
    pub(crate) degraded: Option<FailureRule>,
    pub(crate) in_flight: Option<InFlight>,
    pub(crate) receipt: Option<AdmissionReceipt>,
}

impl Tiers {
    pub(crate) fn new(admission: Admission) -> Self {
        Self {
            admission,
            organization: None,
            client: None,
            missing_organization: MissingKey::default(),
            missing_client: MissingKey::default(),
            cost: None,
            settle: None,
        }
    }

    pub(crate) fn set_organization(&mut self, key: impl KeySource + 'static) {
        self.organization = Some(Arc::new(key));
    }

    pub(crate) fn set_client(&mut self, key: impl KeySource + 'static) {
        self.client = Some(Arc::new(key));
    }

    pub(crate) const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Returns whether rejections are currently only reported.
    pub(crate) fn in_shadow(&self) -> bool {
        self.admission.is_shadow()
    }

    /// Identifies the caller of a request, or returns why it has no key.
    pub(crate) fn identify(&self, head: &Head<'_>) -> Result<CallerKeys, MissingKeyError> {
        // A tier without a key source is skipped.
        let key = |source: &Option<Arc<dyn KeySource>>, missing: &MissingKey| match source {
            Some(source) => missing.key(&**source, head),
            None => Ok(None),
        };
        let organization = key(&self.organization, &self.missing_organization)?;
        let client = match key(&self.client, &self.missing_client)? {
            Some(client) => Client::Known(client),
            None => head.peer().map_or(Client::Unknown, connection),
        };
        let cost = self.cost.as_ref().map_or(1, |cost| cost(head));
        // A cost that is settled is at least 1: zero is never denied.
        let cost = if self.settle.is_some() { cost.max(1) } else { cost };
        Ok(CallerKeys { organization, client, cost })
    }

    /// Decides; ready at the first poll on a local store.
    pub(crate) async fn decide(&self, caller: &CallerKeys) -> Result<TierDecision, StoreError> {
        Ok(self.decision_from(self.admit(caller).await?))
    }

    /// Requests a receipt only if it is needed for a settlement.
    fn admit<'a>(&'a self, caller: &'a CallerKeys) -> Admit<'a> {
        let admit = self.admission.admit(caller.to_caller());
        if self.settle.is_some() { admit.with_receipt() } else { admit }
    }

    /// Settles; ready at the first poll on a local store.
    pub(crate) async fn settle(
        &self,
        caller: &CallerKeys,
        delta: i64,
        receipt: &AdmissionReceipt,
    ) -> Result<Settlement, StoreError> {
        self.admission.settle(caller.to_caller(), delta, receipt).await
    }

    fn decision_from(&self, decision: AdmissionDecision<'_>) -> TierDecision {
        match decision {
            AdmissionDecision::Admitted(admitted) => TierDecision {
                outcomes: self.tier_outcomes(admitted.outcomes()),
                rejected: None,
                would_reject: admitted
                    .would_reject()
                    .map(|rejection| (rejection.tier, rejection.retry)),
                degraded: admitted.degraded(),
                receipt: admitted.receipt(),
                in_flight: admitted.into_in_flight(),
            },
            AdmissionDecision::Rejected(rejection) => self.rejected(&rejection),
            // The enum is non-exhaustive: an unknown variant admits no request.
            _ => TierDecision {
                outcomes: TierOutcomes::new(),
                rejected: Some((Tier::Backpressure, Retry::OnRelease)),
                would_reject: None,
                degraded: None,
                in_flight: None,
                receipt: None,
            },
        }
    }

    fn rejected(&self, rejection: &Rejection<'_>) -> TierDecision {
        TierDecision {
            outcomes: self.tier_outcomes(rejection.outcomes()),
            rejected: Some((rejection.tier, rejection.retry)),
            would_reject: None,
            degraded: rejection.degraded,
            in_flight: None,
            receipt: None,
        }
    }

    fn tier_outcomes<'o>(
        &self,
        outcomes: impl Iterator<Item = (Tier, &'o Outcome)>,
    ) -> TierOutcomes {
        let with_limit =
            |(tier, outcome): (Tier, &Outcome)| Some((self.admission.limit(tier)?, *outcome));
        outcomes.filter_map(with_limit).collect()
    }
}

impl CallerKeys {
    fn to_caller(&self) -> Caller<'_> {
        let mut caller = Caller::new().cost(self.cost);
        if let Some(organization) = &self.organization {
            caller = caller.organization(organization.as_str());
        }
        match &self.client {
            Client::Known(client) => caller.client(client.as_str()),
            Client::Connection(connection) => caller.connection(connection.as_str()),
            Client::Unknown => caller,
        }
    }
}

fn connection(peer: SocketAddr) -> Client {
    let mut key = KeyText::default();
    // Writing to a string does not fail.
    let _ = write!(key, "{peer}");
    Client::Connection(key)
}
