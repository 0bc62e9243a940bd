//! Decisions and their outcomes.
//!
//! A denial is a value, not an error. Failures of the store are [`StoreError`](crate::StoreError)s.

use core::time::Duration;

use smallvec::SmallVec;

use crate::failure::FailureRule;
use crate::receipt::Receipt;

/// Outcomes of a list, in the order of its charges.
pub type Outcomes = SmallVec<[Outcome; 2]>;

/// When a denied charge may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Retry {
    /// After this long, provided that no other caller spends in between.
    After(Duration),
    /// When a slot is released; the time is unknown.
    OnRelease,
    /// Never: the cost is above the capacity, or the allowance is used up.
    Never,
}

impl Retry {
    /// Returns the wait, if it is known.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::After(wait) => Some(wait),
            Self::OnRelease | Self::Never => None,
        }
    }
}

/// Outcome of one charge of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// Maximum the bucket can hold: capacity, quota, allowance or slots.
    pub capacity: u64,
    /// Whole tokens left after the decision.
    pub remaining: u64,
    /// Time until the bucket is full again; `None` if it does not refill with time.
    pub reset: Option<Duration>,
    /// When this charge alone would fit; `None` if it fits now.
    pub retry: Option<Retry>,
}

impl Outcome {
    /// Creates an outcome. For store implementations.
    #[must_use]
    pub const fn new(
        capacity: u64,
        remaining: u64,
        reset: Option<Duration>,
        retry: Option<Retry>,
    ) -> Self {
        Self { capacity, remaining, reset, retry }
    }
}

/// Decision on a list of charges: all of them are spent, or none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "an unchecked decision limits nothing"]
pub enum Decision {
    /// Every charge was spent.
    Allowed(Grant),
    /// Nothing was spent.
    Denied(Denial),
}

impl Decision {
    /// Returns whether every charge was spent.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// Returns the outcomes, in the order of the charges.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        match self {
            Self::Allowed(grant) => &grant.outcomes,
            Self::Denied(denial) => &denial.outcomes,
        }
    }

    /// Returns the index of the binding charge: the one with the longest wait when denied,
    /// otherwise the one with the least remaining.
    #[must_use]
    pub const fn binding(&self) -> usize {
        match self {
            Self::Allowed(grant) => grant.binding,
            Self::Denied(denial) => denial.binding,
        }
    }

    /// Returns the smallest number of whole tokens left in any bucket of the list.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.outcomes().iter().map(|outcome| outcome.remaining).min().unwrap_or(0)
    }

    /// Returns when to try again; `None` when allowed.
    #[must_use]
    pub const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Allowed(_) => None,
            Self::Denied(denial) => Some(denial.retry),
        }
    }

    /// Returns the failure rule that decided in place of the store; `None` if the store decided.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tidegate::{Decision, FailureRule, Grant, Receipt};
    /// let grant = Grant::new(Default::default(), Duration::ZERO, Receipt::default());
    /// assert_eq!(Decision::Allowed(grant.clone()).degraded(), None);
    /// let decision = Decision::Allowed(grant.degraded(FailureRule::Open));
    /// assert_eq!(decision.degraded(), Some(FailureRule::Open));
    /// ```
    #[must_use]
    pub const fn degraded(&self) -> Option<FailureRule> {
        match self {
            Self::Allowed(grant) => grant.degraded,
            Self::Denied(denial) => denial.degraded,
        }
    }

    /// Returns the grant, if allowed.
    #[must_use]
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Allowed(grant) => Some(grant),
            Self::Denied(_) => None,
        }
    }
}

/// A list whose charges were all spent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// One outcome per charge.
    pub outcomes: Outcomes,
    /// Index of the charge with the least remaining.
    pub binding: usize,
    /// How long to wait before proceeding; zero unless this is a reservation.
    pub wait: Duration,
    /// Receipt to settle, release or cancel the charges with.
    pub receipt: Receipt,
    /// Failure rule that decided in place of the store; `None` if the store decided.
    pub degraded: Option<FailureRule>,
}

impl Grant {
    /// Creates a grant. For store implementations.
    #[must_use]
    pub fn new(outcomes: Outcomes, wait: Duration, receipt: Receipt) -> Self {
        let least = outcomes.iter().enumerate().min_by_key(|(_, outcome)| outcome.remaining);
        let binding = least.map_or(0, |(index, _)| index);
        Self { outcomes, binding, wait, receipt, degraded: None }
    }

    /// Marks the grant as decided by a failure rule in place of the store.
    #[must_use]
    pub fn degraded(mut self, rule: FailureRule) -> Self {
        self.degraded = Some(rule);
        self
    }
}

/// A list of which nothing was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Denial {
    /// One outcome per charge.
    pub outcomes: Outcomes,
    /// Index of the charge with the longest wait.
    pub binding: usize,
    /// Longest wait of any charge.
    pub retry: Retry,
    /// Failure rule that decided in place of the store; `None` if the store decided.
    pub degraded: Option<FailureRule>,
}

impl Denial {
    /// Creates a denial, bound by the outcome with the longest wait. For store implementations.
    #[must_use]
    pub fn new(outcomes: Outcomes) -> Self {
        let (mut binding, mut longest) = (0, None);
        for (index, outcome) in outcomes.iter().enumerate() {
            if outcome.retry > longest {
                (binding, longest) = (index, outcome.retry);
            }
        }
        Self { outcomes, binding, retry: longest.unwrap_or(Retry::Never), degraded: None }
    }

    /// Marks the denial as decided by a failure rule in place of the store.
    #[must_use]
    pub fn degraded(mut self, rule: FailureRule) -> Self {
        self.degraded = Some(rule);
        self
    }
}

/// Result of a settlement.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// State of each bucket after the settlement, in the order of the corrections.
    pub outcomes: Outcomes,
    /// Number of corrections that reached the maximum debt. The excess is forgiven.
    pub saturated: usize,
    /// Number of refunds that had no effect: the calendar window has ended, the policy changed
    /// under a reservation, or later reservations already build on all of it.
    pub dropped: usize,
    /// Whole tokens actually charged per correction; negative if refunded. Corrections of the same
    /// bucket are reported as one sum, at the first of them.
    pub applied: SmallVec<[i64; 2]>,
}

impl Settlement {
    /// Creates a settlement result. For store implementations.
    #[must_use]
    pub const fn new(
        outcomes: Outcomes,
        saturated: usize,
        dropped: usize,
        applied: SmallVec<[i64; 2]>,
    ) -> Self {
        Self { outcomes, saturated, dropped, applied }
    }
}

#[cfg(test)]
mod tests {
    use smallvec::smallvec;

    use super::*;

    #[test]
    fn denial_binds_to_longest_wait_and_never_is_longest() {
        let outcome = |retry| Outcome::new(10, 3, None, retry);
        let (short, long) =
            (Retry::After(Duration::from_secs(1)), Retry::After(Duration::from_secs(9)));
        let denial = Denial::new(smallvec![
            outcome(None),
            outcome(Some(short)),
            outcome(Some(long)),
            outcome(Some(short))
        ]);
        assert_eq!((denial.binding, denial.retry), (2, long));
        let denial = Denial::new(smallvec![
            outcome(Some(long)),
            outcome(Some(Retry::Never)),
            outcome(Some(Retry::OnRelease))
        ]);
        assert_eq!((denial.binding, denial.retry), (1, Retry::Never));
    }
}
