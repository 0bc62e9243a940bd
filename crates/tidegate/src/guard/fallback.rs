//! Decisions in place of a store that does not answer: by the failure rules of the limits, on the
//! guard's own store.
//!
//! Nothing here waits or calls another store.

use std::num::NonZeroU32;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    Charge, ChargeError, Decision, Denial, FailureRule, Grant, Key, Limit, Operation, Outcome,
    Outcomes, Policy, Receipt, Retry, StoreError, StoreResponse, Target, Time, decide,
};
use tidegate_memory::MemoryStore;

use super::receipts::{LocalStore, NOT_CHARGED};
use crate::request::FromAnswer as _;

/// The default rule, and the store that enforces this node's shares.
#[derive(Debug)]
pub(super) struct Fallback {
    pub(super) local: LocalStore,
    default_rule: FailureRule,
}

/// Input to a decision besides the operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct FallbackContext {
    /// Number of nodes that limits are divided by.
    pub(super) nodes: NonZeroU32,
    /// The most lenient rule that applies. A limit with a more lenient rule follows this one.
    pub(super) most_lenient: FailureRule,
}

/// Operations that produce a decision.
#[derive(Clone, Copy)]
enum Verb {
    Take,
    Peek,
    Reserve(Duration),
}

impl Verb {
    fn operation<'a>(self, charges: &'a [Charge<'a>]) -> Operation<'a> {
        match self {
            Self::Take => Operation::Take(charges),
            Self::Peek => Operation::Peek(charges),
            Self::Reserve(horizon) => Operation::Reserve { charges, horizon },
        }
    }
}

/// How one limit of a list is decided.
enum LimitMode {
    Open,
    Closed,
    /// On this share of the limit.
    Local(Limit),
}

impl LimitMode {
    const fn rule(&self) -> FailureRule {
        match self {
            Self::Open => FailureRule::Open,
            Self::Closed => FailureRule::Closed,
            Self::Local(_) => FailureRule::Local,
        }
    }
}

impl Fallback {
    pub(super) const fn new(local: LocalStore, default_rule: FailureRule) -> Self {
        Self { local, default_rule }
    }

    /// Answers an operation that the store has not executed because of `error`. `retry_after` is
    /// the time until it makes sense to call the store again.
    pub(super) fn answer(
        &self,
        operation: &Operation<'_>,
        context: FallbackContext,
        retry_after: impl FnOnce() -> Duration,
        error: impl FnOnce() -> StoreError,
    ) -> Result<StoreResponse, StoreError> {
        let decided = |decision: Result<_, _>| decision.map(StoreResponse::Decision);
        match *operation {
            Operation::Take(charges) => {
                decided(self.decide(Verb::Take, charges, context, retry_after))
            }
            Operation::Peek(charges) => {
                decided(self.decide(Verb::Peek, charges, context, retry_after))
            }
            Operation::Reserve { charges, horizon } => {
                decided(self.decide(Verb::Reserve(horizon), charges, context, retry_after))
            }
            Operation::Hold { target, span } => {
                self.hold(&target, span, context).unwrap_or_else(|| Err(error()))
            }
            Operation::Reset { target } => {
                self.forget(&target, context.nodes);
                // The shared bucket still exists, and the caller must know that.
                Err(error())
            }
            Operation::Settle { corrections, .. } => {
                check_then_fail(corrections.iter().map(|correction| correction.target.key), error)
            }
            Operation::Release { targets, .. } | Operation::Renew { targets, .. } => {
                check_then_fail(targets.iter().map(|target| target.key), error)
            }
            _ => Err(error()),
        }
    }

    /// Holds the share of a key; `None` if its limit is not decided locally.
    pub(super) fn hold(
        &self,
        target: &Target<'_>,
        span: Duration,
        context: FallbackContext,
    ) -> Option<Result<StoreResponse, StoreError>> {
        let LimitMode::Local(share) = self.mode_of(target.limit, context) else { return None };
        let target = Target { limit: &share, ..*target };
        Some(self.local.store().execute(&Operation::Hold { target, span }))
    }

