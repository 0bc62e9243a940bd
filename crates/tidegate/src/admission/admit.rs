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
use crate::request::store_future::{Ask, StoreFuture, sealed};

use super::caller::Caller;
use super::hint;
use super::live::{Live, Shared};
use super::pending::InFlight;
use super::rules::Mode;
use super::verdict::{Charged, Pass, Rare, Rejection, Tier, Verdict};

/// A check of one caller; see [`Admission::admit`](super::Admission::admit).
///
/// Nothing happens until it runs: with [`now`](Self::now) on the in-process store, or with `.await`
/// on any store.
#[must_use = "nothing happens until it is awaited, or carried out with `now`"]
pub struct Admit<'a> {
    pub(super) engine: &'a Engine,
    pub(super) shared: &'a Shared,
    pub(super) caller: Caller<'a>,
    pub(super) billed: bool,
}

impl<'a> Admit<'a> {
    /// Requests a [bill](super::Pass::bill), to [settle](super::Admission::settle) later. Costs an
    /// allocation.
    pub fn billed(mut self) -> Self {
        self.billed = true;
        self
    }

    /// Runs the check at once, on the in-process store.
    ///
    /// # Errors
    /// When the store is shared and has to be awaited. On the in-process store it never fails.
    #[inline]
    pub fn now(self) -> Result<Verdict<'a>, StoreError> {
        // `decide` is kept out of line, so that a disabled admission costs one load and nothing
        // else.
        if self.is_off() { Ok(Verdict::Admitted(Pass::open())) } else { self.decide() }
    }

    #[inline(never)]
    fn decide(self) -> Result<Verdict<'a>, StoreError> {
        let plan = match self.look() {
            Step::Done(verdict) => return Ok(verdict),
            Step::Ask(plan) => plan,
        };
        if let Some(outcomes) = self.spend(&plan) {
            return Ok(plan.spent(outcomes));
        }
        let decision = self.engine.operation::<Decision>(Operation::Take(&plan.charges())).now()?;
        Ok(plan.conclude(decision))
    }

    /// Spends on the fast path, if no receipt is needed and the store supports it.
    #[inline]
    fn spend(&self, plan: &Plan<'_>) -> Option<Outcomes> {
        if self.billed {
            return None;
        }
        let mut outcomes = Outcomes::new();
        let store = self.engine.store().local()?;
        store.spend_list(&plan.charges(), &mut outcomes).then_some(outcomes)
    }

    #[inline]
    fn is_off(&self) -> bool {
        !self.shared.enabled.load(Ordering::Relaxed)
    }

    /// Checks everything that needs no bucket.
    fn look(&self) -> Step<'a> {
        let (shared, caller) = (self.shared, self.caller);
        let live = shared.live.load();
        let rules = &live.rules;
        let listed = match rules.allowed.is_empty() {
            true => None,
            false => rules.allowed.entry(caller.organization, caller.client),
        };
        if let Some(entry) = listed {
            shared.allowed.fetch_add(1, Ordering::Relaxed);
            let charged = Charged::allow_listed(entry);
            return Step::Done(Verdict::Admitted(Pass { charged, ..uncharged(shared) }));
        }
        if let Some(threshold) = rules.threshold {
            if let Some(pending) = shared.pending.above(threshold) {
                let wait = hint::of_backpressure(pending, threshold);
                return Step::Done(reject(shared, &live, backpressure(Retry::After(wait))));
            }
        }
        let client = rules.client.and_then(|_| caller.client_name(rules.missing_client));
        let organization = rules.organization.and(caller.organization);
        let charged = match (&client, organization) {
            (None, None) => return Step::Done(Verdict::Admitted(uncharged(shared))),
            (Some(_), None) => Charged::Client,
            (None, Some(_)) => Charged::Organization,
            (Some(_), Some(_)) => Charged::Both,
        };
        // Pending from here on: other checks must see it while a slow store decides.
        let in_flight = InFlight::start(&shared.pending);
        Step::Ask(Plan { shared, live, caller, client, charged, in_flight, billed: self.billed })
    }
}

/// Result of the checks that need no store.
enum Step<'a> {
    Done(Verdict<'a>),
    Ask(Plan<'a>),
}

/// A check that needs the store, under the rules that it started with.
struct Plan<'a> {
    shared: &'a Shared,
    live: Guard<Arc<Live>>,
    caller: Caller<'a>,
    client: Option<Cow<'a, str>>,
    charged: Charged,
    in_flight: InFlight,
    billed: bool,
}

impl<'a> Plan<'a> {
    /// One charge per tier, in order.
    #[inline]
    fn charges(&self) -> SmallVec<[Charge<'_>; 2]> {
        let cost = self.caller.cost;
        let tiers = self.charged.tiers().iter();
        tiers
            .filter_map(|tier| {
                let target = target(&self.live, *tier, &self.caller, self.client.as_deref())?;
                Some(Charge { target, cost })
            })
            .collect()
    }

