//! One check: described once, then run at once or awaited.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Guard;
use smallvec::SmallVec;
use tidegate_core::{
    Charge, Decision, Denial, Key, Limit, Operation, Outcomes, Retry, StoreError, Target,
};

use crate::engine::Engine;
use crate::request::store_future::{StoreFuture, StoreRequest, sealed};

use super::active_rules::{ActiveRules, Shared};
use super::caller::Caller;
use super::decision::{
    AdmissionDecision, AdmittedDetails, AdmittedRequest, ChargedTiers, Rejection, Tier,
};
use super::hint;
use super::pending::InFlight;
use super::rules::Mode;

/// A check of one caller; see [`Admission::admit`](super::Admission::admit).
///
/// Nothing happens until it runs: with [`now`](Self::now) on the in-process store, or with `.await`
/// on any store.
#[must_use = "nothing happens until the request is awaited, or run with `now`"]
pub struct Admit<'a> {
    pub(super) engine: &'a Engine,
    pub(super) shared: &'a Shared,
    pub(super) caller: Caller<'a>,
    pub(super) wants_receipt: bool,
}

impl<'a> Admit<'a> {
    /// Requests a [receipt](super::AdmittedRequest::receipt), to [settle](super::Admission::settle)
    /// later. Costs an allocation.
    pub fn with_receipt(mut self) -> Self {
        self.wants_receipt = true;
        self
    }

    /// Runs the check at once, on the in-process store.
    ///
    /// # Errors
    /// When the store is shared and has to be awaited. On the in-process store it never fails.
    #[inline]
    pub fn now(self) -> Result<AdmissionDecision<'a>, StoreError> {
        // `decide` is kept out of line, so that a disabled admission costs one load and nothing
        // else.
        if self.is_off() {
            Ok(AdmissionDecision::Admitted(AdmittedRequest::unchecked()))
        } else {
            self.decide()
        }
    }

    #[inline(never)]
    fn decide(self) -> Result<AdmissionDecision<'a>, StoreError> {
        let check = match self.precheck() {
            Precheck::Decided(result) => return Ok(result),
            Precheck::NeedsStore(check) => check,
        };
        if let Some(outcomes) = self.spend(&check) {
            return Ok(check.finish_fast(outcomes));
        }
        let decision =
            self.engine.operation::<Decision>(Operation::Take(&check.charges())).now()?;
        Ok(check.finish(decision))
    }

    /// Spends on the fast path, if no receipt is needed and the store supports it.
    #[inline]
    fn spend(&self, check: &StoreCheck<'_>) -> Option<Outcomes> {
        if self.wants_receipt {
            return None;
        }
        let mut outcomes = Outcomes::new();
        let store = self.engine.store().local()?;
        store.spend_list(&check.charges(), &mut outcomes).then_some(outcomes)
    }

    #[inline]
    fn is_off(&self) -> bool {
        !self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Checks everything that needs no bucket.
    fn precheck(&self) -> Precheck<'a> {
        let (shared, caller) = (self.shared, self.caller);
        let active = shared.active.load();
        let rules = &active.rules;
        let allow_listed = match rules.allowed.is_empty() {
            true => None,
            false => rules.allowed.entry(caller.organization, caller.client),
        };
        if let Some(entry) = allow_listed {
            shared.allowed.fetch_add(1, Ordering::Relaxed);
            let charged = ChargedTiers::allow_listed(entry);
            return Precheck::Decided(AdmissionDecision::Admitted(AdmittedRequest {
                charged,
                ..uncharged(shared)
            }));
        }
        if let Some(threshold) = rules.threshold {
            if let Some(pending) = shared.pending.above(threshold) {
                let wait = hint::backpressure_wait(pending, threshold);
                return Precheck::Decided(reject(
                    shared,
                    &active,
                    backpressure(Retry::After(wait)),
                ));
            }
        }
        let client = rules.client.and_then(|_| caller.client_name(rules.missing_client));
        let organization = rules.organization.and(caller.organization);
        let charged = match (&client, organization) {
            (None, None) => {
                return Precheck::Decided(AdmissionDecision::Admitted(uncharged(shared)));
            }
            (Some(_), None) => ChargedTiers::Client,
            (None, Some(_)) => ChargedTiers::Organization,
            (Some(_), Some(_)) => ChargedTiers::Both,
        };
        // Pending from here on: other checks must see it while a slow store decides.
        let in_flight = InFlight::start(&shared.pending);
        Precheck::NeedsStore(StoreCheck {
            shared,
            active,
            caller,
            client,
            charged,
            in_flight,
            wants_receipt: self.wants_receipt,
        })
    }
}

/// Result of the checks that need no store.
enum Precheck<'a> {
    Decided(AdmissionDecision<'a>),
    NeedsStore(StoreCheck<'a>),
}

/// A check that needs the store, under the rules that it started with.
struct StoreCheck<'a> {
    shared: &'a Shared,
    active: Guard<Arc<ActiveRules>>,
    caller: Caller<'a>,
    client: Option<Cow<'a, str>>,
    charged: ChargedTiers,
    in_flight: InFlight,
    wants_receipt: bool,
}

impl<'a> StoreCheck<'a> {
    /// One charge per tier, in order.
    #[inline]
    fn charges(&self) -> SmallVec<[Charge<'_>; 2]> {
        let cost = self.caller.cost;
        let tiers = self.charged.tiers().iter();
        tiers
            .filter_map(|tier| {
                let target = target(&self.active, *tier, &self.caller, self.client.as_deref())?;
                Some(Charge { target, cost })
            })
            .collect()
    }