    /// Forgets what was spent of a key on this node.
    pub(super) fn forget(&self, target: &Target<'_>, nodes: NonZeroU32) {
        if let Some(share) = self.local.shares().find(target.limit, nodes) {
            let target = Target { limit: &share, ..*target };
            let _ = self.local.store().execute(&Operation::Reset { target });
        }
    }

    /// Decides a list. A closed limit with a nonzero cost denies it; else the local shares decide
    /// together, all or nothing.
    fn decide(
        &self,
        verb: Verb,
        charges: &[Charge<'_>],
        context: FallbackContext,
        retry_after: impl FnOnce() -> Duration,
    ) -> Result<Decision, StoreError> {
        check_charges(charges)?;
        let modes: SmallVec<[LimitMode; 2]> =
            charges.iter().map(|charge| self.mode_of(charge.target.limit, context)).collect();
        let rule = modes.iter().map(LimitMode::rule).max().unwrap_or(FailureRule::Closed);
        let pairs = || charges.iter().zip(&modes);
        let is_closed =
            pairs().any(|(charge, mode)| charge.cost > 0 && matches!(mode, LimitMode::Closed));
        let local_charges = LocalCharges::select(charges, &modes);
        let store = self.local.store();
        let local_decision =
            if is_closed { local_charges.peek(store) } else { local_charges.decide(verb, store) }?;
        let denied =
            is_closed || local_decision.as_ref().is_some_and(|decision| !decision.is_allowed());
        let retry_after = if denied { retry_after() } else { Duration::ZERO };
        let mut states = local_decision.iter().flat_map(Decision::outcomes);
        let outcomes: Outcomes = pairs()
            .map(|(charge, mode)| match mode {
                LimitMode::Open => full_outcome(charge.target.limit.policy()),
                LimitMode::Closed => closed_outcome(charge, retry_after),
                LimitMode::Local(_) => match states.next() {
                    Some(state) => limit_outcome(*state, charge, charges, retry_after),
                    None => closed_outcome(charge, retry_after),
                },
            })
            .collect();
        if denied {
            return Ok(Decision::Denied(Denial::new(outcomes).degraded(rule)));
        }
        let local = local_decision.and_then(Decision::granted);
        let wait = local.as_ref().map_or(Duration::ZERO, |grant| grant.wait);
        let receipt = match verb {
            Verb::Peek => Receipt::default(),
            Verb::Take | Verb::Reserve(_) => self.receipt(&modes, local.as_ref()),
        };
        Ok(Decision::Allowed(Grant::new(outcomes, wait, receipt).degraded(rule)))
    }

    /// One record per charge: that of its share, or `NOT_CHARGED`.
    fn receipt(&self, modes: &[LimitMode], local: Option<&Grant>) -> Receipt {
        let mut charged = local.iter().flat_map(|grant| grant.receipt.charges()).copied();
        let records = modes.iter().map(|mode| match mode {
            LimitMode::Open | LimitMode::Closed => NOT_CHARGED,
            LimitMode::Local(_) => charged.next().unwrap_or(NOT_CHARGED),
        });
        let start = local.map_or(Time::ZERO, |grant| grant.receipt.start());
        Receipt::new(self.local.issuer(), start, records)
    }

    /// The failure rule of a limit.
    pub(super) fn rule(&self, limit: &Limit) -> FailureRule {
        let default = match limit.policy() {
            // A daily or monthly quota is not given away because a store is down.
            Policy::Quota(_) => FailureRule::Closed,
            _ => self.default_rule,
        };
        limit.failure_rule().unwrap_or(default)
    }

    fn mode_of(&self, limit: &Limit, context: FallbackContext) -> LimitMode {
        match self.rule(limit).max(context.most_lenient) {
            FailureRule::Open => LimitMode::Open,
            // A share that cannot be represented is closed.
            FailureRule::Local => self
                .local
                .shares()
                .get_or_create(limit, context.nodes)
                .map_or(LimitMode::Closed, LimitMode::Local),
            _ => LimitMode::Closed,
        }
    }
}

/// The charges of a list that are decided on local shares.
struct LocalCharges<'a> {
    charges: SmallVec<[Charge<'a>; 2]>,
    /// Index of each charge in the complete list.
    indices: SmallVec<[usize; 2]>,
}

impl<'a> LocalCharges<'a> {
    fn select(charges: &'a [Charge<'a>], modes: &'a [LimitMode]) -> Self {
        let mut local_charges = Self { charges: SmallVec::new(), indices: SmallVec::new() };
        for (index, (charge, mode)) in charges.iter().zip(modes).enumerate() {
            if let LimitMode::Local(share) = mode {
                let target = Target { limit: share, ..charge.target };
                local_charges.charges.push(Charge { target, cost: charge.cost });
                local_charges.indices.push(index);
            }
        }
        local_charges
    }

