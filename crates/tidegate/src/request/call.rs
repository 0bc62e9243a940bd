//! What a request asks, and how it becomes an operation: under which policy, and behind whom.
//!
//! Nothing is sent from here. The same is done for one request and for each of a batch.

use std::time::Duration;

use tidegate_core::{
    Answer, Charge, Correction, Decision, Denial, Key, Operation, Outcome, Policy, Receipt, Retry,
    StoreError, WallTime,
};
use tidegate_memory::MemoryStore;

use super::FromAnswer;
use crate::pacer::project;
use crate::terms::{Snapshot, Terms};

/// What to do, described so that a limiter's policy is read when it is carried out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'a> {
    /// A list, with policies that the caller holds.
    List(Operation<'a>),
    /// One key of a limiter, under the policy of the moment.
    One { terms: &'a Terms, key: Key<'a>, wall: WallTime, verb: Verb<'a> },
}

/// The verbs for a single key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Verb<'a> {
    Take(u64),
    Peek(u64),
    Reserve(u64, Duration),
    Settle(i64, Option<&'a Receipt>),
    Hold(Duration),
    Reset,
}

impl<'a> Call<'a> {
    /// The policy to go by, read now.
    fn snapshot(&self) -> Option<Snapshot> {
        self.terms().map(|(terms, wall)| terms.snapshot(wall))
    }

    /// Whose policy is to be read, and for which time.
    pub(crate) fn terms(&self) -> Option<(&'a Terms, WallTime)> {
        match *self {
            Self::List(_) => None,
            Self::One { terms, wall, .. } => Some((terms, wall)),
        }
    }

    /// The decision on a plain take of one key, for which nobody waits, of a token bucket: most
    /// takes are, and this way nothing is wrapped and unwrapped.
    #[inline]
    pub(super) fn take_plain(&self, store: &MemoryStore) -> Option<Decision> {
        let Self::One { terms, key, verb: Verb::Take(cost), .. } = *self else { return None };
        if terms.on_calendar() || terms.queued().ahead_of(key).is_some() {
            return None;
        }
        let snapshot = terms.snapshot(WallTime::default());
        let limit = snapshot.limit();
        let of_bucket = matches!(limit.policy(), Policy::Bucket(_));
        of_bucket.then(|| store.take_one(limit, key, cost))
    }

    /// The same call, or a look at the state alone if it would overtake waiters.
    fn or_look(self, behind: Option<(u128, u64)>) -> Self {
        match (self, behind) {
            (Self::One { terms, key, wall, .. }, Some(_)) => {
                Self::One { terms, key, wall, verb: Verb::Peek(0) }
            }
            (call, _) => call,
        }
    }

    /// For a plain take, and what a peek says of it: how many tokens of its key others wait for,
    /// and its own cost.
    fn behind(&self) -> Option<(u128, u64)> {
        match *self {
            Self::One { terms, key, verb: Verb::Take(cost) | Verb::Peek(cost), .. } if cost > 0 => {
                Some((terms.queued().ahead_of(key)?, cost))
            }
            _ => None,
        }
    }

    /// The operation under a policy that was read before.
    fn under<'s>(self, snapshot: Option<&'s Snapshot>) -> Parts<'s>
    where
        'a: 's,
    {
        let (key, verb, snapshot) = match (self, snapshot) {
            (Self::One { key, verb, .. }, Some(snapshot)) => (key, verb, snapshot),
            (Self::List(operation), _) => return Parts::Whole(operation),
            (Self::One { .. }, None) => return Parts::Whole(Operation::Take(&[])),
        };
        let target = snapshot.target(key);
        match verb {
            Verb::Take(cost) => Parts::Take([Charge { target, cost }]),
            Verb::Peek(cost) => Parts::Peek([Charge { target, cost }]),
            Verb::Reserve(cost, horizon) => Parts::Reserve([Charge { target, cost }], horizon),
            Verb::Settle(delta, receipt) => Parts::Settle([Correction { target, delta }], receipt),
            Verb::Hold(span) => Parts::Whole(Operation::Hold { target, span }),
            Verb::Reset => Parts::Whole(Operation::Reset { target }),
        }
    }
}

/// A call on its way: as it is sent, and who waits before it.
///
/// The policy that it goes by is kept beside it, because calls of a batch share theirs.
pub(crate) struct Asked<'a> {
    call: Call<'a>,
    behind: Option<(u128, u64)>,
}

impl<'a> Asked<'a> {
    pub(crate) fn of(call: Call<'a>) -> Self {
        let behind = call.behind();
        Self { call: call.or_look(behind), behind }
    }

    /// The call with the policy of this moment.
    pub(super) fn with_snapshot(call: Call<'a>) -> (Self, Option<Snapshot>) {
        (Self::of(call), call.snapshot())
    }

    pub(crate) fn parts<'s>(&self, snapshot: Option<&'s Snapshot>) -> Parts<'s>
    where
        'a: 's,
    {
        self.call.under(snapshot)
    }

    pub(crate) fn answered<T: FromAnswer>(
        &self,
        snapshot: Option<&Snapshot>,
        answer: Result<Answer, StoreError>,
    ) -> Result<T, StoreError> {
        let answer = match self.behind {
            Some(behind) => overtaking(snapshot, answer, behind),
            None => answer,
        };
        answer.and_then(T::from_answer)
    }
}

/// The denial of a plain take that would overtake waiters, with the wait that they leave to it.
fn overtaking(
    snapshot: Option<&Snapshot>,
    state: Result<Answer, StoreError>,
    (ahead, cost): (u128, u64),
) -> Result<Answer, StoreError> {
    let decision = state.and_then(Decision::from_answer)?;
    let (Some(snapshot), Some(outcome)) = (snapshot, decision.outcomes().first()) else {
        return Ok(Answer::Decision(decision));
    };
    let tokens = ahead.saturating_add(cost.into());
    let wait = match snapshot.limit().policy() {
        policy if cost > policy.capacity() => None,
        policy => project(policy, outcome, tokens),
    };
    let retry = match wait {
        Some(wait) if !wait.is_zero() => Retry::After(wait),
        Some(_) => Retry::OnRelease,
        None => Retry::Never,
    };
    let outcome = Outcome::new(outcome.capacity, outcome.remaining, outcome.reset, Some(retry));
    let denial = Denial::new(smallvec::smallvec![outcome]);
    Ok(Answer::Decision(Decision::Denied(match decision.degraded() {
        Some(rule) => denial.degraded(rule),
        None => denial,
    })))
}

/// An operation together with the list of one that it borrows.
pub(crate) enum Parts<'s> {
    Whole(Operation<'s>),
    Take([Charge<'s>; 1]),
    Peek([Charge<'s>; 1]),
    Reserve([Charge<'s>; 1], Duration),
    Settle([Correction<'s>; 1], Option<&'s Receipt>),
}

impl Parts<'_> {
    pub(crate) fn operation(&self) -> Operation<'_> {
        match self {
            Self::Whole(operation) => *operation,
            Self::Take(charges) => Operation::Take(charges),
            Self::Peek(charges) => Operation::Peek(charges),
            Self::Reserve(charges, horizon) => Operation::Reserve { charges, horizon: *horizon },
            Self::Settle(corrections, receipt) => {
                Operation::Settle { corrections, receipt: *receipt }
            }
        }
    }
}
