//! Decisions in place of a store that does not answer: by the failure rules of the limits, on the
//! guard's own store.
//!
//! Nothing here waits or calls another store.

use std::num::NonZeroU32;
use std::time::Duration;

use smallvec::SmallVec;
use tidegate_core::{
    Answer, Charge, ChargeError, Decision, Denial, FailureRule, Grant, Key, Limit, Operation,
    Outcome, Outcomes, Policy, Receipt, Retry, StoreError, Target, Time, decide,
};
use tidegate_memory::MemoryStore;

use super::receipts::{Book, NOT_CHARGED};
use crate::request::FromAnswer as _;

/// The default rule, and the store that enforces this node's shares.
#[derive(Debug)]
pub(super) struct Fallback {
    pub(super) book: Book,
    default_rule: FailureRule,
}

/// Input to a decision besides the operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case {
    /// Number of nodes that limits are divided by.
    pub(super) nodes: NonZeroU32,
    /// The most lenient rule that applies. A limit with a more lenient rule follows this one.
    pub(super) least: FailureRule,
}

/// Operations that produce a decision.
#[derive(Clone, Copy)]
enum Verb {
    Take,
    Peek,
    Reserve(Duration),
}

impl Verb {
    fn of<'a>(self, charges: &'a [Charge<'a>]) -> Operation<'a> {
        match self {
            Self::Take => Operation::Take(charges),
            Self::Peek => Operation::Peek(charges),
            Self::Reserve(horizon) => Operation::Reserve { charges, horizon },
        }
    }
}

/// How one limit of a list is decided.
enum Ruled {
    Open,
    Closed,
    /// On this share of the limit.
    Local(Limit),
}

impl Ruled {
    const fn rule(&self) -> FailureRule {
        match self {
            Self::Open => FailureRule::Open,
            Self::Closed => FailureRule::Closed,
            Self::Local(_) => FailureRule::Local,
        }
    }
}

impl Fallback {
    pub(super) const fn new(book: Book, default_rule: FailureRule) -> Self {
        Self { book, default_rule }
    }

    /// Answers an operation that the store has not executed because of `error`. `retry_after` is
    /// the time until it makes sense to call the store again.
    pub(super) fn answer(
        &self,
        operation: &Operation<'_>,
        case: Case,
        hint: impl FnOnce() -> Duration,
        error: impl FnOnce() -> StoreError,
    ) -> Result<Answer, StoreError> {
        let decided = |decision: Result<_, _>| decision.map(Answer::Decision);
        match *operation {
            Operation::Take(charges) => decided(self.decide(Verb::Take, charges, case, hint)),
            Operation::Peek(charges) => decided(self.decide(Verb::Peek, charges, case, hint)),
            Operation::Reserve { charges, horizon } => {
                decided(self.decide(Verb::Reserve(horizon), charges, case, hint))
            }
            Operation::Hold { target, span } => {
                self.hold(&target, span, case).unwrap_or_else(|| Err(error()))
            }
            Operation::Reset { target } => {
                self.forget(&target, case.nodes);
                // The shared bucket still exists, and the caller must know that.
                Err(error())
            }
            Operation::Settle { corrections, .. } => {
                not_here(corrections.iter().map(|correction| correction.target.key), error)
            }
            Operation::Release { targets, .. } | Operation::Renew { targets, .. } => {
                not_here(targets.iter().map(|target| target.key), error)
            }
            _ => Err(error()),
        }
    }

    /// Holds the share of a key; `None` if its limit is not decided locally.
    pub(super) fn hold(
        &self,
        target: &Target<'_>,
        span: Duration,
        case: Case,
    ) -> Option<Result<Answer, StoreError>> {
        let Ruled::Local(share) = self.ruled(target.limit, case) else { return None };
        let target = Target { limit: &share, ..*target };
        Some(self.book.store().execute(&Operation::Hold { target, span }))
    }

    /// Forgets what was spent of a key on this node.
    pub(super) fn forget(&self, target: &Target<'_>, nodes: NonZeroU32) {
        if let Some(share) = self.book.shares().find(target.limit, nodes) {
            let target = Target { limit: &share, ..*target };
            let _ = self.book.store().execute(&Operation::Reset { target });
        }
    }