    /// Decides these charges; `None` if there are none.
    fn decide(&self, verb: Verb, store: &MemoryStore) -> Result<Option<Decision>, StoreError> {
        if self.charges.is_empty() {
            return Ok(None);
        }
        let decision =
            store.execute(&verb.operation(&self.charges)).and_then(Decision::from_answer);
        decision.map(Some).map_err(|error| self.with_list_index(error))
    }

    /// State of the shares in a list that is denied anyway. Nothing is spent.
    fn peek(mut self, store: &MemoryStore) -> Result<Option<Decision>, StoreError> {
        match self.decide(Verb::Peek, store)? {
            Some(Decision::Allowed(_)) => {
                self.charges.iter_mut().for_each(|charge| charge.cost = 0);
                self.decide(Verb::Peek, store)
            }
            decision => Ok(decision),
        }
    }

    /// Translates the index in an error to the index in the complete list.
    fn with_list_index(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Charge(ChargeError::OtherWindows(index)) => {
                let index = self.indices.get(index).copied().unwrap_or(index);
                ChargeError::OtherWindows(index).into()
            }
            other => other,
        }
    }
}

/// Checks for caller errors, which are errors no matter who decides.
fn check_charges(charges: &[Charge<'_>]) -> Result<(), ChargeError> {
    decide::check_list(charges.iter().map(|charge| charge.target.key))?;
    let windowless = charges.iter().position(|Charge { target, .. }| {
        matches!(target.limit.policy(), Policy::Quota(_)) && target.windows.is_none()
    });
    windowless.map_or(Ok(()), |index| Err(ChargeError::NoWindows(index)))
}

/// Only the store knows what it charged. A list that the store would reject is rejected.
fn check_then_fail<'a>(
    keys: impl ExactSizeIterator<Item = Key<'a>>,
    error: impl FnOnce() -> StoreError,
) -> Result<StoreResponse, StoreError> {
    decide::check_list(keys)?;
    Err(error())
}

/// Outcome of a limit that is not counted.
pub(super) fn full_outcome(policy: &Policy) -> Outcome {
    let reset = matches!(policy, Policy::Bucket(_) | Policy::Quota(_)).then_some(Duration::ZERO);
    Outcome::new(policy.capacity(), policy.capacity(), reset, None)
}

/// Outcome of a limit that is closed until the store is back.
fn closed_outcome(charge: &Charge<'_>, retry_after: Duration) -> Outcome {
    let retry = (charge.cost > 0).then_some(Retry::After(retry_after));
    Outcome::new(charge.target.limit.policy().capacity(), 0, None, retry)
}

/// Outcome of a share, corrected where it differs from the limit: a cost that never fits the share
/// may fit the limit once the store is back.
fn limit_outcome(
    outcome: Outcome,
    charge: &Charge<'_>,
    charges: &[Charge<'_>],
    retry_after: Duration,
) -> Outcome {
    let Target { limit, key, .. } = charge.target;
    let is_same_bucket =
        |other: &&Charge<'_>| other.target.limit == limit && other.target.key == key;
    let wanted: u128 =
        charges.iter().filter(is_same_bucket).map(|charge| u128::from(charge.cost)).sum();
    match outcome.retry {
        Some(Retry::Never) if wanted <= limit.policy().capacity().into() => {
            let retry = Some(Retry::After(retry_after));
            Outcome::new(outcome.capacity, outcome.remaining, outcome.reset, retry)
        }
        _ => outcome,
    }
}
