//! Decisions. Denied is a value; a store that cannot answer is an error, and elsewhere.

use core::time::Duration;

use smallvec::SmallVec;

use crate::failure::FailureRule;
use crate::receipt::Receipt;

/// The outcomes of a list, in the order of its charges.
pub type Outcomes = SmallVec<[Outcome; 2]>;

/// When a denied charge may be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Retry {
    /// After this long, if nobody else spends in between.
    After(Duration),
    /// When somebody releases a slot; nobody knows when.
    OnRelease,
    /// It can never fit: the cost is above the capacity, or an allowance is used up.
    Never,
}

impl Retry {
    /// The wait, if it is known.
    #[must_use]
    pub const fn after(self) -> Option<Duration> {
        match self {
            Self::After(wait) => Some(wait),
            Self::OnRelease | Self::Never => None,
        }
    }
}

/// How one charge of a list came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The most the bucket can hold: capacity, quota, allowance or slots.
    pub capacity: u64,
    /// Whole tokens left after the decision.
    pub remaining: u64,
    /// How long until the bucket is full again; `None` if time alone does not fill it.
    pub reset: Option<Duration>,
    /// When this charge alone would fit; `None` if it fits now.
    pub retry: Option<Retry>,
}

impl Outcome {
    /// An outcome; stores make them.
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

/// Whether a list of charges was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use = "a decision that nobody reads limits nothing"]
pub enum Decision {
    /// Every charge was spent.
    Allowed(Grant),
    /// Nothing was spent.
    Denied(Denial),
}

impl Decision {
    /// Whether every charge was spent.
    #[must_use]
    pub const fn is_allowed(&self) -> bool {
        matches!(self, Self::Allowed(_))
    }

    /// The outcomes, in the order of the charges.
    #[must_use]
    pub fn outcomes(&self) -> &[Outcome] {
        match self {
            Self::Allowed(grant) => &grant.outcomes,
            Self::Denied(denial) => &denial.outcomes,
        }
    }

    /// The index of the binding charge: the longest wait when denied, else the least left.
    #[must_use]
    pub const fn binding(&self) -> usize {
        match self {
            Self::Allowed(grant) => grant.binding,
            Self::Denied(denial) => denial.by,
        }
    }

    /// The fewest whole tokens left in any bucket of the list.
    #[must_use]
    pub fn remaining(&self) -> u64 {
        self.outcomes().iter().map(|outcome| outcome.remaining).min().unwrap_or(0)
    }

    /// When to try again; `None` when allowed.
    #[must_use]
    pub const fn retry(&self) -> Option<Retry> {
        match self {
            Self::Allowed(_) => None,
            Self::Denied(denial) => Some(denial.retry),
        }
    }

    /// The failure rule that decided because the store did not answer; `None` if the store did.
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

    /// The grant, if allowed.
    #[must_use]
    pub fn granted(self) -> Option<Grant> {
        match self {
            Self::Allowed(grant) => Some(grant),
            Self::Denied(_) => None,
        }
    }
}

/// A list that was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// One per charge.
    pub outcomes: Outcomes,
    /// The index of the charge with the least left.
    pub binding: usize,
    /// How long to wait before going ahead: zero unless it was a reservation.
    pub wait: Duration,
    /// What settle, release and cancel take back.
    pub receipt: Receipt,
    /// The failure rule that decided because the store did not answer; `None` if the store did.
    pub degraded: Option<FailureRule>,
}

impl Grant {
    /// A grant; stores make them.
    #[must_use]
    pub fn new(outcomes: Outcomes, wait: Duration, receipt: Receipt) -> Self {
        let least = outcomes.iter().enumerate().min_by_key(|(_, outcome)| outcome.remaining);
        let binding = least.map_or(0, |(index, _)| index);
        Self { outcomes, binding, wait, receipt, degraded: None }
    }

    /// The grant, marked as one of a failure rule instead of the store.
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
    /// One per charge.
    pub outcomes: Outcomes,
    /// The index of the charge with the longest wait.
    pub by: usize,
    /// The longest wait.
    pub retry: Retry,
    /// The failure rule that decided because the store did not answer; `None` if the store did.
    pub degraded: Option<FailureRule>,
}

impl Denial {
    /// A denial by the outcome with the longest wait; stores make them.
    #[must_use]
    pub fn new(outcomes: Outcomes) -> Self {
        let (mut by, mut longest) = (0, None);
        for (index, outcome) in outcomes.iter().enumerate() {
            if outcome.retry > longest {
                (by, longest) = (index, outcome.retry);
            }
        }
        Self { outcomes, by, retry: longest.unwrap_or(Retry::Never), degraded: None }
    }

    /// The denial, marked as one of a failure rule instead of the store.
    #[must_use]
    pub fn degraded(mut self, rule: FailureRule) -> Self {
        self.degraded = Some(rule);
        self
    }
}

/// What a settlement did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Settlement {
    /// How each bucket stands now, in the order of the corrections.
    pub outcomes: Outcomes,
    /// How many corrections hit the deepest debt; what was beyond it is forgiven.
    pub saturated: usize,
    /// How many refunds were dropped whole: for an earlier calendar window, for a bucket whose
    /// policy changed under a reservation, or because others had built on all of it.
    pub dropped: usize,
    /// For each correction the whole tokens that were really charged, or given back if negative.
    /// Several corrections of one bucket are told together, at the first of them.
    pub applied: SmallVec<[i64; 2]>,
}

impl Settlement {
    /// A settlement; stores make them.
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
        assert_eq!((denial.by, denial.retry), (2, long));
        let denial = Denial::new(smallvec![
            outcome(Some(long)),
            outcome(Some(Retry::Never)),
            outcome(Some(Retry::OnRelease))
        ]);
        assert_eq!((denial.by, denial.retry), (1, Retry::Never));
    }
}
