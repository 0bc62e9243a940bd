//! One check, described once, carried out now or awaited.

use std::borrow::Cow;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arc_swap::Guard;
use smallvec::SmallVec;
use tidegate_core::{
    Charge, Decision, Denial, Key, Limit, Outcomes, Retry, Store, StoreError, Target,
};
use tidegate_memory::MemoryStore;

use crate::asking::{Ask, Asking, sealed};
use crate::engine::Engine;

use super::caller::Caller;
use super::hint;
use super::live::{Live, Shared};
use super::pending::InFlight;
use super::rules::Mode;
use super::verdict::{Charged, Pass, Rare, Reason, Rejection, Tier, Verdict};

/// A caller at the door; see [`Admission::admit`](super::Admission::admit).
///
/// Nothing happens until it is carried out: by [`now`](Self::now) on the in-process store, by
/// `.await` on any store.
#[must_use = "nothing happens until it is awaited, or carried out with `now`"]
pub struct Admit<'a, S: ?Sized> {
    pub(super) engine: &'a Engine<S>,
    pub(super) shared: &'a Shared,
    pub(super) caller: Caller<'a>,
    pub(super) billed: bool,
}

impl<S: ?Sized> Admit<'_, S> {
    /// With a [bill](super::Pass::bill), to [settle](super::Admission::settle) later. It costs an
    /// allocation.
    pub fn billed(mut self) -> Self {
        self.billed = true;
        self
    }
}

impl<'a> Admit<'a, MemoryStore> {
    /// Decides at once.
    #[inline]
    pub fn now(self) -> Verdict<'a> {
        // What follows is kept out of line: an admission that is off costs a load and no more.
        if self.is_off() { Verdict::Admitted(Pass::open()) } else { self.decide() }
    }

    #[inline(never)]
    fn decide(self) -> Verdict<'a> {
        let plan = match self.look() {
            Step::Done(verdict) => return verdict,
            Step::Ask(plan) => plan,
        };
        match self.spend(&plan) {
            Some(outcomes) => plan.spent(outcomes),
            None => {
                let decision = self.engine.take(&plan.charges()).now();
                plan.conclude(decision)
            }
        }
    }
}

impl<'a, S: Store + ?Sized> Admit<'a, S> {
    /// Decides now if the store can without waiting for anything; else nothing has happened, and
    /// `.await` is the way.
    pub fn at_once(&self) -> Option<Result<Verdict<'a>, StoreError>> {
        if self.is_off() {
            return Some(Ok(Verdict::Admitted(Pass::open())));
        }
        match self.look() {
            Step::Done(verdict) => Some(Ok(verdict)),
            Step::Ask(plan) => {
                if let Some(outcomes) = self.spend(&plan) {
                    return Some(Ok(plan.spent(outcomes)));
                }
                let decision = self.engine.take(&plan.charges()).at_once()?;
                Some(decision.map(|decision| plan.conclude(decision)))
            }
        }
    }
}

impl<'a, S: Store + ?Sized> Admit<'a, S> {
    /// The shortest way, if there is no need for a receipt and nothing is special.
    #[inline]
    fn spend(&self, plan: &Plan<'_>) -> Option<Outcomes> {
        let mut outcomes = Outcomes::new();
        let spent = !self.billed && self.engine.store().spend_now(&plan.charges(), &mut outcomes);
        spent.then_some(outcomes)
    }

    #[inline]
    fn is_off(&self) -> bool {
        !self.shared.enabled.load(Ordering::Relaxed)
    }

    /// What needs no bucket.
    fn look(&self) -> Step<'a> {
        let (shared, caller) = (self.shared, self.caller);
        let live = shared.live.load();
        let rules = &live.rules;
        if !rules.allowed.is_empty() && rules.allowed.has(caller.organization, caller.client) {
            shared.allowed.fetch_add(1, Ordering::Relaxed);
            return Step::Done(Verdict::Admitted(uncharged(shared)));
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
        // From here on it is pending: others must see it while a slow store is asked.
        let in_flight = InFlight::start(&shared.pending);
        Step::Ask(Plan { shared, live, caller, client, charged, in_flight, billed: self.billed })
    }
}

/// What a check has come to without asking a store.
enum Step<'a> {
    Done(Verdict<'a>),
    Ask(Plan<'a>),
}

/// A check that has to ask the store, under the rules it began with.
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
    /// One charge for each tier, in their order.
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

    /// What comes of charges for which there is no receipt.
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
            // Decisions may grow; one that is not known lets nobody in.
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
            reason: Reason::TokensExhausted,
            id,
            retry: denial.retry,
            degraded: denial.degraded,
            charged: self.charged,
            outcomes: denial.outcomes,
        };
        reject(self.shared, &self.live, rejection)
    }
}

/// The bucket of a caller in a tier, if there is such a tier and such an id.
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

/// A pass for which no bucket was charged. The request is pending all the same.
fn uncharged<'a>(shared: &Shared) -> Pass<'a> {
    Pass { in_flight: Some(InFlight::start(&shared.pending)), ..Pass::open() }
}

fn backpressure<'a>(retry: Retry) -> Rejection<'a> {
    Rejection {
        tier: Tier::Backpressure,
        reason: Reason::QueueDepth,
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

impl<S: ?Sized> sealed::Sealed for Admit<'_, S> {}

impl<'a, S: Store + ?Sized> Ask<'a> for Admit<'a, S> {
    type Answer = Result<Verdict<'a>, StoreError>;

    fn at_once(&self) -> Option<Self::Answer> {
        Admit::at_once(self)
    }

    fn ask(self) -> Pin<Box<dyn Future<Output = Self::Answer> + Send + 'a>> {
        Box::pin(async move {
            // Off or on, it has been asked before: only a store that must be waited for comes here.
            match self.look() {
                Step::Done(verdict) => Ok(verdict),
                Step::Ask(plan) => {
                    let decision = self.engine.take(&plan.charges()).await?;
                    Ok(plan.conclude(decision))
                }
            }
        })
    }
}

impl<'a, S: Store + ?Sized> IntoFuture for Admit<'a, S> {
    type Output = Result<Verdict<'a>, StoreError>;
    type IntoFuture = Asking<'a, Self, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        Asking::new(self)
    }
}

impl<S: ?Sized> fmt::Debug for Admit<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admit").field("caller", &self.caller).finish_non_exhaustive()
    }
}