    /// Decides a list. A closed limit with a nonzero cost denies it; else the local shares decide
    /// together, all or nothing.
    fn decide(
        &self,
        verb: Verb,
        charges: &[Charge<'_>],
        case: Case,
        hint: impl FnOnce() -> Duration,
    ) -> Result<Decision, StoreError> {
        check(charges)?;
        let ruled: SmallVec<[Ruled; 2]> =
            charges.iter().map(|charge| self.ruled(charge.target.limit, case)).collect();
        let rule = ruled.iter().map(Ruled::rule).max().unwrap_or(FailureRule::Closed);
        let pairs = || charges.iter().zip(&ruled);
        let shut_out = pairs().any(|(charge, by)| charge.cost > 0 && matches!(by, Ruled::Closed));
        let part = Part::of(charges, &ruled);
        let store = self.book.store();
        let said = if shut_out { part.look(store) } else { part.decide(verb, store) }?;
        let denied = shut_out || said.as_ref().is_some_and(|said| !said.is_allowed());
        let hint = if denied { hint() } else { Duration::ZERO };
        let mut states = said.iter().flat_map(Decision::outcomes);
        let outcomes: Outcomes = pairs()
            .map(|(charge, by)| match by {
                Ruled::Open => full(charge.target.limit.policy()),
                Ruled::Closed => shut(charge, hint),
                Ruled::Local(_) => match states.next() {
                    Some(state) => of_limit(*state, charge, charges, hint),
                    None => shut(charge, hint),
                },
            })
            .collect();
        if denied {
            return Ok(Decision::Denied(Denial::new(outcomes).degraded(rule)));
        }
        let local = said.and_then(Decision::granted);
        let wait = local.as_ref().map_or(Duration::ZERO, |grant| grant.wait);
        let receipt = match verb {
            Verb::Peek => Receipt::default(),
            Verb::Take | Verb::Reserve(_) => self.receipt(&ruled, local.as_ref()),
        };
        Ok(Decision::Allowed(Grant::new(outcomes, wait, receipt).degraded(rule)))
    }

    /// One stamp per charge: that of its share, or `NOT_CHARGED`.
    fn receipt(&self, ruled: &[Ruled], local: Option<&Grant>) -> Receipt {
        let mut charged = local.iter().flat_map(|grant| grant.receipt.stamps()).copied();
        let stamps = ruled.iter().map(|by| match by {
            Ruled::Open | Ruled::Closed => NOT_CHARGED,
            Ruled::Local(_) => charged.next().unwrap_or(NOT_CHARGED),
        });
        let start = local.map_or(Time::ZERO, |grant| grant.receipt.start());
        Receipt::new(self.book.issuer(), start, stamps)
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

    fn ruled(&self, limit: &Limit, case: Case) -> Ruled {
        match self.rule(limit).max(case.least) {
            FailureRule::Open => Ruled::Open,
            // A share that cannot be represented is closed.
            FailureRule::Local => {
                self.book.shares().of(limit, case.nodes).map_or(Ruled::Closed, Ruled::Local)
            }
            _ => Ruled::Closed,
        }
    }
}

/// The charges of a list that are decided on local shares.
struct Part<'a> {
    charges: SmallVec<[Charge<'a>; 2]>,
    /// Index of each charge in the complete list.
    places: SmallVec<[usize; 2]>,
}

impl<'a> Part<'a> {
    fn of(charges: &'a [Charge<'a>], ruled: &'a [Ruled]) -> Self {
        let mut part = Self { charges: SmallVec::new(), places: SmallVec::new() };
        for (place, (charge, by)) in charges.iter().zip(ruled).enumerate() {
            if let Ruled::Local(share) = by {
                let target = Target { limit: share, ..charge.target };
                part.charges.push(Charge { target, cost: charge.cost });
                part.places.push(place);
            }
        }
        part
    }

    /// Decides these charges; `None` if there are none.
    fn decide(&self, verb: Verb, store: &MemoryStore) -> Result<Option<Decision>, StoreError> {
        if self.charges.is_empty() {
            return Ok(None);
        }
        let decision = store.execute(&verb.of(&self.charges)).and_then(Decision::from_answer);
        decision.map(Some).map_err(|error| self.told_of_the_list(error))
    }

    /// State of the shares in a list that is denied anyway. Nothing is spent.
    fn look(mut self, store: &MemoryStore) -> Result<Option<Decision>, StoreError> {
        match self.decide(Verb::Peek, store)? {
            Some(Decision::Allowed(_)) => {
                self.charges.iter_mut().for_each(|charge| charge.cost = 0);
                self.decide(Verb::Peek, store)
            }
            decision => Ok(decision),
        }
    }

    /// Translates the index in an error to the index in the complete list.
    fn told_of_the_list(&self, error: StoreError) -> StoreError {
        match error {
            StoreError::Charge(ChargeError::OtherWindows(index)) => {
                let place = self.places.get(index).copied().unwrap_or(index);
                ChargeError::OtherWindows(place).into()
            }
            other => other,
        }
    }
}

/// Checks for caller errors, which are errors no matter who decides.
fn check(charges: &[Charge<'_>]) -> Result<(), ChargeError> {
    decide::check_list(charges.iter().map(|charge| charge.target.key))?;
    let windowless = charges.iter().position(|Charge { target, .. }| {
        matches!(target.limit.policy(), Policy::Quota(_)) && target.windows.is_none()
    });
    windowless.map_or(Ok(()), |index| Err(ChargeError::NoWindows(index)))
}

/// Only the store knows what it charged. A list that the store would reject is rejected.
fn not_here<'a>(
    keys: impl ExactSizeIterator<Item = Key<'a>>,
    error: impl FnOnce() -> StoreError,
) -> Result<Answer, StoreError> {
    decide::check_list(keys)?;
    Err(error())
}

/// Outcome of a limit that is not counted.
pub(super) fn full(policy: &Policy) -> Outcome {
    let reset = matches!(policy, Policy::Bucket(_) | Policy::Quota(_)).then_some(Duration::ZERO);
    Outcome::new(policy.capacity(), policy.capacity(), reset, None)
}

/// Outcome of a limit that is closed until the store is back.
fn shut(charge: &Charge<'_>, hint: Duration) -> Outcome {
    let retry = (charge.cost > 0).then_some(Retry::After(hint));
    Outcome::new(charge.target.limit.policy().capacity(), 0, None, retry)
}

/// Outcome of a share, corrected where it differs from the limit: a cost that never fits the share
/// may fit the limit once the store is back.
fn of_limit(
    outcome: Outcome,
    charge: &Charge<'_>,
    charges: &[Charge<'_>],
    hint: Duration,
) -> Outcome {
    let Target { limit, key, .. } = charge.target;
    let beside = |other: &&Charge<'_>| other.target.limit == limit && other.target.key == key;
    let wanted: u128 = charges.iter().filter(beside).map(|charge| u128::from(charge.cost)).sum();
    match outcome.retry {
        Some(Retry::Never) if wanted <= limit.policy().capacity().into() => {
            let retry = Some(Retry::After(hint));
            Outcome::new(outcome.capacity, outcome.remaining, outcome.reset, retry)
        }
        _ => outcome,
    }
}