    /// Turns the outcomes of the fast path, which has no receipt, into a result.
    #[inline]
    fn finish_fast(self, outcomes: Outcomes) -> AdmissionDecision<'a> {
        if outcomes.iter().any(|outcome| outcome.retry.is_some()) {
            return self.denied(Denial::new(outcomes));
        }
        AdmissionDecision::Admitted(self.admitted(outcomes))
    }

    fn finish(self, decision: Decision) -> AdmissionDecision<'a> {
        match decision {
            Decision::Allowed(grant) => {
                let missing = self.active.rules.missing_client;
                let receipt = self.wants_receipt.then_some((grant.receipt, missing));
                let degraded = grant.degraded;
                let mut admitted = self.admitted(grant.outcomes);
                if receipt.is_some() || degraded.is_some() {
                    admitted.details =
                        Some(Box::new(AdmittedDetails { receipt, degraded, would_reject: None }));
                }
                AdmissionDecision::Admitted(admitted)
            }
            Decision::Denied(denial) => self.denied(denial),
            // `Decision` is non-exhaustive; an unknown variant rejects.
            _ => self.denied(Denial::new(Outcomes::new())),
        }
    }

    #[inline]
    fn admitted(self, outcomes: Outcomes) -> AdmittedRequest<'a> {
        let (in_flight, outcomes) = (Some(self.in_flight), Some(outcomes));
        AdmittedRequest {
            in_flight,
            charged: self.charged,
            outcomes,
            ..AdmittedRequest::unchecked()
        }
    }

    fn denied(&self, denial: Denial) -> AdmissionDecision<'a> {
        let tiers = self.charged.tiers();
        let first = denial.outcomes.iter().position(|outcome| outcome.retry.is_some());
        let tier = tiers.get(first.unwrap_or(denial.binding)).copied().unwrap_or(Tier::Client);
        let id = match tier {
            Tier::Organization => self.caller.organization,
            _ => self.caller.client.or(self.caller.connection),
        };
        let rejection = Rejection {
            tier,
            id,
            retry: denial.retry,
            degraded: denial.degraded,
            charged: self.charged,
            outcomes: denial.outcomes,
        };
        reject(self.shared, &self.active, rejection)
    }
}

/// The bucket of a caller in a tier, if the tier is configured and the caller has an id for it.
pub(super) fn target<'t>(
    active: &'t ActiveRules,
    tier: Tier,
    caller: &'t Caller<'_>,
    client: Option<&'t str>,
) -> Option<Target<'t>> {
    let bucket = |limit: &'t Option<Limit>, key: Key<'t>| {
        limit.as_ref().map(|limit| Target { limit, key, windows: None })
    };
    match tier {
        Tier::Backpressure => None,
        Tier::Client => bucket(&active.client, caller.key_in_organization(client?)),
        Tier::Organization => bucket(&active.organization, Key::new(caller.organization?)),
    }
}

/// An admission that charged no bucket. The request is pending nevertheless.
fn uncharged<'a>(shared: &Shared) -> AdmittedRequest<'a> {
    AdmittedRequest {
        in_flight: Some(InFlight::start(&shared.pending)),
        ..AdmittedRequest::unchecked()
    }
}

fn backpressure<'a>(retry: Retry) -> Rejection<'a> {
    Rejection {
        tier: Tier::Backpressure,
        id: None,
        retry,
        degraded: None,
        charged: ChargedTiers::None,
        outcomes: Outcomes::new(),
    }
}

fn reject<'a>(
    shared: &Shared,
    active: &ActiveRules,
    mut rejection: Rejection<'a>,
) -> AdmissionDecision<'a> {
    rejection.retry =
        hint::with_jitter(rejection.retry, &shared.jitter, active.rules.jitter_percent);
    match active.rules.mode {
        Mode::Enforce => {
            shared.rejected.add(rejection.tier);
            AdmissionDecision::Rejected(rejection)
        }
        Mode::Shadow => {
            shared.shadowed.add(rejection.tier);
            let details = Box::new(AdmittedDetails {
                would_reject: Some(rejection),
                ..AdmittedDetails::default()
            });
            AdmissionDecision::Admitted(AdmittedRequest {
                details: Some(details),
                ..uncharged(shared)
            })
        }
    }
}

impl sealed::Sealed for Admit<'_> {}

impl<'a> StoreRequest<'a> for Admit<'a> {
    type Output = Result<AdmissionDecision<'a>, StoreError>;

    fn is_local(&self) -> bool {
        self.engine.store().local().is_some()
    }

    fn run_local(self) -> Self::Output {
        self.now()
    }

    fn run_shared(self) -> Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>> {
        Box::pin(async move {
            if self.is_off() {
                return Ok(AdmissionDecision::Admitted(AdmittedRequest::unchecked()));
            }
            match self.precheck() {
                Precheck::Decided(result) => Ok(result),
                Precheck::NeedsStore(check) => {
                    let decision = self
                        .engine
                        .operation::<Decision>(Operation::Take(&check.charges()))
                        .await?;
                    Ok(check.finish(decision))
                }
            }
        })
    }
}

impl<'a> IntoFuture for Admit<'a> {
    type Output = Result<AdmissionDecision<'a>, StoreError>;
    type IntoFuture = StoreFuture<'a, Self, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        StoreFuture::new(self)
    }
}

impl fmt::Debug for Admit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit").field("caller", &self.caller).finish_non_exhaustive()
    }
}