    /// Turns the outcomes of the fast path, which has no receipt, into a result.
    #[inline]
    fn spent(self, outcomes: Outcomes) -> Verdict<'a> {
        if outcomes.iter().any(|outcome| outcome.retry.is_some()) {
            return self.denied(Denial::new(outcomes));
        }
        Verdict::Admitted(self.admitted(outcomes))
    }

    fn conclude(self, decision: Decision) -> Verdict<'a> {
        match decision {
            Decision::Allowed(grant) => {
                let missing = self.live.rules.missing_client;
                let billed = self.billed.then_some((grant.receipt, missing));
                let degraded = grant.degraded;
                let mut pass = self.admitted(grant.outcomes);
                if billed.is_some() || degraded.is_some() {
                    pass.rare = Some(Box::new(Rare { billed, degraded, would_reject: None }));
                }
                Verdict::Admitted(pass)
            }
            Decision::Denied(denial) => self.denied(denial),
            // `Decision` is non-exhaustive; an unknown variant rejects.
            _ => self.denied(Denial::new(Outcomes::new())),
        }
    }

    #[inline]
    fn admitted(self, outcomes: Outcomes) -> Pass<'a> {
        let (in_flight, outcomes) = (Some(self.in_flight), Some(outcomes));
        Pass { in_flight, charged: self.charged, outcomes, ..Pass::open() }
    }

    fn denied(&self, denial: Denial) -> Verdict<'a> {
        let tiers = self.charged.tiers();
        let first = denial.outcomes.iter().position(|outcome| outcome.retry.is_some());
        let tier = tiers.get(first.unwrap_or(denial.by)).copied().unwrap_or(Tier::Client);
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
        reject(self.shared, &self.live, rejection)
    }
}

/// The bucket of a caller in a tier, if the tier is configured and the caller has an id for it.
pub(super) fn target<'t>(
    live: &'t Live,
    tier: Tier,
    caller: &'t Caller<'_>,
    client: Option<&'t str>,
) -> Option<Target<'t>> {
    let bucket = |limit: &'t Option<Limit>, key: Key<'t>| {
        limit.as_ref().map(|limit| Target { limit, key, windows: None })
    };
    match tier {
        Tier::Backpressure => None,
        Tier::Client => bucket(&live.client, caller.within(client?)),
        Tier::Organization => bucket(&live.organization, Key::new(caller.organization?)),
    }
}

/// A pass that charged no bucket. The request is pending nevertheless.
fn uncharged<'a>(shared: &Shared) -> Pass<'a> {
    Pass { in_flight: Some(InFlight::start(&shared.pending)), ..Pass::open() }
}

fn backpressure<'a>(retry: Retry) -> Rejection<'a> {
    Rejection {
        tier: Tier::Backpressure,
        id: None,
        retry,
        degraded: None,
        charged: Charged::Nobody,
        outcomes: Outcomes::new(),
    }
}

fn reject<'a>(shared: &Shared, live: &Live, mut rejection: Rejection<'a>) -> Verdict<'a> {
    rejection.retry = hint::lengthened(rejection.retry, &shared.jitter, live.rules.jitter_percent);
    match live.rules.mode {
        Mode::Enforce => {
            shared.rejected.add(rejection.tier);
            Verdict::Rejected(rejection)
        }
        Mode::Shadow => {
            shared.shadowed.add(rejection.tier);
            let rare = Box::new(Rare { would_reject: Some(rejection), ..Rare::default() });
            Verdict::Admitted(Pass { rare: Some(rare), ..uncharged(shared) })
        }
    }
}

impl sealed::Sealed for Admit<'_> {}

impl<'a> Ask<'a> for Admit<'a> {
    type Answer = Result<Verdict<'a>, StoreError>;

    fn is_local(&self) -> bool {
        self.engine.store().local().is_some()
    }

    fn ask_local(self) -> Self::Answer {
        self.now()
    }

    fn ask_shared(self) -> Pin<Box<dyn Future<Output = Self::Answer> + Send + 'a>> {
        Box::pin(async move {
            if self.is_off() {
                return Ok(Verdict::Admitted(Pass::open()));
            }
            match self.look() {
                Step::Done(verdict) => Ok(verdict),
                Step::Ask(plan) => {
                    let decision =
                        self.engine.operation::<Decision>(Operation::Take(&plan.charges())).await?;
                    Ok(plan.conclude(decision))
                }
            }
        })
    }
}

impl<'a> IntoFuture for Admit<'a> {
    type Output = Result<Verdict<'a>, StoreError>;
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
